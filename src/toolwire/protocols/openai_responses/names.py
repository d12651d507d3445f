"""The words of Responses as tables: its name, the keys it knows, types of calls, finish reasons and stream events.

Source: the types of the Python SDK `openai` 3.49.0 and OpenAI's OpenAPI document of 2026-08-21, looked up in November
2026."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Raw, Struct

from toolwire.core.ir import FinishKind, Role
from toolwire.core.json_values import Json
from toolwire.core.provenance import OriginChecks

NAME = "openai-responses"

ROLES: Mapping[str, Role] = {"user": "user", "assistant": "assistant", "system": "system", "developer": "developer"}


class CallShape(Struct, frozen=True):
    """How one kind of client-run call is written: its item, the item of its result, and where its arguments are."""

    kind: str
    item_type: str
    output_type: str
    id_prefix: str
    payload_key: str
    known_keys: frozenset[str]
    event: str
    """The stem of the events that stream the payload if it is text; "" if it is an object."""
    name: str
    """The tool's name, where its calls have none."""
    needs_id: bool


def _make_shape(
    kind: str, item_type: str, id_prefix: str, payload_key: str, *keys: str, event: str = "", needs_id: bool = False
) -> CallShape:
    output_type = "tool_search_output" if kind == "search" else f"{item_type}_output"
    name = "" if event else "tool_search" if kind == "search" else kind
    known = frozenset({"type", "id", "call_id", "status", payload_key, "async_", *keys})
    return CallShape(kind, item_type, output_type, id_prefix, payload_key, known, event, name, needs_id)


_NAMED = ("name", "namespace", "async")
_CALL_SHAPES = (
    _make_shape("function", "function_call", "fc_", "arguments", *_NAMED, event="response.function_call_arguments"),
    _make_shape("custom", "custom_tool_call", "ctc_", "input", *_NAMED, event="response.custom_tool_call_input"),
    _make_shape("search", "tool_search_call", "tsc_", "arguments", "execution"),
    _make_shape("local_shell", "local_shell_call", "lsh_", "action", needs_id=True),
    _make_shape("shell", "shell_call", "sh_", "action"),
    _make_shape("apply_patch", "apply_patch_call", "apc_", "operation"),
    _make_shape("computer", "computer_call", "cu_", "action", "actions", needs_id=True),
)

SHAPE_BY_KIND: Mapping[str, CallShape] = {shape.kind: shape for shape in _CALL_SHAPES}
SHAPE_BY_CALL_TYPE: Mapping[str, CallShape] = {shape.item_type: shape for shape in _CALL_SHAPES}
SHAPE_BY_OUTPUT_TYPE: Mapping[str, CallShape] = {shape.output_type: shape for shape in _CALL_SHAPES}

PROVIDER_ITEMS: Mapping[str, tuple[str, str]] = {
    "web_search_call": ("web_search", "ws_"),
    "code_interpreter_call": ("code_execution", "ci_"),
    "file_search_call": ("file_search", "fs_"),
}
"""The items of OpenAI's own tools: the tool, and the prefix of the item's id."""

PROVIDER_ITEM_BY_TOOL: Mapping[str, tuple[str, str]] = {
    tool: (item, prefix) for item, (tool, prefix) in PROVIDER_ITEMS.items()
} | {"web_fetch": ("web_search_call", "ws_")}
"""The type of a tool's item, and the prefix of its id. OpenAI's web search also fetches pages."""

PROVIDER_TOOL_KINDS: Mapping[str, str] = {
    "web_search_preview_2025_03_11": "web_search",
    "web_search_preview": "web_search",
    "web_search_2025_08_26": "web_search",
    "web_search": "web_search",
    "code_interpreter": "code_execution",
    "image_generation": "image_generation",
}
"""The types of tools that OpenAI runs. Of several types for one tool the last is written."""
PROVIDER_TOOL_TYPES: Mapping[str, str] = {tool: kind for kind, tool in PROVIDER_TOOL_KINDS.items()}

CLIENT_ITEM_TYPES = frozenset(
    {"mcp_approval_response", "item_reference", "compaction_trigger", "configuration_update", "compaction"}
)
"""Opaque items that the client sends; all other unknown items are the model's."""
INCLUDE_ENCRYPTED_REASONING = "reasoning.encrypted_content"
CONTENT_KIND_PREFIX = "content."
"""The prefix of the kind of an Opaque that is part of a message, not an item."""

# --- known keys -----------------------------------------------------------------------------------------------------

RESPONSE_MESSAGE_KEYS = frozenset({"type", "role", "content"})

TURN_SOURCES = ("previous_response_id", "conversation", "prompt")
"""Keys of a request that name turns which OpenAI has. Without them it needs `input`."""
REQUEST_KEYS = frozenset(
    """model input instructions tools tool_choice stream parallel_tool_calls max_output_tokens temperature top_p
    top_logprobs service_tier store metadata safety_identifier prompt_cache_key reasoning text""".split()
)

