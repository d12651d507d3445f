"""Calls whose tag is the name of the tool: `<bash>ls</bash>`, `<write_file>{…}</write_file>`, or with a tag for each
parameter.

No model is trained for it, so the demands are high: the exact name of an offered tool at the beginning of a line, its
closing tag at the end of one, and all required parameters."""

from __future__ import annotations

import re
from typing import Final

from toolwire.schema.combine import string_items
from toolwire.tool_formats.code_tools import find_only_text_parameter
from toolwire.tool_formats.found_calls import make_call, make_json_call, parameter_schemas
from toolwire.tool_formats.frame import Frame, Situation, TextCall, ToolFormat
from toolwire.tool_formats.json_bodies import BodyEnds, read_json_body
from toolwire.tool_formats.json_text import skip_blanks
from toolwire.tool_formats.named_tags import read_named_tags
from toolwire.tool_formats.tag_text import (
    NeedsTextError,
    end_of_match,
    frame_reader,
    require_whole_match,
    require_whole_tag,
)

_REPAIR: Final = "the call was a tag with the name of the tool"
_TAG: Final = re.compile(r"<(?P<name>[A-Za-z_][\w.-]{0,63})>")
_OPEN_TAG: Final = re.compile(r"<(?:[A-Za-z_][\w.-]{0,63})?\Z")
_LINE_END: Final = re.compile(r"[ \t]*(?:\n|\Z|(?=<))")
_OPEN_LINE_END: Final = re.compile(r"[ \t]*\Z")


@frame_reader
def _read_frame(text: str, start: int, situation: Situation) -> Frame | None:
    require_whole_match(_OPEN_TAG, text, start, situation)
    tag = _TAG.match(text, start)
    if tag is None or tag["name"] not in situation.tools.names:
        return None
    closing = re.compile(re.escape(f"</{tag['name']}>"))
    call, at = _read_call(text, tag, closing, situation)
    if call is None:
        return None
    end = end_of_match(closing, text, at)
    require_whole_match(_OPEN_LINE_END, text, end, situation)
    return Frame(end, (call,)) if _LINE_END.match(text, end) else None


def _read_call(
    text: str, tag: re.Match[str], closing: re.Pattern[str], situation: Situation
) -> tuple[TextCall | None, int]:
    """The call, and where its closing tag begins."""
    name, marks = tag["name"], (f"</{tag['name']}>",)
    at = skip_blanks(text, tag.end())
    require_whole_tag(text, at, situation)
    if text.startswith("{", at):
        body = read_json_body(text, at, BodyEnds(closing, marks), situation)
        is_closed = body is not None and body.is_closed
        return (make_json_call(situation, name, body.text, (_REPAIR,)), body.end) if body and is_closed else (None, at)
    named = read_named_tags(text, at, parameter_schemas(situation, name), closing, situation)
    if named is not None:
        is_whole = {*string_items(situation.tools.parameters(name).get("required"))} <= named.values.keys()
        return make_call(situation, name, named.values, (_REPAIR,)) if is_whole else None, named.end
    end = closing.search(text, tag.end())
    if end is None and not situation.is_end:
        raise NeedsTextError(marks)
    key = find_only_text_parameter(situation, name)
    value = text[tag.end() : end.start()] if end else ""
    if end is None or key is None or not value.strip():
        return None, at
    return make_call(situation, name, {key: value.strip("\n")}, (_REPAIR,)), end.start()


FORMATS: Final = (
    ToolFormat(
        "anthropic_xml",
        (),
        _read_frame,
        "line",
        opening_pattern=r"<(?=[A-Za-z_][\w.-]{0,63}>)",
        unfinished_opening=r"<(?=[A-Za-z_][\w.-]{0,63}\Z)",
        is_code_in_fence=True,
    ),
)
