"""A few connections to one PostgreSQL, made when they are needed and thrown away as soon as anything was wrong.

A server that is gone is asked again by one caller at a time, after a short rest; all others are told at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

import asyncpg  # type: ignore[import-untyped]

from toolwire.gateway.store.postgres_faults import BROKEN, NOTHING_DONE, WRONG, Newer, Unreachable, place, said, undone
from toolwire.gateway.store.postgres_sql import APPLIED, IS_THERE, MIGRATED, MIGRATING, REMEMBER
from toolwire.gateway.store.record import Down

SIZE = 4
"""Connections at once, for each event loop."""
CONNECT = 3.0
"""Seconds until a connection stands, or less if a verb has less."""
MIGRATION = 60.0
"""For the first verb, which may have to bring tables up to date, or wait for another gateway that does."""
IDLE = 240.0
"""Seconds after which an unused connection is not trusted: something on the way may have forgotten it."""
CLOSED = "it is closed"
Got = TypeVar("Got")


class Connection(Protocol):
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


class _Hand:
    """The connections of one event loop, which no other can use."""

    def __init__(self) -> None:
        self.free = asyncio.Semaphore(SIZE)
        self.idle: list[tuple[Connection, float]] = []
        self.fault = ""
        """Why the last try to connect failed, if it did."""
        self.rests_until = 0.0
        self.tries = False
        """Somebody is trying whether it is back."""

    def drop(self) -> None:
        while self.idle:
            self.idle.pop()[0].terminate()


class Pool:
    def __init__(self, url: str, *, rest: float, deadline: float, migrations: Sequence[str]) -> None:
        self.place = place(url)
        self._url, self._rest, self._deadline, self._migrations = url, rest, deadline, migrations
        self._hands: WeakKeyDictionary[asyncio.AbstractEventLoop, _Hand] = WeakKeyDictionary()
        self._current = False
        """The tables are as this version has them."""
        self._closed = False

    def __repr__(self) -> str:
        return f"Pool({self.place!r})"

    async def run(
        self, work: Callable[[Connection], Awaitable[Got]], *, again: bool, deadline: float = 0.0
    ) -> Got | Down:
        """Do it on some connection. `again`: twice does no harm, so that a broken connection is no reason to fail."""
        if self._closed:
            return self.down(Unreachable(CLOSED))
        hand = self._hand()
        try:
            async with asyncio.timeout(max(deadline, self._deadline if self._current else MIGRATION)), hand.free:
                try:
                    return await self._once(hand, work)
                except (*NOTHING_DONE, *BROKEN) as error:
                    if not again and not undone(error):
                        raise
                    self._current = self._current and not isinstance(error, asyncpg.UndefinedTableError)
                hand.drop()  # they are as old as the one that failed
                return await self._once(hand, work)
        except WRONG as error:
            return self.down(error)

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[Connection]:
        """A connection of one's own for as long as one likes, beside the others; raises what is in `WRONG`."""
        if self._closed:
            raise Unreachable(CLOSED)
        async with asyncio.timeout(MIGRATION):
            connection = await self._connected(self._hand())
        try:
            yield connection
        finally:
            connection.terminate()

    def down(self, error: BaseException) -> Down:
        return Down(f"the store in {self.place} cannot be used: {said(error)}")

    async def close(self) -> None:
        """Finish what was accepted; in each event loop that used it."""
        self._closed = True
        hand = self._hand()
        for _ in range(SIZE):  # behind all that wait
            await hand.free.acquire()
        hand.free = asyncio.Semaphore(SIZE)
        while hand.idle:
            with suppress(*WRONG):
                await hand.idle.pop()[0].close(timeout=1.0)

    async def _once(self, hand: _Hand, work: Callable[[Connection], Awaitable[Got]]) -> Got:
        connection = await self._take(hand)
        try:
            got = await work(connection)
        except BaseException:
            # Also when the caller left: what state it is in is not worth finding out.
            connection.terminate()
            raise
        hand.idle.append((connection, asyncio.get_running_loop().time()))
        return got

    # --- connections ------------------------------------------------------------------------------------------------

    def _hand(self) -> _Hand:
        loop = asyncio.get_running_loop()
        hand = self._hands.get(loop)
        if hand is None:
            hand = self._hands[loop] = _Hand()
        return hand

    async def _take(self, hand: _Hand) -> Connection:
        now = asyncio.get_running_loop().time()
        while hand.idle:
            connection, since = hand.idle.pop()
            if not connection.is_closed() and now - since < IDLE:
                return connection
            connection.terminate()
        return await self._connected(hand)

    async def _connected(self, hand: _Hand) -> Connection:
        """A new connection, its tables in order."""
        time = asyncio.get_running_loop().time
        if hand.fault and (hand.tries or time() < hand.rests_until):
            raise Unreachable(hand.fault)
        hand.tries = True
        try:
            connection = await self._greeted()
        except WRONG as error:
            hand.fault, hand.rests_until = said(error), time() + self._rest
            raise Unreachable(hand.fault) from None
        finally:
            hand.tries = False
        hand.fault = ""
        return connection

    async def _greeted(self) -> Connection:
        # Of several servers, the one that takes writes; the URL may say otherwise.
        several = "," in self._url and "target_session_attrs" not in self._url
        settings = None if "application_name" in self._url else {"application_name": "toolwire"}
        connection: Connection = await asyncpg.connect(
            self._url,
            timeout=min(CONNECT, self._deadline),
            server_settings=settings,
            target_session_attrs="primary" if several else None,
        )
        try:
            if not self._current:
                await migrate(connection, self._migrations)
                self._current = True
        except BaseException:
            connection.terminate()
            raise
        return connection


async def migrate(connection: Connection, steps: Sequence[str]) -> None:
    """Bring the tables up to date; of several gateways that begin at once, one does and the others wait."""
    if await connection.fetchval(IS_THERE) and await _version(connection, steps) == len(steps):
        return
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", MIGRATING)
        await connection.execute(REMEMBER)
        for number in range(await _version(connection, steps), len(steps)):
            await connection.execute(steps[number])
            await connection.execute(MIGRATED, number + 1)


async def _version(connection: Connection, steps: Sequence[str]) -> int:
    version = int(await connection.fetchval(APPLIED))
    if version > len(steps):
        raise Newer(f"it was written by a newer toolwire (tables {version}, known {len(steps)}): update this one")
    return version
