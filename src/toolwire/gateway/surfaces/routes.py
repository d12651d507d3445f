"""The endpoints of the gateway: finds the protocol and the operation of a request, checks its client's key, and calls
the pipeline or another handler."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from difflib import get_close_matches
from functools import partial
from math import inf
from typing import Any
from urllib.parse import parse_qsl

from msgspec.structs import replace

from toolwire.core import tokens
from toolwire.core.codec import Codec, EndpointMatch, ModelInfo
from toolwire.core.ir import Failure, replace_fields
from toolwire.core.json_values import Json, Malformed, decode, encode, parse_object
from toolwire.core.version import VERSION
from toolwire.gateway.exchange import error_replies
from toolwire.gateway.exchange.caller import Caller
from toolwire.gateway.exchange.client_body import NO_BODY
from toolwire.gateway.exchange.gateway_request import (
    Alias,
    AttemptFailed,
    GatewayRequest,
    PassthroughMatch,
    ResolvedHead,
    Upstream,
)
from toolwire.gateway.exchange.session import find_named_session
from toolwire.gateway.features.keys.access import AccessControl, refuse_key
from toolwire.gateway.features.provider_objects.upload_sessions import UploadSessions
from toolwire.gateway.features.responses.endpoints import NotStoredHere, StateOperation, run_operation
from toolwire.gateway.features.responses.service import ResponsesService
from toolwire.gateway.http.client_request import ClientRequest
from toolwire.gateway.http.connection import TransportError
from toolwire.gateway.http.headers import HOPS_HEADER, JSON_HEADERS, REQUEST_ID_HEADER
from toolwire.gateway.http.large_work import LARGE_BODY, run_by_size
from toolwire.gateway.http.messages import Reply
from toolwire.gateway.http.redact import hide_secrets, redact, safe_name
from toolwire.gateway.models.listing import WAIT_SECONDS, ModelLists, ProviderList, header_values
from toolwire.gateway.models.merge import describe_model, filter_models, may_use_provider, merge_models
from toolwire.gateway.pipeline.attempt import MAX_RESPONSE, send_request
from toolwire.gateway.pipeline.passthrough import NO_PROVIDER, pass_request_through
from toolwire.gateway.pipeline.pipeline import Pipeline
from toolwire.gateway.pipeline.prepare import active_policy, seal_maker
from toolwire.gateway.pipeline.relay import relay_answer, send_reply
from toolwire.gateway.settings.address import is_loopback
from toolwire.gateway.settings.client_keys import CHALLENGE_HEADER, PROOF_HEADER
from toolwire.gateway.settings.config import Provider
from toolwire.gateway.settings.router import Target, choose_codec
from toolwire.gateway.store.repository import no_store_failure
from toolwire.gateway.surfaces.signed_requests import (
    check_before_reading,
    check_signature,
    is_signed,
    read_signature,
)
from toolwire.gateway.telemetry.agents import recognise_agent
from toolwire.gateway.telemetry.metrics import CONTENT_TYPE
from toolwire.gateway.telemetry.record import Client, UpstreamNames, find_subagent
from toolwire.gateway.telemetry.running import RunningExchange
from toolwire.protocols import CODECS
from toolwire.translation.exchange import Exchange
from toolwire.translation.options import Options

METRICS_PATH = "/metrics"
READY_PATH = "/readyz"
API_VERSION = "api-version="
"""What Azure wants in the query; other servers do not know it."""
MAX_HOPS = 4
"""Gateways that a request may come through."""
MERGE_BYTES = 256
"""Merging one model into the list takes about as long as reading so many bytes of JSON."""
ONE_MODEL_WAIT_SECONDS = 1.0
TEXT_HEADERS = {"content-type": "text/plain; charset=utf-8"}
VERSION_HEADER = "x-toolwire-version"
OWN_HEADERS = {**TEXT_HEADERS, VERSION_HEADER: VERSION}
"""For clients on this machine, such as `toolwire doctor`. Others need not know the version."""

_is_valid_request_id = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}").fullmatch
"""Request ids of a client that the gateway uses as its own."""
_is_plain_name = re.compile(r"[A-Za-z0-9@][A-Za-z0-9_.:@/+-]{0,63}").fullmatch


def _plain_name(name: str) -> str:
    """A name that a client has chosen for itself, if it is one: it is in the log and in the ledger of costs."""
    return name if _is_plain_name(name) is not None and safe_name(name) == name else ""


class ProtocolDetector:
    """The endpoints of all protocols, in tables that are built once."""

    def __init__(self) -> None:
        self.codecs = tuple(CODECS.values())
        self.post_endpoints: dict[str, tuple[Codec, EndpointMatch]] = {}
        for codec in self.codecs:
            for path, endpoint in codec.http.fixed_endpoints.items():
                self.post_endpoints.setdefault(path, (codec, endpoint))
        self._dynamic_endpoints = [
            (codec, codec.http.match_endpoint) for codec in self.codecs if codec.http.match_endpoint is not None
        ]
        self.model_list_paths = {path for codec in self.codecs for path in codec.http.model_list_paths}
        aliases = {pattern: path for codec in self.codecs for pattern, path in codec.http.path_aliases.items()}
        self._aliases = [(_compile_path(pattern), path) for pattern, path in aliases.items()]
        self._alias_starts = tuple({pattern[: pattern.index("/", 1) + 1] for pattern in aliases})
        self._passthrough_endpoints = [
            (codec, endpoint, _compile_path(endpoint.path))
            for codec in self.codecs
            for endpoint in codec.http.passthrough_endpoints
        ]

    def read_alias(self, path: str, query: str) -> Alias | None:
        """What a cloud's path stands for."""
        if not path.startswith(self._alias_starts):
            return None
        for match, own_path in self._aliases:
            found = match(path)
            if found is not None:
                parts = found.groupdict()
                own_query = "&".join(pair for pair in query.split("&") if not pair.startswith(API_VERSION))
                return Alias(own_path.replace("{rest}", parts.get("rest", "")), own_query, parts.get("deployment", ""))
        return None

    def find_aliased_endpoint(self, alias: Alias) -> tuple[Codec, EndpointMatch] | None:
        found = self.find_endpoint(alias.path, alias.query)
        if found is None or not alias.deployment:
            return found
        return found[0], replace(found[1], model=alias.deployment, ignores_model_in_body=True)

    def find_endpoint(self, path: str, query: str) -> tuple[Codec, EndpointMatch] | None:
        """The protocol and operation of a POST to this path."""
        if path in self.post_endpoints:
            return self.post_endpoints[path]
        matches = ((codec, match(path, query)) for codec, match in self._dynamic_endpoints)
        return next(((codec, endpoint) for codec, endpoint in matches if endpoint is not None), None)

    def find_passthrough(
        self, method: str, path: str, query: str, headers: Mapping[str, str]
    ) -> tuple[Codec, PassthroughMatch] | None:
        """The endpoint that is only forwarded. Several protocols have `/v1/files`: the client's headers tell which."""
        found: dict[Codec, PassthroughMatch] = {}
        for codec, endpoint, pattern in self._passthrough_endpoints:
            matched = pattern(path) if method in endpoint.methods and codec not in found else None
            if matched is not None:
                place = matched.re.groupindex.get("model", 0)
                ids = tuple(text for number, text in enumerate(matched.groups(), 1) if number != place)
                found[codec] = PassthroughMatch(endpoint, path, ids, matched.span(place) if place else (0, 0))
        if not found:
            return None
        codec = self.guess_codec(path, query, headers, tuple(found))
        return codec, found[codec]

    def find_model_path(self, path: str) -> str | None:
        """ "" for the list of models, the name for one of them, None for another path."""
        for start in self.model_list_paths:
            if path == start:
                return ""
            if path.startswith(f"{start}/"):
                return path[len(start) + 1 :]
        return None

    def guess_codec(self, path: str, query: str, headers: Mapping[str, str], codecs: tuple[Codec, ...] = ()) -> Codec:
        """The protocol whose clients send such requests; the first one if nothing tells."""
        sent_names = {*headers, *(pair.partition("=")[0] for pair in query.split("&"))}

        def score(codec: Codec) -> tuple[bool, int]:
            prefixes = (prefix for prefix in codec.http.path_prefixes if path.startswith(prefix))
            return not codec.http.identifying_names.isdisjoint(sent_names), max(map(len, prefixes), default=0)

        return max(codecs or self.codecs, key=score)


