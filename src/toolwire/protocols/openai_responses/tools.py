"""Tools and the choice among them. Namespaces are read apart, each child a tool of its own, and written as groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from msgspec.structs import replace

from toolwire.ir import AnyTool, Grammar, HostedTool, Opaque, Origin, Tool, ToolChoice, ToolName, place
from toolwire.loss import Ledger
from toolwire.protocols.openai_responses.details.client_tools import DESCRIPTIONS, SCHEMAS
from toolwire.protocols.openai_responses.details.hosted_tools import (
    SEARCHES,
    is_fetch,
    read_hosted_tool,
    write_hosted_tool,
)
from toolwire.protocols.openai_responses.details.ordinary import read_ordinary_tool
from toolwire.protocols.openai_responses.names import CALLS, HOSTED_TOOLS, NAME, TOOL_TYPES
from toolwire.reading import Reading, finished, numbered, verbatim
from toolwire.wire import (
    Json,
    Malformed,
    Object,
    Path,
    as_list,
    as_object,
    need_text,
    take_bool,
    take_list,
    take_object,
    take_text,
    wrong,
)

FUNCTION = frozenset({"type", "name", "description", "parameters", "strict", "defer_loading", "output_schema"})
CUSTOM = frozenset({"type", "name", "description", "format", "defer_loading"})
NAMESPACE = frozenset({"type", "name", "description", "tools"})
SEARCH = frozenset({"type", "execution", "description", "parameters"})

# --- reading --------------------------------------------------------------------------------------------------------


def read_tools(tools: list[Json], path: Path, reading: Reading) -> tuple[AnyTool, ...]:
    read: list[AnyTool] = []
    for number, value in enumerate(tools):
        at = (path, number)
        tool = read_ordinary_tool(value, at) if value.__class__ is dict else None
        if tool is not None:
            read.append(tool)
            continue
        node = as_object(value, at)
        if node.get("type") == "namespace":
            read += _read_namespace(node, at, reading)
        else:
            read.append(read_tool(node, at, reading))
    return tuple(read)


def read_tool(node: Object, path: Path, reading: Reading) -> AnyTool:
    kind = need_text(node, "type", path)
    reader = READERS.get(kind)
    if reader is None and kind.startswith(SEARCHES):
        reader = read_hosted_tool
    return Opaque(kind, Origin(NAME, path, node)) if reader is None else reader(node, path, reading)


def _read_function(node: Object, path: Path, reading: Reading) -> AnyTool:
    return Tool(
        need_text(node, "name", path),
        take_text(node, "description", path),
        take_object(node, "parameters", path),
        strict=take_bool(node, "strict", path),
        defer=take_bool(node, "defer_loading", path),
        output=take_object(node, "output_schema", path),
        origin=reading.origin(node, path, FUNCTION),
    )


def _read_custom(node: Object, path: Path, reading: Reading) -> AnyTool:
    form = take_object(node, "format", path) or {}
    grammar = None
    if form.get("type") == "grammar":
        at = (path, "format")
        grammar = Grammar(need_text(form, "syntax", at), need_text(form, "definition", at))
    return Tool(
        need_text(node, "name", path),
        take_text(node, "description", path),
        kind="custom",
        grammar=grammar,
        defer=take_bool(node, "defer_loading", path),
        origin=reading.origin(node, path, CUSTOM),
    )


def _read_namespace(node: Object, path: Path, reading: Reading) -> list[AnyTool]:
    """The children as tools of their own. One that is empty or holds what we do not know is carried whole."""
    name = need_text(node, "name", path)
    about = take_text(node, "description", path) or ""
    children = take_list(node, "tools", path) or []
    nodes = [as_object(one, at) for one, at in numbered(children, (path, "tools"))]
    if not nodes or not all(one.get("type") in ("function", "custom") for one in nodes):
        return [Opaque("namespace", Origin(NAME, path, node))]
    reading.origin(node, path, NAMESPACE)
    read: list[AnyTool] = []
    for child, at in numbered(children, (path, "tools")):
        tool = read_tool(child, at, reading)
        if isinstance(tool, Tool):
            read.append(_within(tool, name, about))
    return read


def _within(tool: Tool, namespace: str, about: str) -> Tool:
    return replace(tool, namespace=namespace, namespace_description=about)


def _read_search(node: Object, path: Path, reading: Reading) -> AnyTool:
    if node.get("execution") != "client":
        return Opaque("tool_search", Origin(NAME, path, node))
    return Tool(
        "tool_search",
        take_text(node, "description", path),
        take_object(node, "parameters", path),
        kind="search",
        origin=reading.origin(node, path, SEARCH),
    )


def _read_client_tool(node: Object, path: Path, reading: Reading) -> AnyTool:
    """A tool without a schema on the wire: we describe its action, so that others can offer it as a function."""
    wire_type: str = node["type"]
    kind = CLIENT_TYPES[wire_type]
    known = {"type"}
    environment = node.get("environment")
    if kind == "shell" and isinstance(environment, dict):
        if environment.get("type") != "local":
            return Opaque(wire_type, Origin(NAME, path, node))
        if len(environment) == 1:
            known.add("environment")
    origin = reading.origin(node, path, frozenset(known))
    return Tool(wire_type, DESCRIPTIONS[kind], SCHEMAS[kind], kind=kind, origin=origin)


CLIENT_TYPES: Mapping[str, str] = MappingProxyType(
    {
        "local_shell": "local_shell",
        "shell": "shell",
        "apply_patch": "apply_patch",
        "computer": "computer",
        "computer_use_preview": "computer",
    }
)

READERS: Mapping[str, Callable[[Object, Path, Reading], AnyTool]] = MappingProxyType(
    {"function": _read_function, "custom": _read_custom, "tool_search": _read_search}
    | dict.fromkeys(CLIENT_TYPES, _read_client_tool)
    | dict.fromkeys(HOSTED_TOOLS, read_hosted_tool)
)

# --- writing --------------------------------------------------------------------------------------------------------


def write_tools(tools: tuple[AnyTool, ...], ledger: Ledger, origin: Origin | None = None) -> list[Object]:
    """The list of tools; `origin` is that of the list they were read from, for its namespaces."""
    wire = origin.wire if origin is not None and origin.protocol == NAME and isinstance(origin.wire, list) else []
    if wire and _unchanged(tools, wire):
        return wire
    wrappers = {node["name"]: node for node in wire if isinstance(node, dict) and node.get("type") == "namespace"}
    out: list[Object] = []
    group: Object | None = None
    searches = any(isinstance(tool, HostedTool) and tool.tool == "web_search" for tool in tools)
    for tool in tools:
        written = write_tool(tool, ledger)
        if written is None or (searches and is_fetch(tool)) or _said_twice(tool, written, out):
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


def _said_twice(tool: AnyTool, written: Object, out: list[Object]) -> bool:
    """Two tools of another provider may be one here (searching and fetching)."""
    return isinstance(tool, HostedTool) and any(other.get("type") == written["type"] for other in out)


def _unchanged(tools: tuple[AnyTool, ...], wire: list[Json]) -> bool:
    """Are these exactly the tools that this list was read into?"""
    flat: list[Json] = []
    for node in wire:
        whole = isinstance(node, dict) and node.get("type") == "namespace" and node.get("tools")
        flat += node["tools"] if whole and not any(_is_whole(tool, node) for tool in tools) else [node]
    return len(flat) == len(tools) and all(
        verbatim(tool.origin, NAME) and tool.origin.wire is node  # type: ignore[union-attr]
        for tool, node in zip(tools, flat, strict=True)
    )


def _is_whole(tool: AnyTool, node: Object) -> bool:
    return isinstance(tool, Opaque) and tool.origin.wire is node


def _write_namespace(tool: Tool, wrapper: Object | None) -> Object:
    about = tool.namespace_description or tool.namespace
    out: Object = {"type": "namespace", "name": tool.namespace, "description": about, "tools": []}
    if wrapper is None:
        return out
    extra = {key: value for key, value in wrapper.items() if key not in NAMESPACE}
    return finished(out, Origin(NAME, None, wrapper, extra), NAME)


def write_tool(tool: AnyTool, ledger: Ledger) -> Object | None:
    if verbatim(tool.origin, NAME):
        wire: Object = tool.origin.wire  # type: ignore[union-attr]
        return wire
    if isinstance(tool, Opaque):
        ledger.opaque(tool)
        return None
    out = write_hosted_tool(tool, ledger) if isinstance(tool, HostedTool) else _write_client(tool, ledger)
    if tool.cache is not None:
        ledger.note("cache-dropped", place(tool), "the cache breakpoint of a tool was left out")
    return None if out is None else finished(out, tool.origin, NAME)


def _write_client(tool: Tool, ledger: Ledger) -> Object:
    if tool.kind == "custom":
        return _write_custom(tool, ledger)
    if tool.kind == "search":
        out: Object = {"type": "tool_search", "execution": "client"}
        if tool.description is not None:
            out["description"] = tool.description
        if tool.parameters is not None:
            out["parameters"] = tool.parameters
        return out
    if tool.kind in CALLS and tool.kind != "function":
        wire_type = tool.name if CLIENT_TYPES.get(tool.name) == tool.kind else tool.kind
        return {"type": "shell", "environment": {"type": "local"}} if tool.kind == "shell" else {"type": wire_type}
    return _write_function(tool, ledger)


def _write_function(tool: Tool, ledger: Ledger) -> Object:
    out: Object = {"type": "function", "name": tool.name}
    if tool.description is not None:
        out["description"] = tool.description
    if tool.parameters is not None or ledger.source != NAME:
        out["parameters"] = tool.parameters
    if tool.strict is not None:
        out["strict"] = tool.strict
    elif ledger.source != NAME:
        out["strict"] = False
        ledger.note("default-added", place(tool), f"`strict: false` was set on {tool.name!r}")
    _write_common(tool, out, ledger)
    return out


def _write_custom(tool: Tool, ledger: Ledger) -> Object:
    out: Object = {"type": "custom", "name": tool.name}
    if tool.description is not None:
        out["description"] = tool.description
    if tool.grammar is not None:
        out["format"] = {"type": "grammar", "syntax": tool.grammar.syntax, "definition": tool.grammar.definition}
    if tool.strict is not None:
        ledger.note("no-counterpart", place(tool), f"`strict` of the custom tool {tool.name!r} was left out")
    _write_common(tool, out, ledger)
    return out


def _write_common(tool: Tool, out: Object, ledger: Ledger) -> None:
    """Deferred loading needs this protocol's own search: from elsewhere it is not said (the tool is simply there)."""
    if tool.defer is not None and ledger.source == NAME:
        out["defer_loading"] = tool.defer
    elif tool.defer:
        ledger.note("no-counterpart", place(tool), f"the deferred loading of {tool.name!r} was left out")
    if tool.output is not None and tool.kind == "function":
        out["output_schema"] = tool.output
    elif tool.output is not None:
        ledger.note("no-counterpart", place(tool), f"the output schema of {tool.name!r} was left out")


