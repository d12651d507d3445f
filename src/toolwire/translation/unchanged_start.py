"""The start of an answer that a repair has not changed yet, where client and provider speak one protocol.

As long as the repaired events say the same as the events that came, the client gets the provider's own frames, with all
that only this protocol knows. Frames wait while a repair holds back what they say, because it may be the beginning of a
call. From the first change on, the answer is written again: the new writer is told the history first, so that it goes
on where the frames end.
"""

from __future__ import annotations

from typing import Final

from toolwire.core import events as ev
from toolwire.core.framing import Framing
from toolwire.core.ir import Call, Text

_MAX_OPAQUE: Final = 1000
"""Events that only one protocol knows, and that the writer is told. The first ones matter: in Chat they announce the
choices, one by one."""


class UnchangedStart:
    """The events of the answer so far, as they came and as they were repaired."""

    def __init__(self, framing: Framing) -> None:
        self._frame_ends = framing.frame_ends
        self._is_at_frame_start = True
        self._waiting_frames: list[ev.Event | bytes] = []
        """Events with their frames, and frames that were recognised by their bytes."""
        self._received: list[ev.Event] = []
        """The events of the waiting frames as they came."""
        self._repaired: list[ev.Event] = []
        """The same events, repaired."""
        self._held_size = 0
        """How much less the repaired events say."""
        self._has_parts = False
        """Do the waiting frames say something of a part?"""
        self._is_over = False
        self._choices: dict[int, int] = {}
        """The choice of each part that has not ended."""
        self._open_calls: dict[int, int] = {}
        """The part of each choice that is a call which has not ended."""
        self._is_interleaved = False
        """Came more of another part of its choice in a call? The new writer would hold it back, and the client has it
        already."""
        self._sent_events: list[ev.Event] = []
        self._opaque_left = _MAX_OPAQUE
        self._last_delta: ev.Delta = ev.TextDelta(-1, "")
        self._last_texts: list[str] = []
        """The texts of the last part that were sent after `_sent_events`."""

    def is_whole_frame(self, piece: bytes) -> bool:
        """Is a piece of the stream one frame? Asked for every piece."""
        was_at_frame_start, self._is_at_frame_start = self._is_at_frame_start, piece.endswith(self._frame_ends)
        return was_at_frame_start and self._is_at_frame_start

    def add_events(self, received: list[ev.Event], repaired: list[ev.Event], frame: bytes = b"") -> None:
        """More events, and their frame, if they have none themselves."""
        self._waiting_frames += [frame] if frame else received
        self._received += received
        self._repaired += repaired
        self._held_size += sum(map(_event_size, received)) - sum(map(_event_size, repaired))
        for event in repaired:
            self._follow_call(event)
        for event in received:
            self._is_over = self._is_over or isinstance(event, (ev.ResponseEnd, ev.ResponseFailed))
            is_beside = isinstance(event, (ev.ResponseStart, ev.UsageUpdate, ev.OpaqueEvent))
            self._has_parts = self._has_parts or not is_beside

    def _follow_call(self, event: ev.Event) -> None:
        if not isinstance(event, ev.PartEvent):
            return
        index = event.index
        if isinstance(event, ev.PartStart):
            self._choices[index] = event.choice
        choice = self._choices.get(index, 0)
        if self._open_calls.get(choice, index) != index:
            self._is_interleaved = True
        elif isinstance(event, ev.PartStart) and isinstance(event.part, Call):
            self._open_calls[choice] = index
        elif isinstance(event, ev.PartEnd):
            self._choices.pop(index, None)
            self._open_calls.pop(choice, None)

    def send_text(self, delta: ev.Delta, text: str) -> bool:
        """A text of the same part as a delta, which the repair has not changed, can be sent. False if it must wait."""
        if self._waiting_frames:
            return False
        if delta is not self._last_delta:
            self._end_texts()
            self._last_delta = delta
        self._last_texts.append(text)
        return True

    @property
    def is_changed(self) -> bool:
        """Do the repaired events say something else about their parts, or in an order that is not written?"""
        if self._is_interleaved:
            return True
        return not (self._is_waiting or self._is_over) and _outline(self._received) != _outline(self._repaired)

    def take_frames(self) -> list[ev.Event | bytes]:
        """The frames that can be sent: all, unless the repair holds something back. At the end it does not. Frames that
        only announce a part (the role in Chat, an output item in Responses) wait for it: it may become another one."""
        if self._is_waiting:
            return []
        self._end_texts()
        for event in self._repaired:
            if isinstance(event, ev.OpaqueEvent):
                if event.failure is not None or not self._opaque_left:
                    continue
                self._opaque_left -= 1
            self._sent_events.append(event)
        frames, self._waiting_frames, self._received, self._repaired = self._waiting_frames, [], [], []
        self._has_parts = False
        return frames

    @property
    def _is_waiting(self) -> bool:
        return not self._is_over and (self._held_size != 0 or not self._has_parts)

    @property
    def sent_events(self) -> list[ev.Event]:
        """What the client has been told."""
        self._end_texts()
        return self._sent_events

    @property
    def unsent_events(self) -> list[ev.Event]:
        """The repaired events that the client has not been told."""
        return self._repaired

    def _end_texts(self) -> None:
        if self._last_texts:
            self._sent_events.append(type(self._last_delta)(self._last_delta.index, "".join(self._last_texts)))
            self._last_texts = []


def _event_size(event: ev.Event) -> int:
    if isinstance(event, (ev.TextDelta, ev.ArgumentsDelta)):
        return len(event.text)
    if isinstance(event, (ev.UsageUpdate, ev.OpaqueEvent)):
        return 0
    return 1 + len(event.part.text) if isinstance(event, ev.PartStart) and isinstance(event.part, Text) else 1


def _outline(events: list[ev.Event]) -> dict[tuple[type, int], str]:
    """What events say of each part: a repair may let a seal or a count overtake the text that it holds back."""
    outline: dict[tuple[type, int], list[str]] = {}
    for event in events:
        if isinstance(event, (ev.TextDelta, ev.ArgumentsDelta)):
            if event.text:
                outline.setdefault((type(event), event.index), []).append(event.text)
        elif isinstance(event, (ev.PartStart, ev.PartEnd, ev.SealDelta, ev.CitationDelta)):
            outline.setdefault((type(event), event.index), []).append("once")
            if isinstance(event, ev.PartStart) and isinstance(event.part, Text) and event.part.text:
                outline.setdefault((ev.TextDelta, event.index), []).append(event.part.text)
    return {key: "".join(texts) for key, texts in outline.items()}
