"""What can be wrong with a PostgreSQL: in words without any secret, and whether a second try is right."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from ssl import SSLError
from typing import Any, Protocol, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit
from weakref import WeakKeyDictionary

import asyncpg  # type: ignore[import-untyped]

from toolwire.gateway.store.postgres_sql import (
    CREATE_MIGRATIONS_TABLE,
    HAS_MIGRATIONS_TABLE,
    MIGRATION_LOCK,
    READ_SCHEMA_VERSION,
    RECORD_MIGRATION,
)
from toolwire.gateway.store.store import StoreDown


class Unreachable(Exception):
    """No connection can be had: why, in words."""


class NewerSchema(Exception):
    """The tables are of a version after this one."""


class NothingWritten(Exception):
    """The connection broke before anything was to last."""


STORE_ERRORS = (
    Unreachable,
    NewerSchema,
    NothingWritten,
    OSError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    ValueError,
)
"""All that is raised for a server or a URL that is not as it should be; TimeoutError is an OSError."""

RETRYABLE_ERRORS = (
    NothingWritten,
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
CONNECTION_ERRORS = (
    ConnectionError,
    asyncpg.PostgresConnectionError,
    asyncpg.CrashShutdownError,
    asyncpg.InterfaceError,
)
"""The connection broke: nobody knows whether it did."""

ERROR_TEXTS: tuple[tuple[type[BaseException], str], ...] = (
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
    (NothingWritten, "the connection broke"),
    (FileNotFoundError, "its socket or a file that the URL names is not there"),
)


def is_retryable(error: BaseException) -> bool:
    """Is it certain that nothing was done? The server's last word stands behind a connection that it broke."""
    return isinstance(error, RETRYABLE_ERRORS) or isinstance(error.__cause__, RETRYABLE_ERRORS)


def describe_error(error: BaseException) -> str:
    """What went wrong, in words; never the words of the server, which may quote what it was given."""
    if isinstance(error, Unreachable | NewerSchema):
        return str(error)
    if isinstance(error, ConnectionError) and "SSL" in str(error):  # it has no type of its own
        return "it takes no TLS, which sslmode in the URL demands"
    for kind, words in ERROR_TEXTS:
        if isinstance(error, kind):
            return words
    if isinstance(error, asyncpg.PostgresError):
        return f"it failed with {type(error).__name__} ({getattr(error, 'sqlstate', None) or 'no code'})"
    if isinstance(error, OSError):
        return f"it cannot be reached: {error.strerror or type(error).__name__}"
    return f"it failed with {type(error).__name__}"


def describe_location(url: str) -> str:
    """Where the server is and which database it is, without user and password."""
    try:
        parts = urlsplit(url)
        query = parse_qs(parts.query)
    except ValueError:
        return "PostgreSQL"
    host = unquote(parts.netloc.rpartition("@")[2]) or ",".join(query.get("host", ()))
    database = unquote(parts.path.lstrip("/")) or "".join(query.get("database", query.get("dbname", ()))[:1])
    return f"PostgreSQL at {host or 'its usual place'}{f', database {database}' if database else ''}"


POOL_SIZE = 4
"""Connections at once, for each event loop."""
CONNECT_TIMEOUT = 3.0
"""Seconds until a connection stands, or less if a verb has less."""
MIGRATION_TIMEOUT = 60.0
"""For the first verb, which may have to bring tables up to date, or wait for another gateway that does."""
MAX_IDLE_SECONDS = 240.0
"""Seconds after which an unused connection is not trusted: something on the way may have forgotten it."""
CLOSED_TEXT = "it is closed"
Value = TypeVar("Value")


class PostgresConnection(Protocol):
    """What is used of a connection of asyncpg."""

    async def execute(self, query: str, *values: object) -> str: ...
    async def fetch(self, query: str, *values: object) -> list[Any]: ...
    async def fetchval(self, query: str, *values: object) -> Any: ...
    async def fetchrow(self, query: str, *values: object) -> Any: ...
    def cursor(self, query: str, *values: object) -> Any: ...
    def transaction(self, *, isolation: str = ..., readonly: bool = ...) -> Any: ...
    def is_closed(self) -> bool: ...
    def terminate(self) -> None: ...
    async def close(self, *, timeout: float) -> None: ...


class _LoopConnections:
    """The connections of one event loop, which no other can use."""

    def __init__(self) -> None:
        self.slots = asyncio.Semaphore(POOL_SIZE)
        self.idle: list[tuple[PostgresConnection, float]] = []
        self.connect_error = ""
        """Why the last try to connect failed, if it did."""
        self.retry_after = 0.0
        self.is_connecting = False
        """Somebody is trying whether it is back."""

    def drop_idle(self) -> None:
        while self.idle:
            self.idle.pop()[0].terminate()


