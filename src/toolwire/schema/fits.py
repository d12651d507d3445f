"""Does a value fit a schema? For the arguments of calls: plain JSON Schema (2020-12), formats not looked at.

Words that nobody knows demand nothing, and a schema that is nonsense somewhere demands nothing there: a call is not
refused for a fault of its tool. Why by hand: docs/decisions/0003-json-schema-by-hand.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from math import inf
from typing import Final

from msgspec import Raw

from toolwire.schema.combine import key_of
from toolwire.schema.refs import Lookup
from toolwire.schema.words import REFERENCES, is_number, spelled
from toolwire.wire import MAX_DEPTH, Json, Number, Object, Path, as_float, kind_of, pointer, too_deep

Fault = tuple[Path, str]
_WORDS: Final[Mapping[str, str]] = {
    "string": "a string", "number": "a number", "integer": "a whole number", "boolean": "true or false",
    "array": "an array", "object": "an object", "null": "null",
}  # fmt: skip


def faults(value: Json, schema: Json) -> list[str]:
    """What does not fit, each with its place as a JSON Pointer; empty when all does."""
    if too_deep(value):
        return [f"nested too deeply; {MAX_DEPTH} levels are the limit"]
    look = _Look(schema)
    found = [f"{pointer(path) or 'the arguments'}: {what}" for path, what in look.at(value, schema, None, 0)]
    return list(dict.fromkeys(found))


def righted(value: Json, schema: Json) -> tuple[Json, bool]:
    """The value with `2.0` as `2` where a whole number is asked for; and was there any?"""
    made = _Look(schema).righted(value, schema, 0)
    return made, made is not value


class _Look:
    def __init__(self, root: Json) -> None:
        self.lookup = Lookup(root)

    def at(self, value: Json, schema: Json, path: Path, depth: int) -> Iterator[Fault]:
        if schema is False:
            yield path, "nothing may stand here"
        if not isinstance(schema, dict) or depth > MAX_DEPTH:
            return
        for key in REFERENCES:
            found = self.lookup.find(schema[key]) if key in schema else None
            if found is not None:
                yield from self.at(value, found[0], path, depth + 1)
        for key, check in _CHECKS.items():
            if key in schema:
                yield from check(self, value, schema, path, depth)

    def fits(self, value: Json, schema: Json, depth: int) -> bool:
        return next(self.at(value, schema, None, depth + 1), None) is None

    # --- whole numbers ---

    def righted(self, value: Json, schema: Json, depth: int) -> Json:
        if not isinstance(schema, dict) or depth > MAX_DEPTH:
            return value
        for inner in self._meant(value, schema, depth):
            value = self.righted(value, inner, depth + 1)
        if isinstance(value, (float, Raw)):
            types = _types(schema)
            return int(_exact(value)) if "integer" in types and "number" not in types and _whole(value) else value
        if isinstance(value, dict):
            return self._righted_object(value, schema, depth)
        items = schema.get("items")
        if isinstance(value, list) and isinstance(items, dict):
            made = [self.righted(item, items, depth + 1) for item in value]
            return value if all(new is old for new, old in zip(made, value, strict=True)) else made
        return value

    def _righted_object(self, value: Object, schema: Object, depth: int) -> Json:
        known, others = _table(schema.get("properties")), schema.get("additionalProperties")
        made = {name: self.righted(item, known.get(name, others), depth + 1) for name, item in value.items()}
        return value if all(made[name] is value[name] for name in value) else made

    def _meant(self, value: Json, schema: Object, depth: int) -> Iterator[Json]:
        """Schemas that hold for the same value; of alternatives the one that it fits."""
        for key in REFERENCES:
            found = self.lookup.find(schema[key]) if key in schema else None
            if found is not None:
                yield found[0]
        yield from _list(schema.get("allOf"))
        for key in ("anyOf", "oneOf"):
            fitting = [one for one in _list(schema.get(key)) if self.fits(value, one, depth)]
            yield from fitting[:1]


# --- words ------------------------------------------------------------------------------------------------------------

Check = Callable[[_Look, Json, Object, Path, int], Iterator[Fault]]


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _table(value: Json) -> Object:
    return value if isinstance(value, dict) else {}


def _types(schema: Object) -> list[str]:
    kind = schema.get("type")
    return [kind] if isinstance(kind, str) else [one for one in _list(kind) if isinstance(one, str)]


def _exact(value: Number) -> float:
    """Whole numbers stay what they are: they may be larger than any float."""
    return value if isinstance(value, int) else as_float(value)


def _whole(value: Json) -> bool:
    return isinstance(value, int) or as_float(value).is_integer()


def _is_of(value: Json, kind: str) -> bool:
    if kind == "integer":
        return is_number(value) and _whole(value)
    if kind == "number":
        return is_number(value)
    if kind == "null":
        return value is None
    wanted = {"string": str, "boolean": bool, "array": list, "object": dict}.get(kind)
    return wanted is None or isinstance(value, wanted)


def _type(look: _Look, value: Json, schema: Object, path: Path, depth: int) -> Iterator[Fault]:
    types = _types(schema)
    if types and not any(_is_of(value, kind) for kind in types):
        wanted = " or ".join(_WORDS.get(kind, kind) for kind in types)
        yield path, f"expected {wanted}, got {kind_of(value)}"


def _same(one: Json, other: Json) -> bool:
    if is_number(one) and is_number(other):
        return _exact(one) == _exact(other)
    return key_of(one) == key_of(other) if type(one) is type(other) else False


def _enum(look: _Look, value: Json, schema: Object, path: Path, depth: int) -> Iterator[Fault]:
    allowed = _list(schema["enum"])
    if allowed and not any(_same(value, one) for one in allowed):
        listed = ", ".join(spelled(one, 40) for one in allowed[:10])
        yield path, f"{spelled(value, 40)} is none of {listed}{', …' if len(allowed) > 10 else ''}"


def _const(look: _Look, value: Json, schema: Object, path: Path, depth: int) -> Iterator[Fault]:
    if not _same(value, schema["const"]):
        yield path, f"expected {spelled(schema['const'], 40)}, got {spelled(value, 40)}"


def _bound(word: str, holds: Callable[[float, float], bool]) -> Callable[[str], Check]:
    def of(key: str) -> Check:
        def check(look: _Look, value: Json, schema: Object, path: Path, depth: int) -> Iterator[Fault]:
            limit = schema[key]
            if is_number(value) and is_number(limit) and not holds(_exact(value), _exact(limit)):
                yield path, f"{spelled(value, 40)} is not {word} {spelled(limit, 40)}"

        return check

    return of


def _multiple(value: float, factor: float) -> bool:
    if factor <= 0 or abs(value) == inf:
        return True
    if isinstance(value, int) and isinstance(factor, int):
        return value % factor == 0
    parts = value / factor
    return abs(parts) == inf or abs(parts - round(parts)) <= 1e-9 * max(1.0, abs(parts))


def _counted(kind: type[str] | type[list[Json]] | type[Object], key: str, most: bool, word: str) -> Check:
    def check(look: _Look, value: Json, schema: Object, path: Path, depth: int) -> Iterator[Fault]:
        limit = schema[key]
        if isinstance(value, kind) and is_number(limit):
            size, wanted = len(value), _exact(limit)
            if size > wanted if most else size < wanted:
                yield path, f"{size:,} {word} are {'more' if most else 'fewer'} than {spelled(limit, 20)}"

    return check


@lru_cache(maxsize=512)
def _expression(pattern: str) -> re.Pattern[str] | None:
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError, Warning):
        return None


def _pattern(look: _Look, value: Json, schema: Object, path: Path, depth: int) -> Iterator[Fault]:
    pattern = schema["pattern"]
    shape = _expression(pattern) if isinstance(pattern, str) else None
    if isinstance(value, str) and shape is not None and not shape.search(value):
        yield path, f"{spelled(value, 60)} does not match {spelled(pattern, 60)}"


def _unique(look: _Look, value: Json, schema: Object, path: Path, depth: int) -> Iterator[Fault]:
    items = _list(value) if schema["uniqueItems"] is True else []
    if any(_same(one, other) for at, one in enumerate(items) for other in items[:at]):
        yield path, "an item stands twice"


def _required(look: _Look, value: Json, schema: Object, path: Path, depth: int) -> Iterator[Fault]:
    if isinstance(value, dict):
        for name in _list(schema["required"]):
            if isinstance(name, str) and name not in value:
                yield path, f"`{name}` is missing"


def _properties(look: _Look, value: Json, schema: Object, path: Path, depth: int) -> Iterator[Fault]:
    if isinstance(value, dict):
        for name, inner in _table(schema["properties"]).items():
            if name in value:
                yield from look.at(value[name], inner, (path, name), depth + 1)


def _matching(schema: Object, name: str) -> Iterator[Json]:
    for pattern, inner in _table(schema.get("patternProperties")).items():
        shape = _expression(pattern)
        if shape is not None and shape.search(name):
            yield inner


def _patterned(look: _Look, value: Json, schema: Object, path: Path, depth: int) -> Iterator[Fault]:
    if isinstance(value, dict):
        for name, item in value.items():
            for inner in _matching(schema, name):
                yield from look.at(item, inner, (path, name), depth + 1)


def _others(look: _Look, value: Json, schema: Object, path: Path, depth: int) -> Iterator[Fault]:
    if not isinstance(value, dict):
        return
    known, inner = _table(schema.get("properties")), schema["additionalProperties"]
    for name, item in value.items():
        if name in known or next(_matching(schema, name), None) is not None:
            continue
        if inner is False:
            yield path, f"nothing is known as `{name}`"
        else:
            yield from look.at(item, inner, (path, name), depth + 1)


def _names(look: _Look, value: Json, schema: Object, path: Path, depth: int) -> Iterator[Fault]:
    if isinstance(value, dict):
        for name in value:
            if not look.fits(name, schema["propertyNames"], depth):
                yield path, f"`{name}` is no name that may stand here"


def _dependent(look: _Look, value: Json, schema: Object, path: Path, depth: int) -> Iterator[Fault]:
    if isinstance(value, dict):
        for name, wanted in _table(schema["dependentRequired"]).items():
            for other in _list(wanted) if name in value else ():
                if isinstance(other, str) and other not in value:
                    yield path, f"`{name}` demands `{other}`"


def _dependent_schemas(look: _Look, value: Json, schema: Object, path: Path, depth: int) -> Iterator[Fault]:
    if isinstance(value, dict):
        for name, inner in _table(schema["dependentSchemas"]).items():
            if name in value:
                yield from look.at(value, inner, path, depth + 1)


def _first_items(look: _Look, value: Json, schema: Object, path: Path, depth: int) -> Iterator[Fault]:
    if isinstance(value, list):
        for at, (item, inner) in enumerate(zip(value, _list(schema["prefixItems"]), strict=False)):
            yield from look.at(item, inner, (path, at), depth + 1)


def _items(look: _Look, value: Json, schema: Object, path: Path, depth: int) -> Iterator[Fault]:
    if isinstance(value, list) and not isinstance(schema["items"], list):
        first = len(_list(schema.get("prefixItems")))
        for at, item in enumerate(value[first:], first):
            yield from look.at(item, schema["items"], (path, at), depth + 1)


def _contains(look: _Look, value: Json, schema: Object, path: Path, depth: int) -> Iterator[Fault]:
    if not isinstance(value, list):
        return
    found = sum(look.fits(item, schema["contains"], depth) for item in value)
    least: Json = schema.get("minContains", 1)
    most: Json = schema.get("maxContains")
    if is_number(least) and found < _exact(least):
        yield path, "an item is missing that must be there"
    if is_number(most) and found > _exact(most):
        yield path, "an item stands too often"


def _all_of(look: _Look, value: Json, schema: Object, path: Path, depth: int) -> Iterator[Fault]:
    for inner in _list(schema["allOf"]):
        yield from look.at(value, inner, path, depth + 1)


def _any_of(look: _Look, value: Json, schema: Object, path: Path, depth: int) -> Iterator[Fault]:
    options = _list(schema["anyOf"])
    if options and not any(look.fits(value, inner, depth) for inner in options):
        yield from _nearest(look, value, options, path, depth)


def _one_of(look: _Look, value: Json, schema: Object, path: Path, depth: int) -> Iterator[Fault]:
    options = _list(schema["oneOf"])
    fitting = sum(look.fits(value, inner, depth) for inner in options)
    if fitting > 1:
        yield path, "it fits several of the forms that exclude each other"
    elif options and not fitting:
        yield from _nearest(look, value, options, path, depth)


def _nearest(look: _Look, value: Json, options: list[Json], path: Path, depth: int) -> Iterator[Fault]:
    """What keeps a value from the form that it is nearest to."""
    every = [list(look.at(value, inner, path, depth + 1)) for inner in options]
    yield from min(every, key=len)[:1] or [(path, "it fits none of the allowed forms")]


def _not(look: _Look, value: Json, schema: Object, path: Path, depth: int) -> Iterator[Fault]:
    if look.fits(value, schema["not"], depth):
        yield path, f"it must not match {spelled(schema['not'], 80)}"


def _if(look: _Look, value: Json, schema: Object, path: Path, depth: int) -> Iterator[Fault]:
    branch = "then" if look.fits(value, schema["if"], depth) else "else"
    if branch in schema:
        yield from look.at(value, schema[branch], path, depth + 1)


_CHECKS: Final[Mapping[str, Check]] = {
    "type": _type,
    "enum": _enum,
    "const": _const,
    "minimum": _bound("at least", lambda value, limit: value >= limit)("minimum"),
    "maximum": _bound("at most", lambda value, limit: value <= limit)("maximum"),
    "exclusiveMinimum": _bound("more than", lambda value, limit: value > limit)("exclusiveMinimum"),
    "exclusiveMaximum": _bound("less than", lambda value, limit: value < limit)("exclusiveMaximum"),
    "multipleOf": _bound("a multiple of", _multiple)("multipleOf"),
    "minLength": _counted(str, "minLength", False, "characters"),
    "maxLength": _counted(str, "maxLength", True, "characters"),
    "pattern": _pattern,
    "minItems": _counted(list, "minItems", False, "items"),
    "maxItems": _counted(list, "maxItems", True, "items"),
    "uniqueItems": _unique,
    "prefixItems": _first_items,
    "items": _items,
    "contains": _contains,
    "required": _required,
    "properties": _properties,
    "patternProperties": _patterned,
    "additionalProperties": _others,
    "propertyNames": _names,
    "minProperties": _counted(dict, "minProperties", False, "keys"),
    "maxProperties": _counted(dict, "maxProperties", True, "keys"),
    "dependentRequired": _dependent,
    "dependentSchemas": _dependent_schemas,
    "allOf": _all_of,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "not": _not,
    "if": _if,
}
