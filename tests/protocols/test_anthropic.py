"""The Anthropic room: what it reads and writes, by tables and laws. Laws between rooms stand in `tests/laws`."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import material
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
from toolwire.core.ids import derive_id
from toolwire.core.ir import (
    Call,
    Choice,
    Citation,
    Failure,
    Finish,
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
    ToolReference,
    Turn,
    Usage,
    replace_fields,
    strip_origins,
)
from toolwire.core.json_values import Malformed, decode, encode
from toolwire.core.losses import Ledger
from toolwire.core.response_format import ONLY_JSON_INSTRUCTION
from toolwire.core.sse import SseSplitter
from toolwire.protocols.anthropic import CODEC, CONSTRAINTS
from toolwire.protocols.anthropic.models import UNKNOWN_FAMILY, family
from toolwire.protocols.anthropic.names import ANSWER_BLOCK_DEFAULTS, NAME
from toolwire.schema.object_root import convert_to_object_root
from toolwire.schema.repair import drop_invalid_keywords
from toolwire.schema.standard import convert_to_standard

HERE = Path(__file__).parents[1]
SAMPLES = sorted((HERE / "samples" / "anthropic").glob("*.sse"))
NEGATIVE = sorted((HERE / "samples" / "negative").glob("anthropic_*.sse"))
CORPUS = material.CORPUS / "anthropic"

ELSEWHERE = Origin("elsewhere", None, {})
"""The stamp of a node that was read from another wire."""


@pytest.fixture(scope="module")
def corpus() -> list[tuple[str, dict[str, Any]]]:
    if not CORPUS.exists():
        pytest.skip("the recorded corpus is not here")
    return [(path.name, decode(path.read_bytes())) for path in sorted(CORPUS.glob("*.json"))]


# --- doing things -----------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Wire JSON as the peer would see it."""
    return json.loads(encode(value))


def meaning(response: Response) -> Response:
    """An answer without origins. Counts of the cache that were not sent are written as 0, and searches are counted."""
    bare: Response = strip_origins(response)
    usage = bare.usage
    if usage is not None:
        parts = [part for choice in bare.choices for part in choice.parts]
        searches = sum(isinstance(part, ProviderCall) and part.tool == "web_search" for part in parts)
        usage = replace(usage, cache_read=usage.cache_read or 0, cache_write=usage.cache_write or 0)
        usage = replace(usage, searches=usage.searches or searches or None)
    return replace(bare, usage=usage)


def ledger() -> Ledger:
    return Ledger("elsewhere", NAME)


def codes(book: Ledger) -> list[str]:
    return [loss.code for loss in book.losses]


def events_of(data: bytes, size: int = 0) -> list[Event]:
    reader = CODEC.make_stream_reader()
    pieces = [data[at : at + size] for at in range(0, len(data), size)] if size else [data]
    return [event for piece in pieces for event in reader.feed(piece)] + reader.close()


def write_events(events: Iterable[Event], book: Ledger | None = None, context: WriteContext | None = None) -> bytes:
    writer = CODEC.make_stream_writer(book or ledger(), context or WriteContext())
    return b"".join([writer.write(event) for event in events]) + writer.close()


def frames(data: bytes) -> list[tuple[str | None, Any]]:
    splitter = SseSplitter()
    found = [*splitter.feed(data), *splitter.close()]
    return [(frame.event, json.loads(frame.data) if frame.data[:1] == b"{" else frame.data) for frame in found]


def faults(events: list[Event]) -> list[str]:
    checker = StreamChecker()
    return [fault.message for event in events if (fault := checker.check_event(event))]


def body(**more: Any) -> dict[str, Any]:
    return {"model": "claude-opus-4-5", "max_tokens": 1000, "messages": [{"role": "user", "content": "Hi"}], **more}


def make_request(*turns: Turn, model: str = "claude-opus-4-5", **fields: Any) -> Request:
    """A request that was read from another wire."""
    settings = fields.pop("settings", Settings(max_tokens=1000))
    turns = turns or (Turn("user", (Text("Hi"),)),)
    return Request(model, turns=turns, settings=settings, origin=ELSEWHERE, **fields)


def write_body(request: Request) -> tuple[dict[str, Any], list[str]]:
    book = ledger()
    return plain(CODEC.write_request(request, book)), codes(book)


def answer(*parts: Any, finish: Finish | None = None, usage: Usage | None = None) -> Response:
    return Response("resp_1", "gpt", None, (Choice(0, parts, finish or Finish("stop")),), usage or Usage(10, 5))


# --- laws over samples and the recorded corpus ------------------------------------------------------------------------


@pytest.mark.parametrize("path", [*SAMPLES, *NEGATIVE], ids=lambda path: path.stem)
def test_a_sample_keeps_the_grammar_however_it_is_cut(path: Path) -> None:
    data = path.read_bytes()
    events = events_of(data)
    assert faults(events) == []
    assert [event for event in events if event.frame is None] == []
    for size in (1, 3, 50):
        assert events_of(data, size) == events


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_a_sample_comes_back_as_it_was(path: Path) -> None:
    data = path.read_bytes()
    assert frames(write_events(events_of(data))) == frames(data)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_a_sample_written_from_its_meaning_means_the_same(path: Path) -> None:
    meant = strip_origins(fold(events_of(path.read_bytes())))
    again = events_of(write_events(unfold(meant)))
    assert faults(again) == []
    if meant.failure is None:
        assert meaning(fold(again)) == meaning(meant)
    else:
        assert isinstance(again[-1], ResponseFailed)


def test_folding_a_stream_gives_what_reading_the_whole_gives() -> None:
    message = decode((HERE / "samples" / "anthropic" / "message_tool_use.json").read_bytes())
    whole = CODEC.read_response(message)
    assert strip_origins(fold(events_of(write_events(unfold(strip_origins(whole)))))) == strip_origins(whole)
    assert whole.choices[0].parts[2].arguments == '{"location":"Paris"}'  # type: ignore[union-attr]


def test_recorded_requests_keep_the_laws(corpus: list[tuple[str, dict[str, Any]]]) -> None:
    lossy = {"0238.json": "citation-dropped", "0386.json": "empty-omitted"}
    for name, record in corpus:
        wire = record.get("request")
        if not wire or (record["status"] == 400 and name == "0028.json"):
            continue
        request = CODEC.read_request(wire)
        assert CODEC.write_request(request, ledger()) is wire, name
        moved = plain(CODEC.write_request(replace_fields(request, model="another"), book := ledger()))
        assert (moved, codes(book)) == ({**plain(wire), "model": "another"}, []), name
        meant = strip_origins(request)
        again = strip_origins(CODEC.read_request(decode(encode(CODEC.write_request(meant, book := ledger())))))
        assert again == meant or lossy[name] in codes(book), name


def test_recorded_answers_keep_the_laws(corpus: list[tuple[str, dict[str, Any]]]) -> None:
    for name, record in corpus:
        wire = record.get("response")
        if not isinstance(wire, dict) or "content" not in wire:
            continue
        response = CODEC.read_response(wire)
        assert CODEC.write_response(response, ledger(), WriteContext()) is wire, name
        meant = meaning(response)
        assert (
            strip_origins(CODEC.read_response(decode(encode(CODEC.write_response(meant, ledger(), WriteContext())))))
            == meant
        ), name
        assert strip_origins(fold(events_of(write_events(unfold(meant))))) == meant, name


def test_recorded_streams_keep_the_laws(corpus: list[tuple[str, dict[str, Any]]]) -> None:
    for name, record in corpus:
        if not record.get("sse"):
            continue
        data = record["sse"].encode()
        events = events_of(data)
        assert faults(events) == [], name
        assert events_of(data, 11) == events, name
        if name == "0460.json":
            # Two messages spliced into one another: nobody can tell which of them is meant.
            assert isinstance(events[-1], ResponseFailed)
            continue
        assert frames(write_events(events)) == frames(data), name
        meant = meaning(fold(events))
        assert strip_origins(fold(events_of(write_events(unfold(meant))))) == meant, name


def test_recorded_errors_are_read(corpus: list[tuple[str, dict[str, Any]]]) -> None:
    kinds = {400: "invalid", 401: "authentication", 404: "not_found"}
    for name, record in corpus:
        if record["status"] >= 400 and "error" in (record["response"] or {}):
            failure = CODEC.read_error(record["response"], record["status"], {})
            assert failure.kind == kinds[record["status"]], name
            assert CODEC.write_error(failure).body is record["response"]


# --- streams: what the reader makes of deviations ---------------------------------------------------------------------

OUTCOMES: dict[str, Any] = {
    "comment_keepalive": "Hello!",
    "data_only_no_event_lines": "Hello!",
    "delta_without_usage": "hi",
    "done_sentinel": "Hello!",
    "index_gap": "hi",
    "interleaved_blocks": [("a", '{"x":1}'), ("b", '{"y":2}')],
    "invalid_tool_json": [("a", '{"x": }')],
    "missing_message_start": "hi",
    "missing_stop_events": "hi",
    "signature_split": "",
    "tool_input_in_start_and_deltas": [("a", '{"y":2}')],
    "tool_input_in_start_no_delta": [("a", '{"x":1}')],
    "two_message_deltas": "hi",
    "unknown_event": "hi",
}


@pytest.mark.parametrize("path", NEGATIVE, ids=lambda path: path.stem)
def test_deviations_are_read_for_what_they_mean(path: Path) -> None:
    response = fold(events_of(path.read_bytes()))
    assert response.failure is None
    parts = response.choices[0].parts
    calls = [(part.name, part.arguments) for part in parts if isinstance(part, Call)]
    text = "".join(part.text for part in parts if isinstance(part, Text))
    assert (calls or text) == OUTCOMES[path.stem.removeprefix("anthropic_")]


def test_a_later_delta_replaces_the_signature_and_keeps_the_reason() -> None:
    split = fold(events_of((HERE / "samples/negative/anthropic_signature_split.sse").read_bytes()))
    assert split.choices[0].parts[0].seal == Seal(NAME, "BBB")  # type: ignore[union-attr]
    twice = fold(events_of((HERE / "samples/negative/anthropic_two_message_deltas.sse").read_bytes()))
    assert twice.choices[0].finish is not None
    assert (twice.choices[0].finish.kind, twice.usage and twice.usage.output) == ("calls", 4)


