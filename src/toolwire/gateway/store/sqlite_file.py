"""The file of a store in SQLite: how it is opened, what its tables are, and what its faults mean."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

APPLICATION = 0x74776B70
"""Stands in the head of the file, so that no other program's is taken for ours."""
PRAGMAS: Mapping[str, int | str] = {
    "busy_timeout": 5000,
    "synchronous": "NORMAL",  # in WAL: safe when the process dies; a power cut may cost the last moments, not the file
    "journal_size_limit": 4 * 1024 * 1024,
}
STEPS: Sequence[Sequence[str]] = (
    (
        """CREATE TABLE entries (
            owner TEXT NOT NULL, kind TEXT NOT NULL, id TEXT NOT NULL, parent TEXT NOT NULL, place INTEGER NOT NULL,
            mark TEXT NOT NULL, created REAL NOT NULL, expires REAL NOT NULL, body BLOB NOT NULL,
            UNIQUE (owner, kind, id)
        )""",
        "CREATE INDEX entries_by_parent ON entries (owner, parent, kind, place)",
        "CREATE INDEX entries_by_end ON entries (expires)",
    ),
)
"""What brings the tables from each version to the next. Steps that were released are never changed."""
_HEAD = """SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema)
    FROM pragma_application_id, pragma_user_version"""
"""In one statement: between two of them another process may make the tables."""
_TRIES, _WAIT = 50, 0.1


class Unusable(Exception):
    """A file that is there and sound, but not for us."""


def connected(path: Path, pragmas: Mapping[str, int | str], steps: Sequence[Sequence[str]]) -> sqlite3.Connection:
    """The file, made where there is none, with its tables as they are now; raises `sqlite3.Error`, `OSError`,
    `Unusable`."""
    _make(path)
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0)
    try:
        for name, value in pragmas.items():
            connection.execute(f"PRAGMA {name} = {value}").fetchall()
        if tables(connection, len(steps)) < len(steps):
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # works only before the first table
        _write_ahead(connection)
        _migrate(connection, steps)
    except BaseException:
        connection.close()
        raise
    return connection


def _make(path: Path) -> None:
    """Only for whoever runs the gateway: it holds what users say."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Two that make the same file at once get in each other's way here, and SQLite does not wait by itself."""
    for left in reversed(range(_TRIES)):
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
            return
        except sqlite3.OperationalError as error:
            if not left or code(error) != sqlite3.SQLITE_BUSY:
                raise
            time.sleep(_WAIT)


def tables(connection: sqlite3.Connection, known: int) -> int:
    """Their version; 0 when there are none yet."""
    application, version, things = connection.execute(_HEAD).fetchone()
    if application == APPLICATION:
        if version > known:
            newer = f"it was written by a newer toolwire (tables {version}, known {known})"
            raise Unusable(f"{newer}: update this one, or give it another file")
        return int(version)
    if application or version or things:
        raise Unusable("it belongs to another program: give [store] another path")
    return 0


def _migrate(connection: sqlite3.Connection, steps: Sequence[Sequence[str]]) -> None:
    if tables(connection, len(steps)) == len(steps):
        return
    connection.execute("BEGIN EXCLUSIVE")
    try:
        for step in steps[tables(connection, len(steps)) :]:  # asked again: another process may have been quicker
            for statement in step:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {len(steps)}")
        connection.execute("COMMIT")
    except sqlite3.Error:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


# --- what goes wrong ----------------------------------------------------------------------------------------------

_MEANING = {
    sqlite3.SQLITE_FULL: "the disk is full: make room, or lower [store] max_bytes and run `toolwire store gc`",
    sqlite3.SQLITE_TOOBIG: "this is too much for one entry",
    sqlite3.SQLITE_NOTADB: "it is no store, or damaged: move it away, and a new one is made",
    sqlite3.SQLITE_CORRUPT: "it is damaged: move it away, and a new one is made",
    sqlite3.SQLITE_BUSY: "another process holds it for too long: look for one that hangs, or a folder on the network",
    sqlite3.SQLITE_LOCKED: "another process holds it for too long: look for one that hangs",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened: look at the rights of its folder",
    sqlite3.SQLITE_PERM: "it cannot be opened: look at its rights",
    sqlite3.SQLITE_READONLY: "it cannot be written: look at its rights and those of its folder",
    sqlite3.SQLITE_IOERR: "the disk failed: see the system's log",
}
PASSING = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_CONSTRAINT})
"""Faults of one job; the file can be read all the same."""


def code(error: BaseException) -> int:
    """SQLite's number for a fault, without its details; 0 for anything else."""
    found = getattr(error, "sqlite_errorcode", 0)
    return int(found) & 0xFF


def said(path: Path, error: BaseException) -> str:
    """What is wrong with the file, and what can be done."""
    if isinstance(error, OSError):
        return f"the store {path} cannot be used: {error.strerror or error}; look at the rights of its folder"
    return f"the store {path} cannot be used: {_MEANING.get(code(error), str(error))}"


def size(path: Path) -> int:
    """Bytes on the disk, with what waits beside the file to be written into it."""
    total = 0
    for beside in ("", "-wal"):
        with suppress(FileNotFoundError):
            total += os.stat(f"{path}{beside}").st_size
    return total
