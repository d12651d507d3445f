"""The gateway's own server, byte by byte: every script is sent in one piece, in two, and in single bytes."""

from __future__ import annotations

import asyncio
import random
import socket
import tracemalloc
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from gateway.raw_server import (
    BROKEN,
    CLOSE,
    LIMIT,
    LOOPS,
    by_path,
    echo,
    echo_answer,
    refusal_answer,
    run,
    run_loop_once,
    run_server,
    splits,
    wait_until_true,
)
from toolwire.gateway.http import server as accepted
from toolwire.gateway.http.admission import Admission
from toolwire.gateway.http.client_request import ClientDisconnected, ClientRequest
from toolwire.gateway.settings.config import ServerSettings

Test = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]


@pytest.fixture(params=list(LOOPS))
def play(request: pytest.FixtureRequest) -> Test:
    return lambda test: run(request.param, test)


def no_request(why: bytes) -> bytes:
    return refusal_answer(400, b"this is not an HTTP request: " + why + b"\n")


# --- requests -------------------------------------------------------------------------------------------------------

KEPT: dict[str, tuple[bytes, bytes]] = {
    "no body": (b"GET /a HTTP/1.1\r\n\r\n", echo_answer(b"GET /a ")),
    "lines before it": (b"\r\n\r\nGET /a HTTP/1.1\r\n\r\n", echo_answer(b"GET /a ")),
    "length": (b"POST /a HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", echo_answer(b"POST /a abc")),
    "length of any case": (b"POST /a HTTP/1.1\r\ncOnTeNt-LeNgTh: 3\r\n\r\nabc", echo_answer(b"POST /a abc")),
    "length of nothing": (b"POST /a HTTP/1.1\r\nContent-Length: 0\r\n\r\n", echo_answer(b"POST /a ")),
    "chunks": (
        b"POST /a HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n",
        echo_answer(b"POST /a abc0123456789"),
    ),
    "chunks with extensions": (
        b'POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b;c="d"\r\nabc\r\n0;e\r\n\r\n',
        echo_answer(b"POST /a abc"),
    ),
    "no chunk": (b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", echo_answer(b"POST /a ")),
    "query": (b"GET /a?b=c&d=%20 HTTP/1.1\r\n\r\n", echo_answer(b"GET /a?b=c&d=%20 ")),
    "escapes stay": (b"GET /a%2Fb%3f HTTP/1.1\r\n\r\n", echo_answer(b"GET /a%2Fb%3f ")),
    "question in question": (b"GET /a?b?c HTTP/1.1\r\n\r\n", echo_answer(b"GET /a?b?c ")),
    "fragment": (b"GET /a#b?c HTTP/1.1\r\n\r\n", echo_answer(b"GET /a#b?c ")),
    "two slashes": (b"GET //a/b HTTP/1.1\r\n\r\n", echo_answer(b"GET //a/b ")),
    "absolute": (b"GET http://some.host:80/a?b HTTP/1.1\r\nHost: some.host:80\r\n\r\n", echo_answer(b"GET /a?b ")),
    "absolute without path": (b"GET http://some.host?b HTTP/1.1\r\nHost: Some.Host\r\n\r\n", echo_answer(b"GET /?b ")),
    "absolute of no host": (b"GET http://[a HTTP/1.1\r\n\r\n", echo_answer(b"GET http://[a ")),
    "star": (b"OPTIONS * HTTP/1.1\r\n\r\n", echo_answer(b"OPTIONS * ")),
    "head": (b"HEAD /a HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n"),
    "old and kept": (
        b"POST /a HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx",
        echo_answer(b"POST /a x", b"connection: keep-alive"),
    ),
    "an upgrade without body": (
        b"GET /a HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEA\r\n\r\n",
        echo_answer(b"GET /a "),
    ),
    "an upgrade with a body": (
        b"POST /a HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nContent-Length: 3\r\nUpgrade: h2c\r\n\r\nabc",
        echo_answer(b"POST /a abc"),
    ),
    "an upgrade with chunks": (
        b"POST /a HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"3\r\nabc\r\n0\r\nA: b\r\n\r\n",
        echo_answer(b"POST /a abc"),
    ),
    "an upgrade and more": (
        b"POST /a HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 1\r\n\r\nxGET /b HTTP/1.1\r\n\r\n",
        echo_answer(b"POST /a x") + echo_answer(b"GET /b "),
    ),
    "an upgrade that is none": (
        b"POST /a HTTP/1.1\r\nUpgrade: h2c\r\nContent-Length: 1\r\n\r\nx",
        echo_answer(b"POST /a x"),
    ),
    "expecting something else": (
        b"POST /a HTTP/1.1\r\nExpect: wonders\r\nContent-Length: 1\r\n\r\nx",
        echo_answer(b"POST /a x"),
    ),
    "three at once": (
        b"POST /a HTTP/1.1\r\nContent-Length: 1\r\n\r\nxGET /b HTTP/1.1\r\n\r\nGET /c HTTP/1.1\r\n\r\n",
        echo_answer(b"POST /a x") + echo_answer(b"GET /b ") + echo_answer(b"GET /c "),
    ),
    "refused for its length only": (
        b"POST /a HTTP/1.1\r\nContent-Length: 1001\r\n\r\n" + 1001 * b"x",
        echo_answer(b"large", status=413),
    ),
}
CLOSED: dict[str, tuple[bytes, bytes]] = {
    "asked to": (b"GET /a HTTP/1.1\r\nConnection: close\r\n\r\n", echo_answer(b"GET /a ", CLOSE)),
    "old": (b"GET /a HTTP/1.0\r\n\r\n", echo_answer(b"GET /a ", CLOSE)),
    "web socket": (
        b"GET /a HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: eA==\r\n\r\n",
        echo_answer(b"GET /a ", CLOSE),
    ),
    "no method": (b"FOO / HTTP/1.1\r\n\r\n", no_request(b"Invalid method encountered")),
    "method in small letters": (b"get / HTTP/1.1\r\n\r\n", no_request(b"Invalid method encountered")),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00", no_request(b"Invalid method encountered")),
    "no path": (b"GET a HTTP/1.1\r\n\r\n", no_request(b"Invalid characters in url")),
    "no version": (
        b"GET /\r\n\r\n",
        refusal_answer(505, b"HTTP/0.9 is not supported; use HTTP/1.1\n"),
    ),
    "version 2": (
        b"GET / HTTP/2.0\r\n\r\n",
        refusal_answer(505, b"HTTP/2.0 is not supported; use HTTP/1.1\n"),
    ),
    "unknown version": (b"GET / HTTP/1.7\r\n\r\n", no_request(b"Invalid HTTP version")),
    "version 2 at once": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", no_request(b"Pause on PRI/Upgrade")),
    "tunnel": (
        b"CONNECT a:443 HTTP/1.1\r\n\r\nabc",
        refusal_answer(501, b"CONNECT is not supported\n"),
    ),
    "bare LF": (b"GET / HTTP/1.1\nA: b\n\n", no_request(b"Expected CRLF after version")),
    "bare LF in a header": (
        b"GET / HTTP/1.1\r\nA: b\nC: d\r\n\r\n",
        no_request(b"Missing expected CR after header value"),
    ),
    "bare CR": (b"GET / HTTP/1.1\r\nA: b\rC: d\r\n\r\n", no_request(b"Missing expected LF after header value")),
    "folded": (b"GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n", no_request(b"Unexpected whitespace after header value")),
    "NUL": (b"GET / HTTP/1.1\r\nA: b\0\r\n\r\n", no_request(b"Invalid header value char")),
    "space in a name": (b"GET / HTTP/1.1\r\nA : b\r\n\r\n", no_request(b"Invalid header token")),
    "no name": (b"GET / HTTP/1.1\r\n: b\r\n\r\n", no_request(b"Invalid header token")),
    "raw letters in a path": (b"GET /\xff HTTP/1.1\r\n\r\n", no_request(b"Invalid char in url path")),
    "negative length": (
        b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        no_request(b"Invalid character in Content-Length"),
    ),
    "no length": (b"POST / HTTP/1.1\r\nContent-Length: \r\n\r\n", no_request(b"Empty Content-Length")),
    "two lengths": (
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
        no_request(b"Duplicate Content-Length"),
    ),
    "huge length": (
        b"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
        no_request(b"Content-Length overflow"),
    ),
    "length and chunks": (
        b"POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        no_request(b"Transfer-Encoding can't be present with Content-Length"),
    ),
    "chunks and length": (
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
        no_request(b"Content-Length can't be present with Transfer-Encoding"),
    ),
    "old and in chunks": (
        b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        refusal_answer(400, b"HTTP/1.0 has no transfer-encoding\n"),
    ),
    "other codings": (
        b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        refusal_answer(501, b"only the transfer-encoding `chunked` is supported\n"),
    ),
    "nearly chunked": (
        b"POST / HTTP/1.1\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        refusal_answer(501, b"only the transfer-encoding `chunked` is supported\n"),
    ),
    "chunked twice": (
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        no_request(b"Invalid `Transfer-Encoding` header value"),
    ),
    "size of no chunk": (
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        no_request(b"Invalid character in chunk size"),
    ),
    "negative chunk": (
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        no_request(b"Invalid character in chunk size"),
    ),
    "huge chunk": (
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
        no_request(b"Chunk size overflow"),
    ),
    "longer than its chunk": (
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
        no_request(b"Expected LF after chunk data"),
    ),
    "a bad one after a good one": (
        b"GET /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\nnonsense\r\n\r\n",
        echo_answer(b"GET /a ") + echo_answer(b"GET /b ") + no_request(b"Invalid method encountered"),
    ),
    "a bad body after a good one": (
        b"GET /a HTTP/1.1\r\n\r\nPOST /b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        echo_answer(b"GET /a ") + no_request(b"Invalid character in chunk size"),
    ),
}


@pytest.mark.parametrize("case", KEPT)
def test_a_request_is_answered_and_the_connection_kept(case: str, play: Test) -> None:
    script, expected = KEPT[case]

    async def test() -> None:
        async with run_server() as made:
            talk = made.connect_client()
            for pieces in splits(script) if len(script) < 300 else ((script,),):
                await talk.send(*pieces)
                await talk.expect_answer(expected)

    play(test)


@pytest.mark.parametrize("case", CLOSED)
def test_a_request_is_answered_and_the_connection_closed(case: str, play: Test) -> None:
    script, expected = CLOSED[case]

    async def test() -> None:
        async with run_server() as made:
            for pieces in splits(script):
                talk = made.connect_client()
                await talk.send(*pieces)
                assert await talk.read_rest() == expected
                await made.check_new_client()

    play(test)


def test_what_comes_after_a_last_request_is_not_looked_at(play: Test) -> None:
    async def test() -> None:
        async with run_server() as made:
            talk = made.connect_client()
            await talk.send(b"GET /a HTTP/1.1\r\nConnection: close\r\n\r\nGET /b HTTP/1.1\r\n\r\n")
            assert await talk.read_rest() == echo_answer(b"GET /a ", CLOSE)

    play(test)


def test_headers_by_their_names_and_none_from_behind_the_body(play: Test) -> None:
    seen: list[dict[str, str]] = []

    async def handle(incoming: ClientRequest) -> None:
        await incoming.read_raw_body(LIMIT)
        seen.append(dict(incoming.headers))
        await echo(incoming)

    async def test() -> None:
        async with run_server(handle) as made:
            talk = made.connect_client()
            head = (
                b"POST /a HTTP/1.1\r\nX-A: b\r\nx-a: \tc\t \r\nEmpty:\r\nB: \xe9\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
            script = head + b"1\r\nx\r\n0\r\nAuthorization: late\r\nC: d\r\n\r\nGET /b HTTP/1.1\r\nE: f\r\n\r\n"
            first = {"x-a": "b, c", "empty": "", "b": "\xe9", "transfer-encoding": "chunked"}
            for pieces in splits(script):
                await talk.send(*pieces)
                await talk.expect_answer(echo_answer(b"POST /a x") + echo_answer(b"GET /b "))
                assert seen == [first, {"e": "f"}]
                seen.clear()

    play(test)


# --- bodies that wait for a word --------------------------------------------------------------------------------------

EXPECTS = b"POST /a HTTP/1.1\r\nContent-Length: 3\r\nExpect: 100-Continue\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def test_a_client_that_waits_is_told_to_go_on(play: Test) -> None:
    async def test() -> None:
        async with run_server() as made:
            talk = made.connect_client()
            await talk.send(EXPECTS)
            await talk.expect_answer(CONTINUE)
            await talk.send(b"abc")
            await talk.expect_answer(echo_answer(b"POST /a abc"))
            await talk.send(EXPECTS + b"abc")  # it did not wait: nobody tells it anything
            await talk.expect_answer(echo_answer(b"POST /a abc"))

    play(test)


def test_the_word_to_go_on_waits_for_its_turn(play: Test) -> None:
    async def test() -> None:
        go = asyncio.Event()

        async def slow(incoming: ClientRequest) -> None:
            await incoming.start_response(200, {})
            incoming.write_nowait(b"one")
            await go.wait()
            await incoming.send_body(b"two", more=False)

        async with run_server(by_path({"/slow": slow})) as made:
            talk = made.connect_client()
            await talk.send(b"GET /slow HTTP/1.1\r\n\r\n" + EXPECTS)
            await talk.expect_answer(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n")
            await run_loop_once()
            go.set()
            await talk.expect_answer(b"3\r\ntwo\r\n0\r\n\r\n" + CONTINUE)
            await talk.send(b"abc")
            await talk.expect_answer(echo_answer(b"POST /a abc"))

    play(test)


async def answer_unread(incoming: ClientRequest) -> None:
    """Answers without a look at the body."""
    await incoming.start_response(401, {"content-length": "2"})
    await incoming.send_body(b"no", more=False)


def test_a_client_whose_body_is_not_wanted_is_not_told_to_go_on(play: Test) -> None:
    async def test() -> None:
        async with run_server(answer_unread) as made:
            talk = made.connect_client()
            await talk.send(EXPECTS)
            assert await talk.read_rest() == echo_answer(b"no", CLOSE, status=401)

    play(test)


# --- limits -----------------------------------------------------------------------------------------------------------

LONG = refusal_answer(431, b"the head of a request is longer than 65,536 bytes\n")
HUGE = 8 * 1024 * 1024
LARGE: dict[str, tuple[bytes, bytes]] = {
    "a length": (b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % HUGE, b"x" * HUGE),
    "an old one": (b"POST / HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % HUGE, b"x" * HUGE),
    "one chunk": (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % HUGE, b"x" * HUGE),
    "chunks": (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", b"10\r\n0123456789abcdef\r\n" * (HUGE // 64)),
    "an upgrade": (
        b"POST / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: h2c\r\nContent-Length: %d\r\n\r\n" % HUGE,
        b"x" * HUGE,
    ),
}
HEADS: dict[str, bytes] = {
    "long path": b"GET /" + b"a" * HUGE,
    "long value": b"GET / HTTP/1.1\r\nA: " + b"a" * HUGE,
    "long name": b"GET / HTTP/1.1\r\n" + b"a" * HUGE,
    "many headers": b"GET / HTTP/1.1\r\n" + b"a:\r\n" * (HUGE // 4),
    "empty lines": b"\r\n" * (HUGE // 2),
    "after the body": b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: " + b"a" * HUGE,
    "many after the body": b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"a:\r\n" * (HUGE // 4),
    "between chunks": b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;" + b"a" * HUGE,
}


@pytest.mark.parametrize("case", LARGE)
def test_a_client_that_sends_too_much_sends_to_the_end_and_then_hears_of_it(case: str, play: Test) -> None:
    head, body = LARGE[case]

    async def test() -> None:
        async with run_server() as made:
            talk = made.connect_client()
            await talk.send(head)
            await talk.send(body)
            assert await talk.read_rest() == echo_answer(b"large", CLOSE, status=413)
            await made.check_new_client()

    play(test)


@pytest.mark.parametrize("case", HEADS)
def test_a_head_without_end(case: str, play: Test) -> None:
    async def test() -> None:
        async with run_server() as made:
            talk = made.connect_client()
            await talk.send(HEADS[case])
            assert await talk.read_rest() == LONG
            await made.check_new_client()

    play(test)


UNFINISHED = {
    "one long header": b"GET / HTTP/1.1\r\nx: " + b"x" * 60_000,
    "many headers": b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 2_000,
}


@pytest.mark.parametrize("case", UNFINISHED)
def test_heads_that_do_not_end_are_in_the_memory_budget(case: str, play: Test) -> None:
    async def test() -> None:
        admission = Admission(ServerSettings(max_memory=1_000_000))
        async with run_server(echo, admission) as made:
            talks = [made.connect_client() for _ in range(20)]
            for talk in talks:
                await talk.send(UNFINISHED[case])
            await wait_until_true(lambda: sum(one.ignores_input for one in made.server.connections) > 5)
            assert admission.memory.used <= admission.memory.limit
            refusals = [one for one in made.server.connections if one.ignores_input]
            assert all(one.error_response.startswith(b"HTTP/1.1 503 ") for one in refusals)
            assert all(b"retry-after: 2\r\n" in one.error_response for one in refusals)
            await made.check_new_client()
            held = [one for one in made.server.connections if not one.ignores_input and one.held_input]
            assert sum(one.held_input for one in held) == admission.memory.used > 0
            for talk in talks:
                talk.leave()
            await made.wait_until_empty()
            assert admission.memory.used == 0

    play(test)


def test_heads_that_were_refused_hold_nothing(play: Test) -> None:
    """Their clients may wait for a while before they close."""

    async def test() -> None:
        admission = Admission(ServerSettings(max_memory=1_000_000))
        async with run_server(echo, admission) as made:
            tracemalloc.start()
            try:
                for _ in range(80):
                    await made.connect_client().send(UNFINISHED["one long header"])
                await wait_until_true(lambda: sum(one.ignores_input for one in made.server.connections) > 60)
                held = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, accepted.__file__)])
            finally:
                tracemalloc.stop()
            assert sum(trace.size for trace in held.traces) <= 2 * admission.memory.limit

    play(test)


def test_requests_that_wait_are_in_the_memory_budget(play: Test) -> None:
    async def test() -> None:
        go = asyncio.Event()

        async def wait(incoming: ClientRequest) -> None:
            await go.wait()
            await echo(incoming)

        admission = Admission(ServerSettings())
        async with run_server(wait, admission) as made:
            talk = made.connect_client()
            await talk.send(b"GET /a HTTP/1.1\r\n\r\n" + b"GET /b HTTP/1.1\r\n\r\n" * 1000)
            await wait_until_true(lambda: admission.memory.used >= 10_000)
            go.set()
            await talk.read_until(lambda got: got.count(b"GET /b ") == 1000)
            assert admission.memory.used == 0

    play(test)


@pytest.mark.parametrize("silent", [False, True])
def test_what_lingers_is_cut_in_the_end(silent: bool, play: Test) -> None:
    async def test() -> None:
        async with run_server() as made:
            talk = made.connect_client()
            await talk.send(b"nonsense\r\n\r\n")
            assert await talk.read_rest() == no_request(b"Invalid method encountered")
            connection = await made.wait_for_connection()
            started = made.server.time()
            made.server.sweep_connections(started + accepted.LINGER_SILENCE_SECONDS - 1)
            assert not connection.transport.is_closing()
            if not silent:
                connection.last_activity = started + accepted.LINGER_SECONDS
                made.server.sweep_connections(started + accepted.LINGER_SECONDS - 1)
                assert not connection.transport.is_closing()
            made.server.sweep_connections(
                started + (accepted.LINGER_SILENCE_SECONDS if silent else accepted.LINGER_SECONDS) + 1
            )
            await made.wait_until_empty()

    play(test)


# --- several at once --------------------------------------------------------------------------------------------------


def test_many_requests_ahead_of_their_answers(play: Test) -> None:
    count = 640

    async def test() -> None:
        async with run_server() as made:
            talk = made.connect_client()
            script = b"".join(
                b"POST /%d HTTP/1.1\r\nContent-Length: 700\r\n\r\n%700d" % (at, at) for at in range(count)
            )
            sending = asyncio.ensure_future(talk.send(script))
            await talk.expect_answer(b"".join(echo_answer(b"POST /%d %700d" % (at, at)) for at in range(count)))
            await sending
            await talk.send(b"GET /a HTTP/1.1\r\n\r\n")
            await talk.expect_answer(echo_answer(b"GET /a "))

    play(test)


def test_many_offers_to_speak_something_else(play: Test) -> None:
    count = 2000

    async def test() -> None:
        async with run_server() as made:
            talk = made.connect_client()
            script = b"POST /a HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 1\r\n\r\nx"
            sending = asyncio.ensure_future(talk.send(script * count + b"CONNECT a:1 HTTP/1.1\r\n\r\n"))
            refusal = refusal_answer(501, b"CONNECT is not supported\n")
            await talk.expect_answer(echo_answer(b"POST /a x") * count + refusal)
            await sending

    play(test)


def test_a_client_that_sends_ahead_for_ever_is_held_back(play: Test) -> None:
    async def test() -> None:
        go = asyncio.Event()

        async def stuck(incoming: ClientRequest) -> None:
            await go.wait()
            await echo(incoming)

        async with run_server(stuck) as made:
            talk = made.connect_client()
            script = b"POST /a HTTP/1.1\r\nContent-Length: 900\r\n\r\n" + b"x" * 900
            sending = asyncio.ensure_future(talk.send(script * 20_000))
            connection = await made.wait_for_connection()
            await wait_until_true(lambda: connection.is_reading_paused)
            for _ in range(100):
                await run_loop_once()
            assert not connection.pipelined
            assert not sending.done()
            sending.cancel()
            await asyncio.wait((sending,))
            go.set()

    play(test)


def test_a_large_body_that_nobody_reads_yet_is_held_back(play: Test) -> None:
    async def test() -> None:
        go = asyncio.Event()

        async def later(incoming: ClientRequest) -> None:
            await go.wait()
            body = await incoming.read_raw_body(1 << 30)
            out = str(len(body or b"")).encode()
            await incoming.start_response(200, {"content-length": str(len(out))})
            await incoming.send_body(out, more=False)

        async with run_server(later) as made:
            talk = made.connect_client()
            size = 64 * 1024 * 1024
            sending = asyncio.ensure_future(
                talk.send(b"POST /a HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % size, bytes(size))
            )
            connection = await made.wait_for_connection()
            await wait_until_true(lambda: connection.is_reading_paused)
            for _ in range(100):
                await run_loop_once()
            assert not sending.done()
            made.server.sweep_connections(
                made.server.time() + 10 * accepted.REQUEST_SECONDS
            )  # it is not the client that is slow
            go.set()
            await talk.expect_answer(echo_answer(b"67108864"))
            await sending

    play(test)


# --- answers ----------------------------------------------------------------------------------------------------------

GET = b"GET /answer HTTP/1.1\r\n\r\n"
OLD = b"GET /answer HTTP/1.0\r\n\r\n"
HEAD = b"HEAD /answer HTTP/1.1\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
SHOWN: dict[str, tuple[bytes, int, dict[str, str], tuple[bytes, ...], bytes]] = {
    "stream": (GET, 200, {}, (b"one", b"two", b""), CHUNKED + b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"),
    "empty pieces end nothing": (GET, 200, {}, (b"", b"a", b"", b"", b"b"), CHUNKED + b"1\r\na\r\n1\r\nb\r\n0\r\n\r\n"),
    "empty stream": (GET, 200, {}, (b"",), CHUNKED + b"0\r\n\r\n"),
    "stream for an old client": (
        OLD,
        200,
        {},
        (b"one", b"", b"two"),
        b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nonetwo",
    ),
    "stream of which only the head is wanted": (HEAD, 200, {}, (b"one", b"two"), CHUNKED),
    "length in pieces": (GET, 200, {"content-length": "6"}, (b"one", b"two", b""), echo_answer(b"onetwo")),
    "large": (GET, 200, {"content-length": "3000000"}, (b"x" * 3_000_000,), echo_answer(b"x" * 3_000_000)),
    "no phrase": (GET, 299, {"content-length": "1"}, (b"x",), b"HTTP/1.1 299 \r\ncontent-length: 1\r\n\r\nx"),
    "nothing": (GET, 204, {"content-length": "0", "a": "b"}, (b"",), b"HTTP/1.1 204 No Content\r\na: b\r\n\r\n"),
    "nothing, and more": (GET, 204, {}, (b"x", b"y"), b"HTTP/1.1 204 No Content\r\n\r\n"),
    "not modified": (GET, 304, {}, (b"x",), b"HTTP/1.1 304 Not Modified\r\n\r\n"),
    "lines in a value": (
        GET,
        200,
        {"a": "b\r\nset-cookie: c\r\n\r\nd", "content-length": "0"},
        (b"",),
        b"HTTP/1.1 200 OK\r\na: b  set-cookie: c    d\r\ncontent-length: 0\r\n\r\n",
    ),
    "one line end": (
        GET,
        200,
        {"a": "b\nc", "d": "e\rf", "g": "h\0i", "content-length": "0"},
        (b"",),
        b"HTTP/1.1 200 OK\r\na: b c\r\nd: e f\r\ng: h i\r\ncontent-length: 0\r\n\r\n",
    ),
    "lines in a name": (GET, 200, {"a\r\nb": "c", "content-length": "0"}, (b"",), echo_answer(b"")),
    "signs of a pattern": (
        GET,
        200,
        {"a%s": "%d", "%": "100 %", "content-length": "0"},
        (b"",),
        b"HTTP/1.1 200 OK\r\na%s: %d\r\n%: 100 %\r\ncontent-length: 0\r\n\r\n",
    ),
    "letters of the world": (
        GET,
        200,
        {"a": "é→", "content-length": "0"},
        (b"",),
        b"HTTP/1.1 200 OK\r\na: \xe9?\r\ncontent-length: 0\r\n\r\n",
    ),
}


@pytest.mark.parametrize("case", SHOWN)
def test_an_answer_as_bytes(case: str, play: Test) -> None:
    asked, status, headers, pieces, expected = SHOWN[case]

    async def answer(incoming: ClientRequest) -> None:
        await incoming.read_raw_body(LIMIT)
        await incoming.start_response(status, headers)
        for piece in pieces[:-1]:
            await incoming.send_body(piece, more=True)
        await incoming.send_body(pieces[-1], more=False)

    async def test() -> None:
        async with run_server(by_path({"/answer": answer})) as made:
            talk = made.connect_client()
            await talk.send(asked)
            await talk.expect_answer(expected)
            if asked is OLD:
                assert await talk.read_rest() == b""
            else:
                await talk.send(b"GET /a HTTP/1.1\r\n\r\n")
                await talk.expect_answer(echo_answer(b"GET /a "))

    play(test)


@pytest.mark.parametrize("length", ["5", "1"])
def test_an_answer_of_another_length_than_it_promised_ends_the_connection(length: str, play: Test) -> None:
    async def answer(incoming: ClientRequest) -> None:
        await incoming.start_response(200, {"content-length": length})
        await incoming.send_body(b"abc", more=False)

    async def test() -> None:
        async with run_server(answer) as made:
            talk = made.connect_client()
            await talk.send(GET + GET)
            assert (await talk.read_until_reset()).count(b"HTTP/1.1") <= 1

    play(test)


def test_a_body_that_nobody_looked_at_is_not_taken_for_a_request(play: Test) -> None:
    async def test() -> None:
        async with run_server(answer_unread) as made:
            inner = b"GET /inner HTTP/1.1\r\n\r\n"
            head = b"POST /a HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(inner)
            talk = made.connect_client()
            await made.wait_for_connection()
            await talk.send(head)
            await talk.read_until(lambda got: got.endswith(b"no"))
            await talk.send(inner)
            assert await talk.read_rest() == echo_answer(b"no", CLOSE, status=401)
            talk.leave()
            talk = made.connect_client()
            await talk.send(head + inner)
            await talk.expect_answer(echo_answer(b"no", status=401))  # it was whole before the answer
            await talk.send(head + inner)
            await talk.expect_answer(echo_answer(b"no", status=401))

    play(test)


# --- handlers that fail -----------------------------------------------------------------------------------------------


async def raise_after_body(incoming: ClientRequest) -> None:
    await incoming.read_raw_body(LIMIT)
    raise ValueError("before")


async def raises_unread(incoming: ClientRequest) -> None:
    raise ValueError("before")


async def raises_with_head(incoming: ClientRequest) -> None:
    await incoming.start_response(200, {})
    raise ValueError("before")


async def raises_within(incoming: ClientRequest) -> None:
    await incoming.start_response(200, {})
    await incoming.send_body(b"part", more=True)
    raise ValueError("within")


async def raises_after(incoming: ClientRequest) -> None:
    await echo(incoming)
    raise ValueError("after")


async def says_nothing(incoming: ClientRequest) -> None:
    pass


async def stops_within(incoming: ClientRequest) -> None:
    await incoming.start_response(200, {})
    await incoming.send_body(b"part", more=True)


async def gives_up(incoming: ClientRequest) -> None:
    await incoming.start_response(200, {})
    await incoming.send_body(b"part", more=True)
    incoming.abort()


async def says_too_much(incoming: ClientRequest) -> None:
    await echo(incoming)
    await incoming.send_body(b"and", more=True)
    await incoming.start_response(200, {})
    await incoming.send_body(b"more", more=False)
    incoming.abort()


async def is_cancelled(incoming: ClientRequest) -> None:
    raise asyncio.CancelledError


async def takes_it_for_gone(incoming: ClientRequest) -> None:
    raise ClientDisconnected


PART = CHUNKED + b"4\r\npart\r\n"
LEFT = "RuntimeError: the task of a request ended without an answer"
FAILING: dict[str, tuple[Callable[[ClientRequest], Coroutine[Any, Any, None]], bytes, bool, list[str]]] = {
    "raises": (raise_after_body, BROKEN, True, ["ValueError: before"]),
    "raises without a look": (raises_unread, BROKEN, True, ["ValueError: before"]),
    "raises with the head ready": (raises_with_head, BROKEN, True, ["ValueError: before"]),
    "raises within": (raises_within, PART, False, ["ValueError: within"]),
    "raises after": (raises_after, echo_answer(b"GET /answer "), True, ["ValueError: after"]),
    "says nothing": (says_nothing, BROKEN, True, [LEFT]),
    "stops within": (stops_within, PART, False, []),
    "gives up": (gives_up, PART, False, []),
    "says too much": (says_too_much, echo_answer(b"GET /answer "), True, []),
    "is cancelled": (is_cancelled, b"", False, []),
    "takes it for gone": (takes_it_for_gone, b"", False, []),
}


@pytest.mark.parametrize("case", FAILING)
def test_a_handler_that_fails(case: str, play: Test) -> None:
    handle, expected, kept, faults = FAILING[case]

    async def test() -> None:
        async with run_server(by_path({"/answer": handle})) as made:
            talk = made.connect_client()
            await talk.send(GET)
            if kept:
                await talk.expect_answer(expected)
                await talk.send(b"GET /a HTTP/1.1\r\n\r\n")
                await talk.expect_answer(echo_answer(b"GET /a "))
                made.leave_all()
            else:
                got = await talk.read_until_reset()
                assert expected.startswith(got)
                assert b"\r\n0\r\n" not in got
            assert await made.take_faults() == faults

    play(test)


def test_an_old_client_sees_that_a_stream_has_no_end(play: Test) -> None:
    async def test() -> None:
        async with run_server(stops_within) as made:
            talk = made.connect_client()
            await talk.send(OLD)
            with pytest.raises(ConnectionResetError):
                await talk.read_rest()

    play(test)


def test_a_fault_while_telling_of_a_fault(play: Test) -> None:
    async def test() -> None:
        async with run_server(raise_after_body) as made:

            async def broken(incoming: ClientRequest, error: BaseException) -> None:
                raise KeyError("again")

            made.server._on_error = broken
            talk = made.connect_client()
            await talk.send(GET)
            assert await talk.read_until_reset() == b""
            await made.wait_until_empty()
            (context,) = made.noise
            assert repr(context["exception"]) == "KeyError('again')"
            made.noise.clear()

    play(test)


# --- clients that leave, or do not read -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sent", [b"POST /a HTTP/1.1\r\nContent-Le", b"POST /a HTTP/1.1\r\nContent-Length: 3\r\n\r\nab", b""]
)
def test_a_client_that_leaves_before_its_request_is_whole(sent: bytes, play: Test) -> None:
    async def test() -> None:
        ended: list[str] = []

        async def handle(incoming: ClientRequest) -> None:
            try:
                await incoming.read_raw_body(LIMIT)
            except ClientDisconnected:
                ended.append("gone")
                raise

        async with run_server(handle) as made:
            talk = made.connect_client()
            await talk.send(sent, b"")
            await made.wait_for_connection()
            talk.leave()
            await made.wait_until_empty()
            assert ended == (["gone"] if sent.endswith(b"ab") else [])

    play(test)


class Works:
    """A handler that waits within its answer, and tells how that ended."""

    def __init__(self, cancels: bool, stream: bool) -> None:
        self._cancels, self._stream = cancels, stream
        self.waits, self.go, self.ended = asyncio.Event(), asyncio.Event(), ""

    async def __call__(self, incoming: ClientRequest) -> None:
        await incoming.read_raw_body(LIMIT)
        if self._stream:
            await incoming.start_response(200, {})
            await incoming.send_body(b"part", more=True)
        incoming.watch_disconnect(self._cancels)
        try:
            self.waits.set()
            await self.go.wait()
            self.ended = "worked"
        except asyncio.CancelledError:
            self.ended = "cancelled"
            raise
        if not self._stream:
            await incoming.start_response(200, {})
        await incoming.send_body(b"rest", more=False)


@pytest.mark.parametrize("half", [False, True], ids=["closed", "half closed"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("cancels", [False, True])
def test_a_client_that_leaves_cancels_what_is_done_for_it_if_so_wanted(
    cancels: bool, stream: bool, half: bool, play: Test
) -> None:
    async def test() -> None:
        works = Works(cancels, stream)
        async with run_server(works) as made:
            talk = made.connect_client()
            await talk.send(GET)
            await works.waits.wait()
            if stream:
                await talk.read_until(lambda got: got.endswith(b"part\r\n"))
            if half:
                talk.socket.shutdown(socket.SHUT_WR)
            else:
                talk.leave()
            await wait_until_true(lambda: not made.server.connections)
            if not cancels:
                works.go.set()
            await made.wait_until_empty()
            assert works.ended == ("cancelled" if cancels else "worked")

    play(test)


def test_a_client_that_left_before_anybody_watched(play: Test) -> None:
    async def test() -> None:
        ended: list[str] = []

        async def handle(incoming: ClientRequest) -> None:
            while not incoming.is_disconnected:
                await asyncio.sleep(0)
            incoming.watch_disconnect(True)
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("cancelled")

        async with run_server(handle) as made:
            talk = made.connect_client()
            await talk.send(GET)
            await made.wait_for_connection()
            talk.leave()
            await made.wait_until_empty()
            assert ended == ["cancelled"]

    play(test)


@pytest.mark.parametrize("leaves", [False, True])
def test_a_client_that_does_not_read_holds_the_answer_back(leaves: bool, play: Test) -> None:
    piece, count = b"x" * 50_000, 200

    async def test() -> None:
        full = asyncio.Event()
        largest = 0

        async def handle(incoming: ClientRequest) -> None:
            nonlocal largest
            await incoming.start_response(200, {"content-length": str(count * len(piece))})
            for _ in range(count):
                if not incoming.write_nowait(piece):
                    other = asyncio.ensure_future(incoming.drain())
                    await run_loop_once()
                    held = sum(each.transport.get_write_buffer_size() for each in made.server.connections)
                    largest = max(largest, held)
                    if held:
                        full.set()
                    other.cancel()  # one that waits no more takes nothing from the other
                    await incoming.drain()
            await incoming.send_body(b"", more=False)

        async with run_server(handle) as made:
            talk = made.connect_client(small=True)
            await talk.send(GET)
            await full.wait()
            for _ in range(20):
                await run_loop_once()
            assert made.server.tasks
            if not leaves:
                await talk.skip(len(echo_answer(piece * count)))
            talk.leave()
            await made.wait_until_empty()
            assert 0 < largest < 4 * 65536

    play(test)


# --- time -------------------------------------------------------------------------------------------------------------


def test_an_idle_connection_is_closed_in_the_end(play: Test) -> None:
    async def test() -> None:
        async with run_server() as made:
            fresh, used = made.connect_client(), made.connect_client()
            await used.send(b"GET /a HTTP/1.1\r\n\r\n")
            await used.expect_answer(echo_answer(b"GET /a "))
            await wait_until_true(lambda: len(made.server.connections) == 2)
            made.server.sweep_connections(made.server.time() + accepted.IDLE_SECONDS - 5)
            await used.send(b"GET /a HTTP/1.1\r\n\r\n")
            await used.expect_answer(echo_answer(b"GET /a "))
            made.server.sweep_connections(made.server.time() + accepted.IDLE_SECONDS + 5)
            assert await fresh.read_rest() == b""
            assert await used.read_rest() == b""

    play(test)


SLOWLY = refusal_answer(408, b"the rest of the request did not come in 60 seconds\n")


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /a HTTP/1.1\r\nA: ",
        b"POST /a HTTP/1.1\r\nContent-Length: 3\r\n\r\nab",
        b"POST /a HTTP/1.1\r\nContent-Length: 3\r\n\r\n",
        b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nA: ",
    ],
)
def test_a_request_that_does_not_come_on_is_given_up(sent: bytes, play: Test) -> None:
    async def test() -> None:
        async with run_server() as made:
            talk = made.connect_client()
            await talk.send(sent, b"")
            await made.wait_for_connection()
            made.server.sweep_connections(made.server.time() + accepted.REQUEST_SECONDS - 5)
            made.server.sweep_connections(made.server.time() + accepted.REQUEST_SECONDS + 5)
            assert await talk.read_rest() == SLOWLY

    play(test)


def test_a_head_that_comes_in_drops_is_slow_too(play: Test) -> None:
    async def test() -> None:
        async with run_server() as made:
            talk = made.connect_client()
            await talk.send(b"GET /a HTTP/1.1\r\n", b"")
            connection = await made.wait_for_connection()
            since = connection.last_activity
            await talk.send(b"A: b\r\n", b"C")
            assert connection.last_activity == since
            made.server.sweep_connections(since + accepted.REQUEST_SECONDS + 1)
            assert await talk.read_rest() == SLOWLY

    play(test)


def test_nobody_is_slow_while_the_work_is_ours(play: Test) -> None:
    async def test() -> None:
        works = Works(True, False)
        async with run_server(works) as made:
            talk = made.connect_client()
            await talk.send(GET + b"POST /b HTTP/1.1\r\nContent-Length: 3\r\n\r\na")
            await works.waits.wait()
            made.server.sweep_connections(made.server.time() + 100 * accepted.IDLE_SECONDS)
            works.go.set()
            await talk.expect_answer(CHUNKED + b"4\r\nrest\r\n0\r\n\r\n")

    play(test)


@pytest.mark.parametrize("whole", [False, True])
def test_a_client_that_never_reads_is_cut_in_the_end(whole: bool, play: Test) -> None:
    async def test() -> None:
        async def handle(incoming: ClientRequest) -> None:
            incoming.watch_disconnect(True)
            await incoming.start_response(200, {})
            await incoming.send_body(bytes(16_000_000), more=not whole)

        async with run_server(handle) as made:
            talk = made.connect_client(small=True)
            await talk.send(GET)
            connection = await made.wait_for_connection()
            await wait_until_true(lambda: connection.write_blocked is not None)
            now = made.server.time()
            made.server.sweep_connections(now)
            made.server.sweep_connections(now + accepted.UNREAD_SECONDS - 5)
            assert not connection.transport.is_closing()
            made.server.sweep_connections(now + 2 * accepted.UNREAD_SECONDS)
            await made.wait_until_empty()

    play(test)


# --- the end ----------------------------------------------------------------------------------------------------------


def test_closing_lets_what_is_under_way_finish(play: Test) -> None:
    async def test() -> None:
        works = Works(True, False)
        async with run_server(by_path({"/answer": works})) as made:
            idle, busy, coming = made.connect_client(), made.connect_client(), made.connect_client()
            await coming.send(b"GET /a HT", b"")
            await busy.send(GET)
            await works.waits.wait()
            await wait_until_true(lambda: len(made.server.connections) == 3)
            closing = asyncio.ensure_future(made.server.close(None))
            assert await idle.read_rest() == b""
            with pytest.raises(ConnectionRefusedError):
                made.connect_client()
            await coming.send(b"TP/1.1\r\n\r\n")
            assert await coming.read_rest() == echo_answer(b"GET /a ", CLOSE)
            assert not closing.done()
            works.go.set()
            head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
            assert await busy.read_rest() == head + b"4\r\nrest\r\n0\r\n\r\n"
            await closing

    play(test)


@pytest.mark.parametrize("cancels", [False, True])
@pytest.mark.parametrize("told", [False, True], ids=["deadline", "told again"])
def test_closing_cuts_what_does_not_finish(told: bool, cancels: bool, play: Test) -> None:
    async def test() -> None:
        works = Works(cancels, True)
        async with run_server(works) as made:
            talk = made.connect_client()
            await talk.send(GET)
            await works.waits.wait()
            closing = asyncio.ensure_future(made.server.close(None if told else 0.001))
            if told:
                await run_loop_once()
                closing.cancel()
            await asyncio.wait((closing,))
            assert PART.startswith(await talk.read_until_reset())
            assert works.ended == "cancelled"
            assert not made.server.connections
            assert not made.server.tasks

    play(test)


# --- chance -----------------------------------------------------------------------------------------------------------

ROUNDS = 400
"""For each seed."""


def mutate_script(chance: random.Random, seeds: list[bytes]) -> bytes:
    script = bytearray(b"".join(chance.choices(seeds, k=chance.randint(1, 3))))
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(script) + 1)
        kind = chance.randrange(5)
        if kind == 0:
            script[at : at + 1] = bytes((chance.randrange(256),))
        elif kind == 1:
            del script[at : at + chance.randint(1, 20)]
        elif kind == 2:
            script[at:at] = chance.choice(
                (b"\r\n", b"\n", b"\0", b"0", b": ", b"\r\n\r\n", b"Content-Length: 5\r\n", b" ")
            )
        elif kind == 3:
            script[at:at] = script[at : at + chance.randint(1, 50)]
        else:
            del script[at:]
    return bytes(script)


@pytest.mark.parametrize("seed", range(5))
def test_whatever_comes_is_answered_or_closed(seed: int, play: Test) -> None:
    """A client that has sent its bytes and shuts its side sees the end, whatever they were."""
    chance = random.Random(seed)
    seeds = [script for script, _ in (*KEPT.values(), *CLOSED.values()) if len(script) < 300]

    async def test() -> None:
        async with run_server() as made:
            for _ in range(ROUNDS):
                script = mutate_script(chance, seeds)
                at = chance.randint(0, len(script))
                talk = made.connect_client()
                try:
                    await talk.send(script[:at], script[at:])
                    await run_loop_once()
                    talk.socket.shutdown(socket.SHUT_WR)
                except OSError:
                    pass  # it was closed before
                got = await talk.read_until_reset()
                assert not got or got.startswith(b"HTTP/1.1 ")
                talk.leave()
            await made.check_new_client()

    play(test)
