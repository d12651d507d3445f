"""Every path, as the SDK of its protocol expects it; and all that is not there, said in the nearest dialect."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.raw_exchange import (
    CLIENT_KEY,
    CLIENTS,
    PROVIDER_KEY,
    PROVIDERS,
    Served,
    answer,
    ask,
    call,
    error_of,
    is_complete,
    play_script,
    request_of,
    stage,
    stream_steps,
    text_of,
    whole_answer,
)

TEXT = "Grüße, 🌍!"


@pytest.fixture(scope="module", params=["own", "asgi"], name="served")
def serve_gateway(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    rules = (
        '[models]\nquick = "chat/gpt-4.1"\n"team/deep" = "anthropic/claude-sonnet-4-5"\n"claude-x-*" = "anthropic"\n'
    )
    with stage(tmp_path_factory.mktemp("endpoints"), more=rules, host=request.param) as staged:
        yield staged


# --- answers ---


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_is_answered_from_every_provider(served: Served, client: str, provider: str, stream: bool) -> None:
    scene = served.scene(provider, play_script(provider, stream, TEXT))
    got = call(served, client, scene.model, stream)
    assert got.status == 200, got.data
    assert text_of(client, got, stream) == TEXT
    assert got.headers["content-type"].startswith("text/event-stream" if stream else "application/json")
    assert not stream or is_complete(client, got.frames)
    line = served.line(got.id)
    assert (line["client_protocol"], line["provider_protocol"], line["status"]) == (client, provider, 200)
    assert (line["input_tokens"], line["output_tokens"]) == (25, 12)
    assert line.get("passthrough", False) == (client == provider)


@pytest.mark.parametrize("provider", ["gemini", "anthropic"])
@pytest.mark.parametrize("version", ["v1", "v1beta", "v1alpha"])
def test_gemini_under_every_version(served: Served, version: str, provider: str) -> None:
    body = json.dumps(request_of("gemini", "", False)).encode()
    scene = served.scene(provider, whole_answer(provider))
    got = ask(served.port, "POST", f"/{version}/models/{scene.model}:generateContent", body)
    assert (got.status, text_of("gemini", got, False)) == (200, "Hello there.")
    scene = served.scene(provider, stream_steps(provider))
    got = ask(served.port, "POST", f"/{version}/models/{scene.model}:streamGenerateContent?alt=sse", body)
    assert (got.status, text_of("gemini", got, True)) == (200, "Hello there.")


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_gemini_stream_without_alt_sse_is_one_array(served: Served, provider: str) -> None:
    scene = served.scene(provider, stream_steps(provider, TEXT))
    body = json.dumps(request_of("gemini", "", True)).encode()
    got = ask(served.port, "POST", f"/v1beta/models/{scene.model}:streamGenerateContent", body)
    assert got.headers["content-type"].startswith("application/json")
    chunks = got.json()
    assert isinstance(chunks, list)
    parts = [part for chunk in chunks for one in chunk["candidates"] for part in one["content"].get("parts", ())]
    assert "".join(part.get("text", "") for part in parts) == TEXT
    assert chunks[-1]["candidates"][0]["finishReason"] == "STOP"


@pytest.mark.parametrize("escaped", [True, False])
def test_a_gemini_name_with_a_slash(served: Served, escaped: bool) -> None:
    scene = served.scene("openai-chat", whole_answer("openai-chat"))
    name = scene.model.replace("/", "%2F") if escaped else scene.model
    got = ask(
        served.port,
        "POST",
        f"/v1beta/models/{name}:generateContent",
        json.dumps(request_of("gemini", "", False)).encode(),
    )
    assert got.status == 200
    assert scene.asked[0].json()["model"] == scene.name


# --- lists of models ---

SIGNS: list[tuple[str, str, dict[str, str]]] = [
    ("openai-chat", "/v1/models", {}),
    ("openai-chat", "/v1/models", {"authorization": "Bearer x"}),
    ("openai-responses", "/v1/models?client_version=0.150.0", {}),
    ("openai-responses", "/v1/models", {"originator": "codex_cli_rs"}),
    ("anthropic", "/v1/models", {"anthropic-version": "2023-06-01"}),
    ("anthropic", "/v1/models?limit=1000", {"anthropic-version": "2023-06-01", "authorization": "Bearer x"}),
    ("gemini", "/v1beta/models", {}),
    ("gemini", "/v1beta/models?key=x", {}),
    ("gemini", "/v1/models", {"x-goog-api-key": "x"}),
    ("gemini", "/v1/models?key=x", {}),
    ("unified", "/v1/unified/models", {}),
]


@pytest.mark.parametrize(("dialect", "path", "headers"), SIGNS)
def test_models_are_listed_in_the_dialect_of_the_caller(
    served: Served, dialect: str, path: str, headers: dict[str, str]
) -> None:
    got = ask(served.port, "GET", path, headers=headers)
    assert got.status == 200
    body = got.json()
    names = _names(dialect, body)
    assert {"quick", "team/deep", "loopback"} <= set(names)
    assert not [name for name in names if "*" in name]
    if dialect.startswith("openai"):
        assert body["object"] == "list"
        assert isinstance(body["models"], list)
    if dialect == "anthropic":
        assert {"has_more", "first_id", "last_id"} <= body.keys()


def _names(dialect: str, body: Any) -> list[str]:
    if dialect == "gemini":
        return [model["name"].removeprefix("models/") for model in body["models"]]
    return [model["id"] for model in body["models" if dialect == "unified" else "data"]]


@pytest.mark.parametrize(
    "name", ["quick", "team/deep", "team%2Fdeep", "anthropic/claude-never-listed", "claude-x-20990101"]
)
@pytest.mark.parametrize(
    ("base", "headers"),
    [("/v1/models", {}), ("/v1/models", {"anthropic-version": "2023-06-01"}), ("/v1beta/models", {})],
)
def test_one_model_also_with_slashes(served: Served, base: str, headers: dict[str, str], name: str) -> None:
    got = ask(served.port, "GET", f"{base}/{name}", headers=headers)
    assert got.status == 200, got.data
    body = got.json()
    plain = name.replace("%2F", "/")
    assert body["name"] == f"models/{plain}" if base == "/v1beta/models" else body["id"] == plain


@pytest.mark.parametrize(
    ("dialect", "base", "headers"),
    [
        ("openai-chat", "/v1/models", {}),
        ("anthropic", "/v1/models", {"anthropic-version": "x"}),
        ("gemini", "/v1beta/models", {}),
    ],
)
def test_an_unknown_model_is_answered_with_what_there_is(
    served: Served, dialect: str, base: str, headers: dict[str, str]
) -> None:
    got = ask(served.port, "GET", f"{base}/nonesuch", headers=headers)
    assert got.status == 404
    assert "quick" in error_of(dialect, got)["message"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("client", CLIENTS)
def test_a_call_for_an_unknown_model(served: Served, client: str, stream: bool) -> None:
    got = call(served, client, "quickk", stream)
    assert got.status == 404
    message = error_of(client, got)["message"]
    assert "quickk" in message
    assert "quick," in message or message.endswith("quick")


# --- the gateway's own pages ---


@pytest.mark.parametrize("path", ["/livez", "/readyz"])
def test_it_lives(served: Served, path: str) -> None:
    assert ask(served.port, "GET", path).status == 200
    assert ask(served.port, "HEAD", path).data == b""


def test_metrics_count_what_was_served(served: Served) -> None:
    scene = served.scene("gemini", whole_answer("gemini"))
    call(served, "anthropic", scene.model, False)
    got = ask(served.port, "GET", "/metrics")
    assert got.headers["content-type"].startswith("text/plain")
    assert b'provider="gemini"' in got.data


# --- what is not there ---


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_websocket_gets_426(served: Served, method: str) -> None:
    headers = {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    got = ask(served.port, method, "/v1/responses", headers=headers)
    assert got.status == 426
    if method == "GET":
        assert "POST" in error_of("openai-responses", got)["message"]


NOWHERE = [
    ("openai-chat", "POST", "/v1/chatcompletions", {}, "/v1/chat/completions"),
    ("openai-chat", "POST", "/chat/completions", {}, "/v1/chat/completions"),
    ("anthropic", "POST", "/v1/v1/messages", {"anthropic-version": "2023-06-01"}, "/v1/messages"),
    ("anthropic", "POST", "/messages", {"anthropic-version": "2023-06-01"}, "/v1/messages"),
    ("gemini", "POST", "/v2/models/x:generateContent", {"x-goog-api-key": "x"}, ""),
    ("openai-chat", "GET", "/nothing", {}, ""),
    ("unified", "POST", "/v1/unifie", {}, "/v1/unified"),
    ("openai-chat", "GET", "/v1/model", {}, "did you mean GET /v1/models?"),
    ("openai-chat", "GET", "/v1/modles", {}, "did you mean GET /v1/models?"),
]


@pytest.mark.parametrize(("dialect", "method", "path", "headers", "near"), NOWHERE)
def test_a_path_that_is_not_there_gets_a_hint(
    served: Served, dialect: str, method: str, path: str, headers: dict[str, str], near: str
) -> None:
    got = ask(served.port, method, path, b"{}", headers)
    assert got.status == 404
    message = error_of("openai-chat" if path == "/v1/unifie" else dialect, got)["message"]
    assert "hint:" in message
    assert near in message


def test_a_list_of_models_is_not_posted(served: Served) -> None:
    got = ask(served.port, "POST", "/v1/models", b"{}")
    assert (got.status, got.headers["allow"]) == (405, "GET")
    assert error_of("openai-chat", got)["message"] == "/v1/models takes GET, not POST"


@pytest.mark.parametrize(
    ("client", "path"),
    [
        ("openai-chat", "/v1/chat/completions"),
        ("anthropic", "/v1/messages"),
        ("unified", "/v1/unified"),
        ("gemini", "/v1beta/models/m:generateContent"),
        ("anthropic", "/v1/messages/count_tokens"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_a_wrong_method(served: Served, client: str, path: str, method: str) -> None:
    got = ask(served.port, method, path)
    assert got.status == 405
    assert got.headers["allow"] == "POST"
    assert "POST" in error_of(client, got)["message"]


# --- headers to providers ---

SHOWN: list[tuple[dict[str, str], str]] = [
    ({"authorization": f"Bearer {CLIENT_KEY}"}, ""),
    ({"x-api-key": CLIENT_KEY}, ""),
    ({"x-goog-api-key": CLIENT_KEY}, ""),
    ({}, f"key={CLIENT_KEY}"),
]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(("headers", "query"), SHOWN)
def test_a_clients_key_never_reaches_a_provider(
    served: Served, client: str, provider: str, headers: dict[str, str], query: str
) -> None:
    scene = served.scene(provider, whole_answer(provider))
    body = json.dumps(request_of(client, scene.model, False)).encode()
    path = {
        "gemini": f"/v1beta/models/{scene.model}:generateContent",
        "openai-chat": "/v1/chat/completions",
        "openai-responses": "/v1/responses",
        "anthropic": "/v1/messages",
        "unified": "/v1/unified",
    }[client]
    got = ask(served.port, "POST", f"{path}?{query}" if query else path, body, headers)
    assert got.status == 200
    sent = scene.asked[0]
    assert CLIENT_KEY not in f"{sent.target} {sent.headers} {sent.body!r}"
    name = {"anthropic": "x-api-key", "gemini": "x-goog-api-key"}.get(provider, "authorization")
    assert PROVIDER_KEY in sent.headers[name]
    assert not {"authorization", "x-api-key", "x-goog-api-key"} - {name} & sent.headers.keys()


@pytest.mark.parametrize("version", ["2023-06-01", "2023-01-01", "2026-10-21", "2031-01-01", "nonsense", ""])
def test_any_anthropic_version_is_accepted(served: Served, version: str) -> None:
    for provider in ("anthropic", "openai-chat"):
        scene = served.scene(provider, whole_answer(provider))
        got = call(
            served, "anthropic", scene.model, False, {"anthropic-version": version, "anthropic-beta": "a-2020-01-01,b"}
        )
        assert got.status == 200
        sent = scene.asked[0].headers
        if provider == "anthropic":
            assert sent["anthropic-version"] in ("2023-06-01", "2026-10-21")
            assert version != "2026-10-21" or sent["anthropic-version"] == version
            assert sent["anthropic-beta"] == "a-2020-01-01,b"
        else:
            assert not [name for name in sent if name.startswith("anthropic")]


def test_other_clients_send_the_version_that_fits(served: Served) -> None:
    scene = served.scene("anthropic", whole_answer("anthropic"))
    assert call(served, "openai-chat", scene.model, False).status == 200
    assert scene.asked[0].headers["anthropic-version"] == "2023-06-01"
    assert "anthropic-beta" not in scene.asked[0].headers


def test_betas_in_several_headers_arrive_as_one(served: Served) -> None:
    scene = served.scene("anthropic", whole_answer("anthropic"))
    from http.client import HTTPConnection

    connection = HTTPConnection("127.0.0.1", served.port)
    body = json.dumps(request_of("anthropic", scene.model, False)).encode()
    connection.putrequest("POST", "/v1/messages?beta=true")
    for name, value in (("anthropic-beta", "one"), ("anthropic-beta", "two"), ("content-length", str(len(body)))):
        connection.putheader(name, value)
    connection.endheaders(body)
    assert connection.getresponse().status == 200
    connection.close()
    assert scene.asked[0].headers["anthropic-beta"].replace(" ", "") == "one,two"


# --- other paths pass through ---


def test_embeddings_pass_to_a_provider_that_speaks_it(served: Served) -> None:
    scene = served.scene("openai-chat", answer(200, b'{"object": "list",  "data": []}'))
    sent = b'{"model": "%b", "input" : ["a"], "x": 1.50}' % scene.name.encode()
    got = ask(served.port, "POST", "/v1/embeddings", sent, {"authorization": f"Bearer {CLIENT_KEY}"})
    assert (got.status, got.data) == (200, b'{"object": "list",  "data": []}')
    asked = scene.asked[0]
    assert (asked.target, asked.body) == ("/v1/embeddings", sent)
    assert asked.headers["authorization"] == f"Bearer {PROVIDER_KEY}"


def test_embeddings_of_a_named_provider_or_an_alias_get_the_models_own_name(served: Served) -> None:
    scene = served.scene("openai-chat", answer(200, b"{}"))
    ask(served.port, "POST", "/v1/embeddings", b'{ "model": "%b", "input": "a" }' % scene.model.encode())
    assert scene.asked[0].body == b'{ "model": "%b", "input": "a" }' % scene.name.encode()


def test_half_of_a_character_in_a_forwarded_body_is_replaced(served: Served) -> None:
    scene = served.scene("openai-chat", answer(200, b"{}"))
    for model in (scene.model, scene.name):
        got = ask(served.port, "POST", "/v1/embeddings", b'{"model": "%b", "input": "a\\ud83d"}' % model.encode())
        assert got.status == 200, got.data
        asked = json.loads(scene.asked[-1].body)
        assert asked == {"model": scene.name, "input": "a\N{REPLACEMENT CHARACTER}"}


def test_half_of_a_character_is_replaced_where_a_body_names_no_model(served: Served) -> None:
    scene = served.scene("openai-chat", answer(200, b"{}"))
    body = b'{"name": "-%b.\\ud83d"}' % scene.mark.encode()
    assert ask(served.port, "POST", "/v1/vector_stores", body).status == 200
    assert json.loads(scene.asked[-1].body) == {"name": f"-{scene.mark}.\N{REPLACEMENT CHARACTER}"}


def test_files_pass_byte_for_byte(served: Served) -> None:
    scene = served.scene("openai-chat", answer(200, b'{"id":"file-1"}', x_request_id="req_theirs"))
    body = (
        b'--XX\r\ncontent-disposition: form-data; name="file"; filename="-%b.bin"\r\n\r\n\x00\xff\r\n--XX--\r\n'
        % scene.mark.encode()
    )
    got = ask(
        served.port, "POST", "/v1/files?purpose=a%20b", body, {"content-type": "multipart/form-data; boundary=XX"}
    )
    assert (got.status, got.data) == (200, b'{"id":"file-1"}')
    asked = scene.asked[0]
    assert (asked.target, asked.body) == ("/v1/files?purpose=a%20b", body)
    assert asked.headers["content-type"] == "multipart/form-data; boundary=XX"


@pytest.mark.parametrize(
    ("protocol", "path", "headers"),
    [
        ("openai-chat", "/v1/files/file-{mark}", {}),
        ("openai-responses", "/v1/responses/resp-{mark}", {}),
        ("anthropic", "/v1/messages/batches/b-{mark}", {}),
        ("gemini", "/v1beta/files/f-{mark}", {}),
        ("anthropic", "/v1/files/f-{mark}", {"anthropic-version": "2023-06-01"}),
    ],
)
def test_a_get_passes_with_its_query_but_without_a_key(
    served: Served, protocol: str, path: str, headers: dict[str, str]
) -> None:
    scene = served.scene(protocol, answer(200, b'{"ok":true}'))
    where = path.format(mark=scene.mark)
    key = f"&key={CLIENT_KEY}" if protocol == "gemini" else ""
    got = ask(served.port, "GET", f"{where}?after=x%2Fy{key}&limit=2", headers=headers)
    assert (got.status, got.data) == (200, b'{"ok":true}')
    asked = scene.asked[0]
    assert (asked.method, asked.target) == ("GET", f"{where}?after=x%2Fy&limit=2")
    assert PROVIDER_KEY in str(asked.headers)
    assert CLIENT_KEY not in str(asked.headers)


def test_a_download_streams_through(served: Served) -> None:
    def play(peer: Any) -> None:
        peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: audio/mpeg\r\ntransfer-encoding: chunked\r\n\r\n")
        peer.chunk(b"first")
        peer.wait_for_release()
        peer.chunk(b"second", b"")

    from gateway.raw_exchange import RawConnection

    scene = served.scene("openai-chat", play)
    line = RawConnection(served.port)
    line.send("POST", "/v1/audio/speech", b'{"model":"%b"}' % scene.name.encode())
    assert line.start().getheader("content-type") == "audio/mpeg"
    assert line.read_until(b"first") == b"first"
    scene.go.set()
    assert line.response.read() == b"second"
    line.connection.close()


def test_a_refusal_passes_through_too(served: Served) -> None:
    scene = served.scene("openai-chat", answer(404, b'{"error":{"message":"no such file"}}'))
    got = ask(served.port, "DELETE", f"/v1/files/file-{scene.mark}")
    assert (got.status, got.data) == (404, b'{"error":{"message":"no such file"}}')
    assert scene.asked[0].method == "DELETE"


def test_the_hello_of_an_agent(served: Served) -> None:
    got = ask(served.port, "HEAD", "/api/hello", headers={"x-mark": "none"})
    assert (got.status, got.data) == (404, b"")


def test_compaction_passes_where_the_provider_has_it(served: Served) -> None:
    scene = served.scene("openai-responses", answer(200, b'{"object":"response.compaction"}'))
    body = json.dumps({"model": scene.model, "input": []}).encode()
    got = ask(served.port, "POST", "/v1/responses/compact", body)
    assert (got.status, got.json()) == (200, {"object": "response.compaction"})
    assert scene.asked[0].json()["model"] == scene.name


def test_a_path_that_only_another_protocol_has_is_refused_for_its_model(served: Served) -> None:
    scene = served.scene("anthropic", answer(200, b"{}"))
    got = ask(served.port, "POST", "/v1/embeddings", json.dumps({"model": scene.model, "input": []}).encode())
    assert got.status == 404
    assert "anthropic" in error_of("openai-chat", got)["message"]
    assert not scene.asked


@pytest.mark.parametrize(
    ("client", "path"),
    [
        ("openai-chat", "/v1/embeddings"),
        ("openai-responses", "/v1/responses/batches/all"),
        ("anthropic", "/v1/complete"),
    ],
)
def test_the_embedded_model_has_no_other_paths(served: Served, client: str, path: str) -> None:
    got = ask(served.port, "POST", path, b'{"model":"loopback"}')
    assert got.status == 404
    assert "hint:" in error_of(client, got)["message"]
