"""Chat Completions over HTTP: paths, headers and lists of models."""

from __future__ import annotations

from collections.abc import Mapping

from toolwire.core.codec import EndpointMatch, Http, ModelInfo
from toolwire.core.json_values import Object
from toolwire.core.rate_limits import RateLimitHeaders

PATH = "/v1/chat/completions"

_PATH_PREFIXES = tuple(
    f"/v1/{name}"
    for name in (
        "chat/ completions embeddings files uploads images audio videos batches moderations fine_tuning vector_stores"
        " containers evals assistants threads realtime"
    ).split()
)

read_rate_limits, write_rate_limits = RateLimitHeaders(
    "x-ratelimit-{field}-{what}", ("requests", "tokens")
).make_reader_and_writer()


def write_model_entry(card: ModelInfo) -> Object:
    return {"id": card.id, "object": "model", "created": card.created, "owned_by": card.owner or "toolwire"}


def write_model_list(cards: tuple[ModelInfo, ...], _query: Mapping[str, str]) -> Object:
    """All models on one page. Codex also looks for its catalogue under `models`: without the key it logs an error at
    every start, and a model with an entry would lose Codex's own prompt and tools. So the catalogue is empty."""
    return {"object": "list", "data": [write_model_entry(card) for card in cards], "models": []}


HTTP = Http(
    request_path=lambda _model, _stream: PATH,
    provider_tool_markers=(b'"web_search_options"',),
    history_markers=(b'"tool_calls"', b'"tool_call_id"', b'"function_call"'),
    sdk_base_url=("OpenAI", "OPENAI_BASE_URL", "/v1"),
    fixed_endpoints={PATH: EndpointMatch("generate")},
    path_prefixes=_PATH_PREFIXES,
    forwarded_headers=tuple("openai-* x-openai-* x-client-request-id idempotency-key x-stainless-* user-agent".split()),
    returned_headers=("retry-after", "retry-after-ms", "x-should-retry", "x-ratelimit-*", "x-request-id", "openai-*"),
    heartbeat=b": keep-alive\n\n",
    read_rate_limits=read_rate_limits,
    write_rate_limits=write_rate_limits,
    write_model_list=write_model_list,
    write_model_entry=write_model_entry,
)
