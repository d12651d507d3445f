"""Policies and stored state: the store has the client's names, the model gets its own, also after the rules have changed."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.clients import CLIENTS, Result, Task, close_all
from gateway.conftest import only_where
from gateway.process import run_gateway
from gateway.provider import KEYS, PROTOCOLS, Provider, Received, Script, ScriptedAnswer
from gateway.raw_exchange import answer, ask, stage
from gateway.state_clients import (
    BACKGROUND_LEASE,
    FUNCTIONS,
    MODEL,
    REASONING_MODELS,
    SIGNING_PROTOCOLS,
    ChatClient,
    ResponsesClient,
    assert_received,
    function_calls,
    function_outputs,
    gateway_with_store,
    open_client,
    store_url,
)
from gateway.test_pairs import read_call_results
from toolwire_conformance.peers.peer import encode_json
from waits import poll

STREAMS = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
EVERYWHERE = pytest.mark.parametrize("target", PROTOCOLS)
pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")

RENAMED = """
[[policy]]
name = "weather"
tool = "get_weather"
rename = "weather_of"
parameters = { city = "town" }
"""
OTHERWISE = """
[[policy]]
name = "weather"
tool = "get_weather"
rename = "sky"
reshape = { city = { to = "places", as = "one-list" } }

[[policy]]
name = "no time"
tool = "get_time"
drop = true
guidance = "There is no `{tool}`."
"""
THERE = RENAMED.replace('name = "weather"', 'name = "weather"\nprovider = "anthropic"', 1)
CHECKED = RENAMED + 'validate = "retry"\n'
RULES = {"checked": CHECKED, "renamed": RENAMED, "otherwise": OTHERWISE, "none": "", "there": THERE}
OWN = ("get_weather", {"city": "Paris"})
SEEN = {
    "renamed": ("weather_of", {"town": "Paris"}),
    "otherwise": ("sky", {"places": ["Paris"]}),
    "none": OWN,
}
"""The call as the model makes it and gets it back, by the rules in force."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ruled")


@pytest.fixture(scope="module")
def clients(provider: Provider, folder: Path) -> Iterator[dict[str, ResponsesClient]]:
    """Gateways on one store, each with other rules, as after a change of the configuration."""
    store = f'url = "{store_url(folder)}"\n{BACKGROUND_LEASE}\n'
    made: dict[str, ResponsesClient] = {}
    opened: list[Any] = []
    for name, rules in RULES.items():
        own = folder / name
        own.mkdir()
        gateway = gateway_with_store(own, provider, store + rules)
        client = open_client(gateway.__enter__())
        opened += [gateway, client]
        made[name] = client.__enter__()
    yield made
    close_all()
    for one in reversed(opened):
        one.__exit__(None, None, None)


def sent_calls(asked: Received) -> list[tuple[str, Any]]:
    """The calls in the history that a provider was sent."""
    if isinstance(asked.body.get("input"), str):
        return []
    return [(name, arguments) for name, arguments, _, _ in read_call_results(asked)]


def response_calls(response: Any) -> list[tuple[str, Any]]:
    return [(call.name, json.loads(call.arguments)) for call in function_calls(response)]


def listed_calls(items: Any) -> list[tuple[str, Any]]:
    return [(item.name, json.loads(item.arguments)) for item in items if item.type == "function_call"]


# --- what is kept -----------------------------------------------------------------------------------------------------


@STREAMS
@EVERYWHERE
def test_a_response_is_stored_as_the_client_got_it(
    clients: dict[str, ResponsesClient], provider: Provider, target: str, stream: bool
) -> None:
    client, model = clients["renamed"], MODEL[target]
    talk = provider.script(ScriptedAnswer("Let me look.", (SEEN["renamed"],)), ScriptedAnswer("It is mild."))
    first = client.turn(model, talk.mark, stream, tools=FUNCTIONS)
    assert response_calls(first) == response_calls(client.sdk.responses.retrieve(first.id)) == [OWN]
    second = client.turn(
        model, function_outputs(first, "15 °C"), stream, tools=FUNCTIONS, previous_response_id=first.id
    )
    assert second.output_text == "It is mild."
    assert [tool.name for tool in second.tools] == [tool["name"] for tool in FUNCTIONS]
    assert listed_calls(client.sdk.responses.input_items.list(second.id, order="asc")) == [OWN]
    assert sent_calls(talk.asked[1]) == [SEEN["renamed"]]
    assert all("get_weather" not in asked.text for asked in talk.asked)
    assert not talk.refused


