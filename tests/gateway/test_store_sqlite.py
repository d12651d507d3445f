"""The store in a file: what happens to the file, and what is said when something is wrong with it."""

from __future__ import annotations

import asyncio
import resource
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from forked_commands import start_program
from gateway import store_writer
from gateway.stores import Clock
from toolwire.gateway.store.sqlite import SqliteStore
from toolwire.gateway.store.sqlite_worker import MIGRATIONS, PRAGMAS, RETRY_DELAY, schema_version
from toolwire.gateway.store.store import Entry, Store, StoreDown, StoreStats

V1 = Path(__file__).with_name("store_v1.sql")


def entry(id: str, body: bytes = b"", **more: Any) -> Entry:
    return Entry(owner="me", kind="response", id=id, body=body, **more)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "new" / "store.db"


def query_file(file: Path, question: str) -> list[Any]:
    with closing(sqlite3.connect(file)) as connection:
        return connection.execute(question).fetchall()


def is_sound(file: Path) -> bool:
    return query_file(file, "PRAGMA integrity_check") == [("ok",)]


# --- the file ------------------------------------------------------------------------------------------------------


def test_the_file_is_its_owners_alone(file: Path) -> None:
    async def run() -> None:
        store = SqliteStore(file)
        assert not file.parent.exists()  # nothing is opened before the first use
        assert await store.put([entry("r")]) is True
        for path, mode in ((file.parent, 0o700), (file, 0o600), (file.with_name("store.db-wal"), 0o600)):
            assert stat.S_IMODE(path.stat().st_mode) == mode
        await store.close()
        assert [path.name for path in file.parent.iterdir()] == ["store.db"]

    asyncio.run(run())


def test_closing_waits_for_what_was_accepted_and_leaves_nothing_open(file: Path) -> None:
    async def run() -> None:
        store = SqliteStore(file)
        accepted = []
        for wave in range(3):
            accepted += [asyncio.create_task(store.put([entry(f"{wave}{number}")])) for number in range(300)]
            await asyncio.sleep(0)
        await store.close()
        assert [path.name for path in file.parent.iterdir()] == ["store.db"]
        assert set(await asyncio.gather(*accepted)) == {True}

    asyncio.run(run())
    assert query_file(file, "SELECT count(*) FROM entries") == [(900,)]


def test_a_file_that_is_taken_away_is_made_anew(file: Path) -> None:
    async def run() -> None:
        store = SqliteStore(file)
        await store.put([entry("r")])
        for path in list(file.parent.iterdir()):
            path.unlink()
        assert await store.get("me", "response", ["r"]) == []
        assert await store.put([entry("s")]) is True
        await store.close()
        assert query_file(file, "SELECT id FROM entries") == [("s",)]

    asyncio.run(run())


def test_a_sweep_gives_back_what_the_disk_had_to_carry(file: Path) -> None:
    async def run() -> None:
        clock = Clock()
        store = SqliteStore(file, clock=clock)
        await store.put([entry(f"{number}", bytes(50_000), expires=clock() + number) for number in range(1, 61)])
        await store.close()
        store = SqliteStore(file, clock=clock, max_bytes=2_000_000)
        sizes = [(await size(store), file.stat().st_size)]
        for _ in range(2):
            await store.sweep()
            sizes.append((await size(store), file.stat().st_size))
            clock.time += 100
        assert sizes[0][0] > 3_000_000
        assert all(1_500_000 < one <= 1_800_000 for one in sizes[1])
        assert all(one < 100_000 for one in sizes[2])
        await store.close()

    asyncio.run(run())


async def size(store: Store) -> int:
    stats = await store.stats()
    assert isinstance(stats, StoreStats)
    return stats.size


# --- processes -----------------------------------------------------------------------------------------------------


def writer(file: Path, name: str, count: int) -> AbstractContextManager[subprocess.Popen[str]]:
    return start_program([sys.executable, store_writer.__file__, str(file), name, str(count)])


