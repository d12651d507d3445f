"""What is stored is bounded, in the store and where it is loaded: long chains of responses, ids that a provider gives
twice, and the size of the store while it is written to."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.raw_exchange import RawAnswer, Served, answer, ask, stage, write_chunked
from gateway.stores import BACKENDS, Clock, open_store
from toolwire.core.sse import write_event_frame
from toolwire.gateway.features.responses.recorder import StoredResponse
from toolwire.gateway.store import sqlite
from toolwire.gateway.store.sqlite import SqliteStore
from toolwire.gateway.store.store import Entry, Store, StoreDown, SweepResult, owner_excess
from toolwire_conformance.peers.peer import encode_json

MAX_BODY = 200_000


@pytest.fixture(name="served")
def serve_gateway(tmp_path: Path) -> Iterator[Served]:
    store = f'[store]\nurl = "sqlite:///{tmp_path}/store.db"\n'
    with stage(tmp_path, f"max_body = {MAX_BODY}", store) as gateway:
        yield gateway


def write_response(id: str | None, text: str, **more: Any) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    message = {
        "id": f"msg_{text[:9]}",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }
    return {
        **({} if id is None else {"id": id}),
        "object": "response", "created_at": 1, "model": "m", "status": "completed", "output": [message],
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], **more,
    }  # fmt: skip


def play(id: str | None, text: str, stream: bool, **more: Any) -> bytes:
    whole = write_response(id, text, **more)
    if not stream:
        return answer(200, encode_json(whole).encode())
    start = {**whole, "status": "in_progress", "output": []}
    item = whole["output"][0]
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": start},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": whole},
    ]
    frames = [
        write_event_frame(event["type"], encode_json({**event, "sequence_number": number}).encode())
        for number, event in enumerate(events)
    ]
    return write_chunked(*frames)


def post(served: Served, path: str, **body: Any) -> RawAnswer:
    return ask(served.port, "POST", f"/v1{path}", encode_json(body).encode())


def read_responses(got: RawAnswer, stream: bool) -> list[Any]:
    """The response in each event of a stream, or the whole one."""
    assert got.status == 200, got.data
    if not stream:
        return [got.json()]
    return [frame.data["response"] for frame in got.frames if "response" in frame.data]


def sent_texts(body: bytes) -> list[str]:
    return [
        item["content"] if isinstance(item["content"], str) else item["content"][0]["text"]
        for item in json.loads(body)["input"]
    ]


STREAMS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])

# --- a provider that repeats its ids ----------------------------------------------------------------------------------


@STREAMS
@pytest.mark.parametrize("id", ["resp_always_this", "", None, "r" * 5000])
def test_a_provider_that_repeats_its_ids(served: Served, stream: bool, id: Any) -> None:
    """Every response has its own id, and its own history."""
    scene = served.scene("openai-responses", *(play(id, f"A{number}", stream) for number in range(6)))
    previous: dict[str, str] = {}
    ids = []
    for number in range(5):
        got = post(served, "/responses", model=scene.model, input=f"Q{number}", stream=stream, **previous)
        found = read_responses(got, stream)
        assert len({response["id"] for response in found}) == 1
        ids.append(found[-1]["id"])
        previous = {"previous_response_id": ids[-1]}
    assert len(set(ids)) == 5
    for number in range(5):
        assert ask(served.port, "GET", f"/v1/responses/{ids[number]}").json()["output"][0]["id"] == f"msg_A{number}"
    turns = [text for number in range(4) for text in (f"Q{number}", f"A{number}")]
    assert sent_texts(scene.asked[-1].body) == [*turns, "Q4"]
    # Also from where nothing says what came before.
    other = read_responses(post(served, "/responses", model=scene.model, input="New.", stream=stream), stream)[-1]["id"]
    assert other not in ids
    assert ask(served.port, "GET", f"/v1/responses/{ids[0]}").json()["output"][0]["id"] == "msg_A0"


@pytest.mark.parametrize("cycle", [1, 2, 3])
def test_responses_that_follow_themselves(served: Served, tmp_path: Path, cycle: int) -> None:
    """Stores that older versions wrote can have them: they are not followed for ever."""

    async def write() -> None:
        store = SqliteStore(tmp_path / "store.db")
        body = json.dumps({"items": [], "response": write_response("x", "A" * 1000)}).encode()
        entries = [
            Entry(
                owner="",
                kind="response",
                id=f"r{number}",
                parent=f"r{(number + 1) % cycle}",
                mark="completed",
                body=body,
            )
            for number in range(cycle)
        ]
        assert await store.put(entries) is True
        await store.close()

    scene = served.scene("openai-responses", play("resp_1", "Never.", False))
    asyncio.run(write())
    got = post(served, "/responses", model=scene.model, input="Hi", previous_response_id="r0")
    assert (got.status, got.json()["error"]["code"]) == (400, "previous_response_not_found")
    assert not scene.asked


# --- long histories ---------------------------------------------------------------------------------------------------


def fill_chain(file: Path, count: int, size: int, extra: int = 0) -> str:
    """A chain of stored responses with texts of this size, and something as large beside the items of each."""

    async def write() -> None:
        store = SqliteStore(file)
        for number in range(count):
            response = write_response(f"r{number}", f"{number} " + "x" * size, instructions="y" * extra)
            stored = StoredResponse(items=[], response=response)
            parent = f"r{number - 1}" if number else ""
            body = json.dumps({"items": stored.items, "response": stored.response}).encode()
            entry = Entry(owner="", kind="response", id=f"r{number}", parent=parent, mark="completed", body=body)
            assert await store.put([entry]) is True
        await store.close()

    asyncio.run(write())
    return f"r{count - 1}"


@STREAMS
def test_a_chain_is_bounded_in_bytes(served: Served, tmp_path: Path, stream: bool) -> None:
    """Nothing larger than `max_body` is sent, whatever is stored."""
    last = fill_chain(tmp_path / "store.db", 30, 20_000)
    scene = served.scene("openai-responses", play("resp_1", "Yes.", stream))
    asked = {"model": scene.model, "input": "Hi", "stream": stream}
    got = post(served, "/responses", **asked, previous_response_id=last)
    error = got.json()["error"]
    assert (got.status, error["code"], error["param"]) == (400, "context_length_exceeded", "previous_response_id")
    assert "max_body" in error["message"]
    for path in ("/responses/compact", "/responses/input_tokens"):
        assert post(served, path, model=scene.model, input="Hi", previous_response_id=last).status == 400
    assert ask(served.port, "GET", f"/v1/responses/{last}/input_items").status == 400
    assert not scene.asked
    got = post(served, "/responses", **asked, previous_response_id="r5")
    assert got.status == 200, got.data
    assert len(scene.asked[0].body) <= MAX_BODY


def test_only_what_is_sent_counts(served: Served, tmp_path: Path) -> None:
    """Instructions and tools that a stored response repeats are not sent again."""
    last = fill_chain(tmp_path / "store.db", 30, 1000, extra=50_000)
    scene = served.scene("openai-responses", play("resp_1", "Yes.", False))
    assert post(served, "/responses", model=scene.model, input="Hi", previous_response_id=last).status == 200
    assert len(sent_texts(scene.asked[0].body)) == 31


def test_a_request_that_becomes_too_large_with_its_history(served: Served, tmp_path: Path) -> None:
    last = fill_chain(tmp_path / "store.db", 8, 20_000)
    scene = served.scene("openai-responses", play("resp_1", "Yes.", False))
    got = post(served, "/responses", model=scene.model, input="z" * 150_000, previous_response_id=last)
    assert (got.status, got.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert not scene.asked


def test_a_conversation_is_bounded_in_bytes(served: Served) -> None:
    scene = served.scene("openai-responses", play("resp_1", "Yes.", False))
    room = post(served, "/conversations").json()["id"]
    texts = []
    for number in range(15):
        texts.append(f"{number} " + "x" * 20_000)
        added = [{"type": "message", "role": "user", "content": texts[-1]}]
        assert post(served, f"/conversations/{room}/items", items=added).status == 200
    got = post(served, "/responses", model=scene.model, input="Hi", conversation=room)
    assert (got.status, got.json()["error"]["param"]) == (400, "conversation")
    assert not scene.asked
    for order, expected in (("asc", texts), ("desc", texts[::-1])):
        listed: list[str] = []
        after = ""
        while True:
            path = f"/v1/conversations/{room}/items?order={order}&limit=4{after and f'&after={after}'}"
            page = ask(served.port, "GET", path).json()
            listed += [item["content"][0]["text"] for item in page["data"]]
            after = page["last_id"]
            if not page["has_more"]:
                break
        assert listed == expected


def test_references_are_bounded_in_bytes(served: Served) -> None:
    scene = served.scene("openai-responses", play("resp_1", "Yes.", False))
    room = post(served, "/conversations").json()["id"]
    ids = []
    for _ in range(15):
        added = [{"type": "message", "role": "user", "content": "x" * 20_000}]
        ids.append(post(served, f"/conversations/{room}/items", items=added).json()["data"][0]["id"])
    references = [{"type": "item_reference", "id": id} for id in ids]
    got = post(served, "/responses", model=scene.model, input=references, store=False)
    assert (got.status, got.json()["error"]["code"]) == (400, "context_length_exceeded")
    got = post(served, "/responses", model=scene.model, input=references[:5], store=False)
    assert got.status == 200, got.data


# --- what is said about what is stored --------------------------------------------------------------------------------


@STREAMS
def test_what_is_kept_says_so(served: Served, stream: bool) -> None:
    """Some providers say `store: false`, because they were not asked to store it; the gateway has stored it."""
    scene = served.scene("openai-responses", play("resp_1", "Yes.", stream, store=False))
    found = read_responses(post(served, "/responses", model=scene.model, input="Hi", stream=stream), stream)
    assert {response["store"] for response in found} == {True}
    assert ask(served.port, "GET", f"/v1/responses/{found[-1]['id']}").json()["store"] is True
    scene = served.scene("openai-responses", play("resp_2", "Yes.", stream, store=False))
    asked = {"model": scene.model, "input": "Hi", "stream": stream, "store": False}
    assert {response["store"] for response in read_responses(post(served, "/responses", **asked), stream)} == {False}
    assert ask(served.port, "GET", "/v1/responses/resp_2").status != 200


# --- the size of the store --------------------------------------------------------------------------------------------

LIMIT = 2_000_000


def conversation(id: str, items: int, size: int, expires: float) -> tuple[list[Entry], list[Entry]]:
    body = Random(id).randbytes(size)
    root = Entry(owner="me", kind="conversation", id=id, expires=expires)
    children = [
        Entry(owner="me", kind="item", id=f"{id}-{number}", parent=id, body=body, expires=expires)
        for number in range(items)
    ]
    return [root], children


async def count_items(store: Store, id: str) -> int | None:
    """How many items a conversation has; None if there is no such conversation."""
    found = await store.get("me", "conversation", [id])
    children = await store.get_children("me", "item", id)
    assert not isinstance(found, StoreDown)
    assert not isinstance(children, StoreDown)
    return len(children) if found else None


@pytest.mark.parametrize("items", [1, 7, 40, 700])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_conversation_is_removed_whole(tmp_path: Path, backend: str, items: int) -> None:
    """Whatever the store removes to make room, while it is written to and in sweeps."""

    async def run() -> None:
        clock = Clock()
        written: list[str] = []
        async with open_store(backend, tmp_path, max_bytes=LIMIT, clock=clock) as store:
            for number in range(24):
                id = f"conv_{number}"
                entries, appended = conversation(id, items, 800_000 // items // 2, clock() + 1000 + number % 5)
                assert await store.put(entries, appended=appended) is True
                written.append(id)
                if number % 6 == 5:
                    assert isinstance(await store.sweep(), SweepResult)
                left = [await count_items(store, id) for id in written]
                assert set(left) <= {None, items}
                assert 1 <= left.count(items) <= 5
        assert left[-1] == items

    asyncio.run(run())


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_key_cannot_push_out_what_others_have_stored(tmp_path: Path, backend: str) -> None:
    """Also if theirs is older, would expire first, and is not used any more."""

    async def run() -> None:
        clock = Clock()
        async with open_store(backend, tmp_path, max_bytes=LIMIT, clock=clock) as store:
            quiet = [f"key {number}" for number in range(3)]
            for owner in quiet:
                kept = [Entry(owner=owner, kind="response", id=f"resp_{n}", body=b"a" * 20_000) for n in range(5)]
                assert await store.put(kept) is True
            for number in range(60):
                clock.time += 1
                one = Entry(owner="hog", kind="response", id=f"resp_{number}", body=os.urandom(LIMIT // 12))
                assert await store.put([one]) is True
                if number % 20 == 19:
                    assert isinstance(await store.sweep(), SweepResult)
            for owner in quiet:
                got = await store.get(owner, "response", [f"resp_{n}" for n in range(5)])
                assert not isinstance(got, StoreDown)
                assert len(got) == 5, owner
            latest = await store.get("hog", "response", ["resp_59", "resp_0"])
            assert not isinstance(latest, StoreDown)
            assert [one.id for one in latest] == ["resp_59"]

    asyncio.run(run())


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 1000), min_size=1), st.integers(1, 5000))
def test_what_owners_lose_is_enough_and_fair(sizes: dict[str, int], excess: int) -> None:
    lost = owner_excess(sizes, excess)
    left = {owner: size - lost.get(owner, 0) for owner, size in sizes.items()}
    assert sum(lost.values()) >= min(excess, sum(sizes.values()))
    assert sum(lost.values()) < excess + len(sizes)
    assert all(amount > 0 for amount in lost.values())
    assert min(left.values()) >= 0
    if lost:  # whoever loses something keeps as much as anybody
        assert min(left[owner] for owner in lost) == max(left.values())


def test_a_large_conversation_is_removed_in_small_transactions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the first on nobody sees it any more, and when the gateway stops in between, the next sweep goes on."""
    monkeypatch.setattr(sqlite, "_BATCH_SIZE", 50)

    async def run() -> None:
        store = SqliteStore(tmp_path / "store.db")
        entries, appended = conversation("conv_1", 400, 100, 0.0)
        assert await store.put(entries, appended=appended) is True
        removed = await store.worker.run_work(lambda file, now: sqlite._shrink(file, now, 0))
        assert removed == 50
        assert await store.get("me", "conversation", ["conv_1"]) == []
        await store.close()
        store = SqliteStore(tmp_path / "store.db")
        assert await store.sweep() == SweepResult(351, 0)
        assert [one async for one in store.export()] == []
        await store.close()

    asyncio.run(run())


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(1, 400_000), st.integers(0, 50), st.booleans()), min_size=5, max_size=40))
def test_the_file_never_becomes_larger(tmp_path_factory: pytest.TempPathFactory, writes: list[Any]) -> None:
    """Not even between two sweeps: after every write the file has at most `max_bytes`, and the log beside it little."""
    file = tmp_path_factory.mktemp("store") / "store.db"

    async def run() -> None:
        clock = Clock()
        store = SqliteStore(file, max_bytes=LIMIT, clock=clock)
        for number, (size, life, again) in enumerate(writes):
            id = f"r{number - 1 if again else number}"
            entry = Entry(owner="me", kind="response", id=id, body=os.urandom(size), expires=clock() + 100 + life)
            assert await store.put([entry]) is True
            clock.time += 1
            assert file.stat().st_size <= LIMIT
        await store.close()

    asyncio.run(run())


