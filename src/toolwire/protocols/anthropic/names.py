"""The words of this wire: which keys are known where, and how its words and ours stand for each other."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from toolwire.core.ir import FinishKind, Origin, Role, Seal

NAME = "anthropic"


def key_set(*names: str) -> frozenset[str]:
    return frozenset(names)


def invert_table(table: Mapping[str, str]) -> Mapping[str, str]:
    """The same table read from right to left; the first of several rows wins."""
    return MappingProxyType({right: left for left, right in reversed(list(table.items()))})


# --- known keys: what a reader carries into the internal form; all others become strays -------------------------------

REQUEST_KEYS = key_set(
    "model", "max_tokens", "messages", "system", "tools", "tool_choice", "thinking", "output_config", "output_format",
    "stop_sequences", "stream", "metadata", "service_tier", "cache_control", "temperature", "top_p", "top_k",
)  # fmt: skip
TURN_KEYS = key_set("role", "content")
METADATA_KEYS = key_set("user_id")
OUTPUT_CONFIG_KEYS = key_set("effort", "format")
THINKING_KEYS = key_set("type", "budget_tokens", "display")
FORMAT_KEYS = key_set("type", "schema")
TOOL_CHOICE_KEYS = key_set("type", "name", "disable_parallel_tool_use")
CACHE_CONTROL_KEYS = key_set("type", "ttl")

TEXT_KEYS = key_set("type", "text", "citations", "cache_control")
THINKING_BLOCK_KEYS = key_set("type", "thinking", "signature")
REDACTED_THINKING_KEYS = key_set("type", "data")
TOOL_USE_KEYS = key_set("type", "id", "name", "input", "cache_control")
DIRECT_TOOL_USE_KEYS = TOOL_USE_KEYS | {"caller"}
TOOL_RESULT_KEYS = key_set("type", "tool_use_id", "content", "is_error", "cache_control")
TOOL_REFERENCE_KEYS = key_set("type", "tool_name", "cache_control")
SEARCH_RESULT_KEYS = key_set("type", "source", "title", "content", "cache_control")
IMAGE_KEYS = key_set("type", "source", "cache_control")
DOCUMENT_KEYS = key_set("type", "source", "title", "cache_control")
PROVIDER_RESULT_KEYS = key_set("type", "tool_use_id", "content")
DIRECT_PROVIDER_RESULT_KEYS = PROVIDER_RESULT_KEYS | {"caller"}

TOOL_KEYS = key_set("type", "name", "description", "input_schema", "strict", "defer_loading", "cache_control")
CLIENT_TOOL_KEYS = key_set("type", "name", "strict", "defer_loading", "cache_control")
PROVIDER_TOOL_KEYS = key_set(
    "type", "name", "max_uses", "allowed_domains", "blocked_domains", "user_location", "cache_control"
)  # fmt: skip
LOCATION_KEYS = key_set("type", "city", "region", "country", "timezone")

UNKNOWN_MODEL = "unknown"
"""Clients demand a model's name, also when nobody told it."""

MESSAGE_KEYS = key_set(
    "id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "stop_details", "usage"
)
STOP_DETAILS_KEYS = key_set("type", "category", "explanation")
USAGE_KEYS = key_set(
    "input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens_details"
)  # fmt: skip
USAGE_DETAILS_KEYS = key_set("thinking_tokens")
ERROR_BODY_KEYS = key_set("type", "error", "request_id")

CITATION_KEYS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "web_search_result_location": key_set("type", "url", "title", "cited_text"),
        "search_result_location": key_set("type", "source", "title", "cited_text"),
    }
)
OTHER_CITATION_KEYS = key_set("type", "document_title", "cited_text")

# --- words ------------------------------------------------------------------------------------------------------------

ROLES: Mapping[str, Role] = MappingProxyType({"user": "user", "assistant": "assistant", "system": "system"})
WIRE_ROLES: Mapping[Role, str] = MappingProxyType(
    {"user": "user", "assistant": "assistant", "system": "system", "developer": "system", "tool": "user"}
)

