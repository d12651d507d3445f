"""Paths of a protocol that are not translated (embeddings, files …): forwarded to a provider that speaks it."""

from __future__ import annotations

import posixpath
from urllib.parse import unquote

from msgspec.structs import replace

from toolwire.core.ir import Failure
from toolwire.gateway.pipeline import error_replies
from toolwire.gateway.pipeline.attempt import MAX_RESPONSE, redact_key, send_request
from toolwire.gateway.pipeline.gateway_request import GatewayRequest, Reply, Upstream, UpstreamResponse
from toolwire.gateway.pipeline.headers import client_response_headers, request_id_headers
from toolwire.gateway.pipeline.prepare import body_for_native_path
from toolwire.gateway.pipeline.route import Target
from toolwire.gateway.server.client_request import ClientRequest
from toolwire.gateway.server.request_body import has_ambiguous_model, peek_body, replace_model
from toolwire.gateway.upstream.connection import TransportError
from toolwire.protocols import CODECS

PASSED_HEADERS = frozenset(
    {"content-type", "content-disposition", "cache-control", "etag", "last-modified", "location"}
)
"""Headers of a response that pass for any path; the protocol's own come in addition."""
NO_PROVIDER = Reply(404, {}, b"")
_STORED_OBJECT_PATHS = tuple(path for codec in CODECS.values() for path in codec.http.stored_object_paths)
"""Paths under which clients store things with a provider."""


async def pass_request_through(
    call: GatewayRequest, request: ClientRequest, body_read: bytes | None = None
) -> Reply | None:
    """Forward a request byte by byte, and its response too. None when that is done; a Reply if there is no provider for
    it, or it cannot be reached. `body_read` is the body, if it was read already."""
    codec, record, runtime = call.client_codec, call.record, call.runtime
    # The path as a provider may read it: dots and escapes could hide another one.
    path = "/" + posixpath.normpath(unquote(request.path)).lstrip("/")
    if not request.path.startswith(codec.http.path_prefixes) or not path.startswith(codec.http.path_prefixes):
        return NO_PROVIDER
    if runtime.config.server.keys and path.startswith(_STORED_OBJECT_PATHS):
        return NO_PROVIDER  # all clients share the provider's account: this could be another client's
    body = await request.read_body(runtime.config.server.max_body) if body_read is None else body_read
    if isinstance(body, Failure):
        return error_replies.error_reply(codec, body)
    target = _find_target(call, body)
    if not isinstance(target, Target):
        return NO_PROVIDER if target is None else error_replies.error_reply(codec, target)
    provider = target.provider
    record.operation, record.is_passthrough = "passthrough", True
    record.provider, record.provider_protocol = provider.name, codec.name
    if provider.forward_auth and not call.caller.provider_credential:
        failure = Failure("authentication", f"the provider `{provider.name}` needs your own key for it", 401)
        return error_replies.error_reply(codec, failure)
    query = runtime.access.without_credential(request.query)
    upstream = runtime.upstream_for(Target(provider, ""), codec, False)
    upstream = replace(
        upstream,
        path=f"{request.path}?{query}" if query else request.path,
        headers={**upstream.headers, "content-type": request.headers.get("content-type", "application/json")},
    )
    request.watch_disconnect(runtime.cancels_on_disconnect)
    response = await send_request(call, upstream, _body_with_model(call, body, target.model), request.method)
    if isinstance(response, TransportError):
        return error_replies.error_reply(codec, error_replies.transport_failure(upstream, response))
    await _relay_response(call, request, upstream, response)
    return None


async def forward_native(call: GatewayRequest, target: Target, path: str) -> Reply | None:
    """Forward the client's body to another path of a provider of its own protocol. None if it does not have that
    path."""
    codec = call.client_codec
    upstream = replace(call.runtime.choose_upstream(codec, target, False, call.has_tools), path=path)
    response = await send_request(call, upstream, body_for_native_path(call, upstream))
    if isinstance(response, TransportError):
        return error_replies.error_reply(codec, error_replies.transport_failure(upstream, response))
    data = await response.read(MAX_RESPONSE)
    if isinstance(data, TransportError):
        return error_replies.error_reply(codec, error_replies.transport_failure(upstream, data))
    if response.status in (404, 405, 501):
        return None
    headers = client_response_headers(call, upstream, response.headers, ())
    return Reply(response.status, headers, data if response.status < 300 else redact_key(data, upstream))


def _find_target(call: GatewayRequest, body: bytes) -> Target | Failure | None:
    """The provider of the model that the body names. If it names none that is known: the first that speaks the client's
    protocol."""
    peek = peek_body(body) if body[:1] == b"{" else None
    key, protocol = call.caller.key, call.client_codec.name
    is_restricted = key is not None and key.models != ("*",)
    if peek is not None and peek.model and not (is_restricted and not call.client_codec.http.model_in_body):
        targets = call.runtime.router.route(peek.model, key)
        if not isinstance(targets, Failure):
            provider = targets[0].provider
            if provider.embedded:
                return None
            if protocol in provider.protocols:
                return targets[0]
            message = (
                f"the provider `{provider.name}` of this model does not have this endpoint: "
                f"it does not speak {protocol}, and this path is only forwarded, not translated"
            )
            return Failure("not_found", message, 404)
        if targets.kind == "permission":
            return Failure("permission", targets.message, 403)
    elif key is not None and is_restricted:
        # Where the path names the model, the body could name another one.
        message = f"the key `{key.name}` is limited to certain models, and this request does not name one"
        return Failure("permission", message, 403)
    speaker = call.runtime.router.find_speaker(protocol)
    return Target(speaker, peek.model if peek is not None else "") if speaker is not None else None


def _body_with_model(call: GatewayRequest, body: bytes, model: str) -> bytes:
    """The body with the provider's name of the model, if it names one."""
    peek = peek_body(body) if model else None
    if peek is None:
        return body
    key = call.caller.key
    # With a key for certain models only, a second `model` must not get through that another parser would take.
    is_ambiguous = key is not None and key.models != ("*",) and has_ambiguous_model(body)
    return replace_model(body, model) if peek.model != model or is_ambiguous else body


async def _relay_response(
    call: GatewayRequest, request: ClientRequest, upstream: Upstream, response: UpstreamResponse
) -> None:
    record, codec = call.record, upstream.codec
    is_returned = call.runtime.returned_headers[codec.name].contains
    headers = {name: value for name, value in response.headers.items() if name in PASSED_HEADERS or is_returned(name)}
    record.status = response.status
    await request.start_response(response.status, {**headers, **request_id_headers(codec, record.request_id)})
    try:
        while True:
            data = await response.read_chunk()
            if isinstance(data, TransportError):
                # The headers are sent, and the body can be anything: only a missing end can tell the client.
                request.abort()
                return
            await request.send_body(data, more=bool(data))
            if not data:
                return
    finally:
        response.abort()
