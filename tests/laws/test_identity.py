"""Within one protocol a request passes as it came: it is only repaired where its provider is known to refuse it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from material import corpus, needs_corpus
from toolwire import translate

IMAGE = {"mimeType": "image/png", "data": "iVBORw0KGgo="}
USER, NEXT = {"role": "user", "content": "a"}, {"role": "user", "content": "b"}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CHAT_CALL = {"role": "assistant", "content": None, "tool_calls": [CALL]}
TOOL_USE = [{"type": "tool_use", "id": id, "name": "f", "input": {}} for id in ("t1", "t2")]


def anthropic(*messages: Any) -> Any:
    tools = [{"name": "f", "input_schema": {"type": "object", "properties": {}}}]
    return "anthropic", {"model": "claude-opus-4-6", "max_tokens": 9, "messages": [USER, *messages], "tools": tools}


def responses(*items: Any) -> Any:
    return "openai-responses", {"model": "gpt-5.5", "input": [USER, *items]}


def search(*pages: Any) -> Any:
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [*pages]}
    return {"role": "assistant", "content": [use, found, {"type": "text", "text": "done"}]}


def result_with(part: Any) -> Any:
    result = {"functionResponse": {"name": "f", "response": {"output": "x"}, "parts": [part]}}
    turns = [{"text": "a"}, {"functionCall": {"name": "f", "args": {}}}, result]
    return "gemini", {
        "contents": [{"role": r, "parts": [p]} for r, p in zip(("user", "model") * 2, turns, strict=False)]
    }


PAGE = {"type": "web_search_result", "url": "https://a.b", "title": "t", "encrypted_content": "EqgfCioIARgB"}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"}
SOUND = {"type": "input_audio", "input_audio": {"data": "aaaa", "format": "wav"}}
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}

CASES: dict[str, Any] = {
    "a search that found nothing": anthropic(search(), NEXT),
    "a search that found something": anthropic(search(PAGE), NEXT),
    "a result without content": anthropic(
        {"role": "assistant", "content": TOOL_USE[:1]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": []}]},
    ),
    "results in consecutive messages": anthropic(
        {"role": "assistant", "content": TOOL_USE},
        *[{"role": "user", "content": [{"type": "tool_result", "tool_use_id": id}]} for id in ("t1", "t2")],
    ),
    "an assistant's turn first": (
        "anthropic",
        {"model": "claude-opus-4-6", "max_tokens": 9, "messages": [{"role": "assistant", "content": "hi"}, NEXT]},
    ),
    "reasoning before the user's next message": responses(REASONING, NEXT),
    "reasoning between messages of the user": responses(REASONING, NEXT, REASONING, {**NEXT, "content": "c"}),
    "sound in a result": responses(
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": [SOUND]},
    ),
    "a search without sources": responses(
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "sources": []}},
        NEXT,
    ),
    "an image in a result": (
        "openai-chat",
        {
            "model": "gpt-5.5",
            "messages": [USER, CHAT_CALL, {"role": "tool", "tool_call_id": "c1", "content": [PICTURE]}],
        },
    ),
    "an image in a result of Gemini": result_with({"inlineData": {**IMAGE, "mimeType": "image/bmp"}}),
    "sound in a result of Gemini": result_with({"inlineData": {**IMAGE, "mimeType": "audio/wav"}}),
    "a file in a result of Gemini": result_with({"fileData": {"mimeType": "video/mp4", "fileUri": "gs://a/b"}}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("model", ["", "another-model"])
def test_what_the_provider_takes_passes_as_it_is(case: str, model: str) -> None:
    protocol, body = CASES[case]
    sent = translate(body, "request", source=protocol, target=protocol, **({"model": model} if model else {}))
    assert sent.json() == (body | {"model": model} if model and "model" in body else body)
    assert sent.losses == ()


def test_reasoning_at_the_very_end_is_refused_by_openai_and_left_out() -> None:
    protocol, body = responses(REASONING)
    sent = translate(body, "request", source=protocol, target=protocol)
    assert sent.json()["input"] == [USER]
    assert [loss.code for loss in sent.losses] == ["reasoning-dropped"]


def test_an_empty_text_is_refused_by_anthropic_and_reported() -> None:
    """Without a report the gateway would send the client's own bytes."""
    empty = {"type": "text", "text": ""}
    protocol, body = anthropic({"role": "assistant", "content": [empty, {"type": "text", "text": "x"}]}, NEXT)
    sent = translate(body, "request", source=protocol, target=protocol)
    assert empty not in sent.json()["messages"][1]["content"]
    assert [loss.code for loss in sent.losses] == ["empty-omitted"]


# --- a single value where Gemini allows a list ------------------------------------------------------------------------

LISTS = ("contents", "parts", "tools", "functionDeclarations", "stopSequences", "allowedFunctionNames")
GEMINI_BODY = {
    "systemInstruction": {"parts": [{"text": "be brief"}]},
    "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
    "tools": [{"functionDeclarations": [{"name": "f", "parameters": {"type": "OBJECT", "properties": {}}}]}],
    "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["f"]}},
    "generationConfig": {"stopSequences": ["END"]},
}
RESULT_BODY = {
    "contents": [
        {"role": "user", "parts": [{"text": "hi"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]},
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "f", "response": {"output": "x"}, "parts": [{"inlineData": IMAGE}]}}
            ],
        },
    ]
}


def with_single(value: Any, keys: frozenset[str]) -> Any:
    """The value with the only item of each of these lists in place of the list."""
    if isinstance(value, list):
        return [with_single(item, keys) for item in value]
    if not isinstance(value, dict):
        return value
    out = {key: with_single(child, keys) for key, child in value.items()}
    return {k: v[0] if k in keys and isinstance(v, list) and len(v) == 1 else v for k, v in out.items()}


@given(st.sampled_from([GEMINI_BODY, RESULT_BODY]), st.frozensets(st.sampled_from(LISTS)))
def test_a_single_value_is_a_list_of_one(body: Any, keys: frozenset[str]) -> None:
    single = with_single(body, keys)
    same = translate(single, "request", source="gemini", target="gemini")
    assert same.json() == single
    assert same.losses == ()
    for target in ("openai-chat", "openai-responses", "anthropic"):
        one, many = (translate(b, "request", source="gemini", target=target, model="m") for b in (single, body))
        assert one.json() == many.json()
        assert [loss.code for loss in one.losses] == [loss.code for loss in many.losses]


@pytest.mark.parametrize("target", ["openai-chat", "anthropic", "gemini"])
def test_a_single_part_in_an_answer_is_read(target: str) -> None:
    answer = {"candidates": [{"content": {"role": "model", "parts": {"text": "hello"}}, "finishReason": "STOP"}]}
    assert b"hello" in translate(answer, "response", source="gemini", target=target).body


# --- recordings -------------------------------------------------------------------------------------------------------


@needs_corpus
def test_what_providers_have_answered_is_sent_as_it_was() -> None:
    """With two repairs: ids that OpenAI finds too long, and results that belong to no call."""
    repairs = {"id-rewritten", "result-as-text", "result-added"}
    changed = []
    for recorded in corpus():
        if recorded.status != 200 or not isinstance(recorded.request, dict):
            continue
        name = recorded.protocol
        sent = translate(recorded.request, "request", source=name, target=name)
        if {loss.code for loss in sent.losses} - repairs or (not sent.losses and sent.json() != recorded.request):
            changed.append((recorded.name, json.dumps([loss.code for loss in sent.losses])))
    assert changed == []
