"""How a call looks from outside."""

from __future__ import annotations

from toolwire.room import Http


def path(model: str, stream: bool) -> str:
    """One path for all: model and stream flag stand in the body."""
    return "/v1/messages"


HTTP = Http(path=path)
