"""Rules and tools of MCP servers: a rule drops, renames, limits them as any other, and calls of them still run here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gateway.clients import CLIENTS, Conversation, Result, Task, close_all
from gateway.mcp_gateway import serve_config_text, serve_with_mcp
from gateway.provider import PROTOCOLS, Provider, Received, Script, ScriptedAnswer
from gateway.test_pairs import MODELS, read_call_results

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")
PAIRS = [(source, target) for source in CLIENTS for target in PROTOCOLS]
streamed = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
pairs = pytest.mark.parametrize(("source", "target"), PAIRS)

ONLY = 'models = ["*"]\ntools = ["add", "echo", "fail", "image"]'
RULES = """
[[policy]]
name = "sum"
tool = "test__add"
rename = "plus"
parameters = { a = "first", b = "second" }

[[policy]]
name = "no echo"
tool = "test__echo"
drop = true
guidance = "There is no `{tool}`: listen."

[[policy]]
name = "few"
model = "few-*"
max_tools = 3
keep = ["get_*", "test__add"]

[[policy]]
name = "mine"
tool = "get_weather"
rename = "weather_of"
"""
ALIASES = "\n".join(
    f'[models."few-{model}"]\nprovider = "{model.partition("/")[0]}"\nmodel = "{model.partition("/")[2]}"'
    for model in MODELS.values()
)
PARIS = ("weather_of", {"city": "Paris"})
PLUS = ("plus", {"first": 2, "second": 3})


@pytest.fixture(scope="module", name="tooled")
def serve_with_tools(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("ruled-mcp")
    with serve_config_text(folder, serve_with_mcp(folder, provider, mcp=ONLY, more=ALIASES + RULES)) as base:
        yield base
    close_all()


def open_conversation(base: str, talk: Script, source: str, model: str, stream: bool) -> Conversation:
    return CLIENTS[source](base, model, stream, Task(f"How is it? {talk.mark}", {"Paris": Result("15 °C")}))


def list_sent_calls(asked: Received) -> list[tuple[str, Any]]:
    return [(name, arguments) for name, arguments, _, _ in read_call_results(asked)]


def offered_names(asked: Received) -> set[str]:
    """The names of the tools that a provider was given."""
    tools = [tool.get("function", tool) for tool in asked.body["tools"]]
    return {one["name"] for tool in tools for one in tool.get("functionDeclarations", [tool])}


@streamed
@pairs
def test_a_renamed_one_runs(provider: Provider, tooled: str, source: str, target: str, stream: bool) -> None:
    """Beside a call of the client's own, which has another name too; and is told again as the model made it."""
    talk = provider.script(
        ScriptedAnswer("So. ", (PLUS,)),
        ScriptedAnswer("", (PLUS, PARIS)),
        ScriptedAnswer("It is 5."),
        ScriptedAnswer("Bye."),
    )
    client = open_conversation(tooled, talk, source, MODELS[target], stream)
    first = client.turn()
    assert [(call.name, call.arguments) for call in first.calls] == [("get_weather", {"city": "Paris"})]
    client.answer([(call, Result("15 °C")) for call in first.calls])
    assert client.turn().text == "It is 5."
    client.ask("And now?")
    assert client.turn().text == "Bye."
    assert offered_names(talk.asked[0]) == {"plus", "test__fail", "test__image", "weather_of", "get_time"}
    assert list_sent_calls(talk.asked[1]) == [PLUS]
    assert list_sent_calls(talk.asked[2]) == list_sent_calls(talk.asked[3]) == [PLUS, PLUS, PARIS]
    given = [text for _, _, text, _ in read_call_results(talk.asked[3])]
    assert ["sum" in text and "5" in text for text in given] == [True, True, False]
    assert all("test__add" not in asked.text for asked in talk.asked)
    assert talk.refused == []


@streamed
@pairs
def test_a_dropped_one_is_told_to_the_model_and_does_not_run(
    provider: Provider, tooled: str, source: str, target: str, stream: bool
) -> None:
    talk = provider.script(ScriptedAnswer("", (("test__echo", {"text": "hear me"}),)), ScriptedAnswer("Well."))
    turn = open_conversation(tooled, talk, source, MODELS[target], stream).turn()
    assert (turn.text, turn.calls) == ("Well.", [])
    [(name, _, text, _)] = read_call_results(talk.asked[1])
    assert name == "test__echo"
    assert "The tool `test__echo` is not available. There is no `test__echo`: listen." in text
    assert talk.asked[0].text.count("There is no `test__echo`: listen.") == 1
    assert talk.refused == []


@streamed
@pairs
def test_a_limit_counts_them(provider: Provider, tooled: str, source: str, target: str, stream: bool) -> None:
    talk = provider.script(
        ScriptedAnswer("", (("test__fail", {}),)), ScriptedAnswer("", (PLUS,)), ScriptedAnswer("It is 5.")
    )
    turn = open_conversation(tooled, talk, source, f"few-{MODELS[target]}", stream).turn()
    assert (turn.text, turn.calls) == ("It is 5.", [])
    assert offered_names(talk.asked[0]) == {"weather_of", "get_time", "plus"}
    refused, ran = read_call_results(talk.asked[2])
    assert "The tool `test__fail` is not available." in refused[2]
    assert (ran[0], ran[1]) == PLUS
    assert "5" in ran[2]
    assert talk.refused == []
