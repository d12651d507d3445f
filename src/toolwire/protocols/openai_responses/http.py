"""How a call of this protocol looks from outside."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from toolwire.limits import Spelling
from toolwire.room import Asked, Card, Count, Http
from toolwire.wire import Json, Object

PATH = "/v1/responses"
COUNT_PATH = "/v1/responses/input_tokens"

COUNTED = frozenset(
    """model input instructions tools tool_choice parallel_tool_calls reasoning text truncation conversation
    previous_response_id personality""".split()
)
"""What the endpoint that counts takes."""

CODEX = (
    "originator",
    "x-codex-window-id",
    "x-codex-turn-metadata",
    "x-codex-beta-features",
    "x-openai-internal-codex-responses-lite",
    "client_version",
)
"""Only one agent sends these; the last stands in the query when it asks for models."""

read_limits, write_limits = Spelling("x-ratelimit-{field}-{what}", ("requests", "tokens")).doors()


def path(model: str, stream: bool) -> str:
    return PATH


def write_model(card: Card) -> Object:
    return {"id": card.id, "object": "model", "created": card.created, "owned_by": card.owner or "toolwire"}


def write_models(cards: tuple[Card, ...], _query: Mapping[str, str]) -> Object:
    """All at once. `models` is a catalogue that Codex looks for: without the key it complains at every start, and an
    entry would take its own prompt and tools away from a model, so there is none."""
    return {"object": "list", "data": [write_model(card) for card in cards], "models": []}


# --- counting -------------------------------------------------------------------------------------------------------


def _count_path(_model: str) -> str:
    return COUNT_PATH


def _counted(body: Object, model: str) -> Object:
    return {key: value for key, value in body.items() if key in COUNTED} | {"model": model}


def _read_count(body: Json) -> int | None:
    count = body.get("input_tokens") if isinstance(body, dict) else None
    return count if type(count) is int else None


def _write_count(tokens: int) -> Object:
    return {"object": "response.input_tokens", "input_tokens": tokens}


HTTP = Http(
    path=path,
    hosted=(b'"web_search',),
    history=(b'"call_id"', b'"encrypted_content"'),
    posts=MappingProxyType({PATH: Asked("generate"), COUNT_PATH: Asked("count")}),
    families=("/v1/responses", "/v1/conversations"),
    signs=frozenset(CODEX),
    forwarded=(
        "openai-*",
        "x-openai-*",
        "x-codex-*",
        "originator",
        "session-id",
        "thread-id",
        "x-client-request-id",
        "idempotency-key",
        "x-stainless-*",
        "user-agent",
    ),
    answered=(
        "retry-after",
        "retry-after-ms",
        "x-should-retry",
        "x-ratelimit-*",
        "x-request-id",
        "openai-*",
        "x-codex-*",
        "x-reasoning-included",
    ),
    heartbeat=b": keep-alive\n\n",
    # It makes room when it hears that in the stream, as from the service, and gives up at a status.
    streamed_failures=MappingProxyType({"context": frozenset({"codex"})}),
    read_limits=read_limits,
    write_limits=write_limits,
    write_models=write_models,
    write_model=write_model,
    count=Count(
        path=_count_path, read_body=lambda body: body, write_body=_counted, read=_read_count, write=_write_count
    ),
)
