"""The ledger of costs: rows and their sums by hour agree, in every store, however they are written."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from gateway.exchange_records import make_record
from gateway.stores import BACKENDS, open_store
from toolwire.core.ir import Usage
from toolwire.gateway.features.costs import ledger as ledger_module
from toolwire.gateway.features.costs.ledger import (
    GROUPS,
    NUMBERS,
    LedgerQuery,
    LedgerRow,
    LedgerTables,
    LedgerWriter,
    UsageSum,
    fold_months,
    make_row,
)
from toolwire.gateway.features.costs.ledger_tables import open_ledger
from toolwire.gateway.models.amounts import format_dollars, from_units, round_amount, to_units, write_amount
from toolwire.gateway.store.store import StoreDown
from toolwire.gateway.telemetry.record import CallUsage
from toolwire.gateway.telemetry.running import RunningExchange

backends = pytest.mark.parametrize("backend", BACKENDS)
START = 1_800_000_000.0
NAMES = ("key", "team", "agent", "subagent", "provider", "account", "model", "session", "operation")
ALL = LedgerQuery(by=(), since=0.0, until=4e9)
_ids = count()

counts = st.none() | st.integers(0, 10**6)
amounts = st.none() | st.integers(0, 10**15)


@st.composite
def rows(draw: st.DrawFn) -> LedgerRow:
    usage = draw(st.booleans())
    numbers = {name: draw(counts) if usage else None for name in ("cache_read", "cache_write", "reasoning")}
    tokens = {name: draw(st.integers(0, 10**6)) if usage else None for name in ("input", "output")}
    names = {name: draw(st.sampled_from(("", "a", "Zoë's 模型"))) for name in NAMES}
    at = START + draw(st.integers(0, 40 * 24 * 3600)) + draw(st.sampled_from((0.0, 0.25)))
    money = {"cost": draw(amounts), "reported_cost": draw(amounts)}
    return LedgerRow(
        id=f"row-{next(_ids)}",
        at=at,
        request_id="r",
        estimated=draw(st.booleans()),
        **names,
        **numbers,
        **tokens,
        **money,
    )


def sum_rows(wait_for_rows: Sequence[LedgerRow]) -> dict[str, int]:
    """The model: what the rows come to."""
    flags: dict[str, Callable[[LedgerRow], bool]] = {
        "calls": lambda row: True,
        "unknown_calls": lambda row: row.input is None,
        "estimated_calls": lambda row: row.estimated,
        "unpriced_calls": lambda row: row.cost is None,
        "reported_calls": lambda row: row.reported_cost is not None,
    }
    return {
        name: sum(flags[name](row) if name in flags else getattr(row, name) or 0 for row in wait_for_rows)
        for name in NUMBERS
    }


def numbers_of(found: UsageSum) -> dict[str, int]:
    return {name: value for name, value in asdict(found).items() if name != "group"}


async def total(tables: LedgerTables, query: LedgerQuery = ALL) -> dict[str, int]:
    found = await tables.read_sums(query)
    assert isinstance(found, list)
    (one,) = found
    return numbers_of(one)


@backends
@settings(max_examples=15, deadline=None)
@given(st.lists(st.lists(rows(), max_size=6), max_size=4))
def test_rows_sums_and_exchanges_agree(
    backend: str, tmp_path_factory: pytest.TempPathFactory, batches: list[list[LedgerRow]]
) -> None:
    """Several gateways write at once, and write some batches twice, as they do when a connection breaks."""
    folder = tmp_path_factory.mktemp("ledger")

    async def check() -> None:
        async with open_store(backend, folder) as first, open_store(backend, folder) as second:
            tables = [open_ledger(first), open_ledger(second)]
            assert tables[0] is not None
            assert tables[1] is not None
            writes = [one.add_rows(batch) for batch in batches if batch for one in tables if one is not None]
            assert set(await asyncio.gather(*writes)) <= {None}
            written = [row for batch in batches for row in batch]
            assert await total(tables[0]) == sum_rows(written)  # the sums by hour
            assert await total(tables[1], replace(ALL, only=(("session", "a"),))) == sum_rows(
                [row for row in written if row.session == "a"]
            )
            for by in GROUPS:
                query = replace(ALL, by=(by,))
                found = await tables[0].read_sums(query)
                assert isinstance(found, list)
                folded = fold_months(query, found)
                groups = [one.group for one in folded]
                assert len(set(groups)) == len(groups)
                if by in NAMES:
                    expected = {(getattr(row, by),) for row in written}
                    assert set(groups) == expected
                whole = sum(folded, UsageSum())
                assert numbers_of(whole) == sum_rows(written)

    asyncio.run(check())


def row(**changes: Any) -> LedgerRow:
    record = make_record(started_at=START, key_name="ana", team="app", session="s")
    call = CallUsage("p", "m", usage=Usage(10, 5, cache_read=2), cost=Decimal("0.000123"))
    return replace(make_row(f"row-{next(_ids)}", record, call), **changes)


@backends
def test_a_time_ends_before_its_end(backend: str, tmp_path: Path) -> None:
    async def check() -> None:
        async with open_store(backend, tmp_path) as store:
            tables = open_ledger(store)
            assert tables is not None
            assert await tables.add_rows([row(at=START), row(at=START + 3600)]) is None
            for query, calls in (
                (LedgerQuery(by=(), since=START, until=START + 3600), 1),
                (LedgerQuery(by=(), since=START, until=START + 3601), 2),
                (LedgerQuery(by=(), since=START + 1800, until=START + 7200), 2),  # hours begin with the hour
                (LedgerQuery(by=("session",), since=START + 1, until=START + 7200), 1),
            ):
                assert (await total(tables, query))["calls"] == calls

    asyncio.run(check())


@backends
def test_old_rows_go_first_and_their_sums_stay(backend: str, tmp_path: Path) -> None:
    async def check() -> None:
        async with open_store(backend, tmp_path) as store:
            tables = open_ledger(store)
            assert tables is not None
            assert await tables.add_rows([row(at=START + 3600 * hour) for hour in range(10)]) is None
            assert await tables.remove_old(START + 3 * 3600, START, 1000) == 3
            by_rows = replace(ALL, by=("session",))
            assert ((await total(tables, by_rows))["calls"], (await total(tables))["calls"]) == (7, 10)
            assert await tables.remove_old(0.0, START + 6 * 3600, 4) == 3
            assert ((await total(tables, by_rows))["calls"], (await total(tables))["calls"]) == (4, 5)
            assert await tables.remove_old(0.0, 0.0, 1000, 2) == 0
            assert ((await total(tables, by_rows))["calls"], (await total(tables))["calls"]) == (4, 2)

    asyncio.run(check())


@backends
@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.tuples(rows(), st.booleans(), st.sampled_from(("ended", "dropped", "running"))), min_size=1, max_size=8)
)
def test_calls_that_run_count_until_they_end_and_then_once(
    backend: str, tmp_path_factory: pytest.TempPathFactory, calls: list[tuple[LedgerRow, bool, str]]
) -> None:
    """However they end, and if the batches are written twice. A call that runs is one of unknown usage."""
    folder = tmp_path_factory.mktemp("ledger")
    unknown = dict.fromkeys(("input", "output", "cache_read", "cache_write", "reasoning", "cost", "reported_cost"))
    begun = [replace(row, **unknown, estimated=False, running=True) for row, is_noted, _ in calls if is_noted]
    over = [row for row, _, end in calls if end == "ended"]
    ended = [row.id for row, is_noted, end in calls if is_noted and end != "running"]
    left = {row.id: row for row in begun} | {row.id: row for row in over}
    for row, _, end in calls:
        if end == "dropped":
            left.pop(row.id, None)

    async def check() -> None:
        async with open_store(backend, folder) as store:
            tables = open_ledger(store)
            assert tables is not None
            for _ in range(2):
                assert await tables.add_rows(begun) is None
            if begun:
                assert await total(tables) == sum_rows(begun)
            for _ in range(2):
                assert await tables.add_rows(over, ended) is None
            assert await total(tables, replace(ALL)) == sum_rows(list(left.values()))
            by_rows = await tables.read_sums(replace(ALL, by=("session",)))
            assert isinstance(by_rows, list)
            assert numbers_of(sum(by_rows, UsageSum())) == sum_rows(list(left.values()))

    asyncio.run(check())


def test_more_than_sixty_four_bits(tmp_path: Path) -> None:
    async def check() -> None:
        async with open_store("sqlite", tmp_path) as store:
            tables = open_ledger(store)
            assert tables is not None
            amount = 9 * 10**18
            assert await tables.add_rows([row(at=START + 3600 * hour, cost=amount) for hour in range(3)]) is None
            assert (await total(tables))["cost"] == 3 * amount

    asyncio.run(check())


# --- the writer -------------------------------------------------------------------------------------------------------


class SlowTables:
    """Tables that are down, or up, as a test wants it."""

    def __init__(self) -> None:
        self.is_down = False
        self.rows: list[LedgerRow] = []
        self.tried = asyncio.Event()

    async def add_rows(self, rows: Sequence[LedgerRow], ended: Sequence[str] = ()) -> StoreDown | None:
        self.tried.set()
        if self.is_down:
            return StoreDown("it is away")
        self.rows = [one for one in self.rows if one.id not in ended] + list(rows)
        return None

    async def read_sums(self, query: LedgerQuery) -> list[UsageSum] | StoreDown:
        return []

    async def remove_old(
        self, rows_before: float, hours_before: float, max_rows: int, max_sums: int = 0
    ) -> int | StoreDown:
        return 0


class Writing:
    def __init__(self) -> None:
        self.tables = SlowTables()
        self.events: list[tuple[str, dict[str, object]]] = []
        self.dropped = 0
        self.writer = LedgerWriter(self.tables, "w", self.log_event, self.count)

    def count(self, rows: int) -> None:
        self.dropped += rows

    def log_event(self, name: str, **fields: object) -> None:
        self.events.append((name, fields))

    def add(self, calls: int) -> None:
        record = make_record(started_at=START)
        record.costs.calls = tuple(CallUsage("p", "m") for _ in range(calls))
        for call in record.costs.calls:
            self.writer.end_call(record, call)

    @property
    def event_names(self) -> list[str]:
        return [name for name, _ in self.events]


def test_what_waits_is_written_at_the_end() -> None:
    async def check() -> None:
        writing = Writing()
        writing.add(3)
        assert writing.tables.rows == []  # nobody waits for the store
        await writing.writer.close()
        assert [one.id for one in writing.tables.rows] == ["w-1", "w-2", "w-3"]
        assert writing.events == []

    asyncio.run(check())


def test_rows_wait_for_a_store_that_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        monkeypatch.setattr(ledger_module, "WRITE_DELAY", 0.0)
        monkeypatch.setattr(ledger_module, "FIRST_RETRY_SECONDS", 0.001)
        writing = Writing()
        writing.tables.is_down = True
        writing.add(2)
        await writing.tables.tried.wait()
        writing.tables.is_down = False
        await writing.writer.close()
        assert len(writing.tables.rows) == 2
        assert writing.dropped == 0
        assert writing.event_names == ["ledger_unavailable", "ledger_available"]

    asyncio.run(check())


def test_what_does_not_fit_is_counted_and_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        monkeypatch.setattr(ledger_module, "MAX_QUEUED", 5)
        writing = Writing()
        writing.tables.is_down = True
        writing.add(8)
        assert (len(writing.writer.queue), writing.dropped) == (5, 3)
        await writing.writer.close()
        assert writing.dropped == 8
        assert writing.event_names == ["ledger_rows_dropped", "ledger_unavailable", "ledger_rows_dropped"]
        assert "lacks 5 calls" in str(writing.events[-1][1]["message"])

    asyncio.run(check())


def test_a_call_that_lasts_is_written_before_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a short one once."""

    async def wait_for_rows(writing: Writing) -> list[tuple[str, bool]]:
        while writing.writer.task is not None:
            await asyncio.sleep(0)
        return [(one.model, one.running) for one in writing.tables.rows]

    async def check() -> None:
        monkeypatch.setattr(ledger_module, "WRITE_DELAY", 0.0)
        monkeypatch.setattr(ledger_module, "START_DELAY", 0.0)
        writing = Writing()
        running = [RunningExchange(make_record(started_at=START)) for _ in range(4)]
        for number, one in enumerate(running):
            one.open_call = CallUsage("p", f"m{number}")
            writing.writer.start_call(one, one.open_call)
        quick = running[0].open_call
        assert quick is not None
        running[0].open_call = None
        writing.writer.end_call(running[0].record, quick)
        assert await wait_for_rows(writing) == [("m0", False), ("m1", True), ("m2", True), ("m3", True)]
        for one, end in ((running[1], "ended"), (running[2], "dropped")):
            lasting, one.open_call = one.open_call, None
            assert lasting is not None
            if end == "ended":
                lasting.usage = Usage(1, 2)
                writing.writer.end_call(one.record, lasting)
            else:
                writing.writer.drop_call(lasting)
        assert await wait_for_rows(writing) == [("m0", False), ("m3", True), ("m1", False)]
        await writing.writer.close()

    asyncio.run(check())


