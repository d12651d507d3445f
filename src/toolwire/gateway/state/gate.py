"""Holds the end of a stream back until what must be kept of it is kept."""

from __future__ import annotations

from toolwire.gateway.call import Keeper, Sealing, Streaming


class Gate:
    """Between a stream and the client: what it lets through goes out at once, and nothing while something is `due`."""

    def __init__(self, stream: Streaming, keeper: Keeper | None, sealing: Sealing | None) -> None:
        self._stream = stream
        self._keeper = keeper
        self._sealing = sealing
        self._tap = keeper.tap() if keeper is not None else None
        self._ends = 0
        self._held: list[bytes] = []
        self.due = False

    def through(self, data: bytes) -> bytes:
        if self._tap is not None:
            data = self._tap.feed(data)
            self.due = self._tap.response is not None
            return data
        ends = len(self._stream.finishes)
        if self._sealing is not None and ends > self._ends:
            self._ends = ends
            self.due = self.due or bool(self._stream.kept)
        if self.due:
            self._held.append(data)
            return b""
        return data

    def ended(self) -> bytes:
        """The stream has ended: what its tap still holds without need."""
        if self._tap is None:
            return b""
        data = self._tap.close()
        self.due = self._tap.response is not None
        return data

    async def opened(self) -> bytes:
        """Keep what is due; gives what was held back."""
        self.due = False
        if self._sealing is not None:
            await self._sealing.keep(self._stream.kept)
        if self._tap is None or self._tap.response is None or self._keeper is None:
            held, self._held = self._held, []
            return b"".join(held)
        missed = await self._keeper.keep(self._tap.response)
        out = self._tap.release(missed or {})
        self._tap, self._keeper = None, None
        return out
