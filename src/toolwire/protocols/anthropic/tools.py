"""Tools and the choice among them."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from types import MappingProxyType

from toolwire.ir import AnyTool, HostedTool, Opaque, Origin, Request, Tool, ToolChoice, ToolName, place
from toolwire.loss import Ledger
from toolwire.protocols.anthropic.details.cache import read_cache, write_cache
from toolwire.protocols.anthropic.details.own_tools import own_tool
from toolwire.protocols.anthropic.details.schemas import enforceable, is_rooted, write_rooted
from toolwire.protocols.anthropic.details.stamp import is_foreign, is_own
from toolwire.protocols.anthropic.models import Family
from toolwire.protocols.anthropic.names import CHOICE, HOSTED_TOOL, LOCATION, NAME, OWN_TOOL, TOOL
from toolwire.reading import Reading, finished, verbatim
from toolwire.wire import (
    Json,
    Malformed,
    Object,
    Path,
    as_object,
    need_text,
    take_bool,
    take_int,
    take_list,
    take_object,
    take_text,
)

HOSTED_VERSIONS: Mapping[str, str] = MappingProxyType(
    {
        "web_search": "web_search_20250305",
        "web_fetch": "web_fetch_20250910",
        "code_execution": "code_execution_20250825",
    }
)
"""The provider's own tools, each with a version that every model takes; later ones are known by their prefix."""

MOST_STRICT = 20
"""How many tools of a request can be enforced strictly."""

NO_PARAMETERS: Object = {"type": "object", "properties": {}}


# --- reading ----------------------------------------------------------------------------------------------------------


_TOOLS: Path = (None, "tools")
_ordinary = itemgetter("name", "description", "input_schema")


def read_tools(body: Object, reading: Reading) -> tuple[AnyTool, ...]:
    read: list[AnyTool] = []
    for number, tool in enumerate(take_list(body, "tools", None) or ()):
        read.append(_read_tool(tool, (_TOOLS, number), reading))
    return tuple(read)


def _read_tool(value: Json, path: Path, reading: Reading) -> AnyTool:
    try:
        name, description, parameters = _ordinary(value)
        if len(value) == 3 and name.__class__ is description.__class__ is str and parameters.__class__ is dict:
            origin = Origin(NAME, path, value)
            return Tool(name, description, parameters, "function", None, "", "", None, None, None, None, origin)
    except (KeyError, TypeError):
        pass  # it has other keys, or is no object
    tool = as_object(value, path)
    kind = take_text(tool, "type", path) or "custom"
    if kind == "custom":
        return _read_function(tool, path, reading)
    hosted = next((name for name in HOSTED_VERSIONS if kind.startswith(f"{name}_")), None)
    if hosted is not None:
        return _read_hosted(hosted, tool, path, reading)
    own = own_tool(kind)
    if own is None:
        return Opaque(kind, reading.whole(tool, path))
    description, parameters = own
    return Tool(
        need_text(tool, "name", path),
        description,
        parameters,
        kind,
        strict=take_bool(tool, "strict", path),
        defer=take_bool(tool, "defer_loading", path),
        cache=read_cache(tool, path, reading),
        origin=reading.origin(tool, path, OWN_TOOL),
    )


def _read_function(tool: Object, path: Path, reading: Reading) -> Tool:
    return Tool(
        need_text(tool, "name", path),
        take_text(tool, "description", path),
        take_object(tool, "input_schema", path),
        strict=take_bool(tool, "strict", path),
        defer=take_bool(tool, "defer_loading", path),
        cache=read_cache(tool, path, reading),
        origin=reading.origin(tool, path, TOOL),
    )


def _read_hosted(name: str, tool: Object, path: Path, reading: Reading) -> HostedTool:
    location = take_object(tool, "user_location", path)
    if location:
        for key in location:
            if key not in LOCATION:
                reading.stray((path, "user_location"), key)
        location = {
            key: value for key, value in location.items() if key in LOCATION and key != "type" and value is not None
        }
    return HostedTool(
        name,
        take_text(tool, "name", path) or name,
        take_int(tool, "max_uses", path),
        tuple(take_list(tool, "allowed_domains", path) or ()),
        tuple(take_list(tool, "blocked_domains", path) or ()),
        location,
        cache=read_cache(tool, path, reading),
        origin=reading.origin(tool, path, HOSTED_TOOL),
    )


