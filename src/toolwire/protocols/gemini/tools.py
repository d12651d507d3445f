"""Tools and the choice among them. Functions go into one list; each built-in tool stands in an object of its own."""

from __future__ import annotations

from itertools import chain

from toolwire import schema as dialects
from toolwire.core.ir import AnyTool, Opaque, Origin, ProviderTool, Tool, ToolChoice, ToolName, source_path
from toolwire.core.json_values import (
    Json,
    Malformed,
    Object,
    Path,
    expect_list,
    expect_object,
    expect_text,
    get_object,
    get_text,
    require_text,
)
from toolwire.core.losses import Ledger
from toolwire.core.provenance import is_nonempty, is_verbatim, items_with_paths, restore_original_keys
from toolwire.protocols.gemini.content import PartReadContext
from toolwire.protocols.gemini.content_writer import is_foreign
from toolwire.protocols.gemini.models import Family, family
from toolwire.protocols.gemini.names import (
    CALLING_CONFIG_KEYS,
    DECLARATION_KEYS,
    KEY_BY_PROVIDER_TOOL,
    NAME,
    PROVIDER_TOOL_BY_KEY,
    TOOL_CONFIG_KEYS,
    TOOL_KEYS,
    to_snake_case,
)
from toolwire.schema.keywords import NESTING_KEYWORDS, all_schemas_pass, convert_inner_schemas

PARAMETER_SLOTS = ("parameters", "parametersJsonSchema")
RESPONSE_SLOTS = ("response", "responseJsonSchema")

# --- reading --------------------------------------------------------------------------------------------------------


def read_tools(value: Json, path: Path, reading: PartReadContext) -> tuple[AnyTool, ...]:
    """The tools of all boxes in one list; a single box without its array is accepted, as the servers do."""
    if isinstance(value, dict):
        return tuple(_read_tool_entry(value, path, reading))
    tools: list[AnyTool] = []
    for item, here in items_with_paths(expect_list(value, path), path):
        tools.extend(_read_tool_entry(expect_object(item, here), here, reading))
    return tuple(tools)


def _read_tool_entry(entry: Object, path: Path, reading: PartReadContext) -> list[AnyTool]:
    tools: list[AnyTool] = []
    for key, value in entry.items():
        if value is None:
            continue
        word = TOOL_KEYS.camel_by_snake.get(key, key)
        here = (path, key)
        if word == "functionDeclarations":
            tools.extend(
                read_declaration(item, at, reading) for item, at in items_with_paths(expect_list(value, here), here)
            )
        elif word in PROVIDER_TOOL_BY_KEY:
            options = expect_object(value, here)
            for option, chosen in options.items():
                if is_nonempty(chosen):
                    reading.note_unknown_field(here, option)
            tools.append(ProviderTool(PROVIDER_TOOL_BY_KEY[word], origin=reading.whole_origin({key: value}, here)))
        else:
            tools.append(Opaque(word, reading.whole_origin({key: value}, here)))
    return tools


def read_declaration(item: Json, path: Path, reading: PartReadContext) -> Tool:
    raw = expect_object(item, path)
    node = DECLARATION_KEYS(raw)
    return Tool(
        require_text(node, "name", path),
        get_text(node, "description", path),
        read_schema(node, PARAMETER_SLOTS, path),
        output=read_schema(node, RESPONSE_SLOTS, path),
        origin=reading.read_origin(raw, path, DECLARATION_KEYS.all_keys),
    )


_CHOICE_MODES = {"AUTO": "auto", "ANY": "required", "NONE": "none", "VALIDATED": "auto"}
_WIRE_CHOICE_MODES = {"auto": "AUTO", "required": "ANY", "none": "NONE"}
_CHOICE_MODE_NUMBERS = ("MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED")


