"""The store of a gateway process: opened once, checked for `/readyz`, and swept from time to time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from math import inf

from toolwire.gateway.settings.address import is_loopback
from toolwire.gateway.settings.config import StoreSettings
from toolwire.gateway.store import open_store
from toolwire.gateway.store.repository import StateRepository
from toolwire.gateway.store.store import LocalStore, StoreDown

MAX_CHECK_AGE = 2.0
"""Seconds for which a check of the store counts."""
SWEEP_SECONDS = 600.0
"""Seconds between two removals of expired entries."""


class GatewayStore:
    """It stays the same while the process runs, also if a new configuration names another."""

    def __init__(
        self,
        settings: StoreSettings,
        environ: Mapping[str, str],
        log_event: Callable[..., None],
        count_failure: Callable[[str], None],
        report_error: Callable[[BaseException], None],
    ) -> None:
        self.settings = settings
        """Those that it was opened with."""
        self.store = open_store(settings, environ)
        self.repository = StateRepository(self.store, settings, self._on_event, count_failure=count_failure)
        self._local = self.store if isinstance(self.store, LocalStore) else None
        self._log_event, self._report_error = log_event, report_error
        self._check: asyncio.Task[None] | None = None
        self._checked_at, self._swept_at = -inf, -inf
        self._problem: StoreDown | None = None
        self._replacement = ""

    def configure(self, settings: StoreSettings) -> None:
        if settings != self.settings:
            what = "[store] has changed: restart the gateway to use it"
            self._log_event("config_problem", level="warn", message=what, hint="")

    def _on_event(self, kind: str, what: str) -> None:
        self._log_event(kind, level="error" if kind == "store_unavailable" else "info", message=what)

    # --- is it usable? ---

    def start_check(self) -> asyncio.Task[None]:
        """Find out in the background whether the store of this gateway can be used."""
        if self._check is None or self._check.done():
            self._check = asyncio.get_running_loop().create_task(self._check_usable())
            self._check.add_done_callback(self._on_checked)
        return self._check

    async def wait_for_check(self) -> None:
        if time.monotonic() - self._checked_at > MAX_CHECK_AGE:
            await asyncio.wait([self.start_check()])

    async def _check_usable(self) -> None:
        if self._local is not None:
            self._problem = await self._local.check_usable()
            if self._local.replacement != self._replacement:
                self._replacement = self._local.replacement
                hint = "stop the gateway before its files are changed; `toolwire store export` makes a copy"
                self._log_event("store_replaced", level="error", message=self._replacement, hint=hint)
        self._checked_at = time.monotonic()

    def _on_checked(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._report_error(error)

    def describe_readiness(self, peer: str) -> tuple[int, str]:
        """What `/readyz` says to a client at this address: a status and a text. A database that all gateways share is
        not asked: if it is down, no other gateway is better off, and most requests do not need it."""
        is_local = is_loopback(peer)
        if self._problem is None:
            return 200, f"ok\n{self._replacement}".rstrip() if is_local else "ok"
        hint = "repair it, or set [store] url (`none` keeps nothing)"
        why = f"{self._problem.reason}; {hint}" if is_local else "the store cannot be used: see the log"
        return 503, f"not ready: {why}"

    # --- what is done from time to time ---

    async def sweep_if_due(self, sweep_features: Callable[[], Awaitable[None]]) -> None:
        """Remove what has expired, if it is time. Features are first: entries that are removed would else make room
        for rows that nobody keeps."""
        if time.monotonic() - self._swept_at > SWEEP_SECONDS:
            self._swept_at = time.monotonic()
            await sweep_features()
            await self.repository.sweep()

    async def close(self) -> None:
        if self._check is not None:
            self._check.cancel()
        await self.repository.close()
