"""Seals are bound to what their maker saw, and what a client brings as its provider made it was made without rules."""

from __future__ import annotations

import re

from toolwire.envelopes import entries_in
from toolwire.ir import Call, Part, Reasoning, Seal, Text, Turn, changed

_UNRULED = "-"
_TELLING = re.compile("[/@]")
"""In makers of which more is known than their protocol."""


def estranged(turn: Turn) -> Turn:
    """A turn in which seals without an envelope are those of a maker that works without rules. Whoever knows his makers
    by more than their protocol (a gateway) takes them for another's; who does not, believes them as before."""
    parts = tuple(map(_estranged, turn.parts))
    return turn if all(new is old for new, old in zip(parts, turn.parts, strict=True)) else changed(turn, parts=parts)


def _estranged(part: Part) -> Part:
    seal = part.seal if isinstance(part, (Call, Reasoning, Text)) else None
    if seal is None or not seal.value or _TELLING.search(seal.maker) or entries_in(seal.value) is not None:
        return part
    return changed(part, seal=Seal(f"{seal.maker}/{_UNRULED}", seal.value))
