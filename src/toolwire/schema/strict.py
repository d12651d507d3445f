"""Strict schemas, which OpenAI and Anthropic enforce while the model writes: closed objects and few keywords.

`strict_problems` says why a schema is not strict. `convert_to_strict` changes what it can without accepting or refusing
other objects.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from toolwire.core.converted_schema import ConvertedSchema, SchemaChange
from toolwire.core.json_values import Json, Object, Path
from toolwire.schema.combine import ReferenceLookup, find_references, intersect_schemas, string_items, type_names
from toolwire.schema.keywords import (
    DEFINITION_KEYWORDS,
    KEYWORDS_BY_TYPE,
    REFERENCE_KEYWORDS,
    ChangeLog,
    all_schemas_pass,
    append_sentences,
    convert_inner_schemas,
    guess_type,
    holding_keyword,
    inner_schemas,
    keyword_sentence,
    refuse_deep_nesting,
    short_json,
    walk_schemas,
)


class Strictness(Struct, frozen=True, kw_only=True):
    """What one provider can enforce."""

    keywords: frozenset[str]
    formats: frozenset[str]
    all_required: bool = False
    """Whether every property must be required."""
    references_stand_alone: bool = False
    """Whether a schema with `$ref` must have no other keywords."""
    allows_recursion: bool = False
    allows_any_min_items: bool = False
    """Whether `minItems` may be more than 1."""
    needs_scalar_values: bool = False
    """Whether the values of `enum` must not be objects or arrays."""
    needs_object_root: bool = False
    """Whether the root must be an object and not a union."""
    max_levels: int | None = None
    max_properties: int | None = None
    max_enum_values: int | None = None
    """The maximum number of values of all enums together."""
    max_text_length: int | None = None
    """The maximum number of characters of all names and values together."""
    max_optional_properties: int | None = None
    max_unions: int | None = None


_FORMATS: Final = frozenset("date-time time date duration email hostname ipv4 ipv6 uuid".split())
_CORE_KEYWORDS: Final = frozenset(
    "type properties required additionalProperties items enum const anyOf $ref $defs definitions title description"
    " $schema pattern format".split()
)

_BOUND_KEYWORDS: Final = frozenset((*KEYWORDS_BY_TYPE["number"], "minItems", "maxItems"))

STRICT_ALL_REQUIRED: Final = Strictness(
    keywords=_CORE_KEYWORDS | _BOUND_KEYWORDS,
    formats=_FORMATS,
    all_required=True,
    references_stand_alone=True,
    allows_recursion=True,
    allows_any_min_items=True,
    needs_object_root=True,
    max_levels=10,
    max_properties=5_000,
    max_enum_values=1_000,
    max_text_length=120_000,
)
"""OpenAI: every property is required; an optional one is a union with null."""

STRICT_WITH_OPTIONAL: Final = Strictness(
    keywords=_CORE_KEYWORDS | {"default", "allOf", "minItems"},
    formats=_FORMATS | {"uri"},
    needs_scalar_values=True,
    max_optional_properties=24,
    max_unions=16,
)
"""Anthropic: some properties may be optional; no bounds and no recursion."""

_UNENFORCEABLE_PATTERN_SYNTAX: Final = ("(?=", "(?!", "(?<", "\\b", "\\B", "\\1", "\\2", "\\3", "(?P=")
_DROPPED_ANNOTATIONS: Final = frozenset(
    "default examples example $comment deprecated readOnly writeOnly $id $anchor".split()
)


# --- checks ---


def strict_problems(schema: Json, strictness: Strictness = STRICT_ALL_REQUIRED) -> list[SchemaChange]:
    """Why a provider cannot enforce this schema; empty if it can be sent as strict."""
    refuse_deep_nesting(schema)
    notes = ChangeLog()
    if not isinstance(schema, dict):
        return [SchemaChange(None, "the schema must be an object")]
    if strictness.needs_object_root and (schema.get("type") != "object" or "anyOf" in schema):
        notes.add(None, "the root must be an object and not a union")
    todo: list[tuple[Json, Path, int]] = [(schema, None, 1)]
    while todo:
        node, path, level = todo.pop()
        if isinstance(node, dict):
            _check_node(node, path, strictness, notes)
            if strictness.max_levels is not None and level > strictness.max_levels:
                notes.add(path, f"more than {strictness.max_levels} levels of nesting")
            inner = [(child, place, level + _adds_level(place)) for child, place in inner_schemas(node, path)]
            todo += reversed(inner)
        elif not (isinstance(node, bool) and holding_keyword(path) == "additionalProperties"):
            notes.add(path, "the schema must be an object")
    _check_references(schema, strictness, notes)
    _check_size(schema, strictness, notes)
    return list(notes.changes())


def _adds_level(place: Path) -> bool:
    """Whether this place counts as a level of nesting; alternatives and definitions do not."""
    return holding_keyword(place) in ("items", "properties")


def unenforceable(key: str) -> str:
    """The problem of a keyword that no strict schema may have."""
    return f"`{key}` cannot be enforced"


def _check_node(node: Object, path: Path, strictness: Strictness, notes: ChangeLog) -> None:
    for key in node:
        if key not in strictness.keywords:
            notes.add((path, key), unenforceable(key))
    if "$ref" in node:
        if strictness.references_stand_alone and not {"$ref", *DEFINITION_KEYWORDS}.issuperset(node):
            notes.add((path, "$ref"), "`$ref` cannot be combined with other keywords")
        return
    if {"type", "anyOf", "allOf", "enum", "const"}.isdisjoint(node):
        notes.add(path, "a type is missing")
    kinds = type_names(node.get("type"))
    if "object" in kinds or "properties" in node:
        _check_object(node, path, strictness, notes)
    if "array" in kinds and "items" not in node:
        notes.add(path, "`items` is missing")
    for key in ("format", "pattern", "minItems", "allOf", "enum"):
        if key in node and not _is_enforceable_keyword(key, node[key], strictness):
            notes.add((path, key), f"`{key}` {short_json(node[key], 60)} cannot be enforced")


def _check_object(node: Object, path: Path, strictness: Strictness, notes: ChangeLog) -> None:
    if node.get("additionalProperties") is not False:
        notes.add(path, "`additionalProperties` must be false")
    properties = node.get("properties")
    if not strictness.all_required:
        return
    if not isinstance(properties, dict):
        notes.add(path, "`properties` is missing")
        return
    required = set(string_items(node.get("required")))
    for name in properties:
        if name not in required:
            notes.add(((path, "properties"), name), "every property must be required")
    for name in sorted(required - properties.keys()):
        notes.add((path, "required"), f"{short_json(name, 80)} is required but not a property")


def _check_references(schema: Object, strictness: Strictness, notes: ChangeLog) -> None:
    """Report references without a target and, where recursion is not allowed, recursive ones."""
    lookup = ReferenceLookup(schema)
    leads: dict[int, list[tuple[int, Path]]] = {}
    todo: list[tuple[Json, Path, int]] = [(schema, None, id(schema))]
    seen = {id(schema)}
    while todo:
        node, path, owner = todo.pop()
        if not isinstance(node, dict):
            continue
        for key in filter(node.__contains__, REFERENCE_KEYWORDS):
            found = lookup.find_target(node[key])
            if found is None:
                notes.add((path, key), f"{short_json(node[key], 100)} has no target")
                continue
            target, place = found
            leads.setdefault(owner, []).append((id(target), (path, key)))
            if id(target) not in seen:
                seen.add(id(target))
                todo.append((target, place, id(target)))
        inner = inner_schemas(node, path)
        todo.extend(
            (child, place, owner) for child, place in inner if holding_keyword(place) not in DEFINITION_KEYWORDS
        )
    if not strictness.allows_recursion:
        for place in _references_in_cycles(leads):
            notes.add(place, "a schema that contains itself cannot be enforced")


def _references_in_cycles(leads: dict[int, list[tuple[int, Path]]]) -> list[Path]:
    """The references that are part of a cycle, or between two cycles: all others are removed from both ends."""
    edges = [(start, target, place) for start, targets in leads.items() for target, place in targets]
    left = -1
    while len(edges) != left:
        left = len(edges)
        starts, targets = {start for start, _, _ in edges}, {target for _, target, _ in edges}
        edges = [edge for edge in edges if edge[1] in starts and edge[0] in targets]
    return [place for _, _, place in edges]


def _check_size(schema: Object, strictness: Strictness, notes: ChangeLog) -> None:
    properties = values = text = 0
    for node, _ in walk_schemas(schema):
        names = node.get("properties")
        fixed = [*(node["enum"] if isinstance(node.get("enum"), list) else ()), node.get("const")]
        if isinstance(names, dict):
            properties += len(names)
            text += sum(map(len, names))
        values += len(fixed) - 1
        text += sum(len(value) for value in fixed if isinstance(value, str))
    optional, unions = count_optional_and_unions(schema)
    for count, limit, what in (
        (properties, strictness.max_properties, "properties"),
        (values, strictness.max_enum_values, "values of enums"),
        (text, strictness.max_text_length, "characters in names and values"),
        (optional, strictness.max_optional_properties, "optional properties"),
        (unions, strictness.max_unions, "unions"),
    ):
        if limit is not None and count > limit:
            notes.add(None, f"{count:,} {what}; {limit:,} are the limit")


def count_optional_and_unions(schema: Json) -> tuple[int, int]:
    """How many properties are optional, and how many schemas are a union: Anthropic limits both."""
    optional = unions = 0
    for node, _ in walk_schemas(schema):
        names = node.get("properties")
        if isinstance(names, dict):
            optional += len(names.keys() - string_items(node.get("required")))
        unions += "anyOf" in node or (isinstance(node.get("type"), list) and len(node["type"]) > 1)
    return optional, unions


# --- conversion ---


def convert_to_strict(schema: Json, strictness: Strictness = STRICT_ALL_REQUIRED) -> ConvertedSchema:
    """The schema, as strict as possible without changing which values match. Objects without `additionalProperties` are
    closed, and constraints that cannot be enforced move into the description. Optional properties stay optional and
    open objects stay open, so check the result with `strict_problems`."""
    if all_schemas_pass(schema, lambda node: _is_strict_node(node, strictness)):
        return ConvertedSchema(schema)
    refuse_deep_nesting(schema)
    if _uses_anchors(schema):
        made = _make_strict(schema, strictness, _IDENTITY_KEYWORDS)
        if _uses_anchors(made.schema):  # not if the reference became a part of a sentence
            return made
    return _make_strict(schema, strictness, frozenset())


_IDENTITY_KEYWORDS: Final = frozenset({"$id", "$anchor", "$dynamicAnchor"})


def _uses_anchors(schema: Json) -> bool:
    return any(reference != "#" and not reference.startswith("#/") for reference in find_references(schema))


def _make_strict(schema: Json, strictness: Strictness, kept_keywords: frozenset[str]) -> ConvertedSchema:
    notes = ChangeLog()

    def convert(node: Json, path: Path) -> Json:
        if not isinstance(node, dict) or holding_keyword(path) == "additionalProperties":
            return node
        return _make_strict_node(convert_inner_schemas(node, path, convert), path, strictness, notes, kept_keywords)

    return ConvertedSchema(convert(schema, None), notes.changes())


_SUSPECT_KEYWORDS: Final = frozenset({"oneOf", "allOf", "format", "pattern", "minItems"})
"""Whether these can be enforced depends on their value."""


def _is_strict_node(node: Object, strictness: Strictness) -> bool:
    if not strictness.keywords.issuperset(node) or not _SUSPECT_KEYWORDS.isdisjoint(node):
        return False
    if "$ref" in node:
        return not strictness.references_stand_alone or len(node) == 1
    return "type" in node and ("additionalProperties" in node or not _is_object(node))


def _is_object(node: Object) -> bool:
    return "properties" in node or "object" in type_names(node.get("type"))


def _make_strict_node(
    node: Object, path: Path, strictness: Strictness, notes: ChangeLog, kept_keywords: frozenset[str]
) -> Object:
    """Convert one schema whose inner schemas are already converted; references need the `kept_keywords`."""
    out = dict(node)
    _replace_unions(out, path, strictness, notes)
    sentences = []
    for key in node:
        if key not in out or key in kept_keywords or _is_enforceable_keyword(key, out[key], strictness):
            continue
        if key in _IRREPLACEABLE_KEYWORDS:
            continue
        value = out.pop(key)
        text = "" if key in _DROPPED_ANNOTATIONS else keyword_sentence(key, value)
        if text:
            sentences.append(text)
        notes.add((path, key), f"`{key}` {'became a sentence of the description' if text else 'was left out'}")
    if sentences:
        out["description"] = append_sentences(out.get("description"), sentences)
    if "$ref" in out:
        out = _isolate_reference(out) if strictness.references_stand_alone else out
    elif "type" not in out and (guess := guess_type(out)) in ("object", "array"):
        out = {"type": guess, **out}
    # Without properties it is an object of any keys, except at the root, where it is a tool without arguments.
    is_closable = "properties" in out or (path is None and _is_object(out))
    if is_closable and {"additionalProperties", "patternProperties"}.isdisjoint(out):
        out["additionalProperties"] = False
    return node if out == node else out


_IRREPLACEABLE_KEYWORDS: Final = frozenset({"patternProperties", "prefixItems", "allOf", "oneOf", *REFERENCE_KEYWORDS})
"""A sentence cannot replace these, so they are kept and the schema is not strict."""


def _is_enforceable_keyword(key: str, value: Json, strictness: Strictness) -> bool:
    if key == "format":
        return isinstance(value, str) and value in strictness.formats
    if key == "pattern":
        return not isinstance(value, str) or not any(part in value for part in _UNENFORCEABLE_PATTERN_SYNTAX)
    if key == "allOf" and isinstance(value, list) and any(isinstance(part, dict) and "$ref" in part for part in value):
        return False
    if key == "enum" and strictness.needs_scalar_values and isinstance(value, list):
        return not any(isinstance(item, (dict, list)) for item in value)
    if key == "minItems" and not strictness.allows_any_min_items:
        return value in (0, 1)
    return key in strictness.keywords


def _replace_unions(out: Object, path: Path, strictness: Strictness, notes: ChangeLog) -> None:
    """Replace `oneOf` by `anyOf`, and an `allOf` of one schema by that schema."""
    if "oneOf" in out and "anyOf" not in out:
        out["anyOf"] = out.pop("oneOf")
        notes.add((path, "oneOf"), "exactly one of the alternatives became any of them")
    parts = out.get("allOf")
    if not isinstance(parts, list) or len(parts) != 1 or not isinstance(parts[0], dict):
        return
    if "allOf" not in strictness.keywords or "$ref" in parts[0]:
        rest = {key: value for key, value in out.items() if key != "allOf"}
        out.clear()
        out.update(intersect_schemas(rest, parts[0], notes.adder_at((path, "allOf"))))


def _isolate_reference(out: Object) -> Object:
    """Move a reference into an `anyOf`, so that it has no other keywords beside it."""
    kept = ("title", "description", "$schema", *DEFINITION_KEYWORDS)
    around = {key: value for key, value in out.items() if key in kept}
    if len(around) + 1 != len(out) or not set(around) - {*DEFINITION_KEYWORDS}:
        return out
    return {**around, "anyOf": [{"$ref": out["$ref"]}]}
