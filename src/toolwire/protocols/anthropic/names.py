"""The name of the protocol, the keys it knows, and the tables that reader and writer share.

Source: the types of the Python SDK `anthropic` 2.8.0 and Anthropic's pages (copies of 2026-08-22), looked up in
November 2026."""

from __future__ import annotations

from collections.abc import Mapping

from toolwire.core.ir import FinishKind, Role
from toolwire.core.json_values import Json, Object
from toolwire.core.provenance import OriginChecks

NAME = "anthropic"
OLD_VERSION, NEW_VERSION = "2023-06-01", "2026-10-21"
"""The values of `anthropic-version`. The old version accepts everything that the new one accepts."""
BEDROCK_VERSION, VERTEX_VERSION = "bedrock-2023-05-31", "vertex-2023-10-16"
"""`anthropic_version` in the body. SDK 2 writes `2026-10-21`, which models up to Claude 4.6 refuse; all take these."""


def key_set(names: str) -> frozenset[str]:
    return frozenset(names.split())


def invert_table(table: Mapping[str, str]) -> Mapping[str, str]:
    """The table from right to left; the first of several rows wins."""
    return {right: left for left, right in reversed(list(table.items()))}


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

_DIRECT_CALL: tuple[str, Json] = ("caller", {"type": "direct"})
ANSWER_BLOCK_DEFAULTS: Mapping[str, tuple[str, Json]] = {
    "text": ("citations", []),
    "tool_use": _DIRECT_CALL,
    "server_tool_use": _DIRECT_CALL,
    "web_search_tool_result": _DIRECT_CALL,
    "web_fetch_tool_result": _DIRECT_CALL,
}
"""The member that Anthropic's schema requires of a block of an answer, and not of one of a request (its OpenAPI
document in llm-comply 0.5.0, November 2026). Clients that check answers need them. `citations` may also be null, but
the Vercel AI SDK refuses that."""

TOOL_KEYS = key_set("type name description input_schema strict defer_loading cache_control")
CLIENT_TOOL_KEYS = key_set("type name strict defer_loading cache_control")
PROVIDER_TOOL_KEYS = key_set("type name max_uses allowed_domains blocked_domains user_location cache_control")
LOCATION_KEYS = key_set("city region country timezone")

MESSAGE_KEYS = key_set("id type role model content stop_reason stop_sequence stop_details usage")
STOP_DETAILS_KEYS = key_set("type category explanation")
USAGE_KEYS = key_set(
    "input_tokens output_tokens cache_creation_input_tokens cache_read_input_tokens output_tokens_details"
)
USAGE_DETAILS_KEYS = key_set("thinking_tokens")
ERROR_BODY_KEYS = key_set("type error request_id")

CITATION_KEYS: Mapping[str, frozenset[str]] = {
    "web_search_result_location": key_set("type url title cited_text"),
    "search_result_location": key_set("type source title cited_text"),
}
OTHER_CITATION_KEYS = key_set("type document_title cited_text")

# --- values ---------------------------------------------------------------------------------------------------------

ROLES: Mapping[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
WIRE_ROLES: Mapping[Role, str] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "user",
}

STOP_REASONS: Mapping[str, FinishKind] = {
    "end_turn": "stop",
    "max_tokens": "length",
    "stop_sequence": "sequence",
    "tool_use": "calls",
    "pause_turn": "pause",
    "refusal": "refusal",
    "model_context_window_exceeded": "context",
}
"""Anthropic's stop reasons that stand for a kind of finish, in both directions."""

KIND_BY_STOP_REASON: Mapping[str, FinishKind] = {**STOP_REASONS, "compaction": "other"}
"""Every stop reason that is read."""

COARSER_FINISH_KINDS: Mapping[FinishKind, FinishKind] = {
    "filter": "refusal",
    # Agents neither run calls nor take the answer as complete after `refusal`.
    "malformed": "refusal",
    "other": "stop",
}
"""Kinds that Anthropic has no stop reason for, and the kind they are written as."""
REPORTED_FINISH_KINDS = COARSER_FINISH_KINDS.keys() - {"filter"}
"""Those of them that are reported: a filtered answer and a refusal mean the same to an agent."""

_REASON_BY_EXACT_KIND = {kind: reason for reason, kind in STOP_REASONS.items()}
STOP_REASON_BY_KIND: Mapping[FinishKind, str] = _REASON_BY_EXACT_KIND | {
    kind: _REASON_BY_EXACT_KIND[coarser] for kind, coarser in COARSER_FINISH_KINDS.items()
}
"""The stop reason that is written for each kind."""

