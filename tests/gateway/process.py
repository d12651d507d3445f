"""`toolwire serve` as a process of its own, and what it says."""

from __future__ import annotations

import os
import queue
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from forked_commands import CommandProcess
from waits import PATIENCE

start_process: Callable[[Sequence[str], Path, Mapping[str, str], tuple[int, int, int]], CommandProcess] = CommandProcess
"""Starts `toolwire WORDS`. Tests of restricted environments replace it."""


class Process:
    """`toolwire serve`, and what it says."""

    def __init__(self, folder: Path, *arguments: str, reads_log: bool = True) -> None:
        environ = {name: value for name, value in os.environ.items() if not name.endswith(("_API_KEY", "_BASE_URL"))}
        environ |= {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
        environ.pop("TOOLWIRE_CONFIG", None)
        (out, out_end), (log, log_end) = os.pipe(), os.pipe()
        with open(os.devnull) as nothing, open(out_end, "wb"), open(log_end, "wb"):
            streams = (nothing.fileno(), out_end, log_end)
            self.process = start_process(["serve", "--port", "0", *arguments], folder, environ, streams)
        self.stdout, self.stderr = os.fdopen(out), os.fdopen(log)
        self.out: queue.Queue[str] = queue.Queue()
        self.log: queue.Queue[str] = queue.Queue()
        self._readers = [
            threading.Thread(target=_read, args=(stream, lines), daemon=True)
            for stream, lines in ((self.stdout, self.out), (self.stderr, self.log))
        ]
        for reader in self._readers[: None if reads_log else 1]:
            reader.start()
        self.banner = [self.out.get(timeout=PATIENCE) for _ in range(3)]
        found = re.search(r"http://127\.0\.0\.1:(\d+)", self.banner[0])
        assert found, self.banner
        self.port = int(found[1])

    def read_log_until(self, word: str) -> str:
        """The next line of the log with this in it."""
        while True:
            line = self.log.get(timeout=PATIENCE)
            if word in line:
                return line

    def read_log_match(self, pattern: re.Pattern[str]) -> str:
        """The next line of the log that this pattern finds."""
        while True:
            line = self.log.get(timeout=PATIENCE)
            if pattern.search(line):
                return line

    def read_log(self) -> None:
        """Begin to read the log, where that was left out."""
        self._readers[1].start()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait_for_exit(self) -> int:
        status = self.process.wait(PATIENCE)
        for reader in self._readers:
            if reader.ident is not None:
                reader.join(PATIENCE)
        return status

    def children(self) -> set[int]:
        pid = self.process.pid
        return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}

    def wait_until_refusing(self) -> None:
        """Until no new connection is taken any more."""
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), PATIENCE).close()
            except OSError:
                return


def _read(stream: IO[str], lines: queue.Queue[str]) -> None:
    for line in stream:
        lines.put(line)


@contextmanager
def run_gateway(folder: Path, *arguments: str, reads_log: bool = True) -> Iterator[Process]:
    process = Process(folder, *arguments, reads_log=reads_log)
    try:
        yield process
    finally:
        if process.process.poll() is None:
            process.signal(signal.SIGKILL)
        close_process(process)


def close_process(process: Process) -> None:
    """Wait for its end, and let go of it."""
    process.wait_for_exit()
    process.stdout.close()
    process.stderr.close()
