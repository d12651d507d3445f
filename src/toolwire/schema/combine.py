"""Combine schemas: the intersection of two (`allOf`, or a `$ref` beside other keywords), or one object for several;
and find the targets of `$ref`, inline them with a limit on copies, or rewrite them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import msgspec

from toolwire.core.json_values import Json, Number, Object, Path, encode, is_number, path_keys, to_float
from toolwire.schema.keywords import (
    ANNOTATION_KEYWORDS,
    DEFINITION_KEYWORDS,
    REFERENCE_KEYWORDS,
    SCHEMA_MAP_KEYWORDS,
    TYPE_NAMES,
    ChangeLog,
    convert_schemas,
    inner_schemas,
    object_or_empty,
    short_json,
    type_name,
    walk_schemas,
)

NoteChange: TypeAlias = Callable[[str], None]
"""Reports what a combination could not keep."""

UNSATISFIABLE_TYPE: list[str] = []
"""The value of `type` in a schema that no value can satisfy."""


# --- intersection ---


def intersect_schemas(first: Object, second: Object, note: NoteChange) -> Object:
    """A schema for values that match both. Two inner schemas at the same place become an `allOf`."""
    both = Intersection(first)
    both.add(second, note)
    return both.finish()


_MAX_SEARCHED_DESCRIPTION = 20_000
"""In a longer description, another one is not searched as a part of it."""


class Intersection:
    """The intersection of many schemas, one after another. What has grown is not copied for the next one, so that time
    is linear in the size of all."""

    def __init__(self, first: Object) -> None:
        self._out, self._is_copy = first, False
        self._maps: set[str] = set()
        """Keywords whose maps are copies that may grow."""
        self._lists: dict[str, set[bytes]] = {}
        """Keywords whose lists are copies that may grow, with the keys of their items."""
        self._texts: dict[str, None] = {}
        """Descriptions, where there are several."""
        self._text_length = 0

    def add(self, second: Object, note: NoteChange) -> None:
        if not self._out or self._out == second:
            if not self._texts:  # else there is more to say than the schema itself does
                self._out, self._is_copy = second, False
                self._maps.clear()
                self._lists.clear()
            return
        if not self._is_copy:
            self._out, self._is_copy = dict(self._out), True
        out = self._out
        for key, value in second.items():
            if key not in out:
                out[key] = value
            elif out[key] != value:
                self._combine(key, value, note)

    def _combine(self, key: str, value: Json, note: NoteChange) -> None:
        combine = _COMBINERS.get(key)
        if combine is not None:
            if not self._grow(key, value):
                self._out[key] = combine(self._out[key], value)
                self._maps.discard(key)
                self._lists.pop(key, None)
        elif key == "const":
            self._out["type"] = UNSATISFIABLE_TYPE
        elif key not in ANNOTATION_KEYWORDS:
            note(f"one of two different values of `{key}` was left out")

    def finish(self) -> Object:
        if self._texts:
            self._out["description"] = "\n".join(self._texts)
        return self._out

    def _grow(self, key: str, value: Json) -> bool:
        """Combine in place; False if these values cannot grow."""
        first = self._out[key]
        if isinstance(first, dict) and isinstance(value, dict) and _COMBINERS[key] is _intersect_maps:
            self._add_entries(key, first, value)
        elif isinstance(first, list) and isinstance(value, list) and _COMBINERS[key] is _join_lists:
            self._add_items(key, first, value)
        elif isinstance(first, str) and isinstance(value, str) and key == "description":
            self._add_description(first, value)
        else:
            return False
        return True

    def _add_entries(self, key: str, first: Object, second: Object) -> None:
        if key not in self._maps:
            self._maps.add(key)
            first = self._out[key] = dict(first)
        for name, value in second.items():
            first[name] = _intersect_inner(first[name], value) if name in first else value

    def _add_items(self, key: str, first: list[Json], second: list[Json]) -> None:
        if key not in self._lists:
            first = self._out[key] = unique_values(first)
            self._lists[key] = set(map(canonical_key, first))
        known = self._lists[key]
        for item in second:
            item_key = canonical_key(item)
            if item_key not in known:
                known.add(item_key)
                first.append(item)

    def _add_description(self, first: str, second: str) -> None:
        if not self._texts:
            self._texts[first] = None
            self._text_length = len(first)
        is_short = self._text_length <= _MAX_SEARCHED_DESCRIPTION
        if second in self._texts or (is_short and second in "\n".join(self._texts)):
            return
        self._texts[second] = None
        self._text_length += len(second) + 1


def _intersect_inner(first: Json, second: Json) -> Json:
    """The intersection of two inner schemas, left as an `allOf` until a conversion reaches it."""
    if first is True or first == {} or first == second:
        return second
    if second is True or second == {}:
        return first
    if first is False or second is False:
        return False
    return {"allOf": [first, second]}


def type_names(value: Json) -> list[str]:
    """The standard names in the value of `type`, without repetitions and unknown names."""
    if isinstance(value, str) and value in TYPE_NAMES:
        return [value]
    names = (type_name(item) for item in (value if isinstance(value, list) else [value]))
    return list(dict.fromkeys(name for name in names if name))


def _intersect_types(first: Json, second: Json) -> Json:
    ours, theirs = type_names(first), type_names(second)
    if not ours or not theirs:
        return UNSATISFIABLE_TYPE if UNSATISFIABLE_TYPE in (first, second) else first if ours else second
    kept = [name for name in ours if name in theirs or (name == "integer" and "number" in theirs)]
    kept += [name for name in theirs if name == "integer" and "number" in ours and name not in kept]
    return kept[0] if len(kept) == 1 else kept


def _combine_of(kind: type, combine: Callable[[Any, Any], Json]) -> Callable[[Json, Json], Json]:
    """Combine two values of this type; if only one has it, that one is the result."""

    def combine_usable(first: Json, second: Json) -> Json:
        if isinstance(first, kind) and isinstance(second, kind):
            return combine(first, second)
        return first if isinstance(first, kind) else second

    return combine_usable


def _intersect_entries(first: Object, second: Object) -> Json:
    shared = {name: _intersect_inner(first[name], second[name]) for name in second if name in first}
    return first | second | shared


def _intersect_enums(first: list[Json], second: list[Json]) -> Json:
    keys = {canonical_key(item) for item in second}
    return [item for item in first if canonical_key(item) in keys]


_intersect_maps = _combine_of(dict, _intersect_entries)
_join_lists = _combine_of(list, lambda first, second: unique_values([*first, *second]))


def _narrower_bound(choose: Callable[[float, float], float]) -> Callable[[Json, Json], Json]:
    def narrower(first: Json, second: Json) -> Json:
        if not is_number(first) or not is_number(second):
            return first if is_number(first) else second
        return first if choose(_to_float(first), _to_float(second)) == _to_float(first) else second

    return narrower


def _to_float(number: Number) -> float:
    try:
        return to_float(number)
    except OverflowError:
        return float("inf") if isinstance(number, int) and number > 0 else float("-inf")


_COMBINERS: dict[str, Callable[[Json, Json], Json]] = {
    "type": _intersect_types,
    "required": _join_lists,
    "allOf": _join_lists,
    "enum": _combine_of(list, _intersect_enums),
    "description": _combine_of(str, lambda first, second: first if second in first else f"{first}\n{second}"),
    "not": lambda first, second: {"anyOf": [first, second]},
    "nullable": lambda first, second: first is True and second is True,
    "uniqueItems": lambda first, second: first is True or second is True,
    **dict.fromkeys(SCHEMA_MAP_KEYWORDS - {"dependencies"}, _intersect_maps),
    **dict.fromkeys(("items", "additionalProperties", "contains", "propertyNames"), _intersect_inner),
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"), _narrower_bound(max)),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"), _narrower_bound(min)),
}


# --- alternatives ---


def merge_alternatives(options: list[Object], note: NoteChange) -> Object:
    """One object for several alternatives: the properties of all, required only if all require it, and a description of
    the alternatives."""
    properties: dict[str, list[Json]] = {}
    for option in options:
        for name, child in object_or_empty(option.get("properties")).items():
            properties.setdefault(name, []).append(child)
        for key in [key for key in option if key not in _MERGED_KEYWORDS]:
            note(f"`{key}` of an alternative was left out")
    out: Object = {"type": "object"}
    if properties:
        out["properties"] = {name: _merge_property(children) for name, children in properties.items()}
    lists = [set(string_items(option.get("required"))) for option in options]
    required = [name for name in string_items(options[0].get("required")) if all(name in names for names in lists)]
    if required:
        out["required"] = required
    if all(option.get("additionalProperties") is False for option in options):
        out["additionalProperties"] = False
    elif any(option.get("additionalProperties", True) not in (True, {}) for option in options):
        note("`additionalProperties` of an alternative was left out")
    for keyword in DEFINITION_KEYWORDS:
        for definitions in [option[keyword] for option in options if keyword in option]:
            out[keyword] = _intersect_maps(out.get(keyword, {}), definitions)
    out["description"] = f"One of: {'; '.join(_sketch_alternatives(options))}."
    return out


_MERGED_KEYWORDS = (
    frozenset({"type", "properties", "required", "additionalProperties", *DEFINITION_KEYWORDS}) | ANNOTATION_KEYWORDS
)
_SKETCH_LENGTH = 2_000


def string_items(required: Json) -> list[str]:
    return [name for name in required if isinstance(name, str)] if isinstance(required, list) else []


def _sketch_alternatives(options: list[Object]) -> Iterable[str]:
    """Each alternative as `{kind: "circle", r, label?}`."""
    length = 0
    for option in options:
        required = string_items(option.get("required"))
        members = object_or_empty(option.get("properties"))
        words = []
        for name in required:
            values = _listed_values(members.get(name)) or ()
            words.append(f"{name}: {short_json(values[0], 60)}" if len(values) == 1 else name)
        words += [f"{name}?" for name in members if name not in required]
        title = option.get("title")
        sketch = (f"{title} " if isinstance(title, str) and title else "") + "{" + ", ".join(words) + "}"
        length += len(sketch)
        if length > _SKETCH_LENGTH:
            yield "…"
            return
        yield sketch


def _merge_property(children: list[Json]) -> Json:
    """One schema for a property of several alternatives: their enums joined, or an `anyOf`."""
    variants = unique_values(children)
    if len(variants) == 1:
        return variants[0]
    if True in variants or {} in variants:
        return {}
    fixed = [_listed_values(variant) for variant in variants]
    rest = [
        {key: value for key, value in variant.items() if key not in ("const", "enum")}
        for variant in variants
        if isinstance(variant, dict)
    ]
    if None in fixed or any(other != rest[0] for other in rest):
        return {"anyOf": variants}
    return {**rest[0], "enum": unique_values([value for values in fixed if values is not None for value in values])}


def _listed_values(child: Json) -> list[Json] | None:
    if not isinstance(child, dict):
        return None
    if "const" in child:
        return [child["const"]]
    values = child.get("enum")
    return values if isinstance(values, list) else None


def unique_values(items: list[Json]) -> list[Json]:
    """The items in order, without repetitions."""
    found: dict[bytes, Json] = {}
    for item in items:
        found.setdefault(canonical_key(item), item)
    return list(found.values())


def canonical_key(item: Json) -> bytes:
    """A key for comparing JSON values; unlike Python's equality it distinguishes `true` from `1`."""
    try:
        return encode(item)
    except UnicodeEncodeError:
        return repr(item).encode("utf-8", "surrogatepass")


