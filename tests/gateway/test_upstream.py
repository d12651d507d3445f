"""The client for providers against servers that misbehave on purpose, over real sockets, on both event loops."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import gzip
import zlib
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from gateway.misbehaving_providers import (
    LOOPS,
    OK,
    PATH,
    Peer,
    client,
    expect_transport_error,
    on_loop,
    provider,
    read_chunks,
    send_post,
)
from toolwire.gateway.http.client import HttpResponse, UpstreamClient
from toolwire.gateway.http.connection import TransportError
from toolwire.gateway.http.headers import Headers
from toolwire.gateway.http.messages import UpstreamRequest
from toolwire.gateway.settings.address import Address

Test = Callable[[Coroutine[Any, Any, None]], None]
LIMIT = 1 << 20


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Test:
    return partial(on_loop, request.param)


def answer_once(*pieces: bytes) -> Callable[[Peer], Awaitable[None]]:
    """One request, these bytes, and the connection is closed."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(*pieces)

    return script


async def answer_until_closed(peer: Peer) -> None:
    """Answers until the client leaves."""
    while True:
        await peer.request()
        await peer.send(OK)


# --- addresses ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "path", "target"),
    [
        ("https://host", "/v1/chat/completions", "/v1/chat/completions"),
        ("https://host/", "/v1/chat/completions", "/v1/chat/completions"),
        ("https://host/v1", "/v1/chat/completions", "/v1/chat/completions"),
        ("https://host/v1/", "/v1/chat/completions", "/v1/chat/completions"),
        ("https://api.groq.com/openai/v1", "/v1/chat/completions", "/openai/v1/chat/completions"),
        ("https://host/api", "/v1/messages", "/api/v1/messages"),
        ("https://x/paas/v4", "/v1/chat/completions", "/paas/v4/chat/completions"),
        ("https://x/v1beta", "/v1beta/models/m:generateContent?alt=sse", "/v1beta/models/m:generateContent?alt=sse"),
        ("https://x", "/v1beta/models/m:generateContent?alt=sse", "/v1beta/models/m:generateContent?alt=sse"),
        ("https://x/v1", "/models", "/v1/models"),
        ("https://x/v1", "/v1", "/v1"),
        ("https://x/v1x", "/v1/models", "/v1x/v1/models"),
        (
            "https://x/openai/deployments/d?api-version=2024",
            "/v1/models",
            "/openai/deployments/d/models?api-version=2024",
        ),
        ("https://x?api-version=2024", "/v1/models?a=b", "/models?a=b&api-version=2024"),
        ("https://x/v1beta/openai/", "/v1/chat/completions", "/v1beta/openai/chat/completions"),
        ("https://x/inference/chat/completions", "/v1/chat/completions", "/inference/chat/completions"),
    ],
)
def test_a_path_is_joined_to_the_base(base: str, path: str, target: str) -> None:
    assert Address.parse(base).request_target(path) == target


@pytest.mark.parametrize(
    ("url", "host", "port", "authority"),
    [
        ("https://api.example.com/v1", "api.example.com", 443, "api.example.com"),
        ("http://api.example.com:8080", "api.example.com", 8080, "api.example.com:8080"),
        ("https://API.example.com:443", "api.example.com", 443, "api.example.com"),
        ("http://[::1]:11434/v1", "::1", 11434, "[::1]:11434"),
        ("http://[::1]", "::1", 80, "[::1]"),
        ("https://bücher.example", "xn--bcher-kva.example", 443, "xn--bcher-kva.example"),
    ],
)
def test_an_address_is_taken_apart(url: str, host: str, port: int, authority: str) -> None:
    address = Address.parse(url)
    assert (address.host, address.port, address.authority) == (host, port, authority)
    assert hash(address) == hash(Address.parse(url))


