"""Thinking that stands for what is missing, for servers that refuse a turn without it."""

from __future__ import annotations

from collections.abc import Iterable

MAX_LENGTH = 240


def make_up_reasoning(calls: Iterable[tuple[str, str]]) -> str:
    """A line for a turn with these calls, by name and arguments. The same words in all turns would make the model write
    them (Lingtai-AI/lingtai-kernel#9, May 2026), so it says what is called."""
    called = ", then ".join(f"{name} {arguments}" for name, arguments in calls)
    text = f"Next: {called}" if called else "I can answer this now."
    return text if len(text) <= MAX_LENGTH else text[: MAX_LENGTH - 1] + "…"
