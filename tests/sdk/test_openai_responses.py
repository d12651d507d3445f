"""What the writer of Responses writes, added up by the official SDK over a socket, beside what the samples give."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import openai
import pytest
from msgspec.structs import replace

from toolwire.core import json_values
from toolwire.core.codec import WriteContext
from toolwire.core.events import (
    ArgumentsDelta,
    ChoiceEnd,
    Event,
    OpaqueEvent,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
    SealDelta,
    TextDelta,
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
    ProviderCall,
    ProviderResult,
    Reasoning,
    Refusal,
    Response,
    Seal,
    Text,
    Usage,
    strip_origins,
)
from toolwire.core.losses import Ledger
from toolwire.protocols.openai_responses import CODEC
from toolwire.protocols.openai_responses.names import NAME

Serve = Callable[[int, Mapping[str, str], bytes], str]
Connect = Callable[..., openai.OpenAI]
SAMPLES = Path(__file__).parents[1] / "samples" / "openai_responses"
STREAMS = sorted(SAMPLES.glob("*.sse"))
EVENTS = {"content-type": "text/event-stream"}
JSON = {"content-type": "application/json"}
STRICT = {"type": "function", "name": "ping", "parameters": {"type": "object", "properties": {}}, "strict": True}


@pytest.fixture(scope="module")
def sdk() -> Iterator[openai.OpenAI]:
    """One client for all: making one costs more than all that it does here."""
    with openai.OpenAI(api_key="none", base_url="http://127.0.0.1", max_retries=0) as one:
        yield one


@pytest.fixture
def client(serve: Serve, sdk: openai.OpenAI) -> Connect:
    def connect(body: bytes, status: int = 200, headers: Mapping[str, str] = EVENTS) -> openai.OpenAI:
        return sdk.copy(base_url=f"{serve(status, headers, body)}/v1")

    return connect


def write_events(events: Any, source: str = "other", context: WriteContext | None = None) -> bytes:
    writer = CODEC.make_stream_writer(Ledger(source, NAME), context or WriteContext(now=1_767_225_601, seed="s"))
    return b"".join([*(writer.write(event) for event in events), writer.close()])


def read(data: bytes) -> list[Event]:
    reader = CODEC.make_stream_reader()
    return [*reader.feed(data), *reader.close()]


def lean(events: list[Event]) -> list[Event]:
    return [replace(event, frame=None) for event in events if not isinstance(event, OpaqueEvent)]


def final(one: openai.OpenAI, **options: Any) -> Any:
    """What the SDK makes of a stream: the answer, or the exception that it raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with one.responses.stream(model="m", input="x", **options) as stream:
                return stream.get_final_response()
        except (openai.APIError, RuntimeError, json.JSONDecodeError) as error:
            return error


