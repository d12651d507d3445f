"""What a provider is sent of an unchanged history is the same bytes from turn to turn, over restarts and replicas.

A long conversation with everything in it goes through each client and each provider, its turns served by gateways that
take turns, and one of them is a new one every time. Thinking that is bound to the prefix would be refused by the
scripted provider, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest

from gateway.clients import CLIENTS, TOOLS, Task, close_all
from gateway.conftest import configuration, serve_config
from gateway.provider import PROTOCOLS, Provider, Received, Script
from gateway.test_provider_changes import MAPPED, MODELS, RESULTS, WHERE, rounds
from material import WHOLE_OR_STREAM, parametrize_pairwise
from toolwire.protocols import find_codec

TURNS = 4

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")


@pytest.fixture(scope="module")
def gateways(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """As many gateways as there are turns, which share nothing but their store: each is what a restart leaves."""
    folder: Path = tmp_path_factory.mktemp("replicas")
    with ExitStack() as stack:
        file = folder / "toolwire.toml"
        file.write_text(f'{configuration(provider.url)}[store]\nurl = "sqlite:///{folder}/store.db"\n')
        yield [stack.enter_context(serve_config(file)) for _ in range(TURNS)]
    close_all()


def prefix(asked: Received) -> list[str]:
    """A request, element by element, as it was spelled: what stands before the turns, and each of these."""
    turns = asked.body[find_codec(asked.protocol).constraints.turns_key]
    head = {key: value for key, value in asked.body.items() if key in HEAD}
    return [json.dumps(head), *map(json.dumps, turns)]


HEAD = ("tools", "system", "instructions", "systemInstruction", "cache_control", "toolConfig", "tool_choice")


@parametrize_pairwise({"source": CLIENTS.keys(), "target": PROTOCOLS, "stream": WHOLE_OR_STREAM})
def test_a_growing_conversation(
    provider: Provider, gateways: list[str], source: str, target: str, stream: bool
) -> None:
    talk: Script = provider.script(*(says for number in range(TURNS) for says in rounds(number)), signed=True)
    tools = {**TOOLS, MAPPED[source]: WHERE, "long_one": "A tool of which much can be said. " * 200}
    task = Task(f"How is the weather? {talk.mark}", RESULTS, image=True, thinking=True, tools=tools)
    client = CLIENTS[source](gateways[0], MODELS[target], stream, task)
    for number, base in enumerate(gateways):
        if number:
            client.base = base
            client.move(MODELS[target])
            client.ask(f"And now? ({number})", image=number == 2)
        client.run()
    assert talk.refused == []
    assert len(talk.asked) == 3 * TURNS
    spelled = [prefix(asked) for asked in talk.asked]
    for shorter, longer in pairwise(spelled):
        assert longer[: len(shorter)] == shorter
        assert len(longer) > len(shorter)
