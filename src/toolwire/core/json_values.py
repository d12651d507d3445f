"""JSON values: decoding, encoding, typed access to the fields of an object, and paths for error messages.

Values are plain dicts, lists and scalars. A float that would be written differently than it was read (`1e5`, `1.50`)
stays `msgspec.Raw`, so that a value that is passed on keeps its spelling.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container
from functools import lru_cache
from typing import Any, NoReturn, TypeAlias, TypeGuard

import msgspec
from msgspec import Raw

Json: TypeAlias = Any
"""A JSON value of unknown shape. Untyped on purpose: the readers narrow it with `get_text`, `get_list` and so on."""

Object: TypeAlias = dict[str, Any]

Path: TypeAlias = tuple[Any, ...] | None
"""A place in the input as a linked pair: `/messages/0` is `((None, "messages"), 0)`, and None is the root. Readers make
one for every node, so it must be cheap; `json_pointer` turns it into text only when a loss or an error is shown."""


class Paths(tuple[Path, ...]):
    """Several places that together hold one value: a loss of that value is noted at each of them."""

    __slots__ = ()


Number: TypeAlias = int | float | Raw

MAX_BYTES = 64 * 1024 * 1024
MAX_DEPTH = 200


class Malformed(Exception):
    """The peer sent something that cannot be read; `path` says where, as a JSON Pointer."""

    def __init__(self, path: Path, problem: str) -> None:
        self.path = json_pointer(path)
        self.problem = problem
        super().__init__(f"{self.path or 'the body'}: {problem}")

    def add_hint(self, hint: str) -> None:
        if hint:
            self.problem += f"{'' if self.problem.endswith('?') else ';'} {hint}"
            self.args = (f"{self.path or 'the body'}: {self.problem}",)


_MAX_CACHED_KEY_LENGTH = 200


def path_keys(path: Path) -> list[str | int]:
    """The keys of a linked path, the outermost first."""
    keys: list[str | int] = []
    while path is not None:
        path, key = path
        keys.append(key)
    return keys[::-1]


def json_pointer(path: Path) -> str:
    """Write a linked path as a JSON Pointer (`/messages/0/content`); in a stream it begins with `event/N`."""
    if path is None:
        return ""
    if path[1].__class__ is str and len(path[1]) > _MAX_CACHED_KEY_LENGTH:
        # An unknown key is chosen by the peer: the cache must not keep megabytes of it.
        return _cached_pointer.__wrapped__(path)
    return _cached_pointer(path)


@lru_cache(maxsize=2048)  # one agent's requests lose the same things every time
def _cached_pointer(path: Path) -> str:
    keys = [str(key).replace("~", "~0").replace("/", "~1") for key in path_keys(path)]
    text = "/".join(keys)
    return text if keys[0] == "event" else f"/{text}"


def read_float(text: str) -> Number:
    """A float, or its original text as `Raw` when encoding the float would write it differently."""
    value = float(text)
    return value if _encode(value) == text.encode() else Raw(text.encode())


class _AnyObject(msgspec.Struct, gc=False):
    """Decodes any object and keeps none of its fields."""


_encoder = msgspec.json.Encoder()
_encode = _encoder.encode
_decode = msgspec.json.Decoder(float_hook=read_float).decode
_check_object = msgspec.json.Decoder(_AnyObject).decode
"""Checks that a text is one JSON object, in half the time of building it."""

decode_object = msgspec.json.Decoder(Object, float_hook=read_float).decode
"""Decodes one object. It raises one of `DECODE_ERRORS`; call `decode` then for a message that says where and why."""
DECODE_ERRORS = (msgspec.DecodeError, UnicodeError, ValueError, RecursionError)

encode = _encode
"""A JSON value as compact bytes, keys in their order."""


def encode_text(value: Json) -> str:
    return _encode(value).decode()


def decode(
    data: bytes | str, path: Path = None, max_bytes: int = MAX_BYTES, replaced: list[Path] | None = None
) -> Json:
    """Decode one JSON document, or raise Malformed with the reason and the place. Halves of surrogate pairs become
    U+FFFD; their places are added to `replaced`."""
    if len(data) > max_bytes:
        raise Malformed(path, f"{len(data):,} bytes are more than the limit of {max_bytes:,}")
    try:
        return _decode(data)
    except RecursionError:
        raise Malformed(path, "the JSON is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeError, ValueError) as error:
        mended = replace_lone_halves(data)
        if mended is None:
            raise Malformed(path, explain_decode_error(data, error)) from None
    value = decode(mended, path, max_bytes + len(mended))
    if replaced is not None:
        try:
            replaced += _places_with_halves(json.loads(data), path)
        except RecursionError:
            replaced.append(path)
    return value


# --- halves of surrogate pairs ---
#
# JavaScript counts text in UTF-16 units. Programs that cut it without care leave half of a character behind, which JSON
# can spell (`\\ud83d`) and UTF-8 cannot. Anthropic and others refuse a request with one.

_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u([dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
"""A pair, half of a pair without the other half (the group), or any other escape."""
_HALF_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_HALF = re.compile("[\ud800-\udfff]")
_REPLACEMENT = "\\ufffd"


def find_lone_halves(text: str) -> list[re.Match[str]]:
    """The escapes in a JSON text that are half of a surrogate pair without the other half."""
    if _HALF_ESCAPE.search(text) is None:
        return []
    return [found for found in _ESCAPE.finditer(text) if found[1]]


def replace_lone_halves(data: bytes | str) -> str | None:
    """A JSON text with U+FFFD for every half of a surrogate pair, escaped or not; None if there is none."""
    try:
        text = data.decode() if isinstance(data, bytes) else join_halves(data)
    except UnicodeDecodeError:
        return None
    mended = text
    if _HALF_ESCAPE.search(text) is not None:
        mended = _ESCAPE.sub(lambda found: _REPLACEMENT if found[1] else found[0], text)
    return None if mended == (text if isinstance(data, bytes) else data) else mended


def join_halves(text: str) -> str:
    """A text without halves of surrogate pairs: two that belong together become one character, others U+FFFD."""
    if text.isascii() or _HALF.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _places_with_halves(value: Json, path: Path) -> list[Path]:
    """The paths of all texts with half of a surrogate pair; for a key, the path of its object."""
    found: list[Path] = []
    waiting: list[tuple[Json, Path]] = [(value, path)]
    while waiting:
        node, at = waiting.pop()
        if isinstance(node, str):
            found += [at] if _HALF.search(node) else []
        elif isinstance(node, dict):
            found += [at] if any(map(_HALF.search, node)) else []
            waiting += [(child, (at, key)) for key, child in node.items()]
        elif isinstance(node, list):
            waiting += [(child, (at, number)) for number, child in enumerate(node)]
    return found[::-1]


def _join_all_halves(value: Json) -> Json:
    """A JSON value whose texts and keys have no halves of surrogate pairs."""
    if isinstance(value, str):
        return join_halves(value)
    if isinstance(value, dict):
        return {join_halves(key): _join_all_halves(child) for key, child in value.items()}
    return [*map(_join_all_halves, value)] if isinstance(value, list) else value


# --- errors and objects in text ---


def explain_decode_error(data: bytes | str, error: Exception) -> str:
    """Why a document does not decode, with line and column from the standard library, because msgspec gives neither."""
    try:
        text = data.decode() if isinstance(data, bytes) else data
        json.loads(text, parse_constant=_refuse_constant)
    except UnicodeDecodeError as bad:
        return f"not UTF-8 at byte {bad.start}"
    except json.JSONDecodeError as bad:
        return f"not JSON: {bad.msg.removesuffix(' at')} at line {bad.lineno} column {bad.colno}"
    except RecursionError:
        return "the JSON is nested too deeply"
    except ValueError as bad:
        return f"not JSON: {bad}"
    return f"not JSON: {error}"


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def is_object_text(text: str) -> bool:
    """Is this text one JSON object?"""
    try:
        _check_object(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        mended = replace_lone_halves(text)
        return mended is not None and is_object_text(mended)
    return True


def is_json_text(text: str) -> bool:
    """Is this text one JSON value?"""
    try:
        _decode(text)
    except DECODE_ERRORS:
        return False
    return True


def decode_object_or_none(text: str) -> Object | None:
    """The object in a text: `{}` for blank text, None for anything else that is not an object."""
    if not text or text.isspace():
        return {}
    try:
        value = _decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        mended = replace_lone_halves(text)
        return None if mended is None else decode_object_or_none(mended)
    return value if isinstance(value, dict) else None


def raw_object_or_none(text: str, place: Path = None, replaced: list[Path] | None = None) -> Raw | None:
    """Like `decode_object_or_none`, but as `Raw`, which is embedded as it is spelled. Many models write arguments over
    several lines: the line breaks are removed, because in a frame of a stream they would end its `data:` line."""
    try:
        _check_object(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        if not text or text.isspace():
            return Raw(b"{}")
        mended = replace_lone_halves(text)
        found = None if mended is None else raw_object_or_none(mended)
        if found is not None and replaced is not None:
            replaced.append(place)
        return found
    return Raw(msgspec.json.format(text.encode(), indent=-1) if "\n" in text or "\r" in text else text.encode())


def is_too_deep(value: Json) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for node in level
            if isinstance(node, (dict, list))
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return False
    return True


# --- typed access -----------------------------------------------------------------------------------------------

_TYPE_NAMES = {dict: "an object", list: "an array", str: "a string", bool: "true or false", int: "a whole number"}


def describe_json_type(value: Json) -> str:
    if value is None:
        return "null"
    if isinstance(value, (float, Raw)):
        return "a number"
    return _TYPE_NAMES.get(type(value), type(value).__name__)


def raise_wrong_type(path: Path, expected: str, value: Json) -> NoReturn:
    raise Malformed(path, f"expected {expected}, got {describe_json_type(value)}")


def expect_object(value: Json, path: Path) -> Object:
    if isinstance(value, dict):
        return value
    raise_wrong_type(path, "an object", value)


def expect_list(value: Json, path: Path) -> list[Json]:
    if isinstance(value, list):
        return value
    raise_wrong_type(path, "an array", value)


def expect_text(value: Json, path: Path) -> str:
    if isinstance(value, str):
        return value
    raise_wrong_type(path, "a string", value)


def get_object(node: Object, key: str, path: Path) -> Object | None:
    value = node.get(key)
    if value is None or value.__class__ is dict:
        return value
    return expect_object(value, (path, key))


def get_list(node: Object, key: str, path: Path) -> list[Json] | None:
    value = node.get(key)
    if value is None or value.__class__ is list:
        return value
    return expect_list(value, (path, key))


def get_text(node: Object, key: str, path: Path) -> str | None:
    value = node.get(key)
    if value is None or value.__class__ is str:
        return value
    return expect_text(value, (path, key))


def without_keys(node: Object, keys: Container[str]) -> Object:
    return {key: value for key, value in node.items() if key not in keys}


def require_text(node: Object, key: str, path: Path) -> str:
    value = node.get(key)
    if isinstance(value, str):
        return value
    if key not in node:
        raise Malformed(path, f"`{key}` is missing")
    raise_wrong_type((path, key), "a string", value)


def get_bool(node: Object, key: str, path: Path) -> bool | None:
    value = node.get(key)
    if value is None or value is True or value is False:
        return value
    raise_wrong_type((path, key), "true or false", value)


def get_int(node: Object, key: str, path: Path) -> int | None:
    value = node.get(key)
    if value is None or value.__class__ is int:
        return value
    if isinstance(value, (float, Raw)) and (number := to_float(value)).is_integer():
        return int(number)
    if isinstance(value, bool) or not isinstance(value, int):
        raise_wrong_type((path, key), "a whole number", value)
    return value


_COUNTS = range(1, 2**53)
"""Counts of tokens and searches that can be. What a provider says besides is ignored: stores, logs and other programs
have no place for larger ones."""
can_be_counted = _COUNTS.__contains__


def find_count(node: Json, *keys: str) -> int | None:
    """The count below these keys; None if there is none, or 0. What is not a whole number is ignored as a detail."""
    for key in keys:
        node = node.get(key) if isinstance(node, dict) else None
    return node if node.__class__ is int and node in _COUNTS else None


INT_OR_NULL = frozenset({int, type(None)})
_is_count = re.compile(r"[0-9]{1,18}").fullmatch


def read_count(value: Json) -> int | None:
    """A count of tokens, also as text. Anything else says nothing: negative ones neither (some servers send -1), and
    nobody may give tokens back; nor those that cannot be."""
    if isinstance(value, str):
        value = int(value) if _is_count(value) else None
    elif isinstance(value, (float, Raw)):
        number = to_float(value)
        value = int(number) if number.is_integer() else None
    return value if value.__class__ is int and (value == 0 or value in _COUNTS) else None


def is_number(value: Json) -> TypeGuard[Number]:
    return isinstance(value, (int, float, Raw)) and not isinstance(value, bool)


def get_number(node: Object, key: str, path: Path) -> Number | None:
    value = node.get(key)
    if value is None or (isinstance(value, (int, float, Raw)) and not isinstance(value, bool)):
        return value
    raise_wrong_type((path, key), "a number", value)


_MAX_TIMESTAMP = 10**15
_TIMESTAMP_DIGITS = 15


def get_timestamp(node: Object, key: str, path: Path) -> int | None:
    """Seconds since 1970. Some servers send fractions of a second, or text; what is not a date is ignored: it must not
    make an answer unreadable."""
    value = node.get(key)
    if value is None or (type(value) is int and 0 <= value < _MAX_TIMESTAMP):
        return value
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= _TIMESTAMP_DIGITS:
        return int(value)
    if not is_number(value):
        return None
    seconds = to_float(value)
    return int(seconds) if abs(seconds) < _MAX_TIMESTAMP else None


def to_float(value: Number) -> float:
    return float(bytes(value)) if isinstance(value, Raw) else float(value)


# --- bodies as callers of the library give them: bytes, text, or parsed JSON --------------------------------

Body = bytes | bytearray | memoryview | str | dict[str, Any] | list[Any]


def parse_body(body: Body, max_bytes: int = MAX_BYTES, replaced: list[Path] | None = None) -> Json:
    """The JSON value of a body. Halves of surrogate pairs become U+FFFD; their places are added to `replaced`."""
    if not isinstance(body, (dict, list)):
        data = bytes(body) if isinstance(body, (bytearray, memoryview)) else body
        return decode(data, None, max_bytes, replaced)
    try:
        encode(body)  # a body that the caller parsed can hold text that cannot be encoded as UTF-8
    except RecursionError:
        raise Malformed(None, "the JSON is nested too deeply") from None
    except UnicodeEncodeError:
        pass
    else:
        return body
    if replaced is not None:
        replaced += _places_with_halves(body, None)
    try:
        return _join_all_halves(body)
    except RecursionError:
        raise Malformed(None, "the JSON is nested too deeply") from None


def parse_object(body: Body, max_bytes: int = MAX_BYTES, replaced: list[Path] | None = None) -> Object:
    if type(body) is bytes and len(body) <= max_bytes:
        try:
            return decode_object(body)
        except DECODE_ERRORS:
            pass  # decoded again below, for a message with the reason and the place
    return expect_object(parse_body(body, max_bytes, replaced), None)
