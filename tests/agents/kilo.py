"""Kilo: a fork of opencode, in any of the four protocols; it stands here once for each.

A start takes some ten seconds of computing, so it plays each scene with one provider for each protocol that it speaks.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from agents import opencode
from agents.agent import OLD_CLAUDE, OTHER_PROVIDER, PROBE, UNSCRIPTED_SCENES

QUICK = {name.replace("OPENCODE_", "KILO_"): value for name, value in opencode.QUICK.items()}
PLUGINS = {"packages": {"": {"dependencies": {"@kilocode/plugin": "*"}}}}


def with_settings(workspace: Path, settings: dict[str, object]) -> list[str]:
    (workspace / "kilo.json").write_text(json.dumps(settings))
    return []


def with_probe(workspace: Path) -> list[str]:
    return with_settings(workspace, {"mcp": {"probe": {"type": "local", "command": list(PROBE)}}})


def with_old_thinking(workspace: Path) -> list[str]:
    thinking = {"thinking": {"type": "enabled", "budgetTokens": 8000}}
    return with_settings(workspace, {"provider": {"toolwire": {"models": {OLD_CLAUDE: {"options": thinking}}}}})


def furnish(home: Path) -> None:
    """As opencode: it finds that it has installed its package for plugins."""
    settings = home / ".local/state/toolwire/agents/kilo/.config/kilo"
    (settings / "node_modules").mkdir(parents=True, exist_ok=True)
    (settings / "package-lock.json").write_text(json.dumps(PLUGINS))


AGENTS = {
    name.replace("opencode", "kilo"): replace(
        agent,
        name="kilo",
        with_probe=with_probe,
        with_old_thinking=with_old_thinking if agent.protocol == "anthropic" else None,
        environ=QUICK,
        furnish=furnish,
        scenes=UNSCRIPTED_SCENES,
        targets=OTHER_PROVIDER[agent.protocol],
        quick_targets=OTHER_PROVIDER[agent.protocol],
    )
    for name, agent in opencode.AGENTS.items()
}
