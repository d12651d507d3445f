"""Bodies as callers of the library give them: bytes, text, or parsed JSON."""

from __future__ import annotations

from typing import Any

from toolwire.core.json_values import (
    DECODE_ERRORS,
    Json,
    Malformed,
    Object,
    Path,
    decode,
    decode_object,
    encode,
    expect_object,
)
from toolwire.translation.options import Options

Body = bytes | bytearray | memoryview | str | dict[str, Any] | list[Any]


def parse_body(body: Body, options: Options) -> Json:
    """The JSON value of a body."""
    if isinstance(body, (dict, list)):
        return _check_encodable(body)
    return decode(bytes(body) if isinstance(body, (bytearray, memoryview)) else body, max_bytes=options.max_bytes)


def _check_encodable(body: Json) -> Json:
    """A body that the caller parsed can hold text that cannot be encoded as UTF-8."""
    try:
        encode(body)
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


def parse_object(body: Body, options: Options) -> Object:
    """The JSON value of a body that must be an object."""
    if type(body) is bytes and len(body) <= options.max_bytes:
        try:
            return decode_object(body)
        except DECODE_ERRORS:
            pass  # decoded again below, for a message with the reason and the place
    return expect_object(parse_body(body, options), None)
