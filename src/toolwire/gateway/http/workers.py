"""Several worker processes on one port: they are forked, replaced when they die, and get the signals of the parent.
`Acceptor` accepts the connections of clients, so that they are spread evenly over the workers."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import mmap
import os
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from msgspec import Struct

from toolwire.gateway.http.descriptors import DESCRIPTOR_HINT, descriptor_limit
from toolwire.gateway.http.hangup import LogTerminal
from toolwire.gateway.http.stderr import STDERR

MIN_WORKER_SECONDS = 1.0
"""A worker that dies earlier is replaced only after a pause."""
FIRST_PAUSE, MAX_PAUSE = 1.0, 30.0
"""Seconds before a worker is replaced that died early; doubled each time that all of them have."""
MAX_FAILED_STARTS = 3
"""So many failed starts in a row, while no worker serves, and the gateway gives up."""

LogEvent = Callable[..., None]
"""Writes an event to the log: its kind, `level`, and other fields by name."""


class ConnectionCounts:
    """The number of open client connections of each worker, in memory that all share; -1 without a worker,
    and -2 for one that does not serve yet."""

    def __init__(self, workers: int) -> None:
        cells = memoryview(mmap.mmap(-1, (workers + 1) * 8)).cast("q")
        self._counts, self._stop_cell = cells[:workers], cells[workers:]
        for slot in range(workers):
            self._counts[slot] = -1

    @property
    def are_all_stopping(self) -> bool:
        """Does no worker stay that could accept the connections that wait?"""
        return bool(self._stop_cell[0])

    def stop_all(self) -> None:
        self._stop_cell[0] = 1

    def take_slot(self) -> int:
        slot = self._counts.tolist().index(-1)
        self._counts[slot] = -2
        return slot

    def set_count(self, slot: int, connections: int) -> None:
        self._counts[slot] = connections

    def has_more_than_others(self, slot: int) -> bool:
        """Has this worker at least two connections more than another one?"""
        mine = self._counts[slot]
        return any(0 <= count < mine - 1 for count in self._counts)


class WorkerContext(Struct, frozen=True):
    lifeline: int
    """A file descriptor. Its other end is closed when the supervisor is gone: then the worker must stop."""
    on_ready: Callable[[], None]
    """To be called once it serves."""
    counts: ConnectionCounts
    slot: int


YIELD_SECONDS, YIELD_CHECK_SECONDS = 0.02, 0.002
"""How long a worker with more connections than another leaves new ones to it, and how often it looks again."""
MAX_ACCEPTED_AT_ONCE = 64
RESERVED_DESCRIPTORS = 48
"""For files, pipes, the store and names that are resolved."""
PAUSE_SECONDS = 0.05
REPORT_SECONDS = 60.0
"""Seconds between two reports that no connections are accepted."""
_TRANSIENT_ERRORS = frozenset({errno.ECONNABORTED, errno.EPROTO, errno.EINTR})
"""The client was gone before its connection was accepted."""


class Acceptor:
    """Accepts connections from a socket that several workers may share. The event loop's own server takes all that wait
    at once, so one worker could get them all; and without descriptors it closes them. Here they wait instead."""

    def __init__(
        self,
        bound: socket.socket,
        make_connection: Callable[[], asyncio.Protocol],
        count_connections: Callable[[], int],
        worker: WorkerContext | None = None,
        log_event: LogEvent = lambda kind, **fields: None,
    ) -> None:
        self._bound, self._make_connection, self._count = bound, make_connection, count_connections
        self._worker, self._log_event = worker, log_event
        self._loop = asyncio.get_running_loop()
        self.opening: set[asyncio.Task[object]] = set()
        """Connections that were accepted, and are not known to the server yet."""
        self._timer: asyncio.TimerHandle | None = None
        self._yield_until = self._reported_at = -REPORT_SECONDS
        self._limit, self._max_connections = 0, 0
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # connections inherit it
        if worker is not None:
            worker.counts.set_count(worker.slot, 0)
        self._resume()

    def close(self, is_last: bool) -> None:
        """Accept no more. The socket is closed, too. The kernel resets the connections that wait when the last process
        closes it, so they are accepted first, except where other workers stay that will do it."""
        if self._timer is not None:
            self._timer.cancel()
        if self._bound.fileno() < 0:
            return
        self._loop.remove_reader(self._bound.fileno())
        if is_last:
            _refuse_new_connections(self._bound)
            while self._accept() is None:
                pass
        self._bound.close()

    def _resume(self) -> None:
        self._timer = None
        self._loop.add_reader(self._bound.fileno(), self._on_readable)

    def _pause(self, seconds: float) -> None:
        self._loop.remove_reader(self._bound.fileno())
        self._timer = self._loop.call_later(seconds, self._resume)

    def _on_readable(self) -> None:
        open_connections = self._count() + len(self.opening)
        if self._worker is not None:
            self._worker.counts.set_count(self._worker.slot, open_connections)
            if self._leaves_it_to_others(self._worker):
                self._pause(YIELD_CHECK_SECONDS)
                return
        if open_connections >= self._find_max_connections():
            self._wait_for_descriptors(open_connections)
            return
        room = self._max_connections - open_connections
        for _ in range(1 if self._worker is not None else min(room, MAX_ACCEPTED_AT_ONCE)):
            error = self._accept()
            if error is None:
                continue
            if error:
                self._wait_for_descriptors(open_connections)
            return

    def _accept(self) -> int | None:
        """Accept a connection. Returns 0 if none waits, or the number of an error that does not pass by itself."""
        try:
            accepted, _ = self._bound.accept()
        except BlockingIOError:
            return 0
        except OSError as error:
            return None if error.errno in _TRANSIENT_ERRORS else error.errno
        accepted.setblocking(False)
        opening = self._loop.create_task(self._loop.connect_accepted_socket(self._make_connection, accepted))
        self.opening.add(opening)
        opening.add_done_callback(self._on_opened)
        return None

    def _on_opened(self, opening: asyncio.Task[object]) -> None:
        self.opening.discard(opening)
        if not opening.cancelled():
            opening.exception()  # the client is gone: nothing to do

    def _leaves_it_to_others(self, worker: WorkerContext) -> bool:
        """For a while, if another worker has fewer connections; it may be stuck, so not for long."""
        if not worker.counts.has_more_than_others(worker.slot):
            return False
        now = self._loop.time()
        if now > self._yield_until + YIELD_SECONDS:
            self._yield_until = now + YIELD_SECONDS
        return now < self._yield_until

    def _find_max_connections(self) -> int:
        """A request may need a connection to a provider, too: half of the descriptors are for these."""
        limit = descriptor_limit()
        if limit != self._limit:
            self._limit = limit
            self._max_connections = max(1, (limit - RESERVED_DESCRIPTORS) // 2)
        return self._max_connections

    def _wait_for_descriptors(self, open_connections: int) -> None:
        self._pause(PAUSE_SECONDS)
        now = self._loop.time()
        if now - self._reported_at >= REPORT_SECONDS:
            self._reported_at = now
            what = f"new connections wait: the limit of file descriptors is {descriptor_limit():,}"
            self._log_event(
                "accepting_paused", level="error", connections=open_connections, message=what, hint=DESCRIPTOR_HINT
            )


_ATTACH_FILTER = 26
"""SO_ATTACH_FILTER in Linux's asm-generic/socket.h; Python has no name for it."""
_DROP_SYN = struct.pack(
    "HBBI" * 5, *(0x30, 0, 0, 13), *(0x54, 0, 0, 0x12), *(0x15, 0, 1, 2), *(6, 0, 0, 0), *(6, 0, 0, 2**32 - 1)
)
"""A classic BPF program for a segment's TCP header: load the flags, keep SYN and ACK, drop it if only SYN is left."""


