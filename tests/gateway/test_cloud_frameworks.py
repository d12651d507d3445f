"""LangChain's classes for Azure, Amazon Bedrock and Google Cloud, pointed at a gateway that wants its clients' key."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from gateway.conftest import configuration, serve_config
from gateway.provider import RATE, Provider, Script, ScriptedAnswer, Step
from waits import PATIENCE

SCRIPT = Path(__file__).parents[1] / "frameworks" / "langchain_clouds.py"
CLIENTS = {
    "AzureChatOpenAI": "m-chat",
    "AzureChatOpenAI responses": "m-responses",
    "ChatBedrockConverse": "m-anthropic",
    "ChatBedrock": "m-anthropic",
    "ChatAnthropicBedrock": "m-anthropic",
    "ChatAnthropicMantle": "m-anthropic",
    "ChatOpenAIMantle": "m-chat",
    "ChatAnthropicVertex": "m-anthropic",
    "ChatGoogleGenerativeAI in Vertex mode": "m-gemini",
}
"""Each with the model that it asks for."""
KEY = "key-of-the-client"
PARIS, OSLO = ("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Oslo"})
DONE = "It is 15 °C in Paris."
SCENES: dict[str, tuple[ScriptedAnswer | Step, ...]] = {
    "calls": (ScriptedAnswer("Let me look.", (PARIS, OSLO)), ScriptedAnswer(DONE)),
    "rate": (Step(fails="rate"),) * 3,
    "cut": (Step(ScriptedAnswer("Half of what I have to say. " * 9), breaks="cut"),) * 3,
}
RESULTS = {"Paris": {"text": "15 °C"}, "Oslo": {"text": "3 °C"}}
parametrize_clients = pytest.mark.parametrize("client", CLIENTS)
parametrize_streams = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


@dataclass(frozen=True)
class Outcome:
    """What the script told of a job, and what the provider saw of it."""

    talk: Script
    turns: list[dict[str, Any]]
    error: dict[str, Any]


Outcomes = dict[tuple[str, bool, str], Outcome]


@pytest.fixture(scope="module")
def gateway_with_key(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    file = tmp_path_factory.mktemp("keyed") / "toolwire.toml"
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    file.write_text(f'{configuration(provider.url)}[[server.keys]]\nname = "ann"\nsha256 = "{digest}"\n')
    with serve_config(file) as url:
        yield url


@pytest.fixture(scope="module")
def outcomes(frameworks_python: str, provider: Provider, gateway_with_key: str) -> Outcomes:
    """All jobs, in one run of the script."""
    talks: dict[str, tuple[tuple[str, bool, str], Script]] = {}
    jobs = []
    for number, place in enumerate(product(CLIENTS, (True, False), SCENES)):
        client, stream, scene = place
        talk = provider.script(*SCENES[scene])
        talks[str(number)] = place, talk
        job = {"id": str(number), "client": client, "base": gateway_with_key, "model": CLIENTS[client]}
        jobs.append({**job, "stream": stream, "prompt": f"How is the weather? {talk.mark}", "results": RESULTS})
    done = subprocess.run(
        [frameworks_python, str(SCRIPT)],
        input=json.dumps(jobs),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    found: Outcomes = {}
    for one in json.loads(done.stdout):
        place, talk = talks[one["id"]]
        found[place] = Outcome(talk, one.get("turns", []), one.get("error", {}))
    return found


@parametrize_streams
@parametrize_clients
def test_calls_and_results_until_the_end(outcomes: Outcomes, client: str, stream: bool) -> None:
    job = outcomes[client, stream, "calls"]
    assert not job.error
    assert [[(call["name"], call["arguments"]) for call in turn["calls"]] for turn in job.turns] == [[PARIS, OSLO], []]
    assert job.turns[-1]["text"] == DONE
    assert job.talk.refused == []
    assert "3 °C" in job.talk.asked[1].text


@parametrize_streams
@parametrize_clients
def test_a_refusal(outcomes: Outcomes, client: str, stream: bool) -> None:
    assert RATE in outcomes[client, stream, "rate"].error["message"]


@parametrize_streams
@parametrize_clients
def test_a_broken_answer_is_never_a_success(outcomes: Outcomes, client: str, stream: bool) -> None:
    job = outcomes[client, stream, "cut"]
    assert job.error, job.turns
