"""Tools and the choice among them."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from types import MappingProxyType

from msgspec.structs import replace

from toolwire.core.ir import AnyTool, Opaque, Origin, ProviderTool, Request, Tool, ToolChoice, ToolName, source_path
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
from toolwire.core.provenance import ReadContext, is_verbatim, restore_original_keys
from toolwire.protocols.anthropic.cache import read_cache, write_cache
from toolwire.protocols.anthropic.models import Family
from toolwire.protocols.anthropic.names import (
    CLIENT_TOOL_KEYS,
    LOCATION_KEYS,
    NAME,
    PROVIDER_TOOL_KEYS,
    TOOL_CHOICE_KEYS,
    TOOL_KEYS,
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
"""The provider's own tools, each with a version that every model takes; later ones are known by their prefix."""

MAX_STRICT_TOOLS = 20
"""How many tools of a request can be enforced strictly."""

NO_PARAMETERS: Object = {"type": "object", "properties": {}}


# --- reading ----------------------------------------------------------------------------------------------------------


_TOOLS_PATH: Path = (None, "tools")
_plain_tool_fields = itemgetter("name", "description", "input_schema")


def read_tools(body: Object, reading: ReadContext) -> tuple[AnyTool, ...]:
    read: list[AnyTool] = []
    for number, tool in enumerate(get_list(body, "tools", None) or ()):
        read.append(_read_tool(tool, (_TOOLS_PATH, number), reading))
    return tuple(read)


def _read_tool(value: Json, path: Path, reading: ReadContext) -> AnyTool:
    try:
        name, description, parameters = _plain_tool_fields(value)
        if len(value) == 3 and name.__class__ is description.__class__ is str and parameters.__class__ is dict:
            origin = Origin(NAME, path, value)
            return Tool(name, description, parameters, "function", None, "", "", None, None, None, None, origin)
    except (KeyError, TypeError):
        pass  # it has other keys, or is no object
    tool = expect_object(value, path)
    kind = get_text(tool, "type", path) or "custom"
    if kind == "custom":
        return _read_function(tool, path, reading)
    hosted = next((name for name in PROVIDER_TOOL_VERSIONS if kind.startswith(f"{name}_")), None)
    if hosted is not None:
        return _read_provider_tool(hosted, tool, path, reading)
    own = find_client_tool(kind)
    if own is None:
        return Opaque(kind, reading.whole_origin(tool, path))
    description, parameters = own
    return Tool(
        require_text(tool, "name", path),
        description,
        parameters,
        kind,
        strict=get_bool(tool, "strict", path),
        defer=get_bool(tool, "defer_loading", path),
        cache=read_cache(tool, path, reading),
        origin=reading.read_origin(tool, path, CLIENT_TOOL_KEYS),
    )


def _read_function(tool: Object, path: Path, reading: ReadContext) -> Tool:
    return Tool(
        require_text(tool, "name", path),
        get_text(tool, "description", path),
        get_object(tool, "input_schema", path),
        strict=get_bool(tool, "strict", path),
        defer=get_bool(tool, "defer_loading", path),
        cache=read_cache(tool, path, reading),
        origin=reading.read_origin(tool, path, TOOL_KEYS),
    )


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


_CHOICE_MODES: Mapping[str, ToolChoice] = MappingProxyType(
    {"auto": ToolChoice("auto"), "any": ToolChoice("required"), "none": ToolChoice("none"), "tool": ToolChoice("one")}
)
_AUTO_CHOICE: Object = {"type": "auto"}
_WIRE_CHOICE_MODES = {choice.mode: word for word, choice in _CHOICE_MODES.items()}


def read_tool_choice(body: Object, reading: ReadContext) -> tuple[ToolChoice | None, bool | None]:
    """The choice, and whether several calls in one turn are welcome: the wire keeps both in one object."""
    choice = get_object(body, "tool_choice", None)
    if choice is None:
        return None, None
    path = (None, "tool_choice")
    if choice == _AUTO_CHOICE:
        return ToolChoice("auto", (), False, Origin(NAME, path, choice)), None
    word = require_text(choice, "type", path)
    if word not in _CHOICE_MODES:
        raise Malformed((path, "type"), f"expected one of {', '.join(_CHOICE_MODES)}, got `{word}`")
    single = get_bool(choice, "disable_parallel_tool_use", path)
    names = (_read_tool_name(require_text(choice, "name", path), body),) if word == "tool" else ()
    origin = reading.read_origin(choice, path, TOOL_CHOICE_KEYS)
    return ToolChoice(_CHOICE_MODES[word].mode, names, origin=origin), None if single is None else not single