def _refuse_new_connections(bound: socket.socket) -> None:
    """Let no new connection begin, so that none is lost between the last that is accepted and the end of the socket.
    Only Linux can do that; elsewhere this moment stays. Who begins one now tries again a second later by itself."""
    if sys.platform == "linux":
        program = ctypes.create_string_buffer(_DROP_SYN, len(_DROP_SYN))
        with suppress(OSError):
            bound.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, struct.pack("HP", 5, ctypes.addressof(program)))


class _Worker(Struct):
    slot: int
    started: float
    is_ready: bool = False


class WorkerSupervisor:
    """`serve_worker` runs in each worker process until a signal comes. `log_event` and `report_error` write to the log,
    `on_ready` is called when the workers serve, and `on_stop` when a signal asks the workers to stop."""

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
        self._has_served = self._is_announced = self._stopping = False
        self._early_deaths = self._failed_starts = 0
        self._terminal = LogTerminal()
        self._signals = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

    def supervise(self) -> int:
        """Run the workers until a signal comes. Returns the exit status: 1 if no worker can start."""
        for descriptor in (self._ready_pipe, self._wakeup_pipe, self._wakeup_write_end):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(self._wakeup_write_end, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop_workers)
        signal.signal(signal.SIGHUP, self._hang_up)
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
            if not (self._is_announced or self._stopping) and self._does_each_serve:
                self._is_announced = True
                self._on_ready()
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
        if self._stopping or self._does_one_serve:
            return False
        # At the start nothing is lost by giving up at once; later it may be a moment of trouble.
        return self._failed_starts >= (MAX_FAILED_STARTS if self._has_served else self._count)

    @property
    def _does_each_serve(self) -> bool:
        return bool(self._workers) and all(worker.is_ready for worker in self._workers.values())

    @property
    def _does_one_serve(self) -> bool:
        return any(worker.is_ready for worker in self._workers.values())

    def _fork_worker(self) -> None:
        slot = self._counts.take_slot()
        # They wait, because those that come to the new process before it has its own handlers would be lost.
        signal.pthread_sigmask(signal.SIG_BLOCK, self._signals)
        pid = os.fork()
        if not pid:
            self._run_worker(slot)
        self._workers[pid] = _Worker(slot, time.monotonic())
        if self._stopping:  # the signal came before it was in the list
            os.kill(pid, signal.SIGTERM)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, self._signals)

    def _run_worker(self, slot: int) -> None:
        """In the new process: serve, and never return."""
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)  # it reads the configuration anyway
            signal.pthread_sigmask(signal.SIG_UNBLOCK, self._signals)
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
                self._failed_starts, self._has_served = 0, True

    def _reap_workers(self) -> None:
        while self._workers:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            worker = self._workers.pop(pid, None)
            if worker is not None:
                self._counts.set_count(worker.slot, -1)
                if not self._stopping:
                    self._plan_restart(pid, worker, os.waitstatus_to_exitcode(status))

    def _plan_restart(self, pid: int, worker: _Worker, status: int) -> None:
        lived = time.monotonic() - worker.started
        is_early = not worker.is_ready or lived < MIN_WORKER_SECONDS
        self._early_deaths = self._early_deaths + 1 if is_early else 0
        if not worker.is_ready and not self._does_one_serve:
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
        self._counts.stop_all()
        self._on_stop()
        self._forward_signal(number, None)

    def _hang_up(self, number: int, frame: object) -> None:
        if self._terminal.is_closed():
            self._stop_workers(signal.SIGTERM, frame)
        else:
            self._forward_signal(number, frame)

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
