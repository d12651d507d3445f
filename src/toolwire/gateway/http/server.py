"""The gateway's own HTTP/1.1 server, on httptools, with a task for every request.

docs/decisions/0011 says what it saves. It does what a gateway needs: keep-alive, pipelined requests, and bodies with a
length or in chunks, both ways.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from toolwire.gateway.http.admission import RETRY_AFTER, Admission, memory_failure
from toolwire.gateway.http.body_rate import BodyRate
from toolwire.gateway.http.client_request import (
    STATUS_LINES,
    ClientDisconnected,
    ClientRequest,
    HttpRequest,
)
from toolwire.gateway.http.head_cache import CachedHead, cache_head
from toolwire.gateway.http.request_parser import BadRequest, RequestParser
from toolwire.gateway.http.workers import Acceptor, LogEvent, WorkerContext
from toolwire.gateway.http.write_queue import WriteQueue
from toolwire.gateway.settings.config import ServerSettings

SWEEP_SECONDS = 5.0
CLOSE_GRACE_SECONDS = 1.0
"""Seconds for tasks to end after their connections were closed."""

TURNS_TO_READ = 2
"""Turns of the event loop in which it reads what has arrived."""

RequestCallback = Callable[[ClientRequest], Coroutine[Any, Any, None]]
ErrorCallback = Callable[[ClientRequest, BaseException], Coroutine[Any, Any, None]]


class HttpServer:
    """Accepts connections and starts a task for every request. `on_error` answers requests whose task failed."""

    def __init__(
        self, on_request: RequestCallback, on_error: ErrorCallback, admission: Admission | None = None
    ) -> None:
        self._on_request = on_request
        self._on_error = on_error
        self.admission = admission or Admission(ServerSettings())
        self.loop = asyncio.get_running_loop()
        self.time = self.loop.time
        self.write_queue = WriteQueue(self.loop)
        self.connections: set[ClientConnection] = set()
        self._connections_by_address: dict[str, int] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self._sweep_timer = self.loop.call_later(SWEEP_SECONDS, self._on_sweep_timer)
        self._listener: Acceptor | None = None
        self._is_draining = False
        self._all_closed: asyncio.Future[None] | None = None
        """Set while the server closes."""
        self._idle_seconds = 0.0
        """How long a connection may then be idle."""

    async def listen(
        self,
        bound: socket.socket,
        backlog: int,
        worker: WorkerContext | None = None,
        log_event: LogEvent = lambda kind, **fields: None,
    ) -> None:
        """Accept connections. `worker` is given if several processes share the socket."""
        bound.listen(backlog)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # to notice clients that vanish
        for name, value in KEEPALIVE_OPTIONS.items():
            if hasattr(socket, name):  # connections inherit them
                bound.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self._listener = Acceptor(
            bound, lambda: ClientConnection(self), lambda: len(self.connections), worker, log_event
        )

    def add_connection(self, connection: ClientConnection) -> None:
        self.connections.add(connection)
        by_address = self._connections_by_address
        total, own = len(self.connections), by_address.get(connection.peer, 0) + 1
        by_address[connection.peer] = own
        excess = max(total - MAX_CONNECTIONS, own - MAX_CONNECTIONS_PER_ADDRESS)
        connection.is_excess = excess > 0
        connection.is_closing = self._is_draining
        if excess > MAX_EXCESS:
            connection.transport.abort()

    def remove_connection(self, connection: ClientConnection) -> None:
        if connection in self.connections:
            self.connections.remove(connection)
            left = self._connections_by_address.pop(connection.peer) - 1
            if left:
                self._connections_by_address[connection.peer] = left
        self._check_all_closed()

    # --- tasks ---

    def start_request(self, request: HttpRequest) -> None:
        # A name that the loop generates would cost more than the task.
        task = request.task = asyncio.Task(self._run_request(request), loop=self.loop, name="request")
        self.tasks.add(task)

    async def _run_request(self, request: HttpRequest) -> None:
        """Only a task that does not end well gets a callback: it costs something."""
        ended_well = False
        try:
            await self._on_request(request)
            ended_well = request.has_ended_response or request.is_disconnected
        finally:
            if not ended_well:
                request.task.add_done_callback(partial(self._on_task_done, request))
            else:
                self.tasks.discard(request.task)
                if self._all_closed is not None:
                    self._check_all_closed()

    def _on_task_done(self, request: HttpRequest, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        cancelled = task.cancelled()
        error = None if cancelled else task.exception()
        answered = request.has_ended_response or request.is_disconnected
        gone = cancelled or isinstance(error, ClientDisconnected)
        if error is None and not answered and not gone and not request.has_started_response:
            error = RuntimeError("the task of a request ended without an answer")
        if not answered and (request.has_started_response or task is not request.task or gone):
            # The client must not take an incomplete answer for a complete one.
            request.abort()
        if error is not None and not gone:
            if task is request.task:
                answering = self.loop.create_task(self._on_error(request, error))
                self.tasks.add(answering)
                answering.add_done_callback(partial(self._on_task_done, request))
            else:
                self.loop.call_exception_handler({"message": "answering an internal error failed", "exception": error})
        self._check_all_closed()

    # --- timeouts and closing ---

    def _on_sweep_timer(self) -> None:
        self._sweep_timer = self.loop.call_later(SWEEP_SECONDS, self._on_sweep_timer)
        self.sweep_connections(self.time())

    def sweep_connections(self, now: float) -> None:
        is_crowded = len(self.connections) > CROWDED_SHARE * MAX_CONNECTIONS
        for connection in tuple(self.connections):
            connection.close_if_stalled(now, CROWDED_IDLE_SECONDS if is_crowded else IDLE_SECONDS)

    def _check_all_closed(self) -> None:
        if self._all_closed is not None and not self.connections and not self.tasks and not self._all_closed.done():
            self._all_closed.set_result(None)

    def drain(self) -> None:
        """The server will close: clients must not keep their connections. All requests are still answered."""
        self._is_draining = True
        for connection in self.connections:
            connection.is_closing = True

    def close_when_idle(self, connection: ClientConnection) -> None:
        """While the server closes; before, every connection stays open."""
        if self._all_closed is not None:
            connection.stop_accepting(self._idle_seconds)

    async def close(self, seconds: float | None, idle_seconds: float = 0.0, is_last: bool = True) -> None:
        """Accept no new connections, and wait until running requests end or the time is over. A connection on which
        something came in the last `idle_seconds` may still bring a request. If this is cancelled, everything is closed
        at once. `is_last`: no other process accepts connections from the same socket."""
        all_closed = self._all_closed = self.loop.create_future()
        self._idle_seconds = idle_seconds
        self.drain()
        if self._listener is not None:
            self._listener.close(is_last)
        try:
            if self._listener is not None and self._listener.opening:
                await asyncio.wait(self._listener.opening)
            for connection in tuple(self.connections):
                self.close_when_idle(connection)
            self._check_all_closed()
            await asyncio.wait((all_closed,), timeout=seconds or None)
        finally:
            self._sweep_timer.cancel()
            for connection in tuple(self.connections):
                connection.transport.abort()
            for task in self.tasks:
                task.cancel()
            await asyncio.wait((all_closed,), timeout=CLOSE_GRACE_SECONDS)


MAX_UNPARSED = 64 * 1024
"""Bytes after the current request that are read before its answer is sent. Some are: so a client that leaves is
noticed."""
MAX_PIECES = 2_000
"""Chunks of a body that are parsed in one turn of the event loop: some milliseconds."""
WRITE_BUFFER = 32 * 1024
"""With more unsent bytes than this, what produces the answer waits."""
IDLE_SECONDS, UNREAD_SECONDS = 75.0, 300.0
"""Seconds until the server closes an idle connection, and one that does not read."""
CROWDED_SHARE, CROWDED_IDLE_SECONDS = 0.9, 5.0
"""With this share of the connections in use, idle ones are closed earlier."""
MAX_CONNECTIONS, MAX_CONNECTIONS_PER_ADDRESS = 8192, 4096
"""Connections of clients, for each worker, and of one address. Behind a proxy, all clients have its address. What they
hold is within `max_memory`."""
MAX_EXCESS = 256
"""Connections beyond the limit that are still answered: health checks, and others with an error. More are closed."""
REQUEST_SECONDS = 60.0
"""For a client to send the head of its request. Its body may take as long, and longer if it comes faster than that."""
KEEPALIVE_OPTIONS = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 20, "TCP_KEEPCNT": 3}
"""A client that vanished without closing its connection is noticed after two minutes."""
LINGER_SECONDS, LINGER_SILENCE_SECONDS = 30.0, 5.0
"""After the last response, input is read and dropped for so many seconds, or until such a silence."""


class ClientConnection(asyncio.Protocol):
    """A client's connection: parses its requests, and answers them in their order."""

    __slots__ = (
        "__weakref__", "_cached_head", "_has_late_data", "_is_parsing_later", "_linger_until", "_parser", "_server",
        "_unparsed", "_unread_bytes", "_unsent", "body_rate", "clock", "current_request", "error_response",
        "held_input", "ignores_input", "is_closing", "is_excess", "is_reading_paused", "last_activity", "loop", "peer",
        "pipelined", "transport", "write_blocked", "write_queue",
    )  # fmt: skip

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self.loop, self.clock, self.write_queue = server.loop, server.time, server.write_queue
        self._parser = RequestParser(self)
        self.pipelined: deque[HttpRequest] = deque()
        """Requests after the current one, which were in the same slice of input."""
        self._unparsed = b""
        """Input that is parsed when the answer before it is sent."""
        self._cached_head: CachedHead | None = None
        """The head of the last request, if it can be cached."""
        self.is_reading_paused = self._has_late_data = self._is_parsing_later = False
        self.error_response = b""
        self.last_activity = self._linger_until = 0.0
        self.body_rate = BodyRate(self.clock())
        self._unread_bytes = self._unsent = self.held_input = 0
        """Bytes in the transport at the last sweep; and of unsent answers and of input without a request, which the
        memory budget counts."""
        self.is_excess = False
        """Beyond the limit: only health checks are answered."""
        self.current_request: HttpRequest | None = None
        self.write_blocked: asyncio.Future[None] | None = None
        self.ignores_input = False
        """Everything that comes is dropped."""
        self.is_closing = False
        """The connection closes after the current response."""
        self.peer = ""
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self.transport.set_write_buffer_limits(WRITE_BUFFER)
        peer = transport.get_extra_info("peername")
        self.peer = peer[0] if isinstance(peer, tuple) else ""
        self.last_activity = self.clock()
        self._server.add_connection(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_closing = self.ignores_input = True
        for request in (self._parser.request, self.current_request, *self.pipelined):
            if request is not None and not request.is_disconnected:
                request.on_disconnect()
        self.pipelined.clear()
        self._unparsed = b""
        self._parser.close()
        self._hold_input()
        self.resume_writing()
        self.current_request = self._cached_head = None
        self._server.remove_connection(self)

    def eof_received(self) -> bool:
        """A client that closes its side has left. One that only stops sending looks the same, but leaving is common,
        and answering a client that has left would cost tokens for nothing."""
        return False

    def pause_writing(self) -> None:
        self.write_blocked = self.loop.create_future()
        self.last_activity = self.clock()
        self._unsent = self.transport.get_write_buffer_size()
        self._server.admission.memory.used += self._unsent

    def resume_writing(self) -> None:
        blocked, self.write_blocked = self.write_blocked, None
        if self._unsent:
            self._server.admission.memory.used -= self._unsent
            self._unsent = 0
        if blocked is not None and not blocked.done():
            blocked.set_result(None)
        if self.current_request is None and not self.is_closing:
            self._start_next_request()

    def data_received(self, data: bytes) -> None:
        if self.ignores_input:
            self._has_late_data = True
            self.last_activity = self.clock()
            return
        parser = self._parser
        is_between_requests = parser.request is None and not parser.is_reading_head
        head = self._cached_head
        if (
            is_between_requests
            and head is not None
            and self.current_request is None
            and self.write_blocked is None
            and not self._unparsed
            and (length := head.match_length(data))
        ):
            headers = head.headers.copy()
            headers["content-length"] = length
            parser.bytes_without_progress = 0
            self.last_activity = self.clock()
            body = data[head.fixed_size + len(length) :]
            self.current_request = HttpRequest(self, head.request_line, headers, head.head_key, body)
            self._server.start_request(self.current_request)
            return
        self._cached_head = None
        if self._is_parsing_later:
            self._unparsed += data
            if len(self._unparsed) > MAX_UNPARSED:
                self.pause_reading()
            self._hold_input()
            return
        self._parse(self._unparsed + data if self._unparsed else data)
        request, parser.new_request = parser.new_request, None
        is_complete = request is not None and parser.request is None and not self.ignores_input
        if is_between_requests and request is not None and is_complete:
            self._cached_head = cache_head(request, data)
        if parser.is_reading_head or self._unparsed or self.held_input:
            self._hold_input()

    def _hold_input(self) -> None:
        """Count a head that has not ended, and input that waits, in the memory budget. Requests with a whole head have
        tickets for theirs."""
        held = len(self._unparsed) + self._parser.held_bytes
        more, self.held_input = held - self.held_input, held
        memory = self._server.admission.memory
        memory.used += more
        if more > 0 and self._parser.is_reading_head and memory.used > memory.request_limit and not self.ignores_input:
            self._queue_error(503, memory_failure().message)

    def _must_wait(self) -> bool:
        """Is there an answer that must be sent before more input is parsed?"""
        if self.current_request is not None:
            return self._parser.request is not self.current_request
        return self.write_blocked is not None

    def _parse(self, data: bytes) -> None:
        """Parse input up to the end of the current request. The rest is kept, and reading stops if it is long. A body
        in many tiny chunks is parsed in several turns of the event loop, so that others get theirs."""
        at, size, parser = 0, len(data), self._parser
        parser.pieces = 0
        while at < size and parser.pieces < MAX_PIECES and not self._must_wait():
            end = parser.feed(data, at)
            if isinstance(end, BadRequest):
                self._queue_error(end.status, str(end))
                return
            at = end
        self._unparsed = data[at:] if at else data
        if parser.pieces >= MAX_PIECES:
            # The loop would otherwise read this connection many times in one turn.
            self.pause_reading()
            self._is_parsing_later = True
            self.loop.call_soon(self._parse_later)
        elif at < size and size - at > MAX_UNPARSED:
            self.pause_reading()

    def _parse_later(self) -> None:
        self._is_parsing_later = False
        if self.ignores_input or self.transport.is_closing():
            return
        if self._unparsed and not self._must_wait():
            data, self._unparsed = self._unparsed, b""
            self._parse(data)
        self._hold_input()
        request = self._parser.request
        is_full = request is not None and request.is_body_full
        if not self._is_parsing_later and len(self._unparsed) <= MAX_UNPARSED and not is_full:
            self.resume_reading()

    def enqueue_request(self, request: HttpRequest) -> None:
        """Start it, or let it wait for the ones before."""
        if self.current_request is None:
            self.current_request = request
            self._server.start_request(request)
        else:
            self.pipelined.append(request)

    # --- requests and responses ---

    def finish_request(self, request: HttpRequest) -> None:
        """The response is written: start the next request, or close the connection."""
        self.last_activity = self.clock()
        self.current_request = None
        if not request.keep_alive or self.ignores_input:
            self._close_after_response()
            return
        is_more_there = self.pipelined or self._unparsed or self.error_response or self.is_reading_paused
        if is_more_there and self.write_blocked is None:
            self._start_next_request()
        if self.is_closing:  # since the head was sent, which does not say so: the client may send one more request
            self._server.close_when_idle(self)

    def _start_next_request(self) -> None:
        """The answer before it is sent, except for what fits into a small buffer."""
        if self.pipelined:
            self.current_request = self.pipelined.popleft()
            self._server.start_request(self.current_request)
        if self._unparsed and not self._must_wait():
            data, self._unparsed = self._unparsed, b""
            self._parse(data)
            self._hold_input()
        if self.is_closing:
            return
        if self.current_request is None and self.error_response:
            self._send_error()
        elif self.is_reading_paused and len(self._unparsed) <= MAX_UNPARSED:
            self.resume_reading()

    def resume_reading(self) -> None:
        if self.is_reading_paused and not self.transport.is_closing():
            self.is_reading_paused = False
            self.transport.resume_reading()

    def pause_reading(self) -> None:
        if not self.is_reading_paused and not self.transport.is_closing():
            self.is_reading_paused = True
            self.transport.pause_reading()

    def _queue_error(self, status: int, message: str) -> None:
        """Answer an invalid request in its turn, and ignore all input after it."""
        body = f"{message}\n".encode("utf-8", "replace")
        head = f"{STATUS_LINES[status]}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {len(body)}\r\n"
        if status == 503:
            head += f"retry-after: {RETRY_AFTER:g}\r\n"
        self.error_response = f"{head}connection: close\r\n\r\n".encode() + body
        self.ignores_input, self._unparsed = True, b""
        request = self._parser.request
        self._parser.drop_input()
        self._hold_input()
        if request is not None and request is not self.current_request:
            self.pipelined.pop()
        elif request is not None:
            # Its body will never be complete: for the task that waits for it, the client has left.
            self.current_request = None
            request.on_disconnect()
            if request.has_started_response:
                self.transport.abort()
                return
        if self.current_request is None:
            self._send_error()

    def _send_error(self) -> None:
        self.transport.write(self.error_response)
        self._close_after_response()

    def _close_after_response(self) -> None:
        """Close after the last response. Closing a socket while its client still sends causes a reset, and the response
        may be lost: so first only our side is closed, and input is dropped for a while."""
        parser = self._parser
        is_reading = self.is_reading_paused or parser.is_reading_head or parser.request is not None
        has_input = self._has_late_data or is_reading or self.pipelined or self._unparsed or self.error_response
        self.is_closing = self.ignores_input = True
        self.pipelined.clear()
        self._unparsed = b""
        self._hold_input()
        parser.request = None
        if not has_input:
            self.transport.close()
        elif not self.transport.is_closing():
            self.last_activity = self.clock()
            self._linger_until = self.last_activity + LINGER_SECONDS
            self.transport.write_eof()
            self.resume_reading()

    def close_if_stalled(self, now: float, idle_seconds: float) -> None:
        """Close the connection if the client has done nothing, or too little, for too long."""
        elapsed = self.body_rate.start_sweep(now)
        unread = self.transport.get_write_buffer_size()
        if unread != self._unread_bytes:
            self._unread_bytes, self.last_activity = unread, now
        age = now - self.last_activity
        if unread:
            if age > UNREAD_SECONDS:
                self.transport.abort()
        elif self._linger_until:
            if now > self._linger_until or age > LINGER_SILENCE_SECONDS:
                self.transport.abort()
        elif self._is_request_stalled():
            size = self.current_request.body_size if self.current_request is not None else 0
            if max(age, self.body_rate.measure_slowness(elapsed, size)) > REQUEST_SECONDS:
                self._queue_error(408, f"the rest of the request did not come in {REQUEST_SECONDS:g} seconds")
        elif self.current_request is None and age > (CROWDED_IDLE_SECONDS if self.is_excess else idle_seconds):
            self.transport.close()

    def _is_request_stalled(self) -> bool:
        """Is the client in the middle of the current request?"""
        request = self.current_request
        if request is None:
            return self._parser.is_reading_head
        return request is self._parser.request and not request.has_started_response and not self.is_reading_paused

    def stop_accepting(self, idle_seconds: float, turns: int = TURNS_TO_READ) -> None:
        """Close the connection if it is idle. Otherwise, or if a request comes in time, that is answered first."""
        self.is_closing = True
        if self.current_request is not None or self._parser.is_reading_head or self._linger_until:
            return
        wait = self.last_activity + idle_seconds - self.clock()
        if wait > 0:
            self.loop.call_later(wait, self.stop_accepting, idle_seconds)
        elif turns:  # uvloop runs timers before it reads: what has arrived on a busy machine is read first
            self.loop.call_soon(self.stop_accepting, idle_seconds, turns - 1)
        else:
            self.transport.close()
