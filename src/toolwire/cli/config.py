"""The configuration of a command: loaded, or all its problems printed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from toolwire import terminal
from toolwire.cli.trust import open_file
from toolwire.gateway.configuration.load import JudgeFile, read_opened_config
from toolwire.gateway.features.keys.key_records import KeyRecords
from toolwire.gateway.features.limits.settings import LimitSettings
from toolwire.gateway.settings.client_keys import read_stored_keys
from toolwire.gateway.settings.config import ClientKey, Config
from toolwire.gateway.settings.problems import ConfigError, Problem, report_problems
from toolwire.gateway.store.command_store import require_up, use_store
from toolwire.gateway.store.store import Store
from toolwire.terminal import EXIT_BAD_INPUT, CommandError


def load_or_report(file: str | None, judge: JudgeFile | None = None) -> Config:
    """Load the configuration; prints all its errors and ends the command if there are any."""
    try:
        return read_opened_config(open_file(file, judge), os.environ)
    except ConfigError as error:
        raise refuse_config(error) from None


def refuse_config(error: ConfigError, code: int = EXIT_BAD_INPUT) -> CommandError:
    """Print all problems of a configuration; the error to raise ends the command without another message."""
    print_problems(error.problems, error.file)
    return CommandError("", code=code)


def print_problems(problems: Sequence[Problem], file: str) -> None:
    """Print errors and warnings, each with its line in the file and a hint."""
    for line in report_problems(problems, file):
        terminal.print_problem(line.severity, str(line), line.hint)


def load_with_stored_limits(file: str | None) -> Config:
    """With the limits of client keys that are in the store."""
    config = load_or_report(file)
    if not config.server.store_keys:
        return config
    missing = CommandError("there is no store for `store_keys`: `url` in [store] is `none`", "remove `url`")
    keys = use_store(config.store, missing, lambda store: read_all_keys(store, config))
    return config.with_section(config.section(LimitSettings).add_keys(keys[len(config.server.keys) :]))


async def read_all_keys(store: Store, config: Config) -> tuple[ClientKey, ...]:
    """The client keys of the file, and those of the store."""
    keys = config.server.keys
    if not config.server.store_keys:
        return keys
    found = require_up(await KeyRecords(store).load(None))
    return (*keys, *read_stored_keys(found.tables, keys)[0]) if found is not None else keys


LOADERS: Mapping[str, Callable[[str | None], Config]] = {
    "config": load_or_report,
    "config and stored limits": load_with_stored_limits,
}
"""By what a command reads, in the table of commands."""