_MODES: Mapping[str, ToolChoice] = MappingProxyType(
    {"auto": ToolChoice("auto"), "any": ToolChoice("required"), "none": ToolChoice("none"), "tool": ToolChoice("one")}
)
_AUTO: Object = {"type": "auto"}
_WIRE_MODES = {choice.mode: word for word, choice in _MODES.items()}


def read_choice(body: Object, reading: Reading) -> tuple[ToolChoice | None, bool | None]:
    """The choice, and whether several calls in one turn are welcome: the wire keeps both in one object."""
    choice = take_object(body, "tool_choice", None)
    if choice is None:
        return None, None
    path = (None, "tool_choice")
    if choice == _AUTO:
        return ToolChoice("auto", (), False, Origin(NAME, path, choice)), None
    word = need_text(choice, "type", path)
    if word not in _MODES:
        raise Malformed((path, "type"), f"expected one of {', '.join(_MODES)}, got `{word}`")
    single = take_bool(choice, "disable_parallel_tool_use", path)
    names = (_read_name(need_text(choice, "name", path), body),) if word == "tool" else ()
    origin = reading.origin(choice, path, CHOICE)
    return ToolChoice(_MODES[word].mode, names, origin=origin), None if single is None else not single


def _read_name(name: str, body: Object) -> ToolName:
    """One of the provider's own tools has a name like all others; its declaration tells."""
    for tool in body.get("tools") or ():
        if isinstance(tool, dict) and tool.get("name") == name and isinstance(kind := tool.get("type"), str):
            return ToolName(name, next((one for one in HOSTED_VERSIONS if kind.startswith(f"{one}_")), "function"))
    return ToolName(name)


# --- writing ----------------------------------------------------------------------------------------------------------


def write_tools(tools: tuple[AnyTool, ...], ledger: Ledger) -> list[Object]:
    written: list[Object] = []
    for tool in tools:
        wire = _write_tool(tool, ledger)
        if wire is not None:
            written.append(wire)
    if written and written[0].get("defer_loading"):
        written = _with_one_loaded(written, tools, ledger)
    if len(written) <= MOST_STRICT or len([wire for wire in written if wire.get("strict")]) <= MOST_STRICT:
        return written
    if not all(is_foreign(tool.origin) for tool in tools):
        return written
    ledger.note("no-counterpart", None, "no tool is enforced strictly", f"at most {MOST_STRICT} can be")
    return [{key: value for key, value in wire.items() if key != "strict"} for wire in written]


def _with_one_loaded(written: list[Object], tools: tuple[AnyTool, ...], ledger: Ledger) -> list[Object]:
    """Not all can be deferred: of tools from elsewhere none is, then."""
    if not all(wire.get("defer_loading") for wire in written) or not all(is_foreign(tool.origin) for tool in tools):
        return written
    for tool in tools:
        ledger.note("no-counterpart", place(tool), "the tool is not deferred", "nothing here could load it")
    return [{key: value for key, value in wire.items() if key != "defer_loading"} for wire in written]


def _write_tool(tool: AnyTool, ledger: Ledger) -> Object | None:
    origin = tool.origin
    if origin is not None and verbatim(origin, NAME):
        wire: Object = origin.wire
        return wire
    if isinstance(tool, Tool):
        return _write_function(tool, ledger)
    if isinstance(tool, HostedTool):
        return _write_hosted(tool, ledger)
    ledger.opaque(tool)
    return None


