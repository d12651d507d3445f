"""Token counts: from the provider where it counts, else estimated here."""

from __future__ import annotations

from msgspec.structs import replace

from toolwire.core import tokens
from toolwire.core.codec import TokenCountEndpoint
from toolwire.core.ir import Failure, replace_fields
from toolwire.core.json_values import Json, Malformed, decode, encode, expect_object
from toolwire.gateway.pipeline import error_replies
from toolwire.gateway.pipeline.attempt import MAX_RESPONSE, send_request
from toolwire.gateway.pipeline.gateway_request import GatewayRequest, Reply
from toolwire.gateway.pipeline.headers import JSON_HEADERS
from toolwire.gateway.pipeline.prepare import active_policy, seal_maker
from toolwire.gateway.pipeline.route import Target, choose_codec
from toolwire.gateway.pipeline.runtime import Upstream
from toolwire.gateway.upstream.errors import TransportError
from toolwire.translation.exchange import Exchange
from toolwire.translation.options import Options

ESTIMATE_HEADERS = {"x-toolwire-estimate": "tokens"}
"""Marks a count as an estimate: no protocol has a field for that."""


async def count_tokens(call: GatewayRequest, target: Target) -> Reply:
    """The number of tokens in a request, in the client's protocol."""
    endpoint = call.client_codec.http.token_count
    if endpoint is None:
        raise ValueError(f"{call.client_codec.name} has no endpoint for token counts")
    try:
        body = endpoint.read_body(expect_object(decode(call.body), None))
        request = call.client_codec.read_request(body)
    except Malformed as bad:
        return error_replies.error_reply(call.client_codec, Failure("invalid", str(bad), 400, param=bad.path))
    codec = choose_codec(target, call.client_codec, lambda: bool(request.tools))
    upstream = call.runtime.upstream_for(target, codec, False)
    record = call.record
    record.provider, record.provider_protocol, record.model = target.provider.name, codec.name, target.model
    count = await _ask_provider(call, upstream, body)
    if count is not None:
        return Reply(200, JSON_HEADERS, encode(endpoint.write_count(count)))
    record.usage_estimated = True
    if call.gateway_tools is not None:
        request = replace_fields(request, tools=(*request.tools, *call.gateway_tools.tools))
    estimate = tokens.estimate_tokens(request)
    return Reply(200, {**JSON_HEADERS, **ESTIMATE_HEADERS}, encode(endpoint.write_count(estimate)))


async def _ask_provider(call: GatewayRequest, upstream: Upstream, body: Json) -> int | None:
    """The provider's own count; None if it cannot be asked or gives none."""
    endpoint, provider = upstream.codec.http.token_count, upstream.provider
    if endpoint is None or upstream.address is None or provider.is_key_missing:
        return None
    if provider.forward_auth and not call.caller.provider_credential:
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
        translated = expect_object(decode(exchange.translate_request(body).body), None)
    except Malformed:
        return None
    count_upstream = replace(upstream, path=endpoint.path(upstream.model))
    response = await send_request(call, count_upstream, encode(endpoint.write_body(translated, upstream.model)))
    if isinstance(response, TransportError):
        return None
    data = await response.read(MAX_RESPONSE)
    return _read_count(endpoint, data) if response.status == 200 and not isinstance(data, TransportError) else None


def _read_count(endpoint: TokenCountEndpoint, data: bytes) -> int | None:
    try:
        return endpoint.read_count(decode(data))
    except Malformed:
        return None
