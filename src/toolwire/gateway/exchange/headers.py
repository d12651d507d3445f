"""HTTP headers of one exchange: those sent to its provider, and those returned to its client (`x-toolwire-provider`,
`x-toolwire-losses`). What needs no request is in `http/headers.py`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from toolwire.core.codec import need_no_headers
from toolwire.core.ir import EMPTY_MAPPING
from toolwire.gateway.exchange.gateway_request import GatewayRequest, Upstream
from toolwire.gateway.http.headers import HOPS_HEADER, REQUEST_ID_HEADER, Headers, HeaderTable
from toolwire.protocols import CODECS

LOSSES_HEADER = "x-toolwire-losses"
ATTEMPTS_HEADER = "x-toolwire-attempts"
COST_HEADER = "x-toolwire-cost"
"""What a whole answer costs in USD; only with `[costs] header`."""
FORWARDED_HEADERS = {codec.name: HeaderTable(codec.http.forwarded_headers, False) for codec in CODECS.values()}
OWN_ACCOUNT_HEADERS = {codec.name: HeaderTable(codec.http.forwarded_headers) for codec in CODECS.values()}
"""The headers of a client whose own credential is forwarded."""
RETURNED_HEADERS = {codec.name: HeaderTable(codec.http.returned_headers) for codec in CODECS.values()}
_MAX_CACHED_UPSTREAMS = 16
_NOT_NEEDED: Headers = ()


def upstream_request_headers(request: GatewayRequest, upstream: Upstream, body: bytes) -> Headers:
    """The headers of a request to a provider, except those that are new in every request. Of the client's own headers
    only those that its protocol defines are forwarded."""
    codec, needed = upstream.codec, _NOT_NEEDED
    extra_headers = codec.http.extra_headers
    if extra_headers is not need_no_headers:
        sent = request.headers if codec.name == request.client_codec.name else EMPTY_MAPPING
        needed = extra_headers(upstream.model, body, sent)
    cached = request.upstream_headers.get(upstream)
    if cached is not None and cached[0] == needed:
        return cached[1]
    if len(request.upstream_headers) >= _MAX_CACHED_UPSTREAMS:
        request.upstream_headers.clear()
    tables = OWN_ACCOUNT_HEADERS if upstream.provider.forward_auth else FORWARDED_HEADERS
    headers = tables[codec.name].select(request.headers) if codec.name == request.client_codec.name else {}
    headers |= {**dict(needed), **upstream.headers}
    if upstream.provider.forward_auth:
        name, value = codec.http.write_credential(request.caller.provider_credential)
        headers[name] = value
    hops, gateway_id = request.headers.get(HOPS_HEADER), request.runtime.gateway_id
    headers[HOPS_HEADER] = f"{hops},{gateway_id}" if hops else gateway_id
    headers.pop(REQUEST_ID_HEADER, None)
    request.upstream_headers[upstream] = (needed, tuple(headers.items()))
    return request.upstream_headers[upstream][1]


def client_response_headers(
    request: GatewayRequest, upstream: Upstream, upstream_headers: Mapping[str, str], loss_codes: tuple[str, ...]
) -> Mapping[str, str]:
    """The provider's headers that a client gets, its name, and the losses of the translation."""
    codec, client = upstream.codec, request.client_codec
    if codec.name == client.name:
        headers: Mapping[str, str] = RETURNED_HEADERS[codec.name].select(upstream_headers)
    else:
        limits = codec.http.read_rate_limits(upstream_headers, request.now)
        headers = client.http.write_rate_limits(limits, request.now) if limits else EMPTY_MAPPING
    if loss_codes:
        headers = {**headers, LOSSES_HEADER: _write_losses_header(loss_codes)}
    # The gateway's own come last: another Toolwire as provider names its provider.
    return {**headers, **upstream.reply_headers} if headers else upstream.reply_headers


@lru_cache(maxsize=128)
def _write_losses_header(loss_codes: tuple[str, ...]) -> str:
    return f"{len(loss_codes)}; codes={','.join(dict.fromkeys(loss_codes))}"


def attempts_header(attempts: list[tuple[str, str, float]]) -> Mapping[str, str]:
    if len(attempts) < 2:
        return EMPTY_MAPPING
    return {ATTEMPTS_HEADER: ", ".join(f"{provider}={outcome}" for provider, outcome, _ in attempts)}
