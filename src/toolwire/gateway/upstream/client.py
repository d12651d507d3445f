"""The client for providers: HTTP/1.1, kept-alive connections, deadlines, faults as values. See docs/decisions/0008."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from toolwire.gateway.outbox import Outbox
from toolwire.gateway.settings.config import Deadlines
from toolwire.gateway.upstream.address import Address
from toolwire.gateway.upstream.connection import MAX_AGE, SLICE, Connection
from toolwire.gateway.upstream.dial import Dialer
from toolwire.gateway.upstream.faults import Fault
from toolwire.gateway.upstream.proxy import read_proxy, refusal
from toolwire.gateway.upstream.trust import Trust
from toolwire.gateway.upstream.unpacking import ENCODINGS, Unpacker
from toolwire.gateway.upstream.waiting import BODY, DONE, HEAD, Sink

__all__ = ["Address", "Answer", "Client", "Fault"]

_OURS = frozenset(
    "host content-length transfer-encoding connection keep-alive te trailer upgrade expect "
    "proxy-authorization proxy-connection".split()
)
"""Headers of the connection, which are not the caller's to set."""
Headers = Sequence[tuple[str, str]]
MAX_LINES = 1024
MAX_REMEMBERED = 512
MAX_HEADS = 256
MAX_HEAD = 4096
"""Bytes of a head that is worth remembering."""

_lines: dict[tuple[str, str], bytes] = {}
"""Headers as they were sent before: most are the same in every request."""
_WITHOUT_BODY = frozenset({"GET", "HEAD", "DELETE", "OPTIONS"})


class Answer:
    """An answer whose head is there. Read it to its end or abort it; one that is forgotten closes its connection."""

    __slots__ = ("_connection", "_end", "_unpacker", "headers", "status")

    def __init__(self, connection: Connection) -> None:
        self._connection: Connection | None = connection
        self._end: bytes | Fault = b""
        self._unpacker: Unpacker | None = None
        self.status = connection.status
        self.headers = connection.headers
        """With lower-case names; those that tell of a packing that is undone are left out."""
        if "content-encoding" in self.headers:
            self._unpack(connection)

    async def read(self, limit: int) -> bytes | Fault:
        """The whole body, or the rest of it; more than `limit` bytes of it are a fault."""
        connection = self._connection
        if connection is None:
            return self._end
        if connection.phase != DONE:
            await connection.rest(limit)
            if connection.phase != DONE and not connection.holds_more(limit):
                return self._over(connection, connection.fault)
        if connection.weight > limit and connection.holds_more(limit):
            return self._over(connection, _too_long(connection.peer, limit))
        data = connection.take()
        self._connection = None
        connection.release()
        return data if self._unpacker is None else self._unpacked(self._unpacker, data, connection.peer, limit)

    async def comes(self, seconds: float) -> bool:
        """Can more be taken within that time: bytes, the end, or a fault?"""
        connection = self._connection
        if connection is None or (self._unpacker is not None and self._unpacker.pending):
            return True
        return await connection.comes(seconds)

    async def chunk(self) -> bytes | Fault:
        """The next bytes of the body, as they come; b"" at its end."""
        connection = self._connection
        if connection is None:
            return self._end
        if self._unpacker is not None:
            return await self._unpacked_chunk(connection, self._unpacker)
        if not connection.pieces:
            await connection.more()
        if not connection.pieces:
            return self._over(connection, None if connection.phase == DONE else connection.fault)
        data = connection.take()
        if connection.phase == DONE:
            self._over(connection, None)
        return data

    async def pour(self, sink: Sink) -> bytes | Fault | None:
        """The body to the sink, piece by piece, without waking the caller: b"" at its end, None where the sink has had
        enough for now, and more can be asked for later."""
        connection = self._connection
        if connection is None:
            return self._end
        if self._unpacker is not None:
            data = await self.chunk()
            if isinstance(data, bytes) and data:
                sink(data)
                return None
            return data
        await connection.pour(sink)
        if connection.phase == BODY and connection.fault is None:
            return None
        return self._over(connection, None if connection.phase == DONE else connection.fault)

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

    def _unpack(self, connection: Connection) -> None:
        encoding = self.headers["content-encoding"].strip().lower()
        if encoding in ENCODINGS:
            self._unpacker = Unpacker(encoding, connection.peer)
            gone = ("content-encoding", "content-length")
            self.headers = {name: value for name, value in self.headers.items() if name not in gone}

    def _unpacked(self, unpacker: Unpacker, data: bytes, peer: str, limit: int) -> bytes | Fault:
        whole = unpacker.feed(data, limit + 1)
        if isinstance(whole, bytes) and len(whole) > limit:
            whole = _too_long(peer, limit)
        if isinstance(whole, bytes):
            whole = unpacker.finish() or whole
        if isinstance(whole, Fault):
            self._end = whole
        return whole

    async def _unpacked_chunk(self, connection: Connection, unpacker: Unpacker) -> bytes | Fault:
        while True:
            packed = b""
            if not unpacker.pending:
                if not connection.pieces:
                    await connection.more()
                if not connection.pieces:
                    whole = connection.phase == DONE
                    return self._over(connection, unpacker.finish() if whole else connection.fault)
                packed = connection.take()
            data = unpacker.feed(packed, SLICE)
            if isinstance(data, Fault):
                return self._over(connection, data)
            if data:
                return data

    def __del__(self) -> None:
        if self._connection is not None:
            self._connection.forget()


