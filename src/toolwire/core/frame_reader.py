"""What the stream readers of all protocols share: from bytes to frames, the events in them, and frames that repeat."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Protocol

from toolwire.core.events import Event, ResponseFailed, SourceFrame
from toolwire.core.ir import Failure
from toolwire.core.json_values import Path
from toolwire.core.sse import Frame, FrameTemplate, FrameTooLong, SseSplitter
from toolwire.core.tokens import measure_text

EVENT_PATH: Path = (None, "event")
"""Where the frames of a stream are, each by its number."""


def ignore_text(text: str) -> None:
    """For texts that nobody collects."""


class StreamSplitter(Protocol):
    """Bytes in, frames out. Raises FrameTooLong."""

    @property
    def is_between_frames(self) -> bool: ...

    def feed(self, data: bytes) -> list[Frame]: ...

    def close(self) -> list[Frame]: ...


class FrameReader:
    """Bytes of one answer in, events out. A codec's reader has a method for a frame, and one for the end of the
    input."""

    silent_frame: ClassVar[SourceFrame]
    """For events that no frame of the provider stands for."""

    def __init__(self, splitter: StreamSplitter | None = None) -> None:
        self.replaced_halves: list[Path] = []
        self.is_frame_changed = False
        self.repeated_length = 0
        self._splitter = splitter or SseSplitter()
        self._events: list[Event] = []
        """The events of the bytes that are being read."""
        self._frame = self.silent_frame
        """The frame that is being read."""
        self._frame_count = 0
        self._started = False
        self._ended = False
        """Has the answer ended, or failed?"""
        self._is_over = False
        """Is everything that follows ignored?"""
        self._template: FrameTemplate | None = None
        """Recognises the next frame, if the last one was a delta and only the text differs."""
        self._failed_templates = 0
        """Templates made since one matched."""
        self._add_repeat: Callable[[str], object] = ignore_text
        """Takes the text of a frame that the template recognised; set with the template."""

    @property
    def has_unstarted_call(self) -> bool:
        return False

    def feed(self, data: bytes) -> list[Event]:
        self._events = []
        if self._is_over:
            return self._events
        try:
            frames = self._splitter.feed(data)
        except FrameTooLong as error:
            self._fail_stream(str(error), "frame_too_long")
            return self._events
        self._read_frames(frames)
        if not self._splitter.is_between_frames:
            self._template = None
        return self._events

    def close(self) -> list[Event]:
        self._events = []
        if not self._is_over:
            self._read_frames(self._splitter.close())
        if not self._ended:
            self._frame = self.silent_frame
            self._end_input()
        return self._events

    def _read_frames(self, frames: list[Frame]) -> None:
        for frame in frames:
            path = (EVENT_PATH, self._frame_count)
            self._frame_count += 1
            self._template = None
            self._read_frame(frame, path)
            if self._is_over:
                return

    def _read_frame(self, raw: Frame, path: Path) -> None:
        raise NotImplementedError

    def _end_input(self) -> None:
        """End the answer, or fail it: the input has ended, and nothing in it was the end."""
        raise NotImplementedError

    def _fail_stream(self, problem: str, code: str = "invalid_stream") -> None:
        failure = Failure("upstream", f"the provider's stream cannot be read: {problem}", 502, code)
        self._fail(failure, self.silent_frame)

    def _fail(self, failure: Failure, frame: SourceFrame | None) -> None:
        if not self._ended:
            self._events.append(ResponseFailed(failure, frame))
        self._ended = self._is_over = True
        self._template = None

    def read_repeat(self, data: bytes) -> str | None:
        text = None if self._template is None else self._template.match_text(data)
        if text is not None:
            self._frame_count += 1
            self._failed_templates = 0
            self.repeated_length += len(text) if text.isascii() else measure_text(text)
            self._add_repeat(text)
        return text
