"""A chunk that is the one before once more, but for its text and its counts: almost all that a stream has."""

from __future__ import annotations

from msgspec import Raw, Struct
from msgspec.json import Decoder

from toolwire.protocols.gemini.details.growing import Channel, More, decode_more
from toolwire.sse import Alike
from toolwire.wire import MAX_BYTES, Object, encode, spelled

MAX_TRIES = 8
"""After so many patterns of which none was met again, the stream has none: every chunk holds what is new."""
_USAGE = b'"usageMetadata"'
_OTHER, _TOLD = b'"?"', b'{"?":0}'


class _Counts(Struct):
    usageMetadata: Raw


_decode_counts = Decoder(_Counts).decode
_decode_usage = Decoder(Object, float_hook=spelled).decode
_decode_text = Decoder(str).decode


class Counted:
    """A chunk known by its bytes, as `sse.Alike`, but for its counts, which grow with the text."""

    __slots__ = (
        "_after",
        "_before",
        "_counts",
        "_inside",
        "_lead",
        "_mid",
        "_take",
        "_text_first",
        "_trail",
        "met",
        "usage",
    )

    def __init__(
        self, lead: bytes, mid: bytes, trail: bytes, text_first: bool, counts: bytes, channel: Channel
    ) -> None:
        self._lead, self._mid, self._trail = lead, mid, trail
        self._before, self._after = slice(len(lead)), slice(-len(trail), None)
        self._inside = slice(len(lead), -len(trail))
        self._text_first = text_first
        self._take = channel.pieces.append
        self._counts = counts
        self.usage: Object = _decode_usage(counts)
        self.met = 0

    def text(self, data: bytes) -> str | None:
        if data[self._before] != self._lead or data[self._after] != self._trail or len(data) > MAX_BYTES:
            return None
        # Where both are JSON, it is this chunk, however often the bytes between them stand in it.
        text, _, counts = data[self._inside].partition(self._mid)
        if not self._text_first:
            text, counts = counts, text
        try:
            found = _decode_text(b'"' + text + b'"')
            if found and counts != self._counts:
                self._count(counts)
        except (ValueError, RecursionError):
            return None
        if not found:
            return None
        self._take(found)
        self.met += 1
        return found

    def _count(self, counts: bytes) -> None:
        if counts[:1] != b"{" or counts.find(b"\n") >= 0 or counts.find(b"\r") >= 0:
            raise ValueError
        self.usage = _decode_usage(counts)
        self._counts = counts


def pattern_of(data: bytes, channel: Channel) -> Alike | Counted | None:
    """For bytes that are one event, all of which became text of this channel; None where they do not tell its place."""
    end = b"\r\n\r\n" if data.endswith(b"\r\n\r\n") else b"\n\n"
    body = data[6 : -len(end)]
    if data != b"data: " + body + end or body.find(b"\n") >= 0 or body.find(b"\r") >= 0:
        return None
    try:
        text = _text(decode_more(body))
        counts = b"" if body.find(_USAGE) < 0 else bytes(_decode_counts(body).usageMetadata)
        return _pattern(body, encode(text), counts, end, channel)
    except (ValueError, RecursionError):
        return None


def _pattern(body: bytes, text: bytes, counts: bytes, end: bytes, channel: Channel) -> Alike | Counted | None:
    """The same bytes may stand elsewhere: others are put there, and it is seen whether those are found."""
    lead, _, trail = body.rpartition(text)
    if not counts:
        found = _text(decode_more(lead + _OTHER + trail)) == "?"
        return Alike(b"data: " + lead, trail + end, channel.pieces.append, "") if found else None
    text_first = trail.find(_USAGE) >= 0
    if text_first:
        mid, _, trail = trail.partition(counts)
        lead, mid = lead + b'"', b'"' + mid
        other = lead + b"?" + mid + _TOLD + trail
    else:
        lead, _, mid = lead.rpartition(counts)
        mid, trail = mid + b'"', b'"' + trail
        other = lead + _TOLD + mid + b"?" + trail
    more = decode_more(other)
    found = _text(more) == "?" and more.usageMetadata == {"?": 0}
    return Counted(b"data: " + lead, mid, trail + end, text_first, counts, channel) if found else None


def _text(more: More) -> str:
    return more.candidates[0].content.parts[0].text
