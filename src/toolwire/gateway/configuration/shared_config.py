"""The configuration in force, in memory that all workers share."""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from toolwire.gateway.configuration.load import ConfigFile

_HEADER = struct.Struct("QQ")
"""Where the configuration begins in the memory, and its size."""


class SharedConfig:
    """Hands the configuration from a worker that ends to the one that replaces it, so that a file that has been damaged
    since cannot switch off what it protected."""

    def __init__(self, first: ConfigFile | None) -> None:
        self._descriptor = _open_shared_memory()
        self.save(first)

    def save(self, accepted: ConfigFile | None) -> None:
        """A worker can be killed in the middle of this: the old configuration stays, until the new one is whole."""
        data = msgspec.msgpack.encode(accepted)
        with _lock_file(self._descriptor):
            start, size = self._find_saved()
            free = _HEADER.size if start >= _HEADER.size + len(data) else max(start + size, _HEADER.size)
            os.pwrite(self._descriptor, data, free)
            os.pwrite(self._descriptor, _HEADER.pack(free, len(data)), 0)

    def load(self) -> ConfigFile | None:
        """What was saved last; None without a file."""
        with _lock_file(self._descriptor):
            start, size = self._find_saved()
            data = os.pread(self._descriptor, size, start)
        return msgspec.msgpack.decode(data, type=ConfigFile | None) if data else None

    def _find_saved(self) -> tuple[int, int]:
        """Its start and its size; (0, 0) for nothing."""
        header = os.pread(self._descriptor, _HEADER.size, 0)
        start, size = _HEADER.unpack(header) if header else (0, 0)
        return start, size


@contextmanager
def _lock_file(descriptor: int) -> Iterator[None]:
    import fcntl  # noqa: PLC0415 — Windows lacks it, and has only one worker

    fcntl.lockf(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.lockf(descriptor, fcntl.LOCK_UN)


def _open_shared_memory() -> int:
    """A file without a name: the configuration may contain keys."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("toolwire-config")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
