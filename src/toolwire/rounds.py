"""Answers that take several rounds: the model is asked again before the client sees an end.

A provider that runs tools itself may pause in between and wait to be asked again. And some calls are not for the
client: of tools that somebody else runs, of tools that it does not have, or with arguments that it would refuse. Such
calls are taken out of the answer; with their results the model goes on, and the rounds are joined to one answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from toolwire import ids
from toolwire.events import (
    ChoiceEnd,
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
from toolwire.fold import Fold
from toolwire.hosted import shown
from toolwire.ir import NOTHING, Call, Part, Reasoning, Result, Seal, Text, Turn, Usage, changed

PAUSE = "pause"
SHOWN = 200
"""Characters of a call's arguments that a client is shown."""
LAST_WORDS = "no more calls can be made for this answer; say what you have found so far"
"""What calls are told beyond the last round."""


class Taken(Struct, frozen=True):
    """A call that does not reach the client, as its provider made it; `why` it was refused, "" where not."""

    call: Call
    why: str = ""


class Takes(Protocol):
    """Which calls are not for the client. Names are the provider's."""

    def watches(self, name: str) -> bool:
        """Could a call of this name be taken? Then its arguments are waited for."""

    def verdict(self, call: Call) -> str | None:
        """None: it is the client's. "": it is to be run. A text: it is refused, and the model is told this."""

    def named(self, call: Call) -> Call:
        """The call as whoever runs it knows it."""


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


class Round(Struct, frozen=True):
    """One that is over: what the model said and did, and what it was told of its calls."""

    parts: tuple[Part, ...]
    results: tuple[Result, ...]


