"""Messages of Amazon's binary streams out of bytes: every split, every checksum, every fault."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.material import SAMPLES

from toolwire.core.event_stream import (
    MAX_HEADERS,
    MAX_PAYLOAD,
    EventStreamSplitter,
    Message,
    read_headers,
    split_after_messages,
    write_error,
    write_event,
    write_exception,
    write_message,
)

FOLDER = SAMPLES / "bedrock_converse"
READABLE = sorted(path for path in FOLDER.glob("*.bin") if path.with_suffix(".jsonl").exists())
FAULTS = {
    "negative_bad_prelude_crc": "the start of message 3 does not match its checksum",
    "negative_bad_message_crc": "message 3 does not match its checksum",
    "negative_truncated_frame": "it ends inside message 7",
    "negative_sse_body": "the start of message 1 does not match its checksum",
}


def split(data: bytes, size: int = 0) -> tuple[list[Message], str]:
    splitter = EventStreamSplitter()
    step = size or len(data) or 1
    messages = [one for at in range(0, len(data), step) for one in splitter.feed(data[at : at + step])]
    splitter.close()
    return messages, splitter.fault


@pytest.mark.parametrize("path", READABLE, ids=lambda path: path.stem)
def test_a_stream_is_read_as_it_was_written(path: Path) -> None:
    data = path.read_bytes()
    rows = [json.loads(line) for line in path.with_suffix(".jsonl").read_text().splitlines()]
    messages, fault = split(data)
    assert fault == ""
    assert len(messages) == len(rows)
    for message, row in zip(messages, rows, strict=True):
        headers = row["headers"]
        assert message.kind == headers[":message-type"]
        code = ":error-code" if message.kind == "error" else f":{message.kind}-type"
        assert message.name == headers[code]
        assert message.error_text == headers.get(":error-message", "")
        assert (json.loads(message.payload) if message.payload else None) == row["payload"]
    assert b"".join(write_message(row["headers"], one.payload) for one, row in zip(messages, rows, strict=True)) == data


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.bin")), ids=lambda path: path.stem)
def test_no_split_changes_what_is_read(path: Path) -> None:
    data = path.read_bytes()
    assert {repr(split(data, size)) for size in (1, 2, 7, 11, 12, 13, 100)} == {repr(split(data))}


@pytest.mark.parametrize(("name", "fault"), FAULTS.items())
def test_a_broken_stream_says_where_it_broke(name: str, fault: str) -> None:
    assert split((FOLDER / f"{name}.bin").read_bytes())[1] == fault


def test_messages_before_a_fault_are_read_and_none_after_it() -> None:
    good, bad = write_event("a", b"{}"), bytearray(write_event("b", b"{}"))
    bad[-1] ^= 1
    splitter = EventStreamSplitter()
    assert splitter.feed(good + bytes(bad) + good) == [Message("event", "a", b"{}")]
    assert splitter.fault == "message 2 does not match its checksum"
    assert splitter.feed(good) == []


@given(st.data())
def test_any_changed_bit_is_a_fault(data: st.DataObject) -> None:
    messages = [
        write_event("contentBlockDelta", b'{"delta":{"text":"x"}}'),
        write_exception("throttlingException", b"{}"),
    ]
    stream = bytearray(b"".join(messages))
    bit = data.draw(st.integers(0, len(stream) * 8 - 1))
    stream[bit // 8] ^= 1 << bit % 8
    read, fault = split(bytes(stream))
    assert fault
    assert len(read) <= 1


@given(st.lists(st.binary(max_size=60), max_size=4), st.integers(1, 40))
def test_what_is_written_is_read(payloads: list[bytes], size: int) -> None:
    data = b"".join(write_event(f"e{number}", payload) for number, payload in enumerate(payloads))
    expected = [Message("event", f"e{number}", payload) for number, payload in enumerate(payloads)]
    assert split(data, size) == (expected, "")
    assert b"".join(split_after_messages(data)) == data
    assert len(split_after_messages(data)) == max(1, len(payloads))


@given(st.binary(max_size=200))
def test_any_bytes_are_messages_or_a_fault(data: bytes) -> None:
    messages, fault = split(data)
    assert bool(fault) or sum(len(one.payload) for one in messages) <= len(data)
    assert b"".join(split_after_messages(data)) == data
    read_headers(data)


@pytest.mark.parametrize(
    ("total", "headers", "fault"),
    [
        (MAX_PAYLOAD + 17, 0, "too long"),
        (MAX_HEADERS + 17, MAX_HEADERS + 1, "too long"),
        (15, 0, "contradict each other"),
        (20, 5, "contradict each other"),
        (0, 0, "contradict each other"),
    ],
)
def test_impossible_lengths_are_a_fault_before_the_rest_comes(total: int, headers: int, fault: str) -> None:
    lengths = struct.pack(">II", total, headers)
    splitter = EventStreamSplitter()
    splitter.feed(lengths + struct.pack(">I", crc32(lengths)))
    assert fault in splitter.fault


def test_headers_of_other_types_are_skipped() -> None:
    values = [
        b"\0",
        b"\1",
        b"\2x",
        b"\3xx",
        b"\4xxxx",
        b"\5xxxxxxxx",
        b"\6\0\3abc",
        b"\x08xxxxxxxx",
        b"\x09" + b"x" * 16,
    ]
    data = b"".join(b"\1a" + value for value in values) + b"\1b\7\0\2hi"
    assert read_headers(data) == {"b": "hi"}


@pytest.mark.parametrize("data", [b"\1", b"\1a", b"\1a\7", b"\1a\7\0\5hi", b"\1a\x0a", b"\1\xff\7\0\0", b"\5a\7\0\0"])
def test_headers_that_cannot_be_read_are_a_fault(data: bytes) -> None:
    assert read_headers(data) is None
    lengths = struct.pack(">II", len(data) + 16, len(data))
    message = lengths + struct.pack(">I", crc32(lengths)) + data
    splitter = EventStreamSplitter()
    assert splitter.feed(message + struct.pack(">I", crc32(message))) == []
    assert splitter.fault == "the headers of message 1 cannot be read"


def test_a_text_too_long_for_a_header_is_cut_between_characters() -> None:
    ((message,), fault) = split(write_error("InternalFailure", "☀" * 40_000))
    assert fault == ""
    assert message == Message("error", "InternalFailure", b"", "☀" * (0xFFFF // 3))


def test_a_long_message_in_small_pieces_is_read_once_it_is_whole() -> None:
    payload = b"x" * 1_000_000
    assert split(write_event("a", payload), 1000) == ([Message("event", "a", payload)], "")
