"""Edge cases of the Responses state: invalid requests, races between gateways, and losses."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import http.client
import json
import os
import re
import signal
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from forked_commands import run_command
from gateway.clients import KEY
from gateway.conftest import configuration as gateway_configuration
from gateway.process import run_gateway
from gateway.provider import PROTOCOLS, Hold, Provider, ScriptedAnswer, Step
from gateway.raw_exchange import (
    PROVIDER_KEY,
    RawAnswer,
    RawConnection,
    answer,
    ask,
    body_of,
    frames,
    stage,
    write_chunked,
)
from gateway.state_clients import (
    BACKGROUND_LEASE,
    MODEL,
    ResponsesClient,
    assert_received,
    gateway_with_store,
    item_texts,
    open_client,
    read_error,
    store_url,
    without_reasoning,
)
from toolwire.gateway.features.responses.background import BackgroundJob, store_ending
from toolwire.gateway.features.responses.recorder import StoringRecorder, number_frames
from toolwire.gateway.features.responses.response_objects import (
    StateOptions,
    write_pending_response,
    write_terminal_event,
)
from toolwire.gateway.settings.config import StoreSettings as Settings
from toolwire.gateway.store.repository import StateRepository
from toolwire.gateway.store.sqlite import SqliteStore
from toolwire.gateway.store.store import Entry, StoreDown
from toolwire.protocols.openai_responses.names import UNFINISHED_STATUSES
from toolwire_conformance.peers.peer import encode_json, read_frames
from waits import PATIENCE

EVERYWHERE = pytest.mark.parametrize("target", PROTOCOLS)
# The SDK's parsed subclasses do not match the types of the fields that hold them when it sends them back.
pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("review")


@pytest.fixture(scope="module")
def base(provider: Provider, folder: Path) -> Iterator[str]:
    with gateway_with_store(folder, provider) as url:
        yield url


@pytest.fixture(scope="module")
def other(provider: Provider, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Another gateway with the same store."""
    with gateway_with_store(
        tmp_path_factory.mktemp("other"), provider, f'url = "{store_url(folder)}"\n{BACKGROUND_LEASE}'
    ) as url:
        yield url


@pytest.fixture(scope="module")
def client(base: str) -> Iterator[ResponsesClient]:
    with open_client(base) as made:
        yield made


@pytest.fixture
def hold() -> Iterator[Hold]:
    made = Hold()
    yield made
    made.release()
    made.close()


# --- invalid requests -------------------------------------------------------------------------------------------------

SANE = frozenset({*range(200, 210), *range(400, 432), 503})
ODD: dict[str, Any] = {
    "null": None,
    "true": True,
    "a number": 10**30,
    "a fraction": -0.5,
    "an empty text": "",
    "a long text": "x" * 100_000,
    "a zero": "resp_\x00",
    "no characters": "\U0010ffff\u202e\U0001f600",
    "a path": "../../v1/models",
    "a list": [],
    "lists": [[[]]],
    "an object": {},
    "objects": {"id": {"id": {"id": 1}}},
    "a list of nulls": [None],
    "many": [{"role": "user", "content": "x"}] * 3000,
    "odd items": [{"type": kind, "id": id} for kind in (None, 5, "message", "item_reference") for id in (None, 5, "")],
}
IDS = ("", "x" * 8000, "a%00b", "%ff%fe", "%F0%9F%98%80", "..", "%2e%2e", "a%2Fb", "';--", "%", "%zz", "\\", "%25")
QUERIES = (
    "stream=true&starting_after=%C2%B2",
    f"stream=true&starting_after={'9' * 5000}",
    "stream=true&starting_after=--1",
    "stream=true&starting_after=-",
    "stream=true&starting_after=",
    "stream=1&starting_after=99999999999999999999",
    f"limit={'9' * 5000}",
    "limit=%C2%B2",
    "limit=-0&order=",
    "after=%00&limit=1",
    f"after={'x' * 9000}",
    "order=asc&order=desc&limit=1&limit=2",
    "include[]=x&include%5B%5D=%ff",
    "&&&===",
)


def assert_valid_reply(got: RawAnswer, what: object) -> None:
    """Check that a reply is valid, whatever the request was."""
    assert got.status in SANE, (what, got.status, got.data[:500])
    if got.data.startswith((b"event:", b"data:", b":")):
        return
    told = json.loads(got.data)
    if got.status >= 400:
        assert told["error"]["message"], what


