"""One HTTP/1.1 connection to a provider, one request at a time: phases, timeouts, back-pressure and keep-alive.

A caller waits on one future. It is resolved when what the caller waits for has arrived, or can no longer arrive. The
deadline is a number that one timer per connection checks, so a request needs no timer of its own.
"""

from __future__ import annotations

import asyncio
import math
import select
import ssl
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Literal, cast, final

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser
from msgspec import Struct

from toolwire.gateway.http.memory import ANSWER_COPIES, MemoryBudget
from toolwire.gateway.http.write_queue import WriteQueue
from toolwire.gateway.settings.config import Timeouts


class Phase(Enum):
    """What a connection is doing.

    ::

              send_request          last head          end of the body
        IDLE ──────────────▶ HEAD ─────────────▶ BODY ─────────────────▶ DONE
         ▲                    │                   │                       │
         │                    └─ fail ─▶ FAILED ◀─┘                       │
         └──────────────────────────── release ───────────────────────────┘

    Interim answers (1xx) do not end HEAD. The answer to a HEAD request goes from HEAD to DONE. A body without a length
    ends with the connection. FAILED is final: `error` says why, `status` is 0 if it failed in HEAD, and the transport
    is closed. A connection that is closed in IDLE or DONE keeps its phase, because no answer is missing: `is_lost`.
    """

    IDLE = "no request"
    HEAD = "a request was sent, or is being sent; the head of its answer is not complete"
    BODY = "the body of the answer is received"
    DONE = "the answer is complete, and perhaps not taken yet"
    FAILED = "the answer will never be complete"


IDLE, HEAD, BODY, DONE, FAILED = Phase
WAIT_FOR_HEAD, WAIT_FOR_WRITABLE = -1, -2
"""What a caller can wait for besides a number of bytes. WAIT_FOR_WRITABLE ends with the head, too."""
NEVER = math.inf
IDLE_CHECKS = 8
"""Checks per idle timeout (`Timeouts.between_bytes`) while a stream is forwarded: a silent stream fails up to an eighth
of the timeout late."""
DEADLINE_LOOKS = 32
"""Iterations of the event loop, each of which reads all sockets, before a deadline that has passed counts. A handshake
takes several."""
MAX_HEAD = 128 * 1024
"""Bytes of a head, and of anything else that is not body (interim answers, chunk extensions, trailers)."""
STREAM_READ, BODY_READ = 16 * 1024, 128 * 1024
"""The most bytes that one read takes, of a stream and of a body that is read whole. What is read of a stream is
translated and written at once, so this limits what a client that reads slowly can pile up."""
MAX_BUFFERED = 16 * 1024
"""With so many unread bytes, the socket is not read until they are taken."""
FREE_ANSWER = 1024 * 1024
"""Bytes of memory for an answer that the budget does not count: most answers are small."""
MAX_PIECES = 64
"""If one read brings more pieces of a body (tiny chunks), they are joined: each object costs more than a few bytes."""
MAX_JOINED_BODY = 16 * 1024
"""A request body of up to this size is copied behind its head, for a single write."""
WRITE_SLICE = 256 * 1024
"""Longer request bodies are sent in slices of this size, each after the previous one has left."""
MAX_IDLE_CONNECTIONS = 64
MAX_IDLE_SECONDS = 55.0
"""Many servers close a connection after a minute of silence."""
ChunkSink = Callable[[bytes], bool]
"""Takes bytes; False if no more should come for now."""


TransportErrorKind = Literal[
    "dns", "refused", "unreachable", "tls", "connect-timeout", "first-byte-timeout", "idle-timeout",
    "answer-timeout", "no-credential",
    "connection-closed", "stale-connection", "protocol", "proxy", "out-of-descriptors", "out-of-memory",
]  # fmt: skip


@final
class TransportError(Struct, frozen=True):
    """Why there is no answer, or no complete one, and what to check. `detail` never contains a secret."""

    kind: TransportErrorKind
    detail: str


def _name_setting(name: str) -> str:
    """For whoever has a provider that needs longer."""
    return f" (see `{name}` under [server.timeouts])"