@pytest.mark.parametrize("acknowledged", [1, 40, 250])
def test_what_was_acknowledged_survives_kill_9(acknowledged: int, file: Path) -> None:
    with writer(file, "w", 0) as process:
        assert process.stdout is not None
        said = [process.stdout.readline().strip() for _ in range(acknowledged)]
        process.send_signal(signal.SIGKILL)
        said += process.stdout.read().split("\n")[:-1]
    assert process.returncode == -signal.SIGKILL
    assert is_sound(file)

    async def run() -> None:
        store = SqliteStore(file)
        found = [await store.get("", kind, said) for kind in ("one", "two", "item")]
        for entries in found[:2]:
            assert not isinstance(entries, StoreDown)
            assert [(one.id, one.body) for one in entries] == [(id, store_writer.body(id)) for id in said]
        assert found[2] is not None
        assert not isinstance(found[2], StoreDown)
        assert [one.id for one in found[2]] == said
        assert await store.put([entry("after")]) is True
        await store.close()

    asyncio.run(run())
    halves = "SELECT count(*) FROM entries AS a WHERE kind IN ('one', 'two') AND NOT EXISTS (SELECT 1 FROM entries AS b WHERE a.id = b.id AND b.kind = CASE a.kind WHEN 'one' THEN 'two' ELSE 'one' END)"
    assert query_file(file, halves) == [(0,)]


def test_processes_that_begin_at_once_share_one_new_file(file: Path) -> None:
    names = ["a", "b", "c", "d"]
    said = {}
    with ExitStack() as stack:
        processes = [stack.enter_context(writer(file, name, 30)) for name in names]
        for name, process in zip(names, processes, strict=True):
            out, _ = process.communicate()
            assert process.returncode == 0
            said[name] = out.split()
    assert is_sound(file)
    rows = query_file(file, "SELECT id, place, body FROM entries WHERE kind = 'item' ORDER BY place")
    assert [place for _, place, _ in rows] == list(range(120))
    for name in names:
        assert sorted(id for id, _, _ in rows if id.startswith(name)) == sorted(said[name])
    assert query_file(file, "PRAGMA user_version") == [(len(MIGRATIONS),)]
    assert query_file(file, "PRAGMA journal_mode") == [("wal",)]
    assert query_file(file, "PRAGMA auto_vacuum") == [(2,)]


@pytest.mark.parametrize("moment", range(3))
def test_another_process_makes_the_tables_while_the_file_is_looked_at(file: Path, moment: int) -> None:
    file.parent.mkdir()
    begun = count()

    def meanwhile(_statement: str) -> None:
        if next(begun) == moment:
            with closing(sqlite3.connect(file, timeout=0)) as other, suppress(sqlite3.OperationalError):
                other.executescript(V1.read_text())

    with closing(sqlite3.connect(file)) as looking:
        looking.set_trace_callback(meanwhile)
        assert schema_version(looking, len(MIGRATIONS)) in (0, 1)
        looking.set_trace_callback(None)
    assert next(begun) > 0


# --- versions ------------------------------------------------------------------------------------------------------


def from_script(file: Path, script: str) -> None:
    file.parent.mkdir()
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(script)


KEPT = Entry(
    owner="me", kind="response", id="resp_1", body=b'{"a":1}', parent="resp_0", place=3, mark="completed",
    created=1700000000.5, expires=253402300799.0,
)  # fmt: skip


def test_a_file_of_version_1_is_still_read(file: Path) -> None:
    from_script(file, V1.read_text())

    async def run() -> None:
        store = SqliteStore(file)
        assert await store.get("me", "response", ["resp_1"]) == [KEPT]
        assert [one.id for one in await store.get_children("me", "item", "resp_1")] == ["msg_1"]
        await store.close()

    asyncio.run(run())
    assert query_file(file, "PRAGMA user_version") == [(len(MIGRATIONS),)]


FURTHER = (*MIGRATIONS, ("ALTER TABLE entries ADD COLUMN colour TEXT NOT NULL DEFAULT 'blue'",))


def test_tables_are_brought_to_the_newest_version_once(file: Path) -> None:
    from_script(file, V1.read_text())

    async def run() -> None:
        stores = [SqliteStore(file, migrations=FURTHER) for _ in range(5)]
        found = await asyncio.gather(*(store.get("me", "response", ["resp_1"]) for store in stores))
        assert found == [[KEPT]] * 5
        stats = await stores[0].stats()
        assert isinstance(stats, StoreStats)
        assert stats.version == len(FURTHER)
        for store in stores:
            await store.close()

    asyncio.run(run())
    assert query_file(file, "SELECT DISTINCT colour FROM entries") == [("blue",)]


