"""The gateway's own server: HTTP/1.1 on httptools, and a task for every request.

docs/decisions/0011 says what it saves. It knows nothing of protocols and keeps to what a gateway needs: kept-alive
connections, requests one after the other, bodies with a length or in chunks, answers likewise.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from toolwire.gateway.accepted import Connection
from toolwire.gateway.incoming import Gone, Incoming
from toolwire.gateway.outbox import Outbox
from toolwire.gateway.request import Request

SWEEP = 5.0
LAST = 1.0
"""Seconds for tasks to end after their connections were cut."""

Handle = Callable[[Incoming], Coroutine[Any, Any, None]]
Broken = Callable[[Incoming, BaseException], Coroutine[Any, Any, None]]


class Server:
    """Accepts connections and starts a task for every request. `broken` is told of tasks that fail, and answers."""

    def __init__(self, handle: Handle, broken: Broken) -> None:
        self._handle = handle
        self._broken = broken
        self.loop = asyncio.get_running_loop()
        self.time = self.loop.time
        self.outbox = Outbox(self.loop)
        self.connections: set[Connection] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self._sweep = self.loop.call_later(SWEEP, self._tick)
        self._listening: asyncio.Server | None = None
        self._empty: asyncio.Future[None] | None = None
        """There once it closes."""

    async def listen(self, bound: socket.socket, backlog: int) -> None:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # clients that vanish without a word are noticed
        self._listening = await self.loop.create_server(lambda: Connection(self), sock=bound, backlog=backlog)

    def came(self, connection: Connection) -> None:
        self.connections.add(connection)
        if self._empty is not None:
            connection.stop()

    def left(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self._settle()

    # --- tasks ---

    def start(self, request: Request) -> None:
        # A name that the loop makes up for it would cost more than the task.
        task = request.task = asyncio.Task(self._run(request), loop=self.loop, name="request")
        self.tasks.add(task)

    async def _run(self, request: Request) -> None:
        """Most end well, and then nobody need be told: only those that do not are looked at once more."""
        well = False
        try:
            await self._handle(request)
            well = request.over or request.gone
        finally:
            if not well:
                request.task.add_done_callback(partial(self._done, request))
            else:
                self.tasks.discard(request.task)
                if self._empty is not None:
                    self._settle()

    def _started(self, request: Request, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(partial(self._done, request))
        return task

    def _done(self, request: Request, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        cancelled = task.cancelled()
        error = None if cancelled else task.exception()
        answered = request.over or request.gone
        gone = cancelled or isinstance(error, Gone)
        if error is None and not answered and not gone and not request.begun:
            error = RuntimeError("a request was left without an answer")
        if not answered and (request.begun or task is not request.task or gone):
            # An answer without its end: the client must not take it for a whole one.
            request.abort()
        if error is not None and not gone:
            self._failed(request, task, error)
        self._settle()

    def _failed(self, request: Request, task: asyncio.Task[None], error: BaseException) -> None:
        if task is request.task:
            self._started(request, self._broken(request, error))
        else:
            self.loop.call_exception_handler({"message": "telling of a fault failed", "exception": error})

    # --- time, and the end ---

    def _tick(self) -> None:
        self._sweep = self.loop.call_later(SWEEP, self._tick)
        self.swept(self.time())

    def swept(self, now: float) -> None:
        for connection in tuple(self.connections):
            connection.swept(now)

    def _settle(self) -> None:
        if self._empty is not None and not self.connections and not self.tasks and not self._empty.done():
            self._empty.set_result(None)

    async def close(self, seconds: float | None) -> None:
        """No new connections; what is under way may finish, within that time. Cancelled, it cuts everything at once."""
        empty = self._empty = self.loop.create_future()
        if self._listening is not None:
            self._listening.close()
        for connection in tuple(self.connections):
            connection.stop()
        self._settle()
        try:
            await asyncio.wait((empty,), timeout=seconds or None)
        finally:
            self._sweep.cancel()
            for connection in tuple(self.connections):
                connection.transport.abort()
            for task in self.tasks:
                task.cancel()
            await asyncio.wait((empty,), timeout=LAST)
