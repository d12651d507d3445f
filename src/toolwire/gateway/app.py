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

from toolwire.gateway.access import Visitor
from toolwire.gateway.asking import Asking
from toolwire.gateway.dialects import Dialects
from toolwire.gateway.endpoints import Endpoints, upgrade_refused
from toolwire.gateway.engine import Engine
from toolwire.gateway.headers import HOPS, REQUEST_ID, named
from toolwire.gateway.health import Health
from toolwire.gateway.incoming import Asgi, Gone, Incoming, Receive, Scope, Send
from toolwire.gateway.known import Known
from toolwire.gateway.lines import State
from toolwire.gateway.mcp.servers import Servers
from toolwire.gateway.refusals import reply
from toolwire.gateway.settings.config import Config, Store
from toolwire.gateway.settings.problems import Problem, said
from toolwire.gateway.settings.reload import Live
from toolwire.gateway.state.book import Book
from toolwire.gateway.state.desk import Desk
from toolwire.gateway.store.absent import Absent
from toolwire.gateway.store.opening import opened
from toolwire.gateway.telemetry.metrics import DIRECTORY, Metrics
from toolwire.gateway.telemetry.record import Record
from toolwire.gateway.telemetry.traces import tracer
from toolwire.gateway.telemetry.watching import Telemetry
from toolwire.gateway.upstream.client import Client
from toolwire.ir import NOTHING, Failure

Level = Literal["info", "warn", "error"]
LOOK = 1.0
"""Seconds between two looks at the configuration's file."""
SWEEP = 600.0
"""Seconds between two looks for what is kept too long."""
MAX_HOPS = 4

_decent = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}").fullmatch
"""Ids of requests that are kept as the client gave them."""


class Fixed:
    """A configuration that was given as a value: nothing to read anew."""

    def __init__(self, config: Config) -> None:
        self.current = config

    def refresh(self, force: bool = False) -> bool:
        return False


