"""The agent as a process in the foreground: the terminal is its, and so are the signals that we get."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType

PASSED = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2")
TYPED = (signal.SIGINT, signal.SIGQUIT)
"""Signals that a terminal sends to all who are in front, to the agent as well as to us."""
CANNOT_RUN = 126


class Child:
    """Signals before the agent runs end us in good order; once it runs, they are its."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def signalled(self, number: int, _frame: FrameType | None) -> None:
        if self._process is None:
            raise SystemExit(128 + number)
        if number not in TYPED or not in_front():
            self._process.send_signal(number)

    def run(self, command: Sequence[str], environ: Mapping[str, str]) -> int:
        """Until the agent ends; its exit code, as a shell gives it. Raises OSError when it cannot begin."""
        self._process = subprocess.Popen(command, env=environ)
        code = self._process.wait()
        return code if code >= 0 else 128 - code


@contextmanager
def listening() -> Iterator[Child]:
    """A child-to-be that hears the signals we get. Those that we were told to ignore (`nohup`) stay ignored."""
    child = Child()
    numbers = [getattr(signal, name) for name in PASSED if hasattr(signal, name)]
    heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, child.signalled) for number in heard}
    try:
        yield child
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def in_front() -> bool:
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
