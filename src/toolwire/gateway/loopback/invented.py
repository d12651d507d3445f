"""Values for a JSON Schema, made of what a text offers: what is required always, the rest only when it is offered."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import UNSET, Raw, UnsetType

from toolwire.gateway.loopback.fitting import EXAMPLES, Taking, argv, kind_of
from toolwire.gateway.loopback.offered import Offer
from toolwire.schema import standard
from toolwire.schema.combine import both
from toolwire.schema.refs import Lookup, resolved
from toolwire.schema.words import REFERENCES, Notes, is_number
from toolwire.wire import Json, Malformed, Object, as_float

Made = Json | UnsetType
"""UNSET: the text offers nothing, and nothing is needed."""

DEEP = 12
"""Below this only what is required is made, so that schemas which refer to themselves come to an end."""
DEEPEST = 40


def arguments(schema: Json, offer: Offer) -> Object:
    """The arguments of a call, for the parameters of its tool."""
    made = value(schema, offer)
    return made if isinstance(made, dict) else {}


def value(schema: Json, offer: Offer) -> Json:
    """A value that the schema allows."""
    try:
        plain = standard(schema).schema
    except Malformed:
        return {}
    made = _Maker(plain, offer).make(plain, "", True, 0)
    return {} if made is UNSET else made


def simplified(lookup: Lookup, node: Json) -> Object:
    """A schema with its references and its `allOf` written out, at this level."""
    if not isinstance(node, dict):
        return {}
    out: Object = node
    notes = Notes()
    for _ in range(DEEP):
        if any(key in out for key in REFERENCES):
            out, _path, _opened = resolved(lookup, out, None, frozenset(), notes, lambda target: {})
        parts = out.get("allOf")
        if not isinstance(parts, list):
            break
        out = {key: inner for key, inner in out.items() if key != "allOf"}
        for part in parts:
            if isinstance(part, dict):
                out = both(out, part, notes.there(None))
    return out


# --- leaves ---------------------------------------------------------------------------------------------------------

_FORMAT_EXAMPLES: Final[Mapping[str, str]] = {
    "uuid": "00000000-0000-4000-8000-000000000000",
    "ipv4": "127.0.0.1",
    "ipv6": "::1",
    "hostname": "example.com",
    "duration": "P1D",
    "byte": "ZXhhbXBsZQ==",
    "uri": EXAMPLES["url"],
    "url": EXAMPLES["url"],
    "email": EXAMPLES["email"],
    "date": EXAMPLES["date"],
    "date-time": EXAMPLES["moment"],
    "time": "12:00:00Z",
}
_FORMAT_LOOKS: Final[Mapping[str, str]] = {
    "uri": r"[A-Za-z][\w+.-]*:\S+",
    "url": r"https?://\S+",
    "email": r"\S+@\S+",
    "date": r"\d{4}-\d{2}-\d{2}",
    "date-time": r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})",
    "time": r"\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})?",
    "uuid": r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
    "ipv4": r"\d+(\.\d+){3}",
    "ipv6": r"[0-9a-fA-F:]+",
    "hostname": r"[\w.-]+",
    "duration": r"P\S+",
    "byte": r"[A-Za-z0-9+/=]*",
}
_SPECIMENS: Final = (
    "example a A abc Abc ABC a1 A1 abc123 1 0 00 42 123456 1.0.0 v1.0.0 0x0 #000000 en en-US a/b a.b a-b a_b $a @a a: "
    "/a owner/repo https://example.com/ user@example.com 2026-01-01 2026-01-01T12:00:00Z 12:00 12:00:00 1h 1d "
    "+10000000000 00000000-0000-4000-8000-000000000000 0000000000000000000000000000000000000000 12345678901 {} [] "
    "127.0.0.1 USD 1:1 1-00000000-0000-4000-8000-000000000000"
).split()
"""Texts to try where a pattern is demanded: nothing here can read one backwards."""
_NESTED: Final = re.compile(r"[+*}]\)*[+*{]")
"""Patterns that could take for ever are not tried."""


def _pattern(node: Object) -> re.Pattern[str] | None:
    pattern = node.get("pattern")
    if not isinstance(pattern, str) or _NESTED.search(pattern):
        return None
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return None


def _fitted(text: str, node: Object) -> str | None:
    """The text within the bounds of its schema; None when it cannot be brought there."""
    least, most = _whole(node.get("minLength"), 0), _whole(node.get("maxLength"), len(text))
    if len(text) < least:
        text = (text or "example ") * (least // max(len(text), 1) + 1)
        text = text[:least]
    text = text[:most]
    look = _FORMAT_LOOKS.get(str(node.get("format", "")))
    if look is not None and not re.fullmatch(look, text):
        return None
    pattern = _pattern(node)
    return None if pattern is not None and not pattern.search(text[:400]) else text


def _whole(given: Json, otherwise: int) -> int:
    return int(min(as_float(given), 100_000.0)) if is_number(given) else otherwise


def _bounded(number: float, node: Object, whole: bool) -> int | float:
    """The number nearest to this one that the schema allows."""
    step = 1.0 if whole else 0.5
    bounds: tuple[tuple[str, Callable[[float, float], float], float], ...] = (
        ("minimum", max, 0.0),
        ("exclusiveMinimum", max, step),
        ("maximum", min, 0.0),
        ("exclusiveMaximum", min, -step),
    )
    for key, better, gap in bounds:
        if is_number(node.get(key)):
            number = better(number, as_float(node[key]) + gap)
    multiple: Json = node.get("multipleOf", 0)
    if is_number(multiple) and (factor := as_float(multiple)) > 0:
        number = -(-number // factor) * factor
    return int(number) if whole or number.is_integer() else number


def _as_number(given: Json) -> float | None:
    if isinstance(given, str) and re.fullmatch(r"-?\d{1,15}(\.\d{1,10})?", given):
        return float(given)
    return as_float(given) if is_number(given) else None


# --- schemas --------------------------------------------------------------------------------------------------------

_TYPES: Final[Mapping[str, Callable[[Json], bool]]] = {
    "string": lambda given: isinstance(given, str),
    "integer": lambda given: is_number(given) and as_float(given).is_integer(),
    "number": is_number,
    "boolean": lambda given: isinstance(given, bool),
    "array": lambda given: isinstance(given, list),
    "object": lambda given: isinstance(given, dict),
    "null": lambda given: given is None,
}
_TELLS: Final = (
    ("object", ("properties", "required", "additionalProperties", "minProperties")),
    ("array", ("items", "prefixItems", "minItems")),
    ("number", ("minimum", "maximum", "multipleOf", "exclusiveMinimum")),
)
"""Keywords that tell a type where none is named."""


def _types(node: Object) -> list[str]:
    named = node.get("type")
    given = [named] if isinstance(named, str) else named if isinstance(named, list) else []
    known = [kind for kind in given if kind in _TYPES]
    return known or [next((kind for kind, keys in _TELLS if any(key in node for key in keys)), "string")]


def _examples(node: Object) -> list[Json]:
    examples = node.get("examples")
    return examples if isinstance(examples, list) else []


class _Maker:
    """Walks through one schema with one offer."""

    def __init__(self, root: Json, offer: Offer) -> None:
        self.lookup = Lookup(root)
        self.taking = Taking(offer)

    def make(self, schema: Json, name: str, needed: bool, depth: int) -> Made:
        if depth > DEEPEST or (depth > DEEP and not needed):
            return UNSET
        node = simplified(self.lookup, schema)
        if "const" in node:
            return node["const"] if needed else UNSET
        if isinstance(node.get("enum"), list) and node["enum"]:
            return self._enum(node, name, needed)
        for key in ("anyOf", "oneOf"):
            if isinstance(node.get(key), list) and node[key]:
                return self._branch(node, key, name, needed, depth)
        types = _types(node)
        given = self.taking.pair(name)
        if given is not UNSET and not isinstance(given, str) and any(_TYPES[kind](given) for kind in types):
            return given
        return self._one_of(types, node, name, needed, depth)

    def _one_of(self, types: list[str], node: Object, name: str, needed: bool, depth: int) -> Made:
        """A value of the first type that the text offers one for."""
        real = [kind for kind in types if kind != "null"]
        if not real:
            return None if needed else UNSET
        for kind in real:
            made = self._typed(kind, node, name, False, depth)
            if made is not UNSET:
                return made
        if not needed:
            return UNSET
        told = [node["default"]] if "default" in node else _examples(node) if "string" not in types else []
        fitting = [one for one in told if any(_TYPES[kind](one) for kind in types)]
        if fitting:
            return fitting[0]
        return None if "null" in types else self._typed(real[0], node, name, True, depth)

    def _typed(self, kind: str, node: Object, name: str, needed: bool, depth: int) -> Made:
        if kind == "object":
            return self._object(node, name, needed, depth)
        if kind == "array":
            return self._array(node, name, needed, depth)
        if kind == "string":
            return self._string(node, name, needed)
        if kind == "boolean":
            return self._boolean(name, needed)
        return self._number(node, name, needed, kind == "integer")

    def _branch(self, node: Object, key: str, name: str, needed: bool, depth: int) -> Made:
        """The first branch that the text offers something for; null rather than something made up."""
        rest = {word: inner for word, inner in node.items() if word != key}
        note = Notes().there(None)
        branches = [both(rest, simplified(self.lookup, one), note) for one in node[key] if isinstance(one, dict)]
        real = [one for one in branches if one.get("type") != "null" and one.get("const", 0) is not None]
        for one in real if len(branches) > 1 else ():
            made = self.make(one, name, False, depth + 1)
            if made is not UNSET:
                return made
        if not needed:
            return UNSET
        if len(real) < len(branches) or not real:
            return None
        return self.make(real[0], name, True, depth + 1)

    def _enum(self, node: Object, name: str, needed: bool) -> Made:
        """The longest value that is mentioned, else the first."""
        choices: list[Json] = node["enum"]
        if not needed and "type" in node:
            choices = [one for one in choices if any(_TYPES[kind](one) for kind in _types(node))]
        given = self.taking.pair(name)
        for choice in choices:
            if given is not UNSET and (choice == given or str(choice).lower() == str(given).lower()):
                return choice
        mentioned = [one for one in choices if isinstance(one, str) and self.taking.mentions(one)]
        if mentioned:
            return max(mentioned, key=len)
        if not needed:
            return UNSET
        default = node.get("default", UNSET)
        return default if default in choices else choices[0]

    def _string(self, node: Object, name: str, needed: bool) -> Made:
        given = self.taking.pair(name)
        if given is not UNSET and (fitted := _fitted(_spelled(given), node)) is not None:
            return fitted
        kind = kind_of(name, node)
        found = self.taking.text(kind, False) if kind else None
        sure = needed or "pattern" not in node or _pattern(node) is not None
        if found is not None and sure and (fitted := _fitted(found, node)) is not None:
            return fitted
        if not needed:
            return UNSET
        example = _FORMAT_EXAMPLES.get(str(node.get("format", "")))
        tries = (example or self.taking.text(kind, True) or "example", *_examples(node), *_SPECIMENS)
        fits = (fitted for one in tries if isinstance(one, str) and (fitted := _fitted(one, node)) is not None)
        return next(fits, tries[0])

    def _number(self, node: Object, name: str, needed: bool, whole: bool) -> Made:
        given = self.taking.pair(name)
        number = _as_number(given) if given is not UNSET else None
        if number is None:
            number = _as_number(self.taking.number(name, needed))
        if number is None and not needed:
            return UNSET
        return _bounded(1.0 if number is None else number, node, whole)

    def _boolean(self, name: str, needed: bool) -> Made:
        given = self.taking.pair(name)
        if isinstance(given, (str, bool)) and str(given).lower() in _FLAGS:
            return _FLAGS[str(given).lower()]
        flag = self.taking.flag(name)
        if flag is not None:
            return flag
        return False if needed else UNSET

    # --- inner schemas ---

    def _array(self, node: Object, name: str, needed: bool, depth: int) -> Made:
        first = node.get("prefixItems")
        if isinstance(first, list) and first:
            return [self._filled(one, name, depth) for one in first] if needed else UNSET
        schema = node.get("items")
        items = simplified(self.lookup, schema)
        least, most = _whole(node.get("minItems"), 0), _whole(node.get("maxItems"), 64)
        made = self._items(items, name, needed)
        if not made and not needed:
            return UNSET
        if not made and schema is not False:
            made = [self._filled(schema, name, depth)]
        while made and len(made) < min(least, 64):
            made.append(_other(made[0], len(made)) if node.get("uniqueItems") else made[0])
        return made[:most]

    def _items(self, items: Object, name: str, needed: bool) -> list[Json]:
        """The several values that the text offers."""
        choices = items.get("enum")
        if isinstance(choices, list):
            return [one for one in choices if isinstance(one, str) and self.taking.mentions(one)]
        kind = _types(items)[0] if not {"anyOf", "oneOf", "const"} & items.keys() else ""
        given = self.taking.pair(name)
        if kind == "string":
            wanted = kind_of(name, items)
            if isinstance(given, str):
                values = given.split(",")
            elif wanted == "command" and not name.lower().endswith("s"):
                command = self.taking.text(wanted, needed)
                values = argv(command) if command else []
            else:
                values = self.taking.texts(wanted, needed) if wanted or needed else []
            fits = [_fitted(one, items) for one in values]
            return [one for one in fits if one is not None]
        if kind in ("integer", "number") and needed:
            return [_bounded(float(one), items, kind == "integer") for one in self.taking.numbers()]
        return []

    def _filled(self, schema: Json, name: str, depth: int) -> Json:
        made = self.make(schema, name, True, depth + 1)
        return None if made is UNSET else made

    def _object(self, node: Object, name: str, needed: bool, depth: int) -> Made:
        properties = node.get("properties")
        known: Object = properties if isinstance(properties, dict) else {}
        listed = node.get("required")
        required = {key for key in listed if isinstance(key, str)} if isinstance(listed, list) else set()
        if not needed and not self._offers(known, depth):
            return UNSET
        out: Object = {}
        for key in sorted(known, key=lambda one: one not in required):
            made = self.make(known[key], key, key in required, depth + 1)
            if made is not UNSET:
                out[key] = made
        more = node.get("additionalProperties")
        for key in sorted(required - out.keys()):
            out[key] = self._filled(known.get(key, more if isinstance(more, dict) else {}), key, depth)
        for key in known:
            if len(out) >= _whole(node.get("minProperties"), 0):
                break
            if key not in out:
                out[key] = self._filled(known[key], key, depth)
        return {key: out[key] for key in (*known, *out) if key in out}

    def _offers(self, properties: Object, depth: int) -> bool:
        """Does the text say something under the very name of one of these?"""
        return depth < DEEP and any(self.taking.pair(key) is not UNSET for key in properties)


_FLAGS: Final = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def _spelled(given: Json) -> str:
    return given if isinstance(given, str) else bytes(given).decode() if isinstance(given, Raw) else str(given)


def _other(one: Json, number: int) -> Json:
    """Another value of the same sort, for lists whose members must differ."""
    if isinstance(one, str):
        return f"{one} {number + 1}"
    return one + number if isinstance(one, (int, float)) and not isinstance(one, bool) else one
