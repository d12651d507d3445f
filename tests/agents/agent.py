"""An agent: how it is told to do one thing without a person, and what it calls the tools that every agent has."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agents.install import BIN
from gateway.declared_tools import Use
from gateway.provider import PROTOCOLS, Received, Script, ScriptedAnswer
from waits import PATIENCE

PROBE = (sys.executable, str(Path(__file__).with_name("mcp_probe.py")))
"""The command of the MCP server that agents are given."""
ADAPTERS = {
    "chat": ("openai-chat", "gpt-4.1"),
    "responses": ("openai-responses", "gpt-5.5"),
    "messages": ("anthropic", "claude-opus-5-5"),
    "generate": ("gemini", "gemini-3.8-flash"),
}
"""For agents that speak several protocols: a protocol and one of its vendor's models. Tools, prompt and settings depend
on the model's name."""
OTHER_PROVIDER = {
    "openai-chat": ("anthropic",),
    "openai-responses": ("gemini",),
    "anthropic": ("openai-chat",),
    "gemini": ("openai-responses",),
}
"""Another provider for each protocol, so that an agent which speaks all four meets all four in few runs."""
OLD_CLAUDE = "claude-sonnet-4-5"
"""A model for which agents ask Anthropic to think with a budget; the provider's own model refuses that."""
UNSCRIPTED_SCENES = frozenset(
    {"task", "unreadable-calls", "unreadable-calls-whole", "cut-character", "compaction", "deepseek", "old-thinking"}
)
"""For agents whose sessions are played to see that they survive. The others play everything."""


@dataclass(frozen=True)
class Agent:
    """One agent on one protocol."""

    name: str
    """What `toolwire run` calls it."""
    protocol: str
    model: str
    """The name of the model that it is told."""
    headless: Callable[[str], list[str]]
    """Its arguments for a prompt, without a person and without questions."""
    shell: Callable[[str], Use]
    """A shell command; its working directory is the workspace."""
    read: Callable[[Path], Use]
    write: Callable[[Path, str], Use]
    """Makes a new file that holds a text."""
    again: Callable[[str], list[str]] | None = None
    """Its arguments for a further prompt in the session before."""
    look: Callable[[Path], Use] | None = None
    """Shows the model a picture from the disk; None where the agent has no tool for that."""
    echo: Callable[[str], Sequence[Use]] | None = None
    """The probe's tool `echo`, with a word; where a search for it has to come first, that comes first."""
    with_probe: Callable[[Path], list[str]] | None = None
    """Give it the MCP server: files into the workspace, or arguments, which are the answer."""
    with_old_thinking: Callable[[Path], list[str]] | None = None
    """Make it ask the old Claude to think with a budget: files into the workspace, or arguments, which are the answer."""
    compact_early: Callable[[Path], list[str]] | None = None
    """Make it shorten its history after the first call: files into the workspace, or arguments, which are the answer."""
    options: tuple[str, ...] = ()
    """What `toolwire run` itself is told besides."""
    aside: Callable[[Received], ScriptedAnswer | None] = lambda asked: None
    """Answers what it asks beside the conversation, such as a title for it."""
    environ: Mapping[str, str] = field(default_factory=dict)
    forgets: bool = False
    """Does a session that is taken up again come back without its seals?"""
    repairs_arguments: bool = False
    """Does it run a call whose arguments it has repaired itself, where the gateway passes them on as they came?"""
    loses_seals: bool = False
    """Does it send no reasoning back, to its own vendor neither? Gemini gets placeholders for its signatures then."""
    retells: bool = False
    """Does it tell the beginning of a session otherwise when it goes on? Thoughts that are bound to it stay away then."""
    tells_codes: bool = True
    """Does the model hear with what exit code a shell command ended?"""
    furnish: Callable[[Path], object] = lambda home: None
    """Files that are in its user's home before it starts."""
    scenes: frozenset[str] | None = None
    """The scenes that it plays; None for all."""
    targets: tuple[str, ...] = PROTOCOLS
    """The providers with which it plays them."""
    quick_targets: tuple[str, ...] = PROTOCOLS
    """The providers of its round trips."""


@dataclass(frozen=True)
class AgentResult:
    """How a run ended."""

    code: int
    out: str
    err: str
    looped: bool
    late: bool

    def __str__(self) -> str:
        return f"exit code {self.code}\n--- stdout\n{self.out[-3000:]}\n--- stderr\n{self.err[-3000:]}"


@dataclass(frozen=True)
class AgentWorkspace:
    """Where an agent works: its folder, a home that is nobody's, and the gateway it is pointed at."""

    workspace: Path
    home: Path
    config: Path
    """The gateway's configuration: `toolwire run` finds by it the one that runs."""

    def run(self, agent: Agent, arguments: Sequence[str], talk: Script, model: str = "") -> AgentResult:
        """Start the agent as its user does and wait for its end; stopped when it asks again and again."""
        command = [sys.executable, "-m", "toolwire.cli", "run", agent.name]
        command += ["--model", model or agent.model, *agent.options, "--", *arguments]
        agent.furnish(self.home)
        process = subprocess.Popen(
            command,
            cwd=self.workspace,
            env=self.environ(agent),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        looped = threading.Event()

        def stop() -> None:
            looped.set()
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)

        talk.looped = stop
        late = False
        try:
            out, err = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            late = True
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
        return AgentResult(process.returncode, out, err, looped.is_set(), late)

    def environ(self, agent: Agent) -> dict[str, str]:
        """The machine's, without anybody's keys and settings."""
        kept = ("PATH", "LANG", "LC_ALL", "TERM", "TZ")
        told = {name: os.environ[name] for name in kept if name in os.environ}
        told["PATH"] = f"{BIN}{os.pathsep}{told['PATH']}"
        # Not --config, which starts a private gateway.
        told |= {"HOME": str(self.home), "TOOLWIRE_CONFIG": str(self.config), "NO_COLOR": "1"}
        return {**told, **agent.environ}
