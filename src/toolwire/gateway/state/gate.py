"""Holds the end of a stream back until what must be kept of it is kept, and what must be run is run."""

from __future__ import annotations

from toolwire.gateway.call import Call, Streaming
from toolwire.gateway.rounding import left_over


class Gate:
    """Between a stream and the client: what it lets through goes out at once, and nothing while something is `due`."""

    def __init__(self, call: Call, stream: Streaming) -> None:
        self._call = call
        self._stream = stream
        self._tap = call.keeper.tap() if call.keeper is not None else None
        self.taps = self._tap is not None
        """Must it see all that goes by? Else only what comes once an answer has ended."""
        self._watched = call.sealing is not None or call.tooling is not None
        """May there be something to do when an answer ends?"""
        self._ends = 0
        self._held: list[bytes] = []
        self.due = False

    def through(self, data: bytes) -> bytes:
        ends = len(self._stream.finishes) if self._watched else 0
        if not ends and self._tap is None:
            return data
        if ends > self._ends:
            self._ends = ends
            if self._unanswered or (self._call.sealing is not None and self._stream.kept):
                self.due = True
                self._held.append(data)
                return b""
        if self._held:
            self._held.append(data)
            return b""
        return self._tapped(data)

    def _tapped(self, data: bytes) -> bytes:
        if self._tap is None:
            return data
        data = self._tap.feed(data)
        self.due = self._tap.response is not None
        return data

    @property
    def _unanswered(self) -> bool:
        """Has the last round calls that somebody here must run before the client goes on?"""
        rounds = self._stream.rounds
        return rounds is not None and bool(rounds.taken) and not rounds.paused

    def ended(self) -> bytes:
        """The stream has ended: what its tap still holds without need."""
        if self._tap is None or self._held:
            return b""
        data = self._tap.close()
        self.due = self._tap.response is not None
        return data

    async def opened(self) -> bytes:
        """Do what is due; gives what was held back."""
        self.due = False
        out = b""
        if self._held:
            await self._settled()
            held, self._held = self._held, []
            out = self._tapped(b"".join(held))
        keeper = self._call.keeper
        if self._tap is not None and self._tap.response is not None and keeper is not None:
            missed = await keeper.keep(self._tap.response)
            out += self._tap.release(missed or {})
            self._tap, self.due = None, False
        return out

    async def _settled(self) -> None:
        rounds = self._stream.rounds
        if rounds is not None and self._unanswered:
            self._stream.settle(await left_over(self._call, rounds))
        if self._call.sealing is not None:
            await self._call.sealing.keep(self._stream.kept)
