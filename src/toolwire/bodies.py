"""Bodies as callers give them: bytes, text, or parsed already."""

from __future__ import annotations

from typing import Any

from toolwire.options import Options
from toolwire.wire import NOT_DECODED, Json, Object, as_object, decode, decode_object

Body = bytes | bytearray | memoryview | str | dict[str, Any] | list[Any]


def parsed(body: Body, options: Options) -> Json:
    """A body given as bytes, text or already parsed."""
    if isinstance(body, (dict, list)):
        return body
    return decode(bytes(body) if isinstance(body, (bytearray, memoryview)) else body, max_bytes=options.max_bytes)


def object_of(body: Body, options: Options) -> Object:
    """The same, where only an object makes sense."""
    if type(body) is bytes and len(body) <= options.max_bytes:
        try:
            return decode_object(body)
        except NOT_DECODED:
            pass  # said below, with its reason and its place
    return as_object(parsed(body, options), None)