@pytest.fixture(scope="module")
def existing_ids(client: ResponsesClient, provider: Provider) -> tuple[str, str]:
    talk = provider.script(ScriptedAnswer("Here."))
    answer = client.turn(MODEL["anthropic"], talk.mark)
    room = client.sdk.conversations.create(items=[{"type": "message", "role": "user", "content": "One."}])
    return answer.id, room.id


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "PUT", "PATCH", "OPTIONS"])
def test_odd_ids(client: ResponsesClient, existing_ids: tuple[str, str], method: str) -> None:
    for id in IDS:
        for path in (
            f"/responses/{id}",
            f"/responses/{id}/cancel",
            f"/responses/{id}/input_items",
            f"/conversations/{id}",
            f"/conversations/{id}/items",
            f"/conversations/{id}/items/{id}",
            f"/conversations/{existing_ids[1]}/items/{id}",
        ):
            assert_valid_reply(client.raw(method, path, {} if method == "POST" else None), (method, path[:80]))


@pytest.mark.parametrize("query", QUERIES, ids=range(len(QUERIES)))
def test_odd_queries(client: ResponsesClient, existing_ids: tuple[str, str], query: str) -> None:
    answer, room = existing_ids
    for path in (f"/responses/{answer}", f"/responses/{answer}/input_items", f"/conversations/{room}/items"):
        assert_valid_reply(client.raw("GET", f"{path}?{query}"), (path, query[:80]))


@pytest.mark.parametrize("odd", ODD)
def test_odd_bodies(client: ResponsesClient, odd: str) -> None:
    value = ODD[odd]
    room = client.sdk.conversations.create().id
    for path, keys in {
        "/conversations": ("items", "metadata", "model", "stream"),
        f"/conversations/{room}": ("metadata",),
        f"/conversations/{room}/items": ("items",),
        "/responses/compact": ("model", "input", "previous_response_id", "conversation", "instructions", "tools"),
        f"/responses/{quote(room)}/cancel": ("x",),
    }.items():
        assert_valid_reply(client.raw("POST", path, value), (path, odd))
        for key in keys:
            assert_valid_reply(client.raw("POST", path, {"model": "m-chat", key: value}), (path, key, odd))


KEYS = (
    "input previous_response_id conversation store background metadata instructions tools include text reasoning model "
    "tool_choice stream temperature max_output_tokens parallel_tool_calls truncation user prompt service_tier"
).split()


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("more", [{}, {"background": True}, {"background": True, "stream": True}], ids=str)
def test_odd_requests_for_answers(client: ResponsesClient, odd: str, more: dict[str, Any]) -> None:
    for key in KEYS:
        body = {"model": MODEL["anthropic"], "input": "No script knows this.", **more, key: ODD[odd]}
        assert_valid_reply(client.raw("POST", "/responses", body), (key, odd))


def test_deep_bodies(client: ResponsesClient) -> None:
    for depth in (900, 5000, 100_000):
        deep = b"[" * depth + b"]" * depth
        for path in ("/conversations", "/responses", "/responses/compact"):
            for body in (deep, b'{"model":"m-chat","input":"x","items":%b,"metadata":%b}' % (deep, deep)):
                assert_valid_reply(client.raw("POST", path, body), (path, depth))
        body = b'{"model":"m-chat","input":[{"type":"message","role":"user","content":%b}],"background":true}' % deep
        assert_valid_reply(client.raw("POST", "/responses", body), depth)


# --- owners -----------------------------------------------------------------------------------------------------------

ROUNDABOUT = (
    ("HEAD", "/v1/responses/{id}"),
    ("GET", "/v1/responses//{id}"),
    ("GET", "/v1/responses/{id}/input_items/"),
    ("PUT", "/v1/responses/{id}"),
    ("GET", "/v1/conversations/{id}/items/"),
    ("GET", "/v1/files/../responses/{id}"),
    ("GET", "/v1/files/%2e%2e/responses/{id}"),
    ("GET", "/v1/embeddings//..//responses/{id}"),
    ("GET", "/v1/responses/%2e%2e/responses/{id}"),
)


