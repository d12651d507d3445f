"""Pi: any of the four protocols; it stands here once for each. It has four tools, and no MCP.

It asks no model to think unless its list of models says that it can. The user may say so in the file that `toolwire run`
completes.
"""

from __future__ import annotations

import json
from pathlib import Path

from agents.agent import ADAPTERS, OLD_CLAUDE, OTHER_PROVIDER, UNSCRIPTED_SCENES, Agent
from gateway.declared_tools import Use

SWITCHES = ("--print", "--mode", "json")


def headless(prompt: str) -> list[str]:
    return [*SWITCHES, prompt]


def again(prompt: str) -> list[str]:
    return [*SWITCHES, "--continue", prompt]


def shell(command: str) -> Use:
    return Use("bash", {"command": command})


def read(path: Path) -> Use:
    return Use("read", {"path": str(path)})


def write(path: Path, text: str) -> Use:
    return Use("write", {"path": str(path), "content": text})


def with_old_thinking(workspace: Path) -> list[str]:
    return ["--thinking", "high"]


def furnish(home: Path) -> None:
    """What says that the old Claude thinks, and that even a short history is worth shortening."""
    folder = home / ".local/state/toolwire/agents/pi"
    folder.mkdir(parents=True, exist_ok=True)
    thinks = {"modelOverrides": {OLD_CLAUDE: {"reasoning": True}}}
    (folder / "models.json").write_text(json.dumps({"providers": {"toolwire": thinks}}))
    (folder / "settings.json").write_text(json.dumps({"compaction": {"keepRecentTokens": 1}}))


AGENTS = {
    f"pi-{name}": Agent(
        name="pi",
        protocol=protocol,
        model=model,
        headless=headless,
        again=again,
        shell=shell,
        read=read,
        write=write,
        look=read,
        with_old_thinking=with_old_thinking if protocol == "anthropic" else None,
        options=("--protocol", protocol),
        furnish=furnish,
        repairs_arguments=True,
        scenes=UNSCRIPTED_SCENES,
        quick_targets=OTHER_PROVIDER[protocol],
    )
    for name, (protocol, model) in ADAPTERS.items()
}
