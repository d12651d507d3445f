"""The words of this protocol, each table once and read in both directions."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Raw, Struct

from toolwire.ir import FinishKind, Role
from toolwire.wire import Json, Object

NAME = "openai-responses"

ROLES: Mapping[str, Role] = MappingProxyType(
    {"user": "user", "assistant": "assistant", "system": "system", "developer": "developer"}
)

NO_KEYS: frozenset[str] = frozenset()


class CallShape(Struct, frozen=True):
    """How one kind of client-run call stands on the wire: its item, its answer, and where its arguments are."""

    kind: str
    item: str
    output: str
    prefix: str
    payload: str
    is_text: bool = False
    """The payload is text (and streams); otherwise it is an object."""
    event: str = ""
    """The stem of the events that stream the payload."""
    name: str = ""
    """The name of a tool that has none on the wire."""
    needs_id: bool = False
    needs_status: bool = False
    known: frozenset[str] = NO_KEYS


def _shape(kind: str, item: str, output: str, prefix: str, payload: str, **more: Json) -> CallShape:
    known = frozenset({"type", "id", "call_id", "status", payload, "async_", *more.pop("keys", ())})
    return CallShape(kind, item, output, prefix, payload, known=known, **more)


_SHAPES = (
    _shape(
        "function",
        "function_call",
        "function_call_output",
        "fc_",
        "arguments",
        is_text=True,
        event="response.function_call_arguments",
        keys=("name", "namespace", "async"),
    ),
    _shape(
        "custom",
        "custom_tool_call",
        "custom_tool_call_output",
        "ctc_",
        "input",
        is_text=True,
        event="response.custom_tool_call_input",
        keys=("name", "namespace", "async"),
    ),
    _shape(
        "search",
        "tool_search_call",
        "tool_search_output",
        "tsc_",
        "arguments",
        name="tool_search",
        needs_status=True,
        keys=("execution",),
    ),
    _shape(
        "local_shell",
        "local_shell_call",
        "local_shell_call_output",
        "lsh_",
        "action",
        name="local_shell",
        needs_id=True,
        needs_status=True,
    ),
    _shape("shell", "shell_call", "shell_call_output", "sh_", "action", name="shell", needs_status=True),
    _shape(
        "apply_patch",
        "apply_patch_call",
        "apply_patch_call_output",
        "apc_",
        "operation",
        name="apply_patch",
        needs_status=True,
    ),
    _shape(
        "computer",
        "computer_call",
        "computer_call_output",
        "cu_",
        "action",
        name="computer",
        needs_id=True,
        needs_status=True,
        keys=("actions",),
    ),
)

CALLS: Mapping[str, CallShape] = MappingProxyType({shape.kind: shape for shape in _SHAPES})
"""By our kind."""
CALL_ITEMS: Mapping[str, CallShape] = MappingProxyType({shape.item: shape for shape in _SHAPES})
"""By the type of the call's item."""
OUTPUT_ITEMS: Mapping[str, CallShape] = MappingProxyType({shape.output: shape for shape in _SHAPES})
"""By the type of the result's item."""

KINDS = frozenset(CALLS)

HOSTED_ITEMS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "web_search_call": ("web_search", "ws_"),
        "code_interpreter_call": ("code_execution", "ci_"),
        "file_search_call": ("file_search", "fs_"),
    }
)
"""What a provider's own tool did: our name of the tool, and the prefix of the item's id."""

HOSTED_TOOLS: Mapping[str, str] = MappingProxyType(
    {
        "web_search": "web_search",
        "web_search_2025_08_26": "web_search",
        "web_search_preview": "web_search",
        "web_search_preview_2025_03_11": "web_search",
        "code_interpreter": "code_execution",
        "image_generation": "image_generation",
    }
)
TOOL_TYPES: Mapping[str, str] = MappingProxyType(
    {"web_search": "web_search", "code_execution": "code_interpreter", "image_generation": "image_generation"}
)

CLIENT_ITEMS = frozenset(
    {"mcp_approval_response", "item_reference", "compaction_trigger", "configuration_update", "compaction"}
)
"""Items that we carry whole and that the client speaks; all other unknown ones are the model's."""

