"""The grid through the library; what it asks is what the vendors take, and it notices what users would."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from toolwire.conformance.case import Case
from toolwire.conformance.peers import TOOL_SCENARIOS
from toolwire.conformance.peers.peer import encode_json
from toolwire.conformance.player import AnswerCall, ClientCall, ClientView, ProviderAnswer, ReceivedCall, play_case
from toolwire.conformance.strict import find_violations
from toolwire.conformance.suite import GRID_KINDS, make_grid_cases
from toolwire.conformance.transports import InProcessTransport

Object = dict[str, Any]
GRID = {case.id: case for case in make_grid_cases()}


def test_every_pair_is_there_whole_and_streamed() -> None:
    sealing = sum(talk.provider_seals for talk in TOOL_SCENARIOS.values())
    plain = sum(not kind.answer.is_sealed for kind in GRID_KINDS)
    sealed = len(GRID_KINDS) - plain
    assert len(GRID) == 2 * len(TOOL_SCENARIOS) * (plain * len(TOOL_SCENARIOS) + sealed * sealing)
    assert "grid:chat>anthropic:two-calls:stream" in GRID


@pytest.mark.parametrize("case", [pytest.param(case, id=id) for id, case in GRID.items()])
def test_the_grid(case: Case) -> None:
    outcome = play_case(case, InProcessTransport())
    if outcome.out_of_reach:
        pytest.skip(outcome.out_of_reach)
    assert outcome.differences == ()


@pytest.mark.parametrize("case", [pytest.param(case, id=id) for id, case in GRID.items() if ":echo" not in id])
def test_what_a_client_asks_is_what_its_own_vendor_takes(case: Case) -> None:
    client = case.turns[0].client
    model = TOOL_SCENARIOS[client.protocol].model
    body = {**client.request, **({"model": model} if "model" in client.request else {})}
    assert find_violations(client.protocol, body, model) == []


class Faulty:
    """The library with one fault: in what the provider receives, or in what the client sees."""

    def __init__(self, there: Callable[[str], str], back: Callable[[str], str]) -> None:
        self.there, self.back = there, back

    def send_call(self, call: ClientCall, answer: AnswerCall) -> ClientView:
        def faulty(received: ReceivedCall) -> ProviderAnswer:
            body = json.loads(self.there(encode_json(received.body)))
            return answer(ReceivedCall(body, received.model, received.stream))

        seen = InProcessTransport().send_call(call, faulty)
        return ClientView(seen.status, seen.headers, tuple(map(self.back, seen.pieces)), seen.losses)


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
    outcome = play_case(GRID[f"grid:{id}"], faulty)
    assert not outcome.passed
    assert any(piece in line for line in outcome.differences), outcome.differences