def _read_tool_name(name: str, body: Object) -> ToolName:
    """One of the provider's own tools has a name like all others; its declaration tells."""
    for tool in body.get("tools") or ():
        if isinstance(tool, dict) and tool.get("name") == name and isinstance(kind := tool.get("type"), str):
            return ToolName(
                name, next((one for one in PROVIDER_TOOL_VERSIONS if kind.startswith(f"{one}_")), "function")
            )
    return ToolName(name)


# --- writing ----------------------------------------------------------------------------------------------------------


def write_tools(tools: tuple[AnyTool, ...], ledger: Ledger) -> list[Object]:
    written: list[Object] = []
    for tool in tools:
        wire = _write_tool(tool, ledger)
        if wire is not None:
            written.append(wire)
    if written and written[0].get("defer_loading"):
        written = _undefer_if_all_deferred(written, tools, ledger)
    if len(written) <= MAX_STRICT_TOOLS or len([wire for wire in written if wire.get("strict")]) <= MAX_STRICT_TOOLS:
        return written
    if not all(is_foreign(tool.origin) for tool in tools):
        return written
    ledger.note("no-counterpart", None, "no tool is enforced strictly", f"at most {MAX_STRICT_TOOLS} can be")
    return [{key: value for key, value in wire.items() if key != "strict"} for wire in written]


def _undefer_if_all_deferred(written: list[Object], tools: tuple[AnyTool, ...], ledger: Ledger) -> list[Object]:
    """Not all can be deferred: of tools from elsewhere none is, then."""
    if not all(wire.get("defer_loading") for wire in written) or not all(is_foreign(tool.origin) for tool in tools):
        return written
    for tool in tools:
        ledger.note("no-counterpart", source_path(tool), "the tool is not deferred", "nothing here could load it")
    return [{key: value for key, value in wire.items() if key != "defer_loading"} for wire in written]


def _write_tool(tool: AnyTool, ledger: Ledger) -> Object | None:
    origin = tool.origin
    if origin is not None and is_verbatim(origin, NAME):
        wire: Object = origin.wire
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
        ledger.note(
            "cache-dropped", source_path(tool), f"`{tool.name}` is loaded later, so no breakpoint can stand on it"
        )
    elif tool.cache is not None:
        write_cache(out, tool.cache, ledger, source_path(tool))
    origin = tool.origin
    return out if origin is None or origin.protocol != NAME else restore_original_keys(out, origin, NAME)


def _write_parameters(tool: Tool, ledger: Ledger) -> Json:
    if tool.parameters is None:
        ledger.note("schema-added", source_path(tool), f"`{tool.name}` takes no arguments")
        return NO_PARAMETERS
    if has_object_root(tool.parameters) or not is_foreign(tool.origin):
        return tool.parameters
    return write_object_root(tool.parameters, source_path(tool), f"`{tool.name}`", ledger)


def _write_strict(tool: Tool, out: Object, ledger: Ledger) -> bool | None:
    """A promise that the provider will refuse to keep is not asked for."""
    if not tool.strict or not is_foreign(tool.origin) or "input_schema" not in out:
        return tool.strict
    schema, hindrance = make_strict_schema(out["input_schema"], source_path(tool), f"`{tool.name}`", ledger)
    if hindrance:
        ledger.note("no-counterpart", source_path(tool), f"`{tool.name}` is not enforced strictly", hindrance)
        return None
    out["input_schema"] = schema
    return True


def _write_provider_tool(tool: ProviderTool, ledger: Ledger) -> Object | None:
    where = source_path(tool)
    version = PROVIDER_TOOL_VERSIONS.get(tool.tool)
    if version is None:
        ledger.note("tool-dropped", where, f"the provider's own tool `{tool.tool}` was left out")
        return None
    if tool.origin is not None and is_own(tool.origin):
        version = tool.origin.wire["type"]
    out: Object = {"type": version, "name": tool.tool}
    said = {
        "max_uses": tool.max_uses,
        "allowed_domains": list(tool.allowed_domains) or None,
        "blocked_domains": list(tool.blocked_domains) or None,
        "user_location": {"type": "approximate", **tool.location} if tool.location else None,
    }
    if tool.tool == "code_execution":
        said = {}
    if said.get("allowed_domains") and said.pop("blocked_domains", None):
        ledger.note(
            "no-counterpart", where, "blocked domains were left out", "allowed and blocked ones exclude each other"
        )
    out |= {key: value for key, value in said.items() if value is not None}
    if tool.context_size:
        ledger.note("no-counterpart", where, f"the context size `{tool.context_size}` of a search was left out")
    write_cache(out, tool.cache, ledger, where)
    return restore_original_keys(out, tool.origin, NAME)