REFUSAL_CATEGORIES = key_set("cyber bio frontier_llm reasoning_extraction general_harms")

SERVICE_TIERS: Mapping[str, str] = {"auto": "auto", "standard_only": "default"}
WIRE_SERVICE_TIERS = invert_table(SERVICE_TIERS)

THINKING_DISPLAYS: Mapping[str, str] = {"omitted": "none", "summarized": "auto", "updates": "updates"}
WIRE_THINKING_DISPLAYS = invert_table(THINKING_DISPLAYS)

UNKNOWN_MODEL = "unknown"
"""Written if the model's name is unknown: Anthropic's SDKs require one."""

BILLING_HEADER_PREFIX = "x-anthropic-billing-header:"
"""Claude Code begins its system prompt with this line. It changes with every call and means nothing to others."""

RAW_ARGUMENTS_KEY = "_raw"
"""The key under which arguments are written that are not a JSON object, because `input` must be one."""


PROVIDER_TOOL_VERSIONS: Mapping[str, str] = {
    "web_search": "web_search_20250305",
    "web_fetch": "web_fetch_20250910",
    "code_execution": "code_execution_20250825",
}
"""The tools that Anthropic runs, each with a version that every model accepts. Other versions are read by their
prefix."""

# --- tools that Anthropic defines and the client runs -----------------------------------------------------------------


def _property(kind: str, description: str, **more: Json) -> Object:
    items = {"items": {"type": "integer"}} if kind == "array" else {}
    return {"type": kind, **items, "description": description, **more}


def _object_schema(required: tuple[str, ...], **properties: Object) -> Object:
    return {"type": "object", "properties": properties} | ({"required": [*required]} if required else {})


def _command_property(words: str) -> Object:
    return _property("string", "What to do", enum=words.split())


_FILE_PROPERTIES: Mapping[str, Object] = {
    "path": _property("string", "Absolute path of the file or directory"),
    "file_text": _property("string", "For create: the content of the new file"),
    "old_str": _property("string", "For str_replace: the text to be replaced; it must occur exactly once"),
    "new_str": _property("string", "For str_replace: the text that replaces it"),
    "insert_line": _property("integer", "For insert: the line after which the text goes, 0 for the top"),
    "insert_text": _property("string", "For insert: the text"),
    "view_range": _property("array", "For view: the first and the last line, -1 for the end"),
}
CLIENT_TOOLS: Mapping[str, tuple[str, Object]] = {
    "bash_": (
        "Runs a command in a persistent shell session.",
        _object_schema(
            (),
            command=_property("string", "The command to run"),
            restart=_property("boolean", "true starts the shell anew"),
        ),
    ),
    "text_editor_": (
        "Views, creates and edits text files.",
        _object_schema(
            ("command",), command=_command_property("view create str_replace insert undo_edit"), **_FILE_PROPERTIES
        ),
    ),
    "memory_": (
        "Keeps notes in files below /memories.",
        _object_schema(
            ("command",),
            command=_command_property("view create str_replace insert delete rename"),
            **_FILE_PROPERTIES,
            old_path=_property("string", "For rename: the present path"),
            new_path=_property("string", "For rename: the new path"),
        ),
    ),
    "computer_": (
        "Controls the screen, mouse and keyboard of a computer.",
        _object_schema(
            ("action",),
            action=_property("string", "What to do: screenshot, left_click, type, key, mouse_move, scroll, wait, …"),
            coordinate=_property("array", "x and y on the screen, in pixels"),
            start_coordinate=_property("array", "x and y where a drag begins"),
            text=_property("string", "The text to type, or the keys to press"),
            scroll_direction=_property("string", "Where to scroll", enum=["up", "down", "left", "right"]),
            scroll_amount=_property("integer", "How far to scroll"),
            duration=_property("number", "Seconds to wait or to hold a key"),
            region=_property("array", "The corners x0, y0, x1, y1 to zoom into"),
        ),
    ),
}
"""Descriptions and schemas by the prefix of the type, so that these tools can be offered to other models as
functions."""


def find_client_tool(kind: str) -> tuple[str, Object] | None:
    if kind.startswith("computer_toolset_"):
        return None
    return next((row for prefix, row in CLIENT_TOOLS.items() if kind.startswith(prefix)), None)


# --- origins --------------------------------------------------------------------------------------------------------

_ORIGINS = OriginChecks(NAME)
intact_wire, is_own, is_foreign = _ORIGINS.intact_wire, _ORIGINS.is_own, _ORIGINS.is_foreign
is_own_seal, unknown_keys = _ORIGINS.is_own_seal, _ORIGINS.unknown_keys
