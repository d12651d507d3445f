"""Bodies that come packed, unpacked piece by piece, never more at once than asked for."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Sequence

from toolwire.gateway.config.config import Timeouts
from toolwire.gateway.server.write_queue import WriteQueue
from toolwire.gateway.upstream.address import Address
from toolwire.gateway.upstream.connect import Connector, TlsContexts, proxy_refusal, read_proxy
from toolwire.gateway.upstream.connection import (
    MAX_IDLE_SECONDS,
    PHASE_BODY,
    PHASE_DONE,
    PHASE_HEAD,
    WRITE_SLICE,
    ChunkSink,
    UpstreamConnection,
)
from toolwire.gateway.upstream.errors import TransportError

ENCODINGS = frozenset({"gzip", "x-gzip", "deflate"})


class Decompressor:
    """Packed bytes in, at most `most` bytes out; what is left over waits for the next call."""

    __slots__ = ("_decompressor", "_is_deflate", "_peer", "_tail", "has_pending")

    def __init__(self, encoding: str, peer: str) -> None:
        self._is_deflate = encoding == "deflate"
        self._peer = peer
        self._tail = b""
        self._decompressor: zlib._Decompress | None = None
        self.has_pending = False
        """Can more come out without more going in?"""

    def feed(self, data: bytes, max_bytes: int) -> bytes | TransportError:
        data = self._tail + data if self._tail else data
        pieces: list[bytes] = []
        room = max_bytes
        try:
            while room and (data or self.has_pending):
                piece, data = self._decompress_step(data, room)
                pieces.append(piece)
                room -= len(piece)
                # What the limit held back may stand in the stream, though it has taken all that was given.
                self.has_pending = not room
        except zlib.error:
            return TransportError(
                "protocol", f"{self._peer} sent a body that is not packed as its content-encoding says"
            )
        self._tail = data
        self.has_pending = bool(data) or not room
        return b"".join(pieces)

    def finish(self) -> TransportError | None:
        """The end of input."""
        if self._decompressor is None or self._decompressor.eof:
            return None
        return TransportError("connection-closed", f"{self._peer} sent a packed body that ends before its end")

    def _decompress_step(self, data: bytes, max_bytes: int) -> tuple[bytes, bytes]:
        stream = self._decompressor
        if stream is None or (stream.eof and data[:1] == b"\x1f" and not self._is_deflate):
            stream = self._decompressor = zlib.decompressobj(self._window_bits(data))
        elif stream.eof:
            return b"", b""  # padding behind the end
        piece = stream.decompress(data, max_bytes)
        return piece, stream.unused_data if stream.eof else stream.unconsumed_tail

    def _window_bits(self, data: bytes) -> int:
        if not self._is_deflate:
            return 16 + zlib.MAX_WBITS
        # "deflate" means zlib's wrapping, but some servers send it bare; the first byte tells.
        return zlib.MAX_WBITS if data[0] & 0x0F == 8 else -zlib.MAX_WBITS


# --- Requests and responses ---


__all__ = ["Address", "HttpResponse", "TransportError", "UpstreamClient"]

_CONNECTION_HEADERS = frozenset(
    "host content-length transfer-encoding connection keep-alive te trailer upgrade expect "
    "proxy-authorization proxy-connection".split()
)
"""Headers of the connection, which are not the caller's to set."""
Headers = Sequence[tuple[str, str]]
MAX_CACHED_LINES = 1024
MAX_CACHED_LINE_LENGTH = 512
MAX_CACHED_HEADS = 256
MAX_CACHED_HEAD_LENGTH = 4096
"""Bytes of a head that is worth remembering."""

_header_lines: dict[tuple[str, str], bytes] = {}
"""Headers as they were sent before: most are the same in every request."""
_BODILESS_METHODS = frozenset({"GET", "HEAD", "DELETE", "OPTIONS"})


