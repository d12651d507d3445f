"""Dialects of JSON Schema: tables of single conversions, and laws over generated schemas."""

from __future__ import annotations

import copy
import inspect
import math
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from msgspec import Raw

from schemas import META_SCHEMA, subset_faults, with_plain_types
from toolwire.core.converted_schema import ConvertedSchema
from toolwire.core.json_values import Malformed, encode
from toolwire.schema import combine
from toolwire.schema.combine import COPY_BUDGET
from toolwire.schema.descriptions import add_descriptions, describe_name, missing_descriptions
from toolwire.schema.keywords import ANNOTATION_KEYWORDS
from toolwire.schema.object_root import convert_to_object_root
from toolwire.schema.openapi_subset import convert_to_openapi_subset
from toolwire.schema.repair import convert_arguments, drop_invalid_keywords, restore_arguments
from toolwire.schema.standard import convert_to_standard
from toolwire.schema.strict import (
    STRICT_ALL_REQUIRED,
    STRICT_WITH_OPTIONAL,
    Strictness,
    convert_to_strict,
    strict_problems,
)
from toolwire.schema.validate import NO_TARGET, schema_problems

CONVERSIONS: dict[str, Callable[[Any], ConvertedSchema]] = {
    "object_root": convert_to_object_root,
    "subset": convert_to_openapi_subset,
    "subset of arguments": lambda schema: convert_to_openapi_subset(schema, arguments=True),
    "standard": convert_to_standard,
    "structured, full": convert_to_strict,
    "structured, closed": lambda schema: convert_to_strict(schema, STRICT_WITH_OPTIONAL),
    "describe": add_descriptions,
}
every_conversion = pytest.mark.parametrize("convert", CONVERSIONS.values(), ids=CONVERSIONS)


def texts(converted: ConvertedSchema) -> list[str]:
    return [f"{change.pointer}: {change.what}" for change in converted.changes]


# --- an object at the root ------------------------------------------------------------------------------------------

STRING = {"type": "string"}
NUMBER = {"type": "number"}

ROOTS: dict[str, tuple[Any, Any]] = {
    "no schema": (None, {"type": "object", "properties": {}}),
    "an empty one": ({}, {"type": "object"}),
    "true": (True, {"type": "object", "properties": {}}),
    "no schema at all": ([1], {"type": "object", "properties": {}}),
    "no type": ({"properties": {"a": STRING}}, {"type": "object", "properties": {"a": STRING}}),
    "null too": ({"type": ["object", "null"]}, {"type": "object"}),
    "another spelling": ({"type": "OBJECT"}, {"type": "object"}),
    "all of objects": (
        {
            "allOf": [
                {"properties": {"a": STRING}, "required": ["a"]},
                {"properties": {"b": NUMBER, "a": {"minLength": 1}}, "required": ["b"]},
            ]
        },
        {
            "type": "object",
            "properties": {"a": {"allOf": [STRING, {"minLength": 1}]}, "b": NUMBER},
            "required": ["a", "b"],
        },
    ),
    "one of objects": (
        {
            "oneOf": [
                {"type": "object", "properties": {"kind": {"const": "circle"}, "r": NUMBER}, "required": ["kind", "r"]},
                {"type": "object", "properties": {"kind": {"const": "square"}, "s": NUMBER}, "required": ["kind"]},
            ]
        },
        {
            "type": "object",
            "properties": {"kind": {"enum": ["circle", "square"]}, "r": NUMBER, "s": NUMBER},
            "required": ["kind"],
            "description": 'One of: {kind: "circle", r}; {kind: "square", s?}.',
        },
    ),
    "alternatives that only require": (
        {
            "type": "object",
            "properties": {"a": STRING, "b": STRING},
            "description": "Find.",
            "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
        },
        {
            "type": "object",
            "properties": {"a": STRING, "b": STRING},
            "description": "Find.\nOne of: {a}; {b}.",
        },
    ),
    "an object or something else": (
        {"anyOf": [{"type": "object", "properties": {"a": STRING}}, {"type": "null"}]},
        {"type": "object", "properties": {"a": STRING}},
    ),
    "a reference": (
        {"$ref": "#/$defs/A", "$defs": {"A": {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}}}},
        {
            "type": "object",
            "$defs": {"A": {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}}},
            "properties": {"a": {"$ref": "#/$defs/A"}},
        },
    ),
    "a reference to itself": ({"$ref": "#"}, {"type": "object"}),
    "references into a union": (
        {
            "anyOf": [
                {"properties": {"a": STRING, "b": {"$ref": "#/anyOf/0/properties/a"}}},
                {"properties": {"a": STRING}},
            ]
        },
        {
            "type": "object",
            "properties": {"a": STRING, "b": {"$ref": "#/$defs/root/anyOf/0/properties/a"}},
            "description": "One of: {a?, b?}; {a?}.",
            "$defs": {
                "root": {
                    "anyOf": [
                        {"properties": {"a": STRING, "b": {"$ref": "#/$defs/root/anyOf/0/properties/a"}}},
                        {"properties": {"a": STRING}},
                    ]
                }
            },
        },
    ),
}


@pytest.mark.parametrize(("given", "wanted"), ROOTS.values(), ids=ROOTS)
def test_the_root_becomes_an_object(given: Any, wanted: Any) -> None:
    assert convert_to_object_root(given).schema == wanted


def test_a_root_that_is_no_object_is_wrapped_and_arguments_are_unwrapped() -> None:
    made = convert_to_object_root(
        {"type": "array", "items": {"$ref": "#/$defs/A"}, "$defs": {"A": {"items": {"$ref": "#"}}}}
    )
    assert made.schema == {
        "$defs": {"A": {"items": {"$ref": "#/properties/value"}}},
        "type": "object",
        "properties": {"value": {"type": "array", "items": {"$ref": "#/$defs/A"}}},
        "required": ["value"],
    }
    assert convert_arguments([1, 2], made) == {"value": [1, 2]}
    assert restore_arguments({"value": [1, 2]}, made) == [1, 2]
    assert restore_arguments({"other": 1}, made) == {"other": 1}


def test_property_names_that_are_refused_get_others_and_arguments_get_them_back() -> None:
    given = {
        "type": "object",
        "properties": {"$top": NUMBER, "filter[name]": STRING, "a.b-c_1": STRING, "x" * 65: STRING, "": STRING},
        "required": ["$top", "a.b-c_1"],
        "dependentRequired": {"$top": ["filter[name]"]},
        "additionalProperties": {"$ref": "#/properties/filter[name]"},
    }
    made = convert_to_object_root(given)
    new = {old: name for name, old in made.renames.items()}
    assert new == {
        "$top": "top_81bf98",
        "filter[name]": "filter_name_259d80",
        "x" * 65: "x" * 57 + "_9537c5",
        "": "p_e3b0c4",
    }
    assert list(made.schema["properties"]) == [new["$top"], new["filter[name]"], "a.b-c_1", new["x" * 65], new[""]]
    assert made.schema["required"] == [new["$top"], "a.b-c_1"]
    assert made.schema["dependentRequired"] == {new["$top"]: [new["filter[name]"]]}
    assert made.schema["additionalProperties"] == {"$ref": f"#/properties/{new['filter[name]']}"}
    arguments = {"$top": 3, "a.b-c_1": "x", "filter[name]": {"deep": [1]}}
    assert restore_arguments(convert_arguments(arguments, made), made) == arguments
    assert [change.pointer for change in made.changes][:2] == ["/properties/$top", "/properties/filter[name]"]


