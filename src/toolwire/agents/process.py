"""Finds an agent's program, and runs it as a child process that receives our signals."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from toolwire.agents import Agent

FORWARDED_SIGNALS = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2")
TERMINAL_SIGNALS = (signal.SIGINT, signal.SIGQUIT)
"""A terminal sends these to every process in the foreground, so the agent gets them without our help."""


def find_program(agent: Agent, environ: Mapping[str, str], folder: Path) -> str:
    """The agent's program on PATH or in the project's `node_modules`; empty if it is not installed."""
    modules = [str(parent / "node_modules" / ".bin") for parent in (folder, *folder.parents)]
    found = (shutil.which(agent.command, path=path) for path in (environ.get("PATH", ""), *modules))
    return next(filter(None, found), "")


def search_path(program: str, environ: Mapping[str, str]) -> str:
    """PATH for the agent. A Node installed beside it comes first: the one on PATH may be too old."""
    beside, path = str(Path(program).parent), environ.get("PATH", "")
    return f"{beside}{os.pathsep}{path}" if shutil.which("node", path=beside) else path


class AgentProcess:
    """The agent's process. A signal before it has started ends us; after that, it goes to the agent."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._process is None:
            raise SystemExit(128 + number)
        if number not in TERMINAL_SIGNALS or not is_foreground():
            self._process.send_signal(number)

    def run(self, command: Sequence[str], environ: Mapping[str, str]) -> int:
        """Run the agent to its end; gives the exit code as a shell does. Raises OSError if it cannot start."""
        self._process = subprocess.Popen(command, env=environ)
        code = self._process.wait()
        return code if code >= 0 else 128 - code


@contextmanager
def forward_signals() -> Iterator[AgentProcess]:
    """An agent's process that gets our signals. Signals that we ignore (`nohup`) stay ignored."""
    child = AgentProcess()
    numbers = [getattr(signal, name) for name in FORWARDED_SIGNALS if hasattr(signal, name)]
    forwarded = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, child.on_signal) for number in forwarded}
    try:
        yield child
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def is_foreground() -> bool:
    """Are we in the foreground of our terminal, so that the agent got the signal too?"""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
