"""boto3 pointed at the gateway: `converse` and `converse_stream` with every provider protocol, over real sockets.

Requests are signed as AWS wants it; on loopback without client keys nobody looks at the signature.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import httpx2
import openai
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, EventStreamError

from gateway.conftest import provider_name, serve_config
from material import SAMPLES
from toolwire.core.event_stream import EventStreamSplitter, write_event, write_exception
from toolwire_conformance.peers import PEERS, find_violations
from toolwire_conformance.peers.peer import ModelAnswer, ScenarioTool
from toolwire_conformance.player import ProviderAnswer, ReceivedCall
from toolwire_conformance.transports import ProviderServer, ReceivedText
from waits import PATIENCE

FOLDER = SAMPLES / "bedrock_converse"
VERIFIED: Mapping[str, Any] = json.loads((FOLDER / "VERIFIED_BEDROCK.json").read_text())
TOOL = ScenarioTool(
    "get_weather",
    "The weather in a city.",
    {"type": "object", "properties": {"city": {"type": "string", "description": "A city"}}, "required": ["city"]},
)
CALLS = (("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Øslo ☀"}))
ARN = "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/abc123"
MODELS = {protocol: f"{provider_name(protocol)}/{peer.model}" for protocol, peer in PEERS.items()}
TOOL_CONFIG = {"tools": PEERS["bedrock-converse"].write_tools([TOOL])}
Answer = Callable[[ReceivedCall], ProviderAnswer]


@pytest.fixture(scope="module")
def stage() -> Iterator[ProviderServer]:
    server = ProviderServer(drain_timeout=PATIENCE)
    yield server
    server.close()
    assert server.unexpected_calls == []


@pytest.fixture(scope="module")
def gateway(stage: ProviderServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    lines = ['[server]\nretries = 0\ncooldown_after = 1000000\nlog_format = "none"']
    for protocol in PEERS:
        name = provider_name(protocol)
        lines.append(f'[providers.{name}]\nprotocols = ["{protocol}"]\nbase_url = "{stage.origin}"\napi_key = "k"')
    lines.append(f'[models."{ARN}"]\nprovider = "bedrock-converse"\nmodel = "{ARN}"')
    file = tmp_path_factory.mktemp("converse") / "toolwire.toml"
    file.write_text("\n".join(lines))
    with serve_config(file) as url:
        yield url


def open_client(url: str) -> Any:
    return boto3.client(
        "bedrock-runtime",
        region_name="us-east-1",
        endpoint_url=url,
        aws_access_key_id="AKIDEXAMPLE",
        aws_secret_access_key="secret",
        config=Config(retries={"max_attempts": 1, "mode": "standard"}, read_timeout=PATIENCE),
    )


@pytest.fixture(scope="module")
def client(gateway: str) -> Iterator[Any]:
    made = open_client(gateway)
    yield made
    made.close()


def read_stream(events: Any) -> dict[str, Any]:
    """What a client adds up: the message, the stop reason and the usage."""
    content: list[dict[str, Any]] = []
    texts: dict[int, str] = {}
    out: dict[str, Any] = {}
    for event in events:
        if "contentBlockStart" in event:
            content.append({"toolUse": dict(event["contentBlockStart"]["start"]["toolUse"])})
            texts[len(content) - 1] = ""
        elif "contentBlockDelta" in event:
            index, delta = event["contentBlockDelta"]["contentBlockIndex"], event["contentBlockDelta"]["delta"]
            if index == len(content):
                content.append({})
            if "toolUse" in delta:
                texts[index] += delta["toolUse"]["input"]
            elif "text" in delta:
                content[index]["text"] = content[index].get("text", "") + delta["text"]
            else:
                add_thought(content[index], delta["reasoningContent"])
        elif "messageStop" in event:
            out |= event["messageStop"]
        elif "metadata" in event:
            out |= event["metadata"]
    for index, text in texts.items():
        content[index]["toolUse"]["input"] = json.loads(text)
    return {**out, "output": {"message": {"role": "assistant", "content": content}}}


def add_thought(block: dict[str, Any], delta: dict[str, Any]) -> None:
    inner = block.setdefault("reasoningContent", {"reasoningText": {"text": ""}})["reasoningText"]
    inner["text"] += delta.get("text", "")
    if "signature" in delta:
        inner["signature"] = delta["signature"]


def ask(client: Any, model: str, stream: bool, **asked: Any) -> dict[str, Any]:
    if not stream:
        whole: dict[str, Any] = client.converse(modelId=model, **asked)
        return whole
    with closing(client.converse_stream(modelId=model, **asked)["stream"]) as events:
        return read_stream(events)


def play_answers(protocol: str, seen: list[ReceivedCall], *answers: ModelAnswer) -> Answer:
    """A provider of this protocol that gives these answers, one after another."""
    peer, left = PEERS[protocol], list(answers)

    def answer(call: ReceivedCall) -> ProviderAnswer:
        seen.append(call)
        body = peer.complete_answer(peer.write_answer(left.pop(0)), call.model)
        pieces = peer.write_stream(body) if call.stream else [json.dumps(body)]
        return ProviderAnswer(200, {}, tuple(pieces), call.stream)

    return answer


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("protocol", PEERS)
def test_a_conversation_with_parallel_calls(client: Any, stage: ProviderServer, protocol: str, stream: bool) -> None:
    seen: list[ReceivedCall] = []
    answers = ModelAnswer("I will look.", CALLS, PEERS[protocol].provider_seals), ModelAnswer("15 °C and 3 °C.")
    messages: list[Any] = [{"role": "user", "content": [{"text": "How is the weather?"}]}]
    asked: dict[str, Any] = {
        "messages": messages,
        "system": [{"text": "Be brief."}],
        "toolConfig": TOOL_CONFIG,
        "inferenceConfig": {"maxTokens": 4000},
    }
    with stage.serve_play(protocol, play_answers(protocol, seen, *answers), ReceivedText()):
        first = ask(client, MODELS[protocol], stream, **asked)
        message = first["output"]["message"]
        calls = [block["toolUse"] for block in message["content"] if "toolUse" in block]
        results = [
            {"toolResult": {"toolUseId": call["toolUseId"], "content": [{"text": f"{number} °C"}], "status": "success"}}
            for number, call in enumerate(calls)
        ]
        messages += [message, {"role": "user", "content": results}]
        last = ask(client, MODELS[protocol], stream, **asked)
    assert [(call["name"], call["input"]) for call in calls] == [*CALLS]
    assert len({call["toolUseId"] for call in calls}) == len(CALLS)
    assert "I will look." in [block.get("text") for block in message["content"]]
    assert (first["stopReason"], last["stopReason"]) == ("tool_use", "end_turn")
    assert last["output"]["message"]["content"] == [{"text": "15 °C and 3 °C."}]
    assert last["usage"]["inputTokens"] > 0
    assert last["usage"]["totalTokens"] == last["usage"]["inputTokens"] + last["usage"]["outputTokens"]
    assert [call.stream for call in seen] == [stream, stream]
    assert [call.model for call in seen] == [PEERS[protocol].model] * 2
    for call in seen:
        assert find_violations(protocol, call.body, call.model) == []
    assert "Be brief." in json.dumps(seen[1].body)
    assert "1 °C" in json.dumps(seen[1].body, ensure_ascii=False)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_the_name_of_a_model_is_one_segment_of_the_path(client: Any, stage: ProviderServer, stream: bool) -> None:
    """boto3 escapes the colons and the slash of an ARN (`%3A`, `%2F`)."""
    seen: list[ReceivedCall] = []
    with stage.serve_play(
        "bedrock-converse", play_answers("bedrock-converse", seen, ModelAnswer("Hi")), ReceivedText()
    ):
        answer = ask(client, ARN, stream, messages=[{"role": "user", "content": [{"text": "hi"}]}])
    assert answer["output"]["message"]["content"] == [{"text": "Hi"}]
    assert [call.model for call in seen] == [ARN]


def test_media_in_both_directions_are_the_same_bytes(client: Any, stage: ProviderServer) -> None:
    seen: list[ReceivedCall] = []
    image, document = b"\x89PNG\r\n\x1a\n\0\xff", b"%PDF-1.7 \xff"
    content = [
        {"text": "Look."},
        {"image": {"format": "png", "source": {"bytes": image}}},
        {"document": {"format": "pdf", "name": "a plan", "source": {"bytes": document}}},
    ]
    with stage.serve_play("anthropic", play_answers("anthropic", seen, ModelAnswer("Hi")), ReceivedText()):
        ask(client, MODELS["anthropic"], False, messages=[{"role": "user", "content": content}])
    assert find_violations("anthropic", seen[0].body) == []
    kinds = [block["type"] for block in seen[0].body["messages"][0]["content"]]
    assert kinds == ["text", "image", "document"]


# --- errors and ends --------------------------------------------------------------------------------------------------

ERRORS = [
    ("anthropic", 400, {"type": "error", "error": {"type": "invalid_request_error", "message": "bad"}}, "ValidationException", 400),
    ("openai-chat", 401, {"error": {"message": "bad", "code": "invalid_api_key"}}, "UnrecognizedClientException", 403),
    ("gemini", 404, {"error": {"code": 404, "status": "NOT_FOUND", "message": "bad"}}, "ResourceNotFoundException", 404),
    ("openai-responses", 429, {"error": {"message": "bad", "code": "rate_limit_exceeded"}}, "ThrottlingException", 429),
    ("anthropic", 529, {"type": "error", "error": {"type": "overloaded_error", "message": "bad"}}, "ServiceUnavailableException", 503),
    ("bedrock-converse", 500, {"message": "bad"}, "InternalServerException", 500),
]  # fmt: skip


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(("protocol", "status", "body", "name", "seen_status"), ERRORS)
def test_an_error_is_the_exception_of_the_sdk(
    client: Any, stage: ProviderServer, protocol: str, status: int, body: Any, name: str, seen_status: int, stream: bool
) -> None:
    def answer(_: ReceivedCall) -> ProviderAnswer:
        return ProviderAnswer(status, {}, (json.dumps(body),), False)

    with stage.serve_play(protocol, answer, ReceivedText()), pytest.raises(ClientError) as raised:
        ask(client, MODELS[protocol], stream, messages=[{"role": "user", "content": [{"text": "hi"}]}])
    response: Any = raised.value.response
    assert response["Error"]["Code"] == name
    assert "bad" in response["Error"]["Message"]
    assert response["ResponseMetadata"]["HTTPStatusCode"] == seen_status


def test_a_wrong_body_names_the_place(client: Any) -> None:
    with pytest.raises(ClientError) as raised:
        client.converse(modelId="nobody/knows", messages=[{"role": "user", "content": [{"text": "hi"}]}])
    error: Any = raised.value.response["Error"]
    assert error["Code"] == "ResourceNotFoundException"
    assert "nobody" in error["Message"]


@pytest.mark.parametrize("protocol", [name for name in PEERS if name != "bedrock-converse"])
def test_a_stream_that_is_cut_off_is_an_exception(client: Any, stage: ProviderServer, protocol: str) -> None:
    """boto3 ends without a word when the connection ends: the gateway must say it in the stream."""
    peer = PEERS[protocol]

    def answer(call: ReceivedCall) -> ProviderAnswer:
        body = peer.complete_answer(peer.write_answer(ModelAnswer("a long answer " * 20)), call.model)
        pieces = peer.write_stream(body)
        return ProviderAnswer(200, {}, tuple(pieces[: max(2, len(pieces) // 2)]), True, cut=True)

    with stage.serve_play(protocol, answer, ReceivedText()), pytest.raises(EventStreamError) as raised:
        ask(client, MODELS[protocol], True, messages=[{"role": "user", "content": [{"text": "hi"}]}])
    assert raised.value.response["Error"]["Code"] == "modelStreamErrorException"


BROKEN = {
    "a message that is cut": lambda data: data[:-20],
    "no messageStop": lambda data: b"".join(messages_of(data)[:-2]),
    "a changed byte": lambda data: data[:-30] + bytes([data[-30] ^ 1]) + data[-29:],
    "a changed length": lambda data: replace_message(data, 3, b"\0\0\0\1" + b"x" * 20),
    "no stream at all": lambda _data: b"data: {}\n\n",
    "an exception": lambda data: b"".join(messages_of(data)[:3]) + write_exception("throttlingException", b'{"message":"m"}'),
    "a payload that is not JSON": lambda data: b"".join(messages_of(data)[:3]) + write_event("messageStop", b"{"),
}  # fmt: skip


def messages_of(data: bytes) -> list[bytes]:
    splitter, out, start = EventStreamSplitter(), [], 0
    for end in range(1, len(data) + 1):
        if splitter.feed(data[end - 1 : end]):
            out.append(data[start:end])
            start = end
    return out


def replace_message(data: bytes, number: int, message: bytes) -> bytes:
    pieces = messages_of(data)
    return b"".join([*pieces[:number], message, *pieces[number + 1 :]])


class BytesServer(ThreadingHTTPServer):
    """A provider that sends these bytes as its stream, whatever it is asked."""

    daemon_threads = True
    data = b""


class SendBytes(BaseHTTPRequestHandler):
    server: BytesServer

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "application/vnd.amazon.eventstream")
        self.send_header("content-length", str(len(self.server.data)))
        self.end_headers()
        self.wfile.write(self.server.data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def bytes_server() -> Iterator[BytesServer]:
    server = BytesServer(("127.0.0.1", 0), SendBytes)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def bytes_gateway(bytes_server: BytesServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    file = tmp_path_factory.mktemp("broken") / "toolwire.toml"
    url = f"http://127.0.0.1:{bytes_server.server_address[1]}"
    head = '[server]\nretries = 0\ncooldown_after = 1000000\nlog_format = "none"\n'
    file.write_text(f'{head}[providers.p]\nprotocols = ["bedrock-converse"]\nbase_url = "{url}"\napi_key = "k"\n')
    with serve_config(file) as found:
        yield found


@pytest.fixture(scope="module")
def bytes_client(bytes_gateway: str) -> Iterator[Any]:
    made = open_client(bytes_gateway)
    yield made
    made.close()


HELLO: dict[str, Any] = {"messages": [{"role": "user", "content": [{"text": "hi"}]}]}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_stream_is_an_exception_where_bytes_pass(
    bytes_client: Any, bytes_server: BytesServer, name: str
) -> None:
    """Client and provider speak the same protocol, and boto3 itself would take half of these for whole answers."""
    bytes_server.data = BROKEN[name]((FOLDER / "text_then_tool_use.bin").read_bytes())
    with pytest.raises((EventStreamError, ClientError)) as raised:
        ask(bytes_client, "p/model", True, **HELLO)
    error: Any = raised.value.response["Error"]
    codes = (
        ("ThrottlingException",) if name == "an exception" else ("InternalServerException", "modelStreamErrorException")
    )
    assert error["Code"] in codes  # with a status where the gateway knows it before it has sent a byte


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_stream_is_an_error_for_other_clients(
    bytes_gateway: str, bytes_server: BytesServer, name: str
) -> None:
    bytes_server.data = BROKEN[name]((FOLDER / "text_then_tool_use.bin").read_bytes())
    with (
        openai.OpenAI(api_key="k", base_url=f"{bytes_gateway}/v1", max_retries=0, timeout=PATIENCE) as sdk,
        pytest.raises(openai.APIError),
    ):
        for _ in sdk.chat.completions.create(model="p/m", stream=True, messages=[{"role": "user", "content": "hi"}]):
            pass


@pytest.mark.parametrize("path", sorted(FOLDER.glob("[!n]*.bin")), ids=lambda path: path.stem)
def test_a_good_stream_passes_byte_for_byte(bytes_gateway: str, bytes_server: BytesServer, path: Path) -> None:
    """Also what the provider fills its messages up with. An exception that comes at once is an error with a status."""
    bytes_server.data = path.read_bytes()
    url = f"{bytes_gateway}/model/p%2Fmodel/converse-stream"
    answer = httpx2.post(url, json=HELLO, timeout=PATIENCE)
    if path.stem.startswith(("exception_", "error_")):
        assert answer.status_code in (424, 429, 500, 503)
        assert answer.headers["x-amzn-errortype"].endswith(("Exception", "Failure"))
    else:
        assert answer.headers["content-type"] == "application/vnd.amazon.eventstream"
        assert answer.content == bytes_server.data


@pytest.mark.parametrize("path", sorted(FOLDER.glob("negative_*.bin")), ids=lambda path: path.stem)
def test_an_odd_stream_is_an_answer_or_an_error(bytes_client: Any, bytes_server: BytesServer, path: Path) -> None:
    """What is sent to boto3 never kills it: it gets an answer, or an exception."""
    bytes_server.data = path.read_bytes()
    try:
        with closing(bytes_client.converse_stream(modelId="p/model", **HELLO)["stream"]) as events:
            names = [next(iter(event)) for event in events]
        assert "messageStop" in names
    except (EventStreamError, ClientError):
        pass
