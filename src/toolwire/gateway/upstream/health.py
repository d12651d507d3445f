"""Cooldown of providers that keep failing, and limits that providers have reported."""

from __future__ import annotations

from collections.abc import Callable

MAX_TRACKED_MODELS = 1024
"""Clients choose model names, so their number has to be limited."""


class ProviderHealth:
    """Counts consecutive failures of each provider and model. Callers pass the time in."""

    def __init__(self, on_change: Callable[[str, bool, float], None]) -> None:
        self._failures: dict[tuple[str, str], int] = {}
        self._cooldown_until: dict[tuple[str, str], float] = {}
        self.token_limits: dict[tuple[str, str], int] = {}
        """The most output tokens that a provider accepts for a model, as it said in an error."""
        self._on_change = on_change

    def is_cooling_down(self, provider: str, model: str, now: float) -> bool:
        until = self._cooldown_until.get((provider, model))
        if until is None:
            return False
        if now < until:
            return True
        del self._cooldown_until[provider, model]
        self._on_change(provider, False, 0.0)
        return False

    def record_success(self, provider: str, model: str) -> None:
        if self._failures:
            self._failures.pop((provider, model), None)
        if self._cooldown_until and self._cooldown_until.pop((provider, model), None) is not None:
            self._on_change(provider, False, 0.0)

    def record_token_limit(self, provider: str, model: str, token_limit: int) -> None:
        if len(self.token_limits) >= MAX_TRACKED_MODELS:
            self.token_limits.clear()
        self.token_limits[provider, model] = token_limit

    def record_failure(self, provider: str, model: str, now: float, failure_limit: int, cooldown: float) -> None:
        """Count a failure; the `failure_limit`th in a row starts the cooldown."""
        if len(self._failures) >= MAX_TRACKED_MODELS:
            self._failures.clear()
        failures = self._failures.get((provider, model), 0) + 1
        self._failures[provider, model] = failures
        if failures >= failure_limit and cooldown:
            is_new = (provider, model) not in self._cooldown_until
            self._cooldown_until[provider, model] = now + cooldown
            if is_new:
                self._on_change(provider, True, cooldown)
