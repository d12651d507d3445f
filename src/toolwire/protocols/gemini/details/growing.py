"""What is open while a stream is read, and the usual chunks as types, without a key that we do not know. Whatever is
otherwise (a wrong type, another key, a second candidate) does not fit, and goes the careful way."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, ValidationError, convert
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


class _Parts(Struct, forbid_unknown_fields=True, gc=False):
    parts: list[Json]
    role: Json = None


class _One(Struct, forbid_unknown_fields=True, gc=False):
    content: _Parts
    index: int = 0
    finishReason: str | None = None


class Chunk(Struct, forbid_unknown_fields=True, gc=False):
    """A chunk of one candidate that has parts."""

    candidates: tuple[_One]
    usageMetadata: Json = None
    promptFeedback: Json = None
    modelVersion: str | None = None
    responseId: str | None = None
    createTime: Json = None


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
    """A chunk that is more of one text, in one part."""

    candidates: tuple[_Answer]
    usageMetadata: Object | None = None
    promptFeedback: Json = None
    modelVersion: Json = None
    responseId: Json = None
    createTime: Json = None


def more_of(channel: Channel, json: Json) -> tuple[str, Object | None] | None:
    """The short way for the usual chunk: more text of this channel, which is put to it, and its counts."""
    try:
        more = convert(json, More)
    except ValidationError:
        return None
    (node,) = more.candidates
    (part,) = node.content.parts
    if node.index != channel.choice or part.thought is not channel.thought:
        return None
    channel.pieces.append(part.text)
    return part.text, more.usageMetadata


decode_more = Decoder(More).decode
