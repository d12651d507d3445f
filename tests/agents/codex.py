"""Codex CLI: Responses only. Its tools depend on the model's name; files are written by patches in free text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from agents.agent import PROBE, Agent
from gateway.declared_tools import Use

SWITCHES = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--json")
FULL_ALREADY = ("-c", "model_auto_compact_token_limit=10")
"""Any answer makes it shorten its history."""


def headless(prompt: str) -> list[str]:
    return ["exec", *SWITCHES, prompt]


def again(prompt: str) -> list[str]:
    return ["exec", *SWITCHES, "resume", "--last", prompt]


def shell(command: str) -> Use:
    return Use("exec_command", {"cmd": command})


def read(path: Path) -> Use:
    return shell(f"cat {path}")


def write(path: Path, text: str) -> Use:
    lines = "".join(f"+{line}\n" for line in text.split("\n")[:-1])
    return Use("apply_patch", f"*** Begin Patch\n*** Add File: {path.name}\n{lines}*** End Patch\n")


def look(path: Path) -> Use:
    return Use("view_image", {"path": str(path)})


def echo(word: str) -> Sequence[Use]:
    return Use("tool_search", {"query": "probe echo"}), Use("echo", {"word": word}, "mcp__probe")


def with_probe(workspace: Path) -> list[str]:
    command, *arguments = PROBE
    settings = {"command": command, "args": arguments}
    return [word for key, value in settings.items() for word in ("-c", f"mcp_servers.probe.{key}={json.dumps(value)}")]


def compact_early(workspace: Path) -> list[str]:
    return list(FULL_ALREADY)


AGENT = Agent(
    name="codex",
    protocol="openai-responses",
    model="gpt-5.5",
    headless=headless,
    again=again,
    shell=shell,
    read=read,
    write=write,
    look=look,
    echo=echo,
    with_probe=with_probe,
    compact_early=compact_early,
)
