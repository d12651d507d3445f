"""Providers that misbehave on purpose: raw servers on loopback, each a coroutine that talks to one client."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any

import uvloop

from toolwire.gateway.http.client import HttpResponse, UpstreamClient
from toolwire.gateway.http.connection import TransportError
from toolwire.gateway.http.messages import UpstreamRequest
from toolwire.gateway.settings.address import Address
from toolwire.gateway.settings.config import Timeouts
from waits import PATIENCE

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
PATH = "/v1/chat/completions"


def on_loop(
    name: str, work: Coroutine[Any, Any, None], loops: Mapping[str, Callable[[], asyncio.AbstractEventLoop]] = LOOPS
) -> None:
    """Runs it on this kind of loop; a test that hangs fails, and so does one that leaves an error to the loop."""
    complaints: list[dict[str, Any]] = []

    async def run_with_patience() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        async with asyncio.timeout(PATIENCE):
            await work

    with asyncio.Runner(loop_factory=loops[name]) as runner:
        runner.run(run_with_patience())
    assert not complaints


class Peer:
    """The server's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def head(self) -> str:
        return (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")

    async def request(self) -> tuple[str, bytes]:
        head = await self.head()
        _, _, after = head.partition("content-length: ")
        return head, await self.reader.readexactly(int(after.split("\r\n")[0]) if after else 0)

    async def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()

    async def wait_for_disconnect(self) -> None:
        """Until the client has hung up."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65536):
                pass

    def reset(self) -> None:
        self.writer.transport.abort()


class Provider:
    def __init__(self) -> None:
        self.port = 0
        self.connections = 0
        self.tasks: set[asyncio.Task[None]] = set()

    def address(self, base: str = "", scheme: str = "http", host: str = "127.0.0.1", **more: str) -> Address:
        return Address.parse(f"{scheme}://{host}:{self.port}{base}", **more)


@asynccontextmanager
async def provider(
    script: Callable[[Peer], Awaitable[None]], tls: ssl.SSLContext | None = None, patience: bool = True
) -> AsyncIterator[Provider]:
    """A server whose every connection is served by the script, and closed behind it; what the script raises, raises."""
    state = Provider()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        state.connections += 1
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                await script(Peer(reader, writer))
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()

    def accept_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        state.tasks.add(asyncio.ensure_future(serve(reader, writer)))

    server = await asyncio.start_server(accept_connection, "127.0.0.1", 0, ssl=tls)
    state.port = server.sockets[0].getsockname()[1]
    try:
        yield state
        if patience:
            await asyncio.gather(*state.tasks)
    finally:
        server.close()
        for task in state.tasks:
            task.cancel()
        await asyncio.gather(*state.tasks, return_exceptions=True)


@asynccontextmanager
async def client(**deadlines: float) -> AsyncIterator[UpstreamClient]:
    made = UpstreamClient(Timeouts(**deadlines))
    try:
        yield made
    finally:
        await made.close()


async def send_post(made: UpstreamClient, address: Address, body: bytes = b"{}") -> HttpResponse:
    answer = await made.send_request(
        UpstreamRequest(address, "POST", PATH, (("content-type", "application/json"),), body)
    )
    assert isinstance(answer, HttpResponse), answer
    return answer


async def expect_transport_error(made: UpstreamClient, address: Address, body: bytes = b"{}") -> TransportError:
    fault = await made.send_request(UpstreamRequest(address, "POST", PATH, (), body))
    assert isinstance(fault, TransportError), fault
    return fault


async def read_chunks(answer: HttpResponse) -> list[bytes | TransportError]:
    """All chunks up to the end or the fault, which stands last."""
    chunks: list[bytes | TransportError] = []
    while (chunk := await answer.read_chunk()) and not isinstance(chunk, TransportError):
        chunks.append(chunk)
    return [*chunks, chunk] if chunk else chunks
