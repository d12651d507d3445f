"""Client keys in the store, with a record of every change: for gateways that share nothing else.

A key is stored as the table that it would be in the file, so both are checked by the same code. The number and the time
of the last change are the version of all keys: a gateway that knows it need not read them again. The time is for a
database that was restored from a backup, where a number can come a second time.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

import msgspec
from msgspec import Struct

from toolwire.gateway.settings.client_keys import written_fields
from toolwire.gateway.settings.config import ClientKey
from toolwire.gateway.store.sqlite import SqliteStore
from toolwire.gateway.store.sqlite_worker import SqliteWorker
from toolwire.gateway.store.store import Store, StoreDown

if TYPE_CHECKING:  # asyncpg is an optional extra
    from toolwire.gateway.store.postgres_pool import PostgresConnection, PostgresPool

MAX_LISTED = 10_000
NO_CHANGE = (0, 0.0)
"""The version of a store that has never had a key."""


KeysVersion: TypeAlias = tuple[int, float]
"""The number of the last change, and its time."""


class KeyChange(Struct, frozen=True):
    """One line of the audit log."""

    number: int
    at: float
    """Unix time."""
    author: str
    """Who has changed it: the user and the machine."""
    action: str
    name: str
    """The key's name."""
    detail: str
    """What has changed, without any key or hash."""


class StoredKeyList(Struct, frozen=True):
    """All keys of the store at one version."""

    version: KeysVersion
    tables: tuple[Mapping[str, object], ...]
    """As in `[[server.keys]]`, by name. A table that cannot be read is left empty, except for its name."""
    changes: tuple[KeyChange, ...] = ()
    """The changes since the version that the reader knew."""


class KeyRefused(Struct, frozen=True):
    """Why a key cannot be changed."""

    message: str
    hint: str = ""


class KeyEdit(Struct, frozen=True):
    """A changed key, and what has changed."""

    key: ClientKey
    detail: str


EditKey: TypeAlias = Callable[[Sequence[Mapping[str, object]]], KeyEdit | KeyRefused]
"""Makes the new key, from the tables of all keys in the store."""


class KeyRecords(Protocol):
    """Every operation is atomic, and returns `StoreDown` instead of raising."""

    async def load(self, known: KeysVersion | None) -> StoredKeyList | StoreDown | None:
        """All keys; None if they are those of the known version."""

    async def change(self, author: str, action: str, edit: EditKey) -> KeyEdit | KeyRefused | StoreDown:
        """Write one key and the line about it in the audit log, or neither."""

    async def list_changes(self, name: str | None = None) -> list[KeyChange] | StoreDown:
        """The audit log, of all keys or of one; the last change is the last."""


def open_key_records(store: Store) -> KeyRecords:
    if isinstance(store, SqliteStore):
        return SqliteKeyRecords(store.worker)
    from toolwire.gateway.store.postgres import PostgresStore  # noqa: PLC0415  asyncpg is an optional extra
    from toolwire.gateway.store.postgres_pool import KEYS_LOCK  # noqa: PLC0415

    assert isinstance(store, PostgresStore)
    return PostgresKeyRecords(store.pool, store.clock, KEYS_LOCK)


def _read_table(name: str, body: bytes) -> Mapping[str, object]:
    try:
        table = msgspec.json.decode(body)
    except msgspec.DecodeError:
        table = None
    return {**table, "name": name} if isinstance(table, dict) else {"name": name}


def _write_table(key: ClientKey) -> bytes:
    return msgspec.json.encode(written_fields(key))


# --- SQLite -----------------------------------------------------------------------------------------------------------

_CHANGE_COLUMNS = "number, at, author, action, name, detail"


