"""How a call of this protocol looks from outside."""

from __future__ import annotations

from toolwire.room import Http

PATH = "/v1/responses"


def path(model: str, stream: bool) -> str:
    return PATH


HTTP = Http(path=path)
