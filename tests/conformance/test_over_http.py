"""The transport over HTTP: what it finds out about a gateway that does one thing wrong, and that nothing hangs."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from conformance.tampering_proxy import Between, Fault, between
from toolwire.conformance.case import Case, read_case
from toolwire.conformance.player import ClientCall, ProviderAnswer, ReceivedCall, play_case
from toolwire.conformance.targets import Route
from toolwire.conformance.transports import HttpTransport, ProviderServer, ReceivedText

HELLO = {"model": "gpt-4.1", "messages": [{"role": "user", "content": "Hi"}]}
FRAMES: list[Any] = [
    {"delta": {"role": "assistant", "content": "Hé"}},
    {"delta": {"content": "llo."}},
    {"delta": {}, "finish_reason": "stop"},
    "[DONE]",
]


def case(stream: bool = True, **sees: Any) -> Case:
    said = {"choices": [{"message": {"content": "Héllo."}, "finish_reason": "stop"}]}
    answer = {"sse": FRAMES} if stream else {"body": said}
    return read_case(
        {
            "id": 1,
            "title": "T",
            "source": ["x/y#1"],
            "client": {"protocol": "openai-chat", "stream": stream, "request": HELLO},
            "provider": {"protocol": "openai-chat", "exchanges": [{"expect": HELLO, **answer}]},
            "client_sees": {"body": said, **sees},
        }
    )[0]


@pytest.fixture
def stage() -> Iterator[ProviderServer]:
    stage = ProviderServer(models=["gpt-4.1"])
    yield stage
    stage.close()


@pytest.fixture
def gateway(stage: ProviderServer) -> Iterator[Between]:
    with between(stage.origin) as gateway:
        yield gateway


def through(gateway: Between, stage: ProviderServer, patience: float = 20) -> HttpTransport:
    return HttpTransport(gateway.url, stage, lambda client, provider, model: Route(f"x/{model}"), timeout=patience)


AFTER = {"0": {"$contains": "Hé"}, "1": {"$contains": "llo."}}


@pytest.mark.parametrize("stream", [False, True])
def test_all_well(gateway: Between, stage: ProviderServer, stream: bool) -> None:
    outcome = play_case(case(stream), through(gateway, stage))
    assert outcome.differences == ()
    assert stage.unexpected_calls == []


def test_frame_by_frame(gateway: Between, stage: ProviderServer) -> None:
    assert play_case(case(after=AFTER), through(gateway, stage)).differences == ()


def test_what_is_held_back_is_seen(gateway: Between, stage: ProviderServer) -> None:
    gateway.fault = "holds back"
    outcome = play_case(case(after=AFTER), through(gateway, stage))
    assert outcome.differences[0].startswith("client after frame 0/: expected … Hé …, got")


@pytest.mark.parametrize(
    ("fault", "found"), [("", ()), ("drains", ("the gateway still listens to the provider after its client has left",))]
)
def test_a_client_that_leaves(fault: Fault, found: tuple[str, ...]) -> None:
    stage = ProviderServer(drain_timeout=0.5 if found else 20)
    with between(stage.origin) as gateway:
        gateway.fault = fault
        leaving = read_case(
            {
                "id": 1,
                "title": "T",
                "source": ["x/y#1"],
                "client": {"protocol": "openai-chat", "stream": True, "request": HELLO, "leaves": "Hé"},
                "provider": {"protocol": "openai-chat", "exchanges": [{"sse": FRAMES[:1], "fails": "endless"}]},
            }
        )[0]
        assert play_case(leaving, through(gateway, stage)).differences == found
    stage.close()


@pytest.mark.parametrize("fault", ["hangs", "stops"])
def test_a_gateway_that_hangs_is_left(gateway: Between, stage: ProviderServer, fault: Fault) -> None:
    gateway.fault = fault
    outcome = play_case(case(), through(gateway, stage, patience=0.3))
    assert outcome.differences[0] == "the answer has no end within 0.3 seconds"
    assert not outcome.unsupported
    gateway.fault = ""
    assert play_case(case(), through(gateway, stage)).passed


def test_no_such_path_is_unsupported(gateway: Between, stage: ProviderServer) -> None:
    gateway.paths = ()
    outcome = play_case(case(), through(gateway, stage))
    assert outcome.unsupported.startswith("answered 404")


def test_another_protocol_is_told(gateway: Between, stage: ProviderServer) -> None:
    gateway.fault = "another path"
    outcome = play_case(case(), through(gateway, stage))
    assert outcome.differences[0] == "the gateway asked the provider at /v1/responses, which is another protocol's path"
    assert not outcome.unsupported


def test_no_gateway_at_all(stage: ProviderServer) -> None:
    outcome = play_case(case(), HttpTransport("http://127.0.0.1:9", stage, lambda *asked: Route("x")))
    assert outcome.differences[0].startswith("the connection to the gateway broke")


def test_a_call_outside_of_a_play_is_refused_and_noted(gateway: Between, stage: ProviderServer) -> None:
    assert play_case(case(), through(gateway, stage)).passed
    assert stage.unexpected_calls == []
    status, _ = asked(stage, "POST", "/v1/chat/completions")
    assert status == 500
    assert stage.unexpected_calls == ["POST /v1/chat/completions"]


def asked(stage: ProviderServer, method: str, path: str, more: str = "") -> tuple[int, Any]:
    connection = http.client.HTTPConnection(urlsplit(stage.origin).netloc)
    connection.request(method, path, b"{}" + more.encode() if method == "POST" else None)
    response = connection.getresponse()
    text = response.read()
    connection.close()
    return response.status, json.loads(text) if text else None


def given(stage: ProviderServer, answer: ProviderAnswer) -> bytes:
    """All that comes of an answer, as it stands on the wire."""
    place = ("127.0.0.1", urlsplit(stage.origin).port or 0)
    playing = stage.serve_play("openai-chat", lambda received: answer, ReceivedText())
    with playing, socket.create_connection(place) as line, line.makefile("rb") as heard:
        line.sendall(b"POST /chat/completions HTTP/1.1\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}")
        said = heard.read()
    return said.partition(b"\r\n\r\n")[2]


@pytest.mark.parametrize("cut", [False, True])
def test_a_stream_byte_by_byte(stage: ProviderServer, cut: bool) -> None:
    said = given(stage, ProviderAnswer(200, {}, ("雪",), True, bytewise=True, cut=cut))
    assert said == b"1\r\n\xe9\r\n1\r\n\x9b\r\n1\r\n\xaa\r\n" + (b"" if cut else b"0\r\n\r\n")


def test_counts_grow(stage: ProviderServer) -> None:
    path = "/v1/messages/count_tokens"
    assert asked(stage, "POST", path)[1]["input_tokens"] < asked(stage, "POST", path, " " * 100)[1]["input_tokens"]


def test_probes_are_answered(stage: ProviderServer) -> None:
    assert asked(stage, "HEAD", "/") == (200, None)
    assert [model["id"] for model in asked(stage, "GET", "/v1/models")[1]["data"]] == ["gpt-4.1"]
    assert asked(stage, "POST", "/v1/messages/count_tokens")[1]["input_tokens"]
    assert stage.unexpected_calls == []


@pytest.mark.parametrize(
    ("protocol", "path", "body", "wanted"),
    [
        ("openai-chat", "/some/base/chat/completions", {"model": "m", "stream": True}, ("m", True)),
        ("anthropic", "/messages", {"model": "m"}, ("m", False)),
        ("openai-responses", "/v1/responses", {"model": "m", "stream": False}, ("m", False)),
        ("gemini", "/v1beta/models/m:generateContent", {}, ("m", False)),
        ("gemini", "/base/v1/models/m%2D3:streamGenerateContent?alt=sse&key=k", {}, ("m-3", True)),
    ],
)
def test_the_provider_is_found_by_the_end_of_a_path(
    stage: ProviderServer, protocol: str, path: str, body: Any, wanted: tuple[str, bool]
) -> None:
    heard: list[ReceivedCall] = []

    with stage.serve_play(protocol, _noting(heard), ReceivedText()):
        connection = http.client.HTTPConnection(urlsplit(stage.origin).netloc)
        headers = {"content-type": "application/json", "transfer-encoding": "chunked"}
        connection.request("POST", path, iter([json.dumps(body).encode()]), headers, encode_chunked=True)
        assert connection.getresponse().status == 200
        connection.close()
    assert [(one.model, one.stream, one.body) for one in heard] == [(*wanted, body)]


def _noting(heard: list[ReceivedCall]) -> Any:
    def answer(received: ReceivedCall) -> ProviderAnswer:
        heard.append(received)
        return ProviderAnswer(200, {}, ("{}",), False)

    return answer


def test_a_pair_that_cannot_be_had_is_not_asked_for(gateway: Between, stage: ProviderServer) -> None:
    transport = HttpTransport(gateway.url, stage, lambda *asked: "there is no such thing")
    assert transport.send_call(ClientCall("openai-chat", "gemini", "m", False, {}), _noting([])).status == 501
