"""What Claude models accept, by family, and cache breakpoints. An unknown model counts as an older, permissive one.

Source: Anthropic's pages on models, thinking and effort (copies of 2026-08-22, newer ones in part), and `claude-*` in
the types of the Python SDK `anthropic` 2.8.0, looked up in November 2026."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from toolwire.core.codec import NO_FACTS, ModelFacts
from toolwire.core.json_values import Json, Object, Path, get_object, get_text
from toolwire.core.losses import Ledger
from toolwire.core.provenance import ReadContext
from toolwire.protocols.anthropic.names import CACHE_CONTROL_KEYS, PROVIDER_TOOL_VERSIONS

Version: TypeAlias = tuple[int, int]

EFFORTS_TO_HIGH = ("low", "medium", "high")
EFFORTS_TO_MAX = (*EFFORTS_TO_HIGH, "max")
ALL_EFFORTS = (*EFFORTS_TO_HIGH, "xhigh", "max")


_OTHER_VENDORS = re.compile(
    r"(?i).*(?:deepseek|kimi|moonshot|qwen|qwq|glm|minimax|mimo|llama|mistral|magistral|devstral|gemma|phi-|gpt-)"
)


def supports_provider_tool(tool: str, model: str, has_functions: bool) -> bool:
    """Other vendors' models are served in Anthropic's protocol too, mostly without these tools."""
    return tool in PROVIDER_TOOL_VERSIONS and not _OTHER_VENDORS.match(model)


class Family(Struct, frozen=True, kw_only=True):
    """What the models of a family accept."""

    default_tokens: int
    """The `max_tokens` that is written if the client set none."""
    max_tokens: int | None = None
    """The highest limit that is accepted; None when unknown."""
    sampling: bool = False
    """Are temperature, top_p and top_k accepted?"""
    one_sampling: bool = False
    """Are temperature and top_p refused together?"""
    thinking: Literal["", "budget", "either", "adaptive", "given"] = "adaptive"
    """What it accepts: nothing, a budget, an effort ("adaptive") or either; "given" writes what the client asked."""
    thinks_unasked: bool = False
    off: Literal["", "disabled", "between_tools"] = "disabled"
    """The `thinking.type` that switches thinking off; "" if it cannot be."""
    efforts: tuple[str, ...] = ()
    off_efforts: tuple[str, ...] = ALL_EFFORTS
    """The efforts that are accepted while thinking is off."""
    forcing: bool = True
    """Can the model be made to call a tool?"""
    binds_prefix: bool = False
    """Is its thinking only valid after the same tools and turns?"""
    formats: bool = True
    """Is a schema for the answer accepted?"""
    prefill: bool = False
    """May the last turn be an assistant turn, which the model continues?"""


_CLAUDE_5_5 = Family(
    default_tokens=128_000,
    max_tokens=128_000,
    thinks_unasked=True,
    off="",
    efforts=ALL_EFFORTS,
    forcing=False,
    binds_prefix=True,
)
_CLAUDE_5 = replace(_CLAUDE_5_5, off="disabled", off_efforts=EFFORTS_TO_HIGH, forcing=True, binds_prefix=False)
_CLAUDE_4_7 = replace(_CLAUDE_5, thinks_unasked=False, off_efforts=ALL_EFFORTS)
_CLAUDE_4_6 = replace(
    _CLAUDE_4_7, default_tokens=64_000, sampling=True, one_sampling=True, thinking="either", efforts=EFFORTS_TO_MAX
)
_CLAUDE_4_5 = replace(_CLAUDE_4_6, max_tokens=64_000, thinking="budget", efforts=(), prefill=True)
_CLAUDE_4 = replace(_CLAUDE_4_5, default_tokens=32_000, one_sampling=False, formats=False)
_CLAUDE_3 = replace(_CLAUDE_4, default_tokens=4_096, max_tokens=4_096, thinking="")

FAMILY_ROWS: tuple[tuple[tuple[str, ...], Version, Family], ...] = (
    (("fable", "mythos"), (0, 0), _CLAUDE_5_5),
    (("sonnet",), (5, 5), replace(_CLAUDE_5_5, off="between_tools")),
    (("haiku",), (5, 5), replace(_CLAUDE_5, default_tokens=64_000, off_efforts=ALL_EFFORTS, forcing=False)),
    ((), (5, 5), _CLAUDE_5_5),
    (("haiku",), (5, 0), replace(_CLAUDE_4_7, default_tokens=64_000)),
    ((), (5, 0), _CLAUDE_5),
    ((), (4, 7), _CLAUDE_4_7),
    ((), (4, 6), _CLAUDE_4_6),
    ((), (4, 5), _CLAUDE_4_5),
    (("opus",), (4, 0), replace(_CLAUDE_4, max_tokens=32_000)),
    ((), (4, 0), _CLAUDE_4),
    ((), (3, 7), replace(_CLAUDE_4, max_tokens=128_000)),
    ((), (3, 5), replace(_CLAUDE_3, default_tokens=8_192, max_tokens=8_192)),
    ((), (0, 0), _CLAUDE_3),
)
"""Model lines (none: every line), the first version, and the family; the first row that matches counts."""

AS_GIVEN = Family(default_tokens=0, sampling=True, thinking="given", prefill=True)
"""For requests of Anthropic's own clients, which know their model: everything is written as it came."""

