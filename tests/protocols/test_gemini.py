"""The Gemini room: its laws over samples and recorded traffic, and tables of what is particular to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from material import SAMPLES, Recorded, corpus, needs_corpus
from toolwire.core.codec import WriteContext
from toolwire.core.events import (
    ArgumentsDelta,
    ChoiceEnd,
    Event,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
    SourceFrame,
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
    Media,
    Opaque,
    ProviderCall,
    ProviderResult,
    ProviderTool,
    Reasoning,
    Request,
    Response,
    Result,
    Seal,
    Settings,
    Text,
    Turn,
    Usage,
    replace_fields,
    strip_origins,
)
from toolwire.core.json_values import Malformed, decode, encode
from toolwire.core.losses import Ledger
from toolwire.protocols.gemini import CODEC

STREAMS = sorted((SAMPLES / "gemini").glob("*.sse")) + sorted((SAMPLES / "gemini").glob("[tf]*.array.json"))
NEGATIVE = sorted((SAMPLES / "negative").glob("gemini_*.sse"))
ids = [path.stem for path in [*STREAMS, *NEGATIVE]]


def ledger(source: str = "elsewhere") -> Ledger:
    return Ledger(source, "gemini")


def codes(book: Ledger) -> list[str]:
    return [loss.code for loss in book.losses]


def events_of(data: bytes, size: int = 0) -> list[Event]:
    reader = CODEC.make_stream_reader()
    pieces = [data[at : at + size] for at in range(0, len(data), size)] if size else [data]
    return [event for piece in pieces for event in reader.feed(piece)] + reader.close()


def write_events(events: Any, book: Ledger | None = None) -> bytes:
    writer = CODEC.make_stream_writer(book or ledger(), WriteContext())
    return b"".join(writer.write(event) for event in events) + writer.close()


def frames(data: bytes) -> list[Any]:
    assert data.endswith(b"\n\n")
    found = []
    for frame in data.split(b"\n\n")[:-1]:
        assert frame.startswith(b"data: {")
        assert b"\n" not in frame
        found.append(json.loads(frame[6:]))
    return found


def plain(value: Any) -> Any:
    """A written body as plain JSON values."""
    return json.loads(encode(value))


def write(request: Request, book: Ledger | None = None) -> Any:
    return plain(CODEC.write_request(request, book or ledger()))


def read(body: Any) -> Request:
    return CODEC.read_request(decode(json.dumps(body)))


def read_recordings(kind: str) -> list[Recorded]:
    found = [one for one in corpus() if one.protocol == "gemini"]
    if kind == "request":
        return [one for one in found if one.request is not None]
    if kind == "response":
        return [one for one in found if isinstance(one.response, dict) and "error" not in one.response]
    if kind == "error":
        return [one for one in found if one.status >= 400]
    return [one for one in found if one.bytes is not None]


def normalize_meaning(value: Any) -> Any:
    """What counts as the same meaning: no arguments and empty ones; an answer's words for one kind of ending."""
    if isinstance(value, tuple):
        return tuple(map(normalize_meaning, value))
    if isinstance(value, Call):
        return replace(value, arguments=value.arguments or "{}")
    if isinstance(value, Turn):
        return replace(value, parts=normalize_meaning(value.parts) or (Text(""),))
    if isinstance(value, Choice):
        return replace(value, parts=normalize_meaning(value.parts))
    if isinstance(value, Request):
        return replace(value, turns=normalize_meaning(value.turns), model="", has_provider_history=False)
    if isinstance(value, Response):
        return replace(value, choices=normalize_meaning(value.choices), usage=normalize_meaning(value.usage))
    if isinstance(value, Usage) and value.total is None:
        return replace(value, total=value.input + value.output)
    return value


def meaning(value: Any) -> Any:
    return normalize_meaning(strip_origins(value))


# --- requests: laws -------------------------------------------------------------------------------------------------

REQUESTS: dict[str, Any] = {
    one["path"].rsplit("/", 1)[1] + str(number): one["body"]
    for number, one in enumerate(json.loads((SAMPLES / "wire_requests.json").read_text()))
    if one["body"] and "contents" in one["body"]
}


