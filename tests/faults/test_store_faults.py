"""A store whose disk hangs, is locked by another process, or is full: nobody waits for it longer than a few seconds, the
client gets the answer that was paid for and is told that it is not stored, and it is stored as soon as that is possible."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from faults.test_store_bounds import play, post, read_responses
from gateway.raw_exchange import ScriptedConnection, Served, ask, stage
from gateway.stores import Clock
from toolwire.gateway.settings.config import StoreSettings
from toolwire.gateway.store import repository, sqlite_worker
from toolwire.gateway.store.repository import MAX_PENDING_BYTES, PendingWrites, StateRepository
from toolwire.gateway.store.sqlite import SqliteStore
from toolwire.gateway.store.sqlite_worker import PRAGMAS, RETRY_DELAY, SqliteWorker
from toolwire.gateway.store.store import Entry, StoreDown
from waits import PATIENCE, wait_until

STREAMS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


def entry(id: str, body: bytes = b"", **more: Any) -> Entry:
    return Entry(owner="me", kind="response", id=id, body=body, **more)


class Disk:
    """A disk that can hang: the thread of the store stops at its next transaction."""

    def __init__(self) -> None:
        self.hangs, self.go_on = False, threading.Event()
        self.reached = threading.Event()

    def wait(self) -> None:
        if self.hangs:
            self.reached.set()
            self.go_on.wait(PATIENCE)

    def release(self) -> None:
        self.hangs = False
        self.go_on.set()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    made = Disk()
    run_batch = SqliteWorker._run_batch

    def run_when_it_works(self: SqliteWorker, jobs: Sequence[Any]) -> list[Any]:
        made.wait()
        return run_batch(self, jobs)

    monkeypatch.setattr(SqliteWorker, "_run_batch", run_when_it_works)
    monkeypatch.setattr(sqlite_worker, "DEADLINE", 1.0)
    monkeypatch.setattr(repository, "FIRST_RETRY_SECONDS", 0.01)
    yield made
    made.release()


# --- a disk that hangs ------------------------------------------------------------------------------------------------


def test_nobody_waits_for_a_disk_that_hangs(tmp_path: Path, disk: Disk) -> None:
    async def run() -> None:
        store = SqliteStore(tmp_path / "store.db")
        assert await store.put([entry("before")]) is True
        disk.hangs = True
        waiting = [asyncio.create_task(store.put([entry(f"w{number}")])) for number in range(50)]
        waiting += [asyncio.create_task(store.get("me", "response", ["before"])) for _ in range(50)]  # type: ignore[arg-type]
        turns = 0
        while not all(task.done() for task in waiting):  # the event loop goes on
            await asyncio.sleep(0)
            turns += 1
        assert turns > 10
        assert all(isinstance(task.result(), StoreDown) for task in waiting)
        assert "did not answer" in waiting[0].result().reason  # type: ignore[union-attr]
        for _ in range(1000):  # at once, and without a queue that grows
            assert isinstance(await store.put([entry("late")]), StoreDown)
        assert len(store.worker._queue) <= 100
        disk.release()
        assert store.worker._queue_task is not None
        await store.worker._queue_task
        assert await store.put([entry("after")]) is True
        found = await store.get("me", "response", ["before", "late", "after"])
        assert isinstance(found, list)
        assert [one.id for one in found] == ["before", "after"]
        await store.close()

    asyncio.run(run())


HANGING = """
import asyncio, threading
from pathlib import Path
from toolwire.gateway.store import sqlite, sqlite_worker
from toolwire.gateway.store.store import Entry

def clock():
    threading.Event().wait()

async def run():
    sqlite_worker.DEADLINE = 0.1
    store = sqlite.SqliteStore(Path({path!r}), clock=clock)
    print(await store.put([Entry(owner="", kind="response", id="r")]))
    await store.close()
    print("closed")

