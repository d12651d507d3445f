"""What Anthropic Messages refuses in `tools` and `tool_choice`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from toolwire.conformance.strict.check import (
    Check,
    Json,
    Object,
    numbered,
    objects,
    schema_nodes,
    unknown_keys,
    version,
)

NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
KEY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
CUSTOM = frozenset(
    "type name description input_schema strict input_examples defer_loading eager_input_streaming allowed_callers"
    " cache_control".split()
)
DEFINED = (
    "bash_20", "text_editor_20", "memory_20", "computer_20", "web_search_20", "web_fetch_20", "code_execution_20",
    "tool_search_tool_", "advisor_20",
)  # fmt: skip
NAMELESS = ("computer_toolset_20", "browser_toolset_20", "mcp_toolset")
UNFORCED = "claude-(?:fable|mythos|opus|sonnet)"


def tools(body: Object, model: str) -> Iterator[str]:
    seen: set[str] = set()
    for index, tool in numbered(body.get("tools")):
        at = f"tools.{index}"
        kind = tool.get("type") or "custom"
        if kind.startswith(NAMELESS):
            continue
        name = tool.get("name")
        if not isinstance(name, str) or not NAME.fullmatch(name):
            yield f"{at}.{kind}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
        elif name in seen:
            yield "tools: Tool names must be unique."
        else:
            seen.add(name)
        if kind == "custom":
            yield from _custom(tool, at)
        elif not kind.startswith(DEFINED):
            yield f"{at}: Input tag '{kind}' found using 'type' does not match any of the expected tags"


def _custom(tool: Object, at: str) -> Iterator[str]:
    yield from unknown_keys(tool, CUSTOM, f"{at}.custom.")
    if tool.get("defer_loading") and tool.get("cache_control"):
        yield f"{at}: Tools with defer_loading cannot use prompt caching"
    schema = tool.get("input_schema")
    if not isinstance(schema, dict):
        yield f"{at}.custom.input_schema: Field required"
        return
    if schema.get("type") != "object":
        yield f"{at}.custom.input_schema.type: Input should be 'object'"
    for key in ("oneOf", "anyOf", "allOf"):
        if key in schema:
            yield f"{at}.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level"
    for key in schema.get("properties") or {}:
        if not KEY.fullmatch(key):
            yield f"{at}.custom.input_schema.properties: Property keys should match pattern, got {key!r}"
    if tool.get("strict"):
        yield from grammar_schema(schema, f"{at}.custom.input_schema")


BOUNDS = (
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "maxItems",
)


def grammar_schema(schema: Json, at: str) -> Iterator[str]:
    """The subset that strict tools and output formats take."""
    for place, node in schema_nodes(schema, at):
        if node.get("type") == "object" and node.get("additionalProperties") is not False:
            yield f"{place}: For 'object' type, 'additionalProperties' must be explicitly set to false"
        for key in BOUNDS:
            if key in node:
                yield f"{place}: For '{node.get('type')}' type, property '{key}' is not supported"


def deferred(body: Object, model: str) -> Iterator[str]:
    given = objects(body.get("tools"))
    if given and all(tool.get("defer_loading") for tool in given):
        yield "At least one tool must have defer_loading=false"


def choice(body: Object, model: str) -> Iterator[str]:
    chosen = body.get("tool_choice")
    if chosen is None:
        return
    if not isinstance(chosen, dict) or chosen.get("type") not in ("auto", "any", "none", "tool"):
        yield "tool_choice: Input tag does not match any of the expected tags: 'auto', 'any', 'tool', 'none'"
        return
    kind = chosen["type"]
    if not body.get("tools"):
        yield "tool_choice may only be specified while providing tools"
    allowed = {"type"} if kind == "none" else {"type", "disable_parallel_tool_use"}
    yield from unknown_keys(
        chosen, frozenset(allowed | {"name"} if kind == "tool" else allowed), f"tool_choice.{kind}."
    )
    if kind == "tool" and chosen.get("name") not in [tool.get("name") for tool in objects(body.get("tools"))]:
        yield f"tool_choice: Tool '{chosen.get('name')}' not found in provided tools"
    if kind in ("any", "tool"):
        yield from _forced(body, model)


def _forced(body: Object, model: str) -> Iterator[str]:
    if (body.get("thinking") or {}).get("type") == "enabled":
        yield "Thinking may not be enabled when tool_choice forces tool use."
    made = version(model, UNFORCED)
    if made is not None and ("fable" in model or "mythos" in model or made >= (5, 5)):
        yield 'tool_choice: type "tool" and "any" are not supported for this model'


CHECKS: tuple[Check, ...] = (tools, deferred, choice)