def read_items(answer: Any) -> list[Any]:
    """The items of an answer without ids, which are ours to choose, and without what is null."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        items = answer.model_dump(mode="json", exclude_none=True)["output"]
    for item in items:
        for key in ("id", "parsed_arguments", *(("status",) if item["type"] == "reasoning" else ())):
            item.pop(key, None)
        for part in item.get("content") or ():
            part.pop("parsed", None)
    return [
        {key: value for key, value in item.items() if key not in ("phase", "caller", "environment")} for item in items
    ]


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
@pytest.mark.parametrize("form", ["lean", "unfolded"])
def test_the_sdk_makes_of_our_streams_what_it_makes_of_the_samples(path: Path, form: str, client: Connect) -> None:
    data = path.read_bytes()
    events = read(data)
    ours = lean(events) if form == "lean" else unfold(strip_origins(fold(events)))
    first, second = final(client(data)), final(client(write_events(ours, NAME)))
    if isinstance(first, Exception):
        assert isinstance(second, RuntimeError)
        return
    assert not isinstance(second, Exception), second
    if path.stem == "shell_call":
        assert second.output[0].action.commands == ["ls -l"]
        return
    assert read_items(second) == read_items(first)
    assert second.usage == first.usage
    assert second.output_text == first.output_text


EVERYTHING = Response(
    "msg_01", "m", 5,
    (Choice(0, (
        Reasoning("Hm.", seal=Seal(NAME, "gAAA")),
        Text("Look: ", (Citation("https://e.example", "E", start=0, end=4),)),
        Text("here."),
        ProviderCall("srv", "web_search", '{"query":"x"}'),
        ProviderResult("srv", "web_search", (Citation("https://e.example"),)),
        Call("c1", "get_weather", '{"city":"Paris"}', namespace="crm"),
        Call("c2", "ping"),
        Call("c3", "patch", "*** Begin Patch", "custom"),
        Call("c4", "tool_search", '{"query":"eta"}', "search"),
        Call("c5", "shell", '{"commands":["ls"]}', "shell"),
        Call("c6", "apply_patch", '{"type":"delete_file","path":"a"}', "apply_patch"),
        Call("c7", "local_shell", '{"type":"exec","command":["ls"],"env":{}}', "local_shell"),
        Call("c8", "computer", '{"type":"wait"}', "computer"),
        Media("image", "image/png", "AA=="),
        Reasoning("raw", "raw"),
        Refusal("No."),
    ), Finish("calls", "tool_use")),),
    Usage(10, 20, cache_read=4, reasoning=3),
)  # fmt: skip


def test_everything_that_an_answer_can_hold_arrives_streamed_and_whole(client: Connect) -> None:
    streamed = final(client(write_events(unfold(EVERYTHING))), tools=[STRICT])
    assert not isinstance(streamed, Exception), streamed
    body = CODEC.write_response(EVERYTHING, Ledger("other", NAME), WriteContext(now=1_767_225_601, seed="s"))
    whole = client(json_values.encode(body), headers=JSON).responses.create(model="m", input="x")
    assert read_items(streamed) == read_items(whole)
    assert [item.type for item in whole.output] == [
        "reasoning", "message", "web_search_call", "function_call", "function_call", "custom_tool_call",
        "tool_search_call", "shell_call", "apply_patch_call", "local_shell_call", "computer_call",
        "image_generation_call", "reasoning", "message",
    ]  # fmt: skip
    assert whole.output_text == "Look: here."
    assert whole.usage is not None
    assert whole.usage.input_tokens_details.cached_tokens == 4
    call: Any = streamed.output[3]
    assert (call.call_id, call.name, call.namespace, call.arguments) == ("c1", "get_weather", "crm", '{"city":"Paris"}')
    nothing: Any = streamed.output[4]
    assert nothing.parsed_arguments == {}


def test_a_first_and_second_turn_through_the_types_of_the_sdk(client: Connect) -> None:
    """What an SDK client replays of our answer, nulls and all, is read and means the same."""
    streamed = final(client(write_events(unfold(EVERYTHING))))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        replayed = [item.model_dump(mode="json") for item in streamed.output]
    request = CODEC.read_request(json_values.decode(json_values.encode({"model": "m", "input": replayed})))
    calls = [part for turn in request.turns for part in turn.parts if isinstance(part, Call)]
    assert [(call.kind, call.id, call.name) for call in calls] == [
        (part.kind, part.id, part.name) for part in EVERYTHING.choices[0].parts if isinstance(part, Call)
    ]
    thought = request.turns[0].parts[0]
    assert isinstance(thought, Reasoning)
    assert thought.seal == Seal(NAME, "gAAA")


def test_interleaved_calls_arrive_whole(client: Connect) -> None:
    events: list[Event] = [
        ResponseStart("x", "m", 5),
        PartStart(0, Reasoning()),
        PartStart(1, Call("a", "ping")),
        PartStart(2, Call("b", "ping")),
        ArgumentsDelta(2, '{"b":'),
        ArgumentsDelta(1, '{"a":1}'),
        SealDelta(0, Seal(NAME, "g")),
        ArgumentsDelta(2, "2}"),
        TextDelta(0, "Think."),
        PartEnd(2),
        PartEnd(0),
        PartEnd(1),
        ChoiceEnd(Finish("calls")),
        ResponseEnd(),
    ]
    answer = final(client(write_events(events)), tools=[STRICT])
    assert [getattr(item, "parsed_arguments", None) for item in answer.output] == [None, {"a": 1}, {"b": 2}]


def test_failures_reach_the_client(client: Connect) -> None:
    started: list[Event] = [ResponseStart("x", "m", 5), PartStart(0, Text("")), TextDelta(0, "Hel")]
    failure = ResponseFailed(Failure("overloaded", "Busy.", 529))
    for events in ([*started, failure], [failure], started):
        body = write_events(events)
        assert isinstance(final(client(body)), RuntimeError)
        with client(body).responses.create(model="m", input="x", stream=True) as stream:
            last = list(stream)[-1]
        assert last.type == "response.failed"
        assert last.response.error is not None
    sent = CODEC.write_error(Failure("rate", "Slow down.", 429, retry_after=7))
    with pytest.raises(openai.RateLimitError) as raised:
        client(json_values.encode(sent.body), sent.status, {**JSON, **sent.headers}).responses.create(
            model="m", input="x"
        )
    assert raised.value.code == "rate_limit_exceeded"
    assert raised.value.response.headers["retry-after"] == "7"
    sent = CODEC.write_error(Failure("context", "Too long.", 400))
    with pytest.raises(openai.BadRequestError) as too_long:
        client(json_values.encode(sent.body), sent.status, JSON).responses.create(model="m", input="x")
    assert too_long.value.code == "context_length_exceeded"