def out_of_memory(peer: str) -> TransportError:
    message = f"the gateway has no memory for the answer of {peer}; ask for less, or raise server.max_memory"
    return TransportError("out-of-memory", message)


class _HeaderNames(dict[bytes, str]):
    """Header names in lower case. There are few, so each is converted once."""

    def __missing__(self, name: bytes) -> str:
        if len(self) > 1000:
            self.clear()
        return self.setdefault(name, name.decode("latin-1").lower())


_header_names = _HeaderNames()


class StopParsing(Exception):
    """Stops the parser: the bytes that follow are not part of this answer."""


class ReadBuffers:
    """The memory that all connections of one event loop read into: what is read is parsed and copied at once. And the
    budget for answers that are read whole."""

    def __init__(self, budget: MemoryBudget) -> None:
        self.budget = budget
        self.stream = memoryview(bytearray(STREAM_READ))
        self.body = memoryview(bytearray(BODY_READ))


class _SelectPoller:
    """`select.poll` for one descriptor, on Windows, which lacks it."""

    def register(self, descriptor: int, _events: int) -> None:
        self._descriptor = descriptor

    def poll(self, _milliseconds: int) -> list[int]:
        return select.select([self._descriptor], [], [], 0)[0]


POLLIN = getattr(select, "POLLIN", 1)
make_poller = getattr(select, "poll", _SelectPoller)


class ConnectionPool:
    """The connections to one address, and what they share."""

    def __init__(self, peer: str, write_queue: WriteQueue, read_buffers: ReadBuffers) -> None:
        self.peer = peer
        """Its name in messages."""
        self.loop = asyncio.get_running_loop()
        self.write_queue, self.read_buffers = write_queue, read_buffers
        self.idle: list[UpstreamConnection] = []
        self.all_connections: set[UpstreamConnection] = set()

    def take_idle(self, now: float) -> UpstreamConnection | None:
        """The idle connection that was used last; connections that can no longer be used are closed."""
        idle, oldest = self.idle, now - MAX_IDLE_SECONDS
        while idle:
            connection = idle.pop()
            if connection.last_received > oldest and connection.is_usable():
                return connection
            connection.drop()
        return None

    def drop_idle(self, seconds: float) -> int:
        """Close the connections that were idle for so long; returns their number."""
        oldest = self.loop.time() - seconds
        expired = [connection for connection in self.idle if connection.last_received <= oldest]
        for connection in expired:
            self.idle.remove(connection)
            connection.drop()
        return len(expired)


