"""PostgreSQL: restarts, broken connections, deadlines and errors. Tests of all stores are in `test_store.py`."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from forked_commands import start_program
from gateway.postgres import PASSWORD, Server, own_server, schema_of, server
from gateway.stores import Clock
from toolwire.gateway.store.postgres import PostgresStore
from toolwire.gateway.store.postgres_pool import MIGRATION_LOCK, MIGRATIONS
from toolwire.gateway.store.store import Entry, Store, StoreDown, StoreStats, SweepResult
from waits import PATIENCE

Verb = Callable[[Store], Awaitable[Any]]


def entry(id: str, **more: Any) -> Entry:
    return Entry(owner="o", kind=more.pop("kind", "response"), id=id, **more)


async def export_all(store: Store) -> Any:
    """All entries, or the `StoreDown`."""
    found = [got async for got in store.export()]
    return found[0] if found and isinstance(found[0], StoreDown) else found


VERBS: dict[str, tuple[Verb, Any]] = {
    "get": (lambda store: store.get("o", "response", ["a"]), ["a"]),
    "put": (lambda store: store.put([entry("b")]), True),
    "put where": (lambda store: store.put([entry("a", mark="done")], required_marks=("",)), True),
    "append": (lambda store: store.put(appended=[entry("i", kind="item", parent="c")]), True),
    "chain": (lambda store: store.get_chain("o", "response", "a", 9), ["a"]),
    "children": (lambda store: store.get_children("o", "response", ""), ["a"]),
    "delete": (lambda store: store.delete("o", "response", ["a"]), 1),
    "touch": (lambda store: store.touch("o", "response", ["a"], 0.0), None),
    "sweep": (lambda store: store.sweep(), SweepResult(0, 0)),
    "stats": (lambda store: store.stats(), 1),
    "export": (export_all, ["a"]),
}
"""Each operation, and its result when only `a` is stored; see `answer_of`."""
HARMLESS = ("get", "put", "append", "chain", "children", "touch", "stats")
"""Operations that are repeated after a broken connection. An append is, unless it broke during the commit."""
DOUBTFUL = ("put where", "delete")


def answer_of(got: Any) -> Any:
    if isinstance(got, StoreStats):
        return sum(kind.entries for kind in got.kinds)
    return [each.id for each in got] if isinstance(got, list) else got


@asynccontextmanager
async def open_postgres(url: str, **settings: Any) -> AsyncIterator[PostgresStore]:
    """A store without a pause after errors, with `a` in it if its server is up."""
    store = PostgresStore(url, **{"retry_delay": 0.0, **settings})
    try:
        await store.put([entry("a")])
        yield store
    finally:
        await store.close()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return server().create_schema(schema_of(tmp_path))


def is_down(got: Any, words: str) -> bool:
    return (
        isinstance(got, StoreDown)
        and words in got.reason
        and PASSWORD not in got.reason
        and "postgres:" not in got.reason
    )


# --- a server that goes and comes -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def own() -> Any:
    with own_server() as one:
        yield one


@pytest.mark.parametrize("how", ["fast", "immediate"])
def test_while_it_is_gone_every_verb_says_so_and_then_all_is_there_again(own: Server, how: str) -> None:
    async def main() -> None:
        async with open_postgres(own.create_schema(f"gone_{how}")) as store:
            await asyncio.gather(*(store.get("o", "response", ["a"]) for _ in range(9)))  # several connections
            own.stop(how)
            for name, (verb, _) in VERBS.items():
                assert is_down(await verb(store), "the server refuses connections"), name
            own.start()
            for name in ("get", "put where", "append", "delete"):
                verb, answer = VERBS[name]
                assert answer_of(await verb(store)) == answer, name

    asyncio.run(main())


def test_a_restart_between_two_verbs_is_not_noticed(own: Server) -> None:
    async def main() -> None:
        async with open_postgres(own.create_schema("restarted")) as store:
            for name, (verb, answer) in VERBS.items():
                await store.delete("o", "response", ["b"])
                await store.delete("o", "item", ["i"])
                await store.put([entry("a")])
                own.stop()
                own.start()
                assert answer_of(await verb(store)) == answer, name

    asyncio.run(main())


def test_a_server_that_is_gone_is_asked_once_in_a_while() -> None:
    asked = 0

    async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        writer.close()
        await writer.wait_closed()

    async def main() -> None:
        async with await asyncio.start_server(refuse, "127.0.0.1", 0) as listener:
            port = listener.sockets[0].getsockname()[1]
            url = f"postgresql://postgres:{PASSWORD}@127.0.0.1:{port}/x?sslmode=disable"
            async with open_postgres(url, retry_delay=3600.0) as store:
                gots = await asyncio.gather(*(verb(store) for verb, _ in VERBS.values()))
                assert all(is_down(got, f"127.0.0.1:{port}, database x cannot be used") for got in gots)

    asyncio.run(main())
    assert asked == 1


def test_a_server_that_was_gone_at_the_start_is_asked_again_however_often_the_store_is_used() -> None:
    """An operation that is refused at once must not put off the next attempt: a busy gateway would never connect."""

    async def main() -> None:
        asked: asyncio.Queue[None] = asyncio.Queue()

        async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.put_nowait(None)
            writer.close()
            await writer.wait_closed()

        async def use(store: PostgresStore) -> None:
            while True:
                await store.get("o", "response", ["a"])
                await asyncio.sleep(0)

        async with await asyncio.start_server(refuse, "127.0.0.1", 0) as listener:
            port = listener.sockets[0].getsockname()[1]
            url = f"postgresql://postgres@127.0.0.1:{port}/x?sslmode=disable"
            async with open_postgres(url, retry_delay=1.0) as store, asyncio.timeout(PATIENCE):
                busy = asyncio.create_task(use(store))
                for _ in range(2):
                    await asked.get()
                busy.cancel()
                await asyncio.wait([busy])

    asyncio.run(main())


def test_a_server_that_does_not_answer_is_not_waited_for() -> None:
    async def main() -> None:
        left = asyncio.Event()

        async def keep_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()
            left.set()

        async with await asyncio.start_server(keep_silent, "127.0.0.1", 0) as listener:
            port = listener.sockets[0].getsockname()[1]
            store = PostgresStore(f"postgresql://postgres@127.0.0.1:{port}/x?sslmode=disable", deadline=0.1)
            assert is_down(await store.get("o", "response", ["a"]), "the server did not answer in time")
            await left.wait()
            await store.close()

    asyncio.run(main())


def test_the_first_operation_waits_no_longer_than_any_other(url: str) -> None:
    """Another gateway migrates the tables, and that takes a minute: nobody waits for it, and it goes on."""
    import asyncpg

    async def main() -> None:
        other = await asyncpg.connect(url)
        await other.execute("SELECT pg_advisory_lock($1)", MIGRATION_LOCK)
        store = PostgresStore(url, deadline=0.2, retry_delay=0.0)
        gots = await asyncio.gather(*(store.get("o", "response", ["a"]) for _ in range(5)))
        assert all(is_down(got, "the server did not answer in time") for got in gots)
        assert is_down(await store.put([entry("a")]), "the server did not answer in time")
        running = store.pool._by_loop[asyncio.get_running_loop()].migration
        assert running is not None
        assert not running.done()
        await other.close()
        await running
        store.pool._deadline = PATIENCE
        assert await store.put([entry("a")]) is True
        await store.close()

    asyncio.run(main())


def test_a_store_that_is_closed_during_the_migration_leaves_nothing_behind(url: str) -> None:
    import asyncpg

    async def main() -> None:
        other = await asyncpg.connect(url)
        await other.execute("SELECT pg_advisory_lock($1)", MIGRATION_LOCK)
        store = PostgresStore(url, deadline=0.2)
        assert isinstance(await store.get("o", "response", ["a"]), StoreDown)
        await store.close()
        await other.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


# --- connections that break in the middle ---------------------------------------------------------------------------


@asynccontextmanager
async def lock_table(schema: str) -> AsyncIterator[Callable[..., Awaitable[int]]]:
    """Locks the table during the block. The given function waits until an operation waits for the lock, and returns its pid."""
    import asyncpg

    other, watcher = [await asyncpg.connect(server().url(schema)) for _ in range(2)]
    waiting = """SELECT pid FROM pg_locks JOIN pg_stat_activity USING (pid)
        WHERE relation = 'toolwire_entries'::regclass AND NOT granted AND pid <> $1"""

    async def waits(running: asyncio.Future[Any], ended: int = 0) -> int:
        while (pid := await watcher.fetchval(waiting, ended)) is None:
            assert not running.done(), running
        return int(pid)

    transaction = other.transaction()
    await transaction.start()
    await other.execute("LOCK TABLE toolwire_entries IN ACCESS EXCLUSIVE MODE")
    try:
        yield waits
    finally:
        await transaction.rollback()
        await other.close()
        await watcher.close()


@pytest.mark.parametrize("name", [*HARMLESS, *DOUBTFUL])
def test_a_verb_whose_connection_the_server_ends_is_done_on_another(url: str, tmp_path: Path, name: str) -> None:
    verb, answer = VERBS[name]

    async def main() -> None:
        async with open_postgres(url) as store:
            async with lock_table(schema_of(tmp_path)) as waits:
                running = asyncio.ensure_future(verb(store))
                ended = await waits(running)
                server().sql(f"SELECT pg_terminate_backend({ended})")
                await waits(running, ended)
            assert answer_of(await running) == answer

    asyncio.run(main())


class Between:
    """A proxy between a store and its server that can cut the connections."""

    def __init__(self) -> None:
        self._open: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection("127.0.0.1", server().port)
        self._open += [writer, there[1]]
        for source, target in ((reader, there[1]), (there[0], writer)):
            task = asyncio.create_task(self._carry(source, target))
            self._tasks.add(task)

    async def _carry(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                target.write(data)
                await target.drain()
        except ConnectionError:
            pass  # cut
        target.close()

    def cut(self) -> None:
        for writer in self._open:
            writer.transport.abort()

    async def end(self) -> None:
        self.cut()
        await asyncio.gather(*self._tasks)


@pytest.mark.parametrize("name", [*HARMLESS, *DOUBTFUL])
def test_a_connection_that_is_cut_is_replaced_or_the_doubt_is_told(url: str, tmp_path: Path, name: str) -> None:
    verb, answer = VERBS[name]

    async def main() -> None:
        between = Between()
        async with await asyncio.start_server(between, "127.0.0.1", 0) as listener:
            port = listener.sockets[0].getsockname()[1]
            async with open_postgres(f"{url.replace(str(server().port), str(port))}&sslmode=disable") as store:
                async with lock_table(schema_of(tmp_path)) as waits:
                    running = asyncio.ensure_future(verb(store))
                    await waits(running)
                    between.cut()
                    if name in DOUBTFUL:
                        assert is_down(await running, "the connection broke")
                if name in HARMLESS:
                    assert answer_of(await running) == answer
                assert await store.get("o", "seal", ["none"]) == []
            await between.end()

    asyncio.run(main())


@pytest.mark.parametrize("name", VERBS)
def test_callers_that_leave_leave_no_broken_connection(url: str, tmp_path: Path, name: str) -> None:
    verb, answer = VERBS[name]

    async def main() -> None:
        async with open_postgres(url) as store:
            for _ in range(6):  # more than there are connections
                async with lock_table(schema_of(tmp_path)) as waits:
                    running = asyncio.ensure_future(verb(store))
                    await waits(running)
                    running.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await running
            assert answer_of(await verb(store)) == answer

    asyncio.run(main())


def test_a_verb_that_waits_too_long_gives_up(url: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with open_postgres(url), open_postgres(url, deadline=0.5) as store:  # the first one makes the tables
            async with lock_table(schema_of(tmp_path)):
                gots = await asyncio.gather(*(store.put([entry(f"p{n}")]) for n in range(9)))
                assert all(is_down(got, "the server did not answer in time") for got in gots)
            async with asyncio.timeout(PATIENCE):
                while await store.put([entry("b")]) is not True:
                    pass

    asyncio.run(main())


def test_each_event_loop_has_its_own_connections(url: str) -> None:
    store = PostgresStore(url)
    with asyncio.Runner() as one, asyncio.Runner() as other:
        assert one.run(store.put([entry("a")])) is True
        assert answer_of(other.run(store.get("o", "response", ["a"]))) == ["a"]
        assert answer_of(one.run(store.get("o", "response", ["a"]))) == ["a"]
        one.run(store.close())
        other.run(store.close())
        assert is_down(one.run(store.stats()), "the store is closed")


# --- several at once ------------------------------------------------------------------------------------------------

APPENDER = """
import asyncio, sys
from toolwire.gateway.store.postgres import PostgresStore
from toolwire.gateway.store.store import Entry

