"""What the ledger says of a time, by groups: the same figures for `toolwire costs --json` and for the console."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import msgspec

from toolwire.gateway.features.costs.ledger import (
    DIMENSIONS,
    GROUPS,
    ROW_GROUPS,
    TIME_STEPS,
    LedgerQuery,
    UsageSum,
    fold_months,
)
from toolwire.gateway.models.amounts import from_units, write_amount
from toolwire.gateway.settings.problems import suggest_name
from toolwire.gateway.settings.times import parse_duration
from toolwire.terminal import CommandError

DEFAULT_SINCE = "30d"
TIME_FORMATS = {"hour": "%Y-%m-%d %H:00", "day": "%Y-%m-%d", "month": "%Y-%m"}
FILTERS = (*DIMENSIONS, *sorted(ROW_GROUPS))
_AMOUNTS = ("cost_usd", "reported_cost_usd")


def read_query(by: str, since: str, until: str, only: Iterable[str], now: float) -> LedgerQuery:
    """A question to the ledger, as an operator writes it. Raises CommandError."""
    query = LedgerQuery(
        by=_read_groups(by),
        since=read_time(since, now, "--since"),
        until=read_time(until, now, "--until") if until else now + 1,
        only=tuple(map(read_filter, only)),
    )
    if query.since >= query.until:
        raise CommandError("--since is not before --until", "choose an earlier --since")
    return query


def _read_groups(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if name not in GROUPS:
            raise CommandError(f"--by: cannot show costs by `{name}`", suggest_name(name, GROUPS))
    return names


def read_filter(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise CommandError(f"--only `{text}` has no value", "write NAME=VALUE, such as --only team=app")
    if name not in FILTERS:
        raise CommandError(f"--only: unknown name `{name}`", suggest_name(name, FILTERS))
    return name, value


def read_time(text: str, now: float, option: str) -> float:
    """A time as a Unix time: so long ago, or a date. Raises CommandError."""
    duration = parse_duration(text.strip())
    if duration is not None:
        return max(0.0, now - duration)
    try:
        moment = datetime.fromisoformat(text.strip())
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        hint = "write `24h`, `7d`, `4w`, or a time such as 2026-11-01 or 2026-11-01T15:00"
        raise CommandError(f"{option} `{text}` is not a time", hint) from None


def arrange_sums(query: LedgerQuery, sums: Iterable[UsageSum]) -> list[UsageSum]:
    """Of each group, months folded; times in their order, else what costs most first."""
    times = [place for place, name in enumerate(query.by) if name in TIME_STEPS]

    def order(one: UsageSum) -> tuple[object, ...]:
        return (*(one.group[place] for place in times), -one.cost, -one.input - one.output, *map(str, one.group))

    return sorted((one for one in fold_months(query, sums) if one.calls), key=order)


def show_group(name: str, value: str | int) -> str:
    if name in TIME_FORMATS:
        return datetime.fromtimestamp(int(value), UTC).strftime(TIME_FORMATS[name])
    return str(value)


def write_fields(query: LedgerQuery, one: UsageSum) -> dict[str, object]:
    """A group as fields of JSON and CSV. An unknown cost is empty."""
    fields: dict[str, object] = {
        name: show_group(name, value) for name, value in zip(query.by, one.group, strict=False)
    }
    fields |= {
        "calls": one.calls,
        "input_tokens": one.input,
        "output_tokens": one.output,
        "cache_read_tokens": one.cache_read,
        "cache_write_tokens": one.cache_write,
        "reasoning_tokens": one.reasoning,
        "cost_usd": write_amount(from_units(one.cost)) if one.unpriced_calls < one.calls or not one.calls else None,
        "unpriced_calls": one.unpriced_calls,
        "reported_cost_usd": write_amount(from_units(one.reported_cost)) if one.reported_calls else None,
        "reported_calls": one.reported_calls,
        "unknown_calls": one.unknown_calls,
        "estimated_calls": one.estimated_calls,
    }
    return fields


def write_document(query: LedgerQuery, sums: Sequence[UsageSum]) -> dict[str, object]:
    return {
        "since": datetime.fromtimestamp(query.since, UTC).isoformat(timespec="seconds"),
        "until": datetime.fromtimestamp(query.until, UTC).isoformat(timespec="seconds"),
        "by": query.by,
        "rows": [_write_numbers(query, one) for one in sums],
        "total": _write_numbers(query, sum(sums, UsageSum())),
    }


def _write_numbers(query: LedgerQuery, one: UsageSum) -> dict[str, object]:
    """Amounts are numbers with all their digits."""
    fields = write_fields(query, one)
    return {
        name: msgspec.Raw(str(value).encode()) if name in _AMOUNTS and value is not None else value
        for name, value in fields.items()
    }