@pytest.mark.parametrize("name", REQUESTS)
def test_sdk_requests_come_back_as_they_were_and_mean_the_same_rewritten(name: str) -> None:
    body = decode(json.dumps(REQUESTS[name]))
    request = CODEC.read_request(body)
    assert CODEC.write_request(request, ledger("gemini")) is body
    again = read(write(replace(strip_origins(request), model="gemini-3.8-flash")))
    assert meaning(again) == meaning(request)


def test_sdk_request_is_read_in_both_spellings() -> None:
    request = read(REQUESTS[next(iter(REQUESTS))])
    image, call = request.turns[0].parts[1], request.turns[1].parts[1]
    assert isinstance(image, Media)
    assert (image.kind, image.mime, image.data) == ("image", "image/png", "iVBORw==")
    assert isinstance(call, Call)
    assert call.seal == Seal("gemini", "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=")
    result = request.turns[2].parts[0]
    assert isinstance(result, Result)
    assert result.content[1:] == (replace(result.content[1], kind="image", name="i.png"),)
    assert [tool.tool for tool in request.tools if isinstance(tool, ProviderTool)] == [
        "web_search",
        "web_fetch",
        "code_execution",
        "computer",
        "file_search",
    ]
    assert [tool.kind for tool in request.tools if isinstance(tool, Opaque)] == ["mcpServers"]


@needs_corpus
def test_recorded_requests_come_back_as_they_were() -> None:
    refused = []
    for one in read_recordings("request"):
        body = decode(json.dumps(one.request))
        try:
            assert CODEC.write_request(CODEC.read_request(body), ledger("gemini")) is body
        except Malformed as bad:
            refused.append((one.status, bad.path))
    assert refused == [(400, "/contents/0/role")]


@needs_corpus
def test_recorded_requests_survive_node_by_node() -> None:
    """Law 1 below the whole: a request that lost only its own verbatim form is the same JSON."""
    for one in read_recordings("request"):
        if one.status >= 400:
            continue
        request = read(one.request)
        body = write(replace_fields(request, model=one.model), ledger("gemini"))
        wanted = {**one.request}
        if isinstance(wanted.get("tools"), dict):
            wanted["tools"] = [wanted["tools"]]
        if "tools" in body:
            body["tools"], wanted["tools"] = sort_declarations(body["tools"]), sort_declarations(wanted["tools"])
        wanted = {key: value for key, value in wanted.items() if value not in (None, [])}
        body.pop("model", None), wanted.pop("model", None)
        assert _without_placeholders(body) == _without_placeholders(_camel_settings(wanted, body)), one.name


def sort_declarations(tools: Any) -> list[Any]:
    return sorted(json.dumps(tool, sort_keys=True) for box in tools for tool in list_declarations(box))


def list_declarations(box: Any) -> list[Any]:
    for key in ("functionDeclarations", "function_declarations"):
        if key in box:
            return list(box[key])
    return [box]


def _without_placeholders(body: Any) -> Any:
    for content in body["contents"]:
        for part in content.get("parts", ()):
            if part.get("thoughtSignature") == "skip_thought_signature_validator":
                del part["thoughtSignature"]
    return body


def _camel_settings(wanted: Any, body: Any) -> Any:
    """Settings are no nodes of their own: they are written in camelCase."""
    if "generationConfig" in wanted:
        given = wanted["generationConfig"]
        assert sorted(map(_key, given)) == sorted(map(_key, body["generationConfig"]))
        wanted = {**wanted, "generationConfig": body["generationConfig"]}
    return wanted


def _key(name: str) -> str:
    return name.replace("_", "").lower()


