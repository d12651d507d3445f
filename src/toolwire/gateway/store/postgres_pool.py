"""Connections to PostgreSQL: asyncpg's pool, the migrations of the tables, retries, and errors as readable texts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from ssl import SSLError
from time import monotonic
from typing import Any, Protocol, TypedDict, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

import asyncpg  # type: ignore[import-untyped]
from msgspec import Struct, field
from msgspec.structs import replace

from toolwire.gateway.store.migrations import read_steps
from toolwire.gateway.store.store import StoreDown

POOL_SIZE = 4
"""Maximum number of connections, for each event loop."""
CONNECT_TIMEOUT = 3.0
"""Seconds to open a connection; less if the operation has less."""
MIGRATION_TIMEOUT = 60.0
"""Seconds to migrate the tables, or to wait for another gateway that does. No operation waits for it longer than its
own deadline."""
MAX_IDLE_SECONDS = 240.0
"""An idle connection is closed after this time, because a firewall on the way may have dropped it silently."""
Value = TypeVar("Value")

MIGRATIONS = read_steps("postgres.sql")

# Numbers of advisory locks, which all users of a database share: the letters "tool" and a number.
MIGRATION_LOCK = 0x746F6F6C_00000001
SWEEP_LOCK = 0x746F6F6C_00000002
KEYS_LOCK = 0x746F6F6C_00000003

_HAS_MIGRATIONS_TABLE = "SELECT to_regclass('toolwire_migrations') IS NOT NULL"
_READ_SCHEMA_VERSION = "SELECT coalesce(max(version), 0) FROM toolwire_migrations"
_CREATE_MIGRATIONS_TABLE = """CREATE TABLE IF NOT EXISTS toolwire_migrations (
    version integer PRIMARY KEY, applied timestamptz NOT NULL DEFAULT now())"""
_RECORD_MIGRATION = "INSERT INTO toolwire_migrations (version) VALUES ($1)"


class PostgresConnection(Protocol):
    """The part of an asyncpg connection that is used here; asyncpg has no types."""

    async def execute(self, query: str, *values: object) -> str: ...
    async def fetch(self, query: str, *values: object) -> list[Any]: ...
    async def fetchval(self, query: str, *values: object) -> Any: ...
    async def fetchrow(self, query: str, *values: object) -> Any: ...
    def cursor(self, query: str, *values: object) -> Any: ...
    def transaction(self, *, isolation: str = ..., readonly: bool = ...) -> Any: ...
    def terminate(self) -> None: ...


# --- errors ---


class Unreachable(Exception):
    """No connection can be opened; the text says why."""


class NoMoreConnections(Unreachable):
    """The server refuses another connection, but others of this pool are open."""


class NewerSchema(Exception):
    """The tables were made by a newer version of toolwire."""


class NothingWritten(Exception):
    """The connection broke before the transaction was committed."""


_POSTGRES_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
STORE_ERRORS = (Unreachable, NewerSchema, NothingWritten, OSError, *_POSTGRES_ERRORS, ValueError)
"""All errors that mean a problem with the server or the URL. TimeoutError is an OSError; asyncpg raises ValueError for
some invalid URLs."""

RETRYABLE_ERRORS = (
    NothingWritten,
    asyncpg.AdminShutdownError,
    asyncpg.IdleSessionTimeoutError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.UndefinedTableError,
    asyncpg.UndefinedFunctionError,
    asyncpg.InvalidSQLStatementNameError,
    asyncpg.InvalidCachedStatementError,
)
"""Nothing was written, and a second try on a new connection may succeed."""
CONNECTION_ERRORS = (
    ConnectionError,
    asyncpg.PostgresConnectionError,
    asyncpg.CrashShutdownError,
    asyncpg.InterfaceError,
)
"""The connection broke, so it is unknown whether the operation was done."""

_ERROR_TEXTS: tuple[tuple[type[BaseException], str], ...] = (
    (asyncpg.InvalidAuthorizationSpecificationError, "the server rejected the user or the password"),
    (asyncpg.InvalidCatalogNameError, "this database does not exist: create it or correct the URL"),
    (asyncpg.TooManyConnectionsError, "the server has too many connections: raise its max_connections"),
    (asyncpg.CannotConnectNowError, "the server is starting, stopping or recovering"),
    (asyncpg.AdminShutdownError, "the server is shutting down"),
    (asyncpg.TargetServerAttributeNotMatched, "the server is read-only: it is a standby"),
    (asyncpg.ReadOnlySQLTransactionError, "the server is read-only: it may be a standby"),
    (asyncpg.InsufficientPrivilegeError, "the user lacks permissions: allow it to create tables"),
    (asyncpg.InvalidSchemaNameError, "no schema for the tables: create one or allow the user to use it"),
    (
        asyncpg.DiskFullError,
        "the server's disk is full: free some space, or lower [store] max_bytes and run `toolwire store gc`",
    ),
    (SSLError, "the TLS connection failed: see sslmode and sslrootcert in the URL"),
    (ValueError, "the URL is invalid"),
    (TimeoutError, "the server did not answer in time"),
    (ConnectionRefusedError, "the server refuses connections"),
    (ConnectionError, "the connection broke"),
    (asyncpg.PostgresConnectionError, "the connection broke"),
    (asyncpg.CrashShutdownError, "the connection broke"),
    (NothingWritten, "the connection broke"),
    (FileNotFoundError, "the socket or a file named in the URL does not exist"),
)


def _describe_error(error: BaseException) -> str:
    """A readable text. It never contains the server's own message, which may quote a secret."""
    if isinstance(error, Unreachable | NewerSchema):
        return str(error)
    if isinstance(error, ConnectionError) and "SSL" in str(error):  # asyncpg has no type for it
        return "the server does not support TLS, which sslmode in the URL demands"
    for error_type, text in _ERROR_TEXTS:
        if isinstance(error, error_type):
            return text
    if isinstance(error, asyncpg.PostgresError):
        return f"the server failed with {type(error).__name__} ({getattr(error, 'sqlstate', None) or 'no code'})"
    if isinstance(error, OSError):
        return f"the server cannot be reached: {error.strerror or type(error).__name__}"
    return f"the server failed with {type(error).__name__}"


