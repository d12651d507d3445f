"""Calls that were found in text, and wait until it is clear that they are meant."""

from __future__ import annotations

from msgspec import Struct

from toolwire.tool_formats.frame import Piece
from toolwire.tool_formats.mentions import Candidate


class PendingCalls(Struct):
    """Calls that wait, and what is said between and behind them."""

    pieces: list[Piece] = []
    texts: list[str] = []
    """Their source."""
    words_end: int = 0
    """How many of these texts stand before the blanks at the end."""
    candidate: Candidate | None = None
    """The last frame with calls; None if nothing is pending."""
    behind: list[str] = []
    """The text behind it."""
    behind_size: int = 0
    size: int = 0
    """Characters of all of it."""

    def add_frame(self, pieces: list[Piece], source: str, candidate: Candidate) -> None:
        self.keep_blanks()
        self.pieces += pieces
        self.texts.append(source)
        self.size += len(source)
        self.candidate, self.behind, self.behind_size = candidate, [], 0

    def keep_blanks(self) -> None:
        """The blanks behind words that wait belong to them, however the text was cut."""
        blanks = "".join(self.texts[self.words_end :]) if self.words_end else ""
        if blanks.isspace():
            self.pieces.append(blanks)
            self.words_end = len(self.texts)

    def find_blanks(self) -> str:
        """The blanks behind the calls, and behind the words that wait with them."""
        blanks = ""
        for text in reversed(self.texts[self.words_end :]):
            words = text.rstrip()
            blanks = text[len(words) :] + blanks
            if words:
                break
        return blanks