@STREAMS
@EVERYWHERE
def test_a_conversation_is_stored_as_the_client_got_it(
    clients: dict[str, ResponsesClient], provider: Provider, target: str, stream: bool
) -> None:
    client, model = clients["renamed"], MODEL[target]
    talk = provider.script(ScriptedAnswer("Let me look.", (SEEN["renamed"],)), ScriptedAnswer("It is mild."))
    room = client.sdk.conversations.create()
    first = client.turn(model, talk.mark, stream, tools=FUNCTIONS, conversation=room.id)
    client.turn(model, function_outputs(first, "15 °C"), stream, tools=FUNCTIONS, conversation=room.id)
    assert response_calls(first) == listed_calls(client.sdk.conversations.items.list(room.id, order="asc")) == [OWN]
    assert sent_calls(talk.asked[1]) == [SEEN["renamed"]]
    assert all("get_weather" not in asked.text for asked in talk.asked)


@EVERYWHERE
def test_a_background_response_is_stored_as_the_client_got_it(
    clients: dict[str, ResponsesClient], provider: Provider, target: str
) -> None:
    client, model = clients["renamed"], MODEL[target]
    talk = provider.script(ScriptedAnswer("", (SEEN["renamed"],)), ScriptedAnswer("It is mild."))
    begun = client.sdk.responses.create(model=model, input=talk.mark, background=True, tools=FUNCTIONS)  # type: ignore[call-overload]
    first = wait_for_end(client, begun.id)
    assert response_calls(first) == [OWN]
    with client.sdk.responses.stream(response_id=first.id) as events:
        assert response_calls(events.get_final_response()) == [OWN]
    client.turn(model, function_outputs(first, "15 °C"), tools=FUNCTIONS, previous_response_id=first.id)
    assert sent_calls(talk.asked[1]) == [SEEN["renamed"]]


def wait_for_end(client: ResponsesClient, id: str) -> Any:
    return poll(lambda: client.sdk.responses.retrieve(id), lambda found: found.status not in ("queued", "in_progress"))


# --- what changes between two turns -----------------------------------------------------------------------------------


@STREAMS
@EVERYWHERE
@pytest.mark.parametrize("how", ["previous_response_id", "conversation"])
def test_rules_change_between_turns(
    clients: dict[str, ResponsesClient], provider: Provider, target: str, stream: bool, how: str
) -> None:
    order = ["renamed", "otherwise", "none", "renamed"]
    talk = provider.script(*(ScriptedAnswer("", (SEEN[rules],)) for rules in order[:3]), ScriptedAnswer("It is mild."))
    room = clients["none"].sdk.conversations.create()
    given: Any = talk.mark
    going: dict[str, Any] = {}
    for rules in order:
        going = {"conversation": room.id} if how == "conversation" else going
        turn = clients[rules].turn(MODEL[target], given, stream, tools=FUNCTIONS, **going)
        given, going = function_outputs(turn, *["15 °C"] * len(function_calls(turn))), {"previous_response_id": turn.id}
        assert response_calls(turn) in ([OWN], [])
    assert turn.output_text == "It is mild."
    assert [sent_calls(asked) for asked in talk.asked] == [[SEEN[rules]] * number for number, rules in enumerate(order)]
    assert not talk.refused


def test_a_reload_between_turns(provider: Provider, tmp_path: Path) -> None:
    file = tmp_path / "toolwire.toml"
    talk = provider.script(
        ScriptedAnswer("", (SEEN["renamed"],)), ScriptedAnswer("", (SEEN["otherwise"],)), ScriptedAnswer("It is mild.")
    )
    with gateway_with_store(tmp_path, provider, keys=()):
        plain = file.read_text().replace('log_format = "none"', 'log_format = "json"')
    file.write_text(plain + RENAMED)
    with (
        run_gateway(tmp_path, "--config", str(file)) as process,
        open_client(f"http://127.0.0.1:{process.port}") as client,
    ):
        first = client.turn("m-anthropic", talk.mark, tools=FUNCTIONS)
        file.write_text(plain + OTHERWISE)
        process.signal(signal.SIGHUP)
        process.read_log_until('"config_reloaded"')
        second = client.turn(
            "m-anthropic", function_outputs(first, "15 °C"), tools=FUNCTIONS, previous_response_id=first.id
        )
        client.turn("m-anthropic", function_outputs(second, "16 °C"), tools=FUNCTIONS, previous_response_id=second.id)
    assert response_calls(first) == response_calls(second) == [OWN]
    assert [sent_calls(asked) for asked in talk.asked] == [[], [SEEN["otherwise"]], [SEEN["otherwise"]] * 2]


