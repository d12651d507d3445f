"""A delta that is the one before once more, but for its text: almost all that a stream has."""

from __future__ import annotations

from msgspec import DecodeError, json

from toolwire.events import ArgumentsDelta, Event, Frame, TextDelta
from toolwire.protocols.anthropic.names import NAME
from toolwire.sse import Frame as RawFrame
from toolwire.sse import alike
from toolwire.wire import MAX_BYTES, Json, Object, decode

_decode_plain = json.Decoder(dict[str, int | str | dict[str, str]]).decode
"""For an ordinary delta: no number that only looks like a whole one, and nothing but text inside."""


_WORDS = {key: b'"%b"' % key.encode() for key in ("text", "thinking", "partial_json")}
"""No frame without its word can be like a delta."""


class Like:
    """The delta before. One that differs from it in its text alone needs no closer look."""

    __slots__ = ("_data", "_event", "_index", "_key", "_node", "_pieces", "alike")

    def __init__(self, index: int, pieces: list[str] | None, key: str, text: str, raw: RawFrame) -> None:
        self._pieces = pieces
        """Where its text is gathered, if it is of a call."""
        self._index = index
        self._event = TextDelta if pieces is None else ArgumentsDelta
        self._key = key
        self._data = raw.data
        self._node: Object | None = None
        """Decoded when the bytes of another do not tell that it is like it."""
        self.alike = alike(raw, text, self._found, None if pieces is None else pieces.append)
        """Most are known by their bytes."""

    def _found(self, node: Json) -> Json:
        return node["delta"][self._key]

    def read(self, raw: RawFrame) -> Event | None:
        """The event of a frame that is like it, None for any other."""
        data, key = raw.data, self._key
        if not data.partition(_WORDS[key])[1]:
            return None
        if self._node is None:
            self._node = decode(self._data)
        try:
            node = _decode_plain(data)
            text = self._node["delta"][key] = node["delta"][key]  # type: ignore[index]
        except (DecodeError, UnicodeError, RecursionError, KeyError, TypeError):
            return None
        if node != self._node or not text or len(data) > MAX_BYTES:
            return None
        if self._pieces is not None:
            self._pieces.append(text)
        return self._event(self._index, text, Frame(NAME, raw.event or "content_block_delta", node))
