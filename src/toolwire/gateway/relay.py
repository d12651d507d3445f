"""From a provider's stream to the client's connection: bytes as they come, signs of life in silences, a true end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from toolwire.exchange import StreamTranslation
from toolwire.gateway import refusals
from toolwire.gateway.asking import Asking, scrubbed
from toolwire.gateway.call import Call, Flow, Streaming
from toolwire.gateway.incoming import Incoming
from toolwire.gateway.rounding import results_of
from toolwire.gateway.state.engine import Outflow
from toolwire.gateway.state.gate import Gate
from toolwire.gateway.upstream.faults import Fault
from toolwire.ir import Failure
from toolwire.room import Framing

LOOKS = 8
"""In the time after which a silence needs a sign of life: it may last longer by one such part of it."""


class Outlet:
    """The client's side of a stream: framed as it wants it, and kept alive in silences."""

    def __init__(self, incoming: Incoming, framing: Framing | None, heartbeat: bytes, every: float) -> None:
        self._incoming = incoming
        self._framing = framing
        self.put = incoming.put if framing is None else lambda data: incoming.put(framing.feed(data))
        """More of the stream; False when nothing more should come before `drained`."""
        self._heartbeat = heartbeat if every else b""
        self._every = every / LOOKS
        self._loop = incoming.loop
        self._sent = incoming.sent
        self._silent = 0
        self._timer: asyncio.TimerHandle | None = None
        self._beat: asyncio.Task[None] | None = None
        self._busy = False

    def begin(self) -> None:
        """From now on silences count, also one before the first word."""
        if self._timer is None and self._heartbeat:
            self._timer = self._loop.call_later(self._every, self._look)

    async def drained(self) -> None:
        self._busy = True
        await self._incoming.drained()
        self._busy = False

    async def end(self) -> None:
        self.close()
        await self._incoming.drained()
        await self._incoming.write(b"" if self._framing is None else self._framing.close(), more=False)

    def _look(self) -> None:
        """One timer for all silences: it looks whether anything went out, so that writing need not touch it."""
        incoming = self._incoming
        self._silent = self._silent + 1 if incoming.sent == self._sent else 0
        if self._silent >= LOOKS and not self._busy:
            self._silent = 0
            incoming.put(self._heartbeat)
            self._beat = self._loop.create_task(incoming.drained())
        self._sent = incoming.sent
        self._timer = self._loop.call_later(self._every, self._look)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._beat is not None:
            self._beat.cancel()


async def relay(call: Call, flow: Flow, asking: Asking, outlet: Outflow) -> None:
    """The rest of a stream that has begun. However it ends, the client sees an end of its own protocol."""
    gate = gated(call, flow)
    put = outlet.put if gate is None else _through(gate, flow.stream, outlet)
    try:
        put(b"".join(flow.pending))
        while True:
            if gate is not None and gate.due:
                outlet.put(await gate.opened())
            await outlet.drained()
            if flow.source_ended:
                if not flow.stream.paused:
                    break
                failure = await _resumed(call, flow, asking)
                if failure is not None:
                    put(flow.stream.fail(failure))
                    break
            got = await _poured(flow, put)
            if isinstance(got, Fault):
                put(flow.stream.fail(refusals.failure_of(flow.prepared.line, got)))
                break
            if got is not None:
                flow.source_ended = True
                put(scrubbed(flow.stream.close(), flow.prepared.line))
        if gate is not None:
            outlet.put(gate.ended())
            outlet.put(await gate.opened() if gate.due else b"")
        outlet.put(_once_more(call, flow))
        await outlet.end()
    finally:
        outlet.close()
        flow.source.abort()


def _once_more(call: Call, flow: Flow) -> bytes:
    """A failure, where one frame of it is not enough."""
    failure = flow.stream.failure
    if failure is None or flow.stream.called or not call.client.http.failure_twice:
        return b""
    return scrubbed(refusals.reply(call.client, failure).body, flow.prepared.line)


def gated(call: Call, flow: Flow) -> Gate | None:
    """What holds the end of the stream back, where something of it must be kept."""
    stream = flow.stream
    sealed = call.sealing is not None and isinstance(stream, StreamTranslation) and flow.prepared.exchange.keeps
    return Gate(call, stream) if sealed or call.keeper is not None or call.tooling is not None else None


def _through(gate: Gate, stream: Streaming, outlet: Outflow) -> Callable[[bytes], bool]:
    def put(data: bytes) -> bool:
        if not gate.taps and not stream.finishes:
            return outlet.put(data)
        more = outlet.put(gate.through(data))
        return more and not gate.due

    return put


async def _poured(flow: Flow, put: Callable[[bytes], bool]) -> bytes | Fault | None:
    """What comes, translated and handed on where it arrives: no task is woken for a piece of a stream."""
    stream, line = flow.stream, flow.prepared.line
    feed, key = stream.feed, line.provider.api_key.reveal().encode()

    def hand_on(data: bytes) -> bool:
        out = feed(data)
        if stream.again is None and key and out.find(key) >= 0 and stream.failure is not None:
            out = scrubbed(out, line)
        return put(out)

    return await flow.source.pour(stream.knowing(put, hand_on))


async def _resumed(call: Call, flow: Flow, asking: Asking) -> Failure | None:
    """Go on with an answer that takes another round."""
    stream, line = flow.stream, flow.prepared.line
    if not isinstance(stream, StreamTranslation) or stream.rounds is None:
        return refusals.failure_of(line, Fault("protocol", "the answer paused and cannot go on"))
    results = await results_of(call, stream.rounds)
    if isinstance(results, Fault):
        return refusals.failure_of(line, results)
    got = await asking.again(call, flow.prepared, stream.go_on(results))
    if isinstance(got, Failure):
        return got
    flow.source, flow.source_ended = got, False
    return None
