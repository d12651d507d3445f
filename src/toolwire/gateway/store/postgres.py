"""A store in PostgreSQL, which several gateways can share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from hashlib import sha256
from typing import Any, Unpack

from msgspec.structs import replace

from toolwire.gateway.store.postgres_pool import (
    CONNECTION_ERRORS,
    KEYS_LOCK,
    STORE_ERRORS,
    SWEEP_LOCK,
    NothingWritten,
    PoolOptions,
    PostgresConnection,
    PostgresPool,
)
from toolwire.gateway.store.store import (
    NO_CIPHER,
    ROOT_KINDS,
    SWEEP_TARGET_RATIO,
    UNLIMITED,
    BodyCipher,
    Entries,
    Entry,
    KindStats,
    Rows,
    StoreDown,
    StoreStats,
    SweepResult,
    Value,
    expiry_time,
    owner_excess,
)

_SWEEP_BATCH = 500
"""Maximum number of entries that a sweep removes in one transaction, so that no request waits long for it."""
_EXPORT_PAGE = 20
"""Number of entries that an export fetches at once."""
_LONG_TIMEOUT = 60.0
"""Seconds for operations that read the whole table."""
_MEASURE_RATIO = 0.05
"""When a gateway has written this part of `max_bytes`, it measures the size of the store again."""
_MAKE_ROOM_TIMEOUT = 5.0
"""Seconds that a writer waits for room in a store that is too large."""
_ENTRY_OVERHEAD = 400
"""Approximate bytes of an entry besides its body."""


_COLUMNS = "owner, kind, id, parent, place, mark, created, expires, body"
_UNNEST_ROWS = """unnest($1::text[], $2::text[], $3::bytea[], $4::bytea[], $5::bigint[], $6::text[], $7::float8[],
    $8::float8[], $9::bytea[])"""
_ON_CONFLICT_UPDATE = """ON CONFLICT (sha256(id), owner, kind) DO UPDATE SET parent = excluded.parent,
    place = excluded.place, mark = excluded.mark, created = excluded.created, expires = excluded.expires,
    body = excluded.body"""

_GET = f"""SELECT {_COLUMNS} FROM toolwire_entries
    WHERE owner = $1 AND kind = $2 AND sha256(id) = ANY($3::bytea[]) AND expires > $4"""

_PUT = f"INSERT INTO toolwire_entries ({_COLUMNS}) SELECT * FROM {_UNNEST_ROWS} {_ON_CONFLICT_UPDATE}"

_ADD = f"""{_PUT} WHERE toolwire_entries.expires <= $10 RETURNING 1"""

# The row is locked before its mark is read. Of two concurrent writers, the second sees the mark that the first wrote.
_PUT_WHERE = f"""WITH first AS MATERIALIZED (
        SELECT 1 FROM toolwire_entries
        WHERE owner = $10 AND kind = $11 AND sha256(id) = $12 AND mark = ANY($13::text[]) AND expires > $14
        FOR UPDATE),
    written AS (
        INSERT INTO toolwire_entries ({_COLUMNS}) SELECT * FROM {_UNNEST_ROWS}
        WHERE EXISTS (SELECT FROM first) {_ON_CONFLICT_UPDATE}
        RETURNING 1)
    SELECT EXISTS (SELECT FROM written)"""

# Runs under a lock on each parent, taken by the statement before it, so that it sees what others have appended.
_APPEND = f"""INSERT INTO toolwire_entries ({_COLUMNS})
    SELECT owner, kind, id, parent,
        coalesce((SELECT max(place) FROM toolwire_entries AS there WHERE there.owner = new.owner
            AND sha256(there.parent) = sha256(new.parent) AND there.kind = new.kind), -1)
            + row_number() OVER (PARTITION BY owner, kind, parent ORDER BY number),
        mark, created, expires, body
    FROM {_UNNEST_ROWS} WITH ORDINALITY AS new (owner, kind, id, parent, place, mark, created, expires, body, number)
    {_ON_CONFLICT_UPDATE}"""

# LATERAL makes each step look up one entry; with a plain join PostgreSQL may read the whole table for each step.
_CHAIN = f"""WITH RECURSIVE chain AS (
        SELECT {_COLUMNS}, 1 AS depth, octet_length(body)::bigint AS size FROM toolwire_entries
        WHERE owner = $1 AND kind = $2 AND sha256(id) = $3 AND expires > $4
        UNION ALL
        SELECT older.*, depth + 1, size + octet_length(older.body) FROM chain CROSS JOIN LATERAL (
            SELECT {_COLUMNS} FROM toolwire_entries
            WHERE owner = $1 AND kind = $2 AND sha256(id) = sha256(chain.parent) AND expires > $4 LIMIT 1) AS older
        WHERE depth < $5 AND size < $6 AND chain.parent <> '')
    SELECT {_COLUMNS} FROM chain ORDER BY depth DESC LIMIT $5"""

_CHILDREN = f"""SELECT {_COLUMNS} FROM (
        SELECT {_COLUMNS}, sum(octet_length(body)) OVER (ORDER BY place, id) - octet_length(body) AS before
        FROM toolwire_entries
        WHERE owner = $1 AND kind = $2 AND sha256(parent) = $3 AND expires > $4 AND ($5::bigint IS NULL OR place > $5)
    ) AS children WHERE before < $6 ORDER BY place, id"""

_DELETE = """WITH deleted AS (
        DELETE FROM toolwire_entries WHERE owner = $1 AND kind = $2 AND sha256(id) = ANY($3::bytea[])
        RETURNING expires),
    deleted_children AS (
        DELETE FROM toolwire_entries WHERE owner = $1 AND kind <> $2 AND sha256(parent) = ANY($3::bytea[])
            AND parent <> '')
    SELECT count(*) FROM deleted WHERE expires > $4"""

_TOUCH = """UPDATE toolwire_entries SET expires = $4
    WHERE owner = $1 AND kind = $2 AND sha256(id) = ANY($3::bytea[]) AND expires > $5 AND expires < $4"""

_TRY_SWEEP_LOCK = "SELECT pg_try_advisory_xact_lock($1)"
# Rows that another transaction has locked are left for the next sweep, so that neither waits for the other.
_DELETE_EXPIRED = """WITH expired AS (
        SELECT ctid FROM toolwire_entries WHERE -expires >= -$1::float8 ORDER BY -expires DESC LIMIT $2
        FOR UPDATE SKIP LOCKED)
    DELETE FROM toolwire_entries WHERE ctid = ANY(ARRAY(SELECT ctid FROM expired)) RETURNING 1"""
# The size of the rows, not of the files, which shrink only after PostgreSQL's own vacuum.
_ENTRY_SIZE = f"pg_column_size(body) + octet_length(id) + octet_length(parent) + {_ENTRY_OVERHEAD}"
_OWNER_SIZES = f"SELECT owner, sum({_ENTRY_SIZE})::bigint FROM toolwire_entries GROUP BY owner"
# What belongs to a removed entry goes with it, and what an entry belongs to, so that no conversation is left in part.
_DELETE_EXCESS = f"""WITH first AS (
        SELECT owner, kind, id, parent, expires, {_ENTRY_SIZE} AS size FROM toolwire_entries
        WHERE 'o' || owner = 'o' || $4::text ORDER BY -expires DESC LIMIT $2 FOR UPDATE SKIP LOCKED),
    summed AS (
        SELECT *, sum(size) OVER (ORDER BY -expires DESC ROWS UNBOUNDED PRECEDING) - size AS before FROM first),
    removed AS MATERIALIZED (
        SELECT DISTINCT summed.owner, coalesce(root.kind, summed.kind) AS kind, coalesce(root.id, summed.id) AS id
        FROM summed LEFT JOIN LATERAL (
            SELECT kind, id FROM toolwire_entries AS there
            WHERE sha256(there.id) = sha256(summed.parent) AND there.owner = summed.owner AND summed.parent <> ''
                AND there.kind = ANY($3::text[]) AND there.kind <> summed.kind LIMIT 1) AS root ON true
        WHERE before < $1),
    roots AS (
        DELETE FROM toolwire_entries AS there USING removed
        WHERE sha256(there.id) = sha256(removed.id) AND there.owner = removed.owner AND there.kind = removed.kind
        RETURNING {_ENTRY_SIZE.replace("(", "(there.")} AS size),
    children AS (
        DELETE FROM toolwire_entries AS there USING removed
        WHERE sha256(there.parent) = sha256(removed.id) AND there.owner = removed.owner AND there.kind <> removed.kind
            AND there.parent <> ''
        RETURNING {_ENTRY_SIZE.replace("(", "(there.")} AS size)
    SELECT size FROM roots UNION ALL SELECT size FROM children"""

_COUNT_BY_KIND = """SELECT kind, count(*), sum(octet_length(body)) FROM toolwire_entries WHERE expires > $1
    GROUP BY kind ORDER BY kind"""
_TOTALS = """SELECT count(DISTINCT owner) FILTER (WHERE expires > $1) AS owners,
        count(*) FILTER (WHERE expires <= $1) AS expired,
        min(created) FILTER (WHERE expires > $1) AS oldest,
        pg_total_relation_size('toolwire_entries') AS size
    FROM toolwire_entries"""

_EXPORT = f"""SELECT {_COLUMNS} FROM toolwire_entries WHERE expires > $1 AND ($2::text IS NULL OR owner = $2)
    ORDER BY owner, kind, sha256(id)"""

_GET_SECRET = "SELECT body FROM toolwire_secrets WHERE name = $1"
_ADD_SECRET = "INSERT INTO toolwire_secrets (name, body) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING"
_REPLACE_SECRET = "UPDATE toolwire_secrets SET body = $3 WHERE name = $1 AND body = $2"


class PostgresStore:
    """The `Store` in PostgreSQL. Sweeps, statistics and exports may take longer than the pool's `deadline`."""

    def __init__(
        self,
        url: str,
        *,
        ttl: float = 30 * 24 * 3600.0,
        max_bytes: int = 0,
        clock: Callable[[], float] = time.time,
        cipher: BodyCipher = NO_CIPHER,
        **pool_options: Unpack[PoolOptions],
    ) -> None:
        self._ttl, self._max_bytes, self.clock, self._cipher = ttl, max_bytes, clock, cipher
        self.pool = PostgresPool(url, **pool_options)
        self._size = -1
        """The size of all entries when it was measured last, less what was removed since; -1 if it was not measured."""
        self._unmeasured = 0
        """Bytes that this gateway has written since then."""
        self._trim_task: asyncio.Task[int | StoreDown] | None = None

    # --- operations ---

    async def get(self, owner: str, kind: str, ids: Sequence[str]) -> Entries:
        entries = await self._fetch_entries(_GET, owner, kind, list(map(_id_digest, ids)), self.clock())
        if isinstance(entries, StoreDown):
            return entries
        found = {entry.id: entry for entry in entries}
        return [found[id] for id in dict.fromkeys(ids) if id in found]

    async def put(
        self, entries: Sequence[Entry] = (), required_marks: tuple[str, ...] = (), appended: Sequence[Entry] = ()
    ) -> bool | StoreDown:
        entries, appended = self._cipher.encrypt_all(entries), self._cipher.encrypt_all(appended)
        if not entries and not appended:
            return True
        await self._make_room(sum(len(entry.body) + _ENTRY_OVERHEAD for entry in (*entries, *appended)))
        locks = sorted({_parent_lock_number(entry) for entry in appended})

        async def write(connection: PostgresConnection) -> bool:
            return await self._write_entries(connection, entries, required_marks)

        async def write_and_append(connection: PostgresConnection) -> bool:
            # The locks are taken in the same round trip as BEGIN, but in statements of their own, so that the next
            # statement sees what the previous holder of a lock has written.
            begin = f"BEGIN; {'; '.join(f'SELECT pg_advisory_xact_lock({lock})' for lock in locks)}"
            try:
                await connection.execute(begin)
                is_written = await write(connection)
                if is_written:
                    await connection.execute(
                        _APPEND, *self._write_columns(_deduplicate_entries(appended).values(), self.clock())
                    )
            except CONNECTION_ERRORS as error:
                raise NothingWritten from error
            await connection.execute("COMMIT" if is_written else "ROLLBACK")
            return is_written

        # With a condition it is not repeated: the second attempt would find what the first one wrote.
        is_idempotent = not appended and not required_marks
        return await self.pool.run_work(write_and_append if appended else write, is_idempotent=is_idempotent)

    async def _write_entries(
        self, connection: PostgresConnection, entries: Sequence[Entry], required_marks: tuple[str, ...]
    ) -> bool:
        if not entries:
            return True
        # Sorted by name, so that two writers of the same entries cannot deadlock.
        now, by_name = self.clock(), sorted(_deduplicate_entries(entries).items())
        columns = self._write_columns((entry for _, entry in by_name), now)
        if not required_marks:
            await connection.execute(_PUT, *columns)
            return True
        first = entries[0]
        name = (first.owner, first.kind, _id_digest(first.id))
        return bool(await connection.fetchval(_PUT_WHERE, *columns, *name, list(required_marks), now))

    async def add(self, entry: Entry) -> bool | StoreDown:
        now = self.clock()
        columns = self._write_columns(self._cipher.encrypt_all([entry]), now)
        # Not repeated: the second attempt would find what the first one wrote.
        added = await self.pool.run_work(
            lambda connection: connection.fetchval(_ADD, *columns, now), is_idempotent=False
        )
        return added if isinstance(added, StoreDown) else bool(added)

    async def get_chain(self, owner: str, kind: str, id: str, limit: int, max_bytes: int = UNLIMITED) -> Entries:
        return await self._fetch_entries(_CHAIN, owner, kind, _id_digest(id), self.clock(), limit, max_bytes)

    async def get_children(
        self, owner: str, kind: str, parent: str, after: int | None = None, max_bytes: int = UNLIMITED
    ) -> Entries:
        digest = _id_digest(parent)
        return await self._fetch_entries(_CHILDREN, owner, kind, digest, self.clock(), after, max_bytes)

    async def delete(self, owner: str, kind: str, ids: Sequence[str]) -> int | StoreDown:
        digests = list(map(_id_digest, ids))
        # Not repeated: the second attempt would count zero entries.
        return await self.pool.run_work(
            lambda connection: connection.fetchval(_DELETE, owner, kind, digests, self.clock()), is_idempotent=False
        )

    async def touch(self, owner: str, kind: str, ids: Sequence[str], expires: float) -> StoreDown | None:
        now, digests = self.clock(), list(map(_id_digest, ids))
        values = (owner, kind, digests, expiry_time(expires, now, self._ttl), now)
        done = await self.pool.run_work(lambda connection: connection.execute(_TOUCH, *values), is_idempotent=True)
        return done if isinstance(done, StoreDown) else None

    async def load_secret(self, name: str, new: bytes) -> bytes | StoreDown:
        entry = Entry(owner="", kind="secret", id=name, body=new)
        (draft,) = self._cipher.encrypt_all([entry])

        async def load(connection: PostgresConnection) -> bytes:
            body: bytes | None = await connection.fetchval(_GET_SECRET, name)
            if body is None:
                await connection.execute(_ADD_SECRET, name, draft.body)
                # Read again: another gateway may have been first.
                body = await connection.fetchval(_GET_SECRET, name)
            return body or b""

        body = await self.pool.run_work(load, is_idempotent=True)
        if isinstance(body, StoreDown):
            return body
        found = self._cipher.decrypt(replace(entry, body=body))
        if isinstance(found, StoreDown):
            return found
        if not self._cipher.is_current(body):
            # Unlike an entry it never expires, so it has to follow when the operator replaces the store's key.
            (again,) = self._cipher.encrypt_all([found])
            await self.pool.run_work(
                lambda connection: connection.execute(_REPLACE_SECRET, name, body, again.body), is_idempotent=True
            )
        return found.body

    async def run_sql(
        self, work: Callable[[Rows, float], Coroutine[Any, Any, Value]], writes: bool = False, is_long: bool = False
    ) -> Value | StoreDown:
        async def run(connection: PostgresConnection) -> Value:
            if not writes:
                return await work(connection, self.clock())
            async with connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock($1)", KEYS_LOCK)
                return await work(connection, self.clock())

        # What writes is not repeated: a second attempt would find what the first one wrote.
        deadline = _LONG_TIMEOUT if is_long else 0.0
        return await self.pool.run_work(run, is_idempotent=not writes, deadline=deadline)

    async def close(self) -> None:
        if self._trim_task is not None:
            self._trim_task.cancel()
        await self.pool.close()

    async def _fetch_entries(self, statement: str, *values: object) -> Entries:
        async def work(connection: PostgresConnection) -> list[Entry]:
            return [_read_entry(row) for row in await connection.fetch(statement, *values)]

        return self._cipher.decrypt_all(await self.pool.run_work(work, is_idempotent=True))

    def _write_columns(self, entries: Iterable[Entry], now: float) -> tuple[list[Any], ...]:
        """The values of the entries, as one list for each column."""
        rows = [
            (
                entry.owner, entry.kind, _id_bytes(entry.id), _id_bytes(entry.parent), entry.place, entry.mark,
                entry.created or now, expiry_time(entry.expires, now, self._ttl), entry.body,
            )
            for entry in entries
        ]  # fmt: skip
        return tuple(map(list, zip(*rows, strict=True)))

    # --- housekeeping ---

    async def sweep(self) -> SweepResult | StoreDown:
        """Remove expired entries, then the oldest if the store is too large. One gateway sweeps at a time."""
        now = self.clock()

        expired = await self._remove_in_batches(lambda connection: connection.fetch(_DELETE_EXPIRED, now, _SWEEP_BATCH))
        if isinstance(expired, StoreDown):
            return expired
        excess = await self._remove_excess() if self._max_bytes else 0
        return excess if isinstance(excess, StoreDown) else SweepResult(expired, excess)

    async def _remove_excess(self, incoming: int = 0) -> int | StoreDown:
        """If the store is larger than `max_bytes`, or would be with what is written next, remove entries of the owners
        with the most bytes, those that expire first. Its size is measured once, and then counted."""
        self._unmeasured = incoming
        rows: list[Any] | StoreDown = await self.pool.run_work(
            lambda connection: connection.fetch(_OWNER_SIZES), is_idempotent=True, deadline=_LONG_TIMEOUT
        )
        if isinstance(rows, StoreDown):
            return rows
        sizes: dict[str, int] = dict(rows)
        self._size = sum(sizes.values())
        if self._size + incoming <= self._max_bytes:
            return 0
        total = 0
        excess = self._size + incoming - int(self._max_bytes * SWEEP_TARGET_RATIO)
        for owner, surplus in owner_excess(sizes, excess).items():
            removed = await self._remove_of_owner(owner, surplus)
            if isinstance(removed, StoreDown):
                return removed
            total += removed
        return total

    async def _remove_of_owner(self, owner: str, surplus: int) -> int | StoreDown:
        async def remove(connection: PostgresConnection) -> list[Any]:
            nonlocal surplus
            if surplus <= 0:
                return []
            rows = await connection.fetch(_DELETE_EXCESS, surplus, _SWEEP_BATCH, list(ROOT_KINDS), owner)
            removed = sum(row[0] for row in rows)
            surplus -= removed
            self._size -= removed
            return rows

        return await self._remove_in_batches(remove)

    async def _remove_in_batches(self, remove: Callable[[PostgresConnection], Awaitable[list[Any]]]) -> int | StoreDown:
        """Repeat `remove` in small transactions until nothing is left to remove; returns the number of entries."""

        async def work(connection: PostgresConnection) -> int:
            async with connection.transaction():
                if not await connection.fetchval(_TRY_SWEEP_LOCK, SWEEP_LOCK):
                    return 0
                return len(await remove(connection))

        return await self.pool.repeat_work(work, _LONG_TIMEOUT)

    async def _make_room(self, size: int) -> None:
        """Count what is written, and shrink the store before it becomes larger than `max_bytes`. Other gateways write,
        too, so its size is measured again from time to time."""
        self._unmeasured += size
        is_stale = self._size < 0 or self._unmeasured > self._max_bytes * _MEASURE_RATIO
        is_full = self._size + self._unmeasured > self._max_bytes
        if not self._max_bytes or not (is_stale or is_full):
            return
        if self._trim_task is None or self._trim_task.done():
            self._trim_task = asyncio.create_task(self._remove_excess(size))
        if is_full:
            await asyncio.wait([self._trim_task], timeout=_MAKE_ROOM_TIMEOUT)

    async def stats(self) -> StoreStats | StoreDown:
        async def work(connection: PostgresConnection) -> StoreStats:
            now = self.clock()
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                kinds = await connection.fetch(_COUNT_BY_KIND, now)
                totals = await connection.fetchrow(_TOTALS, now)
            return StoreStats(
                where=self.pool.location,
                version=self.pool.schema_version,
                kinds=tuple(KindStats(*row) for row in kinds),
                limit=self._max_bytes,
                encrypted=self._cipher.has_keys,
                **totals,
            )

        return await self.pool.run_work(work, is_idempotent=True, deadline=_LONG_TIMEOUT)

    async def export(self, owner: str | None = None) -> AsyncIterator[Entry | StoreDown]:
        """Everything as it was at the start of the export, even if that takes long."""
        try:
            async with (
                self.pool.open_connection() as connection,
                connection.transaction(isolation="repeatable_read", readonly=True),
            ):
                cursor = await connection.cursor(_EXPORT, self.clock(), owner)
                while page := await cursor.fetch(_EXPORT_PAGE, timeout=_LONG_TIMEOUT):
                    for row in page:
                        yield self._cipher.decrypt(_read_entry(row))
        except STORE_ERRORS as error:
            yield self.pool.make_down(error)


def _deduplicate_entries(entries: Sequence[Entry]) -> dict[tuple[str, str, str], Entry]:
    """The entries by name. Of several with the same name, the last one and its position count."""
    named: dict[tuple[str, str, str], Entry] = {}
    for entry in entries:
        name = (entry.owner, entry.kind, entry.id)
        named.pop(name, None)
        named[name] = entry
    return named


def _id_bytes(id: str) -> bytes:
    return id.encode("utf-8", "surrogatepass")


def _id_digest(id: str) -> bytes:
    return sha256(_id_bytes(id)).digest()


def _parent_lock_number(entry: Entry) -> int:
    """The number of the advisory lock for appending to this entry's parent."""
    named = b"\0".join((_id_bytes(entry.owner), _id_bytes(entry.kind), _id_bytes(entry.parent)))
    return int.from_bytes(sha256(named).digest()[:8], signed=True)


def _read_entry(row: Any) -> Entry:
    owner, kind, id, parent, place, mark, created, expires, body = row
    return Entry(
        owner=owner, kind=kind, id=id.decode("utf-8", "surrogatepass"), parent=parent.decode("utf-8", "surrogatepass"),
        place=place, mark=mark, created=created, expires=expires, body=body,
    )  # fmt: skip
