"""A part on its way to the stream: its block, and what it waits for."""

from __future__ import annotations

from msgspec.structs import replace

from toolwire.events import ArgumentsDelta, CitationDelta, PartEnd, PartStart, SealDelta, TextDelta
from toolwire.ir import Call, HostedCall, HostedResult, Origin, Part, Reasoning, Refusal, Seal, Text, place
from toolwire.loss import Ledger
from toolwire.protocols.anthropic.names import NAME
from toolwire.protocols.anthropic.parts import write_part
from toolwire.wire import Object

PartEvent = PartStart | TextDelta | ArgumentsDelta | SealDelta | CitationDelta | PartEnd

TEXT: Object = {"type": "text", "text": ""}
THOUGHT: Object = {"type": "thinking", "thinking": "", "signature": ""}
"""Blocks that begin."""
START = b'event: content_block_start\ndata: {"type":"content_block_start","index":'
STOP = b'event: content_block_stop\ndata: {"type":"content_block_stop","index":'
END = b'}\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n'

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


def start_of(call: Call, ledger: Ledger) -> Object | None:
    """The block with which a call begins; one that another wire told plainly is written at one go."""
    own = call.origin is not None and call.origin.protocol == NAME
    if not own and not call.item and call.cache is None and call.seal is None:
        return {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
    if call.seal is not None:
        ledger.note("seal-dropped", place(call), "the seal of a call was taken off")
    start = replace(call, arguments="", kind="function", seal=None, origin=stale(call))
    return write_part(start, ledger, True)


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
