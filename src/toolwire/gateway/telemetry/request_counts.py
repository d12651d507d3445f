"""How many requests there were, how many failed, how long they took, and what the prompt cache gave: by minute and by
hour, for each key, team, agent, provider and model. In memory only, for the console.

A request only leaves its facts here, which costs next to nothing. They are counted some hundreds at a time, or when
somebody looks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from math import log2
from operator import attrgetter
from typing import TypeAlias

from msgspec import Struct, msgpack

from toolwire.gateway.http.redact import safe_name
from toolwire.gateway.models.amounts import to_units
from toolwire.gateway.telemetry.record import CacheReport, Client, ExchangeRecord, UpstreamNames

MINUTE, HOUR, DAY = 60, 3600, 86_400
STEPS = (MINUTE, HOUR, DAY)
KEPT_MINUTES = 6 * HOUR
"""Seconds for which minutes are kept: after that only hours are. A whole hour at a time."""
KEPT_HOURS = 31 * DAY
MAX_COUNTS = 10_000
"""Counts that are kept, of minutes and of hours each. Clients choose some of the names. A minute takes 0.7 kB, with 50
requests 2.6 kB; an hour takes 0.6 kB. Of minutes there may be twice as many until they are folded the next time."""
MAX_WAITING = 256
SLICE = 300
"""Counts that are read at a time."""
MAX_NAME = 90
"""As in the ledger of costs, so that the same names are the same there."""
DIMENSIONS = ("key", "team", "agent", "provider", "model")
OTHERS = "others"
"""Those beyond the largest groups, together."""
COUNTED_OPERATIONS = frozenset({"chat", "passthrough", "background"})
"""Others ask no model anything, such as lists of models and counts of tokens."""
BUCKETS_PER_DOUBLING = 8
"""Of durations: so a quantile is wrong by less than five percent."""

Names: TypeAlias = tuple[str, ...]
Facts: TypeAlias = tuple[
    float, str, Client, UpstreamNames, int, str, bool, float, float, float, list[tuple[str, str, float]],
    CacheReport | None,
]  # fmt: skip
_read_facts: Callable[[ExchangeRecord], Facts] = attrgetter(
    "started_at", "asked.operation", "client", "upstream", "status", "failure", "client_disconnected", "started",
    "first_byte", "ended", "attempts", "cache",
)  # fmt: skip


class Missed(Struct, gc=False):
    """Turns whose expected tokens were not read from the prompt cache, for one cause."""

    turns: int = 0
    tokens: int = 0
    cost: int = 0
    """In 10⁻¹² USD: how much more they cost than if they had been read."""
    unpriced: int = 0
    """Turns for which that is not known."""

    def add(self, other: Missed) -> None:
        self.turns += other.turns
        self.tokens += other.tokens
        self.cost += other.cost
        self.unpriced += other.unpriced


class Counts(Struct, gc=False, array_like=True):
    """What is counted of the requests of one group in one step of time. Durations are of those that did not fail."""

    requests: int = 0
    failed: int = 0
    left: int = 0
    """Requests whose clients left before the end."""
    retries: int = 0
    """Attempts beyond the first."""
    durations: dict[int, int] = {}
    """By `find_bucket`."""
    first_bytes: dict[int, int] = {}
    expected: int = 0
    """Tokens that an unchanged prefix lets the provider read from its cache."""
    missed: dict[str, Missed] = {}
    """By cause."""

    def add(self, other: Counts) -> None:
        self.requests += other.requests
        self.failed += other.failed
        self.left += other.left
        self.retries += other.retries
        self.expected += other.expected
        for own, more in (self.durations, other.durations), (self.first_bytes, other.first_bytes):
            for bucket, count in more.items():
                own[bucket] = own.get(bucket, 0) + count
        for cause, missed in other.missed.items():
            self.missed.setdefault(cause, Missed()).add(missed)

    def sum_missed(self) -> Missed:
        total = Missed()
        for missed in self.missed.values():
            total.add(missed)
        return total


class CountQuery(Struct, frozen=True):
    by: str
    """Of `DIMENSIONS`."""
    step: int
    """Of `STEPS`, in seconds."""
    since: float
    only: tuple[tuple[str, str], ...] = ()
    """Pairs of a dimension and the value that requests must have."""


class CountSums(Struct):
    kept_since: float
    """Unix time since when everything is there."""
    step: int
    """That of the query, or an hour if some of its minutes are kept no more."""
    counts: list[tuple[int, str, Counts]] = []
    """With the Unix time of the step's start, and the group."""


_pack, _unpack = msgpack.Encoder().encode, msgpack.Decoder(Counts).decode


def find_bucket(seconds: float) -> int:
    return int(BUCKETS_PER_DOUBLING * log2(max(1.0, seconds * 1e3)))


def find_quantile(buckets: Mapping[int, int], share: float) -> float | None:
    """The duration in milliseconds that this share of requests did not exceed; None without any."""
    rest = share * sum(buckets.values())
    for bucket in sorted(buckets):
        rest -= buckets[bucket]
        if rest <= 0:
            return float(2 ** ((bucket + 0.5) / BUCKETS_PER_DOUBLING))
    return None


