"""Where compatible servers differ from the original: bodies bent to what they take.

Every function gives back the very same body when nothing has to change, and never changes one in place: parts of it may
be the client's own. What is left out is noted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import filterfalse
from types import MappingProxyType

from toolwire.loss import Ledger
from toolwire.protocols.openai_chat.models import forces_unthinking
from toolwire.room import Quirk
from toolwire.wire import Json, Object, Path

SHORT = 1024
"""How long the description of a tool may be at old servers."""
STORED: Mapping[str, Json] = MappingProxyType(
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
SERVER = "this server does not take it"


def _at(ledger: Ledger, *keys: str | int) -> Path:
    """A place in the client's request: known only when that was of this protocol too."""
    path: Path = None
    if ledger.source == ledger.target:
        for key in keys:
            path = (path, key)
    return path


# --- messages -------------------------------------------------------------------------------------------------------

Bent = Callable[[Object, int, Ledger], Object]


def _messages(body: Object, bent: Bent, ledger: Ledger) -> Object:
    """The body with every message bent."""
    messages = body.get("messages")
    if not isinstance(messages, list):
        return body
    out = [
        bent(message, number, ledger) if isinstance(message, dict) else message
        for number, message in enumerate(messages)
    ]
    return body if all(new is old for new, old in zip(out, messages, strict=True)) else body | {"messages": out}


def _filled(message: Object, _number: int, _ledger: Ledger) -> Object:
    if not message.get("tool_calls") or message.get("content") is not None:
        return message
    return message | {"content": ""}


def empty_content(body: Object, _model: str, ledger: Ledger) -> Object:
    return _messages(body, _filled, ledger)


def _plain(message: Object, number: int, ledger: Ledger) -> Object:
    content = message.get("content")
    if not isinstance(content, list) or not all(_is_text(part) for part in content):
        return message
    for place, part in enumerate(content):
        for key in filterfalse({"type", "text"}.__contains__, part):
            where = _at(ledger, "messages", number, "content", place, key)
            ledger.note("no-counterpart", where, f"`{key}` of a text was left out", "this server takes plain text only")
    return message | {"content": "\n".join(part["text"] for part in content)}


def _is_text(part: Json) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)


def plain_text_content(body: Object, _model: str, ledger: Ledger) -> Object:
    return _messages(body, _plain, ledger)


def _system(message: Object, number: int, ledger: Ledger) -> Object:
    if message.get("role") != "developer":
        return message
    where = _at(ledger, "messages", number, "role")
    ledger.note("role-mapped", where, "the role `developer` became `system`", "this server does not know `developer`")
    return message | {"role": "system"}


def no_developer_role(body: Object, _model: str, ledger: Ledger) -> Object:
    return _messages(body, _system, ledger)


# --- tools ----------------------------------------------------------------------------------------------------------


def _tools(body: Object, bent: Bent, ledger: Ledger) -> Object:
    """The body with what stands inside every tool bent."""
    tools = body.get("tools")
    if not isinstance(tools, list):
        return body
    out = [_tool(tool, number, bent, ledger) for number, tool in enumerate(tools)]
    return body if all(new is old for new, old in zip(out, tools, strict=True)) else body | {"tools": out}


def _tool(tool: Json, number: int, bent: Bent, ledger: Ledger) -> Json:
    kind = next(
        (key for key in ("function", "custom") if isinstance(tool, dict) and isinstance(tool.get(key), dict)), ""
    )
    if not kind:
        return tool
    inner = bent(tool[kind], number, ledger)
    return tool if inner is tool[kind] else tool | {kind: inner}


def _shortened(tool: Object, number: int, ledger: Ledger) -> Object:
    said = tool.get("description")
    if not isinstance(said, str) or len(said) <= SHORT:
        return tool
    where = _at(ledger, "tools", number)
    ledger.note("description-cut", where, f"of {len(said):,} characters that describe `{_name(tool)}` {SHORT:,} stayed")
    return tool | {"description": said[: SHORT - 1] + "…"}


def short_descriptions(body: Object, _model: str, ledger: Ledger) -> Object:
    return _tools(body, _shortened, ledger)


def _lenient(tool: Object, number: int, ledger: Ledger) -> Object:
    if "strict" not in tool:
        return tool
    if tool["strict"]:
        where = _at(ledger, "tools", number)
        ledger.note("no-counterpart", where, f"`{_name(tool)}` is not enforced strictly", SERVER)
    return {key: value for key, value in tool.items() if key != "strict"}


