"""Schemas have two slots on this wire: one for its own dialect, and one that takes JSON Schema as it is."""

from __future__ import annotations

from itertools import chain

from toolwire import schema as dialects
from toolwire.loss import Ledger
from toolwire.protocols.gemini.models import Family, family
from toolwire.schema.words import NESTING, everywhere, mapped
from toolwire.wire import Json, Malformed, Object, Path, as_object


def read_schema(node: Object, slots: tuple[str, str], path: Path) -> Json:
    """A schema as plain JSON Schema, from either slot; one that is plain already is kept untouched."""
    own, plain = slots
    schema = node.get(plain)
    if schema is None:
        schema = node.get(own)
        return None if schema is None else _plain(as_object(schema, (path, own)), (path, own))
    return _plain(schema, (path, plain)) if _shouts(schema) else schema


def argument_dialect(schema: Json, model: str) -> dialects.Converted:
    """What the schema of a tool's arguments becomes; models before 2.0 take neither all keywords nor all names."""
    return dialects.object_only(schema) if family(model).json_schema else dialects.subset(schema, arguments=True)


def _shouts(schema: Json) -> bool:
    """Upper-case types are this wire's own dialect, whatever slot they stand in."""
    kind = schema.get("type") if isinstance(schema, dict) else None
    return isinstance(kind, str) and kind.isupper()


def _plain(schema: Json, path: Path) -> Json:
    try:
        return dialects.standard(schema).schema
    except Malformed as error:
        raise Malformed(path, error.problem) from None


def write_schema(
    schema: Json, slots: tuple[str, str], model: Family, ledger: Ledger, where: Path, arguments: bool = False
) -> Object:
    """The schema as it is in the plain slot, or reduced to the older dialect for models that know nothing else."""
    own, plain = slots
    if model.json_schema:
        if all_defined(schema):
            return {plain: schema}
        what = f"`required` in `{plain}` named properties that are not defined; they were left out"
        ledger.note("schema-rewritten", where, what)
        return {plain: _defined(schema, None)}
    reduced = dialects.subset(schema, arguments)
    for change in reduced.changes:
        ledger.note("schema-rewritten", where, f"`{own}{change.pointer}`: {change.what}")
    return {own: reduced.schema}


def _is_defined(node: Object) -> bool:
    """This wire refuses a demand for a property that is not described."""
    required = node.get("required")
    if not isinstance(required, list) or ("properties" not in node and node.get("type") != "object"):
        return True
    try:
        return all(map(_properties(node).__contains__, required))
    except TypeError:
        # What cannot be looked up is no name.
        return False


def _properties(node: Object) -> Object:
    properties = node.get("properties")
    return properties if isinstance(properties, dict) else {}


_INNER = NESTING | {"required"}
_OUTER = NESTING - {"properties", "additionalProperties"}


def all_defined(schema: Json) -> bool:
    """`everywhere(schema, _is_defined)`, the short way for a tool whose properties hold no schemas themselves."""
    try:
        properties = schema["properties"]
        flat = _OUTER.isdisjoint(schema) and _INNER.isdisjoint(chain.from_iterable(properties.values()))
        if flat and schema.get("additionalProperties").__class__ is not dict:
            required = schema.get("required")
            for name in required if required.__class__ is list else ():
                if name not in properties:
                    break
            else:
                return True
    except (AttributeError, KeyError, TypeError):
        pass  # there are no properties, or what stands there is no schema, or what is demanded no name
    return everywhere(schema, _is_defined)


def _defined(node: Json, path: Path) -> Json:
    if not isinstance(node, dict):
        return node
    node = mapped(node, path, _defined)
    if _is_defined(node):
        return node
    properties = _properties(node)
    names = [name for name in node["required"] if isinstance(name, str) and name in properties]
    return {key: names if key == "required" else value for key, value in node.items() if key != "required" or names}
