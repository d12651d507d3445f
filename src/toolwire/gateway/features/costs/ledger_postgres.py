"""The ledger in PostgreSQL. Its tables are made by the migrations of `store/postgres.sql`."""

from __future__ import annotations

from collections.abc import Sequence

from toolwire.gateway.features.costs.ledger import (
    DIMENSIONS,
    HOUR,
    MAX_ROWS,
    NUMBERS,
    ROW_NUMBERS,
    LedgerRow,
    LedgerTables,
)
from toolwire.gateway.store.postgres import PostgresStore
from toolwire.gateway.store.postgres_pool import PostgresConnection
from toolwire.gateway.store.store import StoreDown

_TYPES = {
    "at": "float8", "input": "bigint", "output": "bigint", "cache_read": "bigint", "cache_write": "bigint",
    "reasoning": "bigint", "cost": "bigint", "reported_cost": "bigint", "estimated": "boolean",
    "running": "boolean",
}  # fmt: skip
_ROW_COLUMNS = LedgerRow.__struct_fields__
_ARRAYS = ", ".join(f"${number}::{_TYPES.get(name, 'text')}[]" for number, name in enumerate(_ROW_COLUMNS, 1))
_NAMES = ", ".join(DIMENSIONS)

_COLUMNS = ", ".join(_ROW_COLUMNS)
_COUNTED = _ROW_COLUMNS[_ROW_COLUMNS.index("input") :]
"""What changes when a call ends."""
_OF_RUNNING = frozenset({"calls", "unknown_calls", "unpriced_calls"})
"""What a call that runs counts as."""
_CHANGES = ", ".join(
    f"coalesce(sum(added * {ROW_NUMBERS.get(name, name)}{' - taken' if name in _OF_RUNNING else ''}), 0) AS {name}"
    for name in NUMBERS
)

# One statement: only rows that are new, or whose call has ended, change the sums, however often it is repeated. These
# are changed in one order by all gateways, so that they do not wait for each other in a circle.
_ADD_ROWS = f"""WITH given AS (SELECT * FROM unnest({_ARRAYS}) AS given ({_COLUMNS})),
    new AS (
        INSERT INTO toolwire_usage_rows ({_COLUMNS}) SELECT {_COLUMNS} FROM given
        ON CONFLICT (id) DO NOTHING RETURNING {_COLUMNS}),
    ended AS (
        UPDATE toolwire_usage_rows AS r SET {", ".join(f"{name} = given.{name}" for name in _COUNTED)} FROM given
        WHERE r.id = given.id AND r.id = ANY(${len(_ROW_COLUMNS) + 1}::text[]) AND r.running AND NOT given.running
        RETURNING {", ".join(f"r.{name}" for name in _ROW_COLUMNS)}),
    gone AS (
        DELETE FROM toolwire_usage_rows WHERE id = ANY(${len(_ROW_COLUMNS) + 2}::text[]) AND running
        RETURNING {_COLUMNS}),
    changed AS (
        SELECT 1 AS added, 0 AS taken, * FROM new
        UNION ALL SELECT 1, 1, * FROM ended
        UNION ALL SELECT 0, 1, * FROM gone)
    INSERT INTO toolwire_usage_hours (hour, {_NAMES}, {", ".join(NUMBERS)})
    SELECT floor(at / {HOUR})::bigint * {HOUR} AS hour, {_NAMES}, {_CHANGES} FROM changed GROUP BY 1, {_NAMES}
    ORDER BY 1, {_NAMES}
    ON CONFLICT (hour, {_NAMES}) DO UPDATE SET
    {", ".join(f"{name} = toolwire_usage_hours.{name} + excluded.{name}" for name in NUMBERS)}"""
_REMOVE_ROWS = """DELETE FROM toolwire_usage_rows WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM toolwire_usage_rows WHERE at < $1 ORDER BY at LIMIT $2 FOR UPDATE SKIP LOCKED)) RETURNING 1"""
_COUNT_ROWS = "SELECT count(*) FROM toolwire_usage_rows"
_REMOVE_SUMS = """DELETE FROM toolwire_usage_hours WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM toolwire_usage_hours WHERE hour < $1::float8 ORDER BY hour LIMIT $2
    FOR UPDATE SKIP LOCKED)) RETURNING 1"""
_COUNT_SUMS = "SELECT count(*) FROM toolwire_usage_hours"
_REMOVE_BATCH = 1000
_LONG_TIMEOUT = 60.0


class PostgresLedger(LedgerTables):
    sum_parts = ("0", "coalesce(sum({}), 0)")
    whole_number = "CAST(floor({}) AS bigint)"

    def __init__(self, store: PostgresStore) -> None:
        super().__init__(store)
        self._pool = store.pool

    async def add_rows(self, rows: Sequence[LedgerRow], ended: Sequence[str] = ()) -> StoreDown | None:
        columns = [[getattr(row, name) for row in rows] for name in _ROW_COLUMNS]
        gone = {*ended}.difference(row.id for row in rows)
        columns += [list(ended), list(gone)]
        done = await self._pool.run_work(lambda connection: connection.execute(_ADD_ROWS, *columns), is_idempotent=True)
        return done if isinstance(done, StoreDown) else None

    async def remove_old(
        self, rows_before: float, hours_before: float, max_rows: int, max_sums: int = MAX_ROWS
    ) -> int | StoreDown:
        rows = await self._remove(_COUNT_ROWS, max_rows, _REMOVE_ROWS, rows_before)
        sums = await self._remove(_COUNT_SUMS, max_sums, _REMOVE_SUMS, hours_before - HOUR)
        return sums if isinstance(sums, StoreDown) else rows

    async def _remove(self, count: str, maximum: int, remove: str, before: float) -> int | StoreDown:
        """Remove what is older than this, and the oldest if there are more, in small transactions; returns how many."""

        async def work(connection: PostgresConnection) -> int:
            surplus = await connection.fetchval(count) - maximum
            values = (float("inf"), min(surplus, _REMOVE_BATCH)) if surplus > 0 else (before, _REMOVE_BATCH)
            return len(await connection.fetch(remove, *values))

        return await self._pool.repeat_work(work, _LONG_TIMEOUT)
