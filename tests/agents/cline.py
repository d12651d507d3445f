"""Cline's command line: any of the four protocols; it stands here once for each."""

from __future__ import annotations

from pathlib import Path

from agents.agent import ADAPTERS, OTHER_PROVIDER, UNSCRIPTED_SCENES, Agent
from gateway.declared_tools import Use


def headless(prompt: str) -> list[str]:
    return ["--json", prompt]


def shell(command: str) -> Use:
    return Use("run_commands", {"commands": [command]})


def read(path: Path) -> Use:
    return Use("read_files", {"files": [{"path": str(path)}]})


def write(path: Path, text: str) -> Use:
    return Use("editor", {"path": str(path), "new_text": text})


def patch(path: Path, text: str) -> Use:
    """In place of `editor`, for models whose names begin with `gpt-`."""
    lines = "".join(f"+{line}\n" for line in text.split("\n")[:-1])
    return Use("apply_patch", {"input": f"*** Begin Patch\n*** Add File: {path}\n{lines}*** End Patch\n"})


def with_old_thinking(workspace: Path) -> list[str]:
    """To models that it knows as older ones it sends a budget."""
    return ["--thinking", "high"]


AGENTS = {
    f"cline-{name}": Agent(
        name="cline",
        protocol=protocol,
        model=model,
        headless=headless,
        shell=shell,
        read=read,
        write=patch if model.startswith("gpt-") else write,
        with_old_thinking=with_old_thinking if protocol == "anthropic" else None,
        options=("--protocol", protocol),
        loses_seals=protocol in ("openai-responses", "anthropic"),
        scenes=UNSCRIPTED_SCENES,
        quick_targets=OTHER_PROVIDER[protocol],
    )
    for name, (protocol, model) in ADAPTERS.items()
}
