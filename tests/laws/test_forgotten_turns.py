"""An answer is the same whether the conversation that it belongs to is still in memory or not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from material import PAIRS, SAMPLES
from toolwire import Malformed, Stream
from toolwire.core.json_values import decode, encode
from toolwire.protocols import CODECS
from toolwire.translation.exchange import Exchange, Translation
from toolwire.translation.options import Options
from toolwire.translation.streaming import StreamTranslation

BODIES = {path.stem: json.loads(path.read_text()) for path in sorted((Path(__file__).parent / "bodies").glob("*.json"))}
OPTIONS = {
    "no store": Options(now=1, seed="req_1"),
    "a store": Options(now=1, seed="req_1", has_memory=True, expect_hidden_calls=True),
    "repairs": Options(now=1, seed="req_1", tool_format="auto", repair_calls=True, on_bad_call="ask-again"),
}


def read_samples(protocol: str, *endings: str) -> list[bytes]:
    files = sorted((SAMPLES / protocol.replace("-", "_")).iterdir())
    return [path.read_bytes() for path in files if path.suffix in endings]


def translate_stream(data: bytes) -> bytes:
    stream = Stream(source="openai-chat", target="unified")
    return stream.feed(data) + stream.close()


WITH_SAMPLES = [name for name in CODECS if name != "unified"]
ANSWERS = {name: read_samples(name, ".json") for name in WITH_SAMPLES}
STREAMS = {name: read_samples(name, ".sse", ".bin") for name in WITH_SAMPLES}
ANSWERS["unified"] = [b'{"id": "a", "message": {"role": "assistant", "content": "hi"}, "stop_reason": "end"}']
STREAMS["unified"] = [*map(translate_stream, STREAMS["openai-chat"])]


def answer(exchange: Exchange, body: bytes) -> tuple[Any, ...] | str:
    try:
        found: Translation = exchange.translate_response(body)
    except Malformed as problem:
        return str(problem)
    return found.body, found.losses, found.usage, found.called_tools, dict(found.memory_records), found.failure


def start_exchange(client: str, target: str, options: Options) -> Exchange:
    exchange = Exchange(CODECS[client], CODECS[target], options)
    exchange.translate_request(encode(BODIES[client]))
    return exchange


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize(("client", "target"), PAIRS)
def test_an_answer_needs_nothing_that_is_forgotten(client: str, target: str, options: Options) -> None:
    for body in ANSWERS[target]:
        kept, forgetful = (start_exchange(client, target, options) for _ in range(2))
        forgetful.forget_turns()
        assert answer(forgetful, body) == answer(kept, body)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize(("client", "target"), PAIRS)
def test_a_stream_needs_nothing_that_is_forgotten(client: str, target: str, options: Options) -> None:
    for data in STREAMS[target]:
        kept, forgetful = (start_exchange(client, target, replace(options, stream=True)) for _ in range(2))
        forgetful.forget_turns()
        streams = [StreamTranslation(exchange) for exchange in (kept, forgetful)]
        assert len({stream.feed(data) + stream.close() for stream in streams}) == 1
        assert streams[0].losses == streams[1].losses
        assert dict(streams[0].memory_records) == dict(streams[1].memory_records)


@pytest.mark.parametrize(("client", "target"), PAIRS)
def test_a_conversation_does_not_wait_for_its_answer(client: str, target: str) -> None:
    exchange = start_exchange(client, target, OPTIONS["no store"])
    needs_turns = exchange.can_take_rounds or (client == target and CODECS[client].estimates_input)
    exchange.forget_turns()
    asked = exchange.writer_context("").request
    assert asked is not None
    assert bool(asked.turns) is needs_turns
    if asked.origin is not None and not needs_turns:
        turns_key = CODECS[client].constraints.turns_key
        assert asked.origin.wire == {key: value for key, value in BODIES[client].items() if key != turns_key}


def test_every_protocol_has_answers_and_streams() -> None:
    assert all(ANSWERS.values())
    assert all(STREAMS.values())


def test_the_bodies_have_turns() -> None:
    assert {name for name in CODECS if decode(encode(BODIES[name]))[CODECS[name].constraints.turns_key]} == set(CODECS)
