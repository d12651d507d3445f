"""Web search and fetch behind any provider: its own where it has them, a tool of an MCP server where it has none.

What a client gets is read with the reader of its own protocol, and, for what agents look at, as it stands on the wire.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic.types
import openai.types.chat
import openai.types.responses
import pytest
from google import genai

from configs import load_config
from gateway.mcp_gateway import COMMAND
from gateway.provider import ScriptedAnswer
from gateway.raw_exchange import (
    CLIENTS,
    PROVIDERS,
    RawAnswer,
    Scene,
    Served,
    answer,
    ask,
    body_of,
    call,
    path_of,
    stage,
    write_chunked,
)
from toolwire.core.events import fold
from toolwire.core.ir import Citation, Part, ProviderCall, ProviderResult, Text
from toolwire.gateway.settings.problems import ConfigError
from toolwire.protocols import find_codec
from toolwire_conformance.peers import PEERS, find_violations
from toolwire_conformance.peers.peer import encode_json

URL, TITLE, SAID, CITED = "https://example.com/paris", "Paris", "Höhe: Paris is large. More.", "Paris is large."
FINDS = "mcp:test/echo"
MODELS = {
    "openai-chat": "gpt-4o-search-preview",
    "openai-responses": "gpt-5.5",
    "anthropic": "claude-sonnet-4-5",
    "gemini": "gemini-3.8-flash",
}
LACKING = {
    "openai-chat": "gpt-4.1",
    "openai-responses": "qwen3-coder",
    "anthropic": "kimi-k2",
    "gemini": "gemini-1.5-pro",
}
"""Models for which nobody searches."""
ASKS: dict[str, dict[str, Any]] = {
    "openai-chat": {"web_search_options": {}},
    "openai-responses": {"tools": [{"type": "web_search"}]},
    "anthropic": {"tools": [{"type": "web_search_20990101", "name": "web_search", "max_uses": 3}]},
    "gemini": {"tools": [{"googleSearch": {}}]},
    "unified": {"tools": [{"hosted": "web_search"}]},
}
ANSWERS: dict[str, dict[str, Any]] = {
    "openai-chat": {
        "choices": [
            {
                "message": {
                    "content": SAID,
                    "annotations": [
                        {
                            "type": "url_citation",
                            "url_citation": {"start_index": 6, "end_index": 21, "url": URL, "title": TITLE},
                        }
                    ],
                },
                "finish_reason": "stop",
            }
        ]
    },
    "openai-responses": {
        "output": [
            {
                "type": "web_search_call",
                "id": "ws_1",
                "status": "completed",
                "action": {"type": "search", "query": "Paris", "sources": [{"type": "url", "url": URL}]},
            },
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "content": [
                    {
                        "type": "output_text",
                        "text": SAID,
                        "annotations": [
                            {"type": "url_citation", "start_index": 6, "end_index": 21, "url": URL, "title": TITLE}
                        ],
                        "logprobs": [],
                    }
                ],
            },
        ]
    },
    "anthropic": {
        "content": [
            {"type": "server_tool_use", "id": "srvtoolu_01", "name": "web_search", "input": {"query": "Paris"}},
            {
                "type": "web_search_tool_result",
                "tool_use_id": "srvtoolu_01",
                "content": [
                    {
                        "type": "web_search_result",
                        "url": URL,
                        "title": TITLE,
                        "encrypted_content": "Enc",
                        "page_age": None,
                    }
                ],
            },
            {"type": "text", "text": "Höhe: "},
            {
                "type": "text",
                "text": CITED,
                "citations": [
                    {
                        "type": "web_search_result_location",
                        "cited_text": "Paris is very large.",
                        "url": URL,
                        "title": TITLE,
                        "encrypted_index": "Eo8B",
                    }
                ],
            },
            {"type": "text", "text": " More."},
        ],
        "stop_reason": "end_turn",
    },
    "gemini": {
        "candidates": [
            {
                "content": {"parts": [{"text": SAID}]},
                "finishReason": "STOP",
                "groundingMetadata": {
                    "webSearchQueries": ["Paris"],
                    "groundingChunks": [{"web": {"uri": URL, "title": TITLE}}],
                    "groundingSupports": [
                        {"segment": {"startIndex": 7, "endIndex": 22, "text": CITED}, "groundingChunkIndices": [0]}
                    ],
                },
            }
        ]
    },
}


@pytest.fixture(scope="module", name="served")
def serve_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with stage(tmp_path_factory.mktemp("hosted"), 'log_format = "none"') as staged:
        yield staged


@pytest.fixture(scope="module", name="helped")
def serve_with_help(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A gateway with a server that searches, in its way."""
    folder = tmp_path_factory.mktemp("helped")
    store = f'[store]\nurl = "sqlite:///{(folder / "store.db").as_posix().lstrip("/")}"\n'
    more = f'[mcp.test]\n{COMMAND}\n[translate]\nweb_search = "{FINDS}"\nweb_fetch = "{FINDS}"\n{store}'
    with stage(folder, 'log_format = "none"', more) as staged:
        yield staged