def read_tool_choice(value: Json, path: Path, reading: PartReadContext) -> ToolChoice | None:
    """The calling mode; None where the configuration says nothing about calling."""
    raw = expect_object(value, path)
    node = TOOL_CONFIG_KEYS(raw)
    origin = reading.read_origin(raw, path, TOOL_CONFIG_KEYS.all_keys)
    calling = get_object(node, "functionCallingConfig", path)
    if calling is None:
        return None
    here = (path, "functionCallingConfig")
    config = reading.read_inner_node(calling, here, CALLING_CONFIG_KEYS)
    mode = config.get("mode")
    word = (
        _CHOICE_MODE_NUMBERS[mode]
        if type(mode) is int and mode < 5
        else expect_text(mode or "AUTO", (here, "mode")).upper()
    )
    listed = config.get("allowedFunctionNames")
    names = _read_tool_names(listed, (here, "allowedFunctionNames")) if listed else ()
    if word == "MODE_UNSPECIFIED":
        word = "AUTO"
    if word not in _CHOICE_MODES:
        raise Malformed((here, "mode"), f"expected AUTO, ANY, NONE or VALIDATED, got {word!r}")
    if names and word == "ANY":
        return ToolChoice("one" if len(names) == 1 else "allowed", names, len(names) > 1, origin)
    if names and word == "VALIDATED":
        return ToolChoice("allowed", names, False, origin)
    if names:
        reading.note_unknown_field(here, "allowedFunctionNames")
    return ToolChoice(_CHOICE_MODES[word], origin=origin)  # type: ignore[arg-type]


def _read_tool_names(value: Json, path: Path) -> tuple[ToolName, ...]:
    return tuple([ToolName(expect_text(name, at)) for name, at in items_with_paths(expect_list(value, path), path)])


# --- writing --------------------------------------------------------------------------------------------------------


def write_tools(tools: tuple[AnyTool, ...], family: Family, ledger: Ledger) -> list[Object]:
    """The boxes, functions at the place of the first of them."""
    boxes: list[Object] = []
    declarations: list[Object] = []
    for tool in tools:
        if isinstance(tool, Tool):
            if not declarations:
                boxes.append({"functionDeclarations": declarations})
            declarations.append(write_declaration(tool, family, ledger))
        elif isinstance(tool, ProviderTool):
            box = _write_provider_tool(tool, Tool in map(type, tools), family, ledger)
            if box is not None:
                boxes.append(box)
        elif is_foreign(tool.origin):
            ledger.note("tool-dropped", source_path(tool), f"the tool `{tool.kind}` was left out")
        else:
            boxes.append(tool.origin.wire)
    return boxes


def write_declaration(tool: Tool, family: Family, ledger: Ledger) -> Object:
    origin, parameters = tool.origin, tool.parameters
    own = origin is None or origin.protocol == NAME
    if own and is_verbatim(origin, NAME):
        wire: Object = origin.wire  # type: ignore[union-attr]
        return wire
    out: Object = {"name": tool.name}
    if tool.description is not None:
        out["description"] = tool.description
    if parameters is not None and (own or parameters != {}):
        if family.takes_json_schema and defines_all_required(parameters):
            out[PARAMETER_SLOTS[1]] = parameters
        else:
            out |= write_schema(parameters, PARAMETER_SLOTS, family, ledger, source_path(tool), arguments=True)
    if tool.output is not None:
        out |= write_schema(tool.output, RESPONSE_SLOTS, family, ledger, source_path(tool))
    if tool.strict:
        ledger.note("no-counterpart", source_path(tool), f"`strict` of the tool `{tool.name}` was left out")
    if tool.defer:
        ledger.note("no-counterpart", source_path(tool), f"`defer` of the tool `{tool.name}` was left out")
    if tool.cache is not None:
        ledger.note("cache-dropped", source_path(tool), "the cache breakpoint was left out")
    return restore_original_keys(out, origin, NAME) if own else out


_TOOLS_NEEDING_OPTIONS = frozenset({"file_search", "computer"})
"""Tools that mean nothing here without options which only this wire's clients know."""


