"""Signatures that Chat clients cannot carry: stored by call id, and sent back to the provider unchanged in later turns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import dropwhile, permutations
from pathlib import Path
from typing import Any

import pytest

from gateway.clients import Generate, Messages, Responses, Result, Task
from gateway.conftest import configuration, serve_config
from gateway.provider import KEYS, PROTOCOLS, Provider, Received, Script, ScriptedAnswer
from gateway.state_clients import (
    MODEL,
    REASONING_MODELS,
    SIGNING_PROTOCOLS,
    ChatClient,
    ResponsesClient,
    Spell,
    gateway_with_store,
    open_client,
)
from gateway.test_pairs import read_call_results

STREAMS = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
SEALED = pytest.mark.parametrize("target", SIGNING_PROTOCOLS)
# The SDK's parsed subclasses do not match the types of the fields that hold them when it sends them back.
pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")

PARIS, OSLO, ROME = (
    ("get_weather", {"city": "Paris"}),
    ("get_weather", {"city": "Oslo"}),
    ("get_time", {"city": "Rome"}),
)
THREE = (
    ScriptedAnswer("Let me look.", (PARIS, OSLO), "Paris, then.", again=True),
    ScriptedAnswer("", (ROME,), "And Rome.", again=True),
    ScriptedAnswer("Done."),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("seals")


@pytest.fixture(scope="module")
def client(provider: Provider, folder: Path) -> Iterator[ResponsesClient]:
    with gateway_with_store(folder, provider) as base, open_client(base) as made:
        yield made


@pytest.fixture(scope="module")
def other(provider: Provider, client: ResponsesClient, folder: Path) -> Iterator[ResponsesClient]:
    """A client of a second gateway on the same store."""
    with gateway_with_store(folder, provider) as base, open_client(base) as made:
        assert base != client.sdk.base_url
        yield made


def sent_signatures(talk: Script, number: int) -> list[str]:
    """The signatures that the provider of the first answer got back in this request."""
    assert talk.seal_checker
    asked: Received = talk.asked[number]
    return talk.seal_checker.seals_sent(KEYS[asked.protocol], asked.protocol, asked.body)


def expected_signatures(talk: Script, target: str, answers: int) -> list[str]:
    """The signatures of its first answers; each has some."""
    assert talk.seal_checker
    made = [answer.seals for answer in talk.seal_checker.answers if answer.protocol == target][:answers]
    assert all(made)
    return [seal for seals in made for seal in seals]


# --- back to the provider ---------------------------------------------------------------------------------------------

SPELLED: dict[str, Spell] = {
    "as they came": str,
    "anew": lambda arguments: json.dumps(json.loads(arguments), indent=1),
}


@STREAMS
@SEALED
@pytest.mark.parametrize("spelled", SPELLED)
def test_signatures_go_back_to_the_provider(
    client: ResponsesClient, provider: Provider, target: str, stream: bool, spelled: str
) -> None:
    talk = provider.script(*THREE, signed=True)
    chat = ChatClient(REASONING_MODELS[target], talk, stream, SPELLED[spelled])
    said = [chat.turn(client) for _ in range(3)]
    assert [message.content or "" for message in said] == ["Let me look.", "", "Done."]
    assert sent_signatures(talk, 1) == expected_signatures(talk, target, 1)
    assert sent_signatures(talk, 2) == expected_signatures(talk, target, 2)
    assert [(name, arguments) for name, arguments, _, _ in read_call_results(talk.asked[2])] == [PARIS, OSLO, ROME]
    assert not talk.refused


@STREAMS
@SEALED
def test_signatures_go_back_through_another_gateway(
    client: ResponsesClient, other: ResponsesClient, provider: Provider, target: str, stream: bool
) -> None:
    talk = provider.script(*THREE, signed=True)
    chat = ChatClient(REASONING_MODELS[target], talk, stream)
    for gateway in (client, other, client):
        chat.turn(gateway)
    assert sent_signatures(talk, 1) == expected_signatures(talk, target, 1)
    assert sent_signatures(talk, 2) == expected_signatures(talk, target, 2)


@STREAMS
@SEALED
def test_signatures_go_back_after_a_restart(provider: Provider, tmp_path: Path, target: str, stream: bool) -> None:
    talk = provider.script(*THREE, signed=True)
    chat = ChatClient(REASONING_MODELS[target], talk, stream)
    for _ in range(3):
        with gateway_with_store(tmp_path, provider, keys=()) as base, open_client(base) as client:
            chat.turn(client)
    assert sent_signatures(talk, 1) == expected_signatures(talk, target, 1)
    assert sent_signatures(talk, 2) == expected_signatures(talk, target, 2)


@STREAMS
@pytest.mark.parametrize(
    ("target", "between"), [pair for pair in permutations(PROTOCOLS, 2) if pair[0] in SIGNING_PROTOCOLS]
)
def test_another_provider_does_not_get_signatures(
    client: ResponsesClient, provider: Provider, target: str, between: str, stream: bool
) -> None:
    talk = provider.script(*THREE, signed=True)
    chat = ChatClient(REASONING_MODELS[target], talk, stream)
    for model in (REASONING_MODELS[target], REASONING_MODELS[between], REASONING_MODELS[target]):
        chat.turn(client, model)
    assert [asked.protocol for asked in talk.asked] == [target, between, target]
    assert talk.seal_checker
    for asked in talk.asked:
        assert talk.seal_checker.unknown_seals(KEYS[asked.protocol], asked.protocol, asked.raw) == []
    assert sent_signatures(talk, 2) == expected_signatures(talk, target, 1)
    assert not talk.refused


@SEALED
def test_two_conversations_continue_the_same_turn(client: ResponsesClient, provider: Provider, target: str) -> None:
    talk = provider.script(THREE[0], ScriptedAnswer("One."), ScriptedAnswer("Another."), signed=True)
    chat = ChatClient(REASONING_MODELS[target], talk)
    chat.turn(client)
    before = list(chat.messages)
    chat.turn(client)
    chat.messages = before
    chat.turn(client)
    assert sent_signatures(talk, 1) == sent_signatures(talk, 2) == expected_signatures(talk, target, 1)


# --- unusual clients --------------------------------------------------------------------------------------------------

EDITS: dict[str, Callable[[list[Any]], list[Any]]] = {
    "a call and its result are gone": lambda messages: [
        messages[0], {**messages[1], "tool_calls": messages[1]["tool_calls"][:1]}, messages[2],
    ],
    "the first of them is gone": lambda messages: [
        messages[0], {**messages[1], "tool_calls": messages[1]["tool_calls"][1:]}, messages[3],
    ],
    "the words are gone": lambda messages: [messages[0], {**messages[1], "content": None}, *messages[2:]],
    "other words": lambda messages: [messages[0], {**messages[1], "content": "I looked."}, *messages[2:]],
    "all is gone": lambda messages: messages[:1],
    "a user spoke in between": lambda messages: [*messages, {"role": "user", "content": "Well?"}],
}  # fmt: skip


RUNS = {"openai-responses": 1, "anthropic": 2, "gemini": 1}
"""How many thoughts stand one behind the other in the turn that is edited."""
MANY = 1000
"""Talks after which the ids of calls are so long that no two turns are believed to have the same."""


@SEALED
@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_history(client: ResponsesClient, provider: Provider, target: str, edit: str) -> None:
    """The provider accepts it: reasoning is before the same parts as in its answer, or is left out."""
    while len(provider.talks) < MANY:
        provider.script()
    talk = provider.script(THREE[0], ScriptedAnswer("Done."))
    chat = ChatClient(REASONING_MODELS[target], talk)
    chat.turn(client)
    chat.messages = EDITS[edit](chat.messages)
    assert chat.turn(client).content == "Done."
    assert not talk.refused
    for thoughts, (kind, *_) in list_reasoning_runs(talk.asked[1]):
        assert thoughts <= RUNS[target]
        assert kind in ("message", "text", "function_call", "tool_use", "functionCall"), talk.asked[1].text


def test_a_changed_prefix(client: ResponsesClient, provider: Provider) -> None:
    """Reasoning that is bound to the old prefix is left out; reasoning from after the change goes back."""
    talk = provider.script(*THREE, signed=True)
    chat = ChatClient(REASONING_MODELS["anthropic"], talk)
    chat.turn(client)
    chat.messages[0] = {**chat.messages[0], "content": f"It is Monday. {chat.messages[0]['content']}"}
    chat.turn(client)
    chat.turn(client)
    assert not talk.refused
    assert sent_signatures(talk, 1) == []
    assert talk.seal_checker is not None
    assert sent_signatures(talk, 2) == talk.seal_checker.answers[1].seals != []


def list_reasoning_runs(asked: Received) -> Iterator[tuple[int, list[str]]]:
    """The number of reasoning parts in a row, and the types of the parts after them."""
    body: Any = asked.body
    if asked.protocol == "openai-responses":
        kinds = [item.get("type", "message") for item in body["input"]]
    elif asked.protocol == "anthropic":
        kinds = [b["type"] for m in body["messages"] for b in m["content"] if isinstance(b, dict)]
    else:
        parts = [part for content in body["contents"] for part in content["parts"]]
        kinds = ["thinking" if part.get("thought") else next(iter(part)) for part in parts]
    for at, kind in enumerate(kinds):
        if kind in THOUGHTS and kinds[at - 1] not in THOUGHTS:
            behind = list(dropwhile(THOUGHTS.__contains__, kinds[at:]))
            yield len(kinds[at:]) - len(behind), behind


THOUGHTS = ("reasoning", "thinking", "redacted_thinking")
MINE = "bWluZSwgbm90IHlvdXJz"


@STREAMS
def test_a_client_that_sends_signatures_itself(client: ResponsesClient, provider: Provider, stream: bool) -> None:
    """Clients for Google's own Chat endpoint send signatures; these win over stored ones."""
    talk = provider.script(ScriptedAnswer("", (PARIS, OSLO), "Paris, then."), ScriptedAnswer("Done."))
    chat = ChatClient(MODEL["gemini"], talk, stream)
    chat.turn(client)
    chat.messages[1]["tool_calls"][0]["extra_content"] = {"google": {"thought_signature": MINE}}
    chat.turn(client)
    parts = [part for content in talk.asked[1].body["contents"] for part in content["parts"]]
    assert [part["thoughtSignature"] for part in parts if "thoughtSignature" in part] == [MINE]