def test_broken_arguments_are_marked() -> None:
    cut = fold(events_of((HERE / "samples/anthropic/max_tokens_truncated_tool_json.sse").read_bytes())).choices[0]
    assert isinstance(cut.parts[0], Call)
    assert cut.parts[0].incomplete
    assert cut.finish is not None
    assert cut.finish.kind == "length"


def test_an_unknown_event_is_carried_and_a_ping_is_quiet() -> None:
    events = events_of((HERE / "samples/negative/anthropic_unknown_event.sse").read_bytes())
    assert [(event.kind, event.is_ignorable) for event in events if isinstance(event, OpaqueEvent)] == [
        ("brand_new_event", False)
    ]
    events = events_of((HERE / "samples/anthropic/text.sse").read_bytes())
    assert [(event.kind, event.is_ignorable) for event in events if isinstance(event, OpaqueEvent)] == [("ping", True)]


def sse(*nodes: dict[str, Any]) -> bytes:
    return b"".join(b"event: %b\ndata: %b\n\n" % (node["type"].encode(), encode(node)) for node in nodes)


START: dict[str, Any] = {
    "type": "message_start",
    "message": {"id": "msg_1", "model": "m", "content": [], "usage": {"input_tokens": 3}},
}
TEXT_0: dict[str, Any] = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
CALL_1: dict[str, Any] = {
    "type": "content_block_start",
    "index": 1,
    "content_block": {"type": "tool_use", "id": "t1", "name": "f", "input": {}},
}
STOPPED: dict[str, Any] = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 4}}
END: dict[str, Any] = {"type": "message_stop"}


def delta(index: int | None, **fields: Any) -> dict[str, Any]:
    at = {} if index is None else {"index": index}
    return {"type": "content_block_delta", **at, "delta": fields}


