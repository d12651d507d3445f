"""Tools: how they are declared, chosen and called."""

from __future__ import annotations

from toolwire.core import json_values
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
    source_path,
)
from toolwire.core.json_values import Json, Object, Path
from toolwire.core.losses import Ledger
from toolwire.core.provenance import ReadContext, items_with_paths, restore_original_keys
from toolwire.protocols.openai_chat import names
from toolwire.protocols.openai_chat.content import read_cache, write_cache
from toolwire.protocols.openai_chat.models import Family
from toolwire.protocols.openai_chat.names import NAME, intact_wire, is_own, is_own_seal, unknown_nested_keys


def uses_legacy_functions(request: Request | None) -> bool:
    """Does this client speak of `functions` only? Then its answers must too."""
    origin = request.origin if request is not None else None
    if origin is None or origin.protocol != NAME:
        return False
    return bool(origin.wire.get("functions")) and not origin.wire.get("tools")


# --- declarations ---------------------------------------------------------------------------------------------------


def read_tools(body: Object, reading: ReadContext) -> tuple[AnyTool, ...]:
    """`tools`, the old `functions`, and the hosted search, which has a key of its own."""
    found: list[AnyTool] = []
    for number, item in enumerate(json_values.get_list(body, "tools", None) or ()):
        found.append(_read_tool(item, ((None, "tools"), number), reading))
    if "functions" in body:
        for item, path in items_with_paths(json_values.get_list(body, "functions", None) or [], (None, "functions")):
            node = json_values.expect_object(item, path)
            found.append(_read_function(node, path, None, reading.read_origin(node, path, names.FUNCTION_TOOL_KEYS)))
    search = json_values.get_object(body, "web_search_options", None) if "web_search_options" in body else None
    if search is not None:
        found.append(_read_web_search(search, (None, "web_search_options"), reading))
    return tuple(found)


def _read_tool(value: Json, path: Path, reading: ReadContext) -> AnyTool:
    node = json_values.expect_object(value, path)
    kind = json_values.get_text(node, "type", path) or "function"
    if kind not in ("function", "custom"):
        return Opaque(kind, reading.whole_origin(node, path))
    at = (path, kind)
    inner = json_values.expect_object(node.get(kind), at)
    known = names.FUNCTION_TOOL_KEYS if kind == "function" else names.CUSTOM_TOOL_KEYS
    if not known.issuperset(inner):
        reading.read_origin(inner, at, known)
    origin = reading.read_origin(node, path, names.TOOL_KEYS)
    if kind == "function":
        return _read_function(inner, at, read_cache(node), origin)
    return Tool(
        json_values.require_text(inner, "name", at),
        json_values.get_text(inner, "description", at),
        kind="custom",
        grammar=_read_grammar(inner, at, reading),
        cache=read_cache(node),
        origin=origin,
    )


def _read_function(node: Object, path: Path, cache: str | None, origin: Origin) -> Tool:
    return Tool(
        json_values.require_text(node, "name", path),
        json_values.get_text(node, "description", path),
        node.get("parameters"),
        strict=json_values.get_bool(node, "strict", path),
        cache=cache,
        origin=origin,
    )


def _read_grammar(node: Object, path: Path, reading: ReadContext) -> Grammar | None:
    form = json_values.get_object(node, "format", path)
    if form is None or form.get("type") == "text":
        return None
    grammar = form.get("grammar")
    if form.get("type") != "grammar" or not isinstance(grammar, dict):
        reading.note_unknown_field(path, "format")
        return None
    at = ((path, "format"), "grammar")
    return Grammar(json_values.require_text(grammar, "syntax", at), json_values.require_text(grammar, "definition", at))


def _read_web_search(node: Object, path: Path, reading: ReadContext) -> ProviderTool:
    location = json_values.get_object(node, "user_location", path)
    near = json_values.get_object(location, "approximate", (path, "user_location")) if location else None
    size = json_values.get_text(node, "search_context_size", path) or ""
    origin = reading.read_origin(node, path, names.WEB_SEARCH_KEYS)
    return ProviderTool("web_search", location=near, context_size=size, origin=origin)