@needs_corpus
def test_recorded_requests_mean_the_same_when_written_from_their_meaning() -> None:
    for one in read_recordings("request"):
        if one.status >= 400:
            continue
        request = replace(strip_origins(read(one.request)), model=one.model)
        book = ledger()
        again = read(write(request, book))
        wanted = meaning(request)
        if "thinking-mapped" in codes(book):
            wanted, again = (replace(each, settings=Settings()) for each in (wanted, again))
        if "signature-added" in codes(book):
            placed = Seal("gemini", "skip_thought_signature_validator")
            again = remove_seal(again, placed)
        if "id-rewritten" in codes(book):
            wanted, again = _without_ids(wanted), _without_ids(again)
        assert meaning(again) == wanted, one.name


def remove_seal(request: Request, placed: Seal) -> Request:
    turns = [
        replace(
            turn,
            parts=tuple(replace(p, seal=None) if isinstance(p, Call) and p.seal == placed else p for p in turn.parts),
        )
        for turn in request.turns
    ]
    return replace(request, turns=tuple(turns))


def _without_ids(request: Request) -> Request:
    turns = [
        replace(turn, parts=tuple(replace(p, id="") if isinstance(p, (Call, Result)) else p for p in turn.parts))
        for turn in request.turns
    ]
    return replace(request, turns=tuple(turns))


# --- answers and streams: laws --------------------------------------------------------------------------------------


@needs_corpus
def test_recorded_answers_come_back_and_mean_the_same_when_written_from_their_meaning() -> None:
    for one in read_recordings("response"):
        body = decode(json.dumps(one.response))
        response = CODEC.read_response(body)
        assert CODEC.write_response(response, ledger("gemini"), WriteContext()) is body
        again = CODEC.read_response(
            decode(encode(CODEC.write_response(strip_origins(response), ledger(), WriteContext())))
        )
        assert meaning(again) == meaning(response), one.name


@pytest.mark.parametrize("path", [*STREAMS, *NEGATIVE], ids=ids)
def test_streams_keep_the_grammar_however_they_are_cut(path: Path) -> None:
    data = path.read_bytes()
    events = events_of(data)
    checker = StreamChecker()
    assert [fault for event in events if (fault := checker.check_event(event))] == []
    assert checker.state == "done"
    for size in (1, 3, 11, 64):
        assert strip_origins(tuple(events_of(data, size))) == strip_origins(tuple(events))


@needs_corpus
def test_recorded_streams_keep_the_grammar_come_back_and_mean_the_same() -> None:
    for one in read_recordings("stream"):
        data = one.bytes or b""
        events = events_of(data)
        checker = StreamChecker()
        assert [fault for event in events if (fault := checker.check_event(event))] == [], one.name
        seen = [event.frame.json for event in events if event.frame is not None and not event.frame.silent]
        unique = [json for number, json in enumerate(seen) if number == 0 or json is not seen[number - 1]]
        assert frames(write_events(events)) == plain(unique), one.name
        if isinstance(events[-1], ResponseFailed):
            continue
        folded = fold(events)
        again = fold(events_of(write_events(unfold(strip_origins(folded)))))
        assert again.usage is not None or folded.usage is None
        assert join_seals(meaning(again)) == join_seals(meaning(folded)), one.name


def join_seals(response: Response) -> Any:
    """A seal comes behind the text that it was on, as a part of its own: the stream's own habit."""
    choices = []
    for choice in response.choices:
        parts: list[Any] = []
        for part in choice.parts:
            seal = getattr(part, "seal", None)
            if isinstance(part, (Text, Reasoning)) and part.text and seal is not None:
                parts += [replace(part, seal=None), replace(part, text="")]
            else:
                parts.append(part)
        merged: list[Any] = []
        for part in parts:
            if merged and type(part) is type(merged[-1]) in (Text, Reasoning) and not merged[-1].seal and not part.seal:
                merged[-1] = replace(merged[-1], text=merged[-1].text + part.text)
            else:
                merged.append(part)
        choices.append((choice.index, merged, choice.finish))
    return response.id, response.model, choices, response.usage


