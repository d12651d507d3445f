"""Counts that have prices of their own: what a provider counts apart is read from whole answers."""

from __future__ import annotations

from typing import Any

import pytest

from toolwire.core.events import UsageUpdate
from toolwire.core.ir import Usage
from toolwire.core.json_values import encode
from toolwire.protocols import find_codec

PRICED = ("cache_write_1h", "input_audio", "input_image", "output_audio", "output_image", "searches")
ANTHROPIC = {"input_tokens": 5, "output_tokens": 2, "cache_creation_input_tokens": 900}
CHAT = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}


def anthropic(usage: dict[str, Any]) -> dict[str, Any]:
    content = [{"type": "text", "text": "hi"}]
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m"}
    return {**head, "content": content, "stop_reason": "end_turn", "usage": {**ANTHROPIC, **usage}}


def chat(usage: dict[str, Any]) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
    return {"id": "c", "object": "chat.completion", "model": "m", "choices": [choice], "usage": {**CHAT, **usage}}


def responses(items: list[Any]) -> dict[str, Any]:
    usage = {"input_tokens": 9, "output_tokens": 2, "total_tokens": 11}
    head = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": "completed"}
    text = {"type": "output_text", "text": "hi", "annotations": []}
    message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [text]}
    return {**head, "output": [*items, message], "usage": usage}


def search(action: Any) -> dict[str, Any]:
    return {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": action}


def gemini(details: dict[str, Any]) -> dict[str, Any]:
    counts = {"promptTokenCount": 9, "candidatesTokenCount": 2, "totalTokenCount": 11}
    candidate = {"content": {"role": "model", "parts": [{"text": "hi"}]}, "finishReason": "STOP", "index": 0}
    return {"candidates": [candidate], "usageMetadata": {**counts, **details}, "modelVersion": "m"}


COUNTS: dict[str, tuple[str, dict[str, Any], dict[str, int]]] = {
    "Anthropic: cached for an hour": (
        "anthropic",
        anthropic({"cache_creation": {"ephemeral_5m_input_tokens": 500, "ephemeral_1h_input_tokens": 400}}),
        {"cache_write_1h": 400},
    ),
    "Anthropic: searches": (
        "anthropic",
        anthropic({"server_tool_use": {"web_search_requests": 2, "web_fetch_requests": 1}}),
        {"searches": 2},
    ),
    "Anthropic: null": ("anthropic", anthropic({"cache_creation": None, "server_tool_use": None}), {}),
    "Chat: audio": (
        "openai-chat",
        chat({"prompt_tokens_details": {"audio_tokens": 5}, "completion_tokens_details": {"audio_tokens": 1}}),
        {"input_audio": 5, "output_audio": 1},
    ),
    "Chat: searches of OpenRouter": (
        "openai-chat",
        chat({"server_tool_use": {"web_search_requests": 3}}),
        {"searches": 3},
    ),
    "Chat: not a number": ("openai-chat", chat({"prompt_tokens_details": {"audio_tokens": "5"}}), {}),
    "Responses: searches": (
        "openai-responses",
        responses([search({"type": "search", "query": "a"}), search({"type": "open_page", "url": "https://a.test"})]),
        {"searches": 1},
    ),
    "Responses: none": ("openai-responses", responses([]), {}),
    "Gemini: audio and images": (
        "gemini",
        gemini(
            {
                "promptTokensDetails": [
                    {"modality": "TEXT", "tokenCount": 4},
                    {"modality": "AUDIO", "tokenCount": 5},
                ],
                "candidatesTokensDetails": [{"modality": "IMAGE", "tokenCount": 1290}],
            }
        ),
        {"input_audio": 5, "output_image": 1290},
    ),
}


def priced_counts(usage: Usage | None) -> dict[str, int]:
    assert usage is not None
    return {name: count for name in PRICED if (count := getattr(usage, name))}


TIERS: dict[str, tuple[str, dict[str, Any], str]] = {
    "Chat: the usual tier": ("openai-chat", {**chat({}), "service_tier": "default"}, ""),
    "Chat: another tier": ("openai-chat", {**chat({}), "service_tier": "flex"}, "flex"),
    "Chat: nonsense": ("openai-chat", {**chat({}), "service_tier": "x" * 1000}, ""),
    "Responses: another tier": ("openai-responses", {**responses([]), "service_tier": "priority"}, "priority"),
    "Responses: not said": ("openai-responses", responses([]), ""),
    "Gemini: another tier": ("gemini", gemini({"serviceTier": "SERVICE_TIER_PRIORITY"}), "priority"),
    "Gemini: in the other spelling": ("gemini", gemini({"service_tier": "flex"}), "flex"),
    "Gemini: nonsense": ("gemini", gemini({"serviceTier": ["priority"]}), ""),
}


@pytest.mark.parametrize(("protocol", "body", "tier"), TIERS.values(), ids=list(TIERS))
def test_the_service_tier_is_read(protocol: str, body: dict[str, Any], tier: str) -> None:
    codec = find_codec(protocol)
    peek = codec.peek_response(encode(body))
    assert peek is not None
    for usage in (codec.read_response(body).usage, peek.usage):
        assert usage is not None
        assert usage.service_tier == tier


def test_the_service_tier_of_a_stream_is_read() -> None:
    chunk = {**chat({}), "object": "chat.completion.chunk", "service_tier": "flex"}
    chunk["choices"] = [{"index": 0, "delta": {"content": "hi"}, "finish_reason": "stop"}]
    reader = find_codec("openai-chat").make_stream_reader()
    events = [*reader.feed(b"data: " + encode(chunk) + b"\n\ndata: [DONE]\n\n"), *reader.close()]
    tiers = [event.usage.service_tier for event in events if isinstance(event, UsageUpdate)]
    assert tiers == ["flex"]


@pytest.mark.parametrize(("protocol", "body", "expected"), COUNTS.values(), ids=list(COUNTS))
def test_priced_counts_are_read(protocol: str, body: dict[str, Any], expected: dict[str, int]) -> None:
    codec = find_codec(protocol)
    assert priced_counts(codec.read_response(body).usage) == expected
    peek = codec.peek_response(encode(body))
    if peek is not None:
        assert priced_counts(peek.usage) == expected
