"""Answers of models that call well are not changed by a repair, and those of models that call badly are changed in the
same way whole, streamed and in every protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from material import NAMES, corpus, needs_corpus
from tool_formats.written_calls import WRITERS
from toolwire import Exchange, Options, Stream, parse_tool_calls, translate
from toolwire.core.json_values import is_object_text
from toolwire.core.sse import SseSplitter
from toolwire.protocols import find_codec
from toolwire.translation.streaming import StreamTranslation

RESCUE = {"tool_format": "auto", "repair_calls": True}


# --- what is right stays as it is -------------------------------------------------------------------------------------

REPAIRED = {
    "openai_chat/0445": "arguments-repaired",  # no arguments at all
    "openai_chat/0471": "arguments-repaired",  # null
    "openai_chat/0519": "reasoning-in-text",  # <think>
    "anthropic/0037": "reasoning-in-text",  # <thinking>, by Claude 3
    "anthropic/0402": "reasoning-in-text",
}
"""The recordings in which there is something to repair. None is a call that somebody only wrote about."""


def read_frames(data: bytes) -> list[tuple[str | None, Any]]:
    """The event and the value of each frame."""
    splitter = SseSplitter()
    frames = [*splitter.feed(data), *splitter.close()]
    return [(one.event, None if one.data.strip() == b"[DONE]" else json.loads(one.data)) for one in frames]


@needs_corpus
@pytest.mark.parametrize("recorded", corpus(), ids=lambda one: one.name)
def test_recorded_answers_that_are_right_stay_so(recorded: Any) -> None:
    codec = find_codec(recorded.protocol)
    exchange = Exchange(codec, codec, Options(**RESCUE))
    if recorded.request is None or (recorded.response is None and recorded.bytes is None) or recorded.status >= 400:
        pytest.skip("no answer")
    exchange.remember_request(recorded.request)
    if recorded.bytes is not None:
        stream = StreamTranslation(exchange)
        written = stream.feed(recorded.bytes) + stream.close()
        losses = stream.losses
        if recorded.name not in REPAIRED:
            untouched = StreamTranslation(Exchange(codec, codec))
            assert read_frames(written) == read_frames(untouched.feed(recorded.bytes) + untouched.close())
            assert not losses
    else:
        losses = exchange.translate_response(recorded.response).losses
    assert {loss.code for loss in losses if loss.severity == "repaired"} == {
        *filter(None, [REPAIRED.get(recorded.name)])
    }


# --- what is wrong is repaired in the same way everywhere ---------------------------------------------------------------

REQUEST = {
    "model": "qwen3:8b",
    "messages": [{"role": "user", "content": "Weather?"}],
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "parameters": {
                    "type": "object",
                    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                    "required": ["city"],
                },
            },
        }
    ],
}
CALLS = [("get_weather", {"city": "Paris", "days": 3}), ("get_weather", {"city": 'A "b"\n\\c <d> 雪'})]
BAD_CALLS = {
    "name": ("functions.Get-Weather", '{"city": "Paris"}', {"city": "Paris"}),
    "text for a number": ("get_weather", '{"city": "Paris", "days": "3"}', {"city": "Paris", "days": 3}),
    "Python": ("get_weather", "{'city': 'Paris', 'days': 3,}", {"city": "Paris", "days": 3}),
    "wrapped": ("get_weather", '{"arguments": {"city": "Paris"}}', {"city": "Paris"}),
    "no last brace": ("get_weather", '{"city": "Paris", "days": 3', {"city": "Paris", "days": 3}),
    "encoded twice": ("get_weather", json.dumps('{"city": "Paris"}'), {"city": "Paris"}),
}


def write_whole(text: str | None, calls: list[tuple[str, str]], finish: str = "stop") -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            {"id": f"call_{at}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for at, (name, arguments) in enumerate(calls)
        ]
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


def write_stream(text: str | None, calls: list[tuple[str, str]], finish: str, size: int) -> bytes:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": (text or "")[at : at + size]} for at in range(0, len(text or ""), size)]
    for number, (name, arguments) in enumerate(calls):
        first = {"index": number, "id": f"call_{number}", "type": "function"}
        deltas.append({"tool_calls": [{**first, "function": {"name": name, "arguments": ""}}]})
        for at in range(0, len(arguments), size):
            piece = {"index": number, "function": {"arguments": arguments[at : at + size]}}
            deltas.append({"tool_calls": [piece]})
    frames = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    frames.append({"index": 0, "delta": {}, "finish_reason": finish})
    same = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return (
        b"".join(b"data: " + json.dumps({**same, "choices": [one]}).encode() + b"\n\n" for one in frames)
        + b"data: [DONE]\n\n"
    )


def read_calls(target: str, body: Any) -> list[tuple[str, Any]]:
    return [(call.name, call.input) for call in parse_tool_calls(target, body)]


def fold_stream(target: str, data: bytes) -> Any:
    """The whole answer that a client of this protocol gets by a stream."""
    codec = find_codec(target)
    return Exchange(codec, codec).translate_streamed_response(data).json()


def repair_everywhere(
    target: str, text: str | None, calls: list[tuple[str, str]], finish: str
) -> Iterator[tuple[Any, list[str]]]:
    """The answer whole, and streamed in pieces of several sizes, with what was repaired."""
    request = translate(REQUEST, "request", source="openai-chat", target=target).json()
    whole = translate(
        write_whole(text, calls, finish), "response", source="openai-chat", target=target, request=request, **RESCUE
    )
    yield whole.json(), sorted(loss.code for loss in whole.losses if loss.severity == "repaired")
    # Frames are put together before their text is read, so those of a character or three need not come byte by byte.
    for size, read in ((1, 50), (3, 50), (1000, 1)):
        stream = Stream(source="openai-chat", target=target, request=request, **RESCUE)
        sent = write_stream(text, calls, finish, size)
        data = b"".join(stream.feed(sent[at : at + read]) for at in range(0, len(sent), read)) + stream.close()
        assert stream.failure is None
        yield fold_stream(target, data), sorted(loss.code for loss in stream.losses if loss.severity == "repaired")


@pytest.mark.slow
@pytest.mark.parametrize("target", NAMES)
@pytest.mark.parametrize("name", WRITERS)
def test_calls_in_every_format(name: str, target: str) -> None:
    calls = CALLS[:1] if name in ("pythonic", "lfm2", "olmo3") else CALLS  # Python's own spelling of such a text
    for answer, codes in repair_everywhere(target, WRITERS[name](calls), [], "stop"):
        assert read_calls(target, answer) == calls
        assert "call-in-text" in codes


@pytest.mark.parametrize("target", NAMES)
@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_calls(name: str, target: str) -> None:
    called, arguments, meant = BAD_CALLS[name]
    for answer, codes in repair_everywhere(target, None, [(called, arguments)], "tool_calls"):
        assert read_calls(target, answer) == [("get_weather", meant)]
        assert set(codes) == {"name-repaired" if called != "get_weather" else "arguments-repaired"}


# --- within one protocol ------------------------------------------------------------------------------------------------


def repair_within(protocol: str, data: bytes, size: int) -> tuple[bytes, Stream]:
    """A provider's stream as a client of the same protocol gets it."""
    request = translate(REQUEST, "request", source="openai-chat", target=protocol).json()
    stream = Stream(source=protocol, target=protocol, request=request, **RESCUE)
    pieces = (data[at : at + size] for at in range(0, len(data), size))
    return b"".join(map(stream.feed, pieces)) + stream.close(), stream