def play_body(protocol: str, body: dict[str, Any], stream: bool) -> bytes:
    whole = PEERS[protocol].complete_answer(body, "the-model")
    if not stream:
        return answer(200, encode_json(whole).encode())
    return write_chunked(*(frame.encode() for frame in PEERS[protocol].write_stream(whole)))


def play_answer(protocol: str, says: ScriptedAnswer, stream: bool) -> bytes:
    body = body_of(protocol, says)
    return play_body(protocol, body, stream) if stream else answer(200, encode_json(body).encode())


def parts_of(protocol: str, got: RawAnswer, stream: bool) -> tuple[Part, ...]:
    """What a client of this protocol makes of an answer."""
    assert got.status == 200, got.data
    place = find_codec(protocol)
    if not stream:
        return place.read_response(got.json()).choices[0].parts
    reader = place.make_stream_reader()
    response = fold([*reader.feed(got.data), *reader.close()])
    assert response.failure is None
    return response.choices[0].parts


def citations(parts: tuple[Part, ...]) -> list[tuple[str, Citation]]:
    """Every citation with the words that it stands for."""
    found = []
    for part in parts:
        for one in part.citations if isinstance(part, Text) else ():
            words = part.text[one.start : one.end] if one.start is not None else one.quote or part.text
            found.append((words, one))
    return found


def hosted_parts(parts: tuple[Part, ...], kind: type, tool: str) -> list[Any]:
    return [part for part in parts if isinstance(part, kind) and part.tool == tool]  # type: ignore[attr-defined]


# --- the provider's own ---


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_search_comes_back_in_the_clients_shape(served: Served, provider: str, client: str, stream: bool) -> None:
    scene = served.scene(provider, play_body(provider, ANSWERS[provider], stream), model=MODELS[provider])
    got = call(served, client, scene.model, stream, **ASKS[client])
    parts = parts_of(client, got, stream)
    assert "".join(part.text for part in parts if isinstance(part, Text)) == SAID
    (cited,) = citations(parts)
    assert cited[1].url == URL
    assert cited[1].title == TITLE
    assert CITED in (cited[0], cited[1].quote) or cited[1].quote == "Paris is very large."
    if client != "openai-chat" and (provider != "openai-chat" or client == "anthropic"):
        results = hosted_parts(parts, ProviderResult, "web_search")
        assert [[source.url for source in result.sources] for result in results] == [[URL]]
        (made,) = hosted_parts(parts, ProviderCall, "web_search")
        assert made.id == results[0].id
        if provider != "openai-chat":
            assert json.loads(made.arguments)["query"] == "Paris"
    assert not find_violations(provider, scene.asked[0].json(), scene.name)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_case_119_an_agent_that_counts_results_finds_one(served: Served, provider: str, stream: bool) -> None:
    scene = served.scene(provider, play_body(provider, ANSWERS[provider], stream), model=MODELS[provider])
    got = call(served, "anthropic", scene.model, stream, **ASKS["anthropic"])
    if stream:
        frames = [frame.data for frame in got.frames]
        blocks = [frame["content_block"] for frame in frames if frame["type"] == "content_block_start"]
        usage = next(frame for frame in frames if frame["type"] == "message_delta")["usage"]
    else:
        blocks, usage = got.json()["content"], got.json()["usage"]
    (used,) = [block for block in blocks if block["type"] == "server_tool_use"]
    (found,) = [block for block in blocks if block["type"] == "web_search_tool_result"]
    assert found["tool_use_id"] == used["id"]
    assert [(one["type"], one["url"]) for one in found["content"]] == [("web_search_result", URL)]
    if provider != "anthropic":
        assert usage["server_tool_use"]["web_search_requests"] == 1


TYPES = {
    "openai-chat": openai.types.chat.ChatCompletion,
    "openai-responses": openai.types.responses.Response,
    "anthropic": anthropic.types.Message,
    "gemini": genai.types.GenerateContentResponse,
}


