"""Bodies of Chat that clients and servers write in another way than the protocol has: read as they are meant, reported,
and written as the protocol has it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolwire.core.events import Fold
from toolwire.core.ir import Call, Part, Result, Text, plain_text
from toolwire.protocols import find_codec
from toolwire.translation.exchange import Exchange
from toolwire.translation.options import Options
from toolwire.translation.streaming import StreamTranslation

MODELS = {
    "openai-chat": "gpt-4.1",
    "openai-responses": "gpt-5.5",
    "anthropic": "claude-opus-5-5",
    "gemini": "gemini-2.5-pro",
}
ASKED = {"role": "user", "content": "Hi"}
USE = {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}}
CALL = {"id": "t1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
DONE = {"role": "tool", "tool_call_id": "t1", "content": "done"}
FOUND = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "done"}]}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
MEANT = [("text", "Hi"), ("call", 'f {"a":1}'), ("result", "done")]

HISTORIES: dict[str, tuple[list[dict[str, Any]], list[tuple[str, str]]]] = {
    "a call in the content": ([ASKED, {"role": "assistant", "content": [USE]}, DONE], MEANT),
    "a call of Responses in the content": (
        [ASKED, {"role": "assistant", "content": [{**USE, "type": "function_call", "call_id": "t1"}]}, DONE],
        MEANT,
    ),
    "a call in both places": ([ASKED, {"role": "assistant", "content": [USE], "tool_calls": [CALL]}, DONE], MEANT),
    "call and result in the content": (
        [ASKED, {"role": "assistant", "content": [USE]}, {"role": "user", "content": [FOUND]}],
        MEANT,
    ),
    "a part as content": ([{"role": "user", "content": {"type": "text", "text": "Hi"}}], MEANT[:1]),
    "an object as result": (
        [ASKED, {"role": "assistant", "content": None, "tool_calls": [CALL]}, {**DONE, "content": {"temp": 3}}],
        [*MEANT[:2], ("result", '{"temp":3}')],
    ),
}


def _describe(part: Part) -> tuple[str, str]:
    if isinstance(part, Call):
        return "call", f"{part.name} {part.arguments}"
    if isinstance(part, Result):
        return "result", plain_text(part.content)
    assert isinstance(part, Text)
    return "text", part.text


@pytest.mark.parametrize("target", MODELS)
@pytest.mark.parametrize("name", HISTORIES)
def test_an_odd_history_reaches_every_provider_as_it_is_meant(name: str, target: str) -> None:
    messages, meant = HISTORIES[name]
    codec = find_codec(target)
    body = {"model": "gpt-4.1", "messages": messages, "tools": [TOOL]}
    sent = Exchange(find_codec("openai-chat"), codec, Options(model=MODELS[target])).translate_request(body)
    assert "shape-repaired" in [loss.code for loss in sent.losses]
    got = codec.read_request(sent.json())
    assert [_describe(part) for turn in got.turns for part in turn.parts] == meant
    assert not [field for field in got.unknown_fields if field.what]


CONTENTS: dict[str, tuple[Any, list[tuple[str, str]]]] = {
    "a call": ([{"type": "text", "text": "Well"}, USE], [("text", "Well"), ("call", 'f {"a":1}')]),
    "an object": ({"type": "text", "text": "Well"}, [("text", "Well")]),
}


@pytest.mark.parametrize("target", [name for name in MODELS if name != "openai-chat"])
@pytest.mark.parametrize("name", CONTENTS)
@pytest.mark.parametrize("is_stream", [False, True])
def test_odd_content_of_an_answer_reaches_every_client(name: str, target: str, is_stream: bool) -> None:
    content, meant = CONTENTS[name]
    codec = find_codec(target)
    exchange = Exchange(codec, find_codec("openai-chat"), Options())
    head = {"id": "c1", "object": "chat.completion", "created": 1, "model": "m"}
    ended = {"index": 0, "finish_reason": "tool_calls" if name == "a call" else "stop"}
    if is_stream:
        chunk = head | {"choices": [{"index": 0, "delta": {"role": "assistant", "content": content}}]}
        last = head | {"choices": [ended | {"delta": {}}]}
        stream = StreamTranslation(exchange)
        data = b"".join(b"data: %b\n\n" % json.dumps(one).encode() for one in (chunk, last)) + b"data: [DONE]\n\n"
        out, reader, fold = stream.feed(data) + stream.close(), codec.make_stream_reader(), Fold()
        for event in (*reader.feed(out), *reader.close()):
            fold.add_event(event)
        response, losses = fold.response, stream.losses
    else:
        answer = head | {"choices": [ended | {"message": {"role": "assistant", "content": content}}]}
        whole = exchange.translate_response(answer)
        response, losses = codec.read_response(whole.json()), whole.losses
    assert [_describe(part) for part in response.choices[0].parts] == meant
    assert "shape-repaired" in [loss.code for loss in losses]
