"""What the stream writers of Messages (Anthropic) and Converse (Bedrock) share: each part of an answer is a block, and
one block is open at a time. A part opens its block when it has something to write; a call is never interrupted."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import ClassVar, Generic, TypeVar

from toolwire.core import events as ev
from toolwire.core.codec import WriteContext
from toolwire.core.event_writer import EventWriter
from toolwire.core.ir import Call, Part, ProviderCall, Seal
from toolwire.core.losses import Ledger


class BlockPart:
    """A part that was started."""

    __slots__ = ("delta_head", "is_call", "is_custom_call", "part", "pieces", "seal")

    def __init__(self, part: Part) -> None:
        self.part = part
        self.is_call = isinstance(part, (Call, ProviderCall))
        self.is_custom_call = isinstance(part, Call) and part.kind == "custom"
        self.delta_head = b""
        """The bytes of a delta before its text; b"" if the part has no open block."""
        self.pieces: list[str] = []
        """The texts of its deltas, where something depends on all of them."""
        self.seal: Seal | None = None


OpenPart = TypeVar("OpenPart", bound=BlockPart)


class BlockWriter(EventWriter, Generic[OpenPart]):
    """A codec's writer has a method `_write_…` for each event of a part."""

    part_type: type[OpenPart]
    _part_writers: ClassVar[Mapping[type, Callable[..., bytes]]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._part_writers = {event: getattr(cls, name) for event, name in _PART_METHODS.items()}

    def __init__(self, ledger: Ledger, context: WriteContext) -> None:
        super().__init__(ledger, context)
        self._open_parts: dict[int, OpenPart] = {}
        self._open_index: int | None = None
        """The part whose block is open."""
        self._waiting: OrderedDict[int, list[ev.PartEvent]] = OrderedDict()
        """Events of parts that wait until a call has ended."""
        self._is_releasing = False
        self._block_count = 0
        self._has_refusal = False

    def track_event(self, event: ev.Event) -> None:
        if isinstance(event, ev.PartStart):
            open_part = self._open_parts[event.index] = self.part_type(event.part)
            self._take_block(event.index, open_part)
        elif isinstance(event, ev.PartEnd):
            self._open_parts.pop(event.index, None)
            if self._open_index == event.index:
                self._open_index = None
        elif isinstance(event, ev.UsageUpdate):
            self._usage = event.usage
        elif isinstance(event, ev.ChoiceEnd):
            self._finish = event.finish
        else:
            super().track_event(event)

    def _write_part(self, event: ev.PartEvent) -> bytes:
        index, kind = event.index, type(event)
        if isinstance(event, ev.PartStart):
            if event.choice != 0:
                what = f"answer {event.choice} was left out"
                self._ledger.note("no-counterpart", None, what, "there is one answer only")
                return b""
            open_part = self._open_parts[index] = self.part_type(event.part)
        elif (found := self._open_parts.get(index)) is not None:
            open_part = found
        else:
            return b""
        if self._waiting and index in self._waiting:
            self._waiting[index].append(event)
            return b""
        out, holder = b"", self._open_index
        if holder is not None and holder != index and self._needs_block(open_part, event):
            if self._is_inside_call():
                self._waiting[index] = [event]
                return b""
            # Text and thinking can continue in another block; a call cannot.
            out = self._write_block_stop()
        out += self._part_writers[kind](self, open_part, event)
        if kind is ev.PartEnd:
            if self._open_index == index:
                out += self._write_block_stop()
            self._open_parts.pop(index, None)
            if self._waiting and not self._is_releasing:
                out += self._release_waiting(False)
        return out

    write_part_start = write_text = write_arguments = write_seal = write_citation = write_part_end = _write_part

    def _needs_block(self, open_part: OpenPart, event: ev.PartEvent) -> bool:
        """Must the block of another part end for this event, or the event wait for that?"""
        raise NotImplementedError

    def _is_inside_call(self) -> bool:
        return self._open_index is not None and self._open_parts[self._open_index].is_call

    def _release_waiting(self, force: bool) -> bytes:
        """Write the parts that waited, in their order, until one of them is a call that has not ended. A provider can
        open thousands at once, so each is written once."""
        out: list[bytes] = []
        self._is_releasing = True
        while self._waiting and (force or not self._is_inside_call()):
            out.extend(map(self._write_part, self._waiting.popitem(last=False)[1]))
            if force:
                out.append(self._write_block_stop())
        self._is_releasing = False
        return b"".join(out)

    def _take_block(self, index: int, open_part: OpenPart) -> None:
        """Write this part into a new block from now on."""
        self._open_index = index
        open_part.delta_head = self._delta_head(self._block_count, open_part.part)
        self._block_count += 1

    def _write_block_stop(self) -> bytes:
        """The end of the open block, if there is one."""
        if self._open_index is None:
            return b""
        self._open_parts[self._open_index].delta_head = b""
        self._open_index = None
        return self._write_stop(self._block_count - 1)

    def _delta_head(self, number: int, part: Part) -> bytes:
        """The bytes of a delta of this block before its text."""
        raise NotImplementedError

    def _write_stop(self, number: int) -> bytes:
        """The event that ends this block."""
        raise NotImplementedError


_PART_METHODS: Mapping[type, str] = {
    ev.PartStart: "_write_part_start",
    ev.TextDelta: "_write_text",
    ev.ArgumentsDelta: "_write_arguments",
    ev.SealDelta: "_write_seal",
    ev.CitationDelta: "_write_citation",
    ev.PartEnd: "_write_part_end",
}
