"""Tools, the tool choice, and the schemas of arguments."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from msgspec.structs import replace

from toolwire.core.ir import AnyTool, Opaque, ProviderTool, Request, Tool, ToolChoice, ToolName, source_path
from toolwire.core.json_values import (
    Json,
    Malformed,
    Object,
    Path,
    expect_object,
    get_bool,
    get_int,
    get_list,
    get_object,
    get_text,
    require_text,
)
from toolwire.core.losses import Ledger
from toolwire.core.provenance import ReadContext, items_with_paths, restore_original_keys
from toolwire.protocols.anthropic.cache import read_cache, write_cache
from toolwire.protocols.anthropic.models import Family
from toolwire.protocols.anthropic.names import (
    CLIENT_TOOL_KEYS,
    LOCATION_KEYS,
    NAME,
    PROVIDER_TOOL_KEYS,
    TOOL_CHOICE_KEYS,
    TOOL_KEYS,
    intact_wire,
    is_foreign,
    is_own,
)
from toolwire.schema import (
    STRICT_WITH_OPTIONAL,
    ConvertedSchema,
    SchemaChange,
    convert_to_object_root,
    convert_to_standard,
    convert_to_strict,
    is_flat_object,
    strict_problems,
)

PROVIDER_TOOL_VERSIONS: Mapping[str, str] = MappingProxyType(
    {
        "web_search": "web_search_20250305",
        "web_fetch": "web_fetch_20250910",
        "code_execution": "code_execution_20250825",
    }
)
"""The tools that Anthropic runs, each with a version that every model accepts. Other versions are read by their
prefix."""

MAX_STRICT_TOOLS = 20
"""Anthropic accepts `strict` on at most this many tools of a request."""

NO_PARAMETERS: Object = {"type": "object", "properties": {}}


# --- reading ----------------------------------------------------------------------------------------------------------


def read_tools(body: Object, reading: ReadContext) -> tuple[AnyTool, ...]:
    tools = items_with_paths(get_list(body, "tools", None) or [], (None, "tools"))
    return tuple([_read_tool(tool, path, reading) for tool, path in tools])


def _read_tool(value: Json, path: Path, reading: ReadContext) -> AnyTool:
    tool = expect_object(value, path)
    kind = get_text(tool, "type", path) or "custom"
    if kind == "custom":
        known, kind = TOOL_KEYS, "function"
        description, parameters = get_text(tool, "description", path), get_object(tool, "input_schema", path)
    elif provider_tool := _find_provider_tool(kind):
        return _read_provider_tool(provider_tool, tool, path, reading)
    elif client_tool := find_client_tool(kind):
        known = CLIENT_TOOL_KEYS
        description, parameters = client_tool
    else:
        return Opaque(kind, reading.whole_origin(tool, path))
    return Tool(
        require_text(tool, "name", path),
        description,
        parameters,
        kind,
        strict=get_bool(tool, "strict", path),
        defer=get_bool(tool, "defer_loading", path),
        cache=read_cache(tool, path, reading),
        origin=reading.read_origin(tool, path, known),
    )


def _find_provider_tool(kind: str) -> str:
    """The common name of a provider tool from its type, such as `web_search_20250305`."""
    return next((name for name in PROVIDER_TOOL_VERSIONS if kind.startswith(f"{name}_")), "")


def _read_provider_tool(name: str, tool: Object, path: Path, reading: ReadContext) -> ProviderTool:
    location = get_object(tool, "user_location", path)
    if location:
        for key in location:
            if key not in LOCATION_KEYS:
                reading.note_unknown_field((path, "user_location"), key)
        location = {
            key: value
            for key, value in location.items()
            if key in LOCATION_KEYS and key != "type" and value is not None
        }
    return ProviderTool(
        name,
        get_text(tool, "name", path) or name,
        get_int(tool, "max_uses", path),
        tuple(get_list(tool, "allowed_domains", path) or ()),
        tuple(get_list(tool, "blocked_domains", path) or ()),
        location,
        cache=read_cache(tool, path, reading),
        origin=reading.read_origin(tool, path, PROVIDER_TOOL_KEYS),
    )


CHOICE_MODES: Mapping[str, Literal["auto", "required", "none", "one"]] = MappingProxyType(
    {"auto": "auto", "any": "required", "none": "none", "tool": "one"}
)
_CHOICE_TYPES: Mapping[str, str] = {mode: word for word, mode in CHOICE_MODES.items()}


def read_tool_choice(body: Object, reading: ReadContext) -> tuple[ToolChoice | None, bool | None]:
    """The tool choice, and whether parallel calls are allowed: Anthropic has both in one object."""
    choice = get_object(body, "tool_choice", None)
    if choice is None:
        return None, None
    path = (None, "tool_choice")
    kind = require_text(choice, "type", path)
    if kind not in CHOICE_MODES:
        raise Malformed((path, "type"), f"expected one of {', '.join(CHOICE_MODES)}, got `{kind}`")
    tools = (_read_tool_name(require_text(choice, "name", path), body),) if kind == "tool" else ()
    origin = reading.read_origin(choice, path, TOOL_CHOICE_KEYS)
    parallel = _read_parallel(get_bool(choice, "disable_parallel_tool_use", path))
    return ToolChoice(CHOICE_MODES[kind], tools, origin=origin), parallel


def _read_parallel(disabled: bool | None) -> bool | None:
    return None if disabled is None else not disabled


def _read_tool_name(name: str, body: Object) -> ToolName:
    """A choice names a provider tool like any other; only its declaration says what it is."""
    for tool in body.get("tools") or ():
        if isinstance(tool, dict) and tool.get("name") == name and isinstance(kind := tool.get("type"), str):
            return ToolName(name, _find_provider_tool(kind) or "function")
    return ToolName(name)


# --- writing ----------------------------------------------------------------------------------------------------------


def write_tools(tools: tuple[AnyTool, ...], ledger: Ledger) -> list[Object]:
    written = [wire for tool in tools if (wire := _write_tool(tool, ledger)) is not None]
    all_deferred = bool(written) and all(wire.get("defer_loading") for wire in written)
    too_many_strict = len(written) > MAX_STRICT_TOOLS < sum(bool(wire.get("strict")) for wire in written)
    if not (all_deferred or too_many_strict) or not all(is_foreign(tool.origin) for tool in tools):
        return written
    if all_deferred:
        for tool in tools:
            ledger.note("no-counterpart", source_path(tool), "the tool is not deferred", "no tool here could load it")
    if too_many_strict:
        ledger.note(
            "no-counterpart", None, "`strict` was removed from all tools", f"at most {MAX_STRICT_TOOLS} have it"
        )
    removed = {"defer_loading"} if all_deferred else set()
    removed |= {"strict"} if too_many_strict else set()
    return [{key: value for key, value in wire.items() if key not in removed} for wire in written]


def _write_tool(tool: AnyTool, ledger: Ledger) -> Object | None:
    if (wire := intact_wire(tool.origin)) is not None:
        return wire
    if isinstance(tool, Tool):
        return _write_function(tool, ledger)
    if isinstance(tool, ProviderTool):
        return _write_provider_tool(tool, ledger)
    ledger.note_opaque(tool)
    return None


def _write_function(tool: Tool, ledger: Ledger) -> Object:
    out: Object = {"name": tool.name}
    if tool.kind != "function" and find_client_tool(tool.kind) is not None:
        out = {"type": tool.kind, "name": tool.name}
    else:
        if tool.description is not None:
            out["description"] = tool.description
        out["input_schema"] = _write_parameters(tool, ledger)
    strict = None if tool.strict is None else _write_strict(tool, out, ledger)
    if strict is not None:
        out["strict"] = strict
    if tool.defer is not None:
        out["defer_loading"] = tool.defer
    if tool.output is not None:
        ledger.note("no-counterpart", source_path(tool), f"the schema of what `{tool.name}` returns was left out")
    if tool.grammar is not None:
        ledger.note("no-counterpart", source_path(tool), f"the grammar of `{tool.name}` was left out")
    if tool.cache is not None and tool.defer:
        what = f"the cache breakpoint on `{tool.name}` was left out"
        ledger.note("cache-dropped", source_path(tool), what, "Anthropic accepts none on a deferred tool")
    else:
        write_cache(out, tool.cache, ledger, source_path(tool))
    return restore_original_keys(out, tool.origin, NAME)


def _write_parameters(tool: Tool, ledger: Ledger) -> Json:
    if tool.parameters is None:
        ledger.note("schema-added", source_path(tool), f"`{tool.name}` got a schema without arguments")
        return NO_PARAMETERS
    if has_object_root(tool.parameters) or not is_foreign(tool.origin):
        return tool.parameters
    converted = convert_tool_schema(tool.parameters)
    _note_schema_changes(converted.changes, source_path(tool), f"`{tool.name}`", ledger)
    return converted.schema


def _write_strict(tool: Tool, out: Object, ledger: Ledger) -> bool | None:
    """`strict`, unless Anthropic would refuse it for this schema."""
    if not tool.strict or not is_foreign(tool.origin) or "input_schema" not in out:
        return tool.strict
    schema, problem = make_strict_schema(out["input_schema"], source_path(tool), f"`{tool.name}`", ledger)
    if problem:
        ledger.note("no-counterpart", source_path(tool), f"`strict` of `{tool.name}` was left out", problem)
        return None
    out["input_schema"] = schema
    return True


def _write_provider_tool(tool: ProviderTool, ledger: Ledger) -> Object | None:
    where = source_path(tool)
    version = PROVIDER_TOOL_VERSIONS.get(tool.tool)
    if version is None:
        ledger.note("tool-dropped", where, f"the provider tool `{tool.tool}` was left out")
        return None
    if is_own(tool.origin):
        version = tool.origin.wire["type"]
    out: Object = {"type": version, "name": tool.tool}
    options: Object = {
        "max_uses": tool.max_uses,
        "allowed_domains": list(tool.allowed_domains) or None,
        "blocked_domains": list(tool.blocked_domains) or None,
        "user_location": {"type": "approximate", **tool.location} if tool.location else None,
    }
    if tool.tool == "code_execution":
        options = {}
    if options.get("allowed_domains") and options.pop("blocked_domains", None):
        why = "Anthropic accepts either allowed or blocked domains"
        ledger.note("no-counterpart", where, "blocked domains were left out", why)
    out |= {key: value for key, value in options.items() if value is not None}
    if tool.context_size:
        ledger.note("no-counterpart", where, f"the context size `{tool.context_size}` of a search was left out")
    write_cache(out, tool.cache, ledger, where)
    return restore_original_keys(out, tool.origin, NAME)


def select_allowed_tools(request: Request, facts: Family, ledger: Ledger) -> tuple[AnyTool, ...]:
    """Anthropic has no choice of a subset of tools, so the others are left out. Models whose thinking is only valid
    after the same tools keep all of them: they would refuse their own history."""
    choice = request.choice
    if choice is None or choice.mode != "allowed":
        return request.tools
    where = source_path(choice)
    names = {tool.name for tool in choice.tools}
    if facts.binds_prefix:
        ledger.note("choice-weakened", where, "all tools are offered", "the model's thinking is bound to its tools")
        return request.tools
    allowed = tuple(tool for tool in request.tools if isinstance(tool, Opaque) or tool.name in names)
    if not allowed:
        return request.tools
    ledger.note("choice-mapped", where, "only the allowed tools are offered")
    for tool in request.tools:
        if tool not in allowed:
            ledger.note("choice-mapped", source_path(tool), "the tool was left out, because it is not allowed")
    return allowed


def write_tool_choice(request: Request, facts: Family, has_tools: bool, ledger: Ledger) -> Object | None:
    """`tool_choice` with `disable_parallel_tool_use`; None without tools."""
    choice, parallel = request.choice, request.settings.parallel
    forced = choice is not None and (
        choice.mode in ("required", "one") or (choice.mode == "allowed" and choice.required)
    )
    if not has_tools:
        if forced:
            ledger.note("choice-weakened", source_path(choice), "the forced call was left out", "there are no tools")
        return None
    origin = choice.origin if choice is not None else None
    refused = forced and not facts.forcing
    wire = intact_wire(origin)
    if wire is not None and not refused and parallel == _read_parallel(wire.get("disable_parallel_tool_use")):
        return wire
    out: Object = {"type": "auto"}
    if refused:
        what, why = "the model may, but need not call a tool", "this model cannot be forced to"
        ledger.note("choice-weakened", source_path(choice), what, why)
    elif choice is not None:
        out = _write_choice_mode(choice)
    if parallel is not None and out["type"] != "none" and (choice is not None or not parallel):
        out["disable_parallel_tool_use"] = not parallel
    if choice is None and "disable_parallel_tool_use" not in out:
        return None
    return restore_original_keys(out, origin, NAME)


def _write_choice_mode(choice: ToolChoice) -> Object:
    if choice.mode == "one" and choice.tools:
        return {"type": "tool", "name": choice.tools[0].name}
    mode: str = choice.mode
    if mode == "allowed":
        mode = "none" if not choice.tools else "required" if choice.required else "auto"
    return {"type": _CHOICE_TYPES["auto" if mode == "one" else mode]}


# --- tools that Anthropic defines and the client runs -----------------------------------------------------------------


def _string_schema(description: str, **more: Json) -> Object:
    return {"type": "string", "description": description, **more}


def _integers_schema(description: str) -> Object:
    return {"type": "array", "items": {"type": "integer"}, "description": description}


_FILE_PROPERTIES: Object = {
    "path": _string_schema("Absolute path of the file or directory"),
    "file_text": _string_schema("For create: the content of the new file"),
    "old_str": _string_schema("For str_replace: the text to be replaced; it must occur exactly once"),
    "new_str": _string_schema("For str_replace: the text that replaces it"),
    "insert_line": {"type": "integer", "description": "For insert: the line after which the text goes, 0 for the top"},
    "insert_text": _string_schema("For insert: the text"),
    "view_range": _integers_schema("For view: the first and the last line, -1 for the end"),
}


def _object_schema(required: str, properties: Object) -> Object:
    return {"type": "object", "properties": properties, "required": [required]}


def _command_schema(*words: str) -> Object:
    return _string_schema("What to do", enum=list(words))


CLIENT_TOOLS: Mapping[str, tuple[str, Object]] = MappingProxyType(
    {
        "bash_": (
            "Runs a command in a persistent shell session.",
            {
                "type": "object",
                "properties": {
                    "command": _string_schema("The command to run"),
                    "restart": {"type": "boolean", "description": "true starts the shell anew"},
                },
            },
        ),
        "text_editor_": (
            "Views, creates and edits text files.",
            _object_schema(
                "command",
                {
                    "command": _command_schema("view", "create", "str_replace", "insert", "undo_edit"),
                    **_FILE_PROPERTIES,
                },
            ),
        ),
        "memory_": (
            "Keeps notes in files below /memories.",
            _object_schema(
                "command",
                {
                    "command": _command_schema("view", "create", "str_replace", "insert", "delete", "rename"),
                    **_FILE_PROPERTIES,
                    "old_path": _string_schema("For rename: the present path"),
                    "new_path": _string_schema("For rename: the new path"),
                },
            ),
        ),
        "computer_": (
            "Controls the screen, mouse and keyboard of a computer.",
            _object_schema(
                "action",
                {
                    "action": _string_schema(
                        "What to do: screenshot, left_click, type, key, mouse_move, scroll, wait, …"
                    ),
                    "coordinate": _integers_schema("x and y on the screen, in pixels"),
                    "start_coordinate": _integers_schema("x and y where a drag begins"),
                    "text": _string_schema("The text to type, or the keys to press"),
                    "scroll_direction": _string_schema("Where to scroll", enum=["up", "down", "left", "right"]),
                    "scroll_amount": {"type": "integer", "description": "How far to scroll"},
                    "duration": {"type": "number", "description": "Seconds to wait or to hold a key"},
                    "region": _integers_schema("The corners x0, y0, x1, y1 to zoom into"),
                },
            ),
        ),
    }
)
"""Descriptions and schemas by the prefix of the type, so that these tools can be offered to other models as
functions."""


def find_client_tool(kind: str) -> tuple[str, Object] | None:
    if kind.startswith("computer_toolset_"):
        return None
    return next((row for prefix, row in CLIENT_TOOLS.items() if kind.startswith(prefix)), None)


# --- schemas ----------------------------------------------------------------------------------------------------------

_UNION_KEYS = frozenset({"anyOf", "oneOf", "allOf"})


def convert_tool_schema(schema: Json, model: str = "") -> ConvertedSchema:
    """A schema with an object at the root and no union there, as all of Anthropic's models need it."""
    if is_flat_object(schema):
        return ConvertedSchema(schema)
    plain = convert_to_standard(schema)
    made = convert_to_object_root(plain.schema)
    return replace(made, changes=(*plain.changes, *made.changes)) if plain.changes else made


def has_object_root(schema: Json) -> bool:
    """Is the root an object without a union?"""
    return isinstance(schema, dict) and schema.get("type") == "object" and _UNION_KEYS.isdisjoint(schema)


def make_strict_schema(schema: Json, where: Path, owner: str, ledger: Ledger) -> tuple[Json, str]:
    """A schema that Anthropic accepts with `strict`, and "" or why there is none."""
    plain = convert_to_standard(schema)
    made = convert_to_strict(plain.schema, STRICT_WITH_OPTIONAL)
    problems = strict_problems(made.schema, STRICT_WITH_OPTIONAL)
    if problems:
        return schema, f"{problems[0].what} ({problems[0].pointer or 'the root'})"
    _note_schema_changes((*plain.changes, *made.changes), where, owner, ledger)
    return made.schema, ""


def _note_schema_changes(changes: tuple[SchemaChange, ...], where: Path, owner: str, ledger: Ledger) -> None:
    for change in changes:
        at = f" at {change.pointer}" if change.pointer else ""
        ledger.note("schema-rewritten", where, f"the schema of {owner}{at}: {change.what}")
