"""Making a connection to a provider: straight, or by a proxy; plain, or in TLS."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import TypeVar

from toolwire.gateway.upstream.address import Address
from toolwire.gateway.upstream.connection import Connection
from toolwire.gateway.upstream.faults import Fault, read_connect_error
from toolwire.gateway.upstream.proxy import Proxy, Tunnel
from toolwire.gateway.upstream.trust import Trust, read_tls_error

_P = TypeVar("_P", bound=asyncio.Protocol)

_HUNG_UP = (ConnectionResetError, ConnectionAbortedError, BrokenPipeError)
_OF_THE_PROXY = frozenset({"dns", "refused", "unreachable"})


class Dialer:
    """The way to one address."""

    __slots__ = ("_address", "_proxy", "_trust")

    def __init__(self, address: Address, proxy: Proxy | None, trust: Trust) -> None:
        self._address = address
        self._proxy = proxy
        self._trust = trust

    async def dial(self, seconds: float, make: Callable[[], Connection]) -> Connection | Fault:
        """All of it within `seconds`: the name, the connection, the proxy and TLS; 0 is no limit."""
        address, proxy = self._address, self._proxy
        context: ssl.SSLContext | None = None
        if address.scheme == "https" or (proxy is not None and proxy.scheme == "https"):
            # Not within the time: the first one reads the system's certificates.
            trusted = self._trust.context(address.ca_file)
            if isinstance(trusted, Fault):
                return trusted
            context = trusted
        try:
            async with asyncio.timeout(seconds or None):
                if proxy is None:
                    opened = await _open(make, address, address.peer, context)
                elif address.scheme == "http" or context is None:
                    opened = _blamed(await _open(make, proxy, proxy.peer, context))
                else:
                    return await self._tunnel(proxy, make, context)
                return opened if isinstance(opened, Fault) else opened[1]
        except TimeoutError as error:
            return read_connect_error(error, address.peer if proxy is None else f"{address.peer} by {proxy.peer}")

    async def _tunnel(
        self, proxy: Proxy, make: Callable[[], Connection], context: ssl.SSLContext
    ) -> Connection | Fault:
        """TLS to the provider inside a tunnel: the proxy sees its name, and nothing that is sent to it."""
        address = self._address
        opened = _blamed(await _open(lambda: Tunnel(proxy, address), proxy, proxy.peer, context))
        if isinstance(opened, Fault):
            return opened
        transport, tunnel = opened
        inner: asyncio.Transport | None = None
        try:
            fault = await tunnel.ask(transport)
            if fault is not None:
                return fault
            connection = make()
            loop = asyncio.get_running_loop()
            inner = await loop.start_tls(transport, connection, context, server_hostname=address.host)
        except OSError as error:
            return _read(error, address.peer, secured=True)
        finally:
            if inner is None:
                transport.abort()
        if inner is None:  # the loop calls it optional: the proxy hung up at the last moment
            return _read(ConnectionResetError(), address.peer, secured=True)
        connection.connection_made(inner)
        return connection


async def _open(
    make: Callable[[], _P], end: Address | Proxy, peer: str, context: ssl.SSLContext | None
) -> tuple[asyncio.Transport, _P] | Fault:
    """To the provider itself, or to its proxy."""
    if end.scheme == "http":
        context = None
    try:
        return await _connect(make, end.host, end.port, context)
    except (OSError, UnicodeError) as error:
        return _read(error, peer, secured=context is not None)


async def _connect(
    make: Callable[[], _P], host: str, port: int, context: ssl.SSLContext | None
) -> tuple[asyncio.Transport, _P]:
    loop = asyncio.get_running_loop()
    if isinstance(loop, asyncio.BaseEventLoop):
        # Not every loop can try IPv6 and IPv4 side by side.
        return await loop.create_connection(make, host, port, ssl=context, happy_eyeballs_delay=0.25)
    return await loop.create_connection(make, host, port, ssl=context)


def _read(error: Exception, peer: str, *, secured: bool) -> Fault:
    if isinstance(error, ssl.SSLError) or (secured and isinstance(error, _HUNG_UP)):
        return read_tls_error(error, peer)
    return read_connect_error(error, peer)


def _blamed(opened: tuple[asyncio.Transport, _P] | Fault) -> tuple[asyncio.Transport, _P] | Fault:
    """That the proxy is not there is a fault of the proxy."""
    if isinstance(opened, Fault) and opened.kind in _OF_THE_PROXY:
        return Fault("proxy", opened.detail)
    return opened
