"""On which line of a TOML text a key stands. The standard reader tells values, but not where they were.

The text has been read by then, so it is known to be right: this only follows tables, keys and values, and skips what
stands in strings and comments.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

Place = tuple[str | int, ...]

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_STRING = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*"{3,5}' + r"|'''(?:[^']|'(?!''))*'{3,5}" + r'|"(?:[^"\\\n]|\\.)*"' + r"|'[^'\n]*'",
    re.DOTALL,
)
_PLAIN = re.compile(r"[^,\]}\n#]*")


class Lines:
    """Lines by the path of keys (`providers`, `work`, `base_url`) and numbers (`server`, `keys`, 0)."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._found: dict[Place, int] = {}
        self._counts: dict[Place, int] = {}
        self._table: Place = ()
        while self._blank():
            self._statement()

    def of(self, place: Place) -> int:
        """The line of a place, or of the nearest that holds it; 0 when nothing does."""
        for length in range(len(place), 0, -1):
            if place[:length] in self._found:
                return self._found[place[:length]]
        return 0

    @property
    def found(self) -> Mapping[Place, int]:
        return self._found

    # --- statements ---

    def _statement(self) -> None:
        if self._text.startswith("[[", self._at):
            self._header(2)
        elif self._text[self._at] == "[":
            self._header(1)
        else:
            self._pair(self._table)

    def _header(self, brackets: int) -> None:
        line = self._line()
        self._at += brackets
        keys = self._keys()
        self._blank()
        self._at += brackets
        place = self._current(keys[:-1], line)
        if brackets == 1:
            place = (*place, keys[-1])
        else:
            listed = (*place, keys[-1])
            place = (*listed, self._counts.get(listed, 0))
            self._counts[listed] = self._counts.get(listed, 0) + 1
            self._found.setdefault(listed, line)
        self._found.setdefault(place, line)
        self._table = place

    def _current(self, keys: list[str], line: int) -> Place:
        """Where keys lead: through a list of tables into its last one."""
        place: Place = ()
        for key in keys:
            place = (*place, key)
            self._found.setdefault(place, line)
            if place in self._counts:
                place = (*place, self._counts[place] - 1)
        return place

    def _pair(self, table: Place) -> None:
        line = self._line()
        place = table
        for key in self._keys():
            place = (*place, key)
            self._found.setdefault(place, line)
        self._blank()
        self._at += 1  # the equals sign
        self._value(place)

    def _keys(self) -> list[str]:
        keys: list[str] = []
        while True:
            self._blank()
            quoted = _STRING.match(self._text, self._at)
            word = quoted or _BARE.match(self._text, self._at)
            if word is None:
                raise ValueError(f"no key on line {self._line()}")
            keys.append(_unquoted(word[0]) if quoted else word[0])
            self._at = word.end()
            self._blank()
            if not self._text.startswith(".", self._at):
                return keys
            self._at += 1

    # --- values ---

    def _value(self, place: Place) -> None:
        self._blank()
        opening = self._text[self._at]
        if opening == "[":
            self._list(place)
        elif opening == "{":
            self._inline(place)
        else:
            shape = _STRING if opening in "\"'" else _PLAIN
            found = shape.match(self._text, self._at)
            self._at = found.end() if found else len(self._text)

    def _list(self, place: Place) -> None:
        self._at += 1
        number = 0
        while self._blank() and self._text[self._at] != "]":
            if self._text[self._at] == ",":
                self._at += 1
                continue
            self._found.setdefault((*place, number), self._line())
            self._value((*place, number))
            number += 1
        self._at += 1

    def _inline(self, place: Place) -> None:
        self._at += 1
        while self._blank() and self._text[self._at] != "}":
            if self._text[self._at] == ",":
                self._at += 1
                continue
            self._pair(place)
        self._at += 1

    # --- characters ---

    def _blank(self) -> bool:
        """Past white space and comments; is there anything left?"""
        found = _BLANK.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return self._at < len(self._text)

    def _line(self) -> int:
        return self._text.count("\n", 0, self._at) + 1


def _unquoted(key: str) -> str:
    """A quoted key as it is meant; escapes other than of quotes are rare enough to be looked up as they stand."""
    inner = key[1:-1]
    return inner.replace('\\"', '"').replace("\\\\", "\\") if key[0] == '"' else inner
