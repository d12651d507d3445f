"""A stream that passes untouched: its bytes go on in whole frames while a reader looks on."""

from __future__ import annotations

from toolwire.events import Carried, ChoiceEnd, ResponseEnd, ResponseFailed, ResponseStart, UsageUpdate
from toolwire.ir import NOTHING, Failure, Result, Usage
from toolwire.loss import Ledger
from toolwire.room import Context, Room
from toolwire.rounds import Rounds

_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")


class Passing:
    """Looks like a `StreamTranslation` from outside. Half a frame is held back: if the rest of it never comes, the
    client is told of the failure in a frame that it can read."""

    paused = False
    ledger = None
    rounds: Rounds | None = None
    kept = NOTHING
    """Servers whose seals are kept have a quirk for it, and what has quirks does not pass."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._reader = room.stream_reader()
        self._held = b""
        self._start: ResponseStart | None = None
        self.usage: Usage | None = None
        self.finishes: tuple[str, ...] = ()
        self.failure: Failure | None = None
        self.begun = False
        self.ended = False

    def feed(self, data: bytes) -> bytes:
        for event in self._reader.feed(data):
            self._look(event)
        if self._held:
            data = self._held + data
        if data.endswith(b"\n\n"):
            self._held = b""
            return data
        end = max(data.rfind(mark) + len(mark) if mark in data else 0 for mark in _ENDS)
        self._held = data[end:]
        return data[:end]

    def _look(self, event: object) -> None:
        kind = type(event)
        if kind is ResponseStart:
            self._start = event  # type: ignore[assignment]
            self.usage = event.usage  # type: ignore[attr-defined]
        elif kind is UsageUpdate:
            self.usage = event.usage  # type: ignore[attr-defined]
        elif kind is ResponseFailed:
            self.failure = event.failure  # type: ignore[attr-defined]
        elif kind is not Carried:
            self.begun = True
            if kind is ChoiceEnd:
                self.finishes += (event.finish.kind,)  # type: ignore[attr-defined]
            self.ended = self.ended or kind is ResponseEnd

    def settle(self, results: tuple[Result, ...]) -> None:
        """Nothing passes by whose calls are not the client's."""

    def close(self) -> bytes:
        told = self.failure is not None
        for event in () if told else self._reader.close():
            self._look(event)
        failure = self.failure
        if told or failure is None:
            held, self._held = self._held, b""
            return held
        self.failure = None
        return self.fail(failure)

    def fail(self, failure: Failure) -> bytes:
        """The stream broke off. What was held back is no whole frame and is not sent."""
        if self.failure is not None or self.ended:
            return b""
        self.failure = failure
        writer = self._room.stream_writer(Ledger(self._room.name, self._room.name), Context())
        if self._start is not None:
            writer.write(self._start)
        return writer.write(ResponseFailed(failure)) + writer.close()
