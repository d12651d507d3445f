"""What goes out at the end of the loop's round: one callback of the loop for all of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

Write = Callable[[bytes], None]


class WriteQueue:
    """Writes that wait for the end of the round, in their order. One for all connections of a loop."""

    __slots__ = ("_loop", "flush_callback", "pending")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.pending: list[tuple[Write, bytes]] = []
        """Whoever adds the first one has `later` called soon."""
        self.flush_callback = self.flush  # a method that is asked for by its name is made anew each time

    def add(self, write: Write, data: bytes) -> None:
        if not self.pending:
            self._loop.call_soon(self.flush_callback)
        self.pending.append((write, data))

    def discard(self, write: Write) -> None:
        """Nobody is there any more for what waits for this one."""
        self.pending = [said for said in self.pending if said[0] != write]

    def flush(self) -> None:
        left, self.pending = iter(self.pending), []
        try:
            for write, data in left:
                write(data)
        except BaseException:
            # The loop tells of it; what others have to say must not be lost with it.
            later, self.pending = self.pending, []
            for write, data in (*left, *later):
                self.add(write, data)
            raise
