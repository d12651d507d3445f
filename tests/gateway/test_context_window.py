"""Prompts that cannot fit are refused before the provider is asked, and answers are asked for within the model's limit:
only where that is certain."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.list_server import ListServer
from gateway.raw_exchange import CLIENTS, PROVIDERS, Served, ask, call, play_script, stage
from toolwire.gateway.features.context_window.context_window import count_odd_runs, count_words
from toolwire.protocols import find_codec

WINDOW = 500
FITS = "word " * 990
"""More than 500 tokens for every tokenizer, but that is not certain."""
TOO_LONG = "word " * 1100
LIMIT = 64

FACTS = f"""
[models."small-*".facts]
context_window = {WINDOW}
max_output_tokens = {LIMIT}
[models.alias]
provider = "chat"
model = "large-s900x"
[models.alias.facts]
context_window = {WINDOW}
"""


@pytest.fixture(scope="module", name="served")
def serve_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with stage(tmp_path_factory.mktemp("window"), 'log_format = "json"', FACTS) as staged:
        yield staged


def prompt(protocol: str, text: str) -> dict[str, Any]:
    if protocol == "gemini":
        return {"contents": [{"role": "user", "parts": [{"text": text}]}]}
    key = "input" if protocol == "openai-responses" else "messages"
    return {key: [{"role": "user", "content": text}]}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_prompt_that_cannot_fit_is_refused(served: Served, client: str, provider: str, stream: bool) -> None:
    scene = served.scene(provider, play_script(provider, stream), model="small")
    got = call(served, client, scene.model, stream, **prompt(client, TOO_LONG))
    assert got.status == 400
    failure = find_codec(client).read_error(got.json(), got.status, {})
    assert failure.kind == "context", got.data
    assert f"the provider `{scene.model.partition('/')[0]}`" in failure.message
    assert scene.asked == [], "the provider is not asked"


TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
RESULTS = [
    {"role": "user", "content": "Hi"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": TOO_LONG},
]
COMPACTED = [
    {"role": "user", "content": TOO_LONG},
    {"role": "assistant", "content": [{"type": "compaction", "content": "They greeted."}]},
    {"role": "user", "content": "Go on."},
]


def test_results_of_tools_count(served: Served) -> None:
    scene = served.scene("openai-chat", play_script("openai-chat", False), model="small")
    got = call(served, "openai-chat", scene.model, False, messages=RESULTS, tools=[TOOL])
    assert (got.status, scene.asked) == (400, [])


def test_an_alias_can_have_a_window_of_its_own(served: Served) -> None:
    got = call(served, "openai-chat", "alias", False, **prompt("openai-chat", TOO_LONG))
    assert got.status == 400
    assert "context_length_exceeded" in got.data.decode()


def test_a_missing_key_is_said_first(tmp_path: Path) -> None:
    """Without a key, a shorter prompt would not help."""
    keyless = '[providers.keyless]\nkind = "openai"\napi_key_env = "NOBODY_SETS_THIS_KEY"\n'
    with stage(tmp_path, "", FACTS + keyless) as staged:
        got = call(staged, "openai-chat", "keyless/small-1", False, **prompt("openai-chat", TOO_LONG))
    assert "NOBODY_SETS_THIS_KEY" in got.data.decode(), got


SENT: dict[str, tuple[str, str, dict[str, str], dict[str, Any]]] = {
    "it may fit": ("openai-chat", "small", {}, prompt("openai-chat", FITS)),
    "the window is not known": ("openai-chat", "large", {}, prompt("openai-chat", TOO_LONG)),
    "no words": ("openai-chat", "small", {}, prompt("openai-chat", "字" * 6000)),
    "thinking": (
        "openai-chat",
        "small",
        {},
        {"messages": [{"role": "assistant", "content": "a", "reasoning_content": TOO_LONG}, *RESULTS[:1]]},
    ),
    "OpenAI leaves out old turns": (
        "openai-responses",
        "small",
        {},
        {**prompt("openai-responses", TOO_LONG), "truncation": "auto"},
    ),
    "OpenRouter leaves out the middle": (
        "openai-chat",
        "small",
        {},
        {**prompt("openai-chat", TOO_LONG), "transforms": ["middle-out"]},
    ),
    "Anthropic clears old results": (
        "anthropic",
        "small",
        {},
        {**prompt("anthropic", TOO_LONG), "context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}},
    ),
    "a beta has a larger window": (
        "anthropic",
        "small",
        {"anthropic-beta": "context-1m-2025-08-07"},
        prompt("anthropic", TOO_LONG),
    ),
    "a summary replaces earlier turns": ("anthropic", "small", {}, {"messages": COMPACTED}),
}


@pytest.mark.parametrize(("protocol", "model", "headers", "more"), SENT.values(), ids=list(SENT))
def test_what_may_fit_is_sent(
    served: Served, protocol: str, model: str, headers: dict[str, str], more: dict[str, Any]
) -> None:
    scene = served.scene(protocol, play_script(protocol, False), model=model)
    got = call(served, protocol, scene.model, False, headers, **more)
    assert (got.status, len(scene.asked)) == (200, 1), got.data


def test_spaces_of_the_json_are_not_words(served: Served) -> None:
    scene = served.scene("openai-chat", play_script("openai-chat", False), model="small")
    turns = [{"role": "user", "content": "a"}] * 1200
    body = json.dumps({"model": scene.model, "messages": turns}).encode()
    assert count_odd_runs(body) > 2 * WINDOW
    assert ask(served.port, "POST", "/v1/chat/completions", body).status == 200
    assert len(scene.asked) == 1


def test_the_window_of_a_providers_list_counts(tmp_path: Path) -> None:
    listed = {"data": [{"id": "m", "max_model_len": 10_000}, {"id": "tiny", "max_model_len": 4096}]}
    answer = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}]}
    server = ListServer({"/v1/models": (200, listed), "POST /v1/chat/completions": (200, answer)})
    lab = f'[providers.lab]\nprotocols = ["openai-chat"]\nbase_url = "{server.url}"\n'
    body = prompt("openai-chat", "word " * 21_000)
    with stage(tmp_path, "", lab) as staged:
        assert call(staged, "openai-chat", "lab/m", False, **body).status == 200, "nobody has asked for the list yet"
        assert ask(staged.port, "GET", "/v1/models").status == 200
        assert call(staged, "openai-chat", "lab/m", False, **body).status == 400
        assert call(staged, "openai-chat", "lab/tiny", False, **body).status == 200, "OpenRouter would shorten it"
    server.close()


@given(st.text(" ab\n\t", max_size=60))
def test_the_count_of_words_is_never_too_high(text: str) -> None:
    assert count_words(text.encode()) <= len(text.split())


# --- the limit of the answer ----------------------------------------------------------------------------------------

LIMIT_KEYS = {
    "openai-chat": "max_completion_tokens max_tokens",
    "openai-responses": "max_output_tokens",
    "anthropic": "max_tokens",
    "gemini": "maxOutputTokens",
}


def sent_limit(protocol: str, body: dict[str, Any]) -> int | None:
    found = {**body, **body.get("generationConfig", {})}
    return next((found[key] for key in LIMIT_KEYS[protocol].split() if key in found), None)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_answer_is_asked_for_within_the_models_limit(served: Served, provider: str) -> None:
    client = "openai-responses" if provider == "anthropic" else "anthropic"
    asked = {"max_output_tokens": 4096} if client == "openai-responses" else {"max_tokens": 4096}
    scene = served.scene(provider, play_script(provider, False), model="small")
    got = call(served, client, scene.model, False, **asked)
    assert got.status == 200
    assert sent_limit(provider, scene.asked[0].json()) == LIMIT
    assert "setting-clamped" in got.headers["x-toolwire-losses"]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_client_of_the_same_protocol_passes(served: Served, provider: str) -> None:
    more = {"generationConfig": {"maxOutputTokens": 4096}}
    if provider != "gemini":
        more = {LIMIT_KEYS[provider].split()[0]: 4096}  # type: ignore[dict-item]
    scene = served.scene(provider, play_script(provider, False), model="small")
    got = call(served, provider, scene.model, False, **more)
    assert got.status == 200
    assert sent_limit(provider, scene.asked[0].json()) == 4096


def test_a_lower_limit_stays(served: Served) -> None:
    scene = served.scene("openai-chat", play_script("openai-chat", False), model="small")
    got = call(served, "anthropic", scene.model, False, max_tokens=20)
    assert got.status == 200
    assert sent_limit("openai-chat", scene.asked[0].json()) == 20


def test_the_catalogue_limits_a_known_model(tmp_path: Path) -> None:
    """GPT-4.1 answers with at most 32,768 tokens; Claude Code asks every model for more."""
    openai = '[providers.proxy]\nkind = "openai"\nprotocols = ["openai-chat"]\nbase_url = "{plain}"\napi_key = "k"\n'
    with stage(tmp_path, "", openai) as staged:
        scene = staged.scene("openai-chat", play_script("openai-chat", False), provider="proxy", model="gpt-4.1")
        got = call(staged, "anthropic", scene.model, False, max_tokens=64_000)
        assert got.status == 200, got.data
        assert sent_limit("openai-chat", scene.asked[0].json()) == 32_768
