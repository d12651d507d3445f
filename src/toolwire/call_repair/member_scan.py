"""Follows the arguments of a streamed call, and says how much of them is certain to be right.

A member flows when its key is a property of the schema and its value needs no repair. The text of a string flows as it
comes, but the quote that closes it is held until the next member flows: it may be a quote inside of the string that the
model did not escape. At the first deviation everything that follows is held.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from toolwire.call_repair.arguments import ArgumentRepair
from toolwire.core.argument_guard import PARTIAL, is_plain_text, match_plain_text, read_escape
from toolwire.core.json_values import Malformed, Path, decode

_match_blank = re.compile(r"[ \t\r\n]*+").match
_match_key = re.compile(r'"([^"\\\x00-\x1f]*+)"').match
_is_key_start = re.compile(r'"[^"\\\x00-\x1f]{0,500}+').fullmatch
_match_word = re.compile(r"[-+.\w]++").match
_find_bracket_or_quote = re.compile(r'["{}\[\]]').search
_find_quote_or_escape = re.compile(r'["\\]').search
_MAX_WORD: Final = 500
_MAX_MARKS: Final = 20_000
"""Brackets and quotes of a value that is followed; a larger one is held, and read at the end."""
_HOLD: Final = -2


class MemberScanner:
    """The arguments of one call, delta by delta."""

    def __init__(self, repair: ArgumentRepair) -> None:
        self.is_held = False
        """Was there a deviation?"""
        self.sent_length = 0
        self.sent_keys: list[str] = []
        """The keys of the members that were sent, the last one perhaps in part."""
        self.open_text_start = 0
        """Where the text of the last of them begins, if it is a string whose closing quote was not sent; else 0."""
        self._repair = repair
        self._state = "start"
        """What comes next."""
        self._key = ""
        self._rest = ""
        """The start of a key, word or escape, which is read when the rest is there."""
        self._unsent: list[str] = []
        """What was read and is not certain yet."""
        self._value: list[str] = []
        """What was read of a value that flows as a whole."""
        self._marks_left = _MAX_MARKS
        self._depth = 0
        self._is_in_string = False
        self._is_escaped = False

    def feed(self, text: str) -> str:
        """What of the arguments so far is certain and was not sent, with this delta."""
        if self.is_held:
            return ""
        if self._state == "text" and not self._rest and is_plain_text(text):
            self.sent_length += len(text)
            return text
        text, self._rest = self._rest + text, ""
        out: list[str] = []
        at = 0
        while at < len(text):
            if self._state not in ("text", "rest of value"):
                end = _match_blank(text, at).end()  # type: ignore[union-attr]
                self._unsent.append(text[at:end])
                at = end
                if at == len(text):
                    break
            end = _READERS[self._state](self, text, at, out)
            if end < 0:
                self.is_held = end == _HOLD
                self._rest = text[at:]
                break
            at = end
        return "".join(out)

    @property
    def is_complete(self) -> bool:
        """Was all of the object read?"""
        return self._state == "end"

    def _send(self, out: list[str], last: str) -> None:
        """Everything up to here is certain."""
        pieces = [*self._unsent, last]
        self._unsent = []
        out += pieces
        self.sent_length += sum(map(len, pieces))

    # --- one reader for each state: the end of what it read, PARTIAL if it needs more, or _HOLD ---

    def _read_start(self, text: str, at: int, out: list[str]) -> int:
        return self._read_mark(text, at, {"{": "key or end"})

    def _read_mark(self, text: str, at: int, after: Mapping[str, str]) -> int:
        if text[at] not in after:
            return _HOLD
        self._state = after[text[at]]
        self._unsent.append(text[at])
        return at + 1

    def _read_key_or_end(self, text: str, at: int, out: list[str]) -> int:
        return self._read_mark(text, at, {"}": "end"}) if text[at] == "}" else self._read_key(text, at, out)

    def _read_key(self, text: str, at: int, out: list[str]) -> int:
        found = _match_key(text, at)
        if found is None:
            return PARTIAL if _is_key_start(text, at) else _HOLD
        self._key = found[1]
        properties = self._repair.root.properties
        if self._key in self.sent_keys or (properties and self._key not in properties):
            return _HOLD
        self._unsent.append(found[0])
        self._state = "colon"
        return found.end()

    def _read_colon(self, text: str, at: int, out: list[str]) -> int:
        return self._read_mark(text, at, {":": "value"})

    def _read_value(self, text: str, at: int, out: list[str]) -> int:
        mark = text[at]
        if mark == '"' and self._repair.takes_any_text(self._key):
            self._send(out, mark)
            self.sent_keys.append(self._key)
            self.open_text_start = self.sent_length
            self._state = "text"
            return at + 1
        if mark in ('"', "{", "["):
            self._is_in_string, self._depth, self._is_escaped = mark == '"', int(mark != '"'), False
            self._value, self._marks_left = [mark], _MAX_MARKS
            self._state = "rest of value"
            return at + 1
        word = _match_word(text, at)
        if word is None or len(word[0]) > _MAX_WORD:
            return _HOLD
        if word.end() == len(text):
            return PARTIAL
        self._value = [word[0]]
        return self._end_value(word.end(), out)

    def _read_rest_of_value(self, text: str, at: int, out: list[str]) -> int:
        start = at
        while at < len(text):
            if self._is_escaped:
                self._is_escaped = False
                at += 1
                continue
            found = (_find_quote_or_escape if self._is_in_string else _find_bracket_or_quote)(text, at)
            if found is None:
                at = len(text)
                break
            at = found.end()
            self._marks_left -= 1
            if not self._marks_left:
                return _HOLD
            if found[0] == "\\":
                self._is_escaped = True
            elif found[0] == '"':
                self._is_in_string = not self._is_in_string
            else:
                self._depth += 1 if found[0] in "{[" else -1
            if not self._depth and not self._is_in_string:
                self._value.append(text[start:at])
                return self._end_value(at, out)
        self._value.append(text[start:at])
        return at

    def _end_value(self, end: int, out: list[str]) -> int:
        """A value is complete: it flows if it needs no repair."""
        text = "".join(self._value)
        replaced: list[Path] = []
        try:
            value = decode(text, replaced=replaced)
        except Malformed:
            return _HOLD
        if replaced or not self._repair.is_right(self._key, value):
            return _HOLD
        self._send(out, text)
        self.sent_keys.append(self._key)
        self.open_text_start = 0
        self._state = "comma or end"
        return end

    def _read_text(self, text: str, at: int, out: list[str]) -> int:
        end = match_plain_text(text, at).end()  # type: ignore[union-attr]
        if end == at and text[at] == '"':
            self._unsent.append('"')
            self._state = "comma or end"
            return at + 1
        if end == at:
            end, is_lone_half = read_escape(text, at)
            if end < 0 or is_lone_half:
                return PARTIAL if end == PARTIAL else _HOLD
        self._send(out, text[at:end])
        return end

    def _read_comma_or_end(self, text: str, at: int, out: list[str]) -> int:
        return self._read_mark(text, at, {",": "key", "}": "end"})

    def _read_end(self, text: str, at: int, out: list[str]) -> int:
        return _HOLD


_READERS: Final[Mapping[str, Callable[[MemberScanner, str, int, list[str]], int]]] = {
    "start": MemberScanner._read_start,
    "key or end": MemberScanner._read_key_or_end,
    "key": MemberScanner._read_key,
    "colon": MemberScanner._read_colon,
    "value": MemberScanner._read_value,
    "rest of value": MemberScanner._read_rest_of_value,
    "text": MemberScanner._read_text,
    "comma or end": MemberScanner._read_comma_or_end,
    "end": MemberScanner._read_end,
}
