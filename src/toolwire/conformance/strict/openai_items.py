"""What OpenAI Responses refuses in `input`: items, their ids, and how calls, results and reasoning go together."""

from __future__ import annotations

import re
from collections.abc import Iterator

from toolwire.conformance.strict.check import Check, Json, Object, numbered

CALL_ID_LIMIT = 64
PREFIXES = {
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
RESULTS = {
    "function_call_output": "function_call",
    "custom_tool_call_output": "custom_tool_call",
    "shell_call_output": "shell_call",
    "apply_patch_call_output": "apply_patch_call",
    "computer_call_output": "computer_call",
    "local_shell_call_output": "local_shell_call",
}
CALLS = frozenset(RESULTS.values())
OTHERS = frozenset(
    "message reasoning item_reference additional_tools configuration_update compaction compaction_trigger"
    " tool_search_call tool_search_output mcp_list_tools mcp_call mcp_approval_request"
    " mcp_approval_response web_search_call file_search_call code_interpreter_call image_generation_call"
    " program program_output agent_message multi_agent_call multi_agent_call_output".split()
)
KINDS = OTHERS | CALLS | frozenset(RESULTS)
NAME = re.compile(r"[a-zA-Z0-9_.:-]{1,128}")
INPUT_PARTS = frozenset({"input_text", "input_image", "input_file"})
OUTPUT_PARTS = frozenset({"output_text", "refusal"})
ITEM_KEYS = {
    "function_call": frozenset(
        "type id call_id name arguments status namespace caller async created_by phase parsed_arguments async_".split()
    ),
    "function_call_output": frozenset("type id call_id output name namespace caller status created_by".split()),
    "custom_tool_call": frozenset(
        "type id call_id name input status namespace caller async created_by async_ phase".split()
    ),
    "custom_tool_call_output": frozenset("type id call_id output caller status created_by name namespace".split()),
    "reasoning": frozenset("type id summary content encrypted_content status phase created_by".split()),
}
PASSED = "internal_chat_message_metadata_passthrough"
"""What Codex puts on items where it believes that it asks the service itself."""


def kind_of(item: Object) -> str:
    kind = item.get("type")
    return str(kind) if kind else "message" if "role" in item else "item_reference" if "id" in item else ""


def items(body: Object, model: str) -> Iterator[str]:
    for index, item in numbered(body.get("input")):
        at, kind = f"input[{index}]", kind_of(item)
        if kind not in KINDS:
            yield f"{at}.type: Invalid value: {kind!r}"
            continue
        if kind in ITEM_KEYS:
            for key in item.keys() - ITEM_KEYS[kind] - {PASSED}:
                yield f"Unknown parameter: '{at}.{key}'."
        if kind == "message":
            yield from _message(item, at)
        if kind in CALLS or kind in RESULTS:
            yield from _call_id(item, at, kind)
        yield from _item_id(item, at, kind)
        if kind in ("function_call", "custom_tool_call"):
            yield from _call(item, at, kind)
        if kind in ("function_call_output", "custom_tool_call_output"):
            yield from _output(item.get("output"), f"{at}.output")


def _message(item: Object, at: str) -> Iterator[str]:
    role, content = item.get("role"), item.get("content")
    if role not in ("user", "assistant", "system", "developer"):
        yield f"{at}.role: Invalid value: {role!r}"
    if not isinstance(content, (str, list)):
        yield f"Missing required parameter: '{at}.content'."
    allowed = OUTPUT_PARTS if role == "assistant" else INPUT_PARTS
    for number, part in numbered(content):
        if part.get("type") not in allowed:
            yield f"{at}.content[{number}]: Invalid value: {part.get('type')!r}. Supported are: {sorted(allowed)}"
        elif part["type"] == "input_image" and not isinstance(part.get("image_url", ""), (str, type(None))):
            yield f"{at}.content[{number}].image_url: expected a string"


def _call_id(item: Object, at: str, kind: str) -> Iterator[str]:
    id = item.get("id") if kind == "local_shell_call_output" else item.get("call_id")
    if not isinstance(id, str) or not id:
        yield f"Missing required parameter: '{at}.call_id'."
    elif len(id) > CALL_ID_LIMIT:
        yield f"Invalid '{at}.call_id': string too long. Expected maximum length 64, but got {len(id)} instead."


def _item_id(item: Object, at: str, kind: str) -> Iterator[str]:
    prefix = PREFIXES.get(kind)
    if kind == "message" and item.get("role") == "assistant":
        prefix = "msg"
    id = item.get("id")
    if prefix and isinstance(id, str) and not id.startswith(prefix):
        yield f"Invalid '{at}.id': {id!r}. Expected an ID that begins with '{prefix}'."
    if isinstance(id, str) and len(id) > CALL_ID_LIMIT and kind != "reasoning" and prefix:
        yield f"Invalid '{at}.id': string too long."


def _call(item: Object, at: str, kind: str) -> Iterator[str]:
    if not isinstance(item.get("name"), str) or not NAME.fullmatch(item["name"]):
        yield f"Invalid '{at}.name': string does not match pattern, got {item.get('name')!r}"
    key = "arguments" if kind == "function_call" else "input"
    if not isinstance(item.get(key), str):
        yield f"Invalid type for '{at}.{key}': expected a string"


def _output(output: Json, at: str) -> Iterator[str]:
    if isinstance(output, str):
        return
    if not isinstance(output, list):
        yield f"Invalid type for '{at}': expected one of an array of objects or string"
    for number, part in numbered(output):
        if part.get("type") not in INPUT_PARTS:
            yield f"{at}[{number}].type: Invalid value: {part.get('type')!r}. Supported are: {sorted(INPUT_PARTS)}"


def pairs(body: Object, model: str) -> Iterator[str]:
    """Each call has one output after it, each output its call before it; what the provider keeps is not looked at."""
    kept = bool(body.get("previous_response_id") or body.get("conversation"))
    open_calls: dict[str, str] = {}
    known: dict[str, str] = {}
    for index, item in numbered(body.get("input")):
        kind = kind_of(item)
        kept = kept or kind == "item_reference"
        id = item.get("id", "") if kind == "local_shell_call_output" else item.get("call_id", "")
        if kind in CALLS:
            if id in known:
                yield f"Duplicate item found with call_id {id!r} at input[{index}]"
            known[id] = kind
            open_calls |= {} if item.get("async") else {id: kind}
        elif kind == "tool_search_call" and id:
            known[id] = kind
        elif kind in RESULTS and known.get(id) != "tool_search_call" and (id in known or not kept):
            if known.get(id) != RESULTS[kind]:
                yield f"No tool call found for {RESULTS[kind].replace('_', ' ')} output with call_id {id}."
            elif open_calls.pop(id, None) is None:
                yield f"input[{index}]: a second output for call_id {id}"
    for id, kind in open_calls.items():
        yield f"No tool output found for {kind.replace('_', ' ')} {id}."


def reasoning(body: Object, model: str) -> Iterator[str]:
    given = [item for _, item in numbered(body.get("input"))]
    for index, item in enumerate(given):
        if kind_of(item) != "reasoning":
            continue
        if not isinstance(item.get("summary"), list):
            yield f"Missing required parameter: 'input[{index}].summary'."
        after = next((other for other in given[index + 1 :] if kind_of(other) != "reasoning"), None)
        follows = after is not None and (
            kind_of(after) not in RESULTS and after.get("role", "assistant") == "assistant"
        )
        if item.get("id") and not follows:
            yield f"Item '{item['id']}' of type 'reasoning' was provided without its required following item."
        if body.get("store") is False and not item.get("encrypted_content"):
            yield f"Item with id '{item.get('id')}' not found. Items are not persisted when `store` is set to false."


CHECKS: tuple[Check, ...] = (items, pairs, reasoning)
