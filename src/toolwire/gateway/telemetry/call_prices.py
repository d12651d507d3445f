"""What the calls of providers cost, by our prices and by their own words."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from toolwire.core.bounded_dict import BoundedDict
from toolwire.core.json_values import Json
from toolwire.gateway.models.amounts import UNIT_DIGITS, round_amount
from toolwire.gateway.models.prices import PriceFinder, find_prices
from toolwire.gateway.settings.config import Provider
from toolwire.gateway.telemetry.record import CallUsage

MAX_AMOUNT = Decimal(100_000)
"""A call that costs more is nonsense: its provider counts tokens, or money, that cannot be. Its cost is unknown."""

MAX_REMEMBERED = 1024


class CallPricer:
    """Finds the cost of calls, by the prices that one configuration knows."""

    def __init__(self, providers: Mapping[str, Provider]) -> None:
        self._providers = providers
        self._finders: dict[tuple[str, str, str], PriceFinder | None] = BoundedDict(MAX_REMEMBERED)
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
        try:
            finder = self._finders[names]
        except KeyError:
            finder = self._find_prices(*names, at)
        if finder is not None:
            prices = finder.find_unit_prices(usage.input)
            cost = prices.price(usage)
            if cost is not None and cost <= MAX_AMOUNT:
                call.cost = cost if prices.decimals <= UNIT_DIGITS else round_amount(cost)
        elif call.provider in self._providers and self._providers[call.provider].embedded:
            call.cost = Decimal(0)
        wire = usage.origin.wire if usage.origin is not None else None
        if type(wire) is dict and "cost" in wire:
            call.reported_cost = read_reported_cost(wire["cost"])

    def _find_prices(self, provider: str, model: str, service_tier: str, at: float) -> PriceFinder | None:
        found = self._providers.get(provider)
        finder = None if found is None else find_prices(found, model, at, service_tier)
        self._finders[provider, model, service_tier] = finder
        return finder


def read_reported_cost(value: Json) -> Decimal | None:
    """What the provider says itself that the call costs: OpenRouter does, as `cost` beside the tokens."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    amount = Decimal(repr(value))
    return round_amount(amount) if amount.is_finite() and 0 <= amount <= MAX_AMOUNT else None
