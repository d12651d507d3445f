"""Check whether a value is a valid JSON Schema (2020-12), with the meta-schema as a table of checks.

The verdict is that of the meta-schema with patterns checked by Python's `re`, with two differences: a local reference
must have a target, and a pattern with syntax that only ECMAScript has is accepted. Decision 0003 says why this is not
done by a library.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

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
from toolwire.schema.keywords import (
    COUNT_KEYWORDS,
    REFERENCE_KEYWORDS,
    SCHEMA_MAP_KEYWORDS,
    SINGLE_SCHEMA_KEYWORDS,
    TYPE_NAMES,
    is_number,
    short_json,
)

Check: TypeAlias = Callable[[Json], str]
"""Checks the value of one keyword; returns the problem, or ""."""

NO_TARGET: Final = "has no target in this schema"


def schema_problems(schema: Json) -> list[tuple[str, str]]:
    """Why this is not a valid schema: a JSON Pointer and a text for each problem."""
    if is_too_deep(schema):
        return [("", f"nested too deeply; {MAX_DEPTH} levels are the limit")]
    found: list[tuple[str, str]] = []
    lookup = ReferenceLookup(schema)
    todo: list[tuple[Json, Path]] = [(schema, None)]
    while todo:
        node, path = todo.pop()
        if isinstance(node, dict):
            for key, value in node.items():
                check = _KEYWORD_CHECKS.get(key)
                problem = check(value) if check is not None else ""
                if problem:
                    found.append((json_pointer((path, key)), problem))
            _check_references(node, path, lookup, found)
            todo.extend(reversed(_inner_schemas(node, path, found)))
        elif not isinstance(node, bool):
            found.append((json_pointer(path), f"a schema is an object, true or false, not {describe_json_type(node)}"))
    return found


def _check_references(node: Object, path: Path, lookup: ReferenceLookup, found: list[tuple[str, str]]) -> None:
    for key in REFERENCE_KEYWORDS:
        reference = node.get(key)
        if isinstance(reference, str) and reference.startswith("#") and lookup.find_target(reference) is None:
            found.append((json_pointer((path, key)), f"{short_json(reference, 100)} {NO_TARGET}"))


def _inner_schemas(node: Object, path: Path, found: list[tuple[str, str]]) -> list[tuple[Json, Path]]:
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
                        found.append((json_pointer((place, name)), problem))
                else:
                    inner.append((child, (place, name)))
    return inner


_SINGLE_KEYWORDS: Final = SINGLE_SCHEMA_KEYWORDS - {"additionalItems"}
_ARRAY_KEYWORDS: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})


# --- checks of one keyword ---


def _make_type_check(has_type: Callable[[Json], bool], phrase: str) -> Check:
    return lambda value: "" if has_type(value) else f"must be {phrase}, not {describe_json_type(value)}"


_check_text = _make_type_check(lambda value: isinstance(value, str), "a string")
_check_flag = _make_type_check(lambda value: isinstance(value, bool), "true or false")
_check_array = _make_type_check(lambda value: isinstance(value, list), "an array")
_check_object = _make_type_check(lambda value: isinstance(value, dict), "an object")
_check_number = _make_type_check(is_number, "a number")


def _make_object_check(items: Callable[[Object], Iterable[Json]], check: Check) -> Check:
    """Checks an object, and the `items` of it."""
    return lambda value: (
        _check_object(value) or next((problem for item in items(value) if (problem := check(item))), "")
    )


def _check_schema_array(value: Json) -> str:
    return _check_array(value) or ("" if value else "must contain at least one schema")


def _check_factor(value: Json) -> str:
    return _check_number(value) or ("" if _number_value(value) > 0 else "must be greater than 0")


def _number_value(number: Number) -> float:
    return number if isinstance(number, int) else to_float(number)


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
    return "" if len(set(value)) == len(value) else "contains a name twice"


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
    return "" if len({canonical_key(item) for item in value}) == len(value) else "contains a type twice"


_ECMASCRIPT_ONLY: Final = ("\\p{", "\\P{", "\\u{", "\\k<", "\\c", "(?<", "[^]", "[]")
"""Syntax of ECMAScript's regular expressions, which JSON Schema uses, that Python does not have."""


def _check_pattern(value: Json) -> str:
    if not isinstance(value, str):
        return _check_text(value)
    try:
        re.compile(value)
    except (re.error, OverflowError, RecursionError) as error:
        if any(word in value for word in _ECMASCRIPT_ONLY):
            return ""
        return f"{short_json(value, 100)} is not a valid regular expression: {error}"
    except Warning:
        return ""  # it compiles, but a later version of Python may read it differently
    return ""


def _make_text_check(expression: str, problem: str) -> Check:
    search = re.compile(expression).search
    return lambda value: _check_text(value) or ("" if search(value) else problem)


_check_anchor = _make_text_check(r"^[A-Za-z_][-A-Za-z0-9._]*$", "must be a plain name")

_KEYWORD_CHECKS: Final[Mapping[str, Check]] = {
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
    "multipleOf": _check_factor,
    **dict.fromkeys(("$schema", "$comment", "title", "description", "format"), _check_text),
    **dict.fromkeys((*REFERENCE_KEYWORDS, "contentEncoding", "contentMediaType"), _check_text),
    **dict.fromkeys(("uniqueItems", "deprecated", "readOnly", "writeOnly"), _check_flag),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _check_number),
    **dict.fromkeys((*COUNT_KEYWORDS, "minContains", "maxContains"), _check_count),
    **dict.fromkeys(_ARRAY_KEYWORDS, _check_schema_array),
    **dict.fromkeys(SCHEMA_MAP_KEYWORDS - {"patternProperties"}, _check_object),
}
