"""What one client key has stored cannot be read, listed, continued, changed or deleted with another key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from gateway.clients import PATIENCE
from gateway.provider import PROTOCOLS, SEALS, Hold, Provider, Says, Step, Talk
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
from gateway.test_pairs import sealed

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
class Left:
    """What Alice left: the ids of an answer, of an item of it, of a conversation and of an item in that."""

    talk: Talk
    response: str
    item: str
    conversation: str
    member: str
    job: str

    def unknown(self) -> Left:
        """The same with ids that nobody ever had."""
        made = {"response": "resp_0", "item": "msg_0", "conversation": "conv_0", "member": "msg_00", "job": "resp_00"}
        return Left(self.talk, **made)


@pytest.fixture(scope="module")
def left(alice: ResponsesClient, provider: Provider) -> Iterator[Left]:
    hold = Hold()
    talk = provider.script(Says("A secret of Alice."), Step(Says("Later."), hold=hold))
    answer = alice.turn("m-anthropic", talk.mark)
    room = alice.sdk.conversations.create(items=[{"type": "message", "role": "user", "content": "Another secret."}])
    (member,) = alice.sdk.conversations.items.list(room.id).data
    job = alice.sdk.responses.create(model="m-chat", input=talk.mark, background=True)
    assert hold.reached.wait(PATIENCE)
    yield Left(talk, answer.id, answer.output[0].id, room.id, str(member.id), job.id)
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


def filled(value: Any, left: Left) -> Any:
    """With the ids put in."""
    if isinstance(value, dict):
        return {key: filled(inner, left) for key, inner in value.items()}
    if isinstance(value, list):
        return [filled(inner, left) for inner in value]
    if isinstance(value, str):
        return value.format(**{**vars(left), "mark": left.talk.mark})
    return value


def told(client: ResponsesClient, method: str, path: str, body: Any, left: Left) -> tuple[int, str]:
    """The answer, with the ids that it names made the same for all."""
    got = client.raw(method, filled(path, left), filled(body, left))
    text = got.data.decode()
    for name in ("response", "item", "conversation", "member", "job"):
        text = text.replace(f"'{getattr(left, name)}'", f"'{name}'")
    return got.status, text


@pytest.mark.parametrize("what", ABOUT)
def test_it_is_not_there(alice: ResponsesClient, bob: ResponsesClient, left: Left, what: str) -> None:
    method, path, body = ABOUT[what]
    refused = told(bob, method, path, body, left)
    assert refused == told(bob, method, path, body, left.unknown())
    assert refused[0] == 404


@pytest.mark.parametrize("what", BUILDING)
@STREAMS
@EVERYWHERE
def test_nothing_is_built_on_it(bob: ResponsesClient, left: Left, target: str, what: str, stream: bool) -> None:
    asked = len(left.talk.asked)
    body = {"model": MODEL[target], "input": "{mark}", "stream": stream, **BUILDING[what]}
    refused = told(bob, "POST", "/responses", body, left)
    assert refused == told(bob, "POST", "/responses", body, left.unknown())
    assert refused[0] in (400, 404)
    assert len(left.talk.asked) == asked


@EVERYWHERE
def test_it_is_not_summarised(bob: ResponsesClient, left: Left, target: str) -> None:
    body = {"model": MODEL[target], "input": "{mark}", "previous_response_id": "{response}"}
    refused = told(bob, "POST", "/responses/compact", body, left)
    assert refused == told(bob, "POST", "/responses/compact", body, left.unknown())
    assert refused[0] == 400


def test_it_is_all_there_for_its_owner(
    alice: ResponsesClient, bob: ResponsesClient, left: Left, provider: Provider
) -> None:
    """Also after all that the other one tried."""
    for method, path, body in ABOUT.values():
        told(bob, method, path, body, left)
    assert alice.sdk.responses.retrieve(left.response).output_text == "A secret of Alice."
    assert alice.sdk.responses.retrieve(left.job).status in ("queued", "in_progress")
    assert alice.sdk.conversations.retrieve(left.conversation).metadata == {}
    assert item_texts(alice.sdk.conversations.items.list(left.conversation).data) == ["Another secret."]
    talk = provider.script(Says("Go on."))
    named = [{"type": "item_reference", "id": left.item}, {"type": "item_reference", "id": left.member}]
    alice.turn("m-gemini", [{"role": "user", "content": talk.mark}, *named, {"role": "user", "content": "And?"}])
    assert_received(talk.asked[0], talk.mark, "A secret of Alice.", "Another secret.", "And?")


def test_somebody_without_a_key(base: str, left: Left) -> None:
    with open_client(base, "no-key-of-anybody") as nobody:
        for method, path, body in ABOUT.values():
            assert told(nobody, method, path, body, left)[0] == 401


@STREAMS
@pytest.mark.parametrize("target", SIGNING_PROTOCOLS)
def test_seals_are_its_owners(
    alice: ResponsesClient, bob: ResponsesClient, provider: Provider, target: str, stream: bool
) -> None:
    """The same conversation under another key: the provider does not get what the first one's turns bore."""
    talk = provider.script(Says("", (PARIS,), "Paris, then."), Says("Done."), Says("Done."))
    chat = ChatClient(REASONING_MODELS[target], talk, stream)
    chat.turn(alice)
    before = list(chat.messages)
    assert chat.turn(bob).content == "Done."
    assert SEALS[target] not in talk.asked[1].text
    assert not talk.refused
    chat.messages = before
    chat.turn(alice)
    assert sealed(talk.asked[2]) == [SEALS[target]]


def test_the_same_answer_of_two_clients(alice: ResponsesClient, bob: ResponsesClient, provider: Provider) -> None:
    """Providers may repeat their ids; what is kept has one owner each all the same."""
    made = []
    for client, secret in ((alice, "Of Alice."), (bob, "Of Bob.")):
        talk = provider.script(Says(secret))
        made.append((client, client.turn("m-responses", talk.mark, tools=FUNCTIONS), secret))
    for client, answer, secret in made:
        assert client.sdk.responses.retrieve(answer.id).output_text == secret
