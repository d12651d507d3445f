"""Whatever a provider sends, a client's stream has one end of its protocol, or one error, and nothing follows it.

Our samples are damaged in every way that comes to mind, and passed through or translated to every protocol. The judge does
not use the library's readers. Where it sees an end, the answer must also be the one that the undamaged stream makes.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from material import NAMES, SAMPLES
from toolwire.core.ir import Failure
from toolwire.gateway.exchange.passthrough_stream import PassthroughStream
from toolwire.protocols import CODECS
from toolwire.translation.exchange import Exchange
from toolwire.translation.options import Options
from toolwire.translation.streaming import StreamTranslation
from toolwire_conformance.peers import PEERS
from toolwire_conformance.peers.peer import SseFrame, read_frames

PROVIDERS = tuple(name for name in NAMES if (SAMPLES / name.replace("-", "_")).is_dir())
STREAMS = {
    "openai-chat": ("text", "function_call", "text_usage", "refusal", "length", "n2"),
    "openai-responses": ("text", "function_call", "reasoning_function_call", "incomplete_text", "web_search"),
    "anthropic": ("text", "text_then_tool_use", "thinking_then_tool_use", "refusal", "web_search_with_citation"),
    "gemini": ("text", "function_call", "max_tokens", "thought_summary_then_function_call", "code_execution"),
}
WRONG_DATA = {
    "openai-chat": (
        '{"choices":5}',
        '{"choices":[5]}',
        '{"choices":{"a":1}}',
        '{"choices":[{"index":0,"delta":5}]}',
        '{"choices":[{"index":0,"delta":{"tool_calls":7}}]}',
        '{"choices":[{"index":-1,"delta":{"content":"x"}}]}',
    ),
    "openai-responses": (
        '{"type":"response.output_item.added","item":5}',
        '{"type":"response.output_text.delta"}',
        '{"type":"response.completed","response":5}',
        '{"type":"response.output_item.done","output_index":"x"}',
    ),
    "anthropic": (
        '{"type":5}',
        '{"type":"content_block_start","index":"x"}',
        '{"type":"message_delta","delta":5}',
        '{"type":"content_block_start","index":77,"content_block":5}',
    ),
    "gemini": (
        '{"candidates":5}',
        '{"candidates":[5]}',
        '{"candidates":[{"content":5}]}',
        '{"candidates":[{"index":-1,"content":{"parts":[{"text":"x"}]}}]}',
    ),
}
"""JSON objects that no stream of the protocol has."""
GARBAGE = ("upstream request timeout", "<html><body>502</body></html>", '{"half', "[1,2]", "5", '"stop"', "null", "[[")
ERRORS = (
    'data: {"error":{"message":"Too busy.","type":"server_error","param":null,"code":null}}\n\n',
    'data: {"error":"Too busy."}\n\n',
    'data: {"error":{"code":503,"message":"Too busy.","status":"UNAVAILABLE"}}\n\n',
    'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Too busy."}}\n\n',
    'data: {"type":"error","error":{"type":"overloaded_error","message":"Too busy."}}\n\n',
    'event: error\ndata: {"type":"error","code":"server_error","message":"Too busy.","param":null}\n\n',
    'data: {"object":"error","message":"Too busy.","type":"InternalServerError","code":500}\n\n',
    'event: error\ndata: {"detail":"Too busy."}\n\n',
)
"""In the shapes of every protocol, and of servers that deviate from them."""
Frames = list[bytes]


# --- the judge --------------------------------------------------------------------------------------------------------


def find_ends(protocol: str, frame: SseFrame) -> str:
    """Is this frame an end, an error, or neither?"""
    data: Any = frame.data
    if frame.text == "[DONE]":
        assert protocol == "openai-chat", "[DONE] is of no other protocol"
        return "end"
    assert isinstance(data, dict), f"not an object: {frame.text!r}"
    if protocol == "openai-chat":
        return "error" if isinstance(data.get("error"), dict) else ""
    if protocol == "gemini":
        return "error" if isinstance(data.get("error"), dict) else ""
    if protocol == "bedrock-converse":
        return "end" if frame.event == "metadata" else "error" if (frame.event or "").startswith("exception:") else ""
    kind = data.get("type")
    if protocol == "anthropic":
        ends = {"message_stop": "end", "error": "error"}
        assert kind == frame.event or kind not in ends, "Anthropic's SDKs know an event by its event line"
        return ends.get(str(frame.event), "")
    if protocol == "openai-responses":
        ends = {"response.completed": "end", "response.incomplete": "end", "response.failed": "error"}
        return (ends | {"response.cancelled": "end", "error": "error"}).get(str(kind), "")
    return {"end": "end", "error": "error"}.get(str(kind), "")


def judge(protocol: str, out: bytes) -> str:
    """How the stream ends; an assertion where it does so twice, or not at all, or where something follows."""
    out = CODECS[protocol].http.framing.write_text(out).encode()
    frames = [frame for frame in read_frames(out.decode("utf-8", "replace")) if frame.text]
    assert frames, "no end"
    assert re.search(rb"(?>\r\n|\r|\n){2}\Z", out), "an unfinished frame"
    ends = [find_ends(protocol, frame) for frame in frames]
    if protocol == "gemini" and "error" not in ends:
        # Each candidate has its finish reason, or the prompt was blocked. Usage may follow.
        states: dict[int, bool] = {}
        for frame in frames:
            data: Any = frame.data
            for candidate in data.get("candidates") or ():
                index = candidate.get("index", 0)
                states[index] = states.get(index, False) or bool(candidate.get("finishReason"))
            if (data.get("promptFeedback") or {}).get("blockReason"):
                states[0] = True
        assert states, "nothing said"
        assert all(states.values()), "no finish reason"
        return "end"
    told = [end for end in ends if end]
    if [frame.data.get("type") for frame in frames[-2:] if isinstance(frame.data, dict)] == [
        "error",
        "response.failed",
    ]:
        told = told[:-1]  # as OpenAI does it
    assert told in (["end"], ["error"]), f"ends with {told}"
    assert ends[-1], f"{frames[-1].text!r} after the end"
    return told[0]


# --- damages ----------------------------------------------------------------------------------------------------------


def put_in(frames: Frames, at: int, what: str | bytes) -> bytes:
    piece = what if isinstance(what, bytes) else what.encode()
    return b"".join(frames[:at]) + piece + b"".join(frames[at:])


def count_open(protocol: str, frames: Frames) -> int:
    """How many frames come before the first sign of the end."""
    signs = (b'"finish_reason":"', b'"finishReason":"', b'"stop_reason":"', b"event: response.completed")
    ends = [at for at, frame in enumerate(frames) if any(sign in frame for sign in (*signs, b"response.incomplete"))]
    return ends[0]


def insert_wrong_frame(protocol: str, frames: Frames, dice: random.Random) -> bytes:
    data = dice.choice(WRONG_DATA[protocol] + GARBAGE)
    name = json.loads(data).get("type") if data in WRONG_DATA[protocol] else None
    event = f"event: {name}\n" if isinstance(name, str) and dice.random() < 0.8 else ""
    return put_in(frames, dice.randint(0, len(frames)), f"{event}data: {data}\n\n")


def insert_wrong_frame_and_end(protocol: str, frames: Frames, dice: random.Random) -> bytes:
    kept = frames[: dice.randint(0, count_open(protocol, frames))]
    return insert_wrong_frame(protocol, kept, dice)


def insert_error(protocol: str, frames: Frames, dice: random.Random) -> bytes:
    return put_in(frames, dice.randint(0, len(frames)), dice.choice(ERRORS) * dice.randint(1, 2))


def insert_error_of_another(protocol: str, frames: Frames, dice: random.Random) -> bytes:
    kept = frames[: dice.randint(0, count_open(protocol, frames))]
    return put_in(kept, len(kept), dice.choice(ERRORS))


def cut_bytes(protocol: str, frames: Frames, dice: random.Random) -> bytes:
    data = b"".join(frames)
    return data[: dice.randint(0, len(data))]


def cut_frames(protocol: str, frames: Frames, dice: random.Random) -> bytes:
    kept = b"".join(frames[: dice.randint(0, len(frames))])
    return dice.choice([kept, kept.rstrip(), kept + b"\n", kept + b": bye\n\n"])


def cut_frames_with_done(protocol: str, frames: Frames, dice: random.Random) -> bytes:
    return b"".join(frames[: dice.randint(0, len(frames))]) + b"data: [DONE]\n\n"


def lose_event_lines(protocol: str, frames: Frames, dice: random.Random) -> bytes:
    """Clients of other protocols know an event by its data."""
    if protocol != "anthropic":
        return b"".join(frames)
    lost = [re.sub(rb"\Aevent: \w+\n", b"", frame) if dice.random() < 0.7 else frame for frame in frames]
    return b"".join(lost)


def double_the_end(protocol: str, frames: Frames, dice: random.Random) -> bytes:
    last = b"".join(frames[-dice.randint(1, 2) :])
    return b"".join(frames) + (b"" if protocol == "gemini" else last)


def add_frames_after_the_end(protocol: str, frames: Frames, dice: random.Random) -> bytes:
    more = frames[: dice.randint(1, len(frames))] if protocol != "gemini" else []
    return b"".join(frames) + b"".join(more) + b": bye\n\n"


def add_garbage_after_the_end(protocol: str, frames: Frames, dice: random.Random) -> bytes:
    if protocol == "gemini":  # its end is a finish reason, after which more may come
        return b"".join(frames) + b": bye\n\n"
    wrong = [f"data: {data}\n\n" for data in (*GARBAGE, *WRONG_DATA[protocol], "[DONE]", "")]
    return b"".join(frames) + dice.choice([*wrong, *ERRORS, "\n\n\n", "<html>"]).encode()


def add_what_means_nothing(protocol: str, frames: Frames, dice: random.Random) -> bytes:
    more = dice.choice([": keep-alive\n\n", "\n\n", "id: 7\n\n", "retry: 100\n\n", "event: x\n\n"])
    return put_in(frames, dice.randint(0, len(frames)), more)


def change_line_ends(protocol: str, frames: Frames, dice: random.Random) -> bytes:
    mark = dice.choice([b"", b"\xef\xbb\xbf"])
    ends = dice.choice([[b"\r\n"], [b"\r"], [b"\n"], [b"\n", b"\r\n"]])
    return mark + b"".join(frame.replace(b"\n", dice.choice(ends)) for frame in frames)


def mix_line_ends(protocol: str, frames: Frames, dice: random.Random) -> bytes:
    return re.sub(rb"\n", lambda _: dice.choice([b"\r\n", b"\n"]), b"".join(frames))


HARMLESS = (
    add_what_means_nothing,
    lose_event_lines,
    change_line_ends,
    mix_line_ends,
    double_the_end,
    add_frames_after_the_end,
)
HARMFUL = (insert_wrong_frame_and_end, insert_error_of_another)
"""After these there is an error."""
OTHERS = (insert_wrong_frame, cut_bytes, cut_frames, add_garbage_after_the_end)


def drop_frame(protocol: str, frames: Frames, dice: random.Random) -> bytes:
    at = dice.randrange(len(frames))
    return b"".join(frames[:at] + frames[at + 1 :])


def swap_frames(protocol: str, frames: Frames, dice: random.Random) -> bytes:
    return b"".join(dice.sample(frames, len(frames)))


def change_value(protocol: str, frames: Frames, dice: random.Random) -> bytes:
    """Another value somewhere in a frame's JSON."""
    at = dice.randrange(len(frames))
    head, found, text = frames[at].partition(b"data: ")
    try:
        node = json.loads(text)
    except ValueError:
        return b"".join(frames)
    places = list(find_places(node))
    if places:
        holder, key = dice.choice(places)
        holder[key] = dice.choice([None, 5, -1, 1e300, "x", "", [], {}, [5], {"a": 1}, True])
    changed = head + found + json.dumps(node).encode() + b"\n\n"
    return b"".join([*frames[:at], changed, *frames[at + 1 :]])


