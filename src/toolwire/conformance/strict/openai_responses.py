"""What OpenAI Responses refuses: fields, tools, and the items of the input with their ids and their order."""

from __future__ import annotations

import re
from collections.abc import Iterator

from toolwire.conformance.strict.check import (
    RequestCheck,
    check_object_schema,
    check_strict_schema,
    check_unknown_keys,
    known_names,
    matches,
    numbered_objects,
    objects,
    refusals,
)
from toolwire.core.json_values import Json, Object

NAMES = known_names("openai-responses")
CALL_ID_LIMIT = 64
ID_PREFIXES = {
    "function_call": "fc",
    "custom_tool_call": "ctc",
    "reasoning": "rs",
    "web_search_call": "ws",
    "file_search_call": "fs",
    "image_generation_call": "ig",
    "mcp_call": "mcp",
    "mcp_list_tools": "mcpl",
    "mcp_approval_request": "mcpr",
    "code_interpreter_call": "ci",
    "computer_call": "cu",
}
CALL_BY_OUTPUT = {
    "function_call_output": "function_call",
    "custom_tool_call_output": "custom_tool_call",
    "shell_call_output": "shell_call",
    "apply_patch_call_output": "apply_patch_call",
    "computer_call_output": "computer_call",
    "local_shell_call_output": "local_shell_call",
}
CALL_ITEMS = frozenset(CALL_BY_OUTPUT.values())
ITEM_TYPES = NAMES["values"]["other_items"] | CALL_ITEMS | frozenset(CALL_BY_OUTPUT)
CALL_NAME = re.compile(r"[a-zA-Z0-9_.:-]{1,128}")
INPUT_PARTS = NAMES["values"]["input_parts"]
CODEX_METADATA = "internal_chat_message_metadata_passthrough"
"""Codex puts this field on items if it believes that it calls OpenAI directly."""


def item_type(item: Object) -> str:
    kind = item.get("type")
    return str(kind) if kind else "message" if "role" in item else "item_reference" if "id" in item else ""


def check_items(body: Object, model: str) -> Iterator[str]:
    for index, item in numbered_objects(body.get("input")):
        at, kind = f"input[{index}]", item_type(item)
        if kind not in ITEM_TYPES:
            yield f"{at}.type: Invalid value: {kind!r}"
            continue
        if kind in NAMES["items"]:
            known = NAMES["items"][kind] | {CODEX_METADATA}
            yield from check_unknown_keys(item, known, f"{at}.", "Unknown parameter: '{}'.")
        if kind == "message":
            yield from _check_message(item, at)
        if kind in CALL_ITEMS or kind in CALL_BY_OUTPUT:
            yield from _check_call_id(item, at, kind)
        yield from _check_item_id(item, at, kind)
        if key := {"function_call": "arguments", "custom_tool_call": "input"}.get(kind):
            if not matches(CALL_NAME, item.get("name")):
                yield f"Invalid '{at}.name': string does not match pattern, got {item.get('name')!r}"
            if not isinstance(item.get(key), str):
                yield f"Invalid type for '{at}.{key}': expected a string"
        if kind in ("function_call_output", "custom_tool_call_output"):
            yield from _check_output(item.get("output"), f"{at}.output")


def _check_message(item: Object, path: str) -> Iterator[str]:
    role, content = item.get("role"), item.get("content")
    if role not in ("user", "assistant", "system", "developer"):
        yield f"{path}.role: Invalid value: {role!r}"
    if not isinstance(content, (str, list)):
        yield f"Missing required parameter: '{path}.content'."
    allowed = NAMES["values"]["output_parts"] if role == "assistant" else INPUT_PARTS
    for number, part in numbered_objects(content):
        if part.get("type") not in allowed:
            yield f"{path}.content[{number}]: Invalid value: {part.get('type')!r}. Supported are: {sorted(allowed)}"
        elif part["type"] == "input_image" and not isinstance(part.get("image_url", ""), (str, type(None))):
            yield f"{path}.content[{number}].image_url: expected a string"


