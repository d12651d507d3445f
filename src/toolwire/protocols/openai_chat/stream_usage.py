"""Token counts in streams of Chat Completions: a client has to ask for them, and gets them in a chunk of their own.

Where a limit must count what a stream has used, the gateway asks for them itself: the thinking of OpenAI's models is
nowhere else in the stream. A client that has not asked does not get that chunk: some expect a choice in each."""

from __future__ import annotations

import re

import msgspec
from msgspec import Raw, Struct

from toolwire.core.json_values import Json, Object
from toolwire.core.sse import split_after_frames

_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_has_no_choice = re.compile(rb'"choices"\s*:\s*\[\s*\]').search


class _Chunk(Struct):
    choices: list[Json]
    usage: Object


_decode_chunk = msgspec.json.Decoder(_Chunk).decode


def ask_for_usage(body: bytes) -> bytes | None:
    """The body of a request for a stream that asks for its token counts; None if it asks already."""
    try:
        fields = _decode_fields(body)
        options = msgspec.json.decode(fields.get("stream_options", b"null"))
    except msgspec.DecodeError:
        return None
    options = options if isinstance(options, dict) else {}
    if options.get("include_usage") is True:
        return None
    fields["stream_options"] = Raw(msgspec.json.encode({**options, "include_usage": True}))
    return msgspec.json.encode(fields)


def drop_usage_chunks(data: bytes) -> bytes:
    """Whole frames of a stream, without those that have only token counts."""
    if _has_no_choice(data) is None:
        return data
    return b"".join([frame for frame in split_after_frames(data) if not _is_usage_chunk(frame)])


def _is_usage_chunk(frame: bytes) -> bool:
    if _has_no_choice(frame) is None or not frame.startswith(b"data:"):
        return False
    try:
        return not _decode_chunk(frame.removeprefix(b"data:")).choices
    except msgspec.DecodeError:  # Azure's first chunk has no choice either, and no usage
        return False
