"""The adapter contract of seeds/000: calls out of an answer, results into the conversation, in each protocol's own shape."""

from __future__ import annotations

from typing import Any

import pytest

from toolwire import Malformed, ToolCall, ToolOutput, build_tool_results, parse_tool_calls

CHAT = {
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "call_xxx",
                        "type": "function",
                        "function": {"name": "get_weather", "arguments": '{"location":"Paris"}'},
                    }
                ],
            },
        }
    ]
}
RESPONSES = {
    "id": "resp_1",
    "object": "response",
    "status": "completed",
    "output": [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"},
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "call_123",
            "name": "get_weather",
            "arguments": '{"location":"Paris"}',
        },
    ],
}
CLAUDE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "stop_reason": "tool_use",
    "content": [
        {"type": "thinking", "thinking": "hm", "signature": "EqQB"},
        {"type": "text", "text": "Let me look."},
        {"type": "tool_use", "id": "toolu_abc", "name": "get_weather", "input": {"location": "Paris"}},
    ],
}
GEMINI = {
    "candidates": [
        {
            "content": {
                "role": "model",
                "parts": [
                    {"functionCall": {"name": "get_weather", "args": {"location": "Paris"}}, "thoughtSignature": "EpQB"}
                ],
            },
            "finishReason": "STOP",
        }
    ]
}
UNIFIED = {
    "id": "r",
    "model": "m",
    "message": {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "tw_x", "name": "get_weather", "arguments": {"location": "Paris"}}],
    },
    "stop_reason": "tool_calls",
    "usage": {"input_tokens": 1, "output_tokens": 1},
    "losses": [],
}

ANSWERS: dict[str, Any] = {
    "openai-chat": CHAT,
    "openai-responses": RESPONSES,
    "anthropic": CLAUDE,
    "gemini": GEMINI,
    "unified": UNIFIED,
}


@pytest.mark.parametrize("protocol", ANSWERS)
@pytest.mark.parametrize("strict", [False, True])
def test_calls_are_found(protocol: str, strict: bool) -> None:
    (call,) = parse_tool_calls(protocol, ANSWERS[protocol], strict=strict)
    assert call.name == "get_weather"
    assert call.input == {"location": "Paris"}
    assert call.id


def test_strict_demands_the_reason_that_the_default_does_not() -> None:
    stopped = {"choices": [{**CHAT["choices"][0], "finish_reason": "stop"}]}
    assert parse_tool_calls("openai-chat", stopped, strict=True) == []
    assert [call.id for call in parse_tool_calls("openai-chat", stopped)] == ["call_xxx"]
    ended = {**CLAUDE, "stop_reason": "end_turn"}
    assert parse_tool_calls("anthropic", ended, strict=True) == []
    assert len(parse_tool_calls("anthropic", ended)) == 1


def test_chat_goes_on_with_the_assistants_message_and_tool_messages() -> None:
    turns = build_tool_results("openai-chat", CHAT, [ToolOutput("call_xxx", '{"temperature":25}')])
    assert turns[0]["role"] == "assistant"
    assert turns[0]["tool_calls"] == CHAT["choices"][0]["message"]["tool_calls"]  # type: ignore[index]
    assert turns[1] == {"role": "tool", "tool_call_id": "call_xxx", "content": '{"temperature":25}'}


def test_responses_goes_on_with_the_prior_output_reasoning_included() -> None:
    turns = build_tool_results("openai-responses", RESPONSES, [ToolOutput("call_123", {"temperature": 25})])
    assert turns[:2] == RESPONSES["output"]
    assert turns[2] == {"type": "function_call_output", "call_id": "call_123", "output": '{"temperature":25}'}


def test_claude_goes_on_with_its_blocks_and_one_user_turn() -> None:
    turns = build_tool_results("anthropic", CLAUDE, [ToolOutput("toolu_abc", "no", is_error=True)])
    assert turns[0] == {"role": "assistant", "content": CLAUDE["content"]}
    assert turns[1] == {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "toolu_abc", "content": "no", "is_error": True}],
    }


def test_gemini_goes_on_with_its_parts_and_function_responses() -> None:
    (call,) = parse_tool_calls("gemini", GEMINI)
    turns = build_tool_results("gemini", GEMINI, [ToolOutput(call.id, {"temperature": 25})])
    assert turns[0] == {"role": "model", "parts": GEMINI["candidates"][0]["content"]["parts"]}  # type: ignore[index]
    assert turns[1] == {
        "role": "user",
        "parts": [{"functionResponse": {"name": "get_weather", "response": {"output": {"temperature": 25}}}}],
    }


def test_gemini_with_ids_answers_by_id() -> None:
    parts = [
        {"functionCall": {"id": "c1", "name": "f", "args": {}}},
        {"functionCall": {"id": "c2", "name": "f", "args": {}}},
    ]
    answer = {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]}
    turns = build_tool_results("gemini", answer, [ToolOutput("c1", "one"), ToolOutput("c2", "two", is_error=True)])
    assert [part["functionResponse"]["id"] for part in turns[1]["parts"]] == ["c1", "c2"]
    assert [part["functionResponse"]["response"] for part in turns[1]["parts"]] == [{"output": "one"}, {"error": "two"}]


def test_calls_alone_give_results_alone() -> None:
    calls = [ToolCall("toolu_1", "f", "{}"), ToolCall("toolu_2", "g", "{}")]
    turns = build_tool_results("anthropic", calls, [ToolOutput("toolu_1", "a"), ToolOutput("toolu_2", "b")])
    assert len(turns) == 1
    assert [block["tool_use_id"] for block in turns[0]["content"]] == ["toolu_1", "toolu_2"]


@pytest.mark.parametrize("protocol", ANSWERS)
@pytest.mark.parametrize("content", ["no such city", {"code": 7}, ""])
def test_a_failed_output_is_marked_in_every_protocol(protocol: str, content: Any) -> None:
    (call,) = parse_tool_calls(protocol, ANSWERS[protocol])
    failed = build_tool_results(protocol, [call], [ToolOutput(call.id, content, is_error=True)])
    assert failed != build_tool_results(protocol, [call], [ToolOutput(call.id, content)])
    marked = "[tool error]" in str(failed)
    assert marked == (protocol in ("openai-chat", "openai-responses"))
    assert [loss.code for loss in failed.losses] == ["error-marked"] * marked


def test_an_output_without_a_call_and_a_call_without_an_output_are_named() -> None:
    with pytest.raises(Malformed, match="wrong_id"):
        build_tool_results("openai-chat", CHAT, [ToolOutput("wrong_id", "x")])
    with pytest.raises(Malformed, match="call_xxx"):
        build_tool_results("openai-chat", CHAT, [])


def test_broken_arguments_keep_their_text() -> None:
    call = ToolCall("c", "f", '{"a": ')
    with pytest.raises(ValueError, match='"a"'):
        _ = call.input
