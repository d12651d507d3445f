"""Tools: how they are declared, chosen and called."""

from __future__ import annotations

from toolwire import wire
from toolwire.ir import (
    AnyTool,
    Grammar,
    HostedTool,
    Opaque,
    Origin,
    Request,
    Tool,
    ToolChoice,
    ToolName,
    place,
)
from toolwire.loss import Ledger
from toolwire.protocols.openai_chat import names
from toolwire.protocols.openai_chat.models import Family
from toolwire.protocols.openai_chat.names import NAME, kept, own, sub_keys
from toolwire.protocols.openai_chat.parts import read_cache, write_cache
from toolwire.reading import Reading, finished, numbered
from toolwire.wire import Json, Object, Path

_TOOLS: Path = (None, "tools")


def is_legacy(request: Request | None) -> bool:
    """Does this client speak of `functions` only? Then its answers must too."""
    origin = request.origin if request is not None else None
    if origin is None or origin.protocol != NAME:
        return False
    return bool(origin.wire.get("functions")) and not origin.wire.get("tools")


# --- declarations ---------------------------------------------------------------------------------------------------


def read_tools(body: Object, reading: Reading) -> tuple[AnyTool, ...]:
    """`tools`, the old `functions`, and the hosted search, which has a key of its own."""
    found: list[AnyTool] = []
    for number, item in enumerate(wire.take_list(body, "tools", None) or ()):
        path: Path = (_TOOLS, number)
        found.append(_read_plain(item, path) or _read_tool(wire.as_object(item, path), path, reading))
    if "functions" in body:
        for item, path in numbered(wire.take_list(body, "functions", None) or [], (None, "functions")):
            node = wire.as_object(item, path)
            found.append(_function(node, path, None, reading.origin(node, path, names.KNOWN_FUNCTION_TOOL)))
    search = wire.take_object(body, "web_search_options", None) if "web_search_options" in body else None
    if search is not None:
        found.append(_read_search(search, (None, "web_search_options"), reading))
    return tuple(found)


def _read_plain(node: Json, path: Path) -> Tool | None:
    """The ordinary tool, a function with known keys only, at one go."""
    try:
        inner = node["function"]
        name, kind = inner["name"], node["type"]
    except (LookupError, TypeError):
        return None
    if kind != "function" or len(node) != 2:
        return None
    described, parameters, strict = inner.get("description"), inner.get("parameters"), inner.get("strict")
    # Three keys are these three, where all are there: then none is unknown.
    three = len(inner) == 3 and described is not None and parameters is not None
    if not three and not names.KNOWN_FUNCTION_TOOL.issuperset(inner):
        return None
    if type(name) is not str or (described is not None and type(described) is not str):
        return None
    if strict is not None and type(strict) is not bool:
        return None
    origin = Origin(NAME, path, node)
    return Tool(name, described, parameters, "function", None, "", "", strict, None, None, None, origin)


def _read_tool(node: Object, path: Path, reading: Reading) -> AnyTool:
    kind = wire.take_text(node, "type", path) or "function"
    if kind not in ("function", "custom"):
        return Opaque(kind, reading.whole(node, path))
    inner = wire.as_object(node.get(kind), (path, kind))
    known = names.KNOWN_FUNCTION_TOOL if kind == "function" else names.KNOWN_CUSTOM_TOOL
    if not known.issuperset(inner):
        reading.origin(inner, (path, kind), known)
    origin = reading.origin(node, path, names.KNOWN_TOOL)
    if kind == "function":
        return _function(inner, (path, kind), read_cache(node), origin)
    return Tool(
        wire.need_text(inner, "name", (path, kind)),
        wire.take_text(inner, "description", (path, kind)),
        kind="custom",
        grammar=_read_grammar(inner, (path, kind), reading),
        cache=read_cache(node),
        origin=origin,
    )


def _function(node: Object, path: Path, cache: str | None, origin: Origin) -> Tool:
    return Tool(
        wire.need_text(node, "name", path),
        wire.take_text(node, "description", path),
        node.get("parameters"),
        strict=wire.take_bool(node, "strict", path),
        cache=cache,
        origin=origin,
    )


