"""Every case can fail: each row brings a reported fault back, and its case must find it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from conformance.in_process import InProcessTransport
from toolwire_conformance.case import read_case, read_case_files
from toolwire_conformance.peers.peer import encode_json, read_frames
from toolwire_conformance.player import AnswerCall, ClientCall, ClientView, ProviderAnswer, ReceivedCall, play_case

Object = dict[str, Any]
FILES = {data["id"]: data for _, data in read_case_files()}


class FaultyLibrary:
    """The library with one fault: in what the provider receives, or in what the client sees."""

    def __init__(
        self, change_request: Callable[[Object], Any] | None, change_answer: Callable[[str], str] | None
    ) -> None:
        self.change_request = change_request
        self.change_answer = change_answer

    def send_call(self, call: ClientCall, answer: AnswerCall) -> ClientView:
        def faulty(received: ReceivedCall) -> ProviderAnswer:
            if self.change_request is not None:
                self.change_request(received.body)
            return answer(received)

        view = InProcessTransport().send_call(call, faulty)
        if self.change_answer is None:
            return view
        return ClientView(view.status, view.headers, tuple(map(self.change_answer, view.pieces)), view.losses)


def replace_text(old: str, new: str) -> Callable[[str], str]:
    return lambda text: re.sub(old, new, text)


def drop_frames(piece: str) -> Callable[[str], str]:
    """Remove the frames that contain this text."""
    return lambda text: "".join(block + "\n\n" for block in text.split("\n\n") if block and piece not in block)


def rewrite_json(old: str, new: str) -> Callable[[Object], None]:
    """Replace a pattern in the JSON of the request."""

    def change(body: Object) -> None:
        changed = json.loads(re.sub(old, new, encode_json(body)))
        body.clear()
        body.update(changed)

    return change


def drop_keys(*keys: str) -> Callable[[Object], None]:
    """Remove keys everywhere in the request."""

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


def keep_first(key: str) -> Callable[[Object], None]:
    return lambda body: body.update({key: body[key][:1]}) if key in body else None


def drop_last_text(body: Object) -> None:
    for key in ("messages", "input", "contents"):
        turn = body.get(key, [{}])[-1]
        if turn.get("role") == "user" and key != "contents":
            body[key].pop()
        elif "parts" in turn:
            turn["parts"] = [part for part in turn["parts"] if "text" not in part]


def add_empty_text(body: Object) -> None:
    body["messages"][1]["content"].insert(0, {"type": "text", "text": ""})


REQUEST_FAULTS: list[tuple[int, Callable[[Object], Any]]] = [
    (1, rewrite_json(r"functions_Bash_0\w*", "functions.Bash:0")),
    (2, rewrite_json(r"a_b_\w+", "a_b")),
    (3, rewrite_json(r'(call_id":")[^"]*', r"\1call_0123456789")),
    (5, rewrite_json(r'(tool_use_id|tool_call_id)":"', r'\1":"cut_')),
    (9, rewrite_json(r'"type":"function_call",', '"type":"function_call","id":"call_9",')),
    (10, rewrite_json(r'"functionResponse":\{("id":"[^"]*",)?', '"functionResponse":{"id":"other",')),
    (12, rewrite_json(r'"input":\{\}', '"input":""')),
    (22, rewrite_json(r'"(input|args)":\{"[^}]*\}', r'"\1":{}')),
    (34, drop_keys("disable_parallel_tool_use")),
    (59, split_results),
    (61, rewrite_json(r'\{"functionResponse":\{[^}]*"output":""\}\}\},', "")),
    (62, drop_last_text),
    (65, rewrite_json(r'"output":("(?:[^"\\]|\\.)*")', r'"output":[{"type":"text","text":\1}]')),
    (66, rewrite_json(r'"response":\{"output":("[^"]*")\}', r'"response":\1')),
    (67, rewrite_json(r'("functionResponse":\{[^}]*"name":)"[^"]*"', r'\1""')),
    (70, lambda body: body.update(input=body["input"][:1] + body["input"][-2:])),
    (74, add_empty_text),
    (77, drop_keys("inlineData")),
    (78, lambda body: body["messages"].pop()),
    (79, rewrite_json(r'\{"type":"input_image"[^}]*\}', '{"type":"input_text","text":"[image omitted]"}')),
    (83, rewrite_json(r"\[tool error\] ", "")),
    (84, drop_keys("thoughtSignature")),
    (85, rewrite_json(r'("functionCall":\{[^}]*\}\})\}', r'\1,"thoughtSignature":"skip_thought_signature_validator"}')),
    (89, rewrite_json(r'(\{"type":"tool_use")', r'{"type":"thinking","thinking":"x","signature":"y"},\1')),
    (97, lambda body: body["input"].pop(2) if len(body["input"]) > 2 else None),
    (99, drop_keys("signature")),
    (101, drop_keys("reasoning_content")),
    (103, drop_keys("input_schema")),
    (110, keep_first("tools")),
    (113, drop_keys("tools")),
    (117, drop_keys("name")),
    (121, drop_keys("toolConfig")),
    (123, rewrite_json(r'"tool_choice":\{"type":"tool"', '"tool_choice":{"type":"function"')),
    (125, rewrite_json(r'"none"|"NONE"', '"auto"')),
    (127, drop_keys("strict")),
    (129, rewrite_json(r'("name":"mcp__[^"]*)', r"\1_and_much_longer_again_than_before")),
    (131, rewrite_json("weather_get", "proxy_get")),
    (138, drop_keys("$defs")),
    (146, drop_keys("output_config", "generationConfig", "text")),
    (153, drop_keys("stream_options")),
    (157, lambda body: body.update(cache_control={"type": "ephemeral"})),
    (158, rewrite_json("Be brief", "x-anthropic-billing-header: Be brief")),
    (161, lambda body: body["messages"].pop() if "messages" in body else None),
    (162, lambda body: body["messages"].insert(0, {"role": "system", "content": "x"})),
    (163, rewrite_json('"max_completion_tokens"', '"max_tokens"')),
]

ANSWER_FAULTS: list[tuple[int, Callable[[str], str]]] = [
    (7, replace_text(r'"(id|call_id)":"call_\w+"', r'"\1":"call_get_weather"')),
    (13, drop_frames("input_json_delta")),
    (15, replace_text(r"Paris", "")),
    (17, replace_text(r"(event: message_stop\ndata: [^\n]*\n\n)", r"\1\1")),
    (23, replace_text("max_tokens", "tool_use")),
    (25, replace_text(r"→", "?")),
    (26, replace_text(r'"tool_calls":\[\{"index":\d', r'"tool_calls":[{"index":0')),
    (29, replace_text(r'"index":0,"id"', r'"id"')),
    (30, drop_frames("call_2")),
    (31, drop_frames("First")),
    (35, replace_text(r'"index":[12]', '"index":0')),
    (37, drop_frames("moment")),
    (41, replace_text(r"event: [^\n]*\n", "")),
    (43, replace_text(r'"index":2', '"index":3')),
    (46, replace_text('"type":"tool_use"', '"type":"text"')),
    (47, drop_frames("response.output_item.done")),
    (49, replace_text(r'"response":\{', '"body":{')),
    (50, drop_frames("response.output_item.done")),
    (53, replace_text(r"It is 15", "It is 15It is 15")),
    (55, replace_text(r'"(id|item_id)":"(fc|msg)_[^"]*"', r'"\1":"__fake_id__"')),
    (57, lambda text: text + "data: [DONE]\n\n"),
    (58, replace_text("response.failed", "response.completed")),
    (106, replace_text("custom_tool_call", "function_call")),
    (109, replace_text(r'"namespace":"[^"]*",?', "")),
    (111, replace_text(r'"namespace":"[^"]*",?', "")),
    (130, replace_text("weather.get|1c_ssl", "renamed")),
    (147, replace_text(r'"(tool_use|tool_calls)"([,}])', r'"stop"\2')),
    (149, replace_text(r'"(length|max_tokens)"', '"stop"')),
    (150, replace_text("error", "erreur")),
    (151, replace_text('"stop_sequence":"END"', '"stop_sequence":null')),
    (154, replace_text(r'"(input_tokens|prompt_tokens)":\d+', r'"\1":2200')),
    (165, replace_text("response.failed", "response.completed")),
    (166, drop_frames("event: error")),
    (169, replace_text("RetryInfo", "Info")),
    (170, replace_text("overloaded_error", "api_error")),
    (171, replace_text("Feathers", "Something")),
    (177, replace_text("雪", "\ufffd\ufffd")),
]


def finds_fault(number: int, transport: FaultyLibrary) -> bool:
    cases = [case for case in read_case(FILES[number]) if not case.out_of_reach]
    return any(not play_case(case, transport).passed for case in cases if play_case(case, InProcessTransport()).passed)


@pytest.mark.parametrize(("number", "fault"), REQUEST_FAULTS, ids=[f"{row[0]:03}" for row in REQUEST_FAULTS])
def test_fault_in_the_request_is_found(number: int, fault: Callable[[Object], Any]) -> None:
    assert finds_fault(number, FaultyLibrary(fault, None))


@pytest.mark.parametrize(("number", "fault"), ANSWER_FAULTS, ids=[f"{row[0]:03}" for row in ANSWER_FAULTS])
def test_fault_in_the_answer_is_found(number: int, fault: Callable[[str], str]) -> None:
    assert finds_fault(number, FaultyLibrary(None, fault))


def test_drop_frames_keeps_other_frames() -> None:
    frames = read_frames(": hello\n\nevent: a\r\ndata: {}\r\n\r\ndata: x\ndata: y\n\ndata: [DONE]")
    assert [(frame.event, frame.data, frame.other_lines) for frame in frames] == [
        (None, "", (": hello",)),
        ("a", {}, ()),
        (None, "x\ny", ()),
        (None, "[DONE]", ()),
    ]