BROKEN: dict[str, tuple[bytes, str]] = {
    "nothing at all": (b"", "stream_truncated"),
    "only a start": (sse(START), "stream_truncated"),
    "cut inside a call": (
        sse(START, CALL_1, delta(1, type="input_json_delta", partial_json='{"a":')),
        "stream_truncated",
    ),
    "no JSON": (sse(START) + b"event: ping\ndata: {oops\n\n", "invalid_stream"),
    "no object": (sse(START) + b"data: [1]\n\n", "invalid_stream"),
    "a delta without a block": (sse(START, delta(0, type="text_delta", text="x")), "invalid_stream"),
    "a delta without a number": (
        sse(START, TEXT_0, CALL_1, delta(None, type="text_delta", text="x")),
        "invalid_stream",
    ),
    "a delta of another kind": (
        sse(START, TEXT_0, delta(0, type="input_json_delta", partial_json="x")),
        "invalid_stream",
    ),
    "a delta that is no text": (sse(START, TEXT_0, delta(0, type="text_delta", text=5)), "invalid_stream"),
    "a block that starts twice": (sse(START, TEXT_0, TEXT_0), "invalid_stream"),
    "a second start": (sse(START, {**START, "message": {**START["message"], "id": "msg_2"}}), "invalid_stream"),
    "a block that is no object": (sse(START, {**TEXT_0, "content_block": 7}), "invalid_stream"),
    "an error without a type": (sse(START) + b'data: {"error":{"message":"no"}}\n\n', ""),
    "an error of the provider": (
        sse(START, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
        "overloaded_error",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_stream_is_a_failure_and_nothing_follows(name: str) -> None:
    data, code = BROKEN[name]
    events = events_of(data)
    assert faults(events) == []
    assert isinstance(events[-1], ResponseFailed)
    assert events[-1].failure.code == code
    assert events_of(data + sse(TEXT_0, END)[:10])[-1] == events[-1] or code == "stream_truncated"
    assert frames(write_events(events))[-1][0] == "error"


@pytest.mark.parametrize("number", ["7", "null"])
def test_a_block_that_is_not_open_is_named_as_it_was_spelled(number: str) -> None:
    event = b'{"type":"content_block_delta","index":%b,"delta":{"type":"text_delta","text":"a"}}' % number.encode()
    failed = events_of(sse(START) + b"data: " + event + b"\n\n")[-1]
    assert isinstance(failed, ResponseFailed)
    shown = {"null": "None"}.get(number, number)
    assert failed.failure.message.endswith(f"block {shown} is not open")


def test_repeated_deltas_are_recognised_by_their_bytes_until_another_event_comes() -> None:
    reader = CODEC.make_stream_reader()
    more = [sse(delta(0, type="text_delta", text=text)) for text in ("a", "b", "", "c")]
    reader.feed(sse(START, TEXT_0))
    assert reader.read_repeat(more[0]) is None
    reader.feed(more[0])
    assert [reader.read_repeat(data) for data in more] == ["a", "b", None, "c"]
    reader.feed(sse({"type": "ping"}))
    assert reader.read_repeat(more[0]) is None


def test_a_frame_that_names_nothing_is_carried() -> None:
    data = sse(START) + b"data: {}\n\n" + sse(STOPPED, END)
    assert frames(write_events(events_of(data))) == frames(data)


def test_a_reason_is_end_enough() -> None:
    events = events_of(sse(START, STOPPED))
    assert isinstance(events[-1], ResponseEnd)
    assert events[-1].frame is not None
    assert events[-1].frame.silent


def test_the_only_open_block_is_meant_when_no_number_is_given() -> None:
    """The seeds' snippet: no message_start, no indices, no input."""
    nodes = [
        {"type": "content_block_start", "content_block": {"type": "tool_use", "id": "call_123", "name": "run"}},
        delta(None, type="input_json_delta", partial_json='{"command":"ls -la"}'),
        {"type": "content_block_stop"},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
    ]
    response = fold(events_of(sse(*nodes)))
    assert strip_origins(response.choices[0].parts) == (Call("call_123", "run", '{"command":"ls -la"}'),)


def test_strays_of_a_stream_are_told_once() -> None:
    nodes: list[dict[str, Any]] = [
        START,
        TEXT_0,
        *[delta(0, type="text_delta", text="x", mood="calm")] * 3,
        {**STOPPED, "more": 1},
        END,
    ]
    events = events_of(sse(*nodes))
    assert isinstance(events[-1], ResponseEnd)
    assert sorted(stray.key for stray in events[-1].unknown_fields) == ["mood", "more"]


WORD: dict[str, Any] = delta(0, type="text_delta", text="so")
UNLIKE: dict[str, tuple[dict[str, Any], type[Event]]] = {
    "the same": (WORD, TextDelta),
    "another text": (delta(0, type="text_delta", text="é"), TextDelta),
    "no text": (delta(0, type="text_delta", text=""), OpaqueEvent),
    "no string": (delta(0, type="text_delta", text=None), ResponseFailed),
    "a number with a point": ({**WORD, "index": 0.0}, TextDelta),
    "half of a number": ({**WORD, "index": 0.5}, ResponseFailed),
    "another number": ({**WORD, "index": 1}, ResponseFailed),
    "another kind of the wire": (delta(0, type="thinking_delta", thinking="so"), ResponseFailed),
    "a kind that nobody knows": (delta(0, type="voice_delta", text="so"), OpaqueEvent),
    "a second key": (delta(0, type="text_delta", text="so", mood="calm"), TextDelta),
    "a key beside": ({**WORD, "mood": "calm"}, TextDelta),
    "another frame": ({**WORD, "type": "content_block_noise"}, OpaqueEvent),
}


@pytest.mark.parametrize("name", UNLIKE)
def test_a_delta_is_looked_at_also_after_others_like_it(name: str) -> None:
    node, kind = UNLIKE[name]
    reader = CODEC.make_stream_reader()
    before = reader.feed(sse(START, TEXT_0, WORD, WORD))
    assert [type(event) for event in before[-2:]] == [TextDelta, TextDelta]
    (event,) = reader.feed(sse(node))
    assert type(event) is kind
    assert kind is ResponseFailed or write_events([event]).startswith(sse(node))


def test_unknown_blocks_are_whole_at_their_end() -> None:
    block = {"type": "mcp_tool_use", "id": "m1", "name": "echo", "server_name": "s", "input": {}}
    start = {"type": "content_block_start", "index": 0, "content_block": block}
    more = delta(0, type="input_json_delta", partial_json='{"a":1}')
    data = sse(START, start, more, {"type": "content_block_stop", "index": 0}, STOPPED, END)
    (part,) = fold(events_of(data)).choices[0].parts
    assert isinstance(part, Opaque)
    assert part.origin.wire == {**block, "input": {"a": 1}}
    assert frames(write_events(events_of(data))) == frames(data)


# --- streams: what the writer makes of other protocols' events --------------------------------------------------------


def blocks_of(data: bytes) -> list[dict[str, Any]]:
    """The content that a client accumulates, checked for order and numbering on the way."""
    content: list[dict[str, Any]] = []
    is_open = False
    for event, node in frames(data):
        assert event == node["type"]
        if event == "content_block_start":
            assert not is_open
            assert node["index"] == len(content)
            content.append({**node["content_block"], "json": ""})
            is_open = True
        elif event == "content_block_delta":
            assert is_open
            assert node["index"] == len(content) - 1
            block, change = content[-1], node["delta"]
            key = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}.get(
                change["type"]
            )
            if key == "partial_json":
                block["json"] += change[key]
            elif key:
                block[key] += change[key]
            elif change["type"] == "signature_delta":
                block["signature"] = change["signature"]
            else:
                block["citations"] = [*(block.get("citations") or ()), change["citation"]]
        elif event == "content_block_stop":
            is_open = False
    assert not is_open
    return [{key: value for key, value in block.items() if key != "json" or value} for block in content]


def make_events(*events: Event, finish: str = "stop") -> list[Event]:
    return [ResponseStart("r", "m"), *events, ChoiceEnd(Finish(finish)), UsageUpdate(Usage(9, 2)), ResponseEnd()]  # type: ignore[arg-type]


def call(index: int, name: str = "f") -> PartStart:
    return PartStart(index, Call(f"c{index}", name))


WRITTEN: dict[str, tuple[list[Event], list[dict[str, Any]]]] = {
    "no empty text": (
        [PartStart(0, Text("")), TextDelta(0, ""), PartEnd(0), call(1), ArgumentsDelta(1, '{"a":1}'), PartEnd(1)],
        [{"type": "tool_use", "id": "c1", "name": "f", "input": {}, "json": '{"a":1}'}],
    ),
    "a call without arguments": (
        [call(0), PartEnd(0), call(1), ArgumentsDelta(1, " "), PartEnd(1)],
        [
            {"type": "tool_use", "id": "c0", "name": "f", "input": {}, "json": "{}"},
            {"type": "tool_use", "id": "c1", "name": "f", "input": {}, "json": " {}"},
        ],
    ),
    "a call that came whole": (
        [PartStart(0, Call("c0", "f", '{"a":1}')), PartEnd(0)],
        [{"type": "tool_use", "id": "c0", "name": "f", "input": {}, "json": '{"a":1}'}],
    ),
    "two calls interleaved": (
        [
            call(0),
            call(1),
            ArgumentsDelta(1, '{"y"'),
            ArgumentsDelta(0, '{"x":1}'),
            ArgumentsDelta(1, ":2}"),
            PartEnd(1),
            PartEnd(0),
        ],
        [
            {"type": "tool_use", "id": "c0", "name": "f", "input": {}, "json": '{"x":1}'},
            {"type": "tool_use", "id": "c1", "name": "f", "input": {}, "json": '{"y":2}'},
        ],
    ),
    "text that stays open under a call": (
        [
            PartStart(0, Text("")),
            TextDelta(0, "Hm"),
            call(1),
            ArgumentsDelta(1, "{}"),
            TextDelta(0, " so"),
            PartEnd(1),
            PartEnd(0),
        ],
        [
            {"type": "text", "text": "Hm"},
            {"type": "tool_use", "id": "c1", "name": "f", "input": {}, "json": "{}"},
            {"type": "text", "text": " so"},
        ],
    ),
    "thinking that stays open under text": (
        [
            PartStart(0, Reasoning()),
            TextDelta(0, "Hm"),
            PartStart(1, Text("")),
            TextDelta(1, "Yes"),
            PartEnd(1),
            SealDelta(0, Seal(NAME, "sig")),
            PartEnd(0),
        ],
        [
            {"type": "thinking", "thinking": "Hm", "signature": ""},
            {"type": "text", "text": "Yes"},
            {"type": "thinking", "thinking": "", "signature": "sig"},
        ],
    ),
    "a signature comes whole and last": (
        [PartStart(0, Reasoning()), SealDelta(0, Seal("anthropic/a/b", "sig")), TextDelta(0, "Hm"), PartEnd(0)],
        [{"type": "thinking", "thinking": "Hm", "signature": "sig"}],
    ),
    "thinking without a signature": (
        [PartStart(0, Reasoning()), TextDelta(0, "Hm"), PartEnd(0), PartStart(1, Reasoning()), PartEnd(1)],
        [{"type": "thinking", "thinking": "Hm", "signature": ""}],
    ),
    "hidden thinking": (
        [PartStart(0, Reasoning(hidden=True)), SealDelta(0, Seal(NAME, "blob")), PartEnd(0)],
        [{"type": "redacted_thinking", "data": "blob"}],
    ),
    "a search": (
        [
            PartStart(0, ProviderCall("ws_1", "web_search", '{"query":"x"}')),
            PartEnd(0),
            PartStart(1, ProviderResult("ws_1", "web_search", (Citation("https://a", "A"),))),
            PartEnd(1),
            PartStart(2, Text("")),
            TextDelta(2, "Sunny"),
            CitationDelta(2, Citation("https://a", "A", "sunny")),
            PartEnd(2),
        ],
        [
            {
                "type": "server_tool_use",
                "id": "srvtoolu_ws_1",
                "name": "web_search",
                "input": {},
                "json": '{"query":"x"}',
            },
            {
                "type": "web_search_tool_result",
                "tool_use_id": "srvtoolu_ws_1",
                "content": [
                    {
                        "type": "web_search_result",
                        "url": "https://a",
                        "title": "A",
                        "encrypted_content": "",
                        "page_age": None,
                    }
                ],
            },
            {
                "type": "text",
                "text": "Sunny",
                "citations": [
                    {
                        "type": "web_search_result_location",
                        "cited_text": "sunny",
                        "url": "https://a",
                        "title": "A",
                        "encrypted_index": "",
                    }
                ],
            },
        ],
    ),
    "another answer": (
        [PartStart(0, Text("one")), PartEnd(0), PartStart(1, Text("two"), 1), TextDelta(1, "!"), PartEnd(1)],
        [{"type": "text", "text": "one"}],
    ),
    "raw input": (
        [PartStart(0, Call("c0", "f", kind="custom")), ArgumentsDelta(0, "*** Begin"), PartEnd(0)],
        [{"type": "tool_use", "id": "c0", "name": "f", "input": {}, "json": '{"_raw":"*** Begin"}'}],
    ),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_blocks_come_one_at_a_time(name: str) -> None:
    events, blocks = WRITTEN[name]
    data = write_events(make_events(*events))
    assert blocks_of(data) == [
        dict([ANSWER_BLOCK_DEFAULTS[block["type"]]]) | block if block["type"] in ANSWER_BLOCK_DEFAULTS else block
        for block in blocks
    ]
    assert [event for event, _ in frames(data)][-2:] == ["message_delta", "message_stop"]
    assert faults(events_of(data)) == []


def test_an_answer_ends_with_one_delta_that_has_reason_and_usage() -> None:
    data = write_events(make_events(PartStart(0, ProviderCall("w", "web_search")), PartEnd(0), finish="calls"))
    assert frames(data)[-2][1] == {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None, "stop_details": None, "container": None},
        "usage": {
            "input_tokens": 9,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 2,
            "output_tokens_details": None,
            "server_tool_use": {"web_search_requests": 1, "web_fetch_requests": 0},
        },
    }


REQUIRED_USAGE_OF_DELTA = {
    "input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens_details",
    "server_tool_use",
}  # fmt: skip
UNKNOWN_USAGE = dict.fromkeys(("cache_creation", "server_tool_use", "service_tier", "inference_geo"))
REQUIRED = {
    "message": {
        "id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "stop_details", "container", "usage",
    },
    "usage": REQUIRED_USAGE_OF_DELTA | set(UNKNOWN_USAGE),
    "message_delta": {"stop_reason", "stop_sequence", "stop_details", "container"},
    "text": {"type", "text", "citations"},
    "thinking": {"type", "thinking", "signature"},
    "tool_use": {"type", "id", "name", "input", "caller"},
    "server_tool_use": {"type", "id", "name", "input", "caller"},
    "web_search_tool_result": {"type", "tool_use_id", "content", "caller"},
    "web_fetch_tool_result": {"type", "tool_use_id", "content", "caller"},
}  # fmt: skip
"""The members that Anthropic's schema of answers requires (its OpenAPI document in llm-comply 0.5.0)."""
ONE_OF_EACH: tuple[Part, ...] = (
    Reasoning("hm"),
    Text("hi"),
    Refusal("no"),
    ProviderCall("w", "web_search"),
    ProviderResult("w", "web_search"),
    ProviderCall("f", "web_fetch"),
    ProviderResult("f", "web_fetch", text="page"),
    Call("c", "f", "{}"),
)


@pytest.mark.parametrize("usage", [None, Usage(9, 2), Usage(9, 2, 3, 4, 1)])
def test_a_translated_message_has_every_member_that_the_schema_requires(usage: Usage | None) -> None:
    whole = plain(CODEC.write_response(answer(*ONE_OF_EACH, usage=usage), ledger(), WriteContext()))
    parts = [event for at, part in enumerate(ONE_OF_EACH) for event in (PartStart(at, part), PartEnd(at))]
    counted = [UsageUpdate(usage)] if usage is not None else []
    start: Event = ResponseStart("r", "m", usage=usage)
    streamed = frames(write_events([start, *parts, *counted, ChoiceEnd(0, Finish("stop")), ResponseEnd()]))
    for message in (whole, streamed[0][1]["message"]):
        assert message.keys() >= REQUIRED["message"]
        assert message["usage"].keys() >= REQUIRED["usage"]
    end = streamed[-2][1]
    assert end["delta"].keys() >= REQUIRED["message_delta"]
    assert end["usage"].keys() >= REQUIRED_USAGE_OF_DELTA
    started = [node["content_block"] for event, node in streamed if event == "content_block_start"]
    for blocks in (whole["content"], started):
        assert {block["type"] for block in blocks} == REQUIRED.keys() - {"message", "usage", "message_delta"}
        assert [block for block in blocks if not block.keys() >= REQUIRED[block["type"]]] == []


def test_a_message_of_anthropic_gets_no_members_that_it_did_not_have() -> None:
    wire = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": "end_turn",
            "stop_sequence": None, "stop_details": None, "usage": {"input_tokens": 1, "output_tokens": 2}}  # fmt: skip
    response = CODEC.read_response(wire)
    changed = replace(response, model="other", origin=replace(response.origin, intact=False))
    assert CODEC.write_response(changed, ledger(), WriteContext()).keys() == wire.keys()


def test_text_is_not_held_back() -> None:
    writer = CODEC.make_stream_writer(ledger(), WriteContext())
    events: list[Event] = [
        ResponseStart("r", "m"),
        PartStart(0, Text("")),
        TextDelta(0, "a"),
        call(1),
        ArgumentsDelta(1, '{"'),
    ]
    assert [bool(writer.write(event)) for event in events] == [True, False, True, True, True]


def test_a_text_that_begins_with_a_citation_waits_for_the_end_of_a_call() -> None:
    cited = PartStart(1, Text("", (Citation("https://a.org", "A", "a"),)))
    data = write_events(make_events(call(0), cited, PartEnd(1), ArgumentsDelta(0, '{"a":1}'), PartEnd(0)))
    blocks = [(event, node["index"]) for event, node in frames(data) if event and "block_st" in event]
    assert blocks == [(f"content_block_{what}", number) for number in (0, 1) for what in ("start", "stop")]


def test_a_refusal_is_text_with_its_own_reason() -> None:
    book = ledger()
    data = write_events(make_events(PartStart(0, Refusal("")), TextDelta(0, "No."), PartEnd(0)), book)
    assert blocks_of(data) == [{"type": "text", "text": "No.", "citations": []}]
    assert frames(data)[-2][1]["delta"]["stop_reason"] == "refusal"
    assert "refusal-as-text" in codes(book)


def test_the_prompt_is_estimated_until_it_is_counted() -> None:
    request = CODEC.read_request(body(messages=[{"role": "user", "content": "x" * 4000}]))
    start = frames(write_events(make_events(), context=WriteContext(request)))[0][1]
    assert 1000 < start["message"]["usage"]["input_tokens"] < 1200
    known = [ResponseStart("r", "m", usage=Usage(70, 0, cache_read=20)), *make_events()[1:]]
    usage = frames(write_events(known, context=WriteContext(request)))[0][1]["message"]["usage"]
    counts = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 20}
    assert usage == {"input_tokens": 50, **counts, "output_tokens": 0, "output_tokens_details": None, **UNKNOWN_USAGE}


