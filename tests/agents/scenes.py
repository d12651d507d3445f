"""What every agent must be able to do on every provider: what the model says, and what must be true afterwards, on disk
and in what the provider received."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from agents.agent import OLD_CLAUDE, Agent, AgentResult
from agents.mcp_probe import MANY_FILE
from agents.received import images, pairs
from gateway.declared_tools import Unreadable, find_declared_tool
from gateway.provider import MARK, PROTOCOLS, Received, Script, ScriptedAnswer, Step
from toolwire_conformance.peers.peer import split_text

DONE = "That is all, says the model."
WORD = "cobalt-17"


def picture(size: int) -> bytes:
    """A square in one colour, as PNG."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + b"\x20\x80\xc0" * size) * size
    head = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


Steps = Callable[[Agent, Path], list[Step]]
Check = Callable[[Agent, Path, Script, AgentResult], None]


@dataclass(frozen=True)
class Scene:
    name: str
    prompt: str
    steps: Steps
    check: Check
    prepare: Callable[[Path], object] = lambda workspace: None
    settings: Callable[[Agent, Path], list[str]] = lambda agent, workspace: []
    """What the agent is given besides: files into the workspace, or arguments, which are the answer."""
    model: str = ""
    """Another model than the agent's own."""
    signed: bool = True
    targets: tuple[str, ...] = PROTOCOLS
    """The providers with which it can be played."""


def ended_well(talk: Script, ran: AgentResult, requests: int) -> None:
    """The agent came to its end, with the model's last words; the provider was asked so often and refused nothing."""
    assert not talk.refused, f"{talk.refused[0]}\n{ran}"
    assert not ran.looped, f"it asked again and again\n{ran}"
    assert not ran.late, f"it did not come to its end\n{ran}"
    assert ran.code == 0, str(ran)
    assert DONE in ran.out, str(ran)
    assert len(talk.asked) == requests, f"{len(talk.asked)} requests\n{ran}"


# --- the round trip ---------------------------------------------------------------------------------------------------


def _shell(agent: Agent, workspace: Path) -> list[Step]:
    call = agent.shell("echo made-$((40+2)) | tee made.txt")
    return [Step(ScriptedAnswer("I shall make it.", (call,), thinking="A file is wanted.")), Step(ScriptedAnswer(DONE))]


def _shell_ran(agent: Agent, workspace: Path, talk: Script, ran: AgentResult) -> None:
    ended_well(talk, ran, 2)
    assert (workspace / "made.txt").read_text() == "made-42\n"
    [(_, result)] = pairs(talk.asked[-1])
    assert "made-42" in result


# --- files ------------------------------------------------------------------------------------------------------------


def _read(agent: Agent, workspace: Path) -> list[Step]:
    return [Step(ScriptedAnswer(calls=(agent.read(workspace / "note.txt"),))), Step(ScriptedAnswer(DONE))]


def _was_read(agent: Agent, workspace: Path, talk: Script, ran: AgentResult) -> None:
    ended_well(talk, ran, 2)
    [(_, result)] = pairs(talk.asked[-1])
    assert WORD in result


TEXT = 'line one: "quotes" and \\ strokes\nline two: naïve — 雪 🙂\n\tline three\n'
"""A file that is easily damaged on the way."""


def _write(agent: Agent, workspace: Path) -> list[Step]:
    return [Step(ScriptedAnswer(calls=(agent.write(workspace / "new.txt", TEXT),))), Step(ScriptedAnswer(DONE))]


def _was_written(agent: Agent, workspace: Path, talk: Script, ran: AgentResult) -> None:
    ended_well(talk, ran, 2)
    assert (workspace / "new.txt").read_text() == TEXT
    assert len(pairs(talk.asked[-1])) == 1


def _look(agent: Agent, workspace: Path) -> list[Step]:
    assert agent.look is not None
    return [Step(ScriptedAnswer(calls=(agent.look(workspace / "picture.png"),))), Step(ScriptedAnswer(DONE))]


def _was_seen(agent: Agent, workspace: Path, talk: Script, ran: AgentResult) -> None:
    ended_well(talk, ran, 2)
    assert len(images(talk.asked[-1])) == 1


# --- calls ------------------------------------------------------------------------------------------------------------


def _parallel(agent: Agent, workspace: Path) -> list[Step]:
    calls = agent.shell("echo first-$((1+1))"), agent.shell("echo second-$((2+2))")
    return [Step(ScriptedAnswer("Both at once.", calls, thinking="Two things.")), Step(ScriptedAnswer(DONE))]


