"""Tools that are run here, over more than one answer: other providers, no store, state, names, choices, and what is shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import permutations
from typing import Any
from urllib.parse import urlsplit

import anthropic
import openai
import pytest

from gateway.clients import CLIENTS, KEY, close_all, losses
from gateway.mcp_gateway import serve_config_text, serve_with_mcp
from gateway.provider import PROTOCOLS, Provider, ScriptedAnswer
from gateway.raw_exchange import ask
from gateway.state_clients import function_calls, function_outputs, open_client
from gateway.test_tool_rounds import ADD, MODELS, PARIS, open_conversation
from material import WHOLE_OR_STREAM, parametrize_pairwise
from waits import PATIENCE, poll

streamed = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
clients = pytest.mark.parametrize("source", CLIENTS)
every = pytest.mark.parametrize("target", PROTOCOLS)
pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")
ECHO = ("test__echo", {"text": "from afar"})


@pytest.fixture(scope="module", name="tooled")
def serve_with_tools(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("kept")
    with serve_config_text(folder, serve_with_mcp(folder, provider)) as base:
        yield base
    close_all()


@pytest.fixture(scope="module")
def forgetful(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("forgetful")
    with serve_config_text(folder, serve_with_mcp(folder, provider, store='url = "none"')) as base:
        yield base
    close_all()


@pytest.fixture(scope="module")
def telling(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("telling")
    with serve_config_text(
        folder, serve_with_mcp(folder, provider, mcp='models = ["*"]\ncall_visibility = "text"')
    ) as base:
        yield base
    close_all()


def chat(base: str, body: dict[str, Any], path: str = "/chat/completions", **headers: str) -> Any:
    got = ask(urlsplit(base).port or 0, "POST", f"/v1{path}", json.dumps(body).encode(), headers)
    assert got.status == 200, got.data
    return got


# --- other providers, and nobody who keeps anything -------------------------------------------------------------------


@parametrize_pairwise({"source": CLIENTS.keys(), "first,second": permutations(PROTOCOLS, 2), "stream": WHOLE_OR_STREAM})
def test_another_provider_goes_on(
    provider: Provider, tooled: str, source: str, first: str, second: str, stream: bool
) -> None:
    """What was called and told goes along; thinking and seals stay, and are there again when the first goes on."""
    talk = provider.script(
        ScriptedAnswer("Look. ", (ADD,), "First here.", again=True),
        ScriptedAnswer("Both. ", (PARIS, ECHO), "Then both.", again=True),
        ScriptedAnswer("It is 15 °C.", (), "Enough."),
        ScriptedAnswer("Back again."),
        signed=True,
    )
    client = open_conversation(tooled, talk, source, first, stream)
    client.run([MODELS[second]])
    assert talk.refused == []
    assert [asked.protocol for asked in talk.asked] == [first, first, second]
    for words in ("test__add", "from afar", "get_weather", "15 "):
        assert words in talk.asked[2].text
    assert "First here." not in talk.asked[2].text
    client.move(MODELS[first])
    client.ask("And now?")
    client.turn()
    assert talk.refused == []
    assert "from afar" in talk.asked[3].text


@streamed
@every
@clients
def test_without_a_store(provider: Provider, forgetful: str, source: str, target: str, stream: bool) -> None:
    """Calls beside those of the client are not run: nobody could tell the model what came of them."""
    talk = provider.script(
        ScriptedAnswer("Look. ", (ADD,), "First here.", again=True),
        ScriptedAnswer("Both. ", (PARIS, ECHO), "Then both.", again=True),
        ScriptedAnswer("It is 15 °C.", (), "Enough."),
        ScriptedAnswer("Bye."),
        signed=target != "gemini",  # which takes a placeholder, but has to make do with it
    )
    client = open_conversation(forgetful, talk, source, target, stream)
    turns = client.run()
    assert [turn.text for turn in turns] == ["Look. Both. ", "It is 15 °C."]
    client.ask("And now?")
    assert client.turn().text == "Bye."
    assert talk.refused == []
    assert "from afar" not in "".join(json.dumps(asked.body) for asked in talk.asked)
    if not stream:
        assert "call-forgotten" in losses()


# --- state ------------------------------------------------------------------------------------------------------------

OWN = [{"type": "function", "name": "get_weather", "parameters": {"type": "object"}, "strict": False}]


@streamed
@every
def test_answers_that_are_kept(provider: Provider, tooled: str, target: str, stream: bool) -> None:
    """Going on from a kept answer, the model knows what the client never saw."""
    talk = provider.script(
        ScriptedAnswer("Look. ", (ADD,), "Hm.", again=True),
        ScriptedAnswer("Both. ", (PARIS, ECHO), "Hm.", again=True),
        ScriptedAnswer("Once more. ", (("test__echo", {"text": "later"}),), "Hm."),
        ScriptedAnswer("It is 15."),
        ScriptedAnswer("Bye."),
        signed=True,
    )
    with open_client(tooled) as client:
        more: dict[str, Any] = {"model": MODELS[target], "tools": OWN, "stream": stream}
        one = client.turn(input=[{"role": "user", "content": talk.mark}], **more)
        assert [call.name for call in function_calls(one)] == ["get_weather"]
        assert [tool.name for tool in one.tools] == ["get_weather"]
        two = client.turn(input=function_outputs(one, "15 °C"), previous_response_id=one.id, **more)
        assert two.output_text == "Once more. It is 15."
        three = client.turn(input="And?", previous_response_id=two.id, **more)
        assert three.output_text == "Bye."
    assert talk.refused == []
    for words in ("test__add", "from afar", "later"):
        assert words in talk.asked[4].text


@every
def test_in_the_background(provider: Provider, tooled: str, target: str) -> None:
    talk = provider.script(ScriptedAnswer("Look. ", (ADD,)), ScriptedAnswer("It is 5."))
    with open_client(tooled) as client:
        job = client.sdk.responses.create(model=MODELS[target], input=talk.mark, background=True)
        job = poll(
            lambda: client.sdk.responses.retrieve(job.id), lambda found: found.status not in ("queued", "in_progress")
        )
        assert job.output_text == "Look. It is 5."
    assert talk.refused == []


@every
def test_a_conversation(provider: Provider, tooled: str, target: str) -> None:
    talk = provider.script(
        ScriptedAnswer("Look. ", (ADD,), "Hm.", again=True),
        ScriptedAnswer("It is 5."),
        ScriptedAnswer("Bye."),
        signed=True,
    )
    with open_client(tooled) as client:
        conversation = client.sdk.conversations.create().id
        client.turn(MODELS[target], talk.mark, conversation=conversation)
        assert client.turn(MODELS[target], "And?", conversation=conversation).output_text == "Bye."
    assert talk.refused == []
    assert "sum" in talk.asked[2].text.partition("test__add")[2]


def test_a_summary_calls_nothing(provider: Provider, tooled: str) -> None:
    talk = provider.script(ScriptedAnswer("In short: a test."))
    with open_client(tooled) as client:
        got = client.raw("POST", "/responses/compact", {"model": MODELS["anthropic"], "input": talk.mark})
        assert got.status == 200, got.data
    assert "test__add" not in talk.asked[0].text


# --- names and choices ------------------------------------------------------------------------------------------------


def test_a_tool_of_the_clients_own_wins(provider: Provider, tooled: str) -> None:
    talk = provider.script(ScriptedAnswer("", (ADD,)))
    tools = [{"type": "function", "function": {"name": "test__add", "parameters": {"type": "object"}}}]
    body = {"model": MODELS["anthropic"], "messages": [{"role": "user", "content": talk.mark}], "tools": tools}
    message = chat(tooled, body).json()["choices"][0]["message"]
    assert [call["function"]["name"] for call in message["tool_calls"]] == ["test__add"]
    assert [tool["name"] for tool in talk.asked[0].body["tools"]].count("test__add") == 1
    assert len(talk.asked) == 1


@streamed
@every
def test_a_choice_that_is_forced(provider: Provider, tooled: str, target: str, stream: bool) -> None:
    """The model must call it once, not for ever."""
    talk = provider.script(ScriptedAnswer("", (ADD,)), ScriptedAnswer("It is 5."))
    sdk = openai.OpenAI(api_key=KEY, base_url=f"{tooled}/v1", max_retries=0, timeout=PATIENCE)
    choice: Any = {"type": "function", "function": {"name": "test__add"}}
    model = MODELS[target].replace("sonnet-5-5", "sonnet-4-5")  # the newest cannot be forced
    asked: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": talk.mark}]}
    with sdk:
        if stream:
            with sdk.chat.completions.stream(**asked, tool_choice=choice) as stream_:
                whole: Any = stream_.get_final_completion()
        else:
            whole = sdk.chat.completions.create(**asked, tool_choice=choice)
    assert whole.choices[0].message.content == "It is 5."
    assert "test__add" in json.dumps(_choice(talk.asked[0].body))
    assert "test__add" not in json.dumps(_choice(talk.asked[1].body))


def _choice(body: dict[str, Any]) -> Any:
    return body.get("tool_choice") or body.get("toolConfig")


def test_several_answers_at_once_have_no_further_tools(provider: Provider, tooled: str) -> None:
    talk = provider.script(ScriptedAnswer("Hello."))
    body = {"model": "m-chat", "messages": [{"role": "user", "content": talk.mark}], "n": 2}
    chat(tooled, body)
    assert "tools" not in talk.asked[0].body


def test_fields_that_only_the_provider_knows(provider: Provider, tooled: str) -> None:
    talk = provider.script(ScriptedAnswer("", (ADD,)), ScriptedAnswer("It is 5."))
    new = {"prediction": {"type": "content", "content": "ü"}}
    body = {"model": "m-chat", "messages": [{"role": "user", "content": talk.mark}], **new}
    assert chat(tooled, body).json()["choices"][0]["message"]["content"] == "It is 5."
    for asked in talk.asked:
        assert asked.body["prediction"] == new["prediction"]


def test_tokens_of_added_tools_are_counted(provider: Provider, tooled: str, gateway: str) -> None:
    body = {"model": MODELS["anthropic"], "messages": [{"role": "user", "content": "Hi."}]}
    counts = [chat(base, body, "/messages/count_tokens").json()["input_tokens"] for base in (gateway, tooled)]
    assert counts[0] < counts[1]


# --- calls that are shown ---------------------------------------------------------------------------------------------


@streamed
@every
@clients
def test_calls_that_are_shown(provider: Provider, telling: str, source: str, target: str, stream: bool) -> None:
    talk = provider.script(
        ScriptedAnswer("Look. ", (ADD,), "Hm.", again=True),
        ScriptedAnswer("Now. ", (PARIS,), "Yes.", again=True),
        ScriptedAnswer("It is 15."),
        ScriptedAnswer("Bye."),
        signed=True,
    )
    client = open_conversation(telling, talk, source, target, stream)
    turns = client.run()
    client.ask("And?")
    client.turn()
    assert talk.refused == []
    assert "test__add" in turns[0].thinking
    assert "9 characters" in turns[0].thinking
    assert turns[0].text == "Look. Now. "
    assert "9 characters" not in "".join(asked.raw for asked in talk.asked)


def test_a_client_that_asks_to_see_calls(provider: Provider, tooled: str) -> None:
    talk = provider.script(
        ScriptedAnswer("", (ADD,)), ScriptedAnswer("It is 5."), ScriptedAnswer("", (ADD,)), ScriptedAnswer("It is 5.")
    )
    sdk = anthropic.Anthropic(api_key=KEY, base_url=tooled, max_retries=0, timeout=PATIENCE)
    messages: Any = [{"role": "user", "content": talk.mark}]
    with sdk:
        show = {"x-toolwire-calls": "show"}
        shown = sdk.messages.create(model=MODELS["gemini"], messages=messages, max_tokens=100, extra_headers=show)
        hidden = sdk.messages.create(model=MODELS["gemini"], messages=messages, max_tokens=100)
    assert [block.type for block in shown.content] == ["thinking", "text"]
    assert [block.type for block in hidden.content] == ["text"]
    assert "x-toolwire-calls" not in talk.asked[0].headers
