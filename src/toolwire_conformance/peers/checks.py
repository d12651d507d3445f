"""What the strict checks share. A check takes a request and a model, and gives what the provider would refuse."""

from __future__ import annotations

import base64
import binascii
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from importlib.resources import files
from typing import TypeAlias, TypeGuard

from toolwire_conformance import Json, Object

RequestCheck: TypeAlias = Callable[[Object, str], Iterable[str]]
KNOWN_NAMES = tomllib.loads((files(__package__) / "names.toml").read_text("utf-8"))


def known_names(protocol: str) -> dict[str, dict[str, frozenset[str]]]:
    """The names that this protocol's API accepts, from `names.toml`."""
    return {
        table: {place: frozenset(names.split()) for place, names in rows.items()}
        for table, rows in KNOWN_NAMES[protocol].items()
    }


def refusals(*rows: tuple[object, str]) -> Iterator[str]:
    """The texts of the rows whose condition is true."""
    return (text for is_refused, text in rows if is_refused)


def objects(values: Json) -> list[Object]:
    """The objects in an array; empty if it is not an array."""
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


def numbered_objects(values: Json) -> Iterator[tuple[int, Object]]:
    if isinstance(values, list):
        yield from ((index, value) for index, value in enumerate(values) if isinstance(value, dict))


def matches(pattern: re.Pattern[str], value: Json) -> TypeGuard[str]:
    """Is the value a string that the whole pattern matches?"""
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def check_unknown_keys(
    node: Object, known: frozenset[str], path: str = "", text: str = "{}: unknown parameter"
) -> Iterator[str]:
    return (text.format(f"{path}{key}") for key in node if key not in known)


def to_camel_case(key: str) -> str:
    head, *rest = key.split("_") if not key.startswith("_") else [key]
    return head + "".join(word[:1].upper() + word[1:] for word in rest)


def model_version(model: str, family: str) -> tuple[int, int] | None:
    """The version in the name of a model of this family: `gpt-5.5` and `claude-opus-5-5` → (5, 5); None for others."""
    found = re.search(rf"(?:{family})-?(\d{{1,2}})(?:[.-](\d{{1,2}})(?!\d))?(?!\d)", model)
    return (int(found[1]), int(found[2] or 0)) if found else None


def is_since(model: str, family: str, version: tuple[int, int]) -> bool:
    """Is this a model of the family, of this version or a later one?"""
    return (model_version(model, family) or (0, 0)) >= version


def is_before(model: str, family: str, version: tuple[int, int]) -> bool:
    """Is this a model of the family with an earlier version? No for models of other families."""
    return (model_version(model, family) or version) < version


def schema_nodes(schema: Json, path: str) -> Iterator[tuple[str, Object]]:
    """Every subschema of a schema, with its path."""
    if not isinstance(schema, dict):
        return
    yield path, schema
    for key in ("properties", "$defs", "definitions", "patternProperties"):
        if isinstance(schema.get(key), dict):
            for name, child in schema[key].items():
                yield from schema_nodes(child, f"{path}.{key}.{name}")
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        if isinstance(schema.get(key), list):
            for index, child in enumerate(schema[key]):
                yield from schema_nodes(child, f"{path}.{key}[{index}]")
    for key in ("items", "additionalProperties", "not"):
        yield from schema_nodes(schema.get(key), f"{path}.{key}")


STRICT_REFUSED = "oneOf allOf not if then else dependentRequired dependentSchemas patternProperties".split()


def check_strict_schema(schema: Json, path: str) -> Iterator[str]:
    """OpenAI's rules for strict schemas."""
    if not isinstance(schema, dict) or schema.get("type") != "object" or "anyOf" in schema:
        yield f"{path}: a strict schema must be an object at its root"
        return
    for place, node in schema_nodes(schema, path):
        yield from (f"{place}: '{key}' is not permitted in a strict schema" for key in STRICT_REFUSED if key in node)
        if node.get("type") == "object" or "properties" in node:
            if node.get("additionalProperties") is not False:
                yield f"{place}: 'additionalProperties' is required to be supplied and to be false"
            missing = set(node.get("properties") or {}) - set(node.get("required") or [])
            if missing:
                yield f"{place}: 'required' must name every property, missing {sorted(missing)}"


REFUSED_AT_ROOT = ("oneOf", "anyOf", "allOf", "enum", "not")


def check_object_schema(schema: Json, path: str) -> Iterator[str]:
    """OpenAI's rules for the parameters of a tool: an object at the root, and valid JSON Schema 2020-12 inside."""
    if not isinstance(schema, dict):
        yield f"{path}: expected an object"
        return
    if schema.get("type") != "object":
        yield f"{path}: schema must be a JSON Schema of 'type: \"object\"', got 'type: {schema.get('type')!r}'"
    yield from (f"{path}: schema must not have '{key}' at the top level" for key in REFUSED_AT_ROOT if key in schema)
    if not isinstance(schema.get("properties", {}), dict):
        yield f"{path}.properties: {schema['properties']!r} is not of type 'object'"
    for place, node in schema_nodes(schema, path):
        kinds = node.get("type")
        if (kinds == "array" or (isinstance(kinds, list) and "array" in kinds)) and "items" not in node:
            yield f"{place}: array schema missing items"
        if isinstance(node.get("items"), list):
            yield f"{place}.items: an array is not of type 'object', 'boolean'"
        for key in ("exclusiveMinimum", "exclusiveMaximum"):
            if isinstance(node.get(key), bool):
                yield f"{place}.{key}: {node[key]!r} is not of type 'number'"
        if isinstance(node.get("required", []), bool):
            yield f"{place}.required: {node['required']!r} is not of type 'array'"


def is_base64(text: Json) -> bool:
    """Standard or URL-safe, padded or not."""
    if not isinstance(text, str):
        return False
    plain = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (ValueError, binascii.Error):
        return False
    return True
