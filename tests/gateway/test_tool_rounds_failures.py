"""Tools that are run here, and what can go wrong with them: the model is told, the client sees an end, nothing runs twice."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from gateway.clients import CLIENTS, Conversation, Task, close_all
from gateway.conftest import MODELS, provider_name
from gateway.mcp_gateway import COMMAND, Control, hold_timeouts, serve_config_text, serve_with_mcp
from gateway.mcp_server import PIXEL
from gateway.provider import PROTOCOLS, Hold, Provider, Script, ScriptedAnswer, Step
from gateway.raw_exchange import (
    STREAM_HEAD,
    ScriptedConnection,
    answer,
    ask,
    body_of,
    open_call,
    stage,
    write_chunked,
)
from gateway.test_provider_changes import elements
from toolwire.gateway.exchange import error_replies
from toolwire.gateway.features.mcp.offered_tools import exposed_tool_name
from toolwire.gateway.http.client_request import ClientRequest
from toolwire.gateway.pipeline import relay
from toolwire.protocols import find_codec
from toolwire_conformance.peers import PEERS
from waits import PATIENCE, wait_until

PAIRS = [(source, target) for source in CLIENTS for target in PROTOCOLS]
BACKUP = {"openai-chat": "anthropic", "openai-responses": "gemini", "anthropic": "openai-chat", "gemini": "openai-chat"}

streamed = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
pairs = pytest.mark.parametrize(("source", "target"), PAIRS)
every = pytest.mark.parametrize("target", PROTOCOLS)
clients = pytest.mark.parametrize("source", CLIENTS)


@pytest.fixture(scope="module")
def control() -> Iterator[Control]:
    made = Control()
    yield made
    made.close()


@pytest.fixture(scope="module", name="tooled")
def serve_with_tools(provider: Provider, control: Control, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gateway that tries twice and elsewhere, whose tools may be called in two rounds; one server is not there."""
    folder = tmp_path_factory.mktemp("troubles")
    lines = ['[mcp.gone]\ncommand = ["/nowhere/at/all"]\nmodels = ["*"]']
    for target, other in BACKUP.items():
        name = provider_name(target)
        lines.append(f'[models."b-{name}"]\nprovider = "{name}"\nmodel = "{MODELS[target]}"')
        lines.append(f'fallbacks = ["m-{provider_name(other)}"]')
    text = serve_with_mcp(
        folder, provider, control=control, mcp='models = ["*"]\nmax_rounds = 2', more="\n".join(lines)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(error_replies, "FIRST_RETRY_WAIT", 0.01)  # seconds before the first retry
        with serve_config_text(folder, text.replace("retries = 0", "retries = 2")) as base:
            yield base
    close_all()


def open_conversation(base: str, talk: Script, source: str, model: str, stream: bool) -> Conversation:
    return CLIENTS[source](base, model, stream, Task(f"Go. {talk.mark}", {}))


def model(target: str) -> str:
    return f"m-{provider_name(target)}"


# --- results ----------------------------------------------------------------------------------------------------------

ODD = exposed_tool_name("test", "odd.name/with spaces").removeprefix("test__")
TOLD = {
    "fail": "the disk is full",
    "refuse": "",
    "mixed": "three",
    ODD: "called odd.name/with spaces",
}


@streamed
@every
def test_what_tools_give(provider: Provider, tooled: str, target: str, stream: bool) -> None:
    """Errors, media and resources: all of it reaches the model, in a form that it takes."""
    first = tuple((f"test__{name}", {}) for name in ("fail", "refuse", "mixed", ODD))
    second = tuple((f"test__{name}", {}) for name in ("image", "audio", "resources"))
    talk = provider.script(ScriptedAnswer("", first), ScriptedAnswer("", second), ScriptedAnswer("Done."))
    source = "anthropic" if target == "openai-chat" else "openai-chat"
    turn = open_conversation(tooled, talk, source, model(target), stream).turn()
    assert talk.refused == []
    assert turn.text == "Done."
    told = talk.asked[1].text
    for name, words in TOLD.items():
        assert words in told, name
    media = talk.asked[2].raw.replace("_", "/").replace("-", "+")
    assert PIXEL in media
    assert "a note" in talk.asked[2].text
    assert "file:///notes/b.txt" in talk.asked[2].text
    if target == "anthropic":
        results = [block for message in talk.asked[1].body["messages"][2:] for block in message["content"]]
        assert [block.get("is_error") for block in results] == [True, True, None, None]


@streamed
def test_a_server_that_dies(provider: Provider, tmp_path: Path, stream: bool) -> None:
    """The model is told, and the next answer has its tools again."""
    talk = provider.script(ScriptedAnswer("", (("test__crash", {}), ("test__crash", {}))), ScriptedAnswer("Sorry."))
    with serve_config_text(tmp_path, serve_with_mcp(tmp_path, provider)) as base:
        assert open_conversation(base, talk, "openai-chat", model("anthropic"), stream).turn().text == "Sorry."
    assert talk.refused == []
    assert talk.asked[1].text.count('"is_error":true') == 2


def test_a_tool_that_takes_too_long(
    provider: Provider, control: Control, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = serve_with_mcp(tmp_path, provider, control=control, mcp='models = ["*"]\ntimeout = 0.2')
    talk = provider.script(ScriptedAnswer("", (("test__slow", {}),)), ScriptedAnswer("Too slow."))
    over = hold_timeouts(monkeypatch, 0.2)
    with serve_config_text(tmp_path, text) as base, ThreadPoolExecutor(1) as pool:
        turn = pool.submit(open_conversation(base, talk, "openai-chat", model("anthropic"), True).turn)
        call = control.call()
        over.set()
        assert turn.result(PATIENCE).text == "Too slow."
        assert call.read_last_line() == "cancelled"
    assert talk.refused == []
    assert '"is_error":true' in talk.asked[1].text


# --- without end ------------------------------------------------------------------------------------------------------

AGAIN = ScriptedAnswer("", (("test__echo", {"text": "more"}),))


@streamed
@pairs
def test_a_model_that_stops_when_told(provider: Provider, tooled: str, source: str, target: str, stream: bool) -> None:
    """Beyond the last round calls are refused, so that it can still answer."""
    talk = provider.script(AGAIN, AGAIN, AGAIN, ScriptedAnswer("Enough."))
    assert open_conversation(tooled, talk, source, model(target), stream).turn().text == "Enough."
    assert talk.refused == []
    assert talk.asked[-1].text.count("no more calls") == 1


@streamed
@pairs
def test_a_model_that_calls_for_ever(provider: Provider, tooled: str, source: str, target: str, stream: bool) -> None:
    talk = provider.script(*[AGAIN] * 9)
    client = open_conversation(tooled, talk, source, model(target), stream)
    match = None if stream and source == "openai-responses" else "still calls tools after 2 rounds"
    with pytest.raises(client.raises, match=match):
        client.turn()
    assert len(talk.asked) == 5


# --- failures in a later round ----------------------------------------------------------------------------------------


@streamed
@pytest.mark.parametrize("fails", ["rate", "busy", "bad"])
@pairs
def test_a_refusal_in_a_later_round(
    provider: Provider, tooled: str, source: str, target: str, stream: bool, fails: str
) -> None:
    """The client is told what the provider said; what was run is not run again, here or elsewhere."""
    talk = provider.script(AGAIN, *[Step(fails=fails)] * 3, ScriptedAnswer("Never said."))
    client = open_conversation(tooled, talk, source, f"b-{provider_name(target)}", stream)
    words = {"rate": "Too many requests", "busy": "servers are busy", "bad": "cannot be done"}
    # An SDK tells of a broken stream in words of its own.
    match = None if stream and source == "openai-responses" else words[fails]
    with pytest.raises(client.raises, match=match) as told:
        client.turn()
    assert {asked.protocol for asked in talk.asked} == {target}
    assert [len(elements(asked)) > len(elements(talk.asked[0])) for asked in talk.asked[1:]] == [True] * len(
        talk.asked[1:]
    )
    if not stream:
        told_by = [getattr(told.value, name, None) for name in ("status_code", "status", "code")]
        status = next(value for value in told_by if isinstance(value, int))
        wanted = {"rate": 429, "bad": 400}.get(fails)
        assert status == wanted if wanted else status in (502, 503, 529)


@pytest.mark.parametrize("breaks", ["error", "cut", "ended"])
@pairs
def test_a_stream_that_breaks_in_a_later_round(
    provider: Provider, tooled: str, source: str, target: str, breaks: str
) -> None:
    talk = provider.script(
        AGAIN, Step(ScriptedAnswer("Once upon a time there was"), breaks=breaks), ScriptedAnswer("Never said.")
    )  # type: ignore[arg-type]
    client = open_conversation(tooled, talk, source, f"b-{provider_name(target)}", True)
    with pytest.raises(client.raises):
        client.turn()
    assert len(talk.asked) == 2


@pairs
def test_a_body_that_is_cut_in_a_later_round(provider: Provider, tooled: str, source: str, target: str) -> None:
    talk = provider.script(AGAIN, Step(ScriptedAnswer("Once upon a time"), breaks="cut"), ScriptedAnswer("Never said."))
    client = open_conversation(tooled, talk, source, f"b-{provider_name(target)}", False)
    with pytest.raises(client.raises):
        client.turn()
    assert {asked.protocol for asked in talk.asked} == {target}
    assert all("more" in asked.text for asked in talk.asked[1:])


# --- leaving, and waiting ---------------------------------------------------------------------------------------------


def asked_for(talk: Script, stream: bool, target: str = "anthropic") -> bytes:
    messages = [{"role": "user", "content": talk.mark}]
    return json.dumps({"model": model(target), "messages": messages, "stream": stream}).encode()


def connect_and_post(base: str, body: bytes) -> socket.socket:
    address = urlsplit(base)
    client = socket.create_connection((address.hostname or "", address.port or 0), PATIENCE)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    client.sendall(head.encode() + body)
    return client


@streamed
def test_a_client_that_leaves_in_the_middle_of_a_call(
    provider: Provider, tooled: str, control: Control, stream: bool
) -> None:
    """Its call is cancelled at the server, and nobody is asked again."""
    talk = provider.script(ScriptedAnswer("Wait. ", (("test__slow", {}),)), ScriptedAnswer("Never said."))
    client = connect_and_post(tooled, asked_for(talk, stream))
    waiting = control.call()
    client.close()
    assert waiting.read_last_line() == "cancelled"
    assert len(talk.asked) == 1


def test_a_client_that_leaves_in_the_middle_of_a_mixed_turn(provider: Provider, tooled: str, control: Control) -> None:
    talk = provider.script(ScriptedAnswer("Wait. ", (("get_weather", {"city": "Paris"}), ("test__slow", {}))))
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]
    body = json.dumps({**json.loads(asked_for(talk, True)), "tools": tools}).encode()
    client = connect_and_post(tooled, body)
    waiting = control.call()
    client.close()
    assert waiting.read_last_line() == "cancelled"


@streamed
def test_a_client_that_leaves_in_a_later_round(provider: Provider, tooled: str, stream: bool) -> None:
    hold = Hold()
    talk = provider.script(AGAIN, Step(ScriptedAnswer("Never said."), hold=hold))
    client = connect_and_post(tooled, asked_for(talk, stream))
    assert hold.reached.wait(PATIENCE)
    client.close()
    assert hold.gone.wait(PATIENCE)
    hold.close()


def test_no_tool_runs_for_a_client_that_left_while_its_usage_was_awaited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit reads on for what the round has used. It is no reason for another round."""
    monkeypatch.setattr(relay, "USAGE_SECONDS", 2 * PATIENCE)
    more = f'[mcp.test]\n{COMMAND}\nmodels = ["*"]\n[[limits]]\ntokens_per_day = 100000\n'
    body = body_of("anthropic", ScriptedAnswer("!", (("test__echo", {"text": "hi"}),)))
    frames = [frame.encode() for frame in PEERS["anthropic"].write_stream(body)]
    cut = max(index for index, frame in enumerate(frames) if b"text_delta" in frame) + 1
    left: list[ClientRequest] = []

    class WatchedWait(relay.UsageWait):
        def __init__(self, request: ClientRequest) -> None:
            super().__init__(request)
            left.append(request)

    def play(peer: ScriptedConnection) -> None:
        peer.send(STREAM_HEAD)
        peer.chunk(*frames[:cut])
        peer.wait_for_release()
        peer.chunk(*frames[cut:])
        peer.send(b"0\r\n\r\n")

    monkeypatch.setattr(relay, "UsageWait", WatchedWait)
    with stage(tmp_path, more=more) as gateway:
        scene = gateway.scene("anthropic", play)
        line = open_call(gateway, "openai-chat", scene.model, True, {"x-request-id": "left"})
        line.start()
        line.read_until(b"!")
        line.disconnect()
        wait_until(lambda: left and left[0].is_disconnected)
        scene.go.set()
        logged = gateway.line("left")
        assert "tool_runs" not in logged
        assert len(scene.asked) == 1


@pytest.fixture(scope="module")
def beating(provider: Provider, control: Control, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gateway with frequent heartbeats."""
    folder = tmp_path_factory.mktemp("beating")
    with serve_config_text(
        folder, serve_with_mcp(folder, provider, control=control, server="heartbeat = 0.05")
    ) as base:
        yield base


@pytest.mark.parametrize("source", [source for source in CLIENTS if find_codec(source).http.heartbeat])
def test_signs_of_life(provider: Provider, control: Control, beating: str, source: str) -> None:
    """However long a tool takes, and though nothing was said before it, the connection of a stream is kept alive."""
    talk = provider.script(ScriptedAnswer("", (("test__slow", {}),)), ScriptedAnswer("At last."))
    user = {"role": "user", "content": talk.mark}
    asks = {
        "openai-chat": ("/v1/chat/completions", {"messages": [user]}),
        "openai-responses": ("/v1/responses", {"input": talk.mark}),
        "anthropic": ("/v1/messages", {"messages": [user], "max_tokens": 100}),
        "unified": ("/v1/unified", {"messages": [user]}),
    }
    path, more = asks[source]
    body = json.dumps({"model": model("anthropic"), "stream": True, **more}).encode()
    address = urlsplit(beating)
    with socket.create_connection((address.hostname or "", address.port or 0), PATIENCE) as client:
        head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
        client.sendall(head.encode() + body)
        waiting = control.call()
        got = b""
        beat = re.compile(rb"\n:[^\n]*\n|event: ping")
        while len(beat.findall(got)) < 3:
            got += client.recv(65536)
        assert len(talk.asked) == 1
        waiting.send_result("slowly")
        while piece := client.recv(65536):
            got += piece
    assert "slowly" in talk.asked[1].text


@streamed
def test_calls_are_in_the_log(tmp_path: Path, stream: bool) -> None:
    more = f'[mcp.test]\n{COMMAND}\nmodels = ["*"]\n[store]\nurl = "none"\n'
    said = [ScriptedAnswer("", (("test__echo", {"text": "x"}), ("test__fail", {}))), ScriptedAnswer("Done.")]
    bodies = [body_of("anthropic", says) for says in said]
    frames = [[frame.encode() for frame in PEERS["anthropic"].write_stream(body)] for body in bodies]
    plays = (
        [write_chunked(*one) for one in frames]
        if stream
        else [answer(200, json.dumps(body).encode()) for body in bodies]
    )
    with stage(tmp_path, more=more) as gateway:
        scene = gateway.scene("anthropic", *plays)
        asked = {"model": scene.model, "messages": [{"role": "user", "content": "Go."}], "stream": stream}
        got = ask(gateway.port, "POST", "/v1/chat/completions", json.dumps(asked).encode())
        line = gateway.line(got.headers["x-request-id"])
    assert line["tool_runs"] == [["test__echo", "ok"], ["test__fail", "error"]]
    assert line["losses"].count("call-forgotten") == 1


@streamed
def test_a_gateway_without_its_server_serves(provider: Provider, tooled: str, stream: bool) -> None:
    """One of the servers was never there."""
    talk = provider.script(ScriptedAnswer("Hello."))
    port = urlsplit(tooled).port or 0
    got = ask(port, "POST", "/v1/chat/completions", asked_for(talk, stream))
    assert (got.status, got.whole) == (200, True)
    assert "gone__" not in talk.asked[0].text