@pytest.mark.parametrize(("method", "path"), ROUNDABOUT)
def test_paths_of_stored_objects_are_not_passed_through(tmp_path: Path, method: str, path: str) -> None:
    """All keys share the provider's account: what is stored there may be another client's."""
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    keys = f'[[server.keys]]\nname = "one"\nsha256 = "{digest}"\n[store]\nurl = "{store_url(tmp_path)}"\n'
    with stage(tmp_path, more=keys) as served:
        scene = served.scene("openai-responses", answer(200, b'{"id":"resp_of_another"}'))
        headers = {"authorization": f"Bearer {KEY}", "x-mark": f"-{scene.mark}"}
        got = ask(served.port, method, path.format(id=f"resp-{scene.mark}"), b"", headers)
    assert scene.asked == []
    assert got.status in (400, 404)


# --- background responses ---------------------------------------------------------------------------------------------


def open_stream(base: str, method: str, path: str, body: Any = None) -> RawConnection:
    """A stream that has started."""
    line = RawConnection(urlsplit(base).port or 0)
    data = b"" if body is None else encode_json(body).encode()
    line.send(method, f"/v1{path}", data, {"authorization": f"Bearer {KEY}"})
    assert line.start().status == 200
    return line


def read_rest(line: RawConnection) -> bytes:
    data = b""
    while piece := line.read_some():
        data += piece
    line.disconnect()
    return data


def events(data: bytes) -> list[dict[str, Any]]:
    return [frame.data for frame in read_frames(data.decode())]


def start_background(base: str, model: str, prompt: str, **more: Any) -> tuple[RawConnection, bytes, str]:
    """Start a background response as a stream: the connection, its first data, and the response's id."""
    line = open_stream(base, "POST", "/responses", {"model": model, "input": prompt, "background": True, **more})
    data = line.read_until(b"response.queued")
    while not data.endswith(b"\n\n"):
        data += line.read_some()
    return line, data, events(data)[0]["response"]["id"]


@EVERYWHERE
def test_the_id_is_sent_before_the_provider_answers(
    base: str, client: ResponsesClient, provider: Provider, target: str, hold: Hold
) -> None:
    """Else a client whose connection breaks could not resume."""
    talk = provider.script(Step(ScriptedAnswer("Late."), hold=hold))
    line, first, id = start_background(base, MODEL[target], talk.mark, stream=True)
    assert hold.reached.wait(PATIENCE)
    assert [(event["type"], event["sequence_number"]) for event in events(first)] == [
        ("response.created", 0),
        ("response.queued", 1),
    ]
    assert client.sdk.responses.retrieve(id).status in ("queued", "in_progress")
    hold.release()
    told = events(first + read_rest(line))
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    kinds = [event["type"] for event in told]
    assert (kinds.count("response.created"), kinds[2], kinds[-1]) == (1, "response.in_progress", "response.completed")
    assert {event["response"]["id"] for event in told if "response" in event} == {id}
    again = client.raw("GET", f"/responses/{id}?stream=true&starting_after=3")
    assert events(again.data) == told[4:]


STOPS = {"cancel": ("POST", "/cancel"), "delete": ("DELETE", "")}


@pytest.mark.parametrize("how", STOPS)
@pytest.mark.parametrize("where", ["here", "elsewhere"])
def test_followers_see_the_end_of_a_cancelled_response(
    base: str, other: str, client: ResponsesClient, provider: Provider, hold: Hold, how: str, where: str
) -> None:
    talk = provider.script(Step(ScriptedAnswer("Words that never come."), hold=hold, after=3))
    line, _, id = start_background(base, MODEL["openai-responses"], talk.mark, stream=True)
    assert hold.reached.wait(PATIENCE)
    read = open_stream(base if where == "here" else other, "GET", f"/responses/{id}?stream=true")
    read.read_until(b"response.queued")
    method, path = STOPS[how]
    assert client.raw(method, f"/responses/{id}{path}").status == 200
    for last in (events(read_rest(line))[-1], events(read_rest(read))[-1]):
        told = last["response"]
        assert (last["type"], told["id"], told["status"]) == ("response.failed", id, "cancelled")


def without_numbers(frames: list[bytes]) -> bytes:
    bare = [re.sub(rb',?"sequence_number":\d+', b"", frame) for frame in frames]
    return write_chunked(b": hello\n\n", *bare)