def _check_call_id(item: Object, path: str, kind: str) -> Iterator[str]:
    id = item.get("id") if kind == "local_shell_call_output" else item.get("call_id")
    if not isinstance(id, str) or not id:
        yield f"Missing required parameter: '{path}.call_id'."
    elif len(id) > CALL_ID_LIMIT:
        yield f"Invalid '{path}.call_id': string too long. Expected maximum length 64, but got {len(id)} instead."


def _check_item_id(item: Object, path: str, kind: str) -> Iterator[str]:
    prefix = ID_PREFIXES.get(kind)
    if kind == "message" and item.get("role") == "assistant":
        prefix = "msg"
    id = item.get("id")
    if prefix and isinstance(id, str) and not id.startswith(prefix):
        yield f"Invalid '{path}.id': {id!r}. Expected an ID that begins with '{prefix}'."
    if isinstance(id, str) and len(id) > CALL_ID_LIMIT and kind != "reasoning" and prefix:
        yield f"Invalid '{path}.id': string too long."


def _check_output(output: Json, path: str) -> Iterator[str]:
    if isinstance(output, str):
        return
    if not isinstance(output, list):
        yield f"Invalid type for '{path}': expected one of an array of objects or string"
    for number, part in numbered_objects(output):
        if part.get("type") not in INPUT_PARTS:
            yield f"{path}[{number}].type: Invalid value: {part.get('type')!r}. Supported are: {sorted(INPUT_PARTS)}"


def check_pairs(body: Object, model: str) -> Iterator[str]:
    """Each call needs one output after it, and each output a call before it, unless the provider stores the history."""
    kept = bool(body.get("previous_response_id") or body.get("conversation"))
    open_calls: dict[str, str] = {}
    known: dict[str, str] = {}
    for index, item in numbered_objects(body.get("input")):
        kind = item_type(item)
        kept = kept or kind == "item_reference"
        id = item.get("id", "") if kind == "local_shell_call_output" else item.get("call_id", "")
        if kind in CALL_ITEMS:
            if id in known:
                yield f"Duplicate item found with call_id {id!r} at input[{index}]"
            known[id] = kind
            open_calls |= {} if item.get("async") else {id: kind}
        elif kind == "tool_search_call" and id:
            known[id] = kind
        elif kind in CALL_BY_OUTPUT and known.get(id) != "tool_search_call" and (id in known or not kept):
            if known.get(id) != CALL_BY_OUTPUT[kind]:
                yield f"No tool call found for {CALL_BY_OUTPUT[kind].replace('_', ' ')} output with call_id {id}."
            elif open_calls.pop(id, None) is None:
                yield f"input[{index}]: a second output for call_id {id}"
    for id, kind in open_calls.items():
        yield f"No tool output found for {kind.replace('_', ' ')} {id}."


def check_reasoning(body: Object, model: str) -> Iterator[str]:
    given = [item for _, item in numbered_objects(body.get("input"))]
    for index, item in enumerate(given):
        if item_type(item) != "reasoning":
            continue
        if not isinstance(item.get("summary"), list):
            yield f"Missing required parameter: 'input[{index}].summary'."
        after = next((other for other in given[index + 1 :] if item_type(other) != "reasoning"), None)
        follows = after is not None and (
            item_type(after) not in CALL_BY_OUTPUT and after.get("role", "assistant") == "assistant"
        )
        if item.get("id") and not follows:
            yield f"Item '{item['id']}' of type 'reasoning' was provided without its required following item."
        if body.get("store") is False and not item.get("encrypted_content"):
            yield f"Item with id '{item.get('id')}' not found. Items are not persisted when `store` is set to false."


# --- fields and tools -----------------------------------------------------------------------------------------------

TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")


