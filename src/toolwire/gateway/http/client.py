"""The HTTP client for providers: `UpstreamClient.send_request` and `HttpResponse`. See docs/decisions/0008."""

from __future__ import annotations

import asyncio
import math
import sys
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

from msgspec.structs import replace

from toolwire.core.bounded_dict import BoundedDict
from toolwire.core.event_stream import CONTENT_TYPE as EVENT_STREAM
from toolwire.gateway.http.answer_keys import AnswerKeys
from toolwire.gateway.http.connect import TlsContexts, connect, proxy_refusal, read_proxy
from toolwire.gateway.http.connection import (
    BODY,
    DONE,
    FREE_ANSWER,
    MAX_IDLE_SECONDS,
    NEVER,
    STREAM_READ,
    ChunkSink,
    ConnectionPool,
    ReadBuffers,
    TransportError,
    UpstreamConnection,
    out_of_memory,
)
from toolwire.gateway.http.large_work import run_in_thread
from toolwire.gateway.http.memory import ANSWER_COPIES, MemoryBudget
from toolwire.gateway.http.message_keys import MessageKeys
from toolwire.gateway.http.messages import UpstreamRequest
from toolwire.gateway.http.redact import make_key_filter
from toolwire.gateway.http.write_queue import WriteQueue
from toolwire.gateway.settings.address import Address
from toolwire.gateway.settings.config import Timeouts

Headers = Sequence[tuple[str, str]]
ENCODINGS = frozenset({"gzip", "x-gzip", "deflate"})
_WHOLE_SLICE, _WHOLE_STEP = 256 * 1024, 1024 * 1024
"""Bytes of input and output of one step, for a body that is read whole: some milliseconds."""
_INPUT_SLICE = 16 * 1024
LINE_FEED = 0x0A
LARGE_HIDDEN = 32 * 1024
"""From this size of a whole body on, keys are hidden in a thread: it takes milliseconds if much looks like a key."""
SWEEP_SECONDS = 15.0
MAX_CACHED_HEADS = 256
MAX_CACHED_HEAD_LENGTH = 4096
_CONNECTION_HEADERS = frozenset(
    "host content-length transfer-encoding connection keep-alive te trailer upgrade expect "
    "proxy-authorization proxy-connection".split()
)
"""Headers that this client sets itself; a caller's are dropped."""
_BODILESS_METHODS = frozenset({"GET", "HEAD", "DELETE", "OPTIONS"})


