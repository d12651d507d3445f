"""Responses tools and `tool_choice`. The tools of a namespace are read one by one, and written as groups again."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from toolwire.core.codec import Members, list_items
from toolwire.core.ir import (
    AnyTool,
    Grammar,
    Opaque,
    Origin,
    Part,
    ProviderTool,
    Request,
    Result,
    Tool,
    ToolChoice,
    ToolName,
    ToolsAdded,
    replace_fields,
    source_path,
)
from toolwire.core.json_values import (
    Json,
    Malformed,
    Object,
    Path,
    encode,
    expect_list,
    expect_object,
    get_bool,
    get_list,
    get_object,
    get_text,
    raise_wrong_type,
    require_text,
)
from toolwire.core.losses import Ledger
from toolwire.core.provenance import ReadContext, items_with_paths, restore_original_keys
from toolwire.core.tool_choice import NOT_PARALLEL
from toolwire.protocols.openai_responses import names
from toolwire.protocols.openai_responses.names import NAME, intact_wire, is_own

FUNCTION_TOOL_KEYS = frozenset(
    {"type", "name", "description", "parameters", "strict", "defer_loading", "output_schema"}
)
CUSTOM_TOOL_KEYS = frozenset({"type", "name", "description", "format", "defer_loading"})
NAMESPACE_KEYS = frozenset({"type", "name", "description", "tools"})
TOOL_SEARCH_KEYS = frozenset({"type", "execution", "description", "parameters"})

ADDITIONAL_TOOLS = "additional_tools"
"""The type of an item that adds tools in the middle of the conversation."""
_ADDITIONAL_TOOLS = encode(ADDITIONAL_TOOLS)


def count_tools(members: Members) -> int:
    """Items that add tools count as one: how many they add matters to nobody who does not read them."""
    added = bytes(members["input"]).count(_ADDITIONAL_TOOLS) if "input" in members else 0
    return len(list_items(members, "tools")) + added


WEB_SEARCH_PREFIX = "web_search"
"""The type of every version of OpenAI's web search begins with this."""
INCLUDE_SOURCES = "web_search_call.action.sources"
"""The `include` without which a web search does not list its sources."""
WEB_SEARCH_KEYS = frozenset({"type", "filters", "search_context_size", "user_location"})
FILTER_KEYS = frozenset({"allowed_domains"})
LOCATION_KEYS = ("city", "country", "region", "timezone")


def read_tools(tools: list[Json], path: Path, reading: ReadContext) -> tuple[AnyTool, ...]:
    read: list[AnyTool] = []
    for number, value in enumerate(tools):
        at = (path, number)
        node = expect_object(value, at)
        if node.get("type") == "namespace":
            read += _read_namespace(node, at, reading)
        else:
            read.append(_read_tool(node, at, reading))
    return tuple(read)


def _read_tool(node: Object, path: Path, reading: ReadContext) -> AnyTool:
    kind = require_text(node, "type", path)
    reader = _read_web_search if kind.startswith(WEB_SEARCH_PREFIX) else TOOL_READERS.get(kind)
    return Opaque(kind, Origin(NAME, path, node)) if reader is None else reader(node, path, reading)


def _read_function(node: Object, path: Path, reading: ReadContext) -> AnyTool:
    return Tool(
        require_text(node, "name", path),
        get_text(node, "description", path),
        get_object(node, "parameters", path),
        strict=get_bool(node, "strict", path),
        defer=get_bool(node, "defer_loading", path),
        output=get_object(node, "output_schema", path),
        origin=reading.read_origin(node, path, FUNCTION_TOOL_KEYS),
    )


def _read_custom(node: Object, path: Path, reading: ReadContext) -> AnyTool:
    form = get_object(node, "format", path) or {}
    grammar = None
    if form.get("type") == "grammar":
        at = (path, "format")
        grammar = Grammar(require_text(form, "syntax", at), require_text(form, "definition", at))
    return Tool(
        require_text(node, "name", path),
        get_text(node, "description", path),
        kind="custom",
        grammar=grammar,
        defer=get_bool(node, "defer_loading", path),
        origin=reading.read_origin(node, path, CUSTOM_TOOL_KEYS),
    )


