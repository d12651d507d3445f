"""GLM-4.5 and later, Ling 3, Laguna: `<tool_call>NAME<arg_key>k</arg_key><arg_value>v</arg_value></tool_call>`; Hy3:
the same with `<tool_sep>` after the name, inside of `<tool_calls>`.

Under load GLM loses single tags and writes others twice, so most of this module reads around them. A value is raw text,
and can hold every tag: a tag ends it only if the grammar allows what follows the tag.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import Final

from msgspec import Struct

from toolwire.call_repair.typed_text import read_typed_text
from toolwire.core.json_values import Json, Object
from toolwire.schema.keywords import object_or_empty
from toolwire.tool_formats.found_calls import (
    make_call,
    make_closed_frame,
    make_json_call,
    make_open_frame,
    parameter_schemas,
)
from toolwire.tool_formats.frame import Frame, Piece, Situation, TextCall, ToolFormat
from toolwire.tool_formats.json_bodies import BodyEnds, read_json_body
from toolwire.tool_formats.tag_text import (
    NeedsTextError,
    end_of_match,
    frame_reader,
    is_answer_over,
    require_whole_match,
    require_whole_tag,
)

_MAX_TAGS_IN_VALUE: Final = 500
"""Tags that may stand in one value. It bounds the work for a text of nothing but tags."""
_OPENING: Final = "<tool_call>"
_CLOSING: Final = "</tool_call>"
_MARKS: Final = ("</tool_call>", "</tool_calls>", "<tool_call>")

_JSON_ENDS: Final = BodyEnds(re.compile(r"</?tool_calls?>"), _MARKS)
_JSON_REPAIR: Final = "the arguments were JSON instead of tags"

_BLANKS: Final = re.compile(r"(?:\s|\\n)*+")
"""Between tags; `\\n` as two characters when the whole call was escaped once too often."""
_NAME: Final = re.compile(r"\s*+(?P<name>(?:(?!\\n)[^\s<>{}\[\]\"'`])+)")
_OPEN_NAME: Final = re.compile(r"\s*+(?:(?!\\n)[^\s<>{}\[\]\"'`])*+\\?\Z")
_KEY: Final = re.compile(
    r"(?:(?:<arg_key>\s*)++(?=[^<>]{1,200}<)|(?=[\w.$-]{1,64}\s*<))(?P<key>[^<>]+?)\s*(?:(?:</arg_key>)++|(?=<arg_value>))"
)
_WORD_KEY: Final = re.compile(r"(?:<arg_key>\s*)*+(?P<key>[\w.$-]{1,64})\s*</arg_key>")
_OPEN_KEY: Final = re.compile(r"(?:(?:<arg_key>\s*)++[^<>]{0,200}|[\w.$-]{0,64}\s*)(?:<[^>]{0,14})?\Z")
_VALUE_TAGS: Final = re.compile(r"(?:<arg_value>)++")
_VALUE_ENDS: Final = re.compile(r"(?:</arg_value>)++")
_NEXT: Final = re.compile(r"<arg_key>|</?tool_calls?>")
_NEXT_CALL: Final = re.compile(r"<tool_call>|</tool_calls>")
_find_tags = re.compile(r"</arg_value>|<arg_key>|<tool_call>|</tool_call>").finditer
_unescape = re.compile(r"\\([\"\\/nrt])").sub
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t"}


class _BrokenError(Exception):
    """The block is no call."""


class _Value(Struct, frozen=True):
    """The raw text of an argument: where it ends, and where the next tag begins."""

    end: int
    next: int
    is_closed: bool


@frame_reader
def _read_glm_frame(text: str, start: int, situation: Situation) -> Frame | None:
    """The block of one call that begins here."""
    try:
        call, end = _BlockReader(text, start + len(_OPENING), situation).read_call()
    except _BrokenError:
        return None
    return Frame(end, (call,))


@frame_reader
def _read_hy3_frame(text: str, start: int, situation: Situation) -> Frame | None:
    """The section of blocks that begins here. A bad block among good ones stays text."""
    end = at = start + len("<tool_calls>")
    pieces: list[Piece] = []
    while True:
        at = end_of_match(_BLANKS, text, at)
        if text.startswith("</tool_calls>", at):
            return make_closed_frame(at + len("</tool_calls>"), pieces)
        if not text.startswith(_OPENING, at):
            require_whole_tag(text, at, situation)
            return make_open_frame(end, pieces)
        try:
            call, end = _BlockReader(text, at + len(_OPENING), situation).read_call()
        except _BrokenError:
            begin, at = at, _end_of_broken(text, at + len(_OPENING))
            pieces.append(text[begin:at])
        else:
            pieces.append(call)
            at = end


def _end_of_broken(text: str, start: int) -> int:
    """Where the text of a broken block ends: with its closing tag, or before the next block."""
    closing = text.find(_CLOSING, start)
    following = text.find(_OPENING, start)
    if closing >= 0 and not 0 <= following < closing:
        return closing + len(_CLOSING)
    return following if following >= 0 else len(text)


class _BlockReader:
    """Reads one block. Each method reads on from `at`."""

    def __init__(self, text: str, at: int, situation: Situation) -> None:
        self.text = text
        self.at = at
        self.situation = situation
        self.schemas: Object = {}
        self.values: Object = {}
        self.repairs: dict[str, None] = {}
        """In the order in which they were made, each once."""
        self.is_escaped = False

    def read_call(self) -> tuple[TextCall, int]:
        """The call of the block, and where the text goes on."""
        name = self.read_name()
        self.skip_blanks()
        if self.text.startswith("{", self.at):
            return self.read_json_call(name)
        self.schemas = parameter_schemas(self.situation, name)
        while not self.read_end():
            self.read_argument()
        if self.is_escaped:
            self.note("the call was escaped once too often")
        texts = [value for value in self.values.values() if isinstance(value, str)]
        if self.repairs and any("arg_key>" in one or "arg_value>" in one for one in texts):
            raise _BrokenError  # a repair that leaves tags in a value was a wrong one
        call = make_call(self.situation, name, self.values, tuple(self.repairs))
        if call is None:
            raise _BrokenError
        return call, self.at

    def read_json_call(self, name: str) -> tuple[TextCall, int]:
        """The call of a block whose arguments are one JSON object."""
        body = read_json_body(self.text, self.at, _JSON_ENDS, self.situation)
        is_whole = body is not None and body.is_closed
        call = make_json_call(self.situation, name, body.text, (_JSON_REPAIR,)) if body and is_whole else None
        if body is None or call is None:
            raise _BrokenError
        return call, body.end + len(_CLOSING) if self.text.startswith(_CLOSING, body.end) else body.end

    def note(self, repair: str) -> None:
        self.repairs[repair] = None

    def skip_blanks(self) -> None:
        begin, self.at = self.at, end_of_match(_BLANKS, self.text, self.at)
        self.is_escaped = self.is_escaped or "\\n" in self.text[begin : self.at]

    def require_whole_tag(self) -> None:
        require_whole_tag(self.text, self.at, self.situation)

    # --- the name ---

    def read_name(self) -> str:
        require_whole_match(_OPEN_NAME, self.text, self.at, self.situation)
        found = _NAME.match(self.text, self.at)
        if found is None:
            raise _BrokenError
        self.at = found.end()
        self.require_whole_tag()
        if self.text.startswith("</arg_key>", self.at):
            name = self.split_name(found["name"])
            self.at = found.start("name") + len(name)
            return name
        if self.situation.tools.find_tool(found["name"]) is None:
            raise _BrokenError
        if self.text.startswith("<tool_sep>", self.at):
            self.at += len("<tool_sep>")
        return found["name"]

    def split_name(self, glued: str) -> str:
        """The tool's name in `bashcommand</arg_key>`: the only offered name whose parameter follows."""
        names = [glued[:size] for size in range(1, len(glued)) if glued[:size] in self.situation.tools.names]
        fits = [name for name in names if glued[len(name) :] in parameter_schemas(self.situation, name)]
        if len(fits) != 1:
            raise _BrokenError
        return fits[0]

    # --- the end ---

    def read_end(self) -> bool:
        """Passes the end of the block. The closing tag may be missing if another block, or the end, follows."""
        self.skip_blanks()
        if self.text.startswith(_CLOSING, self.at):
            self.at += len(_CLOSING)
            return True
        if self.at == len(self.text) and not self.situation.is_end:
            raise NeedsTextError
        is_last = is_answer_over(self.text, self.at, self.situation)
        if not is_last and not _NEXT_CALL.match(self.text, self.at):
            return False
        if self.read_doubled_opening():
            return False
        if not self.values or (is_last and self.situation.was_cut):
            raise _BrokenError
        self.note(f"the closing `{_CLOSING}` was missing")
        return True

    def read_doubled_opening(self) -> bool:
        """Passes a `<tool_call>` that stands for `<arg_key>`."""
        begin = self.at + len(_OPENING)
        if not self.text.startswith(_OPENING, self.at):
            return False
        require_whole_match(_OPEN_KEY, self.text, begin, self.situation)
        found = _WORD_KEY.match(self.text, begin)
        if found is None or found["key"] not in self.schemas:
            return False
        self.note(f"`{_OPENING}` stood for `<arg_key>`")
        self.at = begin
        return True

    # --- arguments ---

    def read_argument(self) -> None:
        key = self.read_key()
        self.skip_blanks()
        if _NEXT.match(self.text, self.at):
            self.note(f"the key `{key}` without a value was left out")
            return
        self.require_whole_tag()
        tags = _VALUE_TAGS.match(self.text, self.at)
        if tags is None or tags[0] != "<arg_value>":
            self.note("the opening `<arg_value>` was missing or doubled")
        begin = tags.end() if tags else self.at
        value = self.find_value_end(begin, self.schemas.keys() - self.values.keys() - {key})
        raw = self.text[begin : value.end]
        if not value.is_closed:
            self.note("the closing `</arg_value>` was missing")
            raw = raw.removesuffix("\n")
        if key in self.values:
            raise _BrokenError
        self.values[key] = self.read_typed(raw, object_or_empty(self.schemas.get(key)))
        self.at = value.next

    def read_key(self) -> str:
        found = _KEY.match(self.text, self.at)
        if found is None:
            require_whole_match(_OPEN_KEY, self.text, self.at, self.situation)
            raise _BrokenError
        if found[0].count("<arg_key>") != 1 or found[0].count("</arg_key>") != 1:
            self.note("the tags of a key were missing or doubled")
        self.at = found.end()
        return found["key"]

    def read_typed(self, raw: str, schema: Object) -> Json:
        unescaped = _unescape(lambda found: _ESCAPES.get(found[1], found[1]), raw)
        value = read_typed_text(unescaped if self.is_escaped else raw, schema)
        if isinstance(value, str) and not self.is_escaped and '\\"' in raw:
            typed = read_typed_text(unescaped, schema)
            return value if isinstance(typed, str) else typed
        return value

    def find_value_end(self, at: int, sibling_keys: set[str]) -> _Value:
        value = self.find_sure_end(at, sibling_keys, skips_examples=True)
        if value is None and self.situation.is_end:
            value = self.find_sure_end(at, sibling_keys, skips_examples=False)
        if value is None and self.situation.is_end:
            # Text follows the closing tag of the block, so it could be part of the value; but no other end comes.
            closing = self.text.find(_CLOSING, at)
            value = _Value(closing, closing, False) if closing >= 0 else None
        if value is None:
            raise _BrokenError
        return value

    def find_sure_end(self, at: int, sibling_keys: set[str], *, skips_examples: bool) -> _Value | None:
        """`skips_examples`: whole calls inside of the value (documentation, a test) are part of it."""
        depth = 0
        count = 0
        for tag in islice(_find_tags(self.text, at), _MAX_TAGS_IN_VALUE):
            count += 1
            if tag[0] == _OPENING:
                depth += skips_examples
            elif depth:
                depth -= tag[0] == _CLOSING
            elif value := self.end_value(tag, sibling_keys):
                return value
        if not self.situation.is_end and count < _MAX_TAGS_IN_VALUE:
            raise NeedsTextError(_MARKS)
        return None

    def end_value(self, tag: re.Match[str], sibling_keys: set[str]) -> _Value | None:
        """The value if this tag ends it: what follows the tag decides."""
        start, end = tag.span()
        if tag[0] == "<arg_key>":
            return _Value(start, start, False) if self.has_key(start, sibling_keys) else None
        is_own = tag[0] == "</arg_value>"
        end = end_of_match(_VALUE_ENDS, self.text, start) if is_own else end
        after = end_of_match(_BLANKS, self.text, end)
        require_whole_tag(self.text, after, self.situation)
        follows = _NEXT if is_own else _NEXT_CALL
        if is_answer_over(self.text, after, self.situation) or follows.match(self.text, after):
            return _Value(start, end if is_own else start, is_own)
        return _Value(start, end, True) if is_own and self.has_key(after, sibling_keys) else None

    def has_key(self, at: int, keys: set[str]) -> bool:
        require_whole_match(_OPEN_KEY, self.text, at, self.situation)
        found = _WORD_KEY.match(self.text, at)
        return found is not None and found["key"] in keys


FORMATS: Final = (
    ToolFormat("glm", (_OPENING,), _read_glm_frame),
    ToolFormat("hy3", ("<tool_calls>",), _read_hy3_frame),
)
