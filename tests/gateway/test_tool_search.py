"""Too many tools: the gateway defers most of them, and runs the search with which the model finds them.

Every client, every provider, streamed and whole. The provider refuses more than 128 tools, and calls of tools that are
not declared.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from gateway.clients import CLIENTS, Conversation, Result, Task, close_all, losses
from gateway.conftest import configuration, provider_name, serve_config
from gateway.declared_tools import NotOffered, Use, find_declared_tool
from gateway.mcp_gateway import serve_config_text, serve_with_mcp
from gateway.provider import PROTOCOLS, Provider, Received, Script, ScriptedAnswer, Step
from gateway.raw_exchange import ask, path_of, request_of
from gateway.test_prefixes import HEAD
from material import WHOLE_OR_STREAM, parametrize_pairwise
from toolwire.gateway.http import large_work
from toolwire.protocols import find_codec
from toolwire.translation.exchange import Exchange
from toolwire.translation.tool_index import ToolIndex
from toolwire.translation.tool_search import SEARCH_NAME

MODELS = {
    "openai-chat": "chat/gpt-5.5",
    "openai-responses": "responses/gpt-5.5",
    "anthropic": "anthropic/claude-sonnet-5-5",
    "gemini": "gemini/gemini-3.8-flash",
}
LIMIT = 128
TOOLS = {
    **{f"shop{number}__get_item": f"Item {number} of the shelf." for number in range(LIMIT + 10)},
    "get_weather": "The weather in a city, now.",
    "get_time": "The time of day in a city.",
}
RESULTS = {"Paris": Result("15 °C"), "Rome": Result("noon"), "Oslo": Result("no such city", failed=True)}
PAIRS = [(source, target) for source in CLIENTS for target in PROTOCOLS]
AXES = {"source": CLIENTS.keys(), "target": PROTOCOLS, "stream": WHOLE_OR_STREAM}

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")
streamed = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
pairs = pytest.mark.parametrize(("source", "target"), PAIRS)


def config_with_search(url: str, settings: str = "") -> str:
    """A configuration in which every provider has the tool search."""
    return configuration(url).replace("api_key =", f'tool_search = "gateway"\n{settings}api_key =')


@pytest.fixture(scope="module")
def gateway(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("search")
    file = folder / "toolwire.toml"
    file.write_text(f'{config_with_search(provider.url)}[store]\nurl = "sqlite:///{folder}/store.db"\n')
    with serve_config(file) as base:
        yield base
    close_all()


@pytest.fixture(scope="module")
def forgetful_gateway(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    file = tmp_path_factory.mktemp("forgetful") / "toolwire.toml"
    file.write_text(f'{config_with_search(provider.url)}[store]\nurl = "none"\n')
    with serve_config(file) as base:
        yield base
    close_all()


def limit_tools(says: ScriptedAnswer) -> Callable[[Received], ScriptedAnswer]:
    """An answer of a provider that takes only so many tools."""

    def answer(asked: Received) -> ScriptedAnswer:
        count = len(find_declared_tool(asked.body))
        if count > LIMIT:
            raise NotOffered(f"{count} tools are more than {LIMIT}")
        return says

    return answer


def search(query: str, **more: Any) -> ScriptedAnswer:
    return ScriptedAnswer(calls=(Use(SEARCH_NAME, {"query": query}),), **more)


def use(name: str, city: str, text: str = "", **more: Any) -> ScriptedAnswer:
    return ScriptedAnswer(text, (Use(name, {"city": city}),), **more)


def script_with_limit(provider: Provider, *says: ScriptedAnswer, signed: bool = False) -> Script:
    return provider.script(*(Step(limit_tools(one)) for one in says), signed=signed)


def open_conversation(
    base: str, talk: Script, source: str, target: str, stream: bool, thinking: bool = False
) -> Conversation:
    losses()
    task = Task(f"How is it? {talk.mark}", RESULTS, thinking=thinking, tools=TOOLS)
    # OpenAI's own models take no tools with reasoning in Chat.
    model = "chat/deepseek-reasoner" if thinking and target == "openai-chat" else MODELS[target]
    return CLIENTS[source](base, model, stream, task)


def declared_names(asked: Received) -> list[str]:
    return [tool.name for tool in find_declared_tool(asked.body)]


def head_and_turns(asked: Received) -> tuple[str, list[str], list[str]]:
    """What is before the turns, the tools, and the turns, as they were written."""
    # `cache_control` is not part of the prompt: the first request may be too short to be cached.
    head = {key: value for key, value in asked.body.items() if key in HEAD and key not in ("tools", "cache_control")}
    tools = [one for tool in asked.body["tools"] for one in tool.get("functionDeclarations", [tool])]
    turns = asked.body[find_codec(asked.protocol).constraints.turns_key]
    return json.dumps(head), [*map(json.dumps, tools)], [*map(json.dumps, turns)]


def assert_growing(talk: Script) -> None:
    """What was sent stays at the beginning of what is sent next; tools are only added behind."""
    for shorter, longer in pairwise(map(head_and_turns, talk.asked)):
        assert shorter[0] == longer[0]
        assert longer[1][: len(shorter[1])] == shorter[1]
        assert longer[2][: len(shorter[2])] == shorter[2]
        assert len(longer[2]) > len(shorter[2])


@streamed
def test_the_words_of_the_tools_are_not_read_on_the_event_loop(
    stream: bool, gateway: str, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be thousands, with long descriptions. Nor is the next request written there if it is large."""
    threads: dict[str, str] = {}
    for kind, name in ((ToolIndex, "__init__"), (Exchange, "next_request")):
        run = getattr(kind, name)

        def note(*given: Any, run: Any = run, name: str = name) -> Any:
            threads[name] = threading.current_thread().name
            return run(*given)

        monkeypatch.setattr(kind, name, note)
    talk = script_with_limit(provider, search("weather"), use("get_weather", "Paris"), ScriptedAnswer("15 °C."))
    with monkeypatch.context() as patch:
        patch.setattr(large_work, "LARGE_BODY", 1000)
        open_conversation(gateway, talk, "openai-chat", "anthropic", stream).run()
    assert all(name.startswith("toolwire-large-work") for name in threads.values()), threads
    assert threads.keys() == {"__init__", "next_request"}


