"""Finds the name of a tool as the first word of an answer: what is left of some formats when a server drops marks."""

from __future__ import annotations

import re

from toolwire.tool_formats.frame import Situation, Waiting
from toolwire.tool_formats.json_text import ANY_TEXT

_match_word = re.compile(r"[^\W\d][\w-]*+(?:[.:/][\w-]++)*+[.:/]?").match


def find_first_name(text: str, start: int, situation: Situation, suffix: str = "") -> str | Waiting | None:
    """The first word if it is the exact name of an offered tool, with `suffix` behind it."""
    found = _match_word(text, start)
    if found is None:
        return None
    if found.end() == len(text) and not situation.is_end:
        return Waiting(ANY_TEXT)
    name = found[0].removesuffix(suffix) if suffix else found[0]
    is_offered = found[0].endswith(suffix) and situation.tools.find_tool(name) == name
    return name if is_offered else None
