"""A fake agent: prints what it was started with, then action what FAKE_AGENT_ACTION says."""

from __future__ import annotations

import json
import os
import signal
import sys
from glob import glob
from pathlib import Path


def describe_environment() -> dict[str, object]:
    files = {}
    for name in filter(None, os.environ.get("FAKE_AGENT_FILES", "").split(":")):
        found = glob(os.path.expandvars(name))  # the folder of a run has a name that nobody knows before
        files[name] = Path(found[0]).read_text() if found else None
    return {"argv": sys.argv[1:], "environ": dict(os.environ), "files": files, "pid": os.getpid(), "cwd": os.getcwd()}


def print_line(line: str) -> None:
    os.write(1, f"{line}\n".encode())  # unbuffered, because a signal handler also prints


def count_interrupts() -> int:
    """Count Ctrl-C until SIGTERM; gives the count as the exit code."""
    interrupts: list[int] = []

    def on_interrupt(number: int, _frame: object) -> None:
        interrupts.append(number)
        print_line("typed")

    signal.signal(signal.SIGINT, on_interrupt)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(len(interrupts)))
    print_line("ready")
    while True:
        signal.pause()


def main() -> int:
    print_line(json.dumps(describe_environment()))
    action = os.environ.get("FAKE_AGENT_ACTION", "")
    if action == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if action == "count":
        return count_interrupts()
    if action == "wait":
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, lambda number, frame: sys.exit(40 + number))
        print_line("ready")
        while True:
            signal.pause()
    return int(action or 0)


if __name__ == "__main__":
    sys.exit(main())