def test_a_failure_is_an_error_event_and_nothing_else() -> None:
    failed = ResponseFailed(Failure("rate", "slow down", 429, "rate_limit_exceeded"))
    data = write_events([ResponseStart("r", "m"), PartStart(0, Text("a")), failed])
    assert frames(data)[-1] == (
        "error",
        {
            "type": "error",
            "error": {
                "type": "rate_limit_error",
                "message": "slow down",
                "details": {"error_code": "rate_limit_exceeded"},
            },
        },
    )
    assert [event for event, _ in frames(write_events([ResponseStart("r", "m")]))] == ["message_start", "error"]


def test_a_failure_can_follow_frames_that_went_through() -> None:
    events = events_of((HERE / "samples/anthropic/text_then_tool_use.sse").read_bytes())[:4]
    data = write_events([*events, ResponseFailed(Failure("upstream", "gone", 502))])
    assert [event for event, _ in frames(data)][-2:] == ["content_block_stop", "error"]


def test_events_of_others_are_told_and_own_ones_written() -> None:
    book = ledger()
    foreign = OpaqueEvent("keepalive.odd", Origin("elsewhere", None, {}))
    own = OpaqueEvent("brand_new", Origin(NAME, None, {"type": "brand_new"}))
    data = write_events([ResponseStart("r", "m"), foreign, own, *make_events()[1:]], book)
    assert [event for event, _ in frames(data)] == ["message_start", "brand_new", "message_delta", "message_stop"]
    assert codes(book) == ["event-dropped"]


# --- requests: reading ------------------------------------------------------------------------------------------------


def test_a_request_of_an_agent_is_read_whole() -> None:
    """Instructions with a billing line, an instruction in the middle, deferred tools, thinking and effort."""
    wire = body(
        model="claude-opus-5-5",
        system=[
            {"type": "text", "text": "x-anthropic-billing-header: cc=1; cch=a1b2;"},
            {"type": "text", "text": "Be terse.", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        ],
        messages=[
            {"role": "user", "content": "Hi"},
            {"role": "system", "content": "Now be polite.", "output_config": {"effort": "low"}},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "", "signature": "sig"},
                    {"type": "tool_use", "id": "t1", "name": "Find", "input": {"q": 1e5}, "caller": {"type": "direct"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "t1",
                        "is_error": False,
                        "content": [{"type": "tool_reference", "tool_name": "Later"}],
                    }
                ],
            },
        ],
        tools=[
            {"name": "Find", "input_schema": {"type": "object"}},
            {"name": "Later", "input_schema": {}, "defer_loading": True},
        ],
        thinking={"type": "adaptive", "display": "updates"},
        output_config={"effort": "high", "task_budget": {"type": "tokens", "total": 9}},
        metadata={"user_id": "u", "more": 1},
        context_management={"edits": []},
        stream=True,
    )
    request = CODEC.read_request(wire)
    assert isinstance(request.system[0], Opaque)
    assert strip_origins(request.system[1]) == Text("Be terse.", cache="1h")
    assert [turn.role for turn in request.turns] == ["user", "system", "assistant", "user"]
    assert strip_origins(request.turns[2].parts) == (
        Reasoning(seal=Seal(NAME, "sig")),
        Call("t1", "Find", '{"q":100000.0}'),
    )
    assert strip_origins(request.turns[3].parts) == (Result("t1", (ToolReference("Later"),), False),)
    assert [tool.defer for tool in request.tools if isinstance(tool, Tool)] == [None, True]
    assert strip_origins(request.settings.thinking) == Thinking("auto", "high", summary="updates")
    assert sorted(stray.key for stray in request.unknown_fields) == [
        "context_management",
        "more",
        "output_config",
        "task_budget",
    ]
    changed_model = plain(CODEC.write_request(replace_fields(request, model="m"), book := ledger()))
    assert changed_model == {**plain(wire), "model": "m"}
    assert codes(book) == []


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ([{"a": 1}], {"_raw": '[{"a":1}]'}),
        ([], {"_raw": "[]"}),
        ("echo", {"_raw": "echo"}),
        ('{"a": 1', {"_raw": '{"a": 1'}),
        ('{"a": 1}', {"a": 1}),
    ],
)
@pytest.mark.parametrize("more", [{}, {"cache_control": {"type": "ephemeral"}}], ids=["plain", "cached"])
def test_malformed_arguments_in_a_history_become_an_object(given: Any, sent: Any, more: dict[str, Any]) -> None:
    """As Pi sends them back; Anthropic refuses them, and the session would end."""
    call = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": given, **more}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "no object"}
    told = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]
    tools = [{"name": "f", "input_schema": {"type": "object"}}]
    written = plain(CODEC.write_request(CODEC.read_request(body(messages=told, tools=tools)), book := ledger()))
    assert written["messages"][1]["content"] == [{**call, "input": sent}]
    assert codes(book) == (["arguments-wrapped"] if "_raw" in sent else [])


MALFORMED: dict[str, tuple[dict[str, Any], str, str]] = {
    "no messages": ({"model": "m"}, "the body", "`messages` is missing"),
    "messages": (body(messages={}), "/messages", "expected an array, got an object"),
    "a message": (body(messages=["hi"]), "/messages/0", "expected an object, got a string"),
    "no role": (body(messages=[{"content": "x"}]), "/messages/0", "`role` is missing"),
    "a role": (body(messages=[{"role": "wizard", "content": "x"}]), "/messages/0/role", "wizard"),
    "no content": (body(messages=[{"role": "user"}]), "/messages/0", "`content` is missing"),
    "content": (
        body(messages=[{"role": "user", "content": 5}]),
        "/messages/0/content",
        "expected a string or an array",
    ),
    "a block": (
        body(messages=[{"role": "user", "content": ["x"]}]),
        "/messages/0/content/0",
        "expected a content block",
    ),
    "a block's type": (
        body(messages=[{"role": "user", "content": [{"text": "x"}]}]),
        "/messages/0/content/0",
        "`type` is missing",
    ),
    "text": (
        body(messages=[{"role": "user", "content": [{"type": "text"}]}]),
        "/messages/0/content/0",
        "`text` is missing",
    ),
    "input": (
        body(messages=[{"role": "assistant", "content": [{"type": "tool_use", "name": "f", "input": 5}]}]),
        "/messages/0/content/0/input",
        "expected an object, got a whole number",
    ),
    "a result": (
        body(
            messages=[{"role": "user", "content": [{"type": "tool_result", "content": [{"type": "text", "text": 1}]}]}]
        ),
        "/messages/0/content/0/content/0/text",
        "expected a string",
    ),
    "an error flag": (
        body(messages=[{"role": "user", "content": [{"type": "tool_result", "is_error": "no"}]}]),
        "/messages/0/content/0/is_error",
        "expected true or false",
    ),
    "system": (body(system=5), "/system", "expected a string or an array"),
    "tools": (body(tools={}), "/tools", "expected an array"),
    "a tool": (body(tools=[{"description": "x"}]), "/tools/0", "`name` is missing"),
    "a schema": (body(tools=[{"name": "f", "input_schema": []}]), "/tools/0/input_schema", "expected an object"),
    "a choice": (body(tool_choice={"type": "maybe"}), "/tool_choice/type", "maybe"),
    "a choice's name": (body(tool_choice={"type": "tool"}), "/tool_choice", "`name` is missing"),
    "max_tokens": (body(max_tokens="9"), "/max_tokens", "expected a whole number"),
    "temperature": (body(temperature="9"), "/temperature", "expected a number"),
    "stop": (body(stop_sequences=[1]), "/stop_sequences/0", "expected a string"),
    "stream": (body(stream=1), "/stream", "expected true or false"),
    "thinking": (body(thinking="on"), "/thinking", "expected an object"),
    "cache": (body(cache_control="x"), "/cache_control", "expected an object"),
    "effort": (body(output_config={"effort": 5}), "/output_config/effort", "expected a string"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_what_cannot_be_read_is_named(name: str) -> None:
    wire, place, problem = MALFORMED[name]
    with pytest.raises(Malformed) as caught:
        CODEC.read_request(wire)
    assert (caught.value.path or "the body") == place
    assert problem in caught.value.problem


def content(*blocks: dict[str, Any]) -> dict[str, Any]:
    return body(messages=[{"role": "user", "content": list(blocks)}])


PARTS: dict[str, tuple[dict[str, Any], Any]] = {
    "base64 image": (
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0K"}},
        Media("image", "image/png", "iVBORw0K"),
    ),
    "image by url": ({"type": "image", "source": {"type": "url", "url": "https://a"}}, Media("image", url="https://a")),
    "image by id": ({"type": "image", "source": {"type": "file", "file_id": "f1"}}, Media("image", file_id="f1")),
    "pdf": (
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0x"},
            "title": "P",
        },
        Media("file", "application/pdf", "JVBERi0x", name="P"),
    ),
    "text document": (
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Hé"}},
        Media("file", "text/plain", base64.b64encode("Hé".encode()).decode()),
    ),
    "cached text": ({"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}, Text("x", cache="")),
    "result": (
        {"type": "tool_result", "tool_use_id": "t", "content": "x", "is_error": True},
        Result("t", (Text("x"),), True),
    ),
    "result without content": ({"type": "tool_result", "tool_use_id": "t", "content": ""}, Result("t")),
    "reference": ({"type": "tool_reference", "tool_name": "n"}, ToolReference("n")),
    "call": ({"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}, Call("t", "f", '{"a":1}')),
    "signed thinking": ({"type": "thinking", "thinking": "x", "signature": "s"}, Reasoning("x", seal=Seal(NAME, "s"))),
    "redacted thinking": ({"type": "redacted_thinking", "data": "d"}, Reasoning(hidden=True, seal=Seal(NAME, "d"))),
    "code": (
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "code_execution", "input": {"code": "1"}},
        ProviderCall("srvtoolu_1", "code_execution", '{"code":"1"}'),
    ),
    "output": (
        {
            "type": "code_execution_tool_result",
            "tool_use_id": "srvtoolu_1",
            "content": {"type": "code_execution_result", "stdout": "2", "stderr": "", "return_code": 0, "content": []},
        },
        ProviderResult("srvtoolu_1", "code_execution", text="2"),
    ),
    "failed search": (
        {
            "type": "web_search_tool_result",
            "tool_use_id": "srvtoolu_1",
            "content": {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"},
        },
        ProviderResult("srvtoolu_1", "web_search", error="max_uses_exceeded"),
    ),
}


@pytest.mark.parametrize("name", PARTS)
def test_a_block_and_its_meaning_stand_for_each_other(name: str) -> None:
    wire, part = PARTS[name]
    request = CODEC.read_request(content(wire))
    assert strip_origins(request.turns[0].parts) == (part,)
    other = {"type": "text", "text": "y"}
    meant = Request("m", turns=(Turn("user", (part, Text("y"))),), settings=Settings(max_tokens=1000))
    assert plain(CODEC.write_request(meant, ledger()))["messages"][0]["content"] == [wire, other]


def test_blocks_that_mean_text_to_others() -> None:
    found = {
        "type": "search_result",
        "source": "https://a",
        "title": "A",
        "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}],
        "citations": {"enabled": True},
    }
    pieces = {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "piece"}]}}
    request = CODEC.read_request(content(found, pieces))
    text, document = request.turns[0].parts
    assert strip_origins(text) == Text("A\nhttps://a\none\ntwo")
    assert isinstance(document, Media)
    assert base64.b64decode(document.data) == b"piece"
    assert [stray.key for stray in request.unknown_fields] == ["citations"]


def test_what_only_this_wire_knows_is_carried() -> None:
    blocks: list[dict[str, Any]] = [
        {"type": "container_upload", "file_id": "f"},
        {"type": "mcp_tool_use", "id": "m", "name": "n", "server_name": "s", "input": {}},
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "tool_search_tool_bm25", "input": {}},
        {"type": "from_the_future", "x": 1},
    ]
    parts = CODEC.read_request(content(*blocks)).turns[0].parts
    assert [part.kind for part in parts if isinstance(part, Opaque)] == [block["type"] for block in blocks]
    out, lost = write_body(
        make_request(Turn("assistant", (Text("x"), Opaque("odd", Origin("elsewhere", None, {"type": "odd"})))))
    )
    assert out["messages"][-1] == {"role": "assistant", "content": "x"}
    assert lost == ["opaque-dropped", "turn-added"]


# --- requests: writing ------------------------------------------------------------------------------------------------


def test_an_ordinary_request_of_another_wire() -> None:
    request = make_request(
        Turn("user", (Text("Weather?"),)),
        Turn("assistant", (Text("Let me look."), Call("c1", "w", '{"city":"Paris","n":1.50}'), Call("c2", "w", ""))),
        Turn("user", (Result("c1", (Text("12C"),)), Result("c2", (), True), Text("Go on."))),
        system=(Text("Be terse."),),
        tools=(Tool("w", "Weather", {"type": "object", "properties": {"city": {"type": "string"}}}, origin=ELSEWHERE),),
        choice=ToolChoice("auto"),
        stream=True,
    )
    book = ledger()
    data = encode(CODEC.write_request(request, book))
    assert b'"input":{"city":"Paris","n":1.50}' in data
    assert json.loads(data) == {
        "model": "claude-opus-4-5",
        "max_tokens": 1000,
        "system": "Be terse.",
        "messages": [
            {"role": "user", "content": "Weather?"},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "Let me look."},
                    {"type": "tool_use", "id": "c1", "name": "w", "input": {"city": "Paris", "n": 1.5}},
                    {"type": "tool_use", "id": "c2", "name": "w", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": "12C"},
                    {"type": "tool_result", "tool_use_id": "c2", "content": "error", "is_error": True},
                    {"type": "text", "text": "Go on."},
                ],
            },
        ],
        "tools": [
            {
                "name": "w",
                "description": "Weather",
                "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
            }
        ],
        "tool_choice": {"type": "auto"},
        "stream": True,
    }
    assert codes(book) == ["default-added"]