def test_a_new_name_that_is_taken_gets_another_mark() -> None:
    taken = convert_to_object_root({"type": "object", "properties": {"$top": NUMBER, "top_81bf98": STRING}})
    assert len(taken.schema["properties"]) == 2
    assert set(taken.renames.values()) == {"$top"}


def test_names_below_the_root_are_left_alone() -> None:
    given = {"type": "object", "properties": {"filter": {"type": "object", "properties": {"$eq": STRING}}}}
    assert convert_to_object_root(given).schema is given


# --- the closed subset ----------------------------------------------------------------------------------------------

ANY_ITEM = {"anyOf": [{"type": "STRING", "nullable": True}, *({"type": t} for t in ("NUMBER", "BOOLEAN", "OBJECT"))]}
ANYTHING = {"anyOf": [*ANY_ITEM["anyOf"], {"type": "ARRAY", "items": ANY_ITEM}]}
OBJECT = {"type": "OBJECT"}


def text(**more: Any) -> dict[str, Any]:
    return {"type": "STRING", **more}


SUBSET: dict[str, tuple[Any, Any]] = {
    "137 type as an array": ({"type": ["string", "null"]}, text(nullable=True)),
    "null first": ({"type": ["null", "string"]}, text(nullable=True)),
    "several types": (
        {"type": ["string", "integer", "null"], "minLength": 2, "minimum": 1, "description": "d"},
        {"anyOf": [text(description="d", nullable=True, minLength=2), {"type": "INTEGER", "minimum": 1}]},
    ),
    "only null": ({"type": "null"}, {"type": "NULL"}),
    "138 references keep what stands beside them": (
        {
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/A", "description": "mine"}},
            "$defs": {"A": {"type": "string", "minLength": 2, "description": "its"}},
        },
        {"type": "OBJECT", "properties": {"a": text(description="mine\nits", minLength=2)}},
    ),
    "139 recursion": (
        {
            "$defs": {"N": {"type": "object", "properties": {"next": {"$ref": "#/$defs/N"}, "v": STRING}}},
            "$ref": "#/$defs/N",
        },
        {"type": "OBJECT", "properties": {"next": OBJECT, "v": text()}},
    ),
    "a reference to the root": (
        {"type": "object", "properties": {"child": {"$ref": "#"}}},
        {"type": "OBJECT", "properties": {"child": OBJECT}},
    ),
    "two that contain each other": (
        {
            "$ref": "#/definitions/A",
            "definitions": {
                "A": {"type": "object", "properties": {"b": {"$ref": "#/definitions/B"}}},
                "B": {"type": "array", "items": {"$ref": "#/definitions/A"}},
            },
        },
        {"type": "OBJECT", "properties": {"b": {"type": "ARRAY", "items": OBJECT}}},
    ),
    "the same definition twice is no recursion": (
        {
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/S"}, "b": {"$ref": "#/$defs/S"}},
            "$defs": {"S": STRING},
        },
        {"type": "OBJECT", "properties": {"a": text(), "b": text()}},
    ),
    "a reference that points nowhere": ({"$ref": "#/$defs/none"}, ANYTHING),
    "escapes in a reference": (
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/%C3%A4%20~1b"}}, "$defs": {"ä /b": STRING}},
        {"type": "OBJECT", "properties": {"a": text()}},
    ),
    "an anchor": (
        {"type": "object", "properties": {"a": {"$ref": "#here"}}, "$defs": {"x": {"$anchor": "here", **STRING}}},
        {"type": "OBJECT", "properties": {"a": text()}},
    ),
    "141 numbers in an enum": (
        {"type": "integer", "enum": [60, 1440], "description": "Minutes"},
        {"type": "INTEGER", "description": "Minutes. One of: 60, 1440."},
    ),
    "141 a constant flag": ({"const": True}, {"type": "BOOLEAN", "description": "Always true."}),
    "every flag": ({"type": "boolean", "enum": [True, False]}, {"type": "BOOLEAN"}),
    "numbers where strings are demanded": ({"type": "string", "enum": [3, 4]}, text(enum=["3", "4"])),
    "values of several types": (
        {"enum": ["a", 1, None]},
        {"anyOf": [text(nullable=True, enum=["a"]), {"type": "INTEGER", "description": "Always 1."}]},
    ),
    "an empty string among the values": (
        {"type": "string", "enum": ["", "a"]},
        text(description='One of: "", "a".'),
    ),
    "no values": ({"type": "string", "enum": []}, text()),
    "142 an enum without type": ({"enum": ["a", "b"]}, text(enum=["a", "b"])),
    "a constant": ({"const": "a"}, text(enum=["a"])),
    "143 required without property": (
        {"type": "object", "properties": {"a": STRING}, "required": ["a", "b"]},
        {"type": "OBJECT", "properties": {"a": text()}, "required": ["a"]},
    ),
    "one of": ({"oneOf": [STRING, NUMBER]}, {"anyOf": [text(), {"type": "NUMBER"}]}),
    "any of with null": (
        {"anyOf": [STRING, {"type": "null"}], "description": "d", "default": None},
        text(description="d", nullable=True, default=None),
    ),
    "a union stands alone": (
        {"anyOf": [STRING, NUMBER], "description": "d", "title": "t", "default": 3},
        {"anyOf": [text(title="t", description="d"), {"type": "NUMBER", "default": 3}]},
    ),
    "unions inside unions": (
        {"anyOf": [STRING, {"oneOf": [NUMBER, {"type": "null"}, STRING]}]},
        {"anyOf": [text(), {"type": "NUMBER", "nullable": True}]},
    ),
    "a type beside a union": (
        {"type": "string", "anyOf": [{"format": "date"}, {"pattern": "^x"}, NUMBER]},
        {"anyOf": [text(format="date"), text(pattern="^x")]},
    ),
    "an object beside a union": (
        {
            "type": "object",
            "properties": {"a": STRING, "b": STRING},
            "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
        },
        {"type": "OBJECT", "description": "One of: {a}; {b}.", "properties": {"a": text(), "b": text()}},
    ),
    "all of": (
        {"allOf": [{"properties": {"a": STRING}}, {"properties": {"a": {"maxLength": 3}}, "required": ["a"]}]},
        {"type": "OBJECT", "properties": {"a": text(maxLength=3)}, "required": ["a"]},
    ),
    "narrower of two": (
        {"allOf": [{"type": "number", "minimum": 1}, {"type": "integer", "minimum": 3, "maximum": 9}]},
        {"type": "INTEGER", "minimum": 3, "maximum": 9},
    ),
    "exclusive bounds": (
        {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1.5},
        {"type": "NUMBER", "description": "Greater than 0. Less than 1.5.", "minimum": 0, "maximum": 1.5},
    ),
    "exclusive bounds of whole numbers are exact": (
        {"type": "integer", "exclusiveMinimum": 0, "minimum": -5},
        {"type": "INTEGER", "minimum": 1},
    ),
    "what only words can say": (
        {"type": "array", "items": STRING, "uniqueItems": True},
        {"type": "ARRAY", "description": "All items are different.", "items": text()},
    ),
    "a map": (
        {"type": "object", "additionalProperties": STRING},
        {"type": "OBJECT", "description": 'Other keys are free; each of their values matches {"type":"string"}.'},
    ),
    "items that are not said": ({"type": "array"}, {"type": "ARRAY", "items": ANYTHING}),
    "a tuple": (
        {"type": "array", "prefixItems": [STRING, NUMBER], "minItems": 2, "maxItems": 2},
        {"type": "ARRAY", "items": {"anyOf": [text(), {"type": "NUMBER"}]}, "minItems": 2, "maxItems": 2},
    ),
    "a tuple of older drafts": (
        {"type": "array", "items": [STRING, STRING], "additionalItems": False},
        {"type": "ARRAY", "items": text()},
    ),
    "counts as strings": ({"type": "string", "minLength": "3", "maxLength": 5.0}, text(minLength=3, maxLength=5)),
    "keywords of another type": ({"type": "string", "required": ["x"], "properties": {}, "items": {}}, text()),
    "a format without its enum": ({"type": "string", "format": "enum"}, text()),
    "a format": ({"type": "string", "format": "uuid"}, text(format="uuid")),
    "a guessed object": ({"properties": {"a": STRING}}, {"type": "OBJECT", "properties": {"a": text()}}),
    "types of programming languages": (
        {"type": "dict", "properties": {"a": {"type": "float"}, "b": {"type": "any"}}},
        {"type": "OBJECT", "properties": {"a": {"type": "NUMBER"}, "b": ANYTHING}},
    ),
    "an unknown type": ({"type": "gizmo", "pattern": "x"}, text(pattern="x")),
    "examples": ({"type": "string", "examples": ["x", "y"]}, text(example="x")),
    "true and false": (
        {"type": "object", "properties": {"a": True, "b": False}, "required": ["a", "b"]},
        {"type": "OBJECT", "properties": {"a": ANYTHING}, "required": ["a"]},
    ),
    "false among alternatives": ({"anyOf": [STRING, False]}, text()),
    "what contradicts itself": (
        {"type": "object", "properties": {"a": {"allOf": [STRING, NUMBER]}, "b": STRING}},
        {"type": "OBJECT", "properties": {"b": text()}},
    ),
    "no schema": (None, OBJECT),
    "nothing fits": (False, OBJECT),
    "no properties": ({"type": "object", "properties": {}, "required": []}, {"type": "OBJECT", "properties": {}}),
    "the order of properties": (
        {"type": "object", "properties": {"a": STRING}, "propertyOrdering": ["a", "gone"]},
        {"type": "OBJECT", "properties": {"a": text()}, "propertyOrdering": ["a"]},
    ),
    "properties called like keywords": (
        {
            "type": "object",
            "properties": {
                "type": STRING,
                "format": {"type": "object", "properties": {"enum": STRING}},
                "default": {"type": "string"},
                "required": {"type": "boolean"},
                "properties": {"type": "array", "items": STRING},
                "nullable": NUMBER,
            },
            "required": ["type", "required"],
        },
        {
            "type": "OBJECT",
            "properties": {
                "type": text(),
                "format": {"type": "OBJECT", "properties": {"enum": text()}},
                "default": text(),
                "required": {"type": "BOOLEAN"},
                "properties": {"type": "ARRAY", "items": text()},
                "nullable": {"type": "NUMBER"},
            },
            "required": ["type", "required"],
        },
    ),
}


