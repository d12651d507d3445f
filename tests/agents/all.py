"""All agents that are run, by name. One that speaks several protocols stands here once for each."""

from __future__ import annotations

from agents.agent import Agent
from agents.claude import AGENT as CLAUDE
from agents.codex import AGENT as CODEX
from agents.gemini import AGENT as GEMINI
from agents.opencode import AGENTS as OPENCODE
from agents.qwen import AGENT as QWEN

AGENTS: dict[str, Agent] = {"claude": CLAUDE, "codex": CODEX, "gemini": GEMINI, **OPENCODE, "qwen": QWEN}
