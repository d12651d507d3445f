"""A chunk that is the one before once more, but for its text and its counts: almost all that a stream has."""

from __future__ import annotations

from msgspec import Raw, Struct
from msgspec.json import Decoder

from toolwire.protocols.gemini.details.growing import Channel, More, decode_more
from toolwire.sse import Alike
from toolwire.wire import MAX_BYTES, Object, encode, spelled

MAX_TRIES = 8
"""After so many patterns of which none was met again, the stream has none: every chunk holds what is new."""
_SAID, _TOLD = {"?": 0}, b'{"?":0}'


class _Counts(Struct):
    usageMetadata: Raw


_decode_counts = Decoder(_Counts).decode
_decode_usage = Decoder(Object, float_hook=spelled).decode
_decode_text = Decoder(str).decode


class Counted:
    """A chunk known by its bytes, as `sse.Alike`, but for its counts, which may grow with the text."""

    __slots__ = (
        "_after",
        "_before",
        "_head",
        "_lead",
        "_mid",
        "_size",
        "_tail",
        "_take",
        "_text",
        "_text_first",
        "_trail",
        "met",
        "usage",
    )

    def __init__(
        self, head: bytes, mid: bytes, tail: bytes, text_first: bool, counts: bytes, usage: Object, channel: Channel
    ) -> None:
        self._head, self._mid, self._tail = head, mid, tail
        self._text_first = text_first
        self._take = channel.pieces.append
        self._count(counts, usage)
        self.met = 0

    def text(self, data: bytes) -> str | None:
        if data[self._before] == self._lead and data[self._after] == self._trail and len(data) <= MAX_BYTES:
            try:
                text = _decode_text(data[self._text])
            except ValueError:
                return None
        else:
            text = self._recounted(data)
        if not text:
            return None
        take = self._take
        take(text)
        self.met += 1
        return text

    def _recounted(self, data: bytes) -> str:
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
                self._count(counts, _decode_usage(counts))
        except (ValueError, RecursionError):
            return ""
        return found

    def _count(self, counts: bytes, usage: Object) -> None:
        """With these counts, the text stands between bytes that are known."""
        self.usage = usage
        self._size = len(counts)
        lead, trail = self._head, self._tail
        if self._text_first:
            trail = self._mid + counts + trail
        else:
            lead = lead + counts + self._mid
        self._lead, self._trail = lead, trail
        self._before, self._after = slice(len(lead)), slice(-len(trail), None)
        # The quotes around the text are part of it.
        self._text = slice(len(lead) - 1, 1 - len(trail))


def pattern_of(data: bytes, body: bytes, channel: Channel, usage: Object | None) -> Alike | Counted | None:
    """For bytes that are the event of one chunk, all of which became the last text of this channel and these counts;
    None where they do not tell its place."""
    end = data[6 + len(body) :]
    if data[:6] != b"data: " or (end != b"\n\n" and end != b"\r\n\r\n") or data[6 : -len(end)] != body:
        return None
    try:
        return _alike(body, end, channel) if usage is None else _counted(body, end, channel, usage)
    except (ValueError, RecursionError):
        return None


# The same bytes may stand elsewhere: others are put there, and it is seen whether those are found.


def _alike(body: bytes, end: bytes, channel: Channel) -> Alike | None:
    said = channel.pieces[-1]
    lead, text, trail = body.rpartition(encode(said))
    more = decode_more(b"".join((lead, text[:-1], b'?"', trail)))
    found = _text(more) == said + "?"
    return Alike(b"data: " + lead, trail + end, channel.pieces.append, "") if found else None


def _counted(body: bytes, end: bytes, channel: Channel, usage: Object) -> Counted | None:
    said, counts = channel.pieces[-1], encode(usage)
    if body.find(counts) < 0:
        counts = bytes(_decode_counts(body).usageMetadata)
    lead, text, trail = body.rpartition(encode(said))
    lead, other, trail = lead + b'"', text[1:-1] + b"?", b'"' + trail
    mid, found, tail = trail.partition(counts)
    if found:
        head = lead
        more = decode_more(b"".join((head, other, mid, _TOLD, tail)))
    else:
        head, _, mid = lead.rpartition(counts)
        tail = trail
        more = decode_more(b"".join((head, _TOLD, mid, other, tail)))
    if _text(more) != said + "?" or more.usageMetadata != _SAID or usage == _SAID:
        return None
    return Counted(b"data: " + head, mid, tail + end, bool(found), counts, usage, channel)


def _text(more: More) -> str:
    return more.candidates[0].content.parts[0].text
