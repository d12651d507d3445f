"""A look at a client's stream on its way out: all passes as it came, but the last event waits."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from toolwire.core.json_values import Json, Malformed, Object, decode, encode
from toolwire.core.provenance import partial_decoder
from toolwire.core.sse import MAX_FRAME, SseSplitter, write_data_frame
from toolwire.core.sse import write_event_frame as with_name
from toolwire.protocols.openai_responses.details.kept_answers import read_output

_TERMINAL_EVENT_PATTERN = re.compile(rb"response\.(?:completed|incomplete|failed|cancelled)")
_LIFECYCLE_EVENT_PATTERN = re.compile(
    rb"response\.(?:created|queued|in_progress|completed|incomplete|failed|cancelled)"
)
_TERMINAL_EVENTS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})
_LIFECYCLE_EVENTS = _TERMINAL_EVENTS | {"response.created", "response.queued", "response.in_progress"}
_ITEM_DONE_MARK = b"output_item.done"
_FRAME_END = re.compile(rb"(?:\r\n|\n|\r(?!\n)){2}")
"""The end of a frame: a blank line, however lines end."""


def _split_frames(data: bytes) -> tuple[list[bytes], bytes]:
    """Whole frames, with their blank lines, and what is left."""
    if b"\r" not in data:
        *whole, rest = data.split(b"\n\n")
        return [frame + b"\n\n" for frame in whole], rest
    frames: list[bytes] = []
    begin = 0
    for found in _FRAME_END.finditer(data):
        if found.end() == len(data) and data.endswith(b"\r"):
            break  # perhaps half of a CRLF
        frames.append(data[begin : found.end()])
        begin = found.end()
    return frames, data[begin:]


def _ends_with_frame(data: bytes) -> bool:
    """Does it end where a frame does? The short way for what comes frame by frame."""
    return data.endswith(b"\n\n") and not data.endswith(b"\n\n\n")


def _read_frame(frame: bytes) -> tuple[str, Object, str | None]:
    """What a frame tells: its kind, its JSON, and the name in its `event:` line. Nothing for what is no JSON object."""
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
    """Holds back what is no whole frame yet, and from the last event on everything."""

    def __init__(self, changes: Mapping[str, Json]) -> None:
        self.response: Object | None = None
        self._changes = dict(changes)
        self._event_pattern = _LIFECYCLE_EVENT_PATTERN if changes else _TERMINAL_EVENT_PATTERN
        self._buffer = bytearray()
        self._held_event: tuple[bytes, Object, str | None] | None = None
        self._item_done_frames: list[bytes] = []
        self._is_released = False

    def feed(self, data: bytes) -> bytes:
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
        """A last frame that lacks its blank line is still a frame."""
        if self._is_released or self._held_event is not None or not self._buffer:
            return b""
        frames, rest = _split_frames(bytes(self._buffer))
        return self._process_frames([*frames, rest], b"")

    def _process_frames(self, frames: list[bytes], rest: bytes) -> bytes:
        self._buffer = bytearray(rest)
        whole = b"".join(frames)
        if not self._needs_reading(whole):
            return whole
        out: list[bytes] = []
        for number, frame in enumerate(frames):
            passed = self._process_frame(frame)
            if passed is None:
                self._buffer = bytearray(b"".join(frames[number + 1 :]) + rest)
                break
            out.append(passed)
        return b"".join(out)

    def _needs_reading(self, data: bytes) -> bool:
        """May there be something in it that must be read?"""
        return self._event_pattern.search(data) is not None or _ITEM_DONE_MARK in data

    def release(self, changes: Mapping[str, Json]) -> bytes:
        self._is_released = True
        behind = bytes(self._buffer)
        if self._held_event is None:
            return behind
        frame, node, name = self._held_event
        changes = {**self._changes, **changes}
        return (_write_changed_frame(frame, node, name, changes) if changes else frame) + behind

    def _flush_oversized(self) -> bytes:
        """A frame that nobody will read whole is none of ours."""
        data, self._buffer = bytes(self._buffer), bytearray()
        return data

    def _process_frame(self, frame: bytes) -> bytes | None:
        """The frame as it goes out; None when it is the last."""
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
        """The answer; where its last event does not repeat the items, those that were told before."""
        whole = {"status": kind.rpartition(".")[2], **response, **self._changes}
        if not read_output(whole) and self._item_done_frames:
            told = [
                node
                for kind, node, _ in map(_read_frame, self._item_done_frames)
                if kind == "response.output_item.done"
            ]
            whole["output"] = [node["item"] for node in told if isinstance(node.get("item"), dict)]
        return whole


def _write_changed_frame(frame: bytes, node: Object, name: str | None, changes: Mapping[str, Json]) -> bytes:
    data = encode({**node, "response": {**node["response"], **changes}})
    return write_data_frame(data) if name is None else with_name(name, data)


# --- numbers ----------------------------------------------------------------------------------------------------------


class _NumberedEvent(Struct, gc=False):
    sequence_number: int = -1


_decode_number = partial_decoder(_NumberedEvent)


_START_EVENTS = frozenset({"response.created", "response.queued"})


def renumber_frames(data: bytes, number: int) -> list[tuple[int, bytes]]:
    """Whatever a provider counts, and whether it does. The beginning is told once."""
    out: list[tuple[int, bytes]] = []
    known = _START_EVENTS if number else ()
    for frame in _split_frames(data)[0]:
        kind, node, name = _read_frame(frame)
        if not kind or kind in known:
            continue  # signs of life, and marks of the end that other protocols have
        if node.get("sequence_number") != number:
            told = encode({**node, "sequence_number": number})
            frame = write_data_frame(told) if name is None else with_name(name, told)
        out.append((number, frame))
        number += 1
    return out


def number_frames(data: bytes) -> list[tuple[int, bytes]]:
    """A frame that has no number goes with the one before it."""
    out: list[tuple[int, bytes]] = []
    last = -1
    for frame in _split_frames(data)[0]:
        for event in SseSplitter().feed(frame if frame.endswith(b"\n") else frame + b"\n\n"):
            told = _decode_number(event.data)
            last = last if told is None or told.sequence_number < 0 else told.sequence_number
        out.append((last, frame))
    return out
