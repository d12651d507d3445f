"""Headers of clients: with the gateway's key a client chooses no account of the operator; without keys, a proxy on this
machine lets nobody in from elsewhere."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.raw_exchange import PROVIDERS, Served, answer, ask, call, stage, whole_answer
from toolwire.gateway.http.headers import HeaderTable
from waits import PATIENCE

ACCOUNT_HEADERS = {
    "openai-organization": "org-of-the-client",
    "openai-project": "proj-of-the-client",
    "openai-organization-id": "org",
    "x-openai-organization": "org",
    "x-openai-project-id": "proj",
    "x-openai-actor-authorization": "x",
    "x-openai-assistants-user-id": "u",
    "idempotency-key": "the-same-as-another-clients",
    "anthropic-workspace-id": "wrkspc_1",
    "anthropic-user-profile-id": "uprof_1",
    "anthropic-organization-id": "org",
    "x-goog-user-project": "a-project",
    "x-goog-request-params": "project=a-project",
}
OTHER_HEADERS = {
    "openai-chat": {"x-stainless-lang": "python", "openai-beta": "x=1"},
    "openai-responses": {"openai-beta": "x=1", "x-codex-turn-state": "abc", "session-id": "s"},
    "anthropic": {"x-stainless-lang": "python", "anthropic-beta": "context-1m-2025-08-07"},
    "gemini": {"x-goog-api-client": "google-genai-sdk/3.1.0"},
}


@pytest.fixture(scope="module", name="served")
def serve_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with stage(tmp_path_factory.mktemp("headers")) as staged:
        yield staged


@pytest.fixture(scope="module")
def forwarding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with stage(tmp_path_factory.mktemp("forwarding"), forward=True) as staged:
        yield staged


@pytest.mark.parametrize("protocol", PROVIDERS)
def test_headers_of_an_account_do_not_go_with_the_gateways_key(served: Served, protocol: str) -> None:
    scene = served.scene(protocol, whole_answer(protocol))
    assert call(served, protocol, scene.model, False, ACCOUNT_HEADERS | OTHER_HEADERS[protocol]).status == 200
    sent = scene.asked[0].headers
    assert not ACCOUNT_HEADERS.keys() & sent.keys()
    assert OTHER_HEADERS[protocol].items() <= sent.items()


@pytest.mark.parametrize("protocol", PROVIDERS)
def test_headers_of_an_account_go_with_the_clients_own_credential(forwarding: Served, protocol: str) -> None:
    scene = forwarding.scene(protocol, whole_answer(protocol))
    headers = {"authorization": "Bearer sk-my-own", **ACCOUNT_HEADERS}
    assert call(forwarding, protocol, scene.model, False, headers).status == 200
    sent = ACCOUNT_HEADERS.keys() & scene.asked[0].headers.keys()
    assert (
        sent
        >= {
            "openai-chat": {"openai-organization", "openai-project", "idempotency-key"},
            "openai-responses": {"openai-organization", "openai-project", "idempotency-key"},
            "anthropic": {"anthropic-workspace-id", "idempotency-key"},
            "gemini": {"x-goog-user-project"},
        }[protocol]
    )


def test_the_operator_can_set_them(tmp_path: Path) -> None:
    more = 'headers = { "openai-organization" = "org-of-the-operator" }\n'
    with stage(tmp_path) as plain:
        text = (tmp_path / "toolwire.toml").read_text()
        (tmp_path / "toolwire.toml").write_text(text.replace("[providers.responses]", f"{more}[providers.responses]"))
        plain.gateway.config_watch.reload(True)
        scene = plain.scene("openai-chat", whole_answer("openai-chat"))
        call(plain, "openai-chat", scene.model, False, ACCOUNT_HEADERS)
        assert scene.asked[0].headers["openai-organization"] == "org-of-the-operator"


def test_nor_on_paths_that_are_only_forwarded(served: Served) -> None:
    scene = served.scene("openai-chat", answer(200, b"{}"))
    body = b'{"model":"%b","input":"x"}' % scene.model.encode()
    headers = {name: value for name, value in ACCOUNT_HEADERS.items() if "openai" in name or "idem" in name}
    assert ask(served.port, "POST", "/v1/embeddings", body, headers).status == 200
    assert not ACCOUNT_HEADERS.keys() & scene.asked[0].headers.keys()


WORDS = st.sampled_from(
    ["organization", "organisation", "org", "project", "workspace", "account", "tenant", "idempotency"]
)


@given(
    st.sampled_from(["openai-", "x-openai-", "anthropic-", "x-goog-ext-"]),
    WORDS,
    st.sampled_from(["", "-id", "-key", "-name"]),
)
def test_whatever_they_are_called(prefix: str, word: str, suffix: str) -> None:
    name = f"{prefix}{word}{suffix}"
    table = HeaderTable(["openai-*", "x-openai-*", "anthropic-*", "x-goog-ext-*"], False)
    assert not table.contains(name)
    assert table.contains("openai-beta")


# --- a proxy on this machine ---

FROM_ELSEWHERE = [
    {"x-forwarded-for": "203.0.113.9"},
    {"x-forwarded-for": "127.0.0.1, 203.0.113.9"},
    {"x-forwarded-for": "203.0.113.9, 127.0.0.1"},
    {"x-forwarded-for": "10.0.0.7:1234"},
    {"x-forwarded-for": "[2001:db8::1]:443"},
    {"x-forwarded-for": "unknown"},
    {"x-real-ip": "192.168.1.7"},
    {"forwarded": "for=203.0.113.9;proto=https"},
    {"forwarded": 'by=127.0.0.1; for="[2001:db8::1]:80"'},
    {"forwarded": "for=127.0.0.1, for=203.0.113.9"},
    {"cf-connecting-ip": "203.0.113.9"},
]
FROM_HERE = [
    {},
    {"x-forwarded-for": "127.0.0.1"},
    {"x-forwarded-for": "::1, 127.0.0.1:80"},
    {"forwarded": 'for="[::1]:80";proto=http'},
    {"x-real-ip": "127.0.0.1"},
]


@pytest.mark.parametrize("headers", FROM_ELSEWHERE)
def test_without_keys_a_proxy_lets_nobody_in_from_elsewhere(served: Served, headers: dict[str, str]) -> None:
    assert call(served, "anthropic", "loopback", False, headers).status == 403


@pytest.mark.parametrize("headers", FROM_HERE)
def test_without_keys_a_proxy_of_ones_own_is_fine(served: Served, headers: dict[str, str]) -> None:
    assert call(served, "anthropic", "loopback", False, headers).status == 200


@pytest.mark.parametrize("second", ["evil.example", "127.0.0.1"])
def test_two_host_headers_are_refused(served: Served, second: str) -> None:
    """What stands before the gateway may have looked at the other one (RFC 9112, section 3.2)."""
    head = f"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: {second}\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", served.port), timeout=PATIENCE) as connection:
        connection.sendall(head.encode())
        assert connection.recv(4096).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(("id", "is_used"), [("job-7.a:b", True), ("sk-proj-0123456789abcdef", False), ("../x", False)])
def test_a_request_id_that_looks_like_a_secret_is_not_used(served: Served, id: str, is_used: bool) -> None:
    """It is in the log, and providers get it."""
    scene = served.scene("openai-chat", whole_answer("openai-chat"))
    assert call(served, "openai-chat", scene.model, False, {"x-request-id": id}).status == 200
    assert (scene.asked[0].headers["x-request-id"] == id) is is_used
