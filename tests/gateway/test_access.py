"""Who may come in, what they may ask for, and that no key is ever seen where it does not belong."""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import itertools
import json
import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway.provider import ScriptedAnswer
from gateway.raw_exchange import (
    CLIENT_KEY,
    CLIENTS,
    PROVIDER_KEY,
    PROVIDERS,
    RawConnection,
    ScriptedConnection,
    Served,
    answer,
    ask,
    body_of,
    call,
    error_of,
    frames,
    open_call,
    opening_frames,
    path_of,
    play_script,
    refusal,
    request_of,
    stage,
    text_of,
    whole_answer,
    write_chunked,
)
from material import WHOLE_OR_STREAM, parametrize_pairwise
from toolwire.gateway import app
from toolwire.gateway.settings.client_keys import CHALLENGE_HEADER, PROOF_HEADER, KeyChallenge
from toolwire_conformance.peers.peer import encode_json
from waits import PATIENCE

STREAMS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
NARROW_KEY = "tw-narrow-key-0123456789"
KEYS = "".join(
    f'[[server.keys]]\nname = "{name}"\nsha256 = "{hashlib.sha256(key.encode()).hexdigest()}"\nmodels = {json.dumps(models)}\nmetrics = {json.dumps(name == "all")}\n'
    for name, key, models in (("all", CLIENT_KEY, ["*"]), ("narrow", NARROW_KEY, ["anthropic/*", "small"]))
)


@pytest.fixture(scope="module", name="keyed")
def serve_with_keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    rules = '[models]\nsmall = "chat/gpt-4.1-mini-s950x"\nlarge = "chat/gpt-4.1"\n'
    with stage(tmp_path_factory.mktemp("keyed"), f"retries = 0\ncooldown_after = 100000\n{KEYS}", rules) as staged:
        yield staged


@pytest.fixture(scope="module")
def open_(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with stage(tmp_path_factory.mktemp("open"), 'allowed_hosts = ["gateway.example"]') as staged:
        yield staged


@pytest.fixture(scope="module")
def forwarding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with stage(tmp_path_factory.mktemp("forwarding"), forward=True) as staged:
        yield staged


SHOWN = {
    "bearer": lambda key: ({"authorization": f"Bearer {key}"}, ""),
    "lower": lambda key: ({"authorization": f"bearer {key}"}, ""),
    "x-api-key": lambda key: ({"x-api-key": key}, ""),
    "x-goog-api-key": lambda key: ({"x-goog-api-key": key}, ""),
    "query": lambda key: ({}, f"key={key}"),
    "own": lambda key: ({"x-toolwire-key": key}, ""),
}


def _send_request(served: Served, client: str, model: str, headers: Mapping[str, str], query: str = "") -> Any:
    path = path_of(client, model, False)
    body = encode_json(request_of(client, model, False)).encode()
    return ask(served.port, "POST", f"{path}?{query}" if query else path, body, headers)


# --- keys ---


@pytest.mark.parametrize("way", SHOWN)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_key_is_known_however_it_is_shown(keyed: Served, client: str, way: str) -> None:
    scene = keyed.scene("openai-chat", whole_answer("openai-chat"))
    headers, query = SHOWN[way](CLIENT_KEY)
    got = _send_request(keyed, client, scene.model, headers, query)
    assert (got.status, text_of(client, got, False)) == (200, "Hello there.")
    assert keyed.line(got.id)["key_name"] == "all"
    assert CLIENT_KEY not in str(scene.asked)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer wrong"},
        {"x-api-key": ""},
        {"x-toolwire-key": "wrong", "authorization": f"Bearer {CLIENT_KEY}"},
    ],
)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_wrong_key_or_none_is_refused(keyed: Served, client: str, headers: dict[str, str]) -> None:
    scene = keyed.scene("openai-chat", whole_answer("openai-chat"))
    got = _send_request(keyed, client, scene.model, headers)
    assert got.status == 401
    error = error_of(client, got)
    word = {"anthropic": "authentication_error", "gemini": "UNAUTHENTICATED", "unified": "authentication"}.get(
        client, "invalid_api_key"
    )
    assert word in (error.get("type"), error.get("status"), error.get("code"))
    assert not scene.asked


