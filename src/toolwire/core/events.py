"""The events of a streamed answer, which every protocol's stream reader produces and every stream writer takes.

    ResponseStart → (PartStart → deltas → PartEnd)* → UsageUpdate? → ChoiceEnd → ResponseEnd | ResponseFailed

A part is identified by its `index`, which is unique in the whole answer. Several parts may be open at once, and there
may be several choices. `StreamChecker` holds every stream to this grammar, by the tables `PARTS_BY_DELTA` and
`CHECKS_BY_STATE`. `fold` makes a whole answer of events, and `unfold` is its inverse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from toolwire.core.ir import (
    Call,
    Choice,
    Citation,
    Failure,
    Finish,
    Logprobs,
    Media,
    Opaque,
    Origin,
    Part,
    ProviderCall,
    ProviderResult,
    Reasoning,
    Refusal,
    Response,
    Seal,
    Text,
    TokenLogprob,
    UnknownField,
    Usage,
)
from toolwire.core.json_values import Json
from toolwire.core.provenance import not_verbatim


class SourceFrame(Struct, frozen=True, gc=False):
    """The server-sent event that events were read from. A writer of the same protocol writes it back verbatim, once."""

    protocol: str
    event: str | None
    """The SSE `event:` field."""
    json: Json
    """The SSE `data:` field, None for `[DONE]`."""
    silent: bool = False
    """The event was made at the end of the input: there was no frame, so none is written back."""


class ResponseStart(Struct, frozen=True, gc=False):
    """The answer begins: Anthropic `message_start`, Responses `response.created`, the first Chat or Gemini chunk."""

    id: str = ""
    model: str = ""
    created: int | None = None
    usage: Usage | None = None
    """Counts that are known at the start, such as the tokens of the prompt (Anthropic)."""
    origin: Origin | None = None
    frame: SourceFrame | None = None


class PartStart(Struct, frozen=True, gc=False):
    """A part begins: Anthropic `content_block_start`, Responses `response.output_item.added`."""

    index: int
    part: Part
    """What is known at once, such as the id and name of a call. Deltas add the rest."""
    choice: int = 0
    """The index of the choice."""
    frame: SourceFrame | None = None


class TextDelta(Struct, frozen=True, gc=False):
    """More text of a Text, Refusal or Reasoning part."""

    index: int
    text: str
    frame: SourceFrame | None = None
    logprobs: Logprobs = ()
    """Its tokens. A delta may have tokens and no text, where a token is a part of a character."""


class ArgumentsDelta(Struct, frozen=True, gc=False):
    """More of a call's arguments: Anthropic `input_json_delta`, Responses `response.function_call_arguments.delta`."""

    index: int
    text: str
    frame: SourceFrame | None = None


class SealDelta(Struct, frozen=True, gc=False):
    """The whole seal of an open part: Anthropic `signature_delta`."""

    index: int
    seal: Seal
    frame: SourceFrame | None = None


class CitationDelta(Struct, frozen=True, gc=False):
    """One more citation of a text, or one more source of a provider's search."""

    index: int
    citation: Citation
    frame: SourceFrame | None = None


class PartEnd(Struct, frozen=True, gc=False):
    """A part ends: Anthropic `content_block_stop`, Responses `response.output_item.done`."""

    index: int
    incomplete: bool = False
    """It was cut off."""
    frame: SourceFrame | None = None


class UsageUpdate(Struct, frozen=True, gc=False):
    """The token counts so far. A later update replaces an earlier one."""

    usage: Usage
    frame: SourceFrame | None = None


class ChoiceEnd(Struct, frozen=True, gc=False):
    """A choice ends: Chat and Gemini finish reason, Anthropic `message_delta`."""

    finish: Finish
    choice: int = 0
    frame: SourceFrame | None = None


