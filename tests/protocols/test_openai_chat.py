"""The room of Chat Completions: laws over samples and recordings, and tables of what servers really do."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import material
from toolwire.core import json_values, sse
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
    Call,
    Choice,
    Citation,
    Failure,
    Finish,
    Format,
    Grammar,
    Media,
    Opaque,
    Origin,
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
from toolwire.core.losses import Ledger
from toolwire.core.provenance import loosen_response
from toolwire.protocols.openai_chat import CODEC
from toolwire.protocols.openai_chat.models import family

NAME = "openai-chat"
TESTS = Path(__file__).parents[1]
SAMPLES = TESTS / "samples"
CORPUS = material.CORPUS / "openai_chat"
STREAMS = sorted((SAMPLES / "openai_chat").glob("*.sse"))
REQUESTS = sorted((SAMPLES / "requests").glob("chat_*.json"))


def ledger() -> Ledger:
    return Ledger("other", NAME)


def load(path: Path) -> Any:
    return json_values.decode(path.read_bytes())


def read_all(data: bytes, step: int = 0) -> list[Event]:
    reader = CODEC.make_stream_reader()
    pieces = [data[at : at + step] for at in range(0, len(data), step)] if step else [data]
    events = [event for piece in pieces for event in reader.feed(piece)]
    events += reader.close()
    return events


def write_all(events: Iterable[Event], context: WriteContext | None = None, book: Ledger | None = None) -> bytes:
    writer = CODEC.make_stream_writer(book or ledger(), context or WriteContext())
    return b"".join([writer.write(event) for event in events]) + writer.close()


def frames(data: bytes) -> list[tuple[str | None, Any]]:
    splitter = sse.SseSplitter()
    found = splitter.feed(data) + splitter.close()
    return [(frame.event, None if frame.data == b"[DONE]" else json_values.decode(frame.data)) for frame in found]


def lawful(events: list[Event]) -> list[Event]:
    checker = StreamChecker()
    for event in events:
        assert checker.check_event(event) is None
    assert checker.state == "done"
    return events


def stream(*chunks: dict[str, Any] | str, done: bool = True) -> bytes:
    """A stream of deltas of choice 0; a text is a finish reason."""
    out = b""
    for chunk in chunks:
        delta, finish = ({}, chunk) if isinstance(chunk, str) else (chunk, None)
        body = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        body["choices"] = [{"index": 0, "delta": delta, "finish_reason": finish}]
        out += sse.write_data_frame(json_values.encode(body))
    return out + (sse.write_data_frame(b"[DONE]") if done else b"")


def calls_of(response: Response, choice: int = 0) -> list[tuple[str, str, str]]:
    return [(part.id, part.name, part.arguments) for part in response.choices[choice].parts if isinstance(part, Call)]


def call(index: int | None = None, id: str | None = None, name: str | None = None, text: Any = None) -> dict[str, Any]:
    function = {key: value for key, value in (("name", name), ("arguments", text)) if value is not None}
    head = {key: value for key, value in (("index", index), ("id", id)) if value is not None}
    return {"tool_calls": [{**head, "function": function}]}


def normalize_meaning(value: Any) -> Any:
    """What a rewriting may lawfully settle: no arguments are `{}`, a missing id is made, calls end with `calls`."""
    if isinstance(value, Request):
        turns = tuple(replace(turn, parts=tuple(map(normalize_meaning, turn.parts))) for turn in value.turns)
        return replace(value, turns=turns)
    if isinstance(value, Response):
        return replace(value, id="", choices=tuple(map(normalize_meaning, value.choices)))
    if isinstance(value, Choice):
        parts = tuple(map(normalize_meaning, value.parts))
        kind = value.finish.kind if value.finish else "stop"
        if kind == "stop" and any(isinstance(part, Call) for part in parts):
            kind = "calls"
        return Choice(value.index, parts, Finish(kind))
    if isinstance(value, Call):
        return replace(value, id="", arguments=value.arguments or "{}")
    if isinstance(value, Reasoning):
        return replace(value, form="", id="")
    return value


# --- laws over samples ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", REQUESTS, ids=lambda path: path.stem)
def test_requests_come_back(path: Path) -> None:
    body = load(path)
    request = CODEC.read_request(body)
    assert CODEC.write_request(request, ledger()) == body
    # Another model's name is the smallest change: everything else stays as it was.
    renamed = CODEC.write_request(replace_fields(request, model="gpt-5.4-mini"), ledger())
    assert renamed == {**body, "model": "gpt-5.4-mini"}
    assert list(renamed) == list(body)


@pytest.mark.parametrize("path", [path for path in REQUESTS if "legacy" not in path.stem], ids=lambda path: path.stem)
def test_requests_are_said_again_from_their_meaning(path: Path) -> None:
    body = load(path)
    meant = strip_origins(CODEC.read_request(body))
    said = CODEC.write_request(meant, book := ledger())
    assert strip_origins(CODEC.read_request(said)) == meant
    assert not book.losses
    del body["stream_options" if "stream" in body else "model"]
    parts_as_text = said["messages"][-1]["content"] == "1 row"
    if parts_as_text:
        body["messages"][-1]["content"] = "1 row"
    assert {key: said[key] for key in body} == body


def test_legacy_requests_keep_their_meaning() -> None:
    meant = strip_origins(CODEC.read_request(load(SAMPLES / "requests" / "chat_legacy.json")))
    assert meant.turns[1].parts == (Call("", "get_weather", "{}"),)
    assert meant.turns[2] == Turn("tool", (Result("", (Text("22C"),), name="get_weather"),))
    said = CODEC.write_request(meant, ledger())
    assert said["messages"][1]["function_call"] == {"name": "get_weather", "arguments": "{}"}
    assert said["messages"][2] == {"role": "function", "name": "get_weather", "content": "22C"}
    assert strip_origins(CODEC.read_request(said)) == meant


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_streams_come_back(path: Path) -> None:
    data = path.read_bytes()
    events = lawful(read_all(data))
    assert all(event.frame is not None for event in events)
    assert frames(write_all(events)) == frames(data)
    for step in (1, 7):
        assert read_all(data, step) == events


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_a_stream_folds_to_what_the_whole_answer_reads(path: Path) -> None:
    whole = CODEC.read_response(load(path.with_suffix(".json")))
    folded = fold(read_all(path.read_bytes()))
    if path.stem == "error_midstream":
        assert whole.failure is not None
        assert folded.failure is not None
        assert strip_origins(folded.failure) == strip_origins(whole.failure)
        return
    expected = strip_origins(whole) if folded.usage else replace(strip_origins(whole), usage=None)
    assert strip_origins(folded) == expected


@pytest.mark.parametrize("path", [p for p in STREAMS if p.stem != "error_midstream"], ids=lambda path: path.stem)
def test_answers_are_said_again_from_their_meaning(path: Path) -> None:
    body = load(path.with_suffix(".json"))
    response = CODEC.read_response(body)
    assert CODEC.write_response(response, ledger(), WriteContext()) is body
    meant = strip_origins(response)
    said = CODEC.write_response(meant, book := ledger(), WriteContext())
    assert not book.losses
    assert strip_origins(CODEC.read_response(said)) == meant
    for key in ("id", "object", "created", "model", "choices"):
        assert said[key] == body[key]
    legacy = WriteContext(CODEC.read_request(load(SAMPLES / "requests" / "chat_legacy.json")))
    context = legacy if path.stem.startswith("legacy") else WriteContext()
    streamed = lawful(read_all(write_all(unfold(meant), context)))
    if not context.request:
        assert strip_origins(fold(streamed)) == meant
    else:
        assert strip_origins(fold(streamed)) == replace(meant, usage=None)


# --- laws over the recorded corpus ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def corpus() -> list[tuple[str, dict[str, Any]]]:
    if not CORPUS.exists():
        pytest.skip("the recorded corpus is not here")
    return [(path.stem, load(path)) for path in sorted(CORPUS.glob("*.json"))]


UNREADABLE = {"0236": "/messages/1/content/0: `type` is missing"}
"""Recorded requests that the service itself refused."""


def drop_nulls(body: dict[str, Any]) -> dict[str, Any]:
    """Null is absence."""
    return {key: value for key, value in body.items() if value is not None}


def test_recorded_requests(corpus: list[tuple[str, dict[str, Any]]]) -> None:
    seen = 0
    for name, record in corpus:
        body = record["request"]
        if body is None:
            continue
        if name in UNREADABLE:
            with pytest.raises(json_values.Malformed, match=UNREADABLE[name]):
                CODEC.read_request(body)
            continue
        request = CODEC.read_request(body)
        assert CODEC.write_request(request, ledger()) is body, name
        touched = CODEC.write_request(replace_fields(request), ledger())
        assert drop_nulls(touched) == drop_nulls({"model": "", **body}), name
        meant = strip_origins(request)
        said = CODEC.write_request(meant, book := Ledger(NAME, NAME))
        again = strip_origins(CODEC.read_request(json_values.decode(json_values.encode(said))))
        assert normalize_meaning(again) == normalize_meaning(meant) or book.losses, name
        seen += 1
    assert seen > 200


def test_recorded_answers(corpus: list[tuple[str, dict[str, Any]]]) -> None:
    seen = 0
    for name, record in corpus:
        body = record.get("response")
        if body is None:
            continue
        response = CODEC.read_response(body)
        assert CODEC.write_response(response, ledger(), WriteContext()) is body, name
        assert (response.failure is not None) == ("error" in body), name
        if response.failure is not None:
            continue
        meant = strip_origins(response)
        said = CODEC.write_response(meant, ledger(), WriteContext())
        again = strip_origins(CODEC.read_response(json_values.decode(json_values.encode(said))))
        assert normalize_meaning(again) == normalize_meaning(meant), name
        streamed = strip_origins(fold(lawful(read_all(write_all(unfold(meant))))))
        assert normalize_meaning(streamed) == normalize_meaning(meant), name
        seen += 1
    assert seen > 140


def set_indexes(found: list[tuple[str | None, Any]]) -> list[tuple[str | None, Any]]:
    """The one thing that is mended in recorded streams: a call without an index gets one."""
    for _, body in found:
        for choice in body["choices"] if body else ():
            for number, piece in enumerate(choice.get("delta", {}).get("tool_calls") or ()):
                piece.setdefault("index", number)
    return found


RECORDED_FAILURES = {"0402": "tool_use_failed", "0405": "tool_use_failed", "0442": ""}


def test_recorded_streams(corpus: list[tuple[str, dict[str, Any]]]) -> None:
    seen = 0
    for name, record in corpus:
        if "sse" not in record:
            continue
        data = record["sse"].encode()
        events = lawful(read_all(data))
        assert read_all(data, 5) == events, name
        last = events[-1]
        if name in RECORDED_FAILURES:
            assert isinstance(last, ResponseFailed)
            assert (last.failure.status, last.failure.code) == (400, RECORDED_FAILURES[name])
            continue
        assert isinstance(last, ResponseEnd), name
        assert frames(write_all(events)) == set_indexes(frames(data)), name
        meant = strip_origins(fold(events))
        again = strip_origins(fold(lawful(read_all(write_all(unfold(meant))))))
        assert normalize_meaning(again) == normalize_meaning(meant), name
        seen += 1
    assert seen > 50


# --- requests ---------------------------------------------------------------------------------------------------------


def make_body(**fields: Any) -> dict[str, Any]:
    return {"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}], **fields}


MALFORMED = [
    ({}, "the body: `messages` is missing"),
    (make_body(messages={}), "/messages: expected an array, got an object"),
    (make_body(messages=["x"]), "/messages/0: expected an object, got a string"),
    (make_body(messages=[{}]), "/messages/0: `role` is missing"),
    (make_body(messages=[{"role": "robot"}]), "/messages/0/role: unknown role 'robot'"),
    (
        make_body(messages=[{"role": "user", "content": 3}]),
        "/messages/0/content: expected an array, got a whole number",
    ),
    (make_body(messages=[{"role": "user", "content": [{"text": "x"}]}]), "/messages/0/content/0: `type` is missing"),
    (
        make_body(messages=[{"role": "assistant", "tool_calls": [{"id": "a"}]}]),
        "/messages/0/tool_calls/0: `name` is missing",
    ),
    (
        make_body(messages=[{"role": "assistant", "tool_calls": [{"type": "function"}]}]),
        "/messages/0/tool_calls/0/function",
    ),
    (make_body(messages=[{"role": "tool", "tool_call_id": 7}]), "/messages/0/tool_call_id: expected a string"),
    (make_body(tools={}), "/tools: expected an array"),
    (make_body(tools=[{"type": "function"}]), "/tools/0: `function` is missing"),
    (make_body(tools=[{"type": "function", "function": {}}]), "/tools/0/function: `name` is missing"),
    (make_body(temperature="hot"), "/temperature: expected a number"),
    (make_body(max_tokens=1.5), "/max_tokens: expected a whole number"),
    (make_body(stop=[1]), "/stop/0: expected a string"),
    (make_body(response_format={"type": "xml"}), "/response_format/type: unknown format 'xml'"),
    (make_body(stream="yes"), "/stream: expected true or false"),
]


@pytest.mark.parametrize(("body", "problem"), MALFORMED, ids=[problem for _, problem in MALFORMED])
def test_malformed_requests_name_the_place(body: dict[str, Any], problem: str) -> None:
    with pytest.raises(json_values.Malformed) as caught:
        CODEC.read_request(body)
    assert str(caught.value).startswith(problem)


@pytest.mark.parametrize("key", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("spelled", ["1000", "1e3", "1000.0"])
def test_a_limit_is_a_whole_number_however_it_is_spelled(key: str, spelled: str) -> None:
    text = json.dumps(make_body(**{key: "N"})).replace('"N"', spelled)
    request = CODEC.read_request(json_values.expect_object(json_values.decode(text.encode()), None))
    assert request.settings.max_tokens == 1000
    assert type(request.settings.max_tokens) is int


PARTS: list[tuple[dict[str, Any], Any]] = [
    ({"type": "text", "text": "a"}, Text("a")),
    ({"type": "image_url", "image_url": {"url": "https://x/a.png"}}, Media("image", url="https://x/a.png")),
    (
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "detail": "low"}},
        Media("image", "image/png", "AA==", detail="low"),
    ),
    (
        {"type": "image_url", "image_url": {"url": "data:text/plain,hello"}},
        Media("image", url="data:text/plain,hello"),
    ),
    ({"type": "input_audio", "input_audio": {"data": "AA==", "format": "mp3"}}, Media("audio", "audio/mpeg", "AA==")),
    ({"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}}, Media("audio", "audio/wav", "AA==")),
    ({"type": "file", "file": {"file_id": "file-1"}}, Media("file", file_id="file-1")),
    (
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AA=="}},
        Media("file", "application/pdf", "AA==", name="a.pdf"),
    ),
    ({"type": "video_url", "video_url": {"url": "https://x/a.mp4"}}, Media("video", url="https://x/a.mp4")),
]


@pytest.mark.parametrize(("node", "part"), PARTS, ids=[str(node) for node, _ in PARTS])
def test_content_parts(node: dict[str, Any], part: Any) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "t"}, node]}]}
    meant = strip_origins(CODEC.read_request(body))
    assert meant.turns[0].parts == (Text("t"), part)
    assert CODEC.write_request(meant, ledger()) == body


def test_an_image_url_may_be_a_bare_text() -> None:
    body = make_body(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": "https://x/a.png"}]}])
    assert strip_origins(CODEC.read_request(body)).turns[0].parts == (Media("image", url="https://x/a.png"),)


CHOICES: list[tuple[Any, ToolChoice]] = [
    ("none", ToolChoice("none")),
    ("auto", ToolChoice("auto")),
    ("required", ToolChoice("required")),
    ({"type": "function", "function": {"name": "f"}}, ToolChoice("one", (ToolName("f"),))),
    ({"type": "custom", "custom": {"name": "f"}}, ToolChoice("one", (ToolName("f", "custom"),))),
    (
        {
            "type": "allowed_tools",
            "allowed_tools": {
                "mode": "required",
                "tools": [{"type": "function", "function": {"name": "f"}}, {"type": "custom", "custom": {"name": "g"}}],
            },
        },
        ToolChoice("allowed", (ToolName("f"), ToolName("g", "custom")), required=True),
    ),
]


@pytest.mark.parametrize(("value", "choice"), CHOICES, ids=[str(value) for value, _ in CHOICES])
def test_tool_choice(value: Any, choice: ToolChoice) -> None:
    tools = [{"type": "function", "function": {"name": "f"}}, {"type": "custom", "custom": {"name": "g"}}]
    body = make_body(tools=tools, tool_choice=value)
    meant = strip_origins(CODEC.read_request(body))
    assert meant.choice == choice
    assert CODEC.write_request(meant, ledger()) == body


def test_choices_that_others_write() -> None:
    assert strip_origins(CODEC.read_request(make_body(tool_choice="any")).choice) == ToolChoice("required")
    assert (
        strip_origins(CODEC.read_request(make_body(tool_choice={"type": "function", "name": "f"})).choice)
        == CHOICES[3][1]
    )
    unknown = CODEC.read_request(
        make_body(tool_choice={"type": "oracle"}, tools=[{"type": "function", "function": {"name": "f"}}])
    )
    assert unknown.choice is None
    assert [stray.key for stray in unknown.unknown_fields] == ["tool_choice"]
    assert CODEC.write_request(replace_fields(unknown, model="x"), ledger())["tool_choice"] == {"type": "oracle"}


def test_functions_beside_tools_and_the_old_choice() -> None:
    tool = {"type": "function", "function": {"name": "new"}}
    body = make_body(tools=[tool], functions=[{"name": "old", "parameters": {}}], function_call={"name": "old"})
    request = CODEC.read_request(body)
    assert [tool.name for tool in request.tools if isinstance(tool, Tool)] == ["new", "old"]
    assert request.choice is not None
    assert strip_origins(request.choice) == ToolChoice("one", (ToolName("old"),))
    assert CODEC.write_request(replace_fields(request, model="x"), ledger()) == {**body, "model": "x"}


def test_custom_tools_and_unknown_ones() -> None:
    custom = {"name": "sql", "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": "x"}}}
    body = make_body(
        tools=[{"type": "custom", "custom": custom}, {"type": "openrouter:web_search", "parameters": {"n": 1}}]
    )
    meant = CODEC.read_request(body)
    assert strip_origins(meant.tools[0]) == Tool("sql", kind="custom", grammar=Grammar("lark", "x"))
    assert isinstance(meant.tools[1], Opaque)
    assert CODEC.write_request(strip_origins(meant), ledger())["tools"] == body["tools"]
    foreign = Opaque("thing", Origin("other", (None, "tools"), {"type": "thing"}))
    assert "tools" not in CODEC.write_request(Request("m", tools=(foreign,)), book := ledger())
    assert [loss.code for loss in book.losses] == ["tool-dropped"]


@pytest.mark.parametrize(("model", "written"), [("gpt-4o-search-preview", True), ("gpt-4o", False)])
def test_hosted_search(model: str, written: bool) -> None:
    options = {"search_context_size": "low", "user_location": {"type": "approximate", "approximate": {"city": "Paris"}}}
    body = {**make_body(web_search_options=options), "model": model}
    meant = strip_origins(CODEC.read_request(body))
    assert meant.tools == (ProviderTool("web_search", location={"city": "Paris"}, context_size="low"),)
    said = CODEC.write_request(meant, book := ledger())
    assert said.get("web_search_options") == (options if written else None)
    assert [loss.code for loss in book.losses] == ([] if written else ["tool-dropped"])
    other = Request(model, tools=(ProviderTool("code_execution"),))
    CODEC.write_request(other, book := ledger())
    assert [loss.code for loss in book.losses] == ["tool-dropped"]


def test_settings_stand_where_they_were_read() -> None:
    schema = {"name": "s", "description": "d", "schema": {"type": "object"}, "strict": True}
    body = make_body(
        max_tokens=5,
        temperature=0.5,
        top_p=1,
        n=2,
        stop=["a", "b"],
        seed=3,
        presence_penalty=1,
        frequency_penalty=-1,
        logprobs=True,
        top_logprobs=2,
        user="u",
        metadata={"k": "v"},
        service_tier="flex",
        store=True,
        prompt_cache_key="key",
        verbosity="low",
        response_format={"type": "json_schema", "json_schema": schema},
        stream=True,
        stream_options={"include_usage": True, "include_obfuscation": False},
        logit_bias={"5": 1},
    )
    request = CODEC.read_request(body)
    assert strip_origins(request.settings) == Settings(
        max_tokens=5,
        temperature=0.5,
        top_p=1,
        count=2,
        stop=("a", "b"),
        seed=3,
        presence_penalty=1,
        frequency_penalty=-1,
        logprobs=True,
        top_logprobs=2,
        user="u",
        metadata={"k": "v"},
        tier="flex",
        store=True,
        cache_key="key",
        verbosity="low",
        format=Format("schema", {"type": "object"}, "s", "d", True),
        stream_usage=True,
    )
    assert request.settings.where["count"] == (None, "n")
    assert {json_values.json_pointer((stray.path, stray.key)) for stray in request.unknown_fields} == {
        "/logit_bias",
        "/stream_options/include_obfuscation",
    }
    # What only this protocol knows stays when the request is rewritten within it.
    assert CODEC.write_request(replace_fields(request, model="x"), ledger()) == {**body, "model": "x"}
    said = CODEC.write_request(strip_origins(request), ledger())
    del body["logit_bias"], body["stream_options"]["include_obfuscation"]
    assert said == body


@pytest.mark.parametrize(
    ("model", "limit", "user", "roles"),
    [
        ("gpt-5.4", "max_completion_tokens", "safety_identifier", "developer"),
        ("openai/gpt-5-mini", "max_completion_tokens", "safety_identifier", "developer"),
        ("o3", "max_completion_tokens", "safety_identifier", "developer"),
        ("o4-mini", "max_completion_tokens", "safety_identifier", "developer"),
        ("gpt-6-luna", "max_completion_tokens", "safety_identifier", "developer"),
        ("gpt-4o", "max_tokens", "user", "developer"),
        ("openai/gpt-oss-120b", "max_tokens", "user", "system"),
        ("deepseek-chat", "max_tokens", "user", "system"),
        ("octopus-1", "max_tokens", "user", "system"),
    ],
)
def test_families_of_models(model: str, limit: str, user: str, roles: str) -> None:
    turn = Turn("developer", (Text("be brief"),))
    request = Request(model, turns=(turn,), settings=Settings(max_tokens=9, user="u"))
    said = CODEC.write_request(request, ledger())
    assert (said[limit], said[user], said["messages"][0]["role"]) == (9, "u", roles)


def test_a_spelling_is_kept_for_its_own_model_only() -> None:
    request = CODEC.read_request(make_body(max_tokens=5) | {"model": "gpt-4.1"})
    assert CODEC.write_request(replace_fields(request, stream=True), ledger())["max_tokens"] == 5
    assert CODEC.write_request(replace_fields(request, model="gpt-5.1"), ledger())["max_completion_tokens"] == 5


def test_two_spellings_of_one_setting() -> None:
    request = CODEC.read_request(make_body(max_tokens=5, max_completion_tokens=6, user="u", safety_identifier="u"))
    assert request.settings.max_tokens == 6
    assert [stray.key for stray in request.unknown_fields] == ["max_tokens"]


def test_what_a_model_refuses_is_left_out_and_told() -> None:
    settings = Settings(stop=("x",), temperature=1, parallel=True, user="u" * 200, thinking=Thinking(budget=5000))
    said = CODEC.write_request(Request("gpt-6-luna", settings=settings), book := ledger())
    assert set(said) == {"model", "messages", "safety_identifier", "reasoning_effort"}
    assert len(said["safety_identifier"]) == 64
    assert said["reasoning_effort"] == "low"
    assert sorted(loss.code for loss in book.losses) == ["no-counterpart"] * 3 + ["setting-clamped", "thinking-mapped"]
    many = CODEC.write_request(Request("gpt-4o", settings=Settings(stop=tuple("abcde"), top_k=3)), book := ledger())
    assert many["stop"] == ["a", "b", "c", "d"]
    assert [loss.code for loss in book.losses] == ["setting-clamped", "no-counterpart"]


TOOLS = (Tool("f"),)


@pytest.mark.parametrize(
    ("model", "effort", "is_fixed"),
    [
        ("gpt-5", None, True),
        ("gpt-5-mini", "none", True),
        ("gpt-5-chat-latest", None, False),
        ("o3", None, True),
        ("o1-mini", "low", False),
        ("gpt-5.1", None, False),
        ("gpt-5.1", "low", True),
        ("gpt-5.5", None, True),
        ("gpt-5.5", "none", False),
        ("gpt-5.6-luna", None, True),
        ("gpt-4o", None, False),
        ("gpt-oss:20b", "low", False),
        ("openai/gpt-5", None, False),
        ("ours", "high", False),
    ],
)
@pytest.mark.parametrize("is_own", [True, False], ids=["chat", "other"])
def test_models_that_reason_take_only_the_default_sampling(
    model: str, effort: str | None, is_fixed: bool, is_own: bool
) -> None:
    """Chat clients send `temperature: 0`, and every such request got 400."""
    sent = {"temperature": 0, "top_p": 1, "presence_penalty": 0.5, "logprobs": False}
    body = make_body(**sent, model=model) | ({} if effort is None else {"reasoning_effort": effort})
    request = CODEC.read_request(body)
    notes = Ledger("openai-chat" if is_own else "anthropic", "openai-chat")
    written = CODEC.write_request(request if is_own else strip_origins(request), notes)
    left_out = {"temperature", "presence_penalty"} if is_fixed else set()
    assert sent.keys() - written.keys() == left_out
    assert {loss.code for loss in notes.losses} >= ({"no-counterpart"} if is_fixed else set())
    if is_own and not is_fixed:
        assert written is body


@pytest.mark.parametrize("model", ["gpt-5.4", "gpt-5.5", "gpt-5.6-luna"])
@pytest.mark.parametrize("thinking", [None, Thinking(effort="high")])
def test_sampling_stays_where_the_effort_becomes_none(model: str, thinking: Thinking | None) -> None:
    settings = Settings(temperature=0.2, thinking=thinking)
    with_tools = CODEC.write_request(Request(model, tools=TOOLS, settings=settings), ledger())
    assert with_tools["temperature"] == 0.2
    assert with_tools.get("reasoning_effort", "none") == "none"
    without = CODEC.write_request(Request(model, settings=settings), ledger())
    assert ("temperature" in without) == (thinking is None and model == "gpt-5.4")


@pytest.mark.parametrize(
    ("model", "thinking", "tools", "effort", "codes"),
    [
        ("gpt-5", Thinking(effort="high"), TOOLS, "high", []),
        ("gpt-5.4", Thinking(effort="high"), TOOLS, "none", ["thinking-mapped"]),
        ("gpt-5.4", Thinking(effort="high"), (), "high", []),
        ("gpt-5.4", None, TOOLS, None, []),
        ("gpt-5.5", None, TOOLS, "none", ["default-added"]),
        ("openai/gpt-5.5", Thinking(effort="high"), TOOLS, "high", []),
        ("gpt-4o", Thinking(effort="high"), (), None, ["no-counterpart"]),
        ("gpt-4o", Thinking("off"), (), None, []),
        ("qwen3-max", Thinking(effort="xhigh"), (), "high", ["thinking-mapped"]),
        ("gpt-5.2", Thinking("auto"), (), None, []),
    ],
)
def test_thinking(model: str, thinking: Thinking | None, tools: Any, effort: str | None, codes: list[str]) -> None:
    request = Request(model, tools=tools, settings=Settings(thinking=thinking))
    said = CODEC.write_request(request, book := ledger())
    assert said.get("reasoning_effort") == effort
    assert [loss.code for loss in book.losses] == codes


def test_usage_is_asked_for_in_a_stream_of_another_protocol() -> None:
    said = CODEC.write_request(Request("m", stream=True), book := ledger())
    assert said["stream_options"] == {"include_usage": True}
    assert [loss.code for loss in book.losses] == ["default-added"]
    own = CODEC.read_request(make_body(stream=True))
    assert "stream_options" not in CODEC.write_request(replace_fields(own, model="x"), ledger())


def test_cache_breakpoints() -> None:
    part = {"type": "text", "text": "a", "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "12h"}}
    body = {"model": "gpt-5.6", "messages": [{"role": "user", "content": [part]}]}
    meant = strip_origins(CODEC.read_request(body))
    assert meant.turns[0].parts == (Text("a", cache="12h"),)
    assert CODEC.write_request(meant, ledger()) == body
    for model, key, code in (
        ("vendor/claude-opus", "cache_control", "setting-mapped"),
        ("gpt-4o", "", "cache-dropped"),
    ):
        said = CODEC.write_request(replace(meant, model=model), book := ledger())
        content = said["messages"][0]["content"]
        assert [loss.code for loss in book.losses] == [code]
        assert (key in content[0]) == bool(key)


# --- the assistant's turns --------------------------------------------------------------------------------------------


def test_what_sdk_clients_replay_is_absence() -> None:
    message = {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "annotations": [],
        "audio": None,
        "function_call": None,
        "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": {"x": 1}}, "index": 0}],
    }
    request = CODEC.read_request(make_body(messages=[message]))
    assert strip_origins(request.turns[0]) == Turn("assistant", (Call("a", "f", '{"x":1}'),))
    assert [(stray.key, stray.code) for stray in request.unknown_fields] == [("function", "shape-repaired")]


def test_an_answer_in_an_odd_shape_is_written_as_openai_has_it() -> None:
    call_ = {"id": "a", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}
    message = {"role": "assistant", "content": {"type": "text", "text": "Hi"}, "tool_calls": [call_]}
    body = {"id": "c", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}], "more": 1}
    response = loosen_response(CODEC.read_response(body))
    [choice] = CODEC.write_response(response, ledger(), WriteContext())["choices"]
    assert choice["message"]["content"] == "Hi"
    assert choice["message"]["tool_calls"] == [call_ | {"function": {"name": "f", "arguments": '{"x":1}'}}]
    assert CODEC.peek_response(json_values.encode(body)) is None


def test_content_null_and_empty_are_told_apart_in_a_history() -> None:
    call_ = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    for content, parts in ((None, ()), ("", (Text(""),))):
        body = make_body(messages=[{"role": "assistant", "content": content, "tool_calls": [call_]}])
        meant = strip_origins(CODEC.read_request(body))
        assert meant.turns[0].parts == (*parts, Call("a", "f", "{}"))
        assert CODEC.write_request(meant, ledger()) == body


def test_a_call_without_arguments_is_written_as_an_empty_object() -> None:
    turn = Turn("assistant", (Call("a", "f"), Call("b", "g", "  "), Call("c", "h", kind="custom")))
    calls = CODEC.write_request(Request("m", turns=(turn,)), ledger())["messages"][0]["tool_calls"]
    assert [entry[entry["type"]].get("arguments", entry[entry["type"]].get("input")) for entry in calls] == [
        "{}",
        "{}",
        "",
    ]


def test_arguments_are_never_rewritten() -> None:
    odd = '{ "b":1.50, "a" : 1e5 '
    turn = Turn("assistant", (Call("a", "f", odd, incomplete=True),))
    message = CODEC.write_request(Request("m", turns=(turn,)), ledger())["messages"][0]
    assert message["tool_calls"][0]["function"]["arguments"] == odd


@pytest.mark.parametrize(("model", "kept"), [("deepseek-reasoner", True), ("kimi-k2", True), ("gpt-4o", False)])
def test_reasoning_goes_back_to_those_who_want_it(model: str, kept: bool) -> None:
    turn = Turn("assistant", (Reasoning("hm", "summary"), Call("a", "f", "{}")))
    message = CODEC.write_request(Request(model, turns=(turn,)), book := ledger())["messages"][0]
    assert message.get("reasoning_content") == ("hm" if kept else None)
    assert [loss.code for loss in book.losses] == ([] if kept else ["reasoning-dropped"])


def test_reasoning_of_one_message_stays_with_it() -> None:
    body = {"model": "deepseek-chat", "messages": [{"role": "assistant", "content": "x", "reasoning_content": "hm"}]}
    meant = strip_origins(CODEC.read_request(body))
    assert meant.turns[0].parts == (Reasoning("hm", "raw"), Text("x"))
    assert CODEC.write_request(meant, ledger()) == body


def test_reasoning_details_carry_their_seals() -> None:
    details = [
        {"type": "reasoning.text", "text": "hm", "format": "f1", "index": 0, "signature": "s+/="},
        {"type": "reasoning.encrypted", "data": "xyz", "id": "r1", "format": "f1", "index": 1},
    ]
    message = {"role": "assistant", "content": "x", "reasoning": "hm", "reasoning_details": details}
    request = CODEC.read_request({"model": "octopus", "messages": [message]})
    first, second, text = request.turns[0].parts
    assert isinstance(first, Reasoning)
    assert isinstance(second, Reasoning)
    assert (first.text, second.hidden, second.id, strip_origins(text)) == ("hm", True, "r1", Text("x"))
    assert not request.unknown_fields
    said = CODEC.write_request(strip_origins(request), ledger())["messages"][0]
    assert said["reasoning_details"] == details
    foreign = Turn("assistant", (Reasoning("", hidden=True, seal=Seal("other", "v")), Text("x")))
    said = CODEC.write_request(Request("deepseek", turns=(foreign,)), book := ledger())["messages"][0]
    assert "reasoning_details" not in said
    assert [loss.code for loss in book.losses] == ["seal-dropped"]


def test_the_seal_of_a_call_comes_back_in_its_box() -> None:
    call_ = {
        "id": "a",
        "type": "function",
        "function": {"name": "f", "arguments": "{}"},
        "extra_content": {"google": {"thought_signature": "sig"}},
    }
    body = make_body(messages=[{"role": "assistant", "content": None, "tool_calls": [call_]}])
    meant = strip_origins(CODEC.read_request(body))
    assert meant.turns[0].parts[0].seal == Seal(f"{NAME}@google", "sig")
    assert CODEC.write_request(meant, ledger()) == body
    deep = replace(meant.turns[0].parts[0], seal=Seal(NAME + "/vendor/account", "sig"))
    turn = replace(meant.turns[0], parts=(deep,))
    assert CODEC.write_request(replace(meant, turns=(turn,)), ledger()) == body


def test_order_that_the_wire_cannot_say_is_told() -> None:
    turn = Turn("assistant", (Text("a"), Call("1", "f", "{}"), Text("b")))
    message = CODEC.write_request(Request("m", turns=(turn,)), book := ledger())["messages"][0]
    assert [part["text"] for part in message["content"]] == ["a", "b"]
    assert [loss.code for loss in book.losses] == ["order-changed"]


def test_results_and_system_from_other_protocols() -> None:
    results = Turn("user", (Result("a", (Text("1"),)), Result("b", (Text("2"), Text("3")), name="g"), Text("go on")))
    request = Request("m", system=(Text("be"), Text("brief")), turns=(results,))
    assert CODEC.write_request(request, ledger())["messages"] == [
        {"role": "system", "content": [{"type": "text", "text": "be"}, {"type": "text", "text": "brief"}]},
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {
            "role": "tool",
            "tool_call_id": "b",
            "content": [{"type": "text", "text": "2"}, {"type": "text", "text": "3"}],
        },
        {"role": "user", "content": "go on"},
    ]


def test_media_that_have_no_place_are_told() -> None:
    elsewhere = Origin("other", (None, "x"), {})
    parts = (
        Media("file", file_id="their_1", origin=elsewhere),
        Media("file", url="https://x/a.pdf"),
        Media("audio", url="https://x/a.mp3"),
        Media("file", "application/pdf", "AA=="),
    )
    said = CODEC.write_request(Request("m", turns=(Turn("user", parts),)), book := ledger())["messages"][0]["content"]
    assert said == [
        {"type": "file", "file": {"filename": "file.pdf", "file_data": "data:application/pdf;base64,AA=="}},
    ]
    assert [loss.code for loss in book.losses] == ["media-dropped"] * 3 + ["name-added"]


# --- answers ----------------------------------------------------------------------------------------------------------


def answer(message: dict[str, Any], finish: Any = "stop", **fields: Any) -> dict[str, Any]:
    return {
        "id": "c",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        **fields,
    }


@pytest.mark.parametrize(
    ("raw", "calls", "kind"),
    [
        ("stop", False, "stop"),
        ("length", False, "length"),
        ("content_filter", False, "filter"),
        ("tool_calls", True, "calls"),
        ("stop", True, "stop"),
        ("", True, "calls"),
        ("", False, "stop"),
        (None, True, "calls"),
        ("eos", False, "stop"),
        ("insufficient_system_resource", False, "other"),
    ],
)
def test_endings_read(raw: str | None, calls: bool, kind: str) -> None:
    message: dict[str, Any] = {"role": "assistant", "content": "x"}
    if calls:
        message["tool_calls"] = [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]
    finish = CODEC.read_response(answer(message, raw)).choices[0].finish
    assert finish is not None
    assert (finish.kind, finish.raw) == (kind, raw or "")


@pytest.mark.parametrize(
    ("finish", "parts", "word", "codes"),
    [
        (Finish("stop", "end_turn"), (Text("x"),), "stop", []),
        (Finish("stop"), (Call("a", "f"),), "tool_calls", []),
        (Finish("calls", "tool_use"), (Call("a", "f"),), "tool_calls", []),
        (Finish("calls", "tool_use"), (Text("x"),), "stop", ["finish-mapped"]),
        (Finish("length"), (Call("a", "f", '{"x', incomplete=True),), "length", []),
        (Finish("calls"), (Call("a", "f", '{"x', incomplete=True),), "length", ["finish-mapped"]),
        (Finish("refusal"), (Refusal("no"),), "stop", []),
        (Finish("refusal"), (Text("no"),), "content_filter", ["finish-mapped"]),
        (Finish("sequence", "stop_sequence", "END"), (Text("x"),), "stop", ["finish-mapped"]),
        (Finish("context"), (Text("x"),), "length", ["finish-mapped"]),
        (Finish("filter", "SAFETY"), (), "content_filter", []),
        (None, (Text("x"),), "stop", []),
    ],
)
def test_endings_written(finish: Finish | None, parts: Any, word: str, codes: list[str]) -> None:
    response = Response("r", "m", 1, (Choice(0, parts, finish),))
    said = CODEC.write_response(response, book := ledger(), WriteContext())
    assert said["choices"][0]["finish_reason"] == word
    assert [loss.code for loss in book.losses] == codes
    data = write_all(unfold(response), book=(book := ledger()))
    ends = [json_["choices"][0]["finish_reason"] for _, json_ in frames(data) if json_ and json_.get("choices")]
    if finish is not None:
        assert ends[-1] == word
        assert [loss.code for loss in book.losses] == codes


def test_a_stop_sequence_that_a_server_names() -> None:
    body = answer({"role": "assistant", "content": "x"})
    body["choices"][0]["stop_reason"] = "END"
    response = CODEC.read_response(body)
    assert strip_origins(response.choices[0].finish) == Finish("sequence", "stop", "END")
    assert not response.unknown_fields


def test_usage_with_and_without_thinking() -> None:
    counted = {"prompt_tokens": 12, "completion_tokens": 1, "total_tokens": 241}
    counted["completion_tokens_details"] = {"reasoning_tokens": 228}  # type: ignore[assignment]
    usage = CODEC.read_response(answer({"content": "x"}, usage=counted)).usage
    assert strip_origins(usage) == Usage(12, 229, reasoning=228, total=241)
    hit = {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10, "prompt_cache_hit_tokens": 4, "cost": 0.1}
    response = CODEC.read_response(answer({"content": "x"}, usage=hit))
    assert strip_origins(response.usage) == Usage(9, 1, 4, total=10)
    assert [stray.key for stray in response.unknown_fields] == ["cost"]


def test_citations_both_ways() -> None:
    cited = {"start_index": 0, "end_index": 2, "url": "https://x", "title": "X"}
    body = answer(
        {"role": "assistant", "content": "ab", "annotations": [{"type": "url_citation", "url_citation": cited}]}
    )
    meant = strip_origins(CODEC.read_response(body))
    assert meant.choices[0].parts == (Text("ab", (Citation("https://x", "X", "", 0, 2),)),)
    two = Text("cd", (Citation("https://y", "Y", "q", 0, 2),))
    both = replace(meant, choices=(replace(meant.choices[0], parts=(*meant.choices[0].parts, two)),))
    said = CODEC.write_response(both, ledger(), WriteContext())["choices"][0]["message"]
    assert said["content"] == "abcd"
    assert [note["url_citation"]["start_index"] for note in said["annotations"]] == [0, 2]
    streamed = fold(lawful(read_all(write_all(unfold(both)))))
    text = streamed.choices[0].parts[0]
    assert isinstance(text, Text)
    assert [(citation.url, citation.start) for citation in text.citations] == [("https://x", 0), ("https://y", 2)]


def test_an_empty_answer_and_its_ids() -> None:
    said = CODEC.write_response(
        Response(choices=(Choice(0, (), Finish("stop")),)), ledger(), WriteContext(now=7, seed="s")
    )
    assert said["id"].startswith("chatcmpl-")
    assert (said["created"], said["choices"][0]["message"]["content"]) == (7, "")
    assert said == CODEC.write_response(
        Response(choices=(Choice(0, (), Finish("stop")),)), ledger(), WriteContext(now=7, seed="s")
    )


def test_legacy_clients_get_legacy_answers() -> None:
    request = CODEC.read_request(load(SAMPLES / "requests" / "chat_legacy.json"))
    response = Response("r", "m", 1, (Choice(0, (Call("a", "f"), Call("b", "g", "{}")), Finish("calls")),))
    said = CODEC.write_response(response, book := ledger(), WriteContext(request))["choices"][0]
    assert said["message"]["function_call"] == {"name": "f", "arguments": "{}"}
    assert "tool_calls" not in said["message"]
    assert said["finish_reason"] == "function_call"
    assert [loss.code for loss in book.losses] == ["part-dropped"]
    data = write_all(unfold(response), WriteContext(request), book := ledger())
    assert b"tool_calls" not in data
    assert b"usage" not in data
    folded = strip_origins(fold(lawful(read_all(data))))
    assert folded.choices[0] == Choice(0, (Call("", "f", "{}"),), Finish("calls", "function_call"))
    assert [loss.code for loss in book.losses] == ["part-dropped"]


@pytest.mark.parametrize(
    "body", [{"error": {"message": "no", "code": 429}}, {"object": "error", "message": "no", "code": 429}]
)
def test_a_failure_in_a_whole_answer(body: dict[str, Any]) -> None:
    response = CODEC.read_response(body)
    assert response.failure is not None
    assert (response.failure.kind, response.failure.message, response.failure.status) == ("rate", "no", 429)
    assert CODEC.write_response(response, ledger(), WriteContext()) is body
    with pytest.raises(json_values.Malformed, match="`choices` is missing"):
        CODEC.read_response({})


# --- streams read -----------------------------------------------------------------------------------------------------

ACCENTS: list[tuple[str, bytes, list[tuple[str, str, str]]]] = [
    (
        "whole calls without index, with ids",
        stream(call(None, "a", "f", '{"x":1}'), call(None, "b", "f", '{"x":2}'), "tool_calls"),
        [("a", "f", '{"x":1}'), ("b", "f", '{"x":2}')],
    ),
    (
        "whole calls, all at index 0, with ids",
        stream(call(0, "a", "f", '{"x":1}'), call(0, "b", "f", '{"x":2}'), "stop"),
        [("a", "f", '{"x":1}'), ("b", "f", '{"x":2}')],
    ),
    (
        "whole calls without ids, all at index 0, of one name",
        stream(call(0, "", "f", '{"x":1}'), call(0, "", "f", '{"x":2}'), "stop"),
        [("", "f", '{"x":1}'), ("", "f", '{"x":2}')],
    ),
    (
        "whole calls with neither index nor id",
        stream(call(None, None, "f", "{}"), call(None, None, "g", '{"x":2}'), "stop"),
        [("", "f", "{}"), ("", "g", '{"x":2}')],
    ),
    (
        "an id and a name in every delta",
        stream(call(0, "a", "f", ""), call(0, "a", "f", '{"x"'), call(0, "a", "f", ":1}"), "tool_calls"),
        [("a", "f", '{"x":1}')],
    ),
    (
        "another id in every delta, the name once",
        stream(call(0, "a", "f", ""), call(0, "b", None, '{"x"'), call(0, "c", None, ":1}"), "tool_calls"),
        [("a", "f", '{"x":1}')],
    ),
    (
        "one call, no index",
        stream(call(None, "a", "f", ""), call(None, None, None, '{"x"'), call(None, None, None, ":1}"), "tool_calls"),
        [("a", "f", '{"x":1}')],
    ),
    (
        "the name after the id",
        stream(call(0, "a", None, '{"x"'), call(0, None, "f", ":1}"), "tool_calls"),
        [("a", "f", '{"x":1}')],
    ),
    (
        "the whole arguments so far in every delta",
        stream(
            *(call(0, "a", "f", text) for text in ("", '{"x', '{"x":"', '{"x":"y', '{"x":"y"}', '{"x":"y"}')), "stop"
        ),
        [("a", "f", '{"x":"y"}')],
    ),
    (
        "the whole arguments so far, twice only",
        stream(call(0, "a", "f", '{"x":1,'), call(0, None, None, '{"x":1,"y":2}'), "tool_calls"),
        [("a", "f", '{"x":1,"y":2}')],
    ),
    (
        "a lawful delta that begins like the buffer",
        stream(call(0, "a", "f", '{"x":'), call(0, None, None, '{"x":1}}'), "tool_calls"),
        [("a", "f", '{"x":{"x":1}}')],
    ),
    (
        "a lawful delta that begins like the buffer, and more",
        stream(
            *(call(0, id, "f", text) for id, text in (("a", '{"x":['), ("a", '{"x":[1'), ("a", "]}"), ("a", "]}"))),
            "stop",
        ),
        [("a", "f", '{"x":[{"x":[1]}]}')],
    ),
    (
        "a lawful delta that repeats the one before",
        stream(
            call(0, "a", "f", '{"x":"'),
            *(call(0, None, None, "ha") for _ in range(4)),
            call(0, None, None, '"}'),
            "stop",
        ),
        [("a", "f", '{"x":"hahahaha"}')],
    ),
    (
        "a placeholder before the arguments",
        stream(call(0, "a", "f", "{}"), call(0, None, None, '{"x":1}'), "tool_calls"),
        [("a", "f", '{"x":1}')],
    ),
    (
        "the whole call sent twice",
        stream(call(0, "a", "f", '{"x":1}'), call(0, "a", "f", '{"x":1}'), "tool_calls"),
        [("a", "f", '{"x":1}')],
    ),
    ("arguments as an object", stream(call(0, "a", "f", {"x": 1}), "stop"), [("a", "f", '{"x":1}')]),
    (
        "arguments null",
        stream({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": None}}]}, "stop"),
        [("a", "f", "")],
    ),
    (
        "calls that interleave",
        stream(
            call(0, "a", "f", ""),
            call(1, "b", "g", ""),
            call(0, None, None, '{"x"'),
            call(1, None, None, '{"y"'),
            call(0, None, None, ":1}"),
            call(1, None, None, ":2}"),
            "tool_calls",
        ),
        [("a", "f", '{"x":1}'), ("b", "g", '{"y":2}')],
    ),
    (
        "indices with a gap",
        stream(call(3, "a", "f", "{}"), call(7, "b", "g", "{}"), "tool_calls"),
        [("a", "f", "{}"), ("b", "g", "{}")],
    ),
    (
        "two finish reasons",
        stream(call(0, "a", "f", '{"x":1}'), "tool_calls", "stop"),
        [("a", "f", '{"x":1}')],
    ),
    (
        "empty content between the deltas of a call",
        stream(
            call(0, "a", "f", ""),
            {"content": ""},
            call(0, None, None, '{"x"'),
            {"content": ""},
            call(0, None, None, ":1}"),
            "stop",
        ),
        [("a", "f", '{"x":1}')],
    ),
    (
        "several calls in one delta",
        stream(
            {"tool_calls": [*call(0, "a", "f", "{}")["tool_calls"], *call(1, "b", "g", "{}")["tool_calls"]]}, "stop"
        ),
        [("a", "f", "{}"), ("b", "g", "{}")],
    ),
]


@pytest.mark.parametrize(("name", "data", "calls"), ACCENTS, ids=[name for name, _, _ in ACCENTS])
def test_calls_of_compatible_servers(name: str, data: bytes, calls: list[tuple[str, str, str]]) -> None:
    events = lawful(read_all(data))
    assert isinstance(events[-1], ResponseEnd)
    assert calls_of(fold(events)) == calls
    assert read_all(data, 3) == events
    assert sum(isinstance(event, ChoiceEnd) for event in events) == 1
    if name != "a placeholder before the arguments":
        assert added_up(write_all(events)) == calls


@pytest.mark.parametrize(
    "held",
    [
        (call(0, "a", "f", '{"x":'), call(0, None, None, '{"x":1}}')),
        ({"content": "Hi"}, call(0, "a", None, "{}")),
    ],
)
def test_a_text_beside_a_call_that_is_held_back_is_one(held: tuple[dict[str, object], ...]) -> None:
    events = read_all(stream(*held, *({"content": "x"} for _ in range(9)), call(0, None, "f", None), "tool_calls"))
    texts = [event for event in events if isinstance(event, PartStart) and isinstance(event.part, Text)]
    assert len(texts) == 1


def added_up(data: bytes) -> list[tuple[str, str, str]]:
    """Calls as a plain client of this protocol adds them up: by index, appending whatever comes."""
    found: list[list[str]] = []
    finishes = []
    for delta, finish in (
        (body["choices"][0]["delta"], body["choices"][0]["finish_reason"]) for _, body in frames(data) if body
    ):
        finishes += [finish] if finish else []
        for piece in delta.get("tool_calls", ()):
            if piece["index"] == len(found):
                found.append(["", "", ""])
            slot, function = found[piece["index"]], piece["function"]
            slot[0] += piece.get("id") or ""
            slot[1] += function.get("name") or ""
            slot[2] += function.get("arguments") or ""
    assert len(finishes) == 1
    return [(id, name, text) for id, name, text in found]


def chunk(delta: Any, index: Any = 0, **fields: Any) -> dict[str, Any]:
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "system_fingerprint": None}
    return {**head, "choices": [{"index": index, "delta": delta, "logprobs": None, "finish_reason": None}], **fields}


def piece(text: Any, index: Any = 0, choice: Any = 0, **fields: Any) -> dict[str, Any]:
    return chunk({"tool_calls": [{"index": index, **fields, "function": {"arguments": text}}]}, choice)


SAYING = [
    chunk({"role": "assistant", "content": ""}),
    *(chunk({"content": text}) for text in ("one ", "two ", "three ")),
]
CALLING = [
    chunk({"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}]}),
    *(piece(text) for text in ('{"key":', ' "va', "lu", 'e"')),
]
DETAILS = {"reasoning_details": [{"type": "reasoning.text", "text": "hm"}]}
THINKING = [SAYING[0], chunk({"reasoning": "hm", **DETAILS}), chunk({"reasoning": "hm", **DETAILS})]
LIKE = [
    (THINKING, chunk({"reasoning": "no copy", **DETAILS})),
    *((SAYING, chunk({"content": value})) for value in ("", None, 0, True, ["x"], [{"type": "text", "text": "x"}], {})),
    *((SAYING, chunk({"content": "x"}, value)) for value in (False, 0.0, None, 1, "0", 1000)),
    *((SAYING, chunk({"content": "x"}, **{key: value})) for key, value in (
        ("obfuscation", "abc"), ("created", 2), ("created", True), ("id", "c2"), ("id", None), ("service_tier", "x"),
        ("system_fingerprint", "fp"), ("usage", {"prompt_tokens": 1}), ("usage", []), ("error", {"message": "no"}),
        ("object", "error"), ("choices", []), ("choices", 0),
    )),
    *((SAYING, chunk({"content": "x", key: value})) for key, value in (
        ("role", "assistant"), ("refusal", "no"), ("refusal", 0), ("reasoning", "hm"), ("new", 1), ("tool_calls", []),
        ("annotations", [{}]), ("function_call", {}),
    )),
    (SAYING, chunk("x")),
    (SAYING, piece("{}")),
    *((CALLING, piece(value)) for value in ("", None, 0, {"a": 1}, '{"key": "value"}', '{"key": "value"')),
    *((CALLING, piece("x", value)) for value in (False, 0.0, None, 1, "0")),
    *((CALLING, piece("x", 0, value)) for value in (False, 1)),
    *((CALLING, piece("x", 0, **{key: value})) for key, value in (
        ("id", "a"), ("id", "b"), ("id", ""), ("type", "function"), ("type", "custom"), ("custom", {"input": "x"}),
        ("extra_content", {"google": {"thought_signature": "s"}}), ("new", 1),
    )),
    (CALLING, chunk({"content": "x"})),
]  # fmt: skip


@pytest.mark.parametrize(("before", "odd"), LIKE, ids=range(len(LIKE)))
def test_a_chunk_like_the_one_before_says_what_it_says_alone(before: Any, odd: dict[str, Any]) -> None:
    # What comes after a chunk without choices is like none before.
    apart = chunk({}, choices=[])
    runs = []
    for between in ([], [apart]):
        chunks = [item for one in (*before, odd, odd, before[-1]) for item in (one, *between)]
        data = b"".join(sse.write_data_frame(json_values.encode(item)) for item in chunks) + sse.write_data_frame(
            b"[DONE]"
        )
        events = [event for event in read_all(data) if not isinstance(event, OpaqueEvent) or event.frame.json != apart]
        strays = [stray.key for event in events if isinstance(event, ResponseEnd) for stray in event.unknown_fields]
        runs.append(
            ([re.sub(r"event/\d+", "", repr(strip_origins(event))) for event in events], strays, frames_of(events))
        )
    assert runs[0] == runs[1]


def frames_of(events: list[Event]) -> list[Any]:
    return [event.frame.json for event in events if event.frame is not None and not event.frame.silent]


def test_a_call_ends_when_the_next_one_begins() -> None:
    data = stream(call(0, "a", "f", ""), call(0, None, None, '{"x":1}'), call(1, "b", "g", ""), "tool_calls")
    kinds = [type(event) for event in read_all(data) if isinstance(event, (PartStart, PartEnd, ArgumentsDelta))]
    assert kinds == [PartStart, ArgumentsDelta, PartEnd, PartStart, PartEnd]


def test_channels_make_parts() -> None:
    data = stream(
        {"role": "assistant", "content": "", "reasoning_content": "h"},
        {"reasoning_content": "m", "content": None},
        {"content": "a", "tool_calls": call(0, "1", "f", "{}")["tool_calls"]},
        {"content": "b"},
        {"refusal": "no"},
        "tool_calls",
    )
    assert strip_origins(fold(lawful(read_all(data)))).choices[0].parts == (
        Reasoning("hm", "raw"),
        Text("a"),
        Call("1", "f", "{}"),
        Text("b"),
        Refusal("no"),
    )


def test_details_and_their_copy_count_once() -> None:
    entry = {"type": "reasoning.text", "format": "f1", "index": 0}
    data = stream(
        {"reasoning": "h", "reasoning_details": [{**entry, "text": "h"}]},
        {"reasoning": "m", "reasoning_details": [{**entry, "text": "m"}]},
        {"reasoning_details": [{**entry, "signature": "s"}]},
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": "d", "index": 1}]},
        {"content": "x"},
        "stop",
    )
    parts = strip_origins(fold(lawful(read_all(data)))).choices[0].parts
    assert parts == (
        Reasoning("hm", "raw", seal=Seal(NAME, '{"format":"f1","index":0,"signature":"s"}')),
        Reasoning("", "raw", True, Seal(NAME, '{"data":"d","index":1}')),
        Text("x"),
    )


def test_content_as_a_list_of_parts() -> None:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    data = stream({"content": [thought]}, {"content": [{"type": "text", "text": "x"}]}, "stop")
    assert strip_origins(fold(lawful(read_all(data)))).choices[0].parts == (Reasoning("hm", "raw"), Text("x"))


def test_a_first_chunk_without_an_answer_and_padding() -> None:
    first = sse.write_data_frame(
        b'{"id":"","object":"","created":0,"model":"","choices":[],"prompt_filter_results":[{"x":1}]}'
    )
    padded = stream({"content": "x"}, "stop").replace(
        b'"model":"m"', b'"model":"m","obfuscation":"zzz","service_tier":"t"'
    )
    events = lawful(read_all(b": comment\n\n" + first + b"event: ping\ndata:\n\n" + padded))
    assert isinstance(events[0], OpaqueEvent)
    assert events[0].is_ignorable
    assert fold(events).id == "c1"
    last = events[-1]
    assert isinstance(last, ResponseEnd)
    assert [stray.key for stray in last.unknown_fields] == ["prompt_filter_results", "service_tier"]


FAILURES: list[tuple[str, bytes, str, str]] = [
    ("cut in text", stream({"content": "x"}, done=False), "upstream", "stream_truncated"),
    ("cut in a call", stream(call(0, "a", "f", '{"x'), done=False), "upstream", "stream_truncated"),
    ("nothing at all", b"", "upstream", "stream_truncated"),
    ("only [DONE]", b"data: [DONE]\n\n", "upstream", "stream_truncated"),
    ("no JSON", stream({"content": "x"}, done=False) + b"data: {oops\n\n", "upstream", "invalid_stream"),
    ("no object", b"data: [1]\n\n", "upstream", "invalid_stream"),
    ("a wrong type", stream({"tool_calls": 5}), "upstream", "invalid_stream"),
    ("a choice beyond reason", b'data: {"id":"a","choices":[{"index":99999999999}]}\n\n', "upstream", "invalid_stream"),
    (
        "an index that is a list",
        stream({"tool_calls": [{"index": [0], "function": {"name": "f"}}]}),
        "upstream",
        "invalid_stream",
    ),
    (
        "a piece that belongs to no call",
        stream(call(0, "a", "f", "{"), call(1, "b", "g", "{"), call(None, None, None, "}")),
        "upstream",
        "invalid_stream",
    ),
    ("a call without a name", stream(call(0, "a", None, "{}"), "tool_calls"), "upstream", "invalid_stream"),
    (
        "more after complete arguments",
        stream(call(0, "a", "f", '{"x":1}'), call(1, "b", "g", ""), call(0, None, None, "}")),
        "upstream",
        "invalid_stream",
    ),
    (
        "an error object",
        b'data: {"error":{"message":"m","type":"server_error","code":null}}\n\n',
        "server",
        "server_error",
    ),
    (
        "an error event",
        b'event: error\ndata: {"error":{"message":"m","code":"tool_use_failed","status_code":400}}\n\n',
        "invalid",
        "tool_use_failed",
    ),
    ("an error as text", b'data: {"error":"overloaded"}\n\n', "server", ""),
    (
        "an error in a choice",
        b'data: {"id":"a","choices":[{"index":0,"error":{"code":429,"message":"slow"}}]}\n\n',
        "rate",
        "",
    ),
]


@pytest.mark.parametrize(("name", "data", "kind", "code"), FAILURES, ids=[name for name, *_ in FAILURES])
def test_streams_that_fail(name: str, data: bytes, kind: str, code: str) -> None:
    events = lawful(read_all(data))
    last = events[-1]
    assert isinstance(last, ResponseFailed)
    assert (last.failure.kind, last.failure.code) == (kind, code)
    assert read_all(data, 1) == events
    written = [body for _, body in frames(write_all(events))]
    assert "error" in written[-1] or "error" in written[-1]["choices"][0]
    assert None not in written


def test_a_frame_without_an_end_fails() -> None:
    reader = CODEC.make_stream_reader()
    reader._splitter = sse.SseSplitter(100)  # type: ignore[attr-defined]
    events = reader.feed(b"data: " + b"x" * 200)
    assert isinstance(events[-1], ResponseFailed)
    assert reader.feed(b"data: {}\n\n") == reader.close() == []


def test_done_is_an_end_and_a_finish_reason_is_one() -> None:
    without_done = lawful(read_all(stream({"content": "x"}, "stop", done=False)))
    assert isinstance(without_done[-1], ResponseEnd)
    assert frames(write_all(without_done)) == frames(stream({"content": "x"}, "stop", done=False))
    for data, kind in (
        (stream({"content": "x"}), "stop"),
        (stream(call(0, "a", "f", "{}")), "calls"),
        (stream(call(0, "a", "f", '{"x')), "length"),
    ):
        assert strip_origins(fold(lawful(read_all(data)))).choices[0].finish == Finish(kind)  # type: ignore[arg-type]


def test_a_call_that_was_cut_is_marked() -> None:
    response = fold(lawful(read_all(stream(call(0, "a", "f", "{}"), call(1, "b", "g", '{"x":"'), "length"))))
    first, second = response.choices[0].parts
    assert isinstance(first, Call)
    assert isinstance(second, Call)
    assert (first.incomplete, second.incomplete) == (False, True)
    whole = answer({"tool_calls": [{"id": "b", "function": {"name": "g", "arguments": '{"x":"'}}]}, "length")
    assert CODEC.read_response(whole).choices[0].parts[0].incomplete  # type: ignore[union-attr]


# --- streams written --------------------------------------------------------------------------------------------------

START = ResponseStart("r", "m", 1)
END = (ChoiceEnd(Finish("stop")), ResponseEnd())


def deltas(data: bytes) -> list[Any]:
    return [body["choices"][0]["delta"] for _, body in frames(data) if body and body.get("choices")]


def test_calls_that_interleave_are_put_in_line() -> None:
    events: list[Event] = [
        START,
        PartStart(5, Call("a", "f")),
        PartStart(9, Call("b", "g")),
        ArgumentsDelta(9, '{"y"'),
        ArgumentsDelta(5, '{"x"'),
        PartStart(11, Text("")),
        TextDelta(11, "t"),
        ArgumentsDelta(9, ":2}"),
        PartEnd(9),
        PartStart(12, Call("c", "h", kind="custom")),
        ArgumentsDelta(12, "raw"),
        ArgumentsDelta(5, ":1}"),
        PartEnd(11),
        PartEnd(5),
        PartEnd(12),
        *END,
    ]
    data = write_all(lawful(events))
    assert deltas(data) == [
        {
            "role": "assistant",
            "content": None,
            "refusal": None,
            "tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}],
        },
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"x"'}}]},
        {"content": "t"},
        {"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]},
        {"tool_calls": [{"index": 1, "id": "b", "type": "function", "function": {"name": "g", "arguments": ""}}]},
        {"tool_calls": [{"index": 1, "function": {"arguments": '{"y":2}'}}]},
        {"tool_calls": [{"index": 2, "id": "c", "type": "custom", "custom": {"name": "h", "input": ""}}]},
        {"tool_calls": [{"index": 2, "custom": {"input": "raw"}}]},
        {},
    ]
    assert data.endswith(b"data: [DONE]\n\n")
    assert frames(data)[-2][1]["choices"][0]["finish_reason"] == "tool_calls"


def test_a_call_without_arguments_ends_as_an_empty_object() -> None:
    data = write_all([START, PartStart(0, Call("a", "f")), PartEnd(0), *END])
    assert calls_of(fold(read_all(data))) == [("a", "f", "{}")]
    cut = write_all([START, PartStart(0, Call("a", "f")), PartEnd(0, True), ChoiceEnd(Finish("length")), ResponseEnd()])
    assert calls_of(fold(read_all(cut))) == [("a", "f", "")]


@pytest.mark.parametrize("asked_for", [None, True, False])
def test_usage_is_given_to_those_who_ask(asked_for: bool | None) -> None:
    options = {} if asked_for is None else {"stream_options": {"include_usage": asked_for}}
    request = CODEC.read_request(make_body(stream=True, **options))
    events: list[Event] = [
        START,
        PartStart(0, Text("")),
        TextDelta(0, "x"),
        PartEnd(0),
        END[0],
        UsageUpdate(Usage(3, 4)),
        END[1],
    ]
    bodies = [body for _, body in frames(write_all(events, WriteContext(request))) if body]
    if asked_for:
        assert bodies[-1]["choices"] == []
        assert bodies[-1]["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
        assert all(body["usage"] is None for body in bodies[:-1])
    else:
        assert all("usage" not in body for body in bodies)
    assert all(body["object"] == "chat.completion.chunk" for body in bodies)


def test_choices_appear_in_order() -> None:
    events: list[Event] = [
        START,
        PartStart(0, Text(""), 1),
        TextDelta(0, "b"),
        PartStart(1, Text(""), 0),
        TextDelta(1, "a"),
        PartEnd(0),
        PartEnd(1),
        ChoiceEnd(Finish("stop"), 1),
        ChoiceEnd(Finish("stop"), 0),
        ResponseEnd(),
    ]
    data = write_all(lawful(events))
    seen = [body["choices"][0]["index"] for _, body in frames(data) if body and body["choices"]]
    assert seen == [0, 1, 1, 0, 1, 0]
    assert [choice.parts for choice in strip_origins(fold(read_all(data))).choices] == [(Text("a"),), (Text("b"),)]


def test_failures_are_never_a_success() -> None:
    failure = Failure("overloaded", "busy", 529)
    data = write_all([START, PartStart(0, Text("")), TextDelta(0, "x"), ResponseFailed(failure)])
    assert frames(data)[-1][1]["error"]["code"] == "server_is_overloaded"
    assert b"DONE" not in data
    cut = write_all([START, PartStart(0, Text("")), TextDelta(0, "x")])
    assert frames(cut)[-1][1]["error"]["code"] == "stream_truncated"
    assert write_all([]).startswith(b'data: {"error"')


def chunks_of(*deltas: dict[str, Any]) -> list[bytes]:
    return [stream(delta, done=False) for delta in deltas]


def test_repeated_deltas_are_recognised_by_their_bytes_until_another_event_comes() -> None:
    reader = CODEC.make_stream_reader()
    more = chunks_of({"content": "a"}, {"content": "b"}, {"content": ""}, {"content": "c"})
    reader.feed(b"".join(more[:2]))
    assert [reader.read_repeat(data) for data in more] == ["a", "b", None, "c"]
    pieces = chunks_of(call(0, "i", "f", ""), call(0, text='{"a'), call(0, text='":"'), call(0, text='{"a":"b'))
    reader.feed(b"".join(pieces[:2]))
    assert reader.read_repeat(more[0]) is None
    reader.feed(pieces[2])
    # The last may repeat all arguments so far.
    assert [reader.read_repeat(data) for data in (pieces[0], pieces[3], pieces[2])] == [None, None, '":"']


def test_repeated_deltas_are_recognised_with_any_padding() -> None:
    reader = CODEC.make_stream_reader()
    around = b'data: {"choices":[{"index":0,"delta":{"content":"%b"}}],"usage":null,"obfuscation":"%b"}\n\n'
    reader.feed(around % (b"a", b"xyz") + around % (b"b", b"xy"))
    assert [reader.read_repeat(around % pair) for pair in ((b"c", b"x"), (b"d", b"x1Y"))] == ["c", "d"]
    for other in (
        around % (b"c", b'","error":"'),
        around % (b"c", b'"}x'),
        around.replace(b"null", b"{}") % (b"c", b"x"),
    ):
        assert reader.read_repeat(other) is None


@pytest.mark.parametrize(("count", "again"), [(7, "a"), (20, None)])
def test_after_eight_templates_without_a_match_no_more_are_made(count: int, again: str | None) -> None:
    reader = CODEC.make_stream_reader()
    data = chunks_of({"content": "a"})[0]
    for number in range(count):
        made = reader.feed(data.replace(b'"finish_reason"', b'"logprobs":{"n":%d},"finish_reason"' % number))
        assert made[-1].text == "a"
    reader.feed(data)
    assert reader.read_repeat(data) == again
    assert reader.feed(data)[0].text == "a"


def test_a_match_lets_more_templates_be_made() -> None:
    reader = CODEC.make_stream_reader()
    for number in range(40):
        (data,) = chunks_of({("content", "refusal")[number % 2]: "a"})
        reader.feed(data * 2)
        assert reader.read_repeat(data) == "a"


def test_what_a_stream_cannot_say_is_told() -> None:
    seal = Seal("other", "v")
    events: list[Event] = [
        START,
        PartStart(0, Reasoning()),
        TextDelta(0, "hm"),
        SealDelta(0, seal),
        PartEnd(0),
        PartStart(1, Call("a", "f")),
        PartEnd(1),
        PartStart(2, Text("")),
        CitationDelta(2, Citation("https://x", start=0, end=1)),
        TextDelta(2, "x"),
        PartEnd(2),
        OpaqueEvent("ping", Origin("other", None, {}), is_ignorable=True),
        OpaqueEvent("thing", Origin("other", None, {})),
        *END,
    ]
    data = write_all(lawful(events), book=(book := ledger()))
    assert [loss.code for loss in book.losses] == ["seal-dropped", "order-changed", "event-dropped"]
    assert {"reasoning_content": "hm"} in deltas(data)


def test_media_in_an_answer_travel_as_images() -> None:
    response = Response("r", "m", 1, (Choice(0, (Text("x"), Media("image", "image/png", "AA==")), Finish("stop")),))
    said = CODEC.write_response(response, ledger(), WriteContext())
    assert strip_origins(CODEC.read_response(said)).choices[0].parts == response.choices[0].parts
    assert (
        strip_origins(fold(lawful(read_all(write_all(unfold(response)))))).choices[0].parts == response.choices[0].parts
    )


# --- errors -----------------------------------------------------------------------------------------------------------


def error(message: str = "m", type_: str | None = "invalid_request_error", code: Any = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": type_, "param": None, "code": code}}


ERRORS: list[tuple[Any, int, str]] = [
    (error(), 400, "invalid"),
    (error(code="context_length_exceeded"), 400, "context"),
    (error("This model's maximum context length is 8192 tokens"), 400, "context"),
    (error(code="invalid_api_key"), 401, "authentication"),
    (error(), 403, "permission"),
    (error(code="model_not_found"), 404, "not_found"),
    (error(type_="requests", code="rate_limit_exceeded"), 429, "rate"),
    (error(type_="insufficient_quota", code="insufficient_quota"), 429, "quota"),
    (error(type_="insufficient_quota", code="monthly_spend_limit_exceeded"), 429, "quota"),
    (error(type_="insufficient_quota"), 402, "billing"),
    (error(type_="server_error"), 500, "server"),
    (error(type_="service_unavailable_error", code="server_is_overloaded"), 503, "overloaded"),
    (error(code=529), 0, "overloaded"),
    (error(code="429"), 0, "rate"),
    (error(), 413, "too_large"),
    (error(), 422, "unprocessable"),
    ("<html>Bad Gateway</html>", 502, "upstream"),
    (None, 504, "deadline"),
    ([error()], 409, "conflict"),
    ({"detail": "Not Found"}, 404, "not_found"),
    ({"error": "nope"}, 418, "invalid"),
    (7, 0, "server"),
]


@pytest.mark.parametrize(("body", "status", "kind"), ERRORS, ids=[f"{status} {body}" for body, status, _ in ERRORS])
def test_errors_read(body: Any, status: int, kind: str) -> None:
    failure = CODEC.read_error(body, status, {})
    assert failure.kind == kind
    assert failure.message
    sent = CODEC.write_error(failure)
    if kind == "context":
        assert sent.body["error"]["code"] == "context_length_exceeded"
    elif isinstance(body, dict) and "error" in body:
        assert sent.body is body
    again = CODEC.write_error(strip_origins(failure))
    assert isinstance(again.body["error"]["message"], str)
    assert CODEC.read_error(again.body, again.status, again.headers).kind == kind


@pytest.mark.parametrize(
    ("headers", "message", "seconds"),
    [
        ({"Retry-After": "3"}, "m", 3.0),
        ({"retry-after-ms": "250"}, "m", 0.25),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, "m", None),
        ({}, "Please try again in 1.5s.", 1.5),
        ({}, "try again in 20ms", 0.02),
        ({}, "try again later", None),
    ],
)
def test_when_to_try_again(headers: dict[str, str], message: str, seconds: float | None) -> None:
    failure = CODEC.read_error(error(message), 429, headers)
    assert failure.retry_after == (pytest.approx(seconds) if seconds is not None else None)
    sent = CODEC.write_error(failure)
    assert ("retry-after" in sent.headers) == (seconds is not None)


def test_errors_of_other_protocols_have_the_words_agents_look_for() -> None:
    sent = CODEC.write_error(Failure("context", "prompt is too long", 400, "theirs", origin=Origin("other", None, {})))
    assert (sent.status, sent.body["error"]["code"]) == (400, "context_length_exceeded")
    assert CODEC.write_error(Failure("overloaded", "busy", 529)).status == 503
    assert CODEC.write_error(Failure("rate", "slow", 429, retry_after=0.5)).headers == {
        "retry-after": "1",
        "retry-after-ms": "500",
    }


# --- the room itself --------------------------------------------------------------------------------------------------


def test_the_room_is_what_it_says() -> None:
    assert CODEC.http.request_path("any", True) == CODEC.http.request_path("any", False) == "/v1/chat/completions"
    assert CODEC.constraints.tool_name_pattern.fullmatch("a-b_C9")
    assert not CODEC.constraints.tool_name_pattern.fullmatch("a.b")
    assert family("openai/gpt-5.5") != family("gpt-5.5")


def test_bodies_are_plain_json() -> None:
    turn = Turn("assistant", (Text("x"), Call("a", "f", "{}")))
    json.loads(
        json_values.encode(CODEC.write_request(Request("m", turns=(turn,), tools=(Tool("f", "d", {}),)), ledger()))
    )


@pytest.mark.parametrize("kind", [{}, {"a": 1}, [], ["text"], 5, None])
def test_content_that_is_an_object_may_have_anything_as_its_type(kind: object) -> None:
    request = CODEC.read_request({"model": "m", "messages": [{"role": "user", "content": {"type": kind, "text": "x"}}]})
    (part,) = request.turns[0].parts
    assert isinstance(part, Text)
    assert json.loads(part.text) == {"type": kind, "text": "x"}
