"""The name of the protocol, the keys it knows, and the tables that reader and writer share.

From the service model `bedrock-runtime` 2023-09-30 in botocore 1.44.3 (November 2026), unless something else is said.
"""

from __future__ import annotations

from collections.abc import Mapping

from toolwire.core.ir import FinishKind, Role
from toolwire.core.json_values import Object
from toolwire.core.provenance import OriginChecks

NAME = "bedrock-converse"


def key_set(names: str) -> frozenset[str]:
    return frozenset(names.split())


# --- known keys -----------------------------------------------------------------------------------------------------

REQUEST_KEYS = key_set(
    """messages system inferenceConfig toolConfig additionalModelRequestFields additionalModelResponseFieldPaths
    outputConfig requestMetadata serviceTier"""
)
TURN_KEYS = key_set("role content")
INFERENCE_KEYS = key_set("maxTokens temperature topP stopSequences")
TOOL_CONFIG_KEYS = key_set("tools toolChoice")
OUTPUT_CONFIG_KEYS = key_set("textFormat effort")
TEXT_FORMAT_KEYS = key_set("type structure")
JSON_SCHEMA_KEYS = key_set("schema name description")
TIER_KEYS = key_set("type")
MODEL_FIELDS = key_set("thinking top_k reasoning_effort reasoningConfig inferenceConfig tool_choice")
"""Members of `additionalModelRequestFields` that are read: of Claude, gpt-oss and Nova."""
FREE_MODEL_FIELDS = MODEL_FIELDS | key_set(
    """reasoning_config anthropic_beta anthropic_version output_config output_format context_management cache_control
    temperature top_p min_p k p stop stop_sequences seed frequency_penalty presence_penalty repetition_penalty logprobs
    top_logprobs max_tokens max_completion_tokens max_new_tokens max_gen_len response_format chat_template_kwargs
    enable_thinking safe_prompt preamble safety_mode citation_quality metadata user documents search_queries_only
    prompt_truncation raw_prompting return_prompt logit_bias parallel_tool_calls verbosity"""
)
"""Those that cost nothing but tokens: of all models on Bedrock (its user guide, "Inference request parameters", and the
parameters of Claude, November 2026)."""

CALL_KEYS = key_set("toolUseId name input type")
RESULT_KEYS = key_set("toolUseId content status type")
REASONING_TEXT_KEYS = key_set("text signature")
MEDIA_KEYS = key_set("format source")
DOCUMENT_KEYS = key_set("format name source")
SEARCH_RESULT_KEYS = key_set("source title content")
CITED_KEYS = key_set("content citations")
CITATION_KEYS = key_set("title sourceContent location source")
CACHE_POINT_KEYS = key_set("type ttl")
TOOL_KEYS = key_set("name description inputSchema strict")

RESPONSE_KEYS = key_set("output stopReason usage metrics additionalModelResponseFields trace serviceTier p")
USAGE_KEYS = key_set(
    """inputTokens outputTokens totalTokens cacheReadInputTokens cacheWriteInputTokens cacheDetails
    cacheReadInputTokenCount cacheWriteInputTokenCount"""
)
"""The last two repeat others under the name of an older schema."""

# --- values ---------------------------------------------------------------------------------------------------------

