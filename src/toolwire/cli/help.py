"""`toolwire` alone, `toolwire help` and `toolwire help COMMAND`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from toolwire import __version__, terminal
from toolwire.cli import usage
from toolwire.cli.commands import COMMANDS

ABOUT = "Any agent, any model: tool calling between OpenAI, Anthropic and Gemini."
FIRST_STEPS = (
    ("toolwire serve", "run the gateway; it says what to set in your program"),
    ("toolwire run claude", "run a coding agent on any model: claude, codex, gemini …"),
    ("toolwire demo", "see one conversation in every protocol; needs no key"),
)
GROUPS = {"gateway": "The gateway", "translation": "Protocols and tools", "": "Help"}
"""Titles of the packages of commands."""
OPTIONS = (
    ("-h, --help", "this list; after a command: its arguments"),
    ("-V, --version", "print the version"),
    ("--color WHEN", "auto, always or never"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", nargs="?", metavar="COMMAND", help="the command to explain (default: list them all)")
    parser.add_argument("subcommand", nargs="?", help=argparse.SUPPRESS)
    parser.set_defaults(is_short=False)


def run(args: argparse.Namespace) -> int:
    if args.topic:
        command, _ = usage.find_command([word for word in (args.topic, args.subcommand) if word])
        sys.stdout.write(usage.CommandParser(command).format_help())
    else:
        sys.stdout.writelines(short_help() if args.is_short else full_help())
    return 0


def short_help() -> Iterator[str]:
    """What Toolwire is, and what to do next."""
    yield f"{terminal.paint_text(f'Toolwire {__version__}', 'head')}\n"
    yield f"{terminal.wrap_prose(ABOUT)}\nStart with one of these:\n\n"
    yield terminal.format_table([(f"  {command}", text) for command, text in FIRST_STEPS], ["ok"] * len(FIRST_STEPS))
    yield "\n" + terminal.wrap_prose("`toolwire help` lists all commands, `toolwire help COMMAND` explains one.")


def full_help() -> Iterator[str]:
    """Every command, in groups."""
    yield f"{terminal.paint_text('usage:', 'head')} toolwire COMMAND [arguments]\n\n{terminal.wrap_prose(ABOUT)}"
    width = max(map(len, (*COMMANDS, *dict(OPTIONS))))
    for group, title in GROUPS.items():
        names = [name for name, command in COMMANDS.items() if command.package == group and " " not in name]
        yield f"\n{terminal.heading(title)}"
        yield terminal.format_table(
            [(f"  {name:{width}}", COMMANDS[name].summary) for name in names], ["ok"] * len(names)
        )
    yield f"\n{terminal.heading('Options')}"
    yield terminal.format_table([(f"  {name:{width}}", text) for name, text in OPTIONS])
    yield "\n`toolwire help COMMAND` explains one command.\n"
