"""A store in one SQLite file, which the workers of one gateway share."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from toolwire.gateway.store import sqlite_connection
from toolwire.gateway.store.sqlite_connection import MIGRATIONS, PRAGMAS, SqliteWorker
from toolwire.gateway.store.store import Entry, KindStats, StoreDown, StoreStats, SweepResult, expiry_time

_COLUMNS = "owner, kind, id, body, parent, place, mark, created, expires"
_COLUMN_NAMES = _COLUMNS.split(", ")
_BY_NAME = "owner = ? AND kind = ? AND id = ?"
_GET = f"SELECT {_COLUMNS} FROM entries WHERE {_BY_NAME} AND expires > ?"
_GET_MARK = f"SELECT mark FROM entries WHERE {_BY_NAME} AND expires > ?"
_PUT = f"""INSERT INTO entries ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (owner, kind, id) DO UPDATE SET body = excluded.body, parent = excluded.parent,
    place = excluded.place, mark = excluded.mark, created = excluded.created, expires = excluded.expires"""
_DELETE = f"DELETE FROM entries WHERE {_BY_NAME} RETURNING expires"
_NEXT_PLACE = "SELECT coalesce(max(place), -1) + 1 FROM entries WHERE owner = ? AND parent = ? AND kind = ?"
_CHAIN = f"""WITH RECURSIVE chain (depth, entry, parent) AS (
        SELECT 1, rowid, parent FROM entries WHERE owner = ?1 AND kind = ?2 AND id = ?3 AND expires > ?5
        UNION ALL
        SELECT depth + 1, entries.rowid, entries.parent FROM chain CROSS JOIN entries
        WHERE chain.parent <> '' AND depth < ?4 AND owner = ?1 AND kind = ?2 AND id = chain.parent AND expires > ?5
    )
    SELECT {_COLUMNS.replace("parent", "entries.parent")}
    FROM chain CROSS JOIN entries ON entries.rowid = chain.entry ORDER BY depth DESC"""
_CHILDREN = f"""SELECT {_COLUMNS} FROM entries
    WHERE owner = ? AND parent = ? AND kind = ? AND place > ? AND expires > ? ORDER BY place, id"""
_MIN_PLACE = -(2**63)
_BATCH_SIZE = 500
"""Maximum number of entries or pages in one transaction of a sweep or export, so that requests are served between."""
_ENTRY_OVERHEAD = 300
"""Approximate bytes of an entry besides its body."""
_EXPORT_PAGE_BYTES = 4 * 1024 * 1024
_SWEEP_TARGET_RATIO = 0.9
"""When the store exceeds `max_bytes`, a sweep shrinks it to this part of `max_bytes`."""


class SqliteStore:
    """The `Store` in SQLite. Only tests pass other `pragmas` and `migrations`."""

    def __init__(
        self,
        path: Path,
        *,
        ttl: float = 30 * 24 * 3600.0,
        max_bytes: int = 0,
        clock: Callable[[], float] = time.time,
        pragmas: Mapping[str, int | str] = PRAGMAS,
        migrations: Sequence[Sequence[str]] = MIGRATIONS,
    ) -> None:
        self._path, self._ttl, self._max_bytes, self._schema_version = path, ttl, max_bytes, len(migrations)
        self._worker = SqliteWorker(path, clock, pragmas, migrations)

    # --- operations ---

    async def get(self, owner: str, kind: str, ids: Sequence[str]) -> list[Entry] | StoreDown:
        def work(file: sqlite3.Connection, now: float) -> list[Entry]:
            rows = (file.execute(_GET, (owner, kind, id, now)).fetchone() for id in dict.fromkeys(ids))
            return [_read_entry(row) for row in rows if row is not None]

        return await self._worker.run_work(work, writes=False)

    async def put(
        self, entries: Sequence[Entry] = (), required_marks: tuple[str, ...] = (), appended: Sequence[Entry] = ()
    ) -> bool | StoreDown:
        def work(file: sqlite3.Connection, now: float) -> bool:
            if required_marks and entries:
                first = entries[0]
                marked = file.execute(_GET_MARK, (first.owner, first.kind, first.id, now)).fetchone()
                if marked is None or marked[0] not in required_marks:
                    return False
            for entry in entries:
                file.execute(_PUT, self._entry_row(entry, entry.place, now))
            for entry in appended:
                (place,) = file.execute(_NEXT_PLACE, (entry.owner, entry.parent, entry.kind)).fetchone()
                file.execute(_PUT, self._entry_row(entry, place, now))
            return True

        return await self._worker.run_work(work)

    async def get_chain(self, owner: str, kind: str, id: str, limit: int) -> list[Entry] | StoreDown:
        return await self._fetch_entries(_CHAIN, owner, kind, id, limit)

    async def get_children(
        self, owner: str, kind: str, parent: str, after: int | None = None
    ) -> list[Entry] | StoreDown:
        return await self._fetch_entries(_CHILDREN, owner, parent, kind, _MIN_PLACE if after is None else after)

    async def _fetch_entries(self, statement: str, *values: object) -> list[Entry] | StoreDown:
        """The entries that a statement finds; its last parameter is the current time."""

        def work(file: sqlite3.Connection, now: float) -> list[Entry]:
            return [_read_entry(row) for row in file.execute(statement, (*values, now))]

        return await self._worker.run_work(work, writes=False)

    async def delete(self, owner: str, kind: str, ids: Sequence[str]) -> int | StoreDown:
        def work(file: sqlite3.Connection, now: float) -> int:
            deleted = 0
            for id in dict.fromkeys(ids):
                deleted += any(expires > now for (expires,) in file.execute(_DELETE, (owner, kind, id)).fetchall())
                if id:  # "" means no parent
                    file.execute("DELETE FROM entries WHERE owner = ? AND parent = ? AND kind <> ?", (owner, id, kind))
            return deleted

        return await self._worker.run_work(work)

    async def touch(self, owner: str, kind: str, ids: Sequence[str], expires: float) -> StoreDown | None:
        def work(file: sqlite3.Connection, now: float) -> None:
            rows = [(expiry_time(expires, now, self._ttl), owner, kind, id, now) for id in ids]
            file.executemany(f"UPDATE entries SET expires = max(expires, ?) WHERE {_BY_NAME} AND expires > ?", rows)

        return await self._worker.run_work(work)

    async def close(self) -> None:
        await self._worker.close()

    def _entry_row(self, entry: Entry, place: int, now: float) -> tuple[object, ...]:
        expires = expiry_time(entry.expires, now, self._ttl)
        name = (entry.owner, entry.kind, entry.id)
        return (*name, entry.body, entry.parent, place, entry.mark, entry.created or now, expires)

    # --- housekeeping ---

    async def sweep(self) -> SweepResult | StoreDown:
        expired = await self._run_in_batches(_remove_expired)
        if isinstance(expired, StoreDown):
            return expired
        excess = await self._remove_excess()
        if isinstance(excess, StoreDown):
            return excess
        freed = await self._run_in_batches(_free_pages)
        await self._worker.truncate_wal()
        return freed if isinstance(freed, StoreDown) else SweepResult(expired, excess)

    async def _remove_excess(self) -> int | StoreDown:
        """If the store is larger than `max_bytes`, remove the entries that expire first."""
        used = await self._worker.run_work(_used_bytes, writes=False)
        if isinstance(used, StoreDown):
            return used
        if not self._max_bytes or used <= self._max_bytes:
            return 0
        target = int(self._max_bytes * _SWEEP_TARGET_RATIO)
        return await self._run_in_batches(lambda file, now: _remove_oldest(file, _used_bytes(file, now) - target))

    async def _run_in_batches(self, work: Callable[[sqlite3.Connection, float], int]) -> int | StoreDown:
        """Repeat `work` in small transactions until it returns 0; returns the sum."""
        total = 0
        while True:
            done = await self._worker.run_work(work)
            if isinstance(done, StoreDown):
                return done
            if not done:
                return total
            total += done

    async def stats(self) -> StoreStats | StoreDown:
        def work(file: sqlite3.Connection, now: float) -> StoreStats:
            kinds = file.execute(
                "SELECT kind, count(*), sum(length(body)) FROM entries WHERE expires > ? GROUP BY kind ORDER BY kind",
                (now,),
            )
            owners, oldest = file.execute(
                "SELECT count(DISTINCT owner), min(created) FROM entries WHERE expires > ?", (now,)
            ).fetchone()
            (expired,) = file.execute("SELECT count(*) FROM entries WHERE expires <= ?", (now,)).fetchone()
            return StoreStats(
                where=str(self._path),
                version=self._schema_version,
                kinds=tuple(KindStats(*row) for row in kinds),
                owners=owners,
                expired=expired,
                oldest=oldest,
                size=sqlite_connection.file_size(self._path),
                limit=self._max_bytes,
                encrypted=False,
            )

        return await self._worker.run_work(work, writes=False)

    async def export(self, owner: str | None = None) -> AsyncIterator[Entry | StoreDown]:
        after_last = "(owner, kind, id) > (?1, ?2, ?3)" if owner is None else "owner = ?1 AND (kind, id) > (?2, ?3)"
        statement = f"SELECT {_COLUMNS} FROM entries WHERE {after_last} AND expires > ?4 ORDER BY owner, kind, id"
        last = (owner or "", "", "")

        def work(file: sqlite3.Connection, now: float) -> list[Entry]:
            page: list[Entry] = []
            size = 0
            for row in file.execute(statement, (*last, now)):
                page.append(_read_entry(row))
                size += len(page[-1].body)
                if size > _EXPORT_PAGE_BYTES or len(page) == _BATCH_SIZE:
                    break
            return page

        while True:
            entries = await self._worker.run_work(work, writes=False)
            if isinstance(entries, StoreDown):
                yield entries
                return
            for entry in entries:
                yield entry
            if not entries:
                return
            last = (entries[-1].owner, entries[-1].kind, entries[-1].id)


def _read_entry(row: tuple[Any, ...]) -> Entry:
    return Entry(**dict(zip(_COLUMN_NAMES, row, strict=True)))


def _used_bytes(file: sqlite3.Connection, _now: float) -> int:
    """Bytes of the file that are in use."""
    return (_read_pragma(file, "page_count") - _read_pragma(file, "freelist_count")) * _read_pragma(file, "page_size")


def _read_pragma(file: sqlite3.Connection, pragma: str) -> int:
    return int(file.execute(f"PRAGMA {pragma}").fetchone()[0])


def _remove_expired(file: sqlite3.Connection, now: float) -> int:
    first = "SELECT rowid FROM entries WHERE expires <= ? ORDER BY expires LIMIT ?"
    return file.execute(f"DELETE FROM entries WHERE rowid IN ({first})", (now, _BATCH_SIZE)).rowcount


def _remove_oldest(file: sqlite3.Connection, excess: int) -> int:
    """Remove the entries that expire first, about `excess` bytes of them; returns their number."""
    oldest: list[tuple[int]] = []
    if excess > 0:
        for row, length in file.execute(
            "SELECT rowid, length(body) FROM entries ORDER BY expires, rowid LIMIT ?", (_BATCH_SIZE,)
        ):
            oldest.append((row,))
            excess -= length + _ENTRY_OVERHEAD
            if excess <= 0:
                break
    file.executemany("DELETE FROM entries WHERE rowid = ?", oldest)
    return len(oldest)


def _free_pages(file: sqlite3.Connection, _now: float) -> int:
    """Return some free pages to the disk; returns their number."""
    before = _read_pragma(file, "freelist_count")
    file.execute(f"PRAGMA incremental_vacuum({_BATCH_SIZE})").fetchall()
    return before - _read_pragma(file, "freelist_count")
