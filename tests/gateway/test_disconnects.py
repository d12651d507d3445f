"""Clients that leave, and long silences: what a provider notices of the one, and a client of the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from gateway.raw_exchange import (
    CLIENTS,
    PROVIDERS,
    RawConnection,
    ScriptedConnection,
    Served,
    answer,
    frames,
    open_call,
    opening_frames,
    refusal,
    stage,
    whole_answer,
    write_chunked,
)
from waits import PATIENCE

STREAMS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
PAIRS = pytest.mark.parametrize(
    ("client", "provider"),
    [
        ("openai-chat", "openai-chat"),
        ("openai-chat", "anthropic"),
        ("openai-responses", "gemini"),
        ("anthropic", "anthropic"),
        ("anthropic", "openai-responses"),
        ("gemini", "openai-chat"),
        ("unified", "gemini"),
    ],
)


@pytest.fixture(scope="module", params=["own", "asgi"], name="served")
def serve_gateway(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with stage(tmp_path_factory.mktemp("leaving"), host=request.param) as staged:
        yield staged


@pytest.fixture(scope="module", params=["own", "asgi"])
def draining(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with stage(tmp_path_factory.mktemp("draining"), 'on_disconnect = "drain"', host=request.param) as staged:
        yield staged


@pytest.fixture(scope="module")
def lively(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with stage(tmp_path_factory.mktemp("lively"), "heartbeat = 0.05") as staged:
        yield staged


def _open_call_with_id(served: Served, client: str, model: str, stream: bool, id: str) -> RawConnection:
    return open_call(served, client, model, stream, {"x-request-id": id})


# --- clients that leave ---


@STREAMS
@PAIRS
def test_a_client_that_leaves_before_the_first_byte_cancels_the_call(
    served: Served, client: str, provider: str, stream: bool
) -> None:
    scene = served.scene(provider, ScriptedConnection.wait_for_close)
    line = _open_call_with_id(served, client, scene.model, stream, f"early-{scene.mark}")
    assert scene.reached.wait(PATIENCE)
    line.disconnect()
    assert scene.gone.wait(PATIENCE)
    told = served.line(f"early-{scene.mark}")
    assert told["client_disconnected"] is True
    assert told.get("status", 0) == 0
    assert len(scene.asked) == 1


@STREAMS
@PAIRS
def test_a_client_that_leaves_in_the_middle_cancels_the_call(
    served: Served, client: str, provider: str, stream: bool
) -> None:
    def play(peer: ScriptedConnection) -> None:
        peer.send(write_chunked(*opening_frames(provider), end=False) if stream else whole_answer(provider)[:-30])
        peer.wait_for_close()

    scene = served.scene(provider, play)
    line = _open_call_with_id(served, client, scene.model, stream, f"mid-{scene.mark}")
    if stream:
        line.start()
        line.read_until(b"Hel")
    assert scene.reached.wait(PATIENCE)
    line.disconnect()
    assert scene.gone.wait(PATIENCE)
    told = served.line(f"mid-{scene.mark}")
    assert told["client_disconnected"] is True
    if stream and provider == "anthropic":
        assert told["input_tokens"] == 25  # what was told by then is accounted for


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/messages/count_tokens", "/v1/responses/compact"])
def test_leaving_cancels_what_is_not_an_answer_too(served: Served, path: str) -> None:
    protocol = {"/v1/embeddings": "openai-chat", "/v1/messages/count_tokens": "anthropic"}.get(path, "openai-responses")
    scene = served.scene(protocol, ScriptedConnection.wait_for_close)
    line = RawConnection(served.port)
    body = b'{"model":"%b","messages":[{"role":"user","content":"Hi"}],"input":"Hi"}' % scene.model.encode()
    line.send("POST", path, body, {"x-request-id": f"other-{scene.mark}"})
    assert scene.reached.wait(PATIENCE)
    line.disconnect()
    assert scene.gone.wait(PATIENCE)
    assert served.line(f"other-{scene.mark}")["client_disconnected"] is True


def test_leaving_a_download_cancels_it(served: Served) -> None:
    def play(peer: ScriptedConnection) -> None:
        peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: audio/mpeg\r\ntransfer-encoding: chunked\r\n\r\n")
        peer.chunk(b"some sound")
        peer.wait_for_close()

    scene = served.scene("openai-chat", play)
    line = RawConnection(served.port)
    line.send("POST", "/v1/audio/speech", b'{"model":"%b"}' % scene.model.encode())
    line.start()
    line.read_until(b"some sound")
    line.disconnect()
    assert scene.gone.wait(PATIENCE)


def test_a_client_that_leaves_during_its_own_request(served: Served) -> None:
    scene = served.scene("openai-chat", whole_answer("openai-chat"))
    line = RawConnection(served.port)
    line.connection.putrequest("POST", "/v1/chat/completions")
    line.connection.putheader("content-length", "1000")
    line.connection.putheader("x-request-id", f"half-{scene.mark}")
    line.connection.endheaders(b'{"model":"%b",' % scene.model.encode())
    line.disconnect()
    assert served.line(f"half-{scene.mark}")["client_disconnected"] is True
    assert not scene.asked


def test_a_client_that_leaves_while_a_retry_waits(tmp_path_factory: pytest.TempPathFactory) -> None:
    def play(peer: ScriptedConnection) -> None:
        peer.send(answer(500, refusal("openai-chat", 500, "server_error", "No."), retry_after="4"))
        peer.scene.reached.set()

    with stage(tmp_path_factory.mktemp("waiting"), "retries = 3") as served:
        scene = served.scene("openai-chat", play)
        line = _open_call_with_id(served, "openai-chat", scene.model, False, "waits")
        assert scene.reached.wait(PATIENCE)
        line.disconnect()
        assert served.line("waits")["client_disconnected"] is True
        assert len(scene.asked) == 1


# --- draining ---


@STREAMS
@PAIRS
def test_a_call_may_be_drained_instead(draining: Served, client: str, provider: str, stream: bool) -> None:
    def play(peer: ScriptedConnection) -> None:
        every = frames(provider)
        if stream:
            peer.send(write_chunked(*every[:-1], end=False))
        else:
            peer.send(whole_answer(provider)[:-5])
        peer.wait_for_release()
        if stream:
            peer.chunk(every[-1], b"")
        else:
            peer.send(whole_answer(provider)[-5:])

    scene = draining.scene(provider, play)
    line = _open_call_with_id(draining, client, scene.model, stream, f"drain-{scene.mark}")
    assert scene.reached.wait(PATIENCE)
    line.disconnect()
    scene.go.set()
    told = draining.line(f"drain-{scene.mark}")
    assert (told["input_tokens"], told["output_tokens"]) == (25, 12)


@pytest.mark.parametrize("draining", ["own"], indirect=True)  # by the standard it is only noticed after a moment
def test_a_drained_call_is_told_as_gone(draining: Served) -> None:
    def play(peer: ScriptedConnection) -> None:
        peer.send(write_chunked(*opening_frames("anthropic"), end=False))
        peer.wait_for_release()
        for frame in frames("anthropic", "word " * 50)[3:]:
            peer.chunk(frame)
        peer.chunk(b"")

    scene = draining.scene("anthropic", play)
    line = _open_call_with_id(draining, "anthropic", scene.model, True, "gone-drained")
    line.start()
    line.read_until(b"Hel")
    line.disconnect()
    # The gateway's server has noticed once it has served another one.
    again = draining.scene("anthropic", whole_answer("anthropic"))
    after = _open_call_with_id(draining, "anthropic", again.model, False, "after")
    assert after.start().status == 200
    after.connection.close()
    scene.go.set()
    told = draining.line("gone-drained")
    assert told["output_tokens"] == 12
    assert told["client_disconnected"] is True


# --- signs of life ---

BEATS = {
    "anthropic": b'event: ping\ndata: {"type": "ping"}\n\n',
    "openai-chat": b": keep-alive\n\n",
    "openai-responses": b": keep-alive\n\n",
    "unified": b": keep-alive\n\n",
}


def _stall_stream(provider: str) -> Any:
    def play(peer: ScriptedConnection) -> None:
        peer.send(write_chunked(*opening_frames(provider), end=False))
        peer.wait_for_release()
        rest = frames(provider, "Hello there, how are you today?")[len(opening_frames(provider)) :]
        peer.chunk(*rest, b"")

    return play


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("client", [client for client in CLIENTS if client != "gemini"])
def test_a_silence_in_mid_stream_is_filled(lively: Served, client: str, provider: str) -> None:
    scene = lively.scene(provider, _stall_stream(provider))
    line = open_call(lively, client, scene.model, True)
    line.start()
    data = line.read_until(BEATS[client])
    before = data.partition(BEATS[client])[0]
    assert b"Hel" in before
    assert before.endswith(b"\n\n")
    line.read_until(BEATS[client])
    scene.go.set()
    rest = line.response.read()
    assert rest.rstrip(b"\n").count(b"\n\n")
    line.connection.close()


@pytest.mark.parametrize("provider", PROVIDERS)
def test_gemini_clients_are_left_in_silence(lively: Served, provider: str) -> None:
    """Two streams stall alike; when the one that is filled has had its sign of life twice, the other had none."""
    scene, other = lively.scene(provider, _stall_stream(provider)), lively.scene(provider, _stall_stream(provider))
    line = open_call(lively, "gemini", scene.model, True)
    line.start()
    first = line.read_until(b"Hel")
    beside = open_call(lively, "openai-chat", other.model, True)
    beside.start()
    beside.read_until(BEATS["openai-chat"])
    beside.read_until(BEATS["openai-chat"])
    scene.go.set()
    other.go.set()
    data = first + line.response.read()
    for frame in data.replace(b"\r\n", b"\n").split(b"\n\n"):
        assert frame == b"" or frame.startswith(b"data: {")
    beside.response.read()
    line.connection.close()
    beside.connection.close()


@pytest.mark.parametrize("client", CLIENTS)
def test_nothing_comes_before_the_first_event(lively: Served, client: str) -> None:
    """While the provider has said nothing, the client has no byte, not even a status: so another can still be asked."""
    scene, other = (
        lively.scene("anthropic", ScriptedConnection.wait_for_close),
        lively.scene("anthropic", _stall_stream("anthropic")),
    )
    line = open_call(lively, client, scene.model, True)
    assert scene.reached.wait(PATIENCE)
    beside = open_call(lively, "anthropic", other.model, True)
    beside.start()
    beside.read_until(BEATS["anthropic"])
    beside.read_until(BEATS["anthropic"])
    line.connection.sock.setblocking(False)
    with pytest.raises(BlockingIOError):
        line.connection.sock.recv(1)
    line.disconnect()
    other.go.set()
    beside.response.read()
    beside.connection.close()
    assert scene.gone.wait(PATIENCE)


# --- the official SDKs read over them ---


def test_the_anthropic_sdk_reads_over_signs_of_life(lively: Served) -> None:
    scene = lively.scene("openai-chat", _stall_stream("openai-chat"))
    with anthropic.Anthropic(base_url=lively.url, api_key="x", max_retries=0) as sdk:
        kinds = []
        with sdk.messages.create(
            model=scene.model, max_tokens=100, messages=[{"role": "user", "content": "Hi"}], stream=True
        ) as stream:
            text = ""
            for event in stream:
                kinds.append(event.type)
                if event.type == "content_block_delta":
                    text += getattr(event.delta, "text", "")
                if text and not scene.go.is_set():
                    watching = open_call(lively, "anthropic", scene.model, True)
                    watching.start()
                    watching.read_until(BEATS["anthropic"])
                    watching.disconnect()
                    scene.go.set()
        assert text == "Hello there, how are you today?"


def test_the_openai_sdk_reads_over_signs_of_life(lively: Served) -> None:
    scene = lively.scene("anthropic", _stall_stream("anthropic"))
    with openai.OpenAI(base_url=f"{lively.url}/v1", api_key="x", max_retries=0) as sdk:
        chat = sdk.chat.completions.create(model=scene.model, messages=[{"role": "user", "content": "Hi"}], stream=True)
        responses = sdk.responses.create(model=scene.model, input="Hi", stream=True)
        for _ in range(2):
            watching = open_call(lively, "openai-chat", scene.model, True)
            watching.start()
            watching.read_until(BEATS["openai-chat"])
            watching.disconnect()
        scene.go.set()
        said = "".join(chunk.choices[0].delta.content or "" for chunk in chat if chunk.choices)
        events = list(responses)
        assert said == "Hello there, how are you today?"
        assert events[-1].type == "response.completed"
