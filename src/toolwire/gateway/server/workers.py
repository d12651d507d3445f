"""Several worker processes on one port: they are forked, replaced when they die, and get the signals of the parent."""

from __future__ import annotations

import mmap
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from msgspec import Struct

from toolwire.gateway.telemetry.stderr import STDERR

MIN_WORKER_SECONDS = 1.0
"""A worker that dies earlier is replaced only after a pause."""
FIRST_PAUSE, MAX_PAUSE = 1.0, 30.0
"""Seconds before a worker is replaced that died early; doubled each time that all of them have."""
MAX_FAILED_STARTS = 3
"""So many failed starts in a row, while no worker serves, and the gateway gives up."""

LogEvent = Callable[..., None]
"""Writes an event to the log: its kind, `level`, and other fields by name."""


class ConnectionCounts:
    """The number of open client connections of each worker, in memory that all share; -1 without a worker."""

    def __init__(self, workers: int) -> None:
        self._counts = memoryview(mmap.mmap(-1, workers * 8)).cast("q")
        for slot in range(workers):
            self._counts[slot] = -1

    def take_slot(self) -> int:
        slot = self._counts.tolist().index(-1)
        self._counts[slot] = 0
        return slot

    def release_slot(self, slot: int) -> None:
        self._counts[slot] = -1

    def set_count(self, slot: int, connections: int) -> None:
        self._counts[slot] = connections

    def has_more_than_others(self, slot: int) -> bool:
        """Has this worker at least two connections more than another one?"""
        mine = self._counts[slot]
        return any(0 <= count < mine - 1 for count in self._counts)


class WorkerContext(Struct, frozen=True):
    """What a worker process gets from its supervisor."""

    lifeline: int
    """A file descriptor. Its other end is closed when the supervisor is gone: then the worker must stop."""
    on_ready: Callable[[], None]
    """To be called once it serves."""
    counts: ConnectionCounts
    slot: int
    """Its place in the counts."""


class _Worker(Struct):
    slot: int
    started: float
    is_ready: bool = False


