"""Records what commands show on a terminal, and writes docs/pictures/*.svg: `make pictures`.

Every picture is a real run, without keys. The SVG files load nothing: rich's own template would load a font.
"""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import urllib.request
from collections.abc import Callable
from fcntl import ioctl
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
COLUMNS, ROWS, PATIENCE = 110, 50, 30.0
GATEWAY = "http://127.0.0.1:8642"
COLOURS = "16181d e06c75 98c379 e5c07b 61afef c678dd 56b6c2 abb2bf"
THEME = TerminalTheme((22, 24, 29), (214, 217, 222), [tuple(bytes.fromhex(colour)) for colour in COLOURS.split()])
SVG = """\
<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{title}">
<style>
svg {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }}
.{unique_id}-matrix {{ font-size: {char_height}px; line-height: {line_height}px; white-space: pre; }}
.{unique_id}-title {{ font-size: 18px; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


class Recording:
    """A command on a terminal, and what it has written."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self._ours, theirs = pty.openpty()
        ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        if "PYTHONPATH" in os.environ:
            environ["PYTHONPATH"] = os.environ["PYTHONPATH"]
        self.process = subprocess.Popen(
            command, cwd=folder, env=environ, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        os.close(theirs)
        self.written = b""

    def read_until(self, pattern: str) -> None:
        """Read until what was written matches; fails if that takes too long."""
        end = time.monotonic() + PATIENCE
        while not re.search(pattern, self.written.decode(errors="replace")):
            if not self._read(end - time.monotonic()):
                sys.exit(f"error: {pattern!r} did not come: {self.written.decode(errors='replace')}")

    def read_all(self) -> None:
        end = time.monotonic() + PATIENCE
        while self._read(end - time.monotonic()):
            pass

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE)
        os.close(self._ours)

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._ours], [], [], max(seconds, 0))
        try:
            data = os.read(self._ours, 65536) if ready else b""
        except OSError:  # Linux says EIO when the command has closed the terminal
            data = b""
        self.written += data
        return bool(data)


def ask(path: str, agent: str, body: dict[str, object]) -> None:
    """One request to the gateway, as an SDK makes it."""
    headers = {"content-type": "application/json", "user-agent": agent}
    request = urllib.request.Request(f"{GATEWAY}{path}", json.dumps(body).encode(), headers)
    urllib.request.urlopen(request, timeout=PATIENCE).read()


SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
ASKED = {
    "model": "loopback",
    "messages": [{"role": "user", "content": "What is the weather in Paris and in London?"}],
}
FUNCTION = {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}
CHAT = {**ASKED, "tools": [FUNCTION]}
MESSAGES = {**ASKED, "max_tokens": 99, "tools": [{"name": "get_weather", "input_schema": SCHEMA}]}


def record_serve(toolwire: str, folder: Path) -> str:
    """The gateway: its banner, and the log of two requests in two protocols."""
    recording = Recording([toolwire, "serve"], folder)
    try:
        recording.read_until("8642")
        wait_for_gateway()
        ask("/v1/chat/completions", "OpenAI/Python 3.49.0", CHAT)
        ask("/v1/messages", "claude-cli/2.1", MESSAGES)
        recording.read_until(r"(?s)(get_weather.*){2}")
    finally:
        recording.stop()
    return recording.written.decode()


def wait_for_gateway() -> None:
    end = time.monotonic() + PATIENCE
    while True:
        try:
            urllib.request.urlopen(f"{GATEWAY}/readyz", timeout=1).read()
        except OSError:
            if time.monotonic() > end:
                sys.exit(f"error: no gateway at {GATEWAY}")
            time.sleep(0.05)
        else:
            return


def record_command(*words: str) -> Callable[[str, Path], str]:
    def record(toolwire: str, folder: Path) -> str:
        recording = Recording([toolwire, *words], folder)
        recording.read_all()
        recording.stop()
        return recording.written.decode()

    return record


PICTURES: dict[str, tuple[str, Callable[[str, Path], str]]] = {
    "serve": ("toolwire serve", record_serve),
}
"""The title of each picture, and how it is recorded."""


def draw(text: str, title: str) -> str:
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    plain = re.sub(r"\x1b\][^\x07]*\x07|\x1b\[[0-9;]*[A-HJKfhl]", "", text.replace("\r\n", "\n")).strip("\n")
    console.print(Text.from_ansi(f"\x1b[32m$\x1b[0m \x1b[1m{title}\x1b[0m\n{plain}"))
    svg = console.export_svg(title=title, theme=THEME, code_format=SVG.replace("{title}", title), unique_id="toolwire")
    return "".join(f"{line.rstrip()}\n" for line in svg.splitlines())


def main(toolwire: str) -> int:
    FOLDER.mkdir(exist_ok=True)
    for name, (title, record) in PICTURES.items():
        with tempfile.TemporaryDirectory() as folder:
            text = record(toolwire, Path(folder)).replace(folder, "~")
        (FOLDER / f"{name}.svg").write_text(draw(text, title), "utf-8")
        sys.stdout.write(f"docs/pictures/{name}.svg\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(str(Path(sys.argv[1]).resolve())))