def test_an_answer_is_read_with_signatures_thoughts_and_finer_counts_in_their_order() -> None:
    call = {"functionCall": {"name": "find", "args": {"at": [1, 2.0], "far": 7}}, "thoughtSignature": "c2lnbmVk"}
    parts = [{"text": "Hm.", "thought": True}, {"text": ""}, {"text": "So."}, call, {"functionCall": {"name": "look"}}]
    ended = {"finishReason": "STOP", "finishMessage": "Done.", "avgLogprobs": -0.125}
    counts = {"trafficType": "ON_DEMAND", "promptTokenCount": 3, "promptTokensDetails": [{"tokenCount": 3}]}
    body = {"candidates": [{"content": {"parts": parts, "role": "model"}} | ended], "usageMetadata": counts}
    data = json.dumps(body | {"createTime": "2026-11-01T00:00:00Z"}, indent=2).encode()
    found = CODEC.read_response(decode(data))
    (choice,) = found.choices
    assert strip_origins(choice.parts) == (
        Reasoning("Hm.", "summary"),
        Text("So."),
        Call("", "find", '{"at":[1,2.0],"far":7}', seal=Seal("gemini", "c2lnbmVk")),
        Call("", "look", ""),
    )
    assert choice.finish is not None
    assert (choice.finish.kind, choice.finish.detail) == ("stop", "Done.")
    assert found.usage is not None
    assert found.usage.input == 3
    assert [stray.key for stray in found.unknown_fields] == ["avgLogprobs", "trafficType", "promptTokensDetails"]


@needs_corpus
def test_a_stream_folds_to_what_the_whole_answer_would_say() -> None:
    """Every recorded whole answer, sent as one chunk, folds to itself."""
    for one in read_recordings("response"):
        body = decode(json.dumps(one.response))
        whole = CODEC.read_response(body)
        folded = fold(events_of(b"data: " + encode(body) + b"\r\n\r\n"))
        assert folded.failure is None or whole.failure is not None
        if whole.failure is None and not any(isinstance(part, ProviderCall) for part in whole.choices[0].parts):
            assert join_seals(strip_origins(folded)) == join_seals(strip_origins(whole)), one.name


# --- streams: what each sample means --------------------------------------------------------------------------------

SIG = Seal("gemini", "EpQBCpEBAXLI2nw=")
PARIS = '{"location":"Paris"}'