class ResponseEnd(Struct, frozen=True, gc=False):
    """The whole answer has come: Chat `[DONE]`, Anthropic `message_stop`, Responses `response.completed`."""

    unknown_fields: tuple[UnknownField, ...] = ()
    """Unknown keys of the whole stream."""
    frame: SourceFrame | None = None


class ResponseFailed(Struct, frozen=True, gc=False):
    """The answer failed: the provider sent an error, the stream broke off, or it broke the grammar."""

    failure: Failure
    frame: SourceFrame | None = None


class OpaqueEvent(Struct, frozen=True, gc=False):
    """An event that only its own protocol knows. Its JSON is `origin.wire`."""

    kind: str
    """Its type as the wire names it."""
    origin: Origin
    is_ignorable: bool = False
    """Nothing is lost without it (Anthropic's `ping`), so leaving it out is not reported."""
    frame: SourceFrame | None = None
    failure: Failure | None = None
    """What it is for clients of another protocol: the provider takes back what it has said."""


Delta: TypeAlias = TextDelta | ArgumentsDelta
PartEvent: TypeAlias = PartStart | Delta | SealDelta | CitationDelta | PartEnd
"""The events of a part, which have its `index`."""
Event: TypeAlias = ResponseStart | PartEvent | UsageUpdate | ChoiceEnd | ResponseEnd | ResponseFailed | OpaqueEvent

StreamState: TypeAlias = Literal["new", "open", "done"]

PARTS_BY_DELTA: Mapping[type, frozenset[type]] = {
    TextDelta: frozenset({Text, Refusal, Reasoning, ProviderResult}),
    ArgumentsDelta: frozenset({Call, ProviderCall}),
    SealDelta: frozenset({Text, Reasoning, Call, Media}),
    CitationDelta: frozenset({Text, ProviderResult, Opaque}),
}
"""The types of parts that each delta can belong to."""

MAX_CHOICES = 128
"""OpenAI's limit for `n`. A larger index would make a writer open all the choices before it."""


class StreamChecker(Struct, eq=False):
    """Checks the events of one stream against the grammar."""

    state: StreamState = "new"
    has_complete_call: bool = False
    """Has a complete call come?"""
    _open_parts: dict[int, type] = {}
    _closed_parts: set[int] = set()
    _ended_choices: set[int] = set()

    def check_event(self, event: Event) -> Failure | None:
        """None, or a Failure that says how the event breaks the grammar."""
        checks, kind = CHECKS_BY_STATE[self.state], type(event)
        if kind not in checks:
            return _grammar_failure(f"{kind.__name__} is not allowed here: the stream is {self.state}")
        check = checks[kind]
        return None if check is None else check(self, event)

    def _check_start_or_failure(self, event: ResponseStart | ResponseFailed) -> Failure | None:
        self.state = "open" if type(event) is ResponseStart else "done"
        return None

    def _check_delta(self, event: Delta | SealDelta | CitationDelta) -> Failure | None:
        kind = type(event)
        part = self._open_parts.get(event.index)
        if part in PARTS_BY_DELTA[kind]:
            return None
        if part is None:
            return _grammar_failure(f"{kind.__name__} for part {event.index}, which is not open")
        return _grammar_failure(f"{kind.__name__} in a part of type {part.__name__}")

    def _check_part_start(self, event: PartStart) -> Failure | None:
        index, choice = event.index, event.choice
        if index in self._open_parts or index in self._closed_parts:
            return _grammar_failure(f"part {index} starts twice")
        if not 0 <= choice < MAX_CHOICES:
            return _grammar_failure(f"there is no choice {choice}")
        if choice in self._ended_choices:
            return _grammar_failure(f"part {index} starts after the end of choice {choice}")
        self._open_parts[index] = type(event.part)
        return None

    def _check_part_end(self, event: PartEnd) -> Failure | None:
        index = event.index
        part = self._open_parts.pop(index, None)
        if part is None:
            return _grammar_failure(f"part {index} ends without being open")
        self._closed_parts.add(index)
        if part is Call and not event.incomplete:
            self.has_complete_call = True
        return None

    def _check_choice_end(self, event: ChoiceEnd) -> Failure | None:
        choice = event.choice
        if not 0 <= choice < MAX_CHOICES:
            return _grammar_failure(f"there is no choice {choice}")
        self._ended_choices.add(choice)
        return None

    def _check_response_end(self, event: ResponseEnd) -> Failure | None:
        self.state = "done"
        if self._open_parts:
            return _grammar_failure(f"the answer ends while part {min(self._open_parts)} is open")
        if not self._ended_choices:
            return _grammar_failure("the answer ends without a finish reason")
        return None


