"""The items of a streamed answer while they grow. `.done` has the last word over deltas.

Messages, reasoning and calls with text arguments grow by deltas. All other items are read whole when they are done:
their own progress events repeat what the finished item says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import filterfalse
from types import MappingProxyType

from msgspec.structs import replace

from toolwire.core.errors import TRUNCATED_STREAM_MESSAGE, read_retry_after
from toolwire.core.events import (
    ArgumentsDelta,
    ChoiceEnd,
    CitationDelta,
    Event,
    OpaqueEvent,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
    SealDelta,
    SourceFrame,
    TextDelta,
    UsageUpdate,
)
from toolwire.core.ir import Call, Failure, Origin, Part, ProviderCall, Reasoning, Refusal, Text, UnknownField
from toolwire.core.json_values import (
    Malformed,
    Object,
    Path,
    decode,
    expect_object,
    get_int,
    get_list,
    get_object,
    get_text,
)
from toolwire.core.provenance import ReadContext
from toolwire.core.sse import Frame as Raw
from toolwire.core.sse import FrameTooLong, SseSplitter
from toolwire.protocols.openai_responses.content import read_citation, read_item_origin, read_part
from toolwire.protocols.openai_responses.errors import read_error_body
from toolwire.protocols.openai_responses.items import SUMMARY_SEPARATOR, read_call, read_reasoning
from toolwire.protocols.openai_responses.names import (
    EVENT_KEYS,
    KEEPALIVE_KEYS,
    NAME,
    REDUNDANT_EVENTS,
    RESPONSE_KEYS,
    RESPONSE_MESSAGE_KEYS,
    SHAPE_BY_CALL_TYPE,
)
from toolwire.protocols.openai_responses.response import read_failure, read_finish, read_output_item, read_usage

STREAMED_ITEM_TYPES = frozenset({"message", "reasoning", "function_call", "custom_tool_call"})


class _OpenPart:
    """A part that has been started: what was told of it so far."""

    __slots__ = ("citation_count", "index", "is_open", "pieces")

    def __init__(self, index: int) -> None:
        self.index = index
        self.pieces: list[str] = []
        self.citation_count = 0
        self.is_open = True


class _StreamItem:
    """An item of the answer: its parts by content index (reasoning and calls have one, at 0)."""

    __slots__ = ("held_back", "is_done", "node", "parts", "section", "section_start", "type")

    def __init__(self, node: Object) -> None:
        self.node = node
        kind = node.get("type")
        self.type = kind if isinstance(kind, str) else ""
        self.parts: dict[int, _OpenPart] = {}
        self.held_back: list[str] = []
        """Arguments that came before the call's name."""
        self.section = 0
        """The part of a summary that is being told."""
        self.section_start = 0
        """How many pieces belong to earlier sections."""
        self.is_done = False


