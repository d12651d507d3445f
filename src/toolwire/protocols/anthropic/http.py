"""Endpoints, headers, credentials, token counting and the list of models.

Source: the types of the Python SDK `anthropic` 2.8.0 and Anthropic's pages (copies of 2026-08-22), looked up in
November 2026."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from toolwire.core.codec import (
    EndpointMatch,
    Http,
    ModelFacts,
    ModelInfo,
    TokenCountEndpoint,
    parse_passthrough_endpoints,
)
from toolwire.core.json_values import Object
from toolwire.core.model_lists import read_data_list
from toolwire.core.rate_limits import RateLimitHeaders, write_timestamp
from toolwire.protocols.anthropic.clouds import make_framing_converter, match_endpoint
from toolwire.protocols.anthropic.models import ALL_EFFORTS, family, find_model_facts
from toolwire.protocols.anthropic.names import NEW_VERSION, OLD_VERSION

DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE = 20, 1000
MODELS_PATH = f"/v1/models?limit={MAX_PAGE_SIZE}"
SERVER_TOOLS = ("code_execution", "web_search")


def write_model_entry(card: ModelInfo) -> Object:
    return {
        "type": "model",
        "id": card.id,
        "display_name": card.display_name or card.id,
        "created_at": write_timestamp(card.created),
        "lifecycle": "active",
        "deprecated_at": None,
        "retires_at": None,
        "line": None,
        "max_input_tokens": card.facts.context_window,
        "max_tokens": card.facts.max_output_tokens,
        "capabilities": dict(card.capabilities) or _write_capabilities(card.facts),
    }


def _write_capabilities(facts: ModelFacts) -> Object | None:
    """What another vendor's model can do behind a translation. All members must be there, so it is written only if
    enough is known. What only Anthropic has is not supported."""
    inputs, efforts = facts.input_modalities, facts.reasoning_efforts
    if inputs is None or efforts is None:
        return None
    thinks = any(word != "none" for word in efforts)
    levels = {word: _write_support(word in efforts) for word in ALL_EFFORTS}
    # An effort is translated to a budget and back, and thinking can be switched off in every protocol.
    types = {"adaptive": thinks, "between_tools": False, "disabled": True, "enabled": thinks}
    return {
        "batch": _write_support(False),
        "citations": _write_support(False),
        "code_execution": _write_support(False),
        "context_management": _write_support(False),
        "effort": _write_support(thinks) | levels,
        "image_input": _write_support("image" in inputs),
        "pdf_input": _write_support("file" in inputs),
        "server_tools": {name: _write_support(False) for name in SERVER_TOOLS} | _write_support(False),
        "structured_outputs": _write_support(facts.tools is True),
        "thinking": _write_support(thinks) | {"types": {name: _write_support(is_on) for name, is_on in types.items()}},
    }


def _write_support(is_supported: bool) -> Object:
    return {"supported": is_supported}


def write_model_list(cards: tuple[ModelInfo, ...], query: Mapping[str, str]) -> Object:
    """The page after `after_id` or before `before_id`; the first page if that id is unknown."""
    asked = query.get("limit", "")
    is_number = asked.isascii() and asked.isdecimal() and len(asked) < 10
    limit = min(max(1, int(asked)), MAX_PAGE_SIZE) if is_number else DEFAULT_PAGE_SIZE
    places = {card.id: place for place, card in enumerate(cards)}
    before = places.get(query.get("before_id", ""))
    if before is not None:
        start, end = max(0, before - limit), before
        more = start > 0
    else:
        start = places.get(query.get("after_id", ""), -1) + 1
        end = min(start + limit, len(cards))
        more = end < len(cards)
    page = cards[start:end]
    return {
        "data": [write_model_entry(card) for card in page],
        "has_more": more,
        "first_id": page[0].id if page else None,
        "last_id": page[-1].id if page else None,
    }


PATH = "/v1/messages"
COUNT_TOKENS_PATH = "/v1/messages/count_tokens"

PASSTHROUGH_ENDPOINTS = parse_passthrough_endpoints("""
    HEAD         /api/hello
    POST         /v1/complete                            body
    POST         /v1/messages/batches                    create runs-models
    GET          /v1/messages/batches                    list
    GET,DELETE   /v1/messages/batches/{id}               use
    POST         /v1/messages/batches/{id}/cancel        use free
    GET          /v1/messages/batches/{id}/results       use
    POST         /v1/files                               create free
    GET          /v1/files                               list
    GET,DELETE   /v1/files/{id}                          use
    GET          /v1/files/{id}/content                  use
    POST         /v1/skills                              create free
    GET          /v1/skills                              list
    GET,DELETE   /v1/skills/{id}                         use
    GET,POST     /v1/skills/{id}/versions                use free
    GET,DELETE   /v1/skills/{id}/versions/{id}           use
    GET          /v1/skills/{id}/versions/{id}/content   use