def test_a_provider_without_sequence_numbers(tmp_path: Path) -> None:
    with stage(tmp_path, more=f'[store]\nurl = "{store_url(tmp_path)}"\n') as served:
        scene = served.scene("openai-responses", without_numbers(frames("openai-responses", "Words, and more words.")))
        body = {"model": scene.model, "input": "Hello", "background": True, "stream": True}
        got = ask(served.port, "POST", "/v1/responses", encode_json(body).encode())
        told = events(got.data)
        assert [event["sequence_number"] for event in told] == list(range(len(told)))
        assert told[-1]["type"] == "response.completed", told[-1]
        again = ask(served.port, "GET", f"/v1/responses/{told[0]['response']['id']}?stream=true")
        assert events(again.data) == told


# --- losses -----------------------------------------------------------------------------------------------------------


def answer_with_fixed_ids(text: str, number: int) -> bytes:
    """A response of a server that gives its items the same ids in every response."""
    body = body_of("openai-responses", ScriptedAnswer(text)) | {"id": f"resp_fixed{number}"}
    body["output"] = [{**item, "id": "msg_1"} for item in body["output"]]
    return answer(200, encode_json(body).encode())


def test_a_provider_that_repeats_item_ids(tmp_path: Path) -> None:
    with stage(tmp_path, more=f'[store]\nurl = "{store_url(tmp_path)}"\n') as served, open_client(served.url) as client:
        scene = served.scene(
            "openai-responses", *(answer_with_fixed_ids(f"Answer {number}.", number) for number in range(4))
        )
        room, other = (client.sdk.conversations.create().id for _ in range(2))
        for conversation in (room, other, room):
            client.turn(scene.model, "Next?", conversation=conversation)
        client.turn(scene.model, "Alone?")  # its item must not take the place of one in a conversation
        told = client.sdk.conversations.items.list(room, order="asc").data
        assert item_texts(told) == ["Next?", "Answer 0.", "Next?", "Answer 2."]
        assert len({item.id for item in told}) == 4
        assert item_texts(client.sdk.conversations.items.list(other, order="asc").data) == ["Next?", "Answer 1."]


@EVERYWHERE
def test_a_reference_in_a_conversation_is_stored_once(client: ResponsesClient, provider: Provider, target: str) -> None:
    talk = provider.script(ScriptedAnswer("One."), ScriptedAnswer("Two."), ScriptedAnswer("Three."))
    room = client.sdk.conversations.create().id
    client.turn(MODEL[target], talk.mark, conversation=room)
    (said, *_) = client.sdk.conversations.items.list(room, order="asc").data
    named: Any = [{"type": "item_reference", "id": said.id}, {"role": "user", "content": "Again."}]
    client.turn(MODEL[target], named, conversation=room)
    client.turn(MODEL[target], "Last.", conversation=room)
    assert_received(talk.asked[2], talk.mark, "One.", "Again.", "Two.", "Last.")
    assert "item_reference" not in talk.asked[2].raw
    listed = client.sdk.conversations.items.list(room, order="asc", limit=100).data
    assert item_texts(without_reasoning(listed)) == [talk.mark, "One.", "Again.", "Two.", "Last.", "Three."]


FULL = """CREATE TRIGGER full BEFORE INSERT ON entries WHEN NEW.kind = 'response'
    BEGIN SELECT RAISE(ABORT, 'no room'); END"""


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_turn_is_stored_completely_or_not_at_all(provider: Provider, tmp_path: Path, stream: bool) -> None:
    """A response that says it was not stored must not be in the conversation: the client repeats the request."""
    talk = provider.script(ScriptedAnswer("One."), ScriptedAnswer("Two."))
    with gateway_with_store(tmp_path, provider) as base, open_client(base) as client:
        room = client.sdk.conversations.create().id
        with closing(sqlite3.connect(tmp_path / "store.db")) as file:
            file.execute(FULL)
        lost = client.turn(MODEL["anthropic"], talk.mark, stream, conversation=room)
        assert (lost.store, lost.conversation) == (False, None)
        assert client.sdk.conversations.items.list(room).data == []
        with closing(sqlite3.connect(tmp_path / "store.db")) as file:
            file.execute("DROP TRIGGER full")
        kept = client.turn(MODEL["anthropic"], talk.mark, stream, conversation=room)
        assert client.sdk.responses.retrieve(kept.id).output_text == "Two."
        assert item_texts(client.sdk.conversations.items.list(room, order="asc").data) == [talk.mark, "Two."]


