"""`toolwire costs`: for operators: what was spent, by key, team, model and more, from the ledger in the store."""

from __future__ import annotations

import argparse
import csv
import re
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from toolwire import terminal
from toolwire.gateway.features.costs.ledger import (
    DIMENSIONS,
    GROUPS,
    ROW_GROUPS,
    TIME_STEPS,
    LedgerQuery,
    UsageSum,
    fold_months,
)
from toolwire.gateway.features.costs.ledger_tables import open_ledger
from toolwire.gateway.features.costs.settings import CostSettings
from toolwire.gateway.models.amounts import format_dollars, from_units, write_amount
from toolwire.gateway.settings.config import Config
from toolwire.gateway.settings.problems import suggest_name
from toolwire.gateway.store.command_store import require_up, use_store
from toolwire.terminal import CommandError

DEFAULT_SINCE = "30d"
UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
TIME_FORMATS = {"hour": "%Y-%m-%d %H:00", "day": "%Y-%m-%d", "month": "%Y-%m"}
UNKNOWN = "unknown"
FILTERS = (*DIMENSIONS, *sorted(ROW_GROUPS))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    by = f"what to show costs by, one or several with commas (default: model): {', '.join(GROUPS)}; '' for the total"
    add("--by", metavar="GROUPS", default="model", help=by)
    since = f"from when: `24h`, `7d`, `4w`, or a time in UTC such as 2026-11-01T15:00 (default: {DEFAULT_SINCE})"
    add("--since", metavar="TIME", default=DEFAULT_SINCE, help=since)
    add("--until", metavar="TIME", default="", help="up to when, written in the same way (default: now)")
    only = "count only calls with this value, such as `team=app`; can be repeated"
    add("--only", metavar="NAME=VALUE", action="append", default=[], help=only)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON document")
    form.add_argument("--csv", action="store_true", help="print comma-separated values, with a header")


def run(args: argparse.Namespace, config: Config) -> int:
    now = time.time()
    query = LedgerQuery(
        by=_read_groups(args.by),
        since=_read_time(args.since, now, "--since"),
        until=_read_time(args.until, now, "--until") if args.until else now + 1,
        only=tuple(map(_read_filter, args.only)),
    )
    if query.since >= query.until:
        raise CommandError("--since is not before --until", "choose an earlier --since")
    hint = "remove `url` from [store] to have a ledger; the log and the metrics have costs without one"
    missing = CommandError("there is no ledger: `url` in [store] is `none`", hint)
    sums = require_up(use_store(config.store, missing, lambda store: open_ledger(store).read_sums(query)))
    sums = _sort_sums(query, fold_months(query, sums))
    write: Callable[[LedgerQuery, Sequence[UsageSum]], None] = print_table
    if args.json:
        write = print_json
    elif args.csv:
        write = print_csv
    write(query, sums)
    if not config.section(CostSettings).enabled:
        sys.stderr.write("costs are not recorded now: `enabled` in [costs] is false\n")
    return 0


# --- arguments --------------------------------------------------------------------------------------------------------