def _write_function(tool: Tool, ledger: Ledger) -> Object:
    out: Object = {"name": tool.name}
    if tool.kind != "function" and own_tool(tool.kind) is not None:
        out = {"type": tool.kind, "name": tool.name}
    else:
        if tool.description is not None:
            out["description"] = tool.description
        out["input_schema"] = _schema(tool, ledger)
    strict = None if tool.strict is None else _strict(tool, out, ledger)
    if strict is not None:
        out["strict"] = strict
    if tool.defer is not None:
        out["defer_loading"] = tool.defer
    if tool.output is not None:
        ledger.note("no-counterpart", place(tool), f"the schema of what `{tool.name}` returns was left out")
    if tool.grammar is not None:
        ledger.note("no-counterpart", place(tool), f"the grammar of `{tool.name}` was left out")
    if tool.cache is not None and tool.defer:
        ledger.note("cache-dropped", place(tool), f"`{tool.name}` is loaded later, so no breakpoint can stand on it")
    elif tool.cache is not None:
        write_cache(out, tool.cache, ledger, place(tool))
    origin = tool.origin
    return out if origin is None or origin.protocol != NAME else finished(out, origin, NAME)


def _schema(tool: Tool, ledger: Ledger) -> Json:
    if tool.parameters is None:
        ledger.note("schema-added", place(tool), f"`{tool.name}` takes no arguments")
        return NO_PARAMETERS
    if is_rooted(tool.parameters) or not is_foreign(tool.origin):
        return tool.parameters
    return write_rooted(tool.parameters, place(tool), f"`{tool.name}`", ledger)


def _strict(tool: Tool, out: Object, ledger: Ledger) -> bool | None:
    """A promise that the provider will refuse to keep is not asked for."""
    if not tool.strict or not is_foreign(tool.origin) or "input_schema" not in out:
        return tool.strict
    schema, hindrance = enforceable(out["input_schema"], place(tool), f"`{tool.name}`", ledger)
    if hindrance:
        ledger.note("no-counterpart", place(tool), f"`{tool.name}` is not enforced strictly", hindrance)
        return None
    out["input_schema"] = schema
    return True


def _write_hosted(tool: HostedTool, ledger: Ledger) -> Object | None:
    where = place(tool)
    version = HOSTED_VERSIONS.get(tool.tool)
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
    return finished(out, tool.origin, NAME)


def allowed_tools(request: Request, facts: Family, ledger: Ledger) -> tuple[AnyTool, ...]:
    """There is no choice of a subset here: the others are not offered. Models whose thoughts are bound to the tools
    before them keep them all, because they would refuse their own history."""
    choice = request.choice
    if choice is None or choice.mode != "allowed":
        return request.tools
    where = place(choice)
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
            ledger.note("choice-mapped", place(tool), "the tool is not offered, because the choice leaves it out")
    return kept


def write_choice(request: Request, facts: Family, offered: bool, ledger: Ledger) -> Object | None:
    """The choice and the wish for single calls, in one object; nothing without tools."""
    choice, parallel = request.choice, request.settings.parallel
    if offered and parallel is None and choice is not None and choice.mode == "auto" and not is_own(choice.origin):
        return {"type": "auto"}
    forced = choice is not None and (
        choice.mode in ("required", "one") or (choice.mode == "allowed" and choice.required)
    )
    if not offered:
        if forced:
            ledger.note("choice-weakened", place(choice), "the demand for a call was left out", "there are no tools")
        return None
    origin = choice.origin if choice is not None else None
    refused = forced and not facts.forcing
    if origin is not None and not refused and verbatim(origin, NAME) and _says_parallel(origin.wire, parallel):
        wire: Object = origin.wire
        return wire
    out: Object = {"type": "auto"}
    if refused:
        what, why = "the model may call a tool, it need not", "this model cannot be forced"
        ledger.note("choice-weakened", place(choice), what, why)
    elif choice is not None:
        out = _mode(choice)
    if parallel is not None and out["type"] != "none" and (choice is not None or not parallel):
        out["disable_parallel_tool_use"] = not parallel
    if choice is None and "disable_parallel_tool_use" not in out:
        return None
    return finished(out, origin, NAME)


def _mode(choice: ToolChoice) -> Object:
    if choice.mode == "one" and choice.tools:
        return {"type": "tool", "name": choice.tools[0].name}
    if choice.mode == "allowed":
        if not choice.tools:
            return {"type": "none"}
        return {"type": "any" if choice.required else "auto"}
    return {"type": _WIRE_MODES.get(choice.mode, "auto")}


def _says_parallel(wire: Object, parallel: bool | None) -> bool:
    single = wire.get("disable_parallel_tool_use")
    return parallel == (None if single is None else not single)
