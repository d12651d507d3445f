"""JSON values: decoding, encoding, typed access to the fields of an object, and paths for error messages.

Values are plain dicts, lists and scalars. A float that would be written differently than it was read (`1e5`, `1.50`)
stays `msgspec.Raw`, so that a value that is passed on keeps its spelling.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NoReturn, TypeAlias

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


_MAX_CACHED_KEY_LENGTH = 200


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
    keys: list[str] = []
    while path is not None:
        path, key = path
        keys.append(str(key).replace("~", "~0").replace("/", "~1"))
    keys.reverse()
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


def decode(data: bytes | str, path: Path = None, max_bytes: int = MAX_BYTES) -> Json:
    """Decode one JSON document, or raise Malformed with the reason and the place."""
    if len(data) > max_bytes:
        raise Malformed(path, f"{len(data):,} bytes are more than the limit of {max_bytes:,}")
    try:
        return _decode(data)
    except RecursionError:
        raise Malformed(path, "the JSON is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeError, ValueError) as error:
        raise Malformed(path, explain_decode_error(data, error)) from None


_LONE_SURROGATE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"
)


def explain_decode_error(data: bytes | str, error: Exception) -> str:
    """Why a document does not decode, with line and column from the standard library, because msgspec gives neither."""
    try:
        text = data.decode() if isinstance(data, bytes) else data
        json.loads(text, parse_constant=_refuse_constant)
    except UnicodeDecodeError as bad:
        return f"not UTF-8 at byte {bad.start}"
    except json.JSONDecodeError as bad:
        return f"not JSON: {bad.msg} at line {bad.lineno} column {bad.colno}"
    except RecursionError:
        return "the JSON is nested too deeply"
    except ValueError as bad:
        return f"not JSON: {bad}"
    lone = _LONE_SURROGATE.search(text)
    if lone:
        return f"half of a surrogate pair ({lone[0][:6]}) at character {lone.start()}, which is not a character"
    return f"not JSON: {error}"


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def is_object_text(text: str) -> bool:
    """Is this text one JSON object? Then it can be embedded as `Raw` where the wire needs an object."""
    try:
        _check_object(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True


def decode_object_or_none(text: str) -> Object | None:
    """The object in a text: `{}` for blank text, None for anything else that is not an object."""
    if not text or text.isspace():
        return {}
    try:
        value = _decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def raw_object_or_none(text: str) -> Raw | None:
    """Like `decode_object_or_none`, but as `Raw`, which is embedded as it is spelled. Many models write arguments over
    several lines: the line breaks are removed, because in a frame of a stream they would end its `data:` line."""
    try:
        _check_object(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None if text and not text.isspace() else Raw(b"{}")
    return Raw(msgspec.json.format(text.encode(), indent=-1) if "\n" in text or "\r" in text else text.encode())


def is_too_deep(value: Json, limit: int = MAX_DEPTH) -> bool:
    level = [value]
    for _ in range(limit):
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


_INT_OR_NULL = frozenset({int, type(None)})


def get_ints(node: Object, keys: Sequence[str], path: Path) -> list[int | None]:
    """The whole numbers of several keys, such as token counts."""
    values = [*map(node.get, keys)]
    if _INT_OR_NULL.issuperset(map(type, values)):
        return values
    return [get_int(node, key, path) for key in keys]


def get_number(node: Object, key: str, path: Path) -> Number | None:
    value = node.get(key)
    if value is None or (isinstance(value, (int, float, Raw)) and not isinstance(value, bool)):
        return value
    raise_wrong_type((path, key), "a number", value)


def to_float(value: Number) -> float:
    return float(bytes(value)) if isinstance(value, Raw) else float(value)


# --- bodies as callers of the library give them: bytes, text, or parsed JSON --------------------------------

Body = bytes | bytearray | memoryview | str | dict[str, Any] | list[Any]


def parse_body(body: Body, max_bytes: int = MAX_BYTES) -> Json:
    if not isinstance(body, (dict, list)):
        return decode(bytes(body) if isinstance(body, (bytearray, memoryview)) else body, max_bytes=max_bytes)
    try:
        encode(body)  # a body that the caller parsed can hold text that cannot be encoded as UTF-8
    except RecursionError:
        raise Malformed(None, "the JSON is nested too deeply") from None
    except UnicodeEncodeError as bad:
        half = ascii(bad.object[bad.start])[1:-1]
        path = _find_text(body, bad.object, None)
        raise Malformed(path, f"half of a surrogate pair ({half}), which is not a character") from None
    return body


def _find_text(node: Json, text: str, path: Path) -> Path:
    """The path of a text; for a key, the path of its object."""
    if node == text:
        return path
    inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in inner:
        found = path if key == text else _find_text(value, text, (path, key))
        if found is not None:
            return found
    return None


def parse_object(body: Body, max_bytes: int = MAX_BYTES) -> Object:
    if type(body) is bytes and len(body) <= max_bytes:
        try:
            return decode_object(body)
        except DECODE_ERRORS:
            pass  # decoded again below, for a message with the reason and the place
    return expect_object(parse_body(body, max_bytes), None)
