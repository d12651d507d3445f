"""Reads arguments that are nearly JSON: what models write when they mean an object.

Strict JSON comes first. Then one tolerant reader goes over the text once, from left to right, and mends what has one
sure reading; decision 0021 says why it is not a library. It never closes a string, a key or a word that was cut off,
and its result has no character that the text does not have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NoReturn

from msgspec import Struct
from msgspec.structs import astuple

from toolwire.core.json_values import (
    DECODE_ERRORS,
    Json,
    Malformed,
    Object,
    Path,
    decode,
    decode_object,
    encode_text,
    join_halves,
)

MAX_NESTING: Final = 64
"""Levels that the tolerant reader follows; the arguments of real calls have a handful."""
MAX_VALUES: Final = 10_000
"""Values that the tolerant reader reads: about a tenth of a second. A long string is one value."""


class ReadValue(Struct, frozen=True):
    """A JSON value that was read from text."""

    value: Json
    text: str
    """As JSON: the text as it came, or the mended value."""
    repairs: tuple[str, ...] = ()
    """What was mended, each as a sentence without its full stop."""
    is_loose: bool = False
    """Could it mean something else? Then it counts only if it matches the schema."""


class ReadArguments(ReadValue, frozen=True):
    """Arguments that were read from text."""

    value: Object


def read_arguments(text: str, *, is_cut: bool = False) -> ReadArguments | None:
    """The object that a text means, or None. `is_cut`: the answer ended at a limit, or the stream broke."""
    try:
        return ReadArguments(decode_object(text), text)
    except DECODE_ERRORS:
        found = read_value(text, is_cut=is_cut)
    if found is None and _is_escaped_object(text):
        found = read_value(f'"{text.strip()}"', is_cut=is_cut)
    if found is not None and isinstance(found.value, str):
        found = _read_encoded_object(found, is_cut)
    if found is None:
        return None
    if found.value is None:
        return ReadArguments({}, "{}", (*found.repairs, "the arguments were empty"), is_loose=True)
    return ReadArguments(*astuple(found)) if isinstance(found.value, dict) else None


def _read_encoded_object(outer: ReadValue, is_cut: bool) -> ReadValue | None:
    """The object inside of a JSON string. Blank text is null."""
    inner = read_value(outer.value, is_cut=is_cut)
    if inner is None or not (inner.value is None or isinstance(inner.value, dict)):
        return None
    said = () if inner.value is None else ("the arguments were encoded as JSON twice",)
    return ReadValue(inner.value, inner.text, (*outer.repairs, *said, *inner.repairs), inner.is_loose)


def read_value(text: str, *, is_cut: bool = False) -> ReadValue | None:
    """The JSON value that a text means, or None; null for blank text."""
    if not text or text.isspace():
        return ReadValue(None, "null")
    replaced: list[Path] = []
    try:
        value = decode(text, max_bytes=4 * len(text), replaced=replaced)
    except Malformed:
        pass
    else:
        return ReadValue(value, encode_text(value), (_HALF_REPLACED,)) if replaced else ReadValue(value, text)
    reader = _TolerantReader(text, is_cut)
    try:
        value = reader.read_document()
    except _UnreadableError:
        return None
    return ReadValue(value, encode_text(value), tuple(reader.repairs), reader.is_loose)


def unescape_text(body: str) -> str:
    """What is between the quotes of a string, without its escapes; those that JSON does not know stay as they are."""
    return _TolerantReader("", False).unescape(body, '"')


# --- the tolerant reader --------------------------------------------------------------------------------------------

_HALF_REPLACED: Final = "half of a character was replaced by U+FFFD"

_match_blank = re.compile(r"[\s\ufeff]*+").match
_match_comment = re.compile(r"//[^\n]*+|#[^\n]*+|/\*(?:[^*]++|\*(?!/))*+\*/").match
_is_escaped_object = re.compile(r'\s*+\{(?:\s|\\n)*+\\"').match
"""JSON as it stands in a string, but without the quotes around it."""
_match_escaped_blank = re.compile(r"\\[nrt]").match
_is_fenced = re.compile(r"\s*+```[a-zA-Z]*+[ \t]*+\n(.*)\n\s*+```\s*+", re.DOTALL).fullmatch
_match_end_tokens = re.compile(r"(?:(?:<\|\w{1,40}\|>|<｜[\w▁]{1,40}｜>|</[\w:]{1,40}>)\s*+)++").match
"""What a server should have removed: `<|im_end|>`, `<|call|>`, `</s>`, `</tool_call>`."""
_STRINGS: Final[dict[str, Callable[[str, int], re.Match[str] | None]]] = {
    '"': re.compile(r'"((?:[^"\\]++|\\.)*+)"', re.DOTALL).match,
    "'": re.compile(r"'((?:[^'\\]++|\\.)*+)'", re.DOTALL).match,
}
_replace_escapes = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL).sub
_ESCAPES: Final = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_find_control = re.compile(r"[\x00-\x1f]").search
_match_key = re.compile(r"[A-Za-z_$][\w$.-]*+").match
_match_word = re.compile(r"[-+.\w]++").match
_match_words = re.compile(r"(?:[-+.\w]++|[^\W\d][-+.\w]*+(?: ++[-+.\w]++)*+)(?=\s*+[,}\]])").match
_is_number = re.compile(r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?").fullmatch
LITERALS: Final[Mapping[str, Json]] = {
    "true": True, "false": False, "null": None, "True": True, "False": False, "None": None,
}  # fmt: skip
"""The words of JSON, and of Python."""
_AFTER_LITERAL: Final = frozenset({",", "}", "]", '"', "'", ""})


class _UnreadableError(Exception):
    """There is no sure reading."""


def _refuse() -> NoReturn:
    raise _UnreadableError


class _TolerantReader:
    """Reads one text once. Each method reads on from `at`."""

    def __init__(self, text: str, is_cut: bool) -> None:
        self.text = text
        self.at = 0
        self.is_cut = is_cut
        self.repairs: dict[str, None] = {}
        """In the order in which they were made, each once."""
        self.is_loose = False
        self.values_left = MAX_VALUES
        self.open_marks: list[str] = []
        """The marks that close what is open, the innermost last."""

    def note(self, repair: str, *, is_loose: bool = False) -> None:
        self.repairs[repair] = None
        self.is_loose = self.is_loose or is_loose

    def read_document(self) -> Json:
        self.leave_fence()
        self.skip_blanks()
        if self.mark not in ("{", "[", '"', "'"):
            _refuse()
        value = self.read_value()
        self.skip_blanks()
        if self.mark in ("}", "]"):
            self.note("extra closing brackets were left out")
            while self.mark in ("}", "]"):
                self.at += 1
                self.skip_blanks()
        if tokens := _match_end_tokens(self.text, self.at):
            self.note("end tokens were left out")
            self.at = tokens.end()
        if self.mark:
            _refuse()
        return value

    def leave_fence(self) -> None:
        """Read what is inside of a code fence, if that is the whole text."""
        fenced = _is_fenced(self.text)
        if fenced is not None:
            self.note("the code fence was left out")
            self.text = fenced[1]

    @property
    def mark(self) -> str:
        """The next character; "" at the end."""
        return self.text[self.at : self.at + 1]

    def skip_blanks(self) -> None:
        while True:
            self.at = _match_blank(self.text, self.at).end()  # type: ignore[union-attr]
            if found := _match_comment(self.text, self.at):
                self.note("comments were left out")
            elif found := _match_escaped_blank(self.text, self.at):
                self.note("escaped line breaks between the values were left out")
            else:
                return
            self.at = found.end()

    def read_value(self) -> Json:
        mark = self.mark
        self.values_left -= 1
        if self.values_left < 0:
            _refuse()
        if mark == "{":
            return self.read_object()
        if mark == "[":
            return self.read_list()
        return self.read_string() if mark in _STRINGS else self.read_word()

    def read_object(self) -> Object:
        made: Object = {}
        self.enter("}")
        while self.goes_on(bool(made), "}"):
            key = self.read_string() if self.mark in _STRINGS else self.read_key()
            self.skip_blanks()
            if self.mark != ":" or key in made:
                _refuse()
            self.at += 1
            self.skip_blanks()
            made[key] = self.read_value()
        return made

    def read_list(self) -> list[Json]:
        made: list[Json] = []
        self.enter("]")
        while self.goes_on(bool(made), "]"):
            made.append(self.read_value())
        return made

    def enter(self, end: str) -> None:
        if len(self.open_marks) == MAX_NESTING:
            _refuse()
        self.open_marks.append(end)
        self.at += 1

    def goes_on(self, has_items: bool, end: str) -> bool:
        """Does another item follow in this object or list? Reads the comma before it, or the mark that ends it."""
        before = self.at
        self.skip_blanks()
        has_comma = has_items and self.mark == ","
        if has_comma:
            self.at += 1
            self.skip_blanks()
        if self.mark in ("}", "]", ""):
            self.leave(end, has_items, has_comma)
            return False
        if has_items and not has_comma:
            self.accept_missing_comma(before, end)
        return True

    def leave(self, end: str, has_items: bool, has_comma: bool) -> None:
        self.open_marks.pop()
        if self.mark == end:
            self.at += 1
            if has_comma:
                self.note("a trailing comma was left out")
        elif self.mark:
            if self.mark not in self.open_marks:  # it closes something outside, so what is inside ends, too
                _refuse()
            self.note("a closing bracket was missing", is_loose=True)
        elif self.is_cut or not has_items or has_comma:
            _refuse()
        else:
            self.note("closing brackets were missing at the end")

    def accept_missing_comma(self, before: int, end: str) -> None:
        """Only between members with quoted keys, and between objects or lists: two strings in a row may be one."""
        is_apart = self.at > before
        was_bracket = self.text[before - 1] in "}]"
        if not (is_apart and self.mark in _STRINGS if end == "}" else was_bracket and self.mark in ("{", "[")):
            _refuse()
        self.note("commas were missing", is_loose=True)

    def read_string(self) -> str:
        quote = self.mark
        found = _STRINGS[quote](self.text, self.at)
        if found is None:
            _refuse()
        self.at = found.end()
        if quote == "'":
            self.note("single quotes were replaced by double quotes")
        return self.unescape(found[1], quote)

    def unescape(self, body: str, quote: str) -> str:
        if _find_control(body):
            self.note("control characters in strings were escaped")
        if "\\" not in body:
            return join_halves(body)
        return self.check_halves(_replace_escapes(lambda escape: self.read_escape(escape[1], quote), body))

    def read_escape(self, name: str, quote: str) -> str:
        if len(name) > 1:
            return chr(int(name[1:], 16))
        if name in _ESCAPES:
            return _ESCAPES[name]
        if name == quote:
            return name
        self.note("backslashes that begin no JSON escape were doubled")
        return f"\\{name}"

    def check_halves(self, text: str) -> str:
        joined = join_halves(text)
        if "\ufffd" in joined and joined.count("\ufffd") != text.count("\ufffd"):
            self.note(_HALF_REPLACED)
        return joined

    def read_key(self) -> str:
        found = _match_key(self.text, self.at)
        if found is None:
            _refuse()
        self.at = found.end()
        self.note("keys were quoted")
        return found[0]

    def read_word(self) -> Json:
        """A literal of JSON or Python; other words, and numbers that JSON does not have (007, NaN), are text."""
        found = _match_word(self.text, self.at)
        if found is not None and (found[0] in LITERALS or _is_number(found[0])):
            self.at = found.end()
            self.skip_blanks()
            if self.mark in _AFTER_LITERAL:
                self.at = found.end()
                if found[0][0] in "TFN":
                    self.note("Python's True, False and None were written as JSON")
                return LITERALS[found[0]] if found[0] in LITERALS else decode(found[0])
            self.at = found.start()
        words = _match_words(self.text, self.at)
        if words is None:
            _refuse()
        self.at = words.end()
        self.note("words without quotes were read as text", is_loose=True)
        return words[0]
