"""What OpenAI Chat Completions refuses with 400."""

from __future__ import annotations

import re
from collections.abc import Iterator

from toolwire.conformance.strict.check import (
    RequestCheck,
    check_object_schema,
    check_strict_schema,
    check_unknown_keys,
    is_since,
    known_names,
    matches,
    numbered_objects,
    objects,
    refusals,
)
from toolwire.core.json_values import Json, Object

NAMES = known_names("openai-chat")
PARTS_BY_ROLE = NAMES["parts"]
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
ID_LIMIT = 40
TOOLS_LIMIT = 128


def check_fields(body: Object, model: str) -> Iterator[str]:
    yield from check_unknown_keys(body, NAMES["fields"]["request"])
    given = {key for key, value in body.items() if value is not None}
    name, tools, stop = body.get("model"), body.get("tools"), body.get("stop")
    is_chosen = body.get("tool_choice") not in (None, "none") and not body.get("functions")
    yield from refusals(
        (not isinstance(name, str) or not name, "you must provide a model parameter"),
        (not objects(body.get("messages")), "messages: expected at least one message"),
        ("stream_options" in given and not body.get("stream"), STREAM_OPTIONS_TEXT),
        (not tools and is_chosen, "'tool_choice' is only allowed when 'tools' are specified."),
        (not tools and "parallel_tool_calls" in given, PARALLEL_TEXT),
        (tools == [], "[] is too short - 'tools'"),
        (isinstance(stop, list) and not 1 <= len(stop) <= 4, "stop: between 1 and 4 sequences"),
        ("top_logprobs" in given and not body.get("logprobs"), "top_logprobs needs logprobs"),
    )


STREAM_OPTIONS_TEXT = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
PARALLEL_TEXT = "'parallel_tool_calls' is only allowed when 'tools' are specified."


def check_limits(body: Object, model: str) -> Iterator[str]:
    if body.get("max_tokens") is not None and body.get("max_completion_tokens") is not None:
        yield "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported."
    is_reasoning_model = re.match(r"o\d", model) or (is_since(model, "gpt", (5, 0)) and "chat" not in model)
    if not is_reasoning_model:
        return
    if body.get("max_tokens") is not None:
        yield "'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    effort = body.get("reasoning_effort") not in (None, "none")
    if effort and body.get("tools") and is_since(model, "gpt", (5, 4)):
        yield "Function tools with reasoning_effort are not supported in /v1/chat/completions. Use /v1/responses."


def check_messages(body: Object, model: str) -> Iterator[str]:
    for index, message in numbered_objects(body.get("messages")):
        at = f"messages[{index}]"
        role, content = message.get("role"), message.get("content")
        if role not in PARTS_BY_ROLE:
            yield f"{at}.role: Invalid value: {role!r}"
            continue
        calls = message.get("tool_calls") or message.get("function_call")
        may_be_null = role == "function" or (
            role == "assistant" and (calls or message.get("refusal") or message.get("audio"))
        )
        if content is None and not may_be_null:
            yield f"{at}.content: Invalid value: expected a string, got null."
        if message.get("tool_calls") == []:
            yield f"{at}.tool_calls: [] is too short"
        if isinstance(content, list):
            yield from _check_parts(content, role, at)
        elif not isinstance(content, (str, type(None))):
            yield f"{at}.content: Invalid type: expected one of an array of objects or string"
        for number, call in numbered_objects(message.get("tool_calls")):
            yield from _check_call(call, f"{at}.tool_calls[{number}]")


def _check_parts(content: list[Json], role: str, path: str) -> Iterator[str]:
    if not content:
        yield f"{path}.content: [] is too short"
    for number, part in numbered_objects(content):
        kind = part.get("type")
        if kind not in PARTS_BY_ROLE[role]:
            supported = sorted(PARTS_BY_ROLE[role])
            yield f"{path}.content[{number}].type: Invalid value: {kind!r}. Supported values: {supported}"
        if kind == "text" and not isinstance(part.get("text"), str):
            yield f"{path}.content[{number}].text: expected a string"
        if kind == "image_url" and not isinstance((part.get("image_url") or {}).get("url"), str):
            yield f"{path}.content[{number}].image_url.url: expected a string"