# --- local references (`$ref`) ---


COPY_BUDGET = 400_000
"""Maximum number of characters that references copy into one schema. Without a limit, a few definitions that refer to
each other could turn a kilobyte into gigabytes."""
COPY_FEE = 300
"""The fixed cost of a copy, so that the number of small copies is limited, too."""


_PERCENT_ESCAPE = re.compile(rb"%([0-9a-fA-F]{2})")


class ReferenceLookup:
    """Finds the targets of references in one schema, and limits how much is copied from them."""

    def __init__(self, root: Json) -> None:
        self.root = root
        self.remaining_budget = COPY_BUDGET
        self._sizes: dict[int, int] = {}
        self._anchors: dict[str, tuple[Json, Path]] | None = None

    def spend_budget(self, cost: int) -> bool:
        """Subtract the cost of a copy; False if the budget is used up."""
        self.remaining_budget -= cost
        return self.remaining_budget >= 0

    def copy_cost(self, target: Json) -> int:
        size = self._sizes.get(id(target))
        if size is None:
            try:
                size = len(encode(target))
            except (RecursionError, UnicodeError, TypeError, msgspec.EncodeError):
                size = COPY_BUDGET
            self._sizes[id(target)] = size
        return size + COPY_FEE

    def find_target(self, reference: Json) -> tuple[Json, Path] | None:
        """The schema that a reference points at, with its path; None if it is not in this schema."""
        if not isinstance(reference, str):
            return None
        base, _, fragment = reference.partition("#")
        if base and not (isinstance(self.root, dict) and self.root.get("$id") in (base, base + "#")):
            return self.find_anchors().get(reference)
        if not fragment:
            return self.root, None
        if not fragment.startswith("/"):
            return self.find_anchors().get(f"#{fragment}")
        if "%" in fragment:  # decoded here, because `urllib.parse` would take longer to import than this whole package
            raw = fragment.encode("utf-8", "surrogatepass")
            raw = _PERCENT_ESCAPE.sub(lambda found: bytes([int(found[1], 16)]), raw)
            fragment = raw.decode("utf-8", "replace")
        return self._walk_pointer(fragment)

    def _walk_pointer(self, fragment: str) -> tuple[Json, Path] | None:
        node: Json = self.root
        path: Path = None
        for key in fragment.split("/")[1:]:
            key = key.replace("~1", "/").replace("~0", "~")
            if isinstance(node, dict) and key in node:
                node, path = node[key], (path, key)
            elif isinstance(node, list) and key.isascii() and key.isdigit() and len(key) < 7 and int(key) < len(node):
                node, path = node[int(key)], (path, int(key))
            else:
                return None
        return (node, path) if isinstance(node, (dict, bool)) else None

    def find_anchors(self) -> dict[str, tuple[Json, Path]]:
        """The schemas with an `$anchor` (as `#name`) or an `$id`."""
        if self._anchors is None:
            self._anchors = {}
            todo: list[tuple[Json, Path]] = [(self.root, None)]
            while todo:
                node, path = todo.pop()
                if not isinstance(node, dict):
                    continue
                for key in ("$anchor", "$dynamicAnchor", "$id", "id"):
                    name = node.get(key)
                    if isinstance(name, str) and name:
                        self._anchors.setdefault(name if "nchor" not in key else f"#{name}", (node, path))
                todo.extend(inner_schemas(node, path))
        return self._anchors


