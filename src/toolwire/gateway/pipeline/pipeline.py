"""How many tokens a request has: asked of the provider where it counts, else estimated here."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from typing import Any

from msgspec.structs import replace

from toolwire.core import token_estimate
from toolwire.core.codec import TokenCountEndpoint
from toolwire.core.ir import Failure, replace_fields
from toolwire.core.json_values import Json, Malformed, decode, encode, expect_object
from toolwire.gateway.pipeline import error_replies
from toolwire.gateway.pipeline.attempt import MAX_RESPONSE, AttemptRunner, redact_key
from toolwire.gateway.pipeline.call import AttemptFailed, GatewayCall, Reply, StartedStream
from toolwire.gateway.pipeline.fallback import FallbackRunner
from toolwire.gateway.pipeline.headers import JSON_HEADERS, client_response_headers
from toolwire.gateway.pipeline.prepare import active_policy, body_for_native_path, seal_maker
from toolwire.gateway.pipeline.relay import OutputStream, relay_stream
from toolwire.gateway.pipeline.route import Target, choose_codec
from toolwire.gateway.pipeline.runtime import Upstream
from toolwire.gateway.server.request_body import peek_body
from toolwire.gateway.telemetry.record import ExchangeCapture, ExchangeRecord
from toolwire.gateway.telemetry.telemetry import Telemetry
from toolwire.gateway.upstream.errors import TransportError
from toolwire.gateway.upstream.health import ProviderHealth
from toolwire.translation.exchange import Exchange
from toolwire.translation.options import Options

ESTIMATE_HEADERS = {"x-toolwire-estimate": "tokens"}
"""The header that marks a count as an estimate: no protocol has a field for that."""


async def count_tokens(call: GatewayCall, targets: tuple[Target, ...], attempt_runner: AttemptRunner) -> Reply:
    """The count in the client's shape."""
    shape = call.client_codec.http.token_count
    if shape is None:
        raise ValueError("only protocols that count are asked to")
    try:
        body = shape.read_body(expect_object(decode(call.body), None))
        request = call.client_codec.read_request(body)
    except Malformed as bad:
        return error_replies.error_reply(call.client_codec, Failure("invalid", str(bad), 400, param=bad.path))
    target = targets[0]
    room = choose_codec(target, call.client_codec, lambda: bool(request.tools))
    line = call.runtime.upstream_for(target, room, False)
    record = call.record
    record.provider, record.provider_protocol, record.model = target.provider.name, room.name, target.model
    asked = await _ask_provider_count(call, line, body, attempt_runner)
    if asked is not None:
        return Reply(200, JSON_HEADERS, encode(shape.write_count(asked)))
    call.record.usage_estimated = True
    if call.gateway_tools is not None:
        request = replace_fields(request, tools=(*request.tools, *call.gateway_tools.tools))
    return Reply(
        200, {**JSON_HEADERS, **ESTIMATE_HEADERS}, encode(shape.write_count(token_estimate.estimate_tokens(request)))
    )


async def _ask_provider_count(
    call: GatewayCall, upstream: Upstream, body: Json, attempt_runner: AttemptRunner
) -> int | None:
    """What the provider counts; None when it cannot be asked or does not say."""
    count = upstream.codec.http.token_count
    if count is None or upstream.address is None or upstream.provider.is_key_missing:
        return None
    if upstream.provider.forward_auth and not call.caller.provider_credential:
        return None
    options = Options(
        model=upstream.model,
        stream=False,
        maker=seal_maker(call, upstream)[0],
        policy=active_policy(call, upstream),
        tools=call.gateway_tools.tools if call.gateway_tools is not None else (),
    )
    exchange = Exchange(call.client_codec, upstream.codec, options)
    try:
        wire = expect_object(decode(exchange.translate_request(body).body), None)
    except Malformed:
        return None
    there = replace(upstream, path=count.path(upstream.model))
    source = await attempt_runner.send_request(call, there, encode(count.write_body(wire, upstream.model)))
    if isinstance(source, TransportError):
        return None
    data = await source.read(MAX_RESPONSE)
    return _read_count(count, data) if source.status == 200 and not isinstance(data, TransportError) else None


