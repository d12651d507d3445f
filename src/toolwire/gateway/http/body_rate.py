"""How fast the body of a request must come."""

from __future__ import annotations

MIN_BODY_RATE = 1024
"""Bytes in a second, on average: a client that sends its body slower is given up after `REQUEST_SECONDS`."""


class BodyRate:
    """By how much the body of a request comes slower than it may, from one sweep of its connection to the next."""

    def __init__(self, now: float) -> None:
        self._swept_at = now
        self.start_body()

    def start_body(self) -> None:
        self._size, self._slow_seconds = 0, 0.0

    def start_sweep(self, now: float) -> float:
        """The seconds since the last sweep."""
        elapsed, self._swept_at = now - self._swept_at, now
        return elapsed

    def measure_slowness(self, elapsed: float, size: int) -> float:
        """By how many seconds a body of which this has come is behind the lowest rate. Time in which the server did not
        read does not count."""
        grown, self._size = size - self._size, size
        self._slow_seconds = max(0.0, self._slow_seconds + elapsed - grown / MIN_BODY_RATE)
        return self._slow_seconds