def _both_ran(agent: Agent, workspace: Path, talk: Script, ran: AgentResult) -> None:
    ended_well(talk, ran, 2)
    found = {("first-" if "first-" in call else "second-"): result for call, result in pairs(talk.asked[-1])}
    assert found.keys() == {"first-", "second-"}
    assert "first-2" in found["first-"]
    assert "second-4" in found["second-"]


def _failing(agent: Agent, workspace: Path) -> list[Step]:
    return [Step(ScriptedAnswer(calls=(agent.shell("echo broken-$((3+4)) >&2; exit 3"),))), Step(ScriptedAnswer(DONE))]


def check_failure(agent: Agent, workspace: Path, talk: Script, ran: AgentResult) -> None:
    ended_well(talk, ran, 2)
    [(_, result)] = pairs(talk.asked[-1])
    assert "broken-7" in result
    assert "3" in result.replace("broken-7", "") or not agent.tells_codes


def _probe(agent: Agent, workspace: Path) -> list[Step]:
    assert agent.echo is not None
    return [*(Step(ScriptedAnswer(calls=(use,))) for use in agent.echo(WORD)), Step(ScriptedAnswer(DONE))]


def _with_probe(agent: Agent, workspace: Path) -> list[str]:
    assert agent.with_probe is not None
    return agent.with_probe(workspace)


def check_probe(agent: Agent, workspace: Path, talk: Script, ran: AgentResult) -> None:
    assert agent.echo is not None
    rounds = len(agent.echo(WORD))
    ended_well(talk, ran, rounds + 1)
    found = pairs(talk.asked[-1])
    assert len(found) == rounds
    assert f"probe echo heard {WORD}" in found[-1][1]


def _thinking(agent: Agent, workspace: Path) -> list[Step]:
    rounds = [
        Step(ScriptedAnswer(calls=(agent.shell(f"echo round-{at}"),), thinking=f"Thought {at}.")) for at in range(3)
    ]
    return [*rounds, Step(ScriptedAnswer(DONE, thinking="It is done."))]


def _thought(agent: Agent, workspace: Path, talk: Script, ran: AgentResult) -> None:
    ended_well(talk, ran, 4)
    last = talk.asked[-1]
    assert len(pairs(last)) == 3
    if last.protocol == "openai-chat":
        return  # nothing is sealed there
    assert talk.seal_checker is not None
    made = [seal for answer in talk.seal_checker.answers[:-1] for seal in answer.seals]
    assert talk.seal_checker.seals_sent(last.account, last.protocol, last.body) == made


# --- troubles ---------------------------------------------------------------------------------------------------------


def _rate(agent: Agent, workspace: Path) -> list[Step]:
    return [Step(fails="rate", wait=1), *_shell(agent, workspace)]


def check_wait(agent: Agent, workspace: Path, talk: Script, ran: AgentResult) -> None:
    ended_well(talk, ran, 3)
    assert (workspace / "made.txt").read_text() == "made-42\n"


def _broken(how: str) -> Steps:
    def steps(agent: Agent, workspace: Path) -> list[Step]:
        said = ScriptedAnswer("This sentence has been long enough to be cut in the middle of it, and then it goes on.")
        return [Step(said, breaks=how), *_shell(agent, workspace)]  # type: ignore[arg-type]

    return steps


def check_notice(agent: Agent, workspace: Path, talk: Script, ran: AgentResult) -> None:
    """Either it asked again and the work was done, or it says that it failed: never a success without the work."""
    assert not talk.refused, f"{talk.refused[0]}\n{ran}"
    assert not ran.looped, f"it asked again and again\n{ran}"
    assert not ran.late, f"it did not come to its end\n{ran}"
    done = DONE in ran.out and (workspace / "made.txt").exists()
    assert done or ran.code != 0, str(ran)


def _overflow(agent: Agent, workspace: Path) -> list[Step]:
    return [Step(fails="context")] * 12


TOO_LONG = (
    "context window",
    "context length",
    "context_length",
    "too long",
    "token count",
    "tokens allowed",
    "compaction",
)
"""Not single words: agents list commands and settings of such names whatever happens."""


def _said_so(agent: Agent, workspace: Path, talk: Script, ran: AgentResult) -> None:
    assert not ran.looped, f"it asked again and again\n{ran}"
    assert not ran.late, f"it did not come to its end\n{ran}"
    said = (ran.out + ran.err).lower()
    assert any(word in said for word in TOO_LONG), str(ran)


