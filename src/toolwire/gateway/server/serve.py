"""Running the gateway by itself: uvloop, its own server, one port, and as many workers as wanted."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress

import uvloop

from toolwire.core.ir import EMPTY_MAPPING
from toolwire.gateway.app import Gateway, app
from toolwire.gateway.config import config
from toolwire.gateway.server import workers
from toolwire.gateway.server.server import HttpServer

BACKLOG = 2048
GC_THRESHOLDS = (50_000, 20, 100)
"""Requests make many small things that die at once: looking for cycles seldom is worth more than looking often."""
Announce = Callable[[str, tuple[str, ...], Mapping[str, str]], None]
"""Called once it serves: the origin, the models that have a name, and the providers with where they are."""


def serve(
    file: str | None,
    server_settings: Mapping[str, object],
    announce: Announce,
    routes: Mapping[str, str] = EMPTY_MAPPING,
    lifeline: int | None = None,
) -> int:
    """Serve until told to stop, or until `lifeline`, a file descriptor, comes to its end. Raises `Problems` or OSError
    when that cannot begin."""
    gateway = app(file, server_settings, routes)
    settings = gateway.config
    with open_socket(settings.server) as bound:

        def announce_ready() -> None:
            _announce_address(settings, bound, announce)

        def serve_worker(lifeline: int) -> None:
            run_server(app(file, server_settings, routes), bound, lifeline=lifeline)

        if settings.server.workers > 1:
            return workers.run_workers(settings.server, serve_worker, announce_ready)
        run_server(gateway, bound, announce_ready, lifeline)
    return 0


def open_socket(server: config.ServerSettings) -> socket.socket:
    """The socket to serve on. Raises OSError with the address when that cannot be had."""
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
    """Serve on a socket until a signal says to stop; streams under way may finish, a second signal ends them."""
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
    loop.add_signal_handler(signal.SIGHUP, gateway.reload_config, True)
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
    finishing = loop.create_task(server.close(gateway.config.server.timeouts.shutdown or None))
    waiting = loop.create_task(forced.wait())
    await asyncio.wait({finishing, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finishing.cancel()
    waiting.cancel()
    await asyncio.wait({finishing})  # what was cut still has its line in the log to write
    await gateway.close(forced.is_set())


def _announce_address(settings: config.Config, bound: socket.socket, announce: Announce) -> None:
    host, port = bound.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    places = {
        provider.name: next(iter(provider.base_urls.values()), "")
        for provider in settings.providers.values()
        if not provider.embedded
    }
    names = tuple(rule.name for rule in settings.models)
    announce(f"http://{shown}:{port}", names, places)
