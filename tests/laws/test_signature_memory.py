"""What Chat clients cannot carry is stored by the id of a call, and restored in the next request."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from toolwire.core.codec import Codec, WriteContext
from toolwire.core.events import unfold
from toolwire.core.ir import Call, Choice, Finish, Part, Reasoning, Response, Seal, Text, strip_origins
from toolwire.core.json_values import decode, encode
from toolwire.core.losses import Ledger
from toolwire.protocols import find_codec
from toolwire.translation import signature_memory
from toolwire.translation.exchange import Exchange, Translation
from toolwire.translation.options import Options
from toolwire.translation.streaming import StreamTranslation
from toolwire_conformance.peers import find_violations

CHAT = find_codec("openai-chat")


def by_id(kept: Iterable[str]) -> list[str]:
    """The ids under which something is kept, without the names of turns whose id may be another's too."""
    return [id for id in kept if "#" not in id]


def quirky(*names: str) -> Codec:
    """A server of the client's own protocol that sends what its clients drop."""
    rules = CHAT.constraints
    for name in names:
        rules = replace(rules, **CHAT.quirks[name].constraints)
    return replace(CHAT, constraints=rules)


PROVIDERS: dict[str, Codec] = {
    "anthropic": find_codec("anthropic"),
    "gemini": find_codec("gemini"),
    "openai-responses": find_codec("openai-responses"),
    "details": quirky("sealed-reasoning"),
    "extras": quirky("sealed-calls"),
    "bare": quirky("reasoning-back"),
}
MODELS = {"anthropic": "claude-opus-5-5", "gemini": "gemini-3.8-flash", "openai-responses": "gpt-5.6"}

# What each model made: the parts of its turn as its own wire has them.

CLAUDE: list[Any] = [
    {"type": "thinking", "thinking": "Need both.", "signature": "EqQB+/sig=="},
    {"type": "redacted_thinking", "data": "EmwKhidden"},
    {"type": "text", "text": "First one."},
    {"type": "tool_use", "id": "toolu_01ABCDEFGHIJKL", "name": "f", "input": {"a": 1}},
    {"type": "thinking", "thinking": "", "signature": "EqQBsecond"},
    {"type": "text", "text": "Now the other ü."},
    {"type": "tool_use", "id": "toolu_02ABCDEFGHIJKL", "name": "f", "input": {"a": 2}},
]
GEMINI: list[Any] = [
    {"text": "Planning.", "thought": True},
    {"text": "Both at once.", "thoughtSignature": "EpQBtext"},
    {"functionCall": {"id": "c1", "name": "f", "args": {"a": 1}}, "thoughtSignature": "EpQBCpEBAXLI2nw="},
    {"functionCall": {"id": "c2", "name": "f", "args": {"a": 2}}},
]
RESPONSES: list[Any] = [
    {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "Both."}],
        "encrypted_content": "gAAAAsecret",
    },
    {"type": "function_call", "id": "fc_1", "call_id": "call_a1", "name": "f", "arguments": '{"a":1}'},
    {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "gAAAAmore"},
    {"type": "function_call", "id": "fc_2", "call_id": "call_a2", "name": "f", "arguments": '{"a":2}'},
]


def chat_calls(**extra: Any) -> list[Any]:
    one = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    two = {"id": "call_2", "type": "function", "function": {"name": "f", "arguments": '{"a": 2}'}}
    return [one | extra, two]


DETAILS: Any = {
    "role": "assistant",
    "content": "Both.",
    "reasoning_content": "Need both.",
    "reasoning_details": [
        {"type": "reasoning.summary", "summary": "Need both.", "format": "some-v1", "index": 0},
        {"type": "reasoning.encrypted", "data": "gAAAdata", "id": "rs_1", "format": "some-v1", "index": 1},
    ],
    "tool_calls": chat_calls(),
}
EXTRAS: Any = {
    "role": "assistant",
    "content": None,
    "tool_calls": chat_calls(extra_content={"google": {"thought_signature": "EpQB+/call="}}),
}
BARE: Any = {"role": "assistant", "content": None, "reasoning_content": "Need both.", "tool_calls": chat_calls()}


def chat_answer(*messages: Any) -> Any:
    choices = [{"index": at, "message": one, "finish_reason": "tool_calls"} for at, one in enumerate(messages)]
    return {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m", "choices": choices}


ANSWERS: dict[str, Any] = {
    "anthropic": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-opus-5-5",
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
        "content": CLAUDE,
    },
    "gemini": {
        "candidates": [{"index": 0, "finishReason": "STOP", "content": {"role": "model", "parts": GEMINI}}],
        "modelVersion": "gemini-3.8-flash",
        "responseId": "r1",
    },
    "openai-responses": {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "gpt-5.6",
        "status": "completed",
        "output": [item | {"status": "completed"} if "call_id" in item else item for item in RESPONSES],
    },
    "details": chat_answer(DETAILS),
    "extras": chat_answer(EXTRAS),
    "bare": chat_answer(BARE),
}
OWN: dict[str, Any] = {
    "anthropic": CLAUDE,
    "gemini": GEMINI,
    "openai-responses": RESPONSES,
    "details": [DETAILS],
    "extras": [EXTRAS],
    "bare": [BARE],
}


