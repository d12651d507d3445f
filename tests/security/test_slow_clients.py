"""Clients that do not read, that send ahead, or that send in drops: each holds little, and none holds it for ever."""

from __future__ import annotations

import asyncio

import pytest

from gateway.raw_server import LOOPS, RawConnection, run, run_loop_once, run_server, wait_until_true
from toolwire.gateway.http import server
from toolwire.gateway.http.client_request import ClientRequest, HttpRequest

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
        await run_loop_once()


@pytest.mark.parametrize("request_bytes", [GET, POST, CHUNKED, UPGRADE], ids=["get", "post", "chunked", "upgrade"])
@pytest.mark.parametrize("streamed", [False, True])
def test_a_client_that_sends_ahead_and_never_reads_gets_no_second_answer(
    loop_name: str, request_bytes: bytes, streamed: bool
) -> None:
    """Only what the kernel takes, and one answer of ours."""

    async def test() -> None:
        count = Counter(streamed)
        async with run_server(count) as made:
            talk = made.connect_client(small=True)
            sending = asyncio.ensure_future(talk.send(request_bytes * (20_000_000 // len(request_bytes))))
            connection = await made.wait_for_connection()
            await wait_until_true(lambda: connection.write_blocked is not None)
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
            await wait_until_true(lambda: not made.server.connections)
            assert count.started <= before + 1

    run(loop_name, test)


@pytest.mark.parametrize("streamed", [False, True])
def test_what_was_sent_ahead_is_answered_as_it_is_read(loop_name: str, streamed: bool) -> None:
    async def test() -> None:
        count = Counter(streamed)
        async with run_server(count) as made:
            talk = made.connect_client(small=True)
            await talk.send(POST * 20)
            await wait_until_true(lambda: (count.started, count.ended) != (0, 0))
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
            talk = made.connect_client()
            await talk.send(b"".join(b"GET /%d HTTP/1.1\r\n\r\n" % at for at in range(2000)))
            connection = await made.wait_for_connection()
            await wait_until_true(lambda: seen)
            await _settle()
            assert seen == ["/0"]
            assert not connection.pipelined
            go.set()
            await wait_until_true(lambda: len(seen) == 2000)
            assert seen == [f"/{at}" for at in range(2000)]

    run(loop_name, test)


# --- bodies in drops ---


HEADS = {
    "length": b"POST /a HTTP/1.1\r\nContent-Length: 500\r\n\r\n",
    "chunked": b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
}


def _drop(coding: str, size: int = 1) -> bytes:
    return b"x" * size if coding == "length" else b"%x\r\n%b\r\n" % (size, b"x" * size)


@pytest.mark.parametrize("coding", HEADS)
@pytest.mark.parametrize("pause", [5, 20, 50])
def test_a_body_in_drops_is_given_up(loop_name: str, coding: str, pause: int) -> None:
    """A byte now and then is not enough, though the connection is never silent for long."""

    async def test() -> None:
        async with run_server() as made:
            talk = made.connect_client()
            await talk.send(HEADS[coding])
            connection = await made.wait_for_connection()
            await wait_until_true(lambda: connection.current_request is not None)
            now, drops = made.server.time(), 0
            while not connection.is_closing:
                await talk.send(_drop(coding))
                drops += 1
                while not connection.is_closing and _received_bytes(connection) < drops:
                    await asyncio.sleep(0)
                now += pause
                connection.last_activity = now - pause  # as if the drop had come then
                made.server.sweep_connections(now)
                assert drops * pause <= 2 * server.REQUEST_SECONDS
            assert (await talk.read_rest()).startswith(b"HTTP/1.1 408 ")

    run(loop_name, test)


def _received_bytes(connection: server.ClientConnection) -> int:
    request = connection.current_request
    return 0 if request is None else request.body_size


@pytest.mark.parametrize("coding", HEADS)
def test_a_slow_honest_body_is_taken(loop_name: str, coding: str) -> None:
    """Two kilobytes in a second, over minutes."""

    async def test() -> None:
        done = asyncio.Event()

        async def handle(incoming: ClientRequest) -> None:
            body = await incoming.read_raw_body(10_000_000)
            assert isinstance(body, bytes)
            await incoming.start_response(200, {"content-length": "6"})
            await incoming.send_body(b"%06d" % len(body), more=False)
            done.set()

        async with run_server(handle) as made:
            talk = made.connect_client()
            await talk.send(HEADS[coding].replace(b"500", b"500000"))
            connection = await made.wait_for_connection()
            now = made.server.time()
            for number in range(1, 51):
                await talk.send(_drop(coding, 10_000))
                while not done.is_set() and _received_bytes(connection) < number * 10_000:
                    await asyncio.sleep(0)
                now += 5
                connection.last_activity = now - 5  # as if the piece had come then
                made.server.sweep_connections(now)
            if coding == "chunked":
                await talk.send(b"0\r\n\r\n")
            await talk.read_until(lambda got: got.endswith(b"500000"))

    run(loop_name, test)


def test_time_in_which_the_server_does_not_read_is_not_the_clients(loop_name: str) -> None:
    async def test() -> None:
        go = asyncio.Event()

        async def later(incoming: ClientRequest) -> None:
            await go.wait()
            body = await incoming.read_raw_body(10_000_000)
            await incoming.start_response(200, {"content-length": "2"})
            await incoming.send_body(b"ok" if body is not None else b"no", more=False)

        async with run_server(later) as made:
            talk = made.connect_client()
            size = 5_000_000
            sending = asyncio.ensure_future(
                talk.send(b"POST /a HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % size + bytes(size))
            )
            connection = await made.wait_for_connection()
            await wait_until_true(lambda: connection.is_reading_paused)
            now = made.server.time()
            for _ in range(100):
                now += 5
                made.server.sweep_connections(now)
            go.set()
            await talk.read_until(lambda got: got.endswith(b"ok"))
            await sending

    run(loop_name, test)


@pytest.mark.parametrize("size", [1, 2, 7])
def test_a_body_in_tiny_chunks_costs_its_size(loop_name: str, size: int) -> None:
    """An object for each chunk would need twenty times the size of the body."""

    async def test() -> None:
        sizes: list[int] = []

        async def handle(incoming: ClientRequest) -> None:
            request = incoming
            assert isinstance(request, HttpRequest)
            body = await request.read_raw_body(10_000_000)
            sizes.append(len(request._pieces))
            await incoming.start_response(200, {"content-length": "7"})
            await incoming.send_body(b"%07d" % len(body or b""), more=False)

        async with run_server(handle) as made:
            talk = made.connect_client()
            number = 100_000
            script = HEADS["chunked"] + _drop("chunked", size) * number + b"0\r\n\r\n"
            sending = asyncio.ensure_future(talk.send(script))
            await talk.read_until(lambda got: got.endswith(b"%07d" % (size * number)))
            await sending
            assert sizes[0] <= 10

    run(loop_name, test)


def test_a_body_in_tiny_chunks_leaves_others_their_turn(loop_name: str) -> None:
    """One connection must not keep the event loop for all of its chunks."""

    async def test() -> None:
        largest_step = 0

        async def handle(incoming: ClientRequest) -> None:
            nonlocal largest_step
            request = incoming
            assert isinstance(request, HttpRequest)
            reading = asyncio.ensure_future(request.read_raw_body(10_000_000))
            last = 0
            while not reading.done():
                await asyncio.sleep(0)
                largest_step, last = max(largest_step, request.body_size - last), request.body_size
            await incoming.start_response(200, {"content-length": "7"})
            await incoming.send_body(b"%07d" % len(await reading or b""), more=False)

        async with run_server(handle) as made:
            talk = made.connect_client()
            script = HEADS["chunked"] + _drop("chunked", 1) * 100_000 + b"0\r\n\r\n"
            sending = asyncio.ensure_future(talk.send(script))
            await talk.read_until(lambda got: got.endswith(b"0100000"))
            await sending
            assert 0 < largest_step <= 10_000

    run(loop_name, test)
