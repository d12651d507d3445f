"""The application inside another one, by the standard and without a start-up; and gateways that call each other."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from google import genai

from configs import load_config
from gateway.raw_exchange import (
    CLIENTS,
    PROVIDER_KEY,
    RawAnswer,
    RawConnection,
    RawProvider,
    ScriptedConnection,
    ask,
    configuration,
    error_of,
    is_complete,
    is_failure,
    opening_frames,
    path_of,
    play_script,
    request_of,
    run_own_server,
    run_uvicorn,
    text_of,
    whole_answer,
    write_chunked,
)
from toolwire.gateway import Gateway, app
from toolwire.gateway.configuration.live_config import LiveConfig
from toolwire.gateway.http.client_request import ClientRequest
from toolwire.gateway.telemetry.telemetry import Telemetry
from toolwire_conformance.peers.peer import encode_json
from waits import PATIENCE


class Parent:
    """The smallest application that has another one below a path."""

    def __init__(self, below: Any, strips: bool) -> None:
        self.below = below
        self.strips = strips

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"]
        if path.startswith("/llm/"):
            shown = path.removeprefix("/llm") if self.strips else path
            await self.below({**scope, "root_path": "/llm", "path": shown}, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
        await send({"type": "http.response.body", "body": b"mine"})


@pytest.fixture(scope="module", params=[True, False], ids=["old style", "new style"], name="mounted")
def mount_gateway(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[int, RawProvider]]:
    # Nobody tells this gateway to stop, so connections that it keeps would still be open when its loop closes.
    wire = RawProvider(keeps_alive=False)
    file = tmp_path_factory.mktemp("mounted") / "toolwire.toml"
    file.write_text(configuration(wire, 'log_format = "none"'))
    with run_uvicorn(Parent(app(file), request.param), "off") as port:
        yield port, wire
    wire.close()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("client", CLIENTS)
def test_it_serves_below_a_path(mounted: tuple[int, RawProvider], client: str, stream: bool) -> None:
    port, wire = mounted
    for provider in ("anthropic", "openai-chat"):
        scene = wire.scene(provider, play_script(provider, stream))
        body = encode_json(request_of(client, scene.model, stream)).encode()
        got = ask(port, "POST", f"/llm{path_of(client, scene.model.replace('/', '%2F'), stream)}", body)
        assert got.status == 200, got.data
        assert text_of(client, got, stream) == "Hello there."
    assert ask(port, "GET", "/other").data == b"mine"
    assert ask(port, "GET", "/llm/livez").data == b"ok\n"
    assert ask(port, "GET", "/llm/v1/models").status == 200


def test_the_official_sdks_find_it_there(mounted: tuple[int, RawProvider]) -> None:
    base = f"http://127.0.0.1:{mounted[0]}/llm"
    with openai.OpenAI(base_url=f"{base}/v1", api_key="x", max_retries=0) as sdk:
        chat = sdk.chat.completions.create(model="loopback", messages=[{"role": "user", "content": "Hi"}])
        assert chat.choices[0].message.content
        assert "loopback" in [model.id for model in sdk.models.list()]
    with anthropic.Anthropic(base_url=base, api_key="x", max_retries=0) as claude:
        said = claude.messages.create(model="loopback", max_tokens=9, messages=[{"role": "user", "content": "Hi"}])
        assert said.content
    gemini = genai.Client(api_key="x", http_options={"base_url": base})
    assert gemini.models.generate_content(model="loopback", contents="Hi").text
    gemini.close()


def test_a_client_that_leaves_is_noticed_there_too(mounted: tuple[int, RawProvider]) -> None:
    port, wire = mounted
    scene = wire.scene("anthropic", ScriptedConnection.wait_for_close)
    line = RawConnection(port)
    line.send("POST", "/llm/v1/messages", encode_json(request_of("anthropic", scene.model, True)).encode())
    assert scene.reached.wait(PATIENCE)
    line.disconnect()
    assert scene.gone.wait(PATIENCE)


def test_a_cut_stream_is_a_failure_there_too(mounted: tuple[int, RawProvider]) -> None:
    port, wire = mounted
    scene = wire.scene("anthropic", lambda peer: peer.send(write_chunked(*opening_frames("anthropic"), end=False)))
    body = encode_json(request_of("openai-responses", scene.model, True)).encode()
    got = ask(port, "POST", "/llm/v1/responses", body)
    assert is_failure("openai-responses", got.frames)
    assert not is_complete("openai-responses", got.frames)


def test_a_download_that_is_cut_has_no_end_there_too(mounted: tuple[int, RawProvider]) -> None:
    port, wire = mounted

    def play(peer: ScriptedConnection) -> None:
        peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: audio/mpeg\r\ntransfer-encoding: chunked\r\n\r\n")
        peer.chunk(b"some sound")

    scene = wire.scene("openai-chat", play)
    got = ask(port, "POST", "/llm/v1/audio/speech", b'{"model":"%b"}' % scene.model.encode())
    assert got.data == b"some sound"
    assert not got.whole


def test_a_configuration_can_be_given_as_a_value() -> None:
    config = load_config(None, {})
    with run_uvicorn(app(config), "off") as port:
        body = encode_json(request_of("anthropic", "loopback", False)).encode()
        assert ask(port, "POST", "/v1/messages", body).status == 200


# --- WebSockets by the standard ---


@pytest.mark.parametrize("extended", [True, False])
def test_a_server_with_websockets_is_told_426(tmp_path: Path, extended: bool) -> None:
    sent: list[dict[str, Any]] = []

    async def run() -> None:
        gateway = app(load_config(None, {}))
        extensions: dict[str, Any] = {"websocket.http.response": {}} if extended else {}
        scope = {
            "type": "websocket",
            "path": "/v1/responses",
            "headers": [(b"host", b"localhost")],
            "query_string": b"",
            "client": ("127.0.0.1", 1),
            "extensions": extensions,
        }

        async def receive() -> dict[str, Any]:
            return {"type": "websocket.connect"}

        async def send(message: Any) -> None:
            sent.append(message)

        await gateway(scope, receive, send)
        await gateway.close()

    asyncio.run(run())
    if extended:
        assert sent[0]["status"] == 426
        got = RawAnswer(426, {}, sent[1]["body"])
        assert "POST" in error_of("openai-responses", got)["message"]
    else:
        assert sent == [{"type": "websocket.close", "code": 1000}]


# --- gateways that call themselves ---


def _gateway(folder: Path, name: str, port: int) -> Counting:
    """One whose providers are another gateway, or itself."""
    file = folder / f"{name}.toml"
    lines = ['[server]\nlog_format = "none"\nretries = 2']
    for protocol in ("openai-chat", "anthropic"):
        lines.append(
            f'[providers.{protocol}-next]\nprotocols = ["{protocol}"]\nbase_url = "http://127.0.0.1:{port}"\napi_key = "{PROVIDER_KEY}"'
        )
        lines.append(f'[models."round-{protocol}"]\nprovider = "{protocol}-next"')
    file.write_text("\n".join(lines))
    live = LiveConfig(file, {}, lambda found: None)
    return Counting(live, Telemetry(live.current.server))


class Counting(Gateway):
    """Counts how often it is asked."""

    asked = 0

    async def handle(self, incoming: ClientRequest) -> None:
        self.asked += 1
        await super().handle_request(incoming)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("protocol", ["openai-chat", "anthropic"])
@pytest.mark.parametrize("many", [1, 2, 6])
def test_a_gateway_that_calls_itself_says_so(tmp_path: Path, many: int, protocol: str, stream: bool) -> None:
    with ExitStack() as stack:
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(many)]
        ports = [bound.getsockname()[1] for bound in sockets]
        gateways = [_gateway(tmp_path, f"g{number}", ports[(number + 1) % many]) for number in range(many)]
        for gateway, bound in zip(gateways, sockets, strict=True):
            stack.enter_context(run_own_server(gateway, bound))
        for client in ("openai-chat", "anthropic", "gemini"):
            before = sum(gateway.asked for gateway in gateways)
            body = encode_json(request_of(client, f"round-{protocol}", stream)).encode()
            got = ask(ports[0], "POST", path_of(client, f"round-{protocol}", stream), body)
            assert got.status >= 400
            message = error_of(client, got)["message"]
            assert "itself" in message or "each other" in message
            assert sum(gateway.asked for gateway in gateways) - before <= many + 1


def test_two_gateways_in_a_row_are_fine(tmp_path: Path) -> None:
    wire = RawProvider()
    behind = tmp_path / "behind.toml"
    behind.write_text(configuration(wire, 'log_format = "none"', '[models."round-*"]\nprovider = "chat"\n'))
    with run_own_server(app(behind)) as port, run_own_server(_gateway(tmp_path, "front", port)) as front:
        scene = wire.scene("openai-chat", whole_answer("openai-chat"))
        name = f"anthropic-next/round-{scene.mark}"
        wire.scenes[scene.mark.encode()] = scene
        body = encode_json(request_of("gemini", name, False)).encode()
        got = ask(front, "POST", path_of("gemini", name, False), body)
        assert text_of("gemini", got, False) == "Hello there."
        assert scene.asked[0].headers["x-toolwire-hops"].count(",") == 1
    wire.close()
