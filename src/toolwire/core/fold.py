"""Conversion between a streamed and a whole answer: `fold` collects events, `unfold` is its inverse."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from toolwire.core.events import (
    ArgumentsDelta,
    ChoiceEnd,
    CitationDelta,
    Event,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
    SealDelta,
    TextDelta,
    UsageUpdate,
)
from toolwire.core.ir import (
    Call,
    Choice,
    Citation,
    Failure,
    Finish,
    Part,
    ProviderCall,
    ProviderResult,
    Reasoning,
    Refusal,
    Response,
    Seal,
    Text,
    Usage,
)


class _PartBuilder(Struct, eq=False):
    """A part whose deltas are still coming."""

    part: Part
    choice: int
    text_pieces: list[str] = []
    citations: list[Citation] = []
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
        add = _ADD_METHODS.get(type(event))
        if add is not None:
            add(self, event)

    def text_appender(self, index: int) -> Callable[[str], None]:
        """A function that adds the text of further deltas to an open part."""
        return self._part_builders[index].text_pieces.append

    def _add_text(self, event: TextDelta | ArgumentsDelta) -> None:
        self._part_builders[event.index].text_pieces.append(event.text)

    def _start_part(self, event: PartStart) -> None:
        part = event.part
        self._part_builders[event.index] = _PartBuilder(part, event.choice)
        if type(part) is Reasoning or getattr(part, "seal", None) is not None:
            self.may_have_seals = True

    def _end_part(self, event: PartEnd) -> None:
        self._part_builders[event.index].incomplete = event.incomplete

    def _set_seal(self, event: SealDelta) -> None:
        self._part_builders[event.index].seal = event.seal
        self.may_have_seals = True

    def _add_citation(self, event: CitationDelta) -> None:
        self._part_builders[event.index].citations.append(event.citation)

    def _start_response(self, event: ResponseStart) -> None:
        self._response_start, self.usage = event, event.usage

    def _set_usage(self, event: UsageUpdate) -> None:
        self.usage = event.usage

    def _finish_choice(self, event: ChoiceEnd) -> None:
        self._finishes[event.choice] = event.finish

    def _end_response(self, event: ResponseEnd) -> None:
        self.ended = True

    def _fail_response(self, event: ResponseFailed) -> None:
        self.failure = event.failure

    def current_part(self, index: int) -> Part:
        """One part so far."""
        return self._part_builders[index].build_part()

    @property
    def response(self) -> Response:
        parts: dict[int, list[Part]] = {choice: [] for choice in self._finishes}
        for builder in self._part_builders.values():
            parts.setdefault(builder.choice, []).append(builder.build_part())
        choices = tuple(Choice(index, tuple(parts[index]), self._finishes.get(index)) for index in sorted(parts))
        start = self._response_start
        return Response(start.id, start.model, start.created, choices, self.usage, self.failure, start.origin)


_ADD_METHODS: Mapping[type, Callable[..., None]] = {
    TextDelta: Fold._add_text,
    ArgumentsDelta: Fold._add_text,
    PartStart: Fold._start_part,
    PartEnd: Fold._end_part,
    SealDelta: Fold._set_seal,
    CitationDelta: Fold._add_citation,
    ResponseStart: Fold._start_response,
    UsageUpdate: Fold._set_usage,
    ChoiceEnd: Fold._finish_choice,
    ResponseEnd: Fold._end_response,
    ResponseFailed: Fold._fail_response,
}


def fold(events: Iterable[Event]) -> Response:
    """The whole answer of a stream of events."""
    collected = Fold()
    for event in events:
        collected.add_event(event)
    return collected.response


def unfold(response: Response) -> Iterator[Event]:
    """A whole answer as a stream of events."""
    yield ResponseStart(response.id, response.model, response.created, origin=response.origin)
    index = 0
    for choice in response.choices:
        for part in choice.parts:
            yield from _unfold_part(index, part, choice.index)
            index += 1
        if choice.finish is not None:
            yield ChoiceEnd(choice.finish, choice.index)
    if response.usage is not None:
        yield UsageUpdate(response.usage)
    yield ResponseFailed(response.failure) if response.failure is not None else ResponseEnd()


_INITIAL_FIELDS: Mapping[type, Mapping[str, object]] = {
    Text: {"text": "", "citations": (), "seal": None},
    Reasoning: {"text": "", "seal": None},
    Refusal: {"text": ""},
    Call: {"arguments": "", "seal": None, "incomplete": False},
}
"""The fields of a `PartStart` that deltas fill in, by type; parts of other types come whole."""


def _unfold_part(index: int, part: Part, choice: int) -> Iterator[Event]:
    initial = _INITIAL_FIELDS.get(type(part))
    yield PartStart(index, replace(part, **initial) if initial else part, choice)
    if initial:
        if isinstance(part, Call):
            if part.arguments:
                yield ArgumentsDelta(index, part.arguments)
        elif part.text:  # type: ignore[union-attr]
            yield TextDelta(index, part.text)  # type: ignore[union-attr]
        for citation in getattr(part, "citations", ()):
            yield CitationDelta(index, citation)
        if getattr(part, "seal", None) is not None:
            yield SealDelta(index, part.seal)  # type: ignore[union-attr,arg-type]
    yield PartEnd(index, isinstance(part, Call) and part.incomplete)
