"""What only Codex does: tools that depend on the model's name, namespaces, patches, pictures, sub-agents; and settings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from agents.agent import AgentResult, AgentWorkspace
from agents.codex import AGENT, again, headless, with_probe
from agents.conftest import gateway, laid
from agents.received import images, pairs
from agents.scenes import DONE, ended_well, picture
from gateway.declared_tools import Use
from gateway.provider import PROTOCOLS, Provider, Received, Script, ScriptedAnswer, Step

EVERYWHERE = pytest.mark.parametrize("target", PROTOCOLS)
NEWEST, UNKNOWN = "gpt-6.1-sol", "house-model-7"
FULL = pytest.mark.full


def play(desk: AgentWorkspace, talk: Script, *given: str, model: str = "", words: Sequence[str] = ()) -> AgentResult:
    """Codex with arguments before its command, and words behind its prompt."""
    return desk.run(AGENT, [*given, *headless(f"Do it. {talk.mark}"), *words], talk, model)


def step_with_calls(*uses: Use) -> Step:
    return Step(ScriptedAnswer(calls=uses, thinking="That is what it takes."))


# --- newer models: one tool that runs programs ------------------------------------------------------------------------

PROGRAM = """// @exec: {"max_output_tokens": 500}
const done = await tools.exec_command({cmd: "echo made-$((40+2)) | tee made.txt"});
text(`it says ${done.output}`);
await tools.apply_patch("*** Begin Patch\\n*** Add File: new.txt\\n+naïve \\"雪\\"\\n*** End Patch\\n");
"""


@EVERYWHERE
def test_a_program_of_a_newer_model_is_run(desk: AgentWorkspace, provider: Provider, target: str) -> None:
    talk = provider.script(step_with_calls(Use("exec", PROGRAM, "functions")), ScriptedAnswer(DONE), signed=True)
    ended_well(talk, play(desk, talk, model=NEWEST), 2)
    assert (desk.workspace / "made.txt").read_text() == "made-42\n"
    assert (desk.workspace / "new.txt").read_text() == 'naïve "雪"\n'
    [(program, result)] = pairs(talk.asked[-1])
    assert PROGRAM in (program, json.loads(program)["input"] if program.startswith("{") else "")
    assert "it says made-42" in result
    if target == "openai-responses":  # which is told all that Codex says
        assert talk.asked[0].headers["x-openai-internal-codex-responses-lite"] == "true"
        assert talk.asked[0].body["reasoning"]["context"] == "all_turns"
        assert "tools" not in talk.asked[0].body


@FULL
@EVERYWHERE
def test_a_program_shows_pictures_and_asks_the_probe(desk: AgentWorkspace, provider: Provider, target: str) -> None:
    (desk.workspace / "picture.png").write_bytes(picture(64))
    program = (
        'const seen = await tools.view_image({path: "picture.png"});\nimage(seen);\n'
        'const heard = await tools.mcp__probe__echo({word: "cobalt"});\ntext(heard.content[0].text);\n'
    )
    talk = provider.script(step_with_calls(Use("exec", program, "functions")), ScriptedAnswer(DONE), signed=True)
    ended_well(talk, play(desk, talk, *with_probe(desk.workspace), model=NEWEST), 2)
    [(_, result)] = pairs(talk.asked[-1])
    assert "probe echo heard cobalt" in result
    assert len(images(talk.asked[-1])) == 1


@FULL
@EVERYWHERE
def test_a_program_that_fails(desk: AgentWorkspace, provider: Provider, target: str) -> None:
    talk = provider.script(
        step_with_calls(Use("exec", 'throw new Error("no-" + (3+4));', "functions")), ScriptedAnswer(DONE), signed=True
    )
    ended_well(talk, play(desk, talk, model=NEWEST), 2)
    [(_, result)] = pairs(talk.asked[-1])
    assert "no-7" in result


@FULL
@EVERYWHERE
def test_a_team_of_newer_models(desk: AgentWorkspace, provider: Provider, target: str) -> None:
    """The task of a sub-agent comes to it as if it were sealed; what it answered is told to whoever sent it."""
    program = 'await tools.exec_command({cmd: "echo by-a-helper > helped.txt"});'
    helper = provider.script(
        step_with_calls(Use("exec", program, "functions")), ScriptedAnswer("It is helped."), signed=True
    )
    task = {"task_name": "helper", "message": f"Help. {helper.mark}", "fork_turns": "none"}
    talk = provider.script(
        step_with_calls(Use("spawn_agent", task, "collaboration")),
        step_with_calls(Use("wait_agent", {"timeout_ms": 60000}, "collaboration")),
        ScriptedAnswer(DONE),
        signed=True,
    )
    ran = play(desk, talk, model=NEWEST)
    assert not helper.refused
    ended_well(talk, ran, 3)
    assert (desk.workspace / "helped.txt").read_text() == "by-a-helper\n"
    assert len(helper.asked) == 2
    assert "It is helped." in talk.asked[-1].text


# --- names that Codex does not know: namespaces -----------------------------------------------------------------------


def _wait(asked: Received) -> ScriptedAnswer:
    """The call that waits for the agent that was named in the last result."""
    result = pairs(asked)[-1][1].replace("\\", "")
    id = result.partition('"agent_id":"')[2].partition('"')[0]
    return ScriptedAnswer(calls=(Use("wait_agent", {"targets": [id], "timeout_ms": 60000}, "multi_agent_v1"),))


def test_a_patch_that_the_instructions_demand_and_nobody_declares(provider: Provider, tmp_path: Path) -> None:
    """Under the name of a Claude model, Codex demands `apply_patch` and does not declare it."""
    talk = provider.script(
        step_with_calls(Use("exec_command", {"cmd": "echo 42 > made.txt"})),
        ScriptedAnswer(DONE),
        signed=True,
    )
    preset = '[[policy]]\npreset = "codex-on-anthropic"\nmodel = ["claude-*"]'
    with gateway(tmp_path, provider, "anthropic", preset) as config:
        desk = laid(tmp_path, config)
        ended_well(talk, play(desk, talk, model="claude-opus-5-5"), 2)
    assert (desk.workspace / "made.txt").read_text() == "42\n"
    said = json.dumps(talk.asked[0].body["system"])
    assert "Use the `exec_command` tool to edit files" in said
    assert said.count("apply_patch") == said.count("There is no apply_patch tool here") == 1
    assert json.dumps(talk.asked[1].body["system"]) == said


@FULL
@EVERYWHERE
def test_a_sub_agent_of_an_unknown_model(desk: AgentWorkspace, provider: Provider, target: str) -> None:
    helper = provider.script(
        step_with_calls(Use("exec_command", {"cmd": "echo by-a-helper > helped.txt"})),
        ScriptedAnswer("It is helped."),
        signed=True,
    )
    spawned = step_with_calls(Use("spawn_agent", {"message": f"Help. {helper.mark}"}, "multi_agent_v1"))
    talk = provider.script(spawned, Step(_wait), ScriptedAnswer(DONE), signed=True)
    ran = play(desk, talk, model=UNKNOWN)
    assert not helper.refused
    ended_well(talk, ran, 3)
    assert (desk.workspace / "helped.txt").read_text() == "by-a-helper\n"
    assert "It is helped." in pairs(talk.asked[-1])[-1][1]


PROBED = (
    (Use("echo", {"word": "cobalt"}, "mcp__probe"), "probe echo heard cobalt"),
    (Use("shop_find", {"word": "cobalt"}, "mcp__probe"), "probe shop.find heard cobalt"),
    (Use("broken", {}, "mcp__probe"), "the probe is broken"),
)


@FULL
@EVERYWHERE
def test_the_probe_without_a_search(desk: AgentWorkspace, provider: Provider, target: str) -> None:
    """All of a namespace at once; a name with a dot, which Codex itself spells otherwise; and one that fails."""
    talk = provider.script(step_with_calls(*(use for use, _ in PROBED)), ScriptedAnswer(DONE), signed=True)
    ended_well(talk, play(desk, talk, *with_probe(desk.workspace), model=UNKNOWN), 2)
    found = pairs(talk.asked[-1])
    assert len(found) == len(PROBED)
    for _, said in PROBED:
        assert any(said in result for _, result in found)


@FULL
@EVERYWHERE
@pytest.mark.parametrize("model", ["", UNKNOWN], ids=["searched", "offered"])
def test_the_probe_gives_a_picture(desk: AgentWorkspace, provider: Provider, target: str, model: str) -> None:
    """Searched for, too, with thinking before and after: what was found is told as the provider can be told."""
    search = [] if model else [step_with_calls(Use("tool_search", {"query": "probe picture"}))]
    talk = provider.script(
        *search, step_with_calls(Use("picture", {}, "mcp__probe")), ScriptedAnswer(DONE), signed=True
    )
    ended_well(talk, play(desk, talk, *with_probe(desk.workspace), model=model), len(search) + 2)
    assert len(images(talk.asked[-1])) == 1


# --- patches ----------------------------------------------------------------------------------------------------------

PATCH = """*** Begin Patch
*** Update File: kept.txt
@@
 one
