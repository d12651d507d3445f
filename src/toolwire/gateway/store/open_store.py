"""The store that the settings ask for."""

from __future__ import annotations

from collections.abc import Mapping

from toolwire.gateway.config import config, store
from toolwire.gateway.store.encrypted_store import EncryptedStore
from toolwire.gateway.store.sqlite import SqliteStore
from toolwire.gateway.store.store import Store


def open_store(settings: config.StoreSettings, environ: Mapping[str, str]) -> Store | None:
    """None where nothing shall be kept. Nothing is touched before the first use, so that processes can be forked."""
    url = store.store_url(settings, environ)
    if url == store.NO_STORE:
        return None
    return EncryptedStore(_open_backend(url, settings), store.encryption_keys(settings, environ), settings.key_env)


def _open_backend(url: str, settings: config.StoreSettings) -> Store:
    file = store.sqlite_path(url)
    if file is not None:
        return SqliteStore(file, ttl=settings.ttl, max_bytes=settings.max_bytes)
    from toolwire.gateway.store.postgres import PostgresStore  # noqa: PLC0415  its driver is an extra

    return PostgresStore(url, ttl=settings.ttl, max_bytes=settings.max_bytes)
