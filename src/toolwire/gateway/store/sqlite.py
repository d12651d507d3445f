"""A store in one SQLite file, which the workers of one gateway share: its operations, and how it makes room."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from toolwire.gateway.store.sqlite_worker import DEADLINE, ERROR_TEXTS, LONG_DEADLINE, MIGRATIONS, PRAGMAS, SqliteWorker
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
_CHAIN = f"""WITH RECURSIVE chain (depth, entry, parent, size) AS (
        SELECT 1, rowid, parent, length(body) FROM entries WHERE owner = ?1 AND kind = ?2 AND id = ?3 AND expires > ?6
        UNION ALL
        SELECT depth + 1, entries.rowid, entries.parent, size + length(body) FROM chain CROSS JOIN entries
        WHERE chain.parent <> '' AND depth < ?4 AND size < ?5
            AND owner = ?1 AND kind = ?2 AND id = chain.parent AND expires > ?6
    )
    SELECT {_COLUMNS.replace("parent", "entries.parent")}
    FROM chain CROSS JOIN entries ON entries.rowid = chain.entry ORDER BY depth DESC"""
_CHILDREN = f"""SELECT {_COLUMNS} FROM entries
    WHERE owner = ? AND parent = ? AND kind = ? AND place > ? AND expires > ? ORDER BY place, id"""
_COUNT_BY_KIND = """SELECT kind, count(*), sum(length(body)) FROM entries WHERE expires > ?
    GROUP BY kind ORDER BY kind"""
_TOTALS = """SELECT count(DISTINCT owner) FILTER (WHERE expires > ?1), min(created) FILTER (WHERE expires > ?1),
    count(*) FILTER (WHERE expires <= ?1) FROM entries"""
_MIN_PLACE = -(2**63)
_BATCH_SIZE = 500
"""Maximum number of entries or pages in one transaction of a sweep or export, so that requests are served between."""
_BATCH_BYTES = 8 * 1024 * 1024
"""About how many bytes one transaction of a sweep removes."""
_ENTRY_OVERHEAD = 300
"""Approximate bytes of an entry besides its body."""
_EXPORT_PAGE_BYTES = 4 * 1024 * 1024


class SqliteStore:
    """The `Store` in SQLite. Only tests pass other `pragmas` and `migrations`."""

    def __init__(
        self,
        path: Path,
        *,
        ttl: float = 30 * 24 * 3600.0,
        max_bytes: int = 0,
        clock: Callable[[], float] = time.time,
        cipher: BodyCipher = NO_CIPHER,
        pragmas: Mapping[str, int | str] = PRAGMAS,
        migrations: Sequence[Sequence[str]] = MIGRATIONS,
    ) -> None:
        self._path, self._ttl, self._max_bytes, self._cipher = path, ttl, max_bytes, cipher
        self._schema_version = len(migrations)
        self.worker = SqliteWorker(path, clock, pragmas, migrations)
        self._trim_task: asyncio.Task[int | StoreDown] | None = None

    # --- operations ---

    async def get(self, owner: str, kind: str, ids: Sequence[str]) -> Entries:
        def work(file: sqlite3.Connection, now: float) -> list[Entry]:
            rows = (file.execute(_GET, (owner, kind, id, now)).fetchone() for id in dict.fromkeys(ids))
            return [_read_entry(row) for row in rows if row is not None]

        return self._cipher.decrypt_all(await self.worker.run_work(work, writes=False))

    async def put(
        self, entries: Sequence[Entry] = (), required_marks: tuple[str, ...] = (), appended: Sequence[Entry] = ()
    ) -> bool | StoreDown:
        entries, appended = self._cipher.encrypt_all(entries), self._cipher.encrypt_all(appended)
        size = sum(len(entry.body) + _ENTRY_OVERHEAD for entry in (*entries, *appended))
        if self._max_bytes and size > self._max_bytes:
            return self.worker.make_down(ERROR_TEXTS[sqlite3.SQLITE_TOOBIG])

        def work(file: sqlite3.Connection, now: float) -> bool | None:
            if not self._has_room(file, now, size):
                return None
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

        deadline = time.monotonic() + DEADLINE
        while (result := await self.worker.run_work(work)) is None:
            down = await self._make_room(size, deadline)
            if down is not None:
                return down
        return result

    async def add(self, entry: Entry) -> bool | StoreDown:
        (encrypted,) = self._cipher.encrypt_all([entry])

        def work(file: sqlite3.Connection, now: float) -> bool:
            if file.execute(_GET_MARK, (entry.owner, entry.kind, entry.id, now)).fetchone() is not None:
                return False
            file.execute(_PUT, self._entry_row(encrypted, entry.place, now))
            return True

        return await self.worker.run_work(work)

    async def _make_room(self, size: int, deadline: float) -> StoreDown | None:
        if time.monotonic() > deadline:
            return self.worker.make_down("it is full, and removing old entries takes long")
        removed = await self.worker.run_work(partial(_shrink, target=self._max_bytes - size))
        self._start_trimming()
        return removed if isinstance(removed, StoreDown) else None

    def _has_room(self, file: sqlite3.Connection, now: float, size: int) -> bool:
        """Is there room for so many bytes? A store without entries has room for everything."""
        return not self._max_bytes or _used_bytes(file, now) + size <= self._max_bytes or not _has_entries(file)

    async def get_chain(self, owner: str, kind: str, id: str, limit: int, max_bytes: int = UNLIMITED) -> Entries:
        return await self._fetch_entries(_CHAIN, owner, kind, id, limit, max_bytes)

    async def get_children(
        self, owner: str, kind: str, parent: str, after: int | None = None, max_bytes: int = UNLIMITED
    ) -> Entries:
        place = _MIN_PLACE if after is None else after
        return await self._fetch_entries(_CHILDREN, owner, parent, kind, place, max_bytes=max_bytes)

    async def _fetch_entries(self, statement: str, *values: object, max_bytes: int = UNLIMITED) -> Entries:
        """The entries that a statement finds, up to the one with which they reach `max_bytes`; the statement's last
        parameter is the current time."""

        def work(file: sqlite3.Connection, now: float) -> list[Entry]:
            return _read_page(file.execute(statement, (*values, now)), max_bytes)

        return self._cipher.decrypt_all(await self.worker.run_work(work, writes=False))

    async def delete(self, owner: str, kind: str, ids: Sequence[str]) -> int | StoreDown:
        def work(file: sqlite3.Connection, now: float) -> int:
            deleted = 0
            for id in dict.fromkeys(ids):
                deleted += any(expires > now for (expires,) in file.execute(_DELETE, (owner, kind, id)).fetchall())
                if id:  # "" means no parent
                    file.execute("DELETE FROM entries WHERE owner = ? AND parent = ? AND kind <> ?", (owner, id, kind))
            return deleted

        return await self.worker.run_work(work)

    async def touch(self, owner: str, kind: str, ids: Sequence[str], expires: float) -> StoreDown | None:
        def work(file: sqlite3.Connection, now: float) -> None:
            rows = [(expiry_time(expires, now, self._ttl), owner, kind, id, now) for id in ids]
            file.executemany(f"UPDATE entries SET expires = max(expires, ?) WHERE {_BY_NAME} AND expires > ?", rows)

        return await self.worker.run_work(work)

    async def run_sql(
        self, work: Callable[[Rows, float], Coroutine[Any, Any, Value]], writes: bool = False, is_long: bool = False
    ) -> Value | StoreDown:
        def run(file: sqlite3.Connection, now: float) -> Value:
            try:
                work(_SqliteRows(file), now).send(None)
            except StopIteration as done:
                result: Value = done.value
                return result
            raise RuntimeError("work in the thread of the file waits for something else")

        return await self.worker.run_work(run, writes=writes, deadline=LONG_DEADLINE if is_long else None)

    @property
    def replacement(self) -> str:
        return self.worker.replacement

    async def check_usable(self) -> StoreDown | None:
        def work(file: sqlite3.Connection, _now: float) -> bool:
            _has_entries(file)
            return os.access(self._path, os.W_OK)

        can_write = await self.worker.run_work(work, writes=False)
        if can_write is True and self.worker.is_full:
            can_write = await self.worker.run_work(_write_header)
        if isinstance(can_write, StoreDown):
            return None if can_write.is_busy else can_write
        return None if can_write else self.worker.make_down(ERROR_TEXTS[sqlite3.SQLITE_READONLY])

    async def close(self) -> None:
        if self._trim_task is not None:
            self._trim_task.cancel()
        await self.worker.close()

    def _entry_row(self, entry: Entry, place: int, now: float) -> tuple[object, ...]:
        expires = expiry_time(entry.expires, now, self._ttl)
        name = (entry.owner, entry.kind, entry.id)
        return (*name, entry.body, entry.parent, place, entry.mark, entry.created or now, expires)

    # --- housekeeping ---

    async def sweep(self) -> SweepResult | StoreDown:
        expired = await self.worker.repeat_work(_remove_expired)
        if isinstance(expired, StoreDown):
            return expired
        excess = await self._remove_excess()
        if isinstance(excess, StoreDown):
            return excess
        freed = await self.worker.repeat_work(_free_pages)
        await self.worker.truncate_wal()
        return freed if isinstance(freed, StoreDown) else SweepResult(expired, excess)

    async def _remove_excess(self) -> int | StoreDown:
        """If the store is larger than `max_bytes`, remove entries of its largest owners."""
        used = await self.worker.run_work(_used_bytes, writes=False)
        if isinstance(used, StoreDown):
            return used
        return await self._trim() if self._max_bytes and used > self._max_bytes else 0

    async def _trim(self) -> int | StoreDown:
        """Remove entries until there is some room."""
        return await self.worker.repeat_work(partial(_shrink, target=int(self._max_bytes * SWEEP_TARGET_RATIO)))

    def _start_trimming(self) -> None:
        """Make some room in the background, so that not every write has to."""
        if self._trim_task is None or self._trim_task.done():
            self._trim_task = asyncio.create_task(self._trim())

    async def stats(self) -> StoreStats | StoreDown:
        def work(file: sqlite3.Connection, now: float) -> StoreStats:
            kinds = file.execute(_COUNT_BY_KIND, (now,))
            owners, oldest, expired = file.execute(_TOTALS, (now,)).fetchone()
            return StoreStats(
                where=str(self._path),
                version=self._schema_version,
                kinds=tuple(KindStats(*row) for row in kinds),
                owners=owners,
                expired=expired,
                oldest=oldest,
                size=sum(os.path.getsize(file) for file in (self._path, f"{self._path}-wal") if os.path.exists(file)),
                limit=self._max_bytes,
                encrypted=self._cipher.has_keys,
            )

        return await self.worker.run_work(work, writes=False, deadline=LONG_DEADLINE)

    async def export(self, owner: str | None = None) -> AsyncIterator[Entry | StoreDown]:
        after_last = "(owner, kind, id) > (?1, ?2, ?3)" if owner is None else "owner = ?1 AND (kind, id) > (?2, ?3)"
        statement = f"SELECT {_COLUMNS} FROM entries WHERE {after_last} AND expires > ?4"
        statement += " ORDER BY owner, kind, id LIMIT ?5"
        last = (owner or "", "", "")

        def work(file: sqlite3.Connection, now: float) -> list[Entry]:
            return _read_page(file.execute(statement, (*last, now, _BATCH_SIZE)), _EXPORT_PAGE_BYTES)

        while True:
            entries = await self.worker.run_work(work, writes=False, deadline=LONG_DEADLINE)
            if isinstance(entries, StoreDown):
                yield entries
                return
            for entry in entries:
                yield self._cipher.decrypt(entry)
            if not entries:
                return
            last = (entries[-1].owner, entries[-1].kind, entries[-1].id)


class _SqliteRows:
    """Answers at once: it is used in the thread of the file."""

    def __init__(self, file: sqlite3.Connection) -> None:
        self._file = file

    async def fetch(self, statement: str, *values: object) -> Sequence[Any]:
        return self._file.execute(statement.replace("toolwire_", "").replace("$", "?"), values).fetchall()


def _read_entry(row: tuple[Any, ...]) -> Entry:
    return Entry(**dict(zip(_COLUMN_NAMES, row, strict=True)))


def _read_page(rows: Iterable[tuple[Any, ...]], max_bytes: int) -> list[Entry]:
    """The entries up to the one with which their bodies reach the limit."""
    page: list[Entry] = []
    size = 0
    for row in rows:
        page.append(_read_entry(row))
        size += len(page[-1].body)
        if size >= max_bytes:
            break
    return page


def _used_bytes(file: sqlite3.Connection, _now: float) -> int:
    return (_read_pragma(file, "page_count") - _read_pragma(file, "freelist_count")) * _read_pragma(file, "page_size")


def _read_pragma(file: sqlite3.Connection, pragma: str) -> int:
    return int(file.execute(f"PRAGMA {pragma}").fetchone()[0])


def _write_header(file: sqlite3.Connection, now: float) -> bool:
    """Write the least that there is, to see whether the disk has room again."""
    (version,) = file.execute("PRAGMA user_version").fetchone()
    file.execute(f"PRAGMA user_version = {version}")
    return True


def _has_entries(file: sqlite3.Connection) -> bool:
    return file.execute("SELECT 1 FROM entries LIMIT 1").fetchone() is not None


def _shrink(file: sqlite3.Connection, now: float, target: int) -> int:
    """Remove a batch of entries if the file has more bytes in use than this: expired ones, then of the owners with the
    most bytes those that expire first."""
    excess = _used_bytes(file, now) - target
    if excess <= 0:
        return 0
    removed, size = _remove_first(file, _FIRST_EXPIRED, now, _Batch(_BATCH_SIZE, min(excess, _BATCH_BYTES)))
    if size >= excess or removed >= _BATCH_SIZE:
        return removed
    for owner, surplus in owner_excess(dict(file.execute(_OWNER_SIZES)), excess - size).items():
        batch = _Batch(_BATCH_SIZE - removed, min(surplus, _BATCH_BYTES - size))
        count, length = _remove_first(file, _FIRST_OF_OWNER, owner, batch)
        removed, size = removed + count, size + length
        if removed >= _BATCH_SIZE or size >= _BATCH_BYTES:
            break
    return removed


_Row = tuple[int, str, str, str, str, int]
_ROW_COLUMNS = "rowid, owner, kind, id, parent, length(body)"
_FIRST_EXPIRED = f"SELECT {_ROW_COLUMNS} FROM entries WHERE expires <= ? ORDER BY expires, rowid LIMIT 1"
_FIRST_OF_OWNER = f"SELECT {_ROW_COLUMNS} FROM entries WHERE owner = ? ORDER BY expires, rowid LIMIT 1"
_OWNER_SIZES = f"SELECT owner, sum(length(body)) + count(*) * {_ENTRY_OVERHEAD} FROM entries GROUP BY owner"
_ROOT = f"SELECT {_ROW_COLUMNS} FROM entries WHERE {_BY_NAME}"
_GROUP_CHILDREN = "SELECT rowid, length(body) FROM entries WHERE owner = ? AND parent = ? AND kind <> ? LIMIT ?"
_HIDDEN_PREFIX = "~"
"""Before the kind of an entry that is removed, as long as entries are left that belong to it."""
_HIDE = "UPDATE OR REPLACE entries SET kind = ?, parent = '', body = x'', expires = 0.5 WHERE rowid = ?"
"""Nobody can find it any more, and it is the first that is removed next."""


class _Batch(NamedTuple):
    """How many entries and bytes one transaction removes at most."""

    entries: int
    size: int


def _remove_expired(file: sqlite3.Connection, now: float) -> int:
    return _remove_first(file, _FIRST_EXPIRED, now, _Batch(_BATCH_SIZE, _BATCH_BYTES))[0]


def _remove_first(file: sqlite3.Connection, statement: str, value: float | str, batch: _Batch) -> tuple[int, int]:
    """Remove the entries that a statement finds one after another, each with all that belongs to it (the items of a
    conversation, the events of a response). Returns the number and the size of the removed ones."""
    removed = size = 0
    while removed < batch.entries and size < batch.size:
        row: _Row | None = file.execute(statement, (value,)).fetchone()
        if row is None:
            break
        if statement is not _FIRST_EXPIRED:
            row = _find_root(file, row) or row
        count, length = _remove_group(file, row, batch.entries - removed)
        removed += count
        size += length
    return removed, size


def _find_root(file: sqlite3.Connection, row: _Row) -> _Row | None:
    """The entry that this one belongs to, which is removed with it, so that nothing is left in part."""
    _, owner, kind, _, parent, _ = row
    roots = (file.execute(_ROOT, (owner, root, parent)).fetchone() for root in ROOT_KINDS if parent and root != kind)
    return next((root for root in roots if root is not None), None)


def _remove_group(file: sqlite3.Connection, row: _Row, limit: int) -> tuple[int, int]:
    """Remove an entry and those that belong to it. If these are too many for one transaction, the entry is hidden
    first, and removed with the last of them. Returns the number and the size of the removed ones."""
    rowid, owner, kind, id, _, size = row
    kind = kind.removeprefix(_HIDDEN_PREFIX)
    children: list[tuple[int]] = []
    is_whole = True
    for child, length in file.execute(_GROUP_CHILDREN, (owner, id, kind, limit + 1)) if id else ():
        if len(children) == limit or (children and size > _BATCH_BYTES):  # never none: there would be no end
            is_whole = False
            break
        children.append((child,))
        size += length + _ENTRY_OVERHEAD
    file.executemany("DELETE FROM entries WHERE rowid = ?", [*children, (rowid,)] if is_whole else children)
    if not is_whole:
        file.execute(_HIDE, (f"{_HIDDEN_PREFIX}{kind}", rowid))
    return len(children) + is_whole, size + _ENTRY_OVERHEAD


def _free_pages(file: sqlite3.Connection, _now: float) -> int:
    """Return some free pages to the disk; returns their number."""
    before = _read_pragma(file, "freelist_count")
    file.execute(f"PRAGMA incremental_vacuum({_BATCH_SIZE})").fetchall()
    return before - _read_pragma(file, "freelist_count")
