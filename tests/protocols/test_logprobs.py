"""Log probabilities: asked for, and carried between Chat, Responses and Gemini, in whole answers and in streams."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest

from toolwire import translate
from toolwire.core.codec import WriteContext
from toolwire.core.events import (
    ChoiceEnd,
    Event,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseStart,
    TextDelta,
    fold,
    unfold,
)
from toolwire.core.ir import Choice, Finish, Refusal, Response, Text, TokenLogprob, replace_fields, strip_origins
from toolwire.core.losses import Ledger, Loss
from toolwire.core.sse import SseSplitter
from toolwire.protocols import find_codec
from toolwire.translation.exchange import Exchange
from toolwire.translation.streaming import StreamTranslation

CARRIERS = ("openai-chat", "openai-responses", "gemini")
OTHERS = ("anthropic", "unified")
PAIRS = list(product(CARRIERS, CARRIERS))
CROSS_PAIRS = [(client, provider) for client, provider in PAIRS if client != provider]
TOKENS = [("It", -0.5, [("It", -0.5), ("He", -1.25)]), (" rains", -0.0625, []), (" é", -2, [(" é", -2), ("", -3.5)])]
"""Each token with its log probability and the most likely tokens at its place."""
TEXT = "".join(token for token, _, _ in TOKENS)
Body = dict[str, Any]


def openai_tokens(tokens: list[Any], with_bytes: bool = True) -> list[Body]:
    def write(token: str, logprob: float) -> Body:
        return {"token": token, "logprob": logprob, "bytes": list(token.encode()) if with_bytes else None}

    return [write(token, logprob) | {"top_logprobs": [write(*one) for one in top]} for token, logprob, top in tokens]


def gemini_result(tokens: list[Any]) -> Body:
    def write(token: str, logprob: float) -> Body:
        return {"token": token, "logProbability": logprob}

    out: Body = {"chosenCandidates": [write(token, logprob) for token, logprob, _ in tokens]}
    if any(top for _, _, top in tokens):
        out["topCandidates"] = [{"candidates": [write(*one) for one in top]} for _, _, top in tokens]
    return out


def answer(protocol: str, tokens: list[Any], text: str) -> Body:
    if protocol == "openai-chat":
        message = {"role": "assistant", "content": text, "refusal": None}
        logprobs = {"content": openai_tokens(tokens), "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": logprobs, "finish_reason": "stop"}
        return {"id": "c1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    if protocol == "gemini":
        content = {"parts": [{"text": text}], "role": "model"}
        candidate = {"content": content, "finishReason": "STOP", "index": 0, "logprobsResult": gemini_result(tokens)}
        return {"candidates": [candidate], "modelVersion": "m", "responseId": "g1"}
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": openai_tokens(tokens)}
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}
    head = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": "completed"}
    return {**head, "output": [item]}


def frames(protocol: str) -> list[Body]:
    """A stream with one token in each delta."""
    if protocol == "openai-chat":
        head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        choice: Body = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None}
        choices = [choice | {"finish_reason": None}]
        for row in TOKENS:
            logprobs = {"content": openai_tokens([row]), "refusal": None}
            choices.append({"index": 0, "delta": {"content": row[0]}, "logprobs": logprobs, "finish_reason": None})
        choices.append({"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"})
        return [{**head, "choices": [one]} for one in choices]
    if protocol == "gemini":
        chunks: list[Body] = []
        for row in TOKENS:
            content = {"parts": [{"text": row[0]}], "role": "model"}
            candidate: Body = {"content": content, "index": 0, "logprobsResult": gemini_result([row])}
            chunks.append({"candidates": [candidate], "modelVersion": "m", "responseId": "g1"})
        chunks[-1]["candidates"][0]["finishReason"] = "STOP"
        return chunks
    whole = answer(protocol, TOKENS, TEXT)
    item = whole["output"][0]
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    empty = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    events = [
        {"type": "response.created", "response": whole | {"status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": item | {"content": []}},
        {"type": "response.content_part.added", **place, "part": empty},
        *[
            {"type": "response.output_text.delta", **place, "delta": row[0], "logprobs": openai_tokens([row])}
            for row in TOKENS
        ],
        {"type": "response.output_text.done", **place, "text": TEXT, "logprobs": openai_tokens(TOKENS)},
        {"type": "response.content_part.done", **place, "part": item["content"][0]},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": whole},
    ]
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def write_stream(protocol: str, bodies: list[Body]) -> bytes:
    out = b""
    for body in bodies:
        name = f"event: {body['type']}\n" if protocol == "openai-responses" else ""
        out += f"{name}data: {json.dumps(body, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()
    return out + (b"data: [DONE]\n\n" if protocol == "openai-chat" else b"")


def play(client: str, provider: str, data: bytes, size: int = 0) -> tuple[bytes, tuple[Loss, ...]]:
    stream = StreamTranslation(Exchange(find_codec(client), find_codec(provider)))
    pieces = [data[at : at + size] for at in range(0, len(data), size)] if size else [data]
    out = b"".join([stream.feed(piece) for piece in pieces]) + stream.close()
    assert stream.failure is None
    return out, stream.losses


def read_frames(data: bytes) -> list[Body]:
    splitter = SseSplitter()
    found = [*splitter.feed(data), *splitter.close()]
    return [json.loads(frame.data) for frame in found if frame.data != b"[DONE]"]


def expected_logprobs(client: str, provider: str, tokens: list[Any]) -> Any:
    """What the client gets of these tokens. Gemini has no bytes; Responses must have them."""
    if client == "gemini":
        return gemini_result(tokens)
    return openai_tokens(tokens, with_bytes=provider != "gemini" or client == "openai-responses")


def logprobs_of_answer(protocol: str, body: Body) -> Any:
    if protocol == "openai-chat":
        assert body["choices"][0]["logprobs"]["refusal"] is None
        return body["choices"][0]["logprobs"]["content"]
    if protocol == "gemini":
        return body["candidates"][0]["logprobsResult"]
    return body["output"][-1]["content"][0]["logprobs"]


def deltas(protocol: str, data: bytes) -> list[tuple[str, Any]]:
    """The texts of a client's stream, each with its log probabilities."""
    found: list[tuple[str, Any]] = []
    for body in read_frames(data):
        if protocol == "openai-chat":
            choice = body["choices"][0]
            if choice["logprobs"]:
                found.append((choice["delta"]["content"], choice["logprobs"]["content"]))
        elif protocol == "gemini":
            candidate = body["candidates"][0]
            if "logprobsResult" in candidate:
                found.append((candidate["content"]["parts"][0]["text"], candidate["logprobsResult"]))
        elif body["type"] == "response.output_text.delta":
            found.append((body["delta"], body["logprobs"]))
    return found


