"""What the calls of providers cost, by our prices and by their own words."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from toolwire.core.ir import Usage
from toolwire.gateway.config.config import Provider
from toolwire.gateway.models.prices import price_usage
from toolwire.gateway.telemetry.record import CallUsage
from toolwire.gateway.usage.amounts import round_amount

MAX_AMOUNT = Decimal(100_000)
"""A call that costs more is nonsense: its provider counts tokens, or money, that cannot be. Its cost is unknown."""


class CallPricer:
    """Finds the cost of calls, by the prices that one configuration knows."""

    def __init__(self, providers: Mapping[str, Provider]) -> None:
        self._providers = providers

    def price_call(self, call: CallUsage, at: float) -> None:
        """Set what a call that has ended costs; `at` is the Unix time of its exchange."""
        provider, usage = self._providers.get(call.provider), call.usage
        if provider is None or usage is None:
            return
        cost = price_usage(provider, call.model, usage, at)
        if cost is not None:
            call.cost = round_amount(cost.total) if cost.total <= MAX_AMOUNT else None
        elif provider.embedded:
            call.cost = Decimal(0)
        call.reported_cost = read_reported_cost(usage)


def read_reported_cost(usage: Usage) -> Decimal | None:
    """What the provider says itself that the call costs: OpenRouter does, as `cost` beside the tokens."""
    wire = usage.origin.wire if usage.origin is not None else None
    value = wire.get("cost") if isinstance(wire, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    amount = Decimal(repr(value))
    return round_amount(amount) if amount.is_finite() and 0 <= amount <= MAX_AMOUNT else None
