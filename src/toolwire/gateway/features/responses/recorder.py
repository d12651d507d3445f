"""Stores the response to a request before the client sees its end, so that the next request can refer to it; and the
form that responses, conversations and items have in the store."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Set
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from toolwire.core.json_values import Json, Malformed, Object, decode, encode, parse_object
from toolwire.core.provenance import partial_decoder
from toolwire.core.sse import MAX_FRAME, SseSplitter, write_data_frame, write_event_frame
from toolwire.gateway.features.responses.idempotency import IdempotencyClaim
from toolwire.gateway.features.responses.response_objects import (
    NOT_STORED_FIELDS,
    StateOptions,
    add_missing_ids,
    read_output,
    read_text,
    replace_ids,
)
from toolwire.gateway.http.large_work import run_by_size
from toolwire.gateway.http.messages import Reply
from toolwire.gateway.store.repository import ITEM, RESPONSE, StateRepository, is_valid_id
from toolwire.gateway.store.store import Entry, StoreDown


class StoredResponse(Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"has_end_event": "told"}):
    """A response in the store, with the new input items of its request."""

    items: list[Object]
    response: Object
    conversation: str = ""
    background: bool = False
    lease: float = 0.0
    """A background response: until when its gateway has promised the next update. After that it counts as lost."""
    has_end_event: bool = False
    """Is the last event among the stored events of its stream? Called `told` in the store."""


class StoredConversation(Struct, frozen=True, kw_only=True):
    """A conversation in the store; its items are entries of their own."""

    created: int
    metadata: Json = None


def read_stored_response(entry: Entry) -> StoredResponse:
    fields = parse_object(entry.body, len(entry.body))
    return StoredResponse(has_end_event=fields.pop("told", False), **fields)


def read_stored_item(entry: Entry) -> Object:
    return parse_object(entry.body, len(entry.body))


def item_entries(owner: str, conversation: str, items: list[Object], now: float) -> list[Entry]:
    return [
        Entry(owner=owner, kind=ITEM, id=str(item["id"]), parent=conversation, body=encode(item), created=now)
        for item in items
    ]


# --- recorders --------------------------------------------------------------------------------------------------------

NOT_STORED_HEADER = {"x-toolwire-state": "not-kept"}
"""The header of a response that should have been stored and could not be."""
FAILED_STATUSES = ("failed", "cancelled")
"""Responses with these do not become part of their conversation."""


def write_state_fields(options: StateOptions, id: str = "", now: int = 0) -> dict[str, Json]:
    """Fields of a response that the gateway sets: what the request referred to; and the id and the time of one that is
    made in the background, because the client was told them before the provider answered."""
    fields: dict[str, Json] = {
        "id": id,
        "created_at": now if id else None,
        "previous_response_id": options.previous_response_id,
        "background": options.background,
        "conversation": {"id": options.conversation} if options.conversation else None,
        "store": options.store,  # some providers are not asked to store it, and say so
    }
    return {key: value for key, value in fields.items() if value}


class StoringRecorder(Struct, eq=False):
    """Stores the response, and sets the fields that the provider cannot know."""

    repository: StateRepository
    owner: str
    options: StateOptions
    items: list[Object]
    """The new input items of the request, each with an id."""
    preassigned: tuple[str, int] = ("", 0)
    """The id and the time of a background response."""
    own_id: str = ""
    """The id for a response to which the provider gives none, or one that an earlier response has."""
    size: int = 0
    """Bytes of the request that has the items."""
    taken_ids: Set[str] = frozenset()
    """Ids of earlier responses; the provider may give one of them again."""
    claim: IdempotencyClaim | None = None
    """The idempotency key of the request."""
    overrides: dict[str, Json] = {}
    """Fields of the response that differ from the provider's."""

    def __post_init__(self) -> None:
        self.overrides = write_state_fields(self.options, *self.preassigned)

    def open_tap(self) -> StreamTap:
        return StreamTap(self.overrides, self._choose_id if self.options.store else None)

    def _choose_id(self, id: str) -> str:
        """The id for a response that the provider gave this id. A response with the id of the one before it would have
        itself as its history."""
        is_usable = bool(id) and is_valid_id(id) and id not in self.taken_ids
        return id if is_usable and self.repository.claim_id(self.owner, id) else self.own_id

    async def save_reply(self, reply: Reply) -> Reply:
        """Store a whole response; returns it as the client gets it."""
        if reply.status != 200:
            return reply
        try:
            response = parse_object(reply.body, len(reply.body))
        except Malformed:
            return replace(reply, headers={**reply.headers, **NOT_STORED_HEADER})
        changes = {"id": self._choose_id(read_text(response, "id")), **self.overrides}
        changed_later = await self.save_response({**response, **changes})
        changes |= changed_later
        if changed_later is NOT_STORED_FIELDS:
            reply = replace(reply, headers={**reply.headers, **NOT_STORED_HEADER})
        is_same = all(response.get(key) == value for key, value in changes.items())
        return reply if is_same else replace(reply, body=encode({**response, **changes}))

    async def save_response(self, response: Object) -> Mapping[str, Json]:
        """Store a response; returns the fields to change in it: it could not be stored, or its id is another."""
        id, stores = read_text(response, "id"), self.options.store
        changes: Mapping[str, Json] = {}
        if stores and isinstance(await self.repository.get_one(self.owner, RESPONSE, id), Entry):
            # Never replace the response of another request.
            changes = {"id": self.own_id}
            response = {**response, **changes}
        entries = [await run_by_size(self.size, partial(self.response_entry, response))] if stores else []
        linked = await self.linked_entries(response)
        if isinstance(linked, StoreDown):
            self.repository.put_later(*entries)
            return NOT_STORED_FIELDS
        done = [] if self.claim is None else self._finished_entries(self.claim, response)
        result = await self.repository.put(*entries, *linked[0], *done, appended=linked[1])
        if isinstance(result, StoreDown):
            # Not the items of a conversation: the client is told that they are not in it, and may send them again.
            self.repository.put_later(*entries, *linked[0])
            return NOT_STORED_FIELDS
        return changes

    def _finished_entries(self, claim: IdempotencyClaim, response: Object) -> list[Entry]:
        """The note that the request with this idempotency key is done. One that has failed may be sent again."""
        if read_text(response, "status") in FAILED_STATUSES:
            return []
        stores = self.options.store
        return [claim.finished_entry(read_text(response, "id") if stores else "", None if stores else response)]

    def response_entry(
        self, response: Object, background: bool = False, lease: float = 0.0, has_end_event: bool = False
    ) -> Entry:
        stored = StoredResponse(
            items=self.items,
            response=response,
            conversation=self.options.conversation,
            background=background,
            lease=lease,
            has_end_event=has_end_event,
        )
        return Entry(
            owner=self.owner,
            kind=RESPONSE,
            id=read_text(response, "id"),
            body=encode(stored),
            parent=self.options.previous_response_id,
            mark=read_text(response, "status"),
            created=self.repository.clock(),
        )

    async def linked_entries(self, response: Object) -> tuple[list[Entry], list[Entry]] | StoreDown:
        """Entries to write in one transaction with the response: pointers to it from its output items, for
        `item_reference`; or, in a conversation, the input and output items to append."""
        id, output = read_text(response, "id"), read_output(response)
        conversation = self.options.conversation
        if conversation and read_text(response, "status") in FAILED_STATUSES:
            return [], []
        if conversation:
            output = add_missing_ids(output, id)
        elif not self.options.store:
            return [], []
        ids = [item["id"] for item in output if isinstance(item.get("id"), str)]
        existing = await self.repository.get(self.owner, ITEM, ids) if ids else []
        if isinstance(existing, StoreDown):
            return existing
        if conversation:
            output = _make_ids_unique(output, {entry.id for entry in existing}, id)
            return [], await run_by_size(self.size, partial(self._write_items, conversation, id, output))
        now, used_ids = self.repository.clock(), {entry.id for entry in existing if entry.body}
        pointers = [
            Entry(owner=self.owner, kind=ITEM, id=item["id"], parent=id, place=place, created=now)
            for place, item in enumerate(output)
            if isinstance(item.get("id"), str) and item["id"] not in used_ids
        ]
        return pointers, []

    def _write_items(self, conversation: str, id: str, output: list[Object]) -> list[Entry]:
        items = [*replace_ids(self.items, id), *output]
        return item_entries(self.owner, conversation, items, self.repository.clock())


