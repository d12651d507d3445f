"""The laws of schema conversion, over recorded schemas of real tools."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from material import CORPUS, needs_corpus
from schemas import META_SCHEMA, subset_faults, with_plain_types
from toolwire.core.converted_schema import ConvertedSchema
from toolwire.core.json_values import encode
from toolwire.schema.descriptions import add_descriptions, missing_descriptions
from toolwire.schema.object_root import convert_to_object_root
from toolwire.schema.openapi_subset import convert_to_openapi_subset
from toolwire.schema.standard import convert_to_standard
from toolwire.schema.strict import STRICT_WITH_OPTIONAL, convert_to_strict, strict_problems
from toolwire.schema.validate import schema_problems

pytestmark = needs_corpus

CONVERSIONS: dict[str, Callable[[Any], ConvertedSchema]] = {
    "object_root": convert_to_object_root,
    "subset": convert_to_openapi_subset,
    "subset of arguments": lambda schema: convert_to_openapi_subset(schema, arguments=True),
    "standard": convert_to_standard,
    "structured, full": convert_to_strict,
    "structured, closed": lambda schema: convert_to_strict(schema, STRICT_WITH_OPTIONAL),
    "describe": add_descriptions,
}


@cache
def read_schemas() -> tuple[tuple[str, Any], ...]:
    files = sorted((CORPUS / "schemas").glob("*.json"))
    return tuple(
        (f"{file.stem}/{number} {tool['name']}", tool["schema"])
        for file in files
        for number, tool in enumerate(json.loads(file.read_text()))
    )


@pytest.mark.parametrize("convert", CONVERSIONS.values(), ids=CONVERSIONS)
def test_conversions_are_idempotent_and_leave_their_input_alone(convert: Callable[[Any], ConvertedSchema]) -> None:
    assert len(read_schemas()) > 1_000
    for name, schema in read_schemas():
        before = encode(schema)
        once = convert(schema)
        assert encode(schema) == before, name
        assert once.schema is not schema or not once.changes, name
        twice = convert(once.schema)
        assert twice.schema is once.schema, name
        assert not twice.changes, name


def test_the_subset_is_one_and_valid() -> None:
    for name, schema in read_schemas():
        made = convert_to_openapi_subset(schema, arguments=True)
        assert not subset_faults(made.schema), name
        assert made.schema["type"] == "OBJECT", name
        assert not schema_problems(with_plain_types(made.schema)), name


OPEN: list[tuple[str, Any]] = [("additionalProperties", True), ("additionalProperties", {})]
"""What says nothing."""


def test_what_the_subset_lost_is_reported() -> None:
    """Every keyword that the subset lacks is named by a change, but for those that are written another way."""
    kept = "type format title description nullable enum items minItems maxItems default properties required minLength"
    kept += " minProperties maxProperties minimum maximum maxLength pattern example propertyOrdering"
    exact = "$ref $defs definitions const anyOf oneOf allOf prefixItems"
    known = {*kept.split(), *exact.split()}
    for name, schema in read_schemas():
        said = {change.pointer for change in convert_to_openapi_subset(schema).changes}
        for pointer, node in _schemas(schema):
            for key, value in node.items():
                whole = key.startswith("exclusive") and node.get("type") == "integer"
                if key not in known and not whole and (key, value) not in OPEN:
                    assert _is_told(pointer, key, said), (name, pointer, key)


def _is_told(pointer: str, key: str, said: set[str]) -> bool:
    """Is it named itself, or at what it stands inside, or at what it became one with? Definitions may be unused."""
    merged = [pointer.split(f"/{word}/", maxsplit=1)[0] for word in ("anyOf", "oneOf", "allOf")]
    places = [f"{place}/{key}" for place in (pointer, *merged)]
    return "/$defs/" in pointer or any(place == one or place.startswith(f"{one}/") for place in places for one in said)


def _schemas(node: Any, pointer: str = "") -> list[tuple[str, dict[str, Any]]]:
    if not isinstance(node, dict):
        return []
    found = [(pointer, node)]
    for key in ("items", "additionalProperties", "not", "propertyNames"):
        found += _schemas(node.get(key), f"{pointer}/{key}")
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for number, child in enumerate(node.get(key, ())):
            found += _schemas(child, f"{pointer}/{key}/{number}")
    for key in ("properties", "$defs", "definitions"):
        for name, child in node.get(key, {}).items():
            found += _schemas(child, f"{pointer}/{key}/{name}")
    return found


def test_the_root_is_an_object() -> None:
    for name, schema in read_schemas():
        made = convert_to_object_root(schema)
        assert made.schema["type"] == "object", name
        assert not {"anyOf", "oneOf", "allOf", "$ref"} & made.schema.keys(), name


def test_the_verdict_is_that_of_the_meta_schema() -> None:
    for name, schema in read_schemas():
        assert (schema_problems(schema) == []) == META_SCHEMA.is_valid(schema), name


def test_every_recorded_schema_can_be_made_plain() -> None:
    for name, schema in read_schemas():
        made = convert_to_standard(schema)
        assert not made.changes, name
        assert not schema_problems(made.schema), name


def test_strict_schemas_are_known_and_made_so_where_the_meaning_allows() -> None:
    strict = [schema for _, schema in read_schemas() if not strict_problems(schema)]
    made = [schema for _, schema in read_schemas() if not strict_problems(convert_to_strict(schema).schema)]
    assert 150 < len(strict) < len(made)
    assert all(convert_to_strict(schema).schema is schema for schema in strict)
    assert all(not convert_to_strict(schema).changes for schema in strict)


def test_descriptions_are_filled_in() -> None:
    for name, schema in read_schemas():
        made = add_descriptions(schema)
        assert len(made.changes) == len(missing_descriptions(schema)), name
        assert not missing_descriptions(made.schema), name
