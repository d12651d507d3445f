"""Laws of answers, for every pair of protocols: what is not an answer fails, and what is one arrives readable."""

from __future__ import annotations

import json
import re
from typing import Any

import jiter
import pytest
from hypothesis import given
from hypothesis import strategies as st

from material import NAMES, PAIRS, corpus, needs_corpus
from toolwire import Malformed
from toolwire.core.argument_guard import ArgumentGuard
from toolwire.core.codec import WriteContext
from toolwire.core.events import (
    ArgumentsDelta,
    ChoiceEnd,
    Event,
    PartEnd,
    PartStart,
    ResponseEnd,
    ResponseStart,
    TextDelta,
    UsageUpdate,
    fold,
    unfold,
)
from toolwire.core.framing import EVENT_STREAM_FRAMING
from toolwire.core.ir import (
    Call,
    Choice,
    Citation,
    Failure,
    Finish,
    Part,
    ProviderCall,
    ProviderResult,
    Reasoning,
    Refusal,
    Response,
    Text,
    Usage,
)
from toolwire.core.json_values import encode
from toolwire.core.losses import Ledger
from toolwire.protocols import find_codec
from toolwire.translation.exchange import Exchange
from toolwire.translation.streaming import StreamTranslation
from toolwire_conformance.peers import find_violations

ANSWERS: dict[str, dict[str, Any]] = {
    "openai-chat": {
        "id": "c",
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
    },
    "openai-responses": {
        "id": "resp_1",
        "object": "response",
        "model": "m",
        "status": "completed",
        "output": [
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "hi", "annotations": []}],
            }
        ],
    },
    "anthropic": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "hi"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1, "output_tokens": 1},
    },
    "gemini": {"candidates": [{"content": {"parts": [{"text": "hi"}], "role": "model"}, "finishReason": "STOP"}]},
    "bedrock-converse": {
        "output": {"message": {"role": "assistant", "content": [{"text": "hi"}]}},
        "stopReason": "end_turn",
        "usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2},
        "metrics": {"latencyMs": 1},
    },
    "unified": {"id": "a", "message": {"role": "assistant", "content": "hi"}, "stop_reason": "end"},
}
NOT_ANSWERS = (
    *(
        text.encode()
        for text in """{} [] null true 0 "ok" {"status":"ok"} {"detail":"gone"} {"choices":[]} {"choices":null}
        {"output":[]} {"content":[]} {"content":null} {"candidates":[]} {"candidates":null} {"message":null}
        {"data":[],"object":"list"} {"usage":{}} {"id":"x","model":"m"} {"candidates":{}} {"choices":{}} {"message":{}}
        {"choices":[{}]} {"choices":[{"index":0}]} {"choices":[{"message":null}]} {"choices":[{"message":{}}]}
        {"choices":[{"delta":{}}]} {"candidates":[{}]} {"candidates":[{"index":0}]} {"candidates":[{"content":{}}]}
        {"type":"message","content":[]} {"object":"response","output":[]} {"response":{}}
        {"status":"queued","output":[]} {"status":"in_progress","output":[]} {"status":"in_progress","output":[{}]}
        {"output":[{}]} {"output":[{"type":""}]} {"output":[{"id":"x"}]} {"output":[{"type":"message","content":[{}]}]}
        {"output":[{"type":"reasoning"}]} {"output":[{"type":"function_call"}]} {"content":[{}]}
        {"content":[{"type":"text","text":""}]} {"content":[{"type":"thinking","thinking":""}]}
        {"candidates":[{"content":{"parts":[{}]}}]} {"candidates":[{"content":{"parts":[{"text":""}]}}]}
        {"choices":[{"message":{"content":[{}]}}]} {"choices":[{"message":{"content":""}}]}
        {"choices":[{"message":{"tool_calls":[{}]}}]} {"message":{"content":[{}]}} {"message":{"content":""}}
        {"type":"response.completed","response":{"status":"in_progress","output":[]}}
        {"type":"response.completed","response":{"status":"queued","id":"resp_1"}}""".split()
    ),
    b"",
    b" \n",
    b"OK",
    b"<!doctype html><html><body>Bad gateway</body></html>",
    b"\x1f\x8b\x08\x00",
    b"{",
)
FRAMINGS = {
    "bare": b"%b",
    "frame": b"data: %b\n\n",
    "event": b"event: message\ndata: %b\n\n",
    "done": b"data: %b\n\ndata: [DONE]\n\n",
    "stop": b'data: %b\n\nevent: message_stop\ndata: {"type":"message_stop"}\n\n',
    "completed": b"event: response.completed\ndata: %b\n\n",
}


