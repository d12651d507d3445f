"""Tools that are run here: the model calls them, is told what came of it and goes on, and the client sees one answer.

Every client, every provider, streamed and whole, with real MCP servers. The providers sign what they answer, and refuse
what the real ones refuse.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from gateway.clients import CLIENTS, Conversation, Result, Task, close_all, losses
from gateway.conftest import provider_name
from gateway.mcp_gateway import over_http, serve_config_text, serve_with_mcp
from gateway.mcp_server import PIXEL
from gateway.provider import PROTOCOLS, Provider, Script, ScriptedAnswer
from gateway.raw_exchange import ask, path_of, request_of
from gateway.test_prefixes import prefix
from gateway.test_provider_changes import assert_sealed, elements
from toolwire.translation.exchange import Exchange

MODELS = {
    "openai-chat": "chat/deepseek-reasoner",
    "openai-responses": "responses/gpt-5.5",
    "anthropic": "anthropic/claude-sonnet-5-5",
    "gemini": "gemini/gemini-3.8-flash",
}
RESULTS = {"Paris": Result("15 °C"), "Rome": Result("noon"), "Oslo": Result("no such city", failed=True)}
PAIRS = [(source, target) for source in CLIENTS for target in PROTOCOLS]

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")
streamed = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
pairs = pytest.mark.parametrize(("source", "target"), PAIRS)


@pytest.fixture(scope="module", name="tooled")
def serve_with_tools(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The gateway: every model has the tools of both servers."""
    folder = tmp_path_factory.mktemp("rounds")
    with over_http() as url, serve_config_text(folder, serve_with_mcp(folder, provider, url=url)) as base:
        yield base
    close_all()


def open_conversation(
    base: str, talk: Script, source: str, target: str, stream: bool, thinking: bool = True
) -> Conversation:
    task = Task(f"How is it? {talk.mark}", RESULTS, thinking=thinking)
    losses()
    return CLIENTS[source](base, MODELS[target], stream, task)


ADD = ("test__add", {"a": 2, "b": 3})
ECHO = ("net__echo", {"text": "from afar"})
PARIS = ("get_weather", {"city": "Paris"})
ROME = ("get_time", {"city": "Rome"})
OSLO = ("get_weather", {"city": "Oslo"})


def check_stable_prefix(talk: Script) -> None:
    """What was sent stands unchanged at the head of what is sent next."""
    for shorter, longer in pairwise(prefix(asked) for asked in talk.asked):
        assert longer[: len(shorter)] == shorter
        assert len(longer) > len(shorter)


# --- one answer -------------------------------------------------------------------------------------------------------


@streamed
@pairs
def test_rounds_are_one_answer(provider: Provider, tooled: str, source: str, target: str, stream: bool) -> None:
    """Two calls at once, of both servers, then one more; with words in between."""
    plain = provider.script(ScriptedAnswer("Hello."))
    one = open_conversation(tooled, plain, source, target, stream).turn().usage
    talk = provider.script(
        ScriptedAnswer("Let me see. ", (ADD, ECHO), "Both.", again=True),
        ScriptedAnswer("", (("test__image", {}),), "And a picture."),
        ScriptedAnswer("It is 5.", (), "Enough."),
        signed=True,
    )
    client = open_conversation(tooled, talk, source, target, stream)
    turn = client.turn()
    assert talk.refused == []
    assert (turn.text, turn.calls) == ("Let me see. It is 5.", [])
    assert turn.usage == tuple(None if count is None else 3 * count for count in one)
    assert len(talk.asked) == 3
    for asked in talk.asked:
        assert_sealed(talk, asked, target)
    check_stable_prefix(talk)
    assert '{\\"sum\\":5}' in talk.asked[1].text or '"sum":5' in talk.asked[1].text
    assert "from afar" in talk.asked[1].text.partition("net__echo")[2]
    assert PIXEL in talk.asked[2].raw.replace("_", "/").replace("-", "+")
    client.ask("And now?")
    talk.steps += plain.steps
    assert client.turn().text == "Hello."
    assert talk.refused == []


