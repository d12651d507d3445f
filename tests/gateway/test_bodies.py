"""Bodies of requests: packed ones, too large ones, broken ones."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Callable, Iterator

import pytest

from gateway.raw_exchange import (
    CLIENTS,
    RawConnection,
    Served,
    ask,
    error_of,
    path_of,
    request_of,
    stage,
    text_of,
    whole_answer,
)
from toolwire_conformance.peers.peer import encode_json

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

LIMIT = 100_000
PACKED: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "GZIP": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstd.compress,
    "identity": bytes,
    "gzip, zstd": lambda data: zstd.compress(gzip.compress(data)),
    "zstd, identity, gzip": lambda data: gzip.compress(zstd.compress(data)),
    "gzip, gzip": lambda data: gzip.compress(gzip.compress(data)),
}


@pytest.fixture(scope="module", params=["own", "asgi"], name="served")
def serve_gateway(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with stage(tmp_path_factory.mktemp("bodies"), f"max_body = {LIMIT}", host=request.param) as staged:
        yield staged


@pytest.mark.parametrize("encoding", PACKED)
@pytest.mark.parametrize(("client", "provider"), [("openai-responses", "openai-responses"), ("anthropic", "gemini")])
def test_packed_requests_are_read(served: Served, client: str, provider: str, encoding: str) -> None:
    scene = served.scene(provider, whole_answer(provider))
    body = encode_json(request_of(client, scene.model, False)).encode()
    got = ask(served.port, "POST", path_of(client, "", False), PACKED[encoding](body), {"content-encoding": encoding})
    assert (got.status, text_of(client, got, False)) == (200, "Hello there.")
    assert "content-encoding" not in scene.asked[0].headers


def test_packed_bodies_of_other_paths_arrive_unpacked(served: Served) -> None:
    scene = served.scene("openai-chat", whole_answer("openai-chat"))
    body = b'{"model":"%b"}' % scene.name.encode()
    got = ask(served.port, "POST", "/v1/embeddings", gzip.compress(body), {"content-encoding": "gzip"})
    assert got.status == 200
    assert scene.asked[0].body == body
    assert "content-encoding" not in scene.asked[0].headers


@pytest.mark.parametrize("encoding", [name for name in PACKED if name != "identity"])
@pytest.mark.parametrize("client", CLIENTS)
def test_bombs_are_too_large(served: Served, client: str, encoding: str) -> None:
    bomb = PACKED[encoding](b" " * (LIMIT + 1))
    assert len(bomb) < LIMIT
    got = ask(served.port, "POST", path_of(client, "m", False), bomb, {"content-encoding": encoding})
    assert got.status == 413
    assert f"{LIMIT:,}" in error_of(client, got)["message"]


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd", "gzip, zstd"])
@pytest.mark.parametrize("client", CLIENTS)
def test_what_is_not_packed_as_it_says(served: Served, client: str, encoding: str) -> None:
    plain = encode_json(request_of(client, "m", False)).encode()
    path = path_of(client, "m", False)
    for body in (plain, PACKED[encoding](plain)[:-3]):
        got = ask(served.port, "POST", path, body, {"content-encoding": encoding})
        assert got.status == 400
        assert encoding.rpartition(" ")[2] in error_of(client, got)["message"]


@pytest.mark.parametrize("client", CLIENTS)
def test_an_unknown_packing(served: Served, client: str) -> None:
    got = ask(served.port, "POST", path_of(client, "m", False), b"x", {"content-encoding": "br"})
    assert got.status == 415
    message = error_of(client, got)["message"]
    assert "br" in message
    assert "gzip" in message


@pytest.mark.parametrize("client", CLIENTS)
def test_a_request_that_is_too_large(served: Served, client: str) -> None:
    body = b" " * (LIMIT + 1)
    got = ask(served.port, "POST", path_of(client, "m", False), body)
    assert got.status == 413
    error_of(client, got)


def test_a_request_in_chunks_that_is_too_large(served: Served) -> None:
    line = RawConnection(served.port)
    line.connection.request(
        "POST",
        "/v1/messages",
        iter([b" " * 60_000, b" " * 60_000]),
        {"content-type": "application/json"},
        encode_chunked=True,
    )
    assert line.start().status == 413
    line.connection.close()


def test_a_request_in_chunks(served: Served) -> None:
    scene = served.scene("anthropic", whole_answer("anthropic"))
    body = encode_json(request_of("anthropic", scene.model, False)).encode()
    line = RawConnection(served.port)
    line.connection.request("POST", "/v1/messages", iter([body[:7], body[7:]]), {}, encode_chunked=True)
    assert line.start().status == 200
    assert scene.asked[0].json()["model"] == scene.name
    line.connection.close()


@pytest.mark.parametrize(
    ("body", "place"),
    [
        (b"", ""),
        (b"{", ""),
        (b'{"model": "m", "a": [1,}', ""),
        (b"[]", ""),
        (b'"x"', ""),
        (b"\xff\xfe", ""),
        (b'{"model": 7, "messages": [], "input": []}', "model"),
    ],
)
@pytest.mark.parametrize("client", CLIENTS)
def test_what_is_no_request(served: Served, client: str, body: bytes, place: str) -> None:
    got = ask(served.port, "POST", path_of(client, "anthropic/m", False), body)
    assert got.status == 400
    assert client in ("gemini", "unified") or place in str(error_of(client, got))


PLACES = {
    "openai-chat": ({"messages": 7}, "messages"),
    "openai-responses": ({"input": 7}, "input"),
    "anthropic": ({"messages": [{"role": "user", "content": 7}]}, "messages"),
    "gemini": ({"contents": 7}, "contents"),
    "unified": ({"messages": [{"role": "user", "content": 7}]}, "messages"),
}


@pytest.mark.parametrize("client", CLIENTS)
def test_what_is_wrong_is_told_with_its_place(served: Served, client: str) -> None:
    wrong, place = PLACES[client]
    model = "gemini/m" if client != "gemini" else "anthropic/m"
    body = encode_json(request_of(client, model, False, **wrong)).encode()
    got = ask(served.port, "POST", path_of(client, model, False), body)
    assert got.status == 400
    assert place in str(error_of(client, got))


def test_a_place_in_broken_json_is_told(served: Served) -> None:
    got = ask(served.port, "POST", "/v1/chat/completions", b'{"model": "m",\n "messages": [}')
    message = error_of("openai-chat", got)["message"]
    assert "JSON" in message
    assert any(word in message for word in ("line 2", "byte 28", "character 28", "28", "29"))
