"""Stores for tests, of every kind: the same laws are run over each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypedDict, Unpack

from toolwire.gateway.store.sqlite import SqliteStore
from toolwire.gateway.store.store import BodyCipher, Entry, Store, StoreDown


class RawBodies(BodyCipher):
    """Shows what is really stored."""

    def encrypt_all(self, entries: Sequence[Entry]) -> list[Entry]:
        return list(entries)

    def decrypt(self, entry: Entry) -> Entry | StoreDown:
        return entry


class Settings(TypedDict, total=False):
    """What a store is given; what is left out is as in `[store]`."""

    ttl: float
    max_bytes: int
    clock: Callable[[], float]
    cipher: BodyCipher


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
async def open_store(
    backend: str, folder: Path, *, keys: tuple[str, ...] = (), **settings: Unpack[Settings]
) -> AsyncIterator[Store]:
    """A store of this kind, closed at the end."""
    store = MAKERS[backend](folder, cipher=BodyCipher(keys, "STORE_KEY"), **settings)
    try:
        yield store
    finally:
        await store.close()