def test_large_batches_are_split() -> None:
    async def check() -> None:
        writing = Writing()
        writing.add(3 * ledger_module.BATCH_SIZE + 1)
        await writing.writer.close()
        assert len(writing.tables.rows) == 3 * ledger_module.BATCH_SIZE + 1

    asyncio.run(check())


def test_names_of_clients_are_bounded_and_printable(tmp_path: Path) -> None:
    async def check() -> None:
        record = make_record(started_at=START, agent="a\ud800\0" * 99, subagent="模" * 500, session="\n")
        call = CallUsage("p", "m\0" * 200, usage=Usage(10**30, -5))
        hostile = make_row("x", record, call)
        for backend in BACKENDS:
            async with open_store(backend, tmp_path) as store:
                tables = open_ledger(store)
                assert tables is not None
                assert await tables.add_rows([hostile]) is None
                assert (await total(tables))["calls"] == 1

    asyncio.run(check())


def test_a_store_of_the_version_before_gets_the_tables(tmp_path: Path) -> None:
    from toolwire.gateway.store.sqlite import SqliteStore
    from toolwire.gateway.store.sqlite_worker import MIGRATIONS

    async def check() -> None:
        file = tmp_path / "store.db"
        old = SqliteStore(file, migrations=MIGRATIONS[:2])
        await old.sweep()
        await old.close()
        assert sqlite3.connect(file).execute("PRAGMA user_version").fetchone() == (2,)
        new = SqliteStore(file)
        tables = open_ledger(new)
        assert tables is not None
        assert await tables.add_rows([row()]) is None
        await new.close()

    asyncio.run(check())


# --- amounts ----------------------------------------------------------------------------------------------------------


@given(st.decimals(0, 10**6, allow_nan=False, allow_infinity=False))
def test_an_amount_is_stored_exactly(amount: Decimal) -> None:
    kept = round_amount(amount)
    assert abs(kept - amount) <= Decimal("1e-12")
    units = to_units(kept)
    assert units is not None
    assert from_units(units) == kept
    assert Decimal(write_amount(kept)) == kept
    assert "E" not in write_amount(kept)


@pytest.mark.parametrize(
    ("amount", "shown"),
    [("0", "$0"), ("0.00000012345", "$0.00000012"), ("0.0123", "$0.012"), ("0.12", "$0.12"), ("1234.5", "$1,234.50")],
)
def test_amounts_for_people(amount: str, shown: str) -> None:
    assert format_dollars(Decimal(amount)) == shown
