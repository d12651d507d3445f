"""Calls that are not the client's: run here, so that the model can go on."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

from msgspec.structs import replace

from toolwire.core.codec import Codec
from toolwire.core.ir import EMPTY_MAPPING, Failure, Response, Result
from toolwire.core.json_values import Malformed, decode, expect_object
from toolwire.gateway.loopback.model import LoopbackSource, answer_request
from toolwire.gateway.pipeline import error_replies
from toolwire.gateway.pipeline.call import (
    AnswerStream,
    AttemptFailed,
    GatewayCall,
    PassthroughRequest,
    PreparedRequest,
    Reply,
    StartedStream,
    TranslatedRequest,
    UpstreamResponse,
)
from toolwire.gateway.pipeline.headers import REQUEST_ID_HEADER, client_response_headers, upstream_request_headers
from toolwire.gateway.pipeline.passthrough_stream import PassthroughStream
from toolwire.gateway.pipeline.prepare import MissingState, finish_preparing, prepare_request
from toolwire.gateway.pipeline.route import Target
from toolwire.gateway.pipeline.runtime import Upstream
from toolwire.gateway.telemetry.record import ExchangeCapture, ExchangeRecord
from toolwire.gateway.telemetry.telemetry import Telemetry
from toolwire.gateway.upstream.client import UpstreamClient
from toolwire.gateway.upstream.errors import TransportError
from toolwire.gateway.upstream.health import ProviderHealth
from toolwire.translation.streaming import StreamTranslation
from toolwire.translation.tool_rounds import Rounds

MAX_PAUSES = 16
REFUSED_ROUNDS = 2
"""Rounds after the last in which calls are only refused: a model that still goes on calling is given up."""


async def run_tool_round(call: GatewayCall, rounds: Rounds) -> tuple[Result, ...] | TransportError:
    """What the model is told before it goes on; a fault where it does so without end."""
    if not rounds.intercepted:
        over = rounds.resumptions >= MAX_PAUSES
        return TransportError("protocol", f"the answer paused more than {MAX_PAUSES} times") if over else ()
    most = call.gateway_tools.max_rounds if call.gateway_tools is not None else MAX_PAUSES
    if rounds.resumptions >= most + REFUSED_ROUNDS:
        return TransportError("protocol", f"the model called tools in more than {most} rounds, and still does")
    late = rounds.resumptions >= most
    return await _run_calls(call, rounds, late)


async def run_leftover_calls(call: GatewayCall, rounds: Rounds) -> tuple[Result, ...]:
    """The results of calls beside which the client has calls of its own to answer. Where they cannot be kept until
    then, nobody would see them: such calls are not run."""
    if call.signature_store is None:
        return ()
    return await _run_calls(call, rounds, False)


async def _run_calls(call: GatewayCall, rounds: Rounds, over_limit: bool) -> tuple[Result, ...]:
    calls = [] if over_limit else rounds.calls_to_run()
    results = await call.gateway_tools.run_calls(calls) if calls and call.gateway_tools is not None else ()
    call.record.add_tool_runs(calls, results)
    return rounds.complete_results(results, over_limit)


MAX_RESPONSE = 256 * 1024 * 1024
FIRST_CONTENT_SECONDS = 15.0
"""Seconds for which the start of a stream waits for its first content, where no heartbeat is set."""
STREAM_CONTENT_TYPE = "text/event-stream"


class AttemptRunner:
    """Asks providers. It has the connections; all else comes with the call."""

    def __init__(self, client: UpstreamClient, health: ProviderHealth, telemetry: Telemetry, gateway_id: str) -> None:
        self._client = client
        self._health = health
        self._telemetry = telemetry
        self._gateway_id = gateway_id

    async def attempt(
        self, call: GatewayCall, target: Target, token_limit: int | None = None
    ) -> Reply | StartedStream | AttemptFailed:
        """One try, and a note of what came of it; `most` are the tokens that may be asked for, where the provider has
        just said so."""
        record, health, provider, model = call.record, self._health, target.provider.name, target.model
        begun = call.clock()
        line = call.runtime.choose_upstream(call.client_codec, target, call.stream, call.has_tools)
        room = line.codec
        if token_limit is None and health.token_limits and room.name != call.client_codec.name:
            token_limit = health.token_limits.get((provider, model))
        if token_limit is not None or call.model_output_limit is not None:
            call.model_output_limit = token_limit
        ready = prepare_request(call, line)
        if type(ready) is not PassthroughRequest and type(ready) is not TranslatedRequest:
            ready = await _prepare_with_stored(call, line, ready) if isinstance(ready, MissingState) else ready
            if isinstance(ready, AttemptFailed):
                return self._record_failure(call, target, ready, begun)
        record.provider, record.provider_protocol, record.model, record.is_passthrough = (
            provider,
            room.name,
            model,
            ready.is_passthrough,
        )
        source = await self.send_request(call, line, ready.body)
        if type(source) is TransportError:  # of a struct `isinstance` costs much where it is none
            return self._record_failure(call, target, error_replies.transport_error(call, line, source), begun)
        record.upstream_request_id = source.headers.get(room.http.request_id_header, "")
        take = (
            self._read_error_response
            if source.status >= 300
            else self._start_stream
            if call.stream
            else self._read_whole_response
        )
        got = await take(call, ready, source)
        if type(got) is AttemptFailed:
            got = _seal_off_failure(got, line, tools_were_run=source.status < 300 and bool(record.tool_runs))
            return self._record_failure(call, target, got, begun)
        health.record_success(provider, model)
        self._telemetry.record_attempt(record, provider, "ok", call.clock() - begun)
        return got

    def _record_failure(
        self, call: GatewayCall, target: Target, failed: AttemptFailed, started: float
    ) -> AttemptFailed:
        """A try that came to nothing, and a note of it."""
        server, failure, provider = call.runtime.config.server, failed.failure, target.provider.name
        # Only words of our own: a provider's could be anything, and stand in headers and metrics.
        outcome = (
            failure.code
            if failure.code in error_replies.ATTEMPT_OUTCOMES
            else str(failure.status or failed.reply.status)
        )
        fault = failure.kind in ("upstream", "deadline")
        self._telemetry.record_attempt(call.record, provider, outcome, call.clock() - started, is_transport_error=fault)
        if failed.can_fall_back:
            self._health.record_failure(provider, target.model, call.clock(), server.cooldown_after, server.cooldown)
        return failed

    def send_request(
        self, call: GatewayCall, upstream: Upstream, body: bytes, method: str = "POST"
    ) -> Coroutine[Any, Any, UpstreamResponse | TransportError]:
        record, address = call.record, upstream.address
        sent: Coroutine[Any, Any, UpstreamResponse | TransportError]
        if address is None:
            sent = _ask_loopback(call, upstream, body)
        else:
            record.upstream_address = upstream.address_label
            headers = upstream_request_headers(call, upstream, body, self._gateway_id)
            own = ((REQUEST_ID_HEADER, record.request_id), *self._telemetry.upstream_headers(record))
            sent = self._client.send_request(address, method, upstream.path, headers, body, own)
        return sent if record.capture is None else _capture_exchange(record.capture, upstream, body, sent)

    async def _read_error_response(
        self, call: GatewayCall, request: PreparedRequest, response: UpstreamResponse
    ) -> AttemptFailed:
        line = request.upstream
        data = await response.read(MAX_RESPONSE)
        if isinstance(data, TransportError):
            return error_replies.transport_error(call, line, data)
        if response.status < 400:
            return error_replies.redirect_error(call, line, response.status)
        data = redact_key(data, line)
        said = request.exchange.translate_error(data, response.status, response.headers)
        failure = said.failure or Failure("upstream", "", 502)
        headers = {**said.headers, **client_response_headers(call, line, response.headers, request.loss_codes)}
        if not request.exchange.is_cross_protocol and "json" in response.headers.get("content-type", ""):
            return error_replies.provider_error(failure, Reply(response.status, headers, data))
        return error_replies.provider_error(failure, Reply(said.status, headers, said.body))

    # --- whole answers ---

    async def _read_whole_response(
        self, call: GatewayCall, request: PreparedRequest, response: UpstreamResponse
    ) -> Reply | AttemptFailed:
        line, record, headers = request.upstream, call.record, response.headers
        passed = request.is_passthrough
        data: bytes | TransportError | Failure = await response.read(MAX_RESPONSE)
        if not passed and request.exchange.can_take_rounds and isinstance(data, bytes):
            data = await self._run_rounds(call, request, data)
        if not isinstance(data, bytes):
            return _incomplete_response(call, line, data)
        streamed = not data.startswith(b"{") and _is_stream_response(data, headers)
        try:
            if passed and not streamed:
                passing = Reply(200, client_response_headers(call, line, headers, ()), data)
                failed = _peek_passthrough_response(line.codec, data, record)
                return passing if failed is None else _failed_passthrough(call, failed, passing)
            exchange = request.exchange
            said = exchange.translate_streamed_response(data) if streamed else exchange.translate_response(data)
        except Malformed as bad:
            return error_replies.unreadable_response(call, line, bad)
        record.usage, record.response_model, record.finish_reasons = said.usage, said.model, said.finishes
        codes = request.loss_codes + said.ledger.codes
        if call.signature_store is not None:
            if said.memory_records:
                await call.signature_store.save_signatures(said.memory_records)
            codes += error_replies.unsaved_seal_codes(call)
        if codes:
            record.add_losses(codes, request.ledger, said.ledger)
        told = client_response_headers(call, line, headers, codes)
        whole = Reply(said.status, {**said.headers, **told} if said.headers else told, said.body)
        return whole if said.failure is None else error_replies.provider_error(said.failure, whole)

    async def _run_rounds(
        self, call: GatewayCall, request: PreparedRequest, data: bytes
    ) -> bytes | TransportError | Failure:
        """An answer that paused, or calls what is not the client's, is asked to go on until it is whole."""
        exchange = request.exchange
        while True:
            try:
                taking = exchange.add_round(data, _is_stream(data))
            except Malformed:
                return data
            if taking is None or not taking.is_paused:
                if taking is not None and taking.intercepted:
                    exchange.keep_pending_results(await run_leftover_calls(call, taking))
                return data
            results = await run_tool_round(call, taking)
            if isinstance(results, TransportError):
                return results
            got = await self.continue_answer(call, request, exchange.next_request(taking, results))
            read = got if isinstance(got, (TransportError, Failure)) else await got.read(MAX_RESPONSE)
            if isinstance(read, (TransportError, Failure)):
                return read
            data = read

    async def continue_answer(
        self, call: GatewayCall, request: PreparedRequest, body: bytes
    ) -> UpstreamResponse | Failure:
        """Ask for the rest of an answer. What was done so far is worth another try."""
        tries = call.runtime.config.server.retries
        for number in range(tries + 1):
            got = await self._send_continuation(call, request, body)
            if not isinstance(got, Failure) or number == tries or got.kind not in error_replies.RETRYABLE_KINDS:
                break
            wait = error_replies.retry_wait(got, number)
            if wait > error_replies.MAX_RETRY_WAIT:
                break
            await asyncio.sleep(wait)
        return got

    async def _send_continuation(
        self, call: GatewayCall, request: PreparedRequest, body: bytes
    ) -> UpstreamResponse | Failure:
        line = request.upstream
        source = await self.send_request(call, line, body)
        if isinstance(source, TransportError):
            return error_replies.transport_failure(line, source)
        if source.status < 300:
            return source
        data = await source.read(MAX_RESPONSE)
        said = b"" if isinstance(data, TransportError) else redact_key(data, line)
        return request.exchange.translate_error(said, source.status, source.headers).failure or Failure(
            "upstream", "", 502
        )

    # --- streams ---

    async def _start_stream(
        self, call: GatewayCall, request: PreparedRequest, response: UpstreamResponse
    ) -> StartedStream | AttemptFailed:
        """Waits until something of the answer itself has come: up to then another provider can still be asked."""
        streams = response.headers.get("content-type", "").startswith(STREAM_CONTENT_TYPE)
        stream: AnswerStream
        if streams:
            stream = (
                PassthroughStream(request.upstream.codec) if request.is_passthrough else request.exchange.start_stream()
            )
            flow = StartedStream(
                request,
                response,
                stream,
                client_response_headers(call, request.upstream, response.headers, request.loss_codes),
            )
            refusal = await self._wait_for_content(call, flow)
        else:
            stream = request.exchange.start_stream()
            flow = StartedStream(
                request,
                response,
                stream,
                client_response_headers(call, request.upstream, response.headers, request.loss_codes),
            )
            refusal = await self._stream_whole_response(call, flow, stream)
        if refusal is None and stream.failure is not None:
            call.record.usage = stream.usage
            failed = error_replies.error_reply(call.client_codec, stream.failure)
            refusal = error_replies.provider_error(
                stream.failure, Reply(failed.status, {**flow.headers, **failed.headers}, failed.body)
            )
        if refusal is not None:
            response.abort()
            return refusal
        return flow

    async def _wait_for_content(self, call: GatewayCall, started: StartedStream) -> AttemptFailed | None:
        source, stream = started.response, started.stream
        clock = call.clock
        until = 0.0
        while not stream.has_content and stream.failure is None:
            if until and not await source.wait_for_data(until - clock()):
                return None
            data = await source.read_chunk()
            until = until or clock() + (call.runtime.config.server.heartbeat or FIRST_CONTENT_SECONDS)
            if isinstance(data, TransportError):
                return error_replies.transport_error(call, started.request.upstream, data)
            if not data:
                started.response_ended = True
                started.pending_output.append(stream.close())
                return None
            started.pending_output.append(stream.feed(data))
        return None

    async def _stream_whole_response(
        self, call: GatewayCall, started: StartedStream, stream: StreamTranslation
    ) -> AttemptFailed | None:
        """A provider that sends a whole answer though a stream was asked for."""
        line = started.request.upstream
        data = await started.response.read(MAX_RESPONSE)
        if isinstance(data, TransportError):
            return error_replies.transport_error(call, line, data)
        try:
            if isinstance(decode(data), list):
                started.pending_output += [stream.feed(data), stream.close()]
            else:
                started.pending_output.append(stream.feed_whole_response(data))
        except Malformed as bad:
            return error_replies.unreadable_response(call, line, bad)
        started.response_ended = True
        return None


