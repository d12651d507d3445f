"""How a call looks from outside: one path, model and stream flag in the body."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from toolwire.limits import Spelling
from toolwire.room import Asked, Card, Http
from toolwire.wire import Object

PATH = "/v1/unified"

read_limits, write_limits = Spelling(
    "x-ratelimit-{field}-{what}", ("requests", "tokens", "input-tokens", "output-tokens")
).doors()


def path(model: str, stream: bool) -> str:
    return PATH


def write_model(card: Card) -> Object:
    said = {
        "owner": card.owner or None,
        "created": card.created or None,
        "max_input_tokens": card.input_limit,
        "max_output_tokens": card.output_limit,
    }
    return {"id": card.id} | {key: value for key, value in said.items() if value is not None}


def write_models(cards: tuple[Card, ...], _query: Mapping[str, str]) -> Object:
    return {"models": [write_model(card) for card in cards]}


HTTP = Http(
    path=path,
    posts=MappingProxyType({PATH: Asked("generate")}),
    lists=("/v1/unified/models",),
    hosted=(b'"hosted"',),
    families=("/v1/unified",),
    forwarded=("idempotency-key", "user-agent"),
    answered=("retry-after", "retry-after-ms", "x-ratelimit-*", "x-request-id", "x-toolwire-*"),
    heartbeat=b": keep-alive\n\n",
    read_limits=read_limits,
    write_limits=write_limits,
    write_models=write_models,
    write_model=write_model,
)
