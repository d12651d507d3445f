"""The gateway's own server: HTTP/1.1 on httptools, a task a request, head and body in one write.

docs/decisions/0011 says what it saves. It knows nothing of protocols and keeps to what a gateway needs: kept-alive
connections, requests one after the other, bodies with a length or in chunks, answers likewise.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from toolwire.gateway.incoming import Gone, Incoming

MAX_HEAD = 64 * 1024
MAX_WAITING = 16
"""Requests that a client may send ahead of its answers."""
HIGH = 1024 * 1024
"""More unread bytes of a body than this, and the socket is left alone until somebody wants them."""
JOINED = 64 * 1024
"""Up to here a body is copied behind its head, for one write."""
IDLE, SLOW = 75.0, 60.0
"""Seconds after which an idle connection is closed, and one whose request does not come on."""
SWEEP = 5.0
LOOK = 0.05

_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}
_names: dict[bytes, str] = {}

Handle = Callable[[Incoming], Coroutine[Any, Any, None]]


class Request(Incoming):
    """One request on a connection."""

    __slots__ = (
        "_complete",
        "_head",
        "_left",
        "_pieces",
        "_size",
        "_waiter",
        "begun",
        "chunked",
        "connection",
        "keep",
        "task",
    )

    def __init__(self, connection: Connection, method: str, target: str, headers: dict[str, str], keep: bool) -> None:
        self.connection = connection
        self.method = method
        path, _, query = target.partition("?")
        if not path.startswith("/"):
            path = _origin_form(path)
        self.path, self.query = path, query.partition("#")[0]
        self.headers = headers
        self.peer = connection.peer
        self.clock = connection.clock
        self.sent = 0
        self.gone = False
        self.keep = keep
        self.begun = False
        """Has anything of the answer gone out?"""
        self.chunked = False
        self.task: asyncio.Task[None] | None = None
        self._left: asyncio.Task[None] | None = None
        self._head: bytes | None = None
        self._pieces: list[bytes] = []
        self._size = 0
        self._complete = False
        self._waiter: asyncio.Future[None] | None = None

    # --- what comes in ---

    def more(self, data: bytes) -> int:
        self._pieces.append(data)
        self._size += len(data)
        self._wake()
        return self._size

    def end(self) -> None:
        self._complete = True
        self._wake()

    def leave(self) -> None:
        """The client has gone."""
        self.gone = True
        self._wake()
        if self._left is not None:
            self._left.cancel()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def read(self, limit: int) -> bytes | None:
        while not self._complete:
            if self.gone:
                raise Gone
            if self._size > limit:
                self.keep = False
                return None
            self.connection.wants()
            self._waiter = self.connection.loop.create_future()
            await self._waiter
        if self._size > limit:
            return None
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)

    # --- what goes out ---

    async def start(self, status: int, headers: Mapping[str, str]) -> None:
        lines = [_LINES.get(status) or f"HTTP/1.1 {status} \r\n"]
        lines += [f"{name}: {value}\r\n" for name, value in headers.items()]
        if "content-length" not in headers:
            if self.connection.chunks:
                self.chunked = True
                lines.append("transfer-encoding: chunked\r\n")
            else:
                self.keep = False
        if not self._complete or self.connection.closing:
            self.keep = False
        lines.append("\r\n" if self.keep else "connection: close\r\n\r\n")
        self._head = "".join(lines).encode("latin-1", "replace")

    async def write(self, data: bytes, more: bool) -> None:
        self._put(data, more)
        if more:
            await self.drained()

    def put(self, data: bytes) -> bool:
        self._put(data, True)
        return self.connection.full is None

    async def drained(self) -> None:
        full = self.connection.full
        if full is not None:
            await full

    def _put(self, data: bytes, more: bool) -> None:
        self.sent += len(data)
        if self.gone:
            return
        if self.method == "HEAD":
            data = b""
        elif self.chunked:
            data = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
            data = data if more else data + b"0\r\n\r\n"
        head, self._head, self.begun = self._head, None, True
        transport = self.connection.transport
        if head is None:
            transport.write(data)
        elif len(data) <= JOINED:
            transport.write(head + data)
        else:
            transport.writelines((head, data))
        if not more:
            self.connection.answered(self)

    def abort(self) -> None:
        self.connection.transport.abort()

    def watch(self, cancels: bool) -> None:
        self._left = self.task if cancels else None
        if self.gone and self._left is not None:
            self._left.cancel()

    def unwatch(self) -> None:
        self._left = None


class Connection(asyncio.Protocol):
    """One client. Requests are answered in the order in which they came."""

    __slots__ = (
        "_headers",
        "_held",
        "_parser",
        "_reading",
        "_server",
        "_size",
        "_url",
        "_waiting",
        "chunks",
        "clock",
        "closing",
        "current",
        "full",
        "loop",
        "peer",
        "since",
        "transport",
    )

    def __init__(self, server: Server) -> None:
        self._server = server
        self.loop = server.loop
        self.clock = server.time
        self._parser = HttpRequestParser(self)
        self._waiting: deque[Request] = deque()
        self._reading: Request | None = None
        self._held = False
        self._url = b""
        self._headers: dict[str, str] = {}
        self._size = 0
        self.current: Request | None = None
        self.full: asyncio.Future[None] | None = None
        self.closing = False
        self.chunks = True
        self.since = 0.0
        self.peer = ""
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        peer = transport.get_extra_info("peername")
        self.peer = peer[0] if isinstance(peer, tuple) else ""
        self.since = self._server.time()
        self._server.connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._server.connections.discard(self)
        for request in (self._reading, self.current, *self._waiting):
            if request is not None and not request.gone:
                request.leave()
        self._waiting.clear()
        self.resume_writing()

    def eof_received(self) -> bool:
        """A client that shuts its side has left: no client of these protocols waits for an answer then."""
        return False

    def pause_writing(self) -> None:
        self.full = self._server.loop.create_future()

    def resume_writing(self) -> None:
        full, self.full = self.full, None
        if full is not None and not full.done():
            full.set_result(None)

    def data_received(self, data: bytes) -> None:
        self.since = self._server.time()
        if self.closing and self._reading is None:
            return
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            # Nobody here speaks anything else: it is answered as the request that it is, and nothing follows.
            self.closing = True
        except HttpParserError as error:
            self._refuse(400, f"this is no HTTP request: {error}")

    # --- the parser calls these ---

    def on_message_begin(self) -> None:
        self._url, self._headers, self._size = b"", {}, 0

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._size += len(name) + len(value)
        known = _names.get(name)
        if known is None:
            known = name.lower().decode("latin-1")
            if len(_names) < 1024:
                _names[name] = known
        text = value.decode("latin-1")
        self._headers[known] = f"{self._headers[known]}, {text}" if known in self._headers else text

    def on_headers_complete(self) -> None:
        if self._size + len(self._url) > MAX_HEAD:
            self._refuse(431, f"the head of the request is longer than {MAX_HEAD:,} bytes")
            return
        parser, headers = self._parser, self._headers
        method = parser.get_method().decode("latin-1")
        self.chunks = parser.get_http_version() != "1.0"
        request = Request(self, method, self._url.decode("latin-1"), headers, parser.should_keep_alive())
        self._reading = request
        if headers.get("expect", "").lower() == "100-continue":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if self.current is None:
            self._begin(request)
        else:
            self._waiting.append(request)
            if len(self._waiting) >= MAX_WAITING:
                self._hold()

    def on_body(self, data: bytes) -> None:
        if self._reading is not None and self._reading.more(data) > HIGH:
            self._hold()

    def on_message_complete(self) -> None:
        if self._reading is not None:
            self._reading.end()
            self._reading = None

    # --- requests and answers ---

    def _begin(self, request: Request) -> None:
        self.current = request
        request.task = self._server.start(request)

    def answered(self, request: Request) -> None:
        """The answer is written; the next request is begun, or the connection closed."""
        self.since = self._server.time()
        self.current = None
        if not request.keep or self.closing:
            self.closing = True
            self.transport.close()
        elif self._waiting:
            self._begin(self._waiting.popleft())
            self.wants()
        elif self._held:
            self.wants()

    def wants(self) -> None:
        """Somebody is ready for more."""
        if self._held:
            self._held = False
            self.transport.resume_reading()

    def _hold(self) -> None:
        if not self._held:
            self._held = True
            self.transport.pause_reading()

    def _refuse(self, status: int, why: str) -> None:
        """What is no request gets a plain word, unless an answer is under way."""
        self.closing = True
        if self.current is None:
            body = f"{why}\n".encode("utf-8", "replace")
            head = f"{_LINES[status]}content-type: text/plain; charset=utf-8\r\ncontent-length: {len(body)}\r\n"
            self.transport.write(f"{head}connection: close\r\n\r\n".encode() + body)
            self.transport.close()

    def swept(self, now: float) -> None:
        """Close it if nothing has happened for too long and nobody works on it."""
        reading = self._reading is not None
        if (self.current is None or reading) and not self._held and now - self.since > (SLOW if reading else IDLE):
            self.transport.abort() if reading else self.transport.close()

    def stop(self) -> None:
        """No further requests; one that is under way is still answered."""
        self.closing = True
        if self.current is None:
            self.transport.close()


class Server:
    """Accepts connections and starts a task for every request. `broken` answers one whose task failed."""

    def __init__(self, handle: Handle, broken: Callable[[Incoming, BaseException], Coroutine[Any, Any, None]]) -> None:
        self._handle = handle
        self._broken = broken
        self.loop = asyncio.get_running_loop()
        self.time = self.loop.time
        self.connections: set[Connection] = set()
        self._sweep = self.loop.call_later(SWEEP, self._swept)
        self._listening: asyncio.Server | None = None

    async def listen(self, bound: socket.socket, backlog: int) -> None:
        self._listening = await self.loop.create_server(lambda: Connection(self), sock=bound, backlog=backlog)

    def start(self, request: Request) -> asyncio.Task[None]:
        task = self.loop.create_task(self._handle(request))
        task.add_done_callback(partial(self._done, request))
        return task

    def _done(self, request: Request, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if request.connection.current is not request or request.gone:
            return
        if error is not None and not request.begun and task is request.task:
            mending = self.loop.create_task(self._broken(request, error))
            mending.add_done_callback(partial(self._done, request))
        else:
            # An answer without its end: the client must not take it for a whole one.
            request.abort()

    def _swept(self) -> None:
        now = self.time()
        for connection in tuple(self.connections):
            connection.swept(now)
        self._sweep = self.loop.call_later(SWEEP, self._swept)

    async def close(self, seconds: float | None) -> None:
        """No new connections; what is under way may finish, within that time."""
        self._sweep.cancel()
        if self._listening is not None:
            self._listening.close()
        for connection in tuple(self.connections):
            connection.stop()
        until = self.time() + seconds if seconds else float("inf")
        while self.connections and self.time() < until:
            await asyncio.sleep(LOOK)
        for connection in tuple(self.connections):
            connection.transport.abort()


def _origin_form(target: str) -> str:
    """The path of a target that names scheme and host as well."""
    try:
        return urlsplit(target).path or "/"
    except ValueError:
        return "/"
