"""One request to the gateway's own server, and its answer as bytes: head and body in one write where that can be."""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Protocol
from urllib.parse import urlsplit

from msgspec import Struct

from toolwire.gateway.call import Reply
from toolwire.gateway.headers import JSON, REQUEST_ID
from toolwire.gateway.incoming import Gone, Incoming
from toolwire.gateway.known import Memory
from toolwire.gateway.outbox import Outbox, Write

HIGH = 1024 * 1024
"""More unread bytes of a body than this, and the socket is left alone until somebody wants them."""
JOINED = 64 * 1024
"""Up to here a body is copied behind its head, for one write."""
LARGE = 16 * 1024
"""After a longer piece nothing more should come until it is known whether the client takes it."""
BODILESS = (204, 304)
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}" for status in HTTPStatus}

_PLAIN = {status: f"{line}\r\ncontent-type: {JSON['content-type']}\r\n{REQUEST_ID}: " for status, line in LINES.items()}
"""How answers begin that bear no other headers than every answer does."""
_NO_TOKEN = re.compile(r"[^!#$%&'*+.^_`|~0-9A-Za-z-]")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_RESET = struct.pack("ii", 1, 0)
"""A socket with this is reset when it is closed."""


_heads: dict[int, bytes] = {}
"""What stands before a chunk, by its length, for all that were not long."""
_shapes: dict[tuple[int | str, ...], str] = {}
"""Heads without their values, by status and names of headers: a provider sends the same ones again and again."""
_SHAPES, _LONGEST = 256, 2048
"""How many of them are remembered, and how long they may be."""


class Line(Protocol):
    """What a request needs of the connection that it came on."""

    loop: asyncio.AbstractEventLoop
    outbox: Outbox
    transport: asyncio.Transport
    clock: Callable[[], float]
    peer: str
    closing: bool
    full: asyncio.Future[None] | None

    def wants(self) -> None: ...
    def answered(self, request: Request) -> None: ...


class Opening(Struct, frozen=True):
    """The head of a request but for its headers."""

    method: str
    path: str
    query: str
    keep: bool
    """May another request follow it?"""
    old: bool
    """Is it HTTP/1.0?"""