@pytest.mark.parametrize(("given", "wanted"), SUBSET.values(), ids=SUBSET)
def test_the_subset(given: Any, wanted: Any) -> None:
    made = convert_to_openapi_subset(given)
    assert made.schema == wanted
    assert not subset_faults(made.schema)


def test_case_142_the_order_of_keywords_does_not_matter() -> None:
    node = {"enum": [1, 2], "description": "d", "type": "integer", "exclusiveMinimum": 0, "x-mine": 1, "minimum": 1}
    forward = convert_to_openapi_subset(node)
    backward = convert_to_openapi_subset(dict(reversed(node.items())))
    assert encode(forward.schema) == encode(backward.schema)
    assert {change.what for change in forward.changes} == {change.what for change in backward.changes}


def test_a_property_called_like_a_reference_is_a_property() -> None:
    made = convert_to_openapi_subset(
        {"type": "object", "properties": {"$ref": {"type": "string"}}, "required": ["$ref"]}
    )
    (name,) = made.schema["properties"]
    assert made.renames == {name: "$ref"}
    assert made.schema["required"] == [name]
    assert restore_arguments({name: "x"}, made) == {"$ref": "x"}


def test_names_are_replaced_at_every_depth_and_come_back() -> None:
    headers = {"type": "object", "properties": {"Content-Type": STRING, "plain": STRING}, "required": ["Content-Type"]}
    made = convert_to_openapi_subset({"type": "object", "properties": {"list": {"type": "array", "items": headers}}})
    name = "Content_Type_85eb00"
    assert made.renames == {name: "Content-Type"}
    assert made.schema["properties"]["list"]["items"] == {
        "type": "OBJECT",
        "properties": {name: text(), "plain": text()},
        "required": [name],
    }
    arguments = {"list": [{"Content-Type": "a/b", "plain": "x"}]}
    assert convert_arguments(arguments, made) == {"list": [{name: "a/b", "plain": "x"}]}
    assert restore_arguments(convert_arguments(arguments, made), made) == arguments


def test_arguments_without_new_names_are_the_same_object() -> None:
    made = ConvertedSchema({}, (), {"a_1": "$a"})
    arguments = {"x": [{"y": 1}]}
    assert restore_arguments(arguments, made) is arguments


def test_arguments_need_an_object_at_the_root() -> None:
    assert convert_to_openapi_subset({"anyOf": [STRING, NUMBER]}).schema == {"anyOf": [text(), {"type": "NUMBER"}]}
    wrapped = convert_to_openapi_subset({"anyOf": [STRING, NUMBER]}, arguments=True)
    assert wrapped.schema["properties"] == {"value": {"anyOf": [text(), {"type": "NUMBER"}]}}
    assert wrapped.wrapper_property == "value"
    assert convert_to_openapi_subset({"type": "STRING"}, arguments=True).wrapper_property == "value"
    union = {
        "anyOf": [{"type": "object", "properties": {"a": STRING}}, {"type": "object", "properties": {"b": STRING}}]
    }
    assert convert_to_openapi_subset(union, arguments=True).schema["type"] == "OBJECT"


def test_changes_name_the_place_in_the_schema_that_was_given() -> None:
    made = convert_to_openapi_subset(
        {
            "$schema": "x",
            "type": "object",
            "properties": {"a/b": {"$ref": "#/$defs/A"}, "b": {"$ref": "#/$defs/none"}},
            "$defs": {"A": {"type": "object", "additionalProperties": False, "properties": {"c": {"multipleOf": 2}}}},
        }
    )
    assert texts(made) == [
        "/$schema: `$schema` was left out",
        "/$defs/A/additionalProperties: `additionalProperties` was left out",
        "/$defs/A/properties/c/multipleOf: `multipleOf` became a sentence of the description",
        f'/properties/a~1b: the property "a/b" was renamed `{next(iter(made.renames))}`',
        '/properties/b/$ref: "#/$defs/none" has no target and was left out',
    ]
    assert made.changes[0].path_from(((None, "tools"), 3)) == (((None, "tools"), 3), "$schema")


