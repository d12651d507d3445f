"""The gateway as a plain ASGI application: its configuration, start and stop, and one log record for each request."""

from __future__ import annotations

import asyncio
import itertools
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from toolwire.core.ir import EMPTY_MAPPING, Failure
from toolwire.gateway.configuration.config_watch import ConfigWatch
from toolwire.gateway.configuration.live_config import LiveConfig
from toolwire.gateway.configuration.load import ConfigFile, open_config_file
from toolwire.gateway.configuration.shared_config import SharedConfig
from toolwire.gateway.exchange.caller import Caller
from toolwire.gateway.exchange.error_replies import adapt_error, error_reply
from toolwire.gateway.exchange.feature import Process
from toolwire.gateway.exchange.gateway_request import ResolvedHead, Services
from toolwire.gateway.exchange.provider_health import ProviderHealth, report_cooldown
from toolwire.gateway.features import Features, make_runtime
from toolwire.gateway.features.image_descriptions.describe_images import ImageDescriber
from toolwire.gateway.http.admission import Admission, Ticket, overload_failure
from toolwire.gateway.http.client import UpstreamClient
from toolwire.gateway.http.client_request import AsgiRequest, ClientDisconnected, ClientRequest, Receive, Scope, Send
from toolwire.gateway.http.memory import MemoryBudget
from toolwire.gateway.http.messages import ProviderClient
from toolwire.gateway.models.catalogue import load_catalogue, load_known_models
from toolwire.gateway.models.listing import ModelLists, report_listing
from toolwire.gateway.pipeline.pipeline import Pipeline
from toolwire.gateway.settings.config import ClientKey, Config, Timeouts
from toolwire.gateway.settings.problems import ReportLine
from toolwire.gateway.settings.store import is_shared_store
from toolwire.gateway.store.gateway_store import GatewayStore
from toolwire.gateway.surfaces.console.endpoints import Console
from toolwire.gateway.surfaces.console.settings import ConsoleSettings
from toolwire.gateway.surfaces.routes import READY_PATH, ProtocolDetector, Routes, refuse_upgrade
from toolwire.gateway.telemetry.agents import load_agents
from toolwire.gateway.telemetry.metrics import DIRECTORY_VARIABLE, STORE_FAILURES, Metrics
from toolwire.gateway.telemetry.record import ExchangeRecord
from toolwire.gateway.telemetry.telemetry import Telemetry, make_tracer

LogLevel = Literal["info", "warn", "error"]


