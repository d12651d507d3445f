"""Stored responses, on every provider: continued with `previous_response_id`, retrieved, listed and deleted."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import openai
import pytest

from gateway.clients import KEY
from gateway.conftest import only_where
from gateway.provider import PROTOCOLS, SEALS, Provider, ScriptedAnswer, Step
from gateway.raw_exchange import RawConnection, answer, ask, body_of, stage, whole_answer, write_chunked
from gateway.state_clients import (
    FUNCTIONS,
    MODEL,
    OTHER_PROTOCOLS,
    REASONING_MODELS,
    ResponsesClient,
    assert_received,
    function_calls,
    function_outputs,
    gateway_with_store,
    item_texts,
    open_client,
    read_error,
    store_url,
)
from gateway.test_pairs import list_seals, read_call_results
from toolwire.gateway.exchange.client_body import MAX_VALUES
from toolwire_conformance.peers import PEERS
from toolwire_conformance.peers.peer import encode_json, read_frames
from waits import poll

STREAMS = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
EVERYWHERE = pytest.mark.parametrize("target", PROTOCOLS)
ELSEWHERE = pytest.mark.parametrize("target", OTHER_PROTOCOLS)
# The SDK's parsed subclasses do not match the types of the fields that hold them when it sends them back.
pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")

PARIS = ("get_weather", {"city": "Paris"})
OSLO = ("get_weather", {"city": "Oslo"})
UNKNOWN = "resp_0123456789abcdef"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module")
def base(provider: Provider, folder: Path) -> Iterator[str]:
    with gateway_with_store(folder, provider) as url:
        yield url


@pytest.fixture(scope="module")
def client(base: str) -> Iterator[ResponsesClient]:
    with open_client(base) as made:
        yield made


# --- previous_response_id ---------------------------------------------------------------------------------------------


@STREAMS
@EVERYWHERE
def test_previous_response_id_continues_the_turn_before(
    client: ResponsesClient, provider: Provider, target: str, stream: bool
) -> None:
    talk = provider.script(
        ScriptedAnswer("Let me look.", (PARIS, OSLO)), ScriptedAnswer("It is mild."), ScriptedAnswer("Goodbye.")
    )
    first = client.turn(MODEL[target], f"The weather? {talk.mark}", stream, tools=FUNCTIONS)
    second = client.turn(
        MODEL[target], function_outputs(first, "15 °C", "3 °C"), stream, tools=FUNCTIONS, previous_response_id=first.id
    )
    third = client.turn(MODEL[target], "Thank you.", stream, tools=FUNCTIONS, previous_response_id=second.id)
    assert (second.output_text, third.output_text) == ("It is mild.", "Goodbye.")
    assert [turn.previous_response_id for turn in (first, second, third)] == [None, first.id, second.id]
    assert len({first.id, second.id, third.id}) == 3
    assert_received(talk.asked[2], talk.mark, "Let me look.", "15 °C", "3 °C", "It is mild.", "Thank you.")
    assert [(name, arguments) for name, arguments, _, _ in read_call_results(talk.asked[2])] == [PARIS, OSLO]
    assert [asked.protocol for asked in talk.asked] == [target] * 3
    assert all(asked.body.get("previous_response_id") is None for asked in talk.asked)
    assert not talk.refused


@STREAMS
@EVERYWHERE
def test_instructions_and_tools_are_not_inherited(
    client: ResponsesClient, provider: Provider, target: str, stream: bool
) -> None:
    talk = provider.script(ScriptedAnswer("Hello."), ScriptedAnswer("Hello again."))
    first = client.turn(MODEL[target], talk.mark, stream, tools=FUNCTIONS, instructions="Be brief.")
    second = client.turn(MODEL[target], "Hi", stream, previous_response_id=first.id, instructions="Be polite.")
    assert second.output_text == "Hello again."
    assert_received(talk.asked[1], "Be polite.")
    assert "Be brief." not in talk.asked[1].text
    assert "get_weather" not in talk.asked[1].text


@STREAMS
@EVERYWHERE
def test_reasoning_goes_back_to_its_provider(
    client: ResponsesClient, provider: Provider, target: str, stream: bool
) -> None:
    talk = provider.script(
        ScriptedAnswer("", (PARIS,), "Paris, then."), ScriptedAnswer("", (OSLO,), "And Oslo."), ScriptedAnswer("Done.")
    )
    more: dict[str, Any] = {"tools": FUNCTIONS, "reasoning": {"effort": "medium", "summary": "auto"}}
    first = client.turn(REASONING_MODELS[target], talk.mark, stream, **more)
    second = client.turn(
        REASONING_MODELS[target], function_outputs(first, "15 °C"), stream, previous_response_id=first.id, **more
    )
    third = client.turn(
        REASONING_MODELS[target], function_outputs(second, "3 °C"), stream, previous_response_id=second.id, **more
    )
    assert third.output_text == "Done."
    wanted = ["Paris, then.", "And Oslo."] if target == "openai-chat" else [SEALS[target]] * 2
    assert (list_seals(talk.asked[1]), list_seals(talk.asked[2])) == (wanted[:1], wanted)


SEALED = [protocol for protocol in PROTOCOLS if SEALS[protocol]]


@STREAMS
@pytest.mark.parametrize(("first", "between"), [pair for pair in permutations(PROTOCOLS, 2) if pair[0] in SEALED])
def test_a_chain_over_another_provider_and_back(
    client: ResponsesClient, provider: Provider, first: str, between: str, stream: bool
) -> None:
    talk = provider.script(
        ScriptedAnswer("", (PARIS,), "Paris, then."), ScriptedAnswer("", (OSLO,), "And Oslo."), ScriptedAnswer("Done.")
    )
    more: dict[str, Any] = {"tools": FUNCTIONS, "reasoning": {"effort": "medium"}}
    one = client.turn(REASONING_MODELS[first], talk.mark, stream, **more)
    two = client.turn(
        REASONING_MODELS[between], function_outputs(one, "15 °C"), stream, previous_response_id=one.id, **more
    )
    three = client.turn(
        REASONING_MODELS[first], function_outputs(two, "3 °C"), stream, previous_response_id=two.id, **more
    )
    assert three.output_text == "Done."
    assert [asked.protocol for asked in talk.asked] == [first, between, first]
    assert SEALS[first] not in talk.asked[1].text
    assert list_seals(talk.asked[2])[:1] == [SEALS[first]]
    assert not SEALS[between] or SEALS[between] not in talk.asked[2].text
    assert [(name, arguments) for name, arguments, _, _ in read_call_results(talk.asked[2])] == [PARIS, OSLO]


@ELSEWHERE
def test_two_responses_may_continue_the_same_one(client: ResponsesClient, provider: Provider, target: str) -> None:
    talk = provider.script(
        ScriptedAnswer("A river."),
        ScriptedAnswer("It is long."),
        ScriptedAnswer("It is deep."),
        ScriptedAnswer("Longer still."),
    )
    root = client.turn(MODEL[target], f"What is it? {talk.mark}")
    long = client.turn(MODEL[target], "How long?", previous_response_id=root.id)
    client.turn(MODEL[target], "How deep?", previous_response_id=root.id)
    client.turn(MODEL[target], "Compared?", previous_response_id=long.id)
    assert_received(talk.asked[2], talk.mark, "A river.", "How deep?")
    assert "long" not in talk.asked[2].text
    assert_received(talk.asked[3], talk.mark, "A river.", "How long?", "It is long.", "Compared?")
    assert "deep" not in talk.asked[3].text


def test_the_embedded_model_continues_too(client: ResponsesClient) -> None:
    first = client.turn("loopback", "The weather in Paris?", tools=FUNCTIONS, tool_choice="required")
    (call,) = function_calls(first)
    second = client.turn(
        "loopback", function_outputs(first, "21.75 °C"), tools=FUNCTIONS, previous_response_id=first.id
    )
    assert "21.75 °C" in second.output_text
    listed = client.sdk.responses.input_items.list(second.id, order="asc").data
    assert [item.type for item in listed] == ["message", "function_call", "function_call_output"]
    assert listed[1].call_id == call.call_id


@STREAMS
@EVERYWHERE
def test_store_false_stores_nothing(client: ResponsesClient, provider: Provider, target: str, stream: bool) -> None:
    talk = provider.script(ScriptedAnswer("Forget it."))
    given = client.turn(MODEL[target], talk.mark, stream, store=False)
    with pytest.raises(openai.NotFoundError):
        client.sdk.responses.retrieve(given.id)
    with pytest.raises(openai.BadRequestError) as caught:
        client.turn(MODEL[target], "And?", previous_response_id=given.id)
    assert_previous_not_found(caught, given.id)
    assert len(talk.asked) == 1


@STREAMS
@EVERYWHERE
def test_previous_response_id_with_store_false(
    client: ResponsesClient, provider: Provider, target: str, stream: bool
) -> None:
    talk = provider.script(ScriptedAnswer("Hello."), ScriptedAnswer("Hello again."))
    first = client.turn(MODEL[target], talk.mark, stream)
    second = client.turn(MODEL[target], "Hi", stream, previous_response_id=first.id, store=False)
    assert (second.output_text, second.previous_response_id) == ("Hello again.", first.id)
    assert_received(talk.asked[1], talk.mark, "Hello.", "Hi")
    with pytest.raises(openai.NotFoundError):
        client.sdk.responses.retrieve(second.id)


def test_stored_turns_are_counted(client: ResponsesClient, provider: Provider) -> None:
    talk = provider.script(ScriptedAnswer("Hello there, and a good day to you and all your friends."))
    first = client.turn("m-chat", f"Good morning, my name is Anna, and I come from Rome. {talk.mark}")
    alone = client.sdk.responses.input_tokens.count(model="m-chat", input="Hi")
    after = client.sdk.responses.input_tokens.count(model="m-chat", input="Hi", previous_response_id=first.id)
    assert after.input_tokens > alone.input_tokens + 20
    with pytest.raises(openai.BadRequestError) as caught:
        client.sdk.responses.input_tokens.count(model="m-chat", input="Hi", previous_response_id=UNKNOWN)
    assert_previous_not_found(caught, UNKNOWN)


def assert_previous_not_found(caught: Any, id: str) -> None:
    """OpenAI's own error."""
    error = caught.value
    assert (error.status_code, error.code, error.param) == (400, "previous_response_not_found", "previous_response_id")
    assert error.body["message"] == f"Previous response with id '{id}' not found."
    assert error.body["type"] == "invalid_request_error"


