"""The session of a request: which requests are turns of one conversation.

Agents name it in a header; a Responses request can name the conversation that it continues. For other requests it is
the start of the conversation, which every turn repeats. Gateways that know nothing of each other find the same session.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from json import JSONDecodeError, JSONDecoder
from typing import cast

from toolwire.core.ids import hex_digest
from toolwire.core.json_values import Json
from toolwire.gateway.exchange.gateway_request import GatewayRequest

SESSION_HEADERS = (
    "x-claude-code-session-id",  # Claude Code
    "session-id",  # Codex
    "session_id",  # older versions of Codex
)
"""Headers in which agents name their session."""
MAX_START = 32 * 1024
"""Bytes at the start of a conversation that are read."""
MAX_SEARCHED = 1024 * 1024
"""Bytes of a body in which the conversation must begin."""
MAX_START_TURNS = 8
"""Turns at the start among which the first one of the user is expected: instructions can be turns, too."""
_scan_value = JSONDecoder().raw_decode
_skip_separator = cast("Callable[[str, int], re.Match[str]]", re.compile(r"[\s,]*").match)


def find_session(call: GatewayRequest) -> str:
    """The session of a request: a digest, because clients choose what it is made from. Sessions of different keys are
    never the same. "" for a request without a conversation."""
    key = call.caller.key
    owner = key.name if key is not None else ""
    if (named := session_header(call.headers)) != "":
        return _session_id("header", owner, named)
    if call.body.peek.continues:
        return _session_id("continues", owner, call.body.peek.continues)
    start = read_start(call.body.data, call.client_codec.constraints.turns_key)
    return _session_id("start", owner, start) if start else ""


def session_header(headers: Mapping[str, str]) -> str:
    if headers.keys().isdisjoint(SESSION_HEADERS):
        return ""
    return next(headers[name] for name in SESSION_HEADERS if name in headers)


def _session_id(*words: str) -> str:
    return hex_digest("\0".join(words), 16)


def read_start(body: bytes, turns_key: str) -> str:
    """The text of the user's first turn. Instructions do not count: many contain the time, and a new session for every
    turn would hide just that. Only the start of the body is read, not the whole of it again."""
    at = _find_turns(body, turns_key)
    if at < 0:
        return ""
    text = body[at : at + MAX_START].decode("utf-8", "ignore")
    try:
        if text[0] == '"':
            return str(_scan_value(text)[0])
        return _read_first_turn(text)
    except (JSONDecodeError, RecursionError):
        return text  # the first turn is longer


def _find_turns(body: bytes, turns_key: str) -> int:
    """Where the list of turns begins, or the only one as a text (Responses); -1 for nowhere. A property of a tool may
    have the same name; its value is an object."""
    key, skip_to_value = _turns_pattern(turns_key)
    at = body.find(key, 0, MAX_SEARCHED)
    while at >= 0:
        if (found := skip_to_value(body, at)) is not None:
            return found.end()
        at = body.find(key, at + 1, MAX_SEARCHED)
    return -1


@cache
def _turns_pattern(turns_key: str) -> tuple[bytes, Callable[[bytes, int], re.Match[bytes] | None]]:
    """The key as it is written, and what matches it up to a list or a text."""
    key = b'"%b"' % turns_key.encode()
    return key, re.compile(key + rb'[ \t\r\n]*:[ \t\r\n]*(?=["\[])').match


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
        own = [text for text in texts if not text.lstrip().startswith("<")]  # agents put their environment there
        if own:
            return "\n".join(own)
        passed += texts
    return "\n".join(passed) or text[1:first_end]  # a picture, perhaps


def _list_texts(parts: Json) -> list[str]:
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts] if isinstance(parts, list) else ()
    return [text for text in texts if isinstance(text, str)]
