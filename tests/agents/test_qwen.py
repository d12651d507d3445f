"""What only Qwen Code does: agents below it, tools that are declared after all, answers by a schema, fields of a maker
of its own, and a session that goes on, is made shorter, and goes on again."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from agents.agent import AgentWorkspace
from agents.qwen import AGENT, shell, with_probe
from agents.received import images, pairs
from agents.scenes import DONE, ended_well
from gateway.declared_tools import Use
from gateway.provider import PROTOCOLS, Provider, Script, ScriptedAnswer, Step

TARGETS = pytest.mark.parametrize("target", PROTOCOLS)
FOREIGN = pytest.mark.parametrize("target", [protocol for protocol in PROTOCOLS if protocol != "openai-chat"])
MADE = "echo made-$((40+2)) | tee made.txt"


def file_is_made(desk: AgentWorkspace) -> bool:
    return (desk.workspace / "made.txt").read_text() == "made-42\n"


def settings(desk: AgentWorkspace, **given: Any) -> None:
    file = desk.workspace / ".qwen" / "settings.json"
    file.parent.mkdir()
    file.write_text(json.dumps(given))


def making(provider: Provider) -> Script:
    call = shell(MADE)
    return provider.script(
        ScriptedAnswer("I shall make it.", (call,), thinking="A file."), ScriptedAnswer(DONE), signed=True
    )


@pytest.mark.full
@TARGETS
def test_an_agent_below(desk: AgentWorkspace, provider: Provider) -> None:
    """It has a conversation and tools of its own; its last words are the result of the call."""
    talk = provider.script(signed=True)
    task = {"description": "make it", "prompt": f"Make it. {talk.mark}", "run_in_background": False}
    talk.steps += [
        Step(ScriptedAnswer("Another can.", (Use("agent", task),), thinking="I need not.")),
        Step(ScriptedAnswer("I shall.", (shell(MADE),), thinking="A file.")),
        Step(ScriptedAnswer("It is made, says the other.")),
        Step(ScriptedAnswer(DONE)),
    ]
    ran = desk.run(AGENT, AGENT.headless(f"Delegate. {talk.mark}"), talk)
    ended_well(talk, ran, 4)
    assert file_is_made(desk)
    [(_, told)] = pairs(talk.asked[2])
    assert "made-42" in told
    [(_, told)] = pairs(talk.asked[3])
    assert "It is made, says the other." in told


@pytest.mark.full
@TARGETS
def test_tools_of_a_server_that_are_declared(desk: AgentWorkspace, provider: Provider) -> None:
    """A name with a dot, a picture, and a failure, all at once. It has no place for pictures in results: they come in
    a message of the user."""
    with_probe(desk.workspace)
    calls = (
        ("Finds an article of the shop by a word.", {"word": "lamp"}),
        ("Gives a picture.", {}),
        ("Always fails.", {}),
    )
    talk = provider.script(ScriptedAnswer("", calls), ScriptedAnswer(DONE), signed=True)
    ran = desk.run(AGENT, ["--exclude-tools", "tool_search", *AGENT.headless(f"Shop. {talk.mark}")], talk)
    ended_well(talk, ran, 2)
    (_, found), (_, _), (_, broken) = pairs(talk.asked[1])
    assert "probe shop.find heard lamp" in found
    assert "the probe is broken" in broken
    assert len(images(talk.asked[1])) == 1


@pytest.mark.full
@TARGETS
def test_an_answer_by_a_schema(desk: AgentWorkspace, provider: Provider) -> None:
    """The schema is a tool whose first call ends the session."""
    schema = {"type": "object", "properties": {"answer": {"type": "integer"}}, "required": ["answer"]}
    talk = provider.script(ScriptedAnswer("", (Use("structured_output", {"answer": 42}),), "Half of 84."), signed=True)
    ran = desk.run(AGENT, ["--json-schema", json.dumps(schema), *AGENT.headless(f"Say it. {talk.mark}")], talk)
    assert not talk.refused
    assert ran.code == 0, str(ran)
    assert json.loads(ran.out.strip().splitlines()[-1])["structured_result"] == {"answer": 42}


@pytest.mark.full
@FOREIGN
def test_fields_of_its_maker(desk: AgentWorkspace, provider: Provider, target: str) -> None:
    """Taken for its maker's own service, it sends fields, headers and breakpoints that are known there only."""
    settings(desk, model={"generationConfig": {"extra_body": {"enable_thinking": True}}})
    port = re.search(r"port = (\d+)", desk.config.read_text())
    assert port
    agent = replace(AGENT, environ={"DASHSCOPE_PROXY_BASE_URL": f"http://127.0.0.1:{port[1]}/v1"})
    talk = making(provider)
    ended_well(talk, desk.run(agent, agent.headless(f"Make it. {talk.mark}"), talk), 2)
    assert file_is_made(desk)
    for asked in talk.asked:
        assert not {"preserve_thinking", "enable_thinking", "vl_high_resolution_images"} & asked.body.keys()
        assert not [name for name in asked.headers if "dashscope" in name]
        assert ("cache_control" in asked.raw) == (target == "anthropic")


@pytest.mark.full
@TARGETS
def test_a_session_that_is_made_shorter(desk: AgentWorkspace, provider: Provider) -> None:
    """When it goes on it tells its folder anew, so that thoughts which are bound to the beginning cannot come back. The
    summary is asked for with all tools declared, and with all calls in the history."""
    talk = making(provider)
    talk.aside = AGENT.aside
    short = "<analysis>Short.</analysis><state_snapshot><overall_goal>A file.</overall_goal></state_snapshot>"
    talk.steps[1] = Step(ScriptedAnswer(DONE + " And much more. " * 2000))
    talk.steps += [
        Step(ScriptedAnswer(short)),
        Step(ScriptedAnswer("", (shell("cat made.txt"),), thinking="Again.")),
        Step(ScriptedAnswer(DONE)),
    ]
    first = desk.run(AGENT, AGENT.headless(f"Make it. {talk.mark}"), talk)
    assert first.code == 0, str(first)
    ran = desk.run(AGENT, AGENT.again("/compress"), talk)
    assert not talk.refused, f"{talk.refused[0]}\n{ran}"
    assert len(talk.asked) == 3, str(ran)
    assert len(pairs(talk.asked[2])) == 1
    ended_well(talk, desk.run(AGENT, AGENT.again(f"Look at it. {talk.mark}"), talk), 5)
    assert "made-42" in pairs(talk.asked[4])[-1][1]
