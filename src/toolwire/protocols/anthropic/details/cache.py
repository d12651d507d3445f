"""Cache breakpoints: reading and writing their marks, and setting them where a body from elsewhere has none."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from toolwire.loss import Ledger
from toolwire.protocols.anthropic.names import CACHE
from toolwire.reading import Reading
from toolwire.wire import Json, Object, Path, take_object, take_text

MOST_MARKS = 4
WORTH_MARKING = 4096
"""Shorter prompts (in characters) are never cached, so marks on them would say nothing."""

_TTLS = ("5m", "1h")
_MARKABLE = frozenset({"text", "image", "document", "search_result", "tool_result", "tool_use"})


def read_cache(node: Object, path: Path, reading: Reading) -> str | None:
    if node.get("cache_control") is None:
        return None
    mark = take_object(node, "cache_control", path)
    assert mark is not None
    here = (path, "cache_control")
    for key in mark:
        if key not in CACHE:
            reading.stray(here, key)
    return take_text(mark, "ttl", here) or ""


def write_cache(out: Object, cache: str | None, ledger: Ledger, where: Path) -> None:
    if cache is None:
        return
    mark: Object = {"type": "ephemeral"}
    if cache in _TTLS:
        mark["ttl"] = cache
    elif cache:
        mark["ttl"] = _TTLS[-1]
        ledger.note("setting-mapped", where, f"the cache lifetime `{cache}` became `{_TTLS[-1]}`")
    out["cache_control"] = mark


def mark_cache(body: Object, ledger: Ledger) -> Object:
    """The body with breakpoints at the places that stay the same from call to call, if it has none at all: after the
    tools, after the instructions, and after the last two turns of the user."""
    if any(True for _ in _marked(body)):
        return body
    out = dict(body)
    marks = 0
    tools = body.get("tools") or []
    steady = [number for number, tool in enumerate(tools) if not tool.get("defer_loading")]
    if steady:
        out["tools"] = _with_mark(tools, steady[-1])
        marks += 1
    system = _as_blocks(body.get("system"))
    if spot := _last_markable(system):
        out["system"] = _with_mark(system, spot - 1)
        marks += 1
    messages = list(body["messages"])
    turns = 0
    for number in reversed(range(len(messages))):
        blocks = _as_blocks(messages[number]["content"])
        if turns < 2 and messages[number]["role"] == "user" and (spot := _last_markable(blocks)):
            messages[number] = {**messages[number], "content": _with_mark(blocks, spot - 1)}
            turns += 1
    out["messages"] = messages
    marks += turns
    if marks:
        ledger.note("breakpoint-added", None, f"{marks} cache breakpoints were set")
    return out


def limit_marks(body: Object, ledger: Ledger) -> None:
    """Take away marks beyond the fourth, the earliest in the turns first: the later ones cover what they covered."""
    spare = sum(1 for _ in _marked(body)) - MOST_MARKS
    if spare <= 0:
        return
    for node in chain(_turn_marks(body), _marked(body)):
        if spare and node is not body and "cache_control" in node:
            del node["cache_control"]
            spare -= 1
    ledger.note("cache-dropped", None, "cache breakpoints beyond the fourth were left out", "at most four are accepted")


def long_enough(body: Object) -> bool:
    """Is the prompt long enough to be cached at all? Counts only as far as needed."""
    size = 0
    for tool in body.get("tools") or ():
        size += len(str(tool.get("description", ""))) + 20 * len(tool.get("input_schema") or ())
    for text in _texts(body):
        size += len(text)
        if size >= WORTH_MARKING:
            return True
    return size >= WORTH_MARKING


def _texts(body: Object) -> Iterator[str]:
    for content in chain((body.get("system"),), (message["content"] for message in body["messages"])):
        for block in _as_blocks(content):
            inner = block.get("content")
            pieces = [block, *inner] if isinstance(inner, list) else [block, {"text": inner}]
            texts = (piece.get("text") for piece in pieces if isinstance(piece, dict))
            yield from (text for text in texts if isinstance(text, str))


def _as_blocks(content: Json) -> list[Object]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return content or []


def _last_markable(blocks: list[Object]) -> int:
    """The number of the last block that can carry a mark, counted from one; 0 when there is none."""
    for number in range(len(blocks), 0, -1):
        block = blocks[number - 1]
        if block.get("type") in _MARKABLE and (block["type"] != "text" or block["text"].strip()):
            return number
    return 0


def _with_mark(blocks: list[Object], number: int) -> list[Object]:
    marked = list(blocks)
    marked[number] = {**blocks[number], "cache_control": {"type": "ephemeral"}}
    return marked


def _marked(body: Object) -> Iterator[Object]:
    if body.get("cache_control"):
        yield body
    system = body.get("system")
    for node in chain(body.get("tools") or (), system if isinstance(system, list) else ()):
        if node.get("cache_control"):
            yield node
    yield from _turn_marks(body)


def _turn_marks(body: Object) -> Iterator[Object]:
    for message in body["messages"]:
        content = message["content"]
        if isinstance(content, list):
            for block in content:
                if block.get("cache_control"):
                    yield block
                inner = block.get("content")
                if isinstance(inner, list):
                    yield from (part for part in inner if isinstance(part, dict) and part.get("cache_control"))
