"""Tools as a provider sees them declared, and calls of them: a tool is looked up by what its client calls it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Unreadable:
    """Arguments of a function that are not JSON."""

    text: str


@dataclass(frozen=True)
class Use:
    """A call of a tool by the client's own name for it. `arguments` is a text for a tool that takes free text."""

    name: str
    arguments: dict[str, Any] | str | Unreadable
    namespace: str = ""


@dataclass(frozen=True)
class Declared:
    name: str
    kind: str = "function"
    namespace: str = ""
    schema: Any = None


@dataclass(frozen=True)
class Called:
    """A call in the form in which its tool was declared."""

    tool: Declared
    arguments: dict[str, Any] | str | Unreadable


class NotOffered(Exception):
    """No such tool was declared: the model could not have called it."""


def find_declared_tool(body: dict[str, Any]) -> list[Declared]:
    """Every tool that a request declares, in any protocol; those that stand in its history too."""
    tools = [*(body.get("tools") or ())]
    items = body.get("input")
    for item in items if isinstance(items, list) else ():
        if item.get("type") in ("additional_tools", "tool_search_output"):
            tools += item.get("tools") or ()
    return [found for tool in tools for found in _tools(tool, "")]


def _tools(tool: dict[str, Any], namespace: str) -> Iterator[Declared]:
    if tool.get("type") == "namespace":
        for inner in tool["tools"]:
            yield from _tools(inner, tool["name"])
    elif "functionDeclarations" in tool:
        for inner in tool["functionDeclarations"]:
            schema = inner.get("parametersJsonSchema") or inner.get("parameters")
            yield Declared(inner["name"], schema=schema)
    elif isinstance(inner := tool.get("function") or tool.get("custom"), dict):
        yield Declared(inner["name"], tool["type"], schema=inner.get("parameters"))
    else:
        kind = tool.get("type") or "function"
        schema = tool.get("input_schema") or tool.get("parameters")
        yield Declared(tool.get("name", kind), kind, namespace, schema)


def write_call(body: dict[str, Any], use: Use) -> Called:
    """The call as this request's tools want it. Names may have been joined with their namespace on the way."""
    tools = find_declared_tool(body)
    exact = [tool for tool in tools if (tool.name, tool.namespace) == (use.name, use.namespace)]
    joined = [
        tool for tool in tools if not tool.namespace and tool.name.endswith(use.name) and use.namespace in tool.name
    ]
    found = exact or joined
    if not found:
        raise NotOffered(f"{use} is not among {[(tool.namespace, tool.name) for tool in tools]}")
    tool = found[0]
    if isinstance(use.arguments, str) and tool.kind != "custom":
        fields = list(tool.schema["properties"])
        if len(fields) != 1:
            raise NotOffered(f"{use} has a text for {fields}")
        return Called(tool, {fields[0]: use.arguments})
    return Called(tool, use.arguments)