def turn_in(provider: str, body: Any, number: int = 0) -> Any:
    """One turn of the model as its provider gets it back."""
    return _turns(provider, body)[number]


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer", "description": "A"}}}
FIRST: Any = {
    "model": "m",
    "messages": [{"role": "user", "content": "q"}],
    "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA}}],
}


def exchange(provider: str, account: str = "mine", keeps: bool = True) -> Exchange:
    target = PROVIDERS[provider]
    maker = f"{target.name}/{provider}/{account}"
    return Exchange(CHAT, target, Options(model=MODELS.get(provider, "m"), maker=maker, has_memory=keeps, seed="seed"))


def plain(message: Any) -> Any:
    """The assistant's message as most clients send it back: text and calls, nothing else."""
    calls = [{key: call[key] for key in ("id", "type", call["type"])} for call in message.get("tool_calls") or ()]
    return {"role": "assistant", "content": message.get("content"), "tool_calls": calls}


def results(message: Any) -> list[Any]:
    return [{"role": "tool", "tool_call_id": call["id"], "content": "ok"} for call in message["tool_calls"]]


def following(*messages: Any) -> Any:
    return {**FIRST, "messages": [*FIRST["messages"], *messages]}


def translate_answer(provider: str, answer: Any, request: Any = FIRST) -> Translation:
    joined = exchange(provider)
    assert joined.memory_keys(request) == ()
    joined.translate_request(request)
    return joined.translate_response(answer)


def translate_next_request(
    provider: str, request: Any, kept: Mapping[str, bytes], account: str = "mine"
) -> Translation:
    """The next request, served from what is kept under the ids that it wants."""
    joined = exchange(provider, account)
    wanted = joined.memory_keys(request)
    return joined.translate_request(request, {id: kept[id] for id in wanted if id in kept})


def wire_stream(provider: str, answer: Any) -> bytes:
    """The answer as this provider streams it; one that puts the seal of a text into a part of its own then, at once."""
    target = PROVIDERS[provider]
    if provider == "gemini":
        return f"data: {json.dumps(answer)}\n\n".encode()
    if target.name == CHAT.name:
        choices = [one | {"delta": _delta(one["message"])} for one in answer["choices"]]
        chunk = answer | {"object": "chat.completion.chunk", "choices": choices}
        return f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode()
    writer = target.make_stream_writer(Ledger(target.name, target.name), WriteContext(None, 1, "seed"))
    events = list(unfold(strip_origins(target.read_response(answer))))
    return b"".join(map(writer.write, events)) + writer.close()


def _delta(message: Any) -> Any:
    return message | {"tool_calls": [call | {"index": at} for at, call in enumerate(message["tool_calls"])]}


def codes(translation: Any) -> set[str]:
    return {loss.code for loss in translation.losses}


# --- there and back -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_turn_comes_back_to_its_maker_as_it_was(provider: str) -> None:
    said = translate_answer(provider, ANSWERS[provider])
    message = said.json()["choices"][0]["message"]
    request = following(plain(message), *results(message))
    back = translate_next_request(provider, request, said.memory_records)
    assert turn_in(provider, back.json()) == OWN[provider]
    assert not codes(back) & {"seal-dropped", "reasoning-dropped", "signature-added"}
    assert turn_in(provider, translate_next_request(provider, request, {}).json()) != OWN[provider]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("size", [1, 50, 1 << 20])
def test_a_stream_keeps_the_same_bytes_as_the_whole(provider: str, size: int) -> None:
    data = wire_stream(provider, ANSWERS[provider])
    joined = exchange(provider)
    joined.translate_request(FIRST)
    stream = StreamTranslation(joined)
    for at in range(0, len(data), size):
        stream.feed(data[at : at + size])
    stream.close()
    whole = translate_answer(provider, ANSWERS[provider])
    assert stream.memory_records == whole.memory_records != {}
    assert ("seal-kept" in codes(stream)) == ("seal-kept" in codes(whole)) == joined.is_cross_protocol
    refolded = exchange(provider)
    refolded.translate_request(FIRST)
    assert refolded.translate_streamed_response(data).memory_records == whole.memory_records


def test_a_stream_that_breaks_off_keeps_nothing() -> None:
    data = wire_stream("anthropic", ANSWERS["anthropic"])
    joined = exchange("anthropic")
    joined.translate_request(FIRST)
    stream = StreamTranslation(joined)
    stream.feed(data[: data.index(b"message_delta") - 10])
    stream.close()
    assert stream.failure is not None
    assert stream.memory_records == {}
    assert "seal-kept" not in codes(stream)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_nobody_else_gets_anything(provider: str) -> None:
    said = translate_answer(provider, ANSWERS[provider])
    message = said.json()["choices"][0]["message"]
    request = following(plain(message), *results(message))
    assert (
        translate_next_request(provider, request, said.memory_records, "another account").body
        == translate_next_request(provider, request, {}).body
    )
    for other in PROVIDERS:
        if other != provider:
            back = translate_next_request(other, request, said.memory_records)
            assert back.body == translate_next_request(other, request, {}).body, other
            assert "seal-dropped" in codes(back), other


