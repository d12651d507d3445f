"""What the stream writers of all protocols share: which method writes which event, and how a stream ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from toolwire.core import events as ev
from toolwire.core.codec import WriteContext
from toolwire.core.errors import truncated_stream_failure
from toolwire.core.framing import write_sse_frame
from toolwire.core.ir import Finish, Usage
from toolwire.core.losses import Ledger

_METHODS: Mapping[type, str] = {
    ev.ResponseStart: "write_start",
    ev.PartStart: "write_part_start",
    ev.TextDelta: "write_text",
    ev.ArgumentsDelta: "write_arguments",
    ev.SealDelta: "write_seal",
    ev.CitationDelta: "write_citation",
    ev.PartEnd: "write_part_end",
    ev.UsageUpdate: "write_usage",
    ev.ChoiceEnd: "write_choice_end",
    ev.ResponseEnd: "write_response_end",
    ev.ResponseFailed: "write_failure",
    ev.OpaqueEvent: "write_opaque_event",
}


class EventWriter:
    """Events of one answer in, bytes out. A codec's writer has a method for each event; those that write nothing and
    keep nothing for later may be left out."""

    protocol: ClassVar[str]
    _methods: ClassVar[Mapping[type, Callable[[Any, Any], bytes]]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._methods = {event: getattr(cls, name) for event, name in _METHODS.items()}

    def __init__(self, ledger: Ledger, context: WriteContext) -> None:
        self._ledger = ledger
        self._context = context
        self._last_frame: ev.SourceFrame | None = None
        """The last frame of a provider of the same protocol that was written as it came."""
        self._ended = False
        self._finish: Finish | None = None
        self._usage: Usage | None = None

    def write(self, event: ev.Event) -> bytes:
        frame = event.frame
        if frame is not None and frame.protocol == self.protocol:
            return self.write_verbatim(event, frame)
        return self._methods[type(event)](self, event)

    def close(self) -> bytes:
        return b"" if self._ended else self.write_failure(ev.ResponseFailed(truncated_stream_failure()))

    def write_verbatim(self, event: ev.Event, frame: ev.SourceFrame) -> bytes:
        """Write a frame of a provider of the same protocol as it came, once: several events may share it."""
        self.track_event(event)
        if frame.silent:
            # The provider sent no frame, but the client must get the failure.
            return self.write_failure(event) if isinstance(event, ev.ResponseFailed) else b""
        if frame is self._last_frame:
            return b""
        self._last_frame = frame
        return self.write_frame(event, frame)

    write_frame: Callable[[ev.Event, ev.SourceFrame], bytes] = staticmethod(write_sse_frame)

    def track_event(self, event: ev.Event) -> None:
        """Keep what the events need that follow without a frame."""
        if isinstance(event, (ev.ResponseEnd, ev.ResponseFailed)):
            self._ended = True

    def write_usage(self, event: ev.UsageUpdate) -> bytes:
        self._usage = event.usage
        return b""

    def write_choice_end(self, event: ev.ChoiceEnd) -> bytes:
        if event.choice == 0:
            self._finish = event.finish
        return b""

    def write_start(self, event: ev.ResponseStart) -> bytes:
        raise NotImplementedError

    def write_response_end(self, event: ev.ResponseEnd) -> bytes:
        raise NotImplementedError

    def write_failure(self, event: ev.ResponseFailed) -> bytes:
        raise NotImplementedError

    def write_opaque_event(self, event: ev.OpaqueEvent) -> bytes:
        if not event.is_ignorable:
            self._ledger.note("event-dropped", event.origin.path, f"the event `{event.kind}` was left out")
        return b""