-two
+zwei — "2"
 three
*** Delete File: gone.txt
*** Update File: old.txt
*** Move to: moved.txt
@@
-here
+there
*** End Patch
"""


@FULL
@EVERYWHERE
def test_a_patch_changes_moves_and_deletes(desk: AgentWorkspace, provider: Provider, target: str) -> None:
    at = desk.workspace
    (at / "kept.txt").write_text("one\ntwo\nthree\n")
    (at / "gone.txt").write_text("gone\n")
    (at / "old.txt").write_text("here\n")
    talk = provider.script(step_with_calls(Use("apply_patch", PATCH)), ScriptedAnswer(DONE), signed=True)
    ended_well(talk, play(desk, talk), 2)
    assert {file.name: file.read_text() for file in at.iterdir()} == {
        "kept.txt": 'one\nzwei — "2"\nthree\n',
        "moved.txt": "there\n",
    }
    assert len(pairs(talk.asked[-1])) == 1


@FULL
@EVERYWHERE
def test_a_patch_that_does_not_fit(desk: AgentWorkspace, provider: Provider, target: str) -> None:
    """The model is told, and mends it."""
    (desk.workspace / "kept.txt").write_text("one\n")
    wrong = "*** Begin Patch\n*** Update File: kept.txt\n@@\n-nine\n+ten\n*** End Patch\n"
    right = wrong.replace("nine", "one")
    talk = provider.script(
        step_with_calls(Use("apply_patch", wrong)),
        step_with_calls(Use("apply_patch", right)),
        ScriptedAnswer(DONE),
        signed=True,
    )
    ended_well(talk, play(desk, talk), 3)
    assert (desk.workspace / "kept.txt").read_text() == "ten\n"
    (_, first), (_, second) = pairs(talk.asked[-1])
    assert "Failed to find expected lines" in first
    assert "Success" in second


# --- what it is given -------------------------------------------------------------------------------------------------


@FULL
@EVERYWHERE
def test_a_picture_in_the_prompt(desk: AgentWorkspace, provider: Provider, target: str) -> None:
    (desk.workspace / "picture.png").write_bytes(picture(64))
    talk = provider.script(ScriptedAnswer(DONE))
    ended_well(talk, play(desk, talk, words=("-i", "picture.png")), 1)
    assert len(images(talk.asked[0])) == 1


SCHEMA = {
    "type": "object",
    "properties": {"word": {"type": "string"}, "count": {"type": "integer"}},
    "required": ["word", "count"],
    "additionalProperties": False,
}


@FULL
@EVERYWHERE
def test_an_answer_in_a_form(desk: AgentWorkspace, provider: Provider, target: str) -> None:
    """The provider is held to the schema, in its own way, also beside tools."""
    (desk.workspace / "form.json").write_text(json.dumps(SCHEMA))
    said = json.dumps({"word": DONE, "count": 3})
    talk = provider.script(step_with_calls(Use("exec_command", {"cmd": "echo 3"})), ScriptedAnswer(said), signed=True)
    ended_well(talk, play(desk, talk, words=("--output-schema", "form.json", "-o", "last.txt")), 2)
    assert json.loads((desk.workspace / "last.txt").read_text()) == json.loads(said)
    assert '"count"' in talk.asked[0].text


def find_hosted_tools(asked: Received) -> list[object]:
    """The tools that are no functions."""
    tools = asked.body.get("tools") or ()
    return [tool for tool in tools if not {"function", "custom", "input_schema", "functionDeclarations"} & tool.keys()]


SEARCHES = {
    "openai-chat": "",
    "openai-responses": '"web_search"',
    "anthropic": '"web_search_',
    "gemini": "googleSearch",
}
"""What the provider's own search is called; Chat has it as a model, not as a tool."""


