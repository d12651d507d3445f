"""All openings and marks that `text_reader` looks for, made ready for searching."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NoReturn

from msgspec import Struct

from toolwire.tool_formats.frame import Situation, ToolFormat
from toolwire.tool_formats.reasoning_marks import (
    ANSWER_MARKS,
    ANSWER_TOKENS,
    END_TOKENS,
    REASONING_MARKS,
    STRAY_CLOSINGS,
)

_MIN_MARK: Final = 4
"""Shorter openings (`[`, `{`) are no marks: they do not end reasoning."""


def _read_nothing(text: str, start: int, situation: Situation) -> NoReturn:
    raise NotImplementedError


FENCE: Final = ToolFormat("fence", ("```", "~~~"), _read_nothing, "start")
"""A fence around nothing but calls. `text_reader` reads it, because any format can be in it."""


class Opening(Struct, frozen=True):
    """An opening of a format."""

    text: str
    format: ToolFormat

    @property
    def is_mark(self) -> bool:
        return self.format.place == "anywhere" and len(self.text) >= _MIN_MARK


_MARKS: Final = (
    *(mark.opening for mark in REASONING_MARKS),
    *STRAY_CLOSINGS, *ANSWER_MARKS, *ANSWER_MARKS.values(), *ANSWER_TOKENS, *END_TOKENS,
)  # fmt: skip
_CLOSINGS: Final = (*STRAY_CLOSINGS, *(closing for mark in REASONING_MARKS for closing in mark.closings))


class Vocabulary:
    """The openings of some formats, and the marks around reasoning and answers."""

    def __init__(self, formats: tuple[ToolFormat, ...]) -> None:
        self._openings: dict[str, list[Opening]] = {}
        for row in formats:
            for text in row.openings:
                self._openings.setdefault(text[:1], []).append(Opening(text, row))
        anywhere = [text for row in formats if row.place == "anywhere" for text in row.openings]
        on_line = [text for row in formats if row.place == "line" for text in row.openings]
        every = [*_MARKS, *(text for row in formats for text in row.openings)]
        self._prefixes = _prefixes(every)
        self.max_length = max(map(len, every))
        firsts, line_firsts = _character_class([*_MARKS, *anywhere]), _character_class(on_line)
        self.find_place = re.compile(rf"{firsts}|(?<=\n)[ \t]*{line_firsts}").search
        """The next place where an opening or mark may begin, as the last character of the match."""
        self.match_line_place = re.compile(rf"[ \t]*{line_firsts}").match
        """The same, at the beginning of a line."""
        strong = [one.text for some in self._openings.values() for one in some if one.is_mark]
        self.find_place_in_reasoning = re.compile(_character_class([*_CLOSINGS, *strong])).search

    def is_prefix(self, text: str, at: int) -> bool:
        """Does the text end here in the middle of an opening or mark?"""
        return len(text) - at < self.max_length and text[at:] in self._prefixes

    def openings_at(self, text: str, at: int) -> list[Opening]:
        """The openings that begin here, one for each format, in the order of the formats."""
        found = [one for one in self._openings.get(text[at], ()) if text.startswith(one.text, at)]
        return [*{id(one.format): one for one in [*found, *self._openings.get("", ())]}.values()]


@lru_cache(maxsize=64)
def make_vocabulary(formats: tuple[ToolFormat, ...], has_fences: bool) -> Vocabulary:
    return Vocabulary((*formats, FENCE) if has_fences and formats else formats)


def _prefixes(texts: Iterable[str]) -> frozenset[str]:
    return frozenset(text[:length] for text in texts for length in range(1, len(text)))


def _character_class(texts: Iterable[str]) -> str:
    firsts = "".join(sorted({text[0] for text in texts if text}))
    return f"[{re.escape(firsts)}]" if firsts else r"(?!)"
