"""A store in PostgreSQL, which several gateways share."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from hashlib import sha256
from typing import Any

from toolwire.gateway.store import postgres_sql as sql
from toolwire.gateway.store.postgres_pool import (
    CONNECTION_ERRORS,
    STORE_ERRORS,
    NothingWritten,
    PostgresConnection,
    PostgresPool,
)
from toolwire.gateway.store.store import Entry, KindStats, StoreDown, StoreStats, SweepResult, expiry_time

_SWEEP_BATCH = 2000
"""Entries in one transaction of a sweep, so that nobody waits long for one of them."""
_EXPORT_PAGE = 20
"""Entries that an export fetches at once."""
_SWEEP_TARGET_RATIO = 0.9
"""What a sweep of a store that is too large leaves of its limit."""
_LONG_TIMEOUT = 60.0
"""Seconds for what looks at every entry."""


class PostgresStore:
    """`now` is the clock, `rest` the seconds for which a server that is gone is not asked again, `deadline` those that
    a verb may take; sweeps, counts and exports have longer."""

    def __init__(
        self,
        url: str,
        *,
        ttl: float = 30 * 24 * 3600.0,
        max_bytes: int = 0,
        clock: Callable[[], float] = time.time,
        retry_delay: float = 1.0,
        deadline: float = 5.0,
        migrations: Sequence[str] = sql.MIGRATIONS,
    ) -> None:
        self._ttl, self._max_bytes, self._clock, self._schema_version = ttl, max_bytes, clock, len(migrations)
        self._pool = PostgresPool(url, retry_delay=retry_delay, deadline=deadline, migrations=migrations)

    # --- verbs ---

    async def get(self, owner: str, kind: str, ids: Sequence[str]) -> list[Entry] | StoreDown:
        names = {_id_bytes(id): None for id in ids}

        async def work(connection: PostgresConnection) -> list[Entry]:
            rows = await connection.fetch(sql.GET, owner, kind, [_id_digest(name) for name in names], self._clock())
            found = {row["id"]: row for row in rows}
            return [_read_entry(found[name]) for name in names if name in found]

        return await self._pool.run_work(work, is_idempotent=True)

    async def put(
        self, entries: Sequence[Entry], required_marks: tuple[str, ...] = (), appended: Sequence[Entry] = ()
    ) -> bool | StoreDown:
        if appended:
            return await self._write_in_transaction(entries, required_marks, appended)

        async def work(connection: PostgresConnection) -> bool:
            return await self._write_entries(connection, entries, required_marks)

        # Twice under a condition: the second would find what the first made.
        return await self._pool.run_work(work, is_idempotent=not required_marks) if entries else True

    async def _write_entries(
        self, connection: PostgresConnection, entries: Sequence[Entry], required_marks: tuple[str, ...]
    ) -> bool:
        if not entries:
            return True
        now = self._clock()
        # In the order of their names, so that no two writers wait for each other.
        columns = self._write_columns((entry for _, entry in sorted(_deduplicate_entries(entries).items())), now)
        if not required_marks:
            await connection.execute(sql.PUT, *columns)
            return True
        first = entries[0]
        name = (first.owner, first.kind, _id_digest(_id_bytes(first.id)))
        return bool(await connection.fetchval(sql.PUT_WHERE, *columns, *name, list(required_marks), now))

    async def append(self, entries: Sequence[Entry]) -> bool | StoreDown:
        return await self.put((), (), entries)

    async def _write_in_transaction(
        self, entries: Sequence[Entry], required_marks: tuple[str, ...], appended: Sequence[Entry]
    ) -> bool | StoreDown:
        locks = sorted({_parent_lock_number(entry) for entry in appended})

        async def work(connection: PostgresConnection) -> bool:
            # In one message with the beginning, and as a statement of its own: the next one then sees what others,
            # who had the lock before, have written.
            begin = f"BEGIN; {'; '.join(f'SELECT pg_advisory_xact_lock({lock})' for lock in locks)}"
            try:
                await connection.execute(begin)
                wanted = await self._write_entries(connection, entries, required_marks)
                if wanted:
                    await connection.execute(
                        sql.APPEND, *self._write_columns(_deduplicate_entries(appended).values(), self._clock())
                    )
            except CONNECTION_ERRORS as error:
                raise NothingWritten from error
            await connection.execute("COMMIT" if wanted else "ROLLBACK")
            return wanted

        return await self._pool.run_work(work, is_idempotent=False)

    async def get_chain(self, owner: str, kind: str, id: str, limit: int) -> list[Entry] | StoreDown:
        return await self._fetch_entries(sql.CHAIN, owner, kind, _id_digest(_id_bytes(id)), self._clock(), limit)

    async def get_children(
        self, owner: str, kind: str, parent: str, after: int | None = None, limit: int = 0, descending: bool = False
    ) -> list[Entry] | StoreDown:
        digest = _id_digest(_id_bytes(parent))
        return await self._fetch_entries(sql.CHILDREN[descending], owner, kind, digest, self._clock(), after, limit)

    async def delete(self, owner: str, kind: str, ids: Sequence[str]) -> int | StoreDown:
        async def work(connection: PostgresConnection) -> int:
            return int(await connection.fetchval(sql.DELETE, owner, kind, _id_digests(ids), self._clock()))

        # Twice: the second would count what the first has left, none.
        return await self._pool.run_work(work, is_idempotent=False)

    async def touch(self, owner: str, kind: str, ids: Sequence[str], expires: float) -> StoreDown | None:
        async def work(connection: PostgresConnection) -> None:
            now = self._clock()
            await connection.execute(
                sql.TOUCH, owner, kind, _id_digests(ids), expiry_time(expires, now, self._ttl), now
            )

        return await self._pool.run_work(work, is_idempotent=True)

    async def close(self) -> None:
        await self._pool.close()

    async def _fetch_entries(self, statement: str, *values: object) -> list[Entry] | StoreDown:
        async def work(connection: PostgresConnection) -> list[Entry]:
            return [_read_entry(row) for row in await connection.fetch(statement, *values)]

        return await self._pool.run_work(work, is_idempotent=True)

    def _write_columns(self, entries: Iterable[Entry], now: float) -> tuple[list[Any], ...]:
        """What a statement writes, by column."""
        rows = [
            (
                entry.owner,
                entry.kind,
                _id_bytes(entry.id),
                _id_bytes(entry.parent),
                entry.place,
                entry.mark,
                entry.created or now,
                expiry_time(entry.expires, now, self._ttl),
                entry.body,
            )
            for entry in entries
        ]
        return tuple(map(list, zip(*rows, strict=True)))

    # --- housekeeping ---

    async def sweep(self) -> SweepResult | StoreDown:
        """One gateway at a time; what another is sweeping already, this one leaves to it."""
        now = self._clock()

        async def remove_expired(connection: PostgresConnection, _: bool) -> list[Any]:
            return await connection.fetch(sql.DELETE_EXPIRED, now, _SWEEP_BATCH)

        async def remove_excess(connection: PostgresConnection, has_begun: bool) -> list[Any]:
            weighs, aim = int(await connection.fetchval(sql.TOTAL_SIZE)), int(self._max_bytes * _SWEEP_TARGET_RATIO)
            if weighs <= (aim if has_begun else self._max_bytes):
                return []
            return await connection.fetch(sql.DELETE_EXCESS, weighs - aim, _SWEEP_BATCH)

        gone = await self._remove_in_batches(remove_expired)
        if isinstance(gone, StoreDown):
            return gone
        more = await self._remove_in_batches(remove_excess) if self._max_bytes else 0
        return more if isinstance(more, StoreDown) else SweepResult(gone, more)

    async def _remove_in_batches(
        self, remove: Callable[[PostgresConnection, bool], Awaitable[list[Any]]]
    ) -> int | StoreDown:
        """In portions, until nothing is left to do: how many went."""
        total = 0

        async def work(connection: PostgresConnection) -> int:
            async with connection.transaction():
                if not await connection.fetchval(sql.TRY_SWEEP_LOCK, sql.SWEEP_LOCK):
                    return 0
                return len(await remove(connection, total > 0))

        while True:
            gone = await self._pool.run_work(work, is_idempotent=False, deadline=_LONG_TIMEOUT)
            if isinstance(gone, StoreDown):
                return gone
            total += gone
            if gone < _SWEEP_BATCH:
                return total

    async def stats(self) -> StoreStats | StoreDown:
        async def work(connection: PostgresConnection) -> StoreStats:
            now = self._clock()
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                kinds = await connection.fetch(sql.COUNT_BY_KIND, now)
                totals = await connection.fetchrow(sql.TOTALS, now)
            return StoreStats(
                where=self._pool.location,
                version=self._schema_version,
                kinds=tuple(KindStats(*row) for row in kinds),
                limit=self._max_bytes,
                encrypted=False,
                **totals,
            )

        return await self._pool.run_work(work, is_idempotent=True, deadline=_LONG_TIMEOUT)

    async def export(self, owner: str | None = None) -> AsyncIterator[Entry | StoreDown]:
        """As everything is at the beginning, also when it takes long."""
        try:
            async with (
                self._pool.borrow_connection() as connection,
                connection.transaction(isolation="repeatable_read", readonly=True),
            ):
                found = await connection.cursor(sql.EXPORT, self._clock(), owner)
                while page := await found.fetch(_EXPORT_PAGE, timeout=_LONG_TIMEOUT):
                    for row in page:
                        yield _read_entry(row)
        except STORE_ERRORS as error:
            yield self._pool.make_down(error)


def _deduplicate_entries(entries: Sequence[Entry]) -> dict[tuple[str, str, str], Entry]:
    """By name; of two with one name the last, where it stands."""
    named: dict[tuple[str, str, str], Entry] = {}
    for entry in entries:
        name = (entry.owner, entry.kind, entry.id)
        named.pop(name, None)
        named[name] = entry
    return named


def _id_bytes(id: str) -> bytes:
    return id.encode("utf-8", "surrogatepass")


def _id_digest(id: bytes) -> bytes:
    return sha256(id).digest()


def _id_digests(ids: Sequence[str]) -> list[bytes]:
    return [_id_digest(_id_bytes(id)) for id in ids]


def _parent_lock_number(entry: Entry) -> int:
    """The number of the lock under which a parent gets its children."""
    named = b"\0".join((_id_bytes(entry.owner), _id_bytes(entry.kind), _id_bytes(entry.parent)))
    return int.from_bytes(_id_digest(named)[:8], signed=True)


def _read_entry(row: Any) -> Entry:
    owner, kind, id, parent, place, mark, created, expires, body = row
    return Entry(
        owner=owner, kind=kind, id=id.decode("utf-8", "surrogatepass"), parent=parent.decode("utf-8", "surrogatepass"),
        place=place, mark=mark, created=created, expires=expires, body=body,
    )  # fmt: skip
