"""The unified room: its laws, its strictness toward clients, its stream, and that its documentation tells the truth."""

from __future__ import annotations

import contextlib
import copy
import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from toolwire.core.codec import WriteContext
from toolwire.core.events import (
    ArgumentsDelta,
    ChoiceEnd,
    CitationDelta,
    Event,
    OpaqueEvent,
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
from toolwire.core.ir import (
    PROVIDER_TOOLS,
    STATUS_BY_FAILURE_KIND,
    Call,
    Choice,
    Citation,
    Failure,
    Finish,
    FinishKind,
    Format,
    Media,
    Opaque,
    Origin,
    Part,
    ProviderCall,
    ProviderResult,
    ProviderTool,
    Reasoning,
    Refusal,
    Request,
    Response,
    Result,
    Seal,
    Settings,
    Text,
    Thinking,
    Tool,
    ToolChoice,
    ToolName,
    Turn,
    Usage,
    replace_fields,
    strip_origins,
)
from toolwire.core.json_values import Malformed, decode, encode, encode_text
from toolwire.core.losses import Ledger
from toolwire.core.tokens import EFFORTS
from toolwire.protocols.unified import CODEC
from toolwire.protocols.unified.errors import HINTS, read_error, write_error
from toolwire.protocols.unified.names import ERROR_TYPE_BY_KIND, NAME, STOP_REASON_BY_KIND, read_call_id, write_call_id
from toolwire.protocols.unified.response import has_error

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "docs/reference/unified.schema.json").read_text())
DOCS = (ROOT / "docs/reference/unified.md").read_text()


def ledger() -> Ledger:
    return Ledger("elsewhere", NAME)


def decode_again(value: Any) -> Any:
    """A value as the other side decodes it."""
    return decode(encode(value))


@cache
def _validator(kind: str) -> Draft202012Validator:
    return Draft202012Validator({"$ref": f"#/$defs/{kind}", "$defs": SCHEMA["$defs"]})


def valid(kind: str, value: Any) -> None:
    errors = list(_validator(kind).iter_errors(value))
    assert not errors, [error.message for error in errors]


def loss_codes(losses: Ledger) -> list[str]:
    """What is reported, but for ids that are escaped: those come back."""
    return [loss.code for loss in losses.losses if loss.code != "id-rewritten"]


def codes(losses: Ledger) -> list[tuple[str, str]]:
    return [(loss.code, loss.path) for loss in losses.losses]


# --- samples --------------------------------------------------------------------------------------------------------

WEATHER: dict[str, Any] = {
    "name": "get_weather",
    "description": "The weather at a place",
    "parameters": {
        "type": "object",
        "properties": {"location": {"type": "string", "description": "A city"}},
        "required": ["location"],
    },
}
CALLED: dict[str, Any] = {
    "role": "assistant",
    "content": "Let me look.",
    "tool_calls": [{"id": "tw_call_1", "name": "get_weather", "arguments": {"location": "Paris"}}],
}
ASKED: dict[str, Any] = {
    "model": "some/model",
    "system": "Be brief.",
    "messages": [
        {"role": "user", "content": "Weather in Paris?"},
        CALLED,
        {"role": "tool", "results": [{"tool_call_id": "tw_call_1", "content": {"temperature": 15}, "is_error": False}]},
    ],
    "tools": [WEATHER],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "max_output_tokens": 900,
    "stream": False,
}
ANSWERED: dict[str, Any] = {
    "id": "msg_1",
    "model": "model",
    "message": CALLED,
    "stop_reason": "tool_calls",
    "stop_reason_raw": "tool_use",
    "usage": {"input_tokens": 10, "output_tokens": 5},
    "losses": [],
}


PART = {"type": "text", "text": "x"}
CITED = PART | {"citations": [{"url": "u", "start": 1}]}
SEALED = {"at": 0, "maker": "unified/x", "value": "s"}
junk = st.sampled_from(
    [None, True, 0, -1, 1.5, "", "x", "text", [], {}, [[]], [{}], {"type": "text"}, {"x": None}, "tw_"]
)


