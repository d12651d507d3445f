"""The laws of counters, the same for every kind of them: generated histories are compared with a model that is too slow
and too simple to be wrong, and whole processes race for what is left."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import threading
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gateway import redis_server
from gateway.counter_stores import BACKENDS, MAKERS, NEEDS_REDIS, SHARED, open_counters
from gateway.postgres import PASSWORD
from gateway.stores import Clock
from toolwire.gateway.features.limits.counters import (
    KEPT_SECONDS,
    Charge,
    Counters,
    CounterState,
    CounterUse,
    Reserved,
    Settlement,
    find_window,
)
from toolwire.gateway.features.limits.counters_memory import MemoryCounters
from toolwire.gateway.features.limits.reservations import Reservations
from toolwire.gateway.store.store import StoreDown
from waits import PATIENCE

LEASE = 30.0
UNITS = ("minute", "hour", "day", "month", "none")
NAMES = tuple(f"{unit}-{letter}" for unit in UNITS for letter in "ab")


class Model:
    """What counters should do, as one list of everything that happened."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.used: dict[tuple[str, int], int] = {}
        self.holds: dict[str, list[tuple[str, int, int]]] = {}
        self.expires: dict[str, float] = {}

    def count_held(self, name: str, start: int, now: float) -> int:
        live = (hold for id, hold in self.holds.items() if self.expires[id] > now)
        return sum(amount for hold in live for counter, at, amount in hold if (counter, at) == (name, start))

    def reserve(self, id: str, charges: list[Charge]) -> Reserved:
        now, states, refused = self.clock(), [], []
        for index, charge in enumerate(charges):
            start, end = find_window(charge.unit, now)
            taken = self.used.get((charge.counter, start), 0) + self.count_held(charge.counter, start, now)
            states.append(CounterState(taken, end - now))
            if charge.limit >= 0 and taken + charge.amount > charge.limit:
                refused.append(index)
        if not refused:
            windows = [find_window(charge.unit, now)[0] for charge in charges]
            self.holds[id] = [(one.counter, start, one.amount) for one, start in zip(charges, windows, strict=True)]
            self.expires[id] = now + LEASE
        return Reserved(tuple(states), tuple(refused))

    def settle(self, settlements: list[Settlement]) -> None:
        for settlement in settlements:
            for (name, start, _), amount in zip(self.holds.pop(settlement.id, ()), settlement.amounts, strict=False):
                self.used[name, start] = self.used.get((name, start), 0) + amount

    def renew(self, ids: list[str]) -> None:
        for id in ids:
            if id in self.holds:
                self.expires[id] = self.clock() + LEASE

    def list_known(self, ids: Iterable[str]) -> list[str]:
        """The newest first, so that small numbers name something; also what is settled or refused already. Not what was
        given back so long ago that it may be forgotten."""
        now = self.clock()
        return [id for id in reversed(list(ids)) if self.expires.get(id, now) + KEPT_SECONDS > now]

    def list_uses(self) -> list[CounterUse]:
        now, uses = self.clock(), []
        for name in sorted(NAMES):
            unit = name.partition("-")[0]
            start, end = find_window(unit, now)
            use = CounterUse(name, unit, self.used.get((name, start), 0), self.count_held(name, start, now), end - now)
            uses += [use] if use.used or use.held else []
        return uses


CHARGES = st.lists(
    st.builds(
        lambda name, amount, limit: Charge(name, name.partition("-")[0], amount, limit),
        st.sampled_from(NAMES),
        st.integers(0, 40) | st.just(2**50),
        st.integers(-1, 100) | st.just(2**52),
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda charge: charge.counter,
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("reserve"), CHARGES),
        st.tuples(st.just("settle"), st.lists(st.tuples(st.integers(0, 9), st.integers(0, 60)), max_size=4)),
        st.tuples(st.just("renew"), st.lists(st.integers(0, 9), max_size=4)),
        st.tuples(st.just("wait"), st.sampled_from((0.5, 10, LEASE, 59, 3600, 86400 * 27))),
        st.tuples(st.just("sweep"), st.none()),
    ),
    max_size=25,
)


