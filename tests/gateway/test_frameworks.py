"""Frameworks that people use, pointed at the gateway or with Toolwire inside: LangChain and pydantic-ai, each in front of
every provider.

They want older SDKs than the ones that judge our writers, so they live in an environment of their own, `.venv-frameworks`; the
scripts in tests/frameworks are run by its interpreter.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from gateway.clients import IN_PROCESS
from gateway.conftest import configuration
from gateway.provider import PROTOCOLS, RATE, Provider, Script, ScriptedAnswer, Step
from material import WHOLE_OR_STREAM, pairwise, parametrize_pairwise
from waits import PATIENCE

ROOT = Path(__file__).parents[2]
SCRIPTS = ("langchain_client", "pydantic_ai_client")
CLIENTS = [(script, client) for script in SCRIPTS for client in PROTOCOLS]
PARIS, OSLO, ROME = (
    ("get_weather", {"city": "Paris"}),
    ("get_weather", {"city": "Oslo"}),
    ("get_time", {"city": "Rome"}),
)
DONE = "It is 15 °C in Paris."
SCENES: dict[str, tuple[ScriptedAnswer | Step, ...]] = {
    "calls": (
        ScriptedAnswer("Let me look.", (PARIS, OSLO, ROME), "Paris, then."),
        ScriptedAnswer("", (OSLO,)),
        ScriptedAnswer(DONE),
    ),
    "rate": (Step(fails="rate"),),
    "cut": (Step(ScriptedAnswer("Half of what I have to say. " * 9), breaks="cut"),),
}
RESULTS = {"Paris": {"text": "15 °C"}, "Oslo": {"text": "3 °C"}, "Rome": {"text": "noon"}}

COMBINATIONS = pairwise(CLIENTS, PROTOCOLS, WHOLE_OR_STREAM.values())
parametrize_frameworks = parametrize_pairwise(
    {"script,client": CLIENTS, "target": PROTOCOLS, "stream": WHOLE_OR_STREAM}
)
pytestmark = [parametrize_frameworks, pytest.mark.parametrize("place", ["gateway", "inside"])]


@dataclass(frozen=True)
class Outcome:
    """What a script told of a job, and what the provider saw of it."""

    talk: Script
    turns: list[dict[str, Any]]
    error: dict[str, Any]


Ran = Callable[[str, str], tuple[dict[str, Script], "subprocess.CompletedProcess[str]"]]
Played = Callable[[str], Outcome]


@pytest.fixture(scope="module")
def ran(frameworks_python: str, provider: Provider, gateway: str, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """What a script printed about all its jobs; each script runs once in each place, even if it fails."""
    file = tmp_path_factory.mktemp("frameworks") / "toolwire.toml"
    file.write_text(configuration(provider.url))
    bases = {"gateway": gateway, "inside": f"{IN_PROCESS}{file}"}

    @cache
    def run(script: str, place: str) -> tuple[dict[str, Script], subprocess.CompletedProcess[str]]:
        talks: dict[str, Script] = {}
        jobs = []
        for ((name, client), target, stream), scene in product(COMBINATIONS, SCENES):
            if name != script:
                continue
            id = f"{client} {target} {stream} {scene}"
            talk = talks[id] = provider.script(*SCENES[scene])
            job = {"id": id, "client": client, "model": f"m-{target.removeprefix('openai-')}", "stream": stream}
            jobs.append({**job, "base": bases[place], "prompt": f"How is the weather? {talk.mark}", "results": RESULTS})
        command = [frameworks_python, str(ROOT / "tests" / "frameworks" / f"{script}.py")]
        return talks, subprocess.run(
            command, input=json.dumps(jobs), capture_output=True, text=True, check=False, timeout=PATIENCE
        )

    return run


@pytest.fixture
def outcome(ran: Ran, place: str, script: str, client: str, target: str, stream: bool) -> Played:
    talks, done = ran(script, place)
    assert done.returncode == 0, done.stderr
    told = {one["id"]: one for one in json.loads(done.stdout)}

    def of(scene: str) -> Outcome:
        id = f"{client} {target} {stream} {scene}"
        return Outcome(talks[id], told[id].get("turns", []), told[id].get("error", {}))

    return of


def list_calls(turn: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(call["name"], call["arguments"]) for call in turn["calls"]]


def test_calls_and_results_until_the_end(outcome: Played) -> None:
    played = outcome("calls")
    assert not played.error
    assert [list_calls(turn) for turn in played.turns] == [[PARIS, OSLO, ROME], [OSLO], []]
    assert played.turns[-1]["text"] == DONE
    assert [turn["usage"] for turn in played.turns] == [[25, 12]] * 3
    assert played.talk.asked[2].text.count("3 °C") == 2


def test_a_refusal(outcome: Played) -> None:
    error = outcome("rate").error
    assert "429" in error["message"] or "RateLimit" in error["name"]
    assert RATE in error["message"]


def test_a_broken_answer_is_never_a_success(outcome: Played) -> None:
    played = outcome("cut")
    assert played.error, played.turns
