"""Check a JSON Schema (2020-12), and a value, such as the arguments of a call, against one. Decision 0003 says why this
is not done by a library.

A schema gets the verdict of the meta-schema, which is a table of checks here, with patterns checked by Python's `re`.
There are two differences: a local reference must have a target, and a pattern with syntax that only ECMAScript has is
accepted.

For a value, `format` is not checked, and unknown keywords and invalid parts of a schema are ignored, so that a call is
not refused because of a mistake in the tool's schema.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf
from operator import ge, gt, le, lt
from typing import Final, TypeAlias

from msgspec import Raw

from toolwire.core.json_values import (
    MAX_DEPTH,
    Json,
    Number,
    Object,
    Path,
    describe_json_type,
    is_number,
    is_too_deep,
    json_pointer,
    to_float,
)
from toolwire.schema.combine import ReferenceLookup, canonical_key
from toolwire.schema.keywords import (
    COUNT_KEYWORDS,
    NESTING_KEYWORDS,
    REFERENCE_KEYWORDS,
    SCHEMA_MAP_KEYWORDS,
    SINGLE_SCHEMA_KEYWORDS,
    TYPE_CHECKS,
    TYPE_NAMES,
    list_or_empty,
    object_or_empty,
    short_json,
)
from toolwire.schema.patterns import MAX_PATTERN, compile_pattern

# --- schemas --------------------------------------------------------------------------------------------------------

Check: TypeAlias = Callable[[Json], str]
"""Checks the value of one keyword; returns the problem, or ""."""

_TYPE_PHRASES: Final[Mapping[str, str]] = {
    "string": "a string", "number": "a number", "integer": "a whole number", "boolean": "true or false",
    "array": "an array", "object": "an object", "null": "null",
}  # fmt: skip
NO_TARGET: Final = "has no target in this schema"


NAMED_TWICE: Final = "contains a name twice"
NOT_A_SCHEMA: Final = "a schema is an object, true or false"


def schema_problems(schema: Json) -> list[tuple[str, str]]:
    """Why this is not a valid schema: a JSON Pointer and a text for each problem."""
    return [(json_pointer(path), what) for path, what in find_schema_problems(schema)]


def find_schema_problems(schema: Json) -> list[tuple[Path, str]]:
    """Why this is not a valid schema: a path and a text for each problem."""
    if is_too_deep(schema):
        return [(None, f"nested too deeply; {MAX_DEPTH} levels are the limit")]
    found: list[tuple[Path, str]] = []
    lookup = ReferenceLookup(schema)
    todo: list[tuple[Json, Path]] = [(schema, None)]
    while todo:
        node, path = todo.pop()
        if isinstance(node, dict):
            for key, value in node.items():
                check = _SCHEMA_CHECKS.get(key)
                problem = check(value) if check is not None else ""
                if problem:
                    found.append(((path, key), problem))
            for key in filter(node.__contains__, REFERENCE_KEYWORDS):
                reference = node[key]
                if isinstance(reference, str) and reference.startswith("#") and lookup.find_target(reference) is None:
                    found.append(((path, key), f"{short_json(reference, 100)} {NO_TARGET}"))
            if not NESTING_KEYWORDS.isdisjoint(node):
                todo.extend(reversed(_inner_schemas(node, path, found)))
        elif not isinstance(node, bool):
            found.append((path, f"{NOT_A_SCHEMA}, not {describe_json_type(node)}"))
    return found


def _inner_schemas(node: Object, path: Path, found: list[tuple[Path, str]]) -> list[tuple[Json, Path]]:
    """The schemas directly inside, by the rules of 2020-12: `items` is one schema, and `additionalItems` is unknown."""
    inner: list[tuple[Json, Path]] = []
    for key, value in node.items():
        place: Path = (path, key)
        if key in _SINGLE_KEYWORDS:
            inner.append((value, place))
        elif key in _ARRAY_KEYWORDS and isinstance(value, list):
            inner.extend((child, (place, number)) for number, child in enumerate(value))
        elif key in SCHEMA_MAP_KEYWORDS and isinstance(value, dict):
            for name, child in value.items():
                if key == "dependencies" and isinstance(child, list):
                    problem = _check_names(child)
                    if problem:
                        found.append(((place, name), problem))
                else:
                    inner.append((child, (place, name)))
    return inner


_SINGLE_KEYWORDS: Final = SINGLE_SCHEMA_KEYWORDS - {"additionalItems"}
_ARRAY_KEYWORDS: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})


def _make_type_check(kind: str) -> Check:
    has_type, phrase = TYPE_CHECKS[kind], _TYPE_PHRASES[kind]
    return lambda value: "" if has_type(value) else f"must be {phrase}, not {describe_json_type(value)}"


_check_text, _check_flag, _check_array, _check_object, _check_number = map(
    _make_type_check, ("string", "boolean", "array", "object", "number")
)


def _make_object_check(items: Callable[[Object], Iterable[Json]], check: Check) -> Check:
    """Checks an object, and the `items` of it."""
    return lambda value: (
        _check_object(value) or next((problem for item in items(value) if (problem := check(item))), "")
    )


def _check_count(value: Json) -> str:
    if not is_number(value):
        return f"must be a whole number, not {describe_json_type(value)}"
    if not isinstance(value, int) and not to_float(value).is_integer():
        return "must be a whole number"
    return "" if _number_value(value) >= 0 else "must not be negative"


def _check_names(value: Json) -> str:
    if not isinstance(value, list):
        return f"must be an array of names, not {describe_json_type(value)}"
    for item in value:
        if not isinstance(item, str):
            return f"must contain strings only, not {describe_json_type(item)}"
    return "" if len(set(value)) == len(value) else NAMED_TWICE


def _check_types(value: Json) -> str:
    if isinstance(value, str):
        return "" if value in TYPE_NAMES else f"{short_json(value, 60)} is not a type"
    if not isinstance(value, list):
        return f"must be the name of a type or an array of them, not {describe_json_type(value)}"
    for item in value:
        if not isinstance(item, str) or item not in TYPE_NAMES:
            return f"{short_json(item, 60)} is not a type"
    if not value:
        return "must contain at least one type"
    return "" if len({canonical_key(item) for item in value}) == len(value) else NAMED_TWICE


_ECMASCRIPT_ONLY: Final = ("\\p{", "\\P{", "\\u{", "\\k<", "\\c", "(?<", "[^]", "[]")
"""Syntax of ECMAScript's regular expressions, which JSON Schema uses, that Python does not have."""


