"""Standard error, written by a thread of its own: nobody has to read it, and no request waits for it.

A pipe holds 64 kB. When it is full, a write blocks until somebody reads, and on the event loop it would stop every
request, `/livez` and the signals with it. So lines wait in a queue, and those that do not fit are dropped and counted.
"""

from __future__ import annotations

import atexit
import io
import os
import select
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from typing import TextIO

MAX_QUEUED = 4 * 1024 * 1024
"""Bytes that wait for a slow reader of standard error."""
DRAIN_SECONDS = 1.0
"""At the end, the queue is given up when nothing was written for so long."""
_MAX_WRITE, _MAX_SHARED_WRITE = 64 * 1024, getattr(select, "PIPE_BUF", 512)
"""Bytes of one write, alone and with other workers on the same pipe. Up to `PIPE_BUF` a write is not mixed with those
of others; but each write takes the interpreter away from the event loop twice, so one process writes more at once."""


class StderrWriter:
    """One for a process; a forked process starts with an empty queue and a thread of its own."""

    def __init__(self) -> None:
        self._max_write = _MAX_WRITE
        self._reset()
        if hasattr(os, "register_at_fork"):  # not on Windows
            os.register_at_fork(before=self._share_pipe, after_in_child=self._reset)
        atexit.register(self.drain)

    def _share_pipe(self) -> None:
        self._max_write = _MAX_SHARED_WRITE

    def _reset(self) -> None:
        self._changed = threading.Condition()
        """Guards the queue. Never held during a write."""
        self._queue: deque[tuple[int, bytes]] = deque()
        self._queued_bytes = self._writes = self._unreported = 0
        self._stuck_at = -1
        self._thread: threading.Thread | None = None
        self.dropped_lines = 0

    def write(self, text: str) -> None:
        """Queue lines for standard error. If it is closed, or full for too long, requests go on without them."""
        stream = sys.stderr
        if stream is None or stream.closed:
            return
        try:
            descriptor = stream.fileno()
        except OSError:  # a stream in memory, which cannot block
            stream.write(text)
            return
        data = text.encode("utf-8", "backslashreplace")
        with self._changed:
            room = MAX_QUEUED - self._queued_bytes
            if self._queue and len(data) > room:
                end = data.rfind(b"\n", 0, max(room, 0)) + 1
                lost = data.count(b"\n", end) or 1
                self.dropped_lines += lost
                self._unreported += lost
                data = data[:end]
            if data:
                self._queue.append((descriptor, data))
                self._queued_bytes += len(data)
                self._start_thread()
                self._changed.notify_all()

    def take_unreported(self) -> int:
        """Lines that were dropped since this was last asked; 0 as long as there is no room for a line about them."""
        if not self._unreported or self._queued_bytes > MAX_QUEUED // 2:
            return 0
        with self._changed:
            lost, self._unreported = self._unreported, 0
        return lost

    def drain(self) -> None:
        """Wait until the queue is written, but not for a reader that does not read."""
        with self._changed:
            while self._queue and self._stuck_at != self._writes:
                writes = self._writes
                if not self._changed.wait(DRAIN_SECONDS) and writes == self._writes:
                    self._stuck_at = writes  # the next one need not wait again

    def _start_thread(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="stderr", daemon=True)
            with suppress(RuntimeError):  # the interpreter is shutting down
                thread.start()
                self._thread = thread

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._queue:
                    self._changed.wait()
                descriptor, data = self._queue[0]
            for piece in _split_lines(data, self._max_write):
                self._write_piece(descriptor, piece)
            with self._changed:
                self._queue.popleft()
                self._queued_bytes -= len(data)
                self._changed.notify_all()

    def _write_piece(self, descriptor: int, piece: bytes) -> None:
        lines = piece.count(b"\n")
        try:
            while piece:
                try:
                    piece = piece[os.write(descriptor, piece) :]
                    self._writes += 1
                except BlockingIOError:  # another process has made it non-blocking
                    select.select([], [descriptor], [])
        except OSError:  # it is closed, or its reader is gone
            with self._changed:
                self.dropped_lines += lines


def _split_lines(data: bytes, max_size: int) -> Iterator[bytes]:
    """Whole lines, together no longer than this; a longer line alone."""
    start = 0
    while start < len(data):
        end = len(data)
        if end - start > max_size:
            end = data.rfind(b"\n", start, start + max_size) + 1 or data.find(b"\n", start) + 1 or end
        yield data[start:end]
        start = end


STDERR = StderrWriter()


class _QueuedStderr(io.TextIOBase):
    """`sys.stderr` for everything that does not use the log: tracebacks, warnings, messages of libraries."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        STDERR.write(text)
        return len(text)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return self._stream.isatty()


@contextmanager
def queue_stderr() -> Iterator[None]:
    """Let everything that is written to `sys.stderr` go through the queue."""
    if sys.stderr is None or sys.stderr.closed:
        yield
        return
    try:
        with redirect_stderr(_QueuedStderr(sys.stderr)):
            yield
    finally:
        STDERR.drain()
