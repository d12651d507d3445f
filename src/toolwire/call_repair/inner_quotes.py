"""Reads arguments with quotes inside of a string that the model did not escape: `{"code": "env.get("KEY")"}`."""

from __future__ import annotations

import re
from itertools import islice
from typing import Final

from toolwire.call_repair.arguments import ArgumentRepair
from toolwire.call_repair.member_scan import MemberScanner
from toolwire.call_repair.near_json import ReadArguments, unescape_text
from toolwire.core.json_values import DECODE_ERRORS, Object, decode_object, encode_text

_find_ends = re.compile(r'"\s*+(?:,\s*+(?="([^"\\]*+)"\s*+:)|\}\s*+\Z)').finditer
"""Quotes that may end a string: another member follows, or the end of the arguments."""
_MAX_ENDS: Final = 16


def read_inner_quotes(text: str, schema: Object) -> ReadArguments | None:
    """The arguments, if exactly one reading of such quotes matches the schema. The members before that string must be
    right, and those behind it strict JSON."""
    repair = ArgumentRepair(schema)
    scanner = MemberScanner(repair)
    scanner.feed(text)
    start = scanner.open_text_start
    if not (scanner.is_held and start and repair.root.properties) or scanner.is_complete:
        return None
    ends = list(islice(_find_ends(text, start), _MAX_ENDS + 1))
    if len(ends) > _MAX_ENDS:
        return None
    first: Object = decode_object(text[:start] + '"}')
    key = scanner.sent_keys[-1]
    readings: list[Object] = []
    for end in ends:
        body, others = text[start : end.start()], _read_members(text, end)
        is_escaped = (len(body) - len(body.rstrip("\\"))) % 2 == 1
        if is_escaped or others is None or not first.keys().isdisjoint(others):
            continue
        reading = {**first, key: unescape_text(body), **others}
        if repair.root.properties.keys() >= reading.keys() and repair.matches(repair.mend_root(reading), schema):
            readings.append(reading)
    if len(readings) != 1:
        return None
    said = "quotes inside of a string were escaped"
    return ReadArguments(readings[0], encode_text(readings[0]), (said,))


def _read_members(text: str, end: re.Match[str]) -> Object | None:
    """The members behind the end of a string; None if they are not JSON."""
    if end[1] is None:
        return {}
    try:
        return decode_object("{" + text[end.end() :])
    except DECODE_ERRORS:
        return None