KIND_BY_STOP_REASON: Mapping[str, FinishKind] = MappingProxyType(
    {
        "end_turn": "stop",
        "max_tokens": "length",
        "stop_sequence": "sequence",
        "tool_use": "calls",
        "pause_turn": "pause",
        "refusal": "refusal",
        "model_context_window_exceeded": "context",
        "compaction": "other",
    }
)
STOP_REASON_BY_KIND: Mapping[FinishKind, str] = MappingProxyType(
    {
        "stop": "end_turn",
        "length": "max_tokens",
        "sequence": "stop_sequence",
        "calls": "tool_use",
        "pause": "pause_turn",
        "refusal": "refusal",
        "filter": "refusal",
        "context": "model_context_window_exceeded",
        # Not a success, and nothing to run: the one word here that says both.
        "malformed": "refusal",
        "other": "end_turn",
    }
)
LOSSY_FINISH_KINDS: frozenset[FinishKind] = frozenset({"malformed", "other"})
"""Endings that have no word of their own here."""

REFUSAL_CATEGORIES = key_set("cyber", "bio", "frontier_llm", "reasoning_extraction", "general_harms")

SERVICE_TIERS: Mapping[str, str] = MappingProxyType({"auto": "auto", "standard_only": "default"})
WIRE_SERVICE_TIERS = invert_table(SERVICE_TIERS)

THINKING_DISPLAYS: Mapping[str, str] = MappingProxyType({"omitted": "none", "summarized": "auto", "updates": "updates"})
WIRE_THINKING_DISPLAYS = invert_table(THINKING_DISPLAYS)

KIND_BY_ERROR_TYPE: Mapping[str, tuple[str, int]] = MappingProxyType(
    {
        "invalid_request_error": ("invalid", 400),
        "authentication_error": ("authentication", 401),
        "billing_error": ("billing", 402),
        "permission_error": ("permission", 403),
        "not_found_error": ("not_found", 404),
        "conflict_error": ("conflict", 409),
        "request_too_large": ("too_large", 413),
        "rate_limit_error": ("rate", 429),
        "api_error": ("server", 500),
        "timeout_error": ("deadline", 504),
        "overloaded_error": ("overloaded", 529),
    }
)
ERROR_BY_KIND: Mapping[str, tuple[str, int]] = MappingProxyType(
    {kind: (word, status) for word, (kind, status) in KIND_BY_ERROR_TYPE.items()}
    | {
        "context": ("invalid_request_error", 400),
        "unprocessable": ("invalid_request_error", 400),
        "timeout": ("timeout_error", 408),
        "quota": ("rate_limit_error", 429),
        "cancelled": ("api_error", 499),
        "upstream": ("api_error", 502),
    }
)

CONTEXT_OVERFLOWS = ("prompt is too long", "exceed context limit", "context window", "input is too long")
"""How the wire words a prompt that does not fit; it has no code of its own for that."""
CONTEXT_OVERFLOW = CONTEXT_OVERFLOWS[0]

BILLING_HEADER_PREFIX = "x-anthropic-billing-header:"
"""A line that one agent puts first into its instructions; it changes with every call and means nothing to others."""

RAW_ARGUMENTS_KEY = "_raw"
"""Arguments that are no JSON object stand under this key."""


# --- Whose stamp a node or a seal bears ---


def is_own(origin: Origin | None) -> bool:
    """Was it read from this wire, changed or not?"""
    return origin is not None and origin.protocol == NAME


def is_foreign(origin: Origin | None) -> bool:
    """Was it read from another wire? What has no origin was made here and belongs to nobody."""
    return origin is not None and origin.protocol != NAME


def own_seal_value(seal: Seal | None) -> str | None:
    """The value of a seal that this wire's provider made."""
    if seal is None or not (seal.maker == NAME or seal.maker.startswith(f"{NAME}/")):
        return None
    return seal.value
