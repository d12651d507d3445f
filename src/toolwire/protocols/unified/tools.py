"""Tools and the choice among them. Clients describe every tool and parameter; what others left out is filled in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Literal

from toolwire.ir import HOSTED, AnyTool, HostedTool, Opaque, Tool, ToolChoice, ToolName, place
from toolwire.loss import Ledger
from toolwire.protocols.unified.names import CHOICE, HOSTED_TOOL, NAME, NAME_LIMIT, TOOL, Loose, suggestion
from toolwire.protocols.unified.parts import read_cache, read_word, write_cache
from toolwire.reading import finished, numbered, verbatim
from toolwire.schema import describe, missing_descriptions, problems, standard
from toolwire.wire import (
    Json,
    Malformed,
    Object,
    Path,
    as_list,
    as_object,
    as_text,
    decode,
    encode,
    need_text,
    take_bool,
    take_int,
    take_list,
    take_object,
    take_text,
    wrong,
)

_NAME = re.compile(rf"[A-Za-z0-9_]{{1,{NAME_LIMIT}}}")


def check_name(name: str, path: Path) -> None:
    if _NAME.fullmatch(name) is None:
        raise Malformed(path, f"`{name}` is no tool name: take 1 to {NAME_LIMIT} letters, digits and underscores")


# --- reading tools --------------------------------------------------------------------------------------------------


def read_tools(reading: Loose, values: list[Json], path: Path) -> tuple[AnyTool, ...]:
    tools: list[AnyTool] = []
    seen: set[str] = set()
    for value, where in numbered(values, path):
        node = as_object(value, where)
        tool = _read_hosted(reading, node, where) if "hosted" in node else _read_tool(reading, node, where)
        name = tool.name or getattr(tool, "tool", "")
        if name in seen:
            raise Malformed(where, f"there is a tool `{name}` already; names must differ")
        seen.add(name)
        tools.append(tool)
    return tuple(tools)


def _read_tool(reading: Loose, node: Object, path: Path) -> Tool:
    origin = reading.origin(node, path, TOOL)
    name = need_text(node, "name", path)
    check_name(name, (path, "name"))
    description = take_text(node, "description", path)
    if not description or description.isspace():
        raise Malformed(path, f"`description` is missing: say what `{name}` does and when to call it")
    parameters, output = take_object(node, "parameters", path), take_object(node, "output", path)
    fault = None if parameters is None else _fault_of_parameters(parameters)
    if fault is not None:
        raise Malformed(_below((path, "parameters"), fault[0]), fault[1])
    if output is not None:
        check_schema(output, (path, "output"))
    defer, cache = take_bool(node, "defer", path), read_cache(node, path)
    return Tool(name, description, parameters, defer=defer, output=output, cache=cache, origin=origin)


_REMEMBERED = 20_000
"""Schemas up to this many bytes are checked once; a client sends the same tools with every turn."""


def _fault_of_parameters(parameters: Json) -> tuple[str, str] | None:
    """The first thing that is wrong with the schema of a tool's parameters, with its place in the schema."""
    encoded = encode(parameters)
    return _fault(encoded) if len(encoded) <= _REMEMBERED else _fault.__wrapped__(encoded)


@lru_cache(maxsize=512)
def _fault(encoded: bytes) -> tuple[str, str] | None:
    parameters = decode(encoded)
    if not isinstance(parameters, dict) or parameters.get("type") != "object":
        return "/type", 'the schema of the parameters must say `"type": "object"`'
    for where, problem in problems(parameters):
        return where, f"not a valid JSON Schema: {problem}"
    for where in missing_descriptions(parameters):
        return where, f"`description` is missing: say what the parameter `{where.rpartition('/')[2]}` is for"
    return None


def check_schema(schema: Object, path: Path) -> None:
    for where, problem in problems(schema):
        raise Malformed(_below(path, where), f"not a valid JSON Schema: {problem}")


def _below(path: Path, place: str) -> Path:
    """The place that a JSON Pointer into a schema names, seen from the body that holds the schema at `path`."""
    for key in place.split("/")[1:]:
        path = (path, key.replace("~1", "/").replace("~0", "~"))
    return path


def _read_hosted(reading: Loose, node: Object, path: Path) -> HostedTool:
    origin = reading.origin(node, path, HOSTED_TOOL)
    need_text(node, "hosted", path)
    return HostedTool(
        read_word(node, "hosted", path, HOSTED),
        take_text(node, "name", path) or "",
        take_int(node, "max_uses", path),
        _texts(node, "allowed_domains", path),
        _texts(node, "blocked_domains", path),
        take_object(node, "location", path),
        take_text(node, "context_size", path) or "",
        read_cache(node, path),
        origin=origin,
    )


def _texts(node: Object, key: str, path: Path) -> tuple[str, ...]:
    values = take_list(node, key, path)
    return tuple(as_text(value, where) for value, where in numbered(values, (path, key))) if values else ()


# --- writing tools --------------------------------------------------------------------------------------------------


def write_tools(tools: tuple[AnyTool, ...], ledger: Ledger) -> list[Json]:
    return [out for tool in tools if (out := _write_any(tool, ledger)) is not None]


def _write_any(tool: AnyTool, ledger: Ledger) -> Object | None:
    if verbatim(tool.origin, NAME):
        return tool.origin.wire  # type: ignore[union-attr, no-any-return]
    if isinstance(tool, Opaque):
        ledger.note("tool-dropped", place(tool), f"the tool `{tool.kind}` was left out")
        return None
    out = _write_hosted(tool) if isinstance(tool, HostedTool) else _write_tool(tool, ledger)
    return finished(out | write_cache(tool.cache), tool.origin, NAME)


