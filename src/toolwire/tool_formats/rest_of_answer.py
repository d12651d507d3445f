"""Reads the rest of an answer as one call, in a fence or bare: only with `tool_format = "eager"`.

Small models often write some prose and then the JSON of a call, and stop. Without marks that is what an example looks
like, too, so the demands are high: nothing but one call until the end, of an offered tool, with arguments that its
schema allows. What stands before it is judged by `mentions`, as before every other frame."""

from __future__ import annotations

import re
from typing import Final

from toolwire.call_repair.calls import repair_call
from toolwire.tool_formats.formats.bare_json import read_whole
from toolwire.tool_formats.frame import Frame, PieceReader, Situation, TextCall, ToolFormat, Waiting
from toolwire.tool_formats.json_calls import read_calls
from toolwire.tool_formats.json_text import ANY_TEXT, find_value_end, skip_blanks
from toolwire.tool_formats.vocabulary import read_nothing
from toolwire.tool_formats.whole_fence import read_fence

_MAX_BEHIND: Final = 200
"""Characters behind a call that are held back: what ends a fence or an answer is shorter."""
_match_opening = re.compile(r"(```)[ \t]*(?:json|xml|tool_calls?|tool_use|function_calls?)?[ \t]*\r?\n").match
_find_closing = re.compile(r"\n[ \t]*```[ \t]*\r?\n").search


def _read_bare(text: str, start: int, situation: Situation) -> Frame | Waiting | None:
    end = find_value_end(text, start)
    if end >= 0 and len(text[end:].strip()) > _MAX_BEHIND:
        return _show_call(text, start, start, situation)
    verdict = read_whole(text, start, situation)
    if isinstance(verdict, Waiting):
        return Waiting(ANY_TEXT)
    return _keep_one_call(verdict, situation) or _show_call(text, start, start, situation)


def read_last_fence(text: str, start: int, situation: Situation, inner: PieceReader) -> Frame | Waiting | None:
    """The call in the fence that begins here and ends the answer. `inner` as for `read_fence`."""
    opening, closing = _match_opening(text, start), _find_closing(text, start)
    body = opening.end() if opening else start
    if closing and len(text[closing.end() :].strip()) > _MAX_BEHIND:
        return _show_call(text, start, body, situation)
    verdict = read_fence(text, start, situation, inner, _match_opening)
    if isinstance(verdict, Waiting):
        return verdict
    return _keep_one_call(verdict, situation) or _show_call(text, start, body, situation)


def _keep_one_call(frame: Frame | None, situation: Situation) -> Frame | None:
    """The frame, if it is one call that can be run as it is."""
    if frame is None or len(frame.pieces) != 1 or not isinstance(call := frame.pieces[0], TextCall):
        return None
    return None if repair_call(call.name, call.arguments, situation.tools).problem else frame


def _show_call(text: str, start: int, at: int, situation: Situation) -> Frame | None:
    """A frame of nothing but text, if the JSON here is a call all the same: the answer shows several, or goes on."""
    at = skip_blanks(text, at)
    end = find_value_end(text, at) if text.startswith(("{", "["), at) else -1
    is_call = end >= 0 and read_calls(text[at:end], situation, is_bare=True) is not None
    return Frame(end, (text[start:end],)) if is_call else None


LAST_FENCE: Final = ToolFormat("fence", ("```",), read_nothing, "line", is_bare_json=True, is_last=True)
FORMATS: Final = (ToolFormat("json", ("{", "["), _read_bare, "line", is_bare_json=True, is_last=True), LAST_FENCE)
