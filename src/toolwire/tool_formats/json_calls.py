"""Reads the JSON shapes in which models write calls: `{"name": …, "arguments": {…}}` and its relatives."""

from __future__ import annotations

import json
import re
from typing import Final

import msgspec
from msgspec import Raw, Struct

from toolwire.call_repair.near_json import read_value
from toolwire.core.json_values import Object, encode_text
from toolwire.tool_formats.found_calls import make_json_call
from toolwire.tool_formats.frame import Piece, Situation, TextCall
from toolwire.tool_formats.json_text import find_value_end

NAME_KEYS: Final = ("name", "tool_name", "tool", "function", "action")
_ARGUMENT_KEYS: Final = ("arguments", "parameters", "args", "input", "action_input")
_ID_KEYS: Final = ("id", "tool_call_id", "call_id")
_OTHER_KEYS: Final = frozenset({"type", "index", "content"})
_ALL_KEYS: Final = frozenset({*NAME_KEYS, *_ARGUMENT_KEYS, *_ID_KEYS, *_OTHER_KEYS})
_WRAPPER_KEYS: Final = ("tool_calls", "tool_call", "function_call", "function")
CALL_KEYS: Final = _ALL_KEYS | {*_WRAPPER_KEYS}
"""What the first key of an object with calls can be."""

_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_list = msgspec.json.Decoder(list[Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode
_DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeError, RecursionError)
_decoder: Final = json.JSONDecoder()
_MAX_BROKEN: Final = 100_000
"""Characters that are still mended: it takes much longer than decoding."""
_MAX_OPEN: Final = 10
"""Values without an end that are told apart."""
_match_separator = re.compile(r"[\s,;]*+").match
_match_brackets = re.compile(r"[\s,;\[\]]*+").match
_find_next_line = re.compile(r"\n\s*+\{").search


class _Value(Struct, frozen=True):
    """One value of a body: JSON, or text that cannot be read."""

    text: str
    repairs: tuple[str, ...] = ()


def read_calls(
    body: str, situation: Situation, *, is_bare: bool = False, are_keys_names: bool = False
) -> tuple[Piece, ...] | None:
    """The calls in JSON text: one value, an array, or several values. A value that is no call stays text; None if none
    is. `is_bare`: no marks are around it, so every value must be a call with a name and arguments. `are_keys_names`:
    `{"NAME": {…}}` is a call, too."""
    values = _split_values(body.strip())
    pieces: list[Piece] = []
    for value in values:
        calls = _read_call_value(value.text, situation, value.repairs, is_bare, are_keys_names)
        if calls is None and is_bare:
            return None
        pieces += [value.text] if calls is None else calls
    if not values and not is_bare:
        return ()  # an empty array says nothing
    return tuple(pieces) if any(isinstance(piece, TextCall) for piece in pieces) else None


def _split_values(body: str) -> list[_Value]:
    values: list[_Value] = []
    at = 0
    try:
        while at < len(body):
            _, end = _decoder.raw_decode(body, at)
            values += map(_Value, _split_array(body[at:end]))
            separator = _match_separator(body, end)
            at = separator.end() if separator else end
    except (ValueError, RecursionError):
        return _split_broken(body)
    return values


def _split_broken(body: str) -> list[_Value]:
    """The values of a body that does not decode: mended as a whole, else each for itself, so that one that cannot be
    read does not spoil the others."""
    if len(body) > _MAX_BROKEN:
        return [_Value(body)]
    found = read_value(body)
    if found is not None and isinstance(found.value, dict | list):
        values = found.value if isinstance(found.value, list) else [found.value]
        return [_Value(encode_text(value), found.repairs) for value in values]
    split: list[_Value] = []
    at = open_values = 0
    while (at := _match_brackets(body, at).end()) < len(body):  # type: ignore[union-attr]
        end = find_value_end(body, at) if body[at] == "{" else -1
        if end < 0:
            open_values += 1
            found_next = _find_next_line(body, at + 1) if open_values < _MAX_OPEN else None
            end = found_next.start() if found_next else len(body)
        split.append(_mend_value(body[at:end].strip()))
        at = end
    return split


def _mend_value(text: str) -> _Value:
    found = read_value(text) if text.startswith("{") else None
    if found is None or not isinstance(found.value, dict):
        return _Value(text)
    return _Value(found.text, found.repairs)


def _split_array(text: str) -> list[str]:
    if not text.startswith("["):
        return [text]
    try:
        return [bytes(one).decode() for one in _decode_list(text)]
    except _DECODE_ERRORS:
        return [text]


def _read_call_value(
    text: str, situation: Situation, repairs: tuple[str, ...], is_bare: bool, are_keys_names: bool
) -> list[TextCall] | None:
    try:
        node = _decode_object(text)
    except _DECODE_ERRORS:
        return None
    for key in _WRAPPER_KEYS:
        inner = bytes(node[key]).decode() if key in node else ""
        if inner[:1] in ("[", "{") and (not is_bare or node.keys() <= {key, *_ALL_KEYS}):
            found = [_read_call_value(one, situation, repairs, is_bare, are_keys_names) for one in _split_array(inner)]
            ids = _first_text(node, _ID_KEYS)
            calls = [call for some in found if some is not None for call in some]
            calls = [msgspec.structs.replace(call, id=call.id or ids) for call in calls] if len(calls) == 1 else calls
            return calls if calls and None not in found else None
    call = _read_call_object(node, situation, repairs, is_bare)
    if call is None and are_keys_names and len(node) == 1:
        ((name, arguments),) = node.items()
        call = make_json_call(situation, name, bytes(arguments).decode(), repairs)
    return None if call is None else [call]


def _read_call_object(
    node: dict[str, Raw], situation: Situation, repairs: tuple[str, ...], is_bare: bool
) -> TextCall | None:
    name = _first_text(node, NAME_KEYS)
    key = next((key for key in _ARGUMENT_KEYS if key in node), None)
    if not name or (is_bare and (key is None or not node.keys() <= _ALL_KEYS)):
        return None
    arguments = "{}" if key is None else bytes(node[key]).decode()
    if is_bare and arguments[:1] not in ("{", '"'):
        return None
    tool = situation.tools.find_tool(name)
    schema = situation.tools.parameters(tool) if tool is not None else {}
    if tool is None or _is_declaration(arguments, schema) or (key is None and schema.get("required")):
        return None
    return make_json_call(situation, name, arguments, repairs, _first_text(node, _ID_KEYS))


def _is_declaration(arguments: str, schema: Object) -> bool:
    """Is this the tool's own schema, from a list of tools that the model repeats?"""
    try:
        node = _decode_object(arguments)
    except _DECODE_ERRORS:
        return False
    properties = schema.get("properties")
    return {"type", "properties"} <= node.keys() and not (isinstance(properties, dict) and "properties" in properties)


def _first_text(node: dict[str, Raw], keys: tuple[str, ...]) -> str:
    for key in keys:
        try:
            return _decode_text(node[key])
        except (KeyError, *_DECODE_ERRORS):
            continue
    return ""