def _make_ids_unique(output: list[Object], used_ids: set[str], seed: str) -> list[Object]:
    """The items with new ids where another item has the same one: some providers use the same ids in every response."""
    out: list[Object] = []
    for number, item in enumerate(output):
        if item["id"] in used_ids:
            out += replace_ids([item], f"{seed}|{number}")
        else:
            out.append(item)
        used_ids.add(item["id"])
    return out


class StatelessRecorder:
    """Stores nothing, where the gateway has no store, and says so in the response."""

    def open_tap(self) -> StreamTap:
        return StreamTap(NOT_STORED_FIELDS)

    async def save_response(self, response: Object) -> Mapping[str, Json]:
        return {}

    async def save_reply(self, reply: Reply) -> Reply:
        try:
            response = parse_object(reply.body, len(reply.body))
        except Malformed:
            return reply
        return Reply(reply.status, reply.headers, encode({**response, **NOT_STORED_FIELDS}))


# --- streams ----------------------------------------------------------------------------------------------------------

_TERMINAL_EVENTS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})
_LIFECYCLE_EVENTS = _TERMINAL_EVENTS | {"response.created", "response.queued", "response.in_progress"}
_TERMINAL_EVENT_PATTERN, _LIFECYCLE_EVENT_PATTERN = (
    re.compile(rb"response\.(?:%b)" % "|".join(sorted(name.removeprefix("response.") for name in names)).encode())
    for names in (_TERMINAL_EVENTS, _LIFECYCLE_EVENTS)
)
_ITEM_DONE_MARK = b"output_item.done"
_FRAME_END = re.compile(rb"(?:\r\n|\n|\r(?!\n)){2}")
"""A blank line, with any kind of line end."""


