"""Reads a fence that is the whole answer: the one case in which a call in a fence is meant. It must have a language
that models write around calls, as in the test suites of llama.cpp: a bare fence shows something."""

from __future__ import annotations

import re
from collections.abc import Callable

from toolwire.tool_formats.frame import Frame, PieceReader, Situation, TextCall, Waiting

_match_opening = re.compile(r"(```)[ \t]*(?:json|xml|tool_calls?|tool_use|function_calls?)[ \t]*\r?\n").match
_match_part_of_opening = re.compile(r"(`{1,3})[ \t]*[\w.+-]*[ \t]*\r?\Z").match
_MAX_OPENING = 64
_TAIL = " \t\r\n`~"
"""What the end of a fence is made of."""


def read_fence(
    text: str,
    start: int,
    situation: Situation,
    inner: PieceReader,
    match_opening: Callable[[str, int], re.Match[str] | None] = _match_opening,
) -> Frame | Waiting | None:
    """The calls in the fence that begins here. `inner` reads its content, and nothing but calls may be in it."""
    opening = match_opening(text, start)
    if opening is None:
        is_part = len(text) - start < _MAX_OPENING and _match_part_of_opening(text, start)
        return Waiting(("\n",)) if is_part and not situation.is_end else None
    body = text[opening.end() :].rstrip(_TAIL)
    tail = text[opening.end() + len(body) :]
    pieces = inner.feed(body)
    if situation.is_end:
        if situation.was_cut and opening[1] not in tail:
            return None
        pieces += inner.close(situation.was_cut)
    calls = [piece for piece in pieces if isinstance(piece, TextCall)]
    if any(not isinstance(piece, TextCall) and not (isinstance(piece, str) and piece.isspace()) for piece in pieces):
        return None
    if not situation.is_end:
        return Waiting(("\n",))
    return Frame(len(text), tuple(calls)) if calls else None