# --- bounds ---------------------------------------------------------------------------------------------------------


def bomb(levels: int, fan: int) -> dict[str, Any]:
    definitions: dict[str, Any] = {
        f"d{level}": {
            "type": "object",
            "properties": {f"p{number}": {"$ref": f"#/$defs/d{level + 1}"} for number in range(fan)},
        }
        for level in range(levels)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**definitions, f"d{levels}": STRING}}


def heavy() -> dict[str, Any]:
    """Little to read, much to copy."""
    names = [f"p{number}" for number in range(5_000)]
    big = {"type": "string", "description": "x" * 100_000}
    return {"type": "object", "properties": {name: {"$ref": "#/$defs/A"} for name in names}, "$defs": {"A": big}}


def make_crossing_schema() -> dict[str, Any]:
    parts = [{"allOf": [{"$ref": "#/$defs/A"}, {"properties": {"x": {"minLength": n}}}]} for n in range(2_000)]
    return {"anyOf": parts, "$defs": {"A": {"properties": {"x": {"description": "x" * 100_000}}}}}


def all_of_bomb() -> dict[str, Any]:
    twice = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(60)}
    return {"$ref": "#/$defs/d0", "$defs": {**twice, "d60": {"type": "object"}}}


def union_bomb() -> dict[str, Any]:
    twice = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(60)}
    return {"$ref": "#/$defs/d0", "$defs": {**twice, "d60": {"type": "object", "properties": {"a": STRING}}}}


def chain(key: str) -> dict[str, Any]:
    links: dict[str, Any] = {f"d{n}": {key: [{"$ref": f"#/$defs/d{n + 1}"}, {"title": "t"}]} for n in range(3_000)}
    return {"$ref": "#/$defs/d0", "$defs": {**links, "d3000": {"type": "object"}}}


def straight() -> dict[str, Any]:
    links: dict[str, Any] = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(3_000)}
    return {"$ref": "#/$defs/d0", "$defs": {**links, "d3000": {"type": "object"}}}


def deep_references() -> dict[str, Any]:
    links: dict[str, Any] = {f"d{n}": {"type": "array", "items": {"$ref": f"#/$defs/d{n + 1}"}} for n in range(3_000)}
    return {"$ref": "#/$defs/d0", "$defs": {**links, "d3000": {"type": "object"}}}


