"""Steps that the readers of tags and special tokens share."""

from __future__ import annotations

import re
from functools import wraps
from typing import Final

from toolwire.tool_formats.frame import Frame, FrameReader, Situation, Waiting
from toolwire.tool_formats.json_text import ANY_TEXT
from toolwire.tool_formats.reasoning_marks import match_end_tokens

MAX_TAG_LENGTH: Final = 200
"""A longer text without its closing `>` is no tag."""


class NeedsTextError(Exception):
    """More text must come before the reader can decide. `frame_reader` makes it `Waiting`."""

    def __init__(self, marks: tuple[str, ...] = ANY_TEXT) -> None:
        self.marks = marks
        super().__init__(marks)


def frame_reader(read_frame: FrameReader) -> FrameReader:
    """A reader that says `Waiting` where one of its steps needs more text."""

    @wraps(read_frame)
    def read(text: str, start: int, situation: Situation) -> Frame | Waiting | None:
        try:
            return read_frame(text, start, situation)
        except NeedsTextError as needed:
            return Waiting(needed.marks)

    return read


def end_of_match(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Where the match that begins here ends; here if there is none."""
    found = pattern.match(text, at)
    return found.end() if found else at


def require_whole_tag(text: str, at: int, situation: Situation, tag_end: str = ">") -> None:
    """Ask for more text if that can still make a tag of what stands here."""
    if situation.is_end:
        return
    rest = text[at : at + MAX_TAG_LENGTH]
    if not rest:
        raise NeedsTextError
    if rest[0] == "<" and len(rest) < MAX_TAG_LENGTH and tag_end not in rest:
        raise NeedsTextError((tag_end,))


def is_cut_here(text: str, at: int, situation: Situation, tag_end: str = ">") -> bool:
    """Was the answer cut off at this place, or in the middle of a tag that begins here?"""
    if not situation.was_cut:
        return False
    rest = text[at : at + MAX_TAG_LENGTH].lstrip()
    return not rest or (rest[0] == "<" and tag_end not in rest)


def is_answer_over(text: str, at: int, situation: Situation) -> bool:
    """Does nothing follow here but blanks, and end tokens that the server let through?"""
    if not situation.is_end:
        return False
    tokens = match_end_tokens(text, at)
    return (tokens.end() if tokens else at) == len(text)


def require_whole_match(open_pattern: re.Pattern[str], text: str, at: int, situation: Situation) -> None:
    """Ask for more text if this pattern, which ends with `\\Z`, says that the text ends in the middle of something."""
    if not situation.is_end and open_pattern.match(text, at):
        raise NeedsTextError


def require_whole_word(words: tuple[str, ...], text: str, at: int, situation: Situation) -> None:
    """Ask for more text if the text ends here in the middle of one of these words."""
    rest = text[at : at + MAX_TAG_LENGTH]
    if not situation.is_end and any(word != rest and word.startswith(rest) for word in words):
        raise NeedsTextError