def _check_pattern(value: Json) -> str:
    if not isinstance(value, str):
        return _check_text(value)
    problem = python_pattern_problem(value) if len(value) <= MAX_PATTERN else ""
    if not problem or any(word in value for word in _ECMASCRIPT_ONLY):
        return ""
    return f"{short_json(value, 100)} is not a valid regular expression: {problem}"


def python_pattern_problem(pattern: str) -> str:
    """Why Python's `re` cannot read a pattern, or ""."""
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return str(error)
    except Warning:
        return ""  # it compiles, but a later version of Python may read it differently
    return ""


def _make_text_check(expression: str, problem: str) -> Check:
    search = re.compile(expression).search
    return lambda value: _check_text(value) or ("" if search(value) else problem)


_check_anchor = _make_text_check(r"^[A-Za-z_][-A-Za-z0-9._]*$", "must be a plain name")

_SCHEMA_CHECKS: Final[Mapping[str, Check]] = {
    "$id": _make_text_check(r"^[^#]*#?$", "must have no fragment"),
    "$anchor": _check_anchor,
    "$dynamicAnchor": _check_anchor,
    "$recursiveAnchor": _check_anchor,
    "$vocabulary": _make_object_check(dict.values, _check_flag),
    "type": _check_types,
    "enum": _check_array,
    "examples": _check_array,
    "required": _check_names,
    "dependentRequired": _make_object_check(dict.values, _check_names),
    "pattern": _check_pattern,
    "patternProperties": _make_object_check(dict.keys, _check_pattern),
    "multipleOf": lambda value: _check_number(value) or ("" if _number_value(value) > 0 else "must be greater than 0"),
    **dict.fromkeys(("$schema", "$comment", "title", "description", "format"), _check_text),
    **dict.fromkeys((*REFERENCE_KEYWORDS, "contentEncoding", "contentMediaType"), _check_text),
    **dict.fromkeys(("uniqueItems", "deprecated", "readOnly", "writeOnly"), _check_flag),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _check_number),
    **dict.fromkeys((*COUNT_KEYWORDS, "minContains", "maxContains"), _check_count),
    **dict.fromkeys(
        _ARRAY_KEYWORDS, lambda value: _check_array(value) or ("" if value else "must contain at least one schema")
    ),
    **dict.fromkeys(SCHEMA_MAP_KEYWORDS - {"patternProperties"}, _check_object),
}


