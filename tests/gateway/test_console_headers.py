"""The console shows the headers of both sides, the address that was called and the waits; credentials it hides."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway.raw_exchange import PROVIDER_KEY, Served, answer, ask, call, play_script, stage
from gateway.test_console import find_id, get
from toolwire.gateway.http.redact import REDACTED
from toolwire.gateway.settings.address import Address
from toolwire.gateway.surfaces.console import headers
from toolwire.gateway.telemetry.record import UpstreamCapture
from toolwire_conformance.peers.peer import encode_json

SECRET = "q7Zt-very-private-0123456789"


def detail_of(served: Served, request_id: str) -> Any:
    served.line(request_id)
    return get(served, f"exchanges/{find_id(served, request_id)}").json()


def as_dict(pairs: list[dict[str, str]]) -> Mapping[str, str]:
    return {pair["name"].lower(): pair["value"] for pair in pairs}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_both_sides_have_their_headers_without_secrets(tmp_path: Path, stream: bool) -> None:
    with stage(tmp_path) as served:
        scene = served.scene("openai-chat", play_script("openai-chat", stream))
        body = {
            "model": scene.model,
            "max_tokens": 9,
            "stream": stream,
            "messages": [{"role": "user", "content": "Hi"}],
        }
        sent = {
            "anthropic-version": "2023-06-01",
            "user-agent": "agent/1",
            "x-api-key": SECRET,
            "authorization": f"Basic {SECRET}",
            "cookie": f"session={SECRET}",
            "x-company-gate": SECRET,
            "proxy-authorization": SECRET,
            "x-stainless-lang": "python",
        }
        got = ask(served.port, "POST", "/v1/messages", encode_json(body).encode(), sent)
        assert got.status == 200
        found = detail_of(served, got.id)
        assert SECRET not in encode_json(found)
        assert PROVIDER_KEY not in encode_json(found)
        client, [provider] = found["client"], found["upstream_calls"]
        asked = as_dict(client["request_headers"])
        assert (asked["anthropic-version"], asked["user-agent"]) == ("2023-06-01", "agent/1")
        assert asked["x-stainless-lang"] == "python"
        for name in ("x-api-key", "authorization", "cookie", "x-company-gate", "proxy-authorization"):
            assert asked[name] == REDACTED
        assert as_dict(client["response_headers"])["content-type"].startswith(
            "text/event-stream" if stream else "application/json"
        )
        assert as_dict(provider["request_headers"])["authorization"] == REDACTED
        assert as_dict(provider["request_headers"])["x-request-id"] == got.id
        assert "content-type" in as_dict(provider["response_headers"])


def test_the_wait_before_a_retry_is_called_that(tmp_path: Path) -> None:
    with stage(tmp_path, "retries = 1\n") as served:
        busy = answer(500, b'{"error": {"message": "busy"}}')
        scene = served.scene("openai-chat", busy, play_script("openai-chat", False))
        got = call(served, "anthropic", scene.model, False)
        assert got.status == 200
        names = [step["name"] for step in detail_of(served, got.id)["steps"]]
        assert names.count("wait before the retry") == 1


@pytest.mark.parametrize(
    ("base_url", "path", "url"),
    [
        ("https://api.groq.com/openai/v1", "/v1/chat/completions", "https://api.groq.com/openai/v1/chat/completions"),
        ("https://openrouter.ai/api/v1", "/v1/chat/completions", "https://openrouter.ai/api/v1/chat/completions"),
        (
            "https://x.openai.azure.com/openai/deployments/gpt?api-version=2026-01-01",
            "/v1/chat/completions",
            "https://x.openai.azure.com/openai/deployments/gpt/chat/completions?api-version=2026-01-01",
        ),
        (
            f"https://proxy.example/in?subscription={SECRET}",
            "/v1beta/models/g:streamGenerateContent?alt=sse",
            f"https://proxy.example/in/v1beta/models/g:streamGenerateContent?alt=sse&subscription={REDACTED}",
        ),
        ("http://127.0.0.1:8000/v1", "/v1/messages", "http://127.0.0.1:8000/v1/messages"),
        ("", "", ""),
    ],
)
def test_the_address_is_the_one_that_was_called(base_url: str, path: str, url: str) -> None:
    address = Address.parse(base_url) if base_url else None
    called = UpstreamCapture("openai-chat", "lab", address, path, b"", 0.0, {})
    assert headers.write_url(called, str) == url


@pytest.mark.parametrize(
    "name", ["x-ratelimit-remaining-tokens", "anthropic-ratelimit-requests-limit", "Request-Id", "Retry-After"]
)
def test_harmless_headers_are_shown(name: str) -> None:
    assert [one.value for one in headers.list_headers([(name, "12")], str)] == ["12"]


@pytest.mark.parametrize(
    "name", ["X-Auth", "Set-Cookie", "x-goog-api-key", "api-key", "X-Anything", "x-amz-security-token", "ratelimit"]
)
def test_all_other_headers_are_hidden(name: str) -> None:
    assert [one.value for one in headers.list_headers([(name, SECRET)], str)] == [REDACTED]
