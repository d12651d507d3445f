"""Asks before something that the working folder brings is used: its `toolwire.toml`, or a program of its own.

Every command that reads the configuration opens it here. Without another `judge` it asks: whoever is in a cloned or
unpacked folder has not chosen what is in it. Only `serve` and `doctor config` are started for the file of the folder.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from toolwire import terminal
from toolwire.gateway.configuration.load import ConfigFile, JudgeFile, open_config_file, parse_toml, read_opened_config
from toolwire.gateway.settings import store
from toolwire.gateway.settings.problems import ConfigError
from toolwire.gateway.settings.trust import (
    find_named_variables,
    find_new_powers,
    hash_program,
    is_trusted,
    remember_trust,
)
from toolwire.terminal.text import escape_controls

YES = ("y", "yes")


def open_file(file: str | None, judge: JudgeFile | None = None) -> ConfigFile | None:
    """The configuration file of a command; `file` is its `--config`. Raises ConfigError."""
    return open_config_file(file, os.environ, judge or may_use_file)


def name_file(file: ConfigFile) -> bool:
    """Use a file of the working folder, and say so before anything else."""
    terminal.print_note(f"the configuration is {show_place(file.path)}, a file of the working folder")
    return True


def may_use_file(file: ConfigFile) -> bool:
    """Does the user trust a file of the working folder? Asks on a terminal."""
    if is_trusted(file.path, file.digest, os.environ):
        return True
    option = f"--config {shlex.quote(str(file.path))}"
    why = f"you have not trusted this file of the working folder; use {option}"
    try:
        if ask_for_trust(file.path, file.digest, "the configuration of this folder", describe_file(file)):
            return True
    except ConfigError:  # nobody can trust what cannot be shown: it may have no errors with other variables
        why = "this file of the working folder has errors; `toolwire doctor config` shows them"
    terminal.print_note(f"left out {show_place(file.path)}: {why}")
    return False


def may_use_program(program: Path) -> bool:
    """Does the user trust a program of the working folder? Asks on a terminal."""
    digest = hash_program(program)
    if is_trusted(program, digest, os.environ):
        return True
    return bool(digest) and ask_for_trust(
        program, digest, "a program of this folder or of one above it", ["It would run in your name."]
    )


def describe_file(file: ConfigFile) -> list[str]:
    """What a file does that the environment alone does not. Raises ConfigError."""
    config, without = (read_opened_config(one, os.environ) for one in (file, None))
    variables = find_named_variables(parse_toml(file.text, file.file)[0], os.environ)
    does = [f"{power.text}   {power.table}" for power in find_new_powers(config, without)]
    if config.store != without.store:
        does.append(f"store {store.describe_store(config.store, os.environ)}   [store]")
    lines = ["With it, Toolwire would, in your name:", *(f"  {line}" for line in does)] if does else []
    return [*lines, *([f"It names these variables of your environment: {', '.join(variables)}"] if variables else [])]


def ask_for_trust(place: Path, digest: str, what: str, lines: Sequence[str]) -> bool:
    """Ask once; the answer yes is remembered for this place and content. Without a terminal nobody can be asked."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    sys.stdout.flush()
    terminal.print_note(f"{show_place(place)} is {what}, and you have not trusted it as it is now.")
    sys.stderr.writelines(f"{escape_controls(line)}\n" for line in lines)  # nothing is cut off, and so nothing hidden
    sys.stderr.write("Use it, now and as long as it stays the same? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in YES:
        return False
    try:
        remember_trust(place, digest, os.environ)
    except OSError as error:
        terminal.print_note(f"cannot remember that: {error.filename}: {error.strerror}")
    return True


def show_place(place: Path) -> str:
    return escape_controls(str(place.absolute()))