async def _prepare_with_stored(
    call: GatewayCall, upstream: Upstream, missing: MissingState
) -> PreparedRequest | AttemptFailed:
    """A request with what was kept for it."""
    kept = (
        await call.signature_store.load_signatures(missing.ids) if call.signature_store is not None else EMPTY_MAPPING
    )
    if isinstance(kept, Failure):
        return error_replies.gateway_error(call, kept)
    return finish_preparing(call, upstream, missing.exchange, kept, missing.allows_passthrough)


async def _capture_exchange(
    capture: ExchangeCapture,
    upstream: Upstream,
    body: bytes,
    sending: Coroutine[Any, Any, UpstreamResponse | TransportError],
) -> UpstreamResponse | TransportError:
    """The same, copied for the log."""
    asked = capture.add_upstream_call(
        upstream.codec.name, upstream.provider.name, f"{upstream.address_label}{upstream.path}", body
    )
    source = await sending
    return source if isinstance(source, TransportError) else capture.capture_response(asked, source)


async def _ask_loopback(call: GatewayCall, upstream: Upstream, body: bytes) -> UpstreamResponse:
    return LoopbackSource(
        answer_request(upstream.codec, body, upstream.model, upstream.stream, int(call.now), call.id_seed)
    )


def _incomplete_response(call: GatewayCall, upstream: Upstream, error: TransportError | Failure) -> AttemptFailed:
    """An answer that did not come to its end."""
    if isinstance(error, TransportError):
        return error_replies.transport_error(call, upstream, error)
    return error_replies.provider_error(error, error_replies.error_reply(call.client_codec, error))


