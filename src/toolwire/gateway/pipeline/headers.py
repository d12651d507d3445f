"""Which agent it is, from its user agent. The table is `agents.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib.resources import files

from toolwire.core.codec import Codec
from toolwire.gateway.pipeline.call import GatewayCall
from toolwire.gateway.pipeline.runtime import Headers, Upstream
from toolwire.policy.rules import matches_globs


@cache
def load_agents() -> dict[str, tuple[str, ...]]:
    """The agents that are known, and how the first product of their user agents is spelled."""
    text = files("toolwire.gateway.pipeline").joinpath("agents.toml").read_text("utf-8")
    return {name: tuple(globs) for name, globs in tomllib.loads(text).items()}


@lru_cache(maxsize=1024)
def recognise_agent(user_agent: str) -> tuple[str, str]:
    """The agent's name, "" for one that nobody knows; and the first product as it is sent, without its version."""
    product = user_agent.strip().partition(" ")[0].partition("/")[0].lower()
    name = next((name for name, globs in load_agents().items() if matches_globs(product, globs)), "") if product else ""
    return name, product


# --- Headers, to providers and back to clients ---


JSON_HEADERS: Mapping[str, str] = {"content-type": "application/json"}
"""An answer that bears nothing else has this very mapping, and is known by that."""
REQUEST_ID_HEADER = "x-request-id"
HOPS_HEADER = "x-toolwire-hops"
"""The gateways that a call has come through; one that finds itself there calls itself."""
_MAX_CACHED_UPSTREAMS = 16
"""More are not remembered for one head."""
_NO_HEADERS: Mapping[str, str] = {}


def upstream_request_headers(call: GatewayCall, upstream: Upstream, body: bytes, gateway_id: str) -> Headers:
    """What a provider gets to see, but for what is new in every request."""
    room = upstream.codec
    needed = room.http.extra_headers(
        upstream.model, body, call.headers if room.name == call.client_codec.name else _NO_HEADERS
    )
    sent = call.upstream_headers.get(upstream)
    if sent is not None and sent[0] == needed:
        return sent[1]
    if len(call.upstream_headers) >= _MAX_CACHED_UPSTREAMS:
        call.upstream_headers.clear()
    headers = _build_request_headers(call, upstream, needed, gateway_id)
    call.upstream_headers[upstream] = (needed, headers)
    return headers


def _build_request_headers(call: GatewayCall, upstream: Upstream, needed: Headers, gateway_id: str) -> Headers:
    """Of the client's own headers only those that its protocol gives a meaning to."""
    room, came = upstream.codec, call.headers
    headers = call.runtime.forwarded_headers[room.name].select(came) if room.name == call.client_codec.name else {}
    headers.update(needed)
    headers.update(upstream.headers)
    if upstream.provider.forward_auth:
        name, value = room.http.write_credential(call.caller.provider_credential)
        headers[name] = value
    passed = came.get(HOPS_HEADER)
    headers[HOPS_HEADER] = f"{passed},{gateway_id}" if passed else gateway_id
    headers.pop(REQUEST_ID_HEADER, None)
    return tuple(headers.items())


def client_response_headers(
    call: GatewayCall, upstream: Upstream, upstream_headers: Mapping[str, str], loss_codes: tuple[str, ...]
) -> Mapping[str, str]:
    """What a client gets to see of a provider's headers, and what we have to say ourselves."""
    room, client = upstream.codec, call.client_codec
    if room.name == client.name:
        more: Mapping[str, str] = call.runtime.returned_headers[room.name].select(upstream_headers)
    else:
        limits = room.http.read_rate_limits(upstream_headers, call.now)
        more = client.http.write_rate_limits(limits, call.now) if limits else _NO_HEADERS
    if loss_codes:
        more = {**more, "x-toolwire-losses": _write_losses_header(loss_codes)}
    return {**JSON_HEADERS, **more} if more else JSON_HEADERS


@lru_cache(maxsize=128)
def _write_losses_header(loss_codes: tuple[str, ...]) -> str:
    return f"{len(loss_codes)}; codes={','.join(dict.fromkeys(loss_codes))}"


def request_id_headers(codec: Codec, request_id: str) -> dict[str, str]:
    """The id of the request, under the usual name and under the one that this protocol's clients look for."""
    return {REQUEST_ID_HEADER: request_id, codec.http.request_id_header: request_id}
