"""What can be wrong with a PostgreSQL: in words without any secret, and whether a second try is right."""

from __future__ import annotations

from ssl import SSLError
from urllib.parse import parse_qs, unquote, urlsplit

import asyncpg  # type: ignore[import-untyped]


class Unreachable(Exception):
    """No connection can be had: why, in words."""


class Newer(Exception):
    """The tables are of a version after this one."""


class Undone(Exception):
    """The connection broke before anything was to last."""


WRONG = (
    Unreachable,
    Newer,
    Undone,
    OSError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    ValueError,
)
"""All that is raised for a server or a URL that is not as it should be; TimeoutError is an OSError."""

NOTHING_DONE = (
    Undone,
    asyncpg.AdminShutdownError,
    asyncpg.IdleSessionTimeoutError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.UndefinedTableError,
    asyncpg.InvalidSQLStatementNameError,
    asyncpg.InvalidCachedStatementError,
)
"""Nothing of what was asked is done: asked again, on another connection, it may."""
BROKEN = (ConnectionError, asyncpg.PostgresConnectionError, asyncpg.CrashShutdownError, asyncpg.InterfaceError)
"""The connection broke: nobody knows whether it did."""

SAID: tuple[tuple[type[BaseException], str], ...] = (
    (asyncpg.InvalidAuthorizationSpecificationError, "it refuses the user or the password"),
    (asyncpg.InvalidCatalogNameError, "it has no database of this name: make one, or correct the URL"),
    (asyncpg.TooManyConnectionsError, "it takes no more connections: raise its max_connections"),
    (asyncpg.CannotConnectNowError, "it is starting, stopping or recovering"),
    (asyncpg.AdminShutdownError, "it is being stopped"),
    (asyncpg.TargetServerAttributeNotMatched, "it takes no writes: it is a standby"),
    (asyncpg.ReadOnlySQLTransactionError, "it takes no writes: it is a standby, or read-only"),
    (asyncpg.InsufficientPrivilegeError, "its user may not do what is needed: give it the right to make tables"),
    (asyncpg.InvalidSchemaNameError, "it has no schema for the tables: make one, or give its user the right to it"),
    (asyncpg.DiskFullError, "its disk is full: make room, or lower [store] max_bytes and run `toolwire store gc`"),
    (SSLError, "its TLS is not trusted or not understood: see sslmode and sslrootcert in the URL"),
    (ValueError, "the URL is not one that can be used"),
    (TimeoutError, "it did not answer in time"),
    (ConnectionRefusedError, "it refuses connections"),
    (ConnectionError, "the connection broke"),
    (asyncpg.PostgresConnectionError, "the connection broke"),
    (asyncpg.CrashShutdownError, "the connection broke"),
    (Undone, "the connection broke"),
    (FileNotFoundError, "its socket or a file that the URL names is not there"),
)


def undone(error: BaseException) -> bool:
    """Is it certain that nothing was done? The server's last word stands behind a connection that it broke."""
    return isinstance(error, NOTHING_DONE) or isinstance(error.__cause__, NOTHING_DONE)


def said(error: BaseException) -> str:
    """What went wrong, in words; never the words of the server, which may quote what it was given."""
    if isinstance(error, Unreachable | Newer):
        return str(error)
    if isinstance(error, ConnectionError) and "SSL" in str(error):  # it has no type of its own
        return "it takes no TLS, which sslmode in the URL demands"
    for kind, words in SAID:
        if isinstance(error, kind):
            return words
    if isinstance(error, asyncpg.PostgresError):
        return f"it failed with {type(error).__name__} ({getattr(error, 'sqlstate', None) or 'no code'})"
    if isinstance(error, OSError):
        return f"it cannot be reached: {error.strerror or type(error).__name__}"
    return f"it failed with {type(error).__name__}"


def place(url: str) -> str:
    """Where the server is and which database it is, without user and password."""
    try:
        parts = urlsplit(url)
        query = parse_qs(parts.query)
    except ValueError:
        return "PostgreSQL"
    host = unquote(parts.netloc.rpartition("@")[2]) or ",".join(query.get("host", ()))
    database = unquote(parts.path.lstrip("/")) or "".join(query.get("database", query.get("dbname", ()))[:1])
    return f"PostgreSQL at {host or 'its usual place'}{f', database {database}' if database else ''}"