@pytest.mark.parametrize(("client", "provider"), CROSS_PAIRS)
def test_a_whole_answer_carries_them(client: str, provider: str) -> None:
    translated = Exchange(find_codec(client), find_codec(provider)).translate_response(answer(provider, TOKENS, TEXT))
    assert logprobs_of_answer(client, translated.json()) == expected_logprobs(client, provider, TOKENS)
    assert not [loss for loss in translated.losses if "log" in loss.path or "log prob" in loss.what]


@pytest.mark.parametrize("size", [0, 1, 7])
@pytest.mark.parametrize(("client", "provider"), CROSS_PAIRS)
def test_a_stream_carries_them_with_their_text(client: str, provider: str, size: int) -> None:
    out, losses = play(client, provider, write_stream(provider, frames(provider)), size)
    assert deltas(client, out) == [(row[0], expected_logprobs(client, provider, [row])) for row in TOKENS]
    assert not [loss for loss in losses if "log" in loss.path or "log prob" in loss.what]


@pytest.mark.parametrize("provider", ["openai-chat", "gemini"])
def test_a_responses_stream_says_them_again_at_the_end(provider: str) -> None:
    out, _ = play("openai-responses", provider, write_stream(provider, frames(provider)))
    whole = expected_logprobs("openai-responses", provider, TOKENS)
    last = {body["type"]: body for body in read_frames(out)}
    assert last["response.output_text.done"]["logprobs"] == whole
    assert last["response.content_part.done"]["part"]["logprobs"] == whole
    assert last["response.output_item.done"]["item"]["content"][0]["logprobs"] == whole
    assert logprobs_of_answer("openai-responses", last["response.completed"]["response"]) == whole