BOMBS: dict[str, Callable[[], Any]] = {
    "tree": lambda: bomb(40, 2),
    "wide tree": lambda: bomb(5, 100),
    "long text": heavy,
    "crossed": make_crossing_schema,
    "allOf": all_of_bomb,
    "anyOf": union_bomb,
    "chain of allOf": lambda: chain("allOf"),
    "chain of anyOf": lambda: chain("anyOf"),
    "chain": straight,
    "chain of items": deep_references,
    "anything, often": lambda: {"type": "object", "properties": {f"p{n}": {} for n in range(20_000)}},
    "a description beside many": lambda: {
        "description": "x" * 200_000,
        "anyOf": [{"title": str(n)} for n in range(500)],
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("make", BOMBS.values(), ids=BOMBS)
@every_conversion
def test_nothing_small_becomes_huge(make: Callable[[], Any], convert: Callable[[Any], ConvertedSchema]) -> None:
    schema = make()
    made = convert(schema)
    assert len(encode(made.schema)) < 2 * COPY_BUDGET + 8 * len(encode(schema))
    assert convert(made.schema).schema is made.schema


@every_conversion
def test_conversions_leave_stack_frames_to_their_callers(convert: Callable[[Any], ConvertedSchema]) -> None:
    schema, limit = deep_references(), sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 700)
    try:
        convert(schema)
    finally:
        sys.setrecursionlimit(limit)


def test_what_is_cut_off_is_said() -> None:
    assert any("copy too much" in change.what for change in convert_to_openapi_subset(bomb(40, 2)).changes)
    assert not convert_to_openapi_subset(bomb(3, 3)).changes


def nest_schema(levels: int, key: str) -> dict[str, Any]:
    node: Any = {"type": "string", "x": 1, "nullable": True, "oneOf": [{}]}
    for _ in range(levels):
        inner = {"items": node, "properties": {"a": node}, "anyOf": [node], "allOf": [node], "x": {"y": node}}[key]
        node = {"type": "object", key: inner}
    result: dict[str, Any] = node
    return result


LOOKS: dict[str, Callable[[Any], Any]] = {
    **CONVERSIONS,
    "problems": schema_problems,
    "strict_problems": strict_problems,
    "missing_descriptions": missing_descriptions,
}


@pytest.mark.parametrize("key", ["items", "properties", "anyOf", "allOf", "x"])
@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
@pytest.mark.parametrize("levels", [90, 190, 10_000])
def test_absurd_nesting_is_refused_by_name(key: str, look: Callable[[Any], Any], levels: int) -> None:
    schema = nest_schema(levels, key)
    try:
        look(schema)
    except Malformed as error:
        assert "nested too deeply" in error.problem  # noqa: PT017
        assert levels > 90


def test_no_depth_of_arguments_is_too_much() -> None:
    made = ConvertedSchema({}, (), {"a_1": "$a"})
    arguments: Any = {"a_1": 1}
    for _ in range(10_000):
        arguments = [{"a_1": arguments}]
    back = restore_arguments(arguments, made)
    for _ in range(10_000):
        back = back[0]["$a"]
    assert back == {"$a": 1}


# --- plain JSON Schema ----------------------------------------------------------------------------------------------

STANDARD: dict[str, tuple[Any, Any]] = {
    "types": (
        {"type": "OBJECT", "properties": {"type": {"type": "STRING"}, "n": {"type": 3}}},
        {"type": "object", "properties": {"type": STRING, "n": {"type": "integer"}}},
    ),
    "no type": ({"type": "TYPE_UNSPECIFIED", "anyOf": [{"type": "STRING"}]}, {"anyOf": [STRING]}),
    "nullable": ({"type": "STRING", "nullable": True}, {"type": ["string", "null"]}),
    "not nullable": ({"type": "string", "nullable": False}, STRING),
    "nullable with values": (
        {"type": "STRING", "nullable": True, "enum": ["a"], "format": "enum"},
        {"type": ["string", "null"], "enum": ["a", None]},
    ),
    "nullable union": ({"anyOf": [STRING], "nullable": True}, {"anyOf": [STRING, {"type": "null"}]}),
    "nullable reference": (
        {"$ref": "#/$defs/A", "nullable": True, "description": "d"},
        {"description": "d", "anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]},
    ),
    "snake case": (
        {"any_of": [{"type": "ARRAY", "items": {"type": "STRING"}, "min_items": "2"}], "max_length": 3},
        {"anyOf": [{"type": "array", "items": STRING, "minItems": 2}], "maxLength": 3},
    ),
    "its own references": (
        {"ref": "#/defs/A", "defs": {"A": {"type": "STRING"}}},
        {"$ref": "#/$defs/A", "$defs": {"A": STRING}},
    ),
    "an author's mark is no reference": ({"ref": "User", "type": "object"}, {"ref": "User", "type": "object"}),
    "order": (
        {"type": "OBJECT", "properties": {"a": STRING, "b": STRING}, "propertyOrdering": ["b", "a"]},
        {"type": "object", "properties": {"b": STRING, "a": STRING}},
    ),
    "example": ({"type": "string", "example": "x"}, {"type": "string", "examples": ["x"]}),
    "flags for bounds": (
        {"type": "number", "minimum": 1, "exclusiveMinimum": True, "maximum": 9, "exclusiveMaximum": False},
        {"type": "number", "maximum": 9, "exclusiveMinimum": 1},
    ),
    "tuples": (
        {"type": "array", "items": [STRING, NUMBER], "additionalItems": False},
        {"type": "array", "prefixItems": [STRING, NUMBER], "items": False},
    ),
    "required said by the property": (
        {"type": "object", "properties": {"a": {"type": "string", "required": True}, "b": {"required": False}}},
        {"type": "object", "properties": {"a": STRING, "b": {}}, "required": ["a"]},
    ),
    "programming languages": ({"type": "dict"}, {"type": "object"}),
}


@pytest.mark.parametrize(("given", "wanted"), STANDARD.values(), ids=STANDARD)
def test_plain_json_schema(given: Any, wanted: Any) -> None:
    made = convert_to_standard(given)
    assert encode(made.schema) == encode(wanted)
    assert not made.changes


def test_an_unknown_type_is_reported() -> None:
    made = convert_to_standard({"type": "object", "properties": {"a": {"type": "gizmo"}}})
    assert made.schema == {"type": "object", "properties": {"a": {}}}
    assert texts(made) == ['/properties/a/type: "gizmo" is not a type and was left out']


# --- strictness -----------------------------------------------------------------------------------------------------

STRICT = {
    "type": "object",
    "properties": {
        "a": {"type": ["string", "null"], "pattern": "^a"},
        "b": {"type": "array", "items": {"$ref": "#/$defs/B"}},
        "c": {"anyOf": [STRING, {"type": "number", "minimum": 1}], "description": "d"},
    },
    "required": ["a", "b", "c"],
    "additionalProperties": False,
    "$defs": {
        "B": {
            "type": "object",
            "properties": {"next": {"anyOf": [{"$ref": "#/$defs/B"}, {"type": "null"}]}},
            "required": ["next"],
            "additionalProperties": False,
        }
    },
}

FAULTS: dict[str, tuple[Any, Strictness, list[str]]] = {
    "none": (STRICT, STRICT_ALL_REQUIRED, []),
    "recursion": (STRICT, STRICT_WITH_OPTIONAL, [
        "/properties/c/anyOf/1/minimum: `minimum` cannot be enforced",
        "/$defs/B/properties/next/anyOf/0/$ref: a schema that contains itself cannot be enforced",
    ]),
    "no object": ({"type": "array", "items": STRING}, STRICT_ALL_REQUIRED, [": the root must be an object and not a union"]),
    "true": (True, STRICT_ALL_REQUIRED, [": the schema must be an object"]),
    "open and optional": (
        {"type": "object", "properties": {"a": STRING}},
        STRICT_ALL_REQUIRED,
        [": `additionalProperties` must be false", "/properties/a: every property must be required"],
    ),
    "optional": ({"type": "object", "properties": {"a": STRING}, "additionalProperties": False}, STRICT_WITH_OPTIONAL, []),
    "keywords": (
        {
            "type": "object",
            "properties": {"default": {"type": "string", "default": "x", "minLength": 1, "format": "uri"}},
            "required": ["default"],
            "additionalProperties": False,
        },
        STRICT_ALL_REQUIRED,
        [
            "/properties/default/default: `default` cannot be enforced",
            "/properties/default/minLength: `minLength` cannot be enforced",
            '/properties/default/format: `format` "uri" cannot be enforced',
        ],
    ),
    "a reference with company": (
        {
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/A", "description": "d"}},
            "required": ["a"],
            "additionalProperties": False,
            "$defs": {"A": STRING},
        },
        STRICT_ALL_REQUIRED,
        ["/properties/a/$ref: `$ref` cannot be combined with other keywords"],
    ),
    "missing things": (
        {
            "type": "object",
            "properties": {"a": {}, "b": {"type": "array"}, "c": {"type": "object", "additionalProperties": False}},
            "required": ["a", "b", "c", "d"],
            "additionalProperties": False,
        },
        STRICT_ALL_REQUIRED,
        [
            '/required: "d" is required but not a property',
            "/properties/a: a type is missing",
            "/properties/b: `items` is missing",
            "/properties/c: `properties` is missing",
        ],
    ),
    "look-around": (
        {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?=a)"}}, "additionalProperties": False},
        STRICT_WITH_OPTIONAL,
        ['/properties/a/pattern: `pattern` "(?=a)" cannot be enforced'],
    ),
    "a reference to nowhere": (
        {"type": "object", "properties": {"a": {"$ref": "#/x"}}, "additionalProperties": False},
        STRICT_WITH_OPTIONAL,
        ['/properties/a/$ref: "#/x" has no target'],
    ),
    **{
        f"a property called {name}, not the keyword": (
            {
                "type": "object",
                "properties": {name: {"type": "array", "items": {"$ref": "#/x"}}},
                "additionalProperties": False,
            },
            STRICT_WITH_OPTIONAL,
            [f'/properties/{name}/items/$ref: "#/x" has no target'],
        )
        for name in ("$defs", "definitions", "properties", "items", "additionalProperties")
    },
    "a property called $defs that contains itself": (
        {
            "type": "object",
            "properties": {"$defs": {"type": "array", "items": {"$ref": "#"}}},
            "additionalProperties": False,
        },
        STRICT_WITH_OPTIONAL,
        ["/properties/$defs/items/$ref: a schema that contains itself cannot be enforced"],
    ),
    "a property called additionalProperties is a schema": (
        {"type": "object", "properties": {"additionalProperties": True}, "additionalProperties": False},
        STRICT_WITH_OPTIONAL,
        ["/properties/additionalProperties: the schema must be an object"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("schema", "strictness", "wanted"), FAULTS.values(), ids=FAULTS)
def test_what_keeps_a_schema_from_being_strict(schema: Any, strictness: Strictness, wanted: list[str]) -> None:
    assert [f"{fault.pointer}: {fault.what}" for fault in strict_problems(schema, strictness)] == wanted


def test_limits_of_strictness() -> None:
    def make_closed_object(properties: dict[str, Any]) -> dict[str, Any]:
        names = list(properties)
        return {"type": "object", "properties": properties, "required": names, "additionalProperties": False}

    many = make_closed_object({f"p{n}": {"type": "string", "enum": [str(n), "x"]} for n in range(501)})
    assert [fault.what for fault in strict_problems(many)] == ["1,002 values of enums; 1,000 are the limit"]
    long = make_closed_object({"p": {"type": "string", "enum": ["x" * 120_000]}})
    assert [fault.what for fault in strict_problems(long)] == [
        "120,001 characters in names and values; 120,000 are the limit"
    ]
    deep: dict[str, Any] = STRING
    for _ in range(10):
        deep = make_closed_object({"properties": deep})
    assert [fault.what for fault in strict_problems(deep)] == ["more than 10 levels of nesting"]
    assert not strict_problems(deep["properties"]["properties"])


STRUCTURED: dict[str, tuple[Any, Any, Strictness]] = {
    "closed where nothing was said": (
        {"type": "object", "properties": {"a": {"type": "object", "properties": {}}}},
        {
            "type": "object",
            "properties": {"a": {"type": "object", "properties": {}, "additionalProperties": False}},
            "additionalProperties": False,
        },
        STRICT_ALL_REQUIRED,
    ),
    "a property may have the name of a keyword": (
        {"type": "object", "properties": {"additionalProperties": {"type": "string", "minLength": 2}}},
        {
            "type": "object",
            "properties": {"additionalProperties": {"type": "string", "description": "At least 2 characters."}},
            "additionalProperties": False,
        },
        STRICT_ALL_REQUIRED,
    ),
    "more items than can be enforced": (
        {"type": "array", "items": STRING, "minItems": 2},
        {"type": "array", "items": STRING, "description": "At least 2 items."},
        STRICT_WITH_OPTIONAL,
    ),
    "an object of any keys stays one": (
        {"type": "object", "properties": {"a": {"type": "object"}}},
        {"type": "object", "properties": {"a": {"type": "object"}}, "additionalProperties": False},
        STRICT_WITH_OPTIONAL,
    ),
    "a name that only a sentence mentions": (
        {"type": "string", "$id": "x", "not": {"$ref": "#a"}},
        {"type": "string", "description": 'Must not match {"$ref":"#a"}.'},
        STRICT_ALL_REQUIRED,
    ),
    "open stays open": (
        {"type": "object", "additionalProperties": STRING},
        {"type": "object", "additionalProperties": STRING},
        STRICT_ALL_REQUIRED,
    ),
    "words for bounds": (
        {"type": "string", "minLength": 2, "description": "A name", "default": "x", "format": "uri"},
        {"type": "string", "description": "A name. At least 2 characters. In the format uri."},
        STRICT_ALL_REQUIRED,
    ),
    "bounds of numbers": (
        {"type": "integer", "minimum": 1, "exclusiveMaximum": 5},
        {"type": "integer", "description": "At least 1. Less than 5."},
        STRICT_WITH_OPTIONAL,
    ),
    "one of": ({"oneOf": [STRING, NUMBER]}, {"anyOf": [STRING, NUMBER]}, STRICT_ALL_REQUIRED),
    "all of one": (
        {"allOf": [STRING], "description": "d"},
        {"description": "d", "type": "string"},
        STRICT_ALL_REQUIRED,
    ),
    "words beside a reference": (
        {"$ref": "#/$defs/A", "description": "d"},
        {"description": "d", "anyOf": [{"$ref": "#/$defs/A"}]},
        STRICT_ALL_REQUIRED,
    ),
    "allowed there": (
        {"$ref": "#/$defs/A", "description": "d"},
        {"$ref": "#/$defs/A", "description": "d"},
        STRICT_WITH_OPTIONAL,
    ),
}


@pytest.mark.parametrize(("given", "wanted", "strictness"), STRUCTURED.values(), ids=STRUCTURED)
def test_as_strict_as_the_meaning_allows(given: Any, wanted: Any, strictness: Strictness) -> None:
    assert convert_to_strict(given, strictness).schema == wanted


def test_an_optional_property_stays_optional_and_is_reported() -> None:
    made = convert_to_strict({"type": "object", "properties": {"a": STRING}})
    assert [fault.what for fault in strict_problems(made.schema)] == ["every property must be required"]


# --- descriptions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("file_path", "The file path."),
        ("filePath", "The file path."),
        ("HTTPServerURL2", "The HTTP server URL 2."),
        ("$eq", "The eq."),
        ("größe", "The größe."),
        ("", "The value."),
        ("__", "The value."),
    ],
)
def test_a_sentence_made_of_a_name(name: str, wanted: str) -> None:
    assert describe_name(name) == wanted


def test_missing_descriptions_are_found_and_filled() -> None:
    schema = {
        "type": "object",
        "properties": {
            "file_path": STRING,
            "said": {"type": "string", "description": "Yes."},
            "blank": {"type": "object", "description": " ", "properties": {"in/ner": True, "never": False}},
            "list": {"type": "array", "description": "d", "items": {"properties": {"x": NUMBER}}},
        },
        "$defs": {"D": {"properties": {"y": {"$ref": "#"}}}},
    }
    assert missing_descriptions(schema) == [
        "/properties/file_path",
        "/properties/blank",
        "/properties/blank/properties/in~1ner",
        "/properties/list/items/properties/x",
        "/$defs/D/properties/y",
    ]
    made = add_descriptions(schema)
    assert missing_descriptions(made.schema) == []
    assert made.schema["properties"]["blank"]["properties"]["in/ner"] == {"description": "The in ner."}
    assert len(made.changes) == 5


# --- problems -------------------------------------------------------------------------------------------------------

PROBLEMS: dict[str, tuple[Any, list[tuple[str, str]]]] = {
    "none": ({"type": "object", "properties": {"type": {"$ref": "#"}}, "additionalProperties": False}, []),
    "an unknown type": ({"properties": {"a/b": {"type": "dict"}}}, [("/properties/a~1b/type", '"dict" is not a type')]),
    "required twice": ({"required": ["a", "a"]}, [("/required", "contains a name twice")]),
    "required as a flag": (
        {"properties": {"a": {"required": True}}},
        [("/properties/a/required", "must be an array of names, not true or false")],
    ),
    "properties as an array": ({"properties": []}, [("/properties", "must be an object, not an array")]),
    "no schema": ({"items": 3}, [("/items", "a schema is an object, true or false, not a whole number")]),
    "nothing": (None, [("", "a schema is an object, true or false, not null")]),
    "a reference to nowhere": ({"$ref": "#/$defs/x"}, [("/$ref", '"#/$defs/x" has no target in this schema')]),
    "a reference elsewhere": ({"$ref": "https://example.com/schema"}, []),
    "a negative count": ({"minLength": -1}, [("/minLength", "must not be negative")]),
    "an empty union": ({"anyOf": []}, [("/anyOf", "must contain at least one schema")]),
    "a bad pattern": (
        {"pattern": "("},
        [("/pattern", '"(" is not a valid regular expression: missing ), unterminated subpattern at position 0')],
    ),
    "a pattern of ECMAScript": ({"pattern": r"^\p{L}+(?<year>\d{4})$"}, []),
    "a pattern that Python frowns at": ({"pattern": "[[a]"}, []),
    "a pattern nested absurdly": ({"pattern": "[]" + "(" * 5_000}, []),
}


@pytest.mark.parametrize(("schema", "wanted"), PROBLEMS.values(), ids=PROBLEMS)
def test_problems_name_the_place(schema: Any, wanted: list[tuple[str, str]]) -> None:
    assert schema_problems(schema) == wanted


# --- laws over generated schemas ------------------------------------------------------------------------------------

KEYS = st.sampled_from(["a", "b", "type", "$ref", "enum", "a b", "nullable", "properties", "x-y", "größe"])
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.sampled_from([0.5, 3.0, Raw(b"1e2")]), st.text(max_size=3)
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=6
)
TYPE_NAMES = st.sampled_from(["string", "number", "integer", "boolean", "array", "object", "null"])
ANY_TYPES = TYPE_NAMES | st.sampled_from(["STRING", "OBJECT", "dict", "gizmo", 3, None, "any"])
REFERENCES = st.sampled_from(
    [
        "#",
        "#/$defs/a",
        "#/$defs/b",
        "#/definitions/a",
        "#/properties/a",
        "#/anyOf/0",
        "#none",
        "http://x/y",
        "#/$defs/a%20b",
    ]
)


def keyword(inner: st.SearchStrategy[Any]) -> dict[str, st.SearchStrategy[Any]]:
    """Every keyword with values that are right, or nearly."""
    counts = st.integers(0, 4) | st.sampled_from(["2", 1.0])
    schemas = st.lists(inner, max_size=3)
    named = st.dictionaries(KEYS, inner, max_size=3)
    names = st.lists(KEYS, max_size=3)
    numbers = st.integers(-3, 3) | st.sampled_from([0.5, Raw(b"1e2"), True])
    return {
        "type": ANY_TYPES | st.lists(ANY_TYPES, max_size=3),
        "properties": named,
        "required": names | st.booleans(),
        "additionalProperties": inner,
        "patternProperties": st.dictionaries(st.sampled_from(["^a", "["]), inner, max_size=2),
        "items": inner | schemas,
        "prefixItems": schemas,
        "additionalItems": inner,
        "anyOf": schemas,
        "oneOf": schemas,
        "allOf": schemas,
        "not": inner,
        "$ref": REFERENCES,
        "$defs": named,
        "definitions": named,
        "enum": st.lists(VALUES, max_size=3),
        "const": VALUES,
        "default": VALUES,
        "example": VALUES,
        "examples": st.lists(VALUES, max_size=2),
        "nullable": st.booleans(),
        "title": st.text(max_size=3),
        "description": st.text(max_size=5) | st.none(),
        "format": st.sampled_from(["date", "uri", "enum", "int32", 3]),
        "pattern": st.sampled_from(["^a", "(", "(?=a)"]),
        "propertyOrdering": names,
        "dependentRequired": st.dictionaries(KEYS, names, max_size=2),
        "dependencies": st.dictionaries(KEYS, names | inner, max_size=2),
        "uniqueItems": st.booleans(),
        "deprecated": st.booleans(),
        "$schema": st.just("http://json-schema.org/draft-07/schema#"),
        "$id": st.sampled_from(["http://x/y", "a#b"]),
        "$anchor": st.sampled_from(["none", "a b"]),
        "x-mine": VALUES,
        "any_of": schemas,
        "min_items": counts,
        **dict.fromkeys(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"], numbers),
        **dict.fromkeys(["minLength", "maxLength", "minItems", "maxItems", "minProperties"], counts),
    }


@st.composite
def near_schemas(draw: st.DrawFn, depth: int = 3) -> Any:
    if depth == 0:
        return draw(st.sampled_from([True, False, {}, STRING, {"$ref": "#"}, {"type": "OBJECT"}, None, 3, []]))
    inner = st.deferred(lambda: near_schemas(depth=depth - 1))
    table = keyword(inner)
    keys = draw(st.lists(st.sampled_from(sorted(table)), max_size=5, unique=True))
    return {key: draw(table[key] if draw(st.integers(0, 19)) else VALUES) for key in keys}


SCHEMAS = near_schemas() | VALUES
LAW = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.slow
@every_conversion
@LAW
@given(schema=SCHEMAS)
def test_a_conversion_is_idempotent_and_deterministic_and_leaves_its_input_alone(
    convert: Callable[[Any], ConvertedSchema], schema: Any
) -> None:
    before = encode(schema)
    once = convert(schema)
    assert encode(schema) == before
    again = convert(copy.deepcopy(schema))
    assert encode(once.schema) == encode(again.schema)
    assert once.changes == again.changes
    twice = convert(once.schema)
    assert twice.schema is once.schema
    assert twice.changes == ()
    assert once.schema is not schema or not once.changes


@LAW
@given(schema=SCHEMAS)
def test_the_subset_holds_its_own_keywords_only(schema: Any) -> None:
    for arguments in (False, True):
        made = convert_to_openapi_subset(schema, arguments=arguments)
        assert not subset_faults(made.schema)
        # a pattern is carried as it is
        assert not [
            where for where, _ in schema_problems(with_plain_types(made.schema)) if not where.endswith("/pattern")
        ]
        assert not arguments or made.schema["type"] == "OBJECT"


@pytest.mark.slow
@LAW
@given(schema=SCHEMAS)
def test_the_root_is_an_object_without_unions(schema: Any) -> None:
    made = convert_to_object_root(schema)
    assert made.schema["type"] == "object"
    assert not {"anyOf", "oneOf", "allOf", "$ref"} & made.schema.keys()
    assert set(made.renames) <= made.schema.get("properties", {}).keys()


def as_json(value: Any) -> Any:
    """Numbers kept in their spelling, for a validator that knows no such thing."""
    if isinstance(value, Raw):
        return float(bytes(value))
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items()}
    return [as_json(item) for item in value] if isinstance(value, list) else value


@pytest.mark.slow
@settings(LAW, max_examples=250)
@given(schema=SCHEMAS)
def test_the_verdict_is_that_of_the_meta_schema(schema: Any) -> None:
    ours = [problem for problem in schema_problems(schema) if NO_TARGET not in problem[1]]
    assert (not ours) == META_SCHEMA.is_valid(as_json(schema)), ours


@pytest.mark.slow
@settings(LAW, max_examples=25)
@given(schema=near_schemas())
def test_what_was_valid_stays_valid(schema: Any) -> None:
    assume(
        not schema_problems(schema) and b"_" not in encode(schema)
    )  # words in snake case are none in plain JSON Schema
    for name in ("object_root", "standard", "structured, full", "structured, closed", "describe"):
        assert schema_problems(CONVERSIONS[name](schema).schema) == [], name


# --- weakening only: what the schema accepts, the subset accepts ----------------------------------------------------

LEAVES: st.SearchStrategy[Any] = st.one_of(
    st.fixed_dictionaries(
        {"type": st.just("string")}, optional={"minLength": st.integers(0, 2), "pattern": st.just("a")}
    ),
    st.fixed_dictionaries({"type": st.just("integer")}, optional={"exclusiveMinimum": st.integers(-2, 2)}),
    st.fixed_dictionaries(
        {"type": st.just("number")}, optional={"exclusiveMaximum": st.integers(0, 3), "minimum": st.just(-1)}
    ),
    st.just({"type": ["string", "null"]}),
    st.just({"type": ["integer", "boolean"]}),
    st.just({"type": "boolean", "const": True}),
    st.just({"enum": ["a", 1, None]}),
    st.just({"const": "a"}),
    st.just({"$ref": "#/$defs/text"}),
    st.just({"$ref": "#/$defs/tree"}),
)


def grown(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.fixed_dictionaries({"type": st.just("array"), "items": inner}, optional={"uniqueItems": st.just(True)})
    objects = st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.dictionaries(st.sampled_from(["a", "b", "a-b"]), inner)},
        optional={
            "required": st.just(["a"]),
            "additionalProperties": st.just(False),
            "maxProperties": st.just(2),
        },
    )
    unions = st.builds(
        lambda key, options: {key: options}, st.sampled_from(["anyOf", "oneOf"]), st.lists(inner, min_size=1)
    )
    together = st.builds(lambda one: {"allOf": [one, {"description": "d"}]}, inner)
    return lists | objects | unions | together