def others(protocol: str) -> list[bytes]:
    return [json.dumps(body).encode() for name, body in ANSWERS.items() if name != protocol]


def stream(client: str, provider: str, data: bytes) -> tuple[StreamTranslation, bytes]:
    translation = StreamTranslation(Exchange(find_codec(client), find_codec(provider)))
    return translation, translation.feed(data) + translation.close()


@pytest.mark.parametrize(("client", "provider"), PAIRS)
def test_a_body_that_is_not_an_answer_is_a_failure(client: str, provider: str) -> None:
    for body in (*NOT_ANSWERS, *others(provider)):
        exchange = Exchange(find_codec(client), find_codec(provider))
        try:
            translated = exchange.translate_response(body)
        except Malformed:
            continue
        assert translated.failure is not None, body


@pytest.mark.parametrize("status", ["queued", "in_progress"])
@pytest.mark.parametrize("client", NAMES)
def test_a_response_that_is_made_in_the_background_is_an_answer(client: str, status: str) -> None:
    body = {**ANSWERS["openai-responses"], "status": status, "background": True, "output": []}
    translated = Exchange(find_codec(client), find_codec("openai-responses")).translate_response(encode(body))
    assert translated.failure is None
    if client == "openai-responses":
        assert json.loads(translated.body) == body


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize(("client", "provider"), PAIRS)
def test_a_stream_that_is_not_an_answer_is_a_failure(client: str, provider: str, framing: str) -> None:
    for body in (*NOT_ANSWERS, *others(provider)):
        translation, _ = stream(client, provider, FRAMINGS[framing] % body)
        assert translation.failure is not None, body
        assert not translation.ended, body


@pytest.mark.parametrize(("provider", "key"), [("openai-chat", "created"), ("openai-responses", "created_at")])
def test_a_strange_time_does_not_make_an_answer_unreadable(provider: str, key: str) -> None:
    for time in (1.5, "1700000000", "yesterday", 1e12, -1, None, True, [], {}, 10**30):
        body = encode({**ANSWERS[provider], key: time})
        for client in NAMES:
            translated = Exchange(find_codec(client), find_codec(provider)).translate_response(body)
            assert translated.failure is None, time
            assert b"hi" in translated.body


