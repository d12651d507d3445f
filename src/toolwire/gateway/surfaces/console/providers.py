"""The view "Providers": what the gateway knows of its providers, and what they say when they are asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from toolwire.core import codec
from toolwire.gateway.exchange.gateway_request import Runtime
from toolwire.gateway.http.redact import printable_text, redact_start
from toolwire.gateway.models.listing import ModelLists, ProviderList, ask_list
from toolwire.gateway.models.merge import merge_models
from toolwire.gateway.settings.address import Address
from toolwire.gateway.settings.config import Provider
from toolwire.gateway.surfaces.console.api import Cooldown, KeyState, ModelList, ModelRow, ProviderRow, RateLimit
from toolwire.gateway.surfaces.console.detail import list_upstream_calls
from toolwire.gateway.telemetry.recent import RecentExchanges
from toolwire.gateway.telemetry.record import REFUSED_HERE
from toolwire.protocols import CODECS

LIST_SECONDS = 3.0
MAX_MODELS = 2000
"""Models that the page shows."""


def provider_row(
    provider: Provider, runtime: Runtime, recent: RecentExchanges, now: float, listed: ProviderList | None = None
) -> ProviderRow:
    """What is known of a provider, or of one of its accounts, without asking it; `listed` is what it said when it was
    asked."""
    models = listed.models if listed is not None else None
    outcome, last_at = find_last_outcome(provider, recent)
    return ProviderRow(
        name=provider.label,
        kind=provider.kind,
        protocols=provider.protocols,
        address=find_address(provider),
        key=find_key_state(provider),
        key_variable=provider.api_key_env,
        is_embedded=provider.embedded,
        cooldowns=[
            Cooldown(model=model, seconds=round(seconds, 1))
            for model, seconds in runtime.health.list_cooldowns(provider.label, now)
        ],
        rate_limits=list_rate_limits(provider, runtime, recent),
        last_outcome=outcome,
        last_at=last_at,
        models=[model.id for model in models[:MAX_MODELS]] if models is not None else None,
        problem=find_problem(provider, listed),
    )


def list_accounts(runtime: Runtime) -> list[Provider]:
    """The providers; one that has several accounts once for each."""
    return [account for provider in runtime.config.providers.values() for account in provider.each_account]


def merge_rows(rows: Sequence[ProviderRow]) -> ProviderRow:
    """The rows of one provider from several workers as one: what happened last counts, and the longest cooldowns."""
    newest_first = sorted(rows, key=lambda row: -(row.last_at or 0.0))
    seconds: dict[str, float] = {}
    for cooldown in (cooldown for row in rows for cooldown in row.cooldowns):
        seconds[cooldown.model] = max(cooldown.seconds, seconds.get(cooldown.model, 0.0))
    return replace(
        rows[0],
        cooldowns=[Cooldown(model=model, seconds=left) for model, left in seconds.items()],
        rate_limits=next((row.rate_limits for row in newest_first if row.rate_limits), []),
        last_outcome=newest_first[0].last_outcome,
        last_at=newest_first[0].last_at,
    )


def find_address(provider: Provider) -> str:
    return ", ".join(dict.fromkeys(Address.parse(url, "", "").label for url in provider.base_urls.values()))


def find_key_state(provider: Provider) -> KeyState:
    if provider.forward_auth:
        return "from_client"
    if provider.api_key or provider.access.method:
        return "set"
    return "missing" if provider.is_key_missing else "not_needed"


def find_problem(provider: Provider, listed: ProviderList | None) -> str:
    if provider.is_key_missing:
        return f"it has no key: set {provider.api_key_env} and restart the gateway"
    problem = listed.problem if listed is not None else None
    return printable_text(redact_start(problem.detail), 500) if problem is not None else ""


def find_last_outcome(provider: Provider, recent: RecentExchanges) -> tuple[str, float | None]:
    """The outcome of its last attempt among the recent exchanges, and when that was."""
    for record in recent.newest_first():
        for name, outcome, _ in reversed(record.attempts):
            if name == provider.label and outcome != REFUSED_HERE:
                return outcome, record.started_at
    return "", None


def list_rate_limits(provider: Provider, runtime: Runtime, recent: RecentExchanges) -> list[RateLimit]:
    """What its last answer said about its limits."""
    if provider.account:
        return write_rate_limits(*runtime.health.rate_limits.get(provider.label, (0.0, ())))
    for record in recent.newest_first():
        for call in reversed(list_upstream_calls(record)):
            if call.provider == provider.name and call.status:
                at = record.started_at
                return write_rate_limits(at, CODECS[call.protocol].http.read_rate_limits(call.headers, at))
    return []


def write_rate_limits(at: float, limits: Sequence[codec.RateLimit]) -> list[RateLimit]:
    """The rows for limits that an answer told at this time."""
    return [
        RateLimit(
            name=limit.kind,
            limit=limit.limit,
            remaining=limit.remaining,
            resets_at=at + limit.reset_after if limit.reset_after is not None else None,
        )
        for limit in limits
    ]


async def ask_provider(
    provider: Provider, runtime: Runtime, recent: RecentExchanges, clock: Callable[[], float]
) -> ProviderRow:
    """Ask a provider for its models now, which shows whether it can be reached and takes the key."""
    asked = None if provider.embedded else await ask_list(runtime.senders, provider, runtime.gateway_id)
    return provider_row(provider, runtime, recent, clock(), asked)


async def list_models(runtime: Runtime, lists: ModelLists, clock: Callable[[], float]) -> ModelList:
    """The models that can be asked for, as `/v1/models` lists them, and which providers could not be asked."""
    providers = runtime.config.providers.values()
    known = await lists.load(runtime.senders, providers, clock, runtime.gateway_id, LIST_SECONDS)
    models = [ModelRow(name=model.id, provider=model.owner) for model in merge_models(runtime.router, known)]
    problems = [
        f"{one.provider.name}: {printable_text(redact_start(one.problem.detail), 500)}" for one in known if one.problem
    ]
    return ModelList(models=models[:MAX_MODELS], problems=problems)
