"""Models that a limit in dollars is for, and of which no price is known."""

from __future__ import annotations

from collections.abc import Sequence

from toolwire.core.ir import Usage
from toolwire.gateway.features.limits.settings import MONEY_FIELDS, Limit
from toolwire.gateway.models.catalogue import load_catalogue
from toolwire.gateway.models.prices import estimate_cost
from toolwire.gateway.settings.config import Config
from toolwire.gateway.settings.router import Router

MAX_SHOWN = 5
"""Names of models in a sentence."""


def find_unpriced_models(config: Config, limit: Limit, at: float) -> list[str]:
    """The models in the file that a hard limit in dollars is for, and of which no price is known: `PROVIDER/MODEL`, or
    `PROVIDER/*` where that is so for all of them."""
    if limit.soft or all(getattr(limit, field) is None for field in MONEY_FIELDS):
        return []
    router, catalogue = Router(config), load_catalogue()
    providers = [one for one in config.providers.values() if not one.embedded]
    unknown = [one.name for one in providers if not one.prices and not catalogue.has_provider(one)]
    names = [f"{name}/*" for name in unknown if limit.selects({"provider": name})]
    for listed in router.list_models(None):
        targets = router.route(listed.id, None)
        for target in targets if isinstance(targets, tuple) else ():
            provider, model = target.provider, target.model
            is_selected = limit.selects({"provider": provider.name, "model": model.lower()})
            if is_selected and not provider.embedded and provider.name not in unknown:
                names += [f"{provider.name}/{model}"] if estimate_cost(provider, model, Usage(1, 1), at) is None else []
    return list(dict.fromkeys(names))


def describe_unpriced(limit: Limit, names: Sequence[str]) -> str:
    """What a limit in dollars does with models without a known price."""
    shown = ", ".join(names[:MAX_SHOWN]) + (f" and {len(names) - MAX_SHOWN} more" if len(names) > MAX_SHOWN else "")
    return f"{'refuses' if limit.on_unknown_price == 'closed' else 'does not count'} {shown}: no price is known"
