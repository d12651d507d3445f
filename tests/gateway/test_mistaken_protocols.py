"""Requests that were written for another protocol, or that ask nothing: they are refused before a provider is asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.raw_exchange import PROVIDERS, Served, ask, call, path_of, stage, whole_answer
from toolwire.protocols import CODECS

SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "description": "A city."}}}
FIELDS = {"name": "weather", "description": "Tells the weather."}
TOOLS: dict[str, list[Any]] = {
    "openai-chat": [{"type": "function", "function": {**FIELDS, "parameters": SCHEMA}}],
    "openai-responses": [{"type": "function", **FIELDS, "parameters": SCHEMA}],
    "anthropic": [{**FIELDS, "input_schema": SCHEMA}],
    "gemini": [{"functionDeclarations": [{**FIELDS, "parametersJsonSchema": SCHEMA}]}],
    "unified": [{**FIELDS, "parameters": SCHEMA}],
}
MESSAGES = {"messages": [{"role": "user", "content": "Hi"}]}
TURNS: dict[str, dict[str, Any]] = {
    "openai-chat": MESSAGES,
    "openai-responses": {"input": [{"role": "user", "content": "Hi"}]},
    "anthropic": {**MESSAGES, "max_tokens": 99, "system": "Be brief."},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
    "unified": MESSAGES,
}
PLACES = {name: CODECS[name].http.request_path("MODEL", False) for name in TOOLS}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with stage(tmp_path_factory.mktemp("mistaken")) as staged:
        yield staged


def ask_loopback(served: Served, protocol: str, body: dict[str, Any]) -> tuple[int, str]:
    named = {} if protocol == "gemini" else {"model": "loopback"}
    got = ask(served.port, "POST", path_of(protocol, "loopback", False), json.dumps(named | body).encode())
    return got.status, got.data.decode()


@pytest.mark.parametrize("protocol", TOOLS)
@pytest.mark.parametrize("other", TOOLS)
def test_tools_of_another_protocol(served: Served, protocol: str, other: str) -> None:
    status, said = ask_loopback(served, protocol, {**TURNS[protocol], "tools": TOOLS[other]})
    assert (status == 200) == (protocol == other), said
    assert protocol == other or (f" {other}," in said and PLACES[other] in said), said


@pytest.mark.parametrize("protocol", TOOLS)
@pytest.mark.parametrize("other", TOOLS)
def test_whole_requests_of_another_protocol(served: Served, protocol: str, other: str) -> None:
    status, said = ask_loopback(served, protocol, {**TURNS[other], "tools": TOOLS[other]})
    assert (status == 200) == (protocol == other), said
    assert protocol == other or PLACES[other] in said, said


@pytest.mark.parametrize("protocol", TOOLS)
@pytest.mark.parametrize("turns", ["missing", None, []])
def test_a_request_that_asks_nothing(served: Served, protocol: str, turns: Any) -> None:
    key = CODECS[protocol].constraints.turns_key
    status, said = ask_loopback(served, protocol, {} if turns == "missing" else {key: turns})
    assert status == 400, said
    assert f"`{key}`" in said or f"/{key}" in said


@pytest.mark.parametrize("protocol", PROVIDERS)
@pytest.mark.parametrize("target", PROVIDERS)
def test_no_provider_is_asked_for_nothing(served: Served, protocol: str, target: str) -> None:
    scene = served.scene(target, whole_answer(target))
    got = call(served, protocol, scene.model, False, **{CODECS[protocol].constraints.turns_key: []})
    assert (got.status, len(scene.asked)) == (400, 0)


@pytest.mark.parametrize(
    "more", [{"previous_response_id": "resp_1"}, {"prompt": {"id": "pmpt_1"}}, {"instructions": "Go."}]
)
def test_a_stored_conversation_needs_no_input(served: Served, more: dict[str, Any]) -> None:
    scene = served.scene("openai-responses", whole_answer("openai-responses"))
    body = {"model": scene.model, "store": False, **more}
    got = ask(served.port, "POST", "/v1/responses", json.dumps(body).encode())
    assert b"`input`" not in got.data
