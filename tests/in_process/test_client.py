"""The HTTP client for programs: configuration, losses, errors, fallbacks, cancelling, threads and event loops."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import anthropic
import httpx2
import openai
import pytest

import toolwire
from gateway.raw_exchange import (
    PROVIDERS,
    RawProvider,
    answer,
    configuration,
    frames,
    play_script,
    refusal,
    whole_answer,
)
from gateway.raw_exchange import ScriptedConnection as Connection
from toolwire.gateway.settings.problems import ConfigError
from toolwire.in_process.client import LoopThread
from toolwire.in_process.engine import ExchangeReport, ProgramAnswer, ProgramGateway, ProgramRequest
from toolwire.in_process.library import load_library
from toolwire.in_process.sender import CallState
from waits import PATIENCE, wait_until

HELLO: Any = [{"role": "user", "content": "Hello"}]
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
LOOPBACK: dict[str, Any] = {}
BUSY = answer(529, refusal("anthropic", 529, "overloaded_error", "busy"))


@pytest.fixture(scope="module")
def config(wire: RawProvider, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("client") / "toolwire.toml"
    file.write_text(configuration(wire))
    return file


def open_sdk(client: httpx2.Client, **more: Any) -> openai.OpenAI:
    return openai.OpenAI(api_key="any", max_retries=0, http_client=client, **more)


# --- losses ---


def test_losses_are_known_when_an_answer_is_there(config: Path, wire: RawProvider) -> None:
    heard: list[Sequence[toolwire.Loss]] = []
    scene = wire.scene("anthropic", whole_answer("anthropic"))
    with open_sdk(toolwire.http_client(config, on_losses=heard.append)) as sdk:
        raw = sdk.chat.completions.with_raw_response.create(model=scene.model, messages=HELLO, seed=3)
    codes = [loss.code for loss in toolwire.losses(raw)]
    assert "no-counterpart" in codes
    assert raw.headers["x-toolwire-losses"].startswith(f"{len(codes)}; codes=")
    assert heard == [toolwire.losses(raw)]


def test_losses_of_a_stream_are_known_at_its_end(config: Path, wire: RawProvider) -> None:
    scene = wire.scene("anthropic", play_script("anthropic", True))
    with open_sdk(toolwire.http_client(config)) as sdk:
        stream = sdk.chat.completions.create(model=scene.model, messages=HELLO, seed=3, stream=True)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices) == "Hello there."
        assert "no-counterpart" in {loss.code for loss in toolwire.losses(stream)}


def test_what_has_no_losses_to_tell_is_refused() -> None:
    with pytest.raises(TypeError, match="with_raw_response"):
        toolwire.losses({"id": "x"})


def test_the_callback_is_the_programs(config: Path, wire: RawProvider) -> None:
    """It runs where the program waits: it may ask again, and what it raises goes to the program."""
    scene = wire.scene("anthropic", whole_answer("anthropic"))
    heard: list[str] = []

    def hear(losses: Sequence[toolwire.Loss]) -> None:
        heard.append(threading.current_thread().name)
        sdk.chat.completions.create(model="loopback", messages=HELLO)
        raise SystemExit(3)

    with open_sdk(toolwire.http_client(config, on_losses=hear)) as sdk:
        with pytest.raises(SystemExit):
            sdk.chat.completions.create(model=scene.model, messages=HELLO, seed=3)
        assert sdk.chat.completions.create(model="loopback", messages=HELLO).choices
    assert heard == [threading.current_thread().name]


# --- errors, timeouts, fallbacks ---


def test_a_provider_that_cannot_be_reached_is_a_connection_error() -> None:
    tables = {"providers": {"off": {"protocols": ["anthropic"], "base_url": "http://127.0.0.1:1", "api_key": "k"}}}
    with open_sdk(toolwire.http_client(tables)) as sdk, pytest.raises(openai.APIConnectionError):
        sdk.chat.completions.create(model="off/m", messages=HELLO)


def test_the_timeout_is_the_programs(config: Path, wire: RawProvider) -> None:
    scene, seconds = wire.scene("anthropic", Connection.wait_for_close), 0.05
    with open_sdk(toolwire.http_client(config)) as sdk:
        while not scene.reached.is_set():  # on a busy machine it can be over before the provider is asked
            with pytest.raises(openai.APITimeoutError):
                sdk.with_options(timeout=seconds).chat.completions.create(model=scene.model, messages=HELLO)
            seconds *= 2
            assert seconds < PATIENCE
    assert scene.gone.wait(PATIENCE)


def test_the_timeout_within_a_stream_is_the_programs(config: Path, wire: RawProvider) -> None:
    scene, seconds = wire.scene("anthropic", hold_after_start), 0.05
    got: list[object] = []
    with open_sdk(toolwire.http_client(config)) as sdk:
        while not got:  # on a busy machine it can be over before the stream has begun
            patient = sdk.with_options(timeout=seconds)
            with pytest.raises(openai.APITimeoutError):
                got.extend(patient.chat.completions.create(model=scene.model, messages=HELLO, stream=True))
            seconds *= 2
            assert seconds < PATIENCE


def test_no_other_timeout_and_no_other_limit_than_the_programs(tmp_path: Path, wire: RawProvider) -> None:
    """What a file says of them is for a gateway."""
    file = tmp_path / "toolwire.toml"
    own = "max_requests = 1\nstore_keys = true\ntimeouts = { first_byte = 0.001 }"
    file.write_text(configuration(wire, server=own))
    scene = wire.scene("anthropic", play_after_all)

    async def ask_often() -> None:
        async with openai.AsyncOpenAI(api_key="any", http_client=toolwire.async_http_client(file)) as sdk:
            asked = [sdk.chat.completions.create(model=scene.model, messages=HELLO) for _ in range(AT_ONCE)]
            answers = await asyncio.gather(*asked)
        assert {got.choices[0].message.content for got in answers} == {"Hello there."}

    asyncio.run(ask_often())


AT_ONCE = 110
"""More than the HTTP library's own limit of connections, and fewer than that of the SDKs."""


