"""DeepSeek V3, R1 and Cogito: `<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME` and fenced JSON; V3.1:
`<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{…}`. Both in `<｜tool▁calls▁begin｜>…<｜tool▁calls▁end｜>`."""

from __future__ import annotations

import re
from typing import Final

from toolwire.tool_formats.call_tokens import CallTokens, TokenReader
from toolwire.tool_formats.found_calls import make_json_call
from toolwire.tool_formats.frame import ToolFormat
from toolwire.tool_formats.json_bodies import BodyEnds

_SEPARATORS: Final = ("▁", "_", " ", "\\_")
"""Distilled models write the tokens as text, with ASCII bars, and with something else for `▁`."""


def _token(words: str) -> str:
    """The pattern of a token: `calls begin` for `<｜tool▁calls▁begin｜>`."""
    separator = "(?:▁|_| |\\\\_)"
    return f"<[|｜]tool{separator}{words.replace(' ', separator)}[|｜]>"


def _spellings(words: str) -> tuple[str, ...]:
    return tuple(
        f"<{bar}tool{separator}{words.replace(' ', separator)}{bar}>" for bar in "｜|" for separator in _SEPARATORS
    )


_OPEN_TOKEN: Final = r"<[^>{}]{0,30}"

_TOKENS: Final = CallTokens(
    section=re.compile(f"{_token('calls begin')}|{_token('calls')}"),
    section_end=re.compile(_token("calls end")),
    # With `function` before it, the name ends with its line (V3); else a second separator ends it (V3.1).
    head=re.compile(
        rf"(?:{_token('call begin')}\s*)?(?P<kind>function\s*{_token('sep')}\s*)?"
        rf"(?P<name>[^\s<`{{]{{1,200}})(?(kind)(?=[\s`{{<])|\s*{_token('sep')})"
    ),
    open_head=re.compile(
        rf"(?:{_token('call begin')}\s*)?(?:\w+\s*{_token('sep')}\s*)?[^\s<`{{]{{0,200}}\s*(?:{_OPEN_TOKEN})?\Z"
    ),
    call_end=re.compile(_token("call end")),
    ends=BodyEnds(
        re.compile("|".join(_token(words) for words in ("call end", "call begin", "calls end", "calls begin"))),
        ("｜>", "|>"),
    ),
    make_call=make_json_call,
)
_read_frame = TokenReader(_TOKENS).read_frame
_OPENINGS: Final = (*_spellings("calls begin"), *_spellings("calls"), *_spellings("call begin"))

FORMATS: Final = (
    ToolFormat("deepseek_v3", _OPENINGS, _read_frame),
    ToolFormat("deepseek_v31", _OPENINGS, _read_frame),
)