@streamed
@pairs
def test_a_tool_is_found_and_called(provider: Provider, gateway: str, source: str, target: str, stream: bool) -> None:
    """The model searches, gets the tool and calls it; the client gets the call alone."""
    talk = script_with_limit(
        provider, search("weather in a city"), use("get_weather", "Paris", "Let me see. "), ScriptedAnswer("15 °C.")
    )
    client = open_conversation(gateway, talk, source, target, stream)
    turns = client.run()
    assert talk.refused == []
    assert [[(call.name, call.arguments) for call in turn.calls] for turn in turns] == [
        [("get_weather", {"city": "Paris"})],
        [],
    ]
    assert [turn.text for turn in turns] == ["Let me see. ", "15 °C."]
    assert "tool-deferred" in losses()
    first, second, third = map(declared_names, talk.asked)
    assert len(first) == 33
    assert first[-1] == SEARCH_NAME
    assert second[: len(first)] == first
    assert second[len(first)] == "get_weather"
    assert third == second
    assert_growing(talk)


@parametrize_pairwise(AXES)
def test_a_growing_conversation(provider: Provider, gateway: str, source: str, target: str, stream: bool) -> None:
    """Several searches, in several turns; a search together with a call of the client; and one that finds nothing."""
    both = ScriptedAnswer("Both. ", (Use("get_weather", {"city": "Oslo"}), Use(SEARCH_NAME, {"query": "time of day"})))
    talk = script_with_limit(
        provider,
        search("shop13__get_item shop130__get_item"),
        search("weather"),
        use("get_weather", "Paris"),
        ScriptedAnswer("15 °C."),
        both,
        use("get_time", "Rome", "And now? "),
        search("xylophone"),
        ScriptedAnswer("Noon."),
    )
    client = open_conversation(gateway, talk, source, target, stream)
    client.run()
    client.ask("And the time in Rome?")
    turns = client.run()
    assert talk.refused == []
    assert [[call.name for call in turn.calls] for turn in turns] == [["get_weather"], ["get_time"], []]
    assert len(talk.asked) == 8
    assert_growing(talk)
    found = declared_names(talk.asked[-1])[33:]
    assert found[0] == "shop130__get_item"
    assert {"get_weather", "get_time"} <= set(found)


