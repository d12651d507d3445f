"""The frames of a stream's writer, and what all items that it has open are alike in."""

from __future__ import annotations

from itertools import count
from typing import ClassVar

from msgspec import Struct, field

from toolwire.events import ArgumentsDelta, Event, TextDelta
from toolwire.ir import Part
from toolwire.loss import Ledger
from toolwire.sse import named
from toolwire.wire import Object, encode

Closed = tuple[bytes, bytes]
"""What is told, and the item as it is spelled."""


class Sequence(Struct, eq=False):
    """Numbers the events of one answer."""

    numbers: count[int] = field(default_factory=count)

    def event(self, kind: str, fields: Object) -> bytes:
        return named(kind, encode({"type": kind, "sequence_number": next(self.numbers), **fields}))


def frame(kind: str, rest: str) -> bytes:
    """The frame of a kind of event, with a gap for its number and those of the rest."""
    return f'event: {kind}\ndata: {{"type":"{kind}","sequence_number":%d,{rest}}}\n\n'.encode()


Form = tuple[bytes, bytes]
"""What stands in a delta before its number, and between that and its text."""
DIGITS = tuple([b"%d" % number for number in range(1000)])
"""How numbers are spelled: few streams are so long, and formatting is dear where nothing else of a delta needs it."""
TAIL = b"}\n\n"


def growth(kind: str) -> bytes:
    """What stands before the number of such a delta."""
    return f'event: {kind}\ndata: {{"type":"{kind}","sequence_number":'.encode()


def formed(kind: bytes, at: bytes) -> Form:
    """The form of a kind of delta at a place."""
    return kind, b"," + at + b',"delta":'


def grown(form: Form, number: int, spelled: bytes) -> bytes:
    before, place = form
    digits = DIGITS[number] if number < 1000 else b"%d" % number
    return b"".join((before, digits, place, spelled, TAIL))


ADDED = frame("response.output_item.added", '"output_index":%d,"item":%b')
ITEM_DONE = frame("response.output_item.done", '"output_index":%d,"item":%b')


class OpenItem(Struct, eq=False):
    """An item that is on the wire and not yet done."""

    lingers: ClassVar[bool] = False
    """May more parts join it? Then it is closed only when something else comes."""

    part: Part
    id: str
    number: int
    ledger: Ledger
    at: bytes = b""
    """How an event says that it speaks of this item."""
    pieces: list[str] = []
    spelled: bytes = b""
    """The last piece as it was told; not one that came by the shortest way, as no first one does."""
    form: Form = (b"", b"")
    grows: type[TextDelta | ArgumentsDelta] | None = None
    """Deltas that are told as they come, in this form; all others go to `grow`."""

    def begin(self, out: Sequence) -> bytes:
        raise NotImplementedError

    def go_on(self, part: Part, out: Sequence) -> bytes:
        """Another part joins."""
        return b""

    def grow(self, event: Event, out: Sequence) -> bytes:
        return b""

    def end(self, incomplete: bool, out: Sequence) -> bytes:
        """The part that is open is complete."""
        return b""

    def close(self, cut: bool, out: Sequence) -> Closed:
        raise NotImplementedError

    def located(self) -> bytes:
        """Its id as it is spelled, which goes into its place."""
        name = encode(self.id)
        self.at = b'"item_id":%b,"output_index":%d' % (name, self.number)
        return name

    def say(self, text: str, out: Sequence) -> bytes:
        """More text in a frame of this form: only its number and its text are new."""
        self.spelled = encode(text)
        self.pieces.append(text)
        return grown(self.form, next(out.numbers), self.spelled)

    def added(self, item: bytes, out: Sequence) -> bytes:
        return ADDED % (next(out.numbers), self.number, item)

    def done(self, item: bytes, out: Sequence) -> bytes:
        return ITEM_DONE % (next(out.numbers), self.number, item)