# --- values ---------------------------------------------------------------------------------------------------------

_MAX_STEPS = 50_000
"""Pairs of a value and a schema that one check looks at."""
_MAX_CHECKED_DEPTH = MAX_DEPTH // 2
"""How deep a check goes: each level takes four calls of Python, which allows a thousand."""
Found = Iterator[tuple[Path, str]]
"""The mismatches between a value and a schema."""


def value_problems(value: Json, schema: Json) -> list[str]:
    """Why the value does not match the schema: a text for each problem, with its JSON Pointer. A check
    with too many steps finds nothing: a schema that refers to itself in two alternatives doubles them at each level."""
    if is_too_deep(value):
        return [f"nested too deeply; {MAX_DEPTH} levels are the limit"]
    validator = ValueValidator(schema)
    mismatches = list(validator.find_mismatches(value, schema, None, 0))
    if not validator.steps_left:
        return []
    return list(dict.fromkeys(f"{json_pointer(path) or 'the arguments'}: {what}" for path, what in mismatches))


def fix_whole_numbers(value: Json, schema: Json) -> tuple[Json, bool]:
    """The value with `2.0` as `2` where the schema demands an integer, and whether it changed."""
    fixed = ValueValidator(schema).fix_whole_numbers(value, schema, 0)
    return fixed, fixed is not value