def _check_call(call: Object, path: str) -> Iterator[str]:
    id = call.get("id")
    if not isinstance(id, str):
        yield f"{path}.id: Missing required parameter"
    elif not 0 < len(id) <= ID_LIMIT:
        yield f"{path}.id: string too long or empty. Expected a string with maximum length {ID_LIMIT}, got {len(id)}"
    kind = call.get("type")
    if kind not in ("function", "custom"):
        yield f"{path}.type: Invalid value: {kind!r}"
        return
    inner = call.get(kind) or {}
    if not matches(TOOL_NAME, inner.get("name")):
        yield f"{path}.{kind}.name: expected a string that matches '^[a-zA-Z0-9_-]{{1,64}}$', got {inner.get('name')!r}"
    if not isinstance(inner.get("arguments" if kind == "function" else "input"), str):
        yield f"{path}.{kind}.arguments: expected a string"


def check_pairs(body: Object, model: str) -> Iterator[str]:
    """The results of an assistant's calls must follow directly, and none may be missing."""
    due: dict[str, int] = {}
    known: set[str] = set()
    for index, message in numbered_objects(body.get("messages")):
        if message.get("role") == "tool":
            id = message.get("tool_call_id", "")
            if id not in known:
                yield f"messages[{index}]: role 'tool' must be a response to a preceding message with 'tool_calls'"
            due.pop(id, None)
            continue
        if due:
            yield f"messages[{index}]: 'tool_calls' must be followed by tool messages for each id: {list(due)}"
        due = {call.get("id", ""): index for call in objects(message.get("tool_calls"))}
        known = set(due)
    if due:
        yield f"the last 'tool_calls' were not answered: {list(due)}"


def check_tools(body: Object, model: str) -> Iterator[str]:
    given = body.get("tools")
    if isinstance(given, list) and len(given) > TOOLS_LIMIT:
        yield f"Invalid 'tools': array too long. Expected an array with maximum length {TOOLS_LIMIT}, got {len(given)}"
    for index, tool in numbered_objects(given):
        at, kind = f"tools[{index}]", tool.get("type")
        if kind not in ("function", "custom"):
            yield f"{at}.type: Invalid value: {kind!r}. Supported values are: 'function' and 'custom'."
            continue
        inner = tool.get(kind)
        if not isinstance(inner, dict):
            yield f"{at}.{kind}: Missing required parameter"
            continue
        if not matches(TOOL_NAME, inner.get("name")):
            yield f"{at}.{kind}.name: string does not match '^[a-zA-Z0-9_-]{{1,64}}$', got {inner.get('name')!r}"
        yield from check_unknown_keys(inner, NAMES["tools"][kind], f"{at}.{kind}.")
        yield from check_unknown_keys(tool, frozenset({"type", kind}), f"{at}.")
        if inner.get("parameters") is not None:
            yield from check_object_schema(inner["parameters"], f"{at}.function.parameters")
            if inner.get("strict"):
                yield from check_strict_schema(inner["parameters"], f"{at}.function.parameters")


def check_tool_choice(body: Object, model: str) -> Iterator[str]:
    chosen = body.get("tool_choice")
    if chosen is None or chosen in ("none", "auto", "required"):
        return
    if not isinstance(chosen, dict) or chosen.get("type") not in ("function", "custom", "allowed_tools"):
        yield f"tool_choice: Invalid value: {chosen!r}"
        return
    kind = chosen["type"]
    declared = [_named_tool(tool) for tool in objects(body.get("tools"))]
    wanted = [chosen] if kind != "allowed_tools" else objects((chosen.get("allowed_tools") or {}).get("tools"))
    if not wanted:
        yield "tool_choice.allowed_tools.tools: expected at least one tool"
    missing = (tool for tool in map(_named_tool, wanted) if tool not in declared)
    yield from (f"tool_choice: Tool choice {name!r} not found in 'tools' parameter." for _, name in missing)


def _named_tool(tool: Object) -> tuple[Json, Json]:
    return tool.get("type"), (tool.get(str(tool.get("type"))) or {}).get("name")


def check_formats(body: Object, model: str) -> Iterator[str]:
    given = body.get("response_format")
    if given is None:
        return
    kind = given.get("type")
    if kind == "json_object" and "json" not in str(body.get("messages")).lower():
        yield "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'."
    if kind == "json_schema":
        inner = given.get("json_schema") or {}
        if not TOOL_NAME.fullmatch(str(inner.get("name") or "")):
            yield "response_format.json_schema.name: Missing required parameter"
        if inner.get("strict"):
            yield from check_strict_schema(inner.get("schema"), "response_format.json_schema.schema")
    elif kind not in ("text", "json_object"):
        yield f"response_format.type: Invalid value: {kind!r}"


CHECKS: tuple[RequestCheck, ...] = (
    check_fields,
    check_limits,
    check_messages,
    check_pairs,
    check_tools,
    check_tool_choice,
    check_formats,
)
