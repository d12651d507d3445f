"""Claude as clients of Bedrock and Vertex ask for it: paths, bodies, errors and event streams."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import pytest

from toolwire.core.codec import AdaptedBody, EndpointMatch
from toolwire.core.event_stream import EventStreamSplitter, Message
from toolwire.core.ir import Failure
from toolwire.gateway.http.request_target import read_path
from toolwire.protocols import find_codec
from toolwire.protocols.anthropic.clouds import EVENT_STREAM, adapt_body, adapt_error, make_framing_converter

HTTP = find_codec("anthropic").http
CLAUDE = "global.anthropic.claude-opus-5-5-v1:0"
ARN = "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/abc123"
VERTEX = "projects/p/locations/global/publishers/anthropic/models"
PATHS = {
    f"/model/{CLAUDE}/invoke": ("generate", CLAUDE, False, ""),
    f"/model/{CLAUDE.replace(':', '%3A')}/invoke-with-response-stream": ("generate", CLAUDE, True, EVENT_STREAM),
    f"/model/{ARN.replace('/', '%2F')}/invoke": ("generate", ARN, False, ""),
    f"/model/{ARN.replace('/', '%2F').replace(':', '%3A')}/invoke": ("generate", ARN, False, ""),
    f"/v1/{VERTEX}/claude-opus-5-5@20261020:rawPredict": ("generate", "claude-opus-5-5@20261020", False, ""),
    f"/v1/{VERTEX}/claude-opus-5-5:streamRawPredict": ("generate", "claude-opus-5-5", True, ""),
    f"/{VERTEX}/claude-opus-5-5:rawPredict": ("generate", "claude-opus-5-5", False, ""),
    f"/v1/{VERTEX}/count-tokens:rawPredict": ("count_tokens", "", None, ""),
}


def match(path: str) -> EndpointMatch | None:
    target = read_path(path, "")
    assert target.problem == ""
    assert HTTP.match_endpoint is not None
    return HTTP.match_endpoint(target.path, "")


@pytest.mark.parametrize("path", PATHS)
def test_a_path_says_the_model_and_the_stream(path: str) -> None:
    found = match(path)
    assert found is not None
    assert (found.operation, found.model, found.stream, found.framing) == PATHS[path]


@pytest.mark.parametrize(
    ("path", "name"),
    {
        f"/model/{CLAUDE}/invoke": "claude-opus-5-5",
        "/model/anthropic.claude-3-5-sonnet-20241022-v2:0/invoke": "claude-3-5-sonnet-20241022",
        "/model/eu.anthropic.claude-opus-5-5/invoke": "claude-opus-5-5",
        "/model/claude-opus-5-5/invoke": "",
        "/model/amazon.nova-pro-v1:0/invoke": "",
        f"/model/{ARN.replace('/', '%2F')}/invoke": "",
        f"/v1/{VERTEX}/claude-haiku-4-5@20251001:rawPredict": "claude-haiku-4-5-20251001",
        f"/v1/{VERTEX}/claude-opus-5-5:rawPredict": "",
    }.items(),
)
def test_a_clouds_name_of_a_model_has_a_vendors_name(path: str, name: str) -> None:
    found = match(path)
    assert found is not None
    assert found.other_model == name


@pytest.mark.parametrize(
    "path",
    [
        "/model/m",
        "/model/m/converse",
        "/model/invoke",
        f"/v1/{VERTEX}/m:predict",
        f"/v1/{VERTEX}/count-tokens:streamRawPredict",
        "/v1/projects/p/locations/l/publishers/google/models/m:rawPredict",
    ],
)
def test_other_paths_are_not_of_claude(path: str) -> None:
    assert match(path) is None


def adapt(body: Any, path: str = f"/model/{CLAUDE}/invoke", **headers: str) -> Any:
    endpoint = match(path)
    assert endpoint is not None
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return adapt_body(data, endpoint, {name.replace("_", "-"): value for name, value in headers.items()})


TURNS = [{"role": "user", "content": "hi"}]
VERSION = {"anthropic_version": "bedrock-2023-05-31"}


def test_version_betas_model_and_stream_are_where_messages_has_them() -> None:
    given = {"max_tokens": 9, "messages": TURNS, **VERSION, "anthropic_beta": ["b2", "b3"], "stream": False}
    whole = adapt(given, anthropic_beta="b1,b2")
    assert json.loads(whole.data) == {"model": CLAUDE, "max_tokens": 9, "messages": TURNS}
    assert whole.headers == {"anthropic-version": "2023-06-01", "anthropic-beta": "b1,b2,b3"}
    streamed = adapt(given | {"anthropic_version": "2026-10-21"}, f"/model/{CLAUDE}/invoke-with-response-stream")
    assert json.loads(streamed.data)["stream"] is True
    assert streamed.headers["anthropic-version"] == "2026-10-21"


def test_what_the_body_says_inside_stays_as_it_was_written() -> None:
    number = b'{"anthropic_version":"vertex-2023-10-16","messages":[{"content":1.50, "role":"user"}]}'
    adapted = adapt(number, f"/v1/{VERTEX}/m:rawPredict")
    assert adapted.data == b'{"model":"m","messages":[{"content":1.50, "role":"user"}]}'


def test_a_count_names_its_model_in_the_body() -> None:
    adapted = adapt({"model": "m", "messages": TURNS, **VERSION}, f"/v1/{VERTEX}/count-tokens:rawPredict")
    assert json.loads(adapted.data) == {"model": "m", "messages": TURNS}


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b'"x"', b"\xff{}"])
def test_what_is_no_object_is_left_to_the_reader(data: bytes) -> None:
    assert adapt(data) == AdaptedBody(data, {})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"anthropic_version": "1999-01-01"}, "known are: bedrock-2023-05-31, vertex-2023-10-16, 2026-10-21"),
        ({"anthropic_version": 3}, "must be a string"),
        ({"anthropic_beta": "b1"}, "a list of them"),
        ({"anthropic_beta": [1]}, "a list of them"),
    ],
)
def test_a_version_or_betas_that_nobody_knows_are_refused(change: dict[str, Any], words: str) -> None:
    failure = adapt({"messages": TURNS} | VERSION | change)
    assert isinstance(failure, Failure)
    assert failure.status == 400
    assert words in failure.message


def test_the_body_of_another_vendor_is_refused_with_what_to_do() -> None:
    failure = adapt({"inputText": "hi", "textGenerationConfig": {}})
    assert isinstance(failure, Failure)
    assert "for other models use `converse`" in failure.message


def test_an_error_has_what_each_sdk_reads() -> None:
    body = {"type": "error", "error": {"type": "rate_limit_error", "message": "Slower."}}
    data, headers = adapt_error(json.dumps(body).encode())
    assert json.loads(data) == {"message": "Slower.", **body}
    assert headers == {"x-amzn-errortype": "ThrottlingException"}
    deep = b'{"error":' * 5000 + b"1" + b"}" * 5000
    for odd in (b"<html>", b"[]", b'{"error":"x"}', b'{"error":{"type":3,"message":[]}}', deep):
        data, headers = adapt_error(odd)
        assert headers == {"x-amzn-errortype": "InternalServerException"}
        assert data.startswith(b'{"message":""')


FRAMES = (
    b'event: message_start\ndata: {"type":"message_start","message":{}}\n\n'
    b'event: ping\ndata: {"type": "ping"}\n\n'
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
)
ERROR = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Full."}}\n\n'


def convert(data: bytes, size: int) -> list[Message]:
    converter = make_framing_converter(EVENT_STREAM)
    assert converter is not None
    out = b"".join(converter.feed(data[at : at + size]) for at in range(0, len(data), size)) + converter.close()
    splitter = EventStreamSplitter()
    messages = splitter.feed(out)
    splitter.close()
    assert splitter.fault == ""
    return messages


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_each_event_is_a_chunk(size: int) -> None:
    messages = convert(FRAMES, size)
    assert [(message.kind, message.name) for message in messages] == [("event", "chunk")] * 3
    inner = [json.loads(b64decode(json.loads(message.payload)["bytes"])) for message in messages]
    assert [event["type"] for event in inner] == ["message_start", "ping", "message_stop"]


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_an_error_is_an_exception_and_the_end(size: int) -> None:
    *_, last = messages = convert(FRAMES[: FRAMES.index(b"event: ping")] + ERROR + ERROR[13:] + FRAMES, size)
    assert len(messages) == 2
    assert (last.kind, last.name) == ("exception", "serviceUnavailableException")
    assert json.loads(last.payload) == {"message": "Full."}


def test_an_error_needs_no_name_of_its_event() -> None:
    unnamed = b'data: { "type": "error", "error": {"type": "overloaded_error", "message": "Full."} }\n\n'
    *_, last = messages = convert(FRAMES.replace(b"event: ping\n", b"") + unnamed, 10_000)
    assert [message.kind for message in messages] == ["event", "event", "event", "exception"]
    assert json.loads(last.payload) == {"message": "Full."}


def test_there_is_no_other_framing() -> None:
    assert make_framing_converter("array") is None
