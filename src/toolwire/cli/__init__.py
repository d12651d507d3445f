"""The command line, one module per command. Data goes to standard output, everything else to standard error.

A command's module is imported only when that command runs, so that `--help` is fast.
"""

from __future__ import annotations

import argparse
import errno
import gc
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from io import TextIOWrapper
from types import ModuleType
from typing import NamedTuple

from toolwire import terminal
from toolwire.terminal import EXIT_BAD_INPUT, EXIT_FAILED, EXIT_INTERRUPTED, CommandError
from toolwire.terminal.packages import describe_import_error


class Command(NamedTuple):
    """One row of the table of commands."""

    module: str
    """In `toolwire`. A command of one feature of the gateway lies in that feature's folder."""
    summary: str
    reads: str = ""
    """The configuration that the command gets, one of `toolwire.cli.config.LOADERS`; others need none, or decide
    themselves when to load it."""

    @property
    def package(self) -> str:
        """The package of its group in the help; "" for commands about the command line itself."""
        return next((name for name in ("gateway", "translation") if name in self.module.split(".")), "")


COMMANDS = {
    "serve": Command("cli.gateway.serve", "Run the gateway"),
    "run": Command(
        "cli.gateway.run",
        "Run a coding agent, such as Codex or Claude Code, on any model; starts a gateway if none is running",
    ),
    "demo": Command(
        "cli.gateway.demo", "Show one conversation in every pair of protocols, or one tool call in each; needs no key"
    ),
    "demo matrix": Command(
        "cli.translation.matrix", "Show the same tool declaration, call and result in every protocol, side by side"
    ),
    "translate": Command(
        "cli.translation.translate",
        "Translate a request, a response, a stream or an error from one protocol to another",
    ),
    "check": Command("cli.translation.check", "Show what each provider would do with the tools in a file"),
    "tools": Command("cli.translation.tools", "List the tools of known coding agents, and what each agent calls them"),
    "doctor": Command("cli.gateway.doctor", "Check configuration, providers, store, MCP servers, port and agents"),
    "doctor config": Command(
        "cli.gateway.doctor.config", "Check the gateway's configuration alone, and show what it means"
    ),
    "import": Command("cli.gateway.import_config", "Convert the configuration of LiteLLM or claude-code-router"),
    "keys": Command("cli.gateway.keys", "Make, list, limit, disable and replace the keys of the gateway's clients"),
    "models": Command(
        "cli.gateway.models", "List the models of the configured providers, or say what is known about one", "config"
    ),
    "costs": Command(
        "gateway.features.costs.command",
        "Show what was spent, by model, key, team and more, and what is used of the limits",
        "config",
    ),
    "costs limits": Command(
        "gateway.features.limits.command", "Show what is used of the configured limits", "config and stored limits"
    ),
    "policy": Command("cli.gateway.policy", "Show what the policy rules do to a request, and which rule does it"),
    "store": Command("cli.gateway.store", "Count, clean up or export what the gateway stores", "config"),
    "mcp": Command(
        "gateway.features.mcp.command", "Connect to the configured MCP servers, and list their tools", "config"
    ),
    "conformance": Command(
        "cli.translation.conformance", "Test how a gateway handles tool calls, with cases taken from bug reports"
    ),
    "completion": Command("cli.completion", "Print the script that completes commands in bash, zsh or fish"),
    "help": Command("cli.help", "List the commands, or explain one"),
    "version": Command("cli.version", "Print the version"),
}
"""A name of two words is a subcommand: the help of its command shows it."""

COLOUR_CHOICES = ("auto", "always", "never")
GC_THRESHOLDS = (50_000, 20, 100)
"""Modules make many objects that stay, requests many that die at once, so the garbage collector runs seldom."""


def subcommands(command: str) -> list[str]:
    return [name.partition(" ")[2] for name in COMMANDS if name.startswith(f"{command} ")]


def load_command_module(command: str) -> ModuleType:
    return import_module(f"toolwire.{COMMANDS[command].module}")


def run_command(command: str, args: argparse.Namespace) -> int:
    """Run a command with its parsed arguments; gives the exit code."""
    run, reads = load_command_module(command).run, COMMANDS[command].reads
    if not reads:
        return int(run(args))
    from toolwire.cli.config import LOADERS

    return int(run(args, LOADERS[reads](args.config)))


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
    gc.set_threshold(*GC_THRESHOLDS)
    words = list(sys.argv[1:] if argv is None else argv)
    _open_missing_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # for consoles that are not Unicode
    try:
        with _colour_option(words):
            code = _parse_and_run(words)
            sys.stdout.flush()
            return code
    except BrokenPipeError:
        return 0  # the reader of our output, such as `head`, has closed it: that is not an error
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EIO) or error.filename is not None:
            raise
        with suppress(OSError):  # the same terminal may be gone
            sys.stderr.write(f"error: cannot write the output: {error.strerror}\nhint: write it to another place\n")
        return EXIT_BAD_INPUT
    finally:
        _discard_unwritable_output()


def _open_missing_streams() -> None:
    """Python has no object for a stream that the caller has closed (`>&-`). It is empty, and takes any output."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  open until the process ends


def _discard_unwritable_output() -> None:
    """Python would try once more to write it when it ends, and give the exit code 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if isinstance(stream, TextIOWrapper) and not stream.closed:
                stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _parse_and_run(words: Sequence[str]) -> int:
    from toolwire.cli import usage

    try:
        with report_missing_packages(words):
            command, args = usage.parse_command(words)
            return run_command(command, args)
    except CommandError as error:
        sys.stdout.flush()
        terminal.print_problem("error", str(error), error.hint)
        return error.code


@contextmanager
def _colour_option(words: list[str]) -> Iterator[None]:
    """Remove `--color WHEN` from the words, and pass it on in NO_COLOR and FORCE_COLOR."""
    end = words.index("--") if "--" in words else len(words)
    place = next((number for number in range(end) if words[number].partition("=")[0] in ("--color", "--colour")), None)
    if place is None:
        yield
        return
    name, given, choice = words.pop(place).partition("=")
    if not given:
        choice = words.pop(place) if place < end - 1 else ""
    if choice not in COLOUR_CHOICES:
        sys.stderr.write(f"error: {name} `{choice}` is not possible\nhint: choose from: {', '.join(COLOUR_CHOICES)}\n")
        raise SystemExit(EXIT_BAD_INPUT)
    before = dict(os.environ)
    if choice != "auto":
        for variable, value in (("NO_COLOR", "never"), ("FORCE_COLOR", "always")):
            os.environ[variable] = "1" if choice == value else ""
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