@EVERYWHERE
def test_an_unknown_reference_without_a_type(client: ResponsesClient, provider: Provider, target: str) -> None:
    talk = provider.script(ScriptedAnswer("One."), ScriptedAnswer("Two."))
    first = client.turn(MODEL[target], talk.mark)
    id = without_reasoning(first.output)[0].id
    body = {"model": MODEL[target], "store": False, "input": [{"role": "user", "content": talk.mark}]}
    body["input"] += [{"type": None, "id": id}, {"role": "user", "content": "Next."}]
    assert client.raw("POST", "/responses", body).status == 200
    assert_received(talk.asked[1], talk.mark, "One.", "Next.")


@pytest.mark.parametrize("how", ["at once", "added"])
def test_references_in_a_new_conversation(client: ResponsesClient, provider: Provider, how: str) -> None:
    talk = provider.script(ScriptedAnswer("One."), ScriptedAnswer("Two."))
    first = client.turn(MODEL["anthropic"], talk.mark)
    items: Any = [{"role": "user", "content": talk.mark}, {"type": "item_reference", "id": first.output[0].id}]
    if how == "at once":
        room = client.sdk.conversations.create(items=items).id
    else:
        room = client.sdk.conversations.create().id
        client.sdk.conversations.items.create(room, items=items)
    client.turn(MODEL["anthropic"], "Next.", conversation=room)
    assert_received(talk.asked[1], talk.mark, "One.", "Next.")
    items[1]["id"] = "msg_of_nobody"
    for path in ("/conversations", f"/conversations/{room}/items"):
        got = client.raw("POST", path, {"items": items})
        assert (got.status, read_error(got)["message"]) == (404, "Item with id 'msg_of_nobody' not found.")


def test_a_failed_response_is_stored_as_failed(tmp_path: Path) -> None:
    body = body_of("openai-responses", ScriptedAnswer("Half.")) | {"id": "resp_failed", "status": "failed"}
    body["error"] = {"code": "server_error", "message": "Something broke."}
    with stage(tmp_path, more=f'[store]\nurl = "{store_url(tmp_path)}"\n') as served:
        scene = served.scene("openai-responses", answer(200, encode_json(body).encode()))
        asked = {"model": scene.model, "input": "Hello"}
        told = ask(served.port, "POST", "/v1/responses", encode_json(asked).encode()).json()
        assert (told["id"], told["status"]) == ("resp_failed", "failed")
        assert ask(served.port, "GET", "/v1/responses/resp_failed").json() == told


def test_a_key_in_a_provider_error_is_redacted(tmp_path: Path) -> None:
    said = encode_json({"error": {"message": f"Incorrect API key provided: {PROVIDER_KEY}", "type": "x", "code": None}})
    with stage(tmp_path) as served:
        scene = served.scene("openai-responses", answer(401, said.encode()))
        asked = {"model": scene.model, "input": "Hello"}
        got = ask(served.port, "POST", "/v1/responses/compact", encode_json(asked).encode())
    assert got.status == 401
    assert PROVIDER_KEY.encode() not in got.data


def test_a_conversation_expires_with_its_items(provider: Provider, tmp_path: Path) -> None:
    """Else its first items would expire before it, and the model would miss how it began."""
    talk = provider.script(ScriptedAnswer("One."), ScriptedAnswer("Two."))
    with gateway_with_store(tmp_path, provider) as base, open_client(base) as client:
        room = client.sdk.conversations.create(items=[{"type": "message", "role": "user", "content": talk.mark}]).id
        client.turn(MODEL["anthropic"], "Early.", conversation=room)
        with closing(sqlite3.connect(tmp_path / "store.db")) as file, file:
            (now,) = file.execute("SELECT max(created) FROM entries").fetchone()
            half = now + 15 * 24 * 3600
            file.execute("UPDATE entries SET expires = ? - 60 WHERE id = ?", (half, room))
            file.execute("UPDATE entries SET expires = ? + 60 WHERE kind = 'item'", (half,))
        client.turn(MODEL["anthropic"], "Late.", conversation=room)
        client.sdk.conversations.update(room, metadata={"a": "b"})
        with closing(sqlite3.connect(tmp_path / "store.db")) as file:
            (ends,) = file.execute("SELECT expires FROM entries WHERE id = ?", (room,)).fetchone()
            (first,) = file.execute("SELECT min(expires) FROM entries WHERE parent = ?", (room,)).fetchone()
        assert half + 60 < ends <= first


