"""Reads calls that are written as Python: `NAME(city='Paris', days=3)`, with the literals of Python or JSON."""

from __future__ import annotations

import math
import re
from typing import Final, Literal, NoReturn

from msgspec import Struct

from toolwire.call_repair.near_json import LITERALS
from toolwire.core.json_values import Json, Object, join_halves

MAX_NESTING: Final = 64


class PythonCall(Struct, frozen=True):
    """A call with keyword arguments."""

    name: str
    arguments: Object
    start: int
    end: int
    repairs: tuple[str, ...] = ()


class Unread(Struct, frozen=True):
    """Why there are no calls."""

    reason: Literal["cut", "broken", "broken after a string"]
    """The text ends too early; it is no call; or it is none unless a quote in a string was not escaped."""
    calls: tuple[PythonCall, ...] = ()
    """Those that are complete."""


class PythonCalls(Struct, frozen=True):
    """The calls that were read."""

    calls: tuple[PythonCall, ...]
    end: int


_match_blanks = re.compile(r"(?:\s|\\\n|#[^\n]*+(?=\n))*+").match
_match_name = re.compile(r"[^\W\d][\w-]*+(?:[.:/][\w-]++)*+").match
_match_key = re.compile(r"([^\W\d][\w-]*+)\s*+=(?!=)\s*+").match
_match_part_of_key = re.compile(r"[^\W\d][\w-]*+\s*+\Z").match
_match_number = re.compile(r"[-+]?(?:\d[\d_]*+(?:\.\d*+)?|\.\d++)(?:[eE][-+]?\d++)?").match
_match_word = re.compile(r"\w++").match
_match_quote = re.compile(r"[rRbBuUfF]{0,2}(\"\"\"|'''|\"|')").match
_STRINGS: Final = {
    quote: re.compile(rf"((?:{characters}|\\.)*+){quote}", re.DOTALL).match
    for quote, characters in {
        '"': r'[^\\"]++',
        "'": r"[^\\']++",
        '"""': r'[^\\"]++|"(?!"")',
        "'''": r"[^\\']++|'(?!'')",
    }.items()
}
_match_end_of_loose = re.compile(
    r"\s*+(?:,\s*+[^\W\d][\w-]*+\s*+=|\)\s*+(?:\Z|\]|[,;\n]\s*+[^\W\d][\w.:/-]*+\())"
).match
"""What follows the real end of a string with quotes in it that were not escaped."""
_replace_escapes = re.compile(
    r"\\(x[0-9a-fA-F]{2}|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}"
    r"|U[0-9a-fA-F]{8}|[0-7]{1,3}|.)",
    re.DOTALL,
).sub
_ESCAPES: Final = {
    "n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "a": "\a", "\\": "\\", "'": "'", '"': '"',
    "\n": "", "/": "/",
}  # fmt: skip
_CLOSINGS: Final = {"[": "]", "{": "}", "(": ")"}


class _CutError(Exception):
    """The text ends too early."""


class _BrokenError(Exception):
    """It is no call."""