@pytest.mark.parametrize("path", ["/v1/models", "/metrics", "/v1/embeddings", "/nowhere"])
def test_nothing_but_life_is_shown_without_a_key(keyed: Served, path: str) -> None:
    assert ask(keyed.port, "GET", path).status == 401
    assert ask(keyed.port, "GET", "/livez").status == 200
    assert ask(keyed.port, "GET", "/readyz").status == 200


def test_a_gateway_proves_that_it_knows_a_key_without_being_sent_it(keyed: Served) -> None:
    def prove(header: str) -> str:
        got = ask(keyed.port, "GET", "/livez", headers={CHALLENGE_HEADER: header})
        assert got.status == 200
        return got.headers.get(PROOF_HEADER, "")

    for key in (CLIENT_KEY, NARROW_KEY):
        first, second = KeyChallenge(key), KeyChallenge(key)
        assert first.is_answered_by(prove(first.header))
        assert not second.is_answered_by(prove(first.header)), "an answer is for one question"
        start, nonce, signed = first.header.split()
        assert prove(f"{start} {nonce} {KeyChallenge('other').header.split()[2]}") == "", "who asks must know the key"
        assert not first.is_answered_by(signed)
    other = KeyChallenge("tw-other-0123456789-0123456789")
    for text in (other.header, "", "x", f"{first.header} x", first.header.upper(), "0" * 8000):
        assert prove(text) == ""


@pytest.mark.parametrize("client", CLIENTS)
def test_a_key_has_its_models(keyed: Served, client: str) -> None:
    headers = {"authorization": f"Bearer {NARROW_KEY}"}
    scene = keyed.scene("anthropic", whole_answer("anthropic"))
    assert _send_request(keyed, client, scene.model, headers).status == 200
    for model in ("large", "chat/gpt-4.1", "nonesuch", "gemini/x", "loopback"):
        got = _send_request(keyed, client, model, headers)
        assert got.status == 403
        assert "small" in error_of(client, got)["message"]


def test_a_key_sees_its_models_only(keyed: Served) -> None:
    def list_models(key: str) -> list[str]:
        got = ask(keyed.port, "GET", "/v1/models", headers={"authorization": f"Bearer {key}"})
        return [model["id"] for model in got.json()["data"]]

    assert list_models(NARROW_KEY) == ["small"]
    assert set(list_models(CLIENT_KEY)) == {"small", "large", "loopback"}
    assert ask(keyed.port, "GET", "/v1/models/large", headers={"authorization": f"Bearer {NARROW_KEY}"}).status == 403


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
def test_a_second_name_cannot_be_smuggled_in(keyed: Served, path: str) -> None:
    scene = keyed.scene("openai-chat", whole_answer("openai-chat"))
    keyed.wire.scenes[b"s950x"] = scene
    body = b'{"model":"gpt-4.1-mini","messages":[{"role":"user","content":"Hi"}],"m\\u006fdel":"large","model":"small"}'
    got = ask(keyed.port, "POST", path, body, {"authorization": f"Bearer {NARROW_KEY}"})
    assert got.status == 400, got.data
    assert "`model` is in the body twice" in error_of("openai-chat", got)["message"]
    assert not scene.asked


def test_a_narrow_key_may_not_name_another_model_in_the_path(keyed: Served) -> None:
    scene = keyed.scene("gemini", answer(200, b"{}"))
    path = f"/v1beta/models/{scene.name}:embedContent"
    assert ask(keyed.port, "POST", path, b'{"model":"small"}', {"x-goog-api-key": NARROW_KEY}).status == 400
    assert ask(keyed.port, "POST", path, b"{}", {"x-goog-api-key": NARROW_KEY}).status == 403
    assert not scene.asked


def test_a_narrow_key_may_not_use_paths_without_a_model(keyed: Served) -> None:
    assert ask(keyed.port, "GET", "/v1/files", headers={"authorization": f"Bearer {NARROW_KEY}"}).status == 403


# --- without keys ---


def _drive(
    config: Path, headers: list[tuple[bytes, bytes]], client: tuple[str, int] | None, type_: str = "http"
) -> list[dict[str, Any]]:
    """The application by the standard, without a server."""
    sent: list[dict[str, Any]] = []

    async def run() -> None:
        made = app(config)
        scope = {
            "type": type_,
            "method": "POST",
            "path": "/v1/messages",
            "query_string": b"",
            "headers": headers,
            "client": client,
            "extensions": {"websocket.http.response": {}},
        }
        body = encode_json(request_of("anthropic", "loopback", False)).encode()

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body}

        async def send(message: Any) -> None:
            sent.append(message)

        await made(scope, receive, send)
        await made.close()

    asyncio.run(run())
    return sent