def _overflow_once(agent: Agent, workspace: Path) -> list[Step]:
    """After a call the prompt is too long; then a summary is asked for, which Qwen Code wants in a form of its own. Pi
    goes on with nothing but the summary."""
    call = agent.shell("echo made-$((40+2)) | tee made.txt")
    summary = [Step(_summary)] if agent.name in ("qwen", "pi") else []
    rest = [Step(ScriptedAnswer(DONE)) for _ in range(8)]
    return [Step(ScriptedAnswer("I shall make it.", (call,))), Step(fails="context"), *summary, *rest]


def check_compaction(agent: Agent, workspace: Path, talk: Script, ran: AgentResult) -> None:
    if agent.name == "qwen" and talk.asked[0].protocol in ("openai-responses", "gemini"):
        # It compacts, and declines the summary: by the counts of tokens that this provider gives, it saves none.
        assert not talk.refused, f"{talk.refused[0]}\n{ran}"
        assert len(talk.asked) == 3, str(ran)
        assert "<state_snapshot>" in talk.asked[2].raw
    else:
        ended_well(talk, ran, 3 if agent.name == "cline" else 4)  # Cline makes its summary without the model
    assert (workspace / "made.txt").read_text() == "made-42\n"


SUMMARY = "A file was to be made, and it was."


def _summary(asked: Received) -> ScriptedAnswer:
    """In the form that Qwen Code demands, with the mark by which the provider knows the conversation."""
    mark = MARK.search(asked.raw)
    assert mark
    return ScriptedAnswer(f"<state_snapshot><overall_goal>{SUMMARY} {mark[0]}</overall_goal></state_snapshot>")


def _full_at_once(agent: Agent, workspace: Path) -> list[Step]:
    first, last = _shell(agent, workspace)
    return [first, Step(_summary), last]


def _compact_early(agent: Agent, workspace: Path) -> list[str]:
    assert agent.compact_early is not None
    return agent.compact_early(workspace)


def _went_on_shorter(agent: Agent, workspace: Path, talk: Script, ran: AgentResult) -> None:
    """Both agents ask for the summary without tools; Anthropic refuses a history with calls then."""
    ended_well(talk, ran, 3)
    assert (workspace / "made.txt").read_text() == "made-42\n"
    _, summarized, shorter = talk.asked
    assert "made-42" in pairs(summarized)[0][1]
    assert bool(find_declared_tool(summarized.body)) == (summarized.protocol == "anthropic")
    if agent.name == "codex":  # Qwen Code declines the summary: by the counts of this provider it saves no tokens
        assert SUMMARY in shorter.text
        assert not pairs(shorter)


CUT_CHARACTER = "I smile \ud83d\ude42 and I make it."
"""A character in two halves, between which the provider cuts the text."""


def _halves(agent: Agent, workspace: Path) -> list[Step]:
    assert split_text(CUT_CHARACTER)[0].endswith("\ud83d")
    first, last = _shell(agent, workspace)
    assert isinstance(first.says, ScriptedAnswer)
    return [Step(ScriptedAnswer(CUT_CHARACTER, first.says.calls)), last]


def check_joined_text(agent: Agent, workspace: Path, talk: Script, ran: AgentResult) -> None:
    _shell_ran(agent, workspace, talk, ran)
    assert "I smile 🙂 and I make it." in talk.asked[-1].text


def _unreadable(agent: Agent, workspace: Path) -> list[Step]:
    call = agent.shell("echo half > half.txt")
    broken = Unreadable(json.dumps(call.arguments).replace("half.txt", 'half.txt"'))
    return [Step(ScriptedAnswer("I shall make it.", (replace(call, arguments=broken),))), *_shell(agent, workspace)]


def _called_again(agent: Agent, workspace: Path, talk: Script, ran: AgentResult) -> None:
    """The model hears that the call failed, and makes it as it should be."""
    ended_well(talk, ran, 3)
    assert (workspace / "made.txt").read_text() == "made-42\n"
    assert not (workspace / "half.txt").exists()
    [(call, _)] = pairs(talk.asked[1])
    assert ("__unparsedToolInput" in call) == (agent.name == "claude" and talk.asked[1].protocol == "anthropic")
    assert len(pairs(talk.asked[2])) == 2