def _compile_path(path: str) -> Callable[[str], re.Match[str] | None]:
    return re.compile(
        "".join(_PATH_PIECES.get(piece) or re.escape(piece) for piece in _PLACEHOLDER.split(path))
    ).fullmatch


_PLACEHOLDER = re.compile(r"(\{[a-z]+\})")
_PATH_PIECES: Mapping[str, str] = {
    "{id}": r"([A-Za-z0-9._~@=-]+)",
    "{model}": "(?P<model>.+)",
    "{deployment}": "(?P<deployment>.+?)",
    "{rest}": "(?P<rest>.+)",
    "{version}": "v1(?:alpha|beta|beta1)?",
}


class Routes:
    """The endpoints under one configuration."""

    def __init__(
        self,
        pipeline: Pipeline,
        access: AccessControl,
        detector: ProtocolDetector,
        service: ResponsesService,
        uploads: UploadSessions,
        model_lists: ModelLists,
        describe_readiness: Callable[[str], tuple[int, str]],
    ) -> None:
        """`describe_readiness` gets the address of a client: the status and the text of `/readyz`."""
        self.runtime = pipeline.runtime
        self.access = access
        self._pipeline = pipeline
        self._protocol_detector = detector
        self._responses_service = service
        self._uploads = uploads
        self._model_lists = model_lists
        self._merged_models: tuple[object, tuple[ModelInfo, ...]] = (None, ())
        """All models, with what they were merged from."""
        self._max_body = self.runtime.config.server.max_body
        self.public_pages: Mapping[str, Callable[[ClientRequest], Reply]] = {
            "/livez": partial(_answer_alive, access),
            READY_PATH: lambda request: _write_text_reply(*describe_readiness(request.peer)),
        }
        """Pages without authentication, by path. No method of this object: the two would keep each other alive."""

    def resolve_head(self, request: ClientRequest, now: float) -> ResolvedHead:
        """Match the endpoint and authenticate the client. Requests with the same head share the result, until the
        client's key expires. `now` is Unix time."""
        path, query, headers = request.path, request.query, request.headers
        found = self._protocol_detector.find_endpoint(path, query) if request.method == "POST" else None
        alias = None
        if found is None and (alias := self._protocol_detector.read_alias(path, query)) is not None:
            path, query = alias.path, alias.query
            found = self._protocol_detector.find_aliased_endpoint(alias) if request.method == "POST" else None
        codec, endpoint = found or (self._protocol_detector.guess_codec(path, query, headers), None)
        passthrough = None
        if found is None and (passed := self._protocol_detector.find_passthrough(request.method, path, query, headers)):
            codec, passthrough = passed
        access = self.access
        authenticate = access.authenticate_for_metrics if path == METRICS_PATH else access.authenticate
        caller = authenticate(headers, query, request.peer, now)
        key_name, team, valid_until = "", "", inf
        if isinstance(caller, Failure) and passthrough is not None and not access.has_credential(headers, query):
            started_by = self._uploads.find_key(codec, passthrough, query)
            if caller.kind == "authentication" and started_by is not None:
                caller = refuse_key(started_by, now) or Caller(started_by, valid_until=started_by.expires_at)
        if isinstance(caller, Caller):
            key_name, team = (caller.key.name, caller.key.team) if caller.key is not None else ("", "")
            valid_until = caller.valid_until
            caller = _refuse_target(request) or self._find_loop(headers.get(HOPS_HEADER, "")) or caller
            if key_name and is_signed(headers):
                endpoint, caller = _check_signed(request, endpoint, caller)
        secrets = access.list_credentials(headers, query)
        client_id = headers.get(REQUEST_ID_HEADER, "")
        is_valid = _is_valid_request_id(client_id) is not None
        is_usable = is_valid and hide_secrets(redact(client_id), secrets) == client_id
        request_id = client_id if is_usable else ""  # it is in the log
        user_agent = hide_secrets(headers.get("user-agent", ""), secrets)
        agent, product = recognise_agent(user_agent)
        head = ResolvedHead(
            codec=codec,
            endpoint=endpoint,
            passthrough=passthrough,
            alias=alias,
            caller=caller,
            valid_until=valid_until,
            client=Client(
                address=request.peer,
                method=request.method,
                path=hide_secrets(request.path, secrets),
                key_name=key_name,
                team=team,
                user_agent=user_agent,
                agent=agent or _plain_name(product),
                subagent=_plain_name(hide_secrets(find_subagent(headers), secrets)),
                protocol=codec.name,
                secrets=secrets,
            ),
            request_id=request_id,
            upstream_headers={},
            named_session=find_named_session(headers),
        )
        self.runtime.resolved_heads[request.head_key] = head
        return head

    def _find_loop(self, hops: str) -> Failure | None:
        passed = hops.split(",")
        message = f"the call came through {len(passed)} gateways: they probably call each other"
        if self.runtime.gateway_id in passed:
            message = (
                "this gateway calls itself: the base_url of a provider leads back to it; run `toolwire doctor config`"
            )
        elif len(passed) < MAX_HOPS:
            return None
        return Failure("invalid", message, 508, "loop")

    def serve_request(
        self, request: ClientRequest, head: ResolvedHead, caller: Caller, running: RunningExchange
    ) -> Coroutine[Any, Any, None]:
        endpoint, record = head.endpoint, running.record
        gateway_request = GatewayRequest(
            self.runtime,
            head.codec,
            caller,
            running,
            record,
            request.headers,
            request.clock,
            head.upstream_headers,
            record.started_at,
            request.ticket,
            head.named_session,
            NO_BODY,
        )
        if endpoint is None:
            if head.alias is not None:
                request.path, request.query = head.alias.path, head.alias.query
            return self._serve_other_path(request, gateway_request, head.passthrough)
        if endpoint.operation == "count_tokens":
            return self._serve_token_count(request, gateway_request, endpoint)
        return self._pipeline.serve_request(request, gateway_request, endpoint)

    async def _serve_token_count(
        self, request: ClientRequest, gateway_request: GatewayRequest, endpoint: EndpointMatch
    ) -> None:
        gateway_request.record.asked.operation = "count_tokens"
        read = await self._pipeline.read_request(gateway_request, endpoint, await request.read_body(self._max_body))
        request.watch_disconnect(self.runtime.cancels_on_disconnect)
        if isinstance(read, GatewayRequest):
            gateway_request = replace(read, stream=False)
            reply = await self._count_tokens(gateway_request)
        else:
            reply = read.reply
        await send_reply(request, gateway_request, reply)

    async def _count_tokens(self, request: GatewayRequest) -> Reply:
        targets = self._pipeline.route_request(request)
        if isinstance(targets, AttemptFailed):
            return targets.reply
        extended = await self._pipeline.extend_count(request, targets)
        return extended.reply if isinstance(extended, AttemptFailed) else await count_tokens(extended, targets[0])

    # --- paths that are not endpoints of a protocol for calls ---

    async def _serve_other_path(
        self, request: ClientRequest, gateway_request: GatewayRequest, passthrough: PassthroughMatch | None
    ) -> None:
        """Pages of the gateway, stored responses and conversations, and paths that are only forwarded."""
        codec = gateway_request.client_codec
        page = None
        if passthrough is None:
            page = self._gateway_page(request, gateway_request) or await self._models_page(request, gateway_request)
        if page is not None:
            await send_reply(request, gateway_request, page)
            return
        operation = self._responses_service.match_operation(codec, request.method, request.path)
        if operation is None:
            await self._pass_through(request, gateway_request, passthrough)
        else:
            await self._serve_state_operation(request, gateway_request, operation, passthrough)

    async def _pass_through(
        self,
        request: ClientRequest,
        gateway_request: GatewayRequest,
        passthrough: PassthroughMatch | None,
        body_read: bytes | None = None,
        no_provider: Reply | None = None,
    ) -> None:
        """`no_provider` is the answer where no provider has such a path; without it, the path is unknown."""
        reply: Reply | None = NO_PROVIDER
        if passthrough is not None:
            reply = await pass_request_through(gateway_request, request, passthrough, self._pipeline.stages, body_read)
        if reply is NO_PROVIDER:
            reply = no_provider or self._unknown_path_reply(request, gateway_request.client_codec)
        if reply is not None:
            await send_reply(request, gateway_request, reply)

    async def _serve_state_operation(
        self,
        request: ClientRequest,
        gateway_request: GatewayRequest,
        operation: StateOperation,
        passthrough: PassthroughMatch | None,
    ) -> None:
        """Read, change or delete stored responses and conversations."""
        gateway_request.record.asked.operation = "responses_state"
        context = self._responses_service.make_context(self._pipeline, gateway_request, operation, request.query)
        body = await request.read_body(self._max_body)
        if isinstance(body, Failure):
            await send_reply(request, gateway_request, error_replies.error_reply(gateway_request.client_codec, body))
            return
        request.watch_disconnect(self.runtime.cancels_on_disconnect)
        outcome = await run_operation(context, body)
        if isinstance(outcome, NotStoredHere):
            not_kept = error_replies.error_reply(gateway_request.client_codec, no_store_failure(404))
            await self._pass_through(request, gateway_request, passthrough, body, not_kept)
        else:
            await relay_answer(request, gateway_request, outcome)

    def metrics_reply(self, request: ClientRequest) -> Reply:
        """The answer at the address of the metrics, where there is nothing else."""
        if request.path != METRICS_PATH or request.method not in ("GET", "HEAD"):
            return Reply(404, TEXT_HEADERS, b"only GET /metrics is here\n")
        if not self.access.may_read_metrics(request.headers):
            return Reply(401, TEXT_HEADERS, b"the metrics need their key\n")
        return self._metrics_page()

    def _metrics_page(self) -> Reply:
        return Reply(200, {"content-type": CONTENT_TYPE}, self.runtime.telemetry.metrics_text())

    def _gateway_page(self, request: ClientRequest, gateway_request: GatewayRequest) -> Reply | None:
        if self._protocol_detector.find_endpoint(request.path, request.query) is not None:
            return _wrong_method_reply(request, gateway_request.client_codec)
        if request.path == METRICS_PATH and not self.runtime.config.server.metrics_listen:
            gateway_request.record.asked.operation = "metrics"
            return self._metrics_page()
        return None

    async def _models_page(self, request: ClientRequest, gateway_request: GatewayRequest) -> Reply | None:
        """The list of models, or one of them, in the client's dialect; None for another path."""
        if request.method not in ("GET", "HEAD"):
            return None
        name = self._protocol_detector.find_model_path(request.path)
        if name is None:
            return None
        gateway_request.record.asked.operation = "models"
        return await (
            self._show_model(gateway_request, name) if name else self._list_models(gateway_request, request.query)
        )

    async def _list_models(self, request: GatewayRequest, query: str) -> Reply:
        router, key = self.runtime.router, request.caller.key
        lists = await self._load_lists(request, self.runtime.config.providers.values(), WAIT_SECONDS)
        merged_from = (self._model_lists.version, [one.models is not None for one in lists])
        if self._merged_models[0] != merged_from:
            size = sum(len(one.models or ()) for one in lists)
            models = await run_by_size(size * MERGE_BYTES, lambda: merge_models(router, lists))
            self._merged_models = (merged_from, models)
        shown = filter_models(router, self._merged_models[1], key)
        body = request.client_codec.http.write_model_list(shown, dict(parse_qsl(query)))
        usable = [one for one in lists if may_use_provider(one.provider, key)]
        headers = header_values(usable)
        return Reply(200, {**JSON_HEADERS, **headers} if headers else JSON_HEADERS, encode(body))

    def _load_lists(
        self, request: GatewayRequest, providers: Iterable[Provider], seconds: float
    ) -> Coroutine[Any, Any, tuple[ProviderList, ...]]:
        hops = request.headers.get(HOPS_HEADER)
        passed = f"{hops},{self.runtime.gateway_id}" if hops else self.runtime.gateway_id
        return self._model_lists.load(self.runtime.senders, providers, request.clock, passed, seconds)

    async def _show_model(self, request: GatewayRequest, name: str) -> Reply:
        codec, router = request.client_codec, self.runtime.router
        targets = router.route(name, request.caller.key)
        if isinstance(targets, Failure):
            return error_replies.error_reply(codec, replace(targets, code="model_not_found"))
        lists = await self._load_lists(request, (targets[0].provider,), ONE_MODEL_WAIT_SECONDS)
        model = describe_model(router, name, targets[0], lists)
        return Reply(200, JSON_HEADERS, encode(codec.http.write_model_entry(model)))

    def _unknown_path_reply(self, request: ClientRequest, codec: Codec) -> Reply:
        detector = self._protocol_detector
        if request.path in detector.model_list_paths:
            return _wrong_method_reply(request, codec, "GET")
        endpoints = [f"POST {path}" for path in detector.post_endpoints]
        endpoints += [f"GET {path}" for path in sorted(detector.model_list_paths)]
        near = get_close_matches(f"{request.method} {request.path[:200]}", endpoints, 1, 0.5)
        hint = f"did you mean {near[0]}?" if near else f"endpoints: {', '.join(endpoints)}"
        message = f"there is no endpoint {request.method} {request.path[:200]}; hint: {hint}"
        return error_replies.error_reply(codec, Failure("not_found", message, 404))


