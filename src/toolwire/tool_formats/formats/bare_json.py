"""JSON without marks as the whole answer (Llama 3, xLAM, prompted models), or anywhere if a call is required."""

from __future__ import annotations

import re
from typing import Final, Literal

from toolwire.tool_formats.frame import Frame, Situation, ToolFormat, Waiting
from toolwire.tool_formats.json_calls import CALL_KEYS, NAME_KEYS, read_calls
from toolwire.tool_formats.json_text import ANY_TEXT, find_value_end
from toolwire.tool_formats.reasoning_marks import strip_end_tokens

_match_first_key = re.compile(r"[\[\s]*+\{\s*+[\"']?+(\w++)(?:[\"']?+\s*+:\s*+\"([^\"\\]*+)\")?").match
_match_part_of_first_key = re.compile(r"[\[\s]*+(?:\{\s*+[\"']?+\w*+)?\Z").match
_MAX_KEY: Final = 200
_match_wrapper_ends = re.compile(
    r"(?:\s|</?(?:\w*tool\w*|\w*function\w*|json|xml|response|answer)>)*\Z", re.IGNORECASE
).match
_match_more_values = re.compile(r"[\s,;\]}]*(?:[\[{]|\Z)").match
"""Other text behind a value makes it a quotation."""


def read_whole(text: str, start: int, situation: Situation) -> Frame | Waiting | None:
    """The whole answer is a call, or several."""
    begin = _begins_call(text, start, situation)
    if begin is not True:
        return begin
    if not situation.is_end:
        return Waiting()
    body = strip_end_tokens(text[start:])
    end = find_value_end(body, 0)
    if situation.was_cut and (end < 0 or body[end:].strip()):
        return None
    if end >= 0 and _match_wrapper_ends(body, end):
        body = body[:end]
    elif end >= 0 and not _match_more_values(body, end):
        return None
    pieces = read_calls(body, situation, is_bare=True)
    return None if pieces is None else Frame(len(text), pieces)


def _begins_call(text: str, start: int, situation: Situation) -> Waiting | Literal[True] | None:
    """Can the JSON that begins here be a call? Its first key decides, and its value if that is the name."""
    key = _match_first_key(text, start)
    if key is None or key.end(1) == len(text):
        is_open = not situation.is_end and len(text) - start < _MAX_KEY and _match_part_of_first_key(text, start)
        return Waiting(ANY_TEXT) if is_open else None
    if key[1] not in CALL_KEYS:
        return None
    return None if key[1] in NAME_KEYS and key[2] and situation.tools.find_tool(key[2]) is None else True


_match_fence = re.compile(r"(```+|~~~+)[ \t]*\w*[ \t]*\n\s*(?=[\[{])").match
_match_part_of_fence = re.compile(r"(```+|~~~+)[ \t]*\w*[ \t]*(?:\n\s*)?\Z").match
_match_closing_fence = re.compile(r"\s*(?:```+|~~~+)[ \t]*").match
_match_part_of_closing = re.compile(r"\s*[`~]{0,2}\Z").match


def read_required(text: str, start: int, situation: Situation) -> Frame | Waiting | None:
    """A call is required, so JSON that is one is meant, also behind text and in a fence."""
    at = start
    if text[start] in "`~":
        fence = _match_fence(text, start)
        if fence is None:
            return Waiting(ANY_TEXT) if not situation.is_end and _match_part_of_fence(text, start) else None
        at = fence.end()
    begin = _begins_call(text, at, situation)
    if begin is not True:
        return begin
    end = find_value_end(text, at)
    if end < 0:
        return None if situation.is_end else Waiting(("}" if text[at] == "{" else "]",))
    pieces = read_calls(text[at:end], situation, is_bare=True)
    if pieces is None or at == start:
        return None if pieces is None else Frame(end, pieces)
    closing = _match_closing_fence(text, end)
    if closing is None and not situation.is_end and _match_part_of_closing(text, end):
        return Waiting(ANY_TEXT)
    return Frame(closing.end() if closing else end, pieces)


FORMATS: Final = (
    ToolFormat("json", ("{", "["), read_whole, "start", is_bare_json=True),
    ToolFormat("json", ("{", "["), read_required, is_bare_json=True, needs_required_call=True),
    ToolFormat("json", ("```", "~~~"), read_required, "line", is_bare_json=True, needs_required_call=True),
)
