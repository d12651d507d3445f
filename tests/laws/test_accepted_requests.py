"""Within one protocol: what a model's server is known to refuse is mended, is then accepted, and all else stays."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from toolwire.protocols import find_codec
from toolwire.translation import accepted_requests
from toolwire.translation.accepted_requests import is_accepted
from toolwire.translation.exchange import Exchange
from toolwire.translation.options import Options
from toolwire.translation.streaming import StreamTranslation

MODELS = {
    "openai-chat": "gpt-5.1",
    "openai-responses": "gpt-5.1",
    "anthropic": "claude-opus-5-5",
    "gemini": "gemini-3-pro",
}
KEYS = {
    "openai-chat": "parameters",
    "openai-responses": "parameters",
    "anthropic": "input_schema",
    "gemini": "parametersJsonSchema",
}
ALL = frozenset(MODELS)
OPENAI = frozenset({"openai-chat", "openai-responses"})
STRING = {"type": "string"}


def _with(schema: Any, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": schema}, **more}


SCHEMAS: dict[str, tuple[Any, frozenset[str]]] = {
    "usual": (_with(STRING, required=["a"], additionalProperties=False), frozenset()),
    "nullable": (_with({"type": "string", "nullable": True}), frozenset()),
    "an inner union": (_with({"anyOf": [STRING, {"type": "null"}]}), frozenset()),
    "a reference": (_with({"$ref": "#/$defs/x"}, **{"$defs": {"x": STRING}}), frozenset()),
    "an old draft": (_with(STRING, **{"$schema": "http://json-schema.org/draft-07/schema#"}), frozenset()),
    "double": (_with({"type": "double"}), ALL),
    "int": (_with({"type": "int"}), ALL),
    "upper case": (_with({"type": "STRING"}), ALL),
    "items by position": (_with({"type": "array", "items": [STRING, {"type": "number"}]}), ALL),
    "draft-04 bounds": (_with({"type": "number", "minimum": 0, "exclusiveMinimum": True}), ALL),
    "required on a property": (_with({"type": "string", "required": True}), ALL),
    "a reference without a target": (_with({"$ref": "#/definitions/x"}), ALL),
    "a name twice": (_with(STRING, required=["a", "a"]), ALL),
    "properties as a list": ({"type": "object", "properties": []}, ALL),
    "a union at the root": ({"anyOf": [_with(STRING), {"type": "object"}]}, ALL - {"gemini"}),
    "a union beside the type": (_with(STRING, oneOf=[{"required": ["a"]}, {"required": []}]), ALL - {"gemini"}),
    "no type": ({}, ALL - {"gemini"}),
    "an array without items": (_with({"type": "array"}), OPENAI),
    "an object without properties": ({"type": "object"}, OPENAI),
    "a pattern of JavaScript": (_with({"type": "string", "pattern": "\\p{L}+"}), OPENAI),
    "a keyword at the root": (_with(STRING, **{"not": {"required": ["b"]}}), OPENAI),
    "$filter": ({"type": "object", "properties": {"$filter": STRING}}, frozenset({"anthropic"})),
    "a long name": ({"type": "object", "properties": {"a" * 80: STRING}}, frozenset({"anthropic"})),
    "undefined but required": (_with(STRING, required=["b"]), frozenset({"gemini"})),
}
NAMES = {
    "a b": ALL,
    "a.b": ALL - {"gemini"},
    "1a": frozenset({"gemini"}),
    "x" * 70: frozenset({"openai-chat", "gemini"}),
}


def _body(protocol: str, schema: Any, name: str = "f") -> dict[str, Any]:
    tool: dict[str, Any] = {"name": name, KEYS[protocol]: schema}
    if protocol == "gemini":
        return {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}], "tools": [{"functionDeclarations": [tool]}]}
    turns = [{"role": "user", "content": "Hi"}]
    if protocol == "openai-chat":
        tool = {"type": "function", "function": tool}
    elif protocol == "openai-responses":
        tool = {"type": "function", **tool}
    key, more = ("input", {}) if protocol == "openai-responses" else ("messages", {"max_completion_tokens": 9})
    more = {"max_tokens": 9} if protocol == "anthropic" else more
    return {"model": MODELS[protocol], key: turns, "tools": [tool], **more}


def _judge(protocol: str, body: dict[str, Any]) -> bool:
    codec, model = find_codec(protocol), MODELS[protocol]
    members = msgspec.json.decode(json.dumps(body), type=dict[str, msgspec.Raw])
    return is_accepted(codec, model, members, codec.constraints.judged_members(model))


def _check(protocol: str, body: dict[str, Any], is_refused: bool) -> None:
    codec = find_codec(protocol)
    assert _judge(protocol, body) is not is_refused
    sent = Exchange(codec, codec, Options(model=MODELS[protocol])).translate_request(json.dumps(body))
    assert bool(sent.losses) == is_refused, sent.losses
    assert (sent.json() == body) is not is_refused
    assert _judge(protocol, sent.json())


@pytest.mark.parametrize("protocol", MODELS)
@pytest.mark.parametrize("fault", SCHEMAS)
def test_a_schema_that_is_refused_is_mended_and_others_stay(protocol: str, fault: str) -> None:
    schema, refusing = SCHEMAS[fault]
    _check(protocol, _body(protocol, schema), protocol in refusing)


@pytest.mark.parametrize("protocol", MODELS)
@pytest.mark.parametrize("name", NAMES, ids=lambda name: name[:8])
def test_a_name_that_is_refused_is_mended_and_others_stay(protocol: str, name: str) -> None:
    _check(protocol, _body(protocol, SCHEMAS["usual"][0], name), protocol in NAMES[name])


DIALECT = {
    "usual": ({"type": "OBJECT", "properties": {"a": {"type": "STRING", "nullable": True}}}, False),
    "lower case": (_with(STRING), False),
    "snake case": (_with({"type": "array", "items": STRING, "min_items": 1}), False),
    "double": (_with({"type": "double"}), True),
    "another keyword": (_with(STRING, additionalProperties=False), True),
    "types as a list": (_with({"type": ["string", "null"]}), True),
    "numbers as values": (_with({"type": "integer", "enum": [1, 2]}), True),
    "$filter": ({"type": "object", "properties": {"$filter": STRING}}, True),
    "undefined but required": (_with(STRING, required=["b"]), True),
}


@pytest.mark.parametrize("fault", DIALECT)
def test_a_schema_that_is_not_of_googles_dialect_goes_where_any_may_be(fault: str) -> None:
    schema, is_refused = DIALECT[fault]
    body = _body("gemini", schema)
    (declaration,) = body["tools"][0]["functionDeclarations"]
    declaration["parameters"] = declaration.pop("parametersJsonSchema")
    _check("gemini", body, is_refused)


@pytest.mark.parametrize("tools", [None, [], [{"googleSearch": {}}]])
def test_google_gets_no_calling_mode_without_functions(tools: Any) -> None:
    config = {"functionCallingConfig": {"mode": "AUTO"}, "retrievalConfig": {"languageCode": "de"}}
    body = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}], "toolConfig": config}
    body |= {} if tools is None else {"tools": tools}
    assert not _judge("gemini", body)
    codec = find_codec("gemini")
    sent = Exchange(codec, codec, Options(model="gemini-3-pro")).translate_request(body).json()
    assert sent["toolConfig"] == {"retrievalConfig": {"languageCode": "de"}}


@pytest.mark.parametrize("is_stream", [False, True])
def test_arguments_come_back_with_the_names_that_the_client_declared(is_stream: bool) -> None:
    codec, body = find_codec("anthropic"), _body("anthropic", SCHEMAS["$filter"][0], "a.b")
    exchange = Exchange(codec, codec, Options(model=MODELS["anthropic"]))
    sent = exchange.translate_request(body).json()["tools"][0]
    arguments = dict.fromkeys(sent["input_schema"]["properties"], "x eq 1")
    called = {"type": "tool_use", "id": "toolu_1", "name": sent["name"], "input": {} if is_stream else arguments}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [called]}
    usage = {"input_tokens": 1, "output_tokens": 1}
    if not is_stream:
        answer = message | {"stop_reason": "tool_use", "stop_sequence": None, "usage": usage}
        got = exchange.translate_response(answer).json()["content"][0]
        assert (got["name"], got["input"]) == ("a.b", {"$filter": "x eq 1"})
        return
    text = json.dumps(arguments)
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": message | {"content": [], "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": called},
        *(
            {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": piece}}
            for piece in (text[:9], text[9:])
        ),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": usage},
        {"type": "message_stop"},
    ]
    stream = StreamTranslation(exchange)
    data = b"".join(b"event: %b\ndata: %b\n\n" % (one["type"].encode(), json.dumps(one).encode()) for one in events)
    out = (stream.feed(data) + stream.close()).decode()
    frames = [json.loads(line[6:]) for line in out.splitlines() if line.startswith("data: ")]
    assert [one["content_block"]["name"] for one in frames if "content_block" in one] == ["a.b"]
    pieces = [one["delta"]["partial_json"] for one in frames if "partial_json" in one.get("delta", ())]
    assert json.loads("".join(pieces)) == {"$filter": "x eq 1"}


@pytest.mark.parametrize("protocol", MODELS)
def test_tools_that_come_again_are_not_judged_again(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    body = _body(protocol, SCHEMAS["usual"][0])
    assert _judge(protocol, body)
    monkeypatch.setattr(accepted_requests, "_judge", None)
    assert _judge(protocol, body)


def test_what_is_remembered_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accepted_requests, "MAX_BYTES", 1000)
    for number in range(50):
        assert _judge("anthropic", _body("anthropic", SCHEMAS["usual"][0], f"tool_{number}"))
    assert sum(accepted_requests._sizes) <= 1000
    accepted_requests.forget_requests()
