"""Running the gateway by itself: uvicorn with uvloop and httptools, on one port, with as many workers as wanted."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Mapping

import uvicorn

from toolwire.gateway import workers
from toolwire.gateway.app import Gateway, app
from toolwire.gateway.config import Config, Server

BACKLOG = 2048
Announce = Callable[[str, tuple[str, ...], Mapping[str, str]], None]
"""Called once it serves: the origin, the models that have a name, and the providers with where they are."""


def serve(file: str | None, wanted: Mapping[str, object], announce: Announce) -> int:
    """Serve until told to stop. Raises `Problems` or OSError when that cannot begin."""
    gateway = app(file, wanted)
    config = gateway.config
    bound = listening(config.server)
    with bound:
        if config.server.workers > 1:
            return workers.run(
                config.server, lambda: run(app(file, wanted), bound), lambda: _told(config, bound, announce)
            )
        run(gateway, bound, lambda: _told(config, bound, announce))
    return 0


def listening(server: Server) -> socket.socket:
    """The socket to serve on. Raises OSError when the address cannot be had."""
    bound = socket.socket(socket.AF_INET6 if ":" in server.host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((server.host, server.port))
        bound.listen(BACKLOG)
    except OSError:
        bound.close()
        raise
    bound.setblocking(False)
    return bound


def run(gateway: Gateway, bound: socket.socket, ready: Callable[[], None] = lambda: None) -> None:
    """Serve on a socket until a signal says to stop; streams under way may finish."""
    config = uvicorn.Config(
        gateway,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=int(gateway.config.server.deadlines.shutdown) or None,
        backlog=BACKLOG,
    )
    _Server(config, gateway, ready).run(sockets=[bound])


class _Server(uvicorn.Server):
    """Says when it is ready, and reads the configuration again on SIGHUP."""

    def __init__(self, config: uvicorn.Config, gateway: Gateway, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._gateway = gateway
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._gateway.refresh, True)
        self._ready()


def _told(config: Config, bound: socket.socket, announce: Announce) -> None:
    host, port = bound.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    places = {
        provider.name: next(iter(provider.base_urls.values()), "")
        for provider in config.providers.values()
        if not provider.embedded
    }
    names = tuple(rule.name for rule in config.models)
    announce(f"http://{shown}:{port}", names, places)