async def main(url, name):
    store = PostgresStore(url)
    item = lambda n: Entry(owner="o", kind="item", id=f"{name}{n:03}", parent="c")
    assert await store.stats()
    print("ready", flush=True)
    sys.stdin.readline()
    for n in range(0, 120, 3):
        one = store.put(appended=[item(n), item(n + 1)])
        assert await asyncio.gather(one, store.put([Entry(owner="o", kind="seal", id="s")])) == [True, True]
        assert await store.put(appended=[item(n + 2)]) is True
    await store.close()

asyncio.run(main(*sys.argv[1:]))
"""


def test_two_gateways_that_append_at_once_give_no_place_twice(url: str) -> None:
    with ExitStack() as stack:
        commands = [[sys.executable, "-c", APPENDER, url, name] for name in "xy"]
        running = [stack.enter_context(start_program(command, stdin=subprocess.PIPE)) for command in commands]
        for process in running:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in running:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        for process in running:
            process.communicate()
            assert process.returncode == 0

    async def main() -> None:
        async with open_postgres(url) as store:
            found = await store.get_children("o", "item", "c")
            assert isinstance(found, list)
            assert [each.place for each in found] == list(range(240))
            order = [each.id for each in found]
            for name in "xy":
                assert [id for id in order if id.startswith(name)] == [f"{name}{n:03}" for n in range(120)]
                for n in range(0, 120, 3):
                    assert order.index(f"{name}{n + 1:03}") == order.index(f"{name}{n:03}") + 1
            assert order != sorted(order), "they did not run at the same time"

    asyncio.run(main())


@pytest.mark.parametrize("number", range(3))
def test_three_gateways_that_begin_at_once_make_the_tables_once(url: str, tmp_path: Path, number: int) -> None:
    async def main() -> None:
        stores = [PostgresStore(url) for _ in range(3)]
        gots = await asyncio.gather(*(store.put([entry(f"{number}")]) for store in stores))
        assert gots == [True, True, True]
        await asyncio.gather(*(store.close() for store in stores))

    asyncio.run(main())
    rows = server().sql(f"SELECT version FROM {schema_of(tmp_path)}.toolwire_migrations ORDER BY version")
    assert [row["version"] for row in rows] == list(range(1, len(MIGRATIONS) + 1))


def test_of_many_that_want_a_mark_one_gets_it(url: str) -> None:
    async def main() -> None:
        stores = [PostgresStore(url) for _ in range(4)]
        await stores[0].put([entry("a", mark="queued")])
        takes = [store.put([entry("a", mark="taken"), entry("b")], required_marks=("queued",)) for store in stores * 3]
        assert sorted(map(bool, await asyncio.gather(*takes))) == [False] * 11 + [True]
        await asyncio.gather(*(store.close() for store in stores))

    asyncio.run(main())


def test_gateways_that_sweep_at_once_remove_everything_once(url: str) -> None:
    clock = Clock()

    async def main() -> None:
        stores = [PostgresStore(url, clock=clock) for _ in range(3)]
        await stores[0].put([entry(f"{n}", expires=clock() + 1) for n in range(3000)])
        clock.time += 1
        gots = await asyncio.gather(*(store.sweep() for store in stores))
        assert sum(got.expired for got in gots if isinstance(got, SweepResult)) == 3000
        assert all(got.crowded == 0 for got in gots if isinstance(got, SweepResult))
        await asyncio.gather(*(store.close() for store in stores))

    asyncio.run(main())
    rows = server().sql(f"SELECT count(*) FROM {url.rpartition('=')[2]}.toolwire_entries")
    assert rows[0]["count"] == 0


def test_writers_of_the_same_entries_in_another_order_do_not_block_each_other(url: str) -> None:
    names = [f"{n:03}" for n in range(200)]

    async def main() -> None:
        async with open_postgres(url) as store:
            puts = [store.put([entry(name) for name in order]) for order in (names, names[::-1]) * 6]
            assert set(await asyncio.gather(*puts)) == {True}

    asyncio.run(main())


# --- tables ---------------------------------------------------------------------------------------------------------


def test_a_newer_version_brings_the_tables_up_to_date_and_an_older_one_says_so(url: str) -> None:
    later = (*MIGRATIONS, "ALTER TABLE toolwire_entries ADD COLUMN more text")

    async def main() -> None:
        async with open_postgres(url) as before:
            async with open_postgres(url, migrations=later) as after:
                assert answer_of(await after.get("o", "response", ["a"])) == ["a"]
                got = await after.stats()
                assert isinstance(got, StoreStats)
                assert got.version == len(later)
                assert answer_of(await before.get("o", "response", ["a"])) == ["a"]  # it runs on
            async with open_postgres(url) as again:
                versions = f"(version {len(later)}, this one knows {len(MIGRATIONS)})"
                assert is_down(await again.stats(), f"a newer version of toolwire made the tables {versions}")

    asyncio.run(main())


def test_tables_that_somebody_removed_are_made_again(url: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with open_postgres(url) as store:
            schema = schema_of(tmp_path)
            server().sql(f"DROP SCHEMA {schema} CASCADE")
            server().sql(f"CREATE SCHEMA {schema}")
            assert await store.get("o", "response", ["a"]) == []

    asyncio.run(main())


# --- where it is, and why it cannot be used -------------------------------------------------------------------------


def test_a_socket_file_will_do(url: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with open_postgres(server().url(schema_of(tmp_path), tcp=False)) as store:
            assert answer_of(await store.get("o", "response", ["a"])) == ["a"]
            got = await store.stats()
            assert isinstance(got, StoreStats)
            assert got.where.startswith("PostgreSQL at /")
            assert got.where.endswith(", database postgres")
            assert PASSWORD not in got.where + repr(store)

    asyncio.run(main())


def test_of_several_servers_the_one_that_is_there_is_asked(url: str) -> None:
    async def main() -> None:
        async with open_postgres(url.replace("@", "@127.0.0.1:1,")) as store:
            assert answer_of(await store.get("o", "response", ["a"])) == ["a"]

    asyncio.run(main())


ROLES = """
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'weak') THEN
        CREATE ROLE weak LOGIN; CREATE ROLE crowd LOGIN CONNECTION LIMIT 0; CREATE ROLE reader LOGIN;
    END IF;
