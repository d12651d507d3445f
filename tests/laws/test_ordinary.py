"""Ordinary answers go straight from bytes to bytes, and nothing is different for it."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from bench.gateway import canned
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct

from laws.test_acceptable import BODIES
from laws.test_bad_input import JSON, places, replaced
from laws.test_generated import answers
from material import corpus, needs_corpus
from toolwire.ir import Call, Choice, Finish, Origin, Response, Text, Usage, forget
from toolwire.loss import Ledger
from toolwire.protocols import ROOMS
from toolwire.room import Context
from toolwire.wire import Malformed, as_object, decode, encode

NAMES = ("openai-chat", "openai-responses", "anthropic", "gemini")
REQUESTS = {name: ROOMS[name].read_request(BODIES[name]) for name in NAMES}
ODD = st.sampled_from(
    [None, True, False, 0, 1, 1.0, 0.5, -1, 10**30, "", "x", " ", "{}", [], {}, [{}], {"a": 1}, ["x"]]
)
KEYS = st.sampled_from(
    "id index role type text content refusal annotations usage error name args arguments thought reasoning_content "
    "finish_reason stop_reason stop_sequence cached_tokens cache_read_input_tokens thoughtSignature status x".split()
)
BARE = {name: ROOMS[name].read_request(canned.requests("small")[name]) for name in NAMES}


def _nodes(value: Any) -> Iterator[Struct]:
    """A node and all below it."""
    if isinstance(value, tuple):
        for item in value:
            yield from _nodes(item)
    elif isinstance(value, Struct) and not isinstance(value, Origin):
        yield value
        for field in value.__struct_fields__:
            yield from _nodes(getattr(value, field))


def _places(response: Response) -> list[Any]:
    return [getattr(node, "origin", None) and node.origin.path for node in _nodes(response)]  # type: ignore[attr-defined]


def read_alike(name: str, data: bytes) -> Response | None:
    """The answer as the short way reads it, which must be what the careful way says."""
    found = ROOMS[name].read_ordinary(data)
    if found is None:
        return None
    careful = ROOMS[name].read_response(as_object(decode(data), None))
    assert found.strays == careful.strays
    assert forget(found) == forget(careful)
    assert repr(forget(found)) == repr(forget(careful))  # 1 is not True and not 1.0
    assert _places(found) == _places(careful)
    assert not any(node.origin.intact for node in _nodes(found) if getattr(node, "origin", None))  # type: ignore[attr-defined]
    return found


def written_alike(name: str, response: Response, context: Context) -> bool:
    """Did it go the short way? If so, it came to what the careful way writes."""
    spelled = ROOMS[name].write_ordinary(response, context)
    if spelled is None:
        return False
    ledger = Ledger("another", name)
    assert spelled == encode(ROOMS[name].write_response(response, ledger, context))
    assert ledger.count == 0
    return True


def _otherwise(body: Any, data: st.DataObject) -> Any:
    """The same body with another value, without a key, or with one more."""
    path = data.draw(st.sampled_from(places(body)))
    how = data.draw(st.sampled_from(["another", "without", "more"]))
    if how == "another":
        return replaced(body, path, data.draw(ODD | JSON))
    body = copy.deepcopy(body)
    node = body
    for key in path[:-1]:
        node = node[key]
    if how == "more" and isinstance(node, dict):
        node[data.draw(KEYS)] = data.draw(ODD)
    else:
        del node[path[-1]]
    return body


def _contexts(name: str) -> list[Context]:
    return [Context(None, 7, "seed"), Context(REQUESTS[name], 8, "seed"), Context(BARE[name], 9, "other")]


def told_alike(source: str, data: bytes) -> bool:
    """Both ways for every client; was it an ordinary one for its reader?"""
    found = read_alike(source, data)
    try:
        careful = ROOMS[source].read_response(as_object(decode(data), None))
    except Malformed:
        return False
    for name in NAMES:
        if name != source and careful.failure is None:
            for context in _contexts(name):
                written = written_alike(name, careful, context)
                assert found is None or written_alike(name, found, context) == written
    return found is not None


@pytest.mark.parametrize("source", NAMES)
def test_the_answer_of_the_benchmark_is_read_as_an_ordinary_one(source: str) -> None:
    assert told_alike(source, canned.whole(source))


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_of_text_and_a_call_is_written_as_an_ordinary_one(name: str) -> None:
    parts = (Text("Let me see."), Call("call_1", "read", '{"path":"a"}'))
    response = Response("resp_1", "a-model", 1, (Choice(0, parts, Finish("calls")),), Usage(3, 4))
    assert written_alike(name, response, Context(BARE[name], 9, "other"))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
@pytest.mark.parametrize("source", NAMES)
def test_any_value_anywhere_is_read_alike(source: str, data: st.DataObject) -> None:
    body = json.loads(canned.whole(source))
    for _ in range(data.draw(st.integers(1, 2))):
        body = _otherwise(body, data)
    told_alike(source, json.dumps(body).encode())


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(answers())
@pytest.mark.parametrize("name", NAMES)
def test_any_answer_is_written_alike(name: str, response: Response) -> None:
    for context in _contexts(name):
        written_alike(name, response, context)


@needs_corpus
def test_recorded_answers_are_told_alike() -> None:
    found = {name: [0, 0] for name in NAMES}
    for recorded in corpus():
        if isinstance(recorded.response, dict) and recorded.status < 400:
            for data in (json.dumps(recorded.response).encode(), json.dumps(recorded.response, indent=2).encode()):
                found[recorded.protocol][told_alike(recorded.protocol, data)] += 1
    assert all(ordinary for _, ordinary in found.values()), found
