"""The laws of a store, the same for every kind of it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gateway.stores import BACKENDS, MAKERS, Clock, RawBodies, open_store
from toolwire.gateway.store.store import NEVER_EXPIRES, Entry, KindStats, Store, StoreDown, StoreStats, SweepResult

NOW = Clock().time
Law = Callable[[Store, Clock], Awaitable[None]]
LAWS: dict[str, tuple[Law, dict[str, Any]]] = {}


def law(**settings: Any) -> Callable[[Law], Law]:
    def add_law(law: Law) -> Law:
        LAWS[law.__name__] = law, settings
        return law

    return add_law


def entry(id: str, kind: str = "response", owner: str = "me", **more: Any) -> Entry:
    return Entry(owner=owner, kind=kind, id=id, **more)


def ids(entries: Sequence[Entry] | StoreDown) -> list[str]:
    assert not isinstance(entries, StoreDown), entries
    return [one.id for one in entries]


# --- get and put ---------------------------------------------------------------------------------------------------


@law()
async def what_is_put_is_there_as_it_was(store: Store, clock: Clock) -> None:
    whole = entry("r", body=b"{}", parent="p", place=7, mark="done", created=NOW - 5, expires=NOW + 5)
    assert await store.put([whole]) is True
    assert await store.get("me", "response", ["r"]) == [whole]


@law(ttl=60.0)
async def the_store_fills_in_the_times(store: Store, clock: Clock) -> None:
    await store.put([entry("r")])
    await store.put(appended=[entry("i", parent="r")])
    assert await store.get("me", "response", ["r"]) == [entry("r", created=NOW, expires=NOW + 60)]
    assert [(one.created, one.expires) for one in await store.get("me", "response", ["i"])] == [(NOW, NOW + 60)]


@law(ttl=0.0)
async def a_time_to_live_of_0_is_for_ever(store: Store, clock: Clock) -> None:
    await store.put([entry("r"), entry("s", expires=NOW + 1)])
    await store.touch("me", "response", ["s"], 0)
    clock.time = NEVER_EXPIRES - 1
    assert ids(await store.get("me", "response", ["r", "s"])) == ["r", "s"]


@law()
async def get_keeps_the_order_of_the_ids_and_leaves_out_what_is_not_there(store: Store, clock: Clock) -> None:
    await store.put([entry(id) for id in "abcde"])
    assert ids(await store.get("me", "response", ["d", "x", "a", "d", "c", ""])) == ["d", "a", "c"]
    assert await store.get("me", "response", []) == []


@law()
async def the_same_name_is_replaced_as_a_whole(store: Store, clock: Clock) -> None:
    await store.put([entry("r", body=b"one", parent="p", place=1, mark="m", created=1.0, expires=NOW + 9)])
    after = entry("r", body=b"two", created=2.0, expires=NOW + 3)
    await store.put([entry("r", body=b"between"), after])
    assert await store.get("me", "response", ["r"]) == [after]
    assert await store.get_children("me", "response", "p") == []


@law()
async def a_condition_is_the_mark_of_the_first(store: Store, clock: Clock) -> None:
    cases = [
        ("queued", ("queued",), True),
        ("queued", ("running", "queued"), True),
        ("done", ("running", "queued"), False),
        ("", ("queued",), False),
        ("", ("",), True),
        (None, ("queued", ""), False),
    ]
    for number, (mark, where, written) in enumerate(cases):
        id, other = f"r{number}", f"other{number}"
        if mark is not None:
            await store.put([entry(id, mark=mark, body=b"old")])
        assert await store.put([entry(id, mark="new", body=b"new"), entry(other)], where) is written
        found = await store.get("me", "response", [id, other])
        assert not isinstance(found, StoreDown)
        assert [one.body for one in found if one.id == id] == (
            [b"new"] if written else [b"old"] if mark is not None else []
        )
        assert (other in ids(found)) is written


@law()
async def what_is_appended_with_others_is_there_with_them_or_not_at_all(store: Store, clock: Clock) -> None:
    await store.put([entry("r", mark="queued")])
    await store.put(appended=[entry("a", kind="item", parent="c")])
    behind = [entry("b", kind="item", parent="c"), entry("d", kind="item", parent="c")]
    assert await store.put([entry("r", mark="done")], ("running",), behind) is False
    assert ids(await store.get_children("me", "item", "c")) == ["a"]
    assert await store.put([entry("r", mark="done")], ("queued",), behind) is True
    assert ids(await store.get_children("me", "item", "c")) == ["a", "b", "d"]
    assert await store.put([], (), [entry("e", kind="item", parent="c")]) is True
    found = await store.get_children("me", "item", "c")
    assert not isinstance(found, StoreDown)
    assert [one.place for one in found] == [0, 1, 2, 3]


@law()
async def a_condition_on_what_has_expired_is_not_met(store: Store, clock: Clock) -> None:
    await store.put([entry("r", mark="queued", expires=NOW + 1)])
    clock.time += 1
    assert await store.put([entry("r", mark="done")], ("queued",)) is False
    assert await store.get("me", "response", ["r"]) == []


@law()
async def of_two_that_want_the_same_mark_one_gets_it(store: Store, clock: Clock) -> None:
    await store.put([entry("r", mark="queued")])
    taken = await asyncio.gather(*(store.put([entry("r", mark="taken")], ("queued",)) for _ in range(20)))
    assert sorted(taken, key=str) == [False] * 19 + [True]


@law()
async def lists_may_be_empty(store: Store, clock: Clock) -> None:
    assert await store.put([]) is True
    assert await store.put([], ("mark",)) is True
    assert await store.put(appended=[]) is True
    assert await store.delete("me", "response", []) == 0
    assert await store.touch("me", "response", [], NOW + 1) is None


BODIES = {
    "empty": b"",
    "text": "Grüße, 世界 🎈".encode(),
    "binary": bytes(range(256)) * 3,
    "zeros": bytes(1000),
    "large": b"0123456789abcdef" * (5 * 1024 * 1024 // 16),
    "as-if-encrypted": b"\0TWE1" + bytes(60),
    "as-if-plain": b"\0TWP1{}",
    "as-if-newer": b"\0TWX9",
}
NAMES = [
    "Grüße-世界-🎈",
    "with space/slash?query#hash",
    "'; DROP TABLE entries; --",
    "%",
    "_",
    "x" * 4000,
    "ä",
    "a\u0308",
    "A",
    "a",
]


@law()
async def bodies_come_back_byte_for_byte(store: Store, clock: Clock) -> None:
    assert await store.put([entry(id, body=body) for id, body in BODIES.items()]) is True
    found = await store.get("me", "response", list(BODIES))
    assert not isinstance(found, StoreDown)
    assert {one.id: one.body for one in found} == BODIES


@law()
async def a_name_can_be_any_text(store: Store, clock: Clock) -> None:
    for name in NAMES:
        await store.put([entry(name, kind=name[:50], owner=name[:50], parent=name, mark=name[:50], body=name.encode())])
    for name in NAMES:
        found = await store.get(name[:50], name[:50], NAMES)
        assert ids(found) == [name]
        assert found == await store.get_children(name[:50], name[:50], name)
        assert await store.get_chain(name[:50], name[:50], name, 1) == found


# --- append and children -------------------------------------------------------------------------------------------


@law()
async def what_is_appended_stands_behind_all_else(store: Store, clock: Clock) -> None:
    await store.put([entry("early", parent="c", place=40), entry("late", parent="c", place=41)])
    await store.put(appended=[entry("b", parent="c", place=3), entry("a", parent="c"), entry("elsewhere", parent="d")])
    await store.put(appended=[entry("z", parent="c")])
    found = await store.get_children("me", "response", "c")
    assert ids(found) == ["early", "late", "b", "a", "z"]
    assert not isinstance(found, StoreDown)
    assert [one.place for one in found] == [40, 41, 42, 43, 44]
    assert ids(await store.get_children("me", "response", "d")) == ["elsewhere"]


@law()
async def what_is_appended_again_moves_behind(store: Store, clock: Clock) -> None:
    await store.put(appended=[entry(id, parent="c") for id in "abc"])
    await store.put(appended=[entry("a", parent="c", body=b"new")])
    assert ids(await store.get_children("me", "response", "c")) == ["b", "c", "a"]
    assert [one.body for one in await store.get("me", "response", ["a"])] == [b"new"]


@law()
async def children_by_their_place(store: Store, clock: Clock) -> None:
    await store.put([entry(f"i{place}", "item", parent="c", place=place) for place in (5, 1, 4, 2, 3)])
    await store.put([entry("x", "event", parent="c"), entry("y", "item", parent="d"), entry("z", "item")])
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "12345"),
        ({"after": 2}, "345"),
        ({"after": 0}, "12345"),
        ({"after": 5}, ""),
    ]
    for asked, places in cases:
        assert ids(await store.get_children("me", "item", "c", **asked)) == [f"i{place}" for place in places], asked
    assert ids(await store.get_children("me", "item", "")) == ["z"]
    assert await store.get_children("me", "item", "nobody") == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_places_are_given_once_when_two_gateways_append(backend: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with open_store(backend, tmp_path) as one, open_store(backend, tmp_path) as other:
            bunches = [[f"{number:02}{letter}" for letter in "abc"] for number in range(30)]
            told = await asyncio.gather(
                *(
                    (one, other)[number % 2].put(appended=[entry(id, "item", parent="c") for id in bunch])
                    for number, bunch in enumerate(bunches)
                )
            )
            assert set(told) == {True}
            found = await one.get_children("me", "item", "c")
            assert not isinstance(found, StoreDown)
            assert [one.place for one in found] == list(range(90))
            order = ids(found)
            assert sorted(order) == sorted(itertools.chain(*bunches))
            assert [order[at : at + 3] for at in range(0, 90, 3)] == sorted(
                bunches, key=lambda bunch: order.index(bunch[0])
            )

    asyncio.run(run())


# --- chain ---------------------------------------------------------------------------------------------------------


@law()
async def a_chain_leads_back_to_its_beginning(store: Store, clock: Clock) -> None:
    line = ["a", "b", "c", "d", "e"]
    await store.put([entry(id, parent=before) for before, id in zip(["", *line], line, strict=False)])
    await store.put([entry("fork", parent="b"), entry("b", "conversation"), entry("cut", parent="gone")])
    cases = [
        ("e", 99, "a b c d e"),
        ("e", 5, "a b c d e"),
        ("e", 3, "c d e"),
        ("e", 1, "e"),
        ("c", 99, "a b c"),
        ("a", 99, "a"),
        ("fork", 99, "a b fork"),
        ("cut", 99, "cut"),
        ("gone", 99, ""),
        ("", 99, ""),
    ]
    for id, most, expected in cases:
        assert ids(await store.get_chain("me", "response", id, most)) == expected.split(), (id, most)


@law()
async def a_chain_ends_where_an_ancestor_has_gone(store: Store, clock: Clock) -> None:
    line = ["a", "b", "c", "d"]
    for before, id in zip(["", *line], line, strict=False):
        await store.put([entry(id, parent=before, expires=NOW + (1 if id == "b" else 9))])
    assert ids(await store.get_chain("me", "response", "d", 9)) == line
    clock.time += 1
    found = await store.get_chain("me", "response", "d", 9)
    assert ids(found) == ["c", "d"]
    assert not isinstance(found, StoreDown)
    assert found[0].parent == "b"
    await store.delete("me", "response", ["c"])
    assert ids(await store.get_chain("me", "response", "d", 9)) == ["d"]


@law()
async def a_long_chain(store: Store, clock: Clock) -> None:
    await store.put([entry(f"{number}", parent=f"{number - 1}" if number else "") for number in range(1500)])
    assert ids(await store.get_chain("me", "response", "1499", 5000)) == [f"{number}" for number in range(1500)]


# --- delete and touch ----------------------------------------------------------------------------------------------


@law()
async def what_is_deleted_takes_with_it_what_belongs_to_it(store: Store, clock: Clock) -> None:
    await store.put(
        [
            entry("r1"),
            entry("r2", parent="r1"),
            entry("i1", "item", parent="r1"),
            entry("e1", "events", parent="r1"),
            entry("i2", "item", parent="r2"),
            entry("i3", "item"),
            entry("r1", "item"),
            entry("i4", "item", parent="r1", owner="you"),
        ]
    )
    assert await store.delete("me", "response", ["r1", "r1", "unknown"]) == 1
    assert await store.delete("me", "response", ["r1"]) == 0
    assert ids(await store.get("me", "response", ["r1", "r2"])) == ["r2"]
    assert ids(await store.get("me", "item", ["i1", "i2", "i3", "r1"])) == ["i2", "i3", "r1"]
    assert ids(await store.get("me", "events", ["e1"])) == []
    assert ids(await store.get("you", "item", ["i4"])) == ["i4"]


@law()
async def nothing_belongs_to_nothing(store: Store, clock: Clock) -> None:
    await store.put([entry("r"), entry("i", "item"), entry("i2", "item", parent="r")])
    assert await store.delete("me", "response", [""]) == 0
    assert ids(await store.get("me", "item", ["i", "i2"])) == ["i", "i2"]


@law()
async def touching_lengthens_a_life_and_never_shortens_it(store: Store, clock: Clock) -> None:
    await store.put([entry("a", expires=NOW + 10), entry("b", expires=NOW + 100), entry("dead", expires=NOW + 1)])
    clock.time += 1
    assert await store.touch("me", "response", ["a", "b", "dead", "unknown"], NOW + 50) is None
    found = await store.get("me", "response", ["a", "b", "dead"])
    assert not isinstance(found, StoreDown)
    assert [(one.id, one.expires) for one in found] == [("a", NOW + 50), ("b", NOW + 100)]


@law(ttl=30.0)
async def touching_without_a_time_gives_the_usual_one(store: Store, clock: Clock) -> None:
    await store.put([entry("a")])
    clock.time += 20
    await store.touch("me", "response", ["a"], 0)
    assert [one.expires for one in await store.get("me", "response", ["a"])] == [NOW + 50]


# --- time and owners -----------------------------------------------------------------------------------------------


async def read_all(store: Store, owner: str) -> dict[str, object]:
    """What every verb that looks finds of one owner's things."""
    return {
        "get": ids(await store.get(owner, "response", ["r", "r2"])),
        "chain": ids(await store.get_chain(owner, "response", "r2", 9)),
        "children": ids(await store.get_children(owner, "item", "r")),
        "export": sorted([one.id async for one in store.export(owner) if isinstance(one, Entry)]),
    }


