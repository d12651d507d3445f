"""What OpenAI Responses refuses with 400: the body's fields, tools and their choice. Items have their own file."""

from __future__ import annotations

import re
from collections.abc import Iterator

from toolwire.conformance.strict import openai_items
from toolwire.conformance.strict.check import (
    Check,
    Json,
    Object,
    numbered,
    object_schema,
    objects,
    strict_schema,
    unknown_keys,
)

NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
KNOWN = frozenset(
    "model input instructions tools tool_choice parallel_tool_calls max_tool_calls include"
    " previous_response_id conversation store background stream stream_options reasoning text"
    " max_output_tokens temperature top_p top_logprobs truncation context_management prompt metadata"
    " moderation prompt_cache_key prompt_cache_retention prompt_cache_options service_tier"
    " safety_identifier user image access_programs client_metadata multi_agent".split()
)
INCLUDE = frozenset(
    "file_search_call.results web_search_call.results web_search_call.action.sources"
    " message.input_image.image_url computer_call_output.output.image_url code_interpreter_call.outputs"
    " reasoning.encrypted_content message.output_text.logprobs".split()
)
INSIDE = {
    "stream_options": frozenset({"include_obfuscation", "reasoning_summary_delivery"}),
    "reasoning": frozenset({"effort", "summary", "context", "mode", "generate_summary"}),
    "text": frozenset({"format", "verbosity"}),
}
COMMON = frozenset({"type", "allowed_callers", "defer_loading", "async"})
TOOLS = {
    "function": COMMON | {"name", "parameters", "strict", "description", "output_schema"},
    "custom": COMMON | {"name", "description", "format"},
    "namespace": frozenset({"type", "name", "description", "tools"}),
    "tool_search": frozenset({"type", "execution", "description", "parameters"}),
    "mcp": COMMON
    | frozenset(
        "server_label server_url connector_id tunnel_id authorization headers allowed_tools"
        " require_approval server_description".split()
    ),
    "shell": COMMON | {"environment"},
    "local_shell": COMMON,
    "apply_patch": COMMON,
    "computer": COMMON,
    "computer_use_preview": COMMON | {"display_width", "display_height", "environment"},
    "file_search": COMMON | {"vector_store_ids", "max_num_results", "filters", "ranking_options"},
    "code_interpreter": COMMON | {"container"},
    "programmatic_tool_calling": COMMON,
}
SEARCH = COMMON | frozenset(
    {"filters", "search_context_size", "user_location", "external_web_access", "search_content_types"}
)


def fields(body: Object, model: str) -> Iterator[str]:
    yield from unknown_keys(body, KNOWN)
    if not body.get("model") and not body.get("prompt"):
        yield "model: Missing required parameter"
    given = body.get("input")
    if not isinstance(given, (str, list)) and not body.get("prompt") and not body.get("previous_response_id"):
        yield "input: Missing required parameter"
    if given == [] and not body.get("previous_response_id") and not body.get("conversation"):
        yield "input: expected at least one item"
    limit = body.get("max_output_tokens")
    if isinstance(limit, int) and limit < 16:
        yield f"Invalid 'max_output_tokens': integer below minimum value. Expected >= 16, but got {limit} instead."
    for value in body.get("include") or []:
        if value not in INCLUDE:
            yield f"include: Invalid value: {value!r}"
    for field, known in INSIDE.items():
        yield from unknown_keys(body.get(field) or {}, known, f"{field}.")
    if body.get("previous_response_id") and body.get("conversation"):
        yield "previous_response_id and conversation are exclusive"


def tools(body: Object, model: str) -> Iterator[str]:
    given = [(f"tools[{index}]", tool) for index, tool in numbered(body.get("tools"))]
    for index, item in numbered(body.get("input")):
        if item.get("type") in ("additional_tools", "tool_search_output"):
            given += [(f"input[{index}].tools[{number}]", tool) for number, tool in numbered(item.get("tools"))]
    for at, tool in given:
        yield from _tool(tool, at)
        if tool.get("type") == "namespace":
            if not isinstance(tool.get("description"), str):  # may be empty: so is the one of `functions` in Codex
                yield f"{at}.description: Missing required parameter"
            for number, child in numbered(tool.get("tools")):
                yield from _tool(child, f"{at}.tools[{number}]")
    yield from _unique(objects(body.get("tools")))


def _tool(tool: Object, at: str) -> Iterator[str]:
    kind = str(tool.get("type"))
    if kind.startswith("web_search"):
        yield from unknown_keys(tool, SEARCH, f"{at}.")
        return
    if kind == "image_generation":
        return
    if kind not in TOOLS:
        yield f"{at}.type: Invalid value: {kind!r}"
        return
    yield from unknown_keys(tool, TOOLS[kind], f"{at}.")
    if kind in ("function", "custom", "namespace"):
        name = tool.get("name")
        if not isinstance(name, str) or not NAME.fullmatch(name):
            yield f"{at}.name: string does not match pattern '^[a-zA-Z0-9_-]+$' (1 to 128), got {name!r}"
    if kind == "function" and tool.get("parameters") is not None:
        yield from object_schema(tool["parameters"], f"{at}.parameters")
        if tool.get("strict"):
            yield from strict_schema(tool["parameters"], f"{at}.parameters")


def _unique(given: list[Object]) -> Iterator[str]:
    seen: set[tuple[Json, Json]] = set()
    for tool in given:
        key = (tool.get("type"), tool.get("name"))
        if key[1] and key in seen:
            yield f"Duplicate tool name: {key[1]!r}"
        seen.add(key)


def choice(body: Object, model: str) -> Iterator[str]:
    chosen = body.get("tool_choice")
    given = objects(body.get("tools"))
    if chosen in (None, "none", "auto"):
        return
    added = any(item.get("type") in ("additional_tools", "tool_search_output") for item in objects(body.get("input")))
    if not given and not added:
        yield "Tool choice must be specified with 'tools' parameter."
    if chosen == "required" or added:
        return
    if not isinstance(chosen, dict) or not isinstance(chosen.get("type"), str):
        yield f"tool_choice: Invalid value: {chosen!r}"
        return
    named = [chosen] if chosen["type"] != "allowed_tools" else objects(chosen.get("tools"))
    if not named:
        yield "tool_choice.tools: expected at least one tool"
    for tool in named:
        if tool.get("type") in ("function", "custom") and not any(
            other.get("type") == tool["type"] and other.get("name") == tool.get("name") for other in given
        ):
            yield f"Tool choice '{tool['type']}' {tool.get('name')!r} not found in 'tools' parameter."
        if "function" in tool:
            yield "Unknown parameter: 'tool_choice.function'."


def formats(body: Object, model: str) -> Iterator[str]:
    given = (body.get("text") or {}).get("format")
    if given is None:
        return
    if given.get("type") == "json_schema":
        if not given.get("name") or not isinstance(given.get("schema"), dict):
            yield "text.format: name and schema are required"
        elif given.get("strict"):
            yield from strict_schema(given["schema"], "text.format.schema")
    elif given.get("type") == "json_object":
        if "json" not in (str(body.get("input")) + str(body.get("instructions"))).lower():
            yield "input must contain the word 'json' in some form to use 'text.format' of type 'json_object'."
    elif given.get("type") != "text":
        yield f"text.format.type: Invalid value: {given.get('type')!r}"


CHECKS: tuple[Check, ...] = (fields, tools, choice, formats, *openai_items.CHECKS)
