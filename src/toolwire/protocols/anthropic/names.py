"""The name of the protocol, the keys it knows, and the tables that reader and writer share."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeGuard

from toolwire.core.ir import FinishKind, Origin, Role, Seal
from toolwire.core.json_values import Object

NAME = "anthropic"


def key_set(names: str) -> frozenset[str]:
    return frozenset(names.split())


def invert_table(table: Mapping[str, str]) -> Mapping[str, str]:
    """The table from right to left; the first of several rows wins."""
    return MappingProxyType({right: left for left, right in reversed(list(table.items()))})


# --- known keys -----------------------------------------------------------------------------------------------------

STRUCTURE_KEYS = key_set("model max_tokens messages system tools tool_choice stream")
REQUEST_KEYS = STRUCTURE_KEYS | key_set(
    """thinking output_config output_format stop_sequences metadata service_tier cache_control temperature top_p
    top_k"""
)
TURN_KEYS = key_set("role content")
METADATA_KEYS = key_set("user_id")
OUTPUT_CONFIG_KEYS = key_set("effort format")
THINKING_KEYS = key_set("type budget_tokens display")
FORMAT_KEYS = key_set("type schema")
TOOL_CHOICE_KEYS = key_set("type name disable_parallel_tool_use")
CACHE_CONTROL_KEYS = key_set("type ttl")

TEXT_KEYS = key_set("type text citations cache_control")
THINKING_BLOCK_KEYS = key_set("type thinking signature")
REDACTED_THINKING_KEYS = key_set("type data")
TOOL_USE_KEYS = key_set("type id name input cache_control")
TOOL_RESULT_KEYS = key_set("type tool_use_id content is_error cache_control")
TOOL_REFERENCE_KEYS = key_set("type tool_name cache_control")
SEARCH_RESULT_KEYS = key_set("type source title content cache_control")
IMAGE_KEYS = key_set("type source cache_control")
DOCUMENT_KEYS = key_set("type source title cache_control")
COMPACTION_KEYS = key_set("type content encrypted_content")
PROVIDER_RESULT_KEYS = key_set("type tool_use_id content")
SOURCE_KEYS = key_set("type url title")

TOOL_KEYS = key_set("type name description input_schema strict defer_loading cache_control")
CLIENT_TOOL_KEYS = key_set("type name strict defer_loading cache_control")
PROVIDER_TOOL_KEYS = key_set("type name max_uses allowed_domains blocked_domains user_location cache_control")
LOCATION_KEYS = key_set("type city region country timezone")

MESSAGE_KEYS = key_set("id type role model content stop_reason stop_sequence stop_details usage")
STOP_DETAILS_KEYS = key_set("type category explanation")
USAGE_KEYS = key_set(
    "input_tokens output_tokens cache_creation_input_tokens cache_read_input_tokens output_tokens_details"
)
USAGE_DETAILS_KEYS = key_set("thinking_tokens")
ERROR_BODY_KEYS = key_set("type error request_id")

CITATION_KEYS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "web_search_result_location": key_set("type url title cited_text"),
        "search_result_location": key_set("type source title cited_text"),
    }
)
OTHER_CITATION_KEYS = key_set("type document_title cited_text")

# --- values ---------------------------------------------------------------------------------------------------------

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
    }
)
"""Anthropic's stop reasons that stand for a kind of finish, in both directions."""

KIND_BY_STOP_REASON: Mapping[str, FinishKind] = MappingProxyType({**STOP_REASONS, "compaction": "other"})
"""Every stop reason that is read."""

COARSER_FINISH_KINDS: Mapping[FinishKind, FinishKind] = MappingProxyType(
    {
        "filter": "refusal",
        # Agents neither run calls nor take the answer as complete after `refusal`.
        "malformed": "refusal",
        "other": "stop",
    }
)
"""Kinds that Anthropic has no stop reason for, and the kind they are written as."""
REPORTED_FINISH_KINDS = COARSER_FINISH_KINDS.keys() - {"filter"}
"""Those of them that are reported: a filtered answer and a refusal mean the same to an agent."""

_REASON_BY_EXACT_KIND = {kind: reason for reason, kind in STOP_REASONS.items()}
STOP_REASON_BY_KIND: Mapping[FinishKind, str] = MappingProxyType(
    _REASON_BY_EXACT_KIND | {kind: _REASON_BY_EXACT_KIND[coarser] for kind, coarser in COARSER_FINISH_KINDS.items()}
)
"""The stop reason that is written for each kind."""

REFUSAL_CATEGORIES = key_set("cyber bio frontier_llm reasoning_extraction general_harms")

SERVICE_TIERS: Mapping[str, str] = MappingProxyType({"auto": "auto", "standard_only": "default"})
WIRE_SERVICE_TIERS = invert_table(SERVICE_TIERS)

THINKING_DISPLAYS: Mapping[str, str] = MappingProxyType({"omitted": "none", "summarized": "auto", "updates": "updates"})
WIRE_THINKING_DISPLAYS = invert_table(THINKING_DISPLAYS)

UNKNOWN_MODEL = "unknown"
"""Written if the model's name is unknown: Anthropic's SDKs require one."""

BILLING_HEADER_PREFIX = "x-anthropic-billing-header:"
"""Claude Code begins its system prompt with this line. It changes with every call and means nothing to others."""

RAW_ARGUMENTS_KEY = "_raw"
"""The key under which arguments are written that are not a JSON object, because `input` must be one."""


# --- origins --------------------------------------------------------------------------------------------------------


def intact_wire(origin: Origin | None) -> Object | None:
    """The JSON object of a node that was read from this protocol and has not been changed since."""
    if origin is None or origin.protocol != NAME or not origin.intact:
        return None
    return origin.wire if isinstance(origin.wire, dict) else None


def is_own(origin: Origin | None) -> TypeGuard[Origin]:
    """Was the node read from this protocol?"""
    return origin is not None and origin.protocol == NAME


def is_foreign(origin: Origin | None) -> bool:
    """Was the node read from another protocol? One without an origin was made by Toolwire's caller."""
    return origin is not None and origin.protocol != NAME


def own_seal_value(seal: Seal | None) -> str | None:
    """The value of a seal that Anthropic made."""
    if seal is None or not (seal.maker == NAME or seal.maker.startswith(f"{NAME}/")):
        return None
    return seal.value
