"""An agent that stands in for the real ones: tells what it was given, and then does what its first argument says."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path


def given() -> dict[str, object]:
    files = {}
    for name in filter(None, os.environ.get("STANDIN_FILES", "").split(":")):
        files[name] = Path(os.path.expandvars(name)).read_text() if Path(os.path.expandvars(name)).exists() else None
    return {"argv": sys.argv[1:], "environ": dict(os.environ), "files": files, "pid": os.getpid(), "cwd": os.getcwd()}


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())  # not through a buffer, which a signal may find in the middle of its work


def counted() -> int:
    """How often somebody typed Ctrl-C, until SIGTERM comes."""
    heard: list[int] = []

    def typed(number: int, _frame: object) -> None:
        heard.append(number)
        say("typed")

    signal.signal(signal.SIGINT, typed)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(len(heard)))
    say("ready")
    while True:
        signal.pause()


def main() -> int:
    say(json.dumps(given()))
    does = os.environ.get("STANDIN", "")
    if does == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if does == "count":
        return counted()
    if does == "wait":
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, lambda number, frame: sys.exit(40 + number))
        say("ready")
        while True:
            signal.pause()
    return int(does or 0)


if __name__ == "__main__":
    sys.exit(main())
