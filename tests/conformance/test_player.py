"""The player finds faults: cases played through transports with one fault each."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from toolwire_conformance.case import Case, read_case
from toolwire_conformance.player import AnswerCall, ClientCall, ClientView, ReceivedCall, play_case

Object = dict[str, Any]
HELLO: Object = {"model": "claude-opus-5-5", "max_tokens": 10, "messages": [{"role": "user", "content": "Hi"}]}
ANSWER: Object = {"content": [{"type": "text", "text": "Hello."}], "stop_reason": "end_turn"}


class FakeGateway:
    """A gateway that forwards everything unchanged, except for `change`."""

    def __init__(self, change: Callable[[ClientView], ClientView] = lambda view: view, calls: int = 1) -> None:
        self.change = change
        self.calls = calls

    def send_call(self, call: ClientCall, answer: AnswerCall) -> ClientView:
        view = ClientView(200, {}, ("{}",), [])
        for _ in range(self.calls):
            given = answer(ReceivedCall(call.body, call.model, call.stream))
            pieces = (*given.pieces, "") if given.stream else given.pieces
            view = ClientView(given.status, given.headers, pieces, [])
        return self.change(view)


def make_case(stream: bool = False, sees: Object | None = None, **fields: Any) -> Case:
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
def test_no_fault(stream: bool) -> None:
    assert play_case(make_case(stream), FakeGateway()).passed


def make_provider(**exchange: Any) -> Object:
    return {"protocol": "anthropic", "exchanges": [{"body": ANSWER, **exchange}]}


def change_text(change: Callable[[str], str]) -> Callable[[ClientView], ClientView]:
    return lambda view: ClientView(view.status, view.headers, (change(view.text),), view.losses)


WRONG: list[tuple[Case, FakeGateway, str]] = [
    (
        make_case(provider=make_provider(expect={"max_tokens": 11})),
        FakeGateway(),
        "provider/max_tokens: expected 11, got 10",
    ),
    (
        make_case(client={"protocol": "anthropic", "request": {**HELLO, "n": 1}}),
        FakeGateway(),
        "refuses: n: unknown parameter",
    ),
    (make_case(), FakeGateway(calls=0), "called 0 times, expected 1"),
    (make_case(), FakeGateway(calls=2), "called 2 times, expected 1"),
    (make_case(sees={"body": {"stop_reason": "tool_use"}}), FakeGateway(), "client/stop_reason"),
    (make_case(sees={"status": 400}), FakeGateway(), "client status"),
    (make_case(sees={"headers": {"retry-after": "3"}}), FakeGateway(), "client header/retry-after"),
    (make_case(sees={"text": {"$contains": "absent"}}), FakeGateway(), "client text"),
    (make_case(True, {"events": [{"event": "error"}]}), FakeGateway(), "client events"),
    (make_case(True, {"after": {"0": {"$contains": "Hello"}}}), FakeGateway(), "client after frame 0"),
    (make_case(True), FakeGateway(change_text(lambda text: text.replace("event:", "x:"))), "without an event line"),
    (make_case(), FakeGateway(change_text(lambda text: text[:-1])), "invalid JSON"),
    (make_case(losses=["id-rewritten"]), FakeGateway(), "losses: "),
    (
        make_case(then=[{"client": {"request": {**HELLO, "messages": ["$same:gone"]}}}]),
        FakeGateway(),
        "turn 2: no earlier turn contains a value for `gone`",
    ),
    (make_case(then=[{"client": {"request": {**HELLO, "messages": [{"$echo": 3}]}}}]), FakeGateway(), "no answer 3"),
]


@pytest.mark.parametrize(("case", "transport", "message"), WRONG, ids=[row[2] for row in WRONG])
def test_finds_a_fault(case: Case, transport: FakeGateway, message: str) -> None:
    outcome = play_case(case, transport)
    assert not outcome.passed
    assert any(message in line for line in outcome.differences), outcome.differences


def test_empty_list_of_losses() -> None:
    lost = {"code": "tool-dropped", "path": "/tools/0", "severity": "lost"}
    transport = FakeGateway(lambda view: ClientView(view.status, view.headers, view.pieces, [lost]))
    assert not play_case(make_case(losses=[]), transport).passed
    assert play_case(make_case(losses=["tool-dropped"]), transport).passed
    assert play_case(make_case(losses=[{"severity": "lost", "path": "/tools/0"}]), transport).passed


def test_echo() -> None:
    echoed = {**HELLO, "messages": [*HELLO["messages"], {"$echo": 0}, {"role": "user", "content": "And?"}]}
    wanted = {"messages": [{}, {"role": "assistant", "content": ANSWER["content"]}, {"content": "And?"}]}
    then = [{"client": {"request": echoed}, "provider": make_provider(expect=wanted)}]
    assert play_case(make_case(then=then), FakeGateway()).passed
    assert play_case(make_case(True, then=then), FakeGateway()).passed


def test_error_answer() -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Busy."}}
    played = make_case(provider=make_provider(status=529, body=error), sees={"status": 529, "body": error})
    assert play_case(played, FakeGateway()).passed


def test_out_of_reach() -> None:
    played = make_case(out_of_reach="A gateway's store is needed.", sees={"body": {"stop_reason": "x"}})
    outcome = play_case(played, FakeGateway())
    assert (outcome.passed, outcome.out_of_reach) == (False, "A gateway's store is needed.")
    assert outcome.differences == ()
    assert play_case(played, FakeGateway(), include_out_of_reach=True).differences
    assert json.loads(json.dumps(list(outcome.differences))) == []


ERROR: Object = {"type": "error", "error": {"type": "invalid_request_error", "message": "Not here."}}
EITHER: Object = {"status": {"$either": [200, 400]}, "body": {"$either": [ANSWER, {"error": "$any"}]}}
LATER: list[Object] = [{"client_sees": {"status": 200, "body": ANSWER}}]


@pytest.mark.parametrize(("status", "body", "passed"), [(400, ERROR, True), (200, ANSWER, False)])
def test_optional_exchange_may_be_refused(status: int, body: Object, passed: bool) -> None:
    gateway = FakeGateway(lambda view: ClientView(status, {}, (json.dumps(body),)), calls=0)
    outcome = play_case(make_case(provider=make_provider(optional=True), sees=EITHER, then=LATER), gateway)
    assert outcome.passed is passed
    assert not play_case(make_case(provider=make_provider(), sees=EITHER, then=LATER), gateway).passed


def test_optional_exchange_may_happen() -> None:
    assert play_case(make_case(provider=make_provider(optional=True), sees=EITHER, then=LATER), FakeGateway()).passed


@pytest.mark.parametrize(("exchange", "passed"), [({"fails": "said"}, True), ({}, False)])
def test_failed_stream_may_be_retried(exchange: Object, passed: bool) -> None:
    frames = [{"type": "message_start"}, ERROR]
    played = make_case(True, provider=make_provider(sse=frames, **exchange), sees={"body": {"error": ERROR["error"]}})
    assert play_case(played, FakeGateway(calls=3)).passed is passed


NO_ZSTD = """
import sys
sys.modules["backports.zstd"] = sys.modules["compression.zstd"] = None
from toolwire_conformance.case import read_cases
from toolwire_conformance.player import play_case
print({play_case(case, None, include_out_of_reach=True).out_of_reach for case in read_cases() if case.id.startswith("174:zstd")})
"""


def test_unavailable_compression() -> None:
    done = subprocess.run([sys.executable, "-c", NO_ZSTD], capture_output=True, text=True, check=True)
    assert done.stdout == "{'zstd compression is not available here'}\n"
