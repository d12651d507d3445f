"""Files and standard input, read with a clear word when they cannot be."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from toolwire.cli import Complaint

CHUNK = 65536


def read(name: str | None) -> bytes:
    """A file, or standard input for `-` or nothing."""
    return b"".join(chunks(name))


def chunks(name: str | None) -> Iterator[bytes]:
    if name is None or name == "-":
        if sys.stdin.isatty():
            raise Complaint(
                "nothing to read: no file is named and standard input is a terminal", "name a file, or pipe one in"
            )
        while data := sys.stdin.buffer.read1(CHUNK):  # type: ignore[union-attr]
            yield data
        return
    try:
        with Path(name).open("rb") as file:
            while data := file.read(CHUNK):
                yield data
    except OSError as error:
        raise Complaint(f"cannot read {name}: {error.strerror}", "check the path") from None
