"""The dialect that is plain JSON Schema below, and demands an object at the root: no union there, simple names."""

from __future__ import annotations

from toolwire.schema.combine import both, either, type_names
from toolwire.schema.plain import CLOSER_LOOK
from toolwire.schema.refs import Lookup, references, repointed, resolved, step
from toolwire.schema.renames import DOTTED, renamed
from toolwire.schema.words import (
    DEFINITIONS,
    NESTING,
    TYPES,
    UNIONS,
    Change,
    Converted,
    Notes,
    guessed_type,
    refuse_depth,
    spelled,
)
from toolwire.wire import MAX_DEPTH, Json, Object, Path

_TELLING = frozenset({"anyOf", "oneOf", "allOf", "$ref", "$dynamicRef", "$recursiveRef"})
_REMOVED = ("#/anyOf/", "#/oneOf/", "#/allOf/")
_legal = DOTTED.fullmatch
_LEGAL: set[str] = set()
_MOST_NAMES = 4096
_BELOW = CLOSER_LOOK | NESTING
_BESIDE = (_BELOW | _TELLING) - {"properties", "required", "additionalProperties"}


def is_flat(schema: Json) -> bool:
    """Is it an object of plain properties without schemas inside, under legal names? Most are, and neither `standard`
    nor `object_root` changes such a schema."""
    if schema.__class__ is not dict or schema.get("type") != "object" or not _BESIDE.isdisjoint(schema):
        return False
    properties = schema.get("properties")
    if properties.__class__ is not dict or schema.get("additionalProperties").__class__ is dict:
        return False
    for name, node in properties.items():
        if node.__class__ is not dict or (name not in _LEGAL and not _remembered(name)):
            return False
        kind = node.get("type")
        if kind.__class__ is not str or kind not in TYPES:
            return False
        if not (len(node) == 2 and "description" in node) and not _BELOW.isdisjoint(node):
            return False
    return schema.get("required").__class__ is not bool


def _remembered(name: str) -> bool:
    """Is it legal? Legal names are kept in mind, as many as there may be in use."""
    if not _legal(name):
        return False
    if len(_LEGAL) < _MOST_NAMES:
        _LEGAL.add(name)
    return True


def object_root(schema: Json) -> Converted:
    """The schema with an object at its root. Other roots are wrapped (see `Converted.wrapped`), unions of objects
    become one object, names that the dialect refuses are replaced (see `Converted.renames`)."""
    if schema is None:
        return Converted({"type": "object", "properties": {}}, (Change(None, "an empty object schema was supplied"),))
    if _is_rooted(schema):
        return Converted(schema)
    refuse_depth(schema)
    notes = Notes()
    out, wrapped = rooted(schema, notes)
    out, renames = _with_legal_names(out, notes)
    return Converted(out, notes.all(), renames, wrapped)


def object_only(schema: Json, model: str = "") -> Converted:
    """The schema with an object at its root and nothing else changed: for wires that take any names and unions below.

    It is the same for every model; the second argument makes it a dialect of a room's rules.
    """
    if isinstance(schema, dict) and schema.get("type") == "object":
        return Converted(schema)
    refuse_depth(schema)
    notes = Notes()
    out, wrapped = rooted(schema, notes)
    return Converted(out, notes.all(), wrapped=wrapped)


def rooted(schema: Json, notes: Notes) -> tuple[Object, str]:
    """The schema with an object at its root, and the property that it was wrapped in, if it was."""
    if not isinstance(schema, (dict, bool)):
        notes.add(None, f"{spelled(schema, 60)} is no schema; an object without properties took its place")
        return {"type": "object", "properties": {}}, ""
    if isinstance(schema, bool):
        if schema is False:
            notes.add(None, "a schema that nothing satisfies became an object without properties")
        return {"type": "object", "properties": {}}, ""
    out = schema if _is_plain_object(schema) else Rooting(schema, Lookup(schema), notes).result()
    if out is None:
        notes.add(None, "the root is no object; it became the property `value` of one")
        return _wrapped(schema), "value"
    if not isinstance(out.get("properties", {}), dict):
        notes.add((None, "properties"), "`properties` is no object and was left out")
        out = {key: value for key, value in out.items() if key != "properties"}
    return out, ""


def _is_plain_object(schema: Object) -> bool:
    return schema.get("type") == "object" and _TELLING.isdisjoint(schema)


def _is_rooted(schema: Json) -> bool:
    if schema.__class__ is not dict or not _is_plain_object(schema):
        return False
    properties = schema.get("properties")
    return properties is None or (properties.__class__ is dict and all(map(_legal, properties)))


