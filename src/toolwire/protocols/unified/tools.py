"""Tools and the tool choice. Clients must describe every tool and parameter; the writer adds missing descriptions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

from toolwire.core.ir import PROVIDER_TOOLS, AnyTool, Opaque, ProviderTool, Tool, ToolChoice, ToolName, source_path
from toolwire.core.json_values import (
    Json,
    Malformed,
    Object,
    Path,
    decode,
    encode,
    expect_list,
    expect_object,
    get_bool,
    get_object,
    get_text,
    raise_wrong_type,
    require_text,
)
from toolwire.core.losses import Ledger
from toolwire.core.provenance import is_verbatim, items_with_paths, restore_original_keys
from toolwire.protocols.unified import names
from toolwire.protocols.unified.content import read_cache, write_cache
from toolwire.protocols.unified.names import NAME, LenientReadContext, intact_wire, read_word, suggest_word
from toolwire.schema.descriptions import add_descriptions, missing_descriptions
from toolwire.schema.standard import convert_to_standard
from toolwire.schema.validate import schema_problems

_TOOL_NAME = re.compile(rf"[A-Za-z0-9_]{{1,{names.NAME_LIMIT}}}")


def check_tool_name(name: str, path: Path) -> None:
    if _TOOL_NAME.fullmatch(name) is None:
        raise Malformed(
            path, f"invalid tool name `{name}`: use 1 to {names.NAME_LIMIT} letters, digits and underscores"
        )


# --- reading --------------------------------------------------------------------------------------------------------


def read_tools(reading: LenientReadContext, values: list[Json], path: Path) -> tuple[AnyTool, ...]:
    tools: list[AnyTool] = []
    seen: set[str] = set()
    for value, where in items_with_paths(values, path):
        node = expect_object(value, where)
        tool = _read_provider_tool(reading, node, where) if "hosted" in node else _read_tool(reading, node, where)
        name = tool.name or getattr(tool, "tool", "")
        if name in seen:
            raise Malformed(where, f"another tool is called `{name}`; names must be unique")
        seen.add(name)
        tools.append(tool)
    return tuple(tools)


def _read_tool(reading: LenientReadContext, node: Object, path: Path) -> Tool:
    origin = reading.read_origin(node, path, names.TOOL_KEYS)
    name = require_text(node, "name", path)
    check_tool_name(name, (path, "name"))
    description = get_text(node, "description", path)
    if not description or description.isspace():
        raise Malformed(path, f"`description` is missing: say what `{name}` does and when to call it")
    parameters, output = get_object(node, "parameters", path), get_object(node, "output", path)
    problem = None if parameters is None else _parameters_problem(parameters)
    if problem is not None:
        raise Malformed(_path_below((path, "parameters"), problem[0]), problem[1])
    if output is not None:
        check_schema(output, (path, "output"))
    defer, cache = get_bool(node, "defer", path), read_cache(node, path)
    return Tool(name, description, parameters, defer=defer, output=output, cache=cache, origin=origin)


_MAX_CACHED_BYTES = 20_000
"""The results of checks are cached for schemas up to this size, because clients send the same tools every time."""


def _parameters_problem(parameters: Json) -> tuple[str, str] | None:
    """The first problem of the schema of a tool's parameters, with its place in the schema."""
    encoded = encode(parameters)
    find = _find_parameters_problem
    return find(encoded) if len(encoded) <= _MAX_CACHED_BYTES else find.__wrapped__(encoded)


@lru_cache(maxsize=512)
def _find_parameters_problem(encoded: bytes) -> tuple[str, str] | None:
    parameters = decode(encoded)
    if not isinstance(parameters, dict) or parameters.get("type") != "object":
        return "/type", 'the schema of the parameters must say `"type": "object"`'
    for where, problem in schema_problems(parameters):
        return where, f"not a valid JSON Schema: {problem}"
    for where in missing_descriptions(parameters):
        return where, f"`description` is missing: say what the parameter `{where.rpartition('/')[2]}` is for"
    return None


def check_schema(schema: Object, path: Path) -> None:
    for where, problem in schema_problems(schema):
        raise Malformed(_path_below(path, where), f"not a valid JSON Schema: {problem}")


def _path_below(path: Path, place: str) -> Path:
    """The path of a JSON Pointer into the schema at `path`."""
    for key in place.split("/")[1:]:
        path = (path, key.replace("~1", "/").replace("~0", "~"))
    return path


def _read_provider_tool(reading: LenientReadContext, node: Object, path: Path) -> ProviderTool:
    origin = reading.read_origin(node, path, names.PROVIDER_TOOL_KEYS)
    tool = require_text(node, "hosted", path)
    read_word(node, "hosted", path, PROVIDER_TOOLS)
    fields = names.read_fields(node, path, names.PROVIDER_TOOL_FIELDS)
    return ProviderTool(tool, **fields, cache=read_cache(node, path), origin=origin)


# --- writing --------------------------------------------------------------------------------------------------------


def write_any_tool(tool: AnyTool, ledger: Ledger) -> Object | None:
    if (wire := intact_wire(tool.origin)) is not None:
        return wire
    if isinstance(tool, Opaque):
        ledger.note("tool-dropped", source_path(tool), f"the tool `{tool.kind}` was left out")
        return None
    if isinstance(tool, ProviderTool):
        options = names.write_fields(tool, names.PROVIDER_TOOL_FIELDS)
        out: Object = {"hosted": tool.tool}
        out |= {key: list(value) if isinstance(value, tuple) else value for key, value in options.items()}
    else:
        out = _write_tool(tool, ledger)
    return restore_original_keys(out | write_cache(tool.cache), tool.origin, NAME)