@pytest.mark.parametrize("blank", ["", " ", "\n\n", " \t "])
def test_a_streamed_call_without_arguments_is_an_empty_object_for_every_client(blank: str) -> None:
    block = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}
    frames: tuple[dict[str, Any], ...] = (
        {"type": "message_start", "message": {"id": "msg_1", "model": "m"}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": blank}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    )
    data = b"".join(b"event: %b\ndata: %b\n\n" % (frame["type"].encode(), encode(frame)) for frame in frames)
    _, as_responses = stream("openai-responses", "anthropic", data)
    assert as_responses.count(b'"arguments":"{}"') >= 2  # the end of the arguments, and the item
    _, out = stream("openai-chat", "anthropic", data)
    pieces = re.findall(rb'"arguments":("(?:[^"\\]|\\.)*")', out)
    assert json.loads("".join(json.loads(piece) for piece in pieces)) == {}


@pytest.mark.parametrize("provider", NAMES)
def test_an_answer_is_not_a_failure(provider: str) -> None:
    for client in NAMES:
        body = json.dumps(ANSWERS[provider]).encode()
        translated = Exchange(find_codec(client), find_codec(provider)).translate_response(body)
        assert translated.failure is None
        assert b"hi" in translated.body


@pytest.mark.parametrize("client", NAMES)
def test_a_whole_chat_answer_as_the_only_chunk_is_read(client: str) -> None:
    body = json.dumps(ANSWERS["openai-chat"]).encode()
    translation, out = stream(client, "openai-chat", b"data: %b\n\ndata: [DONE]\n\n" % body)
    assert translation.failure is None
    assert b"hi" in out


# --- every written stream parses, whatever strings it carries ---------------------------------------------------------

HOSTILE = '\n \r\n \r \0 \x0b \x1c \x85 \u2028 \u2029 \n\ndata: {} \nevent: error " \\ \ufeff 🙂 \ud7ff \uffff :'
hostile = st.lists(st.sampled_from(HOSTILE.split(" ")) | st.text(max_size=3), max_size=4).map("".join)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | hostile, lambda inner: st.lists(inner) | st.dictionaries(hostile, inner)
)
spellings = st.sampled_from([None, 0, 2, "\t", "\r\n"])


def spell(value: Any, indent: Any) -> str:
    text = json.dumps(value, indent="\n" if indent == "\r\n" else indent, ensure_ascii=False)
    return text.replace("\n", "\r\n") if indent == "\r\n" else text


arguments = st.builds(spell, st.dictionaries(hostile, values, max_size=3), spellings)
calls = st.builds(Call, st.just("call_1"), hostile.map(lambda name: name or "f"), arguments | hostile)
kinds = st.sampled_from(["function", "custom", "search", "local_shell", "shell", "apply_patch", "computer", "mystery"])
parts = st.one_of(
    st.builds(Text, hostile),
    st.builds(Text, hostile, st.tuples(st.builds(Citation, hostile, hostile, hostile))),
    st.builds(Refusal, hostile),
    st.builds(Reasoning, hostile),
    calls,
    st.builds(lambda call, kind: Call("call_2", call.name, call.arguments, kind), calls, kinds),
    st.builds(
        ProviderCall, hostile, st.sampled_from(["web_search", "code_execution", "web_fetch"]), arguments | hostile
    ),
    st.builds(ProviderResult, hostile, st.just("web_search"), st.tuples(st.builds(Citation, hostile)), hostile),
)
responses = st.builds(
    lambda id, model, parts, finish, failure: Response(
        id, model, 1, (Choice(0, tuple(parts), finish),), Usage(1, 1), failure
    ),
    hostile,
    hostile,
    st.lists(parts, max_size=4),
    st.builds(Finish, st.sampled_from(["stop", "calls", "length", "refusal", "other"]), hostile, hostile, hostile),
    st.none() | st.builds(Failure, st.just("upstream"), hostile, st.just(502), hostile),
)


def parse_frames(data: bytes) -> list[tuple[str | None, bytes]]:
    """Strictly: each frame is at most one `event:` line, one `data:` line and a blank line, and nothing is left over."""
    frames = []
    if data.startswith(EVENT_STREAM_FRAMING.frame_starts):
        data = EVENT_STREAM_FRAMING.write_text(data).encode()
    *blocks, rest = re.split(rb"\r\n\r\n|\n\n|\r\r", data)
    assert rest == b""
    for block in blocks:
        lines = re.split(rb"\r\n|\n|\r", block)
        event = lines.pop(0).removeprefix(b"event: ").decode() if lines[0].startswith(b"event: ") else None
        (line,) = lines
        assert line.startswith(b"data: ")
        frames.append((event, line.removeprefix(b"data: ")))
    return frames


@pytest.mark.slow
@given(response=responses)
def test_every_written_stream_is_frames_of_json(response: Response) -> None:
    for client in NAMES:
        check_frames(client, response)


def check_frames(client: str, response: Response) -> None:
    writer = find_codec(client).make_stream_writer(Ledger("elsewhere", client), WriteContext())
    out = b"".join([writer.write(event) for event in unfold(response)]) + writer.close()
    for _, data in parse_frames(out):
        assert data == b"[DONE]" or isinstance(json.loads(data), dict)
        if client == "gemini":  # Google's SDK splits lines as Python does
            assert len(data.decode().splitlines()) == 1


@pytest.mark.parametrize("client", NAMES)
@given(kind=hostile)
def test_the_name_of_an_unknown_event_cannot_end_its_line(client: str, kind: str) -> None:
    frame = json.dumps({"type": f"x{kind}", "error": None}).encode()
    translation = StreamTranslation(Exchange(find_codec(client), find_codec("anthropic")))
    parse_frames(translation.feed(b"data: %b\n\n" % frame))


# --- halves of surrogate pairs ----------------------------------------------------------------------------------------

FIRST, SECOND = "FIRSTHALF", "SECONDHALF"
CUT: dict[str, tuple[Part, type[TextDelta | ArgumentsDelta]]] = {
    "text": (Text(""), TextDelta),
    "reasoning": (Reasoning("", "summary"), TextDelta),
    "call": (Call("call_1", "f"), ArgumentsDelta),
}


def cut_stream(provider: str, kind: str, deltas: list[str]) -> bytes:
    """A stream of the provider with these deltas, in which FIRST and SECOND are escaped halves."""
    part, delta = CUT[kind]
    events: list[Event] = [
        ResponseStart("id", "m"),
        PartStart(0, part),
        *[delta(0, text) for text in deltas],
        PartEnd(0),
        ChoiceEnd(Finish("calls" if kind == "call" else "stop")),
        UsageUpdate(Usage(1, 1)),
        ResponseEnd(),
    ]
    writer = find_codec(provider).make_stream_writer(Ledger("elsewhere", provider), WriteContext())
    out = b"".join([writer.write(event) for event in events]) + writer.close()
    framing = find_codec(provider).http.framing
    return framing.read_text(framing.write_text(out).replace(FIRST, "\\ud83d").replace(SECOND, "\\uDE42"))


def read_back(client: str, out: bytes) -> str:
    """The text or arguments of a stream, as a client of the protocol reads them."""
    reader = find_codec(client).make_stream_reader()
    response = fold([*reader.feed(out), *reader.close()])
    assert response.failure is None
    assert not reader.replaced_halves
    found = [part for part in response.choices[0].parts if isinstance(part, (Text, Reasoning, Call))]
    return "".join([part.arguments if isinstance(part, Call) else part.text for part in found])


@pytest.mark.parametrize("kind", CUT)
@pytest.mark.parametrize(("client", "provider"), PAIRS)
def test_a_character_cut_between_two_deltas_is_joined(client: str, provider: str, kind: str) -> None:
    deltas = ['{"a":"A', FIRST, f"{SECOND}B{FIRST}", f'{SECOND}C"}}']
    data = cut_stream(provider, kind, deltas)
    for size in (len(data), 1, 7, 64):
        translation = StreamTranslation(Exchange(find_codec(client), find_codec(provider)))
        out = b"".join([translation.feed(data[at : at + size]) for at in range(0, len(data), size)])
        assert read_back(client, out + translation.close()) == '{"a":"A🙂B🙂C"}'
        assert "text-repaired" not in translation.ledger.codes


LONE = {
    "first": ['{"a":"A', FIRST, 'B"}'],
    "second": ['{"a":"A', SECOND, 'B"}'],
    "order": ['{"a":"A', SECOND, FIRST, 'B"}'],
    "middle": ['{"a":"A', f"x{FIRST}x", 'B"}'],
    "last": ['{"a":"AB"}', FIRST],
}


@pytest.mark.parametrize("case", LONE)
@pytest.mark.parametrize("kind", ["text", "reasoning"])
@pytest.mark.parametrize(("client", "provider"), PAIRS)
def test_a_lone_half_is_replaced_and_reported(client: str, provider: str, kind: str, case: str) -> None:
    deltas = LONE[case]
    data = cut_stream(provider, kind, deltas)
    translation, out = stream(client, provider, data)
    assert read_back(client, out) == "".join(deltas).replace(FIRST, "\ufffd").replace(SECOND, "\ufffd")
    assert "text-repaired" in translation.ledger.codes
    folded = Exchange(find_codec(client), find_codec(provider)).translate_streamed_response(data)
    assert "text-repaired" in folded.ledger.codes
    assert folded.failure is None


def test_halves_of_different_texts_are_not_joined() -> None:
    chunks = [
        {"id": "c", "choices": [{"index": 0, "delta": {"content": "aFIRSTHALF"}}]},
        {"id": "c", "choices": [{"index": 1, "delta": {"content": "SECONDHALFb"}}]},
        {"id": "c", "choices": [{"index": at, "delta": {}, "finish_reason": "stop"} for at in (0, 1)]},
    ]
    frames = "".join([f"data: {json.dumps(chunk)}\n\n" for chunk in chunks])
    data = frames.replace(FIRST, r"\ud83d").replace(SECOND, r"\ude42").encode()
    reader = find_codec("openai-chat").make_stream_reader()
    response = fold([*reader.feed(data), *reader.close()])
    assert [choice.parts[0].text for choice in response.choices] == ["a\ufffd", "\ufffdb"]  # type: ignore[union-attr]


@pytest.mark.parametrize(("client", "provider"), PAIRS)
def test_lone_halves_in_a_whole_answer_are_replaced_and_reported(client: str, provider: str) -> None:
    body = json.dumps(ANSWERS[provider]).replace('"hi"', r'"hi\ud83d \\ud83d \ud83d\ude42 \udc00"').encode()
    translated = Exchange(find_codec(client), find_codec(provider)).translate_response(body)
    assert '"hi\ufffd \\\\ud83d 🙂 \ufffd"'.encode() in translated.body
    assert "text-repaired" in translated.ledger.codes


ARGUMENTS_WITH_HALF = r'{"a":"x\ud83d","b":"\ud83d\ude42"}'


@pytest.mark.parametrize("provider", ["openai-chat", "openai-responses"])
@pytest.mark.parametrize("client", ["anthropic", "gemini", "unified"])
def test_a_lone_half_inside_of_arguments_does_not_make_them_unreadable(client: str, provider: str) -> None:
    """Where arguments are an object, not a text, the half inside of them is replaced."""
    response = Response("id", "m", 1, (Choice(0, (Call("c", "f", ARGUMENTS_WITH_HALF),), Finish("calls")),))
    body = encode(find_codec(provider).write_response(response, Ledger("", provider), WriteContext()))
    translated = Exchange(find_codec(client), find_codec(provider)).translate_response(body)
    (call,) = find_codec(client).read_response(json.loads(translated.body)).choices[0].parts
    assert isinstance(call, Call)
    assert json.loads(call.arguments) == {"a": "x\ufffd", "b": "🙂"}
    assert translated.ledger.codes.count("text-repaired") == 1


# --- what clients insist on -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("provider", [name for name in NAMES if name != "anthropic"])
def test_anthropic_usage_always_has_the_counts_of_the_cache(provider: str) -> None:
    data = cut_stream(provider, "text", ["hi"])
    _, out = stream("anthropic", provider, data)
    starts = [json.loads(frame) for _, frame in parse_frames(out)]
    usages = [starts[0]["message"]["usage"], starts[-2]["usage"]]
    exchange = Exchange(find_codec("anthropic"), find_codec(provider))
    usages.append(exchange.translate_response(json.dumps(ANSWERS[provider]).encode()).json()["usage"])
    for usage in usages:
        assert (usage["cache_creation_input_tokens"], usage["cache_read_input_tokens"]) == (0, 0)


@pytest.mark.parametrize("provider", [name for name in NAMES if name != "openai-responses"])
def test_every_delta_of_a_responses_text_has_logprobs(provider: str) -> None:
    _, out = stream("openai-responses", provider, cut_stream(provider, "text", ["hi", " you", "!"]))
    deltas = [json.loads(frame) for event, frame in parse_frames(out) if event == "response.output_text.delta"]
    assert [(delta["delta"], delta["logprobs"]) for delta in deltas] == [("hi", []), (" you", []), ("!", [])]


@pytest.mark.parametrize("created", ["1700000000.75", "1.7e9", "1e300", "-1", "null"])
@pytest.mark.parametrize("provider", ["openai-chat", "openai-responses", "unified"])
def test_a_time_with_a_fraction_is_not_a_failure(provider: str, created: str) -> None:
    key = b"created_at" if provider == "openai-responses" else b"created"
    value = b'"%b":%b' % (key, created.encode())
    body = b"{%b,%b" % (value, json.dumps(ANSWERS[provider]).encode()[1:])
    data = cut_stream(provider, "text", ["hi"]).replace(b'"%b":0' % key, value)
    for client in NAMES:
        assert Exchange(find_codec(client), find_codec(provider)).translate_response(body).failure is None
        translation, _ = stream(client, provider, data)
        assert translation.failure is None


# --- arguments that every SDK can read --------------------------------------------------------------------------------

MALFORMED = (
    "ls -la",
    "{'a': 1}",
    '{"a": 1,}',
    '{"a": tru}',
    '{"a": NaN}',
    '{"a": "x\ny"}',
    '{"a": "x", "b": [1, {"c": "d"',
    '{"a": "x',
    '{"a": "\\x"}',
    '{"a": "\\u12',
    '{"a": {"b": [1, 2}}',
    '{"a": 1 "b": 2}',
    '{"a"',
    '{"a": ',
    '{"a": -}',
    '{"a": {"b": 1,',
    '{"_raw": 1, oops}',
    "[1, 2]",
    '"text"',
    "<tool_call>",
    "{",
    "{]",
    "}",
)
READABLE = (
    '{"a": [1, -2.5e+3, true, false, null, "x"], "b": {"c": {}, "d": []}}',
    ' \n\t{"a": 1}\r\n ',
    '\n\n{\n  "a": "\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\ud83d\\ude42é🙂",\n  "b": 0\n}\n',
    '{"a":"","":1}',
    "{}",
    " { } ",
)
PARSING_CLIENTS = [name for name in NAMES if find_codec(name).constraints.arguments_must_parse]
PARSING_PAIRS = [
    (client, provider)
    for client in PARSING_CLIENTS
    for provider in ("openai-chat", "openai-responses")
    if client != provider
]


def streamed_call(client: str, provider: str, text: str, size: int, finish: str = "calls") -> tuple[str, Ledger]:
    """The arguments of a call as the client gets them, if the provider streams them in pieces of this size."""
    writer = find_codec(provider).make_stream_writer(Ledger("elsewhere", provider), WriteContext())
    events: list[Event] = [
        ResponseStart("id", "m"),
        PartStart(0, Call("call_1", "f")),
        *[ArgumentsDelta(0, text[at : at + size]) for at in range(0, len(text), size)],
        PartEnd(0),
        ChoiceEnd(Finish(finish)),  # type: ignore[arg-type]
        ResponseEnd(),
    ]
    data = b"".join([writer.write(event) for event in events]) + writer.close()
    translation, out = stream(client, provider, data)
    assert translation.failure is None
    deltas, ends = "", []
    for _, frame in parse_frames(out):
        event = json.loads(frame)
        kind = event.get("type")
        if "toolUse" in event.get("delta", {}):
            deltas += event["delta"]["toolUse"]["input"]
        elif kind == "content_block_delta":
            deltas += event["delta"]["partial_json"]
            jiter.from_json(deltas.encode(), partial_mode=True)  # as Anthropic's SDK does after every delta
        elif kind == "response.function_call_arguments.delta":
            deltas += event["delta"]
        elif kind == "response.function_call_arguments.done":
            ends.append(event["arguments"])
        elif kind == "response.output_item.done":
            ends.append(event["item"]["arguments"])
    assert all(end == deltas for end in ends)
    return deltas, translation.ledger


def whole_call(client: str, provider: str, text: str) -> tuple[Any, Ledger]:
    response = Response("id", "m", 1, (Choice(0, (Call("call_1", "f", text),), Finish("calls")),))
    body = encode(find_codec(provider).write_response(response, Ledger("", provider), WriteContext()))
    translated = Exchange(find_codec(client), find_codec(provider)).translate_response(body)
    (call,) = find_codec(client).read_response(json.loads(translated.body)).choices[0].parts
    assert isinstance(call, Call)
    return json.loads(call.arguments), translated.ledger


@pytest.mark.parametrize("text", MALFORMED)
@pytest.mark.parametrize(("client", "provider"), PARSING_PAIRS)
def test_malformed_arguments_reach_clients_as_an_object(client: str, provider: str, text: str) -> None:
    whole, ledger = whole_call(client, provider, text)
    assert whole == {"_raw": text}
    assert "arguments-wrapped" in ledger.codes
    for size in (1, 2, 3, 5, 1000):
        sent, ledger = streamed_call(client, provider, text, size)
        found = json.loads(sent)
        assert found.pop("_raw") == text
        assert set(found.values()) <= {None}  # no tool runs with half of its arguments
        assert "arguments-wrapped" in ledger.codes


@pytest.mark.parametrize("text", READABLE)
@pytest.mark.parametrize(("client", "provider"), PARSING_PAIRS)
def test_readable_arguments_stay_as_they_are(client: str, provider: str, text: str) -> None:
    whole, ledger = whole_call(client, provider, text)
    assert whole == json.loads(text)
    for size in (1, 2, 3, 5, 7, 1000):
        sent, ledger = streamed_call(client, provider, text, size)
        assert sent == text.strip()
        assert not {"arguments-wrapped", "arguments-dropped", "text-repaired"} & set(ledger.codes)


@pytest.mark.parametrize("text", ['{"a": 1}}', '{"a": 1}{"b": 2}', '{"a": 1} and more', '{"a": 1}\n```'])
@pytest.mark.parametrize("client", PARSING_CLIENTS)
def test_text_after_the_arguments_is_left_out_and_reported(client: str, text: str) -> None:
    found, ledger = whole_call(client, "openai-chat", text)
    assert found == {"a": 1}
    assert "arguments-dropped" in ledger.codes
    for size in (1, 3, 8, 1000):
        sent, ledger = streamed_call(client, "openai-chat", text, size)
        assert json.loads(sent) == {"a": 1}
        assert "arguments-dropped" in ledger.codes


@pytest.mark.parametrize("client", PARSING_CLIENTS)
def test_arguments_that_were_cut_off_stay_cut_off(client: str) -> None:
    """The output limit was met: the finish reason says so, as it does at the vendor's own API."""
    sent, _ = streamed_call(client, "openai-chat", '{"a": "some text", "b": 12', 4, "length")
    assert sent == '{"a": "some text", "b": 12'


@pytest.mark.parametrize("client", PARSING_CLIENTS)
def test_lone_halves_in_streamed_arguments_are_replaced(client: str) -> None:
    text = r'{"a\ud83d":"x\ud83d","b":"\ud83d\ude42\ude42","c":"\ud83d\ud83d\ude42\n"}'
    for size in (1, 2, 3, 5, 7, 11, 1000):
        sent, ledger = streamed_call(client, "openai-chat", text, size)
        assert json.loads(sent) == {"a\ufffd": "x\ufffd", "b": "🙂\ufffd", "c": "\ufffd🙂\n"}
        assert "text-repaired" in ledger.codes


@pytest.mark.slow
@given(value=st.dictionaries(hostile, values, max_size=3), indent=spellings, ascii=st.booleans(), data=st.data())
def test_a_guard_passes_every_object_and_completes_every_prefix(
    value: dict[str, Any], indent: Any, ascii: bool, data: st.DataObject
) -> None:
    text = json.dumps(value, ensure_ascii=ascii) if ascii else spell(value, indent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    guard = ArgumentGuard()
    assert "".join([guard.add(piece) for piece in pieces]) == text
    assert not guard.is_broken
    assert not guard.has_repairs
    assert not guard.has_trailing_text
    assert not guard.unsent_text
    stop = data.draw(st.integers(0, len(text) - 1))
    guard = ArgumentGuard()
    sent = "".join([guard.add(piece) for piece in (text[:stop], "\x01", text[stop:])])
    completed = json.loads(sent + guard.complete("raw"))
    assert completed.pop("_raw") == "raw"
    assert set(completed.values()) <= {None}


@pytest.mark.parametrize("target", NAMES)
def test_what_claude_code_sends_back_after_unreadable_arguments_is_translated(target: str) -> None:
    call = {"type": "tool_use", "id": "t", "name": "f", "input": {"__unparsedToolInput": '{"a": oops'}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": "InputValidationError", "is_error": True}
    body = {
        "model": "m",
        "max_tokens": 9,
        "messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
        ],
        "tools": [{"name": "f", "input_schema": {"type": "object", "properties": {"a": {"type": "string"}}}}],
    }
    translated = Exchange(find_codec("anthropic"), find_codec(target)).translate_request(json.dumps(body))
    assert find_violations(find_codec(target).name, json.loads(translated.body)) == []
    assert b"oops" in translated.body


@pytest.mark.parametrize("name", NAMES)
def test_a_peek_finds_the_tools_that_an_answer_calls(name: str) -> None:
    """The log names them for answers that pass through, which are not read."""
    codec = find_codec(name)
    parts = (Text("first"), Call("call_1", "get_weather", "{}"), Call("call_2", "search", '{"name": "other"}'))
    response = Response("id", "m", 1, (Choice(0, parts, Finish("calls")),))
    body = encode(codec.write_response(response, Ledger("", name), WriteContext()))
    peek = codec.peek_response(body)
    found = codec.read_response(json.loads(body)) if peek is None else peek
    assert found.called_tools == ("get_weather", "search")


@needs_corpus
def test_a_peek_finds_the_tools_that_recorded_answers_call() -> None:
    bodies = [(find_codec(one.protocol), one.response) for one in corpus() if isinstance(one.response, dict)]
    peeked = [(codec, body, codec.peek_response(encode(body))) for codec, body in bodies]
    called = [(peek.called_tools, codec.read_response(body).called_tools) for codec, body, peek in peeked if peek]
    assert any(peeked for peeked, _ in called)
    assert [pair for pair in called if pair[0] != pair[1]] == []


@pytest.mark.parametrize("calls", [{}, [1], [{"function": "f"}], "f"])
def test_an_answer_with_unusual_calls_is_still_peeked_at(calls: object) -> None:
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    body = {"id": "c", "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    peek = find_codec("openai-chat").peek_response(encode(body))
    assert peek is not None
    assert (peek.model, peek.called_tools) == ("m", ())
