"""The counters that a configuration asks for."""

from __future__ import annotations

from collections.abc import Mapping

from toolwire.gateway.features.limits.counters import Counters
from toolwire.gateway.features.limits.counters_memory import MemoryCounters
from toolwire.gateway.features.limits.counters_sqlite import CounterFile, SqliteCounters
from toolwire.gateway.features.limits.settings import LimitSettings, is_redis_url
from toolwire.gateway.settings.config import Config
from toolwire.gateway.settings.store import NO_STORE, find_url, sqlite_path, store_url


def open_counters(config: Config, environ: Mapping[str, str]) -> Counters:
    """They connect on first use only, so that processes can be forked."""
    url = find_url(config.section(LimitSettings).counters, environ) or store_url(config.store, environ)
    if url == NO_STORE:
        return MemoryCounters()
    path = sqlite_path(url)
    if path is not None:
        # One process counts in memory, which is quicker. Workers share the file.
        return SqliteCounters(path) if config.server.workers > 1 else MemoryCounters(CounterFile(path))
    if is_redis_url(url):
        from toolwire.gateway.features.limits.counters_redis import RedisCounters  # noqa: PLC0415  redis is an optional extra

        return RedisCounters(url)
    from toolwire.gateway.features.limits.counters_postgres import PostgresCounters  # noqa: PLC0415  asyncpg is an optional extra

    return PostgresCounters(url)