def _split_frames(data: bytes) -> tuple[list[bytes], bytes]:
    """The complete frames, with their blank lines, and the rest."""
    if b"\r" not in data:
        *whole, rest = data.split(b"\n\n")
        return [frame + b"\n\n" for frame in whole], rest
    frames: list[bytes] = []
    start = 0
    for found in _FRAME_END.finditer(data):
        if found.end() == len(data) and data.endswith(b"\r"):
            break  # the LF of a CRLF may still come
        frames.append(data[start : found.end()])
        start = found.end()
    return frames, data[start:]


def _read_frame(frame: bytes) -> tuple[str, Object, str | None]:
    """The type, the JSON object and the `event:` line of a frame; empty if the data is not a JSON object."""
    splitter = SseSplitter()
    event = next(iter([*splitter.feed(frame), *splitter.close()]), None)
    try:
        node = None if event is None else decode(event.data)
    except Malformed:
        node = None
    if event is None or not isinstance(node, dict):
        return "", {}, None
    kind = node.get("type")
    return kind if isinstance(kind, str) else event.event or "", node, event.event


class StreamTap:
    """Passes complete frames on, and holds back the last event of the response and everything after it."""

    def __init__(self, changes: Mapping[str, Json], choose_id: Callable[[str], str] | None = None) -> None:
        """`changes` are the fields to set in the response; `choose_id` replaces the id that the provider gave it."""
        self.response: Object | None = None
        """The response, once its last event has come."""
        self._changes = dict(changes)
        self._choose_id = None if "id" in changes else choose_id
        self._event_pattern = _LIFECYCLE_EVENT_PATTERN if changes or choose_id else _TERMINAL_EVENT_PATTERN
        self._buffer = bytearray()
        self._held_event: tuple[bytes, Object, str | None] | None = None
        self._item_done_frames: list[bytes] = []
        self._is_released = False

    def feed(self, data: bytes) -> bytes:
        """The frames that can go out now."""
        if self._is_released:
            return data
        is_whole = data.endswith(b"\n\n") and not data.endswith(b"\n\n\n")  # most chunks are
        if is_whole and not self._buffer and self._held_event is None and not self._needs_reading(data):
            return data
        self._buffer += data
        if self._held_event is not None:
            return b""
        if b"\n" not in data and b"\r" not in data:
            if len(self._buffer) <= MAX_FRAME:
                return b""
            data, self._buffer = bytes(self._buffer), bytearray()
            return data  # it is too large to be read
        return self._process_frames(*_split_frames(bytes(self._buffer)))

    def close(self) -> bytes:
        """The stream has ended: what can still go out. A last frame without its blank line is complete, too."""
        if self._is_released or self._held_event is not None or not self._buffer:
            return b""
        frames, rest = _split_frames(bytes(self._buffer))
        return self._process_frames([*frames, rest], b"")

    def _process_frames(self, frames: list[bytes], rest: bytes) -> bytes:
        self._buffer = bytearray(rest)
        data = b"".join(frames)
        if not self._needs_reading(data):
            return data
        out: list[bytes] = []
        for number, frame in enumerate(frames):
            passed = self._process_frame(frame)
            if passed is None:
                self._buffer = bytearray(b"".join(frames[number + 1 :]) + rest)
                break
            out.append(passed)
        return b"".join(out)

    def _needs_reading(self, data: bytes) -> bool:
        """May it contain an event that must be read?"""
        return self._event_pattern.search(data) is not None or _ITEM_DONE_MARK in data

    def release(self, changes: Mapping[str, Json]) -> bytes:
        """The last event, its response with these fields changed, and what came after it."""
        self._is_released = True
        rest = bytes(self._buffer)
        if self._held_event is None:
            return rest
        frame, node, name = self._held_event
        return _write_changed_frame(frame, node, name, {**self._changes, **changes}) + rest

    def _process_frame(self, frame: bytes) -> bytes | None:
        """The frame as it goes out; None if it is the last event."""
        kind, node, name = _read_frame(frame) if self._event_pattern.search(frame) else ("", {}, None)
        response = node.get("response")
        if kind not in _LIFECYCLE_EVENTS or not isinstance(response, dict):
            if _ITEM_DONE_MARK in frame:
                self._item_done_frames.append(frame)
            return frame
        if self._choose_id is not None:
            self._changes["id"], self._choose_id = self._choose_id(read_text(response, "id")), None
        if kind in _TERMINAL_EVENTS:
            self._held_event = (frame, node, name)
            self.response = self._complete_response(response, kind)
            return None
        return _write_changed_frame(frame, node, name, self._changes)

    def _complete_response(self, response: Object, kind: str) -> Object:
        """The response of the last event. If it has no output, the items of earlier events are put in."""
        complete = {"status": kind.rpartition(".")[2], **response, **self._changes}
        if not read_output(complete) and self._item_done_frames:
            events = map(_read_frame, self._item_done_frames)
            items = [node.get("item") for kind, node, _ in events if kind == "response.output_item.done"]
            complete["output"] = [item for item in items if isinstance(item, dict)]
        return complete


