"""Laws of answers, for every pair of protocols: what is not an answer fails, and what is one arrives readable."""

from __future__ import annotations

import json
from typing import Any

import pytest

from material import NAMES, PAIRS
from toolwire import Malformed
from toolwire.protocols import find_codec
from toolwire.translation.exchange import Exchange
from toolwire.translation.streaming import StreamTranslation

ANSWERS: dict[str, dict[str, Any]] = {
    "openai-chat": {
        "id": "c",
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
    },
    "openai-responses": {
        "id": "resp_1",
        "object": "response",
        "model": "m",
        "status": "completed",
        "output": [
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "hi", "annotations": []}],
            }
        ],
    },
    "anthropic": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "hi"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1, "output_tokens": 1},
    },
    "gemini": {"candidates": [{"content": {"parts": [{"text": "hi"}], "role": "model"}, "finishReason": "STOP"}]},
    "unified": {"id": "a", "message": {"role": "assistant", "content": "hi"}, "stop_reason": "end"},
}
NOT_ANSWERS = (
    *(
        text.encode()
        for text in """{} [] null true 0 "ok" {"status":"ok"} {"detail":"gone"} {"choices":[]} {"choices":null}
        {"output":[]} {"content":[]} {"content":null} {"candidates":[]} {"candidates":null} {"message":null}
        {"data":[],"object":"list"} {"usage":{}} {"id":"x","model":"m"} {"candidates":{}} {"choices":{}}""".split()
    ),
    b"",
    b" \n",
    b"OK",
    b"<!doctype html><html><body>Bad gateway</body></html>",
    b"\x1f\x8b\x08\x00",
    b"{",
)
FRAMINGS = {
    "bare": b"%b",
    "frame": b"data: %b\n\n",
    "event": b"event: message\ndata: %b\n\n",
    "done": b"data: %b\n\ndata: [DONE]\n\n",
}


def others(protocol: str) -> list[bytes]:
    return [json.dumps(body).encode() for name, body in ANSWERS.items() if name != protocol]


def stream(client: str, provider: str, data: bytes) -> tuple[StreamTranslation, bytes]:
    translation = Exchange(find_codec(client), find_codec(provider)).start_stream()
    return translation, translation.feed(data) + translation.close()


@pytest.mark.parametrize(("client", "provider"), PAIRS)
def test_a_body_that_is_not_an_answer_is_a_failure(client: str, provider: str) -> None:
    for body in (*NOT_ANSWERS, *others(provider)):
        exchange = Exchange(find_codec(client), find_codec(provider))
        try:
            translated = exchange.translate_response(body)
        except Malformed:
            continue
        assert translated.failure is not None, body


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize(("client", "provider"), PAIRS)
def test_a_stream_that_is_not_an_answer_is_a_failure(client: str, provider: str, framing: str) -> None:
    for body in (*NOT_ANSWERS, *others(provider)):
        translation, _ = stream(client, provider, FRAMINGS[framing] % body)
        assert translation.failure is not None, body
        assert not translation.ended, body


@pytest.mark.parametrize("provider", NAMES)
def test_an_answer_is_not_a_failure(provider: str) -> None:
    for client in NAMES:
        body = json.dumps(ANSWERS[provider]).encode()
        translated = Exchange(find_codec(client), find_codec(provider)).translate_response(body)
        assert translated.failure is None
        assert b"hi" in translated.body


@pytest.mark.parametrize("client", NAMES)
def test_a_whole_chat_answer_as_the_only_chunk_is_read(client: str) -> None:
    body = json.dumps(ANSWERS["openai-chat"]).encode()
    translation, out = stream(client, "openai-chat", b"data: %b\n\ndata: [DONE]\n\n" % body)
    assert translation.failure is None
    assert b"hi" in out
