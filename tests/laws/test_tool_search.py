"""Which tools are declared, what a search finds, and in which order tools are added."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolwire.core.ir import Tool
from toolwire.protocols import find_codec
from toolwire.translation.exchange import Exchange, Translation
from toolwire.translation.options import Options
from toolwire.translation.tool_index import ToolIndex, split_words

WORDS = {
    "getUserEmails": "get user email getuseremail",
    "get_user_email": "get user email",
    "HTTPServer2": "http server 2 httpserver2",
    "list-all  queries": "list all query",
    "Größe ändern": "grösse ändern",
    "天气 now": "天 气 now",
    "class status analysis": "class status analysis",
    "": "",
    "___ !!": "",
}


@pytest.mark.parametrize(("text", "words"), WORDS.items())
def test_words(text: str, words: str) -> None:
    assert split_words(text) == words.split()


def parameters(**properties: str) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"description": about} for name, about in properties.items()}}


SHELF = (
    Tool("github__create_issue", "Create an issue in a repository.", parameters(title="The title", labels="Labels")),
    Tool("github__list_issues", "List the issues of a repository.", parameters(state="open or closed")),
    Tool("sendEmail", "Send a message.", parameters(recipient="An address", subject="")),
    Tool("weather", "The forecast.", parameters(city="The name of a town")),
    Tool("convert", None, {"anyOf": [{"properties": {"unit": {"enum": ["celsius", "fahrenheit"]}}}]}),
    Tool("刪除", "删除一个文件"),
    Tool("calendar_add", "Adds an appointment to the calendar.", parameters(attendees="Who comes")),
)
FOUND = {
    "github__list_issues": "github__list_issues",
    "please use `calendar_add`, now": "calendar_add",
    "create issues": "github__create_issue",
    "email": "sendEmail",
    "town": "weather",
    "attendee": "calendar_add",
    "FAHRENHEIT": "convert",
    "repo": "github__list_issues",
    "文件": "刪除",
    "xylophone": None,
    "": None,
    "the of a tool": None,
}


@pytest.mark.parametrize(("query", "name"), FOUND.items())
def test_what_is_found_first(query: str, name: str | None) -> None:
    found = ToolIndex(SHELF).search(query, 5)
    assert (SHELF[found[0]].name if found else None) == name


@given(st.lists(st.text(max_size=30), max_size=20), st.text(max_size=60))
@settings(max_examples=60)
def test_any_texts(texts: list[str], query: str) -> None:
    """Never an error, never a tool twice; the order of the words does not matter."""
    tools = [Tool(text, text[::-1], {"properties": {text: text}, "enum": [text, 1]}) for text in texts]
    found = ToolIndex(tools).search(query, 4)
    assert len(set(found)) == len(found) <= 4
    assert all(0 <= number < len(tools) for number in found)
    turned = " ".join(reversed(query.split(" ")))
    assert ToolIndex(tools).search(turned, 4) == found


# --- which tools are declared ---


def chat_tools(count: int, *names: str) -> list[Any]:
    listed = [*(f"tool_{number}" for number in range(count)), *names]
    return [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in listed]


def translate_tools(body: dict[str, Any], source: str, target: str, **options: Any) -> tuple[Exchange, Translation]:
    given = Options(**{"model": "some-model", "tool_search": "gateway", **options})
    exchange = Exchange(find_codec(source), find_codec(target), given)
    return exchange, exchange.translate_request(json.dumps(body).encode())


def names_of(translation: Translation) -> list[str]:
    body = translation.json()
    tools = body.get("tools") or body.get("toolConfig", {}).get("tools") or ()
    inner = [one for tool in tools for one in tool.get("functionDeclarations") or tool.get("tools") or [tool]]
    inner = [tool for tool in inner if "cachePoint" not in tool]
    return [(tool.get("function") or tool.get("toolSpec") or tool).get("name") for tool in inner]


def chat(*messages: Any, tools: Sequence[Any], **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "Hi"}, *messages], "tools": [*tools], **more}


def call_and_result(name: str, id: str = "call_1") -> list[Any]:
    call = {"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}}
    return [{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": id, "content": "ok"}]


FIRST = [f"tool_{number}" for number in range(32)]
BODIES = {
    "as many as are declared": (chat(tools=chat_tools(32)), FIRST),
    "one more": (chat(tools=chat_tools(33)), [*FIRST, "search_tools"]),
    "in the history": (
        chat(*call_and_result("tool_50"), *call_and_result("tool_40", "call_2"), tools=chat_tools(60)),
        [*FIRST, "search_tools", "tool_50", "tool_40"],
    ),
    "forced": (
        chat(tools=chat_tools(60), tool_choice={"type": "function", "function": {"name": "tool_44"}}),
        [*FIRST, "search_tools", "tool_44"],
    ),
    "a tool of that name": (chat(tools=[*chat_tools(1, "search_tools"), *chat_tools(40)[1:]]), None),
    "twice the same": (chat(tools=[*chat_tools(20), *chat_tools(20)]), FIRST[:20]),
}


@pytest.mark.parametrize("target", ["openai-chat", "openai-responses", "anthropic", "gemini", "bedrock-converse"])
@pytest.mark.parametrize("name", BODIES)
def test_declared_tools(name: str, target: str) -> None:
    body, expected = BODIES[name]
    _, translation = translate_tools(body, "openai-chat", target)
    if expected is None:
        assert names_of(translation)[-1] == "search_tools_2"
        assert names_of(translation)[1] == "search_tools"
    else:
        assert names_of(translation) == expected
    deferred = {tool["function"]["name"] for tool in body["tools"]} - {*names_of(translation)}
    notes = [loss for loss in translation.losses if loss.code == "tool-deferred"]
    assert {loss.what.split("`")[1] for loss in notes} == deferred
    assert {loss.severity for loss in notes} <= {"changed"}


def test_off_by_default_and_for_several_answers() -> None:
    for body, options in (
        (chat(tools=chat_tools(200)), {"tool_search": "off"}),
        (chat(tools=chat_tools(200), n=2), {}),
        (chat(tools=chat_tools(32)), {}),
    ):
        exchange, translation = translate_tools(body, "openai-chat", "openai-chat", **options)
        assert translation.json()["tools"] == body["tools"]
        assert not exchange.has_tool_search
        assert not exchange.can_take_rounds


def anthropic_tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": f"Does {name}.", "input_schema": {"type": "object"}, **more}


ANTHROPIC_SEARCH = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}


@pytest.mark.parametrize("target", ["openai-chat", "openai-responses", "anthropic", "gemini", "bedrock-converse"])
@pytest.mark.parametrize("searches", [[ANTHROPIC_SEARCH], []], ids=["vendor's search", "own search"])
def test_tools_that_the_client_defers(target: str, searches: list[Any]) -> None:
    """As few as they are. Anthropic's own search is replaced; a reference in a result loads a tool as ours does."""
    tools = [
        *searches,
        anthropic_tool("first"),
        anthropic_tool("later", defer_loading=True),
        anthropic_tool("last"),
        anthropic_tool("never", defer_loading=True, cache_control={"type": "ephemeral"}),
        anthropic_tool("soon", defer_loading=True),
    ]
    found = {
        "type": "tool_result",
        "tool_use_id": "toolu_1",
        "content": [{"type": "tool_reference", "tool_name": "soon"}],
    }
    use = {"type": "tool_use", "id": "toolu_2", "name": "later", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_2", "content": "ok"}
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "first", "input": {}}]},
        {"role": "user", "content": [found]},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
    ]
    body = {"model": "m", "max_tokens": 100, "tools": tools}
    start = translate_tools({**body, "messages": messages[:1]}, "anthropic", target)[1]
    whole = translate_tools({**body, "messages": messages}, "anthropic", target)[1]
    assert names_of(start) == ["first", "last", "search_tools"]
    assert names_of(whole) == [*names_of(start), "soon", "later"]
    assert ("tool-substituted" in whole.ledger.codes) == bool(searches)
    assert "opaque-dropped" not in whole.ledger.codes
    assert "defer_loading" not in whole.body.decode()
    if target == "anthropic":
        assert start.json()["tools"][-1]["cache_control"] == {"type": "ephemeral"}


