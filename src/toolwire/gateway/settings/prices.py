"""What tokens cost: the prices of one model. `gateway/models/prices.py` finds those that apply at a time."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Annotated

from msgspec import Meta, Struct


class Rates(Struct, frozen=True, kw_only=True):
    """Prices in US dollars. None is unknown."""

    input: Decimal | None = None
    """A million input tokens."""
    output: Decimal | None = None
    """A million output tokens."""
    cache_read: Decimal | None = None
    """Input that the provider had in its prompt cache; by default it costs what other input costs."""
    cache_write: Decimal | None = None
    """Input that the provider put into its prompt cache; by default it costs what other input costs."""
    cache_write_1h: Decimal | None = None
    """Input that it put there for an hour (Anthropic); by default it costs what other writes cost."""
    reasoning: Decimal | None = None
    """Thinking; by default it costs what other output costs."""
    input_audio: Decimal | None = None
    """Audio in the input, where the provider counts its tokens apart."""
    input_image: Decimal | None = None
    """Images in the input, where the provider counts their tokens apart."""
    output_audio: Decimal | None = None
    """Audio in the output, where the provider counts its tokens apart."""
    output_image: Decimal | None = None
    """Images in the output, where the provider counts their tokens apart."""
    search: Decimal | None = None
    """A thousand web searches of the provider."""
    request: Decimal | None = None
    """A thousand requests, whatever their size (Perplexity)."""


class PriceTier(Rates, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Other prices for requests with long prompts, with the same keys. They are for all tokens of such a request, not
    only for those above the limit. What a tier leaves out costs as before."""

    above: Annotated[int, Meta(ge=1, le=2**53)]
    """The tier begins with more input tokens than this, cached ones included."""


class Prices(Rates, frozen=True, kw_only=True, forbid_unknown_fields=True, cache_hash=True):
    """What a model costs, in US dollars. They win over the prices of the catalogue, all or none of them."""

    tiers: tuple[PriceTier, ...] = ()
    """Other prices for long prompts, the smallest limit first."""

    def find_rate(self, kind: str, input_tokens: int) -> Decimal | None:
        """The price of a kind of token (a field of `Rates`) in a request with so many input tokens."""
        tiers = (tier for tier in reversed(self.tiers) if input_tokens > tier.above)
        rates: Iterator[Decimal | None] = (getattr(rates, kind) for rates in (*tiers, self))
        return next((rate for rate in rates if rate is not None), None)
