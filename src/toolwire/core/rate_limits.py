"""Rate limits in headers: one table for reading and writing, the spelling is the room's."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import msgspec

from toolwire.core.codec import RateLimit
from toolwire.core.times import read_duration, read_timestamp, write_duration, write_timestamp

MAX_DIGITS = 18


class RateLimitHeaders(msgspec.Struct, frozen=True):
    """How a protocol spells its rate limits."""

    header_pattern: str
    """The name of a header, with `{what}` and `{field}` (limit, remaining, reset) in it."""
    kinds: tuple[str, ...]
    resets_as_timestamp: bool = False
    """Is the reset told as a time of day, or as a span of time?"""

    def make_reader_and_writer(self) -> tuple[RateLimitReader, RateLimitWriter]:
        """Reading and writing, with the names of the headers made once."""
        names = {what: _header_names(self.header_pattern, what) for what in self.kinds}
        numbers = _telltale_headers(names)
        instants = self.resets_as_timestamp

        def read(headers: Mapping[str, str], now: float) -> tuple[RateLimit, ...]:
            return () if numbers.isdisjoint(headers) else _read_rate_limits(headers, now, names, instants)

        def write(limits: tuple[RateLimit, ...], now: float) -> dict[str, str]:
            headers: dict[str, str] = {}
            for one in limits:
                if one.kind not in names:
                    continue
                limit, remaining, reset = names[one.kind]
                if one.limit is not None:
                    headers[limit] = str(one.limit)
                if one.remaining is not None:
                    headers[remaining] = str(one.remaining)
                if one.reset_after is not None and math.isfinite(one.reset_after):
                    headers[reset] = (
                        write_timestamp(now + one.reset_after) if instants else write_duration(one.reset_after)
                    )
            return headers

        return read, write


RateLimitReader = Callable[[Mapping[str, str], float], tuple[RateLimit, ...]]
RateLimitWriter = Callable[[tuple[RateLimit, ...], float], dict[str, str]]
HeaderNames = Mapping[str, tuple[str, str, str]]
"""The headers of each kind: its limit, what remains of it, and when it is reset."""


def _header_names(pattern: str, what: str) -> tuple[str, str, str]:
    limit, remaining, reset = (pattern.format(what=what, field=field) for field in ("limit", "remaining", "reset"))
    return limit, remaining, reset


def _read_rate_limits(
    headers: Mapping[str, str], now: float, names: HeaderNames, resets_as_timestamp: bool
) -> tuple[RateLimit, ...]:
    found: list[RateLimit] = []
    for what, (limit, remaining, reset) in names.items():
        if limit in headers or remaining in headers:
            whole = _read_reset(headers.get(reset, ""), resets_as_timestamp, now)
            found.append(RateLimit(what, _read_count(headers.get(limit)), _read_count(headers.get(remaining)), whole))
    return tuple(found)


def _telltale_headers(names: HeaderNames) -> frozenset[str]:
    """The headers of which one must be there for anything to be told."""
    return frozenset(name for limit, remaining, _ in names.values() for name in (limit, remaining))


def _read_count(text: str | None) -> int | None:
    value = (text or "").strip()
    return int(value) if value.isascii() and value.isdecimal() and len(value) <= MAX_DIGITS else None


def _read_reset(text: str, resets_as_timestamp: bool, now: float) -> float | None:
    if not resets_as_timestamp:
        return read_duration(text.strip())
    instant = read_timestamp(text.strip())
    return None if instant is None else max(0.0, instant - now)
