"""Qwen 1.x: `✿FUNCTION✿: NAME⏎✿ARGS✿: {…}`."""

from __future__ import annotations

import re
from typing import Final

from toolwire.tool_formats.found_calls import read_json_frame
from toolwire.tool_formats.frame import Frame, Situation, ToolFormat, Waiting
from toolwire.tool_formats.json_text import ANY_TEXT

_OPENING: Final = "✿FUNCTION✿"
_MAX_HEAD: Final = 300
_match_head = re.compile(r"✿FUNCTION✿\s*:\s*(\S+)\s*\n\s*✿ARGS✿\s*:\s*(\{)").match
_match_tail = re.compile(r"\s*✿(?:RESULT|RETURN)✿:?").match
_match_part_of_tail = re.compile(r"\s*(?:✿[A-Z]{0,6}(?:✿)?)?\Z").match


def read_frame(text: str, start: int, situation: Situation) -> Frame | Waiting | None:
    head = _match_head(text, start)
    if head is None:
        return None if situation.is_end or len(text) - start > _MAX_HEAD else Waiting(ANY_TEXT)
    if situation.tools.find_tool(head[1]) is None:
        return None
    frame = read_json_frame(text, head.start(2), head[1], situation)
    if not isinstance(frame, Frame):
        return frame
    if not situation.is_end and _match_part_of_tail(text, frame.end):
        return Waiting(ANY_TEXT)
    tail = _match_tail(text, frame.end)
    return Frame(tail.end(), frame.pieces) if tail else frame


FORMATS: Final = (ToolFormat("qwen1", (_OPENING,), read_frame),)
