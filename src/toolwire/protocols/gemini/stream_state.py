"""What is open while a stream is read, and the usual chunks as types, without a key that we do not know. Whatever is
otherwise (a wrong type, another key, a second candidate) does not fit, and goes the careful way."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Raw, Struct, ValidationError, convert
from msgspec.json import Decoder

from toolwire.core.ir import Finish
from toolwire.core.json_values import MAX_BYTES, Json, Object, Path, encode, read_float
from toolwire.core.sse import FrameTemplate
from toolwire.protocols.gemini.content import OpenCall


class OpenText(Struct):
    """Text that is still growing."""

    index: int
    choice: int
    is_thought: bool
    pieces: list[str] = []


class OpenCandidate(Struct):
    """What is open of one candidate."""

    index: int
    open_text: OpenText | None = None
    open_call: tuple[int, OpenCall] | None = None
    finish: Finish | None = None
    grounding: tuple[Object, Path] | None = None


class _PlainContent(Struct, forbid_unknown_fields=True, gc=False):
    parts: list[Json]
    role: Json = None


class _PlainCandidate(Struct, forbid_unknown_fields=True, gc=False):
    content: _PlainContent
    index: int = 0
    finishReason: str | None = None


class PlainChunk(Struct, forbid_unknown_fields=True, gc=False):
    """A chunk of one candidate that has parts."""

    candidates: tuple[_PlainCandidate]
    usageMetadata: Json = None
    promptFeedback: Json = None
    modelVersion: str | None = None
    responseId: str | None = None
    createTime: Json = None


class _DeltaPart(Struct, forbid_unknown_fields=True, gc=False):
    text: Annotated[str, Meta(min_length=1)]
    thought: bool = False


class _DeltaContent(Struct, forbid_unknown_fields=True, gc=False):
    parts: tuple[_DeltaPart]
    role: Json = None


class _DeltaCandidate(Struct, forbid_unknown_fields=True, gc=False):
    content: _DeltaContent
    index: int = 0


class DeltaChunk(Struct, forbid_unknown_fields=True, gc=False):
    """A chunk that is more of one text, in one part."""

    candidates: tuple[_DeltaCandidate]
    usageMetadata: Object | None = None
    promptFeedback: Json = None
    modelVersion: Json = None
    responseId: Json = None
    createTime: Json = None


def read_delta_chunk(open_text: OpenText, json: Json) -> tuple[str, Object | None] | None:
    """The short way for the usual chunk: more text of this channel, which is put to it, and its counts."""
    try:
        more = convert(json, DeltaChunk)
    except ValidationError:
        return None
    (node,) = more.candidates
    (part,) = node.content.parts
    if node.index != open_text.choice or part.thought is not open_text.is_thought:
        return None
    open_text.pieces.append(part.text)
    return part.text, more.usageMetadata


decode_delta_chunk = Decoder(DeltaChunk).decode


MAX_PATTERN_TRIES = 8
"""After so many patterns of which none was met again, the stream has none: every chunk holds what is new."""
_PROBE_USAGE, _PROBE_USAGE_BYTES = {"?": 0}, b'{"?":0}'


class _ChunkUsage(Struct):
    usageMetadata: Raw


_decode_chunk_usage = Decoder(_ChunkUsage).decode
_decode_usage = Decoder(Object, float_hook=read_float).decode
_decode_text = Decoder(str).decode


class UsageFrameTemplate:
    """A chunk known by its bytes, as `sse.Alike`, but for its counts, which may grow with the text."""

    __slots__ = (
        "_head",
        "_mid",
        "_prefix",
        "_prefix_slice",
        "_sink",
        "_size",
        "_suffix",
        "_suffix_slice",
        "_tail",
        "_text_first",
        "_text_slice",
        "match_count",
        "usage",
    )

    def __init__(
        self, head: bytes, mid: bytes, tail: bytes, text_first: bool, counts: bytes, usage: Object, channel: OpenText
    ) -> None:
        self._head, self._mid, self._tail = head, mid, tail
        self._text_first = text_first
        self._sink = channel.pieces.append
        self._set_usage(counts, usage)
        self.match_count = 0

    def match_text(self, data: bytes) -> str | None:
        if (
            data[self._prefix_slice] == self._prefix
            and data[self._suffix_slice] == self._suffix
            and len(data) <= MAX_BYTES
        ):
            try:
                text = _decode_text(data[self._text_slice])
            except ValueError:
                return None
        else:
            text = self._read_with_new_usage(data)
        if not text:
            return None
        take = self._sink
        take(text)
        self.match_count += 1
        return text

    def _read_with_new_usage(self, data: bytes) -> str:
        """The text of a chunk whose counts are others."""
        head, mid, tail = self._head, self._mid, self._tail
        if not data.startswith(head) or not data.endswith(tail) or len(data) > MAX_BYTES:
            return ""
        start, end = len(head), len(data) - len(tail)
        # Where text and counts are JSON, it is this chunk, however often the bytes between them stand in it.
        at = end - self._size - len(mid) if self._text_first else start + self._size
        if data[at : at + len(mid)] != mid:
            at = data.find(mid, start, end)
        text, counts = data[start:at], data[at + len(mid) : end]
        if not self._text_first:
            text, counts = counts, text
        if at < 0 or counts[:1] != b"{" or counts.find(b"\n") >= 0 or counts.find(b"\r") >= 0:
            return ""
        try:
            found = _decode_text(b'"' + text + b'"')
            if found:
                self._set_usage(counts, _decode_usage(counts))
        except (ValueError, RecursionError):
            return ""
        return found

    def _set_usage(self, counts: bytes, usage: Object) -> None:
        """With these counts, the text stands between bytes that are known."""
        self.usage = usage
        self._size = len(counts)
        lead, trail = self._head, self._tail
        if self._text_first:
            trail = self._mid + counts + trail
        else:
            lead = lead + counts + self._mid
        self._prefix, self._suffix = lead, trail
        self._prefix_slice, self._suffix_slice = slice(len(lead)), slice(-len(trail), None)
        # The quotes around the text are part of it.
        self._text_slice = slice(len(lead) - 1, 1 - len(trail))


def find_pattern(
    data: bytes, body: bytes, open_text: OpenText, usage: Object | None
) -> FrameTemplate | UsageFrameTemplate | None:
    """For bytes that are the event of one chunk, all of which became the last text of this channel and these counts;
    None where they do not tell its place."""
    end = data[6 + len(body) :]
    if data[:6] != b"data: " or (end != b"\n\n" and end != b"\r\n\r\n") or data[6 : -len(end)] != body:
        return None
    try:
        return (
            _find_frame_template(body, end, open_text)
            if usage is None
            else _find_usage_template(body, end, open_text, usage)
        )
    except (ValueError, RecursionError):
        return None


# The same bytes may stand elsewhere: others are put there, and it is seen whether those are found.


def _find_frame_template(body: bytes, end: bytes, open_text: OpenText) -> FrameTemplate | None:
    said = open_text.pieces[-1]
    lead, text, trail = body.rpartition(encode(said))
    more = decode_delta_chunk(b"".join((lead, text[:-1], b'?"', trail)))
    found = _delta_text(more) == said + "?"
    return FrameTemplate(b"data: " + lead, trail + end, open_text.pieces.append, "") if found else None


def _find_usage_template(body: bytes, end: bytes, open_text: OpenText, usage: Object) -> UsageFrameTemplate | None:
    said, counts = open_text.pieces[-1], encode(usage)
    if body.find(counts) < 0:
        counts = bytes(_decode_chunk_usage(body).usageMetadata)
    lead, text, trail = body.rpartition(encode(said))
    lead, other, trail = lead + b'"', text[1:-1] + b"?", b'"' + trail
    mid, found, tail = trail.partition(counts)
    if found:
        head = lead
        more = decode_delta_chunk(b"".join((head, other, mid, _PROBE_USAGE_BYTES, tail)))
    else:
        head, _, mid = lead.rpartition(counts)
        tail = trail
        more = decode_delta_chunk(b"".join((head, _PROBE_USAGE_BYTES, mid, other, tail)))
    if _delta_text(more) != said + "?" or more.usageMetadata != _PROBE_USAGE or usage == _PROBE_USAGE:
        return None
    return UsageFrameTemplate(b"data: " + head, mid, tail + end, bool(found), counts, usage, open_text)


def _delta_text(more: DeltaChunk) -> str:
    return more.candidates[0].content.parts[0].text
