"""The two dialects that providers can enforce by a grammar: every object closed, few keywords, and in one of them every
property required. Checks say what stands in the way; `structured` removes what can go while the same shapes fit.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from toolwire.schema.combine import both, names_of, type_names
from toolwire.schema.refs import Lookup, references
from toolwire.schema.sentences import grown, sentence
from toolwire.schema.words import (
    DEFINITIONS,
    REFERENCES,
    Change,
    Converted,
    Notes,
    below,
    everywhere,
    guessed_type,
    mapped,
    refuse_depth,
    spelled,
)
from toolwire.wire import Json, Object, Path


class Strictness(Struct, frozen=True, kw_only=True):
    """What one provider's grammar can enforce."""

    keywords: frozenset[str]
    formats: frozenset[str]
    all_required: bool
    """Must every property be required?"""
    bare_references: bool
    """Must a reference stand alone?"""
    recursion: bool
    any_count: bool
    """May `minItems` be more than 1?"""
    object_root: bool
    """Must the root be an object, and no union?"""
    levels: int | None = None
    properties: int | None = None
    values: int | None = None
    """How many values all `enum` together may have."""
    text: int | None = None
    """How many characters all names and values together may have."""


_FORMATS: Final = frozenset("date-time time date duration email hostname ipv4 ipv6 uuid".split())
_CORE: Final = frozenset(
    "type properties required additionalProperties items enum const anyOf $ref $defs definitions title description"
    " $schema pattern format".split()
)

_BOUNDS: Final = frozenset("multipleOf minimum maximum exclusiveMinimum exclusiveMaximum minItems maxItems".split())

FULL: Final = Strictness(
    keywords=_CORE | _BOUNDS,
    formats=_FORMATS,
    all_required=True,
    bare_references=True,
    recursion=True,
    any_count=True,
    object_root=True,
    levels=10,
    properties=5_000,
    values=1_000,
    text=120_000,
)
"""Every property required; an optional one is a union with null."""

CLOSED: Final = Strictness(
    keywords=_CORE | {"default", "allOf", "minItems"},
    formats=_FORMATS | {"uri"},
    all_required=False,
    bare_references=False,
    recursion=False,
    any_count=False,
    object_root=False,
)
"""Properties may be optional; no bounds, no recursion."""

_UNENFORCEABLE: Final = ("(?=", "(?!", "(?<", "\\b", "\\B", "\\1", "\\2", "\\3", "(?P=")
_ANNOTATIONS: Final = frozenset("default examples example $comment deprecated readOnly writeOnly $id $anchor".split())


# --- checks ---------------------------------------------------------------------------------------------------------


def strict_problems(schema: Json, strictness: Strictness = FULL) -> list[Change]:
    """What keeps a provider from enforcing this schema; empty when it may be sent as strict."""
    refuse_depth(schema)
    notes = Notes()
    if not isinstance(schema, dict):
        return [Change(None, "the schema must be an object")]
    if strictness.object_root and (schema.get("type") != "object" or "anyOf" in schema):
        notes.add(None, "the root must be an object, and no union")
    todo: list[tuple[Json, Path, int]] = [(schema, None, 1)]
    while todo:
        node, path, level = todo.pop()
        if isinstance(node, dict):
            _check(node, path, strictness, notes)
            if strictness.levels is not None and level > strictness.levels:
                notes.add(path, f"more than {strictness.levels} levels of nesting")
            todo.extend(reversed([(child, place, level + _adds_level(place)) for child, place in below(node, path)]))
        elif not (isinstance(node, bool) and path is not None and path[1] == "additionalProperties"):
            notes.add(path, "the schema must be an object")
    _check_references(schema, strictness, notes)
    _check_size(schema, strictness, notes)
    return list(notes.all())


def _adds_level(place: Path) -> bool:
    """Alternatives and definitions stand beside what names them, not below."""
    if place is None:
        return False
    parent, key = place
    return key == "items" or (parent is not None and parent[1] == "properties")