class Request(Incoming):
    """One request on a connection.

    Its answer leaves at the end of the loop's round, with those of others: a peer that is woken for each takes the
    processor, and goes to sleep again before the next.
    """

    __slots__ = (
        "_bare",
        "_chunked",
        "_complete",
        "_head",
        "_large",
        "_left",
        "_limit",
        "_line",
        "_old",
        "_pieces",
        "_promised",
        "_size",
        "_waiter",
        "_write",
        "begun",
        "expects",
        "keep",
        "over",
        "task",
    )

    task: asyncio.Task[None]
    """There once it is the request's turn."""
    _bare: bool
    """Has the answer no body, whatever is written?"""
    _chunked: bool
    _promised: str | None
    """The length that its head tells."""
    _head: bytes
    """It goes out with the first of the body."""
    _large: bool
    _write: Write | None
    """There while this is a stream of chunks that has begun and has not ended."""

    def __init__(
        self, line: Line, opening: Opening, headers: dict[str, str], memory: Memory, body: bytes | None = None
    ) -> None:
        """The body, where all of it is there."""
        self._line = line
        self.method, self.path, self.query = opening.method, opening.path, opening.query
        self.headers = headers
        self.memory = memory
        self.peer = line.peer
        self.loop = line.loop
        self.clock = line.clock
        self.sent = 0
        self.gone = False
        self.keep = opening.keep
        self.expects = False
        """Does the client hold its body back until it is asked for it?"""
        self.begun = False
        """Has anything of the answer gone out?"""
        self.over = False
        """Has the end of the answer gone out, or been given up?"""
        self._old = opening.old
        self._left: asyncio.Task[None] | None = None
        self._complete = body is not None
        self._pieces = [body] if body else []
        self._size = len(body) if body else 0
        self._limit = HIGH
        self._waiter: asyncio.Future[None] | None = None

    # --- what comes in ---

    def more(self, data: bytes) -> bool:
        """More of the body; False when the rest should wait."""
        self._pieces.append(data)
        self._size += len(data)
        if self._size <= self._limit:
            return True
        self._wake()
        return False

    def end(self) -> None:
        self._complete = True
        self._wake()

    def leave(self) -> None:
        """The client has gone."""
        self.gone = True
        self._write = None
        self._line.outbox.drop(self._line.transport.write)
        self._wake()
        if self._left is not None:
            self._left.cancel()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def whole(self, limit: int) -> bytes | None:
        if self._complete and self._size <= limit and "content-encoding" not in self.headers:
            return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        return None

    async def read(self, limit: int) -> bytes | None:
        self._limit = limit
        if self.expects and not (self._size or self._complete or self.begun or self.gone):
            self._line.transport.write(CONTINUE)
        self.expects = False
        while not self._complete and self._size <= limit:
            if self.gone:
                raise Gone
            self._line.wants()
            self._waiter = self._line.loop.create_future()
            await self._waiter
        if self._size > limit:
            return None
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)

    # --- what goes out ---

    async def start(self, status: int, headers: Mapping[str, str]) -> None:
        promised = headers.get("content-length")
        bodiless = status in BODILESS
        if bodiless and promised is not None:
            headers, promised = {name: value for name, value in headers.items() if name != "content-length"}, None
        endless = promised is None and not bodiless
        self._write, self._large = None, False
        self._promised = promised
        self._bare = bodiless or self.method == "HEAD"
        self._chunked = endless and not self._old
        if endless and self._old:
            self.keep = False
        self._head = self._headed(status, headers, "transfer-encoding: chunked\r\n" if self._chunked else "")

    def _headed(self, status: int, headers: Mapping[str, str], more: str) -> bytes:
        values = tuple(headers.values())
        shape = _shapes.get((status, *headers)) or _shape(status, tuple(headers))
        if not shape or _breaks("".join(values)):
            return self._headed(status, _harmless(headers), more)
        if not self._complete or self._line.closing:
            self.keep = False
        if not self.keep:
            more += "connection: close\r\n"
        elif self._old:
            more += "connection: keep-alive\r\n"
        return f"{shape % values}{more}\r\n".encode("latin-1", "replace")

    async def answer(self, reply: Reply, more: Mapping[str, str]) -> None:
        if self.gone or self.over or self.begun:
            return
        if reply.status in BODILESS:
            await super().answer(reply, more)
        else:
            length = str(len(reply.body))
            self._tell(self._headed(reply.status, {**reply.headers, **more, "content-length": length}, ""), reply.body)

    def tell(self, reply: Reply, request_id: str, name: str, more: Mapping[str, str]) -> bool:
        if self.gone or self.over or self.begun:
            return True
        status, body = reply.status, reply.body
        if status in BODILESS:
            return False
        usual = self.keep and self._complete and not self._old and not self._line.closing
        start = _PLAIN.get(status) if usual and reply.headers is JSON and not more else None
        if start is None:
            ids = {REQUEST_ID: request_id, name: request_id, "content-length": str(len(body))}
            head = self._headed(status, {**reply.headers, **more, **ids}, "")
        else:
            also = "" if name == REQUEST_ID else f"{name}: {request_id}\r\n"
            head = f"{start}{request_id}\r\n{also}content-length: {len(body)}\r\n\r\n".encode()
        self._tell(head, body)
        return True

    def _tell(self, head: bytes, body: bytes) -> None:
        self.sent += len(body)
        self._end(head, b"" if self.method == "HEAD" else body)

    async def write(self, data: bytes, more: bool) -> None:
        if more:
            self.put(data)
            await self.drained()
        else:
            self._put(data, False)

    def put(self, data: bytes) -> bool:
        size = len(data)
        head, write = _heads.get(size), self._write
        if head is None or write is None:
            return self._put_otherwise(data)
        line = self._line
        self.sent += size
        outbox = line.outbox
        due = outbox.due
        if not due:
            line.loop.call_soon(outbox.later)
        due.append((write, head + data + b"\r\n"))
        return line.full is None

    def _put_otherwise(self, data: bytes) -> bool:
        if data:
            self._put(data, True)
        if len(data) > LARGE:
            self._large = True
            return False
        return self._line.full is None

    async def drained(self) -> None:
        if self._large:
            self._large = False
            await asyncio.sleep(0)  # then it has left
        while (full := self._line.full) is not None:
            # Several may wait for it, and one that is cancelled must not take it from the others.
            await asyncio.shield(full)

    def _put(self, data: bytes, more: bool) -> None:
        if self.gone or self.over:
            return
        self.sent += len(data)
        if self._bare:
            data = b""
        elif self._chunked:
            data = _chunk(data) if data else b""
            data = data if more else data + b"0\r\n\r\n"
        head, self._head, self.begun = self._head, b"", True
        if not more and (self._promised is None or self._bare or self._promised == str(self.sent)):
            self._end(head, data)
            return
        self._line.outbox.put(self._next, self._joined(head, data))
        if more:
            self._write = self._line.transport.write if self._chunked and not self._bare else None
        else:
            self.abort()  # the client would take the next answer for the rest of this one

    def _end(self, head: bytes, body: bytes) -> None:
        self.begun = self.over = True
        self._write = None
        self._line.outbox.put(self._last, self._joined(head, body))

    def _joined(self, head: bytes, body: bytes) -> bytes:
        """Both for one write, or the body alone behind a head that is on its way."""
        if not head or len(body) <= JOINED:
            return head + body
        self._line.outbox.put(self._next, head)
        return body

    def _next(self, data: bytes) -> None:
        if not self.gone:
            self._line.transport.write(data)

    def _last(self, data: bytes) -> None:
        if not self.gone:
            self._line.transport.write(data)
            self._line.answered(self)

    def abort(self) -> None:
        if not self.over:
            self.over = True
            self._write = None
            self._line.outbox.put(self._cut, b"")

    def _cut(self, data: bytes) -> None:
        """After what was said so far; there is nothing more to say."""
        transport = self._line.transport
        connected = transport.get_extra_info("socket")
        if self._old and connected is not None and not transport.is_closing():
            # Closing is how an answer without a length ends: only a reset says that this was none.
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        transport.abort()

    def watch(self, cancels: bool) -> None:
        self._left = self.task if cancels else None
        if self.gone and self._left is not None:
            self._left.cancel()