def assistant(*parts: Any) -> Turn:
    return Turn("assistant", parts)


FOREIGN: dict[str, tuple[Any, list[Any], list[str]]] = {
    "unsigned thinking": (Reasoning("hm", origin=ELSEWHERE), [], ["reasoning-dropped"]),
    "another's seal": (Reasoning("hm", seal=Seal("gemini", "x")), [], ["seal-dropped", "reasoning-dropped"]),
    "arguments that are no object": (
        Call("c", "f", "[1"),
        [{"type": "tool_use", "id": "c", "name": "f", "input": {"_raw": "[1"}}],
        ["arguments-wrapped"],
    ),
    "blank text": (Text(" \n"), [], ["empty-omitted"]),
    "a refusal": (Refusal("No."), [{"type": "text", "text": "No."}], ["refusal-as-text"]),
    "a sealed call": (
        Call("c", "f", "{}", seal=Seal("gemini", "x")),
        [{"type": "tool_use", "id": "c", "name": "f", "input": {}}],
        ["seal-dropped"],
    ),
    "a search of another provider": (ProviderCall("w", "web_search", "{}", ELSEWHERE), [], ["part-dropped"]),
    "what it found": (
        ProviderResult("w", "web_search", (Citation("https://a", "A"),), origin=ELSEWHERE),
        [{"type": "text", "text": "[web_search found]\nA https://a"}],
        ["hosted-as-text"],
    ),
    "a citation of another provider": (
        Text("x", (Citation("https://a", origin=ELSEWHERE),)),
        [{"type": "text", "text": "x"}],
        ["citation-dropped"],
    ),
    "sound": (Media("audio", "audio/wav", "UklG"), [], ["media-dropped"]),
    "an image of an unknown type": (Media("image", "image/svg+xml", "PHN2"), [], ["media-dropped"]),
    "an image with the wrong type": (
        Media("image", "image/jpeg", "iVBORw0K", detail="low"),
        [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0K"}}],
        ["no-counterpart"],
    ),
    "another's file": (Media("file", file_id="file-1", origin=ELSEWHERE), [], ["media-dropped"]),
    "a table": (
        Media("file", "text/csv", base64.b64encode(b"a,b").decode(), name="t.csv"),
        [{"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a,b"}, "title": "t.csv"}],
        ["setting-mapped"],
    ),
    "a letter": (Media("file", "application/msword", "0M8R"), [], ["media-dropped"]),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_parts_of_other_wires(name: str) -> None:
    part, blocks, lost = FOREIGN[name]
    role: Any = "user" if isinstance(part, Media) else "assistant"
    turns = (Turn("user", (Text("Hi"),)), Turn(role, (Text("a"), part, Text("b"))), Turn("user", (Text("Go"),)))
    out, found = write_body(make_request(*turns, tools=(F,)))
    texts = [{"type": "text", "text": "a"}, *blocks, {"type": "text", "text": "b"}]
    assert out["messages"][1]["content"] == texts
    assert found == lost


def test_a_turn_of_which_nothing_is_left_is_not_sent() -> None:
    out, _ = write_body(
        make_request(Turn("user", (Text("a"),)), assistant(Reasoning("hm")), Turn("user", (Text("b"),), name="Bo"))
    )
    assert out["messages"] == [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]


def test_a_history_ends_with_the_user_where_the_model_wants_it() -> None:
    turns = (Turn("user", (Text("a"),)), assistant(Text("b \n")))
    out, lost = write_body(make_request(*turns, model="claude-opus-5-5"))
    assert out["messages"][1:] == [{"role": "assistant", "content": "b \n"}, {"role": "user", "content": "Continue."}]
    assert lost == ["turn-added"]
    out, lost = write_body(make_request(*turns, model="claude-opus-4-5"))
    assert (out["messages"][1:], lost) == ([{"role": "assistant", "content": "b"}], ["empty-omitted"])


def test_a_turn_of_the_model_holds_no_media() -> None:
    image = Media("image", "image/png", "iVBORw0K")
    turns = (Turn("user", (Text("a"),)), assistant(image, Text("b")), Turn("user", (image, Text("c"))))
    out, lost = write_body(make_request(*turns))
    assert out["messages"][1] == {"role": "assistant", "content": "b"}
    assert out["messages"][2]["content"][0]["type"] == "image"
    assert lost == ["media-dropped"]


def test_no_more_tools_are_strict_than_can_be() -> None:
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    tools = tuple(Tool(f"f{n}", parameters=schema, strict=True, origin=ELSEWHERE) for n in range(21))
    out, lost = write_body(make_request(tools=tools))
    assert not any("strict" in tool for tool in out["tools"])
    assert lost == ["no-counterpart"]
    assert all(tool["strict"] for tool in write_body(make_request(tools=tools[:20]))[0]["tools"])


def test_a_thread_that_goes_on_is_known() -> None:
    assert CODEC.read_request(body(thread={"type": "continue", "previous_message_id": "msg_1"})).has_provider_history
    assert not CODEC.read_request(body(thread={"type": "create"})).has_provider_history


THINKING: list[tuple[str, Thinking, Any, Any, list[str]]] = [
    ("claude-opus-5-5", Thinking(effort="high"), None, "high", []),
    ("claude-opus-5-5", Thinking(effort="minimal"), None, "low", ["thinking-mapped"]),
    ("claude-opus-5-5", Thinking(effort="none"), None, "low", ["thinking-mapped"]),
    ("claude-opus-5-5", Thinking("off"), None, "low", ["thinking-mapped"]),
    ("claude-sonnet-5-5", Thinking("off"), {"type": "between_tools"}, None, ["thinking-mapped"]),
    ("claude-opus-5", Thinking(effort="none"), {"type": "disabled"}, None, []),
    ("claude-opus-5", Thinking("off", "max"), {"type": "disabled"}, "high", []),
    ("claude-opus-4-8", Thinking(effort="medium"), {"type": "adaptive"}, "medium", ["thinking-mapped"]),
    ("claude-opus-4-7", Thinking("auto", summary="auto"), {"type": "adaptive", "display": "summarized"}, None, []),
    ("claude-opus-4-7", Thinking("on", budget=9000), {"type": "adaptive"}, "medium", ["thinking-mapped"]),
    ("claude-opus-4-6", Thinking("on", budget=9000), {"type": "enabled", "budget_tokens": 9000}, None, []),
    ("claude-opus-4-6", Thinking(effort="xhigh"), {"type": "adaptive"}, "high", ["thinking-mapped"] * 2),
    (
        "claude-sonnet-4-5",
        Thinking(effort="low"),
        {"type": "enabled", "budget_tokens": 4096},
        None,
        ["thinking-mapped"],
    ),
    (
        "claude-sonnet-4-5",
        Thinking("on", budget=200),
        {"type": "enabled", "budget_tokens": 1024},
        None,
        ["setting-clamped"],
    ),
    (
        "claude-sonnet-4-5",
        Thinking("on", budget=90000),
        {"type": "enabled", "budget_tokens": 16000},
        None,
        ["setting-clamped"],
    ),
    ("claude-sonnet-4-5", Thinking("auto"), {"type": "enabled", "budget_tokens": 8192}, None, ["thinking-mapped"]),
    ("claude-sonnet-4-5", Thinking("off"), {"type": "disabled"}, None, []),
    ("claude-3-5-sonnet-20241022", Thinking(effort="high"), None, None, ["no-counterpart"]),
    ("claude-3-5-sonnet-20241022", Thinking(effort="none"), None, None, []),
    ("kimi-k3", Thinking("on", budget=2000), {"type": "enabled", "budget_tokens": 2000}, None, []),
]


@pytest.mark.parametrize(("model", "thinking", "wire", "effort", "lost"), THINKING)
def test_thinking_is_told_as_the_family_takes_it(
    model: str, thinking: Thinking, wire: Any, effort: Any, lost: list[str]
) -> None:
    limit = 8000 if "3-5" in model else 32000
    out, found = write_body(make_request(model=model, settings=Settings(max_tokens=limit, thinking=thinking)))
    assert out.get("thinking") == wire
    assert out.get("output_config", {}).get("effort") == effort
    assert found == lost


def test_a_budget_gives_way() -> None:
    thinking = Settings(max_tokens=9000, thinking=Thinking("on", budget=2000))
    tools: tuple[Tool, ...] = (Tool("f", parameters={"type": "object"}),)
    forced, lost = write_body(make_request(settings=thinking, tools=tools, choice=ToolChoice("required")))
    assert "thinking" not in forced
    assert (forced["tool_choice"], lost) == ({"type": "any"}, ["thinking-mapped"])
    loop = (Turn("user", (Text("a"),)), assistant(Call("c", "f", "{}")), Turn("user", (Result("c", (Text("r"),)),)))
    unsigned, lost = write_body(make_request(*loop, settings=thinking, tools=tools))
    assert ("thinking" in unsigned, lost) == (False, ["thinking-mapped"])
    signed = assistant(Reasoning("hm", seal=Seal(NAME, "s")), Call("c", "f", "{}"))
    assert "thinking" in write_body(make_request(loop[0], signed, loop[2], settings=thinking, tools=tools))[0]
    small, lost = write_body(make_request(settings=Settings(max_tokens=900, thinking=Thinking("on", budget=2000))))
    assert ("thinking" in small, lost) == (False, ["thinking-mapped"])


SETTINGS: dict[str, tuple[str, Settings, dict[str, Any], list[str]]] = {
    "no limit": ("claude-opus-5-5", Settings(), {"max_tokens": 128000}, ["max-tokens-added"]),
    "no limit, old": ("claude-3-haiku-20240307", Settings(), {"max_tokens": 4096}, ["max-tokens-added"]),
    "too high a limit": ("claude-sonnet-4-5", Settings(max_tokens=200000), {"max_tokens": 64000}, ["setting-clamped"]),
    "sampling, new": (
        "claude-opus-4-7",
        Settings(max_tokens=9, temperature=1, top_p=0.9),
        {"max_tokens": 9},
        ["no-counterpart"] * 2,
    ),
    "sampling, old": (
        "claude-3-5-haiku-20241022",
        Settings(max_tokens=9, temperature=1.7, top_p=0.9, top_k=4),
        {"max_tokens": 9, "temperature": 1, "top_p": 0.9, "top_k": 4},
        ["setting-clamped"],
    ),
    "one of two": (
        "claude-sonnet-4-5",
        Settings(max_tokens=9, temperature=0.2, top_p=0.9),
        {"max_tokens": 9, "temperature": 0.2},
        ["no-counterpart"],
    ),
    "stop": (
        "m",
        Settings(max_tokens=9, stop=("END", "\n")),
        {"max_tokens": 9, "stop_sequences": ["END"]},
        ["no-counterpart"],
    ),
    "user and tier": (
        "m",
        Settings(max_tokens=9, user="u", tier="default"),
        {"max_tokens": 9, "metadata": {"user_id": "u"}, "service_tier": "standard_only"},
        [],
    ),
    "another tier": ("m", Settings(max_tokens=9, tier="flex"), {"max_tokens": 9}, ["no-counterpart"]),
    "what cannot be said": (
        "m",
        Settings(max_tokens=9, seed=1, count=2, metadata={"a": "b"}),
        {"max_tokens": 9},
        ["no-counterpart"] * 3,
    ),
    "json": (
        "claude-opus-5",
        Settings(max_tokens=9, format=Format("json")),
        {"max_tokens": 9, "system": ONLY_JSON_INSTRUCTION},
        ["format-mapped"],
    ),
    "a schema": (
        "claude-opus-5",
        Settings(
            max_tokens=9, format=Format("schema", {"type": "object", "properties": {}, "additionalProperties": False})
        ),
        {
            "max_tokens": 9,
            "output_config": {
                "format": {
                    "type": "json_schema",
                    "schema": {"type": "object", "properties": {}, "additionalProperties": False},
                }
            },
        },
        [],
    ),
    "a schema, old": (
        "claude-3-7-sonnet-latest",
        Settings(max_tokens=9, format=Format("schema", {"type": "object"})),
        {"max_tokens": 9, "system": ONLY_JSON_INSTRUCTION + ' It must match this JSON Schema:\n{"type":"object"}'},
        ["format-mapped"],
    ),
    "a cache mark": (
        "m",
        Settings(max_tokens=9, cache="1h"),
        {"max_tokens": 9, "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        [],
    ),
    "no cache marks": ("m", Settings(max_tokens=9, cache="off"), {"max_tokens": 9}, []),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_of_other_wires(name: str) -> None:
    model, settings, wire, lost = SETTINGS[name]
    out, found = write_body(make_request(model=model, settings=settings))
    assert {key: value for key, value in out.items() if key not in ("model", "messages")} == wire
    assert found == lost


F, G = (Tool(name, parameters={"type": "object"}, origin=ELSEWHERE) for name in "fg")

CHOICES: dict[str, tuple[str, ToolChoice | None, bool | None, Any, list[str], list[str]]] = {
    "auto": ("m", ToolChoice("auto"), None, {"type": "auto"}, ["f", "g"], []),
    "none": ("m", ToolChoice("none"), False, {"type": "none"}, ["f", "g"], []),
    "required": ("m", ToolChoice("required"), None, {"type": "any"}, ["f", "g"], []),
    "one": ("m", ToolChoice("one", (ToolName("g"),)), None, {"type": "tool", "name": "g"}, ["f", "g"], []),
    "single calls": ("m", None, False, {"type": "auto", "disable_parallel_tool_use": True}, ["f", "g"], []),
    "several calls": ("m", None, True, None, ["f", "g"], []),
    "one single call": (
        "m",
        ToolChoice("required"),
        False,
        {"type": "any", "disable_parallel_tool_use": True},
        ["f", "g"],
        [],
    ),
    "a subset": (
        "m",
        ToolChoice("allowed", (ToolName("g"),)),
        None,
        {"type": "auto"},
        ["g"],
        ["choice-mapped", "choice-mapped"],
    ),
    "a call from a subset": (
        "m",
        ToolChoice("allowed", (ToolName("g"),), required=True),
        None,
        {"type": "any"},
        ["g"],
        ["choice-mapped", "choice-mapped"],
    ),
    "a subset, bound": (
        "claude-opus-5-5",
        ToolChoice("allowed", (ToolName("g"),)),
        None,
        {"type": "auto"},
        ["f", "g"],
        ["choice-weakened"],
    ),
    "required, unforced": (
        "claude-sonnet-5-5",
        ToolChoice("required"),
        None,
        {"type": "auto"},
        ["f", "g"],
        ["choice-weakened"],
    ),
    "one, unforced": (
        "claude-fable-5",
        ToolChoice("one", (ToolName("f"),)),
        False,
        {"type": "auto", "disable_parallel_tool_use": True},
        ["f", "g"],
        ["choice-weakened"],
    ),
}


@pytest.mark.parametrize("name", CHOICES)
def test_choices_of_other_wires(name: str) -> None:
    model, choice, parallel, wire, tools, lost = CHOICES[name]
    settings = Settings(max_tokens=9, parallel=parallel)
    out, found = write_body(make_request(model=model, tools=(F, G), choice=choice, settings=settings))
    assert out.get("tool_choice") == wire
    assert [tool["name"] for tool in out["tools"]] == tools
    assert found == lost


def test_a_choice_without_tools_is_left_out() -> None:
    assert write_body(make_request(choice=ToolChoice("auto"), settings=Settings(max_tokens=9, parallel=False)))[1] == []
    out, lost = write_body(make_request(choice=ToolChoice("required")))
    assert ("tool_choice" in out, lost) == (False, ["choice-weakened"])


TOOLS: dict[str, tuple[Any, Any, list[str]]] = {
    "without parameters": (
        Tool("f", origin=ELSEWHERE),
        {"name": "f", "input_schema": {"type": "object", "properties": {}}},
        ["schema-added"],
    ),
    "with a union at the root": (
        Tool(
            "f",
            parameters={"anyOf": [{"type": "object", "properties": {"a": {"type": "string"}}}, {"type": "null"}]},
            origin=ELSEWHERE,
        ),
        {"name": "f", "input_schema": {"type": "object", "properties": {"a": {"type": "string"}}}},
        ["schema-rewritten"],
    ),
    "strict": (
        Tool(
            "f",
            parameters={"type": "object", "properties": {}, "additionalProperties": False},
            strict=True,
            origin=ELSEWHERE,
        ),
        {
            "name": "f",
            "input_schema": {"type": "object", "properties": {}, "additionalProperties": False},
            "strict": True,
        },
        [],
    ),
    "strict, but open": (
        Tool("f", parameters={"type": "object", "additionalProperties": True}, strict=True, origin=ELSEWHERE),
        {"name": "f", "input_schema": {"type": "object", "additionalProperties": True}},
        ["no-counterpart"],
    ),
    "deferred": (
        Tool("f", "d", {"type": "object"}, defer=True, cache=""),
        {"name": "f", "description": "d", "input_schema": {"type": "object"}, "defer_loading": True},
        ["cache-dropped"],
    ),
    "with an output schema": (
        Tool("f", parameters={"type": "object"}, output={"type": "object"}),
        {"name": "f", "input_schema": {"type": "object"}},
        ["no-counterpart"],
    ),
    "search": (
        ProviderTool(
            "web_search",
            max_uses=3,
            blocked_domains=("a",),
            location={"city": "Bonn"},
            context_size="low",
            origin=ELSEWHERE,
        ),
        {
            "type": "web_search_20250305",
            "name": "web_search",
            "max_uses": 3,
            "blocked_domains": ["a"],
            "user_location": {"type": "approximate", "city": "Bonn"},
        },
        ["no-counterpart"],
    ),
    "code": (ProviderTool("code_execution"), {"type": "code_execution_20250825", "name": "code_execution"}, []),
    "images": (ProviderTool("image_generation"), None, ["tool-dropped"]),
}


@pytest.mark.parametrize("name", TOOLS)
def test_tools_of_other_wires(name: str) -> None:
    tool, wire, lost = TOOLS[name]
    out, found = write_body(make_request(tools=(tool,)))
    assert out.get("tools", [None])[0] == wire
    assert [code for code in found if code != "choice-weakened"] == lost


OWN_TOOLS: dict[str, tuple[dict[str, Any], str]] = {
    "bash": ({"type": "bash_20250124", "name": "bash"}, "bash_20250124"),
    "editor": ({"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"}, "text_editor_20250728"),
    "memory": (
        {"type": "memory_20250818", "name": "memory", "cache_control": {"type": "ephemeral"}},
        "memory_20250818",
    ),
    "computer": ({"type": "computer_20251124", "name": "computer"}, "computer_20251124"),
}


@pytest.mark.parametrize("name", OWN_TOOLS)
def test_tools_that_the_provider_defines_have_a_schema_for_others(name: str) -> None:
    wire, kind = OWN_TOOLS[name]
    request = CODEC.read_request(body(tools=[wire]))
    (tool,) = request.tools
    assert isinstance(tool, Tool)
    assert (tool.kind, tool.parameters["type"]) == (kind, "object")
    assert tool.parameters["properties"]
    assert plain(CODEC.write_request(strip_origins(request), ledger()))["tools"] == [wire]


def test_server_tools_are_known_by_their_prefix() -> None:
    tools: list[dict[str, Any]] = [
        {
            "type": "web_search_20991231",
            "name": "web_search",
            "user_location": {"type": "approximate", "country": "FR"},
        },
        {"type": "code_execution_20260521", "name": "code_execution"},
        {"type": "computer_toolset_20260801", "configs": {}},
        {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"},
        {"type": "mcp_toolset", "mcp_server_name": "m"},
    ]
    request = CODEC.read_request(body(tools=tools))
    assert strip_origins(request.tools[0]) == ProviderTool("web_search", "web_search", location={"country": "FR"})
    assert [type(tool).__name__ for tool in request.tools[1:]] == ["ProviderTool", "Opaque", "Opaque", "Opaque"]
    first = replace_fields(request.tools[0], max_uses=2)
    again = plain(CODEC.write_request(replace_fields(request, tools=(first, *request.tools[1:])), ledger()))["tools"]
    assert again == [{**tools[0], "max_uses": 2}, *tools[1:]]


# --- cache breakpoints ------------------------------------------------------------------------------------------------


def test_a_turn_that_was_made_for_this_wire_has_no_json_of_its_own() -> None:
    made = Turn("user", (Result("t", (Text("r"),)),), origin=Origin(NAME, None, None, intact=False))
    wire = CODEC.write_request(make_request(made), ledger())
    assert wire["messages"] == [
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "r"}]}
    ]


NEAR_ORDINARY: list[Any] = [
    {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}}}, "required": ["a"]},
    {"type": "object", "properties": {"a": {"type": "string", "nullable": True}}},
    {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "STRING"}}}},
    {"type": "object", "properties": {"a": {"type": "string", "required": True}}},
    {"type": "object", "properties": {"a": {"type": ["string", "null"]}, "b": {}}},
    {"type": "object", "properties": {"a b": {"type": "string"}}},
    {"type": "object", "properties": None, "additionalProperties": {"type": "int"}},
    {"type": "string"},
    {"type": "object", "items": [{"type": "string"}]},
    True,
]


