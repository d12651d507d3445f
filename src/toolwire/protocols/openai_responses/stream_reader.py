"""Reads a Responses stream. `_EVENT_READERS` at the end maps each event to its method.

Messages, reasoning and calls with text arguments grow by deltas; their `.done` events add what the deltas left out. All
other items are read whole when they are done: their progress events repeat what the finished item says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import filterfalse
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from toolwire.core import events as ev
from toolwire.core.errors import NOTHING_SAID, read_retry_after, truncated_stream_failure
from toolwire.core.frame_reader import FrameReader
from toolwire.core.ir import Call, Failure, Origin, Part, ProviderCall, Reasoning, Refusal, Text, UnknownField
from toolwire.core.json_values import (
    Malformed,
    Object,
    Path,
    decode,
    decode_object_or_none,
    expect_object,
    get_int,
    get_list,
    get_object,
    get_text,
    get_timestamp,
)
from toolwire.core.logprobs import identify_field
from toolwire.core.provenance import ReadContext, not_verbatim, odd_shape
from toolwire.core.sse import Frame
from toolwire.protocols.openai_responses import names
from toolwire.protocols.openai_responses.content import (
    OUTPUT_PART_TYPES,
    list_answer_losses,
    read_citation,
    read_item_origin,
    read_part,
    split_logprobs,
)
from toolwire.protocols.openai_responses.errors import read_error_body
from toolwire.protocols.openai_responses.items import SUMMARY_SEPARATOR, read_call, read_reasoning
from toolwire.protocols.openai_responses.names import NAME
from toolwire.protocols.openai_responses.response import (
    is_ended,
    note_service_tier,
    read_failure,
    read_finish,
    read_output_item,
    read_usage,
)

EVENT_KEYS = frozenset(
    """type sequence_number response output_index item item_id content_index summary_index annotation_index
    command_index partial_image_index part delta text refusal arguments name input annotation command code diff
    output partial_image_b64 size quality background output_format message param error status stream_id logprobs
    obfuscation""".split()
)
"""The keys of all events; others are unknown."""
KEEPALIVE_KEYS = frozenset({"type", "sequence_number"})
"""The keys of an empty keepalive event."""
_SILENT_FRAME = ev.SourceFrame(NAME, None, None, silent=True)
_STREAMED_ITEM_TYPES = frozenset({"message", "reasoning", "function_call", "custom_tool_call"})


class _OpenPart(Struct, eq=False):
    """A part that was started, and its text so far."""

    index: int
    pieces: list[str] = []
    citation_count: int = 0
    logprobs_count: int = 0
    is_open: bool = True


class _StreamItem(Struct, eq=False):
    """An item of the answer: its parts by content index (reasoning and calls have one, at 0)."""

    node: Object
    type: str
    parts: dict[int, _OpenPart] = {}
    held_back: list[str] = []
    """Arguments that came before the call's name."""
    section: int = 0
    """The part of the summary that is open."""
    section_start: int = 0
    """How many pieces belong to earlier sections."""
    is_done: bool = False
    content_positions: dict[int, int] = {}
    """The positions of its content parts, by their `content_index`."""