EVERYTHING = {"get": ["r", "r2"], "chain": ["r", "r2"], "children": ["i"], "export": ["i", "r", "r2"]}
NOTHING: dict[str, object] = {verb: [] for verb in EVERYTHING}


async def put_three(store: Store, owner: str) -> None:
    await store.put([entry("r", owner=owner, mark="m", expires=NOW + 5)])
    await store.put([entry("r2", owner=owner, parent="r", mark="m", expires=NOW + 5)])
    await store.put(appended=[entry("i", "item", owner=owner, parent="r", expires=NOW + 5)])


@law()
async def nobody_sees_what_has_expired(store: Store, clock: Clock) -> None:
    await put_three(store, "me")
    clock.time = NOW + 4.999
    assert await read_all(store, "me") == EVERYTHING
    clock.time = NOW + 5
    assert await read_all(store, "me") == NOTHING
    assert await store.delete("me", "response", ["r", "r2"]) == 0


@law()
async def nobody_sees_or_changes_what_another_keeps(store: Store, clock: Clock) -> None:
    await put_three(store, "me")
    for stranger in ("you", "", "me ", "m", "ME", "%"):
        assert await read_all(store, stranger) == NOTHING
        assert await store.delete(stranger, "response", ["r", "r2"]) == 0
        assert await store.delete(stranger, "item", ["i"]) == 0
        assert await store.put([entry("r", owner=stranger, body=b"stolen")], ("m",)) is False
        await store.touch(stranger, "response", ["r"], NOW + 999)
        await store.put(appended=[entry("mine", "item", owner=stranger, parent="r")])
        assert ids(await store.get_children(stranger, "item", "r")) == ["mine"]
    assert await read_all(store, "me") == EVERYTHING
    assert [(one.body, one.expires) for one in await store.get("me", "response", ["r"])] == [(b"", NOW + 5)]


