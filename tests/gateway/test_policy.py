"""Rules at work: every client, every provider, streamed and whole, through real sockets."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from gateway.clients import CLIENTS, Conversation, Result, Task, close_all, losses
from gateway.conftest import configuration, provider_name, serve_config
from gateway.provider import KEYS, PROTOCOLS, Provider, Script, ScriptedAnswer
from gateway.test_pairs import MODELS, read_call_results
from material import WHOLE_OR_STREAM, parametrize_pairwise
from waits import PATIENCE

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")
everywhere = [
    pytest.mark.parametrize("source", CLIENTS),
    pytest.mark.parametrize("target", PROTOCOLS),
    pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"]),
]


def in_all_pairs(test: Callable[..., None]) -> Callable[..., None]:
    for mark in everywhere:
        test = mark(test)
    return test


RULES = """
[[policy]]
name = "weather"
tool = "get_weather"
rename = "weather_of"
parameters = { city = "town" }
description = "Tells the weather."

[[policy]]
name = "no time"
tool = "get_time"
drop = true
guidance = "There is no `{tool}`: look at the sky."

[[policy]]
name = "numbers"
tool = "roll"
validate = "retry"

[[policy]]
name = "strictly"
tool = "guess"
validate = "refuse"

[[policy]]
name = "there only"
provider = "anthropic"
tool = "ask"
rename = "question"
parameters = { city = "place" }

