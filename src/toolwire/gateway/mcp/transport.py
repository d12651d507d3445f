"""How a server is reached: a program over its pipes, or a URL; both notice when the other side is gone."""

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
"""Bytes of what a program last said on its standard error; all else of it is read and forgotten."""
UNKNOWN_SESSION_STATUSES = (400, 404)
"""What servers answer to a session that they do not know; the first is not by the book."""
IncomingMessage = SessionMessage | Exception
MessageStreams = tuple[ReadStream[IncomingMessage], WriteStream[SessionMessage]]

for _name in ("mcp", "client"):  # the SDK's; what it has to say of a peer's faults is said by us, in our own log
    logging.getLogger(_name).addHandler(logging.NullHandler())


class StderrTail(asyncio.Protocol):
    """The end of what a program says on its standard error."""

    def __init__(self) -> None:
        self._buffer = b""

    def data_received(self, data: bytes) -> None:
        self._buffer = (self._buffer + data)[-STDERR_TAIL_BYTES:]

    @property
    def last_line(self) -> str:
        """Its last line."""
        lines = self._buffer.decode(errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else ""


@asynccontextmanager
async def open_transport(
    server: McpServer, tail: StderrTail, on_ended: Callable[[], None], on_session_lost: Callable[[], None]
) -> AsyncGenerator[MessageStreams, None]:
    """The two streams of messages; `ended` is called when no more can come, `forgotten` when a server may not know any
    more who we are."""
    if server.command:
        async with _open_pipes(server, tail) as (reading, writing):
            yield WatchedStream(reading, on_ended), writing
        return
    timeout = httpx2.Timeout(server.connect_timeout, read=None)  # every request has a deadline of its own
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
    """A program. Its standard error is read all the time, so that it never has to wait for us."""
    env = {name: value.reveal() for name, value in server.env.items()}
    asked = StdioServerParameters(
        command=server.command[0],
        args=list(server.command[1:]),
        env=env,
        cwd=server.cwd or None,
        encoding_error_handler="replace",
    )
    read, write = os.pipe()
    reading, writing = open(read, "rb", 0), open(write, "w")  # noqa: SIM115  closed below, each in its time
    try:
        pipe, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: tail, reading)
    except BaseException:
        reading.close()
        writing.close()
        raise
    try:
        async with stdio_client(asked, errlog=writing) as streams:
            writing.close()
            yield streams
    finally:
        writing.close()
        pipe.close()


class WatchedStream:
    """A stream of messages that says when it has come to its end."""

    def __init__(self, stream: ReadStream[IncomingMessage], on_ended: Callable[[], None]) -> None:
        self._stream, self._on_ended = stream, on_ended

    @property
    def last_context(self) -> object:
        """The SDK looks for it here."""
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
