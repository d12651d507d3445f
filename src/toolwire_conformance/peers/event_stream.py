"""Amazon's binary framing, between the text in which cases are written and the bytes of the wire. It is separate from
the library's own on purpose, and fails where SDKs fail.

An event is written as `event: messageStart`, an exception as `event: exception:throttlingException`, an error as
`event: error:InternalFailure` with its message as data.
"""

from __future__ import annotations

import json
import struct
from zlib import crc32

CONTENT_TYPE = "application/vnd.amazon.eventstream"
BROKEN_EVENT = "broken"
"""The event line of what cannot be read; a client fails there."""


def _write_header(name: str, value: str) -> bytes:
    key, data = name.encode(), value.encode()
    return struct.pack(">B", len(key)) + key + struct.pack(">BH", 7, len(data)) + data


def write_message(headers: dict[str, str], payload: bytes) -> bytes:
    head = b"".join(_write_header(*row) for row in headers.items())
    prelude = struct.pack(">II", 16 + len(head) + len(payload), len(head))
    message = prelude + struct.pack(">I", crc32(prelude)) + head + payload
    return message + struct.pack(">I", crc32(message))


def write_frame(event: str, data: str) -> bytes:
    kind, _, name = event.rpartition(":")
    if kind == "error":
        return write_message({":error-code": name, ":error-message": json.loads(data), ":message-type": "error"}, b"")
    kind = kind or "event"
    headers = {f":{kind}-type": name, ":content-type": "application/json", ":message-type": kind}
    return write_message(headers, data.encode())


def encode_text(text: str) -> bytes:
    """The bytes of frames that are written as text; what is no frame goes out as it is."""
    out = b""
    for block in text.replace("\r\n", "\n").split("\n\n"):
        lines = block.split("\n")
        event = next((line[6:].strip() for line in lines if line.startswith("event:")), "")
        data = "\n".join(line[5:].removeprefix(" ") for line in lines if line.startswith("data:"))
        if event:
            out += write_frame(event, data)
        elif block.strip():
            out += block.encode()
    return out


class TextDecoder:
    """Bytes in, the text of whole frames out."""

    def __init__(self) -> None:
        self._held = b""

    def decode(self, data: bytes) -> str:
        self._held += data
        out = ""
        while len(self._held) >= 12:
            total, size, checksum = struct.unpack(">III", self._held[:12])
            if crc32(self._held[:8]) != checksum:
                out += f"event: {BROKEN_EVENT}\ndata: {json.dumps('the prelude does not match its checksum')}\n\n"
                self._held = b""
                break
            if len(self._held) < total:
                break
            message, self._held = self._held[:total], self._held[total:]
            out += _read_message(message, size)
        return out


def _read_message(message: bytes, size: int) -> str:
    if crc32(message[:-4]) != struct.unpack(">I", message[-4:])[0]:
        return f"event: {BROKEN_EVENT}\ndata: {json.dumps('a message does not match its checksum')}\n\n"
    headers = dict(_read_headers(message[12 : 12 + size]))
    kind = headers.get(":message-type", "")
    if kind == "error":
        return f"event: error:{headers.get(':error-code')}\ndata: {json.dumps(headers.get(':error-message'))}\n\n"
    name = headers.get(f":{kind}-type", "")
    data = message[12 + size : -4].decode()
    return f"event: {name if kind == 'event' else f'{kind}:{name}'}\ndata: {data}\n\n"


def _read_headers(data: bytes) -> list[tuple[str, str]]:
    headers, at = [], 0
    while at < len(data):
        end = at + 1 + data[at]
        (size,) = struct.unpack(">H", data[end + 1 : end + 3])
        headers.append((data[at + 1 : end].decode(), data[end + 3 : end + 3 + size].decode()))
        at = end + 3 + size
    return headers
