"""Answers in several rounds, without any protocol: however the events come, the client sees one answer, and only its own.

Parts of a round may be open at the same time, and be cut into any pieces; calls of some tools are taken out.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from toolwire.core.events import (
    ArgumentsDelta,
    ChoiceEnd,
    Event,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
    SealDelta,
    StreamChecker,
    TextDelta,
    UsageUpdate,
    fold,
    unfold,
)
from toolwire.core.ir import Call, Choice, Failure, Finish, Part, Reasoning, Response, Result, Seal, Text, Tool, Usage
from toolwire.core.json_values import decode, encode
from toolwire.protocols import find_codec
from toolwire.translation.exchange import Exchange
from toolwire.translation.options import Options
from toolwire.translation.tool_rounds import PAUSE, Rounds

TAKEN = {"hidden", "other"}


class Takes:
    """Takes by name; `odd` is only known to be taken when it is whole."""

    def may_intercept(self, name: str) -> bool:
        return name in TAKEN or name == "odd"

    def decide(self, call: Call) -> str | None:
        if call.name == "odd":
            return "not so" if "taken" in call.arguments else None
        return "" if call.name in TAKEN else None

    def to_runner_call(self, call: Call) -> Call:
        return replace(call, name=call.name.upper())

    def removed_tool(self, call: Call) -> str:
        return ""


words = st.text("abc ", min_size=1, max_size=8)
texts = st.builds(Text, words)
thoughts = st.builds(Reasoning, words, seal=st.one_of(st.none(), st.builds(Seal, st.just("m"), words)))
calls = st.builds(
    Call,
    st.sampled_from(["", "call_0", "call_1"]),
    st.sampled_from(["hidden", "other", "own", "odd"]),
    st.sampled_from(["{}", '{"taken":1}', '{"a":"b"}']),
)
rounds = st.lists(st.lists(st.one_of(texts, thoughts, calls), min_size=1, max_size=5), min_size=1, max_size=4)


def whole(parts: Sequence[Part], tokens: int) -> Response:
    finish = Finish("calls" if any(isinstance(part, Call) for part in parts) else "stop")
    return Response("r", "m", None, (Choice(0, tuple(parts), finish),), Usage(tokens, 1))


def shuffle_events(parts: Sequence[Part], tokens: int, draw: st.DrawFn) -> list[Event]:
    """The events of a round in some order that keeps the order of each part, and in which parts begin in theirs."""
    out: list[Event] = [ResponseStart("r", "m")]
    waiting: list[list[Event]] = []
    for index, part in enumerate(parts):
        mine = [event for event in unfold(whole([part], 0)) if hasattr(event, "index")]
        waiting.append([replace(event, index=index) for one in mine for event in _cut(one, draw)])
        out.append(waiting[-1].pop(0))
        while waiting and draw(st.booleans()):
            _next(waiting, out, draw)
    while waiting:
        _next(waiting, out, draw)
    return [
        *out,
        ChoiceEnd(whole(parts, 0).choices[0].finish or Finish("stop")),
        UsageUpdate(Usage(tokens, 1)),
        ResponseEnd(),
    ]


def _next(waiting: list[list[Event]], out: list[Event], draw: st.DrawFn) -> None:
    row = draw(st.sampled_from(waiting))
    out.append(row.pop(0))
    if not row:
        waiting[:] = [one for one in waiting if one is not row]


def _cut(event: Event, draw: st.DrawFn) -> list[Event]:
    if not isinstance(event, (TextDelta, ArgumentsDelta)) or len(event.text) < 2:
        return [event]
    at = draw(st.integers(1, len(event.text) - 1))
    return [replace(event, text=event.text[:at]), replace(event, text=event.text[at:])]


def is_taken(part: Part) -> bool:
    return isinstance(part, Call) and (part.name in TAKEN or (part.name == "odd" and "taken" in part.arguments))


def play(
    given_rounds: Sequence[Sequence[Part]], events: Sequence[list[Event]], cuts: Sequence[int]
) -> tuple[Rounds, list[Event]]:
    """Feed the rounds as they are asked for, each in pieces; what comes out."""
    taking, out = Rounds(Takes()), []
    for row in events:
        row = list(row)
        for cut in cuts:
            out += taking.join_events(row[:cut])
            row = row[cut:]
        out += taking.join_events(row)
        if not taking.needs_next_round:
            break
        ran = [Result(call.id, (Text(f"did {call.name}"),)) for call in taking.calls_to_run()]
        taking.resume(taking.complete_results(ran))
    return taking, out


def told_of(parts: Sequence[Part]) -> tuple[list[object], list[str]]:
    """All in order, but for calls that had to be whole before it was known whose they are: these may come later."""
    late = [part for part in parts if isinstance(part, Call) and part.name == "odd"]
    return [plain(part) for part in parts if part not in late], sorted(str(plain(part)) for part in late)


def plain(part: Part) -> object:
    if isinstance(part, Call):
        return part.name, part.arguments
    return type(part).__name__, part.text  # type: ignore[union-attr]


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.data(), rounds, st.lists(st.integers(0, 6), max_size=3))
def test_one_answer(data: st.DataObject, said: list[list[Part]], cuts: list[int]) -> None:
    streams = [shuffle_events(parts, 10 + number, data.draw) for number, parts in enumerate(said)]
    wholes = [list(unfold(whole(parts, 10 + number))) for number, parts in enumerate(said)]
    taking, out = play(said, streams, cuts)
    checker = StreamChecker()
    assert [fault for event in out if (fault := checker.check_event(event)) is not None] == []
    goes_on = [
        all(is_taken(part) for part in parts if isinstance(part, Call)) and any(map(is_taken, parts)) for parts in said
    ]
    played = next((number + 1 for number, more in enumerate(goes_on) if not more), len(said))
    assert taking.resumptions == sum(goes_on[:played])
    shown = fold(out)
    got = shown.choices[0].parts if shown.choices else ()
    expected = [part for parts in said[:played] for part in parts if not is_taken(part)]
    assert told_of(got) == told_of(expected)
    assert shown.usage is not None
    assert shown.usage.input == sum(10 + number for number in range(played))
    ids = [part.id for part in got if isinstance(part, Call)] + [call.id for call in taking.hidden_calls]
    assert "" not in ids
    assert len(set(ids)) == len(ids)
    _, again = play(said, wholes, ())
    choices = fold(again).choices
    assert told_of(choices[0].parts if choices else ()) == told_of(got)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.data(), rounds)
def test_every_call_has_its_result(data: st.DataObject, said: list[list[Part]]) -> None:
    """What the model is asked next tells all that it said, and one result for each call, in their order."""
    taking, _ = play(said, [shuffle_events(parts, 1, data.draw) for parts in said], ())
    for one in taking.finished_rounds:
        asked = [part.id for part in one.parts if isinstance(part, Call)]
        assert sorted(asked) == sorted(result.id for result in one.results)
    turns = taking.turns()
    assert sum(turn.role == "assistant" for turn in turns) >= len(taking.finished_rounds)


def test_a_pause_goes_on_in_the_same_turn() -> None:
    taking = Rounds(None, provider_pauses=True)
    numbers = count()
    first = [
        ResponseStart("r"),
        PartStart(0, Text("")),
        TextDelta(0, "One, "),
        PartEnd(0),
        ChoiceEnd(Finish(PAUSE)),
        ResponseEnd(),
    ]
    assert not any(isinstance(event, (ChoiceEnd, ResponseEnd)) for event in taking.join_events(first))
    assert taking.needs_next_round
    taking.resume()
    second = [
        ResponseStart("r2"),
        PartStart(0, Text("")),
        TextDelta(0, "two."),
        PartEnd(0),
        ChoiceEnd(Finish("stop")),
        ResponseEnd(),
    ]
    out = taking.join_events(second)
    assert [event.index for event in out if isinstance(event, PartStart)] == [next(numbers) + 1]
    assert [part.text for part in taking.parts if isinstance(part, Text)] == ["One, ", "two."]
    assert len(taking.turns()) == 1


def test_a_failure_ends_it() -> None:
    """Though its calls have come: what failed does not go on."""
    taking = Rounds(Takes())
    events: list[Event] = [
        ResponseStart("r"),
        *(e for e in unfold(whole([Call("c", "hidden", "{}")], 1)) if hasattr(e, "index")),
    ]
    taking.join_events([*events, ChoiceEnd(Finish("calls"))])
    assert taking.needs_next_round
    taking.join_events([ResponseFailed(Failure("upstream", "cut"))])
    assert not taking.needs_next_round


@given(st.data(), rounds)
@settings(max_examples=100, deadline=None)
def test_without_seals(data: st.DataObject, said: list[list[Part]]) -> None:
    taking = Rounds(Takes(), keep_seals=False)
    out: list[Event] = []
    for parts in said[:1]:
        out += taking.join_events(shuffle_events(parts, 1, data.draw))
    assert not any(isinstance(event, SealDelta) for event in out)
    seals = [part.seal for part in said[0] if isinstance(part, Reasoning) and part.seal is not None]
    assert [part.seal for part in taking.parts if isinstance(part, Reasoning) and part.seal is not None] == seals


@pytest.mark.parametrize("client", ["openai-chat", "anthropic", "gemini", "bedrock-converse"])
def test_a_stream_that_nobody_asked_for_is_heard_as_a_whole_answer(client: str) -> None:
    """Some servers always stream: a call that is not the client's must not reach it for that."""
    provider = find_codec("openai-chat")
    called = {"index": 0, "id": "call_a1B2c3D4", "function": {"name": "files__read", "arguments": "{}"}}
    chunks = [{"delta": {"role": "assistant", "tool_calls": [called]}}, {"delta": {}, "finish_reason": "tool_calls"}]
    frames = [{"id": "c", "model": "m", "choices": [{"index": 0, **chunk}]} for chunk in chunks]
    stream = b"".join(b"data: " + encode(frame) + b"\n\n" for frame in frames) + b"data: [DONE]\n\n"
    exchange = Exchange(find_codec(client), provider, Options(model="m", tools=(Tool("files__read", "Reads."),)))
    exchange.translate_request(MINIMAL[client])
    rounds = exchange.add_round(stream, is_stream=True)
    assert rounds is not None
    assert rounds.needs_next_round
    assert [call.name for call in rounds.calls_to_run()] == ["files__read"]
    asked = decode(exchange.next_request(rounds, rounds.complete_results([Result("", (Text("found"),))])))
    assert asked["messages"][-1] == {"role": "tool", "tool_call_id": "call_a1B2c3D4", "content": "found"}


MINIMAL = {
    "openai-chat": {"model": "m", "messages": [{"role": "user", "content": "Hi"}]},
    "anthropic": {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
    "bedrock-converse": {"messages": [{"role": "user", "content": [{"text": "Hi"}]}]},
}
