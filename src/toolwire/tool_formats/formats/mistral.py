"""Mistral: `[TOOL_CALLS] [{"name": …}]`, and newer `[TOOL_CALLS]NAME[CALL_ID]id[ARGS]{…}`."""

from __future__ import annotations

import re
from typing import Final

from toolwire.tool_formats.first_name import find_first_name
from toolwire.tool_formats.formats.marked_json import MarkedJson
from toolwire.tool_formats.found_calls import make_json_call, read_json_frame
from toolwire.tool_formats.frame import Frame, Piece, Situation, ToolFormat, Waiting
from toolwire.tool_formats.json_text import ANY_TEXT, skip_blanks
from toolwire.tool_formats.reasoning_marks import END_TOKENS, strip_end_tokens

_MARK: Final = "[TOOL_CALLS]"
_MAX_HEAD: Final = 300
"""Characters of a name and an id."""
_MAX_JUNK: Final = 40
_MAX_CALLS: Final = 100
"""Calls without marks in one answer."""

_match_head = re.compile(
    r"\s*+(?P<name>[^\W\d][\w.:/-]*+)\s*+(?:\[CALL_ID\]\s*+(?P<id>\w++)\s*+)?(?P<args>\[ARGS\])?\s*+(?P<brace>\{)?"
).match
_match_part_of_head = re.compile(r"\s*+[\w.:/-]*+\s*+(?:\[[A-Z_]*+\]?+\s*+\w*+\s*+){0,2}\Z").match
_match_repeated_mark = re.compile(r"(?:\s*+\[TOOL_CALLS\])*+").match
_match_junk = re.compile(rf"[^\[{{\n]{{1,{_MAX_JUNK}}}(?=\[\s*\{{)").match
_match_part_of_junk = re.compile(rf"[^\[{{\n]{{0,{_MAX_JUNK}}}(?:\[\s*)?\Z").match

_array = MarkedJson((_MARK,), "", needs_closing=False)


def read_array(text: str, start: int, situation: Situation) -> Frame | Waiting | None:
    """`[TOOL_CALLS] [{…}]`. The mark may come twice, or a few characters between it and the array."""
    repeated = _match_repeated_mark(text, start)
    at = skip_blanks(text, repeated.end() if repeated else start)
    if at == len(text) or _MARK.startswith(text[at:]):
        return None if situation.is_end else Waiting(ANY_TEXT)
    if text[at] in "[{":
        return _array.read_open(text, at, situation)
    junk = _match_junk(text, at)
    if junk is None:
        return Waiting(ANY_TEXT) if not situation.is_end and _match_part_of_junk(text, at) else None
    frame = _array.read_open(text, junk.end(), situation)
    return Frame(frame.end, (junk[0], *frame.pieces)) if isinstance(frame, Frame) else frame


def read_named(text: str, start: int, situation: Situation) -> Frame | Waiting | None:
    """`[TOOL_CALLS]NAME[ARGS]{…}`, with or without the id and the second mark."""
    at = start + len(_MARK)
    head = _match_head(text, at)
    may_go_on = not situation.is_end and len(text) - at < _MAX_HEAD and _match_part_of_head(text, at)
    if head is None:
        return Waiting(ANY_TEXT) if may_go_on else None
    if head["brace"] is None and may_go_on:
        return Waiting(ANY_TEXT)
    if situation.tools.find_tool(head["name"]) is None:
        return None
    if head["brace"]:
        return read_json_frame(text, head.end() - 1, head["name"], situation, (), head["id"] or "")
    rest = strip_end_tokens(text[head.end() :])
    if (rest and not rest.startswith(_MARK)) or situation.was_cut:
        return None
    call = make_json_call(situation, head["name"], "{}", ("the arguments were missing",), head["id"] or "")
    return None if call is None else Frame(head.end(), (call,))


def read_name_first(text: str, start: int, situation: Situation) -> Frame | Waiting | None:
    """At the beginning of an answer: the name before the mark, `NAME[TOOL_CALLS]{…}`, or, where the server dropped the
    marks, `NAME{…}`, one or more, as the whole answer."""
    pieces: tuple[Piece, ...] = ()
    at = start
    for _ in range(_MAX_CALLS):
        frame, has_mark = _read_named_object(text, at, situation)
        if not isinstance(frame, Frame):
            return frame
        pieces += frame.pieces
        if has_mark:
            return Frame(frame.end, pieces)
        at = skip_blanks(text, frame.end)
        rest = strip_end_tokens(text[at:])
        if not situation.is_end and any(token.startswith(rest) for token in END_TOKENS):
            return Waiting(ANY_TEXT)
        if not rest:
            return Frame(frame.end, pieces)
    return None


def _read_named_object(text: str, start: int, situation: Situation) -> tuple[Frame | Waiting | None, bool]:
    """A name and its JSON object, and whether a mark stands between them."""
    name = find_first_name(text, start, situation)
    if not isinstance(name, str):
        return name, False
    at = start + len(name)
    mark = next((one for one in (_MARK, "[ARGS]") if text.startswith(one, at)), "")
    at = skip_blanks(text, at + len(mark))
    if at == len(text) or (not mark and any(one.startswith(text[at:]) for one in (_MARK, "[ARGS]"))):
        return (None if situation.is_end else Waiting(ANY_TEXT)), False
    if text[at] != "{":
        return None, False
    said = "the name came before the mark" if mark else "the marks `[TOOL_CALLS]` and `[ARGS]` were missing"
    return read_json_frame(text, at, name, situation, (said,)), bool(mark)


FORMATS: Final = (
    ToolFormat("mistral_json", (_MARK,), read_array),
    ToolFormat("mistral_args", (_MARK,), read_named),
    ToolFormat("mistral_args", ("",), read_name_first, "start"),
)
