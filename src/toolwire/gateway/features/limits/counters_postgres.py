"""Counters in PostgreSQL, which several gateways share. `toolwire_reserve_1` and `toolwire_settle_1` are made by the
migrations of the store (`store/postgres.sql`): a function sees what others have committed while it waited for a
lock, and it takes one round trip."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Unpack

from toolwire.gateway.features.limits.counters import (
    KEPT_SECONDS,
    Charge,
    Counters,
    CounterState,
    CounterUse,
    Reserved,
    Settlement,
)
from toolwire.gateway.store.postgres_pool import PoolOptions, PostgresConnection, PostgresPool
from toolwire.gateway.store.store import StoreDown

_NOW = "coalesce($1::double precision, extract(epoch FROM clock_timestamp())::double precision)"
_RESERVE = """SELECT taken, opens_after, is_refused
    FROM toolwire_reserve_1($1::text, $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::float8, $7::float8)"""
_SETTLE = "SELECT toolwire_settle_1($1::text[], $2::integer[], $3::bigint[])"
_RENEW = f"UPDATE toolwire_reservations SET expires = {_NOW} + $2 WHERE id = ANY ($3::text[])"
_LIST_COUNTERS = f"""WITH clock AS MATERIALIZED (SELECT {_NOW} AS moment)
    SELECT name, unit, used, held, ends - moment FROM clock, toolwire_counters AS c CROSS JOIN LATERAL (
        SELECT coalesce(sum(amount), 0)::bigint AS held FROM clock, toolwire_reservations AS r
        WHERE r.counter = c.name AND r.start = c.start AND r.expires > moment) AS held
    WHERE c.start <= moment AND c.ends > moment AND (used <> 0 OR held <> 0) ORDER BY name"""
_SWEEP_COUNTERS = f"DELETE FROM toolwire_counters WHERE ends <= {_NOW} - {KEPT_SECONDS}"
_SWEEP_RESERVATIONS = f"DELETE FROM toolwire_reservations WHERE expires <= {_NOW} - {KEPT_SECONDS}"


class PostgresCounters(Counters):
    def __init__(self, url: str, *, clock: Callable[[], float] | None = None, **pool_options: Unpack[PoolOptions]):
        """`clock` replaces that of the server, in tests."""
        self._pool = PostgresPool(url, **pool_options)
        self._clock = clock

    async def reserve(self, id: str, charges: Sequence[Charge], lease: float) -> Reserved | StoreDown:
        columns = (
            [charge.counter for charge in charges],
            [charge.unit for charge in charges],
            [charge.amount for charge in charges],
            [charge.limit for charge in charges],
        )
        rows = await self._fetch(_RESERVE, id, *columns, lease, self._now())
        if isinstance(rows, StoreDown):
            return rows
        states = tuple(CounterState(taken, opens_after) for taken, opens_after, _ in rows)
        return Reserved(states, tuple(index for index, row in enumerate(rows) if row[2]))

    async def settle(self, settlements: Sequence[Settlement]) -> StoreDown | None:
        rows = [
            (settlement.id, place, amount)
            for settlement in settlements
            for place, amount in enumerate(settlement.amounts, 1)
        ]
        columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
        done = await self._fetch(_SETTLE, *columns)
        return done if isinstance(done, StoreDown) else None

    async def renew(self, ids: Sequence[str], lease: float) -> StoreDown | None:
        done = await self._fetch(_RENEW, self._now(), lease, list(ids))
        return done if isinstance(done, StoreDown) else None

    async def list_counters(self) -> list[CounterUse] | StoreDown:
        rows = await self._fetch(_LIST_COUNTERS, self._now())
        return rows if isinstance(rows, StoreDown) else [CounterUse(*row) for row in rows]

    async def sweep(self) -> StoreDown | None:
        async def work(connection: PostgresConnection) -> None:
            await connection.execute(_SWEEP_COUNTERS, self._now())
            await connection.execute(_SWEEP_RESERVATIONS, self._now())

        return await self._pool.run_work(work, is_idempotent=True)

    async def close(self) -> None:
        await self._pool.close()

    async def _fetch(self, statement: str, *values: object) -> Sequence[Any] | StoreDown:
        return await self._pool.run_work(lambda connection: connection.fetch(statement, *values), is_idempotent=True)

    def _now(self) -> float | None:
        return None if self._clock is None else self._clock()