# --- several gateways and workers -------------------------------------------------------------------------------------


def test_workers_share_background_responses(provider: Provider, tmp_path: Path, hold: Hold) -> None:
    """Any worker may get any request: one retrieves, follows or cancels a response that another one makes."""
    file = tmp_path / "toolwire.toml"
    file.write_text(
        f'{gateway_configuration(provider.url)}[store]\nurl = "{store_url(tmp_path)}"\nbackground_lease = 9\n'
    )
    talk = provider.script(ScriptedAnswer("Done."), Step(ScriptedAnswer("Never."), hold=hold, after=3))
    with run_gateway(tmp_path, "--config", str(file), "--workers", "2") as process:
        base = f"http://127.0.0.1:{process.port}"
        with open_client(base) as client:
            id = client.raw("POST", "/responses", background_body(talk.mark)).json()["id"]
            for _ in range(8):  # each connection is some worker's
                told = events(read_rest(open_stream(base, "GET", f"/responses/{id}?stream=true")))
                assert [event["sequence_number"] for event in told] == list(range(len(told)))
                assert told[-1]["response"]["status"] == "completed"
            id = client.raw("POST", "/responses", background_body(talk.mark)).json()["id"]
            assert hold.reached.wait(PATIENCE)
            readers = [open_stream(base, "GET", f"/responses/{id}?stream=true") for _ in range(8)]
            assert {client.raw("GET", f"/responses/{id}").json()["status"] for _ in range(8)} <= UNDER_WAY
            live = [run_store_command(tmp_path, file, *verb) for verb in (("stats",), ("gc",), ("export",))]
            assert id in live[2]
            assert client.raw("POST", f"/responses/{id}/cancel").json()["status"] == "cancelled"
            assert hold.gone.wait(PATIENCE)
            for reader in readers:
                assert events(read_rest(reader))[-1]["response"]["status"] == "cancelled"


UNDER_WAY = {"queued", "in_progress"}


def background_body(prompt: str) -> dict[str, Any]:
    return {"model": MODEL["anthropic"], "input": prompt, "background": True}


def run_store_command(folder: Path, file: Path, *verb: str) -> str:
    """The output of `toolwire store` while gateways use the same store."""
    done = run_command(["store", *verb, "--config", str(file)], folder, os.environ)
    assert done.code == 0, done
    return done.out


@pytest.mark.parametrize("signals", [1, 2])
def test_background_responses_fail_when_the_gateway_stops(
    provider: Provider, tmp_path: Path, hold: Hold, signals: int
) -> None:
    file = tmp_path / "toolwire.toml"
    text = gateway_configuration(provider.url).replace('log_format = "none"', 'log_format = "text"')
    text += f'[server.timeouts]\nshutdown = {0.5 if signals == 1 else 60}\ndrain = 0\n[store]\nurl = "{store_url(tmp_path)}"\nbackground_lease = 1000\n'
    file.write_text(text)
    talk = provider.script(Step(ScriptedAnswer("Never."), hold=hold, after=3))
    with run_gateway(tmp_path, "--config", str(file)) as process:
        line, _, id = start_background(f"http://127.0.0.1:{process.port}", MODEL["anthropic"], talk.mark, stream=True)
        assert hold.reached.wait(PATIENCE)
        process.signal(signal.SIGTERM)
        process.wait_until_refusing()
        if signals == 2:
            process.signal(signal.SIGTERM)
        assert process.wait_for_exit() == 0
        with contextlib.suppress(ConnectionError, http.client.IncompleteRead):
            assert b"response.completed" not in read_rest(line)
        line.disconnect()
    with gateway_with_store(tmp_path, provider, keys=()) as base, open_client(base) as client:
        told = client.sdk.responses.retrieve(id)
        assert (told.status, told.error.code) == ("failed", "server_error")


