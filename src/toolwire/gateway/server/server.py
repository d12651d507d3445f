"""The gateway's own HTTP/1.1 server, on httptools, with a task for every request.

docs/decisions/0011 says what it saves. It does what a gateway needs: keep-alive, pipelined requests, and bodies with a
length or in chunks, both ways.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from toolwire.gateway.server.client_request import ClientDisconnected, ClientRequest
from toolwire.gateway.server.connection import ClientConnection
from toolwire.gateway.server.http_request import HttpRequest
from toolwire.gateway.server.write_queue import WriteQueue

SWEEP_SECONDS = 5.0
CLOSE_GRACE_SECONDS = 1.0
"""Seconds for tasks to end after their connections were closed."""

RequestCallback = Callable[[ClientRequest], Coroutine[Any, Any, None]]
ErrorCallback = Callable[[ClientRequest, BaseException], Coroutine[Any, Any, None]]


class HttpServer:
    """Accepts connections and starts a task for every request. `on_error` answers requests whose task failed."""

    def __init__(self, on_request: RequestCallback, on_error: ErrorCallback) -> None:
        self._on_request = on_request
        self._on_error = on_error
        self.loop = asyncio.get_running_loop()
        self.time = self.loop.time
        self.write_queue = WriteQueue(self.loop)
        self.connections: set[ClientConnection] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self._sweep_timer = self.loop.call_later(SWEEP_SECONDS, self._on_sweep_timer)
        self._listener: asyncio.Server | None = None
        self._all_closed: asyncio.Future[None] | None = None
        """Set while the server closes."""

    async def listen(self, bound: socket.socket, backlog: int) -> None:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # to notice clients that vanish
        self._listener = await self.loop.create_server(lambda: ClientConnection(self), sock=bound, backlog=backlog)

    def add_connection(self, connection: ClientConnection) -> None:
        self.connections.add(connection)
        if self._all_closed is not None:
            connection.stop_accepting()

    def remove_connection(self, connection: ClientConnection) -> None:
        self.connections.discard(connection)
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

    def _start_task(self, request: HttpRequest, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self.loop.create_task(coroutine)
        self.tasks.add(task)
        task.add_done_callback(partial(self._on_task_done, request))
        return task

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
            self._answer_failed_task(request, task, error)
        self._check_all_closed()

    def _answer_failed_task(self, request: HttpRequest, task: asyncio.Task[None], error: BaseException) -> None:
        if task is request.task:
            self._start_task(request, self._on_error(request, error))
        else:
            self.loop.call_exception_handler({"message": "answering an internal error failed", "exception": error})

    # --- timeouts and closing ---

    def _on_sweep_timer(self) -> None:
        self._sweep_timer = self.loop.call_later(SWEEP_SECONDS, self._on_sweep_timer)
        self.sweep_connections(self.time())

    def sweep_connections(self, now: float) -> None:
        for connection in tuple(self.connections):
            connection.close_if_stalled(now)

    def _check_all_closed(self) -> None:
        if self._all_closed is not None and not self.connections and not self.tasks and not self._all_closed.done():
            self._all_closed.set_result(None)

    async def close(self, seconds: float | None) -> None:
        """Accept no new connections, and wait until running requests end or the time is over. If this is cancelled,
        everything is closed at once."""
        all_closed = self._all_closed = self.loop.create_future()
        if self._listener is not None:
            self._listener.close()
        for connection in tuple(self.connections):
            connection.stop_accepting()
        self._check_all_closed()
        try:
            await asyncio.wait((all_closed,), timeout=seconds or None)
        finally:
            self._sweep_timer.cancel()
            for connection in tuple(self.connections):
                connection.transport.abort()
            for task in self.tasks:
                task.cancel()
            await asyncio.wait((all_closed,), timeout=CLOSE_GRACE_SECONDS)
