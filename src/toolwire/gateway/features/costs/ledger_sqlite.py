"""The ledger in SQLite. Its tables are made by the migrations of `store/sqlite.sql`."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import cache
from itertools import chain

from msgspec.structs import astuple

from toolwire.gateway.features.costs.ledger import (
    DIMENSIONS,
    HOUR,
    MAX_ROWS,
    NUMBERS,
    ROW_NUMBERS,
    SPLIT,
    LedgerRow,
    LedgerTables,
)
from toolwire.gateway.store.sqlite import SqliteStore
from toolwire.gateway.store.store import StoreDown

_ROW_COLUMNS = LedgerRow.__struct_fields__
_ROWS_AT_ONCE = 40
"""Rows of one statement. Each statement waits for the interpreter, which the requests need, so there should be few; but
older versions of SQLite take at most 999 values in one."""
_LAST_ROW = "SELECT coalesce(max(number), 0) FROM usage_rows"
_REMOVE_BATCH = 1000
_SUM_KEY = f"hour, {', '.join(DIMENSIONS)}"
_REMOVE_SUMS = f"""DELETE FROM usage_hours WHERE ({_SUM_KEY}) IN (
    SELECT {_SUM_KEY} FROM usage_hours ORDER BY hour LIMIT ?)"""


class SqliteLedger(LedgerTables):
    sum_parts = (f"coalesce(sum({{}} / {SPLIT}), 0)", f"coalesce(sum({{}} % {SPLIT}), 0)")
    whole_number = "CAST({} AS INTEGER)"

    def __init__(self, store: SqliteStore) -> None:
        super().__init__(store)
        self._worker = store.worker

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
        {", ".join(f"{sign}coalesce(sum({ROW_NUMBERS.get(name, name)}), 0)" for name in NUMBERS)}
    FROM usage_rows WHERE {chosen} GROUP BY start, {", ".join(DIMENSIONS)}
    ON CONFLICT (hour, {", ".join(DIMENSIONS)}) DO UPDATE SET
    {", ".join(f"{name} = {name} + excluded.{name}" for name in NUMBERS)}"""


@cache
def _write_insert(rows: int) -> str:
    values = f"({', '.join('?' * len(_ROW_COLUMNS))})"
    return f"""INSERT INTO usage_rows ({", ".join(_ROW_COLUMNS)}) VALUES {", ".join([values] * rows)}
    ON CONFLICT (id) DO NOTHING"""