def play_after_all(connection: Connection) -> None:
    """Answer when all have asked."""
    wait_until(lambda: len(connection.scene.asked) >= AT_ONCE)
    connection.send(whole_answer("anthropic"))


class Proxy:
    """A proxy on loopback, which refuses everything and remembers it."""

    def __init__(self) -> None:
        asked = self.asked = list[str]()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked.append(self.path)
                self.send_error(403)

            def log_message(self, format: str, *args: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


PROXIES: dict[str, tuple[dict[str, Any], str, str]] = {
    "of the environment": ({}, "", "environment"),
    "none": ({"trust_env": False}, "", ""),
    "of the program": ({"proxy": "{program}"}, "", "program"),
    "of the provider": ({"proxy": "{program}"}, "{provider}", "provider"),
}


@pytest.mark.parametrize("row", PROXIES)
def test_the_proxy_is_the_programs(monkeypatch: pytest.MonkeyPatch, row: str) -> None:
    options, given, expected = PROXIES[row]
    proxies = {name: Proxy() for name in ("environment", "program", "provider")}
    urls = {name: proxy.url for name, proxy in proxies.items()}
    monkeypatch.setenv("HTTP_PROXY", urls["environment"])
    monkeypatch.delenv("NO_PROXY", raising=False)
    provider = {"protocols": ["openai-chat"], "base_url": "http://llm.invalid", "api_key": "k"}
    tables = {"providers": {"mine": {**provider, **({"proxy": given.format(**urls)} if given else {})}}}
    own = {name: value.format(**urls) if isinstance(value, str) else value for name, value in options.items()}
    with open_sdk(toolwire.http_client(tables, **own)) as sdk, pytest.raises(openai.APIError):
        sdk.chat.completions.create(model="mine/m", messages=HELLO)
    for proxy in proxies.values():
        proxy.server.shutdown()
        proxy.server.server_close()
    assert [name for name, proxy in proxies.items() if proxy.asked] == ([expected] if expected else [])


def test_the_sdk_tries_again_and_nobody_else(config: Path, wire: RawProvider) -> None:
    scene = wire.scene("anthropic", BUSY, whole_answer("anthropic"))
    with openai.OpenAI(api_key="any", max_retries=1, http_client=toolwire.http_client(config)) as sdk:
        got = sdk.chat.completions.create(model=scene.model, messages=HELLO)
    assert got.choices[0].message.content == "Hello there."
    assert len(scene.asked) == 2


def test_a_fallback_answers(tmp_path: Path, wire: RawProvider) -> None:
    good = wire.scene("gemini", whole_answer("gemini"))
    bad = wire.scene("anthropic", BUSY)
    file = tmp_path / "toolwire.toml"
    file.write_text(
        configuration(
            wire,
            more=f'[models."{bad.model}"]\nprovider = "anthropic"\nmodel = "{bad.name}"\nfallbacks = ["{good.model}"]\n',
        )
    )
    with open_sdk(toolwire.http_client(file)) as sdk:
        raw = sdk.chat.completions.with_raw_response.create(model=bad.model, messages=HELLO)
    assert raw.headers["x-toolwire-provider"] == "gemini"
    assert (len(bad.asked), len(good.asked)) == (1, 1)


def test_an_unknown_model_is_an_error_of_the_sdk() -> None:
    with open_sdk(toolwire.http_client(LOOPBACK)) as sdk, pytest.raises(openai.NotFoundError, match="loopback"):
        sdk.chat.completions.create(model="nobody", messages=HELLO)


def test_a_key_that_no_header_can_have_is_an_error_of_the_sdk() -> None:
    provider = {"protocols": ["anthropic"], "base_url": "http://127.0.0.1:1", "api_key": "sk-\u20ac"}
    client = toolwire.http_client({"providers": {"mine": provider}})
    with open_sdk(client) as sdk, pytest.raises(openai.APIError, match="cannot be written"):
        sdk.chat.completions.create(model="mine/m", messages=HELLO)


def test_the_providers_key_is_sent_and_the_programs_is_not(config: Path, wire: RawProvider) -> None:
    scene = wire.scene("anthropic", whole_answer("anthropic"))
    with openai.OpenAI(api_key="of-the-program", http_client=toolwire.http_client(config)) as sdk:
        sdk.chat.completions.create(model=scene.model, messages=HELLO)
    (asked,) = scene.asked
    assert "of-the-program" not in str(asked.headers)
    assert "x-api-key" in asked.headers


# --- cancelling and sharing ---


def hold_after_start(connection: Connection, protocol: str = "anthropic") -> None:
    connection.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    connection.chunk(*frames(protocol)[:3])
    connection.wait_for_close()


def test_closing_a_stream_ends_the_providers_call(config: Path, wire: RawProvider) -> None:
    scene = wire.scene("anthropic", hold_after_start)
    with open_sdk(toolwire.http_client(config)) as sdk:
        stream = sdk.chat.completions.create(model=scene.model, messages=HELLO, stream=True)
        next(iter(stream))
        stream.close()
        assert scene.gone.wait(PATIENCE)


def test_closing_the_client_ends_the_providers_call(config: Path, wire: RawProvider) -> None:
    scene = wire.scene("anthropic", hold_after_start)
    sdk = open_sdk(toolwire.http_client(config))
    stream = sdk.chat.completions.create(model=scene.model, messages=HELLO, stream=True)
    next(iter(stream))
    sdk.close()
    assert scene.gone.wait(PATIENCE)
    with pytest.raises(openai.APIConnectionError):
        list(stream)


def test_cancelling_ends_the_providers_call(config: Path, wire: RawProvider) -> None:
    scene = wire.scene("anthropic", Connection.wait_for_close)

    async def ask() -> None:
        async with openai.AsyncOpenAI(api_key="any", http_client=toolwire.async_http_client(config)) as sdk:
            task = asyncio.create_task(sdk.chat.completions.create(model=scene.model, messages=HELLO))
            await asyncio.to_thread(scene.reached.wait, PATIENCE)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(scene.gone.wait, PATIENCE)

    asyncio.run(ask())


LEAVES = """
import asyncio, sys, openai, toolwire

async def main():
    sdk = openai.AsyncOpenAI(api_key="any", http_client=toolwire.async_http_client(sys.argv[1]))
    question = [{"role": "user", "content": "Hello"}]
    async for chunk in await sdk.chat.completions.create(model=sys.argv[2], messages=question, stream=True):
        break

asyncio.run(main())
"""


def test_a_program_may_end_within_a_stream(config: Path, wire: RawProvider) -> None:
    scene = wire.scene("openai-chat", lambda held: hold_after_start(held, "openai-chat"))
    command = [sys.executable, "-c", LEAVES, str(config), scene.model]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    shown = [line for line in ran.stderr.splitlines() if "the key is in the configuration file" not in line]
    assert (ran.returncode, shown) == (0, [])
    assert scene.gone.wait(PATIENCE)


def test_closing_the_client_is_an_error_for_threads_that_wait(config: Path, wire: RawProvider) -> None:
    scene = wire.scene("anthropic", Connection.wait_for_close)
    sdk = open_sdk(toolwire.http_client(config))
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(sdk.chat.completions.create, model=scene.model, messages=HELLO)
        assert scene.reached.wait(PATIENCE)
        sdk.close()
        with pytest.raises(openai.APIConnectionError):
            asked.result(PATIENCE)


def test_a_stream_can_be_closed_after_its_client(config: Path, wire: RawProvider) -> None:
    scene = wire.scene("anthropic", hold_after_start)
    with open_sdk(toolwire.http_client(config)) as sdk:
        stream = sdk.chat.completions.create(model=scene.model, messages=HELLO, stream=True)
    stream.close()


class CollectGarbage(httpx2.AsyncBaseTransport):
    """In the thread of the client, which sends its requests."""

    def __init__(self) -> None:
        self.inner = httpx2.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        gc.collect()
        return await self.inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self.inner.aclose()


def test_the_garbage_collector_closes_a_stream_in_any_thread(config: Path, wire: RawProvider) -> None:
    held, other = wire.scene("anthropic", hold_after_start), wire.scene("anthropic", whole_answer("anthropic"))
    with open_sdk(toolwire.http_client(config, transport=CollectGarbage())) as sdk:
        stream = sdk.chat.completions.create(model=held.model, messages=HELLO, stream=True)
        chunks = iter(stream)
        next(chunks)
        cycle: list[object] = [chunks, stream]
        cycle.append(cycle)
        gc.disable()
        try:
            del stream, chunks, cycle
            assert sdk.chat.completions.create(model=other.model, messages=HELLO).choices
        finally:
            gc.enable()
        assert held.gone.wait(PATIENCE)


def test_a_client_that_is_forgotten_leaves_no_thread() -> None:
    def find_threads() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name == "toolwire"}

    earlier = find_threads()
    client = toolwire.http_client(LOOPBACK)
    client.post("http://any/v1/chat/completions", json={"model": "loopback", "messages": HELLO})
    assert find_threads() - earlier
    del client
    gc.collect()
    wait_until(lambda: not find_threads() - earlier)


