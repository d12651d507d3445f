"""A provider's own key in Amazon's framing of streams: in one message, and spelled in several."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolwire.core.event_stream import EventStreamSplitter, Message, write_error, write_event, write_exception
from toolwire.gateway.http.message_keys import MessageKeys
from toolwire.gateway.http.redact import KeyFilter

KEY = "bedrock-api-key-0123456789abcdef"


def write_text(text: str, block: int = 0) -> bytes:
    body = {"contentBlockIndex": block, "delta": {"text": text}, "p": "abcdefghijklmnopqrstuvwxyzAB"}
    return write_event("contentBlockDelta", json.dumps(body).encode())


def write_arguments(text: str, block: int = 1) -> bytes:
    body = {"contentBlockIndex": block, "delta": {"toolUse": {"input": text}}, "p": "ab"}
    return write_event("contentBlockDelta", json.dumps(body, indent=1).encode())


def spell(size: int) -> Iterator[str]:
    text = f"is {KEY} or so"
    return (text[at : at + size] for at in range(0, len(text), size))


def hide(stream: bytes, cut: int = 0) -> bytes:
    hidden = MessageKeys(KeyFilter([KEY]))
    pieces = [stream[at : at + cut] for at in range(0, len(stream), cut)] if cut else [stream]
    shown = b"".join(map(hidden.feed, pieces)) + hidden.close()
    assert not hidden.is_waiting
    return shown


def read_messages(stream: bytes) -> list[Message]:
    splitter = EventStreamSplitter()
    messages = splitter.feed(stream)
    assert (splitter.fault, splitter.is_between_messages) == ("", True)
    return messages


def read_texts(messages: Iterable[Message], block: int) -> str:
    bodies = [json.loads(one.payload) for one in messages]
    deltas = [body["delta"] for body in bodies if body["contentBlockIndex"] == block]
    return "".join(delta["text"] if "text" in delta else delta["toolUse"]["input"] for delta in deltas)


@pytest.mark.parametrize("cut", [0, 1, 13, 1000])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 16, 100])
def test_a_key_in_messages_is_hidden(size: int, cut: int) -> None:
    stream = b"".join(write_text(piece) + write_arguments(piece) for piece in spell(size))
    messages = read_messages(hide(stream, cut))
    assert [read_texts(messages, block) for block in (0, 1)] == ["is [key] or so"] * 2
    assert [one.name for one in messages] == [one.name for one in read_messages(stream)]


@pytest.mark.parametrize("size", [1, 7])
def test_blocks_that_take_turns_are_told_apart(size: int) -> None:
    stream = b"".join(write_text(piece, 0) + write_text(f"{at}", 1) for at, piece in enumerate(spell(size)))
    messages = read_messages(hide(stream))
    assert read_texts(messages, 0) == "is [key] or so"
    assert read_texts(messages, 1).startswith("0123")


def test_a_key_in_an_exception_or_an_error_is_hidden() -> None:
    told = f"bad key {KEY}"
    exception = write_exception("validationException", json.dumps({"message": told}).encode())
    first, second = read_messages(hide(exception + write_error("InternalError", told)))
    assert json.loads(first.payload) == {"message": "bad key [key]"}
    assert (second.kind, second.name, second.error_text) == ("error", "InternalError", "bad key [key]")


def test_messages_without_a_key_do_not_change() -> None:
    stream = b"".join(write_text(word) + write_arguments(word) for word in ("be", "bed", "rock", "", "\n", KEY[:-1]))
    assert hide(stream) == stream


def test_a_broken_message_stays_broken() -> None:
    message = bytearray(write_text(f"is {KEY}"))
    message[-1] ^= 1
    shown = hide(bytes(message))
    assert KEY.encode() not in shown
    splitter = EventStreamSplitter()
    assert splitter.feed(shown) == []
    splitter.close()
    assert splitter.fault


PIECES = st.sampled_from(
    [write_text("a b"), write_text(KEY[:9]), write_text(KEY), b"\0\0\0\x10", b"\xff" * 12, b"\n", write_event("x", b"")]
)


@settings(max_examples=200, deadline=None)
@given(st.lists(PIECES, max_size=6), st.integers(1, 40))
def test_whatever_the_cuts_the_bytes_are_the_same(pieces: list[bytes], cut: int) -> None:
    stream = b"".join(pieces)
    assert hide(stream, cut) == hide(stream)
    if write_text(KEY) not in pieces and pieces.count(write_text(KEY[:9])) < 2:
        assert hide(stream, cut) == stream
