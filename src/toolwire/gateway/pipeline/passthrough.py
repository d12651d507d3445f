"""Endpoints of a protocol that are not translated (embeddings, files …): forwarded to a provider that speaks it.

Only endpoints in the tables of the protocols (`passthrough_endpoints` in each `http.py`) are forwarded, and what is
sent is what was judged: the path in its one spelling, and the model that the key may use."""

from __future__ import annotations

from urllib.parse import quote

from msgspec.structs import replace

from toolwire.core.codec import Http, PassthroughEndpoint
from toolwire.core.ir import Failure, Usage
from toolwire.core.json_values import Malformed, json_pointer
from toolwire.core.tokens import estimate_body_tokens, estimate_text_tokens, is_believable
from toolwire.gateway.exchange import error_replies
from toolwire.gateway.exchange.caller import drop_credentials
from toolwire.gateway.exchange.client_body import ClientBody, refuse_names
from toolwire.gateway.exchange.gateway_request import AttemptFailed, GatewayRequest, PassthroughMatch, Upstream
from toolwire.gateway.exchange.headers import RETURNED_HEADERS, client_response_headers
from toolwire.gateway.exchange.inner_members import find_unjudged_tools, refuse_inner_models
from toolwire.gateway.exchange.named_model import UPLOAD_PREFIX, NamedModel, read_named_model
from toolwire.gateway.exchange.stages import EarlierRequest, ForwardedAnswer, ForwardedRequest, Stages, ask_hooks
from toolwire.gateway.http.client_request import ClientRequest
from toolwire.gateway.http.connection import TransportError
from toolwire.gateway.http.headers import PROVIDER_HEADER, request_id_headers
from toolwire.gateway.http.large_work import run_by_size
from toolwire.gateway.http.messages import Reply, UpstreamResponse
from toolwire.gateway.http.request_target import find_steering_key
from toolwire.gateway.pipeline.attempt import MAX_RESPONSE, send_request
from toolwire.gateway.pipeline.forwarded_usage import TAIL_SIZE, VisibleText, find_usage
from toolwire.gateway.pipeline.prepare import prepare_native_request
from toolwire.gateway.settings.config import Provider
from toolwire.gateway.settings.router import Target, codec_with_quirks, keep_allowed, strip_collection
from toolwire.gateway.telemetry.record import UpstreamNames

PASSED_HEADERS = frozenset(
    {"content-type", "content-disposition", "cache-control", "etag", "last-modified", "location"}
)
"""Headers of a response that pass for any path; the protocol's own come in addition."""
NO_PROVIDER = Reply(404, {}, b"")
_SAFE = "/:@+=,~"
"""Characters of a path that need no escape."""


