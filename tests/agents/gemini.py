"""Gemini CLI: Gemini only. A file that is a picture is read by the tool that reads files."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from agents.agent import PROBE, Agent
from gateway.declared_tools import Use

SWITCHES = ("--yolo", "-o", "json")
"""Its stream tells the model's words in pieces."""


def headless(prompt: str) -> list[str]:
    return [*SWITCHES, "-p", prompt]


def again(prompt: str) -> list[str]:
    return [*SWITCHES, "--resume", "latest", "-p", prompt]


def shell(command: str) -> Use:
    """In a shell of its own: it refuses to run whatever looks like a substitution outside of quotes."""
    return Use("run_shell_command", {"command": f"env sh -c {shlex.quote(command)}"})


def read(path: Path) -> Use:
    return Use("read_file", {"file_path": str(path)})


def write(path: Path, text: str) -> Use:
    return Use("write_file", {"file_path": str(path), "content": text})


def echo(word: str) -> Sequence[Use]:
    return (Use("mcp_probe_echo", {"word": word}),)


def with_probe(workspace: Path) -> list[str]:
    command, *arguments = PROBE
    settings = {"mcpServers": {"probe": {"command": command, "args": arguments}}}
    folder = workspace / ".gemini"
    folder.mkdir()
    (folder / "settings.json").write_text(json.dumps(settings))
    return []


AGENT = Agent(
    name="gemini",
    protocol="gemini",
    model="gemini-2.5-pro",
    headless=headless,
    again=again,
    shell=shell,
    read=read,
    write=write,
    look=read,
    echo=echo,
    with_probe=with_probe,
    forgets=True,
    environ={"GEMINI_CLI_TRUST_WORKSPACE": "true"},  # the switch comes too late for the workspace's own settings
)