@pytest.mark.parametrize("schema", NEAR_ORDINARY, ids=str)
def test_the_glance_at_a_schema_sees_what_the_full_look_sees(schema: Any) -> None:
    made, known = CONSTRAINTS.convert_tool_schema, convert_to_standard(schema)
    assert made is not None
    valid = drop_invalid_keywords(known.schema)
    full = convert_to_object_root(valid.schema)
    short = made(schema, "")
    assert (short.schema, short.renames, short.wrapper_property) == (full.schema, full.renames, full.wrapper_property)
    assert short.changes == (*known.changes, *valid.changes, *full.changes)
    assert (short.schema is schema) == (full.schema is schema)


MARK = {"type": "ephemeral"}


def test_breakpoints_are_set_at_steady_places() -> None:
    tools = (Tool("a", "d" * 5000, {"type": "object"}), Tool("b", "d", {"type": "object"}, defer=True))
    short = (Turn("user", (Text("one"),)),)
    long = (*short, Turn("assistant", (Text("two"),)), Turn("user", (Text("three"),)))
    grown = [
        write_body(make_request(*turns, system=(Text("s"),), tools=tools, model="claude-opus-5-5"))
        for turns in (short, long)
    ]
    for out, lost in grown:
        assert lost == ["breakpoint-added"]
        assert [tool.get("cache_control") for tool in out["tools"]] == [MARK, None]
        assert out["system"] == [{"type": "text", "text": "s", "cache_control": MARK}]
        assert out["cache_control"] == MARK
        assert "ephemeral" not in json.dumps(out["messages"])