async def pass_request_through(
    gateway_request: GatewayRequest,
    request: ClientRequest,
    match: PassthroughMatch,
    stages: Stages,
    body_read: bytes | None = None,
) -> Reply | None:
    """Forward a request, and its response byte by byte. None when that is done; a Reply if there is no provider for it,
    it is not allowed, or the provider cannot be reached. `body_read` is the body, if it was read already."""
    codec, record, runtime = gateway_request.client_codec, gateway_request.record, gateway_request.runtime
    earlier: EarlierRequest | AttemptFailed | None = await ask_hooks(
        stages.find_earlier, gateway_request, match, request.query
    )
    if isinstance(earlier, AttemptFailed):
        return earlier.reply
    body = await request.read_body(runtime.config.server.max_body) if body_read is None else body_read
    if isinstance(body, Failure):
        return error_replies.error_reply(codec, body)
    if request.method in ("GET", "DELETE"):
        body = b""  # none of these endpoints takes one
    content_type = request.headers.get("content-type", "")
    named = await run_by_size(len(body), lambda: read_named_model(codec, match, content_type, body))
    if isinstance(named, Failure):
        return error_replies.error_reply(codec, named)
    target = _find_target(gateway_request, match.endpoint, named, earlier)
    if not isinstance(target, Target):
        return NO_PROVIDER if target is None else error_replies.error_reply(codec, target)
    provider = target.provider
    record.asked.operation, record.asked.model, record.is_passthrough = "passthrough", named.name, True
    record.upstream = UpstreamNames(provider.name, protocol=codec.name, model=target.model)
    refused = (
        _refuse_query(request)
        or _refuse_endpoint(gateway_request, match.endpoint, named, provider)
        or await _refuse_inner_models(gateway_request, named)
        or await _refuse_unjudged_tools(gateway_request, match.endpoint, named.body)
    )
    if refused is not None:
        return error_replies.error_reply(codec, refused)
    forwarded = ForwardedRequest(match, target, named.body, content_type, earlier)
    if provider.accounts:
        account = await _choose_account(gateway_request, forwarded, stages)
        forwarded = replace(forwarded, target=replace(target, provider=account))
        record.upstream = replace(record.upstream, account=account.account)
    upstream = _make_upstream(gateway_request, request, match, named, forwarded.target)
    if upstream is None:
        return NO_PROVIDER
    request.watch_disconnect(runtime.cancels_on_disconnect)
    not_admitted = await ask_hooks(stages.admit_forwarded, gateway_request, forwarded)
    if not_admitted is not None:
        return not_admitted.reply
    written = await run_by_size(len(body), lambda: named.rewrite_body(target.model))
    gateway_request = replace(gateway_request, body=ClientBody(codec, written))
    upstream = upstream if earlier is None else replace(upstream, path=earlier.target)
    return await _forward(gateway_request, request, forwarded, upstream, stages)


async def _choose_account(gateway_request: GatewayRequest, request: ForwardedRequest, stages: Stages) -> Provider:
    """The account of a provider that has several: that of the earlier request, or one that a feature chooses."""
    provider = request.target.provider
    account = provider.find_account(request.earlier.account) if request.earlier is not None else None
    return account or await ask_hooks(stages.find_account, gateway_request, request) or provider


async def _forward(
    gateway_request: GatewayRequest,
    request: ClientRequest,
    forwarded: ForwardedRequest,
    upstream: Upstream,
    stages: Stages,
) -> Reply | None:
    """The response as a Reply, if it has to be read first; else None, after it was relayed."""
    endpoint = forwarded.match.endpoint
    is_billed = endpoint.model_place != "" and endpoint.find_cost(request.method) != "free"
    response = await send_request(
        gateway_request, upstream, gateway_request.body.data, request.method, is_billed=is_billed
    )
    if isinstance(response, TransportError):
        return error_replies.transport_error(gateway_request, upstream, response).reply
    data: bytes | None = None
    if response.status >= 300 or any(reads(forwarded) for reads in stages.reads_forwarded):
        read = await response.read(MAX_RESPONSE)
        if isinstance(read, TransportError):
            return error_replies.transport_error(gateway_request, upstream, read).reply
        data = read
        if response.status < 300:
            end_forwarded_call(gateway_request, data)
    answer = ForwardedAnswer(upstream, response.status, _passed_headers(upstream, response), data)
    for after in stages.after_forwarded:
        changed = await after(gateway_request, forwarded, answer)
        if isinstance(changed, AttemptFailed):
            response.abort()
            return changed.reply
        answer = changed
    if data is not None:
        return Reply(response.status, answer.headers, data)
    gateway_request.record.status = response.status
    headers = {**answer.headers, **request_id_headers(upstream.codec, gateway_request.record.request_id)}
    await request.start_response(response.status, headers)
    await _relay_body(
        gateway_request, request, response, endpoint.cost == "tokens" and gateway_request.running.counts_use
    )
    return None


async def _relay_body(
    gateway_request: GatewayRequest, request: ClientRequest, response: UpstreamResponse, has_text: bool
) -> None:
    end, seen = b"", VisibleText()
    try:
        while True:
            data = await response.read_chunk()
            if isinstance(data, TransportError):
                # The headers are sent, and the body can be anything: only a missing end can tell the client.
                request.abort()
                return
            end = end[-TAIL_SIZE:] + data
            if has_text:
                seen.add(data)
            await request.send_body(data, more=bool(data))
            if not data:
                return
    finally:
        response.abort()
        end_forwarded_call(gateway_request, end, seen.count_tokens())


