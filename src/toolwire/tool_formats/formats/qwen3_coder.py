"""Qwen3-Coder, Qwen3.5 and later, Nemotron 3, Step-3.5: `<tool_call><function=NAME><parameter=k>v</parameter>…`,
and the same inside of `<seed:tool_call>` (Seed-OSS)."""

from __future__ import annotations

import re
from typing import Final

from toolwire.tool_formats.frame import ToolFormat
from toolwire.tool_formats.parameter_tags import TagGrammar, TagReader


def _strip_newlines(value: str) -> str:
    """One newline after the opening tag and one before the closing tag belong to the markup: the chat template of
    Qwen3-Coder writes both. Where the value begins behind the tag at once, its last newline is its own."""
    return value[1:].removesuffix("\n") if value.startswith("\n") else value


_FUNCTION_TAGS: Final = TagGrammar(
    section=re.compile(r"<(?:seed:)?tool_call>"),
    section_end=re.compile(r"</(?:seed:)?tool_call>"),
    # Quotes around the name, and a missing `>`, are seen in the wild.
    call=re.compile(r"""<function\s*=\s*["']?(?P<name>[^\s<>"'=/]+)["']?\s*(?:>|(?=<parameter=|</function>))"""),
    call_end=re.compile(r"</function>"),
    parameter=re.compile(r"""<parameter\s*=\s*["']?(?P<key>[^\s<>"'=]+)["']?\s*>"""),
    parameter_end=re.compile(r"</parameter>"),
    marks=("</function>", "tool_call>"),
    strip_markup=_strip_newlines,
)
_read_frame = TagReader(_FUNCTION_TAGS).read_frame

FORMATS: Final = (
    ToolFormat("qwen3_coder", ("<tool_call>", "<function="), _read_frame),
    ToolFormat("seed_oss", ("<seed:tool_call>",), _read_frame),
)