class StreamItems:
    """All items of one answer, told apart by `output_index`, else by id."""

    def __init__(self) -> None:
        self.reading = ReadContext(NAME)
        self.has_calls = False
        """Has the model made a call that the client must run?"""
        self._items: dict[int, _StreamItem] = {}
        self._index_by_id: dict[str, int] = {}
        self._next_part_index = 0

    def _add_item(self, index: int, node: Object) -> _StreamItem:
        item = _StreamItem(node)
        self._items[index] = item
        id = node.get("id")
        if isinstance(id, str) and id:
            self._index_by_id.setdefault(id, index)
        return item

    def _find_or_add_item(self, node: Object, path: Path, kind: str) -> _StreamItem:
        """The item that an event speaks of. One that was never announced counts as added, if the event says where."""
        index = node.get("output_index")
        if type(index) is not int:
            index = get_int(node, "output_index", path)
        if index is None:
            index = self._index_by_id.get(get_text(node, "item_id", path) or "")
            if index is None:
                raise Malformed(path, f"`{node.get('type')}` names no item by output_index or by a known item_id")
        item = self._items.get(index)
        if item is None:
            return self._add_item(index, {"type": kind, "id": node.get("item_id")})
        if item.type != kind:
            if item.type:
                raise Malformed(path, f"`{node.get('type')}` speaks of an item of type `{item.type}`")
            item.type = kind
        return item

    def read_item_added(self, node: Object, frame: SourceFrame, path: Path, events: list[Event]) -> None:
        given = expect_object(node.get("item"), (path, "item"))
        index = get_int(node, "output_index", path)
        if index is None:
            index = max(self._items, default=-1) + 1
        if index in self._items:
            if self._items[index].node.get("id") != given.get("id"):
                raise Malformed(path, f"two items are added at output_index {index}")
            return
        item = self._add_item(index, given)
        if item.type in SHAPE_BY_CALL_TYPE and item.type in STREAMED_ITEM_TYPES and given.get("name"):
            self._start_call(item, given, (path, "item"), frame, events)

    def read_item_done(self, node: Object, frame: SourceFrame, path: Path, events: list[Event]) -> None:
        given = expect_object(node.get("item"), (path, "item"))
        item = self._find_or_add_item(node, path, str(given.get("type") or "message"))
        if not item.is_done:
            self._finish_item(item, given, (path, "item"), frame, events)

    def finish_all_items(self, response: Object, path: Path, frame: SourceFrame, events: list[Event]) -> None:
        """The end: items that only the whole answer tells, and those that were never closed."""
        output = get_list(response, "output", path) or []
        aligned = list(self._items.values()) if len(output) == len(self._items) else []
        for number, value in enumerate(output):
            at = ((path, "output"), number)
            node = expect_object(value, at)
            item = self._find_item(node, aligned[number] if aligned else None)
            if item is None:
                item = self._add_item(max(self._items, default=-1) + 1, node)
            if not item.is_done:
                self._finish_item(item, node, at, frame, events)
        for item in self._items.values():
            if not item.is_done:
                self._finish_item(item, item.node, path, frame, events, response.get("status") == "incomplete")

    def _find_item(self, node: Object, aligned: _StreamItem | None) -> _StreamItem | None:
        index = self._index_by_id.get(str(node.get("id") or ""))
        if index is not None:
            return self._items[index]
        call = node.get("call_id")
        for item in self._items.values():
            if call and item.node.get("call_id") == call and item.type == node.get("type"):
                return item
        return aligned if aligned is not None and aligned.type == node.get("type") else None

    def _finish_item(
        self, item: _StreamItem, node: Object, path: Path, frame: SourceFrame, events: list[Event], cut: bool = False
    ) -> None:
        """Say what is still unsaid of an item, and close it."""
        item.is_done = True
        item.type = item.type or str(node.get("type") or "message")
        if item.type == "message":
            self._finish_message(item, node, path, frame, events)
        elif item.type == "reasoning":
            self._finish_reasoning(item, node, path, frame, events)
        elif item.type in STREAMED_ITEM_TYPES:
            self._finish_call(item, node, path, frame, events, cut)
        else:
            for part in read_output_item(node, path, self.reading):
                self._add_whole_part(part, frame, events)

    def _start_part(self, item: _StreamItem, at: int, part: Part, frame: SourceFrame, events: list[Event]) -> _OpenPart:
        started = item.parts[at] = _OpenPart(self._next_part_index)
        events.append(PartStart(self._next_part_index, part, 0, frame))
        self._next_part_index += 1
        return started

    def _end_part(self, part: _OpenPart, frame: SourceFrame, events: list[Event], incomplete: bool = False) -> None:
        if part.is_open:
            part.is_open = False
            events.append(PartEnd(part.index, incomplete, frame))

    def _add_whole_part(self, part: Part, frame: SourceFrame, events: list[Event]) -> None:
        """A part that came all at once, as a stream of its own."""
        index = self._next_part_index
        self._next_part_index += 1
        arguments = ""
        if isinstance(part, (Call, ProviderCall)):
            self.has_calls = self.has_calls or isinstance(part, Call)
            arguments, loose = part.arguments, replace(part.origin, intact=False) if part.origin else None
            part = replace(part, arguments="", origin=loose)
        incomplete = isinstance(part, Call) and part.incomplete
        if isinstance(part, Call):
            part = replace(part, incomplete=False)
        events.append(PartStart(index, part, 0, frame))
        if arguments:
            events.append(ArgumentsDelta(index, arguments, frame))
        events.append(PartEnd(index, incomplete, frame))

    # --- messages ---------------------------------------------------------------------------------------------------

    def _open_text_part(
        self, item: _StreamItem, at: int, kind: str, path: Path, frame: SourceFrame, events: list[Event]
    ) -> _OpenPart:
        part = item.parts.get(at)
        if part is not None:
            return part
        extra = {key: value for key, value in item.node.items() if key not in RESPONSE_MESSAGE_KEYS}
        origin = Origin(NAME, path, item.node, extra, intact=False)
        empty = Refusal("", origin) if kind == "refusal" else Text("", origin=origin)
        return self._start_part(item, at, empty, frame, events)

    def read_part_added(self, node: Object, frame: SourceFrame, path: Path, events: list[Event]) -> None:
        part = get_object(node, "part", path) or {}
        kind = part.get("type")
        if kind in ("output_text", "refusal"):
            item = self._find_or_add_item(node, path, "message")
            self._open_text_part(item, get_int(node, "content_index", path) or 0, str(kind), path, frame, events)

    def read_part_done(self, node: Object, frame: SourceFrame, path: Path, events: list[Event]) -> None:
        part = get_object(node, "part", path) or {}
        if part.get("type") in ("output_text", "refusal"):
            item = self._find_or_add_item(node, path, "message")
            at = get_int(node, "content_index", path) or 0
            self._finish_text(item, at, part, (path, "part"), frame, events)

    def read_text_delta(self, node: Object, frame: SourceFrame, path: Path, events: list[Event]) -> None:
        item = self._find_or_add_item(node, path, "message")
        at = get_int(node, "content_index", path) or 0
        part = item.parts.get(at)
        if part is None:
            kind = "refusal" if node["type"] == "response.refusal.delta" else "output_text"
            part = self._open_text_part(item, at, kind, path, frame, events)
        self._add_text(part, get_text(node, "delta", path) or "", frame, events)

    def _add_text(self, part: _OpenPart, text: str, frame: SourceFrame, events: list[Event]) -> None:
        if text and part.is_open:
            part.pieces.append(text)
            events.append(TextDelta(part.index, text, frame))

    def read_text_done(self, node: Object, frame: SourceFrame, path: Path, events: list[Event]) -> None:
        item = self._find_or_add_item(node, path, "message")
        refusal = node["type"] == "response.refusal.done"
        kind = "refusal" if refusal else "output_text"
        part = self._open_text_part(item, get_int(node, "content_index", path) or 0, kind, path, frame, events)
        self._add_text(
            part, _remaining_text(part.pieces, get_text(node, "refusal" if refusal else "text", path)), frame, events
        )

    def read_annotation(self, node: Object, frame: SourceFrame, path: Path, events: list[Event]) -> None:
        item = self._find_or_add_item(node, path, "message")
        part = item.parts.get(get_int(node, "content_index", path) or 0)
        annotation = get_object(node, "annotation", path)
        if part is None or not part.is_open or annotation is None:
            return
        part.citation_count += 1
        citation = read_citation(annotation, (path, "annotation"), self.reading)
        events.append(CitationDelta(part.index, citation, frame))

    def _finish_text(
        self, item: _StreamItem, at: int, node: Object, path: Path, frame: SourceFrame, events: list[Event]
    ) -> None:
        kind = str(node.get("type"))
        part = self._open_text_part(item, at, kind, path, frame, events)
        if not part.is_open:
            return
        text = get_text(node, "refusal" if kind == "refusal" else "text", path)
        self._add_text(part, _remaining_text(part.pieces, text), frame, events)
        if kind == "output_text":
            whole = read_part(node, path, self.reading)
            for citation in whole.citations[part.citation_count :] if isinstance(whole, Text) else ():
                part.citation_count += 1
                events.append(CitationDelta(part.index, citation, frame))
        self._end_part(part, frame, events)

    def _finish_message(
        self, item: _StreamItem, node: Object, path: Path, frame: SourceFrame, events: list[Event]
    ) -> None:
        read_item_origin(self.reading, node, path, RESPONSE_MESSAGE_KEYS, "id")
        for at, value in enumerate(get_list(node, "content", path) or []):
            where = ((path, "content"), at)
            content = expect_object(value, where)
            if content.get("type") in ("output_text", "refusal"):
                self._finish_text(item, at, content, where, frame, events)
            elif at not in item.parts:
                alone = {**node, "content": [content]}
                for strange in read_output_item(alone, path, self.reading):
                    self._add_whole_part(strange, frame, events)
        for part in item.parts.values():
            self._end_part(part, frame, events)

    # --- reasoning --------------------------------------------------------------------------------------------------

    def _open_reasoning_part(
        self, item: _StreamItem, raw: bool, frame: SourceFrame, path: Path, events: list[Event]
    ) -> _OpenPart:
        part = item.parts.get(0)
        if part is not None:
            return part
        origin = Origin(NAME, path, item.node, intact=False)
        id = item.node.get("id")
        reasoning = Reasoning(form="raw" if raw else "summary", id=id if isinstance(id, str) else "", origin=origin)
        return self._start_part(item, 0, reasoning, frame, events)

    def read_reasoning_text(self, node: Object, frame: SourceFrame, path: Path, events: list[Event]) -> None:
        """Deltas and `.done` of summaries and of raw thinking."""
        kind: str = node["type"]
        raw = "summary" not in kind
        item = self._find_or_add_item(node, path, "reasoning")
        section = get_int(node, "content_index" if raw else "summary_index", path) or 0
        done = kind.endswith(".done")
        text = get_text(node, "text" if done else "delta", path) or ""
        if not text:
            return
        part = self._open_reasoning_part(item, raw, frame, path, events)
        if section > item.section:
            item.section = section
            if part.pieces and not raw:
                self._add_text(part, SUMMARY_SEPARATOR, frame, events)
            item.section_start = len(part.pieces)
        if section == item.section:
            self._add_text(
                part, _remaining_text(part.pieces[item.section_start :], text) if done else text, frame, events
            )

    def _finish_reasoning(
        self, item: _StreamItem, node: Object, path: Path, frame: SourceFrame, events: list[Event]
    ) -> None:
        whole = read_reasoning(node, path, self.reading)
        part = item.parts.get(0)
        if part is None:
            loose = replace(whole.origin, intact=False) if whole.origin else None
            part = self._start_part(item, 0, replace(whole, text="", seal=None, origin=loose), frame, events)
        self._add_text(part, _remaining_text(part.pieces, whole.text), frame, events)
        if whole.seal is not None and part.is_open:
            events.append(SealDelta(part.index, whole.seal, frame))
        self._end_part(part, frame, events)

    # --- calls ------------------------------------------------------------------------------------------------------

    def _start_call(
        self, item: _StreamItem, node: Object, path: Path, frame: SourceFrame, events: list[Event]
    ) -> _OpenPart:
        call = read_call(node, path, SHAPE_BY_CALL_TYPE[item.type], self.reading)
        loose = replace(call.origin, intact=False) if call.origin else None
        self.has_calls = True
        part = self._start_part(item, 0, replace(call, arguments="", incomplete=False, origin=loose), frame, events)
        for text in item.held_back:
            self._add_arguments(part, text, frame, events)
        return part

    def _add_arguments(self, part: _OpenPart, text: str, frame: SourceFrame, events: list[Event]) -> None:
        if text and part.is_open:
            part.pieces.append(text)
            events.append(ArgumentsDelta(part.index, text, frame))

    def read_arguments_delta(self, node: Object, frame: SourceFrame, path: Path, events: list[Event]) -> None:
        item = self._find_or_add_item(node, path, ITEM_TYPE_BY_ARGUMENT_EVENT[node["type"]])
        text = get_text(node, "delta", path) or ""
        part = item.parts.get(0)
        if part is None:
            item.held_back.append(text)
        else:
            self._add_arguments(part, text, frame, events)

    def read_arguments_done(self, node: Object, frame: SourceFrame, path: Path, events: list[Event]) -> None:
        item = self._find_or_add_item(node, path, ITEM_TYPE_BY_ARGUMENT_EVENT[node["type"]])
        text = get_text(node, SHAPE_BY_CALL_TYPE[ITEM_TYPE_BY_ARGUMENT_EVENT[node["type"]]].payload_key, path)
        part = item.parts.get(0)
        if part is None:
            item.held_back.append(_remaining_text(item.held_back, text))
        else:
            self._add_arguments(part, _remaining_text(part.pieces, text), frame, events)

    def _finish_call(
        self, item: _StreamItem, node: Object, path: Path, frame: SourceFrame, events: list[Event], cut: bool
    ) -> None:
        part = item.parts.get(0) or self._start_call(item, node, path, frame, events)
        shape = SHAPE_BY_CALL_TYPE[item.type]
        call = read_call(node, path, shape, ReadContext(NAME))
        self._add_arguments(part, _remaining_text(part.pieces, call.arguments), frame, events)
        self._end_part(part, frame, events, call.incomplete or cut)


