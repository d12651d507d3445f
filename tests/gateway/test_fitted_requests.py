"""Requests that a provider would refuse are fitted, also where the client's own bytes could pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gateway.raw_exchange import Served, call, stage, whole_answer

USER = {"role": "user", "content": "Hello."}
OBJECT = {"type": "object", "properties": {"path": {"type": "string", "description": "The path of the file."}}}


@pytest.fixture(scope="module", name="served")
def serve_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with stage(tmp_path_factory.mktemp("fitted"), 'log_format = "none"') as staged:
        yield staged


def chat_tools(count: int) -> list[dict[str, Any]]:
    functions = [{"name": f"t{number}", "description": "d", "parameters": OBJECT} for number in range(count)]
    return [{"type": "function", "function": function} for function in functions]


@pytest.mark.parametrize("count", [128, 129, 300])
def test_the_first_request_within_chat_has_no_more_tools_than_openai_accepts(served: Served, count: int) -> None:
    scene = served.scene("openai-chat", whole_answer("openai-chat"), model="gpt-4.1")
    got = call(served, "openai-chat", scene.model, False, messages=[USER], tools=chat_tools(count))
    assert got.status == 200
    assert scene.asked[0].json()["tools"] == chat_tools(128)
    assert ("tool-dropped" in got.headers.get("x-toolwire-losses", "")) == (count > 128)


@pytest.mark.parametrize("count", [512, 513])
def test_the_same_within_gemini(served: Served, count: int) -> None:
    scene = served.scene("gemini", whole_answer("gemini"), model="gemini-3.8-flash")
    declarations = [
        {"name": f"t{number}", "description": "d", "parametersJsonSchema": OBJECT} for number in range(count)
    ]
    got = call(served, "gemini", scene.model, False, tools=[{"functionDeclarations": declarations}])
    assert got.status == 200
    assert scene.asked[0].json()["tools"] == [{"functionDeclarations": declarations[:512]}]


def test_where_losses_are_refused_too_many_tools_are(tmp_path_factory: pytest.TempPathFactory) -> None:
    with stage(tmp_path_factory.mktemp("strict"), 'log_format = "none"', '[translate]\non_loss = "refuse"\n') as strict:
        scene = strict.scene("openai-chat", whole_answer("openai-chat"), model="gpt-4.1")
        tools = [{"name": f"t{number}", "input_schema": OBJECT} for number in range(129)]
        got = call(strict, "anthropic", scene.model, False, max_tokens=99, messages=[USER], tools=tools)
        assert got.status == 400
        assert "t128" in got.json()["error"]["message"]
        assert not scene.asked


def test_a_budget_for_an_adaptive_model_is_fitted_in_the_first_request(served: Served) -> None:
    scene = served.scene("anthropic", whole_answer("anthropic"), model="claude-opus-4-8")
    thinking = {"type": "enabled", "budget_tokens": 10_000}
    got = call(served, "anthropic", scene.model, False, max_tokens=20_000, messages=[USER], thinking=thinking)
    assert got.status == 200
    sent = scene.asked[0].json()
    assert (sent["thinking"], sent["output_config"]) == ({"type": "adaptive"}, {"effort": "medium"})


def test_a_summary_of_calls_without_tools_reaches_anthropic(served: Served) -> None:
    scene = served.scene("anthropic", whole_answer("anthropic"), model="claude-opus-4-8")
    function = {"name": "read", "arguments": "{}"}
    messages = [
        USER,
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "c1", "content": "text"},
        {"role": "user", "content": "Summarise."},
    ]
    assert call(served, "openai-chat", scene.model, False, messages=messages).status == 200
    sent = scene.asked[0].json()
    assert [tool["name"] for tool in sent["tools"]] == ["read"]
    assert sent["tool_choice"] == {"type": "none"}
