"""`toolwire WORDS` in processes that start at once.

`python -m toolwire.cli` needs a quarter of a second of computing for its imports, and tests start hundreds of commands.
These are forked from one process that has imported all of them. They have a folder, an environment, standard streams,
signals and an exit code of their own. Tests of how Python itself starts (`PYTHONIOENCODING`) run `TOOLWIRE` instead, and
those without some package have `install/clean_runs.py`.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any, NamedTuple

from toolwire.cli import main
from toolwire.cli.commands import COMMANDS
from toolwire.gateway.configuration.load import read_file
from toolwire.gateway.settings.problems import ConfigError
from toolwire.gateway.settings.trust import remember_trust
from waits import PATIENCE

TOOLWIRE = (sys.executable, "-m", "toolwire.cli")
_FORKS: Any = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload([f"toolwire.{command.module}" for command in COMMANDS.values()])


class CommandProcess:
    """A command that runs, with the methods of `subprocess.Popen`."""

    def __init__(
        self, words: Sequence[str], folder: Path, environ: Mapping[str, str], streams: tuple[int, int, int]
    ) -> None:
        """`streams` are the descriptors of its standard input, output and error."""
        self._process = _FORKS.Process(target=_run_command, args=(words, folder, dict(environ), _Streams(streams)))
        self._process.start()
        self.pid: int = self._process.pid

    def poll(self) -> int | None:
        code: int | None = self._process.exitcode
        return code

    def wait(self, timeout: float = PATIENCE) -> int:
        self._process.join(timeout)
        code = self.poll()
        if code is None:
            self._process.kill()
            raise AssertionError(f"no end within {timeout} s")
        return code

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)


class _Streams:
    """Descriptors, which are passed on when the process starts."""

    def __init__(self, numbers: tuple[int, int, int]) -> None:
        self.numbers = numbers

    def __reduce__(self) -> tuple[Any, ...]:
        return _receive_streams, tuple(map(DupFd, self.numbers))


def _receive_streams(*streams: Any) -> list[int]:
    return [stream.detach() for stream in streams]


def _run_command(words: Sequence[str], folder: Path, environ: Mapping[str, str], streams: list[int]) -> None:
    os.setsid()
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    time.tzset()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["toolwire", *words]
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", 1 if os.isatty(1) else -1, encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)
    try:
        sys.exit(main())
    finally:
        atexit._run_exitfuncs()


def trust_file(folder: Path, environ: Mapping[str, str]) -> None:
    """The user of a test trusts the configuration in his working folder, as he would say on a terminal."""
    file = folder / "toolwire.toml"
    with suppress(ConfigError):
        if file.exists():
            remember_trust(file, read_file(file).digest, environ)


class Output(NamedTuple):
    """What a finished command wrote. On a terminal `out` has both streams, in the order in which they were written."""

    code: int
    out: str
    err: str = ""


def run_command(words: Sequence[str], folder: Path, environ: Mapping[str, str], stdin: bytes = b"") -> Output:
    """Run `toolwire WORDS` with its streams in pipes."""
    (theirs_in, ours_in), (ours_out, theirs_out), (ours_err, theirs_err) = (os.pipe() for _ in range(3))
    process = CommandProcess(words, folder, environ, (theirs_in, theirs_out, theirs_err))
    for descriptor in (theirs_in, theirs_out, theirs_err):
        os.close(descriptor)
    written: list[bytes] = [b"", b""]

    def read(number: int, descriptor: int) -> None:
        with open(descriptor, "rb") as stream:
            written[number] = stream.read()

    readers = [threading.Thread(target=read, args=pair) for pair in ((0, ours_out), (1, ours_err))]
    for reader in readers:
        reader.start()
    with open(ours_in, "wb") as stream:
        stream.write(stdin)
    code = process.wait()
    for reader in readers:
        reader.join(PATIENCE)
    return Output(code, *(data.decode() for data in written))


@contextmanager
def start_program(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Start another program, with its output in a pipe. It ends with the block."""
    with subprocess.Popen(command, text=True, **{"stdout": subprocess.PIPE, **options}) as process:
        try:
            yield process
        finally:
            process.kill()


def run_program(command: Sequence[str], folder: Path, environ: Mapping[str, str]) -> Output:
    """Run another program, or `TOOLWIRE` with a Python of its own."""
    done = subprocess.run(
        command, cwd=folder, env=environ, input="", capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    return Output(done.returncode, done.stdout, done.stderr)
