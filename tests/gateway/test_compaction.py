"""Compaction: the model writes a summary, which comes back in an envelope that only the gateway reads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from gateway.conftest import only_where
from gateway.provider import PROTOCOLS, SEALS, Provider, Received, Script, ScriptedAnswer, Step
from gateway.raw_exchange import Served, answer, ask, stage, stream_steps, whole_answer
from gateway.state_clients import (
    FUNCTIONS,
    MODEL,
    OTHER_PROTOCOLS,
    REASONING_MODELS,
    ResponsesClient,
    assert_received,
    function_outputs,
    gateway_with_store,
    item_texts,
    open_client,
    read_error,
    store_url,
)
from toolwire_conformance.peers.peer import encode_json

STREAMS = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
EVERYWHERE = pytest.mark.parametrize("target", PROTOCOLS)
ELSEWHERE = pytest.mark.parametrize("target", OTHER_PROTOCOLS)
# The SDK's parsed subclasses do not match the types of the fields that hold them when it sends them back.
pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")

PARIS = ("get_weather", {"city": "Paris"})
SUMMARY = "The user lives in Paris, where it is 15 °C."
FOREIGN_ITEM = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAAABpof-another-maker=="}


@pytest.fixture(scope="module")
def client(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ResponsesClient]:
    with gateway_with_store(tmp_path_factory.mktemp("compact"), provider) as base, open_client(base) as made:
        yield made


def history(talk: Script) -> list[Any]:
    """A conversation with reasoning, a call, and its result."""
    return [
        {"role": "user", "content": f"I live in Paris. {talk.mark}"},
        {"type": "message", "role": "assistant", "content": "Let me look."},
        {"type": "function_call", "call_id": "call_1", "name": "get_weather", "arguments": '{"city":"Paris"}'},
        {"type": "function_call_output", "call_id": "call_1", "output": "15 °C"},
        {"role": "user", "content": "Thank you."},
    ]


def read_envelope(output: list[Any]) -> str:
    """The envelope of the compaction item: it is the last item, and all others are messages of the user."""
    *before, last = (item if isinstance(item, dict) else item.model_dump() for item in output)
    assert last["type"] == "compaction"
    assert last["id"]
    assert [(item["type"], item["role"]) for item in before] == [("message", "user")] * len(before)
    sealed: str = last["encrypted_content"]
    return sealed


# --- the endpoint -----------------------------------------------------------------------------------------------------


@ELSEWHERE
def test_the_model_writes_the_summary(client: ResponsesClient, provider: Provider, target: str) -> None:
    talk = provider.script(ScriptedAnswer(SUMMARY, (), "What matters?"))
    made = client.sdk.responses.compact(
        model=REASONING_MODELS[target], input=history(talk), instructions="You are a guide."
    )
    assert made.object == "response.compaction"
    assert made.id
    assert made.created_at
    assert (made.usage.input_tokens, made.usage.output_tokens, made.usage.total_tokens) == (25, 12, 37)
    sealed = read_envelope(made.output)
    assert SUMMARY not in sealed
    assert item_texts(made.output[:-1]) == [f"I live in Paris. {talk.mark}", "Thank you."]
    (asked,) = talk.asked
    assert (asked.protocol, asked.stream) == (target, False)
    assert_received(asked, talk.mark, "Let me look.", "15 °C", "Thank you.")
    assert "summar" in asked.text.lower()


@ELSEWHERE
def test_the_id_of_a_compaction_is_not_a_response_id(client: ResponsesClient, provider: Provider, target: str) -> None:
    talk = provider.script(ScriptedAnswer(SUMMARY))
    made = client.sdk.responses.compact(model=MODEL[target], input=history(talk))
    with pytest.raises(openai.NotFoundError):
        client.sdk.responses.retrieve(made.id)
    with pytest.raises(openai.BadRequestError):
        client.turn(MODEL[target], "And?", previous_response_id=made.id)


@STREAMS
@pytest.mark.parametrize("next_", PROTOCOLS)
@ELSEWHERE
def test_any_provider_continues_from_the_summary(
    client: ResponsesClient, provider: Provider, target: str, next_: str, stream: bool
) -> None:
    talk = provider.script(ScriptedAnswer(SUMMARY), ScriptedAnswer("Fine."), ScriptedAnswer("Still fine."))
    made = client.sdk.responses.compact(model=MODEL[target], input=history(talk))
    window: list[Any] = [*made.output, {"role": "user", "content": "How is it?"}]
    first = client.turn(MODEL[next_], window, stream)
    assert first.output_text == "Fine."
    assert (talk.asked[1].protocol, talk.asked[1].stream) == (next_, stream)
    assert_received(talk.asked[1], talk.mark, "Thank you.", SUMMARY, "How is it?")
    client.turn(MODEL[target], "And later?", stream, previous_response_id=first.id)
    assert_received(talk.asked[2], talk.mark, SUMMARY, "How is it?", "Fine.", "And later?")
    for asked in talk.asked[1:]:
        assert "Let me look." not in asked.text
        assert read_envelope(made.output) not in asked.raw
        assert '"compaction"' not in asked.text


@ELSEWHERE
def test_a_stored_conversation_is_compacted(client: ResponsesClient, provider: Provider, target: str) -> None:
    talk = provider.script(
        ScriptedAnswer("Let me look.", (PARIS,)), ScriptedAnswer("It is 15 °C."), ScriptedAnswer(SUMMARY)
    )
    first = client.turn(MODEL[target], f"I live in Paris. {talk.mark}", tools=FUNCTIONS)
    second = client.turn(
        MODEL[target], function_outputs(first, "15 °C"), tools=FUNCTIONS, previous_response_id=first.id
    )
    more: list[Any] = [{"role": "user", "content": "Thank you."}]
    made = client.sdk.responses.compact(model=MODEL[target], input=more, previous_response_id=second.id)
    assert item_texts(made.output[:-1]) == [f"I live in Paris. {talk.mark}", "Thank you."]
    asked = talk.asked[2].text
    assert all(text in asked for text in (talk.mark, "Let me look.", "It is 15 °C.", "Thank you."))


@ELSEWHERE
def test_a_summary_of_a_summary(client: ResponsesClient, provider: Provider, target: str) -> None:
    talk = provider.script(ScriptedAnswer(SUMMARY), ScriptedAnswer("Paris, and all is well."), ScriptedAnswer("Fine."))
    first = client.sdk.responses.compact(model=MODEL[target], input=history(talk))
    window: list[Any] = [*first.output, {"role": "user", "content": "All is well."}]
    second = client.sdk.responses.compact(model=MODEL[target], input=window)
    assert_received(talk.asked[1], SUMMARY, "All is well.")
    assert item_texts(second.output[:-1]) == [f"I live in Paris. {talk.mark}", "Thank you.", "All is well."]
    client.turn(MODEL[target], [*second.output, {"role": "user", "content": "And?"}])
    assert_received(talk.asked[2], talk.mark, "Thank you.", "All is well.", "Paris, and all is well.", "And?")
    assert SUMMARY not in talk.asked[2].text


@ELSEWHERE
@pytest.mark.parametrize("kind", ["rate", "bad"])
def test_a_provider_that_refuses(client: ResponsesClient, provider: Provider, target: str, kind: str) -> None:
    talk = provider.script(Step(fails=kind))
    with pytest.raises(openai.APIStatusError) as caught:
        client.sdk.responses.compact(model=MODEL[target], input=history(talk))
    assert caught.value.status_code == {"rate": 429, "bad": 400}[kind]


@ELSEWHERE
def test_a_model_that_calls_a_tool_instead(client: ResponsesClient, provider: Provider, target: str) -> None:
    """A missing summary is an error, not an empty conversation."""
    talk = provider.script(ScriptedAnswer("", (PARIS,)))
    got = client.raw("POST", "/responses/compact", {"model": MODEL[target], "input": history(talk)})
    assert got.status >= 400
    assert read_error(got)["message"]


WRONG: dict[str, tuple[dict[str, Any], int]] = {
    "no model": ({"input": "Hi"}, 400),
    "a model that nobody has": ({"model": "no-such-model", "input": "Hi"}, 404),
    "nothing before": ({"model": "m-chat", "previous_response_id": "resp_0123456789abcdef"}, 400),
    "nothing at all": ({"model": "m-chat"}, 400),
    "an empty list": ({"model": "m-chat", "input": []}, 400),
}


@pytest.mark.parametrize("what", WRONG)
def test_invalid_requests(client: ResponsesClient, what: str) -> None:
    body, status = WRONG[what]
    got = client.raw("POST", "/responses/compact", body)
    assert (got.status, read_error(got)["type"]) == (status, "invalid_request_error"), got.data


# --- compaction_trigger -----------------------------------------------------------------------------------------------


@STREAMS
@ELSEWHERE
def test_a_trigger(client: ResponsesClient, provider: Provider, target: str, stream: bool) -> None:
    talk = provider.script(ScriptedAnswer(SUMMARY), ScriptedAnswer("Fine."))
    asked: list[Any] = [*history(talk), {"type": "compaction_trigger"}]
    made = client.turn(MODEL[target], asked, stream, tools=FUNCTIONS)
    assert made.status == "completed"
    read_envelope(made.output)
    assert [item.type for item in made.output] == ["compaction"]
    assert "compaction_trigger" not in talk.asked[0].raw
    assert client.sdk.responses.retrieve(made.id).output == made.output
    second = client.turn(MODEL[target], "How is it?", stream, previous_response_id=made.id)
    assert second.output_text == "Fine."
    assert_received(talk.asked[1], talk.mark, SUMMARY, "How is it?")


@STREAMS
@ELSEWHERE
def test_a_trigger_with_store_false(client: ResponsesClient, provider: Provider, target: str, stream: bool) -> None:
    talk = provider.script(ScriptedAnswer(SUMMARY), ScriptedAnswer("Fine."))
    asked: list[Any] = [*history(talk), {"type": "compaction_trigger"}]
    made = client.turn(MODEL[target], asked, stream, store=False)
    with pytest.raises(openai.NotFoundError):
        client.sdk.responses.retrieve(made.id)
    window: list[Any] = [{"role": "user", "content": talk.mark}, *made.output, {"role": "user", "content": "And?"}]
    assert client.turn(MODEL[target], window, stream, store=False).output_text == "Fine."
    assert_received(talk.asked[1], talk.mark, SUMMARY, "And?")


@ELSEWHERE
def test_a_trigger_that_is_not_last(client: ResponsesClient, provider: Provider, target: str) -> None:
    talk = provider.script(ScriptedAnswer("Never said."))
    asked = [{"type": "compaction_trigger"}, *history(talk)]
    got = client.raw("POST", "/responses", {"model": MODEL[target], "input": asked})
    assert (got.status, read_error(got)["type"]) == (400, "invalid_request_error")
    assert not talk.asked


# --- OpenAI's own summaries -------------------------------------------------------------------------------------------


@STREAMS
@ELSEWHERE
@pytest.mark.parametrize("store", [True, False], ids=["kept", "not kept"])
def test_openai_s_own_summary_cannot_go_to_others(
    client: ResponsesClient, provider: Provider, target: str, stream: bool, store: bool
) -> None:
    talk = provider.script(ScriptedAnswer("Never said."))
    asked = [{"role": "user", "content": talk.mark}, FOREIGN_ITEM, {"role": "user", "content": "And?"}]
    got = client.raw("POST", "/responses", {"model": MODEL[target], "input": asked, "stream": stream, "store": store})
    assert (got.status, read_error(got)["type"]) == (400, "invalid_request_error")
    assert "compacted history" in read_error(got)["message"]
    assert not talk.asked


@STREAMS
def test_openai_s_own_summary_goes_back_to_it(client: ResponsesClient, provider: Provider, stream: bool) -> None:
    talk = provider.script(ScriptedAnswer("Fine."))
    asked: list[Any] = [{"role": "user", "content": talk.mark}, FOREIGN_ITEM, {"role": "user", "content": "And?"}]
    assert client.turn(MODEL["openai-responses"], asked, stream).output_text == "Fine."
    assert FOREIGN_ITEM in talk.asked[0].body["input"]


# --- a provider that compacts itself ----------------------------------------------------------------------------------

OWN = {
    "id": "resp_cmp_1", "object": "response.compaction", "created_at": 1790000000, "output": [FOREIGN_ITEM],
    "usage": {"input_tokens": 9, "output_tokens": 1, "total_tokens": 10},
}  # fmt: skip


@pytest.fixture(scope="module", name="served")
def serve_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("own")
    with stage(folder, more=f'[store]\nurl = "{store_url(folder)}"\n') as staged:
        yield staged


def post_compact(served: Served, model: str, **more: Any) -> Any:
    body = {"model": model, "input": [{"role": "user", "content": "Hi"}], **more}
    return ask(served.port, "POST", "/v1/responses/compact", encode_json(body).encode())


def test_a_responses_provider_compacts_itself(served: Served) -> None:
    scene = served.scene("openai-responses", answer(200, encode_json(OWN).encode()))
    got = post_compact(served, scene.model, service_tier="flex", x_new=[1.50])
    assert (got.status, got.json()) == (200, OWN)
    (asked,) = scene.asked
    assert (asked.method, asked.target) == ("POST", "/v1/responses/compact")
    assert asked.json() == {
        "model": scene.name, "input": [{"role": "user", "content": "Hi"}], "service_tier": "flex", "x_new": [1.5],
    }  # fmt: skip


def test_its_refusal_is_passed_on(served: Served) -> None:
    error = {"error": {"message": "Too much.", "type": "invalid_request_error", "param": "input", "code": None}}
    scene = served.scene("openai-responses", answer(400, encode_json(error).encode()))
    got = post_compact(served, scene.model)
    assert (got.status, got.json()["error"]["message"]) == (400, "Too much.")
    assert len(scene.asked) == 1


@pytest.mark.parametrize("status", [404, 405])
def test_a_provider_without_the_endpoint_is_asked_for_a_summary(served: Served, status: int) -> None:
    """vLLM and others speak Responses without this endpoint."""
    scene = served.scene(
        "openai-responses",
        answer(status, b'{"detail":"Not Found"}'), whole_answer("openai-responses", SUMMARY), whole_answer("openai-responses"),
    )  # fmt: skip
    got = post_compact(served, scene.model)
    assert got.status == 200, got.data
    read_envelope(got.json()["output"])
    assert [asked.target for asked in scene.asked] == ["/v1/responses/compact", "/v1/responses"]
    window = [*got.json()["output"], {"role": "user", "content": "And?"}]
    body = encode_json({"model": scene.model, "input": window, "store": False}).encode()
    assert ask(served.port, "POST", "/v1/responses", body).status == 200
    told = scene.asked[2].json()["input"]
    assert SUMMARY in json.dumps(told, ensure_ascii=False)
    assert "compaction" not in {item.get("type") for item in told}


@only_where(lambda stream, ours: not ours or stream)
@STREAMS
@pytest.mark.parametrize("ours", [False, True], ids=["its own", "ours"])
def test_a_trigger_passes_to_a_responses_provider(served: Served, stream: bool, ours: bool) -> None:
    """Unless the conversation contains an envelope, which only the gateway reads."""
    play = (
        stream_steps("openai-responses", SUMMARY) if stream and not ours else whole_answer("openai-responses", SUMMARY)
    )
    if ours:
        made = served.scene("openai-chat", whole_answer("openai-chat", "Before that."))
        window = post_compact(served, made.model).json()["output"]
    else:
        window = [{"role": "user", "content": "Hi"}]
    scene = served.scene("openai-responses", play)
    body = {"model": scene.model, "input": [*window, {"type": "compaction_trigger"}], "store": False, "stream": stream}
    got = ask(served.port, "POST", "/v1/responses", encode_json(body).encode())
    assert got.status == 200, got.data
    (asked,) = scene.asked
    if ours:
        assert "Before that." in asked.body.decode()
        assert b"compaction_trigger" not in asked.body
    else:
        assert asked.json()["input"][-1] == {"type": "compaction_trigger"}


def test_a_summary_contains_no_signatures(client: ResponsesClient, provider: Provider) -> None:
    """The signatures of one provider must not reach another through a summary."""
    talk = provider.script(
        ScriptedAnswer("Let me look.", (PARIS,), "Paris, then."),
        ScriptedAnswer("It is 15 °C."),
        ScriptedAnswer(SUMMARY),
        ScriptedAnswer("Ok."),
    )
    first = client.turn("m-anthropic", talk.mark, tools=FUNCTIONS)
    second = client.turn(
        "m-anthropic", function_outputs(first, "15 °C"), tools=FUNCTIONS, previous_response_id=first.id
    )
    made = client.sdk.responses.compact(model="m-gemini", input=None, previous_response_id=second.id)
    client.turn("m-chat", [*made.output, {"role": "user", "content": "And?"}])
    held: list[Received] = talk.asked[2:]
    assert [asked.protocol for asked in held] == ["gemini", "openai-chat"]
    assert all(SEALS["anthropic"] not in asked.text for asked in held)
