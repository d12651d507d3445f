"""What the Anthropic room writes, judged by Anthropic's own SDK over a loopback socket."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anthropic
import pytest

from toolwire.core.codec import WriteContext
from toolwire.core.events import (
    ArgumentsDelta,
    ChoiceEnd,
    CitationDelta,
    Event,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseFailed,
    ResponseStart,
    SealDelta,
    TextDelta,
    UsageUpdate,
    fold,
    unfold,
)
from toolwire.core.ir import (
    Call,
    Citation,
    Failure,
    Finish,
    ProviderCall,
    ProviderResult,
    Reasoning,
    Seal,
    Text,
    Usage,
    strip_origins,
)
from toolwire.core.json_values import encode
from toolwire.core.losses import Ledger
from toolwire.protocols.anthropic import CODEC
from toolwire.protocols.anthropic.names import NAME

HERE = Path(__file__).parents[1] / "samples"
SAMPLES = [path for path in sorted((HERE / "anthropic").glob("*.sse")) if path.stem != "error_midstream"]

Serve = Callable[[int, Mapping[str, str], bytes], str]


def client(url: str) -> anthropic.Anthropic:
    return anthropic.Anthropic(api_key="k", base_url=url, max_retries=0)


def final(serve: Serve, data: bytes) -> Any:
    url = serve(200, {"content-type": "text/event-stream"}, data)
    with (
        client(url) as caller,
        caller.messages.stream(max_tokens=9, messages=[{"role": "user", "content": "x"}], model="m") as stream,
    ):
        return stream.get_final_message()


def events_of(data: bytes) -> list[Event]:
    reader = CODEC.make_stream_reader()
    return [*reader.feed(data), *reader.close()]


def write_events(events: Any) -> bytes:
    writer = CODEC.make_stream_writer(Ledger("elsewhere", NAME), WriteContext())
    return b"".join([writer.write(event) for event in events]) + writer.close()


def meaning(message: Any) -> list[dict[str, Any]]:
    """What the SDK accumulated, without what only the provider itself puts in."""
    return [
        {
            key: value
            for key, value in block.items()
            if key not in ("caller", "toolset_name", "citations") and value is not None
        }
        for block in message.model_dump(mode="json")["content"]
    ]


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_a_stream_written_from_meaning_accumulates_to_the_same_message(path: Path, serve: Serve) -> None:
    """Sample → events → meaning alone → our bytes → the SDK: as from the sample itself."""
    data = path.read_bytes()
    ours, theirs = (
        final(serve, stream) for stream in (write_events(unfold(strip_origins(fold(events_of(data))))), data)
    )
    if path.stem != "web_search_with_citation":
        assert meaning(ours) == meaning(theirs)
    else:
        assert [block["type"] for block in meaning(ours)] == [block["type"] for block in meaning(theirs)]
        assert ours.content[3].citations[0].cited_text == "It is sunny."
    assert (ours.stop_reason, ours.stop_sequence) == (theirs.stop_reason, theirs.stop_sequence)
    assert ours.usage.output_tokens == theirs.usage.output_tokens
    assert ours.usage.input_tokens == theirs.usage.input_tokens


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_a_stream_that_passes_through_accumulates_to_the_same_message(path: Path, serve: Serve) -> None:
    data = path.read_bytes()
    assert final(serve, write_events(events_of(data))) == final(serve, data)


def test_a_stream_without_event_lines_is_made_readable(serve: Serve) -> None:
    data = (HERE / "negative" / "anthropic_data_only_no_event_lines.sse").read_bytes()
    assert final(serve, write_events(events_of(data))).content[0].text == "Hello!"


def test_interleaved_parts_of_another_wire(serve: Serve) -> None:
    events: list[Event] = [
        ResponseStart("resp_1", "gpt"),
        PartStart(0, Reasoning()),
        TextDelta(0, "Hm"),
        PartStart(1, Text("")),
        TextDelta(1, "Two at once."),
        PartStart(2, Call("c1", "f")),
        PartStart(3, Call("c2", "g")),
        ArgumentsDelta(3, '{"b":'),
        ArgumentsDelta(2, '{"a":1}'),
        SealDelta(0, Seal(NAME, "envelope")),
        ArgumentsDelta(3, "2}"),
        *(PartEnd(index) for index in range(4)),
        ChoiceEnd(Finish("calls")),
        UsageUpdate(Usage(100, 7, cache_read=40)),
        ResponseEnd(),
    ]
    message = final(serve, write_events(events))
    assert meaning(message) == [
        {"type": "thinking", "thinking": "Hm", "signature": ""},
        {"type": "text", "text": "Two at once."},
        {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}},
        {"type": "tool_use", "id": "c2", "name": "g", "input": {"b": 2}},
        {"type": "thinking", "thinking": "", "signature": "envelope"},
    ]
    assert message.stop_reason == "tool_use"
    assert (message.usage.input_tokens, message.usage.cache_read_input_tokens) == (60, 40)


def test_a_search_of_another_provider(serve: Serve) -> None:
    source = Citation("https://a", "A", "sunny")
    events: list[Event] = [
        ResponseStart("resp_1", "gpt"),
        PartStart(0, ProviderCall("ws_1", "web_search")),
        ArgumentsDelta(0, '{"query":"weather"}'),
        PartEnd(0),
        PartStart(1, ProviderResult("ws_1", "web_search")),
        CitationDelta(1, source),
        PartEnd(1),
        PartStart(2, Text("")),
        TextDelta(2, "Sunny."),
        CitationDelta(2, source),
        PartEnd(2),
        ChoiceEnd(Finish("stop")),
        UsageUpdate(Usage(1, 1)),
        ResponseEnd(),
    ]
    message = final(serve, write_events(events))
    call, result, text = message.content
    assert (call.name, call.input, result.tool_use_id) == ("web_search", {"query": "weather"}, call.id)
    assert [item.url for item in result.content] == ["https://a"]
    assert text.citations[0].url == "https://a"
    assert message.usage.server_tool_use.web_search_requests == 1


def test_a_whole_answer(serve: Serve) -> None:
    response = CODEC.read_response(json.loads((HERE / "anthropic" / "message_tool_use.json").read_bytes()))
    body = encode(CODEC.write_response(strip_origins(response), Ledger("elsewhere", NAME), WriteContext()))
    url = serve(200, {"content-type": "application/json"}, body)
    with client(url) as caller:
        message = caller.messages.create(max_tokens=9, messages=[{"role": "user", "content": "x"}], model="m")
    assert [block.type for block in message.content] == ["thinking", "text", "tool_use"]
    assert message.stop_reason == "tool_use"


FAILURES: list[tuple[str, int, type[anthropic.APIError]]] = [
    ("invalid", 400, anthropic.BadRequestError),
    ("context", 400, anthropic.BadRequestError),
    ("authentication", 401, anthropic.AuthenticationError),
    ("permission", 403, anthropic.PermissionDeniedError),
    ("not_found", 404, anthropic.NotFoundError),
    ("rate", 429, anthropic.RateLimitError),
    ("quota", 429, anthropic.RateLimitError),
    ("server", 500, anthropic.InternalServerError),
    ("upstream", 502, anthropic.InternalServerError),
    ("overloaded", 529, anthropic.InternalServerError),
]


@pytest.mark.parametrize(("kind", "status", "raised"), FAILURES)
def test_errors_raise_what_the_sdk_has_for_them(kind: str, status: int, raised: type[Exception], serve: Serve) -> None:
    sent = CODEC.write_error(Failure(kind, "no", code="some_code"))
    url = serve(sent.status, {"content-type": "application/json", **sent.headers}, encode(sent.body))
    with client(url) as caller, pytest.raises(raised) as caught:
        caller.messages.create(max_tokens=9, messages=[{"role": "user", "content": "x"}], model="m")
    assert isinstance(caught.value, anthropic.APIStatusError)
    assert caught.value.status_code == status


def test_a_failure_inside_a_stream_is_raised(serve: Serve) -> None:
    failed = ResponseFailed(Failure("overloaded", "busy", 503))
    with pytest.raises(anthropic.APIStatusError, match="busy"):
        final(serve, write_events([ResponseStart("r", "m"), PartStart(0, Text("a")), failed]))
