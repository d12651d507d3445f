"""Rate limits in HTTP headers (`x-ratelimit-…` at OpenAI, `anthropic-ratelimit-…`), read and written."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import msgspec

from toolwire.core.codec import RateLimit
from toolwire.core.times import read_duration, read_timestamp, write_duration, write_timestamp

MAX_DIGITS = 18


class RateLimitHeaders(msgspec.Struct, frozen=True):
    """The rate limit headers of a protocol."""

    header_pattern: str
    """The name of a header, with `{what}` (a kind) and `{field}` (limit, remaining or reset) in it."""
    kinds: tuple[str, ...]
    """As `RateLimit.kind`."""
    resets_as_timestamp: bool = False
    """Is the reset a timestamp (Anthropic) or a duration (OpenAI)?"""

    def make_reader_and_writer(self) -> tuple[RateLimitReader, RateLimitWriter]:
        """The two functions of `codec.Http`, with the header names made once."""
        names = {kind: _header_names(self.header_pattern, kind) for kind in self.kinds}
        counts = frozenset(name for limit, remaining, _ in names.values() for name in (limit, remaining))
        as_timestamp = self.resets_as_timestamp

        def read(headers: Mapping[str, str], now: float) -> tuple[RateLimit, ...]:
            return () if counts.isdisjoint(headers) else _read_rate_limits(headers, now, names, as_timestamp)

        def write(limits: tuple[RateLimit, ...], now: float) -> dict[str, str]:
            headers: dict[str, str] = {}
            for rate in limits:
                if rate.kind not in names:
                    continue
                limit, remaining, reset = names[rate.kind]
                if rate.limit is not None:
                    headers[limit] = str(rate.limit)
                if rate.remaining is not None:
                    headers[remaining] = str(rate.remaining)
                if (after := rate.reset_after) is not None and math.isfinite(after):
                    headers[reset] = write_timestamp(now + after) if as_timestamp else write_duration(after)
            return headers

        return read, write


RateLimitReader = Callable[[Mapping[str, str], float], tuple[RateLimit, ...]]
RateLimitWriter = Callable[[tuple[RateLimit, ...], float], dict[str, str]]
HeaderNames = Mapping[str, tuple[str, str, str]]
"""For each kind the headers for limit, remaining and reset."""


def _header_names(pattern: str, kind: str) -> tuple[str, str, str]:
    limit, remaining, reset = (pattern.format(what=kind, field=field) for field in ("limit", "remaining", "reset"))
    return limit, remaining, reset


def _read_rate_limits(
    headers: Mapping[str, str], now: float, names: HeaderNames, resets_as_timestamp: bool
) -> tuple[RateLimit, ...]:
    found: list[RateLimit] = []
    for kind, (limit, remaining, reset) in names.items():
        if limit in headers or remaining in headers:
            after = _read_reset(headers.get(reset, ""), resets_as_timestamp, now)
            found.append(RateLimit(kind, _read_count(headers.get(limit)), _read_count(headers.get(remaining)), after))
    return tuple(found)


def _read_count(text: str | None) -> int | None:
    value = (text or "").strip()
    return int(value) if value.isascii() and value.isdecimal() and len(value) <= MAX_DIGITS else None


def _read_reset(text: str, resets_as_timestamp: bool, now: float) -> float | None:
    if not resets_as_timestamp:
        return read_duration(text.strip())
    timestamp = read_timestamp(text.strip())
    return None if timestamp is None else max(0.0, timestamp - now)