class Own:
    """Counters of which one history has names of its own, so that many can be played on one server."""

    def __init__(self, counters: Counters, prefix: str) -> None:
        self._counters, self._prefix = counters, prefix

    async def reserve(self, id: str, charges: list[Charge]) -> Reserved | StoreDown:
        own = [replace(charge, counter=self._prefix + charge.counter) for charge in charges]
        return await self._counters.reserve(self._prefix + id, own, LEASE)

    async def settle(self, settlements: list[Settlement]) -> StoreDown | None:
        return await self._counters.settle([replace(one, id=self._prefix + one.id) for one in settlements])

    async def renew(self, ids: list[str]) -> StoreDown | None:
        return await self._counters.renew([self._prefix + id for id in ids], LEASE)

    async def sweep(self) -> StoreDown | None:
        return await self._counters.sweep()

    async def list_uses(self) -> list[CounterUse]:
        found = await self._counters.list_counters()
        assert not isinstance(found, StoreDown), found
        own = [use for use in found if use.counter.startswith(self._prefix)]
        return [replace(use, counter=use.counter.removeprefix(self._prefix)) for use in own]


async def play(counters: Own, model: Model, steps: list[tuple[str, Any]]) -> None:
    """Do the same with both, and compare what they say after every step."""
    sizes: dict[str, int] = {}
    try:
        await play_steps(counters, model, steps, sizes)
    finally:  # the next history begins at another time, and nothing of this one may wait for its end
        await counters.settle([Settlement(id, (0,) * size) for id, size in sizes.items()])


async def play_steps(counters: Own, model: Model, steps: list[tuple[str, Any]], sizes: dict[str, int]) -> None:
    for number, (step, what) in enumerate(steps):
        if step == "reserve":
            id = f"r{number}"
            expected = model.reserve(id, what)
            sizes |= {id: len(what)}
            assert round_states(await counters.reserve(id, what)) == round_states(expected)
        elif step == "settle":
            known = model.list_known(sizes)
            chosen = [(known[at], amount) for at, amount in what if at < len(known)]
            settlements = [Settlement(id, (amount,) * sizes[id]) for id, amount in dict(chosen).items()]
            model.settle(settlements)
            assert await counters.settle(settlements) is None
        elif step == "renew":
            known = model.list_known(sizes)
            ids = [known[at] for at in dict.fromkeys(what) if at < len(known)]
            model.renew(ids)
            assert await counters.renew(ids) is None
        elif step == "wait":
            model.clock.time += what
        else:
            assert await counters.sweep() is None
        assert [rounded_use(use) for use in await counters.list_uses()] == [
            rounded_use(use) for use in model.list_uses()
        ]


def round_states(result: Reserved | StoreDown) -> Reserved:
    assert isinstance(result, Reserved), result
    states = tuple(CounterState(state.taken, round(state.opens_after, 3)) for state in result.states)
    return Reserved(states, result.refused)


def rounded_use(use: CounterUse) -> tuple[Any, ...]:
    return use.counter, use.unit, use.used, use.held, round(use.opens_after, 3)


@pytest.mark.parametrize("backend", BACKENDS)
def test_counters_do_what_the_model_does(backend: str, tmp_path: Path) -> None:
    clock, numbers = Clock(), itertools.count()
    with asyncio.Runner() as runner:
        counters = MAKERS[backend](tmp_path, clock)

        @settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
        @given(STEPS, st.sampled_from((1_700_000_000.0, 1_709_251_195.5, 1_798_761_590.25)))
        def check(steps: list[tuple[str, Any]], now: float) -> None:
            clock.time = now
            runner.run(play(Own(counters, f"{next(numbers)}/"), Model(clock), steps))

        check()
        runner.run(counters.close())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("now", "unit", "seconds"),
    [
        ((2026, 2, 28, 23, 59, 59), "month", 1),
        ((2028, 2, 28, 23, 59, 59), "month", 86401),
        ((2026, 12, 31, 0, 0, 0), "month", 86400),
        ((2027, 1, 1, 0, 0, 0), "month", 31 * 86400),
        ((2000, 3, 1, 0, 0, 0), "month", 31 * 86400),
        ((2026, 11, 17, 22, 59, 30), "day", 3630),
        ((2026, 11, 17, 22, 59, 30), "hour", 30),
        ((2026, 11, 17, 22, 59, 30), "minute", 30),
    ],
)
def test_windows_are_those_of_utc(backend: str, tmp_path: Path, now: tuple[int, ...], unit: Any, seconds: int) -> None:
    async def run() -> None:
        clock = Clock(datetime(*now, tzinfo=UTC).timestamp())  # type: ignore[misc,arg-type]
        async with open_counters(backend, tmp_path, clock) as counters:
            reserved = round_states(await counters.reserve("r", [Charge("c", unit, 1)], LEASE))
            assert reserved.states == (CounterState(0, seconds),)

    asyncio.run(run())