def write_tools(tools: tuple[AnyTool, ...], family: Family, ledger: Ledger) -> Object:
    """The keys of a request that declare its tools: `tools`, the old `functions`, `web_search_options`."""
    out: Object = {}
    for tool in tools:
        if isinstance(tool, ProviderTool):
            _write_provider_tool(tool, out, family, ledger)
        elif isinstance(tool, Opaque):
            if is_own(tool.origin):
                out.setdefault("tools", []).append(tool.origin.wire)
            else:
                ledger.note("tool-dropped", source_path(tool), f"the tool `{tool.kind}` was left out")
        elif tool.kind == "function" and _is_legacy_function(tool.origin):
            out.setdefault("functions", []).append(
                intact_wire(tool.origin) or restore_original_keys(_write_tool_fields(tool), tool.origin, NAME)
            )
        else:
            out.setdefault("tools", []).append(intact_wire(tool.origin) or _write_tool(tool, family, ledger))
    return out


def _is_legacy_function(origin: Origin | None) -> bool:
    """Was it read from the old `functions`?"""
    return origin is not None and is_own(origin) and not names.TOOL_KEYS.intersection(origin.wire)


def _write_tool_fields(tool: Tool) -> Object:
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
    inner = _write_tool_fields(tool)
    if tool.parameters == {} and kind == "function" and not family.native:
        # A schema without a type is refused; without any schema the tool has no parameters, which is the same.
        del inner["parameters"]
    out: Object = {"type": kind, kind: inner}
    if tool.cache is not None or tool.defer or tool.output is not None or tool.namespace:
        _write_tool_extras(tool, out, family, ledger)
    origin = tool.origin
    if origin is None or origin.protocol != NAME:
        return out
    known = names.CUSTOM_TOOL_KEYS if kind == "custom" else names.FUNCTION_TOOL_KEYS
    inner |= unknown_nested_keys(origin.wire, kind, known)
    return restore_original_keys(out, origin, NAME)


def _write_tool_extras(tool: Tool, out: Object, family: Family, ledger: Ledger) -> None:
    """What stands beside the function, and what has no place here."""
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


def _write_provider_tool(tool: ProviderTool, out: Object, family: Family, ledger: Ledger) -> None:
    intact = intact_wire(tool.origin)
    if intact is not None:
        out["web_search_options"] = intact
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
        mode = names.CHOICE_MODES.get(value)
        return ToolChoice(mode, (), False, origin) if mode else None  # type: ignore[arg-type]
    if not isinstance(value, dict):
        return None
    if key == "function_call":
        return ToolChoice("one", (ToolName(json_values.require_text(value, "name", path)),), origin=origin)
    subset = value.get("allowed_tools")
    if isinstance(subset, dict):
        at = (path, "allowed_tools")
        listed = items_with_paths(json_values.get_list(subset, "tools", at) or [], (at, "tools"))
        allowed = tuple(name for item, _ in listed if (name := _read_tool_name(item)) is not None)
        return ToolChoice("allowed", allowed, subset.get("mode") == "required", origin)
    named = _read_tool_name(value)
    if named is not None:
        return ToolChoice("one", (named,), origin=origin)
    mode = names.CHOICE_MODES.get(json_values.get_text(value, "type", path) or "")
    return ToolChoice(mode, origin=origin) if mode else None  # type: ignore[arg-type]


def _read_tool_name(item: Json) -> ToolName | None:
    if not isinstance(item, dict):
        return None
    kind = "custom" if item.get("type") == "custom" else "function"
    inner = item.get(kind)
    name = inner.get("name") if isinstance(inner, dict) else item.get("name")
    return ToolName(name, kind) if isinstance(name, str) else None


