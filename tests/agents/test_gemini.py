"""What only Gemini CLI does, on every provider: names with dots, helper models with names that nobody chose, pictures
beside results, and what it takes for the end of a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agents.agent import AgentResult, AgentWorkspace
from agents.conftest import MODELS, configuration, laid
from agents.gemini import AGENT, headless, read, with_probe
from agents.received import images, pairs
from agents.scenes import DONE, WORD, ended_well, picture
from gateway.declared_tools import Use, find_declared_tool
from gateway.process import Process, run_gateway
from gateway.provider import KEYS, PROTOCOLS, Provider, Received, Script, ScriptedAnswer, Step
from waits import free_port

everywhere = pytest.mark.parametrize("target", PROTOCOLS)
LITE = {
    "openai-chat": "gpt-4.1-mini",
    "openai-responses": "gpt-5.4-mini",
    "anthropic": "claude-haiku-4-5",
    "gemini": "gemini-3.5-flash-lite",
}
FLASH = {
    "openai-chat": "gpt-4o-search-preview",
    "openai-responses": "gpt-5.4",
    "anthropic": "claude-sonnet-5",
    "gemini": "gemini-3-flash-preview",
}
"""What the helper models are here; the one that searches is one that can."""
SEARCHES = {
    "openai-chat": '"web_search_options":',
    "openai-responses": '"tools":[{"type":"web_search"}]',
    "anthropic": '"tools":[{"type":"web_search_',
    "gemini": '"tools":[{"googleSearch":{}}]',
}


DONE_SAID = ScriptedAnswer(DONE)


@dataclass(frozen=True)
class Place:
    """A desk, and the gateway that it leads to, which tells what it does."""

    desk: AgentWorkspace
    provider: Provider
    process: Process

    def play(self, talk: Script, *arguments: str) -> AgentResult:
        return self.desk.run(AGENT, [*arguments, *headless(f"Do as you are told. {talk.mark}")], talk)


@pytest.fixture
def place(target: str, provider: Provider, tmp_path: Path) -> Iterator[Place]:
    port, file = free_port(), tmp_path / "toolwire.toml"
    rules = {"gemini-*flash-lite": LITE[target], "gemini-*flash*": FLASH[target]}
    more = "\n".join(f'[models."{name}"]\nprovider = "p-{target}"\nmodel = "{model}"' for name, model in rules.items())
    file.write_text(
        configuration(provider.url, target, port, more).replace('log_format = "none"', 'log_format = "json"')
    )
    with run_gateway(tmp_path, "--config", str(file), "--port", str(port)) as process:
        yield Place(laid(tmp_path, file), provider, process)


def write_settings(place: Place, **settings: Any) -> None:
    """What the workspace wants otherwise than usual."""
    folder = place.desk.workspace / ".gemini"
    folder.mkdir()
    (folder / "settings.json").write_text(json.dumps(settings))


def schema(asked: Received) -> dict[str, Any]:
    """The schema that the answer must keep to."""
    body = asked.body
    found: dict[str, Any] = {
        "openai-chat": lambda: body["response_format"]["json_schema"]["schema"],
        "openai-responses": lambda: body["text"]["format"]["schema"],
        "anthropic": lambda: body["output_config"]["format"]["schema"],
        "gemini": lambda: body["generationConfig"]["responseJsonSchema"],
    }[asked.protocol]()
    return found


@pytest.mark.full
@everywhere
def test_a_name_with_a_dot_comes_back_with_it(place: Place, target: str) -> None:
    with_probe(place.desk.workspace)
    find = ("Finds an article of the shop by a word.", {"word": WORD})
    talk = place.provider.script(ScriptedAnswer(calls=(find,)), DONE_SAID, signed=True)
    ended_well(talk, place.play(talk), 2)
    names = {tool.name for tool in find_declared_tool(talk.asked[0].body)}
    assert ("mcp_probe_shop.find" in names) == (target == "gemini")
    [(_, result)] = pairs(talk.asked[-1])
    assert f"probe shop.find heard {WORD}" in result


@pytest.mark.full
@everywhere
def test_its_router_is_answered_and_takes_the_answer(place: Place, target: str) -> None:
    """The types of its schema are in capitals, which only Google's own models read."""
    talk = place.provider.script(DONE_SAID, signed=True)
    answer = json.dumps({"complexity_reasoning": "It is easy.", "complexity_score": 10})
    talk.aside = lambda asked: ScriptedAnswer(answer) if "complexity_score" in asked.raw else None
    ended_well(talk, place.play(talk, "-m", "auto"), 1)
    [routing] = talk.asides
    assert routing.model == LITE[target]
    kind = schema(routing)["properties"]["complexity_score"]["type"]
    assert kind == ("INTEGER" if target == "gemini" else "integer")
    assert talk.asked[0].model == FLASH[target]


@pytest.mark.full
@everywhere
def test_a_search_is_made_by_its_helper(place: Place, target: str) -> None:
    searched = "Forty-two, says the web."
    talk = place.provider.script(signed=True)
    talk.steps = [
        Step(ScriptedAnswer(calls=(Use("google_web_search", {"query": f"the answer {talk.mark}"}),))),
        Step(DONE_SAID),
    ]
    talk.aside = lambda asked: ScriptedAnswer(searched) if asked.model == FLASH[target] else None
    ended_well(talk, place.play(talk), 2)
    [search] = talk.asides
    assert SEARCHES[target] in search.raw
    [(_, result)] = pairs(talk.asked[-1])
    assert searched in result


