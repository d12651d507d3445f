"""Clients that do not read, that send ahead, or that send in drops: each holds little, and none holds it for ever."""

from __future__ import annotations

import asyncio

import pytest

from gateway.raw_server import LOOPS, RawConnection, become, run, run_server, turn
from toolwire.gateway.server import server
from toolwire.gateway.server.client_request import ClientRequest

ANSWER = b"x" * 1_000_000
GET = b"GET /a HTTP/1.1\r\n\r\n"
POST = b"POST /a HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"
CHUNKED = b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
UPGRADE = b"GET /a HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"


@pytest.fixture(params=LOOPS)
def loop_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Counter:
    """Answers with a megabyte, whole or as a stream, and counts the requests that were started."""

    def __init__(self, streamed: bool = False) -> None:
        self.started = 0
        self.ended = 0
        self._streamed = streamed

    async def __call__(self, incoming: ClientRequest) -> None:
        self.started += 1
        await incoming.read_raw_body(1000)
        if self._streamed:
            await incoming.start_response(200, {})
            for at in range(0, len(ANSWER), 10_000):
                await incoming.send_body(ANSWER[at : at + 10_000], more=True)
            await incoming.send_body(b"", more=False)
        else:
            await incoming.start_response(200, {"content-length": str(len(ANSWER))})
            await incoming.send_body(ANSWER, more=False)
        self.ended += 1


async def _settle() -> None:
    for _ in range(200):
        await turn()


@pytest.mark.parametrize("request_bytes", [GET, POST, CHUNKED, UPGRADE], ids=["get", "post", "chunked", "upgrade"])
@pytest.mark.parametrize("streamed", [False, True])
def test_a_client_that_sends_ahead_and_never_reads_gets_no_second_answer(
    loop_name: str, request_bytes: bytes, streamed: bool
) -> None:
    """Only what the kernel takes, and one answer of ours."""

    async def test() -> None:
        count = Counter(streamed)
        async with run_server(count) as made:
            talk = made.talk(small=True)
            sending = asyncio.ensure_future(talk.send(request_bytes * (20_000_000 // len(request_bytes))))
            connection = await made.connected()
            await become(lambda: connection.write_blocked is not None)
            await _settle()
            # The kernel's buffers of a connection take a few answers of this size.
            assert count.started <= 10
            assert connection.transport.get_write_buffer_size() <= len(ANSWER) + 2 * server.WRITE_BUFFER
            assert not sending.done()  # it is not read from, either
            sending.cancel()
            await asyncio.wait((sending,))
            talk.leave()
            # It left: what it sent ahead is not answered any more.
            before = count.started
            await become(lambda: not made.server.connections)
            assert count.started <= before + 1

    run(loop_name, test)


@pytest.mark.parametrize("streamed", [False, True])
def test_what_was_sent_ahead_is_answered_as_it_is_read(loop_name: str, streamed: bool) -> None:
    async def test() -> None:
        count = Counter(streamed)
        async with run_server(count) as made:
            talk = made.talk(small=True)
            await talk.send(POST * 20)
            await become(lambda: (count.started, count.ended) != (0, 0))
            await _read_answers(talk, 20, streamed)
            assert (count.started, count.ended) == (20, 20)

    run(loop_name, test)


async def _read_answers(talk: RawConnection, number: int, streamed: bool) -> None:
    loop, seen = asyncio.get_running_loop(), 0
    while seen < number * len(ANSWER):
        data = await loop.sock_recv(talk.socket, 1 << 20)
        assert data
        seen += data.count(b"x")


def test_requests_are_started_one_by_one_though_they_came_at_once(loop_name: str) -> None:
    """None is even parsed while the one before it is worked on."""

    async def test() -> None:
        go = asyncio.Event()
        seen: list[str] = []

        async def handle(incoming: ClientRequest) -> None:
            seen.append(incoming.path)
            await go.wait()
            await incoming.start_response(200, {"content-length": "1"})
            await incoming.send_body(b"x", more=False)

        async with run_server(handle) as made:
            talk = made.talk()
            await talk.send(b"".join(b"GET /%d HTTP/1.1\r\n\r\n" % at for at in range(2000)))
            connection = await made.connected()
            await become(lambda: seen)
            await _settle()
            assert seen == ["/0"]
            assert not connection._pipelined
            go.set()
            await become(lambda: len(seen) == 2000)
            assert seen == [f"/{at}" for at in range(2000)]

    run(loop_name, test)
