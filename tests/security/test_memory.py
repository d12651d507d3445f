"""What clients and providers can make the gateway hold is bounded, and goes with them."""

from __future__ import annotations

import re
import tracemalloc
from pathlib import Path

import pytest

from gateway.one_loop import gateway_in_loop, post
from gateway.raw_exchange import STREAM_HEAD, ScriptedConnection, begun
from gateway.raw_server import become, run
from toolwire.gateway.upstream.connection import STREAM_READ

READERS = 12
MAX_HELD = 150_000
"""Bytes of memory for a stream that nobody reads: what was read of it, what was written, and the exchange itself."""


def endless(protocol: str) -> object:
    """A stream without end, as fast as it is read."""
    *start, last = begun(protocol)
    last = re.sub(rb'"Hel[^"]*"', b'"' + b"x" * 1000 + b'"', last)

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
                paused = [one for one in served.upstream_connections if one._is_reading_paused]
                return len(blocked) == len(paused) == count

            scene = served.scene(provider, endless(provider))
            request = post(client, scene.model, True)
            await served.ask(request, small=True)  # what is made once is not counted
            await become(lambda: all_blocked(1))
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(READERS):
                await served.ask(request, small=True)
            await become(lambda: all_blocked(READERS + 1))
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
