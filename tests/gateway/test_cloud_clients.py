"""SDK classes for Azure, Amazon Bedrock and Google Cloud, pointed at the gateway: whole, streamed, with a tool call and
with an error, which each raises as its own exception."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.clients import KEY, Conversation, Result, Task, close_all
from gateway.cloud_clients import CLOUD_CLIENTS
from gateway.conftest import configuration, serve_config
from gateway.provider import RATE, Provider, Script, ScriptedAnswer, Step

MODELS = {"openai-chat": "m-chat", "openai-responses": "m-responses", "anthropic": "m-anthropic", "gemini": "m-gemini"}
PARIS = ("get_weather", {"city": "Paris"})
DONE = "It is 15 °C in Paris."
KEYS = f'[[server.keys]]\nname = "ann"\nsha256 = "{hashlib.sha256(KEY.encode()).hexdigest()}"\n'

pytestmark = [
    pytest.mark.parametrize("name", CLOUD_CLIENTS),
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning"),
]
streams = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
targets = pytest.mark.parametrize("target", ["", "openai-chat", "anthropic"], ids=["own", "chat", "anthropic"])


@pytest.fixture(scope="module")
def gateway_with_key(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gateway whose clients need the key of Ann."""
    file = tmp_path_factory.mktemp("keyed") / "toolwire.toml"
    file.write_text(configuration(provider.url) + KEYS)
    with serve_config(file) as url:
        yield url
    close_all()


@pytest.fixture(scope="module")
def gateway_of_ben(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gateway that does not know the key of the clients."""
    file = tmp_path_factory.mktemp("ben") / "toolwire.toml"
    file.write_text(configuration(provider.url) + KEYS.replace(hashlib.sha256(KEY.encode()).hexdigest(), "0" * 64))
    with serve_config(file) as url:
        yield url
    close_all()


def start(base: str, provider: Provider, name: str, target: str, stream: bool, *steps: Any) -> tuple[Any, Script]:
    client, protocol = CLOUD_CLIENTS[name]
    talk = provider.script(*steps)
    task = Task(f"How is the weather? {talk.mark}", results={"Paris": Result("15 °C")})
    conversation: Conversation = client(base, MODELS[target or protocol], stream, task)
    return conversation, talk


@streams
@targets
def test_a_conversation_with_a_tool(
    gateway_with_key: str, provider: Provider, name: str, target: str, stream: bool
) -> None:
    client, talk = start(
        gateway_with_key, provider, name, target, stream, ScriptedAnswer(calls=(PARIS,)), ScriptedAnswer(DONE)
    )
    called, done = client.run()
    assert [(call.name, call.arguments) for call in called.calls] == [PARIS]
    assert done.text == DONE
    assert talk.refused == []
    assert len(talk.asked) == 2


@streams
def test_a_refusal_of_the_provider(gateway_with_key: str, provider: Provider, name: str, stream: bool) -> None:
    client, talk = start(gateway_with_key, provider, name, "", stream, Step(fails="rate"))
    with pytest.raises(client.raises) as caught:
        client.run()
    assert RATE in str(caught.value)
    assert getattr(caught.value, "status_code", getattr(caught.value, "code", 0)) == 429
    assert len(talk.asked) == 1


@pytest.mark.parametrize("breaks", ["error", "cut", "ended"])
def test_a_stream_that_breaks_off_is_never_a_success(
    gateway_with_key: str, provider: Provider, name: str, breaks: Any
) -> None:
    client, talk = start(
        gateway_with_key, provider, name, "", True, Step(ScriptedAnswer("Half of what I say.", (PARIS,)), breaks=breaks)
    )
    with pytest.raises(client.raises):
        client.run()
    assert len(talk.asked) == 1


def test_another_key_is_refused(gateway_of_ben: str, provider: Provider, name: str) -> None:
    client, talk = start(gateway_of_ben, provider, name, "", False, ScriptedAnswer(DONE))
    with pytest.raises(client.raises) as caught:
        client.run()
    assert "unknown API key" in str(caught.value)
    assert getattr(caught.value, "status_code", getattr(caught.value, "code", 0)) == 401
    assert talk.asked == []


def test_without_keys_any_is_taken_on_this_machine(gateway: str, provider: Provider, name: str) -> None:
    client, talk = start(gateway, provider, name, "", False, ScriptedAnswer(DONE))
    assert client.turn().text == DONE
    assert KEY not in "".join(str(asked.headers) for asked in talk.asked)
