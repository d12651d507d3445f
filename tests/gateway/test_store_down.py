"""A store that cannot be reached, or no store: requests that need it fail with a reason, all others work."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gateway.provider import PROTOCOLS, Hold, Provider, ScriptedAnswer, Step
from gateway.raw_exchange import CLIENTS, ask, error_of, path_of, stage, text_of
from gateway.state_clients import (
    FUNCTIONS,
    MODEL,
    OTHER_PROTOCOLS,
    ResponsesClient,
    assert_received,
    gateway_with_store,
    open_client,
    read_error,
    store_url,
)
from toolwire_conformance.peers import PEERS
from waits import PATIENCE, poll, wait_until

STREAMS = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
EVERYWHERE = pytest.mark.parametrize("target", PROTOCOLS)
# The SDK's parsed subclasses do not match the types of the fields that hold them when it sends them back.
pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")

PARIS = ("get_weather", {"city": "Paris"})
SECRET = "hush-4711"
WAYS = ["a folder in its place", "no database", "nobody at the port"]


@dataclass(frozen=True)
class StoreDownGateway:
    """A gateway whose store cannot be reached."""

    client: ResponsesClient
    folder: Path
    way: str


@pytest.fixture(scope="module", params=WAYS)
def gone(provider: Provider, tmp_path_factory: pytest.TempPathFactory, request: Any) -> Iterator[StoreDownGateway]:
    way: str = request.param
    folder = tmp_path_factory.mktemp("gone")
    with (
        make_broken_store(folder, way) as url,
        gateway_with_store(folder, provider, f'url = "{url}"') as base,
        open_client(base) as client,
    ):
        yield StoreDownGateway(client, folder, way)


@contextmanager
def make_broken_store(folder: Path, way: str) -> Iterator[str]:
    """The URL of a store that cannot be used, for this reason."""
    file = folder / "store.db"
    if way == "nobody at the port":
        with socket.socket() as bound:  # bound and deaf: nobody else gets the port
            bound.bind(("127.0.0.1", 0))
            yield f"postgresql://toolwire:{SECRET}@127.0.0.1:{bound.getsockname()[1]}/toolwire"
        return
    if way == "no database":
        file.write_bytes(b"This is a diary, and no database. " * 400)
    else:
        file.mkdir()
    yield store_url(folder)


def body_of(protocol: str, model: str, text: str, stream: bool) -> dict[str, Any]:
    """A request that needs nothing from the store."""
    turns = [{"role": "user", "content": text}]
    bodies: dict[str, dict[str, Any]] = {
        "openai-chat": {"model": model, "messages": turns},
        "openai-responses": {"model": model, "input": turns, "store": False},
        "anthropic": {"model": model, "max_tokens": 100, "messages": turns},
        "gemini": {"contents": [{"role": "user", "parts": [{"text": text}]}]},
        "unified": {"model": model, "messages": turns},
    }
    return {**bodies[protocol], **({"stream": True} if stream and protocol != "gemini" else {})}


@STREAMS
@EVERYWHERE
@pytest.mark.parametrize("source", CLIENTS)
def test_stateless_requests_work(
    gone: StoreDownGateway, provider: Provider, source: str, target: str, stream: bool
) -> None:
    talk = provider.script(ScriptedAnswer("Hello there."))
    path = path_of(source, MODEL[target], stream)
    got = gone.client.raw("POST", path, body_of(source, MODEL[target], talk.mark, stream), root="")
    assert got.status == 200, got.data
    assert text_of(source, got, stream) == "Hello there."


def history(talk_mark: str) -> list[dict[str, Any]]:
    """The history of a Chat client, with a call."""
    call = {"id": "call_of_an_earlier_turn", "type": "function"}
    return [
        {"role": "user", "content": talk_mark},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{**call, "function": {"name": "get_weather", "arguments": '{"city":"Paris"}'}}],
        },
        {"role": "tool", "tool_call_id": call["id"], "content": "15 °C"},
    ]


CHAT_TOOLS = [
    {"type": "function", "function": {key: tool[key] for key in ("name", "description", "parameters")}}
    for tool in FUNCTIONS
]


@STREAMS
@EVERYWHERE
def test_chat_with_calls(gone: StoreDownGateway, provider: Provider, target: str, stream: bool) -> None:
    """Signatures of earlier turns are in the store, so the request fails; a Chat provider makes none."""
    talk = provider.script(ScriptedAnswer("Mild."))
    body = {"model": MODEL[target], "messages": history(talk.mark), "tools": CHAT_TOOLS, "stream": stream}
    got = gone.client.raw("POST", "/chat/completions", body)
    if target == "openai-chat":
        assert (got.status, text_of("openai-chat", got, stream)) == (200, "Mild.")
    else:
        assert got.status == 503
        assert error_of("openai-chat", got)["code"] == "store_unavailable"
        assert "store" in error_of("openai-chat", got)["message"]
        assert not talk.asked


def test_chat_with_signatures_that_cannot_be_stored(gone: StoreDownGateway, provider: Provider) -> None:
    """The client gets the answer, and a loss that says that its signatures were not stored."""
    talk = provider.script(ScriptedAnswer("", (PARIS,), "Paris, then."))
    body = {"model": "m-anthropic", "messages": history(talk.mark)[:1], "tools": CHAT_TOOLS}
    got = gone.client.raw("POST", "/chat/completions", body)
    assert got.status == 200
    assert got.json()["choices"][0]["message"]["tool_calls"]
    assert "seal" in got.headers["x-toolwire-losses"]


NEEDY: dict[str, tuple[str, str, Any]] = {
    "an answer that is to be kept": ("POST", "/responses", {}),
    "one that is asked to be kept": ("POST", "/responses", {"store": True}),
    "going on": ("POST", "/responses", {"previous_response_id": "resp_1"}),
    "going on without being kept": ("POST", "/responses", {"previous_response_id": "resp_1", "store": False}),
    "in a conversation": ("POST", "/responses", {"conversation": "conv_1"}),
    "an item": ("POST", "/responses", {"store": False, "input": [{"type": "item_reference", "id": "msg_1"}]}),
    "in the background": ("POST", "/responses", {"background": True}),
    "a summary of what is kept": ("POST", "/responses/compact", {"previous_response_id": "resp_1"}),
    "reading": ("GET", "/responses/resp_1", None),
    "reading as a stream": ("GET", "/responses/resp_1?stream=true", None),
    "listing": ("GET", "/responses/resp_1/input_items", None),
    "removing": ("DELETE", "/responses/resp_1", None),
    "cancelling": ("POST", "/responses/resp_1/cancel", None),
    "a new conversation": ("POST", "/conversations", {}),
    "reading a conversation": ("GET", "/conversations/conv_1", None),
    "changing a conversation": ("POST", "/conversations/conv_1", {"metadata": {}}),
    "removing a conversation": ("DELETE", "/conversations/conv_1", None),
    "adding items": ("POST", "/conversations/conv_1/items", {"items": [{"role": "user", "content": "Hi"}]}),
    "listing items": ("GET", "/conversations/conv_1/items", None),
    "reading an item": ("GET", "/conversations/conv_1/items/msg_1", None),
    "removing an item": ("DELETE", "/conversations/conv_1/items/msg_1", None),
}
KEPT = ("an answer that is to be kept", "one that is asked to be kept")
HELPS = (*KEPT, "going on", "going on without being kept", "in a conversation", "an item")
"""What can be had without the store, if the client sends all of it."""


def needy_request(what: str, model: str, mark: str, stream: bool) -> tuple[str, str, Any]:
    method, path, body = NEEDY[what]
    if path.startswith("/responses") and body is not None:
        body = {"model": model, "input": mark, **({"stream": stream} if path == "/responses" else {}), **body}
    return method, path, body


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("what", NEEDY)
def test_requests_that_need_the_store_fail(gone: StoreDownGateway, provider: Provider, what: str, stream: bool) -> None:
    for protocol in PROTOCOLS:
        talk = provider.script(ScriptedAnswer("Never said."))
        got = gone.client.raw(*needy_request(what, MODEL[protocol], talk.mark, stream))
        error = read_error(got)
        assert got.status == 503, (protocol, error)
        assert error["code"] == "store_unavailable"
        assert "store" in error["message"]
        assert ("store: false" in error["message"]) == (what in HELPS)
        assert not talk.asked
        assert SECRET not in str(got)


def test_the_store_comes_back(provider: Provider, tmp_path: Path) -> None:
    way = WAYS[0]
    talk = provider.script(ScriptedAnswer("Hello."), ScriptedAnswer("Hello again."))
    with (
        make_broken_store(tmp_path, way) as url,
        gateway_with_store(tmp_path, provider, f'url = "{url}"') as base,
        open_client(base) as client,
    ):
        body = {"model": "m-anthropic", "input": talk.mark}
        assert client.raw("POST", "/responses", body).status == 503
        (tmp_path / "store.db").rmdir()
        first = poll(lambda: client.raw("POST", "/responses", body), lambda got: got.status != 503).json()
        second = client.turn("m-gemini", "Hi", previous_response_id=first["id"])
        assert second.output_text == "Hello again."
        assert_received(talk.asked[1], talk.mark, "Hello.", "Hi")
        assert client.sdk.conversations.create().id


def move_store(folder: Path, *, away: bool) -> None:
    """Move the store's files away and put a folder in their place; or move them back."""
    aside = folder / "aside"
    aside.mkdir(exist_ok=True)
    if not away:
        (folder / "store.db").rmdir()
    for name in ("store.db", "store.db-wal", "store.db-shm"):
        here, there = folder / name, aside / name
        if (here if away else there).exists():
            (here if away else there).rename(there if away else here)
    if away:
        (folder / "store.db").mkdir()


