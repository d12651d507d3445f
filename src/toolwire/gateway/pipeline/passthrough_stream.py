"""A stream that passes untouched: its bytes go on in whole frames, and are looked at when somebody asks."""

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
from toolwire.core.sse import RepeatReader
from toolwire.gateway.upstream.connection import ChunkSink
from toolwire.translation.tool_rounds import Rounds

_FRAME_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")
_MAX_UNREAD = 8 * 1024
"""Bytes that wait until they are looked at together: many frames in a row cost less than one at a time."""
_EAGER_READS = 4
"""Pieces in a row that are looked at as they come, because the next may be like them and need no look."""


class _CompleteCallWatch:
    """Looks whether a whole call has gone by."""

    def __init__(self) -> None:
        self._open_calls: set[int] = set()
        self.has_complete_call = False

    def add_event(self, event: PartStart | PartEnd) -> None:
        if isinstance(event, PartEnd):
            self.has_complete_call = self.has_complete_call or (
                event.index in self._open_calls and not event.incomplete
            )
        elif isinstance(event.part, Call):
            self._open_calls.add(event.index)


class PassthroughStream:
    """Looks like a `StreamTranslation` from outside. Half a frame is held back: if the rest of it never comes, the
    client is told of the failure in a frame that it can read. Only its end, and a failure, are worth a look, so pieces
    wait for it until there are some, or until somebody asks."""

    is_paused = False
    ledger = None
    rounds: Rounds | None = None
    memory_records = EMPTY_MAPPING
    """Servers whose seals are kept have a quirk for it, and what has quirks does not pass."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._reader = codec.make_stream_reader()
        self.read_repeat: RepeatReader | None = None
        """What knows a piece that needs no look, while all before it was looked at."""
        self._eager_reads = _EAGER_READS if hasattr(self._reader, "read_repeat") else 0
        self._partial_frame = b""
        self._unread = bytearray()
        self._start_event: ResponseStart | None = None
        self._last_event: Event | None = None
        self._usage: Usage | None = None
        self._finishes: tuple[str, ...] = ()
        self._failure: Failure | None = None
        self._has_content = False
        self._ended = False
        self._call_watch = _CompleteCallWatch()

    @property
    def usage(self) -> Usage | None:
        if self._unread:
            self._read_unread()
        return self._usage

    @property
    def finishes(self) -> tuple[str, ...]:
        if self._unread:
            self._read_unread()
        return self._finishes

    @property
    def failure(self) -> Failure | None:
        if self._unread:
            self._read_unread()
        return self._failure

    @property
    def has_content(self) -> bool:
        if self._unread:
            self._read_unread()
        return self._has_content

    @property
    def ended(self) -> bool:
        if self._unread:
            self._read_unread()
        return self._ended

    @property
    def has_complete_call(self) -> bool:
        if self._unread:
            self._read_unread()
        return self._call_watch.has_complete_call

    def make_sink(self, write: ChunkSink, fallback: ChunkSink) -> ChunkSink:
        """Puts what is known by its bytes, and leaves the rest to the other, who feeds it."""

        def forward(data: bytes) -> bool:
            again = self.read_repeat
            if again is None or again(data) is None:
                return fallback(data)
            self._eager_reads = _EAGER_READS
            return write(data)

        return forward

    def feed(self, data: bytes) -> bytes:
        unseen = self._unread
        unseen += data
        self.read_repeat = None
        if self._eager_reads or len(unseen) > _MAX_UNREAD:
            self._eager_reads = max(0, self._eager_reads - 1)
            self._read_unread()
        if not self._partial_frame and data.endswith(b"\n\n"):
            return data
        return self._take_whole_frames(self._partial_frame + data)

    def _take_whole_frames(self, data: bytes) -> bytes:
        """Up to the last end of a frame; the rest is held back."""
        end = max(data.rfind(mark) + len(mark) if data.find(mark) >= 0 else 0 for mark in _FRAME_ENDS)
        self._partial_frame = data[end:]
        return data[:end]

    def _read_unread(self) -> None:
        unseen = bytes(self._unread)
        self._unread.clear()
        events = self._reader.feed(unseen)
        self.read_repeat = getattr(self._reader, "read_repeat", None)
        if not events:
            return
        self._last_event = events[-1]
        self._add_events(events)
        if self._failure is not None:
            self.read_repeat = None  # what follows may repeat a key, and is looked into

    def _add_events(self, events: list[Event]) -> None:
        for event in events:
            see = _EVENT_CALLBACKS.get(type(event))
            if see is None:
                self._has_content = True
            else:
                see(self, event)

    def _on_response_start(self, event: ResponseStart) -> None:
        self._start_event, self._usage = event, event.usage

    def _on_usage(self, event: UsageUpdate) -> None:
        self._usage = event.usage

    def _on_part(self, event: PartStart | PartEnd) -> None:
        self._has_content = True
        self._call_watch.add_event(event)

    def _on_choice_end(self, event: ChoiceEnd) -> None:
        self._has_content = True
        self._finishes += (event.finish.kind,)

    def _on_response_end(self, event: ResponseEnd) -> None:
        self._has_content = self._ended = True

    def _on_failure(self, event: ResponseFailed) -> None:
        self._failure = event.failure

    def _on_carried(self, event: OpaqueEvent) -> None:
        """What only one protocol knows is no part of the answer."""

    def keep_pending_results(self, results: tuple[Result, ...]) -> None:
        """Nothing passes by whose calls are not the client's."""

    def close(self) -> bytes:
        told = self.failure is not None
        if not told:
            self._add_events(self._reader.close())
        failure = self._failure
        if told or failure is None:
            held, self._partial_frame = self._partial_frame, b""
            return held
        self._failure = None
        return self.fail(failure)

    def fail(self, failure: Failure) -> bytes:
        """The stream broke off. What was held back is no whole frame and is not sent."""
        if self.failure is not None or self.ended:
            return b""
        self._failure = failure
        before = None if self._last_event is self._start_event else self._last_event
        writer = self._codec.make_stream_writer(Ledger(self._codec.name, self._codec.name), WriteContext())
        # The writer goes on from where the provider's frames, which it did not write, have come to.
        for event in (self._start_event, before):
            if event is not None:
                writer.write(event)
        return writer.write(ResponseFailed(failure)) + writer.close()


_EVENT_CALLBACKS: Mapping[type, Callable[[PassthroughStream, Any], None]] = {
    ResponseStart: PassthroughStream._on_response_start,
    UsageUpdate: PassthroughStream._on_usage,
    PartStart: PassthroughStream._on_part,
    PartEnd: PassthroughStream._on_part,
    ChoiceEnd: PassthroughStream._on_choice_end,
    ResponseEnd: PassthroughStream._on_response_end,
    ResponseFailed: PassthroughStream._on_failure,
    OpaqueEvent: PassthroughStream._on_carried,
}
"""What is looked at; of all others it only matters that there are some."""
