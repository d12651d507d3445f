"""Schemas from elsewhere, as this wire takes them."""

from __future__ import annotations

from itertools import chain
from operator import itemgetter

from msgspec.structs import replace

from toolwire.loss import Ledger
from toolwire.schema import CLOSED, Change, Converted, object_root, standard, strict_problems, structured
from toolwire.schema.words import TYPES
from toolwire.wire import MAX_DEPTH, Json, Object, Path


def rooted(schema: Json, model: str = "") -> Converted:
    """Arguments: an object at the root, no union there, plain names; for every model alike."""
    if _is_ordinary(schema):
        return object_root(schema)
    plain = standard(schema)
    made = object_root(plain.schema)
    return replace(made, changes=(*plain.changes, *made.changes)) if plain.changes else made


_ALIKE = frozenset("type description title default enum const minimum maximum pattern".split())
"""Keywords that every draft and dialect reads alike, whatever their values are."""
_ORDINARY = _ALIKE | {"required", "additionalProperties", "properties", "items"}
"""The same with those that are read alike if their values are of the usual type."""
_type_of = itemgetter("type")


def _is_ordinary(schema: Json) -> bool:
    """A glance to spare most schemas the full look: these keywords alone, and in each schema one type by its name."""
    try:
        return _are_ordinary([schema])
    except (KeyError, TypeError, AttributeError):
        return False  # no schema where one should stand, or none that is ordinary


def _are_ordinary(level: list[Json]) -> bool:
    """Level by level, because each is looked at by a few calls."""
    seen = 0
    while level:
        seen += len(level)
        if seen > MAX_DEPTH or not TYPES.issuperset(map(_type_of, level)):
            return False
        if _ALIKE.issuperset(chain.from_iterable(level)):
            return True
        below: list[Json] = []
        for node in level:
            if not _ORDINARY.issuperset(node) or type(node.get("additionalProperties", False)) is not bool:
                return False
            if type(node.get("required", [])) is not list:
                return False
            below += node.get("properties", _NO_PROPERTIES).values()
            if "items" in node:
                below.append(node["items"])
        level = below
    return True


_NO_PROPERTIES: Object = {}


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
