"""Seals go through a client of another protocol and back to their maker byte for byte, and to nobody else."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from toolwire import Stream, translate
from toolwire.core.envelopes import EMPTY_ENVELOPE, EnvelopeEntry, read_envelope, write_envelope
from toolwire.core.ir import Seal
from toolwire.translation import seals

CLAUDE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-opus-5-5",
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 1},
    "content": [
        {"type": "thinking", "thinking": "Need both.", "signature": "EqQB+/sig=="},
        {"type": "redacted_thinking", "data": "EmwKhidden"},
        {"type": "text", "text": "Two calls."},
        {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1}},
        {"type": "tool_use", "id": "toolu_2", "name": "f", "input": {"a": 2}},
    ],
}
GEMINI = {
    "candidates": [
        {
            "index": 0,
            "finishReason": "STOP",
            "content": {
                "role": "model",
                "parts": [
                    {"text": "Planning.", "thought": True},
                    {
                        "functionCall": {"id": "c1", "name": "f", "args": {"a": 1}},
                        "thoughtSignature": "EpQBCpEBAXLI2nw=",
                    },
                    {"functionCall": {"id": "c2", "name": "f", "args": {"a": 2}}},
                ],
            },
        }
    ],
    "modelVersion": "gemini-3.8-flash",
    "responseId": "r1",
    "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
}
RESPONSES = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "gpt-5.6",
    "status": "completed",
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "output": [
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "Both."}],
            "encrypted_content": "gAAAAsecret",
        },
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "call_1",
            "name": "f",
            "arguments": '{"a":1}',
            "status": "completed",
        },
        {
            "type": "function_call",
            "id": "fc_2",
            "call_id": "call_2",
            "name": "f",
            "arguments": '{"a":2}',
            "status": "completed",
        },
    ],
    "usage": {
        "input_tokens": 1,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 1,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 2,
    },
}
CONVERSE = {
    "output": {
        "message": {
            "role": "assistant",
            "content": [
                {"reasoningContent": {"reasoningText": {"text": "Need both.", "signature": "EqQBconverse=="}}},
                {"reasoningContent": {"redactedContent": "aGlkZGVu"}},
                {"text": "Two calls."},
                {"toolUse": {"toolUseId": "tooluse_1", "name": "f", "input": {"a": 1}}},
                {"toolUse": {"toolUseId": "tooluse_2", "name": "f", "input": {"a": 2}}},
            ],
        }
    },
    "stopReason": "tool_use",
    "usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2},
    "metrics": {"latencyMs": 1},
}

MAKERS: dict[str, tuple[Any, list[str]]] = {
    "anthropic": (CLAUDE, ["EqQB+/sig==", "EmwKhidden"]),
    "gemini": (GEMINI, ["EpQBCpEBAXLI2nw="]),
    "openai-responses": (RESPONSES, ["gAAAAsecret"]),
    "bedrock-converse": (CONVERSE, ["EqQBconverse==", "aGlkZGVu"]),
}
CLIENTS = ["anthropic", "gemini", "openai-responses", "unified", "bedrock-converse"]
MODELS = {
    "anthropic": "claude-opus-5-5",
    "gemini": "gemini-3.8-flash",
    "openai-responses": "gpt-5.6",
    "openai-chat": "gpt-4o",
    "unified": "m",
    "bedrock-converse": "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer", "description": "A"}}}

TOOLS: dict[str, Any] = {
    "anthropic": {"max_tokens": 99, "tools": [{"name": "f", "description": "d", "input_schema": SCHEMA}]},
    "gemini": {
        "tools": [{"functionDeclarations": [{"name": "f", "description": "d", "parametersJsonSchema": SCHEMA}]}]
    },
    "openai-responses": {
        "tools": [{"type": "function", "name": "f", "description": "d", "parameters": SCHEMA, "strict": False}]
    },
    "unified": {"tools": [{"name": "f", "description": "d", "parameters": SCHEMA}]},
    "bedrock-converse": {
        "toolConfig": {"tools": [{"toolSpec": {"name": "f", "description": "d", "inputSchema": {"json": SCHEMA}}}]}
    },
}


def first_request(client: str) -> dict[str, Any]:
    question: dict[str, Any] = {
        "anthropic": {"messages": [{"role": "user", "content": "q"}]},
        "gemini": {"contents": [{"role": "user", "parts": [{"text": "q"}]}]},
        "openai-responses": {"input": [{"type": "message", "role": "user", "content": "q"}]},
        "unified": {"messages": [{"role": "user", "content": "q"}]},
        "bedrock-converse": {"messages": [{"role": "user", "content": [{"text": "q"}]}]},
    }[client]
    model = {} if client in ("gemini", "bedrock-converse") else {"model": "m"}
    return {**model, **TOOLS[client], **question}


def write_next_request(client: str, request: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """The client's next request: what it was given, as its SDK echoes it, and the results."""
    request = json.loads(json.dumps(request))
    if client == "anthropic":
        calls = [block["id"] for block in answer["content"] if block["type"] == "tool_use"]
        request["messages"] += [
            {"role": "assistant", "content": answer["content"]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": "ok"} for id in calls]},
        ]
    elif client == "gemini":
        parts = answer["candidates"][0]["content"]["parts"]
        kept = [encode_again(part) for part in parts if not part.get("thought")]  # agents do not send thoughts back
        calls = [part["functionCall"] for part in parts if "functionCall" in part]
        request["contents"] += [
            {"role": "model", "parts": kept},
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"id": call["id"], "name": call["name"], "response": {"output": "ok"}}}
                    for call in calls
                ],
            },
        ]
    elif client == "openai-responses":
        calls = [item["call_id"] for item in answer["output"] if item["type"] == "function_call"]
        request["input"] += [
            *answer["output"],
            *({"type": "function_call_output", "call_id": id, "output": "ok"} for id in calls),
        ]
    elif client == "bedrock-converse":
        message = answer["output"]["message"]
        calls = [block["toolUse"]["toolUseId"] for block in message["content"] if "toolUse" in block]
        results = [{"toolResult": {"toolUseId": id, "content": [{"text": "ok"}]}} for id in calls]
        request["messages"] += [message, {"role": "user", "content": results}]
    else:
        message = answer["message"]
        request["messages"] += [
            message,
            {
                "role": "tool",
                "results": [{"tool_call_id": call["id"], "content": "ok"} for call in message["tool_calls"]],
            },
        ]
    return request


