"""The strict checks fire on what each provider refuses, and are silent on what it takes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from material import CORPUS, needs_corpus
from toolwire_conformance.peers import find_violations

Object = dict[str, Any]
SAMPLES = Path(__file__).parents[1] / "samples"

OBJECT: Object = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def user(text: str = "Weather in Paris?") -> Object:
    return {"role": "user", "content": text}


# --- Anthropic ------------------------------------------------------------------------------------------------------

A_TOOL: Object = {"name": "get_weather", "input_schema": OBJECT}
A_CALL: Object = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Paris"}}
A_RESULT: Object = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "15 °C"}
A_PAUSED: Object = {
    "role": "assistant",
    "content": [{"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}],
}


def anthropic_request(*messages: Object, **fields: Any) -> Object:
    body = {"model": "claude-sonnet-4-5", "max_tokens": 100, "messages": list(messages) or [user()], **fields}
    return {key: value for key, value in body.items() if value is not None}


def anthropic_turns(call: Object | None = None, *results: Object, **fields: Any) -> Object:
    calls, answers = [{**A_CALL, **(call or {})}], list(results) or [A_RESULT]
    return anthropic_request(
        user(), {"role": "assistant", "content": calls}, {"role": "user", "content": answers}, **fields
    )


ANTHROPIC: list[tuple[Object, str]] = [
    (anthropic_request(temp=1), "temp: unknown"),
    (anthropic_turns(), "must define tools"),
    (anthropic_request(max_tokens=None), "max_tokens: Field required"),
    (anthropic_request(model=None), "model: Field required"),
    (anthropic_request(metadata={"user": "x"}), "metadata.user"),
    (anthropic_request(stop_sequences=["\n"]), "stop sequence"),
    (anthropic_request(system=[{"type": "text", "text": ""}]), "system.0: text content blocks must be non-empty"),
    (anthropic_request(model="claude-opus-4-7", temperature=0.2), "temperature: not supported"),
    (anthropic_request(thinking={"type": "enabled", "budget_tokens": 10}), "budget_tokens"),
    (anthropic_request(thinking={"type": "enabled", "budget_tokens": 2000}), "max_tokens must be greater"),
    (anthropic_request(model="claude-opus-5-5", thinking={"type": "disabled"}), "disabled"),
    (
        anthropic_request(
            model="claude-opus-4-8", thinking={"type": "enabled", "budget_tokens": 2000}, max_tokens=9000
        ),
        "enabled",
    ),
    (anthropic_request({"role": "assistant", "content": "Hi"}, user(), model="claude-sonnet-4"), "first message"),
    (anthropic_request(user(), {"role": "assistant", "content": "So "}), "trailing whitespace"),
    (anthropic_request(user(), {"role": "assistant", "content": "So"}, model="claude-opus-4-6"), "prefill"),
    (anthropic_request({"role": "tool", "content": "x"}), "role: Input should be"),
    (anthropic_request({"role": "system", "content": "x"}, user(), model="claude-opus-5"), "top-level 'system'"),
    (anthropic_request(user(), {"role": "system", "content": "x"}), "not supported on this model"),
    (
        anthropic_request(user(), {"role": "system", "content": "x"}, user(), model="claude-opus-5"),
        "followed by an assistant",
    ),
    (anthropic_request({"role": "user", "content": []}), "non-empty content"),
    (anthropic_request({"role": "user", "content": [{"type": "text", "text": ""}]}), "must be non-empty"),
    (anthropic_request({"role": "user", "content": [{"type": "text", "text": " \n"}]}), "non-whitespace"),
    (
        anthropic_request({"role": "user", "content": [{"type": "image_url", "image_url": {}}]}),
        "not permitted for role",
    ),
    (
        anthropic_request(
            {"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/bmp"}}]}
        ),
        "media",
    ),
    (anthropic_turns({"id": "functions.Bash:0"}), "tool_use.id: String should match pattern"),
    (anthropic_turns({"name": "a.b"}), "tool_use.name"),
    (anthropic_turns({"input": "{}"}), "valid dictionary"),
    (anthropic_turns({"id": "toolu_2"}), "without `tool_result`"),
    (anthropic_turns(None, {**A_RESULT, "tool_use_id": "toolu_9"}), "unexpected `tool_use_id`"),
    (anthropic_turns(None, A_RESULT, A_RESULT), "single result"),
    (anthropic_turns(None, {"type": "text", "text": "and"}, A_RESULT), "must come first"),
    (anthropic_turns(None, {**A_RESULT, "content": [{"type": "text", "text": ""}]}), "must be non-empty"),
    (anthropic_turns(None, {**A_RESULT, "content": [{"type": "input_text", "text": "x"}]}), "does not match"),
    (anthropic_turns(None, {**A_RESULT, "name": "x"}), "Extra inputs"),
    (
        anthropic_request(
            user(), {"role": "assistant", "content": [A_CALL, A_CALL]}, {"role": "user", "content": [A_RESULT]}
        ),
        "must be unique",
    ),
    (anthropic_request(user(), {"role": "assistant", "content": [A_CALL]}, user("Go on")), "without `tool_result`"),
    (
        anthropic_request(
            user(),
            {"role": "assistant", "content": [A_CALL, {**A_CALL, "id": "toolu_2"}]},
            {"role": "user", "content": [A_RESULT]},
            user("And?"),
            {"role": "user", "content": [{**A_RESULT, "tool_use_id": "toolu_2"}]},
        ),
        "must come first",
    ),
    (
        anthropic_request(user(), {"role": "assistant", "content": [{"type": "thinking", "thinking": "x"}]}, user()),
        "signature",
    ),
    (
        anthropic_turns(thinking={"type": "enabled", "budget_tokens": 2000}, max_tokens=9000),
        "Expected `thinking`",
    ),
    (anthropic_request(tools=[{"name": "a b", "input_schema": OBJECT}]), "name: String should match"),
    (anthropic_request(tools=[A_TOOL, A_TOOL]), "must be unique"),
    (anthropic_request(tools=[{"name": "x"}]), "input_schema: Field required"),
    (anthropic_request(tools=[{"name": "x", "input_schema": {}}]), "Input should be 'object'"),
    (
        anthropic_request(tools=[{"name": "x", "input_schema": {"type": "object", "anyOf": []}}]),
        "anyOf at the top level",
    ),
    (
        anthropic_request(tools=[{"name": "x", "input_schema": {"type": "object", "properties": {"$a": {}}}}]),
        "Property keys",
    ),
    (anthropic_request(tools=[{**A_TOOL, "strict": True}]), "additionalProperties"),
    (anthropic_request(tools=[{**A_TOOL, "parameters": {}}]), "custom.parameters: unknown"),
    (
        anthropic_request(tools=[{"type": "web_search", "name": "web_search"}]),
        "does not match any of the expected tags",
    ),
    (anthropic_request(tools=[{**A_TOOL, "defer_loading": True}]), "At least one tool"),
    (anthropic_request(tool_choice={"type": "auto"}), "only be specified while providing tools"),
    (anthropic_request(tools=[A_TOOL], tool_choice={"type": "function"}), "tool_choice: Input tag"),
    (anthropic_request(tools=[A_TOOL], tool_choice={"type": "tool", "name": "x"}), "not found"),
    (
        anthropic_request(tools=[A_TOOL], tool_choice={"type": "none", "disable_parallel_tool_use": True}),
        "unknown parameter",
    ),
    (
        anthropic_request(tools=[A_TOOL], tool_choice={"type": "any"}, model="claude-opus-5-5"),
        "not supported for this model",
    ),
    (
        anthropic_request(
            tools=[A_TOOL],
            tool_choice={"type": "any"},
            thinking={"type": "enabled", "budget_tokens": 1024},
            max_tokens=9000,
        ),
        "Thinking may not be enabled",
    ),
    (
        anthropic_request(system=[{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}] * 5),
        "maximum of 4",
    ),
    (
        anthropic_request(output_config={"format": {"type": "json_schema", "schema": {"type": "object"}}}),
        "additionalProperties",
    ),
]

# --- Gemini ---------------------------------------------------------------------------------------------------------

G_CALL: Object = {"functionCall": {"id": "c1", "name": "get_weather", "args": {"city": "Paris"}}}
G_SIGNED: Object = {**G_CALL, "thoughtSignature": "c2lnbmF0dXJl"}
G_RESULT: Object = {"functionResponse": {"id": "c1", "name": "get_weather", "response": {"output": "15 °C"}}}


def gemini_user(*parts: Object) -> Object:
    return {"role": "user", "parts": list(parts) or [{"text": "Weather in Paris?"}]}


def gemini_request(*contents: Object, **fields: Any) -> Object:
    return {"contents": list(contents) or [gemini_user()], **fields}


def gemini_model(*parts: Object) -> Object:
    return {"role": "model", "parts": list(parts)}


def gemini_tool(**fields: Any) -> list[Object]:
    return [{"functionDeclarations": [{"name": "get_weather", **fields}]}]


def gemini_result(**fields: Any) -> Object:
    return {"functionResponse": {**G_RESULT["functionResponse"], **fields}}


GEMINI: list[tuple[Object, str]] = [
    (gemini_request(max_tokens=1), "maxTokens"),
    ({"contents": []}, "contents is not specified"),
    (gemini_request(generationConfig={"max_tokens": 1}), "maxTokens"),
    (gemini_request(generationConfig={"thinkingConfig": {"thinkingLevel": "LOW", "thinkingBudget": 0}}), "not both"),
    (gemini_request(generationConfig={"stopSequences": list("abcdef")}), "at most 5"),
    (gemini_request(generationConfig={"responseJsonSchema": {}}), "response_mime_type"),
    (gemini_request({"role": "tool", "parts": [{"text": "x"}]}), "valid role"),
    (gemini_request({"role": "user", "parts": []}), "must not be empty"),
    (gemini_request(gemini_user({"text": "x", "functionCall": {}})), "oneof field 'data'"),
    (gemini_request(gemini_user({"text": "x", "type": "text"})), 'Unknown name "type"'),
    (
        gemini_request(gemini_user(), gemini_model({"text": "x", "thoughtSignature": "no base64!"}), gemini_user()),
        "Base64",
    ),
    (
        gemini_request(gemini_user(), gemini_model({"functionCall": {"name": "x", "args": []}}), gemini_user(G_RESULT)),
        "args",
    ),
    (
        gemini_request(gemini_user(), gemini_model(G_SIGNED), gemini_user(gemini_result(name=""))),
        "Name cannot be empty",
    ),
    (
        gemini_request(gemini_user(), gemini_model(G_SIGNED), gemini_user(gemini_result(response="text"))),
        "must be an object",
    ),
    (
        gemini_request(gemini_user(), gemini_model(G_SIGNED), gemini_user(gemini_result(id="other"))),
        "does not match functionCall.id",
    ),
    (gemini_request(gemini_user(), gemini_model(G_SIGNED), gemini_user(gemini_result(name="other"))), "other names"),
    (
        gemini_request(gemini_user(), gemini_model(G_SIGNED), gemini_user(G_RESULT, G_RESULT)),
        "number of function response parts",
    ),
    (gemini_request(gemini_user(), gemini_model(G_SIGNED), gemini_user()), "number of function response parts"),
    (gemini_request(gemini_user(), gemini_model(G_SIGNED)), "without responses"),
    (gemini_request(gemini_model(G_SIGNED), gemini_user(G_RESULT)), "immediately after a user turn"),
    (gemini_request(gemini_user(), gemini_model(G_CALL), gemini_user(G_RESULT)), "missing a `thought_signature`"),
    (gemini_request(tools=gemini_tool(name="1c")), "Invalid function name"),
    (gemini_request(tools=gemini_tool(strict=True)), 'Unknown name "strict"'),
    (gemini_request(tools=gemini_tool(parameters=OBJECT, parametersJsonSchema=OBJECT)), "exclusive"),
    (gemini_request(tools=gemini_tool(parameters={"type": ["object", "null"]})), "cannot start list"),
    (
        gemini_request(tools=gemini_tool(parameters={**OBJECT, "additionalProperties": False})),
        'Unknown name "additionalProperties"',
    ),
    (gemini_request(tools=gemini_tool(parameters={**OBJECT, "required": ["town"]})), "property is not defined"),
    (
        gemini_request(
            tools=gemini_tool(parameters={"type": "object", "properties": {"n": {"type": "integer", "enum": [1]}}})
        ),
        "STRING",
    ),
    (
        gemini_request(tools=gemini_tool(parameters={"type": "object", "properties": {"n": {"type": "array"}}})),
        "items: missing",
    ),
    (
        gemini_request(
            tools=gemini_tool(parametersJsonSchema={"type": "object", "properties": {"n": {"$ref": "#/$defs/x"}}})
        ),
        "undefined",
    ),
    (gemini_request(tools=[{**gemini_tool()[0], "googleSearch": {}}]), "more than one initialized field"),
    (gemini_request(tools=[*gemini_tool(), {"googleSearch": {}}]), "include_server_side_tool_invocations"),
    (gemini_request(tools=[*gemini_tool(), *gemini_tool()]), "Duplicate function"),
    (gemini_request(toolConfig={"functionCallingConfig": {"mode": "ANY"}}), "without function_declarations"),
    (
        gemini_request(
            tools=gemini_tool(), toolConfig={"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["x"]}}
        ),
        "not declared",
    ),
    (
        gemini_request(
            tools=gemini_tool(),
            toolConfig={"functionCallingConfig": {"mode": "AUTO", "allowedFunctionNames": ["get_weather"]}},
        ),
        "only when the mode is ANY",
    ),
]

# --- Chat -----------------------------------------------------------------------------------------------------------

C_TOOL: Object = {"type": "function", "function": {"name": "get_weather", "parameters": OBJECT}}
C_CALL: Object = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
C_RESULT: Object = {"role": "tool", "tool_call_id": "call_1", "content": "15 °C"}


def chat_request(*messages: Object, **fields: Any) -> Object:
    return {"model": "gpt-4.1", "messages": list(messages) or [user()], **fields}


def chat_turns(call: Object | None = None, *rest: Object) -> Object:
    return chat_request(
        user(), {"role": "assistant", "tool_calls": [{**C_CALL, **(call or {})}]}, *(rest or (C_RESULT,))
    )


def chat_function(**fields: Any) -> list[Object]:
    return [{"type": "function", "function": {**C_TOOL["function"], **fields}}]


CHAT: list[tuple[Object, str]] = [
    (chat_request(system="x"), "system: unknown"),
    ({"model": "gpt-4.1", "messages": []}, "at least one message"),
    (chat_request(stream_options={"include_usage": True}), "stream_options"),
    (chat_request(tool_choice="auto"), "'tool_choice' is only allowed"),
    (chat_request(parallel_tool_calls=False), "'parallel_tool_calls' is only allowed"),
    (chat_request(tools=[]), "too short"),
    (chat_request(stop=list("abcde")), "stop"),
    (chat_request(max_tokens=1, max_completion_tokens=1), "at the same time"),
    (chat_request(model="gpt-5.2", max_tokens=1), "max_completion_tokens"),
    (chat_request(model="gpt-5.5", reasoning_effort="high", tools=[C_TOOL]), "/v1/responses"),
    (chat_request({"role": "model", "content": "x"}), "role: Invalid value"),
    (chat_request({"role": "user", "content": None}), "got null"),
    (chat_request({"role": "assistant", "content": "x", "tool_calls": []}), "too short"),
    (chat_request({"role": "user", "content": [{"type": "input_text", "text": "x"}]}), "Invalid value: 'input_text'"),
    (chat_turns(None, {**C_RESULT, "content": [{"type": "image_url", "image_url": {"url": "x"}}]}), "'image_url'"),
    (chat_turns({"id": "x" * 41}, {**C_RESULT, "tool_call_id": "x" * 41}), "maximum length 40"),
    (chat_turns({"function": {"name": "get_weather", "arguments": {}}}), "arguments: expected a string"),
    (chat_turns({"function": {"name": "a.b", "arguments": "{}"}}), "name: expected a string that matches"),
    (chat_turns(None, user("Go on")), "must be followed by tool messages"),
    (chat_turns({"id": "call_2"}), "must be a response to a preceding message"),
    (chat_request(C_RESULT), "must be a response to a preceding message"),
    (chat_request(user(), {"role": "assistant", "tool_calls": [C_CALL]}), "not answered"),
    (chat_request(tools=[C_TOOL] * 129), "array too long"),
    (chat_request(tools=[{"type": "web_search"}]), "tools[0].type"),
    (chat_request(tools=[{"type": "function", "name": "x"}]), "Missing required parameter"),
    (chat_request(tools=chat_function(name="a.b")), "does not match"),
    (chat_request(tools=chat_function(parameters={})), "schema must be a JSON Schema"),
    (chat_request(tools=chat_function(strict=True)), "additionalProperties"),
    (chat_request(tools=chat_function(defer_loading=True)), "defer_loading: unknown"),
    (chat_request(tools=[C_TOOL], tool_choice={"type": "tool", "name": "x"}), "tool_choice: Invalid value"),
    (chat_request(tools=[C_TOOL], tool_choice={"type": "function", "function": {"name": "x"}}), "not found in 'tools'"),
    (chat_request(response_format={"type": "json_object"}), "the word 'json'"),
    (chat_request(response_format={"type": "json_schema", "json_schema": {"schema": {}}}), "name"),
]

# --- Responses ------------------------------------------------------------------------------------------------------

R_TOOL: Object = {"type": "function", "name": "get_weather", "parameters": OBJECT, "strict": False}
R_CALL: Object = {"type": "function_call", "call_id": "call_1", "name": "get_weather", "arguments": "{}"}
R_RESULT: Object = {"type": "function_call_output", "call_id": "call_1", "output": "15 °C"}
R_THOUGHT: Object = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}


def responses_request(*items: Object, **fields: Any) -> Object:
    return {"model": "gpt-5.5", "input": list(items) or [user()], **fields}


RESPONSES: list[tuple[Object, str]] = [
    (responses_request(messages=[]), "messages: unknown"),
    (responses_request(stop=["x"]), "stop: unknown"),
    ({"model": "gpt-5.5"}, "input: Missing"),
    (responses_request(max_output_tokens=5), "below minimum"),
    (responses_request(include=["thoughts"]), "include"),
    (responses_request(stream_options={"include_usage": True}), "stream_options.include_usage"),
    (responses_request(reasoning={"budget": 1}), "reasoning.budget"),
    (responses_request({"role": "user"}), "Missing required parameter: 'input[0].content'"),
    (responses_request({"role": "tool", "content": "x"}), "role: Invalid value"),
    (responses_request({"role": "user", "content": [{"type": "text", "text": "x"}]}), "Invalid value: 'text'"),
    (
        responses_request({"role": "assistant", "content": [{"type": "input_text", "text": "x"}]}),
        "Invalid value: 'input_text'",
    ),
    (responses_request({"type": "tool_use", "id": "x"}), "type: Invalid value"),
    (responses_request({**R_CALL, "call_id": "x" * 65}, {**R_RESULT, "call_id": "x" * 65}), "maximum length 64"),
    (responses_request({**R_CALL, "id": "call_1"}, R_RESULT), "begins with 'fc'"),
    (responses_request({**R_CALL, "arguments": {}}, R_RESULT), "expected a string"),
    (responses_request({**R_CALL, "input": ""}, R_RESULT), "Unknown parameter"),
    (responses_request(R_CALL, {**R_RESULT, "output": {"a": 1}}), "array of objects or string"),
    (responses_request(R_CALL, {**R_RESULT, "output": [{"type": "text", "text": "x"}]}), "Invalid value: 'text'"),
    (responses_request(R_CALL), "No tool output found"),
    (responses_request(R_RESULT), "No tool call found"),
    (responses_request(R_CALL, R_RESULT, R_RESULT), "second output"),
    (responses_request(R_CALL, R_CALL, R_RESULT), "Duplicate item"),
    (
        responses_request(R_CALL, {"type": "custom_tool_call_output", "call_id": "call_1", "output": "x"}),
        "No tool call found",
    ),
    (responses_request(R_CALL, R_THOUGHT, R_RESULT), "required following item"),
    (responses_request(R_THOUGHT), "required following item"),
    (responses_request({"type": "reasoning", "id": "rs_1"}, R_CALL, R_RESULT), "summary"),
    (
        responses_request({"type": "reasoning", "id": "rs_1", "summary": []}, R_CALL, R_RESULT, store=False),
        "not persisted",
    ),
    (responses_request(tools=[C_TOOL]), "unknown parameter"),
    (responses_request(tools=[{**R_TOOL, "name": "a.b"}]), "name: string does not match"),
    (responses_request(tools=[{**R_TOOL, "parameters": {}}]), "schema must be a JSON Schema"),
    (responses_request(tools=[{**R_TOOL, "strict": True}]), "additionalProperties"),
    (responses_request(tools=[{**R_TOOL, "input_schema": {}}]), "input_schema: unknown"),
    (responses_request(tools=[{"type": "web_fetch"}]), "type: Invalid value"),
    (responses_request(tools=[R_TOOL, R_TOOL]), "Duplicate tool"),
    (responses_request(tool_choice="required"), "with 'tools' parameter"),
    (responses_request(tools=[R_TOOL], tool_choice={"type": "function", "name": "x"}), "not found in 'tools'"),
    (responses_request(text={"format": {"type": "json_schema", "schema": {}}}), "name and schema"),
    (responses_request(text={"format": {"type": "json_object"}}), "the word 'json'"),
]

BAD = [
    *(("anthropic", "", body, piece) for body, piece in ANTHROPIC),
    *(("gemini", "gemini-3.8-flash", body, piece) for body, piece in GEMINI),
    *(("openai-chat", "", body, piece) for body, piece in CHAT),
    *(("openai-responses", "", body, piece) for body, piece in RESPONSES),
]


@pytest.mark.parametrize(
    ("protocol", "model", "body", "piece"), BAD, ids=[f"{n}-{row[0]}-{row[3]}" for n, row in enumerate(BAD)]
)
def test_violation_is_found(protocol: str, model: str, body: Object, piece: str) -> None:
    violations = find_violations(protocol, body, model)
    assert any(piece in line for line in violations), violations


GOOD = [
    ("anthropic", "", anthropic_turns(tools=[A_TOOL], system="Be brief.")),
    ("anthropic", "", anthropic_request(user(), {"role": "assistant", "content": "Yes."}, user("And?"))),
    ("anthropic", "", anthropic_request(user(), {"role": "system", "content": "x"}, model="claude-opus-5")),
    (
        "anthropic",
        "",
        anthropic_request(
            user(),
            {"role": "assistant", "content": [A_CALL]},
            {"role": "assistant", "content": [{**A_CALL, "id": "toolu_2"}]},
            {"role": "user", "content": [A_RESULT]},
            {"role": "user", "content": [{**A_RESULT, "tool_use_id": "toolu_2"}]},
            user("And?"),
            tools=[A_TOOL],
        ),
    ),
    ("anthropic", "claude-opus-5", anthropic_request(user(), A_PAUSED, model="claude-opus-5")),
    (
        "gemini",
        "gemini-3.8-flash",
        gemini_request(
            gemini_user(), gemini_model(G_SIGNED), gemini_user(G_RESULT), tools=gemini_tool(parameters=OBJECT)
        ),
    ),
    (
        "gemini",
        "gemini-3.8-flash",
        gemini_request(
            gemini_user(), gemini_model(G_CALL), gemini_user(G_RESULT), gemini_model({"text": "15"}), gemini_user()
        ),
    ),
    ("gemini", "gemini-2.5-flash", gemini_request(gemini_user(), gemini_model(G_CALL), gemini_user(G_RESULT))),
    ("gemini", "gemini-3.8-flash", {"contents": [gemini_user()], "system_instruction": gemini_user()}),
    ("openai-chat", "", chat_turns()),
    (
        "openai-chat",
        "",
        chat_request(tools=[C_TOOL], tool_choice="required", stream=True, stream_options={"include_usage": True}),
    ),
    ("openai-responses", "", responses_request(user(), R_THOUGHT, R_CALL, R_RESULT, store=False, tools=[R_TOOL])),
    ("openai-responses", "", {"model": "gpt-5.5", "input": "Hi"}),
    ("openai-responses", "", responses_request(user(), R_THOUGHT, user("Stop"), store=False)),
]


@pytest.mark.parametrize(("protocol", "model", "body"), GOOD)
def test_valid_request_is_accepted(protocol: str, model: str, body: Object) -> None:
    assert find_violations(protocol, body, model) == []


def test_body_must_be_an_object() -> None:
    assert find_violations("gemini", [1]) == ["the body is not a JSON object"]


@pytest.mark.parametrize("file", sorted((SAMPLES / "requests").glob("*.json")), ids=lambda file: file.stem)
def test_samples_are_accepted(file: Path) -> None:
    protocol = "openai-chat" if file.stem.startswith("chat") else "openai-responses"
    assert find_violations(protocol, json.loads(file.read_text("utf-8"))) == []


VENDORS = {
    "anthropic": ("api.anthropic.com",),
    "gemini": ("generativelanguage.googleapis.com", "aiplatform.googleapis.com"),
    "openai_chat": ("api.openai.com",),
    "openai_responses": ("api.openai.com",),
}


def load_recordings(folder: str) -> Iterator[tuple[str, Object]]:
    """Requests that a vendor's own service answered with 200."""
    for file in sorted((CORPUS / folder).glob("*.json")):
        exchange = json.loads(file.read_text("utf-8"))
        if exchange.get("status") == 200 and exchange.get("request") and exchange.get("host") in VENDORS[folder]:
            yield file.stem, exchange


@needs_corpus
@pytest.mark.parametrize("folder", VENDORS)
def test_recorded_requests_are_accepted(folder: str) -> None:
    violations = {}
    for name, exchange in load_recordings(folder):
        lines = find_violations(folder, exchange["request"], exchange.get("model") or "")
        if exchange["host"] == "aiplatform.googleapis.com":  # there the flag is not asked for
            lines = [line for line in lines if "include_server_side_tool_invocations" not in line]
        if lines:
            violations[name] = lines
    assert violations == {}