@pytest.mark.parametrize("provider", PROVIDERS)
def test_what_was_sent_once_stays_as_it_was(provider: str) -> None:
    """Three rounds: every request begins with the bytes of the one before."""
    kept: dict[str, bytes] = {}
    messages: list[Any] = []
    seen: list[Any] = []
    for number in range(3):
        answer = number_ids(ANSWERS[provider], number)
        said = _answered_again(provider, messages, kept, answer)
        kept |= said.memory_records
        message = said.json()["choices"][0]["message"]
        messages += [plain(message), *results(message)]
        seen.append(translate_next_request(provider, following(*messages), kept).json())
    key = PROVIDERS[provider].constraints.turns_key
    assert len(by_id(kept)) == 3
    assert seen[1][key][: len(seen[0][key])] == seen[0][key]
    assert seen[2][key][: len(seen[1][key])] == seen[1][key]
    again = translate_next_request(provider, following(*messages), dict(reversed(kept.items()))).json()
    assert again == seen[2]


def number_ids(answer: Any, number: int) -> Any:
    """The same answer with ids of its own."""
    text = json.dumps(answer)
    for id in ("toolu_01", "toolu_02", "call_a1", "call_a2", "call_1", "call_2", '"id": "c1', '"id": "c2'):
        text = text.replace(id, f"{id}{number}")
    return json.loads(text)


def _answered_again(provider: str, messages: list[Any], kept: dict[str, bytes], answer: Any) -> Translation:
    joined = exchange(provider)
    request = following(*messages)
    joined.memory_keys(request)
    joined.translate_request(request, kept)
    return joined.translate_response(answer)


