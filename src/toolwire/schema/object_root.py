"""Schemas with an object at the root and legal property names, as OpenAI and Anthropic demand for arguments.

A renamed property depends on its old name only and ends with a hash of it. So it is the same in every tool and turn, no
other value contains it by chance, and arguments are restored without the schema.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from toolwire.core.converted_schema import ConvertedSchema, SchemaChange
from toolwire.core.ids import hex_digest
from toolwire.core.json_values import MAX_DEPTH, Json, Object, Path
from toolwire.schema.combine import (
    Intersection,
    ReferenceLookup,
    escape_reference_key,
    find_references,
    inline_references,
    intersect_schemas,
    merge_alternatives,
    move_references,
    type_names,
)
from toolwire.schema.keywords import (
    DEFINITION_KEYWORDS,
    NESTING_KEYWORDS,
    UNION_KEYWORDS,
    ChangeLog,
    guess_type,
    list_or_empty,
    refuse_deep_nesting,
    short_json,
)

MAX_NAME_LENGTH = 64
DOTTED_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
IDENTIFIER = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,63}")
_ILLEGAL = re.compile(r"[^a-zA-Z0-9_]+")


def make_property_name(name: str, taken: Collection[str]) -> str:
    """A name that every dialect accepts: the legal characters of the old name and a part of its hash."""
    readable = _ILLEGAL.sub("_", name).strip("_")
    if not readable or readable[0].isdigit():
        readable = f"p_{readable}".rstrip("_")
    salt = ""
    while True:
        new = f"{readable[: MAX_NAME_LENGTH - 7].rstrip('_')}_{hex_digest(name + salt, 6)}"
        if new not in taken:
            return new
        salt += "+"


def replace_keys(value: Json, names: Mapping[str, str]) -> Json:
    """A value with keys replaced at every depth; the same object if there are none. Without recursion, because
    a model's arguments may be nested to any depth."""
    if not isinstance(value, (dict, list)):
        return value
    is_changed = False
    top: list[Json] = [value]
    todo: list[tuple[Json, Json, Json]] = [(value, top, 0)]
    while todo:
        old, holder, key = todo.pop()
        new: Json = {names.get(name, name): item for name, item in old.items()} if isinstance(old, dict) else list(old)
        is_changed = is_changed or (isinstance(old, dict) and not names.keys().isdisjoint(old))
        holder[key] = new
        for step, item in new.items() if isinstance(new, dict) else enumerate(new):
            if isinstance(item, (dict, list)):
                todo.append((item, new, step))
    return top[0] if is_changed else value


# --- conversion ---


_COMBINING_KEYWORDS = frozenset({"anyOf", "oneOf", "allOf", "$ref", "$dynamicRef", "$recursiveRef"})
_DISSOLVED_PREFIXES = ("#/anyOf/", "#/oneOf/", "#/allOf/")
_match_legal_name = DOTTED_NAME.fullmatch


def convert_to_object_root(schema: Json) -> ConvertedSchema:
    """The schema with an object at its root. Other roots are wrapped (`wrapper_property`), unions of objects become one
    object, and illegal property names are replaced (`renames`)."""
    if schema is None:
        change = SchemaChange(None, "an empty object schema was supplied")
        return ConvertedSchema({"type": "object", "properties": {}}, (change,))
    if schema.__class__ is dict and _is_plain_object(schema):
        properties = schema.get("properties")
        if properties is None or (properties.__class__ is dict and all(map(_match_legal_name, properties))):
            return ConvertedSchema(schema)
    refuse_deep_nesting(schema)
    notes = ChangeLog()
    out, wrapped = make_object_root(schema, notes)
    out, renames = _rename_illegal_properties(out, notes)
    return ConvertedSchema(out, notes.changes(), renames, wrapped)


def ensure_object_root(schema: Json, model: str = "") -> ConvertedSchema:
    """The schema with an object at its root and nothing else changed, for protocols that allow any property names. The
    model is ignored; the argument makes this function usable as a codec's schema conversion."""
    if isinstance(schema, dict) and schema.get("type") == "object":
        return ConvertedSchema(schema)
    refuse_deep_nesting(schema)
    notes = ChangeLog()
    out, wrapped = make_object_root(schema, notes)
    return ConvertedSchema(out, notes.changes(), wrapper_property=wrapped)


def make_object_root(schema: Json, notes: ChangeLog) -> tuple[Object, str]:
    """The schema with an object at its root, and the name of the property that it was wrapped in, if any."""
    if not isinstance(schema, dict):
        if not isinstance(schema, bool):
            notes.add(None, f"{short_json(schema, 60)} is not a schema; it became an object without properties")
        elif schema is False:
            notes.add(None, "a schema that nothing satisfies became an object without properties")
        return {"type": "object", "properties": {}}, ""
    out = schema if _is_plain_object(schema) else ObjectRootBuilder(schema, ReferenceLookup(schema), notes).build_root()
    if out is None:
        notes.add(None, "the root is not an object; it became the property `value` of one")
        return _wrap_in_value_property(schema), "value"
    if not isinstance(out.get("properties", {}), dict):
        notes.add((None, "properties"), "`properties` is not an object and was left out")
        out = {key: value for key, value in out.items() if key != "properties"}
    return out, ""


def _is_plain_object(schema: Object) -> bool:
    return schema.get("type") == "object" and _COMBINING_KEYWORDS.isdisjoint(schema)