def _check(node: Object, path: Path, strictness: Strictness, notes: Notes) -> None:
    for key in node:
        if key not in strictness.keywords:
            notes.add((path, key), f"`{key}` cannot be enforced")
    if "$ref" in node:
        if strictness.bare_references and not {"$ref", *DEFINITIONS}.issuperset(node):
            notes.add((path, "$ref"), "a reference must stand alone")
        return
    if {"type", "anyOf", "allOf", "enum", "const"}.isdisjoint(node):
        notes.add(path, "a type is missing")
    kinds = type_names(node.get("type"))
    if "object" in kinds or "properties" in node:
        _check_object(node, path, strictness, notes)
    if "array" in kinds and "items" not in node:
        notes.add(path, "`items` is missing")
    for key in ("format", "pattern", "minItems"):
        if key in node and not _stays(key, node[key], strictness):
            notes.add((path, key), f"`{key}` {spelled(node[key], 60)} cannot be enforced")


def _check_object(node: Object, path: Path, strictness: Strictness, notes: Notes) -> None:
    if node.get("additionalProperties") is not False:
        notes.add(path, "`additionalProperties` must be false")
    properties = node.get("properties")
    if not strictness.all_required:
        return
    if not isinstance(properties, dict):
        notes.add(path, "`properties` is missing")
        return
    required = set(names_of(node.get("required")))
    for name in properties:
        if name not in required:
            notes.add(((path, "properties"), name), "every property must be required")
    for name in sorted(required - properties.keys()):
        notes.add((path, "required"), f"{spelled(name, 80)} is required but no property")


def _is_enforceable(pattern: Json) -> bool:
    return not isinstance(pattern, str) or not any(part in pattern for part in _UNENFORCEABLE)


def _check_references(schema: Object, strictness: Strictness, notes: Notes) -> None:
    """Every reference local and found; where recursion is refused, none that leads back to itself."""
    lookup = Lookup(schema)
    leads: dict[int, list[tuple[int, Path]]] = {}
    todo: list[tuple[Json, Path, int]] = [(schema, None, id(schema))]
    seen = {id(schema)}
    while todo:
        node, path, owner = todo.pop()
        if not isinstance(node, dict):
            continue
        for key in REFERENCES:
            if key not in node:
                continue
            found = lookup.find(node[key])
            if found is None:
                notes.add((path, key), f"{spelled(node[key], 100)} points nowhere")
                continue
            target, place = found
            leads.setdefault(owner, []).append((id(target), (path, key)))
            if id(target) not in seen:
                seen.add(id(target))
                todo.append((target, place, id(target)))
        todo.extend((child, place, owner) for child, place in below(node, path) if not _is_definition(place))
    if not strictness.recursion:
        for place in _circles(leads):
            notes.add(place, "a schema that contains itself cannot be enforced")


def _is_definition(place: Path) -> bool:
    return place is not None and place[0] is not None and place[0][1] in DEFINITIONS


def _circles(leads: dict[int, list[tuple[int, Path]]]) -> list[Path]:
    """The references that lie on a circle, or between two: what is left when all ends and beginnings are taken off."""
    edges = [(start, target, place) for start, targets in leads.items() for target, place in targets]
    left = -1
    while len(edges) != left:
        left = len(edges)
        starts, targets = {start for start, _, _ in edges}, {target for _, target, _ in edges}
        edges = [edge for edge in edges if edge[1] in starts and edge[0] in targets]
    return [place for _, _, place in edges]


def _check_size(schema: Object, strictness: Strictness, notes: Notes) -> None:
    properties = values = text = 0
    todo: list[Json] = [schema]
    while todo:
        node = todo.pop()
        if not isinstance(node, dict):
            continue
        names = node.get("properties")
        fixed = [*(node["enum"] if isinstance(node.get("enum"), list) else ()), node.get("const")]
        if isinstance(names, dict):
            properties += len(names)
            text += sum(map(len, names))
        values += len(fixed) - 1
        text += sum(len(value) for value in fixed if isinstance(value, str))
        todo.extend(child for child, _ in below(node))
    for count, limit, what in (
        (properties, strictness.properties, "properties"),
        (values, strictness.values, "values of enums"),
        (text, strictness.text, "characters in names and values"),
    ):
        if limit is not None and count > limit:
            notes.add(None, f"{count:,} {what}; {limit:,} are the limit")


