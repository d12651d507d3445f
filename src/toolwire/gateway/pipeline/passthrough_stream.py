"""A stream whose bytes reach the client unchanged, in whole frames; a reader watches its usage and its end."""

from __future__ import annotations

import re
from collections.abc import Callable

from toolwire.core.codec import Codec, WriteContext
from toolwire.core.events import (
    ArgumentsDelta,
    ChoiceEnd,
    Event,
    OpaqueEvent,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
    TextDelta,
    UsageUpdate,
)
from toolwire.core.ir import EMPTY_MAPPING, Call, Failure, Result, Usage
from toolwire.core.json_values import Malformed, decode, expect_object
from toolwire.core.losses import Ledger
from toolwire.core.sse import FrameTooLong, SseSplitter, split_after_frames
from toolwire.translation.streaming import keep_failure
from toolwire.translation.tool_rounds import Rounds

_split_any_frames = re.compile(rb".*?(?:\r\n\r\n|\n\n|\r\r)|.+", re.DOTALL).findall
_CONTENTLESS_EVENTS = frozenset({ResponseStart, UsageUpdate, ResponseFailed, OpaqueEvent})
"""An event that only one protocol knows (`OpaqueEvent`) is not content either."""
_MAX_CUT_END = 3
"""Bytes of the end of a frame that may have come before the last one."""


