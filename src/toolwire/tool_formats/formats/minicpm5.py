"""MiniCPM5: `<function name="NAME"><param name="k">v</param></function>`. Values may stand in CDATA. Blanks inside of
the tags get lost, or arrive as `Ġ`, which stands for a blank in the tokenizer."""

from __future__ import annotations

import re
from typing import Final

from toolwire.tool_formats.frame import ToolFormat
from toolwire.tool_formats.parameter_tags import TagGrammar, TagReader

_match_cdata = re.compile(r"\s*<!\[CDATA\[(.*)\]\]>\s*", re.DOTALL).fullmatch


def _open_cdata(value: str) -> str:
    found = _match_cdata(value)
    return found[1] if found else value


_TAGS: Final = TagGrammar(
    section=re.compile(r"<(?:tool_calls?|function_calls)>"),
    section_end=re.compile(r"</(?:tool_calls?|function_calls)>"),
    call=re.compile(r"""<function[\sĠ]*name\s*=\s*["']?(?P<name>[^"'<>\s/]+)["']?\s*(?P<closed>/)?\s*>"""),
    call_end=re.compile(r"</function\s*>"),
    parameter=re.compile(r"""<param(?:eter)?[\sĠ]*name\s*=\s*["']?(?P<key>[^"'<>]+?)["']?\s*>"""),
    parameter_end=re.compile(r"</param(?:eter)?\s*>"),
    marks=("</function", "/>", "_call>", "_calls>"),
    has_section=False,
    strip_markup=_open_cdata,
)

FORMATS: Final = (
    ToolFormat(
        "minicpm5",
        ("<function name", "<functionname", "<functionĠname", "<tool_call>", "<tool_calls>", "<function_calls>"),
        TagReader(_TAGS).read_frame,
    ),
)