def _describe_location(url: str) -> str:
    """The server and the database, without user and password."""
    try:
        parts = urlsplit(url)
        query = parse_qs(parts.query)
    except ValueError:
        return "PostgreSQL"
    host = unquote(parts.netloc.rpartition("@")[2]) or ",".join(query.get("host", ()))
    database = unquote(parts.path.lstrip("/")) or "".join(query.get("database", query.get("dbname", ()))[:1])
    return f"PostgreSQL at {host or 'the default address'}{f', database {database}' if database else ''}"


# --- connections ---


class _LoopPool(Struct, eq=False):
    """The asyncpg pool of one event loop, and what runs on it."""

    connections: Any
    migration: asyncio.Task[None] | None = None
    migration_started: float = 0.0
    running: set[asyncio.Future[None]] = field(default_factory=set)


class PoolOptions(TypedDict, total=False):
    """Only tests set them."""

    retry_delay: float
    deadline: float
    migrations: Sequence[str]


class PostgresPool:
    """Runs work on pooled connections. An operation may take `deadline` seconds; a server that is down is not asked
    again for `retry_delay` seconds."""

    def __init__(
        self, url: str, *, retry_delay: float = 1.0, deadline: float = 5.0, migrations: Sequence[str] = MIGRATIONS
    ) -> None:
        self.location, self.schema_version = _describe_location(url), len(migrations)
        self._url, self._retry_delay, self._deadline, self._migrations = url, retry_delay, deadline, migrations
        self._by_loop: dict[asyncio.AbstractEventLoop, _LoopPool] = {}
        self._is_migrated = False
        self._closed = False
        self._connect_error = ""
        """Why the last attempt to connect failed, if it did."""
        self._retry_at = 0.0
        self._is_connecting = False
        self._finished = 0

    def __repr__(self) -> str:
        return f"PostgresPool({self.location!r})"

    async def run_work(
        self, work: Callable[[PostgresConnection], Awaitable[Value]], *, is_idempotent: bool, deadline: float = 0.0
    ) -> Value | StoreDown:
        """Run `work` on a connection. Idempotent work is repeated once when the connection breaks."""
        if self._closed:
            return self.make_down(Unreachable("the store is closed"))
        pool = await self._get_loop_pool()
        done = asyncio.get_running_loop().create_future()
        pool.running.add(done)
        finished = self._finished
        try:
            async with asyncio.timeout(max(deadline, self._deadline)):
                if not self._is_migrated:
                    await self._wait_for_migration(pool)
                try:
                    return await self._run_once(pool, work)
                except (*RETRYABLE_ERRORS, *CONNECTION_ERRORS) as error:
                    # The server's last error is the cause of a broken connection's.
                    nothing_written = any(isinstance(one, RETRYABLE_ERRORS) for one in (error, error.__cause__))
                    if not is_idempotent and not nothing_written:
                        raise
                    if isinstance(error, (asyncpg.UndefinedTableError, asyncpg.UndefinedFunctionError)):
                        self._is_migrated = False
                await pool.connections.expire_connections()  # the others are probably broken, too
                if not self._is_migrated:
                    await self._wait_for_migration(pool)
                return await self._run_once(pool, work)
        except STORE_ERRORS as error:
            # A server that has answered others meanwhile is not down: more is asked of it than it can do in time.
            is_busy = isinstance(error, TimeoutError) and finished != self._finished
            return replace(self.make_down(error), is_busy=is_busy or isinstance(error, NoMoreConnections))
        finally:
            pool.running.discard(done)
            done.set_result(None)

    async def repeat_work(
        self, work: Callable[[PostgresConnection], Awaitable[int]], deadline: float
    ) -> int | StoreDown:
        """Run `work`, which removes rows in a small transaction, until none is left; returns how many there were."""
        total = 0
        while removed := await self.run_work(work, is_idempotent=False, deadline=deadline):
            if isinstance(removed, StoreDown):
                return removed
            total += removed
        return total

    async def _run_once(self, pool: _LoopPool, work: Callable[[PostgresConnection], Awaitable[Value]]) -> Value:
        async with pool.connections.acquire() as connection:
            try:
                result = await work(connection)
            except BaseException:
                # Also when the caller was cancelled: the connection may be in the middle of a transaction.
                with suppress(asyncpg.InterfaceError):  # it broke, and the pool has removed it
                    connection.terminate()
                raise
        self._finished += 1
        return result

    @asynccontextmanager
    async def open_connection(self) -> AsyncIterator[PostgresConnection]:
        """A connection outside of the pool, for work without a deadline; raises `STORE_ERRORS`."""
        if self._closed:
            raise Unreachable("the store is closed")
        async with asyncio.timeout(MIGRATION_TIMEOUT):
            if not self._is_migrated:
                await self._migrate()
            connection = await self._connect(self._url)
        try:
            yield connection
        finally:
            connection.terminate()

    def make_down(self, error: BaseException) -> StoreDown:
        return StoreDown(f"the store in {self.location} cannot be used: {_describe_error(error)}")

    async def close(self) -> None:
        """Finish the running work and close the connections of this event loop."""
        self._closed = True
        pool = self._by_loop.pop(asyncio.get_running_loop(), None)
        if pool is None:
            return
        if pool.running:
            await asyncio.wait(pool.running)
        if pool.migration is not None:
            pool.migration.cancel()
            await asyncio.wait([pool.migration])
        try:
            async with asyncio.timeout(1.0):
                await pool.connections.close()
        except STORE_ERRORS:
            pool.connections.terminate()

    async def _get_loop_pool(self) -> _LoopPool:
        loop = asyncio.get_running_loop()
        pool = self._by_loop.get(loop)
        if pool is None:
            connections = asyncpg.create_pool(
                self._url, min_size=0, max_size=POOL_SIZE, max_inactive_connection_lifetime=MAX_IDLE_SECONDS,
                connect=self._connect, reset=_skip_reset,
            )  # fmt: skip
            pool = self._by_loop[loop] = _LoopPool(connections)
            await connections  # with `min_size=0` it opens no connection, so this does not suspend
        return pool

    async def _wait_for_migration(self, pool: _LoopPool) -> None:
        """Wait until the tables are up to date, but no longer than operations may take since it was started. It goes on
        by itself."""
        if pool.migration is None or pool.migration.done():
            pool.migration = asyncio.get_running_loop().create_task(self._migrate())
            pool.migration.add_done_callback(_ignore_failure)
            pool.migration_started = monotonic()
        seconds = pool.migration_started + self._deadline - monotonic()
        await asyncio.wait([pool.migration], timeout=max(0.0, seconds))
        if not pool.migration.done():
            raise Unreachable("the server did not answer in time: it may be migrating the tables")
        await pool.migration

    async def _migrate(self) -> None:
        connection = await self._connect(self._url)  # after a failure it says itself when to try again
        try:
            async with asyncio.timeout(MIGRATION_TIMEOUT):
                await _migrate_tables(connection, self._migrations)
        except STORE_ERRORS as error:
            self._connect_error, self._retry_at = _describe_error(error), monotonic() + self._retry_delay
            raise
        finally:
            connection.terminate()
        self._is_migrated = True

    async def _connect(self, url: str, **options: Any) -> PostgresConnection:
        if self._connect_error and (self._is_connecting or monotonic() < self._retry_at):
            raise Unreachable(self._connect_error)
        self._is_connecting = True
        if "," in url and "target_session_attrs" not in url:
            options["target_session_attrs"] = "primary"  # of several servers, use the writable one
        if "application_name" not in url:
            options["server_settings"] = {"application_name": "toolwire"}
        try:
            timeout = min(CONNECT_TIMEOUT, self._deadline)
            connection: PostgresConnection = await asyncpg.connect(url, timeout=timeout, **options)
        except STORE_ERRORS as error:
            if isinstance(error, asyncpg.TooManyConnectionsError) and self._has_connections():
                raise NoMoreConnections(_describe_error(error)) from None
            self._connect_error, self._retry_at = _describe_error(error), monotonic() + self._retry_delay
            raise Unreachable(self._connect_error) from None
        finally:
            self._is_connecting = False
        self._connect_error = ""
        return connection

    def _has_connections(self) -> bool:
        return any(pool.connections.get_size() for pool in self._by_loop.values())


