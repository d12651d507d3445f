"""Check a value, such as the arguments of a call, against a JSON Schema (2020-12). `format` is not checked.

Unknown keywords and invalid parts of a schema are ignored, so that a call is not refused because of a mistake in the
tool's schema. Decision 0003 says why this is not done by a library.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from math import inf
from typing import Final

from msgspec import Raw

from toolwire.core.json_values import (
    MAX_DEPTH,
    Json,
    Number,
    Object,
    Path,
    describe_json_type,
    is_too_deep,
    json_pointer,
    to_float,
)
from toolwire.schema.combine import ReferenceLookup, canonical_key
from toolwire.schema.keywords import REFERENCE_KEYWORDS, is_number, short_json

Mismatch = tuple[Path, str]
_TYPE_PHRASES: Final[Mapping[str, str]] = {
    "string": "a string", "number": "a number", "integer": "a whole number", "boolean": "true or false",
    "array": "an array", "object": "an object", "null": "null",
}  # fmt: skip


def value_problems(value: Json, schema: Json) -> list[str]:
    """Why the value does not match the schema: a text for each problem, with its JSON Pointer; empty if it matches."""
    if is_too_deep(value):
        return [f"nested too deeply; {MAX_DEPTH} levels are the limit"]
    mismatches = _Validator(schema).find_mismatches(value, schema, None, 0)
    return list(dict.fromkeys(f"{json_pointer(path) or 'the arguments'}: {what}" for path, what in mismatches))


def fix_whole_numbers(value: Json, schema: Json) -> tuple[Json, bool]:
    """The value with `2.0` as `2` where the schema demands an integer, and whether it changed."""
    fixed = _Validator(schema).fix_whole_numbers(value, schema, 0)
    return fixed, fixed is not value


class _Validator:
    def __init__(self, root: Json) -> None:
        self.lookup = ReferenceLookup(root)

    def find_mismatches(self, value: Json, schema: Json, path: Path, depth: int) -> Iterator[Mismatch]:
        if schema is False:
            yield path, "no value is allowed here"
        if not isinstance(schema, dict) or depth > MAX_DEPTH:
            return
        for key in REFERENCE_KEYWORDS:
            found = self.lookup.find_target(schema[key]) if key in schema else None
            if found is not None:
                yield from self.find_mismatches(value, found[0], path, depth + 1)
        for key, check in _KEYWORD_CHECKS.items():
            if key in schema:
                yield from check(self, value, schema, path, depth)

    def is_valid(self, value: Json, schema: Json, depth: int) -> bool:
        return next(self.find_mismatches(value, schema, None, depth + 1), None) is None

    # --- whole numbers ---

    def fix_whole_numbers(self, value: Json, schema: Json, depth: int) -> Json:
        if not isinstance(schema, dict) or depth > MAX_DEPTH:
            return value
        for inner in self._applicable_schemas(value, schema, depth):
            value = self.fix_whole_numbers(value, inner, depth + 1)
        if isinstance(value, (float, Raw)):
            types = _declared_types(schema)
            return (
                int(_number_value(value))
                if "integer" in types and "number" not in types and _is_whole(value)
                else value
            )
        if isinstance(value, dict):
            return self._fix_object(value, schema, depth)
        items = schema.get("items")
        if isinstance(value, list) and isinstance(items, dict):
            made = [self.fix_whole_numbers(item, items, depth + 1) for item in value]
            return value if all(new is old for new, old in zip(made, value, strict=True)) else made
        return value

    def _fix_object(self, value: Object, schema: Object, depth: int) -> Json:
        known, others = _object_or_empty(schema.get("properties")), schema.get("additionalProperties")
        made = {name: self.fix_whole_numbers(item, known.get(name, others), depth + 1) for name, item in value.items()}
        return value if all(made[name] is value[name] for name in value) else made

    def _applicable_schemas(self, value: Json, schema: Object, depth: int) -> Iterator[Json]:
        """The schemas inside this one that apply to the same value; of alternatives, the one that it matches."""
        for key in REFERENCE_KEYWORDS:
            found = self.lookup.find_target(schema[key]) if key in schema else None
            if found is not None:
                yield found[0]
        yield from _list_or_empty(schema.get("allOf"))
        for key in ("anyOf", "oneOf"):
            fitting = [one for one in _list_or_empty(schema.get(key)) if self.is_valid(value, one, depth)]
            yield from fitting[:1]


# --- checks of one keyword ---

Check = Callable[[_Validator, Json, Object, Path, int], Iterator[Mismatch]]


def _list_or_empty(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _object_or_empty(value: Json) -> Object:
    return value if isinstance(value, dict) else {}


def _declared_types(schema: Object) -> list[str]:
    kind = schema.get("type")
    return [kind] if isinstance(kind, str) else [one for one in _list_or_empty(kind) if isinstance(one, str)]


def _number_value(value: Number) -> float:
    """Integers stay integers, because they may be larger than any float."""
    return value if isinstance(value, int) else to_float(value)


def _is_whole(value: Json) -> bool:
    return isinstance(value, int) or to_float(value).is_integer()


def _has_type(value: Json, kind: str) -> bool:
    if kind == "integer":
        return is_number(value) and _is_whole(value)
    if kind == "number":
        return is_number(value)
    if kind == "null":
        return value is None
    wanted = {"string": str, "boolean": bool, "array": list, "object": dict}.get(kind)
    return wanted is None or isinstance(value, wanted)


def _check_type(validator: _Validator, value: Json, schema: Object, path: Path, depth: int) -> Iterator[Mismatch]:
    types = _declared_types(schema)
    if types and not any(_has_type(value, kind) for kind in types):
        wanted = " or ".join(_TYPE_PHRASES.get(kind, kind) for kind in types)
        yield path, f"expected {wanted}, got {describe_json_type(value)}"


def _is_equal(one: Json, other: Json) -> bool:
    if is_number(one) and is_number(other):
        return _number_value(one) == _number_value(other)
    return canonical_key(one) == canonical_key(other) if type(one) is type(other) else False


def _check_enum(validator: _Validator, value: Json, schema: Object, path: Path, depth: int) -> Iterator[Mismatch]:
    allowed = _list_or_empty(schema["enum"])
    if allowed and not any(_is_equal(value, one) for one in allowed):
        listed = ", ".join(short_json(one, 40) for one in allowed[:10])
        yield path, f"{short_json(value, 40)} is not one of {listed}{', …' if len(allowed) > 10 else ''}"


def _check_const(validator: _Validator, value: Json, schema: Object, path: Path, depth: int) -> Iterator[Mismatch]:
    if not _is_equal(value, schema["const"]):
        yield path, f"expected {short_json(schema['const'], 40)}, got {short_json(value, 40)}"


def _make_bound_check(word: str, holds: Callable[[float, float], bool]) -> Callable[[str], Check]:
    def for_keyword(key: str) -> Check:
        def check(validator: _Validator, value: Json, schema: Object, path: Path, depth: int) -> Iterator[Mismatch]:
            limit = schema[key]
            if is_number(value) and is_number(limit) and not holds(_number_value(value), _number_value(limit)):
                yield path, f"{short_json(value, 40)} is not {word} {short_json(limit, 40)}"

        return check

    return for_keyword


def _is_multiple(value: float, factor: float) -> bool:
    if factor <= 0 or abs(value) == inf:
        return True
    if isinstance(value, int) and isinstance(factor, int):
        return value % factor == 0
    parts = value / factor
    return abs(parts) == inf or abs(parts - round(parts)) <= 1e-9 * max(1.0, abs(parts))


def _make_size_check(kind: type[str] | type[list[Json]] | type[Object], key: str, is_maximum: bool, word: str) -> Check:
    def check(validator: _Validator, value: Json, schema: Object, path: Path, depth: int) -> Iterator[Mismatch]:
        limit = schema[key]
        if isinstance(value, kind) and is_number(limit):
            size, wanted = len(value), _number_value(limit)
            if size > wanted if is_maximum else size < wanted:
                yield path, f"{size:,} {word} are {'more' if is_maximum else 'fewer'} than {short_json(limit, 20)}"

    return check


def _compile_pattern(pattern: str) -> re.Pattern[str] | None:
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError, Warning):
        return None


def _check_pattern(validator: _Validator, value: Json, schema: Object, path: Path, depth: int) -> Iterator[Mismatch]:
    pattern = schema["pattern"]
    shape = _compile_pattern(pattern) if isinstance(pattern, str) else None
    if isinstance(value, str) and shape is not None and not shape.search(value):
        yield path, f"{short_json(value, 60)} does not match {short_json(pattern, 60)}"


def _check_unique_items(
    validator: _Validator, value: Json, schema: Object, path: Path, depth: int
) -> Iterator[Mismatch]:
    items = _list_or_empty(value) if schema["uniqueItems"] is True else []
    if any(_is_equal(one, other) for at, one in enumerate(items) for other in items[:at]):
        yield path, "an item is repeated"


def _check_required(validator: _Validator, value: Json, schema: Object, path: Path, depth: int) -> Iterator[Mismatch]:
    if isinstance(value, dict):
        for name in _list_or_empty(schema["required"]):
            if isinstance(name, str) and name not in value:
                yield path, f"`{name}` is missing"


def _check_properties(validator: _Validator, value: Json, schema: Object, path: Path, depth: int) -> Iterator[Mismatch]:
    if isinstance(value, dict):
        for name, inner in _object_or_empty(schema["properties"]).items():
            if name in value:
                yield from validator.find_mismatches(value[name], inner, (path, name), depth + 1)


def _pattern_schemas(schema: Object, name: str) -> Iterator[Json]:
    for pattern, inner in _object_or_empty(schema.get("patternProperties")).items():
        shape = _compile_pattern(pattern)
        if shape is not None and shape.search(name):
            yield inner


def _check_pattern_properties(
    validator: _Validator, value: Json, schema: Object, path: Path, depth: int
) -> Iterator[Mismatch]:
    if isinstance(value, dict):
        for name, item in value.items():
            for inner in _pattern_schemas(schema, name):
                yield from validator.find_mismatches(item, inner, (path, name), depth + 1)


def _check_additional_properties(
    validator: _Validator, value: Json, schema: Object, path: Path, depth: int
) -> Iterator[Mismatch]:
    if not isinstance(value, dict):
        return
    known, inner = _object_or_empty(schema.get("properties")), schema["additionalProperties"]
    for name, item in value.items():
        if name in known or next(_pattern_schemas(schema, name), None) is not None:
            continue
        if inner is False:
            yield path, f"`{name}` is not a known property"
        else:
            yield from validator.find_mismatches(item, inner, (path, name), depth + 1)


def _check_property_names(
    validator: _Validator, value: Json, schema: Object, path: Path, depth: int
) -> Iterator[Mismatch]:
    if isinstance(value, dict):
        for name in value:
            if not validator.is_valid(name, schema["propertyNames"], depth):
                yield path, f"`{name}` is not an allowed property name"


def _check_dependent_required(
    validator: _Validator, value: Json, schema: Object, path: Path, depth: int
) -> Iterator[Mismatch]:
    if isinstance(value, dict):
        for name, wanted in _object_or_empty(schema["dependentRequired"]).items():
            for other in _list_or_empty(wanted) if name in value else ():
                if isinstance(other, str) and other not in value:
                    yield path, f"`{name}` requires `{other}`"


def _check_dependent_schemas(
    validator: _Validator, value: Json, schema: Object, path: Path, depth: int
) -> Iterator[Mismatch]:
    if isinstance(value, dict):
        for name, inner in _object_or_empty(schema["dependentSchemas"]).items():
            if name in value:
                yield from validator.find_mismatches(value, inner, path, depth + 1)


def _check_prefix_items(
    validator: _Validator, value: Json, schema: Object, path: Path, depth: int
) -> Iterator[Mismatch]:
    if isinstance(value, list):
        for at, (item, inner) in enumerate(zip(value, _list_or_empty(schema["prefixItems"]), strict=False)):
            yield from validator.find_mismatches(item, inner, (path, at), depth + 1)


def _check_items(validator: _Validator, value: Json, schema: Object, path: Path, depth: int) -> Iterator[Mismatch]:
    if isinstance(value, list) and not isinstance(schema["items"], list):
        first = len(_list_or_empty(schema.get("prefixItems")))
        for at, item in enumerate(value[first:], first):
            yield from validator.find_mismatches(item, schema["items"], (path, at), depth + 1)


def _check_contains(validator: _Validator, value: Json, schema: Object, path: Path, depth: int) -> Iterator[Mismatch]:
    if not isinstance(value, list):
        return
    found = sum(validator.is_valid(item, schema["contains"], depth) for item in value)
    least: Json = schema.get("minContains", 1)
    most: Json = schema.get("maxContains")
    if is_number(least) and found < _number_value(least):
        yield path, "a required item is missing"
    if is_number(most) and found > _number_value(most):
        yield path, "too many items of a kind"


def _check_all_of(validator: _Validator, value: Json, schema: Object, path: Path, depth: int) -> Iterator[Mismatch]:
    for inner in _list_or_empty(schema["allOf"]):
        yield from validator.find_mismatches(value, inner, path, depth + 1)


def _check_any_of(validator: _Validator, value: Json, schema: Object, path: Path, depth: int) -> Iterator[Mismatch]:
    options = _list_or_empty(schema["anyOf"])
    if options and not any(validator.is_valid(value, inner, depth) for inner in options):
        yield from _nearest_mismatch(validator, value, options, path, depth)


def _check_one_of(validator: _Validator, value: Json, schema: Object, path: Path, depth: int) -> Iterator[Mismatch]:
    options = _list_or_empty(schema["oneOf"])
    fitting = sum(validator.is_valid(value, inner, depth) for inner in options)
    if fitting > 1:
        yield path, "it matches several alternatives of which only one is allowed"
    elif options and not fitting:
        yield from _nearest_mismatch(validator, value, options, path, depth)


def _nearest_mismatch(
    validator: _Validator, value: Json, options: list[Json], path: Path, depth: int
) -> Iterator[Mismatch]:
    """The problem with the alternative that the value matches best."""
    every = [list(validator.find_mismatches(value, inner, path, depth + 1)) for inner in options]
    yield from min(every, key=len)[:1] or [(path, "it matches none of the alternatives")]


def _check_not(validator: _Validator, value: Json, schema: Object, path: Path, depth: int) -> Iterator[Mismatch]:
    if validator.is_valid(value, schema["not"], depth):
        yield path, f"it must not match {short_json(schema['not'], 80)}"


def _check_if(validator: _Validator, value: Json, schema: Object, path: Path, depth: int) -> Iterator[Mismatch]:
    branch = "then" if validator.is_valid(value, schema["if"], depth) else "else"
    if branch in schema:
        yield from validator.find_mismatches(value, schema[branch], path, depth + 1)


_KEYWORD_CHECKS: Final[Mapping[str, Check]] = {
    "type": _check_type,
    "enum": _check_enum,
    "const": _check_const,
    "minimum": _make_bound_check("at least", lambda value, limit: value >= limit)("minimum"),
    "maximum": _make_bound_check("at most", lambda value, limit: value <= limit)("maximum"),
    "exclusiveMinimum": _make_bound_check("more than", lambda value, limit: value > limit)("exclusiveMinimum"),
    "exclusiveMaximum": _make_bound_check("less than", lambda value, limit: value < limit)("exclusiveMaximum"),
    "multipleOf": _make_bound_check("a multiple of", _is_multiple)("multipleOf"),
    "minLength": _make_size_check(str, "minLength", False, "characters"),
    "maxLength": _make_size_check(str, "maxLength", True, "characters"),
    "pattern": _check_pattern,
    "minItems": _make_size_check(list, "minItems", False, "items"),
    "maxItems": _make_size_check(list, "maxItems", True, "items"),
    "uniqueItems": _check_unique_items,
    "prefixItems": _check_prefix_items,
    "items": _check_items,
    "contains": _check_contains,
    "required": _check_required,
    "properties": _check_properties,
    "patternProperties": _check_pattern_properties,
    "additionalProperties": _check_additional_properties,
    "propertyNames": _check_property_names,
    "minProperties": _make_size_check(dict, "minProperties", False, "keys"),
    "maxProperties": _make_size_check(dict, "maxProperties", True, "keys"),
    "dependentRequired": _check_dependent_required,
    "dependentSchemas": _check_dependent_schemas,
    "allOf": _check_all_of,
    "anyOf": _check_any_of,
    "oneOf": _check_one_of,
    "not": _check_not,
    "if": _check_if,
}