class Rounds:
    """Takes the events of a stream and of those that continue it, and gives those of one answer."""

    def __init__(
        self,
        takes: Takes | None = None,
        pauses: bool = False,
        telling: frozenset[str] = frozenset(),
        sealed: bool = True,
        standing: Mapping[str, str] = NOTHING,
        mark: Seal | None = None,
    ) -> None:
        self.paused = False
        """Must the model be asked again before there is an end?"""
        self.taken: list[Taken] = []
        """The calls of this round that are not the client's."""
        self.done: list[Round] = []
        self._takes = takes
        self._pauses = pauses
        self._shown = telling
        self._standing = standing
        """The provider's own tools that functions stand in for, by the functions' names."""
        self._sealed = sealed or takes is None
        """Does the client get seals? Not where nobody keeps what they are bound to."""
        self._mark = mark
        """What stands where a seal should, for a client that would give thinking back to the provider as its own."""
        self._thoughts: set[int] = set()
        self._mute: set[int] = set()
        self._ids: set[str] = set()
        self._told: list[Event] = []
        self._fold = Fold()
        self._held: dict[int, list[Event]] = {}
        self._own = False
        self._spent: Usage | None = None
        self._offset = 0
        self._next = 0
        self._begun = False
        self.resumptions = 0

    @property
    def parts(self) -> tuple[Part, ...]:
        """What the model said and did in this round so far."""
        choices = self._fold.response.choices
        return choices[0].parts if choices else ()

    def through(self, events: list[Event]) -> list[Event]:
        out, self._told = self._told, []
        for event in events:
            kind = type(event)
            if self._takes is not None and event.frame is not None:
                event = replace(event, frame=None)  # parts are left out and numbered anew
            if kind is ResponseStart:
                self._fold.add(event)
                if not self._begun:
                    out.append(event)
                self._begun = True
            elif kind is ResponseFailed:
                self.paused = False
                out.append(event)
            elif kind is ChoiceEnd or kind is ResponseEnd:
                if kind is ChoiceEnd:
                    self.paused = self._pauses_at(event)  # type: ignore[arg-type]
                if not self.paused:
                    self._fold.add(event)
                    out.append(event)
            else:
                out += self._part(self._placed(event))
        return out if self._sealed else [bare for event in out for bare in self._bared(event)]

    def _pauses_at(self, end: ChoiceEnd) -> bool:
        return (self._pauses and end.finish.kind == PAUSE) or (bool(self.taken) and not self._own)

    def _placed(self, event: Event) -> Event:
        """The event as one of the whole answer: its part numbered on, its counts with those of earlier rounds."""
        if type(event) is UsageUpdate:
            self._fold.add(event)
            usage = added(self._spent, event.usage)
            return event if self._spent is None or usage is None else UsageUpdate(usage)
        index: int | None = getattr(event, "index", None)
        if index is None:
            return event
        if type(event) is PartStart:
            self._next = max(self._next, self._offset + index + 1)
            if self._takes is not None and isinstance(event.part, Call):
                event = self._identified(event, event.part)
        placed = replace(event, index=self._offset + index, frame=None) if self._offset else event
        self._fold.add(placed)
        return placed

    def _identified(self, event: PartStart, call: Call) -> PartStart:
        """Some servers give no ids, or the same ones again in every answer; here they are in one request."""
        id = call.id
        if not id or id in self._ids:
            id = ids.made("call_", self._fold.response.id, id, len(self._ids), call.name)
            event = replace(event, part=replace(call, id=id), frame=None)
        self._ids.add(id)
        return event

    def _bared(self, event: Event) -> list[Event]:
        """An event without a seal, and without what only a sealed part is known by."""
        index: int | None = getattr(event, "index", None)
        if type(event) is PartStart:
            return self._bared_start(event, event.part)
        if type(event) is SealDelta or index in self._mute:
            return []
        if type(event) is PartEnd and event.index in self._thoughts and self._mark is not None:
            return [SealDelta(event.index, self._mark), event]
        return [event]

    def _bared_start(self, event: PartStart, part: Part) -> list[Event]:
        if isinstance(part, Reasoning):
            if part.hidden:
                self._mute.add(event.index)
                return []
            self._thoughts.add(event.index)
            return [replace(event, part=changed(part, seal=None, id=""))]
        if isinstance(part, Call):
            return [replace(event, part=changed(part, seal=None, item=""))]
        return [replace(event, part=changed(part, seal=None))] if isinstance(part, Text) else [event]

    def _part(self, event: Event) -> list[Event]:
        """Held where the part may be taken, until that is known."""
        index: int | None = getattr(event, "index", None)
        held = self._held.get(index) if index is not None else None
        if held is not None and index is not None:
            held.append(event)
            return self._judged(index) if type(event) is PartEnd else []
        if type(event) is PartStart and isinstance(event.part, Call):
            if self._takes is not None and self._takes.watches(event.part.name):
                self._held[event.index] = [event]
                return []
            self._own = True
        return [event]

    def _judged(self, index: int) -> list[Event]:
        held, call = self._held.pop(index), self._fold.part(index)
        why = self._takes.verdict(call) if self._takes is not None and isinstance(call, Call) else None
        if why is None or not isinstance(call, Call):
            self._own = True
            return held
        self.taken.append(Taken(call, why))
        return []

    def resumed(self, results: Sequence[Result] = ()) -> None:
        """What is fed from here on goes on from this round: with these results, or, after a pause, in the same turn."""
        self.paused = False
        self.resumptions += 1
        self._spent = added(self._spent, self._fold.usage)
        self._tell(results)
        self._offset = self._next
        if results:
            self.done.append(Round(self.parts, tuple(results)))
            self._fold, self.taken, self._own = Fold(), [], False
        self._fold.usage = None

    def _tell(self, results: Sequence[Result]) -> None:
        """Calls that the client wants to see go into the thinking: it is shown everywhere, and comes back nowhere.
        Those that stand in for a tool of the provider's are told as that tool."""
        lines: list[str] = []
        for one, result in zip(self.taken, results, strict=False):
            call = self.named(one.call)
            if call.name in self._standing:
                for part in shown(call, result, self._standing[call.name]):
                    self._tell_whole(part)
            elif call.name in self._shown:
                lines.append(told(call, result))
        if lines:
            self._tell_whole(Reasoning(), "\n".join(lines))

    def _tell_whole(self, part: Part, text: str = "") -> None:
        index = self._next
        self._next += 1
        said = [TextDelta(index, text)] if text else []
        thinks = isinstance(part, Reasoning) and self._sealed
        mark = [SealDelta(index, self._mark)] if thinks and self._mark is not None else []
        self._told += [PartStart(index, part), *said, *mark, PartEnd(index)]

    @property
    def hidden(self) -> list[Call]:
        """All calls that did not reach the client."""
        before = [{result.id for result in one.results} for one in self.done]
        calls = [part for one in self.done for part in one.parts if isinstance(part, Call)]
        return [call for call in calls if any(call.id in ids for ids in before)] + [one.call for one in self.taken]

    def named(self, call: Call) -> Call:
        """A call as whoever runs it knows it."""
        return call if self._takes is None else self._takes.named(call)

    def to_run(self) -> list[Call]:
        """The calls of this round that somebody must run."""
        return [self.named(one.call) for one in self.taken if not one.why]

    def answered(self, results: Sequence[Result], late: bool = False) -> tuple[Result, ...]:
        """One result for each call of this round, as the provider wants them: those of `to_run` in its order, and why
        the others were refused."""
        ran = iter(results)
        out: list[Result] = []
        for one in self.taken:
            call = one.call
            if one.why or late:
                out.append(refused(one, one.why or LAST_WORDS))
            else:
                found = next(ran)
                out.append(replace(found, id=call.id, name=_name(call), kind=call.kind, namespace=call.namespace))
        return tuple(out)

    def turns(self) -> tuple[Turn, ...]:
        """What was said since the request, as the next one tells it: results each in a turn of their own."""
        out: list[Turn] = []
        for one in self.done:
            out.append(Turn("assistant", tuple(map(_retold, one.parts))))
            out += [Turn("tool", (result,)) for result in one.results]
        if self.parts:
            out.append(Turn("assistant", self.parts))
        return tuple(out)


def _retold(part: Part) -> Part:
    """A part as it will be told again when the client goes on from this answer: then nobody has its wire any more, and
    the same words must give the same bytes."""
    if isinstance(part, Text):
        return replace(part, citations=(), origin=None)
    if isinstance(part, (Call, Reasoning)) and part.origin is not None:
        return replace(part, origin=replace(part.origin, wire=None, intact=False))
    return part


def told(call: Call, result: Result) -> str:
    """A call and what came of it, in a line."""
    size = sum(len(part.text) for part in result.content if isinstance(part, Text))
    media = sum(not isinstance(part, Text) for part in result.content)
    came = "failed" if result.error else f"{size:,} characters" + (f" and {media} media" if media else "")
    arguments = call.arguments if len(call.arguments) <= SHOWN else f"{call.arguments[:SHOWN]}…"
    return f"{call.name}({arguments}): {came}"


def refused(taken: Taken, why: str) -> Result:
    """What the model is told of a call that was not run."""
    call = taken.call
    return Result(call.id, (Text(why),), True, _name(call), call.kind, call.namespace)


def _name(call: Call) -> str:
    """A result is known by its id; only one that has none needs the tool's name."""
    return "" if call.id else call.name
