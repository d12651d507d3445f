"""Small requests that used to take minutes: every step needs time in proportion to its input, or is bounded.

Nothing here is measured by a clock. Either the steps of a small and of a larger input are counted, or an input is so large
that a step of quadratic or exponential time would never end.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.exchange_records import make_record
from gateway.provider import ScriptedAnswer
from gateway.raw_exchange import (
    CLIENTS,
    ScriptedConnection,
    Served,
    answer,
    ask,
    body_of,
    error_of,
    frames,
    open_call,
    opening_frames,
    path_of,
    request_of,
    stage,
    stream_steps,
    text_of,
    whole_answer,
    write_chunked,
)
from step_count import count_steps
from toolwire import Stream, translate
from toolwire.core.ir import Call, Failure
from toolwire.core.json_values import Malformed
from toolwire.core.losses import MAX_SUMMARISED, Ledger
from toolwire.core.sse import SseSplitter, split_after_frames
from toolwire.gateway.exchange.client_body import MAX_VALUES, ClientBody, has_too_many_values
from toolwire.gateway.exchange.named_model import NamedModel
from toolwire.gateway.exchange.passthrough_stream import PassthroughStream
from toolwire.gateway.features.responses import history, service
from toolwire.gateway.features.responses.recorder import StreamTap
from toolwire.gateway.http.client import Decompressor
from toolwire.gateway.http.decompression import decompress_body
from toolwire.gateway.http.large_work import LARGE_BODY, run_by_size
from toolwire.gateway.pipeline import attempt
from toolwire.gateway.pipeline.attempt import LARGE_PIECE
from toolwire.gateway.pipeline.relay import Forwarder
from toolwire.gateway.surfaces import routes
from toolwire.gateway.surfaces.console import detail, endpoints, rows, sessions
from toolwire.gateway.surfaces.console.detail import describe_exchange
from toolwire.gateway.telemetry.log import MAX_DESCRIBED, debug_lines, json_line, json_line_head
from toolwire.gateway.telemetry.record import ExchangeCapture, ExchangeRecord, PassedAnswer, UpstreamCapture
from toolwire.protocols import CODECS
from toolwire.schema.openapi_subset import convert_to_openapi_subset
from toolwire.schema.patterns import compile_pattern
from toolwire.schema.repair import (
    convert_to_anthropic_input,
    convert_to_openai_parameters,
    convert_to_openai_strict,
    point_references,
)
from toolwire.schema.standard import convert_to_standard
from toolwire.schema.strict import convert_to_strict, strict_problems
from toolwire.schema.validate import schema_problems, value_problems
from toolwire.translation.exchange import Exchange
from toolwire.translation.options import Options
from toolwire.translation.signature_memory import memory_keys
from toolwire.translation.streaming import StreamTranslation
from waits import PATIENCE

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MEMBERS = 1_000_000
PROTOCOLS = ("openai-chat", "openai-responses", "anthropic", "gemini")


# --- compressed bodies --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("encoding", "empty"),
    [("gzip", gzip.compress(b"", mtime=0)), ("zstd", zstd.compress(b"")), ("deflate", zlib.compress(b""))],
    ids=["gzip", "zstd", "deflate"],
)
def test_many_compressed_parts_are_refused(encoding: str, empty: bytes) -> None:
    """Each part costs a copy of the rest of the body."""
    found = decompress_body(empty * MEMBERS, encoding, 1000)
    assert isinstance(found, Failure)
    assert (found.status, "more than 16 parts" in found.message) == (400, True)


@pytest.mark.parametrize("count", range(1, 6))
def test_some_compressed_parts_are_read(count: int) -> None:
    assert decompress_body(gzip.compress(b"abc") * count, "gzip", 1000) == b"abc" * count


@pytest.mark.parametrize("layers", [3, 4, 10, 60, 100, 5000])
def test_many_layers_of_compression_are_refused(layers: int) -> None:
    """228 bytes could be made of layers that each grow to the limit."""
    found = decompress_body(b"x", ", ".join(["gzip"] * layers), 1000)
    assert isinstance(found, Failure)
    assert found.status == 415


def test_a_providers_many_gzip_members_are_read_in_linear_time() -> None:
    empty = gzip.compress(b"", mtime=0)
    decompressor = Decompressor("gzip", "provider")
    found = decompressor.feed(empty * 300_000 + gzip.compress(b"done"), 100)
    assert (found, decompressor.finish()) == (b"done", None)


# --- streams ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_frame_of_many_lines_is_read_in_linear_time(end: str) -> None:
    """Every new line used to copy and search all that came before it."""
    line, lines = f"data: {'x' * 500}{end}".encode(), 60_000
    splitter = SseSplitter()
    frames = [frame for _ in range(lines) for frame in splitter.feed(line)]
    frames += splitter.feed(end.encode()) + splitter.close()
    assert [len(frame.data) for frame in frames] == [lines * 501 - 1]


def test_a_long_frame_that_passes_through_is_searched_once() -> None:
    """Every read used to copy and search all that came before it."""
    stream = PassthroughStream(CODECS["openai-chat"])
    start = b'data: {"id":"a","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"'
    pieces = [start, *[b"x" * 2000] * 15_000, b'"}}]}', b"\n", b"\ndata: [DONE]\n\n"]
    assert b"".join(map(stream.feed, pieces)) == b"".join(pieces)
    assert stream.has_content


@pytest.mark.parametrize("piece", [b"\n\n", b": x\n\n", b":\n\n\n\n"])
def test_comments_and_blank_lines_are_read_together(piece: bytes) -> None:
    frame = b'data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n'
    pieces = split_after_frames(piece * 20_000 + frame + piece * 20_000 + frame)
    assert b"".join(pieces) == piece * 20_000 + frame + piece * 20_000 + frame
    assert [one.count(frame) for one in pieces] == [1, 1]


# --- patterns and schemas -----------------------------------------------------------------------------------------------

EVIL = [
    "^(a|a)*b$",
    "^(a+)+$",
    "^(a*)*b$",
    "(a|aa)+b",
    "^(([a-z])+.)+[A-Z]([a-z])+$",
    "a*a*a*a*a*a*a*a*a*a*a*a*b",
    "(.*,){30}P",
    "^(a?){40}a{40}$",
    "(?:(?:(?:a+)+)+)+b",
    "^(?:a|b|ab)*c$",
]


@pytest.mark.parametrize("target", ["openai-responses", "anthropic", "gemini", "unified"])
def test_calls_that_are_all_open_at_once_take_linear_time(target: str) -> None:
    """A provider can begin thousands of calls before it ends the first. Writers that put them in line look at each once."""
    small, large = (count_steps(lambda count=count: translate_open_calls(target, count)) for count in (200, 800))
    assert large < 5 * small


def translate_open_calls(target: str, count: int) -> None:

    def frame(call: dict[str, Any]) -> bytes:
        choice = {"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}
        return b"data: " + json.dumps({"id": "c", "model": "m", "created": 1, "choices": [choice]}).encode() + b"\n\n"

    begun = [
        frame({"index": n, "id": f"call_{n}", "type": "function", "function": {"name": "f", "arguments": "{"}})
        for n in range(count)
    ]
    ended = [frame({"index": n, "function": {"arguments": "}"}}) for n in range(count)]
    last = {
        "id": "c",
        "model": "m",
        "created": 1,
        "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}],
    }
    stream = Stream(source="openai-chat", target=target)
    out = stream.feed(b"".join((*begun, *ended, b"data: " + json.dumps(last).encode(), b"\n\ndata: [DONE]\n\n")))
    out += stream.close()
    assert stream.failure is None
    assert out.count(b"call_%d" % (count - 1))


@pytest.mark.parametrize("pattern", EVIL)
def test_patterns_are_matched_in_linear_time(pattern: str) -> None:
    text = "a" * 50_000 + "!"
    matches = compile_pattern(pattern)
    assert matches is not None
    assert not matches(text)
    schema = {"properties": {"x": {"pattern": pattern}}, "patternProperties": {pattern: False}}
    assert len(value_problems({"x": text}, schema)) == 1


@pytest.mark.parametrize(
    ("pattern", "text", "occurs"),
    [
        (r"^\d{3}$", "123", True),
        (r"^\d{3}$", "1234", False),
        (r"^\u0041$", "A", True),
        (r"^\u{1F642}$", "🙂", True),
        (r"^\p{L}+$", "größe", True),
        (r"(?<year>\d{4})", "in 2026", True),
        (r"^[\w.-]+@[\w.-]+$", "me@example.com", True),
        (r"b", "abc", True),
        (r"^b", "abc", False),
    ],
)
def test_patterns_mean_what_json_schema_says(pattern: str, text: str, occurs: bool) -> None:
    matches = compile_pattern(pattern)
    assert matches is not None
    assert matches(text) is occurs
    assert bool(value_problems(text, {"pattern": pattern})) is not occurs


@pytest.mark.parametrize("pattern", [r"(?=a)b", r"(a)\1", r"(?<!a)b", "x" * 5000, "["])
def test_what_cannot_be_matched_in_linear_time_is_not_checked(pattern: str) -> None:
    assert compile_pattern(pattern) is None
    assert value_problems("anything", {"pattern": pattern}) == []


@pytest.mark.parametrize("keyword", ["anyOf", "allOf", "oneOf"])
def test_a_schema_that_refers_to_itself_twice_ends(keyword: str) -> None:
    schema = {keyword: [{"$ref": "#"}, {"$ref": "#"}, {"type": "integer", "not": {"$ref": "#"}}]}
    assert value_problems("text", schema) == []


def test_unique_items_are_compared_in_linear_time() -> None:
    items: list[Any] = [[number] for number in range(100_000)]
    assert value_problems(items, {"uniqueItems": True}) == []
    assert value_problems([*items, [0]], {"uniqueItems": True}) == ["the arguments: an item is repeated"]
    assert value_problems([1, 1.0], {"uniqueItems": True}) == ["the arguments: an item is repeated"]
    assert value_problems([1, True, "1", None, 0, False], {"uniqueItems": True}) == []


# --- histories and tools ------------------------------------------------------------------------------------------------


def chat(*messages: object, **more: object) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "a"}, *messages], **more}


def call(id: str) -> dict[str, Any]:
    function = {"name": "t", "arguments": "{}"}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": id, "type": "function", "function": function}]}


def late_results(count: int) -> dict[str, Any]:
    """Each call is answered after the next one."""
    messages: list[Any] = [call("c0")]
    for number in range(1, count):
        messages += [{"role": "user", "content": "go on"}, call(f"c{number}")]
        messages.append({"role": "tool", "tool_call_id": f"c{number - 1}", "content": "x"})
    return chat(*messages)


def calls_with_ids(ids: Sequence[str], results: Sequence[str] | None = None) -> dict[str, Any]:
    calls = [call(id)["tool_calls"][0] for id in ids]
    answers = ({"role": "tool", "tool_call_id": id, "content": "x"} for id in (ids if results is None else results))
    return chat({"role": "assistant", "content": None, "tool_calls": calls}, *answers)


LARGE: dict[str, Callable[[int], dict[str, Any]]] = {
    "one odd id again and again": lambda count: calls_with_ids(["functions.f:0"] * count),
    "a few odd ids again and again": lambda count: calls_with_ids([f"odd id {number % 7}" for number in range(count)]),
    "one legal id again and again": lambda count: calls_with_ids(["call_1"] * count),
    "odd ids": lambda count: calls_with_ids([f"functions.f:{number}/é" for number in range(count)]),
    "calls and results without ids": lambda count: calls_with_ids([""] * count),
    "results without ids": lambda count: calls_with_ids([f"c{number}" for number in range(count)], [""] * count),
    "one tool again and again": lambda count: chat(
        tools=[{"type": "function", "function": {"name": "t", "parameters": {"type": "object"}}}] * count
    ),
    "results behind the next call": late_results,
    "results without a call": lambda count: chat(
        *({"role": "tool", "tool_call_id": f"c{number}", "content": "x"} for number in range(count))
    ),
}


@pytest.mark.parametrize("target", PROTOCOLS)
@pytest.mark.parametrize("kind", LARGE)
def test_large_requests_are_translated_in_linear_time(kind: str, target: str) -> None:
    bodies = map(LARGE[kind], (200, 800))
    small, large = (count_steps(lambda body=body: translate_request(target, body)) for body in bodies)
    assert large < 5 * small


def translate_request(target: str, body: dict[str, Any]) -> None:
    assert translate(body, "request", source="openai-chat", target=target).body


# --- how much is read at all --------------------------------------------------------------------------------------------

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('ab,{["\\\n', max_size=6),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text('ab,{["\\', max_size=3), inner, max_size=5),
)


def test_calls_in_a_row_are_looked_up_in_linear_time() -> None:
    """Each was looked up with all before it: a request of 128 kB stopped the event loop for half a second."""

    def find_keys(count: int) -> int:
        items = [{"type": "function_call", "call_id": f"c{n}", "name": "f", "arguments": "{}"} for n in range(count)]
        request = CODECS["openai-responses"].read_request({"model": "m", "input": items})
        found: list[str] = []
        steps = count_steps(lambda: found.extend(memory_keys(request)))
        assert len(set(found)) == 2 * count + 1
        return steps

    assert find_keys(400) < 6 * find_keys(100)


def count_marks(value: Any) -> int:
    """Every `{`, `[` and `,` outside of strings."""
    if isinstance(value, (dict, list)):
        inner = value.values() if isinstance(value, dict) else value
        return 1 + max(len(value) - 1, 0) + sum(map(count_marks, inner))
    return 0


@given(value=values, limit=st.integers(1, 12), indent=st.none() | st.integers(0, 2))
@example(value=['"', "\\", '\\"', ",,,{"], limit=4, indent=None)
def test_values_are_counted_outside_of_strings(value: Any, limit: int, indent: int | None) -> None:
    body = json.dumps(value, indent=indent).encode()
    counted = count_marks(value)
    assert has_too_many_values(body, limit) is (counted > limit and len(body) >= 2 * limit)


@pytest.fixture(scope="module", name="served")
def serve_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with stage(tmp_path_factory.mktemp("work"), "") as staged:
        yield staged


@pytest.mark.parametrize("client", CLIENTS)
def test_a_request_of_too_many_values_is_refused(served: Served, client: str) -> None:
    scene = served.scene("openai-chat")
    body = {**request_of(client, scene.model, False), "padding": [[]] * (MAX_VALUES // 2 + 1)}
    got = ask(served.port, "POST", path_of(client, scene.model, False), json.dumps(body).encode())
    assert (got.status, scene.asked) == (413, [])
    assert f"more than {MAX_VALUES:,} JSON values" in error_of(client, got)["message"]


NESTING = {
    "properties": ('{"type":"object","properties":{"a":', "}}"),
    "items": ('{"type":"array","items":', "}"),
    "unions": ('{"anyOf":[', ',{"type":"null"}]}'),
    "invalid keywords": ('{"type":"object","minLength":"x","properties":{"a":', "}}"),
}
"""What is before and behind the inner schema."""
DECLARED: dict[str, dict[str, Any]] = {
    "openai-chat": {"type": "function", "function": {"name": "t", "parameters": "SCHEMA"}},
    "openai-responses": {"type": "function", "name": "t", "parameters": "SCHEMA"},
    "anthropic": {"name": "t", "input_schema": "SCHEMA"},
    "gemini": {"functionDeclarations": [{"name": "t", "parametersJsonSchema": "SCHEMA"}]},
}


def nest_schema(kind: str, levels: int) -> str:
    before, behind = NESTING[kind]
    return before * levels + '{"type":"string"}' + behind * levels


@pytest.mark.parametrize("levels", [60, 150, 500, 10_000])
@pytest.mark.parametrize("client", PROTOCOLS)
def test_a_deep_schema_is_translated_or_refused(served: Served, client: str, levels: int) -> None:
    """Of the tools, the others must go on. A body that no JSON parser takes is a bad request."""
    for kind in NESTING:
        for provider in PROTOCOLS:
            scene = served.scene(provider, whole_answer(provider))
            body = {**request_of(client, scene.model, False), "tools": [DECLARED[client]]}
            data = json.dumps(body).replace('"SCHEMA"', nest_schema(kind, levels)).encode()
            got = ask(served.port, "POST", path_of(client, scene.model, False), data)
            assert got.status == 200 or (got.status == 400 and levels > 60), (kind, provider, got.data)
            assert got.status == 200 or "deep" in error_of(client, got)["message"]


@pytest.mark.parametrize("levels", [60, 150, 500, 2000])
@pytest.mark.parametrize("kind", NESTING)
def test_every_conversion_of_a_deep_schema_ends_in_a_schema_or_a_clear_error(kind: str, levels: int) -> None:
    inner: Any = {"type": "string"}
    for _ in range(levels):
        inner = json.loads(nest_schema(kind, 1).replace('{"type":"string"}', '"INNER"', 1), object_hook=fill_in(inner))
    for convert in (
        convert_to_openai_parameters, convert_to_openai_strict, convert_to_anthropic_input,
        convert_to_openapi_subset, convert_to_standard, convert_to_strict, strict_problems,
        point_references, schema_problems, lambda schema: value_problems({"a": {"a": [1]}}, schema),
    ):  # fmt: skip
        try:
            call_deeply(200, convert, inner)
        except Malformed as refused:
            assert "nested too deeply" in refused.problem  # noqa: PT017  most of them convert it


def fill_in(inner: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def fill(node: dict[str, Any]) -> dict[str, Any]:
        return {
            key: inner if value == "INNER" else [inner if one == "INNER" else one for one in value]
            if isinstance(value, list) else value for key, value in node.items()
        }  # fmt: skip

    return fill


def call_deeply(frames: int, work: Callable[[Any], object], value: Any) -> object:
    """As in the gateway, where other calls are below."""
    return call_deeply(frames - 1, work, value) if frames else work(value)


# --- the debug log ------------------------------------------------------------------------------------------------------


def test_debug_lines_are_few_and_short() -> None:
    record = tools_with_losses(1000)
    assert record.traffic.capture is not None
    lines = [dict(fields) for fields in debug_lines(record, record.traffic.capture)]
    assert len(lines) < 110
    assert [(len(line["tools"]), line["omitted_tools"]) for line in lines[:1]] == [(100, 900)]  # type: ignore[arg-type]
    large = exchange_of(chat(padding="x" * MAX_DESCRIBED), chat())
    assert large.traffic.capture is not None
    assert dict(next(debug_lines(large, large.traffic.capture)))["bytes"] == len(large.traffic.capture.client_request)


# --- the console --------------------------------------------------------------------------------------------------------


def exchange_of(request: dict[str, Any], sent: dict[str, Any], losses: int = 0) -> ExchangeRecord:
    body, upstream = json.dumps(request).encode(), json.dumps(sent).encode()
    call = UpstreamCapture("openai-chat", "p", None, "/v1/chat/completions", upstream, 0.0, {}, status=200)
    ledger = Ledger("openai-chat", "openai-chat")
    for number in range(losses):
        ledger.note("tool-dropped", ((None, "tools"), number), f"the rule drops `t{number}`")
    return make_record(
        client_protocol="openai-chat", status=200, ended=1.0, number=1,
        ledgers=(ledger,), capture=ExchangeCapture(body, upstream_calls=[call]),
    )  # fmt: skip


def tools_with_losses(count: int) -> ExchangeRecord:
    tools = [{"type": "function", "function": {"name": f"t{number}", "parameters": {}}} for number in range(count)]
    return exchange_of(chat(tools=tools), chat(), losses=count)


WATCHED: dict[str, Callable[[int], ExchangeRecord]] = {
    "calls with other ids": lambda count: exchange_of(
        chat(*(call(f"a{number}") for number in range(count))), chat(*(call(f"b{number}") for number in range(count)))
    ),
    "calls of the provider alone": lambda count: exchange_of(
        chat(call("a")), chat(*(call(f"b{number}") for number in range(count)), call("a"))
    ),
    "dropped tools": tools_with_losses,
}


@pytest.mark.parametrize("kind", WATCHED)
def test_an_exchange_is_described_in_linear_time(kind: str) -> None:
    small, large = (WATCHED[kind](count) for count in (100, 400))
    steps = [count_steps(lambda record=record: describe_exchange(record, 0, str)) for record in (small, large)]
    assert steps[1] < 6 * steps[0]
    if kind == "dropped tools":
        assert [row.reasons[0].partition(":")[0] for row in describe_exchange(small, 0, str).tools] == [
            f"the rule drops `t{number}`" for number in range(100)
        ]


@pytest.mark.parametrize("path", ["exchanges", "exchanges/0-1", "exchanges/0-1/case", "sessions", "sessions/0-1"])
def test_what_the_console_shows_is_not_worked_out_on_the_event_loop(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor in the threads in which large requests are read."""
    threads: set[str] = set()
    read_row = rows.exchange_row

    def note(record: ExchangeRecord, worker: int, *words: Any) -> Any:
        threads.add(threading.current_thread().name)
        return read_row(record, worker, *words)

    def note_case(record: ExchangeRecord, clean: Callable[[str], str]) -> bytes:
        threads.add(threading.current_thread().name)
        return b"{}"

    for module in (endpoints, detail, sessions):
        monkeypatch.setattr(module, "exchange_row", note)
    monkeypatch.setattr(endpoints, "write_case", note_case)
    with stage(tmp_path, more="[console]\nenabled = true\n") as staged:
        scene = staged.scene("openai-chat", whole_answer("openai-chat"))
        body = json.dumps(request_of("openai-chat", scene.model, False)).encode()
        asked = ask(staged.port, "POST", path_of("openai-chat", scene.model, False), body)
        staged.line(asked.id)
        for _ in range(2):
            got = ask(staged.port, "GET", f"/console/api/v1/{path}")
            assert got.status == 200, got.data
    assert {name.rpartition("_")[0] for name in threads} == {"toolwire-aside"}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_large_text_with_many_commas_is_served(served: Served, client: str) -> None:
    """A table as text is large, but it is one value."""
    scene = served.scene("anthropic", whole_answer("anthropic"))
    request = request_of(client, scene.model, False)
    text = json.dumps(request).replace("Hi", "1,2,3,{[" * 100_000)
    got = ask(served.port, "POST", path_of(client, scene.model, False), text.encode())
    assert (got.status, text_of(client, got, False)) == (200, "Hello there.")


