"""The store that the settings ask for."""

from __future__ import annotations

from collections.abc import Mapping

from toolwire.gateway.settings import config, places
from toolwire.gateway.store.record import Store
from toolwire.gateway.store.sealed import Sealed
from toolwire.gateway.store.sqlite import Sqlite


def opened(settings: config.Store, environ: Mapping[str, str]) -> Store | None:
    """None where nothing shall be kept. Nothing is touched before the first use, so that processes can be forked."""
    url = places.address(settings, environ)
    if url == places.NONE:
        return None
    return Sealed(_made(url, settings), places.keys(settings, environ), settings.key_env)


def _made(url: str, settings: config.Store) -> Store:
    file = places.file(url)
    if file is not None:
        return Sqlite(file, ttl=settings.ttl, max_bytes=settings.max_bytes)
    from toolwire.gateway.store.postgres import Postgres  # noqa: PLC0415  its driver is an extra

    return Postgres(url, ttl=settings.ttl, max_bytes=settings.max_bytes)
