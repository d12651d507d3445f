"""The keywords of JSON Schema, and iteration over inner schemas.

A property called `type` or `$ref` is a name and not a keyword. So every function goes from schema to schema along the
tables here, and never through the JSON as such.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from toolwire.core.converted_schema import SchemaChange
from toolwire.core.json_values import (
    MAX_DEPTH,
    Json,
    Malformed,
    Object,
    Path,
    encode_text,
    is_number,
    is_too_deep,
    path_keys,
    to_float,
)

SINGLE_SCHEMA_KEYWORDS: Final = frozenset(
    "items additionalProperties additionalItems not if then else contains propertyNames unevaluatedItems"
    " unevaluatedProperties contentSchema".split()
)
"""Keywords whose value is a schema."""
SCHEMA_LIST_KEYWORDS: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems", "items"})
"""Keywords whose value is an array of schemas; `items` may be one in older drafts."""
SCHEMA_MAP_KEYWORDS: Final = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)
"""Keywords whose value is an object of schemas by name."""
NESTING_KEYWORDS: Final = SINGLE_SCHEMA_KEYWORDS | SCHEMA_LIST_KEYWORDS | SCHEMA_MAP_KEYWORDS
UNION_KEYWORDS: Final = ("anyOf", "oneOf")
REFERENCE_KEYWORDS: Final = ("$ref", "$dynamicRef", "$recursiveRef")
DEFINITION_KEYWORDS: Final = ("$defs", "definitions")

TYPE_NAMES: Final = frozenset({"string", "number", "integer", "boolean", "array", "object", "null"})
TYPE_ALIASES: Final[Mapping[str, str]] = {
    "dict": "object", "map": "object", "list": "array", "tuple": "array", "set": "array", "float": "number",
    "double": "number", "int": "integer", "long": "integer", "str": "string", "bool": "boolean", "none": "null",
}  # fmt: skip
"""Type names of programming languages that real schemas use."""
NUMBERED_TYPES: Final[Mapping[int, str]] = dict(
    enumerate(("string", "number", "integer", "boolean", "array", "object", "null"), 1)
)
"""Some Gemini clients send the number of the protobuf enum member."""

ANNOTATION_KEYWORDS: Final = frozenset(
    {"title", "description", "default", "example", "examples", "$comment", "deprecated"}
)
"""Keywords that do not constrain a value."""

KEYWORDS_BY_TYPE: Final[Mapping[str, frozenset[str]]] = {
    "object": frozenset(
        "properties required additionalProperties patternProperties propertyNames minProperties maxProperties"
        " dependentRequired dependentSchemas dependencies unevaluatedProperties propertyOrdering".split()
    ),
    "array": frozenset(
        "items prefixItems additionalItems minItems maxItems uniqueItems contains minContains maxContains"
        " unevaluatedItems".split()
    ),
    "string": frozenset("pattern minLength maxLength contentEncoding contentMediaType contentSchema".split()),
    "number": frozenset("minimum maximum exclusiveMinimum exclusiveMaximum multipleOf".split()),
}
"""Keywords that concern one type only. They tell the type of a schema without `type`."""


class ChangeLog:
    """The changes of one conversion, in order and without repetitions."""

    def __init__(self) -> None:
        self._changes: dict[tuple[Path, str], None] = {}

    def add(self, path: Path, what: str) -> None:
        self._changes[path, what] = None

    def adder_at(self, path: Path) -> Callable[[str], None]:
        """A function that adds changes at this place."""
        return lambda what: self.add(path, what)

    def changes(self) -> tuple[SchemaChange, ...]:
        return tuple(SchemaChange(path, what) for path, what in self._changes)


def short_json(value: Json, limit: int = 300) -> str:
    """A value as JSON, shortened to `limit` characters."""
    try:
        text = encode_text(value)
    except (RecursionError, UnicodeError, TypeError, msgspec.EncodeError):
        return "…"
    return text if len(text) <= limit else text[: limit - 1] + "…"


TYPE_CHECKS: Final[Mapping[str, Callable[[Json], bool]]] = {
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "number": is_number,
    "integer": is_number,
    "null": lambda value: value is None,
}
"""Whether a value has a type; that an `integer` is whole is not checked."""


def refuse_deep_nesting(schema: Json) -> None:
    """Raise `Malformed` for a schema that is too deep for recursive conversions."""
    if is_too_deep(schema):
        raise Malformed(None, f"the schema is nested too deeply; {MAX_DEPTH} levels are the limit")


def inner_schemas(node: Object, path: Path = None) -> Iterator[tuple[Json, Path]]:
    """The schemas directly inside a schema, with their paths."""
    for key, value in node.items():
        if key not in NESTING_KEYWORDS:
            continue
        if isinstance(value, dict) and key in SCHEMA_MAP_KEYWORDS:
            for name, child in value.items():
                yield child, ((path, key), name)
        elif isinstance(value, list) and key in SCHEMA_LIST_KEYWORDS:
            for number, child in enumerate(value):
                yield child, ((path, key), number)
        elif key in SINGLE_SCHEMA_KEYWORDS:
            yield value, (path, key)


def holding_keyword(path: Path) -> str:
    """The keyword that holds the schema at this path: `properties` for a property, whatever its name is. A property may
    be called `items` or `$defs`, so the keys alone do not tell."""
    keys = path_keys(path)[::-1]
    keyword: str | int = ""
    while keys:
        keyword = keys.pop()
        if keys and (keyword in SCHEMA_MAP_KEYWORDS or isinstance(keys[-1], int)):
            keys.pop()  # the name or the number of a schema
    return str(keyword)


def walk_schemas(schema: Json) -> Iterator[tuple[Object, Path]]:
    """This schema and all schemas inside it, in the order in which they are written."""
    todo: list[tuple[Json, Path]] = [(schema, None)]
    while todo:
        node, path = todo.pop()
        if isinstance(node, dict):
            yield node, path
            todo += reversed([*inner_schemas(node, path)])


def paths_by_identity(schema: Json) -> dict[int, Path]:
    """The path of each inner schema by its `id()`, so that it is still known after a conversion has moved it."""
    return {id(node): path for node, path in walk_schemas(schema)}


def all_schemas_pass(schema: Json, passes: Callable[[Object], bool]) -> bool:
    """Whether this schema and all inner schemas pass: the quick check before a conversion, without recursion."""
    level = [schema]
    for _ in range(MAX_DEPTH):
        deeper: list[Json] = []
        for node in level:
            if node.__class__ is dict:
                if not passes(node):
                    return False
                if not NESTING_KEYWORDS.isdisjoint(node):
                    deeper += [child for child, _ in inner_schemas(node)]
        if not deeper:
            return True
        level = deeper
    raise Malformed(None, f"the schema is nested too deeply; {MAX_DEPTH} levels are the limit")


SchemaConverter: TypeAlias = Callable[[Json, Path], Json]


def convert_inner_schemas(node: Object, path: Path, convert: SchemaConverter) -> Object:
    """The schema with all directly inner schemas converted; the same object if none of them changed."""
    out = node
    if NESTING_KEYWORDS.isdisjoint(node):
        return out
    for key, value in node.items():
        if key not in NESTING_KEYWORDS:
            continue
        if isinstance(value, dict) and key in SCHEMA_MAP_KEYWORDS:
            converted = _convert_children(value, value.items(), (path, key), convert)
        elif isinstance(value, list) and key in SCHEMA_LIST_KEYWORDS:
            converted = _convert_children(value, enumerate(value), (path, key), convert)
        elif isinstance(value, (dict, bool)) and key in SINGLE_SCHEMA_KEYWORDS:
            converted = convert(value, (path, key))
        else:
            continue
        if converted is not value:
            out = dict(node) if out is node else out
            out[key] = converted
    return out


def _convert_children(holder: Json, children: Iterable[tuple[Any, Json]], path: Path, convert: SchemaConverter) -> Json:
    out = holder
    for step, child in children:
        if isinstance(child, (dict, bool)):
            made = convert(child, (path, step))
            if made is not child:
                out = holder.copy() if out is holder else out
                out[step] = made
    return out


def convert_schemas(schema: Json, convert: Callable[[Object, Path], Json]) -> Json:
    """The schema with itself and all schemas inside it converted, the inner ones first."""

    def convert_one(node: Json, path: Path) -> Json:
        return convert(convert_inner_schemas(node, path, convert_one), path) if isinstance(node, dict) else node

    return convert_one(schema, None)


def list_or_empty(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def object_or_empty(value: Json) -> Object:
    return value if isinstance(value, dict) else {}


def type_name(value: Json) -> str | None:
    """The standard name of a type in any spelling; None if it is unknown."""
    if isinstance(value, str):
        name = value.lower()
        return name if name in TYPE_NAMES else TYPE_ALIASES.get(name)
    if isinstance(value, int) and not isinstance(value, bool):
        return NUMBERED_TYPES.get(value)
    return None


def listed_values(node: Object) -> list[Json] | None:
    """The only values that a schema allows, by its `enum` or `const`; None if it has neither."""
    values = node["enum"] if "enum" in node else [node["const"]] if "const" in node else None
    return values if isinstance(values, list) else None


def guess_type(node: Object) -> str | None:
    """The type of a schema without `type`, by its keywords."""
    for name, keywords in KEYWORDS_BY_TYPE.items():
        if not keywords.isdisjoint(node):
            return name
    return None


COUNT_KEYWORDS: Final = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")


def read_count(value: Json) -> int | None:
    """A count, also as a string, which Gemini's API allows."""
    if isinstance(value, str):
        return int(value) if value.isascii() and value.isdigit() and len(value) < 19 else None
    if not is_number(value):
        return None
    number: float = value if isinstance(value, int) else to_float(value)
    return int(number) if number >= 0 and (isinstance(number, int) or number.is_integer()) else None


