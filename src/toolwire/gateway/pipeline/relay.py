"""The last step of the pipeline: send an answer to the client. Streams are sent as they come, with heartbeats in
silences, and always get a proper end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from functools import partial
from typing import Any

from msgspec.structs import replace

from toolwire.core.codec import FramingConverter
from toolwire.core.ir import EMPTY_MAPPING, Failure
from toolwire.gateway.exchange import error_replies
from toolwire.gateway.exchange.gateway_request import (
    AnswerStream,
    AttemptAnswer,
    AttemptFailed,
    GatewayRequest,
    StartedStream,
    StreamInterrupted,
    StreamReplay,
)
from toolwire.gateway.exchange.headers import COST_HEADER, attempts_header
from toolwire.gateway.exchange.hooks import StreamOutput
from toolwire.gateway.exchange.passthrough_stream import PassthroughStream
from toolwire.gateway.http.client_request import ClientRequest
from toolwire.gateway.http.connection import ChunkSink, TransportError
from toolwire.gateway.http.headers import request_id_headers
from toolwire.gateway.http.large_work import run_in_thread
from toolwire.gateway.http.messages import Reply
from toolwire.gateway.models.amounts import cost_header
from toolwire.gateway.pipeline.attempt import (
    LARGE_PIECE,
    ask_next_round,
    close_stream,
    end_stream_call,
    run_leftover_tool_calls,
)
from toolwire.gateway.telemetry.record import PassedAnswer
from toolwire.translation.streaming import StreamTranslation, keep_failure

USAGE_SECONDS = 1.0
"""How long a stream is read at most that a limit counts, for its usage, after its client has left."""
HEARTBEAT_CHECKS = 8
"""Checks in the time after which a silence needs a heartbeat. A silence may last longer by one such interval."""


async def relay_answer(
    request: ClientRequest, gateway_request: GatewayRequest, answer: AttemptAnswer | StreamReplay
) -> None:
    """Send the client its answer, whatever it came to."""
    if type(answer) is Reply:
        await send_reply(
            request,
            gateway_request,
            answer if gateway_request.recorder is None else await gateway_request.recorder.save_reply(answer),
        )
    elif isinstance(answer, StartedStream):
        await _send_stream(request, gateway_request, answer)
    elif isinstance(answer, StreamReplay):
        await _send_frames(request, gateway_request, answer.frames)
    else:
        gateway_request.record.failure, gateway_request.record.message = answer.failure.kind, answer.failure.message
        if (
            gateway_request.recorder is not None and answer.reply.status == 200
        ):  # a Responses object with the status `failed`
            answer = replace(answer, reply=await gateway_request.recorder.save_reply(answer.reply))
        await send_reply(
            request, gateway_request, error_replies.stream_failure_for_agent(gateway_request, answer).reply
        )


def send_reply(request: ClientRequest, gateway_request: GatewayRequest, reply: Reply) -> Coroutine[Any, Any, None]:
    record = gateway_request.record
    record.status, record.first_byte = reply.status, request.clock()
    if reply.status >= 400:
        if not record.message:
            failure = error_replies.read_error_reply(gateway_request.client_codec, reply)
            record.failure, record.message = record.failure or failure.kind, failure.message
        reply = error_replies.adapt_error(gateway_request.running.cloud_endpoint, reply)
    if gateway_request.running.sinks.wants_bodies:
        record.traffic.response_body = reply.body
    extra = EMPTY_MAPPING if len(record.attempts) < 2 else attempts_header(record.attempts)
    if record.costs.is_priced and gateway_request.runtime.telemetry.tells_costs:
        costs = record.costs.add_up()
        extra = {**extra, COST_HEADER: cost_header(costs.total, costs.unpriced)}
    capture = record.traffic.capture
    if capture is not None:
        capture.client_response.add_whole(reply.body)
        capture.reply_headers = (reply.headers, extra)
    return request.send_reply(reply, record.request_id, gateway_request.client_codec.http.request_id_header, extra)


async def _send_stream(request: ClientRequest, gateway_request: GatewayRequest, started: StartedStream) -> None:
    headers = {**started.headers, **attempts_header(gateway_request.record.attempts)}
    output = await _start_stream(request, gateway_request, headers)
    output.start_heartbeat()
    passed = _capture_output(gateway_request, started, output)
    if not gateway_request.runtime.cancels_on_disconnect or not gateway_request.running.counts_use:
        await relay_stream(gateway_request, started, output, passed=passed)
        return
    usage_wait = UsageWait(request)
    try:
        await relay_stream(gateway_request, started, output, usage_wait, passed)
    finally:
        usage_wait.close()


def _capture_output(request: GatewayRequest, started: StartedStream, output: ClientStream) -> PassedAnswer | None:
    """Capture what the client gets, where that is wanted. Returns what captures a stream that passes unchanged."""
    capture, how = request.record.traffic.capture, (request.clock, request.runtime.telemetry.recent)
    if capture is None:
        return None
    is_passed = isinstance(started.stream, PassthroughStream) and request.recorder is None
    is_passed = is_passed and not started.request.attempt.drops_usage
    if is_passed and capture.upstream_calls[-1].response.data == b"".join(started.pending_output):
        passed = PassedAnswer(capture, output.write_nowait, *how)
        output.write_nowait = passed.write
        return passed
    output.write_nowait = capture.client_response.copy_writes(output.write_nowait, *how)
    return None


async def _start_stream(
    request: ClientRequest, gateway_request: GatewayRequest, headers: Mapping[str, str]
) -> ClientStream:
    http, record = gateway_request.client_codec.http, gateway_request.record
    framing = http.make_framing_converter(gateway_request.framing) if gateway_request.framing else None
    of_stream = {"content-type": (framing or http.framing).content_type, "cache-control": "no-cache"}
    if record.traffic.capture is not None:
        record.traffic.capture.reply_headers = (headers, of_stream)
    ids = request_id_headers(gateway_request.client_codec, record.request_id)
    await request.start_response(200, {**headers, **ids, **of_stream})
    record.status, record.first_byte = 200, request.clock()
    heartbeat = b"" if framing is not None else http.heartbeat
    return ClientStream(request, framing, heartbeat, gateway_request.runtime.config.server.heartbeat)


async def _send_frames(request: ClientRequest, gateway_request: GatewayRequest, frames: AsyncIterator[bytes]) -> None:
    gateway_request.record.asked.stream = True
    output = await _start_stream(request, gateway_request, {})
    try:
        async for frame in frames:
            output.start_heartbeat()
            if not output.write_nowait(frame):
                await output.drain()
        await output.end()
    except StreamInterrupted:
        request.abort()
    finally:
        output.close()


class UsageWait:
    """Keeps a stream from being cancelled for a moment when its client leaves. Providers say what an answer has used
    behind the last of its text: a client that always left there would be counted for that text alone, and not for the
    thinking that nobody sees. It can leave where it asked the model to end, so no place in a stream is the end."""

    def __init__(self, request: ClientRequest) -> None:
        self._request, self._task, self._has_left = request, asyncio.current_task(), False
        self.resume()
        self._start_timer()

    async def pause(self) -> None:
        """What a round has used is known: no tool is run and no provider asked for a client that has left."""
        self._request.watch_disconnect(True)
        await asyncio.sleep(0)  # if it has, this does not return

    def resume(self) -> None:
        self._request.watch_disconnect(False)

    def _start_timer(self) -> None:
        self._timer = self._request.loop.call_later(USAGE_SECONDS / 2, self._check_client)

    def _check_client(self) -> None:
        if self._has_left and self._task is not None:
            self._task.cancel()
            return
        self._has_left = self._request.is_disconnected  # maybe just now: it is cancelled the next time
        self._start_timer()

    def close(self) -> None:
        self._timer.cancel()


class ClientStream:
    """The client's side of a stream: framed as it wants it, with heartbeats in silences."""

    def __init__(
        self, request: ClientRequest, framing: FramingConverter | None, heartbeat: bytes, seconds: float
    ) -> None:
        self._request = request
        self._framing = framing
        self.write_nowait = (
            request.write_nowait if framing is None else lambda data: request.write_nowait(framing.feed(data))
        )
        """Write more of the stream. False: call `drain` before the next write."""
        self._heartbeat = heartbeat if seconds else b""
        self._check_seconds = seconds / HEARTBEAT_CHECKS
        self._loop = request.loop
        self._last_bytes_sent = request.bytes_sent
        self._silent_checks = 0
        self._timer: asyncio.TimerHandle | None = None
        self._heartbeat_task: asyncio.Task[None] | None = None
        self._is_draining = False

    def start_heartbeat(self) -> None:
        """From now on silences count, also one before the first content."""
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
        """One timer for all silences: it checks whether anything was sent, so that a write need not touch it."""
        request = self._request
        self._silent_checks = self._silent_checks + 1 if request.bytes_sent == self._last_bytes_sent else 0
        if self._silent_checks >= HEARTBEAT_CHECKS and not self._is_draining:
            self._silent_checks = 0
            request.write_nowait(self._heartbeat)
            self._heartbeat_task = self._loop.create_task(request.drain())
        self._last_bytes_sent = request.bytes_sent
        self._timer = self._loop.call_later(self._check_seconds, self._check_silence)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._heartbeat_task is not None:
            self._heartbeat_task.cancel()