@STREAMS
@pytest.mark.parametrize("target", PROTOCOLS)
def test_a_client_that_sends_reasoning_back(
    client: ResponsesClient, provider: Provider, target: str, stream: bool
) -> None:
    """A client that also sends the reasoning back: the provider gets it once."""
    talk = provider.script(*THREE[:1], ScriptedAnswer("Done."), signed=target != "openai-chat")
    chat = ChatClient(REASONING_MODELS[target], talk, stream)
    message = chat.turn(client)
    assert message.reasoning_content.startswith("Paris, then.")
    chat.messages[1]["reasoning_content"] = message.reasoning_content
    chat.turn(client)
    assert talk.asked[1].text.count("Paris, then.") == 1
    if target != "openai-chat":
        assert sent_signatures(talk, 1) == expected_signatures(talk, target, 1)


# --- thinking that DeepSeek wants back --------------------------------------------------------------------------------


def _forget_items(client: Responses) -> None:
    client.input = [item for item in client.input if getattr(item, "type", "") != "reasoning"]


def _forget_blocks(client: Messages) -> None:
    kept = [block for block in client.messages[-1]["content"] if block.type != "thinking"]
    client.messages[-1]["content"] = kept


def _forget_thoughts(client: Generate) -> None:
    for content in client.chat.get_history():
        content.parts = [part for part in content.parts or () if not part.thought and part.text != ""]
        for part in content.parts:
            part.thought_signature = None


