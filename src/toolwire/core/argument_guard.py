"""Keeps the arguments of a streamed call readable: what is sent on is always the start of one JSON object.

Agents that speak Anthropic or Responses parse the arguments of every call, and some end when that fails. When deltas
turn out to be malformed, earlier ones are already sent. So the object is completed: every key that was sent is set to
null, because a tool must not run with half of its arguments, and the text of the model follows under a key of its own.
"""

from __future__ import annotations

import re

from msgspec import Struct

from toolwire.core.json_values import encode_text, is_json_text

RAW_ARGUMENTS_KEY = "_raw"
"""The key for arguments that are not a JSON object where one is demanded."""

_PLAIN = r'(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}))*+'
match_plain_text = re.compile(_PLAIN).match
is_plain_text = re.compile(_PLAIN).fullmatch
"""Characters and escapes inside of a string, without halves of surrogate pairs."""
_match_blank = re.compile(r"[ \t\r\n]*").match
_match_escape = re.compile(r'\\(?:["\\/bfnrt]|u([0-9a-fA-F]{4}))').match
_is_escape_start = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?").fullmatch
_match_word = re.compile(r"[-+.0-9A-Za-z]+").match
_is_word = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null").fullmatch
_is_low_half_start = re.compile(r"\\(?:u(?:[dD](?:[c-fC-F][0-9a-fA-F]{0,2})?)?)?").fullmatch
_ESCAPE_LENGTH = 6
PARTIAL, BROKEN = -1, -2
"""Instead of the end of a token: the rest has not come, or it is malformed."""

_AFTER: dict[tuple[str, str], str] = {
    ("start", "{"): "key or end",
    ("key or end", '"'): "key",
    ("key or end", "}"): "end",
    ("next key", '"'): "key",
    ("colon", ":"): "value",
    **{
        (state, mark): then
        for state in ("value", "value or end")
        for mark, then in (("{", "key or end"), ("[", "value or end"), ('"', "text"))
    },
    ("value or end", "]"): "end",
    ("comma or end", "}"): "end",
    ("comma or end", "]"): "end",
}
"""The state after a mark. "end" closes the innermost object or list."""


