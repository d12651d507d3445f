"""The tables `[models.NAME.facts]`: what the operator says about models, and what they cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from toolwire.core.codec import ModelFacts
from toolwire.gateway.settings.config import ModelRule, Provider
from toolwire.gateway.settings.prices import Prices, Rates
from toolwire.gateway.settings.problems import ProblemCollector, TomlTable

MAX_PRICE = 1_000_000
PRICE_UNITS = "prices are in US dollars, for a million tokens or for a thousand searches or requests"


def read_facts(tables: TomlTable, collector: ProblemCollector) -> dict[str, ModelFacts]:
    """What the file says about models, by name or pattern."""
    facts: dict[str, ModelFacts] = {}
    for name, table in tables.items():
        if isinstance(table, dict) and "facts" in table:
            given = collector.at("models", name, "facts").read_fields(table["facts"], ModelFacts, ("prices",))
            facts[name] = ModelFacts(**given or {})
    return facts


def read_prices(tables: TomlTable, collector: ProblemCollector) -> dict[str, Prices]:
    """The prices in the file, by name or pattern of the model."""
    prices: dict[str, Prices] = {}
    for name, table in tables.items():
        facts = table.get("facts") if isinstance(table, dict) else None
        if isinstance(facts, dict) and "prices" in facts:
            place = collector.at("models", name, "facts", "prices")
            given = place.read_fields(facts["prices"], Prices) or {}
            given["tiers"] = tuple(sorted(given.get("tiers", ()), key=lambda tier: tier.above))
            prices[name] = Prices(**given)
            for kind in dict.fromkeys(_find_wrong_rates(prices[name])):
                place.at(kind).add(f"`{kind}` must be a price from 0 to {MAX_PRICE:,}", PRICE_UNITS)
    return prices


def _find_wrong_rates(prices: Prices) -> Iterator[str]:
    for rates in (prices, *prices.tiers):
        for kind in Rates.__struct_fields__:
            rate = getattr(rates, kind)
            if rate is not None and not (rate.is_finite() and 0 <= rate <= MAX_PRICE):
                yield kind


def add_prices(
    providers: Mapping[str, Provider], prices: Mapping[str, Prices], rules: Iterable[ModelRule]
) -> dict[str, Provider]:
    """Give each provider the prices of its models, by their names there. What names the provider wins over what does
    not: a rule (`[models.NAME]`) and `[models."PROVIDER/MODEL"]`."""
    if not prices:
        return dict(providers)
    ruled = {rule.name: rule for rule in rules}
    shared = {
        name: given
        for name, given in prices.items()
        if name not in ruled and name.partition("/")[0] not in {*providers} - {name}
    }
    priced: dict[str, Provider] = {}
    for provider in providers.values():
        own = {
            rule.model or name: given
            for name, given in prices.items()
            if (rule := ruled.get(name)) is not None and rule.provider == provider.name
        }
        prefix = f"{provider.name}/"
        full = {name.removeprefix(prefix): given for name, given in prices.items() if name.startswith(prefix)}
        found = {**shared, **own, **full}
        longest_first = {name: found[name] for name in sorted(found, key=len, reverse=True)}
        accounts = tuple(replace(account, prices=longest_first) for account in provider.accounts)
        priced[provider.name] = replace(provider, prices=longest_first, accounts=accounts)
    return priced