@pytest.mark.parametrize(
    ("url", "proxy", "complaint"),
    [
        ("https://me:sesame@host/v1", "", "api_key_env"),
        ("ftp://host", "", "must begin with http"),
        ("host/v1", "", "must begin with http"),
        ("https://", "", "must name a host"),
        ("https://host:port", "", "invalid host or port"),
        ("https://host:99999", "", "invalid host or port"),
        ("https://[::1", "", "invalid host or port"),
        ("https://ho st", "", "spaces"),
        ("https://host/\r\nx", "", "spaces or control"),
        ("https://host", "socks5://sesame@host", "a proxy URL must begin with http"),
        ("https://" + "ü" * 70, "", "invalid host or port"),
    ],
)
def test_an_unfit_url_is_refused_with_a_sentence_that_shows_no_password(url: str, proxy: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as caught:
        Address.parse(url, proxy=proxy)
    assert "sesame" not in str(caught.value)


def test_an_address_never_shows_the_password_of_its_proxy() -> None:
    address = Address.parse("https://host:8443/v1", proxy="http://me:sesame@proxy:3128")
    assert repr(address) == "Address(https://host:8443/v1 through a proxy)"


# --- answers, by the bytes of the server ----------------------------------------------------------------------------

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
PACKED = gzip.compress(b"hello " * 50)
BARE = zlib.compressobj(wbits=-15)


def answer_with_length(*lines: bytes, body: bytes) -> bytes:
    return HEAD + b"".join(line + b"\r\n" for line in lines) + b"content-length: %d\r\n\r\n" % len(body) + body


ANSWERS: dict[str, tuple[bytes, int, bytes | str]] = {
    "with a length": (answer_with_length(body=b"hello"), 200, b"hello"),
    "empty": (answer_with_length(body=b""), 200, b""),
    "an error": (b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 4\r\n\r\nslow", 429, b"slow"),
    "without a reason": (b"HTTP/1.1 200\r\ncontent-length: 2\r\n\r\nok", 200, b"ok"),
    "chunked": (CHUNKED + b"5\r\nhello\r\n6;ext=1\r\n world\r\n0\r\n\r\n", 200, b"hello world"),
    "chunked, with trailers": (CHUNKED + b"5\r\nhello\r\n0\r\nchecksum: 1\r\n\r\n", 200, b"hello"),
    "until it closes": (HEAD + b"\r\nhello", 200, b"hello"),
    "of HTTP/1.0": (b"HTTP/1.0 200 OK\r\n\r\nhello", 200, b"hello"),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
    "not modified": (b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n", 304, b""),
    "after a 100": (b"HTTP/1.1 100 Continue\r\n\r\n" + answer_with_length(body=b"hello"), 200, b"hello"),
    "after hints": (
        b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" * 3 + answer_with_length(body=b"hello"),
        200,
        b"hello",
    ),
    "with an offer to upgrade": (
        answer_with_length(b"upgrade: h2c", b"connection: upgrade", body=b"hello"),
        200,
        b"hello",
    ),
    "in gzip": (answer_with_length(b"content-encoding: gzip", body=PACKED), 200, b"hello " * 50),
    "in two gzips": (answer_with_length(b"content-encoding: x-gzip", body=PACKED + PACKED), 200, b"hello " * 100),
    "in gzip, padded": (answer_with_length(b"content-encoding: GZIP", body=PACKED + b"\0\0"), 200, b"hello " * 50),
    "in deflate": (answer_with_length(b"content-encoding: deflate", body=zlib.compress(b"hello")), 200, b"hello"),
    "in bare deflate": (
        answer_with_length(b"content-encoding: deflate", body=BARE.compress(b"hello") + BARE.flush()),
        200,
        b"hello",
    ),
    "empty, in gzip": (answer_with_length(b"content-encoding: gzip", body=b""), 200, b""),
    "in something unknown": (answer_with_length(b"content-encoding: br", body=b"hello"), 200, b"hello"),
    "more than was promised": (answer_with_length(body=b"hello") + b"HTTP/1.1 200 OK\r\n", 200, b"hello"),
    "more, a whole answer": (answer_with_length(body=b"hello") + answer_with_length(body=b"other"), 200, b"hello"),
    "more, and garbage": (answer_with_length(body=b"hello") + b"garbage", 200, b"hello"),
    "cut by its length": (HEAD + b"content-length: 9\r\n\r\nhello", 200, "connection-closed"),
    "cut between chunks": (CHUNKED + b"5\r\nhello\r\n", 200, "connection-closed"),
    "cut within a chunk": (CHUNKED + b"5\r\nhel", 200, "connection-closed"),
    "cut in the trailers": (CHUNKED + b"5\r\nhello\r\n0\r\n", 200, "connection-closed"),
    "cut in gzip": (answer_with_length(b"content-encoding: gzip", body=PACKED[:-9]), 200, "connection-closed"),
    "not gzip": (answer_with_length(b"content-encoding: gzip", body=b"hello"), 200, "protocol"),
    "a chunk without size": (CHUNKED + b"hello\r\n", 200, "protocol"),
    "too long": (answer_with_length(body=b"x" * (LIMIT + 1)), 200, "protocol"),
    "too long until it closes": (HEAD + b"\r\n" + b"x" * (LIMIT + 1), 200, "protocol"),
    "too long, unpacked": (
        answer_with_length(b"content-encoding: gzip", body=gzip.compress(bytes(LIMIT + 1))),
        200,
        "protocol",
    ),
    "just not too long": (
        answer_with_length(b"content-encoding: gzip", body=gzip.compress(bytes(LIMIT))),
        200,
        bytes(LIMIT),
    ),
    "endless trailers": (CHUNKED + b"0\r\n" + b"x: %s\r\n" % (b"y" * 1000) * 600, 200, "protocol"),
    "an endless chunk extension": (CHUNKED + b"5;x=" + b"y" * 600_000, 200, "protocol"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_the_body_of_an_answer_is_read_whole(run: Test, name: str) -> None:
    wire, status, body = ANSWERS[name]

    async def test() -> None:
        async with provider(answer_once(wire), patience=False) as peer, client() as made:
            answer = await send_post(made, peer.address())
            assert answer.status == status
            read = await answer.read(LIMIT)
            assert (read.kind if isinstance(read, TransportError) else read) == body
            assert await answer.read_chunk() == (read if isinstance(read, TransportError) else b"")

    run(test())


@pytest.mark.parametrize("name", [name for name, (wire, *_) in ANSWERS.items() if len(wire) < 1000])
def test_an_answer_that_comes_byte_by_byte_is_the_same(run: Test, name: str) -> None:
    wire, status, body = ANSWERS[name]

    async def test() -> None:
        async with provider(answer_once(*(wire[at : at + 1] for at in range(len(wire))))) as peer, client() as made:
            answer = await send_post(made, peer.address())
            assert answer.status == status
            chunks = await read_chunks(answer)
            last = chunks[-1] if chunks else b""
            if isinstance(last, TransportError):
                assert last.kind == body
                assert await answer.read_chunk() == last
            else:
                assert b"".join(chunk for chunk in chunks if isinstance(chunk, bytes)) == body

    run(test())


FAULTS: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "connection-closed"),
    "half a head": (b"HTTP/1.1 200 OK\r\ncontent-", "connection-closed"),
    "only an interim answer": (b"HTTP/1.1 100 Continue\r\n\r\n", "connection-closed"),
    "not HTTP": (b"SSH-2.0-OpenSSH_9.6\r\n", "protocol"),
    "a header without a name": (b"HTTP/1.1 200 OK\r\n: x\r\n\r\n", "protocol"),
    "a broken length": (b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n", "protocol"),
    "two lengths": (b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n", "protocol"),
    "length and chunks": (HEAD + b"content-length: 1\r\ntransfer-encoding: chunked\r\n\r\n", "protocol"),
    "another protocol": (b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n", "protocol"),
    "an endless header": (HEAD + b"x: " + b"y" * 300_000, "protocol"),
    "endless headers": (HEAD + b"x: %s\r\n" % (b"y" * 1000) * 300, "protocol"),
    "too many headers": (HEAD + b"x: %s\r\n" % (b"y" * 1000) * 200 + b"\r\n", "protocol"),
    "endless interim answers": (b"HTTP/1.1 100 Continue\r\n\r\n" * 9000, "protocol"),
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("step", [1, 1 << 20])
def test_an_answer_without_a_sound_head_is_a_fault(run: Test, name: str, step: int) -> None:
    wire, kind = FAULTS[name]
    step = max(step, len(wire) // 1000)
    pieces = [wire[at : at + step] for at in range(0, len(wire), step)]

    async def test() -> None:
        async with provider(answer_once(*pieces), patience=False) as peer, client() as made:
            fault = await expect_transport_error(made, peer.address())
            assert (fault.kind, f"127.0.0.1:{peer.port}" in fault.detail) == (kind, True)

    run(test())


def test_headers_have_lower_case_names_and_repeated_ones_are_joined(run: Test) -> None:
    wire = HEAD + b"X-A: 1\r\nx-b:\xe9\r\nx-a:  2 \r\ncontent-encoding: gzip\r\ncontent-length: 0\r\n\r\n"

    async def test() -> None:
        async with provider(answer_once(wire)) as peer, client() as made:
            answer = await send_post(made, peer.address())
            assert answer.headers == {"x-a": "1, 2", "x-b": "é"}
            answer.abort()

    run(test())


def test_the_answer_to_a_head_has_no_body(run: Test) -> None:
    async def test() -> None:
        async with provider(answer_once(answer_with_length(body=b"")[:-4] + b"5\r\n\r\n")) as peer, client() as made:
            answer = await made.send_request(UpstreamRequest(peer.address(), "HEAD", "/v1/models", (), b""))
            assert isinstance(answer, HttpResponse)
            assert await answer.read(LIMIT) == b""

    run(test())


# --- requests -------------------------------------------------------------------------------------------------------


def test_a_request_is_one_head_and_its_body(run: Test) -> None:
    heads: list[str] = []

    async def script(peer: Peer) -> None:
        for _ in range(4):
            head, body = await peer.request()
            heads.append(head + body.decode())
            await peer.send(OK)

    async def test() -> None:
        async with provider(script) as peer, client() as made:
            address = peer.address("/v1?api-version=2")
            theirs = (
                ("authorization", "Bearer k"),
                ("Host", "evil"),
                ("content-length", "7"),
                ("expect", "100-continue"),
            )
            for request in (
                UpstreamRequest(address, "POST", PATH, theirs, b"{}"),
                UpstreamRequest(address, "POST", PATH, (("accept-encoding", "gzip"),), b""),
                UpstreamRequest(address, "GET", "/v1/models", (("x", "é"),), b""),
                UpstreamRequest(address, "DELETE", "/v1/files/1", (), b"{}"),
            ):
                answer = await made.send_request(request)
                assert isinstance(answer, HttpResponse)
                assert await answer.read(LIMIT) == b"ok"
        host = f"host: 127.0.0.1:{peer.port}\r\n"
        assert heads == [
            f"POST {PATH}?api-version=2 HTTP/1.1\r\n{host}authorization: Bearer k\r\n"
            "accept-encoding: identity\r\ncontent-length: 2\r\n\r\n{}",
            f"POST {PATH}?api-version=2 HTTP/1.1\r\n{host}accept-encoding: gzip\r\ncontent-length: 0\r\n\r\n",
            f"GET /v1/models?api-version=2 HTTP/1.1\r\n{host}x: é\r\naccept-encoding: identity\r\n\r\n",
            f"DELETE /v1/files/1?api-version=2 HTTP/1.1\r\n{host}accept-encoding: identity\r\ncontent-length: 2\r\n\r\n{{}}",
        ]

    run(test())


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("POST", PATH, (("x", "a\r\nevil: 1"),)),
        ("POST", PATH, (("x", "a\n"),)),
        ("POST", PATH, (("x", "a\r"),)),
        ("POST", PATH, (("x", "a\0"),)),
        ("POST", PATH, (("x\r\nevil", "a"),)),
        ("POST", PATH, (("x", "→"),)),
        ("POST", "/v1/a\r\nevil: 1", ()),
        ("POST", "/v1/a b", ()),
        ("POST", "/v1/ü", ()),
        ("POST", "/v1/\x7f", ()),
        ("GET / HTTP/1.1\r\n\r\nPOST", PATH, ()),
    ],
)
def test_nothing_can_be_smuggled_into_a_head(run: Test, method: str, path: str, headers: Headers) -> None:
    async def test() -> None:
        async with provider(answer_until_closed) as peer, client() as made:
            for given, own in (headers, ()), ((), headers):
                fault = await made.send_request(UpstreamRequest(peer.address(), method, path, given, b"", own))
                assert isinstance(fault, TransportError)
                assert (fault.kind, peer.connections) == ("protocol", 0)

    run(test())


@pytest.mark.parametrize("size", [0, 16 << 10, (16 << 10) + 1, 256 << 10, (256 << 10) + 1, 9 << 20])
def test_bodies_of_every_size_arrive(run: Test, size: int) -> None:
    sent = bytes(range(256)) * (size // 256) + b"." * (size % 256)
    received: list[bytes] = []

    async def script(peer: Peer) -> None:
        received.append((await peer.request())[1])
        await peer.send(OK)

    async def test() -> None:
        async with provider(script) as peer, client() as made:
            assert await (await send_post(made, peer.address(), sent)).read(LIMIT) == b"ok"
            assert received == [sent]

    run(test())


def test_an_answer_that_comes_while_the_body_is_sent_is_read(run: Test) -> None:
    read = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.head()
        await peer.send(b"HTTP/1.1 413 Too Large\r\ncontent-length: 4\r\n\r\nhuge")
        await read.wait()

    async def test() -> None:
        async with provider(script) as peer, client() as made:
            answer = await send_post(made, peer.address(), bytes(64 << 20))
            assert (answer.status, await answer.read(LIMIT)) == (413, b"huge")
            read.set()

    run(test())


# --- connections that are kept --------------------------------------------------------------------------------------


def test_a_connection_is_used_again(run: Test) -> None:
    async def test() -> None:
        async with provider(answer_until_closed) as peer, client() as made:
            for _ in range(3):
                assert await (await send_post(made, peer.address())).read(LIMIT) == b"ok"
            (await send_post(made, peer.address())).abort()  # its whole body is there: nothing to cut off
            assert await read_chunks(await send_post(made, peer.address())) == [b"ok"]
            assert peer.connections == 1
            answers = await asyncio.gather(*(send_post(made, peer.address()) for _ in range(5)))
            assert peer.connections == 5
            assert [await answer.read(LIMIT) for answer in answers] == [b"ok"] * 5
            assert await (await send_post(made, peer.address())).read(LIMIT) == b"ok"
            assert peer.connections == 5
            await made.close()

    run(test())


@pytest.mark.parametrize(
    "wire",
    [
        answer_with_length(b"connection: close", body=b"ok"),
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
        OK + b"HTTP/1.1 200 OK\r\n",
        OK + OK,
        OK + b"x",
    ],
)
def test_a_connection_is_not_used_again_where_that_would_be_unsafe(run: Test, wire: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(wire)
        await peer.wait_for_disconnect()

    async def test() -> None:
        async with provider(script) as peer, client() as made:
            for _ in range(2):
                assert await (await send_post(made, peer.address())).read(LIMIT) == b"ok"
            assert peer.connections == 2

    run(test())


def test_bytes_that_nobody_asked_for_close_a_connection(run: Test) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(OK)
        await taken.wait()
        await peer.send(b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n")
        await peer.wait_for_disconnect()
        left.set()

    taken, left = asyncio.Event(), asyncio.Event()

    async def test() -> None:
        async with provider(script, patience=False) as peer, client() as made:
            assert await (await send_post(made, peer.address())).read(LIMIT) == b"ok"
            taken.set()
            await left.wait()
            assert (await send_post(made, peer.address())).status == 200
            assert peer.connections == 2

    run(test())


@pytest.mark.parametrize("body", [b"{}", bytes(1 << 20)])
@pytest.mark.parametrize("rude", [False, True])
def test_a_kept_connection_that_is_closed_without_an_answer_is_told_and_nothing_is_sent_again(
    run: Test, body: bytes, rude: bool
) -> None:
    """The provider may have taken the request: whoever sends it again must decide that, and show it as an attempt."""
    requests = 0

    async def script(peer: Peer) -> None:
        nonlocal requests
        await peer.request()
        requests += 1
        await peer.send(OK)
        await peer.head()
        requests += 1
        if rude:
            peer.reset()

    async def test() -> None:
        async with provider(script) as peer, client() as made:
            for round in (1, 2):
                assert await (await send_post(made, peer.address(), body)).read(LIMIT) == b"ok"
                fault = await expect_transport_error(made, peer.address(), body)
                assert (fault.kind, peer.connections, requests) == ("stale-connection", round, round * 2)

    run(test())


def test_a_kept_connection_that_answers_half_or_stays_silent_is_not_replaced(run: Test) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(OK)
        await peer.request()
        if half:
            await peer.send(b"HTTP/1.1 2")
        else:
            await peer.wait_for_disconnect()

    half = False

    async def test() -> None:
        nonlocal half
        for half, kind in ((True, "connection-closed"), (False, "first-byte-timeout")):  # noqa: B007
            async with provider(script) as peer, client(first_byte=0.05) as made:
                assert await (await send_post(made, peer.address())).read(LIMIT) == b"ok"
                assert (await expect_transport_error(made, peer.address())).kind == kind
                assert peer.connections == 1

    run(test())


def test_only_so_many_idle_connections_are_kept(run: Test) -> None:
    async def test() -> None:
        async with provider(answer_until_closed) as peer, client() as made:
            for _ in range(2):
                answers = await asyncio.gather(*(send_post(made, peer.address()) for _ in range(70)))
                assert {await answer.read(LIMIT) for answer in answers} == {b"ok"}
            assert peer.connections == 76  # 64 of 70 were there for the second round
            await made.close()

    run(test())


class Leaping(asyncio.SelectorEventLoop):
    """A loop whose clock can be put forward."""

    leapt = 0.0

    def time(self) -> float:
        return super().time() + self.leapt


def test_a_connection_that_was_idle_for_long_is_closed() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(OK)
        await peer.wait_for_disconnect()

    async def test() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Leaping)
        async with provider(script) as peer, client() as made:
            answers = [await send_post(made, peer.address()) for _ in range(3)]
            for answer in answers:
                assert await answer.read(LIMIT) == b"ok"
            loop.leapt = 60.0
            assert await (await send_post(made, peer.address())).read(LIMIT) == b"ok"
            assert peer.connections == 4
            await asyncio.wait(peer.tasks, return_when=asyncio.FIRST_COMPLETED)

    with asyncio.Runner(loop_factory=Leaping) as runner:
        runner.run(test())


# --- deadlines ------------------------------------------------------------------------------------------------------


def test_a_provider_that_does_not_begin_to_answer_runs_out_of_time(run: Test) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200")
        await peer.wait_for_disconnect()

    async def test() -> None:
        async with provider(script) as peer, client(first_byte=0.05) as made:
            fault = await expect_transport_error(made, peer.address())
            assert fault == TransportError(
                "first-byte-timeout",
                f"127.0.0.1:{peer.port} did not start to answer within 0.05 seconds (see `first_byte` under [server.timeouts])",
            )

    run(test())


def test_a_provider_that_does_not_take_the_body_runs_out_of_time(run: Test) -> None:
    async def script(peer: Peer) -> None:
        await peer.head()
        await over.wait()

    over = asyncio.Event()

    async def test() -> None:
        async with provider(script) as peer, client(first_byte=0.05) as made:
            assert (await expect_transport_error(made, peer.address(), bytes(64 << 20))).kind == "first-byte-timeout"
            over.set()

    run(test())


@pytest.mark.parametrize("greedy", [True, False])
@pytest.mark.parametrize(
    "name", [name for name, (wire, *_) in ANSWERS.items() if len(wire) < 1000 and not name.startswith("too long")]
)
def test_an_answer_that_is_poured_is_the_same(run: Test, name: str, greedy: bool) -> None:
    wire, _, body = ANSWERS[name]

    async def test() -> None:
        async with provider(answer_once(*(wire[at : at + 1] for at in range(len(wire))))) as peer, client() as made:
            answer = await send_post(made, peer.address())
            took: list[bytes] = []
            end = await pour_into_sink(answer, took, greedy)
            if isinstance(end, TransportError):
                assert end.kind == body
            else:
                assert b"".join(took) == body

    run(test())


def test_no_more_is_poured_when_the_sink_fails(run: Test) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED)
        await asking.wait()
        await peer.send(b"5\r\nhello\r\n")
        await peer.wait_for_disconnect()

    asking = asyncio.Event()

    def sink(data: bytes) -> bool:
        raise LookupError(data)

    async def test() -> None:
        failures: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, told: failures.append(told["exception"]))
        async with provider(script) as peer, client() as made:
            answer = await send_post(made, peer.address())
            asking.set()
            fault = await answer.pour_into(sink)
            assert isinstance(fault, TransportError)
            assert fault.kind == "connection-closed"
            assert [repr(failure) for failure in failures] == ["LookupError(b'hello')"]

    run(test())


async def pour_into_sink(answer: HttpResponse, took: list[bytes], greedy: bool) -> bytes | TransportError:
    """To a sink that takes all, or always has had enough for now."""

    def sink(data: bytes) -> bool:
        took.append(data)
        return greedy

    while (end := await answer.pour_into(sink)) is None:
        pass
    return end


@pytest.mark.parametrize("way", ["whole", "chunks", "poured"])
def test_a_provider_that_falls_silent_runs_out_of_time(run: Test, way: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED + b"5\r\nhello\r\n")
        await peer.wait_for_disconnect()

    async def test() -> None:
        async with provider(script) as peer, client(between_bytes=0.05) as made:
            answer = await send_post(made, peer.address())
            took: list[bytes] = []
            if way == "poured":
                fault: bytes | TransportError = await pour_into_sink(answer, took, greedy=True)
            else:
                *rest, fault = [await answer.read(LIMIT)] if way == "whole" else await read_chunks(answer)
                took += [chunk for chunk in rest if isinstance(chunk, bytes)]
            assert isinstance(fault, TransportError)
            assert (fault.kind, took) == ("idle-timeout", [] if way == "whole" else [b"hello"])

    run(test())


@pytest.mark.parametrize("pace", ["steady", "always"])
@pytest.mark.parametrize("between_bytes", [0, 30])
@pytest.mark.parametrize("way", ["whole", "chunks", "poured"])
def test_a_provider_that_never_ends_runs_out_of_time(run: Test, way: str, between_bytes: float, pace: str) -> None:
    """However often it sends a byte: no pause is too long, and the answer is."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED)
        with contextlib.suppress(ConnectionError):
            while True:
                await peer.send(b"1\r\nx\r\n")
                await asyncio.sleep(0.01 if pace == "steady" else 0)

    async def test() -> None:
        async with provider(script) as peer, client(between_bytes=between_bytes, whole_answer=0.3) as made:
            answer = await send_post(made, peer.address())
            took: list[bytes] = []
            if way == "poured":
                fault: bytes | TransportError = await pour_into_sink(answer, took, greedy=True)
            else:
                *_, fault = [await answer.read(LIMIT)] if way == "whole" else await read_chunks(answer)
            assert isinstance(fault, TransportError)
            assert fault.kind == "answer-timeout"
            assert fault.detail.endswith(
                "did not finish its answer within 0.3 seconds (see `whole_answer` under [server.timeouts])"
            )

    run(test())


def test_zero_is_no_deadline(run: Test) -> None:
    async def test() -> None:
        async with (
            provider(answer_until_closed) as peer,
            client(connect=0, first_byte=0, between_bytes=0, whole_answer=0) as made,
        ):
            assert await (await send_post(made, peer.address())).read(LIMIT) == b"ok"
            await made.close()

    run(test())


def test_time_in_which_nobody_reads_is_not_the_providers(run: Test) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED + b"5\r\nhello\r\n")
        await rung.wait()
        await peer.send(b"0\r\n\r\n")

    rung = asyncio.Event()

    async def test() -> None:
        async with provider(script) as peer, client(between_bytes=0.05) as made:
            answer = await send_post(made, peer.address())
            assert await answer.read_chunk() == b"hello"
            asyncio.get_running_loop().call_later(0.15, rung.set)
            await rung.wait()
            assert await answer.read_chunk() == b""

    run(test())


def test_what_does_not_come_in_time_can_still_be_taken_later(run: Test) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED + b"5\r\nhello\r\n")
        await asked_for.wait()
        await peer.send(b"5\r\nworld\r\n0\r\n\r\n")

    asked_for = asyncio.Event()

    async def test() -> None:
        async with provider(script) as peer, client() as made:
            answer = await send_post(made, peer.address())
            assert await answer.wait_for_data(600)
            assert await answer.read_chunk() == b"hello"
            assert not await answer.wait_for_data(0)
            assert not await answer.wait_for_data(0.01)
            asked_for.set()
            assert await answer.wait_for_data(600)
            assert await answer.wait_for_data(-1)
            assert await answer.read(LIMIT) == b"world"
            assert await answer.wait_for_data(0)

    run(test())


# --- too much at once -----------------------------------------------------------------------------------------------


def test_no_more_is_held_than_a_slow_reader_takes(run: Test) -> None:
    body = bytes(64 << 20)

    async def test() -> None:
        async with provider(answer_once(answer_with_length(body=body))) as peer, client() as made:
            answer = await send_post(made, peer.address())
            for _ in range(1000):  # rounds of the loop in which nobody reads, and all could come
                await asyncio.sleep(0)
            sizes = [len(chunk) for chunk in await read_chunks(answer) if isinstance(chunk, bytes)]
            assert sum(sizes) == len(body)
            assert max(sizes) <= 512 << 10  # what may wait, and one read of the socket beyond it

    run(test())


def test_a_bomb_is_unpacked_in_small_pieces(run: Test) -> None:
    packed = gzip.compress(bytes(32 << 20))

    async def test() -> None:
        async with (
            provider(answer_once(answer_with_length(b"content-encoding: gzip", body=packed))) as peer,
            client() as made,
        ):
            sizes = [
                len(chunk)
                for chunk in await read_chunks(await send_post(made, peer.address()))
                if isinstance(chunk, bytes)
            ]
            assert (sum(sizes), max(sizes) <= 256 << 10) == (32 << 20, True)

    run(test())


def test_the_rest_of_a_body_can_be_read_whole(run: Test) -> None:
    packed = gzip.compress(bytes(1 << 20))

    async def test() -> None:
        async with (
            provider(answer_once(answer_with_length(b"content-encoding: gzip", body=packed))) as peer,
            client() as made,
        ):
            answer = await send_post(made, peer.address())
            first, rest = await answer.read_chunk(), await answer.read(LIMIT)
            assert isinstance(first, bytes)
            assert isinstance(rest, bytes)
            assert first + rest == bytes(1 << 20)

    run(test())


# --- leaving --------------------------------------------------------------------------------------------------------


async def leaves_in_send(made: UpstreamClient, address: Address, begun: asyncio.Event) -> None:
    await send_post(made, address)


async def leaves_in_a_long_body(made: UpstreamClient, address: Address, begun: asyncio.Event) -> None:
    await send_post(made, address, bytes(64 << 20))


async def leaves_in_read(made: UpstreamClient, address: Address, begun: asyncio.Event) -> None:
    answer = await send_post(made, address)
    begun.set()
    await answer.read(LIMIT)


async def leaves_in_chunk(made: UpstreamClient, address: Address, begun: asyncio.Event) -> None:
    answer = await send_post(made, address)
    assert await answer.read_chunk() == b"hello"
    begun.set()
    await answer.read_chunk()


async def leaves_before_more_comes(made: UpstreamClient, address: Address, begun: asyncio.Event) -> None:
    answer = await send_post(made, address)
    assert await answer.read_chunk() == b"hello"
    begun.set()
    await answer.wait_for_data(600)


@pytest.mark.parametrize(
    "leaves", [leaves_in_send, leaves_in_a_long_body, leaves_in_read, leaves_in_chunk, leaves_before_more_comes]
)
def test_a_cancelled_call_is_seen_by_the_provider(
    run: Test, leaves: Callable[[UpstreamClient, Address, asyncio.Event], Awaitable[None]]
) -> None:
    async def script(peer: Peer) -> None:
        await peer.head()
        if leaves in (leaves_in_send, leaves_in_a_long_body):
            begun.set()
        else:
            await peer.send(CHUNKED + b"5\r\nhello\r\n")
        await left.wait()
        await peer.wait_for_disconnect()

    begun, left = asyncio.Event(), asyncio.Event()

    async def test() -> None:
        async with provider(script) as peer, client() as made:
            task = asyncio.ensure_future(leaves(made, peer.address(), begun))
            await begun.wait()
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            left.set()
            await asyncio.gather(*peer.tasks)  # it saw the end, though the client is still there

    run(test())


@pytest.mark.parametrize("how", ["abort", "forget", "close"])
def test_an_answer_that_nobody_wants_is_seen_by_the_provider(run: Test, how: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED + b"5\r\nhello\r\n")
        await peer.wait_for_disconnect()

    async def test() -> None:
        async with provider(script) as peer, client() as made:
            answer: HttpResponse | None = await send_post(made, peer.address())
            assert answer is not None
            assert await answer.read_chunk() == b"hello"
            if how == "abort":
                answer.abort()
                answer.abort()
                fault = await answer.read_chunk()
                assert isinstance(fault, TransportError)
            elif how == "forget":
                answer = None
                gc.collect()
            else:
                await made.close()
                fault = await answer.read(LIMIT)
                assert isinstance(fault, TransportError)
                assert fault.kind == "connection-closed"
            await asyncio.gather(*peer.tasks)

    run(test())


def test_closing_ends_what_waits_and_what_is_idle(run: Test) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(OK)
        if peers:
            await peer.wait_for_disconnect()
            return
        peers.append(peer)
        await peer.request()
        begun.set()
        await peer.wait_for_disconnect()

    peers: list[Peer] = []
    begun = asyncio.Event()

    async def test() -> None:
        async with provider(script) as peer, client() as made:
            one, two = await asyncio.gather(send_post(made, peer.address()), send_post(made, peer.address()))
            assert (await one.read(LIMIT), await two.read(LIMIT)) == (b"ok", b"ok")
            waiting = [
                asyncio.ensure_future(made.send_request(UpstreamRequest(peer.address(), "POST", PATH, (), b"{}")))
                for _ in range(2)
            ]
            await begun.wait()
            await made.close()
            kinds = {answer.kind for answer in await asyncio.gather(*waiting) if isinstance(answer, TransportError)}
            assert kinds == {"connection-closed"}
            assert (await expect_transport_error(made, peer.address())).kind == "connection-closed"

    run(test())


@pytest.mark.parametrize("rude", [False, True])
def test_a_server_that_hangs_up_at_once_is_a_fault(run: Test, rude: bool) -> None:
    async def script(peer: Peer) -> None:
        if rude:
            peer.reset()

    async def test() -> None:
        async with provider(script) as peer, client() as made:
            for body in (b"{}", bytes(1 << 20), bytes(64 << 20)) * 3:
                assert (await expect_transport_error(made, peer.address(), body)).kind == "connection-closed"
            assert peer.connections == 9

    run(test())


# --- no connection --------------------------------------------------------------------------------------------------


def test_nobody_there_is_a_fault_that_says_what_to_check(run: Test) -> None:
    async def test() -> None:
        async with provider(answer_until_closed) as peer:
            pass
        async with client() as made:
            for host in ("127.0.0.1", "localhost"):
                fault = await expect_transport_error(made, peer.address(host=host))
                assert fault.kind == "refused"
                assert fault.detail.startswith(f"{host}:{peer.port} refused the connection: check ")
            for host in ("nobody.invalid", "a" * 70 + ".example"):
                fault = await expect_transport_error(made, Address.parse(f"https://{host}/v1"))
                assert (fault.kind, f"{host}:443" in fault.detail) == ("dns", True)

    run(test())


def test_a_server_that_accepts_nobody_runs_out_of_time(run: Test) -> None:
    """In TLS the connection is not made before the handshake."""

    async def script(peer: Peer) -> None:
        met.set()
        await peer.wait_for_disconnect()

    met = asyncio.Event()

    async def test() -> None:
        async with provider(script) as peer, client(connect=0.05) as made:
            fault = await expect_transport_error(made, peer.address(scheme="https"))
            assert (fault.kind, f"127.0.0.1:{peer.port}" in fault.detail) == ("connect-timeout", True)
            await met.wait()

    run(test())
