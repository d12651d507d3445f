"""Reads an Anthropic stream: content blocks that start, grow by deltas and stop.

`_EVENT_READERS` at the end maps each event to its method.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from msgspec import Raw
from msgspec.structs import replace

from toolwire.core import events as ev
from toolwire.core.errors import NOTHING_SAID, truncated_stream_failure
from toolwire.core.frame_reader import FrameReader, ignore_text
from toolwire.core.ir import (
    EMPTY_MAPPING,
    Call,
    Finish,
    Opaque,
    Origin,
    Part,
    ProviderCall,
    Reasoning,
    Seal,
    Text,
    UnknownField,
    source_path,
)
from toolwire.core.json_values import (
    Json,
    Malformed,
    Object,
    Path,
    decode,
    decode_object_or_none,
    encode_text,
    expect_object,
    get_int,
    get_object,
    is_object_text,
    json_pointer,
    require_text,
)
from toolwire.core.provenance import ReadContext, not_verbatim, odd_shape
from toolwire.core.sse import MAX_FAILED_TEMPLATES, Frame, make_frame_template
from toolwire.protocols.anthropic.content import ResponseReadContext, read_citation, read_part
from toolwire.protocols.anthropic.errors import read_error
from toolwire.protocols.anthropic.names import MESSAGE_KEYS, NAME, key_set
from toolwire.protocols.anthropic.response import read_finish, read_usage

DeltaKind = Literal["text", "thought", "call", "opaque", "no"]
"""Which deltas a block accepts."""

_DELTA_KINDS: dict[type, DeltaKind] = {
    Text: "text",
    Reasoning: "thought",
    Call: "call",
    ProviderCall: "call",
    Opaque: "opaque",
}


class _OpenBlock:
    __slots__ = ("delta_kind", "index", "initial_arguments", "part", "pieces", "wire")

    def __init__(self, index: int, part: Part) -> None:
        self.index = index
        self.part = part
        grows = _DELTA_KINDS.get(type(part), "no")
        self.delta_kind: DeltaKind = "no" if grows == "thought" and part.hidden else grows  # type: ignore[union-attr]
        self.initial_arguments = ""
        """The arguments in its start; deltas replace them."""
        self.pieces: list[str] = []
        self.wire: Object = {}

    def add_opaque_delta(self, delta: Object) -> None:
        """An unknown block collects its deltas, so that an Anthropic client gets it whole."""
        for key, value in delta.items():
            if key == "partial_json" and isinstance(value, str):
                self.pieces.append(value)
            elif key != "type":
                held = self.wire.get(key)
                self.wire[key] = held + value if isinstance(held, str) and isinstance(value, str) else value


_EVENT_KEYS = key_set("type index delta content_block message usage")
_MESSAGE_DELTA_KEYS = key_set("stop_reason stop_sequence stop_details")

_SILENT_FRAME = ev.SourceFrame(NAME, None, None, silent=True)


class StreamReader(FrameReader):
    silent_frame = _SILENT_FRAME

    def __init__(self) -> None:
        super().__init__()
        self._reading = ResponseReadContext(NAME)
        self._event_line: str | None = None
        self._blocks: dict[int, _OpenBlock] = {}
        self._block_count = 0
        self._id: Json = None
        """The id of the message."""
        self._has_calls = False
        self._finish: Finish | None = None
        self._usage: Object = {}
        self._usage_sent = False
        self._unknown_fields: dict[tuple[Json, str], UnknownField] = {}

    # --- frames ---

    def _end_input(self) -> None:
        if self._finish is not None:
            self._end_response()
        else:
            self._fail(truncated_stream_failure(), _SILENT_FRAME)

    def _read_frame(self, raw: Frame, path: Path) -> None:
        try:
            node = expect_object(decode(raw.data, path, replaced=self.replaced_halves), path)
        except Malformed as error:
            self._read_non_object(raw, path, error)
            return
        kind = node.get("type")
        if kind is None or kind == "":
            kind = raw.event or ("error" if "error" in node else "")
        if type(kind) is not str:
            if not self._ended:
                self._fail_stream(f"{json_pointer((path, 'type'))} is not a string")
            return
        # SDKs know an event by its event line: a client gets the one that belongs to the type.
        self._frame, self._event_line = ev.SourceFrame(NAME, kind, node), raw.event
        read = None if self._ended else _EVENT_READERS.get(kind)
        before = len(self._events)
        if read is not None:
            try:
                read(self, node, path)
            except Malformed as error:
                del self._events[before:]  # no client can use a part of this frame
                self._fail_stream(str(error))
            self._collect_unknown_fields()
        if len(self._events) == before:
            is_ignorable = read is not None or kind == "ping"
            self._events.append(ev.OpaqueEvent(kind, Origin(NAME, path, node), is_ignorable, self._frame))
        elif raw.event == kind and not self.is_frame_changed:
            self._make_template(raw, node, self._events[-1])

    def _read_non_object(self, raw: Frame, path: Path, error: Malformed) -> None:
        if raw.data.strip() == b"[DONE]":
            # Not part of this protocol, but some proxies send it, and Anthropic clients ignore it.
            frame = ev.SourceFrame(NAME, raw.event, None)
            self._events.append(ev.OpaqueEvent("[DONE]", Origin(NAME, path, "[DONE]"), True, frame))
        elif not self._ended:
            self._fail_stream(str(error))

    def _collect_unknown_fields(self) -> None:
        if self._reading.unknown_fields:
            for field in self._reading.unknown_fields:
                self._unknown_fields.setdefault((field.path[1] if field.path else None, field.key), field)
            self._reading.unknown_fields.clear()

    def _make_template(self, raw: Frame, node: Object, event: ev.Event) -> None:
        """Recognise frames that repeat this delta with another text, if the frame says nothing else."""
        if not isinstance(event, (ev.TextDelta, ev.ArgumentsDelta)) or self._failed_templates >= MAX_FAILED_TEMPLATES:
            return
        delta: Json = node.get("delta")
        if len(node) == 3 and "type" in node and type(node.get("index")) is int and len(delta) == 2:
            _, key = _DELTA_TYPES[delta["type"]]
            self._template = make_frame_template(raw, event.text, lambda found: found["delta"][key])
            self._failed_templates += 1
            pieces = self._blocks[node["index"]].pieces
            self._add_repeat = pieces.append if key == "partial_json" else ignore_text

    # --- the message ---

    def _read_message_start(self, node: Object, path: Path) -> None:
        message = get_object(node, "message", path) or {}
        if self._started:
            self._read_second_start(message, node, path)
            return
        here = (path, "message")
        usage = self._reading.get_counted(message, "usage", here)
        self._usage = dict(usage or {})
        origin = self._reading.read_origin(message, here, MESSAGE_KEYS)
        id, model = message.get("id"), message.get("model")
        self._started, self._id = True, id
        self._events.append(
            ev.ResponseStart(
                id if isinstance(id, str) else "",
                model if isinstance(model, str) else "",
                None,
                read_usage(usage, (here, "usage"), self._reading) if usage else None,
                Origin(NAME, here, message, origin.extra, False),
                self._frame,
            )
        )

    def _read_second_start(self, message: Object, node: Object, path: Path) -> None:
        """Bifrost and LiteLLM send the start of a message twice. SDKs take the second one for an error."""
        if not message.get("id") or message["id"] != self._id:
            self._fail_stream("a second message begins inside the first")
            return
        usage = self._reading.get_counted(message, "usage", (path, "message")) or {}
        self._usage |= {key: value for key, value in usage.items() if value is not None}
        self._reading.unknown_fields.append(
            odd_shape(path, "message", "a second start of the same message was left out")
        )
        frame = replace(self._frame, silent=True)
        self._events.append(ev.OpaqueEvent("message_start", Origin(NAME, path, node), True, frame))

    def _start_response(self) -> None:
        """Start an answer without a message_start."""
        if not self._started:
            self._started = True
            self._events.append(ev.ResponseStart(frame=self._frame))

    def _read_message_delta(self, node: Object, path: Path) -> None:
        self._start_response()
        delta = get_object(node, "delta", path) or {}
        if not _EVENT_KEYS.issuperset(node) or not _MESSAGE_DELTA_KEYS.issuperset(delta):
            self._reading.read_origin(node, path, _EVENT_KEYS)
            self._reading.read_origin(delta, (path, "delta"), _MESSAGE_DELTA_KEYS)
        # A later message_delta may have only usage: the stop reason stays.
        self._finish = read_finish(delta, (path, "delta"), self._reading) or self._finish
        usage = self._reading.get_counted(node, "usage", path)
        if usage:
            self._usage |= {key: value for key, value in usage.items() if value is not None}
            self._events.append(ev.UsageUpdate(read_usage(self._usage, (path, "usage"), self._reading), self._frame))
            self._usage_sent = True

    def _read_message_stop(self, node: Object, path: Path) -> None:
        if not self._block_count and self._finish is None:
            self._fail(truncated_stream_failure(NOTHING_SAID), _SILENT_FRAME)
            return
        if self._finish is None or self._finish.kind == "calls":
            for block in self._blocks.values():
                if block.delta_kind == "call" and decode_object_or_none("".join(block.pieces)) is None:
                    self._fail(truncated_stream_failure("a call has not ended"), _SILENT_FRAME)
                    return
        self._start_response()
        self._end_response()

    def _end_response(self) -> None:
        for block in self._blocks.values():
            self._end_block(block)
        self._blocks.clear()
        self._finish = self._finish or Finish("calls" if self._has_calls else "stop")
        self._events.append(ev.ChoiceEnd(self._finish, frame=self._frame))
        if self._usage and not self._usage_sent:
            self._events.append(ev.UsageUpdate(read_usage(self._usage, None, ReadContext(NAME)), self._frame))
        self._ended = True
        self._collect_unknown_fields()
        self._events.append(ev.ResponseEnd(tuple(self._unknown_fields.values()), self._frame))

    def _read_error(self, node: Object, path: Path) -> None:
        failure, frame = read_error(node, 0, EMPTY_MAPPING), self._frame
        # SDKs take an error for one only in this shape; in another it is of no use to a client.
        if not (self._event_line == node.get("type") == "error" and isinstance(node.get("error"), dict)):
            failure, frame = replace(failure, origin=None), _SILENT_FRAME
        self._fail(failure, frame)

    # --- blocks ---

    def _read_block_start(self, node: Object, path: Path) -> None:
        self._start_response()
        number = get_int(node, "index", path) if "index" in node else self._block_count
        if number is None or number in self._blocks:
            self._fail_stream(f"block {_number_text(number)} starts twice or has no number")
            return
        at = (path, "content_block")
        wire: Json = node.get("content_block")
        part = read_part(expect_object(wire, at), at, self._reading)
        block = self._blocks[number] = _OpenBlock(self._block_count, part)
        self._block_count += 1
        if number != block.index or "index" not in node:
            self._renumber(node, block, path)
        self._has_calls = self._has_calls or type(part) is Call
        if block.delta_kind == "opaque":
            block.wire = dict(wire)
            return
        if isinstance(part, (Call, ProviderCall)):
            # The arguments come later.
            block.initial_arguments = part.arguments if wire.get("input") else ""
            part = replace(part, arguments="")
        if block.delta_kind != "no":
            part = replace(part, origin=not_verbatim(part.origin))  # its JSON is not the whole block
        self._events.append(ev.PartStart(block.index, part, 0, self._frame))

    def _find_block(self, node: Object, path: Path) -> _OpenBlock | None:
        number = get_int(node, "index", path)
        if number is None and len(self._blocks) == 1:
            number = next(iter(self._blocks))
        block = self._blocks.get(number) if number is not None else None
        if block is None:
            self._fail_stream(f"block {_number_text(number)} is not open")
        elif number != block.index or "index" not in node:
            self._renumber(node, block, path)
        return block

    def _renumber(self, node: Object, block: _OpenBlock, path: Path) -> None:
        """Clients find a block by its position: the frame gets a number that is right."""
        what = "the blocks were numbered in another order than they started, or not at all"
        self._unknown_fields.setdefault((None, "index"), odd_shape(path, "index", what))
        node["index"] = block.index
        self.is_frame_changed = True

    def _read_block_delta(self, node: Object, path: Path) -> None:
        block = self._find_block(node, path)
        if block is None:
            return
        at = (path, "delta")
        delta = expect_object(node.get("delta"), at)
        if block.delta_kind == "opaque":
            block.add_opaque_delta(delta)
            return
        kind = require_text(delta, "type", at)
        row = _DELTA_TYPES.get(kind)
        if row is None:
            self._events.append(ev.OpaqueEvent(kind, Origin(NAME, path, node), False, self._frame))
            return
        grows, key = row
        if len(delta) > 2:
            self._reading.read_origin(delta, at, frozenset({"type", key}))
        if grows != block.delta_kind:
            self._fail_stream(f"a {kind} does not belong to block {_number_text(node.get('index'))}")
        elif key == "citation":
            here = (at, key)
            citation = read_citation(expect_object(delta.get(key), here), here, self._reading)
            self._events.append(ev.CitationDelta(block.index, citation, self._frame))
        elif text := given if type(given := delta.get(key)) is str else self._read_odd_text(delta, key, at):
            if key == "signature":
                self._events.append(ev.SealDelta(block.index, Seal(NAME, text), self._frame))
            elif key == "partial_json":
                block.pieces.append(text)
                self._events.append(ev.ArgumentsDelta(block.index, text, self._frame))
            else:
                self._events.append(ev.TextDelta(block.index, text, self._frame))

    def _read_odd_text(self, delta: Object, key: str, path: Path) -> str:
        if key == "partial_json" and isinstance(delta.get(key), dict):
            delta[key] = encode_text(delta[key])
            odd = odd_shape(path, key, "arguments that were an object were read as JSON text")
            self._reading.unknown_fields.append(odd)
            self.is_frame_changed = True  # from here on, a client of this protocol gets frames as they are read
        return require_text(delta, key, path)

    def _read_block_stop(self, node: Object, path: Path) -> None:
        block = self._find_block(node, path)
        if block is None:
            return
        self._end_block(block)
        self._blocks = {number: other for number, other in self._blocks.items() if other is not block}

    def _end_block(self, block: _OpenBlock) -> None:
        cut = False
        if block.delta_kind == "opaque":
            if block.pieces:
                block.wire["input"] = decode_object_or_none("".join(block.pieces))
            origin = Origin(NAME, source_path(block.part), block.wire)
            self._events.append(ev.PartStart(block.index, Opaque(block.wire["type"], origin), 0, self._frame))
        elif block.delta_kind == "call":
            text = "".join(block.pieces)
            if not text or text.isspace():
                self._events.append(ev.ArgumentsDelta(block.index, block.initial_arguments or "{}", self._frame))
            else:
                cut = not is_object_text(text)
        self._events.append(ev.PartEnd(block.index, cut, self._frame))


def _number_text(number: Json) -> str:
    """The index of a block for a message; large numbers are kept as raw JSON."""
    return bytes(number).decode() if isinstance(number, Raw) else str(number)


_DELTA_TYPES: Mapping[str, tuple[DeltaKind, str]] = {
    "text_delta": ("text", "text"),
    "input_json_delta": ("call", "partial_json"),
    "thinking_delta": ("thought", "thinking"),
    "signature_delta": ("thought", "signature"),
    "citations_delta": ("text", "citation"),
}
"""Each type of delta: the kind of block it belongs to, and the key that holds its text."""


_EVENT_READERS: Mapping[str, Callable[[StreamReader, Object, Path], None]] = {
    "content_block_delta": StreamReader._read_block_delta,
    "content_block_start": StreamReader._read_block_start,
    "content_block_stop": StreamReader._read_block_stop,
    "message_start": StreamReader._read_message_start,
    "message_delta": StreamReader._read_message_delta,
    "message_stop": StreamReader._read_message_stop,
    "error": StreamReader._read_error,
}
