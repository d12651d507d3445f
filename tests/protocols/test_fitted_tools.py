"""Tools of a request: a choice names only tools that are sent, deferred tools stay within reach, no provider gets more
tools than it accepts, and a conversation with calls but without tools is one that Anthropic accepts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolwire import Refused, translate
from toolwire.gateway.settings.router import codec_with_quirks
from toolwire.policy.rules import Rule
from toolwire.protocols import find_codec
from toolwire.translation.exchange import Exchange, Translation
from toolwire.translation.options import Options
from toolwire_conformance.peers import find_violations

MODELS = {
    "openai-chat": "gpt-4.1",
    "openai-responses": "gpt-5.6",
    "anthropic": "claude-opus-4-8",
    "gemini": "gemini-2.5-pro",
}
OBJECT = {"type": "object", "properties": {}}
USER = {"role": "user", "content": "Hello."}


def responses_request(tools: list[Any], **more: Any) -> dict[str, Any]:
    return {"model": "m", "input": [USER], "tools": tools, "store": False, **more}


def function(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "function", "name": name, "description": "d", "parameters": OBJECT, **more}


def send(body: Any, source: str, target: str, **options: Any) -> Translation:
    sent = translate(body, "request", source=source, target=target, model=MODELS[target], **options)
    assert find_violations(target, sent.json(), MODELS[target]) == []
    return sent


def declared_names(body: Any) -> list[str]:
    """The names of the functions in a request of any protocol."""
    found = []
    for tool in body.get("tools", ()):
        entries = tool.get("functionDeclarations") or [tool.get("function", tool)]
        found += [entry["name"] for entry in entries if "name" in entry]
    return found


def chosen(body: Any) -> set[str]:
    """The names in the tool choice of a request of any protocol."""
    if config := body.get("toolConfig", {}).get("functionCallingConfig"):
        return set(config.get("allowedFunctionNames", ()))
    choice = body.get("tool_choice")
    if not isinstance(choice, dict):
        return set()
    listed = choice.get("tools") or choice.get("allowed_tools", {}).get("tools") or [choice]
    names = [item.get("function", item.get("custom", item)).get("name") for item in listed]
    return {name for name in names if name}


def mode(body: Any) -> str:
    if config := body.get("toolConfig", {}).get("functionCallingConfig"):
        return str(config["mode"]).lower()
    choice = body.get("tool_choice")
    return str(choice.get("type")) if isinstance(choice, dict) else str(choice)


# --- the choice -------------------------------------------------------------------------------------------------------

LOST_TOOLS: dict[str, tuple[Any, Any]] = {
    "an image generator": ({"type": "image_generation"}, {"type": "image_generation"}),
    "an MCP server": (
        {"type": "mcp", "server_label": "s", "server_url": "https://example.com"},
        {"type": "mcp", "server_label": "s"},
    ),
    "a file search": ({"type": "file_search", "vector_store_ids": ["v"]}, {"type": "file_search"}),
    "a tool that is not declared": (function("g"), {"type": "function", "name": "nowhere"}),
}


@pytest.mark.parametrize("target", ["openai-chat", "anthropic", "gemini"])
@pytest.mark.parametrize("name", LOST_TOOLS)
def test_a_forced_choice_of_a_tool_that_is_not_sent_is_left_to_the_model(name: str, target: str) -> None:
    tool, choice = LOST_TOOLS[name]
    sent = send(responses_request([function("f"), tool], tool_choice=choice), "openai-responses", target)
    assert chosen(sent.json()) <= set(declared_names(sent.json()))
    assert mode(sent.json()) in ("auto", "None")
    assert "choice-weakened" in {loss.code for loss in sent.losses}


@pytest.mark.parametrize("required", [False, True])
@pytest.mark.parametrize("target", ["openai-chat", "anthropic", "gemini"])
@pytest.mark.parametrize("name", LOST_TOOLS)
def test_allowed_tools_name_only_those_that_are_sent(name: str, target: str, required: bool) -> None:
    tool, choice = LOST_TOOLS[name]
    allowed = [choice, {"type": "function", "name": "f"}]
    subset = {"type": "allowed_tools", "mode": "required" if required else "auto", "tools": allowed}
    sent = send(responses_request([function("f"), function("h"), tool], tool_choice=subset), "openai-responses", target)
    assert chosen(sent.json()) <= {"f"}
    assert "h" not in declared_names(sent.json()) or chosen(sent.json()) == {"f"}
    # Where no allowed tool is sent, no other may be called.
    subset = {**subset, "tools": [choice]}
    sent = send(responses_request([function("f"), tool], tool_choice=subset), "openai-responses", target)
    assert mode(sent.json()) == "none"


@pytest.mark.parametrize("target", ["openai-chat", "openai-responses", "gemini"])
@pytest.mark.parametrize("forced", [{"type": "any"}, {"type": "tool", "name": "gizmo"}])
def test_a_forced_choice_without_any_tool(forced: Any, target: str) -> None:
    """The only tool is one that this provider does not run."""
    tools = [{"type": "gizmo_20991231", "name": "gizmo"}]
    body = {"model": "m", "max_tokens": 99, "messages": [USER], "tools": tools, "tool_choice": forced}
    sent = send(body, "anthropic", target)
    assert not declared_names(sent.json())
    assert mode(sent.json()) in ("None", "auto")


@pytest.mark.parametrize("protocol", ["openai-chat", "openai-responses", "anthropic"])
def test_a_choice_of_a_tool_that_a_policy_drops(protocol: str) -> None:
    bodies = {
        "openai-chat": {
            "messages": [USER],
            "tools": [{"type": "function", "function": {"name": name, "parameters": OBJECT}} for name in "fg"],
            "tool_choice": {"type": "function", "function": {"name": "f"}},
        },
        "openai-responses": responses_request([function("f"), function("g")], tool_choice=function_choice("f")),
        "anthropic": {
            "max_tokens": 99,
            "messages": [USER],
            "tools": [{"name": name, "input_schema": OBJECT} for name in "fg"],
            "tool_choice": {"type": "tool", "name": "f"},
        },
    }
    for target, model in MODELS.items():
        options = Options(policy=(Rule(tool=("f",), drop=True),), model=model)
        exchange = Exchange(find_codec(protocol), find_codec(target), options)
        body = exchange.translate_request({"model": "m", **bodies[protocol]}).json()
        assert declared_names(body) == ["g"]
        assert chosen(body) <= {"g"}
        assert find_violations(target, body, model) == []


def function_choice(name: str) -> dict[str, Any]:
    return {"type": "function", "name": name}


KINDS = st.sampled_from(
    [*[tool for tool, _ in LOST_TOOLS.values()], {"type": "web_search"}, function("f"), function("h")]
)
CHOICES = st.one_of(
    st.sampled_from(["auto", "none", "required"]),
    st.sampled_from([choice for _, choice in LOST_TOOLS.values()] + [function_choice("f"), {"type": "web_search"}]),
    st.builds(
        lambda tools, how: {"type": "allowed_tools", "mode": how, "tools": tools},
        st.lists(st.sampled_from([choice for _, choice in LOST_TOOLS.values()] + [function_choice("f")]), min_size=1),
        st.sampled_from(["auto", "required"]),
    ),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(KINDS, max_size=4, unique_by=repr), CHOICES, st.sampled_from(["openai-chat", "anthropic", "gemini"]))
def test_no_choice_ever_names_a_tool_that_is_not_sent(tools: list[Any], choice: Any, target: str) -> None:
    sent = send(responses_request(tools, tool_choice=choice), "openai-responses", target).json()
    assert chosen(sent) <= set(declared_names(sent))


# --- deferred tools ---------------------------------------------------------------------------------------------------

SEARCH = {"type": "tool_search"}


@pytest.mark.parametrize("target", ["openai-chat", "anthropic", "gemini"])
def test_deferred_tools_are_loaded_when_their_search_was_left_out(target: str) -> None:
    tools = [SEARCH, function("f"), function("g", defer_loading=True), function("h", defer_loading=True)]
    sent = send(responses_request(tools), "openai-responses", target)
    assert declared_names(sent.json()) == ["f", "g", "h"]
    assert "defer_loading" not in sent.body.decode()
    assert {"/tools/2", "/tools/3"} <= {loss.path for loss in sent.losses}


ANTHROPIC_SEARCH = {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}


def anthropic_tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "input_schema": OBJECT, **more}


@pytest.mark.parametrize("target", ["openai-chat", "openai-responses", "gemini"])
def test_the_same_for_clients_of_anthropic(target: str) -> None:
    tools = [ANTHROPIC_SEARCH, anthropic_tool("f"), anthropic_tool("g", defer_loading=True)]
    body = {"model": "m", "max_tokens": 99, "messages": [USER], "tools": tools}
    sent = send(body, "anthropic", target)
    assert declared_names(sent.json()) == ["f", "g"]
    assert "defer_loading" not in sent.body.decode()


def test_a_policy_that_drops_the_search_loads_what_it_would_find() -> None:
    anthropic = {"tools": [ANTHROPIC_SEARCH, anthropic_tool("f"), anthropic_tool("g", defer_loading=True)]}
    bodies: dict[str, tuple[Any, str]] = {
        "anthropic": ({"max_tokens": 99, "messages": [USER], **anthropic}, "tool_search_tool_regex*"),
        "openai-responses": (
            responses_request([SEARCH, function("f"), function("g", defer_loading=True)]),
            "tool_search",
        ),
    }
    for protocol, (body, search) in bodies.items():
        codec = find_codec(protocol)
        for rules in ((), (Rule(tool=(search,), drop=True),)):
            exchange = Exchange(codec, codec, Options(policy=rules, model=MODELS[protocol]))
            text = exchange.translate_request({"model": "m", **body}).body.decode()
            assert ("defer_loading" in text) == ("tool_search" in text), (protocol, rules, text)


def test_a_client_of_anthropic_may_run_a_search_of_its_own() -> None:
    tools = [anthropic_tool("find_tools"), anthropic_tool("g", defer_loading=True)]
    body = {"model": "claude-opus-4-7", "max_tokens": 99, "messages": [USER], "tools": tools}
    assert send(body, "anthropic", "anthropic").json()["tools"] == tools


# --- too many tools ---------------------------------------------------------------------------------------------------

LIMITS = {"openai-chat": 128, "openai-responses": 128, "anthropic": None, "gemini": 512}


def many(count: int, **more: Any) -> dict[str, Any]:
    return {
        "model": "m",
        "max_tokens": 99,
        "messages": [USER],
        "tools": [anthropic_tool(f"t{number}") for number in range(count)],
        **more,
    }


@pytest.mark.parametrize("target", ["openai-chat", "openai-responses", "gemini"])
def test_the_first_tools_are_sent_and_the_others_reported(target: str) -> None:
    limit = LIMITS[target] or 0
    for count in (limit - 1, limit, limit + 1, limit + 172):
        sent = send(many(count), "anthropic", target)
        assert declared_names(sent.json()) == [f"t{number}" for number in range(min(count, limit))]
        dropped = [loss for loss in sent.losses if loss.code == "tool-dropped"]
        assert [loss.path for loss in dropped] == [f"/tools/{number}" for number in range(limit, count)]
        assert all(str(limit) in loss.why and "policy" in loss.why for loss in dropped)


def test_a_tool_that_the_choice_names_is_among_those_that_are_sent() -> None:
    sent = send(many(300, tool_choice={"type": "tool", "name": "t250"}), "anthropic", "openai-chat").json()
    assert declared_names(sent) == [*(f"t{number}" for number in range(127)), "t250"]
    assert chosen(sent) == {"t250"}


def test_deferred_tools_give_way_first() -> None:
    body = many(0)
    body["tools"] = [anthropic_tool(f"t{number}", defer_loading=number < 200) for number in range(300)]
    names = declared_names(send(body, "anthropic", "openai-chat").json())
    assert len(names) == 128
    assert set(names) > {f"t{number}" for number in range(200, 300)}


@pytest.mark.parametrize("server", ["alpha_{}", "mcp__alpha__{}", "mcp_alpha_{}"])
def test_an_agents_own_tools_and_those_in_use_stay_first(server: str) -> None:
    """opencode declares its tools in alphabetical order."""
    called, own = server.format("do_140"), ["read", "task", "todo_write", "write"]
    names = [server.format(f"do_{number}") for number in range(150)] + own
    call = {"type": "tool_use", "id": "a", "name": called, "input": {}}
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "done"}]}
    messages = [USER, {"role": "assistant", "content": [call]}, result]
    sent = send(many(0, tools=[*map(anthropic_tool, names)], messages=messages), "anthropic", "openai-chat")
    assert declared_names(sent.json()) == [*names[:123], called, *own]


def test_strictly_it_is_refused() -> None:
    with pytest.raises(Refused, match="t128"):
        translate(many(129), "request", source="anthropic", target="openai-chat", model="gpt-5", strict=True)


@pytest.mark.parametrize("model", ["qwen3-coder", "deepseek-v4", "gpt-oss-120b", "llama-4"])
def test_other_servers_get_all_tools(model: str) -> None:
    sent = translate(many(300), "request", source="anthropic", target="openai-chat", model=model)
    assert len(declared_names(sent.json())) == 300


def test_the_limit_holds_within_chat_too() -> None:
    tools = [{"type": "function", "function": {"name": f"t{number}", "parameters": OBJECT}} for number in range(130)]
    body = {"model": "gpt-4.1", "messages": [USER], "tools": tools}
    sent = send(body, "openai-chat", "openai-chat")
    assert sent.json() == {**body, "tools": tools[:128]}
    assert [loss.path for loss in sent.losses] == ["/tools/128", "/tools/129"]


def test_the_limit_holds_within_gemini_too() -> None:
    declarations = [{"name": f"t{number}", "parametersJsonSchema": OBJECT} for number in range(514)]
    contents = [{"role": "user", "parts": [{"text": "Hello."}]}]
    body = {"contents": contents, "tools": [{"functionDeclarations": declarations}]}
    sent = send(body, "gemini", "gemini")
    assert sent.json() == {**body, "tools": [{"functionDeclarations": declarations[:512]}]}
    assert [loss.code for loss in sent.losses] == ["tool-dropped"] * 2


# --- a conversation with calls and no tools ---------------------------------------------------------------------------


def chat_history(*names: str) -> list[Any]:
    messages: list[Any] = [USER]
    for number, name in enumerate(names):
        call = {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": "{}"}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": "done"})
    return [*messages, {"role": "user", "content": "Summarise."}]


@pytest.mark.parametrize("tools", [{}, {"tools": []}])
@pytest.mark.parametrize("model", ["claude-opus-5-5", "claude-sonnet-4-5", "claude-3-5-haiku-20241022"])
def test_a_summary_of_calls_declares_what_was_called_and_forbids_calls(model: str, tools: Any) -> None:
    body = {"model": model, "messages": chat_history("read", "write", "read", "a.b"), **tools}
    sent = translate(body, "request", source="openai-chat", target="anthropic")
    out = sent.json()
    assert find_violations("anthropic", out) == []
    blocks = [block for turn in out["messages"] if isinstance(turn["content"], list) for block in turn["content"]]
    called = [block["name"] for block in blocks if block["type"] == "tool_use"]
    assert declared_names(out) == list(dict.fromkeys(called))
    assert len(declared_names(out)) == 3
    assert out["tool_choice"] == {"type": "none"}
    assert "tools-added" in {loss.code for loss in sent.losses}


def test_codex_and_gemini_too() -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c1", "output": "done"}
    body: Any = {"model": "m", "input": [USER, call, result, {"role": "user", "content": "Summarise."}]}
    assert declared_names(send(body, "openai-responses", "anthropic").json()) == ["read"]
    contents = [
        {"role": "user", "parts": [{"text": "Hello."}]},
        {"role": "model", "parts": [{"functionCall": {"name": "read", "args": {}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "read", "response": {"output": "done"}}}]},
    ]
    assert declared_names(send({"contents": contents}, "gemini", "anthropic").json()) == ["read"]


def test_tools_that_are_there_stay_as_they_are() -> None:
    tool = {"type": "function", "function": {"name": "other", "parameters": OBJECT}}
    body = {"model": "m", "messages": chat_history("read"), "tools": [tool]}
    out = send(body, "openai-chat", "anthropic").json()
    assert declared_names(out) == ["other"]
    assert "tool_choice" not in out


def test_a_policy_that_drops_all_tools_of_a_conversation() -> None:
    use = {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}]}
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "done"}]}
    body = {"model": "m", "max_tokens": 99, "messages": [USER, use, result], "tools": [anthropic_tool("f")]}
    options = Options(policy=(Rule(tool=("f",), drop=True),), model=MODELS["anthropic"])
    out = Exchange(find_codec("anthropic"), find_codec("anthropic"), options).translate_request(body).json()
    assert find_violations("anthropic", out) == []


@pytest.mark.parametrize("target", ["openai-chat", "anthropic", "gemini"])
@pytest.mark.parametrize("mode_word", ["auto", "required"])
def test_a_choice_that_allows_no_tool_forbids_all(target: str, mode_word: str) -> None:
    body = responses_request([function("f")], tool_choice={"type": "allowed_tools", "mode": mode_word, "tools": []})
    sent = send(body, "openai-responses", target)
    assert mode(sent.json()) == "none"


@pytest.mark.parametrize("target", MODELS)
def test_no_prompt_forces_a_tool_that_the_server_does_not_run(target: str) -> None:
    body = responses_request([{"type": "web_search"}, function("f")], tool_choice={"type": "web_search"})
    server = codec_with_quirks(target, ("no-hosted-tools",))
    options = Options(model=MODELS[target], tool_prompt="hermes")
    sent = Exchange(find_codec("openai-responses"), server, options).translate_request(body)
    assert b"You must call" not in sent.body
    assert {"tool-dropped", "choice-weakened"} <= {loss.code for loss in sent.losses}


def test_json_is_no_call_where_the_forced_tool_was_left_out() -> None:
    """JSON in the middle of a text is a call only where the model had to make one."""
    body = responses_request([{"type": "web_search"}, function("f")], tool_choice={"type": "web_search"})
    server = codec_with_quirks("openai-chat", ("no-hosted-tools",))
    exchange = Exchange(find_codec("openai-responses"), server, Options(model="m", tool_format="auto"))
    assert exchange.translate_request(body).json()["tool_choice"] == "auto"
    message = {"role": "assistant", "content": 'It made this call: {"name": "f", "arguments": {}}'}
    answer = {"id": "c", "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    assert exchange.translate_response(answer).called_tools == ()


@pytest.mark.parametrize("target", ["openai-chat", "anthropic", "gemini"])
def test_a_choice_that_allows_only_what_the_server_does_not_run_forbids_all(target: str) -> None:
    choice = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "web_search"}]}
    body = responses_request([{"type": "web_search"}, function("f")], tool_choice=choice)
    server = codec_with_quirks(target, ("no-hosted-tools",))
    sent = Exchange(find_codec("openai-responses"), server, Options(model=MODELS[target])).translate_request(body)
    assert mode(sent.json()) == "none"
    assert {"tool-dropped", "choice-weakened"} <= {loss.code for loss in sent.losses}
