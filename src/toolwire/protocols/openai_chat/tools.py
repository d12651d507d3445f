"""Chat tools: how they are declared, chosen and called, read and written."""

from __future__ import annotations

from msgspec.structs import asdict, replace

from toolwire.core.codec import Members, list_items
from toolwire.core.ir import (
    AnyTool,
    Call,
    Grammar,
    Opaque,
    Origin,
    ProviderTool,
    Request,
    Seal,
    Tool,
    ToolChoice,
    ToolName,
    replace_fields,
    source_path,
)
from toolwire.core.json_values import (
    Json,
    Malformed,
    Object,
    Path,
    encode_text,
    expect_object,
    get_bool,
    get_list,
    get_object,
    get_text,
    require_text,
)
from toolwire.core.known_tools import read_known_tools
from toolwire.core.losses import Ledger
from toolwire.core.provenance import ReadContext, odd_shape, restore_original_keys
from toolwire.core.tool_choice import NOT_PARALLEL, replace_tool_choice
from toolwire.protocols.openai_chat import names
from toolwire.protocols.openai_chat.content import read_cache, write_cache
from toolwire.protocols.openai_chat.models import Family
from toolwire.protocols.openai_chat.names import NAME, intact_wire, is_own, is_own_seal, unknown_keys


def uses_legacy_functions(request: Request | None) -> bool:
    """Did this client send the old `functions` and no `tools`? Then its answers must have the old form, too."""
    origin = request.origin if request is not None else None
    return is_own(origin) and bool(origin.wire.get("functions")) and not origin.wire.get("tools")


# --- declarations ---------------------------------------------------------------------------------------------------


def count_tools(members: Members) -> int:
    return len(list_items(members, "tools")) + len(list_items(members, "functions"))


def read_tools(body: Object, reading: ReadContext) -> tuple[AnyTool, ...]:
    """`tools`, the old `functions`, and OpenAI's web search, which has a key of its own."""
    tools = read_known_tools(_read_list, get_list(body, "tools", None) or [], (None, "tools"), reading)
    if "functions" not in body and "web_search_options" not in body:
        return tools
    found: list[AnyTool] = [*tools]
    for number, item in enumerate(get_list(body, "functions", None) or ()):
        at = ((None, "functions"), number)
        origin = reading.read_origin(expect_object(item, at), at, names.TOOL_SHAPES["function"].tool_keys)
        found.append(_read_tool_fields(item, at, "function", None, origin, reading))
    search = get_object(body, "web_search_options", None)
    if search is not None:
        path = (None, "web_search_options")
        location = get_object(search, "user_location", path)
        near = get_object(location, "approximate", (path, "user_location")) if location else None
        size = get_text(search, "search_context_size", path) or ""
        origin = reading.read_origin(search, path, names.WEB_SEARCH_KEYS)
        found.append(ProviderTool("web_search", location=near, context_size=size, origin=origin))
    return tuple(found)


def _read_list(tools: list[Json], path: Path, reading: ReadContext) -> tuple[AnyTool, ...]:
    return tuple([_read_tool(item, (path, number), reading) for number, item in enumerate(tools)])


def _read_tool(value: Json, path: Path, reading: ReadContext) -> AnyTool:
    node = expect_object(value, path)
    kind = get_text(node, "type", path) or "function"
    shape = names.TOOL_SHAPES.get(kind)
    if shape is None:
        return Opaque(kind, reading.whole_origin(node, path))
    at = (path, kind)
    if kind not in node:
        raise Malformed(path, f"`{kind}` is missing")
    inner = expect_object(node[kind], at)
    if not shape.tool_keys.issuperset(inner):
        reading.read_origin(inner, at, shape.tool_keys)
    cache = read_cache(node) if len(node) > 2 else None
    return _read_tool_fields(inner, at, kind, cache, reading.read_origin(node, path, names.TOOL_KEYS), reading)


def _read_tool_fields(
    node: Object, path: Path, kind: str, cache: str | None, origin: Origin, reading: ReadContext
) -> Tool:
    name, description = require_text(node, "name", path), get_text(node, "description", path)
    if kind == "custom":
        grammar = _read_grammar(node, path, reading)
        return Tool(name, description, kind="custom", grammar=grammar, cache=cache, origin=origin)
    strict = get_bool(node, "strict", path)
    return Tool(name, description, node.get("parameters"), strict=strict, cache=cache, origin=origin)