@pytest.fixture
def hold() -> Iterator[Hold]:
    with closing(Hold()) as made:
        yield made


@STREAMS
def test_the_store_goes_down_during_a_response(provider: Provider, tmp_path: Path, hold: Hold, stream: bool) -> None:
    """The client gets the response, which says that it is not stored. Older responses are there again with the store,
    and this one, too."""
    talk = provider.script(
        ScriptedAnswer("Hello."),
        Step(ScriptedAnswer("Not for long."), hold=hold, after=3 if stream else 0),
        ScriptedAnswer("Again."),
    )
    with gateway_with_store(tmp_path, provider) as base, open_client(base) as client:
        room = client.sdk.conversations.create()
        first = client.turn("m-anthropic", talk.mark)
        with ThreadPoolExecutor(1) as pool:
            asking = {"previous_response_id": first.id}
            second = pool.submit(client.turn, "m-anthropic", "Hi", stream, **asking)
            assert hold.reached.wait(PATIENCE)
            move_store(tmp_path, away=True)
            hold.release()
            answer = second.result(PATIENCE)
        assert (answer.output_text, answer.to_dict()["store"]) == ("Not for long.", False)
        assert client.raw("GET", f"/responses/{first.id}").status == 503
        move_store(tmp_path, away=False)
        assert poll(lambda: client.raw("GET", f"/responses/{first.id}").status, lambda status: status != 503) == 200
        # It was written when that was possible.
        assert poll(lambda: client.raw("GET", f"/responses/{answer.id}").status, lambda status: status != 404) == 200
        assert client.sdk.conversations.retrieve(room.id).id == room.id
        client.turn("m-anthropic", "Well?", previous_response_id=first.id)
    assert_received(talk.asked[2], talk.mark, "Hello.", "Well?")


