"""Which protocol a client speaks, from the path it asks for and what it sends with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from difflib import get_close_matches
from typing import Any
from urllib.parse import parse_qsl, unquote

from msgspec.structs import replace

from toolwire.core.codec import Codec, EndpointMatch, ModelInfo
from toolwire.core.ir import EMPTY_MAPPING, Failure
from toolwire.core.json_values import Malformed, decode, encode, expect_object
from toolwire.gateway.mcp.servers import McpServers
from toolwire.gateway.pipeline import error_replies
from toolwire.gateway.pipeline.call import AttemptFailed, GatewayCall, Reply, ResolvedHead, StartedStream
from toolwire.gateway.pipeline.fallback import attempts_header
from toolwire.gateway.pipeline.headers import JSON_HEADERS, recognise_agent, request_id_headers
from toolwire.gateway.pipeline.passthrough import NO_PROVIDER, pass_request_through
from toolwire.gateway.pipeline.pipeline import Pipeline, count_tokens
from toolwire.gateway.pipeline.relay import ClientStream
from toolwire.gateway.pipeline.route import Target, Unroutable
from toolwire.gateway.pipeline.runtime import Runtime
from toolwire.gateway.responses_state.background import BackgroundJob, StreamInterrupted
from toolwire.gateway.responses_state.context import NotStoredHere, StateOperation, StreamReplay
from toolwire.gateway.responses_state.endpoints import run_operation
from toolwire.gateway.responses_state.service import ResponsesService
from toolwire.gateway.server.access import Caller
from toolwire.gateway.server.client_request import ClientRequest
from toolwire.gateway.server.request_body import peek_body
from toolwire.gateway.store.repository import owner_of
from toolwire.gateway.telemetry.metrics import CONTENT_TYPE
from toolwire.gateway.telemetry.record import ExchangeCapture, ExchangeRecord
from toolwire.gateway.telemetry.telemetry import Telemetry
from toolwire.protocols import CODECS


class ProtocolDetector:
    """All endpoints of all rooms, in tables that are made once."""

    def __init__(self) -> None:
        self.codecs = tuple(CODECS.values())
        self.post_endpoints: dict[str, tuple[Codec, EndpointMatch]] = {}
        for room in self.codecs:
            for path, asked in room.http.fixed_endpoints.items():
                self.post_endpoints.setdefault(path, (room, asked))
        self._dynamic_endpoints = [
            (room, room.http.match_endpoint) for room in self.codecs if room.http.match_endpoint is not None
        ]
        self._model_list_paths = {path for room in self.codecs for path in room.http.model_list_paths}

    def find_endpoint(self, path: str, query: str) -> tuple[Codec, EndpointMatch] | None:
        """What a POST to this path asks for, and in whose protocol."""
        found = self.post_endpoints.get(path)
        if found is not None:
            return found
        for room, ask in self._dynamic_endpoints:
            dynamic = ask(path, query)
            if dynamic is not None:
                return room, dynamic
        return None

    def find_model_path(self, path: str) -> str | None:
        """Is this a list of models ("") or one of them (its name)?"""
        for start in self._model_list_paths:
            if path.rstrip("/") == start:
                return ""
            if path.startswith(f"{start}/"):
                return path[len(start) + 1 :]
        return None

    def guess_codec(self, path: str, query: str, headers: Mapping[str, str]) -> Codec:
        """The room whose clients send such things; the first one where nothing tells."""
        keys = {pair.partition("=")[0] for pair in query.split("&")} if query else set()
        return max(self.codecs, key=lambda room: self._match_score(room, path, headers, keys))

    @staticmethod
    def _match_score(codec: Codec, path: str, headers: Mapping[str, str], query_keys: set[str]) -> tuple[bool, int]:
        signs = codec.http.identifying_names
        signed = not signs.isdisjoint(headers) or not signs.isdisjoint(query_keys)
        return signed, max((len(family) for family in codec.http.path_prefixes if path.startswith(family)), default=0)

    def suggest_path(self, path: str) -> str:
        """The endpoint that was probably meant."""
        found = get_close_matches(path, self.post_endpoints, 1, 0.5)
        return found[0] if found else ""


TEXT_HEADERS = {"content-type": "text/plain; charset=utf-8"}
METRICS_HEADERS = {"content-type": CONTENT_TYPE}
_NO_HEADERS: Mapping[str, str] = {}


class Routes:
    """Serves one configuration."""

    def __init__(
        self,
        runtime: Runtime,
        pipeline: Pipeline,
        telemetry: Telemetry,
        protocol_detector: ProtocolDetector,
        responses_service: ResponsesService,
        mcp_servers: McpServers,
    ) -> None:
        self.runtime = runtime
        self._pipeline = pipeline
        self._attempt_runner = pipeline.attempt_runner
        self._telemetry = telemetry
        self._protocol_detector = protocol_detector
        self._responses_service = responses_service
        self._mcp_servers = mcp_servers
        self._max_body = runtime.config.server.max_body
        self._may_hide_calls = bool(mcp_servers) or bool(runtime.policy)
        rooms = protocol_detector.codecs if responses_service.repository.is_enabled else ()
        self._stored_seal_protocols = frozenset(
            room.name for room in rooms if self._may_hide_calls or not room.constraints.seal_slots
        )
        """Protocols whose clients cannot carry all of an answer themselves."""
        self.public_pages: Mapping[str, Callable[[], Reply]] = {
            "/livez": lambda: Reply(200, TEXT_HEADERS, b"ok\n"),
            "/readyz": lambda: (
                Reply(503, TEXT_HEADERS, b"stopping\n") if pipeline.is_stopping() else Reply(200, TEXT_HEADERS, b"ok\n")
            ),
        }
        """Pages that everybody may see: they tell nothing."""

    def serve_request(
        self, request: ClientRequest, head: ResolvedHead, caller: Caller, record: ExchangeRecord
    ) -> Coroutine[Any, Any, None]:
        """Answer a visitor that was let in."""
        headers, clock, asked = request.headers, request.clock, head.endpoint
        call = GatewayCall(
            self.runtime, head.codec, caller, record, headers, clock, head.upstream_headers, record.started_at
        )
        if asked is None:
            return self._serve_other_path(request, call)
        return (self._serve_token_count if asked.operation == "count" else self._serve_generation)(request, call, asked)

    async def _serve_other_path(self, request: ClientRequest, call: GatewayCall) -> None:
        room, record = call.client_codec, call.record
        endpoint = self._protocol_detector.find_endpoint(request.path, request.query) is not None
        answer = (
            _wrong_method_reply(request, room) if endpoint else self._gateway_page(request, room, call.caller, record)
        )
        if answer is None:
            operation = self._responses_service.match_operation(room, request.method, request.path)
            if operation is not None:
                await self._serve_state_operation(request, call, operation)
                return
            answer = await pass_request_through(call, request, self._attempt_runner)
            if answer is None:
                return
            if answer is NO_PROVIDER:
                answer = self._unknown_path_reply(request, room)
        await self._send_reply(request, room, record, answer)

    # --- answers ---

    async def _serve_generation(self, request: ClientRequest, call: GatewayCall, endpoint: EndpointMatch) -> None:
        targets = self._read_call(
            call, endpoint, request.buffered_body(self._max_body) or await request.read_body(self._max_body)
        )
        if not isinstance(targets, tuple):
            await self._send_failure(request, call, targets)
            return
        request.watch_disconnect(self.runtime.cancels_on_disconnect)
        client = call.client_codec
        if client.name in self._stored_seal_protocols:
            call.signature_store = self._responses_service.signatures.for_owner(owner_of(call.caller.key))
        needs_state = self._responses_service.may_need_state(call)
        begun = (
            await self._begin_stateful_call(call, targets, needs_state) if needs_state or self._may_hide_calls else None
        )
        got = await self._pipeline.request_answer(call, targets) if begun is None else begun
        if isinstance(got, Reply):
            whole = got if call.recorder is None else await call.recorder.save_reply(got)
            record, name = call.record, client.http.request_id_header
            more = self._record_reply(request, record, whole)
            if not request.send_reply_now(whole, record.request_id, name, more):
                await request.send_reply(whole, {**more, **request_id_headers(client, record.request_id)})
        elif isinstance(got, StartedStream):
            await self._send_stream(request, call, got)
        elif isinstance(got, AttemptFailed):
            await self._send_failure(
                request, call, error_replies.stream_failure_for_agent(call, await self._record_failed_reply(call, got))
            )
        else:
            await self._send_frames(request, call, got.follow_stream(-1))

    async def _begin_stateful_call(
        self, call: GatewayCall, targets: tuple[Target, ...], wants_state: bool
    ) -> Reply | AttemptFailed | BackgroundJob | None:
        """What a client may want besides an answer, and what happens behind its back."""
        if self._may_hide_calls:
            call.expect_hidden_calls = True
            if self._mcp_servers:
                await self._add_gateway_tools(call, targets[0])
        return await self._responses_service.prepare_call(call, targets, self._pipeline) if wants_state else None

    def _read_call(
        self, call: GatewayCall, endpoint: EndpointMatch, body: bytes | Failure
    ) -> tuple[Target, ...] | AttemptFailed:
        """What the body asks for, and where that is."""
        record, telemetry = call.record, self._telemetry
        if not isinstance(body, bytes):
            return error_replies.gateway_error(call, body)
        record.bytes_in = len(body)
        if telemetry.wants_bodies:
            record.request_body = body
        if telemetry.wants_capture:
            record.capture = ExchangeCapture(body)
        peek = self._responses_service.peek_body(call.client_codec, body) or peek_body(body)
        if peek is None:
            return error_replies.gateway_error(call, _describe_malformed_body(call.client_codec, body))
        call.body, call.peek = body, peek
        call.model = record.requested_model = endpoint.model or peek.model
        if peek.stream if endpoint.stream is None else endpoint.stream:
            call.stream = record.stream = True
        if endpoint.framing:
            call.framing = endpoint.framing
        return self._pipeline.route_call(call)

    async def _add_gateway_tools(self, call: GatewayCall, target: Target) -> None:
        """Tools for the model that are run here."""
        key = call.caller.key
        models = (call.model, target.model)
        agents = recognise_agent(call.headers.get("user-agent", ""))
        clients = (call.client_codec.name, key.name if key is not None else "", *agents)
        await self._mcp_servers.start_servers(models, clients)
        standing = await self._find_substitutes(call)
        call.gateway_tools = self._mcp_servers.make_interceptor(models, clients, (), standing)

    async def _find_substitutes(self, call: GatewayCall) -> Mapping[str, Any]:
        """What stands in for tools of a provider, where the request has such."""
        wanted = self.runtime.config.translate.substitutes
        if not wanted or not any(word in call.body for word in call.client_codec.http.provider_tool_markers):
            return EMPTY_MAPPING
        return await self._mcp_servers.find_substitutes(wanted)

    async def _send_stream(self, request: ClientRequest, call: GatewayCall, started: StartedStream) -> None:
        http, record, server = call.client_codec.http, call.record, self.runtime.config.server
        framing = http.make_framing_converter(call.framing) if call.framing else None
        kind = "application/json" if framing is not None else http.stream_content_type
        headers = {
            **started.headers,
            **attempts_header(record.attempts),
            **request_id_headers(call.client_codec, record.request_id),
        }
        await request.start_response(200, {**headers, "content-type": kind, "cache-control": "no-cache"})
        record.status, record.first_byte = 200, request.clock()
        outlet = ClientStream(request, framing, b"" if framing is not None else http.heartbeat, server.heartbeat)
        outlet.start_heartbeat()
        await self._pipeline.relay_stream(
            call, started, outlet if record.capture is None else record.capture.capture_sink(outlet)
        )

    async def _send_frames(self, request: ClientRequest, call: GatewayCall, frames: AsyncIterator[bytes]) -> None:
        """A stream that is made elsewhere, as it comes."""
        http, record = call.client_codec.http, call.record
        headers = {"content-type": http.stream_content_type, "cache-control": "no-cache"}
        await request.start_response(200, {**headers, **request_id_headers(call.client_codec, record.request_id)})
        record.status, record.first_byte, record.stream = 200, request.clock(), True
        outlet = ClientStream(request, None, http.heartbeat, self.runtime.config.server.heartbeat)
        try:
            async for frame in frames:
                outlet.start_heartbeat()
                if not outlet.write_nowait(frame):
                    await outlet.drain()
            await outlet.end()
        except StreamInterrupted:
            request.abort()
        finally:
            outlet.close()

    async def _serve_state_operation(
        self, request: ClientRequest, call: GatewayCall, operation: StateOperation
    ) -> None:
        """A request about a stored response or conversation."""
        call.record.operation = "responses_state"
        context = self._responses_service.make_context(self._pipeline, call, operation, request.query)
        body = await request.read_body(self._max_body)
        bad = (
            error_replies.error_reply(call.client_codec, body) if isinstance(body, Failure) else context.set_body(body)
        )
        if bad is not None or isinstance(body, Failure):
            await self._send_reply(request, call.client_codec, call.record, bad or NO_PROVIDER)
            return
        request.watch_disconnect(self.runtime.cancels_on_disconnect)
        got = await run_operation(context)
        if isinstance(got, StreamReplay):
            await self._send_frames(request, call, got.frames)
        elif isinstance(got, Reply):
            await self._send_reply(request, call.client_codec, call.record, got)
        elif isinstance(got, NotStoredHere):
            passed = await pass_request_through(call, request, self._attempt_runner, body)
            if passed is not None:
                answer = self._unknown_path_reply(request, call.client_codec) if passed is NO_PROVIDER else passed
                await self._send_reply(request, call.client_codec, call.record, answer)

    @staticmethod
    async def _record_failed_reply(call: GatewayCall, failed: AttemptFailed) -> AttemptFailed:
        """An answer that says itself that it failed is kept as any other."""
        if call.recorder is None or failed.reply.status != 200:
            return failed
        return replace(failed, reply=await call.recorder.save_reply(failed.reply))

    async def _send_failure(self, request: ClientRequest, call: GatewayCall, failed: AttemptFailed) -> None:
        call.record.failure = failed.failure.kind
        await self._send_reply(request, call.client_codec, call.record, failed.reply)

    def _send_reply(
        self, request: ClientRequest, codec: Codec, record: ExchangeRecord, reply: Reply
    ) -> Coroutine[Any, Any, None]:
        return request.send_reply(
            reply, {**self._record_reply(request, record, reply), **request_id_headers(codec, record.request_id)}
        )

    def _record_reply(self, request: ClientRequest, record: ExchangeRecord, reply: Reply) -> Mapping[str, str]:
        """The headers that an answer gets besides its own and its id, when it is noted."""
        record.status, record.first_byte = reply.status, request.clock()
        if self._telemetry.wants_bodies:
            record.response_body = reply.body
        if record.capture is not None:
            record.capture.add_client_output(reply.body)
        return _NO_HEADERS if len(record.attempts) < 2 else attempts_header(record.attempts)

    # --- counts ---

    async def _serve_token_count(self, request: ClientRequest, call: GatewayCall, endpoint: EndpointMatch) -> None:
        call.record.operation = "count_tokens"
        targets = self._read_call(call, endpoint, await request.read_body(self._max_body))
        call.stream = False
        request.watch_disconnect(self.runtime.cancels_on_disconnect)
        answer = targets.reply if isinstance(targets, AttemptFailed) else await self._count_tokens(call, targets)
        await self._send_reply(request, call.client_codec, call.record, answer)

    async def _count_tokens(self, call: GatewayCall, targets: tuple[Target, ...]) -> Reply:
        """What the request only refers to is counted too, and what the model is given besides."""
        if self._mcp_servers:
            await self._add_gateway_tools(call, targets[0])
        refusal = await self._responses_service.expand_references(call, targets)
        return await count_tokens(call, targets, self._attempt_runner) if refusal is None else refusal.reply

    # --- pages ---

    def _gateway_page(
        self, request: ClientRequest, codec: Codec, caller: Caller, record: ExchangeRecord
    ) -> Reply | None:
        """What can be answered at once; None for a path that may pass through."""
        if request.path == "/metrics":
            record.operation = "metrics"
            return Reply(200, METRICS_HEADERS, self._telemetry.metrics_text())
        if request.method not in ("GET", "HEAD"):
            return None
        name = self._protocol_detector.find_model_path(request.path)
        if name is None:
            return None
        record.operation = "models"
        return (
            self._list_models(codec, caller, request.query)
            if not name
            else self._show_model(codec, caller, unquote(name))
        )

    def _list_models(self, codec: Codec, caller: Caller, query: str) -> Reply:
        cards = self.runtime.router.list_models(caller.key)
        return Reply(200, JSON_HEADERS, encode(codec.http.write_model_list(cards, dict(parse_qsl(query)))))

    def _show_model(self, codec: Codec, caller: Caller, name: str) -> Reply:
        for card in self.runtime.router.list_models(caller.key):
            if card.id == name:
                return Reply(200, JSON_HEADERS, encode(codec.http.write_model_entry(card)))
        targets = self.runtime.router.route(name, caller.key)
        if isinstance(targets, Unroutable):
            return error_replies.error_reply(
                codec, Failure(targets.kind, targets.message, 0, "model_not_found", "model")
            )
        return Reply(200, JSON_HEADERS, encode(codec.http.write_model_entry(ModelInfo(name, targets[0].provider.name))))

    def _unknown_path_reply(self, request: ClientRequest, codec: Codec) -> Reply:
        near = self._protocol_detector.suggest_path(request.path)
        hint = (
            f"did you mean POST {near}?" if near else f"there is: {', '.join(self._protocol_detector.post_endpoints)}"
        )
        what = f"nothing is served at {request.method} {request.path[:200]}"
        return error_replies.error_reply(codec, Failure("not_found", f"{what}; hint: {hint}", 404))


def _describe_malformed_body(codec: Codec, body: bytes) -> Failure:
    try:
        codec.read_request(expect_object(decode(body), None))
    except Malformed as bad:
        return Failure("invalid", str(bad), 400, param=bad.path)
    return Failure("invalid", "the model must be a string and stream true or false", 400)


def _wrong_method_reply(request: ClientRequest, codec: Codec) -> Reply:
    if request.headers.get("upgrade", "").lower() == "websocket":
        return refuse_upgrade(codec)
    answer = error_replies.error_reply(
        codec, Failure("invalid", f"{request.path} takes POST, not {request.method}", 405)
    )
    return Reply(405, {**answer.headers, "allow": "POST"}, answer.body)


def refuse_upgrade(codec: Codec) -> Reply:
    """Clients that are told so at once use HTTP."""
    failure = Failure("invalid", "WebSockets are not spoken here; send the same request with POST", 426)
    answer = error_replies.error_reply(codec, failure)
    return Reply(426, answer.headers, answer.body)
