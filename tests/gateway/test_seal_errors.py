"""A provider that takes a seal for another's is asked once more without any; the client sees an answer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateway.case_gateway import Object, differences, open_case_transport
from toolwire_conformance.transports import HttpTransport

SEAL = "EqQBCkgIBRABGAIiQ3NpZ25hdHVyZQ=="
SKIP = {"$not": SEAL}
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
MESSAGES: Object = {
    "model": "claude-opus-5-5",
    "max_tokens": 1000,
    "messages": [
        {"role": "user", "content": "What is the weather in Paris?"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Paris, then.", "signature": SEAL},
                {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Paris"}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "15 °C"}]},
    ],
    "tools": [{"name": "get_weather", "input_schema": WEATHER}],
}
CONTENTS: Object = {
    "contents": [
        {"role": "user", "parts": [{"text": "What is the weather in Paris?"}]},
        {
            "role": "model",
            "parts": [{"functionCall": {"name": "get_weather", "args": {"city": "Paris"}}, "thoughtSignature": SEAL}],
        },
        {"role": "user", "parts": [{"functionResponse": {"name": "get_weather", "response": {"output": "15 °C"}}}]},
    ],
    "tools": [{"functionDeclarations": [{"name": "get_weather", "parametersJsonSchema": WEATHER}]}],
}
SIGNED = (
    "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation."
)
ASKED: dict[str, tuple[Object, Object, Object]] = {
    "anthropic": (
        {"protocol": "anthropic", "request": MESSAGES},
        {"type": "error", "error": {"type": "invalid_request_error", "message": SIGNED}},
        {"content": [{"type": "text", "text": "15 °C."}], "stop_reason": "end_turn"},
    ),
    "gemini": (
        {"protocol": "gemini", "model": "gemini-3.8-flash", "request": CONTENTS},
        {"error": {"code": 400, "message": "Corrupted thought signature.", "status": "INVALID_ARGUMENT"}},
        {"candidates": [{"content": {"parts": [{"text": "15 °C."}]}, "finishReason": "STOP"}]},
    ),
}
WITH: dict[str, Object] = {
    "anthropic": {"messages": [{}, {"content": [{"type": "thinking"}, {"type": "tool_use"}]}, {}]},
    "gemini": {"contents": [{}, {"parts": [{"thoughtSignature": SEAL}]}, {}]},
}
WITHOUT: dict[str, Object] = {
    "anthropic": {"messages": [{}, {"content": [{"type": "tool_use", "name": "get_weather"}]}, {}]},
    "gemini": {"contents": [{}, {"parts": [{"functionCall": {"name": "get_weather"}, "thoughtSignature": SKIP}]}, {}]},
}


@pytest.fixture(scope="module")
def through(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpTransport]:
    with open_case_transport(tmp_path_factory.mktemp("seals")) as over_http:
        yield over_http


def play_exchanges(
    protocol: str, stream: bool, exchanges: list[Object], sees: Object, through: HttpTransport
) -> list[str]:
    return differences({**ASKED[protocol][0], "stream": stream}, protocol, exchanges, sees, through)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("protocol", ASKED)
def test_once_more_without_seals(protocol: str, stream: bool, through: HttpTransport) -> None:
    _, refusal, answer = ASKED[protocol]
    exchanges = [
        {"expect": WITH[protocol], "status": 400, "body": refusal},
        {"expect": WITHOUT[protocol], "body": answer},
    ]
    assert play_exchanges(protocol, stream, exchanges, {"body": answer}, through) == []


@pytest.mark.parametrize("protocol", ASKED)
def test_not_a_third_time(protocol: str, through: HttpTransport) -> None:
    _, refusal, _ = ASKED[protocol]
    refused = {"status": 400, "body": refusal}
    assert play_exchanges(protocol, False, [refused, refused], {"status": 400}, through) == []


def test_other_refusals_are_told_at_once(through: HttpTransport) -> None:
    body = {"type": "error", "error": {"type": "invalid_request_error", "message": "max_tokens: too large"}}
    sees = {"status": 400, "body": {"error": {"type": "invalid_request_error"}}}
    assert play_exchanges("anthropic", False, [{"status": 400, "body": body}], sees, through) == []
