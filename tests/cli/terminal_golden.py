"""What a command shows on a terminal, compared with golden text: at 80 and 120 columns, with and without colour, and in
a pipe.

    def test_the_help(folder: Path) -> None:
        check_golden("help", ["--help"], folder)  # the fixture is in conftest.py

The files are in `tests/cli/golden/NAME/`; an escape character is written as `␛` there. After a wanted change,
`UPDATE_GOLDEN=1 pytest tests/cli/test_….py` writes them again: read the difference before you commit it. Ports, times,
versions and the test's folder are replaced by text of the same width, so that tables keep their shape.
"""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fcntl import ioctl
from pathlib import Path

from forked_commands import CommandProcess, Output, run_command, trust_file
from toolwire import __version__
from toolwire.terminal.text import remove_colours, text_width
from waits import PATIENCE

GOLDEN = Path(__file__).parent / "golden"
WIDTHS = (80, 120)
ROWS = 40


# --- the place where a command runs -----------------------------------------------------------------------------------


def make_environ(folder: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """A user without any key, whose home is the folder."""
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    home = {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder / ".config"), "TZ": "UTC", "LANG": "C.UTF-8"}
    return {**kept, **home, "TERM": "xterm-256color", **(more or {})}


def run_in_pipe(
    words: Sequence[str], folder: Path, environ: Mapping[str, str] | None = None, stdin: bytes = b""
) -> Output:
    """Run `toolwire WORDS` with its output in pipes."""
    given = make_environ(folder, environ)
    trust_file(folder, given)
    return run_command(words, folder, given, stdin)


def _start_process(
    command: Sequence[str], folder: Path, environ: Mapping[str, str], streams: tuple[int, int, int]
) -> CommandProcess | subprocess.Popen[bytes]:
    if command[0] == "toolwire":
        return CommandProcess(command[1:], folder, environ, streams)
    given, out, err = streams
    return subprocess.Popen(
        command, cwd=folder, env=environ, stdin=given, stdout=out, stderr=err, start_new_session=True
    )


