"""`ClientRequest`: a client's HTTP request and its response. `AsgiRequest` comes from an ASGI server, `HttpRequest`
from the gateway's own."""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from functools import partial
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import unquote

from msgspec import Struct

from toolwire.core.bounded_dict import BoundedDict
from toolwire.core.ir import EMPTY_MAPPING, Failure
from toolwire.gateway.http.admission import Ticket, memory_failure
from toolwire.gateway.http.body_rate import BodyRate
from toolwire.gateway.http.decompression import body_too_large, decompress_body
from toolwire.gateway.http.headers import REQUEST_ID_HEADER, SharedHeaders
from toolwire.gateway.http.large_work import run_by_size
from toolwire.gateway.http.messages import HeadKey, Reply
from toolwire.gateway.http.request_target import RequestTarget, read_path
from toolwire.gateway.http.write_queue import Write, WriteQueue

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
"""The ASGI standard leaves the values untyped."""


class ClientDisconnected(Exception):
    """The client left before its request was complete."""


class ClientRequest(ABC):
    """The interface between the gateway and a server: a request that is read, and answered once."""

    __slots__ = (
        "__weakref__", "bytes_sent", "clock", "head_key", "headers", "is_disconnected", "is_refused", "loop",
        "method", "path", "peer", "query", "target_problem", "ticket",
    )  # fmt: skip

    method: str
    path: str
    """In its one spelling (`request_target`), without escapes."""
    target_problem: str
    """Why the target must be refused; "" if it need not be."""
    query: str
    headers: dict[str, str]
    """Names are in lower case."""
    head_key: HeadKey
    """Shared by requests with the same head."""
    peer: str
    bytes_sent: int
    loop: asyncio.AbstractEventLoop
    clock: Callable[[], float]
    is_disconnected: bool
    is_refused: bool
    """Came on a connection beyond the limit."""
    ticket: Ticket | None
    """Its place among the requests in flight, and its share of the memory budget; set by the application."""

    def buffered_body(self, limit: int) -> bytes | None:
        """The body, if it is complete and not compressed; else None: `read_body` gives it."""
        return None

    async def read_body(self, limit: int) -> bytes | Failure:
        """The whole body, decompressed. Raises ClientDisconnected if the client leaves before its end."""
        length, ticket = self.headers.get("content-length", ""), self.ticket
        size = int(length) if length.isdigit() else 0
        if size > limit:
            return body_too_large(limit)
        refused = ticket.check_early(size) if ticket is not None else None
        data = refused or await self.read_raw_body(limit)
        if data is None:
            return body_too_large(limit)
        encoding = self.headers.get("content-encoding")
        if encoding and isinstance(data, bytes):
            data = await run_by_size(limit, partial(decompress_body, data, encoding, limit))
        if isinstance(data, Failure) or ticket is None:
            return data
        return await ticket.enter(data, self.cancel_when_left) or data

    async def send_reply(
        self, reply: Reply, request_id: str = "", id_header: str = "", extra_headers: Mapping[str, str] = EMPTY_MAPPING
    ) -> None:
        """Send a whole answer. The id goes into `x-request-id` and into the protocol's own header; `extra_headers` win
        over those of the reply."""
        headers = {**reply.headers, **extra_headers}
        if request_id:
            headers[REQUEST_ID_HEADER] = headers[id_header] = request_id
        await self.start_response(reply.status, {**headers, "content-length": str(len(reply.body))})
        await self.send_body(reply.body, more=False)

    @abstractmethod
    async def read_raw_body(self, limit: int) -> bytes | Failure | None:
        """The body as it came; None if it is longer than the limit, and a failure if there is no memory for it."""

    @abstractmethod
    async def start_response(self, status: int, headers: Mapping[str, str]) -> None: ...

    @abstractmethod
    async def send_body(self, data: bytes, more: bool) -> None:
        """Send more of the body, or the last of it. Does nothing if the client has left."""

    @abstractmethod
    def write_nowait(self, data: bytes) -> bool:
        """Write more of the body at once. False: call `drain` before the next write."""

    @abstractmethod
    async def drain(self) -> None: ...

    @abstractmethod
    def abort(self) -> None:
        """Close the connection, so that the client sees that the answer is incomplete."""

    @abstractmethod
    def watch_disconnect(self, cancel_task: bool) -> None:
        """From now on notice when the client leaves. With `cancel_task`, cancel the task that answers it then."""

    @abstractmethod
    def cancel_when_left(self, active: bool) -> None:
        """While the request waits in the queue: cancel its task if the client leaves, where that can be noticed."""


