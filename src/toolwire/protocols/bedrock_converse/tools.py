"""Tools and the tool choice: `toolConfig`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolwire.core.codec import Members, list_items
from toolwire.core.ir import (
    AnyTool,
    Opaque,
    Origin,
    ProviderTool,
    Request,
    Tool,
    ToolChoice,
    ToolName,
    source_path,
)
from toolwire.core.json_values import (
    Json,
    Malformed,
    Object,
    Path,
    Paths,
    expect_object,
    get_bool,
    get_list,
    get_object,
    get_text,
    require_text,
    without_keys,
)
from toolwire.core.known_tools import read_known_tools, write_known_tools
from toolwire.core.losses import Ledger
from toolwire.core.provenance import ReadContext, items_with_paths, restore_original_keys
from toolwire.core.tool_choice import fit_tool_choice, list_called_names
from toolwire.protocols.bedrock_converse import names
from toolwire.protocols.bedrock_converse.content import (
    CACHE_POINT,
    find_member,
    read_cache_after,
    write_cache_point,
)
from toolwire.protocols.bedrock_converse.models import Family
from toolwire.protocols.bedrock_converse.names import NAME, intact_wire, is_own

NO_PARAMETERS: Object = {"type": "object", "properties": {}}
_CONFIG_PATH: Path = (None, "toolConfig")

# --- reading --------------------------------------------------------------------------------------------------------


def read_tool_config(body: Object, reading: ReadContext) -> tuple[tuple[AnyTool, ...], ToolChoice | None]:
    config = get_object(body, "toolConfig", None)
    if config is None:
        return (), None
    reading.read_origin(config, _CONFIG_PATH, names.TOOL_CONFIG_KEYS)
    listed = get_list(config, "tools", _CONFIG_PATH) or []
    tools = read_known_tools(_read_list, listed, (_CONFIG_PATH, "tools"), reading)
    return tools, _read_tool_choice(get_object(config, "toolChoice", _CONFIG_PATH), reading)


def _read_list(listed: list[Json], path: Path, reading: ReadContext) -> tuple[AnyTool, ...]:
    tools: list[AnyTool] = []
    for item, at in items_with_paths(listed, path):
        cache = read_cache_after(item)
        before = tools[-1] if tools else None
        if cache is not None and isinstance(before, (Tool, ProviderTool)) and before.cache is None:
            origin = before.origin
            both = None if origin is None else replace(origin, path=Paths((origin.path, at)))
            tools[-1] = replace(before, cache=cache, origin=both)
        else:
            tools.append(_read_tool(item, at, reading))
    return tuple(tools)


def _read_tool(item: Json, path: Path, reading: ReadContext) -> AnyTool:
    member, value = find_member(item, path)
    at = (path, member)
    if member == "toolSpec":
        node = expect_object(value, at)
        schema = get_object(node, "inputSchema", at)
        origin = reading.read_origin(node, at, names.TOOL_KEYS)
        return Tool(
            require_text(node, "name", at),
            get_text(node, "description", at),
            None if schema is None else schema.get("json"),
            strict=get_bool(node, "strict", at),
            origin=replace(origin, path=path, wire=item),
        )
    if member == "systemTool":
        node = expect_object(value, at)
        tool = names.PROVIDER_TOOL_BY_NAME.get(get_text(node, "name", at) or "")
        if tool is not None:
            origin = reading.read_origin(node, at, frozenset({"name"}))
            return ProviderTool(tool, node["name"], origin=replace(origin, path=path, wire=item))
    return Opaque(member, reading.whole_origin(item, path))


_CHOICE_MODES: Mapping[str, Literal["auto", "required", "one"]] = {"auto": "auto", "any": "required", "tool": "one"}
_CHOICE_WORDS: Mapping[str, str] = {mode: word for word, mode in _CHOICE_MODES.items()}


def _read_tool_choice(choice: Object | None, reading: ReadContext) -> ToolChoice | None:
    if choice is None:
        return None
    path = (_CONFIG_PATH, "toolChoice")
    member, value = find_member(choice, path)
    if member not in _CHOICE_MODES:
        raise Malformed((path, member), f"expected one of {', '.join(_CHOICE_MODES)}")
    at = (path, member)
    node = expect_object(value, at)
    tools = (ToolName(require_text(node, "name", at)),) if member == "tool" else ()
    reading.read_origin(node, at, frozenset({"name"}))
    return ToolChoice(_CHOICE_MODES[member], tools, origin=reading.whole_origin(choice, path))


# --- writing --------------------------------------------------------------------------------------------------------


class WrittenTools(Struct):
    """`toolConfig`, and what is said of tools in `additionalModelRequestFields`."""

    config: Object | None = None
    model_choice: Object | None = None


def write_tool_config(request: Request, facts: Family, own: Origin | None, ledger: Ledger) -> WrittenTools:
    offered = _select_offered(request, ledger)
    wire = own.wire.get("toolConfig") if own is not None and isinstance(own.wire, dict) else None
    written = write_known_tools(_write_tools, offered, ledger, facts, own is not None)
    choice = request.choice
    if choice is not None and written:
        choice = fit_tool_choice(choice, request.tools, is_written, ledger)
    called = list_called_names(request)
    if not written and called:
        written = _declare_called_tools(called, ledger)
        choice = None
    if not written:
        _note_unused_choice(request, ledger)
        # A list without entries is refused, and its client sends it all the same.
        return WrittenTools(wire if isinstance(wire, dict) and not request.tools else None)
    if choice is not None and choice.mode == "none":
        ledger.note("choice-weakened", source_path(choice), "the model may call tools", _NO_NONE)
        choice = None
    out = WrittenTools({"tools": [*written]})
    member = None if choice is None else _write_choice(choice, facts, own, ledger)
    if request.settings.parallel is False and facts.vendor == "anthropic" and own is None:
        out.model_choice = _write_claude_choice(member)
    elif request.settings.parallel is False and own is None:
        why = "Converse has no such setting, and the model takes none of its own"
        what = "the model may make several calls at once"
        ledger.note("no-counterpart", request.settings.where.get("parallel"), what, why)
    if member is not None and out.model_choice is None:
        assert out.config is not None
        out.config["toolChoice"] = member
    if isinstance(wire, dict) and own is not None:
        unknown = without_keys(wire, names.TOOL_CONFIG_KEYS)
        out.config = restore_original_keys(out.config or {}, Origin(NAME, None, wire, unknown), NAME)
    return out


_NO_NONE = "Converse cannot forbid calls, and refuses earlier calls of tools that are not declared"


def _select_offered(request: Request, ledger: Ledger) -> tuple[AnyTool, ...]:
    """The tools that the model may call. Forbidden ones are left out, unless the conversation has calls of them."""
    choice, tools = request.choice, request.tools
    if choice is None or choice.mode not in ("none", "allowed"):
        return tools
    where = source_path(choice)
    chosen = {tool.name for tool in choice.tools} if choice.mode == "allowed" else set()
    called = set(list_called_names(request))
    kept = tuple([tool for tool in tools if isinstance(tool, Opaque) or tool.name in chosen | called])
    if len(kept) < len(tools):
        ledger.note("choice-mapped", where, "only the tools that may be called are declared")
        for tool in tools:
            if tool not in kept:
                ledger.note("choice-mapped", source_path(tool), "the tool was left out, because it may not be called")
    return kept if len(kept) < len(tools) else tools


def _declare_called_tools(called: list[str], ledger: Ledger) -> list[Object]:
    """`The toolConfig field must be defined when using toolUse and toolResult content blocks` (pentagi#196, zot#18):
    agents leave all tools out when they want a summary, so the tools that were called are declared."""
    why = f"{_NO_NONE}; the model may call them again"
    ledger.note("tools-added", None, f"{len(called)} tools that were called before are declared", why)
    return [{"toolSpec": {"name": name, "inputSchema": {"json": dict(NO_PARAMETERS)}}} for name in called]


def _note_unused_choice(request: Request, ledger: Ledger) -> None:
    choice = request.choice
    if choice is not None and (choice.mode in ("required", "one") or choice.required):
        ledger.note("choice-weakened", source_path(choice), "the forced call was left out", "there are no tools")


def _write_tools(tools: tuple[AnyTool, ...], ledger: Ledger, facts: Family, is_own_client: bool) -> list[Object]:
    written: list[Object] = []
    for tool in tools:
        wire = _write_tool(tool, ledger)
        if wire is None:
            continue
        written.append(wire)
        cache = None if isinstance(tool, Opaque) else tool.cache
        if cache is not None and (facts.caches_tools or is_own(tool.origin)):
            written.append(write_cache_point(cache, ledger, source_path(tool)))
        elif cache is not None:
            why = "this model takes no cache points after tools"
            ledger.note("cache-dropped", source_path(tool), "a cache breakpoint was left out", why)
    # A cache point alone is no tool.
    return written if any(CACHE_POINT not in wire for wire in written) else []


def is_written(tool: AnyTool) -> bool:
    if isinstance(tool, Opaque):
        return is_own(tool.origin)
    return isinstance(tool, Tool) or tool.tool in names.NAME_BY_PROVIDER_TOOL


def _write_tool(tool: AnyTool, ledger: Ledger) -> Object | None:
    origin = tool.origin
    if (wire := intact_wire(origin)) is not None:
        return wire
    if isinstance(tool, Opaque):
        # litellm#24668: an unknown kind of tool became one without a name.
        ledger.note_opaque(tool)
        return None
    if isinstance(tool, ProviderTool):
        return _write_provider_tool(tool, ledger)
    spec: Object = {"name": tool.name}
    if tool.description and tool.description.strip():
        spec["description"] = tool.description
    spec["inputSchema"] = {"json": _write_schema(tool, ledger)}
    if tool.strict is not None and is_own(origin):
        spec["strict"] = tool.strict
    _note_unwritten(tool, ledger)
    if is_own(origin) and isinstance(origin.wire, dict) and isinstance(origin.wire.get("toolSpec"), dict):
        spec = restore_original_keys(spec, replace(origin, wire=origin.wire["toolSpec"]), NAME)
    return {"toolSpec": spec}


def _write_schema(tool: Tool, ledger: Ledger) -> Object:
    """The schema, which must be one of an object."""
    schema = tool.parameters
    if isinstance(schema, dict) and schema.get("type") == "object":
        return schema
    if not isinstance(schema, dict):
        if schema is not None:
            what = f"the schema of `{tool.name}` became an object without properties"
            ledger.note("schema-rewritten", source_path(tool), what)
        return dict(NO_PARAMETERS)
    ledger.note("schema-rewritten", source_path(tool), f"the schema of `{tool.name}` got the type `object`")
    return {"type": "object", **{key: value for key, value in schema.items() if key != "type"}}


def _note_unwritten(tool: Tool, ledger: Ledger) -> None:
    where = source_path(tool)
    if tool.strict and not is_own(tool.origin):
        why = "not every model behind Converse takes it"
        ledger.note("no-counterpart", where, f"`strict` of `{tool.name}` was left out", why)
    if tool.defer:
        ledger.note("no-counterpart", where, f"`{tool.name}` is not deferred")
    if tool.output is not None:
        ledger.note("no-counterpart", where, f"the schema of the results of `{tool.name}` was left out")


def _write_provider_tool(tool: ProviderTool, ledger: Ledger) -> Object | None:
    name, where = names.NAME_BY_PROVIDER_TOOL.get(tool.tool), source_path(tool)
    if name is None:
        ledger.note("tool-dropped", where, f"the provider's tool `{tool.tool}` was left out")
        return None
    ledger.note("tool-mapped", where, f"the provider's tool `{tool.tool}` became `{name}`, without options")
    return {"systemTool": {"name": name}}


def _write_choice(choice: ToolChoice, facts: Family, own: Origin | None, ledger: Ledger) -> Object | None:
    if (wire := intact_wire(choice.origin)) is not None:
        return wire
    is_forced = choice.mode in ("required", "one") or choice.required
    if is_forced and not facts.forcing and own is None:
        what, why = "the model may, but need not call a tool", "this model cannot be forced to"
        ledger.note("choice-weakened", source_path(choice), what, why)
        return None
    if choice.mode == "one" and choice.tools:
        return {"tool": {"name": choice.tools[0].name}}
    if choice.mode == "allowed":
        return {"any": {}} if choice.required else {"auto": {}}
    return {_CHOICE_WORDS.get(choice.mode, "auto"): {}} if choice.mode != "one" else {"auto": {}}


def _write_claude_choice(member: Object | None) -> Object:
    """The choice as Claude itself takes it. In both places it would be refused as a collision (reports, 2026)."""
    kind, value = next(iter((member or {"auto": {}}).items()))
    return {"type": kind, **value, "disable_parallel_tool_use": True}


# --- counting -------------------------------------------------------------------------------------------------------

_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def count_tools(members: Members) -> int:
    if "toolConfig" not in members:
        return 0
    try:
        return len(list_items(_decode_members(members["toolConfig"]), "tools"))
    except (msgspec.DecodeError, UnicodeError):
        return 1  # reading it says what is wrong
