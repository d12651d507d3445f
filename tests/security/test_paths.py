"""One canonical path before any decision: however a path is spelled, nothing reaches a provider that was not judged."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.raw_exchange import error_of
from security.recorded_provider import KEY_SETTINGS, POLICY, Guarded, as_key, chat_body, send_raw, serve_guarded
from toolwire.gateway.http.request_target import read_path, read_target
from toolwire.gateway.surfaces.routes import ProtocolDetector


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with serve_guarded(tmp_path_factory.mktemp("paths"), KEY_SETTINGS, POLICY) as made:
        yield made


@pytest.fixture(scope="module")
def keyless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with serve_guarded(tmp_path_factory.mktemp("keyless"), "", POLICY) as made:
        yield made


CHAT_SPELLINGS = """
    /v1/chat/%63ompletions /v1/chat/completion%73 /%76%31/chat/completions /v1/%63hat/completions /v1/chat%2fcompletions
    /v1/chat%2Fcompletions /v1%2fchat%2fcompletions /v1/chat/completions/ /v1/chat/completions// //v1/chat/completions
    /v1//chat/completions /v1/chat//completions /v1/./chat/completions /v1/chat/./completions /v1/chat/completions/.
    /v1/x/../chat/completions /v1/embeddings/../chat/completions /v1/files/../chat/completions /../v1/chat/completions
    /v1/chat/../chat/completions /v1/embeddings/%2e%2e/chat/completions /v1/embeddings/.%2e/chat/completions
    /v1/embeddings/%2E./chat/completions /v1/embeddings/..%2fchat/completions /v1/embeddings%2f..%2fchat/completions
    /v1/embeddings/%252e%252e/chat/completions /v1/chat/%2563ompletions /v1/chat/%2e/completions /v1/chat/completions%20
    /v1/chat/completions%00 /v1/chat/completions%0a /v1/chat/completions%0d%0a /v1/chat/completions%09
    /v1/chat/completions%23 /v1/chat/completions%3f /v1/chat/completions%3Fx=1 /v1/chat/completions;x=1
    /v1/chat;x/completions /v1/chat/completions%3b /v1/chat\\completions /v1\\chat\\completions /v1/chat%5ccompletions
    /v1/embeddings/..\\chat/completions /v1/embeddings/..;/chat/completions /V1/chat/completions /v1/Chat/Completions
    /v1/CHAT/COMPLETIONS /v1/chat/completions#x /v1/chat/completions# /v1/embeddings#/../chat/completions
    /v1/chat/comple%74ions?x=1 /v1/chat/completions%c3%a9 /v1/chat/completions%ff /v1/chat/%c0%afcompletions
    /v1/chat/completions? /v1/chat/completions?x=%00 /v1/chat/completions/%2e%2e/completions /v1/chat/completions%
    /v1/chat/completions%2 /v1/chat/completions%zz /v1/chat/completions/x/.. /v1/embeddings/%2e%2e%2fchat/completions
    /v1/chat/c%6fmpletions /v1/chat/completions%2f /v1/messages/../chat/completions /v1beta/../v1/chat/completions
    /v1/chat/completions/%2e /.//v1/chat/completions /v1/chat/completions'x /v1/chat/completions"x
