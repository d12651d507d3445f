"""Values are validated against schemas as by an independent validator, and whole numbers are fixed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from toolwire.core.json_values import decode, encode
from toolwire.schema.validate import fix_whole_numbers, value_problems

NAMES = st.sampled_from(["a", "b", "c"])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([0.5, 1.0, 2.0, -1.5]),
    st.sampled_from(["", "a", "bb", "ccc"]),
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=8
)
TYPES = st.sampled_from(["string", "number", "integer", "boolean", "array", "object", "null"])
SMALL = st.integers(0, 3)


def _objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    words = {
        "type": TYPES | st.lists(TYPES, min_size=1, max_size=2, unique=True),
        "enum": st.lists(SCALARS, min_size=1, max_size=3),
        "const": SCALARS,
        "minimum": st.integers(-2, 2), "maximum": st.integers(-2, 2), "exclusiveMinimum": st.integers(-2, 2),
        "exclusiveMaximum": st.integers(-2, 2), "multipleOf": st.sampled_from([1, 2, 0.5]),
        "minLength": SMALL, "maxLength": SMALL, "pattern": st.sampled_from(["^a", "b", "c$"]),
        "minItems": SMALL, "maxItems": SMALL, "uniqueItems": st.booleans(), "items": inner,
        "prefixItems": st.lists(inner, min_size=1, max_size=2), "contains": inner,
        "properties": st.dictionaries(NAMES, inner, max_size=3), "required": st.lists(NAMES, unique=True),
        "patternProperties": st.dictionaries(st.sampled_from(["^a", "b|c"]), inner, max_size=2),
        "additionalProperties": inner, "propertyNames": inner, "minProperties": SMALL, "maxProperties": SMALL,
        "dependentRequired": st.dictionaries(NAMES, st.lists(NAMES, unique=True), max_size=2),
        "dependentSchemas": st.dictionaries(NAMES, inner, max_size=2),
        "allOf": st.lists(inner, min_size=1, max_size=2), "anyOf": st.lists(inner, min_size=1, max_size=2),
        "oneOf": st.lists(inner, min_size=1, max_size=2), "not": inner, "if": inner, "then": inner, "else": inner,
    }  # fmt: skip
    one = st.sampled_from(sorted(words)).flatmap(lambda word: words[word].map(lambda value: {word: value}))
    return st.lists(one, min_size=1, max_size=3).map(
        lambda parts: {key: value for part in parts for key, value in part.items()}
    )


SCHEMAS = st.recursive(st.booleans() | st.just({}), _objects, max_leaves=8)


@given(VALUES, SCHEMAS)
def test_the_verdict_is_that_of_another_validator(value: Any, schema: Any) -> None:
    value = decode(encode(value))
    assert (not value_problems(value, schema)) == Draft202012Validator(schema).is_valid(value)


@pytest.mark.parametrize(
    ("value", "schema", "said"),
    [
        (
            {"a": {"b": "x"}},
            {"properties": {"a": {"properties": {"b": {"type": "integer"}}}}},
            "/a/b: expected a whole number, got a string",
        ),
        ({}, {"required": ["a", "b"]}, "the arguments: `a` is missing|the arguments: `b` is missing"),
        (
            {"x": 1},
            {"properties": {"a": {}}, "additionalProperties": False},
            "the arguments: `x` is not a known property",
        ),
        ("x", {"enum": ["a", "b"]}, 'the arguments: "x" is not one of "a", "b"'),
        ([1, 2], {"maxItems": 1}, "the arguments: 2 items are more than 1"),
        (
            {"a": 1},
            {"$ref": "#/$defs/t", "$defs": {"t": {"properties": {"a": {"type": "string"}}}}},
            "/a: expected a string, got a whole number",
        ),
        (
            {"a": {"a": 1}},
            {"properties": {"a": {"$ref": "#"}}, "type": "object"},
            "/a/a: expected an object, got a whole number",
        ),
        (1, {"type": "telegram", "pattern": "(", "minimum": "x", "properties": 3, "items": 4}, ""),
    ],
)
def test_what_does_not_fit_is_said_with_its_place(value: Any, schema: Any, said: str) -> None:
    assert "|".join(value_problems(value, schema)) == said


@pytest.mark.parametrize(
    ("text", "schema", "fixed"),
    [
        ('{"n":2.0}', {"properties": {"n": {"type": "integer"}}}, {"n": 2}),
        ('{"n":2e1}', {"properties": {"n": {"type": ["integer", "null"]}}}, {"n": 20}),
        ("[1.0,2.5]", {"items": {"type": "integer"}}, [1, 2.5]),
        ('{"n":2.0}', {"properties": {"n": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}}, {"n": 2}),
        ('{"n":2.0}', {"properties": {"n": {"$ref": "#/$defs/i"}}, "$defs": {"i": {"type": "integer"}}}, {"n": 2}),
        (
            '{"n":{"m":[3.0]}}',
            {"additionalProperties": {"properties": {"m": {"items": {"type": "integer"}}}}},
            {"n": {"m": [3]}},
        ),
    ],
)
def test_whole_numbers_lose_their_fraction(text: str, schema: Any, fixed: Any) -> None:
    made, changed = fix_whole_numbers(decode(text), schema)
    assert changed
    assert encode(made) == encode(fixed)


@pytest.mark.parametrize("text", ['{"n":2}', '{"n":2.5}', '{"n":"2.0"}', '{"m":2.0}', "[]", "2.0"])
def test_all_else_stays_the_very_same(text: str) -> None:
    value = decode(text)
    made, changed = fix_whole_numbers(value, {"properties": {"n": {"type": "integer"}}})
    assert made is value
    assert not changed


@given(VALUES, SCHEMAS)
def test_putting_numbers_right_never_makes_a_value_worse(value: Any, schema: Any) -> None:
    value = decode(encode(value))
    if not value_problems(value, schema):
        assert not value_problems(fix_whole_numbers(value, schema)[0], schema)