def _read_grammar(node: Object, path: Path, reading: Reading) -> Grammar | None:
    form = wire.take_object(node, "format", path)
    if form is None or form.get("type") == "text":
        return None
    grammar = form.get("grammar")
    if form.get("type") != "grammar" or not isinstance(grammar, dict):
        reading.stray(path, "format")
        return None
    at = ((path, "format"), "grammar")
    return Grammar(wire.need_text(grammar, "syntax", at), wire.need_text(grammar, "definition", at))


def _read_search(node: Object, path: Path, reading: Reading) -> HostedTool:
    location = wire.take_object(node, "user_location", path)
    near = wire.take_object(location, "approximate", (path, "user_location")) if location else None
    size = wire.take_text(node, "search_context_size", path) or ""
    origin = reading.origin(node, path, names.KNOWN_SEARCH)
    return HostedTool("web_search", location=near, context_size=size, origin=origin)


def write_tools(tools: tuple[AnyTool, ...], family: Family, ledger: Ledger) -> Object:
    """The keys of a request that declare its tools."""
    listed = _write_listed(tools, family, ledger) if tools else None
    if listed is not None:
        return {"tools": listed}
    out: Object = {}
    for tool in tools:
        if isinstance(tool, HostedTool):
            _write_hosted(tool, out, family, ledger)
        elif isinstance(tool, Opaque):
            if own(tool.origin):
                out.setdefault("tools", []).append(tool.origin.wire)
            else:
                ledger.note("tool-dropped", place(tool), f"the tool `{tool.kind}` was left out")
        elif not _is_listed(tool):
            out.setdefault("functions", []).append(kept(tool.origin) or finished(_flat(tool), tool.origin, NAME))
        else:
            out.setdefault("tools", []).append(kept(tool.origin) or _write_tool(tool, family, ledger))
    return out


def _is_listed(tool: AnyTool) -> bool:
    """Is it a tool that stands in the list, and nowhere else?"""
    return type(tool) is Tool and not (tool.kind == "function" and _is_flat(tool.origin))


def _write_listed(tools: tuple[AnyTool, ...], family: Family, ledger: Ledger) -> list[Object] | None:
    """The list, where all of them stand in it."""
    if not all(map(_is_listed, tools)):
        return None
    return [kept(tool.origin) or _write_tool(tool, family, ledger) for tool in tools if isinstance(tool, Tool)]


def _is_flat(origin: Origin | None) -> bool:
    """Was it read from the old `functions`?"""
    return origin is not None and own(origin) and not names.KNOWN_TOOL.intersection(origin.wire)


def _flat(tool: Tool) -> Object:
    out: Object = {"name": tool.name}
    if tool.description is not None:
        out["description"] = tool.description
    if tool.kind == "custom":
        if tool.grammar is not None:
            grammar = {"syntax": tool.grammar.syntax, "definition": tool.grammar.definition}
            out["format"] = {"type": "grammar", "grammar": grammar}
        return out
    if tool.parameters is not None:
        out["parameters"] = tool.parameters
    if tool.strict is not None:
        out["strict"] = tool.strict
    return out


def _write_tool(tool: Tool, family: Family, ledger: Ledger) -> Object:
    kind = "custom" if tool.kind == "custom" else "function"
    inner = _flat(tool)
    if tool.parameters == {} and kind == "function" and not family.native:
        # A schema without a type is refused; without any schema the tool has no parameters, which is the same.
        del inner["parameters"]
    out: Object = {"type": kind, kind: inner}
    if tool.cache is not None or tool.defer or tool.output is not None or tool.namespace:
        _note_tool(tool, out, family, ledger)
    origin = tool.origin
    if origin is None or origin.protocol != NAME:
        return out
    known = names.KNOWN_CUSTOM_TOOL if kind == "custom" else names.KNOWN_FUNCTION_TOOL
    inner |= sub_keys(origin.wire, kind, known)
    return finished(out, origin, NAME)


def _note_tool(tool: Tool, out: Object, family: Family, ledger: Ledger) -> None:
    """What stands beside the function, and what has no place here."""
    where = place(tool)
    if tool.cache is not None and family.breakpoint == "cache_control":
        write_cache(out, tool.cache, where, family, ledger)
    elif tool.cache is not None:
        ledger.note("cache-dropped", where, "a cache breakpoint on a tool was left out")
    if tool.defer:
        ledger.note("no-counterpart", where, f"`{tool.name}` is loaded at once")
    if tool.output is not None:
        ledger.note("no-counterpart", where, f"the schema of what `{tool.name}` returns was left out")
    if tool.namespace:
        ledger.note("namespace-flattened", where, f"the namespace `{tool.namespace}` was left out")


