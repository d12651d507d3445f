"""Tools, the tool choice and schemas. Functions are in one list; each provider tool is an entry of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Literal

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from toolwire.core.codec import Members, list_items
from toolwire.core.converted_schema import ConvertedSchema
from toolwire.core.ir import AnyTool, Opaque, ProviderTool, Tool, ToolChoice, ToolName, source_path
from toolwire.core.json_values import (
    Json,
    Malformed,
    Object,
    Path,
    expect_object,
    expect_text,
    get_object,
    get_text,
    require_text,
)
from toolwire.core.losses import Ledger
from toolwire.core.provenance import is_nonempty, restore_original_keys
from toolwire.protocols.gemini import names
from toolwire.protocols.gemini.content import PartReadContext, items_or_single
from toolwire.protocols.gemini.models import Family, family
from toolwire.protocols.gemini.names import NAME, intact_wire, is_foreign, is_own, to_snake_case
from toolwire.schema.keywords import (
    NESTING_KEYWORDS,
    REFERENCE_KEYWORDS,
    all_schemas_pass,
    convert_schemas,
    object_or_empty,
)
from toolwire.schema.object_root import ensure_object_root
from toolwire.schema.openapi_subset import convert_to_openapi_subset, fits_openapi_dialect
from toolwire.schema.repair import (
    ANY_ARGUMENTS,
    accept_any_if_too_deep,
    is_usual,
    point_references,
    repair_schema,
)
from toolwire.schema.standard import convert_to_standard
from toolwire.schema.validate import find_schema_problems

_PARAMETER_SLOTS = ("parameters", "parametersJsonSchema")
_RESPONSE_SLOTS = ("response", "responseJsonSchema")

_decode_entries = msgspec.json.Decoder(list[dict[str, Raw]] | dict[str, Raw] | None).decode
_FUNCTION_KEYS = frozenset({"functionDeclarations", "function_declarations"})


def count_tools(members: Members) -> int:
    try:
        entries = _decode_entries(members["tools"]) if "tools" in members else None
    except (msgspec.DecodeError, UnicodeError):
        return 1  # reading it says what is wrong
    declared = [*entries] if isinstance(entries, list) else [entries or {}]
    return sum(len(list_items(entry, key)) or 1 if key in _FUNCTION_KEYS else 1 for entry in declared for key in entry)


# --- reading --------------------------------------------------------------------------------------------------------


def read_tools(value: Json, path: Path, reading: PartReadContext) -> tuple[AnyTool, ...]:
    """The tools of all entries."""
    entries = items_or_single(value, path)
    return tuple([tool for entry, here in entries for tool in _read_tool_entry(entry, here, reading)])


def _read_tool_entry(entry: Json, path: Path, reading: PartReadContext) -> Iterator[AnyTool]:
    for key, value in expect_object(entry, path).items():
        if value is None:
            continue
        kind = names.TOOL_KEYS.camel_by_snake.get(key, key)
        here = (path, key)
        if kind == "functionDeclarations":
            for item, at in items_or_single(value, here):
                node, origin = reading.read_node(item, at, names.DECLARATION_KEYS)
                name, description = require_text(node, "name", at), get_text(node, "description", at)
                parameters, output = (read_schema(node, slots, at) for slots in (_PARAMETER_SLOTS, _RESPONSE_SLOTS))
                yield Tool(name, description, parameters, output=output, origin=origin)
        elif kind in names.PROVIDER_TOOL_BY_KEY:
            for option, chosen in expect_object(value, here).items():
                if is_nonempty(chosen):
                    reading.note_unknown_field(here, option)
            yield ProviderTool(names.PROVIDER_TOOL_BY_KEY[kind], origin=reading.whole_origin({key: value}, here))
        elif isinstance(value, str):
            raise Malformed(here, "this is no tool: functions are in `functionDeclarations`, and others are objects")
        else:
            yield Opaque(names.to_camel_case(kind), reading.whole_origin({key: value}, here))


CHOICE_MODES: Mapping[str, Literal["auto", "required", "none"]] = {
    "MODE_UNSPECIFIED": "auto",
    "VALIDATED": "auto",
    "AUTO": "auto",
    "ANY": "required",
    "NONE": "none",
}
"""Google's calling modes. Of several for one mode the last is written."""
_CALLING_MODES: Mapping[str, str] = {mode: word for word, mode in CHOICE_MODES.items()}
_CALLING_MODE_NUMBERS = ("MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED")


