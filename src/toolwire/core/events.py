"""The events of a streamed answer, which every protocol's stream reader produces and every stream writer takes.

    ResponseStart → (PartStart → deltas → PartEnd)* → UsageUpdate? → ChoiceEnd → ResponseEnd | ResponseFailed

A part is identified by its `index`, which is unique in the whole answer. Several parts may be open at once, and there
may be several choices. `StreamChecker` holds every stream to this grammar, by the tables `PARTS_BY_DELTA` and
`CHECKS_BY_STATE`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from toolwire.core.ir import (
    Call,
    Citation,
    Failure,
    Finish,
    Media,
    Opaque,
    Origin,
    Part,
    ProviderCall,
    ProviderResult,
    Reasoning,
    Refusal,
    Seal,
    Text,
    UnknownField,
    Usage,
)
from toolwire.core.json_values import Json


class SourceFrame(Struct, frozen=True, gc=False):
    """The server-sent event that an event was read from. A writer of the same protocol writes it back verbatim, once
    for all events that share it."""

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


Event: TypeAlias = (
    ResponseStart
    | PartStart
    | TextDelta
    | ArgumentsDelta
    | SealDelta
    | CitationDelta
    | PartEnd
    | UsageUpdate
    | ChoiceEnd
    | ResponseEnd
    | ResponseFailed
    | OpaqueEvent
)

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
        check = CHECKS_BY_STATE[self.state].get(type(event), _misplaced_event_failure)
        return None if check is None else check(self, event)

    def _check_response_start(self, event: ResponseStart) -> Failure | None:
        self.state = "open"
        return None

    def _check_response_failed(self, event: ResponseFailed) -> Failure | None:
        self.state = "done"
        return None

    def _check_delta(self, event: TextDelta | ArgumentsDelta | SealDelta | CitationDelta) -> Failure | None:
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


def _misplaced_event_failure(checker: StreamChecker, event: Event) -> Failure | None:
    return _grammar_failure(f"{type(event).__name__} is not allowed here: the stream is {checker.state}")


CHECKS_BY_STATE: Mapping[StreamState, Mapping[type, Callable[[StreamChecker, Any], Failure | None] | None]] = {
    "new": {
        ResponseStart: StreamChecker._check_response_start,
        ResponseFailed: StreamChecker._check_response_failed,
        OpaqueEvent: None,
    },
    "open": {
        PartStart: StreamChecker._check_part_start,
        TextDelta: StreamChecker._check_delta,
        ArgumentsDelta: StreamChecker._check_delta,
        SealDelta: StreamChecker._check_delta,
        CitationDelta: StreamChecker._check_delta,
        PartEnd: StreamChecker._check_part_end,
        UsageUpdate: None,
        ChoiceEnd: StreamChecker._check_choice_end,
        OpaqueEvent: None,
        ResponseEnd: StreamChecker._check_response_end,
        ResponseFailed: StreamChecker._check_response_failed,
    },
    "done": {OpaqueEvent: None},
}
"""The events that are allowed in each state, and how each is checked (None: no further check)."""


def _grammar_failure(message: str) -> Failure:
    return Failure("upstream", f"the provider's stream breaks its grammar: {message}", 502, "invalid_stream")
