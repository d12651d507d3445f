"""Toolwire: tool calling carried faithfully between the protocols of language models, with nothing lost in silence."""

from __future__ import annotations

from toolwire.adapter import ToolCall, ToolOutput, build_tool_results, parse_tool_calls
from toolwire.exchange import Exchange, Translation
from toolwire.ir import Tool
from toolwire.loss import Loss
from toolwire.options import Options
from toolwire.translate import Refused, Stream, translate
from toolwire.wire import Malformed

__all__ = [
    "Exchange",
    "Loss",
    "Malformed",
    "Options",
    "Refused",
    "Stream",
    "Tool",
    "ToolCall",
    "ToolOutput",
    "Translation",
    "build_tool_results",
    "parse_tool_calls",
    "translate",
]

__version__ = "0.1.0"
