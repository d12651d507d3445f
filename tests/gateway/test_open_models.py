"""Models that call tools badly, behind the real gateway: calls in text, wrong names, arguments that do not fit."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateway.clients import CLIENTS, Conversation, Result, Task, losses
from gateway.conftest import MODELS, configuration, provider_name, serve_config
from gateway.declared_tools import Unreadable
from gateway.provider import PROTOCOLS, Provider, Script, ScriptedAnswer

TEXTS = {
    "hermes": '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>',
    "qwen3_coder": "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>",
    "glm": "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>",
    "pythonic": '[get_weather(city="Paris")]',
    "mistral_args": '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}',
    "json": '{"name": "get_weather", "arguments": {"city": "Paris"}}',
    "harmony": '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>',
}
RESULTS = {"Paris": Result("15 degrees"), "Oslo": Result("2 degrees")}
DONE = "It is cold."

clients = pytest.mark.parametrize("source", CLIENTS)
targets = pytest.mark.parametrize("target", PROTOCOLS)
streamed = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


@pytest.fixture(scope="module")
def repairing(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gateway that repairs the calls of all models, and treats bad calls by the name of the model."""
    lines = []
    for target in PROTOCOLS:
        name = provider_name(target)
        for mode in ("keep", "ask-again", "refuse"):
            lines.append(f'[models."{mode}-{name}"]\nprovider = "{name}"\nmodel = "{MODELS[target]}"')
            lines.append(f'tool_format = "auto"\non_bad_call = "{mode}"')
    file = tmp_path_factory.mktemp("repairing") / "toolwire.toml"
    file.write_text(configuration(provider.url) + "\n".join(lines))
    with serve_config(file) as url:
        yield url


def start(base: str, script: Script, source: str, target: str, stream: bool, mode: str = "keep") -> Conversation:
    losses()
    return CLIENTS[source](base, f"{mode}-{provider_name(target)}", stream, Task(f"Weather? {script.mark}", RESULTS))


@streamed
@targets
@clients
def test_a_call_in_text_is_run(provider: Provider, repairing: str, source: str, target: str, stream: bool) -> None:
    text = (
        "<think>The weather is asked.</think>I look.\n"
        + TEXTS["hermes"]
        + "\n"
        + TEXTS["hermes"].replace("Paris", "Oslo")
    )
    script = provider.script(ScriptedAnswer(text), ScriptedAnswer(DONE))
    asked, answered = start(repairing, script, source, target, stream).run()
    assert [(call.name, call.arguments) for call in asked.calls] == [
        ("get_weather", {"city": "Paris"}),
        ("get_weather", {"city": "Oslo"}),
    ]
    assert len({call.id for call in asked.calls}) == 2
    assert asked.text.strip() == "I look."
    assert asked.thinking.strip() == "The weather is asked."
    assert answered.text == DONE
    assert not script.refused
    # What stays in the history as text would be imitated by the model.
    assert "15 degrees" in script.asked[1].text
    assert "<tool_call>" not in script.asked[1].text


@streamed
@pytest.mark.parametrize("name", TEXTS)
def test_every_kind_of_text(provider: Provider, repairing: str, name: str, stream: bool) -> None:
    script = provider.script(ScriptedAnswer(TEXTS[name]), ScriptedAnswer(DONE))
    asked, answered = start(repairing, script, "anthropic", "openai-chat", stream).run()
    assert [(call.name, call.arguments) for call in asked.calls] == [("get_weather", {"city": "Paris"})]
    assert (asked.text, answered.text) == ("", DONE)


INNOCENT = {
    "fenced": "So:\n```\n" + TEXTS["hermes"] + "\n```\nThat is how.",
    "not offered": '<tool_call>\n{"name": "erase_disk", "arguments": {}}\n</tool_call>',
    "no end": 'They begin with `<tool_call>`, then <tool_call> and {"name".',
    "quoted": "> " + TEXTS["pythonic"] + "\n\nis what it wrote.",
    "a tag": "The type is List<tool_call> here, and 1 < 2.",
}


@streamed
@pytest.mark.parametrize("name", INNOCENT)
@pytest.mark.parametrize("source", ["openai-chat", "anthropic"])
def test_innocent_text_stays_text(provider: Provider, repairing: str, name: str, source: str, stream: bool) -> None:
    script = provider.script(ScriptedAnswer(INNOCENT[name]))
    [turn] = start(repairing, script, source, "openai-chat", stream).run()
    assert (turn.text, turn.calls) == (INNOCENT[name], [])


@streamed
@clients
def test_names_and_arguments_of_calls_are_repaired(
    provider: Provider, repairing: str, source: str, stream: bool
) -> None:
    bad = ("functions.Get-Weather", Unreadable("{'arguments': {'city': 'Paris',}}"))
    script = provider.script(ScriptedAnswer(calls=(bad,)), ScriptedAnswer(DONE))
    asked, answered = start(repairing, script, source, "openai-chat", stream).run()
    assert [(call.name, call.arguments) for call in asked.calls] == [("get_weather", {"city": "Paris"})]
    assert answered.text == DONE
    if not stream and source != "unified":
        assert {"name-repaired", "arguments-repaired"} <= losses()


@streamed
@clients
def test_the_model_is_asked_again(provider: Provider, repairing: str, source: str, stream: bool) -> None:
    bad = ("get_weather", {"town": "Paris"})
    good = ("get_weather", {"city": "Paris"})
    script = provider.script(ScriptedAnswer(calls=(bad,)), ScriptedAnswer(calls=(good,)), ScriptedAnswer(DONE))
    asked, answered = start(repairing, script, source, "openai-chat", stream, "ask-again").run()
    assert [(call.name, call.arguments) for call in asked.calls] == [good]
    assert answered.text == DONE
    assert "city" in script.asked[1].text.partition("was not run")[2]


@streamed
@clients
def test_a_bad_call_is_refused(provider: Provider, repairing: str, source: str, stream: bool) -> None:
    script = provider.script(ScriptedAnswer(calls=(("get_weather", {"town": "Paris"}),)))
    conversation = start(repairing, script, source, "openai-chat", stream, "refuse")
    with pytest.raises(conversation.raises) as caught:
        conversation.run()
    if (source, stream) != ("openai-responses", True):  # OpenAI's SDK does not repeat what `response.failed` says
        assert "get_weather" in str(caught.value)
    assert len(script.asked) == 1


@streamed
@clients
def test_by_default_hosted_models_are_left_alone(provider: Provider, gateway: str, source: str, stream: bool) -> None:
    script = provider.script(ScriptedAnswer(TEXTS["hermes"]))
    conversation = CLIENTS[source](gateway, "m-chat", stream, Task(f"Weather? {script.mark}", RESULTS))
    [turn] = conversation.run()
    assert (turn.text, turn.calls) == (TEXTS["hermes"], [])
