"""The grammar of a stream, for every protocol: start → parts, each start → delta* → end → finish → end | failed.

Parts are told apart by `index`, unique over the whole answer; several may be open at once, and there may be several
choices. The rules are the tables `LOOKS` and `DELTAS`; `Checker` holds a stream to them.
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
    frame: SourceFrame | None = None


class PartStart(Struct, frozen=True, gc=False):
    """A part begins; `part` holds what is known at once (a call's id and name), its text grows by deltas."""

    index: int
    part: Part
    choice: int = 0
    frame: SourceFrame | None = None


class TextDelta(Struct, frozen=True, gc=False):
    """More text of a Text, Refusal or Reasoning part."""

    index: int
    text: str
    frame: SourceFrame | None = None


class ArgumentsDelta(Struct, frozen=True, gc=False):
    """More of a call's argument text (or of a custom call's raw input)."""

    index: int
    text: str
    frame: SourceFrame | None = None


class SealDelta(Struct, frozen=True, gc=False):
    """The seal of an open part, whole."""

    index: int
    seal: Seal
    frame: SourceFrame | None = None


class CitationDelta(Struct, frozen=True, gc=False):
    index: int
    citation: Citation
    frame: SourceFrame | None = None


class PartEnd(Struct, frozen=True, gc=False):
    """A part is complete, or was cut (`incomplete`)."""

    index: int
    incomplete: bool = False
    frame: SourceFrame | None = None


class UsageUpdate(Struct, frozen=True, gc=False):
    """The counts so far: a later one replaces an earlier one."""

    usage: Usage
    frame: SourceFrame | None = None


class ChoiceEnd(Struct, frozen=True, gc=False):
    finish: Finish
    choice: int = 0
    frame: SourceFrame | None = None


class ResponseEnd(Struct, frozen=True, gc=False):
    """`strays` are unknown keys met on the way."""

    unknown_fields: tuple[UnknownField, ...] = ()
    frame: SourceFrame | None = None


class ResponseFailed(Struct, frozen=True, gc=False):
    failure: Failure
    frame: SourceFrame | None = None


class OpaqueEvent(Struct, frozen=True, gc=False):
    """An event that only its own protocol knows; `quiet` ones (a ping) say nothing that could be lost."""

    kind: str
    origin: Origin
    is_ignorable: bool = False
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
"""Which deltas may follow which part."""


MAX_CHOICES = 128
"""No wire gives more answers to one request; a larger number would make a writer open all those before it."""


class StreamChecker(Struct, eq=False):
    """Holds one stream to the grammar. `check` gives the first fault as a Failure, and None for what is lawful."""

    state: StreamState = "new"
    has_complete_call: bool = False
    """Has a whole call come?"""
    _open_parts: dict[int, type] = {}
    _closed_parts: dict[int, type] = {}
    _ended_choices: list[int] = []
    """Choices that are over."""

    def check_event(self, event: Event) -> Failure | None:
        look = CHECKS_BY_STATE[self.state].get(type(event), _misplaced_event_failure)
        return None if look is None else look(self, event)

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
        self._closed_parts[index] = part
        if part is Call and not event.incomplete:
            self.has_complete_call = True
        return None

    def _check_choice_end(self, event: ChoiceEnd) -> Failure | None:
        choice = event.choice
        if not 0 <= choice < MAX_CHOICES:
            return _grammar_failure(f"there is no choice {choice}")
        if choice not in self._ended_choices:
            self._ended_choices.append(choice)
        return None

    def _check_response_end(self, event: ResponseEnd) -> Failure | None:
        self.state = "done"
        if self._open_parts:
            return _grammar_failure(f"the answer ends while part {min(self._open_parts)} is open")
        if not self._ended_choices:
            return _grammar_failure("the answer ends without a reason")
        return None


def _misplaced_event_failure(checker: StreamChecker, event: Event) -> Failure | None:
    return _grammar_failure(f"{type(event).__name__} cannot stand here: the stream is {checker.state}")


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
"""What may stand where, and what is looked at in it."""


def _grammar_failure(message: str) -> Failure:
    return Failure("upstream", f"the provider's stream breaks its grammar: {message}", 502, "invalid_stream")