def read_tool_choice(value: Json, path: Path, reading: PartReadContext) -> ToolChoice | None:
    """The calling mode; None if there is no `functionCallingConfig`."""
    node, origin = reading.read_node(value, path, names.TOOL_CONFIG_KEYS)
    calling = get_object(node, "functionCallingConfig", path)
    if calling is None:
        return None
    here = (path, "functionCallingConfig")
    config = reading.read_inner_node(calling, here, names.CALLING_CONFIG_KEYS)
    mode = config.get("mode")
    if type(mode) is int and 0 <= mode < len(_CALLING_MODE_NUMBERS):
        mode = _CALLING_MODE_NUMBERS[mode]
    mode = expect_text(mode or "AUTO", (here, "mode")).upper()
    if mode not in CHOICE_MODES:
        raise Malformed((here, "mode"), f"expected AUTO, ANY, NONE or VALIDATED, got {mode!r}")
    names_path = (here, "allowedFunctionNames")
    listed = items_or_single(config.get("allowedFunctionNames") or [], names_path)
    tools = tuple([ToolName(expect_text(name, at)) for name, at in listed])
    if tools and mode == "ANY":
        return ToolChoice("one" if len(tools) == 1 else "allowed", tools, len(tools) > 1, origin)
    if tools and mode == "VALIDATED":
        return ToolChoice("allowed", tools, False, origin)
    if tools:
        reading.note_unknown_field(here, "allowedFunctionNames")
    return ToolChoice(CHOICE_MODES[mode], origin=origin)


# --- writing --------------------------------------------------------------------------------------------------------


def write_tools(tools: tuple[AnyTool, ...], ledger: Ledger, family: Family) -> list[Object]:
    """The entries, with all functions in the place of the first."""
    entries: list[Object] = []
    declarations: list[Object] = []
    for tool in tools:
        if isinstance(tool, Tool):
            if not declarations:
                entries.append({"functionDeclarations": declarations})
            declarations.append(write_declaration(tool, family, ledger))
        elif isinstance(tool, ProviderTool):
            if (entry := _write_provider_tool(tool, Tool in map(type, tools), family, ledger)) is not None:
                entries.append(entry)
        elif is_foreign(tool.origin):
            ledger.note("tool-dropped", source_path(tool), f"the tool `{tool.kind}` was left out")
        else:
            entries.append(tool.origin.wire)
    return entries


def write_declaration(tool: Tool, family: Family, ledger: Ledger) -> Object:
    if (wire := intact_wire(tool.origin)) is not None:
        return wire
    parameters = tool.parameters
    out: Object = {"name": tool.name}
    if tool.description is not None:
        out["description"] = tool.description
    if parameters is not None and (parameters != {} or not is_foreign(tool.origin)):
        out |= write_schema(parameters, _PARAMETER_SLOTS, family, ledger, source_path(tool), arguments=True)
    if tool.output is not None:
        out |= write_schema(tool.output, _RESPONSE_SLOTS, family, ledger, source_path(tool))
    if tool.strict:
        ledger.note("no-counterpart", source_path(tool), f"`strict` of the tool `{tool.name}` was left out")
    if tool.defer:
        ledger.note("no-counterpart", source_path(tool), f"`defer` of the tool `{tool.name}` was left out")
    if tool.cache is not None:
        ledger.note("cache-dropped", source_path(tool), "the cache breakpoint was left out")
    return restore_original_keys(out, tool.origin, NAME)


_TOOLS_NEEDING_OPTIONS = frozenset({"file_search", "computer"})
"""Provider tools that need options which only clients of Gemini send."""