class PostgresPool:
    def __init__(self, url: str, *, retry_delay: float, deadline: float, migrations: Sequence[str]) -> None:
        self.location = describe_location(url)
        self._url, self._retry_delay, self._deadline, self._migrations = url, retry_delay, deadline, migrations
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopConnections] = WeakKeyDictionary()
        self._is_migrated = False
        """The tables are as this version has them."""
        self._closed = False

    def __repr__(self) -> str:
        return f"Pool({self.location!r})"

    async def run_work(
        self, work: Callable[[PostgresConnection], Awaitable[Value]], *, is_idempotent: bool, deadline: float = 0.0
    ) -> Value | StoreDown:
        """Do it on some connection. `again`: twice does no harm, so that a broken connection is no reason to fail."""
        if self._closed:
            return self.make_down(Unreachable(CLOSED_TEXT))
        hand = self._get_loop_connections()
        try:
            async with (
                asyncio.timeout(max(deadline, self._deadline if self._is_migrated else MIGRATION_TIMEOUT)),
                hand.slots,
            ):
                try:
                    return await self._run_once(hand, work)
                except (*RETRYABLE_ERRORS, *CONNECTION_ERRORS) as error:
                    if not is_idempotent and not is_retryable(error):
                        raise
                    self._is_migrated = self._is_migrated and not isinstance(error, asyncpg.UndefinedTableError)
                hand.drop_idle()  # they are as old as the one that failed
                return await self._run_once(hand, work)
        except STORE_ERRORS as error:
            return self.make_down(error)

    @asynccontextmanager
    async def borrow_connection(self) -> AsyncIterator[PostgresConnection]:
        """A connection of one's own for as long as one likes, beside the others; raises what is in `WRONG`."""
        if self._closed:
            raise Unreachable(CLOSED_TEXT)
        async with asyncio.timeout(MIGRATION_TIMEOUT):
            connection = await self._connect(self._get_loop_connections())
        try:
            yield connection
        finally:
            connection.terminate()

    def make_down(self, error: BaseException) -> StoreDown:
        return StoreDown(f"the store in {self.location} cannot be used: {describe_error(error)}")

    async def close(self) -> None:
        """Finish what was accepted; in each event loop that used it."""
        self._closed = True
        hand = self._get_loop_connections()
        for _ in range(POOL_SIZE):  # behind all that wait
            await hand.slots.acquire()
        hand.slots = asyncio.Semaphore(POOL_SIZE)
        while hand.idle:
            with suppress(*STORE_ERRORS):
                await hand.idle.pop()[0].close(timeout=1.0)

    async def _run_once(
        self, connections: _LoopConnections, work: Callable[[PostgresConnection], Awaitable[Value]]
    ) -> Value:
        connection = await self._acquire_connection(connections)
        try:
            got = await work(connection)
        except BaseException:
            # Also when the caller left: what state it is in is not worth finding out.
            connection.terminate()
            raise
        connections.idle.append((connection, asyncio.get_running_loop().time()))
        return got

    # --- connections ------------------------------------------------------------------------------------------------

    def _get_loop_connections(self) -> _LoopConnections:
        loop = asyncio.get_running_loop()
        hand = self._by_loop.get(loop)
        if hand is None:
            hand = self._by_loop[loop] = _LoopConnections()
        return hand

    async def _acquire_connection(self, connections: _LoopConnections) -> PostgresConnection:
        now = asyncio.get_running_loop().time()
        while connections.idle:
            connection, since = connections.idle.pop()
            if not connection.is_closed() and now - since < MAX_IDLE_SECONDS:
                return connection
            connection.terminate()
        return await self._connect(connections)

    async def _connect(self, connections: _LoopConnections) -> PostgresConnection:
        """A new connection, its tables in order."""
        time = asyncio.get_running_loop().time
        if connections.connect_error and (connections.is_connecting or time() < connections.retry_after):
            raise Unreachable(connections.connect_error)
        connections.is_connecting = True
        try:
            connection = await self._open_connection()
        except STORE_ERRORS as error:
            connections.connect_error, connections.retry_after = describe_error(error), time() + self._retry_delay
            raise Unreachable(connections.connect_error) from None
        finally:
            connections.is_connecting = False
        connections.connect_error = ""
        return connection

    async def _open_connection(self) -> PostgresConnection:
        # Of several servers, the one that takes writes; the URL may say otherwise.
        several = "," in self._url and "target_session_attrs" not in self._url
        settings = None if "application_name" in self._url else {"application_name": "toolwire"}
        connection: PostgresConnection = await asyncpg.connect(
            self._url,
            timeout=min(CONNECT_TIMEOUT, self._deadline),
            server_settings=settings,
            target_session_attrs="primary" if several else None,
        )
        try:
            if not self._is_migrated:
                await migrate_tables(connection, self._migrations)
                self._is_migrated = True
        except BaseException:
            connection.terminate()
            raise
        return connection


async def migrate_tables(connection: PostgresConnection, steps: Sequence[str]) -> None:
    """Bring the tables up to date; of several gateways that begin at once, one does and the others wait."""
    if await connection.fetchval(HAS_MIGRATIONS_TABLE) and await _read_schema_version(connection, steps) == len(steps):
        return
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", MIGRATION_LOCK)
        await connection.execute(CREATE_MIGRATIONS_TABLE)
        for number in range(await _read_schema_version(connection, steps), len(steps)):
            await connection.execute(steps[number])
            await connection.execute(RECORD_MIGRATION, number + 1)


async def _read_schema_version(connection: PostgresConnection, steps: Sequence[str]) -> int:
    version = int(await connection.fetchval(READ_SCHEMA_VERSION))
    if version > len(steps):
        raise NewerSchema(f"it was written by a newer toolwire (tables {version}, known {len(steps)}): update this one")
    return version
