"""The session of a request: which requests are turns of one conversation.

Agents name it in a header; a Responses request can name the conversation that it continues. For other requests it is
the start of the conversation, which every turn repeats. Gateways that know nothing of each other find the same session.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import filterfalse
from json import JSONDecodeError, JSONDecoder
from typing import cast

from msgspec import Raw

from toolwire.core.ids import hex_digest
from toolwire.core.json_values import Json
from toolwire.gateway.exchange.gateway_request import GatewayRequest

SESSION_HEADERS = (
    "x-claude-code-session-id",  # Claude Code
    "session-id",  # Codex
    "session_id",  # older versions of Codex
)
"""Headers in which agents name their session (recorded traffic, November 2026)."""
MAX_START = 32 * 1024
"""Bytes at the start of a conversation that are read."""
MAX_START_TURNS = 8
"""Turns at the start among which the first one of the user is expected: instructions can be turns, too."""
_is_environment = re.compile(r"\s*<").match
"""Agents put their environment into a text that begins so."""
_scan_value = JSONDecoder().raw_decode
_skip_separator = cast("Callable[[str, int], re.Match[str]]", re.compile(r"[\s,]*").match)


def find_named_session(headers: Mapping[str, str]) -> str:
    """The session that a header names; "" if none does."""
    if headers.keys().isdisjoint(SESSION_HEADERS):
        return ""
    return next(headers[name] for name in SESSION_HEADERS if name in headers)


def find_session(call: GatewayRequest) -> str:
    """The session of a request: a digest, because clients choose what it is made from. Sessions of different keys are
    never the same. "" for a request without a conversation."""
    key, body = call.caller.key, call.body
    if call.named_session:
        kind, name = "header", call.named_session
    elif body.peek.continues:
        kind, name = "continues", body.peek.continues
    else:
        turns = body.members.get(call.client_codec.constraints.turns_key)
        kind, name = "start", read_start(turns) if turns is not None else ""
    return hex_digest(f"{kind}\0{key.name if key is not None else ''}\0{name}", 16) if name else ""


def read_start(turns: Raw) -> str:
    """The text of the user's first turn, of the turns or of the only one as a text (Responses). Instructions do not
    count: many contain the time, and a new session for every turn would hide just that. Only the start is read."""
    text = bytes(memoryview(turns)[:MAX_START]).decode("utf-8", "ignore")
    try:
        if text.startswith("["):
            return _read_first_turn(text)
        return str(_scan_value(text)[0]) if text.startswith('"') else ""
    except (JSONDecodeError, RecursionError):
        return text  # the first turn is longer


def _read_first_turn(text: str) -> str:
    """Raises JSONDecodeError if the text is cut before its end."""
    passed: list[str] = []
    at, first_end = 1, 0
    for _ in range(MAX_START_TURNS):
        at = _skip_separator(text, at).end()
        if text.startswith("]", at):
            break
        turn, at = _scan_value(text, at)
        first_end = first_end or at
        if not isinstance(turn, dict) or turn.get("role", "user") != "user":  # Gemini does not need a role
            continue
        content = turn.get("content", turn.get("parts"))
        texts = [content] if isinstance(content, str) else _list_texts(content)
        own = [*filterfalse(_is_environment, texts)]
        if own:
            return "\n".join(own)
        passed += texts
    return "\n".join(passed) or text[1:first_end]  # a picture, perhaps


def _list_texts(parts: Json) -> list[str]:
    texts: list[str] = []
    for part in parts if isinstance(parts, list) else ():
        text = part.get("text") if isinstance(part, dict) else part
        if isinstance(text, str):
            texts.append(text)
    return texts