FORMS: tuple[Callable[[str], str], ...] = (
    lambda text: text.replace("half.txt", 'half.txt"'),
    lambda text: text[: len(text) // 2],
    lambda text: f"[{text}]",
    lambda text: "echo half > half.txt",
)
"""Arguments as models spoil them: a quotation mark too many, no end, a list, and bare words."""


def _unreadable_calls(agent: Agent, workspace: Path, whole: bool = False) -> list[Step]:
    call = agent.shell("echo half > half.txt")
    spoiled = [replace(call, arguments=Unreadable(form(json.dumps(call.arguments)))) for form in FORMS]
    tries = [Step(ScriptedAnswer(f"Try {at}.", (one,)), whole=whole) for at, one in enumerate(spoiled)]
    good = Step(ScriptedAnswer("So it works.", (agent.shell("echo works"),)))  # Cline ends after three failures
    return [*tries[:2], good, *tries[2:], *_shell(agent, workspace)]


def _unreadable_whole(agent: Agent, workspace: Path) -> list[Step]:
    return _unreadable_calls(agent, workspace, whole=True)


def check_survival(agent: Agent, workspace: Path, talk: Script, ran: AgentResult) -> None:
    """No call ran with half of its arguments; each was answered, and the next one was made."""
    ended_well(talk, ran, len(FORMS) + 3)
    assert (workspace / "made.txt").read_text() == "made-42\n"
    as_it_came = agent.protocol in ("openai-chat", talk.asked[0].protocol)
    assert (agent.repairs_arguments and as_it_came) or not (workspace / "half.txt").exists()
    assert len(pairs(talk.asked[-1])) == len(FORMS) + 2


# --- a task, and thinking that a provider wants back or asked for in its own way --------------------------------------


def _task(agent: Agent, workspace: Path) -> list[Step]:
    both = agent.read(workspace / "note.txt"), agent.shell("echo second-$((2+2))")
    return [
        Step(ScriptedAnswer("I look.", both, thinking="Two things at once.")),
        Step(ScriptedAnswer("I write.", (agent.write(workspace / "new.txt", TEXT),), thinking="Now I know the word.")),
        Step(ScriptedAnswer(calls=(agent.shell("cat new.txt | wc -l"),))),
        Step(ScriptedAnswer(DONE)),
    ]


def _task_done(agent: Agent, workspace: Path, talk: Script, ran: AgentResult) -> None:
    ended_well(talk, ran, 4)
    assert (workspace / "new.txt").read_text().rstrip("\n") == TEXT.rstrip("\n")  # Cline's patches end without one
    found = pairs(talk.asked[-1])
    assert len(found) == 4
    assert any("note.txt" in call and WORD in result for call, result in found)
    assert any("second-" in call and "second-4" in result for call, result in found)


def _thought_aloud(agent: Agent, workspace: Path, talk: Script, ran: AgentResult) -> None:
    """DeepSeek refuses a call without the `reasoning_content` that led to it; so does the provider here."""
    ended_well(talk, ran, 4)
    assert talk.asked[-1].model == "deepseek-v4"
    thoughts = [message.get("reasoning_content") for message in talk.asked[-1].body["messages"]]
    assert [thought for thought in thoughts if thought] == [f"Thought {at}." for at in range(3)]


def _with_old_thinking(agent: Agent, workspace: Path) -> list[str]:
    assert agent.with_old_thinking is not None
    return agent.with_old_thinking(workspace)


def _thought_adaptively(agent: Agent, workspace: Path, talk: Script, ran: AgentResult) -> None:
    """The agent asked for a budget, which the provider's model refuses."""
    if agent.loses_seals:
        ended_well(talk, ran, 4)
    else:
        _thought(agent, workspace, talk, ran)
    assert [asked.body["thinking"]["type"] for asked in talk.asked] == ["adaptive"] * 4


def _many_probed(agent: Agent, workspace: Path, talk: Script, ran: AgentResult) -> None:
    check_probe(agent, workspace, talk, ran)
    assert len(find_declared_tool(talk.asked[0].body)) == 128


TEXT_ARGUMENTS = ("openai-chat", "openai-responses", "anthropic")
"""Where arguments are text, which can be spoiled. Gemini's are objects."""

# --- the list ---------------------------------------------------------------------------------------------------------

ROUND_TRIP = Scene("round-trip", "Make the file made.txt", _shell, _shell_ran)
SCENES = (
    Scene("read", "Read note.txt", _read, _was_read, lambda at: (at / "note.txt").write_text(f"The word is {WORD}.\n")),
    Scene("write", "Write new.txt", _write, _was_written),
    Scene("image", "Look at picture.png", _look, _was_seen, lambda at: (at / "picture.png").write_bytes(picture(64))),
    Scene("parallel", "Do both", _parallel, _both_ran),
    Scene("failing", "Try it", _failing, check_failure),
    Scene("mcp", "Ask the probe", _probe, check_probe, settings=_with_probe),
    Scene("thinking", "Think three times", _thinking, _thought),
    Scene("unknown-model", "Make the file made.txt", _shell, _shell_ran, model="house-model-7"),
    Scene("rate-limit", "Make the file made.txt", _rate, check_wait),
    Scene("failed-stream", "Make the file made.txt", _broken("error"), check_notice),
    Scene("cut-stream", "Make the file made.txt", _broken("cut"), check_notice),
    Scene("ended-stream", "Make the file made.txt", _broken("ended"), check_notice),
    Scene("overflow", "Make the file made.txt", _overflow, _said_so),
    Scene("compaction", "Make the file made.txt", _overflow_once, check_compaction),
    Scene("early-compaction", "Make the file made.txt", _full_at_once, _went_on_shorter, settings=_compact_early),
    Scene("cut-character", "Make the file made.txt", _halves, check_joined_text, signed=False),
    Scene("unreadable-call", "Make the file made.txt", _unreadable, _called_again, targets=TEXT_ARGUMENTS),
    Scene(
        "many-tools",
        "Ask the probe",
        _probe,
        _many_probed,
        lambda at: (at / MANY_FILE).touch(),
        _with_probe,
        targets=("openai-chat",),  # one provider with this limit is enough
    ),
    Scene(
        "task",
        "Read note.txt and write new.txt",
        _task,
        _task_done,
        lambda at: (at / "note.txt").write_text(f"The word is {WORD}.\n"),
    ),
    Scene("unreadable-calls", "Make the file made.txt", _unreadable_calls, check_survival, targets=TEXT_ARGUMENTS),
    Scene(
        "unreadable-calls-whole",
        "Make the file made.txt",
        _unreadable_whole,
        check_survival,
        targets=("openai-chat", "openai-responses"),  # Anthropic has text only in streams
    ),
    Scene("deepseek", "Think three times", _thinking, _thought_aloud, model="deepseek-v4", targets=("openai-chat",)),
    Scene(
        "old-thinking",
        "Think three times",
        _thinking,
        _thought_adaptively,
        settings=_with_old_thinking,
        model=OLD_CLAUDE,
        targets=("anthropic",),
    ),
)


ADDED_SCENES = frozenset({"task", "unreadable-calls", "unreadable-calls-whole", "deepseek", "old-thinking"})
"""For those agents only that play a part of the scenes."""
COMPACTING_AGENTS = frozenset({"claude", "qwen", "pi", "cline"})
"""Agents that shorten their history after an overflow in a run without a user. Kilo does, too, but its exit code is 1. The
others end, with their own vendor's error as well."""
ENDING_PAIRS = frozenset({("claude", "anthropic"), ("cline-generate", "gemini")})
"""Of these agents and providers, those where the agent ends at the vendor's own words: Anthropic's have the numbers of
tokens in them."""


def plays(agents: dict[str, Agent]) -> Iterator[tuple[Scene, str, str]]:
    """Every scene for every agent on every provider, but for what one of them cannot do."""
    for scene in (ROUND_TRIP, *SCENES):
        for name, agent in agents.items():
            if scene is ROUND_TRIP:
                targets = agent.quick_targets
            else:
                targets = tuple(target for target in scene.targets if target in agent.targets) or scene.targets[:1]
            yield from ((scene, name, target) for target in targets if _can_play(scene.name, name, agent, target))


def _can_play(scene: str, name: str, agent: Agent, target: str) -> bool:
    if agent.scenes is None and scene in ADDED_SCENES:
        return False
    if agent.scenes is not None and scene not in (*agent.scenes, ROUND_TRIP.name):
        return False
    match scene:
        case "image":
            return agent.look is not None
        case "compaction":
            return agent.name in COMPACTING_AGENTS and (name, target) not in ENDING_PAIRS
        case "early-compaction":
            return agent.compact_early is not None
        case "many-tools":  # agents that search for tools do not declare those of the probe
            return agent.echo is not None and len(agent.echo(WORD)) == 1
        case "deepseek":  # Cline's adapter for Gemini declares no tools to a model of another name
            return (agent.name, agent.protocol) != ("cline", "gemini")
        case "old-thinking":
            return agent.with_old_thinking is not None
    return True