class RequestCounts:
    def __init__(self, now: float) -> None:
        self.kept_since = now
        self.waiting: list[Facts] = []
        self._minutes: dict[tuple[int, Names], Counts] = {}
        """In the order in which they began, mostly."""
        self._hours: dict[tuple[int, Names], bytes] = {}
        """Packed: whoever is reading has one with a minute in it, or the minute."""
        self._folded_minute = 0.0

    def add(self, records: Sequence[ExchangeRecord]) -> None:
        waiting = self.waiting
        waiting.extend(map(_read_facts, records))
        if len(waiting) > MAX_WAITING:
            self.count_waiting()

    def count_waiting(self) -> None:
        waiting, self.waiting = self.waiting, []
        minutes = self._minutes
        for facts in waiting:
            if facts[1] not in COUNTED_OPERATIONS:
                continue
            started_at, _, client, upstream = facts[:4]
            names = _clean_names(client.key_name, client.team, client.agent, upstream.provider, upstream.model)
            key = (int(started_at) // MINUTE * MINUTE, names)
            counts = minutes.get(key)
            if counts is None:
                counts = minutes[key] = Counts()
            _count(counts, facts)
        if waiting:
            started_at, started, ended = waiting[-1][0], waiting[-1][7], waiting[-1][9]
            now = started_at + ended - started
            if now // MINUTE != self._folded_minute or len(minutes) > 2 * MAX_COUNTS:
                self._fold_minutes(now)

    def _fold_minutes(self, now: float) -> None:
        """Minutes that are old become hours, and the oldest hours are forgotten."""
        self._folded_minute = now // MINUTE
        end = _find_end(self._minutes, now - KEPT_MINUTES)
        hours: dict[tuple[int, Names], Counts] = {}
        for time, names in [key for key in self._minutes if key[0] < end]:
            hours.setdefault((time // HOUR * HOUR, names), Counts()).add(self._minutes.pop((time, names)))
        for key, counts in hours.items():
            if key in self._hours:
                counts.add(_unpack(self._hours[key]))
            self._hours[key] = _pack(counts)
        end = _find_end(self._hours, now - KEPT_HOURS)
        for key in [key for key in self._hours if key[0] < end]:
            del self._hours[key]
            self.kept_since = max(self.kept_since, min(now, key[0] + HOUR))

    async def read_sums(self, query: CountQuery) -> CountSums:
        """The counts of each group in each step. The one in which `since` is counts whole. Between some hundreds,
        requests get their turn."""
        self.count_waiting()
        place = DIMENSIONS.index(query.by)
        only = [(DIMENSIONS.index(name), value) for name, value in query.only]
        found: dict[tuple[int, str], Counts] = {}
        has_hours = any(time >= query.since // HOUR * HOUR for time, _ in self._hours)
        step = max(query.step, HOUR) if has_hours else query.step
        start = query.since // step * step
        kept: list[tuple[tuple[int, Names], Counts | bytes]] = [*self._minutes.items(), *self._hours.items()]
        for number, ((time, names), counts) in enumerate(kept):
            if time >= start and all(names[at] == value for at, value in only):
                more = _unpack(counts) if isinstance(counts, bytes) else counts
                found.setdefault((time // step * step, names[place]), Counts()).add(more)
            if number % SLICE == SLICE - 1:
                await asyncio.sleep(0)
        return CountSums(self.kept_since, step, [(time, name, counts) for (time, name), counts in found.items()])


def _find_end(keys: Collection[tuple[int, Names]], since: float) -> int:
    """The hour before which counts go: those that are older, and as many hours more as are too many."""
    excess = len(keys) - MAX_COUNTS
    first = since if excess <= 0 else max(since, sorted(time for time, _ in keys)[excess - 1] + HOUR)
    return int(first) // HOUR * HOUR


def add_sums(sums: Sequence[CountSums]) -> CountSums:
    """Those of several processes."""
    found: dict[tuple[int, str], Counts] = {}
    kept_since, step = max(one.kept_since for one in sums), max(one.step for one in sums)
    for one in sums:
        for time, name, counts in one.counts:
            found.setdefault((time // step * step, name), Counts()).add(counts)
    return CountSums(kept_since, step, [(time, name, counts) for (time, name), counts in found.items()])


@lru_cache(1024)
def _clean_names(*names: str) -> Names:
    """Without credentials and control characters; the same ones come again and again."""
    return tuple(safe_name(name)[:MAX_NAME] for name in names)


def _count(counts: Counts, facts: Facts) -> None:
    _, _, _, _, status, failure, has_left, started, first_byte, ended, attempts, cache = facts
    counts.requests += 1
    counts.retries += max(0, len(attempts) - 1)
    if has_left:
        counts.left += 1
    elif failure or status >= 400:
        counts.failed += 1
    else:
        bucket = find_bucket(ended - started)
        counts.durations[bucket] = counts.durations.get(bucket, 0) + 1
        if first_byte:
            bucket = find_bucket(first_byte - started)
            counts.first_bytes[bucket] = counts.first_bytes.get(bucket, 0) + 1
    if cache is not None:
        counts.expected += cache.expected
        if cache.missed:
            missed = counts.missed.setdefault(cache.cause, Missed())
            missed.turns += 1
            missed.tokens += cache.missed
            missed.cost += to_units(cache.cost or Decimal(0))
            missed.unpriced += cache.cost is None
