"""The command line, one module per command. Data goes to standard output, everything else to standard error.

A command's module is imported only when that command runs, so that `--help` is fast.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import NamedTuple, NoReturn

from toolwire import __version__
from toolwire.core.packages import describe_import_error


class Command(NamedTuple):
    """One row of the table of commands. A package of commands is a folder of this one."""

    module: str
    summary: str


COMMANDS = {
    "serve": Command("gateway.serve", "Run the gateway"),
    "run": Command(
        "gateway.run",
        "Run a coding agent, such as Codex or Claude Code, on any model; starts a gateway if none is running",
    ),
    "translate": Command(
        "translation.translate", "Translate a request, a response, a stream or an error from one protocol to another"
    ),
    "matrix": Command(
        "translation.matrix", "Show the same tool declaration, call and result in every protocol, side by side"
    ),
    "check": Command("translation.check", "Show what each provider would do with the tools in a file"),
    "tools": Command("translation.tools", "List the tools of known coding agents, and what each agent calls them"),
    "policy": Command("gateway.policy", "Show what the policy rules do to a request, and which rule does it"),
    "check-config": Command("gateway.check_config", "Check the gateway's configuration, and show what it means"),
    "import": Command("gateway.import_config", "Convert the configuration of LiteLLM or claude-code-router"),
    "store": Command("gateway.store", "Count, clean up or export what the gateway stores"),
    "mcp": Command("gateway.mcp", "Connect to the configured MCP servers, and list their tools"),
    "conformance": Command(
        "translation.conformance", "Test how a gateway handles tool calls, with cases taken from bug reports"
    ),
}

PASSTHROUGH_COMMANDS = ("run",)
"""Commands that pass on the arguments after `--`."""
EXIT_FAILED, EXIT_BAD_INPUT = 1, 2


class CommandError(Exception):
    """Bad input or bad usage, with a hint and an exit code. The problem is empty if it was printed already."""

    def __init__(self, problem: str, hint: str = "", code: int = EXIT_BAD_INPUT) -> None:
        self.hint, self.code = hint, code
        super().__init__(problem)


class CommandParser(argparse.ArgumentParser):
    """Reports bad usage as a CommandError."""

    def error(self, message: str) -> NoReturn:
        raise CommandError(message, f"see `{self.prog} --help`")


def make_overview_parser() -> CommandParser:
    """The parser of `toolwire` itself, which lists the commands."""
    parser = CommandParser(prog="toolwire", description="Any agent, any model: tool calling between protocols.")
    parser.add_argument("--version", action="version", version=f"toolwire {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        commands.add_parser(name, help=command.summary)
    return parser


def parse_command(words: Sequence[str]) -> tuple[str, argparse.Namespace]:
    """The command and its arguments. Files may come before and after the options."""
    if not words or words[0] not in COMMANDS:
        make_overview_parser().parse_args(words)
    command, given = words[0], list(words[1:])
    parser = CommandParser(prog=f"toolwire {command}", description=f"{COMMANDS[command].summary}.")
    load_command_module(command).add_arguments(parser)
    if command not in PASSTHROUGH_COMMANDS or "--" not in given:
        return command, parser.parse_intermixed_args(given)
    separator = given.index("--")
    args = parser.parse_intermixed_args(given[:separator])
    args.agent_arguments = given[separator + 1 :]
    return command, args


def load_command_module(command: str) -> ModuleType:
    return import_module(f"toolwire.cli.{COMMANDS[command].module}")


@contextmanager
def report_missing_packages(words: Sequence[str]) -> Iterator[None]:
    """A package that is not installed is an error with the command that installs it, not a traceback."""
    try:
        yield
    except ImportError as error:
        user = f"`toolwire {words[0]}`" if words else "`toolwire`"
        described = describe_import_error(user, error, sys.stdlib_module_names)
        if described is None:
            raise
        raise CommandError(*described, code=EXIT_FAILED) from None


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; gives the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        with report_missing_packages(words):
            command, args = parse_command(words)
            return int(load_command_module(command).run(args))
    except CommandError as error:
        for label, text in (("error", str(error)), ("hint", error.hint)):
            sys.stderr.write(f"{label}: {text}\n" if text else "")
        return error.code
    except BrokenPipeError:
        # The reader of our output, such as `head`, has closed it: that is not an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
