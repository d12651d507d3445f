"""Opens the client keys of a store."""

from __future__ import annotations

from toolwire.gateway.features.keys.key_records import KeyRecords, PostgresKeyRecords, SqliteKeyRecords
from toolwire.gateway.store.sqlite import SqliteStore
from toolwire.gateway.store.store import Store


def open_key_records(store: Store | None) -> KeyRecords | None:
    """The client keys in a store; None without one."""
    if store is None:
        return None
    if isinstance(store, SqliteStore):
        return SqliteKeyRecords(store.worker)
    from toolwire.gateway.store.postgres import PostgresStore  # noqa: PLC0415  asyncpg is an optional extra
    from toolwire.gateway.store.postgres_pool import KEYS_LOCK  # noqa: PLC0415

    return PostgresKeyRecords(store.pool, store.clock, KEYS_LOCK) if isinstance(store, PostgresStore) else None