def write_tool_choice(choice: ToolChoice, ledger: Ledger) -> tuple[str, Json]:
    """The key and the value of a choice."""
    origin = choice.origin
    ours = origin is not None and origin.protocol == NAME
    legacy = ours and origin.path == (None, "function_call")  # type: ignore[union-attr]
    if ours and origin.intact:  # type: ignore[union-attr]
        return ("function_call" if legacy else "tool_choice"), origin.wire  # type: ignore[union-attr]
    if not legacy and choice.mode in ("auto", "none", "required"):
        return "tool_choice", choice.mode
    listed = [_write_tool_name(tool) for tool in choice.tools]
    if choice.mode == "one" and choice.tools:
        return ("function_call", {"name": choice.tools[0].name}) if legacy else ("tool_choice", listed[0])
    if choice.mode == "allowed":
        mode = "required" if choice.required else "auto"
        return "tool_choice", {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": listed}}
    if legacy and choice.mode == "required":
        ledger.note("choice-weakened", source_path(choice), "`function_call` knows no `required`")
        return "function_call", "auto"
    mode = "required" if choice.mode == "one" else choice.mode
    return ("function_call" if legacy else "tool_choice"), mode


def _write_tool_name(tool: ToolName) -> Object:
    kind = "custom" if tool.kind == "custom" else "function"
    return {"type": kind, kind: {"name": tool.name}}


# --- Calls of tools: as they stand in messages and answers ---


def read_arguments(value: Json) -> str:
    """Arguments as text; some servers send the object itself."""
    return value if isinstance(value, str) else "" if value is None else json_values.encode_text(value)


def read_call(value: Json, path: Path, reading: ReadContext) -> Call:
    """A call of `tool_calls`, or the old `function_call`, which is only the inner object and has no id."""
    node = value if type(value) is dict else json_values.expect_object(value, path)
    inner = node.get("function")
    # Nearly every call looks like this, and an agent's history has hundreds of them.
    if len(node) == 3 and type(inner) is dict and len(inner) == 2 and node.get("type") == "function":
        id, name, arguments = node.get("id"), inner.get("name"), inner.get("arguments")
        if type(id) is str and type(name) is str and type(arguments) is str:
            return Call(id, name, arguments, "function", "", "", None, None, False, False, Origin(NAME, path, node))
    kind, key, known = "function", "arguments", names.FUNCTION_CALL_KEYS
    if node.get("type") == "custom" or (node.get("function") is None and node.get("custom") is not None):
        kind, key, known = "custom", "input", names.CUSTOM_CALL_KEYS
    elif "function" not in node and "type" not in node:
        origin = reading.read_origin(node, path, known)
        name = json_values.require_text(node, "name", path)
        return Call("", name, read_arguments(node.get(key)), origin=origin)
    at = (path, kind)
    inner = json_values.expect_object(node.get(kind), at)
    if not known.issuperset(inner):
        reading.read_origin(inner, at, known)
    id = json_values.get_text(node, "id", path) or ""
    name = json_values.require_text(inner, "name", at)
    seal = read_seal(node, path, reading) if "extra_content" in node else None
    origin = reading.read_origin(node, path, names.CALL_KEYS)
    return Call(id, name, read_arguments(inner.get(key)), kind, "", "", None, seal, False, False, origin)


def read_seal(node: Object, path: Path, reading: ReadContext) -> Seal | None:
    """A seal in a call's `extra_content`; whatever else stands there is a stray."""
    boxes = node.get("extra_content")
    if not isinstance(boxes, dict):
        return None
    found = None
    for vendor, box in boxes.items():
        value = (
            box.get(names.SEAL_KEY_BY_VENDOR[vendor])
            if vendor in names.SEAL_KEY_BY_VENDOR and isinstance(box, dict)
            else None
        )
        if isinstance(value, str) and value:
            found = Seal(f"{NAME}@{vendor}", value)
        else:
            reading.note_unknown_field((path, "extra_content"), vendor)
    return found


def write_seal(seal: Seal) -> Object:
    vendor, key = next(iter(names.SEAL_KEY_BY_VENDOR.items()))
    return {vendor: {key: seal.value}}


def write_call(call: Call, ledger: Ledger, legacy: bool = False) -> Object:
    ours = is_own(call.origin)
    if call.is_plain and not ours and not legacy:
        return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
    wire = intact_wire(call.origin)
    if wire is not None and legacy == ("function" not in wire and "custom" not in wire):
        return wire
    note_call_losses(call, ledger)
    kind, key = ("custom", "input") if call.kind == "custom" and not legacy else ("function", "arguments")
    blank = kind == "function" and not call.arguments.strip() and not call.incomplete
    inner: Object = {"name": call.name, key: "{}" if blank else call.arguments}
    if legacy:
        return inner
    if ours:
        known = names.CUSTOM_CALL_KEYS if kind == "custom" else names.FUNCTION_CALL_KEYS
        inner |= unknown_nested_keys(call.origin.wire, kind, known)  # type: ignore[union-attr]
    out: Object = {"id": call.id, "type": kind, kind: inner}
    if call.seal is not None and is_own_seal(call.seal):
        out["extra_content"] = write_seal(call.seal)
    return restore_original_keys(out, call.origin, NAME)


def note_call_losses(call: Call, ledger: Ledger) -> None:
    """What a call says that this wire cannot."""
    if call.cache is not None:
        ledger.note("cache-dropped", source_path(call), "a cache breakpoint on a call was left out")
    if call.namespace:
        ledger.note("namespace-flattened", source_path(call), f"the namespace `{call.namespace}` was left out")
    if call.seal is not None and not is_own_seal(call.seal):
        ledger.note("seal-dropped", source_path(call), "the seal of a call was left out")
    if call.later:
        ledger.note("no-counterpart", source_path(call), "that the result may come later was left out")
