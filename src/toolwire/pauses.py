"""Answers that pause: a provider that runs tools itself may stop in between and wait to be asked again.

Protocols that cannot say so get one answer: what was said so far goes back as the assistant's turn, and the rest of the
answer is joined to it.
"""

from __future__ import annotations

from msgspec.structs import replace

from toolwire.events import ChoiceEnd, Event, PartStart, ResponseEnd, ResponseStart, UsageUpdate
from toolwire.fold import Fold
from toolwire.ir import HostedTool, Part, Request, Response, Turn, Usage, changed

PAUSE = "pause"


def possible(request: Request) -> bool:
    """Only a provider that has tools of its own to run pauses."""
    return any(isinstance(tool, HostedTool) for tool in request.tools)


def parts_of(response: Response) -> tuple[Part, ...] | None:
    """What a paused answer has said so far; None for one that did not pause."""
    for choice in response.choices:
        if choice.finish is not None and choice.finish.kind == PAUSE:
            return choice.parts
    return None


def continued(request: Request, parts: tuple[Part, ...]) -> Request:
    return changed(request, turns=(*request.turns, Turn("assistant", parts)))


def joined(response: Response, earlier: tuple[Part, ...], spent: Usage | None) -> Response:
    """The last piece of an answer with all that came before its pauses."""
    first, *others = response.choices
    whole = changed(first, parts=(*earlier, *first.parts))
    return changed(response, choices=(whole, *others), usage=added(spent, response.usage))


def added(one: Usage | None, other: Usage | None) -> Usage | None:
    """The tokens of both: every round is billed."""
    if one is None or other is None:
        return one or other
    return Usage(
        one.input + other.input,
        one.output + other.output,
        _sum(one.cache_read, other.cache_read),
        _sum(one.cache_write, other.cache_write),
        _sum(one.reasoning, other.reasoning),
        _sum(one.total, other.total),
    )


def _sum(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else one + other


class Pauses:
    """Takes the events of a stream and of those that continue it, and gives those of one answer."""

    def __init__(self) -> None:
        self.paused = False
        self._fold = Fold()
        self._spent: Usage | None = None
        self._offset = 0
        self._next = 0
        self._rounds = 0

    def through(self, events: list[Event]) -> list[Event]:
        out: list[Event] = []
        for event in events:
            seen = self._seen(event)
            if seen is not None:
                self._fold.add(seen)
                out.append(seen)
        return out

    def _seen(self, event: Event) -> Event | None:
        if isinstance(event, ChoiceEnd) and event.finish.kind == PAUSE:
            self.paused = True
            return None
        if self.paused and isinstance(event, ResponseEnd):
            return None
        if isinstance(event, ResponseStart) and self._rounds:
            return None
        if isinstance(event, UsageUpdate) and self._spent is not None:
            return replace(event, usage=added(self._spent, event.usage))
        index: int | None = getattr(event, "index", None)
        if index is None:
            return event
        if isinstance(event, PartStart):
            self._next = max(self._next, self._offset + index + 1)
        return replace(event, index=self._offset + index) if self._offset else event

    def resumed(self) -> tuple[Part, ...]:
        """All parts so far; what is fed from here on continues them."""
        self.paused = False
        self._offset = self._next
        self._spent = self._fold.usage
        self._rounds += 1
        return self._fold.response.choices[0].parts if self._fold.response.choices else ()
