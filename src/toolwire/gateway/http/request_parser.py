"""Parses the requests of a client's connection with httptools: their heads, and the pieces of their bodies."""

from __future__ import annotations

from httptools import HttpParserCallbackError, HttpParserError, HttpParserUpgrade, HttpRequestParser

from toolwire.gateway.http.client_request import HttpRequest, RequestConnection, RequestLine, join_headers
from toolwire.gateway.http.messages import HeadKey
from toolwire.gateway.http.request_target import read_target

MAX_HEAD = 64 * 1024
"""Bytes of a request head; also of the trailers and chunk lines of a chunked body."""
HEADER_OVERHEAD = 16
"""Bytes that each header name and value counts in addition, which limits their number."""
HEADER_MEMORY = 56
"""Bytes that Python needs for a name or a value of a header, besides its text."""
PARSED_SLICE = 8 * 1024
"""Input whose end is not known yet (heads, chunked bodies) is parsed in slices of this size, to stop soon after the end
of a request."""


class BadRequest(Exception):
    """Why the input is refused. Raised in a callback, it stops the parser."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class RequestParser:
    """Gives requests to a connection as soon as their head is parsed; their bodies follow."""

    __slots__ = (
        "_body_left", "_connection", "_head_size", "_header_rows", "_headers", "_is_upgrade", "_parser", "_url",
        "bytes_without_progress", "is_reading_head", "new_request", "pieces", "request",
    )  # fmt: skip

    def __init__(self, connection: RequestConnection) -> None:
        self._connection = connection
        self._parser = HttpRequestParser(self)
        self.request: HttpRequest | None = None
        """The request whose body is being received."""
        self.new_request: HttpRequest | None = None
        """The request whose head was just parsed."""
        self.is_reading_head = False
        self.bytes_without_progress = 0
        """Bytes since the last request or piece of a body."""
        self.pieces = 0
        """Pieces of bodies; the connection counts from 0 in each turn."""
        self._body_left = 0
        """Bytes of the body that are still to come; 0 if that is not known."""
        self._url, self._head_size = b"", 0
        self._header_rows: list[bytes] = []
        """Names and values of headers in turn. Trailers are only counted."""
        self._headers: dict[str, str] = {}
        self._is_upgrade = False

    @property
    def held_bytes(self) -> int:
        """The memory of a head that has not ended."""
        if not self.is_reading_head:
            return 0
        # The slice in which it began is not in the counted bytes.
        return PARSED_SLICE + self.bytes_without_progress + HEADER_MEMORY * len(self._header_rows)

    def feed(self, data: bytes, at: int) -> int | BadRequest:
        """Parse input from this place on, but not much further than the end of the current request. Returns the place
        after what was parsed."""
        size = len(data)
        end = min(size, at + self._next_slice(data, at))
        self.bytes_without_progress += end - at
        try:
            self._parser.feed_data(data if end - at == size else memoryview(data)[at:end])
        except HttpParserUpgrade as upgrade:
            end = at + upgrade.args[0]
            self._continue_after_upgrade()
        except HttpParserCallbackError as error:
            if not isinstance(error.__context__, BadRequest):
                raise
            return error.__context__
        except HttpParserError as error:
            return BadRequest(400, f"this is not an HTTP request: {error}")
        return end if self.bytes_without_progress <= MAX_HEAD else _head_too_long()

    def _next_slice(self, data: bytes, at: int) -> int:
        """How much to parse at once. The parser cannot stop at the end of a request, so it gets no more than the rest
        of one where that is known: a client that sends thousands of requests at once must not get them all started."""
        if self.request is not None:
            return self._body_left or PARSED_SLICE
        end = data.find(b"\r\n\r\n", at, at + PARSED_SLICE)
        return PARSED_SLICE if end < 0 else end + 4 - at

    def _continue_after_upgrade(self) -> None:
        """No upgrade is supported, so this is a request like others. The parser stops after its head; a new one gets a
        head with the same body length."""
        headers = self._headers
        name = "transfer-encoding" if "transfer-encoding" in headers else "content-length"
        self._parser = HttpRequestParser(self)
        self._parser.feed_data(f"POST / HTTP/1.1\r\n{name}: {headers.get(name, '0')}\r\n\r\n".encode("latin-1"))

    def drop_input(self) -> None:
        """Forget what was read of a head or a body."""
        self.is_reading_head, self._header_rows, self.request = False, [], None
        self._parser = HttpRequestParser(self)  # the old one holds what it has read of a head

    def close(self) -> None:
        """Break the reference cycles, or the memory of clients that left would wait for the garbage collector."""
        self.request = self.new_request = None
        self.is_reading_head = False
        del self._parser, self._connection

    # --- callbacks of httptools ---

    def on_message_begin(self) -> None:
        self._url, self._header_rows, self.bytes_without_progress = b"", [], 0
        self.is_reading_head = True
        connection = self._connection
        connection.last_activity = connection.clock()
        connection.body_rate.start_body()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_rows += (name, value)
        if HEADER_OVERHEAD * len(self._header_rows) > MAX_HEAD:
            raise _head_too_long()

    def _take_headers(self, size: int) -> dict[str, str]:
        """The headers that were parsed; `size` is the size of what came before them."""
        rows, self._header_rows = self._header_rows, []
        self._head_size = size = size + len(b"".join(rows)) + HEADER_OVERHEAD * len(rows)
        if size > MAX_HEAD:
            raise _head_too_long()
        # The parser removes whitespace before a value only, and accepts no line break in one.
        texts = b"\n".join(map(bytes.rstrip, rows)).decode("latin-1").split("\n")
        names, values = list(map(str.lower, texts[::2])), texts[1::2]
        headers = dict(zip(names, values, strict=False))
        return headers if len(headers) == len(values) else join_headers(zip(names, values, strict=True))

    def on_headers_complete(self) -> None:
        self.is_reading_head = False
        if self.request is not None:
            return
        url, parser = self._url, self._parser
        headers = self._headers = self._take_headers(len(url))
        method = parser.get_method().decode("latin-1")
        version = parser.get_http_version()
        if version != "1.1" or method == "CONNECT" or "transfer-encoding" in headers:
            _check_http_version(method, version, headers)
        keep = parser.should_keep_alive()
        if parser.should_upgrade():
            self._is_upgrade = True
            keep = keep and headers.get("upgrade", "").lower() == "h2c"
        host = headers.get("host", "")
        if "," in host:
            raise BadRequest(400, "there is more than one Host header")
        target = read_target(url.decode("latin-1"), host)
        line = RequestLine(method, target, keep, version == "1.0")
        request = self.request = self.new_request = HttpRequest(self._connection, line, headers, HeadKey())
        if "expect" in headers:
            request.expects_continue = version == "1.1" and headers["expect"].lower() == "100-continue"
        length = headers.get("content-length", "")
        self._body_left = int(length) if length.isdigit() else 0
        self._connection.enqueue_request(request)

    def on_body(self, data: bytes) -> None:
        self.bytes_without_progress = 0
        self.pieces += 1
        self._body_left = max(0, self._body_left - len(data))
        connection, request = self._connection, self.request
        connection.last_activity = connection.clock()
        if request is not None and not request.add_body(data):
            connection.pause_reading()

    def on_message_complete(self) -> None:
        self.bytes_without_progress = 0
        if self._is_upgrade:
            self._is_upgrade = False  # the parser calls this too early
        elif self.request is not None:
            if self._header_rows:
                self._take_headers(self._head_size)
            self.request.end_body()
            self.request = None


def _head_too_long() -> BadRequest:
    return BadRequest(431, f"the head of a request is longer than {MAX_HEAD:,} bytes")


def _check_http_version(method: str, version: str, headers: dict[str, str]) -> None:
    """Refuse requests that are not supported, or that other servers would read differently (request smuggling)."""
    if version not in ("1.1", "1.0"):
        raise BadRequest(505, f"HTTP/{version} is not supported; use HTTP/1.1")
    if method == "CONNECT":
        raise BadRequest(501, "CONNECT is not supported")
    coding = headers.get("transfer-encoding")
    if coding is not None and version == "1.0":
        raise BadRequest(400, "HTTP/1.0 has no transfer-encoding")
    if coding is not None and coding.lower() != "chunked":
        raise BadRequest(501, "only the transfer-encoding `chunked` is supported")
