"""Runs the gateway on its own server: uvloop, one port, in one process or several workers."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

import uvloop

from toolwire.core.ir import EMPTY_MAPPING
from toolwire.gateway.app import Gateway, WorkerConfig, app
from toolwire.gateway.config.config import ServerSettings
from toolwire.gateway.server.server import HttpServer
from toolwire.gateway.telemetry.metrics import DIRECTORY_VARIABLE
from toolwire.gateway.telemetry.stderr import queue_stderr

BACKLOG = 2048
GC_THRESHOLDS = (50_000, 20, 100)
"""Requests make many objects that die at once, so the garbage collector runs seldom."""
MIN_WORKER_SECONDS = 1.0
"""A worker that dies earlier is replaced only after a pause."""
ServeWorker = Callable[[int], None]
"""Serves until a signal, or until the other end of the given file descriptor is closed: then the supervisor is gone."""
Announce = Callable[[str, tuple[str, ...], Mapping[str, str]], None]
"""Called once the gateway serves: with its URL, the names of the models, and the providers with their URLs."""


def serve(
    file: str | None,
    server_settings: Mapping[str, object],
    announce: Announce,
    routes: Mapping[str, str] = EMPTY_MAPPING,
    lifeline: int | None = None,
) -> int:
    """Serve until a signal, or until the other end of `lifeline`, a file descriptor, is closed. Raises `ConfigError`,
    or OSError if the port is taken."""
    gateway = app(file, server_settings, routes)
    config = gateway.config
    shared_config = WorkerConfig(gateway, server_settings, routes) if config.server.workers > 1 else None
    with open_socket(config.server) as bound, queue_stderr():

        def announce_ready() -> None:
            host, port = bound.getsockname()[:2]
            shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
            providers = [provider for provider in config.providers.values() if not provider.embedded]
            urls = {provider.name: next(iter(provider.base_urls.values()), "") for provider in providers}
            announce(f"http://{shown}:{port}", tuple(rule.name for rule in config.models), urls)

        if shared_config is not None:

            def serve_worker(lifeline: int) -> None:
                run_server(shared_config.open_gateway(), bound, lifeline=lifeline)

            return _run_workers(config.server, serve_worker, announce_ready)
        run_server(gateway, bound, announce_ready, lifeline)
    return 0


def open_socket(server: ServerSettings) -> socket.socket:
    """The socket to serve on. Raises OSError with the address if it is not available."""
    bound = socket.socket(socket.AF_INET6 if ":" in server.host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((server.host, server.port))
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        raise OSError(error.errno, error.strerror, f"{server.host}:{server.port}") from None
    bound.setblocking(False)
    return bound


def run_server(
    gateway: Gateway, bound: socket.socket, ready: Callable[[], None] = lambda: None, lifeline: int | None = None
) -> None:
    """Serve on a socket until a signal. Running streams may finish; a second signal ends them."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve_until_stopped(gateway, bound, ready, lifeline))


async def _serve_until_stopped(
    gateway: Gateway, bound: socket.socket, ready: Callable[[], None], lifeline: int | None
) -> None:
    loop = asyncio.get_running_loop()
    stopped, forced = asyncio.Event(), asyncio.Event()

    def stop() -> None:
        (forced if stopped.is_set() else stopped).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    loop.add_signal_handler(signal.SIGHUP, gateway.start_reload)
    if lifeline is not None:

        def on_lifeline_end() -> None:
            loop.remove_reader(lifeline)
            stop()

        loop.add_reader(lifeline, on_lifeline_end)
    server = HttpServer(gateway.handle_request, gateway.answer_internal_error)
    gateway.open()
    await server.listen(bound, BACKLOG)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    ready()
    await stopped.wait()
    gateway.is_stopping = True
    with suppress(TimeoutError):
        await asyncio.wait_for(forced.wait(), gateway.config.server.timeouts.drain)
    closing = loop.create_task(server.close(gateway.config.server.timeouts.shutdown or None))
    waiting = loop.create_task(forced.wait())
    await asyncio.wait({closing, waiting}, return_when=asyncio.FIRST_COMPLETED)
    closing.cancel()
    waiting.cancel()
    await asyncio.wait({closing})  # requests that were cut off still write their log line
    await gateway.close(forced.is_set())


def _run_workers(server: ServerSettings, serve_worker: ServeWorker, ready: Callable[[], None]) -> int:
    """Run several processes on one port until a signal. They share a directory for their metrics."""
    directory = "" if os.environ.get(DIRECTORY_VARIABLE) else tempfile.mkdtemp(prefix="toolwire-")
    if directory:
        os.environ[DIRECTORY_VARIABLE] = directory
    try:
        supervisor = _WorkerSupervisor(server.workers, serve_worker)
        ready()
        return supervisor.supervise()
    finally:
        if directory:
            shutil.rmtree(directory, ignore_errors=True)


class _WorkerSupervisor:
    """Forks the workers, replaces one that dies, and forwards signals to all."""

    def __init__(self, count: int, serve_worker: ServeWorker) -> None:
        self._serve_worker = serve_worker
        self._lifeline, self._lifeline_write_end = os.pipe()
        self._started_at: dict[int, float] = {}
        self._stopping = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop_workers)
        signal.signal(signal.SIGHUP, self._forward_signal)
        for _ in range(count):
            self._fork_worker()

    def _fork_worker(self) -> None:
        pid = os.fork()
        if pid:
            self._started_at[pid] = time.monotonic()
            if self._stopping:  # a signal came during the fork
                os.kill(pid, signal.SIGTERM)
            return
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # it reads the configuration anyway
        os.close(self._lifeline_write_end)
        status = 1
        try:
            self._serve_worker(self._lifeline)
            status = 0
        finally:
            os._exit(status)

    def _stop_workers(self, number: int, _frame: object) -> None:
        self._stopping = True
        self._forward_signal(number, None)

    def _forward_signal(self, number: int, _frame: object) -> None:
        for pid in tuple(self._started_at):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def supervise(self) -> int:
        while self._started_at:
            pid, _ = os.wait()
            started = self._started_at.pop(pid, None)
            if started is None or self._stopping:
                continue
            if time.monotonic() - started < MIN_WORKER_SECONDS:
                time.sleep(MIN_WORKER_SECONDS)
            if not self._stopping:
                self._fork_worker()
        return 0
