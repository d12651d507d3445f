"""The limits of a process: their counters outlive a configuration."""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec.structs import replace

from toolwire.gateway.exchange.feature import Feature, Process
from toolwire.gateway.exchange.gateway_request import Runtime
from toolwire.gateway.exchange.hooks import ReadUsed
from toolwire.gateway.features.limits.limits import Limits
from toolwire.gateway.features.limits.open_counters import open_counters
from toolwire.gateway.features.limits.report import LimitUse, find_uses
from toolwire.gateway.features.limits.reservations import ReservationProblem, Reservations
from toolwire.gateway.features.limits.settings import CounterSettings, LimitSettings
from toolwire.gateway.features.limits.stage import LimitStage
from toolwire.gateway.settings.config import Config
from toolwire.gateway.store.store import StoreDown
from toolwire.gateway.telemetry.metrics import STORE_FAILURES


class LimitFeature(Feature):
    def __init__(self, process: Process, find_ledger: Callable[[], ReadUsed | None]) -> None:
        """`find_ledger` finds who knows what was used before, under the configuration that is in force."""
        self._process, self._find_ledger = process, find_ledger
        self._settings: CounterSettings | None = None
        self.reservations: Reservations | None = None
        """What running requests hold of their limits; None until there are limits."""

    def configure(self, runtime: Runtime) -> LimitStage | None:
        """None without limits. The counters stay the same while the process runs."""
        config, telemetry = runtime.config, self._process.telemetry
        wanted = config.section(LimitSettings)
        if self.reservations is None and wanted.limits:
            self._settings = wanted.counters
            opened = replace(config, store=self._process.store.settings)
            counters = open_counters(opened, self._process.environ)
            self.reservations = Reservations(counters, wanted.counters.lease, self._on_event, self._reset_metrics)
        elif self.reservations is not None and self._settings != wanted.counters:
            what = "[counters] has changed: restart the gateway to use it"
            telemetry.log_event("config_problem", level="warn", message=what, hint="")
        if self.reservations is None or not wanted.limits:
            return None
        reports = telemetry.metrics, telemetry.log_event
        return LimitStage(Limits(wanted.limits, config.providers, self.reservations, *reports, self._find_ledger()))

    async def list_uses(self, config: Config) -> list[LimitUse] | StoreDown:
        """What is used of the limits of this configuration, from the counters themselves."""
        if self.reservations is None:
            return []
        found = await self.reservations.counters.list_counters()
        return found if isinstance(found, StoreDown) else [*find_uses(config.section(LimitSettings).limits, found)]

    def _on_event(self, kind: ReservationProblem, what: str) -> None:
        telemetry = self._process.telemetry
        if kind == "counters_available":
            telemetry.log_event(kind)
            return
        telemetry.metrics.count(STORE_FAILURES, "count")
        telemetry.log_event(kind, level="error", message=what)

    def _reset_metrics(self) -> None:
        self._process.telemetry.metrics.reset_limits(time.monotonic())

    async def close(self) -> None:
        if self.reservations is not None:
            await self.reservations.close()
