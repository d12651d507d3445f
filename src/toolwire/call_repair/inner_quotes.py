"""Reads arguments with quotes inside of a string that the model did not escape: `{"code": "env.get("KEY")"}`."""

from __future__ import annotations

import re

from toolwire.call_repair.arguments import ArgumentRepair
from toolwire.call_repair.member_scan import MemberScanner
from toolwire.call_repair.near_json import ReadArguments, unescape_text
from toolwire.core.json_values import DECODE_ERRORS, Object, decode_object, encode_text

_find_ends = re.compile(r'"\s*+(?:,\s*+(?="[^"\\]*+"\s*+:)|(\})\s*+\Z)').finditer
"""Quotes that may end a string: another member follows, or the end of the arguments (the group)."""
_find_keys = re.compile(r'"\s*+[,;]?\s*+(?="([^"\\\n]{1,100}+)"(\s*+:)?)').finditer
"""Where another member may begin in a string: its key, and the colon."""


def read_inner_quotes(text: str, schema: Object) -> ReadArguments | None:
    """The arguments, if the string ends where the next member begins, or the arguments end. The members before it must
    be right, those behind it strict JSON, and all of them must match the schema."""
    repair = ArgumentRepair(schema)
    scanner = MemberScanner(repair)
    scanner.feed(text)
    start, properties = scanner.open_text_start, repair.root.properties
    if not (scanner.is_held and start and properties) or scanner.is_complete:
        return None
    end = next((end for end in _find_ends(text, start) if not _is_escaped(text, end.start())), None)
    body = "" if end is None else text[start : end.start()]
    # Triple quotes are Python's, and what looks like another member means that something else is wrong.
    if end is None or body.startswith('""') or _holds_member(body, properties):
        return None
    first: Object = decode_object(text[:start] + '"}')
    try:
        others: Object = {} if end[1] else decode_object("{" + text[end.end() :])
    except DECODE_ERRORS:
        return None
    value = {**first, scanner.sent_keys[-1]: unescape_text(body), **others}
    is_known = first.keys().isdisjoint(others) and properties.keys() >= others.keys()
    if not is_known or not repair.matches(repair.mend_root(value), schema):
        return None
    return ReadArguments(value, encode_text(value), ("quotes inside of a string were escaped",))


def _is_escaped(text: str, at: int) -> bool:
    before = at
    while text[before - 1] == "\\":
        before -= 1
    return (at - before) % 2 == 1


def _holds_member(body: str, properties: Object) -> bool:
    return any(found[2] or found[1] in properties for found in _find_keys(body))
