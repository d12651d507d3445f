"""Paths of a protocol that are not about tools (embeddings, files …): passed on to a provider that speaks it."""

from __future__ import annotations

import posixpath
from urllib.parse import unquote

from toolwire.core.ir import Failure
from toolwire.gateway.config.config import Provider
from toolwire.gateway.pipeline import error_replies
from toolwire.gateway.pipeline.attempt import AttemptRunner
from toolwire.gateway.pipeline.call import GatewayCall, Reply, UpstreamResponse
from toolwire.gateway.pipeline.headers import request_id_headers
from toolwire.gateway.pipeline.route import Target, Unroutable
from toolwire.gateway.pipeline.runtime import Upstream
from toolwire.gateway.server.client_request import ClientRequest
from toolwire.gateway.server.request_body import has_ambiguous_model, peek_body, replace_model
from toolwire.gateway.upstream.errors import TransportError
from toolwire.protocols import CODECS

KEPT_HEADERS = frozenset({"content-type", "content-disposition", "cache-control", "etag", "last-modified", "location"})
"""Headers of an answer that matter whatever it is; the protocol's own come besides."""
NO_PROVIDER = Reply(404, {}, b"")


async def pass_request_through(
    call: GatewayCall, request: ClientRequest, attempt_runner: AttemptRunner, body_read: bytes | None = None
) -> Reply | None:
    """Bytes there and bytes back, as they come; a Reply where there is nobody to pass them to, else None. `read` is
    the body where it was read already."""
    room, record = call.client_codec, call.record
    if not all(path.startswith(room.http.path_prefixes) for path in (request.path, _normalise_path(request.path))):
        return NO_PROVIDER
    if call.runtime.config.server.keys and _normalise_path(request.path).startswith(_STORED_OBJECT_PATHS):
        return NO_PROVIDER  # another client may have stored it: all share the provider's account
    body = await request.read_body(call.runtime.config.server.max_body) if body_read is None else body_read
    if isinstance(body, Failure):
        return error_replies.error_reply(room, body)
    target = _find_target(call, body)
    if target is None:
        return NO_PROVIDER
    if isinstance(target, Failure):
        return error_replies.error_reply(room, target)
    provider = target.provider
    record.operation, record.is_passthrough = "passthrough", True
    record.provider, record.provider_protocol = provider.name, room.name
    line = _make_upstream(call, request, provider)
    if isinstance(line, Failure):
        return error_replies.error_reply(room, line)
    request.watch_disconnect(call.runtime.cancels_on_disconnect)
    source = await attempt_runner.send_request(call, line, _body_with_model(call, body, target.model), request.method)
    if isinstance(source, TransportError):
        return error_replies.error_reply(room, error_replies.transport_failure(line, source))
    await _relay_response(call, request, line, source)
    return None


_STORED_OBJECT_PATHS = tuple(path for codec in CODECS.values() for path in codec.http.stored_object_paths)


def _normalise_path(path: str) -> str:
    """The path as a provider may understand it, which dots and escapes could hide."""
    return "/" + posixpath.normpath(unquote(path)).lstrip("/")


def _find_target(call: GatewayCall, body: bytes) -> Target | Failure | None:
    """The provider of the model that the body names; where it names none that is known, the first that speaks this."""
    peek = peek_body(body) if body[:1] == b"{" else None
    key, protocol = call.caller.key, call.client_codec.name
    narrow = key is not None and key.models != ("*",)
    if peek is not None and peek.model and not (narrow and not call.client_codec.http.model_in_body):
        targets = call.runtime.router.route(peek.model, key)
        if not isinstance(targets, Unroutable):
            return _check_protocol(targets[0], protocol)
        if targets.kind == "permission":
            return Failure("permission", targets.message, 403)
    elif key is not None and narrow:
        # Where the path names the model, the body could name another one.
        return Failure("permission", f"the key `{key.name}` is for certain models only, and this names none", 403)
    provider = call.runtime.router.find_speaker(protocol)
    return Target(provider, peek.model if peek is not None else "") if provider is not None else None


def _check_protocol(target: Target, protocol: str) -> Target | Failure | None:
    if target.provider.embedded:
        return None
    if protocol in target.provider.protocols:
        return target
    what = f"the provider `{target.provider.name}` of this model does not have this endpoint"
    return Failure("not_found", f"{what}: it does not speak {protocol}, and this path is only passed on", 404)


def _body_with_model(call: GatewayCall, body: bytes, model: str) -> bytes:
    """The body with the model's own name, if it names one."""
    peek = peek_body(body) if model else None
    if peek is None:
        return body
    key = call.caller.key
    # A key that may use some models only must not smuggle in a second name that another parser would take.
    smuggled = key is not None and key.models != ("*",) and has_ambiguous_model(body)
    return replace_model(body, model) if peek.model != model or smuggled else body


def _make_upstream(call: GatewayCall, request: ClientRequest, provider: Provider) -> Upstream | Failure:
    room, state = call.client_codec, call.runtime
    if provider.forward_auth and not call.caller.provider_credential:
        return Failure("authentication", f"the provider `{provider.name}` wants your own key of it", 401)
    query = state.access.without_credential(request.query)
    path = f"{request.path}?{query}" if query else request.path
    kind = request.headers.get("content-type", "application/json")
    headers = {**state.fixed_headers(provider, room), "content-type": kind}
    address = state.provider_address(provider, room.name)
    return Upstream(provider, room, "", False, None, True, address, address.label, path, headers, "", False)


async def _relay_response(
    call: GatewayCall, request: ClientRequest, upstream: Upstream, response: UpstreamResponse
) -> None:
    record, table = call.record, call.runtime.returned_headers[upstream.codec.name]
    headers = {name: value for name, value in response.headers.items() if name in KEPT_HEADERS or table.contains(name)}
    record.status = response.status
    await request.start_response(response.status, {**headers, **request_id_headers(upstream.codec, record.request_id)})
    try:
        while True:
            data = await response.read_chunk()
            if isinstance(data, TransportError):
                # Headers are out and the shape of the body is not ours: no end is all that is left to say it.
                request.abort()
                return
            await request.send_body(data, more=bool(data))
            if not data:
                return
    finally:
        response.abort()