def _ignore_failure(migration: asyncio.Task[None]) -> None:
    """Operations that wait for it report its failure. If none waits any more, there is nobody to tell."""
    if not migration.cancelled():
        migration.exception()


async def _skip_reset(_: PostgresConnection) -> None:
    """asyncpg resets a connection by a round trip before it reuses it; nothing here changes a session's settings."""


async def _migrate_tables(connection: PostgresConnection, migrations: Sequence[str]) -> None:
    """Bring the tables up to date. When several gateways start at once, one migrates and the others wait."""
    if await connection.fetchval(_HAS_MIGRATIONS_TABLE) and await _read_schema_version(
        connection, len(migrations)
    ) == len(migrations):
        return
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", MIGRATION_LOCK)
        await connection.execute(_CREATE_MIGRATIONS_TABLE)
        for number in range(await _read_schema_version(connection, len(migrations)), len(migrations)):
            await connection.execute(migrations[number])
            await connection.execute(_RECORD_MIGRATION, number + 1)


async def _read_schema_version(connection: PostgresConnection, known_version: int) -> int:
    version = int(await connection.fetchval(_READ_SCHEMA_VERSION))
    if version > known_version:
        raise NewerSchema(
            f"a newer version of toolwire made the tables (version {version}, this one knows {known_version}):"
            " update toolwire"
        )
    return version
