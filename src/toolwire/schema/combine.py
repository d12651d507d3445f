"""Two schemas as one: both at once (`allOf`, a reference beside other keywords), or either of several objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from toolwire.schema.words import ANNOTATIONS, DEFINITIONS, NAMED, TYPES, is_number, spelled, type_name
from toolwire.wire import Json, Number, Object, as_float, encode

Note: TypeAlias = Callable[[str], None]
"""Where a combination says what it could not keep."""

NOTHING_FITS: list[str] = []
"""The value of `type` in a schema that no value can satisfy."""


# --- both -----------------------------------------------------------------------------------------------------------


def both(first: Object, second: Object, note: Note) -> Object:
    """A schema that demands what both demand; inner schemas that meet are left as an `allOf` of the two."""
    if not first or first == second:
        return second
    out = dict(first)
    for key, value in second.items():
        if key not in out:
            out[key] = value
        elif out[key] != value:
            combine = _COMBINE.get(key)
            if combine is not None:
                out[key] = combine(out[key], value)
            elif key == "const":
                out["type"] = NOTHING_FITS
            elif key not in ANNOTATIONS:
                note(f"one of two different `{key}` that hold together was left out")
    return out


def _conjunction(first: Json, second: Json) -> Json:
    """Two inner schemas; combined only when someone descends to them."""
    if first is True or first == {} or first == second:
        return second
    if second is True or second == {}:
        return first
    if first is False or second is False:
        return False
    return {"allOf": [first, second]}


def type_names(value: Json) -> list[str]:
    """The plain names of a `type` keyword's value, each once; unknown names are left out."""
    if isinstance(value, str) and value in TYPES:
        return [value]
    names = (type_name(item) for item in (value if isinstance(value, list) else [value]))
    return list(dict.fromkeys(name for name in names if name))


def _types(first: Json, second: Json) -> Json:
    ours, theirs = type_names(first), type_names(second)
    if not ours or not theirs:
        return NOTHING_FITS if NOTHING_FITS in (first, second) else first if ours else second
    kept = [name for name in ours if name in theirs or (name == "integer" and "number" in theirs)]
    kept += [name for name in theirs if name == "integer" and "number" in ours and name not in kept]
    return kept[0] if len(kept) == 1 else kept


def _named(first: Json, second: Json) -> Json:
    if not isinstance(first, dict) or not isinstance(second, dict):
        return first if isinstance(first, dict) else second
    out = dict(first)
    for name, child in second.items():
        out[name] = _conjunction(out[name], child) if name in out else child
    return out


def _lists(first: Json, second: Json) -> Json:
    if not isinstance(first, list) or not isinstance(second, list):
        return first if isinstance(first, list) else second
    return distinct([*first, *second])


def _allowed(first: Json, second: Json) -> Json:
    if not isinstance(first, list) or not isinstance(second, list):
        return first if isinstance(first, list) else second
    keys = {key_of(item) for item in second}
    return [item for item in first if key_of(item) in keys]


def _texts(first: Json, second: Json) -> Json:
    if not isinstance(first, str) or not isinstance(second, str):
        return first if isinstance(first, str) else second
    return first if second in first else f"{first}\n{second}"


def _bound(choose: Callable[[float, float], float]) -> Callable[[Json, Json], Json]:
    def narrower(first: Json, second: Json) -> Json:
        if not is_number(first) or not is_number(second):
            return first if is_number(first) else second
        ours, theirs = _float(first), _float(second)
        return first if choose(ours, theirs) == ours else second

    return narrower


def _float(number: Number) -> float:
    try:
        return as_float(number)
    except OverflowError:
        return float("inf") if isinstance(number, int) and number > 0 else float("-inf")


def _unwanted(first: Json, second: Json) -> Json:
    return {"anyOf": [first, second]}


_COMBINE: dict[str, Callable[[Json, Json], Json]] = {
    "type": _types,
    "required": _lists,
    "allOf": _lists,
    "enum": _allowed,
    "description": _texts,
    "not": _unwanted,
    "nullable": lambda first, second: first is True and second is True,
    "uniqueItems": lambda first, second: first is True or second is True,
    **dict.fromkeys(NAMED - {"dependencies"}, _named),
    **dict.fromkeys(("items", "additionalProperties", "contains", "propertyNames"), _conjunction),
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"), _bound(max)),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"), _bound(min)),
}


