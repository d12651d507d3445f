"""A Redis whose scripts answer with something else: a proxy, or a server of another kind. The counters are down then."""

from __future__ import annotations

import asyncio

import pytest

from toolwire.gateway.features.limits.counters import Charge
from toolwire.gateway.store.store import StoreDown

ANSWERS = {
    "a number": b":1\r\n",
    "a text": b"$3\r\nabc\r\n",
    "nothing": b"$-1\r\n",
    "a short list": b"*1\r\n:1\r\n",
    "too few counters": b"*3\r\n*0\r\n*0\r\n*0\r\n",
    "a counter below zero": b"*3\r\n*2\r\n:-1\r\n$1\r\n5\r\n*0\r\n*0\r\n",
    "a counter that is no number": b"*3\r\n*2\r\n$1\r\nx\r\n$1\r\n5\r\n*0\r\n*0\r\n",
    "a refusal of nothing": b"*3\r\n*2\r\n:1\r\n$1\r\n5\r\n*1\r\n:7\r\n*0\r\n",
    "a window of nothing": b"*3\r\n*0\r\n*0\r\n*1\r\n*4\r\n:9\r\n:0\r\n:1\r\n$1\r\nw\r\n",
}


async def _answer_scripts(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: bytes) -> None:
    """One connection: every script has this answer, everything else is fine."""
    while line := await reader.readline():
        words = []
        for _ in range(int(line[1:])):
            size = int((await reader.readline())[1:])
            words.append(await reader.readexactly(size + 2))
        writer.write(answer if words[0].upper().startswith(b"EVAL") else b"+OK\r\n")
    writer.close()


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_a_server_that_answers_with_something_else_is_down(answer: bytes) -> None:
    from toolwire.gateway.features.limits.counters_redis import RedisCounters

    async def run() -> None:
        server = await asyncio.start_server(lambda *streams: _answer_scripts(*streams, answer), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        counters = RedisCounters(f"redis://127.0.0.1:{port}/0?protocol=2")
        found = await counters.reserve("first", [Charge("requests", "day", 1, 50)], 30.0)
        await counters.close()
        server.close()
        await server.wait_closed()
        assert isinstance(found, StoreDown)
        assert "answers a script" in found.reason

    asyncio.run(run())
