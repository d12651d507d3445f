"""Finds the usage in answers that are forwarded without being read, such as embeddings: it is near their end."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from toolwire.core.ir import Usage
from toolwire.core.json_values import Json

TAIL_SIZE = 8192
"""Bytes of the end of an answer in which its usage is searched."""
_MAX_STARTS = 8
"""Places that are tried: an answer says its usage once, and each try reads to the end."""
_find_starts = re.compile(rb'"(?:usage|usageMetadata)"\s*:\s*(?=\{)').finditer
_FIELDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("input", ("prompt_tokens", "input_tokens", "promptTokenCount")),
    ("output", ("completion_tokens", "output_tokens", "candidatesTokenCount")),
    ("total", ("total_tokens", "totalTokenCount")),
    ("cache_read", ("cached_tokens", "cachedContentTokenCount")),
)
"""The counts, and what OpenAI, Anthropic and Google call them."""
_DETAILS = ("prompt_tokens_details", "input_tokens_details")


def find_usage(tail: bytes) -> Usage | None:
    """The last usage in the end of an answer; None if there is none."""
    for start in reversed([found.end() for found in _find_starts(tail)][-_MAX_STARTS:]):
        node = _decode_first_object(tail[start:])
        usage = None if node is None else _read_counts(node)
        if usage is not None:
            return usage
    return None


def _decode_first_object(data: bytes) -> Mapping[str, Json] | None:
    """The object that the data begins with. Usage has no text, so braces are enough to find its end."""
    depth = 0
    for place, byte in enumerate(data):
        depth += (byte == ord("{")) - (byte == ord("}"))
        if not depth:
            try:
                node = msgspec.json.decode(data[: place + 1])
            except (msgspec.DecodeError, UnicodeDecodeError):
                return None
            return node if isinstance(node, dict) else None
    return None


def _read_counts(node: Mapping[str, Json]) -> Usage | None:
    places = [node, *(place for name in _DETAILS if isinstance(place := node.get(name), dict))]
    counts: dict[str, int] = {}
    for field, names in _FIELDS:
        values = (place.get(name) for place in places for name in names)
        count = next((value for value in values if isinstance(value, int) and not isinstance(value, bool)), None)
        if count is not None and count >= 0:
            counts[field] = count
    if "input" not in counts:
        return None
    return Usage(counts["input"], counts.get("output", 0), counts.get("cache_read"), total=counts.get("total"))