async def relay_stream(
    request: GatewayRequest,
    started: StartedStream,
    output: StreamOutput,
    usage_wait: UsageWait | None = None,
    passed: PassedAnswer | None = None,
) -> None:
    """Send the rest of a stream. However it ends, the client gets an end of its own protocol."""
    stream, upstream = started.stream, started.request.upstream
    gate = _make_end_gate(request, started)
    write, change = _make_writer(request, gate, started, output)
    forwarder = Forwarder(started, write, change, output, passed)
    try:
        await forwarder.send_pending()
        while True:
            if gate is not None and gate.has_work_due:
                output.write_nowait(await gate.finish_due_work())
            await output.drain()
            if started.response_ended:
                if not stream.needs_next_round:
                    break
                failure = await _start_next_round(request, started, usage_wait)
                if failure is not None:
                    write(stream.fail(failure))
                    break
            rest = await forwarder.pour()
            if isinstance(rest, TransportError):
                write(stream.fail(error_replies.transport_failure(upstream, rest)))
                break
            if rest is not None:
                started.response_ended = True
                # A stream that ends too early becomes a failure here: its reader knows what its end looks like.
                await forwarder.send(await close_stream(started))
            elif isinstance(stream, PassthroughStream) and stream.is_cut_off:
                break
        if gate is not None:
            output.write_nowait(gate.end_stream())
            output.write_nowait(await gate.finish_due_work() if gate.has_work_due else b"")
        output.write_nowait(_repeat_failure(request, started))
        await output.end()
    finally:
        output.close()
        started.response.abort()
        await _record_stream(request, started)


