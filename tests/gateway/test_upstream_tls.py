"""The client for providers in TLS and by proxies, over real sockets, on both event loops."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ssl
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trustme

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
from toolwire.gateway.http.client import HttpResponse
from toolwire.gateway.http.connection import TransportError
from toolwire.gateway.http.messages import UpstreamRequest
from toolwire.gateway.settings.address import Address

Test = Callable[[Coroutine[Any, Any, None]], None]
LIMIT = 1 << 20
LONG_AGO = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Test:
    return partial(on_loop, request.param)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def ca_file(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("trust") / "ca.pem"
    authority.cert_pem.write_to_path(file)
    return str(file)


def server_context(authority: trustme.CA, *names: str, **more: Any) -> ssl.SSLContext:
    """What a server with a certificate for these names needs."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names, **more).configure_cert(context)
    return context


async def answer_until_closed(peer: Peer) -> None:
    while True:
        await peer.request()
        await peer.send(OK)


# --- TLS ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_an_answer_comes_in_tls_and_its_connection_is_used_again(
    run: Test, authority: trustme.CA, ca_file: str, host: str
) -> None:
    seen: list[tuple[str | None, str | None]] = []
    named: list[str | None] = []
    context = server_context(authority, "localhost", "127.0.0.1")
    context.set_alpn_protocols(["h2", "http/1.1"])
    context.sni_callback = lambda _, name, __: named.append(name)

    async def script(peer: Peer) -> None:
        secured = peer.writer.get_extra_info("ssl_object")
        seen.append((secured.selected_alpn_protocol(), secured.version()))
        await answer_until_closed(peer)

    async def test() -> None:
        async with provider(script, context) as peer, client() as made:
            address = peer.address(scheme="https", host=host, ca_file=ca_file)
            for body in (b"{}", b"x" * 20_000, bytes(3 << 20)):
                assert await (await send_post(made, address, body)).read(LIMIT) == b"ok"
            assert (seen, peer.connections) == ([("http/1.1", "TLSv1.3")], 1)
            assert named == ["localhost" if host == "localhost" else None]
            await made.close()

    run(test())


