"""Streams that servers write in another way than their protocol has: read as they are meant, reported, and mended for
clients of the same protocol. Where it would be a guess, they fail."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolwire.core.event_stream import write_event
from toolwire.core.events import Event, Fold, ResponseEnd, ResponseFailed
from toolwire.core.ir import Call, Refusal, Text, Tool
from toolwire.gateway.exchange.passthrough_stream import PassthroughStream
from toolwire.protocols import find_codec
from toolwire.translation.exchange import Exchange
from toolwire.translation.options import Options
from toolwire.translation.streaming import StreamTranslation
from toolwire_conformance.peers import PEERS
from toolwire_conformance.peers.peer import read_frames

PROTOCOLS = ("openai-chat", "openai-responses", "anthropic", "gemini", "bedrock-converse")


def _write_events(*events: dict[str, Any]) -> bytes:
    return b"".join(b"event: %b\ndata: %b\n\n" % (one["type"].encode(), json.dumps(one).encode()) for one in events)


def _chat(*deltas: dict[str, Any]) -> bytes:
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    chunks = [head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append(head | {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    return b"".join(b"data: %b\n\n" % json.dumps(one).encode() for one in chunks) + b"data: [DONE]\n\n"


def _piece(index: int | None = 0, id: str = "", name: str = "", arguments: str | None = None) -> dict[str, Any]:
    function = {"name": name} if name else {}
    function |= {} if arguments is None else {"arguments": arguments}
    call: dict[str, Any] = {"function": function} | ({"id": id, "type": "function"} if id else {})
    return {"tool_calls": [call | ({} if index is None else {"index": index})]}


MESSAGE: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
START = {"type": "message_start", "message": MESSAGE | {"usage": {"input_tokens": 3, "output_tokens": 1}}}
AGAIN = {"type": "message_start", "message": MESSAGE | {"usage": {"input_tokens": 7, "output_tokens": 1}}}
BLOCK = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
WORD = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}}
STOP = {"type": "content_block_stop", "index": 0}
END = (
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}},
    {"type": "message_stop"},
)


def _responses(*events: dict[str, Any]) -> bytes:
    response = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "output": []}
    done = {"type": "response.completed", "response": response | {"status": "completed"}}
    created = {"type": "response.created", "response": response | {"status": "in_progress"}}
    return _write_events(*({"sequence_number": n, **one} for n, one in enumerate((created, *events, done))))


def _call_item(number: int, arguments: str = "") -> dict[str, Any]:
    ids = {"id": f"fc_{number}", "call_id": f"call_{number}"}
    return {"type": "function_call", **ids, "name": f"f{number}", "arguments": arguments, "status": "completed"}


def _make_item_event(item: dict[str, Any], index: int = 0) -> dict[str, Any]:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def _done(item: dict[str, Any], index: int = 0) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def _arguments(text: str, number: int | None = None, index: int = 0) -> dict[str, Any]:
    id = {} if number is None else {"item_id": f"fc_{number}"}
    return {"type": "response.function_call_arguments.delta", **id, "output_index": index, "delta": text}


def _make_text_events(at: int, text: str = "Hi") -> tuple[dict[str, Any], ...]:
    """A message whose only part has this `content_index`."""
    part = {"type": "output_text", "text": text, "annotations": []}
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}
    where = {"item_id": "msg_1", "output_index": 0, "content_index": at}
    return (
        _make_item_event(item | {"content": []}),
        {"type": "response.content_part.added", **where, "part": part | {"text": ""}},
        {"type": "response.output_text.delta", **where, "delta": text[:1]},
        {"type": "response.output_text.delta", **where, "delta": text[1:]},
        {"type": "response.output_text.done", **where, "text": text},
        {"type": "response.content_part.done", **where, "part": part},
        _done(item),
    )


ODD: dict[str, tuple[str, bytes, list[tuple[str, str]]]] = {
    "a second start": ("anthropic", _write_events(START, AGAIN, BLOCK, WORD, STOP, *END), [("", "Hi")]),
    "a second start in a block": ("anthropic", _write_events(START, BLOCK, AGAIN, WORD, STOP, *END), [("", "Hi")]),
    "items that share an index, interleaved": (
        "openai-responses",
        _responses(
            _make_item_event(_call_item(1)),
            _make_item_event(_call_item(2)),
            _arguments('{"a":', 1),
            _arguments("{}", 2),
            _arguments("1}", 1),
            _done(_call_item(1, '{"a":1}')),
            _done(_call_item(2, "{}")),
        ),
        [("f1", '{"a":1}'), ("f2", "{}")],
    ),
    "items that share an index, in turn": (
        "openai-responses",
        _responses(
            _make_item_event(_call_item(1)),
            _arguments('{"a":1}'),
            _done(_call_item(1, '{"a":1}')),
            _make_item_event(_call_item(2)),
            _arguments('{"b":2}'),
            _done(_call_item(2, '{"b":2}')),
            *(one | {"output_index": 1} for one in (_make_item_event(_call_item(3)), _done(_call_item(3, "{}")))),
        ),
        [("f1", '{"a":1}'), ("f2", '{"b":2}'), ("f3", "{}")],
    ),
    "an item that is finished at another index": (
        "openai-responses",
        _responses(_make_item_event(_call_item(1)), _arguments("{}", 1), _done(_call_item(1, "{}"), 3)),
        [("f1", "{}")],
    ),
    "parts that begin at 1": ("openai-responses", _responses(*_make_text_events(1)), [("", "Hi")]),
    "parts that begin at 4": ("openai-responses", _responses(*_make_text_events(4)), [("", "Hi")]),
    "a name in pieces": (
        "openai-chat",
        _chat(_piece(id="c", name="get_"), _piece(name="wea"), _piece(name="ther"), _piece(arguments='{"a":1}')),
        [("get_weather", '{"a":1}')],
    ),
    "a name that grows": (
        "openai-chat",
        _chat(_piece(id="c", name="get_", arguments=""), _piece(name="get_weather"), _piece(arguments="{}")),
        [("get_weather", "{}")],
    ),
    "one call without its list": (
        "openai-chat",
        _chat({"tool_calls": _piece(id="c", name="f", arguments="{}")["tool_calls"][0]}),
        [("f", "{}")],
    ),
    "numbers of calls as text": (
        "openai-chat",
        _chat(
            {"tool_calls": [_piece(id="c", name="f", arguments="{}")["tool_calls"][0] | {"index": "0"}]},
            {"tool_calls": [_piece(id="d", name="g", arguments='{"b":2}')["tool_calls"][0] | {"index": "1"}]},
        ),
        [("f", "{}"), ("g", '{"b":2}')],
    ),
    "arguments that are an object": (
        "anthropic",
        _write_events(
            START,
            BLOCK | {"content_block": {"type": "tool_use", "id": "t", "name": "f", "input": {}}},
            WORD | {"delta": {"type": "input_json_delta", "partial_json": {"a": 1}}},
            STOP,
            *END,
        ),
        [("f", '{"a":1}')],
    ),
    "a text as content": ("openai-chat", _chat({"content": {"type": "text", "text": "Hi"}}), [("", "Hi")]),
    "a call in the content": (
        "openai-chat",
        _chat(
            {
                "content": [
                    {"type": "text", "text": "Hi"},
                    {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}},
                ]
            }
        ),
        [("f", '{"a":1}'), ("", "Hi")],
    ),
    "a name in pieces without arguments": (
        "openai-chat",
        _chat(_piece(id="c", name="get_"), _piece(name="time"), _piece(1, id="d", name="f", arguments="{}")),
        [("get_time", ""), ("f", "{}")],
    ),
    "a name in pieces behind a call without arguments": (
        "openai-chat",
        _chat(
            _piece(id="c", name="ping", arguments=""),
            _piece(1, id="d", name="get_", arguments=""),
            _piece(1, name="time"),
            _piece(1, arguments="{}"),
        ),
        [("ping", ""), ("get_time", "{}")],
    ),
    "a name in pieces around a text": (
        "openai-chat",
        _chat(
            *({"content": "H"}, _piece(id="c", name="get_", arguments="")),
            *({"content": "i"}, _piece(name="time"), _piece(arguments="{}")),
        ),
        [("get_time", "{}"), ("", "Hi")],
    ),
}
"""A protocol, a stream, and what it means: the name and the arguments of each call, or "" and a text."""

CALL_START = write_event(
    "contentBlockStart", b'{"contentBlockIndex":0,"start":{"toolUse":{"toolUseId":"t1","name":"delete"}}}'
)


def _call_block(number: int, at: int | None, text: str) -> list[dict[str, Any]]:
    """A call of Messages, in a block of this index."""
    where = {} if at is None else {"index": at}
    block = {"type": "tool_use", "id": f"toolu_{number}", "name": f"f{number}", "input": {}}
    delta = {"type": "input_json_delta", "partial_json": text}
    return [
        {"type": "content_block_start", **where, "content_block": block},
        {"type": "content_block_delta", **where, "delta": delta},
        {"type": "content_block_stop", **where},
    ]


FIRST, SECOND = _call_block(1, 1, '{"a":1}'), _call_block(2, 0, "{}")
ODD["blocks that start in another order"] = (
    "anthropic",
    _write_events(START, *[event for pair in zip(FIRST, SECOND, strict=True) for event in pair], *END),
    [("f1", '{"a":1}'), ("f2", "{}")],
)
ODD["blocks without numbers"] = (
    "anthropic",
    _write_events(START, *_call_block(1, None, '{"a":1}'), *_call_block(2, None, "{}"), *END),
    [("f1", '{"a":1}'), ("f2", "{}")],
)
ODD["blocks that begin at 1"] = (
    "anthropic",
    _write_events(START, *FIRST, *_call_block(2, 2, "{}"), *END),
    [("f1", '{"a":1}'), ("f2", "{}")],
)


def _converse(*events: tuple[str, dict[str, Any]]) -> bytes:
    all_events = (("messageStart", {"role": "assistant"}), *events, ("messageStop", {"stopReason": "tool_use"}))
    return b"".join(write_event(name, json.dumps(node).encode()) for name, node in all_events)


def _converse_call(number: int, at: int, text: str) -> list[tuple[str, dict[str, Any]]]:
    start = {"toolUse": {"toolUseId": f"t{number}", "name": f"f{number}"}}
    return [
        ("contentBlockStart", {"contentBlockIndex": at, "start": start}),
        ("contentBlockDelta", {"contentBlockIndex": at, "delta": {"toolUse": {"input": text}}}),
        ("contentBlockStop", {"contentBlockIndex": at}),
    ]


ODD["a text and a call in one block"] = (
    "bedrock-converse",
    _converse(
        ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "Hi"}}), *_converse_call(1, 0, '{"a":1}')
    ),
    [("f1", '{"a":1}'), ("", "Hi")],
)
AMBIGUOUS = {
    "a piece of a call that says nothing": (
        "bedrock-converse",
        write_event("messageStart", b'{"role":"assistant"}')
        + CALL_START
        + write_event("contentBlockDelta", b'{"contentBlockIndex":0,"delta":{"toolUse":{}}}'),
    ),
    "a piece of a block that says nothing": (
        "bedrock-converse",
        write_event("messageStart", b'{"role":"assistant"}')
        + CALL_START
        + write_event("contentBlockDelta", b'{"contentBlockIndex":0,"delta":null}'),
    ),
    "a call that starts twice": (
        "bedrock-converse",
        write_event("messageStart", b'{"role":"assistant"}') + CALL_START * 2,
    ),
    "another start": ("anthropic", _write_events(START, {**AGAIN, "message": {**MESSAGE, "id": "msg_2"}}, BLOCK, *END)),
    "starts without ids": (
        "anthropic",
        _write_events(*[{**START, "message": {**MESSAGE, "id": None}}] * 2, BLOCK, *END),
    ),
    "an end inside of a call": ("anthropic", _write_events(START, *_call_block(1, 0, '{"a":1,"b')[:2], END[1])),
    "an end inside of a call, with a reason": (
        "anthropic",
        _write_events(
            START, *_call_block(1, 0, '{"a":1')[:2], {**END[0], "delta": {"stop_reason": "tool_use"}}, END[1]
        ),
    ),
    "arguments without a start": (
        "anthropic",
        _write_events(START, WORD | {"delta": {"type": "input_json_delta", "partial_json": "{}"}}, STOP, *END),
    ),
    "a delta for one of two items": (
        "openai-responses",
        _responses(_make_item_event(_call_item(1)), _make_item_event(_call_item(2)), _arguments("{}")),
    ),
    "another name beside arguments": (
        "openai-chat",
        _chat(_piece(id="c", name="get_"), _piece(name="weather", arguments="{}")),
    ),
    "another name after arguments": (
        "openai-chat",
        _chat(_piece(id="c", name="f", arguments='{"a"'), _piece(name="g"), _piece(arguments=":1}")),
    ),
    "a name for no call": ("openai-chat", _chat(_piece(None, id="c", name="get_"), _piece(None, name="weather"))),
}


def _events(protocol: str, data: bytes, size: int = 0) -> list[Event]:
    reader = find_codec(protocol).make_stream_reader()
    pieces = [data[at : at + size] for at in range(0, len(data), size)] if size else [data]
    return [event for piece in pieces for event in reader.feed(piece)] + reader.close()


def _meaning(events: list[Event]) -> list[tuple[str, str]]:
    assert isinstance(events[-1], ResponseEnd), events[-1]
    fold = Fold()
    for event in events:
        fold.add_event(event)
    parts = fold.response.choices[0].parts
    calls = [(part.name, part.arguments) for part in parts if isinstance(part, Call)]
    return calls + [("", part.text) for part in parts if isinstance(part, Text)]


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("size", [0, 1, 7, 64])
def test_an_odd_stream_is_read_as_it_is_meant_however_it_is_cut(name: str, size: int) -> None:
    protocol, data, meaning = ODD[name]
    events = _events(protocol, data, size)
    assert _meaning(events) == meaning
    assert events == _events(protocol, data)


@pytest.mark.parametrize("target", PROTOCOLS)
@pytest.mark.parametrize("name", ODD)
def test_an_odd_stream_reaches_every_client_and_is_reported(name: str, target: str) -> None:
    protocol, data, meaning = ODD[name]
    stream = StreamTranslation(Exchange(find_codec(target), find_codec(protocol), Options()))
    out = stream.feed(data) + stream.close()
    assert "shape-repaired" in [loss.code for loss in stream.losses]
    expected = [(name, arguments or "{}") for name, arguments in meaning]
    assert [(name, text or "{}") for name, text in _meaning(_events(target, out))] == expected


@pytest.mark.parametrize("size", [0, 1, 50])
@pytest.mark.parametrize("name", ODD)
def test_a_passing_stream_is_mended_for_clients_of_the_protocol(name: str, size: int) -> None:
    protocol, data, meaning = ODD[name]
    stream = PassthroughStream(find_codec(protocol))
    pieces = [data[at : at + size] for at in range(0, len(data), size)] if size else [data]
    out = b"".join(map(stream.feed, pieces)) + stream.close()
    assert stream.ledger is not None
    assert [loss.code for loss in stream.ledger.losses] == ["shape-repaired"]
    events = _events(protocol, out)
    assert _meaning(events) == meaning
    assert isinstance(events[-1], ResponseEnd)
    # SDKs of Chat join the pieces of a name by themselves; all else must be as the protocol has it.
    assert "a name " in name or not [field for field in events[-1].unknown_fields if field.what]


UNKNOWN_BLOCKS: dict[str, tuple[tuple[str, dict[str, Any]], ...]] = {
    "a delta that nobody knows": (
        *[("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"audio": {"bytes": "AA=="}}})] * 2,
        ("contentBlockStop", {"contentBlockIndex": 0}),
    ),
    "an empty delta": (
        ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {}}),
        ("contentBlockStop", {"contentBlockIndex": 0}),
    ),
    "a delta that nobody knows, and a text": (
        ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"audio": {"bytes": "AA=="}}}),
        ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "Hi"}}),
        ("contentBlockStop", {"contentBlockIndex": 0}),
    ),
    "nothing but an end": (("contentBlockStop", {"contentBlockIndex": 0}),),
}


@pytest.mark.parametrize("what", UNKNOWN_BLOCKS)
def test_a_block_behind_one_that_cannot_be_read_keeps_its_number(what: str) -> None:
    data = _converse(*UNKNOWN_BLOCKS[what], *_converse_call(1, 1, '{"a":1}'), *_converse_call(2, 2, "{}"))
    data += write_event("metadata", b"{}")
    stream = PassthroughStream(find_codec("bedrock-converse"))
    assert stream.feed(data) + stream.close() == data
    assert stream.ledger is None


def test_items_of_one_id_are_told_apart_by_their_types() -> None:
    """The events of the message come without `output_item.added`, at its own place."""
    thought = {"type": "reasoning", "id": "x_1", "summary": []}
    word = {
        "type": "response.output_text.delta",
        "item_id": "x_1",
        "output_index": 1,
        "content_index": 0,
        "delta": "Hi",
    }
    data = _responses(_make_item_event(thought), _done(thought), word)
    events = _events("openai-responses", data)
    assert isinstance(events[-1], ResponseEnd)
    assert ("", "Hi") in _meaning(events)


def test_blank_arguments_are_no_half_of_a_call() -> None:
    """Without `content_block_stop`, which some servers leave out: a blank text is `{}`, as where the block ends."""
    data = _write_events(START, *_call_block(1, 0, " ")[:2], {**END[0], "delta": {"stop_reason": "tool_use"}}, END[1])
    events = _events("anthropic", data)
    assert isinstance(events[-1], ResponseEnd)
    assert [(name, json.loads(text)) for name, text in _meaning(events)] == [("f1", {})]


@pytest.mark.parametrize(("reason", "sent"), [("stop", "tool_calls"), ("length", "length")])
def test_a_call_that_was_moved_is_announced_at_the_end(reason: str, sent: str) -> None:
    data = ODD["a call in the content"][1].replace(b'"tool_calls"', json.dumps(reason).encode())
    stream = PassthroughStream(find_codec("openai-chat"))
    out = stream.feed(data) + stream.close()
    chunks = [json.loads(line[6:]) for line in out.splitlines() if line.startswith(b"data: {")]
    reasons = [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"]]
    assert [one for one in reasons if one] == [sent]


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_what_would_be_a_guess_is_a_failure(name: str) -> None:
    protocol, data = AMBIGUOUS[name]
    for size in (0, 1):
        last = _events(protocol, data, size)[-1]
        assert isinstance(last, ResponseFailed)
        assert last.failure.status == 502
    stream = PassthroughStream(find_codec(protocol))
    stream.feed(data)
    assert stream.failure is not None


DETAILS = {"type": "refusal", "category": "cyber", "explanation": "This may help attackers."}


@pytest.mark.parametrize("text", ["", "Well"])
@pytest.mark.parametrize("target", ["openai-chat", "openai-responses"])
def test_the_explanation_of_a_refusal_reaches_clients_of_openai(target: str, text: str) -> None:
    codecs = find_codec(target), find_codec("anthropic")
    content = [{"type": "text", "text": text}] if text else []
    ended = {"stop_reason": "refusal", "stop_sequence": None, "stop_details": DETAILS}
    whole = Exchange(*codecs, Options()).translate_response(
        MESSAGE | {"usage": {"input_tokens": 3, "output_tokens": 1}} | ended | {"content": content}
    )
    word = {**WORD, "delta": {"type": "text_delta", "text": text}}
    data = _write_events(START, *((BLOCK, word, STOP) if text else ()), {**END[0], "delta": ended}, END[1])
    stream = StreamTranslation(Exchange(*codecs, Options()))
    out = stream.feed(data) + stream.close()
    expected = [("", text)] * bool(text) + [("refusal", "cyber: This may help attackers.")]
    fold = Fold()
    for event in _events(target, out):
        fold.add_event(event)
    for response in (fold.response, codecs[0].read_response(whole.json())):
        parts = response.choices[0].parts
        assert [("refusal" if isinstance(part, Refusal) else "", part.text) for part in parts] == expected  # type: ignore[union-attr]
    assert "no-counterpart" not in [loss.code for loss in (*stream.losses, *whole.losses)]


@pytest.mark.parametrize("target", ["openai-chat", "openai-responses", "anthropic"])
@pytest.mark.parametrize("has_metadata_first", [False, True])
def test_citations_that_come_with_the_signature_of_a_text_are_kept(target: str, has_metadata_first: bool) -> None:
    """Gemini 3 ends a text with an empty one that has its signature, and the grounding comes with that."""
    found = {
        "webSearchQueries": ["who won"],
        "groundingChunks": [{"web": {"uri": "https://a.example", "title": "a.example"}}],
        "groundingSupports": [{"segment": {"endIndex": 9, "text": "Spain won"}, "groundingChunkIndices": [0]}],
    }
    last = {"parts": [{"text": "", "thoughtSignature": "c2ln"}], "role": "model"}
    candidates: list[dict[str, Any]] = [
        {"content": {"parts": [{"text": "Spain "}], "role": "model"}},
        {"content": {"parts": [{"text": "won it."}], "role": "model"}},
        {"content": last, "finishReason": "STOP", "groundingMetadata": {"searchEntryPoint": {"renderedContent": "x"}}},
    ]
    candidates[1 if has_metadata_first else 2].setdefault("groundingMetadata", {}).update(found)
    data = b"".join(
        b"data: %b\n\n" % json.dumps({"candidates": [one], "responseId": "r"}).encode() for one in candidates
    )
    stream = StreamTranslation(Exchange(find_codec(target), find_codec("gemini"), Options()))
    out = stream.feed(data) + stream.close()
    fold = Fold()
    for event in _events(target, out):
        fold.add_event(event)
    texts = [part for part in fold.response.choices[0].parts if isinstance(part, Text) and part.text]
    assert [(text.text, [(one.url, one.title) for one in text.citations]) for text in texts] == [
        ("Spain won it.", [("https://a.example", "a.example")])
    ]


REPAIRED_REQUESTS: dict[str, dict[str, Any]] = {
    "openai-chat": {
        "messages": [{"role": "user", "content": "Go"}],
        "tools": [{"type": "function", "function": {"name": name}} for name in ("f1", "f2")],
    },
    "anthropic": {
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "Go"}],
        "tools": [{"name": name, "input_schema": {"type": "object"}} for name in ("f1", "f2")],
    },
    "bedrock-converse": {
        "messages": [{"role": "user", "content": [{"text": "Go"}]}],
        "toolConfig": {
            "tools": [
                {"toolSpec": {"name": name, "inputSchema": {"json": {"type": "object"}}}} for name in ("f1", "f2")
            ]
        },
    },
}


@pytest.mark.parametrize("protocol", ["anthropic", "bedrock-converse"])
def test_a_repair_continues_in_the_blocks_that_have_passed(protocol: str) -> None:
    """The first block passes as it came, with the number that it has. What is repaired goes on in the same blocks."""
    bad, good = '{"a": 1,}', '{"b": 2}'
    data = (
        _write_events(START, *_call_block(1, 1, bad), *_call_block(2, 2, good), *END)
        if protocol == "anthropic"
        else _converse(*_converse_call(1, 1, bad), *_converse_call(2, 2, good))
    )
    exchange = Exchange(find_codec(protocol), find_codec(protocol), Options(repair_calls=True, stream=True, model="m"))
    exchange.translate_request(json.dumps(REPAIRED_REQUESTS[protocol]).encode())
    stream = StreamTranslation(exchange)
    out = b"".join(stream.feed(frame) for frame in find_codec(protocol).http.framing.split_frames(data))
    frames = [frame.data for frame in read_frames(find_codec(protocol).http.framing.write_text(out + stream.close()))]
    texts: dict[int, str] = {}
    for node in frames:
        delta = node.get("delta") or {}
        text = delta.get("partial_json") or (delta.get("toolUse") or {}).get("input")
        if text:
            at = node.get("index", node.get("contentBlockIndex"))
            texts[at] = texts.get(at, "") + text
    assert {at: json.loads(text) for at, text in texts.items()} == {0: {"a": 1}, 1: {"b": 2}}
    starts = [node for node in frames if "content_block" in node or "start" in node]
    assert [node.get("index", node.get("contentBlockIndex")) for node in starts] == [0, 1]


INTERLEAVED = {
    "openai-chat": _chat(
        _piece(0, "c1", "f1", ""),
        _piece(1, "c2", "f2", ""),
        _piece(1, arguments='{"b":'),
        _piece(0, arguments='{"a":1,'),
        _piece(1, arguments="2}"),
        _piece(0, arguments="}"),
    ),
    "anthropic": _write_events(
        START,
        *[
            event
            for pair in zip(_call_block(1, 0, '{"a":1,}'), _call_block(2, 1, '{"b":2}'), strict=True)
            for event in pair
        ],
        *END,
    ),
}


@pytest.mark.parametrize("protocol", INTERLEAVED)
def test_calls_between_each_other_are_repaired_as_two(protocol: str) -> None:
    """What the client has of the second call is not written once more when the first one is repaired."""
    codec = find_codec(protocol)
    exchange = Exchange(codec, codec, Options(repair_calls=True, stream=True, model="m"))
    exchange.translate_request(json.dumps(REPAIRED_REQUESTS[protocol]).encode())
    stream = StreamTranslation(exchange)
    out = b"".join(map(stream.feed, codec.http.framing.split_frames(INTERLEAVED[protocol]))) + stream.close()
    answer: Any = PEERS[protocol].fold_stream([frame for frame in read_frames(out.decode()) if frame.text]).body
    if protocol == "anthropic":
        calls = [(block["name"], block["input"]) for block in answer["content"]]
    else:
        functions = [call["function"] for call in answer["choices"][0]["message"]["tool_calls"]]
        calls = [(one["name"], json.loads(one["arguments"])) for one in functions]
    assert sorted(calls) == [("f1", {"a": 1}), ("f2", {"b": 2})]


@pytest.mark.parametrize("arguments", ['{"a":1}', '{"a":1,}'])
def test_parts_that_a_repair_has_joined_do_not_disturb_those_behind_them(arguments: str) -> None:
    """Two texts become one, so the call is another part than it was; its pieces are recognised by their bytes."""
    words = [{**WORD, "index": at} for at in (0, 1)]
    blocks = [event for at in (0, 1) for event in ({**BLOCK, "index": at}, words[at], {**STOP, "index": at})]
    start, delta, stop = _call_block(1, 2, "")
    pieces = [{**delta, "delta": {**delta["delta"], "partial_json": piece}} for piece in arguments]
    data = _write_events(START, *blocks, start, *pieces, stop, *END)
    codec = find_codec("anthropic")
    options = Options(repair_calls=True, tool_format="auto", stream=True, model="m")
    exchange = Exchange(codec, codec, options)
    exchange.translate_request(json.dumps(REPAIRED_REQUESTS["anthropic"]).encode())
    stream = StreamTranslation(exchange)
    out = b"".join(map(stream.feed, codec.http.framing.split_frames(data))) + stream.close()
    assert stream.failure is None
    answer: Any = PEERS["anthropic"].fold_stream([frame for frame in read_frames(out.decode()) if frame.text]).body
    assert [block["input"] for block in answer["content"] if block["type"] == "tool_use"] == [{"a": 1}]
    assert "".join(block["text"] for block in answer["content"] if block["type"] == "text") == "HiHi"


def test_calls_of_several_choices_pass_beside_each_other() -> None:
    """A choice does not wait for the calls of another: a client gets the frames with all that only Chat knows."""
    pieces = [(0, _piece(0, "c1", "f1", '{"a":')), (1, _piece(0, "c2", "f2", "{")), (0, _piece(0, arguments="1}"))]
    pieces += [(1, _piece(0, arguments="}"))]
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "service_tier": "default"}
    chunks = [head | {"choices": [{"index": at, "delta": delta, "finish_reason": None}]} for at, delta in pieces]
    chunks += [head | {"choices": [{"index": at, "delta": {}, "finish_reason": "tool_calls"}]} for at in (0, 1)]
    data = b"".join(b"data: %b\n\n" % json.dumps(one).encode() for one in chunks) + b"data: [DONE]\n\n"
    codec = find_codec("openai-chat")
    exchange = Exchange(codec, codec, Options(repair_calls=True, stream=True, model="m"))
    exchange.translate_request(json.dumps(REPAIRED_REQUESTS["openai-chat"] | {"n": 2}).encode())
    stream = StreamTranslation(exchange)
    out = b"".join(map(stream.feed, codec.http.framing.split_frames(data))) + stream.close()
    assert [frame.data for frame in read_frames(out.decode())] == [frame.data for frame in read_frames(data.decode())]


BESIDE_EMPTY = {
    "a call": (_piece(0, "c1", "f1", "{}"), _piece(1, "c2", "f2", '{"b":2}')),
    "a malformed call": (_piece(0, "c1", "f1", "{}"), _piece(1, "c2", "f2", "{'b':2}")),
    "a malformed call, in pieces": (
        *(_piece(0, "c1", "f1", ""), _piece(0, arguments="{}")),
        *(_piece(1, "c2", "f2", ""), _piece(1, arguments="{'b':"), _piece(1, arguments="2}")),
    ),
    "a text in between": (
        *({"content": "Hi"}, _piece(0, "c1", "f1", ""), {"content": " there"}, _piece(0, arguments="{}")),
        _piece(1, "c2", "f2", "{'b':2}"),
    ),
    "a text and a malformed call": (
        *({"content": "Hi"}, _piece(0, "c1", "f1", "{}"), {"content": " there"}),
        _piece(1, "c2", "f2", "{'b':2}"),
    ),
}


@pytest.mark.parametrize("what", BESIDE_EMPTY)
def test_a_call_without_arguments_beside_a_repaired_one_is_written_once(what: str) -> None:
    codec = find_codec("openai-chat")
    exchange = Exchange(codec, codec, Options(repair_calls=True, stream=True, model="m"))
    exchange.translate_request(json.dumps(REPAIRED_REQUESTS["openai-chat"]).encode())
    stream = StreamTranslation(exchange)
    data = _chat(*BESIDE_EMPTY[what])
    out = b"".join(map(stream.feed, codec.http.framing.split_frames(data))) + stream.close()
    answer: Any = PEERS["openai-chat"].fold_stream([frame for frame in read_frames(out.decode()) if frame.text]).body
    functions = [call["function"] for call in answer["choices"][0]["message"]["tool_calls"]]
    assert [(one["name"], json.loads(one["arguments"])) for one in functions] == [("f1", {}), ("f2", {"b": 2})]


OTHER_CALLS: dict[str, tuple[dict[str, Any], ...]] = {
    "a piece is lost": (_make_item_event(_call_item(1)), _arguments('{"a'), _done(_call_item(1, '{"b":1}'))),
    "a piece is doubled": (
        *(_make_item_event(_call_item(1)), _arguments('{"a":1}'), _arguments('{"a":1}')),
        _done(_call_item(1, '{"a":1}')),
    ),
    "what is left is another object": (
        *(_make_item_event(_call_item(1)), _arguments('{"path":"/tmp'), _arguments('"}')),
        _done(_call_item(1, '{"path":"/tmp/build"}')),
    ),
    "another name": (_make_item_event(_call_item(1)), _done(_call_item(1, "{}") | {"name": "f2"})),
    "no name": (_make_item_event(_call_item(1)), _done(_call_item(1, "{}")), _arguments('{"a":1}', 2, 7)),
}


@pytest.mark.parametrize("target", PROTOCOLS)
@pytest.mark.parametrize("what", OTHER_CALLS)
def test_a_call_that_is_finished_as_another_one_is_not_made(what: str, target: str) -> None:
    """A client of the protocol takes what is finished. Others would run what the deltas say."""
    data = _responses(*OTHER_CALLS[what])
    stream = StreamTranslation(Exchange(find_codec(target), find_codec("openai-responses"), Options()))
    out = stream.feed(data) + stream.close()
    passed = PassthroughStream(find_codec("openai-responses"))
    assert (passed.feed(data) + passed.close(), passed.failure) == (data, None)
    if target == "openai-responses":
        assert stream.failure is None
        return
    assert stream.failure is not None
    assert stream.failure.code == "invalid_stream"
    events = _events(target, out)
    assert isinstance(events[-1], ResponseFailed)
    assert not any(isinstance(event, ResponseEnd) for event in events)


@pytest.mark.parametrize("client", PROTOCOLS)
def test_a_call_of_the_gateway_that_is_finished_as_another_one_is_not_run(client: str) -> None:
    """The client has got an error: no tool may be run for this answer, and no further round be paid for."""
    tools = (Tool("f1", parameters={"type": "object"}),)
    request = {"messages": [{"role": "user", "content": "Go"}], "max_tokens": 9}
    if client in ("gemini", "bedrock-converse"):
        text = {"role": "user", "content": [{"text": "Go"}]}
        request = {"messages": [text]} if client != "gemini" else {"contents": [{"parts": [{"text": "Go"}]}]}
    elif client == "openai-responses":
        request = {"input": "Go"}
    options = Options(tools=tools, stream=True, model="m")
    exchange = Exchange(find_codec(client), find_codec("openai-responses"), options)
    exchange.translate_request(json.dumps(request).encode())
    stream = StreamTranslation(exchange)
    stream.feed(_responses(_make_item_event(_call_item(1)), _arguments('{"a":1}'), _done(_call_item(1, '{"a":2}'))))
    assert stream.failure is not None
    assert not stream.needs_next_round


@pytest.mark.parametrize("finished", ['{"a": 1}', '{"a":1}\n', ""])
def test_arguments_that_are_finished_in_another_spelling_are_the_same(finished: str) -> None:
    data = _responses(_make_item_event(_call_item(1)), _arguments('{"a":1}'), _done(_call_item(1, finished)))
    stream = StreamTranslation(Exchange(find_codec("anthropic"), find_codec("openai-responses"), Options()))
    stream.feed(data)
    stream.close()
    assert (stream.failure, stream.has_complete_call) == (None, True)


@pytest.mark.parametrize("target", ["openai-responses", "anthropic", "gemini", "bedrock-converse"])
@pytest.mark.parametrize("bad", [('{"a": "x "q""}', '{"b": 1'), ('{"a": 1', "[1]", '{"b" 2}')])
def test_each_of_several_malformed_calls_is_kept_whole(bad: tuple[str, ...], target: str) -> None:
    """All calls of Chat end together. None of them may be run with half of its arguments."""
    data = _chat(*[_piece(number, f"c{number}", "f", text) for number, text in enumerate((*bad, "{}"))])
    stream = StreamTranslation(Exchange(find_codec(target), find_codec("openai-chat"), Options()))
    calls = _meaning(_events(target, stream.feed(data) + stream.close()))
    assert [json.loads(arguments).get("_raw") for _, arguments in calls] == [*bad, None]
