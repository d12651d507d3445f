"""The HTTP transport: it finds the fault of a gateway, and never hangs."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from conformance.tampering_proxy import Fault, TamperingProxy, run_proxy
from toolwire_conformance.case import Case, read_case
from toolwire_conformance.player import ClientCall, ProviderAnswer, ReceivedCall, play_case
from toolwire_conformance.targets import Route
from toolwire_conformance.transports import HttpTransport, ProviderServer, ReceivedText
from waits import PATIENCE

HELLO = {"model": "gpt-4.1", "messages": [{"role": "user", "content": "Hi"}]}
FRAMES: list[Any] = [
    {"delta": {"role": "assistant", "content": "Hé"}},
    {"delta": {"content": "llo."}},
    {"delta": {}, "finish_reason": "stop"},
    "[DONE]",
]


def make_case(stream: bool = True, **sees: Any) -> Case:
    body = {"choices": [{"message": {"content": "Héllo."}, "finish_reason": "stop"}]}
    answer = {"sse": FRAMES} if stream else {"body": body}
    return read_case(
        {
            "id": 1,
            "title": "T",
            "source": ["x/y#1"],
            "client": {"protocol": "openai-chat", "stream": stream, "request": HELLO},
            "provider": {"protocol": "openai-chat", "exchanges": [{"expect": HELLO, **answer}]},
            "client_sees": {"body": body, **sees},
        }
    )[0]


@pytest.fixture
def provider_server() -> Iterator[ProviderServer]:
    provider_server = ProviderServer(models=["gpt-4.1"], drain_timeout=PATIENCE)
    yield provider_server
    provider_server.close()


@pytest.fixture
def gateway(provider_server: ProviderServer) -> Iterator[TamperingProxy]:
    with run_proxy(provider_server.origin) as gateway:
        yield gateway


def make_transport(
    gateway: TamperingProxy,
    provider_server: ProviderServer,
    timeout: float = PATIENCE,
    frame_timeout: float = PATIENCE,
) -> HttpTransport:
    return HttpTransport(
        gateway.url,
        provider_server,
        lambda client, provider, model: Route(f"x/{model}"),
        timeout=timeout,
        frame_timeout=frame_timeout,
    )


AFTER = {"0": {"$contains": "Hé"}, "1": {"$contains": "llo."}}


@pytest.mark.parametrize("stream", [False, True])
def test_no_fault(gateway: TamperingProxy, provider_server: ProviderServer, stream: bool) -> None:
    outcome = play_case(make_case(stream), make_transport(gateway, provider_server))
    assert outcome.differences == ()
    assert provider_server.unexpected_calls == []


def test_frame_by_frame(gateway: TamperingProxy, provider_server: ProviderServer) -> None:
    assert play_case(make_case(after=AFTER), make_transport(gateway, provider_server)).differences == ()


def test_buffering_is_found(gateway: TamperingProxy, provider_server: ProviderServer) -> None:
    gateway.fault = "buffers"
    outcome = play_case(make_case(after=AFTER), make_transport(gateway, provider_server, frame_timeout=0.3))
    assert outcome.differences[0].startswith("client after frame 0/: expected … Hé …, got")


@pytest.mark.parametrize(
    ("fault", "found"),
    [("", ()), ("drains", ("the gateway keeps reading from the provider after its client disconnected",))],
)
def test_client_that_disconnects(fault: Fault, found: tuple[str, ...]) -> None:
    provider_server = ProviderServer(drain_timeout=0.5 if found else PATIENCE)
    with run_proxy(provider_server.origin) as gateway:
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
        assert play_case(leaving, make_transport(gateway, provider_server)).differences == found
    provider_server.close()


@pytest.mark.parametrize("fault", ["hangs", "stops"])
def test_gateway_that_hangs(gateway: TamperingProxy, provider_server: ProviderServer, fault: Fault) -> None:
    gateway.fault = fault
    outcome = play_case(make_case(), make_transport(gateway, provider_server, timeout=0.3))
    assert outcome.differences[0] == "the answer did not end within 0.3 seconds"
    assert not outcome.unsupported
    gateway.fault = ""
    assert play_case(make_case(), make_transport(gateway, provider_server)).passed


def test_no_such_path_is_unsupported(gateway: TamperingProxy, provider_server: ProviderServer) -> None:
    gateway.paths = ()
    outcome = play_case(make_case(), make_transport(gateway, provider_server))
    assert outcome.unsupported.startswith("answered 404")


def test_path_of_another_protocol_is_found(gateway: TamperingProxy, provider_server: ProviderServer) -> None:
    gateway.fault = "wrong path"
    outcome = play_case(make_case(), make_transport(gateway, provider_server))
    assert outcome.differences[0] == "the gateway called /v1/responses, which is a path of another protocol"
    assert not outcome.unsupported


def test_no_gateway(provider_server: ProviderServer) -> None:
    outcome = play_case(make_case(), HttpTransport("http://127.0.0.1:9", provider_server, lambda *args: Route("x")))
    assert outcome.differences[0].startswith("the connection to the gateway broke")


def test_call_outside_of_a_play_is_refused(gateway: TamperingProxy, provider_server: ProviderServer) -> None:
    assert play_case(make_case(), make_transport(gateway, provider_server)).passed
    assert provider_server.unexpected_calls == []
    status, _ = send_request(provider_server, "POST", "/v1/chat/completions")
    assert status == 500
    assert provider_server.unexpected_calls == ["POST /v1/chat/completions"]


def send_request(provider_server: ProviderServer, method: str, path: str, more: str = "") -> tuple[int, Any]:
    connection = http.client.HTTPConnection(urlsplit(provider_server.origin).netloc)
    connection.request(method, path, b"{}" + more.encode() if method == "POST" else None)
    response = connection.getresponse()
    text = response.read()
    connection.close()
    return response.status, json.loads(text) if text else None


def read_answer(provider_server: ProviderServer, answer: ProviderAnswer) -> bytes:
    """The bytes of an answer's body on the wire."""
    place = ("127.0.0.1", urlsplit(provider_server.origin).port or 0)
    playing = provider_server.serve_play("openai-chat", lambda received: answer, ReceivedText())
    with playing, socket.create_connection(place) as connection, connection.makefile("rb") as file:
        connection.sendall(b"POST /chat/completions HTTP/1.1\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}")
        data = file.read()
    return data.partition(b"\r\n\r\n")[2]


