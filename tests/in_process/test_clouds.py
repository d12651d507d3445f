"""Credentials of clouds in a program: requests are signed, and tokens fetched, as in the gateway."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from botocore.credentials import Credentials

import toolwire
from gateway.fake_clouds import SAMPLES, Answer, Seen, is_signed, serve_cloud, service_account
from gateway.provider import ScriptedAnswer
from gateway.raw_exchange import body_of

KEYS = Credentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "session-token-of-the-role-0123456789")
HELLO: Any = [{"role": "user", "content": "Hello"}]
MODELS = (
    "anthropic.claude-opus-5-5",
    "global.anthropic.claude-opus-4-6-v1:0",
    "us.meta.llama4-scout-17b-instruct-v1:0",
)
"""The last two are in a path, where a colon is signed as it is sent."""


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith(("AWS_", "GOOGLE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEYS.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEYS.secret_key)
    monkeypatch.setenv("AWS_SESSION_TOKEN", KEYS.token)


def respond(seen: Seen) -> Answer:
    if seen.path == "/token":
        return Answer(200, {"access_token": "ya29.fresh", "expires_in": 3600, "token_type": "Bearer"})
    if "/converse" in seen.path:
        message = {"role": "assistant", "content": [{"text": "Hello there."}]}
        usage = {"inputTokens": 3, "outputTokens": 2, "totalTokens": 5}
        return Answer(200, {"output": {"message": message}, "stopReason": "end_turn", "usage": usage})
    if seen.path.endswith("/invoke-with-response-stream"):
        body = (SAMPLES / "invoke_anthropic_tool_use.bin").read_bytes()
        return Answer(200, body, {"content-type": "application/vnd.amazon.eventstream"})
    return Answer(200, body_of("anthropic", ScriptedAnswer("Hello there.")))


@pytest.mark.parametrize("model", MODELS)
def test_requests_to_bedrock_are_signed(model: str) -> None:
    with serve_cloud(respond) as cloud:
        tables = {"providers": {"bedrock": {"region": "eu-west-1", "base_url": cloud.url}}}
        with openai.OpenAI(api_key="any", max_retries=0, http_client=toolwire.http_client(tables)) as sdk:
            got = sdk.chat.completions.create(model=f"bedrock/{model}", messages=HELLO)
    assert got.choices[0].message.content == "Hello there."
    (seen,) = cloud.seen
    assert is_signed(seen, KEYS, "eu-west-1", "bedrock")


def test_a_binary_stream_of_bedrock_is_read() -> None:
    with serve_cloud(respond) as cloud:
        tables = {"providers": {"bedrock": {"region": "eu-west-1", "base_url": cloud.url}}}
        with openai.OpenAI(api_key="any", max_retries=0, http_client=toolwire.http_client(tables)) as sdk:
            chunks = list(sdk.chat.completions.create(model=f"bedrock/{MODELS[1]}", messages=HELLO, stream=True))
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "tool_calls"


def test_a_token_of_google_is_fetched_once(tmp_path: Path) -> None:
    with serve_cloud(respond) as cloud:
        vertex = {
            "region": "europe-west1",
            "project": "proj",
            "base_url": cloud.url,
            "credentials_file": service_account(tmp_path, cloud.url),
        }
        client = toolwire.http_client({"providers": {"vertex": vertex}})
        with anthropic.Anthropic(api_key="any", max_retries=0, http_client=client) as sdk:
            for _ in range(2):
                got = sdk.messages.create(model="vertex/claude-opus-5-5", max_tokens=9, messages=HELLO)
    assert got.content[0].to_dict()["text"] == "Hello there."
    asked = [seen for seen in cloud.seen if seen.path != "/token"]
    assert len(cloud.seen) - len(asked) == 1
    assert [seen.headers["authorization"] for seen in asked] == ["Bearer ya29.fresh"] * 2


def test_a_cloud_without_credentials_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    tables = {"providers": {"bedrock": {"region": "eu-west-1"}}}
    client = toolwire.http_client(tables)
    with (
        openai.OpenAI(api_key="any", max_retries=0, http_client=client) as sdk,
        pytest.raises(openai.APIStatusError, match="AWS_ACCESS_KEY_ID"),
    ):
        sdk.chat.completions.create(model="bedrock/anthropic.claude-opus-5-5", messages=HELLO)
