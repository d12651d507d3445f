"""A SQLite file: opening it, the migrations of its tables, and the one thread that works on it."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from toolwire.gateway.http.large_work import DaemonThread
from toolwire.gateway.settings.times import format_time
from toolwire.gateway.store.migrations import read_steps
from toolwire.gateway.store.store import StoreDown

APPLICATION_ID = 0x74776B70
"""Written into the header of the file, so that a file of another program is recognised as such."""
PRAGMAS: Mapping[str, int | str] = {
    "busy_timeout": 4000,  # shorter than `DEADLINE`, so that a lock is reported as one
    "synchronous": "NORMAL",  # with WAL: a power cut may lose the last writes, a crash of the process loses nothing
    "journal_size_limit": 4 * 1024 * 1024,
}
MIGRATIONS: Sequence[Sequence[str]] = tuple(step.removesuffix(";").split(";\n") for step in read_steps("sqlite.sql"))
"""The statements of each step."""
_READ_HEADER = """SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema)
    FROM pragma_application_id, pragma_user_version"""
"""One statement, because another process may create the tables between two."""
_WAL_WAIT = 0.1


class UnusableFile(Exception):
    """A valid SQLite file that this version of toolwire cannot use."""


def open_database(
    path: Path, pragmas: Mapping[str, int | str], migrations: Sequence[Sequence[str]], deadline: float
) -> sqlite3.Connection:
    """Open or create the file and migrate its tables; raises `sqlite3.Error`, `OSError` or `UnusableFile`. It waits for
    other processes until the deadline, by the monotonic clock."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):  # readable by its owner only, because it contains conversations
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0)
    try:
        for name, value in pragmas.items():
            _limit_waiting(connection, pragmas, deadline)  # each statement may wait
            if name != "busy_timeout":
                connection.execute(f"PRAGMA {name} = {value}").fetchall()
        is_current = schema_version(connection, len(migrations)) == len(migrations)
        if not is_current:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # must be set before the first table is created
        _enable_wal(connection, deadline)
        _limit_waiting(connection, pragmas, deadline)
        if not is_current:
            _migrate_tables(connection, migrations)
    except BaseException:
        connection.close()
        raise
    return connection


def _limit_waiting(connection: sqlite3.Connection, pragmas: Mapping[str, int | str], deadline: float) -> None:
    """Let the next statements wait for other processes until the deadline, but not longer than configured."""
    left = max(1, int((deadline - time.monotonic()) * 1000))
    connection.execute(f"PRAGMA busy_timeout = {min(left, int(pragmas['busy_timeout']))}").fetchall()


def _enable_wal(connection: sqlite3.Connection, deadline: float) -> None:
    """Switch to WAL. SQLite's busy timeout does not apply here, so retry while another process does the same."""
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
            return
        except sqlite3.OperationalError as error:
            if time.monotonic() + _WAL_WAIT >= deadline or error_code(error) != sqlite3.SQLITE_BUSY:
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


def read_schema_version(path: Path) -> int | None:
    """The version of the tables of an existing file, which is not changed; None if the file cannot be used."""
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=0)
        with closing(connection):
            return schema_version(connection, len(MIGRATIONS))
    except (sqlite3.Error, UnusableFile):
        return None


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

