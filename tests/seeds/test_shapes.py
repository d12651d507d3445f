"""The shapes of seeds/001, 003 and 004, older and looser ones included, and the seeds' lists of Do and Don't as a table."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolwire import Stream, translate

WEATHER = {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]}


def out(body: Any, source: str, target: str, **options: Any) -> Any:
    return json.loads(translate(body, "request", source=source, target=target, **options).body)


LEGACY = {
    "model": "gpt-4o",
    "messages": [
        {"role": "user", "content": "What's the current weather in San Francisco?"},
        {
            "role": "assistant",
            "content": None,
            "function_call": {"name": "get_weather", "arguments": '{"location": "San Francisco"}'},
        },
        {"role": "function", "name": "get_weather", "content": '{"temperature": 62}'},
    ],
    "tools": [{"type": "function", "function": {"name": "get_weather", "description": "d", "parameters": WEATHER}}],
}


@pytest.mark.parametrize("target", ["openai-responses", "anthropic", "gemini", "unified"])
def test_a_legacy_call_in_the_history_beside_modern_tools(target: str) -> None:
    text = json.dumps(out(LEGACY, "openai-chat", target))
    assert "San Francisco" in text
    assert "temperature" in text
    body = out(LEGACY, "openai-chat", "anthropic")
    call, result = body["messages"][1]["content"][-1], body["messages"][2]["content"][0]
    assert call["id"] == result["tool_use_id"] != ""


OLD_GEMINI = {
    "contents": [
        {"role": "user", "parts": [{"text": "Weather?"}]},
        {
            "role": "model",
            "parts": [
                {"functionCall": {"name": "get_weather", "args": {"location": "SF"}}},
                {"functionCall": {"name": "get_weather", "args": {"location": "LA"}}},
            ],
        },
        {
            "role": "function",
            "parts": [
                {"functionResponse": {"name": "get_weather", "response": {"temperature": 62}}},
                {"functionResponse": {"name": "get_weather", "response": {"result": "sunny"}}},
            ],
        },
    ],
    "tools": [
        {
            "function_declarations": [
                {
                    "name": "get_weather",
                    "description": "d",
                    "parameters": {
                        "type": "OBJECT",
                        "properties": {"location": {"type": "STRING"}},
                        "required": ["location"],
                    },
                }
            ]
        }
    ],
    "generation_config": {"max_output_tokens": 1024},
}


def test_gemini_of_the_seed_without_ids_in_snake_case_and_upper_case() -> None:
    body = out(OLD_GEMINI, "gemini", "anthropic", model="claude-sonnet-4-5")
    calls, results = body["messages"][1]["content"], body["messages"][2]["content"]
    assert [call["id"] for call in calls] == [result["tool_use_id"] for result in results]
    assert calls[0]["id"] != calls[1]["id"]
    assert body["tools"][0]["input_schema"] == WEATHER
    assert body["max_tokens"] == 1024
    assert "62" in json.dumps(results[0])
    assert "sunny" in json.dumps(results[1])


def test_the_sdks_config_wrapper() -> None:
    body = {
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
        "config": {
            "systemInstruction": "Be brief.",
            "tools": [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": WEATHER}]}],
        },
    }
    chat = out(body, "gemini", "openai-chat", model="gpt-4o")
    assert chat["messages"][0] == {"role": "system", "content": "Be brief."}
    assert chat["tools"][0]["function"]["parameters"] == WEATHER


def test_finish_reason_function_call_of_the_seed() -> None:
    answer = {
        "candidates": [
            {
                "content": {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {"a": 1}}}]},
                "finishReason": "FUNCTION_CALL",
            }
        ]
    }
    chat = json.loads(translate(answer, "response", source="gemini", target="openai-chat").body)
    assert chat["choices"][0]["finish_reason"] == "tool_calls"


def test_name_on_a_tool_message_and_strict_null() -> None:
    chat = {
        "model": "m",
        "messages": [
            {"role": "user", "content": "q"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "c", "name": "f", "content": "r"},
        ],
    }
    assert out(chat, "openai-chat", "gemini")["contents"][2]["parts"][0]["functionResponse"]["name"] == "f"
    tools = [{"type": "function", "name": "f", "description": "d", "parameters": WEATHER, "strict": None}]
    assert (
        out({"model": "m", "input": "q", "tools": tools}, "openai-responses", "anthropic")["tools"][0]["input_schema"]
        == WEATHER
    )


def test_tools_that_are_no_functions() -> None:
    body = {"model": "gpt-5", "input": "q", "tools": [{"type": "local_shell"}, {"type": "web_search"}]}
    result = translate(body, "request", source="openai-responses", target="anthropic", model="claude-sonnet-4-5")
    tools = result.json()["tools"]
    assert tools[0]["name"] == "local_shell"
    assert tools[1]["type"].startswith("web_search_")
    chat = translate(body, "request", source="openai-responses", target="openai-chat")
    assert "tool-dropped" in {loss.code for loss in chat.losses}
    assert json.loads(translate(body, "request", source="openai-responses", target="openai-responses").body) == body


SNIPPETS = {
    "anthropic": b"""event: content_block_start