def _answer_alive(access: AccessControl, request: ClientRequest) -> Reply:
    headers = OWN_HEADERS if is_loopback(request.peer) else TEXT_HEADERS
    proof = access.answer_challenge(request.headers.get(CHALLENGE_HEADER, ""))
    return Reply(200, {**headers, PROOF_HEADER: proof} if proof else headers, b"ok\n")


def _write_text_reply(status: int, text: str) -> Reply:
    return Reply(status, TEXT_HEADERS, f"{text}\n".encode())


def _refuse_target(request: ClientRequest) -> Failure | None:
    if not request.target_problem:
        return None
    return Failure("invalid", f"the target of the request cannot be used: {request.target_problem}", 400)


def _check_signed(
    request: ClientRequest, endpoint: EndpointMatch | None, caller: Caller | Failure
) -> tuple[EndpointMatch | None, Caller | Failure]:
    """The endpoint of a request that is signed with a client's key, and its caller, or why it is refused."""
    signature = read_signature(request, endpoint.model if endpoint is not None else "")
    if isinstance(signature, Failure):
        return endpoint, signature
    if endpoint is not None:
        return check_before_reading(signature, endpoint), caller
    if request.method in ("GET", "HEAD", "DELETE"):
        return None, check_signature(signature, b"") or caller
    what = "signed requests are taken by the endpoints of models only; send the key as a bearer token"
    return None, Failure("permission", what, 403)


