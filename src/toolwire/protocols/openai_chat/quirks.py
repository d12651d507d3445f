"""Where compatible servers differ from the original: bodies bent to what they take.

Every function gives back the very same body when nothing has to change, and never changes one in place: parts of it may
be the client's own. What is left out is noted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import filterfalse
from types import MappingProxyType

from toolwire.core.codec import Quirk
from toolwire.core.json_values import Json, Object, Path
from toolwire.core.losses import Ledger
from toolwire.protocols.openai_chat.models import can_force_call_unless_reasoning

MAX_DESCRIPTION_LENGTH = 1024
"""How long the description of a tool may be at old servers."""
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
"""Fields that only the original knows, each with the value that says nothing."""
NOT_ACCEPTED = "this server does not take it"


def _request_path(ledger: Ledger, *keys: str | int) -> Path:
    """A place in the client's request: known only when that was of this protocol too."""
    path: Path = None
    if ledger.source == ledger.target:
        for key in keys:
            path = (path, key)
    return path


# --- messages -------------------------------------------------------------------------------------------------------

NodeRewriter = Callable[[Object, int, Ledger], Object]


def _rewrite_messages(body: Object, rewrite: NodeRewriter, ledger: Ledger) -> Object:
    """The body with every message bent."""
    messages = body.get("messages")
    if not isinstance(messages, list):
        return body
    out = [
        rewrite(message, number, ledger) if isinstance(message, dict) else message
        for number, message in enumerate(messages)
    ]
    return body if all(new is old for new, old in zip(out, messages, strict=True)) else body | {"messages": out}


def _fill_empty_content(message: Object, _number: int, _ledger: Ledger) -> Object:
    if not message.get("tool_calls") or message.get("content") is not None:
        return message
    return message | {"content": ""}


def add_empty_content(body: Object, _model: str, ledger: Ledger) -> Object:
    return _rewrite_messages(body, _fill_empty_content, ledger)


def _join_text_parts(message: Object, number: int, ledger: Ledger) -> Object:
    content = message.get("content")
    if not isinstance(content, list) or not all(_is_text_part(part) for part in content):
        return message
    for place, part in enumerate(content):
        for key in filterfalse({"type", "text"}.__contains__, part):
            where = _request_path(ledger, "messages", number, "content", place, key)
            ledger.note("no-counterpart", where, f"`{key}` of a text was left out", "this server takes plain text only")
    return message | {"content": "\n".join(part["text"] for part in content)}


def _is_text_part(part: Json) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)


def flatten_text_content(body: Object, _model: str, ledger: Ledger) -> Object:
    return _rewrite_messages(body, _join_text_parts, ledger)


def _rename_developer_role(message: Object, number: int, ledger: Ledger) -> Object:
    if message.get("role") != "developer":
        return message
    where = _request_path(ledger, "messages", number, "role")
    ledger.note("role-mapped", where, "the role `developer` became `system`", "this server does not know `developer`")
    return message | {"role": "system"}


def replace_developer_role(body: Object, _model: str, ledger: Ledger) -> Object:
    return _rewrite_messages(body, _rename_developer_role, ledger)


# --- tools ----------------------------------------------------------------------------------------------------------


def _rewrite_tools(body: Object, rewrite: NodeRewriter, ledger: Ledger) -> Object:
    """The body with what stands inside every tool bent."""
    tools = body.get("tools")
    if not isinstance(tools, list):
        return body
    out = [_rewrite_tool(tool, number, rewrite, ledger) for number, tool in enumerate(tools)]
    return body if all(new is old for new, old in zip(out, tools, strict=True)) else body | {"tools": out}


def _rewrite_tool(tool: Json, number: int, rewrite: NodeRewriter, ledger: Ledger) -> Json:
    kind = next(
        (key for key in ("function", "custom") if isinstance(tool, dict) and isinstance(tool.get(key), dict)), ""
    )
    if not kind:
        return tool
    inner = rewrite(tool[kind], number, ledger)
    return tool if inner is tool[kind] else tool | {kind: inner}


def _shorten_description(tool: Object, number: int, ledger: Ledger) -> Object:
    said = tool.get("description")
    if not isinstance(said, str) or len(said) <= MAX_DESCRIPTION_LENGTH:
        return tool
    where = _request_path(ledger, "tools", number)
    ledger.note(
        "description-cut",
        where,
        f"of {len(said):,} characters that describe `{_tool_name(tool)}` {MAX_DESCRIPTION_LENGTH:,} stayed",
    )
    return tool | {"description": said[: MAX_DESCRIPTION_LENGTH - 1] + "…"}


def shorten_descriptions(body: Object, _model: str, ledger: Ledger) -> Object:
    return _rewrite_tools(body, _shorten_description, ledger)


