"""Which providers keep failing: they rest for a while, so that others are asked at once."""

from __future__ import annotations

from collections.abc import Callable

REMEMBERED = 1024
"""Names of models may come from clients, so there is no end of them."""


class Health:
    """Counts failures in a row of one provider and model. The clock is passed in by whoever asks."""

    def __init__(self, changed: Callable[[str, bool, float], None]) -> None:
        self._failures: dict[tuple[str, str], int] = {}
        self._until: dict[tuple[str, str], float] = {}
        self.limits: dict[tuple[str, str], int] = {}
        """What models can give at most, where their providers have said so."""
        self._changed = changed

    def rests(self, provider: str, model: str, now: float) -> bool:
        until = self._until.get((provider, model))
        if until is None:
            return False
        if now < until:
            return True
        del self._until[provider, model]
        self._changed(provider, False, 0.0)
        return False

    def succeeded(self, provider: str, model: str) -> None:
        if self._failures:
            self._failures.pop((provider, model), None)
        if self._until and self._until.pop((provider, model), None) is not None:
            self._changed(provider, False, 0.0)

    def gives(self, provider: str, model: str, most: int) -> None:
        if len(self.limits) >= REMEMBERED:
            self.limits.clear()
        self.limits[provider, model] = most

    def failed(self, provider: str, model: str, now: float, after: int, rest: float) -> None:
        """One more failure; the one that fills the measure sends the provider to rest."""
        if len(self._failures) >= REMEMBERED:
            self._failures.clear()
        failures = self._failures.get((provider, model), 0) + 1
        self._failures[provider, model] = failures
        if failures >= after and rest:
            news = (provider, model) not in self._until
            self._until[provider, model] = now + rest
            if news:
                self._changed(provider, True, rest)