@pytest.mark.parametrize("client", TYPES)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_official_sdks_know_all_of_it(served: Served, provider: str, client: str) -> None:
    scene = served.scene(provider, play_body(provider, ANSWERS[provider], False), model=MODELS[provider])
    TYPES[client].model_validate(call(served, client, scene.model, False, **ASKS[client]).json())
    scene = served.scene(provider, play_body(provider, ANSWERS[provider], True), model=MODELS[provider])
    got = call(served, client, scene.model, True, **ASKS[client])
    assert PEERS[client].fold_stream(got.frames).violations == ()


def test_sources_are_asked_for_where_they_do_not_come_by_themselves(served: Served) -> None:
    scene = served.scene("openai-responses", play_body("openai-responses", ANSWERS["openai-responses"], False))
    call(served, "anthropic", scene.model, False, **ASKS["anthropic"])
    sent = scene.asked[0].json()
    assert "web_search_call.action.sources" in sent["include"]
    assert sent["max_tool_calls"] == 3


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_no_tool_is_nameless_or_empty(served: Served, client: str, provider: str) -> None:
    """Cases 117, 118 and 122."""
    scene = served.scene(provider, play_answer(provider, ScriptedAnswer("Yes."), False), model=LACKING[provider])
    got = call(served, client, scene.model, False, **ASKS[client])
    assert got.status == 200
    sent = scene.asked[0].json()
    assert not find_violations(provider, sent, scene.name)
    for tool in sent.get("tools", ()):
        assert tool
        assert "" not in (tool.get("name"), tool.get("type"))
    if client != provider and provider == "openai-chat":
        assert "tool-dropped" in got.headers["x-toolwire-losses"]


def test_a_tool_that_nobody_runs_can_be_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    with stage(tmp_path_factory.mktemp("strict"), 'log_format = "none"', '[translate]\non_loss = "refuse"\n') as served:
        scene = served.scene(
            "openai-chat", play_answer("openai-chat", ScriptedAnswer("Yes."), False), model=LACKING["openai-chat"]
        )
        got = call(served, "anthropic", scene.model, False, **ASKS["anthropic"])
        assert got.status == 400
        assert "web_search" in got.json()["error"]["message"]
        assert not scene.asked


# --- the same conversation elsewhere ---


def next_request(client: str, model: str, got: RawAnswer) -> dict[str, Any]:
    """The next request of a client that sends back what it got."""
    body = got.json()
    more = {"role": "user", "content": "And?"}
    turn = {"role": "user", "content": "Hi"}
    if client == "gemini":
        content = body["candidates"][0]["content"]
        return {
            "contents": [
                {"role": "user", "parts": [{"text": "Hi"}]},
                content,
                {"role": "user", "parts": [{"text": "?"}]},
            ]
        }
    if client == "openai-responses":
        return {"model": model, "store": False, "input": [turn, *body["output"], more]}
    said = {
        "openai-chat": lambda: {
            key: value for key, value in body["choices"][0]["message"].items() if value is not None
        },
        "anthropic": lambda: {"role": "assistant", "content": body["content"]},
        "unified": lambda: body["message"],
    }[client]()
    limit = {"max_tokens": 100} if client == "anthropic" else {}
    return {"model": model, **limit, "messages": [turn, said, more]}  # fmt: skip


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("first", PROVIDERS)
@pytest.mark.parametrize("second", PROVIDERS)
def test_a_search_of_one_provider_goes_on_with_another(served: Served, client: str, first: str, second: str) -> None:
    scene = served.scene(first, play_body(first, ANSWERS[first], False), model=MODELS[first])
    got = call(served, client, scene.model, False, **ASKS[client])
    later = served.scene(second, play_answer(second, ScriptedAnswer("Yes."), False), model=MODELS[second])
    body = {**next_request(client, later.model, got), **ASKS[client]}
    again = ask(served.port, "POST", path_of(client, later.model, False), encode_json(body).encode())
    assert again.status == 200, again.data
    sent = later.asked[0].json()
    assert not find_violations(second, sent, later.name)
    words = encode_json(sent)
    assert CITED in words
    if second == "anthropic":
        assert ("encrypted_content" in words) == (client == "anthropic" and first == "anthropic")
        assert '"encrypted_index":""' not in words


# --- a function that stands in ---