class UpstreamConnection(asyncio.BufferedProtocol):
    """Adds and removes itself from its pool's collections."""

    __slots__ = (
        "__weakref__", "_answer_ends", "_buffer", "_bytes_without_body", "_deadline", "_has_clean_end", "_is_writable",
        "_loop", "_parser", "_partial_headers", "_poller", "_pool", "_received_since_check", "_reserved", "_sink",
        "_timer", "_timer_at", "_tls_object", "_transport", "_waiter", "_wanted_bytes", "buffered_size", "chunks",
        "error", "has_received", "headers", "is_head_request", "is_lost", "is_reading_paused", "keep_alive",
        "last_received", "on_body", "phase", "status", "timeouts",
    )  # fmt: skip

    def __init__(self, pool: ConnectionPool, timeouts: Timeouts) -> None:
        self._pool, self._loop = pool, pool.loop
        self.timeouts = timeouts
        """Of the request that is sent, or was sent last."""
        self._buffer = pool.read_buffers.stream
        self._reserved = 0
        """Bytes of the memory budget, for a body that is read whole."""
        self._transport: asyncio.Transport
        self._poller = make_poller()
        self._tls_object: ssl.SSLObject | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._wanted_bytes = 0
        self._deadline = self._timer_at = self._answer_ends = NEVER
        self._timer: asyncio.TimerHandle | None = None
        self._sink: ChunkSink | None = None
        """Set only while a body is received and nothing of it is buffered."""
        self._received_since_check = False
        """Has the sink been given bytes since the timer last checked? Saves reading the clock for each chunk."""
        self.is_reading_paused = False
        self._is_writable = self._has_clean_end = self.keep_alive = True
        self._bytes_without_body = 0
        self._partial_headers: dict[str, str] = {}
        """Headers until the head is complete; then trailers, which are ignored."""
        self.phase = IDLE
        self.error: TransportError | None = None
        self.status = 0
        self.headers: dict[str, str] = {}
        self.last_received = 0.0
        """The loop's time when the last bytes arrived."""
        self.chunks: list[bytes] = []
        """The part of the body that has arrived and was not taken yet."""
        self.on_body = self.chunks.append
        self._parser = HttpResponseParser(self)  # looks its callbacks up here, on_body among them
        self.buffered_size = 0
        """At least the size of `chunks`; the exact size is computed only if it matters."""
        self.is_head_request = self.has_received = self.is_lost = False

    @property
    def peer(self) -> str:
        return self._pool.peer

    # --- for the client ---------------------------------------------------------------------------------------------

    def is_usable(self) -> bool:
        """May an idle connection take a request? Not if there is something to read: mostly that is the provider's end
        of it, which the event loop has not seen yet."""
        return not (self.is_lost or self._transport.is_closing() or self._poller.poll(0))

    def send_request(self, head: bytes, body: bytes, is_head_request: bool, now: float) -> Awaitable[None]:
        """Send a request and wait for the head of the answer or an error. Call `give_up` if the wait is cancelled."""
        self.phase, self.status = HEAD, 0
        self.has_received = False
        self.is_head_request = is_head_request
        self._partial_headers = {}
        self._bytes_without_body = 0
        timeouts = self.timeouts
        self._answer_ends = now + (timeouts.whole_answer or NEVER)
        if self.is_lost or self._transport.is_closing():
            message = f"{self.peer} closed the connection before the request was sent"
            self._loop.call_soon(self.fail, TransportError("connection-closed", message))
        elif len(body) <= MAX_JOINED_BODY:
            # Written at the end of the loop's iteration, together with other connections' writes.
            self._pool.write_queue.add(self._write_if_open, head + body)
        elif len(body) <= WRITE_SLICE:
            self._transport.write(head)
            self._transport.write(body)
        else:
            return self._write_long_body(head, memoryview(body))
        return self._make_waiter(WAIT_FOR_HEAD, timeouts.first_byte, now)

    def _write_if_open(self, data: bytes) -> None:
        if not self.is_lost and not self._transport.is_closing():
            self._transport.write(data)

    async def _write_long_body(self, head: bytes, body: memoryview) -> None:
        """Send a long body as fast as the provider reads it, and stop if it answers before the end."""
        self._transport.write(head)
        for start in range(0, len(body), WRITE_SLICE):
            self._transport.write(body[start : start + WRITE_SLICE])
            while not self._is_writable and self.phase is HEAD:
                await self._wait(WAIT_FOR_WRITABLE, self.timeouts.first_byte)
            if self.phase is not HEAD or self._transport.is_closing():
                self.keep_alive = False
                break
        if self.phase is HEAD:
            await self._wait(WAIT_FOR_HEAD, self.timeouts.first_byte)

    async def wait_for_data(self, seconds: float | None = None) -> bool:
        """Wait for bytes of the body, its end or an error, for at most `seconds`; False if nothing came."""
        if not self.chunks and self.phase is BODY:
            timer = None if seconds is None else self._loop.call_later(max(0.0, seconds), self._wake)
            try:
                await self._wait(0, self.timeouts.between_bytes)
            finally:
                if timer is not None:
                    timer.cancel()
        return bool(self.chunks) or self.phase is not BODY

    async def pour_into(self, sink: ChunkSink) -> None:
        """Pass bytes to the sink as they arrive, until the body ends, an error occurs, or the sink returns False."""
        if self.chunks and not sink(self.take_chunks()):
            return
        if self.phase is BODY:
            self._sink = sink
            await self._wait(0, self.timeouts.between_bytes)
            self._sink = None
            if self.chunks:
                sink(self.take_chunks())

    async def wait_for_body(self, limit: int) -> None:
        """Wait for the whole body, for more than `limit` bytes of it, or for an error."""
        if self.phase is BODY and not self.has_more_than(limit):
            if limit >= BODY_READ:
                self._buffer = self._pool.read_buffers.body
            await self._wait(limit, self.timeouts.between_bytes)
            self._buffer = self._pool.read_buffers.stream

    def has_more_than(self, limit: int) -> bool:
        if self.buffered_size > limit:
            self.buffered_size = sum(map(len, self.chunks))
        return self.buffered_size > limit

    def take_chunks(self) -> bytes:
        data = b"".join(self.chunks)
        self.chunks.clear()
        self.buffered_size = 0
        if self._reserved:
            self._release_memory()
        if self.is_reading_paused:
            self._resume_reading()
        return data

    def release(self) -> None:
        """Return to the pool if the answer is complete and the connection can be reused; otherwise close it."""
        if self.phase is not DONE or not self.keep_alive:
            self.drop()
            return
        if self.chunks or self.is_reading_paused:
            self.take_chunks()
        self.phase = IDLE
        idle = self._pool.idle
        idle.append(self)
        if len(idle) > MAX_IDLE_CONNECTIONS:
            idle.pop(0).drop()

    def release_threadsafe(self) -> None:
        """Release after the answer was garbage-collected, which can happen in any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.release)

    def drop(self) -> None:
        """Close at once, so that the provider notices and stops."""
        self.fail(TransportError("connection-closed", f"the gateway closed the connection to {self.peer}"))

    def fail(self, error: TransportError) -> None:
        if self.phase is HEAD or self.phase is BODY:
            self.phase, self.error = FAILED, error
        self._sink = None
        self.keep_alive = False
        if self._reserved:
            self._release_memory()
        if not self.is_lost:
            self._transport.abort()
        self._wake()

    def give_up(self) -> None:
        """Close because the caller was cancelled while it waited."""
        self._waiter = self._sink = None
        self.drop()

    # --- waiting and timeouts ---------------------------------------------------------------------------------------

    def _make_waiter(self, wanted_bytes: int, seconds: float, now: float) -> asyncio.Future[None]:
        """A future for the head and more than `wanted_bytes` of the body, its end, or an error; 0 seconds: no limit."""
        self._wanted_bytes, self._received_since_check = wanted_bytes, False
        if self.is_reading_paused:
            self._resume_reading()
        check_at = self._deadline = min(now + (seconds or NEVER), self._answer_ends)
        if self._sink is not None:
            check_at = min(check_at, now + (seconds / IDLE_CHECKS or NEVER))
        if check_at <= now:  # a provider that always sends something would never be silent until a timer runs
            self._loop.call_soon(self._fail_late, self._answer_ends)
        elif check_at < self._timer_at:
            self._set_timer(now, check_at - now)
        self._waiter = waiter = self._loop.create_future()
        return waiter

    async def _wait(self, wanted_bytes: int, seconds: float) -> None:
        try:
            await self._make_waiter(wanted_bytes, seconds, self._loop.time())
        except (asyncio.CancelledError, GeneratorExit):
            self.give_up()
            raise

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        self._deadline = NEVER
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _set_timer(self, now: float, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = now + seconds
        self._timer = self._loop.call_later(seconds, self._on_timer)

    def _on_timer(self) -> None:
        """Mostly the request that set the timer is over, and another may run."""
        self._timer, self._timer_at = None, NEVER
        if self._deadline != NEVER:
            self._check_deadline(DEADLINE_LOOKS)

    def _check_deadline(self, looks: int) -> None:
        """Fail if the deadline has passed. If this process did not run for a while, the answer may be in the socket,
        and timers come before sockets: so the loop reads them before a deadline counts, `looks` times."""
        if self._deadline == NEVER or self._timer is not None:
            return
        now, idle_timeout = self._loop.time(), self.timeouts.between_bytes
        if self.phase is BODY:
            if self._received_since_check:
                self._received_since_check, self.last_received = False, now
            self._deadline = min(max(self._deadline, self.last_received + idle_timeout), self._answer_ends)
        left = self._deadline - now
        if left > 0:
            self._set_timer(now, left if self._sink is None else min(left, idle_timeout / IDLE_CHECKS or NEVER))
        elif looks:
            self._loop.call_soon(self._check_deadline, looks - 1)
        elif now >= self._answer_ends:
            self._fail_late(self._answer_ends)
        elif self.phase is HEAD:
            late = f"did not start to answer within {self.timeouts.first_byte:g} seconds"
            message = f"{self.peer} {late}{_name_setting('first_byte')}"
            self.fail(TransportError("first-byte-timeout", message))
        else:
            nothing = f"sent nothing for {idle_timeout:g} seconds in the middle of its answer"
            message = f"{self.peer} {nothing}{_name_setting('between_bytes')}"
            self.fail(TransportError("idle-timeout", message))

    def _fail_late(self, answer_ends: float) -> None:
        """The answer was not complete in time, unless another answer is read by now."""
        if self._answer_ends == answer_ends and self.phase in (HEAD, BODY):
            late = f"did not finish its answer within {self.timeouts.whole_answer:g} seconds"
            message = f"{self.peer} {late}{_name_setting('whole_answer')}"
            self.fail(TransportError("answer-timeout", message))

    # --- callbacks of the event loop --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._tls_object = transport.get_extra_info("ssl_object")
        self._has_clean_end = self._tls_object is None
        self._poller.register(transport.get_extra_info("socket").fileno(), POLLIN)
        self._pool.all_connections.add(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        data = self._buffer[:nbytes]
        sink = self._sink
        if sink is None:
            self._buffer_data(data)
            return
        # A chunk of a stream is forwarded at once; the sink writes it at the end of the loop's iteration.
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._fail_unparsable(error)
            return
        self._received_since_check = True
        chunks = self.chunks
        body = b"".join(chunks)
        if not body:
            if self.phase is BODY:
                self._count_without_body(nbytes)
            return
        self._bytes_without_body = 0
        chunks.clear()
        try:
            if not sink(body):
                self._sink = None
                if self.phase is BODY:
                    self._pause_reading()
                self._wake()
        except BaseException:
            self.drop()
            raise

    def _buffer_data(self, data: memoryview) -> None:
        phase, chunks = self.phase, self.chunks
        if phase is not HEAD and phase is not BODY:  # bytes that nobody asked for: nothing that follows can be trusted
            self.keep_alive = False
            if phase is IDLE:
                self.drop()
            return
        self.has_received = True
        count, size = len(chunks), len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._fail_unparsable(error)
            return
        if self.phase is phase and len(chunks) == count:
            self._count_without_body(size)
        elif phase is HEAD and self._bytes_without_body + size > MAX_HEAD:
            self._check_head_size()
        else:
            self._bytes_without_body = 0
        self.last_received = self._loop.time()
        self.buffered_size += size
        if len(chunks) - count > MAX_PIECES:
            chunks[count:] = [b"".join(chunks[count:])]
        if self.buffered_size >= MAX_BUFFERED and not self._limit_buffer():
            return
        if self._waiter is not None and (
            self.phase is DONE or (self.phase is BODY and self.has_more_than(self._wanted_bytes))
        ):
            self._wake()

    def eof_received(self) -> None:
        """In TLS only a close_notify ends a body: anyone between the two ends can close the TCP connection. Some event
        loops call this only after close_notify, some after both."""
        if self._tls_object is not None:
            try:
                self._has_clean_end = self._tls_object.read(1) == b""
            except ssl.SSLZeroReturnError:
                self._has_clean_end = True
            except ssl.SSLError:
                self._has_clean_end = False

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True
        self.keep_alive = False
        self._pool.all_connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.phase is IDLE and self in self._pool.idle:
            self._pool.idle.remove(self)
        elif self.phase is HEAD:
            when = "in the middle of the headers of its answer" if self.has_received else "before it answered"
            self.error = TransportError("connection-closed", f"{self.peer} closed the connection {when}")
            self.phase = FAILED
        elif self.phase is BODY:
            # That is a regular end only for a body without a length.
            has_length = "content-length" in self.headers or "transfer-encoding" in self.headers
            if error is None and self._has_clean_end and not has_length:
                self.phase = DONE
            else:
                message = f"{self.peer} closed the connection before the end of its answer"
                self.phase, self.error = FAILED, TransportError("connection-closed", message)
        self._wake()
        del self._parser  # breaks a reference cycle

    def pause_writing(self) -> None:
        self._is_writable = False

    def resume_writing(self) -> None:
        self._is_writable = True
        if self.phase is HEAD and self._wanted_bytes == WAIT_FOR_WRITABLE:
            self._wake()

    # --- callbacks of the parser ------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self.phase is not HEAD:
            raise StopParsing

    def on_header(self, name: bytes, value: bytes) -> None:
        headers, key = self._partial_headers, _header_names[name]
        text = value.decode("latin-1").rstrip()
        if key in headers:
            text = f"{headers[key]}, {text}"
        headers[key] = text

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        headers, self._partial_headers = self._partial_headers, {}
        if status < 200:
            return
        self.status, self.headers = status, headers
        self.phase = BODY
        if self.is_head_request:
            # The parser does not know that the request was a HEAD, and would wait for a body.
            self.phase = DONE
            raise StopParsing

    def on_message_complete(self) -> None:
        if self.phase is BODY:
            self.phase = DONE
            if not self._parser.should_keep_alive():
                self.keep_alive = False
            if self._sink is not None:
                # The sink still gets these last bytes: the waiting caller runs only after this callback.
                self._sink = None
                self.last_received = self._loop.time()
                self._wake()

    # --- rare cases -------------------------------------------------------------------------------------------------

    def _fail_unparsable(self, error: Exception) -> None:
        self.keep_alive = False
        self.buffered_size = sum(map(len, self.chunks))
        if self.phase is HEAD or self.phase is BODY:
            what = "switched protocols" if isinstance(error, HttpParserUpgrade) else "sent an invalid HTTP/1.1 response"
            self.fail(TransportError("protocol", f"{self.peer} {what}: check that the base URL is that of an HTTP API"))
        else:
            self._wake()

    def _count_without_body(self, size: int) -> None:
        self._bytes_without_body += size
        if self._bytes_without_body > MAX_HEAD:
            message = f"{self.peer} sent headers or trailers of more than {MAX_HEAD:,} bytes"
            self.fail(TransportError("protocol", message))

    def _check_head_size(self) -> None:
        """Check a head that arrived in a few large reads, maybe together with much of the body."""
        self._bytes_without_body = 0
        size = sum(len(name) + len(value) + 4 for name, value in self.headers.items())
        if size > MAX_HEAD:
            self.phase, self.status = HEAD, 0
            self._count_without_body(size)

    def _limit_buffer(self) -> bool:
        """Reserve memory for what is buffered, and pause reading if nobody takes it. False: there is no memory."""
        if self.buffered_size * ANSWER_COPIES > self._reserved + FREE_ANSWER and not self._reserve_memory():
            return False
        if self.phase is BODY and self.has_more_than(max(self._wanted_bytes, 0)):
            self._pause_reading()
        return True

    def _reserve_memory(self) -> bool:
        """Reserve memory for a body that grows. Without it the answer fails: others must not."""
        more = self.buffered_size * ANSWER_COPIES - self._reserved + FREE_ANSWER
        if self.answer_budget.reserve_for_answer(more):
            self._reserved += more
            return True
        self.fail(out_of_memory(self.peer))
        return False

    @property
    def answer_budget(self) -> MemoryBudget:
        return self._pool.read_buffers.budget

    def _release_memory(self) -> None:
        self.answer_budget.used -= self._reserved
        self._reserved = 0

    def _pause_reading(self) -> None:
        if not self.is_reading_paused and not self.is_lost:
            self.is_reading_paused = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self.is_reading_paused and not self.is_lost:
            self.is_reading_paused = False
            self._transport.resume_reading()
