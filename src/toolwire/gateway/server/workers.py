"""Several processes on one port: each serves by itself, one that dies is replaced, signals go to all."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress

from toolwire.gateway.config.config import ServerSettings
from toolwire.gateway.telemetry.metrics import DIRECTORY_VARIABLE

MIN_WORKER_SECONDS = 1.0
"""A worker that lives no longer than this many seconds is replaced only after a moment."""


ServeWorker = Callable[[int], None]
"""Serves until told to stop, or until the file descriptor that it is given comes to its end: then nobody looks after
it any more."""


def run_workers(server: ServerSettings, serve_worker: ServeWorker, ready: Callable[[], None]) -> int:
    """Start the workers and look after them until told to stop. They share a directory for their counters."""
    own = "" if os.environ.get(DIRECTORY_VARIABLE) else tempfile.mkdtemp(prefix="toolwire-")
    if own:
        os.environ[DIRECTORY_VARIABLE] = own
    try:
        crew = _WorkerSupervisor(server.workers, serve_worker)
        ready()
        return crew.supervise()
    finally:
        if own:
            shutil.rmtree(own, ignore_errors=True)


class _WorkerSupervisor:
    def __init__(self, count: int, serve_worker: ServeWorker) -> None:
        self._serve_worker = serve_worker
        self._lifeline, self._lifeline_write_end = os.pipe()
        self._started_at: dict[int, float] = {}
        self._stopping = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop_workers)
        signal.signal(signal.SIGHUP, self._forward_signal)
        for _ in range(count):
            self._fork_worker()

    def _fork_worker(self) -> None:
        pid = os.fork()
        if pid:
            self._started_at[pid] = time.monotonic()
            if self._stopping:  # told while it was born
                os.kill(pid, signal.SIGTERM)
            return
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # it is about to read the file anyway
        os.close(self._lifeline_write_end)
        status = 1
        try:
            self._serve_worker(self._lifeline)
            status = 0
        finally:
            os._exit(status)

    def _stop_workers(self, number: int, _frame: object) -> None:
        self._stopping = True
        self._forward_signal(number, None)

    def _forward_signal(self, number: int, _frame: object) -> None:
        for pid in tuple(self._started_at):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def supervise(self) -> int:
        """Until the last worker has gone."""
        while self._started_at:
            pid, _ = os.wait()
            born = self._started_at.pop(pid, None)
            if born is None or self._stopping:
                continue
            if time.monotonic() - born < MIN_WORKER_SECONDS:
                time.sleep(MIN_WORKER_SECONDS)
            if not self._stopping:
                self._fork_worker()
        return 0
