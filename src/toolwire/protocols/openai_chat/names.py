"""The words of Chat Completions as tables: its name, the keys it knows, roles, finish reasons and kinds of content.

Source: the types of the Python SDK `openai` 3.49.0 and OpenAI's OpenAPI document of 2026-08-21, looked up in November
2026; what compatible servers do differently is from recorded traffic and the conformance cases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from msgspec import Struct

from toolwire.core.ir import FinishKind, Role
from toolwire.core.json_values import Json, Object, Path, get_bool, get_int, get_number, get_object, get_text
from toolwire.core.provenance import OriginChecks

NAME = "openai-chat"
DONE = b"[DONE]"

# --- known keys -----------------------------------------------------------------------------------------------------

REQUEST_KEYS = frozenset(
    """model messages tools tool_choice parallel_tool_calls functions function_call response_format stream
    stream_options max_completion_tokens max_tokens reasoning_effort verbosity temperature top_p n stop seed
    frequency_penalty presence_penalty logprobs top_logprobs web_search_options prompt_cache_key safety_identifier user
    service_tier store metadata""".split()
)
STREAM_OPTIONS_KEYS = frozenset({"include_usage"})
ASSISTANT_KEYS = frozenset(
    """role content name refusal tool_calls function_call annotations images reasoning_content reasoning
    reasoning_details""".split()
)
REASONING_KEYS = ("reasoning_content", "reasoning", "reasoning_details")
MESSAGE_KEYS_BY_ROLE = {
    **dict.fromkeys(("system", "developer", "user"), frozenset({"role", "content", "name"})),
    "assistant": ASSISTANT_KEYS,
    "tool": frozenset({"role", "content", "tool_call_id", "name"}),
}
CACHE_KEYS = ("prompt_cache_breakpoint", "cache_control")
TEXT_KEYS = frozenset({"type", "text", *CACHE_KEYS})
REFUSAL_KEYS = frozenset({"type", "refusal"})
MEDIA_KEYS: Mapping[str, frozenset[str]] = {
    "image_url": frozenset({"url", "detail"}),
    "video_url": frozenset({"url"}),
    "input_audio": frozenset({"data", "format"}),
    "file": frozenset({"file_id", "file_data", "filename"}),
}
CALL_KEYS = frozenset({"id", "type", "function", "custom", "index", "extra_content"})
TOOL_KEYS = frozenset({"type", "function", "custom", "cache_control"})


class ToolShape(Struct, frozen=True):
    """How one kind of tool is declared and called; declaration and call are under a key named like the kind."""

    payload_key: str
    call_keys: frozenset[str]
    tool_keys: frozenset[str]


TOOL_SHAPES: Mapping[str, ToolShape] = {
    "function": ToolShape(
        "arguments", frozenset({"name", "arguments"}), frozenset({"name", "description", "parameters", "strict"})
    ),
    "custom": ToolShape("input", frozenset({"name", "input"}), frozenset({"name", "description", "format"})),
}
"""The kinds of tools that Chat has."""
WEB_SEARCH_KEYS = frozenset({"search_context_size", "user_location"})
JSON_SCHEMA_KEYS = frozenset({"name", "description", "schema", "strict"})
CITATION_KEYS = frozenset({"start_index", "end_index", "url", "title", "content"})
RESPONSE_KEYS = frozenset({"id", "object", "created", "model", "choices", "usage", "error"})
CHUNK_KEYS = RESPONSE_KEYS | {"obfuscation"}
CHOICE_KEYS = frozenset({"index", "message", "finish_reason", "logprobs"})
LOGPROBS_KEYS = frozenset({"content", "refusal"})
CHUNK_CHOICE_KEYS = frozenset({"index", "delta", "message", "finish_reason", "stop_reason", "logprobs"})
DELTA_KEYS = ASSISTANT_KEYS - {"name"}
USAGE_KEYS = ("prompt_tokens", "completion_tokens", "total_tokens")

# --- values ---------------------------------------------------------------------------------------------------------

ROLES: Mapping[str, Role] = {
    "system": "system", "developer": "developer", "user": "user", "assistant": "assistant", "tool": "tool",
    "function": "tool",
}  # fmt: skip

FINISH_REASONS: Mapping[str, FinishKind] = {
    "stop": "stop", "length": "length", "function_call": "calls", "tool_calls": "calls", "content_filter": "filter",
}  # fmt: skip
"""OpenAI's finish reasons. Of two words for one kind the last is written."""
LEGACY_CALLS_REASON = "function_call"
"""Written in place of `tool_calls` for clients that send the old `functions`."""