class TerminalProcess:
    """A command whose output, and input unless some is given, is a terminal of this width."""

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        columns: int,
        environ: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        trusts: bool = True,
    ) -> None:
        """The command is `toolwire WORDS` or another program. Its user trusts the file in the folder."""
        if trusts:
            trust_file(folder, make_environ(folder, environ))
        self._ours, theirs = pty.openpty()
        ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
        reader, writer = os.pipe()
        streams = (theirs if stdin is None else reader, theirs, theirs)
        self.process = _start_process(command, folder, make_environ(folder, environ), streams)
        for descriptor in (theirs, reader):
            os.close(descriptor)
        with open(writer, "wb") as given:
            given.write(stdin or b"")
        self._written = b""
        self._deadline = time.monotonic() + PATIENCE

    @property
    def text(self) -> str:
        """What was written until now."""
        return self._written.decode(errors="replace").replace("\r\n", "\n")

    def read_until(self, pattern: str) -> str:
        """Read until what was written matches; gives all of it."""
        while not re.search(pattern, self.text):
            assert self._read(), f"{pattern!r} is not in {self.text!r}"
        return self.text

    def read_all(self) -> Output:
        """Read until the command ends."""
        while self._read():
            pass
        return Output(self.process.wait(PATIENCE), self.text)

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def close_window(self) -> int:
        """What happens when a user closes the window of the terminal; gives the exit code."""
        os.close(self._ours)
        self._ours = -1
        self.process.send_signal(signal.SIGHUP)
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        """End it, if it still runs."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE)
        if self._ours >= 0:
            os.close(self._ours)

    def _read(self) -> bool:
        """Read what comes next; False at the end."""
        ready, _, _ = select.select([self._ours], [], [], max(0, self._deadline - time.monotonic()))
        assert ready, f"no end within {PATIENCE} s: {self.text!r}"
        try:
            data = os.read(self._ours, 65536)
        except OSError:  # Linux says EIO when the command has closed the terminal
            return False
        self._written += data
        return bool(data)


@contextmanager
def start_on_terminal(
    words: Sequence[str],
    folder: Path,
    columns: int = 80,
    environ: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    *,
    trusts: bool = True,
) -> Iterator[TerminalProcess]:
    """`toolwire WORDS` on a terminal, for a command that does not end by itself."""
    process = TerminalProcess(["toolwire", *words], folder, columns, environ, stdin, trusts)
    try:
        yield process
    finally:
        process.close()


def run_on_terminal(
    words: Sequence[str],
    folder: Path,
    columns: int = 80,
    environ: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
) -> Output:
    """Run `toolwire WORDS` on a terminal."""
    with start_on_terminal(words, folder, columns, environ, stdin) as process:
        return process.read_all()


# --- comparing --------------------------------------------------------------------------------------------------------


def zero_digits(found: re.Match[str]) -> str:
    return re.sub("[0-9]", "0", found[0])


CHANGING_TEXT: Sequence[str] = (
    r"(?<=127\.0\.0\.1:)\d{5}\b",
    r"(?<=localhost:)\d{5}\b",
    r"\b\d\d\d\d-\d\d-\d\d\b",
    r"\b\d\d:\d\d:\d\d(\.\d+)?\b",
    r'(?<="created":)\d+',
    r'(?<="created_at":)\d+',
)
"""Ports that the system chose, dates and times. Their digits become zeros."""
RANDOM_TEXT = re.compile(r"(?<=tw-)[A-Za-z0-9]{43}\b|(?<=sha256 = \")[0-9a-f]{64}")
"""New client keys and their hashes. They become zeros."""
CHANGING_DURATION = re.compile(r" *\b\d+(\.\d+)? (?=(ms|s)\b)")
INSTALLED_PROGRAMS = re.compile(r"(?ms)^(\x1b\[\d+m)?ok(\x1b\[0m)? +agents  .*?\n\n")
"""The end of what `toolwire doctor` shows: the agents, the versions of Python and of the packages, and the system."""


def normalise_output(text: str, folder: Path) -> str:
    """Replace what is different on each run or in each release. The width stays, except that of the version."""
    text = text.replace(str(folder), f"/tmp/toolwire-{'0' * 8}").replace(__version__, "VERSION")
    for pattern in CHANGING_TEXT:
        text = re.sub(pattern, zero_digits, text)
    text = RANDOM_TEXT.sub(lambda found: "0" * len(found[0]), text)
    text = INSTALLED_PROGRAMS.sub("(agents and packages)\n\n", text)
    return CHANGING_DURATION.sub(lambda found: f"{'0 ':>{len(found[0])}}", text)


def compare_with_golden(name: str, text: str) -> None:
    """Compare with `golden/NAME.txt`, or write it under UPDATE_GOLDEN=1."""
    file = GOLDEN / f"{name}.txt"
    text = text.replace("\x1b", "␛")
    if os.environ.get("UPDATE_GOLDEN"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert file.exists(), f"{file} is missing: run this test with UPDATE_GOLDEN=1"
    assert text == file.read_text(), f"after a wanted change, run this test with UPDATE_GOLDEN=1 ({file})"


def check_fits(text: str, columns: int) -> None:
    """No line is wider than the terminal."""
    wide = [line for line in text.splitlines() if text_width(line) > columns]
    assert not wide, f"wider than {columns} columns: {wide}"


def check_golden(
    name: str,
    words: Sequence[str],
    folder: Path,
    *,
    code: int = 0,
    environ: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    fits: bool = True,
    prepare: Callable[[], object] = lambda: None,
) -> None:
    """Run `toolwire WORDS` in a pipe and on terminals, and compare each output with its golden file.

    `fits=False` is for output with lines to copy, which must not be cut. `prepare` is called before each run.
    """
    prepare()
    piped = run_in_pipe(words, folder, environ, stdin or b"")
    assert piped.code == code, piped
    assert "\x1b" not in piped.out + piped.err, "colour in a pipe"
    streams = (("out", piped.out), ("err", piped.err))
    sections = "".join(f"--- standard {stream}\n{text}" for stream, text in streams if text)
    compare_with_golden(f"{name}/pipe", normalise_output(sections, folder))
    for columns in WIDTHS:
        prepare()
        plain = run_on_terminal(words, folder, columns, {**(environ or {}), "NO_COLOR": "1"}, stdin)
        assert plain.code == code, plain
        assert "\x1b" not in plain.out, "colour under NO_COLOR"
        compare_screens(f"{name}/{columns}", plain.out, folder, columns if fits else None)
        prepare()
        coloured = run_on_terminal(words, folder, columns, environ, stdin)
        assert coloured.code == code, coloured
        compare_screens(f"{name}/{columns}-colour", coloured.out, folder, columns if fits else None)
        shown = [normalise_output(remove_colours(output.out), folder) for output in (plain, coloured)]
        assert shown[0] == shown[1], "colour changes the text"


def compare_screens(name: str, text: str, folder: Path, columns: int | None) -> None:
    """Compare what a terminal shows with its golden file, and its lines with the terminal's width."""
    if columns is not None:
        check_fits(text, columns)
    compare_with_golden(name, normalise_output(text, folder))
