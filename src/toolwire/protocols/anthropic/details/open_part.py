"""A part on its way to the stream: its block, and what it waits for."""

from __future__ import annotations

from msgspec.structs import replace

from toolwire.events import ArgumentsDelta, CitationDelta, PartEnd, PartStart, SealDelta, TextDelta
from toolwire.ir import Call, HostedCall, HostedResult, Origin, Part, Reasoning, Refusal, Seal, Text

PartEvent = PartStart | TextDelta | ArgumentsDelta | SealDelta | CitationDelta | PartEnd

_TEXT = '"text_delta","text":'
_THOUGHT = '"thinking_delta","thinking":'
_ARGUMENTS = '"input_json_delta","partial_json":'


class OpenPart:
    """A part on its way to the wire."""

    __slots__ = ("blank", "block", "head", "part", "pieces", "seal", "sources")

    def __init__(self, part: Part) -> None:
        self.part = part
        self.block = -1
        """The number of its open block; -1 when it has none."""
        self.head = b""
        self.blank = True
        self.pieces: list[str] = []
        self.sources: list[CitationDelta] = []
        self.seal: Seal | None = None


def stale(part: Part) -> Origin | None:
    """The origin of a part that is written piece by piece: for its unknown keys, not for its JSON."""
    return replace(part.origin, intact=False) if part.origin is not None else None


def head_of(state: OpenPart) -> bytes:
    """Everything of a delta's frame that stands before its text."""
    part = state.part
    kind = _ARGUMENTS if isinstance(part, (Call, HostedCall)) else _THOUGHT if isinstance(part, Reasoning) else _TEXT
    data = f'{{"type":"content_block_delta","index":{state.block},"delta":{{"type":{kind}'
    return b"event: content_block_delta\ndata: " + data.encode()


def speaks(state: OpenPart, event: PartEvent) -> bool:
    """Has this event something to write at once?"""
    part = state.part
    if isinstance(event, PartEnd):
        return not isinstance(part, (Text, Refusal)) and (not isinstance(part, Reasoning) or state.seal is not None)
    if isinstance(event, PartStart):
        return isinstance(part, (Call, HostedCall)) or bool(getattr(part, "text", ""))
    if isinstance(event, TextDelta):
        return bool(event.text) and not isinstance(part, HostedResult)
    return isinstance(event, ArgumentsDelta) or (isinstance(event, CitationDelta) and isinstance(part, Text))
