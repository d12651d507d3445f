"""What servers that are compatible with Anthropic's protocol do not know of it: DeepSeek at `/anthropic`, vLLM and
other local servers, gateways of clouds. What they refuse is left out or rewritten in the body, and reported.

Looked up in November 2026:

- DeepSeek: api-docs.deepseek.com/guides/anthropic_api (`anthropic-beta` and most settings are ignored, content of other
  types is not supported), deepseek-ai/DeepSeek-V3#1370 (system messages), awesome-deepseek-agent#67 (`user_id`),
  9router#2397 (thinking that is not sent back).
- vLLM: vllm/entrypoints/anthropic/protocol.py; vllm-project/vllm#44000 (system messages), #52489 (`tool_reference`
  fails in the chat template), #57324 (`tool_addition`).
- llama.cpp, Ollama and LM Studio read text, images, thinking, calls and results; other blocks are dropped or refused.
- Gateways of clouds: claude-code#14135 (`context_management`), #22893 and new-api#2975 (values of `anthropic-beta`),
  new-api#3041 ("invalid beta flag"), claude-code#11678 (`input_examples`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from itertools import filterfalse

from toolwire.core import ids
from toolwire.core.body_changes import change_items, client_path
from toolwire.core.codec import Quirk
from toolwire.core.json_values import Json, Object, Path, encode_text, without_keys
from toolwire.core.losses import Ledger
from toolwire.core.missing_reasoning import make_up_reasoning
from toolwire.core.refusals import match_refusal
from toolwire.core.tokens import budget_for_effort
from toolwire.protocols.anthropic.http import version_header
from toolwire.protocols.anthropic.models import move_breakpoint_to_last_block
from toolwire.protocols.anthropic.names import TURN_KEYS, key_set
from toolwire.protocols.anthropic.request import MIN_BUDGET
from toolwire.protocols.anthropic.tools import SEARCH_TYPE

NOT_ACCEPTED = "this server does not know it"

BETA_MEMBERS = key_set(
    "betas compaction context_management diagnostics fallback_credit_token fallbacks inference_geo speed"
)
"""Members of a request that betas add, and that only say how it is served. Without others, such as `thread` and
`mcp_servers`, it would be another request."""
BETA_TOOL_MEMBERS = key_set("allowed_callers eager_input_streaming input_examples")
BETA_CACHE_MEMBERS = key_set("scope")
"""Of `cache_control`."""


# --- system messages --------------------------------------------------------------------------------------------------


def move_system_turns(body: Object, _model: str, ledger: Ledger) -> Object:
    """The instructions before the first turn in `system`, and later ones in a turn of the user."""
    messages = body.get("messages")
    if type(messages) is not list or not any(map(_is_system_turn, messages)):
        return body
    leading: list[Json] = []
    turns: list[Json] = []
    for number, message in enumerate(messages):
        if not _is_system_turn(message):
            turns.append(message)
            continue
        where, blocks = client_path(ledger, "messages", number), _as_blocks(message.get("content"))
        for key in filterfalse(TURN_KEYS.__contains__, message):
            ledger.note("no-counterpart", where, f"`{key}` of instructions in the middle was left out", NOT_ACCEPTED)
        if not turns:
            ledger.note("system-moved", where, "instructions among the messages were moved to `system`")
            leading += blocks
            continue
        ledger.note("role-mapped", where, "instructions in the middle (role `system`) became text of the user")
        before = turns[-1]
        if isinstance(before, dict) and before.get("role") == "user":
            turns[-1] = before | {"content": [*_as_blocks(before.get("content")), *blocks]}
        elif blocks:
            turns.append({"role": "user", "content": blocks})
    system = {"system": [*_as_blocks(body.get("system")), *leading]} if leading else {}
    return body | {"messages": turns} | system


def _is_system_turn(message: Json) -> bool:
    return isinstance(message, dict) and message.get("role") == "system"


def _as_blocks(content: Json) -> list[Json]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return content if isinstance(content, list) else []


# --- tools that are searched and loaded -------------------------------------------------------------------------------


def load_all_tools(body: Object, _model: str, ledger: Ledger) -> Object:
    """The body with all tools declared and none deferred. References to tools become text."""
    added: list[Object] = []
    body = change_items(body, "messages", lambda number, one: _load_in_turn(one, number, added, ledger))
    body = change_items(body, "tools", lambda number, one: _load_tool(one, number, ledger))
    if not added:
        return body
    tools = [*(body.get("tools") or ())]
    declared = {tool.get("name") for tool in tools if isinstance(tool, dict)}
    new = {tool.get("name"): tool for tool in added if tool.get("name") not in declared}
    return body | {"tools": [*tools, *new.values()]}


def _load_tool(tool: Object, number: int, ledger: Ledger) -> Object | None:
    where, name = client_path(ledger, "tools", number), tool.get("name")
    if str(tool.get("type")).startswith(SEARCH_TYPE):
        ledger.note("tool-dropped", where, f"the tool `{name}` was left out", "this server does not search for tools")
        return None
    if "defer_loading" not in tool:
        return tool
    if tool["defer_loading"]:
        ledger.note("no-counterpart", where, f"`{name}` is loaded at once", "this server does not search for tools")
    return without_keys(tool, ["defer_loading"])


def _load_in_turn(message: Object, number: int, added: list[Object], ledger: Ledger) -> Object | None:
    def load_block(at: int, block: Object) -> Object | None:
        where = client_path(ledger, "messages", number, "content", at)
        if block.get("type") == "tool_result":
            return change_items(block, "content", lambda _, one: _load_reference(one, where, ledger))
        if block.get("type") not in ("tool_addition", "tool_removal"):
            return _load_reference(block, where, ledger)
        changed = block.get("tool")
        definition = changed.get("definition") if isinstance(changed, dict) else None
        if isinstance(definition, dict) and block["type"] == "tool_addition":
            added.append(definition)
        ledger.note("tools-merged", where, f"a `{block['type']}` was left out, and all tools are declared")
        return None

    out = change_items(message, "content", load_block)
    return None if out is not message and not out["content"] else out


def _load_reference(block: Object, where: Path, ledger: Ledger) -> Object:
    if block.get("type") != "tool_reference":
        return block
    name = block.get("tool_name")
    ledger.note("tools-merged", where, f"the reference to `{name}` became text")
    return {"type": "text", "text": f"Tool found: {name}"} | {
        key: block[key] for key in block if key == "cache_control"
    }


# --- betas ------------------------------------------------------------------------------------------------------------


def list_refused_headers(_model: str, headers: Mapping[str, str]) -> list[str]:
    return ["the header `anthropic-beta`"] if "anthropic-beta" in headers else []


def drop_betas(body: Object, _model: str, ledger: Ledger) -> Object:
    """The body without what betas add to it."""
    for key in filter(BETA_MEMBERS.__contains__, body):
        ledger.note("no-counterpart", client_path(ledger, key), f"`{key}` was left out", NOT_ACCEPTED)
    out = body if BETA_MEMBERS.isdisjoint(body) else without_keys(body, BETA_MEMBERS)
    out = change_items(
        out, "tools", lambda number, one: _drop_tool_betas(one, client_path(ledger, "tools", number), ledger)
    )
    drop = partial(_drop_cache_betas, ledger=ledger)
    out = change_items(out, "system", lambda _, one: drop(one))
    return change_items(out, "messages", lambda _, turn: change_items(turn, "content", lambda _, one: drop(one)))


def _drop_tool_betas(tool: Object, where: Path, ledger: Ledger) -> Object:
    for key in filter(BETA_TOOL_MEMBERS.__contains__, tool):
        ledger.note("no-counterpart", where, f"`{key}` of `{tool.get('name')}` was left out", NOT_ACCEPTED)
    kept = tool if BETA_TOOL_MEMBERS.isdisjoint(tool) else without_keys(tool, BETA_TOOL_MEMBERS)
    return _drop_cache_betas(kept, ledger)


def _drop_cache_betas(node: Object, ledger: Ledger) -> Object:
    cache = node.get("cache_control")
    if not isinstance(cache, dict) or BETA_CACHE_MEMBERS.isdisjoint(cache):
        return node
    ledger.note("cache-dropped", None, "the scope of cache breakpoints was left out", NOT_ACCEPTED)
    return node | {"cache_control": without_keys(cache, BETA_CACHE_MEMBERS)}


def drop_breakpoints(body: Object, _model: str, ledger: Ledger) -> Object:
    """The body without cache breakpoints: of the request, of its tools, and of blocks at any depth."""
    out = _drop_breakpoint(body)
    for key in ("system", "tools"):
        out = change_items(out, key, lambda _, one: _drop_breakpoint(one))
    drop_inside = partial(change_items, key="content", change=lambda _, one: _drop_inner_breakpoints(one))
    out = change_items(out, "messages", lambda _, turn: drop_inside(turn))
    if out is not body:
        ledger.note("cache-dropped", None, "cache breakpoints were left out", NOT_ACCEPTED)
    return out


def _drop_inner_breakpoints(block: Object) -> Object:
    return change_items(_drop_breakpoint(block), "content", lambda _, one: _drop_breakpoint(one))


def _drop_breakpoint(node: Object) -> Object:
    return without_keys(node, ["cache_control"]) if "cache_control" in node else node


# --- thinking ---------------------------------------------------------------------------------------------------------

_THINKING_BLOCKS = ("thinking", "redacted_thinking")


def fill_thinking(body: Object, _model: str, ledger: Ledger) -> Object:
    """Begin every turn of the assistant with thinking: other models have left none, or only they can read it."""
    thinking = body.get("thinking")
    if isinstance(thinking, dict) and thinking.get("type") == "disabled":
        return body
    return change_items(
        body, "messages", lambda number, one: _fill_turn(one, client_path(ledger, "messages", number), ledger)
    )


def _fill_turn(turn: Object, where: Path, ledger: Ledger) -> Object:
    blocks = _as_blocks(turn.get("content"))
    kinds = [block.get("type") for block in blocks if isinstance(block, dict)]
    if turn.get("role") != "assistant" or not blocks or any(kind in _THINKING_BLOCKS for kind in kinds):
        return turn
    calls = [block for block in blocks if isinstance(block, dict) and block.get("type") == "tool_use"]
    text = make_up_reasoning((str(call.get("name")), encode_text(call.get("input"))) for call in calls)
    ledger.note(
        "reasoning-added", where, "thinking was made up for a turn without it", "this server refuses it otherwise"
    )
    return turn | {"content": [{"type": "thinking", "thinking": text, "signature": ""}, *blocks]}


def drop_effort(body: Object, _model: str, ledger: Ledger) -> Object:
    config = body.get("output_config")
    if not isinstance(config, dict) or "effort" not in config:
        return body
    ledger.note("no-counterpart", client_path(ledger, "output_config", "effort"), "`effort` was left out", NOT_ACCEPTED)
    kept = without_keys(config, ["effort"])
    return body | {"output_config": kept} if kept else without_keys(body, ["output_config"])


def write_thinking_budget(body: Object, _model: str, ledger: Ledger) -> Object:
    """A budget in place of adaptive thinking; no thinking where no budget is allowed."""
    thinking, most = body.get("thinking"), body.get("max_tokens")
    if not isinstance(thinking, dict) or thinking.get("type") != "adaptive":
        return body
    config, choice = body.get("output_config"), body.get("tool_choice")
    effort = config.get("effort") if isinstance(config, dict) else None
    budget = budget_for_effort(effort if isinstance(effort, str) else "medium")
    budget = min(budget, most - 1) if isinstance(most, int) else budget
    is_forced = isinstance(choice, dict) and choice.get("type") in ("any", "tool")
    if is_forced or budget < MIN_BUDGET:
        ledger.note(
            "thinking-mapped", client_path(ledger, "thinking"), "adaptive thinking was switched off", NOT_ACCEPTED
        )
        return without_keys(body, ["thinking"])
    what = f"adaptive thinking became a budget of {budget} tokens"
    ledger.note("thinking-mapped", client_path(ledger, "thinking"), what, NOT_ACCEPTED)
    return body | {"thinking": thinking | {"type": "enabled", "budget_tokens": budget}}


# --- members that came later ------------------------------------------------------------------------------------------

_LATER_MEMBERS = key_set("caller disable_parallel_tool_use display strict")


def drop_later_members(body: Object, _model: str, ledger: Ledger) -> Object:
    """The body without small members of tools, calls, thinking and the tool choice. Without them it asks the same."""

    def drop(node: Object, *keys: str | int) -> Object:
        for key in filter(_LATER_MEMBERS.__contains__, node):
            ledger.note("no-counterpart", client_path(ledger, *keys, key), f"`{key}` was left out", NOT_ACCEPTED)
        return node if _LATER_MEMBERS.isdisjoint(node) else without_keys(node, _LATER_MEMBERS)

    def drop_in_turn(number: int, turn: Object) -> Object:
        return change_items(turn, "content", lambda at, one: drop(one, "messages", number, "content", at))

    for key in ("thinking", "tool_choice"):
        node = body.get(key)
        if isinstance(node, dict) and (kept := drop(node, key)) is not node:
            body = body | {key: kept}
    body = change_items(body, "tools", lambda number, one: drop(one, "tools", number))
    return change_items(body, "messages", drop_in_turn)


# --- users ------------------------------------------------------------------------------------------------------------

PLAIN_USER_ID = re.compile(r"[A-Za-z0-9_-]+")


def hash_user_id(body: Object, _model: str, ledger: Ledger) -> Object:
    metadata = body.get("metadata")
    if not isinstance(metadata, dict):
        return body
    user = metadata.get("user_id")
    if not isinstance(user, str) or PLAIN_USER_ID.fullmatch(user):
        return body
    ledger.note("setting-mapped", client_path(ledger, "metadata", "user_id"), "the id of the user was hashed")
    return body | {"metadata": metadata | {"user_id": ids.hex_digest(user, 64)}}


QUIRKS: Mapping[str, Quirk] = {
    "block-cache": Quirk(
        about="knows cache breakpoints on blocks only, none for the whole request",
        rewrite_body=lambda body, _model, _ledger: move_breakpoint_to_last_block(body),
    ),
    "no-cache": Quirk(
        about="knows no cache breakpoints (`cache_control`)",
        rewrite_body=drop_breakpoints,
        markers=(b"cache_control",),
        # Anthropic itself refuses it at thinking.
        refusal=match_refusal(["cache_control"], is_nested=True, except_in="thinking"),
    ),
    "no-hosted-tools": Quirk(
        about="runs no tools itself: no search, no fetch, no code", constraints={"server_runs_tools": False}
    ),
    "no-system-turns": Quirk(
        about="refuses system messages among the others; they are sent as the user's",
        rewrite_body=move_system_turns,
        refusal=re.compile(
            r"(?s)\brole\b.{0,200}?(?:\bsystem\b|\buser\b\W{1,4}(?:or|and)\b\W{1,4}assistant\b)"
            r"|System messages? (?:must be at the beginning|(?:is|are) not (?:allowed|supported))"
        ),
    ),
    "no-tool-search": Quirk(
        about="knows no deferred tools (`defer_loading`, `tool_reference`, `tool_addition`); all are declared at once",
        rewrite_body=load_all_tools,
        # Chat templates of vLLM say the last one.
        refusal=re.compile(
            rf"\b(?:defer_loading|tool_reference|tool_addition|tool_removal|{SEARCH_TYPE}\w*)\b"
            r"|Unexpected item type in content"
        ),
    ),
    "no-betas": Quirk(
        about="knows no betas: neither the header `anthropic-beta` nor what betas add to a request, such as "
        "`context_management`",
        rewrite_body=drop_betas,
        http={"extra_headers": version_header, "list_refused": list_refused_headers},
        refusal=match_refusal(
            BETA_MEMBERS | BETA_TOOL_MEMBERS | BETA_CACHE_MEMBERS,
            r"anthropic-beta\b|(?i:\bbeta (?:flag|header)s?\b)",
            is_nested=True,
        ),
    ),
    "no-effort": Quirk(
        about="knows no `output_config.effort`",
        rewrite_body=drop_effort,
        refusal=match_refusal(["output_config", "output_config.effort"]),
    ),
    "no-adaptive-thinking": Quirk(
        about="thinks with a budget only; adaptive thinking gets one",
        rewrite_body=write_thinking_budget,
        refusal=re.compile(
            r"(?is)\badaptive\b(?!\.).{0,60}\b(?:does not match|not (?:supported|allowed|permitted))\b"
            r"|unknown variant\W{1,3}adaptive\b|\bthinking\.type\b.{0,60}\benabled\b"
        ),
    ),
    "no-later-members": Quirk(
        about="knows no `strict` of tools, `caller` of calls, `display` of thinking and `disable_parallel_tool_use`",
        rewrite_body=drop_later_members,
        refusal=match_refusal(_LATER_MEMBERS, is_nested=True),
    ),
    "thinking-back": Quirk(
        about="wants the thinking of every turn back; it is made up where another model has answered",
        rewrite_body=fill_thinking,
        refusal=re.compile(r"\bthinking\b.{0,60}\bmust be passed back\b"),
    ),
    "plain-user-id": Quirk(
        about="takes only letters, digits, `_` and `-` in `metadata.user_id`; another one is hashed",
        rewrite_body=hash_user_id,
        refusal=re.compile(r"(?is)\buser_id\b.{0,80}\bpattern\b"),
    ),
}
