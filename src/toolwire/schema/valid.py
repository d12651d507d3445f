"""Is this a valid JSON Schema (2020-12)? The meta-schema as tables, without a validator for arbitrary schemas.

The verdict is that of the meta-schema with its `regex` format checked by Python's `re`, with two differences: a local
reference must point at something, and a pattern with words that only ECMAScript has is believed. Why by hand:
docs/decisions/0003-json-schema-by-hand.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from toolwire.schema.combine import key_of
from toolwire.schema.refs import Lookup
from toolwire.schema.words import NAMED, ONE, REFERENCES, TYPES, is_number, spelled
from toolwire.wire import MAX_DEPTH, Json, Number, Object, Path, as_float, kind_of, pointer, too_deep

Check: TypeAlias = Callable[[Json], str]
"""Looks at one keyword's value; "" when it is as it should be."""

POINTS_NOWHERE: Final = "points nowhere in this schema"


def problems(schema: Json) -> list[tuple[str, str]]:
    """What keeps this from being a valid schema: places as JSON Pointers into it, each with what is wrong there."""
    if too_deep(schema):
        return [("", f"nested too deeply; {MAX_DEPTH} levels are the limit")]
    found: list[tuple[str, str]] = []
    lookup = Lookup(schema)
    todo: list[tuple[Json, Path]] = [(schema, None)]
    while todo:
        node, path = todo.pop()
        if isinstance(node, dict):
            for key, value in node.items():
                check = _CHECKS.get(key)
                problem = check(value) if check is not None else ""
                if problem:
                    found.append((pointer((path, key)), problem))
            _look_at_references(node, path, lookup, found)
            todo.extend(reversed(_inner(node, path, found)))
        elif not isinstance(node, bool):
            found.append((pointer(path), f"a schema is an object, true or false, not {kind_of(node)}"))
    return found


def _look_at_references(node: Object, path: Path, lookup: Lookup, found: list[tuple[str, str]]) -> None:
    for key in REFERENCES:
        reference = node.get(key)
        if isinstance(reference, str) and reference.startswith("#") and lookup.find(reference) is None:
            found.append((pointer((path, key)), f"{spelled(reference, 100)} {POINTS_NOWHERE}"))


def _inner(node: Object, path: Path, found: list[tuple[str, str]]) -> list[tuple[Json, Path]]:
    """The schemas directly inside, by this draft's own rules: `items` is one schema, `additionalItems` no keyword."""
    inner: list[tuple[Json, Path]] = []
    for key, value in node.items():
        place: Path = (path, key)
        if key in _SINGLE:
            inner.append((value, place))
        elif key in _ARRAYS and isinstance(value, list):
            inner.extend((child, (place, number)) for number, child in enumerate(value))
        elif key in NAMED and isinstance(value, dict):
            for name, child in value.items():
                if key == "dependencies" and isinstance(child, list):
                    problem = _names(child)
                    if problem:
                        found.append((pointer((place, name)), problem))
                else:
                    inner.append((child, (place, name)))
    return inner


_SINGLE: Final = ONE - {"additionalItems"}
_ARRAYS: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})


# --- the value of one keyword ---------------------------------------------------------------------------------------


def _text(value: Json) -> str:
    return "" if isinstance(value, str) else f"must be a string, not {kind_of(value)}"


def _flag(value: Json) -> str:
    return "" if isinstance(value, bool) else f"must be true or false, not {kind_of(value)}"


def _array(value: Json) -> str:
    return "" if isinstance(value, list) else f"must be an array, not {kind_of(value)}"


def _schemas(value: Json) -> str:
    return _array(value) or ("" if value else "must hold at least one schema")


def _object(value: Json) -> str:
    return "" if isinstance(value, dict) else f"must be an object, not {kind_of(value)}"


def _number(value: Json) -> str:
    return "" if is_number(value) else f"must be a number, not {kind_of(value)}"


def _factor(value: Json) -> str:
    return _number(value) or ("" if _exact(value) > 0 else "must be greater than 0")


def _exact(number: Number) -> float:
    return number if isinstance(number, int) else as_float(number)


def _count(value: Json) -> str:
    if not is_number(value):
        return f"must be a whole number, not {kind_of(value)}"
    if not isinstance(value, int) and not as_float(value).is_integer():
        return "must be a whole number"
    return "" if _exact(value) >= 0 else "must not be negative"


def _names(value: Json) -> str:
    if not isinstance(value, list):
        return f"must be an array of names, not {kind_of(value)}"
    for item in value:
        if not isinstance(item, str):
            return f"must hold strings only, not {kind_of(item)}"
    return "" if len(set(value)) == len(value) else "names something twice"


def _names_by_name(value: Json) -> str:
    if not isinstance(value, dict):
        return _object(value)
    return next((problem for names in value.values() if (problem := _names(names))), "")


def _types(value: Json) -> str:
    if isinstance(value, str):
        return "" if value in TYPES else f"{spelled(value, 60)} is no type"
    if not isinstance(value, list):
        return f"must be a type's name or an array of them, not {kind_of(value)}"
    for item in value:
        if not isinstance(item, str) or item not in TYPES:
            return f"{spelled(item, 60)} is no type"
    if not value:
        return "must name at least one type"
    return "" if len({key_of(item) for item in value}) == len(value) else "names a type twice"


_ECMASCRIPT: Final = ("\\p{", "\\P{", "\\u{", "\\k<", "\\c", "(?<", "[^]", "[]")
"""What the patterns of JSON Schema may hold and Python's may not."""


def _pattern(value: Json) -> str:
    if not isinstance(value, str):
        return _text(value)
    try:
        re.compile(value)
    except (re.error, OverflowError, RecursionError) as error:
        if any(word in value for word in _ECMASCRIPT):
            return ""
        return f"{spelled(value, 100)} is no regular expression: {error}"
    except Warning:
        return ""  # it compiles, but a later Python may read it otherwise
    return ""


def _patterns(value: Json) -> str:
    if not isinstance(value, dict):
        return _object(value)
    return next((problem for pattern in value if (problem := _pattern(pattern))), "")


def _matching(expression: str, wanted: str) -> Check:
    search = re.compile(expression).search

    def check(value: Json) -> str:
        return _text(value) or ("" if search(value) else wanted)

    return check


def _vocabulary(value: Json) -> str:
    if not isinstance(value, dict):
        return _object(value)
    return next((problem for item in value.values() if (problem := _flag(item))), "")


_anchor = _matching(r"^[A-Za-z_][-A-Za-z0-9._]*$", "must be a plain name")

_CHECKS: Final[Mapping[str, Check]] = {
    "$id": _matching(r"^[^#]*#?$", "must have no fragment"),
    "$anchor": _anchor,
    "$dynamicAnchor": _anchor,
    "$recursiveAnchor": _anchor,
    "$vocabulary": _vocabulary,
    "type": _types,
    "enum": _array,
    "examples": _array,
    "required": _names,
    "dependentRequired": _names_by_name,
    "pattern": _pattern,
    "patternProperties": _patterns,
    "multipleOf": _factor,
    **dict.fromkeys(("$schema", "$comment", "title", "description", "format"), _text),
    **dict.fromkeys((*REFERENCES, "contentEncoding", "contentMediaType"), _text),
    **dict.fromkeys(("uniqueItems", "deprecated", "readOnly", "writeOnly"), _flag),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _number),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _count),
    **dict.fromkeys(("minContains", "maxContains"), _count),
    **dict.fromkeys(_ARRAYS, _schemas),
    **dict.fromkeys(NAMED - {"patternProperties"}, _object),
}
