"""What stands in a request that reached the provider, in whatever protocol."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from gateway.provider import Received


def pairs(asked: Received) -> list[tuple[str, str]]:
    """Every result with the arguments of the call that it answers, both as text, in the order of the results. Where
    there are no ids, the order says which answers which."""
    calls: list[tuple[str, str]] = []
    found: list[tuple[str, str]] = []
    for kind, id, text in _WALK[asked.protocol](asked.body):
        if kind == "call":
            calls.append((id, text))
        else:
            at = [known for known, _ in calls].index(id)
            found.append((calls.pop(at)[1], text))
    return found


def images(asked: Received) -> list[dict[str, Any]]:
    """Every picture in it."""
    return [node for node in _nodes(asked.body) if _is_image(node)]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


Walked = Iterator[tuple[str, str, str]]


def _chat(body: dict[str, Any]) -> Walked:
    for message in body["messages"]:
        for call in message.get("tool_calls") or ():
            inner = call.get("function") or call["custom"]
            yield "call", call["id"], inner.get("arguments") or inner.get("input")
        if message["role"] == "tool":
            yield "result", message["tool_call_id"], _text(message["content"])


def _responses(body: dict[str, Any]) -> Walked:
    for item in body["input"]:
        kind = item.get("type", "")
        if kind.endswith("_call"):
            yield "call", item["call_id"], _text(item.get("arguments") or item.get("input"))
        elif kind.endswith(("_call_output", "_search_output")):
            yield "result", item["call_id"], _text(item.get("output") or item.get("tools"))


def _messages(body: dict[str, Any]) -> Walked:
    for message in body["messages"]:
        for block in message["content"] if isinstance(message["content"], list) else ():
            if block["type"] == "tool_use":
                yield "call", block["id"], _text(block["input"])
            elif block["type"] == "tool_result":
                yield "result", block["tool_use_id"], _text(block.get("content", ""))


def _generate(body: dict[str, Any]) -> Walked:
    for content in body["contents"]:
        for part in content["parts"]:
            if call := part.get("functionCall"):
                yield "call", call.get("id", ""), _text(call["args"])
            elif result := part.get("functionResponse"):
                yield "result", result.get("id", ""), _text(result["response"])


_WALK: dict[str, Callable[[dict[str, Any]], Walked]] = {
    "openai-chat": _chat,
    "openai-responses": _responses,
    "anthropic": _messages,
    "gemini": _generate,
}


def _nodes(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _nodes(child)


def _is_image(node: dict[str, Any]) -> bool:
    data = (node.get("inlineData") or {}).get("mimeType", "") if isinstance(node.get("inlineData"), dict) else ""
    return node.get("type") in ("image", "image_url", "input_image") or data.startswith("image/")
