"""This wire's own dialect of JSON Schema, read as standard JSON Schema."""

from __future__ import annotations

from toolwire.protocols.gemini.names import Shape
from toolwire.wire import Json, Object

_WORDS = Shape(
    "anyOf",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "minLength",
    "maxLength",
    "propertyOrdering",
    "prefixItems",
    "additionalProperties",
)
_COUNTS = frozenset({"minItems", "maxItems", "minProperties", "maxProperties", "minLength", "maxLength"})
"""64-bit numbers, which this wire may spell as strings."""
_ONE = frozenset({"items", "additionalProperties", "not"})
_MANY = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_NAMED = frozenset({"properties", "$defs", "defs", "definitions", "patternProperties"})
_TYPES = frozenset({"STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL", "TYPE_UNSPECIFIED"})


def standard(schema: Json) -> Json:
    """A schema with lower-case types, camelCase words and no `nullable`; the very same object when it is so already."""
    if not isinstance(schema, dict):
        return schema
    node = _WORDS(schema)
    out: Object = {}
    same = node is schema
    for key, value in node.items():
        read = _value(key, value)
        same = same and read is value
        out[key] = read
    if out.get("type") == "type_unspecified":
        del out["type"]
        same = False
    if "nullable" in out and isinstance(out["nullable"], bool):
        return _nullable(out)
    return schema if same else out


def _value(key: str, value: Json) -> Json:
    if key == "type":
        return _type(value)
    if key in _ONE:
        return standard(value)
    if key in _MANY and isinstance(value, list):
        read = [standard(item) for item in value]
        return value if all(a is b for a, b in zip(read, value, strict=True)) else read
    if key in _NAMED and isinstance(value, dict):
        named = {name: standard(item) for name, item in value.items()}
        return value if all(named[name] is item for name, item in value.items()) else named
    if key in _COUNTS and isinstance(value, str) and value.isdigit():
        return int(value)
    return value


def _type(value: Json) -> Json:
    if isinstance(value, str):
        return value.lower() if value in _TYPES else value
    if isinstance(value, list) and any(item in _TYPES for item in value if isinstance(item, str)):
        return [_type(item) for item in value]
    return value


def _nullable(node: Object) -> Object:
    nullable = node.pop("nullable")
    if nullable and isinstance(node.get("type"), str):
        node["type"] = [node["type"], "null"]
        if isinstance(node.get("enum"), list) and None not in node["enum"]:
            node["enum"] = [*node["enum"], None]
    elif nullable and isinstance(node.get("anyOf"), list):
        node["anyOf"] = [*node["anyOf"], {"type": "null"}]
    return node
