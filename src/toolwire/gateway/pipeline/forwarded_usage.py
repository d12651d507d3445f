"""The usage of answers that are forwarded without being read, such as embeddings: what they say near their end, or what
their clients see."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from json import JSONDecoder

from toolwire.core.codec import UsageNames
from toolwire.core.ir import Usage
from toolwire.core.json_values import Json, read_count
from toolwire.core.tokens import estimate_text_tokens

TAIL_SIZE = 8192
"""Bytes of the end of an answer in which its usage is searched."""
_MAX_STARTS = 8
"""Places that are tried: an answer says its usage once, and each try reads to the end."""


_EVENT_SIZE = 512
"""Bytes of an event of a stream that are not its text, at most."""
_MAX_LINE = 65_536
"""Bytes of a line that are kept until it ends: what is longer is no event, and all of it is text."""
_list_texts = re.compile(rb'"text"\s*:\s*"((?:[^"\\]|\\.)*)"').findall


class VisibleText:
    """Counts the tokens of an answer as its client sees them, whole or as a stream."""

    def __init__(self) -> None:
        self._line, self._size, self._events, self._texts = b"", 0, 0, 0

    def add(self, data: bytes) -> None:
        lines = self._line + data
        end = len(lines) if len(lines) > _MAX_LINE else lines.rfind(b"\n") + 1
        whole, self._line = lines[:end], lines[end:]
        self._size += len(whole)
        self._events += whole.count(b"data:")
        self._texts += sum(map(len, _list_texts(whole)))

    def count_tokens(self) -> int:
        """Each event of a stream has at least a token, and servers put more into one; where its text is not found, what
        is too long for anything else is text."""
        rest = self._size + len(self._line) - self._events * _EVENT_SIZE
        return max(self._events, estimate_text_tokens(self._texts), estimate_text_tokens(max(0, rest)))


_decoder = JSONDecoder()


@cache
def _start_pattern(holder: str) -> re.Pattern[bytes]:
    return re.compile(rb'"%b"\s*:\s*(?=\{)' % holder.encode())


def find_usage(names: UsageNames, tail: bytes) -> Usage | None:
    """The last usage in the end of an answer; None if there is none."""
    for start in reversed([found.end() for found in _start_pattern(names.holder).finditer(tail)][-_MAX_STARTS:]):
        node = _decode_first_object(tail[start:])
        usage = None if node is None else _read_counts(names, node)
        if usage is not None:
            return usage
    return None


def _decode_first_object(data: bytes) -> Mapping[str, Json] | None:
    try:
        node, _ = _decoder.raw_decode(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return node if isinstance(node, dict) else None


def _read_counts(names: UsageNames, node: Mapping[str, Json]) -> Usage | None:
    places = [node, *(place for name in names.details if isinstance(place := node.get(name), dict))]
    counts: dict[str, int] = {}
    for field, keys in names.counts.items():
        values = (read_count(place.get(key)) for place in places for key in keys)
        count = next((value for value in values if value is not None), None)
        if count is not None:
            counts[field] = count
    if "input" not in counts:
        return None
    return Usage(counts["input"], counts.get("output", 0), counts.get("cache_read"), total=counts.get("total"))
