"""The client for providers: HTTP/1.1, kept-alive connections, deadlines, faults as values. See docs/decisions/0008."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from toolwire.gateway.address import Address
from toolwire.gateway.config import Deadlines
from toolwire.gateway.connection import BODY, DONE, Connection
from toolwire.gateway.dial import dial
from toolwire.gateway.faults import Fault

__all__ = ["Address", "Answer", "Client", "Fault"]

MAX_IDLE = 64
MAX_AGE = 55.0
"""Seconds: below the minute after which many servers hang up."""

_OURS = frozenset(
    "host content-length transfer-encoding connection keep-alive te trailer upgrade expect "
    "proxy-authorization proxy-connection".split()
)
"""Headers of the connection, which are not the caller's to set."""
_WITHOUT_BODY = frozenset({"GET", "HEAD", "DELETE", "OPTIONS"})


class Answer:
    """An answer whose head is there. Read it to its end or abort it; one that is forgotten closes its connection."""

    __slots__ = ("_connection", "_end", "headers", "status")

    def __init__(self, connection: Connection) -> None:
        self._connection: Connection | None = connection
        self._end: bytes | Fault = b""
        self.status = connection.status
        self.headers = connection.headers

    async def read(self, limit: int) -> bytes | Fault:
        """The whole body, or the rest of it."""
        connection = self._connection
        if connection is None:
            return self._end
        if connection.phase == BODY:
            await connection.rest(limit)
        if connection.held > limit:
            return self._over(
                connection, Fault("protocol", f"{connection.peer} sent a body of more than {limit:,} bytes")
            )
        if connection.phase != DONE:
            return self._over(connection, connection.fault)
        data = connection.take()
        self._over(connection, None)
        return data

    async def chunk(self) -> bytes | Fault:
        """The next bytes of the body, as they come; b"" at its end."""
        connection = self._connection
        if connection is None:
            return self._end
        if not connection.held:
            await connection.more()
        if not connection.held:
            return self._over(connection, None if connection.phase == DONE else connection.fault)
        data = connection.take()
        if connection.phase == DONE:
            self._over(connection, None)
        return data

    def abort(self) -> None:
        """Done with it: where more of the body would come, the connection is closed, so that the provider stops."""
        if self._connection is not None:
            self._over(
                self._connection, Fault("cut", f"the answer of {self._connection.peer} was given up on this side")
            )

    def _over(self, connection: Connection, fault: Fault | None) -> bytes | Fault:
        self._connection = None
        connection.release()
        self._end = b"" if fault is None else fault
        return self._end

    def __del__(self) -> None:
        if self._connection is not None:
            self._connection.forget()


class Client:
    """One for a process. Not for several event loops."""

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self._sites: dict[Address, _Site] = {}
        self._closed = False

    async def send(
        self, address: Address, method: str, path: str, headers: Sequence[tuple[str, str]], body: bytes
    ) -> Answer | Fault:
        """Ask, and wait for the head of the answer."""
        site = self._sites.get(address)
        if site is None:
            site = self._sites[address] = _Site(address)
        head = site.head(method, path, headers, len(body))
        if isinstance(head, Fault):
            return head
        bodiless = method == "HEAD"
        connection = site.pooled()
        if connection is not None:
            await connection.exchange(head, body, bodiless)
            fault = connection.fault
            if fault is None:
                return Answer(connection)
            if connection.seen or fault.kind != "cut" or self._closed:
                return fault
        # A connection that had been closed while nobody looked is not the provider's answer: once more, on a new one.
        fresh = await self._connect(site)
        if isinstance(fresh, Fault):
            return fresh
        await fresh.exchange(head, body, bodiless)
        return Answer(fresh) if fresh.fault is None else fresh.fault

    async def close(self) -> None:
        """Closes what is idle and what is not; whoever waits gets a fault."""
        self._closed = True
        for site in self._sites.values():
            for connection in tuple(site.everyone):
                connection.drop()
        # Transports close in the next round of the loop.
        await asyncio.sleep(0)

    async def _connect(self, site: _Site) -> Connection | Fault:
        address, deadlines = site.address, self._deadlines
        connection = await dial(
            address, deadlines.connect, lambda: Connection(address.peer, deadlines, site.idle, site.everyone)
        )
        if self._closed and isinstance(connection, Connection):
            connection.drop()
            return Fault("cut", f"the connection to {address.peer} was closed on this side")
        return connection


class _Site:
    """What is kept of an address: its connections, and the first lines of requests."""

    __slots__ = ("_first_lines", "address", "everyone", "idle")

    def __init__(self, address: Address) -> None:
        self.address = address
        self.idle: list[Connection] = []
        self.everyone: set[Connection] = set()
        self._first_lines: dict[tuple[str, str], str] = {}

    def pooled(self) -> Connection | None:
        """The idle connection that was used last; those that waited too long are closed on the way."""
        idle = self.idle
        while len(idle) > MAX_IDLE:
            idle.pop(0).drop()
        while idle:
            connection = idle.pop()
            if connection.usable(MAX_AGE):
                return connection
            connection.drop()
        return None

    def head(self, method: str, path: str, headers: Sequence[tuple[str, str]], length: int) -> bytes | Fault:
        first = self._first_lines.get((method, path)) or self._first_line(method, path)
        if not first:
            return Fault(
                "protocol", "the path or method of the request holds a character that HTTP does not allow there"
            )
        lines = [f"{name}: {value}\r\n" for name, value in headers if name.lower() not in _OURS]
        text = "".join(lines)
        if not (text.count("\n") == text.count("\r") == len(lines)) or "\0" in text:
            return Fault("protocol", "a header of the request holds a line break or a zero byte")
        if "accept-encoding" not in text.lower():
            text += "accept-encoding: identity\r\n"
        if length or method not in _WITHOUT_BODY:
            text = f"{first}{text}content-length: {length}\r\n\r\n"
        else:
            text = f"{first}{text}\r\n"
        try:
            return text.encode("latin-1")
        except UnicodeEncodeError:
            return Fault("protocol", "a header of the request holds a character outside Latin-1")

    def _first_line(self, method: str, path: str) -> str:
        """Request line and Host, remembered; empty where the path cannot be sent."""
        target = self.address.target(path)
        if not (target.isascii() and target.isprintable() and " " not in target and method.isalpha()):
            return ""
        if len(self._first_lines) >= 256:
            self._first_lines.clear()
        line = f"{method} {target} HTTP/1.1\r\nhost: {self.address.authority}\r\n"
        self._first_lines[method, path] = line
        return line