def _write_provider_tool(tool: ProviderTool, has_functions: bool, family: Family, ledger: Ledger) -> Object | None:
    own = tool.origin is not None and tool.origin.protocol == NAME
    if own and is_verbatim(tool.origin, NAME):
        wire: Object = tool.origin.wire  # type: ignore[union-attr]
        return wire
    key = KEY_BY_PROVIDER_TOOL.get(tool.tool)
    if key is None or (tool.tool in _TOOLS_NEEDING_OPTIONS and is_foreign(tool.origin)):
        ledger.note("tool-dropped", source_path(tool), f"the built-in tool `{tool.tool}` was left out")
        return None
    if has_functions and not family.is_gemini_3 and not own:
        why = f"before the third generation {key} cannot be combined with functions"
        ledger.note("tool-dropped", source_path(tool), f"the built-in tool `{tool.tool}` was left out", why)
        return None
    unsaid = ("max_uses", "allowed_domains", "blocked_domains", "location", "context_size")
    lost = [option for option in unsaid if getattr(tool, option)]
    if lost or is_foreign(tool.origin):
        ledger.note("tool-mapped", source_path(tool), f"`{tool.name or tool.tool}` became `{key}`")
    for option in lost:
        ledger.note("no-counterpart", source_path(tool), f"`{option}` of `{tool.tool}` was left out")
    if tool.cache is not None:
        ledger.note("cache-dropped", source_path(tool), "the cache breakpoint was left out")
    return {key: _original_options(tool.origin, key)}


def _original_options(origin: Origin | None, key: str) -> Object:
    if origin is None or is_foreign(origin):
        return {}
    options: Object = origin.wire.get(key, origin.wire.get(to_snake_case(key), {}))
    return options


def declares_functions(entries: list[Object]) -> bool:
    found = False
    for box in entries:
        found = found or "functionDeclarations" in box
    return found


def needs_server_side_invocations(tools: tuple[AnyTool, ...], entries: list[Object]) -> bool:
    """Built-in tools beside functions work only when their invocations are shown; this wire's clients see to it."""
    added = any(isinstance(tool, ProviderTool) and not is_verbatim(tool.origin, NAME) for tool in tools)
    return added and len(entries) > 1 and declares_functions(entries)


def write_tool_choice(choice: ToolChoice, has_functions: bool, ledger: Ledger) -> Object | None:
    """`functionCallingConfig` in its box; None when there is nothing to say."""
    if choice.mode == "auto" and has_functions and not choice.tools and is_foreign(choice.origin):
        return {"functionCallingConfig": {"mode": "AUTO"}}
    if is_verbatim(choice.origin, NAME):
        wire: Object = choice.origin.wire  # type: ignore[union-attr]
        return wire
    calling = _write_calling_config(choice, has_functions, ledger)
    if calling is None:
        return restore_original_keys({}, choice.origin, NAME) or None
    return restore_original_keys({"functionCallingConfig": calling}, choice.origin, NAME)


def _write_calling_config(choice: ToolChoice, has_functions: bool, ledger: Ledger) -> Object | None:
    names = [tool.name for tool in choice.tools if tool.kind == "function"]
    if not has_functions and is_foreign(choice.origin):
        if choice.mode not in ("auto", "none"):
            ledger.note("choice-weakened", source_path(choice), "a call was demanded, but there is no function to call")
        return None
    if choice.mode in ("required", "none") and is_foreign(choice.origin):
        ledger.note(
            "choice-mapped", source_path(choice), f"`{choice.mode}` became the mode {_WIRE_CHOICE_MODES[choice.mode]}"
        )
    if len(names) < len(choice.tools):
        other = ", ".join(tool.name or tool.kind for tool in choice.tools if tool.kind != "function")
        ledger.note("choice-weakened", source_path(choice), f"only functions can be chosen, not {other}")
    if choice.mode in _WIRE_CHOICE_MODES or not names:
        return {"mode": _WIRE_CHOICE_MODES.get(choice.mode, "AUTO")}
    demanded = choice.mode == "one" or choice.required
    return {"mode": "ANY" if demanded else "VALIDATED", "allowedFunctionNames": names}


