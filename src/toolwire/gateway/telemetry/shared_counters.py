"""Numbers that are counted up: in memory, or in a file for each worker that the others read.

Every worker owns one slot of a directory: `N.cells` holds the numbers, `N.names` says in one line each whose they are.
A lock held for life tells the living from the dead; a new worker takes over a dead one's slot and counts on, so
that no counter ever goes back.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

SLOT_CELLS = 1 << 16
"""Cells of a slot; pages that nobody wrote to take no room."""
_OVERFLOW_CELL = SLOT_CELLS - 64
"""Where numbers go that found no place: never shown."""
_SLOT_BYTES = SLOT_CELLS * 8


class Series(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Whose cells they are: a family of metrics and the values of its labels; as many cells as its kind needs."""

    family: str
    labels: tuple[str, ...]
    width: int


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Series).decode


class WorkerSeries(msgspec.Struct, frozen=True, gc=False):
    """A series as one worker counted it."""

    series: Series
    values: Sequence[float]
    is_alive: bool


class SharedCounters:
    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory
        self._names_file: int | None = None
        self._lock_file: int | None = None
        self._slot = -1
        self._series: list[tuple[Series, int]] = []
        self._next_cell = 0
        if directory is None:
            self._memory = mmap.mmap(-1, _SLOT_BYTES)
        else:
            self._memory = self._take_slot(directory)
        self.values = memoryview(self._memory).cast("d")
        """Add to these in place."""

    def _take_slot(self, directory: Path) -> mmap.mmap:
        """The first slot that no living worker holds, with all that was counted there."""
        directory.mkdir(parents=True, exist_ok=True)
        while True:
            self._slot += 1
            cells = os.open(directory / f"{self._slot}.cells", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(cells, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(cells)
                continue
            self._lock_file = cells  # lives as long as this stays open
            os.ftruncate(cells, _SLOT_BYTES)
            self._names_file = os.open(directory / f"{self._slot}.names", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._series = list(_read_series(directory / f"{self._slot}.names"))
            # A line that was cut when its writer died would swallow the next.
            os.ftruncate(self._names_file, sum(len(_encode(series)) + 1 for series, _ in self._series))
            os.lseek(self._names_file, 0, os.SEEK_END)
            self._next_cell = sum(series.width for series, _ in self._series)
            return mmap.mmap(cells, _SLOT_BYTES)

    def existing_series(self) -> list[tuple[Series, int]]:
        """The series of this slot, as taken over, with their places."""
        return self._series

    def add_series(self, series: Series) -> int:
        """The first cell of a new series."""
        if self._next_cell + series.width > _OVERFLOW_CELL:
            return _OVERFLOW_CELL
        index = self._next_cell
        if self._names_file is not None:
            os.write(self._names_file, _encode(series) + b"\n")
        self._next_cell += series.width
        self._series.append((series, index))
        return index

    def close(self) -> None:
        """Leave the slot to whoever comes next; late numbers still have their place in memory."""
        if self._lock_file is not None and self._names_file is not None:
            fcntl.flock(self._lock_file, fcntl.LOCK_UN)  # the memory holds a copy of the descriptor
            os.close(self._lock_file)
            os.close(self._names_file)
        self._lock_file = self._names_file = None

    def read_all(self) -> Iterator[WorkerSeries]:
        """What every worker counted."""
        for series, index in self._series:
            yield WorkerSeries(series, self.values[index : index + series.width].tolist(), True)
        if self._directory is not None:
            for path in sorted(self._directory.glob("*.cells")):
                if path.stem != str(self._slot):
                    yield from _read_other_worker(path)


def _read_series(path: Path) -> Iterator[tuple[Series, int]]:
    """The lines of a slot, up to the first that is not whole."""
    index = 0
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return
    for line in lines:
        try:
            series = _decode(line)
        except msgspec.DecodeError:
            return
        if not 0 < series.width <= _OVERFLOW_CELL - index:
            return
        yield series, index
        index += series.width


def _read_other_worker(path: Path) -> list[WorkerSeries]:
    # Removed between listing and opening, or still without its size: it has nothing to tell.
    with contextlib.suppress(OSError, ValueError), path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            alive = False
            fcntl.flock(file, fcntl.LOCK_UN)
        except BlockingIOError:
            alive = True
        with mmap.mmap(file.fileno(), _SLOT_BYTES, access=mmap.ACCESS_READ) as memory:
            return [
                WorkerSeries(
                    series, memoryview(memory[index * 8 : (index + series.width) * 8]).cast("d").tolist(), alive
                )
                for series, index in _read_series(path.with_suffix(".names"))
            ]
    return []
