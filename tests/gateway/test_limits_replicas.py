"""Limits of several gateways, each a process of its own, with one PostgreSQL or one Redis behind them: what they may use
together, a gateway that is killed, a store that goes away and comes back, and the workers of one gateway."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway import postgres, redis_server
from gateway.counter_stores import NEEDS_REDIS
from gateway.process import Process, close_process
from gateway.raw_exchange import (
    RawAnswer,
    RawConnection,
    RawProvider,
    ScriptedConnection,
    ask,
    configuration,
    path_of,
    play_script,
    request_of,
)
from gateway.test_limits import REACHED, huge_use
from toolwire.gateway.features.limits.counters import Counters
from toolwire.gateway.features.limits.counters_sqlite import SqliteCounters
from toolwire.gateway.store.store import StoreDown
from toolwire_conformance.peers.peer import encode_json
from waits import PATIENCE, wait_until

LEASE = 60
SHORT_LEASE = 4
"""Seconds after which a gateway that was killed gives back what its requests held."""


class CounterServer:
    """A server with counters, which gateways share and a test can look into."""

    def __init__(self, url: str, make: Callable[[], Counters], lease_end: Callable[[], float]) -> None:
        self.url, self._make, self.lease_end = url, make, lease_end

    def use(self) -> dict[str, tuple[int, int]]:
        """What is used and held of each counter."""

        async def read() -> dict[str, tuple[int, int]]:
            counters = self._make()
            found = await counters.list_counters()
            await counters.close()
            assert not isinstance(found, StoreDown), found
            return {use.counter: (use.used, use.held) for use in found}

        return asyncio.run(read())


def of_postgres(server: postgres.Server, schema: str) -> CounterServer:
    from toolwire.gateway.features.limits.counters_postgres import PostgresCounters

    url = server.create_schema(schema)

    def lease_end() -> float:
        (row,) = server.sql(f"SELECT coalesce(min(expires), 0) FROM {schema}.toolwire_reservations")
        return float(row[0])

    return CounterServer(url, lambda: PostgresCounters(url), lease_end)


def of_redis(server: redis_server.RedisServer, database: int) -> CounterServer:
    from redis import Redis

    from toolwire.gateway.features.limits.counters_redis import RedisCounters

    url = server.url(database)

    def lease_end() -> float:
        with Redis.from_url(url) as client:
            ends: Any = client.zrange("{toolwire}:leases", 0, 0, withscores=True)
        return float(ends[0][1]) if ends else 0.0

    return CounterServer(url, lambda: RedisCounters(url), lease_end)


@pytest.fixture(params=["postgres", pytest.param("redis", marks=NEEDS_REDIS)], name="shared")
def share_counters(request: pytest.FixtureRequest, tmp_path: Path) -> CounterServer:
    if request.param == "postgres":
        return of_postgres(postgres.server(), postgres.schema_of(tmp_path))
    return of_redis(redis_server.server(), int(redis_server.fresh_url(str(tmp_path)).rpartition("/")[2]))


class Fleet:
    """Gateways that share their counters, and the provider behind them."""

    def __init__(self, folder: Path, wire: RawProvider) -> None:
        self.folder, self.wire = folder, wire
        self.processes: list[Process] = []

    def start(self) -> Process:
        self.processes.append(Process(self.folder))
        return self.processes[-1]

    def kill(self, process: Process) -> None:
        process.signal(signal.SIGKILL)
        close_process(process)
        self.processes.remove(process)

    def stop(self, process: Process) -> None:
        """As an operator stops it."""
        process.signal(signal.SIGTERM)
        assert process.wait_for_exit() == 0
        close_process(process)
        self.processes.remove(process)

    def close(self) -> None:
        for process in [*self.processes]:
            self.kill(process)


@contextmanager
def fleet(
    folder: Path, limits: str, counters: str = "", size: int = 3, server: str = "", lease: int = LEASE
) -> Iterator[Fleet]:
    wire = RawProvider()
    where = f'[counters]\nurl = "{counters}"\nlease = {lease}\n[store]\nurl = "none"\n' if counters else ""
    (folder / "toolwire.toml").write_text(configuration(wire, server, where + limits))
    with closing(wire):
        made = Fleet(folder, wire)
        try:
            for _ in range(size):
                made.start()
            yield made
        finally:
            made.close()


def send(process: Process, model: str, **more: Any) -> RawAnswer:
    body = encode_json(request_of("openai-chat", model, False, **more)).encode()
    return ask(process.port, "POST", path_of("openai-chat", model, False), body)


def open_request(process: Process, model: str, **more: Any) -> RawConnection:
    line = RawConnection(process.port)
    body = encode_json(request_of("openai-chat", model, False, **more)).encode()
    line.send("POST", path_of("openai-chat", model, False), body)
    return line


def answer_after_release(peer: ScriptedConnection) -> None:
    peer.wait_for_release()
    peer.send(play_script("openai-chat", False))


def test_together_they_never_use_more_than_a_limit_and_count_nothing_twice(
    shared: CounterServer, tmp_path: Path
) -> None:
    limit = '[[limits]]\nname = "x"\ntokens_per_month = 20000\n'
    with fleet(tmp_path, limit, shared.url) as three, ThreadPoolExecutor(12) as threads:
        scene = three.wire.scene("openai-chat", huge_use("openai-chat", 400, 100))
        asked = [
            threads.submit(send, process, scene.model, max_tokens=460) for _ in range(20) for process in three.processes
        ]
        statuses = [one.result().status for one in asked]
        assert set(statuses) - {200} <= {*REACHED["openai-chat"]}
        wait_until(lambda: shared.use()["x/tokens_per_month"][1] == 0)
        served = statuses.count(200)
        assert len(scene.asked) == served
        assert shared.use() == {"x/tokens_per_month": (500 * served, 0)}
        # Each reserves about 500 tokens, so the last ones come close to the limit.
        assert 500 * served <= 20000
        while send(three.processes[0], scene.model, max_tokens=460).status == 200:
            wait_until(lambda: shared.use()["x/tokens_per_month"][1] == 0)
        assert 19000 < shared.use()["x/tokens_per_month"][0] <= 20000


def test_parallel_requests_of_all_together(shared: CounterServer, tmp_path: Path) -> None:
    limit = '[[limits]]\nname = "x"\nparallel_requests = 4\n'
    with fleet(tmp_path, limit, shared.url) as three, ThreadPoolExecutor(15) as threads:
        scene = three.wire.scene("openai-chat", answer_after_release)
        asked = [threads.submit(send, process, scene.model) for _ in range(5) for process in three.processes]
        wait_until(lambda: sum(one.done() for one in asked) == 11)
        assert shared.use() == {"x/parallel_requests": (0, 4)}
        scene.go.set()
        assert sorted(one.result().status for one in asked) == [200] * 4 + [429] * 11
        wait_until(lambda: shared.use() == {})


def test_a_gateway_that_is_killed_gives_back_what_it_held(shared: CounterServer, tmp_path: Path) -> None:
    limit = '[[limits]]\nname = "x"\nparallel_requests = 2\ntokens_per_month = 100000\n'
    with fleet(tmp_path, limit, shared.url, lease=SHORT_LEASE) as three, ExitStack() as lines:
        first, second, third = three.processes
        quick = three.wire.scene("openai-chat", huge_use("openai-chat", 400, 100))
        slow = three.wire.scene("openai-chat", answer_after_release)
        assert send(first, quick.model).status == 200
        for _ in range(2):
            lines.callback(open_request(first, slow.model).disconnect)
        wait_until(lambda: len(slow.asked) == 2)
        assert send(second, quick.model).status == 429
        # They last longer than a lease, because they are renewed while they run.
        start = shared.lease_end()
        wait_until(lambda: shared.lease_end() > start + SHORT_LEASE)
        assert send(second, quick.model).status == 429
        assert shared.use()["x/parallel_requests"] == (0, 2)
        three.kill(first)
        wait_until(lambda: send(second, quick.model).status == 200)
        assert send(third, quick.model).status in (200, 429)
        wait_until(lambda: "x/parallel_requests" not in shared.use())
        used, reserved = shared.use()["x/tokens_per_month"]
        assert (used % 500, reserved) == (0, 0)
        assert used == 500 * len(quick.asked)
        slow.go.set()


@pytest.mark.parametrize("kind", ["postgres", pytest.param("redis", marks=NEEDS_REDIS)])
def test_a_store_that_is_down_closes_dollars_and_opens_the_rest(kind: str, tmp_path: Path) -> None:
    """What was running when it went away is counted once it is back."""
    prices = '[models."priced-*"]\nprovider = "chat"\n[models."priced-*".facts.prices]\ninput = 10\noutput = 20\n'
    limits = '[[limits]]\nname = "rate"\nmodel = "free-*"\ntokens_per_month = 1000000\n'
    limits += f'[[limits]]\nname = "money"\nmodel = "priced-*"\ndollars_per_month = 100\n{prices}'

    def slow(peer: ScriptedConnection) -> None:
        peer.wait_for_release()
        peer.send(huge_use("openai-chat", 400, 100))

    with ExitStack() as stack:
        server: Any
        if kind == "postgres":
            server = stack.enter_context(postgres.own_server())
            shared = of_postgres(server, "down")
        else:
            server = stack.enter_context(redis_server.own_server())
            shared = of_redis(server, 0)
        one = stack.enter_context(fleet(tmp_path, limits, shared.url, size=1))
        (process,) = one.processes
        free = one.wire.scene("openai-chat", slow, huge_use("openai-chat", 1, 1), model="free")
        priced = one.wire.scene("openai-chat", play_script("openai-chat", False), model="priced")
        running = open_request(process, free.model)
        stack.callback(running.disconnect)
        assert free.reached.wait(PATIENCE)
        server.stop()
        got = send(process, priced.name)
        assert got.status == 503
        assert "the limit `money` cannot be checked" in got.json()["error"]["message"]
        assert got.headers["retry-after"] == "2"
        assert not priced.asked
        assert send(process, free.model).status == 200
        free.go.set()
        assert running.start().status == 200
        assert "counters_unavailable" in process.read_log_until("counters_unavailable")
        server.start()
        wait_until(lambda: send(process, priced.name).status == 200)
        assert "counters_available" in process.read_log_until("counters_available")
        wait_until(lambda: shared.use().get("rate/tokens_per_month") == (500, 0))


def test_a_single_gateway_that_is_killed_knows_what_it_has_used(tmp_path: Path) -> None:
    """It counts in memory, and writes to its store in the background."""
    file = tmp_path / "state" / "store.db"
    limits = (
        f'[store]\nurl = "sqlite://{file}"\n[[limits]]\nname = "x"\nparallel_requests = 1\ntokens_per_month = 1200\n'
    )
    with fleet(tmp_path, limits, size=1) as one, ExitStack() as lines:
        (process,) = one.processes
        shared = CounterServer("", lambda: SqliteCounters(file), lambda: 0.0)
        scene = one.wire.scene(
            "openai-chat", huge_use("openai-chat", 900, 100), answer_after_release, huge_use("openai-chat", 1, 1)
        )
        assert send(process, scene.model, max_tokens=100).status == 200
        wait_until(lambda: shared.use() == {"x/tokens_per_month": (1000, 0)})
        lines.callback(open_request(process, scene.model, max_tokens=10).disconnect)
        wait_until(lambda: len(scene.asked) == 2)
        one.kill(process)
        again = one.start()
        assert send(again, scene.model, max_tokens=400).status in REACHED["openai-chat"]  # tokens
        assert send(again, scene.model, max_tokens=10).status == 200  # what was running is given back
        scene.go.set()


def test_the_workers_of_one_gateway_share_their_limits(tmp_path: Path) -> None:
    file = tmp_path / "state" / "store.db"
    limits = (
        f'[store]\nurl = "sqlite://{file}"\n[[limits]]\nname = "x"\nparallel_requests = 4\ntokens_per_month = 100000\n'
    )
    with fleet(tmp_path, limits, size=1, server="workers = 3") as one, ThreadPoolExecutor(15) as threads:
        (process,) = one.processes
        scene = one.wire.scene("openai-chat", answer_after_release)
        asked = [threads.submit(send, process, scene.model) for _ in range(15)]
        wait_until(lambda: sum(got.done() for got in asked) == 11)
        scene.go.set()
        assert sorted(got.result().status for got in asked) == [200] * 4 + [429] * 11
        shared = CounterServer("", lambda: SqliteCounters(file), lambda: 0.0)
        wait_until(lambda: [held for _, held in shared.use().values()] == [0])
        one.stop(process)
        before = shared.use()
        again = one.start()
        scene.plays[:] = [huge_use("openai-chat", 400, 100)]
        assert send(again, scene.model).status == 200
        one.stop(again)  # a killed supervisor would leave its workers behind
        wait_until(lambda: shared.use() == {"x/tokens_per_month": (before["x/tokens_per_month"][0] + 500, 0)})
