"""`[costs]`."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from toolwire.gateway.settings.config import Seconds, Section


class CostSettings(Section, frozen=True, kw_only=True):
    """What requests cost: in the log and the metrics, and in a ledger in the store, which `toolwire costs` shows."""

    enabled: bool = True
    """Look up prices, and write the ledger. Without a store there is no ledger."""
    header: bool = False
    """Tell clients the cost of a whole answer in `x-toolwire-cost`, in USD. A stream has no such header: its cost is
    known only at its end."""
    row_ttl: Seconds = 30 * 24 * 3600.0
    """For how many seconds the ledger keeps a row for every call of a provider; 0 keeps them forever. They are needed
    for costs by session."""
    ttl: Seconds = 400 * 24 * 3600.0
    """For how many seconds it keeps the sums by hour; 0 keeps them forever."""

    @classmethod
    def list_tables(cls) -> Mapping[str, type[Struct]]:
        return {"[costs]": cls}