@pytest.mark.parametrize("backend", SHARED)
def test_gateways_that_race_never_pass_a_limit(backend: str, tmp_path: Path) -> None:
    """Three gateways, thirty requests each at the same time, for twenty places and for fifty tokens of three each."""

    async def run() -> None:
        clock = Clock()
        async with (
            open_counters(backend, tmp_path, clock) as first,
            open_counters(backend, tmp_path, clock) as second,
            open_counters(backend, tmp_path, clock) as third,
        ):
            charges = [Charge("parallel", "none", 1, 20), Charge("tokens", "day", 3, 50)]
            asked = [
                counters.reserve(f"{name}-{number}", list(reversed(charges)) if number % 2 else charges, LEASE)
                for name, counters in enumerate((first, second, third))
                for number in range(30)
            ]
            answers = [answer for answer in await asyncio.gather(*asked) if isinstance(answer, Reserved)]
            assert len(answers) == 90
            assert sum(not answer.refused for answer in answers) == 50 // 3
            listed = await second.list_counters()
            assert isinstance(listed, list)
            assert [(use.counter, use.used, use.held) for use in listed] == [("parallel", 0, 16), ("tokens", 0, 48)]

    asyncio.run(run())


@pytest.mark.parametrize("backend", SHARED)
def test_more_requests_at_once_than_connections_never_pass_a_limit(backend: str, tmp_path: Path) -> None:
    """They wait for each other. Nobody takes that for a store that is down, which would let them pass."""

    async def run() -> None:
        async with open_counters(backend, tmp_path, Clock()) as counters:
            asked = [counters.reserve(f"r{number}", [Charge("requests", "day", 1, 50)], LEASE) for number in range(300)]
            answers = await asyncio.gather(*asked)
            assert [answer for answer in answers if isinstance(answer, StoreDown)] == []
            assert sum(isinstance(answer, Reserved) and not answer.refused for answer in answers) == 50

    asyncio.run(run())


@NEEDS_REDIS
def test_a_redis_that_takes_no_more_connections_is_asked_at_those_that_are_open() -> None:
    from redis import Redis

    from toolwire.gateway.features.limits.counters_redis import RedisCounters

    async def run() -> None:
        with redis_server.own_server() as server, Redis.from_url(server.url()) as operator:
            operator.config_set("maxclients", 2)  # one of them is the operator's
            counters = RedisCounters(server.url(), clock=Clock())
            asked = [counters.reserve(f"r{number}", [Charge("requests", "day", 1, 50)], LEASE) for number in range(300)]
            answers = await asyncio.gather(*asked)
            assert sum(isinstance(answer, Reserved) and not answer.refused for answer in answers) == 50
            assert sum(isinstance(answer, StoreDown) for answer in answers) == 0
            await counters.close()

    asyncio.run(run())


@NEEDS_REDIS
def test_a_redis_that_has_forgotten_is_told_once_what_was_used(tmp_path: Path) -> None:
    """However many gateways find out at the same time. A window that is there is not asked for."""
    asked: list[tuple[int, int]] = []

    async def find_used(start: int, end: int) -> int | StoreDown:
        asked.append((start, end))
        await asyncio.sleep(0)
        return 40

    async def run() -> None:
        clock = Clock()
        charges = [Charge("requests", "minute", 1, 1000), Charge("tokens", "day", 1, 50, find_used)]
        async with open_counters("redis", tmp_path, clock) as first, open_counters("redis", tmp_path, clock) as second:
            reserving = [one.reserve(f"{n}-{id(one)}", charges, LEASE) for n in range(30) for one in (first, second)]
            answers = await asyncio.gather(*reserving)
            assert sum(isinstance(answer, Reserved) and not answer.refused for answer in answers) == 10
            assert set(asked) == {find_window("day", clock())}
            asked.clear()
            result = await second.reserve("last", charges, LEASE)
            assert isinstance(result, Reserved)
            assert (result.states[1].taken, result.refused, asked) == (50, (1,), [])
            clock.time += 86400
            result = await second.reserve("tomorrow", charges, LEASE)
            assert isinstance(result, Reserved)
            assert (result.states[1].taken, result.refused, asked) == (40, (), [find_window("day", clock())])

    asyncio.run(run())


