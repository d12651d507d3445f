"""The player finds what is wrong: played against transports that make one mistake each."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from toolwire.conformance.case import Case, read_case
from toolwire.conformance.player import AnswerCall, ClientCall, ClientView, ReceivedCall, play_case

Object = dict[str, Any]
HELLO: Object = {"model": "claude-opus-5-5", "max_tokens": 10, "messages": [{"role": "user", "content": "Hi"}]}
ANSWER: Object = {"content": [{"type": "text", "text": "Hello."}], "stop_reason": "end_turn"}


class Through:
    """A gateway that passes everything on as it is, but for what `change` does to it."""

    def __init__(self, change: Callable[[ClientView], ClientView] = lambda seen: seen, calls: int = 1) -> None:
        self.change = change
        self.calls = calls

    def send_call(self, call: ClientCall, answer: AnswerCall) -> ClientView:
        seen = ClientView(200, {}, ("{}",), [])
        for _ in range(self.calls):
            given = answer(ReceivedCall(call.body, call.model, call.stream))
            pieces = (*given.pieces, "") if given.stream else given.pieces
            seen = ClientView(given.status, given.headers, pieces, [])
        return self.change(seen)


def case(stream: bool = False, sees: Object | None = None, **fields: Any) -> Case:
    data: Object = {
        "id": 1,
        "title": "T",
        "source": ["x/y#1"],
        "client": {"protocol": "anthropic", "stream": stream, "request": HELLO},
        "provider": {"protocol": "anthropic", "exchanges": [{"expect": {"max_tokens": 10}, "body": ANSWER}]},
        "client_sees": {"body": ANSWER} if sees is None else sees,
        **fields,
    }
    return read_case(data)[0]


@pytest.mark.parametrize("stream", [False, True])
def test_all_well(stream: bool) -> None:
    assert play_case(case(stream), Through()).passed


def provider(**exchange: Any) -> Object:
    return {"protocol": "anthropic", "exchanges": [{"body": ANSWER, **exchange}]}


def text(change: Callable[[str], str]) -> Callable[[ClientView], ClientView]:
    return lambda seen: ClientView(seen.status, seen.headers, (change(seen.text),), seen.losses)


WRONG: list[tuple[Case, Through, str]] = [
    (case(provider=provider(expect={"max_tokens": 11})), Through(), "provider/max_tokens: expected 11, got 10"),
    (case(client={"protocol": "anthropic", "request": {**HELLO, "n": 1}}), Through(), "refuses: n: unknown parameter"),
    (case(), Through(calls=0), "called 0 times, expected 1"),
    (case(), Through(calls=2), "called 2 times, expected 1"),
    (case(sees={"body": {"stop_reason": "tool_use"}}), Through(), "client/stop_reason"),
    (case(sees={"status": 400}), Through(), "client status"),
    (case(sees={"headers": {"retry-after": "3"}}), Through(), "client header/retry-after"),
    (case(sees={"text": {"$contains": "absent"}}), Through(), "client text"),
    (case(True, {"events": [{"event": "error"}]}), Through(), "client events"),
    (case(True, {"after": {"0": {"$contains": "Hello"}}}), Through(), "client after frame 0"),
    (case(True), Through(text(lambda said: said.replace("event:", "x:"))), "without its event line"),
    (case(), Through(text(lambda said: said[:-1])), "no JSON"),
    (case(losses=["id-rewritten"]), Through(), "losses: "),
    (case(then=[{"client": {"request": {**HELLO, "messages": ["$same:gone"]}}}]), Through(), "turn 2: `gone`"),
    (case(then=[{"client": {"request": {**HELLO, "messages": [{"$echo": 3}]}}}]), Through(), "no answer 3"),
]


@pytest.mark.parametrize(("played", "transport", "piece"), WRONG, ids=[row[2] for row in WRONG])
def test_a_mistake_is_found(played: Case, transport: Through, piece: str) -> None:
    outcome = play_case(played, transport)
    assert not outcome.passed
    assert any(piece in line for line in outcome.differences), outcome.differences


def test_nothing_lost_is_demanded_by_an_empty_list() -> None:
    lost = {"code": "tool-dropped", "path": "/tools/0", "severity": "lost"}
    transport = Through(lambda seen: ClientView(seen.status, seen.headers, seen.pieces, [lost]))
    assert not play_case(case(losses=[]), transport).passed
    assert play_case(case(losses=["tool-dropped"]), transport).passed
    assert play_case(case(losses=[{"severity": "lost", "path": "/tools/0"}]), transport).passed


def test_the_answer_is_echoed() -> None:
    echoed = {**HELLO, "messages": [*HELLO["messages"], {"$echo": 0}, {"role": "user", "content": "And?"}]}
    wanted = {"messages": [{}, {"role": "assistant", "content": ANSWER["content"]}, {"content": "And?"}]}
    then = [{"client": {"request": echoed}, "provider": provider(expect=wanted)}]
    assert play_case(case(then=then), Through()).passed
    assert play_case(case(True, then=then), Through()).passed


def test_an_error_is_passed_as_it_is() -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Busy."}}
    played = case(provider=provider(status=529, body=error), sees={"status": 529, "body": error})
    assert play_case(played, Through()).passed


def test_out_of_reach_is_not_played() -> None:
    played = case(out_of_reach="A gateway's store is needed.", sees={"body": {"stop_reason": "x"}})
    outcome = play_case(played, Through())
    assert (outcome.passed, outcome.out_of_reach) == (False, "A gateway's store is needed.")
    assert outcome.differences == ()
    assert play_case(played, Through(), include_out_of_reach=True).differences
    assert json.loads(json.dumps(list(outcome.differences))) == []


ERROR: Object = {"type": "error", "error": {"type": "invalid_request_error", "message": "Not here."}}
EITHER: Object = {"status": {"$either": [200, 400]}, "body": {"$either": [ANSWER, {"error": "$any"}]}}
LATER: list[Object] = [{"client_sees": {"status": 200, "body": ANSWER}}]


@pytest.mark.parametrize(("status", "body", "passed"), [(400, ERROR, True), (200, ANSWER, False)])
def test_what_is_optional_may_be_refused_but_not_made_up(status: int, body: Object, passed: bool) -> None:
    told = Through(lambda seen: ClientView(status, {}, (json.dumps(body),)), calls=0)
    outcome = play_case(case(provider=provider(optional=True), sees=EITHER, then=LATER), told)
    assert outcome.passed is passed
    assert not play_case(case(provider=provider(), sees=EITHER, then=LATER), told).passed


def test_what_is_optional_leads_on_where_it_is_done() -> None:
    assert play_case(case(provider=provider(optional=True), sees=EITHER, then=LATER), Through()).passed


@pytest.mark.parametrize(("exchange", "passed"), [({"fails": "said"}, True), ({}, False)])
def test_a_stream_that_fails_may_be_asked_for_again(exchange: Object, passed: bool) -> None:
    frames = [{"type": "message_start"}, ERROR]
    played = case(True, provider=provider(sse=frames, **exchange), sees={"body": {"error": ERROR["error"]}})
    assert play_case(played, Through(calls=3)).passed is passed


NO_ZSTD = """
import sys
sys.modules["backports.zstd"] = sys.modules["compression.zstd"] = None
from toolwire.conformance.case import read_cases
from toolwire.conformance.player import play_case
print({play_case(case, None, include_out_of_reach=True).out_of_reach for case in read_cases() if case.id.startswith("174:zstd")})
"""


def test_what_cannot_be_packed_is_not_played() -> None:
    done = subprocess.run([sys.executable, "-c", NO_ZSTD], capture_output=True, text=True, check=True)
    assert done.stdout == "{'nothing here can pack a body with zstd'}\n"