def _wrong_method_reply(request: ClientRequest, codec: Codec, method: str = "POST") -> Reply:
    if request.headers.get("upgrade", "").lower() == "websocket":
        return refuse_upgrade(codec)
    failure = Failure("invalid", f"{request.path} takes {method}, not {request.method}", 405)
    reply = error_replies.error_reply(codec, failure)
    return Reply(405, {**reply.headers, "allow": method}, reply.body)


def refuse_upgrade(codec: Codec) -> Reply:
    """Refuse a WebSocket. Clients that get this at once use HTTP."""
    failure = Failure("invalid", "WebSockets are not supported; send the same request with POST", 426)
    return replace(error_replies.error_reply(codec, failure), status=426)


# --- token counts: from the provider where it counts, else estimated here ---


ESTIMATE_HEADERS = {"x-toolwire-estimate": "tokens"}
"""Marks a count as an estimate: no protocol has a field for that."""


async def count_tokens(gateway_request: GatewayRequest, target: Target) -> Reply:
    endpoint = gateway_request.client_codec.http.token_count
    if endpoint is None:
        raise ValueError(f"{gateway_request.client_codec.name} has no endpoint for token counts")
    try:
        body = await run_by_size(
            len(gateway_request.body.data), lambda: endpoint.read_body(gateway_request.body.decode())
        )
        request = await run_by_size(
            len(gateway_request.body.data), lambda: gateway_request.client_codec.read_request(body)
        )
    except Malformed as bad:
        return error_replies.error_reply(
            gateway_request.client_codec, Failure("invalid", str(bad), 400, param=bad.path)
        )
    codec = choose_codec(target, gateway_request.client_codec, lambda: bool(request.tools))
    target = gateway_request.choose_account(target)
    upstream = gateway_request.runtime.upstream_for(target, codec, False)
    record = gateway_request.record
    record.upstream = UpstreamNames(target.provider.name, protocol=codec.name, model=target.model)
    count = await _ask_provider(gateway_request, upstream, body)
    if count is not None:
        return Reply(200, upstream.reply_headers, encode(endpoint.write_count(count)))
    record.answer.is_estimated = True
    size = len(gateway_request.body.data)
    if gateway_request.gateway_tools is not None:
        request = replace_fields(request, tools=(*request.tools, *gateway_request.gateway_tools.tools))
        size = LARGE_BODY
    estimate = await run_by_size(size, lambda: tokens.estimate_tokens(request))
    return Reply(200, {**JSON_HEADERS, **ESTIMATE_HEADERS}, encode(endpoint.write_count(estimate)))