@pytest.mark.parametrize("protocol", CARRIERS)
def test_within_one_protocol_the_bytes_stay(protocol: str) -> None:
    body, codec = answer(protocol, TOKENS, TEXT), find_codec(protocol)
    assert codec.write_response(codec.read_response(body), Ledger(protocol, protocol), WriteContext()) == body
    data = write_stream(protocol, frames(protocol))
    for size in (0, 1):
        assert play(protocol, protocol, data, size) == (data, ())


@pytest.mark.parametrize("protocol", CARRIERS)
def test_a_rewritten_answer_of_the_same_protocol_keeps_them(protocol: str) -> None:
    """A step may change another part of an answer: it is then no longer written verbatim."""
    body, codec = answer(protocol, TOKENS, TEXT), find_codec(protocol)
    read = codec.read_response(body)
    choices = tuple(replace_fields(choice, parts=(*choice.parts, Text("!"))) for choice in read.choices)
    changed = replace_fields(read, choices=choices)
    written = codec.write_response(changed, Ledger(protocol, protocol), WriteContext())
    assert logprobs_of_answer(protocol, written) == logprobs_of_answer(protocol, body)


@pytest.mark.parametrize("protocol", CARRIERS)
def test_a_stream_means_what_the_whole_answer_means(protocol: str) -> None:
    reader = find_codec(protocol).make_stream_reader()
    data = write_stream(protocol, frames(protocol))
    streamed = fold([*reader.feed(data), *reader.close()])
    whole = find_codec(protocol).read_response(answer(protocol, TOKENS, TEXT))
    assert strip_origins(streamed.choices[0].parts) == strip_origins(whole.choices[0].parts)
    assert strip_origins(fold(unfold(whole)).choices[0].parts) == strip_origins(whole.choices[0].parts)
    (part,) = whole.choices[0].parts
    assert isinstance(part, Text)
    assert [(token.token, token.logprob, len(token.top)) for token in part.logprobs] == [
        (token, logprob, len(top)) for token, logprob, top in TOKENS
    ]


@pytest.mark.parametrize(("client", "provider"), CROSS_PAIRS)
def test_parts_of_a_character_come_as_tokens_without_text(client: str, provider: str) -> None:
    """The bytes of an emoji come as several tokens: the text comes with the last of them."""
    halves = (TokenLogprob("\\xf0\\x9f", -0.5, (240, 159)), TokenLogprob("\\x98\\x80", -1.5, (152, 128)))
    events: list[Event] = [
        ResponseStart("id", "m"),
        PartStart(0, Text("")),
        TextDelta(0, "", None, halves[:1]),
        TextDelta(0, "😀", None, halves[1:]),
        PartEnd(0),
        ChoiceEnd(Finish("stop")),
        ResponseEnd(),
    ]
    ledger = Ledger("elsewhere", provider)
    writer = find_codec(provider).make_stream_writer(ledger, WriteContext())
    data = b"".join([writer.write(event) for event in events]) + writer.close()
    out, losses = play(client, provider, data, 1)
    reader = find_codec(client).make_stream_reader()
    (part,) = fold([*reader.feed(out), *reader.close()]).choices[0].parts
    assert isinstance(part, Text)
    assert part.text == "😀"
    assert [token.logprob for token in part.logprobs] == [-0.5, -1.5]
    lost = provider == "gemini", client == "gemini"
    assert lost == (
        ledger.codes == ("no-counterpart",) * 2,
        [loss.code for loss in losses].count("no-counterpart") == 2,
    )
    if not any(lost):
        assert [token.bytes for token in part.logprobs] == [(240, 159), (152, 128)]


