"""Background responses: retrieved later, followed as a stream, and cancelled, through any gateway on the same store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from gateway.clients import KEY
from gateway.provider import BUSY, PROTOCOLS, RATE, Hold, Provider, ScriptedAnswer, Step
from gateway.raw_exchange import RawConnection
from gateway.state_clients import (
    FUNCTIONS,
    MODEL,
    ResponsesClient,
    assert_received,
    function_calls,
    function_outputs,
    gateway_with_store,
    item_texts,
    open_client,
    read_error,
    without_reasoning,
)
from gateway.test_pairs import FIRST_PIECE
from toolwire_conformance.peers import PEERS
from waits import PATIENCE, poll

EVERYWHERE = pytest.mark.parametrize("target", PROTOCOLS)
STREAMS = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
# The SDK's parsed subclasses do not match the types of the fields that hold them when it sends them back.
pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")

PARIS = ("get_weather", {"city": "Paris"})
WORDS = "These words come in three pieces."
UNDER_WAY = ("queued", "in_progress")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("background")


@pytest.fixture(scope="module")
def base(provider: Provider, folder: Path) -> Iterator[str]:
    with gateway_with_store(folder, provider) as url:
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


def create_background(client: ResponsesClient, model: str, prompt: Any, **more: Any) -> Any:
    return client.sdk.responses.create(model=model, input=prompt, background=True, **more)


def wait_for_end(client: ResponsesClient, id: str) -> Any:
    """Poll until the response has ended, as clients do."""
    return poll(lambda: client.sdk.responses.retrieve(id), lambda found: found.status not in UNDER_WAY)


# --- retrieving -------------------------------------------------------------------------------------------------------


@EVERYWHERE
def test_it_is_queued_at_once_and_completed_later(
    client: ResponsesClient, provider: Provider, target: str, hold: Hold
) -> None:
    talk = provider.script(Step(ScriptedAnswer("Let me look.", (PARIS,)), hold=hold), ScriptedAnswer("It is mild."))
    first = create_background(client, MODEL[target], talk.mark, tools=FUNCTIONS, metadata={"of": "test"})
    assert (first.status in UNDER_WAY, first.background, first.output, first.error) == (True, True, [], None)
    assert (first.metadata, first.completed_at) == ({"of": "test"}, None)
    assert hold.reached.wait(PATIENCE)
    waiting = client.sdk.responses.retrieve(first.id)
    assert (waiting.id, waiting.status in UNDER_WAY, waiting.output) == (first.id, True, [])
    hold.release()
    done = wait_for_end(client, first.id)
    assert (done.id, done.status, done.background, done.output_text) == (first.id, "completed", True, "Let me look.")
    assert (done.created_at, done.usage.output_tokens, done.metadata) == (first.created_at, 12, {"of": "test"})
    second = client.turn(MODEL[target], function_outputs(done, "15 °C"), tools=FUNCTIONS, previous_response_id=first.id)
    assert second.output_text == "It is mild."
    assert_received(talk.asked[1], talk.mark, "Let me look.", "15 °C")
    assert all("background" not in asked.body for asked in talk.asked)


@EVERYWHERE
def test_previous_response_id(client: ResponsesClient, provider: Provider, target: str) -> None:
    talk = provider.script(ScriptedAnswer("One."), ScriptedAnswer("Two."), ScriptedAnswer("Three."))
    first = client.turn(MODEL[target], talk.mark)
    second = wait_for_end(client, create_background(client, MODEL[target], "Next.", previous_response_id=first.id).id)
    assert (second.previous_response_id, second.output_text) == (first.id, "Two.")
    third = client.turn(MODEL[target], "Last.", previous_response_id=second.id)
    assert third.output_text == "Three."
    assert_received(talk.asked[2], talk.mark, "One.", "Next.", "Two.", "Last.")
    listed = client.sdk.responses.input_items.list(second.id, order="asc")
    assert item_texts(listed.data) == [talk.mark, "One.", "Next."]


@STREAMS
@EVERYWHERE
def test_in_a_conversation(client: ResponsesClient, provider: Provider, target: str, stream: bool) -> None:
    talk = provider.script(ScriptedAnswer("Hello."))
    room = client.sdk.conversations.create()
    more: dict[str, Any] = {"conversation": room.id}
    if stream:
        with client.sdk.responses.stream(model=MODEL[target], input=talk.mark, background=True, **more) as events:
            done = events.get_final_response()
    else:
        done = wait_for_end(client, create_background(client, MODEL[target], talk.mark, **more).id)
    assert done.conversation.id == room.id
    said = item_texts(list(client.sdk.conversations.items.list(room.id, order="asc")))
    assert said == [talk.mark, "Hello."]


def test_the_embedded_model(client: ResponsesClient) -> None:
    done = wait_for_end(client, create_background(client, "loopback", "Hello there.").id)
    assert done.status == "completed"
    assert done.output_text


# --- failures ---------------------------------------------------------------------------------------------------------

FAILS = {"rate": RATE, "busy": BUSY, "bad": "That cannot be done."}


@pytest.mark.parametrize("kind", FAILS)
@EVERYWHERE
def test_a_provider_that_refuses(client: ResponsesClient, provider: Provider, target: str, kind: str) -> None:
    talk = provider.script(Step(fails=kind))
    first = create_background(client, MODEL[target], talk.mark)
    done = wait_for_end(client, first.id)
    assert (done.id, done.status, done.output, done.background) == (first.id, "failed", [], True)
    assert FAILS[kind] in done.error.message
    assert done.error.code


@pytest.mark.parametrize("breaks", ["error", "cut", "ended"])
@EVERYWHERE
def test_a_stream_that_breaks_off(client: ResponsesClient, provider: Provider, target: str, breaks: Any) -> None:
    talk = provider.script(Step(ScriptedAnswer("Half of what I have to say.", (PARIS,)), breaks=breaks))
    sent = {"model": MODEL[target], "input": talk.mark, "background": True, "stream": True, "tools": FUNCTIONS}
    got = client.raw("POST", "/responses", sent)
    last = got.frames[-1].data
    assert last["type"] == "response.failed"
    done = client.sdk.responses.retrieve(last["response"]["id"])
    assert done.status == "failed"
    assert done.error
    assert done.error.message


NEVER: dict[str, dict[str, Any]] = {
    "without being kept": {"store": False},
    "going on from nothing": {"previous_response_id": "resp_0123456789abcdef"},
    "a wish that is no yes or no": {"background": "later"},
}


@pytest.mark.parametrize("what", NEVER)
@STREAMS
def test_invalid_requests_fail_at_once(client: ResponsesClient, provider: Provider, what: str, stream: bool) -> None:
    talk = provider.script(ScriptedAnswer("Never said."))
    sent = {"model": "m-anthropic", "input": talk.mark, "background": True, "stream": stream, **NEVER[what]}
    got = client.raw("POST", "/responses", sent)
    assert (got.status, read_error(got)["type"]) == (400, "invalid_request_error")
    assert not talk.asked


def test_an_unknown_model(client: ResponsesClient) -> None:
    with pytest.raises(openai.NotFoundError):
        create_background(client, "no-such-model", "Hi")


# --- cancelling -------------------------------------------------------------------------------------------------------


@EVERYWHERE
@pytest.mark.parametrize("after", ["the head", "some text"])
def test_cancelling(client: ResponsesClient, provider: Provider, target: str, hold: Hold, after: str) -> None:
    frames = FIRST_PIECE[target] if after == "some text" else 0
    talk = provider.script(Step(ScriptedAnswer(WORDS), hold=hold, after=frames))
    if frames:
        events = client.sdk.responses.create(model=MODEL[target], input=talk.mark, background=True, stream=True)
        first: Any = next(iter(events)).response  # type: ignore[union-attr]
    else:
        first = create_background(client, MODEL[target], talk.mark)
    assert hold.reached.wait(PATIENCE)
    stopped = client.sdk.responses.cancel(first.id)
    assert (stopped.id, stopped.status, stopped.background) == (first.id, "cancelled", True)
    assert hold.gone.wait(PATIENCE)
    assert client.sdk.responses.retrieve(first.id) == stopped
    assert client.sdk.responses.cancel(first.id) == stopped
    if frames:
        list(events)  # what was there comes to an end too
        events.close()
    assert len(talk.asked) == 1


def test_cancelling_a_completed_response_changes_nothing(client: ResponsesClient, provider: Provider) -> None:
    talk = provider.script(ScriptedAnswer("Done."))
    first = create_background(client, "m-gemini", talk.mark)
    done = wait_for_end(client, first.id)
    assert client.sdk.responses.cancel(first.id) == done
    assert client.sdk.responses.retrieve(first.id) == done


def test_only_background_responses_can_be_cancelled(client: ResponsesClient, provider: Provider) -> None:
    talk = provider.script(ScriptedAnswer("Done."))
    answer = client.turn("m-chat", talk.mark)
    with pytest.raises(openai.BadRequestError):
        client.sdk.responses.cancel(answer.id)
    assert client.sdk.responses.retrieve(answer.id).status == "completed"
    with pytest.raises(openai.NotFoundError):
        client.sdk.responses.cancel("resp_0123456789abcdef")


def test_deleting_cancels(client: ResponsesClient, provider: Provider, hold: Hold) -> None:
    talk = provider.script(Step(ScriptedAnswer(WORDS), hold=hold))
    first = create_background(client, "m-anthropic", talk.mark)
    assert hold.reached.wait(PATIENCE)
    client.sdk.responses.delete(first.id)
    assert hold.gone.wait(PATIENCE)
    with pytest.raises(openai.NotFoundError):
        client.sdk.responses.retrieve(first.id)


def test_an_unfinished_response_cannot_be_continued(client: ResponsesClient, provider: Provider, hold: Hold) -> None:
    talk = provider.script(Step(ScriptedAnswer("One."), hold=hold), ScriptedAnswer("Two."))
    first = create_background(client, "m-chat", talk.mark)
    assert hold.reached.wait(PATIENCE)
    with pytest.raises(openai.BadRequestError):
        client.turn("m-chat", "And?", previous_response_id=first.id)
    hold.release()
    wait_for_end(client, first.id)
    assert client.turn("m-chat", "And?", previous_response_id=first.id).output_text == "Two."


# --- following the stream ---------------------------------------------------------------------------------------------


def deltas(events: list[Any]) -> str:
    return "".join(event.delta for event in events if event.type == "response.output_text.delta")


@EVERYWHERE
def test_its_stream_is_the_same_each_time(client: ResponsesClient, provider: Provider, target: str) -> None:
    talk = provider.script(ScriptedAnswer(WORDS, (PARIS,), "Paris, then."))
    sent = {"model": MODEL[target], "input": talk.mark, "background": True, "stream": True, "tools": FUNCTIONS}
    got = client.raw("POST", "/responses", sent)
    folded = PEERS["openai-responses"].fold_stream(got.frames)
    assert folded.violations == ()
    assert (folded.body["status"], folded.body["background"]) == ("completed", True)
    id = folded.body["id"]
    assert client.raw("GET", f"/responses/{id}").json() == folded.body
    again = client.raw("GET", f"/responses/{id}?stream=true")
    assert [frame.data for frame in again.frames] == [frame.data for frame in got.frames]
    for number in range(len(got.frames)):
        rest = client.raw("GET", f"/responses/{id}?stream=true&starting_after={number}")
        assert [frame.data for frame in rest.frames] == [frame.data for frame in got.frames[number + 1 :]]


@EVERYWHERE
def test_a_client_that_disconnects_can_resume(
    client: ResponsesClient, base: str, provider: Provider, target: str, hold: Hold
) -> None:
    """The response is made to its end without the client."""
    talk = provider.script(Step(ScriptedAnswer(WORDS), hold=hold, after=FIRST_PIECE[target]), ScriptedAnswer("Yes."))
    events = client.sdk.responses.create(model=MODEL[target], input=talk.mark, background=True, stream=True)
    seen: list[Any] = []
    for event in events:
        seen.append(event)
        if event.type == "response.output_text.delta":
            break
    events.close()
    id, last = seen[0].response.id, seen[-1].sequence_number
    assert [event.sequence_number for event in seen] == list(range(last + 1))
    assert client.sdk.responses.retrieve(id).status in UNDER_WAY
    hold.release()
    with client.sdk.responses.retrieve(id, stream=True, starting_after=last) as stream:
        rest = list(stream)
    assert not hold.gone.is_set()
    assert [event.sequence_number for event in rest] == list(range(last + 1, last + 1 + len(rest)))
    assert deltas(seen) + deltas(rest) == WORDS
    assert rest[-1].type == "response.completed"
    assert rest[-1].response.id == id
    assert client.turn(MODEL[target], "And?", previous_response_id=id).output_text == "Yes."


@EVERYWHERE
def test_following_from_the_middle(
    client: ResponsesClient, base: str, provider: Provider, target: str, hold: Hold
) -> None:
    """It gets what there is at once, and then the rest as it comes."""
    talk = provider.script(Step(ScriptedAnswer(WORDS), hold=hold, after=FIRST_PIECE[target]))
    with client.sdk.responses.create(model=MODEL[target], input=talk.mark, background=True, stream=True) as events:
        id = next(iter(events)).response.id  # type: ignore[union-attr]
        assert hold.reached.wait(PATIENCE)
        line = RawConnection(int(base.rpartition(":")[2]))
        line.send("GET", f"/v1/responses/{id}?stream=true", headers={"authorization": f"Bearer {KEY}"})
        line.start()
        line.read_until(b"response.output_text.delta")
        hold.release()
        line.read_until(b"event: response.completed")
        line.disconnect()
        both = [event.type for event in events]
    assert both[-1] == "response.completed"


@EVERYWHERE
def test_a_response_created_without_a_stream_can_be_followed(
    client: ResponsesClient, provider: Provider, target: str
) -> None:
    talk = provider.script(ScriptedAnswer(WORDS, (PARIS,)))
    done = wait_for_end(client, create_background(client, MODEL[target], talk.mark, tools=FUNCTIONS).id)
    got = client.raw("GET", f"/responses/{done.id}?stream=true")
    folded = PEERS["openai-responses"].fold_stream(got.frames)
    assert (folded.violations, folded.body["id"], item_texts(without_reasoning(folded.body["output"]))) == (
        (), done.id, [WORDS, function_calls(done)[0].arguments],
    )  # fmt: skip


def test_the_sdk_resumes(client: ResponsesClient, provider: Provider, hold: Hold) -> None:
    talk = provider.script(Step(ScriptedAnswer(WORDS), hold=hold, after=3))
    with client.sdk.responses.stream(model="m-anthropic", input=talk.mark, background=True) as events:
        id = next(iter(events)).response.id  # type: ignore[union-attr]
    hold.release()
    with client.sdk.responses.stream(response_id=id) as events:
        assert events.get_final_response().output_text == WORDS


# --- several gateways -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def other(provider: Provider, base: str, folder: Path) -> Iterator[ResponsesClient]:
    """A second gateway on the first one's store."""
    with gateway_with_store(folder, provider) as url, open_client(url) as made:
        assert url != base
        yield made


