"""The endpoint, headers and the list of models."""

from __future__ import annotations

from collections.abc import Mapping

from toolwire.core.codec import EndpointMatch, Http, ModelInfo
from toolwire.core.json_values import Object
from toolwire.core.rate_limits import RateLimitHeaders

PATH = "/v1/unified"

read_rate_limits, write_rate_limits = RateLimitHeaders(
    "x-ratelimit-{field}-{what}", ("requests", "tokens", "input-tokens", "output-tokens")
).make_reader_and_writer()


def write_model_entry(card: ModelInfo) -> Object:
    facts = card.facts
    fields = {
        "owner": card.owner or None,
        "created": card.created or None,
        "max_input_tokens": facts.context_window,
        "max_output_tokens": facts.max_output_tokens,
        "input_modalities": facts.input_modalities,
        "output_modalities": facts.output_modalities,
        "tools": facts.tools,
        "parallel_tools": facts.parallel_tools,
        "reasoning_efforts": facts.reasoning_efforts,
    }
    return {"id": card.id} | {key: value for key, value in fields.items() if value is not None}


def write_model_list(cards: tuple[ModelInfo, ...], _query: Mapping[str, str]) -> Object:
    return {"models": [write_model_entry(card) for card in cards]}


HTTP = Http(
    request_path=lambda _model, _stream: PATH,
    fixed_endpoints={PATH: EndpointMatch("generate")},
    model_list_paths=("/v1/unified/models",),
    provider_tool_markers=(b'"hosted"',),
    media_markers=(b'"image"', b'"file"', b'"audio"', b'"video"'),
    object_markers=(b"file_id",),
    path_prefixes=("/v1/unified",),
    forwarded_headers=("idempotency-key", "user-agent"),
    returned_headers=("retry-after", "retry-after-ms", "x-ratelimit-*", "x-request-id", "x-toolwire-*"),
    heartbeat=b": keep-alive\n\n",
    read_rate_limits=read_rate_limits,
    write_rate_limits=write_rate_limits,
    write_model_list=write_model_list,
    write_model_entry=write_model_entry,
)
