"""Server-sent events and streamed JSON arrays, from bytes to frames and back. No I/O: feed bytes, take frames.

Frames are cut on bytes and only whole ones are decoded, so no split of the input can tear a character.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

MAX_FRAME = 64 * 1024 * 1024
_LONG = MAX_FRAME // 16
"""However a shorter text is spelled, its frame is not too long."""
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_decode_text = msgspec.json.Decoder(str).decode
Again = Callable[[bytes], str | None]
"""Knows more of what came before by its bytes, and gives its text; None for all other bytes."""
Take = Callable[[str], object]
_ORDINARY = re.compile(rb"(?:event: ([^\n]*)\n)?data: ([^\n]*)").fullmatch


class Frame(msgspec.Struct, frozen=True):
    """One event: its name, if it had an `event:` line, and its data."""

    event: str | None
    data: bytes


class FrameTooLong(Exception):
    """A peer sent a frame without an end."""


class Splitter:
    """Bytes in, whole frames out; comments, `id:` and `retry:` are passed over. CR, LF and CRLF all end a line."""

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self._tail = bytearray()
        self._event: str | None = None
        self._data: list[bytes] = []
        self._begun = False
        self.between = True
        """Does nothing of a frame wait for its rest?"""
        self._name: str | None = None
        self._head = b"data: "
        """What the last ordinary frame was called, and all that stood before its data: the next one is mostly alike."""
        self._max = max_frame
        self._held = 0

    def feed(self, data: bytes) -> list[Frame]:
        if self.between:
            frame = self._one(data)
            if frame is not None:
                self._begun = True
                return [frame]
        self._tail += data
        if not self._begun:
            if len(self._tail) < 3 and b"\xef\xbb\xbf".startswith(self._tail):
                return []
            self._begun = True
            if self._tail.startswith(b"\xef\xbb\xbf"):
                del self._tail[:3]
        frames = self._frames(data)
        self.between = not self._tail and not self._data and self._event is None
        if len(self._tail) + self._held > self._max:
            raise FrameTooLong(f"a frame of the stream is longer than {self._max:,} bytes")
        return frames

    def _one(self, data: bytes) -> Frame | None:
        """The frame, if these bytes are an ordinary one, as where a server sends one at a time. To part them is the
        cheapest way to look for anything."""
        line, _, rest = data.partition(b"\n")
        if data.partition(b"\r")[1]:
            return None
        if rest == b"\n":
            return Frame(None, line[6:]) if line[:6] == b"data: " else None
        text, _, rest = rest.partition(b"\n")
        if rest != b"\n":
            return None
        head = line + b"\n" + text[:6]
        if head != self._head:
            if line[:7] != b"event: " or text[:6] != b"data: ":
                return None
            self._head, self._name = head, line[7:].decode("utf-8", "replace").strip()
        return Frame(self._name, text[6:])

    def close(self) -> list[Frame]:
        """The end of input: a last frame that lacks its blank line is still a frame."""
        tail, self._tail = bytes(self._tail), bytearray()
        lines = tail.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        return [frame for line in (*lines, b"") if (frame := self._line(line)) is not None]

    def _frames(self, data: bytes) -> list[Frame]:
        if data.find(b"\n") < 0 and data.find(b"\r") < 0:
            return []
        held = bytes(self._tail)
        if not self._data and self._event is None and held.find(b"\r") < 0:
            # The ordinary stream: frames end at blank lines, and what is cut waits whole.
            *blocks, rest = held.split(b"\n\n")
            self._tail = bytearray(rest)
            return self._blocks(blocks)
        # A CR at the very end may be half of a CRLF: leave it for the next bytes.
        half = held.endswith(b"\r")
        held = (held[:-1] if half else held).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = held.split(b"\n")
        self._tail = bytearray(rest + b"\r" if half else rest)
        return [frame for line in lines if (frame := self._line(line)) is not None]

    def _blocks(self, blocks: list[bytes]) -> list[Frame]:
        frames: list[Frame] = []
        for block in blocks:
            if block.startswith(self._head) and (data := block[len(self._head) :]).find(b"\n") < 0:
                frames.append(Frame(self._name, data))
            elif (frame := self._block(block)) is not None:
                frames.append(frame)
        return frames

    def _block(self, block: bytes) -> Frame | None:
        """The frame of a whole block of lines."""
        ordinary = _ORDINARY(block)
        if ordinary is not None:
            name, data = ordinary.groups()
            self._name = None if name is None else name.decode("utf-8", "replace").strip()
            self._head = block[: ordinary.start(2)]
            return Frame(self._name, data)
        found = [frame for line in (*block.split(b"\n"), b"") if (frame := self._line(line)) is not None]
        return found[0] if found else None

    def _line(self, line: bytes) -> Frame | None:
        if not line:
            if not self._data:
                self._event = None
                return None
            frame = Frame(self._event, b"\n".join(self._data) if len(self._data) > 1 else self._data[0])
            self._event, self._data, self._held = None, [], 0
            return frame
        if line.startswith(b"data:"):
            value = line[6:] if line[5:6] == b" " else line[5:]
            self._data.append(value)
            self._held += len(value)
        elif line.startswith(b"event:"):
            self._event = line[6:].decode("utf-8", "replace").strip()
        elif line == b"data":
            self._data.append(b"")
        return None


class Alike:
    """A frame that comes once more but for one text in it: known by its bytes, without a look inside."""

    __slots__ = ("_after", "_before", "_lead", "_not", "_take", "_text", "_trail", "met", "size")

    def __init__(self, lead: bytes, trail: bytes, take: Take | None, but: str) -> None:
        self._lead = lead + b'"'
        self._trail = b'"' + trail
        self._before, self._text = slice(len(self._lead)), slice(len(lead), -len(trail))
        self._after = slice(-len(self._trail), None)
        self._take = take
        """Who keeps the text."""
        self._not = but
        """A text that begins so needs a closer look."""
        self.met = 0
        """Frames that were like it, and the length of their texts: whoever made it counts them in before anything else
        comes."""
        self.size = 0

    def text(self, data: bytes) -> str | None:
        """The text of the next such frame, if these bytes are that frame and nothing else. Only for bytes that begin
        where a frame begins; the splitter need not see them then."""
        if data[self._before] != self._lead or data[self._after] != self._trail:
            return None
        try:
            text = _decode_text(data[self._text])
        except ValueError:
            return None
        size = len(text)
        if not 0 < size < _LONG or (self._not and text.startswith(self._not)):
            return None
        take = self._take
        if take is not None:
            take(text)
        self.met += 1
        self.size += size
        return text


def alike(
    frame: Frame, text: str, found: Callable[[Any], Any], take: Take | None = None, but: str = ""
) -> Alike | None:
    """For a frame in whose JSON `found` finds this text; None where its bytes do not tell its place."""
    data = frame.data
    lead, spelled, trail = data.rpartition(_encode(text))
    if not spelled or data.partition(b"\n")[1] or data.partition(b"\r")[1]:
        return None
    # Where nothing else is spelled with a backslash, a text that stands there once stands where it was found.
    twice = (lead + b'"').partition(spelled)[1] or lead.partition(b"\\")[1] or trail.partition(b"\\")[1]
    if twice and not _finds(found, lead, text + ".", trail):
        return None
    head = b"data: " if frame.event is None else b"event: " + frame.event.encode() + b"\ndata: "
    return Alike(head + lead, trail + b"\n\n", take, but)


def _finds(found: Callable[[Any], Any], lead: bytes, text: str, trail: bytes) -> bool:
    """The same text may stand elsewhere: put another there, and see whether that one is found."""
    try:
        return bool(found(_decode(lead + _encode(text) + trail)) == text)
    except (ValueError, LookupError, TypeError, RecursionError):
        return False


class ArraySplitter:
    """One JSON array streamed element by element (`[{…}` `,{…}` `]`), or bare objects one after another."""

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self._tail = bytearray()
        self._scanned = 0
        self._depth = 0
        self._in_text = False
        self._escaped = False
        self._start = -1
        self._max = max_frame

    def feed(self, data: bytes) -> list[Frame]:
        self._tail += data
        frames: list[Frame] = []
        for at in range(self._scanned, len(self._tail)):
            byte = self._tail[at]
            if self._in_text:
                self._in_text_byte(byte)
            elif byte == 0x22:
                self._in_text = True
            elif byte == 0x7B:
                if self._depth == 0:
                    self._start = at
                self._depth += 1
            elif byte == 0x7D and self._depth:
                self._depth -= 1
                if self._depth == 0:
                    frames.append(Frame(None, bytes(self._tail[self._start : at + 1])))
                    self._start = -1
        keep = self._start if self._start >= 0 else len(self._tail)
        del self._tail[:keep]
        self._start = 0 if self._start >= 0 else -1
        self._scanned = len(self._tail)
        if self._scanned > self._max:
            raise FrameTooLong(f"an element of the stream is longer than {self._max:,} bytes")
        return frames

    def close(self) -> list[Frame]:
        """What is left is an element that was cut."""
        tail, self._tail = bytes(self._tail), bytearray()
        return [Frame(None, tail)] if tail.strip() else []

    def _in_text_byte(self, byte: int) -> None:
        if self._escaped:
            self._escaped = False
        elif byte == 0x5C:
            self._escaped = True
        elif byte == 0x22:
            self._in_text = False


def named(event: str, data: bytes) -> bytes:
    """A frame with an `event:` line."""
    return b"event: %b\ndata: %b\n\n" % (event.encode(), data)


def bare(data: bytes) -> bytes:
    """A frame of data alone."""
    return b"data: %b\n\n" % data
