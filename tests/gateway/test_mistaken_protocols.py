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


@pytest.fixture(scope="module", name="served")
def serve_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
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


@pytest.mark.parametrize(("protocol", "model"), [("openai-chat", "gpt-4.1"), ("gemini", "gemini-3-pro")])
@pytest.mark.parametrize("other", TOOLS)
def test_tools_of_another_protocol_at_a_model_of_the_own_one(
    served: Served, protocol: str, model: str, other: str
) -> None:
    """Where bytes would pass."""
    scene = served.scene(protocol, whole_answer(protocol), model=model)
    got = call(served, protocol, scene.model, False, tools=TOOLS[other])
    said = got.data.decode()
    assert (got.status, len(scene.asked)) == ((200, 1) if protocol == other else (400, 0)), said
    assert protocol == other or PLACES[other] in said


def test_turns_of_chat_in_the_input_of_responses(served: Served) -> None:
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    turns = [
        *MESSAGES["messages"],
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c", "content": "r"},
    ]
    status, said = ask_loopback(served, "openai-responses", {"input": turns})
    assert (status, "the turns look like those of openai-chat" in said) == (400, True), said


@pytest.mark.parametrize(
    ("protocol", "member", "other"),
    [
        ("openai-chat", {"system": "Be brief."}, "anthropic"),
        ("openai-chat", {"instructions": "Be brief."}, "openai-responses"),
        ("openai-responses", {"system": "Be brief."}, "anthropic"),
        ("anthropic", {"toolConfig": {"tools": [{"toolSpec": FIELDS}]}}, "bedrock-converse"),
        ("gemini", {"system": "Be brief."}, "anthropic"),
    ],
)
def test_instructions_and_tools_where_only_another_protocol_has_them(
    served: Served, protocol: str, member: dict[str, Any], other: str
) -> None:
    status, said = ask_loopback(served, protocol, {**TURNS[protocol], **member})
    assert (status, f"requests of {other} have it" in said) == (400, True), said
    for nothing in (None, "", [], {}):
        status, said = ask_loopback(served, protocol, {**TURNS[protocol], **dict.fromkeys(member, nothing)})
        assert status == 200, said


@pytest.mark.parametrize("target", PROVIDERS)
@pytest.mark.parametrize(("value", "is_lost"), [("", False), ([], False), ("Be brief.", True)])
def test_only_what_a_translation_would_lose_is_refused(served: Served, target: str, value: Any, is_lost: bool) -> None:
    """A provider of the client's protocol gets it, and says itself what is wrong with it."""
    scene = served.scene(target, whole_answer(target))
    got = call(served, "openai-chat", scene.model, False, system=value, instructions=value)
    is_refused = is_lost and target != "openai-chat"
    assert (got.status, len(scene.asked)) == ((400, 0) if is_refused else (200, 1)), got.data


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


@pytest.mark.parametrize(
    "body", [{"input": ""}, {"input": "  "}, {"prompt": "Hi"}, {"input": [], "messages": [{"role": "user"}]}]
)
def test_nothing_is_also_a_text_that_says_nothing(served: Served, body: dict[str, Any]) -> None:
    status, said = ask_loopback(served, "openai-responses", body)
    assert status == 400, said


@pytest.mark.parametrize("protocol", ["openai-chat", "openai-responses", "anthropic", "unified"])
def test_tools_as_an_mcp_server_lists_them(served: Served, protocol: str) -> None:
    tools = [{**FIELDS, "inputSchema": SCHEMA}]
    status, said = ask_loopback(served, protocol, {**TURNS[protocol], "tools": tools})
    assert (status, "`inputSchema`" in said) == (400, True), said