class AsgiRequest(ClientRequest):
    WATCH_DELAY = 0.02
    """Seconds. Most answers come at once, so watching for a disconnect begins only then."""

    __slots__ = ("_receive", "_send", "_unsent", "_watch_task", "_watch_timer")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.method = scope["method"]
        target = read_path(_read_asgi_path(scope), scope.get("query_string", b"").decode("latin-1"))
        self.path, self.query, self.target_problem = target.path, target.query, target.problem
        self.headers = join_headers((str(name, "latin-1"), str(value, "latin-1")) for name, value in scope["headers"])
        self.head_key = HeadKey()
        self.peer = (scope.get("client") or ("",))[0]
        self.bytes_sent, self.is_disconnected, self.is_refused = 0, False, False
        self.ticket = None
        self.loop = asyncio.get_running_loop()
        self.clock = self.loop.time
        self._receive, self._send = receive, send
        self._unsent: list[bytes] = []
        self._watch_timer: asyncio.TimerHandle | None = None
        self._watch_task: asyncio.Task[None] | None = None

    async def read_raw_body(self, limit: int) -> bytes | Failure | None:
        pieces: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnected
            pieces.append(message.get("body", b""))
            size += len(pieces[-1])
            if size > limit:
                return None
            if self.ticket is not None and not self.ticket.hold(size):
                return memory_failure()
            if not message.get("more_body"):
                return b"".join(pieces)

    async def start_response(self, status: int, headers: Mapping[str, str]) -> None:
        listed = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": listed})

    async def send_body(self, data: bytes, more: bool) -> None:
        self.bytes_sent += len(data)
        body = b"" if self.method == "HEAD" else data
        await self._send({"type": "http.response.body", "body": body, "more_body": more})

    def write_nowait(self, data: bytes) -> bool:
        if data:
            self._unsent.append(data)
        return not data

    async def drain(self) -> None:
        unsent, self._unsent = self._unsent, []
        if unsent:
            await self.send_body(b"".join(unsent), more=True)

    def abort(self) -> None:
        """The ASGI server closes the connection if the application returns before the end of its answer."""

    def watch_disconnect(self, cancel_task: bool) -> None:
        self.stop_watching()
        task = asyncio.current_task() if cancel_task else None

        def start_watching() -> None:
            self._watch_task = self.loop.create_task(self._wait_for_disconnect(task))

        self._watch_timer = self.loop.call_later(self.WATCH_DELAY, start_watching)

    def cancel_when_left(self, active: bool) -> None:
        """The queue's time limit is enough."""

    def stop_watching(self) -> None:
        if self._watch_timer is not None:
            self._watch_timer.cancel()
        if self._watch_task is not None:
            self._watch_task.cancel()

    async def _wait_for_disconnect(self, task: asyncio.Task[Any] | None) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.is_disconnected = True
        if task is not None:
            task.cancel()


def _read_asgi_path(scope: Scope) -> str:
    """The path with its escapes, unless an outer application has cut off a part of `path`."""
    path: str = scope["path"]
    raw = (scope.get("raw_path") or b"").decode("latin-1").partition("?")[0]
    return (raw if "%" in raw and unquote(raw) == path else path).removeprefix(scope.get("root_path") or "")


