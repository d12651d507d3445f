"""Runs the gateway on its own server: one port, in one process or several workers, on uvloop where it is installed."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from toolwire.core.ir import EMPTY_MAPPING
from toolwire.core.version import VERSION
from toolwire.gateway.app import Gateway, open_gateway, open_worker
from toolwire.gateway.configuration.load import ConfigFile, parse_listen_address
from toolwire.gateway.configuration.shared_config import SharedConfig
from toolwire.gateway.http.descriptors import raise_descriptor_limit
from toolwire.gateway.http.hangup import LogTerminal
from toolwire.gateway.http.server import HttpServer
from toolwire.gateway.http.stderr import STDERR, queue_stderr
from toolwire.gateway.http.workers import WorkerContext, WorkerSupervisor
from toolwire.gateway.settings.config import Config
from toolwire.gateway.telemetry.metrics import DIRECTORY_VARIABLE

try:
    from uvloop import new_event_loop
except ImportError:  # it does not exist for Windows, whose usual loop cannot wait for sockets
    new_event_loop = asyncio.SelectorEventLoop  # type: ignore[assignment]

BACKLOG = 2048
LAST_REQUEST_SECONDS = 2.0
"""When the gateway stops: a connection that was used in the last seconds may bring another request at any moment."""
Announce = Callable[[str, Config], None]
"""Called once the gateway serves, with its URL."""


def serve(
    file: ConfigFile | None,
    server_settings: Mapping[str, object],
    announce: Announce,
    routes: Mapping[str, str] = EMPTY_MAPPING,
    lifeline: int | None = None,
) -> int:
    """Serve until a signal, or until the other end of `lifeline`, a file descriptor, is closed. Raises `ConfigError`,
    or OSError if the port is taken."""
    raise_descriptor_limit()
    gateway = open_gateway(file, server_settings, routes)
    config, log_event = gateway.config, gateway.telemetry.log_event
    if file is not None and not file.path.is_absolute() and not sys.stderr.isatty():  # on a terminal it has been said
        log_event("config_file", file=str(file.path.absolute()), message="a file of the working folder is used")
    shared_config = SharedConfig(gateway.config_watch.source.accepted_file) if config.server.workers > 1 else None
    address = parse_listen_address(config.server.metrics_listen)
    metrics = open_socket(*address) if address is not None else nullcontext()
    with open_socket(config.server.host, config.server.port) as bound, metrics as metrics_bound, queue_stderr():
        host, port = bound.getsockname()[:2]

        def announce_ready() -> None:
            shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
            origin = f"http://{shown}:{port}"
            if not sys.stderr.isatty():
                text = f"Toolwire {VERSION} on {origin}"
                names = [provider.name for provider in config.providers.values() if not provider.is_demo]
                log_event("serving", message=text, config=str(config.file or ""), providers=names)
                STDERR.drain()  # before what is announced on standard output, which may be the same file
            announce(origin, config)

        if shared_config is not None:

            def serve_worker(context: WorkerContext) -> None:
                gateway = open_worker(shared_config, server_settings, routes)
                served = (gateway, bound, context.on_ready, context.lifeline, metrics_bound, context, directory)
                _run(_serve_until_stopped(*served))

            with _share_metrics(), tempfile.TemporaryDirectory(prefix="toolwire-console-") as directory:
                supervisor = WorkerSupervisor(
                    config.server.workers,
                    serve_worker,
                    log_event,
                    gateway.telemetry.report_error,
                    announce_ready,
                    bound.close,  # so that new connections are refused as soon as the last worker accepts none
                )
                return supervisor.supervise()
        _run(_serve_until_stopped(gateway, bound, announce_ready, lifeline, metrics_bound))
    return 0


def open_socket(host: str, port: int) -> socket.socket:
    """A socket to serve on. Raises OSError with the address if it is not available."""
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        # On Windows, SO_REUSEADDR would let two programs use the port at once.
        option = getattr(socket, "SO_EXCLUSIVEADDRUSE", socket.SO_REUSEADDR)
        bound.setsockopt(socket.SOL_SOCKET, option, 1)
        bound.bind((host, port))
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        raise OSError(error.errno, error.strerror, f"{host}:{port}") from None
    bound.setblocking(False)
    return bound


def _run(serving: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(serving)


async def _serve_until_stopped(
    gateway: Gateway,
    bound: socket.socket,
    ready: Callable[[], None],
    lifeline: int | None,
    metrics_bound: socket.socket | None,
    worker: WorkerContext | None = None,
    console_directory: str = "",
) -> None:
    """Serve on a socket until a signal. Running streams may finish; a second signal ends them. Workers share
    `console_directory`, so that the console shows the requests of all."""
    loop = asyncio.get_running_loop()
    stopped, forced = asyncio.Event(), asyncio.Event()
    terminal = LogTerminal()

    def stop() -> None:
        (forced if stopped.is_set() else stopped).set()

    def hang_up() -> None:
        if terminal.is_closed():
            stopped.set()
        else:
            gateway.config_watch.start_reload()

    watch_signals(loop, {"SIGTERM": stop, "SIGINT": stop, "SIGBREAK": stop, "SIGHUP": hang_up})

    def stop_all() -> None:
        if worker is not None:
            worker.counts.stop_all()
        stop()

    if lifeline is not None:
        watch_lifeline(loop, lifeline, stop_all)
    server = HttpServer(gateway.handle_request, gateway.answer_internal_error, gateway.admission)
    gateway.open()
    if worker is not None:
        await _join_console(gateway, console_directory, worker)
    await server.listen(bound, BACKLOG, worker, gateway.telemetry.log_event)
    metrics_server = HttpServer(gateway.handle_metrics_request, gateway.answer_internal_error)
    if metrics_bound is not None:
        await metrics_server.listen(metrics_bound, BACKLOG)
    gc.freeze()
    ready()
    await stopped.wait()
    gateway.is_stopping = True
    server.drain()
    with suppress(TimeoutError):
        await asyncio.wait_for(forced.wait(), gateway.config.server.timeouts.drain)
    is_last = worker is None or worker.counts.are_all_stopping
    seconds = gateway.config.server.timeouts.shutdown or None
    closing = loop.create_task(server.close(seconds, LAST_REQUEST_SECONDS, is_last))
    waiting = loop.create_task(forced.wait())
    await asyncio.wait({closing, waiting}, return_when=asyncio.FIRST_COMPLETED)
    closing.cancel()
    waiting.cancel()
    await asyncio.wait({closing})  # requests that were cut off still write their log line
    await metrics_server.close(1, is_last=is_last)
    await gateway.close(forced.is_set())


def watch_signals(loop: asyncio.AbstractEventLoop, handlers: Mapping[str, Callable[[], object]]) -> None:
    """Call the handlers in the loop. Signals that this system does not have are left out."""
    known = {getattr(signal, name): handler for name, handler in handlers.items() if hasattr(signal, name)}
    try:
        for number, handler in known.items():
            loop.add_signal_handler(number, handler)
    except NotImplementedError:  # Windows: the handlers run by themselves, but the loop must be woken up
        read, write = socket.socketpair()
        for end in (read, write):
            end.setblocking(False)
        loop.add_reader(read, lambda: read.recv(4096))
        signal.set_wakeup_fd(write.detach(), warn_on_full_buffer=False)
        for number, handler in known.items():
            signal.signal(number, lambda _number, _frame, handler=handler: loop.call_soon(handler))  # type: ignore[misc]


async def _join_console(gateway: Gateway, directory: str, worker: WorkerContext) -> None:
    try:
        await gateway.console.join_workers(Path(directory), worker.slot)
    except OSError as error:  # such as a path of the directory that is too long for a socket
        what = f"the console shows the requests of one worker only: {error.strerror or error}"
        gateway.telemetry.log_event("console_incomplete", level="warn", message=what)


def watch_lifeline(loop: asyncio.AbstractEventLoop, descriptor: int, on_end: Callable[[], None]) -> None:
    """Call `on_end` in the loop when the other end of a pipe is closed. A thread waits for it, because on Windows no
    event loop that serves sockets can wait for a pipe."""

    def wait() -> None:
        while os.read(descriptor, 4096):
            pass
        with suppress(RuntimeError):  # the loop is closed already
            loop.call_soon_threadsafe(on_end)

    threading.Thread(target=wait, name="lifeline", daemon=True).start()


@contextmanager
def _share_metrics() -> Iterator[None]:
    directory = "" if os.environ.get(DIRECTORY_VARIABLE) else tempfile.mkdtemp(prefix="toolwire-")
    if directory:
        os.environ[DIRECTORY_VARIABLE] = directory
    try:
        yield
    finally:
        if directory:
            shutil.rmtree(directory, ignore_errors=True)
