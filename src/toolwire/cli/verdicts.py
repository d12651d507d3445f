"""Verdicts on plays as people see them: how far a run is, and at its end the grid and what failed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TextIO

from toolwire.cli import screen
from toolwire.conformance.report import counted, of_part, pairs, square
from toolwire.conformance.saved import Result
from toolwire.conformance.suite import PARTS, Play, Verdict

COLOURS: dict[Verdict, str] = {"pass": "ok", "wrong": "lost", "unsupported": "changed", "not played": "dim"}
NARROWEST = 60
STEP = 100
"""Plays between two lines where no line can move."""


class Progress:
    """One line that moves on a terminal, else a line now and then."""

    def __init__(self, stream: TextIO, total: int) -> None:
        self._stream, self._total = stream, total
        self._moves = stream.isatty()
        self._plays: list[Play] = []

    def tell(self, play: Play) -> None:
        self._plays.append(play)
        done = len(self._plays)
        if self._moves:
            line = f"{self._said()}  {play.id}"
            self._stream.write(f"\r\x1b[K{line[: screen.width() - 1]}")
        elif done % STEP == 0:
            self._stream.write(f"{self._said()}\n")
        self._stream.flush()

    def end(self) -> None:
        self._stream.write(f"\r\x1b[K{self._said()}\n" if self._moves else f"{self._said()}\n")

    def _said(self) -> str:
        found = counted(self._plays)
        parts = [f"{count} {verdict}" for verdict, count in found.items() if count]
        return f"[{len(self._plays)}/{self._total}] {', '.join(parts)}"


def shown(result: Result, *, everything: bool) -> str:
    """The whole report."""
    head = screen.paint(f"{result.gateway.title} {result.gateway.version}".rstrip(), "head", sys.stdout)
    out = [f"{head}\n"]
    for part in PARTS:
        if plays := of_part(result.plays, part):
            out += ["\n", _heading(part, plays), *([_square(plays)] if part == "grid" else [])]
            rows = _rows([play for play in plays if everything or play.verdict != "pass"])
            out.append(f"\n{rows}" if rows else "")
    return "".join(out)


def _heading(part: str, plays: Sequence[Play]) -> str:
    title = {"grid": "Grid", "cases": "Reported cases"}[part]
    numbers = [
        screen.paint(f"{count} {verdict}", COLOURS[verdict], sys.stdout) for verdict, count in counted(plays).items()
    ]
    return f"{screen.paint(title, 'head', sys.stdout)}: {', '.join(numbers)}\n"


def _square(plays: Sequence[Play]) -> str:
    """Clients in rows, providers in columns; green where all passed."""
    head, *rows = square(plays)
    found = pairs(plays)
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    lines = ["  ".join(cell.ljust(size) for cell, size in zip(head, widths, strict=True)).rstrip()]
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        for provider, cell, size in zip(head[1:], row[1:], widths[1:], strict=True):
            cells.append(screen.paint(cell.ljust(size), _colour(found[row[0], provider]), sys.stdout))
        lines.append("  ".join(cells).rstrip())
    return "\n" + "".join(f"  {line}\n" for line in lines)


def _colour(plays: Sequence[Play]) -> str:
    found = counted(plays)
    if found["wrong"]:
        return "lost"
    return "changed" if found["unsupported"] else "ok" if found["pass"] else "dim"


def _rows(plays: Sequence[Play]) -> str:
    """Verdict, play, pair, and as much of the first difference as fits."""
    rows = [
        (play.verdict, play.id, f"{play.client} → {play.provider}" if play.client else "", _mode(play))
        for play in plays
    ]
    taken = [max((len(row[column]) for row in rows), default=0) for column in range(4)]
    room = max(NARROWEST, screen.width() - sum(taken) - 2 * len(taken))
    lines = [(*row, _cut(play.first, room)) for row, play in zip(rows, plays, strict=True)]
    return screen.table(lines, [COLOURS[play.verdict] for play in plays])


def _mode(play: Play) -> str:
    return "stream" if play.stream else "whole" if play.client else ""


def _cut(text: str, size: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= size else line[: size - 1] + "…"
