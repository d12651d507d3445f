"""Regressions that were found by mutating recorded traffic."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolwire import Stream, translate
from toolwire.core.events import PartStart, ResponseStart, StreamChecker
from toolwire.core.ir import Text
from toolwire.protocols import find_codec
from toolwire_conformance.peers import find_violations

CALL = {"functionCall": {"name": "f", "partialArgs": [{"jsonPath": "$", "stringValue": "x"}], "willContinue": True}}


def chat_with(schema: Any) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": "f", "description": "d", "parameters": schema}}]
    return {"model": "m", "messages": [{"role": "user", "content": "q"}], "tools": tools}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {}, "required": [{"a": 1}, ["b"], 3]},
        {"type": "object", "properties": 3.5, "required": ["a"]},
        {"type": "object", "properties": True, "required": ["a"]},
    ],
)
def test_demands_that_are_no_names(schema: Any) -> None:
    body = translate(chat_with(schema), "request", source="openai-chat", target="gemini", model="gemini-2.5-pro").json()
    assert "required" not in json.dumps(body["tools"])


def test_a_path_that_names_no_argument() -> None:
    stream = Stream(source="gemini", target="openai-chat")
    chunk = {"candidates": [{"content": {"role": "model", "parts": [CALL]}}]}
    stream.feed(f"data: {json.dumps(chunk)}\n\n".encode())
    stream.close()
    assert stream.failure is not None


def test_a_time_that_no_calendar_has() -> None:
    answer = {"id": "r", "object": "response", "created_at": 10**30, "model": "m", "status": "completed", "output": []}
    assert "createTime" not in translate(answer, "response", source="openai-responses", target="gemini").json()


def test_an_answer_that_was_cut_before_it_began() -> None:
    answer = {"candidates": [{"content": {"role": "model"}, "finishReason": "MAX_TOKENS"}]}
    request = {"model": "m", "input": "q", "reasoning": {"effort": "high"}}
    seen = translate(answer, "response", source="gemini", target="openai-responses", request=request).json()
    assert seen["status"] == "incomplete"


def test_the_result_of_a_freeform_call_is_of_its_kind() -> None:
    calls = [
        {"id": "c1", "type": "custom", "custom": {"name": "sql", "input": "SELECT 1"}},
        {"id": "c2", "type": "function", "function": {"name": "f", "arguments": "{}"}},
    ]
    results = [{"role": "tool", "tool_call_id": id, "content": "r"} for id in ("c1", "c2")]
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": None, "tool_calls": calls}, *results]
    sent = translate(
        {"model": "m", "messages": messages}, "request", source="openai-chat", target="openai-responses"
    ).json()
    kinds = [item["type"] for item in sent["input"] if "output" in item]
    assert kinds == ["custom_tool_call_output", "function_call_output"]


@pytest.mark.parametrize("target", ["openai-chat", "openai-responses"])
def test_json_is_asked_for_by_its_name(target: str) -> None:
    """These providers refuse the wish for JSON when nobody has said the word."""
    config = {"generationConfig": {"responseMimeType": "application/json"}}
    body = {"contents": [{"role": "user", "parts": [{"text": "Three colours?"}]}], **config}
    sent = translate(body, "request", source="gemini", target=target, model="gpt-4o")
    assert find_violations(target, sent.json()) == []
    assert "turn-added" in {loss.code for loss in sent.losses}


@pytest.mark.parametrize("model", ["claude-opus-5-5", "claude-sonnet-5-5", "claude-fable-5", "claude-opus-4-8"])
def test_a_request_that_goes_to_a_newer_model_than_it_named_suits_it(model: str) -> None:
    body = {
        "model": "claude-sonnet-4-5",
        "max_tokens": 4000,
        "temperature": 0.5,
        "thinking": {"type": "enabled", "budget_tokens": 2048},
        "messages": [{"role": "user", "content": "q"}],
        "tools": [{"name": "f", "input_schema": {"type": "object"}}],
    }
    sent = translate(body, "request", source="anthropic", target="anthropic", model=model)
    assert find_violations("anthropic", sent.json()) == []
    assert sent.json()["messages"] == body["messages"]
    assert translate(body, "request", source="anthropic", target="anthropic").json() == body


def test_an_item_that_is_done_without_being_there() -> None:
    created = {"type": "response.created", "sequence_number": 0, "response": {"id": "resp_1", "output": []}}
    done = {"type": "response.output_item.done", "sequence_number": 1, "output_index": 0}
    data = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in (created, done))
    stream = Stream(source="openai-responses", target="openai-responses")
    assert b"response.failed" in stream.feed(data.encode()) + stream.close()
    assert stream.failure is not None


@pytest.mark.parametrize(
    "target", ["openai-chat", "openai-responses", "anthropic", "gemini", "unified", "bedrock-converse"]
)
@pytest.mark.parametrize("index", [10**9, -1, 128])
def test_a_choice_that_nobody_asked_for_ends_the_stream(target: str, index: int) -> None:
    """A writer opens choices in their order: a billion of them is a hang."""
    chunk = {"candidates": [{"index": index, "content": {"role": "model", "parts": [{"text": "x"}]}}]}
    stream = Stream(source="gemini", target=target)
    stream.feed(f"data: {json.dumps(chunk)}\n\n".encode())
    stream.close()
    assert stream.failure is not None


@pytest.mark.parametrize("index", [127, 128, 1000])
def test_no_reader_makes_a_choice_that_the_checker_refuses(index: int) -> None:
    chunk = {"choices": [{"index": index, "delta": {"content": "x"}, "finish_reason": "stop"}]}
    reader, checker = find_codec("openai-chat").make_stream_reader(), StreamChecker()
    events = [*reader.feed(f"data: {json.dumps(chunk)}\n\n".encode()), *reader.close()]
    assert [fault for event in events if (fault := checker.check_event(event))] == []


def test_white_space_that_is_cut_off_is_told() -> None:
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "So: "}]
    sent = translate(
        {"model": "m", "messages": messages},
        "request",
        source="openai-chat",
        target="anthropic",
        model="claude-3-5-haiku-20241022",
    )
    assert sent.json()["messages"][-1]["content"] == "So:"
    assert "empty-omitted" in {loss.code for loss in sent.losses}


def test_the_checker_refuses_such_a_choice_whoever_reads_it() -> None:
    checker = StreamChecker()
    assert checker.check_event(ResponseStart()) is None
    assert checker.check_event(PartStart(0, Text(""), 10**9)) is not None


def test_a_time_without_end() -> None:
    body = b'{"id":"c","created":1e999,"choices":[{"index":0,"message":{"content":"x"},"finish_reason":"stop"}]}'
    assert translate(body, "response", source="openai-chat", target="anthropic").json()["content"][0]["text"] == "x"


def test_a_message_that_came_in_pieces_and_is_written_whole() -> None:
    """A stream where none was asked for, whose item never had a content of its own."""
    from toolwire.translation.exchange import Exchange

    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "in_progress"}
    whole = {"id": "resp_1", "object": "response", "model": "m", "output": [], "status": "completed"}
    events = [
        {"type": "response.created", "response": {**whole, "status": "in_progress"}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {
            "type": "response.content_part.added",
            "item_id": "msg_1",
            "output_index": 0,
            "content_index": 0,
            "part": {"type": "output_text", "text": "", "annotations": []},
        },
        {
            "type": "response.output_text.delta",
            "item_id": "msg_1",
            "output_index": 0,
            "content_index": 0,
            "delta": "Hello",
        },
        {"type": "response.completed", "response": whole},
    ]
    sse = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    own = find_codec("openai-responses")
    seen = Exchange(own, own).translate_streamed_response(sse.encode())
    assert seen.json()["output"][0]["content"][0]["text"] == "Hello"
