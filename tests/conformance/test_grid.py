"""The grid through the library; what it asks is what the vendors take, and it notices what users would."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from toolwire.conformance.case import Case
from toolwire.conformance.dialects.talks import TALKS
from toolwire.conformance.frames import compact
from toolwire.conformance.grid import KINDS, grid
from toolwire.conformance.inprocess import InProcess
from toolwire.conformance.player import Answerer, Asked, Given, Received, Seen, play
from toolwire.conformance.strict import complaints

Object = dict[str, Any]
GRID = {case.id: case for case in grid()}


def test_every_pair_is_there_whole_and_streamed() -> None:
    sealing = sum(talk.seals for talk in TALKS.values())
    plain = sum(not kind.says.sealed for kind in KINDS)
    sealed = len(KINDS) - plain
    assert len(GRID) == 2 * len(TALKS) * (plain * len(TALKS) + sealed * sealing)
    assert "grid:chat>anthropic:two-calls:stream" in GRID


@pytest.mark.parametrize("case", [pytest.param(case, id=id) for id, case in GRID.items()])
def test_the_grid(case: Case) -> None:
    outcome = play(case, InProcess())
    if outcome.out_of_reach:
        pytest.skip(outcome.out_of_reach)
    assert outcome.differences == ()


@pytest.mark.parametrize("case", [pytest.param(case, id=id) for id, case in GRID.items() if ":echo" not in id])
def test_what_a_client_asks_is_what_its_own_vendor_takes(case: Case) -> None:
    client = case.turns[0].client
    model = TALKS[client.protocol].model
    body = {**client.request, **({"model": model} if "model" in client.request else {})}
    assert complaints(client.protocol, body, model) == []


class Faulty:
    """The library with one fault: in what the provider receives, or in what the client sees."""

    def __init__(self, there: Callable[[str], str], back: Callable[[str], str]) -> None:
        self.there, self.back = there, back

    def send(self, asked: Asked, answer: Answerer) -> Seen:
        def faulty(received: Received) -> Given:
            body = json.loads(self.there(compact(received.body)))
            return answer(Received(body, received.model, received.stream))

        seen = InProcess().send(asked, faulty)
        return Seen(seen.status, seen.headers, tuple(map(self.back, seen.pieces)), seen.losses)


def same(text: str) -> str:
    return text


def swap(old: str, new: str, count: int = 0) -> Callable[[str], str]:
    return lambda text: re.sub(old, new, text, count=count)


THERE = [
    ("chat>anthropic:call", swap("get_time", "get_tim"), "tools"),
    ("chat>anthropic:text", swap("Rome", "Bonn"), "messages"),
    ("anthropic>chat:second-turn", swap("19 degrees", "29 degrees"), "messages"),
    ("anthropic>responses:second-turn", swap("I will look.", ""), "anywhere"),
    ("responses>chat:echo", swap('(tool_call_id":"[^"]*)0"', r'\g<1>1"'), "tool_call_id"),
    ("gemini>anthropic:echo", swap('"days":3', '"days":"3"'), "days"),
    ("responses>anthropic:sealed-echo", swap("sealed", "SEALED"), "signature"),
    ("anthropic>gemini:sealed-echo", swap('"thoughtSignature":"[^"]*"', '"thoughtSignature":""'), "thoughtSignature"),
    ("gemini>responses:sealed-echo", swap('"type":"reasoning"', '"type":"thought"'), "reasoning"),
]
BACK = [
    ("anthropic>chat:text", swap("degrees. Rome", "degree. Rome"), "client"),
    ("chat>anthropic:call", swap('"finish_reason":"tool_calls"', '"finish_reason":"stop"'), "finish_reason"),
    ("responses>gemini:two-calls", swap('"call_id":"[^"]*"', '"call_id":"one"'), "call_id"),
    (
        "gemini>anthropic:two-calls",
        swap('\\{"functionCall":\\{[^{]*"args":\\{[^}]*Rome[^}]*\\}[^}]*\\}\\}', '{"text":""}'),
        "Rome",
    ),
    ("anthropic>responses:call:stream", swap('"name":"get_weather"', '"name":"weather"'), "get_weather"),
    ("chat>gemini:two-calls:stream", swap('"index":1', '"index":0'), "client"),
]


@pytest.mark.parametrize(("id", "fault", "piece"), THERE, ids=[row[0] for row in THERE])
def test_what_the_provider_was_not_told_is_noticed(id: str, fault: Callable[[str], str], piece: str) -> None:
    _noticed(id, Faulty(fault, same), piece)


@pytest.mark.parametrize(("id", "fault", "piece"), BACK, ids=[row[0] for row in BACK])
def test_what_the_client_was_not_told_is_noticed(id: str, fault: Callable[[str], str], piece: str) -> None:
    _noticed(id, Faulty(same, fault), piece)


def _noticed(id: str, faulty: Faulty, piece: str) -> None:
    outcome = play(GRID[f"grid:{id}"], faulty)
    assert not outcome.passed
    assert any(piece in line for line in outcome.differences), outcome.differences