def _read_grammar(node: Object, path: Path, reading: ReadContext) -> Grammar | None:
    form = get_object(node, "format", path)
    if form is None or form.get("type") == "text":
        return None
    grammar = form.get("grammar")
    if form.get("type") != "grammar" or not isinstance(grammar, dict):
        reading.note_unknown_field(path, "format")
        return None
    at = ((path, "format"), "grammar")
    return Grammar(require_text(grammar, "syntax", at), require_text(grammar, "definition", at))


def write_tools(tools: tuple[AnyTool, ...], ledger: Ledger, family: Family) -> Object:
    """The keys of a request that declare its tools: `tools`, the old `functions`, `web_search_options`."""
    out: Object = {}
    for tool in tools:
        wire = intact_wire(tool.origin)
        if isinstance(tool, Tool):
            if tool.kind == "function" and is_own(tool.origin) and names.TOOL_KEYS.isdisjoint(tool.origin.wire):
                # It was read from the old `functions`, which hold only the inner object.
                wire = wire or restore_original_keys(_write_tool_fields(tool), tool.origin, NAME)
                out.setdefault("functions", []).append(wire)
            else:
                out.setdefault("tools", []).append(wire or _write_tool(tool, family, ledger))
        elif isinstance(tool, ProviderTool):
            _write_provider_tool(tool, wire, out, family, ledger)
        elif is_own(tool.origin):
            out.setdefault("tools", []).append(tool.origin.wire)
        else:
            ledger.note("tool-dropped", source_path(tool), f"the tool `{tool.kind}` was left out")
    return out


def _write_tool_fields(tool: Tool) -> Object:
    out: Object = {"name": tool.name}
    if tool.description is not None:
        out["description"] = tool.description
    if tool.kind == "custom":
        if tool.grammar is not None:
            out["format"] = {"type": "grammar", "grammar": asdict(tool.grammar)}
        return out
    if tool.parameters is not None:
        out["parameters"] = tool.parameters
    if tool.strict is not None:
        out["strict"] = tool.strict
    return out


def _write_tool(tool: Tool, family: Family, ledger: Ledger) -> Object:
    kind = _kind_as_written(tool)
    inner = _write_tool_fields(tool)
    if tool.parameters == {} and kind == "function" and not family.native:
        # OpenAI refuses a schema without a type. Without a schema the tool has no parameters, which is the same.
        del inner["parameters"]
    out: Object = {"type": kind, kind: inner}
    if tool.cache is not None or tool.defer or tool.output is not None or tool.namespace:
        _write_tool_extras(tool, out, family, ledger)
    if not is_own(tool.origin):
        return out
    inner |= unknown_keys(tool.origin, kind, names.TOOL_SHAPES[kind].tool_keys)
    return restore_original_keys(out, tool.origin, NAME)


def _kind_as_written(tool: Tool | ToolName | Call) -> str:
    """Chat has two kinds of tools; every other kind is written as a function."""
    return tool.kind if tool.kind in names.TOOL_SHAPES else "function"


def _write_tool_extras(tool: Tool, out: Object, family: Family, ledger: Ledger) -> None:
    """What is beside the function, and what Chat has no place for."""
    where = source_path(tool)
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


def _write_provider_tool(tool: ProviderTool, wire: Object | None, out: Object, family: Family, ledger: Ledger) -> None:
    if wire is not None:
        out["web_search_options"] = wire
        return
    if tool.tool != "web_search" or not (family.search or family.native):
        ledger.note("tool-dropped", source_path(tool), f"the provider's tool `{tool.tool}` was left out")
        return
    options: Object = {}
    if tool.context_size:
        options["search_context_size"] = tool.context_size
    if tool.location is not None:
        options["user_location"] = {"type": "approximate", "approximate": tool.location}
    for option in ("max_uses", "allowed_domains", "blocked_domains"):
        if getattr(tool, option):
            ledger.note("no-counterpart", source_path(tool), f"`{option}` of the search was left out")
    out["web_search_options"] = restore_original_keys(options, tool.origin, NAME)


# --- choice ---------------------------------------------------------------------------------------------------------


