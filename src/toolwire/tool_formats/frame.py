"""What the reader of a format gets, and what it gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from msgspec import Struct

from toolwire.call_repair.offered_tools import OfferedTools


class TextCall(Struct, frozen=True):
    """A call that was found in text. Its name is one of the offered tools."""

    name: str
    arguments: str
    """The text of a JSON object."""
    id: str = ""
    """Only where the text has one (Mistral, Kimi, Cohere)."""
    repairs: tuple[str, ...] = ()
    """What was mended, each as a sentence without its full stop: "the closing `</tool_call>` was missing"."""


class ReasoningText(Struct, frozen=True):
    """Thinking that a frame holds (gpt-oss channels)."""

    text: str


Piece: TypeAlias = TextCall | ReasoningText | str
"""A call, thinking, or text for the user."""


class Frame(Struct, frozen=True):
    """One or more calls with the marks around them."""

    end: int
    """Where the text goes on after it."""
    pieces: tuple[Piece, ...]
    """What it says, in order. A bad call among good ones stays as its text."""


class Waiting(Struct, frozen=True):
    """It may become a call. Ask again when one of these marks has come after the present end of the text, or at its
    end. No marks: ask again only at its end."""

    marks: tuple[str, ...] = ()


class Situation(Struct, frozen=True):
    """What the reader of a format knows beside the text."""

    tools: OfferedTools
    is_end: bool = False
    """No more text comes."""
    was_cut: bool = False
    """The answer was cut off at a limit: what is not closed is no call."""
    is_call_required: bool = False
    """The request demands a call (`tool_choice` required, or a named tool)."""


FrameReader: TypeAlias = Callable[[str, int, Situation], Frame | Waiting | None]
"""Reads the frame that begins at this place of the text. None: it is no call, and stays text."""


class ToolFormat(Struct, frozen=True):
    """A row of the table of formats."""

    name: str
    """As in `tool_format` of the configuration."""
    openings: tuple[str, ...]
    """A frame begins with one of these."""
    read_frame: FrameReader
    place: Literal["anywhere", "line", "start"] = "anywhere"
    """Where it may begin: anywhere, at the beginning of a line, or of the whole answer (after reasoning)."""
