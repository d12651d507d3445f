"""What outlives a request: entries in SQLite or PostgreSQL, encrypted if configured."""

from __future__ import annotations

from collections.abc import Mapping

from toolwire.gateway.settings import store as store_config
from toolwire.gateway.settings.config import StoreSettings
from toolwire.gateway.store.sqlite import SqliteStore
from toolwire.gateway.store.store import BodyCipher, Store


def open_store(settings: StoreSettings, environ: Mapping[str, str]) -> Store | None:
    """The configured store; None for `url = "none"`. It connects on first use only, so that processes can be forked."""
    url = store_config.store_url(settings, environ)
    if url == store_config.NO_STORE:
        return None
    cipher = BodyCipher(store_config.read_secrets(settings.key_env, environ), settings.key_env)
    path = store_config.sqlite_path(url)
    if path is not None:
        return SqliteStore(path, ttl=settings.ttl, max_bytes=settings.max_bytes, cipher=cipher)
    from toolwire.gateway.store.postgres import PostgresStore  # noqa: PLC0415  asyncpg is an optional extra

    return PostgresStore(url, ttl=settings.ttl, max_bytes=settings.max_bytes, cipher=cipher)
