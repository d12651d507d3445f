"""`ClientRequest`: a client's HTTP request and its response, whichever server received it. `AsgiRequest` is the one
from an ASGI server."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any
from urllib.parse import unquote

from toolwire.core.ir import EMPTY_MAPPING, Failure
from toolwire.gateway.pipeline.gateway_request import Reply, ResolvedHeads
from toolwire.gateway.pipeline.headers import REQUEST_ID_HEADER
from toolwire.gateway.server.request_body import body_too_large, decompress_body

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
"""The ASGI standard leaves the values untyped."""


class ClientDisconnected(Exception):
    """The client left before its request was complete."""


class ClientRequest(ABC):
    """The interface between the gateway and a server: a request that is read, and answered once."""

    __slots__ = (
        "bytes_sent",
        "clock",
        "headers",
        "is_disconnected",
        "loop",
        "method",
        "path",
        "peer",
        "query",
        "resolved_heads",
    )

    method: str
    path: str
    """As it came, with its escapes."""
    query: str
    headers: dict[str, str]
    """Names are in lower case."""
    resolved_heads: ResolvedHeads
    """Shared by requests with the same head."""
    peer: str
    bytes_sent: int
    loop: asyncio.AbstractEventLoop
    clock: Callable[[], float]
    """The clock of the event loop."""
    is_disconnected: bool
    """The client has left."""

    def buffered_body(self, limit: int) -> bytes | None:
        """The body, if it is complete and not compressed; else None: `read_body` gives it."""
        return None

    async def read_body(self, limit: int) -> bytes | Failure:
        """The whole body, decompressed. Raises ClientDisconnected if the client leaves before its end."""
        length = self.headers.get("content-length", "")
        if length.isdigit() and int(length) > limit:
            return body_too_large(limit)
        data = await self.read_raw_body(limit)
        if data is None:
            return body_too_large(limit)
        encoding = self.headers.get("content-encoding")
        return decompress_body(data, encoding, limit) if encoding else data

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
    async def read_raw_body(self, limit: int) -> bytes | None:
        """The body as it came; None if it is longer than the limit."""

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


class AsgiRequest(ClientRequest):
    """A request through an ASGI server.

    Most answers come at once, so watching for a disconnect begins only after a short delay.
    """

    WATCH_DELAY = 0.02

    __slots__ = ("_receive", "_send", "_unsent", "_watch_task", "_watch_timer")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.method = scope["method"]
        root: str = scope.get("root_path", "")
        path = _raw_path(scope["path"], scope.get("raw_path"))
        self.path = path[len(root) :] if root and path.startswith(root) else path
        self.query = scope.get("query_string", b"").decode("latin-1")
        self.headers = join_headers(
            (name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]
        )
        self.resolved_heads = {}
        peer = scope.get("client")
        self.peer = peer[0] if peer else ""
        self.bytes_sent = 0
        self.is_disconnected = False
        self.loop = asyncio.get_running_loop()
        self.clock = self.loop.time
        self._receive = receive
        self._send = send
        self._unsent: list[bytes] = []
        self._watch_timer: asyncio.TimerHandle | None = None
        self._watch_task: asyncio.Task[None] | None = None

    async def read_raw_body(self, limit: int) -> bytes | None:
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
        self._watch_timer = self.loop.call_later(self.WATCH_DELAY, self._start_watching, task)

    def stop_watching(self) -> None:
        if self._watch_timer is not None:
            self._watch_timer.cancel()
        if self._watch_task is not None:
            self._watch_task.cancel()

    def _start_watching(self, task: asyncio.Task[Any] | None) -> None:
        self._watch_task = self.loop.create_task(self._wait_for_disconnect(task))

    async def _wait_for_disconnect(self, task: asyncio.Task[Any] | None) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.is_disconnected = True
        if task is not None:
            task.cancel()


def _raw_path(path: str, raw: bytes | None) -> str:
    """The path with its escapes, unless an outer application has cut off a part of `path`."""
    if raw is None or b"%" not in raw:
        return path
    text = raw.decode("latin-1").partition("?")[0]
    return text if unquote(text) == path else path


def join_headers(rows: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Headers by name. Repeated headers are joined with commas, as in RFC 9110."""
    headers: dict[str, str] = {}
    for name, text in rows:
        headers[name] = f"{headers[name]}, {text}" if name in headers else text
    return headers