@STREAMS
@EVERYWHERE
def test_an_unknown_previous_response_id(
    client: ResponsesClient, provider: Provider, target: str, stream: bool
) -> None:
    talk = provider.script()
    with pytest.raises(openai.BadRequestError) as caught:
        client.turn(MODEL[target], talk.mark, stream, previous_response_id=UNKNOWN)
    assert_previous_not_found(caught, UNKNOWN)
    assert not talk.asked


@STREAMS
def test_an_expired_response(provider: Provider, tmp_path: Path, stream: bool) -> None:
    talk = provider.script(ScriptedAnswer("Not for long."))
    with (
        gateway_with_store(tmp_path, provider, f'url = "{store_url(tmp_path)}"\nttl = 0.001') as base,
        open_client(base) as client,
    ):
        given = client.turn("m-chat", talk.mark, stream)
        assert poll(lambda: client.raw("GET", f"/responses/{given.id}").status, lambda status: status != 200) == 404
        with pytest.raises(openai.BadRequestError) as caught:
            client.turn("m-chat", "And?", stream, previous_response_id=given.id)
        assert_previous_not_found(caught, given.id)


WRONG = {
    "two histories": {"previous_response_id": UNKNOWN, "conversation": "conv_1"},
    "an id that is no text": {"previous_response_id": 7},
    "store that is no yes or no": {"store": "yes"},
}