def _read_count(count: TokenCountEndpoint, data: bytes) -> int | None:
    try:
        return count.read_count(decode(data))
    except Malformed:
        return None


NO_SUCH_PATH_STATUSES = frozenset({404, 405, 501})


class Pipeline:
    """One for a configuration."""

    def __init__(
        self,
        attempt_runner: AttemptRunner,
        health: ProviderHealth,
        telemetry: Telemetry,
        report_error: Callable[[BaseException], None],
        is_stopping: Callable[[], bool],
    ) -> None:
        self.attempt_runner = attempt_runner
        self.report_error = report_error
        self.is_stopping = is_stopping
        """Was the gateway asked to stop?"""
        self.request_answer: Callable[
            [GatewayCall, tuple[Target, ...]], Coroutine[Any, Any, Reply | StartedStream | AttemptFailed]
        ]
        self.request_answer = FallbackRunner(attempt_runner, health).run_with_fallbacks
        self._telemetry = telemetry

    async def relay_stream(self, call: GatewayCall, started: StartedStream, output: OutputStream) -> None:
        try:
            await relay_stream(call, started, self.attempt_runner, output)
        finally:
            self.record_stream_result(call, started)

    @staticmethod
    def record_stream_result(call: GatewayCall, started: StartedStream) -> None:
        """What a stream came to, for the log."""
        record, stream, ready = call.record, started.stream, started.request
        record.usage, record.finish_reasons = stream.usage, stream.finishes
        record.failure = stream.failure.kind if stream.failure is not None else ""
        told = stream.ledger
        codes = (*ready.loss_codes, *(told.codes if told is not None else ()), *error_replies.unsaved_seal_codes(call))
        record.add_losses(codes, ready.ledger, told)

    async def forward_native(self, call: GatewayCall, target: Target, path: str) -> Reply | None:
        line = replace(call.runtime.choose_upstream(call.client_codec, target, False, call.has_tools), path=path)
        source = await self.attempt_runner.send_request(call, line, body_for_native_path(call, line))
        if isinstance(source, TransportError):
            return error_replies.error_reply(call.client_codec, error_replies.transport_failure(line, source))
        data = await source.read(MAX_RESPONSE)
        if isinstance(data, TransportError):
            return error_replies.error_reply(call.client_codec, error_replies.transport_failure(line, data))
        if source.status in NO_SUCH_PATH_STATUSES:
            return None
        headers = client_response_headers(call, line, source.headers, ())
        return Reply(source.status, headers, data if source.status < 300 else redact_key(data, line))

    def route_call(self, call: GatewayCall) -> tuple[Target, ...] | AttemptFailed:
        found = call.runtime.router.route(call.model, call.caller.key)
        if isinstance(found, tuple):
            return found
        code = "model_not_found" if found.kind == "not_found" else ""
        return error_replies.gateway_error(call, Failure(found.kind, found.message, 0, code, "model"))

    @staticmethod
    def load_body(call: GatewayCall, body: bytes) -> bool:
        """Take a body as what the call asks for; False when it is none."""
        peek = peek_body(body)
        if peek is None:
            return False
        call.body, call.peek = body, peek
        call.model, call.stream = peek.model, bool(peek.stream)
        call.record.requested_model = call.model
        return True

    def start_background_record(self, call: GatewayCall) -> None:
        before = call.record
        call.record = ExchangeRecord(
            request_id=before.request_id,
            started=call.clock(),
            started_at=time.time(),
            client_address=before.client_address,
            method=before.method,
            path=before.path,
            key_name=before.key_name,
            user_agent=before.user_agent,
            client_protocol=before.client_protocol,
            requested_model=before.requested_model,
            stream=True,
            operation="background",
            capture=None if before.capture is None else ExchangeCapture(call.body),
        )
        self._telemetry.start_exchange(call.record)

    def finish_background_record(self, call: GatewayCall) -> None:
        call.record.status = call.record.status or (500 if call.record.failure else 200)
        self._telemetry.finish_exchange(call.record, call.clock())
