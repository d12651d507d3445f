"""Client keys in the store, with a record of every change: for gateways that share nothing else.

A key is stored as the table that it would be in the file, so both are checked by the same code. The number and the time
of the last change are the version of all keys: a gateway that knows it need not read them again. The time is for a
database that was restored from a backup, where a number can come a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec
from msgspec import Struct

from toolwire.gateway.settings.client_keys import written_fields
from toolwire.gateway.settings.config import ClientKey
from toolwire.gateway.store.store import Rows, Store, StoreDown

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
    key: ClientKey
    detail: str


EditKey: TypeAlias = Callable[[Sequence[Mapping[str, object]]], KeyEdit | KeyRefused]
"""Makes the new key, from the tables of all keys in the store."""


_CHANGE_COLUMNS = "number, at, author, action, name, detail"


class KeyRecords:
    """The keys in a store. Every operation is atomic, and returns `StoreDown` instead of raising. Changes are made one
    after another, so that their numbers are in the order of their commits."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def load(self, known: KeysVersion | None) -> StoredKeyList | StoreDown | None:
        """All keys; None if they are those of the known version."""

        async def work(rows: Rows, _now: float) -> StoredKeyList | None:
            last = await rows.fetch("SELECT number, at FROM toolwire_key_changes ORDER BY number DESC LIMIT 1")
            version = (last[0][0], last[0][1]) if last else NO_CHANGE
            if version == known:
                return None
            # A change in between makes the keys newer than the version: then they are read again next time.
            statement = f"""SELECT {_CHANGE_COLUMNS} FROM toolwire_key_changes
                WHERE number > $1 AND number <= $2 ORDER BY number LIMIT {MAX_LISTED}"""
            changes = await rows.fetch(statement, known[0], version[0]) if known is not None else ()
            return StoredKeyList(version, await _read_all(rows), tuple(KeyChange(*row) for row in changes))

        return await self._store.run_sql(work)

    async def change(self, author: str, action: str, edit: EditKey) -> KeyEdit | KeyRefused | StoreDown:
        """Write one key and the line about it in the audit log, or neither."""

        async def work(rows: Rows, now: float) -> KeyEdit | KeyRefused:
            made = edit(await _read_all(rows))
            if isinstance(made, KeyEdit):
                name, body = made.key.name, msgspec.json.encode(written_fields(made.key))
                statement = """INSERT INTO toolwire_client_keys (name, body) VALUES ($1, $2)
                    ON CONFLICT (name) DO UPDATE SET body = excluded.body"""
                await rows.fetch(statement, name, body)
                statement = """INSERT INTO toolwire_key_changes (at, author, action, name, detail)
                    VALUES ($1, $2, $3, $4, $5)"""
                await rows.fetch(statement, now, author, action, name, made.detail)
            return made

        return await self._store.run_sql(work, writes=True)

    async def list_changes(self, name: str | None = None) -> list[KeyChange] | StoreDown:
        """The audit log, of all keys or of one; the last change is the last."""

        async def work(rows: Rows, _now: float) -> list[KeyChange]:
            statement = f"""SELECT {_CHANGE_COLUMNS} FROM toolwire_key_changes
                WHERE CAST($1 AS text) IS NULL OR name = $1 ORDER BY number DESC LIMIT {MAX_LISTED}"""
            return [KeyChange(*row) for row in await rows.fetch(statement, name)][::-1]

        return await self._store.run_sql(work)


async def _read_all(rows: Rows) -> tuple[Mapping[str, object], ...]:
    found = await rows.fetch("SELECT name, body FROM toolwire_client_keys ORDER BY name")
    return tuple(_read_table(*row) for row in found)


def _read_table(name: str, body: bytes) -> Mapping[str, object]:
    try:
        table = msgspec.json.decode(body)
    except (ValueError, RecursionError):  # of msgspec, or of text that is not UTF-8
        table = None
    return {**table, "name": name} if isinstance(table, dict) else {"name": name}