def test_the_systems_trust_is_asked(
    run: Test, authority: trustme.CA, ca_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", ca_file)

    async def test() -> None:
        async with provider(answer_until_closed, server_context(authority, "127.0.0.1")) as peer, client() as made:
            assert await (await send_post(made, peer.address(scheme="https"))).read(LIMIT) == b"ok"
            await made.close()

    run(test())


def test_a_certificate_that_is_not_in_order_is_a_fault_that_says_what_to_check(
    run: Test, authority: trustme.CA, ca_file: str
) -> None:
    stranger = trustme.CA()
    rows = [
        (server_context(authority, "elsewhere.example"), "is for another name: check the host"),
        (server_context(authority, "127.0.0.1", not_after=LONG_AGO), "has expired: check this machine's clock"),
        (server_context(stranger, "127.0.0.1"), "set ca_file for this provider or SSL_CERT_FILE"),
    ]

    async def test() -> None:
        for context, words in rows:
            async with provider(answer_until_closed, context) as peer, client() as made:
                fault = await expect_transport_error(made, peer.address(scheme="https", ca_file=ca_file))
                assert fault.kind == "tls"
                assert fault.detail.startswith(f"no secure connection to 127.0.0.1:{peer.port}: ")
                assert words in fault.detail

    run(test())


def test_a_ca_file_that_cannot_be_read_is_a_fault(run: Test, tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing")

    async def test() -> None:
        async with client() as made:
            for file in (str(empty), str(tmp_path / "none.pem")):
                fault = await expect_transport_error(made, Address.parse("https://127.0.0.1:1", ca_file=file))
                assert (fault.kind, file in fault.detail) == ("tls", True)

    run(test())


@pytest.mark.parametrize("words", [b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n", b""])
def test_a_server_that_speaks_no_tls_is_a_fault(run: Test, words: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.reader.read(1)
        await peer.send(words)

    async def test() -> None:
        async with provider(script) as peer, client() as made:
            fault = await expect_transport_error(made, peer.address(scheme="https"))
            assert fault.kind == "tls"
            assert "speak" in fault.detail

    run(test())


UNTIL_CLOSED = b"HTTP/1.1 200 OK\r\n\r\nhello"


@pytest.mark.parametrize("polite", [True, False])
@pytest.mark.parametrize("late", [True, False])
def test_only_a_farewell_ends_a_body_without_a_length(
    run: Test, authority: trustme.CA, ca_file: str, polite: bool, late: bool
) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(UNTIL_CLOSED)
        if late:
            await read.wait()
        if not polite:
            peer.reset()

    read = asyncio.Event()

    async def test() -> None:
        async with provider(script, server_context(authority, "127.0.0.1")) as peer, client() as made:
            answer = await send_post(made, peer.address(scheme="https", ca_file=ca_file))
            first = await answer.read_chunk()
            read.set()
            chunks = [first, *await read_chunks(answer)]
            assert first == b"hello"
            kinds = [chunk.kind for chunk in chunks if isinstance(chunk, TransportError)]
            assert kinds == ([] if polite else ["connection-closed"])

    run(test())


def test_a_long_answer_in_tls_is_held_back_and_read(run: Test, authority: trustme.CA, ca_file: str) -> None:
    body = bytes(16 << 20)

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body), body)

    async def test() -> None:
        async with provider(script, server_context(authority, "127.0.0.1")) as peer, client() as made:
            answer = await send_post(made, peer.address(scheme="https", ca_file=ca_file))
            sizes = [len(chunk) for chunk in await read_chunks(answer) if isinstance(chunk, bytes)]
            assert sum(sizes) == len(body)

    run(test())


def test_a_cancelled_call_in_tls_is_seen_by_the_provider(run: Test, authority: trustme.CA, ca_file: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello")
        await peer.wait_for_disconnect()

    async def test() -> None:
        async with provider(script, server_context(authority, "127.0.0.1")) as peer, client() as made:
            answer = await send_post(made, peer.address(scheme="https", ca_file=ca_file))
            assert await answer.read_chunk() == b"hello"
            reading = asyncio.ensure_future(answer.read_chunk())
            await asyncio.sleep(0)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            await asyncio.gather(*peer.tasks)

    run(test())


# --- proxies --------------------------------------------------------------------------------------------------------


class Relay:
    """A proxy for tunnels that remembers what it could read."""

    def __init__(self, answer: bytes = b"HTTP/1.1 200 Connection established\r\nvia: x\r\n\r\n") -> None:
        self.heads: list[str] = []
        self._answer = answer

    async def __call__(self, peer: Peer) -> None:
        head = await peer.head()
        self.heads.append(head)
        await peer.send(self._answer)
        if b" 200 " not in self._answer:
            return
        host, _, port = head.split()[1].rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        await asyncio.gather(self._pump(peer.reader, writer), self._pump(reader, peer.writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_tls_goes_by_a_tunnel_and_the_proxy_sees_no_key(
    run: Test, authority: trustme.CA, ca_file: str, scheme: str
) -> None:
    relay = Relay()
    context = server_context(authority, "127.0.0.1")

    async def test() -> None:
        async with (
            provider(answer_until_closed, context) as peer,
            provider(relay, context if scheme == "https" else None) as proxy,
            client() as made,
        ):
            way = f"{scheme}://me:ses%40me@127.0.0.1:{proxy.port}"
            address = peer.address(scheme="https", ca_file=ca_file, proxy=way)
            for body in (b"{}", bytes(1 << 20)):
                answer = await made.send_request(
                    UpstreamRequest(address, "POST", PATH, (("authorization", "Bearer secret"),), body)
                )
                assert isinstance(answer, HttpResponse), answer
                assert await answer.read(LIMIT) == b"ok"
            end = f"127.0.0.1:{peer.port}"
            assert relay.heads == [
                f"CONNECT {end} HTTP/1.1\r\nhost: {end}\r\nproxy-authorization: Basic bWU6c2VzQG1l\r\n\r\n"
            ]
            await made.close()

    run(test())


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_plain_requests_go_to_the_proxy_whole(run: Test, authority: trustme.CA, ca_file: str, scheme: str) -> None:
    heads: list[str] = []

    async def script(peer: Peer) -> None:
        for _ in range(2):
            heads.append((await peer.request())[0])
            await peer.send(OK)

    async def test() -> None:
        context = server_context(authority, "127.0.0.1") if scheme == "https" else None
        async with provider(script, context) as proxy, client() as made:
            way = f"{scheme}://me:sesame@127.0.0.1:{proxy.port}"
            address = Address.parse("http://provider.invalid:8080/v1", proxy=way, ca_file=ca_file)
            for _ in range(2):
                assert await (await send_post(made, address)).read(LIMIT) == b"ok"
        assert heads[0] == heads[1]
        assert heads[0].startswith(
            "POST http://provider.invalid:8080/v1/chat/completions HTTP/1.1\r\nhost: provider.invalid:8080\r\n"
            "proxy-authorization: Basic bWU6c2VzYW1l\r\n"
        )

    run(test())


@pytest.mark.parametrize(
    ("scheme", "answer", "words"),
    [
        ("https", b"HTTP/1.1 407 Who are you\r\ncontent-length: 0\r\n\r\n", "status 407: check the user and password"),
        ("http", b"HTTP/1.1 407 Who are you\r\ncontent-length: 0\r\n\r\n", "status 407: check the user and password"),
        ("https", b"HTTP/1.1 100 Wait\r\n\r\nHTTP/1.1 403 No\r\n\r\n", "status 403"),
        ("https", b"HTTP/1.0 502 Bad Gateway\r\n\r\n", "status 502"),
        ("https", b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "did not answer like a proxy"),
        ("https", b"x" * 100_000, "did not answer like a proxy"),
        ("https", b"HTTP/1.1 200 OK\r\n\r\nand more", "did not answer like a proxy"),
        ("https", b"", "closed the connection"),
    ],
)
def test_a_proxy_that_refuses_is_a_fault_that_shows_no_password(
    run: Test, scheme: str, answer: bytes, words: str
) -> None:
    async def script(peer: Peer) -> None:
        await peer.head()
        await peer.send(answer)

    async def test() -> None:
        async with provider(script) as proxy, client() as made:
            way = f"http://me:sesame@127.0.0.1:{proxy.port}"
            fault = await expect_transport_error(made, Address.parse(f"{scheme}://provider.invalid", proxy=way))
            assert fault.kind == "proxy"
            assert f"the proxy 127.0.0.1:{proxy.port}" in fault.detail
            assert words in fault.detail
            assert "sesame" not in fault.detail

    run(test())


def test_a_proxy_that_is_not_there_or_keeps_still_is_a_fault(run: Test) -> None:
    async def script(peer: Peer) -> None:
        await peer.wait_for_disconnect()

    async def test() -> None:
        async with provider(script) as proxy, client(connect=0.05) as made:
            way = f"http://me:sesame@127.0.0.1:{proxy.port}"
            fault = await expect_transport_error(made, Address.parse("https://provider.invalid", proxy=way))
            assert (fault.kind, "the proxy" in fault.detail, "sesame" in fault.detail) == (
                "connect-timeout",
                True,
                False,
            )
        async with client() as made:
            for scheme in ("http", "https"):
                fault = await expect_transport_error(made, Address.parse(f"{scheme}://provider.invalid", proxy=way))
                assert (fault.kind, "refused the connection" in fault.detail) == ("proxy", True)

    run(test())


def test_a_tunnel_to_the_wrong_host_is_a_fault(run: Test, authority: trustme.CA, ca_file: str) -> None:
    async def test() -> None:
        context = server_context(authority, "elsewhere.example")
        async with provider(answer_until_closed, context) as peer, provider(Relay()) as proxy, client() as made:
            way = f"http://127.0.0.1:{proxy.port}"
            fault = await expect_transport_error(made, peer.address(scheme="https", ca_file=ca_file, proxy=way))
            assert (fault.kind, "another name" in fault.detail) == ("tls", True)

    run(test())
