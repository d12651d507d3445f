"""How long a thing takes, as ratios that survive a machine whose speed drifts: everything in turns, best of many."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping


def measure_microseconds(things: Mapping[str, Callable[[], object]], seconds: float = 0.4) -> dict[str, float]:
    """Microseconds a call for each thing: the median of rounds in which they take turns, so slow moments hit all."""
    loops = {name: _loops(thing) for name, thing in things.items()}
    taken: dict[str, list[float]] = {name: [] for name in things}
    until = time.perf_counter() + seconds * len(things)
    rounds = 0
    gc.collect()
    while rounds < 5 or time.perf_counter() < until:
        for name, thing in things.items():
            count = loops[name]
            start = time.perf_counter()
            for _ in range(count):
                thing()
            taken[name].append((time.perf_counter() - start) / count)
        rounds += 1
    return {name: sorted(rows)[len(rows) // 2] * 1e6 for name, rows in taken.items()}


def _loops(thing: Callable[[], object]) -> int:
    start = time.perf_counter()
    thing()
    once = max(time.perf_counter() - start, 1e-7)
    return max(1, int(0.01 / once))