class PassthroughStream:
    """Has the interface of `StreamTranslation`. A partial frame is held back: if the rest never comes, or the frame
    cannot be read, the client gets the failure in a frame that it can read."""

    needs_next_round = False
    ledger = None
    rounds: Rounds | None = None
    memory_records = EMPTY_MAPPING
    """Nothing is stored: a server whose seals must be stored has a quirk, and such streams are translated."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._reader = codec.make_stream_reader()
        self._partial_frame = bytearray()
        self._has_held_end = False
        """Does the partial frame have two CR, which end it with the next line?"""
        self._start_event: ResponseStart | None = None
        self._last_event: Event | None = None
        self._open_calls: set[int] = set()
        self.usage: Usage | None = None
        self.text_length = 0
        """Characters of text and arguments."""
        self.finishes: tuple[str, ...] = ()
        self.called_tools: tuple[str, ...] = ()
        self.describe_failure: Callable[[Failure], Failure] = keep_failure
        """For failures that are written here. What the provider says itself passes unchanged."""
        self.failure: Failure | None = None
        self.has_content = False
        self.has_complete_call = False
        self.ended = False
        self.is_unreadable = False
        """Was there a frame that is not JSON? Nothing passes after it: a client could take the rest for an answer."""

    def feed(self, data: bytes) -> bytes:
        if self.is_unreadable:
            return b""
        reader, start, out = self._reader, 0, b""
        for frame in split_after_frames(data) if data.find(b"\r") < 0 else _split_any_frames(data):
            if (text := reader.read_repeat(frame)) is not None:
                self.text_length += len(text)
            elif events := reader.feed(frame):
                if type(events[-1]) is ResponseFailed:
                    out, data, start = out + self._take_frames(data[:start]), data[start:], 0
                    readable = _readable_start(events[-1], self._partial_frame, frame)
                    if readable is not None:
                        return out + readable + self._fail_unreadable(events)
                self._last_event = events[-1]
                self._add_events(events)
            start += len(frame)
        return out + self._take_frames(data)

    def _take_frames(self, data: bytes) -> bytes:
        """The whole frames; a partial one waits for its end. Only new bytes are searched: a frame can be long."""
        held = self._partial_frame
        if not held and data.endswith(b"\n\n"):
            return data
        start = max(0, len(held) - _MAX_CUT_END)
        held += data
        if data.find(b"\n") < 0 and data.find(b"\r") < 0:
            return b""
        # A CR may be half of a line's end: the reader takes a frame that ends with it only with the next line.
        last_break = max(held.rfind(b"\n", start), held.rfind(b"\r", start))
        places = (
            (held.rfind(b"\n\n", start), 2),
            (held.rfind(b"\r\n\r\n", start), 4),
            (held.rfind(b"\r\r", 0 if self._has_held_end else start, last_break), 2),
        )
        end = max(place + size if place >= 0 else 0 for place, size in places)
        whole = bytes(held[:end])
        del held[:end]
        self._has_held_end = held.find(b"\r\r", max(0, start - end)) >= 0
        return whole

    def _fail_unreadable(self, events: list[Event]) -> bytes:
        self.is_unreadable = True
        self._add_events(events)
        if len(events) > 1:  # of a frame before it, whose end came together with this one
            self._last_event = events[-2]
        self._partial_frame.clear()
        failure, self.failure = self.failure, None
        return b"" if failure is None else self.fail(self.describe_failure(failure))

    def _add_events(self, events: list[Event]) -> None:
        for event in events:
            if type(event) not in _CONTENTLESS_EVENTS:
                self.has_content = True
            if type(event) is ResponseStart:
                self._start_event, self.usage = event, event.usage
            elif type(event) is UsageUpdate:
                self.usage = event.usage
            elif type(event) is ChoiceEnd:
                self.finishes += (event.finish.kind,)
            elif type(event) is ResponseEnd:
                self.ended = True
            elif type(event) is ResponseFailed:
                self.failure = event.failure
            else:
                self._add_part_event(event)

    def _add_part_event(self, event: Event) -> None:
        if type(event) is TextDelta or type(event) is ArgumentsDelta:
            self.text_length += len(event.text)
        elif type(event) is PartStart and isinstance(event.part, Call):
            self._open_calls.add(event.index)
            self.called_tools += (event.part.name,)
        elif type(event) is PartEnd and event.index in self._open_calls and not event.incomplete:
            self.has_complete_call = True

    @property
    def round_usage(self) -> Usage | None:
        return self.usage

    def keep_pending_results(self, results: tuple[Result, ...]) -> None:
        """A stream with tool calls that the gateway runs is never passed through."""

    def close(self) -> bytes:
        failed_before, ended_before = self.failure is not None, self.ended
        if not failed_before:
            self._add_events(self._reader.close())
        failure = self.failure
        if failed_before or failure is None:
            rest, self._partial_frame = bytes(self._partial_frame), bytearray()
            return rest if ended_before or not self.ended else self._add_end(rest)
        self.failure = None
        return self.fail(self.describe_failure(failure))

    def _add_end(self, rest: bytes) -> bytes:
        """The answer is complete, but its last frame is missing. What is left may be a frame without its blank line."""
        end = self._codec.http.stream_end
        return rest + b"\n\n" + end if rest and end else rest + end

    def fail(self, failure: Failure) -> bytes:
        """The stream broke. The partial frame that was held back is not sent."""
        if self.failure is not None or self.ended:
            return b""
        self.failure = failure
        before = None if self._last_event is self._start_event else self._last_event
        writer = self._codec.make_stream_writer(Ledger(self._codec.name, self._codec.name), WriteContext())
        # The writer must continue after the provider's frames, which it did not write.
        for event in (self._start_event, before):
            if event is not None:
                writer.write(event)
        return writer.write(ResponseFailed(failure)) + writer.close()


def _readable_start(failed: ResponseFailed, held: bytearray, last: bytes) -> bytes | None:
    """The frames before the one at which the reader failed because it is too long, or not a JSON object; None if there
    is no such frame. What else the reader does not understand may be of use to the client; and a failure that the
    provider reports has a frame of its own."""
    if failed.frame is not None and not failed.frame.silent:
        return None
    if failed.failure.code == "frame_too_long":
        return b""  # whole frames before it were taken already
    start, data = 0, bytes(held) + last
    for piece in _split_any_frames(data):
        splitter = SseSplitter()
        try:
            for frame in (*splitter.feed(piece), *splitter.close()):
                if frame.data.strip() not in (b"", b"[DONE]"):
                    expect_object(decode(frame.data), None)
        except (FrameTooLong, Malformed):
            return data[:start]
        start += len(piece)
    return None
