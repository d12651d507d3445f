"""Which events of the stream repeat what others say, and which keys events have."""

from __future__ import annotations

_PROGRESS = {
    "mcp_call": ("in_progress", "completed", "failed"),
    "mcp_list_tools": ("in_progress", "completed", "failed"),
    "web_search_call": ("in_progress", "searching", "completed"),
    "file_search_call": ("in_progress", "searching", "completed"),
    "code_interpreter_call": ("in_progress", "interpreting", "completed"),
    "image_generation_call": ("in_progress", "generating", "completed", "partial_image"),
    "mcp_call_arguments": ("delta", "done"),
    "code_interpreter_call_code": ("delta", "done"),
    "shell_call_command": ("added", "delta", "done"),
    "shell_call_output_content": ("delta", "done"),
    "apply_patch_call_operation_diff": ("delta", "done"),
    "reasoning_summary_part": ("added", "done"),
    "compaction": ("compacting",),
    "output_item": ("added", "done"),
    "content_part": ("added", "done"),
    "output_text": ("delta", "done"),
    "refusal": ("delta", "done"),
    "function_call_arguments": ("delta", "done"),
    "custom_tool_call_input": ("delta", "done"),
    "reasoning_summary_text": ("delta", "done"),
    "reasoning_text": ("delta", "done"),
    "reasoning": ("delta", "done"),
}

BEGUN = {item: ends[:2] for item, ends in _PROGRESS.items() if len(ends) > 2 and item.endswith("_call")}
"""What is said of an item before it is completed."""

QUIET = frozenset(
    {f"response.{stem}.{end}" for stem, ends in _PROGRESS.items() for end in ends}
    | {"response.created", "response.queued", "response.in_progress"}
)
"""Events that say nothing which the finished item, or an event before, does not say too."""

SILENT_KEYS = frozenset({"type", "sequence_number"})
"""A keepalive with no more than these is empty."""

EVENT_KEYS = frozenset(
    {
        "type",
        "sequence_number",
        "response",
        "output_index",
        "item",
        "item_id",
        "content_index",
        "summary_index",
        "annotation_index",
        "command_index",
        "partial_image_index",
        "part",
        "delta",
        "text",
        "refusal",
        "arguments",
        "name",
        "input",
        "annotation",
        "command",
        "code",
        "diff",
        "output",
        "partial_image_b64",
        "size",
        "quality",
        "background",
        "output_format",
        "message",
        "param",
        "error",
        "status",
        "stream_id",
        "logprobs",
        "obfuscation",
    }
)
"""Keys that some event has; others are strays."""
