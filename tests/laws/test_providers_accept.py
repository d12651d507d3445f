"""Requests that we write are valid for real providers: from every protocol, for models of every family."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from toolwire import translate
from toolwire_conformance.peers import find_violations

BODIES = {path.stem: json.loads(path.read_text()) for path in sorted((Path(__file__).parent / "bodies").glob("*.json"))}

MODELS = {
    "openai-chat": ("gpt-4.1", "gpt-5.5", "deepseek-v4", "kimi-k3"),
    "openai-responses": ("gpt-5.6", "gpt-4.1"),
    "anthropic": (
        "claude-opus-5-5",
        "claude-sonnet-4-5",
        "claude-3-5-haiku-20241022",
        "claude-fable-5",
        "claude-opus-4-8",
    ),
    "gemini": ("gemini-3.8-flash", "gemini-2.5-pro", "gemini-1.5-pro"),
    "bedrock-converse": (
        "us.anthropic.claude-opus-4-6-v1:0",
        "anthropic.claude-opus-5-5-v1:0",
        "amazon.nova-pro-v1:0",
        "amazon.nova-2-lite-v1:0",
        "meta.llama4-maverick-17b-instruct-v1:0",
        "openai.gpt-oss-120b-1:0",
        "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/abc123",
    ),
}
PAIRS = [
    (source, target, model)
    for source in BODIES
    for target, models in MODELS.items()
    for model in models
    if source != target
]


@pytest.mark.parametrize(("source", "target", "model"), PAIRS)
def test_the_provider_has_nothing_to_refuse(source: str, target: str, model: str) -> None:
    sent = translate(BODIES[source], "request", source=source, target=target, model=model)
    assert find_violations(target, sent.json(), model) == []
