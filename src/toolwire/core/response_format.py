"""What tells a model to answer in JSON where the provider cannot enforce it."""

from __future__ import annotations

from toolwire.core.json_values import Json, encode_text

ONLY_JSON_INSTRUCTION = "Your final answer must be valid JSON only: no other text, and no code fence around it."


def schema_instruction(schema: Json) -> str:
    return f"{ONLY_JSON_INSTRUCTION} It must match this JSON Schema:\n{encode_text(schema)}"