data: {"type":"content_block_start","content_block":{"type":"tool_use","id":"call_123","name":"run_shell_command"}}

event: content_block_delta
data: {"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":"{\\"command\\":\\"ls -la\\"}"}}

event: content_block_stop
data: {"type":"content_block_stop"}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use"}}

""",
    "openai-responses": b"""data: {"type":"response.output_item.added","sequence_number":1,"output_index":0,"item":{"id":"fc_1","type":"function_call","status":"in_progress","arguments":"","call_id":"call_123","name":"run_shell_command"}}

event: response.function_call_arguments.delta
data: {"type":"response.function_call_arguments.delta","sequence_number":2,"item_id":"fc_1","output_index":0,"delta":"{\\"command\\":"}

data: {"type":"response.function_call_arguments.delta","sequence_number":3,"item_id":"fc_1","output_index":0,"delta":"\\"ls -la\\"}"}

data: {"type":"response.output_item.done","sequence_number":4,"output_index":0,"item":{"id":"fc_1","type":"function_call","status":"completed","arguments":"{\\"command\\":\\"ls -la\\"}","call_id":"call_123","name":"run_shell_command"}}

data: {"type":"response.completed","sequence_number":5,"response":{"id":"resp_1","status":"completed"}}

""",
    "openai-chat": b"""data: { "choices": [ { "delta": { "tool_calls": [ { "index": 0, "function": { "name": "run_shell_command" } } ] } } ] }

data: { "choices": [ { "delta": { "tool_calls": [ { "index": 0, "function": { "arguments": "{\\"command\\":\\"ls -la\\"}" } } ] } } ] }

data: { "choices": [ { "delta": { }, "finish_reason": "tool_calls" } ] }

""",
    "gemini": b"""data: { "candidates": [ { "content": { "role": "model", "parts": [ { "functionCall": { "id": "fc1", "name": "run_shell_command", "args": { "command": "ls -la" } } } ] }, "finishReason": "STOP" } ] }

