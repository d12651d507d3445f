"""Claude Code: Messages only. MCP tools are deferred: the model finds them by ToolSearch before it can call them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from agents.agent import PROBE, Agent
from gateway.declared_tools import Use

SWITCHES = ("--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions")


def headless(prompt: str) -> list[str]:
    return ["-p", prompt, *SWITCHES]


def again(prompt: str) -> list[str]:
    return ["--continue", *headless(prompt)]


def shell(command: str) -> Use:
    return Use("Bash", {"command": command, "description": "Do what was asked"})


def read(path: Path) -> Use:
    return Use("Read", {"file_path": str(path)})


def write(path: Path, text: str) -> Use:
    return Use("Write", {"file_path": str(path), "content": text})


def use_search(*tools: str) -> Use:
    """The search that loads these tools."""
    return Use("ToolSearch", {"query": f"select:{','.join(tools)}", "max_results": len(tools)})


def echo(word: str) -> Sequence[Use]:
    return use_search("mcp__probe__echo"), Use("mcp__probe__echo", {"word": word})


def with_probe(workspace: Path) -> list[str]:
    command, *arguments = PROBE
    file = workspace / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"probe": {"command": command, "args": arguments}}}))
    return ["--strict-mcp-config", f"--mcp-config={file}"]


AGENT = Agent(
    name="claude",
    protocol="anthropic",
    model="claude-opus-5-5",
    headless=headless,
    again=again,
    shell=shell,
    read=read,
    write=write,
    look=read,
    echo=echo,
    with_probe=with_probe,
    environ={"IS_SANDBOX": "1"},
)
