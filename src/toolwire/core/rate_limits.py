"""Rate limits in HTTP headers (`x-ratelimit-…` at OpenAI, `anthropic-ratelimit-…`), durations and timestamps."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import date

from toolwire.core.codec import RateLimit

_DURATION = re.compile(
    r"(?:(?P<d>\d{1,6})d)?(?:(?P<h>\d{1,6})h)?(?:(?P<m>\d{1,6})m(?!s))?(?:(?P<s>\d{1,9}(?:\.\d{1,9})?)s)?"
    r"(?:(?P<ms>\d{1,12}(?:\.\d{1,9})?)ms)?",
    re.ASCII,
)
_BARE_SECONDS = re.compile(r"\d{1,12}(?:\.\d{1,9})?", re.ASCII)
_SECONDS_BY_UNIT = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}

_TIMESTAMP = re.compile(
    r"(\d{4})-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])[Tt ]([01]\d|2[0-3]):([0-5]\d):([0-5]\d|60)(\.\d{1,9})?"
    r"(?:[Zz]|([+-])([01]\d|2[0-3]):([0-5]\d))",
    re.ASCII,
)
MAX_TIMESTAMP = 253_402_300_799
"""The last second of the year 9999: RFC 3339 has no later one."""


def read_duration(text: str) -> float | None:
    """Seconds, from `6m0s` or a bare number; None for anything else."""
    if _BARE_SECONDS.fullmatch(text):
        return float(text)
    found = _DURATION.fullmatch(text)
    if not text or found is None:
        return None
    return sum(float(value) * _SECONDS_BY_UNIT[unit] for unit, value in found.groupdict().items() if value)


def write_duration(seconds: float) -> str:
    """`120ms` below a second, else hours, minutes and seconds: `1.5s`, `6m0s`, `1h0m2s`. Rounded up."""
    milliseconds = max(0, math.ceil(round(seconds * 1000, 3)))
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    out = f"{rest / 1000:g}s"
    if minutes or hours:
        out = f"{minutes}m{out}"
    return f"{hours}h{out}" if hours else out


def read_timestamp(text: str) -> float | None:
    """Seconds since 1970 of an RFC 3339 timestamp; None for anything else."""
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = map(int, found.groups()[:6])
    seconds = float(_days_since_epoch(year, month, day) * 86400 + hour * 3600 + minute * 60 + second)
    if found[7]:
        seconds += float(found[7])
    if found[8]:
        offset = int(found[9]) * 3600 + int(found[10]) * 60
        seconds += offset if found[8] == "-" else -offset
    return seconds


_match_http_date = re.compile(
    r"[A-Z][a-z]{2}, (\d\d) ([A-Z][a-z]{2}) (\d{4}) (\d\d):(\d\d):(\d\d) GMT", re.ASCII
).fullmatch
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def read_http_date(text: str) -> float | None:
    """The seconds since 1970 of a date as headers have it, such as `Thu, 19 Nov 2026 10:00:00 GMT`."""
    found = _match_http_date(text)
    if found is None or found[2] not in _MONTHS:
        return None
    days = _days_since_epoch(int(found[3]), _MONTHS.index(found[2]) + 1, int(found[1]))
    return float(days * 86400 + int(found[4]) * 3600 + int(found[5]) * 60 + int(found[6]))


def write_timestamp(seconds: float) -> str:
    """An RFC 3339 timestamp, rounded up to a whole second."""
    days, rest = divmod(min(max(0, math.ceil(seconds)), MAX_TIMESTAMP), 86400)
    day = date.fromordinal(_EPOCH + days).isoformat()
    return f"{day}T{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}Z"


_EPOCH = date(1970, 1, 1).toordinal()


def _days_since_epoch(year: int, month: int, day: int) -> int:
    """Python's calendar has no year 0, and no day after the last of a month, which some servers send."""
    return date(max(year, 1), month, 1).toordinal() + day - 1 - _EPOCH


MAX_DIGITS = 18


RateLimitReader = Callable[[Mapping[str, str], float], tuple[RateLimit, ...]]
RateLimitWriter = Callable[[tuple[RateLimit, ...], float], dict[str, str]]


class RateLimitHeaders:
    def __init__(self, header_pattern: str, kinds: tuple[str, ...], resets_as_timestamp: bool = False) -> None:
        """`header_pattern` has `{what}` (as `RateLimit.kind`) and `{field}`. Anthropic's resets are timestamps."""
        fields = ("limit", "remaining", "reset")
        self._names = {kind: [header_pattern.format(what=kind, field=field) for field in fields] for kind in kinds}
        self._count_names = frozenset(name for names in self._names.values() for name in names[:2])
        self._resets_as_timestamp = resets_as_timestamp

    def make_reader_and_writer(self) -> tuple[RateLimitReader, RateLimitWriter]:
        """The two functions of `codec.Http`."""
        return self._read, self._write

    def _read(self, headers: Mapping[str, str], now: float) -> tuple[RateLimit, ...]:
        found: list[RateLimit] = []
        if self._count_names.isdisjoint(headers):
            return ()
        for kind, (limit, remaining, reset) in self._names.items():
            if limit in headers or remaining in headers:
                text = headers.get(reset, "").strip()
                after = read_timestamp(text) if self._resets_as_timestamp else read_duration(text)
                if self._resets_as_timestamp and after is not None:
                    after = max(0.0, after - now)
                counts = _read_count(headers.get(limit)), _read_count(headers.get(remaining))
                found.append(RateLimit(kind, *counts, after))
        return tuple(found)

    def _write(self, limits: tuple[RateLimit, ...], now: float) -> dict[str, str]:
        headers: dict[str, str] = {}
        for rate in limits:
            if rate.kind not in self._names:
                continue
            limit, remaining, reset = self._names[rate.kind]
            if rate.limit is not None:
                headers[limit] = str(rate.limit)
            if rate.remaining is not None:
                headers[remaining] = str(rate.remaining)
            if (after := rate.reset_after) is not None and math.isfinite(after):
                headers[reset] = write_timestamp(now + after) if self._resets_as_timestamp else write_duration(after)
        return headers


def _read_count(text: str | None) -> int | None:
    value = (text or "").strip()
    return int(value) if value.isascii() and value.isdecimal() and len(value) <= MAX_DIGITS else None