class ObjectRootBuilder:
    """Merges references and unions at one level of a schema into one object."""

    def __init__(self, schema: Object, lookup: ReferenceLookup, notes: ChangeLog) -> None:
        self.schema = schema
        self.notes = notes
        self.lookup = lookup

    def build_root(self) -> Object | None:
        """The root as one object. A merged union is kept in `$defs` if references point into it."""
        out = self.build_object(self.schema, None, frozenset({id(self.schema)}), 0)
        if out is None or not any(one.startswith(_DISSOLVED_PREFIXES) for one in find_references(self.schema)):
            return out
        old = out.get("$defs")
        definitions = old if isinstance(old, dict) else {}
        name = "root"
        while name in definitions:
            name += "_"
        kept = {key: value for key, value in self.schema.items() if key in ("anyOf", "oneOf", "allOf")}
        out = {**out, "$defs": {**definitions, name: kept}}
        moved: Object = move_references(
            out, lambda ref: f"#/$defs/{name}{ref[1:]}" if ref.startswith(_DISSOLVED_PREFIXES) else ref
        )
        return moved

    def build_object(self, node: Json, path: Path, expanding: frozenset[int], depth: int) -> Object | None:
        """A schema as one object without references and unions at this level; None if it is not an object."""
        if not isinstance(node, dict):
            return {"type": "object"} if node is True else None
        if depth > MAX_DEPTH // 4 or not self.lookup.spend_budget(10):
            self.notes.add(path, "references and unions are nested too deeply here; the rest was left out")
            return {"type": "object"}
        out, path, expanding = inline_references(self.lookup, node, path, expanding, self.notes, lambda _: {})
        parts = list_or_empty(out.pop("allOf", None))
        merged = Intersection(out)
        for number, part in enumerate(parts):
            place = ((path, "allOf"), number)
            made = self.build_object(part, place, expanding, depth + 1)
            if made is None:
                return None
            merged.add(made, self.notes.adder_at(place))
        out = merged.finish()
        for union in UNION_KEYWORDS:
            options = list_or_empty(out.pop(union, None))
            if options:
                made = self._build_alternatives(options, (path, union), expanding, depth)
                if made is None:
                    return None
                out = intersect_schemas(out, made, self.notes.adder_at((path, union)))
        return self._with_object_type(out, path)

    def _build_alternatives(
        self, options: list[Json], path: Path, expanding: frozenset[int], depth: int
    ) -> Object | None:
        made = []
        for number, option in enumerate(options):
            one = self.build_object(option, (path, number), expanding, depth + 1)
            if one is None:
                self.notes.add((path, number), "an alternative that is not an object was left out")
            else:
                made.append(one)
        if len(made) > 1:
            self.notes.add(path, "the alternatives became one object, and its description lists them")
            return merge_alternatives(made, self.notes.adder_at(path))
        return made[0] if made else None

    def _with_object_type(self, node: Object, path: Path) -> Object | None:
        """The node with `type: object`; None if it cannot be an object."""
        declared = node.get("type")
        names = type_names(declared)
        if declared is None or (not names and declared != []):
            if guess_type(node) not in (None, "object") or "const" in node or "enum" in node:
                return None
            return {"type": "object", **{key: value for key, value in node.items() if key != "type"}}
        if "object" not in names:
            return None
        if len(names) > 1:
            self.notes.add((path, "type"), "arguments are an object; the other types were left out")
        return node if declared == "object" else {**node, "type": "object"}


def _wrap_in_value_property(schema: Json) -> Object:
    """An object with the schema as its only property. Definitions stay at the root, and references are rewritten."""
    inner = {key: value for key, value in schema.items() if key not in (*DEFINITION_KEYWORDS, "$schema")}
    kept = {key: value for key, value in schema.items() if key in (*DEFINITION_KEYWORDS, "$schema")}
    out = {**kept, "type": "object", "properties": {"value": inner}, "required": ["value"]}

    def move(reference: str) -> str:
        first = reference[2:].partition("/")[0]
        is_moved = reference.startswith("#/") and first in NESTING_KEYWORDS - {*DEFINITION_KEYWORDS}
        return f"#/properties/value{reference[1:]}" if is_moved or reference == "#" else reference

    moved: Object = move_references(out, move)
    return moved


def _rename_illegal_properties(schema: Object, notes: ChangeLog) -> tuple[Object, dict[str, str]]:
    """Rename the illegal properties of the root; deeper ones are not checked by the providers."""
    properties = schema.get("properties")
    if not isinstance(properties, dict) or all(map(_match_legal_name, properties)):
        return schema, {}
    names: dict[str, str] = {}
    taken = set(properties)
    for name in properties:
        if not _match_legal_name(name):
            names[name] = make_property_name(name, taken)
            taken.add(names[name])
            notes.add(((None, "properties"), name), f"the property {short_json(name, 80)} was renamed `{names[name]}`")
    out = {**schema, "properties": {names.get(name, name): child for name, child in properties.items()}}

    def rename(values: Json) -> Json:
        if not isinstance(values, list):
            return values
        return [names.get(name, name) if isinstance(name, str) else name for name in values]

    if "required" in schema:
        out["required"] = rename(schema["required"])
    together = schema.get("dependentRequired")
    if isinstance(together, dict):
        out["dependentRequired"] = {names.get(name, name): rename(others) for name, others in together.items()}
    steps = {escape_reference_key(old): escape_reference_key(new) for old, new in names.items()}

    def move(reference: str) -> str:
        keys = reference.split("/")
        is_moved = keys[:2] == ["#", "properties"] and len(keys) > 2 and keys[2] in steps
        return "/".join((*keys[:2], steps[keys[2]], *keys[3:])) if is_moved else reference

    moved: Object = move_references(out, move)
    return moved, {new: old for old, new in names.items()}
