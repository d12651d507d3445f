"""A session that moves between providers while it goes on: the operator changes a route, and the agent, which knows
nothing of it, goes on with its tools. Then back again, to a provider that looks at the seals of its own first turn."""

from __future__ import annotations

import signal
from itertools import permutations
from pathlib import Path

import pytest

from agents.agent import Agent
from agents.all import AGENTS
from agents.conftest import configuration, laid
from agents.received import pairs
from agents.scenes import DONE
from gateway.process import Process, run_gateway
from gateway.provider import PROTOCOLS, Provider, ScriptedAnswer, Step
from waits import free_port

MOVING = ("codex", "claude", "gemini", "qwen")


def turn(agent: Agent, number: int) -> list[Step]:
    call = agent.shell(f"echo turn-{number} | tee -a log.txt")
    return [
        Step(ScriptedAnswer(f"Turn {number}.", (call,), thinking=f"Thought {number}.")),
        Step(ScriptedAnswer(f"{DONE} {number}", thinking=f"Now I know {number}.")),
    ]


@pytest.mark.full
@pytest.mark.parametrize("name", MOVING)
@pytest.mark.parametrize(("first", "second"), list(permutations(PROTOCOLS, 2)))
def test_a_session_goes_on_elsewhere_and_comes_back(
    name: str, first: str, second: str, provider: Provider, tmp_path: Path
) -> None:
    agent, port, file = AGENTS[name], free_port(), tmp_path / "toolwire.toml"
    talk = provider.script(*(step for number in (1, 2, 3) for step in turn(agent, number)), signed=True)
    assert talk.seal_checker is not None
    talk.seal_checker.forgives = agent.forgets
    talk.aside = agent.aside
    desk = laid(tmp_path, file)

    def write_config(target: str) -> str:
        return configuration(provider.url, target, port).replace('log_format = "none"', 'log_format = "json"')

    def move_route(process: Process, target: str) -> None:
        file.write_text(write_config(target))
        process.signal(signal.SIGHUP)
        process.read_log_until('"config_reloaded"')

    file.write_text(write_config(first))
    with run_gateway(tmp_path, "--config", str(file), "--port", str(port)) as process:
        for number, target in enumerate((first, second, first), 1):
            if number > 1:
                move_route(process, target)
            prompt = f"Turn {number}. {talk.mark}"
            ran = desk.run(agent, agent.headless(prompt) if number == 1 else agent.again(prompt), talk)
            assert not talk.refused, f"turn {number}: {talk.refused[0]}\n{ran}"
            assert ran.code == 0, f"turn {number}: {ran}"
            assert f"{DONE} {number}" in ran.out, f"turn {number}: {ran}"
            assert [asked.protocol for asked in talk.asked[-2:]] == [target] * 2
    assert (desk.workspace / "log.txt").read_text() == "turn-1\nturn-2\nturn-3\n"
    told = pairs(talk.asked[-1])
    assert len(told) == 3
    assert all(f"turn-{number}" in call and f"turn-{number}" in result for number, (call, result) in enumerate(told, 1))
    last = talk.asked[-1]
    assert not talk.seal_checker.unknown_seals(last.account, last.protocol, last.raw)
    # A Chat client has no place for seals: a turn of which the gateway keeps them is known by its calls.
    carries = agent.protocol != "openai-chat"
    made = [
        answer for answer in talk.seal_checker.answers[:-1] if answer.protocol == first and (carries or answer.calls)
    ]
    if agent.forgets or (agent.retells and first == "anthropic"):
        made = made[-1:]
    owed = [seal for answer in made for seal in answer.seals]
    shown = talk.seal_checker.seals_sent(last.account, last.protocol, last.body)
    # Thoughts of Chat are plain text that its service does not want back.
    assert first == "openai-chat" or shown == owed
