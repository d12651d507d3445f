"""The work of one answer in the background: the same way as any other, only nobody waits at its end."""

from __future__ import annotations

import asyncio
import time

from toolwire.gateway.call import Call, Flow, Refusal
from toolwire.gateway.settings.routing import Target
from toolwire.gateway.state.engine import Engine
from toolwire.gateway.state.jobs import Job
from toolwire.gateway.state.keeper import Keeper
from toolwire.gateway.store.record import Down
from toolwire.ir import NOTHING, Failure
from toolwire.keeping import Tap
from toolwire.wire import Object

BETWEEN = 0.2
"""Seconds between two pieces that are kept: whoever looks from elsewhere sees the answer grow."""
SHARE = 10
"""Between two pieces passes so many times the time that keeping one takes: the whole question is written each time."""
TRIES = 20
"""How often, a second apart, the end of an answer is tried to be kept in a store that is down."""
BROKEN = Failure("server", "the gateway made a mistake; its log says where", 500, "server_error")


class Tray:
    """Where the stream of a job goes: kept piece by piece, handed on to those who follow it."""

    def __init__(self, job: Job, tap: Tap) -> None:
        self._job = job
        self._tap = tap
        self._last = time.monotonic()
        self._pause = BETWEEN

    def put(self, data: bytes) -> bool:
        self._job.add(self._tap.feed(data))
        return time.monotonic() - self._last < self._pause

    async def drained(self) -> None:
        began = time.monotonic()
        if began - self._last >= self._pause:
            if await self._job.keep() is False:
                raise asyncio.CancelledError  # by somebody at another gateway
            self._last = time.monotonic()
            self._pause = max(BETWEEN, SHARE * (self._last - began))

    async def end(self) -> None:
        """What the end tells is kept by whoever started this."""
        self._job.add(self._tap.close())

    def close(self) -> None:
        """Nothing to give back."""


async def worked(engine: Engine, call: Call, targets: tuple[Target, ...], keeper: Keeper, job: Job) -> None:
    """Ask, and keep what comes. A cancelled one just stops: whoever cancelled it has said so."""
    engine.detached(call)
    tap = keeper.tap()
    try:
        got = await engine.ask(call, targets)
        if isinstance(got, Flow):
            await job.running()
            await engine.relay(call, got, Tray(job, tap))
            if tap.response is not None:
                await _done(job, keeper, tap, tap.response)
                return
        failure = got.failure if isinstance(got, Refusal) else Failure("upstream", "the answer broke off", 502)
        await failed(job, keeper, failure)
    finally:
        engine.over(call)


async def _done(job: Job, keeper: Keeper, tap: Tap, response: Object) -> None:
    """What was done is not thrown away because the store is down for a moment: that is waited for."""
    for _ in range(TRIES):
        parts = await keeper.parts(response)
        if not isinstance(parts, Down) and not isinstance(await job.end(response, tap.release(NOTHING), *parts), Down):
            return
        await asyncio.sleep(1.0)
    job.give_up(tap.release(keeper.keeping.unkept))


async def failed(job: Job, keeper: Keeper, failure: Failure) -> None:
    response = keeper.keeping.ended(job.response, "failed", failure)
    last = keeper.keeping.last(response, job.next)
    for _ in range(TRIES):
        if not isinstance(await job.end(response, last), Down):
            return
        await asyncio.sleep(1.0)
    job.give_up(last)
