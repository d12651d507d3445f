"""Writes that are sent together at the end of an iteration of the event loop, with one callback for all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

Write = Callable[[bytes], None]


class WriteQueue:
    """The writes of all connections of a loop, in their order."""

    __slots__ = ("flush_soon", "pending")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.pending: list[tuple[Write, bytes]] = []
        """Code that appends the first entry itself must call `flush_soon`."""
        self.flush_soon = partial(loop.call_soon, self.flush)

    def add(self, write: Write, data: bytes) -> None:
        if not self.pending:
            self.flush_soon()
        self.pending.append((write, data))

    def discard(self, write: Write) -> None:
        self.pending = [entry for entry in self.pending if entry[0] != write]

    def flush(self) -> None:
        remaining, self.pending = iter(self.pending), []
        try:
            for write, data in remaining:
                write(data)
        except BaseException:
            # The loop reports it. The writes of other connections must not be lost.
            added, self.pending = self.pending, []
            for write, data in (*remaining, *added):
                self.add(write, data)
            raise