def test_large_work_is_done_in_a_thread() -> None:
    async def work(size: int) -> str:
        return await run_by_size(size, lambda: threading.current_thread().name)

    assert asyncio.run(work(LARGE_BODY)).startswith("toolwire-large-work")
    assert asyncio.run(work(LARGE_BODY - 1)) == threading.current_thread().name


class SearchedIds(frozenset[str]):
    """Ids that are searched, and never copied."""

    def union(self, *_others: object) -> frozenset[str]:
        raise AssertionError("copied for one call")


@pytest.mark.parametrize("id", ["", "c1"], ids=["no ids", "one id for all"])
def test_the_id_of_a_call_takes_the_same_time_however_many_there_are(id: str) -> None:
    exchange = Exchange(CODECS["anthropic"], CODECS["openai-chat"], Options(model="m"))
    steps = exchange.make_answer_steps("seed", Ledger("anthropic", "openai-chat"))
    steps.used_call_ids = SearchedIds(["c1", "c2"])
    assert len({steps.restore_call(Call(id, "tool", "{}"), 0).id for _ in range(50)}) == 50


def test_the_log_line_of_a_request_with_many_losses_takes_the_same_time() -> None:
    """Each value of a body can be one, and the log shows some of them."""

    def write_line(count: int) -> int:
        ledger = Ledger("anthropic", "openai-chat")
        for number in range(count):
            ledger.note("no-counterpart", ((None, "messages"), number), "the member was left out")
        record = make_record(started_at=1.0)
        record.answer.add_losses(ledger.codes, ledger, ledger)  # those of the request, and of the answer
        line: list[str] = []
        steps = count_steps(lambda: line.append(str(json_line(record, "", json_line_head(record), False))))
        assert line[0].count("left out") == MAX_SUMMARISED
        return steps

    assert write_line(20_000) < write_line(200) + 10_000