@FULL
@EVERYWHERE
def test_the_search_on_the_web(desk: AgentWorkspace, provider: Provider, target: str) -> None:
    """It is the provider's own, where it has one; where it has none, the rest still works."""
    talk = provider.script(
        step_with_calls(Use("exec_command", {"cmd": "echo searched"})), ScriptedAnswer(DONE), signed=True
    )
    ended_well(talk, play(desk, talk, "-c", 'web_search="live"'), 2)
    found = [search for search in SEARCHES.values() if search in json.dumps(find_hosted_tools(talk.asked[0]))]
    assert SEARCHES[target] in (found or [""]), found


# --- its own session --------------------------------------------------------------------------------------------------


@FULL
@EVERYWHERE
def test_a_session_goes_on_with_another_model(desk: AgentWorkspace, provider: Provider, target: str) -> None:
    """Codex makes the talk short first: the other model has other tools."""
    write = "*** Begin Patch\n*** Add File: first.txt\n+first\n*** End Patch\n"
    program = 'text((await tools.exec_command({cmd: "cat first.txt"})).output);'
    short = "There is a file first.txt."
    talk = provider.script(
        step_with_calls(Use("apply_patch", write)),
        ScriptedAnswer("First."),
        ScriptedAnswer(short),
        step_with_calls(Use("exec", program, "functions")),
        ScriptedAnswer(DONE),
        signed=True,
    )
    play(desk, talk)
    ran = desk.run(AGENT, again("Go on."), talk, NEWEST)
    ended_well(talk, ran, 5)
    assert short in talk.asked[-1].text
    [(_, read)] = pairs(talk.asked[-1])
    assert "first" in read