class StreamReader(FrameReader):
    """It recognises no repeats: each event has another `sequence_number`."""

    silent_frame = _SILENT_FRAME

    def __init__(self) -> None:
        super().__init__()
        self._reading = ReadContext(NAME)
        self._has_calls = False
        """Has the model made a call that the client must run?"""
        self._items: dict[int, _StreamItem] = {}
        """All items of the answer, by their position, which is their `output_index` if each has its own."""
        self._shared_places: dict[int, list[int]] = {}
        """The positions of items that share an `output_index`, by that."""
        self._index_by_id: dict[str, int] = {}
        self._next_part_index = 0
        self._unknown_fields: dict[str, UnknownField] = {}

    def _end_input(self) -> None:
        missing = "neither response.completed nor response.incomplete nor response.failed came"
        self._fail(truncated_stream_failure(missing), _SILENT_FRAME)

    def _read_frame(self, raw: Frame, path: Path) -> None:
        before = len(self._events)
        try:
            node = expect_object(decode(raw.data, path, replaced=self.replaced_halves), path)
            self._frame, self.is_frame_changed = ev.SourceFrame(NAME, raw.event, node), False
            self._read_node(node, path)
        except Malformed as error:
            # The failure replaces the events of the part of the frame that could be read.
            del self._events[before:]
            if raw.data[:6] != b"[DONE]":
                self._fail_stream(str(error))
                return
            frame = ev.SourceFrame(NAME, raw.event, None)
            self._events.append(ev.OpaqueEvent("[DONE]", Origin(NAME, path, None), True, frame))

    def _read_node(self, node: Object, path: Path) -> None:
        kind = node.get("type")
        if not isinstance(kind, str):
            kind = "error" if node.get("error") else self._frame.event or ""
            if kind != "error":
                # Only the `event:` line names it; a Responses client gets the frame as it came.
                node = {**node, "type": kind}
        if not EVENT_KEYS.issuperset(node):
            for key in filterfalse(EVENT_KEYS.__contains__, node):
                self._unknown_fields.setdefault(f"{kind} {key}", UnknownField(path, key))
        before = len(self._events)
        if not self._ended:
            self._read_event(kind, node, path)
        if len(self._events) == before:
            is_keepalive = kind in ("keepalive", "ping") and KEEPALIVE_KEYS.issuperset(node)
            is_ignorable = kind in names.REDUNDANT_EVENTS or self._ended or is_keepalive
            origin = Origin(NAME, path, self._frame.json)
            self._events.append(ev.OpaqueEvent(kind or "event", origin, is_ignorable, self._frame))

    def _read_event(self, kind: str, node: Object, path: Path) -> None:
        read = _EVENT_READERS.get(kind)
        if kind not in _RESPONSE_EVENTS:
            if node.get("error"):
                read = StreamReader._read_error
            elif read is not None:
                self._start_response(None, path)
        if read is not None:
            read(self, node, path)

    # --- start and end of the response ---

    def _start_response(self, response: Object | None, path: Path) -> None:
        if self._started:
            return
        self._started = True
        if response is None:
            self._events.append(ev.ResponseStart(frame=self._frame))
            return
        at = (path, "response")
        id, model = get_text(response, "id", at) or "", get_text(response, "model", at) or ""
        origin = Origin(NAME, at, response, intact=False)
        created = get_timestamp(response, "created_at", at)
        self._events.append(ev.ResponseStart(id, model, created, origin=origin, frame=self._frame))

    def _read_lifecycle_event(self, node: Object, path: Path) -> None:
        self._start_response(get_object(node, "response", path), path)

    def _read_terminal_event(self, node: Object, path: Path) -> None:
        response = given = get_object(node, "response", path) or {}
        self._start_response(response, path)
        at = (path, "response")
        if response.get("status") is None:
            response = {**response, "status": node["type"].rpartition(".")[2]}
        failure = read_failure(response, at)
        if failure is None and not self._items and not (given and is_ended(response)):
            raise Malformed(path, f"this is not an answer: {NOTHING_SAID}")
        if failure is None:
            self._finish_all_items(response, at)
        usage = read_usage(response, at, self._reading)
        if usage is not None:
            self._events.append(ev.UsageUpdate(usage, self._frame))
        if failure is None:
            finish = read_finish(response, self._has_calls, at)
            self._reading.read_origin(response, at, names.RESPONSE_KEYS)
            note_service_tier(response, at, self._reading)
            for field in list_answer_losses(self._reading):
                self._unknown_fields.setdefault(f"item {field.key}", field)
            self._events.append(ev.ChoiceEnd(finish, 0, self._frame))
            self._events.append(ev.ResponseEnd(tuple(self._unknown_fields.values()), self._frame))
        else:
            self._events.append(ev.ResponseFailed(failure, self._frame))
        self._ended = True

    def _read_error(self, node: Object, path: Path) -> None:
        self._ended = True
        error = node.get("error")
        headers = error.get("headers") if isinstance(error, dict) else None
        wait = None
        if isinstance(headers, dict):
            wait = read_retry_after({key: value for key, value in headers.items() if isinstance(value, str)})
        status = node.get("status")
        failure = read_error_body(node, status if isinstance(status, int) else 0, path, wait)
        frame = self._frame
        if node.get("type") != "error":  # clients take an error for one by its type; without it it is of no use to them
            failure, frame = replace(failure, origin=None), _SILENT_FRAME
        self._events.append(ev.ResponseFailed(failure, frame))

    # --- items ---

    def _add_item(self, index: int, node: Object) -> _StreamItem:
        kind, id = node.get("type"), node.get("id")
        item = self._items[index] = _StreamItem(node, kind if isinstance(kind, str) else "")
        if isinstance(id, str) and id:
            self._index_by_id.setdefault(id, index)
        return item

    def _find_or_add_item(self, node: Object, path: Path, kind: str, id: str = "") -> _StreamItem:
        """The item of an event. An item without `output_item.added` is added, if the event has its index."""
        index = get_int(node, "output_index", path)
        if index is None:
            index = self._index_by_id.get(id or get_text(node, "item_id", path) or "")
            if index is None:
                raise Malformed(path, f"`{node.get('type')}` names no item by output_index or by a known item_id")
        elif index in self._shared_places:
            index = self._find_shared_item(index, node, path, kind, id or get_text(node, "item_id", path) or "")
        item = self._items.get(index)
        if item is None:
            known = self._index_by_id.get(id or get_text(node, "item_id", path) or "")
            if known is None or self._items[known].type not in (kind, ""):
                return self._add_item(index, {"type": kind, "id": node.get("item_id")})
            what = f"an event of the item at output_index {known} has another one"
            self._unknown_fields.setdefault("odd output_index", odd_shape(path, "output_index", what))
            self._renumber(node, "output_index", known)
            item = self._items[known]
        if item.type != kind:
            if item.type:
                raise Malformed(path, f"`{node.get('type')}` speaks of an item of type `{item.type}`")
            item.type = kind
        return item

    def _find_shared_item(self, index: int, node: Object, path: Path, kind: str, id: str) -> int:
        """The position of an item that shares its `output_index`: the one with this id, or the only one of this type
        that is open."""
        places = self._shared_places[index]
        found = [place for place in places if self._index_by_id.get(id) == place]
        found = found or [p for p in places if not self._items[p].is_done and self._items[p].type in (kind, "")]
        if len(found) != 1:
            raise Malformed(path, f"`{node.get('type')}` may mean several items, which share output_index {index}")
        self._renumber(node, "output_index", found[0])
        return found[0]

    def _renumber(self, node: Object, key: str, position: int) -> None:
        """Clients add up items and their parts by these numbers: the frame gets one that is right."""
        if node.get(key) != position:
            node[key] = self._frame.json[key] = position
            self.is_frame_changed = True

    def _content_position(self, item: _StreamItem, node: Object, path: Path) -> int:
        """The position of the content part of an event. Some servers do not begin at 0, or leave numbers out."""
        given, known = get_int(node, "content_index", path) or 0, item.content_positions
        position = known.get(given)
        if position is None:
            position = known[given] = len(known)
            if given != position:
                what = f"the parts of an item begin at {position}, not at {given}"
                self._unknown_fields.setdefault("odd content_index", odd_shape(path, "content_index", what))
        if given != position:
            self._renumber(node, "content_index", position)
        return position

    def _read_item_added(self, node: Object, path: Path) -> None:
        given = expect_object(node.get("item"), (path, "item"))
        index = get_int(node, "output_index", path)
        if index is None:
            index = max(self._items, default=-1) + 1
        places = self._shared_places.get(index) or ([index] if index in self._items else [])
        if any(_is_same_item(self._items[place], given) for place in places):
            return
        position = index
        if index in self._items:
            position = max(self._items) + 1
            self._shared_places[index] = [*places, position]
            what = f"the second item at output_index {index} was read as one of its own"
            self._unknown_fields.setdefault("odd output_index", odd_shape(path, "output_index", what))
            self._renumber(node, "output_index", position)
        item = self._add_item(position, given)
        if item.type in names.SHAPE_BY_CALL_TYPE and item.type in _STREAMED_ITEM_TYPES and given.get("name"):
            self._start_call(item, given, (path, "item"))

    def _read_item_done(self, node: Object, path: Path) -> None:
        given = expect_object(node.get("item"), (path, "item"))
        kind, id = str(given.get("type") or "message"), given.get("id")
        item = self._find_or_add_item(node, path, kind, id if isinstance(id, str) else "")
        if not item.is_done:
            self._finish_item(item, given, (path, "item"))

    def _finish_all_items(self, response: Object, path: Path) -> None:
        """At the end: add items that only the whole response holds, and finish those without `output_item.done`."""
        output = get_list(response, "output", path) or []
        aligned = list(self._items.values()) if len(output) == len(self._items) else []
        for number, value in enumerate(output):
            at = ((path, "output"), number)
            node = expect_object(value, at)
            item = self._find_item(node, aligned[number] if aligned else None)
            item = item or self._add_item(max(self._items, default=-1) + 1, node)
            if not item.is_done:
                self._finish_item(item, node, at)
        for item in self._items.values():
            if not item.is_done:
                self._finish_item(item, item.node, path, response.get("status") == "incomplete")

    def _find_item(self, node: Object, aligned: _StreamItem | None) -> _StreamItem | None:
        index = self._index_by_id.get(str(node.get("id") or ""))
        if index is not None:
            return self._items[index]
        call = node.get("call_id")
        for item in self._items.values():
            if call and item.node.get("call_id") == call and item.type == node.get("type"):
                return item
        return aligned if aligned is not None and aligned.type == node.get("type") else None

    def _finish_item(self, item: _StreamItem, node: Object, path: Path, cut: bool = False) -> None:
        """Add what the deltas left out, and end the parts of the item."""
        item.is_done = True
        item.type = item.type or str(node.get("type") or "message")
        if item.type == "message":
            self._finish_message(item, node, path)
        elif item.type == "reasoning":
            self._finish_reasoning(item, node, path)
        elif item.type in _STREAMED_ITEM_TYPES:
            if 0 not in item.parts and not node.get("name"):
                self._refuse_call(f"never names the call {node.get('id')!r}", path)
                return
            part = item.parts.get(0) or self._start_call(item, node, path)
            call = read_call(node, path, names.SHAPE_BY_CALL_TYPE[item.type], ReadContext(NAME))
            self._add_delta(part, _remaining_text(part.pieces, call.arguments), ev.ArgumentsDelta)
            if node is not item.node and not call.incomplete:
                self._check_finished_call(item, part, call, path)
            self._end_part(part, call.incomplete or cut)
        else:
            self._add_whole_parts(item, node, path)

    def _start_part(self, item: _StreamItem, at: int, part: Part) -> _OpenPart:
        started = item.parts[at] = _OpenPart(self._next_part_index)
        self._events.append(ev.PartStart(self._next_part_index, part, 0, self._frame))
        self._next_part_index += 1
        return started

    def _end_part(self, part: _OpenPart, incomplete: bool = False) -> None:
        if part.is_open:
            part.is_open = False
            self._events.append(ev.PartEnd(part.index, incomplete, self._frame))

    def _add_whole_parts(self, item: _StreamItem, node: Object, path: Path, at: int = 0) -> None:
        """Add the parts of an item that came whole, from this content index on."""
        for number, part in enumerate(read_output_item(node, path, self._reading), at):
            arguments, incomplete = "", False
            if isinstance(part, Call):
                self._has_calls, arguments, incomplete = True, part.arguments, part.incomplete
                part = replace(part, arguments="", incomplete=False, origin=not_verbatim(part.origin))
            elif isinstance(part, ProviderCall):
                arguments = part.arguments
                part = replace(part, arguments="", origin=not_verbatim(part.origin))
            started = self._start_part(item, number, part)
            self._add_delta(started, arguments, ev.ArgumentsDelta)
            self._end_part(started, incomplete)

    # --- messages ---

    def _open_text_part(self, item: _StreamItem, at: int, kind: str, path: Path) -> _OpenPart:
        part = item.parts.get(at)
        if part is not None:
            return part
        extra = {key: value for key, value in item.node.items() if key not in names.RESPONSE_MESSAGE_KEYS}
        origin = Origin(NAME, path, item.node, extra, intact=False)
        empty = Refusal("", origin) if kind == "refusal" else Text("", origin=origin)
        return self._start_part(item, at, empty)

    def _read_content_part(self, node: Object, path: Path) -> None:
        part = get_object(node, "part", path) or {}
        if part.get("type") in OUTPUT_PART_TYPES:
            item = self._find_or_add_item(node, path, "message")
            at = self._content_position(item, node, path)
            if node["type"] == "response.content_part.added":
                self._open_text_part(item, at, part["type"], path)
            else:
                self._finish_text(item, at, part, (path, "part"))
        elif (other := self._items.get(get_int(node, "output_index", path) or 0)) and other.type == "message":
            self._content_position(other, node, path)  # a part of an unknown type has a number, too

    def _read_text_delta(self, node: Object, path: Path) -> None:
        item = self._find_or_add_item(node, path, "message")
        at = self._content_position(item, node, path)
        part = item.parts.get(at)
        if part is None:
            kind = "refusal" if node["type"] == "response.refusal.delta" else "output_text"
            part = self._open_text_part(item, at, kind, path)
        text = get_text(node, "delta", path) or ""
        if node.get("logprobs"):
            self._add_logprobs(part, text, node, path, False)
        else:
            self._add_delta(part, text)

    def _add_logprobs(self, part: _OpenPart, text: str, node: Object, path: Path, is_whole: bool) -> None:
        """Add a text with its tokens. `is_whole`: the node has all tokens of the part, also those of earlier deltas."""
        reading = ReadContext(NAME)
        node, logprobs = split_logprobs(node, path, reading)
        if "logprobs" in node:
            self._unknown_fields.setdefault("item logprobs", UnknownField(path, "logprobs"))
        for field in list_answer_losses(reading):
            self._unknown_fields.setdefault(f"item {identify_field(field)}", field)
        logprobs = logprobs[part.logprobs_count :] if is_whole else logprobs
        if not logprobs:
            self._add_delta(part, text)
        elif part.is_open:
            part.pieces.append(text)
            part.logprobs_count += len(logprobs)
            self._events.append(ev.TextDelta(part.index, text, self._frame, logprobs))

    def _add_delta(self, part: _OpenPart, text: str, delta: type[ev.Delta] = ev.TextDelta) -> None:
        if text and part.is_open:
            part.pieces.append(text)
            self._events.append(delta(part.index, text, self._frame))

    def _read_text_done(self, node: Object, path: Path) -> None:
        item = self._find_or_add_item(node, path, "message")
        kind, key = ("refusal", "refusal") if node["type"] == "response.refusal.done" else ("output_text", "text")
        part = self._open_text_part(item, self._content_position(item, node, path), kind, path)
        text = _remaining_text(part.pieces, get_text(node, key, path))
        if node.get("logprobs"):
            self._add_logprobs(part, text, node, path, True)
        else:
            self._add_delta(part, text)

    def _read_annotation(self, node: Object, path: Path) -> None:
        item = self._find_or_add_item(node, path, "message")
        part = item.parts.get(self._content_position(item, node, path))
        annotation = get_object(node, "annotation", path)
        if part is None or not part.is_open or annotation is None:
            return
        part.citation_count += 1
        citation = read_citation(annotation, (path, "annotation"), self._reading)
        self._events.append(ev.CitationDelta(part.index, citation, self._frame))

    def _finish_text(self, item: _StreamItem, at: int, node: Object, path: Path) -> None:
        kind = str(node.get("type"))
        part = self._open_text_part(item, at, kind, path)
        if not part.is_open:
            return
        text = get_text(node, "refusal" if kind == "refusal" else "text", path)
        text = _remaining_text(part.pieces, text)
        if node.get("logprobs"):
            self._add_logprobs(part, text, node, path, True)
            node, _ = split_logprobs(node, path, ReadContext(NAME))
        else:
            self._add_delta(part, text)
        if kind == "output_text":
            whole = read_part(node, path, self._reading)
            for citation in whole.citations[part.citation_count :] if isinstance(whole, Text) else ():
                part.citation_count += 1
                self._events.append(ev.CitationDelta(part.index, citation, self._frame))
        self._end_part(part)

    def _finish_message(self, item: _StreamItem, node: Object, path: Path) -> None:
        read_item_origin(self._reading, node, path, names.RESPONSE_MESSAGE_KEYS, "id")
        contents = get_list(node, "content", path) or []
        for number, value in enumerate(contents):
            where = ((path, "content"), number)
            content, at = expect_object(value, where), _finished_position(item, number, len(contents), where)
            if content.get("type") in OUTPUT_PART_TYPES:
                self._finish_text(item, at, content, where)
            elif at not in item.parts:
                self._add_whole_parts(item, {**node, "content": [content]}, path, at)
        for open_part in item.parts.values():
            self._end_part(open_part)

    # --- reasoning ---

    def _read_reasoning_text(self, node: Object, path: Path) -> None:
        """Deltas and `.done` of summaries and of raw thinking."""
        kind: str = node["type"]
        raw = "summary" not in kind
        item = self._find_or_add_item(node, path, "reasoning")
        section = get_int(node, "content_index" if raw else "summary_index", path) or 0
        done = kind.endswith(".done")
        text = get_text(node, "text" if done else "delta", path) or ""
        if not text:
            return
        part = item.parts.get(0)
        if part is None:
            origin, id = Origin(NAME, path, item.node, intact=False), item.node.get("id")
            form: Literal["raw", "summary"] = "raw" if raw else "summary"
            part = self._start_part(item, 0, Reasoning(form=form, id=id if isinstance(id, str) else "", origin=origin))
        if section > item.section:
            item.section = section
            if part.pieces and not raw:
                self._add_delta(part, SUMMARY_SEPARATOR)
            item.section_start = len(part.pieces)
        if section == item.section:
            self._add_delta(part, _remaining_text(part.pieces[item.section_start :], text) if done else text)

    def _finish_reasoning(self, item: _StreamItem, node: Object, path: Path) -> None:
        whole = read_reasoning(node, path, self._reading)
        part = item.parts.get(0)
        if part is None:
            part = self._start_part(item, 0, replace(whole, text="", seal=None, origin=not_verbatim(whole.origin)))
        self._add_delta(part, _remaining_text(part.pieces, whole.text))
        if whole.seal is not None and part.is_open:
            self._events.append(ev.SealDelta(part.index, whole.seal, self._frame))
        self._end_part(part)

    # --- calls ---

    def _start_call(self, item: _StreamItem, node: Object, path: Path) -> _OpenPart:
        call = read_call(node, path, names.SHAPE_BY_CALL_TYPE[item.type], self._reading)
        self._has_calls = True
        call = replace(call, arguments="", incomplete=False, origin=not_verbatim(call.origin))
        part = self._start_part(item, 0, call)
        for text in item.held_back:
            self._add_delta(part, text, ev.ArgumentsDelta)
        return part

    def _check_finished_call(self, item: _StreamItem, part: _OpenPart, call: Call, path: Path) -> None:
        """Clients of this protocol take the finished call; others would run what its deltas say."""
        sent, given = "".join(part.pieces), item.node.get("name")
        is_other = bool(call.arguments.strip()) and not _is_same_text(sent, call.arguments)
        if is_other or (given and call.name and given != call.name):
            self._refuse_call(f"finishes the call of `{given or call.name}` as another one", path)

    def _refuse_call(self, problem: str, path: Path) -> None:
        """A call that the model has not made fails the answer for clients of other protocols."""
        failure = Failure("upstream", f"the provider's stream {problem}", 502, "invalid_stream")
        origin = Origin(NAME, path, self._frame.json)
        self._events.append(ev.OpaqueEvent("response.output_item.done", origin, True, self._frame, failure))

    def _read_arguments_delta(self, node: Object, path: Path) -> None:
        item = self._find_or_add_item(node, path, _ITEM_TYPE_BY_ARGUMENT_EVENT[node["type"]])
        text = get_text(node, "delta", path) or ""
        part = item.parts.get(0)
        if part is None:
            item.held_back.append(text)
        else:
            self._add_delta(part, text, ev.ArgumentsDelta)

    def _read_arguments_done(self, node: Object, path: Path) -> None:
        item_type = _ITEM_TYPE_BY_ARGUMENT_EVENT[node["type"]]
        item = self._find_or_add_item(node, path, item_type)
        text = get_text(node, names.SHAPE_BY_CALL_TYPE[item_type].payload_key, path)
        part = item.parts.get(0)
        if part is None:
            item.held_back.append(_remaining_text(item.held_back, text))
        else:
            self._add_delta(part, _remaining_text(part.pieces, text), ev.ArgumentsDelta)