def check_fields(body: Object, model: str) -> Iterator[str]:
    yield from check_unknown_keys(body, NAMES["fields"]["request"])
    prompt, previous, conversation = body.get("prompt"), body.get("previous_response_id"), body.get("conversation")
    given, limit = body.get("input"), body.get("max_output_tokens")
    is_missing = not isinstance(given, (str, list)) and not prompt and not previous
    too_few = f"Invalid 'max_output_tokens': integer below minimum value. Expected >= 16, but got {limit} instead."
    yield from refusals(
        (not body.get("model") and not prompt, "model: Missing required parameter"),
        (is_missing, "input: Missing required parameter"),
        (given == [] and not previous and not conversation, "input: expected at least one item"),
        (isinstance(limit, int) and limit < 16, too_few),
        (previous and conversation, "previous_response_id and conversation are exclusive"),
    )
    values = (value for value in body.get("include") or [] if value not in NAMES["values"]["include"])
    yield from (f"include: Invalid value: {value!r}" for value in values)
    for field in ("stream_options", "reasoning", "text"):
        yield from check_unknown_keys(body.get(field) or {}, NAMES["fields"][field], f"{field}.")


def check_tools(body: Object, model: str) -> Iterator[str]:
    given = [(f"tools[{index}]", tool) for index, tool in numbered_objects(body.get("tools"))]
    for index, item in numbered_objects(body.get("input")):
        if item.get("type") in ("additional_tools", "tool_search_output"):
            given += [(f"input[{index}].tools[{number}]", tool) for number, tool in numbered_objects(item.get("tools"))]
    for at, tool in given:
        yield from _check_tool(tool, at)
        if tool.get("type") == "namespace":
            if not isinstance(tool.get("description"), str):  # may be empty: Codex sends an empty one for `functions`
                yield f"{at}.description: Missing required parameter"
            for number, child in numbered_objects(tool.get("tools")):
                yield from _check_tool(child, f"{at}.tools[{number}]")
    names = [(tool.get("type"), tool["name"]) for tool in objects(body.get("tools")) if tool.get("name")]
    repeated = (named[1] for number, named in enumerate(names) if named in names[:number])
    yield from (f"Duplicate tool name: {name!r}" for name in repeated)


def _check_tool(tool: Object, path: str) -> Iterator[str]:
    kind, name = str(tool.get("type")), tool.get("name")
    kind = "web_search" if kind.startswith("web_search") else kind  # its versions have dates
    if kind == "image_generation":
        return
    if kind not in NAMES["tools"]:
        yield f"{path}.type: Invalid value: {kind!r}"
        return
    yield from check_unknown_keys(tool, NAMES["tools"][kind], f"{path}.")
    if kind in ("function", "custom", "namespace") and not matches(TOOL_NAME, name):
        yield f"{path}.name: string does not match pattern '^[a-zA-Z0-9_-]+$' (1 to 128), got {name!r}"
    if kind == "function" and tool.get("parameters") is not None:
        yield from check_object_schema(tool["parameters"], f"{path}.parameters")
        if tool.get("strict"):
            yield from check_strict_schema(tool["parameters"], f"{path}.parameters")


def check_tool_choice(body: Object, model: str) -> Iterator[str]:
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


def check_formats(body: Object, model: str) -> Iterator[str]:
    given = (body.get("text") or {}).get("format")
    if given is None:
        return
    if given.get("type") == "json_schema":
        if not given.get("name") or not isinstance(given.get("schema"), dict):
            yield "text.format: name and schema are required"
        elif given.get("strict"):
            yield from check_strict_schema(given["schema"], "text.format.schema")
    elif given.get("type") == "json_object":
        if "json" not in (str(body.get("input")) + str(body.get("instructions"))).lower():
            yield "input must contain the word 'json' in some form to use 'text.format' of type 'json_object'."
    elif given.get("type") != "text":
        yield f"text.format.type: Invalid value: {given.get('type')!r}"


CHECKS: tuple[RequestCheck, ...] = (
    check_fields,
    check_tools,
    check_tool_choice,
    check_formats,
    check_items,
    check_pairs,
    check_reasoning,
)