def read_tool_choice(body: Object, reading: ReadContext) -> ToolChoice | None:
    """`tool_choice` or the old `function_call`; None also for an unknown form."""
    key = "tool_choice" if body.get("tool_choice") is not None else "function_call"
    value, path = body.get(key), (None, key)
    origin = Origin(NAME, path, value)
    if isinstance(value, str):
        mode = names.CHOICE_MODES.get(value)
        return ToolChoice(mode, (), False, origin) if mode else None  # type: ignore[arg-type]
    if not isinstance(value, dict):
        return None
    if key == "function_call":
        return ToolChoice("one", (ToolName(require_text(value, "name", path)),), origin=origin)
    subset = value if "tools" in value else value.get("allowed_tools")
    if isinstance(subset, dict):
        items = get_list(subset, "tools", (path, "allowed_tools")) or []
        allowed = tuple(name for item in items if (name := _read_tool_name(item)) is not None)
        return ToolChoice("allowed", allowed, subset.get("mode") == "required", origin)
    named = _read_tool_name(value)
    if named is not None:
        return ToolChoice("one", (named,), origin=origin)
    mode = names.CHOICE_MODES.get(get_text(value, "type", path) or "")
    return ToolChoice(mode, origin=origin) if mode else None  # type: ignore[arg-type]


def has_other_shape(choice: Json) -> bool:
    """Is it written as Responses or Anthropic do, without inner objects? Clients send both here."""
    if not isinstance(choice, dict) or not choice.keys() <= _FLAT_KEYS:
        return False
    kind = choice.get("type", "tool")
    if kind == "allowed_tools":
        tools = choice.get("tools")
        return isinstance(tools, list) and bool(tools) and all(map(has_other_shape, tools))
    named = kind in ("tool", *names.TOOL_SHAPES)
    return isinstance(choice.get("name"), str) if named else str(kind) in names.CHOICE_MODES


_FLAT_KEYS = frozenset({"type", "name", "mode", "tools", NOT_PARALLEL})


def nest_tool_choice(body: Object) -> Object:
    """A body whose tool choice has the shape of another protocol, as OpenAI takes it here."""
    choice = read_tool_choice(body, ReadContext(NAME))
    if choice is None:
        return body
    return replace_tool_choice(body, write_tool_choice(replace(choice, origin=None), Ledger(NAME, NAME))[1])


def _read_tool_name(item: Json) -> ToolName | None:
    if not isinstance(item, dict):
        return None
    kind = "custom" if item.get("type") == "custom" else "function"
    inner = item.get(kind)
    name = inner.get("name") if isinstance(inner, dict) else item.get("name")
    return ToolName(name, kind) if isinstance(name, str) else None


def _write_tool_name(tool: ToolName) -> Object:
    kind = _kind_as_written(tool)
    return {"type": kind, kind: {"name": tool.name}}


def can_be_chosen(tool: AnyTool) -> bool:
    """Can a choice name this tool? Not one of another protocol, and not the web search, which has a key of its own."""
    return isinstance(tool, Tool) or (isinstance(tool, Opaque) and is_own(tool.origin))


def write_tool_choice(choice: ToolChoice, ledger: Ledger) -> tuple[str, Json]:
    """The key and the value of a choice."""
    origin, mode = choice.origin, choice.mode
    legacy = is_own(origin) and origin.path == (None, "function_call")
    key = "function_call" if legacy else "tool_choice"
    if is_own(origin) and origin.intact:
        return key, origin.wire
    if mode == "allowed" and not choice.tools:
        ledger.note("choice-mapped", source_path(choice), "a choice that allows no tool became `none`")
        return "tool_choice", "none"
    if mode == "one" and choice.tools:
        return key, {"name": choice.tools[0].name} if legacy else _write_tool_name(choice.tools[0])
    if mode == "allowed":
        subset = {"mode": "required" if choice.required else "auto", "tools": [*map(_write_tool_name, choice.tools)]}
        return "tool_choice", {"type": "allowed_tools", "allowed_tools": subset}
    if legacy and mode == "required":
        ledger.note("choice-weakened", source_path(choice), "`function_call` has no `required`")
        return key, "auto"
    return key, "required" if mode == "one" else mode


# --- calls ----------------------------------------------------------------------------------------------------------


OBJECT_ARGUMENTS = "arguments that were an object were read as JSON text"


def read_arguments(value: Json) -> str:
    """Arguments as text; some servers send the object itself."""
    return value if isinstance(value, str) else "" if value is None else encode_text(value)


