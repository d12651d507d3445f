"""A case that cannot fail proves nothing: each row brings a reported fault back, and its case must notice."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from toolwire.conformance.case import read_case, read_case_files
from toolwire.conformance.peers.peer import encode_json, read_frames
from toolwire.conformance.player import AnswerCall, ClientCall, ClientView, ProviderAnswer, ReceivedCall, play_case
from toolwire.conformance.transports import InProcessTransport

Object = dict[str, Any]
FILES = {data["id"]: data for _, data in read_case_files()}


class Faulty:
    """The library with one fault: in what the provider receives, or in what the client sees."""

    def __init__(self, there: Callable[[Object], Any] | None, back: Callable[[str], str] | None) -> None:
        self.there = there
        self.back = back

    def send_call(self, call: ClientCall, answer: AnswerCall) -> ClientView:
        def faulty(received: ReceivedCall) -> ProviderAnswer:
            if self.there is not None:
                self.there(received.body)
            return answer(received)

        seen = InProcessTransport().send_call(call, faulty)
        if self.back is None:
            return seen
        return ClientView(seen.status, seen.headers, tuple(map(self.back, seen.pieces)), seen.losses)


def swap(old: str, new: str) -> Callable[[str], str]:
    return lambda text: re.sub(old, new, text)


def without(piece: str) -> Callable[[str], str]:
    """A stream without the frames that hold this piece."""
    return lambda text: "".join(block + "\n\n" for block in text.split("\n\n") if block and piece not in block)


def rewritten(old: str, new: str) -> Callable[[Object], None]:
    """The request with a pattern replaced in its JSON text."""

    def change(body: Object) -> None:
        changed = json.loads(re.sub(old, new, encode_json(body)))
        body.clear()
        body.update(changed)

    return change


def dropped(*keys: str) -> Callable[[Object], None]:
    """The request without a key, wherever it stands."""

    def strip(node: Any) -> None:
        if isinstance(node, dict):
            for key in keys:
                node.pop(key, None)
            node = list(node.values())
        for child in node if isinstance(node, list) else []:
            strip(child)

    return strip


def split_results(body: Object) -> None:
    *rest, last = body.get("messages") or [{}]
    blocks = last.get("content")
    if isinstance(blocks, list):
        body["messages"] = [*rest, *({"role": "user", "content": [block]} for block in blocks)]


def first_only(key: str) -> Callable[[Object], None]:
    return lambda body: body.update({key: body[key][:1]}) if key in body else None


def last_text_lost(body: Object) -> None:
    for key in ("messages", "input", "contents"):
        turn = body.get(key, [{}])[-1]
        if turn.get("role") == "user" and key != "contents":
            body[key].pop()
        elif "parts" in turn:
            turn["parts"] = [part for part in turn["parts"] if "text" not in part]


def empty_text(body: Object) -> None:
    body["messages"][1]["content"].insert(0, {"type": "text", "text": ""})


THERE: list[tuple[int, Callable[[Object], Any]]] = [
    (1, rewritten(r"functions_Bash_0\w*", "functions.Bash:0")),
    (2, rewritten(r"a_b_\w+", "a_b")),
    (3, rewritten(r'(call_id":")[^"]*', r"\1call_0123456789")),
    (5, rewritten(r'(tool_use_id|tool_call_id)":"', r'\1":"cut_')),
    (9, rewritten(r'"type":"function_call",', '"type":"function_call","id":"call_9",')),
    (10, rewritten(r'"functionResponse":\{("id":"[^"]*",)?', '"functionResponse":{"id":"other",')),
    (12, rewritten(r'"input":\{\}', '"input":""')),
    (22, rewritten(r'"(input|args)":\{"[^}]*\}', r'"\1":{}')),
    (34, dropped("disable_parallel_tool_use")),
    (59, split_results),
    (61, rewritten(r'\{"functionResponse":\{[^}]*"output":""\}\}\},', "")),
    (62, last_text_lost),
    (65, rewritten(r'"output":("(?:[^"\\]|\\.)*")', r'"output":[{"type":"text","text":\1}]')),
    (66, rewritten(r'"response":\{"output":("[^"]*")\}', r'"response":\1')),
    (67, rewritten(r'("functionResponse":\{[^}]*"name":)"[^"]*"', r'\1""')),
    (70, lambda body: body.update(input=body["input"][:1] + body["input"][-2:])),
    (74, empty_text),
    (77, dropped("inlineData")),
    (78, lambda body: body["messages"].pop()),
    (79, rewritten(r'\{"type":"input_image"[^}]*\}', '{"type":"input_text","text":"[image omitted]"}')),
    (83, rewritten(r"\[tool error\] ", "")),
    (84, dropped("thoughtSignature")),
    (85, rewritten(r'("functionCall":\{[^}]*\}\})\}', r'\1,"thoughtSignature":"skip_thought_signature_validator"}')),
    (89, rewritten(r'(\{"type":"tool_use")', r'{"type":"thinking","thinking":"x","signature":"y"},\1')),
    (97, lambda body: body["input"].pop(2) if len(body["input"]) > 2 else None),
    (99, dropped("signature")),
    (101, dropped("reasoning_content")),
    (103, dropped("input_schema")),
    (110, first_only("tools")),
    (113, dropped("tools")),
    (117, dropped("name")),
    (121, dropped("toolConfig")),
    (123, rewritten(r'"tool_choice":\{"type":"tool"', '"tool_choice":{"type":"function"')),
    (125, rewritten(r'"none"|"NONE"', '"auto"')),
    (127, dropped("strict")),
    (129, rewritten(r'("name":"mcp__[^"]*)', r"\1_and_much_longer_again_than_before")),
    (131, rewritten("weather_get", "proxy_get")),
    (138, dropped("$defs")),
    (146, dropped("output_config", "generationConfig", "text")),
    (153, dropped("stream_options")),
    (157, lambda body: body.update(cache_control={"type": "ephemeral"})),
    (158, rewritten("Be brief", "x-anthropic-billing-header: Be brief")),
    (161, lambda body: body["messages"].pop() if "messages" in body else None),
    (162, lambda body: body["messages"].insert(0, {"role": "system", "content": "x"})),
    (163, rewritten('"max_completion_tokens"', '"max_tokens"')),
]

BACK: list[tuple[int, Callable[[str], str]]] = [
    (7, swap(r'"(id|call_id)":"call_\w+"', r'"\1":"call_get_weather"')),
    (13, without("input_json_delta")),
    (15, swap(r"Paris", "")),
    (17, swap(r"(event: message_stop\ndata: [^\n]*\n\n)", r"\1\1")),
    (23, swap("max_tokens", "tool_use")),
    (25, swap(r"→", "?")),
    (26, swap(r'"tool_calls":\[\{"index":\d', r'"tool_calls":[{"index":0')),
    (29, swap(r'"index":0,"id"', r'"id"')),
    (30, without("call_2")),
    (31, without("First")),
    (35, swap(r'"index":[12]', '"index":0')),
    (37, without("moment")),
    (41, swap(r"event: [^\n]*\n", "")),
    (43, swap(r'"index":2', '"index":3')),
    (46, swap('"type":"tool_use"', '"type":"text"')),
    (47, without("response.output_item.done")),
    (49, swap(r'"response":\{', '"body":{')),
    (50, without("response.output_item.done")),
    (53, swap(r"It is 15", "It is 15It is 15")),
    (55, swap(r'"(id|item_id)":"(fc|msg)_[^"]*"', r'"\1":"__fake_id__"')),
    (57, lambda text: text + "data: [DONE]\n\n"),
    (58, swap("response.failed", "response.completed")),
    (106, swap("custom_tool_call", "function_call")),
    (109, swap(r'"namespace":"[^"]*",?', "")),
    (111, swap(r'"namespace":"[^"]*",?', "")),
    (130, swap("weather.get|1c_ssl", "renamed")),
    (147, swap(r'"(tool_use|tool_calls)"([,}])', r'"stop"\2')),
    (149, swap(r'"(length|max_tokens)"', '"stop"')),
    (150, swap("error", "erreur")),
    (151, swap('"stop_sequence":"END"', '"stop_sequence":null')),
    (154, swap(r'"(input_tokens|prompt_tokens)":\d+', r'"\1":2200')),
    (165, swap("response.failed", "response.completed")),
    (166, without("event: error")),
    (169, swap("RetryInfo", "Info")),
    (170, swap("overloaded_error", "api_error")),
    (171, swap("Feathers", "Something")),
    (177, swap("雪", "\ufffd\ufffd")),
]


def bitten(number: int, transport: Faulty) -> bool:
    cases = [case for case in read_case(FILES[number]) if not case.out_of_reach]
    return any(not play_case(case, transport).passed for case in cases if play_case(case, InProcessTransport()).passed)


@pytest.mark.parametrize(("number", "fault"), THERE, ids=[f"{row[0]:03}" for row in THERE])
def test_a_fault_on_the_way_there_is_noticed(number: int, fault: Callable[[Object], Any]) -> None:
    assert bitten(number, Faulty(fault, None))


@pytest.mark.parametrize(("number", "fault"), BACK, ids=[f"{row[0]:03}" for row in BACK])
def test_a_fault_on_the_way_back_is_noticed(number: int, fault: Callable[[str], str]) -> None:
    assert bitten(number, Faulty(None, fault))


def test_frames_are_cut_as_they_stand() -> None:
    frames = read_frames(": hello\n\nevent: a\r\ndata: {}\r\n\r\ndata: x\ndata: y\n\ndata: [DONE]")
    assert [(frame.event, frame.data, frame.other_lines) for frame in frames] == [
        (None, "", (": hello",)),
        ("a", {}, ()),
        (None, "x\ny", ()),
        (None, "[DONE]", ()),
    ]
