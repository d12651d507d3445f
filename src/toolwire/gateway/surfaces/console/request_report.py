"""Requests over time, for the page: questions as it asks them, and answers of all workers as one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal

from toolwire.gateway.features.costs import report
from toolwire.gateway.features.limits.report import LimitUse
from toolwire.gateway.models.amounts import from_units
from toolwire.gateway.settings.problems import suggest_name
from toolwire.gateway.surfaces.console.api_usage import CacheCause, LimitReport, LimitRow, RequestReport, RequestRow
from toolwire.gateway.surfaces.console.rows import CleanText, shorten_amount
from toolwire.gateway.telemetry.request_counts import (
    DAY,
    DIMENSIONS,
    HOUR,
    MINUTE,
    OTHERS,
    CountQuery,
    Counts,
    CountSums,
    Missed,
    add_sums,
    find_quantile,
)
from toolwire.terminal import CommandError

STEPS = {"minute": MINUTE, "hour": HOUR, "day": DAY}
DEFAULT_SINCE = "6h"
MAX_LINES = 6
"""Groups in the steps; what is beyond is one group."""
MAX_SUMS = 200


def read_query(by: str, step: str, since: str, only: Iterable[str], now: float) -> CountQuery:
    """Raises CommandError."""
    filters = tuple(map(report.read_filter, only))
    for name in (by, *(name for name, _ in filters)):
        if name not in DIMENSIONS:
            raise CommandError(f"requests are not counted by `{name}`", suggest_name(name, DIMENSIONS))
    if step not in STEPS:
        raise CommandError(f"there is no step `{step}`", suggest_name(step, STEPS))
    return CountQuery(by, STEPS[step], report.read_time(since, now, "--since"), filters)


def write_report(query: CountQuery, parts: Sequence[CountSums], now: float, clean: CleanText) -> RequestReport:
    sums = add_sums(parts)
    groups: dict[str, Counts] = {}
    total = Counts()
    for _, name, counts in sums.counts:
        groups.setdefault(name, Counts()).add(counts)
        total.add(counts)
    largest = sorted(groups, key=lambda name: (-groups[name].requests, name))
    lines = frozenset(largest if len(largest) <= MAX_LINES else largest[: MAX_LINES - 1])
    steps: dict[tuple[int, str], Counts] = {}
    for time, name, counts in sums.counts:
        steps.setdefault((time, name if name in lines else OTHERS), Counts()).add(counts)
    return RequestReport(
        by=query.by,
        step_seconds=sums.step,
        since=query.since,
        until=now,
        kept_since=sums.kept_since,
        rows=[_write_row(time, clean(name), steps[time, name]) for time, name in sorted(steps)],
        sums=[_write_row(None, clean(name), groups[name]) for name in largest[:MAX_SUMS]],
        total=_write_row(None, "", total),
        causes=_write_causes(total),
    )


def _write_row(time: int | None, name: str, counts: Counts) -> RequestRow:
    missed = counts.sum_missed()
    durations, first_bytes = counts.durations, counts.first_bytes
    return RequestRow(
        time=time,
        name=name,
        requests=counts.requests,
        failed=counts.failed,
        left=counts.left,
        retries=counts.retries,
        duration_p50_ms=find_quantile(durations, 0.5),
        duration_p95_ms=find_quantile(durations, 0.95),
        first_byte_p50_ms=find_quantile(first_bytes, 0.5),
        first_byte_p95_ms=find_quantile(first_bytes, 0.95),
        cache_expected_tokens=counts.expected,
        cache_missed_turns=missed.turns,
        cache_missed_tokens=missed.tokens,
        cache_missed_cost_usd=_write_cost(missed),
    )


def _write_causes(total: Counts) -> Sequence[CacheCause]:
    causes = sorted(total.missed.items(), key=lambda pair: (-pair[1].cost, -pair[1].tokens, pair[0]))
    return [
        CacheCause(
            cause=cause,
            turns=missed.turns,
            missed_tokens=missed.tokens,
            extra_cost_usd=_write_cost(missed),
            unpriced_turns=missed.unpriced,
        )
        for cause, missed in causes
    ]


def write_limits(uses: Iterable[LimitUse], clean: CleanText) -> LimitReport:
    rows = [
        LimitRow(
            limit=clean(use.limit),
            group=clean(use.group),
            amount=use.amount,
            maximum=Decimal(str(use.maximum)),
            used=Decimal(use.used),
            reserved=Decimal(use.reserved),
            opens_after=use.opens_after,
            is_soft=use.soft,
        )
        for use in uses
    ]
    return LimitReport(limits=sorted(rows, key=_order_limit)[:MAX_SUMS])


def _order_limit(row: LimitRow) -> tuple[Decimal, str, str, str]:
    share = (row.used + row.reserved) / row.maximum if row.maximum else Decimal(1)
    return (-share, row.limit, row.amount, row.group)


def _write_cost(missed: Missed) -> Decimal | None:
    return None if missed.turns and missed.turns == missed.unpriced else shorten_amount(from_units(missed.cost))