OUTCOMES: dict[str, Any] = {
    "text": (Text("Hello there!"),),
    "text.array": (Text("Hello there!"),),
    "text_signature_in_last_empty_part": (Text("Hello there!"), Text("", seal=SIG)),
    "function_call": (Call("f1a2b3c4", "get_weather", PARIS, seal=SIG),),
    "function_call.array": (Call("f1a2b3c4", "get_weather", PARIS, seal=SIG),),
    "function_call_single_chunk": (Call("f1a2b3c4", "get_weather", PARIS, seal=SIG),),
    "function_call_no_args": (Call("f0", "list_files", "{}", seal=SIG),),
    "function_call_no_id_gemini25": (Call("", "get_weather", PARIS),),
    "parallel_same_function_one_chunk": (
        Call("c1", "get_weather", PARIS, seal=SIG),
        Call("c2", "get_weather", '{"location":"London"}'),
    ),
    "parallel_same_function_two_chunks": (
        Call("c1", "get_weather", PARIS, seal=SIG),
        Call("c2", "get_weather", '{"location":"London"}'),
    ),
    "thought_summary_then_function_call": (
        Reasoning("**Plan**\nNeed weather.", "summary"),
        Call("c1", "get_weather", PARIS, seal=SIG),
    ),
    "max_tokens": (Text("Once upon"),),
    "prompt_blocked": (),
    "safety_stop_no_content": (Text("Well"),),
    "continuation": (Text("part one part two"),),
    "code_execution": (
        ProviderCall("e1", "code_execution", '{"language":"PYTHON","code":"print(1+1)"}'),
        ProviderResult("e1", "code_execution", text="2\n"),
        Text("2"),
    ),
    "server_side_tool_invocations": (
        ProviderCall("t1", "web_search", '{"queries":["northernmost us city"]}'),
        ProviderResult("t1", "web_search", text='{"search_suggestions":"<html>"}'),
        Call("c9", "getWeather", '{"city":"Utqiagvik"}', seal=SIG),
    ),
    "vertex_partial_args": (Call("v1", "get_weather", '{"location":"Paris","days":3}', seal=SIG),),
    "gemini_args_missing": (Call("", "list_files", ""),),
    "gemini_args_null": (Call("", "list_files", ""),),
    "gemini_args_string": (Call("", "f", '{"a":1}'),),
    "gemini_comment_keepalive": (Text("Hello there!"),),
    "gemini_data_no_space": (Text("Hello there!"),),
    "gemini_done_sentinel": (Text("Hello there!"),),
    "gemini_event_lines": (Text("Hello there!"),),
    "gemini_last_chunk_without_parts": (Text("Hello"),),
    "gemini_raw_dummy_signature": (Call("c1", "f", "{}", seal=Seal("gemini", "context_engineering_is_the_way_to_go")),),
    "gemini_snake_case": (Call("", "f", "{}"),),
    "gemini_usage_only_last_chunk": (Text("Hello!"),),
    "malformed_function_call": ("upstream", "malformed_function_call"),
    "unexpected_tool_call": ("upstream", "unexpected_tool_call"),
    "error_midstream": ("overloaded", "UNAVAILABLE"),
    "error_midstream_bare_json": ("overloaded", "UNAVAILABLE"),
    "interactions_function_call": ("upstream", "stream_truncated"),
    "gemini_no_finish_reason": ("upstream", "stream_truncated"),
    "gemini_unknown_finish_reason": ("upstream", "missing_thought_signature"),
}
FINISHED = {
    "max_tokens": Finish("length", "MAX_TOKENS"),
    "prompt_blocked": Finish("filter", "PROHIBITED_CONTENT", detail="the prompt was blocked (PROHIBITED_CONTENT)"),
    "safety_stop_no_content": Finish("filter", "SAFETY"),
    "continuation": Finish("pause", "CONTINUATION"),
}


@pytest.mark.parametrize("path", [*STREAMS, *NEGATIVE], ids=ids)
def test_what_each_sample_means(path: Path) -> None:
    name = path.name.rpartition(".")[0]
    events = events_of(path.read_bytes())
    response = strip_origins(fold(events))
    wanted = OUTCOMES[name]
    if wanted and isinstance(wanted[0], str):
        assert (response.failure.kind, response.failure.code) == wanted
        return
    assert isinstance(events[-1], ResponseEnd)
    assert response.choices == (Choice(0, wanted, FINISHED.get(name, Finish("stop", "STOP"))),)
    assert response.usage.input in (12, 9, 3)
    if response.usage.total == 75:
        assert (response.usage.output, response.usage.reasoning) == (63, 60)


def test_the_whole_sample_and_its_stream_agree() -> None:
    whole = CODEC.read_response(decode((SAMPLES / "gemini" / "generate_content.json").read_bytes()))
    stream = fold(events_of((SAMPLES / "gemini" / "parallel_same_function_one_chunk.sse").read_bytes()))
    assert strip_origins(stream) == strip_origins(whole)


@pytest.mark.parametrize("path", STREAMS, ids=ids[: len(STREAMS)])
def test_a_stream_of_our_own_comes_back_frame_by_frame(path: Path) -> None:
    data = path.read_bytes()
    array = path.suffix == ".json"
    given = (
        json.loads(data) if array else [json.loads(line[5:]) for line in data.splitlines() if line[:7] == b"data: {"]
    )
    if path.stem == "error_midstream_bare_json":
        given.append(json.loads(data[data.rindex(b"\n{") :]))
    if path.stem == "interactions_function_call":
        given.append(
            {
                "error": {
                    "code": 502,
                    "message": "the provider's stream ended before its answer did (connection error): no finishReason came",
                    "status": "INTERNAL",
                }
            }
        )
    assert frames(write_events(events_of(data))) == given


