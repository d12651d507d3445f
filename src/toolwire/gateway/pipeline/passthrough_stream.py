"""A stream whose bytes reach the client unchanged, in whole frames; a reader watches its usage and its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from toolwire.core.codec import Codec, WriteContext
from toolwire.core.events import (
    ChoiceEnd,
    Event,
    OpaqueEvent,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
    UsageUpdate,
)
from toolwire.core.ir import EMPTY_MAPPING, Call, Failure, Result, Usage
from toolwire.core.losses import Ledger
from toolwire.core.sse import split_after_frames
from toolwire.translation.tool_rounds import Rounds

_FRAME_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")


class PassthroughStream:
    """Has the interface of `StreamTranslation`. A partial frame is held back: if the rest never comes, the client gets
    the failure in a frame that it can read."""

    needs_next_round = False
    ledger = None
    rounds: Rounds | None = None
    memory_records = EMPTY_MAPPING
    """Nothing is stored: a server whose seals must be stored has a quirk, and such streams are translated."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._reader = codec.make_stream_reader()
        self._partial_frame = b""
        self._start_event: ResponseStart | None = None
        self._last_event: Event | None = None
        self._open_calls: set[int] = set()
        self.usage: Usage | None = None
        self.finishes: tuple[str, ...] = ()
        self.failure: Failure | None = None
        self.has_content = False
        self.has_complete_call = False
        self.ended = False

    def feed(self, data: bytes) -> bytes:
        reader = self._reader
        for frame in split_after_frames(data):
            if reader.read_repeat(frame) is None and (events := reader.feed(frame)):
                self._last_event = events[-1]
                self._add_events(events)
        if not self._partial_frame and data.endswith(b"\n\n"):
            return data
        return self._take_whole_frames(self._partial_frame + data)

    def _take_whole_frames(self, data: bytes) -> bytes:
        """Up to the last end of a frame; the rest is held back."""
        end = max(data.rfind(mark) + len(mark) if data.find(mark) >= 0 else 0 for mark in _FRAME_ENDS)
        self._partial_frame = data[end:]
        return data[:end]

    def _add_events(self, events: list[Event]) -> None:
        for event in events:
            callback = _EVENT_CALLBACKS.get(type(event))
            if callback is None:
                self.has_content = True
            else:
                callback(self, event)

    def _on_response_start(self, event: ResponseStart) -> None:
        self._start_event, self.usage = event, event.usage

    def _on_usage(self, event: UsageUpdate) -> None:
        self.usage = event.usage

    def _on_part_start(self, event: PartStart) -> None:
        self.has_content = True
        if isinstance(event.part, Call):
            self._open_calls.add(event.index)

    def _on_part_end(self, event: PartEnd) -> None:
        self.has_content = True
        if event.index in self._open_calls and not event.incomplete:
            self.has_complete_call = True

    def _on_choice_end(self, event: ChoiceEnd) -> None:
        self.has_content = True
        self.finishes += (event.finish.kind,)

    def _on_response_end(self, event: ResponseEnd) -> None:
        self.has_content = self.ended = True

    def _on_failure(self, event: ResponseFailed) -> None:
        self.failure = event.failure

    def _on_opaque_event(self, event: OpaqueEvent) -> None:
        """An event that only one protocol knows is not content."""

    def keep_pending_results(self, results: tuple[Result, ...]) -> None:
        """A stream with tool calls that the gateway runs is never passed through."""

    def close(self) -> bytes:
        failed_before = self.failure is not None
        if not failed_before:
            self._add_events(self._reader.close())
        failure = self.failure
        if failed_before or failure is None:
            rest, self._partial_frame = self._partial_frame, b""
            return rest
        self.failure = None
        return self.fail(failure)

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


_EVENT_CALLBACKS: Mapping[type, Callable[[PassthroughStream, Any], None]] = {
    ResponseStart: PassthroughStream._on_response_start,
    UsageUpdate: PassthroughStream._on_usage,
    PartStart: PassthroughStream._on_part_start,
    PartEnd: PassthroughStream._on_part_end,
    ChoiceEnd: PassthroughStream._on_choice_end,
    ResponseEnd: PassthroughStream._on_response_end,
    ResponseFailed: PassthroughStream._on_failure,
    OpaqueEvent: PassthroughStream._on_opaque_event,
}
"""What to keep of each event; all others only count as content."""