def test_another_gateway_retrieves_and_cancels_it(
    client: ResponsesClient, other: ResponsesClient, provider: Provider, hold: Hold
) -> None:
    talk = provider.script(Step(ScriptedAnswer(WORDS), hold=hold, after=3))
    first = create_background(client, "m-anthropic", talk.mark)
    assert hold.reached.wait(PATIENCE)
    assert other.sdk.responses.retrieve(first.id).status in UNDER_WAY
    assert other.sdk.responses.cancel(first.id).status == "cancelled"
    assert hold.gone.wait(PATIENCE)
    assert client.sdk.responses.retrieve(first.id).status == "cancelled"


def test_another_gateway_follows_it(
    client: ResponsesClient, other: ResponsesClient, provider: Provider, hold: Hold
) -> None:
    talk = provider.script(Step(ScriptedAnswer(WORDS), hold=hold, after=FIRST_PIECE["gemini"]))
    events = client.sdk.responses.create(model="m-gemini", input=talk.mark, background=True, stream=True)
    seen = [next(events)]
    while seen[-1].type != "response.output_text.delta":
        seen.append(next(events))
    events.close()
    hold.release()
    id, last = seen[0].response.id, seen[-1].sequence_number  # type: ignore[union-attr]
    with other.sdk.responses.retrieve(id, stream=True, starting_after=last) as stream:
        assert deltas(seen) + deltas(list(stream)) == WORDS
