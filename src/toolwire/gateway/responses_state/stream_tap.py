"""Reads a Responses stream on its way to the client. The last event waits until the response is stored."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from toolwire.core.json_values import Json, Malformed, Object, decode, encode
from toolwire.core.provenance import partial_decoder
from toolwire.core.sse import MAX_FRAME, SseSplitter, write_data_frame, write_event_frame
from toolwire.gateway.responses_state.response_objects import read_output

_TERMINAL_EVENT_PATTERN = re.compile(rb"response\.(?:completed|incomplete|failed|cancelled)")
_LIFECYCLE_EVENT_PATTERN = re.compile(
    rb"response\.(?:created|queued|in_progress|completed|incomplete|failed|cancelled)"
)
_TERMINAL_EVENTS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})
_LIFECYCLE_EVENTS = _TERMINAL_EVENTS | {"response.created", "response.queued", "response.in_progress"}
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


def _ends_with_frame(data: bytes) -> bool:
    """Does the data surely end with a complete frame? Most chunks do."""
    return data.endswith(b"\n\n") and not data.endswith(b"\n\n\n")


def _read_frame(frame: bytes) -> tuple[str, Object, str | None]:
    """The type, the JSON object and the `event:` line of a frame; empty if the data is not a JSON object."""
    splitter = SseSplitter()
    found = [*splitter.feed(frame), *splitter.close()]
    if not found:
        return "", {}, None
    try:
        node = decode(found[0].data)
    except Malformed:
        return "", {}, None
    if not isinstance(node, dict):
        return "", {}, None
    kind = node.get("type")
    return kind if isinstance(kind, str) else found[0].event or "", node, found[0].event


class StreamTap:
    """Passes complete frames on, and holds back the last event of the response and everything after it."""

    def __init__(self, changes: Mapping[str, Json]) -> None:
        self.response: Object | None = None
        """The response, once its last event has come."""
        self._changes = dict(changes)
        self._event_pattern = _LIFECYCLE_EVENT_PATTERN if changes else _TERMINAL_EVENT_PATTERN
        self._buffer = bytearray()
        self._held_event: tuple[bytes, Object, str | None] | None = None
        self._item_done_frames: list[bytes] = []
        self._is_released = False

    def feed(self, data: bytes) -> bytes:
        """The frames that can go out now."""
        if self._is_released:
            return data
        if not self._buffer and self._held_event is None and _ends_with_frame(data) and not self._needs_reading(data):
            return data
        self._buffer += data
        if self._held_event is not None:
            return b""
        if b"\n" not in data and b"\r" not in data:
            return self._flush_oversized() if len(self._buffer) > MAX_FRAME else b""
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
        changes = {**self._changes, **changes}
        return (_write_changed_frame(frame, node, name, changes) if changes else frame) + rest

    def _flush_oversized(self) -> bytes:
        """Pass on a frame that is too large to be read."""
        data, self._buffer = bytes(self._buffer), bytearray()
        return data

    def _process_frame(self, frame: bytes) -> bytes | None:
        """The frame as it goes out; None if it is the last event."""
        if self._event_pattern.search(frame) is None:
            if _ITEM_DONE_MARK in frame:
                self._item_done_frames.append(frame)
            return frame
        kind, node, name = _read_frame(frame)
        response = node.get("response")
        if kind not in _LIFECYCLE_EVENTS or not isinstance(response, dict):
            if _ITEM_DONE_MARK in frame:
                self._item_done_frames.append(frame)
            return frame
        if kind in _TERMINAL_EVENTS:
            self._held_event = (frame, node, name)
            self.response = self._complete_response(response, kind)
            return None
        return _write_changed_frame(frame, node, name, self._changes) if self._changes else frame

    def _complete_response(self, response: Object, kind: str) -> Object:
        """The response of the last event. If it has no output, the items of earlier events are put in."""
        complete = {"status": kind.rpartition(".")[2], **response, **self._changes}
        if not read_output(complete) and self._item_done_frames:
            events = [
                node
                for kind, node, _ in map(_read_frame, self._item_done_frames)
                if kind == "response.output_item.done"
            ]
            complete["output"] = [node["item"] for node in events if isinstance(node.get("item"), dict)]
        return complete


def _write_changed_frame(frame: bytes, node: Object, name: str | None, changes: Mapping[str, Json]) -> bytes:
    data = encode({**node, "response": {**node["response"], **changes}})
    return write_data_frame(data) if name is None else write_event_frame(name, data)


# --- sequence numbers -------------------------------------------------------------------------------------------------


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
            encoded = encode({**node, "sequence_number": number})
            frame = write_data_frame(encoded) if name is None else write_event_frame(name, encoded)
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