# --- either ---------------------------------------------------------------------------------------------------------


def either(options: list[Object], note: Note) -> Object:
    """One object for several: every property that any of them has, what all of them require, and a sentence that
    says which belong together."""
    properties: dict[str, list[Json]] = {}
    for option in options:
        for name, child in _members(option).items():
            properties.setdefault(name, []).append(child)
        for key in [key for key in option if key not in _KEPT]:
            note(f"`{key}` of an alternative was left out")
    out: Object = {"type": "object"}
    if properties:
        out["properties"] = {name: _either_of(children) for name, children in properties.items()}
    demanded = [set(names_of(option.get("required"))) for option in options]
    required = [name for name in names_of(options[0].get("required")) if all(name in names for names in demanded)]
    if required:
        out["required"] = required
    if all(option.get("additionalProperties") is False for option in options):
        out["additionalProperties"] = False
    elif any(option.get("additionalProperties", True) not in (True, {}) for option in options):
        note("`additionalProperties` of an alternative was left out")
    for keyword in DEFINITIONS:
        for definitions in [option[keyword] for option in options if keyword in option]:
            out[keyword] = _named(out.get(keyword, {}), definitions)
    out["description"] = f"One of: {'; '.join(_sketches(options))}."
    return out


_KEPT = frozenset({"type", "properties", "required", "additionalProperties", *DEFINITIONS}) | ANNOTATIONS
_SKETCH_LENGTH = 2_000


def _members(option: Object) -> Object:
    properties = option.get("properties")
    return properties if isinstance(properties, dict) else {}


def names_of(required: Json) -> list[str]:
    return [name for name in required if isinstance(name, str)] if isinstance(required, list) else []


def _sketches(options: list[Object]) -> Iterable[str]:
    """Each alternative as `{kind: "circle", r, label?}`."""
    length = 0
    for option in options:
        required = names_of(option.get("required"))
        members = _members(option)
        optional = [f"{name}?" for name in members if name not in required]
        words = [f"{name}{_fixed(members.get(name))}" for name in required] + optional
        title = option.get("title")
        sketch = (f"{title} " if isinstance(title, str) and title else "") + "{" + ", ".join(words) + "}"
        length += len(sketch)
        if length > _SKETCH_LENGTH:
            yield "…"
            return
        yield sketch


def _fixed(child: Json) -> str:
    """The one value that a property of an alternative must have."""
    if not isinstance(child, dict):
        return ""
    if "const" in child:
        return f": {spelled(child['const'], 60)}"
    values = child.get("enum")
    return f": {spelled(values[0], 60)}" if isinstance(values, list) and len(values) == 1 else ""


def _either_of(children: list[Json]) -> Json:
    """One schema for a property that alternatives describe differently: their values together, or an `anyOf`."""
    variants = distinct(children)
    if len(variants) == 1:
        return variants[0]
    if True in variants or {} in variants:
        return {}
    fixed = [_values(variant) for variant in variants]
    rest = [
        {key: value for key, value in variant.items() if key not in ("const", "enum")}
        for variant in variants
        if isinstance(variant, dict)
    ]
    if None in fixed or any(other != rest[0] for other in rest):
        return {"anyOf": variants}
    return {**rest[0], "enum": distinct([value for values in fixed if values is not None for value in values])}


def _values(child: Json) -> list[Json] | None:
    if not isinstance(child, dict):
        return None
    if "const" in child:
        return [child["const"]]
    values = child.get("enum")
    return values if isinstance(values, list) else None


def distinct(items: list[Json]) -> list[Json]:
    """Each item once, in order."""
    found: dict[bytes, Json] = {}
    for item in items:
        found.setdefault(key_of(item), item)
    return list(found.values())


def key_of(item: Json) -> bytes:
    """What tells JSON values apart; unlike Python's own equality it knows `true` from `1`."""
    try:
        return encode(item)
    except UnicodeEncodeError:
        return repr(item).encode("utf-8", "surrogatepass")