def find_places(node: Any) -> Iterator[tuple[Any, Any]]:
    for key, value in list(node.items() if isinstance(node, dict) else enumerate(node)):
        yield node, key
        if isinstance(value, (dict, list)):
            yield from find_places(value)


def change_bytes(protocol: str, frames: Frames, dice: random.Random) -> bytes:
    data = bytearray(b"".join(frames))
    for _ in range(dice.randint(1, 3)):
        at = dice.randrange(len(data))
        data[at : at + dice.randint(0, 2)] = dice.choice(
            [b"", b"\n", b"\r", b"\n\n", b"\0", b"\xff", b'"', b"{", b"data: "]
        )
    return bytes(data)


WILD = (drop_frame, swap_frames, change_value, change_bytes, cut_frames_with_done, insert_error)
"""They may change what the answer says, so it is not compared."""
DAMAGES: dict[str, Callable[[str, Frames, random.Random], bytes]] = {
    damage.__name__: damage for damage in (*HARMLESS, *HARMFUL, *OTHERS, *WILD)
}


# --- the law ----------------------------------------------------------------------------------------------------------


def start_stream(provider: str, client: str, passes: bool) -> PassthroughStream | StreamTranslation:
    codec = CODECS[provider]
    return PassthroughStream(codec) if passes else StreamTranslation(Exchange(CODECS[client], codec, Options()))


