"""The real agents on a model whose server returns every call as text, in each format: a task of several calls."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from agents.agent import Agent, AgentWorkspace
from agents.all import AGENTS
from agents.conftest import MODELS, configuration, laid
from agents.received import pairs
from agents.scenes import DONE, WORD, ended_well
from gateway.declared_tools import Use, write_call
from gateway.process import run_gateway
from gateway.provider import Provider, Received, ScriptedAnswer, Step
from tool_formats.written_calls import WRITERS
from waits import free_port

TARGET = "openai-chat"
PLAYERS = ("codex", "claude", "gemini", "opencode-chat", "qwen")
QUICK = ("qwen3_coder",)
"""The formats that are played without `--full`."""
PLAYS = [
    pytest.param(name, player, id=f"{name}-{player}", marks=() if name in QUICK else pytest.mark.full)
    for name in WRITERS
    for player in PLAYERS
]
Playing = dict[tuple[str, str], Future[None]]


@pytest.fixture(scope="module")
def text_gateway(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A gateway whose models write calls as text."""
    port = free_port()
    folder = tmp_path_factory.mktemp("text")
    file = folder / "toolwire.toml"
    text = configuration(provider.url, TARGET, port)
    for name in (
        f'[models."*"]\nprovider = "p-{TARGET}"\nmodel = "{MODELS[TARGET]}"',
        '[models."qwen*"]\nprovider = "p-openai-chat"',
    ):
        assert name in text
        text = text.replace(name, f'{name}\ntool_format = "auto"')
    file.write_text(text)
    with run_gateway(folder, "--config", str(file), "--port", str(port)):
        yield file


@pytest.fixture(scope="module")
def playing(
    request: pytest.FixtureRequest,
    provider: Provider,
    text_gateway: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Playing]:
    """All that is to be played, begun, as many at once as there are cores."""
    pool = ThreadPoolExecutor(os.cpu_count())
    begun: Playing = {}
    for item in request.session.items:
        if isinstance(item, pytest.Function) and item.originalname == test_calls_in_text_are_run.__name__:
            name, player = (item.callspec.params[key] for key in ("name", "player"))
            desk = laid(tmp_path_factory.mktemp(f"{name}-{player}"), text_gateway)
            begun[name, player] = pool.submit(play, name, AGENTS[player], desk, provider)
    yield begun
    pool.shutdown(cancel_futures=True)


def say_in_text(name: str, text: str, *uses: Use) -> Step:
    """The model calls these tools, as text in the format."""

    def write(asked: Received) -> ScriptedAnswer:
        called = [write_call(asked.body, use) for use in uses]
        calls = [(one.tool.name, one.arguments) for one in called if isinstance(one.arguments, dict)]
        # Without marks of its own, a format is recognised only if it is the whole answer.
        before = "" if name in ("llama3_json", "json") else f"{text}\n"
        return ScriptedAnswer(before + WRITERS[name](calls))

    return Step(write)


def play(name: str, agent: Agent, desk: AgentWorkspace, provider: Provider) -> None:
    """Read a file, run two commands at once, write a file."""
    (desk.workspace / "note.txt").write_text(f"The word is {WORD}.\n")
    steps = [
        say_in_text(name, "I read it.", agent.shell("cat note.txt")),
        say_in_text(
            name, "I'll run both at once.", agent.shell("echo first-$((1+1))"), agent.shell("echo second-$((2+2))")
        ),
        say_in_text(name, "Now I'll create the file.", agent.shell("echo made-$((40+2)) | tee made.txt")),
        Step(ScriptedAnswer(DONE)),
    ]
    talk = provider.script(*steps)
    talk.aside = agent.aside
    ran = desk.run(agent, agent.headless(f"Do the task. {talk.mark}"), talk)
    ended_well(talk, ran, 4)
    assert (desk.workspace / "made.txt").read_text() == "made-42\n"
    results = " ".join(result for _, result in pairs(talk.asked[-1]))
    assert [word for word in (WORD, "first-2", "second-4", "made-42") if word not in results] == []


@pytest.mark.parametrize(("name", "player"), PLAYS)
def test_calls_in_text_are_run(name: str, player: str, playing: Playing) -> None:
    playing[name, player].result()
