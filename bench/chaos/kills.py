"""Three gateways with one PostgreSQL behind a balancer, of which one is killed while it streams.

The gateways, the database and the balancer are those of the tests, so `tests` has to be on the path.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from bench.chaos.clients import Exchange, judge, request_bytes, send
from gateway.haproxy import IS_HERE, Haproxy  # type: ignore[import-not-found]
from gateway.postgres import own_server  # type: ignore[import-not-found]
from gateway.replicas import start_replicas  # type: ignore[import-not-found]


async def kill_gateways(configuration: str, plan: Callable[[], list[Exchange]]) -> tuple[Counter[str], str]:
    """The verdicts of streams during a kill, and of as many after it; and which balancer was used."""
    verdicts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder, own_server() as database:
        store = f'[store]\nurl = "{database.create_schema("chaos")}"\n'
        with start_replicas(Path(folder), f"{configuration}\n{store}") as replicas:
            if IS_HERE:
                replicas.balancer = Haproxy()
                replicas.update_balancers()
            port = replicas.balancer.port
            during = plan()
            running = [asyncio.create_task(send(port, request_bytes(exchange))) for exchange in during]
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            assert done
            await asyncio.to_thread(replicas.kill, replicas.members[0])
            for exchange, task in zip(during, running, strict=True):
                verdicts[f"during the kill: {judge(exchange, await task)}"] += 1
            await asyncio.to_thread(replicas.restore_size)
            after = plan()
            for exchange, response in zip(
                after, await asyncio.gather(*(send(port, request_bytes(exchange)) for exchange in after)), strict=True
            ):
                verdicts[f"after it: {judge(exchange, response)}"] += 1
            if IS_HERE:
                replicas.balancer.close()
    return verdicts, "HAProxy" if IS_HERE else "the tests' own (HAProxy was not installed)"
