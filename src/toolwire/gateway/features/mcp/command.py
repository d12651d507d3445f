"""`toolwire mcp list`: connect to the configured MCP servers, and list their tools by the names that models see."""

from __future__ import annotations

import argparse
import asyncio
import sys

from msgspec.structs import replace

from toolwire import terminal
from toolwire.gateway.features.mcp.servers import McpServers, ServerStatus
from toolwire.gateway.features.mcp.settings import McpServer
from toolwire.gateway.settings.config import Config
from toolwire.gateway.settings.problems import report_problems
from toolwire.terminal import EXIT_FAILED
from toolwire.terminal.text import shorten_text

MAX_NAME_WIDTH = 40
"""Shown characters of the name that the server gives a tool."""
MIN_DESCRIPTION_WIDTH = 20
STATE_COLOURS = {"up": "ok", "down": "lost"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("list",), help="connect to every server and list its tools")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace, config: Config) -> int:
    for line in report_problems(config.warnings, str(config.file or "")):
        terminal.print_problem(line.severity, str(line), line.hint)
    statuses = asyncio.run(connect_servers(config))
    if args.json:
        sys.stdout.write(terminal.format_json({"servers": [server_document(status) for status in statuses]}))
    else:
        print_servers(statuses)
    return EXIT_FAILED if any(status.state != "up" for status in statuses) else 0


async def connect_servers(config: Config) -> tuple[ServerStatus, ...]:
    """Connect to every server; gives their states. One that still connects when its time is over is down."""
    servers = McpServers()
    servers.apply_config(config)
    try:
        await servers.connect_all()
        return tuple(map(end_waiting, servers.server_statuses()))
    finally:
        await servers.close()


def end_waiting(status: ServerStatus) -> ServerStatus:
    if status.state in ("up", "down"):
        return status
    why = f"it did not list its tools within {status.settings.connect_timeout:g} seconds"
    return replace(status, state="down", last_error=status.last_error or why)


def print_servers(statuses: tuple[ServerStatus, ...]) -> None:
    if not statuses:
        sys.stderr.write("no MCP server is configured\nhint: add [mcp.NAME] with a `command` or a `url`\n")
    for status in statuses:
        server = status.settings
        state = terminal.paint_text(status.state, STATE_COLOURS.get(status.state, "dim"))
        name = terminal.paint_text(server.name, "head")
        version = status.version or server.display_name
        sys.stdout.write(f"{name}  {state}  {version}  for {describe_audience(server)}\n")
        sys.stdout.write(terminal.format_table(tool_rows(status)))
        if status.state != "up":
            sys.stderr.write(f"error: {server.name} is down: {status.last_error}\nhint: {down_hint(server)}\n")


def tool_rows(status: ServerStatus) -> list[tuple[str, ...]]:
    """The name that models see, the server's own name, and the description of each tool."""
    names = [(f"  {offered.tool.name}", first_line(offered.name, MAX_NAME_WIDTH)) for offered in status.tools]
    used = sum(max((len(row[column]) for row in names), default=0) + 2 for column in (0, 1))
    width = max(terminal.terminal_width() - used, MIN_DESCRIPTION_WIDTH)
    descriptions = (first_line(offered.tool.description or "", width) for offered in status.tools)
    return [(*row, description) for row, description in zip(names, descriptions, strict=True)]


def first_line(text: str, width: int) -> str:
    return shorten_text(text.strip().partition("\n")[0], width)


def describe_audience(server: McpServer) -> str:
    """Which models and clients get the server's tools."""
    if not server.has_audience:
        return "no model"
    shown = [", ".join(server.models) or "all models"]
    limits = {what: getattr(server, what) for what in ("keys", "teams", "protocols", "agents")}
    return "; ".join(shown + [f"{what} {', '.join(names)}" for what, names in limits.items() if names])


def down_hint(server: McpServer) -> str:
    if server.missing_variables:
        return f"set {', '.join(server.missing_variables)}"
    if server.command:
        return f"try to start it yourself: {server.display_name}"
    return f"check that it is running at {server.display_name}"


def server_document(status: ServerStatus) -> dict[str, object]:
    return {
        "name": status.settings.name,
        "state": status.state,
        "why": status.last_error,
        "server": status.version,
        "where": status.settings.display_name,
        "models": status.settings.models,
        "keys": status.settings.keys,
        "teams": status.settings.teams,
        "protocols": status.settings.protocols,
        "agents": status.settings.agents,
        "tools": [
            {
                "name": offered.tool.name,
                "tool": offered.name,
                "description": offered.tool.description,
                "parameters": offered.tool.parameters,
            }
            for offered in status.tools
        ],
    }