def test_writers_at_the_same_time_keep_the_limit(tmp_path: Path) -> None:
    async def run() -> None:
        one, other = (SqliteStore(tmp_path / "store.db", max_bytes=LIMIT) for _ in range(2))
        for round in range(10):
            entries = [
                Entry(owner="me", kind="response", id=f"r{round}-{number}", body=os.urandom(60_000))
                for number in range(20)
            ]
            done = await asyncio.gather(*((one, other)[place % 2].put([entry]) for place, entry in enumerate(entries)))
            assert set(done) == {True}
            assert (tmp_path / "store.db").stat().st_size <= LIMIT
        await one.close()
        await other.close()

    asyncio.run(run())


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_sweep_shrinks_a_store_that_is_too_large(tmp_path: Path, backend: str) -> None:
    """As after a lower `max_bytes`: what would expire first goes, until there is some room."""

    async def run() -> None:
        clock = Clock()
        async with open_store(backend, tmp_path, clock=clock) as store:
            for number in range(60):
                body, expires = os.urandom(50_000), clock() + 1000 + (number * 7) % 60
                await store.put([Entry(owner="me", kind="response", id=f"r{number:02}", body=body, expires=expires)])
        async with open_store(backend, tmp_path, max_bytes=LIMIT, clock=clock) as store:
            swept = await store.sweep()
            assert isinstance(swept, SweepResult)
            assert swept.expired == 0
            assert 20 < swept.crowded < 50
            left = [one async for one in store.export("me") if isinstance(one, Entry)]
            assert len(left) == 60 - swept.crowded
            assert {one.expires - clock() - 1000 for one in left} == set(range(swept.crowded, 60))
            assert LIMIT / 2 < sum(len(one.body) for one in left) <= LIMIT * 0.9
            assert await store.sweep() == SweepResult(0, 0)

    asyncio.run(run())