def test_stored_conversations_are_not_worked_on_by_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request with `previous_response_id` is small, and what it becomes is not."""
    threads: dict[str, set[str]] = {}

    def watch(module: Any, name: str) -> None:
        work = getattr(module, name)

        def note_thread(*args: Any) -> Any:
            threads.setdefault(name, set()).add(threading.current_thread().name.partition("_")[0])
            return work(*args)

        monkeypatch.setattr(module, name, note_thread)

    for name in ("read_state_options", "expand_request", "read_items_to_store", "replace_body"):
        watch(service, name)
    watch(history, "read_stored_response")
    store = f'[store]\nurl = "sqlite:///{tmp_path}/store.db"\n'
    with stage(tmp_path, "", store) as served:
        scene = served.scene("openai-responses", whole_answer("openai-responses"))
        request = {"model": scene.model, "input": "a word " * LARGE_BODY}
        first = ask(served.port, "POST", "/v1/responses", json.dumps(request).encode()).json()
        for name in ("read_state_options", "expand_request", "read_items_to_store"):
            assert threads[name] == {"toolwire-large-work"}
        threads.clear()
        request = {"model": scene.model, "input": "And?", "previous_response_id": first["id"]}
        got = ask(served.port, "POST", "/v1/responses", json.dumps(request).encode())
        assert got.status == 200
        assert len(scene.asked[-1].body) > LARGE_BODY
    for name in ("expand_request", "replace_body", "read_stored_response"):
        assert threads[name] == {"toolwire-large-work"}


def test_a_stored_conversation_is_not_compacted_by_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: dict[str, set[str]] = {}

    def watch(name: str) -> None:
        work = getattr(history, name)

        def note_thread(*args: Any) -> Any:
            threads.setdefault(name, set()).add(threading.current_thread().name.partition("_")[0])
            return work(*args)

        monkeypatch.setattr(history, name, note_thread)

    names = ("expand_request", "read_items_to_store", "write_summary_request", "replace_body")
    for name in names:
        watch(name)
    store = f'[store]\nurl = "sqlite:///{tmp_path}/store.db"\n'
    with stage(tmp_path, "", store) as served:
        scene = served.scene("openai-chat", whole_answer("openai-chat"))
        asked: dict[str, Any] = {"model": scene.model, "input": "a word " * LARGE_BODY}
        first = ask(served.port, "POST", "/v1/responses", json.dumps(asked).encode()).json()
        asked = {"input": [{"type": "compaction_trigger"}], "previous_response_id": first["id"], "model": scene.model}
        assert ask(served.port, "POST", "/v1/responses", json.dumps(asked).encode()).status == 200
        assert len(scene.asked[-1].body) > LARGE_BODY
    assert threads == {name: {"toolwire-large-work"} for name in names}


def watch_threads(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, threads: dict[str, dict[str, int]]) -> None:
    """Note in which threads a function runs, and the longest result in each."""
    work = getattr(owner, name)

    def note_thread(*args: Any) -> Any:
        done = work(*args)
        found = threads.setdefault(name, {})
        thread = threading.current_thread().name.partition("_")[0]
        found[thread] = max(found.get(thread, 0), len(done) if isinstance(done, bytes) else 0)
        return done

    monkeypatch.setattr(owner, name, note_thread)


STREAMS = [("openai-chat", PassthroughStream), ("anthropic", StreamTranslation), ("openai-responses", StreamTap)]


@pytest.mark.parametrize(("client", "reader"), STREAMS, ids=["passed", "translated", "stored"])
def test_a_long_event_of_a_stream_is_not_read_by_the_event_loop(
    client: str, reader: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One event of 16 MB took more than a second. What is short is translated where it arrives."""
    threads: dict[str, dict[str, int]] = {}
    watch_threads(monkeypatch, reader, "feed", threads)
    store = f'[store]\nurl = "sqlite:///{tmp_path}/store.db"\n'
    with stage(tmp_path, "", store) as served:
        for text, is_long in (("Hello there.", False), ("a word " * LARGE_BODY, True)):
            threads.clear()
            scene = served.scene("openai-chat", stream_steps("openai-chat", text))
            more = {"store": True} if client == "openai-responses" else {}
            request = json.dumps(request_of(client, scene.model, True, **more)).encode()
            got = ask(served.port, "POST", path_of(client, scene.model, True), request)
            assert (got.status, text_of(client, got, True)) == (200, text)
            longest = {thread: size for thread, size in threads["feed"].items() if size > LARGE_PIECE}
            assert list(longest) == (["toolwire-large-work"] if is_long else [])
            assert ("toolwire-large-work" in threads["feed"]) is is_long


