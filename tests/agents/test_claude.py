"""What only Claude Code does, on every provider: a hello, counts, a second try without a stream, calls at once, searches
by a request of their own, answers in a shape, agents below agents."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agents.agent import AgentResult, AgentWorkspace
from agents.claude import AGENT, headless, shell, use_search, with_probe
from agents.conftest import configuration, laid
from agents.received import pairs
from agents.scenes import DONE, WORD, ended_well
from gateway.declared_tools import Use, find_declared_tool
from gateway.process import Process, run_gateway
from gateway.provider import PROTOCOLS, Provider, Received, Script, ScriptedAnswer, Step
from waits import free_port

everywhere = pytest.mark.parametrize("target", PROTOCOLS)
END = ScriptedAnswer(DONE)


@dataclass(frozen=True)
class Place:
    """A desk, and the gateway that it leads to, which tells what it does."""

    desk: AgentWorkspace
    provider: Provider
    process: Process

    def play(self, talk: Script, *arguments: str) -> AgentResult:
        return self.desk.run(AGENT, [*arguments, *headless(f"Do as you are told. {talk.mark}")], talk)

    def log(self) -> list[dict[str, Any]]:
        """End the gateway: all that it has said of the calls."""
        self.process.signal(signal.SIGTERM)
        self.process.wait_for_exit()
        lines = [self.process.log.get_nowait() for _ in range(self.process.log.qsize())]
        return [json.loads(line) for line in lines if line.startswith("{")]


@pytest.fixture
def place(target: str, provider: Provider, tmp_path: Path) -> Iterator[Place]:
    port, file = free_port(), tmp_path / "toolwire.toml"
    file.write_text(configuration(provider.url, target, port).replace('log_format = "none"', 'log_format = "json"'))
    with run_gateway(tmp_path, "--config", str(file), "--port", str(port)) as process:
        yield Place(laid(tmp_path, file), provider, process)


def settings(environ: Mapping[str, str]) -> str:
    """The argument that sets variables over those of `toolwire run`."""
    return "--settings=" + json.dumps({"env": environ})


def result_of(ran: AgentResult) -> dict[str, Any]:
    """What it says at its end."""
    said: dict[str, Any] = json.loads(ran.out.splitlines()[-1])
    assert said["type"] == "result", str(ran)
    return said


def names(asked: Received) -> list[str]:
    return [tool.name for tool in find_declared_tool(asked.body)]


def asked_for(lines: list[dict[str, Any]]) -> set[str]:
    """The models that it asked for: helpers of its own are the one that was chosen."""
    return {line["requested_model"] for line in lines if "requested_model" in line}


# --- what it asks besides ---------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("target", ["openai-chat"])
def test_its_hello_is_answered(place: Place) -> None:
    """Only without the switch that `toolwire run` sets. It goes to whom the protocol belongs."""
    talk = place.provider.script(END)
    ended_well(talk, place.play(talk, settings({"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": ""})), 1)
    said = place.log()
    assert [line["status"] for line in said if line.get("path") == "/api/hello"] == [200]


@pytest.mark.full
@everywhere
def test_a_long_result_is_counted(place: Place, target: str) -> None:
    talk = place.provider.script(signed=True)
    call = Use("mcp__probe__long", {"word": talk.mark})
    talk.steps = [
        Step(ScriptedAnswer(calls=(use_search("mcp__probe__long"),))),
        Step(ScriptedAnswer(calls=(call,))),
        Step(END),
    ]
    ended_well(talk, place.play(talk, *with_probe(place.desk.workspace)), 3)
    counts = [line for line in place.log() if line.get("operation") == "count_tokens"]
    assert [line["status"] for line in counts] == [200]
    [_, (_, result)] = pairs(talk.asked[-1])
    if target == "openai-chat":  # nobody counts: an estimate, by which it is too long
        assert "exceeds maximum allowed tokens" in result
        return
    [counted] = talk.counted
    assert counted.protocol == target
    assert f"probe long heard {talk.mark}" in counted.raw
    assert counted.body.keys().isdisjoint(("max_tokens", "max_output_tokens", "stream"))
    assert f"probe long heard {talk.mark}" in result


# --- troubles ---------------------------------------------------------------------------------------------------------

LONG = ScriptedAnswer("This sentence has been long enough to be cut in the middle of it, and then it goes on.")
LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens")
TROUBLES = {
    "missing": Step(fails="missing"),
    "cut": Step(LONG, breaks="cut"),
}


def limit(asked: Received) -> int:
    """How much it wants at most."""
    settings = asked.body["generationConfig"] if asked.protocol == "gemini" else asked.body
    [most] = [settings[key] for key in LIMITS if key in settings]
    return int(most)


@pytest.mark.full
@everywhere
@pytest.mark.parametrize("how", TROUBLES)
def test_it_tries_again_without_a_stream(place: Place, how: str) -> None:
    calls = ScriptedAnswer("I shall make it.", (shell("echo made > made.txt"),), thinking="A file is wanted.")
    talk = place.provider.script(TROUBLES[how], calls, END, signed=True)
    ended_well(talk, place.play(talk), 3)
    assert [asked.stream for asked in talk.asked] == [True, False, True]
    assert limit(talk.asked[1]) < limit(talk.asked[0])
    assert (place.desk.workspace / "made.txt").read_text() == "made\n"


@pytest.mark.full
@everywhere
def test_a_refusal_is_told_in_the_words_of_the_provider(place: Place) -> None:
    """It asks again with less and less, then says so."""
    talk = place.provider.script(*[Step(fails="bad")] * 12)
    ran = place.play(talk)
    assert not ran.looped
    assert ran.code == 1
    assert "That cannot be done." in result_of(ran)["result"]


# --- tools ------------------------------------------------------------------------------------------------------------


@pytest.mark.full
@everywhere
def test_calls_that_run_at_once(place: Place) -> None:
    """The first of them is done when the second one is."""
    slow, fast = "mcp__probe__later", "mcp__probe__echo"
    calls = tuple(Use(name, {"word": name}) for name in (slow, fast))
    talk = place.provider.script(
        ScriptedAnswer(calls=(use_search(slow, fast),)), ScriptedAnswer("Both.", calls), END, signed=True
    )
    ended_well(talk, place.play(talk, *with_probe(place.desk.workspace)), 3)
    told = [(json.loads(call)["word"], result) for call, result in pairs(talk.asked[-1])[1:]]
    assert {word for word, _ in told} == {slow, fast}
    assert all(f"heard {word}" in result for word, result in told)


@pytest.mark.full
@everywhere
def test_all_tools_are_there_without_the_search(place: Place) -> None:
    call = Use("mcp__probe__echo", {"word": WORD})
    talk = place.provider.script(ScriptedAnswer(calls=(call,)), END, signed=True)
    given = with_probe(place.desk.workspace)
    ended_well(talk, place.play(talk, settings({"ENABLE_TOOL_SEARCH": "false"}), *given), 2)
    assert "ToolSearch" not in names(talk.asked[0])
    assert f"probe echo heard {WORD}" in pairs(talk.asked[-1])[0][1]


@pytest.mark.full
@everywhere
def test_a_name_with_a_dot_is_found_and_called(place: Place) -> None:
    name = "mcp__probe__shop_find"
    talk = place.provider.script(
        ScriptedAnswer(calls=(use_search(name),)), ScriptedAnswer(calls=(Use(name, {"word": WORD}),)), END, signed=True
    )
    ended_well(talk, place.play(talk, *with_probe(place.desk.workspace)), 3)
    assert f"probe shop.find heard {WORD}" in pairs(talk.asked[-1])[-1][1]


@pytest.mark.full
@everywhere
def test_an_answer_in_a_shape(place: Place) -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    talk = place.provider.script(ScriptedAnswer(calls=(Use("StructuredOutput", {"n": 42}),)), END, signed=True)
    ran = place.play(talk, "--json-schema", json.dumps(schema))
    assert not talk.refused
    assert ran.code == 0, str(ran)
    assert "StructuredOutput" in names(talk.asked[0])
    assert result_of(ran)["structured_output"] == {"n": 42}


@pytest.mark.full
@everywhere
def test_an_agent_below_it(place: Place) -> None:
    below = place.provider.script(
        ScriptedAnswer(calls=(shell("echo below > below.txt"),)), ScriptedAnswer("Below it is done."), signed=True
    )
    given: dict[str, Any] = {
        "description": "A small thing",
        "prompt": f"Do it. {below.mark}",
        "subagent_type": "general-purpose",
    }
    given["run_in_background"] = False
    talk = place.provider.script(ScriptedAnswer(calls=(Use("Agent", given),)), END, signed=True)
    ran = place.play(talk)
    ended_well(talk, ran, 2)
    assert not below.refused
    assert (place.desk.workspace / "below.txt").read_text() == "below\n"
    assert "Below it is done." in pairs(talk.asked[-1])[0][1]
    assert asked_for(place.log()) == {AGENT.model}


@pytest.mark.full
@everywhere
def test_a_search_is_a_request_of_its_own(place: Place, target: str) -> None:
    """Where nobody searches, the model is asked without the tool, and the log says so."""
    searched = "Forty-two, says the web."
    talk = place.provider.script(signed=True)
    call = Use("WebSearch", {"query": f"the answer {talk.mark}"})
    talk.steps = [
        Step(ScriptedAnswer(calls=(use_search("WebSearch"),))),
        Step(ScriptedAnswer(calls=(call,))),
        Step(END),
    ]
    talk.aside = lambda asked: ScriptedAnswer(searched) if "Perform a web search" in asked.raw else None
    ended_well(talk, place.play(talk), 3)
    [search] = talk.asides
    kinds = {
        "openai-chat": [],
        "openai-responses": [{"type": "web_search"}],
        "anthropic": [{"type": "web_search_20250305", "name": "web_search", "max_uses": 8}],
        "gemini": [{"googleSearch": {}}],
    }
    assert search.body.get("tools", []) == kinds[target]
    assert searched in pairs(talk.asked[-1])[-1][1]
    lines = place.log()
    losses = [loss for line in lines for loss in line.get("losses", ()) if loss == "tool-dropped"]
    assert losses == (["tool-dropped"] if target == "openai-chat" else [])
    assert asked_for(lines) == {AGENT.model}