TEXT = {"format": "one-v1", "index": 0}
SIGNED = [
    {
        "role": "assistant",
        "content": "",
        "reasoning": "Let ",
        "reasoning_details": [{"type": "reasoning.text", "text": "Let ", **TEXT}],
    },
    {"content": "", "reasoning": "me.", "reasoning_details": [{"type": "reasoning.text", "text": "me.", **TEXT}]},
    {"content": "", "reasoning_details": [{"type": "reasoning.text", "signature": "SIG==", **TEXT}]},
    {
        "tool_calls": [
            {"index": 0, "id": "call_x8Y7z6W5", "type": "function", "function": {"name": "f", "arguments": ""}}
        ]
    },
    {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]},
]
SEALED_BEHIND = [
    {"role": "assistant", "content": "", "reasoning_details": [{"type": "reasoning.text", "text": "Let me.", **TEXT}]},
    {
        "tool_calls": [
            {"index": 0, "id": "call_x8Y7z6W5", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        ]
    },
    {"reasoning_details": [{"type": "reasoning.encrypted", "data": "ENC", "id": "call_x8Y7z6W5", **TEXT}]},
]


@pytest.mark.parametrize(
    ("deltas", "details"),
    [
        (SIGNED, [{"type": "reasoning.text", "text": "Let me.", "signature": "SIG==", **TEXT}]),
        (
            SEALED_BEHIND,
            [
                {"type": "reasoning.text", "text": "Let me.", **TEXT},
                {"type": "reasoning.encrypted", "data": "ENC", "id": "call_x8Y7z6W5", **TEXT},
            ],
        ),
    ],
)
def test_details_in_pieces_are_whole_when_they_go_back(deltas: list[Any], details: list[Any]) -> None:
    joined = exchange("details")
    joined.translate_request(FIRST)
    stream = StreamTranslation(joined)
    head = {"id": "gen-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    for delta in deltas:
        chunk = {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        data = f"data: {json.dumps(chunk)}\n\n".encode()
        assert [line for line in stream.feed(data).splitlines() if line], "the client's stream goes on as it came"
    stream.feed(
        f"data: {json.dumps({**head, 'choices': [{'index': 0, 'delta': {}, 'finish_reason': 'stop'}]})}\n\n".encode()
    )
    stream.feed(b"data: [DONE]\n\n")
    stream.close()
    call = {"id": "call_x8Y7z6W5", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    back = translate_next_request("details", following(message, *results(message)), stream.memory_records)
    assert turn_in("details", back.json())[0]["reasoning_details"] == details
    assert not back.losses


# --- losses -------------------------------------------------------------------------------------------------------------


def test_the_loss_says_what_became_of_a_seal() -> None:
    answer = ANSWERS["anthropic"]
    assert "seal-kept" in codes(translate_answer("anthropic", answer))
    alone = exchange("anthropic", keeps=False)
    assert alone.memory_keys(following(plain({"content": "x", "tool_calls": chat_calls()}))) == ()
    said = alone.translate_response(answer)
    assert said.memory_records == {}
    assert "seal-dropped" in codes(said)
    assert "seal-kept" not in codes(said)


def test_a_turn_without_calls_is_not_kept() -> None:
    answer = ANSWERS["anthropic"] | {"content": CLAUDE[:3], "stop_reason": "end_turn"}
    said = translate_answer("anthropic", answer)
    assert said.memory_records == {}
    assert [loss.what for loss in said.losses if loss.code == "seal-dropped"]
    assert "seal-kept" not in codes(said)


@pytest.mark.parametrize("client", ["anthropic", "gemini", "openai-responses", "unified", "bedrock-converse"])
def test_clients_with_slots_need_nothing_kept(client: str) -> None:
    joined = Exchange(find_codec(client), find_codec("anthropic"), Options(has_memory=True))
    assert not joined.uses_memory
    assert joined.translate_response(ANSWERS["anthropic"]).memory_records == {}


def test_ordinary_answers_are_not_kept() -> None:
    answer = ANSWERS["anthropic"] | {"content": [CLAUDE[2], CLAUDE[3]]}
    assert translate_answer("anthropic", answer).memory_records == {}
    assert translate_answer("extras", chat_answer(plain(EXTRAS))).memory_records == {}
    joined = Exchange(CHAT, CHAT, Options(has_memory=True))
    assert joined.translate_response(ANSWERS["extras"]).memory_records == {}


# --- what clients do ----------------------------------------------------------------------------------------------------


def claude(kept: Mapping[str, bytes], *messages: Any) -> list[Any]:
    body = translate_next_request("anthropic", following(*messages), kept).json()
    turn: list[Any] = turn_in("anthropic", body)
    return turn


@pytest.fixture(name="said")
def translate_first_answer() -> Translation:
    return translate_answer("anthropic", ANSWERS["anthropic"])


@pytest.fixture
def message(said: Translation) -> Any:
    return plain(said.json()["choices"][0]["message"])


def test_edited_text_stands_where_the_first_text_stood(said: Translation, message: Any) -> None:
    edited = message | {"content": "Another text."}
    turn = claude(said.memory_records, edited, *results(message))
    assert turn == [*CLAUDE[:2], {"type": "text", "text": "Another text."}, CLAUDE[3], CLAUDE[4], CLAUDE[6]]
    silent = claude(said.memory_records, message | {"content": None}, *results(message))
    assert silent == [block for block in CLAUDE if block["type"] != "text"]


def test_thinking_goes_with_the_words_it_led_to_where_it_must_lead_to_something() -> None:
    message_item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
    content = [{"type": "output_text", "text": "Both.", "annotations": []}]
    output = json.loads(json.dumps(ANSWERS["openai-responses"]["output"]).replace("call_a2", "call_x8Y7z6W5"))
    answer = ANSWERS["openai-responses"] | {"output": [output[0], message_item | {"content": content}, *output[2:]]}
    said = translate_answer("openai-responses", answer)
    message = plain(said.json()["choices"][0]["message"])
    for words, thoughts in (("Both.", ["rs_1", "rs_2"]), ("Other words.", ["rs_1", "rs_2"]), (None, ["rs_2"])):
        edited = message | {"content": words}
        back = translate_next_request("openai-responses", following(edited, *results(message)), said.memory_records)
        assert [item["id"] for item in back.json()["input"] if item.get("type") == "reasoning"] == thoughts
        assert ("reasoning-dropped" in codes(back)) == (words is None)
        assert find_violations("openai-responses", back.json()) == []


def test_thoughts_that_were_apart_do_not_become_one_row() -> None:
    answer = ANSWERS["anthropic"] | {"content": [*CLAUDE[:3], CLAUDE[4], CLAUDE[3]]}
    said = translate_answer("anthropic", answer)
    message = plain(said.json()["choices"][0]["message"])
    assert claude(said.memory_records, message, *results(message)) == answer["content"]
    assert claude(said.memory_records, message | {"content": None}, *results(message)) == [CLAUDE[4], CLAUDE[3]]


def test_text_that_was_never_said_comes_before_the_calls(said: Translation) -> None:
    answer = ANSWERS["anthropic"] | {"content": [CLAUDE[0], CLAUDE[3]]}
    said = translate_answer("anthropic", answer)
    message = plain(said.json()["choices"][0]["message"]) | {"content": "Made up."}
    turn = claude(said.memory_records, message, *results(message))
    assert turn == [CLAUDE[0], {"type": "text", "text": "Made up."}, CLAUDE[3]]
    empty = claude(said.memory_records, message | {"content": ""}, *results(message))
    assert empty == [CLAUDE[0], CLAUDE[3]]


def test_a_call_that_is_gone_takes_its_thinking_with_it(said: Translation, message: Any) -> None:
    shorter = message | {"content": "First one.", "tool_calls": message["tool_calls"][:1]}
    body = translate_next_request("anthropic", following(shorter, *results(shorter)), said.memory_records)
    assert turn_in("anthropic", body.json()) == CLAUDE[:4]
    without_text = message | {"tool_calls": message["tool_calls"][1:]}
    assert all(
        block["type"] != "thinking" for block in claude(said.memory_records, without_text, *results(without_text))
    )


def test_calls_in_another_order_return_to_their_own(said: Translation, message: Any) -> None:
    turned = message | {"tool_calls": message["tool_calls"][::-1]}
    assert claude(said.memory_records, turned, *results(message)) == CLAUDE
    added = {"id": "call_added_by_the_client", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    more = message | {"tool_calls": [*message["tool_calls"], added]}
    turn = claude(said.memory_records, more, *results(more))
    assert turn[:-1] == CLAUDE
    assert turn[-1]["id"] == added["id"]


def test_a_turn_in_several_messages_is_one_again(said: Translation, message: Any) -> None:
    one = {"role": "assistant", "content": message["content"]}
    calls = [{"role": "assistant", "content": None, "tool_calls": [call]} for call in message["tool_calls"]]
    assert claude(said.memory_records, one, *calls, *results(message)) == CLAUDE


def test_arguments_may_be_spelled_anew(said: Translation, message: Any) -> None:
    calls = [json.loads(json.dumps(call)) for call in message["tool_calls"]]
    calls[0]["function"]["arguments"] = '{ "a" : 1.0 }'
    turn = claude(said.memory_records, message | {"tool_calls": calls}, *results(message))
    assert turn == CLAUDE


def test_text_in_parts_keeps_its_marks(said: Translation, message: Any) -> None:
    parts = [
        {"type": "text", "text": "First one."},
        {"type": "text", "text": "Now the other ü.", "cache_control": {"type": "ephemeral"}},
    ]
    turn = claude(said.memory_records, message | {"content": parts}, *results(message))
    assert turn[:5] == CLAUDE[:5]
    assert turn[5] == CLAUDE[5] | {"cache_control": {"type": "ephemeral"}}
    whole = [{"type": "text", "text": message["content"], "cache_control": {"type": "ephemeral"}}]
    assert claude(said.memory_records, message | {"content": whole}, *results(message)) == turn


def test_thinking_that_the_client_echoes_is_not_doubled(said: Translation) -> None:
    whole = said.json()["choices"][0]["message"]
    assert whole["reasoning_content"] == "Need both."
    echoed = plain(whole) | {"reasoning_content": whole["reasoning_content"]}
    assert claude(said.memory_records, echoed, *results(whole)) == CLAUDE


def test_a_client_that_echoes_seals_is_served_from_those() -> None:
    for provider in ("details", "extras"):
        said = translate_answer(provider, ANSWERS[provider])
        echoed = json.loads(json.dumps(OWN[provider][0]).replace("gAAAdata", "theirs").replace("EpQB+/call=", "theirs"))
        request = following(echoed, *results(echoed))
        assert exchange(provider).memory_keys(request) == ()
        back = exchange(provider).translate_request(request, said.memory_records)
        assert turn_in(provider, back.json()) == [echoed]


def test_a_seal_that_the_client_brings_for_a_vendor_goes_to_that_vendor() -> None:
    request = following(EXTRAS, *results(EXTRAS))
    assert exchange("gemini").memory_keys(request) == ()
    calls = turn_in("gemini", translate_next_request("gemini", request, {}).json())
    assert [part.get("thoughtSignature") for part in calls] == ["EpQB+/call=", None]
    for other in ("anthropic", "openai-responses"):
        back = translate_next_request(other, request, {})
        assert b"EpQB" not in back.body
        assert "seal-dropped" in codes(back)


def test_a_client_that_echoes_plain_thinking_is_served_from_that() -> None:
    said = translate_answer("bare", ANSWERS["bare"])
    echoed = BARE | {"reasoning_content": "Need both, of course."}
    request = following(echoed, *results(echoed))
    assert turn_in("bare", translate_next_request("bare", request, said.memory_records).json()) == [echoed]


# --- ids ----------------------------------------------------------------------------------------------------------------


def test_ids_that_were_rewritten_come_back_as_their_own() -> None:
    long = "toolu_" + "x" * 50
    answer = json.loads(json.dumps(ANSWERS["anthropic"]).replace("toolu_01ABCDEFGHIJKL", long))
    said = translate_answer("anthropic", answer)
    message = plain(said.json()["choices"][0]["message"])
    assert len(message["tool_calls"][0]["id"]) <= 40
    request = following(message, *results(message))
    body = translate_next_request("anthropic", request, said.memory_records).json()
    assert turn_in("anthropic", body) == answer["content"]
    assert [block["tool_use_id"] for block in body["messages"][-1]["content"]] == [long, "toolu_02ABCDEFGHIJKL"]
    elsewhere = translate_next_request("anthropic", request, said.memory_records, "another account").json()
    assert elsewhere["messages"][-1]["content"][0]["tool_use_id"] == message["tool_calls"][0]["id"]
    twice = following(message, *results(message), message, *results(message))
    again = translate_next_request("anthropic", twice, said.memory_records).json()
    assert again["messages"][:3] == body["messages"]
    turns = [turn_in("anthropic", again, number) for number in (0, 1)]
    assert len({block["id"] for turn in turns for block in turn if block["type"] == "tool_use"}) == 4
    assert find_violations("anthropic", again) == []


def test_ids_alone_are_worth_keeping() -> None:
    long = "toolu_" + "x" * 50
    answer = json.loads(
        json.dumps(ANSWERS["anthropic"] | {"content": [CLAUDE[3]]}).replace("toolu_01ABCDEFGHIJKL", long)
    )
    said = translate_answer("anthropic", answer)
    message = plain(said.json()["choices"][0]["message"])
    assert (
        turn_in(
            "anthropic",
            translate_next_request("anthropic", following(message, *results(message)), said.memory_records).json(),
        )[0]["id"]
        == long
    )


def test_an_id_that_comes_up_often_must_be_of_the_same_turn() -> None:
    """Some servers count their calls from one in every conversation."""
    said = translate_answer("extras", ANSWERS["extras"])
    message = plain(said.json()["choices"][0]["message"])
    other = json.loads(json.dumps(message).replace('{\\"a\\": 2}', '{\\"a\\": 3}'))
    request = following(other, *results(other))
    back = translate_next_request("extras", request, said.memory_records)
    assert "extra_content" not in back.body.decode()
    assert "seal-dropped" in codes(back)
    respelled = json.loads(json.dumps(message).replace('{\\"a\\": 2}', '{\\"a\\":2.0}'))
    assert (
        b"thought_signature"
        in translate_next_request("extras", following(respelled, *results(message)), said.memory_records).body
    )


@pytest.mark.parametrize(
    ("id", "common"),
    [
        ("call_1", True),
        ("0", True),
        ("functions.f:0", True),
        ("f_x9y8z7w6", False),
        ("call_weather", True),
        ("get_1731680000000_0", True),
        ("call_000001", True),
        ("r3k2l8s1", False),
        ("D681PevKs", False),
        ("toolu_01A09q90qw90lq917835lq9", False),
        ("call_00_Yx81hasdQ12", False),
        ("chatcmpl-tool-7c0e1f2a3b4c5d6e", False),
        ("1234567890", False),
    ],
)
def test_which_ids_come_up_often(id: str, common: bool) -> None:
    answer = json.loads(json.dumps(ANSWERS["extras"]).replace("call_1", id).replace('"f"', '"get_weather"'))
    kept = signature_memory.decode_record(translate_answer("extras", answer).memory_records[id])
    assert kept is not None
    assert bool(kept.fingerprint) is common


def test_what_another_version_wrote_is_left_alone(said: Translation, message: Any) -> None:
    request = following(message, *results(message))
    for data in (b"\x02" + bytes(said.memory_records["toolu_01ABCDEFGHIJKL"])[1:], b"", b"\x01\xc1", b"\x01\x93"):
        back = translate_next_request("anthropic", request, {"toolu_01ABCDEFGHIJKL": data})
        assert back.body == translate_next_request("anthropic", request, {}).body
        assert [loss.what for loss in back.losses if loss.code == "seal-dropped"]


# --- shapes -------------------------------------------------------------------------------------------------------------


def test_two_turns_with_the_same_id_are_kept_apart() -> None:
    """Servers that count the calls of each conversation give one id to many turns."""
    other = json.loads(json.dumps(EXTRAS).replace("EpQB+/call=", "EpQBother").replace('\\"a\\": 1', '\\"a\\": 9'))
    first, second = (translate_answer("extras", chat_answer(turn)) for turn in (EXTRAS, other))
    kept = {**first.memory_records, **second.memory_records}
    assert by_id(first.memory_records) == by_id(second.memory_records)
    for said, turn in ((first, EXTRAS), (second, other)):
        message = plain(said.json()["choices"][0]["message"])
        assert turn_in(
            "extras", translate_next_request("extras", following(message, *results(message)), kept).json()
        ) == [turn]


def test_every_choice_is_kept_for_itself() -> None:
    second = json.loads(json.dumps(EXTRAS).replace("call_", "other_").replace("EpQB+/call=", "EpQBsecond"))
    said = translate_answer("extras", chat_answer(EXTRAS, second))
    assert set(by_id(said.memory_records)) == {"call_1", "other_1"}
    message = plain(said.json()["choices"][1]["message"])
    assert turn_in(
        "extras", translate_next_request("extras", following(message, *results(message)), said.memory_records).json()
    ) == [second]
    content = {"role": "model", "parts": json.loads(json.dumps(GEMINI).replace('"c', '"d'))}
    two = [*ANSWERS["gemini"]["candidates"], {"index": 1, "finishReason": "STOP", "content": content}]
    kept = translate_answer("gemini", ANSWERS["gemini"] | {"candidates": two}).memory_records
    assert set(by_id(kept)) == {"c1", "d1"}


def test_calls_without_ids_are_kept_by_the_ids_they_are_given() -> None:
    parts = json.loads(json.dumps(GEMINI).replace('"id": "c1", ', "").replace('"id": "c2", ', ""))
    answer = ANSWERS["gemini"] | {"candidates": [{"index": 0, "finishReason": "STOP", "content": {"parts": parts}}]}
    said = translate_answer("gemini", answer)
    message = plain(said.json()["choices"][0]["message"])
    back = turn_in(
        "gemini", translate_next_request("gemini", following(message, *results(message)), said.memory_records).json()
    )
    assert [part.get("thoughtSignature") for part in back] == [part.get("thoughtSignature") for part in parts]


def test_a_freeform_call_is_sealed_like_any_other() -> None:
    custom = {"type": "custom", "custom": {"name": "patch", "description": "d"}}
    first = {**FIRST, "tools": [custom]}
    joined = exchange("gemini")
    joined.translate_request(first)
    call = {"functionCall": {"id": "c1", "name": "patch", "args": {"input": "*** x"}}, "thoughtSignature": "EpQBfree"}
    answer = ANSWERS["gemini"] | {"candidates": [{"index": 0, "finishReason": "STOP", "content": {"parts": [call]}}]}
    said = joined.translate_response(answer)
    message = plain(said.json()["choices"][0]["message"])
    assert message["tool_calls"][0]["custom"]["input"] == "*** x"
    request = {**first, "messages": [*first["messages"], message, *results(message)]}
    assert turn_in("gemini", translate_next_request("gemini", request, said.memory_records).json()) == [call]


def test_the_body_is_read_once() -> None:
    seen: list[Any] = []

    def read_and_count(body: Any) -> Any:
        seen.append(body)
        return CHAT.read_request(body)

    joined = Exchange(
        replace(CHAT, read_request=read_and_count), PROVIDERS["anthropic"], Options(model="m", has_memory=True)
    )
    body = json.dumps(following(plain(EXTRAS), *results(EXTRAS))).encode()
    assert tuple(by_id(joined.memory_keys(body))) == ("call_1", "call_2")
    first = joined.translate_request(body)
    assert len(seen) == 1
    assert joined.translate_request(body).body == first.body
    joined.memory_keys(body)
    other = json.dumps(following({"role": "user", "content": "another"})).encode()
    assert b"another" in joined.translate_request(other).body


# --- from one provider to another -----------------------------------------------------------------------------------

STRICT = {"anthropic": "anthropic", "gemini": "gemini", "openai-responses": "openai-responses"}


@pytest.mark.parametrize("there", PROVIDERS)
@pytest.mark.parametrize("home", PROVIDERS)
def test_a_conversation_goes_away_and_comes_home(home: str, there: str) -> None:
    """A turn here, one there, and back: each maker finds its own turns as it made them, and nothing of the other's."""
    kept: dict[str, bytes] = {}
    messages: list[Any] = []
    for number, provider in enumerate((home, there)):
        said = _answered_again(provider, messages, kept, number_ids(ANSWERS[provider], number))
        kept |= said.memory_records
        message = said.json()["choices"][0]["message"]
        messages += [plain(message), *results(message)]
    request = following(*messages, {"role": "user", "content": "and?"})
    for at, provider in enumerate((home, there)):
        back = translate_next_request(provider, request, kept)
        assert _turns(provider, back.json())[at] == _own(provider, at)
        if home != there:
            alone = translate_next_request(provider, request, {id: kept[id] for id in [by_id(kept)[at]]})
            assert alone.body == back.body
        if provider in STRICT:
            assert find_violations(STRICT[provider], back.json(), MODELS[provider]) == []


def _own(provider: str, number: int) -> Any:
    own = json.loads(json.dumps({"id": OWN[provider]}))
    return number_ids(own, number)["id"]


def _turns(provider: str, body: Any) -> list[Any]:
    """What the assistant said, turn by turn, as this provider gets it."""
    if provider != "openai-responses":
        if provider == "anthropic":
            return [turn["content"] for turn in body["messages"] if turn["role"] == "assistant"]
        if provider == "gemini":
            return [turn["parts"] for turn in body["contents"] if turn["role"] == "model"]
        return [[message] for message in body["messages"] if message["role"] == "assistant"]
    found: list[Any] = [[]]
    for item in body["input"]:
        if item.get("role") == "user" or item["type"].endswith("_output"):
            found += [[]] if found[-1] else []
        else:
            found[-1].append(item)
    return found


# --- all turns that a model could make ----------------------------------------------------------------------------------

SEALS = st.text("abcdefgh+/=", min_size=1, max_size=12)
WORDS = st.text("abc ü\n", min_size=1, max_size=9).filter(lambda text: not text.isspace())


def reasoning_parts(provider: str) -> st.SearchStrategy[Part]:
    if provider == "anthropic":
        hidden = st.builds(lambda value: Reasoning(hidden=True, seal=Seal(provider, value)), SEALS)
        return hidden | st.builds(lambda text, value: Reasoning(text, seal=Seal(provider, value)), WORDS, SEALS)
    if provider == "gemini":
        return st.builds(lambda text: Reasoning(text, "summary"), WORDS)
    seal = st.builds(lambda value: Seal(provider, value), SEALS)
    return st.builds(lambda text, value: Reasoning(text, "summary", seal=value, id="rs_"), WORDS, seal)


def turns(provider: str) -> st.SearchStrategy[tuple[Part, ...]]:
    seal = st.builds(lambda value: Seal(provider, value), SEALS) | st.none() if provider == "gemini" else st.none()
    text = st.builds(lambda text, value: Text(text, seal=value), WORDS, seal)
    call = st.builds(lambda a, value: Call("", "f", json.dumps({"a": a}), seal=value), st.integers(-9, 9), seal)
    several = 1 if provider == "gemini" else 2  # a stream of its has no end of a thought but what follows
    led = st.tuples(st.lists(reasoning_parts(provider), max_size=several), st.lists(text, max_size=1), call)
    made = st.lists(led, min_size=1, max_size=4).map(set_ids)
    return made.filter(lambda parts: any(getattr(part, "seal", None) for part in parts))


def set_ids(groups: list[Any]) -> tuple[Part, ...]:
    parts: list[Part] = []
    for number, (thoughts, texts, call) in enumerate(groups):
        for thought in thoughts:
            parts.append(replace(thought, id=f"rs_{len(parts)}") if thought.id else thought)
        parts += [*texts, replace(call, id=f"call_of_this_turn_{number}")]
    return tuple(parts)


@pytest.mark.slow
@pytest.mark.parametrize("provider", ["anthropic", "gemini", "openai-responses"])
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_every_turn_comes_back_whole(provider: str, data: st.DataObject) -> None:
    parts = data.draw(turns(provider))
    target = PROVIDERS[provider]
    response = Response("r", MODELS[provider], 1, (Choice(0, parts, Finish("calls")),))
    wire = decode(
        encode(target.write_response(response, Ledger(target.name, target.name), WriteContext(None, 1, "seed")))
    )
    said = translate_answer(provider, wire)
    streamed = exchange(provider)
    streamed.translate_request(FIRST)
    stream = StreamTranslation(streamed)
    stream.feed(wire_stream(provider, wire))
    stream.close()
    assert stream.memory_records == said.memory_records
    message = plain(said.json()["choices"][0]["message"])
    back = translate_next_request(provider, following(message, *results(message)), said.memory_records).json()
    again = target.read_request(back)
    mine = [part for turn in again.turns if turn.role == "assistant" for part in turn.parts]
    assert list(map(_comparable, mine)) == list(map(_comparable, parts))


def _comparable(part: Part) -> Part:
    if isinstance(part, Call):
        part = replace(part, item_id="", arguments=json.dumps(json.loads(part.arguments)))
        if part.seal is not None and part.seal.value == "skip_thought_signature_validator":
            part = replace(part, seal=None)
    return strip_origins(part)  # type: ignore[no-any-return]


def test_a_turn_is_kept_in_few_bytes() -> None:
    kept = translate_answer("anthropic", ANSWERS["anthropic"]).memory_records["toolu_01ABCDEFGHIJKL"]
    text = "".join(
        str(value) for block in CLAUDE for key, value in block.items() if key in ("thinking", "signature", "data", "id")
    )
    assert len(kept) < len(text) + 100
    assert signature_memory.decode_record(kept) is not None


# --- thinking that DeepSeek wants back, and that clients leave out although they could carry it -----------------------

TOLD = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "deepseek-v4"}
QUESTIONS: dict[str, Any] = {
    "openai-responses": {"model": "m", "input": [{"role": "user", "content": "q"}]},
    "anthropic": {"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": "q"}]},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "q"}]}]},
}


