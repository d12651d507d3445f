"""What a provider was sent of a conversation stays the same when the conversation grows, for every pair of protocols.

The conversations are generated, and not all of them are tidy: calls without results, results that come late, twice or
for nothing, turns in pieces, ids that are missing, repeated or illegal somewhere. Caches are billed by prefix, and newer
models bind their thinking to it, so a fault in one turn must not change how the turns before it look.

Some things may differ at the very end of the shorter request, because they are not known there yet: what the model has
called and nobody has answered (so a conversation is cut only where the model has spoken last), and a turn of the user
that the next one is joined to. And a turn of white space alone, which some providers refuse, may vanish, so that what
stands around it becomes one turn.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from material import NAMES
from toolwire.core.ir import Call, Media, Origin, Reasoning, Request, Result, Seal, Text, Tool, ToolsAdded, Turn
from toolwire.core.json_values import Malformed, decode, encode
from toolwire.core.losses import Ledger
from toolwire.protocols import find_codec
from toolwire.translation.exchange import Exchange
from toolwire.translation.options import Options
from toolwire.translation.request_steps.adapt_request import adapt_request

MODELS = {
    "openai-chat": "deepseek-reasoner",
    "openai-responses": "gpt-5.5",
    "anthropic": "claude-sonnet-5-5",
    "gemini": "gemini-3.8-flash",
    "bedrock-converse": "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
    "unified": "some-model",
}
WORDS = st.sampled_from(["What?", "Look:", "It is so.", "  ", "json", "x" * 5000])
TOOLS = ("look", "find.it", "f" * 70)
IDS = ("", "call_1", "call_2", "functions.look:0", "i" * 50, "ä")
PNG = Media("image", "image/png", "iVBORw0KGgo=")


@st.composite
def seals_of(draw: st.DrawFn) -> Seal | None:
    maker = draw(st.sampled_from(["", "anthropic", "gemini/one/k", "openai-responses"]))
    return Seal(maker, draw(st.sampled_from(["c2VhbGVk", "b3RoZXI="]))) if maker else None


@st.composite
def assistants(draw: st.DrawFn) -> Turn:
    parts: list[Any] = []
    if draw(st.booleans()):
        parts.append(Reasoning(draw(WORDS), draw(st.sampled_from(["", "summary", "raw"])), seal=draw(seals_of())))
    if draw(st.booleans()):
        parts.append(Text(draw(WORDS), seal=draw(seals_of())))
    for _ in range(draw(st.integers(0, 3))):
        id, name = draw(st.sampled_from(IDS)), draw(st.sampled_from(TOOLS))
        parts.append(Call(id, name, draw(st.sampled_from(['{"a b": 1}', "{}", "", "nonsense"])), seal=draw(seals_of())))
    return Turn("assistant", tuple(parts) or (Text("Well."),))


@st.composite
def answers(draw: st.DrawFn, calls: list[Call]) -> list[Turn]:
    """The results of some calls, in some order, in one turn or in several, perhaps with one that nobody asked for."""
    results = [
        Result(call.id, draw(contents()), draw(st.sampled_from([None, None, True])), call.name)
        for call in draw(st.permutations(calls))
        if draw(st.integers(0, 9))
    ]
    if not draw(st.integers(0, 9)):
        results.append(Result("stray", (Text("nobody asked"),)))
    rest = (Text(draw(WORDS)),) if draw(st.booleans()) else ()
    if draw(st.booleans()):
        turns = [Turn("tool", (result,)) for result in results]
        return [*turns, Turn("user", rest)] if rest else turns
    return [Turn("user", (*results, *rest))] if results or rest else []


@st.composite
def contents(draw: st.DrawFn) -> tuple[Any, ...]:
    return draw(st.sampled_from([(Text("ok"),), (Text("see"), PNG), (), (Text(" "),), (Text("[tool error] no"),)]))


@st.composite
def conversations(draw: st.DrawFn) -> list[list[Turn]]:
    """Rounds, at whose ends nothing is open: what the user says, what the model says and calls, what comes back."""
    rounds: list[list[Turn]] = []
    for _ in range(draw(st.integers(2, 5))):
        turns = [Turn("user", (Text(draw(WORDS.filter(str.strip))), PNG)[: draw(st.integers(1, 2))])]
        if not draw(st.integers(0, 5)):
            turns.append(Turn("system", (Text("And be brief."),)))
        for _ in range(draw(st.integers(1, 3))):
            said = draw(assistants())
            turns.append(said)
            calls = [part for part in said.parts if isinstance(part, Call)]
            turns += draw(answers(calls)) if calls else []
        turns.append(Turn("assistant", (Text("So it is."),)))
        rounds.append(turns)
    return rounds


def asking(rounds: list[list[Turn]], model: str) -> Request:
    turns = [turn for turns in rounds for turn in turns]
    tools = tuple(Tool(name, "d", {"type": "object", "properties": {"a b": {"type": "integer"}}}) for name in TOOLS)
    return Request(model, (Text("Be kind."),), (*turns, Turn("user", (Text("Go on."),))), tools)


def elements(target: str, body: dict[str, Any]) -> tuple[str, list[str]]:
    turns = body[find_codec(target).constraints.turns_key]
    rest = {
        key: value for key, value in body.items() if key in ("tools", "system", "systemInstruction", "instructions")
    }
    return json.dumps(rest), [json.dumps(turn) for turn in turns]


def write_body(source: str, target: str, request: Request) -> dict[str, Any]:
    ledger = Ledger(source, target)
    adapted, _, _ = adapt_request(request, find_codec(target), ledger, Options())
    body: dict[str, Any] = decode(encode(find_codec(target).write_request(adapted, ledger)))
    return body


def check_prefix(target: str, shorter: dict[str, Any], longer: dict[str, Any]) -> None:
    (head, turns), (longer_head, longer_turns) = elements(target, shorter), elements(target, longer)
    assert longer_head == head
    seen = turns[:-1]  # the last is what the user says now, here and there
    assert longer_turns[: len(seen)] == seen


# Each conversation is checked with every target: to generate it takes four times as long as to translate it.


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(rounds=conversations())
def test_what_was_sent_stays_when_a_conversation_goes_on(rounds: list[list[Turn]]) -> None:
    for target in NAMES:
        shorter, longer = (
            write_body("generated", target, asking(kept, MODELS[target])) for kept in (rounds[:-1], rounds)
        )
        check_prefix(target, shorter, longer)


def untidy(source: str, request: Request) -> dict[str, Any]:
    """A client's body just as the conversation is, with nothing repaired."""
    body: dict[str, Any] = decode(encode(find_codec(source).write_request(request, Ledger("generated", source))))
    return body


