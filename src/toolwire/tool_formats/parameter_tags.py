"""Reads calls that are written as tags: a section with calls, a call with parameters, a parameter with its raw value.

Qwen3-Coder, Seed, MiniMax M2, Anthropic, DeepSeek V3.2 (DSML), Step-3, dots, MiniCPM5, Muse Glimmer and Kimi K3 differ
only in their tags. No format escapes a value, so a value can hold every tag: a tag ends it only if the grammar allows
what follows the tag.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from toolwire.call_repair.typed_text import read_typed_text
from toolwire.core.json_values import Json, Object
from toolwire.schema.keywords import object_or_empty
from toolwire.tool_formats.found_calls import (
    add_repair,
    make_call,
    make_closed_frame,
    make_json_call,
    make_open_frame,
    parameter_schemas,
)
from toolwire.tool_formats.frame import Frame, FrameReader, Piece, Situation, TextCall
from toolwire.tool_formats.json_bodies import BodyEnds, read_json_body
from toolwire.tool_formats.json_text import skip_blanks
from toolwire.tool_formats.named_tags import read_named_tags
from toolwire.tool_formats.tag_text import NeedsTextError, end_of_match, frame_reader, is_answer_over, require_whole_tag

_MAX_TAGS_IN_VALUE: Final = 500
"""Tags that may stand in one value. It bounds the work for a text of nothing but tags."""
_MAX_COPIED: Final = 2
"""Calls that are looked at behind a call that may end within a value."""
_MAX_WORDS: Final = 200
"""Characters of text between the tags of a section."""
_AFTER_WORDS: Final = ("<", "{", "[", "(", "\n")
_WORDS: Final = re.compile(r"[^<{\[(\n]{1,200}+\s*+")


class TagGrammar(Struct, frozen=True):
    """The tags of a format."""

    section: re.Pattern[str]
    section_end: re.Pattern[str]
    call: re.Pattern[str]
    """With the group `name`; the group `closed` for `<invoke name="x"/>`."""
    call_end: re.Pattern[str]
    parameter: re.Pattern[str]
    """With the group `key`."""
    parameter_end: re.Pattern[str]
    marks: tuple[str, ...]
    """How the last tag of a call or a section ends: what to wait for."""
    between: re.Pattern[str] = re.compile(r"\s*+")
    """What stands between the calls of a section beside blanks (the separators of Step-3)."""
    tag_end: str = ">"
    """What every tag ends with."""
    has_section: bool = True
    """False: calls stand alone (MiniCPM5)."""
    allows_json: bool = False
    """The arguments may be one JSON object (Kimi K3)."""
    read_attribute: Callable[[str], str] = str.strip
    """The name of a tool or parameter as it stands in a tag."""
    strip_markup: Callable[[str], str] = str
    """Takes away what belongs to the tags: the newlines of Qwen3-Coder, CDATA of MiniCPM5."""
    read_value: Callable[[str, Object, re.Match[str]], Json] = lambda text, schema, tag: read_typed_text(text, schema)
    """The text of a parameter as a JSON value, by its schema and its tag."""


class _Value(Struct, frozen=True):
    """The raw text of a parameter: where it ends, and where the next tag begins."""

    end: int
    next: int
    repairs: tuple[str, ...] = ()


class _Body(Struct, frozen=True):
    """What a call holds, and where the text goes on after it."""

    end: int
    values: Object = {}
    json: str | None = None
    repairs: tuple[str, ...] = ()


class _Broken(Struct, frozen=True):
    """No call. Its text ends here."""

    end: int


_Follows: TypeAlias = Literal["parameter", "call_end", "section_end", "call", "section", "end", "text"]
"""What stands at a place of the text."""
_VALUE_ENDS: Final = {
    "tag_parameter_end": frozenset({"parameter", "call_end", "section_end", "call", "section", "end"}),
    "tag_call_end": frozenset({"section_end", "call", "section", "end"}),
}
"""What must follow a tag that ends a value."""
_MISSING_END: Final = ("the end of a parameter was missing",)
_find_attributes: Final = re.compile(r"\s([\w.:-]+)\s*=").findall
_ATTRIBUTES_WITHOUT_ARGUMENTS: Final = frozenset({"name", "id", "call_id", "tool_call_id", "tool", "type", "index"})


class TagReader:
    """Reads the frames of one grammar."""

    def __init__(self, grammar: TagGrammar) -> None:
        self.grammar = grammar
        self.read_frame: FrameReader = frame_reader(self._read_frame)
        tags = ("parameter", "parameter_end", "call", "call_end")
        self._find_tags = re.compile(
            "|".join(f"(?P<tag_{tag}>{_without_groups(getattr(grammar, tag).pattern)})" for tag in tags)
        ).finditer
        self._find_next = re.compile(
            "|".join(_without_groups(getattr(grammar, tag).pattern) for tag in ("section_end", "call", "section"))
        ).search

    # --- frames ---

    def _read_frame(self, text: str, start: int, situation: Situation) -> Frame | None:
        """The section, or the call without a section, that begins here."""
        section = self.grammar.section.match(text, start)
        if section:
            # Some models write the opening tag twice.
            doubled = self.grammar.section.match(text, skip_blanks(text, section.end()))
            return self._read_section(text, (doubled or section).end(), situation)
        call = self.grammar.call.match(text, start)
        if call:
            return self._read_bare_call(text, call, situation)
        require_whole_tag(text, start, situation, self.grammar.tag_end)
        return None

    def _read_bare_call(self, text: str, call: re.Match[str], situation: Situation) -> Frame | None:
        if situation.tools.find_tool(self.grammar.read_attribute(call["name"])) is None:
            return None
        made, end = self._read_call(text, call, situation)
        if made is None:
            return None
        after = skip_blanks(text, end)
        closing = self.grammar.section_end.match(text, after)
        if closing is None:
            require_whole_tag(text, after, situation, self.grammar.tag_end)
        if self.grammar.has_section:
            made = add_repair(made, "the tag around the call was missing")
        return Frame(closing.end() if closing else end, (made,))

    def _read_section(self, text: str, at: int, situation: Situation) -> Frame | None:
        """The calls of a section. A bad call among good ones stays text, as do words between them."""
        grammar = self.grammar
        pieces: list[Piece] = []
        end = at
        while True:
            at = end_of_match(grammar.between, text, at)
            closing = grammar.section_end.match(text, at)
            if closing:
                return make_closed_frame(closing.end(), pieces)
            call = grammar.call.match(text, at)
            if call:
                made, at = self._read_call(text, call, situation)
                pieces.append(made or text[call.start() : at])
                end = at if made else end
                continue
            require_whole_tag(text, at, situation, grammar.tag_end)
            words_end = self._end_of_words(text, at, situation)
            if words_end is None:
                return make_open_frame(end, pieces)
            pieces.append(text[at:words_end])
            at = words_end

    def _end_of_words(self, text: str, at: int, situation: Situation) -> int | None:
        """Where a few words between the tags of a section end; None if they are no part of the section."""
        end = end_of_match(_WORDS, text, at)
        if end == at or end - at >= _MAX_WORDS:
            return None
        if end == len(text):
            if situation.is_end:
                return None
            raise NeedsTextError(_AFTER_WORDS)
        require_whole_tag(text, end, situation, self.grammar.tag_end)
        follows = self.grammar.call.match(text, end) or self.grammar.section_end.match(text, end)
        return end if follows else None

    # --- calls ---

    def _read_call(self, text: str, call: re.Match[str], situation: Situation) -> tuple[TextCall | None, int]:
        """The call that begins here, and where the text goes on; no call if it is broken or not offered."""
        name = self.grammar.read_attribute(call["name"])
        body = self._read_body(text, call, parameter_schemas(situation, name), situation)
        if isinstance(body, _Broken):
            return None, body.end
        has_arguments = body.json is not None or bool(body.values)
        if not has_arguments and not _ATTRIBUTES_WITHOUT_ARGUMENTS.issuperset(_find_attributes(call[0])):
            return None, body.end  # they are in the tag (`arguments='{"city": "Paris"}'`): no call without them
        if body.json is not None:
            return make_json_call(situation, name, body.json, body.repairs), body.end
        return make_call(situation, name, body.values, body.repairs), body.end

    def _read_body(self, text: str, call: re.Match[str], schemas: Object, situation: Situation) -> _Body | _Broken:
        if call.groupdict().get("closed"):
            return _Body(call.end())
        at = skip_blanks(text, call.end())
        if text.startswith("{", at):
            return self._read_json_body(text, call, at, situation)
        follows = self._what_follows(text, at, situation)
        if follows == "text" and text.startswith("<", at):
            return self._read_named_body(text, call, at, schemas, situation)
        values: Object = {}
        repairs: tuple[str, ...] = ()
        while follows == "parameter":
            found = self._read_parameter(text, at, schemas, values, situation)
            if found is None:
                return self._end_broken(text, call, situation)
            repairs += found.repairs
            at = skip_blanks(text, found.next)
            follows = self._what_follows(text, at, situation)
        if follows == "call_end":
            return _Body(end_of_match(self.grammar.call_end, text, at), values, None, repairs)
        is_sure = bool(values) or follows == "section_end"
        if follows == "text" or not is_sure or (follows == "end" and situation.was_cut):
            return self._end_broken(text, call, situation)
        return _Body(at, values, None, (*repairs, "the end of the call was missing"))

    def _read_json_body(self, text: str, call: re.Match[str], at: int, situation: Situation) -> _Body | _Broken:
        """Some models write the arguments of a tag format as one JSON object."""
        grammar = self.grammar
        body = read_json_body(text, at, BodyEnds(grammar.call_end, grammar.marks, grammar.tag_end), situation)
        if body is None or not body.is_closed:
            return self._end_broken(text, call, situation)
        repairs = () if grammar.allows_json else ("the arguments were JSON instead of tags",)
        return _Body(end_of_match(grammar.call_end, text, body.end), {}, body.text, repairs)

    def _read_named_body(
        self, text: str, call: re.Match[str], at: int, schemas: Object, situation: Situation
    ) -> _Body | _Broken:
        """Parameters as tags with their names: MiniMax M3 without its special token."""
        named = read_named_tags(text, at, schemas, self.grammar.call_end, situation)
        if named is None:
            return self._end_broken(text, call, situation)
        end = end_of_match(self.grammar.call_end, text, named.end)
        return _Body(end, named.values, None, ("the parameters were tags with their names",))

    def _end_broken(self, text: str, call: re.Match[str], situation: Situation) -> _Broken:
        """Where the text of a broken call ends: with its closing tag, or before the next tag of the section."""
        closing = self.grammar.call_end.search(text, call.end())
        following = self._find_next(text, call.end())
        if closing and not (following and following.start() < closing.start()):
            return _Broken(closing.end())
        if following is None and not situation.is_end:
            raise NeedsTextError(self.grammar.marks)
        return _Broken(following.start() if following else len(text))

    # --- parameters ---

    def _read_parameter(
        self, text: str, at: int, schemas: Object, values: Object, situation: Situation
    ) -> _Value | None:
        """Reads the parameter that begins here into `values`; None if it does not end, or comes a second time."""
        tag = self.grammar.parameter.match(text, at)
        if tag is None or (key := self.grammar.read_attribute(tag["key"])) in values:
            return None
        sibling_keys = schemas.keys() - values.keys() - {key}
        value = self._find_value_end(text, tag.end(), sibling_keys, situation, skips_examples=True)
        if value is None and situation.is_end:
            value = self._find_value_end(text, tag.end(), sibling_keys, situation, skips_examples=False)
        if value is None:
            return None
        raw = self.grammar.strip_markup(text[tag.end() : value.end])
        values[key] = self.grammar.read_value(raw, object_or_empty(schemas.get(key)), tag)
        return value

    def _find_value_end(
        self, text: str, at: int, sibling_keys: set[str], situation: Situation, *, skips_examples: bool
    ) -> _Value | None:
        """`skips_examples`: the tags of a whole call inside of the value (documentation, a test) are part of it."""
        depth = 0
        count = 0
        early: _Value | None = None
        """The call ends before the parameter. Its own end may still come: then the value holds the end of a call."""
        for tag in islice(self._find_tags(text, at), _MAX_TAGS_IN_VALUE):
            count += 1
            kind = tag.lastgroup or ""
            if early and kind in ("tag_call", "tag_parameter"):
                return early
            if kind == "tag_call":
                depth += skips_examples
            elif depth:
                depth -= kind == "tag_call_end"
            elif kind == "tag_parameter":
                if self._has_key(text, tag.start(), sibling_keys):
                    return _Value(tag.start(), tag.start(), _MISSING_END)
            elif self._what_follows(text, skip_blanks(text, tag.end()), situation) in _VALUE_ENDS[kind]:
                if kind != "tag_parameter_end":
                    early = early or _Value(tag.start(), tag.start(), _MISSING_END)
                elif self._is_copied_end(text, skip_blanks(text, tag.end()), situation):
                    depth = 1  # until the end of the copied call, which comes next
                else:
                    return _Value(tag.start(), tag.end())
        self._require_all_tags(count, situation)
        return early

    def _require_all_tags(self, count: int, situation: Situation) -> None:
        if not situation.is_end and count < _MAX_TAGS_IN_VALUE:
            raise NeedsTextError(self.grammar.marks)

    def _is_copied_end(self, text: str, at: int, situation: Situation) -> bool:
        """Does the end of a call that begins here stand in a value? A value that was copied from an answer with calls
        can hold the end of one, and whole ones behind it; then the end of its own parameter follows. Without this, what
        a tool has read could call other tools."""
        grammar = self.grammar
        closing = grammar.call_end.match(text, at)
        for count in range(_MAX_COPIED + 1):
            if closing is None:
                return False
            at = end_of_match(grammar.between, text, closing.end())
            at = end_of_match(grammar.between, text, end_of_match(grammar.section_end, text, at))
            if count and grammar.parameter_end.match(text, at):
                return True
            at = end_of_match(grammar.between, text, end_of_match(grammar.section, text, at))
            call = grammar.call.match(text, at)
            if call is None:
                require_whole_tag(text, at, situation, grammar.tag_end)
                return False
            closing = grammar.call_end.search(text, call.end())
            if closing is None and not situation.is_end:
                raise NeedsTextError(grammar.marks)
        return False

    def _has_key(self, text: str, at: int, keys: set[str]) -> bool:
        found = self.grammar.parameter.match(text, at)
        return found is not None and self.grammar.read_attribute(found["key"]) in keys

    def _what_follows(self, text: str, at: int, situation: Situation) -> _Follows:
        """What stands here; blanks were skipped."""
        grammar = self.grammar
        if grammar.parameter.match(text, at):
            return "parameter"
        if grammar.call_end.match(text, at):
            return "call_end"
        at = end_of_match(grammar.between, text, at)
        if grammar.section_end.match(text, at):
            return "section_end"
        if grammar.call.match(text, at):
            return "call"
        if grammar.section.match(text, at):
            return "section"
        require_whole_tag(text, at, situation, grammar.tag_end)
        return "end" if is_answer_over(text, at, situation) else "text"


def _without_groups(pattern: str) -> str:
    return re.sub(r"\(\?P<\w+>", "(?:", pattern)