@pytest.mark.parametrize(
    ("peer", "status"),
    [
        ("127.0.0.1", 200),
        ("127.9.9.9", 200),
        ("::1", 200),
        ("::ffff:127.0.0.1", 200),
        ("192.168.1.7", 403),
        ("8.8.8.8", 403),
        ("2001:db8::1", 403),
        ("::ffff:10.0.0.1", 403),
    ],
)
def test_without_keys_only_this_machine_is_served(tmp_path: Path, peer: str, status: int) -> None:
    file = tmp_path / "toolwire.toml"
    file.write_text('[server]\nlog_format = "none"\n')
    sent = _drive(file, [(b"host", b"localhost:8642")], (peer, 1234))
    assert sent[0]["status"] == status


HOSTS = [
    ("127.0.0.1:{port}", 200),
    ("localhost", 200),
    ("localhost:1", 200),
    ("LOCALHOST", 200),
    ("localhost.", 200),
    ("[::1]:8642", 200),
    ("gateway.example", 200),
    ("evil.example", 403),
    ("127.0.0.1.evil.example", 403),
    ("localhost.evil.example:80", 403),
    ("evil.example#localhost", 403),
    ("user@evil.example", 403),
    ("", 403),
]


@pytest.mark.parametrize(("host", "status"), HOSTS)
def test_a_name_that_was_bound_anew_is_refused(open_: Served, host: str, status: int) -> None:
    got = call(open_, "anthropic", "loopback", False, {"host": host.format(port=open_.port)})
    assert got.status == status
    if status == 403:
        assert "server.allowed_hosts" in error_of("anthropic", got)["message"]


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:3000", 200),
        ("http://127.0.0.1", 200),
        ("https://evil.example", 403),
        ("null", 403),
        ("file://", 403),
        ("http://localhost.evil.example", 403),
        ("http://[", 403),
    ],
)
def test_pages_of_others_are_refused(open_: Served, origin: str, status: int) -> None:
    assert call(open_, "openai-chat", "loopback", False, {"origin": origin}).status == status


# --- many requests with the same head on one connection ---


def _resend_request(line: RawConnection, model: str, key: str) -> int:
    """One more request with the same head, but for the length of its body."""
    body = encode_json(request_of("openai-chat", model, False, user="u" * len(key))).encode()
    line.send("POST", path_of("openai-chat", model, False), body, {"authorization": f"Bearer {key}"})
    response = line.start()
    response.read()
    return response.status


def test_what_is_known_of_a_head_ends_with_its_configuration(tmp_path: Path) -> None:
    with stage(tmp_path, f"retries = 0\ncooldown_after = 100000\n{KEYS}") as served:
        scene = served.scene("openai-chat", whole_answer("openai-chat"))
        file, line = tmp_path / "toolwire.toml", RawConnection(served.port)
        before = file.read_text()
        assert [_resend_request(line, scene.model, CLIENT_KEY) for _ in range(3)] == [200] * 3
        file.write_text(before.replace(PROVIDER_KEY, "sk-another-0123456789"))
        served.gateway.config_watch.reload(True)
        assert [_resend_request(line, scene.model, CLIENT_KEY) for _ in range(3)] == [200] * 3
        shown = [asked.headers["authorization"] for asked in scene.asked]
        assert shown == [f"Bearer {PROVIDER_KEY}"] * 3 + ["Bearer sk-another-0123456789"] * 3
        file.write_text(before.replace(hashlib.sha256(CLIENT_KEY.encode()).hexdigest(), "0" * 64))
        served.gateway.config_watch.reload(True)
        assert [_resend_request(line, scene.model, CLIENT_KEY) for _ in range(3)] == [401] * 3
        file.write_text(before)
        served.gateway.config_watch.reload(True)
        assert [_resend_request(line, scene.model, CLIENT_KEY) for _ in range(2)] == [200] * 2
        line.connection.close()
    assert len({asked.headers["x-request-id"] for asked in scene.asked}) == len(scene.asked) == 8