def _chunk(data: bytes) -> bytes:
    size = len(data)
    head = _heads.get(size)
    if head is None:
        head = b"%x\r\n" % size
        if size <= LARGE:
            _heads[size] = head
    return head + data + b"\r\n"


def _shape(status: int, names: tuple[str, ...]) -> str:
    """A head that lacks only its values; "" where a name would break it."""
    if _breaks("".join(names)):
        return ""
    lines = [LINES.get(status) or f"HTTP/1.1 {status} ", *(f"{name.replace('%', '%%')}: %s" for name in names), ""]
    shape = "\r\n".join(lines)
    if len(_shapes) >= _SHAPES:
        _shapes.clear()
    if len(shape) <= _LONGEST:
        _shapes[status, *names] = shape
    return shape


def _breaks(text: str) -> bool:
    return "\n" in text or "\r" in text or "\0" in text


def _harmless(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers that cannot end their line, nor the head."""
    return {name: _CONTROL.sub(" ", value) for name, value in headers.items() if name and not _NO_TOKEN.search(name)}


def parted(target: str) -> tuple[str, str]:
    """Path and query of what was asked for."""
    path, _, query = target.partition("#")[0].partition("?")
    return path if path.startswith("/") else _origin_form(path), query


def _origin_form(target: str) -> str:
    """The path of a target that names scheme and host as well."""
    try:
        return urlsplit(target).path or "/"
    except ValueError:
        return "/"