async def _record_stream(request: GatewayRequest, started: StartedStream) -> None:
    record, stream, prepared = request.record, started.stream, started.request
    record.answer.usage, record.answer.finish_reasons = stream.usage, stream.finishes
    if stream.failure is not None:
        record.failure, record.message = stream.failure.kind, stream.failure.message
    if stream.called_tools:
        can_be_renamed = isinstance(stream, StreamTranslation)
        record.answer.set_tool_calls(stream.called_tools, prepared.exchange.client_tool_name if can_be_renamed else str)
    stream_codes = stream.ledger.codes if stream.ledger is not None else ()
    codes = (*prepared.loss_codes, *stream_codes, *error_replies.unsaved_seal_codes(request))
    record.answer.add_losses(codes, prepared.ledger, stream.ledger)
    await end_stream_call(request, started)


def _repeat_failure(request: GatewayRequest, started: StartedStream) -> bytes:
    """Some clients need more than the failure's own event: the body of the error follows it."""
    failure = started.stream.failure
    if failure is None or started.stream.has_complete_call or not request.client_codec.http.repeats_stream_failure:
        return b""
    return error_replies.error_reply(request.client_codec, failure).body


def _make_end_gate(request: GatewayRequest, started: StartedStream) -> EndGate | None:
    """Holds the end of the stream back until it is stored, where something of it must be stored."""
    stream = started.stream
    is_needed = request.recorder is not None or request.gateway_tools is not None
    if not is_needed and request.signature_store is not None and isinstance(stream, StreamTranslation):
        is_needed = started.request.exchange.uses_memory
    return EndGate(request, started) if is_needed else None


