"""Conversion between the two measures of thinking: OpenAI's effort and the token budget of Anthropic and Gemini."""

from __future__ import annotations

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")

BUDGET_BY_EFFORT = {
    "none": 0,
    "minimal": 1024,
    "low": 4096,
    "medium": 8192,
    "high": 16384,
    "xhigh": 32768,
    "max": 65536,
}
"""Tokens for each effort. A budget is read as the highest effort that is not above it."""


def budget_for_effort(effort: str) -> int:
    return BUDGET_BY_EFFORT.get(effort, BUDGET_BY_EFFORT["medium"])


def effort_for_budget(budget: int) -> str:
    """The effort for a budget. (Gemini's -1, "decide yourself", is a mode: see `ir.Thinking.mode`.)"""
    return next((effort for effort in reversed(EFFORTS) if BUDGET_BY_EFFORT[effort] <= budget), "none")


def nearest_effort(effort: str, allowed: tuple[str, ...]) -> str:
    """The allowed effort that is closest; of two at the same distance, the lower one."""
    if effort in allowed:
        return effort
    rank = EFFORTS.index(effort) if effort in EFFORTS else EFFORTS.index("medium")
    return min(allowed, key=lambda word: (abs(EFFORTS.index(word) - rank), EFFORTS.index(word)))
