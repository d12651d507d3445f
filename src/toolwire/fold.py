"""Events ⇄ whole answer. Folding a stream gives what reading the whole answer gives; unfolding is its mirror."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from toolwire.events import (
    ArgumentsDelta,
    Carried,
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
from toolwire.ir import (
    Call,
    Choice,
    Citation,
    Failure,
    Finish,
    HostedCall,
    HostedResult,
    Part,
    Reasoning,
    Refusal,
    Response,
    Seal,
    Text,
    Usage,
)


class _Growing:
    """A part while its deltas come in."""

    __slots__ = ("choice", "citations", "incomplete", "part", "pieces", "seal")

    def __init__(self, part: Part, choice: int) -> None:
        self.part = part
        self.choice = choice
        self.pieces: list[str] = []
        self.citations: list[Citation] = []
        self.seal: Seal | None = None
        self.incomplete = False

    def whole(self) -> Part:
        part, text = self.part, "".join(self.pieces)
        fields: dict[str, object] = {}
        if text:
            field = "arguments" if isinstance(part, (Call, HostedCall)) else "text"
            fields[field] = getattr(part, field) + text
        if self.citations and isinstance(part, (Text, HostedResult)):
            field = "citations" if isinstance(part, Text) else "sources"
            fields[field] = (*getattr(part, field), *self.citations)
        if self.seal is not None:
            fields["seal"] = self.seal
        if self.incomplete and isinstance(part, Call):
            fields["incomplete"] = True
        return replace(part, **fields) if fields else part


class Fold:
    """Takes the events of one stream; `response` is the whole answer so far."""

    def __init__(self) -> None:
        self._start = ResponseStart()
        self._parts: dict[int, _Growing] = {}
        self._finishes: dict[int, Finish] = {}
        self.usage: Usage | None = None
        self.failure: Failure | None = None
        self.ended = False

    def add(self, event: Event) -> None:
        match event:
            case TextDelta(index, text) | ArgumentsDelta(index, text):
                self._parts[index].pieces.append(text)
            case PartStart(index, part, choice):
                self._parts[index] = _Growing(part, choice)
            case PartEnd(index, incomplete):
                self._parts[index].incomplete = incomplete
            case SealDelta(index, seal):
                self._parts[index].seal = seal
            case CitationDelta(index, citation):
                self._parts[index].citations.append(citation)
            case ResponseStart():
                self._start = event
                self.usage = event.usage
            case UsageUpdate(usage):
                self.usage = usage
            case ChoiceEnd(finish, choice):
                self._finishes[choice] = finish
            case ResponseEnd():
                self.ended = True
            case ResponseFailed(failure):
                self.failure = failure
            case Carried():
                pass

    def part(self, index: int) -> Part:
        """One part as far as it has come."""
        return self._parts[index].whole()

    @property
    def response(self) -> Response:
        parts: dict[int, list[Part]] = {choice: [] for choice in self._finishes}
        for growing in self._parts.values():
            parts.setdefault(growing.choice, []).append(growing.whole())
        choices = tuple(Choice(index, tuple(parts[index]), self._finishes.get(index)) for index in sorted(parts))
        start = self._start
        return Response(start.id, start.model, start.created, choices, self.usage, self.failure, start.origin)


def fold(events: Iterable[Event]) -> Response:
    """The whole answer that a stream of events amounts to."""
    folding = Fold()
    for event in events:
        folding.add(event)
    return folding.response


def unfold(response: Response) -> Iterator[Event]:
    """A whole answer as the stream that would have delivered it."""
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


def _unfold_part(index: int, part: Part, choice: int) -> Iterator[Event]:
    match part:
        case Text(text, citations, _, seal):
            yield PartStart(index, replace(part, text="", citations=(), seal=None), choice)
            if text:
                yield TextDelta(index, text)
            for citation in citations:
                yield CitationDelta(index, citation)
        case Reasoning(text=text, seal=seal):
            yield PartStart(index, replace(part, text="", seal=None), choice)
            if text:
                yield TextDelta(index, text)
        case Refusal(text):
            seal = None
            yield PartStart(index, replace(part, text=""), choice)
            if text:
                yield TextDelta(index, text)
        case Call(arguments=arguments, seal=seal):
            yield PartStart(index, replace(part, arguments="", seal=None, incomplete=False), choice)
            if arguments:
                yield ArgumentsDelta(index, arguments)
        case _:
            seal = None
            yield PartStart(index, part, choice)
    if seal is not None:
        yield SealDelta(index, seal)
    yield PartEnd(index, isinstance(part, Call) and part.incomplete)
