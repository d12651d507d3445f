"""The costs of a process: prices the calls of providers, and writes them to the ledger of the store."""

from __future__ import annotations

from functools import partial

from toolwire.gateway.exchange.feature import Feature, Process
from toolwire.gateway.exchange.gateway_request import Runtime
from toolwire.gateway.exchange.hooks import ReadUsed
from toolwire.gateway.features.costs.ledger import LedgerTables, LedgerWriter, read_used, sweep_ledger
from toolwire.gateway.features.costs.ledger_tables import open_ledger
from toolwire.gateway.features.costs.settings import CostSettings
from toolwire.gateway.settings.config import Config
from toolwire.gateway.telemetry.call_prices import CallPricer
from toolwire.gateway.telemetry.metrics import LEDGER_ROWS_DROPPED


class CostFeature(Feature):
    def __init__(self, process: Process) -> None:
        self._telemetry, log_event = process.telemetry, process.telemetry.log_event
        store = process.store.store
        self._ledger = None
        """None without a store."""
        self._is_enabled = False
        if store is not None:
            self._ledger = LedgerWriter(open_ledger(store), process.gateway_id, log_event, self._count_dropped)

    def configure(self, runtime: Runtime) -> None:
        settings = runtime.config.section(CostSettings)
        self._is_enabled = settings.enabled
        self._telemetry.tells_costs = settings.header
        self._telemetry.pricer = CallPricer(runtime.config.providers) if self._is_enabled else None

    @property
    def ledger(self) -> LedgerWriter | None:
        """What writes calls under this configuration."""
        return self._ledger if self._is_enabled else None

    @property
    def tables(self) -> LedgerTables | None:
        """The ledger in the store, also while nothing is written to it; None without a store."""
        return self._ledger.tables if self._ledger is not None else None

    def find_reader(self) -> ReadUsed | None:
        """What reads what was used, under this configuration."""
        return partial(read_used, self.ledger.tables) if self.ledger is not None else None

    def _count_dropped(self, rows: int) -> None:
        self._telemetry.metrics.count(LEDGER_ROWS_DROPPED, by=rows)

    async def sweep(self, config: Config) -> None:
        if self._ledger is not None:
            await sweep_ledger(self._ledger.tables, config.section(CostSettings), config.store)

    async def close(self) -> None:
        self._telemetry.flush()
        if self._ledger is not None:
            await self._ledger.close()
