"""Finds where JSON in text ends, also when it is not quite JSON."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

ANY_TEXT: Final = ("",)
"""The marks of `Waiting` when any more text decides."""

_DOUBLE: Final = r'"(?:[^"\\]++|\\.)*+"'
_SINGLE: Final = r"'(?:[^'\\]++|\\.)*+'"
_match_blanks = re.compile(r"\s*+").match
_match_python = re.compile(r"[\[{\s]*+'").match
"""Does a value begin like Python's `{'name': …}`?"""


def skip_blanks(text: str, at: int) -> int:
    found = _match_blanks(text, at)
    return found.end() if found else at


@lru_cache(maxsize=128)
def _tokens(marks: tuple[str, ...], is_python: bool) -> re.Pattern[str]:
    """Complete strings, a quote that opens a string without an end, brackets, or one of the marks."""
    named = "|".join(map(re.escape, marks)) or "(?!)"
    strings = f"{_DOUBLE}|{_SINGLE}" if is_python else _DOUBLE
    quotes = "[\"']" if is_python else '"'
    return re.compile(
        f"{strings}|(?P<mark>{named})|(?P<open>[{{\\[])|(?P<close>[}}\\]])|(?P<quote>{quotes})", re.DOTALL
    )


def find_value_end(text: str, start: int) -> int:
    """Where the object or array that begins here ends; -1 if it does not."""
    depth = 0
    for token in _tokens((), bool(_match_python(text, start))).finditer(text, start):
        if token["open"]:
            depth += 1
        elif token["close"]:
            depth -= 1
            if depth == 0:
                return token.end()
        elif token["quote"]:
            break
    return -1


def find_mark_outside(text: str, start: int, marks: tuple[str, ...]) -> re.Match[str] | None:
    """The first of the marks that is not in a string of the JSON that begins here."""
    for token in _tokens(marks, bool(_match_python(text, start))).finditer(text, start):
        if token["mark"]:
            return token
        if token["quote"]:
            break
    return None