def test_long_prompts_of_other_wires_are_marked_and_short_ones_are_not() -> None:
    long = replace_fields(make_request(Turn("user", (Text("x" * 5000),))), model="claude-opus-5-5")
    out, lost = write_body(long)
    assert lost == ["breakpoint-added"]
    assert (out["cache_control"], json.dumps(out).count("ephemeral")) == (MARK, 1)
    assert write_body(make_request())[1] == []
    assert write_body(replace_fields(long, settings=Settings(max_tokens=9, cache="off")))[1] == []
    own = CODEC.read_request(body(messages=[{"role": "user", "content": "x" * 5000}]))
    assert "ephemeral" not in json.dumps(plain(CODEC.write_request(replace_fields(own, model="m"), ledger())))


def test_servers_of_other_models_may_not_know_a_mark_for_the_whole() -> None:
    assert write_body(replace_fields(make_request(Turn("user", (Text("x" * 5000),))), model="deepseek-chat"))[1] == []


def test_a_mark_for_the_whole_can_be_put_on_the_last_block() -> None:
    bent = CODEC.quirks["block-cache"].rewrite_body
    assert bent is not None
    turns = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
    marked = {"role": "user", "content": [{"type": "text", "text": "one", "cache_control": {**MARK, "ttl": "1h"}}]}
    whole = {"model": "m", "messages": turns, "cache_control": {**MARK, "ttl": "1h"}}
    assert bent(whole, "m", ledger()) == {"model": "m", "messages": [marked, turns[1]]}
    plainly = {"model": "m", "messages": turns}
    assert bent(plainly, "m", ledger()) is plainly


def test_there_are_never_more_than_four_marks() -> None:
    turn = Turn("user", tuple(Text(str(n), cache="") for n in range(6)))
    out, lost = write_body(make_request(turn, system=(Text("s", cache="5m"),)))
    assert json.dumps(out).count("ephemeral") == 4
    assert out["system"][0]["cache_control"] == {"type": "ephemeral", "ttl": "5m"}
    assert lost == ["cache-dropped"]


# --- answers ----------------------------------------------------------------------------------------------------------


def test_an_answer_of_another_wire() -> None:
    parts = (Reasoning("hm"), Text("Sure."), Call("c1", "f", '{"a":1}'))
    book = ledger()
    response = answer(
        *parts, finish=Finish("calls", "tool_calls"), usage=Usage(100, 20, cache_read=60, cache_write=10, reasoning=5)
    )
    wire = plain(CODEC.write_response(response, book, WriteContext()))
    assert wire.pop("id") == derive_id("msg_", "resp_1")
    assert wire == {
        "type": "message",
        "role": "assistant",
        "model": "gpt",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": ""},
            {"type": "text", "text": "Sure.", "citations": []},
            {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}, "caller": {"type": "direct"}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "stop_details": None,
        "usage": {
            "input_tokens": 30,
            "cache_creation_input_tokens": 10,
            "cache_read_input_tokens": 60,
            "output_tokens": 20,
            "output_tokens_details": {"thinking_tokens": 5},
            **UNKNOWN_USAGE,
        },
        "container": None,
    }
    assert codes(book) == []


ENDINGS: list[tuple[Finish, str, Any, list[str]]] = [
    (Finish("stop"), "end_turn", None, []),
    (Finish("length", "MAX_TOKENS"), "max_tokens", None, []),
    (Finish("calls"), "tool_use", None, []),
    (Finish("context"), "model_context_window_exceeded", None, []),
    (Finish("pause"), "pause_turn", None, []),
    (Finish("sequence", sequence="END"), "stop_sequence", None, []),
    (Finish("filter", "SAFETY"), "refusal", {"type": "refusal", "category": None, "explanation": "SAFETY"}, []),
    (
        Finish("refusal", detail="cyber: no exploits"),
        "refusal",
        {"type": "refusal", "category": "cyber", "explanation": "no exploits"},
        [],
    ),
    (
        Finish("malformed", "MALFORMED_FUNCTION_CALL"),
        "refusal",
        {"type": "refusal", "category": None, "explanation": "MALFORMED_FUNCTION_CALL"},
        ["finish-mapped"],
    ),
    (Finish("other", "LANGUAGE"), "end_turn", None, ["finish-mapped"]),
    (Finish("other", "compaction"), "compaction", None, []),
]


