"""What goes out at the end of the loop's round: one callback of the loop for all of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

Write = Callable[[bytes], None]


class Outbox:
    """Writes that wait for the end of the round, in their order. One for all connections of a loop."""

    __slots__ = ("_loop", "due", "later")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.due: list[tuple[Write, bytes]] = []
        """Whoever adds the first one has `later` called soon."""
        self.later = self.flush  # a method that is asked for by its name is made anew each time

    def put(self, write: Write, data: bytes) -> None:
        if not self.due:
            self._loop.call_soon(self.later)
        self.due.append((write, data))

    def drop(self, write: Write) -> None:
        """Nobody is there any more for what waits for this one."""
        self.due = [said for said in self.due if said[0] != write]

    def flush(self) -> None:
        left, self.due = iter(self.due), []
        try:
            for write, data in left:
                write(data)
        except BaseException:
            # The loop tells of it; what others have to say must not be lost with it.
            later, self.due = self.due, []
            for write, data in (*left, *later):
                self.put(write, data)
            raise
