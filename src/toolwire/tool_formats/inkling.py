"""Inkling: `<|message_model|>NAME<|content_invoke_tool_json|>{"name": NAME, "args": {…}}<|end_message|>`."""

from __future__ import annotations

import re
from typing import Final

from toolwire.call_repair.near_json import read_arguments
from toolwire.tool_formats.call_tokens import CallTokens, TokenReader
from toolwire.tool_formats.found_calls import make_call, make_json_call
from toolwire.tool_formats.frame import Situation, TextCall, ToolFormat
from toolwire.tool_formats.json_bodies import BodyEnds


def _make_call(situation: Situation, name: str, body: str) -> TextCall | None:
    """The name stands before the object, and in it."""
    read = read_arguments(body)
    if read is None:
        return None
    arguments = read.value.get("args", read.value.get("arguments"))
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

FORMATS: Final = (
    ToolFormat("inkling", ("<|message_model|>", "<|content_invoke_tool_json|>"), TokenReader(_TOKENS).read_frame),
)