# --- housekeeping --------------------------------------------------------------------------------------------------


@law()
async def an_entry_is_added_once(store: Store, clock: Clock) -> None:
    first = entry("r", body=b"1", expires=NOW + 10)
    added = await asyncio.gather(*(store.add(first) for _ in range(8)))
    assert sorted(map(bool, added)) == [False] * 7 + [True]
    assert await store.add(entry("r", body=b"2")) is False
    assert await store.get("me", "response", ["r"]) == [entry("r", body=b"1", created=NOW, expires=NOW + 10)]
    assert await store.add(entry("r", owner="you")) is True
    assert await store.add(entry("r", "item")) is True
    clock.time += 11
    assert await store.add(entry("r", body=b"3")) is True
    assert [one.body for one in await store.get("me", "response", ["r"])] == [b"3"]


@law()
async def a_sweep_removes_what_has_expired(store: Store, clock: Clock) -> None:
    await store.put([entry(f"r{number}", expires=NOW + number) for number in range(1, 1300)])
    clock.time += 1200
    before = await store.stats()
    assert isinstance(before, StoreStats)
    assert (before.expired, before.kinds) == (1200, (KindStats("response", 99, 0),))
    assert await store.sweep() == SweepResult(1200, 0)
    assert await store.sweep() == SweepResult(0, 0)
    after = await store.stats()
    assert isinstance(after, StoreStats)
    assert (after.expired, after.kinds) == (0, (KindStats("response", 99, 0),))


