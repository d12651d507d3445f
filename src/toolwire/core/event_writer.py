"""What the stream writers of all protocols share: which method writes which event, and how a stream ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from toolwire.core.codec import WriteContext
from toolwire.core.errors import truncated_stream_failure
from toolwire.core.events import (
    ArgumentsDelta,
    ChoiceEnd,
    CitationDelta,
    Event,
    OpaqueEvent,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
    SealDelta,
    SourceFrame,
    TextDelta,
    UsageUpdate,
)
from toolwire.core.losses import Ledger

_METHODS: Mapping[type, str] = {
    ResponseStart: "write_start",
    PartStart: "write_part_start",
    TextDelta: "write_text",
    ArgumentsDelta: "write_arguments",
    SealDelta: "write_seal",
    CitationDelta: "write_citation",
    PartEnd: "write_part_end",
    UsageUpdate: "write_usage",
    ChoiceEnd: "write_choice_end",
    ResponseEnd: "write_response_end",
    ResponseFailed: "write_failure",
    OpaqueEvent: "write_opaque_event",
}


class EventWriter:
    """Events of one answer in, bytes out. A codec's writer has a method for each event; those that write nothing and
    keep nothing for later may be left out."""

    protocol: ClassVar[str]
    _methods: ClassVar[Mapping[type, Callable[[Any, Any], bytes]]]

    def __init_subclass__(cls) -> None:
        cls._methods = {event: getattr(cls, name) for event, name in _METHODS.items()}

    def __init__(self, ledger: Ledger, context: WriteContext) -> None:
        self._ledger = ledger
        self._context = context
        self._last_frame: SourceFrame | None = None
        """The last frame of a provider of the same protocol that was written as it came."""
        self._ended = False

    def write(self, event: Event) -> bytes:
        frame = event.frame
        if frame is not None and frame.protocol == self.protocol:
            return self.write_verbatim(event, frame)
        return self._methods[type(event)](self, event)

    def close(self) -> bytes:
        return b"" if self._ended else self.write_failure(ResponseFailed(truncated_stream_failure()))

    def write_verbatim(self, event: Event, frame: SourceFrame) -> bytes:
        """Write a frame of a provider of the same protocol as it came, once: several events may share it."""
        raise NotImplementedError

    def write_failure(self, event: ResponseFailed) -> bytes:
        raise NotImplementedError

    def write_opaque_event(self, event: OpaqueEvent) -> bytes:
        if not event.is_ignorable:
            self._ledger.note("event-dropped", event.origin.path, f"the event `{event.kind}` was left out")
        return b""
