"""Whoever waits for a provider: how far its answer is, what went wrong, and until when there is time.

Whoever waits sleeps on one future, which is woken when what it waits for is there or can no longer come. The deadline
is a number that one timer looks at, so an exchange sets no timer of its own.
"""

from __future__ import annotations

import asyncio
import math
import ssl
from collections.abc import Awaitable, Callable
from typing import cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from toolwire.gateway.config.config import Timeouts
from toolwire.gateway.server.write_queue import WriteQueue
from toolwire.gateway.upstream.errors import TransportError

PHASE_IDLE, PHASE_DONE, PHASE_HEAD, PHASE_BODY = range(4)
"""The phases of an exchange: none, nothing more to come, waiting for the head of the answer, for its body."""
WAIT_FOR_HEAD, WAIT_FOR_WRITABLE = -1, -2
"""What may be waited for besides a number of bytes: the head alone, or, until it comes, that more can be written."""
NEVER = math.inf
IDLE_CHECKS = 8
"""How often in the time that a stream may be silent somebody looks whether it was: it ends up to one part later."""
ChunkSink = Callable[[bytes], bool]
"""Takes bytes; False when no more should come for now."""


class ExchangeWaiter(asyncio.Protocol):
    """The part of a connection that somebody may wait for."""

    __slots__ = (
        "_deadline",
        "_deadlines",
        "_loop",
        "_received_since_check",
        "_sink",
        "_timer",
        "_timer_at",
        "_transport",
        "_waiter",
        "_wanted_bytes",
        "buffered_size",
        "chunks",
        "error",
        "is_lost",
        "keep_alive",
        "last_received",
        "peer",
        "phase",
    )

    def __init__(self, peer: str, deadlines: Timeouts) -> None:
        self._loop = asyncio.get_running_loop()
        self._deadlines = deadlines
        self._transport: asyncio.Transport
        self._waiter: asyncio.Future[None] | None = None
        self._sink: ChunkSink | None = None
        """There only while a body comes and nothing of it waits."""
        self._received_since_check = False
        """Did a piece of a stream come since the timer last looked? What the clock says is not asked for each."""
        self._wanted_bytes = 0
        self._deadline = NEVER
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER
        self.peer = peer
        self.phase = PHASE_IDLE
        self.error: TransportError | None = None
        self.last_received = 0.0
        """When the last bytes came."""
        self.chunks: list[bytes] = []
        """What has come of the body and was not taken."""
        self.buffered_size = 0
        """Of the pieces: no less than theirs, and weighed only where it matters."""
        self.keep_alive = True
        self.is_lost = False

    def drop(self) -> None:
        """Close at once, so that the provider sees it."""
        self.fail(TransportError("connection-closed", f"the connection to {self.peer} was closed on this side"))

    def fail(self, error: TransportError) -> None:
        if self.error is None and self.phase >= PHASE_HEAD:
            self.error = error
        self._sink = None
        self.keep_alive = False
        if not self.is_lost:
            self._transport.abort()
        self._wake()

    def _make_waiter(self, wanted_bytes: int, seconds: float) -> asyncio.Future[None]:
        """For the head and more than `cap` bytes of the body, its end, or a fault; 0 seconds are no limit. Whoever
        stops waiting has to `give_up`."""
        self._wanted_bytes, self._received_since_check = wanted_bytes, False
        if seconds:
            now = self._loop.time()
            self._deadline = now + seconds
            look = seconds if self._sink is None else seconds / IDLE_CHECKS
            if self._timer is None or self._timer_at > now + look:
                self._set_timer(now, look)
        self._waiter = waiter = self._loop.create_future()
        return waiter

    async def _wait(self, wanted_bytes: int, seconds: float) -> None:
        try:
            await self._make_waiter(wanted_bytes, seconds)
        except (asyncio.CancelledError, GeneratorExit):
            self.give_up()
            raise

    def give_up(self) -> None:
        """Whoever waited was cancelled."""
        self._waiter = self._sink = None
        self.drop()

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
        """The timer: mostly the exchange that set it is long over, and it goes on for a later one or stops."""
        self._timer = None
        if self._deadline == NEVER:
            return
        now, patience = self._loop.time(), self._deadlines.between_bytes
        if self.phase == PHASE_BODY:
            if self._received_since_check:
                self._received_since_check, self.last_received = False, now
            self._deadline = max(self._deadline, self.last_received + patience)
        left = self._deadline - now
        if left > 0:
            self._set_timer(now, left if self._sink is None else min(left, patience / IDLE_CHECKS))
        elif self.phase == PHASE_HEAD:
            seconds = f"{self._deadlines.first_byte:g}"
            self.fail(
                TransportError("first-byte-timeout", f"{self.peer} did not begin to answer within {seconds} seconds")
            )
        else:
            seconds = f"{self._deadlines.between_bytes:g}"
            self.fail(
                TransportError(
                    "idle-timeout", f"{self.peer} fell silent for {seconds} seconds in the middle of its answer"
                )
            )

    def _has_wanted_bytes(self) -> bool:
        """Is what somebody waits for there?"""
        return self.phase == PHASE_BODY and self.has_more_than(self._wanted_bytes)

    def has_more_than(self, limit: int) -> bool:
        """Than that many bytes of the body."""
        if self.buffered_size > limit:
            self.buffered_size = sum(map(len, self.chunks))
        return self.buffered_size > limit