class ValueValidator:
    """Checks values against the schemas inside of one schema, whose references they may use."""

    def __init__(self, root: Json) -> None:
        self.lookup = ReferenceLookup(root)
        self.steps_left = _MAX_STEPS

    def find_mismatches(self, value: Json, schema: Json, path: Path, depth: int) -> Found:
        if schema is False:
            yield path, "no value is allowed here"
        if not isinstance(schema, dict) or depth > _MAX_CHECKED_DEPTH or not self.steps_left:
            return
        self.steps_left -= 1
        for target in self._reference_targets(schema):
            yield from self.find_mismatches(value, target, path, depth + 1)
        for key, (kind, check) in _KEYWORD_CHECKS.items():
            if key in schema and isinstance(value, kind):
                yield from check(self, value, schema, path, depth)

    def _reference_targets(self, schema: Object) -> Iterator[Json]:
        for key in REFERENCE_KEYWORDS:
            found = self.lookup.find_target(schema[key]) if key in schema else None
            if found is not None:
                yield found[0]

    def matches(self, value: Json, schema: Json) -> bool:
        """Does the value match this schema? False if the check takes too many steps."""
        self.steps_left = _MAX_STEPS
        return not is_too_deep(value) and self.is_valid(value, schema, 0) and self.steps_left > 0

    def is_valid(self, value: Json, schema: Json, depth: int) -> bool:
        return next(self.find_mismatches(value, schema, None, depth + 1), None) is None

    # --- whole numbers ---

    def fix_whole_numbers(self, value: Json, schema: Json, depth: int) -> Json:
        if not isinstance(schema, dict) or depth > _MAX_CHECKED_DEPTH or not self.steps_left:
            return value
        self.steps_left -= 1
        for inner in self._applicable_schemas(value, schema, depth):
            value = self.fix_whole_numbers(value, inner, depth + 1)
        if isinstance(value, (float, Raw)):
            types = _declared_types(schema)
            is_integer = "integer" in types and "number" not in types and _is_whole(value)
            return int(_number_value(value)) if is_integer else value
        if isinstance(value, dict):
            return self._fix_object(value, schema, depth)
        items = schema.get("items")
        if isinstance(value, list) and isinstance(items, dict):
            made = [self.fix_whole_numbers(item, items, depth + 1) for item in value]
            return value if all(new is old for new, old in zip(made, value, strict=True)) else made
        return value

    def _fix_object(self, value: Object, schema: Object, depth: int) -> Json:
        known, others = object_or_empty(schema.get("properties")), schema.get("additionalProperties")
        made = {name: self.fix_whole_numbers(item, known.get(name, others), depth + 1) for name, item in value.items()}
        return value if all(made[name] is value[name] for name in value) else made

    def _applicable_schemas(self, value: Json, schema: Object, depth: int) -> Iterator[Json]:
        """The schemas inside this one that apply to the same value; of alternatives, the one that it matches."""
        yield from self._reference_targets(schema)
        yield from list_or_empty(schema.get("allOf"))
        for key in ("anyOf", "oneOf"):
            fitting = [one for one in list_or_empty(schema.get(key)) if self.is_valid(value, one, depth)]
            yield from fitting[:1]

    # --- checks of one keyword ---

    def check_type(self, value: Json, schema: Object, path: Path, depth: int) -> Found:
        types = _declared_types(schema)
        if types and not any(_has_type(value, kind) for kind in types):
            wanted = " or ".join(_TYPE_PHRASES.get(kind, kind) for kind in types)
            yield path, f"expected {wanted}, got {describe_json_type(value)}"

    def check_enum(self, value: Json, schema: Object, path: Path, depth: int) -> Found:
        allowed = list_or_empty(schema["enum"])
        if allowed and not any(_is_equal(value, one) for one in allowed):
            listed = ", ".join(short_json(one, 40) for one in allowed[:10])
            yield path, f"{short_json(value, 40)} is not one of {listed}{', …' if len(allowed) > 10 else ''}"

    def check_const(self, value: Json, schema: Object, path: Path, depth: int) -> Found:
        if not _is_equal(value, schema["const"]):
            yield path, f"expected {short_json(schema['const'], 40)}, got {short_json(value, 40)}"

    def check_pattern(self, value: Json, schema: Object, path: Path, depth: int) -> Found:
        pattern = schema["pattern"]
        occurs_in = compile_pattern(pattern) if isinstance(pattern, str) else None
        if occurs_in is not None and not occurs_in(value):
            yield path, f"{short_json(value, 60)} does not match {short_json(pattern, 60)}"

    def check_unique_items(self, value: Json, schema: Object, path: Path, depth: int) -> Found:
        keys = {_number_value(item) if is_number(item) else (type(item), canonical_key(item)) for item in value}
        if schema["uniqueItems"] is True and len(keys) < len(value):
            yield path, "an item is repeated"

    def check_required(self, value: Json, schema: Object, path: Path, depth: int) -> Found:
        for name in list_or_empty(schema["required"]):
            if isinstance(name, str) and name not in value:
                yield path, f"`{name}` is missing"

    def check_properties(self, value: Json, schema: Object, path: Path, depth: int) -> Found:
        for name, inner in object_or_empty(schema["properties"]).items():
            if name in value:
                yield from self.find_mismatches(value[name], inner, (path, name), depth + 1)

    def check_pattern_properties(self, value: Json, schema: Object, path: Path, depth: int) -> Found:
        for name, item in value.items():
            for inner in _pattern_schemas(schema, name):
                yield from self.find_mismatches(item, inner, (path, name), depth + 1)

    def check_additional_properties(self, value: Json, schema: Object, path: Path, depth: int) -> Found:
        known, inner = object_or_empty(schema.get("properties")), schema["additionalProperties"]
        for name, item in value.items():
            if name in known or next(_pattern_schemas(schema, name), None) is not None:
                continue
            if inner is False:
                yield path, f"`{name}` is not a known property"
            else:
                yield from self.find_mismatches(item, inner, (path, name), depth + 1)

    def check_property_names(self, value: Json, schema: Object, path: Path, depth: int) -> Found:
        for name in value:
            if not self.is_valid(name, schema["propertyNames"], depth):
                yield path, f"`{name}` is not an allowed property name"

    def check_dependent_required(self, value: Json, schema: Object, path: Path, depth: int) -> Found:
        for name, wanted in object_or_empty(schema["dependentRequired"]).items():
            for other in list_or_empty(wanted) if name in value else ():
                if isinstance(other, str) and other not in value:
                    yield path, f"`{name}` requires `{other}`"

    def check_dependent_schemas(self, value: Json, schema: Object, path: Path, depth: int) -> Found:
        for name, inner in object_or_empty(schema["dependentSchemas"]).items():
            if name in value:
                yield from self.find_mismatches(value, inner, path, depth + 1)

    def check_prefix_items(self, value: Json, schema: Object, path: Path, depth: int) -> Found:
        for at, (item, inner) in enumerate(zip(value, list_or_empty(schema["prefixItems"]), strict=False)):
            yield from self.find_mismatches(item, inner, (path, at), depth + 1)

    def check_items(self, value: Json, schema: Object, path: Path, depth: int) -> Found:
        if not isinstance(schema["items"], list):
            first = len(list_or_empty(schema.get("prefixItems")))
            for at, item in enumerate(value[first:], first):
                yield from self.find_mismatches(item, schema["items"], (path, at), depth + 1)

    def check_contains(self, value: Json, schema: Object, path: Path, depth: int) -> Found:
        found = sum(self.is_valid(item, schema["contains"], depth) for item in value)
        least: Json = schema.get("minContains", 1)
        most: Json = schema.get("maxContains")
        if is_number(least) and found < _number_value(least):
            yield path, "a required item is missing"
        if is_number(most) and found > _number_value(most):
            yield path, "too many items of a kind"

    def check_all_of(self, value: Json, schema: Object, path: Path, depth: int) -> Found:
        for inner in list_or_empty(schema["allOf"]):
            yield from self.find_mismatches(value, inner, path, depth + 1)

    def check_any_of(self, value: Json, schema: Object, path: Path, depth: int) -> Found:
        options = list_or_empty(schema["anyOf"])
        if options and not any(self.is_valid(value, inner, depth) for inner in options):
            yield from self._nearest_mismatch(value, options, path, depth)

    def check_one_of(self, value: Json, schema: Object, path: Path, depth: int) -> Found:
        options = list_or_empty(schema["oneOf"])
        fitting = sum(self.is_valid(value, inner, depth) for inner in options)
        if fitting > 1:
            yield path, "it matches several alternatives of which only one is allowed"
        elif options and not fitting:
            yield from self._nearest_mismatch(value, options, path, depth)

    def _nearest_mismatch(self, value: Json, options: list[Json], path: Path, depth: int) -> Found:
        """The problem with the alternative that the value matches best."""
        every = [list(self.find_mismatches(value, inner, path, depth + 1)) for inner in options]
        yield from min(every, key=len)[:1] or [(path, "it matches none of the alternatives")]

    def check_not(self, value: Json, schema: Object, path: Path, depth: int) -> Found:
        if self.is_valid(value, schema["not"], depth):
            yield path, f"it must not match {short_json(schema['not'], 80)}"

    def check_if(self, value: Json, schema: Object, path: Path, depth: int) -> Found:
        branch = "then" if self.is_valid(value, schema["if"], depth) else "else"
        if branch in schema:
            yield from self.find_mismatches(value, schema[branch], path, depth + 1)


