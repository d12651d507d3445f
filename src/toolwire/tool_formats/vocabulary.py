"""All openings and marks that `text_reader` looks for, made ready for searching."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final, NoReturn

from msgspec import Struct

from toolwire.tool_formats.frame import Situation, ToolFormat
from toolwire.tool_formats.quoted_text import QUOTING
from toolwire.tool_formats.reasoning_marks import (
    ANSWER_MARKS,
    ANSWER_TOKENS,
    CALL_ENDS,
    END_TOKENS,
    REASONING_MARKS,
    STRAY_CLOSINGS,
)

_MIN_MARK: Final = 4
"""Shorter openings (`[`, `{`) are no marks: they do not end reasoning."""


def read_nothing(text: str, start: int, situation: Situation) -> NoReturn:
    raise NotImplementedError


FENCE: Final = ToolFormat("fence", ("```", "~~~"), read_nothing, "start")
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
    *STRAY_CLOSINGS, *ANSWER_MARKS, *ANSWER_MARKS.values(), *ANSWER_TOKENS, *END_TOKENS, *CALL_ENDS,
)  # fmt: skip
_CLOSINGS: Final = (*STRAY_CLOSINGS, *(closing for mark in REASONING_MARKS for closing in mark.closings))


class Vocabulary:
    """The openings of some formats, and the marks around reasoning and answers."""

    def __init__(self, formats: tuple[ToolFormat, ...], marks: tuple[str, ...] = _MARKS) -> None:
        openings = [Opening(text, row) for row in formats for text in row.openings]
        self.everywhere = [one for one in openings if not one.text]
        """The openings of formats in which any text may be a frame."""
        texts = {one.text for one in openings if one.text}
        self._match_longest = re.compile(_longest(texts)).match
        self._openings = {
            text: [*{id(one.format): one for one in openings if one.text and text.startswith(one.text)}.values()]
            for text in texts
        }
        """Those that begin where this text stands, if no longer one does."""
        self._patterns = [
            (re.compile(row.opening_pattern).match, Opening("", row)) for row in formats if row.opening_pattern
        ]
        unfinished = [row.unfinished_opening for row in formats if row.unfinished_opening]
        self._match_unfinished = re.compile("|".join(unfinished) or "(?!)").match
        every = [*marks, *_CLOSINGS, *(text for row in formats for text in row.openings)]
        self._prefixes = _prefixes(every)
        self.max_length = max(map(len, every))
        anywhere, on_line = _places(formats, "anywhere", marks), _places(formats, "line")
        self.find_place = re.compile(rf"{anywhere}|(?<=\n)[ \t]*{on_line}").search
        """The next place where an opening or mark begins, or may begin at the end of the text. It is the last character
        of the match."""
        # Marks that begin with a letter are only at the beginning of an answer, where every character is looked at.
        first = {text[0] for row in formats if row.place == "anywhere" for text in row.openings} | {
            one[0] for one in marks if not one[0].isalpha()
        }
        first.update(row.opening_pattern.lstrip("\\")[0] for row in formats if row.opening_pattern)
        self.match_mark = re.compile(_any(marks)).match
        self.find_special = re.compile(f"[{re.escape(''.join(sorted(first)) + QUOTING)}]").search
        """The next character that may begin something within a line, or that ends the line."""
        self.match_line_place = re.compile(rf"[ \t]*{on_line}").match
        """The same, at the beginning of a line."""
        strong = [one.text for one in openings if one.is_mark]
        self.find_place_in_reasoning = re.compile(_first_characters([*_CLOSINGS, *strong])).search

    def is_prefix(self, text: str, at: int) -> bool:
        """Does the text end here in the middle of an opening or mark?"""
        is_listed = len(text) - at < self.max_length and text[at:] in self._prefixes
        return is_listed or self._match_unfinished(text, at) is not None

    def openings_at(self, text: str, at: int) -> list[Opening]:
        """The openings that begin here, one for each format, in the order of the formats."""
        longest = self._match_longest(text, at)
        listed = self._openings[longest[0]] if longest else []
        return listed + [opening for match, opening in self._patterns if match(text, at)]


@lru_cache(maxsize=64)
def make_vocabulary(formats: tuple[ToolFormat, ...], has_fences: bool) -> Vocabulary:
    return Vocabulary((*formats, FENCE) if has_fences and formats else formats)


def _any(texts: Iterable[str]) -> str:
    return f"(?:{'|'.join(map(re.escape, texts)) or '(?!)'})"


def _prefixes(texts: Iterable[str]) -> frozenset[str]:
    return frozenset(text[:length] for text in texts for length in range(1, len(text)))


def _places(formats: tuple[ToolFormat, ...], place: str, marks: tuple[str, ...] = ()) -> str:
    rows = [row for row in formats if row.place == place]
    listed = _first_characters([*marks, *(text for row in rows for text in row.openings)])
    patterns = [one for row in rows for one in (row.opening_pattern, row.unfinished_opening) if one]
    return f"(?:{'|'.join([listed, *patterns])})"


def _first_characters(texts: Iterable[str]) -> str:
    """A pattern for the first character of these texts, if the rest follows, or the text ends in the middle of it."""
    found = [f"{re.escape(first)}(?={_rest(node)})" for first, node in _tree(texts).items() if first]
    return f"(?:{'|'.join(found)})" if found else "(?!)"


def _longest(texts: Iterable[str]) -> str:
    """A pattern for the longest of these texts."""
    return _branches(_tree(texts)) or "(?!)"


def _branches(node: dict[str, Any]) -> str:
    found = [re.escape(character) + _branches(inner) for character, inner in node.items() if character]
    return f"(?:{'|'.join(found)}){'?' if '' in node else ''}" if found else ""


def _tree(texts: Iterable[str]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for text in sorted({*texts}):  # the same pattern for every order of the formats is compiled once
        node = tree
        for character in text:
            node = node.setdefault(character, {})
        node[""] = {}
    return tree


def _rest(node: dict[str, Any]) -> str:
    if "" in node:
        return ""
    return "(?:" + "|".join(re.escape(character) + _rest(inner) for character, inner in node.items()) + r"|\Z)"


NO_MARKS: Final = Vocabulary((), ())
"""For an answer in which nothing is looked for any more but the end of reasoning."""
