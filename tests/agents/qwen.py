"""Qwen Code: Chat. The tools of MCP servers are not declared: it searches them, and calls them through one of its own.

Pictures are shown only to models whose names it knows as seeing ones. When a session goes on, the date is gone from its
first message, and the files of its folder are those of now.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agents.agent import PROBE, Agent
from gateway.declared_tools import Use
from gateway.provider import Received, ScriptedAnswer

SWITCHES = ("--yolo", "--output-format", "stream-json")
ECHO = "mcp__probe__echo"


def headless(prompt: str) -> list[str]:
    return [*SWITCHES, "--prompt", prompt]


def again(prompt: str) -> list[str]:
    return [*SWITCHES, "--continue", "--prompt", prompt]


def shell(command: str) -> Use:
    # It takes what was read when the shell ends, not when its output does: so the shell stays until that has been read.
    return Use("run_shell_command", {"command": f"trap 'sleep 0.5' EXIT; {command}", "is_background": False})


def read(path: Path) -> Use:
    return Use("read_file", {"file_path": str(path)})


def write(path: Path, text: str) -> Use:
    return Use("write_file", {"file_path": str(path), "content": text})


def look(path: Path) -> Use:
    return read(path)


def echo(word: str) -> Sequence[Use]:
    called = Use("tool_call", {"name": ECHO, "arguments": {"word": word}})
    return Use("tool_search", {"query": f"select:{ECHO}"}), called


def aside(asked: Received) -> ScriptedAnswer | None:
    """At the end of a session it looks for something to remember, with other tools."""
    return ScriptedAnswer("Nothing is worth it.") if "Managed memory has TWO directories" in asked.raw else None


def with_probe(workspace: Path) -> list[str]:
    command, *arguments = PROBE
    return _with_settings(workspace, {"mcpServers": {"probe": {"command": command, "args": arguments}}})


def compact_early(workspace: Path) -> list[str]:
    """With no cache to share, the summary is asked for without tools."""
    uncached = {"generationConfig": {"enableCacheControl": False}}
    return _with_settings(workspace, {"context": {"autoCompactThreshold": 0.00001}, "model": uncached})


def _with_settings(workspace: Path, settings: dict[str, Any]) -> list[str]:
    file = workspace / ".qwen" / "settings.json"
    file.parent.mkdir()
    file.write_text(json.dumps(settings))
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
    compact_early=compact_early,
    aside=aside,
    retells=True,
)
