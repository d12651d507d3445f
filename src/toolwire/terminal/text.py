"""Text on a terminal: how many cells it takes, how it is shortened, and its colours. The command line and the log use
it; whether a stream is a terminal, and how wide it is, they find out themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from unicodedata import category, east_asian_width

COLOUR_CODES: Mapping[str, str] = {
    "lost": "31",
    "changed": "33",
    "added": "36",
    "repaired": "32",
    "ok": "32",
    "head": "1",
    "dim": "2",
    "json-key": "94",
    "json-string": "32",
    "json-number": "36",
    "json-word": "35",
}
"""The meanings that have a colour, with the codes of ANSI terminals."""
ZERO_WIDTH_JOINER, EMOJI_SELECTOR = "\u200d", "\ufe0f"
WORD_JOINT = re.compile(r"[_/.,:-](?=\w)")
"""Where a long word is best broken."""
_ESCAPE_SEQUENCE = re.compile(r"\x1b\[[0-9;]*m")


def add_colour(text: str, colour: str) -> str:
    """The text with a colour of `COLOUR_CODES`; "" leaves it as it is."""
    return f"\x1b[{COLOUR_CODES[colour]}m{text}\x1b[0m" if colour and text else text


def remove_colours(text: str) -> str:
    return _ESCAPE_SEQUENCE.sub("", text)


def escape_controls(text: str) -> str:
    """What a terminal would not print, as escapes: text of a file or a peer must not move the cursor, or turn the
    direction of writing."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def text_width(text: str) -> int:
    """The cells that a line takes: two for a Chinese character or an emoji, none for accents and colours."""
    if text.isascii() and "\x1b" not in text:
        return len(text)
    return sum(width for _, width in _find_clusters(remove_colours(text)))


def _find_clusters(text: str) -> Iterator[tuple[str, int]]:
    """What a reader sees as one character, with its cells: a base with its accents, or an emoji made of several."""
    cluster, cells = "", 0
    for character in text:
        is_joined = cluster.endswith(ZERO_WIDTH_JOINER) or "\U0001f3fb" <= character <= "\U0001f3ff"  # skin tones
        if cluster and (is_joined or category(character) in ("Mn", "Me", "Cf")):
            cluster += character
            cells = 2 if character == EMOJI_SELECTOR and cells else cells
            continue
        if cluster:
            yield cluster, cells
        cluster, cells = character, _cell_count(character)
    if cluster:
        yield cluster, cells


def _cell_count(character: str) -> int:
    if category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


def _fitting_length(text: str, width: int) -> int:
    """How many characters of the text fit."""
    used = end = 0
    for cluster, cells in _find_clusters(text):
        used += cells
        if used > width:
            break
        end += len(cluster)
    return end


def shorten_text(text: str, width: int) -> str:
    """The text in at most `width` cells, with an ellipsis where its end is missing. It has no colours."""
    if text_width(text) <= width:
        return text
    return f"{text[: _fitting_length(text, width - 1)]}…" if width > 0 else ""


def chop_text(text: str, width: int) -> list[str]:
    """The text in pieces of at most `width` cells, broken anywhere."""
    pieces = []
    while text:
        end = _fitting_length(text, width) or len(next(_find_clusters(text))[0])
        pieces.append(text[:end])
        text = text[end:]
    return pieces


def pad_text(text: str, width: int) -> str:
    """The text, filled up with blanks to `width` cells."""
    return text + " " * (width - text_width(text))


def wrap_text(text: str, width: int) -> list[str]:
    """The text in lines of at most `width` cells, broken at blanks where possible; all have the indent of the first."""
    if text_width(text) <= width:
        return [text]
    indent = min(len(text) - len(text.lstrip()), max(width - 2, 0))
    lines, line = [], ""
    for word in text.split():
        if line and text_width(line) + 1 + text_width(word) > width - indent:
            lines.append(line)
            line = ""
        line = f"{line} {word}" if line else word
        while text_width(line) > width - indent:
            end = _fitting_length(line, width - indent) or len(next(_find_clusters(line))[0])
            joint = [found.end() for found in WORD_JOINT.finditer(line, 0, end)]
            end = joint[-1] if joint else end
            lines.append(line[:end])
            line = line[end:]
    return [" " * indent + line for line in (*lines, line) if line]