[[policy]]
name = "codex only"
agent = "codex"
parallel = false
"""
DONE = "It is 15 °C in Paris."


@pytest.fixture(scope="module", name="ruled")
def serve_with_rules(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    file = tmp_path_factory.mktemp("policy") / "toolwire.toml"
    file.write_text(configuration(provider.url) + RULES)
    with serve_config(file) as url:
        yield url
    close_all()


Start = Callable[..., tuple[Conversation, Script]]


@pytest.fixture
def start(provider: Provider, ruled: str, source: str, target: str, stream: bool) -> Start:
    def begin(
        *steps: ScriptedAnswer, tools: tuple[str, ...] = ("get_weather", "get_time")
    ) -> tuple[Conversation, Script]:
        talk = provider.script(*steps)
        task = Task(
            f"How is the weather? {talk.mark}",
            {"Paris": Result("15 °C")},
            tools=dict.fromkeys(tools, "Tells something about a city."),
        )
        losses()
        return CLIENTS[source](ruled, MODELS[target], stream, task), talk

    return begin


@in_all_pairs
def test_the_model_sees_one_tool_and_the_client_the_other(start: Start, target: str) -> None:
    client, talk = start(ScriptedAnswer(calls=(("weather_of", {"town": "Paris"}),)), ScriptedAnswer(DONE))
    first, last = client.run()
    assert [(call.name, call.arguments) for call in first.calls] == [("get_weather", {"city": "Paris"})]
    assert last.text == DONE
    assert [(name, arguments) for name, arguments, _, _ in read_call_results(talk.asked[1])] == [
        ("weather_of", {"town": "Paris"})
    ]
    for asked in talk.asked:
        assert '"town"' in asked.text
        assert "get_weather" not in asked.text
        assert "Tells the weather." in asked.text
        assert asked.text.count("There is no `get_time`: look at the sky.") == 1
    assert not talk.refused
    assert {"policy-renamed", "policy-reshaped", "policy-dropped", "policy-guidance"} <= losses()


@in_all_pairs
def test_a_dropped_tool_that_is_called_is_told_to_the_model_alone(start: Start) -> None:
    client, talk = start(ScriptedAnswer(calls=(("get_time", {"city": "Rome"}),)), ScriptedAnswer(DONE))
    turn = client.turn()
    assert (turn.text, turn.calls) == (DONE, [])
    [(name, _, told, _)] = read_call_results(talk.asked[1])
    assert name == "get_time"
    assert "The tool `get_time` is not available. There is no `get_time`: look at the sky." in told
    assert not talk.refused


@parametrize_pairwise(
    {
        "source": CLIENTS.keys(),
        "target": PROTOCOLS,
        "stream": WHOLE_OR_STREAM,
        "name": ["Get_Time", "getTime", "functions_get_time", "get_time_tool"],
    }
)
def test_a_dropped_tool_is_known_by_what_models_make_of_its_name(start: Start, name: str) -> None:
    """Some clients repair the name of a call, too, and would run the tool."""
    client, talk = start(ScriptedAnswer(calls=((name, {"city": "Rome"}),)), ScriptedAnswer(DONE))
    turn = client.turn()
    assert (turn.text, turn.calls) == (DONE, [])
    assert "The tool `get_time` is not available." in talk.asked[1].text


@parametrize_pairwise({"source": CLIENTS.keys(), "target": PROTOCOLS, "stream": WHOLE_OR_STREAM})
def test_a_model_that_insists_on_a_dropped_tool_is_given_up(start: Start, source: str, stream: bool) -> None:
    """Every call of the provider costs. Nor do clients try again: the same would happen."""
    insists = [ScriptedAnswer(f"Try {at}.", (("get_time", {"city": "Rome"}),)) for at in range(9)]
    client, talk = start(*insists)
    mute = source == "openai-responses" and stream  # this SDK says only that the stream did not end well
    with pytest.raises(client.raises, match=None if mute else "insists on the tool `get_time`"):
        client.turn()
    assert len(talk.asked) == 3
    assert not talk.refused


@pytest.mark.parametrize(("source", "target", "stream"), [("anthropic", "openai-chat", True)])
def test_a_model_that_gives_in_after_a_while_answers(start: Start) -> None:
    client, talk = start(*[ScriptedAnswer(calls=(("get_time", {"city": "Rome"}),))] * 2, ScriptedAnswer(DONE))
    turn = client.turn()
    assert (turn.text, turn.calls) == (DONE, [])
    assert len(talk.asked) == 3


@in_all_pairs
def test_bad_arguments_are_tried_again_before_the_client_sees_them(start: Start) -> None:
    client, talk = start(
        ScriptedAnswer(calls=(("roll", {"town": "Paris"}),)),
        ScriptedAnswer(calls=(("roll", {"city": "Paris"}),)),
        tools=("roll",),
    )
    [call] = client.turn().calls
    assert (call.name, call.arguments) == ("roll", {"city": "Paris"})
    [(name, arguments, told, _)] = read_call_results(talk.asked[1])
    assert (name, arguments) == ("roll", {"town": "Paris"})
    assert "`city` is missing" in told
    assert not talk.refused


@in_all_pairs
def test_bad_arguments_are_refused_in_the_clients_own_shape(start: Start, source: str, stream: bool) -> None:
    client, talk = start(ScriptedAnswer(calls=(("guess", {"town": "Paris"}),)), tools=("guess",))
    # Where the stream had begun, this SDK says only that it did not end well.
    mute = source == "openai-responses" and stream
    with pytest.raises(
        client.raises, match="`city` is missing" + (r"|receive a `response\.completed`" if mute else "")
    ):
        client.turn()
    assert len(talk.asked) == 1  # the model's mistake is no failure of its provider: it is not asked again


@pytest.mark.parametrize("source", CLIENTS)
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_session_moves_to_where_a_rule_holds_and_away_again(
    provider: Provider, ruled: str, source: str, stream: bool
) -> None:
    """The history is in the client's words; each model sees it in those of its own tools."""
    here, there = ("ask", {"city": "Paris"}), ("question", {"place": "Paris"})
    talk = provider.script(
        ScriptedAnswer(calls=(here,)),
        ScriptedAnswer(calls=(there,)),
        ScriptedAnswer(calls=(here,)),
        ScriptedAnswer(DONE),
    )
    task = Task(f"How is it? {talk.mark}", {"Paris": Result("15 °C")}, tools={"ask": "Asks."})
    client = CLIENTS[source](ruled, MODELS["openai-chat"], stream, task)
    turns = client.run([MODELS["anthropic"], MODELS["gemini"], MODELS["anthropic"]])
    assert [(call.name, call.arguments) for turn in turns for call in turn.calls] == [here] * 3
    assert turns[-1].text == DONE
    told = [[(name, arguments) for name, arguments, _, _ in read_call_results(asked)] for asked in talk.asked]
    assert told == [[], [there], [here] * 2, [there] * 3]
    assert not talk.refused


# --- by hand ----------------------------------------------------------------------------------------------------------


def post_body(base: str, body: dict[str, Any] | str, **headers: str) -> tuple[int, Any]:
    parts = urlsplit(base)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE)
    try:
        connection.request(
            "POST",
            "/v1/chat/completions",
            body if isinstance(body, str) else json.dumps(body),
            {"content-type": "application/json", **headers},
        )
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def weather_tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}


@pytest.mark.parametrize(("agent", "sent"), [("codex_cli_rs/0.64.0", False), ("claude-cli/2.1.0", None)])
def test_a_rule_for_one_agent_holds_for_no_other(provider: Provider, ruled: str, agent: str, sent: bool | None) -> None:
    talk = provider.script(ScriptedAnswer(DONE))
    body = {"model": "m-chat", "messages": [{"role": "user", "content": talk.mark}], "tools": [weather_tool("other")]}
    status, _ = post_body(ruled, body, **{"user-agent": agent})
    assert status == 200
    assert talk.asked[0].body.get("parallel_tool_calls") is sent


