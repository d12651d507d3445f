"""The binary framing of Amazon's streams (`application/vnd.amazon.eventstream`), from bytes to messages and back. No
I/O: feed bytes, take messages.

    total length u32 | headers' length u32 | CRC-32 of these 8 bytes | headers | payload | CRC-32 of all before it

All numbers are big-endian. The lengths, the types of header values and the limits are those of botocore 1.44 and
smithy's specification of the format (November 2026). Both checksums are checked: a message that does not match is the
end of the stream, because nobody can say where the next one starts.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from zlib import crc32

from msgspec import Struct

CONTENT_TYPE = "application/vnd.amazon.eventstream"
MAX_PAYLOAD = 24 * 1024 * 1024
MAX_HEADERS = 128 * 1024
_FRAME_BYTES = 16
"""Bytes of a message besides its headers and payload."""
_PRELUDE = struct.Struct(">III")
_LENGTHS = struct.Struct(">II")
_NUMBER = struct.Struct(">I")
_SHORT = struct.Struct(">H")
_STRING = 7
_BYTES = 6
_MAX_VALUE = 0xFFFF
"""Bytes of a header's text, whose length has two bytes. A longer text, which a peer may have written, is cut."""
_FIXED_SIZES: Mapping[int, int] = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""Bytes of a header's value by its type: true, false, the integers, a timestamp, a UUID."""
_MAX_KNOWN_HEADERS = 32
"""Header blocks of one stream that are remembered. Most messages have one of five."""


class Message(Struct, frozen=True, gc=False):
    """One message of a stream."""

    kind: str
    """`event`, `exception` or `error` (`:message-type`)."""
    name: str
    """What kind of event, exception or error it is (`:event-type`, `:exception-type`, `:error-code`)."""
    payload: bytes
    error_text: str = ""
    """What an `error` says (`:error-message`); it has no payload."""


class EventStreamSplitter:
    """Bytes in, whole messages out."""

    __slots__ = ("_buffer", "_count", "_known_headers", "fault")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._count = 0
        self._known_headers: dict[bytes, tuple[str, str, str]] = {}
        self.fault = ""
        """Why nothing more can be read; "" while all is well. Messages before the fault have been returned."""

    @property
    def is_between_messages(self) -> bool:
        return not self._buffer

    def feed(self, data: bytes) -> list[Message]:
        if self.fault:
            return []
        messages: list[Message] = []
        if self._buffer:
            self._buffer += data
            data = bytes(self._buffer) if self._holds_message() else b""
            if not data:
                return messages
            self._buffer.clear()
        start, end = 0, len(data)
        while end - start >= _PRELUDE.size and (size := self._check_prelude(data, start)):
            if end - start < size:
                break
            message = self._read_message(data[start : start + size])
            if message is None:
                break
            messages.append(message)
            start += size
        if not self.fault:
            self._buffer += data[start:]
        return messages

    def close(self) -> None:
        """The end of the input: a message that has not come whole is a fault."""
        if self._buffer and not self.fault:
            self.fault = f"it ends inside message {self._count + 1}"

    def _holds_message(self) -> bool:
        """Is the held message whole, or known to be broken? A long one comes in many pieces, and is not copied for
        each of them."""
        held = self._buffer
        return len(held) >= _PRELUDE.size and ((size := self._check_prelude(held, 0)) == 0 or len(held) >= size)

    def _check_prelude(self, data: bytes | bytearray, start: int) -> int:
        """The length of the message that starts here; 0 and a fault if it cannot be one."""
        total, headers, checksum = _PRELUDE.unpack_from(data, start)
        what = f"message {self._count + 1}"
        if crc32(data[start : start + _LENGTHS.size]) != checksum:
            self.fault = f"the start of {what} does not match its checksum"
        elif headers > MAX_HEADERS or total > headers + MAX_PAYLOAD + _FRAME_BYTES:
            self.fault = f"{what} is too long ({total:,} bytes)"
        elif total < headers + _FRAME_BYTES:
            self.fault = f"the lengths of {what} contradict each other"
        return 0 if self.fault else int(total)

    def _read_message(self, data: bytes) -> Message | None:
        _, headers_size = _LENGTHS.unpack_from(data)
        if crc32(data[:-4]) != _NUMBER.unpack_from(data, len(data) - 4)[0]:
            self.fault = f"message {self._count + 1} does not match its checksum"
            return None
        self._count += 1
        headers = data[_PRELUDE.size : _PRELUDE.size + headers_size]
        known = self._known_headers.get(headers) or self._read_known_headers(headers)
        return None if known is None else Message(known[0], known[1], data[12 + headers_size : -4], known[2])

    def _read_known_headers(self, data: bytes) -> tuple[str, str, str] | None:
        headers = read_headers(data)
        if headers is None:
            self.fault = f"the headers of message {self._count} cannot be read"
            return None
        kind = headers.get(":message-type", "event")
        name = headers.get(":error-code" if kind == "error" else f":{kind}-type", "")
        known = kind, name, headers.get(":error-message", "")
        if len(self._known_headers) < _MAX_KNOWN_HEADERS:
            self._known_headers[data] = known
        return known


