"""Stores for tests, of every kind: the same laws are run over each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypedDict, Unpack

from toolwire.gateway.store.encrypted_store import EncryptedStore
from toolwire.gateway.store.sqlite import SqliteStore
from toolwire.gateway.store.store import Store


class Settings(TypedDict, total=False):
    """What a store is given; what is left out is as in `[store]`."""

    ttl: float
    max_bytes: int
    clock: Callable[[], float]


def _sqlite(folder: Path, **settings: Unpack[Settings]) -> Store:
    return SqliteStore(folder / "state" / "store.db", **settings)


def _postgres(folder: Path, **settings: Unpack[Settings]) -> Store:
    from gateway.postgres import postgres  # starts a server

    return postgres(folder, **settings)


MAKERS: dict[str, Callable[..., Store]] = {"sqlite": _sqlite, "postgres": _postgres}
"""The same folder is the same store, also when it is opened twice or again; another folder is another store."""
BACKENDS = tuple(MAKERS)


class Clock:
    """The time, as a test wants it."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.time = now

    def __call__(self) -> float:
        return self.time


@asynccontextmanager
async def opened(
    backend: str, folder: Path, *, keys: tuple[str, ...] = (), **settings: Unpack[Settings]
) -> AsyncIterator[Store]:
    """A store of this kind, as the gateway has it (with the door of encryption before it), closed at the end."""
    store = EncryptedStore(MAKERS[backend](folder, **settings), keys, "STORE_KEY")
    try:
        yield store
    finally:
        await store.close()