def test_what_is_larger_than_the_store_is_refused(tmp_path: Path) -> None:
    """It must not push everything else out."""

    async def run() -> None:
        store = SqliteStore(tmp_path / "store.db", max_bytes=LIMIT)
        assert await store.put([Entry(owner="me", kind="response", id="small", body=b"1")]) is True
        down = await store.put([Entry(owner="me", kind="response", id="large", body=bytes(LIMIT))])
        assert isinstance(down, StoreDown)
        assert "too large" in down.reason
        found = await store.get("me", "response", ["small", "large"])
        assert isinstance(found, list)
        assert [one.id for one in found] == ["small"]
        await store.close()

    asyncio.run(run())


def test_an_entry_larger_than_a_transaction_does_not_end_a_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "_BATCH_BYTES", 100_000)

    async def run() -> None:
        store = SqliteStore(tmp_path / "store.db")
        for number in range(3):
            root = Entry(owner="me", kind="response", id=f"r{number}", body=bytes(200_000))
            events = [Entry(owner="me", kind="event", id=f"e{number}{n}", parent=root.id, body=b"x") for n in range(3)]
            assert await store.put([root, *events]) is True
        await store.close()
        store = SqliteStore(tmp_path / "store.db", max_bytes=200_000)
        assert isinstance(await store.sweep(), SweepResult)
        assert (tmp_path / "store.db").stat().st_size <= 200_000
        await store.close()

    asyncio.run(run())