class WorkerSupervisor:
    """`serve_worker` runs in each worker process until a signal comes. `log_event` and `report_error` write to the log,
    `on_ready` is called when the first worker serves, and `on_stop` when a signal asks the workers to stop."""

    def __init__(
        self,
        count: int,
        serve_worker: Callable[[WorkerContext], None],
        log_event: LogEvent,
        report_error: Callable[[BaseException], None],
        on_ready: Callable[[], None],
        on_stop: Callable[[], None],
    ) -> None:
        self._count, self._serve_worker = count, serve_worker
        self._log_event, self._report_error = log_event, report_error
        self._on_ready, self._on_stop = on_ready, on_stop
        self._lifeline, self._lifeline_write_end = os.pipe()
        self._ready_pipe, self._ready_write_end = os.pipe()
        """Workers write their slots to it once they serve."""
        self._wakeup_pipe, self._wakeup_write_end = os.pipe()
        """Python writes to it when a signal arrives."""
        self._counts = ConnectionCounts(count)
        self._workers: dict[int, _Worker] = {}
        self._restarts: list[float] = []
        """When to replace the workers that died."""
        self._has_served = self._stopping = False
        self._early_deaths = self._failed_starts = 0

    def supervise(self) -> int:
        """Run the workers until a signal comes. Returns the exit status: 1 if no worker can start."""
        for descriptor in (self._ready_pipe, self._wakeup_pipe, self._wakeup_write_end):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(self._wakeup_write_end, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop_workers)
        signal.signal(signal.SIGHUP, self._forward_signal)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)  # wakes the loop below
        for _ in range(self._count):
            self._fork_worker()
        while self._workers or (self._restarts and not self._stopping):
            if self._can_no_worker_start():
                what = "no worker can start: the reason of each is above; the gateway stops"
                self._log_event("workers_failed", level="error", message=what)
                return 1
            self._wait()
            self._read_ready_slots()
            self._reap_workers()
            while not self._stopping and self._restarts and self._restarts[0] <= time.monotonic():
                del self._restarts[0]
                self._fork_worker()
        return 0

    def _wait(self) -> None:
        """Wait for a signal, for the end or the first service of a worker, or until one has to be replaced."""
        seconds = max(0.0, self._restarts[0] - time.monotonic()) if self._restarts and not self._stopping else None
        readable, _, _ = select.select([self._wakeup_pipe, self._ready_pipe], [], [], seconds)
        if self._wakeup_pipe in readable:
            os.read(self._wakeup_pipe, 4096)

    def _can_no_worker_start(self) -> bool:
        if self._stopping or any(worker.is_ready for worker in self._workers.values()):
            return False
        # At the start nothing is lost by giving up at once; later it may be a moment of trouble.
        return self._failed_starts >= (MAX_FAILED_STARTS if self._has_served else self._count)

    def _fork_worker(self) -> None:
        slot = self._counts.take_slot()
        pid = os.fork()
        if not pid:
            self._run_worker(slot)
        self._workers[pid] = _Worker(slot, time.monotonic())
        if self._stopping:  # a signal came during the fork
            os.kill(pid, signal.SIGTERM)

    def _run_worker(self, slot: int) -> None:
        """In the new process: serve, and never return."""
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)  # it reads the configuration anyway
            for descriptor in (
                self._lifeline_write_end, self._ready_pipe, self._wakeup_pipe, self._wakeup_write_end,
            ):  # fmt: skip
                os.close(descriptor)

            def on_ready() -> None:
                os.write(self._ready_write_end, slot.to_bytes(4, sys.byteorder))

            self._serve_worker(WorkerContext(self._lifeline, on_ready, self._counts, slot))
            status = 0
        finally:
            error = sys.exc_info()[1]
            if error is not None:
                self._report_error(error)
            STDERR.drain()
            os._exit(status)

    def _read_ready_slots(self) -> None:
        with suppress(BlockingIOError):
            slots = set(memoryview(os.read(self._ready_pipe, 4096)).cast("I"))
            for worker in self._workers.values():
                worker.is_ready = worker.is_ready or worker.slot in slots
            if slots:
                self._failed_starts = 0
                if not self._has_served:
                    self._has_served = True
                    self._on_ready()

    def _reap_workers(self) -> None:
        while self._workers:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            worker = self._workers.pop(pid, None)
            if worker is not None:
                self._counts.release_slot(worker.slot)
                if not self._stopping:
                    self._plan_restart(pid, worker, os.waitstatus_to_exitcode(status))

    def _plan_restart(self, pid: int, worker: _Worker, status: int) -> None:
        lived = time.monotonic() - worker.started
        is_early = not worker.is_ready or lived < MIN_WORKER_SECONDS
        self._early_deaths = self._early_deaths + 1 if is_early else 0
        if not worker.is_ready:
            self._failed_starts += 1
        rounds = (self._early_deaths - 1) // self._count
        pause = min(FIRST_PAUSE * 2.0**rounds, MAX_PAUSE) if is_early else 0.0
        self._restarts = sorted([*self._restarts, time.monotonic() + pause])
        self._log_event(
            "worker_died",
            level="error",
            pid=pid,
            reason=_describe_exit(status),
            served=worker.is_ready,
            seconds=round(lived, 3),
            restart_seconds=pause,
        )

    def _stop_workers(self, number: int, _frame: object) -> None:
        self._stopping = True
        self._on_stop()
        self._forward_signal(number, None)

    def _forward_signal(self, number: int, _frame: object) -> None:
        for pid in tuple(self._workers):
            with suppress(ProcessLookupError):
                os.kill(pid, number)


def _describe_exit(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:  # a real-time signal
        name = str(-status)
    hint = ": perhaps the kernel ran out of memory (see dmesg)" if name == "SIGKILL" else ""
    return f"signal {name}{hint}"
