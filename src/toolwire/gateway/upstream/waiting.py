"""Whoever waits for a provider: how far its answer is, what went wrong, and until when there is time.

Whoever waits sleeps on one future, which is woken when what it waits for is there or can no longer come. The deadline
is a number that one timer looks at, so an exchange sets no timer of its own.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from toolwire.gateway.settings.config import Deadlines
from toolwire.gateway.upstream.faults import Fault

IDLE, DONE, HEAD, BODY = range(4)
"""The phases of an exchange: none, nothing more to come, waiting for the head of the answer, for its body."""
BEGUN, WRITABLE = -1, -2
"""What may be waited for besides a number of bytes: the head alone, or, until it comes, that more can be written."""
NEVER = math.inf
LOOKS = 8
"""How often in the time that a stream may be silent somebody looks whether it was: it ends up to one part later."""
Sink = Callable[[bytes], bool]
"""Takes bytes; False when no more should come for now."""


class Waiting(asyncio.Protocol):
    """The part of a connection that somebody may wait for."""

    __slots__ = (
        "_cap",
        "_deadlines",
        "_due",
        "_loop",
        "_sink",
        "_spoke",
        "_timer",
        "_timer_at",
        "_transport",
        "_waiter",
        "fault",
        "heard_at",
        "keep",
        "lost",
        "peer",
        "phase",
        "pieces",
        "weight",
    )

    def __init__(self, peer: str, deadlines: Deadlines) -> None:
        self._loop = asyncio.get_running_loop()
        self._deadlines = deadlines
        self._transport: asyncio.Transport
        self._waiter: asyncio.Future[None] | None = None
        self._sink: Sink | None = None
        """There only while a body comes and nothing of it waits."""
        self._spoke = False
        """Did a piece of a stream come since the timer last looked? What the clock says is not asked for each."""
        self._cap = 0
        self._due = NEVER
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER
        self.peer = peer
        self.phase = IDLE
        self.fault: Fault | None = None
        self.heard_at = 0.0
        """When the last bytes came."""
        self.pieces: list[bytes] = []
        """What has come of the body and was not taken."""
        self.weight = 0
        """Of the pieces: no less than theirs, and weighed only where it matters."""
        self.keep = True
        self.lost = False

    def drop(self) -> None:
        """Close at once, so that the provider sees it."""
        self.fail(Fault("cut", f"the connection to {self.peer} was closed on this side"))

    def fail(self, fault: Fault) -> None:
        if self.fault is None and self.phase >= HEAD:
            self.fault = fault
        self._sink = None
        self.keep = False
        if not self.lost:
            self._transport.abort()
        self._wake()

    def _awaited(self, cap: int, seconds: float) -> asyncio.Future[None]:
        """For the head and more than `cap` bytes of the body, its end, or a fault; 0 seconds are no limit. Whoever
        stops waiting has to `give_up`."""
        self._cap, self._spoke = cap, False
        if seconds:
            now = self._loop.time()
            self._due = now + seconds
            look = seconds if self._sink is None else seconds / LOOKS
            if self._timer is None or self._timer_at > now + look:
                self._set_timer(now, look)
        self._waiter = waiter = self._loop.create_future()
        return waiter

    async def _wait(self, cap: int, seconds: float) -> None:
        try:
            await self._awaited(cap, seconds)
        except (asyncio.CancelledError, GeneratorExit):
            self.give_up()
            raise

    def give_up(self) -> None:
        """Whoever waited was cancelled."""
        self._waiter = self._sink = None
        self.drop()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        self._due = NEVER
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _set_timer(self, now: float, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = now + seconds
        self._timer = self._loop.call_later(seconds, self._ring)

    def _ring(self) -> None:
        """The timer: mostly the exchange that set it is long over, and it goes on for a later one or stops."""
        self._timer = None
        if self._due == NEVER:
            return
        now, patience = self._loop.time(), self._deadlines.between_bytes
        if self.phase == BODY:
            if self._spoke:
                self._spoke, self.heard_at = False, now
            self._due = max(self._due, self.heard_at + patience)
        left = self._due - now
        if left > 0:
            self._set_timer(now, left if self._sink is None else min(left, patience / LOOKS))
        elif self.phase == HEAD:
            seconds = f"{self._deadlines.first_byte:g}"
            self.fail(Fault("first-byte-timeout", f"{self.peer} did not begin to answer within {seconds} seconds"))
        else:
            seconds = f"{self._deadlines.between_bytes:g}"
            self.fail(
                Fault("idle-timeout", f"{self.peer} fell silent for {seconds} seconds in the middle of its answer")
            )

    def _is_enough(self) -> bool:
        """Is what somebody waits for there?"""
        return self.phase == BODY and self.holds_more(self._cap)

    def holds_more(self, limit: int) -> bool:
        """Than that many bytes of the body."""
        if self.weight > limit:
            self.weight = sum(map(len, self.pieces))
        return self.weight > limit
