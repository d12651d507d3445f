"""The command line: one file a verb. Data goes to standard output, everything else to standard error.

A verb's module is imported only when it is asked for, so that `--help` is quick.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import NoReturn

COMMANDS = {
    "serve": "Run the gateway: every protocol in, every protocol out",
    "run": "Run an agent on any model: Codex, Claude Code and others, with a gateway if none is running",
    "translate": "Translate a request, a response, a stream or an error between protocols",
    "matrix": "Show the same tool call, declaration and result in every protocol, side by side",
    "check": "Say what each provider would make of a file of tools",
    "tools": "List the tools that agents bring, and what each agent calls them",
    "policy": "Say what the rules of the configuration would do to a request, and which rule does it",
    "check-config": "Say what the gateway is configured to do, and what is wrong with its configuration",
    "store": "Say what the gateway keeps, remove what may go, or write all of it down",
    "mcp": "Say which MCP servers answer, and under which names models know their tools",
    "conformance": "Play what went wrong elsewhere through any gateway, and say what it makes of it",
}

PASSTHROUGH_COMMANDS = ("run",)
"""Verbs that pass on what stands behind `--`, as it is."""
EXIT_BAD_INPUT = 2


class CommandError(Exception):
    """Bad input or bad use: said in one line, with a hint, and exit code 2 or the given one."""

    def __init__(self, problem: str, hint: str = "", code: int = EXIT_BAD_INPUT) -> None:
        self.hint, self.code = hint, code
        super().__init__(problem)


class CommandParser(argparse.ArgumentParser):
    """Bad use is a complaint like any other, with a hint."""

    def error(self, message: str) -> NoReturn:
        raise CommandError(message, f"`{self.prog} --help` lists what there is")


def make_overview_parser() -> CommandParser:
    """The parser that knows the verbs and nothing about them."""
    whole = CommandParser(prog="toolwire", description="Any agent, any model: tool calling between protocols.")
    whole.add_argument("--version", action="version", version=f"toolwire {_version()}")
    verbs = whole.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, summary in COMMANDS.items():
        verbs.add_parser(name, help=summary)
    return whole


def parse_command(words: Sequence[str]) -> tuple[str, argparse.Namespace]:
    """The verb and its arguments. Files may stand before and after the options."""
    if not words or words[0] not in COMMANDS:
        make_overview_parser().parse_args(words)
    verb, given = words[0], list(words[1:])
    parser = CommandParser(prog=f"toolwire {verb}", description=f"{COMMANDS[verb]}.")
    load_command_module(verb).add_arguments(parser)
    if verb not in PASSTHROUGH_COMMANDS or "--" not in given:
        return verb, parser.parse_intermixed_args(given)
    cut = given.index("--")
    chosen = parser.parse_intermixed_args(given[:cut])
    chosen.passed = given[cut + 1 :]
    return verb, chosen


def load_command_module(verb: str) -> ModuleType:
    """The file of a verb, imported now."""
    return import_module(f"toolwire.cli.{verb.replace('-', '_')}")


def _version() -> str:
    from toolwire import __version__

    return __version__


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; gives the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        verb, chosen = parse_command(words)
        return int(load_command_module(verb).run(chosen))
    except CommandError as complaint:
        sys.stderr.write(f"error: {complaint}\n")
        if complaint.hint:
            sys.stderr.write(f"hint: {complaint.hint}\n")
        return complaint.code
    except BrokenPipeError:
        # The reader of our output has gone; what it wanted it has.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