class HttpResponse:
    """An answer whose head is there. Read it to its end or abort it; one that is forgotten closes its connection."""

    __slots__ = ("_connection", "_decompressor", "_final_result", "headers", "status")

    def __init__(self, connection: UpstreamConnection) -> None:
        self._connection: UpstreamConnection | None = connection
        self._final_result: bytes | TransportError = b""
        self._decompressor: Decompressor | None = None
        self.status = connection.status
        self.headers = connection.headers
        """With lower-case names; those that tell of a packing that is undone are left out."""
        if "content-encoding" in self.headers:
            self._set_decompressor(connection)

    async def read(self, limit: int) -> bytes | TransportError:
        """The whole body, or the rest of it; more than `limit` bytes of it are a fault."""
        connection = self._connection
        if connection is None:
            return self._final_result
        if connection.phase != PHASE_DONE:
            await connection.wait_for_body(limit)
            if connection.phase != PHASE_DONE and not connection.has_more_than(limit):
                return self._finish(connection, connection.error)
        if connection.buffered_size > limit and connection.has_more_than(limit):
            return self._finish(connection, _body_too_long(connection.peer, limit))
        data = connection.take_chunks()
        self._connection = None
        connection.release()
        return (
            data
            if self._decompressor is None
            else self._decompress_whole(self._decompressor, data, connection.peer, limit)
        )

    async def wait_for_data(self, seconds: float) -> bool:
        """Can more be taken within that time: bytes, the end, or a fault?"""
        connection = self._connection
        if connection is None or (self._decompressor is not None and self._decompressor.has_pending):
            return True
        return await connection.wait_for_data(seconds)

    async def read_chunk(self) -> bytes | TransportError:
        """The next bytes of the body, as they come; b"" at its end."""
        connection = self._connection
        if connection is None:
            return self._final_result
        if self._decompressor is not None:
            return await self._read_decompressed_chunk(connection, self._decompressor)
        if not connection.chunks:
            await connection.wait_for_chunk()
        if not connection.chunks:
            return self._finish(connection, None if connection.phase == PHASE_DONE else connection.error)
        data = connection.take_chunks()
        if connection.phase == PHASE_DONE:
            self._finish(connection, None)
        return data

    async def pour_into(self, sink: ChunkSink) -> bytes | TransportError | None:
        """The body to the sink, piece by piece, without waking the caller: b"" at its end, None where the sink has had
        enough for now, and more can be asked for later."""
        connection = self._connection
        if connection is None:
            return self._final_result
        if self._decompressor is not None:
            data = await self.read_chunk()
            if isinstance(data, bytes) and data:
                sink(data)
                return None
            return data
        await connection.pour_into(sink)
        if connection.phase == PHASE_BODY and connection.error is None:
            return None
        return self._finish(connection, None if connection.phase == PHASE_DONE else connection.error)

    def abort(self) -> None:
        """Done with it: where more of the body would come, the connection is closed, so that the provider stops."""
        if self._connection is not None:
            self._finish(
                self._connection,
                TransportError("connection-closed", f"the answer of {self._connection.peer} was given up on this side"),
            )

    def _finish(self, connection: UpstreamConnection, error: TransportError | None) -> bytes | TransportError:
        self._connection = None
        connection.release()
        self._final_result = b"" if error is None else error
        return self._final_result

    def _set_decompressor(self, connection: UpstreamConnection) -> None:
        encoding = self.headers["content-encoding"].strip().lower()
        if encoding in ENCODINGS:
            self._decompressor = Decompressor(encoding, connection.peer)
            gone = ("content-encoding", "content-length")
            self.headers = {name: value for name, value in self.headers.items() if name not in gone}

    def _decompress_whole(
        self, decompressor: Decompressor, data: bytes, peer: str, limit: int
    ) -> bytes | TransportError:
        whole = decompressor.feed(data, limit + 1)
        if isinstance(whole, bytes) and len(whole) > limit:
            whole = _body_too_long(peer, limit)
        if isinstance(whole, bytes):
            whole = decompressor.finish() or whole
        if isinstance(whole, TransportError):
            self._final_result = whole
        return whole

    async def _read_decompressed_chunk(
        self, connection: UpstreamConnection, decompressor: Decompressor
    ) -> bytes | TransportError:
        while True:
            packed = b""
            if not decompressor.has_pending:
                if not connection.chunks:
                    await connection.wait_for_chunk()
                if not connection.chunks:
                    whole = connection.phase == PHASE_DONE
                    return self._finish(connection, decompressor.finish() if whole else connection.error)
                packed = connection.take_chunks()
            data = decompressor.feed(packed, WRITE_SLICE)
            if isinstance(data, TransportError):
                return self._finish(connection, data)
            if data:
                return data

    def __del__(self) -> None:
        if self._connection is not None:
            self._connection.release_threadsafe()