def test_a_key_is_looked_at_in_every_head(keyed: Served) -> None:
    line = RawConnection(keyed.port)
    keys = [CLIENT_KEY, CLIENT_KEY, "tw-unknown-key-0123456789", CLIENT_KEY, NARROW_KEY, NARROW_KEY, CLIENT_KEY]
    assert [_resend_request(line, "loopback", key) for key in keys] == [200, 200, 401, 200, 403, 403, 200]
    line.connection.close()


# --- forward_auth ---

WAYS = {"anthropic": ("x-api-key", "{}"), "gemini": ("x-goog-api-key", "{}")}


@STREAMS
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_clients_own_credential_goes_through(forwarding: Served, client: str, provider: str, stream: bool) -> None:
    scene = forwarding.scene(provider, play_script(provider, stream))
    shown, form = WAYS.get(client, ("authorization", "Bearer {}"))
    got = call(forwarding, client, scene.model, stream, {shown: form.format("sk-my-own")})
    assert got.status == 200
    name, form = WAYS.get(provider, ("authorization", "Bearer {}"))
    sent = scene.asked[0].headers
    assert sent[name] == form.format("sk-my-own")
    assert not {"authorization", "x-api-key", "x-goog-api-key"} - {name} & sent.keys()
    assert "sk-my-own" not in str(forwarding.line(got.id))


@pytest.mark.parametrize("client", CLIENTS)
def test_without_a_credential_of_its_own_a_client_is_told(forwarding: Served, client: str) -> None:
    scene = forwarding.scene("openai-chat", whole_answer("openai-chat"))
    got = call(forwarding, client, scene.model, False)
    assert got.status == 401
    assert "`chat`" in error_of(client, got)["message"]
    assert not scene.asked


def test_a_persons_token_is_shown_the_other_way(forwarding: Served) -> None:
    scene = forwarding.scene("anthropic", whole_answer("anthropic"))
    call(forwarding, "anthropic", scene.model, False, {"authorization": "Bearer sk-ant-oat01-mine"})
    sent = scene.asked[0].headers
    assert sent["authorization"] == "Bearer sk-ant-oat01-mine"
    assert "x-api-key" not in sent


def test_other_paths_get_the_clients_credential_too(forwarding: Served) -> None:
    scene = forwarding.scene("openai-chat", answer(200, b"{}"))
    got = ask(
        forwarding.port,
        "POST",
        "/v1/embeddings",
        b'{"model":"%b"}' % scene.model.encode(),
        {"authorization": "Bearer sk-my-own"},
    )
    assert got.status == 200
    assert scene.asked[0].headers["authorization"] == "Bearer sk-my-own"


def test_both_keys_at_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    with stage(tmp_path_factory.mktemp("both"), f"retries = 0\ncooldown_after = 9999\n{KEYS}", forward=True) as served:
        scene = served.scene("anthropic", whole_answer("anthropic"))
        headers = {"x-toolwire-key": CLIENT_KEY, "authorization": "Bearer sk-my-own"}
        assert call(served, "openai-chat", scene.model, False, headers).status == 200
        sent = scene.asked[0].headers
        assert sent["x-api-key"] == "sk-my-own"
        assert CLIENT_KEY not in str(sent)
        # The gateway's own key alone is never taken for one of the provider's.
        got = call(served, "openai-chat", scene.model, False, {"authorization": f"Bearer {CLIENT_KEY}"})
        assert got.status == 401
        assert "x-toolwire-key" in error_of("openai-chat", got)["message"]
        assert len(scene.asked) == 1


# --- ids ---


@STREAMS
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("client", CLIENTS)
def test_an_id_goes_through_and_through(open_: Served, client: str, provider: str, stream: bool) -> None:
    scene = open_.scene(provider, play_script(provider, stream))
    got = call(open_, client, scene.model, stream, {"x-request-id": f"mine-{scene.mark}"})
    assert got.headers["x-request-id"] == f"mine-{scene.mark}"
    assert client != "anthropic" or got.headers["request-id"] == f"mine-{scene.mark}"
    assert scene.asked[0].headers["x-request-id"] == f"mine-{scene.mark}"
    assert open_.line(f"mine-{scene.mark}")["status"] == 200


