"""The internal form as JSON, for `--to ir`: every node with its type, only the fields that say something."""

from __future__ import annotations

from typing import Any

import msgspec

from toolwire.events import Event
from toolwire.ir import PROVENANCE, Opaque
from toolwire.room import Room
from toolwire.wire import Json, as_object, decode, encode


def rendered(kind: str, data: bytes, source: Room, status: int) -> str:
    """What the reader of a room makes of some input: one JSON document, or one line an event of a stream."""
    if kind == "stream":
        reader = source.stream_reader()
        events: list[Event] = [*reader.feed(data), *reader.close()]
        return "".join(encode(plain(event)).decode() + "\n" for event in events)
    body = decode(data)
    if kind == "error":
        return _pretty(plain(source.read_error(body, status, {})))
    read: Any = source.read_request if kind == "request" else source.read_response
    return _pretty(plain(read(as_object(body, None))))


def _pretty(value: Json) -> str:
    return msgspec.json.format(encode(value), indent=2).decode() + "\n"


def plain(value: Any) -> Json:
    """A node as JSON: its type and what it holds."""
    if isinstance(value, Opaque):
        return {"node": "Opaque", "kind": value.kind, "protocol": value.origin.protocol, "json": value.origin.wire}
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.fields(type(value))
        told = {
            field.name: plain(getattr(value, field.name))
            for field in fields
            if field.name not in PROVENANCE and getattr(value, field.name) != field.default
        }
        return {"node": type(value).__name__, **told}
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    return value
