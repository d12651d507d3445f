"""Muse Glimmer: messages `<|start|>assistant to=RECIPIENT<|message|>…<|eom|>`. To `self` it thinks, to `user` it
answers, to a tool it writes `<atem:function_calls>` with `<atem:invoke name="NAME">`. The first `<|start|>assistant`
is in the prompt."""

from __future__ import annotations

import re
from typing import Final

from toolwire.tool_formats.formats.invoke_tags import INVOKE_TAGS
from toolwire.tool_formats.frame import Frame, ReasoningText, Situation, ToolFormat, Waiting
from toolwire.tool_formats.json_text import skip_blanks
from toolwire.tool_formats.parameter_tags import TagReader
from toolwire.tool_formats.tag_text import (
    NeedsTextError,
    end_of_match,
    frame_reader,
    require_whole_match,
    require_whole_tag,
)

_HEAD: Final = re.compile(r"(?:<\|start\|>\s*assistant)?\s*to=(?P<recipient>[^\s<>|]{1,200})\s*<\|message\|>")
_OPEN_HEAD: Final = re.compile(r"(?:<\|start\|>\s*[a-z]*)?\s*(?:t|to|to=[^\s<>|]{0,200}\s*)?(?:<[^>\s]{0,12})?\Z")
_END: Final = re.compile(r"\s*<\|eo[mt]\|>")
_find_end = re.compile(r"<\|eo[mt]\|>|<\|start\|>").search
_read_calls = TagReader(INVOKE_TAGS).read_frame


@frame_reader
def _read_frame(text: str, start: int, situation: Situation) -> Frame | Waiting | None:
    """One message, or only its head where the answer begins."""
    end = _END.match(text, start)
    if end:
        return Frame(end.end(), ())
    head = _HEAD.match(text, start)
    if head is None:
        require_whole_match(_OPEN_HEAD, text, start, situation)
        return None
    if head["recipient"] == "user":
        return Frame(head.end(), ())
    if head["recipient"] == "self":
        return _read_reasoning(text, head.end(), situation)
    at = skip_blanks(text, head.end())
    require_whole_tag(text, at, situation)
    calls = _read_calls(text, at, situation) if text.startswith("<atem:", at) else None
    if not isinstance(calls, Frame):
        return calls
    require_whole_tag(text, skip_blanks(text, calls.end), situation)
    return Frame(end_of_match(_END, text, calls.end), calls.pieces)


def _read_reasoning(text: str, at: int, situation: Situation) -> Frame:
    found = _find_end(text, at)
    if found is None and not situation.is_end:
        raise NeedsTextError(("<|eom|>", "<|eot|>", "<|start|>"))
    end = found.start() if found else len(text)
    return Frame(end_of_match(_END, text, end), (ReasoningText(text[at:end]),))


FORMATS: Final = (
    ToolFormat("muse_glimmer", ("<|start|>", "<|eom|>", "<|eot|>"), _read_frame),
    ToolFormat("muse_glimmer", ("<atem:function_calls>", "<atem:invoke "), _read_calls),
    ToolFormat("muse_glimmer", ("to=",), _read_frame, "start"),
)