""")
"""`/api/hello` is Claude Code's check that its server can be reached, without content. Not here: organisations, OAuth,
user profiles and vaults, which belong to the account, and agents with their sessions, environments and tunnels."""

COUNT_TOKENS_KEYS = frozenset(
    """model messages system tools tool_choice thinking output_config cache_control speed mcp_servers
    context_management""".split()
)
"""What `count_tokens` accepts."""

OAUTH_TOKEN_PREFIX = "sk-ant-oat"
"""OAuth tokens of Claude subscriptions begin like this; they go into another header than API keys."""

read_rate_limits, write_rate_limits = RateLimitHeaders(
    "anthropic-ratelimit-{what}-{field}",
    ("requests", "tokens", "input-tokens", "output-tokens"),
    resets_as_timestamp=True,
).make_reader_and_writer()


def write_credential(key: str) -> tuple[str, str]:
    return ("authorization", f"Bearer {key}") if key.startswith(OAUTH_TOKEN_PREFIX) else ("x-api-key", key)


# --- headers --------------------------------------------------------------------------------------------------------


def extra_headers(model: str, body: bytes, client_headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """`anthropic-version`, and all betas of the client: only the provider knows which of them still matter."""
    version = ("anthropic-version", choose_version(model, body, client_headers.get("anthropic-version", "")))
    beta = client_headers.get("anthropic-beta", "")
    return (version, ("anthropic-beta", beta)) if beta else (version,)


def version_header(model: str, body: bytes, client_headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The headers for servers that know no betas."""
    return extra_headers(model, body, client_headers)[:1]


def choose_version(model: str, body: bytes, requested: str) -> str:
    """The client's version if it exists and the body fits it. A false match, such as a tool parameter named
    `temperature`, only leads to the old version, which always works."""
    find = body.find  # ten times as fast as `in`
    if requested == OLD_VERSION or find(b'"temperature"') >= 0 or find(b'"top_p"') >= 0 or find(b'"top_k"') >= 0:
        return OLD_VERSION
    if requested == NEW_VERSION:
        return NEW_VERSION
    # Servers with older models may not know the new version. It may also refuse documents in assistant turns and
    # citations in user turns.
    if family(model).sampling or find(b'"document"') >= 0 or find(b'"citations"') >= 0:
        return OLD_VERSION
    return NEW_VERSION


# --- objects that answers create --------------------------------------------------------------------------------------


def find_created_objects(body: Object) -> Iterator[str]:
    """Containers, files that code has written in them, and the message itself, which a thread continues, in a whole
    answer or in an event of a stream."""
    message = body.get("message")
    holders = [holder for holder in (body, message, body.get("delta")) if isinstance(holder, dict)]
    blocks = [body.get("content_block")]
    for holder in holders:
        container, content = holder.get("container"), holder.get("content")
        yield from _ids_in(holder, "id" if holder.get("type") == "message" else "")
        if isinstance(container, dict):
            yield from _ids_in(container, "id")
        if isinstance(content, list):
            blocks += content
    for block in blocks:
        kind = block.get("type") if isinstance(block, dict) else None
        if not isinstance(block, dict) or not isinstance(kind, str):
            continue
        if kind == "container_upload":
            yield from _ids_in(block, "file_id")
        result = block.get("content") if kind.endswith("code_execution_tool_result") else None
        outputs = result.get("content") if isinstance(result, dict) else None
        for output in outputs if isinstance(outputs, list) else ():
            if isinstance(output, dict):
                yield from _ids_in(output, "file_id")