""".split()
RAW_SPELLINGS = [
    b"/v1/chat/completions\xc3\xa9", b"/v1/chat\xe2\x81\x84completions", b"/v1/chat/completions\x7f",
    b"http://evil.example/v1/chat/completions", b"http://evil.example/v1/chat/%63ompletions",
    b"https://api.openai.com/v1/chat/completions", b"http://127.0.0.1:1/v1/chat/completions",
    b"http://user@127.0.0.1/v1/chat/completions", b"ftp://127.0.0.1/v1/chat/completions", b"*",
    b"v1/chat/completions", b"//evil.example/v1/chat/completions", b"/\\evil.example/v1/chat/completions",
]  # fmt: skip


def was_judged(path: str, body: bytes) -> bool:
    """A completion came as the gateway writes it: at its one path, for an allowed model, without the dropped tool."""
    if path != "/v1/chat/completions":
        return re.search("complet|chat|messages", path) is None
    return b"forbidden" not in body and json.loads(body)["model"] == "gpt-small"


@pytest.mark.parametrize("spelling", [*CHAT_SPELLINGS, *RAW_SPELLINGS])
@pytest.mark.parametrize("key", ["ann", "narrow"])
def test_no_spelling_of_a_path_evades_rules_and_lists_of_models(gate: Guarded, spelling: str | bytes, key: str) -> None:
    for model in ("small", "large"):
        got = send_raw(gate.port, "POST", spelling, chat_body(model), as_key(key))
        arrived = gate.take_arrived()
        allowed = {"small": "gpt-small", "large": "gpt-large"} if key == "ann" else {"small": "gpt-small"}
        for asked in arrived:
            assert asked.target == "/v1/chat/completions"
            assert b"forbidden" not in asked.body
            assert json.loads(asked.body)["model"] == allowed[model]
        assert got.status == 200 if arrived else got.status in (400, 403, 404), got


ACCEPTED = {
    "/v1/chat/%63ompletions": "/v1/chat/completions",
    "/v1/chat/completions/": "/v1/chat/completions",
    "/%76%31/chat/completions": "/v1/chat/completions",
    "/v1/chat/completions?x=1": "/v1/chat/completions",
    "/v1beta/models/m%3AgenerateContent": "/v1beta/models/m:generateContent",
    "/v1beta/models/a%2Fb:generateContent": "/v1beta/models/a/b:generateContent",
    "/v1beta/models/a%2fb%3a8:generateContent": "/v1beta/models/a/b:8:generateContent",
    "/v1/models/team%2Fdeep": "/v1/models/team/deep",
    "/v1/models/x%5B1m%5D": "/v1/models/x[1m]",
    "/": "/",
}


@pytest.mark.parametrize("target", ACCEPTED)
def test_a_harmless_spelling_means_the_plain_one(target: str) -> None:
    found = read_target(target, "h")
    assert (found.path, found.problem) == (ACCEPTED[target], "")
    assert read_target(f"http://H{target}", "h").path == ACCEPTED[target]


@pytest.mark.parametrize("spelling", ["/v1/embeddings", "/v1/embeddings/", "/v1/%65mbeddings", "/v1/embedding%73/"])
def test_a_forwarded_path_is_sent_in_its_one_spelling(gate: Guarded, spelling: str) -> None:
    got = send_raw(gate.port, "POST", f"{spelling}?x=%2f", b'{"model":"small","input":"a"}', as_key("ann"))
    assert got.status == 200
    assert [(one.target, json.loads(one.body)["model"]) for one in gate.take_arrived()] == [
        ("/v1/embeddings?x=%2f", "gpt-small")
    ]


# --- the list of what is forwarded ---

NEVER = (
    """
    GET /v1/organization/users|GET /v1/organization/admin_api_keys|POST /v1/organization/projects|GET /v1/organizations/me
    GET /v1/organizations/api_keys|POST /v1/oauth/token|GET /v1/projects/p/users|POST /v1/realtime/client_secrets
    POST /v1/realtime/sessions|POST /v1beta/auth_tokens|GET /v1/vaults|GET /api/oauth/profile|POST /api/oauth/token
    GET /api/hello|POST /v1/webhook_endpoints|GET /v1/usage|GET /v1/dashboard/billing/usage|POST /v1/agents
    GET /v1beta/tunedModels/x/permissions|POST /v1beta/tunedModels/x/permissions|POST /v1beta/tunedModels/x:transferOwnership
    POST /v1/fine_tuning/checkpoints/x/permissions|GET /v1/user_profiles|GET /v1/environments|PATCH /v1/embeddings
    GET /v1/embeddings|PUT /v1/files/f|OPTIONS /v1/files|TRACE /v1/embeddings|POST /v1/rerank|GET /v1/engines
    POST /v1/embeddings/x|POST /v1/embeddingsx|POST /v1/files/x/y/z|POST /v1beta/models/m:transmogrify
    POST /v1beta/models/m:embedContent/x|POST /v1/unified/x|POST /upload/v1beta/x|GET /v1beta/corpora|GET /.env
    GET /v1/internal/config|POST /v1/chat|POST /v1/messages/x|POST /v1/responses/x/y|GET /v1beta|GET /v1|POST /v2/files
    POST /v1/tunnels|POST /v1/skills/x/y/z|POST /v1beta/files:register|GET /v1beta/projects/p|POST /v1/publishers/x