def join_headers(rows: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Headers by name. Repeated headers are joined with commas, as in RFC 9110."""
    headers: dict[str, str] = {}
    for name, text in rows:
        headers[name] = f"{headers[name]}, {text}" if name in headers else text
    return headers


MAX_BUFFERED = 128 * 1024
"""Bytes of a body that are read ahead. After that, reading stops until the gateway asks for the body."""
BODY_STEP = 1024 * 1024
"""Memory for a body is reserved in steps of this size, as the body comes."""
SMALL_PIECE = 1024
"""Pieces of a body up to this size are collected in one buffer: each object costs more than a few bytes."""
MAX_JOINED_BODY = 64 * 1024
"""A body up to this size is joined with its head, for one write."""
LARGE_CHUNK = 4 * 1024
"""After a larger piece the writer must wait until it is known whether the client takes it."""
BODILESS_STATUSES = (204, 304)
CONTINUE_RESPONSE = b"HTTP/1.1 100 Continue\r\n\r\n"
STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}" for status in HTTPStatus}

_NON_TOKEN_CHARACTER = re.compile(r"[^!#$%&'*+.^_`|~0-9A-Za-z-]")
_CONTROL_CHARACTER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_LINGER_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER of zero seconds: closing the socket sends a reset."""
_chunk_heads: dict[int, bytes] = {}
"""The line before a chunk, by its size, except for large ones."""
_head_templates: dict[tuple[int | str, ...], str] = BoundedDict(256)
"""Response heads without their values, by status and header names: providers send the same names again and again."""
_MAX_TEMPLATE_LENGTH = 2048


class RequestLine(Struct, frozen=True):
    method: str
    target: RequestTarget
    keep_alive: bool
    """Another request may follow on the connection."""
    is_http_1_0: bool


class RequestConnection(Protocol):
    """What a request, and the parser of its head, use of their connection."""

    peer: str
    loop: asyncio.AbstractEventLoop
    clock: Callable[[], float]
    transport: asyncio.Transport
    write_queue: WriteQueue
    write_blocked: asyncio.Future[None] | None
    body_rate: BodyRate
    last_activity: float
    is_excess: bool
    is_closing: bool

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def enqueue_request(self, request: HttpRequest) -> None: ...
    def finish_request(self, request: HttpRequest) -> None: ...


class HttpRequest(ClientRequest):
    """One request on a connection. Its response is sent at the end of an iteration of the event loop, together with
    others: a peer on the same machine that is woken for each one would take the processor in between."""

    __slots__ = (
        "_body_limit", "_cancel_on_disconnect", "_chunk_writer", "_connection", "_content_length", "_has_large_write",
        "_has_no_body", "_is_body_complete", "_is_chunked", "_is_http_1_0", "_pending_head", "_pieces", "_waiter",
        "body_size", "expects_continue", "has_ended_response", "has_started_response", "keep_alive", "task",
    )  # fmt: skip

    task: asyncio.Task[None]
    """Set when it is the request's turn."""
    _has_no_body: bool
    """The response has no body, whatever is written (HEAD, 204, 304)."""
    _is_chunked: bool
    _content_length: str | None
    _pending_head: bytes
    """Sent with the first piece of the body."""
    _has_large_write: bool
    _chunk_writer: Write | None
    """Set while a chunked response is being sent."""

    def __init__(
        self,
        connection: RequestConnection,
        request_line: RequestLine,
        headers: dict[str, str],
        head_key: HeadKey,
        body: bytes | None = None,
    ) -> None:
        """`body` is given if it is complete already."""
        self._connection = connection
        target = request_line.target
        self.method, self.path, self.query = request_line.method, target.path, target.query
        self.target_problem = target.problem
        self.keep_alive = request_line.keep_alive and not connection.is_excess
        self._is_http_1_0 = request_line.is_http_1_0
        self.headers, self.head_key = headers, head_key
        self.peer, self.loop, self.clock = connection.peer, connection.loop, connection.clock
        self.bytes_sent = 0
        self.ticket = None
        self.is_refused = connection.is_excess
        self.is_disconnected = self.has_started_response = False
        self.expects_continue = False
        """The client waits for `100 Continue` before it sends its body."""
        self.has_ended_response = False
        """The end of the response was written, or the response was aborted."""
        self._cancel_on_disconnect: asyncio.Task[None] | None = None
        self._is_body_complete = body is not None
        self._pieces: list[bytes | bytearray] = [body] if body else []
        self.body_size = len(body) if body else 0
        """Bytes of the body that have come."""
        self._body_limit = MAX_BUFFERED
        self._waiter: asyncio.Future[None] | None = None

    # --- the request body ---

    @property
    def is_body_full(self) -> bool:
        """Has more come than is wanted for now?"""
        return self.body_size > self._body_limit

    def add_body(self, data: bytes) -> bool:
        """More of the body. False: stop reading for now."""
        pieces = self._pieces
        if not pieces or len(data) > SMALL_PIECE:
            pieces.append(data)
        elif isinstance(last := pieces[-1], bytearray):
            last += data
        else:
            pieces.append(bytearray(data))
        self.body_size += len(data)
        if self.body_size <= self._body_limit:
            return True
        self._wake()
        return False

    def end_body(self) -> None:
        self._is_body_complete = True
        self._wake()

    def on_disconnect(self) -> None:
        self.is_disconnected = True
        self._chunk_writer = None
        self._connection.write_queue.discard(self._connection.transport.write)
        self._wake()
        if self._cancel_on_disconnect is not None:
            self._cancel_on_disconnect.cancel()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def buffered_body(self, limit: int) -> bytes | None:
        if self._is_body_complete and self.body_size <= limit and "content-encoding" not in self.headers:
            body = b"".join(self._pieces)
            if self.ticket is None or self.ticket.try_enter(body):
                return body
        return None

    async def read_raw_body(self, limit: int) -> bytes | Failure | None:
        has_begun = self.body_size or self._is_body_complete or self.has_started_response or self.is_disconnected
        if self.expects_continue and not has_begun:
            self._connection.transport.write(CONTINUE_RESPONSE)
        self.expects_continue = False
        while not self._is_body_complete and self.body_size <= limit:
            if self.is_disconnected:
                raise ClientDisconnected
            length = self.headers.get("content-length", "")
            self._body_limit = min(limit, self.body_size + BODY_STEP, int(length) if length.isdigit() else limit)
            if self.ticket is not None and not self.ticket.hold(self._body_limit):
                return memory_failure()
            self._connection.resume_reading()
            self._waiter = self._connection.loop.create_future()
            await self._waiter
        return b"".join(self._pieces) if self.body_size <= limit else None

    # --- the response ---

    async def start_response(self, status: int, headers: Mapping[str, str]) -> None:
        length = headers.get("content-length")
        has_no_body = status in BODILESS_STATUSES
        if has_no_body and length is not None:
            headers, length = {name: value for name, value in headers.items() if name != "content-length"}, None
        has_no_length = length is None and not has_no_body
        self._chunk_writer, self._has_large_write = None, False
        self._content_length = length
        self._has_no_body = has_no_body or self.method == "HEAD"
        self._is_chunked = has_no_length and not self._is_http_1_0
        if has_no_length and self._is_http_1_0:
            self.keep_alive = False
        extra_lines = "transfer-encoding: chunked\r\n" if self._is_chunked else ""
        self._pending_head = self._write_head(status, headers, extra_lines)

    def _write_head(self, status: int, headers: Mapping[str, str], extra_lines: str) -> bytes:
        values = tuple(headers.values())
        template = _head_templates.get((status, *headers)) or _make_head_template(status, tuple(headers))
        if not template or _has_line_break("".join(values)):
            return self._write_head(status, _sanitise_headers(headers), extra_lines)
        if not self._is_body_complete or self._connection.is_closing:
            self.keep_alive = False
        if not self.keep_alive:
            extra_lines += "connection: close\r\n"
        elif self._is_http_1_0:
            extra_lines += "connection: keep-alive\r\n"
        return f"{template % values}{extra_lines}\r\n".encode("latin-1", "replace")

    async def send_reply(
        self, reply: Reply, request_id: str = "", id_header: str = "", extra_headers: Mapping[str, str] = EMPTY_MAPPING
    ) -> None:
        if self.is_disconnected or self.has_ended_response or self.has_started_response:
            return
        status, body = reply.status, reply.body
        if status in BODILESS_STATUSES:
            await super().send_reply(reply, request_id, id_header, extra_headers)
            return
        shared, line = reply.headers, STATUS_LINES.get(status)
        keeps_open = self.keep_alive and self._is_body_complete and not self._connection.is_closing
        is_common = keeps_open and line is not None and not extra_headers and request_id and not self._is_http_1_0
        if not is_common or type(shared) is not SharedHeaders:
            headers = {**reply.headers, **extra_headers}
            if request_id:
                headers[REQUEST_ID_HEADER] = headers[id_header] = request_id
            headers["content-length"] = str(len(body))
            head = self._write_head(status, headers, "")
        else:
            second_id = "" if id_header == REQUEST_ID_HEADER else f"{id_header}: {request_id}\r\n"
            start = f"{line}\r\n{shared.lines}{REQUEST_ID_HEADER}: {request_id}\r\n"
            head = f"{start}{second_id}content-length: {len(body)}\r\n\r\n".encode()
        self.bytes_sent += len(body)
        self._end_response(head, b"" if self.method == "HEAD" else body)

    async def send_body(self, data: bytes, more: bool) -> None:
        if more:
            self.write_nowait(data)
            await self.drain()
        else:
            self._write_body(data, False)

    def write_nowait(self, data: bytes) -> bool:
        size = len(data)
        head = _chunk_heads.get(size)
        write = self._chunk_writer
        if head is None or write is None:
            return self._write_uncommon(data)
        connection = self._connection
        self.bytes_sent += size
        queue = connection.write_queue
        pending = queue.pending
        if not pending:  # as in `WriteQueue.add`, which would be one more call for each piece of a stream
            queue.flush_soon()
        pending.append((write, head + data + b"\r\n"))
        return connection.write_blocked is None

    def _write_uncommon(self, data: bytes) -> bool:
        if data:
            self._write_body(data, True)
        if len(data) > LARGE_CHUNK:
            self._has_large_write = True
            return False
        return self._connection.write_blocked is None

    async def drain(self) -> None:
        if self._has_large_write:
            self._has_large_write = False
            await asyncio.sleep(0)  # the queue is flushed meanwhile
        while (blocked := self._connection.write_blocked) is not None:
            # Several tasks may wait for it: cancelling one must not cancel the future.
            await asyncio.shield(blocked)

    def _write_body(self, data: bytes, more: bool) -> None:
        if self.is_disconnected or self.has_ended_response:
            return
        self.bytes_sent += len(data)
        if self._has_no_body:
            data = b""
        elif self._is_chunked:
            data = _write_chunk(data) if data else b""
            data = data if more else data + b"0\r\n\r\n"
        head, self._pending_head, self.has_started_response = self._pending_head, b"", True
        if not more and (self._has_no_body or self._content_length in (None, str(self.bytes_sent))):
            self._end_response(head, data)
            return
        self._connection.write_queue.add(self._write_if_connected, head + data)
        if not more:
            self.abort()  # else the client would take the next response for the rest of this one
        elif self._is_chunked and not self._has_no_body:
            self._chunk_writer = self._connection.transport.write

    def _end_response(self, head: bytes, body: bytes) -> None:
        self.has_started_response = self.has_ended_response = True
        self._chunk_writer = None
        queue = self._connection.write_queue
        if head and len(body) > MAX_JOINED_BODY:
            queue.add(self._write_if_connected, head)
            head = b""
        queue.add(self._write_last, head + body)

    def _write_if_connected(self, data: bytes) -> None:
        if not self.is_disconnected:
            self._connection.transport.write(data)

    def _write_last(self, data: bytes) -> None:
        if not self.is_disconnected:
            self._connection.transport.write(data)
            self._connection.finish_request(self)

    def abort(self) -> None:
        if not self.has_ended_response:
            self.has_ended_response = True
            self._chunk_writer = None
            self._connection.write_queue.add(self._reset_connection, b"")

    def _reset_connection(self, data: bytes) -> None:
        """Close the connection after what was written so far."""
        transport = self._connection.transport
        connected = transport.get_extra_info("socket")
        if self._is_http_1_0 and connected is not None and not transport.is_closing():
            # In HTTP/1.0 a response without a length ends when the connection closes: only a reset tells the client.
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_RESET)
        transport.abort()

    def cancel_when_left(self, active: bool) -> None:
        self.watch_disconnect(active)

    def watch_disconnect(self, cancel_task: bool) -> None:
        self._cancel_on_disconnect = self.task if cancel_task else None
        if self.is_disconnected and self._cancel_on_disconnect is not None:
            self._cancel_on_disconnect.cancel()


def _write_chunk(data: bytes) -> bytes:
    size = len(data)
    head = _chunk_heads.get(size) or b"%x\r\n" % size
    if size <= LARGE_CHUNK:
        _chunk_heads[size] = head
    return head + data + b"\r\n"


def _make_head_template(status: int, names: tuple[str, ...]) -> str:
    """A head with placeholders for the values; "" if a name would break it."""
    if _has_line_break("".join(names)):
        return ""
    lines = [STATUS_LINES.get(status) or f"HTTP/1.1 {status} "]
    lines += [f"{name.replace('%', '%%')}: %s" for name in names]
    template = "\r\n".join([*lines, ""])
    if len(template) <= _MAX_TEMPLATE_LENGTH:
        _head_templates[status, *names] = template
    return template


def _has_line_break(text: str) -> bool:
    return "\n" in text or "\r" in text or "\0" in text


def _sanitise_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers without line breaks and invalid names, which could end the head."""
    return {
        name: _CONTROL_CHARACTER.sub(" ", value)
        for name, value in headers.items()
        if name and not _NON_TOKEN_CHARACTER.search(name)
    }
