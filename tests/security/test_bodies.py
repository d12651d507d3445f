"""One reading of a body: what is judged is what is sent, however the body is written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gateway.raw_exchange import path_of, request_of
from security.recorded_provider import KEY_SETTINGS, POLICY, Guarded, as_key, chat_body, send_raw, serve_guarded
from toolwire.core.json_values import Malformed
from toolwire.core.request_members import RequestMembers
from toolwire.gateway.exchange.client_body import PLAIN_NAMES, ClientBody, check_names, read_client_body
from toolwire.gateway.exchange.inner_members import check_inner_members
from toolwire.protocols import CODECS


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """With keys and rules."""
    with serve_guarded(tmp_path_factory.mktemp("bodies"), KEY_SETTINGS, POLICY) as made:
        yield made


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """Without keys and rules."""
    with serve_guarded(tmp_path_factory.mktemp("plain")) as made:
        yield made


def tool(name: str, key: str = "name") -> str:
    function = f'{{"{key}":"{name}","parameters":{{"type":"object","properties":{{}}}}}}'
    return f'{{"type":"function","function":{function}}}'


MESSAGES = '"messages":[{"role":"user","content":"Hi"}]'
ALLOWED, FORBIDDEN = f"[{tool('allowed')}]", f"[{tool('forbidden_shell')}]"
AMBIGUOUS = {
    "model twice": '{"model":"large","model":"small",%s}',
    "model twice, the other way": '{"model":"small","model":"large",%s}',
    "model thrice": '{"model":"small","model":"large","model":"small",%s}',
    "escaped model after": '{"model":"small",%s,"\\u006dodel":"large"}',
    "escaped model before": '{"\\u006dodel":"large",%s,"model":"small"}',
    "escaped in capitals": '{"\\u006Dodel":"large",%s,"model":"small"}',
    "all escaped": '{"\\u006d\\u006f\\u0064\\u0065\\u006c":"large","model":"small",%s}',
    "escaped slash in another key": '{"model":"small","a\\/b":1,"model":"large",%s}',
    "Model": '{"model":"small","Model":"large",%s}',
    "MODEL": '{"MODEL":"large","model":"small",%s}',
    "mOdel alone": '{"mOdel":"large",%s}',
    "model with NUL": '{"model":"small","model\\u0000":"large",%s}',
    "model with a space": '{"model":"small","model ":"large",%s}',
    "model with a dash": '{"model":"small","mo-del":"large",%s}',
    "model with a zero-width space": '{"model":"small","mo\\u200bdel":"large",%s}',
    "model in full width": '{"model":"small","\\uff4dodel":"large",%s}',
    "tools twice": '{"model":"small","tools":' + FORBIDDEN + ',%s,"tools":' + ALLOWED + "}",
    "tools twice, the other way": '{"model":"small","tools":' + ALLOWED + ',%s,"tools":' + FORBIDDEN + "}",
    "Tools": '{"model":"small","tools":' + ALLOWED + ',"Tools":' + FORBIDDEN + ",%s}",
    "tools with a long s": '{"model":"small","tools":' + ALLOWED + ',"tool\\u017f":' + FORBIDDEN + ",%s}",
    "escaped tools": '{"model":"small","tools":' + ALLOWED + ',"\\u0074ools":' + FORBIDDEN + ",%s}",
    "stream twice": '{"model":"small","stream":true,"stream":false,%s}',
    "Stream": '{"model":"small","Stream":true,%s}',
    "tool_choice twice": '{"model":"small","tool_choice":"none","tool_choice":"auto",%s}',
    "toolChoice": '{"model":"small","toolChoice":"auto",%s}',
    "messages twice": '{"model":"small","messages":[],%s}',
    "Messages": '{"model":"small","Messages":[],%s}',
    "Functions": '{"model":"small","Functions":[],%s}',
    "an unknown key twice": '{"model":"small","x":1,"x":2,%s}',
    "with white space": '{\n "model" : "large" ,\t"model"\r\n: "small", %s }',
    "in a long body": '{"model":"large","user":"' + "u" * 5000 + '","model":"small",%s}',
}


@pytest.mark.parametrize("what", AMBIGUOUS)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
def test_an_ambiguous_body_is_refused_with_its_key(gate: Guarded, plain: Guarded, path: str, what: str) -> None:
    body = (AMBIGUOUS[what] % MESSAGES).encode()
    for gateway, headers in ((gate, as_key("ann")), (gate, as_key("narrow")), (plain, {})):
        got = send_raw(gateway.port, "POST", path, body, headers)
        assert got.status == 400, got
        assert got.json()["error"]["param"], got
        assert gateway.take_arrived() == []


def _body_with_second_key(client: str, key: str, value: Any) -> bytes:
    body = json.dumps(request_of(client, "small", False))
    return f'{{"{key}":{json.dumps(value)},{body[1:]}'.encode()


TWICE = [
    ("openai-chat", "model", "large"), ("openai-chat", "messages", []), ("openai-responses", "model", "large"),
    ("openai-responses", "input", "x"), ("openai-responses", "store", True), ("anthropic", "model", "large"),
    ("anthropic", "messages", []), ("anthropic", "max_tokens", 1), ("gemini", "contents", []), ("unified", "model", "large"),
    ("unified", "messages", []),
]  # fmt: skip


@pytest.mark.parametrize(("client", "key", "value"), TWICE)
def test_a_key_that_is_there_twice_is_refused_in_every_protocol(
    plain: Guarded, client: str, key: str, value: Any
) -> None:
    path = path_of(client, "gemini/gemini-3.8-flash", False)
    got = send_raw(plain.port, "POST", path, _body_with_second_key(client, key, value))
    assert got.status == 400, got
    assert f"`{key}` is in the body twice" in got.body.decode()
    assert plain.take_arrived() == []


GEMINI_TWICE = [
    '"toolConfig":{},"tool_config":{}', '"systemInstruction":{"parts":[]},"system_instruction":{"parts":[]}',
    '"Tools":[]', '"tools":[],"TOOLS":[]', '"generationConfig":{},"generation_config":{}',
]  # fmt: skip


@pytest.mark.parametrize("members", GEMINI_TWICE)
def test_two_spellings_of_a_gemini_field(plain: Guarded, members: str) -> None:
    body = f'{{"contents":[{{"role":"user","parts":[{{"text":"Hi"}}]}}],{members}}}'
    path = path_of("gemini", "gemini/gemini-3.8-flash", False)
    assert send_raw(plain.port, "POST", path, body.encode()).status == 400
    assert plain.take_arrived() == []


@pytest.mark.parametrize("spelling", ["toolConfig", "tool_config"])
def test_one_spelling_of_a_gemini_field_passes(plain: Guarded, spelling: str) -> None:
    body = f'{{"contents":[{{"role":"user","parts":[{{"text":"Hi"}}]}}],"{spelling}":{{}}}}'
    path = path_of("gemini", "gemini/gemini-3.8-flash", False)
    assert send_raw(plain.port, "POST", path, body.encode()).status == 200
    assert len(plain.take_arrived()) == 1


def test_another_model_in_the_body_than_in_the_path(plain: Guarded) -> None:
    path = path_of("gemini", "gemini/gemini-3.8-flash", False)
    body = b'{"contents":[{"role":"user","parts":[{"text":"Hi"}]}],"model":"models/other"}'
    assert send_raw(plain.port, "POST", path, body).status == 400
    assert plain.take_arrived() == []


def test_an_escaped_key_is_read_as_what_it_means(gate: Guarded) -> None:
    body = '{"\\u006dodel":"%s",' + MESSAGES + "}"
    got = send_raw(gate.port, "POST", "/v1/chat/completions", (body % "small").encode(), as_key("narrow"))
    assert (got.status, json.loads(gate.take_arrived()[0].body)["model"]) == (200, "gpt-small")
    got = send_raw(gate.port, "POST", "/v1/chat/completions", (body % "large").encode(), as_key("narrow"))
    assert (got.status, gate.take_arrived()) == (403, [])


# --- members that choose other models ---

STEERING: list[tuple[str, Any]] = [
    ("models", ["large"]), ("Models", ["large"]), ("model_id", "large"), ("modelId", "large"), ("model_name", "large"),
    ("fallbacks", ["large"]), ("route", "fallback"), ("provider", {"only": ["x"]}), ("plugins", [{"id": "web"}]),
    ("transforms", ["middle-out"]), ("preset", "x"), ("engine", "large"), ("deployment_id", "large"),
    ("extra_body", {"model": "large"}), ("api_base", "http://evil.example"), ("base_url", "http://evil.example"),
    ("custom_llm_provider", "x"), ("MODELS", ["large"]), ("model-id", "large"), ("api_key", "x"),
    # No list has them: what is not known is not allowed.
    ("next_years_router", "large"), ("compound", {"models": {"answering_model": "large"}}), ("Temperature", 1),
    ("speculative", {"model": "large"}), ("safety_model", "large"), ("data_sources", []), ("x", 1),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value"), STEERING)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings", "/v1/completions"])
def test_a_key_for_some_models_cannot_choose_others(gate: Guarded, path: str, key: str, value: Any) -> None:
    got = send_raw(gate.port, "POST", path, chat_body("small", **{key: value}), as_key("narrow"))
    assert got.status == 403, got
    assert f"`{key}`" in got.body.decode()
    assert gate.take_arrived() == []


SMALL_MODELS = {
    "openai-chat": "small",
    "openai-responses": "responses/gpt-small",
    "anthropic": "anthropic/claude-small",
    "gemini": "gemini/embed-small",
}
INNER_MODELS: list[tuple[str, dict[str, Any]]] = [
    ("openai-responses", {"tools": [{"type": "image_generation", "model": "gpt-large"}]}),
    ("openai-responses", {"input": [{"type": "additional_tools", "tools": [{"type": "image_generation", "Model": "gpt-large"}]}]}),
    ("openai-responses", {"moderation": {"model": "gpt-large"}}),
    ("anthropic", {"tools": [{"type": "advisor_20260301", "name": "advisor", "model": "claude-large"}]}),
    ("anthropic", {"context_management": {"edits": [{"type": "compact_20260112", "model": "claude-large"}]}}),
    ("openai-chat", {"tools": [{"type": "openrouter:subagent", "parameters": {"model": "gpt-large"}}]}),
    ("openai-chat", {"reasoning": {"models": {"answering_model": "gpt-large"}}}),
    ("openai-chat", {"chat_template_kwargs": {"model_names": ["gpt-small", "gpt-large"]}}),
    ("gemini", {"generationConfig": {"routingConfig": {"manualMode": {"modelName": "embed-large"}}}}),
    ("gemini", {"generationConfig": {"model": "models/embed-large"}}),
]  # fmt: skip


@pytest.mark.parametrize(("client", "change"), INNER_MODELS)
@pytest.mark.parametrize("escaped", [False, True], ids=["plain", "escaped"])
def test_a_key_for_some_models_cannot_name_others_inside(
    gate: Guarded, client: str, change: dict[str, Any], escaped: bool
) -> None:
    model = SMALL_MODELS[client]
    changed = json.dumps({**request_of(client, model, False), **change})
    body = changed.replace('odel"', '\\u006fdel"') if escaped else changed
    got = send_raw(gate.port, "POST", path_of(client, model, False), body.encode(), as_key("narrow"))
    assert (got.status, gate.take_arrived()) == (403, []), got
    assert "large" in got.body.decode()


INNER_FORWARDED = [
    ("/v1/fine_tuning/jobs", {"model": "chat/gpt-small", "method": {"reinforcement": {"grader": {"type": "score_model", "model": "gpt-large"}}}}),
    ("/v1beta/models/gemini/embed-small:batchEmbedContents", {"requests": {"model": "models/gemini/embed-large"}}),
    ("/v1beta/models/gemini/embed-small:batchEmbedContents", {"requests": [{"Model": "models/gemini/embed-large"}]}),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body"), INNER_FORWARDED)
def test_a_forwarded_body_cannot_name_others_inside(gate: Guarded, path: str, body: Any) -> None:
    got = send_raw(gate.port, "POST", path, json.dumps(body).encode(), as_key("narrow", x_goog_api_client="sdk"))
    assert got.status in (400, 403), got
    assert gate.take_arrived() == []


INNER_ALLOWED: list[tuple[str, dict[str, Any]]] = [
    ("openai-responses", {"tools": [{"type": "image_generation", "model": "gpt-small-image"}]}),
    ("anthropic", {"tools": [{"name": "task", "input_schema": {"type": "object", "properties": {"model": {"enum": ["opus"]}}, "default": {"model": "opus"}}}]}),
    ("openai-chat", {"messages": [{"role": "user", "content": '{"model": "gpt-large"}'}], "metadata": {"model": "x"}}),
]  # fmt: skip


@pytest.mark.parametrize(("client", "change"), INNER_ALLOWED)
def test_a_key_for_some_models_uses_its_own_inside(tmp_path: Path, client: str, change: dict[str, Any]) -> None:
    with serve_guarded(tmp_path, KEY_SETTINGS) as made:
        body = {**request_of(client, SMALL_MODELS[client], False), **change}
        got = send_raw(made.port, "POST", path_of(client, "", False), json.dumps(body).encode(), as_key("narrow"))
        assert (got.status, len(made.take_arrived())) == (200, 1), got


@pytest.mark.parametrize("field", ["models[]", "fallbacks", "Model ", "mo_del", "extra_body"])
def test_fields_of_a_form_cannot_choose_other_models(gate: Guarded, field: str) -> None:
    parts = [("model", "small"), (field, "large"), ("prompt", "x")]
    rows = [f'--XX\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in parts]
    headers = as_key("narrow", content_type="multipart/form-data; boundary=XX")
    got = send_raw(gate.port, "POST", "/v1/images/edits", ("".join(rows) + "--XX--\r\n").encode(), headers)
    assert got.status in (400, 403), got
    assert gate.take_arrived() == []


@pytest.mark.parametrize(
    "key", ["models", "plugins", "preset", "search_parameters", "enable_search", "compound_custom"]
)
def test_rules_for_tools_do_not_allow_other_models_or_plugins(gate: Guarded, key: str) -> None:
    got = send_raw(gate.port, "POST", "/v1/chat/completions", chat_body("small", **{key: ["x"]}), as_key("ann"))
    assert (got.status, gate.take_arrived()) == (403, [])


@pytest.mark.parametrize(("key", "value"), STEERING)
def test_without_restrictions_such_members_pass(plain: Guarded, key: str, value: Any) -> None:
    body = json.dumps({**request_of("openai-chat", "chat/gpt-x", False), key: value}).encode()
    assert send_raw(plain.port, "POST", "/v1/chat/completions", body).status == 200
    assert json.loads(plain.take_arrived()[0].body)[key] == value


# --- tools inside a body that rules have read ---

INNER = {
    "name twice": tool("allowed").replace('"name"', '"name":"forbidden_shell","name"'),
    "function twice": '{"type":"function","function":{"name":"forbidden_shell"},"function":{"name":"allowed","parameters":{}}}',
    "escaped name": tool("allowed").replace('"name"', '"\\u006eame":"forbidden_shell","name"'),
}


@pytest.mark.parametrize("what", INNER)
def test_rules_see_the_tool_that_is_sent(gate: Guarded, what: str) -> None:
    body = f'{{"model":"small","tools":[{INNER[what]}],{MESSAGES}}}'
    got = send_raw(gate.port, "POST", "/v1/chat/completions", body.encode(), as_key("ann"))
    arrived = gate.take_arrived()
    assert got.status == 200 if arrived else 400 <= got.status < 500
    assert not [one for one in arrived if b"forbidden" in one.body]


SHELL = '{"name":"forbidden_shell"}'
ODD_TOOLS: list[tuple[str, str, str]] = [
    ("openai-chat", '"tools":[{"type":"function","function":{"name":"allowed","parameters":{}},"Function":' + SHELL + '}]', "/tools/0/Function"),
    ("openai-chat", '"tools":[{"type":"function","Function":' + SHELL + '}]', "/tools/0/Function"),
    ("openai-chat", '"tools":[{"type":"function","function":{"name":"allowed","Name":"forbidden_shell"}}]', "/tools/0/function/Name"),
    ("openai-chat", '"tools":[{"type":"function","function":{"name":"allowed","\\u004eame":"forbidden_shell"}}]', "/tools/0/function/Name"),
    ("openai-chat", '"tools":[{"type":"function","function":{"name":"allowed","n_a_m_e":"forbidden_shell"}}]', "/tools/0/function/n_a_m_e"),
    ("openai-chat", '"tools":[{"type":"function","function":{"name":"allowed","ｎame":"forbidden_shell"}}]', "/tools/0/function/ｎame"),
    ("openai-chat", '"tools":[{"type":"function","TYPE":"custom","custom":{"name":"x"},"function":{"name":"allowed"}}]', "/tools/0/TYPE"),
    ("openai-chat", '"tool_choice":{"type":"function","function":{"name":"allowed","Name":"forbidden_shell"}}', "/tool_choice/function/Name"),
    ("openai-responses", '"tools":[{"type":"function","name":"allowed","Name":"forbidden_shell","parameters":{}}]', "/tools/0/Name"),
    ("openai-responses", '"tools":[{"type":"namespace","name":"n","tools":[],"Tools":[{"type":"function","name":"forbidden_shell"}]}]', "/tools/0/Tools"),
    ("openai-responses", '"tools":[{"type":"mcp","server_label":"a","server_url":"https://a.example","Server_Url":"https://b.example"}]', "/tools/0/Server_Url"),
    ("anthropic", '"tools":[{"name":"allowed","input_schema":{"type":"object"},"NAME":"forbidden_shell"}]', "/tools/0/NAME"),
    ("gemini", '"tools":[{"functionDeclarations":[{"name":"allowed"}],"function_declarations":[' + SHELL + ']}]', "/tools/0/function_declarations"),
    ("gemini", '"tools":[{"FunctionDeclarations":[' + SHELL + ']}]', "/tools/0/FunctionDeclarations"),
    ("gemini", '"tools":[{"googleSearch":{},"Google_Search":{}}]', "/tools/0/Google_Search"),
]  # fmt: skip


def _with_members(client: str, members: str) -> tuple[str, bytes]:
    name = SMALL_MODELS[client]
    body = json.dumps(request_of(client, name, False))
    return path_of(client, name, False), f"{body[:-1]},{members}}}".encode()


@pytest.mark.parametrize(("client", "members", "place"), ODD_TOOLS)
def test_a_spelling_that_rules_do_not_know_is_refused_inside_too(
    gate: Guarded, client: str, members: str, place: str
) -> None:
    path, body = _with_members(client, members)
    got = send_raw(gate.port, "POST", path, body, as_key("ann"))
    assert (got.status, gate.take_arrived()) == (400, [])
    assert place in got.json()["error"]["message"], got


FOUND = '"tools":[{"type":"function","name":"forbidden_shell","parameters":{}},{"type":"function","name":"allowed","parameters":{}}]'
HIDDEN_TOOLS: list[tuple[str, str]] = [
    ("openai-responses", '"input":[{"type":"tool_search_call","call_id":"c","execution":"client","arguments":{}},{"type":"tool_search_output","call_id":"c","execution":"client","status":"completed",' + FOUND + "}]"),
    *(
        ("openai-responses", '"input":[{"type":"tool_search_call","execution":"server","call_id":null,"arguments":{}},{"type":"tool_search_output","call_id":null,' + execution + FOUND + "}]")
        for execution in ('"execution":"server","status":"completed",', '"execution":null,', "")
    ),
    ("openai-chat", '"messages":[{"role":"system","content":"x",' + FOUND + "}]"),
    ("openai-chat", '"chat_template_kwargs":{' + FOUND + "}"),
    ("anthropic", '"messages":[{"role":"user","content":"x"},{"role":"system","content":[{"type":"tool_addition","tool":{"type":"tool_definition","definition":{"name":"forbidden_shell","input_schema":{}}}}]}]'),
    ("gemini", '"contents":[{"role":"user","parts":[{"text":"x"}],"tools":[{"functionDeclarations":[' + SHELL + "]}]}]"),
    ("gemini", '"generationConfig":{"functionDeclarations":[' + SHELL + "]}"),
]  # fmt: skip


@pytest.mark.parametrize(("client", "members"), HIDDEN_TOOLS)
def test_rules_find_tools_at_every_place(gate: Guarded, client: str, members: str) -> None:
    model = SMALL_MODELS[client]
    changed = {**request_of(client, model, False), **json.loads(f"{{{members}}}")}
    got = send_raw(gate.port, "POST", path_of(client, model, False), json.dumps(changed).encode(), as_key("ann"))
    arrived = gate.take_arrived()
    assert got.status == 200 if arrived else got.status == 400, got
    assert not [one for one in arrived if b"forbidden" in one.body]


MCP = {"type": "mcp", "server_label": "files", "server_url": "https://mcp.example/"}
TOOLSET = {"type": "mcp_toolset", "mcp_server_name": "files"}
SERVERS = {"mcp_servers": [{"type": "url", "name": "files", "url": "https://mcp.example/"}]}
ONE = {"name": "forbidden_shell", "parameters": {}}
BRINGING_TOOLS: list[tuple[str, dict[str, Any]]] = [
    *(("openai-responses", {"tools": [MCP | allowed]}) for allowed in (
        {"allowed_tools": ["forbidden_shell"]},
        {"allowed_tools": ["search", "forbidden_shell"]},
        {"allowed_tools": {"tool_names": ["forbidden_shell"]}},
        {"allowed_tools": {"read_only": True}},
        {"allowed_tools": []},
        {"allowed_tools": [{"name": "forbidden_shell"}]},
        {"allowed_tools": None},
        {},
        {"type": "MCP", "allowed_tools": ["forbidden_shell"]},
    )),
    ("openai-responses", {"tools": [MCP], "tool_choice": {"type": "mcp", "server_label": "files", "name": "forbidden_shell"}}),
    ("openai-responses", {"tools": [{"type": "function_v2", **ONE}]}),
    ("openai-responses", {"tools": [{"type": "Function", **ONE}]}),
    ("openai-responses", {"tools": [{"type": "agent", "agent": {"functions": {"list": [ONE]}}}]}),
    ("openai-responses", {"tools": [{"type": "namespace", "name": "n", "description": "", "tools": [{"type": "odd", **ONE}]}]}),
    ("openai-responses", {"tools": [{"type": "namespace", "name": "n", "description": "", "tools": [{"type": "mcp", "server_label": "x", "allowed_tools": ["forbidden_shell"]}]}]}),
    ("openai-responses", {"input": [{"type": "additional_tools", "role": "developer", "tools": [{"type": "odd", **ONE}]}]}),
    ("openai-responses", {"prompt": {"id": "pmpt_forbidden", "version": "1"}}),
    ("openai-chat", {"tools": [{"type": "odd", "odd": ONE}]}),
    ("openai-chat", {"tools": [{"type": "odd", "function": ONE}]}),
    ("openai-chat", {"tools": [{"type": "openrouter:subagent", "parameters": {"tools": ["forbidden_shell"]}}]}),
    ("openai-chat", {"tools": [{"type": "function", "function": {"name": "allowed"}, "name": "forbidden_shell"}]}),
    ("openai-chat", {"tools": [{"type": "function", "function": {"name": "allowed"}, "custom": {"name": "forbidden_shell"}}]}),
    ("openai-chat", {"functions": [ONE]}),
    ("openai-chat", {"cached_content": "cachedContents/forbidden"}),
    ("anthropic", {"tools": [{"type": "odd_20990101", **ONE}]}),
    ("anthropic", {**SERVERS, "tools": [TOOLSET]}),
    ("anthropic", {**SERVERS, "tools": [{**TOOLSET, "default_config": {"enabled": False}, "configs": {"forbidden_shell": {"enabled": True}}}]}),
    ("anthropic", {"mcp_servers": [{**SERVERS["mcp_servers"][0], "tool_configuration": {"allowed_tools": ["forbidden_shell"]}}], "tools": [{**TOOLSET, "default_config": {"enabled": False}, "configs": {"search": {}}}]}),
    ("gemini", {"tools": [{"mcpServers": [{"name": "forbidden_files", "streamableHttpTransport": {"url": "https://mcp.example/"}}]}]}),
    ("gemini", {"tools": [{"mcp_servers": [{"name": "files", "streamableHttpTransport": {"url": "https://mcp.example/"}}]}]}),
    ("gemini", {"tools": [{"oddTool": {"functionDeclarations": [ONE]}}]}),
    ("gemini", {"tools": [{"oddTool": [ONE]}]}),
    ("gemini", {"cachedContent": "cachedContents/forbidden"}),
]  # fmt: skip


@pytest.mark.parametrize(("client", "change"), BRINGING_TOOLS)
def test_a_tool_cannot_bring_another_that_rules_drop(gate: Guarded, client: str, change: dict[str, Any]) -> None:
    path, body = _with_members(client, json.dumps(change)[1:-1])
    got = send_raw(gate.port, "POST", path, body, as_key("ann"))
    arrived = gate.take_arrived()
    assert got.status == 200 if arrived else got.status in (400, 403), got
    assert not [
        one for one in arrived if b"forbidden" in one.body or (b"mcp.example" in one.body and b"tools" in one.body)
    ]


ALLOWED_TOOLS: list[tuple[str, dict[str, Any]]] = [
    ("openai-responses", {"tools": [{**MCP, "allowed_tools": ["search"]}]}),
    ("openai-responses", {"tools": [{"type": "file_search", "vector_store_ids": [], "filters": {"type": "eq", "key": "forbidden_x", "value": 1}}]}),
    ("openai-responses", {"tools": [{"type": "odd", "name": "search"}]}),
    ("anthropic", {**SERVERS, "tools": [{**TOOLSET, "default_config": {"enabled": False}, "configs": {"search": {}}}]}),
    ("openai-chat", {"tools": [{"type": "function", "function": {"name": "allowed", "parameters": {"type": "object", "properties": {"name": {"const": "forbidden_x"}, "tools": {"enum": ["forbidden_x"]}}}}}]}),
]  # fmt: skip


@pytest.mark.parametrize(("client", "change"), ALLOWED_TOOLS)
def test_what_brings_none_that_rules_drop_passes(gate: Guarded, client: str, change: dict[str, Any]) -> None:
    path, body = _with_members(client, json.dumps(change)[1:-1])
    got = send_raw(gate.port, "POST", path, body, as_key("ann"))
    [arrived] = gate.take_arrived()
    assert got.status == 200
    assert json.loads(arrived.body)["tools"] == change["tools"]


@pytest.mark.parametrize(
    ("client", "tool"),
    [
        ("anthropic", {"type": "bash_20250124", "name": "innocent"}),
        ("anthropic", {"type": "web_search_20250305", "name": "innocent"}),
        ("openai-responses", {"type": "computer_use_preview"}),
        ("openai-responses", {"type": "code_interpreter", "container": {"type": "auto"}}),
        ("openai-chat", {"type": "openrouter:web_search"}),
        ("openai-chat", {"type": "web_search_preview"}),
        ("openai-chat", {"type": "web_search_2025_08_26"}),
    ],
)
def test_a_vendors_own_tool_cannot_be_called_otherwise(tmp_path: Path, client: str, tool: dict[str, Any]) -> None:
    dropped = "[[policy]]\ntool = {}\ndrop = {}\n".format
    kept = json.dumps([tool.get("name", tool["type"]), "code_execution"])
    path, body = _with_members(client, json.dumps({"tools": [tool]})[1:-1])
    for rules, passes in (
        (dropped('["bash", "web_search", "computer", "code_interpreter"]', "true"), False),
        (f"[[policy]]\ntype = {json.dumps(tool['type'])}\ndrop = true\n", False),
        (dropped('"*"', "true") + dropped(kept, "false"), True),
        (dropped('"other"', "true"), True),
    ):
        with serve_guarded(tmp_path, "", rules) as made:
            assert send_raw(made.port, "POST", path, body).status == 200
            assert (tool["type"].encode() in made.take_arrived()[0].body) is passes


def test_of_two_servers_only_the_one_with_the_dropped_tool_goes(tmp_path: Path) -> None:
    kept, gone = (
        {**MCP, "allowed_tools": ["search"]},
        {**MCP, "server_label": "shell", "allowed_tools": ["forbidden_x"]},
    )
    with serve_guarded(tmp_path, "", POLICY) as made:
        path, body = _with_members("openai-responses", json.dumps({"tools": [gone, kept]})[1:-1])
        assert send_raw(made.port, "POST", path, body).status == 200
        assert json.loads(made.take_arrived()[0].body)["tools"] == [kept]


def test_a_rule_can_keep_servers_whose_tools_are_not_listed(tmp_path: Path) -> None:
    with serve_guarded(tmp_path, "", POLICY + '[[policy]]\ntype = "mcp"\ndrop = false\n') as made:
        path, body = _with_members("openai-responses", json.dumps({"tools": [MCP]})[1:-1])
        assert send_raw(made.port, "POST", path, body).status == 200
        assert b"mcp.example" in made.take_arrived()[0].body


FORWARDED_TOOLS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/completions", {"model": "chat/gpt-small", "prompt": "x", "tools": [{"type": "function", "function": ONE}]}),
    ("/v1/completions", {"model": "chat/gpt-small", "prompt": "x", "functions": [ONE]}),
    ("/v1/completions", {"model": "chat/gpt-small", "prompt": "x", "extra": {"Tools": [ONE]}}),
    ("/v1/completions", {"model": "chat/gpt-small", "prompt": "x", "web_search_options": {"search_context_size": "low"}}),
    ("/v1/complete", {"model": "anthropic/claude-small", "prompt": "x", "mcp_servers": [{"url": "https://mcp.example/"}]}),
    ("/v1/conversations", {"items": [{"type": "additional_tools", "tools": [ONE]}]}),
    ("/v1beta/models/gemini/embed-small:predict", {"instances": [{"functionDeclarations": [ONE]}]}),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body"), FORWARDED_TOOLS)
def test_tools_at_endpoints_that_are_only_forwarded(tmp_path: Path, path: str, body: dict[str, Any]) -> None:
    with serve_guarded(tmp_path, "", POLICY + '[store]\nurl = "none"\n') as made:
        got = send_raw(made.port, "POST", path, json.dumps(body).encode())
        assert (got.status, made.take_arrived()) == (403, []), got
        assert "rules for tools" in got.json()["error"]["message"]
        without = {key: value for key, value in body.items() if key in ("model", "prompt")}
        assert send_raw(made.port, "POST", path, json.dumps(without).encode()).status == 200
    with serve_guarded(tmp_path, "", '[store]\nurl = "none"\n') as made:
        assert send_raw(made.port, "POST", path, json.dumps(body).encode()).status == 200


NO_MCP = '[[policy]]\nname = "no MCP"\ntype = ["mcp", "web_search"]\ndrop = true\n'
SERVER = {"type": "url", "name": "files", "url": "https://mcp.example/"}
PROVIDER_TOOLS: list[tuple[str, dict[str, Any]]] = [
    ("anthropic", {"mcp_servers": [SERVER]}),
    ("anthropic", {"mcp_servers": [SERVER], "tools": [{"type": "mcp_toolset", "mcp_server_name": "files"}]}),
    ("anthropic", {"mcp_servers": [SERVER], "tools": [{"type": "mcp_toolset", "mcp_server_name": "other"}]}),
    ("gemini", {"tools": [{"mcpServers": [SERVER]}]}),
    ("gemini", {"tools": [{"mcp_servers": [SERVER]}]}),
    ("gemini", {"tools": [{"enterpriseWebSearch": {}}]}),
    ("gemini", {"tools": [{"enterprise_web_search": {}}]}),
    ("openai-chat", {"tools": [{"type": "openrouter:web_search"}]}),
    ("openai-responses", {"tools": [{"type": "mcp", "server_label": "files", "server_url": "https://mcp.example/"}]}),
]  # fmt: skip


@pytest.mark.parametrize(("client", "change"), PROVIDER_TOOLS)
def test_rules_for_a_kind_of_tool_hold_for_what_vendors_call_it(
    tmp_path: Path, client: str, change: dict[str, Any]
) -> None:
    with serve_guarded(tmp_path, "", NO_MCP) as made:
        path, body = _with_members(client, json.dumps(change)[1:-1])
        got = send_raw(made.port, "POST", path, body)
        arrived = made.take_arrived()
        assert got.status == 200 if arrived else got.status == 400, got
        assert not [one for one in arrived if b"mcp.example" in one.body or b"earch" in one.body]


def test_too_many_keys(plain: Guarded) -> None:
    """Each costs time, and no API has a thousand."""
    body = b'{"model":"chat/x",%s,%s}' % (MESSAGES.encode(), b",".join(b'"k%d":1' % at for at in range(2000)))
    assert send_raw(plain.port, "POST", "/v1/chat/completions", body).status == 400
    assert plain.take_arrived() == []


FREE_KEYS: list[tuple[str, str]] = [
    ("openai-chat", '"tools":[{"type":"function","function":{"name":"allowed","parameters":{"type":"object","properties":{"Name":{"type":"string"},"name":{"type":"string"},"TYPE":{}}}}}]'),
    ("openai-chat", '"metadata":{"Name":"x","Type":"y","name":"z"}'),
    ("openai-responses", '"tools":[{"type":"function","name":"allowed","parameters":{"type":"object","properties":{"Function":{"type":"string"}}}}]'),
    ("anthropic", '"tools":[{"name":"allowed","input_schema":{"type":"object","properties":{"Name":{},"Type":{}}}}]'),
    ("gemini", '"tools":[{"functionDeclarations":[{"name":"allowed","parametersJsonSchema":{"type":"object","properties":{"Name":{}}}}]}]'),
    ("gemini", '"tools":[{"function_declarations":[{"name":"allowed"}]}]'),
]  # fmt: skip


@pytest.mark.parametrize(("client", "members"), FREE_KEYS)
def test_keys_of_users_own_data_are_free(gate: Guarded, client: str, members: str) -> None:
    path, body = _with_members(client, members)
    got = send_raw(gate.port, "POST", path, body, as_key("ann"))
    assert (got.status, len(gate.take_arrived())) == (200, 1), got


def test_without_rules_and_limits_inner_keys_pass(plain: Guarded) -> None:
    body = (
        b'{"model":"chat/gpt-x","tools":[{"type":"function","function":{"name":"a","Name":"b"}}],%s}'
        % MESSAGES.encode()
    )
    assert send_raw(plain.port, "POST", "/v1/chat/completions", body).status == 200
    assert b'"Name"' in plain.take_arrived()[0].body


LIMITED = '[models.capped]\nprovider = "chat"\nmodel = "gpt-capped"\nmax_output_tokens = 10\n'


@pytest.mark.parametrize("key", ["Max_Tokens", "maxtokens", "MAX_COMPLETION_TOKENS", "max-tokens"])
def test_a_limit_on_tokens_cannot_be_spelled_away(tmp_path: Path, key: str) -> None:
    with serve_guarded(tmp_path, "", LIMITED) as made:
        body = '{"model":"capped","max_tokens":9,%s"%s":999999}'
        plain_body = f'{{"model":"capped",{MESSAGES}}}'.encode()
        assert send_raw(made.port, "POST", "/v1/chat/completions", plain_body).status == 200
        made.take_arrived()
        got = send_raw(made.port, "POST", "/v1/chat/completions", (body % (MESSAGES + ",", key)).encode())
        assert (got.status, made.take_arrived()) == (400, [])


@pytest.mark.parametrize("key", ["ann", "narrow"])
def test_a_model_twice_inside_of_a_batch_of_embeddings(gate: Guarded, key: str) -> None:
    small, large = '"model":"models/gemini/embed-small"', '"model":"models/gemini/embed-large"'
    path = "/v1beta/models/gemini/embed-small:batchEmbedContents"
    for models, sent in ((f"{small},{large}", 0), (f"{large},{small}", 1)):
        body = f'{{"requests":[{{{models},"content":{{"parts":[{{"text":"a"}}]}}}}]}}'
        got = send_raw(gate.port, "POST", path, body.encode(), as_key(key))
        arrived = gate.take_arrived()
        assert (got.status == 400, len(arrived)) == (not sent, sent)
        assert all(b"embed-large" not in one.body for one in arrived)  # what was judged is what is sent


JUDGED = [
    (codec.request_members, name)
    for codec in CODECS.values()
    for name in sorted(codec.request_members.judged.names)
    if name not in codec.request_members.declarations
]


@given(st.sampled_from(JUDGED), st.data())
def test_every_other_spelling_of_a_judged_key_is_found(row: tuple[RequestMembers, str], data: st.DataObject) -> None:
    members, key = row
    changed = "".join(
        data.draw(st.sampled_from([one, one.upper(), f"{one}_", f"-{one}", chr(ord(one) + 0xFEE0)])) for one in key
    )
    assume(changed not in members.judged.names)
    where = data.draw(st.sampled_from(["tools", "messages", "input", "contents"]))
    with pytest.raises(Malformed):
        check_inner_members(members, {where: [{"content": [{changed: 1}]}]})
    check_inner_members(members, {where: [{"parameters": {changed: 1}, "arguments": {changed: 1}, key: 1}]})


# --- multipart forms ---


def form(*parts: tuple[str, str], boundary: str = "XX") -> bytes:
    rows = [f"--{boundary}\r\nContent-Disposition: form-data; {head}\r\n\r\n{value}\r\n" for head, value in parts]
    return ("".join(rows) + f"--{boundary}--\r\n").encode()


FILE = ('name="file"; filename="a.wav"', "\x00data model large")
MULTIPART = "multipart/form-data; boundary=XX"
BAD_FORMS: dict[str, tuple[bytes, str]] = {
    "twice": (form(('name="model"', "large"), FILE, ('name="model"', "small")), MULTIPART),
    "twice, the other way": (form(('name="model"', "small"), FILE, ('name="model"', "large")), MULTIPART),
    "another case": (form(('name="model"', "small"), ('name="Model"', "large")), MULTIPART),
    "a space": (form(('name="model"', "small"), ('name="model "', "large")), MULTIPART),
    "without quotes": (form(('name="model"', "small"), ("name=model", "large")), MULTIPART),
    "two names": (form(('name="x"; name="model"', "large"), ('name="model"', "small")), MULTIPART),
    "an extended name": (form(("name=\"x\"; name*=utf-8''model", "large"), ('name="model"', "small")), MULTIPART),
    "an escaped quote": (form(('name="x\\"; name="model"', "large"), ('name="model"', "small")), MULTIPART),
    "no boundary": (form(('name="model"', "small")), "multipart/form-data"),
    "another boundary": (form(('name="model"', "small")), "multipart/form-data; boundary=YY"),
    "two boundaries": (form(('name="model"', "small")), "multipart/form-data; boundary=YY; boundary=XX"),
    "something before": (b"hello\r\n" + form(('name="model"', "small")), MULTIPART),
    "something after": (form(('name="model"', "small")) + form(('name="model"', "large")), MULTIPART),
    "no end": (form(('name="model"', "small"))[:-8], MULTIPART),
    "bare line feeds": (form(('name="model"', "small")).replace(b"\r\n", b"\n"), MULTIPART),
    "two headers": (
        form(('name="x"\r\nContent-Disposition: form-data; name="model"', "large"), ('name="model"', "small")),
        MULTIPART,
    ),
    "a folded header": (form(('name="x"\r\n ; name="model"', "large"), ('name="model"', "small")), MULTIPART),
    "base64": (form(('name="model"\r\nContent-Transfer-Encoding: base64', "c21hbGw=")), MULTIPART),
    "not a form": (b'{"model":"small"}', MULTIPART),
    "urlencoded": (b"model=large", "application/x-www-form-urlencoded"),
    "empty": (b"", MULTIPART),
}


@pytest.mark.parametrize("what", BAD_FORMS)
@pytest.mark.parametrize("path", ["/v1/audio/transcriptions", "/v1/images/edits"])
def test_a_form_that_could_name_another_model_is_refused(gate: Guarded, path: str, what: str) -> None:
    body, kind = BAD_FORMS[what]
    for key in ("ann", "narrow"):
        got = send_raw(gate.port, "POST", path, body, as_key(key, content_type=kind))
        assert got.status == 400, got
        assert gate.take_arrived() == []


@pytest.mark.parametrize("kind", [MULTIPART, 'multipart/form-data; boundary="XX"', "Multipart/Form-Data;boundary=XX"])
def test_the_models_of_a_key_hold_in_forms(gate: Guarded, kind: str) -> None:
    for model, status in (("small", 200), ("chat/gpt-small-2", 200), ("large", 403), ("../x", 400), ("", 403)):
        body = form(FILE, ('name="model"', model), ('name="language"', "en"))
        got = send_raw(gate.port, "POST", "/v1/audio/transcriptions", body, as_key("narrow", content_type=kind))
        assert got.status == status, got
        arrived = gate.take_arrived()
        assert len(arrived) == (status == 200)
        if arrived:
            name = {"small": "gpt-small"}.get(model, model.removeprefix("chat/"))
            assert arrived[0].body == form(FILE, ('name="model"', name), ('name="language"', "en"))
            assert arrived[0].headers["content-type"] == kind


def test_a_json_body_is_never_sent_in_another_charset(gate: Guarded) -> None:
    body = b'{"model":"small","input":"a"}'
    headers = as_key("narrow", content_type="application/json; charset=utf-16")
    assert send_raw(gate.port, "POST", "/v1/embeddings", body, headers).status == 200
    assert gate.take_arrived()[0].headers["content-type"] == "application/json"


# --- laws ---

KEYS = st.sampled_from(["model", "tools", "stream", "x", "Model", "messages", "a\u0000", "é", "models"])


@given(
    st.lists(st.tuples(KEYS, st.sampled_from(["1", '"a"', "[]", '{"model":"b","model":"c"}'])), max_size=6), st.data()
)
def test_every_repeated_key_is_found_however_it_is_written(pairs: list[tuple[str, str]], data: st.DataObject) -> None:
    def write_key(key: str) -> str:
        escapes = data.draw(st.lists(st.booleans(), min_size=len(key), max_size=len(key)))
        return '"' + "".join(
            f"\\u{ord(one):04x}" if escape or one < " " else one for one, escape in zip(key, escapes, strict=True)
        ) + '"'  # fmt: skip

    space = data.draw(st.sampled_from(["", " ", "\n\t"]))
    rows = [f"{space}{write_key(key)}{space}:{space}{value}" for key, value in pairs]
    body = ("{" + ",".join(rows) + "}").encode()
    names = [key for key, _ in pairs]
    is_repeated = len(set(names)) < len(names)
    for codec in CODECS.values():
        assert ("twice" in check_names(codec.request_members, names).problem) <= is_repeated
        read = read_client_body(codec, body)
        if isinstance(read, ClientBody) and is_repeated:
            assert read.names.problem


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda one: st.lists(one) | st.dictionaries(st.text(), one),
    )
)
def test_what_was_judged_is_what_is_sent_with_stable_bytes(value: Any) -> None:
    """Of a key that is there twice, only the value that was judged is left; and the same body gives the same bytes."""
    inner = json.dumps(value)
    data = f'{{"model": "small", "x": {{"a": 1, "a": {inner}}}}}'.encode()
    body = read_client_body(CODECS["openai-chat"], data)
    assert isinstance(body, ClientBody)
    assert body.write() == data
    assert body.write("large") == data.replace(b"small", b"large", 1)
    judged = body.judge()
    assert judged == json.loads(body.write()) == {"model": "small", "x": {"a": value}}
    assert json.loads(body.write("large")) == {**judged, "model": "large"}
    again = read_client_body(CODECS["openai-chat"], body.write())
    assert isinstance(again, ClientBody)
    again.judge()
    assert again.write() == body.write()
    again.forget_values()
    assert again.judge() == judged
    assert again.write() == body.write()


def test_a_body_that_was_forgotten_is_read_again() -> None:
    data = b'{"model": "small", "messages": [{"role": "user", "content": "half \\ud800"}]}'
    body = read_client_body(CODECS["openai-chat"], data)
    assert isinstance(body, ClientBody)
    for _ in range(2):
        request = body.read_request()
        assert request.turns[0].parts == body.read_request().turns[0].parts
        assert len(body.repairs) == 1
        body.forget_values()
        assert not body.repairs


@pytest.mark.parametrize("protocol", CODECS)
@pytest.mark.parametrize("is_forwarded", [False, True])
def test_no_member_of_a_protocol_is_refused(protocol: str, is_forwarded: bool) -> None:
    members = CODECS[protocol].request_members
    known = members.forwarded if is_forwarded else members.outermost
    others = members.decisive.first_by_other.keys()  # of two spellings only one can be sent
    assert check_names(members, sorted(known - others), is_forwarded) == PLAIN_NAMES
    firsts = {first for other, first in members.decisive.first_by_other.items() if other in known}
    assert check_names(members, sorted(known - firsts), is_forwarded) == PLAIN_NAMES
    rules = CODECS[protocol].constraints
    assert is_forwarded or {rules.tools_key, rules.turns_key} <= members.outermost


# What agents and SDKs send: Codex, Claude Code, Gemini CLI, and clients of servers that are only compatible with Chat.
SENT: list[tuple[str, dict[str, Any]]] = [
    ("openai-responses", {"client_metadata": {"a": "b"}, "include": [], "store": False, "prompt_cache_key": "k"}),
    ("anthropic", {"metadata": {"user_id": "u"}, "context_management": {"edits": []}, "speed": "standard"}),
    ("gemini", {"safety_settings": [], "generation_config": {}, "labels": {"a": "b"}}),
    ("openai-chat", {"top_k": 1, "min_p": 0.1, "guided_json": {}, "enable_thinking": False, "thinking_budget": 1}),
    ("openai-chat", {"chat_template_kwargs": {"enable_thinking": False}, "repetition_penalty": 1.1}),
]


@pytest.mark.parametrize(("client", "change"), SENT)
@pytest.mark.parametrize("key", ["ann", "narrow"])
def test_what_chooses_nothing_passes_with_rules_and_for_a_key_for_some_models(
    gate: Guarded, key: str, client: str, change: dict[str, Any]
) -> None:
    model = SMALL_MODELS[client]
    body = json.dumps({**request_of(client, model, False), **change}).encode()
    got = send_raw(gate.port, "POST", path_of(client, model, False), body, as_key(key))
    assert (got.status, len(gate.take_arrived())) == (200, 1), got


FORWARDED_MEMBERS = [
    ('"purpose":"x"', 200), ('"models":["large"]', 403), ('"next_years_router":1', 403), ('"purpose":"x","purpose":"y"', 400),
    ('"Model":"large"', 400),
]  # fmt: skip


@pytest.mark.parametrize(("members", "status"), FORWARDED_MEMBERS)
def test_what_is_forwarded_and_names_no_model_passes_the_same_checks(tmp_path: Path, members: str, status: int) -> None:
    with serve_guarded(tmp_path, f"shared_objects = true\n{KEY_SETTINGS}") as made:
        got = send_raw(made.port, "POST", "/v1/uploads", f'{{"filename":"a",{members}}}'.encode(), as_key("narrow"))
        assert (got.status, len(made.take_arrived())) == (status, int(status == 200)), got


PROVIDER_KEY = hashlib.sha256(b"tw-key-of-one-provider-0123456789").hexdigest()
ONE_PROVIDER = f'[[server.keys]]\nname = "one"\nsha256 = "{PROVIDER_KEY}"\nproviders = ["chat"]\n'


def test_a_key_for_some_providers_cannot_choose_others(tmp_path: Path) -> None:
    headers = {"authorization": "Bearer tw-key-of-one-provider-0123456789"}
    with serve_guarded(tmp_path, ONE_PROVIDER) as made:
        for more, status in (({}, 200), ({"top_k": 1}, 200), ({"provider": {"only": ["x"]}}, 403), ({"x": 1}, 403)):
            body = chat_body("chat/gpt-small", **more)
            got = send_raw(made.port, "POST", "/v1/chat/completions", body, headers)
            assert (got.status, len(made.take_arrived())) == (status, int(status == 200)), got
