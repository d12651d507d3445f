"""How much work something is, without a clock."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def count_steps(work: Callable[[], object]) -> int:
    """How many lines of Python are run; a loop in one line counts each time around.

    What is linear takes about four times as many steps for an input of four times the size, and what is quadratic
    sixteen times. So a small input shows it, at once and on every machine.
    """
    steps = 0

    def count(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal steps
        steps += 1
        return count

    before, collects = sys.gettrace(), gc.isenabled()
    gc.disable()  # or what it finds of other tests, and closes, would count
    sys.settrace(count)
    try:
        work()
    finally:
        sys.settrace(before)
        if collects:
            gc.enable()
    return steps
