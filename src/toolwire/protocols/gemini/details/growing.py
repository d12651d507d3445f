"""What is open while a stream is read, and the usual chunk as types: more of one text in one part, and no key that we
do not know. Whatever is otherwise (a wrong type, another key, a second part) does not fit, and goes the careful way.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct
from msgspec.json import Decoder

from toolwire.ir import Finish
from toolwire.protocols.gemini.parts import OpenCall
from toolwire.wire import Json, Object, Path, spelled


class Channel:
    """Text that is still growing."""

    __slots__ = ("choice", "index", "pieces", "thought")

    def __init__(self, index: int, choice: int, thought: bool) -> None:
        self.index = index
        self.choice = choice
        self.thought = thought
        self.pieces: list[str] = []


class Candidate:
    """What is open of one candidate."""

    __slots__ = ("call", "channel", "finish", "grounding", "index")

    def __init__(self, index: int) -> None:
        self.index = index
        self.channel: Channel | None = None
        self.call: tuple[int, OpenCall] | None = None
        self.finish: Finish | None = None
        self.grounding: tuple[Object, Path] | None = None


class _Part(Struct, forbid_unknown_fields=True, gc=False):
    text: Annotated[str, Meta(min_length=1)]
    thought: bool = False


class _Content(Struct, forbid_unknown_fields=True, gc=False):
    parts: tuple[_Part]
    role: Json = None


class _Answer(Struct, forbid_unknown_fields=True, gc=False):
    content: _Content
    index: int = 0


class More(Struct, forbid_unknown_fields=True, gc=False):
    candidates: tuple[_Answer]
    usageMetadata: Object | None = None
    promptFeedback: Json = None
    modelVersion: Json = None
    responseId: Json = None
    createTime: Json = None


decode_more = Decoder(More, float_hook=spelled).decode