def no_strict(body: Object, _model: str, ledger: Ledger) -> Object:
    return _tools(body, _lenient, ledger)


def _name(tool: Object) -> str:
    name = tool.get("name")
    return name if isinstance(name, str) else ""


# --- settings -------------------------------------------------------------------------------------------------------


def max_tokens_key(body: Object, _model: str, ledger: Ledger) -> Object:
    if "max_completion_tokens" not in body:
        return body
    limit, other = body["max_completion_tokens"], body.get("max_tokens")
    if limit is not None and other is not None and other != limit:
        ledger.note("no-counterpart", _at(ledger, "max_tokens"), "of two limits `max_completion_tokens` stayed")
    renamed = {"max_completion_tokens": "max_tokens"}
    out = {renamed.get(key, key): value for key, value in body.items() if key != "max_tokens"}
    return out if limit is not None else out | {"max_tokens": other}


def _without(keys: Mapping[str, Json]) -> Callable[[Object, str, Ledger], Object]:
    """Leaves these keys out; a value that says what the server assumes anyhow is left out without a word."""

    def bent(body: Object, _model: str, ledger: Ledger) -> Object:
        found = [key for key in keys if key in body]
        if not found:
            return body
        for key in found:
            if body[key] is not None and body[key] != keys[key]:
                ledger.note("no-counterpart", _at(ledger, key), f"`{key}` was left out", SERVER)
        return {key: value for key, value in body.items() if key not in found}

    return bent


QUIRKS: Mapping[str, Quirk] = MappingProxyType(
    {
        "nine-letter-ids": Quirk(
            about="ids of calls are exactly nine letters and digits",
            rules=MappingProxyType({"id_pattern": re.compile(r"[A-Za-z0-9]{9}"), "id_limit": 9}),
        ),
        "function-tools-only": Quirk(
            about="custom tools are not known; they are wrapped as functions",
            rules=MappingProxyType({"tool_kinds": frozenset({"function"})}),
        ),
        "no-hosted-tools": Quirk(about="runs no tools itself, not even a search", rules={"hosted": False}),
        "empty-content": Quirk(about="beside calls there must be a content, if only an empty one", body=empty_content),
        "plain-text-content": Quirk(about="text must be a string, not a list of parts", body=plain_text_content),
        "short-descriptions": Quirk(about=f"tools are described in {SHORT} characters", body=short_descriptions),
        "max-tokens-key": Quirk(about="the limit on output is called `max_tokens`", body=max_tokens_key),
        "no-developer-role": Quirk(about="the role `developer` is not known", body=no_developer_role),
        "no-stream-options": Quirk(
            about="`stream_options` is refused, so usage comes as the server pleases",
            body=_without({"stream_options": {}}),
        ),
        "system-first": Quirk(
            about="instructions in the middle are refused; they are said by the user",
            rules=MappingProxyType({"mid_system": "user"}),
        ),
        "repeated-deltas": Quirk(
            about="deltas repeat the id and name of their call, which SDKs add up: streams do not pass untouched",
        ),
        "sealed-reasoning": Quirk(
            about="`reasoning_details` hold seals, which are kept for clients that do not send them back",
            rules=MappingProxyType({"seals": frozenset({"reasoning"})}),
        ),
        "sealed-calls": Quirk(
            about="calls bear seals in `extra_content`, which are kept for clients that do not send them back",
            rules=MappingProxyType({"seals": frozenset({"reasoning", "call"})}),
        ),
        "reasoning-back": Quirk(
            about="`reasoning_content` must come back beside calls; it is kept for clients that leave it out",
            rules=MappingProxyType({"reasoning_back": True}),
        ),
        "thinking-unforced": Quirk(
            about="no call can be demanded of a model that thinks; `choice` in a rule says what becomes of it",
            rules=MappingProxyType({"forces": forces_unthinking}),
        ),
        "no-strict": Quirk(about="`strict` is refused in tools", body=no_strict),
        "no-parallel-flag": Quirk(
            about="`parallel_tool_calls` is refused", body=_without({"parallel_tool_calls": True})
        ),
        "no-store-fields": Quirk(
            about="fields that only the original knows are refused: " + ", ".join(STORED),
            body=_without(STORED),
        ),
    }
)