@pytest.mark.parametrize(("finish", "reason", "details", "lost"), ENDINGS)
def test_endings(finish: Finish, reason: str, details: Any, lost: list[str]) -> None:
    book = ledger()
    wire = plain(CODEC.write_response(answer(Text("x"), finish=finish), book, WriteContext()))
    assert (wire["stop_reason"], wire["stop_details"], codes(book)) == (reason, details, lost)
    assert wire["stop_sequence"] == (finish.sequence or None)
    read = CODEC.read_response(wire).choices[0].finish
    assert read is not None
    assert read.kind == {"filter": "refusal", "malformed": "refusal"}.get(finish.kind, "stop" if lost else finish.kind)


def test_what_an_answer_cannot_hold_is_told() -> None:
    book = ledger()
    second = Choice(1, (Text("two"),), Finish("stop"))
    parts = (Media("image", "image/png", "iVBO"), ProviderResult("x", "file_search", text="…"), Refusal("No."))
    response = answer(*parts)
    both = Response("r", "m", None, (*response.choices, second), None)
    wire = plain(CODEC.write_response(both, book, WriteContext()))
    assert wire["content"] == [{"type": "text", "text": "No.", "citations": []}]
    assert wire["stop_reason"] == "refusal"
    assert codes(book) == ["no-counterpart", "media-dropped", "part-dropped", "refusal-as-text", "default-added"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("input_tokens", "three"),
        ("input_tokens", "-3"),
        ("output_tokens", True),
        ("cache_read_input_tokens", 1.5),
        ("cache_creation_input_tokens", []),
        ("output_tokens_details", 3),
    ],
)
def test_a_count_that_cannot_be_read_is_named(key: str, value: Any) -> None:
    usage = {"input_tokens": 1, "output_tokens": 2, key: value}
    (field,) = CODEC.read_response({"content": [], "stop_reason": "end_turn", "usage": usage}).unknown_fields
    assert (field.path, field.key, field.code) == ((None, "usage"), key, "usage-dropped")


def test_usage_adds_up_and_comes_apart_again() -> None:
    wire = {"input_tokens": 10, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 20, "output_tokens": 7}
    usage = {**wire, "service_tier": "standard"}
    response = CODEC.read_response({"id": "msg_1", "content": [], "stop_reason": "end_turn", "usage": usage})
    assert strip_origins(response.usage) == Usage(35, 7, 20, 5)
    usage = plain(CODEC.write_response(strip_origins(response), ledger(), WriteContext()))["usage"]
    assert {key: value for key, value in usage.items() if value is not None} == wire
    assert [stray.key for stray in response.unknown_fields] == ["service_tier"]


@pytest.mark.parametrize(
    "odd", [None, 5, {}, [5], [{"type": "compaction"}], [{"type": "compaction", "input_tokens": "x"}]]
)
def test_what_a_compaction_cost_is_counted(odd: Any) -> None:
    """It is another call of the model, which the counts of the message do not contain."""
    own = {"input_tokens": 10, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 20, "output_tokens": 7}
    before = {"type": "compaction", "input_tokens": 1000, "cache_read_input_tokens": 300, "output_tokens": 70}
    for iterations, expected in (
        ([before, {"type": "message", **own}], Usage(1335, 77, 320, 5)),
        ([before, before, {"type": "message", **own}], Usage(2635, 147, 620, 5)),
        (odd, Usage(35, 7, 20, 5)),
    ):
        body = {"id": "msg_1", "content": [], "stop_reason": "end_turn", "usage": {**own, "iterations": iterations}}
        response = CODEC.read_response(body)
        assert strip_origins(response.usage) == expected
        assert plain(CODEC.write_response(response, ledger(), WriteContext())) == body


def test_a_whole_answer_can_be_a_failure() -> None:
    response = CODEC.read_response({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}})
    assert response.failure is not None
    assert (response.failure.kind, response.failure.status) == ("overloaded", 529)
    assert (
        CODEC.write_response(strip_origins(response), ledger(), WriteContext())["error"]["type"] == "overloaded_error"
    )


# --- errors -----------------------------------------------------------------------------------------------------------

READ_ERRORS: list[tuple[Any, int, str, int, str]] = [
    ({"type": "error", "error": {"type": "rate_limit_error", "message": "m"}}, 429, "rate", 429, "rate_limit_error"),
    (
        {"type": "error", "error": {"type": "overloaded_error", "message": "m"}},
        0,
        "overloaded",
        529,
        "overloaded_error",
    ),
    ({"type": "error", "error": {"type": "brand_new_error", "message": "m"}}, 0, "invalid", 400, "brand_new_error"),
    (
        {"type": "error", "error": {"type": "brand_new_error", "message": "m"}},
        503,
        "overloaded",
        503,
        "brand_new_error",
    ),
    (
        {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 9 > 8"}},
        400,
        "context",
        400,
        "invalid_request_error",
    ),
    (
        {"error": {"type": "invalid_request_error", "message": "m", "details": {"error_code": "tool_name_conflict"}}},
        400,
        "invalid",
        400,
        "tool_name_conflict",
    ),
    ({"error": "plain"}, 500, "server", 500, ""),
    ("<html>Bad gateway</html>", 502, "upstream", 502, ""),
    (None, 404, "not_found", 404, ""),
    ([1], 418, "invalid", 418, ""),
    ({"error": {"type": 5, "message": None}}, 401, "authentication", 401, ""),
]


@pytest.mark.parametrize(("wire", "status", "kind", "told_status", "code"), READ_ERRORS)
def test_errors_are_read(wire: Any, status: int, kind: str, told_status: int, code: str) -> None:
    failure = CODEC.read_error(wire, status, {})
    assert (failure.kind, failure.status, failure.code) == (kind, told_status, code)
    assert failure.message


def test_the_time_to_wait_is_read_and_written() -> None:
    assert CODEC.read_error(None, 429, {"retry-after": "7"}).retry_after == 7
    assert CODEC.read_error(None, 429, {"retry-after-ms": "1500"}).retry_after == 1.5
    assert CODEC.read_error(None, 429, {"retry-after": "Sun, 06 Nov 1994 08:49:37 GMT"}).retry_after is None
    assert CODEC.write_error(Failure("rate", "m", retry_after=1.5)).headers == {
        "retry-after": "2",
        "retry-after-ms": "1500",
    }


WRITTEN_ERRORS: list[tuple[Failure, int, str, str]] = [
    (Failure("overloaded", "m", 503), 529, "overloaded_error", "m"),
    (Failure("rate", "m", 429), 429, "rate_limit_error", "m"),
    (Failure("quota", "m", 403), 429, "rate_limit_error", "m"),
    (Failure("context", "too big", 400), 400, "invalid_request_error", "prompt is too long: too big"),
    (Failure("context", "Prompt is too long.", 400), 400, "invalid_request_error", "Prompt is too long."),
    (Failure("unprocessable", "m", 422), 400, "invalid_request_error", "m"),
    (Failure("upstream", "m", 502), 502, "api_error", "m"),
    (Failure("server", "m", 200), 500, "api_error", "m"),
    (Failure("deadline", "m"), 504, "timeout_error", "m"),
    (Failure("from-the-future", "m", 0), 500, "api_error", "m"),
]


@pytest.mark.parametrize(("failure", "status", "word", "message"), WRITTEN_ERRORS)
def test_errors_are_written(failure: Failure, status: int, word: str, message: str) -> None:
    out = CODEC.write_error(failure)
    assert out.status == status
    assert out.body == {"type": "error", "error": {"type": word, "message": message}}


@pytest.mark.parametrize(
    "path", sorted((HERE / "samples" / "anthropic").glob("error_*.json")), ids=lambda path: path.stem
)
def test_sampled_errors_come_back(path: Path) -> None:
    status = int(path.stem.removeprefix("error_"))
    wire = json.loads(path.read_bytes())
    out = CODEC.write_error(CODEC.read_error(wire, status, {}))
    assert (out.status, out.body) == (status, wire)


# --- models -----------------------------------------------------------------------------------------------------------

FAMILIES: list[tuple[str, int, bool, str, bool, bool]] = [
    ("claude-3-haiku-20240307", 4096, True, "", True, False),
    ("claude-3-5-sonnet-20241022", 8192, True, "", True, False),
    ("claude-3-7-sonnet-latest", 32000, True, "budget", True, False),
    ("claude-sonnet-4-20250514", 32000, True, "budget", True, False),
    ("claude-opus-4-1-20250805", 32000, True, "budget", True, False),
    ("us.anthropic.claude-haiku-4-5-20251001-v1:0", 64000, True, "budget", True, False),
    ("claude-sonnet-4-6", 64000, True, "either", True, False),
    ("claude-opus-4-7", 128000, False, "adaptive", True, False),
    ("claude-opus-4.8", 128000, False, "adaptive", True, True),
    ("anthropic/claude-opus-5", 128000, False, "adaptive", True, True),
    ("claude-sonnet-5-20260301", 128000, False, "adaptive", True, False),
    ("claude-sonnet-5-5", 128000, False, "adaptive", False, True),
    ("claude-opus-5-5", 128000, False, "adaptive", False, True),
    ("claude-haiku-5-5", 64000, False, "adaptive", False, False),
    ("claude-fable-5", 128000, False, "adaptive", False, True),
    ("claude-mythos-preview", 128000, False, "adaptive", False, False),
    ("claude-mythos-5", 128000, False, "adaptive", False, True),
    ("claude-opus-6", 128000, False, "adaptive", False, True),
]


@pytest.mark.parametrize(("model", "limit", "sampling", "thinking", "forcing", "mid_system"), FAMILIES)
def test_families(model: str, limit: int, sampling: bool, thinking: str, forcing: bool, mid_system: bool) -> None:
    facts = family(model)
    assert (facts.default_tokens, facts.sampling, facts.thinking, facts.forcing) == (limit, sampling, thinking, forcing)
    assert (CONSTRAINTS.mid_system_turn_models.search(model) is not None) == mid_system


@pytest.mark.parametrize("model", ["", "gpt-5.5", "claude-latest", "claude-instant", "kimi-k3", "my-claude-model"])
def test_an_unknown_model_is_taken_as_an_older_one(model: str) -> None:
    assert family(model) is UNKNOWN_FAMILY


def test_one_path_for_every_call() -> None:
    assert CODEC.http.request_path("m", True) == CODEC.http.request_path("m", False) == "/v1/messages"
