"""Searches and fetches that a provider runs itself: how each protocol tells them, and what stands in for them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from toolwire.core.ir import (
    Call,
    Citation,
    ProviderCall,
    ProviderResult,
    ProviderTool,
    Request,
    Result,
    Text,
    Tool,
    ToolChoice,
    ToolName,
    Turn,
    strip_origins,
)
from toolwire.core.losses import ADDED_ORIGIN, Ledger
from toolwire.core.provider_tools import as_provider_call, fetched_url, find_sources, provider_arguments, search_queries
from toolwire.protocols import find_codec
from toolwire.translation.exchange import Exchange
from toolwire.translation.options import Options
from toolwire.translation.request_steps.tools import substitute_provider_tools
from toolwire.translation.translate import translate

LOOK = Tool("docs__look", "Searches.", {"type": "object", "properties": {"q": {"type": "string"}}})
URL = "https://example.com/a"

# --- words of no protocol ---


@pytest.mark.parametrize(
    ("arguments", "queries"),
    [
        ('{"query":"a"}', ["a"]),
        ('{"query":"a","queries":["a","b"]}', ["a", "b"]),
        ('{"q":"a"}', ["a"]),
        ('{"search_term":""}', []),
        ("no JSON", []),
        ("", []),
    ],
)
def test_what_was_looked_for(arguments: str, queries: list[str]) -> None:
    assert search_queries(arguments) == queries


def test_a_function_is_asked_in_its_own_words() -> None:
    assert provider_arguments("web_search", '{"q":"a","count":3}') == '{"query":"a"}'
    assert provider_arguments("web_search", '{"queries":["a","b"]}') == '{"queries":["a","b"]}'
    assert provider_arguments("web_search", '{"depth":3}') == '{"depth":3}'
    assert provider_arguments("web_fetch", '{"uri":"https://a"}') == '{"url":"https://a"}'
    assert fetched_url('{"urls":["https://a","https://b"]}') == "https://a"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f'[{{"title":"A","url":"{URL}"}},{{"name":"B","link":"https://b.example"}}]', [(URL, "A"), ("https://b.example", "B")]),
        (f'{{"results":{{"web":[{{"url":"{URL}","title":"A"}}]}}}}', [(URL, "A")]),
        (f"See [A]({URL}), and https://b.example/x.", [(URL, "A"), ("https://b.example/x", "")]),
        (f"Title: A\nDescription: of it\nURL: {URL}\n\nTitle: B\nURL: https://b.example\n", [(URL, "A"), ("https://b.example", "B")]),
        (f"**Title:** A\n**URL:** {URL}", [(URL, "A")]),
        ("Nothing of the kind.", []),
        ('{"broken": ', []),
        ('{"url": "ftp://a"}', []),
        (f"{URL} and again {URL}", [(URL, "")]),
    ],
)  # fmt: skip
def test_pages_that_a_result_names(text: str, found: list[tuple[str, str]]) -> None:
    assert [(page.url, page.title) for page in find_sources(text)] == found


def test_a_result_has_no_end_of_pages() -> None:
    assert len(find_sources(" ".join(f"https://e.example/{number}" for number in range(200)))) == 50


def test_a_call_of_a_function_shown_as_a_search() -> None:
    call = Call("c1", "docs__look", '{"q":"a"}')
    made, found = strip_origins(as_provider_call(call, Result("c1", (Text(f"[A]({URL}) is old."),)), "web_search"))
    assert made == ProviderCall("c1", "web_search", '{"query":"a"}')
    assert found == ProviderResult("c1", "web_search", (Citation(URL, "A"),))
    _, bare = strip_origins(as_provider_call(call, Result("c1", (Text("It is old."),)), "web_search"))
    assert bare == ProviderResult("c1", "web_search", text="It is old.")
    _, failed = as_provider_call(call, Result("c1", (Text("no"),), True), "web_search")
    assert failed.error == "unavailable"
    fetched = as_provider_call(Call("c2", "f", f'{{"url":"{URL}"}}'), Result("c2", (Text("Words."),)), "web_fetch")
    assert strip_origins(fetched[1]) == ProviderResult("c2", "web_fetch", (Citation(URL),), "Words.")


# --- a function stands in ---


def stood_in(
    request: Request, provider: str = "openai-chat", **tools: Tool
) -> tuple[Request, dict[str, str], list[str]]:
    ledger = Ledger("anthropic", provider)
    request, names = substitute_provider_tools(request, tools, find_codec(provider), ledger)
    return request, dict(names), [loss.code for loss in ledger.losses]


def test_the_tool_the_choice_and_the_past_become_the_functions() -> None:
    said = (
        Text("I look."),
        ProviderCall("s1", "web_search", '{"query":"a"}'),
        ProviderCall("s2", "web_search", '{"query":"b"}'),
        ProviderResult("s1", "web_search", (Citation(URL, "A"),)),
        ProviderResult("s2", "web_search", error="unavailable"),
        Text("Done."),
    )
    request = Request(
        "gpt-4.1",
        tools=(ProviderTool("web_search", "web_search", max_uses=2), Tool("own")),
        turns=(Turn("user", (Text("Hi"),)), Turn("assistant", said)),
        choice=ToolChoice("one", (ToolName("web_search", "web_search"),)),
    )
    made, names, codes = stood_in(request, web_search=LOOK)
    assert names == {"docs__look": "web_search"}
    assert codes == ["tool-substituted", "no-counterpart"]
    assert made.tools == (replace(LOOK, origin=ADDED_ORIGIN), Tool("own"))
    assert made.choice == ToolChoice("one", (ToolName("docs__look"),))
    assert [turn.role for turn in made.turns] == ["user", "assistant", "tool", "tool", "assistant"]
    assert [type(part) for part in made.turns[1].parts] == [Text, Call, Call]
    assert made.turns[2].parts == (Result("s1", (Text(f"A {URL}"),), None, "docs__look"),)
    assert made.turns[3].parts == (Result("s2", (Text("unavailable"),), True, "docs__look"),)
    assert made.turns[4].parts == (Text("Done."),)


def test_nothing_stands_in_where_the_provider_can_or_nothing_is_named() -> None:
    searching = Request("gpt-4o-search-preview", tools=(ProviderTool("web_search"),))
    assert stood_in(searching, web_search=LOOK) == (searching, {}, [])
    fetching = Request("gpt-4.1", tools=(ProviderTool("web_fetch"),))
    assert stood_in(fetching, web_search=LOOK) == (fetching, {}, [])
    plain = Request("gpt-4.1", tools=(Tool("own"),))
    assert stood_in(plain, web_search=LOOK) == (plain, {}, [])


def test_a_function_of_the_client_stays_the_clients() -> None:
    theirs = Tool("docs__look", "Another.")
    request = Request("gpt-4.1", tools=(ProviderTool("web_search"), theirs))
    assert stood_in(request, web_search=LOOK)[1] == {}
    ours = Request("gpt-4.1", tools=(ProviderTool("web_search"), LOOK))
    made, names, _ = stood_in(ours, web_search=LOOK)
    assert names == {"docs__look": "web_search"}
    assert made.tools == (LOOK,)


@pytest.mark.parametrize(
    ("provider", "tool", "model", "functions", "there"),
    [
        ("anthropic", "web_search", "claude-opus-5-5", True, True),
        ("anthropic", "web_fetch", "kimi-k2", True, False),
        ("anthropic", "image_generation", "claude-opus-5-5", True, False),
        ("openai-responses", "web_fetch", "gpt-5.5", True, True),
        ("openai-responses", "web_search", "my-deployment", True, True),
        ("openai-responses", "web_search", "openai/gpt-oss-120b", True, False),
        ("openai-chat", "web_search", "gpt-5.5", False, False),
        ("openai-chat", "web_search", "perplexity/sonar", False, True),
        ("openai-chat", "web_fetch", "sonar", False, False),
        ("gemini", "web_fetch", "gemini-3.8-flash", True, True),
        ("gemini", "web_search", "gemini-2.5-flash", True, False),
        ("gemini", "web_search", "gemini-2.5-flash", False, True),
    ],
)
def test_who_runs_what(provider: str, tool: str, model: str, functions: bool, there: bool) -> None:
    assert find_codec(provider).supports_provider_tool(tool, model, functions) is there


def test_only_one_answer_can_be_searched_for() -> None:
    exchange = Exchange(find_codec("openai-chat"), find_codec("openai-chat"), Options(substitutes={"web_search": LOOK}))
    body = {"model": "gpt-4.1", "n": 2, "messages": [{"role": "user", "content": "Hi"}], "web_search_options": {}}
    assert "tools" not in exchange.translate_request(body).json()
    assert not exchange.can_take_rounds


# --- requests ---

LOCATION = {"city": "Paris", "country": "FR", "region": "IdF", "timezone": "Europe/Paris"}


def translate_tools(body: dict[str, Any], source: str, target: str, **options: Any) -> tuple[Any, dict[str, list[str]]]:
    made = translate(body, "request", source=source, target=target, **options)
    told: dict[str, list[str]] = {}
    for loss in made.losses:
        told.setdefault(loss.code, []).append(loss.what)
    return made.json(), told


def messages(**more: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}], **more}


def test_limits_domains_and_places_go_along_where_they_can() -> None:
    tool = {
        "type": "web_search_20260318",
        "name": "web_search",
        "max_uses": 3,
        "allowed_domains": ["a.example"],
        "user_location": {"type": "approximate", **LOCATION},
    }
    body, told = translate_tools(messages(tools=[tool]), "anthropic", "openai-responses")
    near = {"type": "approximate", **LOCATION}
    assert body["tools"] == [
        {"type": "web_search", "filters": {"allowed_domains": ["a.example"]}, "user_location": near}
    ]
    assert body["max_tool_calls"] == 3
    assert "no-counterpart" not in told
    body, told = translate_tools(messages(tools=[tool]), "anthropic", "gemini", model="gemini-3.8-flash")
    assert body["tools"] == [{"googleSearch": {}}]
    assert len(told["no-counterpart"]) == 3
    body, told = translate_tools(messages(tools=[tool]), "anthropic", "openai-chat", model="sonar-pro")
    near = {"type": "approximate", "approximate": LOCATION}
    assert body["web_search_options"] == {"user_location": near}
    assert len(told["no-counterpart"]) == 2


def test_the_limit_on_all_tools_is_that_of_the_only_one() -> None:
    body = {"model": "m", "input": "Hi", "tools": [{"type": "web_search"}], "max_tool_calls": 2}
    made, told = translate_tools(body, "openai-responses", "anthropic", model="claude-opus-5-5")
    assert made["tools"] == [{"type": "web_search_20250305", "name": "web_search", "max_uses": 2}]
    assert "unknown-field" not in told
    assert translate_tools(body, "openai-responses", "openai-responses") == (body, {})
    body["tools"].append({"type": "image_generation"})  # type: ignore[attr-defined]
    assert "unknown-field" in translate_tools(body, "openai-responses", "anthropic")[1]


def test_a_fetch_before_a_search_does_not_hide_its_domains() -> None:
    tools = [
        {"type": "web_fetch_20260318", "name": "web_fetch"},
        {"type": "web_search_20260318", "name": "web_search", "allowed_domains": ["a.example"]},
    ]
    body, told = translate_tools(messages(tools=tools), "anthropic", "openai-responses")
    assert body["tools"] == [{"type": "web_search", "filters": {"allowed_domains": ["a.example"]}}]
    assert "fetching pages is part of `web_search`" in told["tool-mapped"]


def test_one_limit_for_all_tools_is_none_for_one_of_them() -> None:
    tools = [
        {"type": "web_search_20260318", "name": "web_search", "max_uses": 3},
        {"type": "code_execution_20250825", "name": "code_execution"},
    ]
    body, told = translate_tools(messages(tools=tools), "anthropic", "openai-responses")
    assert "max_tool_calls" not in body
    assert "`max_uses` of 'web_search' was left out" in told["no-counterpart"]


@pytest.mark.parametrize(
    ("target", "choice"),
    [
        ("openai-responses", {"type": "web_search"}),
        ("unified", {"hosted": "web_search"}),
        ("anthropic", {"type": "tool", "name": "web_search"}),
    ],
)
def test_a_search_can_be_chosen(target: str, choice: dict[str, str]) -> None:
    tool = {"type": "web_search_20250305", "name": "web_search"}
    chosen = {"type": "tool", "name": "web_search"}
    body, _ = translate_tools(messages(tools=[tool], tool_choice=chosen), "anthropic", target)
    assert body["tool_choice"] == choice


def test_a_search_of_any_version_is_known() -> None:
    for kind in ("web_search_preview", "web_search_2027_01_01"):
        body = {"model": "m", "input": "Hi", "tools": [{"type": kind}], "tool_choice": {"type": kind}}
        request = find_codec("openai-responses").read_request(body)
        assert [tool.tool for tool in request.tools if isinstance(tool, ProviderTool)] == ["web_search"]
        assert strip_origins(request.choice) == ToolChoice("one", (ToolName("web_search", "web_search"),))
        assert translate_tools(body, "openai-responses", "openai-responses")[0] == body


# --- answers ---


def translate_answer(body: dict[str, Any], source: str, target: str, request: dict[str, Any] | None = None) -> Any:
    return translate(body, "response", source=source, target=target, request=request).json()


def test_an_opened_page_is_a_fetch() -> None:
    output = [
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "open_page", "url": URL}},
        {"type": "web_search_call", "id": "ws_2", "status": "completed", "action": {"type": "find_in_page", "url": URL, "pattern": "x"}},
    ]  # fmt: skip
    body = {"id": "r", "object": "response", "status": "completed", "model": "m", "output": output}
    use, other, found, none = translate_answer(body, "openai-responses", "anthropic")["content"]
    assert (use["name"], use["input"], other["name"]) == ("web_fetch", {"url": URL}, "web_search")
    assert {one["type"] for one in (found, none)} == {"web_fetch_tool_result", "web_search_tool_result"}
    told = translate_answer(body, "openai-responses", "unified")["message"]["content"]
    assert told[0] == {"type": "hosted_call", "id": "ws_1", "tool": "web_fetch", "arguments": {"url": URL}}


def test_pages_that_were_fetched_are_told_to_and_by_every_protocol() -> None:
    rows = [
        {"retrievedUrl": URL, "urlRetrievalStatus": "URL_RETRIEVAL_STATUS_SUCCESS"},
        {"retrievedUrl": "https://b.example", "urlRetrievalStatus": "URL_RETRIEVAL_STATUS_ERROR"},
    ]
    candidate = {
        "content": {"parts": [{"text": "Read."}]},
        "finishReason": "STOP",
        "urlContextMetadata": {"urlMetadata": rows},
    }
    body = {"candidates": [candidate]}
    content = translate_answer(body, "gemini", "anthropic")["content"]
    pages = [block["content"] for block in content if block["type"] == "web_fetch_tool_result"]
    assert pages[0]["url"] == URL
    assert pages[1]["error_code"] == "URL_RETRIEVAL_STATUS_ERROR"
    back = translate_answer(translate_answer(body, "gemini", "unified"), "unified", "gemini")
    assert back["candidates"][0]["urlContextMetadata"] == {"urlMetadata": rows}
    assert len({block["id"] for block in content if block["type"] == "server_tool_use"}) == 2


def test_a_source_stands_once_with_the_title_that_somebody_gave_it() -> None:
    output = [
        {
            "type": "web_search_call",
            "id": "ws_1",
            "status": "completed",
            "action": {"type": "search", "query": "a", "queries": ["a", "b"], "sources": [{"type": "url", "url": URL}]},
        },
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [
                {
                    "type": "output_text",
                    "text": "Old.",
                    "annotations": [
                        {"type": "url_citation", "url": URL, "title": "A", "start_index": 0, "end_index": 4}
                    ],
                }
            ],
        },
    ]
    body = {"id": "r", "object": "response", "status": "completed", "model": "m", "output": output}
    metadata = translate_answer(body, "openai-responses", "gemini")["candidates"][0]["groundingMetadata"]
    assert metadata["groundingChunks"] == [{"web": {"uri": URL, "title": "A"}}]
    assert metadata["webSearchQueries"] == ["a", "b"]
    assert metadata["groundingSupports"][0]["groundingChunkIndices"] == [0]


def test_citations_of_a_whole_text_have_its_length() -> None:
    cited = {"type": "web_search_result_location", "cited_text": "x", "url": URL, "title": "A", "encrypted_index": "E"}
    content = [{"type": "text", "text": "So: "}, {"type": "text", "text": "old.", "citations": [cited]}]
    body = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": content,
        "stop_reason": "end_turn",
    }
    message = translate_answer(body, "anthropic", "openai-chat")["choices"][0]["message"]
    (annotation,) = message["annotations"]
    start, end = annotation["url_citation"]["start_index"], annotation["url_citation"]["end_index"]
    assert message["content"][start:end] == "old."


# --- histories ---


def test_what_another_provider_found_is_not_sent_as_if_it_were_sealed() -> None:
    """An earlier answer of another provider, in the shape that the client knows."""
    content = [
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "a"}},
        {
            "type": "web_search_tool_result",
            "tool_use_id": "srvtoolu_1",
            "content": [{"type": "web_search_result", "url": URL, "title": "A", "encrypted_content": "", "page_age": None}],
        },
        {
            "type": "text",
            "text": "Old.",
            "citations": [
                {"type": "web_search_result_location", "cited_text": "x", "url": URL, "title": "A", "encrypted_index": ""}
            ],
        },
    ]  # fmt: skip
    body = messages()
    body["messages"] += [{"role": "assistant", "content": content}, {"role": "user", "content": "And?"}]
    made, told = translate_tools(body, "anthropic", "anthropic")
    assert made["messages"][1]["content"] == [
        {"type": "text", "text": f"[web_search found]\nA {URL}"},
        {"type": "text", "text": "Old."},
    ]
    assert set(told) == {"part-dropped", "hosted-as-text", "citation-dropped"}
    content[1]["content"][0]["encrypted_content"] = "Enc"  # type: ignore[index]
    content[2]["citations"][0]["encrypted_index"] = "Eo8B"  # type: ignore[index]
    assert translate_tools(body, "anthropic", "anthropic") == (body, {})


@pytest.mark.parametrize("target", ["openai-chat", "openai-responses", "gemini"])
def test_a_page_that_was_read_stays_known(target: str) -> None:
    page = {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": "The page."},
        "title": "P",
    }
    content = [
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_fetch", "input": {"url": URL}},
        {
            "type": "web_fetch_tool_result",
            "tool_use_id": "srvtoolu_1",
            "content": {"type": "web_fetch_result", "url": URL, "retrieved_at": None, "content": page},
        },
        {"type": "text", "text": "Read."},
    ]
    body = messages()
    body["messages"] += [{"role": "assistant", "content": content}, {"role": "user", "content": "And?"}]
    made, told = translate_tools(body, "anthropic", target)
    assert "The page." in json.dumps(made)
    assert "hosted-as-text" in told


# --- answers ---


def responses_answer(*output: Any) -> dict[str, Any]:
    return {"id": "resp_1", "object": "response", "status": "completed", "model": "m", "output": [*output]}


@pytest.mark.parametrize("target", ["openai-chat", "anthropic", "gemini", "unified"])
def test_a_page_that_was_searched_arrives_or_is_told(target: str) -> None:
    action = {"type": "find_in_page", "url": URL, "pattern": "needle"}
    body = responses_answer({"type": "web_search_call", "id": "ws_1", "status": "completed", "action": action})
    told = translate(body, "response", source="openai-responses", target=target)
    assert "needle" in told.body.decode() + "".join(loss.what for loss in told.losses)


def test_what_failed_code_printed_reaches_an_anthropic_client() -> None:
    parts = [
        {"executableCode": {"language": "PYTHON", "code": "1/0"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_FAILED", "output": "ZeroDivisionError"}},
        {"text": "It failed."},
    ]
    body = {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]}
    told = translate(body, "response", source="gemini", target="anthropic")
    assert told.json()["content"][1]["content"] == {
        "type": "code_execution_result",
        "stdout": "",
        "stderr": "ZeroDivisionError",
        "return_code": 1,
        "content": [],
    }
    assert any("OUTCOME_FAILED" in loss.what for loss in told.losses)