# --- choice ---------------------------------------------------------------------------------------------------------

MODES = frozenset({"auto", "none", "required"})
ALLOWED = frozenset({"type", "mode", "tools"})
CHOSEN = frozenset({"type", "name", "namespace", "server_label"})


def read_choice(value: Json, path: Path, reading: Reading) -> ToolChoice | None:
    if value is None:
        return None
    if isinstance(value, str):
        if value not in MODES:
            raise Malformed(path, f"{value!r} is no choice of tools; one of {', '.join(sorted(MODES))} is")
        return ToolChoice(value, origin=Origin(NAME, path, value))  # type: ignore[arg-type]
    if not isinstance(value, dict):
        wrong(path, "a string or an object", value)
    kind = need_text(value, "type", path)
    if kind != "allowed_tools":
        name = _read_tool_name(value, path)
        return ToolChoice("one", (name,), origin=reading.origin(value, path, CHOSEN))
    names = as_list(value.get("tools"), (path, "tools"))
    tools = tuple([_read_tool_name(as_object(one, at), at) for one, at in numbered(names, (path, "tools"))])
    required = value.get("mode") == "required"
    return ToolChoice("allowed", tools, required, reading.origin(value, path, ALLOWED))


def _read_tool_name(node: Object, path: Path) -> ToolName:
    kind = need_text(node, "type", path)
    if kind in ("function", "custom"):
        return ToolName(need_text(node, "name", path), kind, take_text(node, "namespace", path) or "")
    if kind == "mcp":
        return ToolName(take_text(node, "name", path) or "", kind, need_text(node, "server_label", path))
    if kind == "tool_search":
        return ToolName(kind, "search")
    if kind.startswith(SEARCHES):
        return ToolName("web_search", "web_search")
    return ToolName(HOSTED_TOOLS.get(kind, kind), CLIENT_TYPES.get(kind, HOSTED_TOOLS.get(kind, kind)))


def write_choice(choice: ToolChoice, ledger: Ledger) -> Json:
    if verbatim(choice.origin, NAME):
        return choice.origin.wire  # type: ignore[union-attr]
    if choice.mode in MODES:
        return choice.mode
    names = [_write_tool_name(name) for name in choice.tools]
    if choice.mode == "one" and names:
        return names[0]
    if not names:
        ledger.note("choice-weakened", place(choice), "a choice that names no tool became `auto`")
        return "auto"
    return {"type": "allowed_tools", "mode": "required" if choice.required else "auto", "tools": names}


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
    return {"type": "web_search" if tool.kind == "web_fetch" else TOOL_TYPES.get(tool.kind, tool.kind)}