UNKNOWN_FAMILY = Family(default_tokens=16_384, sampling=True, thinking="budget", prefill=True)

_MODEL_NAME = re.compile(
    r"claude-(?:(?P<line>[a-z]+)(?:-|$))?(?:(?P<major>\d{1,2})(?!\d)(?:[-.](?P<minor>\d{1,2})(?!\d))?)?"
    r"(?:-(?P<last>haiku|sonnet|opus)\b)?"
)

MID_SYSTEM_MODELS = re.compile(
    r".*claude-(?:opus-(?:4[-.](?:[89]|[1-9]\d)(?!\d)|[5-9](?!\d)|[1-9]\d(?!\d))"
    r"|sonnet-(?:5[-.](?:[5-9]|[1-9]\d)(?!\d)|[6-9](?!\d)|[1-9]\d(?!\d))"
    r"|(?:fable|mythos)-(?:[5-9]|[1-9]\d)(?!\d)).*",
    re.DOTALL,
)
"""Models that accept system turns between the other turns."""


@lru_cache(maxsize=256)
def family(model: str) -> Family:
    """The family of a model, from its name."""
    match = _MODEL_NAME.search(model)
    if match is None or (match["major"] is None and match["line"] not in ("fable", "mythos")):
        return UNKNOWN_FAMILY
    line = match["last"] or match["line"] or ""
    version = (int(match["major"] or 0), int(match["minor"] or 0))
    for lines, since, facts in FAMILY_ROWS:
        if (not lines or line in lines) and version >= since:
            return facts
    return UNKNOWN_FAMILY


def is_claude(model: str) -> bool:
    return "claude" in model


def find_model_facts(model: str) -> ModelFacts:
    """An effort that a model does not know becomes a budget, so models with budgets have the usual efforts."""
    known = family(model)
    if known is UNKNOWN_FAMILY:
        return NO_FACTS
    efforts = known.efforts or (EFFORTS_TO_HIGH if known.thinking else ())
    return ModelFacts(max_output_tokens=known.max_tokens, reasoning_efforts=efforts)


def can_force_tools(model: str, thinks: bool | None) -> bool:
    """Can the model be made to call a tool? Not while it thinks with a budget."""
    facts = family(model)
    return facts.forcing and not (thinks and facts.thinking == "budget")


# --- Cache breakpoints (`cache_control`): reading, writing, and adding them to requests of other protocols ---


MAX_BREAKPOINTS = 4
MIN_CACHED_CHARACTERS = 4096
"""Anthropic does not cache shorter prompts (counted in characters here)."""

BREAKPOINT: Object = {"type": "ephemeral"}
_TTLS = ("5m", "1h")
_CACHEABLE_BLOCKS = frozenset({"text", "image", "document", "search_result", "tool_result", "tool_use"})


def read_cache(node: Object, path: Path, reading: ReadContext) -> str | None:
    """The `ttl` of a breakpoint, "" for the default, None if there is no breakpoint."""
    breakpoint_ = get_object(node, "cache_control", path)
    if breakpoint_ is None:
        return None
    here = (path, "cache_control")
    for key in breakpoint_:
        if key not in CACHE_CONTROL_KEYS:
            reading.note_unknown_field(here, key)
    return get_text(breakpoint_, "ttl", here) or ""


def write_cache(out: Object, cache: str | None, ledger: Ledger, where: Path) -> None:
    if cache is None:
        return
    if cache and cache not in _TTLS:
        ledger.note("setting-mapped", where, f"the cache lifetime `{cache}` became `{_TTLS[-1]}`")
        cache = _TTLS[-1]
    out["cache_control"] = BREAKPOINT | ({"ttl": cache} if cache else {})