LIMIT = 2_000_000


@law(max_bytes=LIMIT)
async def writing_makes_room_by_removing_what_would_go_first(store: Store, clock: Clock) -> None:
    for number in range(100):
        body = Random(number).randbytes(50_000)  # nothing that a database could press together
        assert await store.put([entry(f"r{number:02}", body=body, expires=NOW + 1000 + number)]) is True
        left = sorted([one.id async for one in store.export("me") if isinstance(one, Entry)])
        assert len(left) * 50_000 <= LIMIT
        assert len(left) * 50_000 > LIMIT / 2 or len(left) == number + 1
        assert left == [f"r{one:02}" for one in range(number + 1 - len(left), number + 1)]
    assert await store.sweep() == SweepResult(0, 0)


@law(max_bytes=50_000_000)
async def a_sweep_leaves_what_has_room(store: Store, clock: Clock) -> None:
    await store.put([entry(f"r{number}", body=bytes(1000)) for number in range(50)])
    assert await store.sweep() == SweepResult(0, 0)


@law(max_bytes=1_000_000)
async def numbers_for_operators(store: Store, clock: Clock) -> None:
    await store.put([entry("r", created=NOW - 9, body=b"12345"), entry("s", owner="you", body=b"678")])
    await store.put([entry("i", "item"), entry("gone", expires=NOW - 1)])
    told = await store.stats()
    assert isinstance(told, StoreStats)
    assert told.kinds == (KindStats("item", 1, 0), KindStats("response", 2, 8))
    assert (told.owners, told.expired, told.oldest, told.limit, told.encrypted) == (2, 1, NOW - 9, 1_000_000, False)
    assert told.version >= 1
    assert told.size > 0


