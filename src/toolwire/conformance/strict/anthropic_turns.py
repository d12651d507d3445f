"""What Anthropic Messages refuses in `messages`: roles and their order, blocks, calls and their results."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise

from toolwire.conformance.strict.check import Check, Json, Object, numbered, objects, version

FAMILIES = "claude-(?:opus|sonnet|haiku|fable|mythos)"
ID = re.compile(r"[a-zA-Z0-9_-]+")
SERVER_ID = re.compile(r"srvtoolu_[a-zA-Z0-9_]+")
NAME = re.compile(r"[a-zA-Z0-9_-]{1,200}")
SERVER_RESULTS = frozenset(
    "web_search_tool_result web_fetch_tool_result code_execution_tool_result bash_code_execution_tool_result"
    " text_editor_code_execution_tool_result tool_search_tool_result mcp_tool_result advisor_tool_result".split()
)
BLOCKS = {
    "user": frozenset({"text", "image", "document", "search_result", "tool_result", "container_upload"}),
    "assistant": SERVER_RESULTS
    | frozenset(
        "text thinking redacted_thinking tool_use server_tool_use mcp_tool_use mcp_tool_listing compaction fallback"
        " container_upload".split()
    ),
    "system": frozenset({"text", "tool_addition", "tool_removal"}),
}
INSIDE_RESULT = frozenset({"text", "image", "document", "search_result", "tool_reference", "browser_state"})
UNANSWERED = "`tool_use` ids were found without `tool_result` blocks immediately after"
IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})


def blocks_of(message: Object) -> list[Object]:
    content = message.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else objects(content)


def roles(body: Object, model: str) -> Iterator[str]:
    messages = objects(body.get("messages"))
    for index, message in enumerate(messages):
        if message.get("role") not in BLOCKS:
            yield f"messages.{index}.role: Input should be 'user' or 'assistant'"
        for key in message.keys() - {"role", "content", "output_config", "clear_at"}:
            yield f"messages.{index}.{key}: Extra inputs are not permitted"
    made = version(model, FAMILIES)
    if messages and messages[0].get("role") == "assistant" and (made is None or made < (4, 5)):
        yield 'messages: first message must use the "user" role'
    if messages and messages[-1].get("role") == "assistant":
        yield from _prefill(messages[-1], model)


def _prefill(message: Object, model: str) -> Iterator[str]:
    made = version(model, FAMILIES)
    if made is not None and made >= (4, 6):
        yield "This model does not support assistant message prefill. The conversation must end with a user message."
    blocks = blocks_of(message)
    if blocks and blocks[-1].get("type") == "text" and blocks[-1]["text"] != blocks[-1]["text"].rstrip():
        yield "messages: final assistant content cannot end with trailing whitespace"


MID_SYSTEM = {"opus": (4, 8), "fable": (5, 0), "sonnet": (5, 5), "haiku": (5, 5), "mythos": (5, 0)}


def system_turns(body: Object, model: str) -> Iterator[str]:
    messages = objects(body.get("messages"))
    made = version(model, FAMILIES)
    for index, message in enumerate(messages):
        if message.get("role") != "system":
            continue
        line = next((line for line in MID_SYSTEM if line in model), None)
        if made is not None and line is not None and made < MID_SYSTEM[line]:
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
    blocks = blocks_of(message)
    return bool(blocks) and blocks[-1].get("type") in SERVER_RESULTS


def contents(body: Object, model: str) -> Iterator[str]:
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
        blocks = blocks_of(message)
        calls = any(block.get("type") == "tool_use" for block in blocks)
        for number, block in enumerate(blocks):
            if calls and block.get("type") == "text" and block.get("text"):
                continue  # models themselves write blank text beside calls, and it is taken back
            yield from _block(block, message.get("role", ""), f"{at}.content.{number}")


def _block(block: Object, role: str, at: str) -> Iterator[str]:
    kind = block.get("type")
    if kind not in BLOCKS.get(role, ()):
        yield f"{at}: blocks of type {kind!r} are not permitted for role {role!r}"
        return
    if kind in BLOCK_CHECKS:
        yield from BLOCK_CHECKS[kind](block, at)


def _text(block: Object, at: str) -> Iterator[str]:
    text = block.get("text")
    if not isinstance(text, str):
        yield f"{at}.text.text: Input should be a valid string"
    elif not text:
        yield f"{at}: text content blocks must be non-empty"
    elif text.isspace():
        yield f"{at}: text content blocks must contain non-whitespace text"


def _image(block: Object, at: str) -> Iterator[str]:
    source = block.get("source") or {}
    kind = source.get("type")
    if kind not in ("base64", "url", "file"):
        yield f"{at}.image.source: Input tag does not match 'base64', 'url', 'file'"
    elif kind == "base64":
        if source.get("media_type") not in IMAGES:
            yield f"{at}.image.source.base64.media_type: {source.get('media_type')!r}"
        if not source.get("data") or str(source["data"]).startswith("data:"):
            yield f"{at}.image.source.base64.data: must be plain base64"
    elif kind == "url" and not str(source.get("url", "")).startswith("http"):
        yield f"{at}.image.source.url: Only HTTPS URLs are supported."


def _document(block: Object, at: str) -> Iterator[str]:
    source = block.get("source") or {}
    if source.get("type") not in ("base64", "text", "content", "url", "file"):
        yield f"{at}.document.source: Input tag does not match the expected tags"
    elif source["type"] == "base64" and source.get("media_type") != "application/pdf":
        yield f"{at}.document.source.base64.media_type: Input should be 'application/pdf'"


def _tool_use(block: Object, at: str) -> Iterator[str]:
    if not isinstance(block.get("id"), str) or not ID.fullmatch(block["id"]):
        yield f"{at}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$', got {block.get('id')!r}"
    if not isinstance(block.get("name"), str) or not NAME.fullmatch(block["name"]):
        yield f"{at}.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{{1,200}}$', got {block.get('name')!r}"
    if not isinstance(block.get("input"), dict):
        yield f"{at}.tool_use.input: Input should be a valid dictionary"
    for key in block.keys() - {"type", "id", "name", "input", "caller", "toolset_name", "cache_control"}:
        yield f"{at}.tool_use.{key}: Extra inputs are not permitted"


def _tool_result(block: Object, at: str) -> Iterator[str]:
    for key in block.keys() - {"type", "tool_use_id", "content", "is_error", "toolset_name", "cache_control"}:
        yield f"{at}.tool_result.{key}: Extra inputs are not permitted"
    if not isinstance(block.get("tool_use_id"), str) or not ID.fullmatch(block["tool_use_id"]):
        yield f"{at}.tool_result.tool_use_id: String should match pattern '^[a-zA-Z0-9_-]+$'"
    content = block.get("content")
    if content is not None and not isinstance(content, (str, list)):
        yield f"{at}.tool_result.content: Input should be a valid string or list"
    for number, inner in numbered(content):
        if inner.get("type") not in INSIDE_RESULT:
            yield f"{at}.tool_result.content.{number}: Input tag {inner.get('type')!r} does not match"
        elif inner["type"] in BLOCK_CHECKS:
            yield from BLOCK_CHECKS[inner["type"]](inner, f"{at}.tool_result.content.{number}")


def _thinking(block: Object, at: str) -> Iterator[str]:
    if not isinstance(block.get("signature"), str) or not block["signature"]:
        yield f"{at}.thinking.signature: Field required"
    if not isinstance(block.get("thinking"), str):
        yield f"{at}.thinking.thinking: Field required"
    if "cache_control" in block:
        yield f"{at}.thinking.cache_control: Extra inputs are not permitted"


def _redacted(block: Object, at: str) -> Iterator[str]:
    if not block.get("data"):
        yield f"{at}.redacted_thinking.data: Field required"


def _server_tool_use(block: Object, at: str) -> Iterator[str]:
    if not SERVER_ID.fullmatch(str(block.get("id", ""))):
        yield f"{at}.server_tool_use.id: String should match pattern '^srvtoolu_[a-zA-Z0-9_]+$'"


BLOCK_CHECKS: dict[Json, Callable[[Object, str], Iterator[str]]] = {
    "text": _text,
    "image": _image,
    "document": _document,
    "tool_use": _tool_use,
    "tool_result": _tool_result,
    "thinking": _thinking,
    "redacted_thinking": _redacted,
    "server_tool_use": _server_tool_use,
}


def pairs(body: Object, model: str) -> Iterator[str]:
    """Each call has one result in the next message, and each result its call in the one before."""
    messages = objects(body.get("messages"))
    if model.startswith("claude-3-"):
        return  # those never looked
    seen: set[str] = set()
    pending: list[str] = []
    for index, message in enumerate(messages):
        blocks = blocks_of(message)
        results = [block.get("tool_use_id", "") for block in blocks if block.get("type") == "tool_result"]
        if message.get("role") == "user":
            yield from _answered(index, pending, results, blocks)
            pending = []
        elif pending:
            yield f"messages.{index}: {UNANSWERED}: {pending}"
            pending = []
        for block in blocks:
            if block.get("type") == "tool_use":
                if block.get("id", "") in seen:
                    yield f"messages.{index}: `tool_use` ids must be unique, {block.get('id')!r}"
                seen.add(block.get("id", ""))
                pending.append(block.get("id", ""))


def _answered(index: int, pending: list[str], results: list[str], blocks: list[Object]) -> Iterator[str]:
    missing = [id for id in pending if id not in results]
    if missing:
        yield f"messages.{index}: {UNANSWERED}: {missing}"
    for id in results:
        if id not in pending:
            yield f"messages.{index}: unexpected `tool_use_id` found in `tool_result` blocks: {id}"
    if len(set(results)) < len(results):
        yield f"messages.{index}: each tool_use must have a single result"
    kinds = [block.get("type") == "tool_result" for block in blocks]
    if results and not all(kinds[: len(results)]):
        yield f"messages.{index}: tool_result blocks must come first in the content"


def manual_thinking(body: Object, model: str) -> Iterator[str]:
    """With a budget, the last assistant turn of a tool loop begins with its thinking."""
    if (body.get("thinking") or {}).get("type") != "enabled":
        return
    messages = objects(body.get("messages"))
    for before, after in pairwise(messages):
        if after is not messages[-1] or before.get("role") != "assistant":
            continue
        blocks = blocks_of(before)
        if any(b.get("type") == "tool_use" for b in blocks) and not str(blocks[0].get("type")).endswith("thinking"):
            yield "Expected `thinking` or `redacted_thinking`, but found another block first in the last assistant turn"


CHECKS: tuple[Check, ...] = (roles, system_turns, contents, pairs, manual_thinking)