class SqliteKeyRecords:
    def __init__(self, worker: SqliteWorker) -> None:
        self._worker = worker

    async def load(self, known: KeysVersion | None) -> StoredKeyList | StoreDown | None:
        def work(file: sqlite3.Connection, _now: float) -> StoredKeyList | None:
            last = file.execute("SELECT number, at FROM key_changes ORDER BY number DESC LIMIT 1").fetchone()
            version = last or NO_CHANGE
            if version == known:
                return None
            return StoredKeyList(version, _read_all(file), _read_changes(file, known))

        return await self._worker.run_work(work, writes=False)

    async def change(self, author: str, action: str, edit: EditKey) -> KeyEdit | KeyRefused | StoreDown:
        def work(file: sqlite3.Connection, now: float) -> KeyEdit | KeyRefused:
            made = edit(_read_all(file))
            if isinstance(made, KeyEdit):
                name = made.key.name
                file.execute("INSERT OR REPLACE INTO client_keys VALUES (?, ?)", (name, _write_table(made.key)))
                statement = "INSERT INTO key_changes (at, author, action, name, detail) VALUES (?, ?, ?, ?, ?)"
                file.execute(statement, (now, author, action, name, made.detail))
            return made

        return await self._worker.run_work(work)

    async def list_changes(self, name: str | None = None) -> list[KeyChange] | StoreDown:
        def work(file: sqlite3.Connection, _now: float) -> list[KeyChange]:
            statement = f"""SELECT {_CHANGE_COLUMNS} FROM key_changes WHERE ?1 IS NULL OR name = ?1
                ORDER BY number DESC LIMIT {MAX_LISTED}"""
            return [KeyChange(*row) for row in file.execute(statement, (name,))][::-1]

        return await self._worker.run_work(work, writes=False)


def _read_all(file: sqlite3.Connection) -> tuple[Mapping[str, object], ...]:
    return tuple(_read_table(*row) for row in file.execute("SELECT name, body FROM client_keys ORDER BY name"))


def _read_changes(file: sqlite3.Connection, known: KeysVersion | None) -> tuple[KeyChange, ...]:
    if known is None:
        return ()
    statement = f"SELECT {_CHANGE_COLUMNS} FROM key_changes WHERE number > ? ORDER BY number LIMIT {MAX_LISTED}"
    return tuple(KeyChange(*row) for row in file.execute(statement, (known[0],)))


# --- PostgreSQL -------------------------------------------------------------------------------------------------------


class PostgresKeyRecords:
    def __init__(self, pool: PostgresPool, clock: Callable[[], float], lock: int) -> None:
        """Changes are made under the advisory lock, so that their numbers are in the order of their commits."""
        self._pool, self._clock, self._lock = pool, clock, lock

    async def load(self, known: KeysVersion | None) -> StoredKeyList | StoreDown | None:
        async def work(connection: PostgresConnection) -> StoredKeyList | None:
            last = await connection.fetchrow("SELECT number, at FROM toolwire_key_changes ORDER BY number DESC LIMIT 1")
            version = (last["number"], last["at"]) if last is not None else NO_CHANGE
            if version == known:
                return None
            # A change in between makes the keys newer than the version: then they are read again next time.
            statement = f"""SELECT {_CHANGE_COLUMNS} FROM toolwire_key_changes
                WHERE number > $1 AND number <= $2 ORDER BY number LIMIT {MAX_LISTED}"""
            rows = await connection.fetch(statement, known[0], version[0]) if known is not None else ()
            return StoredKeyList(version, await self._read_all(connection), tuple(KeyChange(*row) for row in rows))

        return await self._pool.run_work(work, is_idempotent=True)

    async def change(self, author: str, action: str, edit: EditKey) -> KeyEdit | KeyRefused | StoreDown:
        async def work(connection: PostgresConnection) -> KeyEdit | KeyRefused:
            async with connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock($1)", self._lock)
                made = edit(await self._read_all(connection))
                if isinstance(made, KeyEdit):
                    name = made.key.name
                    statement = """INSERT INTO toolwire_client_keys VALUES ($1, $2)
                        ON CONFLICT (name) DO UPDATE SET body = excluded.body"""
                    await connection.execute(statement, name, _write_table(made.key))
                    statement = """INSERT INTO toolwire_key_changes (at, author, action, name, detail)
                        VALUES ($1, $2, $3, $4, $5)"""
                    await connection.execute(statement, self._clock(), author, action, name, made.detail)
                return made

        # Not repeated: a second attempt would find what the first one wrote.
        return await self._pool.run_work(work, is_idempotent=False)

    async def list_changes(self, name: str | None = None) -> list[KeyChange] | StoreDown:
        async def work(connection: PostgresConnection) -> list[KeyChange]:
            statement = f"""SELECT {_CHANGE_COLUMNS} FROM toolwire_key_changes WHERE $1::text IS NULL OR name = $1
                ORDER BY number DESC LIMIT {MAX_LISTED}"""
            return [KeyChange(*row) for row in await connection.fetch(statement, name)][::-1]

        return await self._pool.run_work(work, is_idempotent=True)

    @staticmethod
    async def _read_all(connection: PostgresConnection) -> tuple[Mapping[str, object], ...]:
        rows = await connection.fetch("SELECT name, body FROM toolwire_client_keys ORDER BY name")
        return tuple(_read_table(row["name"], row["body"]) for row in rows)