def read_headers(data: bytes) -> dict[str, str] | None:
    """The headers whose values are text; others are skipped by their type. None if the bytes are no headers."""
    headers: dict[str, str] = {}
    at, end = 0, len(data)
    try:
        while at < end:
            name_end = at + 1 + data[at]
            name, kind, at = data[at + 1 : name_end].decode(), data[name_end], name_end + 1
            size = _FIXED_SIZES.get(kind)
            if size is None:
                if kind not in (_STRING, _BYTES):
                    return None
                (size,), at = _SHORT.unpack_from(data, at), at + _SHORT.size
            if kind == _STRING:
                headers[name] = data[at : at + size].decode()
            at += size
    except (IndexError, struct.error, UnicodeDecodeError):
        return None
    return headers if at == end else None


def split_after_messages(data: bytes) -> list[bytes]:
    """The bytes of each message, and what is left behind the last whole one. Nothing is checked but lengths: a reader
    says what is wrong with a piece."""
    pieces: list[bytes] = []
    start, end = 0, len(data)
    while end - start > _PRELUDE.size:
        (size,) = _NUMBER.unpack_from(data, start)
        if not _FRAME_BYTES <= size <= end - start:
            break
        pieces.append(data[start : start + size])
        start += size
    return [*pieces, data[start:]] if start < end or not pieces else pieces


def holds_message(data: bytes | bytearray) -> bool:
    """Is there a whole message, or the start of something that is none? A reader says then what is wrong."""
    if len(data) < _PRELUDE.size:
        return False
    (size,) = _NUMBER.unpack_from(data)
    return not _FRAME_BYTES <= size <= MAX_PAYLOAD + MAX_HEADERS + _FRAME_BYTES or len(data) >= size


# --- messages to bytes ---


def write_message(headers: Mapping[str, str], payload: bytes) -> bytes:
    """A message whose headers are all text, in this order."""
    head = b"".join([_write_header(name.encode(), value.encode()) for name, value in headers.items()])
    lengths = _LENGTHS.pack(len(head) + len(payload) + _FRAME_BYTES, len(head))
    message = b"%b%b%b%b" % (lengths, _NUMBER.pack(crc32(lengths)), head, payload)
    return message + _NUMBER.pack(crc32(message))


def _write_header(name: bytes, value: bytes) -> bytes:
    if len(value) > _MAX_VALUE:
        value = value[:_MAX_VALUE].decode("utf-8", "ignore").encode()
    return b"%c%b%c%b%b" % (len(name), name, _STRING, _SHORT.pack(len(value)), value)


def write_event(name: str, payload: bytes) -> bytes:
    return write_message({":event-type": name, ":content-type": "application/json", ":message-type": "event"}, payload)


def write_exception(name: str, payload: bytes) -> bytes:
    headers = {":exception-type": name, ":content-type": "application/json", ":message-type": "exception"}
    return write_message(headers, payload)


def write_error(code: str, text: str) -> bytes:
    return write_message({":error-code": code, ":error-message": text, ":message-type": "error"}, b"")
