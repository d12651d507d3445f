"""What Gemini refuses in `tools`, `toolConfig` and schemas."""

from __future__ import annotations

import re
from collections.abc import Iterator

from toolwire.conformance.strict.check import Check, Json, Object, camel_key, numbered, objects, version

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,63}")
PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
KEYWORDS = frozenset(
    "type format title description nullable enum items minItems maxItems properties required minProperties"
    " maxProperties minimum maximum minLength maxLength pattern example anyOf propertyOrdering default".split()
)
TYPES = ("TYPE_UNSPECIFIED", "STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL")
DECLARATION = frozenset(
    {"name", "description", "parameters", "parametersJsonSchema", "response", "responseJsonSchema", "behavior"}
)
BUILT_IN = frozenset(
    "googleSearch googleSearchRetrieval urlContext codeExecution googleMaps fileSearch computerUse mcpServers retrieval"
    " enterpriseWebSearch parallelAiSearch exaAiSearch".split()
)
RUN_BY_THE_CLIENT = frozenset({"computerUse", "functionDeclarations"})


def type_of(node: Object) -> str:
    """The type in capitals, "" when there is none; some clients send its number."""
    kind = node.get("type")
    if isinstance(kind, int) and not isinstance(kind, bool) and 0 <= kind < len(TYPES):
        return TYPES[kind]
    return str(kind).upper() if isinstance(kind, (str, int)) else ""


def schema(node: Json, at: str) -> Iterator[str]:
    """The OpenAPI subset of `parameters` and `responseSchema`; anything else does not parse."""
    if not isinstance(node, dict):
        yield f"{at}: expected a schema"
        return
    node = {camel_key(key): value for key, value in node.items()}
    for key in node.keys() - KEYWORDS:
        yield f"Invalid JSON payload received. Unknown name \"{key}\" at '{at}': Cannot find field."
    kind = type_of(node)
    if isinstance(node.get("type"), list):
        yield f"{at}.type: Proto field is not repeating, cannot start list."
    elif kind and kind not in TYPES:
        yield f"{at}.type: Invalid value {kind!r}"
    if "enum" in node:
        yield from _enum(node["enum"], kind, at)
    yield from _properties(node, at)
    if kind == "ARRAY" and "items" not in node:
        yield f"{at}.items: missing field."
    if "items" in node:
        yield from schema(node["items"], f"{at}.items")
    for index, child in enumerate(node.get("anyOf") or []):
        yield from schema(child, f"{at}.any_of[{index}]")


def _properties(node: Object, at: str) -> Iterator[str]:
    properties = node.get("properties")
    names = properties if isinstance(properties, dict) else {}
    for name in node.get("required") or []:
        if name not in names:
            yield f"{at}.required: property is not defined: {name!r}"
    for name, child in names.items():
        if not PARAMETER.fullmatch(name):
            yield f"{at}.properties: invalid parameter name {name!r}"
        yield from schema(child, f"{at}.properties[{name}]")


def _enum(values: Json, kind: str, at: str) -> Iterator[str]:
    if kind != "STRING":
        yield f"{at}.enum: only allowed for STRING type"
    for value in values if isinstance(values, list) else []:
        if not isinstance(value, str):
            yield f"{at}.enum: Invalid value (TYPE_STRING), {value!r}"


def declarations(body: Object, model: str) -> Iterator[str]:
    seen: set[str] = set()
    for index, tool in numbered(body.get("tools")):
        for number, declared in numbered(tool.get("functionDeclarations")):
            at = f"tools[{index}].function_declarations[{number}]"
            name = declared.get("name")
            if not isinstance(name, str) or not NAME.fullmatch(name):
                yield f"{at}.name: Invalid function name. Must start with a letter or an underscore, got {name!r}"
            elif name in seen:
                yield f"{at}.name: Duplicate function declaration found: {name}"
            seen.add(str(name))
            for key in declared.keys() - DECLARATION:
                yield f"Invalid JSON payload received. Unknown name \"{key}\" at '{at}': Cannot find field."
            yield from _parameters(declared, at)


