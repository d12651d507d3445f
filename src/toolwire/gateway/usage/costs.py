"""What the calls of providers cost, by our prices and by their own words."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from toolwire.core.ir import Origin
from toolwire.gateway.config.config import Provider
from toolwire.gateway.models.prices import PriceFinder, find_prices
from toolwire.gateway.telemetry.record import CallUsage
from toolwire.gateway.usage.amounts import round_amount

MAX_AMOUNT = Decimal(100_000)
"""A call that costs more is nonsense: its provider counts tokens, or money, that cannot be. Its cost is unknown."""


REMEMBERED_SECONDS = 60
"""The prices of a model are looked up again after each full minute."""
MAX_REMEMBERED = 1024
_UNKNOWN: tuple[float, PriceFinder | None] = (0.0, None)


class CallPricer:
    """Finds the cost of calls, by the prices that one configuration knows."""

    def __init__(self, providers: Mapping[str, Provider]) -> None:
        self._providers = providers
        self._finders: dict[tuple[str, str, str], tuple[float, PriceFinder | None]] = {}
        """The prices of models in a service tier, and until when they are not looked up again: some change with the
        time of the day."""

    def price_call(self, call: CallUsage, at: float) -> None:
        """Set what a call that has ended costs; `at` is the Unix time of its exchange."""
        usage = call.usage
        if usage is None:
            return
        until, finder = self._finders.get((call.provider, call.model, usage.service_tier), _UNKNOWN)
        if not until - REMEMBERED_SECONDS <= at < until:
            finder = self._find_prices(call, usage.service_tier, at)
        if finder is not None:
            cost = finder.find_unit_prices(usage.input).price(usage, finder.source)
            call.cost = round_amount(cost.total) if cost is not None and cost.total <= MAX_AMOUNT else None
        elif call.provider in self._providers and self._providers[call.provider].embedded:
            call.cost = Decimal(0)
        if usage.origin is not None:
            call.reported_cost = read_reported_cost(usage.origin)

    def _find_prices(self, call: CallUsage, service_tier: str, at: float) -> PriceFinder | None:
        provider = self._providers.get(call.provider)
        finder = None if provider is None else find_prices(provider, call.model, at, service_tier)
        if len(self._finders) >= MAX_REMEMBERED:
            self._finders.clear()  # clients choose names of models
        until = at - at % REMEMBERED_SECONDS + REMEMBERED_SECONDS
        self._finders[call.provider, call.model, service_tier] = (until, finder)
        return finder


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