def test_where_no_rule_says_anything_the_body_is_the_same_with_stable_bytes(provider: Provider, ruled: str) -> None:
    talk = provider.script(ScriptedAnswer(DONE))
    text = (
        f'{{"model" : "chat/gpt-4.1",  "messages":[{{"role":"user","content":"{talk.mark}"}}], "temperature" : 0.50}}'
    )
    status, _ = post_body(ruled, text)
    assert status == 200
    tail = '"messages":[{"role":"user","content":"' + talk.mark + '"}],"temperature":0.50}'
    assert talk.asked[0].raw.split(",", 1)[1] == tail


@pytest.mark.parametrize("choice", ["weaken", "refuse"])
@pytest.mark.parametrize(
    ("model", "effort"), [("claude-opus-5-5", None), ("claude-sonnet-4-5", "high")], ids=["never", "while it thinks"]
)
def test_a_demand_that_the_model_cannot_be_given_follows_the_rule(
    provider: Provider, tmp_path: Any, choice: str, model: str, effort: str | None
) -> None:
    file = tmp_path / "toolwire.toml"
    file.write_text(f'{configuration(provider.url)}\n[[policy]]\nname = "mine"\nchoice = "{choice}"\n')
    talk = provider.script(ScriptedAnswer(DONE))
    body: dict[str, Any] = {
        "model": f"{provider_name('anthropic')}/{model}",
        "messages": [{"role": "user", "content": talk.mark}],
        "tools": [weather_tool("w")],
        "tool_choice": "required",
    }
    if effort:
        body["reasoning_effort"] = effort
    with serve_config(file) as base:
        status, answer = post_body(base, body)
    if choice == "refuse":
        assert status == 400
        assert "the rule `mine` refuses such a choice" in answer["error"]["message"]
        assert not talk.asked
        return
    assert status == 200
    sent = talk.asked[0].body
    assert sent["tool_choice"] == {"type": "auto"}
    assert ("thinking" in sent) == bool(effort)


UNFORCED = """
[providers.deep]
protocols = ["openai-chat"]
base_url = "{url}/v1"
api_key = "{key}"
quirks = ["thinking-unforced"]
"""


@pytest.mark.parametrize("choice", ["weaken", "refuse", ""])
@pytest.mark.parametrize(
    ("model", "effort", "can"),
    [
        ("deep/deepseek-v4-pro", "high", False),
        ("deep/deepseek-v4-flash", None, False),  # thinks when nothing is said
        ("deep/deepseek-v4-flash", "none", True),
        ("deep/deepseek-chat", None, True),
        ("deep/deepseek-reasoner", None, False),
        ("deep/qwen3.6-plus", None, False),
        ("deep/kimi-k2.6", None, False),
        ("deep/kimi-k3", None, True),
        ("deep/qwen-plus", None, True),
        ("deep/qwen-plus", "low", False),
        ("chat/deepseek-v4-pro", "high", True),  # a server that says nothing of the kind
        ("responses/gpt-5.5", "high", True),
        ("gemini/gemini-3.8-flash", "high", True),
    ],
)
def test_where_a_demand_and_thinking_exclude_each_other(
    provider: Provider, tmp_path: Any, choice: str, model: str, effort: str | None, can: bool
) -> None:
    """Without a rule the provider gets what the client asked for, whatever it makes of it."""
    file = tmp_path / "toolwire.toml"
    rule = f'[[policy]]\nname = "mine"\nchoice = "{choice}"\n' if choice else ""
    text = configuration(provider.url) + UNFORCED.format(url=provider.url, key=KEYS["openai-chat"])
    file.write_text(text + rule)
    talk = provider.script(ScriptedAnswer(DONE))
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": talk.mark}],
        "tools": [weather_tool("w")],
        "tool_choice": {"type": "function", "function": {"name": "w"}},
    }
    if effort:
        body["reasoning_effort"] = effort
    with serve_config(file) as base:
        status, answer = post_body(base, body)
    if choice == "refuse" and not can:
        assert (status, talk.asked) == (400, [])
        assert "cannot be forced to call a tool while it thinks" in answer["error"]["message"]
        return
    assert status == 200
    demanded = '"w"' in json.dumps(talk.asked[0].body.get("tool_choice") or talk.asked[0].body.get("toolConfig"))
    assert demanded == (can or not choice)
    assert effort is None or effort in talk.asked[0].text.lower()
