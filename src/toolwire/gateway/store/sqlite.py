"""A store in one SQLite file, which the workers of one gateway share: opening, migrations, the one thread that works on
the file, and the operations."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from toolwire.gateway.store.store import (
    NO_CIPHER,
    SWEEP_TARGET_RATIO,
    UNLIMITED,
    BodyCipher,
    Entries,
    Entry,
    KindStats,
    StoreDown,
    StoreStats,
    SweepResult,
    expiry_time,
)

APPLICATION_ID = 0x74776B70
"""Written into the header of the file, so that a file of another program is recognised as such."""
PRAGMAS: Mapping[str, int | str] = {
    "busy_timeout": 5000,
    "synchronous": "NORMAL",  # with WAL: a power cut may lose the last writes, a crash of the process loses nothing
    "journal_size_limit": 4 * 1024 * 1024,
}
MIGRATIONS: Sequence[Sequence[str]] = (
    (
        """CREATE TABLE entries (
            owner TEXT NOT NULL, kind TEXT NOT NULL, id TEXT NOT NULL, parent TEXT NOT NULL, place INTEGER NOT NULL,
            mark TEXT NOT NULL, created REAL NOT NULL, expires REAL NOT NULL, body BLOB NOT NULL,
            UNIQUE (owner, kind, id)
        )""",
        "CREATE INDEX entries_by_parent ON entries (owner, parent, kind, place)",
        "CREATE INDEX entries_by_end ON entries (expires)",
    ),
)
"""Each step migrates the tables from one version to the next. Never change a released step."""
_READ_HEADER = """SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema)
    FROM pragma_application_id, pragma_user_version"""
"""One statement, because another process may create the tables between two."""
_WAL_TRIES, _WAL_WAIT = 50, 0.1


class UnusableFile(Exception):
    """A valid SQLite file that this version of toolwire cannot use."""


def open_database(
    path: Path, pragmas: Mapping[str, int | str], migrations: Sequence[Sequence[str]]
) -> sqlite3.Connection:
    """Open or create the file and migrate its tables; raises `sqlite3.Error`, `OSError` or `UnusableFile`."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):  # readable by its owner only, because it contains conversations
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0)
    try:
        for name, value in pragmas.items():
            connection.execute(f"PRAGMA {name} = {value}").fetchall()
        is_current = schema_version(connection, len(migrations)) == len(migrations)
        if not is_current:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # must be set before the first table is created
        _enable_wal(connection)
        if not is_current:
            _migrate_tables(connection, migrations)
    except BaseException:
        connection.close()
        raise
    return connection


def _enable_wal(connection: sqlite3.Connection) -> None:
    """Switch to WAL. SQLite's busy timeout does not apply here, so retry while another process does the same."""
    for left in reversed(range(_WAL_TRIES)):
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
            return
        except sqlite3.OperationalError as error:
            if not left or error_code(error) != sqlite3.SQLITE_BUSY:
                raise
            time.sleep(_WAL_WAIT)


def schema_version(connection: sqlite3.Connection, known_version: int) -> int:
    """The version of the tables; 0 if there are none yet."""
    application, version, table_count = connection.execute(_READ_HEADER).fetchone()
    if application != APPLICATION_ID and (application or version or table_count):
        raise UnusableFile("the file belongs to another program: set [store] url to another path")
    if version > known_version:
        raise UnusableFile(
            f"a newer version of toolwire made the tables (version {version}, this one knows {known_version}):"
            " update toolwire or use another file"
        )
    return int(version)


def _migrate_tables(connection: sqlite3.Connection, migrations: Sequence[Sequence[str]]) -> None:
    connection.execute("BEGIN EXCLUSIVE")
    try:
        version = schema_version(connection, len(migrations))  # read again: another process may have migrated it
        for statement in chain.from_iterable(migrations[version:]):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(migrations)}")
        connection.execute("COMMIT")
    except sqlite3.Error:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


# --- errors ---