class UpstreamClient:
    """Sends requests over pooled connections. One for each event loop."""

    def __init__(self, timeouts: Timeouts, budget: MemoryBudget | None = None) -> None:
        self._timeouts = timeouts
        self._pools: dict[Address, _ProviderPool] = {}
        self._tls_contexts = TlsContexts()
        self._write_queue = WriteQueue(asyncio.get_running_loop())
        self._read_buffers = ReadBuffers(budget or MemoryBudget(sys.maxsize))
        self._is_closed = False
        self._sweep_timer: asyncio.TimerHandle | None = None

    def set_timeouts(self, timeouts: Timeouts) -> None:
        self._timeouts = timeouts

    async def send_request(self, request: UpstreamRequest) -> HttpResponse | TransportError:
        body, address = request.body, request.address
        pool = self._pools.get(address) or self._make_pool(address)
        head = pool.request_head(request)
        if not isinstance(head, bytes):
            return head
        timeouts, now = self._timeouts, pool.loop.time()
        ends = now + request.max_seconds
        connection = pool.take_idle(now)
        was_idle = connection is not None
        try:
            if connection is None:
                fresh = await self._connect(pool, request.max_seconds)
                if isinstance(fresh, TransportError):
                    return fresh
                connection, now = fresh, pool.loop.time()
            connection.timeouts = timeouts if ends == NEVER else _limit_first_byte(timeouts, ends, now)
            await connection.send_request(head, body, request.method == "HEAD", now)
        except (asyncio.CancelledError, GeneratorExit):
            if connection is not None:
                connection.give_up()
            raise
        error = connection.error
        if error is None and pool.proxy is None:
            return HttpResponse(connection)
        if was_idle and error is not None and error.kind == "connection-closed" and not connection.has_received:
            # It may have got the request, so only the caller can decide whether to send it again; if so, on a new one.
            pool.drop_idle(0.0)
            message = f"{pool.peer} closed a connection that had been idle, without an answer"
            return TransportError("connection-closed" if self._is_closed else "stale-connection", message)
        return pool.make_response(connection)

    async def try_connection(self, address: Address) -> TransportError | None:
        """Why no connection can be opened; None if one can. No request is sent, but a proxy is asked for a tunnel."""
        connection = await self._connect(self._pools.get(address) or self._make_pool(address))
        if isinstance(connection, TransportError):
            return connection
        connection.drop()
        return None

    def _make_pool(self, address: Address) -> _ProviderPool:
        pool = _ProviderPool(address, self._tls_contexts, self._write_queue, self._read_buffers)
        self._pools[address] = pool
        if self._sweep_timer is None:
            self._sweep_timer = pool.loop.call_later(SWEEP_SECONDS, self._sweep_idle)
        return pool

    def _sweep_idle(self) -> None:
        """Close connections that were idle for too long, and forget providers without a connection."""
        self._sweep_timer = None
        for address, pool in tuple(self._pools.items()):
            pool.drop_idle(MAX_IDLE_SECONDS)
            if not pool.all_connections and not pool.connecting:
                del self._pools[address]
            elif self._sweep_timer is None and not self._is_closed:
                self._sweep_timer = pool.loop.call_later(SWEEP_SECONDS, self._sweep_idle)

    async def close(self) -> None:
        """Close all connections; requests that are waiting get an error."""
        self._is_closed = True
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for pool in self._pools.values():
            for connection in tuple(pool.all_connections):
                connection.drop()
        # Transports close in the next iteration of the loop.
        await asyncio.sleep(0)

    async def _connect(self, pool: _ProviderPool, max_seconds: float = math.inf) -> UpstreamConnection | TransportError:
        timeouts = self._timeouts
        seconds = min(timeouts.connect or math.inf, max_seconds)
        make = partial(UpstreamConnection, pool, timeouts)
        pool.connecting += 1
        try:
            connection = await pool.connect(0.0 if seconds == math.inf else seconds, make)
            is_exhausted = isinstance(connection, TransportError) and connection.kind == "out-of-descriptors"
            # Idle connections have descriptors, too.
            dropped = sum(other.drop_idle(0.0) for other in self._pools.values()) if is_exhausted else 0
            if dropped:
                await asyncio.sleep(0)  # transports close in the next iteration of the loop
                await asyncio.sleep(0)
                connection = await pool.connect(0.0 if seconds == math.inf else seconds, make)
        finally:
            pool.connecting -= 1
        if self._is_closed and isinstance(connection, UpstreamConnection):
            connection.drop()
            return TransportError("connection-closed", f"the gateway closed the connection to {pool.peer}")
        return connection


@asynccontextmanager
async def open_client(timeouts: Timeouts) -> AsyncIterator[UpstreamClient]:
    """For a command, which ends soon."""
    client = UpstreamClient(timeouts)
    try:
        yield client
    finally:
        await client.close()


def _limit_first_byte(timeouts: Timeouts, ends: float, now: float) -> Timeouts:
    """The first byte must come before `ends`. 0 would mean no limit."""
    seconds = max(0.001, round(ends - now, 3))
    return replace(timeouts, first_byte=min(timeouts.first_byte or math.inf, seconds))