def _read_namespace(node: Object, path: Path, reading: ReadContext) -> list[AnyTool]:
    """The children as tools. A namespace that is empty, or has children of unknown types, is carried as it is."""
    name = require_text(node, "name", path)
    about = get_text(node, "description", path) or ""
    listed = items_with_paths(get_list(node, "tools", path) or [], (path, "tools"))
    children = [(expect_object(child, at), at) for child, at in listed]
    if not children or not all(child.get("type") in ("function", "custom") for child, _ in children):
        return [Opaque("namespace", Origin(NAME, path, node))]
    reading.read_origin(node, path, NAMESPACE_KEYS)
    tools = [_read_tool(child, at, reading) for child, at in children]
    return [replace(tool, namespace=name, namespace_description=about) for tool in tools if isinstance(tool, Tool)]


def _read_tool_search(node: Object, path: Path, reading: ReadContext) -> AnyTool:
    if node.get("execution") != "client":
        return Opaque("tool_search", Origin(NAME, path, node))
    description, parameters = get_text(node, "description", path), get_object(node, "parameters", path)
    origin = reading.read_origin(node, path, TOOL_SEARCH_KEYS)
    return Tool("tool_search", description, parameters, kind="search", origin=origin)


def _read_client_tool(node: Object, path: Path, reading: ReadContext) -> AnyTool:
    """A tool that OpenAI describes to its models itself. Other protocols offer it as a function, described here."""
    wire_type: str = node["type"]
    kind = CLIENT_TOOL_KINDS[wire_type]
    known = {"type"}
    environment = node.get("environment")
    if kind == "shell" and isinstance(environment, dict):
        if environment.get("type") != "local":
            return Opaque(wire_type, Origin(NAME, path, node))
        if len(environment) == 1:
            known.add("environment")
    origin = reading.read_origin(node, path, frozenset(known))
    return Tool(wire_type, CLIENT_TOOL_DESCRIPTIONS[kind], CLIENT_TOOL_SCHEMAS[kind], kind=kind, origin=origin)


def _read_provider_tool(node: Object, path: Path, reading: ReadContext) -> AnyTool:
    tool = names.PROVIDER_TOOL_KINDS[node["type"]]
    auto = tool == "code_execution" and node.get("container") == {"type": "auto"}
    known = frozenset({"type", "container"}) if auto else frozenset({"type"})
    return ProviderTool(tool, origin=reading.read_origin(node, path, known))


def _read_web_search(node: Object, path: Path, reading: ReadContext) -> AnyTool:
    filters = get_object(node, "filters", path) or {}
    place_of_user = get_object(node, "user_location", path) or {}
    reading.read_origin(filters, (path, "filters"), FILTER_KEYS)
    domains = get_list(filters, "allowed_domains", (path, "filters")) or []
    location = {key: place_of_user[key] for key in LOCATION_KEYS if place_of_user.get(key) is not None}
    return ProviderTool(
        "web_search",
        allowed_domains=tuple(domains),
        location=location or None,
        context_size=get_text(node, "search_context_size", path) or "",
        origin=reading.read_origin(node, path, WEB_SEARCH_KEYS),
    )


def read_max_tool_calls(body: Object, tools: tuple[AnyTool, ...]) -> tuple[AnyTool, ...]:
    """The tools with `max_tool_calls` as their limit. It counts for all provider tools together, so it is read only
    where there is exactly one; otherwise these very tools are given back."""
    limit, used = body.get("max_tool_calls"), [tool for tool in tools if not isinstance(tool, Tool)]
    if type(limit) is not int or len(used) != 1 or not isinstance(used[0], ProviderTool):
        return tools
    limited = replace(used[0], max_uses=limit)
    return tuple([limited if tool is used[0] else tool for tool in tools])


CLIENT_TOOL_KINDS: Mapping[str, str] = {
    **{kind: kind for kind in ("local_shell", "shell", "apply_patch", "computer")},
    "computer_use_preview": "computer",
}
"""The types of tools without a schema, and their kind."""

TOOL_READERS: Mapping[str, Callable[[Object, Path, ReadContext], AnyTool]] = (
    {"function": _read_function, "custom": _read_custom, "tool_search": _read_tool_search}
    | dict.fromkeys(CLIENT_TOOL_KINDS, _read_client_tool)
    | dict.fromkeys(names.PROVIDER_TOOL_KINDS, _read_provider_tool)
)


