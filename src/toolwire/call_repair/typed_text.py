"""Reads the raw text of a format that does not type its values (Qwen3-Coder, GLM, MiniMax): the schema decides."""

from __future__ import annotations

from toolwire.call_repair.near_json import read_value
from toolwire.core.json_values import Json, Object
from toolwire.schema.combine import type_names


def read_typed_text(text: str, schema: Object) -> Json:
    """The JSON value that a text means by its schema: a string stays as it is, even if it looks like a number."""
    types = type_names(schema.get("type"))
    if not types or "string" in types:
        return text
    found = read_value(text.strip())
    return text if found is None else found.value
