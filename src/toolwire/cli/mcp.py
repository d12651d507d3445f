"""`toolwire mcp`: which MCP servers there are, whether they answer, and under which names models know their tools."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Iterator

import msgspec

from toolwire.cli import BAD_INPUT, screen
from toolwire.cli.check_config import complain, whom
from toolwire.gateway.mcp.servers import Servers, Status
from toolwire.gateway.settings.config import Config, McpServer
from toolwire.gateway.settings.configfile import load
from toolwire.gateway.settings.problems import Problems

IS_DOWN = 1
WIDE = 40
"""The most that is shown of a server's own name for a tool."""
SHORT = 20
"""The least width that is left to a description."""
COLOURS = {"up": "ok", "down": "lost"}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=("list",), help="connect to every server and list its tools")
    parser.add_argument("--config", metavar="FILE", help="the file (default: $TOOLWIRE_CONFIG, ./toolwire.toml, …)")
    parser.add_argument("--json", action="store_true", help="as one JSON document")


def run(chosen: argparse.Namespace) -> int:
    try:
        config = load(chosen.config, os.environ)
    except Problems as problems:
        complain(problems.found, problems.file)
        return BAD_INPUT
    complain(config.warnings, str(config.file or ""))
    found = asyncio.run(asked(config))
    if chosen.json:
        told = msgspec.json.encode({"servers": [document(status) for status in found]})
        sys.stdout.write(msgspec.json.format(told, indent=2).decode() + "\n")
    else:
        show(found)
    return IS_DOWN if any(status.state != "up" for status in found) else 0


async def asked(config: Config) -> tuple[Status, ...]:
    """Every server, after it has answered or could not."""
    servers = Servers()
    servers.reload(config)
    try:
        await servers.connect()
        return servers.status()
    finally:
        await servers.close()


def show(found: tuple[Status, ...]) -> None:
    if not found:
        sys.stderr.write("no MCP server is configured\nhint: add [mcp.NAME] with a `command` or a `url`\n")
    for status in found:
        state = screen.paint(status.state, COLOURS.get(status.state, "dim"), sys.stdout)
        name = screen.paint(status.settings.name, "head", sys.stdout)
        what = status.version or status.settings.shown
        sys.stdout.write(f"{name}  {state}  {what}  for {whom(status.settings)}\n")
        sys.stdout.write(screen.table(rows(status)))
        if status.state != "up":
            sys.stderr.write(f"error: {status.settings.name} is down: {status.why}\nhint: {hint(status.settings)}\n")


def rows(status: Status) -> list[tuple[str, ...]]:
    """What a model calls a tool, what the server does, and what it is good for."""
    found = [(f"  {offered.tool.name}", line(offered.name, WIDE)) for offered in status.tools]
    left = screen.width() - sum(max((len(row[column]) for row in found), default=0) + 2 for column in (0, 1))
    about = [line(offered.tool.description or "", max(left, SHORT)) for offered in status.tools]
    return [(*row, said) for row, said in zip(found, about, strict=True)]


def line(text: str, width: int) -> str:
    """The first line of a text, cut."""
    first = text.strip().partition("\n")[0]
    return first if len(first) <= width else f"{first[: width - 1]}…"


def hint(server: McpServer) -> str:
    if server.missing:
        return f"set {', '.join(server.missing)}"
    return f"does it start by hand? {server.shown}" if server.command else f"is it there? {server.shown}"


def document(status: Status) -> dict[str, object]:
    return {
        "name": status.settings.name,
        "state": status.state,
        "why": status.why,
        "server": status.version,
        "where": status.settings.shown,
        "models": status.settings.models,
        "clients": status.settings.clients,
        "tools": list(tools(status)),
    }


def tools(status: Status) -> Iterator[dict[str, object]]:
    for offered in status.tools:
        tool = offered.tool
        yield {
            "name": tool.name,
            "tool": offered.name,
            "description": tool.description,
            "parameters": tool.parameters,
        }