def test_what_a_thread_reads_when_the_client_leaves_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record was written while the thread went on with the stream: its piece cost nothing."""
    begun, go = threading.Event(), threading.Event()
    feed = StreamTranslation.feed

    def wait_in_thread(stream: StreamTranslation, data: bytes) -> bytes:
        if threading.current_thread().name.startswith("toolwire-large-work"):
            begun.set()
            assert go.wait(PATIENCE)
        return feed(stream, data)

    def play(peer: ScriptedConnection) -> None:
        peer.send(write_chunked(*opening_frames("openai-chat"), end=False))
        peer.wait_for_release()
        peer.chunk(b"".join(frames("openai-chat", "a word " * 20_000)))
        peer.wait_for_close()

    with stage(tmp_path) as served:
        monkeypatch.setattr(StreamTranslation, "feed", wait_in_thread)
        scene = served.scene("openai-chat", play)
        client = open_call(served, "anthropic", scene.model, True, {"x-request-id": "leaves"})
        client.start()
        client.read_some()
        scene.go.set()
        assert begun.wait(PATIENCE)
        client.disconnect()
        assert ask(served.port, "GET", "/livez").status == 200  # the loop has seen it
        go.set()
        line = served.line("leaves")
    assert line["client_disconnected"]
    assert line["calls"][0]["output_tokens"] > 1000


def test_pieces_that_wait_for_a_thread_are_not_captured_for_the_client() -> None:
    """Two of them are translated together; the console showed as sent what was held back, and showed it twice later."""
    capture, call = ExchangeCapture(b""), UpstreamCapture("openai-chat", "p", None, "/", b"", 0.0, {})
    capture.upstream_calls.append(call)
    budget: Any = SimpleNamespace(take=lambda size: True)
    how = (lambda: 0.0, budget)
    sent: list[bytes] = []
    passed = PassedAnswer(capture, lambda data: not sent.append(data), *how)

    class Response:
        async def pour_into(self, sink: Any) -> bytes:
            for piece in (b'data: {"choices":[{"delta":{"content":"' + b"w" * LARGE_PIECE, b"more"):
                call.response.copy_writes(sink, *how)(piece)
            return b""

    stream = PassthroughStream(CODECS["openai-chat"])
    started: Any = SimpleNamespace(stream=stream, response=Response(), silent_size=0, pending_output=[])
    output: Any = SimpleNamespace(write_nowait=passed.write)
    asyncio.run(Forwarder(started, passed.write, bytes, output, passed).pour())
    assert b"".join(sent) == capture.client_response.data == b""


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_large_answer_of_another_shape_is_not_read_by_the_event_loop(
    stream: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole answer to a request for a stream, or a list where the protocol has a text."""
    threads: dict[str, dict[str, int]] = {}
    watch_threads(monkeypatch, attempt, "decode", threads)
    text = "a word " * LARGE_BODY
    body = body_of("openai-chat", ScriptedAnswer(text))
    if not stream:
        body["choices"][0]["message"]["content"] = [{"type": "text", "text": text}]
    with stage(tmp_path) as served:
        scene = served.scene("openai-chat", answer(200, json.dumps(body).encode()))
        request = json.dumps(request_of("openai-chat", scene.model, stream)).encode()
        got = ask(served.port, "POST", path_of("openai-chat", scene.model, stream), request)
        assert got.status == 200
        assert text_of("openai-chat", got, stream) == text if stream else got.json() == body
    assert set(threads["decode"]) == {"toolwire-large-work"}


PASSED = {
    "/v1/chat/completions": ("openai-chat", ClientBody, "write", {}),
    "/v1/embeddings": ("openai-chat", NamedModel, "rewrite_body", {"input": "a word " * LARGE_BODY}),
    "/v1/messages/count_tokens": ("anthropic", routes, "parse_object", {}),
}


@pytest.mark.parametrize("path", PASSED)
def test_a_large_body_is_not_written_by_the_event_loop(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A body of 40 MB that passes as it came is searched for some words, and gets another model."""
    protocol, owner, name, more = PASSED[path]
    threads: dict[str, dict[str, int]] = {}
    watch_threads(monkeypatch, owner, name, threads)
    with stage(tmp_path) as served:
        scene = served.scene(protocol, answer(200, b"{}"))
        request = request_of(protocol, scene.model, False, **more)
        request["messages"][0]["content"] = "a word " * LARGE_BODY
        ask(served.port, "POST", path, json.dumps(request).encode())
        assert len(scene.asked[0].body) > LARGE_BODY
        assert scene.asked[0].json()["model"] == scene.name
    assert set(threads[name]) == {"toolwire-large-work"}
