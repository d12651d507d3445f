"""The client keys of a configuration file: reading them with their lines, and adding one to the end of the file.

A file is written by people, so adding a key leaves every byte of it as it is. It needs no environment: an operator's
shell seldom has the variables that the gateway runs with.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from toolwire.gateway.configuration import load
from toolwire.gateway.settings.client_keys import read_client_keys, write_key_table
from toolwire.gateway.settings.config import ClientKey
from toolwire.gateway.settings.problems import ConfigError, KeyPath, Problem, ProblemCollector

KEYS_PATH: KeyPath = ("server", "keys")
CONSOLE_PATH: KeyPath = ("console",)
ENVIRONMENT_SUFFIX = "_env"
"""Settings with this ending name a variable. What is wrong with its value is not wrong in the file."""


class FileKey(Struct, frozen=True):
    """A key, and the line of its table."""

    key: ClientKey
    line: int


class AddedTable(Struct, frozen=True):
    """Where lines were added, and the whole file with them."""

    line: int
    text: str


class KeyFile(Struct, frozen=True):
    """A configuration file as it was read, or one that does not exist yet."""

    path: Path
    data: bytes | None
    keys: tuple[FileKey, ...] = ()
    store_keys: bool = False
    """Do gateways with this file accept the keys of the store, too?"""
    opened: load.ConfigFile | None = None

    def find_name(self, name: str) -> FileKey | None:
        return next((found for found in self.keys if found.key.name == name), None)


def read_key_file(opened: load.ConfigFile | None) -> KeyFile:
    """The keys of a file; None stands for a new one in the current folder. Raises ConfigError."""
    if opened is None:
        return KeyFile(Path(load.CONFIG_FILE_NAME), None)
    path, text = opened.path, opened.text
    data = load.read_file_bytes(path)
    if load.decode_file(data, path) != text:
        raise ConfigError([Problem(location=str(path), message="it was changed at the same time; try again")])
    server = load.parse_toml(text, str(path))[0].get("server")
    store_keys = isinstance(server, dict) and server.get("store_keys") is True
    return KeyFile(path, data, _read_keys(text, path), store_keys, opened)


def add_key(file: KeyFile, key: ClientKey, environ: Mapping[str, str]) -> AddedTable:
    """Add a key to a file, in one step. Raises ConfigError if the file would not be valid with it, and OSError if it
    cannot be written."""
    data = append_table(file.data or b"", write_key_table(key))
    _check_addition(file, data, key)
    return _write_file(file, data, (*KEYS_PATH, len(file.keys)), environ)


def write_console_table(name: str, sha256: str) -> str:
    """The lines of the console's own key."""
    return f'[console]\n# the key of {name}\nsha256 = "{sha256}"\n'


def add_console_key(file: KeyFile, table: str, environ: Mapping[str, str]) -> AddedTable:
    """Add the lines of `write_console_table`: to the `[console]` of the file, if it has one. Raises ConfigError and
    OSError as `add_key` does, also if the console has a key already."""
    text = load.decode_file(file.data or b"", file.path)
    before, lines = load.parse_toml(text, str(file.path))
    old = before.get("console")
    if isinstance(old, dict) and old.get("sha256"):
        line = lines.line_of(("console", "sha256"))
        problem = Problem(
            location="console.sha256",
            message="the console has a key already",
            hint="remove it first, or print the lines of another one without --write",
            line=line,
        )
        raise ConfigError([problem], str(file.path))
    head, _, members = table.partition("\n")
    at = lines.line_of(CONSOLE_PATH) if old is not None else 0
    data = _insert_lines(file.data or b"", at, members) if at else append_table(file.data or b"", table)
    new = tomllib.loads(table)["console"]
    try:
        after = tomllib.loads(load.decode_file(data, file.path))
    except tomllib.TOMLDecodeError:
        after = {}
    if after != {**before, "console": {**(old if isinstance(old, dict) else {}), **new}}:
        hint = f"write it as {head}, without `=`, and no empty `sha256`"
        problem = Problem(location="console", message="a key cannot be added to `console`", hint=hint, line=at)
        raise ConfigError([problem], str(file.path))
    return _write_file(file, data, (*CONSOLE_PATH, "sha256"), environ)