class SlowStore(SqliteStore):
    """A store whose writes wait until the test lets them through."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.go, self.waiting = asyncio.Event(), asyncio.Queue[None]()
        self.go.set()

    async def put(
        self, entries: Sequence[Entry], where: tuple[str, ...] = (), behind: Sequence[Entry] = ()
    ) -> bool | StoreDown:
        self.waiting.put_nowait(None)
        await self.go.wait()
        return await super().put(entries, where, behind)


def make_job(book: StateRepository, conversation: str = "") -> tuple[BackgroundJob, StoringRecorder]:
    wants = StateOptions(store=True, background=True, conversation=conversation)
    items: list[Any] = [{"role": "user", "content": "Hello", "id": "msg_asked"}]
    keeper = StoringRecorder(book, "me", wants, items, ("resp_job", 1))
    queued, running = (
        {**write_pending_response({"model": "m"}, 1, status), **keeper.overrides} for status in UNFINISHED_STATUSES
    )
    return BackgroundJob(book, keeper, queued, running), keeper


def delta_frame(text: str) -> bytes:
    return b"data: " + encode_json({"type": "response.output_text.delta", "delta": text}).encode() + b"\n\n"


def test_a_lease_renewed_while_a_piece_is_stored(tmp_path: Path) -> None:
    """Two writers of the same piece must not mark the next one as stored."""

    async def run() -> list[int]:
        store = SlowStore(tmp_path / "store.db")
        job, _ = make_job(StateRepository(store, Settings(), lambda kind, what: None))
        assert await job.store_queued() is True
        store.go.clear()
        job.add_frames(delta_frame("one") + delta_frame("two"))
        both = [asyncio.ensure_future(job.store_progress()) for _ in range(2)]
        await store.waiting.get()
        await store.waiting.get()
        store.go.set()
        assert await asyncio.gather(*both) == [True, True]
        job.add_frames(delta_frame("three") + delta_frame("four"))
        assert await job.store_progress() is True
        pieces = await store.get_children("me", "events", "resp_job")
        assert not isinstance(pieces, StoreDown)
        await store.close()
        return [number for piece in pieces for number, _ in number_frames(piece.body)]

    assert asyncio.run(run()) == [0, 1, 2, 3, 4, 5]


def test_cancelling_at_the_very_end(tmp_path: Path) -> None:
    """The client was told that it is cancelled: it must not be in the conversation, and its items not be found."""

    async def run() -> None:
        store = SlowStore(tmp_path / "store.db")
        book = StateRepository(store, Settings(), lambda kind, what: None)
        job, keeper = make_job(book, "conv_1")
        assert await job.store_queued() is True
        entry = await book.get_one("me", "response", "resp_job")
        assert isinstance(entry, Entry)
        done = {**job.response, "status": "completed", "output": [{"type": "message", "id": "msg_1", "content": []}]}
        parts = await keeper.linked_entries(done)
        assert not isinstance(parts, StoreDown)
        assert await store_ending(book, entry, "cancelled", None)
        assert await job.store_end(done, write_terminal_event(done, 2), *parts) is False
        assert await job.store_progress() is False
        assert [one async for one in book.iterate_children("me", "item", "conv_1")] == []
        told = b"".join([frame async for frame in _until_done(job)])
        assert [event["type"] for event in events(told)][-1] == "response.failed"
        await store.close()

    asyncio.run(run())


async def _until_done(job: BackgroundJob) -> AsyncIterator[bytes]:
    job.mark_done()
    async for frame in job.follow_stream(-1):
        yield frame


def test_input_items_of_a_failed_response_in_a_conversation(
    base: str, client: ResponsesClient, provider: Provider
) -> None:
    """Items that were added later are not among them."""
    talk = provider.script(ScriptedAnswer("One."), Step(fails="bad"), ScriptedAnswer("Three."))
    room = client.sdk.conversations.create().id
    client.turn(MODEL["anthropic"], talk.mark, conversation=room)
    line, _, id = start_background(base, MODEL["anthropic"], "Fail.", conversation=room, stream=True)
    assert events(read_rest(line))[-1]["type"] == "response.failed"
    client.turn(MODEL["anthropic"], "Later.", conversation=room)
    listed = client.sdk.responses.input_items.list(id, order="asc").data
    assert item_texts(listed) == [talk.mark, "One.", "Fail."]
