"""Answers that are made in the background: asked for again, read as they grow, and stopped, whoever makes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from gateway.clients import KEY, PATIENCE
from gateway.kept import (
    ENOUGH,
    FUNCTIONS,
    MODEL,
    Client,
    calls_of,
    client_of,
    error_in,
    heard,
    keeping,
    results,
    spoken,
    texts_of,
)
from gateway.provider import BUSY, PROTOCOLS, RATE, Hold, Provider, Says, Step
from gateway.test_pairs import FIRST_PIECE
from gateway.wire import Line
from toolwire.conformance.peers import PEERS

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


def begun(client: Client, model: str, prompt: Any, **more: Any) -> Any:
    return client.sdk.responses.create(model=model, input=prompt, background=True, **more)


def ended(client: Client, id: str) -> Any:
    """The answer, when it has come to an end; as clients do, by asking again and again."""
    for _ in range(ENOUGH):
        found = client.sdk.responses.retrieve(id)
        if found.status not in UNDER_WAY:
            return found
    raise AssertionError(f"{id} is still {found.status}")


# --- asking for it again ----------------------------------------------------------------------------------------------


@EVERYWHERE
def test_it_is_there_at_once_and_done_later(client: Client, provider: Provider, target: str, hold: Hold) -> None:
    talk = provider.script(Step(Says("Let me look.", (PARIS,)), hold=hold), Says("It is mild."))
    first = begun(client, MODEL[target], talk.mark, tools=FUNCTIONS, metadata={"of": "test"})
    assert (first.status in UNDER_WAY, first.background, first.output, first.error) == (True, True, [], None)
    assert (first.metadata, first.completed_at) == ({"of": "test"}, None)
    assert hold.reached.wait(PATIENCE)
    waiting = client.sdk.responses.retrieve(first.id)
    assert (waiting.id, waiting.status in UNDER_WAY, waiting.output) == (first.id, True, [])
    hold.release()
    done = ended(client, first.id)
    assert (done.id, done.status, done.background, done.output_text) == (first.id, "completed", True, "Let me look.")
    assert (done.created_at, done.usage.output_tokens, done.metadata) == (first.created_at, 12, {"of": "test"})
    second = client.turn(MODEL[target], results(done, "15 °C"), tools=FUNCTIONS, previous_response_id=first.id)
    assert second.output_text == "It is mild."
    heard(talk.asked[1], talk.mark, "Let me look.", "15 °C")
    assert all("background" not in asked.body for asked in talk.asked)


@EVERYWHERE
def test_one_that_goes_on_from_another(client: Client, provider: Provider, target: str) -> None:
    talk = provider.script(Says("One."), Says("Two."), Says("Three."))
    first = client.turn(MODEL[target], talk.mark)
    second = ended(client, begun(client, MODEL[target], "Next.", previous_response_id=first.id).id)
    assert (second.previous_response_id, second.output_text) == (first.id, "Two.")
    third = client.turn(MODEL[target], "Last.", previous_response_id=second.id)
    assert third.output_text == "Three."
    heard(talk.asked[2], talk.mark, "One.", "Next.", "Two.", "Last.")
    listed = client.sdk.responses.input_items.list(second.id, order="asc")
    assert texts_of(listed.data) == [talk.mark, "One.", "Next."]


@STREAMS
@EVERYWHERE
def test_one_in_a_conversation(client: Client, provider: Provider, target: str, stream: bool) -> None:
    talk = provider.script(Says("Hello."))
    room = client.sdk.conversations.create()
    more: dict[str, Any] = {"conversation": room.id}
    if stream:
        with client.sdk.responses.stream(model=MODEL[target], input=talk.mark, background=True, **more) as events:
            done = events.get_final_response()
    else:
        done = ended(client, begun(client, MODEL[target], talk.mark, **more).id)
    assert done.conversation.id == room.id
    said = texts_of(list(client.sdk.conversations.items.list(room.id, order="asc")))
    assert said == [talk.mark, "Hello."]


def test_the_embedded_model(client: Client) -> None:
    done = ended(client, begun(client, "loopback", "Hello there.").id)
    assert done.status == "completed"
    assert done.output_text


# --- when it fails ----------------------------------------------------------------------------------------------------

FAILS = {"rate": RATE, "busy": BUSY, "bad": "That cannot be done."}


@pytest.mark.parametrize("kind", FAILS)
@EVERYWHERE
def test_a_provider_that_refuses(client: Client, provider: Provider, target: str, kind: str) -> None:
    talk = provider.script(Step(fails=kind))
    first = begun(client, MODEL[target], talk.mark)
    done = ended(client, first.id)
    assert (done.id, done.status, done.output, done.background) == (first.id, "failed", [], True)
    assert FAILS[kind] in done.error.message
    assert done.error.code


@pytest.mark.parametrize("breaks", ["error", "cut", "ended"])
@EVERYWHERE
def test_an_answer_that_breaks(client: Client, provider: Provider, target: str, breaks: Any) -> None:
    talk = provider.script(Step(Says("Half of what I have to say.", (PARIS,)), breaks=breaks))
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
def test_what_is_refused_at_once(client: Client, provider: Provider, what: str, stream: bool) -> None:
    talk = provider.script(Says("Never said."))
    sent = {"model": "m-anthropic", "input": talk.mark, "background": True, "stream": stream, **NEVER[what]}
    got = client.raw("POST", "/responses", sent)
    assert (got.status, error_in(got)["type"]) == (400, "invalid_request_error")
    assert not talk.asked


def test_a_model_that_nobody_has(client: Client) -> None:
    with pytest.raises(openai.NotFoundError):
        begun(client, "no-such-model", "Hi")


# --- stopping it ------------------------------------------------------------------------------------------------------


@EVERYWHERE
@pytest.mark.parametrize("after", ["the head", "some text"])
def test_it_can_be_stopped(client: Client, provider: Provider, target: str, hold: Hold, after: str) -> None:
    frames = FIRST_PIECE[target] if after == "some text" else 0
    talk = provider.script(Step(Says(WORDS), hold=hold, after=frames))
    if frames:
        events = client.sdk.responses.create(model=MODEL[target], input=talk.mark, background=True, stream=True)
        first: Any = next(iter(events)).response  # type: ignore[union-attr]
    else:
        first = begun(client, MODEL[target], talk.mark)
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


def test_what_is_done_is_not_stopped(client: Client, provider: Provider) -> None:
    talk = provider.script(Says("Done."))
    first = begun(client, "m-gemini", talk.mark)
    done = ended(client, first.id)
    assert client.sdk.responses.cancel(first.id) == done
    assert client.sdk.responses.retrieve(first.id) == done


def test_only_those_in_the_background_are_stopped(client: Client, provider: Provider) -> None:
    talk = provider.script(Says("Done."))
    answer = client.turn("m-chat", talk.mark)
    with pytest.raises(openai.BadRequestError):
        client.sdk.responses.cancel(answer.id)
    assert client.sdk.responses.retrieve(answer.id).status == "completed"
    with pytest.raises(openai.NotFoundError):
        client.sdk.responses.cancel("resp_0123456789abcdef")


def test_one_that_is_removed_is_stopped(client: Client, provider: Provider, hold: Hold) -> None:
    talk = provider.script(Step(Says(WORDS), hold=hold))
    first = begun(client, "m-anthropic", talk.mark)
    assert hold.reached.wait(PATIENCE)
    client.sdk.responses.delete(first.id)
    assert hold.gone.wait(PATIENCE)
    with pytest.raises(openai.NotFoundError):
        client.sdk.responses.retrieve(first.id)


def test_one_that_is_not_done_has_no_next(client: Client, provider: Provider, hold: Hold) -> None:
    talk = provider.script(Step(Says("One."), hold=hold), Says("Two."))
    first = begun(client, "m-chat", talk.mark)
    assert hold.reached.wait(PATIENCE)
    with pytest.raises(openai.BadRequestError):
        client.turn("m-chat", "And?", previous_response_id=first.id)
    hold.release()
    ended(client, first.id)
    assert client.turn("m-chat", "And?", previous_response_id=first.id).output_text == "Two."


# --- reading it as it grows -------------------------------------------------------------------------------------------


def deltas(events: list[Any]) -> str:
    return "".join(event.delta for event in events if event.type == "response.output_text.delta")


@EVERYWHERE
def test_its_stream_is_the_same_each_time(client: Client, provider: Provider, target: str) -> None:
    talk = provider.script(Says(WORDS, (PARIS,), "Paris, then."))
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
def test_a_client_that_leaves_finds_the_rest(
    client: Client, base: str, provider: Provider, target: str, hold: Hold
) -> None:
    """The answer goes on without it."""
    talk = provider.script(Step(Says(WORDS), hold=hold, after=FIRST_PIECE[target]), Says("Yes."))
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
def test_a_reader_who_comes_in_the_middle(
    client: Client, base: str, provider: Provider, target: str, hold: Hold
) -> None:
    """It is told what there is, and then the rest as it comes."""
    talk = provider.script(Step(Says(WORDS), hold=hold, after=FIRST_PIECE[target]))
    with client.sdk.responses.create(model=MODEL[target], input=talk.mark, background=True, stream=True) as events:
        id = next(iter(events)).response.id  # type: ignore[union-attr]
        assert hold.reached.wait(PATIENCE)
        line = Line(int(base.rpartition(":")[2]))
        line.send("GET", f"/v1/responses/{id}?stream=true", headers={"authorization": f"Bearer {KEY}"})
        line.start()
        line.until(b"response.output_text.delta")
        hold.release()
        line.until(b"event: response.completed")
        line.leave()
        both = [event.type for event in events]
    assert both[-1] == "response.completed"


@EVERYWHERE
def test_one_that_was_begun_without_a_stream_may_be_read_as_one(
    client: Client, provider: Provider, target: str
) -> None:
    talk = provider.script(Says(WORDS, (PARIS,)))
    done = ended(client, begun(client, MODEL[target], talk.mark, tools=FUNCTIONS).id)
    got = client.raw("GET", f"/responses/{done.id}?stream=true")
    folded = PEERS["openai-responses"].fold_stream(got.frames)
    assert (folded.violations, folded.body["id"], texts_of(spoken(folded.body["output"]))) == (
        (), done.id, [WORDS, calls_of(done)[0].arguments],
    )  # fmt: skip


def test_the_sdk_resumes(client: Client, provider: Provider, hold: Hold) -> None:
    talk = provider.script(Step(Says(WORDS), hold=hold, after=3))
    with client.sdk.responses.stream(model="m-anthropic", input=talk.mark, background=True) as events:
        id = next(iter(events)).response.id  # type: ignore[union-attr]
    hold.release()
    with client.sdk.responses.stream(response_id=id) as events:
        assert events.get_final_response().output_text == WORDS


# --- more than one gateway --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def other(provider: Provider, base: str, folder: Path) -> Iterator[Client]:
    """A second gateway on the first one's store."""
    with keeping(folder, provider) as url, client_of(url) as made:
        assert url != base
        yield made