""",
}


@pytest.mark.parametrize("source", SNIPPETS)
@pytest.mark.parametrize("target", ["openai-chat", "openai-responses", "anthropic", "gemini", "unified"])
def test_the_seeds_stream_snippets(source: str, target: str) -> None:
    stream = Stream(source=source, target=target)
    text = (stream.feed(SNIPPETS[source]) + stream.close()).decode()
    assert stream.failure is None
    assert "run_shell_command" in text
    assert "ls -la" in text


def test_the_lifecycle_of_seed_003() -> None:
    """created (with the tools) → added → deltas with item_id → arguments.done → item.done → completed with the output."""
    request = {
        "model": "gpt-4o-mini",
        "input": [{"role": "user", "content": "5+6?"}],
        "stream": True,
        "tools": [
            {
                "type": "function",
                "name": "calculate",
                "description": "c",
                "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}},
            }
        ],
    }
    start = '{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":5,"output_tokens":1}}}'
    blocks = [start]
    for number, block in enumerate(("toolu_01ABC123", "toolu_02")):
        blocks.append(
            f'{{"type":"content_block_start","index":{number},"content_block":{{"type":"tool_use","id":"{block}","name":"calculate","input":{{}}}}}}'
        )
        blocks += [
            json.dumps(
                {
                    "type": "content_block_delta",
                    "index": number,
                    "delta": {"type": "input_json_delta", "partial_json": piece},
                }
            )
            for piece in ('{"expression":"', "5+6", '"}')
        ]
        blocks.append(f'{{"type":"content_block_stop","index":{number}}}')
    blocks += [
        '{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":9}}',
        '{"type":"message_stop"}',
    ]
    stream = Stream(source="anthropic", target="openai-responses", request=request)
    raw = (
        stream.feed("".join(f"event: {json.loads(block)['type']}\ndata: {block}\n\n" for block in blocks).encode())
        + stream.close()
    )
    events = [json.loads(line[6:]) for line in raw.decode().splitlines() if line.startswith("data: ")]
    one = [
        "response.output_item.added",
        *["response.function_call_arguments.delta"] * 3,
        "response.function_call_arguments.done",
        "response.output_item.done",
    ]
    assert [event["type"] for event in events] == [
        "response.created",
        "response.in_progress",
        *one,
        *one,
        "response.completed",
    ]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[0]["response"]["tools"][0]["name"] == "calculate"
    assert events[0]["response"]["id"].startswith("resp_")
    added = events[2]["item"]
    assert added["id"].startswith("fc_")
    assert (added["arguments"], added["status"]) == ("", "in_progress")
    assert {event["item_id"] for event in events[3:7]} == {added["id"]}
    assert events[6]["arguments"] == '{"expression":"5+6"}'
    assert events[7]["item"] == {**added, "status": "completed", "arguments": '{"expression":"5+6"}'}
    assert events[-1]["response"]["output"] == [events[7]["item"], events[13]["item"]]
    assert added["call_id"] != events[8]["item"]["call_id"]


HISTORY = {
    "model": "m",
    "system": "Be brief.",
    "tools": [
        {
            "name": "read_file",
            "description": "Reads",
            "parameters": {
                "type": "object",
                "properties": {"absolute_path": {"type": "string", "description": "Where"}},
                "required": ["absolute_path"],
            },
        }
    ],
    "messages": [
        {"role": "user", "content": "Open README"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "rf_1", "name": "read_file", "arguments": {"absolute_path": "/abs/path/README.md"}}],
        },
        {"role": "tool", "results": [{"tool_call_id": "rf_1", "content": "# README"}]},
    ],
}

DO_AND_DONT = {
    "anthropic": [
        ("tools hold name and input_schema", lambda b: {"name", "input_schema"} <= set(b["tools"][0])),
        ("parameters keep their names", lambda b: "absolute_path" in b["tools"][0]["input_schema"]["properties"]),
        (
            "results are a new user message of tool_result",
            lambda b: b["messages"][-1]["role"] == "user" and b["messages"][-1]["content"][0]["type"] == "tool_result",
        ),
        (
            "ids agree",
            lambda b: b["messages"][-1]["content"][0]["tool_use_id"] == b["messages"][1]["content"][-1]["id"],
        ),
        ("instructions stand in system", lambda b: "Be brief." in json.dumps(b["system"])),
        ("no tool role", lambda b: {message["role"] for message in b["messages"]} == {"user", "assistant"}),
        (
            "no result in the assistant's turn",
            lambda b: all(block["type"] != "tool_result" for block in b["messages"][1]["content"]),
        ),
    ],
    "openai-responses": [
        (
            "calls are items with an argument string",
            lambda b: any(
                item.get("type") == "function_call" and isinstance(item["arguments"], str) for item in b["input"]
            ),
        ),
        (
            "results are function_call_output",
            lambda b: b["input"][-1]["type"] == "function_call_output" and b["input"][-1]["output"] == "# README",
        ),
        ("ids agree", lambda b: len({item["call_id"] for item in b["input"] if "call_id" in item}) == 1),
        ("tools are flat", lambda b: b["tools"][0]["type"] == "function" and b["tools"][0]["name"] == "read_file"),
        ("instructions", lambda b: b["instructions"] == "Be brief."),
        ("no tool role", lambda b: all(item.get("role") != "tool" for item in b["input"])),
    ],
    "openai-chat": [
        ("tools are wrapped", lambda b: set(b["tools"][0]) == {"type", "function"}),
        (
            "calls stand in tool_calls",
            lambda b: isinstance(b["messages"][2]["tool_calls"][0]["function"]["arguments"], str),
        ),
        (
            "results are a tool message",
            lambda b: (
                b["messages"][3]["role"] == "tool"
                and b["messages"][3]["tool_call_id"] == b["messages"][2]["tool_calls"][0]["id"]
            ),
        ),
        ("the system message comes first", lambda b: b["messages"][0] == {"role": "system", "content": "Be brief."}),
        ("no input", lambda b: "input" not in b),
        ("only function tools", lambda b: {tool["type"] for tool in b["tools"]} == {"function"}),
    ],
    "gemini": [
        (
            "declarations with a JSON schema",
            lambda b: "parametersJsonSchema" in b["tools"][0]["functionDeclarations"][0],
        ),
        ("calls are parts", lambda b: "functionCall" in b["contents"][1]["parts"][-1]),
        (
            "results come from the user's side",
            lambda b: (
                b["contents"][2]["role"] == "user"
                and b["contents"][2]["parts"][0]["functionResponse"]["response"] == {"output": "# README"}
            ),
        ),
        (
            "ids agree",
            lambda b: (
                b["contents"][2]["parts"][0]["functionResponse"].get("id")
                == b["contents"][1]["parts"][-1]["functionCall"].get("id")
            ),
        ),
        ("system instruction", lambda b: "Be brief." in json.dumps(b["systemInstruction"])),
        ("no messages", lambda b: "messages" not in b and "input" not in b),
        (
            "parameters keep their names",
            lambda b: b["contents"][1]["parts"][-1]["functionCall"]["args"] == {"absolute_path": "/abs/path/README.md"},
        ),
    ],
}


@pytest.mark.parametrize(
    ("target", "rule"),
    [(target, rule) for target, rules in DO_AND_DONT.items() for rule in rules],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_do_and_dont(target: str, rule: Any) -> None:
    assert rule[1](out(HISTORY, "unified", target))


PICTURE = {
    "model": "claude-sonnet-4-5",
    "max_tokens": 99,
    "messages": [
        {"role": "user", "content": "Look"},
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": "a1", "name": "read_file", "input": {}},
                {"type": "tool_use", "id": "a2", "name": "read_file", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "a1",
                    "content": [
                        {
                            "type": "image",
                            "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
                        }
                    ],
                },
                {"type": "tool_result", "tool_use_id": "a2", "content": "text"},
            ],
        },
    ],
}
SUMMARY = "Binary content of type image/png was processed."


def test_binary_results_in_chat_follow_the_whole_batch() -> None:
    messages = out(PICTURE, "anthropic", "openai-chat")["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool", "user"]
    assert messages[2]["content"] == SUMMARY
    assert messages[4]["content"][-1]["image_url"]["url"] == "data:image/png;base64,iVBORw0KGgo="


def test_binary_results_where_the_wire_can_carry_them() -> None:
    item = next(
        item
        for item in out(PICTURE, "anthropic", "openai-responses")["input"]
        if item.get("call_id") == "a1" and "output" in item
    )
    assert item["output"][0]["type"] == "input_image"
    old = out(PICTURE, "anthropic", "gemini", model="gemini-2.5-pro")["contents"][2]["parts"]
    assert old[0]["functionResponse"]["response"] == {"output": SUMMARY}
    assert any("inlineData" in part for part in old)
    new = out(PICTURE, "anthropic", "gemini", model="gemini-3.5-pro")["contents"][2]["parts"]
    assert new[0]["functionResponse"]["parts"][0]["inlineData"]["data"] == "iVBORw0KGgo="
    assert new[0]["functionResponse"]["response"] == {"output": SUMMARY}
    back = out(out(PICTURE, "anthropic", "openai-responses"), "openai-responses", "anthropic")
    assert back["messages"][2]["content"][0]["content"][0]["source"]["data"] == "iVBORw0KGgo="


@pytest.mark.parametrize("target", ["openai-chat", "openai-responses", "anthropic", "gemini", "unified"])
def test_binary_results_can_be_summarised_everywhere(target: str) -> None:
    result = translate(PICTURE, "request", source="anthropic", target=target, binary_results="summary")
    assert SUMMARY in result.body.decode()
    assert "iVBORw0KGgo=" not in result.body.decode()
    assert {loss.severity for loss in result.losses if loss.code.startswith("media-")} == {"changed"}
    assert "media-summarised" in {loss.code for loss in result.losses}