TYPED = st.recursive(LEAVES, grown, max_leaves=6)
INSTANCES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, "", "a", "ba"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "a-b", "next"]), inner, max_size=3)
    ),
    max_leaves=6,
)
DEFINITIONS = {
    "text": {"type": "string"},
    "tree": {"type": "object", "properties": {"next": {"$ref": "#/$defs/tree"}, "a": {"$ref": "#/$defs/text"}}},
}


@pytest.mark.slow
@settings(LAW, max_examples=100)
@given(schema=TYPED, instances=st.lists(INSTANCES, min_size=8, max_size=8))
def test_the_subset_accepts_what_the_schema_accepts(schema: Any, instances: list[Any]) -> None:
    whole = {**schema, "$defs": DEFINITIONS}
    made = convert_to_openapi_subset(whole)
    before, after = Draft202012Validator(whole), Draft202012Validator(with_plain_types(made.schema))
    for instance in instances:
        if before.is_valid(instance):
            assert after.is_valid(convert_arguments(instance, made)), instance


@LAW
@given(schema=TYPED, instances=st.lists(INSTANCES, min_size=5, max_size=5))
def test_plain_json_schema_out_of_the_subset_accepts_the_same(schema: Any, instances: list[Any]) -> None:
    subset = convert_to_openapi_subset({**schema, "$defs": DEFINITIONS}).schema
    ours, judge = (
        Draft202012Validator(convert_to_standard(subset).schema),
        Draft202012Validator(with_plain_types(subset)),
    )
    for instance in instances:
        assert ours.is_valid(instance) == judge.is_valid(instance)


