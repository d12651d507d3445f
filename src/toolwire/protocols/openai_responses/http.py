"""Responses over HTTP: paths, headers, lists of models, and the endpoint that counts tokens.

Source: the types of the Python SDK `openai` 3.49.0 and OpenAI's OpenAPI document of 2026-08-21, looked up in November
2026."""

from __future__ import annotations

import re
from collections.abc import Iterator

from toolwire.core.codec import EndpointMatch, Http, TokenCountEndpoint, parse_passthrough_endpoints
from toolwire.core.json_values import Json, Object
from toolwire.core.model_lists import (
    OPENAI_MODELS_PATH,
    find_openai_facts,
    read_openai_list,
    write_openai_entry,
    write_openai_list,
)
from toolwire.core.rate_limits import RateLimitHeaders

PATH = "/v1/responses"
_SHORTENS = re.compile(rb'"truncation"\s*:\s*"auto"|"context_management"')
"""OpenAI leaves out the oldest turns, or summarises them."""
COUNT_TOKENS_PATH = "/v1/responses/input_tokens"

COUNT_TOKENS_KEYS = frozenset(
    """model input instructions tools tool_choice parallel_tool_calls reasoning text truncation conversation
    previous_response_id personality""".split()
)
"""The keys that the token counting endpoint accepts."""

CODEX_SIGNS = frozenset(
    """originator x-codex-window-id x-codex-turn-metadata x-codex-beta-features x-openai-internal-codex-responses-lite
    client_version""".split()
)
"""Names that only Codex sends; the last one is in the query when it asks for models."""

PASSTHROUGH_ENDPOINTS = parse_passthrough_endpoints("""
    GET,DELETE   /v1/responses/{id}                     use
    POST         /v1/responses/{id}/cancel              use free
    GET          /v1/responses/{id}/input_items         use
    POST         /v1/conversations                      create free
    GET,POST,DELETE  /v1/conversations/{id}             use free
    GET,POST     /v1/conversations/{id}/items           use free
    GET,DELETE   /v1/conversations/{id}/items/{id}      use
""")
"""For objects that the gateway does not store itself."""

read_rate_limits, write_rate_limits = RateLimitHeaders(
    "x-ratelimit-{field}-{what}", ("requests", "tokens")
).make_reader_and_writer()


_CREATORS = frozenset("code_interpreter_call container_file_citation container_reference".split())
"""Types of items, annotations and environments in which OpenAI names a container that it has made."""
_WRITTEN_BY_MODEL = frozenset({"input", "arguments", "action", "code"})


def find_created_objects(body: Object) -> Iterator[str]:
    """Containers, files in them, and images, in a whole answer or in an event of a stream."""
    whole = body.get("response")
    outputs = [holder.get("output") for holder in (body, whole) if isinstance(holder, dict)]
    pending: list[Json] = [*outputs, body.get("item"), body.get("part"), body.get("annotation")]
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending += node
        elif isinstance(node, dict):
            kind = node.get("type")
            if isinstance(kind, str) and kind in _CREATORS:
                found = (node.get("container_id"), node.get("file_id"))
                yield from (name for name in found if isinstance(name, str) and name)
            elif kind == "image_generation_call" and isinstance(image := node.get("id"), str):
                yield image
            pending += [value for key, value in node.items() if key not in _WRITTEN_BY_MODEL]


HTTP = Http(
    request_path=lambda model, stream: PATH,
    provider_tool_markers=(b'"web_search',),
    history_markers=(b'"call_id"', b'"encrypted_content"', b'"rs_'),
    fixed_endpoints={PATH: EndpointMatch("generate"), COUNT_TOKENS_PATH: EndpointMatch("count_tokens")},
    path_prefixes=("/v1/responses", "/v1/conversations"),
    passthrough_endpoints=PASSTHROUGH_ENDPOINTS,
    media_markers=tuple(
        f'"{name}"'.encode()
        for name in "input_image input_file input_audio computer_screenshot image_generation_call".split()
    ),
    # The ids of stored prompts begin with `pmpt_`.
    object_markers=(b"file_id", b"vector_store_ids", b"container", b"image_generation_call", b"pmpt_"),
    creation_markers=(b"container", b"image_generation"),
    find_created_objects=find_created_objects,
    created_object_markers=(b"container", b"file_id", b"image_generation_call"),
    identifying_names=CODEX_SIGNS,
    forwarded_headers=tuple(
        """openai-* x-openai-* x-codex-* originator session-id thread-id x-client-request-id idempotency-key
        x-stainless-* user-agent""".split()
    ),
    returned_headers=tuple(
        """retry-after retry-after-ms x-should-retry x-ratelimit-* x-request-id openai-* x-codex-*
        x-reasoning-included""".split()
    ),
    heartbeat=b": keep-alive\n\n",
    second_failure_event="response.failed",
    # Codex compacts its history when this error comes in the stream, as from OpenAI, and gives up at an HTTP status.
    failures_sent_in_stream={"context": frozenset({"codex"})},
    read_rate_limits=read_rate_limits,
    write_rate_limits=write_rate_limits,
    write_model_list=write_openai_list,
    write_model_entry=write_openai_entry,
    provider_models_path=OPENAI_MODELS_PATH,
    read_model_list=read_openai_list,
    find_model_facts=find_openai_facts,
    changes_window=lambda _headers, body: _SHORTENS.search(body) is not None,
    token_count=TokenCountEndpoint(
        path=lambda model: COUNT_TOKENS_PATH,
        read_body=lambda body: body,
        write_body=lambda body, model: {key: body[key] for key in body if key in COUNT_TOKENS_KEYS} | {"model": model},
        count_key="input_tokens",
        other_members={"object": "response.input_tokens"},
    ),
)