FORGETFUL: dict[str, tuple[Callable[..., Any], Callable[..., None]]] = {
    "openai-responses": (Responses, _forget_items),
    "anthropic": (Messages, _forget_blocks),
    "gemini": (Generate, _forget_thoughts),
}


@pytest.fixture(scope="module")
def deepseek(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gateway in front of a server that has DeepSeek's quirks."""
    file = tmp_path_factory.mktemp("deepseek") / "toolwire.toml"
    server = f'protocols = ["openai-chat"]\nbase_url = "{provider.url}/v1"\napi_key = "{KEYS["openai-chat"]}"'
    file.write_text(f"{configuration(provider.url)}[providers.deepseek]\n{server}\n")
    with serve_config(file) as url:
        yield url


@STREAMS
@pytest.mark.parametrize("protocol", FORGETFUL)
def test_deepseek_gets_its_thinking_back_from_clients_that_leave_it_out(
    deepseek: str, provider: Provider, protocol: str, stream: bool
) -> None:
    """As Cline and Continue do, whose protocols could carry it. DeepSeek would answer with 400."""
    make, forget = FORGETFUL[protocol]
    talk = provider.script(*THREE, signed=True)
    results = {city: Result("Sunny.") for city in ("Paris", "Oslo", "Rome")}
    client = make(deepseek, "deepseek/deepseek-v4", stream, Task(f"Weather? {talk.mark}", results, thinking=True))
    for _ in range(2):
        turn = client.turn()
        forget(client)
        client.answer([(call, results[call.arguments["city"]]) for call in turn.calls])
    assert client.turn().text == "Done."
    assert not talk.refused
    thoughts = [message.get("reasoning_content") for message in talk.asked[2].body["messages"]]
    assert [thought for thought in thoughts if thought] == ["Paris, then.", "And Rome."]
