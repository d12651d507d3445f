"""What all dialects of JSON Schema share: where schemas stand inside a schema, and how a conversion reports itself.

A key is a keyword only at a keyword's place: a property called `type` or `$ref` is a name, never a keyword. So every
walk goes from schema to schema along the tables here, and never blindly through the JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Raw, Struct

from toolwire.core.ir import EMPTY_MAPPING
from toolwire.core.json_values import (
    MAX_DEPTH,
    Json,
    Malformed,
    Object,
    Path,
    encode_text,
    is_too_deep,
    json_pointer,
    to_float,
)

SINGLE_SCHEMA_KEYWORDS: Final = frozenset(
    "items additionalProperties additionalItems not if then else contains propertyNames unevaluatedItems"
    " unevaluatedProperties contentSchema".split()
)
"""Keywords whose value is a schema."""
SCHEMA_LIST_KEYWORDS: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems", "items"})
"""Keywords whose value is an array of schemas; `items` was one in older drafts."""
SCHEMA_MAP_KEYWORDS: Final = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)
"""Keywords whose value holds schemas by name."""
NESTING_KEYWORDS: Final = SINGLE_SCHEMA_KEYWORDS | SCHEMA_LIST_KEYWORDS | SCHEMA_MAP_KEYWORDS
UNION_KEYWORDS: Final = ("anyOf", "oneOf")
REFERENCE_KEYWORDS: Final = ("$ref", "$dynamicRef", "$recursiveRef")
DEFINITION_KEYWORDS: Final = ("$defs", "definitions")

TYPE_NAMES: Final = frozenset({"string", "number", "integer", "boolean", "array", "object", "null"})
TYPE_ALIASES: Final[Mapping[str, str]] = {
    "dict": "object", "map": "object", "list": "array", "tuple": "array", "set": "array", "float": "number",
    "double": "number", "int": "integer", "long": "integer", "str": "string", "bool": "boolean", "none": "null",
}  # fmt: skip
"""Names of programming languages' types that schemas in the wild use."""
NUMBERED_TYPES: Final[Mapping[int, str]] = dict(
    enumerate(("string", "number", "integer", "boolean", "array", "object", "null"), 1)
)
"""Some clients send the number of an enum's member."""

ANNOTATION_KEYWORDS: Final = frozenset(
    {"title", "description", "default", "example", "examples", "$comment", "deprecated"}
)
"""Keywords that demand nothing of a value."""

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
"""Keywords that speak of one type only; a schema that names no type is guessed by them."""


class SchemaChange(Struct, frozen=True):
    """One thing that a conversion did, or found: where in the schema that was given, and what."""

    path: Path
    what: str

    @property
    def pointer(self) -> str:
        return json_pointer(self.path)

    def path_from(self, root: Path) -> Path:
        """The same place, seen from the body that holds the schema at `root`."""
        keys = []
        path = self.path
        while path is not None:
            path, key = path
            keys.append(key)
        for key in reversed(keys):
            root = (root, key)
        return root


class ConvertedSchema(Struct, frozen=True):
    """A schema in another dialect. Nothing to do: the very object that was given, and no changes. Exact respellings
    (`string` as `STRING`) are no changes. `renames` and `wrapped` say how arguments go back: see `restored`."""

    schema: Json
    changes: tuple[SchemaChange, ...] = ()
    renames: Mapping[str, str] = EMPTY_MAPPING
    """Property names as written, each with the name it had."""
    wrapper_property: str = ""
    """The property that holds the whole value, when the schema's own root was not an object."""


class ChangeLog:
    """The changes of one conversion: each place and sentence once, in order."""

    __slots__ = ("_changes",)

    def __init__(self) -> None:
        self._changes: dict[tuple[Path, str], SchemaChange] = {}

    def add(self, path: Path, what: str) -> None:
        self._changes.setdefault((path, what), SchemaChange(path, what))

    def adder_at(self, path: Path) -> Callable[[str], None]:
        """Adds to one place."""
        return lambda what: self.add(path, what)

    def changes(self) -> tuple[SchemaChange, ...]:
        return tuple(self._changes.values())