def search_of(protocol: str, scene: Scene) -> str:
    """The name under which the provider was given the function."""
    sent = scene.asked[0].json()
    tools = sent["tools"]
    if protocol == "gemini":
        (tool,) = [one for box in tools for one in box["functionDeclarations"]]
        return str(tool["name"])
    (tool,) = tools
    return str(tool["function"]["name"] if protocol == "openai-chat" else tool["name"])


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_tool_of_a_server_searches_instead(helped: Served, client: str, provider: str, stream: bool) -> None:
    words = f"[{TITLE}]({URL})"
    first = play_answer(provider, ScriptedAnswer("", (("test__echo", {"text": words}),)), stream)
    scene = helped.scene(provider, first, play_answer(provider, ScriptedAnswer(CITED), stream), model=LACKING[provider])
    got = call(helped, client, scene.model, stream, **ASKS[client])
    parts = parts_of(client, got, stream)
    assert "".join(part.text for part in parts if isinstance(part, Text)) == CITED
    assert len(scene.asked) == 2
    assert search_of(provider, scene) == "test__echo"
    assert words in scene.asked[1].body.decode().replace("\\/", "/")
    for one in scene.asked:
        assert not find_violations(provider, one.json(), scene.name)
    if client != "openai-chat":
        (made,), (found,) = (
            hosted_parts(parts, ProviderCall, "web_search"),
            hosted_parts(parts, ProviderResult, "web_search"),
        )
        assert made.id == found.id
        assert [source.url for source in found.sources] == [URL]
    reported = "`test__echo` replaces the provider's tool `web_search`"  # unified lists all losses in the answer
    assert "test__echo" not in got.data.decode().replace(reported, "", client == "unified")
    if not stream:
        assert "tool-substituted" in got.headers["x-toolwire-losses"]


