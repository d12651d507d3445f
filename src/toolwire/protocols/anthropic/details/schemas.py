"""Schemas from elsewhere, as this wire takes them."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType, ValidationError, convert, defstruct
from msgspec.structs import replace

from toolwire.loss import Ledger
from toolwire.schema import CLOSED, Change, Converted, object_root, standard, strict_problems, structured
from toolwire.wire import Json, Path


def rooted(schema: Json, model: str = "") -> Converted:
    """Arguments: an object at the root, no union there, plain names; for every model alike."""
    if _is_ordinary(schema):
        return object_root(schema)
    plain = standard(schema)
    made = object_root(plain.schema)
    return replace(made, changes=(*plain.changes, *made.changes)) if plain.changes else made


class _Leaf(Struct, forbid_unknown_fields=True, gc=False):
    """An ordinary schema: one type by its name, and keywords that every draft and dialect reads alike."""

    type: Literal["string", "number", "integer", "boolean", "array", "object", "null"]
    description: Json = None
    title: Json = None
    default: Json = None
    enum: Json = None
    const: Json = None
    minimum: Json = None
    maximum: Json = None
    pattern: Json = None
    required: list[Json] | UnsetType = UNSET
    additionalProperties: bool | UnsetType = UNSET


def _ordinary(levels: int) -> type[Struct]:
    """An ordinary schema with ordinary ones inside, down to so many levels."""
    if not levels:
        return _Leaf
    inner = _ordinary(levels - 1)
    properties = dict[str, inner]  # type: ignore[valid-type]
    fields = [("properties", properties | UnsetType, UNSET), ("items", inner | UnsetType, UNSET)]
    return defstruct("_Ordinary", fields, bases=(_Leaf,), forbid_unknown_fields=True, gc=False)


_Ordinary = _ordinary(6)


def _is_ordinary(schema: Json) -> bool:
    """A glance to spare most schemas the full look."""
    try:
        convert(schema, _Ordinary)
    except ValidationError:
        return False
    return True


def is_rooted(schema: Json) -> bool:
    """Is an object at the root, as the steps before the writer leave it?"""
    return isinstance(schema, dict) and schema.get("type") == "object" and _UNIONS.isdisjoint(schema)


_UNIONS = frozenset({"anyOf", "oneOf", "allOf"})


def write_rooted(schema: Json, where: Path, whose: str, ledger: Ledger) -> Json:
    made = rooted(schema)
    _note(made.changes, where, whose, ledger)
    return made.schema


def enforceable(schema: Json, where: Path, whose: str, ledger: Ledger) -> tuple[Json, str]:
    """A schema that the provider can enforce, and what stands against that, if something does."""
    plain = standard(schema)
    made = structured(plain.schema, CLOSED)
    problems = strict_problems(made.schema, CLOSED)
    if problems:
        return schema, f"{problems[0].what} ({problems[0].pointer or 'the root'})"
    _note((*plain.changes, *made.changes), where, whose, ledger)
    return made.schema, ""


def _note(changes: tuple[Change, ...], where: Path, whose: str, ledger: Ledger) -> None:
    for change in changes:
        at = f" at {change.pointer}" if change.pointer else ""
        ledger.note("schema-rewritten", where, f"the schema of {whose}{at}: {change.what}")