@pytest.mark.parametrize("what", WRONG)
@EVERYWHERE
def test_conflicting_options(client: ResponsesClient, provider: Provider, target: str, what: str) -> None:
    talk = provider.script(ScriptedAnswer("Never said."))
    got = client.raw("POST", "/responses", {"model": MODEL[target], "input": talk.mark, **WRONG[what]})
    assert (got.status, read_error(got)["type"]) == (400, "invalid_request_error")
    assert not talk.asked


@EVERYWHERE
def test_a_refused_request_is_not_stored(client: ResponsesClient, provider: Provider, target: str) -> None:
    talk = provider.script(ScriptedAnswer("Hello."), Step(fails="rate"), ScriptedAnswer("Now."))
    first = client.turn(MODEL[target], talk.mark)
    with pytest.raises(openai.RateLimitError):
        client.turn(MODEL[target], "Too early.", previous_response_id=first.id)
    client.turn(MODEL[target], "Again.", previous_response_id=first.id)
    assert_received(talk.asked[2], talk.mark, "Hello.", "Again.")
    assert "Too early." not in talk.asked[2].text


@STREAMS
def test_an_incomplete_response_is_stored_as_such(tmp_path: Path, stream: bool) -> None:
    cut = body_of("openai-chat", ScriptedAnswer("As I was about to"))
    cut["choices"][0]["finish_reason"] = "length"
    frames = [frame.encode() for frame in PEERS["openai-chat"].write_stream(cut)]
    play = write_chunked(*frames) if stream else answer(200, encode_json(cut).encode())
    with stage(tmp_path, more=f'[store]\nurl = "{store_url(tmp_path)}"\n') as served:
        scene = served.scene("openai-chat", play, whole_answer("openai-chat"))
        body = {"model": scene.model, "input": "Go on.", "stream": stream}
        got = ask(served.port, "POST", "/v1/responses", encode_json(body).encode())
        seen = got.frames[-1].data["response"] if stream else got.json()
        assert (seen["status"], seen["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
        assert ask(served.port, "GET", f"/v1/responses/{seen['id']}").json() == seen
        again = {"model": scene.model, "input": "And?", "previous_response_id": seen["id"]}
        assert ask(served.port, "POST", "/v1/responses", encode_json(again).encode()).status == 200
        said = [message["content"] for message in scene.asked[1].json()["messages"]]
        assert said == ["Go on.", "As I was about to", "And?"]


# --- ids that the provider may know -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def keyless_client(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ResponsesClient]:
    """A client of a gateway without keys: the provider's account is the client's own."""
    with gateway_with_store(tmp_path_factory.mktemp("open"), provider, keys=()) as url, open_client(url) as made:
        yield made


REFERENCES: dict[str, dict[str, Any]] = {
    "response": {"previous_response_id": UNKNOWN},
    "item": {"input": [{"role": "user", "content": "Hi"}, {"type": "item_reference", "id": "msg_0123456789abcdef"}]},
    "conversation": {"conversation": "conv_0123456789abcdef"},
}


@pytest.mark.parametrize("what", REFERENCES)
def test_an_unknown_id_passes_to_a_responses_provider(
    keyless_client: ResponsesClient, provider: Provider, what: str
) -> None:
    """The provider may have stored it, so the request is passed on unchanged."""
    talk = provider.script(ScriptedAnswer("Now this."))
    sent = {"model": MODEL["openai-responses"], "input": "And now?", **REFERENCES[what]}
    sent["input"] = [
        *(sent["input"] if isinstance(sent["input"], list) else ()),
        {"role": "user", "content": talk.mark},
    ]
    got = keyless_client.raw("POST", "/responses", sent)
    assert (got.status, item_texts(got.json()["output"])) == (200, ["Now this."])
    assert {key: talk.asked[0].body[key] for key in sent} == {**sent, "model": talk.asked[0].model}


@pytest.mark.parametrize("what", REFERENCES)
@ELSEWHERE
def test_an_unknown_id_is_not_found_for_other_protocols(
    keyless_client: ResponsesClient, provider: Provider, target: str, what: str
) -> None:
    talk = provider.script(ScriptedAnswer("Never said."))
    got = keyless_client.raw("POST", "/responses", {"model": MODEL[target], "input": talk.mark, **REFERENCES[what]})
    assert got.status == {"response": 400, "item": 404, "conversation": 404}[what]
    assert "0123456789abcdef' not found." in read_error(got)["message"]
    assert not talk.asked


@STREAMS
@EVERYWHERE
def test_without_keys_all_clients_share_the_store(
    keyless_client: ResponsesClient, provider: Provider, target: str, stream: bool
) -> None:
    talk = provider.script(ScriptedAnswer("Hello."), ScriptedAnswer("Hello again."))
    first = keyless_client.turn(MODEL[target], talk.mark, stream)
    second = keyless_client.turn(MODEL[target], "Hi", stream, previous_response_id=first.id)
    assert second.output_text == "Hello again."
    assert_received(talk.asked[1], talk.mark, "Hello.", "Hi")


PASSED = {
    "GET": ["", "?stream=true&starting_after=4", "/input_items?limit=5"],
    "DELETE": [""],
    "POST": ["/cancel"],
}


@pytest.mark.parametrize(("method", "rest"), [(method, rest) for method in PASSED for rest in PASSED[method]])
def test_unknown_responses_are_requested_from_the_provider(tmp_path: Path, method: str, rest: str) -> None:
    with stage(tmp_path, more=f'[store]\nurl = "{store_url(tmp_path)}"\n') as served:
        said = b'{"id":"resp_elsewhere","object":"response"}'
        scene = served.scene("openai-responses", answer(200, said))
        path = f"/v1/responses/resp-{scene.mark}{rest}"
        got = ask(served.port, method, path)
        assert (got.status, got.data) == (200, said)
        assert [(asked.method, asked.target) for asked in scene.asked] == [(method, path)]


# --- retrieving -------------------------------------------------------------------------------------------------------


def create_raw(client: ResponsesClient, model: str, prompt: str, stream: bool, **more: Any) -> dict[str, Any]:
    """The response exactly as the client got it."""
    got = client.raw(
        "POST", "/responses", {"model": model, "input": prompt, **({"stream": True} if stream else {}), **more}
    )
    assert got.status == 200, got.data
    whole: dict[str, Any] = got.frames[-1].data["response"] if stream else got.json()
    return whole


@STREAMS
@EVERYWHERE
def test_it_is_retrieved_as_it_was_sent(client: ResponsesClient, provider: Provider, target: str, stream: bool) -> None:
    talk = provider.script(ScriptedAnswer("Let me look.", (PARIS,), "Paris, then."))
    more = {"tools": FUNCTIONS, "metadata": {"of": "test"}, "instructions": "Be brief."}
    seen = create_raw(client, REASONING_MODELS[target], talk.mark, stream, **more)
    assert seen["status"] == "completed"
    assert seen["store"] is True
    got = client.raw("GET", f"/responses/{seen['id']}")
    assert (got.status, got.json()) == (200, seen)
    assert got.headers["content-type"].startswith("application/json")
    kept = client.sdk.responses.retrieve(seen["id"])
    assert (kept.output_text, len(function_calls(kept)), kept.metadata) == ("Let me look.", 1, {"of": "test"})


@STREAMS
@EVERYWHERE
def test_it_is_retrieved_as_a_stream(client: ResponsesClient, provider: Provider, target: str, stream: bool) -> None:
    talk = provider.script(ScriptedAnswer("Let me look.", (PARIS, OSLO), "Paris, then."))
    seen = create_raw(client, REASONING_MODELS[target], talk.mark, stream, tools=FUNCTIONS)
    got = client.raw("GET", f"/responses/{seen['id']}?stream=true")
    assert got.headers["content-type"].startswith("text/event-stream")
    folded = PEERS["openai-responses"].fold_stream(got.frames)
    assert (folded.violations, folded.body) == ((), seen)
    with client.sdk.responses.retrieve(seen["id"], stream=True, starting_after=3) as events:
        rest = list(events)
    assert [event.sequence_number for event in rest] == list(range(4, len(got.frames)))
    assert [event.type for event in rest] == [frame.event for frame in got.frames[4:]]
    after_all = client.raw("GET", f"/responses/{seen['id']}?stream=true&starting_after={len(got.frames) - 1}")
    assert (after_all.status, after_all.frames) == (200, [])


NOWHERE = {
    "read": ("GET", ""),
    "read as a stream": ("GET", "?stream=true"),
    "remove": ("DELETE", ""),
    "cancel": ("POST", "/cancel"),
    "list": ("GET", "/input_items"),
}


def assert_not_found(client: ResponsesClient, what: str, id: str) -> None:
    method, rest = NOWHERE[what]
    got = client.raw(method, f"/responses/{id}{rest}")
    error = read_error(got)
    assert (got.status, error["type"], error["message"]) == (
        404, "invalid_request_error", f"Response with id '{id}' not found.",
    )  # fmt: skip


@pytest.mark.parametrize("what", NOWHERE)
def test_unknown_responses(client: ResponsesClient, what: str) -> None:
    assert_not_found(client, what, UNKNOWN)


@EVERYWHERE
def test_deleting(client: ResponsesClient, provider: Provider, target: str) -> None:
    talk = provider.script(ScriptedAnswer("One."), ScriptedAnswer("Two."), ScriptedAnswer("Three."))
    one = client.turn(MODEL[target], talk.mark)
    two = client.turn(MODEL[target], "Next.", previous_response_id=one.id)
    three = client.turn(MODEL[target], "Next.", previous_response_id=two.id)
    got = client.raw("DELETE", f"/responses/{two.id}")
    assert (got.status, got.json()) == (200, {"id": two.id, "object": "response", "deleted": True})
    for what in NOWHERE:
        assert_not_found(client, what, two.id)
    assert client.sdk.responses.retrieve(three.id).output_text == "Three."
    for after in (two.id, three.id):  # the second builds on what is gone
        with pytest.raises(openai.BadRequestError) as caught:
            client.turn(MODEL[target], "Next.", previous_response_id=after)
        assert_previous_not_found(caught, two.id)
    assert len(talk.asked) == 3
    client.sdk.responses.delete(one.id)
    assert_not_found(client, "read", one.id)


# --- input items ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chain(client: ResponsesClient, provider: Provider) -> Any:
    """Three turns; the tests list the input items of the last."""
    talk = provider.script(
        ScriptedAnswer("Let me look.", (PARIS,)), ScriptedAnswer("It is mild."), ScriptedAnswer("Goodbye.")
    )
    first = client.turn("m-anthropic", f"The weather? {talk.mark}", tools=FUNCTIONS)
    second = client.turn(
        "m-gemini", function_outputs(first, "15 °C"), True, tools=FUNCTIONS, previous_response_id=first.id
    )
    third = client.turn("m-chat", "Thank you.", tools=FUNCTIONS, previous_response_id=second.id)
    said = [f"The weather? {talk.mark}", "Let me look.", '{"city":"Paris"}', "15 °C", "It is mild.", "Thank you."]
    return third.id, said, [*first.output, *second.output]


KINDS = ["message", "message", "function_call", "function_call_output", "message", "message"]


def test_input_items(client: ResponsesClient, chain: Any) -> None:
    id, said, outputs = chain
    page = client.sdk.responses.input_items.list(id)
    assert item_texts(page.data) == said[::-1]
    assert [item.type for item in page.data] == KINDS[::-1]
    assert page.has_more is False
    found = client.raw("GET", f"/responses/{id}/input_items?order=asc").json()
    assert item_texts(found["data"]) == said
    assert found["object"] == "list"
    ids = [item["id"] for item in found["data"]]
    assert len(set(ids)) == 6
    assert (found["first_id"], found["last_id"], found["has_more"]) == (ids[0], ids[-1], False)
    assert [ids[1], ids[2], ids[4]] == [item.id for item in outputs]
    assert found["data"][0]["content"] == [{"type": "input_text", "text": said[0]}]
    assert client.raw("GET", f"/responses/{id}/input_items?order=asc").json() == found


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("limit", [1, 2, 3, 4, 6, 100])
def test_input_items_by_pages(client: ResponsesClient, chain: Any, limit: int, order: Any) -> None:
    id, said, _ = chain
    wanted = said if order == "asc" else said[::-1]
    pages = list(client.sdk.responses.input_items.list(id, limit=limit, order=order).iter_pages())
    assert [item_texts(page.data) for page in pages] == [wanted[at : at + limit] for at in range(0, 6, limit)]
    assert [page.has_more for page in pages] == [True] * (len(pages) - 1) + [False]


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=many", "order=up"])
def test_invalid_pages(client: ResponsesClient, chain: Any, query: str) -> None:
    got = client.raw("GET", f"/responses/{chain[0]}/input_items?{query}")
    assert (got.status, read_error(got)["param"]) == (400, query.partition("=")[0])


# --- item references --------------------------------------------------------------------------------------------------


@STREAMS
@EVERYWHERE
@pytest.mark.parametrize("typed", [True, False], ids=["typed", "untyped"])
def test_item_references(client: ResponsesClient, provider: Provider, target: str, stream: bool, typed: bool) -> None:
    """The Vercel AI SDK sends references for items that it believes to be stored."""
    talk = provider.script(ScriptedAnswer("Let me look.", (PARIS,), "Paris, then."), ScriptedAnswer("It is mild."))
    more: dict[str, Any] = {"tools": FUNCTIONS, "reasoning": {"effort": "medium"}}
    asking = {"role": "user", "content": talk.mark}
    first = client.turn(REASONING_MODELS[target], [asking], stream, **more)
    kind = {"type": "item_reference"} if typed else {}
    named = [{**kind, "id": item.id} for item in first.output]
    second = client.turn(REASONING_MODELS[target], [asking, *named, *function_outputs(first, "15 °C")], stream, **more)
    assert second.output_text == "It is mild."
    assert_received(talk.asked[1], talk.mark, "Let me look.", "15 °C")
    assert "item_reference" not in talk.asked[1].text
    assert [(name, arguments) for name, arguments, _, _ in read_call_results(talk.asked[1])] == [PARIS]
    assert list_seals(talk.asked[1]) == ["Paris, then." if target == "openai-chat" else SEALS[target]]


@EVERYWHERE
@pytest.mark.parametrize("id", ["msg_0123456789abcdef", "rs_x", "nothing"])
def test_an_unknown_item_reference(client: ResponsesClient, provider: Provider, target: str, id: str) -> None:
    talk = provider.script()
    sent = [{"role": "user", "content": talk.mark}, {"type": "item_reference", "id": id}]
    got = client.raw("POST", "/responses", {"model": MODEL[target], "input": sent})
    assert got.status in (400, 404)
    assert f"'{id}'" in read_error(got)["message"]
    assert not talk.asked


def test_a_reference_to_an_item_of_a_deleted_response(client: ResponsesClient, provider: Provider) -> None:
    talk = provider.script(ScriptedAnswer("Hello."))
    given = client.turn("m-chat", talk.mark)
    client.sdk.responses.delete(given.id)
    sent = [{"role": "user", "content": talk.mark}, {"type": "item_reference", "id": given.output[0].id}]
    assert client.raw("POST", "/responses", {"model": "m-chat", "input": sent}).status in (400, 404)
    assert len(talk.asked) == 1


# --- several gateways -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def other(provider: Provider, base: str, folder: Path) -> Iterator[ResponsesClient]:
    """A second gateway on the first one's store."""
    with gateway_with_store(folder, provider) as url, open_client(url) as made:
        assert url != base
        yield made


@EVERYWHERE
def test_it_is_stored_before_the_client_sees_its_end(
    base: str, other: ResponsesClient, provider: Provider, target: str
) -> None:
    talk = provider.script(ScriptedAnswer("Hello."), ScriptedAnswer("Hello again."))
    line = RawConnection(int(base.rpartition(":")[2]))
    body = encode_json({"model": MODEL[target], "input": talk.mark, "stream": True}).encode()
    line.send("POST", "/v1/responses", body, {"authorization": f"Bearer {KEY}"})
    line.start()
    data = line.read_until(b"event: response.completed")
    id = read_frames(data[: data.index(b"\n\n") + 2].decode())[0].data["response"]["id"]
    again = other.turn(MODEL[target], "Hi", previous_response_id=id)
    line.disconnect()
    assert again.output_text == "Hello again."
    assert_received(talk.asked[1], talk.mark, "Hello.", "Hi")


@only_where(lambda target, stream: target == "anthropic" or not stream)
@STREAMS
@EVERYWHERE
def test_it_survives_a_restart(provider: Provider, tmp_path: Path, target: str, stream: bool) -> None:
    talk = provider.script(ScriptedAnswer("", (PARIS,), "Paris, then."), ScriptedAnswer("Mild."))
    more: dict[str, Any] = {"tools": FUNCTIONS, "reasoning": {"effort": "medium"}}
    with gateway_with_store(tmp_path, provider) as base, open_client(base) as client:
        first = client.turn(REASONING_MODELS[target], talk.mark, stream, **more)
    with gateway_with_store(tmp_path, provider) as base, open_client(base) as client:
        assert client.sdk.responses.retrieve(first.id).output[-1].id == first.output[-1].id
        client.turn(
            REASONING_MODELS[target], function_outputs(first, "15 °C"), stream, previous_response_id=first.id, **more
        )
    assert_received(talk.asked[1], talk.mark, "15 °C")
    assert list_seals(talk.asked[1]) == ["Paris, then." if target == "openai-chat" else SEALS[target]]


def test_a_history_that_makes_too_many_values_is_not_left_out(tmp_path: Path) -> None:
    """Each turn has fewer values than any request may have, and both together have more."""
    store = f'[store]\nurl = "sqlite:///{tmp_path}/store.db"\n'
    turn = [{"role": "user", "content": [{"type": "input_text", "text": ""}] * (MAX_VALUES // 5)}]
    with stage(tmp_path, "", store) as served:
        scene = served.scene("openai-responses", whole_answer("openai-responses"))
        asked: dict[str, Any] = {"model": scene.model, "input": turn}
        first = ask(served.port, "POST", "/v1/responses", encode_json(asked))
        assert first.status == 200
        asked["previous_response_id"] = first.json()["id"]
        for path in ("/v1/responses", "/v1/responses/input_tokens", "/v1/responses/compact"):
            got = ask(served.port, "POST", path, encode_json(asked))
            assert (got.status, got.json()["error"]["code"]) == (400, "context_length_exceeded"), path
        assert len(scene.asked) == 1


def test_a_history_that_makes_too_many_bytes_is_not_left_out(tmp_path: Path) -> None:
    """Neither of both turns is larger than any request may be."""
    store = f'[store]\nurl = "sqlite:///{tmp_path}/store.db"\n'
    with stage(tmp_path, "max_body = 10_000\n", store) as served:
        scene = served.scene("openai-responses", whole_answer("openai-responses"))
        asked: dict[str, Any] = {"model": scene.model, "input": "word " * 1200}
        first = ask(served.port, "POST", "/v1/responses", encode_json(asked))
        assert first.status == 200
        asked["previous_response_id"] = first.json()["id"]
        compacted = {**asked, "input": [{"role": "user", "content": asked["input"]}, {"type": "compaction_trigger"}]}
        for path, body in (
            ("/v1/responses", asked),
            ("/v1/responses", {**asked, "background": True}),
            ("/v1/responses", compacted),
            ("/v1/responses/input_tokens", asked),
            ("/v1/responses/compact", asked),
        ):
            got = ask(served.port, "POST", path, encode_json(body))
            assert (got.status, got.json()["error"]["code"]) == (400, "context_length_exceeded"), (path, body)
        assert len(scene.asked) == 1