def write_tools(tools: tuple[AnyTool, ...], ledger: Ledger, origin: Origin | None = None) -> list[Object]:
    """The list of tools; `origin` is that of the list they were read from, for its namespaces."""
    wire = origin.wire if is_own(origin) and isinstance(origin.wire, list) else []
    if wire and _is_unchanged(tools, wire):
        return wire
    tools = _load_unreachable_tools(tools, wire, ledger)
    wrappers = {node["name"]: node for node in wire if isinstance(node, dict) and node.get("type") == "namespace"}
    out: list[Object] = []
    group: Object | None = None
    searches = any(isinstance(tool, ProviderTool) and tool.tool == "web_search" for tool in tools)
    for tool in tools:
        written = _write_tool(tool, ledger)
        # Two tools of another provider, such as web search and web fetch, may be one here.
        if written is None or (
            isinstance(tool, ProviderTool)
            and ((searches and tool.tool == "web_fetch") or any(one.get("type") == written["type"] for one in out))
        ):
            continue
        if not isinstance(tool, Tool) or not tool.namespace:
            group = None
            out.append(written)
            continue
        if group is None or group["name"] != tool.namespace:
            group = _write_namespace(tool, wrappers.get(tool.namespace))
            out.append(group)
        group["tools"].append(written)
    return out


def _load_unreachable_tools(tools: tuple[AnyTool, ...], wire: list[Json], ledger: Ledger) -> tuple[AnyTool, ...]:
    """The tools, no longer deferred if the search that would find them was left out, for instance by a policy."""
    if not any(isinstance(node, dict) and node.get("type") == "tool_search" for node in wire):
        return tools
    if any(isinstance(tool, Opaque) and tool.kind == "tool_search" for tool in tools):
        return tools
    if any(isinstance(tool, Tool) and tool.kind == "search" for tool in tools):
        return tools
    out: list[AnyTool] = []
    for tool in tools:
        if isinstance(tool, Tool) and tool.defer:
            what = f"{tool.name!r} is loaded at once"
            ledger.note("setting-mapped", source_path(tool), what, "the search that would find it is not sent")
            tool = replace_fields(tool, defer=None)
        out.append(tool)
    return tuple(out)


def is_written(tool: AnyTool) -> bool:
    """Is this tool one of those that `write_tools` writes?"""
    if isinstance(tool, ProviderTool):
        return tool.tool in names.PROVIDER_TOOL_TYPES or tool.tool == "web_fetch" or is_own(tool.origin)
    return isinstance(tool, Tool) or is_own(tool.origin)


def tools_added_by(part: Part) -> tuple[AnyTool, ...]:
    """The tools that this part of the conversation adds, itself or in a result."""
    if isinstance(part, ToolsAdded):
        return part.tools
    return tuple([tool for item in part.content for tool in tools_added_by(item)]) if isinstance(part, Result) else ()


def _is_unchanged(tools: tuple[AnyTool, ...], wire: list[Json]) -> bool:
    """Are these exactly the tools that this list was read into?"""
    whole = [tool.origin.wire for tool in tools if isinstance(tool, Opaque)]
    nodes: list[Json] = []
    for node in wire:
        children = node.get("tools") if isinstance(node, dict) and node.get("type") == "namespace" else None
        nodes += children if children and node not in whole else [node]
    wires = [intact_wire(tool.origin) for tool in tools]
    return nodes == wires


def _write_namespace(tool: Tool, wrapper: Object | None) -> Object:
    about = tool.namespace_description or tool.namespace
    out: Object = {"type": "namespace", "name": tool.namespace, "description": about, "tools": []}
    if wrapper is None:
        return out
    extra = {key: value for key, value in wrapper.items() if key not in NAMESPACE_KEYS}
    return restore_original_keys(out, Origin(NAME, None, wrapper, extra), NAME)