_ERROR_TEXTS = {
    sqlite3.SQLITE_FULL: "the disk is full: free some space, or lower [store] max_bytes and run `toolwire store gc`",
    sqlite3.SQLITE_TOOBIG: "the entry is too large",
    sqlite3.SQLITE_NOTADB: "the file is not a SQLite file, or is damaged: move it away, and a new one is created",
    sqlite3.SQLITE_CORRUPT: "the file is damaged: move it away, and a new one is created",
    sqlite3.SQLITE_BUSY: "another process locked the file for too long: is one stuck, or is it on a network drive?",
    sqlite3.SQLITE_LOCKED: "another process locked the file for too long: is one stuck?",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened: check the permissions of its folder",
    sqlite3.SQLITE_PERM: "the file cannot be opened: check its permissions",
    sqlite3.SQLITE_READONLY: "the file cannot be written: check its permissions and those of its folder",
    sqlite3.SQLITE_IOERR: "the disk failed: see the system log",
}
SINGLE_JOB_ERRORS = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_CONSTRAINT})
"""Errors that concern one job only; the file is still usable."""


def error_code(error: BaseException) -> int:
    """SQLite's primary result code; 0 for other errors, such as those that Python's module raises itself."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


T = TypeVar("T")
DatabaseWork = Callable[[sqlite3.Connection, float], T]
"""A function of the connection and the current time, which runs in a transaction together with others."""
MAX_BATCH = 256
RETRY_DELAY = 1.0
"""Seconds until an unusable file is tried again, so that not every request waits for a dead disk."""
_FILE_ERRORS = (sqlite3.Error, OSError, UnusableFile)
_PROGRAMMING_ERRORS = (sqlite3.ProgrammingError, sqlite3.InterfaceError, ValueError, OverflowError)
"""Errors in our own code, which are raised to the caller."""


class _QueuedWork(Struct, eq=False):
    work: DatabaseWork[Any]
    writes: bool
    future: asyncio.Future[Any]


class SqliteWorker:
    """Runs jobs on one file, in order, in one thread. Jobs that arrive while it is busy share the next transaction. The
    file is opened by the first job."""

    def __init__(
        self,
        path: Path,
        clock: Callable[[], float],
        pragmas: Mapping[str, int | str],
        migrations: Sequence[Sequence[str]],
    ) -> None:
        self._path, self._clock, self._pragmas, self._migrations = path, clock, pragmas, migrations
        self._queue: list[_QueuedWork] = []
        self._queue_task: asyncio.Task[None] | None = None
        self._executor = ThreadPoolExecutor(1, "toolwire-store")  # starts its thread with the first job
        self._closed = False
        # Only the thread uses these:
        self._connection: sqlite3.Connection | None = None
        self._opened_file_id = (0, 0)
        self._down: StoreDown | None = None
        self._down_since = 0.0

    async def run_work(self, work: DatabaseWork[T], writes: bool = True) -> T | StoreDown:
        """The result of `work`, once it is committed. The work is done even if the caller is cancelled."""
        if self._closed:
            return StoreDown(f"the store {self._path} is closed")
        job = _QueuedWork(work, writes, asyncio.get_running_loop().create_future())
        self._queue.append(job)
        if self._queue_task is None or self._queue_task.done():
            self._queue_task = asyncio.create_task(self._run_queue())
        result: T | StoreDown = await job.future
        return result

    async def truncate_wal(self) -> None:
        """Shrink the write-ahead log; skipped while other processes are reading."""
        if not self._closed:
            await asyncio.get_running_loop().run_in_executor(self._executor, self._checkpoint_wal)

    async def close(self) -> None:
        """Finish the queued work and close the file."""
        self._closed = True
        if self._queue_task is not None and not self._queue_task.done():
            await asyncio.wait([self._queue_task])
        if self._connection is not None:
            await asyncio.get_running_loop().run_in_executor(self._executor, self._close_connection)
        self._executor.shutdown(wait=False)

    async def _run_queue(self) -> None:
        jobs: list[_QueuedWork] = []
        try:
            while self._queue:
                jobs, self._queue = self._queue[:MAX_BATCH], self._queue[MAX_BATCH:]
                work = asyncio.get_running_loop().run_in_executor(self._executor, self._run_batch, jobs)
                done = await asyncio.gather(work, return_exceptions=True)
                for index, job in enumerate(jobs):
                    result = done[0] if isinstance(done[0], BaseException) else done[0][index]
                    if job.future.done():  # the caller was cancelled
                        continue
                    if isinstance(result, BaseException):
                        job.future.set_exception(result)
                    else:
                        job.future.set_result(result)
        finally:
            for job in (*jobs, *self._queue):  # only when the event loop ends
                job.future.cancel()

    # --- in the thread ---

    def _run_batch(self, jobs: Sequence[_QueuedWork]) -> list[Any]:
        """Run all jobs in one transaction. If one fails, run each in its own, so that only the bad one fails."""
        now = self._clock()
        if self._down is not None and 0 <= now - self._down_since < RETRY_DELAY:
            return [self._down] * len(jobs)
        try:
            connection = self._ensure_connection()
            connection.execute("BEGIN IMMEDIATE" if any(job.writes for job in jobs) else "BEGIN")
        except _FILE_ERRORS as error:
            return [self._note_failure(error, now)] * len(jobs)
        try:
            results = [job.work(connection, now) for job in jobs]
            connection.execute("COMMIT")
        except (*_FILE_ERRORS, *_PROGRAMMING_ERRORS) as error:
            with suppress(sqlite3.Error):  # after some errors SQLite has rolled back already
                connection.execute("ROLLBACK")
            if len(jobs) > 1:
                return [result for job in jobs for result in self._run_batch([job])]
            return [error if isinstance(error, _PROGRAMMING_ERRORS) else self._note_failure(error, now)]
        self._down = None
        return results

    def _ensure_connection(self) -> sqlite3.Connection:
        """The open file; reopened if the path now leads to another file."""
        if self._connection is not None and self._opened_file_id != _file_id(self._path):
            self._close_connection()
        if self._connection is None:
            self._connection = open_database(self._path, self._pragmas, self._migrations)
            self._opened_file_id = _file_id(self._path)
        return self._connection

    def _note_failure(self, error: Exception, clock: float) -> StoreDown:
        text = _ERROR_TEXTS.get(error_code(error), str(error))
        if isinstance(error, OSError):
            text = f"{error.strerror or error}; check the permissions of its folder"
        down = StoreDown(f"the store {self._path} cannot be used: {text}")
        if error_code(error) not in SINGLE_JOB_ERRORS:
            self._close_connection()
            self._down, self._down_since = down, clock
        return down

    def _close_connection(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def _checkpoint_wal(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.execute("PRAGMA busy_timeout = 0").fetchall()
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                self._connection.execute(f"PRAGMA busy_timeout = {self._pragmas['busy_timeout']}").fetchall()


def _file_id(path: Path) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return (0, 0)
    return status.st_dev, status.st_ino


# --- the store ---

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
        self._worker = SqliteWorker(path, clock, pragmas, migrations)

    # --- operations ---

    async def get(self, owner: str, kind: str, ids: Sequence[str]) -> Entries:
        def work(file: sqlite3.Connection, now: float) -> list[Entry]:
            rows = (file.execute(_GET, (owner, kind, id, now)).fetchone() for id in dict.fromkeys(ids))
            return [_read_entry(row) for row in rows if row is not None]

        return self._cipher.decrypt_all(await self._worker.run_work(work, writes=False))

    async def put(
        self, entries: Sequence[Entry] = (), required_marks: tuple[str, ...] = (), appended: Sequence[Entry] = ()
    ) -> bool | StoreDown:
        entries, appended = self._cipher.encrypt_all(entries), self._cipher.encrypt_all(appended)

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
            found: list[Entry] = []
            size = 0
            for row in file.execute(statement, (*values, now)):
                found.append(_read_entry(row))
                size += len(found[-1].body)
                if size >= max_bytes:
                    break
            return found

        return self._cipher.decrypt_all(await self._worker.run_work(work, writes=False))

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
        target = int(self._max_bytes * SWEEP_TARGET_RATIO)
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
                yield self._cipher.decrypt(entry)
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
