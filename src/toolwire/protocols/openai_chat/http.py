"""Chat Completions over HTTP: paths, headers and lists of models."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from toolwire.core.codec import EndpointMatch, Http, ModelInfo
from toolwire.core.json_values import Object
from toolwire.core.rate_limits import RateLimitHeaders

PATH = "/v1/chat/completions"

PATH_PREFIXES = (
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

read_rate_limits, write_rate_limits = RateLimitHeaders(
    "x-ratelimit-{field}-{what}", ("requests", "tokens")
).make_reader_and_writer()


def _path(_model: str, _stream: bool) -> str:
    return PATH


def write_model_entry(card: ModelInfo) -> Object:
    return {"id": card.id, "object": "model", "created": card.created, "owned_by": card.owner or "toolwire"}


def write_model_list(cards: tuple[ModelInfo, ...], _query: Mapping[str, str]) -> Object:
    """All models on one page. Codex also looks for its catalogue under `models`: without the key it logs an error at
    every start, and a model with an entry would lose Codex's own prompt and tools. So the catalogue is empty."""
    return {"object": "list", "data": [write_model_entry(card) for card in cards], "models": []}


HTTP = Http(
    request_path=_path,
    provider_tool_markers=(b'"web_search_options"',),
    history_markers=(b'"tool_calls"', b'"tool_call_id"', b'"function_call"'),
    sdk_base_url=("OpenAI", "OPENAI_BASE_URL", "/v1"),
    fixed_endpoints=MappingProxyType({PATH: EndpointMatch("generate")}),
    path_prefixes=PATH_PREFIXES,
    forwarded_headers=(
        "openai-*",
        "x-openai-*",
        "x-client-request-id",
        "idempotency-key",
        "x-stainless-*",
        "user-agent",
    ),
    returned_headers=("retry-after", "retry-after-ms", "x-should-retry", "x-ratelimit-*", "x-request-id", "openai-*"),
    heartbeat=b": keep-alive\n\n",
    read_rate_limits=read_rate_limits,
    write_rate_limits=write_rate_limits,
    write_model_list=write_model_list,
    write_model_entry=write_model_entry,
)
