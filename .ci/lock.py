"""Reads a lock file (requirements/*.txt) for `sbom.py` and `audit.py`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_PACKAGE = re.compile(r"^([A-Za-z0-9][\w.-]*)==([^\s;\\]+)(?:\s*;\s*([^\\]*?))?\s*\\?$")
_HASH = re.compile(r"^\s+--hash=sha256:([0-9a-f]{64})\s*\\?$")


class Package(NamedTuple):
    """A pinned package, and the hashes of its files."""

    name: str
    version: str
    marker: str
    hashes: tuple[str, ...]


def read_lock(file: Path) -> list[Package]:
    """The packages of a lock file. Raises ValueError for a line that it does not understand."""
    return list(_read_packages(file.read_text("utf-8").splitlines(), file.name))


def _read_packages(lines: list[str], name: str) -> Iterator[Package]:
    found: tuple[str, str, str] | None = None
    hashes: list[str] = []
    for number, line in enumerate([*lines, "end==0"], 1):
        if match := _HASH.match(line):
            hashes.append(match[1])
        elif match := _PACKAGE.match(line):
            if found is not None:
                yield Package(*found, tuple(hashes))
            found, hashes = (match[1], match[2], (match[3] or "").strip()), []
        elif line.strip() and not line.lstrip().startswith("#"):
            raise ValueError(f"{name}:{number}: not a pinned package: {line.strip()[:80]}")