def _write_file(file: KeyFile, data: bytes, added: KeyPath, environ: Mapping[str, str]) -> AddedTable:
    text = load.decode_file(data, file.path)
    problems = load.find_problems(text, environ, file.path)
    errors = [one for one in problems if one.severity == "error" and not one.location.endswith(ENVIRONMENT_SUFFIX)]
    if errors:
        raise ConfigError(errors, str(file.path))
    if file.data is None:
        with file.path.open("xb") as new_file:
            new_file.write(data)
    else:
        replace_file(file.path.resolve(), file.data, data)
    return AddedTable(load.parse_toml(text, str(file.path))[1].line_of(added), text)


def _insert_lines(data: bytes, line: int, text: str) -> bytes:
    """Add lines after one, with the line ends of the file."""
    line_end = b"\r\n" if b"\r\n" in data else b"\n"
    rows = data.split(b"\n")
    before, after = b"\n".join(rows[:line]), rows[line:]
    start = before + (b"\n" if after else line_end)
    return start + text.encode().replace(b"\n", line_end) + b"\n".join(after)


def append_table(data: bytes, table: str) -> bytes:
    """Add a table after a blank line, with the line ends of the file."""
    line_end = b"\r\n" if b"\r\n" in data else b"\n"
    gap = line_end * (data[-1:] not in (b"", b"\n")) + line_end * bool(data.strip())
    return data + gap + table.encode().replace(b"\n", line_end)


def replace_file(path: Path, before: bytes, after: bytes) -> None:
    """Replace a file in one step by one with the same mode and owner. Raises OSError."""
    number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(number, "wb") as file:
            status = path.stat()
            if (status.st_uid, status.st_gid) != (os.stat(name).st_uid, os.stat(name).st_gid):
                os.chown(name, status.st_uid, status.st_gid)
            shutil.copystat(path, name)
            file.write(after)
            file.flush()
            os.fsync(number)
        if path.read_bytes() != before:
            raise OSError(0, "it was changed at the same time; try again", str(path))
        os.replace(name, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name)


def _read_keys(text: str, path: Path) -> tuple[FileKey, ...]:
    tables, lines = load.parse_toml(text, str(path))
    collector = ProblemCollector(lines)
    collector.replace_old_keys(tables, load.RENAMED_KEYS, load.REMOVED_KEYS)
    server = collector.at("server").expect_table(tables.get("server", {}))
    keys = read_client_keys(server.get("keys", []), collector.at(*KEYS_PATH))
    if errors := [problem for problem in collector.problems if problem.severity == "error"]:
        raise ConfigError(errors, str(path))
    return tuple(FileKey(key, lines.line_of((*KEYS_PATH, number))) for number, key in enumerate(keys))


def _check_addition(file: KeyFile, data: bytes, key: ClientKey) -> None:
    """Nothing else may be new in the text."""
    before = tomllib.loads(load.decode_file(file.data or b"", file.path))
    try:
        after = tomllib.loads(load.decode_file(data, file.path))
    except tomllib.TOMLDecodeError:  # `server` or its keys are written in one line, and TOML lets nobody add to that
        _, lines = load.parse_toml(load.decode_file(file.data or b"", file.path), str(file.path))
        what = "a key cannot be added: `server` or its `keys` are a value in brackets"
        hint = "write them as [server] and [[server.keys]], without `=`; an empty `keys = []` can go"
        problem = Problem(location="server.keys", message=what, hint=hint, line=lines.line_of(KEYS_PATH))
        raise ConfigError([problem], str(file.path)) from None
    keys = _read_keys(load.decode_file(data, file.path), file.path)
    after["server"]["keys"].pop()
    rest = {**before, "server": {**before.get("server", {}), "keys": before.get("server", {}).get("keys", [])}}
    if after != rest or [*(one.key for one in file.keys), key] != [one.key for one in keys]:
        raise ConfigError([Problem(location="server.keys", message="a key cannot be added")], str(file.path))
