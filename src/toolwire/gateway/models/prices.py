"""What requests cost: the counts of a provider times the prices of its model, in US dollars.

Prices in toolwire.toml win over those of the catalogue. Where no price is known, the cost is unknown, which is not 0.
Nothing is rounded: money is Decimal, and only what shows it rounds it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal

from msgspec import Struct

from toolwire.core.ir import Usage
from toolwire.core.prices import Prices
from toolwire.gateway.config.config import Provider
from toolwire.gateway.models.catalogue import DatedPrices, load_catalogue
from toolwire.gateway.pipeline.route import matches_pattern

FROM_FILE, FROM_CATALOGUE = "file", "catalogue"
MAX_COUNT = 2**53
"""Larger counts of a provider are nonsense."""
DECIMALS_OF_UNIT = {"search": -3, "request": -3}
"""Prices are for a thousand of these, and for a million tokens."""
_TOKENS = -6

INPUT_KINDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("cache_read", ()),
    ("cache_write_1h", ("cache_write",)),
    ("cache_write", ()),
    ("input_audio", ()),
    ("input_image", ()),
)
"""The kinds of input tokens that a provider counts apart, each a field of `Usage` and of `Rates`; and the kinds whose
count contains it."""
OUTPUT_KINDS: tuple[tuple[str, tuple[str, ...]], ...] = (("reasoning", ()), ("output_audio", ()), ("output_image", ()))


class CostPart(Struct, frozen=True):
    """What one kind of token, or other thing, costs."""

    kind: str
    """A field of `Rates`."""
    count: int
    amount: Decimal


class Cost(Struct, frozen=True):
    """What a request costs, in US dollars."""

    total: Decimal
    parts: tuple[CostPart, ...]
    source: str
    """Where the prices are from: "file" (toolwire.toml) or "catalogue"."""
    unpriced: tuple[str, ...] = ()
    """Kinds that were used, but have no known price: the total does not contain them."""


class PriceFinder(Struct, frozen=True):
    """The prices that apply to one request."""

    prices: tuple[Prices, ...]
    """The first that knows a price wins: the prices of a service tier are before those of all tiers."""
    source: str

    def find_rate(self, kind: str, input_tokens: int) -> Decimal | None:
        rates = (prices.find_rate(kind, input_tokens) for prices in self.prices)
        return next((rate for rate in rates if rate is not None), None)


def price_usage(provider: Provider, model: str, usage: Usage, at: float, service_tier: str = "") -> Cost | None:
    """What a request with this usage cost; None where the price of the model's input or output is not known.

    `model` is its name at the provider, `at` the time of the request in seconds since 1970, and `service_tier` what the
    provider said ("flex", "priority").
    """
    finder = find_prices(provider, model, at, service_tier)
    if finder is None:
        return None
    sizes = _split_usage(usage, finder)
    parts: list[CostPart] = []
    unpriced: list[str] = []
    for kind, count in sizes:
        rate = finder.find_rate(kind, usage.input)
        if rate is not None:
            parts.append(CostPart(kind, count, (rate * count).scaleb(DECIMALS_OF_UNIT.get(kind, _TOKENS))))
        elif kind in ("input", "output"):
            return None
        else:
            unpriced.append(kind)
    total = sum((part.amount for part in parts), Decimal(0))
    return Cost(total, tuple(parts), finder.source, tuple(unpriced))


def estimate_cost(
    provider: Provider, model: str, input_tokens: int, output_tokens: int, at: float, service_tier: str = ""
) -> Decimal | None:
    """What a request with so many tokens can cost at most, as far as its price is known: all of its input may be
    written to the prompt cache, which costs more with some providers."""
    finder = find_prices(provider, model, at, service_tier)
    if finder is None:
        return None
    inputs = [finder.find_rate(kind, input_tokens) for kind in ("input", "cache_write", "cache_write_1h")]
    output, request = finder.find_rate("output", input_tokens), finder.find_rate("request", input_tokens)
    if inputs[0] is None or output is None:
        return None
    tokens = max(rate for rate in inputs if rate is not None) * input_tokens + output * output_tokens
    return tokens.scaleb(_TOKENS) + (request or Decimal(0)).scaleb(DECIMALS_OF_UNIT["request"])


def find_prices(provider: Provider, model: str, at: float, service_tier: str = "") -> PriceFinder | None:
    """The prices of a model at a time; None if none is known."""
    prices = _find_in_file(provider, model)
    if prices is not None:
        return PriceFinder((prices,), FROM_FILE)
    if provider.embedded:
        return None
    known = load_catalogue().find_model(provider, model)
    if known is None or not known.prices:
        return None
    return PriceFinder(tuple(_choose_prices(known.prices, at, service_tier)), FROM_CATALOGUE)


def _find_in_file(provider: Provider, model: str) -> Prices | None:
    given = provider.prices
    if not given:
        return None
    if model in given:
        return given[model]
    return next((prices for name, prices in given.items() if matches_pattern(model, name)), None)


def _choose_prices(prices: tuple[DatedPrices, ...], at: float, service_tier: str) -> Iterator[Prices]:
    if len(prices) == 1:
        yield prices[0]
        return
    moment = datetime.fromtimestamp(at, UTC).replace(tzinfo=None)
    if service_tier:
        yield from (one for one in prices if one.service_tier == service_tier and one.apply_at(moment))
    usual = [one for one in prices if not one.service_tier]
    yield next((one for one in reversed(usual) if one.apply_at(moment)), usual[0])


def _split_usage(usage: Usage, finder: PriceFinder) -> Iterator[tuple[str, int]]:
    """How much there is of each kind that has a price of its own. The rest of input and output costs the usual price.

    A count that is larger than the one that contains it is taken as it is: some servers count so.
    """
    for whole, kinds in (("input", INPUT_KINDS), ("output", OUTPUT_KINDS)):
        rest = _read_count(usage, whole)
        inner: dict[str, int] = {}
        for kind, containers in kinds:
            count = _read_count(usage, kind) - inner.get(kind, 0)
            if count <= 0 or finder.find_rate(kind, usage.input) is None:
                continue
            for container in containers:
                inner[container] = inner.get(container, 0) + count
            rest -= count
            yield kind, count
        if rest > 0:
            yield whole, rest
    if searches := _read_count(usage, "searches"):
        yield "search", searches
    if finder.find_rate("request", usage.input) is not None:
        yield "request", 1


def _read_count(usage: Usage, name: str) -> int:
    return min(max(getattr(usage, name) or 0, 0), MAX_COUNT)
