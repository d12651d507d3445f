"""Toolwire translates tool calling between OpenAI, Anthropic and Gemini protocols, and reports every loss."""

from __future__ import annotations

from toolwire.core.ir import Tool
from toolwire.core.json_values import Malformed
from toolwire.core.losses import Loss
from toolwire.translation.exchange import Exchange, Translation
from toolwire.translation.options import Options
from toolwire.translation.translate import (
    Refused,
    Stream,
    ToolCall,
    ToolOutput,
    build_tool_results,
    parse_tool_calls,
    translate,
)

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
