"""The way by a proxy: what its URL says, and the tunnel that it is asked for."""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode
from urllib.parse import unquote

from msgspec import Struct

from toolwire.gateway.upstream.address import Address, split_url
from toolwire.gateway.upstream.faults import Fault

MAX_HEAD = 64 * 1024

_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})[ \r]")
_HINTS = {407: "check the user and password of the proxy", 403: "the proxy does not allow this host"}


class Proxy(Struct, frozen=True):
    """A proxy; its `authorization` is a secret, so nothing here is shown but the host."""

    scheme: str
    host: str
    port: int
    authorization: str = ""

    @property
    def peer(self) -> str:
        return f"the proxy {self.host}:{self.port}"

    def __repr__(self) -> str:
        return f"Proxy({self.scheme}://{self.host}:{self.port})"

    def __rich_repr__(self) -> list[tuple[str, object]]:  # pretty printers ask this
        return [("host", self.host), ("port", self.port)]


def read_proxy(url: str) -> Proxy:
    parts, host, port = split_url(url, "a proxy URL")
    if parts.username is None:
        return Proxy(parts.scheme, host, port)
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return Proxy(parts.scheme, host, port, f"Basic {b64encode(pair.encode()).decode()}")


def refusal(proxy: Proxy, address: Address, status: int) -> Fault:
    hint = _HINTS.get(status, "check the proxy")
    return Fault("proxy", f"{proxy.peer} refused the way to {address.peer} with status {status}: {hint}")


class Tunnel(asyncio.Protocol):
    """Asks for a tunnel; the caller's own headers stay for its other end."""

    __slots__ = ("_address", "_head", "_opened", "_proxy")

    def __init__(self, proxy: Proxy, address: Address) -> None:
        self._proxy = proxy
        self._address = address
        self._head = bytearray()
        self._opened: asyncio.Future[Fault | None] = asyncio.get_running_loop().create_future()

    async def ask(self, transport: asyncio.WriteTransport) -> Fault | None:
        way = self._address.peer
        secret = self._proxy.authorization
        lines = [f"CONNECT {way} HTTP/1.1", f"host: {way}"]
        if secret:
            lines.append(f"proxy-authorization: {secret}")
        transport.write("\r\n".join([*lines, "", ""]).encode("ascii"))
        return await self._opened

    def data_received(self, data: bytes) -> None:
        self._head += data
        while (end := self._head.find(b"\r\n\r\n")) >= 0:
            status = int(found[1]) if (found := _STATUS.match(self._head)) else 0
            del self._head[: end + 4]
            if not 100 <= status < 200:
                self._settle(self._verdict(status))
                return
        if len(self._head) > MAX_HEAD:
            self._settle(self._odd())

    def _verdict(self, status: int) -> Fault | None:
        if status >= 300:
            return refusal(self._proxy, self._address, status)
        # Nobody may speak in the tunnel before us.
        return None if status >= 200 and not self._head else self._odd()

    def connection_lost(self, error: Exception | None) -> None:
        self._settle(Fault("proxy", f"{self._proxy.peer} closed the connection when asked for {self._address.peer}"))

    def _odd(self) -> Fault:
        return Fault("proxy", f"{self._proxy.peer} did not answer as a proxy does: check its host, port and scheme")

    def _settle(self, fault: Fault | None) -> None:
        if not self._opened.done():
            self._opened.set_result(fault)