_IDENTITY_KEYWORDS = frozenset({"$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$schema"})


def inline_references(
    lookup: ReferenceLookup,
    node: Object,
    path: Path,
    expanding: frozenset[int],
    notes: ChangeLog,
    stub_for: Callable[[Json], Object],
) -> tuple[Object, Path, frozenset[int]]:
    """A copy of the node with its references replaced by their targets, until none is left; its path, which is the
    target's if the node had only annotations; and the schemas being expanded. `stub_for` gives the replacement for a
    target that contains itself, or that would copy too much."""
    out = dict(node)
    while (key := next((key for key in REFERENCE_KEYWORDS if key in out), None)) is not None:
        reference = out.pop(key)
        note = notes.adder_at((path, key))
        found = lookup.find_target(reference)
        if found is None:
            note(f"{short_json(reference, 100)} has no target and was left out")
            continue
        target, place = found
        is_recursive = id(target) in expanding
        if is_recursive or not lookup.spend_budget(lookup.copy_cost(target)):
            refers = "schema refers to itself; the recursion" if is_recursive else "references copy too much; the rest"
            note(f"the {refers} was cut off")
            out = dict(intersect_schemas(out, stub_for(target), note))
        elif target is False:
            out["type"] = UNSATISFIABLE_TYPE
        elif isinstance(target, dict):
            expanding |= {id(target)}
            path = place if ANNOTATION_KEYWORDS.issuperset(out) else path
            copied = {name: value for name, value in target.items() if name not in _IDENTITY_KEYWORDS}
            out = dict(intersect_schemas(out, copied, note))
    return out, path, expanding


def find_references(schema: Json) -> set[str]:
    """All references in a schema."""
    nodes = walk_schemas(schema)
    return {node[key] for node, _ in nodes for key in REFERENCE_KEYWORDS if isinstance(node.get(key), str)}


def move_references(schema: Json, move: Callable[[str], str]) -> Json:
    """The schema with its references rewritten by `move`; the same object if none changed."""

    def convert(node: Object, path: Path) -> Object:
        references = {key: node[key] for key in REFERENCE_KEYWORDS if isinstance(node.get(key), str)}
        moved = {key: new for key, old in references.items() if (new := move(old)) != old}
        return node | moved if moved else node

    return convert_schemas(schema, convert)


def reference_to(path: Path) -> str:
    """The reference to the place at this path of a schema."""
    return "/".join(["#", *(escape_reference_key(str(key)) for key in path_keys(path))])


def escape_reference_key(key: str) -> str:
    """A key as one segment of a reference."""
    return key.replace("~", "~0").replace("/", "~1").replace("%", "%25")
