"""A store in PostgreSQL, which several gateways share."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from hashlib import sha256
from typing import Any

from toolwire.gateway.store import postgres_sql as sql
from toolwire.gateway.store.postgres_faults import BROKEN, WRONG, Undone
from toolwire.gateway.store.postgres_pool import Connection, Pool
from toolwire.gateway.store.record import Down, Entry, Kind, Stats, Swept, until

_AT_ONCE = 2000
"""Entries in one transaction of a sweep, so that nobody waits long for one of them."""
_PAGE = 20
"""Entries that an export fetches at once."""
_ROOM = 0.9
"""What a sweep of a store that is too large leaves of its limit."""
_PATIENCE = 60.0
"""Seconds for what looks at every entry."""


class Postgres:
    """`now` is the clock, `rest` the seconds for which a server that is gone is not asked again, `deadline` those that
    a verb may take; sweeps, counts and exports have longer."""

    def __init__(
        self,
        url: str,
        *,
        ttl: float = 30 * 24 * 3600.0,
        max_bytes: int = 0,
        now: Callable[[], float] = time.time,
        rest: float = 1.0,
        deadline: float = 5.0,
        migrations: Sequence[str] = sql.MIGRATIONS,
    ) -> None:
        self._ttl, self._limit, self._now, self._version = ttl, max_bytes, now, len(migrations)
        self._pool = Pool(url, rest=rest, deadline=deadline, migrations=migrations)

    # --- verbs ---

    async def get(self, owner: str, kind: str, ids: Sequence[str]) -> list[Entry] | Down:
        names = {_bytes(id): None for id in ids}

        async def work(connection: Connection) -> list[Entry]:
            rows = await connection.fetch(sql.GET, owner, kind, [_digest(name) for name in names], self._now())
            found = {row["id"]: row for row in rows}
            return [_entry(found[name]) for name in names if name in found]

        return await self._pool.run(work, again=True)

    async def put(
        self, entries: Sequence[Entry], where: tuple[str, ...] = (), behind: Sequence[Entry] = ()
    ) -> bool | Down:
        if behind:
            return await self._together(entries, where, behind)

        async def work(connection: Connection) -> bool:
            return await self._written(connection, entries, where)

        # Twice under a condition: the second would find what the first made.
        return await self._pool.run(work, again=not where) if entries else True

    async def _written(self, connection: Connection, entries: Sequence[Entry], where: tuple[str, ...]) -> bool:
        if not entries:
            return True
        now = self._now()
        # In the order of their names, so that no two writers wait for each other.
        columns = self._columns((entry for _, entry in sorted(_once(entries).items())), now)
        if not where:
            await connection.execute(sql.PUT, *columns)
            return True
        first = entries[0]
        name = (first.owner, first.kind, _digest(_bytes(first.id)))
        return bool(await connection.fetchval(sql.PUT_WHERE, *columns, *name, list(where), now))

    async def append(self, entries: Sequence[Entry]) -> bool | Down:
        return await self.put((), (), entries)

    async def _together(self, entries: Sequence[Entry], where: tuple[str, ...], behind: Sequence[Entry]) -> bool | Down:
        locks = sorted({_lock(entry) for entry in behind})

        async def work(connection: Connection) -> bool:
            # In one message with the beginning, and as a statement of its own: the next one then sees what others,
            # who had the lock before, have written.
            begin = f"BEGIN; {'; '.join(f'SELECT pg_advisory_xact_lock({lock})' for lock in locks)}"
            try:
                await connection.execute(begin)
                wanted = await self._written(connection, entries, where)
                if wanted:
                    await connection.execute(sql.APPEND, *self._columns(_once(behind).values(), self._now()))
            except BROKEN as error:
                raise Undone from error
            await connection.execute("COMMIT" if wanted else "ROLLBACK")
            return wanted

        return await self._pool.run(work, again=False)

    async def chain(self, owner: str, kind: str, id: str, most: int) -> list[Entry] | Down:
        return await self._entries(sql.CHAIN, owner, kind, _digest(_bytes(id)), self._now(), most)

    async def children(
        self, owner: str, kind: str, parent: str, after: int | None = None, most: int = 0, descending: bool = False
    ) -> list[Entry] | Down:
        digest = _digest(_bytes(parent))
        return await self._entries(sql.CHILDREN[descending], owner, kind, digest, self._now(), after, most)

    async def delete(self, owner: str, kind: str, ids: Sequence[str]) -> int | Down:
        async def work(connection: Connection) -> int:
            return int(await connection.fetchval(sql.DELETE, owner, kind, _digests(ids), self._now()))

        # Twice: the second would count what the first has left, none.
        return await self._pool.run(work, again=False)

    async def touch(self, owner: str, kind: str, ids: Sequence[str], expires: float) -> Down | None:
        async def work(connection: Connection) -> None:
            now = self._now()
            await connection.execute(sql.TOUCH, owner, kind, _digests(ids), until(expires, now, self._ttl), now)

        return await self._pool.run(work, again=True)

    async def close(self) -> None:
        await self._pool.close()

    async def _entries(self, statement: str, *values: object) -> list[Entry] | Down:
        async def work(connection: Connection) -> list[Entry]:
            return [_entry(row) for row in await connection.fetch(statement, *values)]

        return await self._pool.run(work, again=True)

    def _columns(self, entries: Iterable[Entry], now: float) -> tuple[list[Any], ...]:
        """What a statement writes, by column."""
        rows = [
            (
                entry.owner,
                entry.kind,
                _bytes(entry.id),
                _bytes(entry.parent),
                entry.place,
                entry.mark,
                entry.created or now,
                until(entry.expires, now, self._ttl),
                entry.body,
            )
            for entry in entries
        ]
        return tuple(map(list, zip(*rows, strict=True)))

    # --- housekeeping ---

    async def sweep(self) -> Swept | Down:
        """One gateway at a time; what another is sweeping already, this one leaves to it."""
        now = self._now()

        async def expired(connection: Connection, _: bool) -> list[Any]:
            return await connection.fetch(sql.EXPIRED, now, _AT_ONCE)

        async def crowded(connection: Connection, begun: bool) -> list[Any]:
            weighs, aim = int(await connection.fetchval(sql.WEIGHT)), int(self._limit * _ROOM)
            if weighs <= (aim if begun else self._limit):
                return []
            return await connection.fetch(sql.CROWDED, weighs - aim, _AT_ONCE)

        gone = await self._repeated(expired)
        if isinstance(gone, Down):
            return gone
        more = await self._repeated(crowded) if self._limit else 0
        return more if isinstance(more, Down) else Swept(gone, more)

    async def _repeated(self, remove: Callable[[Connection, bool], Awaitable[list[Any]]]) -> int | Down:
        """In portions, until nothing is left to do: how many went."""
        total = 0

        async def work(connection: Connection) -> int:
            async with connection.transaction():
                if not await connection.fetchval(sql.MAY_SWEEP, sql.SWEEPING):
                    return 0
                return len(await remove(connection, total > 0))

        while True:
            gone = await self._pool.run(work, again=False, deadline=_PATIENCE)
            if isinstance(gone, Down):
                return gone
            total += gone
            if gone < _AT_ONCE:
                return total

    async def stats(self) -> Stats | Down:
        async def work(connection: Connection) -> Stats:
            now = self._now()
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                kinds = await connection.fetch(sql.KINDS, now)
                totals = await connection.fetchrow(sql.TOTALS, now)
            return Stats(
                where=self._pool.place,
                version=self._version,
                kinds=tuple(Kind(*row) for row in kinds),
                limit=self._limit,
                encrypted=False,
                **totals,
            )

        return await self._pool.run(work, again=True, deadline=_PATIENCE)

    async def export(self, owner: str | None = None) -> AsyncIterator[Entry | Down]:
        """As everything is at the beginning, also when it takes long."""
        try:
            async with (
                self._pool.lent() as connection,
                connection.transaction(isolation="repeatable_read", readonly=True),
            ):
                found = await connection.cursor(sql.EXPORT, self._now(), owner)
                while page := await found.fetch(_PAGE, timeout=_PATIENCE):
                    for row in page:
                        yield _entry(row)
        except WRONG as error:
            yield self._pool.down(error)


def _once(entries: Sequence[Entry]) -> dict[tuple[str, str, str], Entry]:
    """By name; of two with one name the last, where it stands."""
    named: dict[tuple[str, str, str], Entry] = {}
    for entry in entries:
        name = (entry.owner, entry.kind, entry.id)
        named.pop(name, None)
        named[name] = entry
    return named


def _bytes(id: str) -> bytes:
    return id.encode("utf-8", "surrogatepass")


def _digest(id: bytes) -> bytes:
    return sha256(id).digest()


def _digests(ids: Sequence[str]) -> list[bytes]:
    return [_digest(_bytes(id)) for id in ids]


def _lock(entry: Entry) -> int:
    """The number of the lock under which a parent gets its children."""
    named = b"\0".join((_bytes(entry.owner), _bytes(entry.kind), _bytes(entry.parent)))
    return int.from_bytes(_digest(named)[:8], signed=True)


def _entry(row: Any) -> Entry:
    owner, kind, id, parent, place, mark, created, expires, body = row
    return Entry(
        owner=owner, kind=kind, id=id.decode("utf-8", "surrogatepass"), parent=parent.decode("utf-8", "surrogatepass"),
        place=place, mark=mark, created=created, expires=expires, body=body,
    )  # fmt: skip
