"""The tools that a request offers to the model: what a call can mean."""

from __future__ import annotations

from collections.abc import Iterable

from toolwire.call_repair.names import find_meant_name
from toolwire.core.ir import AnyTool, Tool
from toolwire.core.json_values import Object


class OfferedTools:
    """Made once for a request, by the names that the provider knows."""

    def __init__(self, tools: Iterable[AnyTool]) -> None:
        self._tools = {tool.name: tool for tool in tools if isinstance(tool, Tool)}

    def __bool__(self) -> bool:
        return bool(self._tools)

    def find_tool(self, name: str) -> str | None:
        """The offered tool that a call means: the one of this name, or the only one that a safe repair leads to."""
        return name if name in self._tools else find_meant_name(name, self._tools)

    def parameters(self, name: str) -> Object:
        """The JSON Schema of an offered tool's arguments; `{}` if it has none, or none that is an object."""
        found = self._tools[name].parameters
        return found if isinstance(found, dict) else {}