def _drop_strict(tool: Object, number: int, ledger: Ledger) -> Object:
    if "strict" not in tool:
        return tool
    if tool["strict"]:
        where = _request_path(ledger, "tools", number)
        ledger.note("no-counterpart", where, f"`{_tool_name(tool)}` is not enforced strictly", NOT_ACCEPTED)
    return {key: value for key, value in tool.items() if key != "strict"}


def drop_strict(body: Object, _model: str, ledger: Ledger) -> Object:
    return _rewrite_tools(body, _drop_strict, ledger)


def _tool_name(tool: Object) -> str:
    name = tool.get("name")
    return name if isinstance(name, str) else ""


# --- settings -------------------------------------------------------------------------------------------------------


def rename_max_tokens_key(body: Object, _model: str, ledger: Ledger) -> Object:
    if "max_completion_tokens" not in body:
        return body
    limit, other = body["max_completion_tokens"], body.get("max_tokens")
    if limit is not None and other is not None and other != limit:
        ledger.note(
            "no-counterpart", _request_path(ledger, "max_tokens"), "of two limits `max_completion_tokens` stayed"
        )
    renamed = {"max_completion_tokens": "max_tokens"}
    out = {renamed.get(key, key): value for key, value in body.items() if key != "max_tokens"}
    return out if limit is not None else out | {"max_tokens": other}


def _drop_keys(keys: Mapping[str, Json]) -> Callable[[Object, str, Ledger], Object]:
    """Leaves these keys out; a value that says what the server assumes anyhow is left out without a word."""

    def rewrite(body: Object, _model: str, ledger: Ledger) -> Object:
        found = [key for key in keys if key in body]
        if not found:
            return body
        for key in found:
            if body[key] is not None and body[key] != keys[key]:
                ledger.note("no-counterpart", _request_path(ledger, key), f"`{key}` was left out", NOT_ACCEPTED)
        return {key: value for key, value in body.items() if key not in found}

    return rewrite


QUIRKS: Mapping[str, Quirk] = MappingProxyType(
    {
        "nine-letter-ids": Quirk(
            about="ids of calls are exactly nine letters and digits",
            constraints=MappingProxyType({"call_id_pattern": re.compile(r"[A-Za-z0-9]{9}"), "max_call_id_length": 9}),
        ),
        "function-tools-only": Quirk(
            about="custom tools are not known; they are wrapped as functions",
            constraints=MappingProxyType({"tool_kinds": frozenset({"function"})}),
        ),
        "no-hosted-tools": Quirk(
            about="runs no tools itself, not even a search", constraints={"server_runs_tools": False}
        ),
        "empty-content": Quirk(
            about="beside calls there must be a content, if only an empty one", rewrite_body=add_empty_content
        ),
        "plain-text-content": Quirk(
            about="text must be a string, not a list of parts", rewrite_body=flatten_text_content
        ),
        "short-descriptions": Quirk(
            about=f"tools are described in {MAX_DESCRIPTION_LENGTH} characters", rewrite_body=shorten_descriptions
        ),
        "max-tokens-key": Quirk(about="the limit on output is called `max_tokens`", rewrite_body=rename_max_tokens_key),
        "no-developer-role": Quirk(about="the role `developer` is not known", rewrite_body=replace_developer_role),
        "no-stream-options": Quirk(
            about="`stream_options` is refused, so usage comes as the server pleases",
            rewrite_body=_drop_keys({"stream_options": {}}),
        ),
        "system-first": Quirk(
            about="instructions in the middle are refused; they are said by the user",
            constraints=MappingProxyType({"mid_system_turns": "user"}),
        ),
        "repeated-deltas": Quirk(
            about="deltas repeat the id and name of their call, which SDKs add up: streams do not pass untouched",
        ),
        "sealed-reasoning": Quirk(
            about="`reasoning_details` hold seals, which are kept for clients that do not send them back",
            constraints=MappingProxyType({"seal_slots": frozenset({"reasoning"})}),
        ),
        "sealed-calls": Quirk(
            about="calls bear seals in `extra_content`, which are kept for clients that do not send them back",
            constraints=MappingProxyType({"seal_slots": frozenset({"reasoning", "call"})}),
        ),
        "reasoning-back": Quirk(
            about="`reasoning_content` must come back beside calls; it is kept for clients that leave it out",
            constraints=MappingProxyType({"needs_reasoning_returned": True}),
        ),
        "thinking-unforced": Quirk(
            about="no call can be demanded of a model that thinks; `choice` in a rule says what becomes of it",
            constraints=MappingProxyType({"can_force_tools": can_force_call_unless_reasoning}),
        ),
        "no-strict": Quirk(about="`strict` is refused in tools", rewrite_body=drop_strict),
        "no-parallel-flag": Quirk(
            about="`parallel_tool_calls` is refused", rewrite_body=_drop_keys({"parallel_tool_calls": True})
        ),
        "no-store-fields": Quirk(
            about="fields that only the original knows are refused: " + ", ".join(OPENAI_ONLY_KEYS),
            rewrite_body=_drop_keys(OPENAI_ONLY_KEYS),
        ),
    }
)
