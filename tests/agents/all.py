"""All agents that are run, by name. One that speaks several protocols stands here once for each."""

from __future__ import annotations

from agents.agent import Agent
from agents.claude import AGENT as CLAUDE
from agents.cline import AGENTS as CLINE
from agents.codex import AGENT as CODEX
from agents.continue_cli import AGENTS as CONTINUE
from agents.gemini import AGENT as GEMINI
from agents.kilo import AGENTS as KILO
from agents.opencode import AGENTS as OPENCODE
from agents.pi import AGENTS as PI
from agents.qwen import AGENT as QWEN

AGENTS: dict[str, Agent] = {
    "claude": CLAUDE,
    "codex": CODEX,
    "gemini": GEMINI,
    **OPENCODE,
    "qwen": QWEN,
    **PI,
    **CLINE,
    **KILO,
    **CONTINUE,
}
