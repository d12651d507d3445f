"""Reads a stream of Converse: blocks by their index, of which only calls, results and images say that they start.

An answer has ended with `messageStop`; the token counts come behind it, in `metadata`. A stream that ends without it,
in a message, with an exception or with a checksum that does not match has failed.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping

from msgspec.structs import replace

from toolwire.core import events as ev
from toolwire.core.errors import truncated_stream_failure
from toolwire.core.event_stream import EventStreamSplitter, Message
from toolwire.core.frame_reader import EVENT_PATH, FrameReader
from toolwire.core.ir import Call, Finish, Opaque, Origin, Part, Reasoning, Seal, Text, UnknownField
from toolwire.core.json_values import (
    Json,
    Malformed,
    Object,
    Path,
    decode,
    decode_object_or_none,
    encode_text,
    expect_object,
    expect_text,
    get_int,
    get_object,
    get_text,
    is_object_text,
)
from toolwire.core.provenance import not_verbatim, odd_shape
from toolwire.core.sse import Frame, HalfJoiner
from toolwire.protocols.bedrock_converse.content import (
    ResponseReadContext,
    find_member,
    read_citation,
    read_part,
)
from toolwire.protocols.bedrock_converse.errors import read_stream_error
from toolwire.protocols.bedrock_converse.names import NAME, key_set
from toolwire.protocols.bedrock_converse.response import (
    read_finish,
    read_invoked_model,
    read_metadata_origin,
    read_usage,
)

_SILENT_FRAME = ev.SourceFrame(NAME, None, None, silent=True)
_BLOCK_KEYS = key_set("contentBlockIndex start delta")
_TEXT, _THOUGHT, _CALL, _OTHER = "text", "reasoningContent", "toolUse", "other"


class _OpenBlock:
    """A block whose deltas are still coming."""

    __slots__ = ("index", "kind", "member", "number", "pieces", "start", "wires")

    def __init__(self, number: int, kind: str, member: str, start: Object) -> None:
        self.number = number
        """How many blocks have started before it."""
        self.index = -1
        """Of its part; -1 until the part starts."""
        self.kind = kind
        self.member = member
        self.start = start
        self.pieces: list[str] = []
        """The arguments of a call."""
        self.wires: list[Json] = []
        """The deltas of a block that is read when it is whole: an image, or what a tool of the provider has found."""


class StreamReader(FrameReader):
    silent_frame = _SILENT_FRAME

    def __init__(self) -> None:
        super().__init__()
        self._message_splitter = EventStreamSplitter()
        self._joiner = HalfJoiner()
        self._reading = ResponseReadContext(NAME)
        self._blocks: dict[int, _OpenBlock] = {}
        self._part_count = 0
        self._block_count = 0
        self._unread_number = -1
        """The number of the last block, if nothing of it could be read; -1 if something could."""
        self._has_calls = False
        self._finish: Finish | None = None
        self._unknown_fields: dict[tuple[Json, str], UnknownField] = {}

    def feed(self, data: bytes) -> list[ev.Event]:
        self._events, self.is_frame_changed = [], False
        if self._ended:
            return self._events
        for message in self._join_halves(self._message_splitter.feed(data)):
            self._read_message(message)
        if self._message_splitter.fault:
            self._release_held()
            self._fail_stream(self._message_splitter.fault)
        return self._events

    def close(self) -> list[ev.Event]:
        self._events = []
        self._release_held()
        if self._ended:
            return self._events
        self._frame = _SILENT_FRAME
        self._message_splitter.close()
        if self._finish is not None and not self._message_splitter.fault:
            self._end_response()
        else:
            self._fail(truncated_stream_failure(self._message_splitter.fault), _SILENT_FRAME)
        return self._events

    def _join_halves(self, messages: list[Message]) -> Iterator[Message]:
        """The messages; characters that were cut between two of them are joined."""
        for message in messages:
            if message.kind != "event":
                self._release_held()
                yield message
                continue
            for frame in self._joiner.join_frames([Frame(message.name, message.payload)]):
                yield Message("event", frame.event or "", frame.data)

    def _release_held(self) -> None:
        for frame in self._joiner.release():
            self._read_message(Message("event", frame.event or "", frame.data))

    # --- messages ---

    def _read_message(self, message: Message) -> None:
        if self._ended:
            return
        path: Path = (EVENT_PATH, self._frame_count)
        self._frame_count += 1
        node: Json = None
        if message.payload or message.kind == "event":
            try:
                node = decode(message.payload, path, replaced=self.replaced_halves)
            except Malformed as error:
                if message.kind == "event":
                    self._fail_stream(str(error))
                    return
        self._frame = ev.SourceFrame(NAME, message.name, _without_padding(node))
        if message.kind != "event":
            self._fail(replace(read_stream_error(message, node), origin=Origin(NAME, path, node)), self._frame)
            return
        read, before = _EVENT_READERS.get(message.name), len(self._events)
        if read is not None:
            try:
                read(self, expect_object(node, path), path)
            except Malformed as error:
                del self._events[before:]  # no client can use a part of this frame
                self._fail_stream(str(error))
            self._collect_unknown_fields()
        if len(self._events) == before:
            origin = Origin(NAME, path, self._frame.json)
            is_ignorable = read is not None or message.name == HEARTBEAT_EVENT
            self._events.append(ev.OpaqueEvent(message.name, origin, is_ignorable, self._frame))

    def _collect_unknown_fields(self) -> None:
        if self._reading.unknown_fields:
            for field in self._reading.unknown_fields:
                self._unknown_fields.setdefault((field.path[1] if field.path else None, field.key), field)
            self._reading.unknown_fields.clear()

    def _start_response(self) -> None:
        """Start an answer, also one without a messageStart."""
        if not self._started:
            self._started = True
            self._events.append(ev.ResponseStart(frame=self._frame))

    def _read_start(self, node: Object, path: Path) -> None:
        if self._started:
            self._fail_stream("a second message begins inside the first")
            return
        self._reading.read_origin(node, path, key_set("role p"))
        self._start_response()

    def _read_stop(self, node: Object, path: Path) -> None:
        self._start_response()
        for block in self._blocks.values():
            self._end_block(block, path)
        self._blocks.clear()
        if self._ended:
            return
        self._reading.read_origin(node, path, key_set("stopReason additionalModelResponseFields p"))
        self._finish = read_finish(node, path, self._has_calls, self._reading)
        if self._finish is None:
            self._fail_stream("`messageStop` has no `stopReason`")
            return
        self._events.append(ev.ChoiceEnd(self._finish, frame=self._frame))

    def _read_metadata(self, node: Object, path: Path) -> None:
        self._start_response()
        usage = self._reading.get_counted(node, "usage", path)
        read_metadata_origin(node, path, self._reading)
        model = read_invoked_model(node)
        if model:
            self._reading.note_unknown_field(((path, "trace"), "promptRouter"), "invokedModelId")
        if usage is not None:
            counts = read_usage(usage, (path, "usage"), self._reading, node)
            self._events.append(ev.UsageUpdate(counts, self._frame))
        if self._finish is not None:
            self._end_response()

    def _end_response(self) -> None:
        self._ended = True
        self._collect_unknown_fields()
        self._events.append(ev.ResponseEnd(tuple(self._unknown_fields.values()), self._frame))

    # --- blocks ---

    def _find_number(self, node: Object, path: Path) -> int:
        number = get_int(node, "contentBlockIndex", path)
        self._reading.read_origin(node, path, _BLOCK_KEYS | {"p"})
        if number is None:
            raise Malformed(path, "`contentBlockIndex` is missing")
        if self._finish is not None:
            raise Malformed(path, "a block comes after the end of the message")
        return number

    def _open_block(self, number: int, kind: str, member: str, start: Object, path: Path) -> _OpenBlock:
        """The block of this index. One index may be used for a text and then for a call (LibreChat#10647)."""
        before = self._blocks.pop(number, None)
        if before is not None:
            self._end_block(before, path)
        if number == self._unread_number:
            self._block_count = number  # it had begun with something else
        self._unread_number = -1
        block = self._blocks[number] = _OpenBlock(self._block_count, kind, member, start)
        self._block_count += 1
        return block

    def _number_frame(self, number: int, path: Path) -> None:
        """Clients find a block by its number: the frame gets one that belongs to no other block."""
        block = self._blocks.get(number)
        if block is None:
            if number == self._block_count:  # a block that cannot be read has a number, too
                self._block_count, self._unread_number = number + 1, number
        elif block.number != number:
            what = "the blocks were numbered in another order than they started"
            odd = odd_shape(path, "contentBlockIndex", what)
            self._unknown_fields.setdefault((None, "contentBlockIndex"), odd)
            self._frame.json["contentBlockIndex"] = block.number
            self.is_frame_changed = True

    def _start_part(self, block: _OpenBlock, part: Part) -> None:
        block.index = self._part_count
        self._part_count += 1
        self._events.append(ev.PartStart(block.index, part, 0, self._frame))

    def _read_block_start(self, node: Object, path: Path) -> None:
        self._start_response()
        number, at = self._find_number(node, path), (path, "start")
        start = get_object(node, "start", path) or {}
        if not any(value is not None for key, value in start.items() if key != "p"):
            # It says nothing, the first delta says what it is; and boto3 gives the stream up.
            self._frame, self.is_frame_changed = replace(self._frame, silent=True), True
            return
        member, value = find_member(start, at)
        if member == _THOUGHT:  # not in the schema, and seen by litellm
            self._grow_thought(number, value, (at, member))
            self._number_frame(number, path)
            return
        inner = expect_object(value, (at, member))
        if member != _CALL or get_text(inner, "type", (at, member)) is not None:
            self._open_block(number, _OTHER, member, inner, path)
            self._number_frame(number, path)
            return
        before = self._blocks.get(number)
        if before is not None and before.kind == _CALL and before.start == inner:
            raise Malformed(path, f"the call {inner.get('toolUseId')!r} starts twice")
        block = self._open_block(number, _CALL, member, inner, path)
        self._number_frame(number, path)
        part = read_part({member: {"input": {}, **inner}}, at, self._reading)
        assert isinstance(part, Call)
        self._has_calls = True
        self._start_part(block, replace(part, arguments="", origin=not_verbatim(part.origin)))

    def _read_block_delta(self, node: Object, path: Path) -> None:
        self._start_response()
        number, at = self._find_number(node, path), (path, "delta")
        delta = expect_object(node.get("delta"), at)
        if not any(value is not None for key, value in delta.items() if key != "p"):
            self._number_frame(number, path)
            return
        member, value = find_member(delta, at)
        grow = _DELTA_READERS.get(member)
        block = self._blocks.get(number)
        if grow is not None:
            grow(self, number, value, (at, member))
        elif block is not None and block.kind == _OTHER and block.member == member:
            block.wires.append(value)
        else:
            self._events.append(ev.OpaqueEvent(member, Origin(NAME, path, self._frame.json), False, self._frame))
        self._number_frame(number, path)

    def _grow_text(self, number: int, value: Json, path: Path) -> None:
        text = expect_text(value, path)
        block = self._find_text_block(number, path)
        if text:
            self._events.append(ev.TextDelta(block.index, text, self._frame))

    def _find_text_block(self, number: int, path: Path) -> _OpenBlock:
        block = self._blocks.get(number)
        if block is None or block.kind != _TEXT:
            block = self._open_block(number, _TEXT, _TEXT, {}, path)
            self._start_part(block, Text(""))
        return block

    def _grow_citation(self, number: int, value: Json, path: Path) -> None:
        block = self._find_text_block(number, path)
        self._events.append(ev.CitationDelta(block.index, read_citation(value, path, self._reading), self._frame))

    def _grow_thought(self, number: int, value: Json, path: Path) -> None:
        member, inner = find_member(value, path)
        at = (path, member)
        if member == "reasoningText":  # the shape of whole answers
            node = expect_object(inner, at)
            for key in ("text", "signature"):
                if (text := get_text(node, key, at)) is not None:
                    self._grow_thought(number, {key: text}, at)
            return
        text = expect_text(inner, at) if member in ("text", "signature", "redactedContent") else ""
        block = self._blocks.get(number)
        if member == "redactedContent":
            block = self._open_block(number, _THOUGHT, member, {}, path)
            self._start_part(block, Reasoning(hidden=True, seal=Seal(NAME, text)))
            return
        if member not in ("text", "signature"):
            self._events.append(ev.OpaqueEvent(member, Origin(NAME, path, self._frame.json), False, self._frame))
            return
        if block is None or block.kind != _THOUGHT or block.member != _THOUGHT:
            block = self._open_block(number, _THOUGHT, _THOUGHT, {}, path)
            self._start_part(block, Reasoning())
        if text and member == "text":
            self._events.append(ev.TextDelta(block.index, text, self._frame))
        elif text:
            self._events.append(ev.SealDelta(block.index, Seal(NAME, text), self._frame))

    def _grow_call(self, number: int, value: Json, path: Path) -> None:
        inner = expect_object(value, path).get("input")
        if inner is None:
            raise Malformed(path, "`input` is missing")
        text = inner if isinstance(inner, str) else encode_text(inner)
        block = self._blocks.get(number)
        if block is not None and block.kind == _OTHER:
            block.pieces.append(text)
        elif block is None or block.kind != _CALL:
            raise Malformed(path, "arguments of a call that has not started")
        elif text:
            block.pieces.append(text)
            self._events.append(ev.ArgumentsDelta(block.index, text, self._frame))

    def _read_block_stop(self, node: Object, path: Path) -> None:
        self._start_response()
        number = self._find_number(node, path)
        self._number_frame(number, path)
        block = self._blocks.pop(number, None)
        if block is not None:
            self._end_block(block, path)

    def _end_block(self, block: _OpenBlock, path: Path) -> None:
        is_cut = False
        if block.kind == _OTHER:
            self._start_part(block, self._read_whole_block(block, path))
        elif block.kind == _CALL:
            text = "".join(block.pieces)
            if not text or text.isspace():
                self._events.append(ev.ArgumentsDelta(block.index, "{}", self._frame))
            else:
                is_cut = not is_object_text(text)
        self._events.append(ev.PartEnd(block.index, is_cut, self._frame))

    def _read_whole_block(self, block: _OpenBlock, path: Path) -> Part:
        """What a block of a whole answer would be: an image, a call or a result of the provider's own tools."""
        whole = dict(block.start)
        if block.member == _CALL:
            whole["input"] = decode_object_or_none("".join(block.pieces)) or {}
        elif block.member == "toolResult":
            whole["content"] = [item for wire in block.wires for item in (wire if isinstance(wire, list) else [wire])]
        else:
            for wire in block.wires:
                _merge_delta(whole, wire)
        wire = {block.member: whole}
        try:
            return read_part(wire, path, self._reading)
        except Malformed:
            return Opaque(block.member, Origin(NAME, path, wire))


def _merge_delta(whole: Object, delta: Json) -> None:
    """Adds a piece of an image. Each piece of its bytes is base64 of its own."""
    for key, value in delta.items() if isinstance(delta, dict) else ():
        before = whole.get(key)
        given = value.get("bytes") if isinstance(value, dict) else None
        earlier = before.get("bytes") if isinstance(before, dict) else None
        if isinstance(given, str) and isinstance(earlier, str):
            whole[key] = {"bytes": _join_base64(earlier, given)}
        elif value is not None:
            whole[key] = value


def _join_base64(first: str, second: str) -> str:
    try:
        return base64.b64encode(base64.b64decode(first) + base64.b64decode(second)).decode()
    except (binascii.Error, ValueError):
        return first + second


def _without_padding(node: Json) -> Json:
    """Bedrock fills up every payload with `p`, so that its length tells nothing. It is nobody else's."""
    if isinstance(node, dict) and "p" in node:
        return {key: value for key, value in node.items() if key != "p"}
    return node


HEARTBEAT_EVENT = "ping"
"""Not in the schema: boto3 and AWS's SDK for JavaScript skip events that they do not know (tried in November 2026)."""

_DELTA_READERS: Mapping[str, Callable[[StreamReader, int, Json, Path], None]] = {
    "text": StreamReader._grow_text,
    "reasoningContent": StreamReader._grow_thought,
    "toolUse": StreamReader._grow_call,
    "citation": StreamReader._grow_citation,
}
_EVENT_READERS: Mapping[str, Callable[[StreamReader, Object, Path], None]] = {
    "contentBlockDelta": StreamReader._read_block_delta,
    "contentBlockStart": StreamReader._read_block_start,
    "contentBlockStop": StreamReader._read_block_stop,
    "messageStart": StreamReader._read_start,
    "messageStop": StreamReader._read_stop,
    "metadata": StreamReader._read_metadata,
}
