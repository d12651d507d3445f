"""How a call of this protocol looks from outside."""

from __future__ import annotations

from toolwire.room import Http


def _path(_model: str, _stream: bool) -> str:
    return "/v1/chat/completions"


HTTP = Http(path=_path)
