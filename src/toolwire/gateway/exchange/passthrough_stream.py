"""A stream whose bytes reach the client unchanged, in whole frames; a reader watches its usage and its end."""

from __future__ import annotations

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
from toolwire.core.losses import Ledger
from toolwire.core.tokens import measure_text
from toolwire.translation.streaming import keep_failure, may_pass
from toolwire.translation.tool_rounds import Rounds

_CONTENTLESS_EVENTS = frozenset({ResponseStart, UsageUpdate, ResponseFailed, OpaqueEvent})
"""An event that only one protocol knows (`OpaqueEvent`) is not content either."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class PassthroughStream:
    """Has the interface of `StreamTranslation`. Only whole frames that the reader has understood are sent. The client's
    stream has one end: the provider's end or error, if clients take it for one, or a failure that is written here."""

    needs_next_round = False
    ledger: Ledger | None = None
    """Set where something in it was read in another way than it is written."""
    rounds: Rounds | None = None
    memory_records = EMPTY_MAPPING
    """Nothing is stored: a server whose seals must be stored has a quirk, and such streams are translated."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._framing = codec.http.framing
        self._reader = codec.make_stream_reader()
        self._partial_frame = bytearray()
        self._has_started = False
        self._is_frame_read_late = False
        """Does the reader wait with the last frame for the next, because it ends with half of a character?"""
        self._second_failure_event = codec.http.second_failure_event
        self._start_event: ResponseStart | None = None
        self._last_event: Event | None = None
        self._open_calls: set[int] = set()
        self.usage: Usage | None = None
        self._event_text_length = 0
        self.finishes: tuple[str, ...] = ()
        self.called_tools: tuple[str, ...] = ()
        self.describe_failure: Callable[[Failure], Failure] = keep_failure
        """For failures that are written here. What the provider says itself passes unchanged."""
        self.failure: Failure | None = None
        self.has_content = False
        self.has_complete_call = False
        self.ended = False
        self.is_cut_off = False
        """Was a failure written here? Nothing passes after it: a client could take the rest for an answer."""

    def feed(self, data: bytes) -> bytes:
        if self.is_cut_off:
            return b""
        if not self._partial_frame and self._reader.read_repeat(data) is not None:  # one delta after another, mostly
            return data
        return b"".join(map(self._pass_frame, self._framing.cut_frames(self._partial_frame, data)))

    def _pass_frame(self, frame: bytes) -> bytes:
        if self.is_cut_off:
            return b""
        if self._reader.read_repeat(frame) is not None:
            return frame
        frame = self._strip_mark(frame)
        return self._take_events(self._reader.feed(self._framing.prepare_frame(frame)), frame)

    def _strip_mark(self, frame: bytes) -> bytes:
        """SDKs do not expect a byte order mark."""
        is_first, self._has_started = not self._has_started, True
        return frame.removeprefix(_BYTE_ORDER_MARK) if is_first else frame

    def _take_events(self, events: list[Event], frame: bytes) -> bytes:
        """What the client gets of the frame from which these events were read."""
        is_late, self._is_frame_read_late = self._is_frame_read_late, not events and frame.find(b"\\u") >= 0
        last = events[-1] if events else None
        if self.ended or self.failure is not None:
            return frame if self._framing.is_silent(frame) or self._repeats_failure(last) else b""
        if last is None:
            return frame
        self._add_events(events)
        failure = last.failure if type(last) is ResponseFailed else None
        # Gemini's reader takes bare JSON too, which is of no use where the client expects frames.
        is_frame = frame.startswith(self._framing.frame_starts) or self._framing.is_frame(frame)
        if is_frame and (failure is None or _has_frame(last)):
            self._last_event = last
            if self._reader.is_frame_changed:
                return self._framing.write_frames(events)
            return self._framing.name_frame(last, frame) if type(last) is not OpaqueEvent or may_pass(last) else b""
        self._last_event = events[-2] if len(events) > 1 else self._last_event
        is_readable = is_frame and not is_late and any(map(_has_frame, events))
        self.is_cut_off, self.ended, self.failure = True, False, None
        self._partial_frame.clear()
        ended = self._framing.end_frame(frame) if is_readable else b""
        return ended + self.fail(self.describe_failure(failure or self._not_frames()))

    def _not_frames(self) -> Failure:
        message = f"the provider's stream is not made of {self._framing.frames_name}"
        return Failure("upstream", message, 502, "invalid_stream")

    def _repeats_failure(self, event: Event | None) -> bool:
        """Once: nothing else follows the end."""
        kind, self._second_failure_event = self._second_failure_event, ""
        return not self.ended and type(event) is OpaqueEvent and event.kind == kind

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
                if event.unknown_fields:
                    self._note_odd_shapes(event)
            elif type(event) is ResponseFailed:
                self.failure = event.failure
            else:
                self._add_part_event(event)

    def _note_odd_shapes(self, event: ResponseEnd) -> None:
        ledger = Ledger(self._codec.name, self._codec.name)
        ledger.note_foreign_fields(event)
        self.ledger = ledger if ledger.notes else None

    def _add_part_event(self, event: Event) -> None:
        if type(event) is TextDelta or type(event) is ArgumentsDelta:
            self._event_text_length += measure_text(event.text)
        elif type(event) is PartStart and isinstance(event.part, Call):
            self._open_calls.add(event.index)
            self.called_tools += (event.part.name,)
        elif type(event) is PartEnd and event.index in self._open_calls and not event.incomplete:
            self.has_complete_call = True

    @property
    def text_length(self) -> int:
        """Characters of text and arguments, as `measure_text` counts them."""
        return self._event_text_length + self._reader.repeated_length

    @property
    def round_usage(self) -> Usage | None:
        return self.usage

    def keep_pending_results(self, results: tuple[Result, ...]) -> None:
        """A stream with tool calls that the gateway runs is never passed through."""

    def close(self) -> bytes:
        if self.is_cut_off:
            return b""
        rest, self._partial_frame = self._strip_mark(bytes(self._partial_frame)), bytearray()
        events = self._reader.feed(self._framing.prepare_frame(rest)) if rest else []
        events = events + self._reader.close()
        out = self._take_events(events, rest)
        if not events or self.failure is not None:
            return out
        # Where the end has no frame, the answer is complete, but its last frame is missing.
        return self._framing.end_frame(out) + (b"" if _has_frame(events[-1]) else self._codec.http.stream_end)

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


def _has_frame(event: Event) -> bool:
    return event.frame is not None and not event.frame.silent