def test_the_schemas_of_tools_are_not_translated_by_the_event_loop(
    provider: Provider, tooled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request of a few words has all tools of the servers, and 20 large schemas took a third of a second."""
    threads: set[str] = set()
    translate = Exchange.translate_request

    def note(*given: Any) -> Any:
        threads.add(threading.current_thread().name.partition("_")[0])
        return translate(*given)

    monkeypatch.setattr(Exchange, "translate_request", note)
    talk = provider.script(ScriptedAnswer("Hello."))
    assert open_conversation(tooled, talk, "openai-chat", "anthropic", False).turn().text == "Hello."
    assert threads == {"toolwire-large-work"}


@streamed
@pairs
def test_calls_of_both_kinds(provider: Provider, tooled: str, source: str, target: str, stream: bool) -> None:
    """The client gets its own; its next request goes out with all of them, as the model made them."""
    talk = provider.script(
        ScriptedAnswer("Let me see. ", (ADD,), "First here.", again=True),
        ScriptedAnswer("Now both. ", (PARIS, ECHO, ROME), "Then all.", again=True),
        ScriptedAnswer("", (("test__fail", {}), OSLO), "Once more."),
        ScriptedAnswer("It is 15 °C.", (), "Enough."),
        ScriptedAnswer("You are welcome."),
        signed=True,
    )
    client = open_conversation(tooled, talk, source, target, stream)
    turns = client.run()
    assert talk.refused == []
    assert [[call.name for call in turn.calls] for turn in turns] == [["get_weather", "get_time"], ["get_weather"], []]
    assert [turn.text for turn in turns] == ["Let me see. Now both. ", "", "It is 15 °C."]
    client.ask("Thanks.")
    client.turn()
    assert talk.refused == []
    for asked in talk.asked[:4]:
        assert_sealed(talk, asked, source if source != "openai-chat" else "")
    check_stable_prefix(talk)
    last = "".join(elements(talk.asked[3])[1:])
    order = r"test__add.*sum\W+5.*get_weather.*net__echo.*get_time.*15 .*from afar.*noon"
    assert re.search(order, last, re.DOTALL), last
    assert "the disk is full" in last
    assert "no such city" in last


@streamed
@pairs
def test_a_tool_of_the_client_hides_the_servers_tool_of_that_name(
    provider: Provider, tooled: str, source: str, target: str, stream: bool
) -> None:
    """The model sees one tool of that name, the client's, and the client runs its calls."""
    own = ("test__echo", {"city": "Paris"})
    talk = provider.script(ScriptedAnswer("", (own,)), ScriptedAnswer("It is 15 °C."))
    task = Task(f"How is it? {talk.mark}", RESULTS, tools={"test__echo": "Repeats a city, here at the client."})
    client = CLIENTS[source](tooled, MODELS[target], stream, task)
    turns = client.run()
    assert talk.refused == []
    assert [[(call.name, call.arguments) for call in turn.calls] for turn in turns] == [[own], []]
    assert len(talk.asked) == 2
    for asked in talk.asked:
        assert asked.text.count("Repeats a city, here at the client.") == 1
        assert asked.text.count("Does echo.") == 1, "only that of the other server"
        assert "Does add." in asked.text


@pytest.fixture(scope="module")
def refusing(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gateway that refuses what cannot be translated without a loss."""
    folder = tmp_path_factory.mktemp("refusing")
    with serve_config_text(folder, serve_with_mcp(folder, provider, more='[translate]\non_loss = "refuse"')) as base:
        yield base


@pytest.mark.parametrize("target", PROTOCOLS)
def test_what_the_gateway_adds_is_not_a_loss_of_the_client(provider: Provider, refusing: str, target: str) -> None:
    """The schemas of results that the tools of the MCP server have are not part of the client's request."""
    for source in PROTOCOLS:
        talk = provider.script(ScriptedAnswer("Fine."))
        model = f"m-{provider_name(target)}"
        body = json.dumps(request_of(source, model, False)).replace("Hi", talk.mark).encode()
        got = ask(int(refusing.rpartition(":")[2]), "POST", path_of(source, model, False), body)
        assert got.status == 200, (source, got.data)
        assert "test__add" in talk.asked[0].raw
        assert "no-counterpart" not in got.headers.get("x-toolwire-losses", "")