async def forward_native(request: GatewayRequest, target: Target, path: str, stages: Stages) -> Reply | None:
    """Forward the client's body to another path of a provider of its own protocol. None if it does not have that
    path."""
    codec, target = request.client_codec, request.choose_account(target)
    upstream = replace(request.runtime.choose_upstream(codec, target, False, request.body.has_tools), path=path)
    prepared = await run_by_size(len(request.body.data), lambda: prepare_native_request(request, upstream))
    if isinstance(prepared, Failure):
        return error_replies.error_reply(codec, prepared)
    refused = await ask_hooks(stages.check_written, request, prepared)
    if refused is not None:
        return refused.reply
    response = await send_request(request, upstream, prepared.body)
    if isinstance(response, TransportError):
        return error_replies.transport_error(request, upstream, response).reply
    data = await response.read(MAX_RESPONSE)
    if isinstance(data, TransportError):
        return error_replies.transport_error(request, upstream, data).reply
    end_forwarded_call(request, data, estimate_text_tokens(len(data)))
    if response.status in (404, 405, 501):
        return None
    headers = client_response_headers(request, upstream, response.headers, ())
    return Reply(response.status, headers, data)


def _make_upstream(
    gateway_request: GatewayRequest, request: ClientRequest, match: PassthroughMatch, named: NamedModel, target: Target
) -> Upstream | None:
    """The upstream with the path of this endpoint. None if the provider's base URL is that of one endpoint, so that it
    has no others."""
    upstream = gateway_request.runtime.upstream_for(Target(target.provider, ""), gateway_request.client_codec, False)
    answer_path = "/" + upstream.path.lstrip("/").partition("/")[2]
    if upstream.address is None or upstream.address.base_path.endswith(answer_path):
        return None
    path = match.path
    if named.place == "path":
        start, end = match.model_span
        path = path[:start] + target.model + path[end:]
    find_path = _find_http(target.provider, gateway_request.client_codec.name).forwarded_path
    path = quote(path if find_path is None else find_path(path, target.model), safe=_SAFE)
    query = drop_credentials(request.query)
    headers = {**upstream.headers, "content-type": named.content_type}
    return replace(upstream, path=f"{path}?{query}" if query else path, headers=headers)


# --- what is allowed ---


def _find_target(
    request: GatewayRequest, endpoint: PassthroughEndpoint, named: NamedModel, earlier: EarlierRequest | None
) -> Target | Failure | None:
    """The provider of the earlier request, or of the model that the request names. If it names none that is known: the
    first that speaks the client's protocol."""
    key, protocol = request.caller.key, request.client_codec.name
    if earlier is not None:
        started_at = request.runtime.config.providers.get(earlier.provider)
        found = (Target(started_at, ""),) if started_at is not None else ()
        return next(iter(keep_allowed(found, key)), None)
    if named.name:
        targets = request.runtime.router.route(named.name, key)
        if not isinstance(targets, Failure):
            provider = targets[0].provider
            if provider.embedded:
                return None
            if protocol in provider.protocols:
                http = _find_http(provider, protocol)
                return targets[0] if endpoint in http.passthrough_endpoints else _refuse_missing(provider, http)
            message = (
                f"the provider `{provider.name}` of this model does not have this endpoint: "
                f"it does not speak {protocol}, and this path is only forwarded, not translated"
            )
            return Failure("not_found", message, 404)
        if targets.kind != "not_found":
            return targets
    elif endpoint.model_place and key is not None and key.is_restricted:
        message = f"the key `{key.name}` is limited to certain models, and this request does not name one"
        return Failure("permission", message, 403)
    speaker = request.runtime.router.find_speaker(protocol, key, endpoint)
    return Target(speaker, strip_collection(speaker, named.name)) if speaker is not None else None


