"""What a JSON Schema asks for, as far as a repair needs it: `$ref`, `allOf`, `anyOf` and `oneOf` are followed."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from toolwire.core.json_values import Json, Object
from toolwire.schema.combine import ReferenceLookup, string_items, type_names
from toolwire.schema.keywords import REFERENCE_KEYWORDS, TYPE_CHECKS, TYPE_NAMES, listed_values

ALL_TYPES: Final = frozenset(TYPE_NAMES)
_MAX_DEPTH: Final = 16
"""References and alternatives inside of each other that are followed."""
_MAX_SCHEMAS: Final = 500


class Shape(Struct, frozen=True):
    """The values that a schema allows, over all of its alternatives."""

    types: frozenset[str] = ALL_TYPES
    texts: tuple[str, ...] | None = None
    """The only strings that are allowed; None for any."""
    properties: Object = {}
    """The schemas of known properties."""
    required: frozenset[str] = frozenset()
    additional: Json = True
    """The schema of all other properties; true if there is none."""
    items: Json = True
    first_items: tuple[Json, ...] = ()
    """The schemas of the first items (`prefixItems`)."""

    def item_schema(self, number: int) -> Json:
        return self.first_items[number] if number < len(self.first_items) else self.items


ANY_SHAPE: Final = Shape()


class ShapeReader:
    """Reads the shapes of the schemas inside of one schema."""

    def __init__(self, root: Object) -> None:
        self._lookup = ReferenceLookup(root)
        self._known: dict[int, tuple[Json, Shape]] = {}
        """By the identity of the schema, which is kept so that no other gets it."""
        self._schemas_left = _MAX_SCHEMAS

    def read_shape(self, schema: Json) -> Shape:
        known = self._known.get(id(schema))
        if known is None:
            self._schemas_left = _MAX_SCHEMAS
            known = self._known[id(schema)] = schema, self._read(schema, 0)
        return known[1]

    def _read(self, schema: Json, depth: int) -> Shape:
        if not isinstance(schema, dict) or depth > _MAX_DEPTH or not self._schemas_left:
            return ANY_SHAPE
        self._schemas_left -= 1
        shape = _read_keywords(schema)
        for key in REFERENCE_KEYWORDS:
            target = self._lookup.find_target(schema[key]) if key in schema else None
            if target is not None:
                shape = _intersect(shape, self._read(target[0], depth + 1))
        for inner in _schemas_under(schema, "allOf"):
            shape = _intersect(shape, self._read(inner, depth + 1))
        for key in ("anyOf", "oneOf"):
            options = [self._read(inner, depth + 1) for inner in _schemas_under(schema, key)]
            if options:
                shape = _intersect(shape, _unite(options))
        return shape


def _schemas_under(schema: Object, key: str) -> list[Json]:
    found = schema.get(key)
    return found if isinstance(found, list) else []


def _read_keywords(schema: Object) -> Shape:
    """The shape by the keywords of this schema alone."""
    listed = listed_values(schema)
    types = frozenset(type_names(schema.get("type"))) or ALL_TYPES
    if types == ALL_TYPES and listed:
        types = frozenset(name for name, has_type in TYPE_CHECKS.items() if any(map(has_type, listed)))
    if schema.get("nullable") is True:
        types |= {"null"}
    properties, first_items = schema.get("properties"), schema.get("prefixItems")
    return Shape(
        types,
        None if listed is None else tuple(string_items(listed)),
        properties if isinstance(properties, dict) else {},
        frozenset(string_items(schema.get("required"))),
        schema.get("additionalProperties", True),
        schema.get("items", True),
        tuple(first_items) if isinstance(first_items, list) else (),
    )


def _intersect(one: Shape, other: Shape) -> Shape:
    if one is ANY_SHAPE or other is ANY_SHAPE:
        return other if one is ANY_SHAPE else one
    texts = one.texts if other.texts is None else other.texts
    if one.texts is not None and other.texts is not None:
        texts = tuple(text for text in one.texts if text in other.texts)
    return Shape(
        one.types & other.types,
        texts,
        _join_schemas([one.properties, other.properties], "allOf"),
        one.required | other.required,
        other.additional if one.additional is True else one.additional,
        other.items if one.items is True else one.items,
        one.first_items or other.first_items,
    )


def _unite(options: list[Shape]) -> Shape:
    if len(options) == 1:
        return options[0]
    with_texts = [one for one in options if "string" in one.types]
    with_items = [one for one in options if "array" in one.types]
    objects = [one for one in options if "object" in one.types] or options
    texts = [one.texts for one in with_texts]
    items = [one.items for one in with_items]
    return Shape(
        frozenset().union(*(one.types for one in options)),
        None if None in texts or not texts else tuple(text for some in texts if some for text in some),
        _join_schemas([one.properties for one in objects], "anyOf"),
        frozenset.intersection(*(one.required for one in objects)),
        objects[0].additional if len(objects) == 1 else True,
        items[0] if len(items) == 1 else True if True in items or not items else {"anyOf": items},
        with_items[0].first_items if len(with_items) == 1 else (),
    )


def _join_schemas(maps: list[Object], keyword: str) -> Object:
    """One map of properties; a property that several have gets all of its schemas, under this keyword."""
    found: dict[str, list[Json]] = {}
    for properties in maps:
        for name, schema in properties.items():
            schemas = found.setdefault(name, [])
            if schema not in schemas:
                schemas.append(schema)
    return {name: schemas[0] if len(schemas) == 1 else {keyword: schemas} for name, schemas in found.items()}
