"""The words of this wire: which keys are known where, and how its words and ours stand for each other."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from toolwire.ir import FinishKind, Role

NAME = "anthropic"


def keys(*names: str) -> frozenset[str]:
    return frozenset(names)


def mirrored(table: Mapping[str, str]) -> Mapping[str, str]:
    """The same table read from right to left; the first of several rows wins."""
    return MappingProxyType({right: left for left, right in reversed(list(table.items()))})


# --- known keys: what a reader carries into the internal form; all others become strays -------------------------------

REQUEST = keys(
    "model", "max_tokens", "messages", "system", "tools", "tool_choice", "thinking", "output_config", "output_format",
    "stop_sequences", "stream", "metadata", "service_tier", "cache_control", "temperature", "top_p", "top_k",
)  # fmt: skip
TURN = keys("role", "content")
METADATA = keys("user_id")
OUTPUT_CONFIG = keys("effort", "format")
THINKING = keys("type", "budget_tokens", "display")
FORMAT = keys("type", "schema")
CHOICE = keys("type", "name", "disable_parallel_tool_use")
CACHE = keys("type", "ttl")

TEXT = keys("type", "text", "citations", "cache_control")
THOUGHT = keys("type", "thinking", "signature")
REDACTED = keys("type", "data")
TOOL_USE = keys("type", "id", "name", "input", "cache_control")
TOOL_USE_DIRECT = TOOL_USE | {"caller"}
TOOL_RESULT = keys("type", "tool_use_id", "content", "is_error", "cache_control")
TOOL_REFERENCE = keys("type", "tool_name", "cache_control")
SEARCH_RESULT = keys("type", "source", "title", "content", "cache_control")
IMAGE = keys("type", "source", "cache_control")
DOCUMENT = keys("type", "source", "title", "cache_control")
HOSTED_RESULT = keys("type", "tool_use_id", "content")
HOSTED_RESULT_DIRECT = HOSTED_RESULT | {"caller"}

TOOL = keys("type", "name", "description", "input_schema", "strict", "defer_loading", "cache_control")
OWN_TOOL = keys("type", "name", "strict", "defer_loading", "cache_control")
HOSTED_TOOL = keys(
    "type", "name", "max_uses", "allowed_domains", "blocked_domains", "user_location", "cache_control"
)  # fmt: skip
LOCATION = keys("type", "city", "region", "country", "timezone")

UNKNOWN_MODEL = "unknown"
"""Clients demand a model's name, also when nobody told it."""

MESSAGE = keys("id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "stop_details", "usage")
STOP_DETAILS = keys("type", "category", "explanation")
USAGE = keys(
    "input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens_details"
)  # fmt: skip
USAGE_DETAILS = keys("thinking_tokens")
ERROR_BODY = keys("type", "error", "request_id")

CITATION: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "web_search_result_location": keys("type", "url", "title", "cited_text"),
        "search_result_location": keys("type", "source", "title", "cited_text"),
    }
)
CITATION_OTHER = keys("type", "document_title", "cited_text")

# --- words ------------------------------------------------------------------------------------------------------------

ROLES: Mapping[str, Role] = MappingProxyType({"user": "user", "assistant": "assistant", "system": "system"})
WIRE_ROLES: Mapping[Role, str] = MappingProxyType(
    {"user": "user", "assistant": "assistant", "system": "system", "developer": "system", "tool": "user"}
)

STOP_REASONS: Mapping[str, FinishKind] = MappingProxyType(
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
FINISHES: Mapping[FinishKind, str] = MappingProxyType(
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
COARSE: frozenset[FinishKind] = frozenset({"malformed", "other"})
"""Endings that have no word of their own here."""

REFUSAL_CATEGORIES = keys("cyber", "bio", "frontier_llm", "reasoning_extraction", "general_harms")

TIERS: Mapping[str, str] = MappingProxyType({"auto": "auto", "standard_only": "default"})
WIRE_TIERS = mirrored(TIERS)

DISPLAYS: Mapping[str, str] = MappingProxyType({"omitted": "none", "summarized": "auto", "updates": "updates"})
WIRE_DISPLAYS = mirrored(DISPLAYS)

ERRORS: Mapping[str, tuple[str, int]] = MappingProxyType(
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
WIRE_ERRORS: Mapping[str, tuple[str, int]] = MappingProxyType(
    {kind: (word, status) for word, (kind, status) in ERRORS.items()}
    | {
        "context": ("invalid_request_error", 400),
        "unprocessable": ("invalid_request_error", 400),
        "timeout": ("timeout_error", 408),
        "quota": ("rate_limit_error", 429),
        "cancelled": ("api_error", 499),
        "upstream": ("api_error", 502),
    }
)

OVERFLOWS = ("prompt is too long", "exceed context limit", "context window", "input is too long")
"""How the wire words a prompt that does not fit; it has no code of its own for that."""
OVERFLOW = OVERFLOWS[0]

BILLING = "x-anthropic-billing-header:"
"""A line that one agent puts first into its instructions; it changes with every call and means nothing to others."""

RAW = "_raw"
"""Arguments that are no JSON object stand under this key."""