class Gateway:
    """One for a process. Needs no start-up: what it lacks it makes with the first request."""

    def __init__(self, live: Live | Fixed, telemetry: Telemetry) -> None:
        self._live = live
        self._telemetry = telemetry
        self._health = Health(self._rests)
        self._dialects = Dialects()
        self._name = secrets.token_hex(6)
        self._first = f"req_{self._name}"
        self._numbers = itertools.count(1 << 28)  # all of the same length
        self._client: Client | None = None
        self._endpoints: Endpoints | None = None
        self.leaving = False
        """Was it asked to stop? Then `/readyz` says so, and a balancer sends nobody here any more."""
        self._servers = Servers(self._mcp_says)
        self._settings: Store | None = None
        self._desk: Desk | None = None
        self._looked = 0.0
        self._swept = 0.0
        self._polling: asyncio.Task[None] | None = None

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self._live.current

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "http":
            incoming = Asgi(scope, receive, send)
            try:
                await self.handle(incoming)
            finally:
                incoming.unwatch()
        elif kind == "lifespan":
            await self._lifespan(receive, send)
        elif kind == "websocket":
            await self._websocket(scope, receive, send)

    # --- one request ---

    async def handle(self, incoming: Incoming) -> None:
        """Answer a request, from whichever server."""
        clock, path, headers = incoming.clock, incoming.path, incoming.headers
        endpoints = self._current(clock)
        if path in endpoints.open:
            await incoming.answer(endpoints.open[path](), {})
            return
        known = incoming.memory.get(endpoints.state) or self._met(endpoints.state, incoming)
        room, visitor = known.room, known.visitor
        record = Record(
            request_id=known.request_id or self._first + hex(next(self._numbers))[2:],  # noqa: FURB116 — it costs half
            started=clock(),
            wall=time.time(),
            peer=incoming.peer,
            method=incoming.method,
            path=path,
            key=known.key,
            agent=headers.get("user-agent", ""),
            source=room.name,
        )
        self._telemetry.begin(record, headers)
        try:
            if isinstance(visitor, Visitor):
                await endpoints.serve(incoming, known, visitor, record)
            else:
                refusal = reply(room, visitor)
                record.status, record.failure = refusal.status, visitor.kind
                await incoming.answer(refusal, named(room, record.request_id))
        except Gone:
            record.gone = True
        except asyncio.CancelledError:
            if not incoming.gone:
                raise
            _end_quietly()
        finally:
            if incoming.gone:
                record.gone = True
            record.bytes_out = incoming.sent
            self._telemetry.finish(record, clock())

    def _met(self, state: State, incoming: Incoming) -> Known:
        """What such a head says under this configuration."""
        path, query, headers = incoming.path, incoming.query, incoming.headers
        found = self._dialects.asked(path, query) if incoming.method == "POST" else None
        room, asked = found or (self._dialects.nearest(path, query, headers), None)
        given = headers.get(REQUEST_ID, "")
        visitor = state.access.admitted(headers, query, incoming.peer)
        key = ""
        if isinstance(visitor, Visitor):
            key = visitor.key.name if visitor.key is not None else ""
            visitor = self._looped(headers.get(HOPS, "")) or visitor
        known = Known(room, asked, visitor, key, given if _decent(given) else "", {})
        incoming.memory.clear()
        incoming.memory[state] = known
        return known

    async def broken(self, incoming: Incoming, error: BaseException) -> None:
        """A fault of our own: the client gets an error of its protocol, the log where it happened."""
        room = self._dialects.nearest(incoming.path, incoming.query, incoming.headers)
        self._fault(error)
        failure = Failure("server", "the gateway made a mistake; its log says where", 500)
        await incoming.answer(reply(room, failure), {})

    def _fault(self, error: BaseException) -> None:
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        place = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace is not None else ""
        self._telemetry.event("fault", level="error", error=f"{type(error).__name__}: {error}", place=place)

    def _looped(self, hops: str) -> Failure | None:
        passed = hops.split(",")
        if self._name in passed:
            what = "this gateway calls itself: a provider's base_url leads back to it"
            return Failure("invalid", f"{what}; see `toolwire check-config`", 508, "loop")
        if len(passed) >= MAX_HOPS:
            return Failure(
                "invalid", f"the call came through {len(passed)} gateways: they call each other", 508, "loop"
            )
        return None

    # --- configuration ---

    def _current(self, clock: Callable[[], float]) -> Endpoints:
        """The endpoints for the configuration in force."""
        if self._polling is None:
            now = clock()
            if now - self._looked >= LOOK:
                self._looked = now
                self.refresh()
        if self._endpoints is None or self._endpoints.state.config is not self._live.current:
            self._endpoints = self._made(self._live.current)
        return self._endpoints

    def _made(self, config: Config) -> Endpoints:
        if self._client is None or (
            self._endpoints is not None and self._endpoints.state.config.server.deadlines != config.server.deadlines
        ):
            self._client = Client(config.server.deadlines)
        secrets_ = [provider.api_key.reveal() for provider in config.providers.values() if provider.api_key]
        secrets_ += [secret for server in config.mcp.values() for secret in server.secrets]
        self._telemetry.configure(config.server, secrets_)
        asking = Asking(self._client, self._health, self._telemetry, self._name)
        engine = Engine(asking, self._health, self._telemetry, self._fault, lambda: self.leaving)
        return Endpoints(
            State(config), engine, self._telemetry, self._dialects, self._kept(config), self._served(config)
        )

    def _served(self, config: Config) -> Servers:
        """The MCP servers of this configuration."""
        self._servers.reload(config)
        return self._servers

    def _mcp_says(self, server: str, state: str, what: str) -> None:
        level: Level = "warn" if what else "info"
        self._telemetry.event("mcp", level=level, server=server, state=state, what=what)

    def _kept(self, config: Config) -> Desk:
        """Where state is kept: the same as long as the process runs, whatever a new file says of it."""
        if self._desk is None:
            self._settings = config.store
            store = opened(config.store, os.environ) or Absent()
            self._desk = Desk(Book(store, config.store, self._store_says))
        elif self._settings != config.store:
            what = "[store] has changed: start the gateway anew for that"
            self._telemetry.event("configuration", level="warn", what=what, hint="")
        return self._desk

    def _store_says(self, kind: str, what: str) -> None:
        self._telemetry.event(kind, level="error" if what else "info", what=what)

    def refresh(self, force: bool = False) -> None:
        """Read the configuration again where it has changed; exchanges under way go on with theirs."""
        if self._live.refresh(force):
            self._telemetry.event("reloaded", file=str(self._live.current.file or ""))

    def _rests(self, provider: str, rests: bool, seconds: float) -> None:
        self._telemetry.resting(provider, rests)
        level: Level = "warn" if rests else "info"
        self._telemetry.event("resting" if rests else "rested", level=level, provider=provider, seconds=seconds)

    # --- beginning and end ---

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        self.open()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.close()
        await send({"type": "lifespan.shutdown.complete"})

    def open(self) -> None:
        """Get ready before the first request, and look after the configuration's file from now on."""
        loop = asyncio.get_running_loop()
        self._telemetry.gather(loop)
        self._current(loop.time)
        self._polling = loop.create_task(self._poll())

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(LOOK)
            self.refresh()
            if self._desk is not None and time.monotonic() - self._swept > SWEEP:
                self._swept = time.monotonic()
                await self._desk.book.sweep()

    async def close(self, at_once: bool = False) -> None:
        """Work in the background may finish, unless all shall end now."""
        if self._polling is not None:
            self._polling.cancel()
        if self._desk is not None:
            await self._desk.close(0.0 if at_once else self.config.server.deadlines.shutdown or None)
        await self._servers.close()
        if self._client is not None:
            await self._client.close()
        self._telemetry.close()

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """No protocol here is spoken over WebSockets: clients that are told so at once use HTTP."""
        await receive()
        if "websocket.http.response" not in scope.get("extensions", {}):
            await send({"type": "websocket.close", "code": 1000})
            return
        room = self._dialects.nearest(scope["path"], "", {})
        answer = upgrade_refused(room)
        headers = [(name.encode(), value.encode()) for name, value in answer.headers.items()]
        await send({"type": "websocket.http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "websocket.http.response.body", "body": answer.body})


def _end_quietly() -> None:
    """The client has left, which cancelled what was done for it: that is no reason to cancel more."""
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()


class _Reporter:
    """Complaints that come before there is a log wait for it."""

    def __init__(self) -> None:
        self._telemetry: Telemetry | None = None
        self._waiting: list[tuple[Level, str, str]] = []
        self.file = ""

    def problems(self, found: Sequence[Problem]) -> None:
        for problem in found:
            level: Level = "error" if problem.severity == "error" else "warn"
            self._tell(level, said(problem, self.file), problem.hint)

    def warn(self, what: str) -> None:
        self._tell("warn", what, "")

    def _tell(self, kind: Level, what: str, hint: str) -> None:
        if self._telemetry is None:
            self._waiting.append((kind, what, hint))
        else:
            self._telemetry.event("configuration", level=kind, what=what, hint=hint)

    def to(self, telemetry: Telemetry) -> None:
        self._telemetry, waiting = telemetry, self._waiting
        for row in waiting:
            self._tell(*row)


def app(
    config: Config | str | Path | None = None,
    server: Mapping[str, object] = NOTHING,
    routes: Mapping[str, str] = NOTHING,
) -> Gateway:
    """The gateway as an ASGI application. `config` is a file, a `Config`, or nothing: then it is found as usual.

    `server` holds settings of `[server]`, and `routes` models by name, that win over the file. Raises `Problems` for a
    configuration with mistakes.
    """
    reporter = _Reporter()
    if isinstance(config, Config):
        live: Live | Fixed = Fixed(config)
    else:
        live = Live(config, os.environ, reporter.problems, server, routes)
    reporter.file = str(live.current.file or "")
    shared = os.environ.get(DIRECTORY)
    metrics = Metrics(Path(shared)) if shared else Metrics()
    telemetry = Telemetry(live.current.server, tracer=tracer(os.environ, reporter.warn), metrics=metrics)
    reporter.to(telemetry)
    return Gateway(live, telemetry)