def test_bytes_that_are_no_stream_are_failures() -> None:
    for data in (
        b"",
        b"data: {\r\n\r\n",
        b"data: 5\n\n",
        b"<html>no</html>",
        b"[",
        b'{"candidates":[',
        b"data: [1]\n\n",
    ):
        last = events_of(data)[-1]
        assert isinstance(last, ResponseFailed)
        assert last.failure.kind == "upstream"


@pytest.mark.parametrize(
    ("parts", "code"),
    [
        ([{"functionCall": {}}], "invalid_stream"),
        ([{"functionCall": {"name": "a", "willContinue": True}}, {"functionCall": {"name": "b"}}], None),
        ([{"functionCall": {"name": "a", "willContinue": True}}, {"functionCall": {"name": "b", "willContinue": True}}], "invalid_stream"),
        ([{"functionCall": {"name": "a", "args": 5}}], "invalid_stream"),
        ([{"text": "a"}, 5], "invalid_stream"),
        ([{"functionCall": {"name": "a", "partialArgs": [{"jsonPath": "$.a", "numberValue": 1}, {"jsonPath": "$.a.b", "numberValue": 1}]}}], "invalid_stream"),
    ],
)  # fmt: skip
def test_what_cannot_be_told_apart_fails(parts: Any, code: str | None) -> None:
    chunk = {"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]}
    failure = fold(events_of(b"data: " + json.dumps(chunk).encode() + b"\n\n")).failure
    assert (failure and failure.code) == code


def _chunk(part: Any, **more: Any) -> Any:
    return {"candidates": [{"content": {"parts": [part], "role": "model"}, "index": 0, **more}]}


@pytest.mark.parametrize(
    ("odd", "code"),
    [
        (_chunk({"text": "c"}), "stop"),
        (_chunk({"text": "c"}, index=0.0), "stop"),
        (_chunk({"text": "c"}, index=False), "invalid_stream"),
        (_chunk({"text": 5}), "invalid_stream"),
        (_chunk({"text": "c", "thought": 1}), "invalid_stream"),
        (_chunk({"text": "c"}) | {"usageMetadata": 5}, "stop"),
        (_chunk({"text": "c"}) | {"error": {"code": 503, "message": "m", "status": "UNAVAILABLE"}}, "UNAVAILABLE"),
    ],
)
def test_a_chunk_that_is_nearly_like_the_last_is_still_looked_at(odd: Any, code: str) -> None:
    chunks = [_chunk({"text": "a"}), _chunk({"text": "b"}), odd, _chunk({"text": "d"}, finishReason="STOP")]
    response = fold(events_of(b"".join(b"data: %b\n\n" % encode(chunk) for chunk in chunks)))
    assert (response.failure.code if response.failure else response.choices[0].finish.kind) == code
    if response.failure is None:
        assert "".join(part.text for part in response.choices[0].parts if isinstance(part, Text))[:2] == "ab"


@pytest.mark.parametrize("size", [0, 1, 100])
def test_an_error_without_its_data_is_found_behind_many_chunks(size: int) -> None:
    chunk = b"data: %b\n\n" % encode(_chunk({"text": "a"}))
    bare = b'{"error": {"code": 503, "message": "m",\n "status": "UNAVAILABLE"}}\n'
    reader = CODEC.make_stream_reader()
    for _ in range(40):
        reader.feed(chunk)
    pieces = [bare[at : at + size] for at in range(0, len(bare), size)] if size else [bare]
    events = [event for piece in pieces for event in reader.feed(piece)] + reader.close()
    assert isinstance(events[-1], ResponseFailed)
    assert events[-1].failure.code == "UNAVAILABLE"


def test_usage_alone_is_no_end() -> None:
    failure = fold(events_of(b'data: {"usageMetadata":{"promptTokenCount":3}}\n\n')).failure
    assert failure is not None
    assert failure.code == "stream_truncated"


def test_citations_reach_the_text_and_the_search_is_told() -> None:
    first = {"candidates": [{"content": {"parts": [{"text": "Zürich "}]}}]}
    last = {
        "candidates": [
            {
                "content": {"parts": [{"text": "is dry."}]},
                "finishReason": "STOP",
                "groundingMetadata": {
                    "webSearchQueries": ["weather"],
                    "groundingChunks": [{"web": {"uri": "https://a", "title": "A"}}],
                    "groundingSupports": [
                        {"segment": {"startIndex": 8, "endIndex": 15, "text": "is dry."}, "groundingChunkIndices": [0]}
                    ],
                },
            }
        ]
    }
    data = b"".join(b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in (first, last))
    response = strip_origins(fold(events_of(data)))
    source = Citation("https://a", "A")
    assert response.choices[0].parts == (
        Text("Zürich is dry.", (replace(source, start=7, end=14),)),
        ProviderCall(response.choices[0].parts[1].id, "web_search", '{"query":"weather"}'),
        ProviderResult(response.choices[0].parts[1].id, "web_search", (source,)),
    )
    for out in (
        frames(write_events(unfold(response)))[-1],
        plain(CODEC.write_response(response, ledger(), WriteContext())),
    ):
        assert out["candidates"][0]["groundingMetadata"] == last["candidates"][0]["groundingMetadata"]


# --- streams: writing -----------------------------------------------------------------------------------------------


def test_a_stream_is_written_as_bare_frames_and_ends_with_parts_a_reason_and_the_usage() -> None:
    response = Response(
        "r1",
        "m",
        choices=(
            Choice(
                0,
                (
                    Reasoning("Hm.", "summary", seal=Seal("gemini", "QQ==")),
                    Text("Let me look."),
                    Call("c1", "get", '{"a": 1.50}', seal=Seal("gemini/p/a/f", "Qg==")),
                    Call("c2", "get"),
                ),
                Finish("calls", "tool_calls"),
            ),
        ),
        usage=Usage(10, 7, cache_read=4, reasoning=2),
    )
    out = write_events(unfold(response))
    assert b'"args":{"a": 1.50}' in out
    parts = [part for frame in frames(out) for part in frame["candidates"][0]["content"]["parts"]]
    assert parts == [
        {"text": "Hm.", "thought": True},
        {"text": "", "thought": True, "thoughtSignature": "QQ=="},
        {"text": "Let me look."},
        {"functionCall": {"id": "c1", "name": "get", "args": {"a": 1.5}}, "thoughtSignature": "Qg=="},
        {"functionCall": {"id": "c2", "name": "get", "args": {}}},
        {"text": ""},
    ]
    assert frames(out)[-1] == {
        "candidates": [{"content": {"parts": [{"text": ""}], "role": "model"}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {
            "promptTokenCount": 10,
            "candidatesTokenCount": 5,
            "totalTokenCount": 17,
            "cachedContentTokenCount": 4,
            "thoughtsTokenCount": 2,
        },
        "modelVersion": "m",
        "responseId": "r1",
    }


def test_interleaved_parts_are_put_in_line() -> None:
    events = [
        ResponseStart("r"),
        PartStart(0, Text("")),
        TextDelta(0, "one "),
        PartStart(1, Call("c", "f")),
        PartStart(2, Text("")),
        TextDelta(2, "three"),
        ArgumentsDelta(1, "{}"),
        PartEnd(1),
        TextDelta(0, "two"),
        PartEnd(0),
        PartEnd(2),
        ChoiceEnd(Finish("stop")),
        ResponseEnd(),
    ]
    parts = [p for frame in frames(write_events(events)) for p in frame["candidates"][0]["content"]["parts"]]
    call = {"functionCall": {"id": "c", "name": "f", "args": {}}}
    assert parts == [{"text": "one "}, {"text": "two"}, call, {"text": "three"}, {"text": ""}]


def test_a_call_that_was_cut_is_not_sent_as_a_call() -> None:
    response = Response(choices=(Choice(0, (Call("c", "f", '{"a": ', incomplete=True),), Finish("calls")),))
    streamed, whole = ledger(), ledger()
    outs = (
        frames(write_events(unfold(response), streamed))[-1],
        plain(CODEC.write_response(response, whole, WriteContext())),
    )
    for book, out in zip((streamed, whole), outs, strict=True):
        assert out["candidates"][0]["finishReason"] == "MAX_TOKENS"
        assert out["candidates"][0]["content"]["parts"] == [{"text": ""}]
        assert codes(book) == ["arguments-dropped"]


def test_a_failure_ends_the_stream_as_an_error() -> None:
    failure = Failure("rate", "slow down", 429, retry_after=24.0)
    assert frames(write_events([ResponseStart(), ResponseFailed(failure)]))[-1] == {
        "error": {
            "code": 429,
            "message": "slow down",
            "status": "RESOURCE_EXHAUSTED",
            "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "24s"}],
        }
    }
    assert frames(write_events([ResponseStart()]))[-1]["error"]["code"] == 502


def test_an_end_without_its_frame_is_told_all_the_same() -> None:
    """Something on the way changed a call, so that its frame, which held the finishReason too, is gone."""
    events = events_of((SAMPLES / "gemini" / "function_call_single_chunk.sse").read_bytes())
    bare = [event if event.frame is None or event.frame.silent else replace(event, frame=None) for event in events]
    out = frames(write_events(bare))
    assert out[0]["candidates"][0]["content"]["parts"][0]["functionCall"]["name"] == "get_weather"
    assert out[-1]["candidates"][0]["finishReason"] == "STOP"
    assert out[-1]["usageMetadata"]["thoughtsTokenCount"] == 60


def test_no_sentinel_reaches_a_client() -> None:
    out = write_events(events_of((SAMPLES / "negative" / "gemini_done_sentinel.sse").read_bytes()))
    assert b"DONE" not in out
    assert isinstance(
        events_of((SAMPLES / "negative" / "gemini_done_sentinel.sse").read_bytes())[-2].frame, SourceFrame
    )


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n"])
@pytest.mark.parametrize("text_first", [True, False])
def test_repeated_texts_are_recognised_by_their_bytes_with_any_usage(end: bytes, text_first: bool) -> None:
    reader = CODEC.make_stream_reader()

    def chunk(text: bytes, counts: bytes) -> bytes:
        said = b'"candidates":[{"content":{"parts":[{"text":%b}],"role":"model"}}]' % text
        told = b'"usageMetadata":%b' % counts
        return b"data: {%b,%b}%b" % (*((said, told) if text_first else (told, said)), end)

    reader.feed(chunk(b'"a"', b'{"promptTokenCount":1}'))
    pieces = [
        (b'"b"', b'{"promptTokenCount":2}'),
        (b'"c"', b'{"promptTokenCount":2}'),
        (b'"c"', b"null"),
        (b'""', b"{}"),
    ]
    assert [reader.read_repeat(chunk(*piece)) for piece in pieces] == ["b", "c", None, None]
    # Not a chunk at all: what stands between text and counts is missing, or a line ends there.
    whole = chunk(b'"d"', b'{"promptTokenCount":1}')
    assert reader.read_repeat(whole.replace(b'],"role":"model"}}]', b"")) is None
    assert reader.read_repeat(whole.replace(b'{"promptTokenCount"', b'\n{"promptTokenCount"')) is None
    assert reader.read_repeat(chunk(b'"d"', b'{"promptTokenCount":5}')) == "d"
    stop = b'data: {"candidates":[{"content":{"parts":[{"text":""}]},"finishReason":"STOP"}]}' + end
    events = [*reader.feed(stop), *reader.close()]
    assert [event.usage.input for event in events if isinstance(event, UsageUpdate)] == [5]


@pytest.mark.parametrize("mode", [-1, -(2**70), 9, 2**70, 1.5])
def test_a_number_that_is_no_calling_mode_is_refused(mode: object) -> None:
    """Google's own clients send the modes as numbers, too."""
    tools = {
        "tools": [{"functionDeclarations": [{"name": "f"}]}],
        "toolConfig": {"functionCallingConfig": {"mode": mode}},
    }
    with pytest.raises(Malformed, match="mode"):
        CODEC.read_request({"contents": [{"parts": [{"text": "x"}]}], **tools})
