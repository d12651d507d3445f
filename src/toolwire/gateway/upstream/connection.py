"""One connection to a provider: bytes in and out, one exchange at a time. What goes wrong is noted as a `Fault`.

Nothing here raises for what a peer does.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable
from typing import cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from toolwire.gateway.outbox import Outbox
from toolwire.gateway.settings.config import Deadlines
from toolwire.gateway.upstream.faults import Fault
from toolwire.gateway.upstream.waiting import BEGUN, BODY, DONE, HEAD, IDLE, WRITABLE, Sink, Waiting

MAX_HEAD = 128 * 1024
"""Of a head, and of everything else that brings no body nearer (interim answers, chunk extensions, trailers)."""
HIGH = 256 * 1024
"""More unread bytes than this, and the socket is left alone until they are taken."""
JOINED = 16 * 1024
"""Up to here a body is copied behind its head, for one write."""
SLICE = 256 * 1024
"""Longer bodies go out in slices, each when the one before has left."""
MAX_IDLE = 64
MAX_AGE = 55.0
"""Seconds that a connection may be idle: below the minute after which many servers hang up."""


class _Names(dict[bytes, str]):
    """Header names are few: each is lowered once."""

    def __missing__(self, name: bytes) -> str:
        if len(self) > 1000:
            self.clear()
        return self.setdefault(name, name.decode("latin-1").lower())


_names = _Names()


class Enough(Exception):
    """Stops the parser: what follows is not of this answer."""


class Connection(Waiting):
    """`idle` and `everyone` are lists of its pool; it puts itself in and takes itself out."""

    __slots__ = (
        "_barren",
        "_coming",
        "_everyone",
        "_farewell",
        "_idle",
        "_outbox",
        "_parser",
        "_paused",
        "_secured",
        "_writable",
        "bodiless",
        "headers",
        "on_body",
        "seen",
        "status",
    )

    def __init__(
        self, peer: str, deadlines: Deadlines, outbox: Outbox, idle: list[Connection], everyone: set[Connection]
    ) -> None:
        super().__init__(peer, deadlines)
        self._outbox = outbox
        self._idle = idle
        self._everyone = everyone
        self.on_body = self.pieces.append
        """Where the parser puts the body, piece by piece."""
        self._parser = HttpResponseParser(self)
        self._paused = False
        self._writable = True
        self._secured: ssl.SSLObject | None = None
        self._farewell = True
        self._barren = 0
        self.status = 0
        self.headers: dict[str, str] = {}
        self._coming: dict[str, str] = {}
        """Headers before they are all there, or trailers, which nobody reads."""
        self.bodiless = False
        self.seen = False

    # --- the caller's side ------------------------------------------------------------------------------------------

    def exchange(self, head: bytes, body: bytes, bodiless: bool) -> Awaitable[None]:
        """Send a request, and wait for the head of its answer or a fault. Whoever stops waiting has to `give_up`."""
        self.phase = HEAD
        self.seen = False
        self.bodiless = bodiless
        self._coming = {}
        self._barren = 0
        if self.lost or self._transport.is_closing():
            fault = Fault("cut", f"{self.peer} closed the connection before it was asked")
            self._loop.call_soon(self.fail, fault)
        elif len(body) <= JOINED:
            # At the end of the loop's round, with what others have to say.
            self._outbox.put(self._say, head + body)
        elif len(body) <= SLICE:
            self._transport.write(head)
            self._transport.write(body)
        else:
            return self._pour(head, memoryview(body))
        return self._awaited(BEGUN, self._deadlines.first_byte)

    def _say(self, data: bytes) -> None:
        if not self.lost and not self._transport.is_closing():
            self._transport.write(data)

    async def _pour(self, head: bytes, body: memoryview) -> None:
        """A long body, no faster than it is taken; an answer that comes before its end ends it."""
        self._transport.write(head)
        for start in range(0, len(body), SLICE):
            self._transport.write(body[start : start + SLICE])
            while not self._writable and self.phase == HEAD and self.fault is None:
                await self._wait(WRITABLE, self._deadlines.first_byte)
            if self.phase != HEAD or self.fault is not None or self._transport.is_closing():
                self.keep = False
                break
        if self.phase == HEAD and self.fault is None:
            await self._wait(BEGUN, self._deadlines.first_byte)

    async def more(self) -> None:
        """Wait for any bytes of the body, its end, or a fault."""
        if not self.pieces and self.phase == BODY and self.fault is None:
            await self._wait(0, self._deadlines.between_bytes)

    async def comes(self, seconds: float) -> bool:
        """The same, but no longer than that: has anything come?"""
        if not self.pieces and self.phase == BODY and self.fault is None:
            enough = self._loop.call_later(max(0.0, seconds), self._wake)
            try:
                await self._wait(0, self._deadlines.between_bytes)
            finally:
                enough.cancel()
        return bool(self.pieces) or self.phase != BODY or self.fault is not None

    async def pour(self, sink: Sink) -> None:
        """Hand over bytes as they come, waking nobody, until the end, a fault, or a sink that has had enough."""
        if self.pieces and not sink(self.take()):
            return
        if self.phase == BODY and self.fault is None:
            self._sink = sink
            await self._wait(0, self._deadlines.between_bytes)
            self._sink = None
            if self.pieces:
                sink(self.take())

    async def rest(self, limit: int) -> None:
        """Wait for the whole body, more than `limit` bytes of it, or a fault."""
        if self.phase == BODY and self.fault is None and not self.holds_more(limit):
            if self._paused:
                self._resume()
            await self._wait(limit, self._deadlines.between_bytes)

    def take(self) -> bytes:
        """The bytes that are there."""
        pieces = self.pieces
        data = b"".join(pieces)
        pieces.clear()
        self.weight = 0
        if self._paused:
            self._resume()
        return data

    def release(self) -> None:
        """Back to its pool if the exchange is over and there can be another; else it is closed at once."""
        if self.phase != DONE or not self.keep:
            self.drop()
            return
        if self.pieces:
            self.take()
        self.phase = IDLE
        idle = self._idle
        idle.append(self)
        if len(idle) > MAX_IDLE:
            idle.pop(0).drop()

    def forget(self) -> None:
        """Nobody holds the answer any more. The garbage collector may come from any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.release)

    # --- the event loop's side --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._secured = transport.get_extra_info("ssl_object")
        self._farewell = self._secured is None
        self._everyone.add(self)

    def data_received(self, data: bytes) -> None:
        sink = self._sink
        if sink is None:
            self._gather(data)
            return
        # A piece of a stream goes on at once: whoever takes it writes only at the end of the loop's round.
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._garbled(error)
            return
        self._spoke = True
        pieces = self.pieces
        if not pieces:
            if self.phase == BODY:
                self._count_barren(len(data))
            return
        self._barren = 0
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        try:
            if not sink(body):
                self._sink = None
                self._wake()
        except BaseException:
            self.drop()
            raise

    def _gather(self, data: bytes) -> None:
        """For somebody who takes it later, or waits for all of it."""
        phase, pieces = self.phase, self.pieces
        if phase < HEAD:
            self._unasked()
            return
        self.seen = True
        before, size = len(pieces), len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._garbled(error)
            return
        if self.phase == phase and len(pieces) == before:
            self._count_barren(size)
        elif phase == HEAD and self._barren + size > MAX_HEAD:
            self._weigh_head()
        else:
            self._barren = 0
        self.heard_at = self._loop.time()
        self.weight += size
        if self.weight > HIGH:
            self._hold_back()
        if self._waiter is not None and (self.phase == DONE or self._is_enough()):
            self._wake()

    def _hold_back(self) -> None:
        """Where much has come and nobody took it."""
        if not self._paused and self.holds_more(max(self._cap, HIGH)):
            self._paused = True
            self._transport.pause_reading()

    def eof_received(self) -> None:
        """In TLS only the peer's farewell ends a body: a line that just went dead may have been cut by anyone. Some
        loops come here only for a farewell, some for both."""
        if self._secured is not None:
            try:
                self._farewell = self._secured.read(1) == b""
            except ssl.SSLZeroReturnError:
                self._farewell = True
            except ssl.SSLError:
                self._farewell = False

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        self.keep = False
        self._everyone.discard(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.phase == IDLE and self in self._idle:
            self._idle.remove(self)
        elif self.phase == HEAD and self.fault is None:
            when = "in the middle of the head of its answer" if self.seen else "before it answered"
            self.fault = Fault("cut", f"{self.peer} closed the connection {when}")
        elif self.phase == BODY and self.fault is None:
            self._end_of_input(error is None and self._farewell)
        self._wake()

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        if self.phase == HEAD and self._cap == WRITABLE:
            self._wake()

    # --- the parser's side ------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self.phase != HEAD:
            raise Enough

    def on_header(self, name: bytes, value: bytes) -> None:
        headers, key = self._coming, _names[name]
        text = value.decode("latin-1").rstrip()
        if key in headers:
            text = f"{headers[key]}, {text}"
        headers[key] = text

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        headers, self._coming = self._coming, {}
        if status < 200:
            return
        self.status, self.headers = status, headers
        self.phase = BODY
        if self.bodiless:
            # The parser does not know that this was a HEAD and would wait for a body.
            self.phase = DONE
            raise Enough

    def on_message_complete(self) -> None:
        if self.phase == BODY:
            self.phase = DONE
            if not self._parser.should_keep_alive():
                self.keep = False
            if self._sink is not None:
                # It still gets these last bytes: whoever waits goes on only after that.
                self._sink = None
                self.heard_at = self._loop.time()
                self._wake()

    # --- what is rare -----------------------------------------------------------------------------------------------

    def _unasked(self) -> None:
        """Bytes that belong to no request: nothing after them on this connection can be trusted."""
        self.keep = False
        if self.phase == IDLE:
            self.drop()

    def _garbled(self, error: Exception) -> None:
        self.keep = False
        self.weight = sum(map(len, self.pieces))
        if self.phase >= HEAD:
            what = "switched protocols" if isinstance(error, HttpParserUpgrade) else "sent what is not HTTP/1.1"
            self.fail(Fault("protocol", f"{self.peer} {what}: check that the base URL is that of an HTTP API"))
        else:
            self._wake()

    def _count_barren(self, size: int) -> None:
        self._barren += size
        if self._barren > MAX_HEAD:
            self.fail(Fault("protocol", f"{self.peer} sent headers or trailers of more than {MAX_HEAD:,} bytes"))

    def _weigh_head(self) -> None:
        """A head that came in a few big pieces, maybe with much of the body."""
        self._barren = 0
        size = sum(len(name) + len(value) + 4 for name, value in self.headers.items())
        if size > MAX_HEAD:
            self.phase = HEAD
            self._count_barren(size)

    def _end_of_input(self, clean: bool) -> None:
        """The connection is gone while a body was read: only a body without a length may end so."""
        declared = "content-length" in self.headers or "transfer-encoding" in self.headers
        if clean and not declared:
            self.phase = DONE
        else:
            self.fault = Fault("cut", f"{self.peer} closed the connection before the end of its answer")

    def _resume(self) -> None:
        if self._paused and not self.lost:
            self._paused = False
            self._transport.resume_reading()