class Rooting:
    """Dissolves references and unions at one level of a schema, so that an object stands there."""

    def __init__(self, schema: Object, lookup: Lookup, notes: Notes) -> None:
        self.schema = schema
        self.notes = notes
        self.lookup = lookup

    def result(self) -> Object | None:
        out = self.object(self.schema, None, frozenset({id(self.schema)}), 0)
        if out is not None and any(reference.startswith(_REMOVED) for reference in references(self.schema)):
            return self._with_old_root(out)
        return out

    def _with_old_root(self, out: Object) -> Object:
        """References into the union that was dissolved find it among the definitions."""
        old = out.get("$defs")
        definitions = old if isinstance(old, dict) else {}
        name = "root"
        while name in definitions:
            name += "_"
        kept = {key: value for key, value in self.schema.items() if key in ("anyOf", "oneOf", "allOf")}
        out = {**out, "$defs": {**definitions, name: kept}}
        moved: Object = repointed(out, lambda ref: f"#/$defs/{name}{ref[1:]}" if ref.startswith(_REMOVED) else ref)
        return moved

    def object(self, node: Json, path: Path, opened: frozenset[int], depth: int) -> Object | None:
        """A schema as one object without references and unions at its own level; None when it is no object."""
        if not isinstance(node, dict):
            return {"type": "object"} if node is True else None
        if depth > MAX_DEPTH // 4 or not self.lookup.spend(10):
            self.notes.add(path, "references and unions go too deep here; the rest was left out")
            return {"type": "object"}
        out, path, opened = resolved(self.lookup, node, path, opened, self.notes, _nothing_more)
        for number, part in enumerate(_schemas(out.pop("allOf", None))):
            place = ((path, "allOf"), number)
            made = self.object(part, place, opened, depth + 1)
            if made is None:
                return None
            out = both(out, made, self.notes.there(place))
        for union in UNIONS:
            options = _schemas(out.pop(union, None))
            if options:
                made = self._either(options, (path, union), opened, depth)
                if made is None:
                    return None
                out = both(out, made, self.notes.there((path, union)))
        return self._typed(out, path)

    def _either(self, options: list[Json], path: Path, opened: frozenset[int], depth: int) -> Object | None:
        made = []
        for number, option in enumerate(options):
            one = self.object(option, (path, number), opened, depth + 1)
            if one is None:
                self.notes.add((path, number), "an alternative that is no object was left out")
            else:
                made.append(one)
        if len(made) > 1:
            self.notes.add(path, "the alternatives became one object, and its description tells them apart")
            return either(made, self.notes.there(path))
        return made[0] if made else None

    def _typed(self, node: Object, path: Path) -> Object | None:
        """The node with the type `object`, when it can be one."""
        declared = node.get("type")
        names = type_names(declared)
        if declared is None or (not names and declared != []):
            if guessed_type(node) not in (None, "object") or "const" in node or "enum" in node:
                return None
            return {"type": "object", **{key: value for key, value in node.items() if key != "type"}}
        if "object" not in names:
            return None
        if len(names) > 1:
            self.notes.add((path, "type"), "arguments are an object; the other types were left out")
        return node if declared == "object" else {**node, "type": "object"}


def _nothing_more(target: Json) -> Object:
    return {}


def _schemas(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _wrapped(schema: Json) -> Object:
    """An object whose one property is the schema; definitions stay at the root, references follow."""
    inner = {key: value for key, value in schema.items() if key not in (*DEFINITIONS, "$schema")}
    kept = {key: value for key, value in schema.items() if key in (*DEFINITIONS, "$schema")}
    out = {**kept, "type": "object", "properties": {"value": inner}, "required": ["value"]}
    moved: Object = repointed(out, _into_value)
    return moved


def _into_value(reference: str) -> str:
    if reference == "#":
        return "#/properties/value"
    first = reference[2:].partition("/")[0]
    return (
        f"#/properties/value{reference[1:]}"
        if reference.startswith("#/") and first in NESTING - {*DEFINITIONS}
        else reference
    )


def _with_legal_names(schema: Object, notes: Notes) -> tuple[Object, dict[str, str]]:
    """The dialect looks at the root's own properties only."""
    properties = schema.get("properties")
    if not isinstance(properties, dict) or all(map(_legal, properties)):
        return schema, {}
    names: dict[str, str] = {}
    taken = set(properties)
    for name in properties:
        if not _legal(name):
            names[name] = renamed(name, taken)
            taken.add(names[name])
            notes.add(((None, "properties"), name), f"the property {spelled(name, 80)} is called `{names[name]}`")
    out = {**schema, "properties": {names.get(name, name): child for name, child in properties.items()}}
    required = schema.get("required")
    if isinstance(required, list):
        out["required"] = [names.get(name, name) if isinstance(name, str) else name for name in required]
    together = schema.get("dependentRequired")
    if isinstance(together, dict):
        out["dependentRequired"] = {
            names.get(name, name): [names.get(other, other) if isinstance(other, str) else other for other in others]
            if isinstance(others, list)
            else others
            for name, others in together.items()
        }
    steps = {f"#/properties/{step(old)}": f"#/properties/{step(new)}" for old, new in names.items()}
    moved: Object = repointed(out, lambda reference: _moved(reference, steps))
    return moved, {new: old for old, new in names.items()}


def _moved(reference: str, steps: dict[str, str]) -> str:
    head = "/".join(reference.split("/")[:3])
    return steps[head] + reference[len(head) :] if head in steps else reference