def _write_tool(tool: AnyTool, ledger: Ledger) -> Object | None:
    if (wire := intact_wire(tool.origin)) is not None:
        return wire
    if isinstance(tool, Opaque):
        ledger.note_opaque(tool)
        return None
    out = _write_provider_tool(tool, ledger) if isinstance(tool, ProviderTool) else _write_client_tool(tool, ledger)
    if tool.cache is not None:
        ledger.note("cache-dropped", source_path(tool), "the cache breakpoint of a tool was left out")
    return None if out is None else restore_original_keys(out, tool.origin, NAME)


def _write_client_tool(tool: Tool, ledger: Ledger) -> Object:
    if tool.kind == "shell":
        return {"type": "shell", "environment": {"type": "local"}}
    if tool.kind in CLIENT_TOOL_SCHEMAS:
        return {"type": tool.name if CLIENT_TOOL_KINDS.get(tool.name) == tool.kind else tool.kind}
    if tool.kind == "search":
        fields = {"description": tool.description, "parameters": tool.parameters}
        known = {key: value for key, value in fields.items() if value is not None}
        return {"type": "tool_search", "execution": "client", **known}
    out: Object = {"type": "custom" if tool.kind == "custom" else "function", "name": tool.name}
    if tool.description is not None:
        out["description"] = tool.description
    _write_definition(tool, out, ledger)
    if tool.output is not None and tool.kind == "function":
        out["output_schema"] = tool.output
    elif tool.output is not None:
        ledger.note("no-counterpart", source_path(tool), f"the output schema of {tool.name!r} was left out")
    if tool.defer is not None and ledger.source == NAME:
        out["defer_loading"] = tool.defer
    elif tool.defer:
        # Deferred loading needs OpenAI's own tool search. Without it the tool is there from the start.
        ledger.note("no-counterpart", source_path(tool), f"the deferred loading of {tool.name!r} was left out")
    return out


def _write_definition(tool: Tool, out: Object, ledger: Ledger) -> None:
    """Write the parameters of a function, or the grammar of a custom tool."""
    if tool.kind == "custom":
        if tool.grammar is not None:
            out["format"] = {"type": "grammar", "syntax": tool.grammar.syntax, "definition": tool.grammar.definition}
        if tool.strict is not None:
            ledger.note("no-counterpart", source_path(tool), f"`strict` of the custom tool {tool.name!r} was left out")
        return
    if tool.parameters is not None or ledger.source != NAME:
        out["parameters"] = tool.parameters
    if tool.strict is not None:
        out["strict"] = tool.strict
    elif ledger.source != NAME:
        # OpenAI's default here is strict; every other protocol's is not.
        out["strict"] = False
        ledger.note("default-added", source_path(tool), f"`strict: false` was set on {tool.name!r}")


def _write_provider_tool(tool: ProviderTool, ledger: Ledger) -> Object | None:
    known = "web_search" if tool.tool == "web_fetch" else tool.tool
    if known not in names.PROVIDER_TOOL_TYPES:
        ledger.note("tool-dropped", source_path(tool), f"the provider's tool {known!r} was left out")
        return None
    out: Object = {"type": names.PROVIDER_TOOL_TYPES[known]}
    if tool.tool == "web_fetch":
        ledger.note("tool-mapped", source_path(tool), "fetching pages is part of `web_search`")
    elif ledger.source != NAME:
        ledger.note("tool-mapped", source_path(tool), f"the provider's tool {known!r} became `{out['type']}`")
    if known == "code_execution":
        out["container"] = {"type": "auto"}
    elif known == "web_search":
        if tool.allowed_domains:
            out["filters"] = {"allowed_domains": list(tool.allowed_domains)}
        if tool.location:
            out["user_location"] = {"type": "approximate", **tool.location}
        if tool.context_size:
            out["search_context_size"] = tool.context_size
    if tool.blocked_domains:
        ledger.note("no-counterpart", source_path(tool), f"`blocked_domains` of {tool.tool!r} was left out")
    return out


