"""What went wrong with a server, in a line that may be shown to a model and in a log."""

from __future__ import annotations

import httpx2
from pydantic import ValidationError

from toolwire.gateway.settings.config import McpServer
from toolwire.gateway.telemetry.clean import clean, redact

SHORTEST = 6
"""Shorter values are words such as `true`, and hiding them would hide what is said."""
LONGEST = 300
HIDDEN = "…"


class Down(Exception):
    """There is nobody to ask, and why."""


def plain(error: BaseException, server: McpServer, last: str = "") -> str:
    """One line, without anything that the configuration keeps secret. `last` is what a program said last."""
    text = _told(_first(error), last)
    for secret in sorted(server.secrets, key=len, reverse=True):
        if len(secret) >= SHORTEST:
            text = text.replace(secret, HIDDEN)
    return clean(redact(" ".join(text.split())), LONGEST)


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _told(error: BaseException, last: str) -> str:
    match error:
        case ValidationError():
            return "it answered with something that MCP does not know"
        case httpx2.ConnectError() | httpx2.ConnectTimeout():
            return "it cannot be reached"
        case httpx2.HTTPError():
            return f"the connection failed ({type(error).__name__})"
        case FileNotFoundError() | PermissionError():
            return f"it cannot be started: {error.strerror}"
        case _:
            text = str(error) or type(error).__name__
            return f"{text}; it last said: {last}" if last and "onnection closed" in text else text
