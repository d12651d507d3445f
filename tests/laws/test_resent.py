"""A list of tools that came before is known by its bytes, and nothing else is different for it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from laws.test_acceptable import BODIES, MODELS
from material import sample_streams
from toolwire.bodies import object_of
from toolwire.exchange import Exchange, Translation
from toolwire.gateway.bodies import peeked
from toolwire.keeping import Peek
from toolwire.options import Options
from toolwire.protocols import ROOMS
from toolwire.resent import LONGEST, MEMORY, MOST, Memory
from toolwire.wire import decode, encode

PAIRS = [(source, target, model) for source in BODIES for target, models in MODELS.items() for model in models]
PLAIN = {"type": "object", "properties": {"path": {"type": "string"}}}
ODD = [
    {
        "type": "object",
        "properties": {"a-b": {"type": ["string", "null"]}, "c": {"$ref": "#/$defs/c"}},
        "$defs": {"c": {}},
    },
    {"anyOf": [{"type": "object"}, {"type": "null"}]},
    {"type": "object", "properties": {}, "additionalProperties": False, "x-own": 1.50},
    {},
]


def _asked(source: str, target: str, model: str, body: bytes, tools: bytes) -> Translation:
    exchange = Exchange(ROOMS[source], ROOMS[target], Options(model=model))
    exchange.tools = tools
    return exchange.request(body)


def _is_the_same(source: str, target: str, model: str, body: bytes) -> None:
    tools = bytes((peeked(body) or Peek()).tools)
    assert tools.startswith(b"[")
    plain = _asked(source, target, model, body, b"")
    for _ in range(3):
        known = _asked(source, target, model, body, tools)
        assert known.body == plain.body
        assert known.losses == plain.losses
    # Whatever was done with it, the list is still what its bytes say.
    assert encode(MEMORY.decoded(tools)) == encode(decode(tools))


@pytest.mark.parametrize(("source", "target", "model"), PAIRS)
def test_nothing_is_different(source: str, target: str, model: str) -> None:
    _is_the_same(source, target, model, encode(BODIES[source]))


def _declared(source: str, schemas: list[Any], marked: bool) -> dict[str, Any]:
    """A request with one function for each schema."""
    mark = {"cache_control": {"type": "ephemeral"}} if marked else {}
    named = [(f"tool_{number}", schema) for number, schema in enumerate(schemas)]
    functions = [{"name": name, "description": "Does it.", "parameters": schema} for name, schema in named]
    ask = [{"role": "user", "content": "Do it."}]
    return {
        "openai-chat": {"messages": ask, "tools": [{"type": "function", "function": one, **mark} for one in functions]},
        "openai-responses": {"input": ask, "tools": [{"type": "function", **one} for one in functions]},
        "anthropic": {
            "max_tokens": 99,
            "messages": ask,
            "tools": [{"name": name, "input_schema": schema, **mark} for name, schema in named],
        },
        "gemini": {
            "contents": [{"role": "user", "parts": [{"text": "Do it."}]}],
            "tools": [{"functionDeclarations": [{"name": n, "parametersJsonSchema": s} for n, s in named]}],
        },
    }[source]


@pytest.mark.parametrize("target", sorted(MODELS))
@pytest.mark.parametrize("source", sorted(MODELS))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(schemas=st.lists(st.sampled_from([PLAIN, *ODD]), min_size=1, max_size=7), marked=st.booleans())
def test_nothing_is_different_for_any_tools(source: str, target: str, schemas: list[Any], marked: bool) -> None:
    for model in MODELS[target]:
        _is_the_same(source, target, model, encode({"model": "m", **_declared(source, schemas, marked)}))


ANSWER = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1767225600,
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Done."}, "finish_reason": "stop"}],
}


@pytest.mark.parametrize("schemas", [[PLAIN], [PLAIN, *ODD]])
def test_answers_that_tell_the_tools_tell_the_same(schemas: list[Any]) -> None:
    source, body = "openai-responses", encode({"model": "m", **_declared("openai-responses", schemas, False)})
    tools = bytes((peeked(body) or Peek()).tools)
    stream = b"".join(path.read_bytes() for path in sample_streams("openai_chat") if path.stem == "text")
    assert stream
    told = set()
    for known in (b"", tools, tools, b""):
        exchange = Exchange(ROOMS[source], ROOMS["openai-chat"], Options(model="m", now=1, seed="s"))
        exchange.tools = known
        exchange.request(body)
        flow = exchange.stream()
        told.add((exchange.response(encode(ANSWER)).body, flow.feed(stream) + flow.close()))
    assert len(told) == 1


TOOLS = b'[{"name": "a", "n": 1.50}]'


@pytest.mark.parametrize(
    "body",
    [
        b'{"tools":%b}',
        b'{"model": "m", "tools" :\r\n\t%b , "x": 1}',
        b'{"tools":[],"tools":%b}',
        b'{"x":{"tools":%b}}',
        b'{"x":{"tools":%b},"tool\\u0073":%b}',
        b'{"tool\\u0073":%b}',
        b'{"x":"tools","y":%b}',
        b'{"x":"\\"tools\\":%%","tools":%b}'.replace(b"%%", b"[]"),
        b'{"tools":%b',
        b'{"tools":%b}]',
        b'{"tools":%b,"tools":7}',
        b'{"tools":7,"x":%b}',
        b'{"y":0}',
    ],
)
def test_a_body_is_read_as_without(body: bytes) -> None:
    body = body.replace(b"%b", TOOLS)
    assert _or_error(body, TOOLS) == _or_error(body, b"")


def _or_error(body: bytes, tools: bytes) -> object:
    try:
        return encode(object_of(body, Options(), tools))
    except Exception as error:  # noqa: BLE001 — the same error, whichever
        return str(error)


def test_the_same_bytes_are_the_same_list() -> None:
    memory = Memory()
    first = memory.decoded(TOOLS)
    assert first is not None
    assert memory.decoded(bytes(bytearray(TOOLS))) is first
    assert memory.decoded(TOOLS.replace(b"1.50", b"1.5")) is not first
    assert memory.decoded(b'{"tools": []}') is None


def test_not_everything_is_kept() -> None:
    memory = Memory()
    first = memory.decoded(TOOLS)
    long = [b'["%d", "%b"]' % (number, b"x" * (LONGEST - 20)) for number in range(MOST // LONGEST + 1)]
    assert memory.decoded(b'["%b"]' % (b"x" * LONGEST)) is None
    assert memory.decoded(TOOLS) is first
    for one in long:
        memory.decoded(one)
    assert memory.decoded(TOOLS) is not first