CHECKS_BY_STATE: Mapping[StreamState, Mapping[type, Callable[[StreamChecker, Any], Failure | None] | None]] = {
    "new": {
        ResponseStart: StreamChecker._check_start_or_failure,
        ResponseFailed: StreamChecker._check_start_or_failure,
        OpaqueEvent: None,
    },
    "open": {
        PartStart: StreamChecker._check_part_start,
        **dict.fromkeys(PARTS_BY_DELTA, StreamChecker._check_delta),
        PartEnd: StreamChecker._check_part_end,
        UsageUpdate: None,
        ChoiceEnd: StreamChecker._check_choice_end,
        OpaqueEvent: None,
        ResponseEnd: StreamChecker._check_response_end,
        ResponseFailed: StreamChecker._check_start_or_failure,
    },
    "done": {OpaqueEvent: None},
}
"""The events that are allowed in each state, and how each is checked (None: no further check)."""


def _grammar_failure(message: str) -> Failure:
    return Failure("upstream", f"the provider's stream breaks its grammar: {message}", 502, "invalid_stream")


# --- streamed and whole answers ---


class _PartBuilder(Struct, eq=False):
    """A part whose deltas are still coming."""

    part: Part
    choice: int
    text_pieces: list[str] = []
    citations: list[Citation] = []
    logprobs: list[TokenLogprob] = []
    seal: Seal | None = None
    incomplete: bool = False

    def build_part(self) -> Part:
        part, text = self.part, "".join(self.text_pieces)
        fields: dict[str, object] = {}
        if text:
            field = "arguments" if isinstance(part, (Call, ProviderCall)) else "text"
            fields[field] = getattr(part, field) + text
        if self.citations and isinstance(part, (Text, ProviderResult)):
            field = "citations" if isinstance(part, Text) else "sources"
            fields[field] = (*getattr(part, field), *self.citations)
        if self.logprobs and isinstance(part, (Text, Refusal)):
            fields["logprobs"] = (*part.logprobs, *self.logprobs)
        if self.seal is not None:
            fields["seal"] = self.seal
        if self.incomplete and isinstance(part, Call):
            fields["incomplete"] = True
        return replace(part, **fields) if fields else part