def write_stream_of(protocol: str, text: str | None, calls: list[tuple[str, str]], finish: str) -> bytes:
    writer = Stream(source="openai-chat", target=protocol)
    return writer.feed(write_stream(text, calls, finish, 3)) + writer.close()


@pytest.mark.parametrize("size", [1, 50, 1_000_000])
@pytest.mark.parametrize("protocol", NAMES)
def test_frames_pass_until_something_is_repaired(protocol: str, size: int) -> None:
    before = "If a < b, then <b>bold</b> is `<tool_call` in text. I look. "
    data = write_stream_of(protocol, before + WRITERS["hermes"](CALLS[:1]), [], "stop")
    written, stream = repair_within(protocol, data, size)
    assert stream.failure is None
    assert [loss.code for loss in stream.losses if loss.severity != "changed"] == ["call-in-text"]
    show = find_codec(protocol).http.framing.write_text
    sent, received = read_frames(show(written).encode()), read_frames(show(data).encode())
    same = next(at for at, (one, other) in enumerate(zip(sent, received, strict=False)) if one != other)
    assert same > 10
    answer = fold_stream(protocol, written)
    assert read_calls(protocol, answer) == CALLS[:1]
    assert json.dumps(answer).count("in text. ") == 1


WORDS = "Let me look there. "
ORDERS = {
    "roles first": [(0, ""), (1, ""), (0, WORDS), (1, None), (0, "More.")],
    "text first": [(0, ""), (0, WORDS), (1, ""), (0, "More."), (1, None)],
    "a role after the call": [(0, ""), (0, None), (1, ""), (1, WORDS), (0, "")],
    "the second choice first": [(0, ""), (1, ""), (1, WORDS), (0, None)],
}


