"""A conversation moves freely: begun with one provider, continued with another, and back again with the first.

Every client protocol, every ordered pair of providers, streamed and whole. The providers sign what they answer, and
refuse what the real ones refuse: signatures that they did not make, or that are altered, misplaced or missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import combinations, product

import pytest

from gateway.clients import CLIENTS, PNG, TOOLS, Conversation, Result, Task, Turn, close_all, losses
from gateway.conftest import configuration, provider_name, serve_config
from gateway.provider import KEYS, PROTOCOLS, SECOND_KEYS, Provider, Received, Script, ScriptedAnswer
from material import WHOLE_OR_STREAM, parametrize_pairwise
from toolwire.core.envelopes import ENVELOPE_PREFIX
from toolwire.protocols import find_codec

KEPT = True
"""Is there a store that keeps for Chat clients what they cannot carry?"""

MODELS = {
    "openai-chat": "chat/deepseek-reasoner",
    "openai-responses": "responses/gpt-5.5",
    "anthropic": "anthropic/claude-sonnet-5-5",
    "gemini": "gemini/gemini-3.8-flash",
}
MAPPED = {
    "openai-chat": "3d-map",
    "openai-responses": "find_" + "the_" * 20 + "place",
    "anthropic": "find_" + "the_" * 20 + "place",
    "gemini": "maps.find:3-d",
    "unified": "3d_map",
}
"""A name that each client may give to a tool, and that some provider does not take."""
WHERE = "Where a place is."
RESULTS = {
    "Paris": Result("15 °C, see the plot:", image=True),
    "Oslo": Result("no such city", failed=True),
    "Rome": Result("noon"),
    "Bern": Result("46.9, 7.4"),
}

pytestmark = [
    # The SDK's parsed subclasses do not match the types of the fields that hold them when it sends them back.
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def _clients(gateway: str) -> Iterator[None]:
    yield
    close_all()


def rounds(number: int) -> list[ScriptedAnswer]:
    """One turn of the user: parallel calls, one more call, and the answer, with thinking before each."""
    weather = ("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Oslo"}), (WHERE, {"city": "Bern"})
    return [
        ScriptedAnswer(f"Let me look, {number}.", weather, f"All three, {number}.", again=True),
        ScriptedAnswer("", (("get_time", {"city": "Rome"}),), f"And Rome, {number}."),
        ScriptedAnswer(f"It is 15 °C in Paris, {number}.", (), f"Enough, {number}.", again=True),
    ]


class Moving:
    """A conversation that is continued with one provider after the other: from turn to turn, or from step to step."""

    def __init__(
        self,
        gateway: str,
        provider: Provider,
        source: str,
        stream: bool,
        route: tuple[str, ...],
        inside: tuple[tuple[str, ...], ...] = (),
    ) -> None:
        self.source, self.route = source, route
        self.talk: Script = provider.script(*(says for n in range(len(route)) for says in rounds(n)), signed=True)
        tools = {**TOOLS, MAPPED[source]: WHERE}
        task = Task(f"How is the weather? {self.talk.mark}", RESULTS, image=True, thinking=True, tools=tools)
        losses()
        client: Conversation = CLIENTS[source](gateway, route[0], stream, task)
        self.turns: list[Turn] = []
        for number, model in enumerate(route):
            if number:
                client.move(model)
                client.ask(f"And now? ({number})")
            self.turns += client.run(inside[number] if inside else ())
        self.losses = losses()


@parametrize_pairwise(
    {"source": CLIENTS.keys(), "first,second": product(PROTOCOLS, repeat=2), "stream": WHOLE_OR_STREAM}
)
def test_there_and_back(provider: Provider, gateway: str, source: str, first: str, second: str, stream: bool) -> None:
    route = (MODELS[first], MODELS[second], MODELS[first])
    moved = Moving(gateway, provider, source, stream, route)
    talk = moved.talk
    assert talk.seal_checker is not None
    assert talk.refused == []
    assert [asked.protocol for asked in talk.asked] == [one for one in (first, second, first) for _ in range(3)]
    called_as_declared(moved)
    for asked in talk.asked:
        assert_sealed(talk, asked, source)
        if asked.protocol == "openai-chat" and source != "openai-chat":
            assert talk.seal_checker.reasoning_sent(asked.account, asked.protocol, asked.body) == set()
    assert_steady(talk)
    assert_told(moved, first, second)
    assert_shown(moved)


@parametrize_pairwise({"source": CLIENTS.keys(), "first,second": combinations(PROTOCOLS, 2), "stream": WHOLE_OR_STREAM})
def test_in_the_middle_of_a_loop(
    provider: Provider, gateway: str, source: str, first: str, second: str, stream: bool
) -> None:
    """Another model goes on with the results of what the first has called, and back again."""
    one, two = MODELS[first], MODELS[second]
    moved = Moving(gateway, provider, source, stream, (one, two, one), ((two, one), (one, two), (two, one)))
    talk = moved.talk
    assert talk.seal_checker is not None
    assert talk.refused == []
    assert [asked.protocol for asked in talk.asked] == [
        first,
        second,
        first,
        second,
        first,
        second,
        first,
        second,
        first,
    ]
    called_as_declared(moved)
    for asked in talk.asked:
        assert_sealed(talk, asked, source)
    assert_steady(talk)


# --- two accounts of one protocol -------------------------------------------------------------------------------------


@pytest.fixture(scope="module", name="doubled")
def serve_two_providers(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gateway that has two accounts for every protocol."""
    lines = [configuration(provider.url)]
    for protocol in PROTOCOLS:
        base = provider.url if protocol in ("anthropic", "gemini") else f"{provider.url}/v1"
        lines.append(f'[providers.{provider_name(protocol)}2]\nprotocols = ["{protocol}"]\nbase_url = "{base}"')
        lines.append(f'api_key = "{SECOND_KEYS[protocol]}"')
    file = tmp_path_factory.mktemp("doubled") / "toolwire.toml"
    file.write_text("\n".join(lines) + "\n")
    with serve_config(file) as url:
        yield url


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("target", [protocol for protocol in PROTOCOLS if find_codec(protocol).constraints.seal_slots])
@pytest.mark.parametrize("source", CLIENTS)
def test_another_account_of_the_same_protocol(
    provider: Provider, doubled: str, source: str, target: str, stream: bool
) -> None:
    """A signature tells nobody which account made it, and every account refuses those of the others."""
    one = MODELS[target]
    another = one.replace("/", "2/", 1)
    moved = Moving(doubled, provider, source, stream, (one, another, one))
    talk = moved.talk
    assert talk.refused == []
    accounts = [KEYS[target], SECOND_KEYS[target], KEYS[target]]
    assert [asked.account for asked in talk.asked] == [account for account in accounts for _ in range(3)]
    called_as_declared(moved)
    for asked in talk.asked:
        assert_sealed(talk, asked, source)
    assert_steady(talk)


