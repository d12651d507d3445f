"""Recorded exchanges: a suite that was recorded with one SDK runs with another, without a network and without secrets."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

import toolwire
from gateway.clients import CLIENTS, IN_PROCESS, Conversation, Result, Task, close_all
from gateway.conftest import MODELS, provider_name
from gateway.provider import KEYS, PROTOCOLS, Provider, ScriptedAnswer
from gateway.raw_exchange import PROVIDERS, RawProvider, busy_answer, configuration, whole_answer
from toolwire.gateway.settings.problems import ConfigError
from toolwire.gateway.telemetry import record
from toolwire_conformance.case import read_case
from waits import PATIENCE

SDKS = [name for name in CLIENTS if name != "unified"]
PARIS = ("get_weather", {"city": "Paris"})
DONE = "It is 15 °C in Paris."

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")


def converse(sdk: str, base: str, model: str, stream: bool, prompt: str) -> Conversation:
    client = CLIENTS[sdk](base, model, stream, Task(prompt, {"Paris": Result("15")}))
    turns = client.run()
    assert [(call.name, call.arguments) for call in turns[0].calls] == [PARIS]
    assert turns[-1].text == DONE
    return client


@pytest.mark.parametrize("target", PROTOCOLS)
@pytest.mark.parametrize("is_recorded_stream", [True, False], ids=["stream", "whole"])
def test_a_conversation_is_replayed_to_every_sdk(
    provider: Provider, config: Path, tmp_path: Path, target: str, is_recorded_stream: bool
) -> None:
    talk = provider.script(ScriptedAnswer("", (PARIS,)), ScriptedAnswer(DONE))
    model, prompt = f"{provider_name(target)}/{MODELS[target]}", f"How is it? {talk.mark}"
    folder = tmp_path / "recorded"
    recording = f"{IN_PROCESS}{config}?record={folder}"
    converse(SDKS[PROTOCOLS.index(target) - 1], recording, model, is_recorded_stream, prompt)
    close_all()
    files = sorted(folder.glob("*.json"))
    assert len(files) == 2
    text = "".join(file.read_text() for file in files)
    assert not [key for key in (*KEYS.values(), "key-of-the-client") if key in text]
    for file in files:
        (case,) = read_case(json.loads(file.read_text()))
        assert case.turns[0].provider.protocol == target
    assert len(talk.asked) == 2
    for sdk in SDKS:
        for stream in (True, False):
            converse(sdk, f"{IN_PROCESS}?replay={folder}", model, stream, prompt)
    assert len(talk.asked) == 2
    close_all()


def test_another_conversation_is_not_answered(provider: Provider, config: Path, tmp_path: Path) -> None:
    talk = provider.script(ScriptedAnswer(DONE))
    model = f"anthropic/{MODELS['anthropic']}"
    with openai.OpenAI(api_key="any", http_client=toolwire.http_client(config, record=tmp_path)) as sdk:
        sdk.chat.completions.create(model=model, messages=[{"role": "user", "content": talk.mark}])
    with (
        openai.OpenAI(api_key="any", http_client=toolwire.http_client(replay=tmp_path)) as sdk,
        pytest.raises(openai.NotFoundError, match="no recorded answer"),
    ):
        sdk.chat.completions.create(model=model, messages=[{"role": "user", "content": "Something else"}])


def ask(client: httpx2.Client, model: str) -> str:
    body = {"model": model, "messages": [{"role": "user", "content": "Hello"}]}
    with client:
        answer = client.post("http://any/v1/chat/completions", json=body).json()
    return str(answer["choices"][0]["message"]["content"])


def test_each_model_has_its_own_recorded_answers(wire: RawProvider, tmp_path: Path) -> None:
    (tmp_path / "toolwire.toml").write_text(configuration(wire))
    texts = {wire.scene("gemini", whole_answer("gemini", text)).model: text for text in ("One.", "Two.", "Three.")}
    for model, text in texts.items():
        assert ask(toolwire.http_client(tmp_path / "toolwire.toml", record=tmp_path / "r"), model) == text
    assert {model: ask(toolwire.http_client(replay=tmp_path / "r"), model) for model in texts} == texts


def test_the_answer_of_a_fallback_is_replayed(wire: RawProvider, tmp_path: Path) -> None:
    bad, good = (
        wire.scene("openai-responses", busy_answer("openai-responses")),
        wire.scene("gemini", whole_answer("gemini")),
    )
    tables = f'[models.mine]\nprovider = "responses"\nmodel = "{bad.name}"\nfallbacks = ["{good.model}"]\n'
    (tmp_path / "toolwire.toml").write_text(configuration(wire, more=tables))
    assert ask(toolwire.http_client(tmp_path / "toolwire.toml", record=tmp_path / "r"), "mine") == "Hello there."
    assert ask(toolwire.http_client(replay=tmp_path / "r"), "mine") == "Hello there."


WEATHER_TOOL: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
WRITTEN_CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a rule that drops a tool": ({}, {"policy": [{"tool": "get_*", "drop": True, "provider": "mine"}]}),
    "a rule that renames a tool": ({}, {"policy": [{"tool": "get_weather", "rename": "look"}]}),
    "calls in text": ({"tool_format": "auto"}, {}),
    "calls in text, of a model": ({}, {"models": {"alias": {"tool_format": "auto"}}}),
    "tools in the prompt": ({"tools": "prompted"}, {}),
    "a server of a known kind": ({"kind": "ollama"}, {}),
}


@pytest.mark.parametrize("row", SETTINGS)
def test_what_the_configuration_said_is_replayed(wire: RawProvider, tmp_path: Path, row: str) -> None:
    """`replay` has no configuration: what decides about a question and its answer is in the file."""
    provider, more = SETTINGS[row]
    scene = wire.scene("openai-chat", whole_answer("openai-chat", WRITTEN_CALL))
    mine = {"protocols": ["openai-chat"], "base_url": wire.url, "api_key": "k", **provider}
    alias = {"provider": "mine", "model": scene.name, **more.get("models", {}).get("alias", {})}
    tables = {**more, "providers": {"mine": mine}, "models": {"alias": alias}}
    answers: list[object] = []
    for way in ({"config": tables, "record": tmp_path}, {"replay": tmp_path}):
        with openai.OpenAI(api_key="any", max_retries=0, http_client=toolwire.http_client(**way)) as sdk:
            question: Any = [{"role": "user", "content": "Hello"}]
            got = sdk.chat.completions.create(model="alias", messages=question, tools=[WEATHER_TOOL]).choices[0].message
            answers.append((got.content, [call.to_dict()["function"] for call in got.tool_calls or ()]))
    assert answers[0] == answers[1]
    assert len(scene.asked) == 1
    (file,) = tmp_path.iterdir()
    (case,) = read_case(json.loads(file.read_text()))
    assert case.configured == (row != "a server of a known kind")  # a gateway that is not set up alike cannot play it


def test_a_conversation_with_a_secret_is_replayed(wire: RawProvider, tmp_path: Path) -> None:
    scene = wire.scene("anthropic", whole_answer("anthropic"))
    (tmp_path / "toolwire.toml").write_text(configuration(wire))
    question: Any = [{"role": "user", "content": f"My key is {SECRETS['of a known form']}."}]
    for way in ({"config": tmp_path / "toolwire.toml", "record": tmp_path / "r"}, {"replay": tmp_path / "r"}):
        with openai.OpenAI(api_key="any", max_retries=0, http_client=toolwire.http_client(**way)) as sdk:
            sdk.chat.completions.create(model=scene.model, messages=question)
    assert len(scene.asked) == 1


def test_what_cannot_be_replayed_is_not_recorded(
    wire: RawProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    off = {"protocols": ["anthropic"], "base_url": "http://127.0.0.1:1", "api_key": "k"}
    on = {"protocols": ["anthropic"], "base_url": wire.url, "api_key": "k"}
    scene = wire.scene("anthropic", whole_answer("anthropic", "word " * 1000))
    monkeypatch.setattr(record, "MAX_CAPTURED", 2000)
    client = toolwire.http_client({"providers": {"off": off, "on": on}}, record=tmp_path)
    with openai.OpenAI(api_key="any", max_retries=0, http_client=client) as sdk:
        question: Any = [{"role": "user", "content": "Hello"}]
        with pytest.raises(openai.APIConnectionError):
            sdk.chat.completions.create(model="off/m", messages=question)
        assert sdk.chat.completions.create(model=f"on/{scene.name}", messages=question).choices
    assert list(tmp_path.iterdir()) == []
    assert "is not recorded: it is too long" in caplog.text


DAMAGES: dict[str, Callable[[Any], object]] = {
    "cut": lambda case: json.dumps(case)[:300],
    "deep": lambda case: '{"a":' * 100_000,
    "without a client": lambda case: case.pop("client"),
    "a protocol of nobody": lambda case: case["provider"].update(protocol="nobody"),
    "no exchange": lambda case: case["provider"].update(exchanges=[]),
    "no answer": lambda case: case["provider"]["exchanges"][0].pop("body"),
    "a status of its own": lambda case: case["provider"]["exchanges"][0].update(status=99),
    "another protocol's question": lambda case: case["provider"].update(protocol="gemini"),
    "settings of another kind": lambda case: case["settings"].update(calls={"tools": 3}),
}


@pytest.mark.parametrize("row", DAMAGES)
def test_a_damaged_recording_is_named(wire: RawProvider, tmp_path: Path, row: str) -> None:
    (tmp_path / "toolwire.toml").write_text(configuration(wire))
    scene = wire.scene("anthropic", whole_answer("anthropic"))
    ask(toolwire.http_client(tmp_path / "toolwire.toml", record=tmp_path / "r"), scene.model)
    (file,) = (tmp_path / "r").iterdir()
    case = json.loads(file.read_text())
    damaged = DAMAGES[row](case)
    file.write_text(damaged if isinstance(damaged, str) and damaged[:1] == "{" else json.dumps(case))
    with pytest.raises(ConfigError, match=f"{file.name} is not a recorded exchange"):
        toolwire.http_client(replay=tmp_path / "r")


def test_a_folder_that_cannot_be_is_an_error_before_anything_is_asked(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        toolwire.http_client({}, record=tmp_path / "file" / "folder")
    with pytest.raises(TypeError, match="this one is empty"):
        toolwire.http_client({}, record="")


SECRETS = {
    "of the provider": "provider-key-11223344",
    "of the client": "client-key-55667788",
    "in a header": "header-value-99aabbcc",
    "in the address": "query-value-ddeeff00",
    "of an MCP server": "mcp-token-1234abcd",
    "of a known form": "sk-proj-0123456789abcdef",
}
"""Where a program may have one. The provider below repeats them all."""


@pytest.mark.parametrize("protocol", PROVIDERS)
def test_no_secret_is_in_a_recording(wire: RawProvider, tmp_path: Path, protocol: str) -> None:
    scene = wire.scene(protocol, whole_answer(protocol, f"Here they are: {' and '.join(SECRETS.values())}."))
    provider = {
        "protocols": [protocol],
        "base_url": f"{wire.url}?key={SECRETS['in the address']}",
        "api_key": SECRETS["of the provider"],
        "headers": {"x-more-auth": SECRETS["in a header"]},
    }
    server = {
        "type": "mcp",
        "server_label": "a",
        "server_url": "https://a.invalid",
        "authorization": SECRETS["of an MCP server"],
    }
    with openai.OpenAI(
        api_key=SECRETS["of the client"],
        http_client=toolwire.http_client({"providers": {"mine": provider}}, record=tmp_path),
    ) as sdk:
        text = f"My key is {SECRETS['of a known form']}."
        query = {"key": SECRETS["of the client"]}
        sdk.responses.create(model=f"mine/{scene.name}", input=text, tools=[server], extra_query=query)  # type: ignore[list-item]
    (file,) = tmp_path.glob("*.json")
    assert [where for where, secret in SECRETS.items() if secret in file.read_text()] == []


def test_a_folder_without_recordings_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no recorded exchanges"):
        toolwire.http_client(replay=tmp_path)
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(ConfigError, match="not a recorded exchange"):
        toolwire.http_client(replay=tmp_path)


def test_the_conformance_suite_plays_a_recording(provider: Provider, config: Path, tmp_path: Path) -> None:
    talk = provider.script(ScriptedAnswer("", (PARIS,)), ScriptedAnswer(DONE))
    folder = tmp_path / "recorded"
    converse(
        "openai-chat", f"{IN_PROCESS}{config}?record={folder}", f"anthropic/{MODELS['anthropic']}", True, talk.mark
    )
    close_all()
    command = [sys.executable, "-m", "toolwire.cli", "conformance", "--target", "toolwire", "--recorded", str(folder)]
    ran = subprocess.run([*command, "--all"], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "9000" in ran.stdout
    assert "9001" in ran.stdout
    assert "wrong" not in ran.stdout.replace("0 wrong", "")
