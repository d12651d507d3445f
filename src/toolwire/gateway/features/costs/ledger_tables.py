"""Opens the ledger of a store."""

from __future__ import annotations

from toolwire.gateway.features.costs.ledger import LedgerTables
from toolwire.gateway.features.costs.ledger_sqlite import SqliteLedger
from toolwire.gateway.store.sqlite import SqliteStore
from toolwire.gateway.store.store import Store


def open_ledger(store: Store) -> LedgerTables:
    if isinstance(store, SqliteStore):
        return SqliteLedger(store)
    from toolwire.gateway.features.costs.ledger_postgres import PostgresLedger  # noqa: PLC0415
    from toolwire.gateway.store.postgres import PostgresStore  # noqa: PLC0415  asyncpg is an optional extra

    assert isinstance(store, PostgresStore)
    return PostgresLedger(store)