def without_reasoning(item: Any) -> Any:
    return None if item.get("type") in ("reasoning", "thinking") or item.get("thought") else item


def without_text(item: Any) -> Any:
    """As clients that know only `summary` and `encrypted_content`."""
    return {key: value for key, value in item.items() if key != "content"} if item.get("type") == "reasoning" else item


def without_content(item: Any) -> Any:
    return {"type": "reasoning", "id": item["id"], "summary": []} if item.get("type") == "reasoning" else item


def as_summary(item: Any) -> Any:
    if item.get("type") != "reasoning":
        return item
    return {"type": "reasoning", "id": "resp_1", "summary": [{"type": "summary_text", "text": "Need both."}]}


def calls_only(item: Any) -> Any:
    return item if item.get("type") in ("function_call", "tool_use") or "functionCall" in item else None


CLIENT_WAYS = [
    *[("openai-responses", way) for way in (without_text, without_content, as_summary)],
    *[(client, way) for client in QUESTIONS for way in (lambda item: item, without_reasoning, calls_only)],
]


@pytest.mark.parametrize(("client", "way"), CLIENT_WAYS)
@pytest.mark.parametrize("calls", [1, 2])
def test_unsealed_thinking_comes_back_from_every_client_once(client: str, way: Any, calls: int) -> None:
    options = Options(model="deepseek-v4", maker="openai-chat/deepseek/a", has_memory=True)
    first = Exchange(find_codec(client), PROVIDERS["bare"], options)
    first.translate_request(QUESTIONS[client])
    made_calls = [{**call, "id": f"call_0{n}_aB3dE6gH9k{n}x"} for n, call in enumerate(chat_calls()[:calls])]
    message = {**BARE, "content": "I look.", "tool_calls": made_calls}
    answer = first.translate_response(TOLD | {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
    items = {
        "openai-responses": lambda body: body["output"],
        "anthropic": lambda body: body["content"],
        "gemini": lambda body: body["candidates"][0]["content"]["parts"],
    }[client](answer.json())
    echoed = [kept for item in items if (kept := way(item)) is not None]
    body = decode(encode(QUESTIONS[client]))
    if client == "openai-responses":
        ids = [item["call_id"] for item in items if item["type"] == "function_call"]
        body["input"] += [*echoed, *[{"type": "function_call_output", "call_id": id, "output": "x"} for id in ids]]
    elif client == "anthropic":
        ids = [item["id"] for item in items if item["type"] == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": id, "content": "x"} for id in ids]
        body["messages"] += [{"role": "assistant", "content": echoed}, {"role": "user", "content": results}]
    else:
        made = [item["functionCall"] for item in items if "functionCall" in item]
        results = [{"functionResponse": {"id": c["id"], "name": "f", "response": {"output": "x"}}} for c in made]
        body["contents"] += [{"role": "model", "parts": echoed}, {"role": "user", "parts": results}]
    second = Exchange(find_codec(client), PROVIDERS["bare"], options)
    keys = second.memory_keys(body)
    sent = second.translate_request(body, {k: v for k, v in answer.memory_records.items() if k in keys}).json()
    assert sent["messages"][1]["reasoning_content"] == "Need both."
    assert len(sent["messages"][1]["tool_calls"]) == calls
    assert sum("reasoning_content" in message for message in sent["messages"]) == 1
