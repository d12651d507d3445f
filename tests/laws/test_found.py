"""What mutating recorded traffic found, each once, so that it stays found."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolwire import Stream, translate

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
