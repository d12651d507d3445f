"""Every recorded schema, declared by every client and sent to every provider, is one that the provider accepts."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from material import CORPUS, needs_corpus
from toolwire import translate
from toolwire_conformance.peers import find_violations

pytestmark = needs_corpus

MODELS = {
    "openai-chat": "gpt-4.1",
    "openai-responses": "gpt-5.6",
    "anthropic": "claude-opus-4-8",
    "gemini": "gemini-3.8-flash",
}
PAIRS = [
    pytest.param(source, target, strict, id=f"{source}-{target}-{'strict' if strict else 'loose'}")
    for source in MODELS
    for target in MODELS
    for strict in (False, True)
    if source != target and not (source == "gemini" and strict)
]


@cache
def read_schemas() -> tuple[Any, ...]:
    files = sorted((CORPUS / "schemas").glob("*.json"))
    return tuple(tool["schema"] for file in files for tool in json.loads(file.read_text()))


def declare(source: str, schema: Any, strict: bool) -> dict[str, Any]:
    """A request of this client with one tool."""
    user = {"role": "user", "content": "Hello."}
    if source == "openai-chat":
        function = {"name": "f", "description": "d", "parameters": schema, "strict": strict}
        return {"model": "m", "messages": [user], "tools": [{"type": "function", "function": function}]}
    if source == "openai-responses":
        tool = {"type": "function", "name": "f", "description": "d", "parameters": schema, "strict": strict}
        return {"model": "m", "input": [user], "tools": [tool]}
    if source == "anthropic":
        tool = {"name": "f", "description": "d", "input_schema": schema, "strict": strict}
        return {"model": "m", "max_tokens": 99, "messages": [user], "tools": [tool]}
    declaration = {"name": "f", "description": "d", "parametersJsonSchema": schema}
    contents = [{"role": "user", "parts": [{"text": "Hello."}]}]
    return {"contents": contents, "tools": [{"functionDeclarations": [declaration]}]}


@pytest.mark.parametrize(("source", "target", "strict"), PAIRS)
def test_the_provider_accepts_every_recorded_schema(source: str, target: str, strict: bool) -> None:
    model = MODELS[target]
    refused = {}
    for schema in read_schemas():
        body = declare(source, schema, strict)
        sent = translate(body, "request", source=source, target=target, model=model)
        if violations := find_violations(target, sent.json(), model):
            refused[json.dumps(schema)[:300]] = violations[:2]
    assert refused == {}


@pytest.mark.parametrize("target", ["openai-chat", "openai-responses"])
def test_most_strict_tools_of_anthropic_stay_strict(target: str) -> None:
    """An optional property is no reason to give strictness up."""
    kept = 0
    for schema in read_schemas():
        body = declare("anthropic", schema, True)
        tool = translate(body, "request", source="anthropic", target=target, model=MODELS[target]).json()["tools"][0]
        kept += tool.get("function", tool).get("strict") is True
    assert kept > 0.75 * len(read_schemas())
