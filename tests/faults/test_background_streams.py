"""The stream of a background response is the same for everybody who follows it, from whatever event, through whatever
gateway: no event is lost, repeated or renumbered, however slowly the store writes while events arrive."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.raw_exchange import ScriptedConnection, Served, ask, stage
from toolwire.core.json_values import encode
from toolwire.core.sse import write_event_frame
from toolwire.gateway.features.responses import background
from toolwire.gateway.features.responses.background import BackgroundJob, follow_remote_job
from toolwire.gateway.features.responses.recorder import StoringRecorder
from toolwire.gateway.features.responses.response_objects import StateOptions, write_pending_response
from toolwire.gateway.settings.config import StoreSettings
from toolwire.gateway.store.repository import RESPONSE, StateRepository
from toolwire.gateway.store.sqlite import SqliteStore
from toolwire.gateway.store.store import Entry, Store, StoreDown
from toolwire_conformance.peers.peer import encode_json
from waits import PATIENCE

PIECES = [f"word {number} " for number in range(400)]
TEXT = "".join(PIECES)


def write_frames() -> list[bytes]:
    """A long answer of a Responses provider, one event for each word."""
    message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"}
    part = {"type": "output_text", "text": TEXT, "annotations": [], "logprobs": []}
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    response: dict[str, Any] = {
        "id": "resp_of_the_provider", "object": "response", "created_at": 1, "model": "m", "status": "in_progress",
        "output": [], "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
    }  # fmt: skip
    done = {**response, "status": "completed", "output": [{**message, "content": [part]}]}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": response},
        {"type": "response.in_progress", "response": response},
        {"type": "response.output_item.added", "output_index": 0, "item": {**message, "content": []}},
        {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
        *({"type": "response.output_text.delta", **place, "delta": piece, "logprobs": []} for piece in PIECES),
        {"type": "response.output_text.done", **place, "text": TEXT, "logprobs": []},
        {"type": "response.content_part.done", **place, "part": part},
        {"type": "response.output_item.done", "output_index": 0, "item": {**message, "content": [part]}},
        {"type": "response.completed", "response": done},
    ]
    return [
        write_event_frame(event["type"], encode_json({**event, "sequence_number": number}).encode())
        for number, event in enumerate(events)
    ]


def play_answer(connection: ScriptedConnection) -> None:
    connection.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    connection.chunk(*write_frames())
    connection.send(b"0\r\n\r\n")


@pytest.fixture(name="served")
def serve_gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Served, Served]]:
    """Two gateways on one store, which write all the time while a stream comes, to renew the lease."""
    monkeypatch.setattr(background, "RENEWALS_PER_LEASE", 500 * PATIENCE)
    monkeypatch.setattr(background, "POLL_SECONDS", 0.001)
    (tmp_path / "other").mkdir()
    store = f'[store]\nurl = "sqlite:///{tmp_path}/store.db"\nbackground_lease = {PATIENCE}\n'
    with stage(tmp_path, more=store) as one, stage(tmp_path / "other", more=store) as other:
        yield one, other


def read_stream(gateway: Served, id: str, after: int = -1) -> list[Any]:
    got = ask(gateway.port, "GET", f"/v1/responses/{id}?stream=true&starting_after={after}")
    assert got.status == 200, got.data
    return [frame.data for frame in got.frames]


def read_deltas(events: Sequence[Any]) -> str:
    return "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")


def test_every_resume_of_every_follower_sees_every_event(served: tuple[Served, Served]) -> None:
    one, other = served
    for _ in range(2):
        scene = one.scene("openai-responses", play_answer)
        body = encode_json({"model": scene.model, "input": "Go.", "background": True, "stream": True}).encode()
        live = [frame.data for frame in ask(one.port, "POST", "/v1/responses", body).frames]
        assert [event["sequence_number"] for event in live] == list(range(len(live)))
        assert (read_deltas(live), live[-1]["type"]) == (TEXT, "response.completed")
        id = live[-1]["response"]["id"]
        for gateway in served:
            assert read_stream(gateway, id) == live
        for after in range(0, len(live), 2):
            assert read_stream(other, id, after) == live[after + 1 :]


def test_followers_of_a_running_response(served: tuple[Served, Served]) -> None:
    """They ask while it is made, so some of its events come from the store and some as they are made."""
    one, other = served
    for _ in range(10):
        scene = one.scene("openai-responses", play_answer)
        body = encode_json({"model": scene.model, "input": "Go.", "background": True}).encode()
        id = ask(one.port, "POST", "/v1/responses", body).json()["id"]
        followed = read_stream(other, id)
        assert [event["sequence_number"] for event in followed] == list(range(len(followed)))
        assert (read_deltas(followed), followed[-1]["type"]) == (TEXT, "response.completed")
        assert read_stream(one, id) == followed


# --- every order of arriving events and writes ------------------------------------------------------------------------


class GatedStore:
    """A store that starts and finishes a write when the test says so, or says that it cannot be reached."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.started = asyncio.Event()
        self.go: asyncio.Queue[str] = asyncio.Queue()
        self.get, self.get_children = store.get, store.get_children

    async def put(
        self, entries: Sequence[Entry] = (), required_marks: tuple[str, ...] = (), appended: Sequence[Entry] = ()
    ) -> bool | StoreDown:
        self.started.set()
        how = await self.go.get()
        done = StoreDown("gone") if how == "lost before" else await self._store.put(entries, required_marks, appended)
        return StoreDown("gone") if how == "lost after" else done


Arrivals = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.sampled_from(["written", "lost before", "lost after"])),
    max_size=6,
)


@given(Arrivals)
def test_the_stored_stream_is_the_live_stream(tmp_path_factory: pytest.TempPathFactory, rounds: Any) -> None:
    """In each round some events arrive before a write starts and some while it runs, and it may fail."""
    file = tmp_path_factory.mktemp("store") / "store.db"

    async def run() -> None:
        store = SqliteStore(file)
        gated = GatedStore(store)
        repository = StateRepository(gated, StoreSettings(), lambda *_: None)  # type: ignore[arg-type]
        recorder = StoringRecorder(repository, "", StateOptions(store=True, background=True), [], ("resp_1", 1))
        queued, running = (
            {**write_pending_response({"model": "m"}, 1, status), "id": "resp_1"}
            for status in ("queued", "in_progress")
        )
        job = BackgroundJob(repository, recorder, queued, running)
        gated.go.put_nowait("written")
        assert await job.store_queued() is True
        arrived = 0

        def arrive(count: int) -> None:
            nonlocal arrived
            for _ in range(count):
                event = {"type": "response.output_text.delta", "delta": f"{arrived},"}
                job.add_frames(write_event_frame("response.output_text.delta", encode_json(event).encode()))
                arrived += 1

        for before, during, how in rounds:
            arrive(before)
            gated.started.clear()
            storing = asyncio.create_task(job.store_progress())
            await gated.started.wait()
            arrive(during)
            gated.go.put_nowait(how)
            await storing
        end = {"type": "response.completed", "response": {**queued, "status": "completed"}}
        gated.go.put_nowait("written")
        assert await job.store_end(end["response"], write_event_frame("x", encode(end))) is True
        job.mark_done()
        live = [frame async for frame in job.follow_stream(-1)]
        entry = await repository.get_one("", RESPONSE, "resp_1")
        assert isinstance(entry, Entry)
        assert [frame async for frame in follow_remote_job(repository, entry, -1)] == live
        assert len(live) == 2 + arrived + 1
        await store.close()

    asyncio.run(run())
