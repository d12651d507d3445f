"""A request as the server hands it over: looked at once, and answered."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from toolwire.gateway.bodies import too_large, unpacked
from toolwire.gateway.call import Reply
from toolwire.gateway.relay import Send
from toolwire.ir import Failure

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
"""The standard leaves these untyped."""

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}")


class Gone(Exception):
    """The client has left."""


class Incoming:
    __slots__ = ("headers", "method", "path", "peer", "query", "receive", "send", "sent")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.method: str = scope["method"]
        root: str = scope.get("root_path", "")
        path: str = scope["path"]
        self.path = path[len(root) :] if root and path.startswith(root) else path
        self.query: str = scope.get("query_string", b"").decode("latin-1")
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        peer = scope.get("client")
        self.peer: str = peer[0] if peer else ""
        self.receive = receive
        self.send = send
        self.sent = 0

    def request_id(self, own: Callable[[], str]) -> str:
        """The client's own id where it is a decent one."""
        given = self.headers.get("x-request-id", "")
        return given if given and _ID.fullmatch(given) else own()

    async def body(self, limit: int) -> bytes | Failure:
        """The whole body, unpacked. Raises Gone when the client leaves before its end."""
        length = self.headers.get("content-length", "")
        if length.isdigit() and int(length) > limit:
            return too_large(limit)
        message = await self.receive()
        data: bytes = message.get("body", b"")
        if message.get("more_body"):
            pieces, size = [data], len(data)
            while message.get("more_body"):
                message = await self.receive()
                pieces.append(message.get("body", b""))
                size += len(pieces[-1])
                if size > limit:
                    return too_large(limit)
            data = b"".join(pieces)
        if message["type"] == "http.disconnect":
            raise Gone
        encoding = self.headers.get("content-encoding")
        return unpacked(data, encoding, limit) if encoding else data

    async def start(self, status: int, headers: Mapping[str, str]) -> None:
        listed = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await self.send({"type": "http.response.start", "status": status, "headers": listed})

    async def answer(self, reply: Reply, more: Mapping[str, str]) -> None:
        """A whole answer; `more` are headers of our own, which win."""
        self.sent = len(reply.body)
        await self.start(reply.status, {**reply.headers, **more, "content-length": str(len(reply.body))})
        await self.send({"type": "http.response.body", "body": b"" if self.method == "HEAD" else reply.body})


class Watch:
    """Knows when the client leaves, and then cancels what is done for it.

    Most answers come at once, so watching begins only after a moment: a client that left before is noticed then.
    """

    MOMENT = 0.02

    __slots__ = ("_cancels", "_receive", "_started", "_task", "_watching", "gone")

    def __init__(self, receive: Receive, cancels: bool) -> None:
        self._receive = receive
        self._cancels = cancels
        self._task = asyncio.current_task()
        self._watching: asyncio.Task[None] | None = None
        self._started: asyncio.TimerHandle | None = asyncio.get_running_loop().call_later(self.MOMENT, self._start)
        self.gone = False

    def _start(self) -> None:
        self._watching = asyncio.get_running_loop().create_task(self._wait())

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        if self._cancels and self._task is not None:
            self._task.cancel()

    def stop(self) -> None:
        if self._started is not None:
            self._started.cancel()
        if self._watching is not None:
            self._watching.cancel()
