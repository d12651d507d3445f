"""Where compatible servers differ from OpenAI, and the changes to a request body that they need.

A function returns the same body when nothing has to change. It never changes a body in place, because parts of it may
belong to the client's request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import filterfalse
from operator import is_
from types import MappingProxyType

from toolwire.core.codec import Quirk
from toolwire.core.json_values import Json, Object, Path
from toolwire.core.losses import Ledger
from toolwire.protocols.openai_chat.models import can_force_call_unless_reasoning
from toolwire.protocols.openai_chat.names import TOOL_SHAPES

MAX_DESCRIPTION_LENGTH = 1024
"""The longest tool description that old servers accept."""
OPENAI_ONLY_KEYS: Mapping[str, Json] = MappingProxyType(
    {
        "store": False,
        "metadata": {},
        "prompt_cache_key": "",
        "prompt_cache_options": {},
        "prompt_cache_retention": "",
        "safety_identifier": "",
        "moderation": None,
        "prediction": None,
        "verbosity": "medium",
    }
)
"""Keys that only OpenAI has, each with the default that can be left out without a note."""
NOT_ACCEPTED = "this server does not accept it"


def _request_path(ledger: Ledger, *keys: str | int) -> Path:
    """A place in the client's request, where that was a Chat request too."""
    path: Path = None
    if ledger.source == ledger.target:
        for key in keys:
            path = (path, key)
    return path


Rewriter = Callable[[Object, str, Ledger], Object]
"""Takes a body and the model's name."""
NodeRewriter = Callable[[Object, int, Ledger], Object]
"""Takes a message, or the inner object of a tool, and its number."""

# --- messages -------------------------------------------------------------------------------------------------------


def _for_each_message(rewrite: NodeRewriter) -> Rewriter:
    def rewrite_body(body: Object, _model: str, ledger: Ledger) -> Object:
        messages = body.get("messages")
        if not isinstance(messages, list):
            return body
        out = [rewrite(one, number, ledger) if isinstance(one, dict) else one for number, one in enumerate(messages)]
        return body if all(map(is_, out, messages)) else body | {"messages": out}

    return rewrite_body


def _add_empty_content(message: Object, _number: int, _ledger: Ledger) -> Object:
    if not message.get("tool_calls") or message.get("content") is not None:
        return message
    return message | {"content": ""}


def _join_text_parts(message: Object, number: int, ledger: Ledger) -> Object:
    content = message.get("content")
    if not isinstance(content, list) or not all(_is_text_part(part) for part in content):
        return message
    for place, part in enumerate(content):
        for key in filterfalse({"type", "text"}.__contains__, part):
            where = _request_path(ledger, "messages", number, "content", place, key)
            ledger.note("no-counterpart", where, f"`{key}` of a text was left out", "this server accepts strings only")
    return message | {"content": "\n".join(part["text"] for part in content)}


def _is_text_part(part: Json) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)


def _replace_developer_role(message: Object, number: int, ledger: Ledger) -> Object:
    if message.get("role") != "developer":
        return message
    where = _request_path(ledger, "messages", number, "role")
    ledger.note("role-mapped", where, "the role `developer` became `system`", "this server has no role `developer`")
    return message | {"role": "system"}


# --- tools ----------------------------------------------------------------------------------------------------------


def _for_each_tool(rewrite: NodeRewriter) -> Rewriter:
    def rewrite_tool(tool: Json, number: int, ledger: Ledger) -> Json:
        for kind in TOOL_SHAPES:
            if isinstance(tool, dict) and isinstance(tool.get(kind), dict):
                inner = rewrite(tool[kind], number, ledger)
                return tool if inner is tool[kind] else tool | {kind: inner}
        return tool

    def rewrite_body(body: Object, _model: str, ledger: Ledger) -> Object:
        tools = body.get("tools")
        if not isinstance(tools, list):
            return body
        out = [rewrite_tool(tool, number, ledger) for number, tool in enumerate(tools)]
        return body if all(map(is_, out, tools)) else body | {"tools": out}

    return rewrite_body


def _shorten_description(tool: Object, number: int, ledger: Ledger) -> Object:
    text = tool.get("description")
    if not isinstance(text, str) or len(text) <= MAX_DESCRIPTION_LENGTH:
        return tool
    what = f"the description of `{_tool_name(tool)}` was cut to {MAX_DESCRIPTION_LENGTH:,} of {len(text):,} characters"
    ledger.note("description-cut", _request_path(ledger, "tools", number), what)
    return tool | {"description": text[: MAX_DESCRIPTION_LENGTH - 1] + "…"}


def _drop_strict(tool: Object, number: int, ledger: Ledger) -> Object:
    if "strict" not in tool:
        return tool
    if tool["strict"]:
        where = _request_path(ledger, "tools", number)
        ledger.note("no-counterpart", where, f"`strict` of `{_tool_name(tool)}` was left out", NOT_ACCEPTED)
    return {key: value for key, value in tool.items() if key != "strict"}


