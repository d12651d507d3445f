"""Kimi K2 and K2.5: `<|tool_call_begin|>functions.NAME:IDX<|tool_call_argument_begin|>{…}<|tool_call_end|>` in a
section.

`functions.NAME:IDX` is the id of the call. The chat template prints it back, and later calls fail with other ids."""

from __future__ import annotations

import re
from typing import Final

from toolwire.call_repair.near_json import read_arguments
from toolwire.tool_formats.call_tokens import CallTokens, TokenReader
from toolwire.tool_formats.found_calls import make_json_call
from toolwire.tool_formats.frame import Situation, TextCall, ToolFormat
from toolwire.tool_formats.json_bodies import BodyEnds

_match_id = re.compile(r"(?:functions\.)?(.+):\d+").fullmatch
_match_damaged_id = re.compile(r"functions[._](.+?)[._:](\d+)").fullmatch
"""Ids that a client has sanitised, and that the model imitates."""


def _make_call(situation: Situation, name: str, arguments: str) -> TextCall | None:
    proper = _match_id(name)
    if proper:
        return make_json_call(situation, proper[1], arguments, (), name)
    damaged = _match_damaged_id(name)
    if damaged and situation.tools.find_tool(damaged[1]):
        repairs = (f"the id `{name}` is not `functions.NAME:INDEX`",)
        return make_json_call(situation, damaged[1], arguments, repairs, f"functions.{damaged[1]}:{damaged[2]}")
    if name.isdecimal():
        tool = _find_tool_by_arguments(situation, arguments)
        repairs = (f"the name was missing: only `{tool}` has such arguments",)
        return make_json_call(situation, tool, arguments, repairs, f"functions.{tool}:{name}") if tool else None
    return make_json_call(situation, name.removeprefix("functions."), arguments)


def _find_tool_by_arguments(situation: Situation, text: str) -> str | None:
    """The only tool that has all these arguments, and needs no others."""
    read = read_arguments(text)
    if read is None or not read.value:
        return None
    fits = []
    for name in situation.tools.names:
        schema = situation.tools.parameters(name)
        properties, required = schema.get("properties"), schema.get("required") or []
        if isinstance(properties, dict) and read.value.keys() <= properties.keys() and {*required} <= read.value.keys():
            fits.append(name)
    return fits[0] if len(fits) == 1 else None


_OPEN_TOKEN: Final = r"<(?:\|[^>{}]{0,30})?"
_SECTIONS: Final = ("<|tool_calls_section_begin|>", "<|tool_call_section_begin|>")

_TOKENS: Final = CallTokens(
    section=re.compile(r"<\|tool_calls?_section_begin\|>"),
    section_end=re.compile(r"<\|tool_calls?_section_end\|>"),
    head=re.compile(r"<\|tool_call_begin\|>\s*(?P<name>[^<{]{1,200}?)\s*(?:<\|tool_call_argument_begin\|>|(?=\{))"),
    open_head=re.compile(rf"(?:<\|tool_call_begin\|>[^<{{]{{0,200}})?(?:{_OPEN_TOKEN})?\Z"),
    call_end=re.compile(r"<\|tool_call_end\|>"),
    ends=BodyEnds(
        re.compile(r"<\|tool_call_end\|>|<\|tool_call_begin\|>|<\|tool_calls?_section_(?:begin|end)\|>"),
        ("_end|>", "_begin|>"),
    ),
    make_call=_make_call,
    drops_empty=True,
)

FORMATS: Final = (ToolFormat("kimi_k2", (*_SECTIONS, "<|tool_call_begin|>"), TokenReader(_TOKENS).read_frame),)
