"""Qwen Code: Chat."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from agents.agent import PROBE, Agent
from gateway.offered import Use

SWITCHES = ("--yolo", "--output-format", "stream-json")
ECHO = "mcp__probe__echo"


def headless(prompt: str) -> list[str]:
    return [*SWITCHES, "--prompt", prompt]


def again(prompt: str) -> list[str]:
    return [*SWITCHES, "--continue", "--prompt", prompt]


def shell(command: str) -> Use:
    return Use("run_shell_command", {"command": command, "is_background": False})


def read(path: Path) -> Use:
    return Use("read_file", {"file_path": str(path)})


def write(path: Path, text: str) -> Use:
    return Use("write_file", {"file_path": str(path), "content": text})


def look(path: Path) -> Use:
    return read(path)


def echo(word: str) -> Sequence[Use]:
    return Use("tool_search", {"query": f"select:{ECHO}"}), Use(
        "tool_call", {"name": ECHO, "arguments": {"word": word}}
    )


def with_probe(workspace: Path) -> list[str]:
    command, *arguments = PROBE
    settings = workspace / ".qwen" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"mcpServers": {"probe": {"command": command, "args": arguments}}}))
    return []


AGENT = Agent(
    name="qwen",
    protocol="openai-chat",
    model="qwen3.8-plus",
    headless=headless,
    again=again,
    shell=shell,
    read=read,
    write=write,
    look=look,
    echo=echo,
    with_probe=with_probe,
)
