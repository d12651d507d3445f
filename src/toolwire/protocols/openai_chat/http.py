"""How a call of this protocol looks from outside."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from toolwire.limits import Spelling
from toolwire.room import Asked, Card, Http
from toolwire.wire import Object

PATH = "/v1/chat/completions"

FAMILIES = (
    "/v1/chat/",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/files",
    "/v1/uploads",
    "/v1/images",
    "/v1/audio",
    "/v1/videos",
    "/v1/batches",
    "/v1/moderations",
    "/v1/fine_tuning",
    "/v1/vector_stores",
    "/v1/containers",
    "/v1/evals",
    "/v1/assistants",
    "/v1/threads",
    "/v1/realtime",
)

read_limits, write_limits = Spelling("x-ratelimit-{field}-{what}", ("requests", "tokens")).doors()


def _path(_model: str, _stream: bool) -> str:
    return PATH


def write_model(card: Card) -> Object:
    return {"id": card.id, "object": "model", "created": card.created, "owned_by": card.owner or "toolwire"}


def write_models(cards: tuple[Card, ...], _query: Mapping[str, str]) -> Object:
    """All at once. `models` is a catalogue that Codex looks for: without the key it complains at every start, and an
    entry would take its own prompt and tools away from a model, so there is none."""
    return {"object": "list", "data": [write_model(card) for card in cards], "models": []}


HTTP = Http(
    path=_path,
    hosted=(b'"web_search_options"',),
    history=(b'"tool_calls"', b'"tool_call_id"', b'"function_call"'),
    sdk=("OpenAI", "OPENAI_BASE_URL", "/v1"),
    posts=MappingProxyType({PATH: Asked("generate")}),
    families=FAMILIES,
    forwarded=("openai-*", "x-openai-*", "x-client-request-id", "idempotency-key", "x-stainless-*", "user-agent"),
    answered=("retry-after", "retry-after-ms", "x-should-retry", "x-ratelimit-*", "x-request-id", "openai-*"),
    heartbeat=b": keep-alive\n\n",
    read_limits=read_limits,
    write_limits=write_limits,
    write_models=write_models,
    write_model=write_model,
)