def _is_stream(data: bytes) -> bool:
    """Did the provider send a stream though none was asked for? A later round may come otherwise than the first."""
    return data.lstrip()[:6].startswith((b"data:", b"event:", b":"))


def _is_stream_response(data: bytes, headers: Mapping[str, str]) -> bool:
    """The same, where the headers of the first round may say so too."""
    said_so = headers.get("content-type", "").startswith(STREAM_CONTENT_TYPE)
    return _is_stream(data) or (said_so and not data.lstrip().startswith(b"{"))


def _peek_passthrough_response(codec: Codec, data: bytes, record: ExchangeRecord) -> Response | None:
    """What an answer that passes says of itself; None unless it failed. What is no answer at all is not passed on."""
    try:
        glance = codec.peek_response(data)
    except Malformed:
        return None  # an answer whose counts make no sense is still an answer
    if glance is not None:
        record.usage, record.response_model = glance.usage, glance.model
        return None
    response = codec.read_response(expect_object(decode(data), None))
    record.usage, record.response_model = response.usage, response.model
    return response if response.failure is not None else None


def _failed_passthrough(call: GatewayCall, response: Response, reply: Reply) -> AttemptFailed:
    """One without an id is no answer, only an error that came as one: then clients must see it in the status."""
    failure = response.failure or Failure("upstream", "", 502)
    if response.id:
        return error_replies.provider_error(failure, reply)
    told = error_replies.error_reply(call.client_codec, failure)
    return error_replies.provider_error(failure, Reply(told.status, {**reply.headers, **told.headers}, told.body))


def redact_key(data: bytes, upstream: Upstream) -> bytes:
    """Some servers repeat the key in their complaint; nobody else needs to see it."""
    key = upstream.provider.api_key.reveal().encode()
    return data.replace(key, b"[key]") if len(key) >= 8 else data


def _seal_off_failure(failed: AttemptFailed, upstream: Upstream, tools_were_run: bool) -> AttemptFailed:
    """What was `done` must not be done a second time. And no key, wherever it may stand: also in headers, and in what a
    stream said before it began."""
    if tools_were_run:
        failed = replace(failed, can_retry=False, can_fall_back=False)
    key = upstream.provider.api_key.reveal()
    if len(key) < 8:
        return failed
    reply = failed.reply
    headers = {name: value.replace(key, "[key]") for name, value in reply.headers.items()}
    return replace(failed, reply=Reply(reply.status, headers, redact_key(reply.body, upstream)))