MAX_HEAD = 128 * 1024
"""Of a head, and of everything else that brings no body nearer (interim answers, chunk extensions, trailers)."""
MAX_BUFFERED = 256 * 1024
"""More unread bytes than this, and the socket is left alone until they are taken."""
MAX_JOINED_BODY = 16 * 1024
"""Up to here a body is copied behind its head, for one write."""
WRITE_SLICE = 256 * 1024
"""Longer bodies go out in slices, each when the one before has left."""
MAX_IDLE_CONNECTIONS = 64
MAX_IDLE_SECONDS = 55.0
"""Seconds that a connection may be idle: below the minute after which many servers hang up."""


class _HeaderNames(dict[bytes, str]):
    """Header names are few: each is lowered once."""

    def __missing__(self, name: bytes) -> str:
        if len(self) > 1000:
            self.clear()
        return self.setdefault(name, name.decode("latin-1").lower())


_header_names = _HeaderNames()


class StopParsing(Exception):
    """Stops the parser: what follows is not of this answer."""


class UpstreamConnection(ExchangeWaiter):
    """`idle` and `everyone` are lists of its pool; it puts itself in and takes itself out."""

    __slots__ = (
        "_all_connections",
        "_bytes_without_body",
        "_has_clean_end",
        "_idle",
        "_is_reading_paused",
        "_is_writable",
        "_parser",
        "_partial_headers",
        "_tls_object",
        "_write_queue",
        "has_received",
        "headers",
        "is_head_request",
        "on_body",
        "status",
    )

    def __init__(
        self,
        peer: str,
        deadlines: Timeouts,
        write_queue: WriteQueue,
        idle: list[UpstreamConnection],
        all_connections: set[UpstreamConnection],
    ) -> None:
        super().__init__(peer, deadlines)
        self._write_queue = write_queue
        self._idle = idle
        self._all_connections = all_connections
        self.on_body = self.chunks.append
        """Where the parser puts the body, piece by piece."""
        self._parser = HttpResponseParser(self)
        self._is_reading_paused = False
        self._is_writable = True
        self._tls_object: ssl.SSLObject | None = None
        self._has_clean_end = True
        self._bytes_without_body = 0
        self.status = 0
        self.headers: dict[str, str] = {}
        self._partial_headers: dict[str, str] = {}
        """Headers before they are all there, or trailers, which nobody reads."""
        self.is_head_request = False
        self.has_received = False

    # --- the caller's side ------------------------------------------------------------------------------------------

    def send_request(self, head: bytes, body: bytes, is_head_request: bool) -> Awaitable[None]:
        """Send a request, and wait for the head of its answer or a fault. Whoever stops waiting has to `give_up`."""
        self.phase = PHASE_HEAD
        self.has_received = False
        self.is_head_request = is_head_request
        self._partial_headers = {}
        self._bytes_without_body = 0
        if self.is_lost or self._transport.is_closing():
            fault = TransportError("connection-closed", f"{self.peer} closed the connection before it was asked")
            self._loop.call_soon(self.fail, fault)
        elif len(body) <= MAX_JOINED_BODY:
            # At the end of the loop's round, with what others have to say.
            self._write_queue.add(self._write_if_open, head + body)
        elif len(body) <= WRITE_SLICE:
            self._transport.write(head)
            self._transport.write(body)
        else:
            return self._write_long_body(head, memoryview(body))
        return self._make_waiter(WAIT_FOR_HEAD, self._deadlines.first_byte)

    def _write_if_open(self, data: bytes) -> None:
        if not self.is_lost and not self._transport.is_closing():
            self._transport.write(data)

    async def _write_long_body(self, head: bytes, body: memoryview) -> None:
        """A long body, no faster than it is taken; an answer that comes before its end ends it."""
        self._transport.write(head)
        for start in range(0, len(body), WRITE_SLICE):
            self._transport.write(body[start : start + WRITE_SLICE])
            while not self._is_writable and self.phase == PHASE_HEAD and self.error is None:
                await self._wait(WAIT_FOR_WRITABLE, self._deadlines.first_byte)
            if self.phase != PHASE_HEAD or self.error is not None or self._transport.is_closing():
                self.keep_alive = False
                break
        if self.phase == PHASE_HEAD and self.error is None:
            await self._wait(WAIT_FOR_HEAD, self._deadlines.first_byte)

    async def wait_for_chunk(self) -> None:
        """Wait for any bytes of the body, its end, or a fault."""
        if not self.chunks and self.phase == PHASE_BODY and self.error is None:
            await self._wait(0, self._deadlines.between_bytes)

    async def wait_for_data(self, seconds: float) -> bool:
        """The same, but no longer than that: has anything come?"""
        if not self.chunks and self.phase == PHASE_BODY and self.error is None:
            enough = self._loop.call_later(max(0.0, seconds), self._wake)
            try:
                await self._wait(0, self._deadlines.between_bytes)
            finally:
                enough.cancel()
        return bool(self.chunks) or self.phase != PHASE_BODY or self.error is not None

    async def pour_into(self, sink: ChunkSink) -> None:
        """Hand over bytes as they come, waking nobody, until the end, a fault, or a sink that has had enough."""
        if self.chunks and not sink(self.take_chunks()):
            return
        if self.phase == PHASE_BODY and self.error is None:
            self._sink = sink
            await self._wait(0, self._deadlines.between_bytes)
            self._sink = None
            if self.chunks:
                sink(self.take_chunks())

    async def wait_for_body(self, limit: int) -> None:
        """Wait for the whole body, more than `limit` bytes of it, or a fault."""
        if self.phase == PHASE_BODY and self.error is None and not self.has_more_than(limit):
            if self._is_reading_paused:
                self._resume_reading()
            await self._wait(limit, self._deadlines.between_bytes)

    def take_chunks(self) -> bytes:
        """The bytes that are there."""
        pieces = self.chunks
        data = b"".join(pieces)
        pieces.clear()
        self.buffered_size = 0
        if self._is_reading_paused:
            self._resume_reading()
        return data

    def release(self) -> None:
        """Back to its pool if the exchange is over and there can be another; else it is closed at once."""
        if self.phase != PHASE_DONE or not self.keep_alive:
            self.drop()
            return
        if self.chunks:
            self.take_chunks()
        self.phase = PHASE_IDLE
        idle = self._idle
        idle.append(self)
        if len(idle) > MAX_IDLE_CONNECTIONS:
            idle.pop(0).drop()

    def release_threadsafe(self) -> None:
        """Nobody holds the answer any more. The garbage collector may come from any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.release)

    # --- the event loop's side --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._tls_object = transport.get_extra_info("ssl_object")
        self._has_clean_end = self._tls_object is None
        self._all_connections.add(self)

    def data_received(self, data: bytes) -> None:
        sink = self._sink
        if sink is None:
            self._buffer_data(data)
            return
        # A piece of a stream goes on at once: whoever takes it writes only at the end of the loop's round.
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._fail_unparsable(error)
            return
        self._received_since_check = True
        pieces = self.chunks
        if not pieces:
            if self.phase == PHASE_BODY:
                self._count_without_body(len(data))
            return
        self._bytes_without_body = 0
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        try:
            if not sink(body):
                self._sink = None
                self._wake()
        except BaseException:
            self.drop()
            raise

    def _buffer_data(self, data: bytes) -> None:
        """For somebody who takes it later, or waits for all of it."""
        phase, pieces = self.phase, self.chunks
        if phase < PHASE_HEAD:
            self._reject_unrequested()
            return
        self.has_received = True
        before, size = len(pieces), len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._fail_unparsable(error)
            return
        if self.phase == phase and len(pieces) == before:
            self._count_without_body(size)
        elif phase == PHASE_HEAD and self._bytes_without_body + size > MAX_HEAD:
            self._check_head_size()
        else:
            self._bytes_without_body = 0
        self.last_received = self._loop.time()
        self.buffered_size += size
        if self.buffered_size > MAX_BUFFERED:
            self._pause_reading()
        if self._waiter is not None and (self.phase == PHASE_DONE or self._has_wanted_bytes()):
            self._wake()

    def _pause_reading(self) -> None:
        """Where much has come and nobody took it."""
        if not self._is_reading_paused and self.has_more_than(max(self._wanted_bytes, MAX_BUFFERED)):
            self._is_reading_paused = True
            self._transport.pause_reading()

    def eof_received(self) -> None:
        """In TLS only the peer's farewell ends a body: a line that just went dead may have been cut by anyone. Some
        loops come here only for a farewell, some for both."""
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
        self._all_connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.phase == PHASE_IDLE and self in self._idle:
            self._idle.remove(self)
        elif self.phase == PHASE_HEAD and self.error is None:
            when = "in the middle of the head of its answer" if self.has_received else "before it answered"
            self.error = TransportError("connection-closed", f"{self.peer} closed the connection {when}")
        elif self.phase == PHASE_BODY and self.error is None:
            self._end_without_length(error is None and self._has_clean_end)
        self._wake()

    def pause_writing(self) -> None:
        self._is_writable = False

    def resume_writing(self) -> None:
        self._is_writable = True
        if self.phase == PHASE_HEAD and self._wanted_bytes == WAIT_FOR_WRITABLE:
            self._wake()

    # --- the parser's side ------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self.phase != PHASE_HEAD:
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
        self.phase = PHASE_BODY
        if self.is_head_request:
            # The parser does not know that this was a HEAD and would wait for a body.
            self.phase = PHASE_DONE
            raise StopParsing

    def on_message_complete(self) -> None:
        if self.phase == PHASE_BODY:
            self.phase = PHASE_DONE
            if not self._parser.should_keep_alive():
                self.keep_alive = False
            if self._sink is not None:
                # It still gets these last bytes: whoever waits goes on only after that.
                self._sink = None
                self.last_received = self._loop.time()
                self._wake()

    # --- what is rare -----------------------------------------------------------------------------------------------

    def _reject_unrequested(self) -> None:
        """Bytes that belong to no request: nothing after them on this connection can be trusted."""
        self.keep_alive = False
        if self.phase == PHASE_IDLE:
            self.drop()

    def _fail_unparsable(self, error: Exception) -> None:
        self.keep_alive = False
        self.buffered_size = sum(map(len, self.chunks))
        if self.phase >= PHASE_HEAD:
            what = "switched protocols" if isinstance(error, HttpParserUpgrade) else "sent what is not HTTP/1.1"
            self.fail(TransportError("protocol", f"{self.peer} {what}: check that the base URL is that of an HTTP API"))
        else:
            self._wake()

    def _count_without_body(self, size: int) -> None:
        self._bytes_without_body += size
        if self._bytes_without_body > MAX_HEAD:
            self.fail(
                TransportError("protocol", f"{self.peer} sent headers or trailers of more than {MAX_HEAD:,} bytes")
            )

    def _check_head_size(self) -> None:
        """A head that came in a few big pieces, maybe with much of the body."""
        self._bytes_without_body = 0
        size = sum(len(name) + len(value) + 4 for name, value in self.headers.items())
        if size > MAX_HEAD:
            self.phase = PHASE_HEAD
            self._count_without_body(size)

    def _end_without_length(self, clean: bool) -> None:
        """The connection is gone while a body was read: only a body without a length may end so."""
        declared = "content-length" in self.headers or "transfer-encoding" in self.headers
        if clean and not declared:
            self.phase = PHASE_DONE
        else:
            message = f"{self.peer} closed the connection before the end of its answer"
            self.error = TransportError("connection-closed", message)

    def _resume_reading(self) -> None:
        if self._is_reading_paused and not self.is_lost:
            self._is_reading_paused = False
            self._transport.resume_reading()