class HttpResponse:
    """An `UpstreamResponse`. Read it to its end or abort it; if forgotten, its connection is closed."""

    __slots__ = ("_connection", "_decompressor", "_final_result", "_hidden", "headers", "status")

    def __init__(self, connection: UpstreamConnection) -> None:
        self._connection: UpstreamConnection | None = connection
        self._final_result: bytes | TransportError = b""
        self._decompressor: Decompressor | None = None
        self._hidden: AnswerKeys | MessageKeys | None = None
        self.status = connection.status
        self.headers = connection.headers
        """With lower-case names, and without those that describe a compression that was undone."""
        encoding = self.headers.get("content-encoding")
        if encoding is not None and encoding.strip().lower() in ENCODINGS:
            self._decompressor = Decompressor(encoding.strip().lower(), connection.peer)
            undone = ("content-encoding", "content-length")
            self.headers = {name: value for name, value in self.headers.items() if name not in undone}

    def hide_keys(self, keys: tuple[str, ...]) -> None:
        """Whoever reads the answer, its headers or its body, does not see these keys."""
        known = make_key_filter(keys, self.status >= 300)
        if known is not None:
            has_messages = self.headers.get("content-type", "").startswith(EVENT_STREAM)
            self._hidden = MessageKeys(known) if has_messages else AnswerKeys(known)
            self.headers = known.clean_headers(self.headers)

    def take_answer_keys(self) -> AnswerKeys | None:
        """For whoever decodes this body, in whose framing a key may be hidden: from now on it comes as it is."""
        hidden, self._hidden = self._hidden, None
        return None if hidden is None else AnswerKeys(hidden.known)

    async def read(self, limit: int) -> bytes | TransportError:
        connection = self._connection
        if connection is None:
            data = self._final_result
        else:
            if connection.phase is not DONE:
                await connection.wait_for_body(limit)
                if connection.phase is not DONE and not connection.has_more_than(limit):
                    return self._finish(connection, connection.error)
            if connection.buffered_size > limit and connection.has_more_than(limit):
                return self._finish(connection, _body_too_long(connection.peer, limit))
            data = connection.take_chunks()
            self._connection = None
            connection.release()
            if self._decompressor is not None:
                data = await _decompress_whole(data, self._decompressor, limit, connection)
        if isinstance(data, TransportError):
            self._final_result = data
        elif self._hidden is not None:
            clean = partial(self._hidden.clean_body, data)
            data = clean() if len(data) < LARGE_HIDDEN else await run_in_thread(clean)
        return data

    async def wait_for_data(self, seconds: float) -> bool:
        connection = self._connection
        if connection is None or (self._decompressor is not None and self._decompressor.has_pending):
            return True
        return await connection.wait_for_data(seconds)

    async def read_chunk(self) -> bytes | TransportError:
        while True:
            data = await self._read_next()
            if self._hidden is None:
                return data
            if isinstance(data, TransportError):  # the next one, if something waits
                return self._hidden.close() or data
            shown = self._hidden.feed(data) if data else self._hidden.close()
            if shown or not data:
                return shown

    async def _read_next(self) -> bytes | TransportError:
        connection = self._connection
        if connection is None:
            return self._final_result
        if self._decompressor is not None:
            return await self._read_decompressed_chunk(connection, self._decompressor)
        if not connection.chunks:
            await connection.wait_for_data()
        if not connection.chunks:
            return self._finish(connection, None if connection.phase is DONE else connection.error)
        data = connection.take_chunks()
        if connection.phase is DONE:
            self._finish(connection, None)
        return data

    async def pour_into(self, sink: ChunkSink) -> bytes | TransportError | None:
        """Without waking the caller for each chunk."""
        connection = self._connection
        if connection is None:
            self._pour_waiting(sink)
            return self._final_result
        if self._decompressor is not None:
            data = await self.read_chunk()
            if not data or isinstance(data, TransportError):
                return data
            sink(data)
            return None
        hidden = self._hidden
        await connection.pour_into(sink if hidden is None else self._make_hiding_sink(hidden, sink))
        if connection.phase is BODY:
            return None
        self._pour_waiting(sink)
        return self._finish(connection, None if connection.phase is DONE else connection.error)

    def _pour_waiting(self, sink: ChunkSink) -> None:
        if self._hidden is not None and (data := self._hidden.close()):
            sink(data)

    def _make_hiding_sink(self, hidden: AnswerKeys | MessageKeys, sink: ChunkSink) -> ChunkSink:
        is_clean, has_lines = hidden.known.is_clean, type(hidden) is AnswerKeys

        def pour(data: bytes) -> bool:
            if (
                has_lines and not hidden.is_waiting and data[-1] == LINE_FEED and is_clean(data)
            ):  # as nearly every event of a stream
                return sink(data)
            shown = hidden.feed(data)
            return sink(shown) if shown else True

        return pour

    def abort(self) -> None:
        """Stop reading. If the body is not complete, the connection is closed, so that the provider stops."""
        if self._connection is not None:
            message = f"the gateway stopped reading the answer of {self._connection.peer}"
            self._finish(self._connection, TransportError("connection-closed", message))

    def _finish(self, connection: UpstreamConnection, error: TransportError | None) -> bytes | TransportError:
        self._connection = None
        connection.release()
        self._final_result = b"" if error is None else error
        return self._final_result

    async def _read_decompressed_chunk(
        self, connection: UpstreamConnection, decompressor: Decompressor
    ) -> bytes | TransportError:
        while True:
            compressed = b""
            if not decompressor.has_pending:
                if not connection.chunks:
                    await connection.wait_for_data()
                if not connection.chunks:
                    is_done = connection.phase is DONE
                    return self._finish(connection, decompressor.finish() if is_done else connection.error)
                compressed = connection.take_chunks()
            data = decompressor.feed(compressed, STREAM_READ)
            if isinstance(data, TransportError):
                return self._finish(connection, data)
            if data:
                return data

    def __del__(self) -> None:
        if self._connection is not None:
            self._connection.release_threadsafe()