@NEEDS_REDIS
def test_a_redis_that_has_forgotten_while_the_ledger_is_down_is_down_too(tmp_path: Path) -> None:
    async def find_used(start: int, end: int) -> int | StoreDown:
        return StoreDown("the ledger is away")

    async def run() -> None:
        async with open_counters("redis", tmp_path, Clock()) as counters:
            charge = Charge("tokens", "day", 1, 50, find_used)
            assert await counters.reserve("r", [charge], LEASE) == StoreDown("the ledger is away")

    asyncio.run(run())


class LeapingLoop(asyncio.SelectorEventLoop):
    """A loop whose clock can be put forward, so that no deadline is a matter of the machine's speed."""

    leapt = 0.0

    def time(self) -> float:
        return super().time() + self.leapt


def let_time_pass() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, LeapingLoop)
    loop.leapt += PATIENCE


def run_leaping(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=LeapingLoop) as runner:
        runner.run(work)


@NEEDS_REDIS
@pytest.mark.parametrize("answers_others", [True, False])
def test_a_redis_that_answers_others_is_busy_and_not_down(
    answers_others: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from toolwire.gateway.features.limits import counters_redis

    class SlowRedis(counters_redis.RedisCounters):
        async def _send_batch(self, batch: Sequence[counters_redis._Call], loads_scripts: bool = False) -> list[Any]:
            if any("slow" in call.arguments for call in batch):
                is_sent.set()
                await asyncio.Event().wait()
            return await super()._send_batch(batch, loads_scripts)

    async def run() -> None:
        counters = SlowRedis(redis_server.fresh_url(str(tmp_path)), clock=Clock())
        slow = asyncio.create_task(counters.reserve("slow", [Charge("requests", "day", 1, 50)], LEASE))
        await is_sent.wait()
        if answers_others:
            assert isinstance(await counters.reserve("quick", [Charge("requests", "day", 1, 50)], LEASE), Reserved)
        let_time_pass()
        down = await slow
        assert isinstance(down, StoreDown)
        assert down.is_busy is answers_others
        await counters.close()

    is_sent = asyncio.Event()
    monkeypatch.setattr(counters_redis, "MAX_WAIT", PATIENCE)
    monkeypatch.setattr(counters_redis, "TIMEOUT", PATIENCE)
    run_leaping(run())


@NEEDS_REDIS
def test_what_nobody_waits_for_is_no_answer_of_a_redis(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It would make a server that hangs a busy one."""
    from toolwire.gateway.features.limits import counters_redis

    class HangingRedis(counters_redis.RedisCounters):
        async def _send_batch(self, batch: Sequence[counters_redis._Call], loads_scripts: bool = False) -> list[Any]:
            if batch:
                await asyncio.Event().wait()
            return []

    async def run() -> None:
        counters = HangingRedis(redis_server.fresh_url(str(tmp_path)), clock=Clock())
        tasks = []
        for id in ("slow", "left"):
            tasks.append(asyncio.create_task(counters.reserve(id, [Charge("requests", "day", 1, 50)], LEASE)))
            await asyncio.sleep(0)
            if id == "left":
                counters._queue[-1].answer.cancel()  # as if its client had gone before its turn
            await asyncio.sleep(0)
        let_time_pass()
        down = await tasks[0]
        assert isinstance(down, StoreDown)
        assert not down.is_busy
        await asyncio.wait(tasks)
        await counters.close()

    monkeypatch.setattr(counters_redis, "MAX_WAIT", PATIENCE)
    run_leaping(run())


@NEEDS_REDIS
def test_a_call_that_comes_as_the_last_sender_ends_is_sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from toolwire.gateway.features.limits import counters_redis

    class Redis(counters_redis.RedisCounters):
        async def _send_batch(self, batch: Sequence[counters_redis._Call], loads_scripts: bool = False) -> list[Any]:
            answers = await super()._send_batch(batch, loads_scripts)
            if not late and not loads_scripts:
                charge = Charge("requests", "day", 1, 50)
                late.append(asyncio.create_task(self.reserve("late", [charge], LEASE)))
            return answers

    async def run() -> None:
        counters = Redis(redis_server.fresh_url(str(tmp_path)), clock=Clock())
        assert isinstance(await counters.reserve("first", [Charge("requests", "day", 1, 50)], LEASE), Reserved)
        await asyncio.sleep(0)
        assert late[0].done() or counters._senders
        assert isinstance(await late[0], Reserved)
        await counters.close()

    late: list[asyncio.Task[Any]] = []
    monkeypatch.setattr(counters_redis, "MAX_CONNECTIONS", 1)
    asyncio.run(run())


@pytest.mark.parametrize("answers_others", [True, False])
def test_a_postgres_that_answers_others_is_busy_and_not_down(answers_others: bool, tmp_path: Path) -> None:
    from gateway.postgres import schema_of, server
    from toolwire.gateway.store.postgres_pool import POOL_SIZE, PostgresConnection, PostgresPool

    async def run() -> None:
        pool = PostgresPool(server().create_schema(schema_of(tmp_path)), deadline=PATIENCE)
        release, held = asyncio.Event(), asyncio.Semaphore(0)

        async def hold(connection: PostgresConnection) -> None:
            held.release()
            await release.wait()

        async def wait(connection: PostgresConnection) -> None:
            await asyncio.Event().wait()

        work = [pool.run_work(hold, is_idempotent=True, deadline=3 * PATIENCE) for _ in range(POOL_SIZE)]
        holders = [asyncio.create_task(one) for one in work]
        for _ in holders:
            await held.acquire()
        last = asyncio.create_task(pool.run_work(wait, is_idempotent=True))
        await asyncio.sleep(0)
        if answers_others:
            release.set()
            await asyncio.wait(holders)
        let_time_pass()
        down = await last
        assert isinstance(down, StoreDown)
        assert down.is_busy is answers_others
        release.set()
        await asyncio.wait(holders)
        await pool.close()

    run_leaping(run())


@pytest.mark.parametrize("has_others", [True, False])
def test_a_postgres_that_takes_no_more_connections_is_busy_and_not_down(
    has_others: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import asyncpg  # type: ignore[import-untyped]

    from gateway.postgres import schema_of, server
    from toolwire.gateway.store.postgres_pool import PostgresConnection, PostgresPool

    async def refuse(*_: object, **__: object) -> None:
        raise asyncpg.TooManyConnectionsError("sorry, too many clients already")

    async def run() -> None:
        pool = PostgresPool(server().create_schema(schema_of(tmp_path)), deadline=PATIENCE)
        release, held = asyncio.Event(), asyncio.Event()

        async def hold(connection: PostgresConnection) -> None:
            held.set()
            await release.wait()

        holder = asyncio.create_task(pool.run_work(hold, is_idempotent=True))
        if has_others:
            await held.wait()
        monkeypatch.setattr(asyncpg, "connect", refuse)
        down = await pool.run_work(lambda connection: connection.fetchval("SELECT 1"), is_idempotent=True)
        assert isinstance(down, StoreDown)
        assert "too many connections" in down.reason
        assert down.is_busy is has_others
        release.set()
        await asyncio.wait([holder])
        await pool.close()

    asyncio.run(run())


@pytest.mark.parametrize("does_others", [True, False])
def test_a_file_that_is_used_by_others_is_busy_and_not_down(
    does_others: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from toolwire.gateway.store import sqlite_worker

    async def run() -> None:
        begun, release_first, release_second = threading.Event(), threading.Event(), threading.Event()
        worker = sqlite_worker.SqliteWorker(
            tmp_path / "store.db", Clock(), sqlite_worker.PRAGMAS, sqlite_worker.MIGRATIONS
        )

        def hold(_file: sqlite3.Connection, _now: float) -> None:
            begun.set()
            release_first.wait()

        first = asyncio.create_task(worker.run_work(hold))
        await asyncio.to_thread(begun.wait)
        second = asyncio.create_task(worker.run_work(lambda file, now: release_second.wait()))
        await asyncio.sleep(0)
        if does_others:
            release_first.set()
            await first
        let_time_pass()
        try:
            down = await second
            assert isinstance(down, StoreDown)
            assert down.is_busy is does_others
        finally:
            release_first.set()
            release_second.set()
            await asyncio.wait([first])
            await worker.close()

    monkeypatch.setattr(sqlite_worker, "DEADLINE", PATIENCE)
    run_leaping(run())


def test_a_file_that_another_process_has_locked_is_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from toolwire.gateway.store import sqlite_worker

    async def run() -> None:
        async with open_counters("sqlite", tmp_path, Clock()) as counters:
            assert isinstance(await counters.reserve("r", [Charge("requests", "day", 1, 50)], LEASE), Reserved)
            with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                down = await counters.reserve("s", [Charge("requests", "day", 1, 50)], LEASE)
                assert isinstance(down, StoreDown)
                assert down.is_busy

    monkeypatch.setattr(sqlite_worker, "DEADLINE", PATIENCE)
    monkeypatch.setattr(sqlite_worker, "OPEN_DEADLINE", 0.1)
    asyncio.run(run())


@pytest.mark.parametrize("backend", SHARED)
def test_a_settlement_that_is_sent_twice_at_the_same_time_counts_once(backend: str, tmp_path: Path) -> None:
    async def run() -> None:
        clock = Clock()
        async with open_counters(backend, tmp_path, clock) as first, open_counters(backend, tmp_path, clock) as second:
            await first.reserve("r", [Charge("tokens", "day", 3, 50), Charge("parallel", "none", 1, 1)], LEASE)
            settlement = Settlement("r", (7, 0))
            assert await asyncio.gather(*(one.settle([settlement]) for one in (first, second) * 5)) == [None] * 10
            assert await second.list_counters() == [
                CounterUse("tokens", "day", 7, 0, find_window("day", clock())[1] - clock())
            ]

    asyncio.run(run())


@pytest.mark.parametrize("backend", ["file", *SHARED])
def test_what_was_used_outlives_the_process(backend: str, tmp_path: Path) -> None:
    async def run() -> None:
        clock = Clock()
        charges = [Charge("tokens", "day", 30, 100), Charge("parallel", "none", 1, 5)]
        async with open_counters(backend, tmp_path, clock) as counters:
            await counters.reserve("r", charges, LEASE)
            await counters.reserve("lost", charges, LEASE)
            await counters.settle([Settlement("r", (71, 0))])
        clock.time += LEASE  # of what was running
        async with open_counters(backend, tmp_path, clock) as counters:
            again = await counters.reserve("s", charges, LEASE)
            assert isinstance(again, Reserved)
            assert [state.taken for state in again.states] == [71, 0]
            assert again.refused == (0,)

    asyncio.run(run())


def test_two_processes_with_one_file_see_each_other_when_they_write(tmp_path: Path) -> None:
    async def run() -> None:
        clock = Clock()
        async with open_counters("file", tmp_path, clock) as first, open_counters("file", tmp_path, clock) as second:
            for counters, amount in ((first, 10), (second, 20), (first, 5)):
                await counters.reserve("r", [Charge("tokens", "day", 1)], LEASE)
                await counters.settle([Settlement("r", (amount,))])
                await counters.write_task  # type: ignore[attr-defined]
            assert [use.used for use in await first.list_counters()] == [35]  # type: ignore[union-attr]

    asyncio.run(run())


def test_a_file_that_is_removed_gives_no_budget_back(tmp_path: Path) -> None:
    async def run() -> None:
        clock = Clock()
        async with open_counters("file", tmp_path, clock) as counters:
            for number, amount in enumerate((60, 30)):
                await counters.reserve(f"r{number}", [Charge("tokens", "day", 1, 100)], LEASE)
                await counters.settle([Settlement(f"r{number}", (amount,))])
                await counters.write_task  # type: ignore[attr-defined]
                for path in tmp_path.iterdir():
                    path.unlink()
            result = await counters.reserve("s", [Charge("tokens", "day", 20, 100)], LEASE)
            assert isinstance(result, Reserved)
            assert (result.states[0].taken, result.refused) == (90, (0,))
            await counters.reserve("t", [Charge("tokens", "day", 1, 100)], LEASE)
            await counters.settle([Settlement("t", (5,))])
            await counters.write_task  # type: ignore[attr-defined]
        async with open_counters("file", tmp_path, clock) as counters:  # after a restart
            result = await counters.reserve("u", [Charge("tokens", "day", 1, 100)], LEASE)
            assert isinstance(result, Reserved)
            assert result.states[0].taken == 95

    asyncio.run(run())


@pytest.mark.parametrize("backend", ["memory", "file"])
def test_counters_of_which_nothing_was_used_are_forgotten(backend: str, tmp_path: Path) -> None:
    """Clients choose the names of models: one that does not exist must not stay in memory for a month."""

    async def run() -> None:
        async with open_counters(backend, tmp_path, Clock()) as counters:
            for number, amount in enumerate((0, 0, 7)):
                await counters.reserve(f"r{number}", [Charge(f"tokens/{number}", "month", 9, 9)], LEASE)
                await counters.settle([Settlement(f"r{number}", (amount,))])
            await counters.reserve("running", [Charge("tokens/3", "month", 9, 9)], LEASE)
            assert await counters.sweep() is None
            assert sorted(counters.cells) == ["tokens/2", "tokens/3"]  # type: ignore[attr-defined]
            for number, refused in enumerate([(), (), (0,), (0,)]):
                result = await counters.reserve(f"s{number}", [Charge(f"tokens/{number}", "month", 9, 9)], LEASE)
                assert isinstance(result, Reserved)
                assert result.refused == refused

    asyncio.run(run())


def test_without_its_file_the_first_reservation_fails_and_later_ones_do_not(tmp_path: Path) -> None:
    """What was used before is not known. Once it is, the memory knows all that this process uses."""

    async def run() -> None:
        clock = Clock()
        (tmp_path / "store.db").mkdir()
        async with open_counters("file", tmp_path, clock) as counters:
            assert isinstance(await counters.reserve("r", [Charge("tokens", "day", 1)], LEASE), StoreDown)
            (tmp_path / "store.db").rmdir()
            clock.time += 2
            assert isinstance(await counters.reserve("r", [Charge("tokens", "day", 1)], LEASE), Reserved)

    asyncio.run(run())


@NEEDS_REDIS
def test_a_redis_that_is_down_is_an_answer_without_its_password(tmp_path: Path) -> None:
    from toolwire.gateway.features.limits.counters_redis import RedisCounters

    async def run() -> None:
        with redis_server.own_server() as server:
            counters = RedisCounters(server.url())
            assert isinstance(await counters.reserve("r", [Charge("tokens", "day", 1)], LEASE), Reserved)
            server.stop()
            for _ in range(2):
                down = await counters.reserve("s", [Charge("tokens", "day", 1)], LEASE)
                assert isinstance(down, StoreDown)
                assert str(server.port) in down.reason
                assert PASSWORD not in down.reason
            server.start()
            counters._retry_at = 0.0
            assert isinstance(await counters.reserve("t", [Charge("tokens", "day", 1)], LEASE), Reserved)
            await counters.close()

    asyncio.run(run())


def test_a_bug_does_not_end_the_renewals_for_good() -> None:
    class Faulty(MemoryCounters):
        renewals = 0

        async def renew(self, ids: Sequence[str], lease: float) -> StoreDown | None:
            self.renewals += 1
            renewed.set()
            if self.renewals == 1:
                raise ZeroDivisionError("a bug")
            return await super().renew(ids, lease)

    async def run() -> None:
        nonlocal renewed
        renewed = asyncio.Event()
        reports: list[tuple[str, str]] = []
        counters = Faulty()
        reservations = Reservations(counters, 0.03, lambda kind, what: reports.append((kind, what)))
        for _ in range(2):
            renewed.clear()
            assert not isinstance(await reservations.reserve([Charge("parallel", "none", 1)]), StoreDown)
            async with asyncio.timeout(PATIENCE):
                await renewed.wait()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert reports == [("counters_unavailable", "internal error: ZeroDivisionError: a bug")]
        assert counters.renewals >= 2
        await reservations.close()

    renewed: asyncio.Event
    asyncio.run(run())


def test_a_client_that_leaves_while_it_reserves_gives_all_back() -> None:
    """The counters may have reserved it already, and nobody would settle it: it would be held until its lease ends."""

    class SlowCounters(MemoryCounters):
        async def reserve(self, id: str, charges: Sequence[Charge], lease: float) -> Reserved | StoreDown:
            result = await super().reserve(id, charges, lease)
            reserved.set()
            await asyncio.Event().wait()
            return result

    async def run() -> None:
        counters = SlowCounters(clock=Clock())
        reservations = Reservations(counters, LEASE)
        task = asyncio.create_task(reservations.reserve([Charge("p", "none", 1, 1), Charge("t", "day", 5, 9)]))
        await reserved.wait()
        assert [use.held for use in await counters.list_counters()] == [1, 5]  # type: ignore[union-attr]
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert await counters.list_counters() == []
        await reservations.close()

    reserved = asyncio.Event()
    asyncio.run(run())
