"""The two transports of MCP: a program and its pipes, or a URL. Both report when the other side ends."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self

import httpx2
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage

from toolwire.gateway.config.config import McpServer

STDERR_TAIL_BYTES = 4096
"""Only the last bytes of a program's standard error are kept."""
UNKNOWN_SESSION_STATUSES = (400, 404)
"""Statuses for an unknown session: the specification says 404, the reference server sends 400."""
IncomingMessage = SessionMessage | Exception
MessageStreams = tuple[ReadStream[IncomingMessage], WriteStream[SessionMessage]]

for _name in ("mcp", "client"):  # the SDK's loggers; our own log reports the errors of servers
    logging.getLogger(_name).addHandler(logging.NullHandler())


class StderrTail(asyncio.Protocol):
    """The end of a program's standard error."""

    def __init__(self) -> None:
        self._buffer = b""

    def data_received(self, data: bytes) -> None:
        self._buffer = (self._buffer + data)[-STDERR_TAIL_BYTES:]

    @property
    def last_line(self) -> str:
        lines = self._buffer.decode(errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else ""


@asynccontextmanager
async def open_transport(
    server: McpServer, tail: StderrTail, on_ended: Callable[[], None], on_session_lost: Callable[[], None]
) -> AsyncGenerator[MessageStreams, None]:
    """The two streams of messages. `on_ended` is called when the incoming stream ends, `on_session_lost` when the
    server may have lost our session."""
    if server.command:
        async with _open_pipes(server, tail) as (reading, writing):
            yield WatchedStream(reading, on_ended), writing
        return
    timeout = httpx2.Timeout(server.connect_timeout, read=None)  # each call has its own deadline
    headers = {name: value.reveal() for name, value in server.headers.items()}

    async def check_session(response: httpx2.Response) -> None:
        if response.status_code in UNKNOWN_SESSION_STATUSES and MCP_SESSION_ID in response.request.headers:
            on_session_lost()

    async with (
        httpx2.AsyncClient(headers=headers, timeout=timeout, event_hooks={"response": [check_session]}) as client,
        streamable_http_client(server.url.reveal(), http_client=client) as (reading, writing),
    ):
        yield WatchedStream(reading, on_ended), writing


@asynccontextmanager
async def _open_pipes(server: McpServer, tail: StderrTail) -> AsyncGenerator[MessageStreams, None]:
    """Start a program. Its standard error is always read, so that it never blocks."""
    env = {name: value.reveal() for name, value in server.env.items()}
    parameters = StdioServerParameters(
        command=server.command[0],
        args=list(server.command[1:]),
        env=env,
        cwd=server.cwd or None,
        encoding_error_handler="replace",
    )
    read, write = os.pipe()
    reading, writing = open(read, "rb", 0), open(write, "w")  # noqa: SIM115  closed below
    try:
        pipe, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: tail, reading)
    except BaseException:
        reading.close()
        writing.close()
        raise
    try:
        async with stdio_client(parameters, errlog=writing) as streams:
            writing.close()
            yield streams
    finally:
        writing.close()
        pipe.close()


class WatchedStream:
    """A stream of messages that reports its end."""

    def __init__(self, stream: ReadStream[IncomingMessage], on_ended: Callable[[], None]) -> None:
        self._stream, self._on_ended = stream, on_ended

    @property
    def last_context(self) -> object:
        """The SDK reads this attribute."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> IncomingMessage:
        return await self._stream.receive()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> IncomingMessage:
        try:
            return await self._stream.__anext__()
        except StopAsyncIteration:
            self._on_ended()
            raise

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._stream.__aexit__(kind, error, trace)
