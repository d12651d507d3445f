"""Cache breakpoints: reading and writing their marks, and setting them where a body from elsewhere has none."""

from __future__ import annotations

from toolwire.core.json_values import Json, Object, Path, get_object, get_text
from toolwire.core.losses import Ledger
from toolwire.core.provenance import ReadContext
from toolwire.protocols.anthropic.names import CACHE_CONTROL_KEYS

MAX_BREAKPOINTS = 4
MIN_CACHED_CHARACTERS = 4096
"""Shorter prompts (in characters) are never cached, so marks on them would say nothing."""

BREAKPOINT: Object = {"type": "ephemeral"}
_TTLS = ("5m", "1h")
_CACHEABLE_BLOCKS = frozenset({"text", "image", "document", "search_result", "tool_result", "tool_use"})


def read_cache(node: Object, path: Path, reading: ReadContext) -> str | None:
    if node.get("cache_control") is None:
        return None
    mark = get_object(node, "cache_control", path)
    assert mark is not None
    here = (path, "cache_control")
    for key in mark:
        if key not in CACHE_CONTROL_KEYS:
            reading.note_unknown_field(here, key)
    return get_text(mark, "ttl", here) or ""


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


def place_breakpoints(body: Object, add_missing: bool, mark_request: bool, ledger: Ledger) -> Object:
    """A body from elsewhere: its own breakpoints as far as they are accepted, or new ones where they are wanted. Not
    all servers know a mark for the `whole` request."""
    if _is_short_and_unmarked(body):
        return body
    steady, moving = _breakpoints_before_turns(body), _breakpoints_in_turns(body)
    if steady or moving:
        _limit_breakpoints(body, steady, moving, ledger)
        return body
    return _add_breakpoints(body, mark_request, ledger) if add_missing else body


def _is_short_and_unmarked(body: Object) -> bool:
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
        size += _tool_size(tool)
    return size < MIN_CACHED_CHARACTERS


def _add_breakpoints(body: Object, mark_request: bool, ledger: Ledger) -> Object:
    """Breakpoints after the tools and after the instructions, told by these alone, and one for the whole that moves by
    itself: so nothing that was sent once looks different when the conversation goes on."""
    head = _prefix_length(body)
    marks: Object = {}
    if head >= MIN_CACHED_CHARACTERS:
        tools = body.get("tools") or []
        steady = [number for number, tool in enumerate(tools) if not tool.get("defer_loading")]
        if steady:
            marks["tools"] = _with_breakpoint(tools, steady[-1])
        system = _as_blocks(body.get("system"))
        if spot := _last_cacheable_block(system):
            marks["system"] = _with_breakpoint(system, spot - 1)
    if mark_request and _is_long_enough(body, head):
        marks["cache_control"] = dict(BREAKPOINT)
    if not marks:
        return body
    ledger.note("breakpoint-added", None, f"{len(marks)} cache breakpoints were set")
    return body | marks


def move_breakpoint_to_last_block(body: Object) -> Object:
    """The body with the mark of the whole on the last block that can bear it."""
    if "cache_control" not in body:
        return body
    out = {key: value for key, value in body.items() if key != "cache_control"}
    messages = body["messages"]
    for number in range(len(messages) - 1, -1, -1):
        message = messages[number]
        if message["role"] == "user" and (spot := _last_cacheable_block(blocks := _as_blocks(message["content"]))):
            marked = {**message, "content": _with_breakpoint(blocks, spot - 1, body["cache_control"])}
            return out | {"messages": [*messages[:number], marked, *messages[number + 1 :]]}
    return out


def _limit_breakpoints(body: Object, before_turns: list[Object], in_turns: list[Object], ledger: Ledger) -> None:
    """Take away marks beyond the fourth, the earliest in the turns first: the later ones cover what they covered."""
    spare = len(before_turns) + len(in_turns) - MAX_BREAKPOINTS
    if spare <= 0:
        return
    for node in (*in_turns, *before_turns):
        if spare and node is not body and "cache_control" in node:
            del node["cache_control"]
            spare -= 1
    ledger.note("cache-dropped", None, "cache breakpoints beyond the fourth were left out", "at most four are accepted")


def _prefix_length(body: Object) -> int:
    """The characters of what stands before the turns. Counts only as far as needed."""
    size = _content_length(body.get("system"))
    for tool in body.get("tools") or ():
        if size >= MIN_CACHED_CHARACTERS:
            break
        size += _tool_size(tool)
    return size


def _tool_size(tool: Object) -> int:
    description = tool.get("description", "")
    return len(description if description.__class__ is str else str(description)) + 20 * len(
        tool.get("input_schema") or ()
    )


def _is_long_enough(body: Object, size: int) -> bool:
    """Is the prompt long enough to be cached at all? Counts only as far as needed."""
    for message in body["messages"]:
        if size >= MIN_CACHED_CHARACTERS:
            break
        size += _content_length(message["content"])
    return size >= MIN_CACHED_CHARACTERS


def _content_length(content: Json) -> int:
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


def _last_cacheable_block(blocks: list[Object]) -> int:
    """The number of the last block that can carry a mark, counted from one; 0 when there is none."""
    for number in range(len(blocks), 0, -1):
        block = blocks[number - 1]
        if block.get("type") in _CACHEABLE_BLOCKS and (block["type"] != "text" or block["text"].strip()):
            return number
    return 0


def _with_breakpoint(blocks: list[Object], number: int, mark: Object = BREAKPOINT) -> list[Object]:
    marked = list(blocks)
    marked[number] = {**blocks[number], "cache_control": dict(mark)}
    return marked


def _breakpoints_before_turns(body: Object) -> list[Object]:
    """What bears a mark outside the turns."""
    marks = [body] if body.get("cache_control") else []
    for tool in body.get("tools") or ():
        if tool.get("cache_control"):
            marks.append(tool)
    system = body.get("system")
    if type(system) is list:
        marks += [block for block in system if block.get("cache_control")]
    return marks


def _breakpoints_in_turns(body: Object) -> list[Object]:
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
