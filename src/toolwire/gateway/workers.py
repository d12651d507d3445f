"""Several processes on one port: each serves by itself, one that dies is replaced, signals go to all."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress

from toolwire.gateway.settings.config import Server
from toolwire.gateway.telemetry.metrics import DIRECTORY

SHORT = 1.0
"""A worker that lives no longer than this many seconds is replaced only after a moment."""


Work = Callable[[int], None]
"""Serves until told to stop, or until the file descriptor that it is given comes to its end: then nobody looks after
it any more."""


def run(server: Server, work: Work, ready: Callable[[], None]) -> int:
    """Start the workers and look after them until told to stop. They share a directory for their counters."""
    own = "" if os.environ.get(DIRECTORY) else tempfile.mkdtemp(prefix="toolwire-")
    if own:
        os.environ[DIRECTORY] = own
    try:
        crew = _Crew(server.workers, work)
        ready()
        return crew.watch()
    finally:
        if own:
            shutil.rmtree(own, ignore_errors=True)


class _Crew:
    def __init__(self, count: int, work: Work) -> None:
        self._work = work
        self._lifeline, self._held = os.pipe()
        self._born: dict[int, float] = {}
        self._stopping = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGHUP, self._pass_on)
        for _ in range(count):
            self._start()

    def _start(self) -> None:
        pid = os.fork()
        if pid:
            self._born[pid] = time.monotonic()
            if self._stopping:  # told while it was born
                os.kill(pid, signal.SIGTERM)
            return
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # it is about to read the file anyway
        os.close(self._held)
        status = 1
        try:
            self._work(self._lifeline)
            status = 0
        finally:
            os._exit(status)

    def _stop(self, number: int, _frame: object) -> None:
        self._stopping = True
        self._pass_on(number, None)

    def _pass_on(self, number: int, _frame: object) -> None:
        for pid in tuple(self._born):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def watch(self) -> int:
        """Until the last worker has gone."""
        while self._born:
            pid, _ = os.wait()
            born = self._born.pop(pid, None)
            if born is None or self._stopping:
                continue
            if time.monotonic() - born < SHORT:
                time.sleep(SHORT)
            if not self._stopping:
                self._start()
        return 0
