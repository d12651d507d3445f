"""Input files and terminal output: tables, JSON, and colour if the terminal wants it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

import msgspec

from toolwire.cli import CommandError
from toolwire.core.json_values import encode
from toolwire.core.terminal_text import add_colour, pad_text, text_width

CHUNK_SIZE = 65536


def read_input(name: str | None) -> bytes:
    """A file, or standard input for `-` or None."""
    return b"".join(read_chunks(name))


def read_chunks(name: str | None) -> Iterator[bytes]:
    if name is None or name == "-":
        if sys.stdin.isatty():
            raise CommandError("no input: standard input is a terminal", "name a file, or pipe one in")
        while data := sys.stdin.buffer.read1(CHUNK_SIZE):  # type: ignore[union-attr]
            yield data
        return
    try:
        with Path(name).open("rb") as file:
            while data := file.read(CHUNK_SIZE):
                yield data
    except OSError as error:
        raise CommandError(f"cannot read {name}: {error.strerror}", "check the path") from None


def paint_text(text: str, colour: str, stream: TextIO | None = None) -> str:
    """For standard output, unless another stream is given."""
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not (stream or sys.stdout).isatty()
    return text if is_plain else add_colour(text, colour)


def heading(text: str) -> str:
    """A heading on standard output."""
    return paint_text(f"{text}\n", "head")


def terminal_width() -> int:
    return shutil.get_terminal_size((120, 40)).columns


def format_table(rows: Iterable[Sequence[str]], colours: Sequence[str] = (), stream: TextIO | None = None) -> str:
    """Rows with aligned columns; `colours` are for the first cell of each row."""
    table = [list(row) for row in rows]
    if not table:
        return ""
    widths = [max(text_width(row[column]) for row in table) for column in range(len(table[0]))]
    lines = []
    for number, row in enumerate(table):
        cells = [pad_text(cell, width) for cell, width in zip(row, widths, strict=True)]
        if number < len(colours):
            cells[0] = paint_text(cells[0], colours[number], stream)
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines) + "\n"


def format_json(value: Any) -> str:
    return msgspec.json.format(encode(value), indent=2).decode() + "\n"