def short_json(value: Json, limit: int = 300) -> str:
    """A value as short JSON, for a sentence."""
    try:
        text = encode_text(value)
    except (RecursionError, UnicodeError, TypeError, msgspec.EncodeError):
        return "…"
    return text if len(text) <= limit else text[: limit - 1] + "…"


def is_number(value: Json) -> bool:
    return isinstance(value, (int, float, Raw)) and not isinstance(value, bool)


def refuse_deep_nesting(schema: Json) -> None:
    """Conversions descend by recursion, so absurd nesting is refused before they start."""
    if is_too_deep(schema):
        raise Malformed(None, f"the schema is nested too deeply; {MAX_DEPTH} levels are the limit")


def inner_schemas(node: Object, path: Path = None) -> Iterator[tuple[Json, Path]]:
    """The values at the places of schemas directly inside a schema, with their paths."""
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


def paths_by_identity(schema: Json) -> dict[int, Path]:
    """Where each schema stands, by its identity: also when a conversion has put it beside others."""
    found: dict[int, Path] = {}
    todo: list[tuple[Json, Path]] = [(schema, None)]
    while todo:
        node, path = todo.pop()
        if isinstance(node, dict) and id(node) not in found:
            found[id(node)] = path
            todo.extend(inner_schemas(node, path))
    return found


def all_schemas_pass(schema: Json, passes: Callable[[Object], bool]) -> bool:
    """Does every schema inside this one, itself included, pass? The quick look before any conversion: no recursion."""
    level = [schema]
    for _ in range(MAX_DEPTH):
        deeper: list[Json] = []
        for node in level:
            if node.__class__ is dict:
                if not passes(node):
                    return False
                if not NESTING_KEYWORDS.isdisjoint(node):
                    _add_inner_schemas(node, deeper)
        if not deeper:
            return True
        level = deeper
    raise Malformed(None, f"the schema is nested too deeply; {MAX_DEPTH} levels are the limit")


def _add_inner_schemas(node: Object, deeper: list[Json]) -> None:
    for key, value in node.items():
        if key in NESTING_KEYWORDS:
            if value.__class__ is dict:
                if key in SCHEMA_MAP_KEYWORDS:
                    deeper.extend(value.values())
                elif key in SINGLE_SCHEMA_KEYWORDS:
                    deeper.append(value)
            elif value.__class__ is list and key in SCHEMA_LIST_KEYWORDS:
                deeper.extend(value)


SchemaConverter: TypeAlias = Callable[[Json, Path], Json]


def convert_inner_schemas(node: Object, path: Path, convert: SchemaConverter) -> Object:
    """The schema with every schema directly inside it converted; the same object when none of them changed."""
    out = node
    for key, value in node.items():
        if key not in NESTING_KEYWORDS:
            continue
        if isinstance(value, dict) and key in SCHEMA_MAP_KEYWORDS:
            fresh = _convert_children(value, value.items(), (path, key), convert)
        elif isinstance(value, list) and key in SCHEMA_LIST_KEYWORDS:
            fresh = _convert_children(value, enumerate(value), (path, key), convert)
        elif isinstance(value, (dict, bool)) and key in SINGLE_SCHEMA_KEYWORDS:
            fresh = convert(value, (path, key))
        else:
            continue
        if fresh is not value:
            out = dict(node) if out is node else out
            out[key] = fresh
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


def type_name(value: Json) -> str | None:
    """One type's name in the plain spelling, whatever the spelling; None for a name that nobody knows."""
    if isinstance(value, str):
        name = value.lower()
        return name if name in TYPE_NAMES else TYPE_ALIASES.get(name)
    if isinstance(value, int) and not isinstance(value, bool):
        return NUMBERED_TYPES.get(value)
    return None


def guess_type(node: Object) -> str | None:
    """The type that a schema without `type` speaks of."""
    for name, keywords in KEYWORDS_BY_TYPE.items():
        if not keywords.isdisjoint(node):
            return name
    return None


COUNT_KEYWORDS: Final = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")


def read_count(value: Json) -> int | None:
    """A count; the wire of this dialect also spells it as a string."""
    if isinstance(value, str):
        return int(value) if value.isascii() and value.isdigit() and len(value) < 19 else None
    if not is_number(value):
        return None
    if isinstance(value, int):
        return value if value >= 0 else None
    number = to_float(value)
    return int(number) if number >= 0 and number.is_integer() else None
