"""Server-sent events and streamed JSON arrays, from bytes to frames and back. No I/O: feed bytes, take frames.

Frames are split as bytes and only whole frames are decoded, so no split of the input can break a character.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import msgspec

from toolwire.core.json_values import find_lone_halves

MAX_FRAME = 64 * 1024 * 1024
MAX_LINES = 10_000
"""Lines of one frame, if they are not all data. Each costs time, and they come at once."""
_COLON = ord(":")
_MAX_MATCHED_TEXT = MAX_FRAME // 16
"""However a shorter text is escaped, its frame stays below the limit."""
MAX_FAILED_TEMPLATES = 8
"""So many frame templates without a match, and a reader stops making them: more than the text differs."""
_TWO_FRAMES_NEWLINES = 4
"""Bytes with fewer newlines than this hold at most one whole frame."""
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_decode_text = msgspec.json.Decoder(str).decode
_match_simple_frame = re.compile(rb"(?:event: ([^\n]*)\n)?data: ([^\n]*)").fullmatch


class Frame(msgspec.Struct, frozen=True):
    """One server-sent event: its name, if it has an `event:` line, and its data."""

    event: str | None
    data: bytes


class FrameTooLong(Exception):
    """A frame is longer than the limit, or never ends."""


# --- characters that were cut between two frames ---

_HIGH_HALF_AT_END = re.compile(rb'\\u[dD][89abAB][0-9a-fA-F]{2}"')
_IDENTIFYING_KEYS = ("index", "output_index", "content_index", "summary_index", "item_id", "part", "thought")
"""Keys that tell apart what deltas of the same shape belong to."""


class HalfJoiner:
    """Joins surrogate pairs that a server cut between two deltas (`\\ud83d`, `\\ude42`), as some in JavaScript do.

    A frame with a text that ends in a first half is held until the next frame. If that continues the text with the
    second half, the whole character goes into the first frame.
    """

    __slots__ = ("held_frame",)

    def __init__(self) -> None:
        self.held_frame: Frame | None = None

    def join_frames(self, frames: list[Frame]) -> list[Frame]:
        out: list[Frame] = []
        for frame in frames:
            if self.held_frame is not None:
                held, frame = _join_pair(self.held_frame, frame)
                out.append(held)
                self.held_frame = None
            if frame.data.find(b"\\u") >= 0 and _HIGH_HALF_AT_END.search(frame.data) and _halves_at_end(frame.data):
                self.held_frame = frame
            else:
                out.append(frame)
        return out

    def release(self) -> list[Frame]:
        held, self.held_frame = self.held_frame, None
        return [] if held is None else [held]


def _join_pair(first: Frame, second: Frame) -> tuple[Frame, Frame]:
    """Both frames, with halves at the start of the second one moved to the texts in the first that they complete."""
    try:
        ends, starts = _halves_at_end(first.data), _halves_at_start(second.data)
        left, right = first.data.decode(), second.data.decode()
    except UnicodeDecodeError:
        return first, second
    for place in reversed([place for place in ends if place in starts]):
        left = left[: ends[place].end()] + starts[place][0] + left[ends[place].end() :]
    for place in reversed([place for place in starts if place in ends]):
        right = right[: starts[place].start()] + right[starts[place].end() :]
    return Frame(first.event, left.encode()), Frame(second.event, right.encode())


_Halves = dict[tuple[object, ...], re.Match[str]]
"""Escaped halves, by what identifies the text that they are in, in the order of the document."""


def _halves_at_end(data: bytes) -> _Halves:
    """First halves at the end of a text."""
    text = data.decode("utf-8", "replace")
    halves = [half for half in find_lone_halves(text) if text.startswith('"', half.end()) and _is_first(half)]
    places = [place for place, found in _find_texts(text) if "\ud800" <= found[-1:] <= "\udbff"] if halves else []
    return dict(zip(places, halves, strict=True)) if len(places) == len(halves) else {}


def _halves_at_start(data: bytes) -> _Halves:
    """Second halves at the start of a text."""
    text = data.decode()
    halves = [half for half in find_lone_halves(text) if not _is_first(half) and _starts_text(text, half.start())]
    places = [place for place, found in _find_texts(text) if "\udc00" <= found[:1] <= "\udfff"] if halves else []
    return dict(zip(places, halves, strict=True)) if len(places) == len(halves) else {}


def _is_first(half: re.Match[str]) -> bool:
    return half[1][1] in "89abAB"


def _starts_text(text: str, at: int) -> bool:
    return text[at - 1] == '"' and text[at - 2] != "\\"


def _find_texts(text: str) -> list[tuple[tuple[object, ...], str]]:
    """Every text of a JSON document with what identifies it, in order; none if it is not JSON."""
    found: list[tuple[tuple[object, ...], str]] = []
    try:
        waiting: list[tuple[tuple[object, ...], Any]] = [((), json.loads(text))]
    except (ValueError, RecursionError):
        return found
    while waiting:
        place, node = waiting.pop()
        if isinstance(node, str):
            found.append((place, node))
        elif isinstance(node, dict):
            here = (*place, *[str(node[key]) for key in _IDENTIFYING_KEYS if key in node])
            waiting += [((*here, key), child) for key, child in reversed(node.items())]
        elif isinstance(node, list):
            children = [
                (place if isinstance(child, dict) and "index" in child else (*place, number), child)
                for number, child in enumerate(node)
            ]
            waiting += reversed(children)
    return found


# --- bytes to frames ---


class SseSplitter:
    """Bytes in, whole frames out. Comments, `id:` and `retry:` are ignored. CR, LF and CRLF all end a line."""

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self._buffer = bytearray()
        self._event_name: str | None = None
        self._data_lines: list[bytes] = []
        self._has_started = False
        self.is_between_frames = True
        """Is no partial frame buffered?"""
        self._last_event_name: str | None = None
        self._last_head = b"data: "
        """The bytes before the data of the last frame, and its event name: mostly the same in the next frame."""
        self._has_cr = False
        """Does the buffer end with a CR?"""
        self._max_frame = max_frame
        self._data_size = 0
        self._joiner = HalfJoiner()

    def feed(self, data: bytes) -> list[Frame]:
        if self.is_between_frames:
            frame = self._read_single_frame(data)
            if frame is not None:
                self._has_started = True
                if data.find(b"\\u") < 0:
                    return [frame]
                frames = self._joiner.join_frames([frame])
                self.is_between_frames = bool(frames)
                return frames
        self._buffer += data
        if not self._has_started:
            if len(self._buffer) < 3 and b"\xef\xbb\xbf".startswith(self._buffer):
                return []
            self._has_started = True
            if self._buffer.startswith(b"\xef\xbb\xbf"):
                del self._buffer[:3]
        frames = self._joiner.join_frames(self._split_frames(data))
        self.is_between_frames = (
            not self._buffer and not self._data_lines and self._event_name is None and self._joiner.held_frame is None
        )
        if len(self._buffer) + self._data_size > self._max_frame:
            raise FrameTooLong(f"a frame of the stream is longer than {self._max_frame:,} bytes")
        return frames

    def _read_single_frame(self, data: bytes) -> Frame | None:
        """The frame, if these bytes are exactly one, as most servers send them. `partition` is the fastest search."""
        line, _, rest = data.partition(b"\n")
        if data.partition(b"\r")[1]:
            return None
        if rest == b"\n":
            return Frame(None, line[6:]) if line[:6] == b"data: " else None
        text, _, rest = rest.partition(b"\n")
        if rest != b"\n":
            return None
        head = line + b"\n" + text[:6]
        if head != self._last_head:
            if line[:7] != b"event: " or text[:6] != b"data: ":
                return None
            self._last_head, self._last_event_name = head, line[7:].decode("utf-8", "replace").strip()
        return Frame(self._last_event_name, text[6:])

    def close(self) -> list[Frame]:
        """The end of input: a last frame without its blank line is still a frame."""
        tail, self._buffer = bytes(self._buffer), bytearray()
        lines = tail.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        frames = [frame for line in (*lines, b"") if (frame := self._read_line(line)) is not None]
        return self._joiner.join_frames(frames) + self._joiner.release()

    def _split_frames(self, data: bytes) -> list[Frame]:
        has_cr = data.find(b"\r") >= 0
        if not has_cr and data.find(b"\n") < 0:
            return []
        if not (has_cr or self._has_cr or self._data_lines) and self._event_name is None:
            # Without a CR, frames end at "\n\n"; a partial frame stays in the buffer. Only new bytes are searched.
            if self._buffer.find(b"\n\n", max(0, len(self._buffer) - len(data) - 1)) < 0:
                return []
            *blocks, rest = bytes(self._buffer).split(b"\n\n")
            self._buffer = bytearray(rest)
            return [frame for block in blocks if block and (frame := self._read_block(block)) is not None]
        # A CR at the very end may be half of a CRLF: keep it for the next bytes.
        held = bytes(self._buffer)
        self._has_cr = half = held.endswith(b"\r")
        held = (held[:-1] if half else held).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = held.split(b"\n")
        self._buffer = bytearray(rest + b"\r" if half else rest)
        return [frame for line in lines if (frame := self._read_line(line)) is not None]

    def _read_block(self, block: bytes) -> Frame | None:
        """The frame of a block of lines without the blank line that ends it."""
        if block.startswith(self._last_head) and (data := block[len(self._last_head) :]).find(b"\n") < 0:
            return Frame(self._last_event_name, data)
        if block[0] == _COLON and block.find(b"\n") < 0:
            return None  # a comment
        simple = _match_simple_frame(block)
        if simple is not None:
            name, data = simple.groups()
            self._last_event_name = None if name is None else name.decode("utf-8", "replace").strip()
            self._last_head = block[: simple.start(2)]
            return Frame(self._last_event_name, data)
        lines, spaced = block.count(b"\n"), block.count(b"\ndata: ") + block.startswith(b"data: ")
        prefix = b"\ndata: " if spaced else b"\ndata:"
        if spaced in (0, lines + 1) and block.startswith(prefix[1:]) and block.count(prefix) == lines:
            # All lines are data, however many: some servers print JSON for people.
            return Frame(None, block[len(prefix) - 1 :].replace(prefix, b"\n"))
        if lines > MAX_LINES:
            raise FrameTooLong(f"a frame of the stream has more than {MAX_LINES:,} lines")
        found = [frame for line in (*block.split(b"\n"), b"") if (frame := self._read_line(line)) is not None]
        return found[0] if found else None

    def _read_line(self, line: bytes) -> Frame | None:
        if not line:
            if not self._data_lines:
                self._event_name = None
                return None
            frame = Frame(self._event_name, b"\n".join(self._data_lines))
            self._event_name, self._data_lines, self._data_size = None, [], 0
            return frame
        if line.startswith(b"data:"):
            value = line[6:] if line[5:6] == b" " else line[5:]
            self._data_lines.append(value)
            self._data_size += len(value)
        elif line.startswith(b"event:"):
            self._event_name = line[6:].decode("utf-8", "replace").strip()
        elif line == b"data":
            self._data_lines.append(b"")
        return None


def split_after_frames(data: bytes) -> list[bytes]:
    """The bytes of each frame with its end, and what is left behind the last end."""
    if data.count(b"\n") < _TWO_FRAMES_NEWLINES:
        return [data]
    end = b"\r\n\r\n" if data.find(b"\r\n\r\n") >= 0 else b"\n\n"
    *frames, rest = data.split(end)
    pieces = [frame + end for frame in frames]
    if len(pieces) > _MANY_PIECES:
        pieces = _join_empty_pieces(pieces)
    return [*pieces, rest] if rest else pieces


_MANY_PIECES = 512
"""In one read. More are comments or blank lines, and it would take long to read each by itself."""


def _join_empty_pieces(pieces: list[bytes]) -> list[bytes]:
    """Comments and blank lines together with the frame after them."""
    joined: list[bytes] = []
    held: list[bytes] = []
    for piece in pieces:
        held.append(piece)
        if piece[0] not in b":\r\n":
            joined.append(b"".join(held))
            held.clear()
    return [*joined, b"".join(held)] if held else joined


class FrameTemplate:
    """The bytes of a frame around one JSON string. A frame that differs only there is recognised without decoding."""

    __slots__ = ("_excluded_start", "_prefix", "_prefix_slice", "_suffix", "_suffix_slice", "_text_slice")

    def __init__(self, prefix: bytes, suffix: bytes, excluded_start: str = "") -> None:
        self._excluded_start = excluded_start
        """A text that starts with this does not match, because its reader must look at it."""
        self._set_bytes(prefix, suffix)

    def _set_bytes(self, prefix: bytes, suffix: bytes) -> None:
        """The bytes before and after the string, without its quotes."""
        self._prefix = prefix + b'"'
        self._suffix = b'"' + suffix
        self._prefix_slice, self._text_slice = slice(len(self._prefix)), slice(len(prefix), -len(suffix))
        self._suffix_slice = slice(-len(self._suffix), None)

    def match_text(self, data: bytes) -> str | None:
        """The text, if these bytes are one whole frame of this template; None for an empty or too long text."""
        if data[self._prefix_slice] != self._prefix or data[self._suffix_slice] != self._suffix:
            return None
        try:
            text = _decode_text(data[self._text_slice])
        except ValueError:
            return None
        if not text or len(text) >= _MAX_MATCHED_TEXT:
            return None
        return None if self._excluded_start and text.startswith(self._excluded_start) else text


def make_frame_template(
    frame: Frame,
    text: str,
    find_text: Callable[[Any], Any],
    excluded_start: str = "",
    kind: type[FrameTemplate] = FrameTemplate,
) -> FrameTemplate | None:
    """A template of this frame, in whose JSON `find_text` finds the text; None if its position is ambiguous."""
    data = frame.data
    prefix, encoded, suffix = data.rpartition(_encode(text))
    if not encoded or data.partition(b"\n")[1] or data.partition(b"\r")[1]:
        return None
    # Without other backslashes, encoded text that occurs once is at the position where `find_text` found it.
    ambiguous = (prefix + b'"').partition(encoded)[1] or prefix.partition(b"\\")[1] or suffix.partition(b"\\")[1]
    if ambiguous and not _confirms_position(find_text, prefix, text + ".", suffix):
        return None
    head = b"data: " if frame.event is None else b"event: " + frame.event.encode() + b"\ndata: "
    return kind(head + prefix, suffix + b"\n\n", excluded_start)


def _confirms_position(find_text: Callable[[Any], Any], prefix: bytes, text: str, suffix: bytes) -> bool:
    """Is another text found, if it is put at this position?"""
    try:
        return bool(find_text(_decode(prefix + _encode(text) + suffix)) == text)
    except (ValueError, LookupError, TypeError, RecursionError):
        return False


class JsonArraySplitter:
    """Splits a JSON array streamed element by element (`[{…}` `,{…}` `]`), or objects one after another."""

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self._buffer = bytearray()
        self._scanned = 0
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._start = -1
        self._max_frame = max_frame
        self._joiner = HalfJoiner()

    def feed(self, data: bytes) -> list[Frame]:
        self._buffer += data
        frames: list[Frame] = []
        for at in range(self._scanned, len(self._buffer)):
            byte = self._buffer[at]
            if self._in_string:
                self._in_string = self._escaped or byte != 0x22
                self._escaped = byte == 0x5C and not self._escaped
            elif byte == 0x22:
                self._in_string = True
            elif byte == 0x7B:
                if self._depth == 0:
                    self._start = at
                self._depth += 1
            elif byte == 0x7D and self._depth:
                self._depth -= 1
                if self._depth == 0:
                    frames.append(Frame(None, bytes(self._buffer[self._start : at + 1])))
                    self._start = -1
        keep = self._start if self._start >= 0 else len(self._buffer)
        del self._buffer[:keep]
        self._start = 0 if self._start >= 0 else -1
        self._scanned = len(self._buffer)
        if self._scanned > self._max_frame:
            raise FrameTooLong(f"an element of the stream is longer than {self._max_frame:,} bytes")
        return self._joiner.join_frames(frames)

    def close(self) -> list[Frame]:
        """What is left is a partial element."""
        tail, self._buffer = bytes(self._buffer), bytearray()
        frames = [Frame(None, tail)] if tail.strip() else []
        return self._joiner.join_frames(frames) + self._joiner.release()


_LINE_BREAKS = re.compile(r"[\r\n\0]+")
_UNICODE_LINE_ENDS = re.compile("[\x85\u2028\u2029]")


def write_event_frame(event: str, data: bytes) -> bytes:
    """A frame with a name. Some names come from a provider's JSON, so they must not be able to end their line."""
    if "\n" in event or "\r" in event or "\0" in event:
        event = _LINE_BREAKS.sub(" ", event)
    return b"event: %b\ndata: %b\n\n" % (event.encode(), data)


def escape_line_ends(data: bytes) -> bytes:
    """JSON without the characters besides CR and LF at which Python's `str.splitlines` ends a line. Google's SDK splits
    streams by it, and Google's servers escape these characters too."""
    if data.isascii():
        return data
    return _UNICODE_LINE_ENDS.sub(lambda found: f"\\u{ord(found[0]):04x}", data.decode()).encode()


def write_data_frame(data: bytes) -> bytes:
    return b"data: %b\n\n" % data