def change_request(change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    body = copy.deepcopy(ASKED)
    change(body)
    return body


def test_the_room_is_the_one_that_is_asked_for() -> None:
    assert CODEC.name == "unified"
    assert CODEC.http.request_path("any/model", True) == "/v1/unified"


def read_examples() -> Iterator[tuple[str, str]]:
    yield from re.findall(r"^```(json \w+|sse)\n(.*?)^```$", DOCS, re.DOTALL | re.MULTILINE)


def test_every_example_of_the_documentation_says_what_it_is() -> None:
    fences = re.findall(r"^```(\w.*)$", DOCS, re.MULTILINE)
    fences = [fence for fence in fences if fence not in ("sh", "python")]  # tests/test_docs.py runs those
    assert [fence for fence in fences if fence != "sse" and not fence.startswith("json ")] == []
    assert len(list(read_examples())) == len(fences) >= 12


def _called_before(message: dict[str, Any]) -> list[dict[str, Any]]:
    calls = [{"id": item["tool_call_id"], "name": "a_tool", "arguments": {}} for item in message["results"]]
    return [{"role": "assistant", "content": None, "tool_calls": calls}, message]


@pytest.mark.parametrize(("kind", "text"), list(read_examples()))
def test_the_documentation_is_true(kind: str, text: str) -> None:
    if kind == "sse":
        events = read_stream(text.encode())
        assert isinstance(events[-1], ResponseEnd)
        for frame in filter(None, text.split("\n\n")):
            valid("event", json.loads(frame.removeprefix("data: ")))
        whole = CODEC.read_response(events[-1].frame.json["response"])  # type: ignore[union-attr]
        assert strip_origins(fold(events)) == strip_origins(whole)
        return
    value = decode(text)
    match kind.removeprefix("json "):
        case "request":
            check_request(value)
        case "message":
            check_request({"messages": [value]})
        case "results":
            check_request({"messages": _called_before(value)})
        case "answer":
            check_answer(value)
        case "error":
            valid("error_answer", value)
            sent = write_error(read_error(value, 0, {}))
            assert (sent.body, sent.status) == (value, value["error"]["status"])
        case "event":
            valid("event", value)
            start = {"type": "start", "id": "a", "model": "m"}
            assert isinstance(read_stream(sse(start, value))[-1], ResponseFailed)


def check_request(body: dict[str, Any]) -> None:
    """Valid by the schema; given back as it is; and, forgetting where it came from, written with the same meaning."""
    valid("request", body)
    request = CODEC.read_request(body)
    assert CODEC.write_request(request, ledger()) is body
    losses = ledger()
    again = decode_again(CODEC.write_request(strip_origins(request), losses))
    assert not loss_codes(losses)
    valid("request", again)
    assert strip_origins(CODEC.read_request(again)) == strip_origins(request)
    assert again == body


def check_answer(body: dict[str, Any]) -> None:
    valid("answer", body)
    response = CODEC.read_response(body)
    assert CODEC.write_response(response, ledger(), WriteContext()) is body
    losses = ledger()
    again = decode_again(CODEC.write_response(strip_origins(response), losses, WriteContext()))
    assert not loss_codes(losses)
    assert strip_origins(CODEC.read_response(again)) == strip_origins(response)
    assert again == body | {"losses": []}


def test_tables_of_the_documentation_name_every_word() -> None:
    for word in (*STOP_REASON_BY_KIND.values(), *ERROR_TYPE_BY_KIND.values(), *PROVIDER_TOOLS, *EFFORTS):
        assert f"`{word}`" in DOCS, word
    for key in SCHEMA["$defs"]["request"]["properties"]:
        assert f"`{key}`" in DOCS, key


def test_the_schema_knows_the_words_of_the_tables() -> None:
    defs = SCHEMA["$defs"]
    assert set(STOP_REASON_BY_KIND) == set(get_args(FinishKind))
    assert set(ERROR_TYPE_BY_KIND) == set(STATUS_BY_FAILURE_KIND)
    assert set(defs["answer"]["properties"]["stop_reason"]["anyOf"][0]["enum"]) == set(STOP_REASON_BY_KIND.values())
    assert set(defs["error"]["properties"]["type"]["enum"]) == set(ERROR_TYPE_BY_KIND.values())
    assert set(defs["hosted_tool"]["properties"]["hosted"]["enum"]) == set(PROVIDER_TOOLS)


@pytest.mark.parametrize("body", [ASKED, {"messages": []}, {"messages": [{"role": "user", "content": []}]}])
def test_requests_come_back(body: dict[str, Any]) -> None:
    check_request(body)


def test_answers_come_back() -> None:
    check_answer(ANSWERED)


def test_a_changed_request_keeps_what_was_not_touched() -> None:
    spelled = change_request(
        lambda body: body["messages"].__setitem__(0, {"role": "user", "content": [{"type": "text", "text": "x"}]})
    )
    request = CODEC.read_request(spelled)
    out = CODEC.write_request(replace_fields(request, model="other"), ledger())
    assert out == spelled | {"model": "other"}
    assert list(out) == list(spelled)
    assert out["messages"][0] is spelled["messages"][0]


def test_an_answer_of_a_newer_gateway_is_carried() -> None:
    newer = ANSWERED | {"mood": "good", "losses": [{"code": "x"}]}
    newer["message"] = {
        "role": "assistant",
        "content": [{"type": "hologram", "data": "x"}, {"type": "text", "text": "x", "hue": 1}],
    }
    response = CODEC.read_response(newer)
    assert isinstance(response.choices[0].parts[0], Opaque)
    assert {stray.key for stray in response.unknown_fields} == {"mood", "losses", "hue"}
    assert CODEC.write_response(response, ledger(), WriteContext()) is newer


# --- strictness -----------------------------------------------------------------------------------------------------


def _tool(**keys: Any) -> Callable[[dict[str, Any]], None]:
    return lambda body: body["tools"][0].update(keys)


def _message(number: int, **keys: Any) -> Callable[[dict[str, Any]], None]:
    return lambda body: body["messages"][number].update(keys)


def _call(**keys: Any) -> Callable[[dict[str, Any]], None]:
    return lambda body: body["messages"][1]["tool_calls"][0].update(keys)


def _result(**keys: Any) -> Callable[[dict[str, Any]], None]:
    return lambda body: body["messages"][2]["results"][0].update(keys)


def _parameters(schema: Any) -> Callable[[dict[str, Any]], None]:
    return _tool(parameters=schema)


def _top(**keys: Any) -> Callable[[dict[str, Any]], None]:
    return lambda body: body.update(keys)


P = "/tools/0/parameters"
DEEP = {
    "type": "object",
    "properties": {"a": {"type": "array", "description": "d", "items": {"type": "object", "properties": {"b/c": {}}}}},
}

REFUSED: list[tuple[str, Callable[[dict[str, Any]], Any], str, str]] = [
    ("no messages", lambda body: body.pop("messages"), "", "`messages` is missing"),
    ("messages", _top(messages={}), "/messages", "expected an array"),
    ("unknown key", _top(tempurature=1), "/tempurature", "did you mean `temperature`"),
    (
        "key of another protocol",
        _top(max_completion_tokens=1),
        "/max_completion_tokens",
        "did you mean `max_output_tokens`",
    ),
    ("key without likeness", _top(qqqq=1), "/qqqq", "known: cache, cache_key"),
    ("strict", _tool(strict=True), "/tools/0/strict", "unified has no strict mode: remove `strict`"),
    ("strict false", _tool(strict=False), "/tools/0/strict", "no strict mode"),
    ("strict on top", _top(strict=True), "/strict", "no strict mode"),
    (
        "strict format",
        _top(response_format={"type": "json", "strict": True}),
        "/response_format/strict",
        "no strict mode",
    ),
    ("temperature", _top(temperature="hot"), "/temperature", "expected a number"),
    ("tokens", _top(max_output_tokens=1.5), "/max_output_tokens", "expected a whole number"),
    ("stop", _top(stop=["a", 1]), "/stop/1", "expected a string"),
    ("stop kind", _top(stop=1), "/stop", "a string or an array"),
    ("effort", _top(reasoning={"effort": "hi"}), "/reasoning/effort", "did you mean `high`"),
    ("format", _top(response_format={"type": "json_schema"}), "/response_format/type", "did you mean `schema`"),
    (
        "format without schema",
        _top(response_format={"type": "schema"}),
        "/response_format",
        "the type `schema` needs `schema`",
    ),
    (
        "format schema",
        _top(response_format={"type": "schema", "schema": {"type": "x"}}),
        "/response_format/schema/type",
        "not a type",
    ),
    ("system", _top(system=1), "/system", "a string or an array of parts"),
    ("cache", _top(cache=1), "/cache", "true or a time to live"),
    ("role", _message(0, role="usr"), "/messages/0/role", "did you mean `user`"),
    ("no role", lambda body: body["messages"][0].pop("role"), "/messages/0", "`role` is missing"),
    ("message key", _message(0, contents="x"), "/messages/0/contents", "did you mean `content`"),
    ("calls of a user", _message(0, tool_calls=[]), "/messages/0/tool_calls", "unknown key `tool_calls`"),
    ("part type", _message(0, content=[{"type": "txt"}]), "/messages/0/content/0/type", "did you mean `text`"),
    ("part without type", _message(0, content=[{"text": "x"}]), "/messages/0/content/0", "`type` is missing"),
    (
        "part of the assistant",
        _message(0, content=[{"type": "reasoning"}]),
        "/messages/0/content/0/type",
        "is not allowed here",
    ),
    ("part without text", _message(0, content=[{"type": "text"}]), "/messages/0/content/0", "`text` is missing"),
    (
        "empty image",
        _message(0, content=[{"type": "image"}]),
        "/messages/0/content/0",
        "`data` .base64., `url` or `file_id`",
    ),
    ("argument text", _call(arguments="{}"), "/messages/1/tool_calls/0/arguments", "send the arguments parsed"),
    ("argument array", _call(arguments=[]), "/messages/1/tool_calls/0/arguments", "expected an object, got an array"),
    ("call name", _call(name="get-weather"), "/messages/1/tool_calls/0/name", "letters, digits and underscores"),
    (
        "call without id",
        lambda body: body["messages"][1]["tool_calls"][0].pop("id"),
        "/messages/1/tool_calls/0",
        "`id` is missing",
    ),
    ("empty id", _call(id=""), "/messages/1/tool_calls/0/id", "1 to 1024 characters"),
    ("long id", _call(id="x" * 1025), "/messages/1/tool_calls/0/id", "1 to 1024 characters"),
    (
        "call twice",
        lambda body: body["messages"].insert(2, copy.deepcopy(CALLED)),
        "/messages/2/tool_calls/0/id",
        "ids must be unique",
    ),
    (
        "unknown result",
        _result(tool_call_id="tw_x"),
        "/messages/2/results/0/tool_call_id",
        "unknown tool_call_id `tw_x`; known: tw_call_1",
    ),
    (
        "result before",
        lambda body: body["messages"].pop(1),
        "/messages/1/results/0/tool_call_id",
        "there is no call before",
    ),
    (
        "result twice",
        lambda body: body["messages"].append(body["messages"][2]),
        "/messages/3/results/0/tool_call_id",
        "already has a result",
    ),
    ("no results", lambda body: body["messages"][2].pop("results"), "/messages/2/results", "expected an array"),
    ("is_error", _result(is_error="no"), "/messages/2/results/0/is_error", "true or false"),
    ("result key", _result(tool_use_id="x"), "/messages/2/results/0/tool_use_id", "did you mean `tool_call_id`"),
    (
        "two json",
        _result(content=[{"type": "json", "value": 1}] * 2),
        "/messages/2/results/0/content/1",
        "one `json` part",
    ),
    ("placeholder", _message(1, content=[{"type": "tool_call", "index": 1}]), "/messages/1/content/0/index", "has 1"),
    (
        "placeholder twice",
        _message(1, content=[{"type": "tool_call", "index": 0}] * 2),
        "/messages/1/content/1/index",
        "already",
    ),
    ("seal nowhere", _message(1, seals=[{"at": 2, "value": "x"}]), "/messages/1/seals/0", "there are 2"),
    ("seal without value", _message(1, seals=[{"at": 0}]), "/messages/1/seals/0", "`value` is missing"),
    (
        "seal on a refusal",
        _message(1, content=[{"type": "refusal", "text": ""}], seals=["x"]),
        "/messages/1/seals/0",
        "cannot be sealed",
    ),
    ("tool name", _tool(name="get.weather"), "/tools/0/name", "letters, digits and underscores"),
    ("long tool name", _tool(name="x" * 65), "/tools/0/name", "1 to 64"),
    ("tool name with a line", _tool(name="a\n"), "/tools/0/name", "1 to 64"),
    ("tool without name", lambda body: body["tools"][0].pop("name"), "/tools/0", "`name` is missing"),
    ("tool twice", lambda body: body["tools"].append(WEATHER), "/tools/1", "another tool is called `get_weather`"),
    (
        "tool without description",
        lambda body: body["tools"][0].pop("description"),
        "/tools/0",
        "`description` is missing",
    ),
    ("blank description", _tool(description=" "), "/tools/0", "`description` is missing"),
    ("nested tool", _tool(function={}), "/tools/0/function", "did you mean `name`"),
    ("input_schema", _tool(input_schema={}), "/tools/0/input_schema", "did you mean `parameters`"),
    ("parameters", _parameters([]), P, "expected an object"),
    ("root", _parameters({"type": "array"}), f"{P}/type", '"type": "object"'),
    ("rootless", _parameters({}), f"{P}/type", '"type": "object"'),
    (
        "type",
        _parameters({"type": "object", "properties": {"a": {"type": "str"}}}),
        f"{P}/properties/a/type",
        "not a type",
    ),
    ("required", _parameters({"type": "object", "required": "a"}), f"{P}/required", "array of names"),
    (
        "ref",
        _parameters({"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}}),
        f"{P}/properties/a/$ref",
        "no target",
    ),
    (
        "undescribed",
        _parameters({"type": "object", "properties": {"a": {"type": "string"}}}),
        f"{P}/properties/a",
        "parameter `a` is for",
    ),
    ("undescribed below", _parameters(DEEP), f"{P}/properties/a/items/properties/b~1c", "`description` is missing"),
    ("output", _tool(output={"type": "x"}), "/tools/0/output/type", "not a type"),
    ("hosted", lambda body: body["tools"].append({"hosted": "web"}), "/tools/1/hosted", "unknown `hosted`: `web`"),
    (
        "hosted key",
        lambda body: body["tools"].append({"hosted": "mcp", "uses": 1}),
        "/tools/1/uses",
        "did you mean `max_uses`",
    ),
    ("choice", _top(tool_choice="any"), "/tool_choice", "unknown tool choice `any`"),
    ("choice kind", _top(tool_choice=1), "/tool_choice", "a string or an object"),
    ("choice of nothing", _top(tool_choice={"name": "get_wether"}), "/tool_choice", "did you mean `get_weather`"),
    (
        "choice key",
        _top(tool_choice={"type": "function", "name": "get_weather"}),
        "/tool_choice/type",
        "unknown key `type`",
    ),
    ("allowed", _top(tool_choice={"allowed": ["x"]}), "/tool_choice/allowed/0", "there is no tool `x`"),
    ("allowed and one", _top(tool_choice={"allowed": [], "name": "x"}), "/tool_choice/name", "cannot be combined with"),
    (
        "one with mode",
        _top(tool_choice={"name": "get_weather", "mode": "auto"}),
        "/tool_choice/mode",
        "cannot be combined with",
    ),
    ("allowed mode", _top(tool_choice={"allowed": [], "mode": "none"}), "/tool_choice/mode", "unknown `mode`: `none`"),
]


@pytest.mark.parametrize(("change", "path", "problem"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_clients_are_held_to_the_rules(change: Callable[[dict[str, Any]], Any], path: str, problem: str) -> None:
    with pytest.raises(Malformed) as caught:
        CODEC.read_request(change_request(change))
    assert caught.value.path == path
    assert re.search(problem, caught.value.problem), caught.value.problem


MAPS = [WEATHER, {"hosted": "maps"}]
ACCEPTED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "one stop": _top(stop="END"),
    "nulls": _top(temperature=None, tools=None, tool_choice=None),
    "allowed": _top(tool_choice={"allowed": ["get_weather"]}),
    "hosted": _top(tools=MAPS, tool_choice={"allowed": [{"hosted": "maps"}, {"name": "get_weather"}]}),
    "own id": lambda body: (_call(id="own id")(body), _result(tool_call_id="own id")(body)),
    "own id like ours": lambda body: (_call(id="tw_own__x")(body), _result(tool_call_id="tw_own__x")(body)),
    "the provider's id": _result(tool_call_id="call_1"),
    "bare seals": _message(1, seals=["a", "b"]),
    "text after a call": _message(1, content=[{"type": "tool_call", "index": 0}, {"type": "text", "text": "x"}]),
    "no arguments": _call(arguments=None),
    "no parameters": _parameters(None),
    "no properties": _parameters({"type": "object"}),
    "no content": _message(0, content=None),
}


@pytest.mark.parametrize("change", ACCEPTED.values(), ids=ACCEPTED)
def test_other_spellings_mean_the_same_when_rewritten(change: Callable[[dict[str, Any]], Any]) -> None:
    body = change_request(change)
    valid("request", body)
    request = CODEC.read_request(body)
    assert CODEC.write_request(request, ledger()) is body
    again = decode_again(CODEC.write_request(strip_origins(request), ledger()))
    assert strip_origins(CODEC.read_request(again)) == strip_origins(request)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in items:
        yield value, key
        yield from _places(child)


FULL = change_request(
    lambda body: (
        _top(tool_choice={"allowed": ["get_weather"], "mode": "auto"}, reasoning={"effort": "low"}, stop=["x"])(body),
        _top(tools=[*MAPS], response_format={"type": "schema", "schema": {"type": "object"}}, cache=True)(body),
        _message(0, content=[PART, {"type": "image", "url": "u", "cache": "1h"}])(body),
        _message(
            1, content=[{"type": "reasoning", "text": "x"}, {"type": "tool_call", "index": 0}, CITED], seals=[SEALED]
        )(body),
    )
)


@st.composite
def damaged_body(draw: st.DrawFn, whole: Any) -> Any:
    """A body with one to three values replaced by others."""
    body = copy.deepcopy(whole)
    for _ in range(draw(st.integers(1, 3))):
        holder, key = draw(st.sampled_from(list(_places(body))))
        holder[key] = copy.deepcopy(draw(junk))
    return body


@pytest.mark.slow
@given(st.data())
@settings(deadline=None, max_examples=300)
def test_whatever_a_peer_sends_is_read_or_refused(data: st.DataObject) -> None:
    """Malformed, or a value that can be written; never another exception."""
    for read, write, whole in (
        (CODEC.read_request, lambda value: CODEC.write_request(value, ledger()), FULL),
        (CODEC.read_response, lambda value: CODEC.write_response(value, ledger(), WriteContext()), ANSWERED),
    ):
        body = data.draw(damaged_body(whole))
        with contextlib.suppress(Malformed):
            value = read(body)
            assert write(value) is body
            decode_again(write(strip_origins(value)))


# --- results: data or parts -----------------------------------------------------------------------------------------

RESULTS: list[tuple[Any, tuple[str, ...], Any]] = [
    ("text", ("text",), None),
    ("", ("",), None),
    (None, (), None),
    ({"a": 1}, ('{"a":1}',), {"a": 1}),
    ([], ("[]",), []),
    (0, ("0",), 0),
    (False, ("false",), False),
    ([PART], ("x",), None),
    ([PART, {"type": "file", "name": "a"}], ('[{"type":"text","text":"x"},{"type":"file","name":"a"}]',), ...),
    ([{"type": "file", "url": "https://x", "sha": "1"}], ('[{"type":"file","url":"https://x","sha":"1"}]',), ...),
    ([{"type": "text", "text": 5}], ('[{"type":"text","text":5}]',), ...),
    ([{"type": "json", "value": [PART]}], ('[{"type":"text","text":"x"}]',), [PART]),
    ([PART, {"type": "json", "value": 1}, PART], ("x", "1", "x"), 1),
]


@pytest.mark.parametrize(("content", "texts", "value"), RESULTS)
def test_results_hold_text_data_or_parts(content: Any, texts: tuple[str, ...], value: Any) -> None:
    body = change_request(_result(content=content))
    request = CODEC.read_request(body)
    result = request.turns[2].parts[0]
    assert isinstance(result, Result)
    assert tuple(part.text for part in result.content if isinstance(part, Text)) == texts
    assert result.value == (content if value is ... else value)
    out = decode_again(CODEC.write_request(strip_origins(request), ledger()))
    assert strip_origins(CODEC.read_request(out)) == strip_origins(request)
    if content != [PART]:
        assert out == body


def test_a_text_value_and_values_like_parts_stay_values() -> None:
    for value in ("text", [PART]):
        result = Result("c", (Text(encode_text(value)),), value=value)
        turns = (Turn("assistant", (Call("c", "f", "{}"),)), Turn("tool", (result,)))
        out = decode_again(CODEC.write_request(Request(turns=turns), ledger()))
        assert out["messages"][1]["results"][0]["content"] == [{"type": "json", "value": value}]
        assert strip_origins(CODEC.read_request(out)).turns == turns


# --- from other protocols -------------------------------------------------------------------------------------------


def test_missing_descriptions_are_filled_in_and_reported() -> None:
    parameters = {"type": "object", "properties": {"a": {"type": "string"}, "b": True, "c": {"description": "there"}}}
    tools = (
        Tool("f", parameters=parameters, strict=True),
        Tool("g", "", {"properties": {}}),
        Tool("h", "x", {"type": "OBJECT"}),
    )
    losses = ledger()
    body = decode_again(CODEC.write_request(Request(turns=(Turn("user", (Text("x"),)),), tools=tools), losses))
    valid("request", body)
    assert CODEC.read_request(body).tools[0].parameters["properties"]["c"] == {"description": "there"}  # type: ignore[union-attr]
    assert [tool["parameters"]["type"] for tool in body["tools"]] == ["object"] * 3
    assert parameters["properties"]["b"] is True, "the client's own schema is not touched"
    found = [code for code, _ in codes(losses)]
    assert found.count("description-added") == 4
    assert found.count("schema-rewritten") == 1
    assert found.count("no-counterpart") == 1
    assert ("description-added", "/parameters/properties/a") in codes(losses)


def test_neighbouring_results_share_a_message_and_strangers_stand_apart() -> None:
    turns = (
        Turn("assistant", (Call("a", "f", "{}"), Call("b", "f", "{}"), Call("c", "f", ""))),
        Turn("tool", (Result("a", (Text("1"),)),)),
        Turn("tool", (Result("b", (Text("2"),)), Text("and this"))),
        Turn("user", (Result("c", ()), Text("x"))),
    )
    out = decode_again(CODEC.write_request(Request(turns=turns), ledger()))
    assert [message["role"] for message in out["messages"]] == ["assistant", "tool", "user", "tool", "user"]
    assert [item["tool_call_id"] for item in out["messages"][1]["results"]] == ["tw_a", "tw_b"]
    CODEC.read_request(out)


def test_what_cannot_be_said_is_reported() -> None:
    opaque = Opaque("odd", Origin("elsewhere", (None, "x"), {}))
    parts: tuple[Part, ...] = (
        opaque,
        Call("", "f", "[1]", kind="custom", namespace="n"),
        Text("x", seal=Seal("elsewhere", "s")),
    )
    request = Request(
        turns=(
            Turn("user", (Text("x", seal=Seal(NAME, "s")), Reasoning("x"), Refusal("no"))),
            Turn("assistant", parts),
        ),
        tools=(opaque, Tool("f", "d", kind="custom", namespace="n")),
        choice=ToolChoice("one", (ToolName("f", "custom", "n"),)),
        settings=Settings(count=2, logprobs=True, stream_usage=True, format=Format("json", strict=True)),
    )
    losses = ledger()
    body = decode_again(CODEC.write_request(request, losses))
    valid("request", body)
    CODEC.read_request(body)
    assert body["messages"][1]["tool_calls"][0]["arguments"] == {"_raw": "[1]"}
    assert {loss.code for loss in losses.losses} >= {
        "opaque-dropped", "arguments-wrapped", "tool-wrapped", "namespace-flattened", "id-added", "seal-dropped",
        "part-dropped", "refusal-as-text", "tool-dropped", "choice-mapped", "no-counterpart",
    }  # fmt: skip
    assert sum(loss.code == "no-counterpart" for loss in losses.losses) == 3


# --- ids ------------------------------------------------------------------------------------------------------------

IDS = [
    ("call_9aXq", "tw_call_9aXq"),
    ("functions.get_weather:0", "tw_functions__2eget_weather__3a0"),
    ("a__b", "tw_a__5f_b"),
    ("tw_x", "tw_tw_x"),
    ("_", "tw__"),
    ("é", "tw___c3__a9"),
]


@pytest.mark.parametrize(("theirs", "ours"), IDS)
def test_ids_lead_back(theirs: str, ours: str) -> None:
    assert (write_call_id(theirs), read_call_id(ours)) == (ours, theirs)


@given(st.text(min_size=1) | st.text("ab_.-0f", min_size=1))
def test_any_id_leads_back_and_is_legal_on_the_way(id: str) -> None:
    ours = write_call_id(id)
    assert read_call_id(ours) == id
    assert re.fullmatch(r"tw_[A-Za-z0-9_-]+", ours)


@given(st.text("tw_ab_.0f", min_size=1) | st.text("ab_0f").map("tw_".__add__))
def test_an_id_of_the_clients_own_means_the_same_when_rewritten(id: str) -> None:
    assert read_call_id(write_call_id(read_call_id(id))) == read_call_id(id)


# --- generated ------------------------------------------------------------------------------------------------------

words = st.text(max_size=8)
some = st.text(min_size=1, max_size=8)
maybe = st.none() | words
counts = st.integers(0, 2**40)
flags = st.none() | st.booleans()
names = st.from_regex(r"[A-Za-z0-9_]{1,12}", fullmatch=True)
caches = st.none() | st.sampled_from(["", "1h"])
scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | words
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3), max_leaves=6
)
objects = st.dictionaries(words, values, max_size=3)
argument_texts = objects.map(encode_text)
seals = st.none() | st.builds(Seal, st.sampled_from([NAME, f"{NAME}/a/b"]), words)
citations = st.builds(Citation, words, words, words, st.none() | counts, st.none() | counts)
sources = st.lists(citations, max_size=2).map(tuple)
media = st.builds(
    Media, st.sampled_from(["image", "file", "audio", "video"]), words, some, words, words, words, words, caches
)
given_parts = st.builds(Text, words, sources, caches) | media
spoken_parts = (
    st.builds(Text, words, sources, seal=seals)
    | st.builds(Refusal, words)
    | st.builds(Reasoning, words, st.sampled_from(["", "summary", "raw"]), st.booleans(), seals, words)
    | media.flatmap(lambda part: seals.map(lambda seal: replace(part, seal=seal)))
    | st.builds(ProviderCall, words, st.sampled_from(PROVIDER_TOOLS), st.just("") | argument_texts)
    | st.builds(ProviderResult, words, st.sampled_from(PROVIDER_TOOLS), sources, words, words)
    | st.builds(Call, some, names, argument_texts, item_id=words, seal=seals, is_async=st.booleans())
)
schemas = st.dictionaries(names, st.sampled_from(["string", "integer"]), max_size=3).map(
    lambda rows: {
        "type": "object",
        "properties": {name: {"type": kind, "description": "d"} for name, kind in rows.items()},
    }
)
function_tools = st.builds(
    Tool, names, some.filter(str.strip), st.none() | schemas, defer=flags, output=st.none() | schemas, cache=caches
)
domains = st.lists(words, max_size=2).map(tuple)
hosted_tools = st.builds(
    ProviderTool,
    st.sampled_from(PROVIDER_TOOLS),
    some,
    st.none() | counts,
    domains,
    domains,
    st.none() | objects,
    words,
    caches,
)
tool_lists = st.lists(function_tools | hosted_tools, max_size=4, unique_by=lambda tool: tool.name).map(tuple)


@st.composite
def conversations(draw: st.DrawFn) -> tuple[Turn, ...]:
    turns: list[Turn] = []
    used: set[str] = set()
    for _ in range(draw(st.integers(0, 3))):
        role = draw(st.sampled_from(["user", "system", "developer"]))
        turns.append(Turn(role, tuple(draw(st.lists(given_parts, max_size=3))), draw(words), draw(words)))
        parts = [
            part
            for part in draw(st.lists(spoken_parts, max_size=5))
            if not isinstance(part, Call) or part.id not in used
        ]
        calls = {part.id: part for part in parts if isinstance(part, Call)}
        parts = [part for part in parts if not isinstance(part, Call) or calls[part.id] is part]
        used |= calls.keys()
        turns.append(Turn("assistant", tuple(parts), draw(words), draw(words)))
        if calls:
            chosen = draw(st.lists(st.sampled_from(sorted(calls)), unique=True))
            turns.append(Turn("tool", tuple(draw(results(id)) for id in chosen)))
    return tuple(turns)


@st.composite
def results(draw: st.DrawFn, id: str) -> Result:
    value = draw(values)
    parts = draw(st.lists(given_parts, max_size=2))
    if value is not None:
        parts = [part for part in parts if not isinstance(part, Text)]
        parts.insert(draw(st.integers(0, len(parts))), Text(encode_text(value)))
    return Result(id, tuple(parts), draw(flags), draw(words), cache=draw(caches), value=value)


@st.composite
def choices(draw: st.DrawFn, tools: tuple[Tool | ProviderTool, ...]) -> ToolChoice | None:
    named = [ToolName(tool.name) if isinstance(tool, Tool) else ToolName(tool.tool, tool.tool) for tool in tools]
    if not named or draw(st.booleans()):
        return draw(st.none() | st.sampled_from([ToolChoice("auto"), ToolChoice("none"), ToolChoice("required")]))
    if draw(st.booleans()):
        return ToolChoice("one", (draw(st.sampled_from(named)),))
    return ToolChoice("allowed", tuple(draw(st.lists(st.sampled_from(named), max_size=2))), draw(st.booleans()))


setting_values = st.builds(
    Settings,
    max_tokens=st.none() | counts,
    temperature=st.none() | st.floats(0, 2),
    top_p=st.none() | st.integers(0, 1),
    top_k=st.none() | counts,
    stop=st.none() | st.lists(words, max_size=2).map(tuple),
    seed=st.none() | st.integers(-5, 5),
    presence_penalty=st.none() | st.floats(-2, 2),
    frequency_penalty=st.none() | st.floats(-2, 2),
    parallel=flags,
    thinking=st.none()
    | st.builds(
        Thinking, st.sampled_from(["", "off", "on", "auto"]), st.sampled_from(["", *EFFORTS]), st.none() | counts, words
    ),
    format=st.sampled_from(
        [None, Format("text"), Format("json", name="n"), Format("schema", {"type": "object"}, "n", "d")]
    ),
    verbosity=maybe,
    user=maybe,
    metadata=st.none() | objects,
    tier=maybe,
    store=flags,
    cache_key=maybe,
    cache=caches,
)


@st.composite
def requests(draw: st.DrawFn) -> Request:
    tools = draw(tool_lists)
    return Request(
        draw(words),
        tuple(draw(st.lists(given_parts, max_size=2))),
        draw(conversations()),
        tools,
        draw(choices(tools)),
        draw(flags),
        draw(setting_values),
    )


@pytest.mark.slow
@given(requests())
@settings(deadline=None)
def test_every_request_survives(request: Request) -> None:
    losses = ledger()
    body = decode_again(CODEC.write_request(request, losses))
    assert not loss_codes(losses)
    valid("request", body)
    read = CODEC.read_request(body)
    assert strip_origins(read) == request
    assert decode_again(CODEC.write_request(read, losses)) == body


finishes = st.builds(Finish, st.sampled_from(get_args(FinishKind)), words, words, words)
usages = st.builds(Usage, counts, counts, *[st.none() | counts] * 4)
messages = st.lists(spoken_parts, max_size=6).map(tuple)
failures = st.builds(
    Failure,
    st.sampled_from(list(STATUS_BY_FAILURE_KIND)),
    some,
    st.integers(400, 599),
    some,
    words,
    st.none() | st.floats(0, 99),
)
answers = st.builds(
    Response,
    some,
    words,
    st.none() | counts,
    st.builds(Choice, st.just(0), messages, st.none() | finishes).map(lambda choice: (choice,)) | st.just(()),
    st.none() | usages,
    st.none() | failures,
)
streamed = st.builds(
    Response,
    some,
    words,
    st.none() | counts,
    st.builds(Choice, st.just(0), messages, finishes).map(lambda choice: (choice,)),
    st.none() | usages,
)


@given(answers)
@settings(deadline=None)
def test_every_answer_survives(response: Response) -> None:
    losses = ledger()
    body = decode_again(CODEC.write_response(response, losses, WriteContext()))
    assert not loss_codes(losses)
    valid("error_answer" if response.failure else "answer", body)
    assert has_error(body) is (response.failure is not None)
    read = CODEC.read_response(body)
    assert strip_origins(read) == response
    assert CODEC.write_response(read, losses, WriteContext()) is body


# --- streams --------------------------------------------------------------------------------------------------------


def sse(*events: dict[str, Any]) -> bytes:
    return b"".join(b"data: " + encode(event) + b"\n\n" for event in events)


def read_stream(data: bytes, size: int = 0) -> list[Event]:
    """The events of a stream, fed whole or in pieces, held to the grammar."""
    reader = CODEC.make_stream_reader()
    pieces = [data[at : at + size] for at in range(0, len(data), size)] if size else [data]
    events = [event for piece in pieces for event in reader.feed(piece)] + reader.close()
    checker = StreamChecker()
    assert [fault for event in events if (fault := checker.check_event(event))] == []
    assert checker.state == "done"
    assert not reader.close() or isinstance(events[-1], ResponseEnd | OpaqueEvent)
    return events


def write_stream(events: list[Event], losses: Ledger | None = None, context: WriteContext | None = None) -> bytes:
    writer = CODEC.make_stream_writer(losses or ledger(), context or WriteContext())
    return b"".join(map(writer.write, events)) + writer.close()


def frames(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(frame.removeprefix(b"data: ")) for frame in data.split(b"\n\n") if frame]


@pytest.mark.slow
@given(streamed)
@settings(deadline=None)
def test_every_stream_survives(response: Response) -> None:
    data = write_stream(list(unfold(response)))
    for frame in frames(data):
        valid("event", frame)
    events = read_stream(data)
    assert isinstance(events[-1], ResponseEnd)
    assert strip_origins(fold(events)) == response
    assert strip_origins(CODEC.read_response(frames(data)[-1]["response"])) == response
    assert write_stream(events) == data
    again = [replace(event, frame=None) for event in events]
    rewritten, first = frames(write_stream(again))[-1]["response"], frames(data)[-1]["response"]
    assert rewritten | {"losses": []} == first | {"losses": []}


@given(streamed, st.integers(1, 9))
@settings(deadline=None, max_examples=30)
def test_any_split_gives_the_same_events(response: Response, size: int) -> None:
    data = write_stream(list(unfold(response)))
    assert read_stream(data, size) == read_stream(data)


@pytest.mark.slow
@given(st.data())
@settings(deadline=None, max_examples=300)
def test_no_stream_makes_the_reader_raise(data: st.DataObject) -> None:
    """Whatever the frames say, the events keep to the grammar, come to an end, and can be written."""
    events = [
        *frames(write_stream(list(unfold(RICH)))),
        {"type": "ping"},
        {"type": "error", "error": {"type": "quota"}},
    ]
    order = data.draw(st.lists(st.sampled_from(events), max_size=3))
    stream = data.draw(damaged_body(events[: data.draw(st.integers(1, len(events)))])) + order
    read = read_stream(sse(*stream))
    assert any(isinstance(event, ResponseEnd | ResponseFailed) for event in read)
    assert frames(write_stream(read))
    again = frames(write_stream([replace(event, frame=None) for event in read if not isinstance(event, OpaqueEvent)]))
    assert again[-1]["type"] in ("end", "error")


RICH = Response(
    "a",
    "m",
    choices=(
        Choice(
            0,
            (
                Reasoning("r", "summary", id="i", seal=Seal(NAME, "s")),
                Text("x", (Citation("u"),)),
                Call("c", "f", '{"a":1}'),
                Media("image", data="d", seal=Seal(NAME, "s")),
                ProviderResult("h", "maps", (Citation("u"),), "t"),
            ),
            Finish("calls"),
        ),
    ),
    usage=Usage(1, 2),
)
START = {"type": "start", "id": "a", "model": "m"}
END = {"type": "end", "response": ANSWERED}
BROKEN: list[tuple[str, list[dict[str, Any]], str]] = [
    ("no start", [{"type": "text", "part": 0, "delta": "x"}], "event/0: `text` came before `start`"),
    ("two starts", [START, START], "event/1: `start` came twice"),
    (
        "part out of order",
        [START, {"type": "text", "part": 1, "delta": "x"}],
        "event/1/part: part 1 is not allowed here",
    ),
    (
        "other type",
        [START, {"type": "text", "part": 0, "delta": "x"}, {"type": "reasoning", "part": 0, "delta": "x"}],
        "part 0 .text. is open",
    ),
    ("no index", [START, {"type": "tool_call", "arguments": "{"}], "event/1/index: `index` is missing"),
    ("arguments first", [START, {"type": "tool_call", "index": 0, "arguments": "{"}], "call 0, which is not open"),
    ("index left out", [START, {"type": "tool_call", "index": 1, "name": "f"}], "call 1 begins where call 0 was due"),
    ("seal of nothing", [START, {"type": "seal", "value": "x"}], "no part is open"),
    (
        "seal of a refusal",
        [START, {"type": "refusal", "delta": "x"}, {"type": "seal", "value": "x"}],
        "a seal is not allowed here",
    ),
    ("wrong type", [START, {"type": "text", "delta": 1}], "event/1/delta: expected a string"),
    ("no answer", [START, {"type": "end"}], "event/1/response: expected an object"),
    ("no type", [START, {}], "event/1: `type` is missing"),
    ("no part", [START, {"type": "part"}], "event/1/content: expected an object"),
]


@pytest.mark.parametrize(("stream", "problem"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_a_broken_stream_fails_and_says_where(stream: list[dict[str, Any]], problem: str) -> None:
    last = read_stream(sse(*stream, END))[-1]
    assert isinstance(last, ResponseFailed)
    assert (last.failure.kind, last.failure.code) == ("upstream", "invalid_stream")
    assert re.search(problem, last.failure.message), last.failure.message


@pytest.mark.parametrize("data", [b"data: {\n\n", b"data: [DONE]\n\n", b"data: 1\n\n", b"data: \xff\n\n"])
def test_a_frame_that_is_no_object_fails(data: bytes) -> None:
    (event,) = read_stream(data)
    assert isinstance(event, ResponseFailed)
    assert frames(write_stream([event]))[-1]["type"] == "error"


@pytest.mark.parametrize(
    "data", [b"", sse(START), sse(START, {"type": "text", "part": 0, "delta": "x"}), b": hello\n\n"]
)
def test_a_cut_stream_is_a_failure_for_the_client_too(data: bytes) -> None:
    events = read_stream(data)
    last = events[-1]
    assert isinstance(last, ResponseFailed)
    assert last.failure.code == "stream_truncated"
    written = write_stream(events)
    assert written.startswith(data if data.startswith(b"data") else b"data")
    assert frames(written)[-1]["error"]["code"] == "stream_truncated"
    assert frames(written)[-1]["error"]["hint"] == HINTS["stream_truncated"]


def test_a_writer_that_is_closed_early_says_so() -> None:
    written = frames(write_stream([ResponseStart("a", "m"), PartStart(0, Text("")), TextDelta(0, "x")]))
    assert [frame["type"] for frame in written] == ["start", "text", "error"]


def test_a_stream_may_leave_out_parts_and_deltas() -> None:
    data = sse(START, {"type": "text", "delta": "Let me "}, {"type": "ping"}, {"type": "text", "delta": "look."}, END)
    events = read_stream(data)
    whole = strip_origins(CODEC.read_response(ANSWERED))
    assert strip_origins(fold(events)).choices == whole.choices, "the call that was not streamed is in the whole answer"
    assert write_stream(events) == data
    assert [event.is_ignorable for event in events if isinstance(event, OpaqueEvent)] == [True]


def test_unknown_events_and_keys_are_carried_and_reported_once() -> None:
    text = {"type": "text", "part": 0, "delta": "x", "mood": 1}
    data = sse(START, text, text, {"type": "weather"}, END, {"type": "late"})
    events = read_stream(data)
    carried = [event for event in events if isinstance(event, OpaqueEvent)]
    assert [(event.kind, event.is_ignorable) for event in carried] == [("weather", False), ("late", False)]
    (end,) = (event for event in events if isinstance(event, ResponseEnd))
    assert [stray.key for stray in end.unknown_fields] == ["mood"]
    assert write_stream(events) == data


def test_the_event_name_of_a_frame_is_kept() -> None:
    data = b"event: message\n" + sse(START) + sse(END)
    assert write_stream(read_stream(data)) == data


def test_interleaved_parts_go_out_one_after_the_other() -> None:
    events: list[Event] = [
        ResponseStart("a", "m"),
        PartStart(0, Text("")),
        PartStart(1, Call("c1", "f")),
        ArgumentsDelta(1, '{"a":'),
        PartStart(2, Call("c2", "g")),
        ArgumentsDelta(2, "{}"),
        TextDelta(0, "x"),
        PartEnd(2),
        PartEnd(0),
        ArgumentsDelta(1, "1}"),
        SealDelta(1, Seal(NAME, "s")),
        PartEnd(1),
        ChoiceEnd(Finish("calls")),
        ResponseEnd(),
    ]
    written = write_stream(events)
    told = [(frame["type"], frame.get("index"), frame.get("arguments")) for frame in frames(written)]
    assert told == [
        ("start", None, None),
        ("text", None, None),
        ("tool_call", 0, None),
        ("tool_call", 0, '{"a":'),
        ("tool_call", 0, "1}"),
        ("seal", None, None),
        ("tool_call", 1, None),
        ("tool_call", 1, "{}"),
        ("end", None, None),
    ]
    read = [replace(event, frame=None) for event in read_stream(written)]
    assert strip_origins(fold(read)) == strip_origins(fold(events))


def test_a_failure_lets_out_what_was_held_back() -> None:
    events: list[Event] = [
        ResponseStart("a", "m"),
        PartStart(0, Text("")),
        PartStart(1, Call("c1", "f")),
        ArgumentsDelta(1, '{"a":'),
        UsageUpdate(Usage(3, 4)),
        ResponseFailed(Failure("overloaded", "busy", 529, retry_after=2)),
    ]
    written = frames(write_stream(events))
    assert [frame["type"] for frame in written] == ["start", "usage", "tool_call", "tool_call", "error"]
    assert written[-1]["error"] | {"hint": ""} == {
        "type": "overloaded", "message": "busy", "hint": "", "status": 529, "retry_after": 2,
    }  # fmt: skip
    assert written[-1]["usage"] == {"input_tokens": 3, "output_tokens": 4}


def test_what_the_stream_cannot_say_is_reported() -> None:
    opaque = Opaque("odd", Origin("elsewhere", None, {}))
    losses = ledger()
    events: list[Event] = [
        ResponseStart(),
        PartStart(0, opaque),
        PartStart(1, Text("")),
        CitationDelta(0, Citation("u")),
        SealDelta(1, Seal("elsewhere", "s")),
        PartStart(2, Text(""), 1),
        TextDelta(2, "other choice"),
        PartStart(3, Call("", "f")),
        *(PartEnd(index) for index in range(4)),
        ChoiceEnd(Finish("stop"), 1),
        OpaqueEvent("odd", Origin("elsewhere", None, {})),
        OpaqueEvent("ping", Origin("elsewhere", None, {}), is_ignorable=True),
        ChoiceEnd(Finish("stop")),
        ResponseEnd(),
    ]
    written = frames(write_stream(events, losses, WriteContext(Request("asked/for"), seed="s")))
    assert written[0]["id"].startswith("answer_")
    assert written[0]["model"] == "asked/for"
    whole = written[-1]["response"]
    assert whole["message"]["content"] == ""
    assert whole["message"]["tool_calls"][0]["id"] == next(frame["id"] for frame in written if "name" in frame)
    assert [loss["code"] for loss in whole["losses"]] == [loss.code for loss in losses.losses]
    assert sorted(loss.code for loss in losses.losses) == [
        "event-dropped", "id-added", "id-added", "no-counterpart", "opaque-dropped", "seal-dropped",
    ]  # fmt: skip


# --- arguments that do not parse ------------------------------------------------------------------------------------

UNREADABLE = [
    ('{"a": ', Finish("length"), "they were cut off"),
    ('{"a": ', Finish("calls"), "not JSON: .* at line 1 column 7"),
    ("[1]", Finish("calls"), "expected an object, got an array"),
]


@pytest.mark.parametrize(("arguments", "finish", "problem"), UNREADABLE)
def test_arguments_that_do_not_parse_are_an_error(arguments: str, finish: Finish, problem: str) -> None:
    parts = (Text("x"), Call("c0", "g", '{"ok":1}'), Call("c1", "f", arguments), Call("c2", "f", "{"))
    response = Response("a", "m", choices=(Choice(0, parts, finish),), usage=Usage(1, 2))
    losses = ledger()
    body = decode_again(CODEC.write_response(response, losses, WriteContext()))
    valid("error_answer", body)
    assert has_error(body)
    error = body["error"]
    assert (error["raw_arguments"], error["name"], error["tool_call_id"], error["status"]) == (
        arguments,
        "f",
        "tw_c1",
        502,
    )
    assert re.search(problem, error["message"]), error["message"]
    assert [call["id"] for call in body["message"]["tool_calls"]] == ["tw_c0"]
    assert [loss["code"] for loss in body["losses"]] == ["arguments-dropped"]
    read = CODEC.read_response(body)
    assert read.failure is not None
    assert (read.failure.kind, read.failure.code) == ("upstream", "malformed_arguments")

    last = frames(write_stream(list(unfold(response))))[-1]
    valid("event", last)
    assert (last["type"], last["error"], last["usage"]) == ("error", error, body["usage"])
    assert "message" not in last


def test_several_answers_leave_the_first() -> None:
    losses = ledger()
    choices = (Choice(0, (Text("a"),), Finish("stop")), Choice(1, (Text("b"),), Finish("stop")))
    body = CODEC.write_response(Response("a", "m", choices=choices), losses, WriteContext())
    assert body["message"]["content"] == "a"
    assert codes(losses) == [("no-counterpart", "")]


# --- errors ---------------------------------------------------------------------------------------------------------

ERRORS: list[tuple[Any, int, dict[str, str], Failure]] = [
    (
        {"error": {"type": "rate_limit", "message": "slow", "retry_after": 3}},
        429,
        {},
        Failure("rate", "slow", 429, retry_after=3),
    ),
    (
        {"error": {"type": "quota", "message": "m"}},
        429,
        {"Retry-After": "7"},
        Failure("quota", "m", 429, retry_after=7),
    ),
    (
        {"error": {"type": "new", "message": "m", "path": "/a", "code": "c"}},
        404,
        {},
        Failure("not_found", "m", 404, "c", "/a"),
    ),
    ({"error": {"message": 5}}, 418, {}, Failure("invalid", "the provider failed without a reason", 418)),
    ({"message": "m"}, 500, {"retry-after": "soon"}, Failure("server", "m", 500)),
    ("<html>\n no </html>", 503, {}, Failure("overloaded", "<html>\n no </html>", 503)),
    (None, 502, {}, Failure("upstream", "the provider answered with status 502 and no explanation", 502)),
    ([], 599, {}, Failure("server", "the provider answered with status 599 and no explanation", 599)),
    ({"error": "text"}, 400, {}, Failure("invalid", "text", 400)),
    ({"detail": "gone"}, 404, {}, Failure("not_found", "gone", 404)),
]


@pytest.mark.parametrize(("body", "status", "headers", "failure"), ERRORS)
def test_errors_are_read(body: Any, status: int, headers: dict[str, str], failure: Failure) -> None:
    read = read_error(body, status, headers)
    assert strip_origins(read) == failure
    sent = write_error(read)
    assert isinstance(sent.body["error"], dict)
    if isinstance(body, dict) and isinstance(body.get("error"), dict):
        assert sent.body is body


@pytest.mark.parametrize("kind", STATUS_BY_FAILURE_KIND)
def test_every_kind_of_failure_is_written_and_read_back(kind: str) -> None:
    sent = write_error(Failure(kind, "m"))
    valid("error_answer", sent.body)
    assert sent.status == sent.body["error"]["status"] == STATUS_BY_FAILURE_KIND[kind]
    assert read_error(sent.body, sent.status, sent.headers).kind == kind


def test_an_error_tells_where_and_how_long() -> None:
    sent = write_error(Failure("rate", "slow", 429, param="/a", retry_after=1.5))
    assert sent.headers == {"retry-after": "2", "retry-after-ms": "1500"}
    assert (sent.body["error"]["path"], sent.body["error"]["hint"]) == ("/a", HINTS["rate"])
    assert write_error(Failure("context", "long")).body["error"]["code"] == "context_length_exceeded"
    assert write_error(Failure("server", "odd", 200)).status == 500