def responses_tool(name: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "function",
        "name": name,
        "parameters": {"type": "object", "properties": {}},
        "strict": False,
        **more,
    }


def namespace(name: str, *names: str) -> dict[str, Any]:
    inner = [responses_tool(one, defer_loading=True) for one in names]
    return {"type": "namespace", "name": name, "description": f"All of {name}.", "tools": inner}


LOADED = {
    "openai-responses": ["plain", "search_tools", "draw", "list"],
    "openai-chat": ["plain", "search_tools", "mail__list"],
}


@pytest.mark.parametrize("target", LOADED)
def test_namespaces(target: str) -> None:
    """Responses has each namespace once, so it is loaded as a whole; elsewhere its tools are loaded one by one."""
    tools = [
        {"type": "tool_search"},
        responses_tool("plain"),
        namespace("mail", "draw", "list"),
        namespace("files", "list", "open"),
    ]
    item = {"type": "function_call", "call_id": "call_1", "namespace": "mail", "name": "list", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "call_1", "output": "ok"}
    body = {"model": "m", "input": [{"role": "user", "content": "Hi"}, item, output], "tools": tools}
    _, translation = translate_tools(body, "openai-responses", target)
    names = [name.rpartition("__")[2] if name != "mail__list" else name for name in names_of(translation)]
    assert names == LOADED[target]
    assert {"type": "tool_search"} not in translation.json()["tools"]


