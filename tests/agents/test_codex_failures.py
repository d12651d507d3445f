"""Codex in trouble: no WebSocket, conversations that are made short, failures of many kinds, answers that are cut."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import pytest

from agents.agent import AgentResult, AgentWorkspace
from agents.codex import AGENT, FULL_ALREADY, again, headless
from agents.received import pairs
from agents.scenes import DONE, ended_well
from gateway.declared_tools import Use
from gateway.provider import BAD_KEY, PROTOCOLS, QUOTA, Provider, Script, ScriptedAnswer, Step

EVERYWHERE = pytest.mark.parametrize("target", PROTOCOLS)
pytestmark = [pytest.mark.full, EVERYWHERE]

TALKATIVE = replace(AGENT, environ={"RUST_LOG": "codex_core=warn,codex_api=warn"})
AS_OPENAI = ("-c", 'model_providers.toolwire.name="OpenAI"')
"""A provider of this name is the service itself to Codex, with all that only the service can do."""
SOCKETS = ("-c", "model_providers.toolwire.supports_websockets=true")
SUMMARY = "The file was made; what is left is to say so."
LONG = ScriptedAnswer("This sentence has been long enough to be cut in the middle of it, and then it goes on.")


def play(desk: AgentWorkspace, talk: Script, *given: str) -> AgentResult:
    return desk.run(TALKATIVE, [*given, *headless(f"Do it. {talk.mark}")], talk)


def step(command: str) -> Step:
    return Step(ScriptedAnswer(calls=(Use("exec_command", {"cmd": command}),), thinking="A command, then."))


def check_end(talk: Script, ran: AgentResult) -> None:
    """It came to an end by itself, whichever."""
    assert not talk.refused, f"{talk.refused[0]}\n{ran}"
    assert not ran.looped, f"it asked again and again\n{ran}"
    assert not ran.late, f"it did not come to its end\n{ran}"


# --- the WebSocket ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [SOCKETS, (*SOCKETS, *AS_OPENAI)], ids=["asked for", "as the service"])
def test_there_is_no_websocket(desk: AgentWorkspace, provider: Provider, target: str, given: tuple[str, ...]) -> None:
    """It is told so at the first try, and asks in the usual way."""
    talk = provider.script(step("echo made > made.txt"), ScriptedAnswer(DONE), signed=True)
    ran = play(desk, talk, *given)
    ended_well(talk, ran, 2)
    assert (desk.workspace / "made.txt").exists()
    assert ran.err.count("falling back to HTTP") == 1, str(ran)
    assert "Reconnecting" not in ran.out


def test_the_provider_that_is_built_in(desk: AgentWorkspace, provider: Provider, target: str) -> None:
    """Led here by its base URL, with a key that was given to `codex login`: sockets, and summaries by the service."""
    home = desk.home / ".local/state/toolwire/agents/codex"
    home.mkdir(parents=True)
    (home / "auth.json").write_text('{"OPENAI_API_KEY": "anything"}')
    port = tomllib.loads(desk.config.read_text())["server"]["port"]
    given = ("-c", 'model_provider="openai"', "-c", f'openai_base_url="http://127.0.0.1:{port}/v1"')
    talk = provider.script(
        step("echo made > made.txt"),
        ScriptedAnswer("Made."),
        ScriptedAnswer(SUMMARY),
        ScriptedAnswer(DONE),
        signed=True,
    )
    first = play(desk, talk, *given)
    assert (first.code, len(talk.asked)) == (0, 2), str(first)
    assert first.err.count("falling back to HTTP") == 1, str(first)
    ended_well(talk, desk.run(AGENT, [*given, *FULL_ALREADY, *again("Go on.")], talk), 4)
    assert "echo made" not in talk.asked[-1].text
    assert ("gAAAAAB" if target == "openai-responses" else SUMMARY) in talk.asked[-1].text


# --- conversations that are made short --------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [(), AS_OPENAI], ids=["by itself", "by the service"])
def test_a_long_talk_is_made_short(
    desk: AgentWorkspace, provider: Provider, target: str, given: tuple[str, ...]
) -> None:
    """By itself Codex asks for a summary without tools; of the service it wants one item, which it sends back."""
    talk = provider.script(
        step("echo made-$((40+2)) | tee made.txt"),
        ScriptedAnswer("Made.", thinking="Good."),
        ScriptedAnswer(SUMMARY),
        ScriptedAnswer("Going on."),
        step("cat made.txt"),
        ScriptedAnswer(DONE),
        signed=True,
    )
    first = play(desk, talk, *given)
    assert first.code == 0, str(first)
    second = desk.run(AGENT, [*given, *FULL_ALREADY, *again("Go on.")], talk)
    assert (second.code, len(talk.asked)) == (0, 4), str(second)
    third = desk.run(AGENT, [*given, *again("And on.")], talk)
    ended_well(talk, third, 6)
    for asked in talk.asked[3:]:
        assert talk.mark in asked.text
        assert "tee made.txt" not in asked.text
    own = bool(given) and target == "openai-responses"
    assert all(("gAAAAAB" in asked.text) if own else (SUMMARY in asked.text) for asked in talk.asked[3:])
    [(_, result)] = pairs(talk.asked[5])
    assert "made-42" in result


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["error", "busy"])
def test_a_provider_that_fails_for_a_moment(desk: AgentWorkspace, provider: Provider, target: str, kind: str) -> None:
    talk = provider.script(
        Step(fails=kind), Step(fails=kind), step("echo made > made.txt"), ScriptedAnswer(DONE), signed=True
    )
    ended_well(talk, play(desk, talk), 4)
    assert (desk.workspace / "made.txt").exists()


def test_a_provider_that_always_fails(desk: AgentWorkspace, provider: Provider, target: str) -> None:
    """It gives up after a while; what it says then are words of its own, whatever the provider said."""
    talk = provider.script(*[Step(fails="error")] * 40)
    ran = play(desk, talk, "-c", "model_providers.toolwire.request_max_retries=2",
               "-c", "model_providers.toolwire.stream_max_retries=1")  # fmt: skip
    check_end(talk, ran)
    assert ran.code != 0
    assert len(talk.asked) == 6, str(ran)
    assert "turn.failed" in ran.out


@pytest.mark.parametrize("breaks", ["", "error"], ids=["refused", "in mid-stream"])
def test_a_quota_that_is_used_up(desk: AgentWorkspace, provider: Provider, target: str, breaks: str) -> None:
    """Nothing to wait for: it says so at once."""
    talk = provider.script(*[Step(LONG, fails="quota", breaks=breaks)] * 9)  # type: ignore[arg-type]
    ran = play(desk, talk)
    check_end(talk, ran)
    assert (ran.code, len(talk.asked)) == (1, 1), str(ran)
    assert "Quota exceeded" in ran.out or QUOTA in ran.out


@pytest.mark.parametrize("kind", ["rate", "busy"])
def test_an_answer_that_fails_in_the_middle(desk: AgentWorkspace, provider: Provider, target: str, kind: str) -> None:
    """Asked again after a while, and nothing of the half answer stays."""
    broken = Step(replace(LONG, text=LONG.text * 20), fails=kind, breaks="error", wait=1)
    talk = provider.script(broken, step("echo made > made.txt"), ScriptedAnswer(DONE), signed=True)
    ran = play(desk, talk)
    if (kind, target) == ("busy", "openai-responses") and "at capacity" in ran.out:
        # In OpenAI's own words Codex takes it for the end. If the failure came before anything was passed on, the gateway
        # has answered with a status instead, and Codex asks again as it does everywhere else.
        check_end(talk, ran)
        return
    ended_well(talk, ran, 3)
    assert (desk.workspace / "made.txt").exists()
    assert LONG.text not in talk.asked[-1].text


@pytest.mark.parametrize("breaks", ["cut", "ended"])
def test_a_call_that_never_came_whole(desk: AgentWorkspace, provider: Provider, target: str, breaks: str) -> None:
    """A command of which only a part came is not run."""
    call = Use("exec_command", {"cmd": "echo " + "x" * 2000 + " > half.txt"})
    talk = provider.script(
        Step(ScriptedAnswer(calls=(call,)), breaks=breaks), step("echo made > made.txt"), ScriptedAnswer(DONE), signed=True,  # type: ignore[arg-type]
    )  # fmt: skip
    ended_well(talk, play(desk, talk), 3)
    assert (desk.workspace / "made.txt").exists()
    assert (desk.workspace / "half.txt").exists() == (target == "gemini")  # whose calls always come whole


def test_an_answer_without_room_for_more(desk: AgentWorkspace, provider: Provider, target: str) -> None:
    """It was cut at the limit: Codex says so, and takes it for no success."""
    talk = provider.script(*[ScriptedAnswer("It was cut he", cut=True)] * 9)
    ran = play(desk, talk)
    check_end(talk, ran)
    assert (ran.code, len(talk.asked)) == (1, 1), str(ran)
    assert "max_output_tokens" in ran.out


def test_a_talk_that_is_too_long(desk: AgentWorkspace, provider: Provider, target: str) -> None:
    """Codex says so, and makes it short before it goes on: the session is not lost."""
    talk = provider.script(
        step("echo made > made.txt"),
        ScriptedAnswer("Made."),
        Step(fails="context"),
        ScriptedAnswer(SUMMARY),
        ScriptedAnswer(DONE),
        signed=True,
    )
    play(desk, talk)
    second = desk.run(AGENT, again("Go on."), talk)
    check_end(talk, second)
    assert (second.code, len(talk.asked)) == (1, 3), str(second)
    assert "ran out of room in the model's context window" in second.out
    ended_well(talk, desk.run(AGENT, again("And on."), talk), 5)
    assert SUMMARY in talk.asked[-1].text
    assert "echo made" not in talk.asked[-1].text


def test_a_summary_that_is_too_long_itself(desk: AgentWorkspace, provider: Provider, target: str) -> None:
    """The oldest parts are left out of the request for it, until it fits."""
    talk = provider.script(
        step("echo first"), step("echo second"), ScriptedAnswer("Both."),
        Step(fails="context"), Step(fails="context"), ScriptedAnswer(SUMMARY), ScriptedAnswer(DONE),
        signed=True,
    )  # fmt: skip
    play(desk, talk)
    ran = desk.run(AGENT, [*FULL_ALREADY, *again("Go on.")], talk)
    ended_well(talk, ran, 7)
    first, second, third = (len(asked.raw) for asked in talk.asked[3:6])
    assert first > second > third
    assert SUMMARY in talk.asked[-1].text


@pytest.mark.parametrize(("kind", "words"), [("bad", "That cannot be done."), ("key", BAD_KEY)])
def test_what_is_refused_for_good(desk: AgentWorkspace, provider: Provider, target: str, kind: str, words: str) -> None:
    """The user is told in the provider's words."""
    talk = provider.script(*[Step(fails=kind)] * 20)
    ran = play(desk, talk)
    check_end(talk, ran)
    assert ran.code == 1
    assert words in ran.out, str(ran)
    assert len(talk.asked) < 10, str(ran)