def _body_too_long(peer: str, limit: int) -> TransportError:
    return TransportError("protocol", f"{peer} sent a body of more than {limit:,} bytes")


async def _decompress_whole(
    data: bytes, decompressor: Decompressor, limit: int, connection: UpstreamConnection
) -> bytes | TransportError:
    """A whole body, in steps: others get their turn between them, and the memory budget is asked."""
    budget, pieces = connection.answer_budget, list[bytes]()
    size = reserved = 0
    try:
        for at in range(0, max(len(data), 1), _WHOLE_SLICE):
            compressed = data[at : at + _WHOLE_SLICE]
            while compressed or decompressor.has_pending:
                piece = decompressor.feed(compressed, _WHOLE_STEP)
                if isinstance(piece, TransportError):
                    return piece
                compressed = b""
                pieces.append(piece)
                size += len(piece)
                if size > limit:
                    return _body_too_long(connection.peer, limit)
                more = size * ANSWER_COPIES - reserved
                if more > FREE_ANSWER:
                    if not budget.reserve_for_answer(more):
                        return out_of_memory(connection.peer)
                    reserved += more
                    await asyncio.sleep(0)
        return decompressor.finish() or b"".join(pieces)
    finally:
        budget.used -= reserved


class Decompressor:
    """Decompresses a body step by step, so that a small body cannot fill the memory."""

    def __init__(self, encoding: str, peer: str) -> None:
        self._is_deflate = encoding == "deflate"
        self._peer = peer
        self._tail = b""
        self._decompressor: zlib._Decompress | None = None
        self.has_pending = False
        """Can `feed` return more without more input?"""

    def feed(self, data: bytes, max_bytes: int) -> bytes | TransportError:
        """At most `max_bytes` of output; the rest waits for the next call."""
        view = memoryview(self._tail + data if self._tail else data)
        pieces: list[bytes] = []
        left, at = max_bytes, 0
        try:
            while left and (at < len(view) or self.has_pending):
                # In slices: at the end of a gzip member zlib copies what is behind it, and there may be many members.
                slice = view[at : at + _INPUT_SLICE]
                piece, unused = self._decompress_step(slice, left)
                at += len(slice) - len(unused)
                pieces.append(piece)
                left -= len(piece)
                # zlib may hold back output because of the limit, though it has consumed all input.
                self.has_pending = not left
        except zlib.error:
            message = f"{self._peer} sent a body that is not compressed as its content-encoding says"
            return TransportError("protocol", message)
        self._tail = bytes(view[at:])
        self.has_pending = at < len(view) or not left
        return b"".join(pieces)

    def finish(self) -> TransportError | None:
        if self._decompressor is None or self._decompressor.eof:
            return None
        return TransportError("connection-closed", f"{self._peer} sent a compressed body that ends too early")

    def _decompress_step(self, data: memoryview, max_bytes: int) -> tuple[bytes, bytes]:
        """The output, and the input that was not used."""
        stream = self._decompressor
        if stream is None or (stream.eof and data[:1].tobytes() == b"\x1f" and not self._is_deflate):
            # "deflate" means the zlib format, but some servers send raw deflate; the first byte tells which.
            deflate_bits = zlib.MAX_WBITS if data[0] & 0x0F == 8 else -zlib.MAX_WBITS
            stream = zlib.decompressobj(deflate_bits if self._is_deflate else 16 + zlib.MAX_WBITS)
            self._decompressor = stream
        elif stream.eof:
            return b"", b""  # padding after the end
        piece = stream.decompress(data, max_bytes)
        return piece, stream.unused_data if stream.eof else stream.unconsumed_tail