def place_breakpoints(body: Object, add_missing: bool, mark_request: bool, ledger: Ledger) -> Object:
    """A body that was translated: with at most four of its breakpoints, or with new ones if it has none. Not all
    servers know a breakpoint of the whole request."""
    if _is_short_and_unmarked(body):
        return body
    system = body.get("system")
    nodes = [body, *(body.get("tools") or ()), *(system if isinstance(system, list) else ())]
    before_turns = [node for node in nodes if node.get("cache_control")]
    in_turns = _breakpoints_in_turns(body)
    surplus = len(before_turns) + len(in_turns) - MAX_BREAKPOINTS
    if surplus > 0:
        # The earliest in the turns go first: later ones cover the same prefix.
        for node in [node for node in (*in_turns, *before_turns) if node is not body][:surplus]:
            del node["cache_control"]
        ledger.note("cache-dropped", None, "cache breakpoints were left out", "Anthropic accepts four")
    return _add_breakpoints(body, mark_request, ledger) if add_missing and not before_turns and not in_turns else body


def _is_short_and_unmarked(body: Object) -> bool:
    """Is it only text, without a breakpoint, and too short for one? First requests often are, so this is checked
    first."""
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
    """Breakpoints after the tools, after the system prompt, and for the whole request. They depend on nothing that
    comes later, so the cached prefix stays the same when the conversation continues."""
    tools = body.get("tools") or []
    size = _content_length(body.get("system"))
    for tool in tools:
        if size >= MIN_CACHED_CHARACTERS:
            break
        size += _tool_size(tool)
    marked: Object = {}
    if size >= MIN_CACHED_CHARACTERS:
        loaded = [number for number, tool in enumerate(tools) if not tool.get("defer_loading")]
        if loaded:
            marked["tools"] = _with_breakpoint(tools, loaded[-1])
        system = _as_blocks(body.get("system"))
        if count := _count_to_last_cacheable(system):
            marked["system"] = _with_breakpoint(system, count - 1)
    for message in body["messages"] if mark_request else ():
        if size >= MIN_CACHED_CHARACTERS:
            break
        size += _content_length(message["content"])
    if mark_request and size >= MIN_CACHED_CHARACTERS:
        marked["cache_control"] = dict(BREAKPOINT)
    if not marked:
        return body
    ledger.note("breakpoint-added", None, f"{len(marked)} cache breakpoints were added")
    return body | marked


def move_breakpoint_to_last_block(body: Object) -> Object:
    """The body with the breakpoint of the whole request on the last block that can have one."""
    if "cache_control" not in body:
        return body
    out = {key: value for key, value in body.items() if key != "cache_control"}
    messages = body["messages"]
    for number in range(len(messages) - 1, -1, -1):
        message = messages[number]
        if message["role"] == "user" and (count := _count_to_last_cacheable(blocks := _as_blocks(message["content"]))):
            marked = {**message, "content": _with_breakpoint(blocks, count - 1, body["cache_control"])}
            return out | {"messages": [*messages[:number], marked, *messages[number + 1 :]]}
    return out


def _tool_size(tool: Object) -> int:
    description = tool.get("description", "")
    length = len(description if description.__class__ is str else str(description))
    return length + 20 * len(tool.get("input_schema") or ())


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


def _count_to_last_cacheable(blocks: list[Object]) -> int:
    """The number of blocks up to the last one that can have a breakpoint; 0 if none can."""
    for number in range(len(blocks), 0, -1):
        block = blocks[number - 1]
        if block.get("type") in _CACHEABLE_BLOCKS and (block["type"] != "text" or block["text"].strip()):
            return number
    return 0


def _with_breakpoint(blocks: list[Object], number: int, cache_control: Object = BREAKPOINT) -> list[Object]:
    return [*blocks[:number], {**blocks[number], "cache_control": dict(cache_control)}, *blocks[number + 1 :]]


def _breakpoints_in_turns(body: Object) -> list[Object]:
    """The blocks with a breakpoint in the turns, and those in results."""
    marked: list[Object] = []
    for message in body["messages"]:
        content = message["content"]
        for block in content if type(content) is list else ():
            if block.get("cache_control"):
                marked.append(block)
            inner = block.get("content")
            if type(inner) is list:
                marked += [node for node in inner if isinstance(node, dict) and node.get("cache_control")]
    return marked
