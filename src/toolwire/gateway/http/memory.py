"""The memory budget: how much requests and answers in flight may need together, and what a body will need."""

from __future__ import annotations

import os
from pathlib import Path
from random import random

DEFAULT_SHARE = 0.5
"""Of the memory that the process may use. The rest is for the interpreter, the store, and fragmentation."""
ASSUMED_MEMORY = 4 * 1024**3
"""Bytes, where the system does not tell how much memory it has."""
REQUEST_SHARE = 0.75
"""Of the budget: new requests are refused beyond it, so that those in flight can still get their answers."""
COPIES = 3
"""A body, its texts in the internal form, and the body for the provider."""
QUOTE_WEIGHT, COMMA_WEIGHT = 170, 70
"""Bytes for each quote and comma of a JSON body: about what the objects behind them need. A body of tiny turns needs 45
times its size; text that contains quotes and commas needs less than this says."""
DENSEST_WEIGHT = 48
"""What a byte of a JSON body needs at most."""
SMALL_BODY = 8 * 1024
"""Up to this size a body counts as the densest possible, without a look at it."""
SAMPLES, SAMPLE_SIZE = 4, 2 * 1024
"""Larger bodies are looked at in random places: nobody can know which."""
REQUEST_BASE = 64 * 1024
"""Bytes for a request in flight besides its body: its exchange, and the buffers of its stream."""
ANSWER_COPIES = 4
"""An answer that is read whole, and its translation."""


class MemoryBudget:
    """Counts bytes in flight. Nothing is allocated here: whoever holds bytes says so."""

    __slots__ = ("limit", "request_limit", "used")

    def __init__(self, limit: int) -> None:
        self.used = 0
        self.set_limit(limit)

    def set_limit(self, limit: int) -> None:
        self.limit = limit
        self.request_limit = int(limit * REQUEST_SHARE)

    def reserve_for_answer(self, size: int) -> bool:
        if self.used + size > self.limit:
            return False
        self.used += size
        return True


def weigh_body(body: bytes) -> int:
    """The bytes that a request with this body will need, estimated on the safe side."""
    size = len(body)
    if size <= SMALL_BODY:
        return REQUEST_BASE + size * DENSEST_WEIGHT
    quotes = commas = 0
    for _ in range(SAMPLES):
        start = int(random() * (size - SAMPLE_SIZE))
        sample = body[start : start + SAMPLE_SIZE]
        quotes += sample.count(b'"')
        commas += sample.count(b",")
    density = (quotes * QUOTE_WEIGHT + commas * COMMA_WEIGHT) / (SAMPLES * SAMPLE_SIZE)
    return REQUEST_BASE + int(size * (COPIES + density))


def default_budget(root: Path = Path("/")) -> int:
    """A share of what this process may use: the container's limit, or the machine's memory."""
    return int(memory_limit(root) * DEFAULT_SHARE)


def memory_limit(root: Path = Path("/")) -> int:
    """The lowest limit of the control groups (v2 and v1) of this process, or the machine's memory."""
    try:
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError):  # Windows, and systems that do not tell
        physical = ASSUMED_MEMORY
    groups = root / "sys/fs/cgroup"
    files = [groups / "memory.max", groups / "memory/memory.limit_in_bytes"]
    for line in _read_lines(root / "proc/self/cgroup"):
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers in ("", "memory"):
            base, name = (groups / "memory", "memory.limit_in_bytes") if controllers else (groups, "memory.max")
            parts = [part for part in path.split("/") if part not in ("", "..")]
            files += [base.joinpath(*parts[:count]) / name for count in range(1, len(parts) + 1)]
    limits = [int(text) for file in files for text in _read_lines(file)[:1] if text.isdigit()]
    return min([physical, *(limit for limit in limits if limit > 0)])


def _read_lines(file: Path) -> list[str]:
    try:
        return file.read_text().split("\n")
    except OSError:
        return []
