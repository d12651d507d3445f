"""A stream that passes untouched: its bytes go on in whole frames, and are looked at when somebody asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from toolwire.events import (
    Carried,
    ChoiceEnd,
    Event,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
    UsageUpdate,
)
from toolwire.gateway.upstream.waiting import Sink
from toolwire.ir import NOTHING, Call, Failure, Result, Usage
from toolwire.loss import Ledger
from toolwire.room import Context, Room
from toolwire.rounds import Rounds
from toolwire.sse import Again

_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")
_MOST = 8 * 1024
"""Bytes that wait until they are looked at together: many frames in a row cost less than one at a time."""
_HOPES = 4
"""Pieces in a row that are looked at as they come, because the next may be like them and need no look."""


class _WholeCalls:
    """Looks whether a whole call has gone by."""

    def __init__(self) -> None:
        self._open: set[int] = set()
        self.any = False

    def see(self, event: PartStart | PartEnd) -> None:
        if isinstance(event, PartEnd):
            self.any = self.any or (event.index in self._open and not event.incomplete)
        elif isinstance(event.part, Call):
            self._open.add(event.index)


class Passing:
    """Looks like a `StreamTranslation` from outside. Half a frame is held back: if the rest of it never comes, the
    client is told of the failure in a frame that it can read. Only its end, and a failure, are worth a look, so pieces
    wait for it until there are some, or until somebody asks."""

    paused = False
    ledger = None
    rounds: Rounds | None = None
    kept = NOTHING
    """Servers whose seals are kept have a quirk for it, and what has quirks does not pass."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._reader = room.stream_reader()
        self.again: Again | None = None
        """What knows a piece that needs no look, while all before it was looked at."""
        self._hopes = _HOPES if hasattr(self._reader, "again") else 0
        self._held = b""
        self._unseen = bytearray()
        self._start: ResponseStart | None = None
        self._last: Event | None = None
        self._usage: Usage | None = None
        self._finishes: tuple[str, ...] = ()
        self._failure: Failure | None = None
        self._begun = False
        self._ended = False
        self._calls = _WholeCalls()

    @property
    def usage(self) -> Usage | None:
        if self._unseen:
            self._look()
        return self._usage

    @property
    def finishes(self) -> tuple[str, ...]:
        if self._unseen:
            self._look()
        return self._finishes

    @property
    def failure(self) -> Failure | None:
        if self._unseen:
            self._look()
        return self._failure

    @property
    def begun(self) -> bool:
        if self._unseen:
            self._look()
        return self._begun

    @property
    def ended(self) -> bool:
        if self._unseen:
            self._look()
        return self._ended

    @property
    def called(self) -> bool:
        if self._unseen:
            self._look()
        return self._calls.any

    def knowing(self, put: Sink, other: Sink) -> Sink:
        """Puts what is known by its bytes, and leaves the rest to the other, who feeds it."""

        def hand_on(data: bytes) -> bool:
            again = self.again
            if again is None or again(data) is None:
                return other(data)
            self._hopes = _HOPES
            return put(data)

        return hand_on

    def feed(self, data: bytes) -> bytes:
        unseen = self._unseen
        unseen += data
        self.again = None
        if self._hopes or len(unseen) > _MOST:
            self._hopes = max(0, self._hopes - 1)
            self._look()
        if not self._held and data.endswith(b"\n\n"):
            return data
        return self._whole(self._held + data)

    def _whole(self, data: bytes) -> bytes:
        """Up to the last end of a frame; the rest is held back."""
        end = max(data.rfind(mark) + len(mark) if data.find(mark) >= 0 else 0 for mark in _ENDS)
        self._held = data[end:]
        return data[:end]

    def _look(self) -> None:
        unseen = bytes(self._unseen)
        self._unseen.clear()
        events = self._reader.feed(unseen)
        self.again = getattr(self._reader, "again", None)
        if not events:
            return
        self._last = events[-1]
        self._see(events)
        if self._failure is not None:
            self.again = None  # what follows may repeat a key, and is looked into

    def _see(self, events: list[Event]) -> None:
        for event in events:
            see = _SEES.get(type(event))
            if see is None:
                self._begun = True
            else:
                see(self, event)

    def _started(self, event: ResponseStart) -> None:
        self._start, self._usage = event, event.usage

    def _counted(self, event: UsageUpdate) -> None:
        self._usage = event.usage

    def _parted(self, event: PartStart | PartEnd) -> None:
        self._begun = True
        self._calls.see(event)

    def _finished(self, event: ChoiceEnd) -> None:
        self._begun = True
        self._finishes += (event.finish.kind,)

    def _over(self, event: ResponseEnd) -> None:
        self._begun = self._ended = True

    def _failed(self, event: ResponseFailed) -> None:
        self._failure = event.failure

    def _carried(self, event: Carried) -> None:
        """What only one protocol knows is no part of the answer."""

    def settle(self, results: tuple[Result, ...]) -> None:
        """Nothing passes by whose calls are not the client's."""

    def close(self) -> bytes:
        told = self.failure is not None
        if not told:
            self._see(self._reader.close())
        failure = self._failure
        if told or failure is None:
            held, self._held = self._held, b""
            return held
        self._failure = None
        return self.fail(failure)

    def fail(self, failure: Failure) -> bytes:
        """The stream broke off. What was held back is no whole frame and is not sent."""
        if self.failure is not None or self.ended:
            return b""
        self._failure = failure
        before = None if self._last is self._start else self._last
        writer = self._room.stream_writer(Ledger(self._room.name, self._room.name), Context())
        # The writer goes on from where the provider's frames, which it did not write, have come to.
        for event in (self._start, before):
            if event is not None:
                writer.write(event)
        return writer.write(ResponseFailed(failure)) + writer.close()


_SEES: Mapping[type, Callable[[Passing, Any], None]] = {
    ResponseStart: Passing._started,
    UsageUpdate: Passing._counted,
    PartStart: Passing._parted,
    PartEnd: Passing._parted,
    ChoiceEnd: Passing._finished,
    ResponseEnd: Passing._over,
    ResponseFailed: Passing._failed,
    Carried: Passing._carried,
}
"""What is looked at; of all others it only matters that there are some."""
