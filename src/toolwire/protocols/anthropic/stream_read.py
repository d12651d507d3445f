"""A stream of this wire, from bytes to events. Its end is `message_stop`, or a `message_delta` that tells why."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Raw
from msgspec.structs import replace

from toolwire.events import (
    ArgumentsDelta,
    Carried,
    ChoiceEnd,
    CitationDelta,
    Event,
    Frame,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
    SealDelta,
    TextDelta,
    UsageUpdate,
)
from toolwire.failures import TRUNCATED
from toolwire.ir import Call, Failure, Finish, HostedCall, Opaque, Origin, Part, Seal, Stray
from toolwire.protocols.anthropic.details.open_block import Block, Grows, opening
from toolwire.protocols.anthropic.details.pattern import Like
from toolwire.protocols.anthropic.details.summary import AnswerReading
from toolwire.protocols.anthropic.errors import read_error
from toolwire.protocols.anthropic.names import MESSAGE, NAME, keys
from toolwire.protocols.anthropic.parts import read_citation, read_part
from toolwire.protocols.anthropic.response import read_finish, read_usage
from toolwire.reading import NOTHING, Reading
from toolwire.sse import Again, FrameTooLong, Splitter
from toolwire.sse import Frame as RawFrame
from toolwire.wire import (
    Json,
    Malformed,
    Object,
    Path,
    as_object,
    decode,
    is_object_text,
    need_text,
    object_or_none,
    pointer,
    take_object,
)

_FRAME = keys("type", "index", "delta", "content_block", "message", "usage")
_DELTA = keys("stop_reason", "stop_sequence", "stop_details")

_EVENT: Path = (None, "event")


class StreamReader:
    def __init__(self) -> None:
        self._splitter = Splitter()
        self._reading = AnswerReading(NAME)
        self._number = 0
        self._blocks: dict[int, Block] = {}
        self._raw = RawFrame(None, b"")
        self._like: Like | None = None
        """The delta before, if the next may be the same but for its text."""
        self.again: Again | None = None
        self._started_blocks = 0
        self._begun = False
        self._over = False
        self._called = False
        self._finish: Finish | None = None
        self._usage: Object = {}
        self._usage_told = False
        self._strays: dict[tuple[Json, str], Stray] = {}

    def feed(self, data: bytes) -> list[Event]:
        if self._like is not None:
            self._settle(self._like)
        events: list[Event] = []
        if self._over and self._finish is None:
            return events
        try:
            frames = self._splitter.feed(data)
        except FrameTooLong as error:
            return [self._broken(str(error), "frame_too_long")]
        for frame in frames:
            like = self._like
            event = None if like is None else like.read(frame)
            if event is None:
                self._frame(frame, events)
            else:
                self._number += 1
                events.append(event)
        like = self._like
        if like is not None and like.alike is not None and self._splitter.between:
            self.again = like.alike.text
        return events

    def _settle(self, like: Like) -> None:
        """Count in what was known by its bytes."""
        self.again = None
        alike = like.alike
        if alike is not None:
            self._number += alike.met
            alike.met = 0

    def close(self) -> list[Event]:
        if self._like is not None:
            self._settle(self._like)
        events: list[Event] = []
        for frame in self._splitter.close():
            self._frame(frame, events)
        if not self._over:
            if self._finish is not None:
                self._end(Frame(NAME, None, None, silent=True), events)
            else:
                events.append(self._broken(TRUNCATED, "stream_truncated"))
        return events

    def _broken(self, problem: str, code: str = "invalid_stream") -> Event:
        self._over, self._finish, self._like = True, None, None
        what = problem if problem is TRUNCATED else f"the provider's stream cannot be read: {problem}"
        failure = Failure("upstream", what, 502, code)
        return ResponseFailed(failure, Frame(NAME, None, None, silent=True))

    # --- frames ---

    def _frame(self, raw: RawFrame, events: list[Event]) -> None:
        if self._over and self._finish is None:
            return
        path: Path = (_EVENT, self._number)
        self._number += 1
        self._raw, self._like = raw, None
        try:
            node = as_object(decode(raw.data, path), path)
        except Malformed as error:
            self._no_object(raw, path, error, events)
            return
        kind = node.get("type")
        if kind is None:
            kind = raw.event or ("error" if "error" in node else "")
        if type(kind) is not str:
            if not self._over:
                events.append(self._broken(f"{pointer((path, 'type'))} is no string"))
            return
        frame = Frame(NAME, raw.event or kind, node)
        read = None if self._over else _EVENTS.get(kind)
        before = len(events)
        if read is not None:
            try:
                read(self, node, path, frame, events)
            except Malformed as error:
                events.append(self._broken(str(error)))
            if self._reading.strays:
                self._gather_strays()
        if len(events) == before:
            quiet = read is not None or kind == "ping"
            events.append(Carried(kind, Origin(NAME, path, node), quiet, frame))

    def _no_object(self, raw: RawFrame, path: Path, error: Malformed, events: list[Event]) -> None:
        if raw.data.strip() == b"[DONE]":
            # Foreign to this wire, but some in between send it, and its clients pass over it.
            events.append(Carried("[DONE]", Origin(NAME, path, "[DONE]"), True, Frame(NAME, raw.event, None)))
        elif not self._over:
            events.append(self._broken(str(error)))

    def _gather_strays(self) -> None:
        for stray in self._reading.strays:
            self._strays.setdefault((stray.path[1] if stray.path else None, stray.key), stray)
        self._reading.strays.clear()

    # --- the message ---

    def message_start(self, node: Object, path: Path, frame: Frame, events: list[Event]) -> None:
        if self._begun:
            events.append(self._broken("a second message begins inside the first"))
            return
        message = take_object(node, "message", path) or {}
        here = (path, "message")
        usage = take_object(message, "usage", here)
        self._usage = dict(usage or {})
        origin = self._reading.origin(message, here, MESSAGE)
        id, model = message.get("id"), message.get("model")
        self._begun = True
        events.append(
            ResponseStart(
                id if isinstance(id, str) else "",
                model if isinstance(model, str) else "",
                None,
                read_usage(usage, (here, "usage"), self._reading) if usage else None,
                Origin(NAME, here, message, origin.extra, False),
                frame,
            )
        )

    def _begin(self, frame: Frame, events: list[Event]) -> None:
        """An answer that does not say that it begins."""
        self._begun = True
        events.append(ResponseStart(frame=frame))

    def message_delta(self, node: Object, path: Path, frame: Frame, events: list[Event]) -> None:
        if not self._begun:
            self._begin(frame, events)
        delta = take_object(node, "delta", path) or {}
        if not _FRAME.issuperset(node) or not _DELTA.issuperset(delta):
            self._reading.origin(node, path, _FRAME)
            self._reading.origin(delta, (path, "delta"), _DELTA)
        # A later delta may tell the tokens again and leave the reason out: that takes nothing back.
        self._finish = read_finish(delta, (path, "delta"), self._reading) or self._finish
        usage = take_object(node, "usage", path)
        if usage:
            for key, value in usage.items():
                if value is not None:
                    self._usage[key] = value
            events.append(UsageUpdate(read_usage(self._usage, (path, "usage"), self._reading), frame))
            self._usage_told = True

    def message_stop(self, node: Object, path: Path, frame: Frame, events: list[Event]) -> None:
        if not self._begun:
            self._begin(frame, events)
        self._end(frame, events)

    def _end(self, frame: Frame, events: list[Event]) -> None:
        for block in self._blocks.values():
            self._finish_block(block, frame, events)
        self._blocks.clear()
        self._finish = self._finish or Finish("calls" if self._called else "stop")
        events.append(ChoiceEnd(self._finish, frame=frame))
        if self._usage and not self._usage_told:
            events.append(UsageUpdate(read_usage(self._usage, None, Reading(NAME)), frame))
        self._over = True
        if self._reading.strays:
            self._gather_strays()
        events.append(ResponseEnd(tuple(self._strays.values()), frame))

    def error(self, node: Object, path: Path, frame: Frame, events: list[Event]) -> None:
        self._over, self._finish = True, None
        events.append(ResponseFailed(read_error(node, 0, NOTHING), frame))

    # --- blocks ---

    def block_start(self, node: Object, path: Path, frame: Frame, events: list[Event]) -> None:
        if not self._begun:
            self._begin(frame, events)
        number = node.get("index", self._started_blocks)
        if not isinstance(number, int) or number in self._blocks:
            events.append(self._broken(f"block {_spelled(number)} starts twice or has no number"))
            return
        at = (path, "content_block")
        wire: Json = node.get("content_block")
        part = opening(wire, at)
        plain = part is not None
        if part is None:
            part = read_part(as_object(wire, at), at, self._reading)
        block = self._blocks[number] = Block(self._started_blocks, part)
        self._started_blocks += 1
        self._called = self._called or type(part) is Call
        if block.grows == "opaque":
            block.wire = dict(wire)
            return
        if not plain:
            part = _begun(block, part, wire)
        events.append(PartStart(block.index, part, 0, frame))

    def _block(self, node: Object, events: list[Event]) -> Block | None:
        number = node.get("index")
        if number is None and len(self._blocks) == 1:
            number = next(iter(self._blocks))
        block = self._blocks.get(number) if isinstance(number, int) else None
        if block is None:
            events.append(self._broken(f"block {_spelled(number)} is not open"))
        return block

    def block_delta(self, node: Object, path: Path, frame: Frame, events: list[Event]) -> None:
        block = self._block(node, events)
        if block is None:
            return
        at = (path, "delta")
        delta = as_object(node.get("delta"), at)
        if block.grows == "opaque":
            block.gather(delta)
            return
        kind = need_text(delta, "type", at)
        row = _DELTAS.get(kind)
        if row is None:
            events.append(Carried(kind, Origin(NAME, path, node), False, frame))
            return
        grows, key = row
        if len(delta) > 2:
            self._reading.origin(delta, at, keys("type", key))
        if grows != block.grows:
            events.append(self._broken(f"a {kind} cannot stand in block {_spelled(node.get('index'))}"))
        elif key == "citation":
            here = (at, key)
            citation = read_citation(as_object(delta.get(key), here), here, self._reading)
            events.append(CitationDelta(block.index, citation, frame))
        elif text := need_text(delta, key, at):
            events.append(_grown(block, key, text, frame))
            if key != "signature" and len(delta) == 2 and len(node) == 3 and "type" in node:
                pieces = block.pieces if key == "partial_json" else None
                self._like = Like(block.index, pieces, key, text, self._raw)

    def block_stop(self, node: Object, path: Path, frame: Frame, events: list[Event]) -> None:
        block = self._block(node, events)
        if block is None:
            return
        self._finish_block(block, frame, events)
        for number, other in self._blocks.items():
            if other is block:
                del self._blocks[number]
                return

    def _finish_block(self, block: Block, frame: Frame, events: list[Event]) -> None:
        cut = False
        if block.grows == "opaque":
            if block.pieces:
                block.wire["input"] = object_or_none("".join(block.pieces))
            kind = block.wire["type"]
            origin = replace(block.part.origin, wire=block.wire) if block.part.origin is not None else None
            events.append(PartStart(block.index, Opaque(kind, origin or Origin(NAME, None, block.wire)), 0, frame))
        elif block.grows == "call":
            if not block.pieces:
                events.append(ArgumentsDelta(block.index, block.given or "{}", frame))
            else:
                cut = not is_object_text("".join(block.pieces))
        events.append(PartEnd(block.index, cut, frame))


def _spelled(number: Json) -> str:
    """A number of a block as the wire has it, also one that we keep in its own spelling."""
    return bytes(number).decode() if isinstance(number, Raw) else str(number)


def _begun(block: Block, part: Part, wire: Object) -> Part:
    """What is known of a part when it begins: arguments come later, and its JSON is only the beginning of it."""
    if isinstance(part, (Call, HostedCall)):
        block.given = part.arguments if wire.get("input") else ""
        part = replace(part, arguments="")
    if block.grows != "no" and part.origin is not None:
        part = replace(part, origin=replace(part.origin, intact=False))
    block.part = part
    return part


def _grown(block: Block, key: str, text: str, frame: Frame) -> Event:
    if key == "signature":
        return SealDelta(block.index, Seal(NAME, text), frame)
    if key == "partial_json":
        block.pieces.append(text)
        return ArgumentsDelta(block.index, text, frame)
    return TextDelta(block.index, text, frame)


_DELTAS: Mapping[str, tuple[Grows, str]] = {
    "text_delta": ("text", "text"),
    "input_json_delta": ("call", "partial_json"),
    "thinking_delta": ("thought", "thinking"),
    "signature_delta": ("thought", "signature"),
    "citations_delta": ("text", "citation"),
}
"""Each delta with the blocks that take it and the key that holds it."""

_Reads = Callable[[StreamReader, Object, Path, Frame, list[Event]], None]

_EVENTS: Mapping[str, _Reads] = {
    "content_block_delta": StreamReader.block_delta,
    "content_block_start": StreamReader.block_start,
    "content_block_stop": StreamReader.block_stop,
    "message_start": StreamReader.message_start,
    "message_delta": StreamReader.message_delta,
    "message_stop": StreamReader.message_stop,
    "error": StreamReader.error,
}