def write_provider_tool_settings(request: Request, out: Object, ledger: Ledger) -> None:
    """Write `max_tool_calls`, which is one limit for all tools, and ask for the sources of searches."""
    used = [tool for tool in request.tools if isinstance(tool, ProviderTool)]
    limits = [tool.max_uses for tool in used if tool.max_uses is not None]
    if limits and len(limits) == len(used):
        out["max_tool_calls"] = sum(limits)
        what = f"`max_uses` became a limit of {sum(limits)} calls for all tools together"
        ledger.note("setting-mapped", source_path(used[0]), what)
    for tool in used:
        if tool.max_uses is not None and len(limits) < len(used):
            what = f"`max_uses` of {tool.tool!r} was left out"
            ledger.note("no-counterpart", source_path(tool), what, "there is one limit for all tools")
    if any(tool.tool in ("web_search", "web_fetch") for tool in used):
        out["include"] = [*out.get("include", ()), INCLUDE_SOURCES]
        ledger.note("default-added", (None, "include"), "the sources of web searches were asked for")


# --- choice ---------------------------------------------------------------------------------------------------------

CHOICE_MODES = frozenset({"auto", "none", "required"})
ALLOWED_TOOLS_KEYS = frozenset({"type", "mode", "tools"})
TOOL_CHOICE_KEYS = frozenset({"type", "name", "namespace", "server_label"})


def has_other_shape(choice: Json) -> bool:
    """Is it written as Chat does, which names tools in inner objects, or as Anthropic does? Clients send both here."""
    if not isinstance(choice, dict):
        return False
    if _is_anthropic_mode(choice) or _is_anthropic_name(choice):
        return True
    tools = choice.get("tools")
    named = [choice, *tools] if isinstance(tools, list) else [choice]
    return any(isinstance(one, dict) and isinstance(one.get(key), dict) for one in named for key in _CHAT_KEYS)


_CHAT_KEYS = ("function", "custom", "allowed_tools")
_MODE_WORDS: Mapping[str, str] = {"any": "required", **{mode: mode for mode in CHOICE_MODES}}


def _is_anthropic_mode(choice: Object) -> bool:
    return choice.keys() <= {"type", NOT_PARALLEL} and str(choice.get("type")) in _MODE_WORDS


def _is_anthropic_name(choice: Object) -> bool:
    return choice.get("type", "tool") == "tool" and "name" in choice


def flatten_choice(choice: Object) -> Json:
    """The choice as OpenAI takes it here: what Chat keeps in inner objects beside its type, and Anthropic's types."""
    out = _flatten(choice)
    if isinstance(tools := out.get("tools"), list):
        out["tools"] = [_flatten(tool) if isinstance(tool, dict) else tool for tool in tools]
    if _is_anthropic_mode(out):
        return _MODE_WORDS[out["type"]]
    if not _is_anthropic_name(out):
        return out
    return {"type": "function", **{key: out[key] for key in out if key not in ("type", NOT_PARALLEL)}}


def _flatten(node: Object) -> Object:
    out: Object = {}
    for key, value in node.items():
        out |= value if key in _CHAT_KEYS and isinstance(value, dict) else {key: value}
    return out


def read_tool_choice(value: Json, path: Path, reading: ReadContext) -> ToolChoice | None:
    if value is None:
        return None
    if isinstance(value, str):
        if value not in CHOICE_MODES:
            raise Malformed(path, f"unknown tool choice {value!r}; known are {', '.join(sorted(CHOICE_MODES))}")
        return ToolChoice(value, origin=Origin(NAME, path, value))  # type: ignore[arg-type]
    if not isinstance(value, dict):
        raise_wrong_type(path, "a string or an object", value)
    kind = require_text(value, "type", path)
    if kind != "allowed_tools":
        name = _read_tool_name(value, path)
        return ToolChoice("one", (name,), origin=reading.read_origin(value, path, TOOL_CHOICE_KEYS))
    listed = expect_list(value.get("tools"), (path, "tools"))
    tools = tuple(
        [_read_tool_name(expect_object(one, at), at) for one, at in items_with_paths(listed, (path, "tools"))]
    )
    required = value.get("mode") == "required"
    return ToolChoice("allowed", tools, required, reading.read_origin(value, path, ALLOWED_TOOLS_KEYS))