def _ids_in(node: Object, key: str) -> Iterator[str]:
    value = node.get(key)
    if isinstance(value, str) and value:
        yield value


HTTP = Http(
    request_path=lambda _model, _stream: PATH,
    provider_tool_markers=(b'"web_search_', b'"web_fetch_'),
    # A budget for thinking is read, too: newer models refuse it.
    history_markers=(b'"assistant"', b'"tool_result"', b'"budget_tokens"'),
    sdk_base_url=("Anthropic", "ANTHROPIC_BASE_URL", ""),
    fixed_endpoints={PATH: EndpointMatch("generate"), COUNT_TOKENS_PATH: EndpointMatch("count_tokens")},
    match_endpoint=match_endpoint,
    make_framing_converter=make_framing_converter,
    # Of Claude on Bedrock and on Foundry, and of the SDK classes for them.
    path_aliases={"/anthropic/v1/{rest}": "/v1/{rest}", "/anthropic/api/hello": "/api/hello"},
    path_prefixes=("/v1/messages", "/v1/complete", "/v1/files", "/v1/skills", "/v1/organizations", "/api/"),
    passthrough_endpoints=PASSTHROUGH_ENDPOINTS,
    output_limit_keys=("max_tokens",),
    lenient_output_limit_keys=("max_tokens_to_sample",),
    media_markers=(b'"image"', b'"document"'),
    object_markers=(b"file_id", b"container", b'"previous_message_id"'),
    # Searches of this version run code to filter what they find.
    creation_markers=(b"container", b"code_execution", b"web_search_2026", b"web_fetch_2026", b'"thread"'),
    find_created_objects=find_created_objects,
    created_object_markers=(b"container", b"file_id", b'"message"'),
    identifying_names=frozenset({"anthropic-version", "anthropic-beta", "anthropic-dangerous-direct-browser-access"}),
    write_credential=write_credential,
    credential_headers=("x-api-key", "authorization"),
    forwarded_headers=(
        "anthropic-user-profile-id",
        "anthropic-workspace-id",
        "anthropic-dangerous-direct-browser-access",
        "x-claude-code-*",
        "x-app",
        "idempotency-key",
        "x-stainless-*",
        "user-agent",
    ),
    extra_headers=extra_headers,
    returned_headers=("retry-after", "retry-after-ms", "x-should-retry", "request-id", "anthropic-*"),
    request_id_header="request-id",
    stream_end=b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
    heartbeat=b'event: ping\ndata: {"type": "ping"}\n\n',
    read_rate_limits=read_rate_limits,
    write_rate_limits=write_rate_limits,
    write_model_list=write_model_list,
    write_model_entry=write_model_entry,
    provider_models_path=MODELS_PATH,
    read_model_list=lambda body: read_data_list(body, MODELS_PATH, "after_id"),
    find_model_facts=find_model_facts,
    # A beta of some models has a larger window; the other clears old tool results, or summarises.
    changes_window=lambda headers, body: (
        "context-" in headers.get("anthropic-beta", "") or body.find(b'"context_management"') >= 0
    ),
    token_count=TokenCountEndpoint(
        path=lambda _model: COUNT_TOKENS_PATH,
        read_body=lambda body: body,
        write_body=lambda body, model: {key: body[key] for key in body if key in COUNT_TOKENS_KEYS} | {"model": model},
        count_key="input_tokens",
    ),
)
