"""The file of a store in SQLite: how it is opened, what its tables are, and what its faults mean."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from toolwire.gateway.store.store import StoreDown

APPLICATION_ID = 0x74776B70
"""Stands in the head of the file, so that no other program's is taken for ours."""
PRAGMAS: Mapping[str, int | str] = {
    "busy_timeout": 5000,
    "synchronous": "NORMAL",  # in WAL: safe when the process dies; a power cut may cost the last moments, not the file
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
"""What brings the tables from each version to the next. Steps that were released are never changed."""
_READ_HEADER = """SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema)
    FROM pragma_application_id, pragma_user_version"""
"""In one statement: between two of them another process may make the tables."""
_WAL_TRIES, _WAL_WAIT = 50, 0.1


class UnusableFile(Exception):
    """A file that is there and sound, but not for us."""


def open_database(
    path: Path, pragmas: Mapping[str, int | str], migrations: Sequence[Sequence[str]]
) -> sqlite3.Connection:
    """The file, made where there is none, with its tables as they are now; raises `sqlite3.Error`, `OSError`,
    `Unusable`."""
    _create_file(path)
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0)
    try:
        for name, value in pragmas.items():
            connection.execute(f"PRAGMA {name} = {value}").fetchall()
        if schema_version(connection, len(migrations)) < len(migrations):
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # works only before the first table
        _enable_wal(connection)
        _migrate_tables(connection, migrations)
    except BaseException:
        connection.close()
        raise
    return connection


def _create_file(path: Path) -> None:
    """Only for whoever runs the gateway: it holds what users say."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _enable_wal(connection: sqlite3.Connection) -> None:
    """Two that make the same file at once get in each other's way here, and SQLite does not wait by itself."""
    for left in reversed(range(_WAL_TRIES)):
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
            return
        except sqlite3.OperationalError as error:
            if not left or error_code(error) != sqlite3.SQLITE_BUSY:
                raise
            time.sleep(_WAL_WAIT)


def schema_version(connection: sqlite3.Connection, known_version: int) -> int:
    """Their version; 0 when there are none yet."""
    application, version, things = connection.execute(_READ_HEADER).fetchone()
    if application == APPLICATION_ID:
        if version > known_version:
            newer = f"it was written by a newer toolwire (tables {version}, known {known_version})"
            raise UnusableFile(f"{newer}: update this one, or give it another file")
        return int(version)
    if application or version or things:
        raise UnusableFile("it belongs to another program: give [store] another path")
    return 0


def _migrate_tables(connection: sqlite3.Connection, migrations: Sequence[Sequence[str]]) -> None:
    if schema_version(connection, len(migrations)) == len(migrations):
        return
    connection.execute("BEGIN EXCLUSIVE")
    try:
        for step in migrations[
            schema_version(connection, len(migrations)) :
        ]:  # asked again: another process may have been quicker
            for statement in step:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(migrations)}")
        connection.execute("COMMIT")
    except sqlite3.Error:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


# --- what goes wrong ----------------------------------------------------------------------------------------------

_ERROR_TEXTS = {
    sqlite3.SQLITE_FULL: "the disk is full: make room, or lower [store] max_bytes and run `toolwire store gc`",
    sqlite3.SQLITE_TOOBIG: "this is too much for one entry",
    sqlite3.SQLITE_NOTADB: "it is no store, or damaged: move it away, and a new one is made",
    sqlite3.SQLITE_CORRUPT: "it is damaged: move it away, and a new one is made",
    sqlite3.SQLITE_BUSY: "another process holds it for too long: look for one that hangs, or a folder on the network",
    sqlite3.SQLITE_LOCKED: "another process holds it for too long: look for one that hangs",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened: look at the rights of its folder",
    sqlite3.SQLITE_PERM: "it cannot be opened: look at its rights",
    sqlite3.SQLITE_READONLY: "it cannot be written: look at its rights and those of its folder",
    sqlite3.SQLITE_IOERR: "the disk failed: see the system's log",
}
SINGLE_JOB_ERRORS = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_CONSTRAINT})
"""Faults of one job; the file can be read all the same."""


def error_code(error: BaseException) -> int:
    """SQLite's number for a fault, without its details; 0 for anything else."""
    found = getattr(error, "sqlite_errorcode", 0)
    return int(found) & 0xFF


def describe_error(path: Path, error: BaseException) -> str:
    """What is wrong with the file, and what can be done."""
    if isinstance(error, OSError):
        return f"the store {path} cannot be used: {error.strerror or error}; look at the rights of its folder"
    return f"the store {path} cannot be used: {_ERROR_TEXTS.get(error_code(error), str(error))}"