class _Reader:
    """Reads on from `at`."""

    def __init__(self, text: str, at: int, end: int, is_loose: bool) -> None:
        self.text = text
        self.at = at
        self.end = end
        self.is_loose = is_loose
        self.is_after_string = False
        self.repairs: dict[str, None] = {}

    def refuse(self) -> NoReturn:
        raise _CutError if self.at >= self.end else _BrokenError

    def skip_blanks(self) -> None:
        found = _match_blanks(self.text, self.at, self.end)
        self.at = found.end() if found else self.at

    @property
    def mark(self) -> str:
        """The next character; "" at the end."""
        return self.text[self.at] if self.at < self.end else ""

    def take(self, mark: str) -> bool:
        self.skip_blanks()
        if self.mark != mark:
            return False
        self.at += 1
        return True

    def expect(self, mark: str) -> None:
        if not self.take(mark):
            self.refuse()

    def read_call(self) -> PythonCall:
        self.skip_blanks()
        start = self.at
        name = _match_name(self.text, self.at, self.end)
        if name is None:
            self.refuse()
        self.at = name.end()
        self.expect("(")
        self.repairs = {}
        arguments: Object = {}
        while not self.take(")"):
            if arguments:
                self.expect(",")
                if self.take(")"):
                    break
            self.read_argument(arguments)
        return PythonCall(name[0], arguments, start, self.at, tuple(self.repairs))

    def read_argument(self, arguments: Object) -> None:
        self.skip_blanks()
        key = _match_key(self.text, self.at, self.end)
        if key is None:
            if _match_part_of_key(self.text, self.at, self.end):
                raise _CutError
            self.refuse()
        if key[1] in arguments:
            raise _BrokenError
        self.at = key.end()
        arguments[key[1]] = self.read_value(0, is_argument=True)

    def read_value(self, depth: int, *, is_argument: bool = False) -> Json:
        self.skip_blanks()
        self.is_after_string = False
        quote = _match_quote(self.text, self.at, self.end)
        if quote:
            return self.read_string(quote, is_loose=is_argument and self.is_loose)
        if self.mark in _CLOSINGS:
            if depth == MAX_NESTING:
                raise _BrokenError
            return self.read_items(depth + 1)
        return self.read_number() if self.mark in "-+.0123456789" and self.mark else self.read_word()

    def read_items(self, depth: int) -> Json:
        """A list, tuple, dictionary or set."""
        opening = self.mark
        closing = _CLOSINGS[opening]
        self.at += 1
        items: list[Json] = []
        members: Object = {}
        while not self.take(closing):
            if items or members:
                self.expect(",")
                if self.take(closing):
                    break
            value = self.read_value(depth)
            if opening == "{" and not items and self.take(":"):
                if not isinstance(value, str | int | float) or isinstance(value, bool):
                    raise _BrokenError
                members[str(value)] = self.read_value(depth)
            elif members:
                self.refuse()
            else:
                items.append(value)
        if opening == "{" and items:
            self.repairs["a Python set was written as an array"] = None
        return members if opening == "{" and not items else items

    def read_string(self, quote: re.Match[str], *, is_loose: bool) -> str:
        found = _STRINGS[quote[1]](self.text, quote.end(), self.end)
        end = found.end() if found else -1
        while found and is_loose and len(quote[1]) == 1 and not _match_end_of_loose(self.text, end, self.end):
            self.repairs["quotes in a string were not escaped"] = None
            found = _STRINGS[quote[1]](self.text, end, self.end)
            end = found.end() if found else -1
        if found is None:
            raise _CutError
        self.at = end
        self.is_after_string = True
        body = self.text[quote.end() : end - len(quote[1])]
        is_raw = "r" in quote[0].lower()
        return body if is_raw or "\\" not in body else _replace_escapes(_read_escape, body)

    def read_number(self) -> Json:
        found = _match_number(self.text, self.at, self.end)
        if found is None:
            self.refuse()
        if found.end() == self.end:
            raise _CutError
        self.at = found.end()
        digits = found[0].replace("_", "").removeprefix("+")
        if "." in digits or "e" in digits.lower():
            number = float(digits)
            return number if math.isfinite(number) else digits  # JSON has no infinity: the tool says what is wrong
        if digits.lstrip("-").startswith("0") and int(digits):
            self.repairs["leading zeros of a number were left out"] = None
        return int(digits)

    def read_word(self) -> Json:
        found = _match_word(self.text, self.at, self.end)
        if found is None or found.end() == self.end:
            self.at = found.end() if found else self.at
            self.refuse()
        if found[0] not in LITERALS:
            raise _BrokenError
        self.at = found.end()
        return LITERALS[found[0]]


def _read_escape(found: re.Match[str]) -> str:
    name = found[1]
    if "\\u" in name:  # two halves of a character, as JSON writes it
        return join_halves("".join(chr(int(half, 16)) for half in name[1:].split("\\u")))
    if name[0] in "xuU" and len(name) > 1:
        number = int(name[1:], 16)
        return chr(number) if number < 0x110000 and not 0xD800 <= number < 0xE000 else found[0]
    return _ESCAPES.get(name, found[0])


def read_python_calls(
    text: str, at: int, *, in_list: bool = True, is_single: bool = False, is_loose: bool = False
) -> PythonCalls | Unread:
    """The calls of the list that begins here, `[NAME(…), …]`, or without `in_list` of the lines until the end.
    `is_single`: only the first. `is_loose`: strings may hold quotes that are not escaped."""
    reader = _Reader(text, at, len(text), is_loose)
    calls: list[PythonCall] = []
    try:
        if in_list:
            reader.expect("[")
        while not (reader.take("]") if in_list else _is_at_end(reader)):
            if calls and in_list:
                reader.expect(",")
                if reader.take("]"):
                    break
            calls.append(reader.read_call())
            if is_single:
                break
            if not in_list:
                reader.take(",") or reader.take(";")
    except _CutError:
        return Unread("cut", tuple(calls))
    except (_BrokenError, ValueError):
        return Unread("broken after a string" if reader.is_after_string else "broken", tuple(calls))
    return PythonCalls(tuple(calls), reader.at)


def _is_at_end(reader: _Reader) -> bool:
    reader.skip_blanks()
    return reader.at >= reader.end
