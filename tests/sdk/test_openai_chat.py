"""What the writer of Chat Completions writes, added up by the official SDK over a socket."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import openai
import pytest

from toolwire.core import json_values
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
    TextDelta,
    UsageUpdate,
    unfold,
)
from toolwire.core.ir import (
    Call,
    Choice,
    Citation,
    Failure,
    Finish,
    Reasoning,
    Refusal,
    Response,
    Seal,
    Text,
    Usage,
    strip_origins,
)
from toolwire.core.losses import Ledger
from toolwire.protocols.openai_chat import CODEC

Serve = Callable[[int, Mapping[str, str], bytes], str]
SAMPLES = Path(__file__).parents[1] / "samples"
WHOLE = sorted((SAMPLES / "openai_chat").glob("*.json"))
STREAMED = [path for path in WHOLE if path.stem not in ("error_midstream", "custom_tool_call", "length")]
EVENTS = {"content-type": "text/event-stream"}
STRICT = {
    "type": "function",
    "function": {"name": "ping", "parameters": {"type": "object", "properties": {}}, "strict": True},
}


@pytest.fixture
def client(serve: Serve) -> Iterator[Callable[..., openai.OpenAI]]:
    opened: list[openai.OpenAI] = []

    def connect(body: bytes, status: int = 200, headers: Mapping[str, str] = EVENTS) -> openai.OpenAI:
        base = serve(status, headers, body)
        opened.append(openai.OpenAI(api_key="none", base_url=f"{base}/v1", max_retries=0))
        return opened[-1]

    yield connect
    for one in opened:
        one.close()


def write_events(events: Iterator[Event] | list[Event], context: WriteContext | None = None) -> bytes:
    writer = CODEC.make_stream_writer(Ledger("other", "openai-chat"), context or WriteContext())
    return b"".join([writer.write(event) for event in events]) + writer.close()


def meant(path: Path) -> Response:
    found: Response = strip_origins(CODEC.read_response(json_values.decode(path.read_bytes())))
    return found


def added_up(client: openai.OpenAI, **asked: Any) -> Response:
    with client.chat.completions.stream(model="m", messages=[{"role": "user", "content": "hi"}], **asked) as stream:
        stream.until_done()
        whole = stream.get_final_completion()
    with warnings.catch_warnings():
        # The SDK's parsed subclasses do not match the types of the fields that hold them.
        warnings.simplefilter("ignore")
        body = whole.model_dump(mode="json", exclude_unset=True)
    read: Response = strip_origins(CODEC.read_response(body))
    return read


@pytest.mark.parametrize("path", STREAMED, ids=lambda path: path.stem)
def test_samples_add_up_to_what_they_mean(path: Path, client: Callable[..., openai.OpenAI]) -> None:
    response = meant(path)
    context = WriteContext()
    if path.stem.startswith("legacy"):
        asked = {**json_values.decode((SAMPLES / "requests" / "chat_legacy.json").read_bytes())}
        asked |= {"stream": True, "stream_options": {"include_usage": True}}
        context = WriteContext(CODEC.read_request(asked))
    assert added_up(client(write_events(unfold(response), context)), tools=[STRICT]) == response


@pytest.mark.parametrize("path", [p for p in WHOLE if p.stem != "error_midstream"], ids=lambda path: path.stem)
def test_whole_answers_are_read_by_the_sdk(path: Path, client: Callable[..., openai.OpenAI]) -> None:
    response = meant(path)
    body = json_values.encode(CODEC.write_response(response, Ledger("other", "openai-chat"), WriteContext()))
    reply = client(body, headers={"content-type": "application/json"}).chat.completions.create(
        model="m", messages=[{"role": "user", "content": "hi"}]
    )
    assert strip_origins(CODEC.read_response(reply.model_dump(mode="json", exclude_unset=True))) == response


START = ResponseStart("chatcmpl-1", "m", 1)


def test_calls_that_interleave_add_up(client: Callable[..., openai.OpenAI]) -> None:
    events: list[Event] = [
        START,
        PartStart(0, Reasoning()),
        TextDelta(0, "hm"),
        PartEnd(0),
        PartStart(1, Text("")),
        TextDelta(1, "a"),
        CitationDelta(1, Citation("https://x", "X", start=0, end=1)),
        PartEnd(1),
        PartStart(2, Call("a", "ping")),
        PartStart(3, Call("b", "get")),
        ArgumentsDelta(3, '{"y"'),
        PartStart(4, Text("")),
        TextDelta(4, "b"),
        CitationDelta(4, Citation("https://y", "Y", start=0, end=1)),
        PartEnd(4),
        ArgumentsDelta(3, ":2}"),
        PartEnd(3),
        PartEnd(2),
        ChoiceEnd(Finish("calls")),
        UsageUpdate(Usage(1, 2)),
        ResponseEnd(),
    ]
    response = added_up(client(write_events(events)), tools=[STRICT])
    parts = response.choices[0].parts
    assert parts[0] == Reasoning("hm", "raw")
    assert isinstance(parts[1], Text)
    assert [citation.start for citation in parts[1].citations] == [0, 1]
    assert parts[1].text == "ab"
    assert parts[2:] == (Call("a", "ping", "{}"), Call("b", "get", '{"y":2}'))
    assert response.usage == Usage(1, 2, total=3)


def test_seals_of_our_own_add_up(client: Callable[..., openai.OpenAI]) -> None:
    seals = [Seal("openai-chat", f'{{"index":{number},"signature":"s{number}"}}') for number in range(2)]
    parts = (
        Reasoning("hm", "raw", seal=seals[0]),
        Reasoning("ja", "raw", seal=seals[1]),
        Text("x"),
        Call("a", "f", "{}", seal=Seal("openai-chat@google", "sig")),
    )
    choice = Choice(0, parts, Finish("calls", "tool_calls"))
    response = added_up(client(write_events(unfold(Response("c", "m", 1, (choice,))))), tools=[STRICT])
    found = response.choices[0].parts
    assert [part.seal for part in found if isinstance(part, Reasoning) and part.seal] == seals
    assert found[-2:] == parts[-2:]


def test_custom_calls_are_iterated(client: Callable[..., openai.OpenAI]) -> None:
    data = write_events(unfold(meant(SAMPLES / "openai_chat" / "custom_tool_call.json")))
    connected = client(data)
    with connected.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "hi"}], stream=True
    ) as chunks:
        deltas = [chunk.model_dump(exclude_unset=True)["choices"][0] for chunk in chunks if chunk.choices]
    pieces = [call for delta in deltas for call in delta["delta"].get("tool_calls", ())]
    assert [piece["index"] for piece in pieces] == [0] * len(pieces)
    assert (pieces[0]["id"], pieces[0]["type"], pieces[0]["custom"]["name"]) == ("call_c", "custom", "code_exec")
    assert "".join(piece["custom"]["input"] for piece in pieces) == "print(1)"
    assert deltas[-1]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize(
    ("parts", "finish", "raised"),
    [
        ((Text("Once"),), Finish("length"), openai.LengthFinishReasonError),
        ((Call("a", "ping", '{"x', incomplete=True),), Finish("calls"), openai.LengthFinishReasonError),
        ((Text("x"),), Finish("filter"), openai.ContentFilterFinishReasonError),
    ],
)
def test_endings_that_the_sdk_raises(
    parts: Any, finish: Finish, raised: type[Exception], client: Callable[..., openai.OpenAI]
) -> None:
    events: list[Event] = [START]
    for index, part in enumerate(parts):
        events.append(PartStart(index, part))
        events.append(PartEnd(index, getattr(part, "incomplete", False)))
    data = write_events([*events, ChoiceEnd(finish), ResponseEnd()])
    with pytest.raises(raised):
        added_up(client(data), tools=[STRICT], response_format={"type": "json_object"})


def test_a_refusal_keeps_its_channel(client: Callable[..., openai.OpenAI]) -> None:
    events: list[Event] = [START, PartStart(0, Refusal("")), TextDelta(0, "no"), PartEnd(0)]
    response = added_up(client(write_events([*events, ChoiceEnd(Finish("refusal")), ResponseEnd()])))
    assert response.choices[0].parts == (Refusal("no"),)
    assert response.choices[0].finish == Finish("stop", "stop")


def test_a_failure_in_the_stream_is_raised(client: Callable[..., openai.OpenAI]) -> None:
    events: list[Event] = [START, PartStart(0, Text("")), TextDelta(0, "x")]
    data = write_events([*events, ResponseFailed(Failure("rate", "slow down", 429))])
    with pytest.raises(openai.APIError, match="slow down") as caught:
        added_up(client(data))
    assert caught.value.code == "rate_limit_exceeded"


@pytest.mark.parametrize(
    ("kind", "raised"),
    [
        ("invalid", openai.BadRequestError),
        ("context", openai.BadRequestError),
        ("authentication", openai.AuthenticationError),
        ("permission", openai.PermissionDeniedError),
        ("not_found", openai.NotFoundError),
        ("conflict", openai.ConflictError),
        ("unprocessable", openai.UnprocessableEntityError),
        ("rate", openai.RateLimitError),
        ("quota", openai.RateLimitError),
        ("server", openai.InternalServerError),
        ("overloaded", openai.InternalServerError),
    ],
)
def test_errors_are_raised_as_their_own_class(
    kind: str, raised: type[Exception], client: Callable[..., openai.OpenAI]
) -> None:
    sent = CODEC.write_error(Failure(kind, "why", 0, retry_after=2))
    headers = {"content-type": "application/json", **sent.headers}
    with pytest.raises(raised, match="why"):
        client(json_values.encode(sent.body), sent.status, headers).chat.completions.create(
            model="m", messages=[{"role": "user", "content": "hi"}]
        )