asyncio.run(run())
"""


def test_a_process_ends_while_its_disk_hangs(tmp_path: Path) -> None:
    script = HANGING.format(path=str(tmp_path / "store.db"))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert "did not answer" in done.stdout
    assert "closed" in done.stdout


@pytest.fixture(name="served")
def serve_gateway(tmp_path: Path, disk: Disk) -> Iterator[Served]:
    with stage(tmp_path, more=f'[store]\nurl = "sqlite:///{tmp_path}/store.db"\n') as gateway:
        yield gateway
        disk.release()


def read_events(served: Served, kind: str) -> list[dict[str, Any]]:
    lines = []
    while not served.lines.empty():
        lines.append(json.loads(served.lines.get()))
    return [line for line in lines if line.get("event") == kind]


def then(hang: Callable[[], None], data: bytes) -> Callable[[ScriptedConnection], None]:
    """The provider answers after this has happened."""

    def play_it(connection: ScriptedConnection) -> None:
        hang()
        connection.send(data)

    return play_it


@STREAMS
def test_an_answer_while_the_disk_hangs(served: Served, disk: Disk, stream: bool) -> None:
    """The client gets it; it is stored once the disk is back, and the log says it once."""

    def hang() -> None:
        disk.hangs = True

    first = play("resp_0", "Zero.", stream)
    scene = served.scene(
        "openai-responses", first, then(hang, play("resp_1", "Yes.", stream)), play("resp_2", "Two.", stream)
    )
    asked = {"model": scene.model, "stream": stream}
    assert post(served, "/responses", **asked, input="Hi").status == 200
    got = post(served, "/responses", **asked, input="Hi", previous_response_id="resp_0")
    last = read_responses(got, stream)[-1]
    assert (last["output"][0]["id"], last["store"]) == ("msg_Yes.", False)
    assert stream or got.headers["x-toolwire-state"] == "not-kept"
    for _ in range(20):
        refused = post(served, "/responses", **asked, input="Hi", previous_response_id="resp_0")
        assert (refused.status, "store" in refused.json()["error"]["message"]) == (503, True)
    assert len(scene.asked) == 2
    disk.release()
    wait_until(lambda: ask(served.port, "GET", "/v1/responses/resp_1").status == 200)
    assert post(served, "/responses", **asked, input="Go on.", previous_response_id="resp_1").status == 200
    assert len(json.loads(scene.asked[2].body)["input"]) == 5
    assert len(read_events(served, "store_unavailable")) == 1
    metrics = ask(served.port, "GET", "/metrics").data.decode()
    assert 'toolwire_store_failures_total{action="' in metrics


@STREAMS
def test_an_answer_while_another_process_locks_the_file(served: Served, tmp_path: Path, stream: bool) -> None:
    """What is stored can be read meanwhile, and a chain goes on."""
    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None, check_same_thread=False)) as other:
        first = play("resp_0", "Zero.", stream)
        locked = then(lambda: other.execute("BEGIN IMMEDIATE") and None, play("resp_1", "Yes.", stream))
        scene = served.scene("openai-responses", first, locked, play("resp_2", "Two.", stream))
        asked = {"model": scene.model, "stream": stream}
        assert post(served, "/responses", **asked, input="Hi").status == 200
        got = post(served, "/responses", **asked, input="Hi", previous_response_id="resp_0")
        assert read_responses(got, stream)[-1]["store"] is False
        other.execute("ROLLBACK")
    wait_until(lambda: ask(served.port, "GET", "/v1/responses/resp_1").status == 200)
    got = post(served, "/responses", **asked, input="Go on.", previous_response_id="resp_1")
    assert got.status == 200, got.data


def test_a_conversation_says_that_a_turn_is_not_in_it(served: Served, disk: Disk) -> None:
    """It may be sent again, so it is not added later."""

    def hang() -> None:
        disk.hangs = True

    room = post(served, "/conversations").json()["id"]
    scene = served.scene("openai-responses", then(hang, play("resp_1", "One.", False)), play("resp_2", "Two.", False))
    lost = post(served, "/responses", model=scene.model, input="Hi", conversation=room)
    assert (lost.status, lost.json()["conversation"], lost.headers["x-toolwire-state"]) == (200, None, "not-kept")
    disk.release()
    wait_until(lambda: ask(served.port, "GET", "/v1/responses/resp_1").status == 200)
    assert post(served, "/responses", model=scene.model, input="Hi", conversation=room).status == 200
    items = ask(served.port, "GET", f"/v1/conversations/{room}/items?order=asc").json()["data"]
    assert [item["content"][0]["text"] for item in items] == ["Hi", "Two."]


# --- a file that is locked --------------------------------------------------------------------------------------------


def test_a_locked_file_can_be_read(tmp_path: Path) -> None:
    """In every order of reading and writing, also when both wait for the same transaction."""

    async def run() -> None:
        clock = Clock()
        store = SqliteStore(tmp_path / "store.db", pragmas={**PRAGMAS, "busy_timeout": 5}, clock=clock)
        assert await store.put([entry("r")]) is True
        with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            for _ in range(5):
                found = await asyncio.gather(
                    store.get("me", "response", ["r"]),
                    store.put([entry("s")]),
                    store.get("me", "response", ["r", "s"]),
                    store.delete("me", "response", ["r"]),
                )
                assert [isinstance(one, StoreDown) for one in found] == [False, True, False, True]
                assert "locked" in str(found[1])
        clock.time += RETRY_DELAY
        assert await store.put([entry("s")]) is True
        assert len(await store.get("me", "response", ["r", "s"])) == 2  # type: ignore[arg-type]
        await store.close()

    asyncio.run(run())


def test_opening_a_locked_file_has_one_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one for each step."""
    waits: list[int] = []
    limit_waiting = sqlite_worker._limit_waiting

    def note_limit(connection: sqlite3.Connection, pragmas: Any, deadline: float) -> None:
        limit_waiting(connection, pragmas, deadline)
        waits.append(connection.execute("PRAGMA busy_timeout").fetchone()[0])

    monkeypatch.setattr(sqlite_worker, "_limit_waiting", note_limit)
    monkeypatch.setattr(sqlite_worker, "OPEN_DEADLINE", 0.3)

    async def run() -> None:
        first = SqliteStore(tmp_path / "store.db")
        assert await first.put([entry("r")]) is True
        await first.close()
        with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as other:
            other.execute("PRAGMA locking_mode = EXCLUSIVE")
            other.execute("BEGIN EXCLUSIVE")
            store = SqliteStore(tmp_path / "store.db")
            waits.clear()
            assert isinstance(await store.put([entry("s")]), StoreDown)
            assert waits
            assert max(waits) <= 300
            await store.close()

    asyncio.run(run())