""".replace("\n    ", "|")
    .strip()
    .strip("|")
    .split("|")
)


@pytest.mark.parametrize("line", NEVER)
@pytest.mark.parametrize("headers", [{}, {"anthropic-version": "2023-06-01"}, {"x-goog-api-key": "k"}])
def test_what_is_not_in_a_table_reaches_no_provider(keyless: Guarded, line: str, headers: dict[str, str]) -> None:
    method, _, path = line.partition(" ")
    got = send_raw(keyless.port, method, path, b'{"model":"small"}', headers)
    assert got.status in (404, 405, 501), got
    assert keyless.take_arrived() == []
    assert b"model_not_found" not in got.body


@pytest.mark.parametrize(
    ("client", "headers"),
    [("openai-chat", {}), ("anthropic", {"anthropic-version": "1"}), ("gemini", {"x-goog-api-key": "k"})],
)
def test_an_unknown_path_gets_a_hint_in_the_clients_shape(
    keyless: Guarded, client: str, headers: dict[str, str]
) -> None:
    got = send_raw(keyless.port, "POST", "/v1/nowhere", b"{}", headers)
    assert got.status == 404
    error = error_of(client, got)  # type: ignore[arg-type]
    assert "hint:" in error["message"]
    assert error.get("code") in (None, 404)


GOOGLE = {"x-goog-api-key": "k"}
FORWARDED: list[tuple[str, str, dict[str, str]]] = [
    ("POST", "/v1/models/embed-x:embedContent", GOOGLE),
    ("POST", "/v1beta/models/embed-x:embedContent", GOOGLE),
    ("POST", "/v1/models/embed-x:batchEmbedContents", GOOGLE),
    ("POST", "/v1alpha/models/embed-x:predict", GOOGLE),
    ("GET", "/v1/files", GOOGLE),
    ("GET", "/v1/files/f-1", GOOGLE),
    ("GET", "/v1beta/files/f-1:download", GOOGLE),
    ("DELETE", "/v1/files/f-1", GOOGLE),
    ("GET", "/v1/batches", GOOGLE),
    ("GET", "/v1/batches/b1", GOOGLE),
    ("POST", "/v1/batches/b1:cancel", GOOGLE),
    ("POST", "/v1/models/embed-x:predictLongRunning", GOOGLE),
    ("GET", "/v1/models/embed-x/operations/o1", GOOGLE),
    ("GET", "/v1beta/cachedContents", GOOGLE),
    ("POST", "/upload/v1/files", GOOGLE),
    ("POST", "/upload/v1beta/files", GOOGLE),
    ("GET", "/v1/files", {}),
    ("GET", "/v1/files/file-1/content", {}),
    ("GET", "/v1/batches/batch_1", {}),
    ("POST", "/v1/moderations", {}),
    ("GET", "/v1/threads/thread_1/messages", {}),
    ("GET", "/v1/files", {"anthropic-version": "1"}),
    ("GET", "/v1/messages/batches", {}),
    ("GET", "/v1/skills", {"anthropic-version": "1"}),
]


@pytest.mark.parametrize(("method", "path", "headers"), FORWARDED)
def test_what_is_in_a_table_is_forwarded_under_every_version(
    keyless: Guarded, method: str, path: str, headers: dict[str, str]
) -> None:
    got = send_raw(keyless.port, method, path, b"{}" if method == "POST" else b"", headers)
    assert got.status == 200, got
    arrived = keyless.take_arrived()
    assert [(one.method, one.target) for one in arrived] == [(method, path)]
    credential = {"x-goog-api-key"} if headers is GOOGLE else {"authorization", "x-api-key"}
    assert credential & arrived[0].headers.keys()


@pytest.mark.parametrize(
    "key",
    ["access_token", "access%5Ftoken", "$httpMethod", "%24httpMethod", "X-HTTP-Method-Override", "model", "api_key"],
)
def test_a_query_cannot_steer_the_provider(keyless: Guarded, key: str) -> None:
    got = send_raw(keyless.port, "POST", f"/v1/models/embed-x:embedContent?{key}=x", b"{}", GOOGLE)
    assert got.status == 400, got
    assert keyless.take_arrived() == []


@pytest.mark.parametrize("key", ["key", "k%65y", "%6Bey"])
def test_a_key_in_the_query_stays_here_however_it_is_spelled(keyless: Guarded, key: str) -> None:
    got = send_raw(keyless.port, "POST", f"/v1/models/embed-x:embedContent?{key}=secret&a=1", b"{}", GOOGLE)
    assert got.status in (200, 400)
    assert not [one for one in keyless.take_arrived() if "secret" in one.target]


# --- names of models ---

DOUBTFUL_NAMES = [
    "chat/gpt-small/../gpt-large", "chat/gpt-small%2f..%2fgpt-large", "..", "chat/..", "chat/gpt-small\u0000gpt-large",
    "chat/gpt-small\n", "chat/gpt-small\\gpt-large", "chat/gpt-small%20", "small%00", " small", "small ", "small\t",
    "chat/gpt-small\u200b", "chat/gpt-small/./x", "chat/gpt-small" + "x" * 300, "x" * 100_000, "gpt-large%",
    "chat/gpt-small\u202egpt",
]  # fmt: skip


@pytest.mark.parametrize("name", DOUBTFUL_NAMES, ids=lambda name: repr(name)[:40])
@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "store": False}),
        ("/v1/embeddings", {"input": "Hi"}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9}),
        ("/v1/responses", {"input": "Hi", "store": False}),
        ("/v1/unified", {"messages": [{"role": "user", "content": "Hi"}]}),
    ],
)
def test_a_doubtful_name_of_a_model_is_refused_before_any_lookup(
    gate: Guarded, path: str, more: dict[str, Any], name: str
) -> None:
    body = {"model": name, **more}
    for key in ("narrow", "ann"):
        got = send_raw(gate.port, "POST", path, json.dumps(body).encode(), as_key(key))
        assert got.status == 400, got
        assert gate.take_arrived() == []


@pytest.mark.parametrize(
    "name",
    ["embed-small/../embed-large", "embed-small%2f%2e%2e%2fembed-large", "embed-small%252f", "..", "%2e%2e", "a%00"],
)
@pytest.mark.parametrize("verb", ["generateContent", "embedContent", "countTokens"])
def test_a_doubtful_name_in_a_path(gate: Guarded, name: str, verb: str) -> None:
    got = send_raw(gate.port, "POST", f"/v1beta/models/gemini/{name}:{verb}", b"{}", as_key("narrow"))
    assert got.status in (400, 403, 404), got
    assert gate.take_arrived() == []


ASKED = [
    ("POST", "/v1beta/models/gemini/{name}:embedContent", b"{}", ""),
    ("POST", "/v1/models/gemini%2F{name}:batchEmbedContents", b'{"requests":[{"model":"models/gemini/{name}"}]}', ""),
    ("POST", "/v1beta/models/gemini/{name}:embedContent", b'{"model":"models/gemini/{name}"}', ""),
]


@pytest.mark.parametrize(("method", "path", "body", "kind"), ASKED)
def test_the_models_of_a_key_hold_in_paths(gate: Guarded, method: str, path: str, body: bytes, kind: str) -> None:
    for name, status in (("embed-small-1", 200), ("embed-large", 403)):
        sent = body.replace(b"{name}", name.encode())
        got = send_raw(gate.port, method, path.replace("{name}", name), sent, as_key("narrow", x_goog_api_key="x"))
        assert got.status in ((status,) if status == 200 else (401, 403)), got
    for asked in gate.take_arrived():
        assert "models/embed-small-1:" in asked.path
        assert b"gemini/" not in asked.body


# --- a missing model ---


@pytest.mark.parametrize("client", ["openai-chat", "openai-responses", "anthropic", "unified"])
@pytest.mark.parametrize("named", [{}, {"model": ""}], ids=["absent", "empty"])
def test_a_missing_model_is_an_invalid_request(keyless: Guarded, client: str, named: dict[str, str]) -> None:
    from gateway.raw_exchange import path_of, request_of

    body = request_of(client, "x", False)
    del body["model"]
    got = send_raw(keyless.port, "POST", path_of(client, "", False), json.dumps({**body, **named}).encode())
    assert got.status == 400, got
    error = error_of(client, got)  # type: ignore[arg-type]
    assert "does not name a model" in error["message"]
    if client.startswith("openai"):
        assert (error["type"], error["param"], error["code"]) == (
            "invalid_request_error", "model", "missing_required_parameter",
        )  # fmt: skip
    if client == "anthropic":
        assert error["type"] == "invalid_request_error"


# --- laws ---

PIECES = st.sampled_from(
    [
        "v1",
        "v1beta",
        "chat",
        "completions",
        "embeddings",
        "files",
        "models",
        "m:generateContent",
        "m:embedContent",
        "..",
        ".",
    ]
)


def _spell(piece: str, choices: list[int]) -> str:
    ways = [
        lambda c: c,
        lambda c: c,
        lambda c: f"%{ord(c):02x}",
        lambda c: f"%{ord(c):02X}",
        lambda c: f"%25{ord(c):02x}",
    ]
    return "".join(ways[choices[place % len(choices)]](character) for place, character in enumerate(piece))


@given(
    st.lists(PIECES, max_size=5),
    st.lists(st.integers(0, 4), min_size=1, max_size=7),
    st.sampled_from(["/", "//", "/./", "%2f", "\\", "/%2e/"]),
    st.sampled_from(["", "/", "//", ";", "%00", "#", " "]),
)
def test_a_path_that_is_accepted_has_one_reading(
    pieces: list[str], choices: list[int], separator: str, end: str
) -> None:
    path = "/" + separator.join(_spell(piece, choices) for piece in pieces) + end
    found = read_path(path, "")
    if found.problem:
        return
    assert re.fullmatch(r"/|(/[A-Za-z0-9._~:@+=,\[\]-]+)+", found.path)
    assert not {"", ".", ".."} & set(found.path.split("/")[1:]) or found.path == "/"
    again = read_path(found.path, "")
    assert again == found, "reading it again changes nothing"


DETECTOR = ProtocolDetector()


@given(st.text(max_size=40), st.sampled_from(["GET", "POST", "DELETE", "PUT", "PATCH", "get", ""]))
@settings(max_examples=300)
def test_only_paths_of_the_tables_are_forwarded(text: str, method: str) -> None:
    found = DETECTOR.find_passthrough(method, f"/v1/{text}", "", {})
    if found is not None:
        codec, match = found
        assert match.endpoint in codec.http.passthrough_endpoints
        pattern = re.sub(r"\\\{(id|model|version)\\\}", ".+", re.escape(match.endpoint.path))
        assert re.fullmatch(pattern, match.path, re.DOTALL)
