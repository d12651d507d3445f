"""Dates and durations in the configuration and on the command line: `2026-12-31`, `2026-12-31T18:00:00Z`, `30d`."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache

TIME_HINT = "write a date (2026-12-31, to the end of that day in UTC) or a time (2026-12-31T18:00:00Z)"
DURATION_HINT = "write a number and a unit, such as 90m, 12h, 30d or 4w"
_DURATION = re.compile(r"(\d{1,6})(s|m|h|d|w)")
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


@lru_cache(maxsize=1024)
def parse_time(text: str) -> float | None:
    """Seconds since 1970; None if it is not a time. A date means the end of that day, and UTC is the time zone where
    none is written."""
    try:
        if len(text) == len("2026-12-31"):
            day = date.fromisoformat(text) + timedelta(days=1)
            return datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def parse_duration(text: str) -> float | None:
    """Seconds; None if it is not a duration."""
    found = _DURATION.fullmatch(text)
    return int(found[1]) * float(_UNIT_SECONDS[found[2]]) if found is not None else None


def format_time(seconds: float) -> str:
    """A time as `parse_time` reads it, in UTC and to the second."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