# --- constraints as sentences ---


def _object_sentence(form: str) -> Callable[[Json], str]:
    return lambda value: form.format(short_json(value)) if isinstance(value, dict) and value else ""


_SENTENCES: Final[Mapping[str, Callable[[Json], str]]] = {
    "exclusiveMinimum": lambda value: f"Greater than {short_json(value)}." if is_number(value) else "",
    "exclusiveMaximum": lambda value: f"Less than {short_json(value)}." if is_number(value) else "",
    "multipleOf": lambda value: f"A multiple of {short_json(value)}." if is_number(value) else "",
    "uniqueItems": lambda value: "All items are different." if value is True else "",
    "contentEncoding": lambda value: f"Encoded as {value}." if isinstance(value, str) else "",
    "contentMediaType": lambda value: f"Of media type {value}." if isinstance(value, str) else "",
    "additionalProperties": _object_sentence("Other keys are free; each of their values matches {}."),
    "patternProperties": _object_sentence("Keys that match a pattern have these values: {}."),
    "propertyNames": _object_sentence("Keys match {}."),
    "dependentRequired": _object_sentence("Keys that demand others: {}."),
    "not": _object_sentence("Must not match {}."),
    "deprecated": lambda value: "Deprecated." if value is True else "",
}
_BOUND_SENTENCES: Final[Mapping[str, str]] = {
    "minimum": "At least {}.", "maximum": "At most {}.",
    "minLength": "At least {} characters.", "maxLength": "At most {} characters.",
    "minItems": "At least {} items.", "maxItems": "At most {} items.",
    "minProperties": "At least {} keys.", "maxProperties": "At most {} keys.",
    "pattern": "Matches the pattern {}.", "format": "In the format {}.",
}  # fmt: skip
_TYPELESS_KEYWORDS: Final = frozenset({"not", "deprecated"})


