"""How a call looks from outside: one path, and a version that must fit the model and the body."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from toolwire.limits import Spelling
from toolwire.protocols.anthropic.details.listing import write_model, write_models
from toolwire.protocols.anthropic.models import family
from toolwire.room import Asked, Count, Http
from toolwire.wire import Json, Object

PATH = "/v1/messages"
COUNT_PATH = "/v1/messages/count_tokens"

OLD, NEW = "2023-06-01", "2026-10-21"
"""The versions there are. The old one takes everything that the new one takes."""

COUNTED = frozenset(
    """model messages system tools tool_choice thinking output_config cache_control speed mcp_servers
    context_management""".split()
)
"""What the endpoint that counts takes."""

OAUTH = "sk-ant-oat"
"""Tokens of a person begin so; they are shown another way than keys."""

read_limits, write_limits = Spelling(
    "anthropic-ratelimit-{what}-{field}", ("requests", "tokens", "input-tokens", "output-tokens"), instants=True
).doors()


def path(model: str, stream: bool) -> str:
    """One path for all: model and stream flag stand in the body."""
    return PATH


def credential(key: str) -> tuple[str, str]:
    return ("authorization", f"Bearer {key}") if key.startswith(OAUTH) else ("x-api-key", key)


# --- headers --------------------------------------------------------------------------------------------------------


def headers(model: str, body: bytes, given: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The version, and the client's betas: all of them, because the provider alone knows which still mean something.
    Nothing that our own writer writes needs one."""
    chosen = ("anthropic-version", version(model, body, given.get("anthropic-version", "")))
    beta = given.get("anthropic-beta", "")
    return (chosen, ("anthropic-beta", beta)) if beta else (chosen,)


def version(model: str, body: bytes, given: str) -> str:
    """The client's, if it exists and the body fits it. A word that only looks like a setting, such as a parameter of a
    tool, leads to the old version, which is never wrong."""
    find = body.find  # `in` costs ten times as much: it makes an error first, and drops it
    if given == OLD or find(b'"temperature"') >= 0 or find(b'"top_p"') >= 0 or find(b'"top_k"') >= 0:
        return OLD
    if given == NEW:
        return NEW
    # Models that sample may stand at servers that never heard of the new one, which may refuse documents and citations:
    # those in the model's own turn, and these in the user's.
    if family(model).sampling or find(b'"document"') >= 0 or find(b'"citations"') >= 0:
        return OLD
    return NEW


# --- counting -------------------------------------------------------------------------------------------------------


def _count_path(_model: str) -> str:
    return COUNT_PATH


def _counted(body: Object, model: str) -> Object:
    return {key: value for key, value in body.items() if key in COUNTED} | {"model": model}


def _read_count(body: Json) -> int | None:
    count = body.get("input_tokens") if isinstance(body, dict) else None
    return count if type(count) is int else None


def _write_count(tokens: int) -> Object:
    return {"input_tokens": tokens}


HTTP = Http(
    path=path,
    hosted=(b'"web_search_', b'"web_fetch_'),
    history=(b'"assistant"', b'"tool_result"'),
    sdk=("Anthropic", "ANTHROPIC_BASE_URL", ""),
    posts=MappingProxyType({PATH: Asked("generate"), COUNT_PATH: Asked("count")}),
    families=("/v1/messages", "/v1/complete", "/v1/files", "/v1/skills", "/v1/organizations", "/api/"),
    signs=frozenset({"anthropic-version", "anthropic-beta", "anthropic-dangerous-direct-browser-access"}),
    credential=credential,
    credential_headers=("x-api-key", "authorization"),
    forwarded=(
        "anthropic-user-profile-id",
        "anthropic-workspace-id",
        "anthropic-dangerous-direct-browser-access",
        "x-claude-code-*",
        "x-app",
        "idempotency-key",
        "x-stainless-*",
        "user-agent",
    ),
    headers=headers,
    answered=("retry-after", "retry-after-ms", "x-should-retry", "request-id", "anthropic-*"),
    request_id="request-id",
    heartbeat=b'event: ping\ndata: {"type": "ping"}\n\n',
    read_limits=read_limits,
    write_limits=write_limits,
    write_models=write_models,
    write_model=write_model,
    count=Count(
        path=_count_path, read_body=lambda body: body, write_body=_counted, read=_read_count, write=_write_count
    ),
)
