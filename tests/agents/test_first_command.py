"""The first command of docs/guides/agents.md, on the embedded model: the agent runs `date` by a tool."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agents.agent import AgentWorkspace
from agents.all import CLAUDE, CODEX, OPENCODE
from waits import PATIENCE

AGENTS = {"codex": CODEX, "claude": CLAUDE, "opencode": OPENCODE["opencode-chat"]}
COMMANDS = {
    "codex": ["exec", "--skip-git-repo-check"],
    "claude": ["-p", "--allowedTools", "Bash", "--"],
    "opencode": ["run"],
}
"""What is before the prompt; Claude Code asks before it runs commands that it does not know as harmless."""


@pytest.mark.parametrize("name", COMMANDS)
def test_the_agent_runs_the_command(name: str, tmp_path: Path) -> None:
    config = tmp_path / "toolwire.toml"
    config.write_text("")
    for folder in ("home", "work"):
        (tmp_path / folder).mkdir()
    desk = AgentWorkspace(tmp_path / "work", tmp_path / "home", config)
    (desk.workspace / "made.txt").write_text("made-42\n")
    agent = AGENTS[name]
    agent.furnish(desk.home)
    command = [sys.executable, "-m", "toolwire.cli", "run", name, "--config", str(config), "--model", "loopback", "--"]
    ran = subprocess.run(
        [*command, *COMMANDS[name], "run `cat made.txt`"],
        cwd=desk.workspace,
        env=desk.environ(agent),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert "said:" in ran.stdout, ran
    assert "made-42" in ran.stdout, ran
