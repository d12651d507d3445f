"""From bytes to chunks: server-sent events, or one streamed array, told apart by the first byte; and from the one to
the other."""

from __future__ import annotations

from toolwire.sse import ArraySplitter, Frame, FrameTooLong, Splitter
from toolwire.wire import Json, Malformed, decode, encode

_BLANK = b"\xef\xbb\xbf \t\r\n"
_KEPT = 64 * 1024
"""How many of the last bytes are kept, to find an error that came without its `data:`."""
_MANY = 8
"""How many pieces are held before it is asked which of them are still needed."""


class Framing:
    def __init__(self) -> None:
        self._splitter: Splitter | ArraySplitter | None = None
        self._head = b""
        self._recent: list[bytes] = []
        self._many = _MANY

    def feed(self, data: bytes) -> list[Frame]:
        splitter = self._splitter
        if splitter is None:
            data = self._head + data
            start = data.lstrip(_BLANK)
            if not start:
                self._head = data
                return []
            splitter = self._splitter = ArraySplitter() if start[:1] in (b"[", b"{") else Splitter()
        if splitter.__class__ is Splitter:
            recent = self._recent
            recent.append(data)
            if len(recent) > self._many:
                self._shorten()
        return splitter.feed(data)

    def close(self) -> list[Frame]:
        return [] if self._splitter is None or self.between else self._splitter.close()

    @property
    def between(self) -> bool:
        """Has all that was fed come out, and can an event follow?"""
        return self._splitter.__class__ is Splitter and self._splitter.between

    def forget(self) -> None:
        """A whole event came that was not fed here."""
        self._recent.clear()

    def _shorten(self) -> None:
        """Of what was fed, only what stands behind the last line of data, and no more than is kept."""
        recent = self._recent
        at = len(recent) - 1
        held = len(recent[at])
        while at and held <= _KEPT and not (recent[at].startswith(b"data:") and recent[at - 1].endswith(b"\n")):
            at -= 1
            held += len(recent[at])
        del recent[:at]
        self._many = max(_MANY, 2 * len(recent))

    def bare_error(self) -> Json:
        """An error that a server wrote behind the last frame as plain JSON; None when there is none."""
        if not self._recent:
            return None
        self._shorten()
        lines = b"".join(self._recent).splitlines()
        last = max((number for number, line in enumerate(lines) if line.startswith(b"data:")), default=-1)
        rest = b"\n".join(lines[last + 1 :]).strip()
        if rest[:1] not in (b"{", b"["):
            return None
        try:
            found = decode(rest)
        except Malformed:
            return None
        error = found[0] if isinstance(found, list) and found else found
        return error if isinstance(error, dict) and "error" in error else None


class ArrayFraming:
    """Server-sent events in, the same chunks as one streamed array out: what a client gets that did not ask for
    events. An error is an element like any other."""

    content_type = "application/json"

    def __init__(self) -> None:
        self._splitter = Splitter()
        self._begun = False
        self._over = False

    def feed(self, data: bytes) -> bytes:
        if self._over:
            return b""
        try:
            frames = self._splitter.feed(data)
        except FrameTooLong as fault:
            frames = [Frame(None, encode({"error": {"code": 502, "message": str(fault), "status": "INTERNAL"}}))]
            self._over = True
        return self._elements(frames)

    def close(self) -> bytes:
        rest = b"" if self._over else self._elements(self._splitter.close())
        self._over = True
        return rest + (b"]" if self._begun else b"[]")

    def _elements(self, frames: list[Frame]) -> bytes:
        out: list[bytes] = []
        for frame in frames:
            out.append(b",\r\n" if self._begun else b"[")
            out.append(frame.data)
            self._begun = True
        return b"".join(out)
