"""Conversations: their items, and responses within them, on every provider."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from gateway.provider import PROTOCOLS, SEALS, Hold, Provider, ScriptedAnswer, Step
from gateway.state_clients import (
    FUNCTIONS,
    MODEL,
    REASONING_MODELS,
    ResponsesClient,
    assert_received,
    function_outputs,
    gateway_with_store,
    item_texts,
    open_client,
    read_error,
    without_reasoning,
)
from gateway.test_pairs import list_seals, read_call_results
from waits import PATIENCE, poll

STREAMS = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
EVERYWHERE = pytest.mark.parametrize("target", PROTOCOLS)
# The SDK's parsed subclasses do not match the types of the fields that hold them when it sends them back.
pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")

PARIS = ("get_weather", {"city": "Paris"})
UNKNOWN = "conv_0123456789abcdef"


def user(text: str) -> Any:
    return {"type": "message", "role": "user", "content": text}


@pytest.fixture(scope="module")
def client(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ResponsesClient]:
    with gateway_with_store(tmp_path_factory.mktemp("conversations"), provider) as base, open_client(base) as made:
        yield made


@pytest.fixture
def hold() -> Iterator[Hold]:
    made = Hold()
    yield made
    made.release()
    made.close()


def list_texts(client: ResponsesClient, id: str) -> list[str]:
    return item_texts(without_reasoning(list(client.sdk.conversations.items.list(id, order="asc"))))


# --- conversations ----------------------------------------------------------------------------------------------------


def test_create_update_and_delete(client: ResponsesClient) -> None:
    made = client.sdk.conversations.create(metadata={"of": "test"})
    assert made.object == "conversation"
    assert made.id.startswith("conv_")
    assert made.metadata == {"of": "test"}
    assert client.sdk.conversations.retrieve(made.id) == made
    changed = client.sdk.conversations.update(made.id, metadata={"of": "another", "more": "x"})
    assert changed.metadata == {"of": "another", "more": "x"}
    assert (changed.id, changed.created_at) == (made.id, made.created_at)
    assert client.sdk.conversations.retrieve(made.id) == changed
    got = client.raw("DELETE", f"/conversations/{made.id}")
    assert (got.status, got.json()) == (200, {"id": made.id, "object": "conversation.deleted", "deleted": True})
    for what in NOWHERE:
        assert_not_found(client, what, made.id)


def test_an_empty_conversation(client: ResponsesClient) -> None:
    got = client.raw("POST", "/conversations")
    assert got.status == 200
    assert got.json()["metadata"] == {}
    assert list_texts(client, got.json()["id"]) == []
    assert got.json()["id"] != client.sdk.conversations.create().id


def test_adding_and_deleting_items(client: ResponsesClient) -> None:
    made = client.sdk.conversations.create(items=[user("One."), user("Two.")])
    added = client.sdk.conversations.items.create(
        made.id, items=[{"role": "assistant", "content": "Three."}, user("Four.")]
    )
    assert item_texts(added.data) == ["Three.", "Four."]
    assert (added.first_id, added.last_id, added.has_more) == (added.data[0].id, added.data[1].id, False)
    assert list_texts(client, made.id) == ["One.", "Two.", "Three.", "Four."]
    one = client.sdk.conversations.items.retrieve(added.data[0].id, conversation_id=made.id)
    assert (one.id, one.type, one.role) == (added.data[0].id, "message", "assistant")
    assert item_texts([one]) == ["Three."]
    left = client.sdk.conversations.items.delete(added.data[0].id, conversation_id=made.id)
    assert left == made
    assert list_texts(client, made.id) == ["One.", "Two.", "Four."]
    with pytest.raises(openai.NotFoundError):
        client.sdk.conversations.items.retrieve(added.data[0].id, conversation_id=made.id)
    client.sdk.conversations.items.create(made.id, items=[user("Five.")])
    assert list_texts(client, made.id) == ["One.", "Two.", "Four.", "Five."]


@pytest.fixture(scope="module")
def long(client: ResponsesClient) -> tuple[str, list[str]]:
    """A conversation of 25 items: more than fit on one page or in one request."""
    said = [f"Number {number}." for number in range(25)]
    made = client.sdk.conversations.create(items=[user(text) for text in said[:20]])
    client.sdk.conversations.items.create(made.id, items=[user(text) for text in said[20:]])
    return made.id, said


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("limit", [1, 5, 24, 25, 100])
def test_items_by_pages(client: ResponsesClient, long: tuple[str, list[str]], limit: int, order: Any) -> None:
    id, said = long
    wanted = said if order == "asc" else said[::-1]
    pages = list(client.sdk.conversations.items.list(id, limit=limit, order=order).iter_pages())
    assert [item_texts(page.data) for page in pages] == [wanted[at : at + limit] for at in range(0, 25, limit)]
    assert [page.has_more for page in pages] == [True] * (len(pages) - 1) + [False]


def test_the_default_page(client: ResponsesClient, long: tuple[str, list[str]]) -> None:
    id, said = long
    page = client.raw("GET", f"/conversations/{id}/items").json()
    assert item_texts(page["data"]) == said[:4:-1]
    ids = [item["id"] for item in page["data"]]
    assert (page["object"], page["first_id"], page["last_id"], page["has_more"]) == ("list", ids[0], ids[-1], True)


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=many", "order=up"])
def test_invalid_pages(client: ResponsesClient, long: tuple[str, list[str]], query: str) -> None:
    got = client.raw("GET", f"/conversations/{long[0]}/items?{query}")
    assert (got.status, read_error(got)["param"]) == (400, query.partition("=")[0])


MANY = [user("x")] * 21
WRONG: dict[str, tuple[str, Any]] = {
    "more items than twenty": ("/conversations", {"items": MANY}),
    "items that are no list": ("/conversations", {"items": "Hi"}),
    "items that are no objects": ("/conversations", {"items": ["Hi"]}),
    "more metadata than sixteen": ("/conversations", {"metadata": {f"k{n}": "v" for n in range(17)}}),
    "a long name": ("/conversations", {"metadata": {"k" * 65: "v"}}),
    "a long value": ("/conversations", {"metadata": {"k": "v" * 513}}),
    "a value that is no text": ("/conversations", {"metadata": {"k": 1}}),
    "metadata that is a text": ("/conversations", {"metadata": "v"}),
    "more items than twenty at once": ("/conversations/{id}/items", {"items": MANY}),
    "no items": ("/conversations/{id}/items", {}),
    "long values later": ("/conversations/{id}", {"metadata": {"k": "v" * 513}}),
    "a body that is a list": ("/conversations", []),
    "a body that is cut": ("/conversations", b'{"items": ['),
    "a body that is no text": ("/conversations/{id}/items", b"\xff\xfe"),
}


@pytest.mark.parametrize("what", WRONG)
def test_invalid_requests(client: ResponsesClient, what: str) -> None:
    made = client.sdk.conversations.create(metadata={"k": "as it was"})
    path, body = WRONG[what]
    got = client.raw("POST", path.format(id=made.id), body)
    assert (got.status, read_error(got)["type"]) == (400, "invalid_request_error"), got.data
    assert list_texts(client, made.id) == []
    assert client.sdk.conversations.retrieve(made.id) == made


NOWHERE: dict[str, tuple[str, str, Any]] = {
    "read": ("GET", "", None),
    "change": ("POST", "", {"metadata": {}}),
    "remove": ("DELETE", "", None),
    "list": ("GET", "/items", None),
    "add": ("POST", "/items", {"items": [user("Hi")]}),
    "one": ("GET", "/items/msg_1", None),
    "remove one": ("DELETE", "/items/msg_1", None),
}


def assert_not_found(client: ResponsesClient, what: str, id: str) -> None:
    method, rest, body = NOWHERE[what]
    got = client.raw(method, f"/conversations/{id}{rest}", body)
    assert got.status == 404, got.data
    error = read_error(got)
    assert (error["type"], error["message"]) == ("invalid_request_error", f"Conversation with id '{id}' not found.")


@pytest.mark.parametrize("what", NOWHERE)
def test_unknown_conversations(client: ResponsesClient, what: str) -> None:
    assert_not_found(client, what, UNKNOWN)


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_an_item_of_another_conversation(client: ResponsesClient, method: str) -> None:
    mine = client.sdk.conversations.create(items=[user("One.")])
    other = client.sdk.conversations.create(items=[user("Two.")])
    id = client.raw("GET", f"/conversations/{other.id}/items").json()["first_id"]
    got = client.raw(method, f"/conversations/{mine.id}/items/{id}")
    assert got.status == 404
    assert f"'{id}'" in read_error(got)["message"]
    assert list_texts(client, other.id) == ["Two."]


# --- responses --------------------------------------------------------------------------------------------------------


@STREAMS
@EVERYWHERE
def test_every_response_is_appended(client: ResponsesClient, provider: Provider, target: str, stream: bool) -> None:
    talk = provider.script(
        ScriptedAnswer("Let me look.", (PARIS,)), ScriptedAnswer("It is mild."), ScriptedAnswer("Goodbye.")
    )
    room = client.sdk.conversations.create(items=[user(f"I live in Paris. {talk.mark}")])
    first = client.turn(MODEL[target], "The weather?", stream, conversation=room.id, tools=FUNCTIONS)
    assert first.conversation.id == room.id
    assert list_texts(client, room.id) == [
        f"I live in Paris. {talk.mark}", "The weather?", "Let me look.", '{"city":"Paris"}',
    ]  # fmt: skip
    given = function_outputs(first, "15 °C")
    second = client.turn(MODEL[target], given, stream, conversation={"id": room.id}, tools=FUNCTIONS)
    third = client.turn(MODEL[target], "Thank you.", stream, conversation=room.id, tools=FUNCTIONS)
    assert (second.output_text, third.output_text) == ("It is mild.", "Goodbye.")
    assert_received(talk.asked[0], talk.mark, "The weather?")
    assert_received(talk.asked[2], talk.mark, "The weather?", "Let me look.", "15 °C", "It is mild.", "Thank you.")
    assert [(name, arguments) for name, arguments, _, _ in read_call_results(talk.asked[2])] == [PARIS]
    assert all("conversation" not in asked.body for asked in talk.asked)
    assert list_texts(client, room.id)[4:] == ["15 °C", "It is mild.", "Thank you.", "Goodbye."]
    kept = {item.id for item in client.sdk.conversations.items.list(room.id)}
    assert {item.id for turn in (first, second, third) for item in turn.output} <= kept


@STREAMS
@EVERYWHERE
def test_reasoning_is_stored(client: ResponsesClient, provider: Provider, target: str, stream: bool) -> None:
    talk = provider.script(ScriptedAnswer("", (PARIS,), "Paris, then."), ScriptedAnswer("It is mild."))
    room = client.sdk.conversations.create()
    more: dict[str, Any] = {"tools": FUNCTIONS, "reasoning": {"effort": "medium"}, "conversation": room.id}
    first = client.turn(REASONING_MODELS[target], talk.mark, stream, **more)
    client.turn(REASONING_MODELS[target], function_outputs(first, "15 °C"), stream, **more)
    assert list_seals(talk.asked[1]) == ["Paris, then." if target == "openai-chat" else SEALS[target]]


@pytest.mark.parametrize(("one", "two"), [("anthropic", "gemini"), ("gemini", "openai-responses")])
def test_the_provider_may_change(client: ResponsesClient, provider: Provider, one: str, two: str) -> None:
    talk = provider.script(
        ScriptedAnswer("", (PARIS,), "Paris, then."), ScriptedAnswer("It is mild."), ScriptedAnswer("Bye.")
    )
    room = client.sdk.conversations.create()
    more: dict[str, Any] = {"tools": FUNCTIONS, "conversation": room.id}
    first = client.turn(MODEL[one], talk.mark, **more)
    client.turn(MODEL[two], function_outputs(first, "15 °C"), **more)
    client.turn(MODEL[one], "Thank you.", **more)
    assert [asked.protocol for asked in talk.asked] == [one, two, one]
    assert SEALS[one] not in talk.asked[1].text
    assert_received(talk.asked[2], talk.mark, "15 °C", "It is mild.", "Thank you.")


def test_a_deleted_item_is_not_sent(client: ResponsesClient, provider: Provider) -> None:
    talk = provider.script(ScriptedAnswer("Noted."), ScriptedAnswer("Yes."))
    room = client.sdk.conversations.create()
    first = client.turn("m-gemini", f"A secret: 4711. {talk.mark}", conversation=room.id)
    page = client.sdk.conversations.items.list(room.id, order="asc")
    client.sdk.conversations.items.create(room.id, items=[user(f"Something else. {talk.mark}")])
    client.sdk.conversations.items.delete(page.data[0].id, conversation_id=room.id)
    client.turn("m-gemini", "Go on.", conversation=room.id)
    assert_received(talk.asked[1], "Noted.", "Something else.", "Go on.")
    assert "4711" not in talk.asked[1].text
    assert client.sdk.responses.retrieve(first.id).output_text == "Noted."


def test_input_items_of_a_response_in_a_conversation(client: ResponsesClient, provider: Provider) -> None:
    talk = provider.script(ScriptedAnswer("Hello."))
    room = client.sdk.conversations.create(items=[user("Before.")])
    answer = client.turn("m-anthropic", talk.mark, conversation=room.id)
    assert client.sdk.responses.retrieve(answer.id).conversation == answer.conversation
    page = client.sdk.responses.input_items.list(answer.id, order="asc")
    assert item_texts(page.data) == ["Before.", talk.mark]


@EVERYWHERE
def test_an_unknown_conversation(client: ResponsesClient, provider: Provider, target: str) -> None:
    talk = provider.script(ScriptedAnswer("Never said."))
    for given in (UNKNOWN, {"id": UNKNOWN}):
        with pytest.raises(openai.NotFoundError) as caught:
            client.turn(MODEL[target], talk.mark, conversation=given)
        assert caught.value.body["message"] == f"Conversation with id '{UNKNOWN}' not found."  # type: ignore[index]
    assert not talk.asked


@EVERYWHERE
def test_conversation_and_previous_response_id_exclude_each_other(
    client: ResponsesClient, provider: Provider, target: str
) -> None:
    talk = provider.script(ScriptedAnswer("Hello."))
    room = client.sdk.conversations.create()
    first = client.turn(MODEL[target], talk.mark)
    with pytest.raises(openai.BadRequestError):
        client.turn(MODEL[target], "And?", conversation=room.id, previous_response_id=first.id)
    assert len(talk.asked) == 1


FAILURES = {
    "refused": Step(fails="rate"),
    "broken": Step(ScriptedAnswer("Half of what I have to say.", (PARIS,)), breaks="error"),
    "cut": Step(ScriptedAnswer("Half of what I have to say.", (PARIS,)), breaks="cut"),
}


@pytest.mark.parametrize("how", FAILURES)
@EVERYWHERE
def test_a_failed_response_is_not_appended(client: ResponsesClient, provider: Provider, target: str, how: str) -> None:
    talk = provider.script(FAILURES[how], ScriptedAnswer("Hello."))
    room = client.sdk.conversations.create(items=[user(talk.mark)])
    with pytest.raises((openai.APIError, RuntimeError)):
        client.turn(MODEL[target], "Too early.", True, conversation=room.id)
    assert list_texts(client, room.id) == [talk.mark]
    client.turn(MODEL[target], "Again.", True, conversation=room.id)
    assert list_texts(client, room.id) == [talk.mark, "Again.", "Hello."]


def test_a_conversation_that_is_deleted_during_a_response(
    client: ResponsesClient, provider: Provider, hold: Hold
) -> None:
    """The client gets the response anyway."""
    talk = provider.script(Step(ScriptedAnswer("Still here."), hold=hold, after=3))
    room = client.sdk.conversations.create()
    with client.sdk.responses.stream(model="m-anthropic", input=talk.mark, conversation=room.id) as stream:
        next(iter(stream))
        client.sdk.conversations.delete(room.id)
        hold.release()
        assert stream.get_final_response().output_text == "Still here."
    assert_not_found(client, "list", room.id)


@pytest.mark.parametrize("then", ["cancel", "drain"])
def test_a_client_that_leaves(provider: Provider, tmp_path: Path, hold: Hold, then: str) -> None:
    """Either the response is dropped and not stored, or it is completed and stored."""
    talk = provider.script(Step(ScriptedAnswer("Word by word by word."), hold=hold, after=3))
    with (
        gateway_with_store(tmp_path, provider, server=f'on_disconnect = "{then}"') as base,
        open_client(base) as client,
    ):
        room = client.sdk.conversations.create()
        stream = client.sdk.responses.create(model="m-anthropic", input=talk.mark, conversation=room.id, stream=True)
        id = next(stream).response.id  # type: ignore[union-attr]
        assert hold.reached.wait(PATIENCE)
        stream.close()
        if then == "cancel":
            assert hold.gone.wait(PATIENCE)
            assert client.raw("GET", f"/responses/{id}").status == 404
            assert list_texts(client, room.id) == []
        else:
            hold.release()
            assert poll(lambda: client.raw("GET", f"/responses/{id}").status, lambda status: status != 404) == 200
            assert list_texts(client, room.id) == [talk.mark, "Word by word by word."]


def test_items_are_copied_and_not_moved(client: ResponsesClient) -> None:
    """Clients send items back with their ids."""
    one = client.sdk.conversations.create(items=[user("One."), {"role": "assistant", "content": "Two."}])
    page = client.raw("GET", f"/conversations/{one.id}/items?order=asc").json()
    other = client.raw("POST", "/conversations", {"items": page["data"]}).json()
    assert list_texts(client, other["id"]) == ["One.", "Two."]
    assert list_texts(client, one.id) == ["One.", "Two."]
    client.sdk.conversations.delete(one.id)
    assert list_texts(client, other["id"]) == ["One.", "Two."]


def test_an_answer_is_taken_into_it(client: ResponsesClient, provider: Provider) -> None:
    """Items from outside are copied into the conversation; the originals stay readable."""
    talk = provider.script(ScriptedAnswer("Hello."), ScriptedAnswer("Hello again."), ScriptedAnswer("And again."))
    first = client.turn("m-chat", talk.mark)
    room = client.sdk.conversations.create()
    client.turn("m-chat", [user(talk.mark), first.output[0], user("Hi")], conversation=room.id)
    assert list_texts(client, room.id) == [talk.mark, "Hello.", "Hi", "Hello again."]
    client.sdk.conversations.delete(room.id)
    client.turn("m-chat", [user(talk.mark), {"type": "item_reference", "id": first.output[0].id}, user("Well?")])
    assert_received(talk.asked[2], talk.mark, "Hello.", "Well?")


def test_its_items_can_be_named(client: ResponsesClient, provider: Provider) -> None:
    talk = provider.script(ScriptedAnswer("Blue."))
    room = client.sdk.conversations.create(items=[user(f"My colour is blue. {talk.mark}")])
    (item,) = client.sdk.conversations.items.list(room.id).data
    client.turn("m-chat", [{"type": "item_reference", "id": item.id}, user("Which?")])
    assert_received(talk.asked[0], "My colour is blue.", "Which?")