KIND_BY_FINISH_REASON: Mapping[str, FinishKind] = {
    **FINISH_REASONS,
    # Words of compatible servers: Together, Mistral, Zhipu and others.
    "eos": "stop", "end_turn": "stop", "max_tokens": "length", "model_length": "length", "tool_use": "calls",
    "sensitive": "filter", "safety": "filter",
}  # fmt: skip
"""Every finish reason that is read."""

FAILED_FINISH_REASONS = frozenset({"error", "abort", "insufficient_system_resource", "network_error"})
"""Words for an answer that broke off: of OpenRouter, vLLM and SGLang, DeepSeek, Zhipu."""

COARSER_FINISH_KINDS: Mapping[FinishKind, FinishKind] = {
    "refusal": "filter", "sequence": "stop", "pause": "length", "context": "length", "malformed": "stop",
    "other": "stop",
}  # fmt: skip
"""Kinds that Chat has no finish reason for, and the kind they are written as."""

_REASON_BY_EXACT_KIND = {kind: reason for reason, kind in FINISH_REASONS.items()}
FINISH_REASON_BY_KIND: Mapping[FinishKind, str] = _REASON_BY_EXACT_KIND | {
    kind: _REASON_BY_EXACT_KIND[coarser] for kind, coarser in COARSER_FINISH_KINDS.items()
}
"""The finish reason that is written for each kind."""

CUT_FINISH_KINDS = frozenset({"length", "filter"})
"""Kinds after which the last call may be incomplete."""

CHOICE_MODES: Mapping[str, str] = {"none": "none", "auto": "auto", "required": "required", "any": "required"}

FORMAT_KINDS: Mapping[str, Literal["text", "json", "schema"]] = {
    "text": "text", "json_object": "json", "json_schema": "schema",
}  # fmt: skip
FORMAT_TYPES = {kind: word for word, kind in FORMAT_KINDS.items()}

AUDIO_FORMATS: Mapping[str, str] = {
    "audio/wav": "wav", "audio/x-wav": "wav", "audio/wave": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3",
}  # fmt: skip
AUDIO_MIMES: Mapping[str, str] = {"wav": "audio/wav", "mp3": "audio/mpeg"}

SEAL_KEY_BY_VENDOR: Mapping[str, str] = {"google": "thought_signature"}
"""Vendors that put a seal into a call's `extra_content`, and the key of the seal."""

FieldReader = Callable[[Object, str, Path], Json]

COPIED_SETTINGS: Mapping[str, tuple[str, FieldReader]] = {
    "temperature": ("temperature", get_number),
    "top_p": ("top_p", get_number),
    "seed": ("seed", get_int),
    "count": ("n", get_int),
    "presence_penalty": ("presence_penalty", get_number),
    "frequency_penalty": ("frequency_penalty", get_number),
    "logprobs": ("logprobs", get_bool),
    "top_logprobs": ("top_logprobs", get_int),
    "parallel": ("parallel_tool_calls", get_bool),
    "verbosity": ("verbosity", get_text),
    "metadata": ("metadata", get_object),
    "tier": ("service_tier", get_text),
    "store": ("store", get_bool),
    "cache_key": ("prompt_cache_key", get_text),
}
"""Settings with one key each: by the field of `Settings`, the key and its reader."""

SUPPORTED_SETTINGS = frozenset((*COPIED_SETTINGS, "max_tokens", "stop", "thinking", "format", "user", "stream_usage"))

MAX_TOKENS_KEYS = ("max_completion_tokens", "max_tokens")
USER_KEYS = ("safety_identifier", "user")


_ORIGINS = OriginChecks(NAME)
intact_wire, is_own = _ORIGINS.intact_wire, _ORIGINS.is_own
is_own_seal, unknown_keys = _ORIGINS.is_own_seal, _ORIGINS.unknown_keys
