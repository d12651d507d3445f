"""Plain JSON Schema 2020-12 out of what OpenAPI's dialect, older drafts and hasty authors write instead.

The meaning stays: `nullable` becomes a type, upper-case and numbered types get their names, a tuple under `items`
becomes `prefixItems`, and so on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from toolwire.schema.combine import names_of
from toolwire.schema.subset_words import COUNTS, whole_number
from toolwire.schema.words import (
    TYPES,
    Converted,
    Notes,
    everywhere,
    is_number,
    mapped,
    refuse_depth,
    spelled,
    type_name,
)
from toolwire.wire import Json, Object, Path

_RESPELLED: Final[Mapping[str, str]] = {
    "any_of": "anyOf", "one_of": "oneOf", "all_of": "allOf", "min_items": "minItems", "max_items": "maxItems",
    "min_length": "minLength", "max_length": "maxLength", "min_properties": "minProperties",
    "max_properties": "maxProperties", "property_ordering": "propertyOrdering", "prefix_items": "prefixItems",
    "additional_properties": "additionalProperties", "ref": "$ref", "defs": "$defs",
}  # fmt: skip
_COUNTS: Final = frozenset(COUNTS)
_FOREIGN: Final = frozenset({"nullable", "example", "propertyOrdering", "additionalItems", *_RESPELLED})
CLOSER_LOOK: Final = _FOREIGN | _COUNTS | {"exclusiveMinimum", "exclusiveMaximum", "items", "format", "required"}
"""A schema without these is plain, if its type and what is inside it are."""


def standard(schema: Json) -> Converted:
    """The schema as plain JSON Schema."""
    if everywhere(schema, _is_plain):
        return Converted(schema)
    refuse_depth(schema)
    notes = Notes()

    def convert(node: Json, path: Path) -> Json:
        if not isinstance(node, dict):
            return node
        return _converted(mapped(_with_required(_respelled(node)), path, convert), path, notes)

    return Converted(convert(schema, None), notes.all())


def _is_plain(node: Object) -> bool:
    kind = node.get("type")
    if kind.__class__ is str:
        if kind not in TYPES:
            return False
    elif kind is not None and not _are_types(kind):
        return False
    return CLOSER_LOOK.isdisjoint(node) or _has_plain_values(node)


def _are_types(kinds: Json) -> bool:
    return kinds.__class__ is list and bool(kinds) and all(kind.__class__ is str and kind in TYPES for kind in kinds)


def _has_plain_values(node: Object) -> bool:
    return (
        _FOREIGN.isdisjoint(node)
        and node.get("required").__class__ is not bool
        and node.get("items").__class__ is not list
        and node.get("format") != "enum"
        and node.get("exclusiveMinimum").__class__ is not bool
        and node.get("exclusiveMaximum").__class__ is not bool
        and not any(node.get(key).__class__ is str for key in COUNTS)
    )


def _respelled(node: Object) -> Object:
    """Keywords in snake case, as some clients of the subset send them."""
    if _RESPELLED.keys().isdisjoint(node):
        return node
    out: Object = {}
    for key, value in node.items():
        word = _RESPELLED.get(key, key)
        if key == "ref":
            if not isinstance(value, str) or not value.startswith("#/"):
                word = key  # an author's own mark
            elif value.startswith("#/defs/"):
                value = "#/$defs/" + value[len("#/defs/") :]
        elif key == "defs" and not isinstance(value, dict):
            word = key
        if word == key or (word not in node and value != []):
            out[word] = value
    return out


def _converted(node: Object, path: Path, notes: Notes) -> Object:
    """One schema whose inner schemas are plain already."""
    if _is_plain(node):
        return node
    out = dict(node)
    _types(out, path, notes)
    _tuples(out)
    _bounds(out, path, notes)
    _order(out)
    if isinstance(out.get("required"), bool):
        del out["required"]
    if "example" in out:
        others = out.get("examples")
        out["examples"] = [out.pop("example"), *(others if isinstance(others, list) else ())]
    if out.get("format") == "enum":
        del out["format"]
    nullable = out.pop("nullable", False)
    return _nullable(out) if nullable is True else out


def _types(out: Object, path: Path, notes: Notes) -> None:
    declared = out.get("type")
    if declared is None:
        out.pop("type", None)
        return
    names = declared if isinstance(declared, list) else [declared]
    plain = [type_name(name) for name in names]
    kept = list(dict.fromkeys(name for name in plain if name))
    if (None in plain or not plain) and declared not in ("TYPE_UNSPECIFIED", "any", 0):
        notes.add((path, "type"), f"{spelled(declared, 60)} names no type; the name was left out")
    if not kept:
        del out["type"]
    elif kept != declared:
        out["type"] = kept if isinstance(declared, list) else kept[0]


def _tuples(out: Object) -> None:
    rest = out.pop("additionalItems", None)
    if isinstance(out.get("items"), list):
        tuples = out.pop("items")
        if tuples:
            out.setdefault("prefixItems", tuples)
        if isinstance(rest, (dict, bool)):
            out["items"] = rest


def _bounds(out: Object, path: Path, notes: Notes) -> None:
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        flag = out.get(exclusive)
        if isinstance(flag, bool):
            del out[exclusive]
            if flag and is_number(out.get(bound)):
                out[exclusive] = out.pop(bound)
    for key in COUNTS:
        if isinstance(out.get(key), str):
            count = whole_number(out[key])
            if count is None:
                notes.add((path, key), f"`{key}` is no count and was left out")
                del out[key]
            else:
                out[key] = count


def _with_required(node: Object) -> Object:
    """A property's own `required: true` belongs into the list of the object that holds it."""
    properties = node.get("properties")
    if not isinstance(properties, dict):
        return node
    flagged = [name for name, child in properties.items() if type(child) is dict and child.get("required") is True]
    return {**node, "required": list(dict.fromkeys([*names_of(node.get("required")), *flagged]))} if flagged else node


def _order(out: Object) -> None:
    """Plain JSON Schema has no word for the order of properties but the order itself."""
    order = names_of(out.pop("propertyOrdering", None))
    properties = out.get("properties")
    if order and isinstance(properties, dict):
        first = {name: properties[name] for name in order if name in properties}
        out["properties"] = {**first, **properties}


def _nullable(out: Object) -> Object:
    """The schema that takes null too."""
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