def test_a_step_that_fails_leaves_the_file_as_it_was(file: Path) -> None:
    from_script(file, V1.read_text())

    async def run() -> None:
        store = SqliteStore(file, migrations=(*FURTHER, ("CREATE TABLE more (x)", "NO SQL AT ALL")))
        assert isinstance(await store.get("me", "response", ["resp_1"]), StoreDown)
        await store.close()

    asyncio.run(run())
    assert query_file(file, "PRAGMA user_version") == [(1,)]
    assert query_file(file, "SELECT name FROM sqlite_schema WHERE type = 'table'") == [("entries",)]


# --- faults --------------------------------------------------------------------------------------------------------

VERBS: dict[str, Callable[[Store], Any]] = {
    "get": lambda store: store.get("me", "response", ["r"]),
    "put": lambda store: store.put([entry("r")]),
    "append": lambda store: store.put(appended=[entry("r", parent="p")]),
    "chain": lambda store: store.get_chain("me", "response", "r", 9),
    "children": lambda store: store.get_children("me", "response", "r"),
    "delete": lambda store: store.delete("me", "response", ["r"]),
    "touch": lambda store: store.touch("me", "response", ["r"], 0),
    "sweep": lambda store: store.sweep(),
    "stats": lambda store: store.stats(),
    "export": lambda store: anext(store.export()),
}


def garbage(file: Path) -> None:
    file.parent.mkdir()
    file.write_bytes(b"no database at all" * 1000)


def no_folder(file: Path) -> None:
    file.parent.write_text("a file where the folder should be")


def folder(file: Path) -> None:
    file.mkdir(parents=True)


def write_foreign_file(file: Path) -> None:
    from_script(file, "CREATE TABLE photos (id)")


def write_other_application(file: Path) -> None:
    from_script(file, "PRAGMA application_id = 7")


def write_newer_version(file: Path) -> None:
    from_script(file, V1.read_text() + "PRAGMA user_version = 99;")


def write_torn_file(file: Path) -> None:
    later = "".join(f"{statement};" for step in MIGRATIONS[1:] for statement in step)
    from_script(file, f"{V1.read_text()}{later}PRAGMA user_version = {len(MIGRATIONS)};")
    file.write_bytes(file.read_bytes()[:4096] + b"\xff" * 20_000)


FAULTS = {
    garbage: "the file is not a SQLite file, or is damaged: move it away, and a new one is created",
    no_folder: "File exists; check the permissions of its folder",
    folder: "the file cannot be opened: check the permissions of its folder",
    write_foreign_file: "the file belongs to another program: set [store] url to another path",
    write_other_application: "the file belongs to another program: set [store] url to another path",
    write_newer_version: f"a newer version of toolwire made the tables (version 99, this one knows {len(MIGRATIONS)}): update toolwire or use another file",
    write_torn_file: "the file is damaged: move it away, and a new one is created",
}


@pytest.mark.parametrize("broken", FAULTS, ids=lambda broken: broken.__name__)
def test_a_file_that_cannot_be_used_is_said_by_every_verb(broken: Callable[[Path], None], file: Path) -> None:
    broken(file)
    before = file.read_bytes() if file.is_file() else b""

    async def run() -> None:
        for verb, ask in VERBS.items():
            store = SqliteStore(file)
            assert (verb, await ask(store)) == (verb, StoreDown(f"the store {file} cannot be used: {FAULTS[broken]}"))
            await store.close()

    asyncio.run(run())
    assert (file.read_bytes() if file.is_file() else b"") == before


def test_after_a_fault_it_rests_and_then_tries_again(file: Path) -> None:
    garbage(file)

    async def run() -> None:
        clock = Clock()
        store = SqliteStore(file, clock=clock)
        assert isinstance(await store.put([entry("r")]), StoreDown)
        file.unlink()
        clock.time += RETRY_DELAY * 0.9
        assert isinstance(await store.put([entry("r")]), StoreDown)
        assert not file.exists()
        clock.time += RETRY_DELAY * 0.2
        assert await store.put([entry("r")]) is True
        assert [one.id for one in await store.get("me", "response", ["r"])] == ["r"]
        await store.close()

    asyncio.run(run())