def _write_changed_frame(frame: bytes, node: Object, name: str | None, changes: Mapping[str, Json]) -> bytes:
    """The frame with these fields of its response changed; unchanged if it has them already."""
    response = node["response"]
    if all(key in response and response[key] == value for key, value in changes.items()):
        return frame
    return _write_frame({**node, "response": {**response, **changes}}, name)


def _write_frame(node: Object, name: str | None) -> bytes:
    data = encode(node)
    return write_data_frame(data) if name is None else write_event_frame(name, data)


class _NumberedEvent(Struct, gc=False):
    sequence_number: int = -1


_decode_number = partial_decoder(_NumberedEvent)
_START_EVENTS = frozenset({"response.created", "response.queued"})


def renumber_frames(data: bytes, number: int) -> list[tuple[int, bytes]]:
    """The frames of a provider's stream, numbered from this number on, whether the provider numbers them or not. The
    start events are dropped unless the number is 0: the gateway has sent its own."""
    out: list[tuple[int, bytes]] = []
    already_sent = _START_EVENTS if number else ()
    for frame in _split_frames(data)[0]:
        kind, node, name = _read_frame(frame)
        if not kind or kind in already_sent:
            continue  # also comments that keep the connection alive, and `[DONE]`
        if node.get("sequence_number") != number:
            frame = _write_frame({**node, "sequence_number": number}, name)
        out.append((number, frame))
        number += 1
    return out


def number_frames(data: bytes) -> list[tuple[int, bytes]]:
    """Complete frames with their sequence numbers. One without a number gets that of the frame before."""
    out: list[tuple[int, bytes]] = []
    last = -1
    for frame in _split_frames(data)[0]:
        for event in SseSplitter().feed(frame if frame.endswith(b"\n") else frame + b"\n\n"):
            numbered = _decode_number(event.data)
            last = last if numbered is None or numbered.sequence_number < 0 else numbered.sequence_number
        out.append((last, frame))
    return out