@pytest.mark.parametrize("client", CARRIERS)
def test_the_tokens_of_a_refusal(client: str) -> None:
    """Chat has them, at Gemini a refusal is text, and Responses has no place for them: a loss."""
    tokens = openai_tokens([("No", -0.5, [])])
    body = answer("openai-chat", [], "")
    choice = body["choices"][0]
    choice["message"] |= {"content": None, "refusal": "No"}
    choice["logprobs"] = {"content": None, "refusal": tokens}
    chunk = {**body, "object": "chat.completion.chunk", "choices": [{**choice, "delta": choice["message"]}]}
    del chunk["choices"][0]["message"]
    exchange = Exchange(find_codec(client), find_codec("openai-chat"))
    whole = exchange.translate_response(body)
    out, losses = play(client, "openai-chat", write_stream("openai-chat", [chunk]))
    for text, found in ((whole.body.decode(), whole.losses), (out.decode(), losses)):
        assert ("-0.5" in text) == (client != "openai-responses")
        lost = [loss.path.removeprefix("event/0") for loss in found if "log prob" in loss.what]
        assert lost == (["/choices/0/logprobs/refusal"] if client == "openai-responses" else [])


@pytest.mark.parametrize("client", OTHERS)
@pytest.mark.parametrize("provider", CARRIERS)
def test_a_client_without_them_gets_one_loss(client: str, provider: str) -> None:
    exchange = Exchange(find_codec(client), find_codec(provider))
    whole = exchange.translate_response(answer(provider, TOKENS, TEXT)).losses
    _, streamed = play(client, provider, write_stream(provider, frames(provider)), 1)
    for losses in (whole, streamed):
        assert len([loss for loss in losses if "log probabilities" in loss.what]) == 1


WISHES: dict[str, Body] = {
    "openai-chat": {"messages": [{"role": "user", "content": "hi"}], "logprobs": True, "top_logprobs": 2},
    "openai-responses": {"input": "hi", "include": ["message.output_text.logprobs"], "top_logprobs": 2},
    "gemini": {
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
        "generationConfig": {"responseLogprobs": True, "logprobs": 2},
    },
}


@pytest.mark.parametrize("source", CARRIERS)
def test_anthropic_cannot_fulfil_the_wish_which_is_a_loss(source: str) -> None:
    body = {"model": "claude-sonnet-4-5", **WISHES[source]} if source != "gemini" else WISHES[source]
    made = translate(body, "request", source=source, target="anthropic", model="claude-sonnet-4-5")
    assert "logprobs" not in made.body.decode()
    lost = {loss.what for loss in made.losses if loss.severity == "lost"}
    assert {"the setting `logprobs` was left out", "the setting `top_logprobs` was left out"} <= lost


@pytest.mark.parametrize(("target", "source"), CROSS_PAIRS)
def test_the_wish_is_translated(target: str, source: str) -> None:
    body = {"model": "gpt-4.1", **WISHES[source]} if source != "gemini" else WISHES[source]
    made = json.loads(translate(body, "request", source=source, target=target, model="gpt-4.1").body)
    if target == "gemini":
        assert made["generationConfig"] == {"responseLogprobs": True, "logprobs": 2}
    elif target == "openai-chat":
        assert (made["logprobs"], made["top_logprobs"]) == (True, 2)
    else:
        assert "message.output_text.logprobs" in made["include"]
        assert made["top_logprobs"] == 2


UNREADABLE: list[Any] = [
    "yes",
    7,
    [1],
    [{"token": "It"}],
    [{"token": 3, "logprob": -1}],
    [{"token": "It", "logprob": "-1"}],
    [{"token": "It", "logprob": -1, "bytes": "It"}],
    [{"token": "It", "logprob": -1, "top_logprobs": [None]}],
]


