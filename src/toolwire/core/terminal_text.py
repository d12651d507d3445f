"""Text on a terminal: how many cells it takes, how it is shortened, and its colours. The command line and the log use
it; whether a stream is a terminal, and how wide it is, they find out themselves."""

from __future__ import annotations

import re
from collections.abc import Mapping
from unicodedata import category, east_asian_width

COLOUR_CODES: Mapping[str, str] = {
    "lost": "31",
    "changed": "33",
    "added": "36",
    "ok": "32",
    "head": "1",
    "dim": "2",
}
"""The meanings that have a colour, with the codes of ANSI terminals."""
_ESCAPE_SEQUENCE = re.compile(r"\x1b\[[0-9;]*m")


def add_colour(text: str, colour: str) -> str:
    """The text with a colour of `COLOUR_CODES`; "" leaves it as it is."""
    return f"\x1b[{COLOUR_CODES[colour]}m{text}\x1b[0m" if colour and text else text


def remove_colours(text: str) -> str:
    return _ESCAPE_SEQUENCE.sub("", text)


def text_width(text: str) -> int:
    """The cells that a line takes: two for a Chinese character or an emoji, none for accents and colours."""
    if text.isascii() and "\x1b" not in text:
        return len(text)
    return sum(map(_cell_count, remove_colours(text)))


def _cell_count(character: str) -> int:
    if category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


def shorten_text(text: str, width: int) -> str:
    """The text in at most `width` cells, with an ellipsis where its end is missing. It has no colours."""
    if text_width(text) <= width:
        return text
    used, end = 1, 0
    for character in text:
        used += _cell_count(character)
        if used > width:
            break
        end += 1
    return f"{text[:end]}…" if width > 0 else ""


def pad_text(text: str, width: int) -> str:
    """The text, filled up with blanks to `width` cells."""
    return text + " " * (width - text_width(text))