# --- a gateway without a store ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def storeless(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ResponsesClient]:
    with (
        gateway_with_store(tmp_path_factory.mktemp("none"), provider, 'url = "none"') as base,
        open_client(base) as client,
    ):
        yield client


@STREAMS
@pytest.mark.parametrize("target", OTHER_PROTOCOLS)
def test_without_a_store_responses_say_that_they_are_not_stored(
    storeless: ResponsesClient, provider: Provider, target: str, stream: bool
) -> None:
    talk = provider.script(ScriptedAnswer("Hello."))
    got = storeless.raw("POST", "/responses", {"model": MODEL[target], "input": talk.mark, "stream": stream})
    assert got.status == 200, got.data
    if stream:
        assert PEERS["openai-responses"].fold_stream(got.frames).violations == ()
        told = [frame.data["response"] for frame in got.frames if "response" in frame.data]
    else:
        told = [got.json()]
    assert {response["store"] for response in told} == {False}


REFERRING = [what for what in NEEDY if what not in KEPT]


@pytest.mark.parametrize("what", REFERRING)
@pytest.mark.parametrize("target", OTHER_PROTOCOLS)
def test_without_a_store_references_fail(
    storeless: ResponsesClient, provider: Provider, target: str, what: str
) -> None:
    talk = provider.script(ScriptedAnswer("Never said."))
    got = storeless.raw(*needy_request(what, MODEL[target], talk.mark, False))
    assert got.status in (400, 404)
    assert "keeps nothing" in read_error(got)["message"]
    assert not talk.asked


