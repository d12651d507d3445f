"""The ledger in SQLite. Its tables are made by the migrations of `store/sqlite_worker.py`."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any

from msgspec.structs import astuple

from toolwire.gateway.features.costs.ledger import (
    DIMENSIONS,
    HOUR,
    MAX_ROWS,
    NUMBERS,
    TIME_STEPS,
    LedgerQuery,
    LedgerRow,
    UsageSum,
)
from toolwire.gateway.store.sqlite_worker import LONG_DEADLINE, SqliteWorker
from toolwire.gateway.store.store import StoreDown

_ROW_COLUMNS = LedgerRow.__struct_fields__
_ROWS_AT_ONCE = 40
"""Rows of one statement. Each statement waits for the interpreter, which the requests need, so there should be few; but
older versions of SQLite take at most 999 values in one."""
_ROW_NUMBERS = {
    "calls": "1",
    "unknown_calls": "input IS NULL",
    "estimated_calls": "estimated",
    "unpriced_calls": "cost IS NULL",
    "reported_calls": "reported_cost IS NOT NULL",
}
_LAST_ROW = "SELECT coalesce(max(number), 0) FROM usage_rows"
_SPLIT = 10**9
"""Sums of amounts are made in two parts, because SQLite's numbers have 64 bits: nine million dollars."""
_AMOUNTS = ("cost", "reported_cost")
_REMOVE_BATCH = 1000
_SUM_KEY = f"hour, {', '.join(DIMENSIONS)}"
_REMOVE_SUMS = f"""DELETE FROM usage_hours WHERE ({_SUM_KEY}) IN (
    SELECT {_SUM_KEY} FROM usage_hours ORDER BY hour LIMIT ?)"""


class SqliteLedger:
    """The `LedgerTables` in SQLite."""

    def __init__(self, worker: SqliteWorker) -> None:
        self._worker = worker

    async def add_rows(self, rows: Sequence[LedgerRow], ended: Sequence[str] = ()) -> StoreDown | None:
        parts = [rows[start : start + _ROWS_AT_ONCE] for start in range(0, len(rows), _ROWS_AT_ONCE)]
        statements = [(_write_insert(len(part)), list(chain.from_iterable(map(astuple, part)))) for part in parts]

        def work(file: sqlite3.Connection, _now: float) -> None:
            if ended:
                chosen = f"running AND id IN ({', '.join('?' * len(ended))})"
                file.execute(_write_sums(chosen, sign="-"), ended)
                file.execute(f"DELETE FROM usage_rows WHERE {chosen}", ended)
            # Only rows that are new get a number, and only they are added to the sums.
            last = file.execute(_LAST_ROW).fetchone()
            for statement, values in statements:
                file.execute(statement, values)
            file.execute(_write_sums("number > ?"), last)

        return await self._worker.run_work(work)

    async def read_sums(self, query: LedgerQuery) -> list[UsageSum] | StoreDown:
        statement, values = _write_query(query)

        def work(file: sqlite3.Connection, _now: float) -> list[UsageSum]:
            return [_read_sum(query, row) for row in file.execute(statement, values)]

        return await self._worker.run_work(work, writes=False, deadline=LONG_DEADLINE)

    async def remove_old(
        self, rows_before: float, hours_before: float, max_rows: int, max_sums: int = MAX_ROWS
    ) -> int | StoreDown:
        def remove_rows(file: sqlite3.Connection, _now: float) -> int:
            (surplus,) = file.execute("SELECT count(*) - ? FROM usage_rows", (max_rows,)).fetchone()
            oldest = "SELECT id FROM usage_rows WHERE at < ? ORDER BY at LIMIT ?"
            before, limit = (float("inf"), min(surplus, _REMOVE_BATCH)) if surplus > 0 else (rows_before, _REMOVE_BATCH)
            return file.execute(f"DELETE FROM usage_rows WHERE id IN ({oldest})", (before, limit)).rowcount

        def remove_sums(file: sqlite3.Connection, _now: float) -> int:
            old = file.execute("DELETE FROM usage_hours WHERE hour < ?", (hours_before - HOUR,)).rowcount
            (surplus,) = file.execute("SELECT count(*) - ? FROM usage_hours", (max_sums,)).fetchone()
            return old + file.execute(_REMOVE_SUMS, (max(0, min(surplus, _REMOVE_BATCH)),)).rowcount

        removed_rows = await self._worker.repeat_work(remove_rows)
        removed_sums = await self._worker.repeat_work(remove_sums)
        return removed_sums if isinstance(removed_sums, StoreDown) else removed_rows


@cache
def _write_sums(chosen: str, sign: str = "") -> str:
    """A statement that adds the rows that are chosen to the sums of their hours, or takes them away."""
    return f"""INSERT INTO usage_hours (hour, {", ".join((*DIMENSIONS, *NUMBERS))})
    SELECT CAST(at AS INTEGER) / {HOUR} * {HOUR} AS start, {", ".join(DIMENSIONS)},
        {", ".join(f"{sign}coalesce(sum({_ROW_NUMBERS.get(name, name)}), 0)" for name in NUMBERS)}
    FROM usage_rows WHERE {chosen} GROUP BY start, {", ".join(DIMENSIONS)}
    ON CONFLICT (hour, {", ".join(DIMENSIONS)}) DO UPDATE SET
    {", ".join(f"{name} = {name} + excluded.{name}" for name in NUMBERS)}"""


@cache
def _write_insert(rows: int) -> str:
    values = f"({', '.join('?' * len(_ROW_COLUMNS))})"
    return f"""INSERT INTO usage_rows ({", ".join(_ROW_COLUMNS)}) VALUES {", ".join([values] * rows)}
    ON CONFLICT (id) DO NOTHING"""


def _write_query(query: LedgerQuery) -> tuple[str, list[object]]:
    table, time = ("usage_rows", "at") if query.needs_rows else ("usage_hours", "hour")
    groups = [
        f"CAST({time} AS INTEGER) / {TIME_STEPS[name]} * {TIME_STEPS[name]}" if name in TIME_STEPS else name
        for name in query.by
    ]
    sums: list[str] = []
    for name in NUMBERS:
        number = _ROW_NUMBERS.get(name, name) if query.needs_rows else name
        if name in _AMOUNTS:
            sums += [f"coalesce(sum({number} / {_SPLIT}), 0)", f"coalesce(sum({number} % {_SPLIT}), 0)"]
        else:
            sums.append(f"coalesce(sum({number}), 0)")
    since = query.since if query.needs_rows else query.since // HOUR * HOUR
    where = " AND ".join([f"{time} >= ?", f"{time} < ?", *(f"{name} = ?" for name, _ in query.only)])
    group_by = f" GROUP BY {', '.join(map(str, range(1, len(groups) + 1)))}" if groups else ""
    statement = f"SELECT {', '.join([*groups, *sums])} FROM {table} WHERE {where}{group_by}"
    return statement, [since, query.until, *(value for _, value in query.only)]


def _read_sum(query: LedgerQuery, row: tuple[Any, ...]) -> UsageSum:
    cells = iter(row[len(query.by) :])
    numbers: dict[str, int] = {}
    for name in NUMBERS:
        value = int(next(cells))
        numbers[name] = value * _SPLIT + int(next(cells)) if name in _AMOUNTS else value
    return UsageSum(group=row[: len(query.by)], **numbers)
