"""Finds the offered tool that a model means by a name that is not quite right.

Known prefixes and suffixes are cut off, and case and separators are ignored. One offered tool must match, and only one.
There is no likeness by edit distance, synonyms or parts of words: that calls the wrong tool.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

_PREFIXES: Final = re.compile(
    r"(?:functions?|tools?|default_api|repo_browser|google:tool|mcp|namespace)[.:/]+|mcp_(?=mcp_)|functions?_",
    re.IGNORECASE,
)
_SUFFIXES: Final = re.compile(
    r"<\|.*|(?::index)?[:.]\d+$|_tool$|(?:\(\))$|(?<=[a-z])(?=[0-9a-f]*\d)[0-9a-f]{6,}$", re.DOTALL
)
_SEPARATORS: Final = re.compile(r"[-_.\s]+")
_NAMESPACE_MARKS: Final = re.compile(r"__|[.:/]")


def find_meant_name(name: str, offered: Collection[str]) -> str | None:
    """The offered name that a name means: itself, or the only one that a safe repair leads to."""
    if name in offered:
        return name
    for meant in _possible_names(name.strip()):
        if meant in offered:
            return meant
        folded = _fold(meant)
        matches = [one for one in offered if _fold(one) == folded] if folded else []
        if matches:
            return matches[0] if len(matches) == 1 else None
    return None


def _possible_names(name: str) -> list[str]:
    """The name, and what is left of it without prefixes and suffixes."""
    short = name
    while True:
        cut = _SUFFIXES.sub("", short)
        found = _PREFIXES.match(cut)
        cut = cut[found.end() :] if found else cut
        if cut == short or not cut:
            break
        short = cut
    first, mark, rest = short.partition(".")
    doubled = [first] if mark and first == rest else []
    return [name, short, *doubled]


def _fold(name: str) -> str:
    return _SEPARATORS.sub("", name).lower()
