"""The command line, one module per command. Data goes to standard output, everything else to standard error.

A command's module is imported only when that command runs, so that `--help` is fast.
"""

from __future__ import annotations

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
    """One row of the table of commands. A package of commands is a folder of this one."""

    module: str
    summary: str

    @property
    def package(self) -> str:
        """The folder that the module is in, or below; "" for a module that is not in one."""
        return self.module.partition(".")[0] if "." in self.module else ""


COMMANDS = {
    "serve": Command("gateway.serve", "Run the gateway"),
    "run": Command(
        "gateway.run",
        "Run a coding agent, such as Codex or Claude Code, on any model; starts a gateway if none is running",
    ),
    "demo": Command(
        "gateway.demo", "Show one conversation in every pair of protocols, or one tool call in each; needs no key"
    ),
    "demo matrix": Command(
        "translation.matrix", "Show the same tool declaration, call and result in every protocol, side by side"
    ),
    "translate": Command(
        "translation.translate", "Translate a request, a response, a stream or an error from one protocol to another"
    ),
    "check": Command("translation.check", "Show what each provider would do with the tools in a file"),
    "tools": Command("translation.tools", "List the tools of known coding agents, and what each agent calls them"),
    "doctor": Command("gateway.doctor", "Check configuration, providers, store, MCP servers, port and agents"),
    "doctor config": Command("gateway.check_config", "Check the gateway's configuration alone, and show what it means"),
    "import": Command("gateway.import_config", "Convert the configuration of LiteLLM or claude-code-router"),
    "keys": Command("gateway.keys", "Make, list, limit, disable and replace the keys of the gateway's clients"),
    "models": Command("gateway.models", "List the models of the configured providers, or say what is known about one"),
    "costs": Command(
        "gateway.usage.costs", "Show what was spent, by model, key, team and more, and what is used of the limits"
    ),
    "costs limits": Command("gateway.usage.limits", "Show what is used of the configured limits"),
    "policy": Command("gateway.policy", "Show what the policy rules do to a request, and which rule does it"),
    "store": Command("gateway.store", "Count, clean up or export what the gateway stores"),
    "mcp": Command("gateway.mcp", "Connect to the configured MCP servers, and list their tools"),
    "conformance": Command(
        "translation.conformance", "Test how a gateway handles tool calls, with cases taken from bug reports"
    ),
    "completion": Command("completion", "Print the script that completes commands in bash, zsh or fish"),
    "help": Command("help", "List the commands, or explain one"),
    "version": Command("version", "Print the version"),
}
"""A name of two words is a subcommand: the help of its command shows it."""

COLOUR_CHOICES = ("auto", "always", "never")
GC_THRESHOLDS = (50_000, 20, 100)
"""Modules make many objects that stay, requests many that die at once, so the garbage collector runs seldom."""


def subcommands(command: str) -> list[str]:
    return [name.partition(" ")[2] for name in COMMANDS if name.startswith(f"{command} ")]


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
    gc.set_threshold(*GC_THRESHOLDS)
    words = list(sys.argv[1:] if argv is None else argv)
    _open_missing_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # for consoles that are not Unicode
    try:
        with _colour_option(words):
            code = _run_command(words)
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


def _run_command(words: Sequence[str]) -> int:
    from toolwire.cli import usage

    try:
        with report_missing_packages(words):
            command, args = usage.parse_command(words)
            return int(load_command_module(command).run(args))
    except CommandError as error:
        sys.stdout.flush()
        for label, colour, text in (("error:", "lost", str(error)), ("hint:", "added", error.hint)):
            shown = terminal.escape_lines(text)  # it may quote a file or a peer
            sys.stderr.write(f"{terminal.paint_text(label, colour, sys.stderr)} {shown}\n" if text else "")
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
