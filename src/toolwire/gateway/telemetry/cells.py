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

SIZE = 1 << 16
"""Cells of a slot; pages that nobody wrote to take no room."""
_SPARE = SIZE - 64
"""Where numbers go that found no place: never shown."""
_BYTES = SIZE * 8


class Series(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Whose cells they are: a family of metrics and the values of its labels; as many cells as its kind needs."""

    family: str
    labels: tuple[str, ...]
    width: int


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Series).decode


class Found(msgspec.Struct, frozen=True, gc=False):
    """A series as one worker counted it."""

    series: Series
    values: Sequence[float]
    alive: bool


class Cells:
    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory
        self._names: int | None = None
        self._lock: int | None = None
        self._slot = -1
        self._listed: list[tuple[Series, int]] = []
        self._next = 0
        if directory is None:
            self._memory = mmap.mmap(-1, _BYTES)
        else:
            self._memory = self._take(directory)
        self.values = memoryview(self._memory).cast("d")
        """Add to these in place."""

    def _take(self, directory: Path) -> mmap.mmap:
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
            self._lock = cells  # lives as long as this stays open
            os.ftruncate(cells, _BYTES)
            self._names = os.open(directory / f"{self._slot}.names", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._listed = list(_listed(directory / f"{self._slot}.names"))
            # A line that was cut when its writer died would swallow the next.
            os.ftruncate(self._names, sum(len(_encode(series)) + 1 for series, _ in self._listed))
            os.lseek(self._names, 0, os.SEEK_END)
            self._next = sum(series.width for series, _ in self._listed)
            return mmap.mmap(cells, _BYTES)

    def known(self) -> list[tuple[Series, int]]:
        """The series of this slot, as taken over, with their places."""
        return self._listed

    def place(self, series: Series) -> int:
        """The first cell of a new series."""
        if self._next + series.width > _SPARE:
            return _SPARE
        index = self._next
        if self._names is not None:
            os.write(self._names, _encode(series) + b"\n")
        self._next += series.width
        self._listed.append((series, index))
        return index

    def close(self) -> None:
        """Leave the slot to whoever comes next; late numbers still have their place in memory."""
        if self._lock is not None and self._names is not None:
            fcntl.flock(self._lock, fcntl.LOCK_UN)  # the memory holds a copy of the descriptor
            os.close(self._lock)
            os.close(self._names)
        self._lock = self._names = None

    def read(self) -> Iterator[Found]:
        """What every worker counted."""
        for series, index in self._listed:
            yield Found(series, self.values[index : index + series.width].tolist(), True)
        if self._directory is not None:
            for path in sorted(self._directory.glob("*.cells")):
                if path.stem != str(self._slot):
                    yield from _others(path)


def _listed(path: Path) -> Iterator[tuple[Series, int]]:
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
        if not 0 < series.width <= _SPARE - index:
            return
        yield series, index
        index += series.width


def _others(path: Path) -> list[Found]:
    # Removed between listing and opening, or still without its size: it has nothing to tell.
    with contextlib.suppress(OSError, ValueError), path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            alive = False
            fcntl.flock(file, fcntl.LOCK_UN)
        except BlockingIOError:
            alive = True
        with mmap.mmap(file.fileno(), _BYTES, access=mmap.ACCESS_READ) as memory:
            return [
                Found(series, memoryview(memory[index * 8 : (index + series.width) * 8]).cast("d").tolist(), alive)
                for series, index in _listed(path.with_suffix(".names"))
            ]
    return []
