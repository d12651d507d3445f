"""Counts of tokens: the provider's own where it counts, else an estimate over everything, marked as one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.raw_exchange import RawAnswer, Served, answer, ask, refusal, request_of, stage
from toolwire_conformance.peers.peer import encode_json

COUNTERS = ("openai-responses", "anthropic", "gemini")
PATHS = {
    "openai-responses": "/v1/responses/input_tokens",
    "anthropic": "/v1/messages/count_tokens",
    "gemini": "/v1beta/models/{model}:countTokens",
}
COUNTED = {
    "openai-responses": {"object": "response.input_tokens", "input_tokens": 1234},
    "anthropic": {"input_tokens": 1234},
    "gemini": {"totalTokens": 1234},
}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "description": "A city, with its country"}}}


@pytest.fixture(scope="module", name="served")
def serve_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    more = '[providers.unkeyed]\nprotocols = ["anthropic"]\nbase_url = "http://127.0.0.1:1"\napi_key_env = "NO_SUCH_VARIABLE"\n'
    more += '[[policy]]\ntool = "get_rain"\nrename = "rain_of"\n'
    with stage(tmp_path_factory.mktemp("counts"), more=more) as staged:
        yield staged


def count(served: Served, client: str, model: str, **more: Any) -> RawAnswer:
    body: dict[str, Any] = request_of(client, model, False, **more)
    body.pop("max_tokens", None)
    body.pop("store", None)
    if client == "gemini":
        body = {"generateContentRequest": {"model": f"models/{model}", **body}} if more else body
    return ask(served.port, "POST", PATHS[client].format(model=model), encode_json(body).encode())


def number(client: str, got: RawAnswer) -> int:
    assert got.status == 200, got.data
    found = got.json()["totalTokens" if client == "gemini" else "input_tokens"]
    assert isinstance(found, int)
    return found


@pytest.mark.parametrize("provider", COUNTERS)
@pytest.mark.parametrize("client", COUNTERS)
def test_a_provider_that_counts_is_asked(served: Served, client: str, provider: str) -> None:
    scene = served.scene(provider, answer(200, encode_json(COUNTED[provider]).encode()))
    got = count(served, client, scene.model)
    assert number(client, got) == 1234
    assert "x-toolwire-estimate" not in got.headers
    asked = scene.asked[0]
    assert asked.target == PATHS[provider].format(model=scene.name)
    sent = asked.json()
    assert "max_tokens" not in sent
    assert "stream" not in sent
    assert provider == "gemini" or sent["model"] == scene.name
    line = served.line(got.id)
    assert (line["operation"], line["status"], line["provider"]) == ("count_tokens", 200, scene.model.partition("/")[0])


TOOLS: dict[str, Any] = {
    "openai-responses": [{"type": "function", "name": "get_weather", "parameters": SCHEMA}],
    "anthropic": [{"name": "get_weather", "input_schema": SCHEMA}],
    "gemini": [{"functionDeclarations": [{"name": "get_weather", "parameters": SCHEMA}]}],
}


@pytest.mark.parametrize("provider", COUNTERS)
@pytest.mark.parametrize("client", COUNTERS)
def test_tools_are_counted_too(served: Served, client: str, provider: str) -> None:
    scene = served.scene(provider, answer(200, encode_json(COUNTED[provider]).encode()))
    number(client, count(served, client, scene.model, tools=TOOLS[client]))
    assert b"get_weather" in scene.asked[0].body
    assert b"A city, with its country" in scene.asked[0].body


@pytest.mark.parametrize("client", COUNTERS)
def test_tools_are_counted_as_the_model_sees_them(served: Served, client: str) -> None:
    scene = served.scene("anthropic", answer(200, encode_json(COUNTED["anthropic"]).encode()))
    tools = json.loads(json.dumps(TOOLS[client]).replace("get_weather", "get_rain"))
    number(client, count(served, client, scene.model, tools=tools))
    assert b"rain_of" in scene.asked[0].body
    assert b"get_rain" not in scene.asked[0].body


@pytest.mark.parametrize("provider", ["openai-chat"])
@pytest.mark.parametrize("client", COUNTERS)
def test_where_nobody_counts_it_is_estimated(served: Served, client: str, provider: str) -> None:
    scene = served.scene(provider, answer(500, b"{}"))
    got = count(served, client, scene.model)
    assert number(client, got) > 0
    assert got.headers["x-toolwire-estimate"]
    assert not scene.asked


@pytest.mark.parametrize("provider", COUNTERS)
@pytest.mark.parametrize("client", COUNTERS)
@pytest.mark.parametrize("how", ["404", "500", "garbage", "negative", "huge", "html", "cut"])
def test_a_count_that_is_refused_is_estimated(served: Served, client: str, provider: str, how: str) -> None:
    plays: dict[str, Any] = {
        "404": answer(404, refusal(provider, 404, "not_found_error", "No such path.")),
        "500": answer(500, b"{}"),
        "garbage": answer(200, b'{"tokens": "many"}'),
        "negative": answer(200, encode_json(dict.fromkeys(COUNTED[provider], -5)).encode()),
        "huge": answer(200, encode_json(dict.fromkeys(COUNTED[provider], 10**30)).encode()),
        "html": answer(200, b"<html>", "text/html"),
        "cut": lambda peer: None,
    }
    scene = served.scene(provider, plays[how])
    got = count(served, client, scene.model)
    assert number(client, got) > 0
    assert got.headers["x-toolwire-estimate"]


@pytest.mark.parametrize("model", ["loopback", "unkeyed/claude-sonnet-4-5"])
@pytest.mark.parametrize("client", COUNTERS)
def test_what_cannot_be_asked_is_estimated(served: Served, client: str, model: str) -> None:
    got = count(served, client, model)
    assert number(client, got) > 0
    assert got.headers["x-toolwire-estimate"]


RESULTS: dict[str, Any] = {
    "openai-responses": lambda text: {
        "input": [
            {"role": "user", "content": "Hi"},
            {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": text},
        ]
    },
    "anthropic": lambda text: {
        "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "get_weather", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": text}]},
        ]
    },
    "gemini": lambda text: {
        "contents": [
            {"role": "user", "parts": [{"text": "Hi"}]},
            {"role": "model", "parts": [{"functionCall": {"name": "get_weather", "args": {}}}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "get_weather", "response": {"output": text}}}]},
        ]
    },
}
SYSTEM: dict[str, Any] = {
    "openai-responses": lambda text: {"instructions": text},
    "anthropic": lambda text: {"system": text},
    "gemini": lambda text: {"systemInstruction": {"parts": [{"text": text}]}},
}


@pytest.mark.parametrize("client", COUNTERS)
def test_an_estimate_is_over_everything(served: Served, client: str) -> None:
    bare = number(client, count(served, client, "loopback"))
    with_tools = number(client, count(served, client, "loopback", tools=TOOLS[client]))
    assert with_tools > bare
    more = json.loads(json.dumps(TOOLS[client]).replace("A city, with its country", "A city, with its country. " * 40))
    assert number(client, count(served, client, "loopback", tools=more)) > with_tools + 100
    short = number(client, count(served, client, "loopback", **RESULTS[client]("cold")))
    assert short > bare
    assert number(client, count(served, client, "loopback", **RESULTS[client]("cold and windy " * 100))) > short + 100
    assert number(client, count(served, client, "loopback", **SYSTEM[client]("Be brief. " * 100))) > bare + 100


@pytest.mark.parametrize("client", COUNTERS)
def test_a_count_of_what_is_no_request(served: Served, client: str) -> None:
    path = PATHS[client].format(model="loopback")
    assert ask(served.port, "POST", path, b"{").status == 400
    assert (
        ask(
            served.port, "POST", PATHS[client].format(model="nonesuch"), encode_json({"model": "nonesuch"}).encode()
        ).status
        == 404
    )
