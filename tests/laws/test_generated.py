"""Laws 2 and 3 over generated conversations: what is written is read with the same meaning, in and between all protocols."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from material import NAMES
from toolwire.core.codec import WriteContext
from toolwire.core.events import StreamChecker, fold, unfold
from toolwire.core.ir import (
    Call,
    Choice,
    Finish,
    Reasoning,
    Request,
    Response,
    Result,
    Settings,
    Text,
    Tool,
    Turn,
    Usage,
    strip_origins,
)
from toolwire.core.json_values import decode, decode_object_or_none, encode
from toolwire.core.losses import Ledger
from toolwire.protocols import find_codec
from toolwire.translation.options import Options
from toolwire.translation.request_steps.adapt_request import adapt_request
from toolwire_conformance.peers import find_violations

WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=12).filter(
    str.strip
)
NAME = st.from_regex(r"[a-z][a-z0-9_]{0,11}", fullmatch=True)
ID = st.from_regex(r"call_[a-z0-9]{4,8}", fullmatch=True)
VALUE = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | WORDS | st.lists(WORDS, max_size=2)
ARGUMENTS = st.dictionaries(NAME, VALUE, max_size=3).map(
    lambda value: json.dumps(value, separators=(",", ":"), ensure_ascii=False)
)


@st.composite
def tools(draw: st.DrawFn) -> tuple[Tool, ...]:
    names = draw(st.lists(NAME, min_size=1, max_size=3, unique=True))
    return tuple(
        Tool(name, draw(WORDS), {"type": "object", "properties": {"a": {"type": "string", "description": draw(WORDS)}}})
        for name in names
    )


@st.composite
def conversations(draw: st.DrawFn) -> Request:
    """A user asks; the assistant speaks and calls, tools answer; a few rounds of it."""
    declared = draw(tools())
    turns: list[Turn] = [Turn("user", (Text(draw(WORDS)),))]
    ids = iter(draw(st.lists(ID, min_size=8, max_size=8, unique=True)))
    for _ in range(draw(st.integers(0, 3))):
        said = (Text(draw(WORDS)),) if draw(st.booleans()) else ()
        calls = tuple(
            Call(next(ids), draw(st.sampled_from(declared)).name, draw(ARGUMENTS))
            for _ in range(draw(st.integers(1, 2)))
        )
        turns.append(Turn("assistant", (*said, *calls)))
        turns.extend(Turn("tool", (Result(call.id, (Text(draw(WORDS)),)),)) for call in calls)
        if draw(st.booleans()):
            turns += [Turn("assistant", (Text(draw(WORDS)),)), Turn("user", (Text(draw(WORDS)),))]
    return Request("some-model", (), tuple(turns), declared, settings=Settings(max_tokens=draw(st.integers(16, 9999))))


@st.composite
def answers(draw: st.DrawFn) -> Response:
    parts: list[Any] = []
    if draw(st.booleans()):
        parts.append(Reasoning(draw(WORDS), "summary"))
    if draw(st.booleans()):
        parts.append(Text(draw(WORDS)))
    ids = draw(st.lists(ID, max_size=3, unique=True))
    parts += [Call(id, draw(NAME), draw(ARGUMENTS)) for id in ids]
    if not parts:
        parts.append(Text(draw(WORDS)))
    usage = Usage(draw(st.integers(1, 999)), draw(st.integers(1, 999)))
    return Response("resp_1", "some-model", 1, (Choice(0, tuple(parts), Finish("calls" if ids else "stop")),), usage)


def essence(request: Request) -> list[tuple[Any, ...]]:
    """Who said what, which calls were made with which arguments, and what came back, whatever the turns look like."""
    found: list[tuple[Any, ...]] = []
    for turn in request.turns:
        for part in turn.parts:
            if isinstance(part, Text):
                found.append((turn.role, part.text))
            elif isinstance(part, Call):
                found.append(("call", part.id, part.name, decode_object_or_none(part.arguments)))
            elif isinstance(part, Result):
                found.append(("result", part.id, "".join(item.text for item in part.content if isinstance(item, Text))))
    return found


# Each is generated once and checked with every protocol: to generate it takes longest.


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(request=conversations())
def test_a_conversation_is_read_as_it_was_written(request: Request) -> None:
    for target in NAMES:
        check_conversation(target, request)


def check_conversation(target: str, request: Request) -> None:
    place = find_codec(target)
    ledger = Ledger("generated", target)
    adapted, _, _ = adapt_request(request, place, ledger, Options())
    body = decode(encode(place.write_request(adapted, ledger)))
    again = place.read_request(body)
    assert essence(again) == essence(request)
    assert [tool.name for tool in again.tools if isinstance(tool, Tool)] == [
        tool.name for tool in request.tools if isinstance(tool, Tool)
    ]
    assert [loss for loss in ledger.losses if loss.severity == "lost"] == []
    assert find_violations(target, body) == []


@settings(max_examples=100, deadline=None)
@given(response=answers())
def test_folding_undoes_unfolding(response: Response) -> None:
    events = list(unfold(response))
    checker = StreamChecker()
    assert [fault for event in events if (fault := checker.check_event(event))] == []
    assert fold(events) == response


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(response=answers())
def test_an_answer_is_the_same_whole_and_streamed(response: Response) -> None:
    for target in NAMES:
        check_answer(target, response)


def check_answer(target: str, response: Response) -> None:
    place = find_codec(target)
    whole = place.read_response(
        decode(encode(place.write_response(response, Ledger("generated", target), WriteContext(now=1))))
    )
    writer = place.make_stream_writer(Ledger("generated", target), WriteContext(now=1))
    data = b"".join(writer.write(event) for event in unfold(response)) + writer.close()
    reader = place.make_stream_reader()
    streamed = fold([*reader.feed(data), *reader.close()])
    for answer in (whole, streamed):
        (choice,) = answer.choices
        assert text_and_calls(choice) == text_and_calls(response.choices[0])
        assert answer.usage is not None
        assert response.usage is not None
        assert (answer.usage.input, answer.usage.output) == (response.usage.input, response.usage.output)
    assert meaning(whole) == meaning(streamed)


def text_and_calls(choice: Choice) -> list[tuple[Any, ...]]:
    return [
        (part.text,) if isinstance(part, Text) else (part.id, part.name, decode_object_or_none(part.arguments))
        for part in choice.parts
        if isinstance(part, (Text, Call))
    ]


def meaning(response: Response) -> Any:
    (choice,) = strip_origins(response.choices)
    return choice.parts, choice.finish and choice.finish.kind
