"""What the reader of a format gets, and what it gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias

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
    format: str = ""
    """The name of the format it was found in. `text_reader` fills it in."""


class ReasoningText(Struct, frozen=True):
    """Thinking: the text between reasoning marks, or what a frame calls so (gpt-oss channels)."""

    text: str


Piece: TypeAlias = TextCall | ReasoningText | str
"""A call, thinking, or text for the user."""


class PieceReader(Protocol):
    """Reads a text in pieces, as `TextReader` does: for formats that contain such a text."""

    def feed(self, text: str) -> list[Piece]: ...
    def close(self, was_cut: bool) -> list[Piece]: ...


class Frame(Struct, frozen=True):
    """One or more calls with the marks around them."""

    end: int
    """Where the text goes on after it."""
    pieces: tuple[Piece, ...]
    """What it says, in order. A bad call among good ones stays as its text. Nothing but the whole text of the frame: it
    is text, and no mark within it is looked for."""


class Waiting(Struct, frozen=True):
    """It may become a call. Ask again when one of these marks has come after the present end of the text, or at its
    end. No marks: ask again only at its end. The mark `""`: ask again when any text comes."""

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
"""Reads the frame that begins at this place of the text. None: it is no call, and stays text.

More text must not change an answer that is not `Waiting`: then any split of a stream gives the same calls."""


class ToolFormat(Struct, frozen=True):
    """A row of the table of formats."""

    name: str
    """As in `tool_format` of the configuration."""
    openings: tuple[str, ...]
    """A frame begins with one of these. "" (only with the place "start"): any text may be one."""
    read_frame: FrameReader
    place: Literal["anywhere", "line", "start"] = "anywhere"
    """Where it may begin: anywhere, at the beginning of a line, or of the whole answer (after reasoning)."""
    opening_pattern: str = ""
    """A regular expression for openings that cannot be listed: the first character, and the rest as a lookahead."""
    unfinished_opening: str = ""
    """The same, where the text ends in the middle of such an opening."""
    is_bare_json: bool = False
    """It has no marks of its own, so it is the answer itself where the request asks for JSON (`response_format`)."""
    is_list: bool = False
    """It looks like a list of a programming language: in `x[f()]` and `x = [f()]` it is code."""
    is_code_in_fence: bool = False
    """It has no marks, so it is code, and no call, where a fence is the whole answer."""
    needs_required_call: bool = False
    """Only if the request demands a call."""
    is_last: bool = False
    """It must be the rest of the answer, and no other call may stand before it (`rest_of_answer`)."""
    needs_known_model: bool = False
    """Only for models whose name tells that they write so, or where the format was chosen."""
