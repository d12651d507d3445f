"""The grammar of a stream, for every protocol: start → parts, each start → delta* → end → finish → end | failed.

Parts are told apart by `index`, unique over the whole answer; several may be open at once, and there may be several
choices. The rules are the tables `LOOKS` and `DELTAS`; `Checker` holds a stream to them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from toolwire.ir import (
    Call,
    Citation,
    Failure,
    Finish,
    HostedCall,
    HostedResult,
    Media,
    Opaque,
    Origin,
    Part,
    Reasoning,
    Refusal,
    Seal,
    Stray,
    Text,
    Usage,
)
from toolwire.wire import Json


class Frame(Struct, frozen=True, gc=False):
    """The frame that an event was read from: its writer gives it back whole. Several events may share one frame."""

    protocol: str
    event: str | None
    json: Json
    """None for a sentinel that is no JSON."""
    silent: bool = False
    """The end of input itself: nothing stood on the wire, so nothing is written back."""


class ResponseStart(Struct, frozen=True, gc=False):
    id: str = ""
    model: str = ""
    created: int | None = None
    usage: Usage | None = None
    """What the start already tells, such as the tokens of the prompt."""
    origin: Origin | None = None
    frame: Frame | None = None


class PartStart(Struct, frozen=True, gc=False):
    """A part begins; `part` holds what is known at once (a call's id and name), its text grows by deltas."""

    index: int
    part: Part
    choice: int = 0
    frame: Frame | None = None


class TextDelta(Struct, frozen=True, gc=False):
    """More text of a Text, Refusal or Reasoning part."""

    index: int
    text: str
    frame: Frame | None = None


class ArgumentsDelta(Struct, frozen=True, gc=False):
    """More of a call's argument text (or of a custom call's raw input)."""

    index: int
    text: str
    frame: Frame | None = None


class SealDelta(Struct, frozen=True, gc=False):
    """The seal of an open part, whole."""

    index: int
    seal: Seal
    frame: Frame | None = None


class CitationDelta(Struct, frozen=True, gc=False):
    index: int
    citation: Citation
    frame: Frame | None = None


class PartEnd(Struct, frozen=True, gc=False):
    """A part is complete, or was cut (`incomplete`)."""

    index: int
    incomplete: bool = False
    frame: Frame | None = None


class UsageUpdate(Struct, frozen=True, gc=False):
    """The counts so far: a later one replaces an earlier one."""

    usage: Usage
    frame: Frame | None = None


class ChoiceEnd(Struct, frozen=True, gc=False):
    finish: Finish
    choice: int = 0
    frame: Frame | None = None


class ResponseEnd(Struct, frozen=True, gc=False):
    """`strays` are unknown keys met on the way."""

    strays: tuple[Stray, ...] = ()
    frame: Frame | None = None


class ResponseFailed(Struct, frozen=True, gc=False):
    failure: Failure
    frame: Frame | None = None


class Carried(Struct, frozen=True, gc=False):
    """An event that only its own protocol knows; `quiet` ones (a ping) say nothing that could be lost."""

    kind: str
    origin: Origin
    quiet: bool = False
    frame: Frame | None = None


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
    | Carried
)

State: TypeAlias = Literal["new", "open", "done"]

DELTAS: Mapping[type, frozenset[type]] = {
    TextDelta: frozenset({Text, Refusal, Reasoning, HostedResult}),
    ArgumentsDelta: frozenset({Call, HostedCall}),
    SealDelta: frozenset({Text, Reasoning, Call, Media}),
    CitationDelta: frozenset({Text, HostedResult, Opaque}),
}
"""Which deltas may follow which part."""


MAX_CHOICES = 128
"""No wire gives more answers to one request; a larger number would make a writer open all those before it."""


class Checker(Struct, eq=False):
    """Holds one stream to the grammar. `check` gives the first fault as a Failure, and None for what is lawful."""

    state: State = "new"
    called: bool = False
    """Has a whole call come?"""
    _open: dict[int, type] = {}
    _closed: dict[int, type] = {}
    _ended: list[int] = []
    """Choices that are over."""

    def check(self, event: Event) -> Failure | None:
        look = LOOKS[self.state].get(type(event), _misplaced)
        return None if look is None else look(self, event)

    def _begin(self, event: ResponseStart) -> Failure | None:
        self.state = "open"
        return None

    def _fail(self, event: ResponseFailed) -> Failure | None:
        self.state = "done"
        return None

    def _delta(self, event: TextDelta | ArgumentsDelta | SealDelta | CitationDelta) -> Failure | None:
        kind = type(event)
        part = self._open.get(event.index)
        if part in DELTAS[kind]:
            return None
        if part is None:
            return _fault(f"{kind.__name__} for part {event.index}, which is not open")
        return _fault(f"{kind.__name__} in a part of type {part.__name__}")

    def _start(self, event: PartStart) -> Failure | None:
        index, choice = event.index, event.choice
        if index in self._open or index in self._closed:
            return _fault(f"part {index} starts twice")
        if not 0 <= choice < MAX_CHOICES:
            return _fault(f"there is no choice {choice}")
        if choice in self._ended:
            return _fault(f"part {index} starts after the end of choice {choice}")
        self._open[index] = type(event.part)
        return None

    def _end(self, event: PartEnd) -> Failure | None:
        index = event.index
        part = self._open.pop(index, None)
        if part is None:
            return _fault(f"part {index} ends without being open")
        self._closed[index] = part
        if part is Call and not event.incomplete:
            self.called = True
        return None

    def _choice(self, event: ChoiceEnd) -> Failure | None:
        choice = event.choice
        if not 0 <= choice < MAX_CHOICES:
            return _fault(f"there is no choice {choice}")
        if choice not in self._ended:
            self._ended.append(choice)
        return None

    def _finish(self, event: ResponseEnd) -> Failure | None:
        self.state = "done"
        if self._open:
            return _fault(f"the answer ends while part {min(self._open)} is open")
        if not self._ended:
            return _fault("the answer ends without a reason")
        return None


def _misplaced(checker: Checker, event: Event) -> Failure | None:
    return _fault(f"{type(event).__name__} cannot stand here: the stream is {checker.state}")


LOOKS: Mapping[State, Mapping[type, Callable[[Checker, Any], Failure | None] | None]] = {
    "new": {ResponseStart: Checker._begin, ResponseFailed: Checker._fail, Carried: None},
    "open": {
        PartStart: Checker._start,
        TextDelta: Checker._delta,
        ArgumentsDelta: Checker._delta,
        SealDelta: Checker._delta,
        CitationDelta: Checker._delta,
        PartEnd: Checker._end,
        UsageUpdate: None,
        ChoiceEnd: Checker._choice,
        Carried: None,
        ResponseEnd: Checker._finish,
        ResponseFailed: Checker._fail,
    },
    "done": {Carried: None},
}
"""What may stand where, and what is looked at in it."""


def _fault(message: str) -> Failure:
    return Failure("upstream", f"the provider's stream breaks its grammar: {message}", 502, "invalid_stream")