@pytest.mark.parametrize("size", [1, 50, 1_000_000])
@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_every_choice_has_its_role_once(order: list[tuple[int, str | None]], size: int) -> None:
    """None stands for the text of a call."""
    deltas = [(index, {"content": WRITERS["hermes"](CALLS[:1]) if text is None else text}) for index, text in order]
    for index in (0, 1):
        next(delta for choice, delta in deltas if choice == index)["role"] = "assistant"
    chunks = [{"index": index, "delta": delta, "finish_reason": None} for index, delta in deltas]
    chunks += [{"index": index, "delta": {}, "finish_reason": "stop"} for index in (0, 1)]
    same = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    data = b"".join(b"data: " + json.dumps({**same, "choices": [one]}).encode() + b"\n\n" for one in chunks)
    written, stream = repair_within("openai-chat", data + b"data: [DONE]\n\n", size)
    assert stream.failure is None
    sent = [json.loads(line[6:]) for line in written.splitlines() if line.startswith(b"data: {")]
    choices = [choice for chunk in sent for choice in chunk["choices"]]
    for index in (0, 1):
        own = [choice["delta"] for choice in choices if choice["index"] == index]
        assert ["role" in delta for delta in own] == [True, *(False for _ in own[1:])]
    assert sum("id" in call for choice in choices for call in choice["delta"].get("tool_calls", ())) == 1


GOOD_CALL = ("get_weather", '{"city": "Rome"}', {"city": "Rome"})
CALLS_WITHIN = {
    f"{protocol}-{name}": (protocol, call)
    for protocol in NAMES
    for name, call in {"good": GOOD_CALL, **BAD_CALLS}.items()
    # The other writers, which make the provider's stream, would not write arguments that are not an object.
    if protocol == "openai-chat" or is_object_text(call[1])
}


@pytest.mark.parametrize("size", [1, 50, 1_000_000])
@pytest.mark.parametrize(("protocol", "call"), CALLS_WITHIN.values(), ids=CALLS_WITHIN)
def test_calls_within_one_protocol(protocol: str, call: tuple[str, str, Any], size: int) -> None:
    called, arguments, meant = call
    good = ("get_weather", '{"city": "Oslo", "days": 12}')
    data = write_stream_of(protocol, "Let me look < there. ", [good, (called, arguments)], "tool_calls")
    written, stream = repair_within(protocol, data, size)
    assert stream.failure is None
    if call is GOOD_CALL:
        assert read_frames(written) == read_frames(data)
        assert not stream.losses
    answer = fold_stream(protocol, written)
    assert read_calls(protocol, answer) == [("get_weather", {"city": "Oslo", "days": 12}), ("get_weather", meant)]