def play(provider: str, client: str, passes: bool, data: bytes, size: int, breaks: bool = False) -> bytes:
    stream = start_stream(provider, client, passes)
    out = b"".join(stream.feed(data[at : at + size]) for at in range(0, len(data), size))
    return out + (stream.fail(Failure("upstream", "it broke off", 502)) if breaks else stream.close())


def answer_of(protocol: str, out: bytes) -> Any:
    """What an SDK makes of a stream; of our own protocol, the last frame."""
    frames = [frame for frame in read_frames(CODECS[protocol].http.framing.write_text(out)) if frame.text]
    body: Any = PEERS[protocol].fold_stream(frames).body if protocol in PEERS else frames[-1].data["response"]
    return {key: value for key, value in body.items() if key not in ("usage", "usageMetadata")}


def split(data: bytes) -> Frames:
    return re.findall(rb".*?\n\n|.+", data, re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("provider", STREAMS)
def test_a_stream_has_one_end(provider: str, damage: str) -> None:
    make = DAMAGES[damage]
    for name in STREAMS[provider]:
        whole = (SAMPLES / provider.replace("-", "_") / f"{name}.sse").read_bytes().replace(b"\r\n", b"\n")
        frames = split(whole)
        for client, passes in ((provider, True), *((client, False) for client in NAMES)):
            dice = random.Random(f"{provider} {name} {damage} {client} {passes}")
            expected = answer_of(client, play(provider, client, passes, whole, len(whole)))
            for _ in range(6 if passes else 2):
                data = make(provider, frames, dice)
                size, breaks = (
                    dice.choice([1 if len(data) < 3000 else 11, 300, len(data) or 1]),
                    dice.random() < 0.2 and make not in HARMLESS,
                )
                out = play(provider, client, passes, data, size, breaks)
                try:
                    end = judge(client, out)
                    assert make not in HARMLESS or end == "end"
                    assert make not in HARMFUL or end == "error"
                    if end == "end" and make not in WILD:
                        assert answer_of(client, out) == expected
                except AssertionError as fault:
                    fault.add_note(
                        f"{name} to {client}, passes: {passes}, by {size}, breaks: {breaks}\n{data!r}\n->\n{out!r}"
                    )
                    raise


CUT_BESIDE_A_FINISH = (
    b'data: {"candidates":[{"index":0,"content":{"parts":[{"text":"Hi"}]},"finishReason":"STOP"}]}\n\n'
    b'data: {"candidates":[{"index":1,"content":{"parts":[{"text":"Hal"}]}}]}\n\n'
)
NAMELESS_CALL = (
    b'data: {"id":"c","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_1","function":'
    b'{"name":"f","arguments":"{"}}]},"finish_reason":null}]}\n\n'
    b'data: {"id":"c","choices":[{"index":1,"delta":{"tool_calls":[{"index":1,"function":{"arguments":"}"}}]}}]}\n\n'
    b'data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}\n\n'
    b"data: [DONE]\n\n"
)
FIRST_FRAME_OF_A_WRONG_SHAPE = b'event: message_delta\ndata: {"type":"message_delta","delta":5}\n\n'
FAULTS = {
    "a candidate is cut, and another has finished": ("gemini", CUT_BESIDE_A_FINISH),
    "a call has no name when the end comes": ("openai-chat", NAMELESS_CALL),
    "the first frame has a wrong shape": ("anthropic", FIRST_FRAME_OF_A_WRONG_SHAPE),
}


@pytest.mark.parametrize("passes", [True, False])
@pytest.mark.parametrize("what", FAULTS)
def test_what_cannot_be_read_to_its_end_has_an_error_and_no_end(what: str, passes: bool) -> None:
    protocol, data = FAULTS[what]
    out = play(protocol, protocol, passes, data, len(data))
    assert judge(protocol, out) == "error"
    assert b'"delta":5' not in out
