"""Formats with `<invoke name="NAME"><parameter name="k">v</parameter></invoke>`: Anthropic's prompts, MiniMax M2,
DeepSeek V3.2 and V4 (DSML), Step-3 and dots. They differ in the prefix of the tags, and in the tag around the calls.
Small models put the name into the tag of Hermes instead: `<tool_call name="NAME">{…}</tool_call>`."""

from __future__ import annotations

import re
from typing import Final

from msgspec.structs import replace

from toolwire.call_repair.near_json import read_value
from toolwire.call_repair.typed_text import read_typed_text
from toolwire.core.json_values import Json, Object
from toolwire.tool_formats.formats.marked_json import MarkedJson
from toolwire.tool_formats.frame import Frame, Situation, ToolFormat, Waiting
from toolwire.tool_formats.parameter_tags import TagGrammar, TagReader
from toolwire.tool_formats.tag_text import frame_reader, require_whole_match

_PREFIX: Final = r"(?:\s?[|｜]{1,2}\s?DSML\s?[|｜]{1,2}\s?|[A-Za-z][\w.-]*:)?"
"""A namespace, or the mark of DeepSeek, which arrives with ASCII bars, doubled bars, or blanks around them."""
_SECTION: Final = r"(?:function_calls?|tool_calls?|tool_use|dots_function_call)"
_NAME: Final = r"""name\s*=\s*["']?"""
_NAME_OF_TOOL: Final = rf"""\s(?:[^<>]*\s)?{_NAME}(?P<name>[^"'<>\s]+?)["']?(?:\s[^<>]*?)?(?P<closed>/)?>"""


def _read_value(text: str, schema: Object, tag: re.Match[str]) -> Json:
    """DeepSeek says `string="true"` or `"false"`; the schema overrules a wrong one."""
    if schema or tag["is_string"] is None:
        return read_typed_text(text, schema)
    found = read_value(text.strip()) if tag["is_string"] == "false" else None
    return text if found is None else found.value


INVOKE_TAGS: Final = TagGrammar(
    section=re.compile(rf"<{_PREFIX}{_SECTION}\s*>|<｜tool_calls?_begin｜>"),
    section_end=re.compile(rf"</{_PREFIX}{_SECTION}\s*>|<｜tool_calls_end｜>"),
    call=re.compile(rf"<{_PREFIX}invoke{_NAME_OF_TOOL}"),
    call_end=re.compile(rf"</{_PREFIX}invoke\s*>"),
    parameter=re.compile(
        rf"""<{_PREFIX}parameter\s(?:(?=[^<>]*?\bstring="(?P<is_string>true|false)"))?"""
        rf"""(?:[^<>]*\s)?{_NAME}(?P<key>[^"'<>]+?)["']?(?:\s[^<>]*)?>"""
    ),
    parameter_end=re.compile(rf"</{_PREFIX}parameter\s*>"),
    marks=("invoke>", "_calls>", "_call>", "_use>", "_end｜>", "/>"),
    # Step-3 may also write the name of the tool before the call, as DeepSeek does.
    between=re.compile(
        r"(?:\s++|<｜tool_call_begin｜>|<｜tool_call_end｜>|<｜tool_sep｜>(?:[\w.:/-]++(?=\s*+<steptml:invoke\s))?+"
        r"|function(?=<｜tool_sep｜>))*+"
    ),
    read_value=_read_value,
)
_read_frame = TagReader(INVOKE_TAGS).read_frame
_read_named_call = TagReader(
    replace(
        INVOKE_TAGS,
        section=re.compile(r"<tool_calls\s*>"),
        section_end=re.compile(r"</tool_calls\s*>"),
        call=re.compile(rf"<tool_call{_NAME_OF_TOOL}"),
        call_end=re.compile(r"</tool_call\s*>"),
        has_section=False,
        allows_json=True,
    )
).read_frame

_NAMESPACE: Final = re.compile(rf"<[A-Za-z][\w.-]*:(?:{_SECTION}\s*>|invoke\s)")
_OPEN_NAMESPACE: Final = re.compile(r"<(?:[A-Za-z][\w.-]{0,30}(?::\w{0,20})?)?\Z")


@frame_reader
def _read_other_namespace(text: str, start: int, situation: Situation) -> Frame | Waiting | None:
    """Models invent namespaces for the tags: `<ns:invoke name="NAME">`."""
    require_whole_match(_OPEN_NAMESPACE, text, start, situation)
    return _read_frame(text, start, situation) if _NAMESPACE.match(text, start) else None


_DSML: Final = tuple(
    f"<{blank}{bars}{blank}DSML{blank}{bars}" for bars in ("｜", "|", "｜｜", "||") for blank in ("", " ")
)
_ANTHROPIC: Final = tuple(f"<{prefix}{tag}" for prefix in ("", "antml:") for tag in ("function_calls>", "invoke "))
_DOTS: Final = MarkedJson(("<dots_function_call>",), "</dots_function_call>")
"""dots also writes `{"name": …, "arguments": {…}}` between its tags."""

FORMATS: Final = (
    ToolFormat("minimax_m2", ("<minimax:tool_call>",), _read_frame),
    ToolFormat("deepseek_dsml", _DSML, _read_frame),
    ToolFormat("step3", ("<｜tool_calls_begin｜>", "<｜tool_call_begin｜>", "<steptml:invoke "), _read_frame),
    ToolFormat("dots", _DOTS.openings, _read_frame),
    ToolFormat("dots", _DOTS.openings, _DOTS.read_frame),
    ToolFormat("anthropic_xml", (*_ANTHROPIC, "<tool_calls>", "<tool_call>"), _read_frame),
    ToolFormat(
        "anthropic_xml",
        (),
        _read_other_namespace,
        opening_pattern=r"<(?=[A-Za-z][\w.-]{0,30}:)",
        unfinished_opening=r"<(?=[A-Za-z][\w.-]{0,30}\Z)",
    ),
    ToolFormat("named_tool_call", ("<tool_call ", "<tool_calls>"), _read_named_call),
)