# --- making it so ---------------------------------------------------------------------------------------------------


def structured(schema: Json, strictness: Strictness = FULL) -> Converted:
    """The schema as near to strict as it can come while the same shapes fit: objects that say nothing of further
    properties are closed, what cannot be enforced is said in the description. An optional property stays optional and
    an open object open: ask `strict_problems` about the result."""
    if everywhere(schema, lambda node: _is_ready(node, strictness)):
        return Converted(schema)
    refuse_depth(schema)
    notes = Notes()
    named = any(reference != "#" and not reference.startswith("#/") for reference in references(schema))
    pinned = frozenset({"$id", "$anchor", "$dynamicAnchor"} if named else ())

    def convert(node: Json, path: Path) -> Json:
        if not isinstance(node, dict) or (path is not None and path[1] == "additionalProperties"):
            return node
        return _readied(mapped(node, path, convert), path, strictness, notes, pinned)

    return Converted(convert(schema, None), notes.all())


def _is_ready(node: Object, strictness: Strictness) -> bool:
    if not strictness.keywords.issuperset(node) or not {"oneOf", "format", "pattern"}.isdisjoint(node):
        return False
    if "$ref" in node:
        return not strictness.bare_references or len(node) == 1
    return "type" in node and ("additionalProperties" in node or not _is_object(node))


def _is_object(node: Object) -> bool:
    return "properties" in node or "object" in type_names(node.get("type"))


def _readied(node: Object, path: Path, strictness: Strictness, notes: Notes, pinned: frozenset[str]) -> Object:
    """One schema whose inner schemas are as ready as they can be; `pinned` are the keywords that references go by."""
    out = dict(node)
    _without_unions(out, path, strictness, notes)
    said = []
    for key in node:
        if key not in out or key in pinned or _stays(key, out[key], strictness):
            continue
        value = out.pop(key)
        text = "" if key in _ANNOTATIONS else sentence(key, value)
        if text:
            said.append(text)
        notes.add((path, key), f"`{key}` {'became a sentence of the description' if text else 'was left out'}")
    if said:
        description = out.get("description")
        out["description"] = grown(description if isinstance(description, str) else "", said)
    if "$ref" in out:
        out = _bare(out) if strictness.bare_references else out
    elif "type" not in out and (guess := guessed_type(out)) and guess in ("object", "array"):
        out = {"type": guess, **out}
    if _is_object(out) and "additionalProperties" not in out and "patternProperties" not in out:
        out["additionalProperties"] = False
    return node if out == node else out


def _stays(key: str, value: Json, strictness: Strictness) -> bool:
    if key == "format":
        return value in strictness.formats if isinstance(value, str) else False
    if key == "pattern":
        return _is_enforceable(value)
    if key == "minItems" and not strictness.any_count:
        return value in (0, 1)
    # these decide which shapes fit, and no words can stand for them: the schema stays as it is, and is not strict
    return key in strictness.keywords or key in ("patternProperties", "prefixItems", "allOf", "oneOf", *REFERENCES)


def _without_unions(out: Object, path: Path, strictness: Strictness, notes: Notes) -> None:
    """`oneOf` as `anyOf`, and an `allOf` of one as that one, where the grammar has no such words."""
    if "oneOf" in out and "anyOf" not in out:
        out["anyOf"] = out.pop("oneOf")
        notes.add((path, "oneOf"), "exactly one of the alternatives became any of them")
    parts = out.get("allOf") if "allOf" not in strictness.keywords else None
    if isinstance(parts, list) and len(parts) == 1 and isinstance(parts[0], dict):
        rest = {key: value for key, value in out.items() if key != "allOf"}
        out.clear()
        out.update(both(rest, parts[0], notes.there((path, "allOf"))))


def _bare(out: Object) -> Object:
    """A reference that stands alone; what was said beside it stands around it."""
    around = {key: value for key, value in out.items() if key in ("title", "description", "$schema", *DEFINITIONS)}
    if len(around) + 1 != len(out) or not set(around) - {*DEFINITIONS}:
        return out
    return {**around, "anyOf": [{"$ref": out["$ref"]}]}
