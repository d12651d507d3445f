"""Where an agent is installed: on PATH, or in the project's `node_modules`."""

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


def find_program(agent: Agent, environ: Mapping[str, str], folder: Path) -> str:
    """The program; nothing when it is not there."""
    there = shutil.which(agent.command, path=environ.get("PATH", ""))
    return there or next(
        filter(None, (_find_in_node_modules(agent, parent) for parent in (folder, *folder.parents))), ""
    )


def _find_in_node_modules(agent: Agent, folder: Path) -> str:
    return shutil.which(agent.command, path=str(folder / "node_modules" / ".bin")) or ""


def search_path(program: str, environ: Mapping[str, str]) -> str:
    """PATH for the agent. A Node that is installed beside it comes first: the usual one may be too old for it."""
    beside, path = str(Path(program).parent), environ.get("PATH", "")
    return f"{beside}{os.pathsep}{path}" if shutil.which("node", path=beside) else path


FORWARDED_SIGNALS = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2")
TERMINAL_SIGNALS = (signal.SIGINT, signal.SIGQUIT)
"""Signals that a terminal sends to all who are in front, to the agent as well as to us."""
EXIT_CANNOT_RUN = 126


class AgentProcess:
    """Signals before the agent runs end us in good order; once it runs, they are its."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._process is None:
            raise SystemExit(128 + number)
        if number not in TERMINAL_SIGNALS or not is_foreground():
            self._process.send_signal(number)

    def run(self, command: Sequence[str], environ: Mapping[str, str]) -> int:
        """Until the agent ends; its exit code, as a shell gives it. Raises OSError when it cannot begin."""
        self._process = subprocess.Popen(command, env=environ)
        code = self._process.wait()
        return code if code >= 0 else 128 - code


@contextmanager
def forward_signals() -> Iterator[AgentProcess]:
    """A child-to-be that hears the signals we get. Those that we were told to ignore (`nohup`) stay ignored."""
    child = AgentProcess()
    numbers = [getattr(signal, name) for name in FORWARDED_SIGNALS if hasattr(signal, name)]
    heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, child.on_signal) for number in heard}
    try:
        yield child
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def is_foreground() -> bool:
    """Are we in front on our terminal, so that the agent heard it too?"""
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
