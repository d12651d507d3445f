"""The grid through the library; what it asks is what the vendors take, and it notices what users would."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from conformance.in_process import InProcessTransport
from toolwire_conformance.case import GRID_KINDS, Case, make_grid_cases
from toolwire_conformance.peers import PEERS, find_violations
from toolwire_conformance.peers.peer import encode_json
from toolwire_conformance.player import AnswerCall, ClientCall, ClientView, ProviderAnswer, ReceivedCall, play_case

Object = dict[str, Any]
GRID = {case.id: case for case in make_grid_cases([*PEERS.values()])}


def test_grid_has_every_pair_whole_and_streamed() -> None:
    sealing = sum(peer.provider_seals for peer in PEERS.values())
    plain = sum(not kind.answer.is_sealed for kind in GRID_KINDS)
    sealed = len(GRID_KINDS) - plain
    assert len(GRID) == 2 * len(PEERS) * (plain * len(PEERS) + sealed * sealing)
    assert "grid:chat>anthropic:two-calls:stream" in GRID


@pytest.mark.parametrize("case", [pytest.param(case, id=id) for id, case in GRID.items()])
def test_the_grid(case: Case) -> None:
    outcome = play_case(case, InProcessTransport())
    if outcome.out_of_reach:
        pytest.skip(outcome.out_of_reach)
    assert outcome.differences == ()


@pytest.mark.parametrize("case", [pytest.param(case, id=id) for id, case in GRID.items() if ":echo" not in id])
def test_requests_are_valid_for_their_own_vendor(case: Case) -> None:
    client = case.turns[0].client
    model = PEERS[client.protocol].model
    body = {**client.request, **({"model": model} if "model" in client.request else {})}
    assert find_violations(client.protocol, body, model) == []


class FaultyLibrary:
    """The library with one fault: in what the provider receives, or in what the client sees."""

    def __init__(self, change_request: Callable[[str], str], change_answer: Callable[[str], str]) -> None:
        self.change_request, self.change_answer = change_request, change_answer

    def send_call(self, call: ClientCall, answer: AnswerCall) -> ClientView:
        def faulty(received: ReceivedCall) -> ProviderAnswer:
            body = json.loads(self.change_request(encode_json(received.body)))
            return answer(ReceivedCall(body, received.model, received.stream))

        view = InProcessTransport().send_call(call, faulty)
        return ClientView(view.status, view.headers, tuple(map(self.change_answer, view.pieces)), view.losses)


def keep_text(text: str) -> str:
    return text


def replace_text(old: str, new: str, count: int = 0) -> Callable[[str], str]:
    return lambda text: re.sub(old, new, text, count=count)


REQUEST_FAULTS = [
    ("chat>anthropic:call", replace_text("get_time", "get_tim"), "tools"),
    ("chat>anthropic:text", replace_text("Rome", "Bonn"), "messages"),
    ("anthropic>chat:second-turn", replace_text("19 degrees", "29 degrees"), "messages"),
    ("anthropic>responses:second-turn", replace_text("I will look.", ""), "anywhere"),
    ("responses>chat:echo", replace_text('(tool_call_id":"[^"]*)0"', r'\g<1>1"'), "tool_call_id"),
    ("gemini>anthropic:echo", replace_text('"days":3', '"days":"3"'), "days"),
    ("responses>anthropic:sealed-echo", replace_text("sealed", "SEALED"), "signature"),
    (
        "anthropic>gemini:sealed-echo",
        replace_text('"thoughtSignature":"[^"]*"', '"thoughtSignature":""'),
        "thoughtSignature",
    ),
    ("gemini>responses:sealed-echo", replace_text('"type":"reasoning"', '"type":"thought"'), "reasoning"),
]
ANSWER_FAULTS = [
    ("anthropic>chat:text", replace_text("degrees. Rome", "degree. Rome"), "client"),
    ("chat>anthropic:call", replace_text('"finish_reason":"tool_calls"', '"finish_reason":"stop"'), "finish_reason"),
    ("responses>gemini:two-calls", replace_text('"call_id":"[^"]*"', '"call_id":"one"'), "call_id"),
    (
        "gemini>anthropic:two-calls",
        replace_text('\\{"functionCall":\\{[^{]*"args":\\{[^}]*Rome[^}]*\\}[^}]*\\}\\}', '{"text":""}'),
        "Rome",
    ),
    ("anthropic>responses:call:stream", replace_text('"name":"get_weather"', '"name":"weather"'), "get_weather"),
    ("chat>gemini:two-calls:stream", replace_text('"index":1', '"index":0'), "client"),
]


@pytest.mark.parametrize(("id", "fault", "message"), REQUEST_FAULTS, ids=[row[0] for row in REQUEST_FAULTS])
def test_fault_in_the_request_is_found(id: str, fault: Callable[[str], str], message: str) -> None:
    _assert_found(id, FaultyLibrary(fault, keep_text), message)


@pytest.mark.parametrize(("id", "fault", "message"), ANSWER_FAULTS, ids=[row[0] for row in ANSWER_FAULTS])
def test_fault_in_the_answer_is_found(id: str, fault: Callable[[str], str], message: str) -> None:
    _assert_found(id, FaultyLibrary(keep_text, fault), message)


def _assert_found(id: str, faulty: FaultyLibrary, message: str) -> None:
    outcome = play_case(GRID[f"grid:{id}"], faulty)
    assert not outcome.passed
    assert any(message in line for line in outcome.differences), outcome.differences
