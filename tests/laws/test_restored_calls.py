"""Names, kinds, namespaces and parameters that a request changed are changed back in whole and streamed answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolwire import Stream, parse_tool_calls, translate

LONG = "mcp__plugin_of_a_vendor_with_a_long_name__and_a_tool_with_a_long_name_too_that_no_wire_takes_" + "x" * 60


def chat_answer(name: str, arguments: str) -> dict[str, Any]:
    call = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    return {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": "tool_calls", "message": message}],
    }


def claude_answer(name: str, input: Any) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "tool_use", "id": "toolu_1", "name": name, "input": input}],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def claude_stream(name: str, input: str) -> bytes:
    events = [
        {"type": "message_start", "message": {**claude_answer(name, {}), "content": [], "stop_reason": None}},
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "tool_use", "id": "toolu_1", "name": name, "input": {}},
        },
        *(
            {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": piece}}
            for piece in (input[:7], input[7:])
        ),
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use", "stop_sequence": None},
            "usage": {"output_tokens": 3},
        },
        {"type": "message_stop"},
    ]
    return b"".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events)


def test_a_long_name_within_one_protocol() -> None:
    tools = [{"name": LONG, "description": "d", "input_schema": {"type": "object"}}]
    request = {
        "model": "claude-sonnet-4-5",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "q"}],
        "tools": tools,
    }
    sent = translate(request, "request", source="anthropic", target="anthropic").json()["tools"][0]["name"]
    assert sent != LONG
    assert len(sent) <= 128
    whole = translate(
        claude_answer(sent, {"a": 1}), "response", source="anthropic", target="anthropic", request=request
    ).json()
    assert whole["content"][0]["name"] == LONG
    stream = Stream(source="anthropic", target="anthropic", request=request)
    assert LONG in (stream.feed(claude_stream(sent, '{"a": 1}')) + stream.close()).decode()


SCHEMAS = [
    (
        {
            "type": "object",
            "properties": {
                "file path": {"type": "string"},
                "$x": {"type": "object", "properties": {"a/b": {"type": "integer"}}},
            },
        },
        {"file path": "/a", "$x": {"a/b": 1}},
    ),
    (
        {
            "anyOf": [
                {"type": "object", "properties": {"a b": {"type": "string"}}},
                {"type": "object", "properties": {"c": {"type": "integer"}}},
            ]
        },
        {"a b": "x", "c": 2},
    ),
]


@pytest.mark.parametrize(("schema", "arguments"), SCHEMAS)
def test_parameters_that_the_target_cannot_name(schema: Any, arguments: Any) -> None:
    tools = [{"type": "function", "function": {"name": "f", "description": "d", "parameters": schema}}]
    history = [
        {"role": "user", "content": "q"},
        *(chat_answer("f", json.dumps(arguments))["choices"][0]["message"],),
        {"role": "tool", "tool_call_id": "call_1", "content": "r"},
    ]
    request = {"model": "gpt-4o", "messages": history, "tools": tools}
    sent = translate(request, "request", source="openai-chat", target="anthropic", model="claude-sonnet-4-5").json()
    there = sent["messages"][1]["content"][0]["input"]
    assert set(there) <= set(sent["tools"][0]["input_schema"]["properties"])
    assert set(there) != set(arguments)
    whole = translate(
        claude_answer("f", there), "response", source="anthropic", target="openai-chat", request=request
    ).json()
    assert json.loads(whole["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]) == arguments
    stream = Stream(source="anthropic", target="openai-chat", request=request)
    text = (stream.feed(claude_stream("f", json.dumps(there))) + stream.close()).decode()
    pieces = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    deltas = [
        call["function"].get("arguments", "")
        for piece in pieces
        for choice in piece["choices"]
        for call in choice["delta"].get("tool_calls", ())
    ]
    assert json.loads("".join(deltas)) == arguments


CODEX = {
    "model": "gpt-5.5",
    "input": "q",
    "tools": [
        {
            "type": "custom",
            "name": "apply_patch",
            "description": "d",
            "format": {"type": "grammar", "syntax": "lark", "definition": "start: x"},
        },
        {
            "type": "namespace",
            "name": "mcp__docs__",
            "description": "n",
            "tools": [{"type": "function", "name": "search", "description": "d", "parameters": {"type": "object"}}],
        },
        {
            "type": "tool_search",
            "execution": "client",
            "description": "finds tools",
            "parameters": {"type": "object", "properties": {"query": {"type": "string"}}},
        },
    ],
}
PATCH = '*** Begin Patch\n*** Add File: a.txt\n+"hi" ü\n*** End Patch\n'

SEEN = [
    ("apply_patch", {"input": PATCH}, {"type": "custom_tool_call", "name": "apply_patch", "input": PATCH}),
    ("mcp__docs__search", {"q": "x"}, {"type": "function_call", "name": "search", "namespace": "mcp__docs__"}),
    ("tool_search", {"query": "x"}, {"type": "tool_search_call", "execution": "client", "arguments": {"query": "x"}}),
]


@pytest.mark.parametrize(("name", "arguments", "seen"), SEEN)
def test_what_codex_declared_comes_back_as_codex_declared_it(name: str, arguments: Any, seen: dict[str, Any]) -> None:
    sent = translate(CODEX, "request", source="openai-responses", target="anthropic", model="claude-sonnet-4-5").json()
    assert name in {tool["name"] for tool in sent["tools"]}
    whole = translate(
        claude_answer(name, arguments), "response", source="anthropic", target="openai-responses", request=CODEX
    ).json()
    stream = Stream(source="anthropic", target="openai-responses", request=CODEX)
    text = (stream.feed(claude_stream(name, json.dumps(arguments))) + stream.close()).decode()
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
    done = [
        event["item"]
        for event in events
        if event["type"] == "response.output_item.done" and event["item"]["type"] != "reasoning"
    ]
    for item in (whole["output"][-1], done[-1], events[-1]["response"]["output"][-1]):
        assert item.items() >= seen.items()


def test_without_the_request_names_stay_and_the_loss_is_named() -> None:
    result = translate(claude_answer("f", {}), "response", source="anthropic", target="openai-chat")
    assert "request-missing" in {loss.code for loss in result.losses}


def test_parameters_that_an_older_model_cannot_name() -> None:
    schema = {"type": "object", "properties": {"file-path": {"type": "string"}}, "required": ["file-path"]}
    tools = [{"type": "function", "function": {"name": "f", "description": "d", "parameters": schema}}]
    request = {"model": "m", "messages": [{"role": "user", "content": "q"}], "tools": tools}
    model = "gemini-1.5-pro"
    sent = translate(request, "request", source="openai-chat", target="gemini", model=model).json()
    (name,) = sent["tools"][0]["functionDeclarations"][0]["parameters"]["properties"]
    assert name != "file-path"
    parts = [{"functionCall": {"name": "f", "args": {name: "/a"}}}]
    answer = {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]}
    whole = translate(answer, "response", source="gemini", target="openai-chat", request=request, model=model).json()
    arguments = whole["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(arguments) == {"file-path": "/a"}


ROOTS: list[tuple[Any, Any]] = [
    ({"type": "array", "items": {"type": "string"}}, ["a", "b"]),
    ({"type": "string"}, "just text"),
]


@pytest.mark.parametrize(("schema", "value"), ROOTS)
@pytest.mark.parametrize(
    "target", ["openai-chat", "openai-responses", "anthropic", "gemini", "unified", "bedrock-converse"]
)
def test_a_root_that_is_no_object_is_wrapped_and_unwrapped(target: str, schema: Any, value: Any) -> None:
    """Every provider demands an object; the client gets the value that it described."""
    client = "openai-responses" if target == "openai-chat" else "openai-chat"
    function = {"name": "f", "description": "d", "parameters": schema}
    request: dict[str, Any] = {
        "openai-responses": {"model": "m", "input": "q", "tools": [{"type": "function", **function}]},
        "openai-chat": {
            "model": "m",
            "messages": [{"role": "user", "content": "q"}],
            "tools": [{"type": "function", "function": function}],
        },
    }[client]
    sent = translate(request, "request", source=client, target=target, model="some-model")
    assert '"value"' in sent.body.decode()
    parts = [{"functionCall": {"name": "f", "args": {"value": value}}}]
    gemini = {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]}
    answer = translate(gemini, "response", source="gemini", target=target).json()
    seen = translate(answer, "response", source=target, target=client, request=request, model="some-model").json()
    (call,) = parse_tool_calls(client, seen)
    assert json.loads(call.arguments) == value


def test_a_tool_that_is_declared_twice_is_declared_once() -> None:
    tool = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}
    request = {"model": "m", "messages": [{"role": "user", "content": "q"}], "tools": [tool, tool]}
    sent = translate(request, "request", source="openai-chat", target="anthropic")
    assert len(sent.json()["tools"]) == 1
    assert "tools-merged" in {loss.code for loss in sent.losses}