def _make_writer(
    request: GatewayRequest, gate: EndGate | None, started: StartedStream, output: StreamOutput
) -> tuple[Callable[[bytes], bool], Callable[[bytes], bytes]]:
    """What writes a piece of the translated stream, and what becomes of the piece before."""
    drop = request.client_codec.http.drop_usage_chunks if started.request.attempt.drops_usage else None
    write = output.write_nowait if gate is None else _write_through_gate(gate, started.stream, output)
    keep = bytes if gate is None else gate.pass_data
    return (write, keep) if drop is None else (lambda data: write(drop(data)), lambda data: keep(drop(data)))


def _write_through_gate(gate: EndGate, stream: AnswerStream, output: StreamOutput) -> Callable[[bytes], bool]:
    def write(data: bytes) -> bool:
        if not gate.needs_all_data and not stream.finishes:
            return output.write_nowait(data)
        return output.write_nowait(gate.pass_data(data)) and not gate.has_work_due

    return write


class Forwarder:
    """Translates and sends what comes, where it arrives: no task is woken for each piece of a stream. Only what may
    take long waits for the relay, which has it translated in a thread."""

    def __init__(
        self,
        started: StartedStream,
        write: Callable[[bytes], bool],
        change: Callable[[bytes], bytes],
        output: StreamOutput,
        passed: PassedAnswer | None,
    ) -> None:
        self._started, self._write, self._change = started, write, change
        self._output, self._passed = output, passed
        self._large: list[bytes] = []
        """What waits. The sink holds the same list."""
        stream = started.stream
        if isinstance(stream, PassthroughStream):
            self._sink = self._make_passing_sink(stream)
        else:
            self._sink = self._make_sink(stream.feed)

    async def send_pending(self) -> None:
        data = b"".join(self._started.pending_output)
        if self._passed is not None:
            self._passed.pass_on(data)
        else:
            await self.send(data)

    async def send(self, data: bytes) -> None:
        """Send what is translated already."""
        if len(data) < LARGE_PIECE:
            self._write(data)
        else:
            self._output.write_nowait(await run_in_thread(partial(self._change, data)))

    async def pour(self) -> bytes | TransportError | None:
        """Wait until the stream ends, or something needs the relay."""
        rest = await self._started.response.pour_into(self._sink)
        if self._large:
            await self._forward_large()
        return rest

    def _make_sink(self, feed: Callable[[bytes], bytes]) -> ChunkSink:
        # it does not hold `self`, which holds it
        started, write, large = self._started, self._write, self._large

        def forward(data: bytes) -> bool:
            if (started.silent_size or len(data) >= LARGE_PIECE) and _must_wait(started, large, data):
                return False
            out = feed(data)
            started.silent_size = 0 if out else started.silent_size + len(data)
            return write(out)

        return forward

    def _make_passing_sink(self, stream: PassthroughStream) -> ChunkSink:
        started, write, large = self._started, self._write, self._large
        feed, passed = stream.feed, self._passed

        def forward(data: bytes) -> bool:
            if (started.silent_size or len(data) >= LARGE_PIECE) and _must_wait(started, large, data):
                return False
            out = feed(data)
            started.silent_size = 0 if out else started.silent_size + len(data)
            if passed is not None:
                if out == data:
                    return passed.pass_on(data)
                passed.stop_sharing(data)
            return write(out) and not stream.is_cut_off

        return forward

    async def _forward_large(self) -> None:
        started, passed = self._started, self._passed
        pieces = tuple(self._large)
        self._large.clear()
        data, feed, change = b"".join(pieces), started.stream.feed, self._change
        out = await run_in_thread(lambda: change(feed(data)))
        if out:
            started.silent_size = 0
        if passed is None:
            self._output.write_nowait(out)
            return
        if out != data:
            passed.stop_sharing(*pieces)
        passed.pass_on(out)