def _find_http(provider: Provider, protocol: str) -> Http:
    """What the provider has in this protocol: a cloud has it in other places."""
    return codec_with_quirks(protocol, provider.quirks, provider.platform).http


def _refuse_missing(provider: Provider, http: Http) -> Failure:
    """Why nothing is sent to a cloud that does not have the endpoint."""
    known = [*http.fixed_endpoints, *(one.path for one in http.passthrough_endpoints)]
    what = f"the provider `{provider.name}` of this model does not have this endpoint"
    return Failure("not_found", f"{what}; in this protocol it has: {', '.join(known)}", 404)


def _refuse_query(request: ClientRequest) -> Failure | None:
    steering = find_steering_key(request.query)
    if not steering:
        return None
    message = f"`{steering}` in the query could choose another credential, model or method; leave it out"
    return Failure("invalid", message, 400, "", steering)


async def _refuse_inner_models(request: GatewayRequest, named: NamedModel) -> Failure | None:
    key, router = request.caller.key, request.runtime.router
    if key is None or not key.is_restricted or not named.body.members:
        return None
    body, has_outer = named.body, named.place == "body" and bool(named.name)
    return await run_by_size(len(body.data), lambda: refuse_inner_models(router, body, named.name, key, has_outer))


async def _refuse_unjudged_tools(
    request: GatewayRequest, endpoint: PassthroughEndpoint, body: ClientBody
) -> Failure | None:
    """Rules for tools are not applied to what is only forwarded: where there are some, it cannot have tools. Uploads
    are files."""
    is_file = endpoint.path.startswith(UPLOAD_PREFIX)
    if is_file or not request.runtime.policy.rules or not body.data.lstrip().startswith(b"{"):
        return None
    try:
        found = await run_by_size(len(body.data), lambda: find_unjudged_tools(body.codec.request_members, body.judge()))
    except Malformed as bad:
        return Failure("invalid", str(bad), 400, param=bad.path)
    if found is None:
        return None
    what = "this gateway has rules for tools ([[policy]]), and they cannot be applied to tools at this endpoint"
    place = json_pointer(found)
    return Failure("permission", f"{what}; leave `{place}` out", 403, param=place)


def _refuse_endpoint(
    request: GatewayRequest, endpoint: PassthroughEndpoint, named: NamedModel, provider: Provider
) -> Failure | None:
    key = request.caller.key
    if provider.forward_auth and not request.caller.provider_credential:
        return Failure("authentication", f"the provider `{provider.name}` needs your own key for it", 401)
    if endpoint.runs_models and key is not None and key.is_restricted:
        what = f"the key `{key.name}` is limited to certain models, and this endpoint can use others"
        return Failure("permission", what, 403)
    if endpoint.runs_models and request.runtime.policy.rules:
        what = "this gateway has rules for tools ([[policy]]), and they cannot be applied to what this endpoint runs"
        return Failure("permission", what, 403)
    return refuse_names(named.body.codec, named.body.names, key, bool(request.runtime.policy.rules))


# --- the response ---


def end_forwarded_call(request: GatewayRequest, end: bytes, visible_tokens: int = 0) -> None:
    """Record what an answer that is not read has used, as far as its end says it. For limits: else at least what was
    sent, and what the client has seen."""
    record = request.record
    if request.running.open_call is None:
        return
    usage = find_usage(request.client_codec.http.forwarded_usage, end[-TAIL_SIZE:])
    record.answer.usage = usage if usage is not None and is_believable(usage.input) else None
    request.runtime.telemetry.end_call(request.running, record.answer.usage)
    if record.answer.usage is None and request.running.counts_use:
        record.costs.calls[-1].least = Usage(estimate_body_tokens(request.body.data), visible_tokens)


def _passed_headers(upstream: Upstream, response: UpstreamResponse) -> dict[str, str]:
    is_returned = RETURNED_HEADERS[upstream.codec.name].contains
    passed = {name: value for name, value in response.headers.items() if name in PASSED_HEADERS or is_returned(name)}
    return passed | {PROVIDER_HEADER: upstream.reply_headers[PROVIDER_HEADER]}