def _write_hosted(tool: HostedTool, out: Object, family: Family, ledger: Ledger) -> None:
    intact = kept(tool.origin)
    if intact is not None:
        out["web_search_options"] = intact
        return
    if tool.tool != "web_search" or not (family.search or family.native):
        ledger.note("tool-dropped", place(tool), f"the provider's tool `{tool.tool}` was left out")
        return
    options: Object = {}
    if tool.context_size:
        options["search_context_size"] = tool.context_size
    if tool.location is not None:
        options["user_location"] = {"type": "approximate", "approximate": tool.location}
    for option in ("max_uses", "allowed_domains", "blocked_domains"):
        if getattr(tool, option):
            ledger.note("no-counterpart", place(tool), f"`{option}` of the search was left out")
    out["web_search_options"] = finished(options, tool.origin, NAME)


# --- choice ---------------------------------------------------------------------------------------------------------


def read_choice(body: Object, reading: Reading) -> ToolChoice | None:
    """`tool_choice` or the old `function_call`; None also for a form that nobody here knows."""
    key = "tool_choice"
    value = body.get(key)
    if value is None:
        key = "function_call"
        value = body.get(key)
        if value is None:
            return None
    path = (None, key)
    origin = Origin(NAME, path, value)
    if isinstance(value, str):
        mode = names.MODES.get(value)
        return ToolChoice(mode, (), False, origin) if mode else None  # type: ignore[arg-type]
    if not isinstance(value, dict):
        return None
    if key == "function_call":
        return ToolChoice("one", (ToolName(wire.need_text(value, "name", path)),), origin=origin)
    subset = value.get("allowed_tools")
    if isinstance(subset, dict):
        at = (path, "allowed_tools")
        listed = numbered(wire.take_list(subset, "tools", at) or [], (at, "tools"))
        allowed = tuple(name for item, _ in listed if (name := _read_name(item)) is not None)
        return ToolChoice("allowed", allowed, subset.get("mode") == "required", origin)
    named = _read_name(value)
    if named is not None:
        return ToolChoice("one", (named,), origin=origin)
    mode = names.MODES.get(wire.take_text(value, "type", path) or "")
    return ToolChoice(mode, origin=origin) if mode else None  # type: ignore[arg-type]


def _read_name(item: Json) -> ToolName | None:
    if not isinstance(item, dict):
        return None
    kind = "custom" if item.get("type") == "custom" else "function"
    inner = item.get(kind)
    name = inner.get("name") if isinstance(inner, dict) else item.get("name")
    return ToolName(name, kind) if isinstance(name, str) else None


def write_choice(choice: ToolChoice, ledger: Ledger) -> tuple[str, Json]:
    """The key and the value of a choice."""
    origin = choice.origin
    ours = origin is not None and origin.protocol == NAME
    legacy = ours and origin.path == (None, "function_call")  # type: ignore[union-attr]
    if ours and origin.intact:  # type: ignore[union-attr]
        return ("function_call" if legacy else "tool_choice"), origin.wire  # type: ignore[union-attr]
    if not legacy and choice.mode in ("auto", "none", "required"):
        return "tool_choice", choice.mode
    listed = [_name(tool) for tool in choice.tools]
    if choice.mode == "one" and choice.tools:
        return ("function_call", {"name": choice.tools[0].name}) if legacy else ("tool_choice", listed[0])
    if choice.mode == "allowed":
        mode = "required" if choice.required else "auto"
        return "tool_choice", {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": listed}}
    if legacy and choice.mode == "required":
        ledger.note("choice-weakened", place(choice), "`function_call` knows no `required`")
        return "function_call", "auto"
    mode = "required" if choice.mode == "one" else choice.mode
    return ("function_call" if legacy else "tool_choice"), mode


def _name(tool: ToolName) -> Object:
    kind = "custom" if tool.kind == "custom" else "function"
    return {"type": kind, kind: {"name": tool.name}}
