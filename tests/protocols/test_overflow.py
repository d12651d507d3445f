"""A prompt that does not fit: every provider's words are recognised, and every client reads its own vendor's."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from toolwire import Stream, translate

WORDS: dict[str, tuple[str, tuple[int, int] | None]] = {
    "OpenAI Chat": (
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 130001 tokens.",
        (130001, 128000),
    ),
    "OpenAI Responses": ("Your input exceeds the context window of this model. Please adjust your input.", None),
    "OpenAI's newer limit": (
        "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300000 tokens.",
        (300000, 272000),
    ),
    "Anthropic": ("prompt is too long: 213462 tokens > 200000 maximum", (213462, 200000)),
    "Anthropic with max_tokens": (
        "input length and `max_tokens` exceed context limit: 200240 + 21333 > 200000, decrease input length",
        (200240, 200000),
    ),
    "Google": (
        "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
        (1196265, 1048575),
    ),
    "Google with commas": (
        "The input token count (1,196,265) exceeds the maximum number of tokens allowed (1,048,575).",
        (1196265, 1048575),
    ),
    "Bedrock": ("Input is too long for requested model.", None),
    "xAI": (
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        (537812, 131072),
    ),
    "Groq": ("Please reduce the length of the messages or completion.", None),
    "OpenRouter": (
        "This endpoint's maximum context length is 40960 tokens. However, you requested about 41000 tokens.",
        (41000, 40960),
    ),
    "Mistral": (
        "Prompt contains 65673 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
        (65673, 32768),
    ),
    "Moonshot": (
        "Invalid request: Your request exceeded model token limit: 131072 (requested: 150000)",
        (150000, 131072),
    ),
    "Copilot": ("prompt token count of 135000 exceeds the limit of 128000", (135000, 128000)),
    "vLLM": (
        "The decoder prompt (length 9001) is longer than the maximum model length of 4096. Make sure that it fits.",
        (9001, 4096),
    ),
    "llama.cpp": (
        "request (9001 tokens) exceeds the available context size (4096 tokens), try increasing it",
        (9001, 4096),
    ),
    "LM Studio": ("The number of tokens to keep from the initial prompt is greater than the context length.", None),
    "MiniMax": ("invalid params, context window exceeds limit", None),
    "Ollama": ("prompt too long; exceeded max context length by 100 tokens", None),
    "DashScope": ("Range of input length should be [1, 98304]", None),
}
OTHER_ERRORS = (
    "Invalid schema for function 'f': context is not of type object",
    "max_tokens: 200000 > 128000, which is the maximum allowed number of output tokens for claude",
    "image exceeds 5 MB maximum",
    "Rate limit reached for gpt-5.5 in organization org on tokens per min (TPM): Limit 30000, Used 20000.",
    "messages.0.content: Input should be a valid list",
)
PROTOCOLS = ("openai-chat", "openai-responses", "anthropic", "gemini")


def error_body(protocol: str, message: str) -> Any:
    if protocol == "anthropic":
        return {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
    if protocol == "gemini":
        return {"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None}}


OWN_WORDS = {
    "openai-chat": r"maximum context length is \d+ tokens|exceeds the context window|reduce the length of the messages",
    "openai-responses": r"exceeds the context window|maximum context length is \d+ tokens",
    "anthropic": r"prompt is too long",
    "gemini": r"input token count.*exceeds the maximum",
}
COUNTS = {
    "openai-chat": r"maximum context length is {1} tokens. However, your messages resulted in {0} tokens",
    "gemini": r"input token count \({0}\) exceeds the maximum number of tokens allowed \({1}\)",
}


@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("provider", PROTOCOLS)
@pytest.mark.parametrize("client", PROTOCOLS)
@pytest.mark.parametrize("status", [400, 413, 422, 500])
def test_every_client_reads_its_own_vendors_words(words: str, provider: str, client: str, status: int) -> None:
    message, counts = WORDS[words]
    got = translate(error_body(provider, message), "error", source=provider, target=client, status=status)
    assert got.failure is not None
    assert got.failure.kind == "context"
    error = got.json()["error"]
    if client == provider and client in ("anthropic", "gemini"):
        assert error["message"] == message  # the vendor itself: as it came
        return
    assert re.search(OWN_WORDS[client], error["message"]), error
    assert message in error["message"]
    if client.startswith("openai"):
        assert error["code"] == "context_length_exceeded"
    if client != provider:
        assert got.status == 400
    own_words = re.search(OWN_WORDS[client], message) is not None
    if counts is not None and client in COUNTS and not own_words:
        assert re.search(COUNTS[client].format(*counts), error["message"]), error


@pytest.mark.parametrize("message", OTHER_ERRORS)
@pytest.mark.parametrize("provider", PROTOCOLS)
def test_other_errors_are_no_overflow(message: str, provider: str) -> None:
    got = translate(error_body(provider, message), "error", source=provider, target="openai-chat", status=400)
    assert got.failure is not None
    assert got.failure.kind == "invalid"


@pytest.mark.parametrize("provider", PROTOCOLS)
def test_a_rate_limit_in_tokens_is_a_rate_limit(provider: str) -> None:
    body = error_body(provider, "Too many tokens per minute: reduce the length of the messages, or wait.")
    if provider == "gemini":
        body["error"] |= {"code": 429, "status": "RESOURCE_EXHAUSTED"}
    elif provider == "anthropic":
        body["error"]["type"] = "rate_limit_error"
    got = translate(body, "error", source=provider, target="openai-chat", status=429)
    assert got.failure is not None
    assert got.failure.kind == "rate"


def frames(protocol: str, message: str) -> bytes:
    """A stream that fails at once."""
    if protocol == "openai-responses":
        failed = {"id": "r", "object": "response", "status": "failed", "error": {"code": None, "message": message}}
        data: Any = {"type": "response.failed", "sequence_number": 0, "response": failed}
        return f"event: response.failed\ndata: {json.dumps(data)}\n\n".encode()
    event = "event: error\n" if protocol == "anthropic" else ""
    return f"{event}data: {json.dumps(error_body(protocol, message))}\n\n".encode()


@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("provider", PROTOCOLS)
def test_a_stream_that_fails_is_an_overflow_too(words: str, provider: str) -> None:
    message, _ = WORDS[words]
    for client in PROTOCOLS:
        if client == provider:
            continue
        stream = Stream(source=provider, target=client)
        out = (stream.feed(frames(provider, message)) + stream.close()).decode()
        assert stream.failure is not None
        assert stream.failure.kind == "context"
        assert re.search(OWN_WORDS[client], out), out


def test_a_lost_thread_is_named_as_anthropics_tool_runner_expects_it() -> None:
    """It then sends the whole conversation again."""
    from toolwire.core.ir import Failure
    from toolwire.protocols import find_codec

    sent = find_codec("anthropic").write_error(Failure("invalid", "m", 400, "previous_response_not_found"))
    assert sent.status == 404
    assert sent.body["error"] == {
        "type": "not_found_error",
        "message": "m",
        "details": {"error_code": "thread_not_found"},
    }