def test_the_clients_own_search_is_declared() -> None:
    """Codex searches itself, and its result holds the tools."""
    tools = [*(responses_tool(f"tool_{number}") for number in range(40))]
    codex = {
        "type": "tool_search",
        "execution": "client",
        "description": "Finds tools.",
        "parameters": {"type": "object"},
    }
    call = {"type": "tool_search_call", "call_id": "call_1", "execution": "client", "arguments": {"query": "mail"}}
    output = {
        "type": "tool_search_output",
        "call_id": "call_1",
        "execution": "client",
        "tools": [responses_tool("mail")],
    }
    body = {"model": "m", "input": [{"role": "user", "content": "Hi"}, call, output], "tools": [*tools, codex]}
    _, translation = translate_tools(body, "openai-responses", "openai-chat")
    assert names_of(translation) == [*FIRST, "tool_search", "search_tools", "mail"]


# --- rounds ---


def answer(name: str, arguments: str, id: str) -> bytes:
    call = {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
    choice = {"index": 0, "message": {"role": "assistant", "content": None, "tool_calls": [call]}}
    return json.dumps(
        {"id": "x", "object": "chat.completion", "choices": [{**choice, "finish_reason": "tool_calls"}]}
    ).encode()


ARGUMENTS = {
    "as declared": '{"query": "tool_150"}',
    "another key": '{"name": "tool_150"}',
    "a list": '{"queries": ["tool_150"]}',
    "not JSON": "tool_150",
}


@pytest.mark.parametrize("arguments", ARGUMENTS.values(), ids=ARGUMENTS.keys())
def test_a_search_declares_what_it_finds(arguments: str) -> None:
    exchange, translation = translate_tools(chat(tools=chat_tools(200)), "openai-chat", "openai-chat", model="gpt-5.5")
    rounds = exchange.add_round(answer("search_tools", arguments, "call_1"))
    assert rounds is not None
    assert rounds.needs_next_round
    assert rounds.calls_to_run() == []
    body = json.loads(exchange.next_request(rounds, rounds.complete_results(())))
    assert body["tools"][: len(translation.json()["tools"])] == translation.json()["tools"]
    assert body["tools"][33]["function"]["name"] == "tool_150"
    found = json.loads(body["messages"][-1]["content"])["loaded"]
    assert found[0]["name"] == "tool_150"
    assert exchange.add_round(answer("tool_150", "{}", "call_2")) is not None
    whole = exchange.translate_response(answer("tool_150", "{}", "call_2"))
    assert [call["function"]["name"] for call in whole.json()["choices"][0]["message"]["tool_calls"]] == ["tool_150"]


def test_never_more_than_the_provider_takes() -> None:
    """What was never called goes first."""
    history = [message for number in range(40, 100) for message in call_and_result(f"tool_{number}", f"call_{number}")]
    tools = chat_tools(300)
    exchange, translation = translate_tools(
        chat(*history, tools=tools), "openai-chat", "openai-chat", model="gpt-5.5", direct_tools=60
    )
    assert len(translation.json()["tools"]) <= 128
    for number in range(12):
        rounds = exchange.add_round(answer("search_tools", f'{{"query": "tool_{200 + number}"}}', f"call_s{number}"))
        assert rounds is not None
        body = json.loads(exchange.next_request(rounds, rounds.complete_results(())))
        names = [tool["function"]["name"] for tool in body["tools"]]
        assert len(names) <= 128
        assert f"tool_{200 + number}" in names
        assert names[:61] == names_of(translation)[:61]
        assert {f"tool_{number}" for number in range(60, 100)} <= {*names}


def make_answer(text: str) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return json.dumps({"id": "x", "object": "chat.completion", "choices": [choice]}).encode()


def test_tools_in_the_prompt() -> None:
    """A model without tools searches by text, and finds the declaration in its prompt."""
    options = {"tool_prompt": "hermes", "tool_format": "hermes", "direct_tools": 2}
    exchange, translation = translate_tools(chat(tools=chat_tools(200)), "openai-chat", "openai-chat", **options)
    first = translation.json()["messages"][0]["content"]
    assert "tools" not in translation.json()
    assert "search_tools" in first
    assert "tool_150" not in first
    asked = '<tool_call>\n{"name": "search_tools", "arguments": {"query": "tool_150"}}\n</tool_call>'
    rounds = exchange.add_round(make_answer(asked))
    assert rounds is not None
    assert rounds.needs_next_round
    body = json.loads(exchange.next_request(rounds, rounds.complete_results(())))
    assert '"tool_150"' in body["messages"][0]["content"]
    assert "tool_150" in body["messages"][-1]["content"]
