"""The tools that are offered in these tests."""

from __future__ import annotations

from typing import Any

from tool_formats.reading import offer_tools


def _declare(name: str, properties: dict[str, str], required: list[str]) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {key: {"type": type} for key, type in properties.items()},
        "required": required,
    }
    return {"type": "function", "function": {"name": name, "parameters": schema}}


TOOLS = offer_tools([
    _declare("look_up", {"word": "string"}, ["word"]),
    _declare("move", {"x": "integer", "y": "number", "fast": "boolean", "path": "array"}, ["x"]),
    _declare("stop", {}, []),
    _declare("python", {"code": "string"}, ["code"]),
])  # fmt: skip