def _body_too_long(peer: str, limit: int) -> TransportError:
    return TransportError("protocol", f"{peer} sent a body of more than {limit:,} bytes")


class UpstreamClient:
    """One for an event loop."""

    def __init__(self, deadlines: Timeouts) -> None:
        self._deadlines = deadlines
        self._pools: dict[Address, _ConnectionPool] = {}
        self._tls_contexts = TlsContexts()
        self._write_queue = WriteQueue(asyncio.get_running_loop())
        self._is_closed = False

    async def send_request(
        self, address: Address, method: str, path: str, headers: Headers, body: bytes, unique_headers: Headers = ()
    ) -> HttpResponse | TransportError:
        """Ask, and wait for the head of the answer. Headers that are new in every request are `own`: the others are
        remembered."""
        site = self._pools.get(address)
        if site is None:
            site = self._pools[address] = _ConnectionPool(address, self._tls_contexts)
        head = site.request_head(method, path, tuple(headers), unique_headers, len(body))
        if not isinstance(head, bytes):
            return head
        bodiless = method == "HEAD"
        connection = site.take_idle()
        try:
            if connection is not None:
                await connection.send_request(head, body, bodiless)
                fault = connection.error
                # One that had been closed while nobody looked is not the provider's answer: once more, on a new one.
                if fault is None and site.proxy is None:
                    return HttpResponse(connection)
                if fault is None or connection.has_received or fault.kind != "connection-closed" or self._is_closed:
                    return site.make_response(connection)
            fresh = await self._connect(site)
            if isinstance(fresh, TransportError):
                return fresh
            connection = fresh
            await connection.send_request(head, body, bodiless)
            return site.make_response(connection)
        except (asyncio.CancelledError, GeneratorExit):
            if connection is not None:
                connection.give_up()
            raise

    async def close(self) -> None:
        """Closes what is idle and what is not; whoever waits gets a fault."""
        self._is_closed = True
        for site in self._pools.values():
            for connection in tuple(site.all_connections):
                connection.drop()
        # Transports close in the next round of the loop.
        await asyncio.sleep(0)

    async def _connect(self, site: _ConnectionPool) -> UpstreamConnection | TransportError:
        deadlines, peer, outbox = self._deadlines, site.peer, self._write_queue
        connection = await site.connector.connect(
            deadlines.connect, lambda: UpstreamConnection(peer, deadlines, outbox, site.idle, site.all_connections)
        )
        if self._is_closed and isinstance(connection, UpstreamConnection):
            connection.drop()
            return TransportError("connection-closed", f"the connection to {peer} was closed on this side")
        return connection


