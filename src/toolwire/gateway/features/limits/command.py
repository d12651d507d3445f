"""`toolwire costs limits`: for operators: what is used of each limit, from the counters themselves."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from decimal import Decimal

from toolwire import terminal
from toolwire.core.rate_limits import write_duration
from toolwire.gateway.features.limits.counters import Counters, CounterUse
from toolwire.gateway.features.limits.counters_sqlite import SqliteCounters
from toolwire.gateway.features.limits.open_counters import open_counters
from toolwire.gateway.features.limits.report import LimitUse, find_uses
from toolwire.gateway.features.limits.settings import LimitSettings, describe_amount
from toolwire.gateway.features.limits.unpriced import describe_unpriced, find_unpriced_models
from toolwire.gateway.models.amounts import format_dollars
from toolwire.gateway.settings.config import Config
from toolwire.gateway.settings.store import NO_STORE, find_url, sqlite_path, store_url
from toolwire.gateway.store.store import StoreDown
from toolwire.terminal import EXIT_FAILED, CommandError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace, config: Config) -> int:
    limits = config.section(LimitSettings).limits
    unpriced = {limit.name: tuple(find_unpriced_models(config, limit, time.time())) for limit in limits}
    uses = list(find_uses(limits, read_counters(config), unpriced)) if limits else []
    if args.json:
        sys.stdout.write(terminal.format_json(uses))
    elif not uses:
        sys.stderr.write("no limits are configured: add [[limits]] to the file, or limits to a key\n")
    else:
        rows = [("limit", "for", "amount", "used", "reserved", "opens in"), *map(_row, uses)]
        sys.stdout.write(terminal.format_table(rows, has_header=True))
        for limit in limits:
            if unpriced[limit.name]:
                sys.stdout.write(f"`{limit.name}` {describe_unpriced(limit, unpriced[limit.name])}\n")
    return 0


def _open_shared_counters(config: Config) -> Counters:
    """The counters outside of the gateway's memory."""
    url = find_url(config.section(LimitSettings).counters, os.environ) or store_url(config.store, os.environ)
    if url == NO_STORE:
        hint = "ask it: /metrics has toolwire_limit_used; with a store they outlive it"
        raise CommandError("the counters are in the memory of the gateway: `url` in [store] is `none`", hint)
    path = sqlite_path(url)
    return SqliteCounters(path) if path is not None else open_counters(config, os.environ)


def read_counters(config: Config) -> list[CounterUse]:
    found = asyncio.run(_list_counters(_open_shared_counters(config)))
    if isinstance(found, StoreDown):
        raise CommandError(found.reason, "start it, or see [counters] and [store] in the file", EXIT_FAILED)
    return found


async def _list_counters(counters: Counters) -> list[CounterUse] | StoreDown:
    try:
        return await counters.list_counters()
    finally:
        await counters.close()


def _row(use: LimitUse) -> tuple[str, ...]:
    opens = write_duration(round(use.opens_after)) if use.opens_after is not None else ""
    amounts = (_show(use.used) + (" + unknown" if use.unpriced else ""), _show(use.reserved))
    return use.limit, use.group, describe_amount(use.amount, use.maximum), *amounts, opens


def _show(amount: int | str) -> str:
    return format_dollars(Decimal(amount)) if isinstance(amount, str) else f"{amount:,}"
