"""What the calls of providers cost, by our prices and by their own words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

from toolwire.core.ir import Origin
from toolwire.gateway.models.amounts import UNIT_DIGITS, round_amount
from toolwire.gateway.models.catalogue import load_catalogue
from toolwire.gateway.models.prices import PriceFinder, estimate_cost, find_prices
from toolwire.gateway.settings.config import Config, Limit, Provider
from toolwire.gateway.settings.limits import MONEY_FIELDS
from toolwire.gateway.settings.router import Router
from toolwire.gateway.telemetry.record import CallUsage
from toolwire.policy.rules import matches_globs

MAX_AMOUNT = Decimal(100_000)
"""A call that costs more is nonsense: its provider counts tokens, or money, that cannot be. Its cost is unknown."""

MAX_REMEMBERED = 1024
MAX_SHOWN = 5
"""Names of models in a sentence."""


class CallPricer:
    """Finds the cost of calls, by the prices that one configuration knows."""

    def __init__(self, providers: Mapping[str, Provider]) -> None:
        self._providers = providers
        self._finders: dict[tuple[str, str, str], PriceFinder | None] = {}
        """The prices of models in a service tier, for one minute: some change with the time of the day."""
        self._start = self._end = 0.0
        """Of that minute."""

    def price_call(self, call: CallUsage, at: float) -> None:
        """Set what a call that has ended costs; `at` is the Unix time of its exchange."""
        usage = call.usage
        if usage is None:
            return
        if not self._start <= at < self._end:
            self._finders.clear()
            self._start, self._end = at - at % 60, at - at % 60 + 60
        names = (call.provider, call.model, usage.service_tier)
        finder = self._finders[names] if names in self._finders else self._find_prices(*names, at)
        if finder is not None:
            prices = finder.find_unit_prices(usage.input)
            cost = prices.price(usage, finder.source)
            if cost is not None and cost.total <= MAX_AMOUNT:
                call.cost = cost.total if prices.decimals <= UNIT_DIGITS else round_amount(cost.total)
        elif call.provider in self._providers and self._providers[call.provider].embedded:
            call.cost = Decimal(0)
        if usage.origin is not None:
            call.reported_cost = read_reported_cost(usage.origin)

    def _find_prices(self, provider: str, model: str, service_tier: str, at: float) -> PriceFinder | None:
        if len(self._finders) >= MAX_REMEMBERED:
            self._finders.clear()  # clients choose names of models
        found = self._providers.get(provider)
        finder = None if found is None else find_prices(found, model, at, service_tier)
        self._finders[provider, model, service_tier] = finder
        return finder


def find_unpriced_models(config: Config, limit: Limit, at: float) -> list[str]:
    """The models in the file that a hard limit in dollars is for, and of which no price is known: `PROVIDER/MODEL`, or
    `PROVIDER/*` where that is so for all of them."""
    if limit.soft or all(getattr(limit, field) is None for field in MONEY_FIELDS):
        return []
    router, catalogue = Router(config), load_catalogue()
    providers = [one for one in config.providers.values() if not one.embedded]
    unknown = [one.name for one in providers if not one.prices and not catalogue.has_provider(one)]
    names = [f"{name}/*" for name in unknown if not limit.provider or matches_globs(name, limit.provider)]
    for listed in router.list_models(None):
        targets = router.route(listed.id, None)
        for target in targets if isinstance(targets, tuple) else ():
            provider, model = target.provider, target.model
            is_selected = (not limit.provider or matches_globs(provider.name, limit.provider)) and (
                not limit.model or matches_globs(model.lower(), tuple(glob.lower() for glob in limit.model))
            )
            if is_selected and not provider.embedded and provider.name not in unknown:
                names += [f"{provider.name}/{model}"] if estimate_cost(provider, model, 1, 1, at) is None else []
    return list(dict.fromkeys(names))


def describe_unpriced(limit: Limit, names: Sequence[str]) -> str:
    """What a limit in dollars does with models without a known price."""
    shown = ", ".join(names[:MAX_SHOWN]) + (f" and {len(names) - MAX_SHOWN} more" if len(names) > MAX_SHOWN else "")
    return f"{'refuses' if limit.on_unknown_price == 'closed' else 'does not count'} {shown}: no price is known"


def read_reported_cost(origin: Origin) -> Decimal | None:
    """What the provider says itself that the call costs: OpenRouter does, as `cost` beside the tokens."""
    wire = origin.wire
    if type(wire) is not dict or "cost" not in wire:
        return None
    value = wire["cost"]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    amount = Decimal(repr(value))
    return round_amount(amount) if amount.is_finite() and 0 <= amount <= MAX_AMOUNT else None
