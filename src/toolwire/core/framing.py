"""How the frames of a stream are told apart on the wire: server-sent events, or Amazon's event streams. A codec says
which it has (`Http.framing`); whoever passes the bytes of a stream on, or shows them, asks that."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar, Protocol

from toolwire.core import event_stream
from toolwire.core.events import Event, ResponseFailed, SourceFrame
from toolwire.core.json_values import decode, encode
from toolwire.core.sse import (
    MAX_FRAME,
    Frame,
    SseSplitter,
    split_after_frames,
    write_data_frame,
    write_event_frame,
)


class FrameSplitter(Protocol):
    """Reads the frames of one stream, to show them. Raises FrameTooLong."""

    def feed(self, data: bytes) -> list[Frame]: ...


class Framing(Protocol):
    content_type: ClassVar[str]
    frames_name: ClassVar[str]
    """What its frames are called in an error."""
    frame_starts: ClassVar[tuple[bytes, ...]]
    """How most of its frames begin; for others `is_frame` is asked."""
    frame_ends: ClassVar[tuple[bytes, ...]]
    """How a piece ends that is a whole frame; () if its end does not tell."""

    def split_frames(self, data: bytes) -> list[bytes]:
        """The bytes of each frame with its end, and what is left behind the last end."""

    def cut_frames(self, held: bytearray, data: bytes) -> list[bytes]:
        """The whole frames in what was held back and the new bytes. A partial one is held back until its end comes."""

    def make_splitter(self) -> FrameSplitter: ...

    def write_text(self, data: bytes) -> str:
        """A stream as text, for files and people: with frames as those of server-sent events."""

    def read_text(self, text: str) -> bytes:
        """The stream of such a text."""

    def is_frame(self, frame: bytes) -> bool:
        """Is it a frame, and not something else that a lenient reader understood?"""

    def is_silent(self, frame: bytes) -> bool:
        """Does it say nothing?"""

    def prepare_frame(self, frame: bytes) -> bytes:
        """A whole frame so that a reader reads it at once."""
        return frame

    def end_frame(self, frame: bytes) -> bytes:
        """A frame with its end, which may be missing at the end of a stream."""
        return frame

    def write_frames(self, events: Sequence[Event]) -> bytes:
        """The frames that these events were read from, as the reader has mended them."""

    def name_frame(self, event: Event, frame: bytes) -> bytes:
        """The frame with the name that its reader says it must have."""
        return frame


def _source_frames(events: Sequence[Event]) -> list[tuple[Event, SourceFrame]]:
    """Each frame once, with an event that it says."""
    frames = {id(one.frame): (one, one.frame) for one in events if one.frame is not None and not one.frame.silent}
    return list(frames.values())


# --- server-sent events ---

_split_any_frames = re.compile(rb".*?(?>\r\n|\n|\r){2}|.+", re.DOTALL).findall
_find_frame_end = re.compile(rb"(?>\r\n|\n|\r){2}").search
_find_event_line = re.compile(rb"^event:([^\r\n]*)", re.MULTILINE).search
_has_data_line = re.compile(rb"(?:\A|[\r\n])data").search
_is_comment = re.compile(rb"(?:(?::[^\r\n]*)?[\r\n])*").fullmatch
_MAX_CUT_END = 3
"""Bytes of the end of a frame that may have come before the last one."""


class SseFraming(Framing):
    content_type: ClassVar[str] = "text/event-stream"
    frames_name: ClassVar[str] = "server-sent events"
    frame_starts: ClassVar[tuple[bytes, ...]] = (b"event:", b"data:")
    frame_ends: ClassVar[tuple[bytes, ...]] = (b"\n\n",)
    split_frames = staticmethod(split_after_frames)

    def cut_frames(self, held: bytearray, data: bytes) -> list[bytes]:
        """Only new bytes are searched: a frame can be long."""
        if held:
            start = max(0, len(held) - _MAX_CUT_END)
            held += data
            if _find_frame_end(held, start) is None and len(held) <= MAX_FRAME:
                return []
            data = bytes(held)
            held.clear()
        if data.find(b"\r") < 0:
            if data.endswith(b"\n\n"):
                return split_after_frames(data)
            whole, end, rest = data.rpartition(b"\n\n")
            frames = split_after_frames(whole + end) if end else []
        else:
            *frames, rest = _split_any_frames(data)
            end_found = _find_frame_end(rest, max(0, len(rest) - 2 * _MAX_CUT_END))
            # A CR at the very end may be half of a line's end.
            if end_found is not None and not data.endswith(b"\r"):
                return [*frames, rest]
        if len(rest) > MAX_FRAME:
            return [*frames, rest]  # the reader says that it is too long
        held += rest
        return frames

    def make_splitter(self) -> FrameSplitter:
        return SseSplitter()

    def write_text(self, data: bytes) -> str:
        return data.decode("utf-8", "replace")

    def read_text(self, text: str) -> bytes:
        return text.encode()

    def is_frame(self, frame: bytes) -> bool:
        return _has_data_line(frame) is not None or not frame.strip()

    def is_silent(self, frame: bytes) -> bool:
        return _is_comment(frame) is not None

    def prepare_frame(self, frame: bytes) -> bytes:
        """With LF at the end of its lines: a reader that sees a CR last would wait for the next byte."""
        return frame if frame.find(b"\r") < 0 else frame.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def end_frame(self, frame: bytes) -> bytes:
        return frame + b"\n\n" if frame.strip() and not frame.endswith((b"\n\n", b"\r\n\r\n", b"\r\r")) else frame

    def write_frames(self, events: Sequence[Event]) -> bytes:
        return b"".join([write_sse_frame(event, frame) for event, frame in _source_frames(events)])

    def name_frame(self, event: Event, frame: bytes) -> bytes:
        source = event.frame
        if source is None or not source.event or frame.startswith(b"event: %b\n" % source.event.encode()):
            return frame
        line = _find_event_line(frame)
        is_named = line is not None and line[1].strip() == source.event.encode()
        return frame if is_named else write_event_frame(source.event, encode(source.json))


def write_sse_frame(_event: Event, frame: SourceFrame) -> bytes:
    """The server-sent event that an event was read from."""
    if frame.json is None:
        return write_data_frame(b"[DONE]")
    data = encode(frame.json)
    return write_event_frame(frame.event, data) if frame.event else write_data_frame(data)


SSE_FRAMING = SseFraming()

# --- Amazon's event streams ---


class _MessageSplitter:
    """The messages as frames. What cannot be read is left out: the reader of the stream says it."""

    def __init__(self) -> None:
        self._splitter = event_stream.EventStreamSplitter()

    def feed(self, data: bytes) -> list[Frame]:
        return [Frame(_title(one), one.payload or encode(one.error_text)) for one in self._splitter.feed(data)]


def _title(message: event_stream.Message) -> str:
    return message.name if message.kind == "event" else f"{message.kind}:{message.name}"


def _write_titled(title: str, data: bytes) -> bytes:
    kind, _, name = title.rpartition(":")
    if kind == "error":
        text = decode(data)
        return event_stream.write_error(name, text if isinstance(text, str) else "")
    return event_stream.write_exception(name, data) if kind == "exception" else event_stream.write_event(name, data)


class EventStreamFraming(Framing):
    content_type: ClassVar[str] = event_stream.CONTENT_TYPE
    frames_name: ClassVar[str] = "messages of an event stream"
    frame_starts: ClassVar[tuple[bytes, ...]] = (b"\0", b"\1")
    frame_ends: ClassVar[tuple[bytes, ...]] = ()
    split_frames = staticmethod(event_stream.split_after_messages)

    def cut_frames(self, held: bytearray, data: bytes) -> list[bytes]:
        if held:
            held += data
            if not event_stream.holds_message(held):
                return []
            data = bytes(held)
            held.clear()
        frames = event_stream.split_after_messages(data)
        if frames and not event_stream.holds_message(frames[-1]):
            held += frames.pop()
        return frames

    def make_splitter(self) -> FrameSplitter:
        return _MessageSplitter()

    def write_text(self, data: bytes) -> str:
        frames = _MessageSplitter().feed(data)
        return b"".join([write_event_frame(one.event or "", one.data) for one in frames]).decode("utf-8", "replace")

    def read_text(self, text: str) -> bytes:
        frames = SseSplitter().feed(text.encode())
        return b"".join([_write_titled(one.event or "", one.data) for one in frames])

    def is_frame(self, frame: bytes) -> bool:
        return not frame

    def is_silent(self, frame: bytes) -> bool:
        return not frame

    def write_frames(self, events: Sequence[Event]) -> bytes:
        return b"".join([write_source_message(event, frame) for event, frame in _source_frames(events)])


def write_source_message(event: Event, frame: SourceFrame) -> bytes:
    """The message that an event was read from."""
    name = frame.event or ""
    if not isinstance(event, ResponseFailed):
        return event_stream.write_event(name, encode(frame.json))
    if frame.json is None:
        return event_stream.write_error(name, event.failure.message)
    return event_stream.write_exception(name, encode(frame.json))


EVENT_STREAM_FRAMING = EventStreamFraming()
