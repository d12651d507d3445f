"""Reads arguments with quotes inside of a string that the model did not escape: `{"code": "env.get("KEY")"}`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final

from toolwire.call_repair.arguments import ArgumentRepair
from toolwire.call_repair.member_scan import MemberScanner
from toolwire.call_repair.near_json import ReadArguments, unescape_text
from toolwire.core.json_values import DECODE_ERRORS, Object, decode_object, encode_text

_find_ends = re.compile(r'"\s*+(?:,\s*+(?="[^"\\]*+"\s*+:)|(\})\s*+\Z)').finditer
"""Quotes that may end a string: another member follows, or the end of the arguments (the group)."""
_find_keys = re.compile(r'"\s*+[,;]?\s*+(?="([^"\\\n]{1,100}+)"(\s*+:)?)').finditer
"""Where another member may begin in a string: its key, and the colon."""
_MAX_ENDS: Final = 16


def read_inner_quotes(text: str, schema: Object) -> ReadArguments | None:
    """The arguments, if exactly one reading of such quotes matches the schema. The members before that string must be
    right, and those behind it strict JSON."""
    repair = ArgumentRepair(schema)
    scanner = MemberScanner(repair)
    scanner.feed(text)
    start, properties = scanner.open_text_start, repair.root.properties
    if not (scanner.is_held and start and properties) or scanner.is_complete:
        return None
    first: Object = decode_object(text[:start] + '"}')
    key = scanner.sent_keys[-1]
    readings = [
        {**first, key: body, **others}
        for body, others in _read_ends(text, start, properties)
        if first.keys().isdisjoint(others) and properties.keys() >= others.keys()
    ]
    fitting = [reading for reading in readings if repair.matches(repair.mend_root(reading), schema)]
    if len(fitting) != 1:
        return None
    return ReadArguments(fitting[0], encode_text(fitting[0]), ("quotes inside of a string were escaped",))


def _read_ends(text: str, start: int, properties: Object) -> Iterator[tuple[str, Object]]:
    """The string that begins here with each of its possible ends, and the members behind it."""
    ends = list(islice(_find_ends(text, start), _MAX_ENDS + 1))
    for end in ends if len(ends) <= _MAX_ENDS else ():
        body = text[start : end.start()]
        is_escaped = (len(body) - len(body.rstrip("\\"))) % 2 == 1
        # Triple quotes are Python's, and what looks like another member means that something else is wrong.
        if is_escaped or body.startswith('""') or _holds_member(body, properties):
            continue
        try:
            yield unescape_text(body), {} if end[1] else decode_object("{" + text[end.end() :])
        except DECODE_ERRORS:
            continue


def _holds_member(body: str, properties: Object) -> bool:
    return any(found[2] or found[1] in properties for found in _find_keys(body))
