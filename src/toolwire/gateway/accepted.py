"""A client's connection to the gateway's own server: requests out of bytes, answers in the order of the requests."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from httptools import HttpParserCallbackError, HttpParserError, HttpParserUpgrade, HttpRequestParser

from toolwire.gateway.heads import Head, remembered
from toolwire.gateway.incoming import joined
from toolwire.gateway.outbox import Outbox
from toolwire.gateway.request import LINES, Opening, Request, parted

MAX_HEAD = 64 * 1024
"""Also of what follows a body in chunks, or stands between them."""
HEADER = 16
"""What every name and every value of a header counts besides its letters, so that there are never too many of them."""
MAX_WAITING = 16
"""Requests that a client may send ahead of its answers."""
IDLE, SLOW, UNREAD = 75.0, 60.0, 300.0
"""Seconds after which is closed: an idle connection, one whose request does not come on, one that does not read."""
LINGER, QUIET = 30.0, 5.0
"""Seconds in which what a client still sends after its last answer is read and thrown away, and of silence in them."""


class Host(Protocol):
    """What a connection needs of the server that took it."""

    loop: asyncio.AbstractEventLoop
    outbox: Outbox
    time: Callable[[], float]

    def came(self, connection: Connection) -> None: ...
    def left(self, connection: Connection) -> None: ...
    def start(self, request: Request) -> None: ...


class _Refused(Exception):
    """Ends the parsing of something that is not to be looked at further."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Connection(asyncio.Protocol):
    """One client."""

    __slots__ = (
        "_alike",
        "_found",
        "_headers",
        "_heading",
        "_held",
        "_late",
        "_lingers",
        "_parser",
        "_quiet",
        "_reading",
        "_refusal",
        "_rows",
        "_server",
        "_since",
        "_size",
        "_unread",
        "_upgrade",
        "_url",
        "_waiting",
        "clock",
        "closing",
        "current",
        "deaf",
        "full",
        "loop",
        "outbox",
        "peer",
        "transport",
    )

    def __init__(self, server: Host) -> None:
        self._server = server
        self.loop = server.loop
        self.clock = server.time
        self.outbox = server.outbox
        self._parser = HttpRequestParser(self)
        self._waiting: deque[Request] = deque()
        self._reading: Request | None = None
        """The request whose body is coming."""
        self._found: Request | None = None
        """The request whose head the parser has just read."""
        self._alike: Head | None = None
        """The head of the last request, if another like it would be known."""
        self._heading = False
        """Is a head coming?"""
        self._url = b""
        self._rows: list[bytes] = []
        """Names and values of headers in turn: what comes behind a body is only counted."""
        self._headers: dict[str, str] = {}
        self._size = 0
        self._quiet = 0
        """Bytes since there was a request or a piece of a body in them."""
        self._upgrade = False
        self._held = False
        self._since = 0.0
        """When the client last had its turn."""
        self._unread = 0
        self._refusal = b""
        """What is said after the last answer."""
        self._late = False
        self._lingers = 0.0
        self.current: Request | None = None
        self.full: asyncio.Future[None] | None = None
        self.deaf = False
        """Is whatever comes thrown away?"""
        self.closing = False
        """Does the connection end with the answer that is under way?"""
        self.peer = ""
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        peer = transport.get_extra_info("peername")
        self.peer = peer[0] if isinstance(peer, tuple) else ""
        self._since = self.clock()
        self._server.came(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.closing = self.deaf = True
        for request in (self._reading, self.current, *self._waiting):
            if request is not None and not request.gone:
                request.leave()
        self._waiting.clear()
        self.resume_writing()
        del self._parser  # it and the connection hold each other
        self._server.left(self)

    def eof_received(self) -> bool:
        """A client that shuts its side has left.

        One that only says that it has nothing more to ask looks the same, and would have to be answered in vain until
        the end of what it costs: leaving is common, that is not.
        """
        return False

    def pause_writing(self) -> None:
        self.full = self.loop.create_future()
        self._since = self.clock()

    def resume_writing(self) -> None:
        full, self.full = self.full, None
        if full is not None and not full.done():
            full.set_result(None)

    def data_received(self, data: bytes) -> None:
        if self.deaf:
            self._late = True
            self._since = self.clock()
            return
        between = self._reading is None and not self._heading
        if between and self._alike is not None and (length := self._alike.length(data)):
            self._again(self._alike, length, data)
            return
        self._quiet += len(data)
        self._alike = None
        self._parse(data)
        found, self._found = self._found, None
        if between and found is not None and self._reading is None and not self.deaf:
            self._alike = remembered(found, data)

    def _again(self, head: Head, length: str, data: bytes) -> None:
        """A request with a head that the parser need not read again."""
        headers = head.headers.copy()
        headers["content-length"] = length
        self._quiet = 0
        self._since = self.clock()
        self._take(Request(self, head.opening, headers, head.memory, data[head.size + len(length) :]))

    def _parse(self, data: bytes) -> None:
        rest: bytes | memoryview = data
        while rest:
            try:
                self._parser.feed_data(rest)
                break
            except HttpParserUpgrade as upgrade:
                rest = memoryview(rest)[upgrade.args[0] :]
                self._stay()
            except HttpParserCallbackError as error:
                if not isinstance(error.__context__, _Refused):
                    raise
                self._refuse(error.__context__.status, str(error.__context__))
                return
            except HttpParserError as error:
                self._refuse(400, f"this is no HTTP request: {error}")
                return
        if self._quiet > MAX_HEAD:
            self._refuse(431, f"the head of a request is longer than {MAX_HEAD:,} bytes")

    def _stay(self) -> None:
        """Nobody here speaks what the client offered to speak, so that was a request like others.

        The parser thinks that its body is no HTTP any more: another one is told that it is.
        """
        headers = self._headers
        name = "transfer-encoding" if "transfer-encoding" in headers else "content-length"
        self._parser = HttpRequestParser(self)
        self._parser.feed_data(f"POST / HTTP/1.1\r\n{name}: {headers.get(name, '0')}\r\n\r\n".encode("latin-1"))

    # --- the parser calls these ---

    def on_message_begin(self) -> None:
        self._url, self._rows, self._quiet = b"", [], 0
        self._heading = True
        self._since = self.clock()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._rows += (name, value)

    def _named(self, size: int) -> dict[str, str]:
        """The headers that have come, all at once; `size` is what came before."""
        rows, self._rows = self._rows, []
        self._size = size = size + len(b"".join(rows)) + HEADER * len(rows)
        if size > MAX_HEAD:
            raise _Refused(431, f"the head of a request is longer than {MAX_HEAD:,} bytes")
        # The parser cuts off only what stands before a value, and lets no line end into one.
        texts = b"\n".join(map(bytes.rstrip, rows)).decode("latin-1").split("\n")
        names, values = list(map(str.lower, texts[::2])), texts[1::2]
        headers = dict(zip(names, values, strict=False))
        return headers if len(headers) == len(values) else joined(zip(names, values, strict=True))

    def on_headers_complete(self) -> None:
        self._heading = False
        if self._reading is not None:
            return
        url, parser = self._url, self._parser
        headers = self._headers = self._named(len(url))
        method = parser.get_method().decode("latin-1")
        version = parser.get_http_version()
        if version != "1.1" or method == "CONNECT" or "transfer-encoding" in headers:
            _admit(method, version, headers)
        keep = parser.should_keep_alive()
        if parser.should_upgrade():
            self._upgrade = True
            keep = keep and headers.get("upgrade", "").lower() == "h2c"
        path, query = parted(url.decode("latin-1"))
        request = Request(self, Opening(method, path, query, keep, version == "1.0"), headers, {})
        if "expect" in headers:
            request.expects = version == "1.1" and headers["expect"].lower() == "100-continue"
        self._reading = self._found = request
        self._take(request)

    def _take(self, request: Request) -> None:
        """Begin it, or let it wait for its turn."""
        if self.current is None:
            self.current = request
            self._server.start(request)
        else:
            self._waiting.append(request)
            if len(self._waiting) >= MAX_WAITING:
                self._hold()

    def on_body(self, data: bytes) -> None:
        self._quiet = 0
        self._since = self.clock()
        if self._reading is not None and not self._reading.more(data):
            self._hold()

    def on_message_complete(self) -> None:
        self._quiet = 0
        if self._upgrade:
            self._upgrade = False  # the parser says so too early
        elif self._reading is not None:
            if self._rows:
                self._named(self._size)
            self._reading.end()
            self._reading = None

    # --- requests and answers ---

    def answered(self, request: Request) -> None:
        """The answer is written; the next request is begun, or the connection closed."""
        self._since = self.clock()
        self.current = None
        if not request.keep or self.closing:
            self._finish()
        elif self._waiting:
            self.current = self._waiting.popleft()
            self._server.start(self.current)
            if len(self._waiting) < MAX_WAITING:
                self.wants()
        elif self._refusal:
            self._say()
        elif self._held:
            self.wants()

    def wants(self) -> None:
        """Somebody is ready for more."""
        if self._held and not self.transport.is_closing():
            self._held = False
            self.transport.resume_reading()

    def _hold(self) -> None:
        if not self._held and not self.transport.is_closing():
            self._held = True
            self.transport.pause_reading()

    def _refuse(self, status: int, why: str) -> None:
        """What is no request gets a plain word in its turn, and nothing after it is looked at."""
        body = f"{why}\n".encode("utf-8", "replace")
        head = f"{LINES[status]}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {len(body)}\r\n"
        self._refusal = f"{head}connection: close\r\n\r\n".encode() + body
        self.deaf, self._heading = True, False
        request, self._reading = self._reading, None
        if request is not None and request is not self.current:
            self._waiting.pop()
        elif request is not None:
            # Its body will never be whole: for whoever waits for that, the client has gone.
            self.current = None
            request.leave()
            if request.begun:
                self.transport.abort()
                return
        if self.current is None:
            self._say()

    def _say(self) -> None:
        self.transport.write(self._refusal)
        self._finish()

    def _finish(self) -> None:
        """Close, after the last answer.

        A socket that is closed while its client still sends is reset, and the answer may be lost with that: first our
        side is shut only, and what comes is thrown away for a while.
        """
        unread = self._late or self._held or self._heading or self._reading or self._waiting or self._refusal
        self.closing = self.deaf = True
        self._waiting.clear()
        self._reading = None
        if not unread:
            self.transport.close()
        elif not self.transport.is_closing():
            self._since = self.clock()
            self._lingers = self._since + LINGER
            self.transport.write_eof()
            self.wants()

    def swept(self, now: float) -> None:
        """Close it if the client has had its turn for too long."""
        unread = self.transport.get_write_buffer_size()
        if unread != self._unread:
            self._unread, self._since = unread, now
        age = now - self._since
        if unread:
            if age > UNREAD:
                self.transport.abort()
        elif self._lingers:
            if now > self._lingers or age > QUIET:
                self.transport.abort()
        elif self._stalls():
            if age > SLOW:
                self._refuse(408, f"nothing more of the request came for {SLOW:.0f} seconds")
        elif self.current is None and age > IDLE:
            self.transport.close()

    def _stalls(self) -> bool:
        """Is the client in the middle of the request that is next?"""
        request = self.current
        if request is None:
            return self._heading
        return request is self._reading and not request.begun and not self._held

    def stop(self) -> None:
        """No further requests; one that is under way, or coming, is still answered."""
        self.closing = True
        if self.current is None and not self._heading and not self._lingers:
            self.transport.close()


def _admit(method: str, version: str, headers: dict[str, str]) -> None:
    """Raises for requests that would be understood differently by others, or that nobody here can answer."""
    if version != "1.1" and version != "1.0":
        raise _Refused(505, f"HTTP/{version} is not spoken here, but HTTP/1.1")
    if method == "CONNECT":
        raise _Refused(501, "this is no proxy for tunnels")
    coding = headers.get("transfer-encoding")
    if coding is not None:
        if version == "1.0":
            raise _Refused(400, "HTTP/1.0 has no transfer-encoding")
        if coding.lower() != "chunked":
            raise _Refused(501, "a body may be chunked, and have no other transfer-encoding")