@pytest.mark.parametrize("size", [1, 1_000_000])
def test_what_a_reader_mends_in_frames_stays_mended(size: int) -> None:
    """Some servers repeat the id and the name of a call in every delta (case 21), others cut characters in halves."""
    data = write_stream(
        "1 \N{SLIGHTLY SMILING FACE} 2", [("get_weather", '{"city": "Oslo", "days": 12}')], "tool_calls", 3
    )
    first = b'"id": "call_0", "type": "function", "function": {"name": "get_weather", "arguments"'
    repeated = data.replace(b'"function": {"arguments"', first).replace(b"\\ude42", b'"}}]}\n\nHALF\\ude42')
    frames = [frame for frame in repeated.split(b"\n\n") if frame]
    at = next(number for number, frame in enumerate(frames) if frame.startswith(b"HALF"))
    head, _, rest = frames[at - 1].partition(b'{"content": "')
    frames[at] = head + b'{"content": "' + frames[at].removeprefix(b"HALF")
    frames[at - 1] = head + b'{"content": "' + rest.removesuffix(b'"}}]}') + frames[at].partition(b"\\ude42")[2]
    data = b"\n\n".join(frames) + b"\n\n"
    untouched = Stream(source="openai-chat", target="openai-chat")
    written, stream = repair_within("openai-chat", data, size)
    assert read_frames(written) == read_frames(untouched.feed(data) + untouched.close())
    assert written.count(b"call_0") == 1
    assert stream.failure is None


@pytest.mark.parametrize("size", [1, 1_000_000])
@pytest.mark.parametrize("protocol", NAMES)
def test_a_stream_that_ends_early_still_fails(protocol: str, size: int) -> None:
    data = write_stream_of(protocol, "Let me look < there <tool", [], "stop")
    frames = [frame + b"\n\n" for frame in data.split(b"\n\n")[:-1]]
    for count in range(1, len(frames) - 4):
        written, stream = repair_within(protocol, b"".join(frames[:count]), size)
        assert stream.failure is not None
        assert fold_stream_failure(protocol, written)


def fold_stream_failure(protocol: str, data: bytes) -> Any:
    codec = find_codec(protocol)
    return Exchange(codec, codec).translate_streamed_response(data).failure


@pytest.mark.parametrize("target", NAMES)
def test_a_draft_in_text_is_not_a_second_call(target: str) -> None:
    text = WRITERS["hermes"](CALLS[:1])
    for answer, codes in repair_everywhere(target, text, [("get_weather", '{"city": "Oslo"}')], "tool_calls"):
        assert read_calls(target, answer) == [("get_weather", {"city": "Oslo"})]
        assert codes == []
        assert "tool_call>" in json.dumps(answer)


@pytest.mark.parametrize(
    ("choice", "is_call"),
    [
        ("auto", True),
        ("none", False),
        ({"mode": "auto", "tools": ["get_weather"]}, True),
        ({"mode": "auto", "tools": ["get_time"]}, False),
        ({"mode": "required", "tools": ["get_time"]}, False),
    ],
)
def test_only_tools_that_may_be_called_are_found(choice: Any, is_call: bool) -> None:
    if isinstance(choice, dict):
        tools = [{"type": "function", "function": {"name": name}} for name in choice["tools"]]
        choice = {"type": "allowed_tools", "allowed_tools": {"mode": choice["mode"], "tools": tools}}
    clock = {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object", "properties": {}}}}
    request = {**REQUEST, "tools": [*REQUEST["tools"], clock], "tool_choice": choice}
    body = write_whole(WRITERS["hermes"](CALLS[:1]), [])
    answer = translate(
        body, "response", source="openai-chat", target="openai-chat", request=json.dumps(request).encode(), **RESCUE
    )
    assert read_calls("openai-chat", answer.json()) == (CALLS[:1] if is_call else [])


@pytest.mark.parametrize("target", NAMES)
def test_a_call_that_was_cut_off_is_not_completed(target: str) -> None:
    text = WRITERS["hermes"](CALLS[:1])
    cut = "<tool_call>\n" + json.dumps({"name": "get_weather", "arguments": {"city": "Par"}})[:-6]
    for answer, _ in repair_everywhere(target, f"{text}\n{cut}", [], "length"):
        assert read_calls(target, answer) == CALLS[:1]
        assert "Par" in json.dumps(answer)