_Check = tuple[type, Callable[[ValueValidator, Json, Object, Path, int], Found]]
"""The type of values that a keyword applies to, and its check."""


def _declared_types(schema: Object) -> list[str]:
    kind = schema.get("type")
    return [kind] if isinstance(kind, str) else [one for one in list_or_empty(kind) if isinstance(one, str)]


def _number_value(value: Number) -> float:
    """Integers stay integers, because they may be larger than any float."""
    return value if isinstance(value, int) else to_float(value)


def _is_whole(value: Json) -> bool:
    return isinstance(value, int) or to_float(value).is_integer()


def _has_type(value: Json, kind: str) -> bool:
    return kind not in TYPE_CHECKS or (TYPE_CHECKS[kind](value) and (kind != "integer" or _is_whole(value)))


def _is_equal(one: Json, other: Json) -> bool:
    if is_number(one) and is_number(other):
        return _number_value(one) == _number_value(other)
    return canonical_key(one) == canonical_key(other) if type(one) is type(other) else False


def _make_bound_check(key: str, word: str, holds: Callable[[float, float], bool]) -> _Check:
    def check(_: ValueValidator, value: Json, schema: Object, path: Path, depth: int) -> Found:
        limit = schema[key]
        if is_number(value) and is_number(limit) and not holds(_number_value(value), _number_value(limit)):
            yield path, f"{short_json(value, 40)} is not {word} {short_json(limit, 40)}"

    return object, check


