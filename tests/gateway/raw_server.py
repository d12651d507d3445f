"""The gateway's own server with a handler of the test's own, and clients that are bare sockets: nothing in between."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import uvloop

from toolwire.gateway.http.admission import Admission
from toolwire.gateway.http.client_request import ClientRequest
from toolwire.gateway.http.server import ClientConnection, HttpServer
from waits import PATIENCE

LIMIT = 1000
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "uvloop": uvloop.new_event_loop,
    "asyncio": asyncio.new_event_loop,
}
BROKEN = b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 6\r\n\r\nbroken"


def run(name: str, test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """On this kind of loop, and not for ever."""

    async def run_with_patience() -> None:
        async with asyncio.timeout(PATIENCE):
            await test()

    with asyncio.Runner(loop_factory=LOOPS[name]) as runner:
        runner.run(run_with_patience())


async def echo(incoming: ClientRequest) -> None:
    """Says what it got."""
    body = await incoming.read_raw_body(LIMIT)
    if body is None:
        await incoming.start_response(413, {"content-length": "5"})
        await incoming.send_body(b"large", more=False)
        return
    query = f"?{incoming.query}" if incoming.query else ""
    out = f"{incoming.method} {incoming.path}{query} ".encode() + body
    await incoming.start_response(200, {"content-length": str(len(out))})
    await incoming.send_body(out, more=False)


def line(status: int) -> bytes:
    return f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode()


def echo_answer(body: bytes, *more: bytes, status: int = 200) -> bytes:
    """An answer as `echo` gives it, with headers of the server's own after it."""
    rows = (line(status), b"content-length: %d" % len(body), *more, b"", body)
    return b"\r\n".join(rows)


CLOSE = b"connection: close"


def refusal_answer(status: int, why: bytes) -> bytes:
    """A refusal of the server itself."""
    kind = b"content-type: text/plain; charset=utf-8"
    return b"\r\n".join((line(status), kind, b"content-length: %d" % len(why), CLOSE, b"", why))


class RawConnection:
    """A client."""

    def __init__(self, port: int, *, small: bool = False) -> None:
        self._loop = asyncio.get_running_loop()
        self.socket = socket.socket()
        if small:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        try:
            self.socket.connect(("127.0.0.1", port))
        except OSError:
            self.socket.close()
            raise
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.got = b""

    async def send(self, *pieces: bytes) -> None:
        """Each piece is seen by itself."""
        for piece in pieces:
            await self._loop.sock_sendall(self.socket, piece)
            if len(pieces) > 1:
                await run_loop_once()

    async def read_until(self, enough: Callable[[bytes], bool]) -> bytes:
        while not enough(self.got):
            data = await self._loop.sock_recv(self.socket, 65536)
            assert data, self.got
            self.got += data
        return self.got

    async def expect_answer(self, expected: bytes) -> None:
        """Exactly this comes next."""
        got = await self.read_until(lambda got: len(got) >= len(expected) or not expected.startswith(got))
        assert got == expected
        self.got = b""

    async def skip(self, count: int) -> None:
        """So many bytes, whatever they are."""
        while count:
            count -= len(await self._loop.sock_recv(self.socket, count))

    async def read_rest(self) -> bytes:
        """Everything until the server closes."""
        while data := await self._loop.sock_recv(self.socket, 65536):
            self.got += data
        return self.got

    async def read_until_reset(self) -> bytes:
        """Everything until the connection breaks or closes."""
        try:
            return await self.read_rest()
        except ConnectionError:
            return self.got

    def leave(self) -> None:
        self.socket.close()


async def run_loop_once() -> None:
    """What was sent has been seen after this: both ends are in one loop, and loopback is at once."""
    for _ in range(3):
        await asyncio.sleep(0)


async def wait_until_true(true: Callable[[], object]) -> None:
    """Until this is so."""
    while not true():
        await asyncio.sleep(0)


class ServerUnderTest:
    """A server on a port of its own."""

    def __init__(
        self, handle: Callable[[ClientRequest], Coroutine[Any, Any, None]], admission: Admission | None = None
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.noise: list[dict[str, Any]] = []
        self.loop.set_exception_handler(lambda _loop, context: self.noise.append(context))
        self.faults: list[BaseException] = []
        self.server = HttpServer(handle, self._answer_error, admission)
        self.bound = socket.create_server(("127.0.0.1", 0))
        self.bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.bound.setblocking(False)
        self._talks: list[RawConnection] = []
        self.port: int = self.bound.getsockname()[1]

    async def _answer_error(self, incoming: ClientRequest, error: BaseException) -> None:
        self.faults.append(error)
        await incoming.start_response(500, {"content-length": "6"})
        await incoming.send_body(b"broken", more=False)

    def connect_client(self, *, small: bool = False) -> RawConnection:
        made = RawConnection(self.port, small=small)
        self._talks.append(made)
        return made

    def leave_all(self) -> None:
        for talk in self._talks:
            talk.leave()

    async def wait_for_connection(self) -> ClientConnection:
        """The server's side of the only connection."""
        await wait_until_true(lambda: self.server.connections)
        (connection,) = self.server.connections
        return connection

    async def check_new_client(self) -> None:
        """A new client is still served."""
        talk = self.connect_client()
        await talk.send(b"GET /good HTTP/1.1\r\n\r\n")
        await talk.expect_answer(echo_answer(b"GET /good "))
        talk.leave()

    async def wait_until_empty(self) -> None:
        await wait_until_true(lambda: not self.server.connections and not self.server.tasks)

    async def take_faults(self) -> list[str]:
        """The faults that `broken` was told of, once everything is over."""
        await self.wait_until_empty()
        found, self.faults = self.faults, []
        return [f"{type(error).__name__}: {error}" for error in found]


@asynccontextmanager
async def run_server(
    handle: Callable[[ClientRequest], Coroutine[Any, Any, None]] = echo, admission: Admission | None = None
) -> AsyncIterator[ServerUnderTest]:
    """Nothing may be left of its connections and tasks at the end, and nothing have been said on stderr."""
    made = ServerUnderTest(handle, admission)
    await made.server.listen(made.bound, 128)
    try:
        yield made
        made.leave_all()
        await made.wait_until_empty()
    finally:
        made.leave_all()
        closing = asyncio.ensure_future(made.server.close(1))
        await run_loop_once()
        closing.cancel()
        await asyncio.wait((closing,))
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert [str(each) for each in made.noise] == []
    assert made.faults == []


def by_path(
    table: dict[str, Callable[[ClientRequest], Awaitable[None]]],
) -> Callable[[ClientRequest], Coroutine[Any, Any, None]]:
    """A handler for every path, and `echo` for the others."""

    async def handle(incoming: ClientRequest) -> None:
        await table.get(incoming.path, echo)(incoming)

    return handle


def splits(script: bytes) -> Iterable[tuple[bytes, ...]]:
    """As a whole, byte by byte, and in two pieces everywhere."""
    yield (script,)
    yield tuple(script[at : at + 1] for at in range(len(script)))
    for at in range(1, len(script)):
        yield script[:at], script[at:]