RAW = "_raw"
"""Holds arguments that are no JSON object where the wire demands one."""

CONTENT = "content."
"""Marks the kind of an Opaque that is a part of a message, not an item."""

# --- known keys -----------------------------------------------------------------------------------------------------

MESSAGE = frozenset({"type", "role", "content", "phase"})
ANSWER_MESSAGE = frozenset({"type", "role", "content"})
MESSAGE_ITEM = ANSWER_MESSAGE | {"id", "status"}
REASONING = frozenset({"type", "id", "summary", "content", "encrypted_content"})
SUMMARY = frozenset({"type", "id", "encrypted_content"})
OUTPUT = frozenset({"type", "call_id", "output", "name", "namespace"})
INPUT_TEXT = frozenset({"type", "text", "prompt_cache_breakpoint"})
OUTPUT_TEXT = frozenset({"type", "text", "annotations"})
REFUSAL = frozenset({"type", "refusal"})
IMAGE = frozenset({"type", "image_url", "file_id", "detail", "prompt_cache_breakpoint"})
FILE = frozenset({"type", "file_id", "file_url", "file_data", "filename", "detail", "prompt_cache_breakpoint"})
AUDIO = frozenset({"type", "input_audio"})
URL_CITATION = frozenset({"type", "url", "title", "start_index", "end_index"})

REQUEST = frozenset(
    {
        "model",
        "input",
        "instructions",
        "tools",
        "tool_choice",
        "stream",
        "parallel_tool_calls",
        "max_output_tokens",
        "temperature",
        "top_p",
        "top_logprobs",
        "service_tier",
        "store",
        "metadata",
        "safety_identifier",
        "prompt_cache_key",
        "reasoning",
        "text",
    }
)

TEMPLATE: MappingProxyType[str, Json] = MappingProxyType(
    {
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
)
"""Every key that some client of this protocol insists on, with what it holds when nobody said otherwise. What would
cost something to spell, or to make anew for every answer, is spelled already."""


def blank() -> Object:
    """An answer of its own, of which nobody said anything yet. A copy costs a tenth of building so many keys."""
    out = TEMPLATE.copy()
    out["output"], out["tools"] = [], []
    return out


ECHOED = frozenset(
    {
        "background",
        "instructions",
        "max_output_tokens",
        "max_tool_calls",
        "metadata",
        "parallel_tool_calls",
        "previous_response_id",
        "prompt_cache_key",
        "prompt_cache_retention",
        "reasoning",
        "safety_identifier",
        "store",
        "temperature",
        "text",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
        "truncation",
        "user",
    }
)
"""Keys of an answer that repeat the request."""

RESPONSE = (frozenset(TEMPLATE) | ECHOED | {"output_text", "conversation", "prompt"}) - {"moderation"}

USAGE = frozenset({"input_tokens", "input_tokens_details", "output_tokens", "output_tokens_details", "total_tokens"})

# --- endings --------------------------------------------------------------------------------------------------------

REASONS: Mapping[str, FinishKind] = MappingProxyType(
    {"max_output_tokens": "length", "max_tokens": "length", "content_filter": "filter"}
)
"""Why an answer is incomplete; every other reason is read as "other" and keeps its word."""

UNFINISHED = frozenset({"queued", "in_progress"})
COMPLETE = frozenset({"completed", "complete"})

ENDINGS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "stop": ("completed", ""),
        "calls": ("completed", ""),
        "sequence": ("completed", ""),
        "pause": ("completed", ""),
        "length": ("incomplete", "max_output_tokens"),
        "context": ("incomplete", "max_output_tokens"),
        "filter": ("incomplete", "content_filter"),
        "refusal": ("incomplete", "content_filter"),
        "malformed": ("failed", "server_error"),
        "other": ("incomplete", "other"),
    }
)
"""Status, and the reason or error code, of each ending."""

COARSE = frozenset({"sequence", "pause", "context", "refusal", "malformed", "other"})
"""Endings that this protocol has no word of its own for."""
