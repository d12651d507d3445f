"""What commands read and print: input files, tables, JSON and errors, with colour if the terminal wants it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

import msgspec

from toolwire.core.json_values import encode
from toolwire.terminal.text import WORD_JOINT, add_colour, escape_controls, pad_text, text_width, wrap_text

EXIT_FAILED, EXIT_BAD_INPUT, EXIT_INTERRUPTED = 1, 2, 130
CHUNK_SIZE = 65536
WIDTH_IN_PIPE = 120
WIDTH_UNKNOWN = 80
"""For a terminal that does not know its size."""
GAP = "  "
MIN_CELL_WIDTH = 8
"""A table whose columns would be narrower is shown as a list."""
MAX_UNBROKEN_WIDTH = 32
"""A word up to this width is not broken if another column can be narrower instead."""
JSON_TOKEN = re.compile(
    r'(?P<key>"(?:[^"\\]|\\.)*"(?=:))|(?P<string>"(?:[^"\\]|\\.)*")|(?P<number>-?\d[\d.eE+-]*)|(?P<word>[a-z]+)'
)


class CommandError(Exception):
    """Bad input or bad usage, with a hint and an exit code. The problem is empty if it was printed already."""

    def __init__(self, problem: str, hint: str = "", code: int = EXIT_BAD_INPUT) -> None:
        self.hint, self.code = hint, code
        super().__init__(problem)


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


def wants_colour(stream: TextIO) -> bool:
    """`--color` is passed on in the variables NO_COLOR and FORCE_COLOR, which the log and other programs know too."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return os.environ.get("TERM") != "dumb" and stream.isatty()


def paint_text(text: str, colour: str, stream: TextIO | None = None) -> str:
    """For standard output, unless another stream is given."""
    return add_colour(text, colour) if wants_colour(stream or sys.stdout) else text


def escape_lines(text: str) -> str:
    """A text of several lines as `escape_controls` shows it."""
    return "\n".join(map(escape_controls, text.split("\n")))


def heading(text: str) -> str:
    return f"{paint_text(text, 'head')}\n"


def terminal_width(stream: TextIO | None = None) -> int:
    """The columns of the terminal behind standard output or another stream; $COLUMNS overrides it."""
    stream = stream or sys.stdout
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given) > 0:
        return int(given)
    try:
        return (os.get_terminal_size(stream.fileno()).columns or WIDTH_UNKNOWN) if stream.isatty() else WIDTH_IN_PIPE
    except (OSError, ValueError):  # ValueError: it is closed
        return WIDTH_UNKNOWN


def wrap_prose(text: str) -> str:
    """A sentence in lines that fit the terminal; in a pipe it is one line."""
    return "\n".join(wrap_text(text, terminal_width()) if sys.stdout.isatty() else [text]) + "\n"


def print_note(line: str) -> None:
    """What the user should know beside the output, on standard error."""
    sys.stderr.write(f"{paint_text('toolwire:', 'dim', sys.stderr)} {escape_lines(line)}\n")
    sys.stderr.flush()


def print_problem(severity: str, text: str, hint: str) -> None:
    """An error or a warning, and what to do, on standard error. They may quote a file or a peer."""
    colour = "lost" if severity == "error" else "changed"
    for label, painted, shown in ((severity, colour, text), ("hint", "added", hint)):
        if shown:
            sys.stderr.write(f"{paint_text(f'{label}:', painted, sys.stderr)} {escape_lines(shown)}\n")


def command_line(command: str) -> str:
    """A command to copy, which begins with `toolwire`, as it works in any folder: after `make serve` that program is
    not on PATH, or another one is."""
    return f"{_own_name()} {command.removeprefix('toolwire ')}"


def _own_name() -> str:
    started = Path(sys.argv[0])
    if started.name == "__main__.py":
        return shlex.join([sys.executable, "-P", "-m", "toolwire.cli"])  # -P: without the folder's own modules
    found = shutil.which("toolwire")
    is_found = started.name == sys.argv[0] or (found is not None and started.exists() and started.samefile(found))
    return "toolwire" if is_found else shlex.quote(str(started.absolute()))


# --- tables -----------------------------------------------------------------------------------------------------------


