"""The answer of a `TextReader`, piece by piece."""

from __future__ import annotations

from itertools import groupby

from toolwire.tool_formats.frame import Piece, ReasoningText
from toolwire.tool_formats.quoted_text import MAX_BEFORE


class TextOutput:
    """What is sent, and where words of it would run together because a mark between them is not."""

    def __init__(self) -> None:
        self._pieces: list[Piece] = []
        self._needs_break = False
        """Was a mark dropped behind a word? Then a line break stands for it."""
        self._needs_thought_break = False
        """Did a block of reasoning end with a word?"""
        self.last_thoughts = ""
        """The end of the reasoning that was sent."""

    def put_text(self, text: str) -> None:
        self._pieces.append(self.break_line(text))

    def put_reasoning(self, text: str) -> None:
        text = f"\n{text}" if self._needs_thought_break and not text[0].isspace() else text
        self._needs_thought_break = False
        self.last_thoughts = (self.last_thoughts + text)[-MAX_BEFORE:]
        self._pieces.append(ReasoningText(text))

    def put_pieces(self, pieces: list[Piece]) -> None:
        self._pieces += pieces

    def drop_mark(self, is_after_word: bool) -> None:
        self._needs_break = self._needs_break or is_after_word
        self._needs_thought_break = bool(self.last_thoughts[-1:].strip())

    def break_line(self, text: str) -> str:
        """The text, with the line break that it needs before it."""
        text = f"\n{text}" if self._needs_break and not text[0].isspace() else text
        self._needs_break = False
        return text

    def take(self) -> list[Piece]:
        """What was sent since the last time, with texts that follow each other as one."""
        pieces, self._pieces = self._pieces, []
        joined: list[Piece] = []
        for kind, group in groupby(pieces, type):
            if kind is str:
                joined.append("".join(map(str, group)))
            elif kind is ReasoningText:
                joined.append(ReasoningText("".join(one.text for one in group if isinstance(one, ReasoningText))))
            else:
                joined += group
        return joined