@pytest.mark.parametrize("what", REFERRING)
def test_without_a_store_a_shared_provider_is_not_asked(
    storeless: ResponsesClient, provider: Provider, what: str
) -> None:
    """What the provider stores may be another client's."""
    talk = provider.script(ScriptedAnswer("Never said."))
    got = storeless.raw(*needy_request(what, MODEL["openai-responses"], talk.mark, False))
    assert got.status in (400, 404)
    assert "keeps nothing" in read_error(got)["message"]
    assert not talk.asked


@STREAMS
@EVERYWHERE
def test_without_a_store_chat_continues_without_signatures(
    storeless: ResponsesClient, provider: Provider, target: str, stream: bool
) -> None:
    talk = provider.script(ScriptedAnswer("Mild."))
    body = {"model": MODEL[target], "messages": history(talk.mark), "tools": CHAT_TOOLS, "stream": stream}
    got = storeless.raw("POST", "/chat/completions", body)
    assert (got.status, text_of("openai-chat", got, stream)) == (200, "Mild.")


# --- /readyz ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["own", "hosted"])
@pytest.mark.parametrize("limits", ["", "[[limits]]\ndollars_per_day = 5\n"], ids=["responses", "dollars"])
def test_a_gateway_that_cannot_write_its_store_is_not_ready(tmp_path: Path, host: str, limits: str) -> None:
    """As in a container without a folder for its user: what needs the store gets 503, and /readyz says so."""
    (tmp_path / "state").write_text("a file where a folder should be")
    store = f'[store]\nurl = "sqlite://{tmp_path}/state/store.db"\n'
    with stage(tmp_path, "", store + limits, host=host) as served:
        got = ask(served.port, "GET", "/readyz")
        assert got.status == 503
        assert got.data.decode().startswith(f"not ready: the store {tmp_path}/state/store.db cannot be used: ")
        assert ask(served.port, "GET", "/livez").status == 200
        assert served.features.store.describe_readiness("203.0.113.7") == (
            503,
            "not ready: the store cannot be used: see the log",
        )
        (tmp_path / "state").unlink()
        wait_until(lambda: ask(served.port, "GET", "/readyz").status == 200)
        assert ask(served.port, "GET", "/readyz").data == b"ok\n"


@pytest.mark.parametrize(("url", "status"), [("none", 200), ("postgresql://toolwire@127.0.0.1:9/toolwire", 200)])
def test_what_all_gateways_lack_makes_none_of_them_unready(url: str, status: int, tmp_path: Path) -> None:
    with stage(tmp_path, "", f'[store]\nurl = "{url}"\n') as served:
        assert ask(served.port, "GET", "/readyz").status == status


@pytest.mark.parametrize("happened", ["removed", "replaced by another one"])
def test_a_file_that_is_removed_while_the_gateway_runs_is_said(happened: str, tmp_path: Path) -> None:
    file = tmp_path / "state" / "store.db"
    with stage(tmp_path, 'log_format = "json"', f'[store]\nurl = "sqlite://{file}"\n') as served:
        assert ask(served.port, "GET", "/readyz").data == b"ok\n"
        if happened == "removed":
            file.unlink()
        else:
            (tmp_path / "new.db").touch(mode=0o600)
            (tmp_path / "new.db").rename(file)
        lines = iter(lambda: served.lines.get(timeout=PATIENCE), None)
        event = next(event for event in map(json.loads, lines) if event["event"] == "store_replaced")
        assert event["level"] == "error"
        assert f"{file}, was {happened} while the gateway ran" in event["message"]
        got = ask(served.port, "GET", "/readyz")
        assert (got.status, got.data.decode()) == (200, f"ok\n{event['message']}\n")
        assert file.stat().st_size > 0
