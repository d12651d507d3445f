"""The closed subset's keywords by type, what their values must be, and how a schema is seen to be in it already."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from toolwire.schema.combine import type_names
from toolwire.schema.renames import IDENTIFIER
from toolwire.schema.words import KEYWORDS_OF, guessed_type, is_number
from toolwire.wire import Json, Object, as_float

_WORDS: Final = frozenset({"type", "title", "description", "nullable", "default", "example"})
KEYS: Final[Mapping[str, frozenset[str]]] = {
    "STRING": _WORDS | {"format", "enum", "minLength", "maxLength", "pattern"},
    "NUMBER": _WORDS | {"format", "minimum", "maximum"},
    "INTEGER": _WORDS | {"format", "minimum", "maximum"},
    "BOOLEAN": _WORDS,
    "NULL": _WORDS,
    "ARRAY": _WORDS | {"items", "minItems", "maxItems"},
    "OBJECT": _WORDS | {"properties", "required", "minProperties", "maxProperties", "propertyOrdering"},
}
"""What each type may have beside it; the server refuses a keyword of another type."""
COUNTS: Final = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
SILENT: Final = (
    frozenset().union(*KEYWORDS_OF.values())
    - {"additionalProperties", "patternProperties", "propertyNames", "dependentRequired", "dependentSchemas"}
    - {"dependencies", "unevaluatedProperties", "unevaluatedItems", "contains", "minContains", "maxContains"}
    - {"contentEncoding", "contentMediaType", "contentSchema", "multipleOf", "uniqueItems"}
) | {"type", "title", "description", "nullable", "default", "example", "examples", "format", "enum", "const"} | {
    "anyOf", "oneOf", "allOf", "$ref", "$dynamicRef", "$recursiveRef", "$defs", "definitions",
}  # fmt: skip
"""Keywords that the conversion takes up itself, or that say nothing beside another type."""

_ORDER: Final = (
    "type format title description nullable enum items minItems maxItems properties required minProperties"
    " maxProperties propertyOrdering minimum maximum minLength maxLength pattern example default".split()
)
PRICE_OF_ANYTHING: Final = 400


def ordered(node: Object) -> Object:
    """The same keywords always in the same order, whatever the order was in the schema that was given."""
    return {key: node[key] for key in _ORDER if key in node}


def anything() -> Object:
    """A schema that takes any value, as far as the dialect can say that: it wants a type everywhere."""
    plain: list[Object] = [{"type": name} for name in ("STRING", "NUMBER", "BOOLEAN", "OBJECT")]
    inner: list[Object] = [{"type": "STRING", "nullable": True}, *({"type": one["type"]} for one in plain[1:])]
    plain[0]["nullable"] = True
    return {"anyOf": [*plain, {"type": "ARRAY", "items": {"anyOf": inner}}]}


# --- what a plain schema speaks of ----------------------------------------------------------------------------------

_NUMBER_FORMATS: Final = {"int32": "integer", "int64": "integer", "float": "number", "double": "number"}


def kind_of_value(value: Json) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if is_number(value):
        return "integer" if isinstance(value, int) else "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def kinds_of(flat: Object) -> tuple[list[str], bool]:
    """The types that a node takes, null apart; none at all when it takes anything."""
    kinds = type_names(flat.get("type"))
    nullable = flat.get("nullable") is True
    values = flat.get("enum") if "enum" in flat else [flat["const"]] if "const" in flat else []
    if not kinds and isinstance(values, list) and values:
        kinds = list(dict.fromkeys(kind_of_value(value) for value in values))
        kinds = [kind for kind in kinds if kind != "integer" or "number" not in kinds]
    if not kinds:
        guess = guessed_type(flat)
        form = flat.get("format")
        if guess is None and isinstance(form, str):
            guess = _NUMBER_FORMATS.get(form, "string")
        kinds = [guess] if guess else []
        nullable = nullable and bool(kinds)
    return [kind for kind in kinds if kind != "null"], nullable or "null" in kinds


def whole_number(value: Json) -> int | None:
    """A count; the wire of this dialect also spells it as a string."""
    if isinstance(value, str):
        return int(value) if value.isascii() and value.isdigit() and len(value) < 19 else None
    if not is_number(value):
        return None
    if isinstance(value, int):
        return value if value >= 0 else None
    number = as_float(value)
    return int(number) if number >= 0 and number.is_integer() else None


def accepts(node: Object, value: Json) -> bool:
    """May this value stand as a default of this node?"""
    kind = kind_of_value(value).upper()
    if kind == "NULL":
        return node.get("nullable") is True or node["type"] == "NULL"
    return bool(node["type"] == kind) or (kind == "INTEGER" and node["type"] == "NUMBER")


# --- is it in the subset already? -----------------------------------------------------------------------------------


def _is_text(value: Json) -> bool:
    return value.__class__ is str


def _is_count(value: Json) -> bool:
    return value.__class__ is int and value >= 0


def _is_values(value: Json) -> bool:
    return value.__class__ is list and bool(value) and all(item.__class__ is str and item for item in value)


def _is_names(value: Json) -> bool:
    return value.__class__ is list and bool(value) and all(item.__class__ is str for item in value)


def _is_properties(value: Json) -> bool:
    return (
        value.__class__ is dict
        and all(child.__class__ is dict for child in value.values())
        and all(map(IDENTIFIER.fullmatch, value))
    )


_CHECKS: Final[Mapping[str, Callable[[Json], bool]]] = {
    "format": _is_text,
    "title": _is_text,
    "description": _is_text,
    "pattern": _is_text,
    "nullable": lambda value: value.__class__ is bool,
    "enum": _is_values,
    "items": lambda value: value.__class__ is dict,
    "properties": _is_properties,
    "required": _is_names,
    "propertyOrdering": _is_names,
    "minimum": is_number,
    "maximum": is_number,
    **dict.fromkeys(COUNTS, _is_count),
}


def conforms(node: Object) -> bool:
    """Is this one schema, without those inside it, as the conversion would write it?"""
    kind = node.get("type")
    if kind is None:
        branches = node.get("anyOf")
        return (
            len(node) == 1
            and branches.__class__ is list
            and len(branches) > 1
            and all(branch.__class__ is dict and "anyOf" not in branch for branch in branches)
        )
    keys = KEYS.get(kind) if kind.__class__ is str else None
    if keys is None or not keys.issuperset(node):
        return False
    for key, value in node.items():
        check = _CHECKS.get(key)
        if check is not None and not check(value):
            return False
    if kind == "OBJECT":
        properties = node.get("properties", ())
        return all(name in properties for key in ("required", "propertyOrdering") for name in node.get(key, ()))
    if kind == "STRING":
        return node.get("format") != "enum" or "enum" in node
    return kind != "ARRAY" or "items" in node


_LEAVES: Final = {kind.lower(): kind for kind in ("STRING", "NUMBER", "INTEGER", "BOOLEAN")}


def simple(node: Object) -> Object | None:
    """A schema without others inside that only its type's spelling keeps out of the subset, as most are."""
    kind = node.get("type")
    upper = _LEAVES.get(kind) if kind.__class__ is str else None
    if upper is None or not KEYS[upper].issuperset(node):
        return None
    made = {**node, "type": upper}
    return ordered(made) if conforms(made) else None
