"""What the stream readers of all protocols share: the frame that is read, the events in it, and frames that repeat."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from toolwire.core.events import Event, SourceFrame
from toolwire.core.json_values import Path
from toolwire.core.sse import FrameTemplate
from toolwire.core.tokens import measure_text

EVENT_PATH: Path = (None, "event")
"""Where the frames of a stream are, each by its number."""


def ignore_text(text: str) -> None:
    """For texts that nobody collects."""


class FrameReader:
    """Bytes of one answer in, events out."""

    silent_frame: ClassVar[SourceFrame]
    """For events that no frame of the provider stands for."""

    def __init__(self) -> None:
        self.replaced_halves: list[Path] = []
        self.is_frame_changed = False
        self.repeated_length = 0
        self._events: list[Event] = []
        """The events of the bytes that are being read."""
        self._frame = self.silent_frame
        """The frame that is being read."""
        self._frame_count = 0
        self._started = False
        self._ended = False
        self._template: FrameTemplate | None = None
        """Recognises the next frame, if the last one was a delta and only the text differs."""
        self._failed_templates = 0
        """Templates made since one matched."""
        self._add_repeat: Callable[[str], object] = ignore_text
        """Takes the text of a frame that the template recognised; set with the template."""

    def read_repeat(self, data: bytes) -> str | None:
        text = None if self._template is None else self._template.match_text(data)
        if text is not None:
            self._frame_count += 1
            self._failed_templates = 0
            self.repeated_length += len(text) if text.isascii() else measure_text(text)
            self._add_repeat(text)
        return text
