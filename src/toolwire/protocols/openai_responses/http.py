"""How a call of this protocol looks from outside."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from toolwire.core.codec import EndpointMatch, Http, ModelInfo, TokenCountEndpoint
from toolwire.core.json_values import Json, Object
from toolwire.core.rate_limits import RateLimitHeaders

PATH = "/v1/responses"
COUNT_TOKENS_PATH = "/v1/responses/input_tokens"

COUNT_TOKENS_KEYS = frozenset(
    """model input instructions tools tool_choice parallel_tool_calls reasoning text truncation conversation
    previous_response_id personality""".split()
)
"""What the endpoint that counts takes."""

CODEX_SIGNS = (
    "originator",
    "x-codex-window-id",
    "x-codex-turn-metadata",
    "x-codex-beta-features",
    "x-openai-internal-codex-responses-lite",
    "client_version",
)
"""Only one agent sends these; the last stands in the query when it asks for models."""

read_rate_limits, write_rate_limits = RateLimitHeaders(
    "x-ratelimit-{field}-{what}", ("requests", "tokens")
).make_reader_and_writer()


def path(model: str, stream: bool) -> str:
    return PATH


def write_model_entry(card: ModelInfo) -> Object:
    return {"id": card.id, "object": "model", "created": card.created, "owned_by": card.owner or "toolwire"}


def write_model_list(cards: tuple[ModelInfo, ...], _query: Mapping[str, str]) -> Object:
    """All at once. `models` is a catalogue that Codex looks for: without the key it complains at every start, and an
    entry would take its own prompt and tools away from a model, so there is none."""
    return {"object": "list", "data": [write_model_entry(card) for card in cards], "models": []}


# --- counting -------------------------------------------------------------------------------------------------------


def _count_tokens_path(_model: str) -> str:
    return COUNT_TOKENS_PATH


def _write_count_request(body: Object, model: str) -> Object:
    return {key: value for key, value in body.items() if key in COUNT_TOKENS_KEYS} | {"model": model}


def _read_count_response(body: Json) -> int | None:
    count = body.get("input_tokens") if isinstance(body, dict) else None
    return count if type(count) is int else None


def _write_count_response(tokens: int) -> Object:
    return {"object": "response.input_tokens", "input_tokens": tokens}


HTTP = Http(
    request_path=path,
    provider_tool_markers=(b'"web_search',),
    history_markers=(b'"call_id"', b'"encrypted_content"'),
    fixed_endpoints=MappingProxyType({PATH: EndpointMatch("generate"), COUNT_TOKENS_PATH: EndpointMatch("count")}),
    path_prefixes=("/v1/responses", "/v1/conversations"),
    stored_object_paths=("/v1/responses", "/v1/conversations"),
    identifying_names=frozenset(CODEX_SIGNS),
    forwarded_headers=(
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
    returned_headers=(
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
    failures_sent_in_stream=MappingProxyType({"context": frozenset({"codex"})}),
    read_rate_limits=read_rate_limits,
    write_rate_limits=write_rate_limits,
    write_model_list=write_model_list,
    write_model_entry=write_model_entry,
    token_count=TokenCountEndpoint(
        path=_count_tokens_path,
        read_body=lambda body: body,
        write_body=_write_count_request,
        read_count=_read_count_response,
        write_count=_write_count_response,
    ),
)