class AskTheSameClient(httpx2.AsyncBaseTransport):
    client: httpx2.Client

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return self.client.post("http://any/v1/chat/completions", json={"model": "loopback", "messages": HELLO})


def test_a_client_that_would_wait_for_itself_is_an_error(config: Path, wire: RawProvider) -> None:
    transport = AskTheSameClient()
    with toolwire.http_client(config, transport=transport) as transport.client:
        body = {"model": wire.scene("anthropic", b"").model, "messages": HELLO}
        with pytest.raises(RuntimeError, match="cannot be asked by what it calls itself"):
            transport.client.post("http://any/v1/chat/completions", json=body)


def test_another_event_loop_than_asyncios_is_an_error() -> None:
    """As trio's, where asyncio finds no loop."""
    work = toolwire.async_http_client(LOOPBACK).get("http://any/v1/models")
    with pytest.raises(RuntimeError, match="need asyncio"):
        work.send(None)


def test_a_cancelled_reader_is_cancelled_at_the_end_of_an_answer() -> None:
    """Whoever waits for the end of an exchange must not swallow it: `asyncio.timeout` rests on it."""

    async def read() -> None:
        answer = ProgramAnswer(ExchangeReport(), CallState())
        work: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def run() -> None:
            await work

        answer.follow(asyncio.create_task(run()))
        await answer.receive_message({"type": "http.response.body", "more_body": False})
        reader = asyncio.create_task(answer.read_pieces())
        await asyncio.sleep(0)
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        work.cancel()

    asyncio.run(read())


