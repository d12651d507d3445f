"""Output that people look at: aligned tables, colour only on a terminal that wants it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import TextIO

from toolwire.loss import Loss

COLOURS = {"lost": "31", "changed": "33", "added": "36", "ok": "32", "head": "1", "dim": "2"}


def coloured(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, colour: str, stream: TextIO) -> str:
    return f"\x1b[{COLOURS[colour]}m{text}\x1b[0m" if coloured(stream) else text


def width() -> int:
    return shutil.get_terminal_size((120, 40)).columns


def table(rows: Iterable[Sequence[str]], colours: Sequence[str] = (), stream: TextIO | None = None) -> str:
    """Rows with their columns aligned; the colour of a row, if any, goes to its first cell."""
    listed = [list(row) for row in rows]
    if not listed:
        return ""
    widths = [max(len(row[column]) for row in listed) for column in range(len(listed[0]))]
    lines = []
    for number, row in enumerate(listed):
        cells = [cell.ljust(size) for cell, size in zip(row, widths, strict=True)]
        if number < len(colours):
            cells[0] = paint(cells[0], colours[number], stream or sys.stdout)
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines) + "\n"


def losses(found: Sequence[Loss], stream: TextIO) -> None:
    """The losses of a translation, readable."""
    rows = [(loss.severity, loss.code, loss.path or "(body)", f"{loss.what}: {loss.why}") for loss in found]
    stream.write(table(rows, [loss.severity for loss in found], stream))
