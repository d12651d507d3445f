"""Cache breakpoints: reading and writing their marks, and setting them where a body from elsewhere has none."""

from __future__ import annotations

from toolwire.loss import Ledger
from toolwire.protocols.anthropic.names import CACHE
from toolwire.reading import Reading
from toolwire.wire import Json, Object, Path, take_object, take_text

MOST_MARKS = 4
WORTH_MARKING = 4096
"""Shorter prompts (in characters) are never cached, so marks on them would say nothing."""

MARK: Object = {"type": "ephemeral"}
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


def checked_marks(body: Object, wanted: bool, whole: bool, ledger: Ledger) -> Object:
    """A body from elsewhere: its own breakpoints as far as they are accepted, or new ones where they are wanted. Not
    all servers know a mark for the `whole` request."""
    if _is_short(body):
        return body
    steady, moving = _steady_marks(body), _turn_marks(body)
    if steady or moving:
        _limit_marks(body, steady, moving, ledger)
        return body
    return _with_marks(body, whole, ledger) if wanted else body


def _is_short(body: Object) -> bool:
    """Is it only text, without a mark, and too short for one? Told in one look, because a first request often is."""
    if "cache_control" in body:
        return False
    size = 0
    system = body.get("system")
    if system:
        if system.__class__ is not str:
            return False
        size = len(system)
    for message in body["messages"]:
        content = message["content"]
        if content.__class__ is not str:
            return False
        size += len(content)
    for tool in body.get("tools") or ():
        if "cache_control" in tool:
            return False
        size += _size_of(tool)
    return size < WORTH_MARKING


def _with_marks(body: Object, whole: bool, ledger: Ledger) -> Object:
    """Breakpoints after the tools and after the instructions, told by these alone, and one for the whole that moves by
    itself: so nothing that was sent once looks different when the conversation goes on."""
    head = _head_length(body)
    marks: Object = {}
    if head >= WORTH_MARKING:
        tools = body.get("tools") or []
        steady = [number for number, tool in enumerate(tools) if not tool.get("defer_loading")]
        if steady:
            marks["tools"] = _with_mark(tools, steady[-1])
        system = _as_blocks(body.get("system"))
        if spot := _last_markable(system):
            marks["system"] = _with_mark(system, spot - 1)
    if whole and _long_enough(body, head):
        marks["cache_control"] = dict(MARK)
    if not marks:
        return body
    ledger.note("breakpoint-added", None, f"{len(marks)} cache breakpoints were set")
    return body | marks


def marked_last(body: Object) -> Object:
    """The body with the mark of the whole on the last block that can bear it."""
    if "cache_control" not in body:
        return body
    out = {key: value for key, value in body.items() if key != "cache_control"}
    messages = body["messages"]
    for number in range(len(messages) - 1, -1, -1):
        message = messages[number]
        if message["role"] == "user" and (spot := _last_markable(blocks := _as_blocks(message["content"]))):
            marked = {**message, "content": _with_mark(blocks, spot - 1, body["cache_control"])}
            return out | {"messages": [*messages[:number], marked, *messages[number + 1 :]]}
    return out


def _limit_marks(body: Object, steady: list[Object], moving: list[Object], ledger: Ledger) -> None:
    """Take away marks beyond the fourth, the earliest in the turns first: the later ones cover what they covered."""
    spare = len(steady) + len(moving) - MOST_MARKS
    if spare <= 0:
        return
    for node in (*moving, *steady):
        if spare and node is not body and "cache_control" in node:
            del node["cache_control"]
            spare -= 1
    ledger.note("cache-dropped", None, "cache breakpoints beyond the fourth were left out", "at most four are accepted")


def _head_length(body: Object) -> int:
    """The characters of what stands before the turns. Counts only as far as needed."""
    size = _length(body.get("system"))
    for tool in body.get("tools") or ():
        if size >= WORTH_MARKING:
            break
        size += _size_of(tool)
    return size


def _size_of(tool: Object) -> int:
    description = tool.get("description", "")
    return len(description if description.__class__ is str else str(description)) + 20 * len(
        tool.get("input_schema") or ()
    )


def _long_enough(body: Object, size: int) -> bool:
    """Is the prompt long enough to be cached at all? Counts only as far as needed."""
    for message in body["messages"]:
        if size >= WORTH_MARKING:
            break
        size += _length(message["content"])
    return size >= WORTH_MARKING


def _length(content: Json) -> int:
    """The characters of a content field, results included."""
    if isinstance(content, str):
        return len(content)
    size = 0
    for block in content or ():
        inner = block.get("content")
        for text in (block.get("text"), inner):
            if isinstance(text, str):
                size += len(text)
        if isinstance(inner, list):
            texts = [piece.get("text") for piece in inner if isinstance(piece, dict)]
            size += sum([len(text) for text in texts if isinstance(text, str)])
    return size


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


def _with_mark(blocks: list[Object], number: int, mark: Object = MARK) -> list[Object]:
    marked = list(blocks)
    marked[number] = {**blocks[number], "cache_control": dict(mark)}
    return marked


def _steady_marks(body: Object) -> list[Object]:
    """What bears a mark outside the turns."""
    marks = [body] if body.get("cache_control") else []
    for tool in body.get("tools") or ():
        if tool.get("cache_control"):
            marks.append(tool)
    system = body.get("system")
    if type(system) is list:
        marks += [block for block in system if block.get("cache_control")]
    return marks


def _turn_marks(body: Object) -> list[Object]:
    """What bears a mark in the turns: blocks, and parts of results."""
    marks: list[Object] = []
    for message in body["messages"]:
        content = message["content"]
        if type(content) is list:
            for block in content:
                if block.get("cache_control"):
                    marks.append(block)
                if "content" in block and type(block["content"]) is list:
                    marks += [part for part in block["content"] if isinstance(part, dict) and part.get("cache_control")]
    return marks