def _write_tool(tool: Tool, ledger: Ledger) -> Object:
    where = source_path(tool)
    out: Object = {"name": tool.name, "description": tool.description}
    if tool.description is None or not tool.description.strip():
        out["description"] = f"The tool `{tool.name}`."
        ledger.note("description-added", where, f"the tool `{tool.name}` got a description")
    if tool.parameters is not None:
        out["parameters"] = _write_parameters(tool, ledger)
    out |= {field: value for field in ("output", "defer") if (value := getattr(tool, field)) is not None}
    if tool.strict:
        ledger.note("no-counterpart", where, f"`strict` of `{tool.name}` was left out", "unified has no strict mode")
    if tool.kind != "function":
        ledger.note("tool-wrapped", where, f"the {tool.kind} tool `{tool.name}` became a function")
    if tool.grammar is not None:
        ledger.note("no-counterpart", where, f"the grammar of `{tool.name}` was left out")
    if tool.namespace:
        ledger.note("namespace-flattened", where, f"the namespace `{tool.namespace}` was left out")
    return out


def _write_parameters(tool: Tool, ledger: Ledger) -> Json:
    """The schema as clients of unified must write it, with as few changes as possible."""
    where: Path = (source_path(tool), "parameters")
    parameters: Json = tool.parameters
    if _parameters_problem(parameters) is None:
        return parameters
    if schema_problems(parameters):
        plain = convert_to_standard(parameters)
        parameters = plain.schema
        for change in plain.changes:
            ledger.note("schema-rewritten", change.path_from(where), change.what)
    if not isinstance(parameters, dict) or parameters.get("type") != "object":
        parameters = (parameters if isinstance(parameters, dict) else {}) | {"type": "object"}
        ledger.note("schema-rewritten", where, f"the parameters of `{tool.name}` became an object")
    described = add_descriptions(parameters)
    for change in described.changes:
        ledger.note("description-added", change.path_from(where), change.what)
    return described.schema


# --- tool choice ----------------------------------------------------------------------------------------------------

CHOICE_MODES: Mapping[str, Literal["auto", "none", "required"]] = {
    "auto": "auto",
    "none": "none",
    "required": "required",
}


def read_tool_choice(reading: LenientReadContext, value: Json, path: Path, tools: tuple[AnyTool, ...]) -> ToolChoice:
    if isinstance(value, str):
        if value in CHOICE_MODES:
            return ToolChoice(CHOICE_MODES[value], origin=reading.whole_origin(value, path))
        hint = suggest_word(value, CHOICE_MODES)
        raise Malformed(path, f'unknown tool choice `{value}`; {hint}; one tool is {{"name": …}}')
    if not isinstance(value, dict):
        raise_wrong_type(path, "a string or an object", value)
    origin = reading.read_origin(value, path, names.TOOL_CHOICE_KEYS)
    if "allowed" not in value:
        _refuse_keys(value, path, "mode")
        return ToolChoice("one", (_read_tool_name(value, path, tools),), origin=origin)
    _refuse_keys(value, path, "name", "hosted")
    allowed = expect_list(value["allowed"], (path, "allowed"))
    chosen = tuple(
        _read_tool_name({"name": item} if isinstance(item, str) else expect_object(item, where), where, tools)
        for item, where in items_with_paths(allowed, (path, "allowed"))
    )
    required = read_word(value, "mode", path, ("auto", "required")) == "required"
    return ToolChoice("allowed", chosen, required, origin=origin)


def _refuse_keys(node: Object, path: Path, *keys: str) -> None:
    other = "`allowed`" if "allowed" in node else "one tool"
    for key in keys:
        if key in node:
            raise Malformed((path, key), f"`{key}` cannot be combined with {other}")


def _read_tool_name(node: Object, path: Path, tools: tuple[AnyTool, ...]) -> ToolName:
    """A function by its name, or a provider tool: `{"hosted": …}`."""
    if "hosted" in node:
        tool = read_word(node, "hosted", path, PROVIDER_TOOLS) or ""
        return ToolName(tool, tool)
    name = require_text(node, "name", path)
    known = [tool.name for tool in tools if isinstance(tool, Tool)]
    if name not in known:
        raise Malformed(path, f"there is no tool `{name}`; {suggest_word(name, known)}")
    return ToolName(name)


def write_tool_choice(choice: ToolChoice, ledger: Ledger) -> Json:
    if is_verbatim(choice.origin, NAME):
        return choice.origin.wire  # type: ignore[union-attr]
    if choice.mode in CHOICE_MODES:
        return choice.mode
    allowed = [_write_tool_name(tool, choice, ledger) for tool in choice.tools]
    if choice.mode == "one" and allowed:
        return {"name": allowed[0]} if isinstance(allowed[0], str) else allowed[0]
    return {"allowed": allowed, "mode": "required" if choice.required else "auto"}


def _write_tool_name(tool: ToolName, choice: ToolChoice, ledger: Ledger) -> Json:
    if tool.kind in PROVIDER_TOOLS:
        return {"hosted": tool.kind}
    if tool.kind != "function" or tool.namespace:
        ledger.note("choice-mapped", source_path(choice), f"the choice names `{tool.name}` as a function")
    return tool.name