async def _ask_provider(request: GatewayRequest, upstream: Upstream, body: Json) -> int | None:
    """The provider's own count; None if it cannot be asked or gives none."""
    endpoint, provider = upstream.codec.http.token_count, upstream.provider
    if endpoint is None or upstream.address is None or provider.is_key_missing:
        return None
    if provider.forward_auth and not request.caller.provider_credential:
        return None
    options = Options(
        model=upstream.model,
        stream=False,
        maker=seal_maker(request, upstream)[0],
        envelope_keys=request.runtime.envelope_keys_of(request.caller.key),
        policy=active_policy(request, upstream),
        tools=request.gateway_tools.tools if request.gateway_tools is not None else (),
    )
    exchange = Exchange(request.client_codec, upstream.codec, options)

    def write_body() -> bytes:
        translated = parse_object(exchange.translate_request(body).body)
        return encode(endpoint.write_body(translated, upstream.model))

    try:
        size = len(request.body.data) if request.gateway_tools is None else LARGE_BODY
        written = await run_by_size(size, write_body)
    except Malformed:
        return None
    count_upstream = replace(upstream, path=endpoint.path(upstream.model))
    response = await send_request(request, count_upstream, written, is_billed=False)
    if isinstance(response, TransportError):
        return None
    data = await response.read(MAX_RESPONSE)
    if isinstance(data, TransportError) or response.status != 200:
        return None
    try:
        return endpoint.read_count(decode(data))
    except Malformed:
        return None