@law()
async def an_empty_store_has_numbers_too(store: Store, clock: Clock) -> None:
    told = await store.stats()
    assert isinstance(told, StoreStats)
    assert (told.kinds, told.owners, told.expired, told.oldest) == ((), 0, 0, None)
    assert [one async for one in store.export()] == []


@law()
async def an_export_is_everything_in_a_stable_order(store: Store, clock: Clock) -> None:
    every = [
        entry(f"{number:04}", kind, owner, body=number.to_bytes(2, "big"), created=1.0, expires=NOW + 9)
        for owner in ("", "a", "b")
        for kind in ("item", "response")
        for number in range(300)
    ]
    await store.put(every[::-1])
    await store.put([entry("gone", owner="a", expires=NOW)])
    for owner, expected in ((None, every), ("a", every[600:1200]), ("", every[:600]), ("c", [])):
        found = [one async for one in store.export(owner)]
        assert sorted(found, key=every.index) == expected
        assert [one async for one in store.export(owner)] == found


@law()
async def a_large_export(store: Store, clock: Clock) -> None:
    bodies = [number.to_bytes(1, "big") * 3_000_000 for number in range(5)]
    await store.put([entry(f"{number}", body=body) for number, body in enumerate(bodies)])
    assert {one.id: one.body async for one in store.export() if isinstance(one, Entry)} == {
        f"{number}": body for number, body in enumerate(bodies)
    }


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_law(backend: str, name: str, tmp_path: Path) -> None:
    law, settings = LAWS[name]
    clock = Clock()

    async def run() -> None:
        async with open_store(backend, tmp_path, clock=clock, **settings) as store:
            await law(store, clock)

    asyncio.run(run())


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_kept_is_there_after_a_restart(backend: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with open_store(backend, tmp_path) as store:
            await store.put([entry("r", body=b"kept")])
        async with open_store(backend, tmp_path) as store:
            assert [one.body for one in await store.get("me", "response", ["r"])] == [b"kept"]
        async with open_store(backend, tmp_path / "other") as store:
            assert await store.get("me", "response", ["r"]) == []

    asyncio.run(run())


@pytest.mark.parametrize("backend", BACKENDS)
def test_closing_finishes_what_was_accepted(backend: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with open_store(backend, tmp_path) as store:
            accepted = [asyncio.create_task(store.put([entry(f"{number}")])) for number in range(50)]
            await asyncio.sleep(0)
        assert set(await asyncio.gather(*accepted)) == {True}
        assert isinstance(await store.get("me", "response", ["1"]), StoreDown)
        assert isinstance(await store.put([entry("1")]), StoreDown)
        async with open_store(backend, tmp_path) as store:
            assert len(ids(await store.get("me", "response", [f"{number}" for number in range(50)]))) == 50

    asyncio.run(run())


@pytest.mark.parametrize("backend", BACKENDS)
def test_callers_that_go_away_break_nothing(backend: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with open_store(backend, tmp_path) as store:
            for turn in range(20):
                tasks = [asyncio.create_task(store.put([entry(f"{turn}-{number}")])) for number in range(6)]
                for _ in range(turn):
                    await asyncio.sleep(0)
                for task in tasks[::2]:
                    task.cancel()
                told = await asyncio.gather(*tasks, return_exceptions=True)
                assert told[1::2] == [True] * 3
                assert len(ids(await store.get("me", "response", [f"{turn}-{number}" for number in (1, 3, 5)]))) == 3

    asyncio.run(run())


# --- encryption ----------------------------------------------------------------------------------------------------

BODY = b'{"text":"nobody shall read this"}'


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_encrypted_is_read_with_its_key_only(backend: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with open_store(backend, tmp_path, keys=("right",)) as store:
            await store.put([entry("r", body=BODY, parent="p"), entry("empty")])
            await store.put(appended=[entry("i", "item", body=BODY, parent="r")])
            assert [one.body for one in await store.get("me", "response", ["r", "empty"])] == [BODY, b""]
            assert [one.body for one in await store.get_children("me", "item", "r")] == [BODY]
            assert [one.body for one in await store.get_chain("me", "response", "r", 9)] == [BODY]
            assert sorted([one.body async for one in store.export() if isinstance(one, Entry)]) == [b"", BODY, BODY]
            told = await store.stats()
            assert isinstance(told, StoreStats)
            assert told.encrypted
        raw = MAKERS[backend](tmp_path, cipher=RawBodies())
        for one in await raw.get("me", "response", ["r"]):
            assert b"nobody" not in one.body
        await raw.close()
        for keys, said in (((), "set STORE_KEY"), (("wrong", "other"), "no key in STORE_KEY fits")):
            async with open_store(backend, tmp_path, keys=keys) as store:
                found = [
                    await store.get("me", "response", ["r"]),
                    await store.get_children("me", "item", "r"),
                    await store.get_chain("me", "response", "r", 9),
                    *[one async for one in store.export() if not isinstance(one, Entry) or one.body],
                ]
                assert len(found) == 5
                for down in found:
                    assert isinstance(down, StoreDown)
                    assert "is encrypted, and" in down.reason
                    assert said in down.reason
                    assert not any(key in down.reason for key in keys)

    asyncio.run(run())


@pytest.mark.parametrize("backend", BACKENDS)
def test_keys_change_one_after_the_other(backend: str, tmp_path: Path) -> None:
    """First nothing is encrypted; then with one key; then with the next, while the first still opens what it closed."""

    async def run() -> None:
        for number, keys in enumerate(((), ("old",), ("new", "old"))):
            async with open_store(backend, tmp_path, keys=keys) as store:
                await store.put([entry(f"{number}", body=BODY)])
                found = await store.get("me", "response", ["0", "1", "2"])
                assert not isinstance(found, StoreDown)
                assert [(one.id, one.body) for one in found] == [(f"{at}", BODY) for at in range(number + 1)]
        async with open_store(backend, tmp_path, keys=("new",)) as store:
            assert [one.body for one in await store.get("me", "response", ["0", "2"])] == [BODY, BODY]
            assert isinstance(await store.get("me", "response", ["0", "1"]), StoreDown)

    asyncio.run(run())


MOVED = {"id": "other", "kind": "conversation", "owner": "you"}


@pytest.mark.parametrize("field", MOVED)
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_encrypted_body_cannot_stand_in_for_another(backend: str, field: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with open_store(backend, tmp_path, keys=("key",)) as store:
            await store.put([entry("r", body=BODY)])
            raw = MAKERS[backend](tmp_path, cipher=RawBodies())
            (secret,) = await raw.get("me", "response", ["r"])
            moved = replace(secret, **{field: MOVED[field]})
            await raw.put(
                [
                    moved,
                    replace(secret, id="short", body=secret.body[:15]),
                    replace(secret, id="x", body=secret.body[:-1] + b"?"),
                ]
            )
            await raw.put([replace(secret, id="newer", body=b"\0TWZ9")])
            await raw.close()
            for owner, kind, id in (
                (moved.owner, moved.kind, moved.id),
                ("me", "response", "short"),
                ("me", "response", "x"),
            ):
                down = await store.get(owner, kind, [id])
                assert isinstance(down, StoreDown)
                assert "was changed in the store" in down.reason
            down = await store.get("me", "response", ["newer"])
            assert isinstance(down, StoreDown)
            assert "a newer version of toolwire" in down.reason

    asyncio.run(run())


# --- against a model -----------------------------------------------------------------------------------------------

few = st.sampled_from(["a", "b", "c", "d"])
kinds = st.sampled_from(["k", "l"])
some = st.lists(few, max_size=4)
written = st.lists(
    st.builds(
        lambda id, kind, **more: (id, kind, more),
        few, kinds,
        parent=st.sampled_from(["", "a", "b", "c"]), place=st.integers(0, 3), mark=st.sampled_from(["", "m", "n"]),
        body=st.binary(max_size=3), created=st.just(5.0), expires=st.integers(1, 9).map(lambda more: NOW + more),
    ),
    max_size=3,
)  # fmt: skip
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), written, st.sampled_from([(), ("m",), ("", "n")])),
        st.tuples(st.just("append"), written),
        st.tuples(st.just("get"), kinds, some),
        st.tuples(st.just("get_chain"), kinds, few, st.integers(1, 4)),
        st.tuples(st.just("get_children"), kinds, few, st.none() | st.integers(0, 3)),
        st.tuples(st.just("delete"), kinds, some),
        st.tuples(st.just("touch"), kinds, some, st.integers(1, 12).map(lambda more: NOW + more)),
        st.tuples(st.just("wait")),
    ),
    max_size=25,
)


class Model:
    """A store as simple as can be, for one owner."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.kept: dict[tuple[str, str], Entry] = {}

    def live(self, kind: str, id: str) -> Entry | None:
        found = self.kept.get((kind, id))
        return found if found is not None and found.expires > self.clock() else None

    def put(self, entries: list[Entry], where: tuple[str, ...]) -> bool:
        if entries and where:
            first = self.live(entries[0].kind, entries[0].id)
            if first is None or first.mark not in where:
                return False
        self.kept.update({(one.kind, one.id): one for one in entries})
        return True

    def append(self, entries: list[Entry]) -> bool:
        for one in entries:
            places = [
                other.place for other in self.kept.values() if (other.kind, other.parent) == (one.kind, one.parent)
            ]
            self.kept[one.kind, one.id] = replace(one, place=max(places, default=-1) + 1)
        return True

    def get(self, kind: str, ids: list[str]) -> list[Entry]:
        return [one for id in dict.fromkeys(ids) if (one := self.live(kind, id)) is not None]

    def get_chain(self, kind: str, id: str, most: int) -> list[Entry]:
        found: list[Entry] = []
        while id and len(found) < most and (one := self.live(kind, id)) is not None:
            found.insert(0, one)
            id = one.parent
        return found

    def get_children(self, kind: str, parent: str, after: int | None) -> list[Entry]:
        found = [
            one for one in self.kept.values() if (one.kind, one.parent) == (kind, parent) and self.live(kind, one.id)
        ]
        found.sort(key=lambda one: (one.place, one.id))
        return [one for one in found if after is None or one.place > after]

    def delete(self, kind: str, ids: list[str]) -> int:
        there = len(self.get(kind, ids))
        self.kept = {
            name: one
            for name, one in self.kept.items()
            if not (name[0] == kind and name[1] in ids) and not (name[0] != kind and one.parent in ids)
        }
        return there

    def touch(self, kind: str, ids: list[str], expires: float) -> None:
        for one in self.get(kind, ids):
            self.kept[kind, one.id] = replace(one, expires=max(one.expires, expires))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_store_does_what_its_model_does(backend: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Every example has an owner of its own, so one store serves for all."""
    clock = Clock()
    numbers = itertools.count()

    async def follow(store: Store, taken: list[tuple[Any, ...]]) -> None:
        owner, model, clock.time = f"owner-{next(numbers)}", Model(clock), NOW
        for verb, *words in taken:
            if verb == "wait":
                clock.time += 1
            elif verb in ("put", "append"):
                entries = [entry(id, kind, owner, **more) for id, kind, more in words[0]]
                if verb == "append":
                    assert await store.put(appended=entries) == model.append(entries)
                else:
                    assert await store.put(entries, *words[1:]) == model.put(entries, *words[1:])
            else:
                assert await getattr(store, verb)(owner, *words) == getattr(model, verb)(*words), (verb, words)

    with asyncio.Runner() as runner:
        context = open_store(backend, tmp_path_factory.mktemp("model"), clock=clock)
        store = runner.run(context.__aenter__())

        @given(steps)
        def compare(taken: list[tuple[Any, ...]]) -> None:
            runner.run(follow(store, taken))

        try:
            compare()
        finally:
            runner.run(context.__aexit__(None, None, None))