class Gateway:
    """One for a process. It needs no start-up: what is missing is made with the first request."""

    def __init__(
        self,
        config_source: LiveConfig,
        telemetry: Telemetry,
        on_config_accepted: Callable[[], None] = lambda: None,
        make_sender: Callable[[Timeouts, MemoryBudget], ProviderClient] = UpstreamClient,
    ) -> None:
        self.telemetry, self._make_sender = telemetry, make_sender
        self.config_watch = ConfigWatch(config_source, telemetry, on_config_accepted)
        self.admission = Admission(config_source.current.server)
        self.health = ProviderHealth(partial(report_cooldown, telemetry))
        self._protocol_detector = ProtocolDetector()
        self._gateway_id = secrets.token_hex(6)
        self._request_id_prefix = f"req_{self._gateway_id}"
        self._request_counter = itertools.count(1 << 28)  # all of the same length
        self.is_stopping = False
        """Stopping: `/readyz` answers 503, so that a load balancer sends no more requests."""
        self._model_lists = ModelLists(partial(report_listing, telemetry.log_event), telemetry.report_error)
        self.console = Console(telemetry.recent, self._model_lists, self._gateway_id, lambda: self.is_stopping)
        self._client: ProviderClient | None = None
        self.features: Features | None = None
        """With the store; None until the first request, or `open`."""
        self._routes: Routes | None = None
        self._built_from: Config | None = None
        """The configuration that the routes were made from; None if they have to be made again."""
        self._is_settled = True
        """False while requests have to wait for what features read from the store."""

    @property
    def config(self) -> Config:
        return self.config_watch.source.current

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "http":
            request = AsgiRequest(scope, receive, send)
            try:
                await self.handle_request(request)
            finally:
                request.stop_watching()
        elif kind == "lifespan":
            await self._run_lifespan(receive, send)
        elif kind == "websocket":
            await self._refuse_websocket(scope, receive, send)

    # --- one request ---

    async def handle_request(self, request: ClientRequest) -> None:
        """Answer a request, from the gateway's server or an ASGI server."""
        path, routes = request.path, self.current_routes(request.clock)
        head = routes.runtime.resolved_heads.get(request.head_key)
        if head is not None and self._is_settled:  # the requests before it on its connection were the same
            await self._serve_exchange(request, routes, head)
        elif path in routes.public_pages:
            if path == READY_PATH and self.features is not None:
                await self.features.store.wait_for_check()
            await request.send_reply(routes.public_pages[path](request))
        elif self.console.takes(request):
            await self.console.serve_request(request)
        else:
            if not self._is_settled:
                routes = await self._wait_until_settled(request.clock)
            await self._serve_exchange(request, routes, head)

    async def _serve_exchange(self, request: ClientRequest, routes: Routes, head: ResolvedHead | None) -> None:
        clock, now, ticket = request.clock, time.time(), None
        if head is None or now >= head.valid_until:
            head = routes.resolve_head(request, now)
        record = ExchangeRecord(
            request_id=head.request_id or self._request_id_prefix + hex(next(self._request_counter))[2:],  # noqa: FURB116 — half the cost
            started=clock(),
            started_at=now,
            client=head.client,
        )
        running = self.telemetry.start_exchange(record, request.headers)
        try:
            caller = overload_failure("too many connections") if request.is_refused else head.caller
            if isinstance(caller, Caller):
                ticket = request.ticket = Ticket(self.admission, head.client.key_name)
                await routes.serve_request(request, head, caller, running)
            else:
                reply = adapt_error(head.endpoint, error_reply(head.codec, caller))
                record.status, record.failure, record.message = reply.status, caller.kind, caller.message
                await request.send_reply(reply, record.request_id, head.codec.http.request_id_header)
        except ClientDisconnected:
            record.client_disconnected = True
        except asyncio.CancelledError:
            if not request.is_disconnected:
                raise
            # It was cancelled because its client left. That must not cancel what runs after it.
            if (task := asyncio.current_task()) is not None:
                task.uncancel()
        finally:
            if ticket is not None:
                ticket.leave()
            if request.is_disconnected:
                record.client_disconnected = True
            record.traffic.bytes_out = request.bytes_sent
            self.telemetry.finish_exchange(running, clock())

    async def handle_metrics_request(self, request: ClientRequest) -> None:
        await request.send_reply(self.current_routes(request.clock).metrics_reply(request))

    async def answer_internal_error(self, request: ClientRequest, error: BaseException) -> None:
        """A bug in the gateway: the client gets an error of its protocol, and the log the place of the bug."""
        codec = self._protocol_detector.guess_codec(request.path, request.query, request.headers)
        self.telemetry.report_error(error)
        failure = Failure("server", "internal error in the gateway; its log says where", 500)
        await request.send_reply(error_reply(codec, failure))

    # --- configuration ---

    def current_routes(self, clock: Callable[[], float]) -> Routes:
        watch = self.config_watch
        if watch.polling is None:
            watch.check(clock())
        config = watch.source.current
        if self._routes is None or self._built_from is not config:
            self._built_from = config
            self._routes = self._build_routes(config)
        return self._routes

    def _request_rebuild(self) -> None:
        self._built_from = None

    def _build_routes(self, config: Config) -> Routes:
        if self._client is None:
            self._client = self._make_sender(config.server.timeouts, self.admission.memory)
        self._client.set_timeouts(config.server.timeouts)
        console = config.section(ConsoleSettings)
        console_bytes = console.max_bytes if console.is_on(config.server) else 0
        self.telemetry.configure(config.server, config.secrets, console_bytes)
        self.admission.configure(config.server)
        self._model_lists.forget_others(config.providers.values())
        features = self.features = self.features or self._make_features(config)
        features.store.configure(config.store)
        config = features.complete_config(config)
        services = Services(
            gateway_id=self._gateway_id,
            client=self._client,
            health=self.health,
            telemetry=self.telemetry,
            admission=self.admission,
            find_listed_facts=self._model_lists.find_facts,
            refuse_running=self._refuse_running,
        )
        runtime = make_runtime(config, services, features.cloud_credentials.make_senders(config, self._client))
        access = features.keys.make_access(config.server)
        has_replicas = is_shared_store(config.store, os.environ)
        self.console.configure(config, runtime, access, config.secrets, has_replicas)
        self.console.use_features(features.costs.tables, features.limits.list_uses)
        pipeline = Pipeline(runtime, features.build_stages(runtime))
        if config.describes_images:
            runtime.image_describer = ImageDescriber(runtime, features.descriptions, pipeline.request_answer)
        self._is_settled = features.is_settled
        describe_readiness = partial(self._describe_readiness, features.store)
        surfaces = (features.responses, features.objects.uploads, self._model_lists, describe_readiness)
        return Routes(pipeline, access, self._protocol_detector, *surfaces)

    def _make_features(self, config: Config) -> Features:
        log_event, count_failure = self.telemetry.log_event, partial(self.telemetry.metrics.count, STORE_FAILURES)
        store = GatewayStore(config.store, os.environ, log_event, count_failure, self.telemetry.report_error)
        return Features(Process(self._gateway_id, os.environ, self.telemetry, store, self._request_rebuild))

    async def _wait_until_settled(self, clock: Callable[[], float]) -> Routes:
        if self.features is not None:
            await self.features.wait_until_settled()
            self._is_settled = self.features.is_settled
        return self.current_routes(clock)

    def _refuse_running(self, key: ClientKey, now: float) -> Failure | None:
        return self.current_routes(time.monotonic).access.refuse_running(key, now)

    def _describe_readiness(self, store: GatewayStore, peer: str) -> tuple[int, str]:
        return (503, "stopping") if self.is_stopping else store.describe_readiness(peer)

    # --- start and stop ---

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        self.open()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.close()
        await send({"type": "lifespan.shutdown.complete"})

    def open(self) -> None:
        """Get ready before the first request, and watch the configuration file from now on."""
        loop = asyncio.get_running_loop()
        self.telemetry.batch_on_loop(loop)
        self.current_routes(loop.time)
        # No request reads a file: none waits for a disk, or fails because all descriptors are in use.
        for load in (load_catalogue, load_known_models, load_agents):
            load()
        if self.features is not None:
            self.features.start()
        self.config_watch.start(self._on_poll)

    async def _on_poll(self) -> None:
        self.health.end_expired(asyncio.get_running_loop().time())
        if self.features is not None:
            self.features.store.start_check()
            await self.features.sweep_if_due(self.config)

    async def close(self, force: bool = False) -> None:
        """Stop. Background responses may finish, unless `force` is set."""
        self.config_watch.close()
        if self.features is not None:
            await self.features.close(0.0 if force else self.config.server.timeouts.shutdown or None)
        self.console.close()
        self._model_lists.close()
        if self._client is not None:
            await self._client.close()
        self.telemetry.close()

    async def _refuse_websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        if "websocket.http.response" not in scope.get("extensions", {}):
            await send({"type": "websocket.close", "code": 1000})
            return
        reply = refuse_upgrade(self._protocol_detector.guess_codec(scope["path"], "", {}))
        headers = [(name.encode(), value.encode()) for name, value in reply.headers.items()]
        await send({"type": "websocket.http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "websocket.http.response.body", "body": reply.body})


class _StartupReporter:
    """Holds problems back that are found before there is a log."""

    def __init__(self) -> None:
        self.telemetry: Telemetry | None = None
        self._buffered: list[tuple[str, LogLevel, str]] = []

    def report_lines(self, lines: Sequence[ReportLine]) -> None:
        for line in lines:
            level: LogLevel = "error" if line.severity == "error" else "warn"
            self.report(str(line), level, line.hint)

    def report(self, what: str, level: LogLevel = "warn", hint: str = "") -> None:
        if self.telemetry is None:
            self._buffered.append((what, level, hint))
        else:
            self.telemetry.log_event("config_problem", level=level, message=what, hint=hint)

    def attach(self, telemetry: Telemetry) -> None:
        self.telemetry = telemetry
        for row in self._buffered:
            self.report(*row)


def app(
    config: Config | str | Path | None = None,
    server: Mapping[str, object] = EMPTY_MAPPING,
    routes: Mapping[str, str] = EMPTY_MAPPING,
) -> Gateway:
    """The gateway as an ASGI application. `config` is a file, a `Config`, or None to search the usual places; `server`
    overrides settings of `[server]`, and `routes` adds models by name. Raises `ConfigError` if the configuration has
    errors."""
    file = config if isinstance(config, Config) else open_config_file(config, os.environ, lambda _: True)
    return open_gateway(file, server, routes)


def open_gateway(file: Config | ConfigFile | None, server: Mapping[str, object], routes: Mapping[str, str]) -> Gateway:
    """The gateway with this file, or with the environment alone. Raises `ConfigError`."""
    reporter = _StartupReporter()
    return _make_gateway(LiveConfig(file, os.environ, reporter.report_lines, server, routes), reporter)


def open_worker(shared: SharedConfig, server: Mapping[str, object], routes: Mapping[str, str]) -> Gateway:
    """The gateway of a worker, with the configuration that is in force. Raises `ConfigError`."""
    reporter = _StartupReporter()
    live = LiveConfig(shared.load(), os.environ, reporter.report_lines, server, routes)
    gateway = _make_gateway(live, reporter, lambda: shared.save(live.accepted_file))
    shared.save(live.accepted_file)
    return gateway


def _make_gateway(
    live: LiveConfig, reporter: _StartupReporter, on_config_accepted: Callable[[], None] = lambda: None
) -> Gateway:
    shared = os.environ.get(DIRECTORY_VARIABLE)
    metrics = Metrics(Path(shared)) if shared else Metrics()
    telemetry = Telemetry(live.current.server, tracer=make_tracer(os.environ, reporter.report), metrics=metrics)
    reporter.attach(telemetry)
    return Gateway(live, telemetry, on_config_accepted)