def encode_again(part: dict[str, Any]) -> dict[str, Any]:
    """The Python SDK decodes signatures and encodes them in the other alphabet."""
    if "thoughtSignature" not in part:
        return part
    data = base64.b64decode(part["thoughtSignature"] + "==", altchars=b"-_")
    return {**part, "thoughtSignature": base64.urlsafe_b64encode(data).decode()}


def seals_in(body: Any) -> list[str]:
    keys = ("signature", "thoughtSignature", "encrypted_content", "data", "redactedContent")
    found = []
    if isinstance(body, dict):
        found += [value for key, value in body.items() if key in keys and isinstance(value, str)]
        body = list(body.values())
    return found + [seal for child in body for seal in seals_in(child)] if isinstance(body, list) else found


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_seal_comes_back_to_its_maker_and_to_nobody_else(maker: str, client: str) -> None:
    answer, made = MAKERS[maker]
    request = first_request(client)
    seen = translate(answer, "response", source=maker, target=client, request=request, model=MODELS[maker]).json()
    again = write_next_request(client, request, seen)
    back = translate(again, "request", source=client, target=maker, model=MODELS[maker]).json()
    assert [seal for seal in seals_in(back) if seal in made] == made
    for other, model in MODELS.items():
        if other != maker and other != client:
            there = translate(again, "request", source=client, target=other, model=model)
            assert not set(seals_in(there.json())) & set(made), other
            assert not any(read_envelope(seal) for seal in seals_in(there.json())), other
            assert client == "unified" or "seal-dropped" in {loss.code for loss in there.losses}, other


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("client", [client for client in CLIENTS if client != "unified"])
def test_thinking_stands_where_its_maker_put_it(maker: str, client: str) -> None:
    answer, _ = MAKERS[maker]
    request = first_request(client)
    seen = translate(answer, "response", source=maker, target=client, request=request, model=MODELS[maker]).json()
    back = translate(
        write_next_request(client, request, seen), "request", source=client, target=maker, model=MODELS[maker]
    ).json()
    if maker == "anthropic":
        assert [block["type"] for block in back["messages"][1]["content"]] == [
            "thinking",
            "redacted_thinking",
            "text",
            "tool_use",
            "tool_use",
        ]
        assert back["messages"][1]["content"][0] == CLAUDE["content"][0]  # type: ignore[index]
    elif maker == "bedrock-converse":
        assert back["messages"][1] == CONVERSE["output"]["message"]  # type: ignore[index]
    elif maker == "openai-responses":
        kinds = [item["type"] for item in back["input"] if item["type"] != "message"]
        assert kinds[:3] == ["reasoning", "function_call", "function_call"]
    else:
        calls = [part for part in back["contents"][1]["parts"] if "functionCall" in part]
        assert calls[0]["thoughtSignature"] == "EpQBCpEBAXLI2nw="
        assert "thoughtSignature" not in calls[1]


