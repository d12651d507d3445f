"""The application: every protocol's endpoints on one address, as plain ASGI, so that any server can host it."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from toolwire.core.ir import EMPTY_MAPPING, Failure
from toolwire.gateway.config.config import Config, StoreSettings
from toolwire.gateway.config.load import LiveConfig
from toolwire.gateway.config.problems import Problem, format_problem
from toolwire.gateway.mcp.servers import McpServers
from toolwire.gateway.pipeline.attempt import AttemptRunner
from toolwire.gateway.pipeline.call import ResolvedHead
from toolwire.gateway.pipeline.error_replies import error_reply
from toolwire.gateway.pipeline.headers import HOPS_HEADER, REQUEST_ID_HEADER, request_id_headers
from toolwire.gateway.pipeline.pipeline import Pipeline
from toolwire.gateway.pipeline.runtime import Runtime
from toolwire.gateway.responses_state.service import ResponsesService
from toolwire.gateway.routes import ProtocolDetector, Routes, refuse_upgrade
from toolwire.gateway.server.access import Caller
from toolwire.gateway.server.client_request import AsgiRequest, ClientDisconnected, ClientRequest, Receive, Scope, Send
from toolwire.gateway.store import open_store
from toolwire.gateway.store.repository import StateRepository
from toolwire.gateway.store.store import NoStore
from toolwire.gateway.telemetry.metrics import DIRECTORY_VARIABLE, Metrics
from toolwire.gateway.telemetry.record import ExchangeRecord
from toolwire.gateway.telemetry.telemetry import Telemetry, make_tracer
from toolwire.gateway.upstream.client import UpstreamClient
from toolwire.gateway.upstream.health import ProviderHealth

LogLevel = Literal["info", "warn", "error"]
CONFIG_POLL_SECONDS = 1.0
"""Seconds between two looks at the configuration's file."""
STORE_SWEEP_SECONDS = 600.0
"""Seconds between two looks for what is kept too long."""
MAX_HOPS = 4

_is_valid_request_id = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}").fullmatch
"""Ids of requests that are kept as the client gave them."""


class FixedConfig:
    """A configuration that was given as a value: nothing to read anew."""

    def __init__(self, config: Config) -> None:
        self.current = config

    def reload_if_changed(self, force: bool = False) -> bool:
        return False