def _write_provider_tool(tool: ProviderTool, has_functions: bool, family: Family, ledger: Ledger) -> Object | None:
    if (wire := intact_wire(tool.origin)) is not None:
        return wire
    key = names.KEY_BY_PROVIDER_TOOL.get(tool.tool)
    if key is None or (tool.tool in _TOOLS_NEEDING_OPTIONS and is_foreign(tool.origin)):
        ledger.note("tool-dropped", source_path(tool), f"the provider tool `{tool.tool}` was left out")
        return None
    if has_functions and not family.is_gemini_3 and not is_own(tool.origin):
        why = f"before Gemini 3 {key} cannot be combined with functions"
        ledger.note("tool-dropped", source_path(tool), f"the provider tool `{tool.tool}` was left out", why)
        return None
    unsupported = ("max_uses", "allowed_domains", "blocked_domains", "location", "context_size")
    lost = [option for option in unsupported if getattr(tool, option)]
    if lost or is_foreign(tool.origin):
        ledger.note("tool-mapped", source_path(tool), f"`{tool.name or tool.tool}` became `{key}`")
    for option in lost:
        ledger.note("no-counterpart", source_path(tool), f"`{option}` of `{tool.tool}` was left out")
    if tool.cache is not None:
        ledger.note("cache-dropped", source_path(tool), "the cache breakpoint was left out")
    original = tool.origin.wire if is_own(tool.origin) else {}
    return {key: original.get(key, original.get(to_snake_case(key), {}))}


def is_written(tool: AnyTool) -> bool:
    """Can `write_tools` write this tool?"""
    return not isinstance(tool, Opaque) or not is_foreign(tool.origin)


def declares_functions(entries: list[Object]) -> bool:
    return "functionDeclarations" in chain.from_iterable(entries)


def write_tool_choice(choice: ToolChoice, has_functions: bool, ledger: Ledger) -> Object | None:
    """`toolConfig` with the calling mode; None if there is nothing to write."""
    if has_functions and (wire := intact_wire(choice.origin)) is not None:
        return wire
    calling = _write_calling_config(choice, has_functions, ledger)
    config = {} if calling is None else {"functionCallingConfig": calling}
    return restore_original_keys(config, choice.origin, NAME) or None


def _write_calling_config(choice: ToolChoice, has_functions: bool, ledger: Ledger) -> Object | None:
    function_names = [tool.name for tool in choice.tools if tool.kind == "function"]
    if not has_functions:
        why = "there are no functions"
        if choice.mode not in ("auto", "none"):
            ledger.note("choice-weakened", source_path(choice), "the forced call was left out", why)
        elif is_own(choice.origin):
            ledger.note("choice-mapped", source_path(choice), "the calling mode was left out", why)
        return None
    if choice.mode in ("required", "none") and is_foreign(choice.origin):
        what = f"`{choice.mode}` became the mode {_CALLING_MODES[choice.mode]}"
        ledger.note("choice-mapped", source_path(choice), what)
    if len(function_names) < len(choice.tools):
        other = ", ".join(tool.name or tool.kind for tool in choice.tools if tool.kind != "function")
        ledger.note("choice-weakened", source_path(choice), f"only functions can be chosen, not {other}")
    if choice.mode in _CALLING_MODES or not function_names:
        return {"mode": _CALLING_MODES.get(choice.mode, "NONE" if choice.mode == "allowed" else "AUTO")}
    forced = choice.mode == "one" or choice.required
    return {"mode": "ANY" if forced else "VALIDATED", "allowedFunctionNames": function_names}


# --- schemas --------------------------------------------------------------------------------------------------------


def read_schema(node: Object, slots: tuple[str, str], path: Path) -> Json:
    """A JSON Schema from one of two keys: the older one holds Google's dialect, the newer one JSON Schema."""
    dialect_key, standard_key = slots
    key = dialect_key if node.get(standard_key) is None else standard_key
    schema, here = node.get(key), (path, key)
    if schema is None:
        return None
    if key == dialect_key:
        expect_object(schema, here)
    else:
        # Types in upper case are Google's dialect, under either key.
        kind = schema.get("type") if isinstance(schema, dict) else None
        if not isinstance(kind, str) or not kind.isupper():
            return schema
    try:
        return convert_to_standard(schema).schema
    except Malformed as error:
        raise Malformed(here, error.problem) from None


