"""What every agent must be able to do on every provider: what the model says, and what must be true afterwards, on disk
and in what the provider received."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from agents.agent import Agent, AgentResult
from agents.received import images, pairs
from gateway.provider import PROTOCOLS, Script, ScriptedAnswer, Step

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
    probe: bool = False
    """Is the MCP server there?"""
    model: str = ""
    """Another model than the agent's own."""
    signed: bool = True


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


def _failed(agent: Agent, workspace: Path, talk: Script, ran: AgentResult) -> None:
    ended_well(talk, ran, 2)
    [(_, result)] = pairs(talk.asked[-1])
    assert "broken-7" in result
    assert "3" in result.replace("broken-7", "") or not agent.tells_codes


def _probe(agent: Agent, workspace: Path) -> list[Step]:
    return [*(Step(ScriptedAnswer(calls=(use,))) for use in agent.echo(WORD)), Step(ScriptedAnswer(DONE))]


def _probed(agent: Agent, workspace: Path, talk: Script, ran: AgentResult) -> None:
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


def _waited(agent: Agent, workspace: Path, talk: Script, ran: AgentResult) -> None:
    ended_well(talk, ran, 3)
    assert (workspace / "made.txt").read_text() == "made-42\n"


def _broken(how: str) -> Steps:
    def steps(agent: Agent, workspace: Path) -> list[Step]:
        said = ScriptedAnswer("This sentence has been long enough to be cut in the middle of it, and then it goes on.")
        return [Step(said, breaks=how), *_shell(agent, workspace)]  # type: ignore[arg-type]

    return steps


def _noticed(agent: Agent, workspace: Path, talk: Script, ran: AgentResult) -> None:
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
    """After a call the prompt is too long; whatever is asked then, for a summary or for the rest, is answered."""
    call = agent.shell("echo made-$((40+2)) | tee made.txt")
    rest = [Step(ScriptedAnswer(DONE)) for _ in range(8)]
    return [Step(ScriptedAnswer("I shall make it.", (call,))), Step(fails="context"), *rest]


def _compacted(agent: Agent, workspace: Path, talk: Script, ran: AgentResult) -> None:
    ended_well(talk, ran, 4)
    assert (workspace / "made.txt").read_text() == "made-42\n"


# --- the list ---------------------------------------------------------------------------------------------------------

ROUND_TRIP = Scene("round-trip", "Make the file made.txt", _shell, _shell_ran)
SCENES = (
    Scene("read", "Read note.txt", _read, _was_read, lambda at: (at / "note.txt").write_text(f"The word is {WORD}.\n")),
    Scene("write", "Write new.txt", _write, _was_written),
    Scene("image", "Look at picture.png", _look, _was_seen, lambda at: (at / "picture.png").write_bytes(picture(64))),
    Scene("parallel", "Do both", _parallel, _both_ran),
    Scene("failing", "Try it", _failing, _failed),
    Scene("mcp", "Ask the probe", _probe, _probed, probe=True),
    Scene("thinking", "Think three times", _thinking, _thought),
    Scene("unknown-model", "Make the file made.txt", _shell, _shell_ran, model="house-model-7"),
    Scene("rate-limit", "Make the file made.txt", _rate, _waited),
    Scene("failed-stream", "Make the file made.txt", _broken("error"), _noticed),
    Scene("cut-stream", "Make the file made.txt", _broken("cut"), _noticed),
    Scene("ended-stream", "Make the file made.txt", _broken("ended"), _noticed),
    Scene("overflow", "Make the file made.txt", _overflow, _said_so),
    Scene("compaction", "Make the file made.txt", _overflow_once, _compacted),
)


COMPACTING_AGENTS = frozenset({"claude"})
"""Agents that shorten their history after an overflow in a run without a user. The others end, with their own vendor's
error as well; so does Claude Code with Anthropic's own, which has the numbers of tokens in it."""


def plays(agents: dict[str, Agent]) -> Iterator[tuple[Scene, str, str]]:
    """Every scene for every agent on every provider, but for what an agent has no tool for."""
    for scene in (ROUND_TRIP, *SCENES):
        for name, agent in agents.items():
            if scene.name == "compaction" and name not in COMPACTING_AGENTS:
                continue
            if scene.name != "image" or agent.look is not None:
                targets = PROTOCOLS if scene.name != "compaction" else [p for p in PROTOCOLS if p != "anthropic"]
                yield from ((scene, name, target) for target in targets)
