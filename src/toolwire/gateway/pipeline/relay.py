"""From a provider's stream to the client's connection: bytes as they come, signs of life in silences, a true end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from toolwire.core.codec import FramingConverter
from toolwire.core.ir import Failure
from toolwire.gateway.pipeline import error_replies
from toolwire.gateway.pipeline.attempt import AttemptRunner, redact_key, run_tool_round
from toolwire.gateway.pipeline.call import AnswerStream, GatewayCall, StartedStream
from toolwire.gateway.pipeline.end_gate import EndGate
from toolwire.gateway.server.client_request import ClientRequest
from toolwire.gateway.upstream.errors import TransportError
from toolwire.translation.streaming import StreamTranslation

HEARTBEAT_CHECKS = 8
"""In the time after which a silence needs a sign of life: it may last longer by one such part of it."""


class OutputStream(Protocol):
    """Where a stream is written to: the client, or the store for a background response."""

    def write_nowait(self, data: bytes) -> bool: ...

    async def drain(self) -> None: ...

    async def end(self) -> None: ...

    def close(self) -> None: ...


class ClientStream:
    """The client's side of a stream: framed as it wants it, and kept alive in silences."""

    def __init__(
        self, request: ClientRequest, framing: FramingConverter | None, heartbeat: bytes, seconds: float
    ) -> None:
        self._request = request
        self._framing = framing
        self.write_nowait = (
            request.write_nowait if framing is None else lambda data: request.write_nowait(framing.feed(data))
        )
        """More of the stream; False when nothing more should come before `drained`."""
        self._heartbeat = heartbeat if seconds else b""
        self._check_seconds = seconds / HEARTBEAT_CHECKS
        self._loop = request.loop
        self._last_bytes_sent = request.bytes_sent
        self._silent_checks = 0
        self._timer: asyncio.TimerHandle | None = None
        self._heartbeat_task: asyncio.Task[None] | None = None
        self._is_draining = False

    def start_heartbeat(self) -> None:
        """From now on silences count, also one before the first word."""
        if self._timer is None and self._heartbeat:
            self._timer = self._loop.call_later(self._check_seconds, self._check_silence)

    async def drain(self) -> None:
        self._is_draining = True
        await self._request.drain()
        self._is_draining = False

    async def end(self) -> None:
        self.close()
        await self._request.drain()
        await self._request.send_body(b"" if self._framing is None else self._framing.close(), more=False)

    def _check_silence(self) -> None:
        """One timer for all silences: it looks whether anything went out, so that writing need not touch it."""
        incoming = self._request
        self._silent_checks = self._silent_checks + 1 if incoming.bytes_sent == self._last_bytes_sent else 0
        if self._silent_checks >= HEARTBEAT_CHECKS and not self._is_draining:
            self._silent_checks = 0
            incoming.write_nowait(self._heartbeat)
            self._heartbeat_task = self._loop.create_task(incoming.drain())
        self._last_bytes_sent = incoming.bytes_sent
        self._timer = self._loop.call_later(self._check_seconds, self._check_silence)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._heartbeat_task is not None:
            self._heartbeat_task.cancel()


async def relay_stream(
    call: GatewayCall, started: StartedStream, attempt_runner: AttemptRunner, sink: OutputStream
) -> None:
    """The rest of a stream that has begun. However it ends, the client sees an end of its own protocol."""
    gate = make_end_gate(call, started)
    put = sink.write_nowait if gate is None else _write_through_gate(gate, started.stream, sink)
    try:
        put(b"".join(started.pending_output))
        while True:
            if gate is not None and gate.has_work_due:
                sink.write_nowait(await gate.finish_due_work())
            await sink.drain()
            if started.response_ended:
                if not started.stream.is_paused:
                    break
                failure = await _resume_answer(call, started, attempt_runner)
                if failure is not None:
                    put(started.stream.fail(failure))
                    break
            got = await _pipe_response(started, put)
            if isinstance(got, TransportError):
                put(started.stream.fail(error_replies.transport_failure(started.request.upstream, got)))
                break
            if got is not None:
                started.response_ended = True
                put(redact_key(started.stream.close(), started.request.upstream))
        if gate is not None:
            sink.write_nowait(gate.end_stream())
            sink.write_nowait(await gate.finish_due_work() if gate.has_work_due else b"")
        sink.write_nowait(_repeat_failure(call, started))
        await sink.end()
    finally:
        sink.close()
        started.response.abort()


def _repeat_failure(call: GatewayCall, started: StartedStream) -> bytes:
    """A failure, where one frame of it is not enough."""
    failure = started.stream.failure
    if failure is None or started.stream.has_complete_call or not call.client_codec.http.repeats_stream_failure:
        return b""
    return redact_key(error_replies.error_reply(call.client_codec, failure).body, started.request.upstream)


def make_end_gate(call: GatewayCall, started: StartedStream) -> EndGate | None:
    """What holds the end of the stream back, where something of it must be kept."""
    stream = started.stream
    sealed = (
        call.signature_store is not None
        and isinstance(stream, StreamTranslation)
        and started.request.exchange.uses_memory
    )
    return EndGate(call, stream) if sealed or call.recorder is not None or call.gateway_tools is not None else None


def _write_through_gate(gate: EndGate, stream: AnswerStream, sink: OutputStream) -> Callable[[bytes], bool]:
    def write(data: bytes) -> bool:
        if not gate.needs_all_data and not stream.finishes:
            return sink.write_nowait(data)
        more = sink.write_nowait(gate.pass_data(data))
        return more and not gate.has_work_due

    return write


async def _pipe_response(started: StartedStream, write: Callable[[bytes], bool]) -> bytes | TransportError | None:
    """Translate what comes and write it in the callback that received it: no task is woken for a piece of a stream."""
    stream, upstream = started.stream, started.request.upstream
    feed, key = stream.feed, upstream.provider.api_key.reveal().encode()

    def forward(data: bytes) -> bool:
        out = feed(data)
        if key and out.find(key) >= 0 and stream.failure is not None:
            out = redact_key(out, upstream)
        return write(out)

    return await started.response.pour_into(forward)


async def _resume_answer(call: GatewayCall, started: StartedStream, attempt_runner: AttemptRunner) -> Failure | None:
    """Go on with an answer that takes another round."""
    stream, line = started.stream, started.request.upstream
    if not isinstance(stream, StreamTranslation) or stream.rounds is None:
        return error_replies.transport_failure(line, TransportError("protocol", "the answer paused and cannot go on"))
    results = await run_tool_round(call, stream.rounds)
    if isinstance(results, TransportError):
        return error_replies.transport_failure(line, results)
    got = await attempt_runner.continue_answer(call, started.request, stream.next_request(results))
    if isinstance(got, Failure):
        return got
    started.response, started.response_ended = got, False
    return None