def _read_groups(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if name not in GROUPS:
            raise CommandError(f"--by: cannot show costs by `{name}`", suggest_name(name, GROUPS))
    return names


def _read_filter(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise CommandError(f"--only `{text}` has no value", "write NAME=VALUE, such as --only team=app")
    if name not in FILTERS:
        raise CommandError(f"--only: unknown name `{name}`", suggest_name(name, FILTERS))
    return name, value


def _read_time(text: str, now: float, option: str) -> float:
    """A time as a Unix time: so long ago, or a date."""
    found = re.fullmatch(r"(\d{1,6})([hdw])", text.strip())
    if found is not None:
        return max(0.0, now - int(found[1]) * UNITS[found[2]].total_seconds())
    try:
        moment = datetime.fromisoformat(text.strip())
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        hint = "write `24h`, `7d`, `4w`, or a time such as 2026-11-01 or 2026-11-01T15:00"
        raise CommandError(f"{option} `{text}` is not a time", hint) from None


def _sort_sums(query: LedgerQuery, sums: Sequence[UsageSum]) -> list[UsageSum]:
    """Times in their order; else what costs most first."""
    times = [place for place, name in enumerate(query.by) if name in TIME_STEPS]

    def order(one: UsageSum) -> tuple[object, ...]:
        return (*(one.group[place] for place in times), -one.cost, -one.input - one.output, *map(str, one.group))

    return sorted((one for one in sums if one.calls), key=order)


# --- output -----------------------------------------------------------------------------------------------------------


def _show_group(name: str, value: str | int) -> str:
    if name in TIME_FORMATS:
        return datetime.fromtimestamp(int(value), UTC).strftime(TIME_FORMATS[name])
    return str(value)


def _show_cost(one: UsageSum) -> str:
    """An unknown part of a cost is mentioned, not left out."""
    if one.unpriced_calls == one.calls:
        return UNKNOWN
    known = format_dollars(from_units(one.cost))
    return f"{known} + {UNKNOWN}" if one.unpriced_calls else known


def print_table(query: LedgerQuery, sums: Sequence[UsageSum]) -> None:
    if not sums:
        sys.stderr.write("no calls to providers in this time\n")
        return
    total = sum(sums, UsageSum())
    has_reports = total.reported_calls > 0
    header = [*query.by, "calls", "input", "cached", "output", "cost", *(["reported"] if has_reports else [])]
    rows: list[list[str]] = []
    for one in [*sums, total] if query.by else [total]:
        names = [_show_group(name, value) or "–" for name, value in zip(query.by, one.group, strict=False)]
        if one is total and query.by:
            names = ["total", *[""] * (len(query.by) - 1)]
        numbers = [f"{number:,}" for number in (one.calls, one.input, one.cache_read, one.output)]
        reported = [format_dollars(from_units(one.reported_cost)) if one.reported_calls else ""] if has_reports else []
        rows.append([*names, *numbers, _show_cost(one), *reported])
    _align_right([header, *rows], len(query.by))
    colours = ["dim", *[""] * (len(rows) - 1), "head"]
    sys.stdout.write(terminal.format_table([header, *rows], colours, has_header=True))
    for note in _make_notes(total):
        sys.stdout.write(terminal.wrap_prose(note))


def _align_right(table: Sequence[list[str]], first: int) -> None:
    for place in range(first, len(table[0])):
        width = max(len(row[place]) for row in table)
        for row in table:
            row[place] = row[place].rjust(width)


def _make_notes(total: UsageSum) -> list[str]:
    rows = (
        (total.unpriced_calls - total.unknown_calls, "has", "have", "no known price: set [models.NAME.facts.prices]."),
        (total.unknown_calls, "has", "have", "unknown usage: the provider did not say it."),
        (total.estimated_calls, "is", "are", "estimated: streams that were cut, or without usage."),
    )
    return [
        f"{count:,} {f'calls {many}' if count > 1 else f'call {one}'} {what}"
        for count, one, many, what in rows
        if count
    ]


def _write_fields(query: LedgerQuery, one: UsageSum) -> dict[str, object]:
    """A group as fields of JSON and CSV. An unknown cost is empty."""
    fields: dict[str, object] = {
        name: _show_group(name, value) for name, value in zip(query.by, one.group, strict=False)
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


_AMOUNTS = ("cost_usd", "reported_cost_usd")


def print_json(query: LedgerQuery, sums: Sequence[UsageSum]) -> None:
    def as_json(one: UsageSum) -> dict[str, object]:
        """Amounts are numbers with all their digits."""
        fields = _write_fields(query, one)
        return {
            name: msgspec.Raw(str(value).encode()) if name in _AMOUNTS and value is not None else value
            for name, value in fields.items()
        }

    document = {
        "since": datetime.fromtimestamp(query.since, UTC).isoformat(timespec="seconds"),
        "until": datetime.fromtimestamp(query.until, UTC).isoformat(timespec="seconds"),
        "by": query.by,
        "rows": [as_json(one) for one in sums],
        "total": as_json(sum(sums, UsageSum())),
    }
    sys.stdout.write(terminal.format_json(document))


def print_csv(query: LedgerQuery, sums: Sequence[UsageSum]) -> None:
    rows = [_write_fields(query, one) for one in sums]
    header = list(_write_fields(query, UsageSum(group=(0,) * len(query.by))))
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(header)
    for fields in rows:
        writer.writerow([_guard_cell(value) for value in fields.values()])


def _guard_cell(value: object) -> object:
    """Clients choose some names: a spreadsheet must not take one for a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