def _is_multiple(value: float, factor: float) -> bool:
    if factor <= 0 or abs(value) == inf:
        return True
    if isinstance(value, int) and isinstance(factor, int):
        return value % factor == 0
    parts = value / factor
    return abs(parts) == inf or abs(parts - round(parts)) <= 1e-9 * max(1.0, abs(parts))


def _make_size_check(kind: type[str] | type[list[Json]] | type[Object], key: str, word: str) -> _Check:
    def check(_: ValueValidator, value: Json, schema: Object, path: Path, depth: int) -> Found:
        size, limit, is_maximum = len(value), schema[key], key.startswith("max")
        if is_number(limit) and (size > _number_value(limit) if is_maximum else size < _number_value(limit)):
            yield path, f"{size:,} {word} are {'more' if is_maximum else 'fewer'} than {short_json(limit, 20)}"

    return kind, check


def _pattern_schemas(schema: Object, name: str) -> Iterator[Json]:
    for pattern, inner in object_or_empty(schema.get("patternProperties")).items():
        occurs_in = compile_pattern(pattern)
        if occurs_in is not None and occurs_in(name):
            yield inner


_KEYWORD_CHECKS: Final[Mapping[str, _Check]] = {
    "type": (object, ValueValidator.check_type),
    "enum": (object, ValueValidator.check_enum),
    "const": (object, ValueValidator.check_const),
    "minimum": _make_bound_check("minimum", "at least", ge),
    "maximum": _make_bound_check("maximum", "at most", le),
    "exclusiveMinimum": _make_bound_check("exclusiveMinimum", "more than", gt),
    "exclusiveMaximum": _make_bound_check("exclusiveMaximum", "less than", lt),
    "multipleOf": _make_bound_check("multipleOf", "a multiple of", _is_multiple),
    "minLength": _make_size_check(str, "minLength", "characters"),
    "maxLength": _make_size_check(str, "maxLength", "characters"),
    "pattern": (str, ValueValidator.check_pattern),
    "minItems": _make_size_check(list, "minItems", "items"),
    "maxItems": _make_size_check(list, "maxItems", "items"),
    "uniqueItems": (list, ValueValidator.check_unique_items),
    "prefixItems": (list, ValueValidator.check_prefix_items),
    "items": (list, ValueValidator.check_items),
    "contains": (list, ValueValidator.check_contains),
    "required": (dict, ValueValidator.check_required),
    "properties": (dict, ValueValidator.check_properties),
    "patternProperties": (dict, ValueValidator.check_pattern_properties),
    "additionalProperties": (dict, ValueValidator.check_additional_properties),
    "propertyNames": (dict, ValueValidator.check_property_names),
    "minProperties": _make_size_check(dict, "minProperties", "keys"),
    "maxProperties": _make_size_check(dict, "maxProperties", "keys"),
    "dependentRequired": (dict, ValueValidator.check_dependent_required),
    "dependentSchemas": (dict, ValueValidator.check_dependent_schemas),
    "allOf": (object, ValueValidator.check_all_of),
    "anyOf": (object, ValueValidator.check_any_of),
    "oneOf": (object, ValueValidator.check_one_of),
    "not": (object, ValueValidator.check_not),
    "if": (object, ValueValidator.check_if),
}