def _must_wait(started: StartedStream, large: list[bytes], data: bytes) -> bool:
    """Whether a piece may take long, or comes after one that does."""
    size = started.silent_size + len(data)
    if size < LARGE_PIECE:
        return False
    started.silent_size = size
    large.append(data)
    return True


async def _start_next_round(
    request: GatewayRequest, started: StartedStream, usage_wait: UsageWait | None
) -> Failure | None:
    stream, upstream = started.stream, started.request.upstream
    if not isinstance(stream, StreamTranslation) or stream.rounds is None:
        error = TransportError("protocol", "the answer paused and cannot go on")
        return error_replies.transport_failure(upstream, error)
    await end_stream_call(request, started)
    if usage_wait is not None:
        await usage_wait.pause()
    response = await ask_next_round(request, started.request, stream.rounds, stream.next_request)
    if usage_wait is not None:
        usage_wait.resume()
    if isinstance(response, Failure):
        return response
    if isinstance(response, AttemptFailed):
        stream.describe_failure = keep_failure  # the gateway says it, not the provider
        return response.failure
    if isinstance(response, TransportError):
        return error_replies.transport_failure(upstream, response)
    started.response, started.response_ended = response, False
    return None


class EndGate:
    """Holds back the end of a stream until its response and signatures are stored, and the gateway's tools have run.
    While `has_work_due` is true, nothing goes out."""

    def __init__(self, request: GatewayRequest, started: StartedStream) -> None:
        self._call = request
        self._upstream = started.request.upstream
        self._stream = started.stream
        self._tap = request.recorder.open_tap() if request.recorder is not None else None
        self.needs_all_data = self._tap is not None
        """Must it see all data? Else only what comes after an answer has ended."""
        self._has_end_work = request.signature_store is not None or request.gateway_tools is not None
        """May there be signatures to store or tools to run when an answer ends?"""
        self._ends_seen = 0
        self._held: list[bytes] = []
        self.has_work_due = False

    def pass_data(self, data: bytes) -> bytes:
        ends = len(self._stream.finishes) if self._has_end_work else 0
        if not ends and self._tap is None:
            return data
        if ends > self._ends_seen:
            self._ends_seen = ends
            if self._has_pending_calls or (self._call.signature_store is not None and self._stream.memory_records):
                self.has_work_due = True
                self._held.append(data)
                return b""
        if self._held:
            self._held.append(data)
            return b""
        return self._feed_tap(data)

    def _feed_tap(self, data: bytes) -> bytes:
        if self._tap is None:
            return data
        data = self._tap.feed(data)
        self.has_work_due = self._tap.response is not None
        return data

    @property
    def _has_pending_calls(self) -> bool:
        """Are there tool calls that the gateway must run before the client continues?"""
        rounds = self._stream.rounds
        return rounds is not None and bool(rounds.intercepted) and not rounds.needs_next_round

    def end_stream(self) -> bytes:
        if self._tap is None or self._held:
            return b""
        data = self._tap.close()
        self.has_work_due = self._tap.response is not None
        return data

    async def finish_due_work(self) -> bytes:
        """Do the work that is due; returns what was held back."""
        self.has_work_due = False
        out = b""
        if self._held:
            rounds, store = self._stream.rounds, self._call.signature_store
            if rounds is not None and self._has_pending_calls:
                self._stream.keep_pending_results(await run_leftover_tool_calls(self._call, self._upstream, rounds))
            if store is not None:
                await store.save_signatures(self._stream.memory_records)
            held, self._held = self._held, []
            out = self._feed_tap(b"".join(held))
        recorder = self._call.recorder
        if self._tap is not None and self._tap.response is not None and recorder is not None:
            changes = await recorder.save_response(self._tap.response)
            out += self._tap.release(changes)
            self._tap, self.has_work_due = None, False
        return out
