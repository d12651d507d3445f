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
    matches,
    numbered_objects,
    objects,
)
from toolwire.core.json_values import Json, Object

TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
ID_LIMIT = 40
TOOLS_LIMIT = 128
KNOWN_FIELDS = frozenset(
    "messages model tools tool_choice parallel_tool_calls functions function_call response_format stream stream_options"
    " max_completion_tokens max_tokens reasoning_effort verbosity temperature top_p n stop seed frequency_penalty"
    " presence_penalty logit_bias logprobs top_logprobs modalities audio prediction web_search_options moderation"
    " prompt_cache_key prompt_cache_options prompt_cache_retention safety_identifier user service_tier store"
    " metadata".split()
)
TOOL_FIELDS = {
    "function": frozenset({"name", "description", "parameters", "strict"}),
    "custom": frozenset({"name", "description", "format"}),
}
PARTS_BY_ROLE = {
    "user": frozenset({"text", "image_url", "input_audio", "file"}),
    "assistant": frozenset({"text", "refusal"}),
    "tool": frozenset({"text"}),
    "system": frozenset({"text"}),
    "developer": frozenset({"text"}),
    "function": frozenset({"text"}),
}


def is_reasoning_model(model: str) -> bool:
    return re.match(r"o\d", model) is not None or (is_since(model, "gpt", (5, 0)) and "chat" not in model)


def check_fields(body: Object, model: str) -> Iterator[str]:
    yield from check_unknown_keys(body, KNOWN_FIELDS)
    if not isinstance(body.get("model"), str) or not body["model"]:
        yield "you must provide a model parameter"
    if not objects(body.get("messages")):
        yield "messages: expected at least one message"
    if body.get("stream_options") is not None and not body.get("stream"):
        yield "The 'stream_options' parameter is only allowed when 'stream' is enabled."
    if not body.get("tools"):
        if body.get("tool_choice") not in (None, "none") and not body.get("functions"):
            yield "'tool_choice' is only allowed when 'tools' are specified."
        if body.get("parallel_tool_calls") is not None:
            yield "'parallel_tool_calls' is only allowed when 'tools' are specified."
        if body.get("tools") == []:
            yield "[] is too short - 'tools'"
    if isinstance(body.get("stop"), list) and not 1 <= len(body["stop"]) <= 4:
        yield "stop: between 1 and 4 sequences"
    if body.get("top_logprobs") is not None and not body.get("logprobs"):
        yield "top_logprobs needs logprobs"


def check_limits(body: Object, model: str) -> Iterator[str]:
    if body.get("max_tokens") is not None and body.get("max_completion_tokens") is not None:
        yield "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported."
    if not is_reasoning_model(model):
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
        calls = objects(message.get("tool_calls"))
        due = {call.get("id", ""): index for call in calls}
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
        yield from check_unknown_keys(inner, TOOL_FIELDS[kind], f"{at}.{kind}.")
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
    names = [
        (tool.get("type"), (tool.get(str(tool.get("type"))) or {}).get("name")) for tool in objects(body.get("tools"))
    ]
    wanted = [chosen] if kind != "allowed_tools" else objects((chosen.get("allowed_tools") or {}).get("tools"))
    if not wanted:
        yield "tool_choice.allowed_tools.tools: expected at least one tool"
    for tool in wanted:
        name = (tool.get(str(tool.get("type"))) or {}).get("name")
        if (tool.get("type"), name) not in names:
            yield f"tool_choice: Tool choice {name!r} not found in 'tools' parameter."


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