def _too_long(peer: str, limit: int) -> Fault:
    return Fault("protocol", f"{peer} sent a body of more than {limit:,} bytes")


class Client:
    """One for an event loop."""

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self._sites: dict[Address, _Site] = {}
        self._trust = Trust()
        self._outbox = Outbox(asyncio.get_running_loop())
        self._closed = False

    async def send(
        self, address: Address, method: str, path: str, headers: Headers, body: bytes, own: Headers = ()
    ) -> Answer | Fault:
        """Ask, and wait for the head of the answer. Headers that are new in every request are `own`: the others are
        remembered."""
        site = self._sites.get(address)
        if site is None:
            site = self._sites[address] = _Site(address, self._trust)
        head = site.head(method, path, tuple(headers), own, len(body))
        if not isinstance(head, bytes):
            return head
        bodiless = method == "HEAD"
        connection = site.pooled()
        try:
            if connection is not None:
                await connection.exchange(head, body, bodiless)
                fault = connection.fault
                # One that had been closed while nobody looked is not the provider's answer: once more, on a new one.
                if fault is None and site.proxy is None:
                    return Answer(connection)
                if fault is None or connection.seen or fault.kind != "cut" or self._closed:
                    return site.answer(connection)
            fresh = await self._connect(site)
            if isinstance(fresh, Fault):
                return fresh
            connection = fresh
            await connection.exchange(head, body, bodiless)
            return site.answer(connection)
        except (asyncio.CancelledError, GeneratorExit):
            if connection is not None:
                connection.give_up()
            raise

    async def close(self) -> None:
        """Closes what is idle and what is not; whoever waits gets a fault."""
        self._closed = True
        for site in self._sites.values():
            for connection in tuple(site.everyone):
                connection.drop()
        # Transports close in the next round of the loop.
        await asyncio.sleep(0)

    async def _connect(self, site: _Site) -> Connection | Fault:
        deadlines, peer, outbox = self._deadlines, site.peer, self._outbox
        connection = await site.dialer.dial(
            deadlines.connect, lambda: Connection(peer, deadlines, outbox, site.idle, site.everyone)
        )
        if self._closed and isinstance(connection, Connection):
            connection.drop()
            return Fault("cut", f"the connection to {peer} was closed on this side")
        return connection


