"""Reads the raw text of a format that does not type its values (Qwen3-Coder, GLM, MiniMax): the schema decides."""

from __future__ import annotations

import re

from toolwire.call_repair.near_json import read_value
from toolwire.call_repair.shapes import ALL_TYPES, Shape, ShapeReader
from toolwire.core.json_values import Json, Object, decode
from toolwire.schema.keywords import TYPE_CHECKS

_is_integer = re.compile(r"-?[0-9]{1,300}(?:\.0{1,20})?").fullmatch
_is_number = re.compile(r"-?(?:0|[1-9][0-9]{0,300})(?:\.[0-9]{1,300})?(?:[eE][+-]?[0-9]{1,4})?").fullmatch


def read_typed_text(text: str, schema: Object) -> Json:
    """The JSON value that a text means by its schema. A string stays as it is, even if it looks like a number, and so
    does what fits no type."""
    return read_text_of_shape(text, ShapeReader(schema).read_shape(schema))


def read_text_of_shape(text: str, shape: Shape) -> Json:
    types, word = shape.types, text.strip()
    if types == ALL_TYPES or types == {"string"} or (shape.texts and text in shape.texts):
        return text
    if "null" in types and word == "null":
        return None
    if "integer" in types and _is_integer(word):
        return int(word.partition(".")[0])
    if "number" in types and _is_number(word):
        return decode(word)
    if "boolean" in types and word.lower() in ("true", "false"):
        return word.lower() == "true"
    if types.isdisjoint({"object", "array"}) or word[:1] not in ("{", "["):
        return text
    found = read_value(word)
    is_wanted = found is not None and any(TYPE_CHECKS[kind](found.value) for kind in types & {"object", "array"})
    return found.value if found is not None and is_wanted else text
