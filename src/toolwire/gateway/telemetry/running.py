"""An exchange that has not ended yet, and what it holds until then."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from toolwire.gateway.telemetry.record import CallUsage, ExchangeRecord


class Holding(Protocol):
    """What a feature holds for an exchange until it ends, such as a reservation of its limits."""

    def end(self, record: ExchangeRecord) -> None:
        """The exchange has ended."""


class RunningExchange(Struct, eq=False):
    record: ExchangeRecord
    open_call: CallUsage | None = None
    """The call of a provider that has not ended yet."""
    holdings: tuple[Holding, ...] = ()
    counts_use: bool = False
    """Is there a limit that must know what the provider has counted?"""

    def take_over(self, other: RunningExchange) -> None:
        """Hold what another exchange holds, which ends before this one. If it has ended already, that is nothing."""
        self.holdings, other.holdings = other.holdings, ()
        self.counts_use, other.counts_use = other.counts_use, False

    def end_holdings(self) -> None:
        held, self.holdings, self.counts_use = self.holdings, (), False
        for holding in held:
            holding.end(self.record)