class _Site:
    """What is kept of an address: its connections, and the first lines of requests."""

    __slots__ = (
        "_address",
        "_clock",
        "_first_lines",
        "_heads",
        "dialer",
        "everyone",
        "idle",
        "peer",
        "proxy",
    )

    def __init__(self, address: Address, trust: Trust) -> None:
        proxy = read_proxy(address.proxy) if address.proxy else None
        self._address = address
        self.proxy = proxy if address.scheme == "http" else None
        """The proxy that reads our requests; in a tunnel it does not."""
        self._first_lines: dict[tuple[str, str], bytes] = {}
        self._heads: dict[tuple[str, str, Headers], bytes] = {}
        self._clock = asyncio.get_running_loop().time
        self.peer = address.peer if proxy is None else f"{address.peer} (by {proxy.peer})"
        self.dialer = Dialer(address, proxy, trust)
        self.idle: list[Connection] = []
        self.everyone: set[Connection] = set()

    def pooled(self) -> Connection | None:
        """The idle connection that was used last; those that waited too long are closed on the way."""
        idle = self.idle
        oldest = self._clock() - MAX_AGE
        while idle:
            connection = idle.pop()
            if connection.heard_at > oldest:
                if idle and idle[0].heard_at <= oldest:
                    idle.pop(0).drop()
                return connection
            connection.drop()
        return None

    def answer(self, connection: Connection) -> Answer | Fault:
        if connection.fault is not None and connection.phase == HEAD:
            return connection.fault
        if self.proxy is not None and connection.status == 407:
            connection.drop()
            return refusal(self.proxy, self._address, 407)
        return Answer(connection)

    def head(self, method: str, path: str, headers: Headers, own: Headers, length: int) -> bytes | Fault:
        key = (method, path, headers)
        last = f"content-length: {length}\r\n\r\n" if length or method not in _WITHOUT_BODY else "\r\n"
        try:
            return (self._heads.get(key) or self._head(key)) + _spelled(own, last)
        except ValueError as error:
            return Fault("protocol", str(error))

    def _head(self, key: tuple[str, str, Headers]) -> bytes:
        """All of a head that may be the same in other requests, remembered."""
        method, path, headers = key
        first = self._first_lines.get((method, path)) or self._first_line(method, path)
        if not first:
            raise ValueError("the path or the method of the request holds a character that may not stand there")
        head = b"".join([first, *[_lines.get(header) or _line(*header) for header in headers]])
        if b"\naccept-encoding:" not in head:
            head += b"accept-encoding: identity\r\n"
        if len(self._heads) >= MAX_HEADS:
            self._heads.clear()
        if len(head) <= MAX_HEAD:
            self._heads[key] = head
        return head

    def _first_line(self, method: str, path: str) -> bytes:
        """Request line, Host and what a proxy must know, remembered; empty where the path cannot be sent."""
        address, proxy = self._address, self.proxy
        target = address.target(path)
        if not (target.isascii() and target.isprintable() and " " not in target and method.isalpha()):
            return b""
        if proxy is not None:
            target = f"http://{address.authority}{target}"
        lines = f"{method} {target} HTTP/1.1\r\nhost: {address.authority}\r\n"
        if proxy is not None and proxy.authorization:
            lines += f"proxy-authorization: {proxy.authorization}\r\n"
        if len(self._first_lines) >= MAX_LINES:
            self._first_lines.clear()
        self._first_lines[method, path] = made = lines.encode("ascii")
        return made


def _line(name: str, value: str) -> bytes:
    """A header as it is sent, remembered; none for one that is not the caller's to set."""
    if name.lower() in _OURS:
        return b""
    line = _spelled(((name.lower(), value),), "")
    if len(_lines) >= MAX_LINES:
        _lines.clear()
    if len(line) <= MAX_REMEMBERED:
        _lines[name, value] = line
    return line


def _spelled(headers: Headers, last: str) -> bytes:
    """Headers as they are sent, and what comes after them."""
    text = ""
    for name, value in headers:
        line = f"{name}: {value}"
        if "\n" in line or "\r" in line or "\0" in line:
            raise ValueError("a header of the request holds a line break or a zero byte")
        text += f"{line}\r\n"
    try:
        return (text + last).encode("latin-1")
    except UnicodeEncodeError:
        raise ValueError("a header of the request holds a character outside Latin-1") from None