# --- a full disk ------------------------------------------------------------------------------------------------------


class SteadyClock:
    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


def test_a_full_disk_is_logged_once(tmp_path: Path) -> None:
    """Reading works, small entries fit, and large ones do not: that is one outage, not one for each request."""
    events: list[tuple[str, str]] = []
    counted: list[str] = []

    async def run() -> None:
        store = SqliteStore(tmp_path / "store.db", pragmas={**PRAGMAS, "max_page_count": 60})
        clock = SteadyClock()
        state = StateRepository(
            store,
            StoreSettings(),
            lambda *event: events.append(event),
            steady_clock=clock,
            count_failure=counted.append,
        )
        assert await state.put(entry("early")) is True
        for number in range(84):
            clock.time += 0.5
            assert isinstance(await state.put(entry(f"large{number}", bytes(1_000_000))), StoreDown)
            assert isinstance(await state.get_one("me", "response", "early"), Entry)
            assert await state.put(entry("small")) is True
        assert [kind for kind, _ in events] == ["store_unavailable"]
        assert "disk is full" in events[0][1]
        assert counted == ["write"] * 84
        clock.time += 10
        assert await state.put(entry("small")) is True
        assert [kind for kind, _ in events] == ["store_unavailable", "store_available"]
        assert "84 operations" in events[1][1]
        await state.close()

    asyncio.run(run())


# --- what waits for the store -----------------------------------------------------------------------------------------


def test_what_waits_for_the_store_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repository, "FIRST_RETRY_SECONDS", 0.001)
    written: dict[str, Entry] = {}
    enough = asyncio.Event()
    is_down = True

    async def write(entries: Sequence[Entry]) -> bool | StoreDown:
        if is_down or any(one.id == "bad" for one in entries):
            return StoreDown("gone")
        written.update({one.id: one for one in entries})
        if len(written) >= 30:
            enough.set()
        return True

    async def run() -> None:
        nonlocal is_down
        pending = PendingWrites(write)
        pending.add([entry("huge", bytes(MAX_PENDING_BYTES))])
        assert pending.find("me", "response", "huge") is None
        for number in range(100):
            pending.add([entry(f"r{number}", bytes(1_000_000))])
            assert pending._size <= MAX_PENDING_BYTES
        assert pending.find("me", "response", "r0") is None
        pending.discard("me", "response", ["r99"])
        is_down = False
        await enough.wait()
        assert "r98" in written
        assert "r99" not in written
        await pending.close()
        assert (pending._size, len(pending._entries)) == (0, 0)

    asyncio.run(asyncio.wait_for(run(), PATIENCE))