def _remaining_text(pieces: list[str], whole: str | None) -> str:
    """What a finished text adds to the pieces told so far; nothing when it contradicts them, for they are told."""
    if not whole:
        return ""
    if not pieces:
        return whole
    so_far = "".join(pieces)
    return whole[len(so_far) :] if whole.startswith(so_far) else ""


ITEM_TYPE_BY_ARGUMENT_EVENT: Mapping[str, str] = MappingProxyType(
    {
        f"{shape.event}.{end}": shape.item_type
        for shape in SHAPE_BY_CALL_TYPE.values()
        if shape.event
        for end in ("delta", "done")
    }
)


# --- The stream's reader: from frames to events. What grows in between stands in `stream_items` ---


_EVENT_PATH: Path = (None, "event")


class StreamReader:
    def __init__(self) -> None:
        self._splitter = SseSplitter()
        self._frame_count = 0
        self._started = False
        self._ended = False
        self._broken = False
        self._items = StreamItems()
        self._unknown_fields: dict[str, UnknownField] = {}

    def feed(self, data: bytes) -> list[Event]:
        if self._broken:
            return []
        try:
            frames = self._splitter.feed(data)
        except FrameTooLong as error:
            return self._fail_stream(str(error), "frame_too_long")
        return self._read_frames(frames)

    def read_repeat(self, data: bytes) -> str | None:
        """Repeats are not recognised: each event has another `sequence_number`."""
        return None

    def close(self) -> list[Event]:
        if self._broken:
            return []
        events = self._read_frames(self._splitter.close())
        if not self._ended and not self._broken:
            missing = "neither response.completed nor response.incomplete nor response.failed came"
            message = f"{TRUNCATED_STREAM_MESSAGE}: {missing}"
            failure = Failure("upstream", message, 502, "stream_truncated")
            events.append(ResponseFailed(failure, SourceFrame(NAME, None, None, silent=True)))
        self._broken = True
        return events

    def _read_frames(self, frames: list[Raw]) -> list[Event]:
        events: list[Event] = []
        for raw in frames:
            path = (_EVENT_PATH, self._frame_count)
            self._frame_count += 1
            try:
                node = expect_object(decode(raw.data, path), path)
                events += self._read_frame(node, SourceFrame(NAME, raw.event, node), path)
            except Malformed as error:
                events += self._fail_unreadable(raw, path, error)
                if self._broken:
                    break
        return events

    def _fail_unreadable(self, raw: Raw, path: Path, error: Malformed) -> list[Event]:
        if raw.data[:6] == b"[DONE]":
            return [OpaqueEvent("[DONE]", Origin(NAME, path, None), True, SourceFrame(NAME, raw.event, None))]
        return self._fail_stream(str(error), "invalid_stream")

    def _fail_stream(self, message: str, code: str) -> list[Event]:
        self._broken = True
        if self._ended:
            return []
        self._ended = True
        return [ResponseFailed(Failure("upstream", f"the provider's stream cannot be read: {message}", 502, code))]

    def _read_frame(self, node: Object, frame: SourceFrame, path: Path) -> list[Event]:
        kind = node.get("type")
        if not isinstance(kind, str):
            kind = "error" if node.get("error") else frame.event or ""
            if kind != "error":
                # Only the `event:` line names it; the frame itself is carried as it came.
                node = {**node, "type": kind}
        if not EVENT_KEYS.issuperset(node):
            for key in filterfalse(EVENT_KEYS.__contains__, node):
                self._unknown_fields.setdefault(f"{kind} {key}", UnknownField(path, key))
        events: list[Event] = []
        if not self._ended:
            grow = ITEM_EVENT_READERS.get(kind)
            if grow is not None and not node.get("error"):
                if not self._started:
                    events = self._start_response(frame, None, path)
                grow(self._items, node, frame, path, events)
            else:
                handler = RESPONSE_EVENT_READERS.get(kind, StreamReader._read_error if node.get("error") else None)
                events = [] if handler is None else handler(self, node, frame, path)
        if events:
            return events
        quiet = (
            kind in REDUNDANT_EVENTS
            or self._ended
            or (kind in ("keepalive", "ping") and KEEPALIVE_KEYS.issuperset(node))
        )
        return [OpaqueEvent(kind or "event", Origin(NAME, path, frame.json), quiet, frame)]

    # --- beginning and end ------------------------------------------------------------------------------------------

    def _start_response(self, frame: SourceFrame, response: Object | None, path: Path) -> list[Event]:
        if self._started:
            return []
        self._started = True
        if response is None:
            return [ResponseStart(frame=frame)]
        at = (path, "response")
        return [
            ResponseStart(
                get_text(response, "id", at) or "",
                get_text(response, "model", at) or "",
                get_int(response, "created_at", at),
                origin=Origin(NAME, at, response, intact=False),
                frame=frame,
            )
        ]

    def _read_lifecycle_event(self, node: Object, frame: SourceFrame, path: Path) -> list[Event]:
        return self._start_response(frame, get_object(node, "response", path), path)

    def _read_terminal_event(self, node: Object, frame: SourceFrame, path: Path) -> list[Event]:
        response = get_object(node, "response", path) or {}
        events = self._start_response(frame, response, path)
        at = (path, "response")
        if response.get("status") is None:
            response = {**response, "status": node["type"].rpartition(".")[2]}
        failure = read_failure(response, at)
        if failure is None:
            self._items.finish_all_items(response, at, frame, events)
        usage = read_usage(response, at, self._items.reading)
        if usage is not None:
            events.append(UsageUpdate(usage, frame))
        if failure is None:
            finish = read_finish(response, self._items.has_calls, at)
            self._items.reading.read_origin(response, at, RESPONSE_KEYS)
            events.append(ChoiceEnd(finish, 0, frame))
            events.append(ResponseEnd(self._collect_unknown_fields(), frame))
        else:
            events.append(ResponseFailed(failure, frame))
        self._ended = True
        return events

    def _collect_unknown_fields(self) -> tuple[UnknownField, ...]:
        for stray in self._items.reading.unknown_fields:
            self._unknown_fields.setdefault(f"item {stray.key}", stray)
        return tuple(self._unknown_fields.values())

    def _read_error(self, node: Object, frame: SourceFrame, path: Path) -> list[Event]:
        self._ended = True
        error = node.get("error")
        headers = error.get("headers") if isinstance(error, dict) else None
        wait = None
        if isinstance(headers, dict):
            wait = read_retry_after({key: value for key, value in headers.items() if isinstance(value, str)})
        status = node.get("status")
        failure = read_error_body(node, status if isinstance(status, int) else 0, path, wait)
        return [ResponseFailed(failure, frame)]