def test_numbers_that_are_no_numbers_do_no_harm() -> None:
    schema = {"type": "number", "minimum": math.nan, "maximum": 10**400, "multipleOf": math.inf, "minLength": 10**400}
    for convert in CONVERSIONS.values():
        made = convert(schema)
        assert convert(made.schema).schema is made.schema
    schema_problems(schema)
    convert_to_openapi_subset({"allOf": [schema, {"minimum": -(10**400), "maximum": 2}]})


# --- the intersection of many schemas ---


def intersect_pairwise(parts: list[Any], note: Callable[[str], None]) -> Any:
    """What `Intersection` means, one pair after another."""
    out: Any = parts[0]
    for part in parts[1:]:
        if not out or out == part:
            out = part
            continue
        out = dict(out)
        for key, value in part.items():
            if key not in out:
                out[key] = value
            elif out[key] != value:
                if key in combine._COMBINERS:
                    out[key] = combine._COMBINERS[key](out[key], value)
                elif key == "const":
                    out["type"] = combine.UNSATISFIABLE_TYPE
                elif key not in ANNOTATION_KEYWORDS:
                    note(f"one of two different values of `{key}` was left out")
    return out


SMALL = st.sampled_from([{}, True, False, {"type": "string"}, {"type": "integer", "minimum": 1}])
PARTS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["object", "string", ["object", "null"], 7]),
            "properties": st.dictionaries(st.sampled_from("abc"), SMALL, max_size=3) | st.just(5),
            "$defs": st.dictionaries(st.sampled_from("xy"), SMALL, max_size=2),
            "required": st.lists(st.sampled_from(["a", "b", 1, True]), max_size=3) | st.just("a"),
            "allOf": st.lists(SMALL, max_size=2),
            "enum": st.lists(st.sampled_from([1, True, "a", None]), max_size=4),
            "description": st.sampled_from(["", "a", "b", "ab", "a\nb", 5]),
            "not": SMALL,
            "items": SMALL,
            "maximum": st.integers(0, 3),
            "const": st.integers(0, 1),
            "title": st.sampled_from("tu"),
            "pattern": st.sampled_from("pq"),
        },
    ),
    min_size=1,
    max_size=6,
)


