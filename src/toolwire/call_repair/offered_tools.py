"""The tools that a request offers to the model: what a call can mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from toolwire.call_repair.names import NameIndex
from toolwire.core.ir import EMPTY_MAPPING, AnyTool, Tool
from toolwire.core.json_values import Malformed, Object
from toolwire.schema.standard import convert_to_standard


class OfferedTools:
    """Made once for a request, by the names that the provider knows."""

    def __init__(self, tools: Iterable[AnyTool], other_names: Mapping[str, str] = EMPTY_MAPPING) -> None:
        """`other_names` are those by which the client knows tools that were renamed for the provider, with the
        provider's name of each: the model may find them in the instructions."""
        self._tools = {tool.name: tool for tool in tools if isinstance(tool, Tool)}
        self._other_names = other_names
        self._parameters: dict[str, Object] = {}
        self._index: NameIndex | None = None

    def __bool__(self) -> bool:
        return bool(self._tools)

    @property
    def names(self) -> list[str]:
        return list(self._tools)

    def find_tool(self, name: str) -> str | None:
        """The offered tool that a call means: the one of this name, or the only one that a safe repair leads to."""
        if name in self._tools:
            return name
        if self._index is None:
            self._index = NameIndex({**self._other_names, **dict(zip(self._tools, self._tools, strict=True))})
        return self._index.find_meant_name(name)

    def describe(self, name: str) -> str:
        """What an offered tool is for, "" if nobody says."""
        return self._tools[name].description or ""

    def parameters(self, name: str) -> Object:
        """The JSON Schema of an offered tool's arguments; `{}` if it has none, or none that can be used."""
        found = self._parameters.get(name)
        if found is None:
            found = self._parameters[name] = _standard_schema(self._tools[name])
        return found


def _standard_schema(tool: Tool) -> Object:
    try:
        schema = convert_to_standard(tool.parameters).schema
    except Malformed:  # nested too deeply
        return {}
    return schema if isinstance(schema, dict) else {}