def _tool_name(tool: Object) -> str:
    name = tool.get("name")
    return name if isinstance(name, str) else ""


# --- settings -------------------------------------------------------------------------------------------------------


def _rename_max_tokens_key(body: Object, _model: str, ledger: Ledger) -> Object:
    if "max_completion_tokens" not in body:
        return body
    limit, other = body["max_completion_tokens"], body.get("max_tokens")
    if limit is not None and other is not None and other != limit:
        what = "`max_tokens` was replaced by `max_completion_tokens`"
        ledger.note("no-counterpart", _request_path(ledger, "max_tokens"), what)
    renamed = {"max_completion_tokens": "max_tokens"}
    out = {renamed.get(key, key): value for key, value in body.items() if key != "max_tokens"}
    return out if limit is not None else out | {"max_tokens": other}


def _drop_keys(keys: Mapping[str, Json]) -> Rewriter:
    """Leave these keys out; the given default values are left out without a note."""

    def rewrite_body(body: Object, _model: str, ledger: Ledger) -> Object:
        found = [key for key in keys if key in body]
        if not found:
            return body
        for key in found:
            if body[key] is not None and body[key] != keys[key]:
                ledger.note("no-counterpart", _request_path(ledger, key), f"`{key}` was left out", NOT_ACCEPTED)
        return {key: value for key, value in body.items() if key not in found}

    return rewrite_body


QUIRKS: Mapping[str, Quirk] = MappingProxyType(
    {
        "nine-letter-ids": Quirk(
            about="the ids of calls must be exactly nine letters and digits (Mistral)",
            constraints={"call_id_pattern": re.compile(r"[A-Za-z0-9]{9}"), "max_call_id_length": 9},
        ),
        "function-tools-only": Quirk(
            about="there are no custom tools; they are sent as functions",
            constraints={"tool_kinds": frozenset({"function"})},
        ),
        "no-hosted-tools": Quirk(
            about="the server runs no tools itself, not even a web search", constraints={"server_runs_tools": False}
        ),
        "empty-content": Quirk(
            about="a message with calls needs `content`, if only an empty one",
            rewrite_body=_for_each_message(_add_empty_content),
        ),
        "plain-text-content": Quirk(
            about="text must be a string, not a list of parts", rewrite_body=_for_each_message(_join_text_parts)
        ),
        "short-descriptions": Quirk(
            about=f"the description of a tool has at most {MAX_DESCRIPTION_LENGTH} characters",
            rewrite_body=_for_each_tool(_shorten_description),
        ),
        "max-tokens-key": Quirk(
            about="the limit on output tokens is called `max_tokens`", rewrite_body=_rename_max_tokens_key
        ),
        "no-developer-role": Quirk(
            about="there is no role `developer`", rewrite_body=_for_each_message(_replace_developer_role)
        ),
        "no-stream-options": Quirk(
            about="`stream_options` is refused, so a stream may have no usage",
            rewrite_body=_drop_keys({"stream_options": {}}),
        ),
        "system-first": Quirk(
            about="system messages are refused after the first message; they are sent as the user's",
            constraints={"mid_system_turns": "user"},
        ),
        "repeated-deltas": Quirk(
            about="deltas repeat the id and name of their call, which SDKs would join: streams are rewritten",
        ),
        "sealed-reasoning": Quirk(
            about="`reasoning_details` hold seals, which are stored for clients that do not send them back",
            constraints={"seal_slots": frozenset({"reasoning"})},
        ),
        "sealed-calls": Quirk(
            about="calls have seals in `extra_content`, which are stored for clients that do not send them back",
            constraints={"seal_slots": frozenset({"reasoning", "call"})},
        ),
        "reasoning-back": Quirk(
            about="`reasoning_content` must be sent back with calls; it is stored for clients that leave it out",
            constraints={"needs_reasoning_returned": True},
        ),
        "thinking-unforced": Quirk(
            about="a reasoning model cannot be forced to call a tool; `choice` in a rule says what to do instead",
            constraints={"can_force_tools": can_force_call_unless_reasoning},
        ),
        "no-strict": Quirk(about="`strict` is refused in tools", rewrite_body=_for_each_tool(_drop_strict)),
        "no-parallel-flag": Quirk(
            about="`parallel_tool_calls` is refused", rewrite_body=_drop_keys({"parallel_tool_calls": True})
        ),
        "no-store-fields": Quirk(
            about="fields that only OpenAI has are refused: " + ", ".join(OPENAI_ONLY_KEYS),
            rewrite_body=_drop_keys(OPENAI_ONLY_KEYS),
        ),
    }
)
