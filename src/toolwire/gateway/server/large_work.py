"""Work on large bodies runs in a thread, so that other clients do not wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

LARGE_BODY = 128 * 1024
"""From this size in bytes on, reading and translating a body is large work: some milliseconds."""
_executor = ThreadPoolExecutor(2, "toolwire-large-work")
"""Few threads: Python runs one at a time, and the event loop has to wait for its turn among them."""

Result = TypeVar("Result")


async def run_by_size(size: int, work: Callable[[], Result]) -> Result:
    """Run the work at once if it is small, else in a thread."""
    if size < LARGE_BODY:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_executor, work)
