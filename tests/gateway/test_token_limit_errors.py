"""A provider that refuses to give so much is asked for what it can give, and from then on at once: agents ask for what
the models that they know can give (Claude Code for 128,000 tokens, whatever the model)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gateway.case_gateway import Object, differences, open_case_transport
from gateway.provider import PROTOCOLS, refusal
from toolwire.core.ir import Failure
from toolwire.gateway.exchange.error_replies import read_token_limit
from toolwire.protocols import CODECS
from toolwire_conformance.transports import HttpTransport

ASKED = 128_000
WORDS = {
    "openai-chat": (
        "max_tokens is too large: 128000. This model supports at most 32768 completion tokens, whereas you provided 128000."
    ),
    "openai-responses": (
        "Invalid 'max_output_tokens': integer above maximum value. Expected a value <= 32768, but got 128000 instead."
    ),
    "anthropic": "max_tokens: 128000 > 32768, which is the maximum allowed number of output tokens for this model",
    "gemini": (
        "Unable to submit request because it has a maxOutputTokens value of 128000 but the supported range is"
        " from 1 (inclusive) to 32769 (exclusive). Update the value and try again."
    ),
}
OTHERS = (
    "`max_tokens` must be less than or equal to `32768`, the maximum value for `max_tokens` is less than the window",
    "Invalid max_tokens value, the valid range of max_tokens is [1, 32768]",
)
WINDOWS = (
    "This model's maximum context length is 33268 tokens. However, you requested 128500 tokens"
    " (500 in the messages, 128000 in the completion). Please reduce the length of the messages or completion.",
    "'max_tokens' or 'max_completion_tokens' is too large: 128000. This model's maximum context length is 33268 tokens"
    " and your request has 500 input tokens (128000 > 33268 - 500).",
)
LIMIT: dict[str, Callable[[int], Object]] = {
    "openai-chat": lambda limit: {"$either": [{"max_tokens": limit}, {"max_completion_tokens": limit}]},
    "openai-responses": lambda limit: {"max_output_tokens": limit},
    "anthropic": lambda limit: {"max_tokens": limit},
    "gemini": lambda limit: {"generationConfig": {"maxOutputTokens": limit}},
}
ANSWERS: dict[str, Object] = {
    "openai-chat": {"choices": [{"message": {"content": "Hello."}, "finish_reason": "stop"}]},
    "openai-responses": {
        "output": [
            {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "Hello.", "annotations": []}],
            }
        ]
    },
    "anthropic": {"content": [{"type": "text", "text": "Hello."}], "stop_reason": "end_turn"},
    "gemini": {"candidates": [{"content": {"parts": [{"text": "Hello."}]}, "finishReason": "STOP"}]},
}
MODELS = {
    "openai-chat": "gpt-4.1",
    "openai-responses": "gpt-5.5",
    "anthropic": "claude-opus-5-5",
    "gemini": "gemini-3.8-flash",
}


@pytest.fixture
def through(tmp_path: Path) -> Iterator[HttpTransport]:
    """A gateway of its own for every test: what one has learnt would be known to the next."""
    with open_case_transport(tmp_path) as over_http:
        yield over_http


def client(protocol: str, target: str, limit: int = ASKED) -> Object:
    """Someone who wants much, in a protocol that is not the provider's."""
    if protocol == "anthropic":
        request: Object = {"max_tokens": limit, "messages": [{"role": "user", "content": "Hi"}]}
    else:
        request = {"max_output_tokens": limit, "input": "Hi", "store": False}
    return {"protocol": protocol, "stream": True, "request": {"model": MODELS[target], **request}}


def other_protocol(target: str) -> str:
    return "openai-responses" if target == "anthropic" else "anthropic"


def refusal_exchange(target: str, words: str) -> Object:
    kind = "INVALID_ARGUMENT" if target == "gemini" else "invalid_request_error"
    return {"status": 400, "body": refusal(target, 400, kind, None, words)}


def play_exchanges(
    who: Object, target: str, exchanges: list[Object], through: HttpTransport, status: int = 200
) -> list[str]:
    return differences(who, target, exchanges, {"status": status}, through)


@pytest.mark.parametrize(
    ("target", "words"),
    [*WORDS.items(), *(("openai-chat", words) for words in (*OTHERS, *WINDOWS))],
)
def test_it_is_asked_for_what_it_can_give(target: str, words: str, through: HttpTransport) -> None:
    answer = {"expect": LIMIT[target](32_768), "body": ANSWERS[target]}
    first = {"expect": LIMIT[target](ASKED), **refusal_exchange(target, words)}
    assert play_exchanges(client(other_protocol(target), target), target, [first, answer], through) == []


@pytest.mark.parametrize("target", PROTOCOLS)
def test_it_is_known_from_then_on(target: str, through: HttpTransport) -> None:
    who = client(other_protocol(target), target)
    answer = {"expect": LIMIT[target](32_768), "body": ANSWERS[target]}
    assert play_exchanges(who, target, [refusal_exchange(target, WORDS[target]), answer], through) == []
    assert play_exchanges(who, target, [answer], through) == []
    less = {"expect": LIMIT[target](1_000), "body": ANSWERS[target]}
    assert play_exchanges(client(other_protocol(target), target, 1_000), target, [less], through) == []


def test_what_is_left_of_a_window_is_not_the_models_limit(through: HttpTransport) -> None:
    who = client("anthropic", "openai-chat")
    answer = {"expect": LIMIT["openai-chat"](32_768), "body": ANSWERS["openai-chat"]}
    full = {"expect": LIMIT["openai-chat"](ASKED), "body": ANSWERS["openai-chat"]}
    assert play_exchanges(who, "openai-chat", [refusal_exchange("openai-chat", WINDOWS[0]), answer], through) == []
    assert play_exchanges(who, "openai-chat", [full], through) == []


@pytest.mark.parametrize("target", PROTOCOLS)
def test_not_a_third_time(target: str, through: HttpTransport) -> None:
    no = refusal_exchange(target, WORDS[target])
    assert play_exchanges(client(other_protocol(target), target), target, [no, no], through, 400) == []


def test_a_client_of_the_providers_own_protocol_is_told(through: HttpTransport) -> None:
    who = client("anthropic", "anthropic")
    assert play_exchanges(who, "anthropic", [refusal_exchange("anthropic", WORDS["anthropic"])], through, 400) == []


def test_a_window_that_is_full_is_told_at_once(through: HttpTransport) -> None:
    words = WINDOWS[0].replace("33268", "600")
    assert (
        play_exchanges(
            client("anthropic", "openai-chat"), "openai-chat", [refusal_exchange("openai-chat", words)], through, 400
        )
        == []
    )


@pytest.mark.parametrize("target", WORDS)
def test_a_limit_that_no_counter_takes_is_none(target: str) -> None:
    failure = Failure("invalid", WORDS[target].replace("32769", "9" * 5000).replace("32768", "9" * 5000), 400)
    assert read_token_limit(failure, CODECS[target].constraints) is None
