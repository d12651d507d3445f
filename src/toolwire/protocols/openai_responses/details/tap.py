"""A look at a client's stream on its way out: all passes as it came, but the last event waits."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from toolwire.protocols.openai_responses.details.kept_answers import output
from toolwire.reading import glancing
from toolwire.sse import MAX_FRAME, Splitter, bare
from toolwire.sse import named as with_name
from toolwire.wire import Json, Malformed, Object, decode, encode

_LAST = re.compile(rb"response\.(?:completed|incomplete|failed|cancelled)")
_ANY = re.compile(rb"response\.(?:created|queued|in_progress|completed|incomplete|failed|cancelled)")
_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})
_TOLD = _ENDS | {"response.created", "response.queued", "response.in_progress"}
_DONE = b"output_item.done"
_END = re.compile(rb"(?:\r\n|\n|\r(?!\n)){2}")
"""The end of a frame: a blank line, however lines end."""


def _cut(data: bytes) -> tuple[list[bytes], bytes]:
    """Whole frames, with their blank lines, and what is left."""
    if b"\r" not in data:
        *whole, rest = data.split(b"\n\n")
        return [frame + b"\n\n" for frame in whole], rest
    frames: list[bytes] = []
    begin = 0
    for found in _END.finditer(data):
        if found.end() == len(data) and data.endswith(b"\r"):
            break  # perhaps half of a CRLF
        frames.append(data[begin : found.end()])
        begin = found.end()
    return frames, data[begin:]


def _is_whole(data: bytes) -> bool:
    """Does it end where a frame does? The short way for what comes frame by frame."""
    return data.endswith(b"\n\n") and not data.endswith(b"\n\n\n")


def _read(frame: bytes) -> tuple[str, Object, str | None]:
    """What a frame tells: its kind, its JSON, and the name in its `event:` line. Nothing for what is no JSON object."""
    splitter = Splitter()
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
        self._looks = _ANY if changes else _LAST
        self._tail = bytearray()
        self._held: tuple[bytes, Object, str | None] | None = None
        self._done: list[bytes] = []
        self._released = False

    def feed(self, data: bytes) -> bytes:
        if self._released:
            return data
        if not self._tail and self._held is None and _is_whole(data) and not self._looks_at(data):
            return data
        self._tail += data
        if self._held is not None:
            return b""
        if b"\n" not in data and b"\r" not in data:
            return self._overflow() if len(self._tail) > MAX_FRAME else b""
        return self._taken(*_cut(bytes(self._tail)))

    def close(self) -> bytes:
        """A last frame that lacks its blank line is still a frame."""
        if self._released or self._held is not None or not self._tail:
            return b""
        frames, rest = _cut(bytes(self._tail))
        return self._taken([*frames, rest], b"")

    def _taken(self, frames: list[bytes], rest: bytes) -> bytes:
        self._tail = bytearray(rest)
        whole = b"".join(frames)
        if not self._looks_at(whole):
            return whole
        out: list[bytes] = []
        for number, frame in enumerate(frames):
            passed = self._passed(frame)
            if passed is None:
                self._tail = bytearray(b"".join(frames[number + 1 :]) + rest)
                break
            out.append(passed)
        return b"".join(out)

    def _looks_at(self, data: bytes) -> bool:
        """May there be something in it that must be read?"""
        return self._looks.search(data) is not None or _DONE in data

    def release(self, changes: Mapping[str, Json]) -> bytes:
        self._released = True
        behind = bytes(self._tail)
        if self._held is None:
            return behind
        frame, node, name = self._held
        changes = {**self._changes, **changes}
        return (_changed(frame, node, name, changes) if changes else frame) + behind

    def _overflow(self) -> bytes:
        """A frame that nobody will read whole is none of ours."""
        data, self._tail = bytes(self._tail), bytearray()
        return data

    def _passed(self, frame: bytes) -> bytes | None:
        """The frame as it goes out; None when it is the last."""
        if self._looks.search(frame) is None:
            if _DONE in frame:
                self._done.append(frame)
            return frame
        kind, node, name = _read(frame)
        response = node.get("response")
        if kind not in _TOLD or not isinstance(response, dict):
            if _DONE in frame:
                self._done.append(frame)
            return frame
        if kind in _ENDS:
            self._held = (frame, node, name)
            self.response = self._whole(response, kind)
            return None
        return _changed(frame, node, name, self._changes) if self._changes else frame

    def _whole(self, response: Object, kind: str) -> Object:
        """The answer; where its last event does not repeat the items, those that were told before."""
        whole = {"status": kind.rpartition(".")[2], **response, **self._changes}
        if not output(whole) and self._done:
            told = [node for kind, node, _ in map(_read, self._done) if kind == "response.output_item.done"]
            whole["output"] = [node["item"] for node in told if isinstance(node.get("item"), dict)]
        return whole


def _changed(frame: bytes, node: Object, name: str | None, changes: Mapping[str, Json]) -> bytes:
    data = encode({**node, "response": {**node["response"], **changes}})
    return bare(data) if name is None else with_name(name, data)


# --- numbers ----------------------------------------------------------------------------------------------------------


class _Number(Struct, gc=False):
    sequence_number: int = -1


_number = glancing(_Number)


_BEGINNINGS = frozenset({"response.created", "response.queued"})


def renumbered(data: bytes, number: int) -> list[tuple[int, bytes]]:
    """Whatever a provider counts, and whether it does. The beginning is told once."""
    out: list[tuple[int, bytes]] = []
    known = _BEGINNINGS if number else ()
    for frame in _cut(data)[0]:
        kind, node, name = _read(frame)
        if not kind or kind in known:
            continue  # signs of life, and marks of the end that other protocols have
        if node.get("sequence_number") != number:
            told = encode({**node, "sequence_number": number})
            frame = bare(told) if name is None else with_name(name, told)
        out.append((number, frame))
        number += 1
    return out


def numbered(data: bytes) -> list[tuple[int, bytes]]:
    """A frame that has no number goes with the one before it."""
    out: list[tuple[int, bytes]] = []
    last = -1
    for frame in _cut(data)[0]:
        for event in Splitter().feed(frame if frame.endswith(b"\n") else frame + b"\n\n"):
            told = _number(event.data)
            last = last if told is None or told.sequence_number < 0 else told.sequence_number
        out.append((last, frame))
    return out