@STREAMS
@pytest.mark.parametrize("target", [protocol for protocol in PROTOCOLS if protocol != "anthropic"])
def test_the_provider_changes_between_turns(
    clients: dict[str, ResponsesClient], provider: Provider, target: str, stream: bool
) -> None:
    client, there = clients["there"], SEEN["renamed"]
    talk = provider.script(ScriptedAnswer("", (there,)), ScriptedAnswer("", (OWN,)), ScriptedAnswer("It is mild."))
    first = client.turn("m-anthropic", talk.mark, stream, tools=FUNCTIONS)
    second = client.turn(
        MODEL[target], function_outputs(first, "15 °C"), stream, tools=FUNCTIONS, previous_response_id=first.id
    )
    client.turn(
        "m-anthropic", function_outputs(second, "16 °C"), stream, tools=FUNCTIONS, previous_response_id=second.id
    )
    assert response_calls(first) == response_calls(second) == [OWN]
    assert [sent_calls(asked) for asked in talk.asked] == [[], [OWN], [there] * 2]
    assert not talk.refused


@STREAMS
@EVERYWHERE
def test_a_refused_call_is_stored_and_outlives_its_rule(
    clients: dict[str, ResponsesClient], provider: Provider, target: str, stream: bool
) -> None:
    """The client never saw it; the model sees it again, renamed by the rules in force."""
    gone = ("get_time", {"city": "Rome"})
    talk = provider.script(
        ScriptedAnswer("", (gone,)),
        ScriptedAnswer("", (SEEN["otherwise"],)),
        ScriptedAnswer("It is mild."),
        ScriptedAnswer("Bye."),
    )
    first = clients["otherwise"].turn(MODEL[target], talk.mark, stream, tools=FUNCTIONS)
    assert response_calls(first) == [OWN]
    second = clients["renamed"].turn(
        MODEL[target], function_outputs(first, "15 °C"), stream, tools=FUNCTIONS, previous_response_id=first.id
    )
    assert second.output_text == "It is mild."
    clients["otherwise"].turn(MODEL[target], "Bye", stream, tools=FUNCTIONS, previous_response_id=second.id)
    assert sent_calls(talk.asked[1]) == [gone]
    assert sent_calls(talk.asked[2]) == [gone, SEEN["renamed"]]
    assert sent_calls(talk.asked[3]) == [gone, SEEN["otherwise"]]
    assert not talk.refused


@STREAMS
@EVERYWHERE
def test_a_retried_call_follows_the_rules_in_force(
    clients: dict[str, ResponsesClient], provider: Provider, target: str, stream: bool
) -> None:
    bad, other = {"village": "Paris"}, ("sky", {"village": "Paris"})
    first_try = ("weather_of", bad)
    talk = provider.script(
        ScriptedAnswer("", (first_try,)),
        ScriptedAnswer("", (SEEN["renamed"],)),
        ScriptedAnswer("It is mild."),
        ScriptedAnswer("Bye."),
    )
    first = clients["checked"].turn(MODEL[target], talk.mark, stream, tools=FUNCTIONS)
    assert response_calls(first) == [OWN]
    second = clients["checked"].turn(
        MODEL[target], function_outputs(first, "15 °C"), stream, tools=FUNCTIONS, previous_response_id=first.id
    )
    clients["otherwise"].turn(MODEL[target], "Bye", stream, tools=FUNCTIONS, previous_response_id=second.id)
    assert sent_calls(talk.asked[2]) == [first_try, SEEN["renamed"]]
    assert sent_calls(talk.asked[3]) == [other, SEEN["otherwise"]]
    assert not talk.refused


# --- summaries --------------------------------------------------------------------------------------------------------

SUMMARY = "The user lives in Paris, where it is 15 °C."


@only_where(lambda target, how: target != "openai-responses" or how == "trigger")
@EVERYWHERE
@pytest.mark.parametrize("how", ["by itself", "kept", "trigger"])
def test_compaction_under_rules(clients: dict[str, ResponsesClient], provider: Provider, target: str, how: str) -> None:
    client, model = clients["renamed"], MODEL[target]
    talk = provider.script(
        ScriptedAnswer("", (SEEN["renamed"],)),
        ScriptedAnswer("It is mild."),
        ScriptedAnswer(SUMMARY),
        ScriptedAnswer("Fine."),
    )
    first = client.turn(model, talk.mark, tools=FUNCTIONS)
    given = function_outputs(first, "15 °C")
    second = client.turn(model, given, tools=FUNCTIONS, previous_response_id=first.id)
    made: list[Any] = []
    going: dict[str, Any] = {}
    if how == "trigger":
        trigger: list[Any] = [{"type": "compaction_trigger"}]
        done = client.turn(model, trigger, tools=FUNCTIONS, previous_response_id=second.id)
        going = {"previous_response_id": done.id}
    elif how == "kept":
        made = client.sdk.responses.compact(model=model, previous_response_id=second.id).output
    else:
        asked: list[Any] = [{"role": "user", "content": talk.mark}, *first.output, *given, *second.output]
        made = client.sdk.responses.compact(model=model, input=asked).output
    assert "get_weather" not in talk.asked[2].text
    assert "weather_of" in talk.asked[2].text
    after = client.turn(model, [*made, {"role": "user", "content": "How is it?"}], tools=FUNCTIONS, **going)
    assert after.output_text == "Fine."
    # A provider of the protocol gives the summary in a form that only it can read.
    summary = '"type":"compaction"' if target == "openai-responses" else SUMMARY
    assert_received(talk.asked[3], summary, "How is it?")
    assert "get_weather" not in talk.asked[3].text
    assert not talk.refused


