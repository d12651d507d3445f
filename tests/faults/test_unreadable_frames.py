"""A frame that cannot be read, in a stream that passes through: the client gets what came before it, and a failure.

Half an answer must not look like a whole one, whatever the client's SDK makes of a broken frame.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.clients import CLIENTS, Conversation, Responses, Task, close_all, openai_sdk
from gateway.raw_exchange import (
    PROVIDERS,
    ScriptedConnection,
    Served,
    call,
    frames,
    is_complete,
    is_failure,
    open_call,
    opening_frames,
    stage,
    stream_steps,
    text_of,
    write_chunked,
)
from toolwire.gateway.exchange.passthrough_stream import PassthroughStream
from toolwire.protocols import CODECS
from toolwire_conformance.peers.peer import read_frames
from waits import PATIENCE

TEXT = "Hello there, how are you today?"
UNREADABLE = {
    "broken": b'data: {"broken\n\n',
    "text": b"data: upstream request timeout\n\n",
    "html": b"data: <html><body>502</body></html>\n\n",
    "bytes": b"data: \xff\xfe\x00\n\n",
    "half": b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"Hel\n\n',
    "list": b"data: [1,2,3]\n\n",
    "number": b"data: 5\n\n",
    "word": b'data: "stop"\n\n',
    "named": b"event: message\ndata: {]\n\n",
    "crlf": b'data: {"broken\r\n\r\n',
    "cr": b'data: {"broken\r\r',
    "lines": b'data: {"a":\ndata: \n\n',
    "infinity": b'data: {"a":Infinity}\n\n',
}


@pytest.fixture(scope="module", name="served")
def serve_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with stage(tmp_path_factory.mktemp("served")) as made:
        yield made


@pytest.mark.parametrize("what", UNREADABLE)
@pytest.mark.parametrize("protocol", PROVIDERS)
def test_the_client_gets_a_failure_of_its_protocol(served: Served, protocol: str, what: str) -> None:
    first = opening_frames(protocol)
    rest = frames(protocol, TEXT)[len(first) :]

    def play(peer: ScriptedConnection) -> None:
        peer.send(write_chunked(*first, end=False))
        peer.wait_for_release()  # the start of the stream has reached the client: nothing can be tried again
        peer.chunk(UNREADABLE[what], *rest)
        peer.chunk(b"")

    scene = served.scene(protocol, play)
    line = open_call(served, protocol, scene.model, True)
    response = line.start()
    start = line.read_until(first[-1])
    scene.go.set()
    end = response.read()
    line.connection.close()
    assert start == b"".join(first)
    seen = read_frames((start + end).decode())
    assert is_failure(protocol, seen)
    assert not is_complete(protocol, [frame for frame in seen if frame.text != "[DONE]"])
    assert UNREADABLE[what] not in end
    assert not any(frame in end for frame in rest if b"[DONE]" not in frame)
    logged = served.line(response.headers["x-request-id"])
    assert logged["failure"] == "upstream"
    assert logged["passthrough"] is True
    assert len(scene.asked) == 1


WRONG = {
    "openai-chat": b'data: {"choices": 5}\n\n',
    "openai-responses": b'event: response.output_item.added\ndata: {"type":"response.output_item.added","item":5}\n\n',
    "anthropic": b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":5}\n\n',
    "gemini": b'data: {"candidates": 5}\n\n',
}
"""JSON, but of no frame of this protocol."""
ODD_ENDS = {
    "a frame of the wrong shape": WRONG,
    "an error of another shape": dict.fromkeys(PROVIDERS, b'event: error\ndata: {"detail": "too busy"}\n\n'),
    "nothing but [DONE]": dict.fromkeys(PROVIDERS[1:], b"data: [DONE]\n\n"),
}


@pytest.mark.parametrize(("end", "protocol"), [(end, protocol) for end, odd in ODD_ENDS.items() for protocol in odd])
def test_an_sdk_raises_an_error(served: Served, protocol: str, end: str) -> None:
    """After the start of the answer the provider sends this, and ends its stream properly."""

    def play(peer: ScriptedConnection) -> None:
        peer.send(write_chunked(*opening_frames(protocol), end=False))
        peer.wait_for_release()
        peer.chunk(ODD_ENDS[end][protocol])
        peer.chunk(b"")

    scene = served.scene(protocol, play)
    client = CLIENTS[protocol](served.url, scene.model, True, Task("Hi"))
    texts = read_text(client)
    try:
        assert TEXT.startswith(next(texts))
        scene.go.set()
        with pytest.raises(client.raises):
            next(texts)
    finally:
        scene.go.set()
        texts.close()
        close_all()


def read_text(client: Conversation) -> Generator[str, None, None]:
    """The text of a stream as the SDK shows it. OpenAI's tells of a failed response only who asks for the whole."""
    if not isinstance(client, Responses):
        yield from client.pieces()
        return
    with openai_sdk(client.base).responses.stream(model=client.model, input=client.input) as stream:
        for event in stream:
            if event.type == "response.output_text.delta":
                yield event.delta
        stream.get_final_response()


@pytest.mark.parametrize("protocol", PROVIDERS)
def test_before_the_first_content_another_attempt_is_made(tmp_path: Path, protocol: str) -> None:
    with stage(tmp_path, "retries = 1") as served:
        scene = served.scene(protocol, write_chunked(UNREADABLE["broken"]), stream_steps(protocol, TEXT))
        got = call(served, protocol, scene.model, True)
        assert text_of(protocol, got, True) == TEXT
        assert len(scene.asked) == 2


@pytest.mark.parametrize("protocol", PROVIDERS)
def test_a_provider_that_goes_on_for_ever_is_left(served: Served, protocol: str) -> None:
    def play(peer: ScriptedConnection) -> None:
        peer.send(write_chunked(*opening_frames(protocol), UNREADABLE["broken"], end=False))
        peer.wait_for_close()

    scene = served.scene(protocol, play)
    got = call(served, protocol, scene.model, True)
    # In one piece with the first content it is noticed before anything has been sent: then it is an error.
    assert got.status == 502 or is_failure(protocol, got.frames)
    assert scene.gone.wait(PATIENCE)


@pytest.mark.parametrize("protocol", PROVIDERS)
@given(data=st.data())
def test_what_is_seen_does_not_depend_on_the_pieces(protocol: str, data: st.DataObject) -> None:
    every = frames(protocol, TEXT)
    at = data.draw(st.integers(1, len(every) - 1))
    bad = UNREADABLE[data.draw(st.sampled_from(sorted(UNREADABLE)))]
    ending = data.draw(st.sampled_from([b"\n", b"\r\n", b"\r"]))
    before = b"".join(frame.replace(b"\n", ending) for frame in every[:at])
    after = b"".join(frame.replace(b"\n", ending) for frame in every[at:])
    sent = before + bad + after
    whole = PassthroughStream(CODECS[protocol])
    expected = whole.feed(sent) + whole.close()
    assert expected.startswith(before)
    assert whole.failure is not None or whole.ended
    if not whole.ended:
        assert bad not in expected
        assert after not in expected
    size = data.draw(st.integers(1, 40))
    pieces = PassthroughStream(CODECS[protocol])
    out = b"".join(pieces.feed(sent[start : start + size]) for start in range(0, len(sent), size)) + pieces.close()
    assert out == expected
    assert pieces.failure == whole.failure
