"""Counters in the file of the SQLite store: what was used, for counters in memory that outlive their process, and whole
counters, for the workers of one gateway, which share the file."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

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
from toolwire.gateway.store.sqlite_worker import MIGRATIONS, PRAGMAS, SqliteWorker
from toolwire.gateway.store.store import StoreDown

_READ_USED = "SELECT used FROM counters WHERE name = ? AND start = ?"
_ADD_USED = """INSERT INTO counters (name, unit, start, ends, used) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (name, start) DO UPDATE SET used = used + excluded.used RETURNING used"""
_READ_HELD = "SELECT coalesce(sum(amount), 0) FROM reservations WHERE counter = ? AND start = ? AND expires > ?"
_ADD_HOLD = """INSERT INTO reservations (id, place, counter, unit, start, ends, amount, expires)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""
_REMOVE_HOLDS = "DELETE FROM reservations WHERE id = ? RETURNING place, counter, unit, start, ends"
_RENEW_HOLDS = "UPDATE reservations SET expires = ? WHERE id = ?"
_LIST_COUNTERS = """SELECT name, unit, ends, sum(used), sum(held) FROM (
        SELECT name, unit, ends, used, 0 AS held FROM counters WHERE start <= ?1 AND ends > ?1
        UNION ALL
        SELECT counter, unit, ends, 0, amount FROM reservations WHERE start <= ?1 AND ends > ?1 AND expires > ?1)
    GROUP BY name, unit, ends HAVING sum(used) <> 0 OR sum(held) <> 0 ORDER BY name"""
_SWEEP = ("DELETE FROM counters WHERE ends <= ?", "DELETE FROM reservations WHERE expires <= ?")


class UsedAmount(Struct, frozen=True, array_like=True):
    counter: str
    unit: str
    start: int
    end: int
    amount: int


class CounterFile:
    """What was used, in the file of the store."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._worker = SqliteWorker(path, clock, PRAGMAS, MIGRATIONS)

    async def read_used(self, windows: Sequence[tuple[str, int]]) -> list[int] | StoreDown:
        def work(connection: sqlite3.Connection, now: float) -> list[int]:
            return [_read_used(connection, counter, start) for counter, start in windows]

        return await self._worker.run_work(work, writes=False)

    async def add_used(self, amounts: Sequence[UsedAmount]) -> list[int] | StoreDown:
        """Add amounts, and read what was used then."""

        def work(connection: sqlite3.Connection, now: float) -> list[int]:
            return [_add_used(connection, amount) for amount in amounts]

        return await self._worker.run_work(work)

    async def sweep(self) -> StoreDown | None:
        def work(connection: sqlite3.Connection, now: float) -> None:
            for statement in _SWEEP:
                connection.execute(statement, (now - KEPT_SECONDS,))

        return await self._worker.run_work(work)

    async def close(self) -> None:
        await self._worker.close()


class SqliteCounters(Counters):
    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._file = CounterFile(path, clock)
        self._worker = self._file._worker

    async def reserve(self, id: str, charges: Sequence[Charge], lease: float) -> Reserved | StoreDown:
        def work(connection: sqlite3.Connection, now: float) -> Reserved:
            windows = [find_window(charge.unit, now) for charge in charges]
            states, refused = [], []
            for index, (charge, (start, end)) in enumerate(zip(charges, windows, strict=True)):
                taken = _read_used(connection, charge.counter, start)
                taken += int(connection.execute(_READ_HELD, (charge.counter, start, now)).fetchone()[0])
                states.append(CounterState(taken, end - now))
                if 0 <= charge.limit < taken + charge.amount:
                    refused.append(index)
            if not refused:
                rows = [
                    (id, place, charge.counter, charge.unit, *windows[place], charge.amount, now + lease)
                    for place, charge in enumerate(charges)
                ]
                connection.executemany(_ADD_HOLD, rows)
            return Reserved(tuple(states), tuple(refused))

        return await self._worker.run_work(work)

    async def settle(self, settlements: Sequence[Settlement]) -> StoreDown | None:
        def work(connection: sqlite3.Connection, now: float) -> None:
            for settlement in settlements:
                for place, counter, unit, start, end in connection.execute(_REMOVE_HOLDS, (settlement.id,)).fetchall():
                    if amount := settlement.amounts[place]:
                        _add_used(connection, UsedAmount(counter, unit, start, end, amount))

        return await self._worker.run_work(work)

    async def renew(self, ids: Sequence[str], lease: float) -> StoreDown | None:
        def work(connection: sqlite3.Connection, now: float) -> None:
            connection.executemany(_RENEW_HOLDS, [(now + lease, id) for id in ids])

        return await self._worker.run_work(work)

    async def list_counters(self) -> list[CounterUse] | StoreDown:
        def work(connection: sqlite3.Connection, now: float) -> list[CounterUse]:
            rows = connection.execute(_LIST_COUNTERS, (now,)).fetchall()
            return [CounterUse(name, unit, used, held, end - now) for name, unit, end, used, held in rows]

        return await self._worker.run_work(work, writes=False)

    async def sweep(self) -> StoreDown | None:
        return await self._file.sweep()

    async def close(self) -> None:
        await self._file.close()


def _read_used(connection: sqlite3.Connection, counter: str, start: int) -> int:
    row = connection.execute(_READ_USED, (counter, start)).fetchone()
    return int(row[0]) if row else 0


def _add_used(connection: sqlite3.Connection, used: UsedAmount) -> int:
    values = (used.counter, used.unit, used.start, used.end, used.amount)
    return int(connection.execute(_ADD_USED, values).fetchall()[0][0])
