"""What one client key has stored cannot be read, listed, continued, changed or deleted with another key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from gateway.provider import PROTOCOLS, SEALS, Hold, Provider, Script, ScriptedAnswer, Step
from gateway.state_clients import (
    FUNCTIONS,
    MODEL,
    REASONING_MODELS,
    SIGNING_PROTOCOLS,
    ChatClient,
    ResponsesClient,
    assert_received,
    gateway_with_store,
    item_texts,
    open_client,
)
from gateway.test_pairs import list_seals
from waits import PATIENCE

EVERYWHERE = pytest.mark.parametrize("target", PROTOCOLS)
STREAMS = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
# The SDK's parsed subclasses do not match the types of the fields that hold them when it sends them back.
pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")

ALICE, BOB = "tw-key-of-alice-0123456789", "tw-key-of-bob-0123456789"
PARIS = ("get_weather", {"city": "Paris"})


@pytest.fixture(scope="module")
def base(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with gateway_with_store(tmp_path_factory.mktemp("owners"), provider, keys=(ALICE, BOB)) as url:
        yield url


@pytest.fixture(scope="module")
def alice(base: str) -> Iterator[ResponsesClient]:
    with open_client(base, ALICE) as made:
        yield made


@pytest.fixture(scope="module")
def bob(base: str) -> Iterator[ResponsesClient]:
    with open_client(base, BOB) as made:
        yield made


@dataclass(frozen=True)
class StoredIds:
    """What Alice has stored: the ids of a response, of an item of it, of a conversation and of an item in that."""

    talk: Script
    response: str
    item: str
    conversation: str
    member: str
    job: str

    def unknown_ids(self) -> StoredIds:
        """The same with ids that nobody ever had."""
        made = {"response": "resp_0", "item": "msg_0", "conversation": "conv_0", "member": "msg_00", "job": "resp_00"}
        return StoredIds(self.talk, **made)


@pytest.fixture(scope="module", name="stored")
def store_responses(alice: ResponsesClient, provider: Provider) -> Iterator[StoredIds]:
    hold = Hold()
    talk = provider.script(ScriptedAnswer("A secret of Alice."), Step(ScriptedAnswer("Later."), hold=hold))
    answer = alice.turn("m-anthropic", talk.mark)
    room = alice.sdk.conversations.create(items=[{"type": "message", "role": "user", "content": "Another secret."}])
    (member,) = alice.sdk.conversations.items.list(room.id).data
    job = alice.sdk.responses.create(model="m-chat", input=talk.mark, background=True)
    assert hold.reached.wait(PATIENCE)
    yield StoredIds(talk, answer.id, answer.output[0].id, room.id, str(member.id), job.id)
    hold.release()
    hold.close()


ABOUT: dict[str, tuple[str, str, Any]] = {
    "read": ("GET", "/responses/{response}", None),
    "read as a stream": ("GET", "/responses/{response}?stream=true", None),
    "list": ("GET", "/responses/{response}/input_items", None),
    "remove": ("DELETE", "/responses/{response}", None),
    "cancel": ("POST", "/responses/{job}/cancel", None),
    "read a job": ("GET", "/responses/{job}", None),
    "follow a job": ("GET", "/responses/{job}?stream=true&starting_after=0", None),
    "remove a job": ("DELETE", "/responses/{job}", None),
    "read a conversation": ("GET", "/conversations/{conversation}", None),
    "change a conversation": ("POST", "/conversations/{conversation}", {"metadata": {"of": "Bob"}}),
    "remove a conversation": ("DELETE", "/conversations/{conversation}", None),
    "list a conversation": ("GET", "/conversations/{conversation}/items", None),
    "add to a conversation": (
        "POST", "/conversations/{conversation}/items", {"items": [{"role": "user", "content": "Bob was here."}]},
    ),
    "read an item": ("GET", "/conversations/{conversation}/items/{member}", None),
    "remove an item": ("DELETE", "/conversations/{conversation}/items/{member}", None),
}  # fmt: skip
BUILDING: dict[str, dict[str, Any]] = {
    "continue": {"previous_response_id": "{response}"},
    "continue in the background": {"previous_response_id": "{response}", "background": True},
    "go into a conversation": {"conversation": "{conversation}"},
    "name an item": {"input": [{"role": "user", "content": "{mark}"}, {"type": "item_reference", "id": "{item}"}]},
    "name an item of a conversation": {
        "input": [{"role": "user", "content": "{mark}"}, {"type": "item_reference", "id": "{member}"}]
    },
}


def fill_ids(value: Any, stored: StoredIds) -> Any:
    """The value with the ids put in."""
    if isinstance(value, dict):
        return {key: fill_ids(inner, stored) for key, inner in value.items()}
    if isinstance(value, list):
        return [fill_ids(inner, stored) for inner in value]
    if isinstance(value, str):
        return value.format(**{**vars(stored), "mark": stored.talk.mark})
    return value


def request_masked(client: ResponsesClient, method: str, path: str, body: Any, stored: StoredIds) -> tuple[int, str]:
    """The reply, with all ids in it replaced by the same text."""
    got = client.raw(method, fill_ids(path, stored), fill_ids(body, stored))
    text = got.data.decode()
    for name in ("response", "item", "conversation", "member", "job"):
        text = text.replace(f"'{getattr(stored, name)}'", f"'{name}'")
    return got.status, text


@pytest.mark.parametrize("what", ABOUT)
def test_another_key_does_not_find_it(
    alice: ResponsesClient, bob: ResponsesClient, stored: StoredIds, what: str
) -> None:
    method, path, body = ABOUT[what]
    refused = request_masked(bob, method, path, body, stored)
    assert refused == request_masked(bob, method, path, body, stored.unknown_ids())
    assert refused[0] == 404


@pytest.mark.parametrize("what", BUILDING)
@STREAMS
@EVERYWHERE
def test_another_key_cannot_continue_it(
    bob: ResponsesClient, stored: StoredIds, target: str, what: str, stream: bool
) -> None:
    asked = len(stored.talk.asked)
    body = {"model": MODEL[target], "input": "{mark}", "stream": stream, **BUILDING[what]}
    refused = request_masked(bob, "POST", "/responses", body, stored)
    assert refused == request_masked(bob, "POST", "/responses", body, stored.unknown_ids())
    assert refused[0] in (400, 404)
    assert len(stored.talk.asked) == asked


@EVERYWHERE
def test_another_key_cannot_compact_it(bob: ResponsesClient, stored: StoredIds, target: str) -> None:
    body = {"model": MODEL[target], "input": "{mark}", "previous_response_id": "{response}"}
    refused = request_masked(bob, "POST", "/responses/compact", body, stored)
    assert refused == request_masked(bob, "POST", "/responses/compact", body, stored.unknown_ids())
    assert refused[0] == 400


def test_its_owner_finds_it(
    alice: ResponsesClient, bob: ResponsesClient, stored: StoredIds, provider: Provider
) -> None:
    """Also after all attempts of the other client."""
    for method, path, body in ABOUT.values():
        request_masked(bob, method, path, body, stored)
    assert alice.sdk.responses.retrieve(stored.response).output_text == "A secret of Alice."
    assert alice.sdk.responses.retrieve(stored.job).status in ("queued", "in_progress")
    assert alice.sdk.conversations.retrieve(stored.conversation).metadata == {}
    assert item_texts(alice.sdk.conversations.items.list(stored.conversation).data) == ["Another secret."]
    talk = provider.script(ScriptedAnswer("Go on."))
    named = [{"type": "item_reference", "id": stored.item}, {"type": "item_reference", "id": stored.member}]
    alice.turn("m-gemini", [{"role": "user", "content": talk.mark}, *named, {"role": "user", "content": "And?"}])
    assert_received(talk.asked[0], talk.mark, "A secret of Alice.", "Another secret.", "And?")


def test_without_a_key(base: str, stored: StoredIds) -> None:
    with open_client(base, "no-key-of-anybody") as nobody:
        for method, path, body in ABOUT.values():
            assert request_masked(nobody, method, path, body, stored)[0] == 401


@STREAMS
@pytest.mark.parametrize("target", SIGNING_PROTOCOLS)
def test_signatures_belong_to_a_key(
    alice: ResponsesClient, bob: ResponsesClient, provider: Provider, target: str, stream: bool
) -> None:
    """With the same conversation under another key, the provider does not get the first client's signatures."""
    talk = provider.script(
        ScriptedAnswer("", (PARIS,), "Paris, then."), ScriptedAnswer("Done."), ScriptedAnswer("Done.")
    )
    chat = ChatClient(REASONING_MODELS[target], talk, stream)
    chat.turn(alice)
    before = list(chat.messages)
    assert chat.turn(bob).content == "Done."
    assert SEALS[target] not in talk.asked[1].text
    assert not talk.refused
    chat.messages = before
    chat.turn(alice)
    assert list_seals(talk.asked[2]) == [SEALS[target]]


def test_the_same_response_id_for_two_clients(alice: ResponsesClient, bob: ResponsesClient, provider: Provider) -> None:
    """Providers may repeat their ids; each client still reads its own response."""
    made = []
    for client, secret in ((alice, "Of Alice."), (bob, "Of Bob.")):
        talk = provider.script(ScriptedAnswer(secret))
        made.append((client, client.turn("m-responses", talk.mark, tools=FUNCTIONS), secret))
    for client, answer, secret in made:
        assert client.sdk.responses.retrieve(answer.id).output_text == secret
