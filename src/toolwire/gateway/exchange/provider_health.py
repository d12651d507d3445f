"""What the gateway has learnt of providers and their accounts: which are failing or limited, and what they said of
their limits. Providers are named as `Provider.label` does: each account counts alone."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from msgspec.structs import replace

from toolwire.core.bounded_dict import BoundedDict
from toolwire.core.codec import RateLimit
from toolwire.gateway.settings.config import Provider
from toolwire.gateway.settings.router import Target
from toolwire.gateway.telemetry.metrics import ACCOUNT_COOLDOWN, PROVIDER_COOLDOWN
from toolwire.gateway.telemetry.telemetry import Telemetry

MAX_TRACKED_MODELS = 1024
"""Clients choose model names, so their number has to be limited."""
MAX_MOVED_SESSIONS = 10_000
ACCOUNT_FAILURES = frozenset({"rate", "quota", "billing", "authentication", "permission"})
"""Failures that are about the account: another one of the same provider may answer at once."""
WHOLE_ACCOUNT_FAILURES = frozenset({"quota", "billing", "authentication"})
"""Those that hold for all models of the account."""
MAX_REST = 24 * 3600.0
"""Seconds that an account rests at most, whatever its provider says."""
ALL_MODELS = ""
"""In place of a model: the account as a whole."""


class ProviderHealth:
    """Cooldown of providers that keep failing, counted for each model, and limits that they have reported. An account
    that is limited rests at once, for as long as its provider says. Callers pass the time in."""

    def __init__(self, on_change: Callable[[str, float, str], None]) -> None:
        """`on_change` gets the name, the seconds that its cooldown lasts (0 if it has ended), and the reason."""
        self._failures: dict[tuple[str, str], int] = BoundedDict(MAX_TRACKED_MODELS)
        self._cooldown_until: dict[tuple[str, str], float] = {}
        self.token_limits: dict[tuple[str, str], int] = BoundedDict(MAX_TRACKED_MODELS)
        """The most output tokens that a provider accepts for a model, as it said in an error."""
        self.models_without_tools: dict[tuple[str, str], bool] = BoundedDict(MAX_TRACKED_MODELS)
        """Providers and models that have refused tools: they get them in the prompt."""
        self.shown_quirks: dict[tuple[str, str], tuple[str, ...]] = BoundedDict(MAX_TRACKED_MODELS)
        """Quirks of providers and models that a refusal has shown, and that helped when the request was sent again."""
        self.moved_sessions: OrderedDict[tuple[str, str], str] = OrderedDict()
        """Sessions that are not on the account that their hash gives, because that had to rest: by provider and
        session."""
        self.rate_limits: dict[str, tuple[float, tuple[RateLimit, ...]]] = {}
        """What the last answer of each account said of its limits, and when (Unix time)."""
        self._on_change = on_change

    def is_cooling_down(self, provider: str, model: str, now: float) -> bool:
        until = self._cooldown_until.get((provider, model))
        if until is not None and now >= until:
            self._end_cooldown(provider, model)
        return until is not None and now < until

    def end_expired(self, now: float) -> None:
        """End the cooldowns whose time is over, also of models that nobody asks for again."""
        for provider, model in [name for name, until in self._cooldown_until.items() if now >= until]:
            self._end_cooldown(provider, model)

    def _end_cooldown(self, provider: str, model: str) -> None:
        is_known = self._cooldown_until.pop((provider, model), None) is not None
        if is_known and all(name != provider for name, _ in self._cooldown_until):
            self._on_change(provider, 0.0, "")

    def list_cooldowns(self, provider: str, now: float) -> list[tuple[str, float]]:
        """The models of a provider that are cooling down, and for how many seconds."""
        rows = [(model, until - now) for (name, model), until in self._cooldown_until.items() if name == provider]
        return [(model, seconds) for model, seconds in rows if seconds > 0]

    def record_success(self, provider: Provider, model: str) -> None:
        """Forget the failures. The rest of a limited account lasts as long as its provider said, in spite of answers to
        earlier requests."""
        if self._failures:
            self._failures.pop((provider.label, model), None)
        if self._cooldown_until and not provider.account:
            self._end_cooldown(provider.name, model)

    def add_shown_quirks(self, target: Target) -> Target:
        known = self.shown_quirks.get((target.provider.name, target.model), ())
        new = tuple(name for name in known if name not in target.shown_quirks)
        return replace(target, shown_quirks=(*new, *target.shown_quirks)) if new else target

    def record_failure(self, provider: str, model: str, now: float, failure_limit: int, cooldown: float) -> None:
        """Count a failure; the `failure_limit`th in a row starts the cooldown."""
        failures = self._failures.get((provider, model), 0) + 1
        self._failures[provider, model] = failures
        if failures >= failure_limit and cooldown:
            if (provider, model) not in self._cooldown_until:
                self._on_change(provider, cooldown, "failing")
            self._cooldown_until[provider, model] = now + cooldown

    # --- accounts ---

    def is_resting(self, label: str, model: str, now: float) -> bool:
        """Is an account cooling down, for this model or for all (`ALL_MODELS`)?"""
        if not self._cooldown_until:
            return False
        return self.is_cooling_down(label, model, now) or self.is_cooling_down(label, ALL_MODELS, now)

    def rests_until(self, label: str, model: str) -> float:
        return max(self._cooldown_until.get((label, one), 0.0) for one in (model, ALL_MODELS))

    def start_rest(self, label: str, model: str, now: float, seconds: float, reason: str = "rate") -> None:
        """An account is limited: it rests for this time, or longer if that was said before. The reason is a kind of
        failure."""
        if seconds <= 0:
            return
        if len(self._cooldown_until) >= MAX_TRACKED_MODELS:
            self._cooldown_until = {name: until for name, until in self._cooldown_until.items() if until > now}
        known = self._cooldown_until.get((label, model), 0.0)
        if known <= now:
            self._on_change(label, seconds, reason)
        self._cooldown_until[label, model] = max(known, now + seconds)

    def record_session(self, provider: str, session: str, account: str, first_choice: str) -> None:
        if account == first_choice:
            self.moved_sessions.pop((provider, session), None)
            return
        self.moved_sessions[provider, session] = account
        self.moved_sessions.move_to_end((provider, session))
        if len(self.moved_sessions) > MAX_MOVED_SESSIONS:
            self.moved_sessions.popitem(last=False)


def report_cooldown(telemetry: Telemetry, label: str, seconds: float, reason: str) -> None:
    """Log that a provider or an account begins to rest, or ends it (0 seconds), and show it in the metrics."""
    provider, _, account = label.partition("/")
    labels, metric = ((provider, account), ACCOUNT_COOLDOWN) if account else ((provider,), PROVIDER_COOLDOWN)
    telemetry.metrics.set(metric, *labels, to=float(seconds > 0))
    event, level = ("provider_cooldown_start", "warn") if seconds else ("provider_cooldown_end", "info")
    named = {"account": account, "reason": reason}
    shown = {name: value for name, value in named.items() if value}
    telemetry.log_event(event, level=level, provider=provider, **shown, seconds=seconds)