def test_a_forked_process_has_a_thread_of_its_own() -> None:
    client = toolwire.http_client(LOOPBACK)
    body = {"model": "loopback", "messages": HELLO}
    assert client.post("http://any/v1/chat/completions", json=body).status_code == 200
    child = os.fork()
    if not child:
        signal.alarm(int(PATIENCE))  # it would wait for ever
        status = client.post("http://any/v1/chat/completions", json=body).status_code
        client.close()
        os._exit(status != 200)
    assert os.waitpid(child, 0)[1] == 0
    client.close()


def test_threads_share_a_client() -> None:
    with open_sdk(toolwire.http_client(LOOPBACK)) as sdk, ThreadPoolExecutor(8) as pool:
        barrier = threading.Barrier(8)

        def ask(number: int) -> str:
            barrier.wait(PATIENCE)
            said: Any = [{"role": "user", "content": f"number {number}"}]
            return sdk.chat.completions.create(model="demo-anthropic", messages=said).choices[0].message.content or ""

        assert all(f"number {number}" in text for number, text in enumerate(pool.map(ask, range(8))))


def test_event_loops_share_a_client() -> None:
    client = toolwire.async_http_client(LOOPBACK)
    sdk = anthropic.AsyncAnthropic(api_key="any", http_client=client)

    async def ask() -> str:
        async with sdk.messages.stream(model="demo-gemini", max_tokens=99, messages=HELLO) as stream:
            text = await stream.get_final_text()
        await client._transport.aclose()
        return text

    assert "Hello" in asyncio.run(ask())
    assert "Hello" in asyncio.run(ask())


