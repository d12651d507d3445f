"""What clients and providers can make the gateway hold is bounded, and goes with them."""

from __future__ import annotations

import gc
import re
import tracemalloc
import weakref
from pathlib import Path

import pytest

from gateway.one_loop import GatewayInLoop, gateway_in_loop, post
from gateway.raw_exchange import STREAM_HEAD, ScriptedConnection, opening_frames, stream_steps, whole_answer
from gateway.raw_server import run, run_loop_once, wait_until_true
from toolwire.gateway.http.connection import STREAM_READ, Phase

READERS = 6
MAX_HELD = 150_000
"""Bytes of memory for a stream that nobody reads: what was read of it, what was written, and the exchange itself."""


@pytest.fixture(scope="module", autouse=True)
def _freeze_other_tests() -> None:
    """The collections of these tests need not look at what tests before them left."""
    gc.collect()
    gc.freeze()


def play_endless_stream(protocol: str) -> object:
    """A stream without end, as fast as it is read."""
    *start, last = opening_frames(protocol)
    last = re.sub(rb'"Hel[^"]*"', b'"' + b"x" * 8000 + b'"', last)

    def play(line: ScriptedConnection) -> None:
        line.send(STREAM_HEAD)
        line.chunk(*start)
        while True:
            line.chunk(last)

    return play


PAIRS = {
    ("openai-chat", "openai-chat"): True,
    ("openai-chat", "anthropic"): True,
    ("openai-chat", "gemini"): False,
    ("anthropic", "openai-responses"): False,
    ("anthropic", "openai-chat"): True,
    ("gemini", "anthropic"): False,
    ("openai-responses", "openai-responses"): False,
    ("openai-responses", "anthropic"): False,
    ("unified", "openai-chat"): False,
}
"""And whether all memory is counted. Some codecs collect the text of an answer, which the Responses API repeats at the end
of a stream, for example; there only the buffers are counted."""


@pytest.mark.parametrize(("client", "provider"), PAIRS)
def test_streams_that_nobody_reads_hold_little(client: str, provider: str, tmp_path: Path) -> None:
    async def test() -> None:
        async with gateway_in_loop(tmp_path) as served:
            connections = served.made.server.connections

            def all_blocked(count: int) -> bool:
                """A stable state: the client's side takes no more, and nothing is read from the provider."""
                blocked = [one for one in connections if one.write_blocked is not None]
                paused = [one for one in served.upstream_connections if one.is_reading_paused]
                return len(blocked) == len(paused) == count

            scene = served.scene(provider, play_endless_stream(provider))
            request = post(client, scene.model, True)
            await served.ask(request, small=True)  # what is made once is not counted
            await wait_until_true(lambda: all_blocked(1))
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(READERS):
                await served.ask(request, small=True)
            await wait_until_true(lambda: all_blocked(READERS + 1))
            held = (tracemalloc.get_traced_memory()[0] - before) / READERS
            assert held <= MAX_HELD
            assert max(one.transport.get_write_buffer_size() for one in connections) <= MAX_HELD
            assert max(len(b"".join(one.chunks)) for one in served.upstream_connections) <= 2 * STREAM_READ

    if PAIRS[client, provider]:
        tracemalloc.start()
    try:
        run("uvloop", test)
    finally:
        tracemalloc.stop()


# --- what is left of clients that left ---


def cut(protocol: str) -> object:
    def play(line: ScriptedConnection) -> None:
        line.send(STREAM_HEAD)
        line.chunk(*opening_frames(protocol))
        line.wait_for_close()

    return play


PLAYS = {
    "whole, read": whole_answer,
    "stream, read": stream_steps,
    "failure, read": lambda protocol: b"HTTP/1.1 500 X\r\ncontent-length: 0\r\n\r\n",
    "whole, left": lambda protocol: ScriptedConnection.wait_for_close,
    "stream, left": cut,
    "whole, unread": lambda protocol: whole_answer(protocol, "x" * 8_000_000),
    "stream, unread": play_endless_stream,
    "body, left": lambda protocol: b"",
    "queue, left": lambda protocol: ScriptedConnection.wait_for_close,
}


@pytest.mark.parametrize("kind", PLAYS)
@pytest.mark.parametrize(
    ("client", "provider"),
    [
        ("openai-chat", "openai-chat"),
        ("anthropic", "openai-chat"),
        ("openai-responses", "gemini"),
        ("gemini", "anthropic"),
    ],
)
def test_what_a_client_held_goes_with_it_without_the_collector(
    kind: str, client: str, provider: str, tmp_path: Path
) -> None:
    """The garbage collector seldom runs, so connections, requests and tasks must not be parts of reference cycles."""

    async def test() -> None:
        async with gateway_in_loop(tmp_path, "max_requests = 1") as served:
            made = served.made
            if kind == "queue, left":
                served.gateway.admission.in_flight += 1
            await exchange(served, kind, client, provider)  # what is made once is not counted
            gc.collect()
            gc.disable()
            refs = await exchange(served, kind, client, provider)
            assert [ref() for ref in refs] == [None] * len(refs)
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            left = {type(one).__qualname__ for one in gc.garbage if type(one).__module__.startswith("toolwire")}
            assert left == set()
            assert not made.server.connections

    try:
        run("uvloop", test)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


async def exchange(served: GatewayInLoop, kind: str, client: str, provider: str) -> list[weakref.ref[object]]:
    """One exchange to its end. References to what belonged to it."""
    server, admission = served.made.server, served.gateway.admission
    scene = served.scene(provider, PLAYS[kind](provider))
    request = post(client, scene.model, kind.startswith("stream"))
    talk = await served.ask(request[:-5] if kind == "body, left" else request, small="unread" in kind)
    await wait_until_true(lambda: server.tasks)
    refs: list[weakref.ref[object]] = [weakref.ref(one) for one in (*server.connections, *server.tasks)]
    refs += [weakref.ref(one.current_request) for one in server.connections]
    if kind == "queue, left":
        await wait_until_true(lambda: admission.queue)
    elif kind == "whole, left":
        await wait_until_true(scene.asked.copy)
    elif kind == "stream, left":
        await talk.read_until(lambda got: b"data: " in got)
    elif "unread" in kind:
        await wait_until_true(lambda: any(one.write_blocked is not None for one in server.connections))
    elif "read" in kind:
        await talk.read_until(lambda got: b"\r\n\r\n" in got)
        await wait_until_true(lambda: not server.tasks)
    refs += [weakref.ref(one) for one in served.upstream_connections if one.phase is not Phase.IDLE]
    talk.leave()
    served.made._talks.remove(talk)
    await wait_until_true(lambda: not server.connections and not server.tasks)
    await wait_until_true(lambda: all(one.phase is Phase.IDLE for one in served.upstream_connections))
    for _ in range(10):
        await run_loop_once()
    return refs