@pytest.mark.parametrize("given", ["", "with space", "x" * 500, "säge", "<script>"])
def test_an_indecent_id_is_replaced(open_: Served, given: str) -> None:
    scene = open_.scene("anthropic", whole_answer("anthropic"))
    got = ask(
        open_.port,
        "POST",
        "/v1/messages",
        encode_json(request_of("anthropic", scene.model, False)).encode(),
        {"x-request-id": given.encode().decode("latin-1")},
    )
    assert got.headers["x-request-id"] != given
    assert scene.asked[0].headers["x-request-id"] == got.headers["x-request-id"]


# --- keys are never seen ---


@STREAMS
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("how", ["json", "escaped", "html", "stream", "mid-stream", "header"])
def test_a_key_that_a_provider_repeats_is_not_shown(
    open_: Served, client: str, provider: str, how: str, stream: bool
) -> None:
    said = f"the key {PROVIDER_KEY} is wrong"
    body = refusal(provider, 401, "authentication_error", said)
    frame = (b"event: error\n" if provider == "anthropic" else b"") + b"data: " + body + b"\n\n"
    escapes = "".join(f"\\u{ord(letter):04x}" for letter in PROVIDER_KEY)
    plays = {
        "json": answer(401, body),
        "escaped": answer(401, body.replace(PROVIDER_KEY.encode(), escapes.encode())),
        "html": answer(403, said.encode(), "text/html"),
        "stream": write_chunked(frame),
        "mid-stream": write_chunked(*opening_frames(provider), frame),
        "header": answer(
            401,
            refusal(provider, 401, "authentication_error", "No."),
            x_ratelimit_limit_requests=PROVIDER_KEY,
            anthropic_note=PROVIDER_KEY,
            www_authenticate=said,
            openai_note=PROVIDER_KEY,
        ),
    }
    scene = open_.scene(provider, plays[how])
    got = call(open_, client, scene.model, stream)
    assert PROVIDER_KEY not in got.data.decode()
    assert escapes not in got.data.decode()
    assert PROVIDER_KEY not in str(dict(got.headers))
    assert PROVIDER_KEY not in json.dumps(open_.line(got.id))


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_key_that_is_repeated_late_in_a_stream(open_: Served, client: str, provider: str) -> None:
    body = refusal(provider, 401, "authentication_error", f"the key {PROVIDER_KEY} is wrong")

    def play(peer: ScriptedConnection) -> None:
        peer.send(write_chunked(*opening_frames(provider), end=False))
        peer.wait_for_release()
        peer.chunk((b"event: error\n" if provider == "anthropic" else b"") + b"data: " + body + b"\n\n", b"")

    scene = open_.scene(provider, play)
    line = open_call(open_, client, scene.model, True)
    line.start()
    data = line.read_until(b"Hel")
    scene.go.set()
    data += line.response.read()
    line.connection.close()
    assert b"is wrong" in data
    assert PROVIDER_KEY.encode() not in data


def write_with_key(provider: str, stream: bool, written: str) -> bytes:
    """The bytes of an answer that has this text in one piece."""
    whole_body = encode_json(body_of(provider, ScriptedAnswer("MARK"))).encode()
    data = b"".join(frames(provider, "MARK")) if stream else whole_body
    for piece in (b'"MARK"', b'"MA"'):  # a stream says it in pieces: the first one gets all
        data = data.replace(piece, f'"a {written} z"'.encode())
    return data


WRITTEN = {
    "plain": PROVIDER_KEY,
    "escaped": "".join(f"\\u{ord(letter):04X}" for letter in PROVIDER_KEY),
    "partly escaped": PROVIDER_KEY.replace("-", "\\u002d"),
    "base64": base64.b64encode(f"user:{PROVIDER_KEY}".encode()).decode(),
    "spelled": PROVIDER_KEY,
}