def file_size(path: Path) -> int:
    """Bytes on the disk, with what waits beside the file to be written into it."""
    total = 0
    for beside in ("", "-wal"):
        with suppress(FileNotFoundError):
            total += os.stat(f"{path}{beside}").st_size
    return total


T = TypeVar("T")
DatabaseWork = Callable[[sqlite3.Connection, float], T]
"""Something to do with the file at a time, within a transaction that is not its own."""
MAX_BATCH = 256
RETRY_DELAY = 1.0
"""Seconds without a further try after the file could not be used, so that not every request waits for a dead disk."""
_FILE_ERRORS = (sqlite3.Error, OSError, UnusableFile)
_PROGRAMMING_ERRORS = (sqlite3.ProgrammingError, sqlite3.InterfaceError, ValueError, OverflowError)
"""Ours, not the file's: they are raised."""


class _QueuedWork(Struct, eq=False):
    work: DatabaseWork[Any]
    writes: bool
    future: asyncio.Future[Any]


class SqliteWorker:
    """Jobs for one file, in the order in which they came. Nothing is opened before the first."""

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
        self._executor: ThreadPoolExecutor | None = None
        self._closed = False
        # What follows is the thread's alone.
        self._connection: sqlite3.Connection | None = None
        self._opened_file_id = (0, 0)
        self._down: StoreDown | None = None
        self._down_since = 0.0

    async def run_work(self, work: DatabaseWork[T], writes: bool = True) -> T | StoreDown:
        """What the work gives; it is on the disk then. A caller that goes away does not take its job with it."""
        if self._closed:
            return StoreDown(f"the store {self._path} is closed")
        job = _QueuedWork(work, writes, asyncio.get_running_loop().create_future())
        self._queue.append(job)
        if self._queue_task is None or self._queue_task.done():
            self._queue_task = asyncio.create_task(self._run_queue())
        answer: T | StoreDown = await job.future
        return answer

    async def truncate_wal(self) -> None:
        """Give back what the file does not need beside it; when others read it, it is done another time."""
        if not self._closed:
            await asyncio.get_running_loop().run_in_executor(self._get_executor(), self._checkpoint_wal)

    async def close(self) -> None:
        """Finish what was accepted."""
        self._closed = True
        if self._queue_task is not None and not self._queue_task.done():
            await asyncio.wait([self._queue_task])
        if self._executor is not None:
            await asyncio.get_running_loop().run_in_executor(self._executor, self._close_connection)
            self._executor.shutdown(wait=False)
            self._executor = None

    def _get_executor(self) -> ThreadPoolExecutor:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, "toolwire-store")
        return self._executor

    async def _run_queue(self) -> None:
        jobs: list[_QueuedWork] = []
        try:
            while self._queue:
                jobs, self._queue = self._queue[:MAX_BATCH], self._queue[MAX_BATCH:]
                work = asyncio.get_running_loop().run_in_executor(self._get_executor(), self._run_batch, jobs)
                done = await asyncio.gather(work, return_exceptions=True)
                for at, job in enumerate(jobs):
                    _set_result(job.future, done[0] if isinstance(done[0], BaseException) else done[0][at])
        finally:
            for job in (*jobs, *self._queue):  # not told: the loop itself comes to its end
                job.future.cancel()

    # --- in the thread ---

    def _run_batch(self, jobs: Sequence[_QueuedWork]) -> list[Any]:
        """All jobs in one transaction. When one fails, each by itself: it may be the only one that cannot be done."""
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
            with suppress(sqlite3.Error):  # some faults have rolled it back already
                connection.execute("ROLLBACK")
            if len(jobs) > 1:
                return [result for job in jobs for result in self._run_batch([job])]
            return [error if isinstance(error, _PROGRAMMING_ERRORS) else self._note_failure(error, now)]
        self._down = None
        return results

    def _ensure_connection(self) -> sqlite3.Connection:
        """The open file; opened again when somebody has moved or replaced it."""
        if self._connection is not None and self._opened_file_id != _file_id(self._path):
            self._close_connection()
        if self._connection is None:
            self._connection = open_database(self._path, self._pragmas, self._migrations)
            self._opened_file_id = _file_id(self._path)
        return self._connection

    def _note_failure(self, error: Exception, clock: float) -> StoreDown:
        down = StoreDown(describe_error(self._path, error))
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


def _set_result(future: asyncio.Future[Any], result: object) -> None:
    if future.done():  # its caller has gone
        return
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)


def _file_id(path: Path) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return (0, 0)
    return found.st_dev, found.st_ino