class _ConnectionPool:
    """What is kept of an address: its connections, and the first lines of requests."""

    __slots__ = (
        "_address",
        "_cached_heads",
        "_clock",
        "_request_lines",
        "all_connections",
        "connector",
        "idle",
        "peer",
        "proxy",
    )

    def __init__(self, address: Address, tls_contexts: TlsContexts) -> None:
        proxy = read_proxy(address.proxy) if address.proxy else None
        self._address = address
        self.proxy = proxy if address.scheme == "http" else None
        """The proxy that reads our requests; in a tunnel it does not."""
        self._request_lines: dict[tuple[str, str], bytes] = {}
        self._cached_heads: dict[tuple[str, str, Headers], bytes] = {}
        self._clock = asyncio.get_running_loop().time
        self.peer = address.label if proxy is None else f"{address.label} (by {proxy.label})"
        self.connector = Connector(address, proxy, tls_contexts)
        self.idle: list[UpstreamConnection] = []
        self.all_connections: set[UpstreamConnection] = set()

    def take_idle(self) -> UpstreamConnection | None:
        """The idle connection that was used last; those that waited too long are closed on the way."""
        idle = self.idle
        oldest = self._clock() - MAX_IDLE_SECONDS
        while idle:
            connection = idle.pop()
            if connection.last_received > oldest:
                if idle and idle[0].last_received <= oldest:
                    idle.pop(0).drop()
                return connection
            connection.drop()
        return None

    def make_response(self, connection: UpstreamConnection) -> HttpResponse | TransportError:
        if connection.error is not None and connection.phase == PHASE_HEAD:
            return connection.error
        if self.proxy is not None and connection.status == 407:
            connection.drop()
            return proxy_refusal(self.proxy, self._address, 407)
        return HttpResponse(connection)

    def request_head(
        self, method: str, path: str, headers: Headers, unique_headers: Headers, length: int
    ) -> bytes | TransportError:
        key = (method, path, headers)
        last = f"content-length: {length}\r\n\r\n" if length or method not in _BODILESS_METHODS else "\r\n"
        try:
            return (self._cached_heads.get(key) or self._build_head(key)) + _write_headers(unique_headers, last)
        except ValueError as error:
            return TransportError("protocol", str(error))

    def _build_head(self, key: tuple[str, str, Headers]) -> bytes:
        """All of a head that may be the same in other requests, remembered."""
        method, path, headers = key
        first = self._request_lines.get((method, path)) or self._build_request_line(method, path)
        if not first:
            raise ValueError("the path or the method of the request holds a character that may not stand there")
        head = b"".join([first, *[_header_lines.get(header) or _write_header_line(*header) for header in headers]])
        if b"\naccept-encoding:" not in head:
            head += b"accept-encoding: identity\r\n"
        if len(self._cached_heads) >= MAX_CACHED_HEADS:
            self._cached_heads.clear()
        if len(head) <= MAX_CACHED_HEAD_LENGTH:
            self._cached_heads[key] = head
        return head

    def _build_request_line(self, method: str, path: str) -> bytes:
        """Request line, Host and what a proxy must know, remembered; empty where the path cannot be sent."""
        address, proxy = self._address, self.proxy
        target = address.request_target(path)
        if not (target.isascii() and target.isprintable() and " " not in target and method.isalpha()):
            return b""
        if proxy is not None:
            target = f"http://{address.authority}{target}"
        lines = f"{method} {target} HTTP/1.1\r\nhost: {address.authority}\r\n"
        if proxy is not None and proxy.authorization:
            lines += f"proxy-authorization: {proxy.authorization}\r\n"
        if len(self._request_lines) >= MAX_CACHED_LINES:
            self._request_lines.clear()
        self._request_lines[method, path] = made = lines.encode("ascii")
        return made


def _write_header_line(name: str, value: str) -> bytes:
    """A header as it is sent, remembered; none for one that is not the caller's to set."""
    if name.lower() in _CONNECTION_HEADERS:
        return b""
    line = _write_headers(((name.lower(), value),), "")
    if len(_header_lines) >= MAX_CACHED_LINES:
        _header_lines.clear()
    if len(line) <= MAX_CACHED_LINE_LENGTH:
        _header_lines[name, value] = line
    return line


def _write_headers(headers: Headers, suffix: str) -> bytes:
    """Headers as they are sent, and what comes after them."""
    text = ""
    for name, value in headers:
        line = f"{name}: {value}"
        if "\n" in line or "\r" in line or "\0" in line:
            raise ValueError("a header of the request holds a line break or a zero byte")
        text += f"{line}\r\n"
    try:
        return (text + suffix).encode("latin-1")
    except UnicodeEncodeError:
        raise ValueError("a header of the request holds a character outside Latin-1") from None
