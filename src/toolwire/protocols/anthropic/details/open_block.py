"""A block that is open on the wire, and how it begins."""

from __future__ import annotations

from typing import Literal

from toolwire.ir import NOTHING, Call, HostedCall, Opaque, Origin, Part, Reasoning, Text
from toolwire.protocols.anthropic.names import NAME
from toolwire.wire import Json, Object, Path

Grows = Literal["text", "thought", "call", "opaque", "no"]
"""Which deltas a block takes."""

_GROWS: dict[type, Grows] = {
    Text: "text",
    Reasoning: "thought",
    Call: "call",
    HostedCall: "call",
    Opaque: "opaque",
}


class Block:
    __slots__ = ("given", "grows", "index", "part", "pieces", "wire")

    def __init__(self, index: int, part: Part) -> None:
        self.index = index
        self.part = part
        grows = _GROWS.get(type(part), "no")
        self.grows: Grows = "no" if grows == "thought" and part.hidden else grows  # type: ignore[union-attr]
        self.given = ""
        """The arguments that stood in its start; deltas replace them."""
        self.pieces: list[str] = []
        self.wire: Object = {}

    def gather(self, delta: Object) -> None:
        """An unknown block gathers its deltas, so that it is whole for its own protocol."""
        for key, value in delta.items():
            if key == "partial_json" and isinstance(value, str):
                self.pieces.append(value)
            elif key != "type":
                held = self.wire.get(key)
                self.wire[key] = held + value if isinstance(held, str) and isinstance(value, str) else value


def opening(wire: Json, path: Path) -> Part | None:
    """The beginning of a text or of a call as nearly all are, at one go; None for every other."""
    if type(wire) is not dict:
        return None
    kind, size = wire.get("type"), len(wire)
    if kind == "text" and size == 2:
        text = wire.get("text")
        return Text(text, (), None, None, Origin(NAME, path, wire, NOTHING, False)) if type(text) is str else None
    if kind == "tool_use" and size == 4 and wire.get("input") == {}:
        id, name = wire.get("id"), wire.get("name")
        if type(id) is str and type(name) is str:
            origin = Origin(NAME, path, wire, NOTHING, False)
            return Call(id, name, "", "function", "", "", None, None, False, False, origin)
    return None