@accept_any_if_too_deep
def convert_tool_schema(schema: Json, model: str) -> ConvertedSchema:
    """The schema of a tool's arguments as the model accepts it."""
    if not family(model).takes_json_schema:
        return convert_to_openapi_subset(schema, arguments=True)
    valid = ConvertedSchema(schema) if is_usual(schema) else repair_schema(schema)
    made = ensure_object_root(valid.schema)
    return replace(made, changes=(*valid.changes, *made.changes)) if valid.changes else made


JUDGED_MEMBERS = frozenset({"tools", "toolConfig", "tool_config"})


def refuses_tool(tool: Tool, model: str) -> bool:
    """Google refuses the whole request if a schema is not of the dialect of its key."""
    node = names.DECLARATION_KEYS(tool.origin.wire) if is_own(tool.origin) else {}
    if (schema := node.get("parametersJsonSchema")) is not None:
        return bool(find_schema_problems(schema)) or not all_schemas_pass(schema, _defines_required)
    return node.get("parameters") is not None and not fits_openapi_dialect(node["parameters"])


def write_schema(
    schema: Json, slots: tuple[str, str], model: Family, ledger: Ledger, where: Path, arguments: bool = False
) -> Object:
    """The schema under the key for JSON Schema, or in Google's dialect for models that know only that."""
    try:
        return _write_schema(schema, slots, model, ledger, where, arguments)
    except Malformed as problem:
        what = f"`{slots[model.takes_json_schema]}`: {problem.problem}; it became an object with any properties"
        ledger.note("schema-rewritten", where, what)
        return _write_schema(ANY_ARGUMENTS, slots, model, ledger, where, arguments)


def _write_schema(
    schema: Json, slots: tuple[str, str], model: Family, ledger: Ledger, where: Path, arguments: bool
) -> Object:
    dialect_key, standard_key = slots
    if model.takes_json_schema:
        if defines_all_required(schema):
            return {standard_key: schema}
        fitted = convert_schemas(schema, _drop_undefined_required)
        if fitted is not schema:
            what = f"undefined properties were left out of `required` in `{standard_key}`"
            ledger.note("schema-rewritten", where, what)
        defined = point_references(fitted)
        for change in defined.changes:
            ledger.note("schema-rewritten", where, f"`{standard_key}{change.pointer}`: {change.what}")
        return {standard_key: defined.schema}
    reduced = convert_to_openapi_subset(schema, arguments)
    for change in reduced.changes:
        ledger.note("schema-rewritten", where, f"`{dialect_key}{change.pointer}`: {change.what}")
    return {dialect_key: reduced.schema}


def _defines_required(node: Object) -> bool:
    """Are all required properties defined? Google refuses the schema otherwise."""
    required = node.get("required")
    if not isinstance(required, list) or ("properties" not in node and node.get("type") != "object"):
        return True
    properties = object_or_empty(node.get("properties"))
    try:
        return all(map(properties.__contains__, required))
    except TypeError:
        return False  # one of them is not a string


_REFERENCES = frozenset(REFERENCE_KEYWORDS)
_NESTED_PROPERTY_KEYS = NESTING_KEYWORDS | {"required"} | _REFERENCES
_NESTED_ROOT_KEYS = NESTING_KEYWORDS - {"properties", "additionalProperties"}


def defines_all_required(schema: Json) -> bool:
    """Does every object in the schema define its required properties, and is there no reference, which would have to be
    defined, too? A flat schema is checked in one pass."""
    try:
        properties = schema["properties"]
        flat = _NESTED_ROOT_KEYS.isdisjoint(schema) and _NESTED_PROPERTY_KEYS.isdisjoint(
            chain.from_iterable(properties.values())
        )
        if flat and schema.get("additionalProperties").__class__ is not dict:
            required = schema.get("required")
            if required.__class__ is not list or all(map(properties.__contains__, required)):
                return True
    except (AttributeError, KeyError, TypeError):
        pass  # there are no properties, or something has the wrong type
    return all_schemas_pass(schema, lambda node: _REFERENCES.isdisjoint(node) and _defines_required(node))


def _drop_undefined_required(node: Object, _path: Path) -> Object:
    if _defines_required(node):
        return node
    properties = object_or_empty(node.get("properties"))
    required = [name for name in node["required"] if isinstance(name, str) and name in properties]
    if not required:
        return {key: value for key, value in node.items() if key != "required"}
    return node | {"required": required}
