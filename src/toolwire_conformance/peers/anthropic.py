"""Anthropic Messages: a provider's answers, and how a client reads them (SDK 2.x and Claude Code)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby

from toolwire_conformance import Json, Object
from toolwire_conformance.peers import peer
from toolwire_conformance.peers.checks import (
    check_unknown_keys,
    is_before,
    is_since,
    known_names,
    matches,
    model_version,
    numbered_objects,
    objects,
    refusals,
    schema_nodes,
)

# --- what the provider refuses --------------------------------------------------------------------------------------

NAMES = known_names("anthropic")
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
PROPERTY_KEY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
PROVIDER_TOOL_PREFIXES = (
    "bash_20", "text_editor_20", "memory_20", "computer_20", "web_search_20", "web_fetch_20", "code_execution_20",
    "tool_search_tool_", "advisor_20",
)  # fmt: skip
TOOLSET_PREFIXES = ("computer_toolset_20", "browser_toolset_20", "mcp_toolset")
MODEL_FAMILIES = "claude-(?:opus|sonnet|haiku|fable|mythos)"
UNFORCED_FAMILIES = "claude-(?:fable|mythos|opus|sonnet)"
UNSUPPORTED_KEYWORDS = (
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "maxItems",
)  # fmt: skip
check_extra_fields = partial(check_unknown_keys, text="{}: Extra inputs are not permitted")


def check_tools(body: Object, model: str) -> Iterator[str]:
    given = objects(body.get("tools"))
    contents = [message.get("content") for message in objects(body.get("messages"))]
    kinds = {block.get("type") for content in contents for block in objects(content)}
    if not given and not body.get("mcp_servers") and kinds & {"tool_use", "tool_result"}:
        yield "Requests which have `tool_use` or `tool_result` blocks in messages must define tools."
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
    yield from check_unknown_keys(tool, NAMES["fields"]["tool"], f"{path}.custom.")
    if tool.get("defer_loading") and tool.get("cache_control"):
        yield f"{path}: Tools with defer_loading cannot use prompt caching"
    schema, at = tool.get("input_schema"), f"{path}.custom.input_schema"
    if not isinstance(schema, dict):
        yield f"{at}: Field required"
        return
    if schema.get("type") != "object":
        yield f"{at}.type: Input should be 'object'"
    if schema.keys() & {"oneOf", "anyOf", "allOf"}:
        yield f"{at}: input_schema does not support oneOf, allOf, or anyOf at the top level"
    for key in schema.get("properties") or {}:
        if not PROPERTY_KEY.fullmatch(key):
            yield f"{at}.properties: Property keys should match pattern, got {key!r}"
    if tool.get("strict"):
        yield from check_grammar_schema(schema, at)


def check_grammar_schema(schema: Json, path: str) -> Iterator[str]:
    """The subset of JSON Schema for strict tools and output formats."""
    for place, node in schema_nodes(schema, path):
        kind = node.get("type")
        if kind == "object" and node.get("additionalProperties") is not False:
            yield f"{place}: For 'object' type, 'additionalProperties' must be explicitly set to false"
        refused = (key for key in UNSUPPORTED_KEYWORDS if key in node)
        yield from (f"{place}: For '{kind}' type, property '{key}' is not supported" for key in refused)


def check_tool_choice(body: Object, model: str) -> Iterator[str]:
    chosen, tools = body.get("tool_choice"), body.get("tools")
    if chosen is None:
        return
    if not isinstance(chosen, dict) or chosen.get("type") not in list(NAMES["tool_choice"]):
        yield "tool_choice: Input tag does not match any of the expected tags: 'auto', 'any', 'tool', 'none'"
        return
    kind = chosen["type"]
    if not tools:
        yield "tool_choice may only be specified while providing tools"
    yield from check_unknown_keys(chosen, NAMES["tool_choice"][kind], f"tool_choice.{kind}.")
    if kind == "tool" and chosen.get("name") not in [tool.get("name") for tool in objects(tools)]:
        yield f"tool_choice: Tool '{chosen.get('name')}' not found in provided tools"
    if kind in ("any", "tool"):
        if (body.get("thinking") or {}).get("type") == "enabled":
            yield "Thinking may not be enabled when tool_choice forces tool use."
        always_refused = ("fable" in model or "mythos" in model) and model_version(model, UNFORCED_FAMILIES)
        if always_refused or is_since(model, UNFORCED_FAMILIES, (5, 5)):
            yield 'tool_choice: type "tool" and "any" are not supported for this model'


# --- messages -------------------------------------------------------------------------------------------------------

MESSAGE_BLOCKS = {role: NAMES["blocks"][role] for role in ("user", "assistant", "system")}
CALL_ID = re.compile(r"[a-zA-Z0-9_-]+")
SERVER_ID = re.compile(r"srvtoolu_[a-zA-Z0-9_]+")
CALL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,200}")
UNANSWERED_TEXT = "`tool_use` ids were found without `tool_result` blocks immediately after"
PREFILL_TEXT = "This model does not support assistant message prefill. The conversation must end with a user message."
IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
MIN_SYSTEM_TURN_VERSIONS = {"opus": (4, 8), "fable": (5, 0), "sonnet": (5, 5), "haiku": (5, 5), "mythos": (5, 0)}


def message_blocks(message: Object) -> list[Object]:
    content = message.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else objects(content)


def check_roles(body: Object, model: str) -> Iterator[str]:
    messages = objects(body.get("messages"))
    for index, message in enumerate(messages):
        if message.get("role") not in MESSAGE_BLOCKS:
            yield f"messages.{index}.role: Input should be 'user' or 'assistant'"
        yield from check_extra_fields(message, NAMES["fields"]["message"], f"messages.{index}.")
    if messages and messages[0].get("role") == "assistant" and not is_since(model, MODEL_FAMILIES, (4, 5)):
        yield 'messages: first message must use the "user" role'
    if messages and messages[-1].get("role") == "assistant":
        blocks = message_blocks(messages[-1])
        if is_since(model, MODEL_FAMILIES, (4, 6)) and not _is_paused_turn(blocks):
            yield PREFILL_TEXT
        if blocks and blocks[-1].get("type") == "text" and blocks[-1]["text"] != blocks[-1]["text"].rstrip():
            yield "messages: final assistant content cannot end with trailing whitespace"


def _is_paused_turn(blocks: list[Object]) -> bool:
    """Is it the content of an answer that ended in `pause_turn`, which is sent back to be continued?"""
    kind = str(blocks[-1].get("type")) if blocks else ""
    return kind == "server_tool_use" or (kind != "tool_result" and kind.endswith("_tool_result"))


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
    kinds = [block.get("type") for block in message_blocks(message)]
    return bool(kinds) and kinds[-1] in NAMES["blocks"]["assistant"] and kinds[-1].endswith("_tool_result")


def check_contents(body: Object, model: str) -> Iterator[str]:
    messages = objects(body.get("messages"))
    for index, message in enumerate(messages):
        at, content, role = f"messages.{index}", message.get("content"), message.get("role", "")
        if not isinstance(content, (str, list)):
            yield f"{at}.content: Input should be a valid string or list"
            continue
        if not content and not (index == len(messages) - 1 and role == "assistant"):
            yield f"{at}: all messages must have non-empty content except for the optional final assistant message"
            continue
        blocks = message_blocks(message)
        calls = any(block.get("type") == "tool_use" for block in blocks)
        for number, block in enumerate(blocks):
            kind = block.get("type")
            if calls and kind == "text" and block.get("text"):
                continue  # models write blank text beside calls themselves, and Anthropic accepts it back
            if kind not in MESSAGE_BLOCKS.get(role, ()):
                yield f"{at}.content.{number}: blocks of type {kind!r} are not permitted for role {role!r}"
            elif kind in BLOCK_CHECKS:
                yield from BLOCK_CHECKS[kind](block, f"{at}.content.{number}")


def _check_text_block(block: Object, path: str) -> Iterator[str]:
    text = block.get("text")
    if not isinstance(text, str):
        yield f"{path}.text.text: Input should be a valid string"
    elif not text.strip():
        yield f"{path}: text content blocks must {'contain non-whitespace text' if text else 'be non-empty'}"


def _check_image_block(block: Object, path: str) -> Iterator[str]:
    source, at = block.get("source") or {}, f"{path}.image.source"
    kind = source.get("type")
    if kind not in ("base64", "url", "file"):
        yield f"{at}: Input tag does not match 'base64', 'url', 'file'"
    elif kind == "base64":
        if source.get("media_type") not in IMAGE_TYPES:
            yield f"{at}.base64.media_type: {source.get('media_type')!r}"
        if not source.get("data") or str(source["data"]).startswith("data:"):
            yield f"{at}.base64.data: must be plain base64"
    elif kind == "url" and not str(source.get("url", "")).startswith("http"):
        yield f"{at}.url: Only HTTPS URLs are supported."


def _check_document_block(block: Object, path: str) -> Iterator[str]:
    source = block.get("source") or {}
    if source.get("type") not in ("base64", "text", "content", "url", "file"):
        yield f"{path}.document.source: Input tag does not match the expected tags"
    elif source["type"] == "base64" and source.get("media_type") != "application/pdf":
        yield f"{path}.document.source.base64.media_type: Input should be 'application/pdf'"


def _check_tool_use_block(block: Object, path: str) -> Iterator[str]:
    id, name, at = block.get("id"), block.get("name"), f"{path}.tool_use"
    if not matches(CALL_ID, id):
        yield f"{at}.id: String should match pattern '^[a-zA-Z0-9_-]+$', got {id!r}"
    if not matches(CALL_NAME, name):
        yield f"{at}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,200}}$', got {name!r}"
    if not isinstance(block.get("input"), dict):
        yield f"{at}.input: Input should be a valid dictionary"
    yield from check_extra_fields(block, NAMES["fields"]["tool_use"], f"{at}.")


def _check_tool_result_block(block: Object, path: str) -> Iterator[str]:
    at, content = f"{path}.tool_result", block.get("content")
    yield from check_extra_fields(block, NAMES["fields"]["tool_result"], f"{at}.")
    if not matches(CALL_ID, block.get("tool_use_id")):
        yield f"{at}.tool_use_id: String should match pattern '^[a-zA-Z0-9_-]+$'"
    if content is not None and not isinstance(content, (str, list)):
        yield f"{at}.content: Input should be a valid string or list"
    for number, inner in numbered_objects(content):
        if inner.get("type") not in NAMES["blocks"]["tool_result"]:
            yield f"{at}.content.{number}: Input tag {inner.get('type')!r} does not match"
        elif inner["type"] in BLOCK_CHECKS:
            yield from BLOCK_CHECKS[inner["type"]](inner, f"{at}.content.{number}")


def _check_thinking_block(block: Object, path: str) -> Iterator[str]:
    signature = block.get("signature")
    return refusals(
        (not isinstance(signature, str) or not signature, f"{path}.thinking.signature: Field required"),
        (not isinstance(block.get("thinking"), str), f"{path}.thinking.thinking: Field required"),
        ("cache_control" in block, f"{path}.thinking.cache_control: Extra inputs are not permitted"),
    )


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
    "redacted_thinking": lambda block, path: refusals(
        (not block.get("data"), f"{path}.redacted_thinking.data: Field required")
    ),
    "server_tool_use": _check_server_tool_use_block,
}


def check_pairs(body: Object, model: str) -> Iterator[str]:
    """Each call must have one result in the next turn, and each result a call in the turn before. Consecutive messages
    of one role are one turn."""
    if model.startswith("claude-3-"):
        return  # Claude 3 does not check this
    seen: set[str] = set()
    pending: list[str] = []
    for index, role, blocks in _merged_turns(body):
        if role == "user":
            yield from _check_results(index, pending, blocks)
        elif pending:
            yield f"messages.{index}: {UNANSWERED_TEXT}: {pending}"
        pending = [block.get("id", "") for block in blocks if block.get("type") == "tool_use"]
        for id in pending:
            if id in seen:
                yield f"messages.{index}: `tool_use` ids must be unique, {id!r}"
            seen.add(id)


def _merged_turns(body: Object) -> Iterator[tuple[int, str, list[Object]]]:
    """The index of the first message of each turn, its role and its blocks."""
    messages = enumerate(objects(body.get("messages")))
    for role, group in groupby(messages, lambda row: str(row[1].get("role"))):
        merged = list(group)
        yield merged[0][0], role, [block for _, message in merged for block in message_blocks(message)]


def _check_results(index: int, pending: list[str], blocks: list[Object]) -> Iterator[str]:
    kinds = [block.get("type") == "tool_result" for block in blocks]
    results = [block.get("tool_use_id", "") for block in blocks if block.get("type") == "tool_result"]
    if missing := [id for id in pending if id not in results]:
        yield f"messages.{index}: {UNANSWERED_TEXT}: {missing}"
    unexpected = [id for id in results if id not in pending]
    yield from (f"messages.{index}: unexpected `tool_use_id` found in `tool_result` blocks: {id}" for id in unexpected)
    if len(set(results)) < len(results):
        yield f"messages.{index}: each tool_use must have a single result"
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


# --- fields and settings --------------------------------------------------------------------------------------------


def check_fields(body: Object, model: str) -> Iterator[str]:
    yield from check_unknown_keys(body, NAMES["fields"]["request"])
    name, limit, messages = body.get("model"), body.get("max_tokens"), body.get("messages")
    yield from refusals(
        (not isinstance(name, str) or not name, "model: Field required"),
        (not isinstance(limit, int) or isinstance(limit, bool) or limit < 0, "max_tokens: Field required"),
        (not isinstance(messages, list) or not messages, "messages: at least one message is required"),
    )
    for field in ("metadata", "output_config"):
        yield from check_extra_fields(body.get(field) or {}, NAMES["fields"][field], f"{field}.")
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
    if is_since(model, MODEL_FAMILIES, (4, 7)):
        for key, default in (("temperature", 1), ("top_p", 1), ("top_k", None)):
            if body.get(key) not in (None, default):
                yield f"{key}: not supported for this model"


def check_thinking(body: Object, model: str) -> Iterator[str]:
    config = body.get("thinking")
    if config is None:
        return
    kind = config.get("type")
    if kind not in NAMES["thinking"]:
        yield f"thinking.type: {kind!r} is not known"
        return
    yield from check_unknown_keys(config, NAMES["thinking"][kind], "thinking.")
    if kind == "enabled":
        budget = config.get("budget_tokens")
        if not isinstance(budget, int) or budget < 1024:
            yield "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
        elif isinstance(body.get("max_tokens"), int) and budget >= body["max_tokens"]:
            yield "max_tokens must be greater than thinking.budget_tokens"
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
    return refusals((count > 4, f"A maximum of 4 blocks with cache_control may be provided. Found {count}."))


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


# --- the provider's answers -----------------------------------------------------------------------------------------

USAGE: Object = {"input_tokens": 25, "output_tokens": 12}
ALLOWED_DELTAS = {
    "text": {"text_delta", "citations_delta"},
    "thinking": {"thinking_delta", "signature_delta"},
    "tool_use": {"input_json_delta"},
    "server_tool_use": {"input_json_delta"},
    "mcp_tool_use": {"input_json_delta"},
}


def _unfold_block(block: Object) -> tuple[Object, list[Object]]:
    match block["type"]:
        case "text":
            cited = [{"type": "citations_delta", "citation": one} for one in block.get("citations") or ()]
            texts = [{"type": "text_delta", "text": text} for text in peer.split_text(block["text"])]
            return {**block, "text": ""} | ({"citations": []} if cited else {}), [*cited, *texts]
        case "thinking":
            thoughts = [{"type": "thinking_delta", "thinking": text} for text in peer.split_text(block["thinking"])]
            signed: Object = {"type": "signature_delta", "signature": block["signature"]}
            return {"type": "thinking", "thinking": "", "signature": ""}, [*thoughts, signed]
        case "tool_use" | "server_tool_use":
            text = peer.encode_json(block["input"]) if block["input"] else ""
            parts = ["", *peer.split_text(text)]
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": part} for part in parts]
    return block, []


# --- the client -----------------------------------------------------------------------------------------------------


class _ClientReader:
    """Adds up a stream; each method takes one event."""

    def __init__(self) -> None:
        self.message: Object = {}
        self.violations: list[str] = []
        self.minor_violations: list[str] = []
        self.open_blocks: dict[int, tuple[Object, list[str]]] = {}
        """The open blocks, and the JSON received for each."""
        self.is_ended = False

    def read_message_start(self, data: Object) -> None:
        if self.message:
            self.violations.append("a second message_start")
        self.message = {**data["message"], "content": list(data["message"].get("content") or [])}
        for key in ("id", "role", "model"):
            if not self.message.get(key):
                self.minor_violations.append(f"message_start without {key}")
        if not self.message.get("usage"):
            self.violations.append("message_start without usage")

    def read_block_start(self, data: Object) -> None:
        if self.open_blocks:
            self.minor_violations.append(f"block {data['index']} starts while block {max(self.open_blocks)} is open")
        if data["index"] != len(self.message["content"]):
            self.violations.append(f"block index {data['index']}, expected {len(self.message['content'])}")
        block = dict(data["content_block"])
        if block["type"] in ("tool_use", "server_tool_use"):
            if block.get("input") != {}:
                self.violations.append(f"content_block_start of {block['type']} contains input, which clients ignore")
            block["input"] = {}
        self.message["content"].append(block)
        self.open_blocks[data["index"]] = block, []

    def read_block_delta(self, data: Object) -> None:
        if data["index"] not in self.open_blocks:
            self.violations.append(f"delta for block {data['index']}, open is {self._open_block_text()}")
            return
        (block, parts), delta = self.open_blocks[data["index"]], data["delta"]
        kind = delta["type"]
        if kind not in ALLOWED_DELTAS.get(block["type"], set()):
            self.violations.append(f"mismatched content block type: {kind} in a block of type {block['type']}")
            return
        if kind == "input_json_delta":
            parts.append(delta["partial_json"])
        elif kind == "citations_delta":
            block["citations"] = [*(block.get("citations") or []), delta["citation"]]
        elif kind == "signature_delta":
            block["signature"] = delta["signature"]
        else:
            key = kind.removesuffix("_delta")  # text or thinking
            block[key] += delta[key]

    def read_block_stop(self, data: Object) -> None:
        if data["index"] not in self.open_blocks:
            self.violations.append(f"block {data['index']} stops, open is {self._open_block_text()}")
            return
        block, parts = self.open_blocks.pop(data["index"])
        if text := "".join(parts):
            try:
                block["input"] = json.loads(text)
            except ValueError:
                block["input"] = {"__unparsedToolInput": text}

    def _open_block_text(self) -> str:
        return ", ".join(map(str, self.open_blocks)) or "none"

    def read_message_delta(self, data: Object) -> None:
        if not isinstance(data.get("usage"), dict):
            self.violations.append("message_delta without usage")
        if self.open_blocks:
            self.violations.append(f"message_delta while block {self._open_block_text()} is open")
        self.message.update(data["delta"])
        self.message["usage"] = {**self.message.get("usage", {}), **(data.get("usage") or {})}

    def read_message_stop(self, data: Object) -> None:
        self.is_ended = True
        if not self.message.get("stop_reason"):
            self.violations.append("message_stop without a stop_reason")

    def read_error(self, data: Object) -> None:
        self.is_ended = True
        self.message["error"] = data["error"]


EVENT_READERS: dict[str, Callable[[_ClientReader, Object], None]] = {
    "message_start": _ClientReader.read_message_start,
    "content_block_start": _ClientReader.read_block_start,
    "content_block_delta": _ClientReader.read_block_delta,
    "content_block_stop": _ClientReader.read_block_stop,
    "message_delta": _ClientReader.read_message_delta,
    "message_stop": _ClientReader.read_message_stop,
    "error": _ClientReader.read_error,
}


def _read_frames(reader: _ClientReader, frames: list[peer.SseFrame]) -> Iterator[str]:
    for frame in frames:
        event = frame.event
        if event is None:
            ignored = f"a frame without an event line is ignored: {frame.text[:80]}"
            if reader.is_ended and frame.text == "[DONE]":
                reader.minor_violations.append(ignored)
            elif frame.text:
                yield ignored
            continue
        if not isinstance(frame.data, dict) or frame.data.get("type") != event:
            yield f"event {event} has data of another type: {frame.text[:80]}"
            continue
        if reader.is_ended:
            yield f"{event} after the end"
        if not reader.message and event not in ("message_start", "ping", "error"):
            yield f"{event} before message_start"
        elif event in EVENT_READERS:
            EVENT_READERS[event](reader, frame.data)
    if not reader.is_ended:
        yield "the stream ended without message_stop or error"


SEAL = "EuYBCkQYAiJAsealed+thoughts/of+the/model0A=="
THOUGHT = "Two places."


class AnthropicPeer(peer.Peer):
    name = "anthropic"
    short_name = "anthropic"
    http = peer.PeerHttp(
        path="/v1/messages",
        path_pattern=re.compile(r"/messages$"),
        other_paths={"count": "/v1/messages/count_tokens"},
        count_path="/messages/count_tokens",
        credential=("x-api-key", "{key}"),
        headers={"anthropic-version": "2023-06-01"},
    )
    model = "claude-opus-5-5"
    sealing_model = "claude-opus-5-5"
    turns_key = "messages"
    checks = (
        check_fields, check_system, check_sampling, check_thinking, check_breakpoints, check_formats, check_roles,
        check_system_turns, check_contents, check_pairs, check_manual_thinking, check_tools, check_tool_choice,
    )  # fmt: skip

    def complete_answer(self, body: Object, model: str) -> Object:
        head = {"id": "msg_01Conformance", "type": "message", "role": "assistant", "model": model}
        return {**head, "stop_sequence": None, "usage": dict(USAGE), **body}

    def write_stream(self, body: Object) -> list[str]:
        usage: Object = body["usage"]
        empty: Object = {"content": [], "stop_reason": None, "stop_sequence": None}
        start = {**body, **empty, "usage": {**usage, "output_tokens": 1}}
        frames: list[Object] = [{"type": "message_start", "message": start}]
        for index, block in enumerate(body["content"]):
            start_block, deltas = _unfold_block(block)
            frames.append({"type": "content_block_start", "index": index, "content_block": start_block})
            frames += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
            frames.append({"type": "content_block_stop", "index": index})
        ending = {"stop_reason": body["stop_reason"], "stop_sequence": body["stop_sequence"]}
        frames += [{"type": "message_delta", "delta": ending, "usage": usage}, {"type": "message_stop"}]
        return [peer.write_frame(frame["type"], frame) for frame in frames]

    def complete_frame(self, frame: Object, model: str, earlier: list[Json]) -> str:
        if frame["type"] == "message_start":
            message = self.complete_answer({"content": [], "stop_reason": None}, model) | frame.get("message", {})
            frame = {**frame, "message": message}
        if frame["type"] == "message_delta":
            frame = {"usage": {"output_tokens": USAGE["output_tokens"]}, **frame}
            frame["delta"] = {"stop_sequence": None, **frame["delta"]}
        return peer.write_frame(frame["type"], frame)

    def fold_stream(self, frames: list[peer.SseFrame]) -> peer.FoldedStream:
        reader = _ClientReader()
        reader.violations.extend(_read_frames(reader, frames))
        return peer.folded_stream(reader.message, reader.violations, reader.minor_violations)

    def history_turns(self, body: Object) -> list[Json]:
        return [{"role": "assistant", "content": body["content"]}]

    # --- a conversation with tools ----------------------------------------------------------------------------------

    def write_prompt(self, prompt: str) -> Object:
        return {"max_tokens": 1000, "messages": [{"role": "user", "content": prompt}]}

    def write_tools(self, tools: Sequence[peer.ScenarioTool]) -> list[Json]:
        return [{"name": tool.name, "description": tool.description, "input_schema": tool.parameters} for tool in tools]

    def write_answer(self, answer: peer.ModelAnswer) -> Object:
        content: list[Json] = []
        if answer.is_sealed:
            content.append({"type": "thinking", "thinking": THOUGHT, "signature": SEAL})
        if answer.text:
            content.append({"type": "text", "text": answer.text})
        for number, (name, arguments) in enumerate(answer.calls):
            content.append({"type": "tool_use", "id": f"toolu_01Rz5Np{number}", "name": name, "input": arguments})
        return {"content": content, "stop_reason": "tool_use" if answer.calls else "end_turn"}

    def write_results(self, body: Object, texts: Sequence[str]) -> list[Json]:
        ids = [block["id"] for block in body["content"] if block.get("type") == "tool_use"]
        pairs = zip(ids, texts, strict=True)
        results = [{"type": "tool_result", "tool_use_id": id, "content": text} for id, text in pairs]
        return [{"role": "user", "content": results}]

    def expect_tool(self, tool: peer.ScenarioTool) -> Json:
        return {"name": tool.name, "input_schema": peer.expect_properties(tool)}

    def expect_call(self, name: str, arguments: Object, id: Json) -> Json:
        return {"type": "tool_use", "id": id, "name": name, "input": {"$is": arguments}}

    def expect_answer(self, answer: peer.ModelAnswer) -> Json:
        content = peer.exactly_these(self.expect_calls(answer, "c"), {"type": "tool_use"}, answer.text)
        return {"role": "assistant", "content": content, "stop_reason": "tool_use" if answer.calls else "end_turn"}

    def expect_model_turns(self, answer: peer.ModelAnswer, calls: list[Json]) -> list[Json]:
        thought = [{"type": "thinking", "thinking": THOUGHT, "signature": {"$is": SEAL}}] if answer.is_sealed else []
        return [{"role": "assistant", "content": {"$contains": [*thought, *calls]}}]

    def expect_result(self, name: str, id: str, text: str) -> Json:
        return {"type": "tool_result", "tool_use_id": id, "content": {"$within": text}}

    def result_turn_options(self, results: list[Json]) -> list[list[Json]]:
        options = peer.grouping_options(results)
        return [[{"role": "user", "content": {"$contains": group}} for group in groups] for groups in options]