@pytest.mark.parametrize("cut", [False, True])
def test_bytewise_stream(provider_server: ProviderServer, cut: bool) -> None:
    data = read_answer(provider_server, ProviderAnswer(200, {}, ("雪",), True, bytewise=True, cut=cut))
    assert data == b"1\r\n\xe9\r\n1\r\n\x9b\r\n1\r\n\xaa\r\n" + (b"" if cut else b"0\r\n\r\n")


def test_token_counts_grow_with_the_body(provider_server: ProviderServer) -> None:
    path = "/v1/messages/count_tokens"
    assert (
        send_request(provider_server, "POST", path)[1]["input_tokens"]
        < send_request(provider_server, "POST", path, " " * 100)[1]["input_tokens"]
    )


def test_other_endpoints(provider_server: ProviderServer) -> None:
    assert send_request(provider_server, "HEAD", "/") == (200, None)
    assert [model["id"] for model in send_request(provider_server, "GET", "/v1/models")[1]["data"]] == ["gpt-4.1"]
    assert send_request(provider_server, "POST", "/v1/messages/count_tokens")[1]["input_tokens"]
    assert provider_server.unexpected_calls == []


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
def test_protocol_is_recognised_by_the_path(
    provider_server: ProviderServer, protocol: str, path: str, body: Any, wanted: tuple[str, bool]
) -> None:
    calls: list[ReceivedCall] = []

    with provider_server.serve_play(protocol, _record_calls(calls), ReceivedText()):
        connection = http.client.HTTPConnection(urlsplit(provider_server.origin).netloc)
        headers = {"content-type": "application/json", "transfer-encoding": "chunked"}
        connection.request("POST", path, iter([json.dumps(body).encode()]), headers, encode_chunked=True)
        assert connection.getresponse().status == 200
        connection.close()
    assert [(call.model, call.stream, call.body) for call in calls] == [(*wanted, body)]


def _record_calls(calls: list[ReceivedCall]) -> Any:
    def answer(received: ReceivedCall) -> ProviderAnswer:
        calls.append(received)
        return ProviderAnswer(200, {}, ("{}",), False)

    return answer


def test_pair_without_a_route(gateway: TamperingProxy, provider_server: ProviderServer) -> None:
    transport = HttpTransport(gateway.url, provider_server, lambda *args: "there is no such thing")
    assert transport.send_call(ClientCall("openai-chat", "gemini", "m", False, {}), _record_calls([])).status == 501
