"""What is open while a stream is read, and the usual chunk as types: more of one text in one part, and no key that we
do not know. Whatever is otherwise (a wrong type, another key, a second part) does not fit, and goes the careful way.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Raw, Struct
from msgspec.json import Decoder

from toolwire.ir import Finish
from toolwire.protocols.gemini.parts import OpenCall
from toolwire.wire import Json, Object, Path


class Channel(Struct):
    """Text that is still growing."""

    index: int
    choice: int
    thought: bool
    pieces: list[str] = []


class Candidate(Struct):
    """What is open of one candidate."""

    index: int
    channel: Channel | None = None
    call: tuple[int, OpenCall] | None = None
    finish: Finish | None = None
    grounding: tuple[Object, Path] | None = None


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
    usageMetadata: Raw = Raw()
    promptFeedback: Json = None
    modelVersion: Json = None
    responseId: Json = None
    createTime: Json = None


decode_more = Decoder(More).decode
