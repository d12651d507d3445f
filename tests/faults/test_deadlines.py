"""A deadline never beats an answer that is there: after a stall of this process, sockets are read before it counts.

The event loop is stopped here by a callback that does not return until the provider has answered; then its clock is put
forward, so that the deadline has passed.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from contextlib import closing, suppress

import pytest
import uvloop

from gateway.misbehaving_providers import LOOPS, OK, PATH, client, on_loop
from toolwire.gateway.http.client import HttpResponse, UpstreamClient
from toolwire.gateway.http.messages import UpstreamRequest
from toolwire.gateway.settings.address import Address
from waits import PATIENCE

LIMIT = 1 << 20
SECONDS = PATIENCE / 3
"""The deadline."""
PARTS = {
    "head": (b"", OK, "ok"),
    "half a head": (b"HTTP/1.1 200 OK\r\ncontent-le", b"ngth: 2\r\n\r\nok", "ok"),
    "body": (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhel", b"lo", "hello"),
    "chunks": (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nhel\r\n", b"2\r\nlo\r\n0\r\n\r\n", "hello"),
    "end": (b"HTTP/1.1 200 OK\r\n\r\nhel", b"lo", "hello"),
}
"""What the provider sends before and during the stall, and the body."""


class StalledProvider:
    """Answers the first part at once, and the rest while the other side stands still."""

    def __init__(self, count: int, first: bytes, rest: bytes) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.address = Address.parse(f"http://127.0.0.1:{self._listening.getsockname()[1]}")
        self._first, self._rest = first, rest
        self.requests = 0
        self.asked, self.answered = threading.Barrier(count + 1), threading.Barrier(count + 1)
        self.stalled = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            data = b""
            while b"\r\n\r\n" not in data:
                data += connection.recv(65536)
            self.requests += 1
            connection.sendall(self._first)
            with suppress(threading.BrokenBarrierError):
                self.asked.wait(PATIENCE)
                self.stalled.wait(PATIENCE)
                connection.sendall(self._rest)
                self.answered.wait(PATIENCE)

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()


class LeapingLoop(asyncio.AbstractEventLoop):
    """A loop whose clock can be put forward."""

    leapt = 0.0

    def time(self) -> float:
        return super().time() + self.leapt

    def leap(self, client: UpstreamClient) -> None:
        """The deadlines of all connections have passed, and their timers come before any socket is read."""
        self.leapt = SECONDS
        for connection in [one for pool in client._pools.values() for one in pool.all_connections]:
            if connection._timer is not None:
                connection._timer.cancel()
                connection._on_timer()


class LeapingUvloop(LeapingLoop, uvloop.Loop):
    pass


class LeapingAsyncio(LeapingLoop, asyncio.SelectorEventLoop):
    pass


LEAPING = {"uvloop": LeapingUvloop, "asyncio": LeapingAsyncio}


def _stall(passed: Callable[[], bool]) -> None:
    never = threading.Event()
    while not passed():
        never.wait(0.01)


@pytest.mark.parametrize(
    ("loop", "part", "way"),
    [("uvloop", part, "whole") for part in PARTS]
    + [("uvloop", part, way) for part in ("body", "chunks") for way in ("pieces", "poured")]
    + [("asyncio", "head", "whole")],
)
def test_an_answer_in_the_socket_beats_its_deadline(loop: str, part: str, way: str) -> None:
    first, rest, body = PARTS[part]
    count = 40 if part == "head" and way == "whole" else 3

    async def read(answer: HttpResponse) -> bytes:
        if way == "whole":
            data = await answer.read(LIMIT)
            assert isinstance(data, bytes), data
            return data
        pieces: list[bytes] = []
        if way == "poured":
            while (ended := await answer.pour_into(lambda data: bool(pieces.append(bytes(data))) or True)) is None:
                pass
            assert ended == b"", ended
        else:
            while piece := await answer.read_chunk():
                assert isinstance(piece, bytes), piece
                pieces.append(piece)
        return b"".join(pieces)

    async def test() -> None:
        running = asyncio.get_running_loop()
        assert isinstance(running, LeapingLoop)
        with closing(StalledProvider(count, first, rest)) as provider:
            async with client(first_byte=SECONDS, between_bytes=SECONDS) as made:

                async def ask() -> str:
                    answer = await made.send_request(UpstreamRequest(provider.address, "POST", PATH, (), b"{}"))
                    assert isinstance(answer, HttpResponse), answer
                    return (await read(answer)).decode()

                asking = [asyncio.create_task(ask()) for _ in range(count)]
                await asyncio.to_thread(provider.asked.wait, PATIENCE)
                provider.stalled.set()
                provider.answered.wait(PATIENCE)  # on the event loop: nothing is read
                running.leap(made)
                assert await asyncio.gather(*asking) == [body] * count
                assert provider.requests == count

    on_loop(loop, test(), LEAPING)


def _answer_one(listening: socket.socket) -> None:
    connection, _ = listening.accept()
    with connection:
        data = b""
        while b"\r\n\r\n" not in data:
            data += connection.recv(65536)
        connection.sendall(OK)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("steps", range(1, 6))
def test_a_connection_that_is_there_beats_its_deadline(loop: str, steps: int) -> None:
    seconds = 0.05

    async def test() -> None:
        running = asyncio.get_running_loop()
        with socket.create_server(("127.0.0.1", 0)) as listening:
            thread = threading.Thread(target=_answer_one, args=(listening,), daemon=True)
            thread.start()
            address = Address.parse(f"http://127.0.0.1:{listening.getsockname()[1]}")
            async with client(connect=seconds) as made:
                asking = asyncio.create_task(made.send_request(UpstreamRequest(address, "POST", PATH, (), b"{}")))
                for _ in range(steps):
                    await asyncio.sleep(0)
                over = running.time() + seconds
                _stall(lambda: running.time() > over)
                answer = await asking
                assert isinstance(answer, HttpResponse), answer
                assert await answer.read(LIMIT) == b"ok"
            thread.join()

    on_loop(loop, test())
