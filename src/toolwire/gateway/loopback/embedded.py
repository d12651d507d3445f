"""The embedded model's answer, in the form in which providers' answers come."""

from __future__ import annotations

from collections import deque

from toolwire.gateway.loopback.model import Answered
from toolwire.gateway.upstream.faults import Fault
from toolwire.gateway.upstream.waiting import Sink


class Embedded:
    __slots__ = ("_pieces", "headers", "status")

    def __init__(self, made: Answered) -> None:
        self.status = made.status
        self.headers = {**made.headers, "content-type": made.content_type}
        self._pieces = deque(made.pieces)

    async def read(self, limit: int) -> bytes | Fault:
        return b"".join(self._pieces)

    async def comes(self, seconds: float) -> bool:
        return True

    async def chunk(self) -> bytes | Fault:
        return self._pieces.popleft() if self._pieces else b""

    async def pour(self, sink: Sink) -> bytes | Fault | None:
        while self._pieces:
            if not sink(self._pieces.popleft()):
                return None
        return b""

    def abort(self) -> None:
        self._pieces.clear()
