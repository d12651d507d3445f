"""All agents that are run, by name. One that speaks several protocols stands here once for each."""

from __future__ import annotations

from agents.agent import Agent
from agents.codex import AGENT as CODEX

AGENTS: dict[str, Agent] = {"codex": CODEX}
