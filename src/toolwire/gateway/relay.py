"""From a provider's stream to the client's connection: bytes as they come, signs of life in silences, a true end."""

from __future__ import annotations

import asyncio

from toolwire.exchange import StreamTranslation
from toolwire.gateway import refusals
from toolwire.gateway.asking import MAX_PAUSES, Asking
from toolwire.gateway.call import Call, Flow
from toolwire.gateway.faults import Fault
from toolwire.gateway.incoming import Incoming
from toolwire.room import Framing


class Outlet:
    """The client's side of a stream: framed as it wants it, and kept alive in silences."""

    def __init__(self, incoming: Incoming, framing: Framing | None, heartbeat: bytes, every: float) -> None:
        self._incoming = incoming
        self._framing = framing
        self._heartbeat = heartbeat if every else b""
        self._every = every
        self._loop = asyncio.get_running_loop()
        self._last = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._beat: asyncio.Task[None] | None = None
        self._busy = False

    async def write(self, data: bytes, more: bool = True) -> None:
        if self._framing is not None:
            data = self._framing.feed(data) if more else self._framing.feed(data) + self._framing.close()
        if not data and more:
            return
        self._busy = True
        await self._incoming.write(data, more)
        self._busy = False
        self._last = self._loop.time()
        if self._timer is None and self._heartbeat and more:
            self._timer = self._loop.call_later(self._every, self._tick)

    def _tick(self) -> None:
        """One timer for all silences: it looks how long the last one is, so that writing need not touch it."""
        silent = self._loop.time() - self._last
        if silent >= self._every and not self._busy:
            self._beat = self._loop.create_task(self._alive())
            silent = 0.0
        self._timer = self._loop.call_later(self._every - min(silent, self._every), self._tick)

    async def _alive(self) -> None:
        self._last = self._loop.time()
        await self._incoming.write(self._heartbeat, more=True)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._beat is not None:
            self._beat.cancel()


async def relay(call: Call, flow: Flow, asking: Asking, outlet: Outlet) -> None:
    """The rest of a stream that has begun. However it ends, the client sees an end of its own protocol."""
    try:
        await outlet.write(b"".join(flow.pending))
        pauses = 0
        while True:
            if flow.source_ended:
                if not flow.stream.paused:
                    break
                pauses += 1
                if not await _resumed(call, flow, asking, outlet, pauses):
                    return
            data = await _next(flow)
            if isinstance(data, Fault):
                await outlet.write(flow.stream.fail(refusals.failure_of(flow.prepared.line, data)))
                break
            if data:
                await outlet.write(flow.stream.feed(data))
            else:
                flow.source_ended = True
                await outlet.write(flow.stream.close())
        await outlet.write(b"", more=False)
    finally:
        outlet.close()
        flow.source.abort()
        if flow.waiting is not None:
            flow.waiting.cancel()


async def _next(flow: Flow) -> bytes | Fault:
    if flow.waiting is None:
        return await flow.source.chunk()
    waiting = flow.waiting
    data = await waiting
    flow.waiting = None
    return data


async def _resumed(call: Call, flow: Flow, asking: Asking, outlet: Outlet, pauses: int) -> bool:
    """Go on with an answer that paused, which the client's protocol cannot say."""
    stream = flow.stream
    if not isinstance(stream, StreamTranslation):
        return False
    line = flow.prepared.line
    got: object = Fault("protocol", f"the answer paused more than {MAX_PAUSES} times")
    if pauses <= MAX_PAUSES:
        got = await asking.again(call, line, stream.continuation())
    if isinstance(got, Fault):
        await outlet.write(stream.fail(refusals.failure_of(line, got)), more=False)
        return False
    flow.source = got  # type: ignore[assignment]
    flow.source_ended = False
    return True
