"""The table of all formats, in the order in which they are tried."""

from __future__ import annotations

from typing import Final

from toolwire.tool_formats import (
    bare_json,
    functionary,
    llama,
    marked_json,
    mistral,
    pythonic,
    qwen1,
    react,
)
from toolwire.tool_formats.frame import ToolFormat

FORMATS: Final[tuple[ToolFormat, ...]] = (
    *marked_json.FORMATS,
    *mistral.FORMATS,
    *llama.FORMATS,
    *functionary.FORMATS,
    *pythonic.FORMATS,
    *qwen1.FORMATS,
    *react.FORMATS,
    *bare_json.FORMATS,
)