class Gateway:
    """One for a process. Needs no start-up: what it lacks it makes with the first request."""

    def __init__(self, config_source: LiveConfig | FixedConfig, telemetry: Telemetry) -> None:
        self._config_source = config_source
        self._telemetry = telemetry
        self._health = ProviderHealth(self._on_provider_cooldown)
        self._protocol_detector = ProtocolDetector()
        self._gateway_id = secrets.token_hex(6)
        self._request_id_prefix = f"req_{self._gateway_id}"
        self._request_counter = itertools.count(1 << 28)  # all of the same length
        self._client: UpstreamClient | None = None
        self._routes: Routes | None = None
        self.is_stopping = False
        """Was it asked to stop? Then `/readyz` says so, and a balancer sends nobody here any more."""
        self._mcp_servers = McpServers(self._on_mcp_event)
        self._store_settings: StoreSettings | None = None
        self._responses_service: ResponsesService | None = None
        self._last_config_check = 0.0
        self._last_store_sweep = 0.0
        self._polling_task: asyncio.Task[None] | None = None

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self._config_source.current

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "http":
            incoming = AsgiRequest(scope, receive, send)
            try:
                await self.handle_request(incoming)
            finally:
                incoming.stop_watching()
        elif kind == "lifespan":
            await self._run_lifespan(receive, send)
        elif kind == "websocket":
            await self._refuse_websocket(scope, receive, send)

    # --- one request ---

    async def handle_request(self, request: ClientRequest) -> None:
        """Answer a request, from whichever server."""
        clock, path, headers = request.clock, request.path, request.headers
        endpoints = self._current_routes(clock)
        if path in endpoints.public_pages:
            await request.send_reply(endpoints.public_pages[path](), {})
            return
        known = request.resolved_heads.get(endpoints.runtime) or self._resolve_head(endpoints.runtime, request)
        room, visitor = known.codec, known.caller
        record = ExchangeRecord(
            request_id=known.request_id or self._request_id_prefix + hex(next(self._request_counter))[2:],  # noqa: FURB116 — it costs half
            started=clock(),
            started_at=time.time(),
            client_address=request.peer,
            method=request.method,
            path=path,
            key_name=known.key_name,
            user_agent=headers.get("user-agent", ""),
            client_protocol=room.name,
        )
        self._telemetry.start_exchange(record, headers)
        try:
            if isinstance(visitor, Caller):
                await endpoints.serve_request(request, known, visitor, record)
            else:
                refusal = error_reply(room, visitor)
                record.status, record.failure = refusal.status, visitor.kind
                await request.send_reply(refusal, request_id_headers(room, record.request_id))
        except ClientDisconnected:
            record.client_disconnected = True
        except asyncio.CancelledError:
            if not request.is_disconnected:
                raise
            _uncancel_current_task()
        finally:
            if request.is_disconnected:
                record.client_disconnected = True
            record.bytes_out = request.bytes_sent
            self._telemetry.finish_exchange(record, clock())

    def _resolve_head(self, runtime: Runtime, request: ClientRequest) -> ResolvedHead:
        """What such a head says under this configuration."""
        path, query, headers = request.path, request.query, request.headers
        found = self._protocol_detector.find_endpoint(path, query) if request.method == "POST" else None
        room, asked = found or (self._protocol_detector.guess_codec(path, query, headers), None)
        given = headers.get(REQUEST_ID_HEADER, "")
        visitor = runtime.access.admit(headers, query, request.peer)
        key = ""
        if isinstance(visitor, Caller):
            key = visitor.key.name if visitor.key is not None else ""
            visitor = self._find_loop(headers.get(HOPS_HEADER, "")) or visitor
        known = ResolvedHead(room, asked, visitor, key, given if _is_valid_request_id(given) else "", {})
        request.resolved_heads.clear()
        request.resolved_heads[runtime] = known
        return known

    async def answer_internal_error(self, request: ClientRequest, error: BaseException) -> None:
        """A fault of our own: the client gets an error of its protocol, the log where it happened."""
        room = self._protocol_detector.guess_codec(request.path, request.query, request.headers)
        self._report_internal_error(error)
        failure = Failure("server", "the gateway made a mistake; its log says where", 500)
        await request.send_reply(error_reply(room, failure), {})

    def _report_internal_error(self, error: BaseException) -> None:
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        place = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace is not None else ""
        text = f"{type(error).__name__}: {error}"
        self._telemetry.log_event("internal_error", level="error", error=text, location=place)

    def _find_loop(self, hops: str) -> Failure | None:
        passed = hops.split(",")
        if self._gateway_id in passed:
            what = "this gateway calls itself: a provider's base_url leads back to it"
            return Failure("invalid", f"{what}; see `toolwire check-config`", 508, "loop")
        if len(passed) >= MAX_HOPS:
            return Failure(
                "invalid", f"the call came through {len(passed)} gateways: they call each other", 508, "loop"
            )
        return None

    # --- configuration ---

    def _current_routes(self, clock: Callable[[], float]) -> Routes:
        """The endpoints for the configuration in force."""
        if self._polling_task is None:
            now = clock()
            if now - self._last_config_check >= CONFIG_POLL_SECONDS:
                self._last_config_check = now
                self.reload_config()
        if self._routes is None or self._routes.runtime.config is not self._config_source.current:
            self._routes = self._build_routes(self._config_source.current)
        return self._routes

    def _build_routes(self, config: Config) -> Routes:
        if self._client is None or (
            self._routes is not None and self._routes.runtime.config.server.timeouts != config.server.timeouts
        ):
            self._client = UpstreamClient(config.server.timeouts)
        secrets_ = [provider.api_key.reveal() for provider in config.providers.values() if provider.api_key]
        secrets_ += [secret for server in config.mcp.values() for secret in server.secrets]
        self._telemetry.configure(config.server, secrets_)
        asking = AttemptRunner(self._client, self._health, self._telemetry, self._gateway_id)
        engine = Pipeline(asking, self._health, self._telemetry, self._report_internal_error, lambda: self.is_stopping)
        return Routes(
            Runtime(config),
            engine,
            self._telemetry,
            self._protocol_detector,
            self._open_responses_service(config),
            self._reload_mcp_servers(config),
        )

    def _reload_mcp_servers(self, config: Config) -> McpServers:
        """The MCP servers of this configuration."""
        self._mcp_servers.apply_config(config)
        return self._mcp_servers

    def _on_mcp_event(self, server: str, state: str, what: str) -> None:
        level: LogLevel = "warn" if what else "info"
        self._telemetry.log_event("mcp_server", level=level, server=server, state=state, message=what)

    def _open_responses_service(self, config: Config) -> ResponsesService:
        """Where state is kept: the same as long as the process runs, whatever a new file says of it."""
        if self._responses_service is None:
            self._store_settings = config.store
            store = open_store(config.store, os.environ) or NoStore()
            self._responses_service = ResponsesService(StateRepository(store, config.store, self._on_store_event))
        elif self._store_settings != config.store:
            what = "[store] has changed: restart the gateway to use it"
            self._telemetry.log_event("config_problem", level="warn", message=what, hint="")
        return self._responses_service

    def _on_store_event(self, kind: str, what: str) -> None:
        self._telemetry.log_event(kind, level="error" if what else "info", message=what)

    def reload_config(self, force: bool = False) -> None:
        """Read the configuration again where it has changed; exchanges under way go on with theirs."""
        if self._config_source.reload_if_changed(force):
            self._telemetry.log_event("config_reloaded", file=str(self._config_source.current.file or ""))

    def _on_provider_cooldown(self, provider: str, is_cooling_down: bool, seconds: float) -> None:
        self._telemetry.set_cooldown(provider, is_cooling_down)
        level: LogLevel = "warn" if is_cooling_down else "info"
        event = "provider_cooldown_start" if is_cooling_down else "provider_cooldown_end"
        self._telemetry.log_event(event, level=level, provider=provider, seconds=seconds)

    # --- beginning and end ---

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        self.open()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.close()
        await send({"type": "lifespan.shutdown.complete"})

    def open(self) -> None:
        """Get ready before the first request, and look after the configuration's file from now on."""
        loop = asyncio.get_running_loop()
        self._telemetry.batch_on_loop(loop)
        self._current_routes(loop.time)
        self._polling_task = loop.create_task(self._poll_config())

    async def _poll_config(self) -> None:
        while True:
            await asyncio.sleep(CONFIG_POLL_SECONDS)
            self.reload_config()
            if self._responses_service is not None and time.monotonic() - self._last_store_sweep > STORE_SWEEP_SECONDS:
                self._last_store_sweep = time.monotonic()
                await self._responses_service.repository.sweep()

    async def close(self, force: bool = False) -> None:
        """Work in the background may finish, unless all shall end now."""
        if self._polling_task is not None:
            self._polling_task.cancel()
        if self._responses_service is not None:
            await self._responses_service.close(0.0 if force else self.config.server.timeouts.shutdown or None)
        await self._mcp_servers.close()
        if self._client is not None:
            await self._client.close()
        self._telemetry.close()

    async def _refuse_websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """No protocol here is spoken over WebSockets: clients that are told so at once use HTTP."""
        await receive()
        if "websocket.http.response" not in scope.get("extensions", {}):
            await send({"type": "websocket.close", "code": 1000})
            return
        room = self._protocol_detector.guess_codec(scope["path"], "", {})
        answer = refuse_upgrade(room)
        headers = [(name.encode(), value.encode()) for name, value in answer.headers.items()]
        await send({"type": "websocket.http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "websocket.http.response.body", "body": answer.body})


def _uncancel_current_task() -> None:
    """The client has left, which cancelled what was done for it: that is no reason to cancel more."""
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()


class _StartupReporter:
    """Complaints that come before there is a log wait for it."""

    def __init__(self) -> None:
        self._telemetry: Telemetry | None = None
        self._buffered: list[tuple[LogLevel, str, str]] = []
        self.file = ""

    def report_problems(self, problems: Sequence[Problem]) -> None:
        for problem in problems:
            level: LogLevel = "error" if problem.severity == "error" else "warn"
            self._report(level, format_problem(problem, self.file), problem.hint)

    def warn(self, what: str) -> None:
        self._report("warn", what, "")

    def _report(self, level: LogLevel, what: str, hint: str) -> None:
        if self._telemetry is None:
            self._buffered.append((level, what, hint))
        else:
            self._telemetry.log_event("config_problem", level=level, message=what, hint=hint)

    def attach(self, telemetry: Telemetry) -> None:
        self._telemetry, waiting = telemetry, self._buffered
        for row in waiting:
            self._report(*row)


def app(
    config: Config | str | Path | None = None,
    server: Mapping[str, object] = EMPTY_MAPPING,
    routes: Mapping[str, str] = EMPTY_MAPPING,
) -> Gateway:
    """The gateway as an ASGI application. `config` is a file, a `Config`, or nothing: then it is found as usual.

    `server` holds settings of `[server]`, and `routes` models by name, that win over the file. Raises `Problems` for a
    configuration with mistakes.
    """
    reporter = _StartupReporter()
    if isinstance(config, Config):
        live: LiveConfig | FixedConfig = FixedConfig(config)
    else:
        live = LiveConfig(config, os.environ, reporter.report_problems, server, routes)
    reporter.file = str(live.current.file or "")
    shared = os.environ.get(DIRECTORY_VARIABLE)
    metrics = Metrics(Path(shared)) if shared else Metrics()
    telemetry = Telemetry(live.current.server, tracer=make_tracer(os.environ, reporter.warn), metrics=metrics)
    reporter.attach(telemetry)
    return Gateway(live, telemetry)