RESPONSE_DEFAULTS: Mapping[str, Json] = {
    "id": "",
    "object": "response",
    "created_at": 0,
    "status": "in_progress",
    "background": False,
    "completed_at": None,
    "error": None,
    "frequency_penalty": Raw(b"0.0"),
    "incomplete_details": None,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "model": "",
    "moderation": None,
    "output": (),
    "parallel_tool_calls": True,
    "presence_penalty": Raw(b"0.0"),
    "previous_response_id": None,
    "prompt_cache_key": None,
    "prompt_cache_retention": None,
    "reasoning": Raw(b'{"effort":null,"summary":null}'),
    "safety_identifier": None,
    "service_tier": "default",
    "store": True,
    "temperature": Raw(b"1.0"),
    "text": Raw(b'{"format":{"type":"text"},"verbosity":"medium"}'),
    "tool_choice": "auto",
    "tools": (),
    "top_logprobs": 0,
    "top_p": Raw(b"1.0"),
    "truncation": "disabled",
    "usage": None,
    "metadata": Raw(b"{}"),
}
"""Every key that some client insists on, with its default. Values that take time to encode are encoded already."""


ECHOED_KEYS = frozenset(
    """background instructions max_output_tokens max_tool_calls metadata parallel_tool_calls previous_response_id
    prompt_cache_key prompt_cache_retention reasoning safety_identifier store temperature text tool_choice tools
    top_logprobs top_p truncation user""".split()
)
"""Keys of an answer that repeat the request's."""

RESPONSE_KEYS = ECHOED_KEYS.union(RESPONSE_DEFAULTS, ("output_text", "conversation", "prompt")) - {"moderation"}

# --- finish reasons -------------------------------------------------------------------------------------------------

INCOMPLETE_REASONS: Mapping[str, FinishKind] = {
    "max_tokens": "length",
    "max_output_tokens": "length",
    "content_filter": "filter",
}
"""Why an answer is incomplete. Of two words for one kind the last is written; an unknown reason is read as "length"."""

COARSER_FINISH_KINDS: Mapping[FinishKind, FinishKind] = {
    "sequence": "stop",
    "pause": "length",
    "context": "length",
    "refusal": "filter",
}
"""Kinds that this protocol has no word for, and the kind they are written as."""

_EXACT_FINISH_STATUSES: dict[FinishKind, tuple[str, str]] = {
    "stop": ("completed", ""),
    "calls": ("completed", ""),
    **{kind: ("incomplete", reason) for reason, kind in INCOMPLETE_REASONS.items()},
}
FINISH_STATUSES: Mapping[FinishKind, tuple[str, str]] = {
    **_EXACT_FINISH_STATUSES,
    **{kind: _EXACT_FINISH_STATUSES[coarser] for kind, coarser in COARSER_FINISH_KINDS.items()},
    "malformed": ("failed", "server_error"),
    "other": ("incomplete", "other"),
}
"""The status of an answer, and the reason or error code beside it, for each finish kind."""
INCOMPLETE_FINISH_KINDS = frozenset(kind for kind, (status, _) in FINISH_STATUSES.items() if status == "incomplete")
"""Kinds that leave the last item incomplete."""
EXACT_FINISH_KINDS = frozenset(_EXACT_FINISH_STATUSES)

UNFINISHED_STATUSES = ("queued", "in_progress")
"""The statuses of a background response, in their order."""
COMPLETED_STATUSES = frozenset({"completed", "complete"})


# --- stream events --------------------------------------------------------------------------------------------------

_ITEM_EVENTS = {
    "mcp_call": ("in_progress", "completed", "failed"),
    "mcp_list_tools": ("in_progress", "completed", "failed"),
    "web_search_call": ("in_progress", "searching", "completed"),
    "file_search_call": ("in_progress", "searching", "completed"),
    "code_interpreter_call": ("in_progress", "interpreting", "completed"),
    "image_generation_call": ("in_progress", "generating", "completed", "partial_image"),
    "shell_call_command": ("added", "delta", "done"),
    "compaction": ("compacting",),
    **dict.fromkeys(("reasoning_summary_part", "output_item", "content_part"), ("added", "done")),
    **dict.fromkeys(
        """mcp_call_arguments code_interpreter_call_code shell_call_output_content apply_patch_call_operation_diff
        output_text refusal function_call_arguments custom_tool_call_input reasoning_summary_text reasoning_text
        reasoning""".split(),
        ("delta", "done"),
    ),
}

PROGRESS_STEPS = {item: ends[:2] for item, ends in _ITEM_EVENTS.items() if len(ends) > 2 and item.endswith("_call")}
"""The progress events of an item, before it is completed."""

REDUNDANT_EVENTS = frozenset(
    {f"response.{stem}.{end}" for stem, ends in _ITEM_EVENTS.items() for end in ends}
    | {"response.created", "response.queued", "response.in_progress"}
)
"""Events without information that is not also in the finished item or in an earlier event."""

_ORIGINS = OriginChecks(NAME)
intact_wire, is_own, is_own_seal = _ORIGINS.intact_wire, _ORIGINS.is_own, _ORIGINS.is_own_seal