class _ProviderPool(ConnectionPool):
    """The connections to one address, how they are opened, and the encoded heads of recent requests."""

    def __init__(
        self, address: Address, tls_contexts: TlsContexts, write_queue: WriteQueue, read_buffers: ReadBuffers
    ) -> None:
        proxy = read_proxy(address.proxy) if address.proxy else None
        peer = address.label if proxy is None else f"{address.label} (through {proxy.label})"
        super().__init__(peer, write_queue, read_buffers)
        self._address = address
        self.proxy = proxy if address.scheme == "http" else None
        """The proxy that forwards requests; None if there is none, or only a tunnel through it."""
        self._cached_heads: dict[tuple[str, str, Headers], bytes] = BoundedDict(MAX_CACHED_HEADS)
        self.connect = partial(connect, address, proxy, tls_contexts)
        self.connecting = 0
        """Requests that wait for a new connection."""

    def make_response(self, connection: UpstreamConnection) -> HttpResponse | TransportError:
        if connection.error is not None and not connection.status:
            return connection.error
        if self.proxy is not None and connection.status == 407:
            connection.drop()
            return proxy_refusal(self.proxy, self._address, 407)
        return HttpResponse(connection)

    def request_head(self, request: UpstreamRequest) -> bytes | TransportError:
        method, length = request.method, len(request.body)
        key = (method, request.path, request.headers)
        last = f"content-length: {length}\r\n\r\n" if length or method not in _BODILESS_METHODS else "\r\n"
        try:
            shared = self._cached_heads.get(key) or self._build_head(key)
            return shared + _encode_headers(request.unique_headers, last)
        except ValueError as error:
            return TransportError("protocol", str(error))

    def _build_head(self, key: tuple[str, str, Headers]) -> bytes:
        """The part of a head that other requests may share; raises ValueError if it cannot be sent."""
        method, path, headers = key
        address, proxy = self._address, self.proxy
        target = address.request_target(path)
        if not (target.isascii() and target.isprintable() and " " not in target and method.isalpha()):
            raise ValueError("the path or the method of the request has an invalid character")
        if proxy is not None:
            target = f"http://{address.authority}{target}"
        lines = f"{method} {target} HTTP/1.1\r\nhost: {address.authority}\r\n"
        if proxy is not None and proxy.authorization:
            lines += f"proxy-authorization: {proxy.authorization}\r\n"
        own = [(name.lower(), value) for name, value in headers if name.lower() not in _CONNECTION_HEADERS]
        if all(name != "accept-encoding" for name, _ in own):
            own.append(("accept-encoding", "identity"))
        head = lines.encode("ascii") + _encode_headers(own)
        if len(head) <= MAX_CACHED_HEAD_LENGTH:
            self._cached_heads[key] = head
        return head


def _encode_headers(headers: Headers, suffix: str = "") -> bytes:
    """Header lines as they are sent, and `suffix`; raises ValueError for a header that cannot be sent."""
    text = ""
    for name, value in headers:
        line = f"{name}: {value}"
        if not line.isprintable() and ("\n" in line or "\r" in line or "\0" in line):
            raise ValueError("a header of the request contains a line break or a zero byte")
        text += f"{line}\r\n"
    try:
        return (text + suffix).encode("latin-1")
    except UnicodeEncodeError:
        raise ValueError("a header of the request contains a character outside Latin-1") from None