ERROR_TEXTS = {
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
DEADLINE = 5.0
"""Seconds that an operation may take, with opening the file and waiting for other processes and for the thread."""
OPEN_DEADLINE = 4.0
"""Seconds that opening the file and waiting for other processes may take of that."""
PROBE_DEADLINE = 0.5
"""Seconds that opening an unusable file and waiting for other processes may take when it is tried again."""
LONG_DEADLINE = 60.0
"""Seconds for operations that read the whole table, which operators start."""
_FILE_ERRORS = (sqlite3.Error, OSError, UnusableFile)
_PROGRAMMING_ERRORS = (sqlite3.ProgrammingError, sqlite3.InterfaceError, ValueError, OverflowError)
"""Errors in our own code, which are raised to the caller."""


class _QueuedWork(Struct, eq=False):
    work: DatabaseWork[Any]
    writes: bool
    future: asyncio.Future[Any]


class SqliteWorker:
    """Runs jobs on one file, in order, in one thread. Jobs that arrive while it is busy share the next transaction. The
    file is opened by the first job. Nobody waits for it longer than `DEADLINE`, also if the disk hangs: while the
    thread hangs, new jobs fail at once."""

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
        self._thread = DaemonThread("toolwire-store")  # starts with the first job
        self._busy_since = 0.0
        """Since when the thread works on the same jobs; 0 while it has none."""
        self._finished_batches = 0
        self.replacement = ""
        """What has happened to the file while it was in use: it was removed, or replaced; "" if nothing has."""
        self.is_full = False
        """Did the disk have no room for the last write?"""
        self._closed = False
        # Only the thread uses these:
        self._connection: sqlite3.Connection | None = None
        self._opened_file_id = _NO_FILE
        self._has_short_timeout = False
        """Does the connection wait for other processes only as long as was left when it was opened, or for a probe?"""
        self._down: StoreDown | None = None
        self._down_since = 0.0
        self._is_locked = False
        """Is it only a lock of another process that makes the file unusable, so that it can be read?"""

    async def run_work(
        self, work: DatabaseWork[T], writes: bool = True, deadline: float | None = None
    ) -> T | StoreDown:
        """The result of `work`, once it is committed. The work is done even if the caller is cancelled, but not if it
        has not begun within `deadline` seconds."""
        if self._closed:
            return StoreDown(f"the store {self._path} is closed")
        if self._busy_since and time.monotonic() - self._busy_since > DEADLINE:
            return self._hanging()
        job = _QueuedWork(work, writes, asyncio.get_running_loop().create_future())
        finished = self._finished_batches
        self._queue.append(job)
        if self._queue_task is None or self._queue_task.done():
            self._queue_task = asyncio.create_task(self._run_queue())
        await asyncio.wait([job.future], timeout=DEADLINE if deadline is None else deadline)
        if not job.future.done():
            if job in self._queue:
                self._queue.remove(job)
            job.future.cancel()
            return self._hanging() if finished == self._finished_batches else self._busy()
        result: T | StoreDown = job.future.result()
        return result

    async def repeat_work(self, work: DatabaseWork[int]) -> int | StoreDown:
        """Repeat `work` in small transactions until it returns 0; returns the sum."""
        total = 0
        while done := await self.run_work(work):
            if isinstance(done, StoreDown):
                return done
            total += done
        return total

    def make_down(self, reason: str) -> StoreDown:
        return StoreDown(f"the store {self._path} cannot be used: {reason}")

    def _hanging(self) -> StoreDown:
        what = f"the disk did not answer within {DEADLINE:g} seconds"
        return self.make_down(f"{what}: does it hang, is it overloaded, or is it on a network drive?")

    def _busy(self) -> StoreDown:
        what = f"more is asked of it at the same time than it can do in {DEADLINE:g} seconds"
        return StoreDown(f"the store {self._path} is busy: {what}", is_busy=True)

    async def truncate_wal(self) -> None:
        """Shrink the write-ahead log; skipped while other processes are reading."""
        if not self._closed:
            await asyncio.wait([self._thread.call(self._checkpoint_wal)], timeout=DEADLINE)

    async def close(self) -> None:
        """Finish the queued work and close the file, unless the disk hangs."""
        self._closed = True
        if self._queue_task is not None and not self._queue_task.done():
            await asyncio.wait([self._queue_task], timeout=DEADLINE)
            self._queue_task.cancel()
        if self._connection is not None:
            await asyncio.wait([self._thread.call(self._close_connection)], timeout=DEADLINE)
        self._thread.end()

    async def _run_queue(self) -> None:
        jobs: list[_QueuedWork] = []
        try:
            while self._queue:
                jobs, self._queue = self._queue[:MAX_BATCH], self._queue[MAX_BATCH:]
                self._busy_since = time.monotonic()
                done = await self._thread.call(partial(self._run_batch, jobs))
                self._busy_since = 0.0
                self._finished_batches += 1
                for index, job in enumerate(jobs):
                    result = done if isinstance(done, BaseException) else done[index]
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
        """Run all jobs. While another process has locked the file, only those that read."""
        results = self._run_transaction(jobs)
        if isinstance(results, list):
            return results
        readers = [job for job in jobs if not job.writes]
        found: list[Any] | StoreDown = results
        if self._is_locked and 0 < len(readers) < len(jobs):
            found = self._run_transaction(readers)
        read = iter(found if isinstance(found, list) else repeat(found))
        return [results if job.writes else next(read) for job in jobs]

    def _run_transaction(self, jobs: Sequence[_QueuedWork]) -> list[Any] | StoreDown:
        """Run all jobs in one transaction. If one fails, run each in its own, so that only the bad one fails. Without a
        transaction nothing is run."""
        now, writes = self._clock(), any(job.writes for job in jobs)
        rests = self._down is not None and 0 <= now - self._down_since < RETRY_DELAY
        if self._down is not None and rests and (writes or not self._is_locked):
            return self._down
        try:
            connection = self._ensure_connection(OPEN_DEADLINE if self._down is None else PROBE_DEADLINE)
            connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
        except _FILE_ERRORS as error:
            return self._note_failure(error, now)
        try:
            results = [job.work(connection, now) for job in jobs]
            connection.execute("COMMIT")
        except (*_FILE_ERRORS, *_PROGRAMMING_ERRORS) as error:
            with suppress(sqlite3.Error):  # after some errors SQLite has rolled back already
                connection.execute("ROLLBACK")
            if len(jobs) > 1:
                return [result for job in jobs for result in self._run_batch([job])]
            return [error if isinstance(error, _PROGRAMMING_ERRORS) else self._note_failure(error, now)]
        if writes or not self._is_locked:
            self._down = None
        self.is_full = self.is_full and not writes
        return results

    def _ensure_connection(self, seconds: float) -> sqlite3.Connection:
        """The open file; reopened if the path now leads to another file. Opening it and the statement after that wait
        this long for other processes."""
        deadline = time.monotonic() + seconds
        if self._opened_file_id != _NO_FILE and (found := _file_id(self._path)) != self._opened_file_id:
            happened = "removed" if found == _NO_FILE else "replaced by another one"
            what = "what it had is no longer there, and the file that is there now is used"
            seen = f"while the gateway ran (seen at {format_time(self._clock())})"
            self.replacement = f"the file of the store, {self._path}, was {happened} {seen}: {what}"
            self._close_connection()
        if self._connection is None:
            self._connection = open_database(self._path, self._pragmas, self._migrations, deadline)
            self._opened_file_id = _file_id(self._path)
            self._has_short_timeout = True
        elif self._has_short_timeout and self._down is None:
            self._limit_waiting(self._connection, OPEN_DEADLINE)
        return self._connection

    def _limit_waiting(self, connection: sqlite3.Connection, seconds: float) -> None:
        """Let statements wait this long for other processes, but not longer than configured."""
        self._has_short_timeout = seconds < OPEN_DEADLINE
        _limit_waiting(connection, self._pragmas, time.monotonic() + seconds)

    def _note_failure(self, error: Exception, clock: float) -> StoreDown:
        text = ERROR_TEXTS.get(error_code(error), str(error))
        if isinstance(error, OSError):
            text = f"{error.strerror or error}; check the permissions of its folder"
        self._is_locked = error_code(error) == sqlite3.SQLITE_BUSY and self._connection is not None
        self.is_full = error_code(error) == sqlite3.SQLITE_FULL
        down = replace(self.make_down(text), is_busy=self._is_locked)
        if self._connection is not None and self._is_locked:
            self._limit_waiting(self._connection, PROBE_DEADLINE)
            self._down, self._down_since = down, clock
        elif error_code(error) not in SINGLE_JOB_ERRORS:
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


_NO_FILE = (0, 0)


def _file_id(path: Path) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return _NO_FILE
    return status.st_dev, status.st_ino