def format_table(
    rows: Iterable[Sequence[str]],
    colours: Sequence[str] = (),
    stream: TextIO | None = None,
    *,
    has_header: bool = False,
) -> str:
    """Rows with aligned columns; `colours` are for the first cell of each row.

    On a terminal the cells are wrapped so that the table fits; if it is too narrow for columns, the cells are below
    each other, each with its name from the header. In a pipe each row is one line.
    """
    table = [[_show_controls(cell) for cell in row] for row in rows]
    if not table:
        return ""
    stream = stream or sys.stdout
    available = terminal_width(stream) if stream.isatty() else None
    widths = _fit_columns(table, available)
    lines: list[str] = []
    names = table[0] if has_header else [""] * len(table[0])
    for number, row in enumerate(table):
        colour = colours[number] if number < len(colours) else ""
        if widths is not None:
            lines += _row_lines(row, widths, colour, stream)
        elif row is not names:
            labels = [f"{name}: " if name and place else "" for place, name in enumerate(names)]
            cells = [label + cell for label, cell in zip(labels, row, strict=True)]
            lines += _list_lines(cells, max(available or 0, MIN_CELL_WIDTH), colour, stream)
    return "\n".join(lines) + "\n"


def align_right(rows: Sequence[Sequence[str]], first: int) -> list[list[str]]:
    """Rows in which the columns from `first` on have their ends below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [[*row[:first], *map(str.rjust, row[first:], widths[first:])] for row in rows]


def _show_controls(text: str) -> str:
    """Text of a file or a peer must not move the cursor or set colours."""
    if text.isprintable():
        return text
    return "".join(" " if one in "\t\n" else "�" if one < " " or "\x7f" <= one < "\xa0" else one for one in text)


def _fit_columns(table: Sequence[Sequence[str]], available: int | None) -> list[int] | None:
    """The width of each column, or None if the columns cannot be that narrow. The widest columns give way first, and
    words are broken only if that is not enough."""
    columns = [*zip(*table, strict=True)]
    wanted = [max(map(text_width, column)) for column in columns]
    if available is None or sum(wanted) + len(GAP) * (len(wanted) - 1) <= available:
        return wanted
    space = available - len(GAP) * (len(wanted) - 1)
    words = [min(max(map(_widest_word, column)), MAX_UNBROKEN_WIDTH) for column in columns]
    parts = [min(max(map(_widest_part, column)), width) for column, width in zip(columns, words, strict=True)]
    for floors in (words, parts, [min(MIN_CELL_WIDTH, width) for width in wanted]):
        if sum(floors) <= space:
            return _share_width(wanted, floors, space)
    return None


def _share_width(wanted: Sequence[int], floors: Sequence[int], space: int) -> list[int]:
    """Narrow the widest columns to one common width, but none below its floor."""
    common = max(wanted)
    while sum(max(floor, min(width, common)) for width, floor in zip(wanted, floors, strict=True)) > space:
        common -= 1
    return [max(floor, min(width, common)) for width, floor in zip(wanted, floors, strict=True)]


def _widest_word(cell: str) -> int:
    indent = len(cell) - len(cell.lstrip())
    return indent + max(map(text_width, cell.split()), default=0)


def _widest_part(cell: str) -> int:
    return _widest_word(WORD_JOINT.sub("_ ", cell))


def _row_lines(row: Sequence[str], widths: Sequence[int], colour: str, stream: TextIO) -> Iterator[str]:
    cells = [wrap_text(cell, width) for cell, width in zip(row, widths, strict=True)]
    for number in range(max(map(len, cells))):
        parts = [
            pad_text(lines[number] if number < len(lines) else "", width)
            for lines, width in zip(cells, widths, strict=True)
        ]
        line = GAP.join(parts).rstrip()
        first = parts[0].rstrip()
        yield paint_text(first, colour, stream) + line[len(first) :] if first else line


def _list_lines(row: Sequence[str], width: int, colour: str, stream: TextIO) -> Iterator[str]:
    """The cells of a row below each other, for a terminal that is too narrow for columns."""
    yield from (paint_text(line, colour, stream) for line in wrap_text(row[0], width))
    indent = GAP + " " * (len(row[0]) - len(row[0].lstrip()))
    for cell in row[1:]:
        if cell.strip():
            yield from wrap_text(indent + cell.strip(), width)


# --- JSON -------------------------------------------------------------------------------------------------------------


def format_json(value: Any) -> str:
    """A document for standard output: indented, and coloured on a terminal."""
    text = msgspec.json.format(encode(value), indent=2).decode() + "\n"
    return JSON_TOKEN.sub(_paint_token, text) if wants_colour(sys.stdout) else text


def _paint_token(token: re.Match[str]) -> str:
    return add_colour(token[0], f"json-{token.lastgroup}")


def print_body(body: bytes) -> None:
    """Print a JSON body: exactly these bytes and a newline in a pipe, indented and coloured on a terminal."""
    if sys.stdout.isatty():
        sys.stdout.write(format_json(msgspec.Raw(body)))
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(body + b"\n")
