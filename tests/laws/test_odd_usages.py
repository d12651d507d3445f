"""What a provider says about tokens never makes its answer unreadable. What is no count is left out and named where the
answer is translated, and stays as it came where it passes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from toolwire.core.codec import Codec, WriteContext
from toolwire.core.event_stream import EventStreamSplitter, write_event
from toolwire.core.events import ChoiceEnd, Fold, UsageUpdate, fold, unfold
from toolwire.core.ir import Choice, Finish, Response, Text, Usage
from toolwire.core.json_values import encode
from toolwire.core.losses import Ledger
from toolwire.gateway.exchange.passthrough_stream import PassthroughStream
from toolwire.protocols import CODECS
from toolwire.translation.exchange import Exchange
from toolwire.translation.options import Options
from toolwire.translation.streaming import StreamTranslation

USAGE_KEYS = ("usage", "usageMetadata")
DETAILS = ("prompt_tokens_details", "input_tokens_details", "output_tokens_details", "completion_tokens_details")
VALUES: dict[str, Any] = {
    "text": "many",
    "a list": [9, 3],
    "a number": 12,
    "true": True,
    "a fraction": 4.5,
    "negative": -1,
    "huge": 10**20,
    "endless": float("1e308"),
    "an object": {"tokens": 9},
    "null": None,
}
CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "the usage": lambda usage, value: value,
    "its counts": lambda usage, value: {key: usage[key] if key in DETAILS else value for key in usage},
    "its details": lambda usage, value: {**usage, **dict.fromkeys(DETAILS, value)},
    "counts in its details": lambda usage, value: {
        **usage,
        **{
            key: dict.fromkeys(("cached_tokens", "reasoning_tokens", "thinking_tokens", "audio_tokens"), value)
            for key in DETAILS
        },
    },
}
PLACES = pytest.mark.parametrize("place", CHANGES)
KINDS = pytest.mark.parametrize("kind", VALUES)
PROVIDERS = pytest.mark.parametrize("provider", CODECS)
ANSWER = Response("r_1", "m", 1, (Choice(0, (Text("Hello there."),), Finish("stop")),), Usage(9, 3, total=12))


def change(node: Any, place: str, kind: str) -> Any:
    """The same JSON with another usage, wherever it has one."""
    if isinstance(node, list):
        return [change(item, place, kind) for item in node]
    if not isinstance(node, dict):
        return node
    changed = {key: change(value, place, kind) for key, value in node.items()}
    for key in USAGE_KEYS:
        if isinstance(changed.get(key), dict) and key != node.get("type"):
            changed[key] = CHANGES[place](changed[key], VALUES[kind])
    return changed


def write_whole(codec: Codec, place: str, kind: str) -> Any:
    body = codec.write_response(ANSWER, Ledger("unified", codec.name), WriteContext())
    assert not {*USAGE_KEYS}.isdisjoint(body)
    return change(json.loads(encode(body)), place, kind)


def write_stream(codec: Codec, place: str, kind: str) -> bytes:
    writer = codec.make_stream_writer(Ledger("unified", codec.name), WriteContext())
    out = b""
    for event in unfold(ANSWER):
        if isinstance(event, ChoiceEnd):
            out += writer.write(UsageUpdate(ANSWER.usage or Usage()))
        out += writer.write(event)
    out += writer.close()
    if codec.name == "bedrock-converse":
        messages = EventStreamSplitter().feed(out)
        return b"".join(write_event(one.name, encode(change(json.loads(one.payload), place, kind))) for one in messages)
    lines = [
        f"data: {encode(change(json.loads(line[6:]), place, kind)).decode()}" if line.startswith("data: {") else line
        for line in out.decode().split("\n")
    ]
    return "\n".join(lines).encode()


def expect_answer(response: Response) -> None:
    assert response.failure is None
    (choice,) = response.choices
    assert [part.text for part in choice.parts if isinstance(part, Text)] == ["Hello there."]
    if response.usage is not None:
        counts = [getattr(response.usage, name) for name in ("input", "output", "cache_read", "reasoning", "total")]
        assert all(count is None or 0 <= count < 2**53 for count in counts), counts


def is_named(place: str, kind: str) -> bool:
    """Has the loss to be named? Not all protocols have details, and some do without them."""
    is_read = kind in ("null", "an object") if place == "the usage" else kind in ("null", "a number")
    return place in ("the usage", "its counts") and not is_read


@KINDS
@PLACES
@PROVIDERS
def test_a_whole_answer_is_written_back_as_it_came(provider: str, place: str, kind: str) -> None:
    codec, body = CODECS[provider], write_whole(CODECS[provider], place, kind)
    expect_answer(read := codec.read_response(body))
    assert codec.write_response(read, Ledger(provider, provider), WriteContext()) == body
    codec.peek_response(encode(body))


@KINDS
@PLACES
@PROVIDERS
@pytest.mark.parametrize("client", CODECS)
def test_a_whole_answer_reaches_every_client(client: str, provider: str, place: str, kind: str) -> None:
    codec = CODECS[client]
    exchange = Exchange(codec, CODECS[provider], Options())
    translation = exchange.translate_response(encode(write_whole(CODECS[provider], place, kind)))
    assert translation.status == 200
    codes = [loss.code for loss in translation.losses]
    assert ("usage-dropped" in codes) == (client != provider) or not is_named(place, kind), codes
    if client != provider:
        expect_answer(codec.read_response(translation.json()))


@KINDS
@PLACES
@PROVIDERS
@pytest.mark.parametrize("client", CODECS)
def test_a_stream_reaches_every_client(client: str, provider: str, place: str, kind: str) -> None:
    codec, data = CODECS[client], write_stream(CODECS[provider], place, kind)
    stream = StreamTranslation(Exchange(codec, CODECS[provider], Options()))
    out = stream.feed(data) + stream.close()
    assert stream.failure is None
    codes = [loss.code for loss in stream.losses]
    assert ("usage-dropped" in codes) == (client != provider) or not is_named(place, kind), codes
    reader, whole = codec.make_stream_reader(), Fold()
    for event in (*reader.feed(out), *reader.close()):
        whole.add_event(event)
    expect_answer(whole.response)


@KINDS
@PLACES
@PROVIDERS
def test_a_stream_passes_as_it_came(provider: str, place: str, kind: str) -> None:
    data, stream = write_stream(CODECS[provider], place, kind), PassthroughStream(CODECS[provider])
    assert stream.feed(data) + stream.close() == data
    assert (stream.failure, stream.ended) == (None, True)
    expect_answer(fold(CODECS[provider].make_stream_reader().feed(data)))