@parametrize_pairwise(
    {
        "client,provider": list(itertools.product(CLIENTS, PROVIDERS)),
        "written": WRITTEN.keys(),
        "stream": WHOLE_OR_STREAM,
    }
)
def test_a_key_that_a_provider_repeats_in_an_answer_is_not_shown(
    open_: Served, client: str, provider: str, written: str, stream: bool
) -> None:
    data = write_with_key(provider, stream, WRITTEN[written])
    if written == "spelled" and stream:  # in several events
        data = b"".join(frames(provider, f"a {PROVIDER_KEY} z"))
        assert data.count(PROVIDER_KEY.encode()) == (4 if provider == "openai-responses" else 0)
    kind = "text/event-stream" if stream else "application/json"
    pieces = [data[at : at + 3] for at in range(0, len(data), 3)]
    scene = open_.scene(
        provider,
        answer(200, data, kind, x_request_id=PROVIDER_KEY, anthropic_note=PROVIDER_KEY, openai_note=PROVIDER_KEY),
        write_chunked(*pieces) if stream else answer(200, gzip.compress(data), kind, content_encoding="gzip"),
    )
    for _ in range(2):
        got = call(open_, client, scene.model, stream)
        assert got.status == 200
        assert text_of(client, got, stream).startswith("a ")
        shown = f"{text_of(client, got, stream)} {got.data.decode()} {dict(got.headers)}"
        assert PROVIDER_KEY not in shown
        assert WRITTEN[written] not in shown
        assert PROVIDER_KEY not in json.dumps(open_.line(got.id))


def spell_key(provider: str, size: int, is_delta_empty_between: bool) -> list[bytes]:
    """The frames of an answer of which each brings so many letters of the key, at most."""
    pieces = [PROVIDER_KEY[at : at + size] for at in range(0, len(PROVIDER_KEY), size)]
    pieces = ["is ", *(part for piece in pieces for part in ([piece, ""] if is_delta_empty_between else [piece])), " z"]
    spelled: list[bytes] = []
    for frame in frames(provider, "MARK"):
        if b'"MA"' in frame:
            spelled += [frame.replace(b'"MA"', encode_json(piece).encode()) for piece in pieces]
        elif b'"RK"' not in frame:
            spelled.append(frame.replace(b"MARK", f"is {PROVIDER_KEY} z".encode()))
    assert len(spelled) > len(pieces)
    return spelled


@parametrize_pairwise(
    {
        "client,provider": list(itertools.product(CLIENTS, PROVIDERS)),
        "size": [1, 2, 3, 9],
        "empty": [False, True],
        "cut": [0, 1, 3, 700],
    }
)
def test_a_key_that_a_provider_spells_in_a_stream_is_not_shown(
    open_: Served, client: str, provider: str, size: int, empty: bool, cut: int
) -> None:
    """Passed through and translated, whatever the sizes of the pieces and wherever the network cuts."""
    data = spell_key(provider, size, empty)
    if cut:
        whole = b"".join(data)
        data = [whole[at : at + cut] for at in range(0, len(whole), cut)]
    scene = open_.scene(provider, answer(200, b"".join(data), "text/event-stream"), write_chunked(*data))
    for _ in range(2):
        got = call(open_, client, scene.model, True)
        assert got.status == 200
        assert text_of(client, got, True) == "is [key] z"
        assert PROVIDER_KEY not in got.data.decode()