def _is_same_item(item: _StreamItem, node: Object) -> bool:
    """Is this the item that was added before, at the same `output_index`?"""
    for key in ("id", "call_id"):
        if node.get(key) and item.node.get(key):
            same: bool = node[key] == item.node[key]
            return same
    return not item.is_done and item.type in ("", node.get("type"))


def _finished_position(item: _StreamItem, number: int, count: int, path: Path) -> int:
    """The position of a part of a finished message, among those of which deltas have come."""
    known = item.content_positions
    if len(known) == count or all(given == position for given, position in known.items()):
        return number
    if max(known) >= count:
        raise Malformed(path, "the finished message has other parts than its deltas")
    return known.setdefault(number, len(known))


def _remaining_text(pieces: list[str], whole: str | None) -> str:
    """What a finished text adds to the deltas; nothing where it contradicts them, because they are already sent."""
    sent = "".join(pieces)
    return whole[len(sent) :] if whole and whole.startswith(sent) else ""


def _is_same_text(sent: str, whole: str) -> bool:
    """Are these arguments the same, apart from white space and how their JSON is written?"""
    if sent.strip() == whole.strip():
        return True
    value = decode_object_or_none(sent)
    return value is not None and value == decode_object_or_none(whole)


_ITEM_TYPE_BY_ARGUMENT_EVENT: Mapping[str, str] = {
    f"{shape.event}.{end}": shape.item_type
    for shape in names.SHAPE_BY_CALL_TYPE.values()
    if shape.event
    for end in ("delta", "done")
}


