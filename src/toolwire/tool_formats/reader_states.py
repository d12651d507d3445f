"""Where a `TextReader` is in an answer, and what it holds back there.

::

                    an opening of a format                    an opening mark
         InFrame ◀────────────────────────── InText ─────────────────────────▶ InReasoning ◀─┐
            │                                 ▲  ▲                               │   │       │ the closing mark:
            └─ read, refused, or too long ────┘  └──────── the closing mark ─────┘   │       │ the call was a draft
                                                 ▲                                   ▼       │
                                                 └── the end: the call is meant ── InDraft ──┘
                                                                  an opening of a format

===========  =========================================  ==============================================================
state        held back                                  more text
===========  =========================================  ==============================================================
InText       what may begin a mark or a frame           is sent until the next place where something may begin
InFrame      the frame                                  is shown to the format when a mark has come that it waits for
InReasoning  what may begin a closing mark or a call;   is sent as reasoning
             blanks, if the opening was in the prompt
InDraft      everything since the call                  waits for the closing mark, or for the end of the answer
===========  =========================================  ==============================================================

Calls that were read wait beside these states (`PendingCalls`), until it is clear that they are meant.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from msgspec import Struct

from toolwire.tool_formats.reasoning_marks import ReasoningMark
from toolwire.tool_formats.vocabulary import Opening

MAX_HELD: Final = 1_000_000
"""Characters that are held back at most; then they are text."""
_WORK_FACTOR: Final = 8
FREE_WORK: Final = MAX_HELD // 2
"""The readers may look at each character `_WORK_FACTOR` times, and at `FREE_WORK` more. Then everything is text. Only
a text that is made to take long gets there."""
MAX_REFUSALS: Final = 1000
"""Places that begin nothing although they look so. Then everything is text: a real answer has a few."""
_FREE_ASKS: Final = 16
"""After so many questions about one frame, the next comes only when its text has doubled."""


class InText(Struct):
    """In the text of the answer."""


class InReasoning(Struct):
    """Reasoning is open."""

    mark: ReasoningMark


class Watch(Struct, kw_only=True):
    """Text is held back until one of some marks comes."""

    marks: tuple[str, ...] = ()
    tail: str = ""
    """The end of the text, in which a mark may have begun."""
    has_mark: bool = False
    """Has a mark come since the last question?"""
    asks: int = 0
    next_length: int = 0
    """Characters of the frame before the next question."""

    def watch(self, text: str, marks: tuple[str, ...], asked_length: int) -> None:
        """Wait for these marks behind the text."""
        self.marks = marks
        self.tail = self.cut_tail(text)
        self.has_mark = False
        self.asks += 1
        self.next_length = 2 * asked_length if self.asks > _FREE_ASKS else 0

    def see(self, text: str) -> None:
        """More text has come."""
        window = self.tail + text
        self.has_mark = self.has_mark or any(mark in window for mark in self.marks)
        self.tail = self.cut_tail(window)

    def cut_tail(self, text: str) -> str:
        length = max(map(len, self.marks), default=0) - 1
        return text[-length:] if length > 0 else ""


class InFrame(Watch):
    """A frame may have begun."""

    openings: list[Opening]
    """The formats that can still be meant, in the order in which they are asked."""
    is_shown: bool = False
    """Is it in quoted text? Then it is no call, whatever it says."""


class InDraft(Watch):
    """A call has begun in open reasoning. It may be a draft."""

    mark: ReasoningMark
    """That of the reasoning."""


State: TypeAlias = InText | InFrame | InReasoning | InDraft
IN_TEXT: Final = InText()


class SeenMarks(Struct):
    """Marks of reasoning and answers that matter for those that follow."""

    was_reasoning_closed: bool = False
    shown_closings: list[str] = []
    """The closings of marks that the answer shows within its text: they end no reasoning."""
    answer_closing: str = ""
    """The closing of a mark around the answer that is open."""


class WorkBudget(Struct):
    """Characters that came, and those that the readers have looked at."""

    fed: int = 0
    done: int = 0

    def spend(self, work: int) -> bool:
        """False: it is used up."""
        self.done += work
        return self.done <= _WORK_FACTOR * self.fed + FREE_WORK