def test_event_loops_that_have_ended_are_forgotten() -> None:
    client = toolwire.async_http_client(LOOPBACK)

    async def ask() -> weakref.ref[asyncio.AbstractEventLoop]:
        await client.post("http://any/v1/chat/completions", json={"model": "loopback", "messages": HELLO})
        return weakref.ref(asyncio.get_running_loop())

    first, _ = asyncio.run(ask()), asyncio.run(ask())
    gc.collect()
    assert first() is None
    asyncio.run(client.aclose())


def test_many_pieces_wait_for_a_slow_reader(config: Path, wire: RawProvider) -> None:
    text = " ".join(f"word{number}" for number in range(2000))
    scene = wire.scene("openai-chat", play_script("openai-chat", True, text))
    with (
        anthropic.Anthropic(api_key="any", http_client=toolwire.http_client(config)) as sdk,
        sdk.messages.stream(model=scene.model, max_tokens=9, messages=HELLO) as stream,
    ):
        assert stream.get_final_text() == text


# --- configuration ---


def test_the_library_alone_imports_neither_gateway_nor_http_client() -> None:
    code = "import sys, toolwire; print(*sorted({'.'.join(name.split('.')[:2]) for name in sys.modules}))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE)
    found = set(ran.stdout.split())
    assert "toolwire.translation" in found
    assert found.isdisjoint({"httpx", "httpx2", "asyncio", "toolwire.gateway", "toolwire.in_process"})


def test_a_file_of_the_working_folder_is_not_used_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    Path("toolwire.toml").write_text('[models.mine]\nprovider = "loopback"\nmodel = "loopback"\n')
    with open_sdk(toolwire.http_client()) as sdk, pytest.raises(openai.NotFoundError):
        sdk.chat.completions.create(model="mine", messages=HELLO)
    with open_sdk(toolwire.http_client("toolwire.toml")) as sdk:
        assert sdk.chat.completions.create(model="mine", messages=HELLO).choices
    monkeypatch.setenv("TOOLWIRE_CONFIG", "toolwire.toml")
    with open_sdk(toolwire.http_client()) as sdk:
        assert sdk.chat.completions.create(model="mine", messages=HELLO).choices


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "limits": ({"limits": [{"requests_per_minute": 3}]}, "limits"),
    "MCP servers": ({"mcp": {"files": {"command": ["true"]}}}, "mcp"),
    "not a table": ({"server": 3}, "server"),
    "an unknown provider": ({"models": {"a": {"provider": "nobody"}}}, "nobody"),
    "rules for keys": ({"policy": [{"tool": "x", "team": "a", "drop": True}]}, "policy.0"),
    "a store": ({"store": {"url": "sqlite:///a.db"}}, "store"),
    "a console": ({"console": {"enabled": True}}, "console"),
    "timeouts": ({"server": {"timeouts": {"first_byte": 3}}}, "server.timeouts"),
    "client keys": ({"server": {"store_keys": True}}, "server.store_keys"),
}


@pytest.mark.parametrize("row", REFUSED)
def test_what_cannot_be_had_is_an_error(row: str) -> None:
    tables, word = REFUSED[row]
    with pytest.raises(ConfigError, match=word):
        toolwire.http_client(tables)


KEPT: dict[str, Callable[[openai.OpenAI], object]] = {
    "an earlier response": lambda sdk: sdk.responses.create(model="loopback", input="x", previous_response_id="resp_1"),
    "a response to read": lambda sdk: sdk.responses.retrieve("resp_1"),
    "a response in the background": lambda sdk: sdk.responses.create(model="loopback", input="x", background=True),
    "a conversation": lambda sdk: sdk.conversations.create(),
}


@pytest.mark.parametrize("row", KEPT)
def test_what_a_program_does_not_keep_is_an_error_that_says_so(row: str) -> None:
    with open_sdk(toolwire.http_client(LOOPBACK)) as sdk, pytest.raises(openai.APIStatusError, match="keeps nothing"):
        KEPT[row](sdk)


