"""The clients of the suite: they read valid streams, and report what real clients would fail on."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from toolwire_conformance.expectations import find_differences
from toolwire_conformance.peers import PEERS
from toolwire_conformance.peers.peer import ModelAnswer, read_frames, write_frame

SAMPLES = Path(__file__).parents[1] / "samples"

UNREADABLE = {
    "openai-responses-parallel_calls_interleaved": "is open",
    "gemini-error_midstream_bare_json": "other than data",
    "gemini-interactions_function_call": "event line",
}
FILES = [(name, file) for name in PEERS for file in sorted((SAMPLES / name.replace("-", "_")).glob("*.sse"))]


@pytest.mark.parametrize(("name", "file"), FILES, ids=[f"{name}-{file.stem}" for name, file in FILES])
def test_samples(name: str, file: Path) -> None:
    """The clients read every sample that the SDKs read, except those on which a real agent would fail."""
    folded = PEERS[name].fold_stream(read_frames(file.read_text("utf-8")))
    message = UNREADABLE.get(f"{name}-{file.stem}")
    if message is None:
        assert folded.violations == ()
    else:
        assert any(message in line for line in folded.violations)


WHOLE: dict[str, dict[str, Any]] = {
    "bedrock-converse": {
        "output": {
            "message": {
                "role": "assistant",
                "content": [
                    {"reasoningContent": {"reasoningText": {"text": "Plan.", "signature": "c2ln"}}},
                    {"text": "Let me look."},
                    {"toolUse": {"toolUseId": "t1", "name": "f", "input": {"a": 1}}},
                    {"toolUse": {"toolUseId": "t2", "name": "f", "input": {}}},
                ],
            }
        },
        "stopReason": "tool_use",
    },
    "openai-chat": {
        "choices": [
            {
                "message": {
                    "content": "Let me look.",
                    "tool_calls": [
                        {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
                        {"id": "call_2", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                    ],
                },
                "finish_reason": "tool_calls",
            }
        ]
    },
    "openai-responses": {
        "output": [
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Plan."}]},
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "Let me look.", "annotations": []}],
            },
            {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": '{"a":1}'},
            {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c2", "name": "g", "input": "raw"},
        ]
    },
    "anthropic": {
        "content": [
            {"type": "thinking", "thinking": "Plan.", "signature": "c2ln"},
            {"type": "text", "text": "Let me look."},
            {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1}},
            {"type": "tool_use", "id": "toolu_2", "name": "f", "input": {}},
        ],
        "stop_reason": "tool_use",
    },
    "gemini": {
        "candidates": [
            {
                "content": {
                    "parts": [
                        {"text": "Plan.", "thought": True},
                        {"text": "Let me look."},
                        {"functionCall": {"id": "c1", "name": "f", "args": {"a": 1}}, "thoughtSignature": "c2ln"},
                    ]
                },
                "finishReason": "STOP",
            }
        ]
    },
}


@pytest.mark.parametrize("name", PEERS)
def test_whole_answer_and_stream_are_equal(name: str) -> None:
    peer = PEERS[name]
    whole = peer.complete_answer(WHOLE[name], "model")
    folded = peer.fold_stream(read_frames("".join(peer.write_stream(whole))))
    assert folded.violations == ()
    assert folded.body == whole
    assert peer.history_turns(folded.body) == peer.history_turns(whole)


def write_frames(name: str, *changes: Any) -> str:
    """The stream of the whole answer with some frames replaced, or removed (None)."""
    peer = PEERS[name]
    frames = peer.write_stream(peer.complete_answer(WHOLE[name], "model"))
    for index, text in changes:
        frames[index] = text or ""
    return "".join(frames)


BROKEN: list[tuple[str, str, str]] = [
    ("anthropic", write_frames("anthropic", (0, None)), "before message_start"),
    ("anthropic", write_frames("anthropic", (-1, None)), "without message_stop"),
    ("anthropic", write_frames("anthropic", (3, None)) + "data: [DONE]\n\n", "without an event line"),
    ("anthropic", write_frames("anthropic", (1, None)), "open is none"),
    ("openai-chat", write_frames("openai-chat", (-3, None)), "no finish_reason"),
    ("openai-responses", write_frames("openai-responses", (0, None)), "not response.created"),
    ("openai-responses", write_frames("openai-responses", (-1, None)), "ended without"),
    ("openai-responses", write_frames("openai-responses", (-2, None)), "never done"),
    (
        "openai-responses",
        write_frame("error", {"type": "error", "message": "Flat, so no SDK raises it."}),
        "ended with",
    ),
    ("gemini", write_frames("gemini", (-1, None)), "no finishReason"),
    ("gemini", write_frames("gemini") + "data: [DONE]\n\n", "not a JSON object"),
    ("gemini", ": hello\n\n" + write_frames("gemini"), "other than data"),
    ("gemini", write_frame("message", json.loads(write_frames("gemini").split("\n")[0][6:])), "event line"),
]


@pytest.mark.parametrize(("name", "text", "message"), BROKEN, ids=[f"{row[0]}-{row[2]}" for row in BROKEN])
def test_violations(name: str, text: str, message: str) -> None:
    violations = PEERS[name].fold_stream(read_frames(text)).violations
    assert any(message in line for line in violations), violations


ERROR = {"type": "server_error", "code": None, "message": "Broken.", "param": None}
UNUSUAL: list[tuple[str, str, str]] = [
    ("openai-chat", write_frames("openai-chat", (-1, None)), "without [DONE]"),
    ("openai-chat", write_frames("openai-chat") + "data: [DONE]\n\n", "after [DONE]: [DONE]"),
    ("anthropic", write_frames("anthropic") + "data: [DONE]\n\n", "is ignored: [DONE]"),
    ("openai-responses", write_frames("openai-responses") + "data: [DONE]\n\n", "not an event: [DONE]"),
    ("openai-responses", re.sub("(?m)^event: .*\n", "", write_frames("openai-responses")), "event line None"),
    (
        "openai-responses",
        re.sub('"sequence_number":', '"number":', write_frames("openai-responses")),
        "sequence_number None",
    ),
    ("openai-responses", write_frame("error", {"type": "error", "sequence_number": 0, "error": ERROR}), "is error"),
]


@pytest.mark.parametrize(("name", "text", "message"), UNUSUAL, ids=[f"{row[0]}-{row[2]}" for row in UNUSUAL])
def test_minor_violations(name: str, text: str, message: str) -> None:
    """Codex and the SDKs of OpenAI, Anthropic and Vercel read these streams: wrong for the library, but not for a gateway."""
    folded = PEERS[name].fold_stream(read_frames(text))
    assert folded.violations == folded.minor_violations != ()
    assert all(message in line for line in folded.minor_violations)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 1, 3)], ids=["after all calls", "each after its call"])
def test_outputs_of_responses_follow_their_calls(order: tuple[int, ...]) -> None:
    peer = PEERS["openai-responses"]
    answer = ModelAnswer(calls=(("get_weather", {"city": "Rome"}), ("get_time", {"city": "Oslo"})))
    said = peer.write_answer(answer)
    items = [*said["output"], *peer.write_results(said, ["rain", "noon"])]
    body = {"input": [{"role": "user", "content": "Well?"}, *(items[at] for at in order)]}
    assert find_differences(peer.expect_later_request("Well?", answer, ["rain", "noon"]), body, {}) == []
    body["input"].append(body["input"].pop(1))
    assert find_differences(peer.expect_later_request("Well?", answer, ["rain", "noon"]), body, {})
