"""What Anthropic Messages refuses: fields, thinking, messages and tools."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from toolwire.conformance.strict.check import (
    RequestCheck,
    check_unknown_keys,
    is_before,
    is_since,
    matches,
    model_version,
    numbered_objects,
    objects,
    schema_nodes,
)
from toolwire.core.json_values import Json, Object

TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
PROPERTY_KEY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
CUSTOM_FIELDS = frozenset(
    "type name description input_schema strict input_examples defer_loading eager_input_streaming allowed_callers"
    " cache_control".split()
)
PROVIDER_TOOL_PREFIXES = (
    "bash_20", "text_editor_20", "memory_20", "computer_20", "web_search_20", "web_fetch_20", "code_execution_20",
    "tool_search_tool_", "advisor_20",
)  # fmt: skip
TOOLSET_PREFIXES = ("computer_toolset_20", "browser_toolset_20", "mcp_toolset")
MODEL_FAMILIES = "claude-(?:opus|sonnet|haiku|fable|mythos)"
UNFORCED_FAMILIES = "claude-(?:fable|mythos|opus|sonnet)"


def check_extra_fields(node: Object, allowed: set[str], path: str) -> Iterator[str]:
    for key in node.keys() - allowed:
        yield f"{path}{key}: Extra inputs are not permitted"


def check_tools(body: Object, model: str) -> Iterator[str]:
    given = objects(body.get("tools"))
    if given and all(tool.get("defer_loading") for tool in given):
        yield "At least one tool must have defer_loading=false"
    seen: set[str] = set()
    for index, tool in numbered_objects(body.get("tools")):
        at = f"tools.{index}"
        kind = tool.get("type") or "custom"
        if kind.startswith(TOOLSET_PREFIXES):
            continue
        name = tool.get("name")
        if not matches(TOOL_NAME, name):
            yield f"{at}.{kind}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
        elif name in seen:
            yield "tools: Tool names must be unique."
        else:
            seen.add(str(name))
        if kind == "custom":
            yield from _check_custom_tool(tool, at)
        elif not kind.startswith(PROVIDER_TOOL_PREFIXES):
            yield f"{at}: Input tag '{kind}' found using 'type' does not match any of the expected tags"


def _check_custom_tool(tool: Object, path: str) -> Iterator[str]:
    yield from check_unknown_keys(tool, CUSTOM_FIELDS, f"{path}.custom.")
    if tool.get("defer_loading") and tool.get("cache_control"):
        yield f"{path}: Tools with defer_loading cannot use prompt caching"
    schema = tool.get("input_schema")
    if not isinstance(schema, dict):
        yield f"{path}.custom.input_schema: Field required"
        return
    if schema.get("type") != "object":
        yield f"{path}.custom.input_schema.type: Input should be 'object'"
    if schema.keys() & {"oneOf", "anyOf", "allOf"}:
        yield f"{path}.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level"
    for key in schema.get("properties") or {}:
        if not PROPERTY_KEY.fullmatch(key):
            yield f"{path}.custom.input_schema.properties: Property keys should match pattern, got {key!r}"
    if tool.get("strict"):
        yield from check_grammar_schema(schema, f"{path}.custom.input_schema")


UNSUPPORTED_KEYWORDS = tuple(
    "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength maxLength maxItems".split()
)


def check_grammar_schema(schema: Json, path: str) -> Iterator[str]:
    """The subset of JSON Schema for strict tools and output formats."""
    for place, node in schema_nodes(schema, path):
        if node.get("type") == "object" and node.get("additionalProperties") is not False:
            yield f"{place}: For 'object' type, 'additionalProperties' must be explicitly set to false"
        for key in UNSUPPORTED_KEYWORDS:
            if key in node:
                yield f"{place}: For '{node.get('type')}' type, property '{key}' is not supported"


CHOICE_FIELDS = {
    "auto": frozenset({"type", "disable_parallel_tool_use"}),
    "any": frozenset({"type", "disable_parallel_tool_use"}),
    "tool": frozenset({"type", "disable_parallel_tool_use", "name"}),
    "none": frozenset({"type"}),
}


def check_tool_choice(body: Object, model: str) -> Iterator[str]:
    chosen = body.get("tool_choice")
    if chosen is None:
        return
    if not isinstance(chosen, dict) or chosen.get("type") not in list(CHOICE_FIELDS):
        yield "tool_choice: Input tag does not match any of the expected tags: 'auto', 'any', 'tool', 'none'"
        return
    kind = chosen["type"]
    if not body.get("tools"):
        yield "tool_choice may only be specified while providing tools"
    yield from check_unknown_keys(chosen, CHOICE_FIELDS[kind], f"tool_choice.{kind}.")
    if kind == "tool" and chosen.get("name") not in [tool.get("name") for tool in objects(body.get("tools"))]:
        yield f"tool_choice: Tool '{chosen.get('name')}' not found in provided tools"
    if kind in ("any", "tool"):
        yield from _check_forced_choice(body, model)


def _check_forced_choice(body: Object, model: str) -> Iterator[str]:
    if (body.get("thinking") or {}).get("type") == "enabled":
        yield "Thinking may not be enabled when tool_choice forces tool use."
    always_refused = ("fable" in model or "mythos" in model) and model_version(model, UNFORCED_FAMILIES)
    if always_refused or is_since(model, UNFORCED_FAMILIES, (5, 5)):
        yield 'tool_choice: type "tool" and "any" are not supported for this model'


# --- messages -------------------------------------------------------------------------------------------------------

CALL_ID = re.compile(r"[a-zA-Z0-9_-]+")
SERVER_ID = re.compile(r"srvtoolu_[a-zA-Z0-9_]+")
CALL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,200}")
SERVER_RESULTS = frozenset(
    "web_search_tool_result web_fetch_tool_result code_execution_tool_result bash_code_execution_tool_result"
    " text_editor_code_execution_tool_result tool_search_tool_result mcp_tool_result advisor_tool_result".split()
)
BLOCKS_BY_ROLE = {
    "user": frozenset({"text", "image", "document", "search_result", "tool_result", "container_upload"}),
    "assistant": SERVER_RESULTS
    | frozenset(
        "text thinking redacted_thinking tool_use server_tool_use mcp_tool_use mcp_tool_listing compaction fallback"
        " container_upload".split()
    ),
    "system": frozenset({"text", "tool_addition", "tool_removal"}),
}
RESULT_BLOCKS = frozenset({"text", "image", "document", "search_result", "tool_reference", "browser_state"})
TOOL_USE_FIELDS = {"type", "id", "name", "input", "caller", "toolset_name", "cache_control"}
TOOL_RESULT_FIELDS = {"type", "tool_use_id", "content", "is_error", "toolset_name", "cache_control"}
OUTPUT_FIELDS = {"effort", "format", "task_budget"}
UNANSWERED_TEXT = "`tool_use` ids were found without `tool_result` blocks immediately after"
IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})


def message_blocks(message: Object) -> list[Object]:
    content = message.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else objects(content)


def check_roles(body: Object, model: str) -> Iterator[str]:
    messages = objects(body.get("messages"))
    for index, message in enumerate(messages):
        if message.get("role") not in BLOCKS_BY_ROLE:
            yield f"messages.{index}.role: Input should be 'user' or 'assistant'"
        yield from check_extra_fields(message, {"role", "content", "output_config", "clear_at"}, f"messages.{index}.")
    if messages and messages[0].get("role") == "assistant" and not is_since(model, MODEL_FAMILIES, (4, 5)):
        yield 'messages: first message must use the "user" role'
    if messages and messages[-1].get("role") == "assistant":
        yield from _check_prefill(messages[-1], model)


def _check_prefill(message: Object, model: str) -> Iterator[str]:
    if is_since(model, MODEL_FAMILIES, (4, 6)):
        yield "This model does not support assistant message prefill. The conversation must end with a user message."
    blocks = message_blocks(message)
    if blocks and blocks[-1].get("type") == "text" and blocks[-1]["text"] != blocks[-1]["text"].rstrip():
        yield "messages: final assistant content cannot end with trailing whitespace"


MIN_SYSTEM_TURN_VERSIONS = {"opus": (4, 8), "fable": (5, 0), "sonnet": (5, 5), "haiku": (5, 5), "mythos": (5, 0)}


def check_system_turns(body: Object, model: str) -> Iterator[str]:
    messages = objects(body.get("messages"))
    first_version = next((version for family, version in MIN_SYSTEM_TURN_VERSIONS.items() if family in model), (0, 0))
    for index, message in enumerate(messages):
        if message.get("role") != "system":
            continue
        if is_before(model, MODEL_FAMILIES, first_version):
            yield f"messages.{index}: role 'system' is not supported on this model"
        if index == 0:
            yield "messages.0: use the top-level 'system' parameter for the initial system prompt"
            continue
        before, after = messages[index - 1].get("role"), messages[index + 1 : index + 2]
        if before == "system" or (before == "assistant" and not _ends_in_server_result(messages[index - 1])):
            yield f"messages.{index}: role 'system' must follow a user turn"
        if after and after[0].get("role") != "assistant":
            yield f"messages.{index}: role 'system' must be last or be followed by an assistant turn"


def _ends_in_server_result(message: Object) -> bool:
    blocks = message_blocks(message)
    return bool(blocks) and blocks[-1].get("type") in SERVER_RESULTS


def check_contents(body: Object, model: str) -> Iterator[str]:
    messages = objects(body.get("messages"))
    for index, message in enumerate(messages):
        at = f"messages.{index}"
        content = message.get("content")
        if not isinstance(content, (str, list)):
            yield f"{at}.content: Input should be a valid string or list"
            continue
        last_assistant = index == len(messages) - 1 and message.get("role") == "assistant"
        if not content and not last_assistant:
            yield f"{at}: all messages must have non-empty content except for the optional final assistant message"
            continue
        blocks = message_blocks(message)
        calls = any(block.get("type") == "tool_use" for block in blocks)
        for number, block in enumerate(blocks):
            if calls and block.get("type") == "text" and block.get("text"):
                continue  # models write blank text beside calls themselves, and Anthropic accepts it back
            yield from _check_block(block, message.get("role", ""), f"{at}.content.{number}")


def _check_block(block: Object, role: str, path: str) -> Iterator[str]:
    kind = block.get("type")
    if kind not in BLOCKS_BY_ROLE.get(role, ()):
        yield f"{path}: blocks of type {kind!r} are not permitted for role {role!r}"
        return
    if kind in BLOCK_CHECKS:
        yield from BLOCK_CHECKS[kind](block, path)


def _check_text_block(block: Object, path: str) -> Iterator[str]:
    text = block.get("text")
    if not isinstance(text, str):
        yield f"{path}.text.text: Input should be a valid string"
    elif not text:
        yield f"{path}: text content blocks must be non-empty"
    elif text.isspace():
        yield f"{path}: text content blocks must contain non-whitespace text"


def _check_image_block(block: Object, path: str) -> Iterator[str]:
    source = block.get("source") or {}
    kind = source.get("type")
    if kind not in ("base64", "url", "file"):
        yield f"{path}.image.source: Input tag does not match 'base64', 'url', 'file'"
    elif kind == "base64":
        if source.get("media_type") not in IMAGE_TYPES:
            yield f"{path}.image.source.base64.media_type: {source.get('media_type')!r}"
        if not source.get("data") or str(source["data"]).startswith("data:"):
            yield f"{path}.image.source.base64.data: must be plain base64"
    elif kind == "url" and not str(source.get("url", "")).startswith("http"):
        yield f"{path}.image.source.url: Only HTTPS URLs are supported."


def _check_document_block(block: Object, path: str) -> Iterator[str]:
    source = block.get("source") or {}
    if source.get("type") not in ("base64", "text", "content", "url", "file"):
        yield f"{path}.document.source: Input tag does not match the expected tags"
    elif source["type"] == "base64" and source.get("media_type") != "application/pdf":
        yield f"{path}.document.source.base64.media_type: Input should be 'application/pdf'"


def _check_tool_use_block(block: Object, path: str) -> Iterator[str]:
    if not matches(CALL_ID, block.get("id")):
        yield f"{path}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$', got {block.get('id')!r}"
    if not matches(CALL_NAME, block.get("name")):
        yield f"{path}.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{{1,200}}$', got {block.get('name')!r}"
    if not isinstance(block.get("input"), dict):
        yield f"{path}.tool_use.input: Input should be a valid dictionary"
    yield from check_extra_fields(block, TOOL_USE_FIELDS, f"{path}.tool_use.")


def _check_tool_result_block(block: Object, path: str) -> Iterator[str]:
    yield from check_extra_fields(block, TOOL_RESULT_FIELDS, f"{path}.tool_result.")
    if not matches(CALL_ID, block.get("tool_use_id")):
        yield f"{path}.tool_result.tool_use_id: String should match pattern '^[a-zA-Z0-9_-]+$'"
    content = block.get("content")
    if content is not None and not isinstance(content, (str, list)):
        yield f"{path}.tool_result.content: Input should be a valid string or list"
    for number, inner in numbered_objects(content):
        if inner.get("type") not in RESULT_BLOCKS:
            yield f"{path}.tool_result.content.{number}: Input tag {inner.get('type')!r} does not match"
        elif inner["type"] in BLOCK_CHECKS:
            yield from BLOCK_CHECKS[inner["type"]](inner, f"{path}.tool_result.content.{number}")


def _check_thinking_block(block: Object, path: str) -> Iterator[str]:
    if not isinstance(block.get("signature"), str) or not block["signature"]:
        yield f"{path}.thinking.signature: Field required"
    if not isinstance(block.get("thinking"), str):
        yield f"{path}.thinking.thinking: Field required"
    if "cache_control" in block:
        yield f"{path}.thinking.cache_control: Extra inputs are not permitted"


def _check_redacted_block(block: Object, path: str) -> Iterator[str]:
    if not block.get("data"):
        yield f"{path}.redacted_thinking.data: Field required"


def _check_server_tool_use_block(block: Object, path: str) -> Iterator[str]:
    if not SERVER_ID.fullmatch(str(block.get("id", ""))):
        yield f"{path}.server_tool_use.id: String should match pattern '^srvtoolu_[a-zA-Z0-9_]+$'"


BLOCK_CHECKS: dict[Json, Callable[[Object, str], Iterator[str]]] = {
    "text": _check_text_block,
    "image": _check_image_block,
    "document": _check_document_block,
    "tool_use": _check_tool_use_block,
    "tool_result": _check_tool_result_block,
    "thinking": _check_thinking_block,
    "redacted_thinking": _check_redacted_block,
    "server_tool_use": _check_server_tool_use_block,
}


def check_pairs(body: Object, model: str) -> Iterator[str]:
    """Each call must have one result in the next message, and each result a call in the message before."""
    messages = objects(body.get("messages"))
    if model.startswith("claude-3-"):
        return  # Claude 3 does not check this
    seen: set[str] = set()
    pending: list[str] = []
    for index, message in enumerate(messages):
        blocks = message_blocks(message)
        results = [block.get("tool_use_id", "") for block in blocks if block.get("type") == "tool_result"]
        if message.get("role") == "user":
            yield from _check_results(index, pending, results, blocks)
            pending = []
        elif pending:
            yield f"messages.{index}: {UNANSWERED_TEXT}: {pending}"
            pending = []
        for block in blocks:
            if block.get("type") == "tool_use":
                if block.get("id", "") in seen:
                    yield f"messages.{index}: `tool_use` ids must be unique, {block.get('id')!r}"
                seen.add(block.get("id", ""))
                pending.append(block.get("id", ""))


def _check_results(index: int, pending: list[str], results: list[str], blocks: list[Object]) -> Iterator[str]:
    missing = [id for id in pending if id not in results]
    if missing:
        yield f"messages.{index}: {UNANSWERED_TEXT}: {missing}"
    for id in results:
        if id not in pending:
            yield f"messages.{index}: unexpected `tool_use_id` found in `tool_result` blocks: {id}"
    if len(set(results)) < len(results):
        yield f"messages.{index}: each tool_use must have a single result"
    kinds = [block.get("type") == "tool_result" for block in blocks]
    if results and not all(kinds[: len(results)]):
        yield f"messages.{index}: tool_result blocks must come first in the content"


def check_manual_thinking(body: Object, model: str) -> Iterator[str]:
    """With a thinking budget, the last assistant turn of a tool loop must begin with its thinking."""
    messages = objects(body.get("messages"))
    if (body.get("thinking") or {}).get("type") != "enabled" or len(messages) < 2:
        return
    blocks = message_blocks(messages[-2]) if messages[-2].get("role") == "assistant" else []
    if any(b.get("type") == "tool_use" for b in blocks) and not str(blocks[0].get("type")).endswith("thinking"):
        yield "Expected `thinking` or `redacted_thinking`, but found another block first in the last assistant turn"


# --- fields and settings ----------------------------------------------------------------------------------------------

KNOWN_FIELDS = frozenset(
    "model max_tokens messages system tools tool_choice thinking output_config stop_sequences stream"
    " metadata service_tier cache_control container speed inference_geo diagnostics temperature top_p top_k"
    " mcp_servers context_management compaction thread fallbacks fallback_credit_token".split()
)
THINKING_FIELDS = {
    "adaptive": frozenset({"type", "display", "block_binding"}),
    "enabled": frozenset({"type", "budget_tokens", "display", "block_binding"}),
    "disabled": frozenset({"type"}),
    "between_tools": frozenset({"type", "block_binding"}),
}


def check_fields(body: Object, model: str) -> Iterator[str]:
    yield from check_unknown_keys(body, KNOWN_FIELDS)
    if not isinstance(body.get("model"), str) or not body["model"]:
        yield "model: Field required"
    limit = body.get("max_tokens")
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
        yield "max_tokens: Field required"
    if not isinstance(body.get("messages"), list) or not body["messages"]:
        yield "messages: at least one message is required"
    yield from check_extra_fields(body.get("metadata") or {}, {"user_id"}, "metadata.")
    yield from check_extra_fields(body.get("output_config") or {}, OUTPUT_FIELDS, "output_config.")
    for index, text in enumerate(body.get("stop_sequences") or []):
        if not isinstance(text, str) or not text.strip():
            yield f"stop_sequences.{index}: each stop sequence must contain non-whitespace"
    if any(not server.get("url") or not server.get("name") for server in objects(body.get("mcp_servers"))):
        yield "mcp_servers: url and name are required"


def check_system(body: Object, model: str) -> Iterator[str]:
    content = body.get("system")
    if content is None or isinstance(content, str):
        return
    for index, block in enumerate(content):
        if not isinstance(block, dict) or block.get("type") != "text":
            yield f"system.{index}: Input should be a text block"
        elif not str(block.get("text", "")).strip():
            yield f"system.{index}: text content blocks must be non-empty"


def check_sampling(body: Object, model: str) -> Iterator[str]:
    """Newer models accept no sampling parameters."""
    if not is_since(model, MODEL_FAMILIES, (4, 7)):
        return
    for key, default in (("temperature", 1), ("top_p", 1), ("top_k", None)):
        if body.get(key) not in (None, default):
            yield f"{key}: not supported for this model"


def check_thinking(body: Object, model: str) -> Iterator[str]:
    config = body.get("thinking")
    if config is None:
        return
    kind = config.get("type")
    if kind not in THINKING_FIELDS:
        yield f"thinking.type: {kind!r} is not known"
        return
    yield from check_unknown_keys(config, THINKING_FIELDS[kind], "thinking.")
    if kind == "enabled":
        budget = config.get("budget_tokens")
        if not isinstance(budget, int) or budget < 1024:
            yield "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
        elif isinstance(body.get("max_tokens"), int) and budget >= body["max_tokens"]:
            yield "max_tokens must be greater than thinking.budget_tokens"
    yield from _check_thinking_model(kind, model)


def _check_thinking_model(kind: str, model: str) -> Iterator[str]:
    since_5_5 = is_since(model, MODEL_FAMILIES, (5, 5))
    always_thinks = "fable" in model or "mythos" in model or (since_5_5 and ("opus" in model or "sonnet" in model))
    refused = {
        "enabled": is_since(model, MODEL_FAMILIES, (4, 7)),
        "disabled": always_thinks,
        "between_tools": model_version(model, MODEL_FAMILIES) is not None and not (since_5_5 and "sonnet" in model),
    }
    if refused.get(kind):
        yield f'thinking.type: "{kind}" is not supported for this model'


def check_breakpoints(body: Object, model: str) -> Iterator[str]:
    count = int(body.get("cache_control") is not None)
    count += sum(_count_breakpoints(body.get(part)) for part in ("system", "tools", "messages"))
    if count > 4:
        yield f"A maximum of 4 blocks with cache_control may be provided. Found {count}."


def _count_breakpoints(value: Json) -> int:
    """How many blocks have cache_control; the inputs of calls and schemas are not searched."""
    if isinstance(value, list):
        return sum(map(_count_breakpoints, value))
    if not isinstance(value, dict):
        return 0
    inner = value.get("content")
    return int(value.get("cache_control") is not None) + (_count_breakpoints(inner) if isinstance(inner, list) else 0)


def check_formats(body: Object, model: str) -> Iterator[str]:
    config = (body.get("output_config") or {}).get("format")
    if config is None:
        return
    if config.get("type") != "json_schema" or not isinstance(config.get("schema"), dict):
        yield "output_config.format: expected a json_schema with its schema"
    else:
        yield from check_grammar_schema(config["schema"], "output_config.format.schema")


CHECKS: tuple[RequestCheck, ...] = (
    check_fields,
    check_system,
    check_sampling,
    check_thinking,
    check_breakpoints,
    check_formats,
    check_roles,
    check_system_turns,
    check_contents,
    check_pairs,
    check_manual_thinking,
    check_tools,
    check_tool_choice,
)
