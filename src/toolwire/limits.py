"""Rate limits in headers: one table for reading and writing, the spelling is the room's."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import msgspec

from toolwire.room import Limit
from toolwire.times import read_instant, read_span, write_instant, write_span

DIGITS = 18


class Spelling(msgspec.Struct, frozen=True):
    """How a protocol spells its rate limits."""

    pattern: str
    """The name of a header, with `{what}` and `{field}` (limit, remaining, reset) in it."""
    kinds: tuple[str, ...]
    instants: bool = False
    """Is the reset told as a time of day, or as a span of time?"""

    def doors(self) -> tuple[Reader, Writer]:
        """Reading and writing, with the names of the headers made once."""
        names = {what: _names(self.pattern, what) for what in self.kinds}
        numbers = _numbers(names)
        instants = self.instants

        def read(headers: Mapping[str, str], now: float) -> tuple[Limit, ...]:
            return () if numbers.isdisjoint(headers) else _read(headers, now, names, instants)

        def write(limits: tuple[Limit, ...], now: float) -> dict[str, str]:
            headers: dict[str, str] = {}
            for one in limits:
                if one.what not in names:
                    continue
                limit, remaining, reset = names[one.what]
                if one.limit is not None:
                    headers[limit] = str(one.limit)
                if one.remaining is not None:
                    headers[remaining] = str(one.remaining)
                if one.reset is not None and math.isfinite(one.reset):
                    headers[reset] = write_instant(now + one.reset) if instants else write_span(one.reset)
            return headers

        return read, write


Reader = Callable[[Mapping[str, str], float], tuple[Limit, ...]]
Writer = Callable[[tuple[Limit, ...], float], dict[str, str]]
Names = Mapping[str, tuple[str, str, str]]
"""The headers of each kind: its limit, what remains of it, and when it is reset."""


def _names(pattern: str, what: str) -> tuple[str, str, str]:
    limit, remaining, reset = (pattern.format(what=what, field=field) for field in ("limit", "remaining", "reset"))
    return limit, remaining, reset


def _read(headers: Mapping[str, str], now: float, names: Names, instants: bool) -> tuple[Limit, ...]:
    found: list[Limit] = []
    for what, (limit, remaining, reset) in names.items():
        if limit in headers or remaining in headers:
            whole = _seconds(headers.get(reset, ""), instants, now)
            found.append(Limit(what, _number(headers.get(limit)), _number(headers.get(remaining)), whole))
    return tuple(found)


def _numbers(names: Names) -> frozenset[str]:
    """The headers of which one must be there for anything to be told."""
    return frozenset(name for limit, remaining, _ in names.values() for name in (limit, remaining))


def _number(text: str | None) -> int | None:
    value = (text or "").strip()
    return int(value) if value.isascii() and value.isdecimal() and len(value) <= DIGITS else None


def _seconds(text: str, instants: bool, now: float) -> float | None:
    if not instants:
        return read_span(text.strip())
    instant = read_instant(text.strip())
    return None if instant is None else max(0.0, instant - now)
