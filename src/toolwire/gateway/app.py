"""The gateway as a plain ASGI application: its configuration, start and stop, and one log record for each request."""

from __future__ import annotations

import asyncio
import itertools
import os
import secrets
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from toolwire.core.envelopes import EnvelopeKeys
from toolwire.core.ir import EMPTY_MAPPING, Failure
from toolwire.gateway.configuration.live_config import LiveConfig, Reload
from toolwire.gateway.configuration.load import ConfigFile, FileStamp, open_config_file
from toolwire.gateway.configuration.shared_config import SharedConfig
from toolwire.gateway.exchange.caller import Caller
from toolwire.gateway.exchange.error_replies import error_reply
from toolwire.gateway.exchange.gateway_request import Runtime
from toolwire.gateway.exchange.provider_health import ProviderHealth
from toolwire.gateway.features import FeatureParts, build_stages
from toolwire.gateway.features.cache_watch.cache_watch import CacheWatch
from toolwire.gateway.features.costs.ledger import LedgerWriter, read_used, sweep_ledger
from toolwire.gateway.features.costs.ledger_tables import open_ledger
from toolwire.gateway.features.costs.settings import CostSettings
from toolwire.gateway.features.image_descriptions.describe_images import ImageDescriber
from toolwire.gateway.features.image_descriptions.descriptions import DescriptionRepository
from toolwire.gateway.features.keys.access import AccessControl
from toolwire.gateway.features.keys.key_records import KeyChange, KeyRecords, StoredKeyList
from toolwire.gateway.features.keys.key_tables import open_key_records
from toolwire.gateway.features.keys.stored_keys import StoredKeys
from toolwire.gateway.features.limits.limits import Limits
from toolwire.gateway.features.limits.open_counters import open_counters
from toolwire.gateway.features.limits.reservations import ReservationProblem, Reservations
from toolwire.gateway.features.limits.settings import CounterSettings, LimitSettings
from toolwire.gateway.features.mcp.servers import McpServers, load_sdk
from toolwire.gateway.features.mcp.settings import McpSettings
from toolwire.gateway.features.provider_objects.provider_objects import ProviderObjects
from toolwire.gateway.features.responses.service import ResponsesService
from toolwire.gateway.features.signatures.envelope_keys import (
    SharedKey,
    load_envelope_keys,
    make_process_keys,
    uses_shared_key,
)
from toolwire.gateway.features.signatures.signatures import SignatureRepository
from toolwire.gateway.http.admission import Admission, Ticket, overload_failure
from toolwire.gateway.http.client import UpstreamClient
from toolwire.gateway.http.client_request import AsgiRequest, ClientDisconnected, ClientRequest, Receive, Scope, Send
from toolwire.gateway.http.large_work import DaemonThread
from toolwire.gateway.models.catalogue import load_catalogue, load_known_models
from toolwire.gateway.models.listing import ListUnavailable, ModelLists
from toolwire.gateway.pipeline.pipeline import Pipeline
from toolwire.gateway.settings.address import is_loopback
from toolwire.gateway.settings.client_keys import list_key_changes, read_stored_keys
from toolwire.gateway.settings.config import ClientKey, Config, StoreSettings
from toolwire.gateway.settings.problems import ReportLine
from toolwire.gateway.settings.times import format_time
from toolwire.gateway.store import open_store
from toolwire.gateway.store.repository import StateRepository
from toolwire.gateway.store.store import LocalStore, SecretStore, StoreDown
from toolwire.gateway.surfaces.console.endpoints import Console
from toolwire.gateway.surfaces.console.settings import ConsoleSettings
from toolwire.gateway.surfaces.routes import READY_PATH, ProtocolDetector, Routes, refuse_upgrade
from toolwire.gateway.telemetry.agents import load_agents
from toolwire.gateway.telemetry.call_prices import CallPricer
from toolwire.gateway.telemetry.metrics import DIRECTORY_VARIABLE, Metrics
from toolwire.gateway.telemetry.record import ExchangeRecord
from toolwire.gateway.telemetry.telemetry import Telemetry, make_tracer