@given(PARTS)
def test_many_schemas_intersect_as_pairs_do(parts: list[Any]) -> None:
    before = copy.deepcopy(parts)
    pairwise_notes: list[str] = []
    notes: list[str] = []
    expected = intersect_pairwise(copy.deepcopy(parts), pairwise_notes.append)
    many = combine.Intersection(parts[0])
    for part in parts[1:]:
        many.add(part, notes.append)
    assert encode(many.finish()) == encode(expected)
    assert notes == pairwise_notes
    assert parts == before  # and none of them is changed


def test_many_schemas_intersect_in_linear_time() -> None:
    """With copies for each, this would take many minutes."""
    many = combine.Intersection({"type": "object"})
    count = 60_000
    for number in range(count):
        name = f"p{number}"
        part: Any = {"properties": {name: {"type": "string"}}, "required": [name], "description": name, f"x-{name}": 1}
        many.add(part, lambda _: None)
    out: Any = many.finish()
    assert len(out["properties"]) == len(out["required"]) == count
    assert len(out["description"].split("\n")) <= count


DESCRIBED = {"$defs": {"A": {"type": "object", "description": "An a."}, "B": {"type": "object"}, "C": {"$ref": "#/$defs/A"}, "R": {"$ref": "#/$defs/R"}}}  # fmt: skip


@pytest.mark.parametrize(
    ("child", "is_described"),
    [
        ({"$ref": "#/$defs/A"}, True),
        ({"$ref": "#/$defs/C"}, True),
        ({"allOf": [{"$ref": "#/$defs/A"}], "default": None}, True),
        ({"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]}, True),
        ({"$ref": "#/$defs/B"}, False),
        ({"$ref": "#/$defs/R"}, False),
        ({"$ref": "#/$defs/none"}, False),
        ({"$ref": 5}, False),
        ({"anyOf": [{"$ref": "#/$defs/A"}, {"type": "string"}]}, False),
        ({"anyOf": [{"type": "null"}]}, False),
        ({"anyOf": {}}, False),
    ],
)
def test_a_property_has_the_description_that_it_refers_to(child: Any, is_described: bool) -> None:
    schema = {"type": "object", "properties": {"p": child}, **DESCRIBED}
    assert missing_descriptions(schema) == ([] if is_described else ["/properties/p"])
    added = add_descriptions(schema)
    assert (added.schema == schema) is is_described
    assert missing_descriptions(added.schema) == []


def test_what_is_named_twice_stays_once() -> None:
    """A property that is required twice is still required."""
    schema = {"type": "object", "properties": {"a": {"type": ["string", "null", "string"]}}, "required": ["a", "a"]}
    made = drop_invalid_keywords(schema)
    assert made.schema == {"type": "object", "properties": {"a": {"type": ["string", "null"]}}, "required": ["a"]}
    assert len(made.changes) == 2
