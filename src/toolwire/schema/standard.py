"""Convert OpenAPI's dialect, older drafts and common mistakes to JSON Schema 2020-12.

The meaning stays the same: `nullable` becomes a type, upper-case and numbered types get their standard names, an array
under `items` becomes `prefixItems`, and so on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from toolwire.core.converted_schema import ConvertedSchema
from toolwire.core.json_values import Json, Object, Path, is_number
from toolwire.schema.combine import string_items
from toolwire.schema.keywords import (
    COUNT_KEYWORDS,
    TYPE_NAMES,
    ChangeLog,
    all_schemas_pass,
    convert_inner_schemas,
    read_count,
    refuse_deep_nesting,
    short_json,
    type_name,
)

_SNAKE_CASE_KEYWORDS: Final[Mapping[str, str]] = {
    "any_of": "anyOf", "one_of": "oneOf", "all_of": "allOf", "min_items": "minItems", "max_items": "maxItems",
    "min_length": "minLength", "max_length": "maxLength", "min_properties": "minProperties",
    "max_properties": "maxProperties", "property_ordering": "propertyOrdering", "prefix_items": "prefixItems",
    "additional_properties": "additionalProperties", "ref": "$ref", "defs": "$defs",
}  # fmt: skip
_NON_STANDARD_KEYWORDS: Final = frozenset(
    {"nullable", "example", "propertyOrdering", "additionalItems", *_SNAKE_CASE_KEYWORDS}
)
SUSPECT_KEYWORDS: Final = _NON_STANDARD_KEYWORDS.union(
    COUNT_KEYWORDS, ("exclusiveMinimum", "exclusiveMaximum", "items", "format", "required")
)
"""Only a schema with one of these, or with an unknown type, can need a conversion."""


def convert_to_standard(schema: Json) -> ConvertedSchema:
    """The schema as standard JSON Schema."""
    if all_schemas_pass(schema, _is_standard):
        return ConvertedSchema(schema)
    refuse_deep_nesting(schema)
    notes = ChangeLog()

    def convert(node: Json, path: Path) -> Json:
        if not isinstance(node, dict):
            return node
        node = _collect_required(rename_keywords(node))
        return _standardise_node(convert_inner_schemas(node, path, convert), path, notes)

    return ConvertedSchema(convert(schema, None), notes.changes())


def _is_standard(node: Object) -> bool:
    kind = node.get("type")
    if kind.__class__ is str:
        if kind not in TYPE_NAMES:
            return False
    elif kind is not None:
        if kind.__class__ is not list or not kind:
            return False
        if not all(one.__class__ is str and one in TYPE_NAMES for one in kind):
            return False
    return SUSPECT_KEYWORDS.isdisjoint(node) or (
        _NON_STANDARD_KEYWORDS.isdisjoint(node)
        and node.get("required").__class__ is not bool
        and node.get("items").__class__ is not list
        and node.get("format") != "enum"
        and node.get("exclusiveMinimum").__class__ is not bool
        and node.get("exclusiveMaximum").__class__ is not bool
        and not any(node.get(key).__class__ is str for key in COUNT_KEYWORDS)
    )


def rename_keywords(node: Object) -> Object:
    """Rename keywords in snake case, which some Gemini clients send."""
    if _SNAKE_CASE_KEYWORDS.keys().isdisjoint(node):
        return node
    out: Object = {}
    for key, value in node.items():
        word = _SNAKE_CASE_KEYWORDS.get(key, key)
        if key == "ref":
            if not isinstance(value, str) or not value.startswith("#/"):
                word = key  # not a reference
            elif value.startswith("#/defs/"):
                value = "#/$defs/" + value[len("#/defs/") :]
        elif key == "defs" and not isinstance(value, dict):
            word = key
        if word == key or (word not in node and value != []):
            out[word] = value
    return out


def _standardise_node(node: Object, path: Path, notes: ChangeLog) -> Object:
    """Convert one schema whose inner schemas are already standard."""
    if _is_standard(node):
        return node
    out = dict(node)
    _standardise_types(out, path, notes)
    rest = out.pop("additionalItems", None)
    if isinstance(out.get("items"), list):
        tuples = out.pop("items")
        if tuples:
            out.setdefault("prefixItems", tuples)
        if isinstance(rest, (dict, bool)):
            out["items"] = rest
    _standardise_bounds(out, path, notes)
    order, properties = string_items(out.pop("propertyOrdering", None)), out.get("properties")
    if order and isinstance(properties, dict):
        out["properties"] = {name: properties[name] for name in order if name in properties} | properties
    if isinstance(out.get("required"), bool):
        del out["required"]
    if "example" in out:
        others = out.get("examples")
        out["examples"] = [out.pop("example"), *(others if isinstance(others, list) else ())]
    if out.get("format") == "enum":
        del out["format"]
    nullable = out.pop("nullable", False)
    return make_nullable(out) if nullable is True else out


def _standardise_types(out: Object, path: Path, notes: ChangeLog) -> None:
    declared = out.get("type")
    if declared is None:
        out.pop("type", None)
        return
    names = declared if isinstance(declared, list) else [declared]
    plain = [type_name(name) for name in names]
    kept = list(dict.fromkeys(name for name in plain if name))
    if (None in plain or not plain) and declared not in ("TYPE_UNSPECIFIED", "any", 0):
        notes.add((path, "type"), f"{short_json(declared, 60)} is not a type and was left out")
    if not kept:
        del out["type"]
    elif kept != declared:
        out["type"] = kept if isinstance(declared, list) else kept[0]


def _standardise_bounds(out: Object, path: Path, notes: ChangeLog) -> None:
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        flag = out.get(exclusive)
        if isinstance(flag, bool):
            del out[exclusive]
            if flag and is_number(out.get(bound)):
                out[exclusive] = out.pop(bound)
    for key in COUNT_KEYWORDS:
        if isinstance(out.get(key), str):
            out[key] = read_count(out[key])
            if out[key] is None:
                notes.add((path, key), f"`{key}` is not a count and was left out")
                del out[key]


def _collect_required(node: Object) -> Object:
    """Move `required: true` of a property into the `required` list of its object."""
    properties = node.get("properties")
    if not isinstance(properties, dict):
        return node
    flagged = [name for name, child in properties.items() if type(child) is dict and child.get("required") is True]
    if not flagged:
        return node
    return {**node, "required": list(dict.fromkeys([*string_items(node.get("required")), *flagged]))}


def make_nullable(out: Object) -> Object:
    """The schema that also accepts null."""
    if not {"$ref", "allOf", "oneOf"}.isdisjoint(out):
        outside = ("title", "description", "default", "$defs", "definitions")
        kept: Object = {key: out.pop(key) for key in outside if key in out}
        return {**kept, "anyOf": [out, {"type": "null"}]}
    if "const" in out and out["const"] is not None:
        out["enum"] = [out.pop("const"), None]
    elif isinstance(out.get("enum"), list) and None not in out["enum"]:
        out["enum"] = [*out["enum"], None]
    declared = out.get("type")
    if declared is not None:
        names = declared if isinstance(declared, list) else [declared]
        out["type"] = declared if "null" in names else [*names, "null"]
    branches = out.get("anyOf")
    if isinstance(branches, list) and {"type": "null"} not in branches:
        out["anyOf"] = [*branches, {"type": "null"}]
    return out
