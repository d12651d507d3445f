"""Kimi K3: tags of the form `<|open|>call tool="NAME" index="1"<|sep|>…<|close|>call<|sep|>`, in the channels think
(see `reasoning_marks`), response and tools."""

from __future__ import annotations

import re
from html import unescape
from typing import Final

from toolwire.call_repair.near_json import read_value
from toolwire.core.json_values import Json, Object
from toolwire.tool_formats.frame import Frame, Situation, ToolFormat, Waiting
from toolwire.tool_formats.parameter_tags import TagGrammar, TagReader
from toolwire.tool_formats.tag_text import frame_reader, require_whole_tag

# A decoder that puts blanks between special tokens yields `<|open|> tools <|sep|>`.
_OPEN: Final = r"<\|open\|>\s*"
_CLOSE: Final = r"<\|close\|>\s*"
_SEP: Final = r"\s*<\|sep\|>"


def _read_value(text: str, schema: Object, tag: re.Match[str]) -> Json:
    """The tag says the type; `mend_arguments` looks at the schema afterwards."""
    is_text = tag["type"] in (None, "string") or schema.get("type") == "string"
    found = None if is_text else read_value(text.strip())
    return text if found is None else found.value


_TAGS: Final = TagGrammar(
    section=re.compile(rf"{_OPEN}tools{_SEP}"),
    section_end=re.compile(rf"{_CLOSE}tools{_SEP}"),
    call=re.compile(rf'{_OPEN}call\s[^<>]*?tool="(?P<name>[^"<>]+)"[^<>]*?{_SEP}(?:\s*{_OPEN}json\b[^<>]*?{_SEP})?'),
    call_end=re.compile(rf"{_CLOSE}(?:call|json){_SEP}"),
    parameter=re.compile(rf'{_OPEN}argument\s+key="(?P<key>[^"<>]+)"(?:\s+type="(?P<type>\w+)")?[^<>]*?{_SEP}'),
    parameter_end=re.compile(rf"{_CLOSE}argument{_SEP}"),
    marks=("<|sep|>",),
    between=re.compile(rf"(?:\s++|{_CLOSE}call{_SEP})*+"),
    tag_end="<|sep|>",
    allows_json=True,
    read_attribute=unescape,
    read_value=_read_value,
)
_read_tools = TagReader(_TAGS).read_frame
_CHANNEL: Final = re.compile(rf"{_OPEN}(?:response|message\b[^<>]*?){_SEP}|{_CLOSE}(?:response|message){_SEP}")


@frame_reader
def _read_frame(text: str, start: int, situation: Situation) -> Frame | Waiting | None:
    """The calls, or a mark of the channels around the answer, which says nothing."""
    channel = _CHANNEL.match(text, start)
    if channel:
        return Frame(channel.end(), ())
    if text.startswith("<|close|>", start):
        require_whole_tag(text, start, situation, _TAGS.tag_end)
        return None
    return _read_tools(text, start, situation)


FORMATS: Final = (ToolFormat("kimi_k3", ("<|open|>", "<|close|>"), _read_frame),)
