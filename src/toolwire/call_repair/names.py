"""Finds the offered tool that a model means by a name that is not quite right.

Known prefixes and suffixes are cut off, and case and separators are ignored. Exactly one offered tool must match. There
is no likeness by edit distance, synonyms or parts of words: that calls the wrong tool.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

_match_prefix = re.compile(
    r"(?:functions?|tools?|default_api|repo_browser|namespace|google|mcp|multi_tool_use)(?:\.|::?|/)"
    r"|functions?_|mcp_(?=mcp_)",
    re.IGNORECASE,
).match
"""What models put before names: `functions.` (gpt-oss, Kimi), `default_api:` (Gemini), `repo_browser.` (gpt-oss),
`google:tool:` (Gemini), `mcp_mcp_`."""
_find_suffix = re.compile(
    r"<.*"  # `<|channel|>commentary`: tokens of gpt-oss; `<arg_key>command`: tags of GLM
    r"|(?::index)?[:.][0-9]{1,4}\Z"  # the index of a call, as Kimi writes it
    r"|[_-]tool\Z|(?-i:(?<=[a-z])Tool)\Z"
    r"|\(\s*\)\Z",
    re.DOTALL | re.IGNORECASE,
).search
_is_repeated = re.compile(r"(.{3,}?)\1+").fullmatch
"""`web_searchweb_search`: a server that sends the name in every delta, and a client that joins them."""
_find_hexadecimal = re.compile(r"(?=[a-f]*+[0-9])[0-9a-f]{6,}+\Z", re.IGNORECASE).search
"""An id that some models put behind a name: `read5f3789`."""
_MIN_HEXADECIMAL: Final = 6
_drop_separators = re.compile(r"[-_.\s]+").sub
_find_last_part = re.compile(r"(?:__|[.:/])((?:(?!__)[^.:/])+)\Z").search
_MAX_NAME: Final = 300
"""Characters of a name that is worth a repair."""


def fold_name(name: str) -> str:
    """A name without case and separators."""
    return _drop_separators("", name).lower()


class NameIndex:
    """The names of the offered tools, ready to be looked up by what models make of them. A tool may have several."""

    def __init__(self, tools_by_name: Mapping[str, str]) -> None:
        self._exact = tools_by_name
        self._folded: dict[str, set[str]] = {}
        self._last_parts: dict[str, set[str]] = {}
        """Namespaced tools (`mcp__server__read`) by their last part."""
        for name, tool in tools_by_name.items():
            if fold_name(name):
                self._folded.setdefault(fold_name(name), set()).add(tool)
            last = _find_last_part(name)
            if last is not None:
                self._last_parts.setdefault(fold_name(last[1]), set()).add(tool)

    def find_meant_name(self, name: str) -> str | None:
        """The only offered tool that a safe repair leads to. A tie at any step is no match."""
        if len(name) > _MAX_NAME:
            return None
        names = list(_shorten(name.strip()))
        for meant in names:
            found = self._find(meant)
            if found:
                return next(iter(found)) if len(found) == 1 else None
        found = {tool for meant in names for tool in self._last_parts.get(fold_name(meant), ())}
        found |= {tool for meant in names for cut in _cut_hexadecimal(meant) for tool in self._find(cut)}
        return found.pop() if len(found) == 1 else None

    def _find(self, name: str) -> set[str]:
        """The tool of this name, or those that differ from it by case and separators."""
        return {self._exact[name]} if name in self._exact else self._folded.get(fold_name(name), set())


def _shorten(name: str) -> Iterator[str]:
    """The name, and what is left of it after each prefix and suffix."""
    yield name
    while True:
        first, _, second = name.partition(".")
        suffix, prefix = _find_suffix(name), _match_prefix(name)
        repeated = _is_repeated(name)
        if first and first == second:  # `get_weather.get_weather` (Muse Glimmer)
            name = first
        elif repeated is not None:
            name = repeated[1]
        elif suffix is not None and suffix.start():
            name = name[: suffix.start()]
        elif prefix is not None and prefix.end() < len(name):
            name = name[prefix.end() :]
        else:
            return
        yield name


def _cut_hexadecimal(name: str) -> Iterator[str]:
    """All names that an id may stand behind: the name itself may end with letters that are hexadecimal digits."""
    found = _find_hexadecimal(name)
    if found is not None:
        for end in range(max(found.start(), 1), len(name) - _MIN_HEXADECIMAL + 1):
            if any(map(str.isdigit, name[end:])):
                yield name[:end]