@parametrize_pairwise(AXES)
def test_thinking_that_is_signed(provider: Provider, gateway: str, source: str, target: str, stream: bool) -> None:
    """Newer Anthropic models refuse thinking that was made with other tools. All others get theirs back."""
    talk = script_with_limit(
        provider,
        search("weather", thinking="I need a tool.", again=True),
        use("get_weather", "Paris", thinking="Now I have it."),
        ScriptedAnswer("15 °C.", thinking="Enough."),
        search("time of day", thinking="Another."),
        use("get_time", "Rome", thinking="Here it is."),
        ScriptedAnswer("Noon."),
        signed=True,
    )
    client = open_conversation(gateway, talk, source, target, stream, thinking=True)
    client.run()
    client.ask("And the time in Rome?")
    assert client.run()[-1].text == "Noon."
    assert talk.refused == []
    assert len(talk.asked) == 6


@parametrize_pairwise(AXES)
def test_without_a_store(provider: Provider, forgetful_gateway: str, source: str, target: str, stream: bool) -> None:
    """The searches are forgotten; what the history calls is declared."""
    talk = script_with_limit(
        provider, search("weather"), use("get_weather", "Paris"), ScriptedAnswer("15 °C."), ScriptedAnswer("Bye.")
    )
    client = open_conversation(forgetful_gateway, talk, source, target, stream)
    assert client.run()[-1].text == "15 °C."
    client.ask("Thanks.")
    assert client.turn().text == "Bye."
    assert talk.refused == []
    for asked in talk.asked[2:]:
        assert declared_names(asked)[33:] == ["get_weather"]


@pytest.fixture(scope="module")
def equipped_gateway(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("equipped")
    text = serve_with_mcp(folder, provider).replace("api_key =", 'tool_search = "gateway"\ndirect_tools = 0\napi_key =')
    with serve_config_text(folder, text) as base:
        yield base


@pytest.mark.parametrize("target", PROTOCOLS)
def test_tools_of_mcp_servers(provider: Provider, equipped_gateway: str, target: str) -> None:
    """The gateway finds them and runs them; the client sees the answer alone."""
    talk = provider.script(
        search("add two numbers"),
        ScriptedAnswer(calls=(Use("test__add", {"a": 2, "b": 3}),)),
        ScriptedAnswer("It is 5."),
    )
    for source in ("openai-chat", "anthropic"):
        talk.asked.clear()
        body = json.dumps(request_of(source, f"m-{provider_name(target)}", False)).replace("Hi", talk.mark).encode()
        path = path_of(source, f"m-{provider_name(target)}", False)
        got = ask(int(equipped_gateway.rpartition(":")[2]), "POST", path, body)
        assert got.status == 200, got.data
        assert b"It is 5." in got.data
        assert talk.refused == []
        assert declared_names(talk.asked[0]) == [SEARCH_NAME]
        assert declared_names(talk.asked[1])[:2] == [SEARCH_NAME, "test__add"]
        assert "sum" in talk.asked[2].raw


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_few_tools_pass_unchanged(provider: Provider, gateway: str, protocol: str) -> None:
    """Nothing to defer: a provider of the client's protocol gets the client's own bytes."""
    talk = provider.script(ScriptedAnswer("Fine."))
    model = MODELS[protocol]
    asked = request_of(protocol, model, False, tools=FEW_TOOLS[protocol])
    body = json.dumps(asked).replace("Hi", talk.mark)
    got = ask(int(gateway.rpartition(":")[2]), "POST", path_of(protocol, model, False), body.encode())
    assert got.status == 200, got.data
    assert talk.asked[0].raw == body.replace(model, model.partition("/")[2])


SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
FEW_TOOLS: dict[str, Any] = {
    "openai-chat": [{"type": "function", "function": {"name": "one", "parameters": SCHEMA}}],
    "openai-responses": [{"type": "function", "name": "one", "parameters": SCHEMA, "strict": False}],
    "anthropic": [{"name": "one", "input_schema": SCHEMA}],
    "gemini": [{"functionDeclarations": [{"name": "one", "parametersJsonSchema": SCHEMA}]}],
}