def _write_tool(tool: Tool, ledger: Ledger) -> Object:
    where = place(tool)
    description = tool.description
    if description is None or not description.strip():
        description = f"The tool `{tool.name}`."
        ledger.note("description-added", where, f"the tool `{tool.name}` got a description")
    out: Object = {"name": tool.name, "description": description}
    if tool.parameters is not None:
        out["parameters"] = _write_parameters(tool, ledger)
    if tool.output is not None:
        out["output"] = tool.output
    if tool.defer is not None:
        out["defer"] = tool.defer
    if tool.strict:
        what = f"strict mode of `{tool.name}` was left out"
        ledger.note("no-counterpart", where, what, "unified has no strict mode")
    if tool.kind != "function":
        ledger.note("tool-wrapped", where, f"the {tool.kind} tool `{tool.name}` became a function")
    if tool.grammar is not None:
        ledger.note("no-counterpart", where, f"the grammar of `{tool.name}` was left out")
    if tool.namespace:
        ledger.note("namespace-flattened", where, f"the namespace `{tool.namespace}` was left out")
    return out


def _write_parameters(tool: Tool, ledger: Ledger) -> Json:
    """The schema as clients of this protocol must write it. What is valid already is touched only where it must be."""
    where: Path = (place(tool), "parameters")
    parameters: Json = tool.parameters
    if _fault_of_parameters(parameters) is None:
        return parameters
    if problems(parameters):
        plain = standard(parameters)
        parameters = plain.schema
        for change in plain.changes:
            ledger.note("schema-rewritten", change.at(where), change.what)
    if not isinstance(parameters, dict) or parameters.get("type") != "object":
        parameters = {**(parameters if isinstance(parameters, dict) else {}), "type": "object"}
        ledger.note("schema-rewritten", where, f"the parameters of `{tool.name}` became an object")
    described = describe(parameters)
    for change in described.changes:
        ledger.note("description-added", change.at(where), change.what)
    return described.schema


def _write_hosted(tool: HostedTool) -> Object:
    out: Object = {"hosted": tool.tool}
    if tool.name:
        out["name"] = tool.name
    if tool.max_uses is not None:
        out["max_uses"] = tool.max_uses
    if tool.allowed_domains:
        out["allowed_domains"] = list(tool.allowed_domains)
    if tool.blocked_domains:
        out["blocked_domains"] = list(tool.blocked_domains)
    if tool.location is not None:
        out["location"] = tool.location
    if tool.context_size:
        out["context_size"] = tool.context_size
    return out


# --- the choice -----------------------------------------------------------------------------------------------------

_MODES: Mapping[str, Literal["auto", "none", "required"]] = MappingProxyType(
    {"auto": "auto", "none": "none", "required": "required"}
)


def read_choice(reading: Loose, value: Json, path: Path, tools: tuple[AnyTool, ...]) -> ToolChoice:
    if isinstance(value, str):
        mode = _MODES.get(value)
        if mode is not None:
            return ToolChoice(mode, origin=reading.whole(value, path))
        raise Malformed(path, f'`{value}` is no choice; {suggestion(value, _MODES)}; one tool is {{"name": …}}')
    if not isinstance(value, dict):
        wrong(path, "a string or an object", value)
    origin = reading.origin(value, path, CHOICE)
    if "allowed" not in value:
        _refuse(value, path, "mode")
        return ToolChoice("one", (_read_named(value, path, tools),), origin=origin)
    _refuse(value, path, "name", "hosted")
    allowed = as_list(value["allowed"], (path, "allowed"))
    names = tuple(
        _read_named({"name": item} if isinstance(item, str) else as_object(item, where), where, tools)
        for item, where in numbered(allowed, (path, "allowed"))
    )
    required = read_word(value, "mode", path, ("auto", "required"), "auto") == "required"
    return ToolChoice("allowed", names, required, origin=origin)


def _refuse(node: Object, path: Path, *keys: str) -> None:
    for key in keys:
        if key in node:
            raise Malformed((path, key), f"`{key}` does not go with {'`allowed`' if 'allowed' in node else 'one tool'}")


def _read_named(node: Object, path: Path, tools: tuple[AnyTool, ...]) -> ToolName:
    """A tool of the client's by its name, or one of the provider's: `{"hosted": …}`."""
    if "hosted" in node:
        word = read_word(node, "hosted", path, HOSTED)
        return ToolName(word, word)
    name = need_text(node, "name", path)
    known = [tool.name for tool in tools if isinstance(tool, Tool)]
    if name not in known:
        raise Malformed(path, f"there is no tool `{name}`; {suggestion(name, known)}")
    return ToolName(name)


def write_choice(choice: ToolChoice, ledger: Ledger) -> Json:
    if verbatim(choice.origin, NAME):
        return choice.origin.wire  # type: ignore[union-attr]
    if choice.mode not in ("one", "allowed"):
        return choice.mode
    named = [_write_named(tool, choice, ledger) for tool in choice.tools]
    if choice.mode == "one" and named:
        only = named[0]
        return {"name": only} if isinstance(only, str) else only
    return {"allowed": named, "mode": "required" if choice.required else "auto"}


def _write_named(tool: ToolName, choice: ToolChoice, ledger: Ledger) -> Json:
    if tool.kind in HOSTED:
        return {"hosted": tool.kind}
    if tool.kind != "function" or tool.namespace:
        ledger.note("choice-mapped", place(choice), f"the choice names `{tool.name}` as a function")
    return tool.name