def read_call(value: Json, path: Path, reading: ReadContext) -> Call:
    """A call of `tool_calls`, or the old `function_call`, which is only the inner object and has no id."""
    node = value if type(value) is dict else expect_object(value, path)
    inner = node.get("function")
    # Nearly every call looks like this, and an agent's history has hundreds of them.
    if len(node) == 3 and type(inner) is dict and len(inner) == 2 and node.get("type") == "function":
        id, name, arguments = node.get("id"), inner.get("name"), inner.get("arguments")
        if type(id) is str and type(name) is str and type(arguments) is str:
            return Call(id, name, arguments, "function", "", "", None, None, False, False, Origin(NAME, path, node))
    custom = node.get("type") == "custom" or (inner is None and node.get("custom") is not None)
    kind = "custom" if custom else "function"
    shape = names.TOOL_SHAPES[kind]
    if not custom and "function" not in node and "type" not in node:
        return _read_arguments_of(
            Call("", require_text(node, "name", path), origin=reading.read_origin(node, path, shape.call_keys)),
            node.get(shape.payload_key),
            reading,
        )
    at = (path, kind)
    inner = expect_object(node.get(kind), at)
    if not shape.call_keys.issuperset(inner):
        reading.read_origin(inner, at, shape.call_keys)
    id, name = get_text(node, "id", path) or "", require_text(inner, "name", at)
    seal = read_seal(node, path, reading)
    call = Call(id, name, "", kind, seal=seal, origin=reading.read_origin(node, path, names.CALL_KEYS))
    return _read_arguments_of(call, inner.get(shape.payload_key), reading)


def _read_arguments_of(call: Call, value: Json, reading: ReadContext) -> Call:
    """The call with its arguments. Those that are no text make it one of an odd shape."""
    origin = call.origin
    if value is not None and not isinstance(value, str) and origin is not None:
        reading.unknown_fields.append(odd_shape(origin.path, call.kind, OBJECT_ARGUMENTS))
        origin = replace(origin, intact=False)
    return replace_fields(call, arguments=read_arguments(value), origin=origin)


def read_seal(node: Object, path: Path, reading: ReadContext) -> Seal | None:
    """A seal in a call's `extra_content`, as Google's compatible endpoint has it; anything else there is unknown."""
    boxes = node.get("extra_content")
    if not isinstance(boxes, dict):
        return None
    found = None
    for vendor, box in boxes.items():
        key = names.SEAL_KEY_BY_VENDOR.get(vendor)
        value = box.get(key) if key is not None and isinstance(box, dict) else None
        if isinstance(value, str) and value:
            found = Seal(f"{NAME}@{vendor}", value)
        else:
            reading.note_unknown_field((path, "extra_content"), vendor)
    return found


def write_seal(seal: Seal) -> Object:
    vendor, key = next(iter(names.SEAL_KEY_BY_VENDOR.items()))
    return {vendor: {key: seal.value}}


def write_call(call: Call, ledger: Ledger, legacy: bool = False) -> Object:
    if call.is_plain and not is_own(call.origin) and not legacy:
        return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
    wire = intact_wire(call.origin)
    if wire is not None and legacy == ("function" not in wire and "custom" not in wire):
        return wire
    note_call_losses(call, ledger)
    kind = "function" if legacy else _kind_as_written(call)
    shape = names.TOOL_SHAPES[kind]
    blank = kind == "function" and not call.arguments.strip() and not call.incomplete
    inner: Object = {"name": call.name, shape.payload_key: "{}" if blank else call.arguments}
    if legacy:
        return inner
    out: Object = {"id": call.id, "type": kind, kind: inner | unknown_keys(call.origin, kind, shape.call_keys)}
    if is_own_seal(call.seal):
        out["extra_content"] = write_seal(call.seal)
    return restore_original_keys(out, call.origin, NAME)


def note_call_losses(call: Call, ledger: Ledger) -> None:
    """Note what a call holds that Chat has no place for."""
    if call.cache is not None:
        ledger.note("cache-dropped", source_path(call), "a cache breakpoint on a call was left out")
    if call.namespace:
        ledger.note("namespace-flattened", source_path(call), f"the namespace `{call.namespace}` was left out")
    if call.seal is not None and not is_own_seal(call.seal):
        ledger.note("seal-dropped", source_path(call), "the seal of a call was left out")
    if call.is_async:
        ledger.note("no-counterpart", source_path(call), "that the result may come later was left out")
