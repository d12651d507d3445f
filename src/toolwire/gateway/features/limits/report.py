"""What is used of each limit: the same for `toolwire costs limits` and for the console."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal

from msgspec import Struct

from toolwire.core.ir import EMPTY_MAPPING
from toolwire.gateway.features.limits.counters import CounterUse
from toolwire.gateway.features.limits.limits import COUNTS_PER_DOLLAR
from toolwire.gateway.features.limits.settings import AMOUNT_FIELDS, MONEY_FIELDS, Limit
from toolwire.gateway.models.amounts import write_amount


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


def find_uses(
    limits: Sequence[Limit], counters: Sequence[CounterUse], unpriced: Mapping[str, tuple[str, ...]] = EMPTY_MAPPING
) -> Iterator[LimitUse]:
    """What is used of each amount of each limit, and of each group that has used something. `unpriced` are models by
    the name of the limit in dollars that cannot count them."""
    found: dict[str, list[CounterUse]] = {}
    for use in counters:  # there may be thousands, and as many limits
        for place, char in enumerate(f"{use.counter}/"):
            if char == "/":
                found.setdefault(use.counter[:place], []).append(use)
    for limit in limits:
        for field in AMOUNT_FIELDS:
            if getattr(limit, field) is None:
                continue
            name = f"{limit.name}/{field}"
            uses = [use for use in found.get(name, ()) if limit.per or use.counter == name]
            for use in uses or [CounterUse(name, "", 0, 0, 0.0)]:
                group = use.counter.removeprefix(name).removeprefix("/")
                uncounted = unpriced.get(limit.name, ()) if limit.on_unknown_price == "open" else ()
                yield _describe_use(limit, field, group, use, uncounted)


def _describe_use(limit: Limit, field: str, group: str, use: CounterUse, unpriced: tuple[str, ...]) -> LimitUse:
    is_money = field in MONEY_FIELDS
    used, held = (write_amount(Decimal(one) / COUNTS_PER_DOLLAR) if is_money else one for one in (use.used, use.held))
    opens = use.opens_after if use.unit not in ("", "none") else None
    amount = getattr(limit, field)
    return LimitUse(limit.name, group, field, amount, used, held, opens, limit.soft, unpriced if is_money else ())