@pytest.mark.full
@everywhere
def test_an_edit_that_does_not_fit_is_mended_by_its_helper(place: Place, target: str) -> None:
    write_settings(place, tools={"disableLLMCorrection": False})
    file = place.desk.workspace / "colours.txt"
    file.write_text("red\ngreen\nblue\n")
    talk = place.provider.script(signed=True)
    wish = {"file_path": str(file), "instruction": f"Make the one in the middle grey. {talk.mark}"}
    talk.steps = [
        Step(ScriptedAnswer(calls=(read(file),))),
        Step(ScriptedAnswer(calls=(Use("replace", {**wish, "old_string": "violet", "new_string": "grey"}),))),
        Step(DONE_SAID),
    ]
    answer = json.dumps({"explanation": "It is green.", "search": "green", "replace": "grey"})
    talk.aside = lambda asked: ScriptedAnswer(answer) if "noChangesRequired" in asked.raw else None
    ended_well(talk, place.play(talk), 3)
    [mending] = talk.asides
    assert mending.model == FLASH[target]
    assert set(schema(mending)["properties"]) == {"explanation", "search", "replace", "noChangesRequired"}
    assert file.read_text() == "red\ngrey\nblue\n"


@pytest.mark.full
@everywhere
def test_it_asks_its_helper_who_speaks_next(place: Place, target: str) -> None:
    write_settings(place, model={"skipNextSpeakerCheck": False})
    talk = place.provider.script(ScriptedAnswer("First I shall think."), DONE_SAID, signed=True)

    def aside(asked: Received) -> ScriptedAnswer | None:
        speaker = "user" if DONE in asked.text else "model"
        answer = {"reasoning": "One can see it.", "next_speaker": speaker}
        return ScriptedAnswer(json.dumps(answer)) if '"next_speaker"' in asked.text else None

    talk.aside = aside
    ended_well(talk, place.play(talk), 2)
    assert [asked.model for asked in talk.asides] == [FLASH[target]] * 2
    assert schema(talk.asides[0])["properties"]["next_speaker"]["enum"] == ["user", "model"]
    assert "Please continue." in talk.asked[1].text


@pytest.mark.full
@everywhere
def test_pictures_stand_beside_several_results_and_are_counted(place: Place) -> None:
    with_probe(place.desk.workspace)
    files = [place.desk.workspace / f"{size}.png" for size in (16, 48)]
    for file in files:
        file.write_bytes(picture(int(file.stem)))
    calls = (*map(read, files), Use("mcp_probe_picture", {}))
    talk = place.provider.script(ScriptedAnswer(calls=calls), DONE_SAID, signed=True)
    ended_well(talk, place.play(talk), 2)
    last = talk.asked[-1]
    assert len(pairs(last)) == len(images(last)) == len(calls)
    assert json.loads(place.process.read_log_until(":countTokens"))["status"] == 200


@pytest.mark.full
@everywhere
@pytest.mark.parametrize("how", ["cut", "ended"])
def test_an_answer_to_results_that_breaks_off_is_no_answer(place: Place, how: Any) -> None:
    """Behind the results of tools it takes any stream for a whole one that ends in order, whatever its last frame says."""
    said = ScriptedAnswer("This sentence has been long enough to be cut in the middle of it, and then it goes on.")
    calls = ScriptedAnswer(calls=(AGENT.shell("echo made > made.txt"),))
    talk = place.provider.script(calls, Step(said, breaks=how), DONE_SAID, signed=True)
    ended_well(talk, place.play(talk), 3)
    assert talk.asked[1].body == talk.asked[2].body
    assert (place.desk.workspace / "made.txt").exists()


@pytest.mark.full
@everywhere
def test_a_call_in_an_answer_that_breaks_off_is_run_once(place: Place) -> None:
    """It has been told to the agent, which runs it whatever follows; so it must not be made to ask once more."""
    words = ("first", "second", "third")
    calls = ScriptedAnswer(calls=tuple(AGENT.shell(f"echo {word} >> log.txt") for word in words))
    talk = place.provider.script(Step(calls, breaks="cut"), DONE_SAID, signed=True)
    ended_well(talk, place.play(talk), 2)
    told = pairs(talk.asked[-1])
    run = (place.desk.workspace / "log.txt").read_text().split()
    assert 0 < len(run) == len(set(run)) == len(told) < len(words)
    assert all(word in call for word, (call, _) in zip(words, told, strict=False))


@pytest.mark.parametrize("target", ["anthropic"])
def test_a_gateway_of_its_own_knows_its_helpers(target: str, provider: Provider, tmp_path: Path) -> None:
    """None is running, and the file has no rule for any of them."""
    file = tmp_path / "toolwire.toml"
    file.write_text(
        f'[server]\nport = {free_port()}\n[providers.p]\nprotocols = ["{target}"]\nbase_url = "{provider.url}"\n'
        f'api_key = "{KEYS[target]}"\n[models.house-model]\nprovider = "p"\nmodel = "{MODELS[target]}"\n'
    )
    talk = provider.script(signed=True)
    talk.steps = [
        Step(ScriptedAnswer(calls=(Use("google_web_search", {"query": f"the answer {talk.mark}"}),))),
        Step(DONE_SAID),
    ]
    talk.aside = lambda asked: ScriptedAnswer("Forty-two.") if '"web_search_' in asked.raw else None
    ran = laid(tmp_path, file).run(AGENT, headless(f"Do as you are told. {talk.mark}"), talk, "house-model")
    ended_well(talk, ran, 2)
    assert [asked.model for asked in talk.asides] == [MODELS[target]]
    assert "Forty-two." in pairs(talk.asked[-1])[0][1]
