"""How much to think, in the measures that the protocols use: words of effort and budgets of tokens."""

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
"""The budget that an effort stands for; reading a budget takes the nearest effort that is not above it."""


def budget_for_effort(effort: str) -> int:
    return BUDGET_BY_EFFORT.get(effort, BUDGET_BY_EFFORT["medium"])


def effort_for_budget(budget: int) -> str:
    """The effort that a budget amounts to. (A negative budget means "decide yourself": a mode tells that, not this.)"""
    fitting = [effort for effort in EFFORTS if BUDGET_BY_EFFORT[effort] <= budget]
    return fitting[-1] if fitting else "none"


def nearest_effort(effort: str, allowed: tuple[str, ...]) -> str:
    """The allowed effort closest to the one asked for; the weaker of two at the same distance."""
    if effort in allowed:
        return effort
    rank = EFFORTS.index(effort) if effort in EFFORTS else EFFORTS.index("medium")
    return min(allowed, key=lambda word: (abs(EFFORTS.index(word) - rank), EFFORTS.index(word)))
