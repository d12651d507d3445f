"""Keeps a provider's own keys out of a stream in Amazon's framing, also those that it spells in several messages."""

from __future__ import annotations

from collections import deque

from toolwire.core.event_stream import EventStreamSplitter, read_headers, write_message
from toolwire.core.framing import EVENT_STREAM_FRAMING
from toolwire.gateway.http.answer_keys import AnswerKeys
from toolwire.gateway.http.redact import KeyFilter

_LINE_START, _LINE_END = b"data: ", b"\n"
_BLANKS = bytes.maketrans(b"\r\n", b"  ")


class MessageKeys:
    """Removes the keys from the payloads of one answer's messages, and writes those anew that had some: with another
    payload their checksums would be wrong. What `AnswerKeys` reads are the payloads as server-sent events."""

    def __init__(self, known: KeyFilter) -> None:
        self.known = known
        self.is_waiting = False
        self._payloads = AnswerKeys(known)
        self._rest = bytearray()
        """The start of a message."""
        self._held: deque[tuple[bytes, bytes]] = deque()
        """Messages that wait for the rest of a key, each with its line."""
        self._is_broken = False
        """Is what came last no message? Nobody can say then where the next one starts."""

    def feed(self, data: bytes) -> bytes:
        """A piece of the body without keys; less of it, if its end must wait."""
        if self._is_broken:
            return self._feed_rest(data)
        messages = EVENT_STREAM_FRAMING.cut_frames(self._rest, data)
        is_broken = bool(messages) and int.from_bytes(messages[-1][:4]) != len(
            messages[-1]
        )  # it begins with its length
        rest = messages.pop() if is_broken else b""
        shown = b"".join(messages)
        if self._held or not self.known.is_clean(shown):
            shown = b"".join(map(self._pass_message, messages))
        if is_broken:
            self._is_broken = True
            shown += self._write_shown(self._payloads.close())
            return shown + self._feed_rest(rest)
        self.is_waiting = bool(self._rest or self._held)
        return shown

    def clean_body(self, data: bytes) -> bytes:
        return self.feed(data) + self.close()

    def close(self) -> bytes:
        """What still waits."""
        rest, self._rest = bytes(self._rest), bytearray()
        shown = self._payloads.close()
        self.is_waiting = False
        return shown if self._is_broken else self._write_shown(shown) + self.known.clean(rest)

    def _feed_rest(self, data: bytes) -> bytes:
        shown = self._payloads.feed(data)
        self.is_waiting = self._payloads.is_waiting
        return shown

    def _pass_message(self, message: bytes) -> bytes:
        payload = message[12 + _count_header_bytes(message) : -4]
        line = _LINE_START + payload.translate(_BLANKS) + _LINE_END
        self._held.append((message, line))
        return self._write_shown(self._payloads.feed(line))

    def _write_shown(self, lines: bytes) -> bytes:
        return b"".join([self._write_line(line) for line in lines.splitlines(keepends=True)])

    def _write_line(self, line: bytes) -> bytes:
        message, before = self._held.popleft()
        headers = read_headers(_find_headers(message))
        if line == before and self.known.is_clean(_find_headers(message)):
            return message
        if headers is None or not _is_whole(message):
            return self.known.clean(message)
        payload = line.removeprefix(_LINE_START).removesuffix(_LINE_END)
        return write_message(self.known.clean_headers(headers), payload)


def _find_headers(message: bytes) -> bytes:
    return message[12 : 12 + _count_header_bytes(message)]


def _count_header_bytes(message: bytes) -> int:
    return int.from_bytes(message[4:8])


def _is_whole(message: bytes) -> bool:
    """Are its lengths and checksums right? Who reads it says what is wrong with it."""
    splitter = EventStreamSplitter()
    return len(splitter.feed(message)) == 1 and splitter.is_between_messages
