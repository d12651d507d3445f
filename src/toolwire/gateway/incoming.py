"""A request to the gateway, looked at once and answered once; and how it comes in through an ASGI server."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any
from urllib.parse import unquote

from toolwire.gateway.bodies import too_large, unpacked
from toolwire.gateway.call import Reply
from toolwire.gateway.known import Memory
from toolwire.ir import Failure

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
"""The standard leaves these untyped."""


class Gone(Exception):
    """The client left before its request was whole."""


class Incoming(ABC):
    """What the gateway asks of a request, whichever server it came through."""

    __slots__ = ("clock", "gone", "headers", "loop", "memory", "method", "path", "peer", "query", "sent")

    method: str
    path: str
    """As it came, escapes and all."""
    query: str
    headers: dict[str, str]
    """Names in lower case."""
    memory: Memory
    """Requests with the same head have it in common."""
    peer: str
    sent: int
    loop: asyncio.AbstractEventLoop
    clock: Callable[[], float]
    """The event loop's."""
    gone: bool
    """Has the client left?"""

    def whole(self, limit: int) -> bytes | None:
        """The body, where all of it is there as it was meant; else `body` is to be asked."""
        return None

    async def body(self, limit: int) -> bytes | Failure:
        """The whole body, unpacked. Raises Gone when the client leaves before its end."""
        length = self.headers.get("content-length", "")
        if length.isdigit() and int(length) > limit:
            return too_large(limit)
        data = await self.read(limit)
        if data is None:
            return too_large(limit)
        encoding = self.headers.get("content-encoding")
        return unpacked(data, encoding, limit) if encoding else data

    def tell(self, reply: Reply, request_id: str, name: str, more: Mapping[str, str]) -> bool:
        """Give a whole answer at once, with the request's id under this name, too; False where that cannot be: then
        `answer` does it."""
        return False

    async def answer(self, reply: Reply, more: Mapping[str, str]) -> None:
        """A whole answer; `more` are headers of our own, which win."""
        await self.start(reply.status, {**reply.headers, **more, "content-length": str(len(reply.body))})
        await self.write(reply.body, more=False)

    @abstractmethod
    async def read(self, limit: int) -> bytes | None:
        """The body as it came; None when it is longer than that."""

    @abstractmethod
    async def start(self, status: int, headers: Mapping[str, str]) -> None: ...

    @abstractmethod
    async def write(self, data: bytes, more: bool) -> None:
        """More of the answer, or the last of it. Nothing happens when the client has left."""

    @abstractmethod
    def put(self, data: bytes) -> bool:
        """More of the answer, at once, if it is anything; False when nothing more should come before `drained`."""

    @abstractmethod
    async def drained(self) -> None: ...

    @abstractmethod
    def abort(self) -> None:
        """The answer will have no end, and the client must see that."""

    @abstractmethod
    def watch(self, cancels: bool) -> None:
        """From now on notice when the client leaves, and then cancel the task that answers it, if so wanted."""


class Asgi(Incoming):
    """A request through an ASGI server.

    Most answers come at once, so watching begins only after a moment: a client that left before is noticed then.
    """

    MOMENT = 0.02

    __slots__ = ("_held", "_receive", "_send", "_started", "_watching")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.method = scope["method"]
        root: str = scope.get("root_path", "")
        path = _as_it_came(scope["path"], scope.get("raw_path"))
        self.path = path[len(root) :] if root and path.startswith(root) else path
        self.query = scope.get("query_string", b"").decode("latin-1")
        self.headers = joined((name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"])
        self.memory = {}
        peer = scope.get("client")
        self.peer = peer[0] if peer else ""
        self.sent = 0
        self.gone = False
        self.loop = asyncio.get_running_loop()
        self.clock = self.loop.time
        self._receive = receive
        self._send = send
        self._held: list[bytes] = []
        self._started: asyncio.TimerHandle | None = None
        self._watching: asyncio.Task[None] | None = None

    async def read(self, limit: int) -> bytes | None:
        pieces: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise Gone
            pieces.append(message.get("body", b""))
            size += len(pieces[-1])
            if size > limit:
                return None
            if not message.get("more_body"):
                return b"".join(pieces)

    async def start(self, status: int, headers: Mapping[str, str]) -> None:
        listed = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": listed})

    async def write(self, data: bytes, more: bool) -> None:
        self.sent += len(data)
        shown = b"" if self.method == "HEAD" else data
        await self._send({"type": "http.response.body", "body": shown, "more_body": more})

    def put(self, data: bytes) -> bool:
        if data:
            self._held.append(data)
        return not data

    async def drained(self) -> None:
        held, self._held = self._held, []
        if held:
            await self.write(b"".join(held), more=True)

    def abort(self) -> None:
        """A server closes the connection of an application that returns before its answer's end."""

    def watch(self, cancels: bool) -> None:
        self.unwatch()
        task = asyncio.current_task() if cancels else None
        self._started = self.loop.call_later(self.MOMENT, self._look, task)

    def unwatch(self) -> None:
        if self._started is not None:
            self._started.cancel()
        if self._watching is not None:
            self._watching.cancel()

    def _look(self, task: asyncio.Task[Any] | None) -> None:
        self._watching = self.loop.create_task(self._wait(task))

    async def _wait(self, task: asyncio.Task[Any] | None) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        if task is not None:
            task.cancel()


def _as_it_came(path: str, raw: bytes | None) -> str:
    """The path with its escapes, unless an application around this one has cut something off the other."""
    if raw is None or b"%" not in raw:
        return path
    text = raw.decode("latin-1").partition("?")[0]
    return text if unquote(text) == path else path


def joined(rows: Iterable[tuple[str, str]]) -> dict[str, str]:
    """By name; what stands in several rows is one list, as the standard says."""
    headers: dict[str, str] = {}
    for name, text in rows:
        headers[name] = f"{headers[name]}, {text}" if name in headers else text
    return headers
