"""What requests cost: the counts of a provider times the prices of its model, in US dollars.

Prices in toolwire.toml win over those of the catalogue. Where no price is known, the cost is unknown, which is not 0.
Nothing is rounded: money is Decimal, and only what shows it rounds it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache

from msgspec import Struct

from toolwire.core.ir import EMPTY_MAPPING, Usage
from toolwire.gateway.models.catalogue import DatedPrices, load_catalogue
from toolwire.gateway.settings.config import Provider
from toolwire.gateway.settings.prices import Prices, Rates
from toolwire.policy.rules import matches_globs

FROM_FILE, FROM_CATALOGUE = "file", "catalogue"
MAX_COUNT = 2**53
"""Larger counts of a provider are nonsense."""
MAX_REMEMBERED_RATES = 1024
DECIMALS_OF_UNIT = {"search": -3, "request": -3}
"""Prices are for a thousand of these, and for a million tokens."""
_TOKENS = -6
_NOTHING = Decimal(0)
_INPUT_KINDS = ("input", "cache_write", "cache_write_1h")
"""What any token of the input may be."""

KINDS_BY_WHOLE: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    (
        "input",
        (
            ("cache_read", ""),
            ("cache_write_1h", "cache_write"),
            ("cache_write", ""),
            ("input_audio", ""),
            ("input_image", ""),
        ),
    ),
    ("output", (("reasoning", ""), ("output_audio", ""), ("output_image", ""))),
)
"""The kinds of tokens that a provider counts apart, each a field of `Usage` and of `Rates`, and the kind besides input
or output whose count contains it."""


class PriceFinder(Struct, frozen=True):
    """The prices that apply to a model at a time."""

    prices: tuple[Prices, ...]
    """The first that knows a price wins: the prices of a service tier are before those of all tiers."""
    source: str
    """Where they are from: "file" (toolwire.toml) or "catalogue"."""
    origin: str
    """The same for people, with the name of the model there."""

    def find_rate(self, kind: str, input_tokens: int) -> Decimal | None:
        rates = (prices.find_rate(kind, input_tokens) for prices in self.prices)
        return next((rate for rate in rates if rate is not None), None)

    def has_tier(self, service_tier: str) -> bool:
        return any(isinstance(one, DatedPrices) and one.service_tier == service_tier for one in self.prices)

    def find_unit_prices(self, input_tokens: int) -> UnitPrices:
        """What one token, search or request costs in a request with so many input tokens."""
        reached = 0
        for one in self.prices:
            for tier in one.tiers:
                if reached < tier.above < input_tokens:
                    reached = tier.above
        return _collect_unit_prices(self, reached)


class UnitPrices(Struct, frozen=True):
    """What one token, search or request costs."""

    prices: Mapping[str, Decimal]
    """By kind."""
    kinds_by_whole: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
    """Of `KINDS_BY_WHOLE`, those that have a price."""
    decimals: int
    """The most decimals of a price, and so of a cost."""

    def price(self, usage: Usage) -> Decimal | None:
        """What so much costs; None where the price of input or output is not known."""
        counts = self.count_paid(usage)
        if counts is None:
            return None
        total = _NOTHING
        for kind, count in counts.items():
            total += self.prices[kind] * count
        return total

    def count_paid(self, usage: Usage) -> dict[str, int] | None:
        """How much of each kind is paid; None where the price of input or output is not known.

        Kinds of tokens that have a price of their own are taken out of input and output; the rest costs the usual
        price. A count that is larger than the one that contains it is taken as it is: some servers count so."""
        prices = self.prices
        counts: dict[str, int] = {}
        for whole, kinds in self.kinds_by_whole:
            rest = getattr(usage, whole)
            inner = EMPTY_MAPPING
            for kind, container in kinds:
                given = getattr(usage, kind)
                if given and (count := _bound_count(given) - inner.get(kind, 0)) > 0:
                    if container:
                        inner = {container: count}
                    rest -= count
                    counts[kind] = count
            if rest > 0:
                if whole not in prices:
                    return None
                counts[whole] = min(rest, MAX_COUNT)
        if usage.searches and usage.searches > 0 and "search" in prices:
            counts["search"] = _bound_count(usage.searches)
        if "request" in prices:
            counts["request"] = 1
        return counts


@lru_cache(MAX_REMEMBERED_RATES)
def _collect_unit_prices(finder: PriceFinder, reached_tier: int) -> UnitPrices:
    rates = {kind: finder.find_rate(kind, reached_tier + 1) for kind in Rates.__struct_fields__}
    prices = {
        kind: rate.scaleb(DECIMALS_OF_UNIT.get(kind, _TOKENS)) for kind, rate in rates.items() if rate is not None
    }
    kinds = tuple((whole, tuple(one for one in kinds if one[0] in prices)) for whole, kinds in KINDS_BY_WHOLE)
    decimals = max((-int(price.as_tuple().exponent) for price in prices.values()), default=0)
    return UnitPrices(prices, kinds, decimals)


def price_usage(provider: Provider, model: str, usage: Usage, at: float) -> Decimal | None:
    """What a request with this usage cost; None where the price of the model's input or output is not known.

    `model` is its name at the provider, `at` the time of the request in seconds since 1970.
    """
    finder = find_prices(provider, model, at, usage.service_tier)
    return None if finder is None else finder.find_unit_prices(usage.input).price(usage)


def estimate_cost(provider: Provider, model: str, usage: Usage, at: float) -> Decimal | None:
    """What a request that uses so much can cost at most, as far as its price is known: all of its input may be written
    to the prompt cache, and all of its output may be the dearest that the model makes."""
    finder = find_prices(provider, model, at, usage.service_tier)
    prices = finder.find_unit_prices(usage.input).prices if finder is not None else {}
    if "input" not in prices or (usage.output and "output" not in prices):
        return None  # models for embeddings have no output

    def find_dearest(*kinds: str) -> Decimal:
        return max(prices.get(kind, _NOTHING) for kind in kinds)

    audio, images = usage.input_audio or 0, usage.input_image or 0
    total = find_dearest(*_INPUT_KINDS) * (usage.input - audio - images)
    total += find_dearest(*_INPUT_KINDS, "input_audio") * audio + find_dearest(*_INPUT_KINDS, "input_image") * images
    total += find_dearest("output", "reasoning", "output_audio", "output_image") * usage.output
    return total + find_dearest("search") * (usage.searches or 0) + find_dearest("request")


def find_prices(provider: Provider, model: str, at: float, service_tier: str = "") -> PriceFinder | None:
    prices = _find_in_file(provider, model)
    if prices is not None:
        return PriceFinder((prices,), FROM_FILE, "toolwire.toml")
    if provider.embedded:
        return None
    catalogue = load_catalogue()
    known = catalogue.find_model(provider, model)
    if known is None or not known.prices:
        return None
    chosen = known.prices if len(known.prices) == 1 else tuple(_choose_prices(known.prices, at, service_tier))
    return PriceFinder(chosen, FROM_CATALOGUE, f"{catalogue.source}, {known.id}")


def _find_in_file(provider: Provider, model: str) -> Prices | None:
    given = provider.prices
    if not given:
        return None
    if model in given:
        return given[model]
    return next((prices for name, prices in given.items() if matches_globs(model, (name,))), None)


def _choose_prices(prices: tuple[DatedPrices, ...], at: float, service_tier: str) -> Iterator[Prices]:
    moment = datetime.fromtimestamp(at, UTC).replace(tzinfo=None)
    if service_tier:
        yield from (one for one in prices if one.service_tier == service_tier and one.apply_at(moment))
    usual = [one for one in prices if not one.service_tier]
    yield next((one for one in reversed(usual) if one.apply_at(moment)), usual[0])


def _bound_count(count: int) -> int:
    return min(max(count, 0), MAX_COUNT)
