"""Where an agent is installed: on PATH, or in the project's `node_modules`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from toolwire.agents.data import Agent


def found(agent: Agent, environ: Mapping[str, str], folder: Path) -> str:
    """The program; nothing when it is not there."""
    there = shutil.which(agent.command, path=environ.get("PATH", ""))
    return there or next(filter(None, (_below(agent, parent) for parent in (folder, *folder.parents))), "")


def _below(agent: Agent, folder: Path) -> str:
    return shutil.which(agent.command, path=str(folder / "node_modules" / ".bin")) or ""


def search_path(program: str, environ: Mapping[str, str]) -> str:
    """PATH for the agent. A Node that is installed beside it comes first: the usual one may be too old for it."""
    beside, path = str(Path(program).parent), environ.get("PATH", "")
    return f"{beside}{os.pathsep}{path}" if shutil.which("node", path=beside) else path