@pytest.mark.parametrize("status", [200, 400])
def test_a_key_that_is_repeated_at_an_endpoint_that_is_only_forwarded(open_: Served, status: int) -> None:
    body = encode_json({"data": [], "key": PROVIDER_KEY}).encode()
    pieces = b"".join(b"%x\r\n%b\r\n" % (1, body[at : at + 1]) for at in range(len(body)))
    head = b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\nopenai-note: %b\r\ntransfer-encoding: chunked\r\n\r\n"
    scene = open_.scene("openai-chat", head % (status, PROVIDER_KEY.encode()) + pieces + b"0\r\n\r\n")
    got = ask(open_.port, "POST", "/v1/embeddings", encode_json({"model": scene.model, "input": "x"}).encode())
    assert got.status == status
    assert got.json() == {"data": [], "key": "[key]"}
    assert PROVIDER_KEY not in str(dict(got.headers))


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_the_clients_own_key_is_not_in_the_log(tmp_path: Path, log_format: str) -> None:
    """In every place of a request: path, query, user agent, ids, the model, tools, calls and their results."""
    settings = f'retries = 0\ncooldown_after = 100000\nlog_level = "debug"\nlog_bodies = true\nlog_format = "{log_format}"\n{KEYS}'
    with stage(tmp_path, settings) as served:
        long = "x" * 190
        for shown in SHOWN.values():
            headers, query = shown(CLIENT_KEY)
            said = ScriptedAnswer(
                CLIENT_KEY, (("run", {"command": f"curl -H {CLIENT_KEY}", "more": long + CLIENT_KEY}),)
            )
            scene = served.scene("openai-chat", answer(200, encode_json(body_of("openai-chat", said)).encode()))
            fields = {
                "model": scene.model,
                "user": CLIENT_KEY,
                "tools": [{"type": "function", "function": {"name": CLIENT_KEY, "parameters": {}}}],
                "messages": [
                    {"role": "user", "content": f"my key is {CLIENT_KEY}"},
                    {"role": "assistant", "tool_calls": [{"id": CLIENT_KEY, "type": "function", "function": {"name": "run", "arguments": json.dumps({"a": f"{long[:-5]}{CLIENT_KEY}", "b": CLIENT_KEY})}}]},
                    {"role": "tool", "tool_call_id": CLIENT_KEY, "content": CLIENT_KEY},
                ],
            }  # fmt: skip
            more = {"user-agent": f"{CLIENT_KEY}/1.0", "x-request-id": CLIENT_KEY, "x-claude-code-agent-id": CLIENT_KEY}
            for path, body in (
                ("/v1/chat/completions", fields),
                ("/v1/chat/completions", {**fields, "model": CLIENT_KEY}),
                (f"/v1/{CLIENT_KEY}/{base64.b64encode(CLIENT_KEY.encode()).decode()}", {}),
                (f"/v1beta/models/{CLIENT_KEY}:generateContent", {"contents": [{"parts": [{"text": "x"}]}]}),
            ):
                got = ask(served.port, "POST", f"{path}?{query}", encode_json(body).encode(), {**headers, **more})
                assert got.headers["x-request-id"] != CLIENT_KEY
    lines = ""
    while not served.lines.empty():
        lines += served.lines.get()
    assert lines.count("client_request") >= 2 * len(SHOWN)
    assert CLIENT_KEY not in lines
    assert CLIENT_KEY[:8] not in lines  # also not the start of it, where a text is shortened
    assert base64.b64encode(CLIENT_KEY.encode()).decode() not in lines


def test_no_key_in_anything_that_is_written(tmp_path_factory: pytest.TempPathFactory) -> None:
    with stage(
        tmp_path_factory.mktemp("secret"),
        f'retries = 1\ncooldown_after = 1\nlog_format = "json"\nlog_bodies = true\n{KEYS}',
    ) as served:
        seen = []
        for provider in PROVIDERS:
            for shown in SHOWN.values():
                headers, query = shown(CLIENT_KEY)
                refused = answer(
                    500, refusal(provider, 500, "api_error", f"{PROVIDER_KEY} {CLIENT_KEY}"), retry_after="0"
                )
                scene = served.scene(provider, refused, whole_answer(provider))
                for client in CLIENTS:
                    seen.append(_send_request(served, client, scene.model, headers, query))
        seen.append(ask(served.port, "GET", "/metrics", headers={"x-api-key": CLIENT_KEY}))
        seen.append(ask(served.port, "GET", f"/nowhere/{CLIENT_KEY}?key={CLIENT_KEY}"))
        for got in seen:
            assert PROVIDER_KEY not in f"{dict(got.headers)} {got.data!r}"
        lines = "".join(served.lines.get(timeout=PATIENCE) for _ in range(len(seen)))
        while not served.lines.empty():
            lines += served.lines.get()
        assert PROVIDER_KEY not in lines
        assert f"Bearer {CLIENT_KEY}" not in lines
        assert f"key={CLIENT_KEY}" not in lines
        assert PROVIDER_KEY not in repr(served.gateway.config)


def test_a_providers_key_stays_with_its_host(open_: Served) -> None:
    """A redirection is not followed, so nobody else gets to see the key."""
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        where = f"http://127.0.0.1:{elsewhere.getsockname()[1]}/v1/messages"
        scene = open_.scene("anthropic", answer(307, b"", location=where))
        for path, seen in (("/v1/messages", 502), ("/v1/messages/batches", 307)):
            body = encode_json(request_of("anthropic", scene.model, False)).encode()
            got = ask(open_.port, "POST", path, body)
            assert got.status == seen
        elsewhere.setblocking(False)
        with pytest.raises(BlockingIOError):
            elsewhere.accept()
    assert os.environ.get("NO_SUCH_VARIABLE") is None
