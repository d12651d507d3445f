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
from io import TextIOWrapper

from toolwire import terminal
from toolwire.cli.commands import COLOUR_CHOICES, COMMANDS, load_command_module
from toolwire.terminal import EXIT_BAD_INPUT, EXIT_FAILED, EXIT_INTERRUPTED, CommandError
from toolwire.terminal.packages import describe_import_error

GC_THRESHOLDS = (50_000, 20, 100)
"""Modules make many objects that stay, requests many that die at once, so the garbage collector runs seldom."""


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
