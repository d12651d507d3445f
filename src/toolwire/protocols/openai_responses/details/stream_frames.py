"""The frames of a stream's writer, and what all items that it has open are alike in."""

from __future__ import annotations

from itertools import count
from typing import ClassVar

from msgspec import Struct, field

from toolwire.core.events import ArgumentsDelta, Event, TextDelta
from toolwire.core.ir import Part
from toolwire.core.json_values import Object, encode
from toolwire.core.losses import Ledger
from toolwire.core.sse import write_event_frame

ClosedItem = tuple[bytes, bytes]
"""What is told, and the item as it is spelled."""


class EventSequence(Struct, eq=False):
    """Numbers the events of one answer."""

    numbers: count[int] = field(default_factory=count)

    def write_event(self, kind: str, fields: Object) -> bytes:
        return write_event_frame(kind, encode({"type": kind, "sequence_number": next(self.numbers), **fields}))


def event_template(kind: str, rest: str) -> bytes:
    """The frame of a kind of event, with a gap for its number and those of the rest."""
    return f'event: {kind}\ndata: {{"type":"{kind}","sequence_number":%d,{rest}}}\n\n'.encode()


DeltaTemplate = tuple[bytes, bytes]
"""What stands in a delta before its number, and between that and its text."""
NUMBER_BYTES = tuple([b"%d" % number for number in range(1000)])
"""How numbers are spelled: few streams are so long, and formatting is dear where nothing else of a delta needs it."""
FRAME_END = b"}\n\n"


def delta_prefix(kind: str) -> bytes:
    """What stands before the number of such a delta."""
    return f'event: {kind}\ndata: {{"type":"{kind}","sequence_number":'.encode()


def delta_template(prefix: bytes, location: bytes) -> DeltaTemplate:
    """The form of a kind of delta at a place."""
    return prefix, b"," + location + b',"delta":'


def write_delta_frame(template: DeltaTemplate, number: int, encoded_text: bytes) -> bytes:
    before, place = template
    digits = NUMBER_BYTES[number] if number < 1000 else b"%d" % number
    return b"".join((before, digits, place, encoded_text, FRAME_END))


ITEM_ADDED = event_template("response.output_item.added", '"output_index":%d,"item":%b')
ITEM_DONE = event_template("response.output_item.done", '"output_index":%d,"item":%b')


class OpenItem(Struct, eq=False):
    """An item that is on the wire and not yet done."""

    accepts_more_parts: ClassVar[bool] = False
    """May more parts join it? Then it is closed only when something else comes."""

    part: Part
    id: str
    output_index: int
    ledger: Ledger
    location: bytes = b""
    """How an event says that it speaks of this item."""
    pieces: list[str] = []
    encoded_piece: bytes = b""
    """The last piece as it was told; not one that came by the shortest way, as no first one does."""
    template: DeltaTemplate = (b"", b"")
    streamed_event: type[TextDelta | ArgumentsDelta] | None = None
    """Deltas that are told as they come, in this form; all others go to `grow`."""

    def write_start(self, out: EventSequence) -> bytes:
        raise NotImplementedError

    def add_part(self, part: Part, out: EventSequence) -> bytes:
        """Another part joins."""
        return b""

    def add_delta(self, event: Event, out: EventSequence) -> bytes:
        return b""

    def end_part(self, incomplete: bool, out: EventSequence) -> bytes:
        """The part that is open is complete."""
        return b""

    def close(self, cut: bool, out: EventSequence) -> ClosedItem:
        raise NotImplementedError

    def set_location(self) -> bytes:
        """Its id as it is spelled, which goes into its place."""
        name = encode(self.id)
        self.location = b'"item_id":%b,"output_index":%d' % (name, self.output_index)
        return name

    def write_delta(self, text: str, out: EventSequence) -> bytes:
        """More text in a frame of this form: only its number and its text are new."""
        self.encoded_piece = encode(text)
        self.pieces.append(text)
        return write_delta_frame(self.template, next(out.numbers), self.encoded_piece)

    def write_added(self, item: bytes, out: EventSequence) -> bytes:
        return ITEM_ADDED % (next(out.numbers), self.output_index, item)

    def write_done(self, item: bytes, out: EventSequence) -> bytes:
        return ITEM_DONE % (next(out.numbers), self.output_index, item)
