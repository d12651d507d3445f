"""The usual event of a stream, as a type: a delta that says what it belongs to, and has no key that we do not know.

One that belongs to the same as the delta right before it needs no other look; what does not fit goes the careful way.
"""

from __future__ import annotations

from msgspec import Struct, ValidationError, convert

from toolwire.events import ArgumentsDelta, Event, Frame, TextDelta
from toolwire.wire import Json


class Delta(Struct, forbid_unknown_fields=True, gc=False):
    type: str
    delta: str
    output_index: int
    content_index: int = 0
    summary_index: int = 0
    sequence_number: Json = None
    item_id: Json = None
    logprobs: Json = None
    obfuscation: Json = None
    stream_id: Json = None


class Growing:
    """What the last delta belonged to, and what became of it."""

    __slots__ = ("_event", "_index", "_pieces", "_place")

    def __init__(self, delta: Delta, event: TextDelta | ArgumentsDelta, pieces: list[str]) -> None:
        self._place = (delta.type, delta.output_index, delta.content_index, delta.summary_index)
        self._event = event.__class__
        self._index = event.index
        self._pieces = pieces

    def more(self, json: Json, frame: Frame) -> Event | None:
        try:
            found = convert(json, Delta)
        except ValidationError:
            return None
        text = found.delta
        place = (found.type, found.output_index, found.content_index, found.summary_index)
        if not text or place != self._place:
            return None
        self._pieces.append(text)
        return self._event(self._index, text, frame)


def growing(json: Json, events: list[Event], pieces: list[str]) -> Growing | None:
    """What goes on from here, if a delta became one event of its own."""
    if len(events) != 1 or not isinstance(events[0], (TextDelta, ArgumentsDelta)):
        return None
    try:
        found = convert(json, Delta)
    except ValidationError:
        return None
    return Growing(found, events[0], pieces) if found.type.endswith(".delta") else None
