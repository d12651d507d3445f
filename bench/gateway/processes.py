"""Processes that are measured: started in a group of their own, weighed with all their children, and stopped."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


class DidNotStart(Exception):
    """A gateway ended, or did not answer in time."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Process:
    def __init__(self, argv: Sequence[str], env: Mapping[str, str], folder: Path, log: IO[bytes] | int) -> None:
        self._popen = subprocess.Popen(
            argv, env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        self.pid = self._popen.pid

    def exit_code(self) -> int | None:
        return self._popen.poll()

    def stop(self) -> None:
        """The whole group: gently, then not."""
        for way, patience in ((signal.SIGTERM, 10), (signal.SIGKILL, 5)):
            try:
                os.killpg(self.pid, way)
                self._popen.wait(patience)
            except ProcessLookupError:
                break
            except subprocess.TimeoutExpired:
                continue
        self._popen.wait()

    def cpu(self) -> float:
        """Seconds of processor time, user and system, of the process, its children, and those that have ended."""
        return sum(_cpu_seconds(pid) for pid in self._tree())

    def resident(self) -> int:
        """Bytes in memory, the children's too; what they share is counted for each."""
        pages = (Path(f"/proc/{pid}/statm").read_text().split()[1] for pid in self._tree())
        return sum(map(int, pages)) * PAGE

    def _tree(self) -> list[int]:
        parents = {int(path.name): _fields(path)[1] for path in Path("/proc").glob("[0-9]*") if path.exists()}
        tree = [self.pid]
        for pid in tree:
            tree += [child for child, parent in parents.items() if parent == str(pid)]
        return tree


def _fields(path: Path) -> list[str]:
    """What /proc says of a process behind its name: state, parent, …"""
    try:
        return (path / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ["gone", "0", *["0"] * 20]


def _cpu_seconds(pid: int) -> float:
    fields = _fields(Path(f"/proc/{pid}"))
    ended = (int(fields[13]) + int(fields[14])) / TICK
    try:
        # The process's own clock counts nanoseconds, where /proc counts ticks of 10 ms (clock_getcpuclockid(3)).
        return time.clock_gettime((~pid << 3) | 2) + ended
    except OSError:
        return (int(fields[11]) + int(fields[12])) / TICK + ended


def ask(port: int, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
    """One request on a connection of its own; status 0 when nobody listens."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path, body, dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException) as error:
        return 0, str(error).encode()
    finally:
        connection.close()