class Fold(Struct, eq=False):
    """Collects the events of one stream; `response` is the answer so far."""

    _response_start: ResponseStart = ResponseStart()
    _part_builders: dict[int, _PartBuilder] = {}
    _finishes: dict[int, Finish] = {}
    usage: Usage | None = None
    failure: Failure | None = None
    ended: bool = False
    may_have_seals: bool = False
    """Was there a seal, or thinking (which may be sealed)?"""

    def add_event(self, event: Event) -> None:
        match event:
            case TextDelta():
                builder = self._part_builders[event.index]
                builder.text_pieces.append(event.text)
                if event.logprobs:
                    builder.logprobs += event.logprobs
            case ArgumentsDelta():
                self._part_builders[event.index].text_pieces.append(event.text)
            case PartStart(index, part, choice):
                self._part_builders[index] = _PartBuilder(part, choice)
                if type(part) is Reasoning or getattr(part, "seal", None) is not None:
                    self.may_have_seals = True
            case PartEnd():
                self._part_builders[event.index].incomplete = event.incomplete
            case SealDelta():
                self._part_builders[event.index].seal = event.seal
                self.may_have_seals = True
            case CitationDelta():
                self._part_builders[event.index].citations.append(event.citation)
            case _:
                self._add_response_event(event)

    def _add_response_event(self, event: Event) -> None:
        match event:
            case ResponseStart():
                self._response_start, self.usage = event, event.usage
            case UsageUpdate():
                self.usage = event.usage
            case ChoiceEnd():
                self._finishes[event.choice] = event.finish
            case ResponseEnd():
                self.ended = True
            case ResponseFailed():
                self.failure = event.failure

    def text_appender(self, index: int) -> Callable[[str], None]:
        """A function that adds the text of further deltas to an open part."""
        return self._part_builders[index].text_pieces.append

    def current_part(self, index: int) -> Part:
        return self._part_builders[index].build_part()

    @property
    def response(self) -> Response:
        parts: dict[int, list[Part]] = {choice: [] for choice in self._finishes}
        for builder in self._part_builders.values():
            parts.setdefault(builder.choice, []).append(builder.build_part())
        choices = tuple(Choice(index, tuple(parts[index]), self._finishes.get(index)) for index in sorted(parts))
        start = self._response_start
        return Response(start.id, start.model, start.created, choices, self.usage, self.failure, start.origin)


def fold(events: Iterable[Event]) -> Response:
    collected = Fold()
    for event in events:
        collected.add_event(event)
    return collected.response


def fold_changes(events: Iterable[Event], response: Response) -> Response:
    """The answer that the changed events of another one make. It keeps the place and the unknown keys of that one."""
    changed = fold(events)
    origins = {choice.index: not_verbatim(choice.origin) for choice in response.choices}
    choices = tuple(replace(choice, origin=origins.get(choice.index)) for choice in changed.choices)
    origin = not_verbatim(response.origin)
    return replace(changed, choices=choices, origin=origin, unknown_fields=response.unknown_fields)


def unfold(response: Response) -> Iterator[Event]:
    yield ResponseStart(response.id, response.model, response.created, origin=response.origin)
    index = 0
    for choice in response.choices:
        for part in choice.parts:
            yield from unfold_part(index, part, choice.index)
            index += 1
        if choice.finish is not None:
            yield ChoiceEnd(choice.finish, choice.index)
    if response.usage is not None:
        yield UsageUpdate(response.usage)
    yield ResponseFailed(response.failure) if response.failure is not None else ResponseEnd()


_INITIAL_FIELDS: Mapping[type, Mapping[str, object]] = {
    Text: {"text": "", "citations": (), "seal": None, "logprobs": ()},
    Reasoning: {"text": "", "seal": None},
    Refusal: {"text": "", "logprobs": ()},
    Call: {"arguments": "", "seal": None, "incomplete": False},
}
"""The fields of a `PartStart` that deltas fill in, by type; parts of other types come whole."""


def unfold_part(index: int, part: Part, choice: int = 0) -> Iterator[Event]:
    initial = _INITIAL_FIELDS.get(type(part))
    yield PartStart(index, replace(part, **initial) if initial else part, choice)
    if initial:
        if isinstance(part, Call):
            if part.arguments:
                yield ArgumentsDelta(index, part.arguments)
        else:
            logprobs = part.logprobs if isinstance(part, (Text, Refusal)) else ()
            if part.text or logprobs:  # type: ignore[union-attr]
                yield TextDelta(index, part.text, None, logprobs)  # type: ignore[union-attr]
        for citation in getattr(part, "citations", ()):
            yield CitationDelta(index, citation)
        if getattr(part, "seal", None) is not None:
            yield SealDelta(index, part.seal)  # type: ignore[union-attr,arg-type]
    yield PartEnd(index, isinstance(part, Call) and part.incomplete)
