"""`toolwire mcp`: which MCP servers there are, whether they answer, and under which names models know their tools."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Iterator

import msgspec

from toolwire.cli import EXIT_BAD_INPUT, terminal
from toolwire.cli.check_config import describe_audience, print_problems
from toolwire.gateway.config.config import Config, McpServer
from toolwire.gateway.config.load import load_config
from toolwire.gateway.config.problems import ConfigError
from toolwire.gateway.mcp.servers import McpServers, ServerStatus

EXIT_DOWN = 1
MAX_NAME_WIDTH = 40
"""The most that is shown of a server's own name for a tool."""
MIN_DESCRIPTION_WIDTH = 20
"""The least width that is left to a description."""
STATE_COLOURS = {"up": "ok", "down": "lost"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=("list",), help="connect to every server and list its tools")
    parser.add_argument("--config", metavar="FILE", help="the file (default: $TOOLWIRE_CONFIG, ./toolwire.toml, …)")
    parser.add_argument("--json", action="store_true", help="as one JSON document")


def run(args: argparse.Namespace) -> int:
    try:
        config = load_config(args.config, os.environ)
    except ConfigError as problems:
        print_problems(problems.problems, problems.file)
        return EXIT_BAD_INPUT
    print_problems(config.warnings, str(config.file or ""))
    found = asyncio.run(connect_servers(config))
    if args.json:
        told = msgspec.json.encode({"servers": [server_document(status) for status in found]})
        sys.stdout.write(msgspec.json.format(told, indent=2).decode() + "\n")
    else:
        print_servers(found)
    return EXIT_DOWN if any(status.state != "up" for status in found) else 0


async def connect_servers(config: Config) -> tuple[ServerStatus, ...]:
    """Every server, after it has answered or could not."""
    servers = McpServers()
    servers.apply_config(config)
    try:
        await servers.connect_all()
        return servers.server_statuses()
    finally:
        await servers.close()


def print_servers(found: tuple[ServerStatus, ...]) -> None:
    if not found:
        sys.stderr.write("no MCP server is configured\nhint: add [mcp.NAME] with a `command` or a `url`\n")
    for status in found:
        state = terminal.paint_text(status.state, STATE_COLOURS.get(status.state, "dim"), sys.stdout)
        name = terminal.paint_text(status.settings.name, "head", sys.stdout)
        what = status.version or status.settings.display_name
        sys.stdout.write(f"{name}  {state}  {what}  for {describe_audience(status.settings)}\n")
        sys.stdout.write(terminal.format_table(tool_rows(status)))
        if status.state != "up":
            sys.stderr.write(
                f"error: {status.settings.name} is down: {status.last_error}\nhint: {down_hint(status.settings)}\n"
            )


def tool_rows(status: ServerStatus) -> list[tuple[str, ...]]:
    """What a model calls a tool, what the server does, and what it is good for."""
    found = [(f"  {offered.tool.name}", first_line(offered.name, MAX_NAME_WIDTH)) for offered in status.tools]
    left = terminal.terminal_width() - sum(max((len(row[column]) for row in found), default=0) + 2 for column in (0, 1))
    about = [first_line(offered.tool.description or "", max(left, MIN_DESCRIPTION_WIDTH)) for offered in status.tools]
    return [(*row, said) for row, said in zip(found, about, strict=True)]


def first_line(text: str, width: int) -> str:
    """The first line of a text, cut."""
    first = text.strip().partition("\n")[0]
    return first if len(first) <= width else f"{first[: width - 1]}…"


def down_hint(server: McpServer) -> str:
    if server.missing_variables:
        return f"set {', '.join(server.missing_variables)}"
    return f"does it start by hand? {server.display_name}" if server.command else f"is it there? {server.display_name}"


def server_document(status: ServerStatus) -> dict[str, object]:
    return {
        "name": status.settings.name,
        "state": status.state,
        "why": status.last_error,
        "server": status.version,
        "where": status.settings.display_name,
        "models": status.settings.models,
        "clients": status.settings.clients,
        "tools": list(tool_documents(status)),
    }


def tool_documents(status: ServerStatus) -> Iterator[dict[str, object]]:
    for offered in status.tools:
        tool = offered.tool
        yield {
            "name": tool.name,
            "tool": offered.name,
            "description": tool.description,
            "parameters": tool.parameters,
        }
