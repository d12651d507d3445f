"""Files and standard input, read with a clear word when they cannot be."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

from toolwire.cli import CommandError
from toolwire.core.losses import Loss

CHUNK_SIZE = 65536


def read_input(name: str | None) -> bytes:
    """A file, or standard input for `-` or nothing."""
    return b"".join(read_chunks(name))


def read_chunks(name: str | None) -> Iterator[bytes]:
    if name is None or name == "-":
        if sys.stdin.isatty():
            raise CommandError(
                "nothing to read: no file is named and standard input is a terminal", "name a file, or pipe one in"
            )
        while data := sys.stdin.buffer.read1(CHUNK_SIZE):  # type: ignore[union-attr]
            yield data
        return
    try:
        with Path(name).open("rb") as file:
            while data := file.read(CHUNK_SIZE):
                yield data
    except OSError as error:
        raise CommandError(f"cannot read {name}: {error.strerror}", "check the path") from None


# --- Output that people look at: aligned tables, colour only on a terminal that wants it ---


COLOUR_CODES = {"lost": "31", "changed": "33", "added": "36", "ok": "32", "head": "1", "dim": "2"}


def uses_colour(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint_text(text: str, colour: str, stream: TextIO) -> str:
    return f"\x1b[{COLOUR_CODES[colour]}m{text}\x1b[0m" if uses_colour(stream) else text


def terminal_width() -> int:
    return shutil.get_terminal_size((120, 40)).columns


def format_table(rows: Iterable[Sequence[str]], colours: Sequence[str] = (), stream: TextIO | None = None) -> str:
    """Rows with their columns aligned; the colour of a row, if any, goes to its first cell."""
    listed = [list(row) for row in rows]
    if not listed:
        return ""
    widths = [max(len(row[column]) for row in listed) for column in range(len(listed[0]))]
    lines = []
    for number, row in enumerate(listed):
        cells = [cell.ljust(size) for cell, size in zip(row, widths, strict=True)]
        if number < len(colours):
            cells[0] = paint_text(cells[0], colours[number], stream or sys.stdout)
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines) + "\n"


def print_losses(found: Sequence[Loss], stream: TextIO) -> None:
    """The losses of a translation, readable."""
    rows = [(loss.severity, loss.code, loss.path or "(body)", f"{loss.what}: {loss.why}") for loss in found]
    stream.write(format_table(rows, [loss.severity for loss in found], stream))
