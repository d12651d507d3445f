"""The session of a request: turns of one conversation have the same, whoever answers and whichever gateway is asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from gateway.raw_exchange import CLIENTS, Served, call, play_script, stage
from toolwire.core import ir
from toolwire.core.losses import Ledger
from toolwire.gateway.exchange.session import MAX_START, read_start
from toolwire.protocols import CODECS

PROTOCOLS = sorted(CODECS)
FIRST = "Where is the mouse? \u201cHere\u201d \U0001f401"


@pytest.fixture(scope="module", name="served")
def serve_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with stage(tmp_path_factory.mktemp("sessions")) as staged:
        yield staged


def body_of(protocol: str, system: str, *texts: str) -> bytes:
    """A conversation with these texts, the user's first, in a protocol."""
    roles = ("user", "assistant")
    turns = tuple(ir.Turn(roles[number % 2], (ir.Text(text),)) for number, text in enumerate(texts))
    tool = ir.Tool("look_up", "", {"type": "object", "properties": {"messages": {"type": "object"}, "input": {}}})
    request = ir.Request("m", tools=(tool,), system=(ir.Text(system),), turns=turns)
    codec = CODECS[protocol]
    return json.dumps(codec.write_request(request, Ledger(protocol, protocol))).encode()


def start_of(protocol: str, body: bytes) -> str:
    members = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    return read_start(members[CODECS[protocol].constraints.turns_key])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_all_turns_of_a_conversation_have_the_same_start(protocol: str) -> None:
    bodies = [
        body_of(protocol, "It is 10:15.", FIRST),
        body_of(protocol, "It is 10:15.", FIRST, "There.", "Where?"),
        body_of(protocol, "It is 10:16.", FIRST, "There.", "Where?", "In " + "x" * MAX_START, "Thanks."),
    ]
    assert {start_of(protocol, body) for body in bodies} == {FIRST}
    assert start_of(protocol, body_of(protocol, "It is 10:15.", "Another one.")) == "Another one."


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_long_first_turn_is_cut_and_still_the_same(protocol: str) -> None:
    long = "mouse \U0001f401 " * MAX_START
    first, second = (start_of(protocol, body_of(protocol, "", long, *more)) for more in ((), ("Yes.", "And now?")))
    assert first
    assert first == second
    assert len(first.encode()) <= MAX_START


STARTS: dict[str, tuple[str, str, Any, str]] = {
    "a text": ("openai-responses", "input", "One", "One"),
    "an environment first": (
        "openai-responses",
        "input",
        [
            {"role": "user", "content": [{"type": "input_text", "text": "<environment>/tmp</environment>"}]},
            {"role": "user", "content": "One"},
        ],
        "One",
    ),
    "an environment in the turn": (
        "anthropic",
        "messages",
        [{"role": "user", "content": [{"type": "text", "text": "<date>1</date>"}, {"type": "text", "text": "One"}]}],
        "One",
    ),
    "only an environment": ("anthropic", "messages", [{"role": "user", "content": "<date>1</date>"}], "<date>1</date>"),
    "without a role": ("gemini", "contents", [{"parts": [{"text": "One"}]}], "One"),
    "cache marks": (
        "anthropic",
        "messages",
        [{"role": "user", "content": [{"type": "text", "text": "One", "cache_control": {"type": "ephemeral"}}]}],
        "One",
    ),
    "no turns": ("anthropic", "messages", [], ""),
    "not a list": ("anthropic", "messages", {"a": 1}, ""),
    "not turns": ("anthropic", "messages", [1, None, "a"], "1"),
}


@pytest.mark.parametrize("row", STARTS)
def test_what_the_start_is(row: str) -> None:
    protocol, key, turns, start = STARTS[row]
    assert start_of(protocol, json.dumps({"tools": [{"messages": 1, "input": {}}], key: turns}).encode()) == start


@pytest.mark.parametrize("turns", [b"", b"null", b"[", b"[" * 100_000, b'["\xff\xfe', b'"\xff'])
def test_turns_that_are_damaged_have_some_start(turns: bytes) -> None:
    assert isinstance(read_start(msgspec.Raw(turns)), str)


# --- through the gateway ---


def session_of(served: Served, client: str, headers: dict[str, str] | None = None, **fields: Any) -> str:
    scene = served.scene("openai-chat", play_script("openai-chat", False))
    got = call(served, client, scene.model, False, headers or {}, **fields)
    return str(served.line(got.id).get("session", ""))


@pytest.mark.parametrize("client", CLIENTS)
def test_the_log_names_the_session(served: Served, client: str) -> None:
    first = session_of(served, client)
    assert len(first) == 16
    assert session_of(served, client) == first
    named = session_of(served, client, {"x-claude-code-session-id": "s-1"})
    assert named != first
    assert session_of(served, client, {"session-id": "s-2"}) not in (first, named)


def test_an_answer_that_is_continued_belongs_to_its_session(served: Served) -> None:
    scene = served.scene("openai-chat", *[play_script("openai-chat", False)] * 3)
    first = call(served, "openai-responses", scene.model, False, input="A first question.", store=True)
    id = first.json()["id"]
    second = call(served, "openai-responses", scene.model, False, input="And?", previous_response_id=id, store=True)
    third = call(served, "openai-responses", scene.model, False, input="Yet?", previous_response_id=second.json()["id"])
    sessions = {served.line(got.id)["session"] for got in (first, second, third)}
    assert len(sessions) == 1