def test_an_envelope_survives_and_nothing_else_is_one() -> None:
    entry = EnvelopeEntry("reasoning", "anthropic", "sig+/=", "text ü", "raw", True, "id")
    assert read_envelope(write_envelope([entry])) == [entry]
    for other in ("", "EqQB", "dG9vbHdpcmU6", "dG9vbHdpcmU6!!!", write_envelope([entry])[:-5]):
        assert read_envelope(other) is None


def test_reasoning_that_was_made_up_for_the_client_never_reaches_a_provider() -> None:
    assert write_envelope([]) == EMPTY_ENVELOPE
    request = {**first_request("openai-responses"), "reasoning": {"effort": "high", "summary": "auto"}}
    answer = {**CLAUDE, "content": CLAUDE["content"][3:]}  # type: ignore[index]
    seen = translate(answer, "response", source="anthropic", target="openai-responses", request=request).json()
    assert [item["type"] for item in seen["output"]] == ["reasoning", "function_call", "function_call"]
    again = write_next_request("openai-responses", request, seen)
    for target in ("openai-responses", "anthropic", "openai-chat"):
        sent = translate(again, "request", source="openai-responses", target=target, model=MODELS[target])
        assert "reasoning" not in {item.get("type") for item in sent.json().get("input", [])}
        assert EMPTY_ENVELOPE not in sent.body.decode()


def test_makers_agree_in_what_both_of_them_tell() -> None:
    seal = Seal("anthropic/team/acct/opus", "v")
    assert seals.is_made_by(seal, "anthropic")
    assert seals.is_made_by(seal, "anthropic/team/acct/opus")
    assert not seals.is_made_by(seal, "anthropic/home")
    assert not seals.is_made_by(seal, "gemini")


def test_a_chat_client_is_told_that_a_seal_has_no_slot() -> None:
    result = translate(GEMINI, "response", source="gemini", target="openai-chat")
    assert "seal-dropped" in {loss.code for loss in result.losses}


@pytest.mark.parametrize("client", ["anthropic", "openai-responses"])
def test_a_stream_carries_the_same_seals_as_the_whole(client: str) -> None:
    request = first_request(client)
    stream = Stream(source="gemini", target=client, request=request)
    out = (stream.feed(f"data: {json.dumps(GEMINI)}\n\n".encode()) + stream.close()).decode()
    whole = translate(GEMINI, "response", source="gemini", target=client, request=request).body.decode()
    letter = next(seal for seal in seals_in(json.loads(whole)) if read_envelope(seal))
    assert letter in out


TEXT = {
    "candidates": [
        {
            "index": 0,
            "finishReason": "STOP",
            "content": {
                "role": "model",
                "parts": [{"text": "It rains."}, {"text": "", "thoughtSignature": "EpQBtext"}],
            },
        }
    ],
    "modelVersion": "gemini-3.8-flash",
    "responseId": "r2",
}


@pytest.mark.parametrize("client", ["anthropic", "openai-responses", "unified"])
def test_the_seal_of_a_text_stays_with_its_turn(client: str) -> None:
    """It must not wander to what the model says next."""
    request = first_request(client)
    seen = translate(TEXT, "response", source="gemini", target=client, request=request).json()
    again = json.loads(json.dumps(request))
    if client == "anthropic":
        again["messages"] += [{"role": "assistant", "content": seen["content"]}, {"role": "user", "content": "and?"}]
        again["messages"] += [{"role": "assistant", "content": "Still."}, {"role": "user", "content": "ok"}]
    elif client == "openai-responses":
        again["input"] += [*seen["output"], {"role": "user", "content": "and?"}]
        again["input"] += [{"role": "assistant", "content": "Still."}, {"role": "user", "content": "ok"}]
    else:
        again["messages"] += [seen["message"], {"role": "user", "content": "and?"}]
        again["messages"] += [{"role": "assistant", "content": "Still."}, {"role": "user", "content": "ok"}]
    back = translate(again, "request", source=client, target="gemini", model="gemini-3.8-flash").json()
    first, second = [content["parts"] for content in back["contents"] if content["role"] == "model"]
    assert "EpQBtext" in json.dumps(first)
    assert "".join(part["text"] for part in first) == "It rains."
    assert second == [{"text": "Still."}]
