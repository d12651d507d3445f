"""Who asks, and where its keys are."""

from __future__ import annotations

from math import inf
from urllib.parse import unquote_plus

from msgspec import Struct

from toolwire.gateway.settings.config import ClientKey
from toolwire.protocols import CODECS

CREDENTIAL_QUERIES = frozenset(codec.http.credential_query_key for codec in CODECS.values()) - {""}
"""Parameters of a query in which clients send a key (Gemini's `key`)."""


class Caller(Struct, frozen=True):
    """An authenticated client, with its gateway key (if there are keys) and its own provider key (if it sent one)."""

    key: ClientKey | None = None
    provider_credential: str = ""
    valid_until: float = inf
    """Unix time at which the key stops working."""


def drop_credentials(query: str) -> str:
    """The query without keys: a gateway key must not reach the provider."""
    names = CREDENTIAL_QUERIES
    return "&".join(pair for pair in query.split("&") if unquote_plus(pair.partition("=")[0]) not in names)
