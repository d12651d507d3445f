"""What a protocol is like at a cloud: paths, members that move, and Claude in an event stream."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.core.codec import CarriedRequest, Codec
from toolwire.core.events import ResponseFailed
from toolwire.core.sse import SseSplitter
from toolwire.gateway.settings.router import codec_with_quirks
from toolwire.protocols import CODECS
from toolwire.protocols.anthropic.platforms import InvokeStreamDecoder

CLOUDS = Path(__file__).parents[1] / "samples" / "clouds"
SAMPLES = sorted(CLOUDS.glob("invoke_anthropic_*.bin"))
EVENTS = {
    path.stem: [json.loads(line).get("decoded_bytes") for line in path.with_suffix(".jsonl").read_text().splitlines()]
    for path in SAMPLES
}


def on(platform: str, protocol: str) -> Codec:
    return codec_with_quirks(protocol, (), platform)


def decode_pieces(pieces: list[bytes]) -> bytes:
    decoder = InvokeStreamDecoder()
    return b"".join(map(decoder.feed, pieces)) + decoder.close()


def read_events(data: bytes) -> list[Any]:
    splitter = SseSplitter()
    return [json.loads(frame.data) for frame in [*splitter.feed(data), *splitter.close()]]


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_each_chunk_is_an_event(path: Path) -> None:
    decoded = decode_pieces([path.read_bytes()])
    wanted = [event for event in EVENTS[path.stem] if event is not None]
    assert read_events(decoded)[: len(wanted)] == wanted
    assert all(line.partition(b": ")[0] in (b"event", b"data", b"") for line in decoded.split(b"\n"))


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_any_split_gives_the_same_bytes(path: Path) -> None:
    data = path.read_bytes()
    whole = decode_pieces([data])
    assert decode_pieces([data[at : at + 1] for at in range(len(data))]) == whole

    @given(st.lists(st.integers(0, len(data)), max_size=5))
    def split(places: list[int]) -> None:
        ends = [0, *sorted(places), len(data)]
        assert decode_pieces([data[a:b] for a, b in pairwise(ends)]) == whole

    split()


def read_with_codec(data: bytes) -> list[Any]:
    reader = CODECS["anthropic"].make_stream_reader()
    return [*reader.feed(decode_pieces([data])), *reader.close()]


@pytest.mark.parametrize("size", range(0, 1818, 101))
def test_a_stream_that_ends_early_is_never_a_success(size: int) -> None:
    data = (CLOUDS / "invoke_anthropic_tool_use.bin").read_bytes()[:size]
    last = read_with_codec(data)[-1]
    ends = data.count(b"chunk") >= 5  # `message_delta` has a finish reason
    assert isinstance(last, ResponseFailed) or ends


@pytest.mark.parametrize("place", [0, 8, 40, 300, 700, 1400])
def test_a_byte_that_was_changed_on_the_way_ends_the_stream(place: int) -> None:
    data = bytearray((CLOUDS / "invoke_anthropic_tool_use.bin").read_bytes())
    data[place] ^= 1
    failed = [event for event in read_with_codec(bytes(data)) if isinstance(event, ResponseFailed)]
    assert len(failed) == 1


@given(st.binary(max_size=400))
def test_any_bytes_give_events_or_an_error(data: bytes) -> None:
    read_events(decode_pieces([data]))


# --- requests ---------------------------------------------------------------------------------------------------------


def carry(platform: str, path: str, body: dict[str, Any], **headers: str) -> tuple[str, dict[str, str], dict[str, Any]]:
    carriage = on(platform, "anthropic").http.carriage
    assert carriage is not None
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    sent = carriage.write_request(CarriedRequest(path, named, json.dumps(body).encode()))
    return sent.path, dict(sent.headers), json.loads(sent.body)


BODY = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}], "stream": True}
NUMBERS = b'{"model":"m","max_tokens":5,"temperature":1.0,"messages":[{"role":"user","content":"\\u00e9 1e5"}]}'


def test_bedrock_has_model_and_stream_in_the_path() -> None:
    path = on("bedrock", "anthropic").http.request_path("a/b:c-v1", True)
    assert path == "/model/a%2Fb%3Ac-v1/invoke-with-response-stream"
    _, headers, body = carry("bedrock", path, BODY, anthropic_version="2026-10-21", anthropic_beta="b1,b2", x="y")
    wanted = {key: BODY[key] for key in ("max_tokens", "messages")}
    assert body == {**wanted, "anthropic_version": "bedrock-2023-05-31", "anthropic_beta": ["b1", "b2"]}
    assert headers == {"x": "y"}


def test_vertex_has_the_model_in_the_path_and_betas_in_the_header() -> None:
    path = on("vertex", "anthropic").http.request_path("claude-opus-5-5@20261020", True)
    assert path == "/models/claude-opus-5-5@20261020:streamRawPredict"
    _, headers, body = carry("vertex", path, BODY, anthropic_version="2026-10-21", anthropic_beta="b1")
    wanted = {key: BODY[key] for key in ("max_tokens", "messages", "stream")}
    assert body == {**wanted, "anthropic_version": "vertex-2023-10-16"}
    assert headers == {"anthropic-beta": "b1"}


def test_a_token_count_at_vertex_keeps_its_model() -> None:
    count = on("vertex", "anthropic").http.token_count
    assert count is not None
    assert count.path("m") == "/models/count-tokens:rawPredict"
    assert carry("vertex", count.path("m"), {"model": "m", "messages": []})[2]["model"] == "m"


def test_what_does_not_move_keeps_its_bytes() -> None:
    carriage = on("bedrock", "anthropic").http.carriage
    assert carriage is not None
    sent = carriage.write_request(CarriedRequest("/model/m-v1/invoke", (), NUMBERS))
    version = b',"anthropic_version":"bedrock-2023-05-31"}'
    assert sent.body == NUMBERS.replace(b'"model":"m",', b"")[:-1] + version


@pytest.mark.parametrize(
    ("platform", "model", "protocols"),
    [
        ("bedrock", "anthropic.claude-opus-5-5", {"anthropic"}),
        ("bedrock", "us.anthropic.claude-opus-4-6-v1:0", {"anthropic"}),
        ("bedrock", "arn:aws:bedrock:eu-west-1::foundation-model/anthropic.claude-opus-4-6-v1", {"anthropic"}),
        ("bedrock", "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/abc123", set()),
        ("bedrock", "openai.gpt-5.5", {"openai-chat", "openai-responses"}),
        ("bedrock", "amazon.nova-pro-v1:0", set()),  # they are asked in Converse, which has all models
        ("vertex", "claude-opus-5-5@20261020", {"anthropic"}),
        ("vertex", "gemini-3.8-flash", {"gemini"}),
        ("vertex", "gpt-5.5", {"openai-responses"}),
        ("vertex", "meta/llama-5", {"openai-chat"}),
        ("azure", "my-deployment", {"openai-chat", "openai-responses"}),
        ("azure", "claude-opus-5-5", {"anthropic"}),
    ],
)
def test_a_models_name_says_its_protocols(platform: str, model: str, protocols: set[str]) -> None:
    spoken = [name for name, codec in CODECS.items() if platform in codec.platforms]
    assert {name for name in spoken if on(platform, name).supports_model(model, True)} == protocols


def test_azure_has_the_deployment_in_the_path_where_a_version_is_asked_for() -> None:
    path = on("azure-deployments", "openai-chat").http.request_path("my dep", False)
    assert path == "/deployments/my%20dep/chat/completions"
