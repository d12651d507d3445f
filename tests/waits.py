"""Waiting for what must happen, however busy the machine is, and ports that nobody else takes meanwhile."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

PATIENCE = 300.0
"""Seconds after which something that was waited for will not come any more. A wait that ends too early fails a good test
on a busy machine; one that ends late only delays a failure. What must not happen is never waited for."""
Value = TypeVar("Value")


def poll(ask: Callable[[], Value], enough: Callable[[Value], object]) -> Value:
    """Ask until the answer is enough, and return it; fails if it never is."""
    deadline = time.monotonic() + PATIENCE
    while not enough(found := ask()):
        assert time.monotonic() < deadline, found
        time.sleep(0.005)  # the processor is for whoever works on it
    return found


def wait_until(true: Callable[[], object]) -> None:
    """Look until it is so; fails if it never is."""
    poll(true, bool)


def free_port() -> int:
    """A port where nobody listens. It is below those that the kernel chooses from, so it gives it to nobody else."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return port
