"""Bodies as callers give them: bytes, text, or parsed already."""

from __future__ import annotations

from typing import Any

from toolwire.options import Options
from toolwire.wire import Json, decode

Body = bytes | bytearray | memoryview | str | dict[str, Any] | list[Any]


def parsed(body: Body, options: Options) -> Json:
    """A body given as bytes, text or already parsed."""
    if type(body) is bytes:
        return decode(body, None, options.max_bytes)
    if isinstance(body, (dict, list)):
        return body
    return decode(bytes(body) if isinstance(body, (bytearray, memoryview)) else body, max_bytes=options.max_bytes)
