"""A SQLite file and the one thread that works on it: opening, migrations, batches of work, and readable errors."""

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
    _create_file(path)
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0)
    try:
        for name, value in pragmas.items():
            connection.execute(f"PRAGMA {name} = {value}").fetchall()
        if schema_version(connection, len(migrations)) < len(migrations):
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # must be set before the first table is created
        _enable_wal(connection)
        _migrate_tables(connection, migrations)
    except BaseException:
        connection.close()
        raise
    return connection


def _create_file(path: Path) -> None:
    """Create the file readable by its owner only, because it contains conversations."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


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
    if application == APPLICATION_ID:
        if version > known_version:
            versions = f"version {version}, this one knows {known_version}"
            raise UnusableFile(
                f"a newer version of toolwire made the tables ({versions}): update toolwire or use another file"
            )
        return int(version)
    if application or version or table_count:
        raise UnusableFile("the file belongs to another program: set [store] url to another path")
    return 0


def _migrate_tables(connection: sqlite3.Connection, migrations: Sequence[Sequence[str]]) -> None:
    if schema_version(connection, len(migrations)) == len(migrations):
        return
    connection.execute("BEGIN EXCLUSIVE")
    try:
        version = schema_version(connection, len(migrations))  # read again: another process may have migrated it
        for step in migrations[version:]:
            for statement in step:
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
    """SQLite's primary result code; 0 for other errors."""
    if not isinstance(error, sqlite3.Error):
        return 0
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF  # errors that Python's module raises itself have no code


def describe_error(path: Path, error: BaseException) -> str:
    """What is wrong with the file, and what to do."""
    if isinstance(error, OSError):
        return f"the store {path} cannot be used: {error.strerror or error}; check the permissions of its folder"
    return f"the store {path} cannot be used: {_ERROR_TEXTS.get(error_code(error), str(error))}"


def file_size(path: Path) -> int:
    """Bytes on the disk, including the write-ahead log."""
    total = 0
    for suffix in ("", "-wal"):
        with suppress(FileNotFoundError):
            total += os.stat(f"{path}{suffix}").st_size
    return total


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
        self._executor: ThreadPoolExecutor | None = None
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
            await asyncio.get_running_loop().run_in_executor(self._get_executor(), self._checkpoint_wal)

    async def close(self) -> None:
        """Finish the queued work and close the file."""
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
                for index, job in enumerate(jobs):
                    _set_result(job.future, done[0] if isinstance(done[0], BaseException) else done[0][index])
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
    if future.done():  # the caller was cancelled
        return
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)


def _file_id(path: Path) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return (0, 0)
    return status.st_dev, status.st_ino
