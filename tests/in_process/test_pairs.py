"""Every SDK on every provider, streamed and whole, with Toolwire inside of the program: no server is between them."""

from __future__ import annotations

from typing import Literal

import pytest

from gateway.clients import CLIENTS, Result, Task
from gateway.conftest import MODELS, provider_name
from gateway.provider import PROTOCOLS, Provider, ScriptedAnswer, Step

SDKS = [name for name in CLIENTS if name != "unified"]
"""The unified protocol has no SDK."""
PARIS = ("get_weather", {"city": "Paris"})
OSLO = ("get_weather", {"city": "Oslo"})
DONE = "It is 15 °C in Paris."

pytestmark = [
    pytest.mark.parametrize("sdk", SDKS),
    pytest.mark.parametrize("target", PROTOCOLS),
    pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"]),
    # The SDK's parsed subclasses do not match the types of the fields that hold them when it sends them back.
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning"),
]


def model_of(target: str) -> str:
    return f"{provider_name(target)}/{MODELS[target]}"


def test_calls_their_results_and_the_end(provider: Provider, base: str, sdk: str, target: str, stream: bool) -> None:
    talk = provider.script(ScriptedAnswer("Let me look.", (PARIS, OSLO)), ScriptedAnswer(DONE))
    task = Task(f"How is it? {talk.mark}", {"Paris": Result("15"), "Oslo": Result("9")})
    turns = CLIENTS[sdk](base, model_of(target), stream, task).run()
    assert [(call.name, call.arguments) for call in turns[0].calls] == [PARIS, OSLO]
    assert turns[-1].text == DONE
    assert talk.refused == []
    assert [asked.protocol for asked in talk.asked] == [target, target]


@pytest.mark.parametrize("breaks", ["cut", "ended", "error"])
def test_a_broken_answer_is_an_error_of_the_sdk(
    provider: Provider, base: str, sdk: str, target: str, stream: bool, breaks: Literal["cut", "ended", "error"]
) -> None:
    how = breaks if stream else "cut"  # only a stream can end as if it were whole
    talk = provider.script(Step(ScriptedAnswer("One two three four five."), breaks=how))
    client = CLIENTS[sdk](base, model_of(target), stream, Task(f"Go {talk.mark}"))
    with pytest.raises(client.raises):
        client.run()
    assert len(talk.asked) == 1


def test_an_error_of_the_provider_is_one_of_the_sdk(
    provider: Provider, base: str, sdk: str, target: str, stream: bool
) -> None:
    talk = provider.script(Step(fails="rate"))
    client = CLIENTS[sdk](base, model_of(target), stream, Task(f"Go {talk.mark}"))
    with pytest.raises(client.raises) as raised:
        client.run()
    assert 429 in (getattr(raised.value, "status_code", None), getattr(raised.value, "code", None))
