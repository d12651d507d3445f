"""`toolwire costs limits`: for operators: what is used of each limit, from the counters themselves."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal

from msgspec import Struct

from toolwire import terminal
from toolwire.core.ir import EMPTY_MAPPING
from toolwire.core.rate_limits import write_duration
from toolwire.gateway.features.limits.counters import Counters, CounterUse
from toolwire.gateway.features.limits.counters_sqlite import SqliteCounters
from toolwire.gateway.features.limits.limits import COUNTS_PER_DOLLAR
from toolwire.gateway.features.limits.open_counters import open_counters
from toolwire.gateway.features.limits.settings import (
    AMOUNT_FIELDS,
    MONEY_FIELDS,
    Limit,
    LimitSettings,
    describe_amount,
)
from toolwire.gateway.features.limits.unpriced import describe_unpriced, find_unpriced_models
from toolwire.gateway.models.amounts import format_dollars, write_amount
from toolwire.gateway.settings.config import Config
from toolwire.gateway.settings.store import NO_STORE, find_url, sqlite_path, store_url
from toolwire.gateway.store.store import StoreDown
from toolwire.terminal import EXIT_FAILED, CommandError


class LimitUse(Struct, frozen=True):
    """One amount of a limit. Dollars are exact, as text."""

    limit: str
    group: str
    amount: str
    """Its key in the file."""
    maximum: float
    used: int | str
    reserved: int | str
    opens_after: float | None
    """Seconds until the window ends; null for parallel requests, and if nothing was used yet."""
    soft: bool
    unpriced: tuple[str, ...] = ()
    """Models that a limit in dollars does not count, because no price is known and it lets them pass."""


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


def find_uses(
    limits: Sequence[Limit], counters: Sequence[CounterUse], unpriced: Mapping[str, tuple[str, ...]] = EMPTY_MAPPING
) -> Iterator[LimitUse]:
    """What is used of each amount of each limit, and of each group that has used something. `unpriced` are models by
    the name of the limit in dollars that cannot count them."""
    for limit in limits:
        for field in AMOUNT_FIELDS:
            if getattr(limit, field) is None:
                continue
            name = f"{limit.name}/{field}"
            found = [
                use for use in counters if use.counter == name or (limit.per and use.counter.startswith(f"{name}/"))
            ]
            for use in found or [CounterUse(name, "", 0, 0, 0.0)]:
                group = use.counter.removeprefix(name).removeprefix("/")
                uncounted = unpriced.get(limit.name, ()) if limit.on_unknown_price == "open" else ()
                yield _describe_use(limit, field, group, use, uncounted)


def _describe_use(limit: Limit, field: str, group: str, use: CounterUse, unpriced: tuple[str, ...]) -> LimitUse:
    is_money = field in MONEY_FIELDS
    used, held = (write_amount(Decimal(one) / COUNTS_PER_DOLLAR) if is_money else one for one in (use.used, use.held))
    opens = use.opens_after if use.unit not in ("", "none") else None
    amount = getattr(limit, field)
    return LimitUse(limit.name, group, field, amount, used, held, opens, limit.soft, unpriced if is_money else ())


def _row(use: LimitUse) -> tuple[str, ...]:
    opens = write_duration(round(use.opens_after)) if use.opens_after is not None else ""
    amounts = (_show(use.used) + (" + unknown" if use.unpriced else ""), _show(use.reserved))
    return use.limit, use.group, describe_amount(use.amount, use.maximum), *amounts, opens


def _show(amount: int | str) -> str:
    return format_dollars(Decimal(amount)) if isinstance(amount, str) else f"{amount:,}"
