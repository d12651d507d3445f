"""Paths of Azure's deployments: the model is the one in the path, whatever a client writes into the body."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

import pytest

from gateway.provider import Provider, ScriptedAnswer
from gateway.raw_exchange import RawAnswer, ask

DEPLOYMENT = "/openai/deployments/{}/chat/completions?api-version=2025-04-01-preview"
BODIES: dict[str, dict[str, Any]] = {
    "without a model": {},
    "null, as LangChain's AzureChatOpenAI writes it": {"model": None},
    "another model": {"model": "m-gemini"},
    "null for the stream flag, too": {"model": None, "stream": None},
}


def post(gateway: str, path: str, body: dict[str, Any]) -> RawAnswer:
    port = urlsplit(gateway).port
    assert port is not None
    return ask(port, "POST", path, json.dumps(body).encode())


@pytest.mark.parametrize(("model", "sent"), [("m-chat", "gpt-4.1"), ("m-anthropic", "claude-sonnet-5-5")])
@pytest.mark.parametrize("members", BODIES.values(), ids=BODIES)
def test_the_deployment_counts(
    gateway: str, provider: Provider, model: str, sent: str, members: dict[str, Any]
) -> None:
    talk = provider.script(ScriptedAnswer("Hello."))
    messages = [{"role": "user", "content": f'say "model": {talk.mark}'}]
    answer = post(gateway, DEPLOYMENT.format(model), {**members, "messages": messages})
    assert answer.status == 200, answer.data
    [asked] = talk.asked
    assert asked.body["model"] == sent
    assert talk.refused == []


@pytest.mark.parametrize("members", [{"model": None}, {}], ids=["null", "missing"])
def test_elsewhere_a_model_is_needed(gateway: str, members: dict[str, Any]) -> None:
    answer = post(gateway, "/v1/chat/completions", {**members, "messages": [{"role": "user", "content": "hi"}]})
    assert answer.status in (400, 404)
    assert "model" in answer.json()["error"]["message"]