def test_a_clock_that_is_put_back_does_not_lengthen_the_rest(file: Path) -> None:
    garbage(file)

    async def run() -> None:
        clock = Clock()
        store = SqliteStore(file, clock=clock)
        assert isinstance(await store.put([entry("r")]), StoreDown)
        file.unlink()
        clock.time -= 1000
        assert await store.put([entry("r")]) is True
        await store.close()

    asyncio.run(run())


def test_a_full_disk_refuses_what_is_too_much_and_nothing_else(file: Path) -> None:
    async def run() -> None:
        store = SqliteStore(file, pragmas={**PRAGMAS, "max_page_count": 60})
        assert await store.put([entry("early", b"kept")]) is True
        results = await asyncio.gather(
            store.put([entry("before")]),
            store.put([entry("fits"), entry("large", bytes(1_000_000))]),
            store.get("me", "response", ["early"]),
            store.put([entry("after")]),
        )
        down = StoreDown(
            f"the store {file} cannot be used: the disk is full: free some space, or lower [store] max_bytes and run `toolwire store gc`"
        )
        assert results[0] is results[3] is True
        assert results[1] == down
        found = await store.get("me", "response", ["early", "before", "fits", "large", "after"])
        assert [one.id for one in found] == ["early", "before", "after"]
        await store.close()

    asyncio.run(run())
    assert is_sound(file)


def test_a_disk_that_stays_full_is_not_usable(file: Path) -> None:
    """Nobody may write while the gateway is not ready, so it tries it itself."""

    async def run() -> None:
        clock = Clock()
        store = SqliteStore(file, pragmas={**PRAGMAS, "max_page_count": 60}, clock=clock)
        assert await store.put([entry("early", b"kept")]) is True
        assert isinstance(await store.put([entry("large", bytes(1_000_000))]), StoreDown)
        log = Path(f"{file}-wal").stat().st_size
        unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (log, unlimited[1]))  # no file can grow, as on a full disk
        try:
            assert isinstance(await store.check_usable(), StoreDown)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        clock.time += 10
        assert await store.check_usable() is None
        await store.close()

    asyncio.run(run())
    assert is_sound(file)


def test_a_file_that_is_held_for_too_long(file: Path) -> None:
    async def run() -> None:
        clock = Clock()
        store = SqliteStore(file, clock=clock, pragmas={**PRAGMAS, "busy_timeout": 20})
        await store.put([entry("r")])
        with closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert [one.id for one in await store.get("me", "response", ["r"])] == ["r"]  # who reads need not wait
            down = await store.put([entry("s")])
            assert isinstance(down, StoreDown)
            assert "another process locked the file for too long" in down.reason
        clock.time += RETRY_DELAY
        assert await store.put([entry("s")]) is True
        await store.close()

    asyncio.run(run())


def test_a_mistake_of_ours_is_raised_and_spoils_nothing(file: Path) -> None:
    async def run() -> None:
        store = SqliteStore(file)
        results = await asyncio.gather(
            store.put([entry("before")]),
            store.put([entry("half"), entry("x", place=2**70)]),
            store.get("me", "response", ["\ud800"]),
            store.put([entry("after")]),
            return_exceptions=True,
        )
        assert results[0] is results[3] is True
        assert isinstance(results[1], OverflowError)
        assert isinstance(results[2], UnicodeEncodeError)
        found = await store.get("me", "response", ["before", "half", "after"])
        assert [one.id for one in found] == ["before", "after"]
        await store.close()

    asyncio.run(run())


@pytest.mark.parametrize("steps", range(5))
def test_a_loop_that_ends_leaves_nobody_waiting(steps: int, file: Path) -> None:
    """Without `close`: whoever runs the gateway was in a hurry. Another loop can go on."""
    store = SqliteStore(file)

    async def hurry() -> asyncio.Task[bool | StoreDown]:
        accepted = asyncio.create_task(store.put([entry("r")]))
        for _ in range(steps):
            await asyncio.sleep(0)
        return accepted

    async def later() -> None:
        assert await store.put([entry("s")]) is True
        assert [one.id for one in await store.get("me", "response", ["s"])] == ["s"]
        await store.close()

    assert asyncio.run(hurry()).done()
    asyncio.run(later())