def test_another_gateway_tells_of_it_and_stops_it(
    client: Client, other: Client, provider: Provider, hold: Hold
) -> None:
    talk = provider.script(Step(Says(WORDS), hold=hold, after=3))
    first = begun(client, "m-anthropic", talk.mark)
    assert hold.reached.wait(PATIENCE)
    assert other.sdk.responses.retrieve(first.id).status in UNDER_WAY
    assert other.sdk.responses.cancel(first.id).status == "cancelled"
    assert hold.gone.wait(PATIENCE)
    assert client.sdk.responses.retrieve(first.id).status == "cancelled"


def test_another_gateway_reads_it_as_it_grows(client: Client, other: Client, provider: Provider, hold: Hold) -> None:
    talk = provider.script(Step(Says(WORDS), hold=hold, after=FIRST_PIECE["gemini"]))
    events = client.sdk.responses.create(model="m-gemini", input=talk.mark, background=True, stream=True)
    seen = [next(events)]
    while seen[-1].type != "response.output_text.delta":
        seen.append(next(events))
    events.close()
    hold.release()
    id, last = seen[0].response.id, seen[-1].sequence_number  # type: ignore[union-attr]
    with other.sdk.responses.retrieve(id, stream=True, starting_after=last) as stream:
        assert deltas(seen) + deltas(list(stream)) == WORDS