LogLevel = Literal["info", "warn", "error"]
CONFIG_POLL_SECONDS = 1.0
STORE_SWEEP_SECONDS = 600.0
"""Seconds between two removals of expired entries from the store."""


class FixedConfig:
    """A configuration that was given as a value: there is no file to reload."""

    def __init__(self, config: Config) -> None:
        self.current = config

    def read_if_changed(self, force: bool = False) -> Reload | None:
        return None

    def apply(self, reload: Reload) -> bool:
        raise ValueError("a fixed configuration cannot be replaced")

    def file_stamp(self) -> FileStamp:
        return None


class Gateway:
    """One for a process. It needs no start-up: what is missing is made with the first request."""

    def __init__(
        self,
        config_source: LiveConfig | FixedConfig,
        telemetry: Telemetry,
        on_config_accepted: Callable[[], None] = lambda: None,
    ) -> None:
        self._config_source = config_source
        self._telemetry = telemetry
        self._cache_watch = CacheWatch()
        self.admission = Admission(config_source.current.server)
        self._health = ProviderHealth(self._on_provider_cooldown)
        self._protocol_detector = ProtocolDetector()
        self._gateway_id = secrets.token_hex(6)
        self._request_id_prefix = f"req_{self._gateway_id}"
        self._request_counter = itertools.count(1 << 28)  # all of the same length
        self._client: UpstreamClient | None = None
        self._routes: Routes | None = None
        self.is_stopping = False
        """Stopping: `/readyz` answers 503, so that a load balancer sends no more requests."""
        self._mcp_servers = McpServers(self._on_mcp_event)
        self._model_lists = ModelLists(self._on_model_list_event, self.report_error)
        self.console = Console(telemetry.recent, self._model_lists, self._gateway_id, lambda: self.is_stopping)
        self._store_settings: StoreSettings | None = None
        self._responses_service: ResponsesService | None = None
        self._ledger: LedgerWriter | None = None
        self._counter_settings: CounterSettings | None = None
        self._reservations: Reservations | None = None
        """What running requests hold of their limits; None without limits."""
        self._local_store: LocalStore | None = None
        """The store, if it is on the disk of this gateway."""
        self._store_check: asyncio.Task[None] | None = None
        self._store_checked_at = -inf
        self._store_problem: StoreDown | None = None
        self._store_replacement = ""
        self._shared_key: SharedKey | None = None
        """The key of a store that several gateways share, for what clients carry."""
        self._key_records: KeyRecords | None = None
        self._stored_keys: StoredKeys | None = None
        """The client keys of the store, if the configuration wants them (`store_keys`)."""
        self._built_from: tuple[Config | None, StoredKeyList | None] = (None, None)
        """The configuration and the keys of the store that the routes were made from."""
        self._waits_for_shared_key = False
        self._has_reported_process_key = False
        self._last_config_check = self._last_store_sweep = 0.0
        self._polling_task: asyncio.Task[None] | None = None
        self._reload_requested = asyncio.Event()
        self._config_thread = DaemonThread("toolwire-config")
        self._on_config_accepted = on_config_accepted

    @property
    def config(self) -> Config:
        return self._config_source.current

    @property
    def accepted_file(self) -> ConfigFile | None:
        """The file that is in force; None for a configuration without one."""
        source = self._config_source
        return source.accepted_file if isinstance(source, LiveConfig) else None

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
        path, routes = request.path, self._current_routes(request.clock)
        if path in routes.public_pages:
            if path == READY_PATH and time.monotonic() - self._store_checked_at > 2 * CONFIG_POLL_SECONDS:
                await asyncio.wait([self._start_store_check()])
            await request.send_reply(routes.public_pages[path](request))
        elif self.console.has_path(path):
            await self.console.serve_request(request)
        else:
            if self._stored_keys is not None and not self._stored_keys.is_settled:
                await self._stored_keys.wait()
                routes = self._current_routes(request.clock)
            await self._serve_exchange(request, routes)

    async def _serve_exchange(self, request: ClientRequest, routes: Routes) -> None:
        clock, headers = request.clock, request.headers
        ticket = None
        now = time.time()
        head = routes.runtime.resolved_heads.get(request.head_key)
        if head is None or now >= head.valid_until:
            head = routes.resolve_head(request, now)
        record = ExchangeRecord(
            request_id=head.request_id or self._request_id_prefix + hex(next(self._request_counter))[2:],  # noqa: FURB116 — half the cost
            started=clock(),
            started_at=now,
            client=head.client,
        )
        running = self._telemetry.start_exchange(record, headers)
        try:
            caller = overload_failure("too many connections") if request.is_refused else head.caller
            if isinstance(caller, Caller):
                ticket = request.ticket = Ticket(self.admission, head.client.key_name)
                if self._waits_for_shared_key:
                    await self._wait_for_shared_key()
                await routes.serve_request(request, head, caller, running)
            else:
                reply = error_reply(head.codec, caller)
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
            self._telemetry.finish_exchange(running, clock())

    async def handle_metrics_request(self, request: ClientRequest) -> None:
        """Answer a request at the address of the metrics."""
        await request.send_reply(self._current_routes(request.clock).metrics_reply(request))

    async def answer_internal_error(self, request: ClientRequest, error: BaseException) -> None:
        """A bug in the gateway: the client gets an error of its protocol, and the log the place of the bug."""
        codec = self._protocol_detector.guess_codec(request.path, request.query, request.headers)
        self.report_error(error)
        failure = Failure("server", "internal error in the gateway; its log says where", 500)
        await request.send_reply(error_reply(codec, failure))

    def log_event(self, kind: str, *, level: LogLevel = "info", **fields: object) -> None:
        self._telemetry.log_event(kind, level=level, **fields)

    def report_error(self, error: BaseException) -> None:
        """Log an error that should not happen, with its place."""
        frames = list(traceback.walk_tb(error.__traceback__))
        place = f"{frames[-1][0].f_code.co_filename}:{frames[-1][1]}" if frames else ""
        text = f"{type(error).__name__}: {error}"
        self._telemetry.log_event("internal_error", level="error", error=text, location=place)

    # --- configuration ---

    def _current_routes(self, clock: Callable[[], float]) -> Routes:
        if self._polling_task is None:
            now = clock()
            if now - self._last_config_check >= CONFIG_POLL_SECONDS:
                self._last_config_check = now
                self.reload_config()
        config, stored = self._config_source.current, self._stored_keys
        keys = stored.current if stored is not None else None
        if self._routes is None or self._built_from[0] is not config or self._built_from[1] is not keys:
            self._routes = self._build_routes(config)
        return self._routes

    def _build_routes(self, config: Config) -> Routes:
        if self._client is None:
            self._client = UpstreamClient(config.server.timeouts, self.admission.memory)
        self._client.set_timeouts(config.server.timeouts)
        console = config.section(ConsoleSettings)
        console_bytes = console.max_bytes if console.is_on(config.server) else 0
        self._telemetry.configure(config.server, config.secrets, console_bytes)
        self._cache_watch.configure(config.providers)
        self.admission.configure(config.server)
        self._mcp_servers.apply_config(config)
        self._model_lists.forget_others(config.providers.values())
        service = self._open_responses_service(config)
        config = self._add_stored_keys(config)
        has_costs = config.section(CostSettings).enabled
        self._telemetry.pricer = CallPricer(config.providers) if has_costs else None
        prompts = self._cache_watch if config.server.watch_cache else None
        self._telemetry.build_sinks(self._ledger if has_costs else None, prompts)
        envelope_keys = self._load_envelope_keys(config)
        runtime = Runtime(
            config, self._client, self._health, self._telemetry, self._gateway_id, self.admission, envelope_keys
        )
        access = AccessControl(config.server)
        access.is_waiting_for_keys = self._is_waiting_for_keys
        runtime.find_listed_facts = self._model_lists.find_facts
        runtime.refuse_running = self._refuse_running
        self.console.configure(config, runtime, access, config.secrets)
        objects = ProviderObjects(service.repository, runtime)
        parts = FeatureParts(self._open_limits(config), objects, self._signatures, self._mcp_servers, service)
        pipeline = Pipeline(runtime, build_stages(runtime, parts), self.report_error)
        if config.describes_images:
            runtime.image_describer = ImageDescriber(runtime, self._descriptions, pipeline.request_answer)
        surfaces = (self._protocol_detector, service, objects, self._model_lists, self._describe_readiness)
        return Routes(pipeline, access, *surfaces)

    def _refuse_running(self, key: ClientKey, now: float) -> Failure | None:
        return self._current_routes(time.monotonic).access.refuse_running(key, now)

    def _add_stored_keys(self, config: Config) -> Config:
        """The configuration with the client keys of the store, if it wants them."""
        if config.server.store_keys and self._stored_keys is None and self._key_records is not None:
            self._stored_keys = StoredKeys(
                self._key_records, self._on_keys_loaded, self._on_keys_state_changed, self.report_error
            )
        elif not config.server.store_keys and self._stored_keys is not None:
            self._stored_keys.close()
            self._stored_keys = None
        found = self._stored_keys.current if self._stored_keys is not None else None
        self._built_from = (config, found)
        if found is None:
            return config
        keys, problems = read_stored_keys(found.tables, config.server.keys)
        for problem in problems:
            what = f"{problem.location}: {problem.message}"
            self._telemetry.log_event("client_key_ignored", level="error", message=what, hint=problem.hint)
        server = replace(config.server, keys=(*config.server.keys, *keys))
        return replace(config, server=server).with_section(config.section(LimitSettings).add_keys(keys))

    def _is_waiting_for_keys(self) -> bool:
        return self._stored_keys is not None and self._stored_keys.current is None

    async def _warn_of_unused_keys(self) -> None:
        """The file may have lost `store_keys` before this gateway started."""
        if self.config.server.needs_keys or self._key_records is None:
            return
        found = await self._key_records.load(None)
        if isinstance(found, StoredKeyList) and found.tables:
            what = "the store has client keys, but this gateway serves everybody on this machine without a key"
            hint = "write `store_keys = true` in [server], or use another store"
            self._telemetry.log_event("config_problem", level="warn", message=what, hint=hint)

    def _on_keys_loaded(self, changes: Sequence[KeyChange]) -> None:
        for one in changes:
            at = format_time(one.at)
            fields = {"key_name": one.name, "action": one.action, "author": one.author, "at": at, "detail": one.detail}
            self._telemetry.log_event("client_key_changed", **fields)

    def _on_keys_state_changed(self, problem: str) -> None:
        if problem:
            what = f"the client keys in the store cannot be read; those that are known stay in force: {problem}"
            self._telemetry.log_event("client_keys_unavailable", level="error", message=what)
        else:
            self._telemetry.log_event("client_keys_available")

    def _load_envelope_keys(self, config: Config) -> EnvelopeKeys:
        config = replace(config, store=self._store_settings or config.store)  # the one that was opened
        shared = self._shared_key if uses_shared_key(config, os.environ) else None
        self._waits_for_shared_key = shared is not None and not shared.is_settled
        try:
            return load_envelope_keys(config, os.environ, time.time(), shared.value if shared is not None else None)
        except OSError as error:
            self._report_process_key(f"{error.filename}: {error.strerror}")
            return make_process_keys(config, time.time())

    def _report_process_key(self, why: str) -> None:
        if not self._has_reported_process_key:
            self._has_reported_process_key = True
            what = f"the key that signs signatures and summaries for clients cannot be stored: {why}"
            hint = "set [server] secret_env, or they are not accepted after a restart or by other gateways"
            self._telemetry.log_event("config_problem", level="warn", message=what, hint=hint)

    async def _wait_for_shared_key(self) -> None:
        if self._shared_key is not None:
            await self._shared_key.wait()
        self._waits_for_shared_key = False

    def _on_shared_key_loaded(self) -> None:
        if self._routes is not None:
            runtime = self._routes.runtime
            runtime.set_envelope_keys(self._load_envelope_keys(runtime.config))

    def _on_shared_key_failed(self, reason: str) -> None:
        what = f"the key that signs signatures and summaries for clients cannot be loaded, another is used: {reason}"
        hint = "repair the store, or set [server] secret_env"
        self._telemetry.log_event("envelope_key_unavailable", level="warn", message=what, hint=hint)

    def _on_mcp_event(self, server: str, state: str, what: str) -> None:
        level: LogLevel = "warn" if what else "info"
        self._telemetry.log_event("mcp_server", level=level, server=server, state=state, message=what)

    def _on_model_list_event(self, provider: str, problem: ListUnavailable | None) -> None:
        if problem is None:
            self._telemetry.log_event("models_available", provider=provider)
        else:
            what = f"the models of `{provider}` cannot be listed, or not all of them: {problem.detail}"
            self._telemetry.log_event("models_unavailable", level="warn", provider=provider, message=what)

    def _open_responses_service(self, config: Config) -> ResponsesService:
        """Open the store. It stays the same while the process runs, also if a new configuration names another."""
        if self._responses_service is None:
            self._store_settings = config.store
            store = open_store(config.store, os.environ)
            self._local_store = store if isinstance(store, LocalStore) else None
            self._key_records = open_key_records(store)
            if isinstance(store, SecretStore):
                self._shared_key = SharedKey(store, self._on_shared_key_loaded, self._on_shared_key_failed)
            repository = StateRepository(
                store, config.store, self._on_store_event, count_failure=self._telemetry.metrics.count_store_failure
            )
            self._responses_service = ResponsesService(repository)
            self._signatures = SignatureRepository(repository)
            self._descriptions = DescriptionRepository(repository)
            tables = open_ledger(store)
            if tables is not None:
                count_dropped = self._telemetry.metrics.count_dropped_rows
                self._ledger = LedgerWriter(tables, self._gateway_id, self._on_ledger_event, count_dropped)
        elif self._store_settings != config.store:
            what = "[store] has changed: restart the gateway to use it"
            self._telemetry.log_event("config_problem", level="warn", message=what, hint="")
        return self._responses_service

    def _open_limits(self, config: Config) -> Limits | None:
        """The limits of a configuration. Their counters stay the same while the process runs."""
        wanted = config.section(LimitSettings)
        if self._reservations is None and wanted.limits:
            self._counter_settings = wanted.counters
            settings = replace(config, store=self._store_settings or config.store)
            counters = open_counters(settings, os.environ)
            self._reservations = Reservations(
                counters,
                wanted.counters.lease,
                self._on_counters_event,
                on_renewal=lambda: self._telemetry.metrics.reset_limits(time.monotonic()),
            )
        elif self._reservations is not None and self._counter_settings != wanted.counters:
            what = "[counters] has changed: restart the gateway to use it"
            self._telemetry.log_event("config_problem", level="warn", message=what, hint="")
        if self._reservations is None or not wanted.limits:
            return None
        metrics, log_event = self._telemetry.metrics, self._telemetry.log_event
        ledger = self._ledger if config.section(CostSettings).enabled else None
        reader = partial(read_used, ledger.tables) if ledger is not None else None
        return Limits(wanted.limits, config.providers, self._reservations, metrics, log_event, reader)

    def _on_counters_event(self, kind: ReservationProblem, what: str) -> None:
        if kind == "counters_available":
            self._telemetry.log_event(kind)
            return
        self._telemetry.metrics.count_store_failure("count")
        self._telemetry.log_event(kind, level="error", message=what)

    def _on_store_event(self, kind: str, what: str) -> None:
        self._telemetry.log_event(kind, level="error" if kind == "store_unavailable" else "info", message=what)

    def _on_ledger_event(self, kind: str, level: str, fields: Mapping[str, object]) -> None:
        self._telemetry.log_event(kind, level=level, **fields)

    def _start_store_check(self) -> asyncio.Task[None]:
        """Find out in the background whether the store of this gateway can be used, for `/readyz`."""
        if self._store_check is None or self._store_check.done():
            self._store_check = asyncio.get_running_loop().create_task(self._check_store())
            self._store_check.add_done_callback(self._on_store_checked)
        return self._store_check

    async def _check_store(self) -> None:
        store = self._local_store
        if store is not None:
            self._store_problem = await store.check_usable()
            if store.replacement != self._store_replacement:
                self._store_replacement = store.replacement
                hint = "stop the gateway before its files are changed; `toolwire store export` makes a copy"
                self._telemetry.log_event("store_replaced", level="error", message=store.replacement, hint=hint)
        self._store_checked_at = time.monotonic()

    def _on_store_checked(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.report_error(error)

    def _describe_readiness(self, peer: str) -> tuple[int, str]:
        """What `/readyz` says to a client at this address: a status and a text. A database that all gateways share is
        not asked: if it is down, no other gateway is better off, and most requests do not need it."""
        if self.is_stopping:
            return 503, "stopping"
        if self._store_problem is not None:
            hint = "repair it, or set [store] url (`none` keeps nothing)"
            why = (
                f"{self._store_problem.reason}; {hint}"
                if is_loopback(peer)
                else "the store cannot be used: see the log"
            )
            return 503, f"not ready: {why}"
        return 200, f"ok\n{self._store_replacement}".rstrip() if is_loopback(peer) else "ok"

    def reload_config(self, force: bool = False) -> None:
        """Read the configuration again if it has changed. Requests that have started keep the old one."""
        self._apply_reload(self._config_source.read_if_changed(force))

    def start_reload(self) -> None:
        """Read the configuration again in a thread (SIGHUP): a large file takes a while."""
        self._reload_requested.set()

    def _apply_reload(self, reload: Reload | None) -> None:
        if reload is None:
            return
        before = self._config_source.current.server.keys
        is_new = self._config_source.apply(reload)
        self._telemetry.count_config_reload("accepted" if is_new else "refused")
        file = str(self._config_source.current.file or "")
        if is_new:
            self._telemetry.log_event("config_reloaded", file=file)
            for name, action, detail in list_key_changes(before, self._config_source.current.server.keys):
                fields = {"key_name": name, "action": action, "author": file, "detail": detail}
                self._telemetry.log_event("client_key_changed", **fields)
            self._on_config_accepted()
        else:
            what = "the new configuration is refused: the old one stays in force"
            self._telemetry.log_event("config_refused", level="error", file=file, message=what)

    def _on_provider_cooldown(self, label: str, seconds: float, reason: str) -> None:
        provider, _, account = label.partition("/")
        self._telemetry.set_cooldown(provider, account, seconds > 0)
        level: LogLevel = "warn" if seconds else "info"
        event = "provider_cooldown_start" if seconds else "provider_cooldown_end"
        named = {"account": account, "reason": reason}
        shown = {name: value for name, value in named.items() if value}
        self._telemetry.log_event(event, level=level, provider=provider, **shown, seconds=seconds)

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
        self._telemetry.batch_on_loop(loop)
        self._current_routes(loop.time)
        # No request reads a file: none waits for a disk, or fails because all descriptors are in use.
        for load in (load_catalogue, load_known_models, load_agents):
            load()
        if self._waits_for_shared_key and self._shared_key is not None:
            self._shared_key.start()
        if self._stored_keys is not None:
            self._stored_keys.start()
        self._start_polling(loop)

    def _start_polling(self, loop: asyncio.AbstractEventLoop) -> None:
        self._polling_task = loop.create_task(self._poll_config())
        self._polling_task.add_done_callback(self._on_polling_ended)

    def _on_polling_ended(self, task: asyncio.Task[None]) -> None:
        """A bug must not end the polling for good: a key that was removed from the file would keep working."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.report_error(error)
            self._start_polling(task.get_loop())

    async def _poll_config(self) -> None:
        source, seen = self._config_source, self._config_source.file_stamp()
        while True:
            forced = await self._wait_for_poll()
            self._health.end_expired(asyncio.get_running_loop().time())
            self._start_store_check()
            before, seen = seen, source.file_stamp()
            # A file that has just changed may still be written: it is read when it has been the same twice.
            if forced or seen == before:
                found = await self._config_thread.call(partial(_read_reload, source, forced))
                if isinstance(found, BaseException):
                    raise found
                self._apply_reload(found)
            if self._responses_service is not None and time.monotonic() - self._last_store_sweep > STORE_SWEEP_SECONDS:
                self._last_store_sweep = time.monotonic()
                if self._ledger is not None:
                    await sweep_ledger(self._ledger.tables, self.config.section(CostSettings), self.config.store)
                await self._responses_service.repository.sweep()
                await self._warn_of_unused_keys()

    async def _wait_for_poll(self) -> bool:
        """Wait for the next poll, or less if a reload is requested: then True."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._reload_requested.wait(), CONFIG_POLL_SECONDS)
        forced = self._reload_requested.is_set()
        self._reload_requested.clear()
        return forced

    async def close(self, force: bool = False) -> None:
        """Stop. Background responses may finish, unless `force` is set."""
        if self._polling_task is not None:
            self._polling_task.cancel()
        if self._store_check is not None:
            self._store_check.cancel()
        self._config_thread.end()
        if self._shared_key is not None:
            self._shared_key.close()
        if self._stored_keys is not None:
            self._stored_keys.close()
        if self._responses_service is not None:
            await self._responses_service.finish_jobs(0.0 if force else self.config.server.timeouts.shutdown or None)
            self._telemetry.flush()
            if self._ledger is not None:
                await self._ledger.close()
            await self._responses_service.close()
        if self._reservations is not None:
            await self._reservations.close()
        self.console.close()
        await self._mcp_servers.close()
        self._model_lists.close()
        if self._client is not None:
            await self._client.close()
        self._telemetry.close()

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
        self._telemetry: Telemetry | None = None
        self._buffered: list[tuple[str, LogLevel, str]] = []

    def report_lines(self, lines: Sequence[ReportLine]) -> None:
        for line in lines:
            level: LogLevel = "error" if line.severity == "error" else "warn"
            self.report(str(line), level, line.hint)

    def report(self, what: str, level: LogLevel = "warn", hint: str = "") -> None:
        if self._telemetry is None:
            self._buffered.append((what, level, hint))
        else:
            self._telemetry.log_event("config_problem", level=level, message=what, hint=hint)

    def attach(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
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
    if isinstance(config, Config):
        return _make_gateway(FixedConfig(config), _StartupReporter())
    return open_gateway(open_config_file(config, os.environ, lambda _: True), server, routes)


def _read_reload(source: LiveConfig | FixedConfig, forced: bool) -> Reload | None:
    """A changed configuration, with what must be imported for it. Runs in a thread."""
    found = source.read_if_changed(forced)
    if found is not None and found.config is not None and found.config.section(McpSettings).servers:
        load_sdk()
    return found


def open_gateway(file: ConfigFile | None, server: Mapping[str, object], routes: Mapping[str, str]) -> Gateway:
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
    live: LiveConfig | FixedConfig, reporter: _StartupReporter, on_config_accepted: Callable[[], None] = lambda: None
) -> Gateway:
    shared = os.environ.get(DIRECTORY_VARIABLE)
    metrics = Metrics(Path(shared)) if shared else Metrics()
    telemetry = Telemetry(live.current.server, tracer=make_tracer(os.environ, reporter.report), metrics=metrics)
    reporter.attach(telemetry)
    return Gateway(live, telemetry, on_config_accepted)
