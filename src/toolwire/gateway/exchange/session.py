"""The session of a request: which requests are turns of one conversation.

Agents name it in a header; a Responses request can name the conversation that it continues. For other requests it is
the start of the conversation, which every turn repeats. Gateways that know nothing of each other find the same session.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import filterfalse
from json import JSONDecodeError, JSONDecoder
from typing import Protocol, cast

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


class _Scanner(Protocol):
    scan_once: Callable[[str, int], tuple[Json, int]]


_scan_value = cast("_Scanner", JSONDecoder()).scan_once
"""The value at a place of a text, and its end; raises StopIteration where there is none."""
_find_item = re.compile(r"[\s,]*+(?!\])").match


def find_named_session(headers: Mapping[str, str]) -> str:
    if headers.keys().isdisjoint(SESSION_HEADERS):
        return ""
    return next(headers[name] for name in SESSION_HEADERS if name in headers)


def find_session(request: GatewayRequest) -> str:
    """The session of a request: a digest, because clients choose what it is made from. Sessions of different keys are
    never the same. "" for a request without a conversation."""
    key, body = request.caller.key, request.body
    if request.named_session:
        kind, name = "header", request.named_session
    elif body.peek.continues:
        kind, name = "continues", body.peek.continues
    else:
        turns = body.members.get(request.client_codec.constraints.turns_key)
        kind, name = "start", read_start(turns) if turns is not None else ""
    return hex_digest(f"{kind}\0{key.name if key is not None else ''}\0{name}", 16) if name else ""


def read_start(turns: Raw) -> str:
    """The text of the user's first turn, of the turns or of the only one as a text (Responses). Instructions do not
    count: many contain the time, and a new session for every turn would hide just that. Only the start is read."""
    text = bytes(memoryview(turns)[:MAX_START]).decode("utf-8", "ignore")
    if text.startswith('"'):
        text = f'[{{"content":{text}}}]'
    passed: list[str] = []
    at, first_end = 1, 0
    try:
        for _ in range(MAX_START_TURNS):
            item = _find_item(text, at)
            if item is None:
                break
            turn, at = _scan_value(text, item.end())
            first_end = first_end or at
            if type(turn) is not dict or turn.get("role", "user") != "user":  # Gemini does not need a role
                continue
            content = turn["content"] if "content" in turn else turn.get("parts")
            texts = [content] if type(content) is str else _list_texts(content)
            own = [*filterfalse(_is_environment, texts)]
            if own:
                return "\n".join(own)
            passed += texts
    except (JSONDecodeError, StopIteration, RecursionError):
        return text if text.startswith("[") else ""  # the first turn is longer
    return "\n".join(passed) or text[1:first_end]  # a picture, perhaps


def _list_texts(parts: Json) -> list[str]:
    texts: list[str] = []
    for part in parts if isinstance(parts, list) else ():
        text = part.get("text") if isinstance(part, dict) else part
        if isinstance(text, str):
            texts.append(text)
    return texts