# --- what must be true ------------------------------------------------------------------------------------------------


def called_as_declared(moved: Moving) -> None:
    names = ["get_weather", "get_weather", MAPPED[moved.source]]
    assert [[call.name for call in turn.calls] for turn in moved.turns] == [names, ["get_time"], []] * len(moved.route)
    ids = [call.id for turn in moved.turns for call in turn.calls]
    assert len(set(ids)) == len(ids)


def assert_sealed(talk: Script, asked: Received, source: str) -> None:
    """Its own seals, all of them and in order, and nobody else's."""
    assert talk.seal_checker is not None
    who = (asked.account, asked.protocol)
    assert talk.seal_checker.unknown_seals(*who, asked.raw) == []
    assert ENVELOPE_PREFIX not in asked.raw
    shown = talk.seal_checker.seals_sent(*who, asked.body)
    made = talk.seal_checker.answers[: talk.asked.index(asked)]
    if source == "openai-chat" != asked.protocol:
        # What such a client cannot carry is kept by the ids of calls, so that an answer without calls keeps nothing.
        made = [answer for answer in made if KEPT and answer.calls]
    assert shown == [seal for answer in made if (answer.account, answer.protocol) == who for seal in answer.seals]


def assert_steady(talk: Script) -> None:
    """What an account was sent stands unchanged at the head of what it is sent next."""
    last: dict[tuple[str, str, str], list[str]] = {}
    for asked in talk.asked:
        spelled = elements(asked)
        before = last.get(key := (asked.account, asked.protocol, asked.model), [])
        assert spelled[: len(before)] == before
        last[key] = spelled


def elements(asked: Received) -> list[str]:
    """The prefix of a request, one element after the other: tools and instructions first, then the turns."""
    body = {key: value for key, value in asked.body.items() if key != "stream"}
    turns = body.pop(find_codec(asked.protocol).constraints.turns_key)
    return [json.dumps(body, sort_keys=True), *map(json.dumps, turns)]


def assert_shown(moved: Moving) -> None:
    """The user's image and those in results, however often they were sent."""
    results = 1 if CLIENTS[moved.source].result_images else 0
    for number, asked in enumerate(moved.talk.asked):
        answered = number // 3 + (number % 3 > 0)
        assert asked.raw.replace("_", "/").replace("-", "+").count(PNG) == 1 + results * answered


def assert_told(moved: Moving, first: str, second: str) -> None:
    """What could not go along is named, and what goes by another name too."""
    if first != second:
        assert moved.losses & {"seal-dropped", "reasoning-dropped"}
    renamed = any(f'"{MAPPED[moved.source]}"' not in asked.raw for asked in moved.talk.asked)
    assert ("name-rewritten" in moved.losses) == renamed