def test_the_error_of_a_configuration_has_a_name_and_says_what_to_do() -> None:
    with pytest.raises(toolwire.ConfigError) as raised:
        toolwire.http_client({"sever": {}})
    assert raised.value.__notes__ == ["hint: sever: did you mean `server`?"]


def test_a_key_in_the_tables_of_a_program_is_no_matter(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """It is not in a file: a program gets it from where it keeps its keys."""
    provider = {"protocols": ["anthropic"], "base_url": "http://127.0.0.1:1", "api_key": "k"}
    toolwire.http_client({"providers": {"mine": provider}}).close()
    assert caplog.messages == []
    file = tmp_path / "toolwire.toml"
    file.write_text('[providers.mine]\nprotocols = ["anthropic"]\nbase_url = "http://127.0.0.1:1"\napi_key = "k"\n')
    toolwire.http_client(file).close()
    assert "the key is in the configuration file" in caplog.text


WRONG_CALLS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "a transport has no timeout": (toolwire.http_transport, {"timeout": 3}, "a transport has no `timeout`"),
    "nor the async one": (toolwire.async_http_transport, {"headers": {}}, "a transport has no `headers`"),
    "a sync transport": (toolwire.http_client, {"transport": httpx2.HTTPTransport()}, "AsyncHTTPTransport"),
    "a sync mount": (toolwire.http_client, {"mounts": {"all://": httpx2.HTTPTransport()}}, "AsyncHTTPTransport"),
    "replay and configuration": (toolwire.http_client, {"replay": "x", "config": {}}, "leave out"),
    "another library": (toolwire.http_client, {"library": "requests"}, "not 'requests'"),
    "a proxy of no kind": (toolwire.http_client, {"config": {}, "proxy": "x://y"}, "x://y"),
    "replay and record": (toolwire.http_client, {"replay": "x", "record": "x"}, "leave out"),
}


@pytest.mark.parametrize("row", WRONG_CALLS)
def test_options_that_would_do_nothing_are_refused(row: str) -> None:
    make, options, what = WRONG_CALLS[row]
    with pytest.raises((TypeError, ValueError), match=what):
        make(**options)


def test_a_library_that_is_missing_says_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx2", None)
    with pytest.raises(ModuleNotFoundError, match="openai 3, anthropic 2 and google-genai 3 bring it"):
        toolwire.http_client(LOOPBACK)


def test_tables_are_those_of_the_file(wire: RawProvider) -> None:
    scene = wire.scene("anthropic", whole_answer("anthropic"))
    tables = {
        "providers": {"mine": {"protocols": ["anthropic"], "base_url": wire.url, "api_key": "k"}},
        "models": {"gpt-*": {"provider": "mine", "model": scene.name}},
        "policy": [{"tool": "secret_*", "drop": True}],
    }
    tools: Any = [
        {"type": "function", "function": {"name": name, "parameters": WEATHER}} for name in ("look", "secret_x")
    ]
    with open_sdk(toolwire.http_client(tables)) as sdk:
        sdk.chat.completions.create(model="gpt-5.5", messages=HELLO, tools=tools)
    assert [tool["name"] for tool in scene.asked[0].json()["tools"]] == ["look"]


@pytest.mark.parametrize("protocol", PROVIDERS)
def test_transports_can_be_used_alone(config: Path, wire: RawProvider, protocol: str) -> None:
    scene = wire.scene(protocol, whole_answer(protocol))
    with httpx2.Client(transport=toolwire.http_transport(config)) as client:
        got = client.post("http://any/v1/chat/completions", json={"model": scene.model, "messages": HELLO})
    assert got.json()["choices"][0]["message"]["content"] == "Hello there."


def test_the_collector_does_not_wait_where_it_stops_the_other_thread() -> None:
    """It closes a stream anywhere, also where a request has the lock; the loop's thread may need that, too."""
    done = threading.Event()

    class Answer:
        is_over = False

        async def close(self) -> None:
            await asyncio.get_running_loop().run_in_executor(None, done.wait)

    class Gateway:
        def send_request(self, request: object) -> Coroutine[object, object, str]:
            thread.give_up(cast(ProgramAnswer, Answer()))
            return self.answer()

        async def answer(self) -> str:
            return "answer"

        async def close(self) -> None:
            done.set()

    thread = LoopThread(lambda: cast(ProgramGateway, Gateway()), load_library("httpx2"))
    answers: list[object] = []
    caller = threading.Thread(
        target=lambda: answers.append(thread.send_request(cast(ProgramRequest, None))), daemon=True
    )
    caller.start()
    caller.join(PATIENCE)
    assert answers == ["answer"]
    thread.close()