class ArgumentGuard(Struct, eq=False):
    """The arguments of one call, delta by delta."""

    is_broken: bool = False
    """Are they not the start of a JSON object?"""
    has_trailing_text: bool = False
    """Did text follow the complete object? It is left out."""
    has_repairs: bool = False
    """Did U+FFFD replace half of a surrogate pair?"""
    _state: str = "start"
    _open: list[str] = []
    """The marks that close what is open, the innermost last."""
    _keys: list[str] = []
    """The keys of the object itself, as they are spelled."""
    _held: str = ""
    """The start of an escape, number or word, which is sent when the rest is there."""
    _unsent: list[str] = []
    _has_sent: bool = False

    @property
    def unsent_text(self) -> str:
        """What came and was not sent."""
        return self._held + "".join(self._unsent)

    def add(self, text: str) -> str:
        """What of the arguments so far can be sent, with this delta."""
        if self.is_broken:
            self._unsent.append(text)
            return ""
        if self._state == "text" and not self._held and is_plain_text(text):
            return text
        if self._state == "done":
            self.has_trailing_text = self.has_trailing_text or bool(text.strip())
            return ""
        text, self._held = self._held + text, ""
        if self._state == "start" and text.lstrip().startswith("{") and is_json_text(text):
            # All arguments in one piece, as many servers send them: the decoder is faster.
            self._state, self._has_sent = "done", True
            return text.strip()
        if self._state == "start":
            text = text[_match_blank(text).end() :]  # type: ignore[union-attr]
        out, is_broken = self._scan(text)
        self.is_broken = is_broken
        if is_broken and not self._has_sent:
            # Nothing is sent of arguments that are known to be malformed.
            self._unsent = [text]
            return ""
        self._has_sent = self._has_sent or bool(out)
        return out

    def add_whole(self, text: str) -> str:
        """Like `add`, where nothing follows: of an object that does not end nothing is sent."""
        out = self.add(text)
        if self._state == "done" or not text or text.isspace():
            return out
        self.is_broken, self._has_sent, self._held, self._unsent = True, False, "", [text]
        return ""

    def complete(self, raw: str) -> str:
        """What makes one JSON object of the arguments that were sent; `raw` is all that the model wrote."""
        wrapped = f"{encode_text(RAW_ARGUMENTS_KEY)}:{encode_text(raw)}}}"
        if not self._has_sent:
            return "{" + wrapped
        endings = {"key": '":null', "text": '"', "colon": ":null", "value": "null"}
        out = [endings.get(self._state, "")]
        if self._state == "next key" and len(self._open) > 1:
            out.append('"":null')
        out += self._open[:0:-1]
        is_empty = len(self._open) == 1 and self._state in ("key or end", "next key")
        nulls = "".join([f'"{key}":null,' for key in self._keys if key != RAW_ARGUMENTS_KEY])
        return "".join([*out, "" if is_empty else ",", nulls, wrapped])

    def _scan(self, text: str) -> tuple[str, bool]:
        """Read on, up to the end of the last complete token. What follows is held, or breaks the grammar: then True."""
        pieces: list[str] = []
        start = at = 0
        is_broken = False
        while at < len(text):
            if self._state in ("key", "text"):
                end, lone_half = self._read_string(text, at)
                if lone_half >= 0:
                    pieces += (text[start:lone_half], "\\ufffd")
                    start = end
            else:
                at = _match_blank(text, at).end()  # type: ignore[union-attr]
                if at == len(text):
                    break
                end = self._read_token(text, at)
            if end in (PARTIAL, BROKEN):
                is_broken = end == BROKEN
                break
            at = end
            if self._state == "done":
                self.has_trailing_text = bool(text[at:].strip())
                return "".join([*pieces, text[start:at]]), False
        if is_broken:
            self._unsent = [text[at:]]
        else:
            self._held = text[at:]
        return "".join([*pieces, text[start:at]]), is_broken

    def _read_string(self, text: str, at: int) -> tuple[int, int]:
        """The end of plain characters, a closing quote or other escape, and the place of half of a pair, or -1."""
        end = match_plain_text(text, at).end()  # type: ignore[union-attr]
        lone_half = -1
        if end == at and text[at] == '"':
            self._state = "colon" if self._state == "key" else "comma or end"
            return at + 1, -1
        if end == at:
            end, is_lone = read_escape(text, at)
            if end < 0:
                return end, -1
            lone_half = at if is_lone else -1
            self.has_repairs = self.has_repairs or is_lone
        if self._state == "key" and len(self._open) == 1:
            self._keys[-1] += text[at:end] if lone_half < 0 else "\\ufffd"
        return end, lone_half

    def _read_token(self, text: str, at: int) -> int:
        """The end of a mark, number or word."""
        mark, state = text[at], self._state
        if mark == "," and state == "comma or end":
            self._state = "next key" if self._open[-1] == "}" else "value"
            return at + 1
        then = _AFTER.get((state, mark))
        if then is not None:
            if mark in "{[":
                self._open.append("}" if mark == "{" else "]")
            elif then == "end":
                if self._open[-1] != mark:
                    return BROKEN
                self._open.pop()
                then = "comma or end" if self._open else "done"
            elif then == "key" and len(self._open) == 1:
                self._keys.append("")
            self._state = then
            return at + 1
        word = _match_word(text, at) if state in ("value", "value or end") else None
        if word is not None and word.end() == len(text):
            return PARTIAL
        if word is None or _is_word(word[0]) is None:
            return BROKEN
        self._state = "comma or end"
        return word.end()


def read_escape(text: str, at: int) -> tuple[int, bool]:
    """The end of an escape, and whether it is half of a surrogate pair without the other half."""
    found = _match_escape(text, at)
    if found is None:
        return BROKEN if _is_escape_start(text, at) is None else PARTIAL, False
    unit, end = int(found[1] or "0", 16), found.end()
    if not 0xD800 <= unit <= 0xDBFF:
        return end, 0xDC00 <= unit <= 0xDFFF
    if end == len(text) or (len(text) < end + _ESCAPE_LENGTH and _is_low_half_start(text, end) is not None):
        return PARTIAL, False
    second = _match_escape(text, end)
    is_pair = second is not None and second[1] is not None and 0xDC00 <= int(second[1], 16) <= 0xDFFF
    return (end + _ESCAPE_LENGTH, False) if is_pair else (end, True)