def _read_tool_name(node: Object, path: Path) -> ToolName:
    kind = require_text(node, "type", path)
    if kind in ("function", "custom"):
        return ToolName(require_text(node, "name", path), kind, get_text(node, "namespace", path) or "")
    if kind == "mcp":
        return ToolName(get_text(node, "name", path) or "", kind, require_text(node, "server_label", path))
    if kind == "tool_search":
        return ToolName(kind, "search")
    if kind.startswith(WEB_SEARCH_PREFIX):
        return ToolName("web_search", "web_search")
    return ToolName(
        names.PROVIDER_TOOL_KINDS.get(kind, kind),
        CLIENT_TOOL_KINDS.get(kind, names.PROVIDER_TOOL_KINDS.get(kind, kind)),
    )


def write_tool_choice(choice: ToolChoice, ledger: Ledger) -> Json:
    if is_own(choice.origin) and choice.origin.intact:
        return choice.origin.wire
    if choice.mode in CHOICE_MODES:
        return choice.mode
    listed = [_write_tool_name(name) for name in choice.tools]
    if choice.mode == "one" and listed:
        return listed[0]
    if not listed:
        ledger.note("choice-weakened", source_path(choice), "a choice that names no tool became `auto`")
        return "auto"
    return {"type": "allowed_tools", "mode": "required" if choice.required else "auto", "tools": listed}


def _write_tool_name(tool: ToolName) -> Object:
    if tool.kind in ("function", "custom"):
        out: Object = {"type": tool.kind, "name": tool.name}
        if tool.namespace:
            out["namespace"] = tool.namespace
        return out
    if tool.kind == "mcp":
        return {"type": "mcp", "server_label": tool.namespace, **({"name": tool.name} if tool.name else {})}
    if tool.kind == "search":
        return {"type": "tool_search"}
    return {"type": "web_search" if tool.kind == "web_fetch" else names.PROVIDER_TOOL_TYPES.get(tool.kind, tool.kind)}


_STRING_SCHEMA: Object = {"type": "string"}
_INTEGER_SCHEMA: Object = {"type": "integer"}
_STRINGS_SCHEMA: Object = {"type": "array", "items": {"type": "string"}}


def _object_schema(required: list[str], **properties: Object) -> Object:
    return {"type": "object", "properties": properties, "required": required}


def _enum_schema(values: str) -> Object:
    return {"type": "string", "enum": values.split()}


CLIENT_TOOL_DESCRIPTIONS: Mapping[str, str] = {
    "local_shell": "Runs one command on the user's machine and returns its output.",
    "shell": "Runs shell commands, one after another, and returns stdout, stderr and exit code of each.",
    "apply_patch": "Creates, updates or deletes one file. For updates and new files `diff` is a V4A diff.",
    "computer": "Acts on the user's screen (click, type, scroll, …) and returns a screenshot.",
}

CLIENT_TOOL_SCHEMAS: Mapping[str, Object] = {
    "local_shell": _object_schema(
        ["type", "command", "env"],
        type=_enum_schema("exec"),
        command={**_STRINGS_SCHEMA, "description": "The program and its arguments."},
        env={"type": "object", "additionalProperties": {"type": "string"}},
        working_directory=_STRING_SCHEMA,
        timeout_ms=_INTEGER_SCHEMA,
        user=_STRING_SCHEMA,
    ),
    "shell": _object_schema(
        ["commands"],
        commands={**_STRINGS_SCHEMA, "description": "Shell commands, run in this order."},
        timeout_ms=_INTEGER_SCHEMA,
        max_output_length=_INTEGER_SCHEMA,
    ),
    "apply_patch": _object_schema(
        ["type", "path"],
        type=_enum_schema("create_file update_file delete_file"),
        path=_STRING_SCHEMA,
        diff={"type": "string", "description": "The diff; not for delete_file."},
    ),
    "computer": _object_schema(
        ["type"],
        type=_enum_schema("click double_click drag keypress move screenshot scroll type wait"),
        x=_INTEGER_SCHEMA,
        y=_INTEGER_SCHEMA,
        button=_enum_schema("left right wheel back forward"),
        scroll_x=_INTEGER_SCHEMA,
        scroll_y=_INTEGER_SCHEMA,
        text={"type": "string", "description": "What to type."},
        keys=_STRINGS_SCHEMA,
        path={"type": "array", "items": _object_schema(["x", "y"], x=_INTEGER_SCHEMA, y=_INTEGER_SCHEMA)},
    ),
}
