"""The raw text of tag formats as JSON values."""

from __future__ import annotations

from typing import Any

import pytest

from toolwire.call_repair.shapes import ShapeReader
from toolwire.call_repair.typed_text import read_text_of_shape, read_typed_text
from toolwire.core.json_values import encode_text

CASES: list[tuple[Any, str, str]] = [
    ({"type": "string"}, "5", '"5"'),
    ({"type": "string"}, ' {"a": 1}\n', r'" {\"a\": 1}\n"'),
    ({"type": "string"}, "null", '"null"'),
    ({"type": ["string", "null"]}, "null", "null"),
    ({"type": ["string", "null"]}, "none", '"none"'),
    ({"type": ["string", "null"]}, " x ", '" x "'),
    ({}, "5", '"5"'),
    ({"description": "d"}, "[1]", '"[1]"'),
    ({"type": "integer"}, " 5\n", "5"),
    ({"type": "integer"}, "5.0", "5"),
    ({"type": "integer"}, "05", "5"),
    ({"type": "integer"}, "2026-01-15", '"2026-01-15"'),
    ({"type": "integer"}, "5.5", '"5.5"'),
    ({"type": "number"}, "1.50", "1.50"),
    ({"type": "number"}, "5", "5"),
    ({"type": "number"}, "nan", '"nan"'),
    ({"type": "boolean"}, "True", "true"),
    ({"type": "boolean"}, "false", "false"),
    ({"type": "boolean"}, "yes", '"yes"'),
    ({"type": "array"}, "[1, 'a', True]", '[1,"a",true]'),
    ({"type": "array"}, '{"a": 1}', r'"{\"a\": 1}"'),
    ({"type": "array"}, "a, b", '"a, b"'),
    ({"type": "object"}, "{'a': None}", '{"a":null}'),
    ({"type": "object"}, "{'a': 'x", "\"{'a': 'x\""),
    ({"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]}, "42", "42"),
    ({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]}, '["a"]', '["a"]'),
    ({"enum": ["1", "2", 3]}, "1", '"1"'),
    ({"enum": ["1", "2", 3]}, "3", "3"),
    ({"enum": ["a", "b"]}, "a", '"a"'),
]


@pytest.mark.parametrize(("schema", "text", "wanted"), CASES)
def test_the_schema_decides(schema: Any, text: str, wanted: str) -> None:
    assert encode_text(read_typed_text(text, schema)) == wanted


def test_references_are_followed() -> None:
    root = {"$defs": {"n": {"type": "integer"}}, "properties": {"a": {"$ref": "#/$defs/n"}}}
    assert read_text_of_shape("5", ShapeReader(root).read_shape(root["properties"]["a"])) == 5
    assert read_typed_text("5", root["properties"]["a"]) == "5"