ITEM_EVENT_READERS: Mapping[str, Callable[[StreamItems, Object, SourceFrame, Path, list[Event]], None]] = (
    MappingProxyType(
        {
            "response.output_item.added": StreamItems.read_item_added,
            "response.output_item.done": StreamItems.read_item_done,
            "response.content_part.added": StreamItems.read_part_added,
            "response.content_part.done": StreamItems.read_part_done,
            "response.output_text.delta": StreamItems.read_text_delta,
            "response.output_text.done": StreamItems.read_text_done,
            "response.output_text.annotation.added": StreamItems.read_annotation,
            "response.refusal.delta": StreamItems.read_text_delta,
            "response.refusal.done": StreamItems.read_text_done,
            "response.function_call_arguments.delta": StreamItems.read_arguments_delta,
            "response.function_call_arguments.done": StreamItems.read_arguments_done,
            "response.custom_tool_call_input.delta": StreamItems.read_arguments_delta,
            "response.custom_tool_call_input.done": StreamItems.read_arguments_done,
            "response.reasoning_summary_text.delta": StreamItems.read_reasoning_text,
            "response.reasoning_summary_text.done": StreamItems.read_reasoning_text,
            "response.reasoning_text.delta": StreamItems.read_reasoning_text,
            "response.reasoning_text.done": StreamItems.read_reasoning_text,
            "response.reasoning.delta": StreamItems.read_reasoning_text,
            "response.reasoning.done": StreamItems.read_reasoning_text,
        }
    )
)

RESPONSE_EVENT_READERS: Mapping[str, Callable[[StreamReader, Object, SourceFrame, Path], list[Event]]] = (
    MappingProxyType(
        {
            "response.created": StreamReader._read_lifecycle_event,
            "response.queued": StreamReader._read_lifecycle_event,
            "response.in_progress": StreamReader._read_lifecycle_event,
            "response.completed": StreamReader._read_terminal_event,
            "response.incomplete": StreamReader._read_terminal_event,
            "response.failed": StreamReader._read_terminal_event,
            "response.cancelled": StreamReader._read_terminal_event,
            "error": StreamReader._read_error,
        }
    )
)
