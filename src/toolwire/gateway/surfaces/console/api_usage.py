"""The types of the console's API for the view Usage; `api.py` explains what holds for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from msgspec import Struct


class UsageRow(Struct, frozen=True, kw_only=True):
    """What calls of providers have used, in a group; it has the members that were asked for."""

    hour: str = ""
    """In UTC, such as `2026-11-18 09:00`."""
    day: str = ""
    month: str = ""
    key: str = ""
    team: str = ""
    agent: str = ""
    subagent: str = ""
    provider: str = ""
    account: str = ""
    model: str = ""
    session: str = ""
    operation: str = ""
    calls: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    cost_usd: Decimal | None
    """None if it is not known of any call."""
    unpriced_calls: int
    reported_cost_usd: Decimal | None
    reported_calls: int
    unknown_calls: int
    estimated_calls: int


class UsageReport(Struct, frozen=True, kw_only=True):
    """The figures of `toolwire costs --json`: of all gateways that share the store."""

    since: str
    until: str
    by: Sequence[str]
    rows: Sequence[UsageRow]
    total: UsageRow


class RequestRow(Struct, frozen=True, kw_only=True):
    """How many requests there were in a group, and how they ended. Durations are of those that did not fail; they are
    wrong by less than five percent."""

    time: int | None
    """Unix time of the start of the step; None in sums."""
    name: str
    """The value of what was asked for by; `others` for all beyond the largest ones in the steps."""
    requests: int
    failed: int
    left: int
    """Requests whose clients left before the end."""
    retries: int
    duration_p50_ms: float | None
    """Half of them were answered in this time; None without any."""
    duration_p95_ms: float | None
    first_byte_p50_ms: float | None
    first_byte_p95_ms: float | None
    cache_expected_tokens: int
    cache_missed_turns: int
    cache_missed_tokens: int
    """Expected tokens that the provider did not read from its cache."""
    cache_missed_cost_usd: Decimal | None
    """What they cost more than if they had been read; None if it is known of no turn."""


class CacheCause(Struct, frozen=True, kw_only=True):
    """What the prompt cache did not give for one cause."""

    cause: str
    """As in `CacheUsage`."""
    turns: int
    missed_tokens: int
    extra_cost_usd: Decimal | None
    unpriced_turns: int


class RequestReport(Struct, frozen=True, kw_only=True):
    """The requests of this gateway with all of its workers, since they run."""

    by: str
    step_seconds: int
    since: float
    until: float
    kept_since: float
    """Unix time: what was before is not known."""
    rows: Sequence[RequestRow]
    """By time."""
    sums: Sequence[RequestRow]
    """Of each group, the largest first."""
    total: RequestRow
    causes: Sequence[CacheCause]


class LimitRow(Struct, frozen=True, kw_only=True):
    """One amount of a limit, for one of those that it is for."""

    limit: str
    group: str
    """Which key, team, agent or model, for a limit that is for each of them."""
    amount: str
    """Its key in the configuration, such as `dollars_per_day`."""
    maximum: Decimal
    used: Decimal
    reserved: Decimal
    """By requests that run."""
    opens_after: float | None
    """Seconds until its window ends; None if nothing was used in it, and for requests at a time."""
    is_soft: bool
    """Does it only warn?"""


class LimitReport(Struct, frozen=True, kw_only=True):
    """What is used of each limit, of all gateways that share the counters; the most used first."""

    limits: Sequence[LimitRow]