@pytest.mark.parametrize("client", ["anthropic", "openai-responses"])
def test_what_was_found_is_known_to_the_model_later(helped: Served, client: str) -> None:
    """Also of what the client's own shape does not tell."""
    words = f"[{TITLE}]({URL}) is 34 m high"
    first = play_answer("openai-chat", ScriptedAnswer("", (("test__echo", {"text": words}),)), False)
    rest = play_answer("openai-chat", ScriptedAnswer(CITED), False)
    scene = helped.scene("openai-chat", first, rest, model=LACKING["openai-chat"])
    got = call(helped, client, scene.model, False, **ASKS[client])
    body = {**next_request(client, scene.model, got), **ASKS[client]}
    again = ask(helped.port, "POST", path_of(client, scene.model, False), encode_json(body).encode())
    assert again.status == 200
    sent = scene.asked[2].json()
    assert not find_violations("openai-chat", sent, scene.name)
    roles = [message["role"] for message in sent["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]
    assert sent["messages"][1]["tool_calls"][0]["function"]["name"] == "test__echo"
    assert sent["messages"][2]["content"] == words


def test_a_provider_that_searches_is_left_to_it(helped: Served) -> None:
    scene = helped.scene("gemini", play_body("gemini", ANSWERS["gemini"], False))
    call(helped, "anthropic", scene.model, False, **ASKS["anthropic"])
    assert scene.asked[0].json()["tools"] == [{"googleSearch": {}}]


def test_a_fetch_is_shown_as_one(helped: Served) -> None:
    tools = {
        "tools": [{"type": "web_fetch_20250910", "name": "web_fetch"}],
        "tool_choice": {"type": "tool", "name": "web_fetch"},
    }
    first = play_answer("openai-chat", ScriptedAnswer("", (("test__echo", {"text": "The page.", "url": URL}),)), False)
    scene = helped.scene(
        "openai-chat", first, play_answer("openai-chat", ScriptedAnswer("Read."), False), model=LACKING["openai-chat"]
    )
    got = call(helped, "anthropic", scene.model, False, **tools)
    use, result, text = got.json()["content"]
    assert (use["type"], use["name"], use["input"]) == ("server_tool_use", "web_fetch", {"url": URL})
    assert result["type"] == "web_fetch_tool_result"
    assert result["content"]["url"] == URL
    assert result["content"]["content"]["source"]["data"] == "The page."
    assert text["text"] == "Read."
    assert scene.asked[0].json()["tool_choice"] == {"type": "function", "function": {"name": "test__echo"}}


def test_a_search_that_fails_is_told_as_failed(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("failing")
    more = f'[mcp.test]\n{COMMAND}\n[translate]\nweb_search = "mcp:test/fail"\n'
    with stage(folder, 'log_format = "none"', more) as served:
        first = play_answer("openai-chat", ScriptedAnswer("", (("test__fail", {"query": "Paris"}),)), False)
        scene = served.scene(
            "openai-chat", first, play_answer("openai-chat", ScriptedAnswer("No."), False), model=LACKING["openai-chat"]
        )
        got = call(served, "anthropic", scene.model, False, **ASKS["anthropic"])
    use, result, _ = got.json()["content"]
    assert use["input"] == {"query": "Paris"}
    assert result["content"]["type"] == "web_search_tool_result_error"


def test_a_server_that_is_down_leaves_the_tool_out(tmp_path_factory: pytest.TempPathFactory) -> None:
    more = '[mcp.test]\ncommand = ["false"]\n[translate]\nweb_search = "mcp:test/echo"\n'
    with stage(tmp_path_factory.mktemp("down"), 'log_format = "none"', more) as served:
        scene = served.scene(
            "openai-chat", play_answer("openai-chat", ScriptedAnswer("No."), False), model=LACKING["openai-chat"]
        )
        got = call(served, "anthropic", scene.model, False, **ASKS["anthropic"])
    assert got.status == 200
    assert "tools" not in scene.asked[0].json()
    assert "tool-dropped" in got.headers["x-toolwire-losses"]


def test_a_server_without_tools_of_its_own_gets_none(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The operator says so with a quirk; a client of the same protocol is not passed through then."""
    folder = tmp_path_factory.mktemp("local")
    with stage(folder, 'log_format = "none"') as served:
        file = folder / "toolwire.toml"
        quirk = '[providers.anthropic]\nquirks = ["no-hosted-tools"]'
        file.write_text(file.read_text().replace("[providers.anthropic]", quirk))
        served.gateway.config_watch.reload(True)
        scene = served.scene("anthropic", play_answer("anthropic", ScriptedAnswer("No."), False))
        got = call(served, "anthropic", scene.model, False, **ASKS["anthropic"])
    assert "tools" not in scene.asked[0].json()
    assert "tool-dropped" in got.headers["x-toolwire-losses"]


@pytest.mark.parametrize(
    ("value", "what", "hint"),
    [
        ("test/echo", "`test/echo` is not a tool of an MCP server", 'write "mcp:SERVER/TOOL"'),
        ("mcp:test", "`mcp:test` is not a tool of an MCP server", 'write "mcp:SERVER/TOOL"'),
        ("mcp:tset/echo", "unknown MCP server `tset`", "did you mean `test`?"),
        ("mcp:other/echo", "unknown MCP server `other`", "choose from: test"),
    ],
)
def test_mistakes_are_told_with_their_line(tmp_path: Path, value: str, what: str, hint: str) -> None:
    file = tmp_path / "toolwire.toml"
    file.write_text(f'[mcp.test]\n{COMMAND}\nmodels = ["*"]\n[translate]\nweb_search = "{value}"\n')
    with pytest.raises(ConfigError) as found:
        load_config(file, {})
    (problem,) = found.value.problems
    assert (problem.line, problem.location, problem.message, problem.hint) == (5, "translate.web_search", what, hint)


def test_only_who_gives_tools_to_nobody_is_warned(tmp_path: Path) -> None:
    file = tmp_path / "toolwire.toml"
    servers = f"[mcp.test]\n{COMMAND}\n[mcp.idle]\n{COMMAND}\n"
    file.write_text(f'{servers}[translate]\nweb_fetch = "{FINDS}"\n')
    config = load_config(file, {})
    assert [problem.location for problem in config.warnings] == ["mcp.idle"]
    assert config.translate.substitutes == {"web_fetch": ("test", "echo")}


# --- declarations of MCP servers ---

OWN: dict[str, dict[str, Any]] = {
    "anthropic": {
        "mcp_servers": [{"type": "url", "url": "https://example.com/mcp", "name": "docs"}],
        "tools": [{"type": "mcp_toolset", "mcp_server_name": "docs"}],
    },
    "openai-responses": {
        "tools": [{"type": "mcp", "server_label": "docs", "server_url": "https://example.com/mcp"}],
    },
}


@pytest.mark.parametrize("client", OWN)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_mcp_servers_of_a_request_pass_or_are_named_losses(served: Served, client: str, provider: str) -> None:
    scene = served.scene(provider, play_answer(provider, ScriptedAnswer("Yes."), False))
    got = call(served, client, scene.model, False, **OWN[client])
    assert got.status == 200
    sent = scene.asked[0].json()
    if client == provider:
        assert {key: sent[key] for key in OWN[client]} == OWN[client]
        assert "x-toolwire-losses" not in got.headers
    else:
        assert "example.com" not in encode_json(sent)
        assert "tools" not in sent
        lost = got.headers["x-toolwire-losses"]
        assert "tool-dropped" in lost or "opaque-dropped" in lost
