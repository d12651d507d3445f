"""Who waits for the file: one thread has it, and whatever waits meanwhile is written together."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from toolwire.gateway.store.record import Down
from toolwire.gateway.store.sqlite_file import PASSING, Unusable, connected, said
from toolwire.gateway.store.sqlite_file import code as fault

T = TypeVar("T")
Work = Callable[[sqlite3.Connection, float], T]
"""Something to do with the file at a time, within a transaction that is not its own."""
TOGETHER = 256
PAUSE = 1.0
"""Seconds without a further try after the file could not be used, so that not every request waits for a dead disk."""
_FAULTS = (sqlite3.Error, OSError, Unusable)
_MISTAKES = (sqlite3.ProgrammingError, sqlite3.InterfaceError, ValueError, OverflowError)
"""Ours, not the file's: they are raised."""


class _Job(Struct, eq=False):
    work: Work[Any]
    writes: bool
    told: asyncio.Future[Any]


class Line:
    """Jobs for one file, in the order in which they came. Nothing is opened before the first."""

    def __init__(
        self,
        path: Path,
        now: Callable[[], float],
        pragmas: Mapping[str, int | str],
        steps: Sequence[Sequence[str]],
    ) -> None:
        self._path, self._now, self._pragmas, self._steps = path, now, pragmas, steps
        self._waiting: list[_Job] = []
        self._serving: asyncio.Task[None] | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._closed = False
        # What follows is the thread's alone.
        self._connection: sqlite3.Connection | None = None
        self._file = (0, 0)
        self._down: Down | None = None
        self._since = 0.0

    async def ask(self, work: Work[T], writes: bool = True) -> T | Down:
        """What the work gives; it is on the disk then. A caller that goes away does not take its job with it."""
        if self._closed:
            return Down(f"the store {self._path} is closed")
        job = _Job(work, writes, asyncio.get_running_loop().create_future())
        self._waiting.append(job)
        if self._serving is None or self._serving.done():
            self._serving = asyncio.create_task(self._serve())
        answer: T | Down = await job.told
        return answer

    async def trim(self) -> None:
        """Give back what the file does not need beside it; when others read it, it is done another time."""
        if not self._closed:
            await asyncio.get_running_loop().run_in_executor(self._own_thread(), self._trim)

    async def close(self) -> None:
        """Finish what was accepted."""
        self._closed = True
        if self._serving is not None and not self._serving.done():
            await asyncio.wait([self._serving])
        if self._thread is not None:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._drop)
            self._thread.shutdown(wait=False)
            self._thread = None

    def _own_thread(self) -> ThreadPoolExecutor:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "toolwire-store")
        return self._thread

    async def _serve(self) -> None:
        jobs: list[_Job] = []
        try:
            while self._waiting:
                jobs, self._waiting = self._waiting[:TOGETHER], self._waiting[TOGETHER:]
                work = asyncio.get_running_loop().run_in_executor(self._own_thread(), self._do, jobs)
                done = await asyncio.gather(work, return_exceptions=True)
                for at, job in enumerate(jobs):
                    _tell(job.told, done[0] if isinstance(done[0], BaseException) else done[0][at])
        finally:
            for job in (*jobs, *self._waiting):  # not told: the loop itself comes to its end
                job.told.cancel()

    # --- in the thread ---

    def _do(self, jobs: Sequence[_Job]) -> list[Any]:
        """All jobs in one transaction. When one fails, each by itself: it may be the only one that cannot be done."""
        now = self._now()
        if self._down is not None and 0 <= now - self._since < PAUSE:
            return [self._down] * len(jobs)
        try:
            connection = self._ready()
            connection.execute("BEGIN IMMEDIATE" if any(job.writes for job in jobs) else "BEGIN")
        except _FAULTS as error:
            return [self._failed(error, now)] * len(jobs)
        try:
            results = [job.work(connection, now) for job in jobs]
            connection.execute("COMMIT")
        except (*_FAULTS, *_MISTAKES) as error:
            with suppress(sqlite3.Error):  # some faults have rolled it back already
                connection.execute("ROLLBACK")
            if len(jobs) > 1:
                return [result for job in jobs for result in self._do([job])]
            return [error if isinstance(error, _MISTAKES) else self._failed(error, now)]
        self._down = None
        return results

    def _ready(self) -> sqlite3.Connection:
        """The open file; opened again when somebody has moved or replaced it."""
        if self._connection is not None and self._file != _identity(self._path):
            self._drop()
        if self._connection is None:
            self._connection = connected(self._path, self._pragmas, self._steps)
            self._file = _identity(self._path)
        return self._connection

    def _failed(self, error: Exception, now: float) -> Down:
        down = Down(said(self._path, error))
        if fault(error) not in PASSING:
            self._drop()
            self._down, self._since = down, now
        return down

    def _drop(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def _trim(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.execute("PRAGMA busy_timeout = 0").fetchall()
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                self._connection.execute(f"PRAGMA busy_timeout = {self._pragmas['busy_timeout']}").fetchall()


def _tell(told: asyncio.Future[Any], result: object) -> None:
    if told.done():  # its caller has gone
        return
    if isinstance(result, BaseException):
        told.set_exception(result)
    else:
        told.set_result(result)


def _identity(path: Path) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return (0, 0)
    return found.st_dev, found.st_ino
