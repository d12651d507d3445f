"""What only opencode does, on each of its protocols and on every provider's."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest

from agents.agent import AgentResult, AgentWorkspace
from agents.opencode import AGENTS, again, headless, read, shell, with_probe
from agents.received import images, pairs
from agents.scenes import DONE, ended_well, picture
from gateway.declared_tools import Use
from gateway.provider import PROTOCOLS, Provider, Script, ScriptedAnswer, Step

pytestmark = pytest.mark.full
SOME = dict(zip(AGENTS, ("anthropic", "gemini", "openai-responses", "openai-chat"), strict=True))
everywhere = pytest.mark.parametrize(
    ("name", "target"), [pytest.param(name, target, id=f"{name}-{target}") for name in AGENTS for target in PROTOCOLS]
)
once_each = pytest.mark.parametrize(
    ("name", "target"), [pytest.param(name, target, id=f"{name}-{target}") for name, target in SOME.items()]
)
"""Each of its protocols once, and each provider's."""
FLAGS = {
    "openai-chat": "[tool error] ",
    "openai-responses": "[tool error] ",
    "anthropic": '"is_error":true',
    "gemini": '"response":{"error":',
}
Played = Callable[..., tuple[Script, AgentResult]]


@pytest.fixture(name="played")
def play_demo(name: str, desk: AgentWorkspace, provider: Provider) -> Played:
    """Play these answers; the arguments are made of the prompt, one run for each."""

    def play(
        answers: list[ScriptedAnswer | Step], *runs: Callable[[str], list[str]], signed: bool = True
    ) -> tuple[Script, AgentResult]:
        agent = AGENTS[name]
        talk = provider.script(*answers, signed=signed)
        talk.aside = agent.aside
        for arguments in runs or (headless,):
            ran = desk.run(agent, arguments(f"Do as you are told. {talk.mark}"), talk)
        return talk, ran

    return play


@everywhere
def test_a_call_of_no_tool_is_told_as_one_of_a_tool_that_nobody_declared(played: Played) -> None:
    """The call that it sends back is another than the model's, so that nothing may be signed."""
    talk, ran = played(
        [ScriptedAnswer(calls=(("no_such_tool", {"word": "blue"}),)), ScriptedAnswer(DONE)], signed=False
    )
    ended_well(talk, ran, 2)
    last = talk.asked[-1]
    assert '"name":"invalid"' in last.text
    [(call, result)] = pairs(last)
    assert "no_such_tool" in call
    assert "no_such_tool" in result


@pytest.mark.parametrize("target", PROTOCOLS)
@pytest.mark.parametrize("name", ["opencode-messages"])
def test_a_tool_that_fails_is_told_as_failed(played: Played, desk: AgentWorkspace, target: str) -> None:
    """Of its protocols only this one has a flag for that."""
    talk, ran = played([ScriptedAnswer(calls=(read(desk.workspace / "nothing.txt"),)), ScriptedAnswer(DONE)])
    ended_well(talk, ran, 2)
    last = talk.asked[-1]
    [(_, result)] = pairs(last)
    assert "File not found" in result
    assert FLAGS[target] in last.text


@everywhere
def test_two_pictures_are_read_at_once(played: Played, desk: AgentWorkspace) -> None:
    """On Chat they stand in a message of their own behind all results."""
    files = [desk.workspace / f"{size}.png" for size in (16, 48)]
    for file in files:
        file.write_bytes(picture(int(file.stem)))
    talk, ran = played([ScriptedAnswer(calls=tuple(map(read, files))), ScriptedAnswer(DONE)])
    ended_well(talk, ran, 2)
    last = talk.asked[-1]
    assert len(pairs(last)) == len(images(last)) == 2
    first, second = (last.text.index(base64.b64encode(file.read_bytes()).decode()) for file in files)
    assert first < second


@once_each
def test_a_picture_is_given_to_the_prompt(played: Played, desk: AgentWorkspace) -> None:
    file = desk.workspace / "given.png"
    file.write_bytes(picture(24))
    talk, ran = played([ScriptedAnswer(DONE)], lambda prompt: [*headless(prompt), "--file", str(file)])
    ended_well(talk, ran, 1)
    assert len(images(talk.asked[0])) == 1


@once_each
def test_a_session_goes_on(played: Played) -> None:
    """Thoughts and calls of the first prompt are sent with the second."""
    first, second = (
        ScriptedAnswer("I look.", (shell(f"echo {word}"),), thinking=f"The {word} one.") for word in ("first", "second")
    )
    talk, ran = played([first, ScriptedAnswer(DONE), second, ScriptedAnswer(DONE)], headless, again)
    ended_well(talk, ran, 4)
    results = [result for _, result in pairs(talk.asked[-1])]
    assert [word for result in results for word in ("first", "second") if word in result] == ["first", "second"]


@once_each
def test_a_part_of_the_work_is_done_in_a_talk_of_its_own(
    played: Played, provider: Provider, desk: AgentWorkspace
) -> None:
    part = provider.script(
        ScriptedAnswer(calls=(shell("echo made > part.txt"),)), ScriptedAnswer("The part is done."), signed=True
    )
    order = {"description": "A part", "prompt": f"Make part.txt. {part.mark}", "subagent_type": "general"}
    talk, ran = played(
        [ScriptedAnswer("I let it be done.", (Use("task", order),), thinking="A part."), ScriptedAnswer(DONE)]
    )
    ended_well(talk, ran, 2)
    assert not part.refused
    assert len(part.asked) == 2
    assert (desk.workspace / "part.txt").read_text() == "made\n"
    [(_, result)] = pairs(talk.asked[-1])
    assert "The part is done." in result


@once_each
def test_tools_of_a_server_that_fail_or_show_a_picture(played: Played, desk: AgentWorkspace) -> None:
    with_probe(desk.workspace)
    calls = Use("probe_broken", {}), Use("probe_picture", {}), Use("probe_shop_find", {"word": "tea"})
    talk, ran = played([ScriptedAnswer(calls=calls), ScriptedAnswer(DONE)])
    ended_well(talk, ran, 2)
    last = talk.asked[-1]
    broken, _, found = (result for _, result in pairs(last))
    assert "the probe is broken" in broken
    assert "probe shop.find heard tea" in found
    assert len(images(last)) == 1


@pytest.mark.parametrize("target", PROTOCOLS)
@pytest.mark.parametrize("name", ["opencode-chat", "opencode-messages"])
def test_a_connection_that_is_lost_in_the_middle_is_tried_again(played: Played, desk: AgentWorkspace) -> None:
    """There is no status to judge by then, and in these protocols it looks for words in the message."""
    long = ScriptedAnswer("This sentence has been long enough to be cut in the middle of it, and then it goes on.")
    talk, ran = played(
        [Step(long, breaks="cut"), ScriptedAnswer(calls=(shell("echo made > made.txt"),)), ScriptedAnswer(DONE)]
    )
    ended_well(talk, ran, 3)
    assert (desk.workspace / "made.txt").read_text() == "made\n"