def test_a_provider_that_compacts_itself_gets_the_model_s_own_calls(tmp_path: Path) -> None:
    summary = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAAABpof-its-maker=="}
    own = {"id": "resp_1", "object": "response.compaction", "created_at": 1, "output": [summary]}
    call = {"type": "function_call", "call_id": "call_1", "name": "get_weather", "arguments": '{"city":"Paris"}'}
    items = [
        {"role": "user", "content": "Hi"},
        call,
        {"type": "function_call_output", "call_id": "call_1", "output": "15 °C"},
    ]
    with stage(tmp_path, more=f'[store]\nurl = "{store_url(tmp_path)}"\n{RENAMED}') as served:
        scene = served.scene("openai-responses", answer(200, encode_json(own).encode()))
        body = {"model": scene.model, "input": items, "moderation": [1.50]}
        got = ask(served.port, "POST", "/v1/responses/compact", encode_json(body).encode())
    assert (got.status, got.json()) == (200, own)
    (asked,) = scene.asked
    seen = {**call, "name": "weather_of", "arguments": '{"town":"Paris"}'}
    assert asked.target == "/v1/responses/compact"
    assert asked.json() == {"model": scene.name, "input": [items[0], seen, items[2]], "moderation": [1.5]}


# --- seals ------------------------------------------------------------------------------------------------------------


def sent_signatures(talk: Script, number: int) -> list[str]:
    assert talk.seal_checker
    asked = talk.asked[number]
    return talk.seal_checker.seals_sent(KEYS[asked.protocol], asked.protocol, asked.body)


def assert_signatures(talk: Script, order: list[str]) -> None:
    """Signatures are bound to the tools that the model saw. A model gets them back on its own calls, as long as the
    rules are the same as when it made them."""
    assert talk.seal_checker
    assert talk.refused == []
    assert [sent_calls(asked) for asked in talk.asked] == [[SEEN[rules]] * number for number, rules in enumerate(order)]
    owed = [answer.seals for answer in talk.seal_checker.answers]
    assert all(owed[:2])
    assert sent_signatures(talk, 1) == (owed[0] if order[0] == order[1] else [])
    assert sent_signatures(talk, 2) == owed[0] + (owed[1] if order[1] == order[2] else [])


ORDERS = pytest.mark.parametrize(
    "order",
    [["renamed"] * 3, ["renamed", "none", "renamed"], ["renamed", "otherwise", "renamed"]],
    ids=["steady", "without", "changing"],
)


@STREAMS
@ORDERS
@pytest.mark.parametrize("target", SIGNING_PROTOCOLS)
@pytest.mark.parametrize("source", [name for name in CLIENTS if CLIENTS[name].seals])
def test_carried_signatures_go_back_with_the_same_tools(
    clients: dict[str, ResponsesClient], provider: Provider, source: str, target: str, stream: bool, order: list[str]
) -> None:
    steps = [ScriptedAnswer("So.", (SEEN[rules],), "Paris, then.", again=True) for rules in order[:2]]
    talk = provider.script(*steps, ScriptedAnswer("Done."), signed=True)
    task = Task(talk.mark, {"Paris": Result("15 °C")}, thinking=True)
    bases = [str(clients[rules].sdk.base_url).removesuffix("/v1/") for rules in order]
    client = CLIENTS[source](bases[0], MODEL[target], stream, task)
    for base in bases:
        client.base = base
        client.move(client.model)
        turn = client.turn()
        assert [(call.name, call.arguments) for call in turn.calls] in ([OWN], [])
        client.answer([(call, Result("15 °C")) for call in turn.calls])
    assert_signatures(talk, order)


@STREAMS
@ORDERS
@pytest.mark.parametrize("target", SIGNING_PROTOCOLS)
def test_stored_signatures_go_back_on_the_model_s_own_calls(
    clients: dict[str, ResponsesClient], provider: Provider, target: str, stream: bool, order: list[str]
) -> None:
    steps = [ScriptedAnswer("So.", (SEEN[rules],), "Paris, then.", again=True) for rules in order[:2]]
    talk = provider.script(*steps, ScriptedAnswer("Done."), signed=True)
    chat = ChatClient(REASONING_MODELS[target], talk, stream)
    said = [chat.turn(clients[rules]) for rules in order]
    assert [call.function.name for message in said for call in message.tool_calls or ()] == ["get_weather"] * 2
    assert_signatures(talk, order)