_EVENT_READERS: Mapping[str, Callable[[StreamReader, Object, Path], None]] = {
    f"response.{name}": reader
    for reader, names in (
        (StreamReader._read_lifecycle_event, "created queued in_progress"),
        (StreamReader._read_item_added, "output_item.added"),
        (StreamReader._read_item_done, "output_item.done"),
        (StreamReader._read_content_part, "content_part.added content_part.done"),
        (StreamReader._read_text_delta, "output_text.delta refusal.delta"),
        (StreamReader._read_text_done, "output_text.done refusal.done"),
        (StreamReader._read_annotation, "output_text.annotation.added"),
        (StreamReader._read_arguments_delta, "function_call_arguments.delta custom_tool_call_input.delta"),
        (StreamReader._read_arguments_done, "function_call_arguments.done custom_tool_call_input.done"),
        (StreamReader._read_reasoning_text, "reasoning_summary_text.delta reasoning_summary_text.done"),
        (StreamReader._read_reasoning_text, "reasoning_text.delta reasoning_text.done"),
        (StreamReader._read_reasoning_text, "reasoning.delta reasoning.done"),
        (StreamReader._read_terminal_event, "completed incomplete failed cancelled"),
    )
    for name in names.split()
} | {"error": StreamReader._read_error}
_RESPONSE_EVENTS = frozenset(event for event in _EVENT_READERS if event.count(".") < 2)
"""Events about the response itself; all others are about an item, or hold an error."""
