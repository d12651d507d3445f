"""The table of all formats, in the order in which they are tried."""

from __future__ import annotations

from typing import Final

from toolwire.tool_formats import marked_json
from toolwire.tool_formats.frame import ToolFormat

FORMATS: Final[tuple[ToolFormat, ...]] = (*marked_json.FORMATS,)
