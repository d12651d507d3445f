"""A request with an `Idempotency-Key` that a client sends again is not done twice: not paid twice, and not twice in its
conversation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from faults.test_store_bounds import play, read_responses
from gateway.raw_exchange import RawAnswer, RawConnection, ScriptedConnection, Served, answer, ask, stage
from toolwire_conformance.peers.peer import encode_json
from waits import PATIENCE, poll

STREAMS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


@pytest.fixture(name="served")
def serve_gateway(tmp_path: Path) -> Iterator[tuple[Served, Served]]:
    """Two gateways on one store."""
    (tmp_path / "other").mkdir()
    store = f'[store]\nurl = "sqlite:///{tmp_path}/store.db"\n'
    with stage(tmp_path, more=store) as one, stage(tmp_path / "other", more=store) as other:
        yield one, other


def post(gateway: Served, path: str, key: str, **body: Any) -> RawAnswer:
    headers = {"idempotency-key": key} if key else {}
    return ask(gateway.port, "POST", f"/v1{path}", encode_json(body).encode(), headers)


def texts(gateway: Served, room: str) -> list[str]:
    items = ask(gateway.port, "GET", f"/v1/conversations/{room}/items?order=asc&limit=100").json()["data"]
    return [item["content"][0]["text"] for item in items]


@STREAMS
@pytest.mark.parametrize("store", [True, False])
def test_a_turn_of_a_conversation_that_is_sent_again(served: tuple[Served, Served], stream: bool, store: bool) -> None:
    one, other = served
    room = post(one, "/conversations", "").json()["id"]
    scene = one.scene("openai-responses", play("resp_1", "One.", stream), play("resp_2", "Two.", stream))
    asked = {"model": scene.model, "input": "Hi", "conversation": room, "stream": stream, "store": store}
    first = read_responses(post(one, "/responses", "key-1", **asked), stream)[-1]
    for gateway in (one, other, one):
        again = post(gateway, "/responses", "key-1", **asked)
        assert again.headers["idempotent-replayed"] == "true"
        assert read_responses(again, stream)[-1] == first
    # As a stream, or not as a stream:
    assert read_responses(post(one, "/responses", "key-1", **{**asked, "stream": not stream}), not stream)[-1] == first
    assert (len(scene.asked), texts(one, room)) == (1, ["Hi", "One."])
    second = read_responses(post(one, "/responses", "key-2", **asked), stream)[-1]
    assert second["output"][0]["id"] == "msg_Two."
    assert (len(scene.asked), texts(one, room)) == (2, ["Hi", "One.", "Hi", "Two."])


def test_without_a_key_nothing_is_the_same(served: tuple[Served, Served]) -> None:
    one, _ = served
    room = post(one, "/conversations", "").json()["id"]
    scene = one.scene("openai-responses", play("resp_1", "One.", False), play("resp_2", "Two.", False))
    for _ in range(2):
        assert post(one, "/responses", "", model=scene.model, input="Hi", conversation=room).status == 200
    assert texts(one, room) == ["Hi", "One.", "Hi", "Two."]


def test_a_turn_that_is_sent_again_while_it_is_answered(served: tuple[Served, Served]) -> None:
    """409, which SDKs try again; and then the same answer."""
    one, other = served

    def play_later(connection: ScriptedConnection) -> None:
        connection.wait_for_release()
        connection.send(play("resp_1", "One.", False))

    room = post(one, "/conversations", "").json()["id"]
    scene = one.scene("openai-responses", play_later, play("resp_2", "Two.", False))
    asked = {"model": scene.model, "input": "Hi", "conversation": room}
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(post, one, "/responses", "key", **asked)
        assert scene.reached.wait(PATIENCE)
        for gateway in served:
            refused = post(gateway, "/responses", "key", **asked)
            assert (refused.status, refused.headers["retry-after"]) == (409, "1")
        scene.go.set()
        assert first.result().status == 200
    assert post(other, "/responses", "key", **asked).json() == first.result().json()
    assert (len(scene.asked), texts(one, room)) == (1, ["Hi", "One."])


@pytest.mark.parametrize("end", ["refused", "failed", "left"])
def test_a_request_that_failed_can_be_sent_again(served: tuple[Served, Served], end: str) -> None:
    one, _ = served
    room = post(one, "/conversations", "").json()["id"]
    error = encode_json({"error": {"message": "no", "type": "x", "param": None, "code": None}}).encode()

    def play_wait(connection: ScriptedConnection) -> None:
        connection.wait_for_close()

    failed = play("resp_0", "Half.", False, status="failed", error={"code": "server_error", "message": "no"})
    bad = {"refused": answer(400, error), "failed": failed, "left": play_wait}[end]
    scene = one.scene("openai-responses", bad, play("resp_1", "One.", False))
    asked = {"model": scene.model, "input": "Hi", "conversation": room}
    if end == "left":
        line = RawConnection(one.port)
        line.send("POST", "/v1/responses", encode_json(asked).encode(), {"idempotency-key": "key"})
        assert scene.reached.wait(PATIENCE)
        line.disconnect()
        assert scene.gone.wait(PATIENCE)
    else:
        post(one, "/responses", "key", **asked)
    got = poll(lambda: post(one, "/responses", "key", **asked), lambda got: got.status != 409)
    assert got.json()["output"][0]["id"] == "msg_One."
    assert texts(one, room) == ["Hi", "One."]


def test_a_key_belongs_to_one_request(served: tuple[Served, Served]) -> None:
    one, _ = served
    scene = one.scene("openai-responses", play("resp_1", "One.", False))
    assert post(one, "/responses", "key", model=scene.model, input="Hi").status == 200
    for body in ({"input": "Bye"}, {"input": "Hi", "temperature": 1}, {"input": "Hi", "store": True}):
        refused = post(one, "/responses", "key", model=scene.model, **body)
        assert (refused.status, refused.json()["error"]["code"]) == (400, "idempotency_key_reused")
    assert post(one, "/conversations", "key").status == 400
    assert post(one, "/responses", "k" * 300, model=scene.model, input="Hi").status == 400
    assert len(scene.asked) == 1


def test_background_responses(served: tuple[Served, Served]) -> None:
    one, other = served
    scene = one.scene("openai-responses", play("resp_1", "One.", True), play("resp_2", "Two.", True))
    asked = {"model": scene.model, "input": "Hi", "background": True}
    first = post(one, "/responses", "key", **asked).json()["id"]
    assert {post(gateway, "/responses", "key", **asked).json()["id"] for gateway in served} == {first}
    followed = read_responses(post(other, "/responses", "key", **asked, stream=True), True)
    assert (followed[-1]["id"], followed[-1]["status"]) == (first, "completed")
    assert len(scene.asked) == 1


def test_conversations_and_their_items(served: tuple[Served, Served]) -> None:
    one, other = served
    made = {
        json.dumps(post(gateway, "/conversations", "new", metadata={"a": "b"}).json()) for gateway in (one, other, one)
    }
    assert len(made) == 1
    room = json.loads(made.pop())["id"]
    items = [{"type": "message", "role": "user", "content": "Hi"}]
    added = {post(gateway, f"/conversations/{room}/items", "add", items=items).data for gateway in (one, other, one)}
    assert len(added) == 1
    assert texts(one, room) == ["Hi"]
    assert post(one, f"/conversations/{room}/items", "add-2", items=items).status == 200
    assert texts(one, room) == ["Hi", "Hi"]
