"""Thinking that one protocol measures in tokens and another in efforts, and what each model accepts of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire import translate
from toolwire.core.tokens import EFFORTS, effort_for_budget, nearest_effort, openai_efforts
from toolwire.translation.exchange import Translation
from toolwire_conformance.peers import find_violations


def ask(target: str, model: str, thinking: Any, **more: Any) -> Translation:
    messages = [{"role": "user", "content": "Why?"}]
    body = {"model": model, "max_tokens": 40_000, "messages": messages, "thinking": thinking, **more}
    return translate(body, "request", source="anthropic", target=target)


def written_effort(target: str, model: str, budget: int) -> str | None:
    body = ask(target, model, {"type": "enabled", "budget_tokens": budget}).json()
    effort = body.get("reasoning_effort") if target == "openai-chat" else body.get("reasoning", {}).get("effort")
    return effort if isinstance(effort, str) else None


ACCEPTED: dict[str, str] = {
    "gpt-5": "minimal low medium high",
    "gpt-5-mini-2025-08-07": "minimal low medium high",
    "gpt-5-pro": "high",
    "gpt-5-codex": "low medium high",
    "gpt-5.1": "none low medium high",
    "gpt-5.1-codex": "low medium high",
    "gpt-5.1-codex-max": "low medium high xhigh",
    "gpt-5.1-chat-latest": "medium",
    "gpt-5.2": "none low medium high xhigh",
    "gpt-5.2-codex": "low medium high xhigh",
    "gpt-5.4-pro": "medium high xhigh",
    "gpt-5.6-luna": "none low medium high xhigh",
    "gpt-5.10": "none low medium high xhigh",
    "gpt-6": "none low medium high xhigh max",
    "gpt-6-astra": "low medium high xhigh max",
    "o1": "low medium high",
    "o3-mini": "low medium high",
    "o4-mini": "low medium high",
    "gpt-oss-120b": "low medium high",
    "gpt-4o": "",
    "gpt-4.1": "",
    "chatgpt-4o-latest": "",
    "gpt-5-chat-latest": "",
}
BUDGETS = (1, 128, 1024, 1500, 2048, 4096, 10_000, 31_999, 65_536)


@pytest.mark.parametrize("model", ACCEPTED)
def test_the_efforts_of_openai(model: str) -> None:
    assert openai_efforts(model) == tuple(ACCEPTED[model].split())
    assert openai_efforts(f"openai/{model.upper()}") == tuple(ACCEPTED[model].split())


@pytest.mark.parametrize("target", ["openai-chat", "openai-responses"])
@pytest.mark.parametrize("model", [*ACCEPTED, "qwen3-32b", "kimi-k3", "some-model"])
def test_a_budget_becomes_an_effort_that_the_model_accepts_and_never_none(model: str, target: str) -> None:
    accepted = ACCEPTED.get(model, "minimal low medium high xhigh max").split()
    for budget in BUDGETS:
        effort = written_effort(target, model, budget)
        assert effort in ([word for word in accepted if word != "none"] or [None]), budget


@given(st.integers(1, 200_000), st.lists(st.sampled_from(EFFORTS), min_size=1, unique=True))
def test_some_thinking_never_becomes_none_where_there_is_a_choice(budget: int, allowed: list[str]) -> None:
    found = nearest_effort(effort_for_budget(budget), tuple(allowed))
    assert found in allowed
    assert found != "none" or allowed == ["none"]


ADAPTIVE, OFF = {"type": "adaptive"}, {"type": "disabled"}
BUDGET = {"type": "enabled", "budget_tokens": 10_000}

FITTED: list[tuple[str, dict[str, Any], dict[str, Any] | None, str | None]] = [
    ("claude-opus-4-8", BUDGET, ADAPTIVE, "medium"),
    ("claude-opus-4-7", BUDGET, ADAPTIVE, "medium"),
    ("claude-sonnet-5", {"type": "enabled", "budget_tokens": 1024}, ADAPTIVE, "low"),
    ("claude-opus-5-5", {"type": "enabled", "budget_tokens": 64_000}, ADAPTIVE, "xhigh"),
    ("claude-fable-5", BUDGET, ADAPTIVE, "medium"),
    ("claude-opus-5-5", {**BUDGET, "display": "summarized"}, {**ADAPTIVE, "display": "summarized"}, "medium"),
    ("claude-sonnet-4-5", ADAPTIVE, {"type": "enabled", "budget_tokens": 8192}, None),
    ("claude-opus-5-5", OFF, None, "low"),
    ("claude-sonnet-5-5", OFF, {"type": "between_tools"}, None),
    ("claude-3-5-haiku-20241022", BUDGET, None, None),
]


@pytest.mark.parametrize(("model", "asked", "wanted", "effort"), FITTED)
def test_thinking_that_the_model_refuses_is_fitted_within_anthropic(
    model: str, asked: dict[str, Any], wanted: dict[str, Any] | None, effort: str | None
) -> None:
    body = ask("anthropic", model, asked, max_tokens=8000 if "3-5" in model else 80_000)
    assert body.json().get("thinking") == wanted
    assert body.json().get("output_config", {}).get("effort") == effort
    assert "thinking-mapped" in {loss.code for loss in body.losses}
    assert find_violations("anthropic", body.json()) == []


def test_the_effort_that_the_client_gave_stays() -> None:
    body = ask("anthropic", "claude-opus-4-8", BUDGET, output_config={"effort": "max"}).json()
    assert (body["thinking"], body["output_config"]) == (ADAPTIVE, {"effort": "max"})


@pytest.mark.parametrize(
    ("model", "thinking"),
    [
        ("claude-opus-4-6", BUDGET),
        ("claude-opus-4-6", ADAPTIVE),
        ("claude-sonnet-4-5", BUDGET),
        ("claude-opus-4-8", ADAPTIVE),
        ("claude-opus-4-8", OFF),
        ("kimi-k3", BUDGET),
        ("kimi-k3", ADAPTIVE),
        ("claude-opus-4-8", {"type": "something_new"}),
    ],
)
def test_what_the_model_accepts_passes_as_it_is(model: str, thinking: dict[str, Any]) -> None:
    sent = ask("anthropic", model, thinking)
    assert sent.json()["thinking"] == thinking
    assert sent.losses == ()
