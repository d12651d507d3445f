"""Inkling: `<|message_model|>NAME<|content_invoke_tool_json|>{"name": NAME, "args": {…}}<|end_message|>`. The first
`<|message_model|>` stands in the prompt. Messages of other kinds are in `reasoning_marks`."""

from __future__ import annotations

import re
from typing import Final

from toolwire.call_repair.near_json import read_arguments
from toolwire.tool_formats.call_tokens import CallTokens, TokenReader
from toolwire.tool_formats.first_name import find_first_name
from toolwire.tool_formats.found_calls import make_call, make_json_call
from toolwire.tool_formats.frame import Frame, Situation, TextCall, ToolFormat, Waiting
from toolwire.tool_formats.json_bodies import BodyEnds
from toolwire.tool_formats.json_text import ANY_TEXT

_TOOL: Final = "<|content_invoke_tool_json|>"


def _make_call(situation: Situation, name: str, body: str) -> TextCall | None:
    """The name stands before the object, and in it."""
    read = read_arguments(body)
    if read is None:
        return None
    arguments = read.value.get("args", read.value.get("arguments", {}))
    inner = read.value.get("name")
    name = inner if isinstance(inner, str) else name
    if isinstance(arguments, str):
        return make_json_call(situation, name, arguments, read.repairs)
    return make_call(situation, name, arguments, read.repairs) if isinstance(arguments, dict) else None


_TOKENS: Final = CallTokens(
    section=None,
    section_end=re.compile(r"(?!)"),
    head=re.compile(r"(?:<\|message_model\|>\s*)?(?P<name>[^\s<>|]{0,200})\s*<\|content_invoke_tool_json\|>"),
    open_head=re.compile(r"(?:<\|message_model\|>\s*)?[^\s<>|]{0,200}\s*(?:<[^>{}]{0,40})?\Z"),
    call_end=re.compile(r"<\|end_message\|>"),
    ends=BodyEnds(re.compile(r"<\|end_message\|>|<\|message_model\|>|<\|content_invoke_tool_json\|>"), ("|>",)),
    make_call=_make_call,
)

_read_call = TokenReader(_TOKENS).read_frame
_CHANNEL: Final = re.compile(r"<\|message_model\|>\s*(?=<\|content_(?:text|thinking|invoke_tool_text|tool_error)\|>)")
_OTHER_CALL: Final = re.compile(rf"{_TOKENS.head.pattern}[^<]*+(?:<(?!\|end_message\|>)[^<]*+)*+<\|end_message\|>")


def read_frame(text: str, start: int, situation: Situation) -> Frame | Waiting | None:
    """A call, or the beginning of a message that is none, which says nothing."""
    channel = _CHANNEL.match(text, start)
    if channel:
        return Frame(channel.end(), ())
    read = _read_call(text, start, situation)
    other = _OTHER_CALL.match(text, start) if read is None else None
    return Frame(other.end(), (other[0],)) if other else read


def read_name_first(text: str, start: int, situation: Situation) -> Frame | Waiting | None:
    """At the beginning of an answer: a call without the mark that stands in the prompt."""
    name = find_first_name(text, start, situation)
    if not isinstance(name, str):
        return name
    at = start + len(name)
    if not situation.is_end and at < len(text) and _TOOL.startswith(text[at:]):
        return Waiting(ANY_TEXT)
    return _read_call(text, start, situation) if text.startswith(_TOOL, at) else None


FORMATS: Final = (
    ToolFormat("inkling", ("<|message_model|>", _TOOL), read_frame),
    ToolFormat("inkling", ("",), read_name_first, "start"),
)
