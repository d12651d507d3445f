"""Sends requests to the accounts of a provider, and lets an account rest that is limited."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from toolwire.core.errors import find_wait
from toolwire.gateway.exchange.gateway_request import (
    AttemptAnswer,
    AttemptFailed,
    GatewayRequest,
    Runtime,
    Services,
    Upstream,
)
from toolwire.gateway.exchange.provider_health import ACCOUNT_FAILURES, ALL_MODELS, MAX_REST, WHOLE_ACCOUNT_FAILURES
from toolwire.gateway.exchange.stages import Stage
from toolwire.gateway.features.accounts.accounts import find_first_to_wake, list_awake_accounts, rank_accounts
from toolwire.gateway.settings.config import Config, Provider
from toolwire.gateway.settings.router import Target
from toolwire.gateway.telemetry.metrics import ACCOUNT_LIMIT_REMAINING


def open_accounts(config: Config, services: Services) -> Accounts | None:
    """None if no provider has several accounts."""
    has_accounts = any(provider.accounts for provider in config.providers.values())
    return Accounts(services) if has_accounts else None


def build_account_stage(runtime: Runtime) -> AccountStage | None:
    return AccountStage(runtime) if runtime.accounts is not None else None


class Accounts:
    """The accounts of the providers of one configuration."""

    def __init__(self, services: Services) -> None:
        self._health, self._metrics = services.health, services.telemetry.metrics

    def choose_account(self, provider: Provider, session: str, model: str, now: float) -> Provider:
        """The account for a request that is sent only once; the provider itself if it has no others."""
        if not provider.accounts:
            return provider
        awake = list_awake_accounts(provider, session, model, self._health, now)
        return awake[0] if awake else find_first_to_wake(provider, session, model, self._health)

    def find_home(self, provider: Provider, session: str) -> Provider:
        """The account that a session belongs to, whether it rests or not."""
        return rank_accounts(provider.accounts, session)[0]

    def choose_targets(self, request: GatewayRequest, targets: tuple[Target, ...], now: float) -> tuple[Target, ...]:
        """The targets with the accounts of their providers: another account is tried before the next provider."""
        session = request.record.asked.session or request.record.request_id
        awake: list[Target] = []
        for target in targets:
            provider, model = target.provider, target.model
            if not provider.accounts:
                if not self._health.is_cooling_down(provider.name, model, now):
                    awake.append(target)
                continue
            pinned = provider.find_account(request.pinned_accounts.get(provider.name, ""))
            accounts = (
                [pinned] if pinned is not None else list_awake_accounts(provider, session, model, self._health, now)
            )
            awake += [replace(target, provider=account) for account in accounts]
        if awake:
            return tuple(awake)
        first = targets[0]
        return (replace(first, provider=self.choose_account(first.provider, session, first.model, now)),)

    def note_rate_limits(self, request: GatewayRequest, upstream: Upstream, headers: Mapping[str, str]) -> None:
        """Keep what an account's provider says of its limits. One that is used up lets the account rest until there
        is room again, before a request is refused."""
        limits = upstream.codec.http.read_rate_limits(headers, request.now)
        if not upstream.provider.account or not limits:
            return
        label = upstream.provider.label
        self._health.rate_limits[label] = (request.now, limits)
        labels = (upstream.provider.name, upstream.provider.account)
        for limit in limits:
            if limit.remaining is not None:
                self._metrics.set(ACCOUNT_LIMIT_REMAINING, *labels, limit.kind, to=limit.remaining)
        wait = find_wait(limits)
        if wait is not None:
            self._health.start_rest(label, upstream.model, request.clock(), min(wait, MAX_REST))


class AccountStage(Stage):
    """Lets an account rest that has failed, so that the next one is asked."""

    def __init__(self, runtime: Runtime) -> None:
        self._config, self._health = runtime.config, runtime.health

    def after(self, request: GatewayRequest, target: Target, answer: AttemptAnswer, now: float) -> bool:
        if not target.provider.account:
            return False
        if not isinstance(answer, AttemptFailed):
            self._record_session(request, target.provider)
            return False
        failure = answer.failure
        if failure.kind not in ACCOUNT_FAILURES:
            return False
        model = ALL_MODELS if failure.kind in WHOLE_ACCOUNT_FAILURES else target.model
        seconds = self._config.server.cooldown
        seconds = seconds if failure.retry_after is None else min(failure.retry_after, MAX_REST)
        self._health.start_rest(target.provider.label, model, now, seconds, failure.kind)
        return True

    def _record_session(self, request: GatewayRequest, account: Provider) -> None:
        """Remember where a session is that had to leave its account."""
        session, provider = request.record.asked.session, self._config.providers.get(account.name)
        if session and provider is not None:
            first = rank_accounts(provider.accounts, session)[0]
            self._health.record_session(account.name, session, account.account, first.account)