def read_schema(node: Object, slots: tuple[str, str], path: Path) -> Json:
    """A schema as plain JSON Schema, from either slot; one that is plain already is kept untouched."""
    own, plain = slots
    schema = node.get(plain)
    if schema is None:
        schema = node.get(own)
        return None if schema is None else _to_json_schema(expect_object(schema, (path, own)), (path, own))
    return _to_json_schema(schema, (path, plain)) if _is_gemini_dialect(schema) else schema


def convert_tool_schema(schema: Json, model: str) -> dialects.ConvertedSchema:
    """What the schema of a tool's arguments becomes; models before 2.0 take neither all keywords nor all names."""
    return (
        dialects.ensure_object_root(schema)
        if family(model).takes_json_schema
        else dialects.convert_to_openapi_subset(schema, arguments=True)
    )


def _is_gemini_dialect(schema: Json) -> bool:
    """Upper-case types are this wire's own dialect, whatever slot they stand in."""
    kind = schema.get("type") if isinstance(schema, dict) else None
    return isinstance(kind, str) and kind.isupper()


def _to_json_schema(schema: Json, path: Path) -> Json:
    try:
        return dialects.convert_to_standard(schema).schema
    except Malformed as error:
        raise Malformed(path, error.problem) from None


def write_schema(
    schema: Json, slots: tuple[str, str], model: Family, ledger: Ledger, where: Path, arguments: bool = False
) -> Object:
    """The schema as it is in the plain slot, or reduced to the older dialect for models that know nothing else."""
    own, plain = slots
    if model.takes_json_schema:
        if defines_all_required(schema):
            return {plain: schema}
        what = f"`required` in `{plain}` named properties that are not defined; they were left out"
        ledger.note("schema-rewritten", where, what)
        return {plain: _drop_undefined_required(schema, None)}
    reduced = dialects.convert_to_openapi_subset(schema, arguments)
    for change in reduced.changes:
        ledger.note("schema-rewritten", where, f"`{own}{change.pointer}`: {change.what}")
    return {own: reduced.schema}


def _defines_required(node: Object) -> bool:
    """This wire refuses a demand for a property that is not described."""
    required = node.get("required")
    if not isinstance(required, list) or ("properties" not in node and node.get("type") != "object"):
        return True
    try:
        return all(map(_properties(node).__contains__, required))
    except TypeError:
        # What cannot be looked up is no name.
        return False


def _properties(node: Object) -> Object:
    properties = node.get("properties")
    return properties if isinstance(properties, dict) else {}


_NESTED_PROPERTY_KEYS = NESTING_KEYWORDS | {"required"}
_NESTED_ROOT_KEYS = NESTING_KEYWORDS - {"properties", "additionalProperties"}


def defines_all_required(schema: Json) -> bool:
    """`everywhere(schema, _is_defined)`, the short way for a tool whose properties hold no schemas themselves."""
    try:
        properties = schema["properties"]
        flat = _NESTED_ROOT_KEYS.isdisjoint(schema) and _NESTED_PROPERTY_KEYS.isdisjoint(
            chain.from_iterable(properties.values())
        )
        if flat and schema.get("additionalProperties").__class__ is not dict:
            required = schema.get("required")
            for name in required if required.__class__ is list else ():
                if name not in properties:
                    break
            else:
                return True
    except (AttributeError, KeyError, TypeError):
        pass  # there are no properties, or what stands there is no schema, or what is demanded no name
    return all_schemas_pass(schema, _defines_required)


def _drop_undefined_required(node: Json, path: Path) -> Json:
    if not isinstance(node, dict):
        return node
    node = convert_inner_schemas(node, path, _drop_undefined_required)
    if _defines_required(node):
        return node
    properties = _properties(node)
    names = [name for name in node["required"] if isinstance(name, str) and name in properties]
    return {key: names if key == "required" else value for key, value in node.items() if key != "required" or names}
