"""Schemas from elsewhere, as this wire takes them."""

from __future__ import annotations

from msgspec.structs import replace

from toolwire.loss import Ledger
from toolwire.schema import CLOSED, Change, Converted, is_flat, object_root, standard, strict_problems, structured
from toolwire.wire import Json, Path


def rooted(schema: Json, model: str = "") -> Converted:
    """Arguments: an object at the root, no union there, plain names; for every model alike."""
    if is_flat(schema):
        return Converted(schema)
    plain = standard(schema)
    made = object_root(plain.schema)
    return replace(made, changes=(*plain.changes, *made.changes)) if plain.changes else made


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