CONTENTS = [
    ("openai-chat", {"role": "user", "parts": [{"text": "Hi"}]}, "gemini"),
    ("openai-chat", {"role": "user", "content": [{"type": "text", "text": "See:"}, {"type": "input_image", "image_url": "https://e.org/i.png"}]}, "openai-responses"),
    ("openai-chat", {"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "https://e.org/i.png"}}]}, "anthropic"),
    ("anthropic", {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://e.org/i.png"}}]}, "openai-chat"),
    ("anthropic", {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}, "openai-"),
    ("gemini", {"role": "user", "content": "Hi"}, "openai-chat"),
    ("gemini", {"role": "user", "content": [{"type": "text", "text": "Hi"}]}, "openai-chat"),
]  # fmt: skip


@pytest.mark.parametrize("target", PROVIDERS)
@pytest.mark.parametrize(("protocol", "turn", "other"), CONTENTS)
def test_content_of_another_protocol_is_not_lost(
    served: Served, protocol: str, turn: dict[str, Any], other: str, target: str
) -> None:
    """A provider of the client's protocol gets it, and says itself what is wrong with it."""
    scene = served.scene(target, whole_answer(target))
    got = call(served, protocol, scene.model, False, **{CODECS[protocol].constraints.turns_key: [turn]})
    assert (got.status == 400) == (protocol != target), got.data
    assert len(scene.asked) == (protocol == target)
    assert protocol == target or f"that of {other}" in got.data.decode(), got.data


@pytest.mark.parametrize("target", PROVIDERS)
@pytest.mark.parametrize("more", [{}, {"input": "Hi"}])
def test_a_stored_prompt_is_only_at_openai(served: Served, target: str, more: dict[str, Any]) -> None:
    scene = served.scene(target, whole_answer(target))
    body = {"model": scene.model, "prompt": {"id": "pmpt_1"}, **more}
    got = ask(served.port, "POST", "/v1/responses", json.dumps(body).encode())
    assert (got.status, len(scene.asked)) == ((200, 1) if target == "openai-responses" else (400, 0)), got.data


ONE = {"type": "function", "name": "weather"}
CHOICES: list[tuple[Any, Any]] = [
    ({"type": "function", "function": {"name": "weather"}}, ONE),
    ({"function": {"name": "weather"}}, ONE),
    ({"name": "weather"}, ONE),
    ({"type": "tool", "name": "weather"}, ONE),
    ({"type": "any"}, "required"),
    ({"type": "auto"}, "auto"),
    ({"type": "none"}, "none"),
    ({"type": "any", "disable_parallel_tool_use": True}, "required"),
    ({"type": "tool", "name": "weather", "disable_parallel_tool_use": False}, ONE),
    (
        {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "weather"}}]}},
        {"type": "allowed_tools", "mode": "auto", "tools": [ONE]},
    ),
]  # fmt: skip


@pytest.mark.parametrize("target", PROVIDERS)
@pytest.mark.parametrize(("given", "meant"), CHOICES)
def test_responses_takes_the_tool_choice_of_other_protocols(
    served: Served, given: Any, meant: Any, target: str
) -> None:
    """A provider gets the same as if the client had written it as OpenAI takes it here."""
    got = []
    for choice in (given, meant):
        scene = served.scene(target, whole_answer(target))
        more = {"tools": TOOLS["openai-responses"], "tool_choice": choice}
        if choice is meant and "disable_parallel_tool_use" in given:
            more["parallel_tool_calls"] = not given["disable_parallel_tool_use"]
        assert call(served, "openai-responses", scene.model, False, **more).status == 200
        sent = scene.asked[0].json()
        got.append([sent.get(key) for key in ("tool_choice", "toolConfig", "parallel_tool_calls")])
    assert got[0] == got[1]


NESTED = {"type": "function", "function": {"name": "weather"}}
CHAT_CHOICES: list[tuple[Any, Any, Any]] = [
    (ONE, NESTED, None),
    ({"name": "weather"}, NESTED, None),
    ({"type": "tool", "name": "weather", "disable_parallel_tool_use": True}, NESTED, False),
    ({"type": "any"}, "required", None),
    ({"type": "any", "disable_parallel_tool_use": True}, "required", False),
    # This provider does not know it, and gets only the allowed tools.
    ({"type": "allowed_tools", "mode": "required", "tools": [ONE]}, "required", None),
    # What is not known passes as it came.
    ({"type": "web_search"}, {"type": "web_search"}, None),
    ({**ONE, "strength": 2}, {**ONE, "strength": 2}, None),
    (
        {"type": "allowed_tools", "mode": "auto", "tools": [ONE, {"type": "mcp", "server_label": "s"}]},
        {"type": "allowed_tools", "mode": "auto", "tools": [ONE, {"type": "mcp", "server_label": "s"}]},
        None,
    ),
]


@pytest.mark.parametrize(("given", "meant", "parallel"), CHAT_CHOICES)
def test_chat_takes_the_tool_choice_of_other_protocols(
    served: Served, given: Any, meant: Any, parallel: bool | None
) -> None:
    scene = served.scene("openai-chat", whole_answer("openai-chat"))
    more = {"tools": TOOLS["openai-chat"], "tool_choice": given}
    assert call(served, "openai-chat", scene.model, False, **more).status == 200
    sent = scene.asked[0].json()
    assert (sent["tool_choice"], sent.get("parallel_tool_calls")) == (meant, parallel)


@pytest.mark.parametrize(("choice", "owner"), [("required", "openai-chat"), (ONE, "openai-responses")])
def test_messages_names_the_protocol_of_a_tool_choice(served: Served, choice: Any, owner: str) -> None:
    more = {**TURNS["anthropic"], "tools": TOOLS["anthropic"], "tool_choice": choice}
    status, said = ask_loopback(served, "anthropic", more)
    assert status == 400
    assert f"this tool choice looks like that of {owner}, whose requests go to {PLACES[owner]}" in said


@pytest.mark.parametrize("kind", [[], {}, 5, None, ""])
def test_a_tool_choice_of_no_protocol(served: Served, kind: Any) -> None:
    status, said = ask_loopback(served, "openai-responses", {"input": "Hi", "tool_choice": {"type": kind}})
    assert status in (200, 400), said
