"""A delta that is the one before once more, but for its text: almost all that a stream has."""

from __future__ import annotations

from msgspec import DecodeError, json

from toolwire.events import ArgumentsDelta, Event, Frame, TextDelta
from toolwire.protocols.anthropic.names import NAME
from toolwire.sse import Frame as RawFrame
from toolwire.sse import alike
from toolwire.wire import MAX_BYTES, Json, Object

_decode_plain = json.Decoder(dict[str, int | str | dict[str, str]]).decode
"""For an ordinary delta: no number that only looks like a whole one, and nothing but text inside."""


class Like:
    """The delta before. One that differs from it in its text alone needs no closer look."""

    __slots__ = ("_delta", "_event", "_index", "_key", "_node", "_pieces", "alike")

    def __init__(self, index: int, pieces: list[str] | None, key: str, node: Object, raw: RawFrame) -> None:
        self._pieces = pieces
        """Where its text is gathered, if it is of a call."""
        self._index = index
        self._event = TextDelta if pieces is None else ArgumentsDelta
        self._key = key
        self._delta: Object = dict(node["delta"])
        self._node: Object = node | {"delta": self._delta}
        self.alike = alike(raw, self._delta[key], self._found, None if pieces is None else pieces.append)
        """Most are known by their bytes."""

    def _found(self, node: Json) -> Json:
        return node["delta"][self._key]

    def read(self, raw: RawFrame) -> Event | None:
        """The event of a frame that is like it, None for any other."""
        data = raw.data
        try:
            node = _decode_plain(data)
            text = self._delta[self._key] = node["delta"][self._key]  # type: ignore[index]
        except (DecodeError, UnicodeError, RecursionError, KeyError, TypeError):
            return None
        if node != self._node or not text or len(data) > MAX_BYTES:
            return None
        if self._pieces is not None:
            self._pieces.append(text)
        return self._event(self._index, text, Frame(NAME, raw.event or "content_block_delta", node))