@pytest.mark.parametrize("shape", UNREADABLE, ids=str)
@pytest.mark.parametrize(("client", "provider"), CROSS_PAIRS)
def test_what_cannot_be_read_is_a_loss_and_the_answer_stays(client: str, provider: str, shape: Any) -> None:
    def spoil(node: Any) -> Any:
        if isinstance(node, list):
            return [spoil(one) for one in node]
        if not isinstance(node, dict):
            return node
        value = {"chosenCandidates": shape} if provider == "gemini" else shape
        value = {"content": shape} if provider == "openai-chat" else value
        key = "logprobsResult" if provider == "gemini" else "logprobs"
        if provider == "gemini" and "logProbability" in str(shape):
            return node
        return {name: value if name == key and child else spoil(child) for name, child in node.items()}

    exchange = Exchange(find_codec(client), find_codec(provider))
    whole = exchange.translate_response(spoil(answer(provider, TOKENS, TEXT)))
    out, losses = play(client, provider, write_stream(provider, spoil(frames(provider))))
    (part,) = find_codec(client).read_response(whole.json()).choices[0].parts
    reader = find_codec(client).make_stream_reader()
    (streamed,) = fold([*reader.feed(out), *reader.close()]).choices[0].parts
    for found, lost in ((part, whole.losses), (streamed, losses)):
        assert isinstance(found, Text)
        assert (found.text, found.logprobs) == (TEXT, ())
        assert [loss.code for loss in lost if loss.path.endswith(("/logprobs", "/logprobsResult"))] == ["unknown-field"]


def test_the_number_of_a_token_stays_at_gemini_and_is_lost_elsewhere() -> None:
    body = answer("gemini", TOKENS, TEXT)
    for number, token in enumerate(body["candidates"][0]["logprobsResult"]["chosenCandidates"]):
        token["tokenId"] = number
    (part,) = find_codec("gemini").read_response(body).choices[0].parts
    response = Response("id", "m", 1, (Choice(0, (strip_origins(part),), Finish("stop")),))
    written = find_codec("gemini").write_response(response, Ledger("elsewhere", "gemini"), WriteContext())
    assert [one["tokenId"] for one in logprobs_of_answer("gemini", written)["chosenCandidates"]] == [0, 1, 2]
    losses = Exchange(find_codec("openai-chat"), find_codec("gemini")).translate_response(body).losses
    assert [loss.path for loss in losses if loss.path.endswith("tokenId")] == [
        "/candidates/0/logprobsResult/chosenCandidates/0/tokenId"
    ]


@pytest.mark.parametrize("client", CARRIERS)
def test_tokens_of_calls_have_no_place_and_are_a_loss(client: str) -> None:
    """Some servers send the tokens of calls, too."""
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    logprobs = {"content": openai_tokens(TOKENS), "refusal": None}
    choice = {"index": 0, "delta": {"tool_calls": [call]}, "logprobs": logprobs, "finish_reason": "tool_calls"}
    data = write_stream("openai-chat", [{**head, "choices": [choice]}])
    out, losses = play(client, "openai-chat", data)
    if client == "openai-chat":
        assert (out, losses) == (data, ())
        return
    assert [loss.code for loss in losses if loss.path == "event/0/choices/0/logprobs"] == ["unknown-field"]
    reader = find_codec(client).make_stream_reader()
    assert len(fold([*reader.feed(out), *reader.close()]).choices[0].parts) == 1


def test_a_refusal_unfolds_with_its_tokens() -> None:
    part = Refusal("No", logprobs=(TokenLogprob("No", -0.5),))
    response = Response("id", "m", 1, (Choice(0, (part,), Finish("refusal")),))
    assert fold(unfold(response)) == response


@pytest.mark.parametrize("provider", CARRIERS)
def test_tokens_with_many_unknown_keys_take_linear_time(provider: str) -> None:
    """Looking through all noted keys for each new one would take minutes."""
    row = dict.fromkeys(map("k{}".format, range(100_000)), 1)
    body = json.loads(json.dumps(answer(provider, TOKENS, TEXT)))
    logprobs = body["candidates"][0]["logprobsResult"]["chosenCandidates"] if provider == "gemini" else None
    (logprobs or logprobs_of_answer(provider, body))[0].update(row)
    assert len(find_codec(provider).read_response(body).unknown_fields) >= 100_000