END $$"""
WRONG: dict[str, tuple[str, str, str]] = {
    "no such user": ("postgres:", "stranger:", "the server rejected the user or the password"),
    "no such database": ("/postgres?", "/nowhere?", "this database does not exist"),
    "too many": ("postgres:", "crowd:", "the server has too many connections"),
    "no rights": ("postgres:", "weak:", "no schema for the tables"),
    "no rights to the table": ("postgres:", "reader:", "the user lacks permissions"),
    "read-only": ("search_path", "default_transaction_read_only=on&search_path", "the server is read-only"),
    "a standby": (
        "search_path",
        "target_session_attrs=standby&search_path",
        "the server is read-only: it is a standby",
    ),
    "no such port": (":{port}/", ":1/", "the server refuses connections"),
    "not a port": (":{port}/", ":first/", "the URL is invalid"),
    "not a mode": ("search_path", "sslmode=maybe&search_path", "the URL is invalid"),
    "not this mode": ("search_path", "sslmode=require&search_path", "the server does not support TLS"),
    "no such file": ("search_path", "sslmode=verify-full&sslrootcert=none.pem&search_path", "does not exist"),
    "no such socket": ("@127.0.0.1:{port}/postgres?", "@/postgres?host=/nowhere&", "does not exist"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_said_without_the_password(url: str, tmp_path: Path, what: str) -> None:
    old, new, words = WRONG[what]
    server().sql(ROLES)

    async def main() -> None:
        async with open_postgres(url):
            server().sql(f"GRANT USAGE ON SCHEMA {schema_of(tmp_path)} TO reader")
            wrong = url.replace(old.format(port=server().port), new)
            assert wrong != url
            async with open_postgres(wrong) as store:
                got = await store.put([entry("b")])
                assert is_down(got, words), got
                assert PASSWORD not in repr(store)

    asyncio.run(main())