@pytest.mark.slow
@pytest.mark.parametrize("source", NAMES)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(rounds=conversations(), tidy=st.booleans())
def test_in_every_pair_of_protocols(source: str, rounds: list[list[Turn]], tidy: bool) -> None:
    """The client's own bodies through a whole exchange, which knows the time and has a seed."""
    requests = [asking(kept, MODELS[source]) for kept in (rounds[:-1], rounds)]
    bodies = [write_body("generated", source, one) if tidy else untidy(source, one) for one in requests]
    try:
        for body in bodies:
            find_codec(source).read_request(body)
    except Malformed:
        reject()  # unified is strict and refuses this
    for target in NAMES:
        shorter, longer = (
            Exchange(find_codec(source), find_codec(target), Options(model=MODELS[target], now=now, seed=str(now)))
            .translate_request(body)
            .json()
            for now, body in enumerate(bodies)
        )
        check_prefix(target, shorter, longer)


def find_request_ends(turns: list[Turn]) -> list[int]:
    """Where a request could end: behind what the user says, or behind the results of all that was called last."""
    ends: list[int] = []
    calls: Counter[str] = Counter()
    for number, turn in enumerate(turns):
        if turn.role == "assistant":
            if number and turns[number - 1].role != "assistant":
                calls = Counter()
            calls.update(part.id for part in turn.parts if isinstance(part, Call))
            continue
        calls.subtract(part.id for part in turn.parts if isinstance(part, Result))
        if not any(calls.values()) and turn.role != "system":
            ends.append(number + 1)
    return ends


@pytest.mark.slow
@pytest.mark.parametrize("source", ["generated", *NAMES])
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(rounds=conversations(), data=st.data())
def test_in_the_middle_of_a_round(source: str, rounds: list[list[Turn]], data: st.DataObject) -> None:
    """A loop of tools: what was sent with some results stays when there are more."""
    turns = [turn for turns in rounds for turn in turns]
    end = data.draw(st.sampled_from(find_request_ends(turns)))
    for target in NAMES:
        whole, made = asking([turns], MODELS[target]), []
        for kept in (whole.turns[:end], whole.turns):
            request = replace(whole, turns=kept)
            if source == "generated":
                made.append(write_body(source, target, request))
                continue
            exchange = Exchange(find_codec(source), find_codec(target), Options(model=MODELS[target]))
            made.append(exchange.translate_request(write_body("generated", source, request)).json())
        check_prefix(target, *made)


def test_thinking_from_before_tools_were_loaded_stays_behind() -> None:
    """Where there is one list of tools it grows, and some models refuse what they thought before a shorter one."""
    early, late = (Reasoning("hm", seal=Seal("anthropic", seal)) for seal in ("ZWFybHk=", "bGF0ZQ=="))
    found = ToolsAdded((Tool("g", "d", {"type": "object"}),), Origin("generated", None, None))
    turns = (
        Turn("user", (Text("q"),)),
        Turn("assistant", (early, Call("c1", "look", "{}"))),
        Turn("tool", (Result("c1", (found,)),)),
        Turn("assistant", (late, Call("c2", "g", "{}"))),
        Turn("tool", (Result("c2", (Text("ok"),)),)),
    )
    tools = (Tool("look", "d", {"type": "object"}),)
    for model, kept in (("claude-opus-5-5", ["bGF0ZQ=="]), ("claude-opus-4-5", ["ZWFybHk=", "bGF0ZQ=="])):
        body = write_body("generated", "anthropic", Request(model, (), turns, tools))
        blocks = [block for message in body["messages"] for block in message["content"] if isinstance(block, dict)]
        assert [block["signature"] for block in blocks if block["type"] == "thinking"] == kept
        assert [tool["name"] for tool in body["tools"]] == ["look", "g"]
