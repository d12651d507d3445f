"""The strict checks fire on what each provider refuses, and are silent on what it takes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from material import CORPUS, needs_corpus
from toolwire.conformance.strict import find_violations

Object = dict[str, Any]
SAMPLES = Path(__file__).parents[1] / "samples"

OBJECT: Object = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def user(text: str = "Weather in Paris?") -> Object:
    return {"role": "user", "content": text}


# --- Anthropic ------------------------------------------------------------------------------------------------------

A_TOOL: Object = {"name": "get_weather", "input_schema": OBJECT}
A_CALL: Object = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Paris"}}
A_RESULT: Object = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "15 °C"}


def a(*messages: Object, **fields: Any) -> Object:
    body = {"model": "claude-sonnet-4-5", "max_tokens": 100, "messages": list(messages) or [user()], **fields}
    return {key: value for key, value in body.items() if value is not None}


def a_turns(call: Object | None = None, *results: Object, **fields: Any) -> Object:
    calls, answers = [{**A_CALL, **(call or {})}], list(results) or [A_RESULT]
    return a(user(), {"role": "assistant", "content": calls}, {"role": "user", "content": answers}, **fields)


ANTHROPIC: list[tuple[Object, str]] = [
    (a(temp=1), "temp: unknown"),
    (a(max_tokens=None), "max_tokens: Field required"),
    (a(model=None), "model: Field required"),
    (a(metadata={"user": "x"}), "metadata.user"),
    (a(stop_sequences=["\n"]), "stop sequence"),
    (a(system=[{"type": "text", "text": ""}]), "system.0: text content blocks must be non-empty"),
    (a(model="claude-opus-4-7", temperature=0.2), "temperature: not supported"),
    (a(thinking={"type": "enabled", "budget_tokens": 10}), "budget_tokens"),
    (a(thinking={"type": "enabled", "budget_tokens": 2000}), "max_tokens must be greater"),
    (a(model="claude-opus-5-5", thinking={"type": "disabled"}), "disabled"),
    (a(model="claude-opus-4-8", thinking={"type": "enabled", "budget_tokens": 2000}, max_tokens=9000), "enabled"),
    (a({"role": "assistant", "content": "Hi"}, user(), model="claude-sonnet-4"), "first message"),
    (a(user(), {"role": "assistant", "content": "So "}), "trailing whitespace"),
    (a(user(), {"role": "assistant", "content": "So"}, model="claude-opus-4-6"), "prefill"),
    (a({"role": "tool", "content": "x"}), "role: Input should be"),
    (a({"role": "system", "content": "x"}, user(), model="claude-opus-5"), "top-level 'system'"),
    (a(user(), {"role": "system", "content": "x"}), "not supported on this model"),
    (a(user(), {"role": "system", "content": "x"}, user(), model="claude-opus-5"), "followed by an assistant"),
    (a({"role": "user", "content": []}), "non-empty content"),
    (a({"role": "user", "content": [{"type": "text", "text": ""}]}), "must be non-empty"),
    (a({"role": "user", "content": [{"type": "text", "text": " \n"}]}), "non-whitespace"),
    (a({"role": "user", "content": [{"type": "image_url", "image_url": {}}]}), "not permitted for role"),
    (
        a({"role": "user", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/bmp"}}]}),
        "media",
    ),
    (a_turns({"id": "functions.Bash:0"}), "tool_use.id: String should match pattern"),
    (a_turns({"name": "a.b"}), "tool_use.name"),
    (a_turns({"input": "{}"}), "valid dictionary"),
    (a_turns({"id": "toolu_2"}), "without `tool_result`"),
    (a_turns(None, {**A_RESULT, "tool_use_id": "toolu_9"}), "unexpected `tool_use_id`"),
    (a_turns(None, A_RESULT, A_RESULT), "single result"),
    (a_turns(None, {"type": "text", "text": "and"}, A_RESULT), "must come first"),
    (a_turns(None, {**A_RESULT, "content": [{"type": "text", "text": ""}]}), "must be non-empty"),
    (a_turns(None, {**A_RESULT, "content": [{"type": "input_text", "text": "x"}]}), "does not match"),
    (a_turns(None, {**A_RESULT, "name": "x"}), "Extra inputs"),
    (
        a(user(), {"role": "assistant", "content": [A_CALL, A_CALL]}, {"role": "user", "content": [A_RESULT]}),
        "must be unique",
    ),
    (a(user(), {"role": "assistant", "content": [A_CALL]}, user("Go on")), "without `tool_result`"),
    (a(user(), {"role": "assistant", "content": [{"type": "thinking", "thinking": "x"}]}, user()), "signature"),
    (
        a_turns(thinking={"type": "enabled", "budget_tokens": 2000}, max_tokens=9000),
        "Expected `thinking`",
    ),
    (a(tools=[{"name": "a b", "input_schema": OBJECT}]), "name: String should match"),
    (a(tools=[A_TOOL, A_TOOL]), "must be unique"),
    (a(tools=[{"name": "x"}]), "input_schema: Field required"),
    (a(tools=[{"name": "x", "input_schema": {}}]), "Input should be 'object'"),
    (a(tools=[{"name": "x", "input_schema": {"type": "object", "anyOf": []}}]), "anyOf at the top level"),
    (a(tools=[{"name": "x", "input_schema": {"type": "object", "properties": {"$a": {}}}}]), "Property keys"),
    (a(tools=[{**A_TOOL, "strict": True}]), "additionalProperties"),
    (a(tools=[{**A_TOOL, "parameters": {}}]), "custom.parameters: unknown"),
    (a(tools=[{"type": "web_search", "name": "web_search"}]), "does not match any of the expected tags"),
    (a(tools=[{**A_TOOL, "defer_loading": True}]), "At least one tool"),
    (a(tool_choice={"type": "auto"}), "only be specified while providing tools"),
    (a(tools=[A_TOOL], tool_choice={"type": "function"}), "tool_choice: Input tag"),
    (a(tools=[A_TOOL], tool_choice={"type": "tool", "name": "x"}), "not found"),
    (a(tools=[A_TOOL], tool_choice={"type": "none", "disable_parallel_tool_use": True}), "unknown parameter"),
    (a(tools=[A_TOOL], tool_choice={"type": "any"}, model="claude-opus-5-5"), "not supported for this model"),
    (
        a(
            tools=[A_TOOL],
            tool_choice={"type": "any"},
            thinking={"type": "enabled", "budget_tokens": 1024},
            max_tokens=9000,
        ),
        "Thinking may not be enabled",
    ),
    (a(system=[{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}] * 5), "maximum of 4"),
    (a(output_config={"format": {"type": "json_schema", "schema": {"type": "object"}}}), "additionalProperties"),
]

# --- Gemini ---------------------------------------------------------------------------------------------------------

G_CALL: Object = {"functionCall": {"id": "c1", "name": "get_weather", "args": {"city": "Paris"}}}
G_SIGNED: Object = {**G_CALL, "thoughtSignature": "c2lnbmF0dXJl"}
G_RESULT: Object = {"functionResponse": {"id": "c1", "name": "get_weather", "response": {"output": "15 °C"}}}


def g_user(*parts: Object) -> Object:
    return {"role": "user", "parts": list(parts) or [{"text": "Weather in Paris?"}]}


def g(*contents: Object, **fields: Any) -> Object:
    return {"contents": list(contents) or [g_user()], **fields}


def g_model(*parts: Object) -> Object:
    return {"role": "model", "parts": list(parts)}


def g_tool(**fields: Any) -> list[Object]:
    return [{"functionDeclarations": [{"name": "get_weather", **fields}]}]


def g_result(**fields: Any) -> Object:
    return {"functionResponse": {**G_RESULT["functionResponse"], **fields}}


GEMINI: list[tuple[Object, str]] = [
    (g(max_tokens=1), "maxTokens"),
    ({"contents": []}, "contents is not specified"),
    (g(generationConfig={"max_tokens": 1}), "maxTokens"),
    (g(generationConfig={"thinkingConfig": {"thinkingLevel": "LOW", "thinkingBudget": 0}}), "not both"),
    (g(generationConfig={"stopSequences": list("abcdef")}), "at most 5"),
    (g(generationConfig={"responseJsonSchema": {}}), "response_mime_type"),
    (g({"role": "tool", "parts": [{"text": "x"}]}), "valid role"),
    (g({"role": "user", "parts": []}), "must not be empty"),
    (g(g_user({"text": "x", "functionCall": {}})), "oneof field 'data'"),
    (g(g_user({"text": "x", "type": "text"})), 'Unknown name "type"'),
    (g(g_user(), g_model({"text": "x", "thoughtSignature": "no base64!"}), g_user()), "Base64"),
    (g(g_user(), g_model({"functionCall": {"name": "x", "args": []}}), g_user(G_RESULT)), "args"),
    (g(g_user(), g_model(G_SIGNED), g_user(g_result(name=""))), "Name cannot be empty"),
    (g(g_user(), g_model(G_SIGNED), g_user(g_result(response="text"))), "must be an object"),
    (g(g_user(), g_model(G_SIGNED), g_user(g_result(id="other"))), "does not match functionCall.id"),
    (g(g_user(), g_model(G_SIGNED), g_user(g_result(name="other"))), "other names"),
    (g(g_user(), g_model(G_SIGNED), g_user(G_RESULT, G_RESULT)), "number of function response parts"),
    (g(g_user(), g_model(G_SIGNED), g_user()), "number of function response parts"),
    (g(g_user(), g_model(G_SIGNED)), "without responses"),
    (g(g_model(G_SIGNED), g_user(G_RESULT)), "immediately after a user turn"),
    (g(g_user(), g_model(G_CALL), g_user(G_RESULT)), "missing a `thought_signature`"),
    (g(tools=g_tool(name="1c")), "Invalid function name"),
    (g(tools=g_tool(strict=True)), 'Unknown name "strict"'),
    (g(tools=g_tool(parameters=OBJECT, parametersJsonSchema=OBJECT)), "exclusive"),
    (g(tools=g_tool(parameters={"type": ["object", "null"]})), "cannot start list"),
    (g(tools=g_tool(parameters={**OBJECT, "additionalProperties": False})), 'Unknown name "additionalProperties"'),
    (g(tools=g_tool(parameters={**OBJECT, "required": ["town"]})), "property is not defined"),
    (g(tools=g_tool(parameters={"type": "object", "properties": {"n": {"type": "integer", "enum": [1]}}})), "STRING"),
    (g(tools=g_tool(parameters={"type": "object", "properties": {"n": {"type": "array"}}})), "items: missing"),
    (g(tools=g_tool(parametersJsonSchema={"type": "object", "properties": {"n": {"$ref": "#/$defs/x"}}})), "undefined"),
    (g(tools=[{**g_tool()[0], "googleSearch": {}}]), "more than one initialized field"),
    (g(tools=[*g_tool(), {"googleSearch": {}}]), "include_server_side_tool_invocations"),
    (g(tools=[*g_tool(), *g_tool()]), "Duplicate function"),
    (g(toolConfig={"functionCallingConfig": {"mode": "ANY"}}), "without function_declarations"),
    (
        g(tools=g_tool(), toolConfig={"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["x"]}}),
        "not declared",
    ),
    (
        g(
            tools=g_tool(),
            toolConfig={"functionCallingConfig": {"mode": "AUTO", "allowedFunctionNames": ["get_weather"]}},
        ),
        "only when the mode is ANY",
    ),
]

# --- Chat -----------------------------------------------------------------------------------------------------------

C_TOOL: Object = {"type": "function", "function": {"name": "get_weather", "parameters": OBJECT}}
C_CALL: Object = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
C_RESULT: Object = {"role": "tool", "tool_call_id": "call_1", "content": "15 °C"}


def c(*messages: Object, **fields: Any) -> Object:
    return {"model": "gpt-4.1", "messages": list(messages) or [user()], **fields}


def c_turns(call: Object | None = None, *rest: Object) -> Object:
    return c(user(), {"role": "assistant", "tool_calls": [{**C_CALL, **(call or {})}]}, *(rest or (C_RESULT,)))


def c_function(**fields: Any) -> list[Object]:
    return [{"type": "function", "function": {**C_TOOL["function"], **fields}}]


CHAT: list[tuple[Object, str]] = [
    (c(system="x"), "system: unknown"),
    ({"model": "gpt-4.1", "messages": []}, "at least one message"),
    (c(stream_options={"include_usage": True}), "stream_options"),
    (c(tool_choice="auto"), "'tool_choice' is only allowed"),
    (c(parallel_tool_calls=False), "'parallel_tool_calls' is only allowed"),
    (c(tools=[]), "too short"),
    (c(stop=list("abcde")), "stop"),
    (c(max_tokens=1, max_completion_tokens=1), "at the same time"),
    (c(model="gpt-5.2", max_tokens=1), "max_completion_tokens"),
    (c(model="gpt-5.5", reasoning_effort="high", tools=[C_TOOL]), "/v1/responses"),
    (c({"role": "model", "content": "x"}), "role: Invalid value"),
    (c({"role": "user", "content": None}), "got null"),
    (c({"role": "assistant", "content": "x", "tool_calls": []}), "too short"),
    (c({"role": "user", "content": [{"type": "input_text", "text": "x"}]}), "Invalid value: 'input_text'"),
    (c_turns(None, {**C_RESULT, "content": [{"type": "image_url", "image_url": {"url": "x"}}]}), "'image_url'"),
    (c_turns({"id": "x" * 41}, {**C_RESULT, "tool_call_id": "x" * 41}), "maximum length 40"),
    (c_turns({"function": {"name": "get_weather", "arguments": {}}}), "arguments: expected a string"),
    (c_turns({"function": {"name": "a.b", "arguments": "{}"}}), "name: expected a string that matches"),
    (c_turns(None, user("Go on")), "must be followed by tool messages"),
    (c_turns({"id": "call_2"}), "must be a response to a preceding message"),
    (c(C_RESULT), "must be a response to a preceding message"),
    (c(user(), {"role": "assistant", "tool_calls": [C_CALL]}), "not answered"),
    (c(tools=[C_TOOL] * 129), "array too long"),
    (c(tools=[{"type": "web_search"}]), "tools[0].type"),
    (c(tools=[{"type": "function", "name": "x"}]), "Missing required parameter"),
    (c(tools=c_function(name="a.b")), "does not match"),
    (c(tools=c_function(parameters={})), "schema must be a JSON Schema"),
    (c(tools=c_function(strict=True)), "additionalProperties"),
    (c(tools=c_function(defer_loading=True)), "defer_loading: unknown"),
    (c(tools=[C_TOOL], tool_choice={"type": "tool", "name": "x"}), "tool_choice: Invalid value"),
    (c(tools=[C_TOOL], tool_choice={"type": "function", "function": {"name": "x"}}), "not found in 'tools'"),
    (c(response_format={"type": "json_object"}), "the word 'json'"),
    (c(response_format={"type": "json_schema", "json_schema": {"schema": {}}}), "name"),
]

# --- Responses ------------------------------------------------------------------------------------------------------

R_TOOL: Object = {"type": "function", "name": "get_weather", "parameters": OBJECT, "strict": False}
R_CALL: Object = {"type": "function_call", "call_id": "call_1", "name": "get_weather", "arguments": "{}"}
R_RESULT: Object = {"type": "function_call_output", "call_id": "call_1", "output": "15 °C"}
R_THOUGHT: Object = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}


def r(*items: Object, **fields: Any) -> Object:
    return {"model": "gpt-5.5", "input": list(items) or [user()], **fields}


RESPONSES: list[tuple[Object, str]] = [
    (r(messages=[]), "messages: unknown"),
    (r(stop=["x"]), "stop: unknown"),
    ({"model": "gpt-5.5"}, "input: Missing"),
    (r(max_output_tokens=5), "below minimum"),
    (r(include=["thoughts"]), "include"),
    (r(stream_options={"include_usage": True}), "stream_options.include_usage"),
    (r(reasoning={"budget": 1}), "reasoning.budget"),
    (r({"role": "user"}), "Missing required parameter: 'input[0].content'"),
    (r({"role": "tool", "content": "x"}), "role: Invalid value"),
    (r({"role": "user", "content": [{"type": "text", "text": "x"}]}), "Invalid value: 'text'"),
    (r({"role": "assistant", "content": [{"type": "input_text", "text": "x"}]}), "Invalid value: 'input_text'"),
    (r({"type": "tool_use", "id": "x"}), "type: Invalid value"),
    (r({**R_CALL, "call_id": "x" * 65}, {**R_RESULT, "call_id": "x" * 65}), "maximum length 64"),
    (r({**R_CALL, "id": "call_1"}, R_RESULT), "begins with 'fc'"),
    (r({**R_CALL, "arguments": {}}, R_RESULT), "expected a string"),
    (r({**R_CALL, "input": ""}, R_RESULT), "Unknown parameter"),
    (r(R_CALL, {**R_RESULT, "output": {"a": 1}}), "array of objects or string"),
    (r(R_CALL, {**R_RESULT, "output": [{"type": "text", "text": "x"}]}), "Invalid value: 'text'"),
    (r(R_CALL), "No tool output found"),
    (r(R_RESULT), "No tool call found"),
    (r(R_CALL, R_RESULT, R_RESULT), "second output"),
    (r(R_CALL, R_CALL, R_RESULT), "Duplicate item"),
    (r(R_CALL, {"type": "custom_tool_call_output", "call_id": "call_1", "output": "x"}), "No tool call found"),
    (r(R_THOUGHT, user()), "required following item"),
    (r(R_THOUGHT), "required following item"),
    (r({"type": "reasoning", "id": "rs_1"}, R_CALL, R_RESULT), "summary"),
    (r({"type": "reasoning", "id": "rs_1", "summary": []}, R_CALL, R_RESULT, store=False), "not persisted"),
    (r(tools=[C_TOOL]), "unknown parameter"),
    (r(tools=[{**R_TOOL, "name": "a.b"}]), "name: string does not match"),
    (r(tools=[{**R_TOOL, "parameters": {}}]), "schema must be a JSON Schema"),
    (r(tools=[{**R_TOOL, "strict": True}]), "additionalProperties"),
    (r(tools=[{**R_TOOL, "input_schema": {}}]), "input_schema: unknown"),
    (r(tools=[{"type": "web_fetch"}]), "type: Invalid value"),
    (r(tools=[R_TOOL, R_TOOL]), "Duplicate tool"),
    (r(tool_choice="required"), "with 'tools' parameter"),
    (r(tools=[R_TOOL], tool_choice={"type": "function", "name": "x"}), "not found in 'tools'"),
    (r(text={"format": {"type": "json_schema", "schema": {}}}), "name and schema"),
    (r(text={"format": {"type": "json_object"}}), "the word 'json'"),
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
def test_fires(protocol: str, model: str, body: Object, piece: str) -> None:
    said = find_violations(protocol, body, model)
    assert any(piece in line for line in said), said


GOOD = [
    ("anthropic", "", a_turns(tools=[A_TOOL], system="Be brief.")),
    ("anthropic", "", a(user(), {"role": "assistant", "content": "Yes."}, user("And?"))),
    ("anthropic", "", a(user(), {"role": "system", "content": "x"}, model="claude-opus-5")),
    ("gemini", "gemini-3.8-flash", g(g_user(), g_model(G_SIGNED), g_user(G_RESULT), tools=g_tool(parameters=OBJECT))),
    ("gemini", "gemini-3.8-flash", g(g_user(), g_model(G_CALL), g_user(G_RESULT), g_model({"text": "15"}), g_user())),
    ("gemini", "gemini-2.5-flash", g(g_user(), g_model(G_CALL), g_user(G_RESULT))),
    ("gemini", "gemini-3.8-flash", {"contents": [g_user()], "system_instruction": g_user()}),
    ("openai-chat", "", c_turns()),
    ("openai-chat", "", c(tools=[C_TOOL], tool_choice="required", stream=True, stream_options={"include_usage": True})),
    ("openai-responses", "", r(user(), R_THOUGHT, R_CALL, R_RESULT, store=False, tools=[R_TOOL])),
    ("openai-responses", "", {"model": "gpt-5.5", "input": "Hi"}),
]


@pytest.mark.parametrize(("protocol", "model", "body"), GOOD)
def test_is_silent(protocol: str, model: str, body: Object) -> None:
    assert find_violations(protocol, body, model) == []


def test_a_body_that_is_no_object() -> None:
    assert find_violations("gemini", [1]) == ["the body is no JSON object"]


@pytest.mark.parametrize("file", sorted((SAMPLES / "requests").glob("*.json")), ids=lambda file: file.stem)
def test_is_silent_on_the_samples(file: Path) -> None:
    protocol = "openai-chat" if file.stem.startswith("chat") else "openai-responses"
    assert find_violations(protocol, json.loads(file.read_text("utf-8"))) == []


VENDORS = {
    "anthropic": ("api.anthropic.com",),
    "gemini": ("generativelanguage.googleapis.com", "aiplatform.googleapis.com"),
    "openai_chat": ("api.openai.com",),
    "openai_responses": ("api.openai.com",),
}


def recorded(folder: str) -> Iterator[tuple[str, Object]]:
    """Requests that a vendor's own service answered with 200."""
    for file in sorted((CORPUS / folder).glob("*.json")):
        exchange = json.loads(file.read_text("utf-8"))
        if exchange.get("status") == 200 and exchange.get("request") and exchange.get("host") in VENDORS[folder]:
            yield file.stem, exchange


@needs_corpus
@pytest.mark.parametrize("folder", VENDORS)
def test_is_silent_on_recorded_requests(folder: str) -> None:
    said = {}
    for name, exchange in recorded(folder):
        lines = find_violations(folder, exchange["request"], exchange.get("model") or "")
        if exchange["host"] == "aiplatform.googleapis.com":  # there the flag is not asked for
            lines = [line for line in lines if "include_server_side_tool_invocations" not in line]
        if lines:
            said[name] = lines
    assert said == {}