ROLES: Mapping[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
WIRE_ROLES: Mapping[Role, str] = {
    "user": "user",
    "assistant": "assistant",
    "system": "user",
    "developer": "user",
    "tool": "user",
}
"""The role `system` is in the schema, and was refused by the service in September 2026 (litellm#41082)."""

KIND_BY_STOP_REASON: Mapping[str, FinishKind] = {
    "end_turn": "stop",
    "tool_use": "calls",
    "max_tokens": "length",
    "stop_sequence": "sequence",
    "content_filtered": "filter",
    "guardrail_intervened": "filter",
    "malformed_tool_use": "malformed",
    "malformed_model_output": "malformed",
    "model_context_window_exceeded": "context",
}
"""The first reason of a kind is the one that is written."""
COARSER_FINISH_KINDS: Mapping[FinishKind, FinishKind] = {"refusal": "filter", "pause": "stop", "other": "stop"}
"""Kinds that Converse has no stop reason for, and the kind they are written as."""
REPORTED_FINISH_KINDS = COARSER_FINISH_KINDS.keys() - {"refusal"}
"""Those of them that are reported: a filtered answer and a refusal mean the same to an agent."""
_REASON_BY_EXACT_KIND = {kind: reason for reason, kind in reversed([*KIND_BY_STOP_REASON.items()])}
STOP_REASON_BY_KIND: Mapping[FinishKind, str] = _REASON_BY_EXACT_KIND | {
    kind: _REASON_BY_EXACT_KIND[coarser] for kind, coarser in COARSER_FINISH_KINDS.items()
}

IMAGE_FORMATS: Mapping[str, str] = {name: f"image/{name}" for name in ("png", "jpeg", "gif", "webp")}
DOCUMENT_FORMATS: Mapping[str, str] = {
    "pdf": "application/pdf",
    "csv": "text/csv",
    "doc": "application/msword",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "xls": "application/vnd.ms-excel",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "html": "text/html",
    "txt": "text/plain",
    "md": "text/markdown",
}
VIDEO_FORMATS: Mapping[str, str] = {
    "mp4": "video/mp4",
    "mov": "video/quicktime",
    "mkv": "video/x-matroska",
    "webm": "video/webm",
    "flv": "video/x-flv",
    "mpeg": "video/mpeg",
    "mpg": "video/mpeg",
    "wmv": "video/x-ms-wmv",
    "three_gp": "video/3gpp",
}
AUDIO_FORMATS: Mapping[str, str] = {
    "mp3": "audio/mpeg",
    "wav": "audio/wav",
    "opus": "audio/opus",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "mp4": "audio/mp4",
    "ogg": "audio/ogg",
    "mkv": "audio/x-matroska",
    "mka": "audio/x-matroska",
    "x-aac": "audio/x-aac",
    "m4a": "audio/x-m4a",
    "mpeg": "audio/mpeg",
    "mpga": "audio/mpeg",
    "pcm": "audio/L16",
    "webm": "audio/webm",
}
FORMATS: Mapping[str, Mapping[str, str]] = {
    "image": IMAGE_FORMATS,
    "document": DOCUMENT_FORMATS,
    "video": VIDEO_FORMATS,
    "audio": AUDIO_FORMATS,
}
"""The formats of each kind of block, with their media types."""
MEDIA_BLOCKS: Mapping[str, str] = {"image": "image", "file": "document", "video": "video", "audio": "audio"}
"""The kind of block for each kind of media (`ir.Media.kind`)."""
MEDIA_KINDS: Mapping[str, str] = {block: kind for kind, block in MEDIA_BLOCKS.items()}

PROVIDER_TOOL_BY_NAME: Mapping[str, str] = {"nova_grounding": "web_search"}
"""The tools that a model's provider runs (`systemTool`), and their common names."""
NAME_BY_PROVIDER_TOOL: Mapping[str, str] = {tool: name for name, tool in PROVIDER_TOOL_BY_NAME.items()}
PROVIDER_RESULT_TYPES: Mapping[str, str] = {f"{name}_result": tool for name, tool in PROVIDER_TOOL_BY_NAME.items()}

SERVICE_TIERS = key_set("priority default flex reserved")

RAW_ARGUMENTS_KEY = "_raw"
"""The key under which arguments are written that are not a JSON object, because `input` must be one."""


# --- origins --------------------------------------------------------------------------------------------------------

_ORIGINS = OriginChecks(NAME)
intact_wire, is_own, is_foreign = _ORIGINS.intact_wire, _ORIGINS.is_own, _ORIGINS.is_foreign
is_own_seal, unknown_keys = _ORIGINS.is_own_seal, _ORIGINS.unknown_keys


def own_block(origin: object, member: str) -> Object:
    """The object that a block of this type was read from; {} for a node that was read from something else."""
    wire = getattr(origin, "wire", None) if is_own(origin) else None  # type: ignore[arg-type]
    inner = wire.get(member) if isinstance(wire, dict) else None
    return inner if isinstance(inner, dict) else {}
