"""How a call looks from outside: one path, model and stream flag in the body."""

from __future__ import annotations

from toolwire.room import Http

PATH = "/v1/unified"


def path(model: str, stream: bool) -> str:
    return PATH


HTTP = Http(path=path)
