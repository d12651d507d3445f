"""`toolwire costs`: for operators: what was spent, by key, team, model and more, from the ledger in the store."""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Sequence

from toolwire import terminal
from toolwire.gateway.features.costs.ledger import GROUPS, LedgerQuery, UsageSum
from toolwire.gateway.features.costs.ledger_tables import open_ledger
from toolwire.gateway.features.costs.report import (
    DEFAULT_SINCE,
    arrange_sums,
    read_query,
    show_group,
    write_document,
    write_fields,
)
from toolwire.gateway.features.costs.settings import CostSettings
from toolwire.gateway.models.amounts import format_dollars, from_units
from toolwire.gateway.settings.config import Config
from toolwire.gateway.store.command_store import require_up, use_store
from toolwire.terminal import CommandError

UNKNOWN = "unknown"


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
    query = read_query(args.by, args.since, args.until, args.only, now)
    hint = "remove `url` from [store] to have a ledger; the log and the metrics have costs without one"
    missing = CommandError("there is no ledger: `url` in [store] is `none`", hint)
    sums = require_up(use_store(config.store, missing, lambda store: open_ledger(store).read_sums(query)))
    sums = arrange_sums(query, sums)
    if args.json:
        sys.stdout.write(terminal.format_json(write_document(query, sums)))
    else:
        (print_csv if args.csv else print_table)(query, sums)
    if not config.section(CostSettings).enabled:
        sys.stderr.write("costs are not recorded now: `enabled` in [costs] is false\n")
    return 0


# --- output -----------------------------------------------------------------------------------------------------------


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
        names = [show_group(name, value) or "–" for name, value in zip(query.by, one.group, strict=False)]
        if one is total and query.by:
            names = ["total", *[""] * (len(query.by) - 1)]
        numbers = [f"{number:,}" for number in (one.calls, one.input, one.cache_read, one.output)]
        reported = [format_dollars(from_units(one.reported_cost)) if one.reported_calls else ""] if has_reports else []
        rows.append([*names, *numbers, _show_cost(one), *reported])
    colours = ["dim", *[""] * (len(rows) - 1), "head"]
    table = terminal.align_right([header, *rows], len(query.by))
    sys.stdout.write(terminal.format_table(table, colours, has_header=True))
    for note in _make_notes(total):
        sys.stdout.write(terminal.wrap_prose(note))


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


def print_csv(query: LedgerQuery, sums: Sequence[UsageSum]) -> None:
    rows = [write_fields(query, one) for one in sums]
    header = list(write_fields(query, UsageSum(group=(0,) * len(query.by))))
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(header)
    for fields in rows:
        writer.writerow([_guard_cell(value) for value in fields.values()])


def _guard_cell(value: object) -> object:
    """Clients choose some names: a spreadsheet must not take one for a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