def select_allowed_tools(request: Request, facts: Family, ledger: Ledger) -> tuple[AnyTool, ...]:
    """There is no choice of a subset here: the others are not offered. Models whose thoughts are bound to the tools
    before them keep them all, because they would refuse their own history."""
    choice = request.choice
    if choice is None or choice.mode != "allowed":
        return request.tools
    where = source_path(choice)
    names = {tool.name for tool in choice.tools}
    if facts.binds_prefix:
        ledger.note("choice-weakened", where, "all tools stay on offer", "the model's thoughts are bound to its tools")
        return request.tools
    kept = tuple(tool for tool in request.tools if isinstance(tool, Opaque) or tool.name in names)
    if not kept:
        return request.tools
    ledger.note("choice-mapped", where, "only the allowed tools are offered")
    for tool in request.tools:
        if tool not in kept:
            ledger.note("choice-mapped", source_path(tool), "the tool is not offered, because the choice leaves it out")
    return kept


def write_tool_choice(request: Request, facts: Family, has_tools: bool, ledger: Ledger) -> Object | None:
    """The choice and the wish for single calls, in one object; nothing without tools."""
    choice, parallel = request.choice, request.settings.parallel
    if has_tools and parallel is None and choice is not None and choice.mode == "auto" and not is_own(choice.origin):
        return {"type": "auto"}
    forced = choice is not None and (
        choice.mode in ("required", "one") or (choice.mode == "allowed" and choice.required)
    )
    if not has_tools:
        if forced:
            ledger.note(
                "choice-weakened", source_path(choice), "the demand for a call was left out", "there are no tools"
            )
        return None
    origin = choice.origin if choice is not None else None
    refused = forced and not facts.forcing
    if origin is not None and not refused and is_verbatim(origin, NAME) and _has_same_parallel(origin.wire, parallel):
        wire: Object = origin.wire
        return wire
    out: Object = {"type": "auto"}
    if refused:
        what, why = "the model may call a tool, it need not", "this model cannot be forced"
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
    if choice.mode == "allowed":
        if not choice.tools:
            return {"type": "none"}
        return {"type": "any" if choice.required else "auto"}
    return {"type": _WIRE_CHOICE_MODES.get(choice.mode, "auto")}


def _has_same_parallel(wire: Object, parallel: bool | None) -> bool:
    single = wire.get("disable_parallel_tool_use")
    return parallel == (None if single is None else not single)


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
"""Tools that the client runs but the provider defines, by the prefix of their type: what they do and what they take, so
that other models can be offered them as functions."""


def find_client_tool(kind: str) -> tuple[str, Object] | None:
    if kind.startswith("computer_toolset_"):
        return None
    return next((row for prefix, row in CLIENT_TOOLS.items() if kind.startswith(prefix)), None)


# --- Schemas from elsewhere, as this wire takes them ---


def convert_tool_schema(schema: Json, model: str = "") -> ConvertedSchema:
    """Arguments: an object at the root, no union there, plain names; for every model alike."""
    if is_flat_object(schema):
        return ConvertedSchema(schema)
    plain = convert_to_standard(schema)
    made = convert_to_object_root(plain.schema)
    return replace(made, changes=(*plain.changes, *made.changes)) if plain.changes else made


def has_object_root(schema: Json) -> bool:
    """Is an object at the root, as the steps before the writer leave it?"""
    return isinstance(schema, dict) and schema.get("type") == "object" and _UNION_KEYS.isdisjoint(schema)


_UNION_KEYS = frozenset({"anyOf", "oneOf", "allOf"})


def write_object_root(schema: Json, where: Path, owner: str, ledger: Ledger) -> Json:
    made = convert_tool_schema(schema)
    _note_schema_changes(made.changes, where, owner, ledger)
    return made.schema


def make_strict_schema(schema: Json, where: Path, owner: str, ledger: Ledger) -> tuple[Json, str]:
    """A schema that the provider can enforce, and what stands against that, if something does."""
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
