"""What a hostile look at the gateway's state found: odd requests, races, and things that were lost without a word."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from gateway.clients import KEY
from gateway.kept import MODEL, Client, client_of, file_in, keeping
from gateway.provider import Hold, Provider, Says
from gateway.wire import Got, answer, ask, stage

# The SDK's parsed subclasses do not match the types of the fields that hold them when it sends them back.
pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("review")


@pytest.fixture(scope="module")
def base(provider: Provider, folder: Path) -> Iterator[str]:
    with keeping(folder, provider) as url:
        yield url


@pytest.fixture(scope="module")
def client(base: str) -> Iterator[Client]:
    with client_of(base) as made:
        yield made


@pytest.fixture
def hold() -> Iterator[Hold]:
    made = Hold()
    yield made
    made.release()
    made.close()


# --- odd requests -----------------------------------------------------------------------------------------------------

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


def checked(got: Got, what: object) -> None:
    """An answer that a client can read, whatever it asked for."""
    assert got.status in SANE, (what, got.status, got.data[:500])
    if got.data.startswith((b"event:", b"data:", b":")):
        return
    told = json.loads(got.data)
    if got.status >= 400:
        assert told["error"]["message"], what


@pytest.fixture(scope="module")
def there(client: Client, provider: Provider) -> tuple[str, str]:
    talk = provider.script(Says("Here."))
    answer = client.turn(MODEL["anthropic"], talk.mark)
    room = client.sdk.conversations.create(items=[{"type": "message", "role": "user", "content": "One."}])
    return answer.id, room.id


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "PUT", "PATCH", "OPTIONS"])
def test_odd_ids(client: Client, there: tuple[str, str], method: str) -> None:
    for id in IDS:
        for path in (
            f"/responses/{id}",
            f"/responses/{id}/cancel",
            f"/responses/{id}/input_items",
            f"/conversations/{id}",
            f"/conversations/{id}/items",
            f"/conversations/{id}/items/{id}",
            f"/conversations/{there[1]}/items/{id}",
        ):
            checked(client.raw(method, path, {} if method == "POST" else None), (method, path[:80]))


@pytest.mark.parametrize("query", QUERIES, ids=range(len(QUERIES)))
def test_odd_queries(client: Client, there: tuple[str, str], query: str) -> None:
    answer, room = there
    for path in (f"/responses/{answer}", f"/responses/{answer}/input_items", f"/conversations/{room}/items"):
        checked(client.raw("GET", f"{path}?{query}"), (path, query[:80]))


@pytest.mark.parametrize("odd", ODD)
def test_odd_bodies(client: Client, odd: str) -> None:
    value = ODD[odd]
    room = client.sdk.conversations.create().id
    for path, keys in {
        "/conversations": ("items", "metadata", "model", "stream"),
        f"/conversations/{room}": ("metadata",),
        f"/conversations/{room}/items": ("items",),
        "/responses/compact": ("model", "input", "previous_response_id", "conversation", "instructions", "tools"),
        f"/responses/{quote(room)}/cancel": ("x",),
    }.items():
        checked(client.raw("POST", path, value), (path, odd))
        for key in keys:
            checked(client.raw("POST", path, {"model": "m-chat", key: value}), (path, key, odd))


KEYS = (
    "input previous_response_id conversation store background metadata instructions tools include text reasoning model "
    "tool_choice stream temperature max_output_tokens parallel_tool_calls truncation user prompt service_tier"
).split()


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("more", [{}, {"background": True}, {"background": True, "stream": True}], ids=str)
def test_odd_requests_for_answers(client: Client, odd: str, more: dict[str, Any]) -> None:
    for key in KEYS:
        body = {"model": MODEL["anthropic"], "input": "No script knows this.", **more, key: ODD[odd]}
        checked(client.raw("POST", "/responses", body), (key, odd))


def test_deep_bodies(client: Client) -> None:
    for depth in (900, 5000, 100_000):
        deep = b"[" * depth + b"]" * depth
        for path in ("/conversations", "/responses", "/responses/compact"):
            for body in (deep, b'{"model":"m-chat","input":"x","items":%b,"metadata":%b}' % (deep, deep)):
                checked(client.raw("POST", path, body), (path, depth))
        body = b'{"model":"m-chat","input":[{"type":"message","role":"user","content":%b}],"background":true}' % deep
        checked(client.raw("POST", "/responses", body), depth)


# --- whose it is ------------------------------------------------------------------------------------------------------

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
def test_no_way_round_to_what_others_left_with_the_provider(tmp_path: Path, method: str, path: str) -> None:
    """All keys share the provider's account: what stands there is anybody's."""
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    keys = f'[[server.keys]]\nname = "one"\nsha256 = "{digest}"\n[store]\nurl = "{file_in(tmp_path)}"\n'
    with stage(tmp_path, more=keys) as served:
        scene = served.scene("openai-responses", answer(200, b'{"id":"resp_of_another"}'))
        headers = {"authorization": f"Bearer {KEY}", "x-mark": f"-{scene.mark}"}
        got = ask(served.port, method, path.format(id=f"resp-{scene.mark}"), b"", headers)
    assert (got.status, scene.asked) == (404, [])