def _parameters(declared: Object, at: str) -> Iterator[str]:
    if declared.get("parameters") is not None and declared.get("parametersJsonSchema") is not None:
        yield f"{at}: parameters and parameters_json_schema are exclusive"
    if declared.get("parameters") is not None:
        yield from schema(declared["parameters"], f"{at}.parameters")
        if type_of(declared["parameters"]) not in ("OBJECT", ""):
            yield f"{at}.parameters: schema should be of type OBJECT"
    free = declared.get("parametersJsonSchema")
    if free is not None:
        if not isinstance(free, dict):
            yield f"{at}.parameters_json_schema: expected an object"
        elif str(free.get("type", "object")).lower() != "object":
            yield f"{at}.parameters_json_schema: schema should be of type OBJECT"
        yield from undefined_references(free, at)


def undefined_references(free: Json, at: str) -> Iterator[str]:
    """`$ref` must lead somewhere inside the same schema."""
    stack: list[Json] = [free]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            reference = node.get("$ref")
            if isinstance(reference, str) and not _resolves(free, reference):
                yield f"{at}: reference to undefined schema {reference!r}"
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)


def _resolves(free: Json, reference: str) -> bool:
    node = free
    if not reference.startswith("#"):
        return False
    for key in filter(None, reference[1:].split("/")):
        if not isinstance(node, dict) or key.replace("~1", "/").replace("~0", "~") not in node:
            return False
        node = node[key.replace("~1", "/").replace("~0", "~")]
    return True


def kinds(body: Object, model: str) -> Iterator[str]:
    """Built-in tools beside functions: only newer models, in objects of their own, and with the flag."""
    tools = objects(body.get("tools"))
    for index, tool in enumerate(tools):
        for key in tool.keys() - BUILT_IN - {"functionDeclarations"}:
            yield f"Invalid JSON payload received. Unknown name \"{key}\" at 'tools[{index}]': Cannot find field."
        held = [key for key in tool if tool[key] is not None]
        if "functionDeclarations" in held and len(held) > 1:
            yield f"tools[{index}].tool_type: one_of 'tool_type' has more than one initialized field: {held}"
        if not held:
            yield f"tools[{index}].tool_type: required one_of 'tool_type' must have one initialized field"
        if tool.get("functionDeclarations") == []:
            yield f"tools[{index}].function_declarations: must not be empty"
    functions = any("functionDeclarations" in tool for tool in tools)
    built_in = any(tool.keys() & (BUILT_IN - RUN_BY_THE_CLIENT) for tool in tools)
    if not (functions and built_in):
        return
    made = version(model, "gemini")
    if made is not None and made < (3, 0):
        yield "Built-in tools and Function Calling cannot be combined in the same request."
    elif not (body.get("toolConfig") or {}).get("includeServerSideToolInvocations"):
        yield "Please enable tool_config.include_server_side_tool_invocations to use Built-in tools with functions."


def choice(body: Object, model: str) -> Iterator[str]:
    given: Object = (body.get("toolConfig") or {}).get("functionCallingConfig") or {}
    if not given:
        return
    mode = str(given.get("mode", "AUTO")).upper()
    if mode not in ("AUTO", "ANY", "NONE", "VALIDATED", "MODE_UNSPECIFIED"):
        yield f"tool_config.function_calling_config.mode: Invalid value {mode!r}"
    allowed = given.get("allowedFunctionNames")
    declared = [d.get("name") for tool in objects(body.get("tools")) for d in objects(tool.get("functionDeclarations"))]
    if mode in ("ANY", "VALIDATED") and not declared:
        yield "Function calling config is set without function_declarations."
    if allowed is None:
        return
    if mode not in ("ANY", "VALIDATED"):
        yield "allowed_function_names should be set only when the mode is ANY or VALIDATED."
    if not allowed:
        yield "allowed_function_names must not be empty."
    for name in allowed:
        if name not in declared:
            yield f"allowed_function_names: {name!r} is not declared"


CHECKS: tuple[Check, ...] = (declarations, kinds, choice)
