"""`toolwire keys`: make a client's key, and list the keys of the configuration file."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from toolwire.cli import CommandError, terminal
from toolwire.cli.gateway.check_config import add_config_argument, print_problems
from toolwire.core.terminal_text import wrap_text
from toolwire.gateway.config.client_keys import (
    CLIENT_KEY_VARIABLE,
    NAME_RULE,
    NEW_KEY_COMMAND,
    hash_key,
    is_key_name,
    make_key,
    write_key_table,
)
from toolwire.gateway.config.config import ClientKey
from toolwire.gateway.config.key_file import FileKey, KeyFile, add_key, read_key_file
from toolwire.gateway.config.load import find_config_file
from toolwire.gateway.config.problems import ConfigError

EXIT_CANNOT_WRITE = 1
SHOWN_HASH_DIGITS = 8
"""Enough to tell keys apart."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("action", choices=ACTIONS, help="make a key, or list the keys of the configuration file")
    add("name", nargs="?", metavar="NAME", help="whose key is made; the log shows this name")
    models = "names and patterns of the models that the client may use (default: all)"
    add("--models", nargs="+", action="extend", default=[], metavar="PATTERN", help=models)
    write = "add the key to the configuration file, and change nothing else in it; without a file, make ./toolwire.toml"
    add("--write", action="store_true", help=write)
    add_config_argument(parser)
    add("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    if args.action == "new" and args.name is None:
        raise CommandError("whose key is it?", "name the person or program: `toolwire keys new NAME`")
    if args.action != "new" and (args.name is not None or args.models or args.write):
        raise CommandError(f"`{args.action}` takes no NAME, --models or --write", "use them with `toolwire keys new`")
    try:
        file = read_key_file(Path(args.config) if args.config else find_config_file(os.environ))
        ACTIONS[args.action](file, args)
    except ConfigError as problems:
        print_problems(problems.problems, problems.file)
        raise CommandError("") from None
    return 0


# --- new --------------------------------------------------------------------------------------------------------------


def make_client_key(file: KeyFile, args: argparse.Namespace) -> None:
    """The key and the lines for the file go to standard output, what they are for to standard error."""
    check_name(file, args.name)
    check_patterns(args.models)
    text = make_key()
    key = ClientKey(name=args.name, sha256=hash_key(text), models=tuple(args.models) or ("*",))
    added = write_to_file(file, key) if args.write else None
    if args.json:
        sys.stdout.write(terminal.format_json(new_key_document(text, key, file, added)))
        return
    _explain(f"The key of {key.name}, which is not shown again:")
    sys.stdout.write(f"{terminal.paint_text(text, 'ok')}\n")
    if added is None:
        sys.stdout.write("\n")
        _explain(f"The lines for {file.path.name}; --write adds them:")
        sys.stdout.write(write_key_table(key))
    elif file.data is None:
        _explain(f"Its hash is in {file.path}, a new file for a gateway that you start here.")
    else:
        _explain(f"Its hash is in {file.path}:{added.line}; a running gateway reads it at once.")
    if not file.keys:
        _explain("It is the first key: with it, every client needs one.")
    _explain(f"Clients send it as their API key. For `toolwire run`: {CLIENT_KEY_VARIABLE}")


def check_name(file: KeyFile, name: str) -> None:
    if not is_key_name(name):
        raise CommandError(NAME_RULE, "name the person or program: `toolwire keys new NAME`")
    found = file.find_name(name)
    if found is not None:
        raise CommandError(f"{file.path}:{found.line}: a key has the name `{name}` already", "choose another name")


def check_patterns(patterns: Sequence[str]) -> None:
    for pattern in patterns:
        if not is_key_name(pattern) or "," in pattern:
            hint = "write names and patterns with spaces between them: --models fast 'claude-*'"
            raise CommandError(f"--models: `{pattern}` is not the name or pattern of a model", hint)


def write_to_file(file: KeyFile, key: ClientKey) -> FileKey:
    try:
        return add_key(file, key, os.environ)
    except OSError as error:
        hint = "without --write, the lines to add are printed"
        raise CommandError(f"cannot write {file.path}: {error.strerror}", hint, EXIT_CANNOT_WRITE) from None


def new_key_document(text: str, key: ClientKey, file: KeyFile, added: FileKey | None) -> dict[str, object]:
    return {
        "name": key.name,
        "key": text,
        "sha256": key.sha256,
        "models": key.models,
        "lines": write_key_table(key),
        "file": str(file.path) if added is not None else None,
        "line": added.line if added is not None else None,
    }


def _explain(text: str) -> None:
    """A sentence on standard error. On a terminal both streams are one: keep their order."""
    sys.stdout.flush()
    lines = wrap_text(text, terminal.terminal_width(sys.stderr)) if sys.stderr.isatty() else [text]
    sys.stderr.write("".join(f"{line}\n" for line in lines))
    sys.stderr.flush()


# --- list -------------------------------------------------------------------------------------------------------------


def list_keys(file: KeyFile, args: argparse.Namespace) -> None:
    if args.json:
        sys.stdout.write(terminal.format_json([key_document(found, file) for found in file.keys]))
    elif file.keys:
        rows = [("name", "models", "place", "hash"), *(key_row(found, file) for found in file.keys)]
        sys.stdout.write(terminal.format_table(rows, ["head"], has_header=True))
    else:
        what = f"{file.path} has no client keys" if file.data is not None else "There is no configuration file"
        _explain(f"{what}. To make a key: {NEW_KEY_COMMAND}")


def key_row(found: FileKey, file: KeyFile) -> tuple[str, ...]:
    key = found.key
    models = ", ".join(key.models) + (" and /metrics" if key.metrics else "")
    return key.name, models, f"{file.path}:{found.line}", f"{key.sha256[:SHOWN_HASH_DIGITS]}…"


def key_document(found: FileKey, file: KeyFile) -> dict[str, object]:
    key = found.key
    return {
        "name": key.name,
        "models": key.models,
        "metrics": key.metrics,
        "file": str(file.path),
        "line": found.line,
        "sha256_start": key.sha256[:SHOWN_HASH_DIGITS],
    }


ACTIONS: dict[str, Callable[[KeyFile, argparse.Namespace], None]] = {"new": make_client_key, "list": list_keys}