def keyword_sentence(key: str, value: Json) -> str:
    """The constraint of one keyword as a sentence; "" if there is none."""
    say = _SENTENCES.get(key)
    if say is not None:
        return say(value)
    form = _BOUND_SENTENCES.get(key)
    if form is None or not (is_number(value) or isinstance(value, str)):
        return ""
    return form.format(value if isinstance(value, str) else short_json(value))


def keyword_sentences(flat: Object, kind: str) -> Iterator[tuple[str, str]]:
    """The keywords of a node that concern this type and that Gemini's subset lacks, each with its sentence."""
    if _SENTENCES.keys().isdisjoint(flat):
        return
    family = KEYWORDS_BY_TYPE.get("number" if kind == "integer" else kind, frozenset())
    for key, say in _SENTENCES.items():
        if key in flat and (key in family or key in _TYPELESS_KEYWORDS):
            value = flat[key]
            whole = kind == "integer" and isinstance(value, int) and key.startswith("exclusive")
            text = "" if whole and not isinstance(value, bool) else say(value)
            if text:
                yield key, text


def allowed_value_sentences(flat: Object, kind: str) -> Iterator[tuple[str, str]]:
    """An `enum` that Gemini's subset does not allow, as a sentence: numbers, booleans, or with an empty string."""
    key = "enum" if "enum" in flat else "const"
    values = listed_values(flat)
    if values is None or kind in ("", "null"):
        return
    is_fitting = TYPE_CHECKS[kind]
    fitting = [one for one in values if is_fitting(one)] or [one for one in values if one is not None]
    every_flag = kind == "boolean" and len({value for value in values if isinstance(value, bool)}) == 2
    if not fitting or every_flag or (kind == "string" and "" not in fitting):
        return
    listed = ", ".join(short_json(value, 100) for value in fitting[:100]) + (", …" if len(fitting) > 100 else "")
    yield key, f"Always {listed}." if len(fitting) == 1 else f"One of: {listed}."


def append_sentences(description: Json, added: list[str]) -> str:
    """A description, if there is one, with sentences added at its end."""
    text = description.rstrip() if isinstance(description, str) else ""
    if text and text[-1] not in ".!?:;":
        text += "."
    return " ".join(([text] if text else []) + added)
